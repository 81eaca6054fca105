"""Wrong answers to the exercises of precision."""

from tests.exercises.wrong_answers import Wrong, in_place_of

FORMAT = (
    "largest = {}\nlargest_without = {}\nsmallest = {}\napart = {}\ndigits = {}\nmantissa_bits = {}"
)
FORMAT_RIGHT = [252, 496, 2**-11, 2, 1.8, 2]
RUNS = 'first = dict(A="{}", B="{}", C="{}", D="{}")\n'
RUNS_RIGHT = ["updates", "gradients", "nothing", "sums"]
STILL = "still_in_bf16 = {}\nstill_in_fp16 = {}\nmoving_below = {}\nwait = {}"
STILL_RIGHT = [5931, 9491, 2**-5, 4.88]
SUM = "still_bf16 = {}\nstill_fp16 = {}"
CHUNKS = "chunk_bf16 = {}\nchunk_fp16 = {}\nchunk_four_times = {}"
DESIGN = """
design = {{"elements": "{}", "size": {}, "scale": "{}"}}
changes = "elements"
four_bits_up_to = 21.6
mantissa_bits_45 = 6
"""
BEST = DESIGN.format("FP6 E3M2", 128, "FP8 E4M3")
MEMORY = "falls = {}\nfalls_at_most = {}\nbatch = {}\nstate_bytes = {}\nfalls_then = {}"
MEMORY_RIGHT = [16 / 88, 0.4, 8, 30e9, 1 - 54 / 88]


