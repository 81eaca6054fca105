"""Wrong answers to the exercises of ZeRO."""

from tests.exercises.wrong_answers import DIRECT, Wrong, in_place_of, one_wrong

BYTES = "held_1 = {}\ndevices_2 = {}\nsent_2 = {}\nsent_twice = {}\nsent_3 = {}"
TOKENS = "in_node = {}\nacross = {}\nnever_hidden = {}\nwaits = {}\nlower = {}"
REPORTS = (
    "run_a, run_b, run_c, run_d, run_e, run_f = {}, {}, {}, {}, {}, {}\n"
    "gathered, gathered_a = {}, {}"
)
# From the end of a unit's forward pass to the gather of its backward pass.
BETWEEN = '''return unit(weights, x), [shard, x]
    ### END SOLUTION


def pass_backward(comm, kept, dy) -> tuple:
    """The gradient of the shard, and that of the input."""
    ### BEGIN SOLUTION
    shard, x = kept
    weights = comm.all_gather(shard).requires_grad_()'''
DESIGN = (
    'design = {{"nodes": {}, "stage": {}, "shard": "{}", "tensor": {}, "micro_batches": {}}}\n'
    'loosened, saves, times_across = "memory", 15.9, 6'
)
CHEAPEST = DESIGN.format(8, 3, "node", 1, 4) + "\n"


RIGHT_BYTES = ["112e9", "20", "2 * 10 / 11 * 44e9", "120e9", "520e9"]
RIGHT_TOKENS = ["350", "1475", "0.0221", "0.729", '["c", "e"]']
RIGHT_REPORTS = ["6", "5", "2", "1", "4", "3", "3e9", "60e9"]

