"""Wrong answers to the exercises of the training loop."""

from tests.exercises.wrong_answers import Wrong, in_place_of, one_wrong

BOTH_CORRECTED = """first = m[i] / (1 - b1 ** taken[i])
            root = (v[i] / (1 - b2 ** taken[i])).sqrt() + eps"""
DECAY = "weights[i] = weights[i] * (1 - lr * decay)"
REPAIRED = """gradient = torch.zeros_like(w)
    tokens = float(sum(real.sum() for _, _, real in parts))
    for x, y, real in parts:
        error = (x @ w - y) * real
        gradient += 2 * x.T @ error / tokens
    gradient *= torch.clamp(limit / gradient.norm(), max=1.0)
    return w - lr * gradient"""
ACTIONS = """actions = [("zero", -1, 0.0), ("forward", 0, 0.75), ("backward", 0, 0.75),
           ("forward", 1, 0.25), ("backward", 1, 0.25),
           ("clip", -1, 0.0), ("update", -1, 0.0), ("rate", -1, 0.0)]"""
PART_OF_THE_BATCH = "gradient += 2 * x.T @ error / tokens"
CUT = "gradient *= torch.clamp(limit / gradient.norm(), max=1.0)"
TRACE_AND_SQUARE = """trace = (one - all_of_them) / (1 / micro_batch - 1 / large)
    square = all_of_them - trace / large"""
ESTIMATE = f"""
    large = len(gradients) * micro_batch
    one = float(gradients.square().sum(1).mean())  # of a micro-batch
    all_of_them = float(gradients.mean(0).square().sum())
    {TRACE_AND_SQUARE}
    return trace / square"""
RUNS = 'runs = {"A": "climbs", "B": "right", "C": "micro-batches", "D": "anew"}'
STATE = "muon = {}\ngalore = {}\nshort = {}\nadamw_parts = {}\nmuon_parts = {}\nflops = {}\nmoved_bytes = {}\ntokens = {}"
HIDDEN, TABLE = 28 * (4 * 2048 * 2048 + 2 * 2048 * 6144), 56_000 * 2048
ALL, SHORTER, LONGER = HIDDEN + TABLE, 28 * 6 * 2048, 28 * (4 * 2048 + 2 * 6144)
MUON = 4 * HIDDEN + 8 * TABLE
MOVED = 12 * ALL + 2 * MUON
WORTH = MOVED / 1.2e12 * 60e12 / (6 * ALL)
GALORE = 4 * 256 * (SHORTER + 2 * LONGER) + 8 * TABLE
STATE_RIGHT = [MUON, GALORE, 18 * ALL - 22.7e9, 0, 63, 1, MOVED, WORTH]


def numbers_of_three(place: int, *wrong: tuple[str, object, str]) -> list[Wrong]:
    """The same for question 3, whose program stays as it is."""
    finds = [
        "right = (30 * 2 - 10) / 40",
        "faultys = (2 - 1) / 2  # each part counts for half",
        "sgd_longer = 1 / 0.4  # 1.6, cut to 1",
        "adam_longer = 1  # the root of v has the factor, too",
    ]
    name = finds[place].split(" = ")[0]
    return in_place_of(
        finds[place], *((what, f"{name} = {came}", hint) for what, came, hint in wrong)
    )


def actions(*wrong: tuple[str, dict[str, str], str]) -> list[Wrong]:
    """Answers to question 3 whose actions differ by these replacements: misconception and hint."""
    several = []
    for name, replaced, hint in wrong:
        source = ACTIONS
        for old, new in replaced.items():
            source = source.replace(old, new)
        several.append((name, source, hint))
    return in_place_of(ACTIONS, *several)


def numbers_of_six(line: str, *wrong: tuple[str, object, str]) -> list[Wrong]:
    """Answers to question 6 that are right but for this line."""
    name = line.split(" = ")[0]
    return in_place_of(line, *((what, f"{name} = {came}", hint) for what, came, hint in wrong))


