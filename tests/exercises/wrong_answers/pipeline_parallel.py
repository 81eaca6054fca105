"""Wrong answers to the exercises of pipeline_parallel."""

from tests.exercises.wrong_answers import Wrong, in_place_of

BUBBLE = "of_all_time = {}\nof_time_worked = {}\nmicro_batches = {}"
STEP = "step_ms = {}\nspeedup = {}\ndelays_ms = [30, 140]"
DELAYS = "step_ms = 3800\nspeedup = 64 / 19\ndelays_ms = {}"
PICTURE = "slow_rank = {}\nwaits_for = {}\nmoved_ms = [20, 22, 26]\nbalanced_ms = {}"
MOVED = 'slow_rank = 2\nwaits_for = ("F", 2, 2)\nmoved_ms = {}\nbalanced_ms = 20'
TAIL = "predicted_ms = {}\npredicted_held = {}"
DESIGN = (
    'never_fits = "{}"\nstate_gb = 70\ndesign = {{"schedule": "{}", "stages": {}, "sequences": {}}}'
)
IN_TURN = """
ahead = {}
order = [("F", k) for k in range(ahead)]
for k in {}:
    order.append({})
    if k + ahead < micro_batches:
        order.append(("F", k + ahead))
return order
"""
AHEAD, EACH, NEXT = "min(stages - stage, micro_batches, most)", "range(micro_batches)", '("B", k)'
SHARE = "len(x) / rows * (x.T @ grads[k])"
ERROR = "(y - targets[part]) / rows"
FIRST_OUT = "x = saved.pop(k)"
POSTED_EARLY = """
first, last = comm.rank == 0, comm.rank == comm.size - 1
each = rows // micro_batches
parts = [slice(k * each, (k + 1) * each) for k in range(micro_batches)]
from_left = [] if first else [
    comm.irecv(torch.empty(each, len(weight)), comm.rank - 1) for _ in parts]
from_right = [] if last else [
    comm.irecv(torch.empty(each, weight.shape[1]), comm.rank + 1) for _ in parts]
total, sending, xs = torch.zeros_like(weight), [], []


def backward(k, g):
    total.add_(xs[k].T @ g)
    if not first:
        sending.append(comm.isend(g @ weight.T, comm.rank - 1))


for k, part in enumerate(parts):
    xs.append(inputs[part] if first else from_left[k].wait())
    y = xs[k] @ weight
    if last:
        backward(k, (y - targets[part]) / rows)
    else:
        sending.append(comm.isend(y, comm.rank + 1))
for k, coming in enumerate(from_right):
    backward(k, coming.wait())
for handle in sending:
    handle.wait()
return total
"""
RECEIVED_LATE = """
first, last = comm.rank == 0, comm.rank == comm.size - 1
each = rows // micro_batches
total, sending, xs, ys = torch.zeros_like(weight), [], [], []
for k in range(micro_batches):
    x = inputs[k * each:(k + 1) * each] if first else comm.recv(
        torch.empty(each, len(weight)), comm.rank - 1)
    xs.append(x)
    ys.append(x @ weight)
    if not last:
        sending.append(comm.isend(ys[k], comm.rank + 1))
for k in range(micro_batches):
    g = (ys[k] - targets[k * each:(k + 1) * each]) / rows if last else comm.recv(
        torch.empty_like(ys[k]), comm.rank + 1)
    total += xs[k].T @ g
    if not first:
        sending.append(comm.isend(g @ weight.T, comm.rank - 1))
for handle in sending:
    handle.wait()
return total
"""