BANK = {
    "bytes": [
        *one_wrong(
            BYTES,
            RIGHT_BYTES,
            0,
            ("no sharding", "352e9", "without any sharding"),
        ),
        *one_wrong(
            BYTES,
            RIGHT_BYTES,
            1,
            ("rounded down", "19", "With 19 each still"),
        ),
        *one_wrong(
            BYTES,
            RIGHT_BYTES,
            2,
            ("the limit", "88e9", "limit for very many"),
        ),
        *one_wrong(
            BYTES,
            RIGHT_BYTES,
            3,
            ("the all-reduce alone", "80e9", "sends new weights on top"),
        ),
        Wrong(
            "one gather a micro-batch",
            "gathers = micro_batches",
            "All three buckets are sharded",
            "gathers = 2 * micro_batches",
        ),
    ],
    "shards": [
        *in_place_of(
            "start - first)",
            ("places of everything", "start + begin)", "count from the beginning of everything"),
            ("all at the front", "0)", "cannot stand where the first one does"),
        ),
        *in_place_of(
            "shard = -(-sum(sizes) // (ranks * align)) * align",
            (
                "rounded down, and the rest to the last",
                "shard = sum(sizes) // ranks",
                "An element is lost",
            ),
            (
                "rounded down to a multiple",
                "shard = sum(sizes) // (ranks * align) * align",
                "Elements are lost",
            ),
            (
                "no alignment",
                "shard = -(-sum(sizes) // ranks)",
                "no multiple of 4",
            ),
        ),
        Wrong(
            "always one more",
            "shard = (sum(sizes) // (ranks * align) + 1) * align",
            "larger ones are not needed",
            "shard = -(-sum(sizes) // (ranks * align)) * align",
        ),
        *in_place_of(
            "if start < stop:",
            ("empty pieces", "if start <= stop:", "with nothing in it is none"),
        ),
        Wrong(
            "ranks without a piece are left out",
            "return [of_rank for of_rank in held if of_rank]",
            "Every rank has a list",
            "return held",
        ),
    ],
    "step": [
        Wrong(
            "the sum",
            "comm.reduce_scatter(flat)",
            "A reduce-scatter sums",
            'comm.reduce_scatter(flat, op="mean")',
        ),
        Wrong(
            "a handle, and nobody waits",
            'comm.reduce_scatter(flat, op="mean", async_op=True)',
            "of a handle, what wait() gives",
            'comm.reduce_scatter(flat, op="mean")',
        ),
        Wrong(
            "own gradient",
            "flat[comm.rank * shard :][:shard]",
            "What has to come before the update",
            'comm.reduce_scatter(flat, op="mean")',
        ),
        Wrong(
            "moments are forgotten",
            "adamw(mine, gradient, *(0 * moments), step)",
            "have to be used",
            "adamw(mine, gradient, *moments, step)",
        ),
        Wrong(
            "always the first step",
            "adamw(mine, gradient, *moments, 1)",
            "the bias correction, which needs the number of each step",
            "adamw(mine, gradient, *moments, step)",
        ),
        Wrong(
            "an all-reduce, and a part of it",
            'comm.all_reduce(flat, op="mean")[comm.rank * shard :][:shard]',
            "needs the first alone",
            'comm.reduce_scatter(flat, op="mean")',
        ),
        Wrong(
            "everybody's gradients",
            "comm.all_gather(flat).view(comm.size, -1).mean(0)[comm.rank * shard :][:shard]",
            "gathers everybody's gradients",
            'comm.reduce_scatter(flat, op="mean")',
        ),
        Wrong(
            "no padding",
            "padding = torch.zeros(0)",
            "must match the size",
            "padding = torch.zeros(shard * comm.size - elements)",
        ),
    ],
    "unit": [
        Wrong(
            "the unit on its shard",
            "weights = shard.clone().requires_grad_()",
            "Gather the shards",
            "weights = comm.all_gather(shard).requires_grad_()",
        ),
        Wrong(
            "a handle, and nobody waits",
            "weights = comm.all_gather(shard, async_op=True)\n    return",
            "of a handle, what wait() gives",
            "weights = comm.all_gather(shard)\n    return",
        ),
        Wrong(
            "the whole weights are kept",
            BETWEEN.replace("[shard, x]", "[weights, x]")
            .replace("shard, x = kept", "weights, x = kept")
            .replace("comm.all_gather(shard)", "weights.clone()"),
            "holds more than its shard",
            BETWEEN,
        ),
        Wrong(
            "the whole weights are kept elsewhere",
            BETWEEN.replace(
                "return", "unit.whole = {**getattr(unit, 'whole', {}), comm.rank: weights}; return"
            ).replace("comm.all_gather(shard)", "unit.whole[comm.rank].clone()"),
            "must have been kept somewhere",
            BETWEEN,
        ),
        *in_place_of(
            "return unit(weights, x), [shard, x]",
            (
                "the output in the place of the input",
                "y = unit(weights, x)\n    return y, [shard, y]",
                "the input that the unit had forward",
            ),
            ("the input comes back", "return x, [shard, x]", "Forward is wrong already"),
        ),
        *in_place_of(
            'return comm.reduce_scatter(gradient, op="mean"), dx',
            ("the sum", "return comm.reduce_scatter(gradient), dx", "sums unless told otherwise"),
            (
                "own gradient",
                "return gradient.chunk(comm.size)[comm.rank], dx",
                "nothing has come from the others",
            ),
            (
                "all of the mean",
                'return comm.all_reduce(gradient, op="mean"), dx',
                "the gradient of its shard alone",
            ),
            (
                "an all-reduce, and a part of it",
                'whole = comm.all_reduce(gradient, op="mean")\n'
                "    return whole.chunk(comm.size)[comm.rank], dx",
                "needs the first of them alone",
            ),
            (
                "the mean of dx",
                'return comm.reduce_scatter(gradient, op="mean"), comm.all_reduce(dx, op="mean")',
                "nothing of it has to travel",
            ),
            (
                "dx is divided, too",
                'return comm.reduce_scatter(gradient, op="mean"), dx / comm.size',
                "dx is that of the rank's own loss",
            ),
            (
                "dy goes on",
                'return comm.reduce_scatter(gradient, op="mean"), dy',
                "needs that for the input",
            ),
        ),
        Wrong(
            "dy is left out",
            "torch.autograd.grad(y.sum(), [weights, x])",
            "where does it go in",
            "torch.autograd.grad(y, [weights, x], dy)",
        ),
    ],
    "clip": [
        *in_place_of(
            "too_long = 25**0.5",
            ("lengths add up", "too_long = 25", "do not add up"),
        ),
        *in_place_of(
            "squares = comm.all_reduce(shard.square().sum().view(1))",
            ("its own length", "squares = shard.square().sum()", "Nothing is repaired"),
            (
                "few of every rank",
                "squares = comm.all_reduce((shard.square().sum() + few.square().sum()).view(1))"
                " - few.square().sum()",
                "it counts once for each",
            ),
            (
                "the mean",
                "squares = comm.all_reduce((shard.square().sum() + few.square().sum()).view(1),"
                ' op="mean") - few.square().sum()',
                "a mean makes them too small",
            ),
            (
                "the sum of lengths",
                "squares = (comm.all_reduce(shard.norm().view(1)) + few.norm()) ** 2"
                " - few.square().sum()",
                "adds lengths up",
            ),
            (
                "the longest",
                'squares = max(comm.all_reduce(shard.norm().view(1), op="max"), few.norm()) ** 2'
                " - few.square().sum()",
                "shorter than the whole",
            ),
            (
                "all shards are gathered",
                "squares = comm.all_reduce(torch.stack([shard.square().sum()] * 9))[:1]",
                "more than one number travels",
            ),
        ),
        *in_place_of(
            "factor = most / length if length > most else 1.0",
            ("always", "factor = most / (length + 1e-9)", "Clipping only shortens"),
            ("divided by zero", "factor = min(1.0, most / length)", "division by zero"),
        ),
    ],
    "reports": [
        *one_wrong(
            REPORTS,
            RIGHT_REPORTS,
            0,
            ("weights are kept", "3", "What does A send"),
            ("not gathered", "5", "yet they are gathered twice"),
        ),
        *one_wrong(
            REPORTS,
            RIGHT_REPORTS,
            1,
            ("the same part", "4", "See the first loss"),
        ),
        *one_wrong(
            REPORTS,
            RIGHT_REPORTS,
            2,
            ("not gathered", "5", "See the optimizer's state, too"),
        ),
        Wrong(
            "one unit at a time",
            "weights / units",
            "How many units are whole at a time, if one is gathered",
            "2 * weights / units",
        ),
    ],
    "tokens": [
        *one_wrong(
            TOKENS,
            RIGHT_TOKENS,
            0,
            ("the limit", "400", "limit for very many"),
        ),
        *one_wrong(
            TOKENS,
            RIGHT_TOKENS,
            1,
            ("one card", "9350", "by a card of its own"),
        ),
        *one_wrong(
            TOKENS,
            RIGHT_TOKENS,
            2,
            ("one", "0.007375", "Where else in a step"),
        ),
        *one_wrong(
            TOKENS,
            RIGHT_TOKENS,
            3,
            ("compute", "400 / 1475", "in which it computes"),
        ),
        Wrong(
            "all of it by the cards",
            "by_fabric = 0",
            "The seconds of both levels add up",
            "by_fabric = 7 / 8 / fabric",
        ),
    ],
    "design": [
        Wrong("all is small", DESIGN.format(2, 1, "node", 1, 1), "more than 80 GB"),
        Wrong("the cluster", DESIGN.format(8, 3, "cluster", 1, 4), "more than 4 s"),
        Wrong("one micro-batch", DESIGN.format(8, 3, "cluster", 1, 1), "could stay in a node"),
        Wrong("the next best", DESIGN.format(8, 3, "node", 2, 4), "the next best"),
        Wrong("tensor parallelism", DESIGN.format(8, 1, "cluster", 4, 2), "sharding alone"),
        Wrong("small micro-batches", DESIGN.format(8, 3, "node", 1, 8), "gather less often"),
        Wrong("many nodes", DESIGN.format(16, 3, "node", 1, 2), "on more devices"),
        Wrong("a choice that there is not", DESIGN.format(6, 3, "node", 1, 4), "is no choice"),
        Wrong("time", CHEAPEST + 'loosened = "seconds"', "has room for larger micro-batches"),
        Wrong(
            "whatever it takes",
            "if memory(each)",
            "Of all designs, keep those that take no more bytes and no",
            "if memory(each) <= most_bytes",
        ),
    ],
}

