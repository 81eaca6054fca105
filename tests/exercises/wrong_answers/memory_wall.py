"""Wrong answers to the exercises of memory_wall."""

from tests.exercises.wrong_answers import Wrong, in_place_of

PEAKS = (
    "P, k = 220_544, 154_176\n"
    'predicted_peaks = {{"A": 6 * P + 16 * k, "B": 14 * P + 16 * k, "C": {}, "D": {}, "E": {}, '
    '"F": {}}}'
)
ALIVE = 'predicted_alive = {{"A": {}, "B": {}, "C": {}, "D": {}, "E": {}, "F": {}, "G": {}}}'
FROZEN_LAYERS = '"layer 0": 0, "layer 1": 1 + 4, "layer 2": 10, "layer 3": 10'

BANK = {
    "state": [
        Wrong(
            "forgotten master weights",
            "state_bytes = 13e9 * 12\ndevices = 2",
            "the master weights are forgotten",
        ),
        Wrong(
            "no gradients either",
            "state_bytes = 13e9 * (2 + 8)\ndevices = 2",
            "the proposal's own sum",
        ),
        Wrong("GB for bytes", "state_bytes = 208\ndevices = 3", "not in GB"),
        Wrong(
            "moments in 16 bits",
            "state_bytes = 13e9 * 12.5\ndevices = 3",
            "which copies have no line",
        ),
        Wrong(
            "12 bytes a parameter",
            "state = 12 * parameters",
            "All that the recipe keeps of each parameter, divided by the",
            "state = 16 * parameters",
        ),
    ],
    "free": [
        Wrong("GB for GiB", "return memory_gib * 10**9 - 16 * parameters", "taken for 24 GB"),
        Wrong(
            "forgotten master weights",
            "return memory_gib * 2**30 - 12 * parameters",
            "16 bytes per parameter, not 12",
        ),
        Wrong("weights alone", "return memory_gib * 2**30 - 2 * parameters", "Only the weights"),
        Wrong("GB for bytes", "return (memory_gib * 2**30 - 16 * parameters) / 1e9", "is in GB"),
        Wrong("rounded GB for bytes", "return 0.85", "in GB, and rounded"),
        Wrong("GiB for bytes", "return memory_gib - 16 * parameters / 2**30", "is in GiB"),
        Wrong(
            "no lack below zero",
            "return max(0, memory_gib * 2**30 - 16 * parameters)",
            "wanted as a negative number",
        ),
        Wrong(
            "printed and not returned",
            "print(memory_gib * 2**30 - 16 * parameters)",
            "without `return`",
        ),
    ],
    "peaks": [
        Wrong(
            "every peak is where the passes meet",
            PEAKS.format("6 * P + 4 * k", "14 * P + 4 * k", "14 * P + 2 * k", "14 * P + 2 * k"),
            "With 4 the activations are much less",
        ),
        Wrong(
            "every bucket at once",
            "P, k = 220_544, 154_176\npredicted_peaks = {r: 16 * P + n * k "
            "for r, n in zip('ABCDEF', (16, 16, 4, 4, 2, 2))}",
            "Which buckets are still empty",
        ),
        *in_place_of(
            '"A": 6 * P',
            ("no master weights", '"A": 2 * P', "which copies of them exist"),
        ),
        *in_place_of(
            '"B": 14 * P',
            ("gradients in the forward pass", '"B": 16 * P', "Which bucket is still empty then?"),
            ("no averages", '"B": 6 * P', "and they stay"),
        ),
        *in_place_of(
            '"C": full',
            ("updated with activations", '"C": full + 4 * kept', "never meet"),
        ),
        *in_place_of(
            '"D": 14 * P + 4 * kept',
            ("all of both", '"D": full + 4 * kept', "Nothing is accumulated here"),
            ("gradients alone", '"D": full', "Compare two moments"),
        ),
        Wrong(
            "one sequence alone",
            "before + kept",
            "Compare two moments",
            "before + sequences * kept",
        ),
        Wrong(
            "with activations alone",
            "return before + sequences * kept",
            "Compare two moments",
            "return max(before + sequences * kept, 16 * parameters)",
        ),
    ],
    "alive": [
        Wrong("every list grows", ALIVE.format(4, 4, 4, 1, 1, 4, 1), "But what has the backward"),
        Wrong("a sum grows", ALIVE.format(1, 4, 4, 1, 1, 4, 1), "an addition keeps nothing"),
        Wrong("a sum holds one", ALIVE.format(1, 1, 1, 1, 1, 4, 1), "No backward pass runs within"),
        Wrong("a sum and its last", ALIVE.format(1, 1, 5, 2, 3, 4, 2), "How many are there?"),
        Wrong("a score is no more", ALIVE.format(1, 1, 4, 1, 2, 4, 1), "let go of before the next"),
        Wrong("training and score", ALIVE.format(1, 1, 4, 3, 3, 5, 2), "is gone when its backward"),
        Wrong(
            "two passes at once", ALIVE.format(1, 1, 4, 2, 2, 4, 2), "what does the name `score`"
        ),
        Wrong("none at the end", ALIVE.format(0, 0, 4, 1, 1, 4, 1), "at least one forward pass"),
        Wrong(
            "a score for every round",
            '"D": rounds * size',
            "What grows with the rounds, and what is made of `held_out`",
            '"D": 2 * size',
        ),
    ],
    "layer": [
        Wrong("no scores", "", "probabilities are missing", find=" + scores"),
        Wrong("keys as wide as queries", "", "have kv_heads heads", find=" * kv_heads // heads"),
        Wrong(
            "the layer of GPT-2",
            "return batch * sequence * (34 * hidden + 5 * heads * sequence)",
            "This is the layer of GPT-2",
        ),
        Wrong(
            "a ratio of heads to width learned by heart",
            "return 114 * batch * sequence * hidden",
            "Write a term for each tensor",
        ),
        Wrong(
            "the sum of another model",
            "return int(batch * sequence * (37.5 * hidden + 2 * heads * sequence))",
            "for the shape of Llama 2 7B alone",
        ),
        Wrong(
            "this model's sum for all",
            "return batch * sequence * (41 * hidden + 2 * heads * sequence)",
            "no ratio of widths is fixed",
        ),
        *in_place_of(
            "scores = batch * heads * sequence**2",
            (
                "a mask and a second copy",
                "scores = 5 * batch * heads * sequence**2 // 2",
                "neither a mask of the probabilities nor",
            ),
            (
                "scores of one sequence",
                "scores = heads * sequence**2",
                "Each sequence of the batch",
            ),
        ),
    ],
    "fit": [
        Wrong("nothing divided", 'design = {"zero_stage": 0, "recompute": "full"}', "not fit"),
        Wrong(
            "divide everything",
            'design = {"zero_stage": 3, "recompute": "none"}',
            "stage 3 sends half as much again",
        ),
        Wrong(
            "recompute everything",
            'design = {"zero_stage": 1, "recompute": "full"}',
            "repeats a third of all work",
        ),
        Wrong(
            "everything at once",
            'design = {"zero_stage": 3, "recompute": "full"}',
            "you pay for the room",
        ),
        Wrong(
            "smallest of the nearly right",
            'design = {"zero_stage": 3, "recompute": "selective"}',
            "Can the state be divided less",
        ),
        Wrong(
            "the fastest of all",
            "return min(all_designs, key=step_seconds)",
            "Of the twelve designs, keep those that leave so much of 80",
            "return min(fit, key=step_seconds)",
        ),
    ],
    "cost": [
        Wrong(
            "forward pass alone", "2 * parameters", "backward pass takes 4 more", "6 * parameters"
        ),
        Wrong(
            "price of one device",
            "seconds / 3600 * dollars",
            "All 1,000 are rented",
            "devices * seconds / 3600 * dollars",
        ),
        *in_place_of(
            "(devices * peak_flops * utilization)",
            ("at the peak", "(devices * peak_flops)", "runs at the peak"),
            (
                "multiplied by the utilization",
                "(devices * peak_flops) * utilization",
                "not multiplied",
            ),
            ("devices one after another", "(peak_flops * utilization)", "work at the same time"),
        ),
        Wrong(
            "an assert for a refusal",
            "assert utilization <= 1\n    if False:",
            "A refusal is a ValueError here, and this came: AssertionError",
            "if utilization > 1:",
        ),
        *in_place_of(
            "if utilization > 1:",
            ("more than the peak", "if utilization > 2:", "raise a ValueError"),
            ("the peak refused", "if utilization >= 1:", "is the limit"),
        ),
    ],
    "frozen": [
        Wrong(
            "all activations stay",
            '"layer 0": 16, "layer 1": 16, "layer 2": 16, "layer 3": 16',
            "how far down does it have to go?",
            FROZEN_LAYERS,
        ),
        Wrong(
            "frozen layers keep nothing",
            '"layer 0": 0, "layer 1": 16, "layer 2": 0, "layer 3": 0',
            "where in this layer does the backward pass end?",
            FROZEN_LAYERS,
        ),
        *in_place_of(
            '"layer 1": 1 + 4',
            ("its input alone", '"layer 1": 1', "needs its input?"),
        ),
        *in_place_of(
            '"layer 2": 10',
            ("a whole layer above", '"layer 2": 16', "For which of a product's two gradients"),
            ("what FlashAttention made", '"layer 2": 9', "what the last works from"),
        ),
        *in_place_of(
            '"layer 3": 10',
            ("the last keeps none", '"layer 3": 0', "Is anything different here"),
        ),
        Wrong("frozen weights are gone", "4 * 256 * 64,", "still exist", "4 * 220_544,"),
        Wrong("one moment", '"moments": 4 *', "Adam keeps two moments", '"moments": 8 *'),
        Wrong(
            "the layers below keep as well",
            "above = layers - 1",
            "Which parameters have which bucket",
            "above = layers - trained - 1",
        ),
        Wrong(
            "moments of all",
            "8 * parameters]",
            "Which parameters have which bucket",
            "8 * trained_numbers]",
        ),
    ],
}