def designs(*wrong: tuple[str, tuple[object, ...], str]) -> list[Wrong]:
    """Answers to question 7 with these designs: misconception, choices and hint."""
    names = ("optimizer", "at_once", "accumulate", "recompute", "look_every")
    several = [(what, dict(zip(names, chosen, strict=True)), hint) for what, chosen, hint in wrong]
    return in_place_of(
        "design = soonest(24)", *((what, f"design = {one}", hint) for what, one, hint in several)
    )


BANK = {
    "adamw": [
        *in_place_of(
            BOTH_CORRECTED,
            (
                "no bias correction",
                "first, root = m[i], v[i].sqrt() + eps",
                "both of them are too small at first",
            ),
            (
                "a power of what is left",
                "first = m[i] / (1 - b1) ** taken[i]\n            root = (v[i] / (1 - b2) ** taken[i]).sqrt() + eps",
                "raised to the power t",
            ),
            (
                "beta times t",
                "first = m[i] / (1 - b1 * taken[i])\n            root = (v[i] / (1 - b2 * taken[i])).sqrt() + eps",
                "a power of beta",
            ),
        ),
        *in_place_of(
            "weights[i] = weights[i] - lr * first / root",
            (
                "a rate of its own",
                "weights[i] = weights[i] - 0.1 * first / root",
                "which parts of g",
            ),
        ),
        *in_place_of(
            "taken[i] += 1",
            ("always the first step", "taken[i] = 1", "as if every step were the first"),
            (
                "one count for all weights",
                "taken = [max(taken) + 1] * len(taken)",
                "counts a step for each of the weights",
            ),
        ),
        *in_place_of(
            DECAY,
            ("decay in the gradient", "g = g + decay * weights[i]", "by which it is divided"),
        ),
        *in_place_of(
            "if g is None:",
            (
                "the whole step is left out",
                "if any(one is None for one in step):",
                "no other weight moves",
            ),
        ),
    ],
    "guarded": [
        *in_place_of(
            "factor = min(1.0, limit / norm) if norm else 1.0",
            ("always to the limit", "factor = limit / norm if norm else 1.0", "is made longer"),
            ("never clipped", "factor = 1.0", "Nothing is clipped"),
            (
                "divides by a norm of zero",
                "factor = min(1.0, limit / norm)",
                "All gradients are zero",
            ),
            ("a limit of 1", "factor = min(1.0, 1.0 / norm) if norm else 1.0", "go by `limit`"),
            (
                "by the square",
                "factor = min(1.0, limit / norm**2) if norm else 1.0",
                "square of the norm",
            ),
        ),
        *in_place_of(
            "moments[i] = 0.9 * moments[i] + factor * g",
            (
                "the rate in the moment",
                "moments[i] = 0.9 * moments[i] + lr * factor * g",
                "into the moment",
            ),
        ),
        *in_place_of(
            "given = [g.double() for g in gradients if g is not None]\n    norm = math.sqrt(sum(float(g.square().sum()) for g in given))\n    if not math.isfinite(norm):",
            (
                "a norm in FP32, skipped by gradients",
                "given = [g for g in gradients if g is not None]\n    norm = float(torch.cat(given).norm())\n    if not all(g.isfinite().all() for g in given):",
                "the norm is infinite, the factor 0",
            ),
        ),
        *in_place_of(
            "given = [g.double() for g in gradients if g is not None]",
            (
                "what is not finite becomes zero first",
                "gradients = [g if g is None else g.nan_to_num(0, 0, 0) for g in gradients]\n    given = [g.double() for g in gradients if g is not None]",
                "not a gradient to mend",
            ),
        ),
    ],
    "parts": [
        *numbers_of_three(
            0,
            ("the mean of means", 0.5, "each part counts for half"),
        ),
        *actions(
            (
                "a kind of its own",
                {'("clip", -1, 0.0)': '("clip", -1, 0.0), ("sum", -1, 0.0)'},
                "What came says",
            ),
        ),
        *in_place_of(
            PART_OF_THE_BATCH,
            (
                "means of all rows",
                "gradient += 2 * x.T @ error / sum(len(y) for _, y, _ in parts)",
                "Padding is counted",
            ),
            (
                "the mean of means of tokens",
                "gradient += 2 * x.T @ error / max(1, float(real.sum())) / len(parts)",
                "counts as much as",
            ),
            (
                "a sum of means",
                "gradient += 2 * x.T @ error / max(1, float(real.sum()))",
                "added up and never divided",
            ),
            (
                "divided by what is real, row by row",
                "gradient += 2 * x.T @ (error / real) / tokens",
                "divided by zero",
            ),
        ),
        *in_place_of(
            f"    {CUT}",
            ("clipped in each part", f"        {CUT}", "after each part"),
        ),
        *in_place_of(
            "return w - lr * gradient",
            ("no rate in three", "return w - gradient", "no notice of the rate"),
        ),
        *in_place_of(
            "error = (x @ w - y) * real",
            (
                "padding at the end alone",
                "real_rows = int(real.sum())\n        x, y = x[:real_rows], y[:real_rows]\n        error = x @ w - y",
                "`real` tells where",
            ),
        ),
    ],
    "rate": [
        *in_place_of(
            "if step < warm_up:",
            (
                "all over again",
                "step = step % steps\n    if step < warm_up:",
                "starts over, with its warm-up",
            ),
        ),
        *in_place_of(
            "return peak * (step + 1) / warm_up",
            ("from zero", "return peak * step / warm_up", "a step for nothing"),
            (
                "a part above least",
                "return least + (peak - least) * (step + 1) / warm_up",
                "begins above least",
            ),
        ),
        *in_place_of(
            "part = min(1.0, (step - warm_up + 1) / (steps - warm_up))",
            (
                "one late",
                "part = min(1.0, (step - warm_up + 1) / (steps - warm_up + 1))",
                "ends one update after it",
            ),
            (
                "the chapter's",
                "part = min(1.0, (step - warm_up) / (steps - warm_up))",
                "So the chapter's warm_up_cosine",
            ),
            (
                "climbs",
                "part = (step - warm_up + 1) / (steps - warm_up)",
                "the cosine's other half",
            ),
        ),
        *in_place_of(
            "return least + (peak - least) * (1 + math.cos(math.pi * part)) / 2",
            (
                "zero at the end",
                "return least + (peak - least) * (1 + math.cos(math.pi * part)) / 2 if step < steps else 0.0",
                "not at zero",
            ),
        ),
        *in_place_of(
            '"A": "climbs"',
            ("A is right", '"A": "right"', "never goes up again"),
        ),
        *in_place_of(
            "anew = 704  # update 712 has the rate of number 8",
            ("nearly so", "anew = 700", "Which number of the schedule"),
        ),
    ],
    "state": [
        *one_wrong(
            STATE,
            STATE_RIGHT,
            0,
            ("AdamW", 8 * ALL, "AdamW's"),
        ),
        *one_wrong(
            STATE,
            STATE_RIGHT,
            1,
            ("AdamW again", 8 * ALL, "in full"),
        ),
        *one_wrong(
            STATE,
            STATE_RIGHT,
            2,
            ("without a sequence", 18 * ALL - 24e9, "without any sequence"),
        ),
        *one_wrong(
            STATE,
            STATE_RIGHT,
            3,
            ("250 parts", 250, "short as before"),
        ),
        Wrong(
            "no projection",
            "sum(4 * rank * (2 * b)",
            "Muon keeps one momentum",
            "sum(4 * rank * (a + 2 * b)",
        ),
    ],
    "batch": [
        *in_place_of(
            "square = all_of_them - trace / large",
            ("noise of the mean stays", "square = all_of_them", "has noise, too"),
            (
                "too much taken off",
                "square = all_of_them - trace / micro_batch",
                "More than the noise",
            ),
        ),
        *in_place_of(
            "trace = (one - all_of_them) / (1 / micro_batch - 1 / large)",
            (
                "divided by all rows",
                "trace = (one - all_of_them) * micro_batch",
                "What do you divide by",
            ),
            ("squares in the place of noise", "trace = one * micro_batch", "The signal is in it"),
        ),
        *in_place_of(
            TRACE_AND_SQUARE,
            (
                "neither",
                "trace, square = (one - all_of_them) * micro_batch, all_of_them",
                "neither is right on average",
            ),
            (
                "of a micro-batch",
                "trace = (one - all_of_them) / (1 - micro_batch / large)\n    square = all_of_them - trace * micro_batch / large",
                "in micro-batches",
            ),
        ),
        *in_place_of(
            "return trace / square",
            ("upside down", "return square / trace if trace else 0.0", "upside down"),
            (
                "what is shown",
                "return 8.421053 if micro_batch == 8 else 0.0",
                "Right for four micro-batches",
            ),
        ),
        *numbers_of_six(
            "steps = least_steps * (1 + 1024 / 1024)",
            ("in proportion", 7500, "a quarter of the steps"),
        ),
    ],
    "plan": [
        *designs(
            (
                "what there is at first, and more at once",
                ("adamw", 4, 8, False, 1600),
                "does not fit",
            ),
            ("recomputes", ("muon", 16, 2, True, 1600), "a third more is computed"),
            ("AdamW", ("adamw", 2, 8, True, 1600), "takes fewer hours"),
            ("AdamW's best of all", ("adamw", 2, 4, True, 6400), "the best with AdamW"),
            ("8-bit Adam's best", ("8bit-adam", 4, 2, False, 6400), "the best with 8-bit Adam"),
            ("Adafactor's best of all", ("adafactor", 8, 1, False, 6400), "takes most steps"),
            ("two micro-batches", ("muon", 4, 2, False, 1600), "still take many hours"),
            ("32 micro-batches", ("muon", 4, 32, False, 1600), "What do fewer micro-batches cost"),
        ),
        *in_place_of(
            "saved = hours(design) - hours(soonest(32))",
            ("what is left of it", "saved = hours(soonest(32))", "the hours that are left"),
        ),
        Wrong(
            "whatever it takes",
            "if gigabytes(each)",
            "Of all designs, keep those that fit, and take the one with",
            "if gigabytes(each) <= memory",
        ),
    ],
}