# The wrong values that the sealed hints of a check are for, in their order; ... is one that
# nobody has found.
SEALED = {
    "bytes": {
        "held_1": [3.52e11, 7.2e10, 3.2e10, 1.04e11, 2.72e11, 2.4e10, 8.8e10, 6.8e10, 112],
        "devices_2": [19, 19.2, 6, ..., ..., 9, 17],
        "sent_2": [8.8e10, 4e10, 4.4e10, 1.2e11, 8.8e11, 8e9, 1.6e11, 80],
        "sent_twice": [8e10, 1.6e11, 1.32e11, 4e10, 120],
        "sent_3": [1.2e11, 7.2e11, 2.8e11, 3.2e11, 4.8e11, 5.6e11, 5.72e11, 520],
    },
    "clip": {
        "too_long": [25, 1, 0.2, 0.04],
        "second": [0.485, 2.5, 1, 2, 4.25, 4.12, 0.243, 0.5],
    },
    "reports": {
        "run_a": [3, 7, 8, 2],
        "run_b": [4, 1, 2],
        "run_c": [5, 4, 3],
        "run_d": [8, 7, 3],
        "run_e": [5, 2],
        "run_f": [6, 5, 7],
        "gathered": [1.5e9, 6e10, 7.5e8, 6e9, 3],
        "gathered_a": [3e9, ..., 3e10, 1.2e11, 60],
    },
    "tokens": {
        "in_node": [400, 8400, 1050, 700, 175, 525, 117, 43.8],
        "across": [1125, 1190, 1200, 350, 397, 400, 9350, 9000, 9525, 9600, 1600, 1590, 775, 2950],
        "never_hidden": [0.00737, 0.0147, 0.0169, 0.0179, 0.00525, 0.024, 0.885, 0.295, 0.14, 0.0295, 0.0111, 22.1],
        "waits": [0.271, 2.69, 3.69, 0.644, ..., 0, 72.9, 0.957],
        "letters(lower)": [['c'], ['e'], ['c', 'd', 'e'], ['a', 'c', 'e'], ['c', 'e', 'f'], ['b', 'c', 'e'], ['a', 'b', 'd', 'f']],
    },
    "design": {
        "in_small_letters(loosened)": ['seconds'],
        "saves": [4.67, 127, 0.111, 0],
        "times_across": [1.5, 0.167, 12, 4, ...],
    },
}  # fmt: skip

