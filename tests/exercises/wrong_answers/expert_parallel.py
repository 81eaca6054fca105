"""Wrong answers to the exercises of expert parallelism."""

from tests.exercises.wrong_answers import Wrong, in_place_of, one_wrong

TABLE = "most = {}\ndropped = {}\nleft_out = {}\nwait = {}"
REPORTS = "run_a, run_b, run_c, run_d, run_e = {}, {}, {}, {}, {}\nfactor = {}"
ROUTER = "slope = {}\nlearns = {}"
PRICE = "straight, once, limited = {}, {}, {}\nfrom_k, neurons = {}, {}"
DESIGN = (
    'design = {{"ep": {}, "nodes": {}, "tokens": {}, "recompute": {}}}\n'
    'loosened, saves = "memory", 1.34'
)
BEST = DESIGN.format(16, 1, 4096, False) + "\n"

RIGHT_TABLE = ["6", "7", "[10, 13]", "2.0357"]
RIGHT_REPORTS = ["3", "1", "6", "5", "7", "1 / 16"]
RIGHT_ROUTER = ["0.2388", '["b", "d"]']
RIGHT_PRICE = ["209715200", "110133409", "83886080", "3", "680.56"]

# Copy by copy.
LOOP = """
read, places, y = [0] * number, [], torch.zeros_like(x)
batch = x.new_zeros(number, most, x.shape[1])
every = [(t, i) for t in range(len(x)) for i in range(chosen.shape[1])]
for token, i in every:
    expert = int(chosen[token, i])
    if read[expert] < most:
        batch[expert, read[expert]] = x[token]
        places.append((token, i, expert, read[expert]))
        read[expert] += 1
made = read_batch(batch)
for token, i, expert, place in places:
    y[token] += weights[token, i] * made[expert, place]
return y
"""
SLOTS_FIRST = "every = [(t, i) for i in range(chosen.shape[1]) for t in range(len(x))]"

# All tokens on all ranks, and their results summed.
GATHERED = """
n, top = comm.size, max(int(many) for many in comm.all_gather(torch.tensor([len(x)])))


def of_all_ranks(part, value=0):
    missing = (0, 0, 0, top - len(x))
    return comm.all_gather(torch.nn.functional.pad(part, missing, value=value)).flatten(0, -2)


tokens, chose, by = of_all_ranks(x), of_all_ranks(chosen, number), of_all_ranks(weights)
places = [(chose == expert).nonzero() for expert in range(comm.rank, number, n)]
token, slot = torch.cat(places).unbind(1)
made = read_here(comm, tokens[token], [len(at) for at in places])
y = torch.zeros_like(tokens).index_add(0, token, by[token, slot, None] * made)
return comm.reduce_scatter(y)[: len(x)]
"""

# No message: each rank computes what all experts make of its tokens.
ALONE = """
y = torch.zeros_like(x)
for token, row in enumerate(chosen.tolist()):
    for i, expert in enumerate(row):
        if expert < number:
            y[token] += weights[token, i] * made_by(expert, x[token : token + 1])[0]
return y
"""

# Every rank is told the numbers of all ranks.
TOLD_ALL = """all_counts = comm.all_gather(counts[None]).view(n, n, held)
    coming = all_counts[:, comm.rank]"""

