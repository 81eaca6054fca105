"""Wrong answers to the exercises of tensor_parallel."""

from tests.exercises.wrong_answers import DIRECT, Wrong, in_place_of

S = "4096 * 10240 * 2"
COLUMN_ROW, ROW_COLUMN = '["none", "all_reduce"]', '["all_reduce", "all_gather"]'
COLUMN_COLUMN, ROW_ROW = '["all_gather", "all_gather"]', '["reduce_scatter", "all_reduce"]'

# The whole matrices on every rank, joined from the shards.
GATHERED = """
whole_up = comm.all_gather(up.T.contiguous()).T
whole_down = comm.all_gather(down)
z = x @ whole_up
y = z.relu() @ whole_down
grad_z = grad_y @ whole_down.T * (z > 0)
first = comm.rank * up.shape[1]
own = slice(first, first + up.shape[1])
return y, grad_z @ whole_up.T, (x.T @ grad_z)[:, own], (z.relu().T @ grad_y)[own]
"""

GATHERED_LOGITS = """
whole = comm.all_gather(logits.T.contiguous()).T
tokens = torch.arange(len(targets))
grad = whole.softmax(1)
grad[tokens, targets] -= 1
losses = whole.logsumexp(1) - whole[tokens, targets]
return losses, grad[:, first : first + logits.shape[1]]
"""

# Repairs that call the faulty step.
STEP = "found = step(comm, x, grad_y, scale, up, down, bias)\n"
SCALE_SUMMED = STEP + 'return found | {"scale": comm.all_reduce(found["scale"])}'
SCALE_OVER_X = STEP + 'return found | {"scale": (found["x"] / scale * x).sum(dim=0)}'
SCALE_TIMES = STEP + 'return found | {"scale": comm.size * found["scale"]}'
EVERYTHING_SUMMED = """
names = ("scale", "up", "down", "bias")
return found | {name: comm.all_reduce(found[name]) for name in names}
""".strip()
BOTH_SUMMED = 'return found | {n: comm.all_reduce(found[n]) for n in ("scale", "bias")}'
GRADIENT_AGAIN = """
grad_normed = comm.all_reduce(grad_y @ down.T * ((x * scale) @ up > 0) @ up.T)
return found | {"scale": (grad_normed * x).sum(dim=0)}
""".strip()

BODY = "normed = x * scale\n"

PIECES = "plain", "pieces", "late", "early", "fast", "slow", "eight", "halves"


def instead(source: str) -> str:
    """A body that returns before the solution's begins."""
    return source.replace("\n", "\n    ") + "\n"


def message(one: str) -> str:
    return f"all_reduce_bytes = {one}\nsent = {{}}"


def design(tp: int, sequence_parallel: bool, recompute: str) -> str:
    chosen = {"tp": tp, "sequence_parallel": sequence_parallel, "recompute": recompute}
    return f"design = {chosen}"


