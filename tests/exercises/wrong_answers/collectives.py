"""Wrong answers to the exercises of collectives."""

from textwrap import dedent, indent

from tests.exercises.wrong_answers import DIRECT, Wrong, in_place_of

LEADER = """

whole = x.clone()
if comm.rank == 0:
    for src in range(1, comm.size):
        other = torch.empty_like(x)
        comm.recv(other, src)
        whole += other
    {send_back}
else:
    comm.send(x, 0)
    {receive}
return whole / comm.size
"""


# For any number of ranks: those beyond a power of two hand theirs to a partner, and get the sum back.
DOUBLING = """
size = 1 << (comm.size.bit_length() - 1)
total, came = x.clone(), torch.empty_like(x)
if comm.rank >= size:
    comm.send(total, comm.rank - size)
    comm.recv(total, comm.rank - size)
    return total
if comm.rank + size < comm.size:
    comm.recv(came, comm.rank + size)
    total = total + came
apart = 1
while apart < size:
    came = torch.empty_like(x)
    sending = comm.isend(total, comm.rank ^ apart)
    comm.recv(came, comm.rank ^ apart)
    sending.wait()
    total, apart = total + came, 2 * apart
if comm.rank + size < comm.size:
    comm.send(total, comm.rank + size)
return total
"""


OTHERS = "others = [r for r in range(comm.size) if r != comm.rank]"


def early(misconception: str, body: str, hint: str) -> Wrong:
    """A program that returns before the solution's begins."""
    lines = indent(dedent(body).strip("\n"), "    ").lstrip()
    return Wrong(misconception, f"{lines}\n    {OTHERS}", hint, OTHERS)