BANK = {
    "bubble": [
        Wrong(
            "one convention for both", BUBBLE.format(0.25, 0.25, 120), "share of the time worked"
        ),
        Wrong("all time for both", BUBBLE.format(0.2, 0.2, 120), "Leave the bubble out"),
        Wrong("micro-batches of the same size", BUBBLE.format(0.2, 0.25, 240), "keeps the size"),
        Wrong("the cube root of four times", BUBBLE.format(0.2, 0.25, 95.2), "costs as much as"),
        Wrong(
            "idle for p",
            "idle = stages",
            "A rank works for m micro-batches, and is idle for the time",
            "idle = stages - 1",
        ),
    ],
    "step": [
        Wrong("the longer pass alone", STEP.format(19 * 130, 5.2), "a rank does both"),
        Wrong("four times as fast", STEP.format(3800, 4), "without a bubble"),
        Wrong("GPipe's delay for both", DELAYS.format([30, 30]), "That holds for GPipe"),
        Wrong("a round too few", DELAYS.format([30, 110]), "Price both plans"),
        Wrong(
            "an all-reduce in each pass",
            "2 * all_reduce",
            "A rank works for m micro-batches and is idle for p - 1",
            "4 * all_reduce",
        ),
    ],
    "picture": [
        Wrong("who waits", PICTURE.format(3, ("F", 2, 2), 20), "Whom does it wait for"),
        Wrong("what runs next", PICTURE.format(2, ("F", 3, 2), 20), "what it runs next"),
        Wrong("the place does not matter", MOVED.format([24] * 3), "where the slow machine is"),
        Wrong("one way alone", MOVED.format([20, 21, 23]), "wherever it is"),
        Wrong(
            "it begins at once",
            "+ ahead",
            "The slow rank never waits once it has begun",
            "+ 2 * ahead",
        ),
    ],
    "order": [
        Wrong(
            "GPipe",
            'return [(kind, k) for kind in "FB" for k in range(micro_batches)]',
            "It runs, but it is GPipe",
        ),
        *(
            Wrong(misconception, IN_TURN.format(*answer), hint)
            for misconception, answer, hint in (
                (
                    "holds one more than fit",
                    (AHEAD + " + (most == 4 and stage == 0 and micro_batches > 4)", EACH, NEXT),
                    "at most 4 are allowed",
                ),
                ("1F1B from fewer forward passes", (AHEAD, EACH, NEXT), "strictly in turn. Draw"),
                (
                    "fewer forward passes on later stages",
                    (
                        "min(micro_batches, -(-(stages - stage) * min(most, stages) // stages))",
                        EACH,
                        NEXT,
                    ),
                    "The later stages hold fewer now",
                ),
                (
                    "the last stage begins with the most",
                    ("min(stage + 1, micro_batches, most)", EACH, NEXT),
                    "The ranks wait for each other",
                ),
                (
                    "a forward pass too few",
                    ("max(1, min(stages - stage - 1, micro_batches, most))", EACH, NEXT),
                    "stage s should hold",
                ),
                (
                    "more forward passes than micro-batches",
                    ("min(stages - stage, most)", EACH, NEXT),
                    "never begin with more than `micro_batches`",
                ),
                (
                    "no limit",
                    ("min(stages - stage, micro_batches)", EACH, NEXT),
                    "at most 2 micro-batches fit",
                ),
            )
        ),
    ],
    "fault": [
        *in_place_of(
            "[2, 3, 1, 0]",
            ("as it should be", "[0, 1, 2, 3]", "takes what was saved last"),
        ),
        *in_place_of(
            FIRST_OUT,
            (
                "not repaired",
                "x = saved.pop(max(saved, key=list(saved).index))\n            grads[k] = grads[k] * rows / len(x)",
                "Nothing is repaired yet",
            ),
        ),
        *in_place_of(
            SHARE,
            (
                "the rows of the first micro-batch for all",
                "len(inputs[0]) / rows * (x.T @ grads[k])",
                "weighs four times as much",
            ),
            (
                "divided by the number of micro-batches",
                "(x.T @ grads[k]) / len(inputs)",
                "weigh the same now",
            ),
        ),
    ],
    "stages": [
        *in_place_of(
            ERROR,
            ("not divided", "(y - targets[part])", "divided by the rows of the whole"),
            (
                "divided by the rows of a micro-batch",
                "(y - targets[part]) / each",
                "not of the micro-batch",
            ),
        ),
        Wrong(
            "own gradient passed back",
            "comm.isend(g @ torch.ones_like(weight).T",
            "look at what it sends back",
            "comm.isend(g @ weight.T",
        ),
        Wrong(
            "whole batch at once",
            "micro_batches, each = 1, rows",
            "The batch was not cut",
            "each = rows // micro_batches",
        ),
        Wrong(
            "sends that wait",
            "comm.send(y, comm.rank + 1)",
            "could travel at the same time",
            "sending.append(comm.isend(y, comm.rank + 1))",
        ),
        Wrong("receives where they are needed", RECEIVED_LATE, "both sides are ready"),
        Wrong(
            "whole batch in one message, and empty ones",
            """
            first, last = comm.rank == 0, comm.rank == comm.size - 1
            empty = [torch.empty(0) for _ in range(micro_batches - 1)]

            def get(columns, src):
                whole = comm.recv(torch.empty(rows, columns), src)
                for each in empty:
                    comm.recv(each, src)
                return whole

            def put(tensor, dst):
                return [comm.isend(each, dst) for each in (tensor, *empty)]

            x = inputs if first else get(len(weight), comm.rank - 1)
            y = x @ weight
            sending = [] if last else put(y, comm.rank + 1)
            g = (y - targets) / rows if last else get(len(y[0]), comm.rank + 1)
            sending += [] if first else put(g @ weight.T, comm.rank - 1)
            for handle in sending:
                handle.wait()
            return x.T @ g
            """,
            "one message for each micro-batch",
        ),
        Wrong(
            "1F1B with sends that wait",
            """
            first, last = comm.rank == 0, comm.rank == comm.size - 1
            each = rows // micro_batches
            ahead = min(micro_batches, comm.size - comm.rank)
            total, xs, ys = torch.zeros_like(weight), [], []
            for k in range(micro_batches + ahead):
                if k < micro_batches:
                    x = inputs[k * each:(k + 1) * each] if first else comm.recv(
                        torch.empty(each, len(weight)), comm.rank - 1)
                    xs.append(x)
                    ys.append(x @ weight)
                    if not last:
                        comm.send(ys[-1], comm.rank + 1)
                if k >= ahead - 1 and k - ahead + 1 < micro_batches:
                    b = k - ahead + 1
                    if last:
                        g = (ys[b] - targets[b * each:(b + 1) * each]) / rows
                    else:
                        g = comm.recv(torch.empty_like(ys[b]), comm.rank + 1)
                    total += xs[b].T @ g
                    if not first:
                        comm.send(g @ weight.T, comm.rank - 1)
            return total
            """,
            "Deadlock: ",
        ),
    ],
    "design": [
        Wrong("1F1B never fits", DESIGN.format("1f1b", "zero_bubble", 4, 2), "1/p of the layers"),
        Wrong("the fastest", DESIGN.format("gpipe", "zero_bubble", 2, 4), "It does not fit"),
        Wrong("1F1B", DESIGN.format("gpipe", "1f1b", 4, 2), "idles less"),
        Wrong("the most stages", DESIGN.format("gpipe", "zero_bubble", 8, 2), "a smaller bubble"),
        Wrong(
            "the smallest bubble",
            DESIGN.format("gpipe", "zero_bubble", 4, 1),
            "use the devices better",
        ),
        Wrong("interleaved", DESIGN.format("gpipe", "interleaved", 8, 2), "to use more stages"),
        *(
            Wrong(f"a state of {gb} GB", right.replace("70", gb), hint)
            for right in [DESIGN.format("gpipe", "zero_bubble", 4, 2)]
            for gb, hint in {
                "17.5": "divided by all 64 devices",
                "140": "there are two",
                "560": "Inside the node",
                "8.75": "the weights alone",
                "35": "with four stages",
                "70e9": "wanted in GB",
                "40": "divided by the devices of one pipeline",
            }.items()
        ),
        Wrong("one stage", DESIGN.format("gpipe", "zero_bubble", 1, 2), "take one of 2, 4, 8"),
        Wrong(
            "the shortest of all",
            "return min(all_designs, key=step_seconds)",
            "Of all designs, keep those that fit, and take the one with",
            "return min(fit, key=step_seconds)",
        ),
    ],
    "tail": [
        Wrong("1F1B shrinks the bubble", TAIL.format([27, 21, 21], [6, 4, 4]), "bubble of GPipe"),
        Wrong("no bubble left", TAIL.format([27, 27, 18], [6, 4, 4]), "Not quite without"),
        Wrong("1F1B holds all", TAIL.format([27, 27, 21], [6, 6, 6]), "and no more"),
        Wrong(
            "the trial's numbers", TAIL.format([18, 18, 14], [4, 3, 3]), "depend on the number of"
        ),
        Wrong(
            "no bubble is left",
            "3 * micro_batches",
            "The cell above prints the three for this pipeline",
            "3 * micro_batches + (stages - 1)",
        ),
    ],
}

