"""Wrong answers to the exercises on scaling laws."""

from tests.exercises.wrong_answers import Wrong, in_place_of

# After the last line of a solution a value is set anew.
OPTIMUM = "tokens = (1 + b / a * (1 - 0.4**-a)) ** (-1 / b)"
PARABOLA = "lowest_exponent = float(np.polyfit(*np.log(lowest).T, 1)[0])"
ROBUST = "squares_billions = round(squares.optimal(1e24).N / 1e9, 1)"
EPOCHS = "epochs_for_four = 1 - rho * log(1 - 3 / rho)"
LIFE = 'billions_once = min(once, key=cost)["billions"]'
STUDIES = "left_out = (flops / (6 * D) - N) / 1e6"
ADVICE = "same_size = ratio ** (1 / (laws[1].exponent - laws[0].exponent))"
TRUST = "times_compute = small.flops_for(had) / (6 * N * D)  # its own are 6 N D"


def then(last: str, *wrong: tuple[str, str, str]) -> list[Wrong]:
    """The solution with one value set anew: misconception, the line that does it, and the hint."""
    return [Wrong(name, f"{last}\n{line}", hint, last) for name, line, hint in wrong]


BANK = {
    "optimum": [
        *in_place_of(
            "N = (balance * ND**beta)",
            ("exponents swapped", "N = (balance * ND**alpha)", "The exponents have changed places"),
            ("sixteenths", "N = (ND)", "which two terms are alike"),
        ),
        *in_place_of(
            "balance = alpha * A / (beta * B)",
            ("terms upside down", "balance = beta * B / (alpha * A)", "upside down"),
            ("terms alike", "balance = A / B", "fall by per percent"),
            (
                "divided by beta alone",
                "balance = alpha * A / beta * B",
                "Python divides by beta alone",
            ),
        ),
        *in_place_of(
            "N = (balance * ND**beta) ** (1 / (alpha + beta))",
            (
                "no root of the ratio",
                "N = balance * ND ** (beta / (alpha + beta))",
                "goes into the same root",
            ),
        ),
        *in_place_of(
            "return N, ND / N",
            ("D first", "return ND / N, N", "in the other order"),
        ),
        *in_place_of(
            "ND = flops / each",
            ("always six", "ND = flops / 6", "Right for 6 FLOPs each"),
        ),
        *then(
            OPTIMUM,
            ("the tokens", "grows = 17.8", "By so much D grows"),
        ),
    ],
    "parabola": [
        *in_place_of(
            "x = np.log(sizes)",
            (
                "a parabola in N",
                "x = np.array(sizes)\n    curved, slope, level = np.polyfit(x, losses, 2)\n    return -slope / (2 * curved), level - slope**2 / (4 * curved)\n    x = np.log(sizes)",
                "This is a parabola in N",
            ),
        ),
        *in_place_of(
            'if not min(x) < at < max(x):\n        return "none"',
            ("beyond the last", "", "no bottom was seen"),
        ),
        *in_place_of(
            "if not min(x) < at < max(x):",
            (
                "by the lowest run alone",
                "if losses[np.argmin(x)] == min(losses) or losses[np.argmax(x)] == min(losses):",
                "The lowest run is the first one here",
            ),
            (
                "by the bottom, where the lowest run is at an end",
                "if min(losses) in (losses[np.argmin(x)], losses[np.argmax(x)]) and not min(x) < at < max(x):",
                "The lowest run lies inside here",
            ),
            ("one side", "if not at < max(x):", "looked for on both sides"),
            ("first and last", "if not x[0] < at < x[-1]:", "in another order"),
        ),
        *in_place_of(
            'if curved < 1e-9:\n        return "none"',
            (
                "NaN where it opens downward",
                "if curved < 1e-9:\n        return float('nan'), float('nan')",
                "is infinite or NaN",
            ),
        ),
        *in_place_of(
            "if curved < 1e-9:",
            ("never straight", "if curved < 0:", "lie on a straight line, but for 5e-10"),
        ),
        *then(
            PARABOLA,
            ("lowest runs", "exponent = 0.564", "This is by the lowest runs"),
        ),
    ],
    "robust": [
        *in_place_of(
            "off = abs(said - log(had))",
            ("raw loss", "off = abs(exp(said) - had)", "of the loss itself"),
            ("fractions", "off = abs(exp(said) / had - 1)", "These are fractions of the loss"),
            ("no size", "off = said - log(had)", "counts by its square here, however large"),
        ),
        *in_place_of(
            "delta * (off - delta / 2)",
            (
                "a fit that falls without end",
                "delta * (said - log(had) - delta / 2)",
                "leads to no law",
            ),
        ),
        *in_place_of(
            "said = top + log(sum(exp(term - top) for term in terms))",
            ("overflow", "said = log(sum(exp(term) for term in terms))", "no float"),
        ),
        *in_place_of(
            "top = max(terms)",
            ("the first term out", "top = terms[0]", "it is b that is 2000"),
            ("the first two out", "top = max(terms[:2])", "it is e that is 2000"),
        ),
        *in_place_of(
            "- beta * log(d), e]",
            ("no floor", "- beta * log(d)]", "Of each run: the logarithm"),
        ),
        *then(
            ROBUST,
            ("squares", "robust_exponent = 0.51", "This is with delta = 10"),
        ),
    ],
    "epochs": [
        *in_place_of(
            "return (1 + rho * (1 - exp(-(epochs - 1) / rho))) / epochs",
            (
                "the first reading discounted",
                "return rho * (1 - exp(-epochs / rho)) / epochs",
                "The first reading is discounted",
            ),
            (
                "repeated tokens alone",
                "return rho * (1 - exp(-(epochs - 1) / rho)) / (epochs - 1)",
                "new ones too",
            ),
            ("the last epoch", "return exp(-(epochs - 1) / rho)", "Here the last epoch"),
            ("always eight", "return (1 + rho * (1 - exp(-7 / rho))) / 8", "and not for three"),
            (
                "no first reading",
                "return rho * (1 - exp(-(epochs - 1) / rho)) / epochs",
                "The first reading is missing",
            ),
            (
                "reading by reading",
                "return sum(exp(-n / rho) for n in range(epochs)) / epochs",
                "in steps",
            ),
        ),
        *in_place_of(
            "low, high = log(0.01), log(10_000)",
            ("up to fifty", "low, high = log(0.01), log(50)", "keeps nearly all of its worth"),
            ("from a half on", "low, high = log(0.5), log(10_000)", "worth next to nothing"),
        ),
        *then(
            EPOCHS,
            (
                "the one before",
                "below_half = 12",
                "Near: this one adds a little more than half, or",
            ),
        ),
    ],
    "life": [
        *then(
            LIFE,
            (
                "not enough",
                "design = {'billions': 3, 'trillions': 3.2, 'epochs': 4}",
                "It does not reach the loss",
            ),
            (
                "design (20, 0.4, 1)",
                "design = {'billions': 20, 'trillions': 0.4, 'epochs': 1}",
                "This is the cheapest to train: see dollars(design) for",
            ),
            (
                "design (12, 0.4, 2)",
                "design = {'billions': 12, 'trillions': 0.4, 'epochs': 2}",
                "The text is read twice, and that helps",
            ),
            (
                "design (8, 0.4, 4)",
                "design = {'billions': 8, 'trillions': 0.4, 'epochs': 4}",
                "Near",
            ),
            (
                "design (8, 0.4, 8)",
                "design = {'billions': 8, 'trillions': 0.4, 'epochs': 8}",
                "The readings from four on bring little here: is the",
            ),
            (
                "design (5, 0.8, 16)",
                "design = {'billions': 5, 'trillions': 0.8, 'epochs': 16}",
                "Near: is the loss reached with fewer readings?",
            ),
            (
                "design (5, 1.6, 4)",
                "design = {'billions': 5, 'trillions': 1.6, 'epochs': 4}",
                "The size is right",
            ),
            (
                "another",
                "design = {'billions': 20, 'trillions': 1.6, 'epochs': 4}",
                "try every one",
            ),
            ("training alone", "thoughtless = 0.267", "This is its text and its training"),
        ),
        Wrong(
            "whatever it reaches",
            "if loss(each)",
            "Of all designs, keep those that reach the loss, and take",
            "if loss(each) <= reached",
        ),
    ],
    "studies": [
        *then(
            STUDIES,
            (
                "A: nothing",
                'faults = {"A": "nothing", "B": "nothing", "C": "repeats", "D": "edge", "E": "squares"}',
                "Losses agree, but look at FLOPs over 6 N D, in the",
            ),
            (
                "B: squares",
                'faults = {"A": "embeddings", "B": "squares", "C": "repeats", "D": "edge", "E": "squares"}',
                "Two runs are off by a fifth and a seventh, and the",
            ),
            (
                "C: nothing",
                'faults = {"A": "embeddings", "B": "nothing", "C": "nothing", "D": "edge", "E": "squares"}',
                "Look at had over said beside D over new",
            ),
            (
                "D: nothing",
                'faults = {"A": "embeddings", "B": "nothing", "C": "repeats", "D": "nothing", "E": "squares"}',
                "The law agrees with the runs",
            ),
        ),
        Wrong(
            "the loss that the law says",
            "_, size, read, _, _, reached = row",
            "How many new tokens would have brought a model of this size",
            "_, size, read, _, reached, _ = row",
        ),
    ],
    "advice": [
        *in_place_of(
            "right = PUBLISHED[truth].law\n    N, _ = PUBLISHED[advice].law.optimal(flops)\n    return flops / right.flops_for(right.loss(N, flops / (6 * N)))\n    ### END SOLUTION\n\n\nspread = ...  # largest N over smallest\nsafest = ...  # a key of ADVISERS\npercent = ...  # more than needed, with the safest\nsame_size = ...  # FLOPs\n### BEGIN SOLUTION\nsizes = [PUBLISHED[key].law.optimal(5e23).N for key in ADVISERS]\nspread = max(sizes) / min(sizes)\n\n\ndef worst_of(advice):\n    return max(regret(truth, advice, 5e23) for truth in TRUTHS)\n\n\nsafest = min(ADVISERS, key=worst_of)\npercent = 100 * (worst_of(safest) - 1)",
            (
                "changed places",
                'right = PUBLISHED[advice].law\n    N, _ = PUBLISHED[truth].law.optimal(flops)\n    return flops / right.flops_for(right.loss(N, flops / (6 * N)))\n    ### END SOLUTION\n\n\nspread = ...  # largest N over smallest\nsafest = ...  # a key of ADVISERS\npercent = ...  # more than needed, with the safest\nsame_size = ...  # FLOPs\n### BEGIN SOLUTION\nsizes = [PUBLISHED[key].law.optimal(5e23).N for key in ADVISERS]\nspread = max(sizes) / min(sizes)\n\n\ndef worst_of(advice):\n    return max(regret(truth, advice, 5e23) for truth in TRUTHS)\n\n\nsafest, percent = "llama3-2024", 3.34',
                "changed places",
            ),
            (
                "a record for a law",
                'right = PUBLISHED[truth]\n    N, _ = PUBLISHED[advice].law.optimal(flops)\n    return flops / right.flops_for(right.loss(N, flops / (6 * N)))\n    ### END SOLUTION\n\n\nspread = ...  # largest N over smallest\nsafest = ...  # a key of ADVISERS\npercent = ...  # more than needed, with the safest\nsame_size = ...  # FLOPs\n### BEGIN SOLUTION\nsizes = [PUBLISHED[key].law.optimal(5e23).N for key in ADVISERS]\nspread = max(sizes) / min(sizes)\n\n\ndef worst_of(advice):\n    return max(regret(truth, advice, 5e23) for truth in TRUTHS)\n\n\nsafest, percent = "llama3-2024", 3.34',
                "it has its law in .law",
            ),
            (
                "the adviser's loss",
                'right, said = PUBLISHED[truth].law, PUBLISHED[advice].law\n    N, D = said.optimal(flops)\n    if said.loss(N, D) < 0:\n        return 0.0\n    return flops / right.flops_for(right.loss(N, flops / (6 * N)))\n    ### END SOLUTION\n\n\nspread = ...  # largest N over smallest\nsafest = ...  # a key of ADVISERS\npercent = ...  # more than needed, with the safest\nsame_size = ...  # FLOPs\n### BEGIN SOLUTION\nsizes = [PUBLISHED[key].law.optimal(5e23).N for key in ADVISERS]\nspread = max(sizes) / min(sizes)\n\n\ndef worst_of(advice):\n    return max(regret(truth, advice, 5e23) for truth in TRUTHS)\n\n\nsafest, percent = "llama3-2024", 3.34',
                "says N alone",
            ),
        ),
        *in_place_of(
            "return flops / right.flops_for(right.loss(N, flops / (6 * N)))",
            (
                "upside down",
                "return right.flops_for(right.loss(N, flops / (6 * N))) / flops",
                "The other way round",
            ),
            (
                "loss over loss",
                "return right.loss(N, flops / (6 * N)) / right.loss(*right.optimal(flops))",
                "loss over loss",
            ),
            ("size over size", "return N / right.optimal(flops).N", "size over size"),
            (
                "losses above E",
                "best = right.loss(*right.optimal(flops)) - right.E\n    return (right.loss(N, flops / (6 * N)) - right.E) / best",
                "losses above E",
            ),
        ),
        *in_place_of(
            "right.loss(N, flops / (6 * N))",
            ("D without the six", "right.loss(N, flops / N)", "what loss is that by the truth"),
        ),
        *then(
            ADVICE,
            (
                "without Kaplan",
                "spread = 2.01",
                "This leaves out kaplan-2020-frontier, which calls for",
            ),
        ),
    ],
    "trust": [
        *in_place_of(
            "if run[0] <= most]))\n    _, N",
            ("all runs", "]))\n    _, N", "This is by all runs"),
            (
                "6 N D",
                "if 6 * run[1] * run[2] <= most]))\n    _, N",
                "by the runs with 6 N D",
            ),
            ("less than", "if run[0] < most]))\n    _, N", "A run with exactly so many FLOPs"),
            ("one limit", "if run[0] <= 2.1e10]))\n    _, N", "This is up to 2.1e10"),
        ),
        *in_place_of(
            "return law.exponent, law",
            ("the tokens' exponent", "return 1 - law.exponent, law", "the tokens grow"),
        ),
        *in_place_of(
            "return law.exponent, law.loss(N, D) / had - 1",
            (
                "the other order",
                "return law.loss(N, D) / had - 1, law.exponent",
                "in the other order",
            ),
        ),
        *in_place_of(
            "law.loss(N, D) / had - 1",
            ("a loss", "law.loss(N, D)", "the loss that is predicted"),
            ("had over said", "had / law.loss(N, D) - 1", "the other way round"),
        ),
        *then(
            TRUST,
            ("of the loss", "above_E = -0.0062", "This is of the whole loss"),
        ),
    ],
}

