"""Wrong answers to the exercises of precision."""

from tests.exercises.wrong_answers import Wrong, in_place_of, one_wrong

FORMAT = (
    "largest = {}\nlargest_without = {}\nsmallest = {}\napart = {}\ndigits = {}\nmantissa_bits = {}"
)
FORMAT_RIGHT = [252, 496, 2**-11, 2, 1.8, 2]
RUNS = 'first = dict(A="{}", B="{}", C="{}", D="{}")\n'
RUNS_RIGHT = ["updates", "gradients", "nothing", "sums"]
STILL = "still_in_bf16 = {}\nstill_in_fp16 = {}\nmoving_below = {}\nwait = {}"
STILL_RIGHT = [5931, 9491, 2**-5, 4.88]
DESIGN = """
design = {{"elements": "{}", "size": {}, "scale": "{}"}}
changes = "elements"
four_bits_up_to = 21.6
mantissa_bits_45 = 6
"""
BEST = DESIGN.format("FP6 E3M2", 128, "FP8 E4M3")
MEMORY = "falls = {}\nfalls_at_most = {}\nbatch = {}\nstate_bytes = {}\nfalls_then = {}"
MEMORY_RIGHT = [16 / 88, 0.4, 8, 30e9, 1 - 54 / 88]


def all_runs(*words: str) -> str:
    """An answer to question 3 with these words for the runs."""
    return RUNS.format(*words) + STILL.format(*STILL_RIGHT)