# The wrong values that the sealed hints of a check are for, in their order; ... is one that
# nobody has found.
SEALED = {
    "bubble": {
        "of_all_time": [0.25, 0.213, 0.211, 0.8, 20, 0.333, 0.0625],
        "of_time_worked": [0.2, 0.267, 0.75, 4, 25],
        "micro_batches": [240, 60, 30, 15, 960, 480],
    },
    "step": {
        "step_ms": [2470, 3420, 3610, 3200, 4000, 1330, 15200, 12800, 800, 3.8],
        "speedup": [4, 0.842, 5.18, 0.297, 1.3],
        "delays_ms": [[30, 30], [140, 140], [140, 30], [30, 120], [15, 70], [15, 140], [480, 480], [40, 140], [0, 0]],
    },
    "picture": {
        "slow_rank": [3, 0, 1],
        "waits_for": [['F', 3, 2], ..., ['B', 2, 1], ..., ..., ...],
        "moved_ms": [[24, 24, 24], [26, 26, 26], [26, 24, 20], [26, 22, 20], [20, 20, 20], ..., [26, 28, 28], ...],
        "balanced_ms": [16, 32, 12.5, 24, 10, 22.5, 40],
    },
    "fault": {
        "used": [[0, 1, 2, 3], [2, 1, 0, 3], [3, 2, 1, 0], ...],
        '[gradient(repaired, "F0 F1 F2 B0 F3 B1 B2 B3", "4 4 4 4", 1), gradient(repaired, "F0 F1 F2 F3 B3 B2 B1 B0", "4 4 4 4", 3)]': [[[-141.0, 291.0, -82.0], [-60.0, 34.0, 150.0]], [[-35.2, 72.8, -20.5], [-15.0, 8.5, 37.5]], [[-139.0, 95.0, 107.0], [-60.0, 34.0, 150.0]], [[-34.8, 23.8, 26.8], [26.0, -45.5, 2.25]], [[-8.688, 5.938, 6.688], [-3.75, 2.125, 9.375]]],
        'gradient(repaired, "F0 F1 B0 F2 B1 F3 B2 B3", "8 4 2 2", 1)': [[-34.8, 23.8, 26.8], ..., ...],
    },
    "design": {
        "in_small_letters(never_fits)": ['1f1b', 'interleaved', 'zero_bubble'],
        "state_gb": [17.5, 140, 560, 8.75, 35, 7e10],
    },
    "tail": {
        "predicted_ms": [[27, 21, 21], ..., [27, 27, 18], [27, 27, 24], [27, 27, 27], [18, 18, 12], ...],
        "predicted_held": [[6, 6, 6], [6, 4, 6], [6, 4, 3], ..., ..., [6, 1, 1], [6, 4, 7], [[6, 6, 6, 6], [4, 3, 2, 1], [4, 4, 4, 4]]],
    },
}  # fmt: skip