BANK = {
    "bytes": [
        Wrong("h squared", message("2 * 7 / 8 * 10240**2 * 2"), "the size of a weight matrix"),
        Wrong("a weight matrix", message("10240**2 * 2"), "a weight matrix"),
        Wrong("the buffer", message(S), "This is the buffer"),
        Wrong("the limit of many ranks", message(f"2 * {S}"), "limit for very many ranks"),
        Wrong("one phase", message(f"7 / 8 * {S}"), "This is one phase"),
        Wrong("32 bits", message(f"2 * 7 / 8 * 2 * {S}"), "two bytes, not four"),
        Wrong("a message of 1/t", message(f"2 * 7 / 8 / 8 * {S}"), "not cut into t"),
        Wrong("sum over all ranks", message(f"2 * 7 * {S}"), "sum over all ranks"),
        Wrong("one token", message("2 * 7 / 8 * 10240 * 2"), "This is one token"),
        Wrong("megabytes", message("146.80064"), "not in MB"),
        *in_place_of(
            '"kept": 4,',
            ("forward alone", '"kept": 2,', "How many branches has a layer"),
            ("each matrix", '"kept": 8,', "Each branch, not each"),
        ),
        *in_place_of(
            '"scores": 4,',
            ("a sum for softmax", '"scores": 5,', "between the two cuts"),
            ("forward sums again", '"scores": 6,', "whom does it need"),
        ),
        *in_place_of(
            '"layer": 5,',
            ("all of forward again", '"layer": 6,', "the last ones too"),
            ("no sum again", '"layer": 4,', "Something is sent again"),
            ("everything twice", '"layer": 8,', "What is computed again is forward"),
        ),
        *in_place_of(
            '"branches": 4,',
            ("both sums again", '"branches": 6,', "Its last step is the sum"),
            ("as for the layer", '"branches": 5,', "input of the second branch is kept, too"),
        ),
        *in_place_of(
            '"sp kept": [6, 4],',
            ("sp kept: swapped", '"sp kept": [4, 6],', "all-gathers come first"),
            ("two halves for each whole", '"sp kept": [4, 4],', "which gradient needs all"),
            ("sp: forward alone", '"sp kept": [2, 2],', "This is forward alone"),
            ("gathered again at both ends", '"sp kept": [8, 4],', "how often in a layer"),
        ),
        *in_place_of(
            '"sp layer": [8, 5],',
            ("sp layer: swapped", '"sp layer": [5, 8],', "all-gathers come first"),
            ("sp: all of forward again", '"sp layer": [8, 6],', "reads the layer's last result"),
            ("sp: gathered once for both", '"sp layer": [6, 5],', "Too few gathers"),
            ("sp: nothing again", '"sp layer": [6, 4],', "without recomputation"),
            ("sp: everything twice", '"sp layer": [12, 8],', "then forward again as far as"),
        ),
        *in_place_of(
            '"sp branches": [8, 4],',
            ("sp branches: swapped", '"sp branches": [4, 8],', "all-gathers come first"),
            ("sp: both branches whole", '"sp branches": [8, 6],', "ends with its reduce-scatter"),
            ("sp: as for the layer", '"sp branches": [8, 5],', "ends with its reduce-scatter"),
            ("sp: free, as without it", '"sp branches": [6, 4],', "of a rank's own tokens"),
        ),
        *in_place_of(
            '"sp frozen": [4, 4],',
            ("sp: gathered for nobody", '"sp frozen": [6, 4],', "Is that needed here"),
            ("sp: no way back", '"sp frozen": [2, 2],', "still has to pass"),
        ),
    ],
    "chain": [
        *in_place_of(
            COLUMN_ROW,
            ("gathered between", '["all_gather", "all_reduce"]', "three times"),
            ("nothing at all", '["none", "none"]', "an addend of y only"),
            ("summed twice", '["all_reduce", "all_reduce"]', "adds up different"),
            ("addends joined", '["none", "all_gather"]', "have to be added"),
            ("scattered neurons", '["reduce_scatter", "all_reduce"]', "different ones"),
        ),
        *in_place_of(
            COLUMN_COLUMN,
            ("a sum of columns", '["none", "all_reduce"]', "needs all neurons"),
            ("y left in parts", '["all_gather", "none"]', "some columns of y"),
            ("columns summed", '["all_reduce", "all_gather"]', "joined, not added"),
        ),
        *in_place_of(
            ROW_COLUMN,
            ("relu of addends", '["none", "all_gather"]', "relu came before"),
            ("scattered too soon", '["reduce_scatter", "all_gather"]', "needs all"),
            ("half of y", '["all_reduce", "none"]', "some columns of y only"),
            ("addends of neurons joined", '["all_gather", "all_gather"]', "addend of all"),
        ),
        *in_place_of(
            ROW_ROW,
            ("too much summed", '["all_reduce", "all_reduce"]', "more than is needed"),
            ("relu of addends of rows", '["none", "all_reduce"]', "relu came before"),
            ("y not summed", '["reduce_scatter", "none"]', "y is their sum"),
            ("nothing summed", '["none", "none"]', "nobody has summed"),
        ),
        *in_place_of(
            '"column, row": "none"',
            ("back: own neurons summed", '"column, row": "all_reduce"', "adds up different things"),
            ("back: own neurons gathered", '"column, row": "all_gather"', "all that its product"),
        ),
        *in_place_of(
            '"column, column": "reduce_scatter"',
            ("back: as after a gather", '"column, column": "none"', "made only some of them"),
            ("back: too much summed", '"column, column": "all_reduce"', "sums of these alone"),
            ("back: addends joined", '"column, column": "all_gather"', "side by side"),
        ),
        *in_place_of(
            '"row, column": "all_reduce"',
            ("back: as after a sum", '"row, column": "none"', "went on with columns of its own"),
            (
                "back: a part of the sum",
                '"row, column": "reduce_scatter"',
                "gradient of all of them",
            ),
            ("back: addends joined for rows", '"row, column": "all_gather"', "side by side"),
        ),
        *in_place_of(
            '"row, row": "all_gather"',
            ("back: left in parts", '"row, row": "none"', "an addend of every neuron"),
            ("back: own neurons added", '"row, row": "all_reduce"', "joined, not added"),
            ("back: scattered again", '"row, row": "reduce_scatter"', "gradients of all neurons"),
        ),
    ],
    "mlp": [
        Wrong(
            "nothing is summed",
            "z = x @ up\ngrad_z = grad_y @ down.T * (z > 0)\n"
            "return z.relu() @ down, grad_z @ up.T, x.T @ grad_z, z.relu().T @ grad_y",
            "Nothing is summed",
        ),
        Wrong(
            "no all-reduce backward",
            "grad_x = grad_z @ up.T",
            "Backward needs an all-reduce, too",
            "grad_x = comm.all_reduce(grad_z @ up.T)",
        ),
        *in_place_of(
            "y = comm.all_reduce(neurons @ down)",
            ("no all-reduce forward", "y = neurons @ down", "sum them"),
            (
                "one sum too many",
                "y = comm.all_reduce(comm.all_reduce(neurons @ down) / comm.size)",
                "one all-reduce more than is needed",
            ),
        ),
        Wrong(
            "the mean of addends",
            'comm.all_reduce(grad_z @ up.T, op="mean")',
            "grad_x is a mean",
            "comm.all_reduce(grad_z @ up.T)",
        ),
        Wrong(
            "gradients of shards summed as in data parallelism",
            "return y, grad_x, comm.all_reduce(grad_up), comm.all_reduce(grad_down)",
            "mixes those of different shards",
            "return y, grad_x, grad_up, grad_down",
        ),
        Wrong(
            "gradient of down summed",
            "return y, grad_x, grad_up, comm.all_reduce(grad_down)",
            "down is cut",
            "return y, grad_x, grad_up, grad_down",
        ),
        Wrong(
            "no relu backward",
            "grad_z = grad_y @ down.T",
            "a neuron that was not above zero",
            "grad_z = grad_y @ down.T * (z > 0)",
        ),
        Wrong(
            "grad_y summed",
            "grad_y = comm.all_reduce(grad_y)\n    grad_down =",
            "it counts t times, and so does",
            "grad_down =",
        ),
        Wrong(
            "neurons summed before the relu",
            "z = comm.all_reduce(x @ up)",
            "z of other neurons was added up",
            "z = x @ up",
        ),
        Wrong("the matrices gathered", GATHERED, "Gathering the matrices sends weights"),
        Wrong(
            "the wrong product",
            "grad_up = x.T @ neurons",
            "Do on the shards what one device does",
            "grad_up = x.T @ grad_z",
        ),
    ],
    "loss": [
        Wrong("all logits gathered", GATHERED_LOGITS, "All logits were gathered"),
        Wrong(
            "its own words alone",
            "total = powers.sum(dim=1)",
            "runs over this rank's words only",
            "total = comm.all_reduce(powers.sum(dim=1))",
        ),
        *in_place_of(
            "powers / total[:, None] - is_target.float()",
            (
                "gradient by its own sum",
                "powers / powers.sum(dim=1)[:, None] - is_target.float()",
                "it needs that of all words",
            ),
            (
                "no target in the gradient",
                "powers / total[:, None]",
                "softmax - 1, on the rank that has it",
            ),
            (
                "gradient of the mean",
                "(powers / total[:, None] - is_target.float()) / len(targets)",
                "gradient of the mean of 12",
            ),
        ),
        *in_place_of(
            "losses = top + total.log() - target",
            ("no target", "losses = top + total.log()", "one rank has it, and all need it"),
            ("the sign", "losses = target - top - total.log()", "The sign of the loss"),
            (
                "a fourth message",
                "losses = comm.all_reduce(top + total.log() - target) / comm.size",
                "of four numbers a token",
            ),
        ),
        *in_place_of(
            "return losses,",
            (
                "a list",
                "return losses.tolist(),",
                "(a tensor, a tensor); in it, [0] is a list of 12",
            ),
            ("the mean", "return losses.mean(),", "not their mean or sum"),
        ),
        Wrong(
            "the mean and its gradient",
            "grad = powers / total[:, None] - is_target.float()\n"
            "    return losses.mean(), grad / len(targets)",
            "One loss for each token is wanted",
            "return losses, powers / total[:, None] - is_target.float()",
        ),
        Wrong(
            "a target on every rank",
            "rows = torch.arange(len(targets))\n"
            "    is_target = torch.zeros_like(logits, dtype=torch.bool)\n"
            "    is_target[rows, targets % logits.shape[1]] = True",
            "Every token's target is on one rank",
            "is_target = targets[:, None] == words  # on one rank for each token",
        ),
        Wrong(
            "words counted from 0 on every rank",
            "words = torch.arange(logits.shape[1])",
            "Every token's target is on one rank",
            "words = torch.arange(first, first + logits.shape[1])",
        ),
        *in_place_of(
            'top = comm.all_reduce(logits.max(dim=1).values, op="max")',
            ("nothing subtracted", "top = torch.zeros(len(targets))", "exp(800) is infinite"),
            (
                "nothing subtracted, and a message for nothing",
                "top = torch.zeros(len(targets))\n    comm.all_reduce(top)",
                "exp(800) is infinite",
            ),
            (
                "the largest logits summed",
                "top = comm.all_reduce(logits.max(dim=1).values)",
                'sums unless it is told op="max"',
            ),
            (
                "each subtracts its own",
                "top = logits.max(dim=1).values",
                "has subtracted the largest of its own logits",
            ),
        ),
    ],
    "fault": [
        *in_place_of(
            '"sum": 1,',
            ("the sums of reduce", '"sum": 4,', "What does copy make of it"),
            ("the mean of copy", '"sum": 1 / 4,', "What came to copy from reduce"),
            ("ranks differ", '"sum": 0,', "Follow one gradient"),
        ),
        *in_place_of(
            '"bias": 1 / 4,',
            ("right as y is", '"bias": 1,', "in its own addend alone"),
            ("b four times", '"bias": 4,', "a quarter of it"),
            ("b of each rank", '"bias": 0,', "finds the same of its own b"),
        ),
        *in_place_of(
            '"adam": 1,',
            ("as the gradient", '"adam": 0.25,', "By what does Adam divide it"),
            ("more", '"adam": 4,', "A mean is less"),
        ),
        *in_place_of(
            '"loss": 4,',
            ("averaged as the rest", '"loss": 1,', "Is U?"),
            ("a mean of fewer", '"loss": 1 / 4,', "larger or smaller"),
            ("own tokens alone", '"loss": 0,', "see all tokens"),
        ),
        *in_place_of(
            '"clip": 0.5**0.5,',
            ("no matter", '"clip": 1,', "is not the true one"),
            ("the square", '"clip": 0.5,', "factor of the square"),
            ("the norm", '"clip": 1.41,', "That is the norm"),
            ("all counted four times", '"clip": 1 / 4,', "Only copies are counted"),
        ),
        *in_place_of(
            '"tied": 1,',
            ("not summed", '"tied": 0,', "is each right for its own"),
            ("one of two uses", '"tied": 0.5,', "Autograd adds"),
            ("one of four ranks", '"tied": 1 / 4,', "Which other rank"),
        ),
        *in_place_of(
            '"gather": 4,',
            ("the adjoint", '"gather": 1,', "how often is it summed"),
            ("a part of it", '"gather": 1 / 4,', "divided by the number of ranks"),
        ),
        *in_place_of(
            '"masks": 0,',
            ("right", '"masks": 1,', "the same on every rank"),
        ),
        *in_place_of(
            BODY,
            ("not repaired", instead(STEP + "return found"), "that of the rank's own neurons"),
            ("its gradient summed by itself", instead(SCALE_SUMMED), "made of one tensor: which"),
            ("x's gradient over scale", instead(SCALE_OVER_X), "may be 0"),
            ("times the number of ranks", instead(SCALE_TIMES), "neurons do the same"),
            ("everything summed", instead(STEP + EVERYTHING_SUMMED), "those that are cut are"),
            ("bias summed, too", instead(STEP + BOTH_SUMMED), "bias was whole already"),
            ("one more sum of all tokens", instead(STEP + GRADIENT_AGAIN), "Two of them are made"),
        ),
        *in_place_of(
            "comm.all_reduce(grad_neurons @ up.T)",
            ("a mean", 'comm.all_reduce(grad_neurons @ up.T, op="mean")', "These are means"),
            ("not summed", "grad_neurons @ up.T", "who has the rest"),
        ),
        *in_place_of(
            '"x": grad_normed * scale',
            ("summed twice", '"x": comm.all_reduce(grad_normed * scale)', "a second time"),
        ),
        *in_place_of(
            '"scale": (grad_normed * x).sum(dim=0)',
            (
                "the mean of the ranks' parts",
                '"scale": (grad_normed * x).sum(dim=0) / comm.size',
                "This is a mean",
            ),
            (
                "of x's gradient",
                '"scale": (grad_normed * scale * x).sum(dim=0)',
                "scale is in it already",
            ),
            (
                "scale summed twice",
                '"scale": comm.all_reduce((grad_normed * x).sum(dim=0))',
                "whole by then",
            ),
        ),
    ],
    "pieces": [
        Wrong(
            "the longer of all messages and all products",
            f"milliseconds = {dict.fromkeys(PIECES, 18)}",
            "plain",
        ),
        *in_place_of(
            '"plain": 9 + 8 + 8 + 9,',
            ("one product with each matrix", '"plain": 9 + 2 + 2 + 9,', "Here nothing overlaps"),
            ("own tokens sent, too", '"plain": 12 + 8 + 8 + 12,', "need no message"),
        ),
        *in_place_of(
            '"pieces": 11 + 11,',
            ("products hide", '"pieces": 9 + 9,', "what is left to do when the last"),
            ("messages hide", '"pieces": 8 + 8,', "Which is longer in a step"),
            ("four messages", '"pieces": 12 + 12,', "takes no time of its own"),
            ("one after another in a step", '"pieces": 17 + 17,', "takes no time of its own"),
        ),
        *in_place_of(
            '"late": 13 + 11,',
            ("the order is all the same", '"late": 22,', "beside the first message"),
            ("everything one later", '"late": 15 + 11,', "Messages wait for no product"),
        ),
        *in_place_of(
            '"early": 11 + 13,',
            ("the order is all the same", '"early": 22,', "Which sums travel"),
            ("everything one later", '"early": 11 + 15,', "when the last has come"),
        ),
        *in_place_of(
            '"fast": 8 + 8,',
            ("a product and messages", '"fast": 5 + 5,', "how many products"),
            ("a message is left over", '"fast": 9 + 9,', "Which is longer in a step now"),
        ),
        *in_place_of(
            '"slow": 28 + 3,',
            ("when the slow one is done", '"slow": 16 + 16,', "one product of the slow rank"),
            ("the slow one's time", '"slow": 16 + 16 + 3,', "for whom is the one before"),
            ("it delays nobody", '"slow": 22,', "passes through the slow rank"),
            ("the first sum", '"slow": 29,', "which of them do the others' sums meet"),
        ),
        *in_place_of(
            '"eight": 11 + 11,',
            ("half of all", '"eight": 11,', "how many follow each other"),
            ("a product of half", '"eight": 11.5 + 11.5,', "And of a matrix"),
        ),
        *in_place_of(
            '"halves": 8 + 9 + 9,',
            ("all tokens in a message", '"halves": 8 + 18 + 18,', "for half of the tokens"),
            ("both halves with the first matrix", '"halves": 12 + 9 + 9,', "when can the first"),
            ("products hide the first", '"halves": 8 + 8 + 9,', "Which is longer"),
            ("one trip round the ring", '"halves": 8 + 8 + 4.5,', "How many messages"),
            ("all but the first products", '"halves": 8 + 9,', "beside the second all-reduce"),
        ),
    ],
    "kept": [
        *in_place_of(
            '"relu": 2,',
            ("before and after relu", '"relu": 3,', "not both needed"),
            ("x alone", '"relu": 1,', "Two matrices are trained"),
            ("all neurons", '"relu": 5,', "over four ranks"),
        ),
        *in_place_of(
            '"gelu": 3,',
            ("as relu", '"gelu": 2,', "Can GELU's"),
        ),
        *in_place_of(
            '"gated": 5,',
            ("without x", '"gated": 4,', "What do G and U need"),
            ("x twice", '"gated": 6,', "it counts once"),
            ("as gelu", '"gated": 3,', "two factors"),
        ),
        *in_place_of(
            '"half": 2,',
            ("x is kept", '"half": 3,', "For whose gradient"),
            ("half of it", '"half": 1,', "D is trained"),
        ),
        *in_place_of(
            '"relu frozen": 1,',
            ("nothing for weights, so nothing", '"relu frozen": 0,', "which neurons were 0"),
            ("x kept", '"relu frozen": 2,', "what do the two products need"),
        ),
        *in_place_of(
            '"gelu frozen": 1,',
            ("nothing", '"gelu frozen": 0,', "What does its slope depend on"),
            ("what D would read", '"gelu frozen": 2,', "Who would still read"),
        ),
        *in_place_of(
            '"gated frozen": 3,',
            ("silu alone", '"gated frozen": 1,', "not the only operation"),
            ("the factors alone", '"gated frozen": 2,', "each for the other's"),
            ("the product, too", '"gated frozen": 4,', "the product of the two"),
        ),
        *in_place_of(
            '"gathered": 3,',
            ("own tokens", '"gathered": 2.25,', "Does torch's product know"),
            ("both", '"gathered": 3.25,', "The gather itself"),
        ),
        *in_place_of(
            '"again": 2.25,',
            ("all tokens", '"again": 3,', "need not be kept"),
            ("no tokens", '"again": 2,', "Out of what"),
            ("all divided", '"again": 0.75,', "which of the three"),
        ),
    ],
    "design": [
        Wrong("the fastest of all", design(4, False, "none"), "It does not fit"),
        Wrong("no room to spare", design(4, False, "selective"), "It does not fit"),
        Wrong("scores are left", design(4, True, "none"), "It does not fit"),
        Wrong("the state alone is too much", design(2, True, "full"), "It does not fit"),
        Wrong("more ranks instead", design(8, False, "none"), "Twice as many ranks"),
        Wrong("full recomputation", design(4, False, "full"), "repeats a third of all work"),
        Wrong("all remedies at once", design(8, True, "full"), "every remedy at once"),
        Wrong("full and divided", design(4, True, "full"), "repeats a third of all work"),
        Wrong("a node and selective", design(8, False, "selective"), "more than it needs"),
        *in_place_of(
            'changes_first = "sequence_parallel"\n',
            ("scores kept first", 'changes_first = "recompute"\n', "needs the larger device"),
            ("smaller groups first", 'changes_first = "tp"\n', "No group of another size"),
        ),
        *in_place_of(
            "from_gb = -int(-memory_bytes(larger) // 1e9) + 5",
            ("none free", "from_gb = 80", "that are to be free"),
            ("none free, in a part of a GB", "from_gb = 79.237", "a whole number of GB is asked"),
            ("rounded down", "from_gb = 84", "a little more than 84"),
            ("what is needed", "from_gb = memory_bytes(larger) / 1e9 + 5", "that holds it"),
            ("what is needed, in few digits", "from_gb = 84.2", "that holds it"),
            ("the other remedy", "from_gb = 105", "tokens still divided"),
            ("both remedies", "from_gb = 117", "without either remedy"),
            ("the present design", "from_gb = 72", "another one fit"),
        ),
    ],
}


