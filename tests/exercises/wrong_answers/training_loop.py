"""Wrong answers to the exercises of the training loop."""

from tests.exercises.wrong_answers import Wrong, in_place_of

BOTH_CORRECTED = """first = m[i] / (1 - b1 ** taken[i])
            root = (v[i] / (1 - b2 ** taken[i])).sqrt() + eps"""
BOTH_MOMENTS = """m[i] = b1 * m[i] + (1 - b1) * g
            v[i] = b2 * v[i] + (1 - b2) * g * g"""
DECAY = "weights[i] = weights[i] * (1 - lr * decay)"
AFTER_DECAY = f"""{BOTH_MOMENTS}
            {BOTH_CORRECTED}
            weights[i] = weights[i] - lr * first / root"""
ONE_BUFFER = """
weights, m, v = list(weights), 0.0, 0.0
for t, step in enumerate(gradients, 1):
    for i, g in enumerate(step):
        if g is None:
            continue
        m = b1 * m + (1 - b1) * g
        v = b2 * v + (1 - b2) * g * g
        w = weights[i] * (1 - lr * decay)
        first = m / (1 - b1**t)
        weights[i] = w - lr * first / ((v / (1 - b2**t)).sqrt() + eps)
return weights
"""
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
A_STEP_EACH = """for x, y, real in parts:
        gradient = 2 * x.T @ ((x @ w - y) * real) / max(1.0, float(real.sum()))
        gradient *= min(1.0, limit / max(1e-9, float(gradient.norm())))
        w = w - lr * gradient
    return w"""
PART_OF_THE_BATCH = "gradient += 2 * x.T @ error / tokens"
CUT = "gradient *= torch.clamp(limit / gradient.norm(), max=1.0)"
PARTS = "right = {}\nfaultys = {}\nsgd_longer = {}\nadam_longer = {}"
PARTS_RIGHT = [1.25, 0.5, 2.5, 1]
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


