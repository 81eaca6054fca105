"""Wrong answers to the exercises on recomputation."""

from tests.exercises.wrong_answers import Wrong

BYTES = "peak_a = {}\npeak_b = {}\nagain = {}\nlonger = {}\nmfu = {}"
RIGHT_BYTES = ["24.8e9", "33.7e9", "288e12", "25", "0.376"]
LAW = "segments = {}\nheld = {}\ntwice = {}\ndeeper = {}\nkeeps_least = {}"
RIGHT_LAW = ["36", "72", "25", "2", "144"]
REPORTS = (
    "run_a = {}\nrun_b = {}\nrun_c = {}\nrun_d = {}\nrun_e = {}\nrun_f = {}\nnested_longer = {}"
)
RIGHT_REPORTS = ["2", "4", "7", "1", "6", "3", "66.7"]
MFU = "mfu = {}\ntimes = {}"
RIGHT_MFU = ["0.3273", "1.636"]
TENSORS = "kept = {}\nmore = {}\nnot_read = {}"
RIGHT_TENSORS = ['["fused", "core", "summed", "gate", "up"]', "1.0", '"fused"']


PEAK = """
def peak(plan):
    most = kept = start = 0
    for count, mode in plan:
        part = layers[start : start + count]
        start += count
        whole = sum(saved for _, saved, _ in part)
        most = max(most, kept + whole)
        kept += whole if mode == "keep" else part[0][0]
    return most


"""


def one_of(form: str, right: list[str], place: int, *wrong: tuple[object, str]) -> list[Wrong]:
    """Answers with another value in this place: the value, and words of its hint, which name it."""
    return [
        Wrong(f"{place}: {hint}", form.format(*right[:place], value, *right[place + 1 :]), hint)
        for value, hint in wrong
    ]


RUN = "        return function(*args)\n\n    @staticmethod\n    def backward"
CHECKPOINT = [
    Wrong("a plain call", "return function(*args)", "so it is without a checkpoint"),
    Wrong(
        "the random state is put back, and never set",
        "",
        "start from a state that was noted",
        "        torch.set_rng_state(ctx.random)\n",
    ),
    Wrong(
        "no random state, as in the chapter",
        "        with torch.enable_grad():\n            result = ctx.function(*args)\n",
        "draws other random numbers than the first: these",
        "        now = torch.get_rng_state()\n        torch.set_rng_state(ctx.random)\n"
        "        with torch.enable_grad():\n            result = ctx.function(*args)\n"
        "        torch.set_rng_state(now)\n",
    ),
    Wrong(
        "the state after the first run",
        "        result = function(*args)\n"
        "        ctx.random = torch.get_rng_state()\n        return result\n\n"
        "    @staticmethod\n    def backward",
        "of which moment",
        RUN,
    ),
    Wrong("not put back", "", "nobody has put it back", "        torch.set_rng_state(now)\n"),
    Wrong(
        "a seed of its own",
        "torch.manual_seed(0)",
        "of which moment",
        "torch.set_rng_state(ctx.random)",
    ),
    Wrong(
        "one state for all calls",
        "        if not hasattr(Again, 'random'):\n"
        "            Again.random = torch.get_rng_state()\n"
        "        ctx.random = Again.random\n"
        "        return function(*args)\n\n    @staticmethod\n    def backward",
        "random numbers",
        RUN,
    ),
    Wrong(
        "the graph of the first run",
        "        with torch.enable_grad():\n"
        "            ctx.result = function(*args)\n"
        "        return ctx.result.detach()\n\n    @staticmethod\n    def backward",
        "the first run's graph is held",
        RUN,
    ),
    Wrong(
        "no second run",
        "        leaves = [a.detach().requires_grad_(a.requires_grad)\n"
        "                  if isinstance(a, torch.Tensor) else a for a in args]\n"
        "        with torch.enable_grad():\n"
        "            ctx.kept = leaves, function(*leaves)\n"
        "        return ctx.kept[1].detach()\n\n"
        "    @staticmethod\n"
        "    def backward(ctx, gradient):\n"
        "        leaves, result = ctx.kept\n"
        "        result.backward(gradient)\n"
        "        return None, *(getattr(a, 'grad', None) for a in leaves)\n\n"
        "    @staticmethod\n    def unused",
        "so it is without a checkpoint",
        RUN,
    ),
    Wrong(
        "copies",
        "ctx.save_for_backward(*(t.detach().clone().requires_grad_(t.requires_grad)\n"
        "                                for t in tensors))",
        "of arguments the tensors themselves",
        "ctx.save_for_backward(*tensors)",
    ),
    Wrong(
        "three runs",
        "        result = function(*args)\n        with torch.no_grad():\n"
        "            function(*args)\n        return result\n\n    @staticmethod\n    def backward",
        "It runs three times",
        RUN,
    ),
    Wrong(
        "the first gradient alone",
        "        return None, args[0].grad, *(None for _ in args[1:])",
        "gradient of the second argument is missing",
        '        return None, *(getattr(a, "grad", None) for a in args)',
    ),
    Wrong(
        "the second gradient alone",
        "        return None, None, args[1].grad, *(None for _ in args[2:])",
        "gradient of the first argument is missing",
        '        return None, *(getattr(a, "grad", None) for a in args)',
    ),
    Wrong(
        "ones in the place of the gradient",
        "result.backward(torch.ones_like(gradient))",
        "With what is the second run's result carried backward",
        "result.backward(gradient)",
    ),
    Wrong(
        "the gradient of a mean",
        "result.backward(gradient / len(gradient))",
        "With what is the second run's result carried backward",
        "result.backward(gradient)",
    ),
    Wrong(
        "into the arguments themselves",
        "args.append(tensor)",
        "into whose leaves",
        "args.append(tensor.detach().requires_grad_(needs))",
    ),
    Wrong(
        "tensors first",
        "            result = ctx.function(*sorted(\n"
        "                args, key=lambda a: not isinstance(a, torch.Tensor)))",
        "attribute name must be string",
        "            result = ctx.function(*args)",
    ),
    Wrong(
        "everything needs a gradient",
        "needs = True",
        "floating point",
        "needs = tensor.requires_grad",
    ),
    Wrong("no graph", "torch.no_grad()", "does not require grad", "torch.enable_grad()"),
]


