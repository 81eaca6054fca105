"""Wrong answers to the exercises of ZeRO."""

from tests.exercises.wrong_answers import DIRECT, Wrong, in_place_of

BYTES = "held_1 = {}\ndevices_2 = {}\nsent_2 = {}\nsent_twice = {}\nsent_3 = {}"
TOKENS = "in_node = {}\nacross = {}\nnever_hidden = {}\nwaits = {}\nlower = {}"
REPORTS = (
    "run_a, run_b, run_c, run_d, run_e, run_f = {}, {}, {}, {}, {}, {}\n"
    "gathered, gathered_a = {}, {}"
)
DESIGN = (
    'design = {{"nodes": {}, "stage": {}, "shard": "{}", "tensor": {}, "micro_batches": {}}}\n'
    'loosened, saves, times_across = "memory", 15.9, 6'
)
CHEAPEST = DESIGN.format(8, 3, "node", 1, 4) + "\n"

# From the end of a unit's forward pass to the gather of its backward pass.
BETWEEN = '''return unit(weights, x), [shard, x]
    ### END SOLUTION


def pass_backward(comm, unit, kept, dy) -> tuple:
    """The gradient of the shard, and that of the input."""
    ### BEGIN SOLUTION
    shard, x = kept
    weights = comm.all_gather(shard).requires_grad_()'''


def one_of(
    form: str, right: list[object], place: int, *wrong: tuple[str, object, str]
) -> list[Wrong]:
    """Answers with another value in this place: misconception, value and hint."""
    return [
        Wrong(name, form.format(*right[:place], value, *right[place + 1 :]), hint)
        for name, value, hint in wrong
    ]


RIGHT_BYTES = ["112e9", "20", "2 * 10 / 11 * 44e9", "120e9", "520e9"]
RIGHT_TOKENS = ["350", "1475", "0.0221", "0.729", '["c", "e"]']
RIGHT_REPORTS = ["6", "5", "2", "1", "4", "3", "3e9", "60e9"]

