"""Wrong answers to the exercises of attention."""

from tests.exercises.wrong_answers import Wrong, in_place_of

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
CHEAPEST = "return [(i, j) for j, i in turning(lines)]"
TURNED = "at = ordered[-1]"
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
MENDED = "return sums / total[:, None], top + total.log()"


def one_wrong(
    form: str, right: list[object], place: int, *wrong: tuple[str, object, str]
) -> list[Wrong]:
    """Answers that are right but for the one in this place: misconception, what came, and hint."""
    return [
        Wrong(name, form.format(*right[:place], came, *right[place + 1 :]), hint)
        for name, came, hint in wrong
    ]


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
            ("the smaller maximum", "top = torch.minimum(one[0], other[0])", "may overflow"),
            ("both maxima", "top = one[0] + other[0]", "in one of the parts"),
            ("starts at 0, if anything is seen",
             f"{TOP}\n    top = torch.where(top == -torch.inf, top, top.clamp(min=0.0))",
             "The largest of negative scores is negative"),
            ("starts at 0", f"{TOP}.clamp(min=0.0)", "that of none is minus infinity"),
        ),
        *in_place_of(
            BASE,
            ("nothing hidden", "base = top", "is minus infinity taken off there"),
            ("beside 0 at least", "base = top.clamp(min=0.0)", "Beside which number is the largest"),
            ("one maximum", "base = top.max().expand_as(top)", "Each query has its own"),
        ),
        *in_place_of(
            SHRINK,
            ("not shrunk", "a = b = torch.ones_like(top)", "refer to the same one"),
            ("upside down", "a, b = (base - one[0]).exp(), (base - other[0]).exp()", "wrong sign"),
            ("interchanged", "b, a = (one[0] - base).exp(), (other[0] - base).exp()",
             "factor of the other"),
            ("the first alone", "a, b = (one[0] - base).exp(), torch.ones_like(top)",
             "Where it has the larger maximum, the second has to"),
            ("the second alone", "b, a = (other[0] - base).exp(), torch.ones_like(top)",
             "Where it has the larger maximum, the first has to"),
            ("each to the other", "a, b = (one[0] - other[0]).exp(), (other[0] - one[0]).exp()",
             "Both have to refer to one"),
            ("as new keys come", "a, b = (one[0] - other[0]).exp(), torch.ones_like(top)",
             "right where the second part has the larger maximum"),
            ("as if sorted", "a, b = torch.ones_like(top), (other[0] - one[0]).exp()",
             "right where the first part has the larger maximum"),
            ("without a maximum", "a, b = one[0].exp() / base.exp(), other[0].exp() / base.exp()",
             "Beside which maximum is no exponent above zero"),
            ("without a maximum, in 64 bits",
             "c = base.double().exp()\n"
             "    a, b = ((each[0].double().exp() / c).float() for each in (one, other))",
             "Beside which maximum is no exponent above zero"),
            ("base 2", "a, b = (one[0] - base).exp2(), (other[0] - base).exp2()", "to the base e"),
        ),
        *in_place_of(
            MERGED,
            ("sums as they are", "return top, total, one[2] + other[2]", "added up as it came"),
            ("sums with factors interchanged",
             "return top, total, b[:, None] * one[2] + a[:, None] * other[2]",
             "each part has the factor of the other"),
            ("the first sum alone", "return top, total, a[:, None] * one[2] + other[2]",
             "the second part has to shrink, too"),
            ("the second sum alone", "return top, total, one[2] + b[:, None] * other[2]",
             "the first part has to shrink, too"),
            ("divided at once",
             "return top, total, (a[:, None] * one[2] + b[:, None] * other[2]) / total[:, None]",
             "This is the result already"),
            ("means",
             "return top, total, one[2] / one[1][:, None] + other[2] / other[1][:, None]",
             "divided by its own total"),
            ("the mean of means",
             "return top, total, (one[2] / one[1][:, None] + other[2] / other[1][:, None]) / 2",
             "mean of the means"),
        ),
        *in_place_of(
            RESULT,
            ("not divided", "result = weighted", "The weighted sum alone is no mean"),
            ("nothing by nothing", "result = weighted / total[:, None]", "Its result is to be 0"),
        ),
        *in_place_of(
            FINISHED,
            ("the total alone", "return result, total.log()", "have besides"),
            ("no logarithm", "return result, top + total", "and the total is not"),
            ("a product", "return result, top * total.log()", "becomes a summand"),
            ("base 2", "return result, top + total.log2()", "to the base 2"),
            ("the maximum off", "return result, total.log() - top", "Divide once"),
            ("taken off", "return result, top - total.log()", "has to bring it back"),
            ("the largest score", "return result, top", "Others add to it"),
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
            ("no scale in scores", "x = (q @ k.T).masked_fill(~allowed, -torch.inf)",
             "not those that `lse` is of"),
        ),
        *in_place_of(
            WEIGHTS,
            ("a softmax of the tile", "y = x.softmax(1)", "The weights of each tile add up to one"),
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
            ("no sum of the row", "dx = y * (dz @ v.T)", "each takes from all others"),
            ("the sum added", "dx = y * (dz @ v.T + delta[:, None])", "is added here"),
            ("the sum of the tile",
             "dx = y * (dz @ v.T - (y * (dz @ v.T)).sum(1, keepdim=True))", "Make the weights"),
            ("the sum of a column", "dx = y * (dz @ v.T - delta.mean())", "Make the weights"),
            ("no weights", "dx = dz @ v.T - delta[:, None]", "Make the weights"),
        ),
        *in_place_of(
            GRADIENTS,
            ("dq without the scale", "return dx @ k, scale * dx.T @ q, y.T @ dz",
             "A score is that product times `scale`"),
            ("dk without the scale", "return scale * dx @ k, dx.T @ q, y.T @ dz",
             "A score is that product times `scale`"),
            ("the scale twice", "return scale**2 * dx @ k, scale * dx.T @ q, y.T @ dz",
             "by `scale` twice"),
            ("dv of scores", "return scale * dx @ k, scale * dx.T @ q, dx.T @ dz",
             "Make the weights"),
            ("dq of another shape", "return scale * dz @ v.T @ y.T, scale * dx.T @ q, y.T @ dz",
             "adds to dq a tensor of shape (2, 4); (2, 2) came"),
            ("the negative", "return -scale * dx @ k, scale * dx.T @ q, y.T @ dz",
             "The sign is wrong"),
            ("divided by the tiles", "return scale * dx @ k, scale * dx.T @ q, y.T @ dz / 3",
             "nothing is to be divided"),
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
            ("queries are still there", "read += rows * ((d + 2) if i in begun else d)",
             "its queries have to be read again"),
        ),
        *in_place_of(
            "if not stays:",
            ("written each time", "if True:", "written after each visit"),
            ("written at the end alone", "if last[i] == at:", "were never written"),
        ),
        *in_place_of(
            "written += rows * (d + 1 if last[i] == at else d + 2)",
            ("no log-sum-exp", "written += rows * (d if last[i] == at else d + 2)",
             "one number a query beside the result"),
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
        *in_place_of(
            MOVED,
            ("interchanged", "return written, read", "What is read comes first"),
        ),
        Wrong(
            "sums without a maximum and a total",
            """
            read = written = 0
            last = {i: at for at, (i, _) in enumerate(visits)}
            begun, before = set(), (None, None)
            for at, (i, j) in enumerate(visits):
                read += rows * d * (1 + (i in begun)) * (i != before[0])
                read += 2 * columns * d * (j != before[1])
                begun.add(i)
                if not (at + 1 < len(visits) and visits[at + 1][0] == i):
                    written += rows * (d + 1 if last[i] == at else d)
                before = i, j
            return read, written
            """,
            "what else has each query",
        ),
        Wrong(
            "nothing is unfinished",
            """
            queries = {i for i, _ in visits}
            read, before = rows * len(queries) * d, (None, None)
            for i, j in visits:
                read += 2 * columns * d * (j != before[1])
                before = i, j
            return read, rows * len(queries) * (d + 1)
            """,
            "Go through the visits",
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
        Wrong("twice", "return 2 * [(i, j) for i, n in enumerate(sees) for j in range(n)]",
              "counts twice in the gradients"),
        Wrong("by diagonals",
              "found = [(i, j) for i, n in enumerate(sees) for j in range(n)]\n"
              "return sorted(found, key=lambda v: (v[0] - v[1], v))",
              "In most visits that one should be there already"),
        Wrong("to and fro, with keys outside",
              "found = []\nfor j in range(max(sees)):\n"
              "    line = [(i, j) for i, n in enumerate(sees) if j < n]\n"
              "    found += line[::-1] if j % 2 else line\nreturn found",
              "A tile of which side costs more to bring"),
        Wrong("to and fro, with queries outside",
              "found = []\nfor i, n in enumerate(sees):\n"
              "    line = [(i, j) for j in range(n)]\n"
              "    found += line[::-1] if i % 2 else line\nreturn found",
              "it costs less to bring tiles of the other side"),
        *in_place_of(
            SIDE,
            ("queries always", "if True:", "it costs less to bring tiles of the other side"),
            ("keys always", "if False:", "it costs less to bring tiles of the other side"),
            ("the wrong side", "if 6 * columns * d > rows * (4 * d + 2):",
             "it costs less to bring tiles of the other side"),
            ("more rows than columns", "if columns < rows:", "count all that crosses"),
            ("as if no tile came back", "if 4 * columns * d < rows * (3 * d + 2):",
             "count all that crosses"),
            ("vectors alone", "if 3 * columns < 2 * rows:", "that does not grow with the head"),
        ),
        *in_place_of(
            TURNED,
            ("begins anew", "at = None", "two plain loops"),
        ),
    ],
    "tiles": [
        *one_wrong(
            DESIGN, DESIGN_RIGHT, 0,
            ("too tall", 96, "The forward tiles hold more"),
            ("too low", 64, "more tokens fit"),
            ("low", 16, "Queries stay"),
        ),
        Wrong("keys where queries stay", DESIGN.format(48, 128, *DESIGN_RIGHT[2:]),
              "what does their room cost"),
        Wrong("backward tiles for forward", DESIGN.format(16, 128, *DESIGN_RIGHT[2:]),
              "which of the two should have the room"),
        *one_wrong(
            DESIGN, DESIGN_RIGHT, 3,
            ("too wide", 160, "The backward tiles hold more"),
            ("narrow", 96, "how many more keys fit"),
        ),
        Wrong("forward tiles for backward", DESIGN.format(80, 32, 80, 32, *DESIGN_RIGHT[4:]),
              "Gradients are there as well"),
        Wrong("both too large", DESIGN.format(512, 512, 512, 512, *DESIGN_RIGHT[4:]),
              "the rows of all four heads"),
        Wrong("queries where keys stay", DESIGN.format(80, 32, 32, 64, *DESIGN_RIGHT[4:]),
              "Here keys stay"),
        *one_wrong(
            DESIGN, DESIGN_RIGHT, 4,
            ("by the law", 2, "By the law"),
            ("its inverse", 0.464, "Its inverse"),
            ("of backward", 2.39, "So it is for backward"),
            ("both", 2.345, "both passes together"),
            ("both, rounded", 2.35, "both passes together"),
            ("as the tile grows", 2.4, "But what any order has to move stays"),
            ("no mask", 2.276, "So it is without a mask"),
            ("no mask, rounded", 2.28, "So it is without a mask"),
            ("a little more", 2.3, "how many tokens fit now"),
        ),
        *one_wrong(
            DESIGN, DESIGN_RIGHT, 5,
            ("by the law", 2, "By the law"),
            ("its inverse", 0.418, "Its inverse"),
            ("of forward", 2.15, "So it is for forward"),
            ("both", 2.345, "both passes together"),
            ("a little less", 2.3, "how many keys fit now"),
        ),
        *one_wrong(
            DESIGN, DESIGN_RIGHT, 6,
            ("what is left", 0.848, "what is left"),
            ("percent", 15.2, "not a percentage"),
            ("nothing", 0, "the room that they leave"),
            ("against the thin one", 0.179, "against the thin tile"),
            ("half", 0.5, "most of fast memory"),
        ),
    ],
    "length": [
        *one_wrong(
            LENGTH, LENGTH_RIGHT, 0,
            ("half", 26624, "half of the layer"),
            ("a third of the weights'", 8875, "is a quarter of the layer's"),
            ("a plain layer, half", 24576, "A plain layer has 12 h^2 weights"),
            ("a plain layer", 12288, "plain layer of 12 h^2"),
            ("no groups", 14848, "8 heads of them"),
            ("two matrices", 9728, "three matrices"),
            ("half, with a mask", 53248, "the kernel skips masked tiles"),
            ("one FLOP a product", 53248, "two FLOPs for each product"),
        ),
        *one_wrong(
            LENGTH, LENGTH_RIGHT, 1,
            ("no mask", 0.552, "without a mask"),
            ("against the weights", 0.615, "against the weights alone"),
            ("the weights", 0.619, "what the weights take"),
            ("the weights, rounded", 0.62, "what the weights take"),
            ("percent", 38.1, "not a percentage"),
        ),
        *one_wrong(
            LENGTH, LENGTH_RIGHT, 2,
            ("forward", 53248, "So it is forward"),
            ("no mask", 22820, "without a mask"),
            ("upside down", 62123, "The other way round"),
            ("backward alone", 42598, "backward alone"),
            ("weights forward alone", 15214, "Weights have products in backward"),
        ),
        *one_wrong(
            LENGTH, LENGTH_RIGHT, 3,
            ("no change", 13312, "Did anything change"),
            ("half", 29696, "half of the layer"),
            ("four times", 53248, "Only the matrices of keys"),
            ("less", 3328, "More weights take more"),
            ("keys alone", 14080, "both have a matrix"),
        ),
    ],
    "binds": [
        *one_wrong(
            BINDS + HELPS.format(*HELPS_RIGHT), BINDS_RIGHT, 0,
            ("rounded down", 47, "tokens come whole"),
            ("rows", 378, "How many rows does a token bring"),
            ("keys alone", 95, "for each: what is that a byte"),
            ("numbers for bytes", 24, "two bytes here"),
            ("all heads", 6, "share one head of keys"),
            ("another device", 37, "H100 SXM"),
        ),
        *one_wrong(
            BINDS + HELPS.format(*HELPS_RIGHT), BINDS_RIGHT, 1,
            ("its inverse", 0.169, "Its inverse"),
            ("two passes", 2.95, "crosses four times, two bytes"),
            ("one product", 11.8, "in two products"),
            ("of intensities", 16, "bound by compute"),
        ),
        *one_wrong(
            BINDS + HELPS.format(*HELPS_RIGHT), BINDS_RIGHT, 2,
            ("keys alone", 67.1, "come with their values"),
            ("all heads", 1074, "read them once"),
            ("one head", 16.8, "8 heads of keys"),
            ("seconds", 1.34e-4, "wanted in microseconds"),
            ("arithmetic", 2.84, "Does compute bind"),
            ("another device", 80.1, "H100 SXM"),
        ),
        *one_wrong(
            BINDS + HELPS.format(*HELPS_RIGHT), BINDS_RIGHT, 3,
            ("twice", 2, "another roof"),
            ("its inverse", 0.677, "Its inverse"),
            ("nothing", 1, "more bandwidth does shorten"),
        ),
        *one_wrong(
            BINDS + HELPS.format(*HELPS_RIGHT), BINDS_RIGHT, 4,
            ("no change", 48, "one of the two products still runs at the old rate"),
            ("no change, rounded down", 47, "And tokens come whole"),
            ("the bytes alone", 24, "if neither product is faster"),
            ("the rate alone", 95, "half the bytes come"),
            ("the products alone", 64, "one byte a number"),
            ("the mean of rates", 36, "it is times that add up"),
            ("rounded down", 31, "tokens come whole"),
            ("rows", 252, "How many rows does a token bring"),
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
    ],
    "fault": [
        *kernel(0, ("layout", "512 queries would be wrong"), ("tiles", "what do tiles do wrong"),
                ("dropout", "the first key alone"), ("sums", "the first key alone")),
        *kernel(1, ("tiles", "grows by the same again and again"), ("corner", "only with very many keys"),
                ("layout", "512 queries would be wrong")),
        *kernel(2, ("corner", "without a mask, too"), ("layout", "What do those have in common"),
                ("sums", "Many keys are right")),
        *kernel(3, ("sums", "once there is dropout"), ("corner", "once there is dropout"),
                ("tiles", "once there is dropout")),
        *in_place_of(
            "places = start + torch.arange(len(keys))",
            ("each tile's own places", "places = torch.arange(len(keys))",
             "counted from the beginning of a tile"),
            ("places from the tile's number", "places = start // tile + torch.arange(len(keys))",
             "counted from the beginning of a tile"),
            ("places by whole tiles", "places = start + tile + torch.arange(len(keys)) - 1",
             "Which keys may query i see"),
            ("a key too few", "places = start + 1 + torch.arange(len(keys))", "one key too few"),
            ("a key too many", "places = start - 1 + torch.arange(len(keys))", "one key too many"),
        ),
        *in_place_of(
            "x = x.masked_fill(places > rows[:, None] + offset, -torch.inf)",
            ("offset forgotten", "x = x.masked_fill(places > rows[:, None], -torch.inf)",
             "Which is the last key that query i may see"),
            ("offset taken off", "x = x.masked_fill(places > rows[:, None] - offset, -torch.inf)",
             "more keys with a larger one, or fewer"),
            ("from the last key",
             "x = x.masked_fill(places > rows[:, None] + len(k) - len(q), -torch.inf)",
             "counted from the last key"),
            ("from the last key, and offset",
             "x = x.masked_fill(places > rows[:, None] + offset + len(k) - len(q), -torch.inf)",
             "counted from the last key"),
            ("the last key hidden", "x = x.masked_fill(places >= rows[:, None] + offset, -torch.inf)",
             "one key too few"),
            ("no mask", "pass", "without a mask"),
        ),
        *in_place_of(
            "for start in range(0, len(k), tile):",
            ("whole tiles alone", "for start in range(0, len(k) - tile + 1, tile):",
             "without the last tile of keys"),
        ),
        *in_place_of(
            "top = torch.full((len(q),), -1e30)",
            ("starts at 0", "top = torch.zeros(len(q))", "From what does the maximum start"),
        ),
        *in_place_of(
            "sums = sums * shrink[:, None] + weights @ values",
            ("sums as they are", "sums = sums + weights @ values",
             "wrong only where the maximum rises"),
            ("sums grown", "sums = sums / shrink[:, None] + weights @ values",
             "What of the sums follows the maximum"),
        ),
        *in_place_of(
            "total = total * shrink + weights.sum(1)",
            ("totals as they are", "total = total + weights.sum(1)",
             "Wrong only where the maximum rises"),
        ),
        *in_place_of(
            MENDED,
            ("the last tile's maximum", "return sums / total[:, None], x.amax(1) + total.log()",
             "where the largest scores came in early tiles"),
            ("no maximum", "return sums / total[:, None], total.log()",
             "exponentials beside which maximum"),
            ("no logarithm", "return sums / total[:, None], top + total",
             "exponentials beside which maximum"),
        ),
        *in_place_of(
            "rows, scale = torch.arange(len(q)), q.shape[1] ** -0.5",
            ("nothing is mended", "return faulty(q, k, v, tile, offset)", "Two faults are left"),
            ("a factor of heads 4 wide", "rows, scale = torch.arange(len(q)), 0.5",
             "On what does it depend"),
            ("by the width", "rows, scale = torch.arange(len(q)), 1 / q.shape[1]", "which power"),
            ("not scaled", "rows, scale = torch.arange(len(q)), 1.0", "which power"),
        ),
    ],
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
        ("a column", "return sums / total[:, None], (top + total.log())[:, None]",
         "of shape (16,); (16, 1) came", MENDED),
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
        ("keys turned once", "rows, scale, turned = torch.arange(len(q)), q.shape[1] ** -0.5, k.T * 1.0",
         "rows, scale = torch.arange(len(q)), q.shape[1] ** -0.5"),
    ],
    "binds": [("two digits", BINDS.format(48, 5.9, 130, 1.5, 32) + HELPS.format(*HELPS_RIGHT))],
}  # fmt: skip
