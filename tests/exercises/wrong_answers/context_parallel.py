"""Wrong answers to the exercises of context parallelism."""

from tests.exercises.wrong_answers import Wrong, in_place_of, one_wrong

COUNTS = "each = {}\nbusiest = {}"
TOKENS = "forward = {}\nno_mask = {}\nbackward = {}\nwaits = {}\nlower = {}"
REPORTS = "run_a, run_b, run_c, run_d, run_e, run_f = {}, {}, {}, {}, {}, {}\nloss, factor = {}, {}"
DESIGN = (
    'design = {{"nodes": {}, "keys": "{}", "ulysses": {}, "inside": "{}", "recompute": {}}}\n'
    'loosened, saves, hides_from = "cards", 24.5, 204800'
)
BEST = DESIGN.format(16, "ring", 8, "ulysses", False) + "\n"

RIGHT_TOKENS = ["2880", "1440", "2304", "0.2889", '["b", "e"]']
RIGHT_REPORTS = ["5", "3", "8", "4", "1", "7", "1.8", "2"]

# Both passes of the solution, in parts that wrong answers change.
PART = "part = look(comm, q, kv[0], kv[1], seen(positions, me, owner))"
SENT = "arriving = to_the_left(comm, kv, after)"

# All keys at once, and their gradients reduced: no ring.
GATHERED = """
n, most = comm.size, max(map(len, positions))
kv = torch.nn.functional.pad(torch.stack((k, v)), (0, 0, 0, 0, 0, most - k.shape[1]))
found = None
for owner, (k, v) in enumerate(comm.all_gather(kv[None])):
    size = len(positions[owner])
    part = look(comm, q, k[:, :size], v[:, :size], seen(positions, comm.rank, owner))
    found = merge(found, part) if found else part
return found
"""


GATHERED_BACK = """n, most = comm.size, max(map(len, positions))
    delta = (out * dout).sum(-1, keepdim=True)
    kv = torch.nn.functional.pad(torch.stack((k, v)), (0, 0, 0, 0, 0, most - k.shape[1]))
    kv, dq = comm.all_gather(kv[None]), torch.zeros_like(q)
    dkv = torch.zeros_like(kv)
    for owner, some in enumerate(positions):
        these, mask = kv[owner][:, :, : len(some)], seen(positions, comm.rank, owner)
        more, *found = look_back(comm, q, these[0], these[1], mask, lse, dout, delta)
        dq = dq + more
        dkv[owner][:, :, : len(some)] = torch.stack(found)
    (own,) = comm.reduce_scatter(dkv)
    return dq, own[0][:, : k.shape[1]], own[1][:, : k.shape[1]]
"""

