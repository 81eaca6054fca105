"""Wrong answers to the exercises of composing the axes."""

from tests.exercises.wrong_answers import Wrong, in_place_of, one_wrong

GROUPS = "partners = {}\nholders = {}\nother = {}\nreaders = {}"
PLACE = 'usual, dp_first, batch = {}, {}, {}\norder = "{}"'
REPORTS = "run_a, run_b, run_c = {}, {}, {}\nlonger_a, factor_b, factor_c = {}, {}, {}"
WIDE = "tokens, cut, alone, power = {}, {}, {}, {}"
DESIGN = (
    'design = {{"nodes": {}, "tp": {}, "cp": {}, "dp": {}, "pp": {}, "sequences": {}, "zero": {}}}'
)

RIGHT_GROUPS = ["[25, 29, 33, 37, 41, 45]", "[29, 41]", "5", "8"]
RIGHT_PLACE = ["463.05", "2662.05", "94.5", "tp-cp-pp-dp"]
RIGHT_REPORTS = ["1", "3", "6", "16", "3", "4"]
RIGHT_WIDE = ["3056.6", "7.765", "11868", "4"]
RIGHT_REST = ["memory", "14.2", "exchanges"]
BUDGET = (
    "design = dict(nodes=32, tp=1, cp=4, dp=8, pp=8, sequences=1, zero=1)\n"
    'binds, shorter, part = "{}", {}, "{}"'
)

# Rank by rank, from the mesh's own numbers.
BY_RANK = """size, strides = 1, {}
    for axis in sizes:
        strides[axis], size = size, size * sizes[axis]
    others = [axis for axis in sizes if axis not in along]

    def key(rank):
        return [rank // strides[axis] % sizes[axis] for axis in others]

    left, made = list(range(size)), []
    while left:
        made.append(tuple(rank for rank in left if key(rank) == key(left[0])))
        left = [rank for rank in left if rank not in made[-1]]
    return tuple(made[::-1])
"""

# One rank of those that hold a number counts it.
ONE_COUNTS = """
at = mesh.coordinates(comm.rank)
place, total = mesh.place(comm.rank), torch.zeros((), dtype=torch.float64)
for kind, gradient in gradients.items():
    counts = place < (mesh.ep if kind == "expert" else 1)
    counts &= kind != "whole" or at["tp"] == 0
    counts &= kind != "tied" or at["pp"] == 0
    total += counts * gradient.double().square().sum()
return comm.all_reduce(total) ** 0.5
"""