# The wrong values that the sealed hints of a check are for, in their order.
SEALED = {
    "parts": {
        "right": [0.5, 1, -0.25, 50],
        "faultys": [1.25, 1],
        "sgd_longer": [4, 0.4, 1, 1.6],
        "adam_longer": [4, 2, 2.5, 0.25],
    },
    "rate": {
        "of_runs(runs)[0]": ['right', 'micro-batches', 'anew'],
        "of_runs(runs)[1]": ['climbs', 'micro-batches', 'anew'],
        "of_runs(runs)[2]": ['right', 'climbs', 'anew'],
        "of_runs(runs)[3]": ['right', 'climbs', 'micro-batches'],
        "micro_batches": [2.67, 2, 4, 400],
        "planned": [1200, 740, 680, 1000],
        "anew": [680, 8, 712, 705, 703],
    },
    "state": {
        "muon": [10312744960, 5156372480, 4697620480, 1403781120, 9853992960],
        "galore": [10312744960, 2091909120, 1526726656, 2209349632, 1680867328, 1643511808, 1857028096, 611057664],
        "short": [-7.96e8, 3.24e11, 2.45e10, -5.04e8, 0.504, 504],
        "adamw_parts": [250, 500, 2],
        "muon_parts": [62, 62.5, 50, 250, 84, 4],
        "flops": [63, 1.33, 0.0159],
        "moved_bytes": [36094607360, 21084241920, 31855738880, 25781862400, 21542993920, 11230248960, 24121180160],
        "tokens": [233, 431, 518, 0.0222, 0.00579, 173000, 189, 0.173],
    },
    "batch": {
        "steps": [7500, 30000, 6000, 15000],
        "faster": [4, 10, 1.6, 0.4, 5],
        "longer": [1, 0.4, 4, 0.625, 2.5],
        "fastest": [2.5, 1e999, 4],
        "a_tenth_more": [1130, 10240, 922, 25.6, 114],
        "adam_rate": [0.0012, 0.0003, 0.00015, 0.000424],
        "sgd_rate": [0.0006, 0.0003, 7.5e-5],
    },
    "plan": {
        "saved": [51.7, 0, 0.126, 3.64, 12.6, -7.48],
        "at_once_then": [16, 4],
        "accumulate_then": [8, 4, 16, 2],
        "of_terms(touches)[0]": ['R', 'eta'],
        "of_terms(touches)[1]": ['C', 'R'],
        "of_terms(touches)[2]": ['R', 'eta'],
        "of_terms(touches)[3]": ['C', 'eta'],
    },
}  # fmt: skip


