"""Wrong answers to the exercises on recomputation."""

from tests.exercises.wrong_answers import Wrong, one_wrong

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
    """Answers that are right but for the one in this place, each named by its hint."""
    return one_wrong(
        form, right, place, *((f"{place}: {hint}", came, hint) for came, hint in wrong)
    )


AGAIN = "    result = LAYERS[name](*leaves)\n"
RUN_AGAIN = (
    "    now = torch.get_rng_state()\n    torch.set_rng_state(state)\n"
    f"{AGAIN}    torch.set_rng_state(now)\n"
)
GRADIENTS = 'return [getattr(a, "grad", None) for a in leaves]'
RETURNED = "return LAYERS[name](*args), state"
CHECKPOINT = [
    Wrong(
        "the random state is put back, and never set",
        "",
        "start from a state that was noted",
        "    torch.set_rng_state(state)\n",
    ),
    Wrong(
        "no random state, as in the chapter",
        AGAIN,
        "draws other random numbers than the first: these",
        RUN_AGAIN,
    ),
    Wrong("not put back", "", "nobody has put it back", "    torch.set_rng_state(now)\n"),
    Wrong(
        "the state after the first run",
        "return LAYERS[name](*args), torch.get_rng_state()",
        "and of which moment",
        RETURNED,
    ),
    Wrong(
        "a seed of its own",
        "torch.manual_seed(0)\n        return LAYERS[name](*args), torch.get_rng_state()",
        "that a plain call does not draw",
        RETURNED,
    ),
    Wrong(
        "backward from a sum",
        "result.sum().backward()",
        "the second run's result carried backward",
        "result.backward(gradient)",
    ),
    Wrong(
        "nothing but None",
        "return [None for a in args]",
        "What second_run returns: None came",
        GRADIENTS,
    ),
    Wrong(
        "tensors first",
        "    result = LAYERS[name](*sorted(\n"
        "        leaves, key=lambda a: not isinstance(a, torch.Tensor)))\n",
        "attribute name must be string",
        AGAIN,
    ),
    Wrong(
        "everything needs a gradient",
        "a = a.detach().requires_grad_(True)",
        "floating point",
        "a = a.detach().requires_grad_(a.requires_grad)",
    ),
]


BANK: dict[str, list[Wrong]] = {
    "bytes": [
        *one_of(
            BYTES,
            RIGHT_BYTES,
            0,
            (3.38e10, "Not both at one time"),
        ),
        *one_of(
            BYTES,
            RIGHT_BYTES,
            1,
            (3.38e10, "Nearly"),
        ),
        *one_of(
            BYTES,
            RIGHT_BYTES,
            2,
            (2.4e14, "So it is where a second run stops before the last"),
        ),
        *one_of(
            BYTES,
            RIGHT_BYTES,
            3,
            (0.25, "A percentage is wanted, not a fraction"),
        ),
        Wrong(
            "where forward ends",
            ", inputs * entering + rest]",
            "Compare two moments in each plan",
            ", rest + again_held]",
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
        ),
        *one_of(
            LAW,
            RIGHT_LAW,
            4,
            (144.5, "It is a whole number"),
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
            "rounded up",
            "    return sum(-(-(room - g) // keeps) for g in range(room))",
            "Rounded up, a segment takes more than the room that",
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
        ),
        *one_of(
            REPORTS,
            RIGHT_REPORTS,
            1,
            (3, "Very little is held when forward ends"),
        ),
        *one_of(
            REPORTS,
            RIGHT_REPORTS,
            2,
            (1, "Gradients of other random numbers would be about as"),
        ),
        *one_of(
            REPORTS,
            RIGHT_REPORTS,
            3,
            (2, "Near"),
        ),
        Wrong(
            "of the forward pass",
            "/ blocks",
            "How many more times does each block run forward, beside its",
            "/ (3 * blocks)",
        ),
    ],
    "mfu": [
        *one_of(
            MFU,
            RIGHT_MFU,
            0,
            (0.436364, "This is HFU"),
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
    ],
    "tensors": [
        *one_of(
            TENSORS,
            RIGHT_TENSORS,
            0,
            (["query", "core", "summed", "gate", "up"], "It fits"),
            (["core", "summed", "gate", "up"], "It fits, with 124 MB left"),
        ),
        *one_of(
            TENSORS,
            RIGHT_TENSORS,
            1,
            (1.6, "So much is run again in 600 MB"),
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
    ],
}

# The wrong values that the sealed hints of a check are for, in their order.
SEALED = {
    "bytes": {
        "peak_a": [2.5e10, 3.38e10, 3.37e10, 9.7e9, 9.8e9, 2.4e10, 2.88e10, 2.47e10, 8e8, 9.6e10, 24.8],
        "peak_b": [3.4e10, 3.38e10, 2.48e10, 3.3e10, 9.7e9, 3.77e10, 2.41e10, 9.6e10, 33.7],
        "again": [2.4e14, 3.84e14, 9.6e13, 3.6e13, 5.76e14, 8.64e14, 4.8e13, 288],
        "longer": [0.25, 33.3, 75, 20, 20.8, 37.5, 125],
        "mfu": [0.47, 0.588, 0.352, 0.313, 0.269, 0.094, 37.6],
    },
    "law": {
        "segments": [12, 1296, 4, 108, 144, 24, 48],
        "held": [36, 71, 24, 120, 1296, 40],
        "twice": [100, 125, 50, 0.25, 1.25, 20, 0],
        "deeper": [4, 16, 1, 1.41, 2.5],
        "keeps_least": [72, 12, 1, 16, 20736, 57],
    },
    "reports": {
        "run_a": [1, 7, 6, 5],
        "run_b": [3, 8, 5, 2],
        "run_c": [1, 2, 6, 8],
        "run_d": [2, 7, 6, 5],
        "run_e": [1, 2, 7],
        "run_f": [4, 8, 5, 2],
        "nested_longer": [33.3, 100, 200, 0.667, 167, 40, 133],
    },
    "mfu": {
        "mfu": [0.436, 0.655, 0.218, 0.4, 0.109, 32.7],
        "times": [0.818, 1.09, 2, 0.611, 0.654, 1.22],
    },
    "tensors": {
        "more": [1.6, 0.64, 0.7, 0.9, 0.06, 2.2, 1000],
    },
}  # fmt: skip


# Answers that are built otherwise: what came, its source, words of the sentence, what it replaces.
OTHERWISE: dict[str, list[tuple[str, ...]]] = {
    "bytes": [("a list", "peak_a = [24.8e9]", "take them off")],
    "checkpoint": [
        ("the result alone", "return LAYERS[name](*args)", "should be a tuple of 2", RETURNED),
        ("what was made inside", "return (made := LAYERS[name](*args)), made.exp()",
         "the state of torch's generator", RETURNED),
        ("of tensors alone", "return [a.grad for a in leaves if isinstance(a, torch.Tensor)]",
         "something for each argument", GRADIENTS),
        ("a dictionary", 'return {"w": leaves[1].grad}', "should be a list", GRADIENTS),
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
    "checkpoint": "first_run",
    "price": "price",
    "budget": "cheapest_plan",
    "mfu": "utilization",
    "tensors": "cost_of",
}

FORKED = """\
    with torch.random.fork_rng(devices=[]):
        torch.set_rng_state(state)
        result = LAYERS[name](*leaves)
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
    "checkpoint": [
        ("in a fork of the generator", FORKED, RUN_AGAIN),
        ("a state of its own", "return LAYERS[name](*args), state.clone()", RETURNED),
    ],
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