BANK = {
    "table": [
        *one_wrong(
            TABLE,
            RIGHT_TABLE,
            0,
            ("rounded down", "5", "Which way is a capacity rounded"),
            ("tokens", "3", "two copies"),
        ),
        *one_wrong(TABLE, RIGHT_TABLE, 1, ("tokens", "5", "Some lose both")),
        *one_wrong(
            TABLE,
            RIGHT_TABLE,
            2,
            ("a copy lost", "[9, 10, 11, 12, 13]", "the other one is read"),
            ("the busiest two", "[1, 2, 6, 10, 13]", "came in time"),
        ),
        *one_wrong(TABLE, RIGHT_TABLE, 3, ("an expert", "15 / 7", "ranks wait for ranks")),
        Wrong(
            "the mean and no more",
            "len(copies) // experts",
            "How many copies may an expert read at most, and how many",
            "-int(-factor * len(copies) // experts)",
        ),
    ],
    "padded": [
        *in_place_of(
            "kept = place < most",
            ("no capacity", "most = len(flat)\n    kept = place < most", "takes no more"),
            ("a place more", "most += 1\n    kept = place < most", "one copy more"),
            ("places from 1", "kept = place + 1 < most", "one copy less"),
        ),
        *in_place_of(
            "place = (here.cumsum(0) * here).sum(1) - 1  # 0 for an expert's first",
            (
                "the last ones",
                "place = (here.flip(0).cumsum(0).flip(0) * here).sum(1) - 1",
                "They are to keep the first",
            ),
        ),
        *in_place_of(
            "weighed = weights.flatten()[kept, None] * read_batch(batch)[at]",
            ("no weights", "weighed = read_batch(batch)[at]", "counts by its weight"),
        ),
        *in_place_of(
            "return torch.zeros_like(x).index_add(0, token, weighed)",
            (
                "assigned",
                "y = torch.zeros_like(x)\n"
                "    for one, row in zip(token, weighed):\n"
                "        y[one] = row\n"
                "    return y",
                "takes the place of an earlier one",
            ),
            (
                "scaled up",
                "y = torch.zeros_like(x).index_add(0, token, weighed)\n"
                "    left = (weights.flatten() * kept).view_as(weights).sum(1, keepdim=True)\n"
                "    return y / left.clamp(min=0.25)",
                "leave the others as they are",
            ),
        ),
        Wrong(
            "first choices first",
            LOOP.replace(LOOP.splitlines()[3], SLOTS_FIRST),
            "token by token",
        ),
    ],
    "ranks": [
        *in_place_of(
            "lies = (flat % n * held + flat // n).masked_fill(flat == number, number)",
            (
                "its own experts",
                "lies = (flat % n * held + flat // n).masked_fill(flat % n != comm.rank, number)\n"
                "    lies = lies.masked_fill(flat == number, number)",
                "have to travel",
            ),
            ("blocks", "lies = flat", "which rank has expert 5"),
        ),
        *in_place_of(
            "together = mine.repeat_interleave(coming.flatten()).argsort(stable=True)",
            ("not sorted", "together = torch.arange(len(arrived))", "over all ranks"),
        ),
        *in_place_of(
            "back = made[together.argsort()]",
            ("not put back", "back = made", "go back as they came"),
        ),
        *in_place_of(
            "weighed = returned * weights.flatten()[order, None]",
            ("no weights", "weighed = returned", "counts by its weight"),
            (
                "another's weights",
                "weighed = returned * weights.flatten()[: len(order), None]",
                "gets another's",
            ),
        ),
        *in_place_of(
            "return torch.zeros_like(x).index_add(0, order // k, weighed)",
            (
                "assigned",
                "y = torch.zeros_like(x)\n"
                "    for one, row in zip(order // k, weighed):\n"
                "        y[one] = row\n"
                "    return y",
                "takes the place of an earlier one",
            ),
        ),
        Wrong("gathered", GATHERED, "Other rows travel"),
        Wrong("every expert for oneself", ALONE, "has not their weights"),
    ],
    "reports": [
        *one_wrong(REPORTS, RIGHT_REPORTS, 0, ("a mixture", "4", "agree with each other")),
        *one_wrong(REPORTS, RIGHT_REPORTS, 1, ("a sum", "2", "by the number of all ranks")),
        *one_wrong(REPORTS, RIGHT_REPORTS, 2, ("holders", "8", "Which ranks do")),
        *one_wrong(REPORTS, RIGHT_REPORTS, 3, ("a mixture", "4", "would agree")),
        *one_wrong(REPORTS, RIGHT_REPORTS, 4, ("a mean", "1", "twice what is here")),
        *one_wrong(
            REPORTS,
            RIGHT_REPORTS,
            5,
            ("larger", "16", "too large, not too small"),
            ("a sum's", "1 / 96", "right for a sum"),
        ),
        Wrong(
            "E divides by the holders",
            "right * ranks / holders]",
            "The right gradient is the sum over the ranks that hold an",
            "right * ranks / mixture]",
        ),
    ],
    "router": [
        *in_place_of(
            "return scores.softmax(-1).gather(-1, chosen)",
            ("as it was", "return scores.gather(-1, chosen).softmax(-1)", "has no gradient"),
            ("sigmoids", "return scores.gather(-1, chosen).sigmoid()", "competes"),
            ("scores", "return scores.gather(-1, chosen)", "may be negative"),
            ("everybody's", "return scores.softmax(-1)", "Pick those"),
        ),
        *in_place_of(
            "return scores.gather(-1, chosen).softmax(-1)",
            (
                "over all, always",
                "return scores.softmax(-1).gather(-1, chosen)",
                "add up to one",
            ),
        ),
        *one_wrong(ROUTER, RIGHT_ROUTER, 0, ("the weight", "0.606", "How fast does it change")),
        *one_wrong(
            ROUTER,
            RIGHT_ROUTER,
            1,
            ("an auxiliary loss", '["a", "b", "d"]', "a gradient of its own"),
            ("sigmoids", '["b", "c", "d"]', "where one is chosen"),
        ),
    ],
    "price": [
        *one_wrong(
            PRICE,
            RIGHT_PRICE,
            0,
            ("all copies", "6144 * 5 * 10240", "own node"),
            ("that leave the device", "6144 * 5 * 23 / 24 * 10240", "inside the node"),
        ),
        *one_wrong(PRICE, RIGHT_PRICE, 1, ("to both", "6144 * 2 * 10240", "every token")),
        *one_wrong(PRICE, RIGHT_PRICE, 2, ("one other", "6144 * 10240", "not always")),
        *one_wrong(PRICE, RIGHT_PRICE, 3, ("of many ranks", "2", "one copy of four stays")),
        *one_wrong(PRICE, RIGHT_PRICE, 4, ("of one FLOP", "1361.1", "two FLOPs")),
        Wrong(
            "chosen twice, too",
            "elsewhere / experts",
            "With which probability does none of the k lie on a node",
            "(elsewhere - i) / (experts - i)",
        ),
    ],
    "design": [
        Wrong("inside a node", DESIGN.format(8, 1, 2048, True), "more than 80 GB"),
        Wrong("far apart", DESIGN.format(64, 8, 4096, False), "takes fewer seconds"),
        Wrong("no limit", DESIGN.format(16, 2, 4096, False), "what does it cost between nodes"),
        Wrong("small batches", DESIGN.format(16, 1, 2048, False), "as many rounds"),
        Wrong("no choice", DESIGN.format(4, 1, 2048, False), "is no choice"),
        Wrong("the cards", BEST + 'loosened = "cards"', "lie on two nodes at all"),
        Wrong("then", BEST + "saves = 7.5777", "what a step takes then"),
        Wrong(
            "whatever it takes",
            "if memory(each)",
            "Of all designs, keep those that fit, and take the one with",
            "if memory(each) <= gigabytes * 1e9",
        ),
    ],
}

