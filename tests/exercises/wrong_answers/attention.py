"""Wrong answers to the exercises of attention."""

from tests.exercises.wrong_answers import Wrong, in_place_of, one_wrong

TOP = "top = torch.maximum(one[0], other[0])"
BASE = "base = top.masked_fill(top == -torch.inf, 0.0)  # nothing was seen"
SHRINK = "a, b = (one[0] - base).exp(), (other[0] - base).exp()"
TOTAL = "total = a * one[1] + b * other[1]"
MERGED = "return top, total, a[:, None] * one[2] + b[:, None] * other[2]"
RESULT = "result = weighted / total.masked_fill(total == 0, 1.0)[:, None]"
FINISHED = "return result, top + total.log()"
SCORES = "x = (scale * q @ k.T).masked_fill(~allowed, -torch.inf)"
WEIGHTS = "y = (x - lse[:, None]).exp()"
SCORED = "dx = y * (dz @ v.T - delta[:, None])"
GRADIENTS = "return scale * dx @ k, scale * dx.T @ q, y.T @ dz"
MOVED = "return read, written"
SIDE = "if 6 * columns * d < rows * (4 * d + 2):  # keys are cheaper to bring"
DESIGN = (
    'design = {{"forward queries": {}, "forward keys": {}, "backward queries": {}, '
    '"backward keys": {}}}\nforward_times = {}\nbackward_times = {}\nthin_saves = {}'
)
DESIGN_RIGHT = [80, 32, 16, 128, 2.15, 2.39, 0.152]
LENGTH = "third_at = {}\nfraction = {}\nequal_in_training = {}\nthird_without_groups = {}"
LENGTH_RIGHT = [13312, 0.381, 45600, 14800]
BINDS = "tokens = {}\nplain_times = {}\ndecode_us = {}\ntwice_times = {}\ntokens_fp8 = {}\n"
HELPS = 'helps = dict(A="{}", B="{}", C="{}", D="{}")'
BINDS_RIGHT = [48, 5.91, 134, 1.48, 32]
HELPS_RIGHT = ["bandwidth", "rate", "bandwidth", "bandwidth"]
FAULTS = 'faults = dict(A="{}", B="{}", C="{}", D="{}")'
FAULTS_RIGHT = ["corner", "sums", "tiles", "dropout"]
NAMED = 'faults = {"A": "corner", "B": "sums", "C": "tiles", "D": "dropout"}'
MENDED = "return sums / total[:, None], lse, (new, total, sums)"


def kernel(place: int, *wrong: tuple[str, str]) -> list[Wrong]:
    """Answers to question 8 with another fault for a kernel."""
    return [
        Wrong(
            f"{'ABCD'[place]} is {word}",
            FAULTS.format(*FAULTS_RIGHT[:place], word, *FAULTS_RIGHT[place + 1 :]),
            hint,
            NAMED,
        )
        for word, hint in wrong
    ]