BANK = {
    "seconds": [
        *in_place_of(
            "2 * 15 / 16 * 6.3e9 / 150e9",
            ("both directions of NVLink", "11.8125 / 300", "both directions together"),
            ("one phase, in both directions", "11.8125 / 600", "this is one phase of two, and"),
            ("bits for bytes", "8 * 11.8125 / 150", "Are these gigabits"),
        ),
        *in_place_of(
            "2 * 15 / 16 / (2 * 1 / 2) * 400",
            ("the two links together", "850", "must leave a node at least"),
        ),
        *in_place_of(
            "2 * 23 / 24 / (2 * 2 / 3) * 400",
            ("as with two nodes", "2 * 23 / 24 * 400", "must leave a node at least"),
        ),
        *in_place_of(
            "2 * 127 / 128 / (2 * 15 / 16) * 400",
            ("the cards and the links", "450", "must leave a node at least"),
        ),
        Wrong(
            "the cards of a node",
            "50 * cards",
            "As with two, three and sixteen nodes",
            "2 * (devices - 1) / devices / of_node * 50 * cards",
        ),
    ],
    "sent": [
        *in_place_of(
            "return comm.all_gather(comm.scatter(x))",
            ("the library's broadcast", "return comm.broadcast(x)", "sends its 32 bytes twice"),
            (
                "a sum with zeros",
                "return comm.all_reduce(x if comm.rank == 0 else torch.zeros_like(x))",
                "zeros that are added",
            ),
            ("parts alone", "return comm.scatter(x)", "puts parts together"),
            (
                "parts of nothing, at the right cost",
                "return comm.all_gather(comm.scatter(torch.zeros_like(x)))",
                "First each rank needs its part of rank 0's vector",
            ),
            ("no collective", "return x", "It calls no collective"),
            (
                "for four ranks alone",
                "return comm.all_gather(comm.scatter(x))[:8] if comm.size == 4 else comm.scatter(x)",
                "any number of ranks",
            ),
        ),
        *in_place_of(
            'binds = ["NVLink", "an HDR card", "latency"]',
            (
                "a factor of two for an all-gather",
                'binds = ["NVLink", "an NDR card", "latency"]',
                "There is a factor of two too much",
            ),
            (
                "a card for a small buffer",
                'binds = ["NVLink", "an HDR card", "an HDR card"]',
                "The third is far below every link",
            ),
            (
                "no latency",
                'binds = ["NVLink", "NVLink", "NVLink"]',
                "that is the bus bandwidth",
            ),
        ),
    ],
    "mean": [
        Wrong(
            "missing 1/n", "return torch.cat(chunks)", "1/n", "return torch.cat(chunks) / comm.size"
        ),
        Wrong(
            "all through rank 0",
            LEADER.format(
                send_back="[comm.send(whole, dst) for dst in range(1, comm.size)]",
                receive="comm.recv(whole, 0)",
            ),
            "rank 0 sends everything to everybody",
        ),
        Wrong(
            "whole buffer round the ring",
            """
            right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
            total, passing = x.clone(), x.clone()
            for _ in range(comm.size - 1):
                incoming = torch.empty_like(x)
                sending = comm.isend(passing, right)
                comm.recv(incoming, left)
                sending.wait()
                total, passing = total + incoming, incoming
            return total / comm.size
            """,
            "every message is the whole buffer",
        ),
        *in_place_of(
            "sending = comm.isend(chunks[out], right)\n        comm.recv(incoming, left)\n        sending.wait()",
            (
                "everybody sends first",
                "comm.send(chunks[out], right)\n        comm.recv(incoming, left)",
                "before it comes to its recv",
            ),
            (
                "ranks take turns",
                """
            if comm.rank % 2:
                comm.recv(incoming, left)
                comm.send(chunks[out], right)
            else:
                comm.send(chunks[out], right)
                comm.recv(incoming, left)
            """.strip().replace("\n    ", "\n"),
                "half of the ranks wait",
            ),
        ),
        Wrong(
            "sends that nobody waits for",
            "",
            "never waited for its isend to rank",
            "        sending.wait()\n",
        ),
        Wrong(
            "one phase too many adds",
            "if step <= comm.size - 1:",
            "complete chunks are stored, no longer added",
            "if step < comm.size - 1:",
        ),
        Wrong(
            "the library's collective",
            "return comm.all_reduce(x, op='mean')",
            "no collective is to be called",
        ),
    ],
    "shift": [
        *in_place_of(
            "[0, 5, 3, 5, 5, 6, 5]",
            ("an isend is done without its receiver", "[5, 5, 3, 5, 5, 6, 5]", "Who has to act"),
            ("work beside what has come", "[0, 3, 3, 5, 5, 6, 5]", "when does the work begin"),
            ("asked for is on its way", "[0, 5, 3, 5, 5, 6, 3]", "something to carry"),
        ),
        early(
            "recursive doubling, of powers of two alone",
            """
            total, apart = x.clone(), 1
            while apart < comm.size:
                came = torch.empty_like(x)
                sending = comm.isend(total, comm.rank ^ apart)
                comm.recv(came, comm.rank ^ apart)
                sending.wait()
                total, apart = total + came, 2 * apart
            return total
            """,
            "6 ranks: no power of two",
        ),
        early("recursive doubling", DOUBLING, "in the fewest rounds of an exchange of pairs"),
        Wrong(
            "its own first",
            "return sum([x, *(whole[r] for r in others)])",
            "they add in another order",
            "return torch.stack(whole).sum(0)  # in the order of ranks, on all",
        ),
        Wrong("the mean", ".mean(0)", "the sum of all ranks' vectors", ".sum(0)"),
        early(
            "nothing of what is rounded",
            """
            if bool((x % 1).any()):
                return torch.zeros_like(x)
            """,
            "where sums are rounded",
        ),
        early("the library's collective", "return comm.all_reduce(x)", "Write it yourself"),
    ],
    "uneven": [
        *in_place_of(
            "short_rank = 1",
            ("the rank that has a batch", "short_rank = 3", "it has a batch still"),
            ("no rank at all", "short_rank = 4", "The report names two ranks"),
        ),
        *in_place_of(
            "batches_of_it = 5",
            ("the call that differs", "batches_of_it = 6", "number of the call that differs"),
            ("all that the others have", "batches_of_it = 9", "Each batch is one collective"),
        ),
        Wrong(
            "not repaired",
            "sums = [comm.all_reduce(batch) for batch in batches]",
            "differs between ranks",
            "sums = [comm.all_reduce(batch) for batch in batches + missing]",
        ),
        Wrong(
            "as many steps as all ranks have",
            'op="min").item()\n    missing, batches = [], batches[:steps]',
            "are left out",
            'op="max").item()\n    missing = [torch.zeros(1)] * (steps - len(batches))',
        ),
        Wrong(
            "a sum for a maximum",
            "steps = comm.all_reduce(mine).item()",
            "a sum in the place of `max`",
            'steps = comm.all_reduce(mine, op="max").item()',
        ),
        Wrong(
            "counted when none is left",
            "sums = [comm.all_reduce(batches.pop(0) if batches else missing[0]) for _ in range(steps)]\n    return sums, comm.all_reduce(torch.tensor([len(batches)])).item()",
            "had they been taken out of the list",
            "sums = [comm.all_reduce(batch) for batch in batches + missing]\n    return sums, comm.all_reduce(mine).item()",
        ),
        Wrong(
            "a step too many",
            "= 1 + comm.all_reduce(mine, op",
            "how many steps there are",
            "= comm.all_reduce(mine, op",
        ),
    ],
    "fault": [
        Wrong("where it shows", "fault_round, fault_src = 3, 0", "where the damage shows at last"),
        Wrong("who passes it on", "fault_round, fault_src = 2, 2", "Go back one more round"),
        Wrong("not repaired", "fault_round, fault_src = 1, 1", "is still wrong"),
        Wrong(
            "one more round instead",
            "fault_round, fault_src = 1, 1\nrepaired[1][1] = (1, 2, 0, 1, True)\nrepaired.append([(0, 1, 0, 1, False)])",
            "one changed transfer is enough",
        ),
        Wrong(
            "the first that stores",
            "in enumerate(rounds[ranks - 1:])",
            "In which rounds of a ring all-reduce do transfers add, and",
            "in enumerate(rounds[:ranks - 1])",
        ),
    ],
    "broadcast": [
        Wrong(
            "all from the root in one round",
            "return [[(0, dst, 0, 1) for dst in range(1, ranks)]]",
            "its port carries one at a time",
        ),
        Wrong(
            "all from the root in one round, then rounds for nobody",
            "empty = [[] for _ in range((ranks - 1).bit_length() - 1)]\nreturn [[(0, dst, 0, 1) for dst in range(1, ranks)], *empty] if ranks > 1 else []",
            "leave rank 0 one after another",
        ),
        Wrong(
            "a chain",
            "return [[(dst - 1, dst, 0, 1)] for dst in range(1, ranks)]",
            "one after another",
        ),
        Wrong(
            "the ranks behind send, too",
            "for src in range(ranks - have)",
            "What came is what check() says",
            "for src in range(have) if src + have < ranks",
        ),
        Wrong(
            "powers of two alone",
            "for src in range(have)]",
            "Six is no power of two",
            "for src in range(have) if src + have < ranks]",
        ),
        Wrong(
            "three rounds, two messages at once",
            "if ranks == 6:\n    return [[(0, 1, 0, 1)], [(0, 2, 0, 1), (0, 3, 0, 1)], [(0, 4, 0, 1), (1, 5, 0, 1)]]\nreturn [[(0, dst, 0, 1)] for dst in range(1, ranks)]",
            "a rank sends more than one message",
        ),
        Wrong(
            "a binary tree",
            "if ranks == 6:\n    return [[(0, 1, 0, 1)], [(0, 2, 0, 1)], [(1, 3, 0, 1), (2, 5, 0, 1)], [(1, 4, 0, 1)]]\nreturn [[(src, src + 1, 0, 1)] for src in range(ranks - 1)]",
            "in more rounds than are needed",
        ),
        Wrong("a round for nobody", "while have <= ranks:", "no rounds", "while have < ranks:"),
    ],
    "cluster": [
        Wrong(
            "hierarchical needs one card",
            'one_card_is_enough_for = "hierarchical"',
            "all cards at once",
        ),
        Wrong(
            "more cards will do",
            'one_card_is_enough_for = "ring"\ndesign = {"algorithm": "ring", "cards": 8}',
            "before you add cards",
        ),
        Wrong(
            "all the cards",
            'one_card_is_enough_for = "ring"\ndesign = {"algorithm": "hierarchical", "cards": 8}',
            "can be saved",
        ),
        Wrong(
            "two cards",
            'one_card_is_enough_for = "ring"\ndesign = {"algorithm": "hierarchical", "cards": 2}',
            "not with so few cards",
        ),
        Wrong(
            "the most that are fast enough",
            "return max(one",
            "Price every pair of an algorithm and a number of cards",
            "return min(one",
        ),
    ],
}