BANK: dict[str, list[Wrong]] = {
    "bytes": [
        *one_of(
            BYTES,
            RIGHT_BYTES,
            0,
            (3.38e10, "Not both at one time"),
            (3.37e10, "So it would be if the kept layers were still held"),
            (9.7e9, "This is held when the last recomputed segment is"),
            (9.8e9, "This is what a rebuilt segment takes beside the inputs"),
            (2.4e10, "The kept layers are right"),
            (2.88e10, "An input for each recomputed layer"),
            (2.47e10, "One input too few"),
            (8e8, "These are the inputs of the recomputed segments"),
            (9.6e10, "So much is held if everything is kept"),
            (24.8, "The digits are right, but the answer is wanted in"),
            ("25e9", "This is rounded"),
        ),
        *one_of(
            BYTES,
            RIGHT_BYTES,
            1,
            (3.38e10, "Nearly"),
            (2.48e10, "This is held when forward ends"),
            (3.3e10, "Kept layers and a rebuilt segment are right"),
            (9.7e9, "Backward reaches the kept layers last here"),
            (3.77e10, "An input for each layer"),
            (2.41e10, "This is held after the last segment's backward"),
            (9.6e10, "So much is held if everything is kept"),
            (33.7, "The digits are right, but the answer is wanted in"),
            ("34e9", "This is rounded"),
        ),
        *one_of(
            BYTES,
            RIGHT_BYTES,
            2,
            (2.4e14, "So it is where a second run stops before the last"),
            (3.84e14, "All layers"),
            (9.6e13, "These are the layers that are kept"),
            (3.6e13, "This is one segment"),
            (5.76e14, "Twice as many"),
            (8.64e14, "This counts backward, too, which runs once in any case"),
            (4.8e13, "One layer for each segment"),
            (288, "The digits are right, but the answer is wanted in"),
        ),
        *one_of(
            BYTES,
            RIGHT_BYTES,
            3,
            (0.25, "A percentage is wanted, not a fraction"),
            (33.3333, "So it is where all layers are run again"),
            (75, "This is a part of a forward pass"),
            (20, "This is the part of the longer step"),
            (20.83, "So it is where a second run stops before the last"),
            (37.5, "This is a part of the backward pass"),
            (125, "This is how long the step is, not how much longer"),
        ),
        *one_of(
            BYTES,
            RIGHT_BYTES,
            4,
            (0.47, "This would be without recomputation"),
            (0.5875, "The wrong way"),
            (0.3525, "Near: this takes 25 % off what the device does"),
            (0.3133, "So it is where all forward passes count as not needed"),
            (0.26857, "This takes a forward pass of 75 % off a forward"),
            (0.094, "This is what is wasted"),
            (37.6, "A fraction is wanted, as HFU is given"),
        ),
    ],
    "checkpoint": CHECKPOINT,
    "price": [
        Wrong(
            "the input twice",
            """\
        peak = max(peak, kept + whole + part[0][0] * (mode != "keep"))
""",
            "A segment's first input is counted twice",
            """\
        peak = max(peak, kept + whole)
""",
        ),
        Wrong(
            "the end of forward alone",
            """\
    return kept, again
""",
            "This is held when forward ends",
            """\
    return peak, again
""",
        ),
        Wrong(
            "kept and the largest",
            """\
    return kept + max(s for _, s, _ in layers), again
""",
            "A segment is rebuilt as a whole, not a layer at a time",
            """\
    return peak, again
""",
        ),
        Wrong(
            "an input for each layer",
            """\
            kept += sum(given for given, _, _ in part)
""",
            "Of a recomputed segment one input stays, that of",
            """\
            kept += part[0][0]
""",
        ),
        Wrong(
            "no inputs",
            """\
            pass
""",
            "What do recomputed segments hold that are not",
            """\
            kept += part[0][0]
""",
        ),
        Wrong(
            "the last input",
            """\
            kept += part[-1][0]
""",
            "Which input does a segment need to run again",
            """\
            kept += part[0][0]
""",
        ),
        Wrong(
            "stops early",
            "again += sum(forward for _, _, forward in part[:-1])",
            "The last layer of each segment is left out, as",
            "again += sum(forward for _, _, forward in part)",
        ),
        Wrong(
            "forward of everything",
            """\
    again = sum(forward for _, _, forward in layers)
    return peak, again""",
            "Kept segments are not run again",
            """\
            again += sum(forward for _, _, forward in part)
    return peak, again""",
        ),
        Wrong(
            "backward, too",
            "again += 3 * sum(forward",
            "What is run again is the forward pass alone",
            "again += sum(forward",
        ),
        Wrong(
            "from the front",
            """\
    layers, plan = [x for x in layers[::-1]], plan[::-1]
    for count, mode in plan:
""",
            "This goes through the segments as if backward began",
            """\
    for count, mode in plan:
""",
        ),
        Wrong(
            "the last recomputed segment and the end of forward",
            """\
        if mode == "keep":
            kept += whole
        else:
            peak = kept + whole
            kept += part[0][0]
            again += sum(forward for _, _, forward in part)
    return max(peak, kept), again
""",
            "Is there a moment after it with more",
            """\
        peak = max(peak, kept + whole)
        if mode == "keep":
            kept += whole
        else:
            kept += part[0][0]
            again += sum(forward for _, _, forward in part)
    return peak, again
""",
        ),
        Wrong(
            "only recomputed segments",
            """\
        if mode != "keep":
            peak = max(peak, kept + whole)
""",
            "The peak may also be at the end of the forward",
            """\
        peak = max(peak, kept + whole)
""",
        ),
    ],
    "law": [
        *one_of(
            LAW,
            RIGHT_LAW,
            0,
            (12, "So it is where layers keep their input alone"),
            (1296, "There are 144 layers"),
            (4, "The other way"),
            (108, "The square root is of both, the layers and what"),
            (144, "A segment for each layer is best only where layers"),
            (24, "Try it"),
            (48, "Try it"),
        ),
        *one_of(
            LAW,
            RIGHT_LAW,
            1,
            (36, "This is one of two terms"),
            (71, "So it is counted exactly"),
            (24, "So it is where layers keep their input alone"),
            (120, "So it is with 12 segments"),
            (1296, "So much is held if everything is kept"),
            (40, "The segment that is rebuilt keeps 9 inputs for each"),
        ),
        *one_of(
            LAW,
            RIGHT_LAW,
            2,
            (100, "Twice as many inputs, but segments that are half as"),
            (125, "This is how much is held, in percent"),
            (50, "One term is twice as large, the other half as large"),
            (0.25, "A percentage is wanted, not a fraction"),
            (1.25, "This is how many times as much"),
            (20, "This is a part of the larger one"),
            (0, "Not nothing, though it is little for so wrong a k"),
        ),
        *one_of(
            LAW,
            RIGHT_LAW,
            3,
            (4, "So it is if everything is kept, or with the k of before"),
            (16, "It grows more slowly than the layers, not faster"),
            (1, "Four times as many layers do hold more"),
            (1.41, "Which root is it"),
            (2.5, "So it is with the k of before"),
        ),
        *one_of(
            LAW,
            RIGHT_LAW,
            4,
            (12, "With 12 the best k is 42"),
            (1, "Then the best k is 12"),
            (16, "With 16 the best k is 48"),
            (20736, "Put it into the law"),
            (72, "In whole layers, where the next fewer segments are half"),
            (144.5, "It is a whole number"),
            (57, "So much keeps a layer of GPT-3"),
        ),
        Wrong(
            "equal segments",
            "    return max(k * ((room - k + 1) // keeps) for k in range(1, room + 1))",
            "These are equal segments",
            "    return sum((room - g) // keeps for g in range(room))",
        ),
        Wrong(
            "the law",
            "    return int((room / 2) ** 2 / keeps)",
            "This is the law, turned round",
            "    return sum((room - g) // keeps for g in range(room))",
        ),
        Wrong(
            "own input twice",
            "    return sum(max(0, room - g - 1) // keeps for g in range(room))",
            "The input of the segment that is rebuilt is counted",
            "    return sum((room - g) // keeps for g in range(room))",
        ),
        Wrong(
            "one segment",
            "    return room // keeps",
            "This is one segment alone",
            "    return sum((room - g) // keeps for g in range(room))",
        ),
        Wrong(
            "one segment more than fits",
            "    return sum((room - g) // keeps for g in range(-1, room))",
            "The first segment has `room` and no more",
            "    return sum((room - g) // keeps for g in range(room))",
        ),
        Wrong(
            "no whole numbers",
            "    return sum((room - g) / keeps for g in range(room))",
            "Layers are whole in each segment",
            "    return sum((room - g) // keeps for g in range(room))",
        ),
        Wrong(
            "rounded at the end",
            "    return sum(room - g for g in range(room)) // keeps",
            "Layers are whole in each segment",
            "    return sum((room - g) // keeps for g in range(room))",
        ),
        Wrong(
            "rounded up",
            "    return sum(-(-(room - g) // keeps) for g in range(room))",
            "Rounded up, a segment takes more than the room that",
            "    return sum((room - g) // keeps for g in range(room))",
        ),
        Wrong(
            "a layer for each input",
            "    return room - keeps + 1",
            "These are segments of one layer",
            "    return sum((room - g) // keeps for g in range(room))",
        ),
    ],
    "budget": [
        Wrong(
            "single layers",
            """\
            if whole > left or stop > i + 1:
                break
""",
            "It fits, and there is one that runs less again",
            """\
            if whole > left:
                break
""",
        ),
        Wrong(
            "room for what is rebuilt is forgotten",
            """\
            if given > left:
                break
""",
            "It does not fit",
            """\
            if whole > left:
                break
""",
        ),
        Wrong(
            "inputs twice",
            """\
            if whole + given > left:
                break
""",
            "It fits, and there is one that runs less again",
            """\
            if whole > left:
                break
""",
        ),
        Wrong(
            "the first that fit are kept",
            PEAK
            + """\
n = len(layers)
for kept in range(n, -1, -1):
    plan = [(1, "keep")] * kept + [(1, "recompute")] * (n - kept)
    if peak(plan) <= budget:
        return plan
return None""",
            "It fits",
        ),
        Wrong(
            "the last that fit are kept",
            PEAK
            + """\
n = len(layers)
for kept in range(n, -1, -1):
    plan = [(1, "recompute")] * (n - kept) + [(1, "keep")] * kept
    if peak(plan) <= budget:
        return plan
return None""",
            "It fits",
        ),
        Wrong(
            "by work for a byte",
            PEAK
            + """\
n = len(layers)
kept = set()
for i in sorted(range(n), key=lambda i: -layers[i][2] / layers[i][1]):
    plan = [(1, "keep" if j in kept | {i} else "recompute") for j in range(n)]
    if peak(plan) <= budget:
        kept.add(i)
return [(1, "keep" if j in kept else "recompute") for j in range(n)]""",
            "layers are taken by their work for a byte",
        ),
        Wrong(
            "equal segments",
            PEAK
            + """\
n = len(layers)
plans = []
for k in range(1, n + 1):
    plans.append([(n // k + (i < n % k), "recompute") for i in range(k)])
return min(plans, key=peak)""",
            "All is run again here, in equal segments",
        ),
        Wrong(
            "one segment",
            'return [(len(layers), "recompute")]',
            "It does not fit",
        ),
        Wrong(
            "everything is kept",
            'return [(len(layers), "keep")]',
            "It does not fit",
        ),
        Wrong(
            "the fewest layers",
            "again += 1",
            "it runs the fewest layers again",
            "again += layers[stop - 1][2]",
        ),
        Wrong(
            "the input twice where it is rebuilt",
            "ways = [('recompute', given, again)] if whole + given <= left else []",
            "the input of a segment that is rebuilt is counted twice",
            'ways = [("recompute", given, again)]',
        ),
        Wrong(
            "second runs that stop early",
            "('recompute', given, again - layers[stop - 1][2])",
            "if second runs stop before the last layer",
            '("recompute", given, again)',
        ),
        Wrong(
            "the fewest bytes that are run again",
            "again += layers[stop - 1][1]",
            "It fits",
            "again += layers[stop - 1][2]",
        ),
        Wrong(
            "a list where nothing fits",
            '    return list(plan or [(len(layers), "recompute")])',
            "Nothing fits here",
            "    return plan if plan is None else list(plan)",
        ),
    ],
    "reports": [
        *one_of(
            REPORTS,
            RIGHT_REPORTS,
            0,
            (1, "Near"),
            (7, "The first gradient has its full length"),
            (6, "Training differs here, from the second step on"),
            (5, "The blocks run twice"),
        ),
        *one_of(
            REPORTS,
            RIGHT_REPORTS,
            1,
            (3, "Very little is held when forward ends"),
            (8, "With half of the blocks kept, more would be held"),
            (5, "The blocks run twice"),
            (2, "The losses are the right ones"),
        ),
        *one_of(
            REPORTS,
            RIGHT_REPORTS,
            2,
            (1, "Gradients of other random numbers would be about as"),
            (2, "The first gradient is too short already, before any"),
            (6, "Running means have no part in training"),
            (8, "Each block runs twice"),
        ),
        *one_of(
            REPORTS,
            RIGHT_REPORTS,
            3,
            (2, "Near"),
            (7, "The gradient is other, and hardly shorter; the"),
            (6, "Training differs here"),
            (5, "The blocks run twice"),
        ),
        *one_of(
            REPORTS,
            RIGHT_REPORTS,
            4,
            (1, "All losses of training are the right ones"),
            (2, "All losses of training are the right ones"),
            (7, "All losses of training are the right ones"),
        ),
        *one_of(
            REPORTS,
            RIGHT_REPORTS,
            5,
            (4, "As much as without a checkpoint is held when"),
            (8, "With half of the blocks kept, less would be held"),
            (5, "The blocks run twice"),
            (2, "The losses are the right ones"),
        ),
        *one_of(
            REPORTS,
            RIGHT_REPORTS,
            6,
            (33.3333, "So it is with one checkpoint around each block"),
            (100, "How often do the blocks run forward, and what is"),
            (200, "This is a part of the forward pass"),
            (0.6667, "A percentage is wanted, not a fraction"),
            (166.67, "This is how long it is, not how much longer"),
            (40, "This is the part of the longer step"),
            (133.33, "This counts a backward pass as long as a forward"),
        ),
    ],
    "mfu": [
        *one_of(
            MFU,
            RIGHT_MFU,
            0,
            (0.436364, "This is HFU"),
            (0.654545, "So the report says"),
            (0.218182, "These are forward runs alone, all of them"),
            (0.4, "So it is in the plain run"),
            (0.109091, "This is forward alone, once"),
            (32.7, "A fraction is wanted, not a percentage"),
        ),
        *one_of(
            MFU,
            RIGHT_MFU,
            1,
            (0.8182, "So many times as many tokens the run with every"),
            (1.0909, "This is by HFU"),
            (2, "So many times is the reported MFU what it should be"),
            (0.6111, "Its inverse"),
            (0.6545, "This is the MFU that is reported"),
            (1.2222, "This is beside the tokens of the run with every"),
        ),
        Wrong(
            "as it was",
            """\
    forward = sum(flops for *_, name, flops in trace if name == "forward")
    return done / seconds / peak, 3 * forward / seconds / peak""",
            "Nothing is repaired yet",
            "    return done / seconds / peak, needed / seconds / peak",
        ),
        Wrong(
            "hardware",
            """\
        needed += flops
""",
            "Both are HFU: the second runs are in either",
            """\
        if (batch, layer, name) not in seen:
            needed += flops
""",
        ),
        Wrong(
            "model",
            "return needed / seconds",
            "Both are MFU",
            "return done / seconds",
        ),
        Wrong(
            "swapped",
            "return needed / seconds / peak, done / seconds / peak",
            "The two are swapped",
            "return done / seconds / peak, needed / seconds / peak",
        ),
        Wrong(
            "forward alone",
            'not in seen and name == "forward":',
            "Backward belongs to MFU",
            "not in seen:",
        ),
        Wrong(
            "no backward in HFU",
            """\
        done += flops * (name == "forward")
""",
            "Backward belongs to HFU, too",
            """\
        done += flops
""",
        ),
        Wrong(
            "layers alone",
            "seen.update((b, layer, name) for b in range(99))",
            "With one micro-batch it is right, and with three it",
            "seen.add((batch, layer, name))",
        ),
        Wrong(
            "forward runs by their layers alone",
            """\
        if name == "backward" or layer not in seen:
            needed += flops
        if name == "forward":
            seen.add(layer)
""",
            "Backward is counted for each of them",
            """\
        if (batch, layer, name) not in seen:
            needed += flops
        seen.add((batch, layer, name))
""",
        ),
        Wrong(
            "a run directly before its backward is dropped",
            """\
    for event, after in zip(trace, [*trace[1:], (None, None, None, 0)]):
        done += event[3]
        if after != (*event[:2], "backward", after[3]) or event[2] != "forward":
            needed += event[3]
""",
            "this leaves out one run of each",
            """\
    for batch, layer, name, flops in trace:
        done += flops
        if (batch, layer, name) not in seen:
            needed += flops
        seen.add((batch, layer, name))
""",
        ),
        Wrong(
            "half of the forward runs",
            """\
        needed += flops / (2 if name == "forward" else 1)
""",
            "This halves the forward FLOPs, as if all second",
            """\
        if (batch, layer, name) not in seen:
            needed += flops
""",
        ),
        Wrong(
            "a quarter off",
            "0.75 * done / seconds / peak",
            "This takes a quarter off HFU",
            "needed / seconds / peak",
        ),
        Wrong(
            "three times the first runs",
            """\
needed = 3 * sum({(b, i): f for b, i, name, f in reversed(trace) if name == "forward"}.values())
    return done / seconds / peak, needed""",
            "Three times the first forward runs",
            "return done / seconds / peak, needed",
        ),
        Wrong(
            "the last runs",
            """\
    for batch, layer, name, flops in reversed(trace):
""",
            "This takes the last run of each layer for the first",
            """\
    for batch, layer, name, flops in trace:
""",
        ),
        Wrong(
            "backward by the cores",
            """\
            needed += flops if name == "forward" else 2 * dict(((b, i), f) for b, i, n, f in trace if n == "forward")[batch, layer]
""",
            "The FLOPs of backward stand in the trace; they are",
            """\
            needed += flops
""",
        ),
    ],
    "tensors": [
        *one_of(
            TENSORS,
            RIGHT_TENSORS,
            0,
            (["query", "core", "summed", "gate", "up"], "It fits"),
            (["core", "summed", "gate", "up"], "It fits, with 124 MB left"),
            (["fused", "query", "core", "gate", "up"], "It fits, and there is a better one"),
            (["fused", "core", "normed 2", "gate", "up"], "It fits, and there is a better one"),
            (["fused", "core", "gate", "up"], "It fits, and there is room for one more"),
            ([], "Nothing is kept"),
            (["query", "core", "gate", "up"], "It fits"),
            (["normed", "query", "key", "value", "normed 2", "product"], "It fits"),
            (["query", "key", "value", "core", "summed", "gate", "up"], "It is too much"),
            (
                [
                    "normed",
                    "query",
                    "key",
                    "value",
                    "core",
                    "summed",
                    "normed 2",
                    "gate",
                    "up",
                    "active",
                    "product",
                ],
                "This is everything that backward reads",
            ),
            (
                [
                    "normed",
                    "fused",
                    "query",
                    "key",
                    "value",
                    "core",
                    "summed",
                    "normed 2",
                    "gate",
                    "up",
                    "active",
                    "product",
                ],
                "This is everything",
            ),
        ),
        *one_of(
            TENSORS,
            RIGHT_TENSORS,
            1,
            (1.6, "So much is run again in 600 MB"),
            (0.64, "Near"),
            (0.7, "This fits, but not with the best choice"),
            (0.9, "This takes one of your tensors away, which leaves room"),
            (0.06, "This is beside a choice of what backward reads alone"),
            (2.2, "So much is run again in a choice that is not the best"),
            (1000, "In ms, please"),
        ),
        *one_of(TENSORS, RIGHT_TENSORS, 2, ('"core"', "has False in its last place")),
        Wrong(
            "swapped",
            "return again, size",
            "The two are swapped",
            "return size, again",
        ),
        Wrong(
            "own ms alone",
            "",
            "What is made again reads something",
            """\
            wanted.update(reads)
""",
        ),
        Wrong(
            "all that is not kept",
            "else",
            "Something is made again that nothing needs",
            "elif name in wanted",
        ),
        Wrong(
            "shared work twice",
            """\
    of = {name: (ms, reads) for name, _, ms, reads, _ in tensors}

    def made(name):
        if name == "x" or name in kept:
            return 0
        return of[name][0] + sum(map(made, of[name][1]))

    again = sum(made(name) for name, *_, needed in tensors if needed)
    return sum(size for name, size, *_ in tensors if name in kept), again""",
            "What several tensors are made of is made again",
            """\
    wanted = {name for name, *_, needed in tensors if needed}
    size = again = 0
    for name, nbytes, ms, reads, _ in reversed(tensors):
        if name in kept:
            size += nbytes
        elif name in wanted:
            again += ms
            wanted.update(reads)
    return size, again""",
        ),
        Wrong(
            "one sweep in the order of forward",
            """\
    wanted = {name for name, *_, needed in tensors if needed} - set(kept)
    for name, _, _, reads, _ in tensors:
        if name in wanted:
            wanted.update(set(reads) - set(kept))
    again = sum(ms for name, _, ms, *_ in tensors if name in wanted)
    return sum(size for name, size, *_ in tensors if name in kept), again""",
            "here there are two in a chain",
            """\
    wanted = {name for name, *_, needed in tensors if needed}
    size = again = 0
    for name, nbytes, ms, reads, _ in reversed(tensors):
        if name in kept:
            size += nbytes
        elif name in wanted:
            again += ms
            wanted.update(reads)
    return size, again""",
        ),
        Wrong(
            "what is read, and not what that reads",
            """\
    of = {name: (size, ms) for name, size, ms, *_ in tensors}
    dropped = [(name, reads) for name, _, _, reads, needed in tensors if needed and name not in kept]
    made = {each for name, reads in dropped for each in [name, *reads]} - {"x", *kept}
    return sum(of[name][0] for name in kept), sum(of[name][1] for name in made)""",
            "here there are two in a chain",
            """\
    wanted = {name for name, *_, needed in tensors if needed}
    size = again = 0
    for name, nbytes, ms, reads, _ in reversed(tensors):
        if name in kept:
            size += nbytes
        elif name in wanted:
            again += ms
            wanted.update(reads)
    return size, again""",
        ),
        Wrong(
            "kept ones are made, too",
            "        if name in wanted:",
            "What is kept is not made again",
            "        elif name in wanted:",
        ),
        Wrong(
            "stops at nothing",
            """\
            size += nbytes
            wanted.update(reads)
        elif name in wanted:""",
            "Something is made again that nothing needs",
            """\
            size += nbytes
        elif name in wanted:""",
        ),
        Wrong(
            "bytes of what backward reads",
            """\
    for name, nbytes, ms, reads, needed in reversed(tensors):
        if name in kept:
            size += nbytes * needed""",
            "What is kept takes memory, whether backward reads",
            """\
    for name, nbytes, ms, reads, _ in reversed(tensors):
        if name in kept:
            size += nbytes""",
        ),
        Wrong(
            "bytes that are dropped",
            """\
            continue
        size += nbytes
        if name in wanted:
""",
            "The MB are those of what is dropped",
            """\
            size += nbytes
        elif name in wanted:
""",
        ),
        Wrong(
            "from the front",
            "in tensors",
            "What is made again reads something",
            "in reversed(tensors)",
        ),
    ],
}


