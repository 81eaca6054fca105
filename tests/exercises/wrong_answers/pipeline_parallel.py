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
ONE_F_ONE_B = """
first, last = comm.rank == 0, comm.rank == comm.size - 1
each = rows // micro_batches
ahead = min(micro_batches, comm.size - comm.rank)
order = "F" * ahead + "BF" * (micro_batches - ahead) + "B" * ahead
parts = [slice(k * each, (k + 1) * each) for k in range(micro_batches)]
{}
todo, total, sending, held = iter(parts), torch.zeros_like(weight), [], []
for action in order:
    if action == "F":
        part = next(todo)
        x = inputs[part] if first else {}
        y = x @ weight
        held.append((x, (y - targets[part]) / rows if last else y))
        if not last:
            sending.append(comm.isend(y, comm.rank + 1))
    else:
        x, y = held.pop(0)
        g = y if last else {}
        total += x.T @ g
        if not first:
            sending.append(comm.isend(g @ weight.T, comm.rank - 1))
for handle in sending:
    handle.wait()
return total
"""
IN_TURN_LATE = ONE_F_ONE_B.format(
    "",
    "comm.recv(torch.empty(each, len(weight)), comm.rank - 1)",
    "comm.recv(torch.empty_like(y), comm.rank + 1)",
)
IN_TURN_EARLY = ONE_F_ONE_B.format(
    """
acts = [] if first else [
    comm.irecv(torch.empty(each, len(weight)), comm.rank - 1) for _ in parts]
backs = [] if last else [
    comm.irecv(torch.empty(each, weight.shape[1]), comm.rank + 1) for _ in parts]
""",
    "acts.pop(0).wait()",
    "backs.pop(0).wait()",
)