# Answers of another structure: what came, its source, words of the sentence, what of the solution it replaces.
MLP = "return y, grad_x, grad_up, grad_down"
LOSS = "return losses, powers / total[:, None] - is_target.float()"

OTHERWISE: dict[str, list[tuple[str, ...]]] = {
    "bytes": [
        ("a list", "all_reduce_bytes = [146800640.0]", "take them off"),
        ("a number for two", '"sp kept": 10,', "in it, ['sp kept'] is the number 10", '"sp kept": [6, 4],'),
        ("two numbers for one", '"kept": [2, 2],', "in it, ['kept'] is a list of 2", '"kept": 4,'),
    ],
    "chain": [
        ("a list", 'after = [["none", "all_reduce"]]', "a dictionary with the keys 'column, row'"),
        ("one word", '"all_reduce"', "is the text 'all_reduce'", '["none", "all_reduce"]'),
        ("three words", '["none", "none", "all_reduce"]', "is a list of 3", '["none", "all_reduce"]'),
        ("back as a list", '"column, row": ["none"]', "column, row is a list of 1, which is no choice", '"column, row": "none"'),
        ("back with another word", '"column, row": "nothing"', "is no choice that there is: take one of 'none'", '"column, row": "none"'),
        ("another word", '["nothing", "all_reduce"]', "after[\"column, row\"][0] is 'nothing': take one of \"none\", \"all_gather\"", '["none", "all_reduce"]'),
    ],
    "mlp": [
        ("swapped", "return grad_x, y, grad_up, grad_down", "(grad_x, y, grad_up, grad_down) came", MLP),
        ("y alone", "return y", "it is an array or tensor of shape (3, 4)", MLP),
        ("pairs", "return (y, grad_x), (grad_up, grad_down)", "it is a tuple of 2", MLP),
        ("by name", 'return {"y": y}', "a dictionary with the keys ['y']", MLP),
    ],
    "loss": [
        ("swapped", "return powers / total[:, None] - is_target.float(), losses", "(gradient, losses) came", LOSS),
        ("the loss alone", "return losses", "it is an array or tensor of shape (12,)", LOSS),
    ],
    "fault": [
        ("a tuple", instead(STEP + "return tuple(found.values())"), "it is a tuple of 6", BODY),
        ("scale alone", instead(STEP + 'return comm.all_reduce(found["scale"])'), "shape (4,)", BODY),
        ("a list", '"sum": [1],', "['sum'] is a list of 1", '"sum": 1,'),
        ("in words", '"masks": "differs",', "['masks'] is the text 'differs'", '"masks": 0,'),
    ],
    "pieces": [
        ("a list", "milliseconds = [34, 22, 24, 24, 16, 31, 22, 26]", "a dictionary with the keys 'plain'"),
        ("parts", '"late": [13, 11],', "['late'] is a list of 2", '"late": 13 + 11,'),
    ],
    "kept": [
        ("a list", "kept = [2, 3, 5]", "a dictionary with the keys 'relu'"),
        ("parts", '"relu": [1, 1],', "['relu'] is a list of 2", '"relu": 2,'),
    ],
    "design": [
        ("a tuple", 'design = (4, True, "selective")', "it is a tuple of 3"),
        ("text for a truth", 'design = {"tp": 4, "sequence_parallel": "yes", "recompute": "none"}', "take one of False, True"),
    ],
}  # fmt: skip