BANK = {
    "bytes": [
        *one_of(
            BYTES,
            RIGHT_BYTES,
            0,
            ("no sharding", "352e9", "without any sharding"),
            ("stage 2", "22e9 * (2 + 14 / 11)", "keeps its gradients whole"),
            ("stage 3", "352e9 / 11", "has all weights and all gradients"),
            ("no master copy", "22e9 * (4 + 8 / 11)", "the master copy"),
            ("weights are sharded", "22e9 * (12 + 4 / 11)", "is what is sharded"),
            ("the shard alone", "22e9 * 12 / 11", "Weights and gradients are there, too"),
            ("without state", "88e9", "a shard of the optimizer's state"),
            ("without gradients", "22e9 * (2 + 12 / 11)", "Gradients are there"),
            ("gigabytes", "112", "in bytes, not in GB"),
        ),
        *one_of(
            BYTES,
            RIGHT_BYTES,
            1,
            ("rounded down", "19", "With 19 each still"),
            ("a part of a device", "19.25", "devices are whole"),
            ("stage 3", "6", "has all of the weights"),
            ("the card", "9", "with 80 GB"),
            ("without gradients", "17", "leaves out the gradients"),
        ),
        *one_of(
            BYTES,
            RIGHT_BYTES,
            2,
            ("the limit", "88e9", "limit for very many"),
            ("reductions alone", "10 / 11 * 44e9", "New weights come from somewhere"),
            ("the weights", "44e9", "These are the weights"),
            ("stage 3", "120e9", "This is stage 3"),
            ("all devices", "22 * 10 / 11 * 44e9", "sum over all devices"),
            ("shards", "2 * 44e9 / 11", "all parts but one"),
            ("two all-reduces", "4 * 10 / 11 * 44e9", "An all-reduce and more?"),
        ),
        *one_of(
            BYTES,
            RIGHT_BYTES,
            3,
            ("the all-reduce alone", "80e9", "sends new weights on top"),
            ("two all-reduces", "160e9", "gather of weights once"),
            ("the limit", "132e9", "limit for very many"),
            ("the gather alone", "40e9", "the gather alone"),
        ),
        *one_of(
            BYTES,
            RIGHT_BYTES,
            4,
            ("one micro-batch", "120e9", "This is one micro-batch"),
            ("reduces each", "720e9", "reduces the gradients of each"),
            ("one gather each", "7 * 10 / 11 * 44e9", "gathered again before backward"),
            ("gathers once", "8 * 10 / 11 * 44e9", "the other way round"),
            ("no reduction", "480e9", "the one reduction is missing"),
            ("an all-reduce at the end", "14 * 10 / 11 * 44e9", "not an all-reduce"),
            ("the limit", "572e9", "limit for very many"),
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
            (
                "everything aligned, not a shard",
                "shard = -(-sum(sizes) // align) * align // ranks",
                "is nowhere",
            ),
        ),
        Wrong(
            "the last rank takes the rest",
            """
            shard = sum(sizes) // ranks
            held, begin = [[] for _ in range(ranks)], 0
            for i, size in enumerate(sizes):
                for rank in range(ranks):
                    first = rank * shard - begin
                    stop = size if rank == ranks - 1 else min(first + shard, size)
                    if max(first, 0) < stop:
                        held[rank].append((i, max(first, 0), stop, max(-first, 0)))
                begin += size
            return held
            """,
            "The last rank holds more than the others",
        ),
        Wrong(
            "each parameter by itself",
            """
            held = [[] for _ in range(ranks)]
            places = [0] * ranks
            for i, size in enumerate(sizes):
                part = -(-size // ranks)
                for rank in range(ranks):
                    start, stop = min(rank * part, size), min((rank + 1) * part, size)
                    if start < stop:
                        held[rank].append((i, start, stop, places[rank]))
                        places[rank] += stop - start
            return held
            """,
            "cuts every parameter by itself",
        ),
        Wrong(
            "whole parameters",
            "return [[(i, 0, size, 0) for i, size in enumerate(sizes) if i % ranks == rank] for rank in range(ranks)]",
            "deals out whole parameters",
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
        Wrong(
            "stops within the shard",
            "piece = (parameter, start - first, stop - first, start - first)",
            "count within the rank's shard here",
            "piece = (parameter, start, stop, start - first)",
        ),
        Wrong(
            "starts and stops on the line of everything",
            "piece = (parameter, begin + start, begin + stop, start - first)",
            "count from the beginning of everything here",
            "piece = (parameter, start, stop, start - first)",
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
            "nothing is gathered",
            "flat[comm.rank * shard : (comm.rank + 1) * shard] = mine\n    new = []",
            "have to be gathered",
            "flat, new = comm.all_gather(mine), []",
        ),
        Wrong(
            "data parallelism",
            """
            new, both = [], []
            flat = comm.all_reduce(torch.cat([g.flatten() for g in gradients]), op="mean")
            line = torch.cat([w.flatten() for w in weights])
            zeros = torch.zeros(2, len(line))
            line, *moments = adamw(line, flat, *zeros, step)
            for w in weights:
                new.append(line[: w.numel()].view_as(w))
                line = line[w.numel() :]
            return new, torch.stack(moments)
            """,
            "that is no sharding",
        ),
        Wrong(
            "no reduction at all",
            """
            new, both = [], []
            flat = torch.cat([g.flatten() for g in gradients])
            line = torch.cat([w.flatten() for w in weights])
            zeros = torch.zeros(2, len(line))
            line, *moments = adamw(line, flat, *zeros, step)
            for w in weights:
                new.append(line[: w.numel()].view_as(w))
                line = line[w.numel() :]
            return new, torch.stack(moments)
            """,
            "Nothing is reduced",
        ),
        Wrong(
            "old weights",
            "return weights, torch.stack(moments)",
            "are the old ones",
            "return new, torch.stack(moments)",
        ),
        Wrong(
            "one line comes back",
            "return [w.flatten() for w in new], torch.stack(moments)",
            "cut into tensors of the old shapes",
            "return new, torch.stack(moments)",
        ),
        Wrong(
            "the steps count from 0",
            "adamw(mine, gradient, *moments, step - 1)",
            "has the number 1",
            "adamw(mine, gradient, *moments, step)",
        ),
        Wrong(
            "old moments",
            "return new, 0 * torch.stack(moments)",
            "this rank's new ones",
            "return new, torch.stack(moments)",
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
            "the steps count from 2",
            "adamw(mine, gradient, *moments, step + 1)",
            "the bias correction, which takes the step's number as it comes",
            "adamw(mine, gradient, *moments, step)",
        ),
        Wrong(
            "moments end to end",
            "return new, torch.cat(moments)",
            "one below the other, as torch.stack",
            "return new, torch.stack(moments)",
        ),
        Wrong(
            "moments end to end in a row",
            "return new, torch.cat(moments)[None]",
            "one below the other, as torch.stack",
            "return new, torch.stack(moments)",
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
            "new weights among zeros",
            "among = torch.zeros_like(flat)\n    among[comm.rank * shard :][:shard] = mine\n"
            "    flat, new = comm.all_reduce(among), []",
            "the second is enough",
            "flat, new = comm.all_gather(mine), []",
        ),
        Wrong(
            "new weights among zeros, after an all-reduce",
            """
            shard, total = moments.shape[1], sum(map(torch.numel, weights))
            padding = torch.zeros(shard * comm.size - total)
            flat = torch.cat([*(g.flatten() for g in gradients), padding])
            mean = comm.all_reduce(flat, op="mean")
            at = slice(comm.rank * shard, (comm.rank + 1) * shard)
            line = torch.cat([*(w.flatten() for w in weights), padding])
            mine, *moments = adamw(line[at], mean[at], *moments, step)
            among = torch.zeros_like(line)
            among[at] = mine
            among, new = comm.all_reduce(among), []
            for w in weights:
                new.append(among[: w.numel()].view_as(w))
                among = among[w.numel() :]
            return new, torch.stack(moments)
            """,
            "a vector with zeros reduced",
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
                "a view of the whole weights",
                "return unit(weights, x), [weights.chunk(comm.size)[comm.rank], x]",
                "keeps all of it alive",
            ),
            (
                "autograd keeps the whole weights",
                "return unit(weights.requires_grad_(), x), [shard, x]",
                "has a graph",
            ),
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
            ("each part", "too_long = 1", "So long is each part"),
            ("its inverse", "too_long = 0.2", "not too short"),
        ),
        *in_place_of(
            "0.5 / (0.5 / (2**2 + 0.5**2) ** 0.5)",
            ("the other way", "1 / 4.25**0.5", "The other way round"),
            ("lengths add up", "2.5", "two sides of a right angle"),
            ("it was short enough", "1", "all of it is to be shortened"),
            ("as the first", "2", "a little longer than that one"),
            ("the square", "4.25", "square of the length"),
            ("it was stretched", "2 * 4.25**0.5", "has left it as it was"),
            ("what it should be", "0.5 / 4.25**0.5", "How many times as long is it"),
            ("what it is", "0.5", "How long should it be"),
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
            "length = float(squares + few.square().sum()) ** 0.5",
            ("without few", "length = float(squares) ** 0.5", "`few` is a part of the gradient"),
            ("no root", "length = float(squares + few.square().sum())", "one root is missing"),
        ),
        *in_place_of(
            "factor = most / length if length > most else 1.0",
            ("always", "factor = most / (length + 1e-9)", "Clipping only shortens"),
            ("divided by zero", "factor = min(1.0, most / length)", "division by zero"),
        ),
        Wrong(
            "as it was",
            "factor = min(1.0, most / float(shard.norm()))",
            "by the length of its own shard",
            "factor = most / length if length > most else 1.0",
        ),
        Wrong(
            "few stays",
            "return shard * factor, few",
            "shortened by the same factor",
            "return shard * factor, few * factor",
        ),
        Wrong(
            "few is nothing",
            "length = float(squares) ** 0.5\n"
            "    factor = most / length if length > most else 1.0\n"
            "    return shard * factor, few",
            "counts in the length, and is shortened",
            "length = float(squares + few.square().sum()) ** 0.5\n"
            "    factor = most / length if length > most else 1.0\n"
            "    return shard * factor, few * factor",
        ),
    ],
    "reports": [
        *one_of(
            REPORTS,
            RIGHT_REPORTS,
            0,
            ("weights are kept", "3", "What does A send"),
            ("gradients stay", "7", "those of a shard"),
            ("state stays", "8", "that of a shard"),
            ("built before", "2", "those of one device"),
            ("not gathered", "5", "yet they are gathered twice"),
        ),
        *one_of(
            REPORTS,
            RIGHT_REPORTS,
            1,
            ("the same part", "4", "See the first loss"),
            ("all-reduced", "1", "more is sent, not less"),
            ("built before", "2", "something is learned here"),
        ),
        *one_of(
            REPORTS,
            RIGHT_REPORTS,
            2,
            ("not gathered", "5", "See the optimizer's state, too"),
            ("the same part", "4", "nothing is learned"),
            ("weights are kept", "3", "Weights from forward"),
        ),
        *one_of(
            REPORTS,
            RIGHT_REPORTS,
            3,
            ("state stays", "8", "that of a shard"),
            ("gradients stay", "7", "whole gradients anyway"),
            ("weights are kept", "3", "weights are whole anyway"),
        ),
        *one_of(
            REPORTS,
            RIGHT_REPORTS,
            4,
            ("not gathered", "5", "is another one already"),
            ("built before", "2", "It learns"),
        ),
        *one_of(
            REPORTS,
            RIGHT_REPORTS,
            5,
            ("one unit", "6", "What does F send"),
            ("not gathered", "5", "the weights are the new ones"),
            ("gradients stay", "7", "those of a shard"),
        ),
        *one_of(
            REPORTS,
            RIGHT_REPORTS,
            6,
            ("one unit", "1.5e9", "on its way already"),
            ("all", "60e9", "given back after use"),
            ("32 bits", "6e9", "2 bytes here"),
        ),
        *one_of(
            REPORTS,
            RIGHT_REPORTS,
            7,
            ("two of forty", "3e9", "with forty units"),
            ("parameters", "30e9", "2 bytes here"),
            ("twice", "120e9", "no second unit"),
        ),
    ],
    "tokens": [
        *one_of(
            TOKENS,
            RIGHT_TOKENS,
            0,
            ("the limit", "400", "limit for very many"),
            ("a card", "8400", "the cards are not needed"),
            ("all cards", "1050", "the cards are not needed"),
            ("4 bytes", "700", "Twice too many"),
            ("half", "175", "Half of it"),
            ("three collectives", "525", "it takes twice as long"),
            ("all compute", "350 / 3", "its own collectives"),
            ("all fabrics", "43.75", "all devices of the node are sent the same"),
        ),
        *one_of(
            TOKENS,
            RIGHT_TOKENS,
            1,
            ("one card", "9350", "by a card of its own"),
            ("one card and no fabric", "9525", "by a card of its own"),
            ("one card at the limit", "9600", "by a card of its own"),
            ("the fabric", "396.9", "the fabric alone"),
            ("the fabric, as in a node", "350", "the fabric alone"),
            ("the longer of both", "max(350, 1125)", "the seconds of both levels add up"),
            ("the cards among all devices", "1190.6", "the seconds of both levels add up"),
            ("the limit", "1600", "limit for very many"),
            ("one level of all devices", "1587.5", "goes in two steps"),
            ("the difference", "775", "one level from the other"),
            ("4 bytes", "2950", "Twice too many"),
        ),
        *one_of(
            TOKENS,
            RIGHT_TOKENS,
            2,
            ("one", "0.007375", "Where else in a step"),
            ("two", "0.01475", "at the middle"),
            ("four", "0.0295", "One too many"),
            ("the cards", "0.016875", "counts the cards alone"),
            ("the fabric", "0.00525", "counts the fabric alone"),
            ("the limit", "0.024", "limit for very many"),
            ("all layers", "0.295", "that of the second can"),
            ("three of all layers", "0.885", "that of the second can"),
            ("one card", "0.14025", "It has eight, at work at one time"),
            ("1 byte", "0.0110625", "travels in 2 bytes"),
            ("milliseconds", "22.125", "in seconds, not in ms"),
        ),
        *one_of(
            TOKENS,
            RIGHT_TOKENS,
            3,
            ("compute", "400 / 1475", "in which it computes"),
            ("for each second", "2.6875", "for each second of compute"),
            ("times as long", "3.6875", "What part of it"),
            ("the cards", "1 - 400 / 1125", "counts the cards alone"),
            ("nothing", "0", "on one node"),
            ("percent", "72.88", "not a percentage"),
            ("one card", "1 - 400 / 9350", "with one card"),
        ),
        *one_of(
            TOKENS,
            RIGHT_TOKENS,
            4,
            ("bytes alone", '["c"]', "What brings the weights faster"),
            ("cards alone", '["e"]', "fewer bytes"),
            ("faster devices", '["c", "d", "e"]', "done sooner"),
            ("more layers", '["a", "c", "e"]', "twice as many bytes"),
            ("more micro-batches", '["c", "e", "f"]', "half as long"),
            ("more nodes", '["b", "c", "e"]', "a little more, not less"),
            ("the others", '["a", "b", "d", "f"]', "do not lower it"),
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
        Wrong("what time saves", CHEAPEST + "saves = 4.67", "what 8 s save"),
        Wrong("what it takes", CHEAPEST + "saves = 127.03", "How much less"),
        Wrong("the part", CHEAPEST + "saves = 0.111", "wanted in device-seconds"),
        Wrong("nothing", CHEAPEST + "saves = 0", "May there be fewer"),
        Wrong("one micro-batch's", CHEAPEST + "times_across = 1.5", "with one micro-batch"),
        Wrong("the inverse", CHEAPEST + "times_across = 1 / 6", "The other way round"),
        Wrong("against nothing", CHEAPEST + "times_across = 12", "a copy in each node cross"),
        Wrong("micro-batches", CHEAPEST + "times_across = 4", "not the same already"),
    ],
}

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