# Answers of another structure: what came, its source, words of the sentence, what of the solution it replaces.
OTHERWISE: dict[str, list[tuple[str, ...]]] = {
    "adamw": [
        ("lists", "return [w.tolist() for w in weights]", "should be a list of tensors", "return weights"),
        ("one tensor", "return torch.cat(weights)", "should be a list of tensors", "return weights"),
        ("a weight too few", "return weights[:1]", "a tensor for each of the weights", "return weights"),
        ("all in a pair", "return weights, m", "should be a list of tensors", "return weights"),
        ("printed", "print(weights)", "ends without `return`"),
    ],
    "guarded": [
        ("weights alone", "return weights", "should be a tuple of 4"),
        ("without the norm", "return weights, moments, taken", "should be a tuple of 4"),
        ("a dictionary", 'return {"weights": weights}', "it is a dictionary"),
        ("a tensor for moments", "return weights, torch.zeros(3), taken, 1.0", "The moments should be a list of tensors"),
        ("moments of another shape", "return weights, weights[::-1], taken, 1.0", "The moments should be of shapes"),
        ("a part of an update", "return weights, moments, 7.5, 1.0", "The number of updates should be a whole number"),
        ("a list for the norm", "return weights, moments, 8, [1.0]", "The norm should be a number"),
    ],
    "parts": [
        ("names alone", 'actions = ["zero", "forward", "backward"]', "should be a list of tuples", ACTIONS),
        ("a share too few", 'actions = [("zero", -1), ("forward", 0)]', "in it, [0] is a tuple of 2", ACTIONS),
        ("a pair", "return w - lr * gradient, gradient", "should be a tensor", "return w - lr * gradient"),
        ("a column", "return (w - lr * gradient)[:, None]", "of shape (4,); (4, 1) came", "return w - lr * gradient"),
        ("a list of numbers", "return (w - lr * gradient).tolist()", "it is a list of 4", "return w - lr * gradient"),
        ("text", 'right = "1.25"', "write it without quotes", "right = (30 * 2 - 10) / 40"),
    ],
    "rate": [
        ("all rates", "return [peak, least]", "[0] is a list of 2", "return peak * (step + 1) / warm_up"),
        ("a run too few", 'runs = {"A": "climbs"}', "it is a dictionary with the keys ['A']", RUNS),
        ("words of its own", '"A": "cosine"', "is none of the words", '"A": "climbs"'),
    ],
    "state": [("a pair", STATE.format((1, 2), *STATE_RIGHT[1:]), "a list of 2 came")],
    "batch": [
        ("a pair of both", "return trace, square", "should be a number", "return trace / square"),
        ("a tensor of several", "return gradients.sum(0)", "should be a number", "return trace / square"),
    ],
    "plan": [
        ("a list", 'design = ["muon", 4, 8, False, 1600]', "a dictionary with the keys 'optimizer'", "design = soonest(24)"),
        ("no choice", 'design = soonest(24) | {"at_once": 3}', "take one of 1, 2, 4", "design = soonest(24)"),
        ("a term of its own", '"fp8": "T"', "is none of the terms", '"fp8": "R"'),
    ],
}  # fmt: skip