BANK = {
    "merge": [
        *in_place_of(
            TOP,
            ("the first maximum", "top = one[0]", "The second may hold a larger score"),
            ("the second maximum", "top = other[0]", "The first may hold a larger score"),
            ("starts at 0, if anything is seen",
             f"{TOP}\n    top = torch.where(top == -torch.inf, top, top.clamp(min=0.0))",
             "The largest of negative scores is negative"),
        ),
        *in_place_of(
            BASE,
            ("nothing hidden", "base = top", "is minus infinity taken off there"),
        ),
        *in_place_of(
            SHRINK,
            ("without a maximum", "a, b = one[0].exp() / base.exp(), other[0].exp() / base.exp()",
             "Beside which maximum is no exponent above zero"),
        ),
        *in_place_of(
            RESULT,
            ("nothing by nothing", "result = weighted / total[:, None]", "Its result is to be 0"),
        ),
        *in_place_of(
            FINISHED,
            ("the maximum off", "return result, total.log() - top", "Divide once"),
            ("all the sum at once", "return result, (top.exp() * total).log()",
             "no exponential but the total's"),
        ),
    ],
    "backward": [
        *in_place_of(
            SCORES,
            ("not masked", "x = scale * q @ k.T", "Their weight is 0"),
            ("masked by a number", "x = (scale * q @ k.T).masked_fill(~allowed, -20.0)",
             "Which score has the weight 0 beside any"),
        ),
        *in_place_of(
            WEIGHTS,
            ("the sum for its logarithm", "y = x.exp() / lse[:, None]", "Make the weights"),
            ("struck out afterwards",
             "y = (scale * q @ k.T - lse[:, None]).exp() * allowed", "before it is struck out"),
            ("struck out for scores alone",
             "w = (scale * q @ k.T - lse[:, None]).exp()\n"
             "    y, dv = w.where(allowed, 0.0), (w * allowed).T @ dz\n"
             "    dx = y * (dz @ v.T - delta[:, None])\n"
             "    return scale * dx @ k, scale * dx.T @ q, dv", "before it is struck out"),
        ),
        *in_place_of(
            SCORED,
            ("the sum of the tile",
             "dx = y * (dz @ v.T - (y * (dz @ v.T)).sum(1, keepdim=True))", "Make the weights"),
        ),
        *in_place_of(
            GRADIENTS,
            ("dk without the scale", "return scale * dx @ k, dx.T @ q, y.T @ dz",
             "A score is that product times `scale`"),
            ("dq of another shape", "return scale * dz @ v.T @ y.T, scale * dx.T @ q, y.T @ dz",
             "adds to dq a tensor of shape (2, 4); (2, 2) came"),
        ),
    ],
    "traffic": [
        *in_place_of(
            "if i != before[0]:",
            ("queries again and again", "if True:", "It is there already"),
        ),
        *in_place_of(
            "if j != before[1]:",
            ("keys again and again", "if True:", "a tile of keys may stay, too"),
        ),
        *in_place_of(
            "read += 2 * columns * d",
            ("keys without values", "read += columns * d", "come with their values"),
        ),
        *in_place_of(
            "read += rows * (d + (d + 2) * (i in begun))",
            ("sums alone, coming", "read += rows * (d + d * (i in begun))", "Go through the visits"),
            ("never read again", "read += rows * d", "never read again"),
            ("sums at first", "read += rows * (d + (d + 2))", "has no sums to read"),
        ),
        *in_place_of(
            "written += rows * (d + 1 if last[i] == at else d + 2)",
            ("sums at last", "written += rows * (d + 2)", "Go through the visits"),
        ),
        *in_place_of(
            "last = {i: at for at, (i, _) in enumerate(visits)}",
            ("as many visits as tiles of keys",
             "tiles = len({j for _, j in visits})\n"
             "    last = {i: -1 for i, _ in visits}\n"
             "    for at, (i, _) in enumerate(visits):\n"
             "        if [v[0] for v in visits[: at + 1]].count(i) == tiles:\n"
             "            last[i] = at", "A mask leaves pairs out here"),
        ),
    ],
    "order": [
        Wrong("queries outside", "return [(i, j) for i, n in enumerate(sees) for j in range(n)]",
              "two plain loops with queries outside"),
        Wrong("keys outside",
              "return [(i, j) for j in range(max(sees)) for i, n in enumerate(sees) if j < n]",
              "two plain loops with keys outside"),
        Wrong("the mask forgotten",
              "return [(i, j) for i in range(len(sees)) for j in range(max(sees))]",
              "of which it sees nothing"),
        Wrong("the last tile forgotten",
              "return [(i, j) for i, n in enumerate(sees) for j in range(n - 1)]",
              "Some pair is left out"),
        Wrong("to and fro, with keys outside",
              "found = []\nfor j in range(max(sees)):\n"
              "    line = [(i, j) for i, n in enumerate(sees) if j < n]\n"
              "    found += line[::-1] if j % 2 else line\nreturn found",
              "A tile of which side costs more to bring"),
        *in_place_of(
            SIDE,
            ("keys always", "if False:", "it costs less to bring tiles of the other side"),
            ("more rows than columns", "if columns < rows:", "count all that crosses"),
            ("vectors alone", "if 3 * columns < 2 * rows:", "that does not grow with the head"),
        ),
    ],
    "tiles": [
        *one_wrong(
            DESIGN, DESIGN_RIGHT, 0,
            ("too tall", 96, "The forward tiles hold more"),
            ("too low", 64, "more tokens fit"),
            ("low", 16, "Queries stay"),
        ),
        *one_wrong(
            DESIGN, DESIGN_RIGHT, 3,
            ("too wide", 160, "The backward tiles hold more"),
            ("narrow", 96, "how many more keys fit"),
        ),
        Wrong("queries where keys stay", DESIGN.format(80, 32, 32, 64, *DESIGN_RIGHT[4:]),
              "Here keys stay"),
        *one_wrong(
            DESIGN, DESIGN_RIGHT, 4,
            ("by the law", 2, "By the law"),
            ("a little more", 2.3, "how many tokens fit now"),
        ),
        *one_wrong(
            DESIGN, DESIGN_RIGHT, 5,
            ("a little less", 2.3, "how many keys fit now"),
        ),
        Wrong("the least of all", "if room", "Price every pair of tiles that fits into so much fast", "if forward_resident(t, 128, 4) <= room"),
    ],
    "length": [
        *one_wrong(
            LENGTH, LENGTH_RIGHT, 0,
            ("half", 26624, "half of the layer"),
        ),
        *one_wrong(
            LENGTH, LENGTH_RIGHT, 1,
            ("no mask", 0.552, "without a mask"),
        ),
        *one_wrong(
            LENGTH, LENGTH_RIGHT, 2,
            ("forward", 53248, "So it is forward"),
        ),
        *one_wrong(
            LENGTH, LENGTH_RIGHT, 3,
            ("no change", 13312, "Did anything change"),
        ),
        Wrong("a part of the others", "* part", "A token's FLOPs for its weights stay as they are, and those", "* part / (1 - part)"),
    ],
    "binds": [
        *one_wrong(
            BINDS + HELPS.format(*HELPS_RIGHT), BINDS_RIGHT, 0,
            ("rounded down", 47, "tokens come whole"),
        ),
        *(
            Wrong(name, BINDS.format(*BINDS_RIGHT) + HELPS.format(*words), hint)
            for name, words, hint in (
                ("A binds", ("rate", "rate", "bandwidth", "bandwidth"), "A has 256 rows"),
                ("B waits", ("bandwidth",) * 4, "B has 1,024 rows"),
                ("more sequences", ("bandwidth", "rate", "rate", "bandwidth"), "keys of its own"),
                ("no groups", ("bandwidth", "rate", "bandwidth", "rate"), "if no heads do"),
            )
        ),
        Wrong("one row for each token", "rate / bandwidth", "How many FLOPs does a byte of keys and values pay for, if a", "rate / bandwidth / group"),
    ],
    "fault": [
        *kernel(0, ("layout", "512 queries would be wrong")),
        *in_place_of(
            "places = start + torch.arange(len(keys))",
            ("each tile's own places", "places = torch.arange(len(keys))",
             "counted from the beginning of a tile"),
            ("places by whole tiles", "places = start + len(keys) + torch.arange(len(keys)) - 1",
             "Which keys may query i see"),
            ("a key too few", "places = start + 1 + torch.arange(len(keys))", "one key too few"),
        ),
        *in_place_of(
            "x = x.masked_fill(places > rows[:, None] + offset, -torch.inf)",
            ("offset forgotten", "x = x.masked_fill(places > rows[:, None], -torch.inf)",
             "Which is the last key that query i may see"),
        ),
        *in_place_of(
            "top = torch.full((len(q),), -1e30)",
            ("starts at 0", "top = torch.zeros(len(q))", "From what does the maximum start"),
        ),
        *in_place_of(
            "sums = sums * shrink[:, None] + weights @ values",
            ("sums as they are", "sums = sums + weights @ values",
             "wrong only where the maximum rises"),
        ),
        *in_place_of(
            "rows, scale = torch.arange(len(q)), q.shape[1] ** -0.5",
            ("a factor of heads 4 wide", "rows, scale = torch.arange(len(q)), 0.5",
             "On what does it depend"),
        ),
        *in_place_of(
            "top, total, sums = so_far",
            ("each tile by itself",
             "top, total, sums = so_far[0] * 0 - 1e30, so_far[1] * 0, so_far[2] * 0",
             "What of a tile has to follow"),
        ),
    ],
}  # fmt: skip