BANK = {
    "bubble": [
        Wrong(
            "one convention for both", BUBBLE.format(0.25, 0.25, 120), "share of the time worked"
        ),
        Wrong("conventions swapped", BUBBLE.format(0.25, 0.2, 120), "share of the time worked"),
        Wrong("all time for both", BUBBLE.format(0.2, 0.2, 120), "Leave the bubble out"),
        Wrong("p idle slots", BUBBLE.format("16 / 76", "16 / 60", 120), "it is p - 1, not p"),
        Wrong("p of m + p - 1", BUBBLE.format("16 / 75", "16 / 60", 120), "after 15 others"),
        Wrong("the busy share", BUBBLE.format(0.8, 0.25, 120), "This is the time worked"),
        Wrong("percent", BUBBLE.format(20, 25, 120), "wanted as a fraction"),
        Wrong("filling and draining apart", BUBBLE.format("30 / 90", 0.5, 120), "counted twice"),
        Wrong("micro-batches of the same size", BUBBLE.format(0.2, 0.25, 240), "keeps the size"),
        Wrong("as many as before", BUBBLE.format(0.2, 0.25, 60), "keeps the number"),
        Wrong("fewer", BUBBLE.format(0.2, 0.25, 30), "the bubble would weigh more"),
        Wrong("the square", BUBBLE.format(0.2, 0.25, 960), "smaller than they were"),
        Wrong("the cube root of four times", BUBBLE.format(0.2, 0.25, 95.2), "costs as much as"),
        Wrong("in between", BUBBLE.format(0.2, 0.25, 150), "costs as much as"),
    ],
    "step": [
        Wrong("the longer pass alone", STEP.format(19 * 130, 5.2), "a rank does both"),
        Wrong("no all-reduces", STEP.format(19 * 180, "64 / 19"), "all-reduces are missing"),
        Wrong("one all-reduce a pass", STEP.format(19 * 190, "64 / 19"), "not one"),
        Wrong("no bubble", STEP.format(16 * 200, 4), "step without a bubble"),
        Wrong("p more micro-batches", STEP.format(20 * 200, 3.2), "not after p"),
        Wrong("forward alone", STEP.format(19 * 70, "64 / 19"), "forward pass alone"),
        Wrong("nodes added up", STEP.format(76 * 200, "64 / 19"), "are not added up"),
        Wrong("four times as fast", STEP.format(3800, 4), "without a bubble"),
        Wrong(
            "the busy share", STEP.format(3800, "16 / 19"), "share of the time that a rank works"
        ),
        Wrong("upside down", STEP.format(3800, "19 / 64"), "Upside down"),
        Wrong("GPipe's delay for both", DELAYS.format([30, 30]), "That holds for GPipe"),
        Wrong("1F1B's delay for both", DELAYS.format([140, 140]), "That holds for 1F1B"),
        Wrong("delays swapped", DELAYS.format([140, 30]), "The two are swapped"),
        Wrong("no ends", DELAYS.format([30, 120]), "at its end something more"),
        Wrong("one direction", DELAYS.format([15, 70]), "gradients come back"),
        Wrong("one direction of GPipe", DELAYS.format([15, 140]), "waits in both directions"),
        Wrong("every message", DELAYS.format([480, 480]), "Most of them travel"),
        Wrong("p boundaries", DELAYS.format([40, 140]), "three boundaries"),
        Wrong("all hidden", DELAYS.format([0, 0]), "is not free"),
        Wrong("a round too few", DELAYS.format([30, 110]), "Price both plans"),
    ],
    "picture": [
        Wrong("who waits", PICTURE.format(3, ("F", 2, 2), 20), "Whom does it wait for"),
        Wrong("who ends last", PICTURE.format(0, ("F", 2, 2), 20), "ends last"),
        Wrong("what runs next", PICTURE.format(2, ("F", 3, 2), 20), "what it runs next"),
        Wrong(
            "gradients from the stage before",
            PICTURE.format(2, ("B", 2, 1), 20),
            "from rank 3 to rank 2",
        ),
        Wrong("the place does not matter", MOVED.format([24] * 3), "where the slow machine is"),
        Wrong("GPipe's step", MOVED.format([26] * 3), "GPipe would take that"),
        Wrong("waits for those behind", MOVED.format([26, 24, 20]), "The other way round"),
        Wrong("upside down", MOVED.format([26, 22, 20]), "The other way round"),
        Wrong("the slow work alone", MOVED.format([20] * 3), "the work of the slow rank alone"),
        Wrong("two slow ranks", MOVED.format([26, 28, 28]), "have changed places"),
        Wrong("one way alone", MOVED.format([20, 21, 23]), "wherever it is"),
        Wrong("slow work gone", PICTURE.format(2, ("F", 2, 2), 16), "does not vanish"),
        Wrong("all slow", PICTURE.format(2, ("F", 2, 2), 32), "as slow as the slowest"),
        Wrong("no bubble", PICTURE.format(2, ("F", 2, 2), 12.5), "without a bubble"),
        Wrong("no change", PICTURE.format(2, ("F", 2, 2), 24), "step as it is"),
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
                    "as many at first on every stage",
                    ("min(stages, micro_batches, most)", EACH, NEXT),
                    "the fewer forward passes it needs",
                ),
                (
                    "the last stage begins with the most",
                    ("min(stage + 1, micro_batches, most)", EACH, NEXT),
                    "The ranks wait for each other",
                ),
                (
                    "a forward pass too many",
                    ("min(stages - stage + 1, micro_batches, most)", EACH, NEXT),
                    "a backward pass comes next",
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
                (
                    "no backward passes at the end",
                    (AHEAD, "range(micro_batches - ahead)", NEXT),
                    "never runs B",
                ),
                (
                    "newest backward pass first",
                    (AHEAD, EACH, '("B", micro_batches - 1 - k)'),
                    "must come first",
                ),
            )
        ),
        Wrong(
            "in rounds of as many as fit",
            """
            order, most = [], min(most, stages)
            for begin in range(0, micro_batches, most):
                end = min(begin + most, micro_batches)
                ahead = min(stages - stage, end - begin)
                order += [("F", k) for k in range(begin, begin + ahead)]
                for k in range(begin, end):
                    order.append(("B", k))
                    if k + ahead < end:
                        order.append(("F", k + ahead))
            return order
            """,
            "no stage need wait for a whole round",
        ),
        Wrong(
            "a forward pass before each backward pass",
            """
            ahead = min(stages - stage, micro_batches, most)
            order = [("F", k) for k in range(ahead)]
            for k in range(micro_batches):
                if k + ahead < micro_batches:
                    order.append(("F", k + ahead))
                order.append(("B", k))
            return order
            """,
            "a backward pass comes next",
        ),
        Wrong(
            "one micro-batch at a time",
            'return [(kind, k) for k in range(micro_batches) for kind in "FB"]',
            "goes through the pipeline alone",
        ),
    ],
    "fault": [
        *in_place_of(
            "[2, 3, 1, 0]",
            ("as it should be", "[0, 1, 2, 3]", "takes what was saved last"),
            ("all forward first", "[3, 2, 1, 0]", "F3 has not run yet"),
            ("F3 forgotten", "[2, 1, 0, 3]", "puts its input on the top"),
        ),
        *in_place_of(
            FIRST_OUT,
            (
                "not repaired",
                "x = saved.pop(max(saved, key=list(saved).index))\n            grads[k] = grads[k] * rows / len(x)",
                "Nothing is repaired yet",
            ),
            (
                "the oldest first",
                "x = saved.pop(next(iter(saved)))",
                "the oldest is not always the right one",
            ),
            (
                "the newest, averaged",
                "x = saved.pop(list(saved)[-1])",
                "still takes what was saved last",
            ),
        ),
        *in_place_of(
            SHARE,
            (
                "the rows of the first micro-batch for all",
                "len(inputs[0]) / rows * (x.T @ grads[k])",
                "weighs four times as much",
            ),
            ("the sum of the means", "(x.T @ grads[k])", "the sum of four means"),
            (
                "divided by the number of micro-batches",
                "(x.T @ grads[k]) / len(inputs)",
                "weigh the same now",
            ),
            ("divided by all rows", "(x.T @ grads[k]) / rows", "of a mean already"),
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
            ("sign", "(targets[part] - y) / rows", "The sign is wrong"),
        ),
        Wrong("the last micro-batch alone", "total = xs[k]", "add them up", "total += xs[k]"),
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
        Wrong("1F1B with such receives", IN_TURN_LATE, "both sides are ready"),
        Wrong("1F1B with receives posted early", IN_TURN_EARLY, "which order has all"),
        Wrong(
            "each micro-batch there and back",
            """
            first, last = comm.rank == 0, comm.rank == comm.size - 1
            each = rows // micro_batches
            total = torch.zeros_like(weight)
            for k in range(micro_batches):
                part = slice(k * each, (k + 1) * each)
                if first:
                    x = inputs[part]
                else:
                    x = comm.recv(torch.empty(each, len(weight)), comm.rank - 1)
                y = x @ weight
                if last:
                    g = (y - targets[part]) / rows
                else:
                    comm.send(y, comm.rank + 1)
                    g = comm.recv(torch.empty_like(y), comm.rank + 1)
                total += x.T @ g
                if not first:
                    comm.send(g @ weight.T, comm.rank - 1)
            return total
            """,
            "could travel at the same time",
        ),
        Wrong(
            "waits for the whole batch",
            """
            first, last = comm.rank == 0, comm.rank == comm.size - 1
            each = rows // micro_batches

            def get(columns, src):
                parts = [torch.empty(each, columns) for _ in range(micro_batches)]
                return torch.cat([comm.recv(part, src) for part in parts])

            def put(tensor, dst):
                return [comm.isend(part, dst) for part in tensor.split(each)]

            x = inputs if first else get(len(weight), comm.rank - 1)
            y = x @ weight
            sending = [] if last else put(y, comm.rank + 1)
            g = (y - targets) / rows if last else get(len(y[0]), comm.rank + 1)
            sending += [] if first else put(g @ weight.T, comm.rank - 1)
            for handle in sending:
                handle.wait()
            return x.T @ g
            """,
            "could travel at the same time",
        ),
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
        Wrong(
            "interleaving never fits",
            DESIGN.format("interleaved", "zero_bubble", 4, 2),
            "with four stages and one sequence",
        ),
        Wrong(
            "zero bubble never fits",
            DESIGN.format("zero_bubble", "1f1b", 4, 2),
            "first stage of 1F1B holds",
        ),
        Wrong("the fastest", DESIGN.format("gpipe", "zero_bubble", 2, 4), "It does not fit"),
        Wrong("GPipe", DESIGN.format("gpipe", "gpipe", 8, 1), "It does not fit"),
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
    ],
    "tail": [
        Wrong("1F1B shrinks the bubble", TAIL.format([27, 21, 21], [6, 4, 4]), "bubble of GPipe"),
        Wrong("no bubble left", TAIL.format([27, 27, 18], [6, 4, 4]), "Not quite without"),
        Wrong(
            "out of the way alone", TAIL.format([27, 27, 24], [6, 4, 4]), "it fills what is idle"
        ),
        Wrong("nothing gained", TAIL.format([27, 27, 27], [6, 4, 4]), "In the tail of 1F1B"),
        Wrong("one part forgotten", TAIL.format([18, 18, 12], [6, 4, 4]), "both parts"),
        Wrong("1F1B holds all", TAIL.format([27, 27, 21], [6, 6, 6]), "and no more"),
        Wrong("H1 holds all", TAIL.format([27, 27, 21], [6, 4, 6]), "only as many weights' parts"),
        Wrong("H1 saves memory", TAIL.format([27, 27, 21], [6, 4, 3]), "saves no memory"),
        Wrong("H2 for H1", TAIL.format([27, 27, 21], [6, 4, 7]), "That is H2"),
        Wrong(
            "all ranks",
            TAIL.format([27, 27, 21], [(6, 6, 6, 6), (4, 3, 2, 1), (4, 4, 4, 4)]),
            "one number for each schedule",
        ),
        Wrong(
            "the trial's numbers", TAIL.format([18, 18, 14], [4, 3, 3]), "depend on the number of"
        ),
        Wrong("the last rank", TAIL.format([27, 27, 21], [6, 1, 1]), "The first one is asked for"),
    ],
}


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