BANK = {
    "format": [
        *one_wrong(
            FORMAT,
            FORMAT_RIGHT,
            0,
            ("the next power of two", 256, "What does a mantissa of ones"),
        ),
        *one_wrong(
            FORMAT,
            FORMAT_RIGHT,
            1,
            ("NaN for a number", 504, "Which number is just below"),
        ),
        *one_wrong(
            FORMAT,
            FORMAT_RIGHT,
            2,
            ("the smallest normal number", 2**-6, "Below it the subnormal ones"),
        ),
        *one_wrong(
            FORMAT,
            FORMAT_RIGHT,
            3,
            ("half of it", 1, "how far rounding may be off"),
        ),
        Wrong(
            "no subnormal numbers",
            "(1 - bias)]",
            "What is the bias of so many exponent bits, what the highest",
            "(1 - bias - mantissa)]",
        ),
    ],
    "rounding": [
        *in_place_of(
            "whole = round(steps)  # a half to the even one",
            ("toward zero", "whole = math.floor(steps)", "cuts off"),
            ("ties away from zero", "whole = math.floor(steps + 0.5)", "Sums would drift"),
            ("ties toward zero", "whole = math.ceil(steps - 0.5)", "nearer to zero every time"),
        ),
        *in_place_of(
            "q = 2.0 ** (power - mantissa)",
            (
                "in proportion to x",
                "q = max(abs(x), 2.0**least) * 2.0**-mantissa",
                "how far apart numbers lie there",
            ),
        ),
        *in_place_of(
            "power = max(math.frexp(x)[1] - 1, least)  # of the power of two below",
            (
                "no end to the exponents",
                "power = math.frexp(x)[1] - 1",
                "the spacing ends to shrink",
            ),
            (
                "the logarithm of zero",
                "power = max(math.floor(math.log2(abs(x))), least)",
                "math domain error",
            ),
        ),
        *in_place_of(
            "return math.copysign(min(whole * q, most), x)",
            ("no end", "return math.copysign(whole * q, x)", "448 is the largest number"),
        ),
        *in_place_of(
            "whole = math.floor(steps) + (random < steps % 1)",
            (
                "up and down by a whole step",
                "whole = round(steps + random - 0.5 + 1e-9) + (random > 0.9)",
                "The neighbors are 5 and 5.5",
            ),
        ),
    ],
    "breaks": [
        *(
            Wrong(name, all_runs(*words), hint)
            for name, words, hint in (
                (
                    "no master weights, so it loses updates",
                    ("updates", "gradients", "updates", "sums"),
                    "C has no master weights",
                ),
                (
                    "range is all",
                    ("nothing", "gradients", "nothing", "sums"),
                    "take the updates themselves",
                ),
                (
                    "master weights mend gradients",
                    ("updates", "nothing", "nothing", "sums"),
                    "keep what arrives",
                ),
                (
                    "BF16 sums like FP32",
                    ("updates", "gradients", "nothing", "nothing"),
                    "ten thousand terms up",
                ),
            )
        ),
        Wrong(
            "a whole spacing",
            "spacing / rate",
            "How far apart do numbers lie round the weight, and from",
            "spacing / 2 / rate",
        ),
    ],
    "scaler": [
        *in_place_of(
            "[g.float() / scale for g in scaled]",
            ("not unscaled", "[g.float() for g in scaled]", "still the gradients of the loss"),
            (
                "unscaled twice",
                "[g.float() / scale / scale for g in scaled]",
                "divided by `scale` twice",
            ),
        ),
        *in_place_of(
            "if not all(bool(g.isfinite().all()) for g in gradients):",
            (
                "looks at the first tensor alone",
                "if not bool(gradients[0].isfinite().all()):",
                "in the second tensor alone",
            ),
            (
                "looks for NaN alone",
                "if any(bool(g.isnan().any()) for g in gradients):",
                "holds an infinity",
            ),
            (
                "skips what is long",
                "if sum(float(g.square().sum()) for g in gradients) > limit**2:",
                "and not skipped",
            ),
        ),
        *in_place_of(
            "return None, scale / 2, 0",
            ("counts on after a skip", "return None, scale / 2, clean", "are not three in a row"),
        ),
        *in_place_of(
            "if clean + 1 == interval:\n        return gradients, scale * 2, 0",
            (
                "counts on after it grows",
                "if clean + 1 >= interval:\n        return gradients, scale * 2, clean + 1",
                "and from then on with every one",
            ),
            (
                "an interval of three",
                "if clean + 1 == 3:\n        return gradients, scale * 2, 0",
                "any interval",
            ),
        ),
    ],
    "fault": [
        *in_place_of(
            "shorter = 0.25 / (1 / 1024)  # cut to 1 while it is 256",
            ("as if clipped", "shorter = 1024", "0.25 is below the limit"),
        ),
        *in_place_of(
            "return master - RATE * gradient",
            ("a master copy in 16 bits", "return w - RATE * gradient", "from where does it start"),
            (
                "the update is rounded, too",
                "return (master - RATE * gradient).half()",
                "The weights come back in FP16",
            ),
            (
                "rounded and widened again",
                "return (w - RATE * gradient.half()).float()",
                "rounded on the way",
            ),
            (
                "unscaled twice",
                "return master - RATE * gradient / scale",
                "divided by `scale` twice",
            ),
        ),
        *in_place_of(
            "gradient = gradient * min(1.0, limit / gradient.norm())",
            ("never clipped", "pass", "has to be cut to it"),
        ),
        *in_place_of(
            "if not gradient.isfinite().all():\n        return master",
            ("no skip", "pass", "such a step is skipped"),
            (
                "a skip that rounds",
                "if not gradient.isfinite().all():\n        return w.float()",
                "have lost what FP16 does not hold",
            ),
            (
                "infinity is cut to the largest number",
                "gradient = gradient.nan_to_num()",
                "such a step is skipped",
            ),
        ),
    ],
    "sum": [
        *in_place_of(
            "still_bf16 = 1.0",
            ("where it still moves", "still_bf16 = 0.5", "Here it still moves"),
        ),
        *in_place_of(
            "of_chunk = fmt.round(of_chunk + value)",
            ("rounded once a chunk", "of_chunk += value", "This is the exact sum"),
            ("a format of its own", "of_chunk = BF16.round(of_chunk + value)", "passed in"),
        ),
        *in_place_of(
            "total += of_chunk",
            ("a total in 16 bits", "total = fmt.round(total + of_chunk)", "That total is in FP32"),
            ("the last chunk alone", "total = of_chunk", "the last chunk alone"),
            ("the first chunk alone", "return of_chunk", "the first chunk alone"),
        ),
        Wrong(
            "one running sum",
            "total = fmt.round(total + value)",
            "it stagnates",
            "of_chunk = fmt.round(of_chunk + value)",
        ),
        Wrong(
            "the last chunk is missing",
            "for start in range(0, len(values) - chunk + 1, chunk):",
            "is missing here",
            "for start in range(0, len(values), chunk):",
        ),
    ],
    "blocks": [
        *(
            Wrong(name, DESIGN.format(*design), "less than 29 dB with outliers")
            for name, design in (("mantissa bits in long blocks", ("FP6 E2M3", 128, "FP8 E4M3")),)
        ),
        *(
            Wrong(name, DESIGN.format(*design), hint)
            for name, design, hint in (
                (
                    "mantissa bits in short blocks",
                    ("FP6 E2M3", 32, "FP8 E4M3"),
                    "Longer blocks take fewer",
                ),
                ("the smallest blocks", ("FP6 E3M2", 16, "FP8 E4M3"), "with small blocks"),
                ("blocks of 64", ("FP6 E3M2", 64, "FP8 E4M3"), "longer still"),
                ("the finest elements", ("FP8 E4M3", 128, "FP8 E4M3"), "more than it takes"),
                ("a choice that there is not", ("INT8", 32, "E8M0"), "is no choice that there is"),
            )
        ),
        Wrong("outliers ask for size", BEST + 'changes = "size"', "a block of any size"),
        Wrong("a value, not a name", BEST + 'changes = "FP6 E2M3"', "the name of one choice"),
        Wrong(
            "without outliers",
            "decibels(one, WITHOUT)",
            "Of all designs, keep those with enough decibels, and take",
            "decibels(one, WITH)",
        ),
    ],
    "memory": [
        *one_wrong(
            MEMORY,
            MEMORY_RIGHT,
            0,
            ("half", 0.5, "the moments stay: how large"),
        ),
        *one_wrong(
            MEMORY,
            MEMORY_RIGHT,
            1,
            ("half of the activations", 0.5, "A fifth of the activations"),
        ),
        *one_wrong(
            MEMORY,
            MEMORY_RIGHT,
            2,
            ("rounded down", 7, "a little less than 30 %"),
        ),
        *one_wrong(
            MEMORY,
            MEMORY_RIGHT,
            3,
            ("no copy in FP32", 18e9, "only the moments are in 8 bits"),
        ),
        Wrong(
            "all of it in 16 bits",
            "kept / 2",
            "What does mixed precision save of the state, and what of a",
            "kept * (1 - full) / 2",
        ),
    ],
}