# The wrong values that the sealed hints of a check are for, in their order; ... is one that
# nobody has found.
SEALED = {
    "tiles": {
        "forward_times": [2, 0.464, 2.39, 2.4, 4, 2.345, 2.35, 2.276, 2.28],
        "backward_times": [2, 0.418, 2.155, 2.15, ..., 2.345, ..., ...],
        "thin_saves": [0.848, 15.2, 0.179, 0.5, 0],
    },
    "length": {
        "third_at": [26624, 8875, 27000, 12288, 24576, 14848, 53248, 9728],
        "fraction": [0.552, 0.615, 0.619, 38.1, 1.2, 0.24],
        "equal_in_training": [53248, 22820, 62123, 42598, 26624, 15214, 159744],
        "third_without_groups": [13312, 29696, 53248, 3328, 14080],
    },
    "binds": {
        "tokens": [47, 378, 379, 47.2, 95, 24, 6, 37],
        "plain_times": [0.169, 2.95, 1.5, 11.8, 16, 4],
        "decode_us": [67.1, 1074, 16.8, 0.000134, 0.13, 270, 2.84, 80.1],
        "twice_times": [2, 0.677, 1, 3, 12],
        "tokens_fp8": [31, 31.5, 48, 47, 24, 95, 64, 63, 36, 252, 253],
    },
    "fault": {
        'fault_of(faults, "A")': ['layout', 'tiles', 'dropout', 'sums'],
        'fault_of(faults, "B")': ['tiles', 'corner', 'layout', 'dropout'],
        'fault_of(faults, "C")': ['corner', 'layout', 'sums', 'dropout'],
        'fault_of(faults, "D")': ['sums', 'corner', 'tiles', 'layout'],
    },
}  # fmt: skip