# The programs that are asked for, by question.
PROGRAMS = {"mlp": "mlp", "loss": "vocab_loss", "fault": "repaired"}

# Right answers of another kind: what came, its source, what of the solution it replaces.
STACKED = """
z = x @ up
neurons = z.relu()
grad_z = grad_y @ down.T * (z > 0)
addends = torch.stack([neurons @ down, grad_z @ up.T])
y, grad_x = {summed}
return y, grad_x, x.T @ grad_z, neurons.T @ grad_y
"""
PLAN = ', plan="halving_doubling" if comm.size == 4 else None'

STACKED_LOSS = """
top = comm.all_reduce(logits.max(dim=1).values, op="max"{plan})
powers = (logits - top[:, None]).exp()
words = torch.arange(first, first + logits.shape[1])
is_target = targets[:, None] == words
target = torch.where(is_target, logits, 0.0).sum(dim=1)
total, target = comm.all_reduce(torch.stack([powers.sum(dim=1), target]){plan})
return top + total.log() - target, powers / total[:, None] - is_target.float()
"""

# Every rank knows all targets, and so who has which. To each of the others it sends, of each token,
# the logarithm of the sum of its exponentials, and of those that it has the target's logit: in no
# more bytes than an all-reduce of three numbers a token, where no rank has too many targets.
ONE_ROUND = (
    DIRECT
    + """
owners, tokens = targets // logits.shape[1], len(targets)
lengths = [tokens + int((owners == rank).sum()) for rank in range(comm.size)]
if max(lengths) <= 6 * tokens // comm.size:
    is_target = targets[:, None] == torch.arange(first, first + logits.shape[1])
    mine = torch.cat([logits.logsumexp(dim=1), logits[is_target]])
    came = exchange([mine] * comm.size, [torch.empty(length) for length in lengths])
    whole = torch.stack([each[:tokens] for each in came]).logsumexp(dim=0)
    target = torch.empty(tokens)
    for owner, each in enumerate(came):
        target[owners == owner] = each[tokens:]
    return whole - target, (logits - whole[:, None]).exp() - is_target.float()
"""
)