# The wrong values that the sealed hints of a check are for, in their order; ... is one that
# nobody has found.
SEALED = {
    "format": {
        "largest": [256, 504, 496, 128, 248, 240, 255, 126, 250],
        "largest_without": [504, 252, 248, 256, 512, ..., 508, 500],
        "smallest": [0.0156, 0.000244, 0.00781, 0.0312, 0.00098, 0],
        "apart": [1, 3.12, 0.0312, 4, ..., 64, 8],
        "digits": [1.5, 3.01, 6, 1.2, 5, 2],
        "mantissa_bits": [3, 4, 1, 6, 5],
    },
    "breaks": {
        "of_runs(first)[0]": ['nothing', 'gradients', 'sums'],
        "of_runs(first)[1]": ['nothing', 'updates', 'sums'],
        "of_runs(first)[2]": ['updates', 'gradients', 'sums'],
        "of_runs(first)[3]": ['nothing', 'gradients', 'updates'],
        "still_in_bf16": [1862, 4069, 7965, 3490, 9491, 6000, 0, ...],
        "still_in_fp16": [8983, 5931, 509, 9700, ...],
        "moving_below": [0.0156, 0.0625, 0.0078, 0.0256, 0.0512, 0.25, 0.03, ...],
        "wait": [2.44, 0.205, 0.61, 1, 0.41, 0.81, 5],
    },
    "fault": {
        "shorter": [1024, 1, 4096, 0.25, 0.00391, 510],
        "shorter_if_clipped": [4096, 256, 4, 1, 0.00098],
    },
    "sum": {
        "still_bf16": [0.5, 2, 8, 0.768, 1.54, 277, ...],
        "still_fp16": [1, 4, 16, 3, 65504],
        "chunk_bf16": [256, 64, 1024, 1, 8192],
        "chunk_fp16": [2048, 512, 128, 8192],
        "chunk_four_times": [32, 512, 64, 256, 1024],
    },
    "blocks": {
        "changes": ['size', 'scale'],
        "four_bits_up_to": [16, 19.1, 14, 20.5, 4.5, 29],
        "mantissa_bits_45": [5, 5.24, 3.2, 7, 4, 3, 9, ..., ...],
    },
    "memory": {
        "falls": [0.4, 0.5, 0.818, 0.2, 18, 0.227, 0.455, 0.318, 0.118, 0.222, 0.36],
        "falls_at_most": [0.5, 0.6, 40, 0.1, 0.18, 1, 0.8],
        "batch": [7, 7.2, 9, 4, 3, 6],
        "state_bytes": [1.8e10, 2.7e10, 2.4e10, 3.6e10, 30, 2.1e10, 6e9, 4.8e10, 10, 3.9e10],
        "falls_then": [0.614, 0.25, 0.375, 0.205, 0.432, 0.4, 39, ..., 0.52],
    },
}  # fmt: skip


# Answers of another structure: what came, its source, words of the sentence, what of the solution it replaces.
FAULT = "return master - RATE * gradient"
CLEAN = "return gradients, scale, clean + 1"