def one_wrong(
    form: str, right: list[object], place: int, *wrong: tuple[str, object, str]
) -> list[Wrong]:
    """Answers that are right but for the one in this place: misconception, what came, and hint."""
    return [
        Wrong(name, form.format(*right[:place], came, *right[place + 1 :]), hint)
        for name, came, hint in wrong
    ]


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
            ("the highest field holds numbers", 504, "kept for infinity and NaN: which field"),
            ("no infinities", 496, "So it is without infinities"),
            ("a mantissa of zero", 128, "what is the largest one"),
            ("three mantissa bits", 240, "Here there are five"),
            ("four mantissa bits", 248, "one mantissa bit too few"),
            ("the bias taken once too often", 126, "The exponent is one too small"),
            ("rounded", 250, "This is rounded"),
        ),
        *one_wrong(
            FORMAT,
            FORMAT_RIGHT,
            1,
            ("NaN for a number", 504, "Which number is just below"),
            ("infinities", 252, "one more exponent field holds"),
            ("the smallest with this exponent", 256, "What is the largest mantissa with it"),
            ("a power of two", 512, "if all ones are NaN"),
            ("rounded", 500, "This is rounded"),
        ),
        *one_wrong(
            FORMAT,
            FORMAT_RIGHT,
            2,
            ("the smallest normal number", 2**-6, "Below it the subnormal ones"),
            ("an exponent of their own", 2**-12, "the exponent of the smallest normal one"),
            ("field 0 with a leading 1", 2**-7, "as if it had a leading 1"),
            ("epsilon", 2**-5, "the step from 1 to the next"),
        ),
        *one_wrong(
            FORMAT,
            FORMAT_RIGHT,
            3,
            ("half of it", 1, "how far rounding may be off"),
            ("in proportion", 100 / 32, "in proportion to 100"),
            ("epsilon round 100", 2**-5, "farther apart"),
            ("above the power of two", 4, "This is beyond 128"),
            ("the power of two below", 64, "Into how many steps"),
        ),
        *one_wrong(
            FORMAT,
            FORMAT_RIGHT,
            4,
            ("without the leading 1", 1.505, "is a bit of the number"),
            ("all bits", 3.01, "counts all ten bits"),
            ("binary digits", 6, "How many decimal ones"),
            ("of the exponent", 1.204, "Exponent bits buy range"),
        ),
        *one_wrong(
            FORMAT,
            FORMAT_RIGHT,
            5,
            ("too short at the lower end", 3, "how small is the smallest subnormal"),
            ("too short at the upper end", 4, "below 300"),
            ("more range than is needed", 1, "one mantissa bit more"),
            ("the exponent bits", 6, "How many bits are left"),
        ),
    ],
    "rounding": [
        *in_place_of(
            "whole = round(steps)  # a half to the even one",
            ("toward zero", "whole = math.floor(steps)", "cuts off"),
            ("ties away from zero", "whole = math.floor(steps + 0.5)", "Sums would drift"),
            ("ties toward zero", "whole = math.ceil(steps - 0.5)", "nearer to zero every time"),
            (
                "ties to the odd one",
                "whole = round(steps)\n        if steps % 1 == 0.5:\n            whole += (-1) ** whole if whole < steps else -1",
                "goes to the odd one",
            ),
        ),
        *in_place_of(
            "q = 2.0 ** (power - mantissa)",
            ("one bit too many", "q = 2.0 ** (power - mantissa - 1)", "one mantissa bit too many"),
            ("one bit too few", "q = 2.0 ** (power - mantissa + 1)", "one mantissa bit too few"),
            ("equal steps everywhere", "q = 2.0**-mantissa", "equal steps everywhere"),
            (
                "in proportion to x",
                "q = max(abs(x), 2.0**least) * 2.0**-mantissa",
                "how far apart numbers lie there",
            ),
        ),
        Wrong(
            "always down",
            """
            q = 2.0 ** (max(math.frexp(x)[1] - 1, least) - mantissa)
            return math.floor(x / q) * q
            """,
            "always goes down",
        ),
        Wrong(
            "ties up, also below zero",
            """
            q = 2.0 ** (max(math.frexp(x)[1] - 1, least) - mantissa)
            return math.floor(x / q + 0.5) * q
            """,
            "this goes up every time",
        ),
        *in_place_of(
            "power = max(math.frexp(x)[1] - 1, least)  # of the power of two below",
            (
                "flushes subnormal numbers",
                "power = math.frexp(x)[1] - 1\n    if power < least:\n        return 0.0",
                "below the smallest normal one are not zero",
            ),
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
            (
                "infinity",
                "if whole * q > most:\n        return math.copysign(math.inf, x)\n    return math.copysign(whole * q, x)",
                "This format saturates",
            ),
            ("no sign", "return min(whole * q, most)", "The sign is lost"),
            (
                "no end below zero",
                "return min(math.copysign(whole * q, x), most)",
                "an end as well",
            ),
            (
                "the largest number without its sign",
                "return math.copysign(whole * q, x) if whole * q < most else most",
                "also beyond the largest",
            ),
        ),
        *in_place_of(
            "whole = math.floor(steps) + (random < steps % 1)",
            ("nearest all the same", "whole = round(steps)", "This is to nearest"),
            ("half of all", "whole = math.floor(steps) + (random < 0.5)", "in half of all cases"),
            (
                "the wrong way round",
                "whole = math.floor(steps) + (random > steps % 1)",
                "wrong way round",
            ),
            ("always up", "whole = math.ceil(steps)", "always goes up"),
            (
                "up and down by a whole step",
                "whole = round(steps + random - 0.5 + 1e-9) + (random > 0.9)",
                "The neighbors are 5 and 5.5",
            ),
            (
                "in proportion to x, not to the spacing",
                "whole = math.floor(steps) + (random < abs(x) % 1)",
                "The neighbors are",
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
                    "range is all that FP16 lacks",
                    ("updates", "gradients", "gradients", "sums"),
                    "are well within FP16",
                ),
                (
                    "BF16 flushes 1e-9",
                    ("gradients", "gradients", "nothing", "sums"),
                    "What about the updates of A",
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
                (
                    "master weights and lost updates",
                    ("updates", "gradients", "nothing", "updates"),
                    "D has master weights",
                ),
            )
        ),
        *one_wrong(
            RUNS.format(*RUNS_RIGHT) + STILL,
            STILL_RIGHT,
            0,
            ("the whole spacing", 1862, "compares the update with the whole spacing"),
            ("counted from the end", 4069, "still moves. The rate begins"),
            ("another power of two", 7965, "0.1 lies between"),
            ("in proportion to the weight", 3490, "in proportion to the weight"),
            ("of FP16", 9491, "So it is in FP16"),
            ("from the beginning", 0, "But at 6e-4"),
        ),
        *one_wrong(
            RUNS.format(*RUNS_RIGHT) + STILL,
            STILL_RIGHT,
            1,
            ("the whole spacing in FP16", 8983, "compares the update with the whole spacing"),
            ("of BF16", 5931, "So it is in BF16"),
            ("counted from the end in FP16", 508.6, "still moves"),
        ),
        *one_wrong(
            RUNS.format(*RUNS_RIGHT) + STILL,
            STILL_RIGHT,
            2,
            ("half of it", 2**-6, "twice this size"),
            ("twice as much", 2**-4, "half of that is more than 1e-4"),
            ("no jumps", 0.0256, "It jumps at powers of two"),
            ("no jumps, the other end", 0.0512, "It jumps at powers of two"),
            ("of FP16, too", 2**-2, "So it is in FP16"),
        ),
        *one_wrong(
            RUNS.format(*RUNS_RIGHT) + STILL,
            STILL_RIGHT,
            3,
            ("half a spacing", 2.44, "This takes half the spacing"),
            ("its inverse", 0.2048, "how often it moves"),
            ("a bit in every step", 1, "a move takes the weight a whole spacing"),
            ("FP16", 0.61, "So it is in FP16"),
            ("the first rate", 0.81, "Here the rate is 1e-4"),
            ("one digit", 5, "rounded to one digit"),
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
            ("unscaled in FP16", "[g / scale for g in scaled]", "while they were in FP16"),
            (
                "unscaled in FP16, then cast",
                "[(g / scale).float() for g in scaled]",
                "Go to FP32 before",
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
                "looks for infinity alone",
                "if any(bool(g.isinf().any()) for g in gradients):",
                "A NaN is not infinite",
            ),
            (
                "looks for NaN alone",
                "if any(bool(g.isnan().any()) for g in gradients):",
                "holds an infinity",
            ),
            (
                "skips a tensor, not the step",
                "if not any(bool(g.isfinite().all()) for g in gradients):",
                "in the first tensor alone",
            ),
            ("skips nothing", "if False:", "holds an infinity"),
            (
                "clipping instead of a skip",
                "gradients = [g.nan_to_num(0.0, 0.0, 0.0) for g in gradients]\n    if False:",
                "nothing of this step",
            ),
            (
                "skips what is long",
                "if sum(float(g.square().sum()) for g in gradients) > limit**2:",
                "and not skipped",
            ),
        ),
        *in_place_of(
            "if norm > limit:",
            ("never clipped", "if False:", "make them shorter"),
            ("always as long as the limit", "if norm > 0:", "much shorter than the limit"),
        ),
        Wrong(
            "clips before it unscales",
            """
            if not all(bool(g.isfinite().all()) for g in scaled):
                return None, scale / 2, 0
            whole = [g.float() for g in scaled]
            norm = math.sqrt(sum(float(g.square().sum()) for g in whole))
            gradients = [g * min(1.0, limit / norm) / scale for g in whole]
            if clean + 1 == interval:
                return gradients, scale * 2, 0
            return gradients, scale, clean + 1
            """,
            "unscale first",
        ),
        Wrong(
            "each by its own norm",
            "gradients = [g * min(1.0, limit / float(g.norm())) for g in gradients]",
            "changes the direction",
            "gradients = [g * (limit / norm) for g in gradients]",
        ),
        *in_place_of(
            "return None, scale / 2, 0",
            ("counts on after a skip", "return None, scale / 2, clean", "are not three in a row"),
            ("no back-off", "return None, scale, 0", "the scale is halved"),
            (
                "grows after overflow",
                "return None, scale * 2, 0",
                "A skipped step halves the scale",
            ),
        ),
        *in_place_of(
            "if clean + 1 == interval:\n        return gradients, scale * 2, 0",
            (
                "counts on after it grows",
                "if clean + 1 >= interval:\n        return gradients, scale * 2, clean + 1",
                "and from then on with every one",
            ),
            (
                "one step too late",
                "if clean == interval:\n        return gradients, scale * 2, 0",
                "one step too late",
            ),
            (
                "grows by four",
                "if clean + 1 == interval:\n        return gradients, scale * 4, 0",
                "four times as large",
            ),
            ("never grows", "if False:\n        pass", "The scale never grows"),
            (
                "grows in every step",
                "if True:\n        return gradients, scale * 2, 0",
                "doubles with every step",
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
            ("no fault below the limit", "shorter = 1", "what was compared with it"),
            ("the other way", "shorter = 4096", "The other way"),
            ("inverse", "shorter = 1 / 256", "Its inverse"),
            ("the norm", "shorter = 0.25", "the norm that is right"),
        ),
        *in_place_of(
            "shorter_if_clipped = 1 / (1 / 1024)",
            ("not clipped at all", "shorter_if_clipped = 4096", "should not stay"),
            ("as with 0.25", "shorter_if_clipped = 256", "So it is with a norm of 0.25"),
            ("before it is divided", "shorter_if_clipped = 4", "once it is divided"),
            ("both are clipped", "shorter_if_clipped = 1", "divided by `scale` after that"),
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
            (
                "unscaled twice, from 16 bits",
                "return w - RATE * gradient / scale",
                "and the step starts from weights of 16 bits",
            ),
        ),
        *in_place_of(
            "gradient = gradient.float() / scale",
            ("not unscaled at all", "gradient = gradient.float()", "still times `scale`"),
            (
                "unscaled in two places",
                "gradient = (gradient.float() / scale) / scale",
                "divided by `scale` twice",
            ),
        ),
        *in_place_of(
            "gradient = gradient * min(1.0, limit / gradient.norm())",
            ("never clipped", "pass", "has to be cut to it"),
            (
                "the limit is scaled the wrong way",
                "gradient = gradient * min(1.0, limit / scale / gradient.norm())",
                "the norm was cut while",
            ),
        ),
        Wrong(
            "no weights of 16 bits at all",
            "w = master",
            "with weights of FP32",
            "w = master.half()",
        ),
        Wrong(
            "nothing repaired",
            "return faulty(master, x, y, scale, limit)",
            "Nothing is repaired yet",
            """w = master.half()
    error = (x @ w.float() - y).half()
    gradient = (x.T @ (error.float() * (2 * scale / len(x)))).half()
    if not gradient.isfinite().all():
        return master
    gradient = gradient.float() / scale
    gradient = gradient * min(1.0, limit / gradient.norm())
    return master - RATE * gradient""",
        ),
        Wrong(
            "the start alone is repaired",
            "gradient = gradient.float()\n    gradient = gradient * min(1.0, limit / gradient.norm()) / scale",
            "The starting point is right",
            "gradient = gradient.float() / scale\n    gradient = gradient * min(1.0, limit / gradient.norm())",
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
            ("too far", "still_bf16 = 2.0", "It does not come so far"),
            ("FP16", "still_bf16 = 8.0", "So it is in FP16"),
            ("spacing in proportion", "still_bf16 = 0.003 * 2**8", "stands still at a power"),
            ("twice that", "still_bf16 = 0.003 * 2**9", "stands still at a power"),
            ("how many", "still_bf16 = 277", "the numbers that were added"),
        ),
        *in_place_of(
            "still_fp16 = 8.0",
            ("BF16", "still_fp16 = 1.0", "So it is in BF16"),
            ("where FP16 still moves", "still_fp16 = 4.0", "Here it still moves"),
            ("too far in FP16", "still_fp16 = 16.0", "It does not come so far"),
            ("the largest number", "still_fp16 = 65504", "the largest number of FP16"),
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
            (
                "each chunk rounded once",
                "total += fmt.round(sum(values[start : start + chunk]))",
                "round after each value",
            ),
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
        Wrong(
            "torch's sum of 16 bits",
            "import torch\n    return float(torch.tensor(values, dtype=torch.bfloat16).sum())",
            "torch itself adds numbers",
            """total = 0.0
    for start in range(0, len(values), chunk):
        of_chunk = 0.0
        for value in values[start : start + chunk]:
            of_chunk = fmt.round(of_chunk + value)
        total += of_chunk
    return total""",
        ),
        *in_place_of(
            "chunk_bf16 = 128",
            ("the first that fails", "chunk_bf16 = 256", "the first that is off"),
            ("a shorter one", "chunk_bf16 = 64", "twice as long"),
            ("one running sum will do", "chunk_bf16 = 8192", "off by more than nine tenths"),
        ),
        *in_place_of(
            "chunk_fp16 = 1024",
            ("the first that fails in FP16", "chunk_fp16 = 2048", "the first that is off"),
            ("a shorter one in FP16", "chunk_fp16 = 512", "twice as long"),
            ("as in BF16", "chunk_fp16 = 128", "three mantissa bits more"),
        ),
        *in_place_of(
            "chunk_four_times = 128",
            ("a quarter", "chunk_four_times = 32", "the spacing with it"),
            ("four times", "chunk_four_times = 512", "the spacing with it"),
            ("FP16 again", "chunk_four_times = 1024", "This is in BF16"),
        ),
    ],
    "blocks": [
        *(
            Wrong(name, DESIGN.format(*design), "less than 29 dB with outliers")
            for name, design in (
                ("mantissa bits in long blocks", ("FP6 E2M3", 128, "FP8 E4M3")),
                ("scales without a mantissa", ("FP6 E3M2", 128, "E8M0")),
                ("elements of 4 bits", ("FP4 E2M1", 16, "FP8 E4M3")),
            )
        ),
        *(
            Wrong(name, DESIGN.format(*design), hint)
            for name, design, hint in (
                (
                    "mantissa bits in short blocks",
                    ("FP6 E2M3", 32, "FP8 E4M3"),
                    "Longer blocks take fewer",
                ),
                ("blocks of 32", ("FP6 E3M2", 32, "FP8 E4M3"), "Longer blocks take fewer"),
                ("the smallest blocks", ("FP6 E3M2", 16, "FP8 E4M3"), "with small blocks"),
                ("blocks of 64", ("FP6 E3M2", 64, "FP8 E4M3"), "longer still"),
                ("the finest elements", ("FP8 E4M3", 128, "FP8 E4M3"), "more than it takes"),
                ("a choice that there is not", ("INT8", 32, "E8M0"), "is no choice that there is"),
            )
        ),
        Wrong("outliers ask for size", BEST + 'changes = "size"', "a block of any size"),
        Wrong("outliers ask for scales", BEST + 'changes = "scale"', "The scale does little"),
        Wrong("a value, not a name", BEST + 'changes = "FP6 E2M3"', "the name of one choice"),
        Wrong("powers of two", BEST + "four_bits_up_to = 16.0", "The other scale does better"),
        Wrong("blocks of 32, too", BEST + "four_bits_up_to = 19.1", "Smaller ones do better"),
        Wrong("no outliers", BEST + "four_bits_up_to = 20.5", "They stay"),
        Wrong("bits for decibels", BEST + "four_bits_up_to = 4.5", "the bits of a value"),
        Wrong("one too few", BEST + "mantissa_bits_45 = 5", "Nearly, but this stays"),
        Wrong("one too many", BEST + "mantissa_bits_45 = 7", "but 6 do as well"),
        Wrong("a part of a bit", BEST + "mantissa_bits_45 = 5.24", "Bits come whole"),
        Wrong("to be added", BEST + "mantissa_bits_45 = 4", "There are two already"),
        Wrong("3 dB a bit", BEST + "mantissa_bits_45 = 9", "This takes 3 dB for a bit"),
        Wrong("10 dB a bit", BEST + "mantissa_bits_45 = 3", "what is that in power"),
    ],
    "memory": [
        *one_wrong(
            MEMORY,
            MEMORY_RIGHT,
            0,
            ("half", 0.5, "the moments stay: how large"),
            ("of the activations", 0.4, "what falls of the activations"),
            ("what is left", 72 / 88, "what is left"),
            ("percent", 18, "not a percentage"),
            ("nothing left in FP32", 20 / 88, "A fifth of them stays"),
            ("half of the state, too", 40 / 88, "What does mixed precision keep in FP32"),
            ("no master weights", 28 / 88, "the master weights are forgotten"),
            ("one sequence", 8 / 68, "a batch of 1"),
            ("against what is left", 16 / 72, "against mixed precision"),
        ),
        *one_wrong(
            MEMORY,
            MEMORY_RIGHT,
            1,
            ("half of the activations", 0.5, "A fifth of the activations"),
            ("left of the activations", 0.6, "what is left"),
            ("all of it", 1, "Not all of it goes"),
            ("what is in 16 bits", 0.8, "Which part of their bytes"),
            ("what stays is halved", 0.1, "It is the rest that is halved"),
        ),
        *one_wrong(
            MEMORY,
            MEMORY_RIGHT,
            2,
            ("rounded down", 7, "a little less than 30 %"),
            ("a part of a sequence", 7.2, "Sequences come whole"),
            ("one too many sequences", 9, "not for the first time"),
            ("nothing left in FP32", 4, "A fifth of them stays"),
        ),
        *one_wrong(
            MEMORY,
            MEMORY_RIGHT,
            3,
            ("no copy in FP32", 18e9, "only the moments are in 8 bits"),
            ("one moment", 27e9, "There are two moments"),
            ("two bytes a moment", 36e9, "takes one byte"),
            ("gigabytes", 30, "not in GB"),
            ("the moments alone", 6e9, "the moments alone"),
            ("one moment in FP32", 39e9, "both are in 8 bits"),
        ),
        *one_wrong(
            MEMORY,
            MEMORY_RIGHT,
            4,
            ("left with 8 bits", 54 / 88, "what is left"),
            ("against mixed precision", 0.25, "How much is it against FP32"),
            ("of the state", 0.375, "what falls of the state"),
            ("of the moments", 18 / 88, "Mixed precision has saved before"),
            ("nothing left in FP32", 38 / 88, "A fifth of them stays"),
        ),
    ],
}


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