# The wrong values that the sealed hints of a check are for, in their order; ... is one that
# nobody has found.
SEALED = {
    "optimum": {
        "grows": [17.8, 10, 3.98, 15.8, 100],
        "with_eight": [1.11, 0.75, 0.835, 0.866, 1, 0.917],
        "wasted": [2.82, 5, 2.94, 1.42, 1.18, 0.412, 2.24, 1.62, 0.528],
        "tokens": [2.5, 1.67, 4.48, 0.651, 0.515, 1.58, 18.2, 4.61],
    },
    "parabola": {
        "exponent": [0.564, 0.52, 0.51],
        "billions": [2.95e10, 51.3, 36, 1700, 0.0295, 29500],
        "lowest_exponent": [0.49, 0.457],
    },
    "robust": {
        "robust_exponent": [0.51, 0.486, 0.516, 0.364, 0.341],
        "squares_exponent": [0.484, 0.49, 0.486],
        "robust_billions": [42.1, 48, 4.63e10, 0.0463, 3.6],
        "squares_billions": [46.3, 48, 4.21e10, 0.0421, 3.96],
    },
    "epochs": {
        "below_half": [12, 14, 28, 15, 16, 10.7],
        "at_most": [5.08, 4.8, 16.4, 4.21],
        "epochs_for_four": [4.54, 6.67, 4, 4.34, 8.86],
    },
    "life": {
        "thoughtless": [0.267, 2.33, 4.6, 19.6, 6.93e6],
        "serving_share": [0.114, 0.171, 0.862, 1.67, 71.4],
        "billions_few": [5, 20, 8],
        "billions_once": [5, 12, 3, 20],
    },
    "studies": {
        'fault_of(faults, "A")': ['nothing', 'repeats', 'edge', 'squares'],
        'fault_of(faults, "B")': ['squares', 'edge', 'embeddings', 'repeats'],
        'fault_of(faults, "C")': ['nothing', 'embeddings', 'squares', 'edge'],
        'fault_of(faults, "D")': ['nothing', 'repeats', 'embeddings', 'squares'],
        'fault_of(faults, "E")': ['nothing', 'edge', 'embeddings', 'repeats'],
        "worth": [0.379, 0.025, 9.62, 1.92e10, 0.936, 24, 0.76],
        "left_out": [26.5, 2.65e7, 16.3, 1.63, 1.02e7, 51.4, 0.385, 0.0102],
    },
    "advice": {
        "spread": [2.01, 5.89, 688, 0.0521, 10.8],
        "in_small_letters(safest)": ['hoffmann-2022', 'besiroglu-2024', 'deepseek-2024', 'muennighoff-2023', 'kaplan-2020-frontier'],
        "percent": [2.25, 0.0334, 1.03, 10.7, 12.4, 0, 103],
        "same_size": [5.7e-20, 3.5e8, 2.93e18],
    },
    "trust": {
        "above_E": [0.0164, -0.0062, 0.0751, 0.0623, -1.64, 0.984, -0.0197, -0.0167, 0.0167, -0.0191],
        "times_tokens": [1.32, 1.25, 1.07, 223000, -0.0656, 0.984],
        "times_compute": [0.365, 0.803, ..., 3.07, 4.75e11, 0.358, 0.369, 0.362, 0.934, 0.951],
    },
}  # fmt: skip