BANK = {
    "groups": [
        *in_place_of(
            "if axis not in along:",
            ("the others", "if axis in along:", "other way round"),
            ("the first axis", "if axis != along[0]:", "first axis of along"),
            ("the last axis", "if axis != along[-1]:", "last axis of along"),
        ),
        *in_place_of(
            "for axis, size in sizes.items():",
            (
                "slowest first",
                "for axis, size in list(sizes.items())[::-1]:",
                "Along which axis do ranks 0 and 1 differ",
            ),
        ),
        *in_place_of(
            "return list(found.values())",
            ("one group", "return [list(found.values())[0]]", "The others are asked for"),
            ("from 1", "return [[r + 1 for r in g] for g in found.values()]", "counted from 0"),
            ("too few", "return list(found.values())[1:]", "Every rank is in one group"),
        ),
        *in_place_of(
            "found = {}\n",
            (
                "each axis by itself",
                "return [g for axis in along for g in split(sizes, [axis])]\n",
                "differ along both",
            ),
        ),
        *one_wrong(
            GROUPS,
            RIGHT_GROUPS,
            0,
            ("dp alone", "[29, 37, 45]", "Do ranks of cp read other tokens"),
            ("the tensor group", "[28, 29, 30, 31]", "read the same tokens"),
        ),
        *one_wrong(
            GROUPS,
            RIGHT_GROUPS,
            1,
            ("all experts", "[25, 29, 33]", "hold different experts"),
            ("the data group", "[25, 29, 33, 37, 41, 45]", "hold the same experts"),
        ),
        *one_wrong(GROUPS, RIGHT_GROUPS, 2, ("the first", "0", "is not the first one")),
        *one_wrong(GROUPS, RIGHT_GROUPS, 3, ("a replica", "16", "other columns of the same rows")),
    ],
    "place": [
        *one_wrong(
            PLACE,
            RIGHT_PLACE,
            0,
            ("all of it", "615.3", "do all of its hops leave"),
            ("a closed pipeline", "359.975", "does not close"),
        ),
        *one_wrong(PLACE, RIGHT_PLACE, 1, ("the usual", "463", "How far apart")),
        *one_wrong(PLACE, RIGHT_PLACE, 2, ("all of the pipeline", "63", "How much does it save")),
        *one_wrong(
            PLACE,
            RIGHT_PLACE,
            3,
            ("the usual", "tp-cp-dp-pp", "the largest part of what crosses"),
            ("no pipeline", "tp-pp-cp-dp", "but context parallelism does"),
            ("tensor last", "pp-dp-cp-tp", "put the axes that send most first"),
            ("no axis", "tp-cp-pp", "each once"),
        ),
        Wrong(
            "no hop is left",
            "pp",
            "What does the third order add between nodes, and what does",
            "pp * (1 - 1 / 3)",
        ),
    ],
    "norm": [
        *in_place_of(
            "data = mesh.dp * mesh.cp",
            ("dp alone", "data = mesh.dp", "A kind is divided by 0"),
            ("cp alone", "data = mesh.cp", "Replicas hold the same"),
            ("every replica", "data, mesh = 1, replace(mesh, ep=1)", "ranks of a data group hold"),
        ),
        *in_place_of(
            '"cut": data',
            ("each replica", '"cut": 1', "cuts counts on each rank of a data group"),
            ("tp for the cut", '"cut": data * mesh.tp', "are different numbers"),
        ),
        *in_place_of(
            '"whole": data * mesh.tp',
            ("whole ones", '"whole": data', "each rank of its tensor group"),
            ("tp alone", '"whole": mesh.tp', "counts once on each rank of a data group"),
            ("all ranks", '"whole": 1', "on each rank of its stage"),
        ),
        *in_place_of(
            "ends = 2 if mesh.pp > 1 else 1",
            ("tied twice", "ends = 1", "on the first stage and on the last"),
            ("always two", "ends = 2", "With one stage there is one embedding"),
            ("all stages", "ends = mesh.pp", "as if all stages held it"),
        ),
        *in_place_of(
            "data * ends",
            ("tp", "data * ends * mesh.tp", "Tensor parallelism cuts the tied embedding"),
            ("stages alone", "ends", "embedding counts on each rank of a data group"),
            ("all ranks", "1", "embedding counts on each rank of a data group"),
        ),
        *in_place_of(
            "data // mesh.ep",
            ("as all others", "data", "How many do"),
            ("once a rank", "1", "do several ranks still hold"),
            ("tp", "data * mesh.tp // mesh.ep", "Tensor parallelism cuts them"),
            ("ep alone", "mesh.ep", "ranks that hold different ones"),
            ("times", "data * mesh.ep", "by more ranks than a data group has"),
            ("dp alone", "mesh.dp / mesh.ep", "each rank of a context group here"),
        ),
        *in_place_of(
            "float(comm.all_reduce(squares).sqrt())",
            ("squares", "float(comm.all_reduce(squares))", "the square of the norm"),
            (
                "each part of cp",
                "float(comm.all_reduce(mesh.cp * squares).sqrt())",
                "context group hold the same",
            ),
            ("roots", "float(comm.all_reduce(squares.sqrt()))", "Roots are added up"),
            ("alone", "float(squares.sqrt())", "of one rank's part"),
            (
                "the mean",
                "float(comm.all_reduce(squares / comm.size).sqrt())",
                "How often does each number count already",
            ),
        ),
        *in_place_of(
            "for kind, gradient in gradients.items())",
            (
                "tp for all",
                "/ (1 if kind == 'whole' else mesh.tp)\n"
                "                  for kind, gradient in gradients.items())",
                "Parts of a matrix are different numbers",
            ),
        ),
    ],
    "reports": [
        *one_wrong(REPORTS, RIGHT_REPORTS, 0, ("cp", "2", "Which axis does here")),
        *one_wrong(
            REPORTS,
            RIGHT_REPORTS,
            1,
            ("a sum", "4", "too small"),
            ("micro-batches", "6", "the log would be, too"),
        ),
        *one_wrong(
            REPORTS,
            RIGHT_REPORTS,
            2,
            ("cp", "3", "by the number of context ranks"),
            ("a rate", "8", "Neither is"),
        ),
        *one_wrong(
            REPORTS,
            RIGHT_REPORTS,
            3,
            ("longer", "15", "How many times as long"),
            ("the pipeline", "5", "has the milliseconds of the tensor axis"),
        ),
        *one_wrong(
            REPORTS,
            RIGHT_REPORTS,
            4,
            ("micro-batches", "4", "number of micro-batches"),
            ("the other way round", "1/3", "By what do they become right"),
            ("another", "7", "Which column of the report measures"),
        ),
        *one_wrong(
            REPORTS,
            RIGHT_REPORTS,
            5,
            ("both", "16", "has done so twice"),
            ("the other way round", "0.25", "By what do they become right"),
        ),
        Wrong(
            "the log of C is right",
            "loss]",
            "By what is each divided once too often, and does the log",
            "loss / micro_batches]",
        ),
    ],
    "step": [
        *in_place_of(
            "return m * slowest + bubble + gradients",
            ("no bubble", "return m * slowest + gradients", "leave the pipeline"),
            (
                "slowest stages",
                "return (m + pp - 1) * slowest + gradients",
                "as slow as the slowest",
            ),
            ("all", "return m * slowest + sum(stages) + gradients", "itself is in the bubble"),
            ("in series", "return m * sum(stages) + gradients", "at the same time"),
            ("no gradients", "return m * slowest + bubble", "gradients are missing"),
            ("each", "return m * slowest + bubble + m * gradients", "after the passes"),
        ),
        *in_place_of(
            "stages[-1] += head",
            ("no head", "pass", "The head is missing"),
            ("every head", "stages = [one + head for one in stages]", "One has"),
        ),
        *in_place_of(
            "slowest = sorted(stages)[-1]",
            ("the last", "slowest = stages[-1]", "have one layer more"),
            ("the first", "slowest = stages[0]", "has the head besides"),
        ),
        *in_place_of(
            "each, over = divmod(layers, pp)",
            ("parts of layers", "each, over = layers / pp, 0", "A stage has whole layers"),
            ("rounded down", "each, over = layers // pp, 0", "on no stage"),
        ),
        *in_place_of(
            "2 * (data - 1) / data * nbytes",
            ("once", "(data - 1) / data * nbytes", "first adds them up"),
            ("twice", "2 * nbytes", "all of its gradients twice"),
            ("whole buffers", "2 * (data - 1) * nbytes", "sends in one round"),
        ),
        *in_place_of(
            "predicted = step(**given())",
            ("no gradients", "predicted = step(**given() | {'data': 1})", "without the gradients"),
            ("other stages", "predicted = step(**given(pp=8))", "has all arguments of this step"),
        ),
        *in_place_of(
            "waits = bubble / predicted",
            ("seconds", "waits = bubble", "Which part of the step"),
            ("a law", "waits = 3 / 19", "equal stages"),
            ("a quarter", "waits = 0.25", "Of which whole is it a part"),
        ),
        *in_place_of(
            "doubled = step(**given(m=32)) / predicted",
            ("twice", "doubled = 2.0", "What doubles"),
            ("seconds", "doubled = step(**given(m=32))", "These are seconds"),
            ("half more", "doubled = 1.5", "stands for the micro-batches"),
        ),
    ],
    "wide": [
        *one_wrong(
            WIDE,
            RIGHT_WIDE,
            0,
            ("the peak", "8490.6", "60 % of it"),
            ("both directions", "1528.3", "both directions"),
            ("each alone", "764.16", "each of the two messages hides alone"),
        ),
        *one_wrong(
            WIDE,
            RIGHT_WIDE,
            1,
            ("the shards", "65.93", "left for the cut"),
            ("links", "0.8628", "The links have changed places"),
            ("tokens of all", "0.3432", "tokens of all 512 devices together"),
            ("divided once more", "175.7", "divided them once more"),
            ("no root", "60.3", "the square of the width"),
            ("upside down", "1.159", "Neurons and tokens have changed places"),
            ("a node", "8.5", "do both take equally long"),
        ),
        *one_wrong(WIDE, RIGHT_WIDE, 2, ("NVLink", "1318.7", "gathered by InfiniBand")),
        *one_wrong(WIDE, RIGHT_WIDE, 3, ("a node", "8", "With so many tokens")),
        Wrong(
            "one message alone",
            "rate /",
            "The seconds of both messages, at the degree that makes",
            "2 * rate /",
        ),
    ],
    "budget": [
        Wrong("too few", DESIGN.format(16, 1, 4, 4, 8, 1, 1), "No plan on so few nodes"),
        Wrong("too many", DESIGN.format(64, 1, 2, 16, 16, 1, 1), "do not halve a step"),
        Wrong("replicas", DESIGN.format(32, 1, 1, 256, 1, 1, 1), "most of it is state"),
        Wrong("large", DESIGN.format(32, 1, 1, 32, 8, 8, 1), "How many tokens has a micro-batch"),
        Wrong("late", DESIGN.format(32, 8, 1, 32, 1, 1, 1), "is not done in 25 days"),
        Wrong("cut", DESIGN.format(32, 8, 1, 8, 4, 1, 1), "all-reduces take long"),
        Wrong("deep", DESIGN.format(32, 1, 2, 8, 16, 1, 1), "and the bubble takes long"),
        Wrong("no plan", DESIGN.format(32, 8, 1, 8, 8, 1, 1), "No plan has"),
        Wrong("no choice", DESIGN.format(24, 8, 1, 8, 8, 1, 1), "is no choice"),
        *one_wrong(BUDGET, RIGHT_REST, 0, ("cards", "inter", "Faster cards help")),
        *one_wrong(
            BUDGET,
            RIGHT_REST,
            1,
            ("faster", "16.6", "in the same time"),
            ("cards", "1.5", "what faster cards save"),
            ("links", "2.87", "faster links inside a node save"),
            ("32 nodes", "8.77", "This is on 32 nodes"),
        ),
        *one_wrong(
            BUDGET,
            RIGHT_REST,
            2,
            ("the bubble", "bubble", "the other plan is longer"),
            ("the head", "head", "more devices have one"),
        ),
        Wrong(
            "however late",
            "if taken:",
            "Of the three numbers of nodes, which are done in time with",
            "if taken <= days:",
        ),
    ],
}