# What is built otherwise than asked for: what came, its source, words of what is said, and what of
# the solution it replaces.
OTHERWISE: dict[str, list[tuple[str, ...]]] = {
    "merge": [
        ("a pair", "return top, total", "should be a tuple of 3", MERGED),
        ("a list of numbers", "return top.tolist(), total, one[2]", "[0] is a list of 6", MERGED),
        ("the result alone", "return result", "What finished returns", FINISHED),
    ],
    "backward": [
        ("a dictionary", 'return {"dq": dx @ k}', "it is a dictionary", GRADIENTS),
        ("a pair", "return scale * dx @ k, scale * dx.T @ q", "should be a tuple of 3", GRADIENTS),
        ("of weights' shape", "return scale * dx, scale * dx.T @ q, y.T @ dz",
         "adds to dq a tensor of shape (4, 4); (4, 5) came", GRADIENTS),
        ("transposed", "return scale * dx @ k, scale * q.T @ dx, y.T @ dz",
         "adds to dk a tensor of shape (5, 4); (4, 5) came", GRADIENTS),
    ],
    "traffic": [
        ("one sum", "return read + written", "should be a tuple of 2", MOVED),
        ("a dictionary", 'return {"read": read, "written": written}', "it is a dictionary", MOVED),
        ("parts of numbers", "return read / 1, written / 2", "whole number", MOVED),
    ],
    "order": [
        ("numbers", "return [1, 2, 3]", "should be a list of tuples of 2"),
        ("a dictionary", "return {0: 1}", "it is a dictionary"),
    ],
    "tiles": [("a list", "design = [80, 32]", "the keys 'forward queries'"),
              ("no multiple", DESIGN.format(81, 32, 16, 128, 2, 2, 2), "take one of 16, 32")],
    "length": [("a list", "third_at = [13312]", "take them off"),
               ("a text", 'third_at = "13312"', "without quotes")],
    "binds": [
        ("a list of words", BINDS.format(*BINDS_RIGHT) + 'helps = ["rate"]', "the keys 'A', 'B'"),
        ("another word", BINDS.format(*BINDS_RIGHT) + HELPS.format("heads", *HELPS_RIGHT[1:]),
         "neither 'rate' nor 'bandwidth'"),
    ],
    "fault": [
        ("a word of another list", FAULTS.format(" corner", "sums", "rate", "dropout"),
         "none of the words", NAMED),
        ("the result alone", "return sums / total[:, None]", "What the pass returns", MENDED),
        ("a column", "return sums / total[:, None], lse[:, None], (new, total, sums)",
         "of shape (16,); (16, 1) came", MENDED),
        ("the scores too", "return sums / total[:, None], lse, (new, total, x)",
         "(16, 4)]; [(16,), (16,), (16, 24)] came", MENDED),
        ("another word", FAULTS.format("mask", *FAULTS_RIGHT[1:]), "none of the words", NAMED),
    ],
}  # fmt: skip