OTHERWISE: dict[str, list[tuple[str, ...]]] = {
    "format": [
        ("a list", "largest = [252.0]", "take them off"),
        ("text", 'largest = "252"', "write it without quotes"),
    ],
    "rounding": [
        ("a pair", "return x, mantissa", "[0] is a tuple of 2"),
        ("text", "return str(x)", "[0] is the text '1.4'"),
        ("printed", "print(x)", "not answered yet, or a function ends without `return`"),
    ],
    "breaks": [
        ("a list", f"first = {RUNS_RIGHT}", "a dictionary with the keys 'A', 'B', 'C', 'D'"),
        ("a run too few", 'first = {"A": "updates"}', "it is a dictionary with the keys ['A']"),
        ("words of its own", RUNS.format("master", "range", "nothing", "sums"), "is none of the words"),
    ],
    "scaler": [
        ("gradients alone", "return gradients", "should be a tuple of 3", CLEAN),
        ("a dictionary", 'return {"scale": scale}', "it is a dictionary", CLEAN),
        ("one vector", "return torch.cat(gradients), scale, clean", "[0] is an array or tensor of shape (8,)", CLEAN),
        ("a dictionary of gradients", 'return {"0": gradients[0]}, scale, clean', "a list of tensors, a number, a whole number", CLEAN),
        ("a tensor too few", "return gradients[:1], scale, clean", "The gradients should be a list of 2", CLEAN),
        ("a part for the count", "return gradients, scale, 0.5", "[2] is the number 0.5", CLEAN),
    ],
    "fault": [
        ("a pair", "return master, gradient", "What repaired returns should be a tensor", FAULT),
        ("a list", "return (master - RATE * gradient).tolist()", "it is a list of 6", FAULT),
        ("a column", "return (master - RATE * gradient)[:, None]", "of shape (6,); (6, 1) came", FAULT),
    ],
    "sum": [
        ("all sums", "return [total]", "What chunked_sum returns should be a number", "return total"),
        ("a pair", "return total, chunk", "it is a tuple of 2", "return total"),
    ],
    "blocks": [
        ("a list", 'design = ["FP6 E3M2", 128, "FP8 E4M3"]', "a dictionary with the keys 'elements'"),
        ("size as text", 'design = {"elements": "FP6 E3M2", "size": "128", "scale": "E8M0"}', "take one of 16, 32"),
    ],
    "memory": [("a pair", "falls = (0.18, 0.4)", "a list of 2 came")],
}  # fmt: skip

# The programs that are asked for, by question.
PROGRAMS = {
    "rounding": "rounded",
    "scaler": "scaler_step",
    "fault": "repaired",
    "sum": "chunked_sum",
}

# Right answers of another kind: what came, its source, what of the solution it replaces.
RIGHT = {
    "format": [("rounded", FORMAT.format(252, 496.0, 4.9e-4, 2, 1.8, 2))],
    "rounding": [
        (
            "the other half of random",
            "whole = math.floor(steps) + (random >= 1 - steps % 1)",
            "whole = math.floor(steps) + (random < steps % 1)",
        ),
        (
            "down from zero, by chance",
            """
            q = 2.0 ** (max(math.frexp(x)[1] - 1, least) - mantissa)
            steps = x / q
            whole = round(steps) if random is None else math.floor(steps + random)
            return max(-most, min(most, whole * q))
            """,
        ),
    ],
    "breaks": [
        ("rounded", RUNS.format(*RUNS_RIGHT) + STILL.format(5900, 9500, 0.031, 4.9)),
        ("in capitals", '"Updates"', '"updates"'),
    ],
    "scaler": [
        (
            "the scale as a tensor",
            "return None, torch.tensor(scale / 2), 0",
            "return None, scale / 2, 0",
        ),
        (
            "tensors to the end",
            """
            whole = torch.cat([g.flatten() for g in scaled]).float() / scale
            if not whole.isfinite().all():
                return None, scale * 0.5, 0
            whole = whole * torch.clamp(limit / whole.norm(), max=1.0)
            parts = whole.split([g.numel() for g in scaled])
            grown = (clean + 1) % interval == 0
            return list(parts), scale * (2 if grown else 1), 0 if grown else clean + 1
            """,
        ),
    ],
    "fault": [
        (
            "the limit scaled instead",
            "gradient = gradient.float()\n    gradient = gradient * min(1.0, limit * scale / gradient.norm())\n    gradient = gradient / scale",
            "gradient = gradient.float() / scale\n    gradient = gradient * min(1.0, limit / gradient.norm())",
        ),
        ("rounded", "shorter = 260", "shorter = 0.25 / (1 / 1024)"),
    ],
    "memory": [("rounded", MEMORY.format(0.18, 0.4, 8, 3.0e10, 0.39))],
}