# The wrong values that the sealed hints of a check are for, in their order.
SEALED = {
    "groups": {
        "with_rank(partners, 29)": [[29, 37, 45], [25, 29], [28, 29, 30, 31], [5, 29], [25, 27, 29, 31, 33, 35], [25, 26, 27, 28, 29, 30]],
        "with_rank(holders, 29)": [[25, 29, 33], [25, 29, 33, 37, 41, 45], [29, 33], [29, 37, 45], [25, 29]],
        "other": [53, 1, 4, 28, 24, 0, 29],
        "readers": [4, 2, 6, 16, 12, 7, 48, 24],
    },
    "place": {
        "usual": [615.3, 412.3, 513.8, 437.675, 359.975, 2662.05, 463050.0],
        "dp_first": [463.05, 1562.55, 2814.3, 2611.3, 2249.75, 2558.97],
        "batch": [63.0221, 126.044, 378.132, 252.088, 189.066],
    },
    "reports": {
        "run_a": [2, 4, 5, 7, 8],
        "run_b": [4, 5, 6, 7, 8, 2],
        "run_c": [3, 4, 5, 8, 7, 2],
        "longer_a": [0.0625, 15, 2.7415, 38.4],
        "factor_b": [2, 6, 12, 4, 0.333333],
        "factor_c": [3, 2, 16, 8, 0.25],
    },
    "step": {
        "predicted": [2.59818, 2.74772, 2.88302],
        "waits": [0.420143, 0.1875, 0.157895, 13.9197, 0.152906, 0.161706, 0.860803],
        "doubled": [2.0, 5.3459, 0.564605, 0.885574, 1.91035, 1.8608],
    },
    "wide": {
        "tokens": [8490.63, 5094.38, 1528.31, 764.157, 27509.7, 339.625, 1564990.0, 12226.5],
        "cut": [65.9333, 0.862824, 593.4, 175.711, 2.58847, 4.65925, 0.343186, 60.3017, 1.15898],
        "alone": [19780.0, 1318.67, 23736.0, 5934.0, 47472.0, 3056.63, 6076420.0],
        "power": [8, 2, 16, 1, 128],
    },
    "budget": {
        "in_small_letters(binds)": ["inter", "intra", "memory_bandwidth", "flops"],
        "shorter": [16.5724, 1.16572, 0.142164, 1.5005, 45.246, 8.76952, 2.68972, 85.7836, 2.86546],
        "in_small_letters(part)": ["bubble", "products", "gradients", "all_reduces", "head", "memory"],
    },
}  # fmt: skip

