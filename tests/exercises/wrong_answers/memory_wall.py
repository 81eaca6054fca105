"""Wrong answers to the exercises of memory_wall."""

from tests.exercises.wrong_answers import Wrong, in_place_of

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
            "neither gradients nor master weights",
        ),
        Wrong("weights alone", "state_bytes = 26e9\ndevices = 1", "not to train it"),
        Wrong("moments alone", "state_bytes = 104e9\ndevices = 2", "Adam's two moments alone"),
        Wrong("GB for bytes", "state_bytes = 208\ndevices = 3", "not in GB"),
        Wrong("GiB for bytes", "state_bytes = 208e9 / 2**30\ndevices = 3", "not in GiB"),
        Wrong(
            "FP32 gradients", "state_bytes = 13e9 * 18\ndevices = 3", "gradients are counted in 32"
        ),
        Wrong("both gradients", "state_bytes = 13e9 * 20\ndevices = 4", "counted twice"),
        Wrong("moments in 16 bits", "state_bytes = 13e9 * 12.5\ndevices = 3", "16-bit weights and"),
        Wrong("rounded down", "state_bytes = 208e9\ndevices = 208 // 80", "round up"),
        Wrong("part of a device", "state_bytes = 208e9\ndevices = 208 / 80", "come whole"),
        Wrong("room for comfort", "state_bytes = 208e9\ndevices = 4", "question is for the least"),
    ],
    "forgotten": [
        Wrong("gradients alone", 'missing = {"gradients": 40e9}', "something more"),
        Wrong("master weights alone", 'missing = {"master weights": 80e9}', "something more"),
        Wrong(
            "gradients in 32 bits",
            'missing = {"gradients": 80e9, "master weights": 80e9}',
            "the gradients are in 16 bits",
        ),
        Wrong(
            "master weights in 16 bits",
            'missing = {"gradients": 40e9, "master weights": 40e9}',
            "they are kept in 32",
        ),
        Wrong(
            "activations are model state",
            'missing = {"activations": 40e9, "gradients": 40e9}',
            "'activations' is none of the five names",
        ),
        Wrong(
            "names of its own",
            'missing = {"gradient": 40e9, "master": 80e9}',
            "Use them exactly as they are written",
        ),
        Wrong(
            "a name with a line",
            'missing = {"weights": 40e9, "gradients": 40e9, "master weights": 80e9}',
            "which of the five names have no line",
        ),
        Wrong(
            "swapped bytes",
            'missing = {"gradients": 80e9, "master weights": 40e9}',
            "One of the two is in 16 bits",
        ),
        Wrong("GB for bytes", 'missing = {"gradients": 40, "master weights": 80}', "not GB"),
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
        Wrong("both slips", "return memory_gib * 10**9 - 12 * parameters", "Two slips: 24 GiB are"),
        Wrong(
            "the name of the model for its size",
            "return memory_gib * 2**30 - 16 * 1_500_000_000",
            "1.5 billion is a name",
        ),
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
            ("a second copy", "scores = 2 * batch * heads * sequence**2", "one copy of the prob"),
            (
                "scores of one sequence",
                "scores = heads * sequence**2",
                "Each sequence of the batch",
            ),
            ("scores of shared heads", "scores = batch * kv_heads * sequence**2", "Every head of"),
            (
                "a ratio of scores to width",
                "scores = 64 * stream",
                "no ratio of widths is fixed",
            ),
        ),
        *in_place_of(
            "4 * wide",
            ("two wide tensors", "2 * wide", "kept by a plain network"),
            ("one factor of the product", "3 * wide", "A wide tensor is missing"),
        ),
        Wrong(
            "two norms as one",
            "norms = stream",
            "as wide as the stream is missing",
            "norms = 2 * stream",
        ),
        Wrong("masks of dropout", "norms = 3 * stream", "nothing has a mask", "norms = 2 * stream"),
        *in_place_of(
            "stream + stream + 2 * narrow",
            ("an input for each product", "4 * stream + 2 * narrow", "keep it once"),
            ("one for keys and values", "stream + stream + narrow", "Keys and values are two"),
        ),
        Wrong(
            "numbers for bytes",
            "return norms + attention + network + scores",
            "In 16 bits each takes two bytes",
            "return 2 * (norms + attention + network + scores)",
        ),
    ],
    "longest": [
        Wrong("stored probabilities", "", "pass flash=True", find=", flash=True"),
        Wrong("dropout masks", "", "pass dropout=False", find=", dropout=False"),
        Wrong("neither said", "", "and dropout masks as well", find=", flash=True, dropout=False"),
        Wrong(
            "one layer",
            "dropout=False).per_layer",
            "All layers keep",
            find="dropout=False)",
        ),
        Wrong("GiB for GB", "<= free_bytes / 1e9 * 2**30:", "not 40 GiB", find="<= free_bytes:"),
        Wrong("one step too far", "return tokens + 128", "One step too far", find="return tokens"),
        Wrong(
            "any length",
            "tokens = 0\nwhile activations(replace(spec, sequence=tokens + 1), batch=1, flash=True, "
            "dropout=False) <= free_bytes:\n    tokens += 1\nreturn tokens",
            "a multiple of 128 is wanted",
        ),
        Wrong(
            "a search with an end",
            "while tokens < 8192 and kept",
            "let the memory end the search",
            find="while kept",
        ),
        Wrong("at least 128", "tokens = 128", "the answer is 0", find="tokens = 0"),
        Wrong(
            "full recomputation",
            'flash=True, recompute="full"',
            "only attention is to be changed",
            find="flash=True",
        ),
    ],
    "fit": [
        Wrong("nothing divided", 'design = {"zero_stage": 0, "recompute": "full"}', "not fit"),
        Wrong(
            "selective alone will do",
            'design = {"zero_stage": 1, "recompute": "selective"}',
            "not fit",
        ),
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
            "full recomputation for nothing",
            'design = {"zero_stage": 2, "recompute": "full"}',
            "repeats a third of all work",
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
            "device-days for days",
            "return devices * seconds / 86400,",
            "These are device-days",
            "return seconds / 86400,",
        ),
        Wrong(
            "price of a day",
            "return seconds / 86400, devices * seconds / 86400 * dollars_per_hour",
            "The price is for an hour",
            "return seconds / 86400, devices * seconds / 3600 * dollars_per_hour",
        ),
        Wrong(
            "rounded",
            "return round(seconds / 86400, 2), round(devices * seconds / 3600 * dollars_per_hour, 2)",
            "return the numbers as they are",
            "return seconds / 86400, devices * seconds / 3600 * dollars_per_hour",
        ),
        Wrong(
            "an assert for a refusal",
            "assert utilization <= 1\n    if False:",
            "A refusal is a ValueError here, and this came: AssertionError",
            "if utilization > 1:",
        ),
        Wrong("hours for days", "seconds / 3600, devices", "in hours", "seconds / 86400, devices"),
        *in_place_of(
            "if utilization > 1:",
            ("more than the peak", "if utilization > 2:", "raise a ValueError"),
            ("the peak refused", "if utilization >= 1:", "is the limit"),
        ),
    ],
    "frozen": [
        Wrong(
            "freezing frees nothing",
            'predicted = {"weights": 882176, "gradients": 882176, "moments": 1764352}',
            "gets no gradient",
        ),
        Wrong(
            "frozen weights are gone",
            'predicted = {"weights": 816640, "gradients": 816640, "moments": 1633280}',
            "Frozen weights still exist",
        ),
        Wrong(
            "frozen gradients stay",
            'predicted = {"weights": 882176, "gradients": 882176, "moments": 1633280}',
            "has no gradient either",
        ),
        Wrong("one moment", '"moments": 4 *', "Adam keeps two moments", '"moments": 8 *'),
        Wrong(
            "embedding counted twice",
            '{"weights": 4 * (P + frozen)',
            "it is counted once",
            '{"weights": 4 * P',
        ),
        Wrong("frozen twice", "2 * 256 * 64", "away, once", "256 * 64"),
        Wrong(
            "rounded",
            'predicted = {"weights": 0.88e6, "gradients": 0.82e6, "moments": 1.6e6}',
            "Right, but rounded: give every byte",
        ),
        Wrong(
            "moments of all weights",
            'predicted = {"weights": 882176, "gradients": 816640, "moments": 1764352}',
            "which bucket is another number",
        ),
        Wrong(
            "16-bit weights",
            'predicted = {"weights": 2 * 220544, "gradients": 2 * 204160, "moments": 8 * 204160}',
            "4 bytes a number",
        ),
    ],
}