def one_wrong(
    form: str, right: list[object], place: int, *wrong: tuple[str, object, str]
) -> list[Wrong]:
    """Answers that are right but for the one in this place: misconception, what came, and hint."""
    return [
        Wrong(name, form.format(*right[:place], came, *right[place + 1 :]), hint)
        for name, came, hint in wrong
    ]


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
                "m alone is corrected",
                "first = m[i] / (1 - b1 ** taken[i])\n            root = v[i].sqrt() + eps",
                "The second moment began at zero",
            ),
            (
                "v alone is corrected",
                "first = m[i]\n            root = (v[i] / (1 - b2 ** taken[i])).sqrt() + eps",
                "The first moment began at zero",
            ),
            (
                "eps inside the root",
                "first = m[i] / (1 - b1 ** taken[i])\n            root = (v[i] / (1 - b2 ** taken[i]) + eps).sqrt()",
                "inside the root",
            ),
            (
                "no eps",
                "first = m[i] / (1 - b1 ** taken[i])\n            root = (v[i] / (1 - b2 ** taken[i])).sqrt()",
                "eps is missing",
            ),
            (
                "eps before the correction",
                "first = m[i] / (1 - b1 ** taken[i])\n            root = (v[i].sqrt() + eps) / (1 - b2 ** taken[i]) ** 0.5",
                "eps is added before",
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
            (
                "no root",
                "first = m[i] / (1 - b1 ** taken[i])\n            root = v[i] / (1 - b2 ** taken[i]) + eps",
                "The root is missing",
            ),
        ),
        *in_place_of(
            "weights[i] = weights[i] - lr * first / root",
            ("uphill", "weights[i] = weights[i] + lr * first / root", "goes up"),
            ("no rate", "weights[i] = weights[i] - first / root", "without the learning rate"),
            (
                "a rate of its own",
                "weights[i] = weights[i] - 0.1 * first / root",
                "which parts of g",
            ),
        ),
        *in_place_of(
            "taken = [0] * len(weights)",
            ("steps counted from 0", "taken = [-1] * len(weights)", "Is t 1"),
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
            BOTH_MOMENTS,
            (
                "betas exchanged",
                "m[i] = b2 * m[i] + (1 - b2) * g\n            v[i] = b1 * v[i] + (1 - b1) * g * g",
                "changed places",
            ),
            (
                "sums in the place of averages",
                "m[i] = b1 * m[i] + g\n            v[i] = b2 * v[i] + g * g",
                "running sums",
            ),
            (
                "m is a sum",
                "m[i] = b1 * m[i] + g\n            v[i] = b2 * v[i] + (1 - b2) * g * g",
                "m is a running sum",
            ),
            (
                "v is a sum",
                "m[i] = b1 * m[i] + (1 - b1) * g\n            v[i] = b2 * v[i] + g * g",
                "v is a running sum",
            ),
            (
                "forgets",
                "m[i] = (1 - b1) * g\n            v[i] = (1 - b2) * g * g",
                "Nothing of earlier steps is left",
            ),
        ),
        *in_place_of(
            "for step in gradients:",
            ("the last step alone", "for step in gradients[-1:]:", "the last step alone"),
        ),
        *in_place_of(
            DECAY,
            ("decay in the gradient", "g = g + decay * weights[i]", "by which it is divided"),
            (
                "decay without the rate",
                "weights[i] = weights[i] * (1 - decay)",
                "without the learning rate",
            ),
            ("no decay", "pass", "does not decay"),
            ("decay upward", "weights[i] = weights[i] * (1 + lr * decay)", "The weights grow"),
        ),
        Wrong(
            "decay after the step",
            AFTER_DECAY + "\n            weights[i] = weights[i] * (1 - lr * decay)",
            "before the step, not after it",
            f"{DECAY}\n            {AFTER_DECAY}",
        ),
        Wrong("one buffer for all weights", ONE_BUFFER, "share one buffer"),
        *in_place_of(
            "root = (v[i] / (1 - b2 ** taken[i])).sqrt() + eps",
            (
                "eps twice",
                "root = (v[i] / (1 - b2 ** taken[i]) + eps).sqrt() + eps",
                "eps is added twice",
            ),
        ),
        *in_place_of(
            "m = [torch.zeros_like(w) for w in weights]\n    v = [torch.zeros_like(w) for w in weights]",
            (
                "m is v",
                "m = v = [torch.zeros_like(w) for w in weights]",
                "an average of squares alone",
            ),
        ),
        *in_place_of(
            "if g is None:",
            (
                "the whole step is left out",
                "if any(one is None for one in step):",
                "no other weight moves",
            ),
        ),
        *in_place_of(
            "if g is None:\n                continue",
            (
                "None is a zero",
                "if g is None:\n                g = torch.zeros_like(weights[i])",
                "goes on with a gradient of zero",
            ),
            (
                "None decays",
                "if g is None:\n                weights[i] = weights[i] * (1 - lr * decay)\n                continue",
                "decays in the step that it has no part in",
            ),
            (
                "None counts",
                "if g is None:\n                taken[i] += 1\n                continue",
                "counts the step that it has no part in",
            ),
            ("None is not foreseen", "pass", "where a gradient is None"),
            (
                "asks None",
                "if not g.isfinite().all():\n                continue",
                "where a gradient is None",
            ),
        ),
    ],
    "guarded": [
        *in_place_of(
            "factor = min(1.0, limit / norm) if norm else 1.0",
            ("always to the limit", "factor = limit / norm if norm else 1.0", "is made longer"),
            ("never clipped", "factor = 1.0", "Nothing is clipped"),
            (
                "the wrong way round",
                "factor = max(1.0, limit / norm) if norm else 1.0",
                "is made longer",
            ),
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
                "each tensor by itself",
                "moments[i] = 0.9 * moments[i] + g * min(1.0, limit / max(1e-9, float(g.norm())))",
                "a factor of its own",
            ),
            (
                "each number by itself",
                "moments[i] = 0.9 * moments[i] + g.clamp(-limit, limit)",
                "each number by itself",
            ),
            (
                "the moment is cut, too",
                "moments[i] = factor * (0.9 * moments[i] + g)",
                "The moments are cut, too",
            ),
            (
                "the rate in the moment",
                "moments[i] = 0.9 * moments[i] + lr * factor * g",
                "into the moment",
            ),
            ("fades before the look", "moments[i] = 0.81 * moments[i] + factor * g", "fade twice"),
            (
                "an average",
                "moments[i] = 0.9 * moments[i] + 0.1 * factor * g",
                "0.1 of the gradient",
            ),
            ("no momentum", "moments[i] = factor * g", "forget what was in them"),
        ),
        *in_place_of(
            "moments[i] = 0.9 * moments[i] + factor * g\n            weights[i] = weights[i] - lr * moments[i]",
            (
                "the moments take in the whole of it",
                "old = moments[i]\n            moments[i] = 0.9 * old + g\n            weights[i] = weights[i] - lr * (0.9 * old + factor * g)",
                "the moments take in the whole one",
            ),
        ),
        *in_place_of(
            "given = [g.double() for g in gradients if g is not None]\n    norm = math.sqrt(sum(float(g.square().sum()) for g in given))\n    if not math.isfinite(norm):",
            (
                "a norm in FP32, skipped by gradients",
                "given = [g for g in gradients if g is not None]\n    norm = float(torch.cat(given).norm())\n    if not all(g.isfinite().all() for g in given):",
                "the norm is infinite, the factor 0",
            ),
            (
                "None within",
                "norm = float(torch.cat([g.double() for g in gradients if g is not None or True]).norm())\n    if not math.isfinite(norm):",
                "A gradient is None",
            ),
        ),
        *in_place_of(
            "weights[i] = weights[i] - lr * moments[i]",
            (
                "Nesterov",
                "weights[i] = weights[i] - lr * (0.9 * moments[i] + factor * g)",
                "looks a step ahead",
            ),
            (
                "by the gradient",
                "weights[i] = weights[i] - lr * factor * g",
                "along the gradient, not along the moment",
            ),
            ("up the hill", "weights[i] = weights[i] + lr * moments[i]", "goes up"),
            ("a rate of a half", "weights[i] = weights[i] - 0.5 * moments[i]", "go by `lr`"),
        ),
        *in_place_of(
            "norm = math.sqrt(sum(float(g.square().sum()) for g in given))",
            ("norms added up", "norm = sum(float(g.norm()) for g in given)", "adds up the norms"),
            (
                "not its root",
                "norm = sum(float(g.square().sum()) for g in given)",
                "square of the norm",
            ),
            (
                "the largest norm",
                "norm = max(float(g.norm()) for g in given)",
                "the largest of them",
            ),
            ("the first alone", "norm = float(given[0].norm())", "the first gradient alone"),
            (
                "the mean square",
                "norm = math.sqrt(sum(float(g.square().mean()) for g in given))",
                "the mean of the squares",
            ),
        ),
        *in_place_of(
            "given = [g.double() for g in gradients if g is not None]",
            ("squares in FP32", "given = [g for g in gradients if g is not None]", "overflow"),
            (
                "what is not finite becomes zero first",
                "gradients = [g if g is None else g.nan_to_num(0, 0, 0) for g in gradients]\n    given = [g.double() for g in gradients if g is not None]",
                "not a gradient to mend",
            ),
            ("None is asked", "given = [g.double() for g in gradients]", "A gradient is None"),
        ),
        *in_place_of(
            "return weights, moments, taken + 1, norm",
            ("not counted", "return weights, moments, taken, norm", "is not counted"),
            (
                "the norm after clipping",
                "return weights, moments, taken + 1, min(norm, limit)",
                "before clipping",
            ),
        ),
        *in_place_of(
            "if not math.isfinite(norm):\n        return weights, moments, taken, norm",
            ("no look at it", "pass", "An infinite gradient has come through"),
            (
                "skipped if too long",
                "if not math.isfinite(norm) or norm > limit:\n        return weights, moments, taken, norm",
                "is shortened, and taken",
            ),
            (
                "NaN alone",
                "if math.isnan(norm):\n        return weights, moments, taken, norm",
                "An infinite gradient has come through",
            ),
            (
                "infinity alone",
                "if norm == math.inf:\n        return weights, moments, taken, norm",
                "NaN has come through",
            ),
            (
                "counted all the same",
                "if not math.isfinite(norm):\n        return weights, moments, taken + 1, norm",
                "is counted",
            ),
            (
                "moments fade",
                "if not math.isfinite(norm):\n        return weights, [0.9 * m for m in moments], taken, norm",
                "The moments have changed",
            ),
            (
                "moments begin anew",
                "if not math.isfinite(norm):\n        return weights, [0 * m for m in moments], taken, norm",
                "The moments have changed",
            ),
            (
                "goes on by the moments",
                "if not math.isfinite(norm):\n        return [w - lr * 0.9 * m for w, m in zip(weights, moments)], [0.9 * m for m in moments], taken, norm",
                "moved along the moments",
            ),
            (
                "what is infinite becomes zero",
                "gradients = [None if g is None else g.nan_to_num(0, 0, 0) for g in gradients]",
                "not a gradient to mend",
            ),
        ),
        *in_place_of(
            "if g is not None:",
            (
                "None fades",
                "if g is None:\n            moments[i] = 0.9 * moments[i]\n        else:",
                "without a gradient",
            ),
            (
                "None moves on",
                "if g is None:\n            moments[i] = 0.9 * moments[i]\n            weights[i] = weights[i] - lr * moments[i]\n        else:",
                "without a gradient",
            ),
        ),
    ],
    "parts": [
        *numbers_of_three(
            0,
            ("the mean of means", 0.5, "each part counts for half"),
            ("a sum", 1, "adds up the means"),
            ("the weights exchanged", -0.25, "changed places"),
            ("all tokens, not divided", 50, "Divide"),
        ),
        *numbers_of_three(
            1,
            ("by tokens", 1.25, "as it should be"),
            ("a sum of two means", 1, "divides by the number of parts"),
        ),
        *numbers_of_three(
            2,
            ("no clipping", 4, "is clipped"),
            ("the inverse", 0.4, "Its inverse"),
            ("all is clipped", 1, "is not clipped"),
            ("the length of the sum", 1.6, "how long the sum is"),
        ),
        *numbers_of_three(
            3,
            ("as in SGD", 4, "What does Adam divide by"),
            ("the root of it", 2, "root of v"),
            ("clipped", 2.5, "without clipping"),
            ("shorter", 0.25, "by 16"),
        ),
        *actions(
            ("half each", {"0.75": "0.5", "0.25": "0.5"}, "counts for half"),
            (
                "clipped twice",
                {"0.75),\n": '0.75), ("clip", -1, 0.0),\n'},
                "the batch's gradient that counts",
            ),
            ("rate for each", {"0.75),\n": '0.75), ("rate", -1, 0.0),\n'}, "It counts updates"),
            ("nothing set to zero", {'("zero", -1, 0.0), ': ""}, "those of the step before"),
            ("no clipping at all", {'("clip", -1, 0.0), ': ""}, "is an action, too"),
            (
                "clipped after the update",
                {
                    '("clip", -1, 0.0), ("update", -1, 0.0)': '("update", -1, 0.0), ("clip", -1, 0.0)'
                },
                "before it is clipped",
            ),
            ("one is not passed back", {'("backward", 1, 0.25),': ""}, "no backward pass"),
            (
                "a kind of its own",
                {'("clip", -1, 0.0)': '("clip", -1, 0.0), ("sum", -1, 0.0)'},
                "What came says",
            ),
            ("no rate", {', ("rate", -1, 0.0)': ""}, "never moves on"),
            ("no update", {'("update", -1, 0.0), ': ""}, "no action changes the weights"),
            ("all of it each", {"0.75": "1.0", "0.25": "1.0"}, "sum of means"),
            (
                "exchanged shares",
                {"0.75": "0.0", "0.25": "0.75", "0.0)": "0.25)"},
                "changed places",
            ),
            (
                "no share forward",
                {
                    '"forward", 0, 0.75': '"forward", 0, 0.0',
                    '"forward", 1, 0.25': '"forward", 1, 0.0',
                },
                "of forward passes, too",
            ),
            (
                "updates twice",
                {"0.75),\n": '0.75), ("update", -1, 0.0),\n'},
                "others than the first",
            ),
            (
                "the rate first",
                {
                    '("update", -1, 0.0), ("rate", -1, 0.0)': '("rate", -1, 0.0), ("update", -1, 0.0)'
                },
                "before the update has taken",
            ),
            ("a sum over ranks", {'("clip"': '("reduce", -1, 0.0), ("clip"'}, "What came says"),
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
            ("as before", "gradient += 2 * x.T @ error / len(y) / len(parts)", "counts as much as"),
            ("never divided", "gradient += 2 * x.T @ error", "sum over tokens"),
            (
                "by the rows of parts, then by tokens",
                "gradient += 2 * x.T @ error / len(y) * float(real.sum()) / tokens",
                "divided twice",
            ),
            (
                "divided by what is real, row by row",
                "gradient += 2 * x.T @ (error / real) / tokens",
                "divided by zero",
            ),
            (
                "a mean of nothing",
                "gradient += 2 * x.T @ error / real.sum() * real.sum() / tokens",
                "0 / 0",
            ),
        ),
        *in_place_of(
            f"    {CUT}",
            ("clipped in each part", f"        {CUT}", "after each part"),
            ("never clipped in three", "    pass", "longer than the limit"),
        ),
        *in_place_of(
            PART_OF_THE_BATCH,
            ("half a gradient", "gradient += x.T @ error / tokens", "half the gradient"),
            (
                "the last part alone",
                "gradient = 2 * x.T @ error / tokens",
                "of the last part alone",
            ),
            (
                "shares by rows",
                "gradient += 2 * x.T @ error / max(1.0, real.sum()) * len(y) / sum(len(one) for _, one, _ in parts)",
                "counts for its rows",
            ),
        ),
        *in_place_of(
            "return w - lr * gradient",
            ("uphill in parts", "return w + lr * gradient", "goes up"),
            ("no rate in three", "return w - gradient", "no notice of the rate"),
        ),
        *in_place_of(
            CUT,
            ("cut number by number", "gradient = gradient.clamp(-limit, limit)", "cut by itself"),
            ("made longer", "gradient *= limit / gradient.norm()", "Clipping shortens alone"),
            (
                "the step is cut",
                "gradient *= torch.clamp(limit / (lr * gradient).norm(), max=1.0)",
                "for the gradient's own norm",
            ),
        ),
        *in_place_of(
            "error = (x @ w - y) * real",
            ("padding is learned", "error = x @ w - y", "Padding is learned"),
            (
                "ends at a part of padding",
                "if real.sum() == 0:\n            break\n        error = (x @ w - y) * real",
                "Go on with the next part",
            ),
            (
                "divides by no token",
                "error = (x @ w - y) * real * (1.0 / int(real.sum())) * int(real.sum())",
                "ZeroDivisionError",
            ),
            (
                "padding at the end alone",
                "real_rows = int(real.sum())\n        x, y = x[:real_rows], y[:real_rows]\n        error = x @ w - y",
                "`real` tells where",
            ),
        ),
        Wrong(
            "the program as it was",
            "return faulty(w, parts, limit, lr)",
            "counts as much as",
            REPAIRED,
        ),
        Wrong("a step for each part", A_STEP_EACH, "a step for each part", REPAIRED),
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
                "from zero to the peak",
                "return peak * step / max(1, warm_up - 1)",
                "a step for nothing",
            ),
            (
                "a part above least",
                "return least + (peak - least) * (step + 1) / warm_up",
                "begins above least",
            ),
            ("from least", "return least + (peak - least) * step / warm_up", "begins at least"),
            ("the peak at once", "return peak", "There is no warm-up"),
            (
                "cosine from the beginning",
                "return peak * (step + 1) / warm_up * (1 + math.cos(math.pi * step / steps)) / 2",
                "are multiplied",
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
                "the peak twice",
                "part = min(1.0, (step - warm_up) / (steps - warm_up - 1))",
                "stands for two updates",
            ),
            (
                "starts over at its end",
                "part = (step - warm_up + 1) / (steps - warm_up) % 1.0",
                "starts over where",
            ),
            (
                "least by a jump",
                "if step >= steps - 1:\n        return least\n    part = (step - warm_up) / (steps - warm_up)",
                "by a jump",
            ),
            (
                "over all updates",
                "part = min(1.0, step / (steps - 1))",
                "jumps at the end of warm-up",
            ),
            (
                "a whole cosine",
                "part = min(2.0, 2 * (step - warm_up + 1) / (steps - warm_up))",
                "a whole cosine",
            ),
            (
                "climbs",
                "part = (step - warm_up + 1) / (steps - warm_up)",
                "the cosine's other half",
            ),
        ),
        *in_place_of(
            "return least + (peak - least) * (1 + math.cos(math.pi * part)) / 2",
            ("down to zero", "return peak * (1 + math.cos(math.pi * part)) / 2", "down to zero"),
            (
                "no lower than least",
                "return max(least, peak * (1 + math.cos(math.pi * part)) / 2)",
                "cut off at least",
            ),
            (
                "least on top",
                "return least + peak * (1 + math.cos(math.pi * part)) / 2",
                "above the peak",
            ),
            ("a straight line", "return peak + (least - peak) * part", "in a straight line"),
            (
                "a quarter of a turn",
                "return least + (peak - least) * math.cos(math.pi / 2 * part)",
                "a quarter of a turn",
            ),
            (
                "degrees",
                "return least + (peak - least) * (1 + math.cos(180 * part)) / 2",
                "takes radians",
            ),
            ("by a factor", "return peak * (least / peak) ** part", "exponential decay"),
            (
                "four decimals",
                "return round(least + (peak - least) * (1 + math.cos(math.pi * part)) / 2, 4)",
                "does the program round",
            ),
            (
                "not halved",
                "return least + (peak - least) * (1 + math.cos(math.pi * part))",
                "from 2 to 0",
            ),
            (
                "zero at the end",
                "return least + (peak - least) * (1 + math.cos(math.pi * part)) / 2 if step < steps else 0.0",
                "not at zero",
            ),
        ),
        *in_place_of(
            '"A": "climbs"',
            ("A is right", '"A": "right"', "never goes up again"),
            ("A counts micro-batches", '"A": "micro-batches"', "compare updates 5 and 14"),
            ("A begins anew", '"A": "anew"', "goes through its warm-up"),
        ),
        *in_place_of(
            '"B": "right"',
            ("B climbs", '"B": "climbs"', "ends where it should"),
            ("B counts micro-batches", '"B": "micro-batches"', "a sixtieth of the peak"),
            ("B begins anew", '"B": "anew"', "ends where it should"),
        ),
        *in_place_of(
            '"C": "micro-batches"',
            ("C is right", '"C": "right"', "how steep its warm-up is"),
            ("C climbs", '"C": "climbs"', "how steep its warm-up is"),
            ("C begins anew", '"C": "anew"', "how steep its warm-up is"),
        ),
        *in_place_of(
            '"D": "anew"',
            ("D is right", '"D": "right"', "by far more than a cosine"),
            ("D climbs", '"D": "climbs"', "what stands at 712"),
            ("D counts micro-batches", '"D": "micro-batches"', "a sixtieth of the peak"),
        ),
        *in_place_of(
            "micro_batches = 3  # update 5 has the rate of number 15 or so",
            ("a ratio of rates", "micro_batches = 2.67", "not zero, so count"),
            ("twice", "micro_batches = 2", "number 28"),
            ("one too many", "micro_batches = 4", "number 56"),
            ("when it is down", "micro_batches = 400", "micro-batches of one step"),
        ),
        *in_place_of(
            "planned = 800  # acos() of the rate at 500 says which part that is",
            ("as all others", "planned = 1200", "would be at its least there"),
            ("without the warm-up", "planned = 740", "has its warm-up, too"),
            ("where it is read", "planned = 680", "goes down still"),
            ("as at 1,000", "planned = 1000", "on its way up"),
        ),
        *in_place_of(
            "anew = 704  # update 712 has the rate of number 8",
            ("where it shows", "anew = 712", "in its warm-up already"),
            ("one too late", "anew = 705", "One too many"),
            ("one too early", "anew = 703", "One too few"),
            ("nearly so", "anew = 700", "Which number of the schedule"),
            ("before it shows", "anew = 680", "as it should be"),
            ("as long ago", "anew = 8", "how many updates ago"),
        ),
    ],
    "state": [
        *one_wrong(
            STATE,
            STATE_RIGHT,
            0,
            ("AdamW", 8 * ALL, "AdamW's"),
            ("Muon everywhere", 4 * ALL, "one average of the embedding"),
            ("hidden alone", 4 * HIDDEN, "The embedding is forgotten"),
            ("numbers of Muon", HIDDEN + 2 * TABLE, "Each has four bytes"),
            ("eight bytes for hidden", 8 * HIDDEN + 4 * TABLE, "changed places"),
        ),
        *one_wrong(
            STATE,
            STATE_RIGHT,
            1,
            ("AdamW again", 8 * ALL, "in full"),
            ("no projection", 8 * 256 * LONGER + 8 * TABLE, "has to be kept"),
            (
                "hidden of GaLore alone",
                4 * 256 * (SHORTER + 2 * LONGER),
                "The embedding is forgotten",
            ),
            (
                "the longer side",
                4 * 256 * (LONGER + 2 * SHORTER) + 8 * TABLE,
                "projects the longer side",
            ),
            ("rank 128", 4 * 128 * (SHORTER + 2 * LONGER) + 8 * TABLE, "with rank 128"),
            (
                "the embedding, too",
                4 * 256 * (SHORTER + 2 * LONGER + 2048 + 2 * 56_000),
                "takes in full",
            ),
            ("one moment", 4 * 256 * (SHORTER + LONGER) + 8 * TABLE, "two averages"),
            ("numbers of GaLore", 256 * (SHORTER + 2 * LONGER) + 2 * TABLE, "Each has four bytes"),
        ),
        *one_wrong(
            STATE,
            STATE_RIGHT,
            2,
            ("without a sequence", 18 * ALL - 24e9, "without any sequence"),
            ("the whole batch", 18 * ALL + 250 * 1.3e9 - 24e9, "the whole batch at once"),
            ("what there is", 18 * ALL + 1.3e9, "all that it takes"),
            ("negative", 24e9 - 1.3e9 - 18 * ALL, "The sign"),
            ("GB, not bytes", 0.504, "bytes are asked for"),
            ("MB, not bytes", 503.68, "This is in MB"),
        ),
        *one_wrong(
            STATE,
            STATE_RIGHT,
            3,
            ("250 parts", 250, "short as before"),
            ("more than 250", 500, "nothing smaller than a sequence"),
            ("two parts", 2, "is it that which is too large"),
        ),
        *one_wrong(
            STATE,
            STATE_RIGHT,
            4,
            ("rounded down", 62, "leave two sequences over"),
            ("a part of a micro-batch", 62.5, "come whole"),
            ("five at once", 50, "do not fit"),
            ("one at once", 250, "one sequence at a time"),
            ("three at once", 84, "One sequence more"),
            ("sequences at once", 4, "how many sequences fit"),
        ),
        *one_wrong(
            STATE,
            STATE_RIGHT,
            5,
            ("once for each", 63, "passes once forward"),
            ("a third more", 4 / 3, "what recomputation takes"),
            ("less", 1 / 63, "passes once forward"),
        ),
        *one_wrong(
            STATE,
            STATE_RIGHT,
            6,
            ("AdamW moves", 28 * ALL, "AdamW's"),
            ("state once", 12 * ALL + MUON, "it is written, too"),
            ("gradients written", 16 * ALL + 2 * MUON, "leaves them as they are"),
            ("one average for all", 20 * ALL, "The embedding has two"),
            ("weights once", 8 * ALL + 2 * MUON, "they are written, too"),
            ("state alone", 2 * MUON, "the state alone"),
            ("in half as many bytes", 10 * ALL + 2 * MUON, "gradients of 16 bits"),
        ),
        *one_wrong(
            STATE,
            STATE_RIGHT,
            7,
            ("AdamW's worth", 28 / 1.2e12 * 60e12 / 6, "So it is for AdamW"),
            ("all of the peak", WORTH / 0.4, "at the device's peak"),
            ("forward alone", 3 * WORTH, "forward alone"),
            ("seconds of it", MOVED / 1.2e12, "These are the seconds"),
            ("upside down there", 1 / WORTH, "Upside down"),
            ("a kilo off", 1000 * WORTH, "Milliseconds and seconds"),
            ("a kilo off, below", WORTH / 1000, "Milliseconds and seconds"),
            ("without the embedding", WORTH * ALL / HIDDEN, "embedding is left out"),
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
            ("micro-batch twice", "return trace / square * micro_batch", "count twice"),
        ),
        *numbers_of_six(
            "steps = least_steps * (1 + 1024 / 1024)",
            ("in proportion", 7500, "a quarter of the steps"),
            ("as many", 30_000, "the batch of 256"),
            ("at any batch", 6000, "the least, at any batch"),
            ("a half", 15_000, "twice the least"),
        ),
        *numbers_of_six(
            "faster = 30_000 / steps",
            ("four times", 4, "not a quarter of the steps"),
            ("both at once", 10, "so that a step takes as long"),
            ("samples for time", 1.6, "by how much samples"),
            ("the inverse of it", 0.4, "Its inverse"),
            ("fastest of all", 5, "any number of devices"),
        ),
        *numbers_of_six(
            "longer = steps * 1024 / (30_000 * 256)",
            ("nothing is lost", 1, "how many samples"),
            ("faster, too", 0.4, "four times as long"),
            ("four times as long", 4, "there are fewer of them"),
            ("shorter by so much", 0.625, "Its inverse"),
            ("by 32 devices", 2.5, "on 32 devices"),
        ),
        *numbers_of_six(
            "fastest = 30_000 / least_steps",
            ("at the critical batch", 2.5, "at the critical batch"),
            ("without limit", "math.inf", "do not fall below"),
            ("four, and no more", 4, "the least number of steps"),
        ),
        *numbers_of_six(
            "a_tenth_more = 0.1 * 1024",
            ("a tenth above it", 1126.4, "a tenth above"),
            ("ten times", 10_240, "the other way round"),
            ("a tenth of all", 113.8, "A tenth of the least"),
            ("a tenth below it", 921.6, "a tenth below"),
            ("of 256", 25.6, "a tenth of the batch as it is"),
        ),
        *numbers_of_six(
            "adam_rate = 3e-4 * (1024 / 256) ** 0.5",
            ("as for SGD", 1.2e-3, "the rule for SGD"),
            ("as it was", 3e-4, "with the same rate"),
            ("smaller", 1.5e-4, "not shorter ones"),
            ("fourth root", 4.24e-4, "its root is two"),
        ),
        *numbers_of_six(
            "sgd_rate = 3e-4 * (1024 / 256)",
            ("as for Adam", 6e-4, "the rule for Adam"),
            ("as it was, too", 3e-4, "with the same rate"),
            ("smaller, too", 7.5e-5, "not shorter ones"),
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
            ("Adam of 8 bits", ("8bit-adam", 4, 4, False, 1600), "takes fewer hours"),
            ("Adafactor", ("adafactor", 8, 2, False, 1600), "takes fewer hours"),
            ("AdamW's best of all", ("adamw", 2, 4, True, 6400), "the best with AdamW"),
            ("8-bit Adam's best", ("8bit-adam", 4, 2, False, 6400), "the best with 8-bit Adam"),
            ("Adafactor's best of all", ("adafactor", 8, 1, False, 6400), "takes most steps"),
            ("two micro-batches", ("muon", 4, 2, False, 1600), "still take many hours"),
            ("32 micro-batches", ("muon", 4, 32, False, 1600), "What do fewer micro-batches cost"),
            ("256 sequences", ("muon", 4, 64, False, 1600), "twice the samples"),
            ("512 sequences", ("muon", 4, 128, False, 1600), "three times the samples"),
            ("looks all the time", ("muon", 4, 8, False, 100), "lose by looking later"),
            ("no accumulation", ("muon", 4, 1, False, 1600), "Without accumulation"),
            ("half as many micro-batches", ("muon", 4, 4, False, 1600), "updates still take hours"),
            (
                "twice as many micro-batches",
                ("muon", 4, 16, False, 1600),
                "samples have become more",
            ),
            ("the critical batch", ("muon", 4, 64, False, 400), "twice the samples"),
            ("looks more often", ("muon", 4, 8, False, 400), "A look takes time"),
            ("looks too late", ("muon", 4, 8, False, 6400), "for long after"),
            ("smaller micro-batches", ("muon", 2, 16, False, 1600), "reach more of the peak"),
        ),
        *in_place_of(
            "saved = hours(design) - hours(soonest(32))",
            ("what is left of it", "saved = hours(soonest(32))", "the hours that are left"),
            ("the same design", "saved = 0", "Search again"),
            (
                "a part of it",
                "saved = 1 - hours(soonest(32)) / hours(design)",
                "the hours themselves",
            ),
            ("percent", "saved = 12.635", "A percentage of the hours"),
            ("the other sign", "saved = hours(soonest(32)) - hours(design)", "The sign"),
            (
                "only larger micro-batches",
                'saved = hours(design) - hours(design | {"at_once": 8})',
                "still the best one",
            ),
        ),
        *in_place_of(
            'at_once_then = soonest(32)["at_once"]',
            ("16 at once", "at_once_then = 16", "Does that take fewer hours"),
            ("as before", "at_once_then = 4", "room for more"),
        ),
        *in_place_of(
            'accumulate_then = soonest(24, True)["accumulate"]',
            ("as many as before", "accumulate_then = 8", "still save"),
            ("half of it", "accumulate_then = 4", "Fewer do as well"),
            ("more of them", "accumulate_then = 16", "which take no time now"),
            ("two of them", "accumulate_then = 2", "every number of updates"),
        ),
        *in_place_of(
            '"recompute": "C"',
            ("recomputing changes R", '"recompute": "R"', "the device is the same"),
            ("recomputing changes eta", '"recompute": "eta"', "computes more"),
        ),
        *in_place_of(
            '"at_once": "eta"',
            ("micro-batches change C", '"at_once": "C"', "as many samples pass"),
            ("micro-batches change R", '"at_once": "R"', "What of it is reached"),
        ),
        *in_place_of(
            '"optimizer": "C"',
            ("the optimizer changes R", '"optimizer": "R"', "the device is the same"),
            ("the optimizer changes eta", '"optimizer": "eta"', "How many of them"),
        ),
        *in_place_of(
            '"fp8": "R"',
            ("FP8 changes C", '"fp8": "C"', "in another format"),
            ("FP8 changes eta", '"fp8": "eta"', "another row of its data sheet"),
        ),
    ],
}


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