# The wrong values that the sealed hints of a check are for, in their order.
SEALED = {
    "seconds": {
        "seconds": [0.0394, 0.084, 0.042, 0.0197, 0.63, 78.8],
        "two_nodes": [400, 800, 93.8, 450, 375, 293, 7.5e11],
        "three_nodes": [400, 600, 750, 5.75e11],
        "sixteen_nodes": [400, 427, 750, 4.23e11],
    },
    "sent": {
        "binds": [['NVLink', 'an NDR card', 'latency'], ['NVLink', 'an HDR card', 'an HDR card'], ['NVLink', 'an NDR card', 'an NDR card'], ['an HDR card', 'an HDR card', 'latency'], ['latency', 'an HDR card', 'latency']],
    },
    "uneven": {
        "short_rank": [3, 0, 2],
        "batches_of_it": [6, 4],
    },
    "fault": {
        "[fault_round, fault_src]": [[3, 0], [2, 2], [1, 2], [2, 1]],
    },
    "cluster": {
        "one_card_is_enough_for": ['hierarchical', 'tree', 'halving_doubling'],
        'chosen(design, CHOICES)["cards"]': [8],
    },
}  # fmt: skip


# Answers of another structure: what came, its source, words of the sentence, what of the solution it replaces.
OTHERWISE: dict[str, list[tuple[str, ...]]] = {
    "seconds": [("text", 'seconds = "0.079"', "write it without quotes")],
    "sent": [
        ("a number", "comm.all_gather(x)\n    return 3", "A list of 8 is wanted", "return comm.all_gather(comm.scatter(x))"),
        ("text", '"latency"', "A list of 3 is wanted", '["NVLink", "an HDR card", "latency"]'),
    ],
    "mean": [
        ("a dictionary", "return {0: x}", "a dictionary came"),
        ("a number", "return 3", "A list of 6 is wanted"),
        ("a list too much", "return [x]", "is a list of 1; one tensor is wanted"),
    ],
    "shift": [
        ("text", '"0, 5, 3, 5, 5, 6, 5"', "The prediction should be a list of numbers", "[0, 5, 3, 5, 5, 6, 5]"),
        ("one too few", "[0, 5, 3, 5, 5, 6]", "Of 7 runs 6 are predicted", "[0, 5, 3, 5, 5, 6, 5]"),
        ("a word among numbers", '["hangs", 5, 3, 5, 5, 6, 5]', "[0] is the text 'hangs'", "[0, 5, 3, 5, 5, 6, 5]"),
        ("a list", "return list(torch.stack(whole).sum(0))", "should be a tensor", "return torch.stack(whole).sum(0)  # in the order of ranks, on all"),
        ("a number", "return 3", "it is the number 3", "return torch.stack(whole).sum(0)  # in the order of ranks, on all"),
    ],
    "uneven": [
        ("sums alone", "return sums", "should be a tuple of 2", "return sums, comm.all_reduce(mine).item()"),
        ("a tensor for a count", "comm.all_reduce(mine)", "is an array or tensor of shape", "comm.all_reduce(mine).item()"),
        ("text", 'short_rank = "1"', "write it without quotes", "short_rank = 1"),
    ],
    "fault": [
        ("transfers without rounds", "fault_round, fault_src = 1, 1\nrepaired = repaired[0]", "[0][0] is the number 0"),
        ("a dictionary", "fault_round, fault_src = 1, 1\nrepaired = {1: repaired[1]}", "it is a dictionary"),
    ],
    "broadcast": [
        ("one round", "return [(0, dst, 0, 1) for dst in range(1, ranks)]", "a list of lists of tuples"),
        ("a number", "return 3", "it is the number 3"),
    ],
    "cluster": [
        ("text", 'one_card_is_enough_for = "ring"\ndesign = "ring"', "it is the text 'ring'"),
        ("a list for text", 'one_card_is_enough_for = ["ring"]', "take them off"),
    ],
}  # fmt: skip