BANK = {
    "rest": [
        *in_place_of(
            "return (mean - share * mean_part) / left, lse + torch.log(left)",
            (
                "means subtract",
                "return mean - mean_part, lse + torch.log(left)",
                "mean times weight",
            ),
            ("all subtracts", "return mean - mean_part, lse - lse_part", "Neither means nor"),
            (
                "logarithms subtract",
                "return (mean - share * mean_part) / left, lse - lse_part",
                "logarithm of a ratio",
            ),
            (
                "not divided",
                "return mean - share * mean_part, lse + torch.log(left)",
                "as if all the weight were there",
            ),
            ("merged", "return merge(whole, part)", "counts the part's keys twice"),
            (
                "the share",
                "return (mean - share * mean_part) / left, torch.log(left)",
                "the weight itself is wanted",
            ),
            (
                "the sum",
                "return (mean - share * mean_part) / left, left * lse.exp()",
                "its logarithm is wanted",
            ),
            (
                "all overflows",
                "w, u = lse.exp(), lse_part.exp()\n"
                "    return (w * mean - u * mean_part) / (w - u), torch.log(w - u)",
                "have no room in a float",
            ),
            (
                "the logarithm overflows",
                "return (mean - share * mean_part) / left, torch.log(lse.exp() - lse_part.exp())",
                "Write its logarithm as that of the whole",
            ),
        ),
    ],
    "ring": [
        *in_place_of(
            PART,
            (
                "no mask",
                "mask = torch.ones(q.shape[1], kv.shape[2], dtype=torch.bool)\n"
                "        part = look(comm, q, kv[0], kv[1], mask)",
                "behind their own position",
            ),
            (
                "positions begin anew",
                "local = [list(range(len(p))) for p in positions]\n"
                "        part = look(comm, q, kv[0], kv[1], seen(local, me, owner))",
                "each rank counts from 0 on",
            ),
            (
                "no look",
                "part = attend(q, kv[0], kv[1], seen(positions, me, owner))",
                "use look in the place of attend",
            ),
        ),
        Wrong(
            "its own keys",
            "kv = torch.stack((k, v))\n    for step in range(1):",
            "its own keys alone",
            "kv = torch.stack((k, v))\n    for step in range(n):",
        ),
        Wrong(
            "parts add up",
            "found = (found[0] + part[0], found[1] + part[1]) if found else part",
            "Each part is a mean already",
            "found = merge(found, part) if found else part",
        ),
        Wrong(
            "equal shares",
            "arriving = to_the_left(comm, kv, len(positions[me]))",
            "shape and dtype must be the same",
            SENT,
        ),
        Wrong(
            "nothing travels while it looks",
            "if step < n - 1:\n            arriving()\n        " + PART,
            "waits for each message before it looks",
            PART,
        ),
        Wrong("gathered", GATHERED, "everybody's keys are gathered"),
        Wrong(
            "gathered in backward",
            GATHERED_BACK,
            "all of them and their gradients at one time",
            "me, n, before = comm.rank, comm.size, None",
        ),
        *in_place_of(
            "dkv = before()  # mine come home",
            ("one hop short", "before()", "belongs to your left neighbor"),
        ),
        *in_place_of(
            "dkv = dkv + before()",
            ("nothing is added", "before()", "the last rank on the way"),
        ),
        Wrong(
            "keys travel once more",
            "before = to_the_left(comm, dkv, after)\n"
            "            if step == n - 1:\n"
            "                to_the_left(comm, kv, after)()",
            "One block too many: after the last round",
            "before = to_the_left(comm, dkv, after)",
        ),
        *in_place_of(
            "kv = coming()",
            ("stale keys", "coming()", "the keys are the rank's own in every round"),
        ),
        *in_place_of(
            "delta = (out * dout).sum(-1, keepdim=True)",
            ("no delta", "delta = 0 * lse", "because weights sum to one"),
        ),
        *in_place_of(
            "lse, dout, delta)",
            (
                "each block's own",
                "attend(q, kv[0], kv[1], seen(positions, me, owner))[1], dout, delta)",
                "divided by its own sum",
            ),
        ),
    ],
    "packed": [
        *one_wrong(
            COUNTS,
            ["2.85e8", "939532288"],
            0,
            ("one document", "131072 * 131073 / 16", "takes the sequence for one document"),
        ),
        *in_place_of(
            "return came",
            ("zigzag over everything", "return whole_zigzag(documents, ranks)", "as if all were"),
            (
                "contiguous",
                "x = sum(documents) // ranks\n"
                "    return [list(range(r * x, r * x + x)) for r in range(ranks)]",
                "contiguous pieces",
            ),
        ),
        *in_place_of(
            "range(first, first + chunk)",
            (
                "no beginning",
                "range(first - begin, first - begin + chunk)",
                "a document's beginning added",
            ),
        ),
        *in_place_of(
            "for place in (rank, 2 * ranks - 1 - rank):",
            ("pieces", "for place in (2 * rank, 2 * rank + 1):", "one piece a rank"),
            ("half", "for place in (rank,):", "is a second chunk there"),
        ),
    ],
    "tokens": [
        *one_wrong(TOKENS, RIGHT_TOKENS, 0, ("no mask", "1440", "half of them are seen")),
        *one_wrong(TOKENS, RIGHT_TOKENS, 1, ("more", "5760", "other way round")),
        *one_wrong(TOKENS, RIGHT_TOKENS, 2, ("inverse", "3600", "more FLOPs hide")),
        *one_wrong(TOKENS, RIGHT_TOKENS, 3, ("compute", "0.711", "in which it computes")),
        *one_wrong(
            TOKENS,
            RIGHT_TOKENS,
            4,
            ("large heads", '["a", "b", "e"]', "in the same ratio"),
        ),
        Wrong(
            "all heads travel",
            "1",
            "A round computes with all heads of queries, and sends keys",
            "key_heads / heads",
        ),
    ],
    "reports": [
        *one_wrong(REPORTS, RIGHT_REPORTS, 0, ("lost", "8", "all of it at home")),
        *one_wrong(REPORTS, RIGHT_REPORTS, 1, ("stops early", "6", "which the mask hides")),
        *one_wrong(REPORTS, RIGHT_REPORTS, 2, ("one hop", "1", "gradients of another rank")),
        *one_wrong(REPORTS, RIGHT_REPORTS, 6, ("mean of means", "2.5", "counts by its tokens")),
        *one_wrong(REPORTS, RIGHT_REPORTS, 7, ("its share", "0.5", "divides once more")),
        Wrong(
            "a share of all tokens",
            "tokens",
            "The mean over the ranks divides by their number, and each",
            "len(counted) * tokens",
        ),
    ],
    "design": [
        Wrong("few devices", DESIGN.format(2, "ring", 1, "ulysses", False), "more than 80 GB"),
        Wrong("eight nodes", DESIGN.format(8, "ring", 8, "ulysses", False), "more than 1.2 s"),
        Wrong("a ring alone", DESIGN.format(16, "ring", 1, "ulysses", False), "more tokens"),
        Wrong("gathered", DESIGN.format(16, "gathered", 8, "ulysses", False), "more than 1.2 s"),
        Wrong("swaps across", DESIGN.format(16, "ring", 8, "ring", False), "go by the cards here"),
        Wrong(
            "a choice that there is not",
            DESIGN.format(16, "ring", 16, "ulysses", False),
            "is no choice",
        ),
        Wrong("the fabric", BEST + 'loosened = "fabric"', "Is that the longest wait"),
        Wrong(
            "however long",
            "card",
            "Of all designs, keep those that take no more than 80 GB,",
            "seconds(each, card=card) <= most_seconds",
        ),
    ],
}