# The wrong values that the sealed hints of a check are for, in their order.
SEALED = {
    "table": {
        "most": [5, 3, 10],
        "dropped": [4, 3, 9, 5, 2],
        "in_order_of_number(left_out)": [[9, 10, 11, 12, 13], [13], [10], [1, 2, 6, 10, 13]],
        "wait": [2.14286, 0.678571, 1.03571, 1.71429, 19],
    },
    "reports": {
        "run_a": [4, 1, 5],
        "run_b": [2, 7, 3],
        "run_c": [8, 4, 3],
        "run_d": [1, 3, 4],
        "run_e": [1, 2],
        "factor": [16, 0.166667, 0.0104167, 6],
    },
    "router": {
        "slope": [0.606037, 0, 0.367281, 0.393963, 0.2055],
        "letters(learns)": [["b"], ["d"], ["a", "b", "d"], ["b", "c", "d"], ["b", "d", "e"], ["a", "c", "e"], ["a", "b", "c", "d"]],
    },
    "price": {
        "straight": [314572800, 301466000, 104858000, 20480, 41943000],
        "once": [125829120, 165200000, 55066700, 15695700, 10755.2],
        "limited": [125829120, 62914560, 41943000, 209715000, 8192],
        "from_k": [2, 5, 1, 4],
        "neurons": [340.278, 777.778, 1020.83, 1361.11, 2041.67],
    },
    "design": {
        "in_small_letters(loosened)": ["cards", "balance"],
        "saves": [7.57766, 0.542782, 0.373093, 0.149981, 85.5706],
    },
}  # fmt: skip