# Answers that are built otherwise: what came, its source, words of the sentence, what it replaces.
OTHERWISE: dict[str, list[tuple[str, ...]]] = {
    "bytes": [("a list", "peak_a = [24.8e9]", "take them off")],
    "checkpoint": [
        ("a tuple", "return Again.apply(function, *args), args", "should be a tensor",
         "return Again.apply(function, *args)"),
        ("nothing", "Again.apply(function, *args)", "ends without `return`",
         "return Again.apply(function, *args)"),
    ],
    "price": [
        ("the peak alone", "return peak", "a tuple of 2", "return peak, again"),
        ("a dictionary", 'return {"peak": peak}', "a tuple of 2", "return peak, again"),
        ("a text", 'return f"{peak}", again', "[0] is the text", "return peak, again"),
    ],
    "law": [("a list", "segments = [36]", "take them off")],
    "budget": [
        ("modes alone", 'return ["keep"] * len(layers)', "a list of tuples of 2"),
        ("pairs the other way", 'return [("keep", len(layers))]', "[0][0] is the text"),
        ("with its work", "return best(0, budget)", "[0] is the number",
         "return plan if plan is None else list(plan)"),
        ("another word", 'return [(len(layers), "drop")]', "drop"),
    ],
    "reports": [("letters", 'run_a = "2"', "without quotes", "run_a, run_b, run_c = 2, 4, 7")],
    "mfu": [
        ("one number", "return needed / seconds / peak", "a tuple of 2",
         "return done / seconds / peak, needed / seconds / peak"),
        ("a dictionary", 'return {"hfu": 1.0, "mfu": 1.0}', "a tuple of 2",
         "return done / seconds / peak, needed / seconds / peak"),
    ],
    "tensors": [
        ("a text", 'kept = "fused core"', "should be a list of texts",
         'kept = ["fused", "core", "summed", "gate", "up"]'),
        ("a tensor that there is not", 'kept = ["fuse"]', "fuse",
         'kept = ["fused", "core", "summed", "gate", "up"]'),
        ("ms alone", "return again", "a tuple of 2", "return size, again"),
    ],
}  # fmt: skip