# The wrong values that the sealed hints of a check are for, in their order.
SEALED = {
    "state": {
        "state_bytes": [1.56e11, 1.3e11, 2.6e10, 1.04e11, 208, 194, 2.34e11, 2.6e11, 1.82e11],
        "devices": [2, 2.6, 4],
    },
}  # fmt: skip


# Answers of another structure: what came, its source, words of the sentence, what of the solution it replaces.
OTHERWISE: dict[str, list[tuple[str, ...]]] = {
    "state": [
        ("a number in a list", "state_bytes = [208e9]", "inside brackets: take them off"),
        ("text", 'state_bytes = "208e9"', "write it without quotes"),
        ("several", "state_bytes = (26e9, 26e9, 156e9)", "a list of 3 came: which of them"),
        ("a function", "state_bytes = lambda: 208e9", "is of type function"),
    ],
    "free": [
        ("text", "return '848024576'", "write it without quotes"),
        ("a pair", "return 24 * 2**30, 848024576", "a list of 2 came"),
    ],
    "peaks": [
        ("a list", "predicted_peaks = [3.8e6, 5.6e6]", "The prediction should be a dictionary"),
        ("MB as text", 'predicted_peaks = dict.fromkeys("ABCDEF", "3.5 MB")', "['A'] is the text"),
        ("a run too few", 'predicted_peaks = dict.fromkeys("ABCDE", 3.5e6)', "'E', 'F'"),
    ],
    "alive": [
        ("a number", "predicted_alive = 4", "it is the number 4"),
        ("a list", "predicted_alive = [1, 1, 4, 2, 3, 4, 2]", "it is a list of 7"),
        ("one is open", 'predicted_alive = {**dict.fromkeys("ABCDEF", 1), "G": ...}', "Not answered yet"),
    ],
    "fit": [
        ("a list", 'design = [1, "selective"]', "a dictionary with the keys 'zero_stage'"),
        ("another key", 'design = {"zero": 1, "recompute": "none"}', "the keys ['zero'"),
        ("a text", 'design = {"zero_stage": "1", "recompute": "none"}', "take one of 0, 1, 2"),
    ],
    "cost": [
        ("dollars alone", "return 1415571.28", "Return both: days, dollars"),
        ("by name", 'return {"days": 19.66, "dollars": 1415571.28}', "give its values alone"),
    ],
    "frozen": [
        ("a list", "predicted = [1, 2, 3]", "should be a dictionary with the keys 'weights'"),
        ("a key too few", 'predicted = {"weights": 1, "moments": 2}', "The prediction should be"),
    ],
}  # fmt: skip

# The programs that are asked for, by question.
PROGRAMS = {}

# Right answers of another kind: what came, its source, what of the solution it replaces.
RIGHT = {
    "state": [("rounded", "state_bytes = 2.1e11\ndevices = 3")],
    "peaks": [
        (
            "rounded",
            'predicted_peaks = {"A": 3.8e6, "B": 5.55e6, "C": 3.5e6, "D": 3.7e6, "E": 3.8e6, "F": 3.5e6}',
        )
    ],
    "alive": [("in fractions", ALIVE.format(1.0, 1.0, 4.0, 2.0, 3.0, 4.0, 2.0))],
}