# Answers of another structure: what came, its source, words of the sentence, what of the solution it replaces.
OTHERWISE: dict[str, list[tuple[str, ...]]] = {
    "state": [
        ("a number in a list", "state_bytes = [208e9]", "inside brackets: take them off"),
        ("text", 'state_bytes = "208e9"', "write it without quotes"),
        ("several", "state_bytes = (26e9, 26e9, 156e9)", "a list of 3 came: which of them"),
        ("a function", "state_bytes = lambda: 208e9", "is of type function"),
    ],
    "forgotten": [
        ("names alone", 'missing = ["gradients"]', "should be a dictionary with texts as keys"),
        ("pairs", 'missing = [("gradients", 4e10)]', "it is a list of 1"),
        ("text", 'missing = "gradients"', "it is the text 'gradients'"),
        ("texts for bytes", 'missing = {"gradients": "40e9"}', "['gradients'] is the text"),
    ],
    "free": [
        ("text", "return '848024576'", "write it without quotes"),
        ("a pair", "return 24 * 2**30, 848024576", "a list of 2 came"),
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
        ("a key too few", 'predicted = {"weights": 1, "moments": 2}', "['weights', 'moments']"),
    ],
}  # fmt: skip

# The programs that are asked for, by question.
PROGRAMS = {}

# Right answers of another kind: what came, its source, what of the solution it replaces.
RIGHT = {"state": [("rounded", "state_bytes = 2.1e11\ndevices = 3")]}