# Answers that are built otherwise: what came, its source, words of the sentence, what it replaces.
OTHERWISE: dict[str, list[tuple[str, ...]]] = {
    "groups": [
        ("a number", GROUPS.format(29, "[29, 41]", 5, 8), "should be a list of whole numbers"),
        ("a list", GROUPS.format("[25, 29, 33, 37, 41, 45]", "[29, 41]", "[5]", 8), "take them off"),
        ("a dictionary", "return found", "should be a list of lists",
         "return list(found.values())"),
    ],
    "place": [
        ("a list", PLACE.replace('"{}"', "{}").format(463.05, 2662.05, 94.5, '["tp", "cp"]'),
         "should be text"),
        ("a text", PLACE.format('"463 GB"', 2662.05, 94.5, "tp-cp-pp-dp"),
         "write it without quotes"),
    ],
    "norm": [
        ("a pair", "return squares, data",
         "What rank 0 returns should be a number",
         "return float(comm.all_reduce(squares).sqrt())"),
        ("nothing", "comm.all_reduce(torch.ones(1))", "None came"),
    ],
    "reports": [
        ("a word", 'run_a = "tp"', "write it without quotes",
         "run_a = 1  # all numbers are right, and tp crosses nodes"),
        ("a list", REPORTS.format("[1]", 3, 6, 16, 3, 4), "take them off"),
    ],
    "step": [
        ("a list", "doubled = [1.77]", "take them off", "doubled = step(**given(m=32)) / predicted"),
        ("a text", 'waits = "14 %"', "write it without quotes", "waits = bubble / predicted"),
    ],
    "wide": [("a list", WIDE.format("[3057]", 7.77, 11868, 4), "take them off")],
    "budget": [
        ("a list", "design = [32, 8]", "the keys 'nodes', 'tp'"),
        ("a number", BUDGET.replace('"{}"', "{}", 1).format(1, 14.2, "exchanges"),
         "write a word in quotes"),
    ],
}  # fmt: skip