# Answers of another structure: what came, its source, words of the sentence, what of the solution it replaces.
OTHERWISE: dict[str, list[tuple[str, ...]]] = {
    "bubble": [("text", 'of_all_time = "20 %"', "write it without quotes")],
    "step": [("a list", "step_ms = [3800]", "take them off")],
    "picture": [
        ("one number for three", "moved_ms = 22", "A list of 3 is wanted", "moved_ms = [20, 22, 26]"),
        ("text for a tuple", 'waits_for = "F2"', "A list of 3 is wanted", 'waits_for = ("F", 2, 2)'),
    ],
    "order": [
        ("words", 'return [f"F{k}" for k in range(micro_batches)]', "[0] is the text 'F0'"),
        ("by kind", 'return {"F": [0], "B": [0]}', "it is a dictionary"),
        ("a number", "return 3", "it is the number 3"),
        ("numbers in quotes", 'return [("F", "0")]', "[0][1] is the text '0'"),
        ("of another stage", "return [(kind, stage + 1, k) for kind, k in orders[stage]]", "its stage 4 is none of 0 to 3", "return orders[stage]"),
    ],
    "fault": [
        ("text", '"2, 3, 1, 0"', "A list of 4 is wanted", "[2, 3, 1, 0]"),
        ("a dictionary", "return {0: total}", "What the program returns should be a tensor", "return total"),
        ("a pair", "return total, rows", "it is a tuple of 2", "return total"),
    ],
    "stages": [("a pair", "return total, xs", "", "return total")],
    "design": [
        ("a list", 'never_fits = "gpipe"\nstate_gb = 70\ndesign = ["1f1b", 4, 2]', "it is a list of 3"),
        ("a list for text", 'never_fits = ["gpipe"]', "take them off"),
    ],
    "tail": [("one number", "predicted_ms = 27", "A list of 3 is wanted", "predicted_ms = [27, 27, 21]")],
}  # fmt: skip

# The programs that are asked for, by question.
PROGRAMS = {"order": "one_f_one_b_order", "fault": "repaired", "stages": "train_stage"}

# Right answers of another kind: what came, its source, what of the solution it replaces.
RIGHT = {
    "step": [("rounded", "step_ms = 3800\nspeedup = 3.4\ndelays_ms = [30, 140]")],
    "order": [
        (
            "later stages hold more",
            "(most if most < stages else stages - s)",
            "min(most, stages - s)",
        )
    ],
    "stages": [("in another way", POSTED_EARLY)],
    "design": [("in capitals", '"GPipe"', '"gpipe"')],
}