# Each token's numbers go to one rank, which makes its loss of them and tells all the others.
BY_TOKENS = """
tokens, width = logits.shape
is_target = targets[:, None] == torch.arange(first, first + width)
target = torch.where(is_target, logits, 0.0).sum(dim=1)
parts = comm.all_to_all(torch.stack([logits.logsumexp(dim=1), target], dim=1))
whole, target = parts.view(comm.size, -1, 2).unbind(dim=2)
whole = whole.logsumexp(dim=0)
whole, losses = comm.all_gather(torch.stack([whole, whole - target.sum(dim=0)], dim=1)).unbind(1)
return losses, (logits - whole[:, None]).exp() - is_target.float()
"""

# y and the gradient of the norm's output are summed together.
TOGETHER = """
normed = x * scale
neurons = (normed @ up).relu()
grad_neurons = grad_y @ down.T * (neurons > 0)
addends = torch.stack([neurons @ down, grad_neurons @ up.T])
y, grad_normed = direct(addends.reshape(-1)).view(2, *x.shape)
return {"y": y + bias, "x": grad_normed * scale, "scale": (grad_normed * x).sum(dim=0),
        "up": normed.T @ grad_neurons, "down": neurons.T @ grad_y, "bias": grad_y.sum(dim=0)}
"""

RIGHT = {
    "bytes": [("rounded", "all_reduce_bytes = 150e6", f"all_reduce_bytes = 2 * 7 / 8 * ({S})")],
    "mlp": [
        ("one message for both sums", STACKED.format(summed="comm.all_reduce(addends)")),
        (
            "one message, by halving and doubling",
            STACKED.format(summed=f"comm.all_reduce(addends{PLAN})"),
        ),
        (
            "the best known",
            DIRECT + STACKED.format(summed="direct(addends.reshape(-1)).view(2, *x.shape)"),
        ),
    ],
    "loss": [
        ("one message for both sums", STACKED_LOSS.format(plan="")),
        ("one message, by halving and doubling", STACKED_LOSS.format(plan=PLAN)),
        ("the best known", ONE_ROUND + STACKED_LOSS.format(plan="")),
        ("fewer bytes, in two rounds", BY_TOKENS),
    ],
    "fault": [
        (
            "the best known",
            instead((DIRECT + TOGETHER).strip()),
            BODY,
        )
    ],
}