# The wrong values that the sealed hints of a check are for, in their order.
SEALED = {
    "packed": {
        "each": [1073750000, 2281770000, 268440000, 570442000, 2147480000, 269488000, 536879000],
        "busiest": [2013270000, 134226000, 285221000, 2147520000, 1073741824, 805306368, 33562600],
    },
    "tokens": {
        "forward": [1440, 14400, 7200, 72000, 36000, 5760, 720, 2304],
        "no_mask": [5760, 2880, 720, 7200],
        "backward": [3600, 1152, 5760, 7200, 14400],
        "waits": [0.711111, 0.40625, 28.9, 0.111111, 1.40625, 0.494321],
        "letters(lower)": [["b"], ["e"], ["b", "c", "e"], ["a", "b", "e"], ["b", "d", "e"], ["b", "e", "f"], ["a", "c", "d", "f"]],
    },
    "reports": {
        "run_a": [8, 1, 7, 3, 2],
        "run_b": [6, 4, 5],
        "run_c": [1, 5, 4],
        "run_d": [3, 2, 8],
        "run_e": [8, 5, 7],
        "run_f": [2, 5, 1],
        "loss": [2.5, 3600, 900, 10],
        "factor": [0.5, 4, 1, 0.25, 1000],
    },
    "design": {
        "in_small_letters(loosened)": ["memory", "fabric"],
        "saves": [104.617, 0.300648, 0.189956, 0.191663, 25.5636, 12.7818],
        "hides_from": [12800, 1638400, 102400, 163840, 1024000, 25600],
    },
}  # fmt: skip

# Answers that are built otherwise: what came, its source, words of the sentence, what it replaces.
OTHERWISE: dict[str, list[tuple[str, ...]]] = {
    "rest": [
        ("the mean alone", "return mean", "a tuple of 2",
         "return (mean - share * mean_part) / left, lse + torch.log(left)"),
        ("numbers", "return 1.0, 2.0", "[0] is the number 1.0",
         "return (mean - share * mean_part) / left, lse + torch.log(left)"),
    ],
    "ring": [
        ("the mean alone", "return found[0]", "a tuple of 2", "return found"),
        ("a handle", "return found[0], arriving", "[1] is", "return found"),
        ("without dq", "return dkv[0], dkv[1]", "a tuple of 3", "return dq, dkv[0], dkv[1]"),
    ],
    "packed": [
        ("a dictionary", "return dict(enumerate(came))", "it is a dictionary", "return came"),
        ("one list", "return came[0]", "[0] is the number 0", "return came"),
        ("a text", 'each = "2.9e8"', "write it without quotes",
         "each = (65536 * 65537 / 2 + 16 * 4096 * 4097 / 2) / 8"),
    ],
    "tokens": [
        ("a text", 'lower = "be"', "should be a list of texts", 'lower = ["b", "e"]'),
        ("numbers", "lower = [2, 5]", "[0] is the number 2", 'lower = ["b", "e"]'),
    ],
    "reports": [("a word", 'run_a = "stale keys"', "write it without quotes", "run_a = 5")],
    "design": [
        ("a list", "design = [16, 8]\nloosened, saves, hides_from = 1, 2, 3",
         "the keys 'nodes', 'keys'"),
    ],
}  # fmt: skip

# The programs that are asked for, by question.
PROGRAMS = {"rest": "rest", "ring": "ring_forward", "packed": "shared"}

# A rank adds what it finds for its own keys at the end, so that their gradients make a hop less.
ONE_HOP_LESS = """me, n = comm.rank, comm.size
    delta = (out * dout).sum(-1, keepdim=True)

    def back(kv, owner):
        found = look_back(comm, q, *kv, seen(positions, me, owner), lse, dout, delta)
        return found[0], torch.stack(found[1:])

    kv, before = torch.stack((k, v)), None
    if n > 1:
        coming = to_the_left(comm, kv, len(positions[(me + 1) % n]))
    dq, mine = back(kv, me)
    for step in range(1, n):
        owner, kv = (me + step) % n, coming()
        after = len(positions[(owner + 1) % n])
        if step < n - 1:
            coming = to_the_left(comm, kv, after)
        more, dkv = back(kv, owner)
        dq = dq + more
        if before:
            dkv = dkv + before()
        before = to_the_left(comm, dkv, after)
    dkv = mine + before() if before else mine
    return dq, dkv[0], dkv[1]
"""

RIGHT = {
    "ring": [("the best known", ONE_HOP_LESS, "me, n, before = comm.rank, comm.size, None")],
    "packed": [
        ("rounded", "each = 2.9e8", "each = (65536 * 65537 / 2 + 16 * 4096 * 4097 / 2) / 8")
    ],
    "tokens": [("rounded", TOKENS.format("2900", "1400", "2300", "0.29", '["E", "B"]'))],
    "design": [("rounded", BEST + "saves, hides_from = 25, 2.0e5")],
}
