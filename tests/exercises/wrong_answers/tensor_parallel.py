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
        *in_place_of(
            '"kept": 4,',
            ("forward alone", '"kept": 2,', "How many branches has a layer"),
        ),
        *in_place_of(
            '"scores": 4,',
            ("a sum for softmax", '"scores": 5,', "between the two cuts"),
        ),
        *in_place_of(
            '"sp layer": [8, 5],',
            ("sp: everything twice", '"sp layer": [12, 8],', "then forward again as far as"),
        ),
        Wrong(
            "one phase of each sum",
            "calls * (ranks - 1)",
            "How many all-reduces are there, and how many bytes does a",
            "calls * 2 * (ranks - 1)",
        ),
    ],
    "chain": [
        *in_place_of(
            COLUMN_ROW,
            ("gathered between", '["all_gather", "all_reduce"]', "three times"),
        ),
        *in_place_of(
            COLUMN_COLUMN,
            ("a sum of columns", '["none", "all_reduce"]', "needs all neurons"),
        ),
        *in_place_of(
            ROW_COLUMN,
            ("relu of addends", '["none", "all_gather"]', "relu came before"),
        ),
        *in_place_of(
            ROW_ROW,
            ("too much summed", '["all_reduce", "all_reduce"]', "more than is needed"),
        ),
        *in_place_of(
            '"column, row": "none"',
            ("back: own neurons gathered", '"column, row": "all_gather"', "all that its product"),
        ),
        *in_place_of(
            '"column, column": "reduce_scatter"',
            ("back: addends joined", '"column, column": "all_gather"', "side by side"),
        ),
        *in_place_of(
            '"row, column": "all_reduce"',
            ("back: addends joined for rows", '"row, column": "all_gather"', "side by side"),
        ),
        *in_place_of(
            '"row, row": "all_gather"',
            ("back: scattered again", '"row, row": "reduce_scatter"', "gradients of all neurons"),
        ),
        Wrong(
            "what a rank has itself, too",
            "return phases *",
            "Which collective follows each product, and how wide is what",
            "return (ranks - 1) / ranks * phases *",
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
        ),
        *in_place_of(
            "losses = top + total.log() - target",
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
        ),
        Wrong(
            "a target on every rank",
            "rows = torch.arange(len(targets))\n"
            "    is_target = torch.zeros_like(logits, dtype=torch.bool)\n"
            "    is_target[rows, targets % logits.shape[1]] = True",
            "Every token's target is on one rank",
            "is_target = targets[:, None] == words  # on one rank for each token",
        ),
        *in_place_of(
            'top = comm.all_reduce(logits.max(dim=1).values, op="max")',
            ("nothing subtracted", "top = torch.zeros(len(targets))", "exp(800) is infinite"),
        ),
    ],
    "fault": [
        *in_place_of(
            '"sum": 1,',
            ("the sums of reduce", '"sum": 4,', "What does copy make of it"),
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
            ("own tokens sent, too", '"plain": 12 + 8 + 8 + 12,', "need no message"),
        ),
        *in_place_of(
            '"pieces": 11 + 11,',
            ("products hide", '"pieces": 9 + 9,', "what is left to do when the last"),
            ("four messages", '"pieces": 12 + 12,', "takes no time of its own"),
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
        Wrong(
            "a message for each rank",
            "steps, longer = ranks,",
            "With how many messages does each half begin or end, what",
            "steps, longer = ranks - 1,",
        ),
    ],
    "kept": [
        *in_place_of(
            '"relu": 2,',
            ("before and after relu", '"relu": 3,', "not both needed"),
        ),
        *in_place_of(
            '"gelu": 3,',
            ("as relu", '"gelu": 2,', "Can GELU's"),
        ),
        *in_place_of(
            '"gated": 5,',
            ("without x", '"gated": 4,', "What do G and U need"),
        ),
        *in_place_of(
            '"half": 2,',
            ("x is kept", '"half": 3,', "For whose gradient"),
        ),
        Wrong(
            "cut over four ranks, always",
            "times / 4",
            "Of what is kept, what is as wide as x, and what as wide as",
            "times / ranks",
        ),
    ],
    "design": [
        Wrong("the fastest of all", design(4, False, "none"), "It does not fit"),
        Wrong("more ranks instead", design(8, False, "none"), "Twice as many ranks"),
        Wrong("full recomputation", design(4, False, "full"), "repeats a third of all work"),
        Wrong("all remedies at once", design(8, True, "full"), "every remedy at once"),
        Wrong("a node and selective", design(8, False, "selective"), "more than it needs"),
        *in_place_of(
            'changes_first = "sequence_parallel"\n',
            ("scores kept first", 'changes_first = "recompute"\n', "needs the larger device"),
            ("smaller groups first", 'changes_first = "tp"\n', "No group of another size"),
        ),
        Wrong(
            "the fastest of all",
            "return min(all_designs, key=step_seconds)",
            "Of all designs, keep those that leave 5 GB of the device",
            "return min(fit, key=step_seconds)",
        ),
    ],
}

# The wrong values that the sealed hints of a check are for, in their order; ... is one that
# nobody has found.
SEALED = {
    "bytes": {
        "all_reduce_bytes": [3.67e8, 209715200, 83886080, 167772160, 7.34e7, 2.94e8, 1.84e7, 1174405120, 35800, 147],
        'told(sent, "kept")': [2, 8],
        'told(sent, "layer")': [6, 4, 8, 10, 12],
        'told(sent, "branches")': [6, 5],
        'told(sent, "sp kept")': [[4, 6], [4, 4], [2, 2], [8, 4], ...],
        'told(sent, "sp layer")': [[5, 8], [8, 6], [6, 5], ..., ..., [6, 4]],
        'told(sent, "sp branches")': [[4, 8], [8, 6], [8, 5], [6, 4]],
        'told(sent, "sp frozen")': [[6, 4], ..., ..., [2, 2]],
    },
    "fault": {
        'factor_of(factors, "sum")': [4, 0.25, 16, 0],
        'factor_of(factors, "bias")': [1, 4, 0],
        'factor_of(factors, "adam")': [0.25, 4, 0],
        'factor_of(factors, "loss")': [1, 0.25, 16, 0],
        'factor_of(factors, "clip")': [1, 0.5, 2, 1.41, 0.25, 4, 0],
        'factor_of(factors, "tied")': [0, 0.25, 4, 0.5, 2],
        'factor_of(factors, "gather")': [1, 0.25, 0, 16],
        'factor_of(factors, "masks")': [1, 4, 0.25],
    },
    "kept": {
        'kept_of(kept, "relu")': [3, 1, 5, 9],
        'kept_of(kept, "gelu")': [2, 9, 5],
        'kept_of(kept, "gated")': [4, 3, 6, 17],
        'kept_of(kept, "half")': [3, 1],
        'kept_of(kept, "relu frozen")': [0, 2],
        'kept_of(kept, "gelu frozen")': [0, 2, 3],
        'kept_of(kept, "gated frozen")': [1, 2, 4, 0, 5],
        'kept_of(kept, "gathered")': [2.25, 0.75, 3.25],
        'kept_of(kept, "again")': [3, 2, 0.75],
    },
    "design": {
        "changes_first": ['tp'],
        "from_gb": [80, 79.2, 84, 84.2, 105, 117, 72],
    },
}  # fmt: skip


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