# Answers of another structure: what came, its source, words of the sentence, what of the solution it replaces.
OTHERWISE: dict[str, list[tuple[str, ...]]] = {
    "optimum": [
        ("N alone", "return N", "What optimal returns", "return N, ND / N"),
        ("a dictionary", 'return {"N": N, "D": ND / N}', "it is a dictionary", "return N, ND / N"),
        ("text", 'return "N", "D"', "is the text", "return N, ND / N"),
    ],
    "parabola": [
        (
            "N alone",
            'return float(np.exp(at))\n    ### END SOLUTION\n\n\ndef frontier(study):\n    """(k, a) of N* = k C^a, through the bottoms that there are."""\n    ### BEGIN SOLUTION\n    found = [(flops, vertex(*runs)) for flops, *runs in study]\n    found = [(flops, at[0]) for flops, at in found if at != "none"]\n    a, log_k = np.polyfit(*np.log(found).T, 1)\n    return float(np.exp(log_k)), float(a)\n    ### END SOLUTION\n\n\nexponent = ...\nbillions = ...  # of the best size at 3e23 FLOPs\nlowest_exponent = ...  # by the lowest runs\n### BEGIN SOLUTION\nk, exponent = 0.09, 0.49',
            "What vertex returns",
            'return float(np.exp(at)), float(level - curved * at**2)\n    ### END SOLUTION\n\n\ndef frontier(study):\n    """(k, a) of N* = k C^a, through the bottoms that there are."""\n    ### BEGIN SOLUTION\n    found = [(flops, vertex(*runs)) for flops, *runs in study]\n    found = [(flops, at[0]) for flops, at in found if at != "none"]\n    a, log_k = np.polyfit(*np.log(found).T, 1)\n    return float(np.exp(log_k)), float(a)\n    ### END SOLUTION\n\n\nexponent = ...\nbillions = ...  # of the best size at 3e23 FLOPs\nlowest_exponent = ...  # by the lowest runs\n### BEGIN SOLUTION\nk, exponent = frontier(STUDY)',
        ),
        (
            "the exponent alone",
            "return float(a)\n    ### END SOLUTION\n\n\nexponent = ...\nbillions = ...  # of the best size at 3e23 FLOPs\nlowest_exponent = ...  # by the lowest runs\n### BEGIN SOLUTION\nk, exponent = 0.09, 0.49",
            "What frontier returns",
            "return float(np.exp(log_k)), float(a)\n    ### END SOLUTION\n\n\nexponent = ...\nbillions = ...  # of the best size at 3e23 FLOPs\nlowest_exponent = ...  # by the lowest runs\n### BEGIN SOLUTION\nk, exponent = frontier(STUDY)",
        ),
    ],
    "robust": [
        ("a list", "return [total]", "What objective returns should be a number", "return total"),
        (
            "an error for each run",
            "return [total / len(N)] * len(N)",
            "What objective returns should be a number",
            "return total",
        ),
    ],
    "epochs": [
        (
            "a pair",
            "return low, high\n    ### END SOLUTION\n\n\nbelow_half = ...  # the first epoch that adds less than half of the first\nat_most = ...  # times its length\nepochs_for_four = ...\n### BEGIN SOLUTION\nbelow_half = next(\n    n for n in range(2, 100)\n    if 15.4 * (exp(-(n - 2) / 15.4) - exp(-(n - 1) / 15.4)) < 0.5\n)\nrho = 5.08",
            "What constant_of returns should be a number",
            "return exp(low)\n    ### END SOLUTION\n\n\nbelow_half = ...  # the first epoch that adds less than half of the first\nat_most = ...  # times its length\nepochs_for_four = ...\n### BEGIN SOLUTION\nbelow_half = next(\n    n for n in range(2, 100)\n    if 15.4 * (exp(-(n - 2) / 15.4) - exp(-(n - 1) / 15.4)) < 0.5\n)\nrho = constant_of(8, 0.6)",
        ),
        (
            "text",
            'return "5.08"\n    ### END SOLUTION\n\n\nbelow_half = ...  # the first epoch that adds less than half of the first\nat_most = ...  # times its length\nepochs_for_four = ...\n### BEGIN SOLUTION\nbelow_half = next(\n    n for n in range(2, 100)\n    if 15.4 * (exp(-(n - 2) / 15.4) - exp(-(n - 1) / 15.4)) < 0.5\n)\nrho = 5.08',
            "is the text",
            "return exp(low)\n    ### END SOLUTION\n\n\nbelow_half = ...  # the first epoch that adds less than half of the first\nat_most = ...  # times its length\nepochs_for_four = ...\n### BEGIN SOLUTION\nbelow_half = next(\n    n for n in range(2, 100)\n    if 15.4 * (exp(-(n - 2) / 15.4) - exp(-(n - 1) / 15.4)) < 0.5\n)\nrho = constant_of(8, 0.6)",
        ),
    ],
    "life": [
        ("a list", "design = [5, 0.8, 8]", "a dictionary with the keys 'billions'"),
        (
            "billions as text",
            'design = {"billions": "5", "trillions": 0.8, "epochs": 8}',
            "take one of 3, 5",
        ),
        (
            "a size that there is not",
            'design = {"billions": 6, "trillions": 0.8, "epochs": 8}',
            "take one of 3, 5",
        ),
    ],
    "studies": [
        (
            "a list",
            'faults = ["embeddings", "nothing", "repeats", "edge", "squares"]',
            "The answer `faults` should be a dictionary",
        ),
        (
            "a study too few",
            'faults = {"A": "embeddings"}',
            "The answer `faults` should be a dictionary",
        ),
    ],
    "advice": [
        (
            "a pair",
            'return N, flops\n    ### END SOLUTION\n\n\nspread = ...  # largest N over smallest\nsafest = ...  # a key of ADVISERS\npercent = ...  # more than needed, with the safest\nsame_size = ...  # FLOPs\n### BEGIN SOLUTION\nsizes = [PUBLISHED[key].law.optimal(5e23).N for key in ADVISERS]\nspread = max(sizes) / min(sizes)\n\n\ndef worst_of(advice):\n    return max(regret(truth, advice, 5e23) for truth in TRUTHS)\n\n\nsafest, percent = "llama3-2024", 3.34',
            "What regret returns should be a number",
            "return flops / right.flops_for(right.loss(N, flops / (6 * N)))\n    ### END SOLUTION\n\n\nspread = ...  # largest N over smallest\nsafest = ...  # a key of ADVISERS\npercent = ...  # more than needed, with the safest\nsame_size = ...  # FLOPs\n### BEGIN SOLUTION\nsizes = [PUBLISHED[key].law.optimal(5e23).N for key in ADVISERS]\nspread = max(sizes) / min(sizes)\n\n\ndef worst_of(advice):\n    return max(regret(truth, advice, 5e23) for truth in TRUTHS)\n\n\nsafest = min(ADVISERS, key=worst_of)\npercent = 100 * (worst_of(safest) - 1)",
        ),
    ],
    "trust": [
        (
            "the exponent alone",
            "return law.exponent",
            "What held_back returns should be",
            "return law.exponent, law.loss(N, D) / had - 1",
        ),
    ],
}