# The programs that are asked for, by question.
PROGRAMS = {
    "checkpoint": "checkpoint",
    "price": "price",
    "budget": "cheapest_plan",
    "mfu": "utilization",
    "tensors": "cost_of",
}

HOOKS = """
seen, caught, others = [], [], []
for a in args:
    others.append(a)
random = torch.get_rng_state()

def keep(x):
    seen.append(None)
    return len(seen) - 1

def again(place):
    if not caught:
        now = torch.get_rng_state()
        torch.set_rng_state(random)
        hooks = torch.autograd.graph.saved_tensors_hooks(
            lambda x: caught.append(x.detach()), lambda x: x)
        with torch.enable_grad(), hooks:
            function(*others)
        torch.set_rng_state(now)
    return caught[place]

with torch.autograd.graph.saved_tensors_hooks(keep, again):
    return function(*args)
"""
NAMED = """
class Kept(torch.autograd.Function):
    @staticmethod
    def forward(ctx, function, many, *args):
        ctx.function, ctx.args = function, args
        ctx.random = torch.get_rng_state()
        with torch.no_grad():
            return function(*args)

    @staticmethod
    def backward(ctx, gradient):
        args = [a.detach().requires_grad_(a.requires_grad)
                if isinstance(a, torch.Tensor) else a for a in ctx.args]
        wanted = [a for a in args if isinstance(a, torch.Tensor) and a.requires_grad]
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            torch.set_rng_state(ctx.random)
            result = ctx.function(*args)
        came = iter(torch.autograd.grad(result, wanted, gradient))
        return None, None, *(next(came) if any(a is w for w in wanted) else None for a in args)

return Kept.apply(function, len(args), *args)
"""
FRONTS = """
table = [{} for _ in range(len(layers) + 1)]
table[0][0] = (0, ())
for i in range(len(layers)):
    for kept, (work, plan) in list(table[i].items()):
        whole = again = 0
        for stop in range(i + 1, len(layers) + 1):
            whole += layers[stop - 1][1]
            again += layers[stop - 1][2]
            if kept + whole > budget:
                break
            ways = [(kept + layers[i][0], work + again, (stop - i, "recompute"))]
            if stop == i + 1:
                ways.append((kept + whole, work, (1, "keep")))
            for after, cost, segment in ways:
                if after not in table[stop] or cost < table[stop][after][0]:
                    table[stop][after] = cost, (*plan, segment)
ends = table[-1].values()
return [list(segment) for segment in min(ends)[1]] if ends else None
"""
# Right answers of another kind: what came, its source, what of the solution it replaces.
RIGHT = {
    "bytes": [("rounded", BYTES.format("24_800_000_000", "33.7e9", "290e12", "25", "0.38"))],
    "checkpoint": [("by hooks", HOOKS), ("arguments of one attribute", NAMED)],
    "law": [
        (
            "one segment after the other",
            "    layers = 0\n    while room >= keeps:\n        layers += room // keeps\n"
            "        room -= 1\n    return layers",
            "    # Behind g segments before it there is room for this many layers.\n"
            "    return sum((room - g) // keeps for g in range(room))",
        )
    ],
    "budget": [("from the front", FRONTS)],
    "reports": [("rounded", REPORTS.format(2, 4, 7, 1, 6, 3, 67))],
    "mfu": [
        (
            "first runs by name",
            "    first = {}\n    for *run, flops in trace:\n"
            "        first.setdefault(tuple(run), flops)\n"
            "    done = sum(flops for *_, flops in trace)\n"
            "    return done / (seconds * peak), sum(first.values()) / (seconds * peak)",
            "    return done / seconds / peak, needed / seconds / peak",
        ),
        ("rounded", MFU.format("0.33", "1.6")),
    ],
    "tensors": [
        ("a whole number", "more = 1", "more = 1.6 - 0.6"),
        (
            "another order",
            'kept = ["up", "gate", "summed", "fused", "core"]',
            'kept = ["fused", "core", "summed", "gate", "up"]',
        ),
    ],
}
