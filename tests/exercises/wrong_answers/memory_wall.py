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
        Wrong("FP32 gradients", "state_bytes = 13e9 * 18\ndevices = 3", "16-bit weights and grad"),
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
            "gradients are in 16 bits and the master weights in 32",
        ),
        Wrong(
            "activations are model state",
            'missing = {"activations": 40e9, "gradients": 40e9}',
            "which of the five names has no line",
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
        Wrong("no scores", "return 34 * batch * sequence * hidden", "probabilities are missing"),
        Wrong("output alone", "return 2 * batch * sequence * hidden", "output of the layer alone"),
        Wrong(
            "attention and FFN outputs alone",
            "return batch * sequence * hidden * 4 * 2 + batch * sequence * 4 * hidden * 2",
            "more than their outputs",
        ),
        Wrong(
            "one head",
            "return 34 * batch * sequence * hidden + 5 * batch * sequence**2",
            "Every head has its own",
        ),
        Wrong(
            "d squared for an activation",
            "return 34 * batch * hidden**2 + 5 * batch * heads * sequence**2",
            "size of a weight matrix",
        ),
        Wrong(
            "two norms as one",
            "norms = 2 * stream",
            "Write a term for each tensor of the list",
            find="norms = 2 * 2 * stream",
        ),
        Wrong("probabilities as masks", "(1 + 1 + 1)", "one byte an element", find="(2 + 1 + 2)"),
        Wrong("masks of two bytes", "(2 + 2 + 2)", "one byte an element", find="(2 + 1 + 2)"),
        Wrong(
            "scores of one sequence",
            "* heads * sequence**2",
            "Each sequence of the batch",
            find="* batch * heads * sequence**2",
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
        ("dollars alone", "return 1415571.28", "A list of 2 is wanted"),
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