# Answers that are built otherwise: what came, its source, words of the sentence, what it replaces.
OTHERWISE: dict[str, list[tuple[str, ...]]] = {
    "bytes": [("a list", "held_1 = [112e9]", "take them off")],
    "shards": [
        ("pieces without ranks", "return [(0, 0, 6, 0)]", "a list of lists of tuples of 4"),
        ("a dictionary", "return dict(enumerate(held))", "it is a dictionary", "return held"),
        ("no places", "piece = (parameter, start, stop)", "is a tuple of 3",
         "piece = (parameter, start, stop, start - first)"),
    ],
    "step": [
        ("weights alone", "return new", "a tuple of 2", "return new, torch.stack(moments)"),
        ("swapped", "return torch.stack(moments), new", "[0] is an array or tensor",
         "return new, torch.stack(moments)"),
        ("a list of moments", "return new, moments", "[1] is a list of 2",
         "return new, torch.stack(moments)"),
        ("one line", "return torch.cat([w.flatten() for w in new]), torch.stack(moments)",
         "[0] is an array or tensor", "return new, torch.stack(moments)"),
    ],
    "unit": [
        ("the output alone", "return unit(weights, x)", "What pass_forward returns should be",
         "return unit(weights, x), [shard, x]"),
        ("one tensor is kept", "return unit(weights, x), (shard, 3)", "[1][1] is the number 3",
         "return unit(weights, x), [shard, x]"),
        ("the gradient alone", 'return comm.reduce_scatter(gradient, op="mean")',
         "What pass_backward returns should be", 'return comm.reduce_scatter(gradient, op="mean"), dx'),
    ],
    "clip": [
        ("the shard alone", "return shard * factor", "a tuple of 2",
         "return shard * factor, few * factor"),
        ("three", "return shard, few, length", "it is a tuple of 3",
         "return shard * factor, few * factor"),
    ],
    "reports": [("a word", 'run_a = "one unit"', "write it without quotes", "run_a = 6")],
    "tokens": [
        ("a text", 'lower = "ce"', "should be a list of texts", 'lower = ["c", "e"]'),
        ("numbers", "lower = [3, 5]", "[0] is the number 3", 'lower = ["c", "e"]'),
    ],
    "design": [
        ("a list", "design = [8, 3]\nloosened, saves, times_across = 1, 2, 3",
         "the keys 'nodes', 'stage'"),
    ],
}  # fmt: skip

# The programs that are asked for, by question.
PROGRAMS = {"step": "sharded_step", "unit": "pass_forward", "clip": "clipped"}

# A reduce-scatter and a gather in which everybody sends to everybody at one time.
DIRECT_STEP = (
    DIRECT
    + """
shard = moments.shape[1]
padding = torch.zeros(shard * comm.size - sum(map(torch.numel, weights)))
flat = torch.cat([*(g.flatten() for g in gradients), padding])
parts = flat.chunk(comm.size)
gradient = sum(exchange(parts, [parts[comm.rank]] * comm.size)) / comm.size
flat = torch.cat([*(w.flatten() for w in weights), padding])
mine = flat[comm.rank * shard :][:shard]
mine, *moments = adamw(mine, gradient, *moments, step)
flat, new = torch.cat(exchange([mine] * comm.size, [mine] * comm.size)), []
for w in weights:
    new.append(flat[: w.numel()].view_as(w))
    flat = flat[w.numel() :]
return new, torch.stack(moments)
"""
)

# Right answers of another kind: what came, its source, what of the solution it replaces.
RIGHT = {
    "bytes": [("rounded", BYTES.format("110e9", "20", "80e9", "120e9", "520e9"))],
    "step": [("the best known", DIRECT_STEP)],
    "clip": [
        ("rounded", "second = 2.1", "second = 0.5 / (0.5 / (2**2 + 0.5**2) ** 0.5)"),
        (
            "the best known",
            'comm.all_reduce(shard.square().sum().view(1), plan="recursive_doubling")',
            "comm.all_reduce(shard.square().sum().view(1))",
        ),
        (
            "as torch does it",
            "factor = min(1.0, most / (length + 1e-6))",
            "factor = most / length if length > most else 1.0",
        ),
    ],
    "tokens": [("rounded", TOKENS.format("350", "1500", "0.022", "0.73", '["E", "C"]'))],
    "design": [("rounded", CHEAPEST + "saves = 16")],
}