# The programs that are asked for, by question.
PROGRAMS = {
    "merge": "merged",
    "backward": "gradients",
    "traffic": "moved",
    "order": "cheapest",
    "fault": "mended",
}

# Right answers of another kind: what came, its source, what of the solution it replaces.
RIGHT = {
    "merge": [
        ("by the logarithm",
         "lse = (torch.stack([one[0] + one[1].log(), other[0] + other[1].log()])).logsumexp(0)\n"
         "    total = (lse - base).exp()", TOTAL),
    ],
    "backward": [
        ("weights of forbidden pairs struck out by where",
         "y = torch.where(allowed, (scale * q @ k.T - lse[:, None]).exp(), 0.0)", WEIGHTS),
        ("scaled at once", "dx = scale * dx\n    return dx @ k, dx.T @ q, y.T @ dz", GRADIENTS),
    ],
    "traffic": [
        ("by runs",
         """
         read = written = 0
         sides = [[v[0] for v in visits], [v[1] for v in visits]]
         runs = [[x for n, x in enumerate(s) if n == 0 or s[n - 1] != x] for s in sides]
         read += 2 * columns * d * len(runs[1]) + rows * d * len(runs[0])
         again = len(runs[0]) - len(set(runs[0]))
         read += rows * (d + 2) * again
         written += rows * (d + 2) * again + rows * (d + 1) * len(set(runs[0]))
         return read, written
         """),
    ],
    "tiles": [("two digits", DESIGN.format(80, 32, 16, 128, 2.2, 2.4, 0.15))],
    "length": [("two digits", LENGTH.format(13000, 0.38, 46000, 15000))],
    "fault": [
        ("words with blanks", FAULTS.format(" Corner", "sums ", "TILES", "dropout"), NAMED),
        ("the maximum of both at once", "new = torch.cat([x, top[:, None]], 1).amax(1)",
         "new = torch.maximum(top, x.amax(1))"),
    ],
    "binds": [("two digits", BINDS.format(48, 5.9, 130, 1.5, 32) + HELPS.format(*HELPS_RIGHT))],
}  # fmt: skip