# The programs that are asked for, by question.
PROGRAMS = {
    "adamw": "adamw",
    "guarded": "guarded_step",
    "parts": "repaired",
    "rate": "rate",
    "batch": "critical_batch",
}

# Right answers of another kind: what came, its source, what of the solution it replaces.
RIGHT = {
    "adamw": [
        (
            "torch's own",
            """
            weights = [w.clone().requires_grad_() for w in weights]
            settings = {"lr": lr, "betas": (b1, b2), "eps": eps, "weight_decay": decay}
            optimizer = torch.optim.AdamW(weights, **settings)
            for step in gradients:
                for w, g in zip(weights, step, strict=True):
                    w.grad = g
                optimizer.step()
            return [w.detach() for w in weights]
            """,
        ),
        (
            "in place",
            """
            state = {}
            for step in gradients:
                for i, (w, g) in enumerate(zip(weights, step)):
                    if g is None:
                        continue
                    m, v, t = state.get(i, (0, 0, 0))
                    m, v, t = m + (1 - b1) * (g - m), v + (1 - b2) * (g**2 - v), t + 1
                    state[i] = m, v, t
                    w -= lr * decay * w
                    w -= lr * m / (1 - b1**t) / ((v / (1 - b2**t)) ** 0.5 + eps)
            return tuple(weights)
            """,
        ),
    ],
    "guarded": [
        (
            "torch's norm of doubles, in place",
            """
            flat = torch.cat([g.flatten().double() for g in gradients if g is not None])
            norm = flat.norm()
            if norm.isfinite():
                for w, m, g in zip(weights, moments, gradients):
                    if g is not None:
                        m.mul_(0.9).add_((g * torch.clamp(limit / norm, max=1.0)).float())
                        w.sub_(lr * m)
                taken += 1
            return weights, moments, taken, norm
            """,
        ),
    ],
    "parts": [
        (
            "the package's plan",
            "from dlsys.training_loop import step_plan\nactions = list(step_plan([30, 10]).actions)",
            ACTIONS,
        ),
        (
            "by shares of means",
            """gradient = torch.zeros_like(w)
    every = sum(int(real.sum()) for _, _, real in parts)
    for x, y, real in parts:
        count = int(real.sum())
        if count:
            inside = real > 0
            mean = 2 * x[inside].T @ (x[inside] @ w - y[inside]) / count
            gradient += mean * count / every
    norm = gradient.norm()
    return w - lr * (gradient * (limit / norm) if norm > limit else gradient)""",
            REPAIRED,
        ),
        (
            "all rows at once",
            """x, y, real = (torch.cat(each) for each in zip(*parts))
    gradient = 2 * x.T @ ((x @ w - y) * real) / real.sum()
    return w - lr * gradient * torch.clamp(limit / gradient.norm(), max=1.0)""",
            REPAIRED,
        ),
    ],
    "rate": [
        (
            "rounded",
            "planned = 797",
            "planned = 800  # acos() of the rate at 500 says which part that is",
        ),
        ("with a blank", '"A": "climbs "', '"A": "climbs"'),
        ("in capitals", '"A": "Climbs"', '"A": "climbs"'),
    ],
    "state": [
        ("rounded", STATE.format(5.6e9, 2.4e9, 5.0e8, 0, 63, 1.0, 2.7e10, 170)),
        ("from rounded numbers", STATE.format(5.597e9, 2.45e9, 5.1e8, 0, 63, 1, 2.67e10, 170.9)),
    ],
    "batch": [
        (
            "by a variance",
            """
    rows = len(gradients)
    trace = micro_batch * gradients.double().var(0).sum().item()
    square = gradients.double().mean(0).square().sum().item() - trace / rows / micro_batch
    return trace / square""",
            ESTIMATE,
        ),
        ("from rounded samples", "a_tenth_more = 103", "a_tenth_more = 0.1 * 1024"),
        ("rounded to two", "a_tenth_more = 100", "a_tenth_more = 0.1 * 1024"),
    ],
    "plan": [
        ("a Greek letter", '"at_once": "η"', '"at_once": "eta"'),
        ("rounded", "saved = 7.5", "saved = hours(design) - hours(soonest(32))"),
    ],
}