# The programs that are asked for, by question.
PROGRAMS = {"groups": "groups", "norm": "norm", "step": "step"}

RIGHT = {
    "groups": [
        ("rounded", GROUPS.format("(45, 41, 37, 33, 25)", "[41]", 5, 8)),
        ("a set", GROUPS.format("{25, 29, 33, 37, 41, 45}", "{29, 41}", 5, 8)),
        ("by rank", BY_RANK, "found = {}\n"),
    ],
    "place": [("rounded", PLACE.format(460, 2700, 95, "CP-TP-PP-DP"))],
    "norm": [("one counts", ONE_COUNTS)],
    "reports": [("as numbers", REPORTS.format(1, 3, 6, 16.0, 3, 4))],
    "step": [
        ("rounded", "doubled = 1.8", "doubled = step(**given(m=32)) / predicted"),
        (
            "another order",
            "return (m - 1) * max(stages) + sum(stages) + gradients",
            "return m * slowest + bubble + gradients",
        ),
    ],
    "wide": [("rounded", WIDE.format(3100, 7.8, 12000, 4))],
    "budget": [
        ("rounded", BUDGET.format("Memory", 14, " exchanges ")),
        (
            "tensor parallelism",
            BUDGET.replace("tp=1, cp=4", "tp=4, cp=1").format("memory", 14.2, "exchanges"),
        ),
    ],
}