# Answers that are built otherwise: what came, its source, words of the sentence, what it replaces.
OTHERWISE: dict[str, list[tuple[str, ...]]] = {
    "table": [
        ("a number", TABLE.format(6, 7, 2, 2.04), "should be a list of whole numbers"),
        ("texts", TABLE.format(6, 7, '["10", "13"]', 2.04), "[0] is the text '10'"),
        ("a text", TABLE.format('"6"', 7, "[10, 13]", 2.04), "write it without quotes"),
    ],
    "padded": [
        ("a pair", "return x, weights", "should be a tensor"),
        ("lists", "return x.tolist()", "should be a tensor; it is a list of 12"),
    ],
    "ranks": [
        ("a pair", "return x, weights", "What rank 0 returns should be a tensor"),
        ("nothing", "x.clone()", "None came"),
    ],
    "reports": [("a word", 'run_a = "all ranks"', "write it without quotes", "run_a = 3")],
    "router": [
        ("a text", ROUTER.format(0.2388, '"bd"'), "should be a list of texts"),
        ("numbers", ROUTER.format(0.2388, "[2, 4]"), "[0] is the number 2"),
        ("lists", "return [1.0]", "should be a tensor; it is a list of 1",
         "return scores.softmax(-1).gather(-1, chosen)"),
    ],
    "price": [("a list", PRICE.format("[2.1e8]", 1.1e8, 8.4e7, 3, 680), "take them off")],
    "design": [
        ("a list", "design = [16, 1]\nloosened, saves = 1, 2", "the keys 'ep', 'nodes'"),
        ("a number", BEST + "loosened = 1", "write a word in quotes"),
    ],
}  # fmt: skip

# The programs that are asked for, by question.
PROGRAMS = {"padded": "padded", "ranks": "there_and_back", "router": "weigh"}

RIGHT = {
    "table": [("rounded", TABLE.format("6", "7", "[13, 10]", "2.0"))],
    "padded": [("copy by copy", LOOP)],
    "ranks": [("told all numbers", TOLD_ALL, "coming = comm.all_to_all(leaving)")],
    "reports": [("rounded", REPORTS.format(3, 1, 6, 5, 7, 0.063))],
    "router": [
        ("rounded", ROUTER.format("0.24", '["D", "B"]')),
        (
            "scaled",
            "p = scores.softmax(-1).gather(-1, chosen)\n"
            "    return p if p.shape[-1] == 1 else p / p.sum(-1, keepdim=True)",
            "if chosen.shape[-1] == 1:\n"
            "        return scores.softmax(-1).gather(-1, chosen)\n"
            "    return scores.gather(-1, chosen).softmax(-1)",
        ),
    ],
    "price": [("rounded", PRICE.format("2.1e8", "1.1e8", "8.4e7", "3", "680"))],
    "design": [("rounded", BEST + "saves = 1.3")],
}