# The programs that are asked for, by question.
PROGRAMS = {
    "optimum": "optimal",
    "parabola": "vertex",
    "robust": "objective",
    "epochs": "constant_of",
    "advice": "regret",
    "trust": "held_back",
}

# Right answers of another kind: what came, its source, what of the solution it replaces.
RIGHT: dict[str, list[tuple[str, ...]]] = {
    "optimum": [
        (
            "rounded",
            "tokens = (1 + b / a * (1 - 0.4**-a)) ** (-1 / b)\ngrows, with_eight, wasted, tokens = 5.6, 0.9, 2.4, 4.2",
            "tokens = (1 + b / a * (1 - 0.4**-a)) ** (-1 / b)",
        ),
        (
            "D first",
            "D = (ND**alpha / balance) ** (1 / (alpha + beta))\n    return ND / D, D",
            "N = (balance * ND**beta) ** (1 / (alpha + beta))\n    return N, ND / N",
        ),
    ],
    "parabola": [
        (
            "rounded",
            "lowest_exponent = float(np.polyfit(*np.log(lowest).T, 1)[0])\nexponent, billions, lowest_exponent = 0.49, 29, 0.56",
            "lowest_exponent = float(np.polyfit(*np.log(lowest).T, 1)[0])",
        ),
        (
            "centred",
            "x = np.log(sizes)\n    middle = x.mean()\n    curved, slope, level = np.polyfit(x - middle, losses, 2)\n    slope, level = slope - 2 * curved * middle, level - slope * middle + curved * middle**2",
            "x = np.log(sizes)\n    curved, slope, level = np.polyfit(x, losses, 2)",
        ),
        (
            "none in capitals, with a blank",
            'if curved < 1e-9:\n        return "None "',
            'if curved < 1e-9:\n        return "none"',
        ),
        (
            "numbers of numpy",
            "return np.exp(at), level - curved * at**2",
            "return float(np.exp(at)), float(level - curved * at**2)",
        ),
    ],
    "robust": [
        (
            "rounded",
            "squares_billions = round(squares.optimal(1e24).N / 1e9, 1)\nrobust_exponent, squares_exponent = 0.48, 0.51\nrobust_billions, squares_billions = 46, 42",
            "squares_billions = round(squares.optimal(1e24).N / 1e9, 1)",
        ),
        (
            "by numpy",
            "a, b, e, alpha, beta = point\n    N, D, loss = np.array(N), np.array(D), np.array(loss)\n    said = np.logaddexp(a - alpha * np.log(N), b - beta * np.log(D))\n    off = np.abs(np.logaddexp(said, e) - np.log(loss))\n    large = delta * (off - delta / 2)\n    return np.where(off <= delta, off**2 / 2, large).sum()",
            "a, b, e, alpha, beta = point\n    total = 0.0\n    for n, d, had in zip(N, D, loss):\n        terms = [a - alpha * log(n), b - beta * log(d), e]\n        top = max(terms)  # so that no power of e is above one\n        said = top + log(sum(exp(term - top) for term in terms))\n        off = abs(said - log(had))\n        if off <= delta:\n            total += off**2 / 2\n        else:\n            total += delta * (off - delta / 2)\n    return total",
        ),
        (
            "the smaller of two",
            "total += min(off, delta) * (off - min(off, delta) / 2)",
            "if off <= delta:\n            total += off**2 / 2\n        else:\n            total += delta * (off - delta / 2)",
        ),
    ],
    "epochs": [
        (
            "rounded",
            "epochs_for_four = 1 - rho * log(1 - 3 / rho)\nat_most, epochs_for_four = 6.1, 5.5",
            "epochs_for_four = 1 - rho * log(1 - 3 / rho)",
        ),
    ],
    "life": [
        (
            "rounded",
            'billions_once = min(once, key=cost)["billions"]\nthoughtless, serving_share = 6.9, 0.71',
            'billions_once = min(once, key=cost)["billions"]',
        ),
    ],
    "studies": [
        (
            "rounded",
            "left_out = (flops / (6 * D) - N) / 1e6\nworth, left_out = 0.24, 10",
            "left_out = (flops / (6 * D) - N) / 1e6",
        ),
    ],
    "advice": [
        (
            "rounded",
            'same_size = ratio ** (1 / (laws[1].exponent - laws[0].exponent))\nspread, percent, same_size = 19, 3.3, 1.8e19\nsafest = "Llama3-2024 "',
            "same_size = ratio ** (1 / (laws[1].exponent - laws[0].exponent))",
        ),
    ],
    "trust": [
        (
            "rounded",
            f"{TRUST}\nabove_E, times_tokens, times_compute = -0.016, 0.93, 0.33",
            TRUST,
        ),
        ("FLOPs counted", "times_compute = small.flops_for(had) / HELD[0]", TRUST),
    ],
}