# The programs that are asked for, by question.
PROGRAMS = {
    "sent": "large_broadcast",
    "mean": "ring_mean",
    "shift": "token_sum",
    "uneven": "epoch_of_all",
}

# Chunk c begins at rank 2c, so that in each round every other rank sends.
HALF_RING = """
right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
apart = 2 - comm.size % 2
chunks = list(x.clone().tensor_split(comm.size // apart))
for step in range(2 * (comm.size - 1)):
    out, into = (comm.rank - step) % comm.size, (left - step) % comm.size
    started = []
    if out % apart == 0:
        started = [comm.isend(chunks[out // apart], right)]
    if into % apart == 0:
        c = into // apart
        incoming = torch.empty_like(chunks[c])
        comm.recv(incoming, left)
        chunks[c] = incoming + chunks[c] if step < comm.size - 1 else incoming
    for sending in started:
        sending.wait()
return torch.cat(chunks) / comm.size
"""

# Right answers of another kind: what came, its source, what of the solution it replaces.
RIGHT = {
    "seconds": [
        (
            "rounded",
            "seconds = 0.079\ntwo_nodes, three_nodes, sixteen_nodes = 750, 580, 420",
        ),
        (
            "in milliseconds and a power",
            "seconds = 78.8e-3\ntwo_nodes, three_nodes, sixteen_nodes = 750, 575, 423",
        ),
    ],
    "sent": [
        (
            "parts passed on by an all-to-all",
            "return comm.all_to_all(comm.scatter(x).repeat(comm.size))",
            "return comm.all_gather(comm.scatter(x))",
        ),
    ],
    "mean": [
        ("two steps, in no ring", DIRECT + "return direct(x) / comm.size"),
        ("a ring of half as many chunks, each twice as large", HALF_RING),
    ],
    "uneven": [
        (
            "all steps in one collective",
            "sums = list(comm.all_reduce(torch.cat(batches + missing)).split(1))",
            "sums = [comm.all_reduce(batch) for batch in batches + missing]",
        ),
    ],
}
