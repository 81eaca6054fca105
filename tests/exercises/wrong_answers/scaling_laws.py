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
            ("four digits", "return float(f'{N:.3e}'), float(f'{ND / N:.3e}')", "but rounded"),
            ("three digits", "return float(f'{N:.2e}'), float(f'{ND / N:.2e}')", "but rounded"),
            ("two digits", "return float(f'{N:.1e}'), float(f'{ND / N:.1e}')", "but rounded"),
            ("D of the whole budget", "return N, flops / N", "What is left for D"),
        ),
        *in_place_of(
            "ND = flops / each",
            ("budget for ND", "ND = flops", "what does `each` do"),
            ("always six", "ND = flops / 6", "Right for 6 FLOPs each"),
        ),
        *then(
            OPTIMUM,
            ("the tokens", "grows = 17.8", "By so much D grows"),
            ("alike", "grows = 10", "So it would be with exponents that are alike"),
            ("beta", "grows = 3.98", "That is beta alone"),
            ("alpha", "grows = 15.8", "This is where one term is held fixed against the other"),
            ("everything", "grows = 100", "All of the budget for the parameters: what do the"),
            (
                "upside down",
                "with_eight = 1.11",
                "Larger, though each parameter costs more? The budget",
            ),
            ("all of it", "with_eight = 0.75", "N D becomes so much less"),
            ("the tokens", "with_eight = 0.835", "By so much D changes"),
            ("alike", "with_eight = 0.866", "So it would be with exponents that are alike"),
            ("beta", "with_eight = 0.917", "That is beta alone"),
            ("beta, rounded", "with_eight = 0.92", "That is beta alone"),
            ("none", "with_eight = 1", "The budget buys less of N D than before"),
            (
                "the law to take away",
                "wasted = 2.82",
                "This is the law to take away, and too high so far",
            ),
            (
                "the law to take away, rounded",
                "wasted = 2.8",
                "This is the law to take away, and too high so far",
            ),
            ("weights swapped", "wasted = 0.528", "The weights of the two terms have changed"),
            ("weights swapped, rounded", "wasted = 0.53", "The weights of the two terms have"),
            (
                "five times",
                "wasted = 5",
                "The model is five times as large, and not for nothing:",
            ),
            ("at a fifth", "wasted = 2.94", "This is for a fifth of the best size"),
            ("the power of one term", "wasted = 2.24", "with the exponent of one term"),
            ("the power of the other", "wasted = 1.62", "with the exponent of one term"),
            ("the part above", "wasted = 1.42", "By so much more"),
            ("the excess", "wasted = 1.18", "By so much the loss above E is larger"),
            ("inverse", "wasted = 0.412", "The other way round: how much was spent, over what was"),
            ("as much compute", "tokens = 2.5", "That many tokens take the same compute"),
            ("flops", "tokens = 1.67", "By so much the FLOPs grow"),
            ("exponents swapped", "tokens = 4.48", "The exponents have changed places"),
            ("exponents swapped, rounded", "tokens = 4.5", "The exponents have changed places"),
            (
                "the same factor",
                "tokens = 0.4 ** (-5 / 3)",
                "by the factor by which the second grows",
            ),
            ("the same factor, rounded", "tokens = 4.6", "by the factor by which the second"),
            ("terms alike", "tokens = 18.2", "takes both terms for alike"),
            ("the second term", "tokens = 1.58", "So much the second term grows"),
            ("what is left", "tokens = 0.651", "So much is left for the third term"),
            ("the other side", "tokens = 0.515", "This is for a model of 2.5 times the size"),
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
            "return float(np.exp(at)), float(level - curved * at**2)",
            (
                "the lowest run",
                "return sizes[losses.index(min(losses))], min(losses)",
                "This is the lowest run",
            ),
            (
                "the other order",
                "return float(level - curved * at**2), float(np.exp(at))",
                "the loss and N, in the other order",
            ),
        ),
        *in_place_of(
            "float(level - curved * at**2)",
            ("the lowest loss", "min(losses)", "the loss of the lowest run"),
        ),
        *in_place_of(
            "curved, slope, level = np.polyfit(x, losses, 2)",
            (
                "three runs",
                "three = np.argsort(losses)[:3]\n    curved, slope, level = np.polyfit(x[three], np.array(losses)[three], 2)",
                "by the three lowest runs? All of them",
            ),
        ),
        *in_place_of(
            "return float(np.exp(at)), float",
            ("ln N", "return float(at), float", "This is ln N at the bottom"),
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
                "by the bottom, and by the lowest run",
                "if min(losses) in (losses[np.argmin(x)], losses[np.argmax(x)]) or not min(x) < at < max(x):",
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
            'if not min(x) < at < max(x):\n        return "none"',
            (
                "NaN where there is none",
                "if not min(x) < at < max(x):\n        return float('nan'), float('nan')",
                "is infinite or NaN",
            ),
            (
                "the last size where there is none",
                "if not min(x) < at < max(x):\n        return max(sizes), min(losses)",
                "no bottom was seen",
            ),
            (
                "the lowest run where there is none",
                "if not min(x) < at < max(x):\n        return sizes[losses.index(min(losses))], min(losses)",
                "no bottom was seen",
            ),
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
            ("downward", "if abs(curved) < 1e-9:", "opens downward"),
            ("never straight", "if curved < 0:", "lie on a straight line, but for 5e-10"),
        ),
        *in_place_of(
            "return float(np.exp(at)), float(level - curved * at**2)",
            (
                "two digits",
                "return float(f'{np.exp(at):.1e}'), round(float(level - curved * at**2), 1)",
                "but rounded",
            ),
            (
                "three digits",
                "return float(f'{np.exp(at):.2e}'), round(float(level - curved * at**2), 2)",
                "but rounded",
            ),
        ),
        *in_place_of(
            "return float(np.exp(log_k)), float(a)",
            ("two digits", "return round(float(np.exp(log_k)), 2), round(float(a), 2)", "rounded"),
            (
                "three digits",
                "return round(float(np.exp(log_k)), 3), round(float(a), 3)",
                "rounded",
            ),
            ("k in logarithms", "return float(log_k), float(a)", "this is ln k"),
            (
                "k in logarithms to base ten",
                "return float(log_k / log(10)), float(a)",
                "the logarithm of k to base ten",
            ),
            ("a and ln k", "return float(a), float(log_k)", "This is a and ln k"),
            ("a first", "return float(a), float(np.exp(log_k))", "in the other order"),
        ),
        *in_place_of(
            "np.polyfit(*np.log(found).T, 1)",
            ("C over N", "np.polyfit(*np.log(found).T[::-1], 1)", "C as a power of N"),
        ),
        *in_place_of(
            "found = [(flops, vertex(*runs)) for flops, *runs in study]",
            (
                "the lowest runs' line",
                "found = [(flops, (n[l.index(min(l))], 0)) for flops, n, l in study]",
                "the sizes of the lowest runs",
            ),
            (
                "the lowest runs of those with a bottom",
                'found = [(flops, (n[l.index(min(l))], 0)) for flops, n, l in study if vertex(n, l) != "none"]',
                "of budgets that have a bottom",
            ),
            (
                "tokens",
                'found = [(flops, vertex(*runs)) for flops, *runs in study]\n    found = [(flops, at if at == "none" else (flops / 6 / at[0], 0)) for flops, at in found]',
                "This is for the tokens",
            ),
            (
                "its own study alone",
                "study = STUDY\n    found = [(flops, vertex(*runs)) for flops, *runs in study]",
                "A straight line through ln C",
            ),
        ),
        *then(
            PARABOLA,
            ("lowest runs", "exponent = 0.564", "This is by the lowest runs"),
            ("every bottom", "exponent = 0.52", "Budgets count here whose bottom nobody has seen"),
            ("the tokens", "exponent = 0.51", "With this exponent the tokens grow"),
            ("parameters", "billions = 2.95e+10", "The digits are right, but billions are wanted"),
            ("trillions", "billions = 0.0295", "these are trillions"),
            ("millions", "billions = 29500", "these are millions"),
            ("lowest runs", "billions = 51.3", "This is by the lowest runs"),
            ("every bottom", "billions = 36", "Budgets count here whose bottom nobody has seen"),
            ("the tokens", "billions = 1.7e+03", "So many billion tokens"),
            ("by bottoms", "lowest_exponent = 0.49", "This is by the bottoms"),
            (
                "of three budgets",
                "lowest_exponent = 0.457",
                "This is of the three budgets that have a bottom",
            ),
        ),
    ],
    "robust": [
        *in_place_of(
            "off = abs(said - log(had))",
            ("raw loss", "off = abs(exp(said) - had)", "of the loss itself"),
            ("fractions", "off = abs(exp(said) / had - 1)", "These are fractions of the loss"),
            ("no size", "off = said - log(had)", "counts by its square here, however large"),
            (
                "logarithms to base ten",
                "off = abs(said - log(had)) / log(10)",
                "logarithms to base ten",
            ),
        ),
        *in_place_of(
            "if off <= delta:",
            ("squares", "if True:", "All errors count by their squares"),
            ("cases changed places", "if off > delta:", "The two cases have changed places"),
        ),
        *in_place_of(
            "delta * (off - delta / 2)",
            ("half the slope", "delta * off", "do not meet at delta"),
            ("zero at delta", "delta * (off - delta)", "there the line is zero here"),
            (
                "a fit that falls without end",
                "delta * (said - log(had) - delta / 2)",
                "leads to no law",
            ),
            ("no delta", "off - delta / 2", "the line is too steep"),
            ("cut", "delta**2 / 2", "nothing grows any more"),
        ),
        *in_place_of(
            "return total",
            ("mean", "return total / len(N)", "the mean over the runs"),
        ),
        *in_place_of(
            "total += off**2 / 2",
            ("all by size", "total += off", "and not by their size"),
            ("no half", "total += off**2", "half of the square"),
        ),
        *in_place_of(
            "said = top + log(sum(exp(term - top) for term in terms))",
            ("overflow", "said = log(sum(exp(term) for term in terms))", "no float"),
        ),
        *in_place_of(
            "delta * (off - delta / 2)\n    return total\n    ### END SOLUTION\n\n\nrobust_exponent = ...  # with delta = 0.001\nsquares_exponent = ...  # with delta = 10\nrobust_billions = ...\nsquares_billions = ...\n### BEGIN SOLUTION\nrobust, squares = (fitted(objective, RUNS, d) for d in (1e-3, 10.0))",
            (
                "the sign kept",
                "delta * (said - log(had) - delta / 2)\n    return total\n    ### END SOLUTION\n\n\nrobust_exponent = ...  # with delta = 0.001\nsquares_exponent = ...  # with delta = 10\nrobust_billions = ...\nsquares_billions = ...\n### BEGIN SOLUTION\nrobust, squares = (fit(*RUNS), fit(*RUNS))",
                "takes from the sum",
            ),
        ),
        *in_place_of(
            "a, b, e, alpha, beta = point",
            (
                "exponents swapped",
                "a, b, e, beta, alpha = point",
                "The exponents have changed places",
            ),
        ),
        *in_place_of(
            "top = max(terms)",
            ("the first term out", "top = terms[0]", "it is b that is 2000"),
            ("the first two out", "top = max(terms[:2])", "it is e that is 2000"),
            ("the second term out", "top = terms[1]", "no float"),
        ),
        *in_place_of(
            "- beta * log(d), e]",
            ("no floor", "- beta * log(d)]", "Of each run: the logarithm"),
        ),
        *then(
            ROBUST,
            ("squares", "robust_exponent = 0.51", "This is with delta = 10"),
            ("the tokens", "robust_exponent = 0.516", "With this exponent the tokens grow"),
            ("the truth's", "robust_exponent = 0.34 / 0.70", "The law that made the runs has this"),
            (
                "the truth's, rounded",
                "robust_exponent = 0.49",
                "The law that made the runs has this",
            ),
            ("alpha", "robust_exponent = robust.alpha", "This is alpha"),
            ("beta", "robust_exponent = robust.beta", "This is beta"),
            ("robust", "squares_exponent = 0.484", "This is with delta = 0.001"),
            ("the tokens", "squares_exponent = 0.49", "With this exponent the tokens grow"),
            (
                "the truth's",
                "squares_exponent = 0.34 / 0.70",
                "The law that made the runs has this",
            ),
            ("squares", "robust_billions = 42.1", "This is with delta = 10"),
            (
                "parameters",
                "robust_billions = 4.63e+10",
                "The digits are right, but billions are wanted",
            ),
            ("trillions", "robust_billions = 0.0463", "these are trillions"),
            ("trillions of tokens", "robust_billions = 3.6", "These are trillions of tokens"),
            ("the truth's", "robust_billions = 48", "The law that made the runs has this"),
            ("robust", "squares_billions = 46.3", "This is with delta = 0.001"),
            (
                "parameters",
                "squares_billions = 4.21e+10",
                "The digits are right, but billions are wanted",
            ),
            ("trillions", "squares_billions = 0.0421", "these are trillions"),
            ("trillions of tokens", "squares_billions = 3.96", "These are trillions of tokens"),
            ("the truth's", "squares_billions = 48", "The law that made the runs has this"),
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
            "return (1 + rho * (1 - exp(-(epochs - 1) / rho))) / epochs\n\n    low, high = log(0.01), log(10_000)\n    for _ in range(100):\n        middle = (low + high) / 2\n        if each(exp(middle)) < worth:\n            low = middle\n        else:\n            high = middle\n    return exp(low)\n    ### END SOLUTION\n\n\nbelow_half = ...  # the first epoch that adds less than half of the first\nat_most = ...  # times its length\nepochs_for_four = ...\n### BEGIN SOLUTION\nbelow_half = next(\n    n for n in range(2, 100)\n    if 15.4 * (exp(-(n - 2) / 15.4) - exp(-(n - 1) / 15.4)) < 0.5\n)\nrho = constant_of(8, 0.6)",
            (
                "the worth of all together",
                "return 1 + rho * (1 - exp(-(epochs - 1) / rho))\n\n    low, high = log(0.01), log(10_000)\n    for _ in range(100):\n        middle = (low + high) / 2\n        if each(exp(middle)) < worth:\n            low = middle\n        else:\n            high = middle\n    return exp(low)\n    ### END SOLUTION\n\n\nbelow_half = ...  # the first epoch that adds less than half of the first\nat_most = ...  # times its length\nepochs_for_four = ...\n### BEGIN SOLUTION\nbelow_half = next(\n    n for n in range(2, 100)\n    if 15.4 * (exp(-(n - 2) / 15.4) - exp(-(n - 1) / 15.4)) < 0.5\n)\nrho = 5.08",
                "ended at its lower end",
            ),
        ),
        *in_place_of(
            "exp(-(epochs - 1) / rho)",
            ("epochs for repetitions", "exp(-epochs / rho)", "how many repetitions"),
        ),
        *in_place_of(
            "return exp(low)",
            ("one more", "return 1 + exp(low)", "The constant is one less"),
            ("what was shown", "return 5.08", "and not for three"),
        ),
        *in_place_of(
            "low, high = log(0.01), log(10_000)",
            ("up to fifty", "low, high = log(0.01), log(50)", "keeps nearly all of its worth"),
            ("from a half on", "low, high = log(0.5), log(10_000)", "worth next to nothing"),
        ),
        *in_place_of(
            "if each(exp(middle)) < worth:",
            ("always 0.6", "if each(exp(middle)) < 0.6:", "and not for three"),
            ("the wrong half", "if each(exp(middle)) > worth:", "ended at its"),
        ),
        *then(
            EPOCHS,
            (
                "the one before",
                "below_half = 12",
                "Near: this one adds a little more than half, or",
            ),
            ("the one after", "below_half = 14", "The one before adds less than half already"),
            (
                "the mean",
                "below_half = 28",
                "From here on the mean over all epochs is below a half",
            ),
            (
                "the constant",
                "below_half = 15",
                "After so many repetitions 1/e is left, which is less",
            ),
            (
                "the constant, rounded up",
                "below_half = 16",
                "After so many repetitions 1/e is left, which is less",
            ),
            ("ln 2", "below_half = 10.7", "So many repetitions, if the worth fell smoothly"),
            ("the constant", "at_most = 5.08", "So much the repetitions amount to at most"),
            ("eight", "at_most = 4.8", "So much eight epochs amount to"),
            ("web", "at_most = 16.4", "So it is on web text"),
            ("at 1/e", "at_most = 4.21", "There 1/e of a new token's worth is left"),
            ("repetitions", "epochs_for_four = 4.54", "So many repetitions"),
            ("by the mean", "epochs_for_four = 6.67", "At eight epochs each was worth 0.6"),
            (
                "as new",
                "epochs_for_four = 4",
                "So it would be if each reading were as good as the first",
            ),
            ("web", "epochs_for_four = 4.34", "So it is on web text"),
            (
                "four repetitions",
                "epochs_for_four = 8.86",
                "This is for five times its length: the first reading counts",
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
                "design (5, 3.2, 2)",
                "design = {'billions': 5, 'trillions': 3.2, 'epochs': 2}",
                "The size is right",
            ),
            (
                "design (5, 1.6, 8)",
                "design = {'billions': 5, 'trillions': 1.6, 'epochs': 8}",
                "The size is right",
            ),
            (
                "design (50, 3.2, 1)",
                "design = {'billions': 50, 'trillions': 3.2, 'epochs': 1}",
                "This is where you began",
            ),
            (
                "another",
                "design = {'billions': 20, 'trillions': 1.6, 'epochs': 4}",
                "try every one",
            ),
            ("training alone", "thoughtless = 0.267", "This is its text and its training"),
            ("the best", "thoughtless = 2.33", "This is the best design's"),
            ("the difference", "thoughtless = 4.6", "So much more it costs"),
            ("the largest", "thoughtless = 19.6", "This is the design that stood there"),
            ("dollars", "thoughtless = 6.93e+06", "The digits are right, but millions are wanted"),
            ("training", "serving_share = 0.114", "This is what training takes"),
            ("text", "serving_share = 0.171", "This is what the text takes"),
            ("without text", "serving_share = 0.862", "The text costs, too"),
            ("millions", "serving_share = 1.67", "These are millions"),
            ("percent", "serving_share = 71.4", "A fraction is wanted, not a percentage"),
            ("as with thirty", "billions_few = 5", "So it is with 30 trillion"),
            ("as with none", "billions_few = 20", "So it is with none"),
            ("smaller", "billions_few = 8", "Near: with eight more is paid for training than is"),
            ("five", "billions_once = 5", "With text read once that is not enough for five"),
            (
                "twelve",
                "billions_once = 12",
                "Serving is the largest part: a smaller one on more text",
            ),
            (
                "three",
                "billions_once = 3",
                "With three billion the loss is not reached, on whatever",
            ),
            ("twenty", "billions_once = 20", "So it is without service"),
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
                "A: repeats",
                'faults = {"A": "repeats", "B": "nothing", "C": "repeats", "D": "edge", "E": "squares"}',
                "Each token is new here: D and new are alike",
            ),
            (
                "A: edge",
                'faults = {"A": "edge", "B": "nothing", "C": "repeats", "D": "edge", "E": "squares"}',
                "On each budget the lowest loss lies between other sizes",
            ),
            (
                "A: squares",
                'faults = {"A": "squares", "B": "nothing", "C": "repeats", "D": "edge", "E": "squares"}',
                "Losses agree within the noise in all rows",
            ),
            (
                "B: squares",
                'faults = {"A": "embeddings", "B": "squares", "C": "repeats", "D": "edge", "E": "squares"}',
                "Two runs are off by a fifth and a seventh, and the",
            ),
            (
                "B: edge",
                'faults = {"A": "embeddings", "B": "edge", "C": "repeats", "D": "edge", "E": "squares"}',
                "But for two bad runs, the lowest loss of each budget",
            ),
            (
                "B: embeddings",
                'faults = {"A": "embeddings", "B": "embeddings", "C": "repeats", "D": "edge", "E": "squares"}',
                "FLOPs are 6 N D in all rows",
            ),
            (
                "B: repeats",
                'faults = {"A": "embeddings", "B": "repeats", "C": "repeats", "D": "edge", "E": "squares"}',
                "Each token is new here",
            ),
            (
                "C: nothing",
                'faults = {"A": "embeddings", "B": "nothing", "C": "nothing", "D": "edge", "E": "squares"}',
                "Look at had over said beside D over new",
            ),
            (
                "C: embeddings",
                'faults = {"A": "embeddings", "B": "nothing", "C": "embeddings", "D": "edge", "E": "squares"}',
                "FLOPs are 6 N D in all rows",
            ),
            (
                "C: squares",
                'faults = {"A": "embeddings", "B": "nothing", "C": "squares", "D": "edge", "E": "squares"}',
                "What is off here is not a run or two: look at had over",
            ),
            (
                "C: edge",
                'faults = {"A": "embeddings", "B": "nothing", "C": "edge", "D": "edge", "E": "squares"}',
                "There are no budgets here",
            ),
            (
                "D: nothing",
                'faults = {"A": "embeddings", "B": "nothing", "C": "repeats", "D": "nothing", "E": "squares"}',
                "The law agrees with the runs",
            ),
            (
                "D: repeats",
                'faults = {"A": "embeddings", "B": "nothing", "C": "repeats", "D": "repeats", "E": "squares"}',
                "Each token is new here",
            ),
            (
                "D: embeddings",
                'faults = {"A": "embeddings", "B": "nothing", "C": "repeats", "D": "embeddings", "E": "squares"}',
                "FLOPs are 6 N D in all rows",
            ),
            (
                "D: squares",
                'faults = {"A": "embeddings", "B": "nothing", "C": "repeats", "D": "squares", "E": "squares"}',
                "The law agrees with the runs",
            ),
            (
                "E: nothing",
                'faults = {"A": "embeddings", "B": "nothing", "C": "repeats", "D": "edge", "E": "nothing"}',
                "Two runs are off by an eighth, as they may",
            ),
            (
                "E: edge",
                'faults = {"A": "embeddings", "B": "nothing", "C": "repeats", "D": "edge", "E": "edge"}',
                "On each budget but for two bad runs the lowest loss",
            ),
            (
                "E: embeddings",
                'faults = {"A": "embeddings", "B": "nothing", "C": "repeats", "D": "edge", "E": "embeddings"}',
                "FLOPs are 6 N D in all rows",
            ),
            (
                "E: repeats",
                'faults = {"A": "embeddings", "B": "nothing", "C": "repeats", "D": "edge", "E": "repeats"}',
                "Each token is new here",
            ),
            ("on the web", "worth = 0.379", "So it is by the constant of web text"),
            (
                "one over epochs",
                "worth = 0.025",
                "So it would be if only the first reading counted",
            ),
            ("times the text", "worth = 9.62", "To so many times the new tokens they amount"),
            ("tokens", "worth = 1.92e+10", "To so many tokens they amount"),
            ("loss over loss", "worth = 0.936", "That is loss over loss"),
            ("percent", "worth = 24", "not a percentage"),
            ("what is lost", "worth = 0.76", "So much of its worth it has lost"),
            ("all", "left_out = 26.5", "So many there are in all"),
            (
                "all, in units",
                "left_out = 26.5e6",
                "So many there are in all, and millions are wanted",
            ),
            ("in N", "left_out = 16.3", "So many are counted"),
            ("a ratio", "left_out = 1.63", "So many times as many there are as were counted"),
            ("billions", "left_out = 0.0102", "these are billions"),
            ("parameters", "left_out = 1.02e+07", "The digits are right, but millions are wanted"),
            ("the last run", "left_out = 51.4", "This is of the last run"),
            ("a fraction", "left_out = 0.385", "This is the fraction that was left out"),
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
                "a record that advises",
                'right = PUBLISHED[truth].law\n    N, _ = PUBLISHED[advice].optimal(flops)\n    return flops / right.flops_for(right.loss(N, flops / (6 * N)))\n    ### END SOLUTION\n\n\nspread = ...  # largest N over smallest\nsafest = ...  # a key of ADVISERS\npercent = ...  # more than needed, with the safest\nsame_size = ...  # FLOPs\n### BEGIN SOLUTION\nsizes = [PUBLISHED[key].law.optimal(5e23).N for key in ADVISERS]\nspread = max(sizes) / min(sizes)\n\n\ndef worst_of(advice):\n    return max(regret(truth, advice, 5e23) for truth in TRUTHS)\n\n\nsafest, percent = "llama3-2024", 3.34',
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
            (
                "the part above",
                "return flops / right.flops_for(right.loss(N, flops / (6 * N))) - 1",
                "beyond what is needed",
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
            (
                "by the formula with a loss",
                "spread = 5.89",
                "This has kaplan-2020, the law with a loss",
            ),
            ("difference in billions", "spread = 688", "These are billions, one less the other"),
            ("inverse", "spread = 0.0521", "The smallest over the largest"),
            ("tokens", "spread = 10.8", "This is over the N of besiroglu-2024, which is not the"),
            ("hoffmann-2022", 'safest = "hoffmann-2022"', "It costs nothing if it is right itself"),
            (
                "besiroglu-2024",
                'safest = "besiroglu-2024"',
                "It costs nothing if it is right itself",
            ),
            (
                "deepseek-2024",
                'safest = "deepseek-2024"',
                "If hoffmann-2022 is right, it costs more than one that",
            ),
            (
                "muennighoff-2023",
                'safest = "muennighoff-2023"',
                "If hoffmann-2022 is right, it costs more than one that",
            ),
            (
                "kaplan-2020-frontier",
                'safest = "kaplan-2020-frontier"',
                "It calls for a model ten times as large as others do",
            ),
            ("the better case", "percent = 2.25", "This is the better of the two cases"),
            ("a fraction", "percent = 0.0334", "A percentage is wanted, not a fraction"),
            ("percent in all", "percent = 103", "percent of what is needed"),
            ("times", "percent = 1.03", "So many times as much is spent"),
            (
                "one truth for the other",
                "percent = 10.7",
                "This is of who follows one of the two themselves, if",
            ),
            (
                "the other truth",
                "percent = 12.4",
                "This is of who follows one of the two themselves, if",
            ),
            ("none", "percent = 0", "So it is if the adviser is right"),
            (
                "inverse",
                "same_size = 5.7e-20",
                "The budget is upside down: which of the two exponents",
            ),
            ("size", "same_size = 3.5e+08", "This is the N on which both agree"),
            ("ND", "same_size = 2.93e+18", "This is N D"),
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
            ("nats", "law.loss(N, D) - had", "a difference in nats"),
            ("the sign", "1 - law.loss(N, D) / had", "the fraction is positive"),
            ("a logarithm", "log(law.loss(N, D) / had)", "the logarithm of said over had"),
            ("above E", "(law.loss(N, D) - law.E) / (had - law.E) - 1", "This is counted above E"),
            ("times", "law.loss(N, D) / had", "So many times as high"),
            ("percent", "100 * (law.loss(N, D) / had - 1)", "not a percentage"),
        ),
        *in_place_of(
            "return law.exponent, law.loss(N, D) / had - 1",
            (
                "two digits",
                "return round(law.exponent, 2), round(law.loss(N, D) / had - 1, 3)",
                "but rounded",
            ),
        ),
        *in_place_of(
            "return law.exponent",
            ("alpha", "return law.alpha", "the exponent of a term"),
            ("beta", "return law.beta", "the exponent of a term"),
        ),
        *then(
            TRUST,
            ("of the loss", "above_E = -0.0062", "This is of the whole loss"),
            ("no sign", "above_E = 0.0164", "The sign"),
            ("by all", "above_E = 0.0751", "This is by the law of all runs"),
            ("up to 2.1e10", "above_E = 0.0623", "This is by the sweep up to 2.1e10"),
            ("percent", "above_E = -1.64", "A fraction is wanted, not a percentage"),
            ("times", "above_E = 0.984", "So many times as much is left above E"),
            ("the other E", "above_E = -0.0197", "or of the law of all runs?"),
            ("one digit", "above_E = -0.02", "Is this rounded to one digit?"),
            ("what is said", "above_E = -0.0167", "or over what is said?"),
            ("near", "above_E = -0.017", "Near. Is it over what the run had"),
            ("what is said, and no sign", "above_E = 0.0167", "This is over what is said, and had"),
            ("nats", "above_E = -0.0191", "a difference in nats"),
            ("by all", "times_tokens = 1.32", "This is by the law of all runs"),
            ("by all, rounded", "times_tokens = 1.3", "This is by the law of all runs"),
            ("up to 2.1e10", "times_tokens = 1.25", "This is by the sweep up to 2.1e10"),
            (
                "inverse",
                "times_tokens = 1.07",
                "The other way round: this law says too low a loss for",
            ),
            ("tokens", "times_tokens = 2.23e+05", "So many tokens"),
            ("the difference", "times_tokens = -0.0656", "By this fraction more or fewer"),
            (
                "in proportion to the excess",
                "times_tokens = 0.984",
                "By so much the excess is off, but the second term",
            ),
            ("by all", "times_compute = 0.365", "This is by the law of all runs"),
            ("by all, by 6 N D", "times_compute = 0.358", "This is by the law of all runs"),
            ("by all, rounded", "times_compute = 0.36", "This is by the law of all runs"),
            ("up to 2.1e10", "times_compute = 0.803", "This is by the sweep up to 2.1e10"),
            (
                "inverse",
                "times_compute = 3.07",
                "The other way round: how many times the compute of HELD?",
            ),
            ("FLOPs", "times_compute = 4.75e+11", "So many FLOPs"),
            (
                "of what is said",
                "times_compute = 0.369",
                "This is for the loss that the law says HELD has",
            ),
            ("the same N", "times_compute = 0.934", "This is with the same N"),
            ("the same N, by 6 N D", "times_compute = 0.951", "This is with the same N"),
        ),
    ],
}

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
