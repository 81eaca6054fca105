"""Wrong answers to the exercises of roofline."""

from tests.exercises.wrong_answers import Wrong, in_place_of

MEASURED = "bandwidth = {}\ncorner = {}\nsmall_copy = {}\nshare = {}"
MEASURED_RIGHT: list[object] = [24.0, 5.0, 48.0, 0.41]
DECODE = "compute_from = {}\ncache_bytes = {}\ncache_from = {}\ntokens_64 = {}\ntokens_most = {}\nfit = {}"
DECODE_RIGHT: list[object] = [100, 491_520_000, 29, 5630, 6330, 154]
WORDS = (
    'limits = dict(A="{}", B="{}", C="{}", D="{}", E="{}", F="{}")\nfaster_a = {}\nfaster_e = {}'
)
WORDS_RIGHT: list[object] = [
    "network",
    "compute",
    "bandwidth",
    "launch",
    "input",
    "capacity",
    1.67,
    2.11,
]
REPAIRS = (
    "design = {{'batch': {}}} | {{name: name in {} for name in DAYS}}\n"
    "at_first = {!r}\nin_design = {!r}\nworth_more = {!r}\nfalls = {}"
)
CHEAP = ["workers", "overlap", "recompute"]
REPAIRS_RIGHT: list[object] = [32, CHEAP, "network", "bandwidth", "memory", 0.19]


def one_wrong(
    form: str, right: list[object], place: int, *wrong: tuple[str, object, str]
) -> list[Wrong]:
    """Answers that are right but for the one in this place: misconception, what came, and hint."""
    return [
        Wrong(name, form.format(*right[:place], came, *right[place + 1 :]), hint)
        for name, came, hint in wrong
    ]


def a_design(batch: int, *done: str) -> str:
    """An answer to the last question by code with this design."""
    return REPAIRS.format(batch, list(done), *REPAIRS_RIGHT[2:])


BANK = {
    "shapes": [
        *in_place_of(
            "flops = 2 * n * i * o",
            ("multiply-adds", "flops = n * i * o", "They are two FLOPs"),
        ),
        *in_place_of(
            "return flops / (size * numbers)",
            ("FLOPs for each number", "return flops / numbers", "FLOPs for each number"),
            ("upside down", "return size * numbers / flops", "Upside down"),
            ("two bytes, always", "return flops / (2 * numbers)", "four bytes"),
            ("the FLOPs", "return float(flops)", "How many bytes are there for them"),
        ),
        *in_place_of(
            "n, i, o = shape",
            ("outputs before inputs", "n, o, i = shape", "Inputs and outputs are swapped"),
        ),
        *in_place_of(
            "b, heads, kv_heads, n, met, d = shape",
            (
                "context before tokens",
                "b, heads, kv_heads, met, n, d = shape",
                "Tokens and context are swapped",
            ),
            (
                "heads of keys first",
                "b, kv_heads, heads, n, met, d = shape",
                "Heads and heads of keys are swapped",
            ),
            (
                "as many keys as tokens",
                "b, heads, kv_heads, n, met, d = shape\n        met = n",
                "as many keys as new tokens",
            ),
            (
                "as many tokens as keys",
                "b, heads, kv_heads, n, met, d = shape\n        n = met",
                "as many new tokens as keys",
            ),
        ),
        *in_place_of(
            "n * i + i * o + o + n * o",
            ("no weights", "n * i + o + n * o", "The weights are read, too"),
            ("no result", "n * i + i * o + o", "The result is written, too"),
            ("no tokens", "i * o + o + n * o", "The tokens are read, too"),
            ("no bias", "n * i + i * o + n * o", "The bias is missing"),
            ("a bias a token", "n * i + i * o + 2 * n * o", "read once for all tokens"),
            ("the tokens alone", "n * i", "Only the tokens are counted"),
        ),
        Wrong(
            "an eighth of the width",
            """
            if kind == "linear":
                return shape[1] / 8
            return 1.0
            """,
            "a rule that is in print",
        ),
        *in_place_of(
            "flops = 2 * b * heads * n * met * d",
            ("multiply-adds of scores", "flops = b * heads * n * met * d", "They are two FLOPs"),
        ),
        *in_place_of(
            "numbers = queries + keys + b * heads * n * met",
            ("scores not written", "numbers = queries + keys", "The scores are written, too"),
            (
                "one result for all heads",
                "numbers = queries + keys + b * n * met",
                "Each head has scores of its own",
            ),
            (
                "keys not read",
                "numbers = queries + b * heads * n * met",
                "The keys are read, too",
            ),
            (
                "scores of the heads of keys",
                "numbers = queries + keys + b * kv_heads * n * met",
                "12 of them are written",
            ),
        ),
        *in_place_of(
            "b * kv_heads * met * d",
            ("keys for each head", "b * heads * met * d", "keys are those of 4 heads"),
            ("keys that sequences share", "kv_heads * met * d", "for each"),
            ("one head of keys", "b * met * d", "four heads of keys, not one"),
            (
                "as many heads as share one",
                "b * (heads // kv_heads) * met * d",
                "how many heads of keys are there then",
            ),
        ),
        *in_place_of(
            "return 8 * n * hidden / (size * numbers + 8 * n)",
            (
                "nothing for the backward pass",
                "return 8 * n * hidden / (size * numbers)",
                "the mean and the inverse deviation of each token are results",
            ),
            (
                "two bytes for these, too",
                "return 8 * n * hidden / (size * (numbers + 2 * n))",
                "four bytes each here",
            ),
            ("FLOPs an element", "return 8.0", "FLOPs for each element"),
            (
                "two bytes, always, in norms",
                "return 8 * n * hidden / (2 * numbers + 8 * n)",
                "four bytes",
            ),
            (
                "four bytes, always, in norms",
                "return 8 * n * hidden / (4 * numbers + 8 * n)",
                "two bytes",
            ),
            (
                "a FLOP an element",
                "return n * hidden / (size * numbers + 8 * n)",
                "8 FLOPs an element",
            ),
        ),
        *in_place_of(
            "numbers = 2 * n * hidden + 2 * hidden",
            ("no weight and bias", "numbers = 2 * n * hidden", "Weight and bias are read, too"),
            ("a weight alone", "numbers = 2 * n * hidden + hidden", "two vectors"),
            ("tokens once", "numbers = n * hidden + 2 * hidden", "counted once here"),
            (
                "weights for each token",
                "numbers = 2 * n * hidden + 2 * n * hidden",
                "once for all tokens",
            ),
        ),
    ],
    "roofs": [
        *one_wrong(
            MEASURED,
            MEASURED_RIGHT,
            0,
            ("reads alone", 12.0, "and writes it, too"),
            ("bytes a second", 24e9, "wanted in GB/s"),
            ("megabytes a second", 24_000, "wanted in GB/s"),
            ("kilobytes a second", 24e6, "wanted in GB/s"),
            ("from the small copy", 0.5, "what takes its time is the launch"),
            ("binary megabytes", 25.2, "10⁶ bytes here"),
        ),
        *one_wrong(
            MEASURED,
            MEASURED_RIGHT,
            1,
            ("multiply-adds", 2.5, "They are two FLOPs"),
            ("half the bandwidth", 10.0, "a copy reads and writes"),
            ("the peak", 120, "This is the peak"),
            ("the product's own intensity", 171, "the intensity of the product itself"),
        ),
        *one_wrong(
            MEASURED,
            MEASURED_RIGHT,
            2,
            ("reads alone", 96, "reads and writes"),
            ("upside down", 0.0208, "Upside down"),
            ("the seconds foreseen", 8.33e-8, "So many seconds does the roof foresee"),
        ),
        *one_wrong(
            MEASURED,
            MEASURED_RIGHT,
            3,
            ("reads alone", 0.203, "read and written"),
            ("a percentage", 41, "not a percentage"),
            ("milliseconds foreseen", 16.7, "So many milliseconds"),
            ("of the peak", 0.0508, "share of the peak"),
            ("upside down", 2.46, "Upside down"),
        ),
        *in_place_of(
            "held[roof] += asked[roof]",
            (
                "every roof of every operation",
                "for each in held:\n            held[each] += asked[each]",
                "given to all its roofs",
            ),
            ("the last alone", "held[roof] = asked[roof]", "The longest is its time"),
        ),
        *in_place_of(
            'rate = machine["product" if is_product else "other"]',
            ("one rate for all", 'rate = machine["product"]', "add no elements up"),
            ("the rate of all else", 'rate = machine["other"]', "units of their own"),
            (
                "a message alone left out",
                'if not flops:\n            continue\n        rate = machine["product" if is_product else "other"]',
                "The message alone is lost",
            ),
        ),
        *in_place_of(
            '"memory": nbytes / machine["memory"],',
            (
                "sent through memory, too",
                '"memory": (nbytes + sent) / machine["memory"],',
                "no bytes through memory",
            ),
        ),
        *in_place_of(
            'held = {"compute": 0.0, "memory": 0.0, "network": 0.0}',
            (
                "rates typed in",
                'held = {"compute": 0.0, "memory": 0.0, "network": 0.0}\n'
                '    machine = {"product": 1000, "other": 100, "memory": 10, "network": 1}',
                "rates of the first machine",
            ),
        ),
        *in_place_of(
            '"memory": nbytes / machine["memory"],\n                 "network": sent / machine["network"]}',
            (
                "one axis for three roofs",
                '"memory": (nbytes + sent) / machine["memory"],\n                 "network": 0.0}',
                "over the network, at its rate",
            ),
            (
                "no network",
                '"memory": nbytes / machine["memory"],\n                 "network": 0.0}',
                "The fourth operation sends",
            ),
        ),
        *in_place_of(
            "roof = max(asked, key=asked.get)",
            ("the shortest", "roof = min(asked, key=asked.get)", "not shortest"),
            (
                "what sends is bound by the network",
                'roof = "network" if sent else max(asked, key=asked.get)',
                "reads for longer",
            ),
        ),
        *in_place_of(
            'return held | {"rate": flops / sum(held.values())}',
            (
                "shares",
                'total = sum(held.values())\n    return {n: t / total for n, t in held.items()} | {"rate": flops / total}',
                "not shares of them",
            ),
            (
                "FLOPs of products",
                'flops = sum(one[0] for one in operations if one[3])\n    return held | {"rate": flops / sum(held.values())}',
                "not only those of products",
            ),
            (
                "all as one",
                """
    asked = {"compute": sum(o[0] / machine["product" if o[3] else "other"] for o in operations),
             "memory": sum(o[1] for o in operations) / machine["memory"],
             "network": sum(o[2] for o in operations) / machine["network"]}
    return asked | {"rate": flops / max(asked.values())}""".lstrip(),
                "operations run one after the other",
            ),
            (
                "the mean of rates",
                """
    rates = []
    for each in operations:
        one = each[0] / machine["product" if each[3] else "other"]
        one = max(one, each[1] / machine["memory"], each[2] / machine["network"])
        rates.append(each[0] / one)
    return held | {"rate": sum(rates) / len(rates)}""".lstrip(),
                "not the mean",
            ),
        ),
    ],
    "decode": [
        *one_wrong(
            DECODE,
            DECODE_RIGHT,
            0,
            ("the corner", 200, "weights of two bytes"),
            ("two bytes and a FLOP", 400, "two FLOPs for each sequence"),
            ("upside down", 0.01, "Upside down"),
        ),
        *one_wrong(
            DECODE,
            DECODE_RIGHT,
            1,
            ("keys alone", 245_760_000, "Keys and values"),
            ("all heads", 2_457_600_000, "Heads of queries share"),
            ("one layer", 12_288_000, "Each layer"),
            ("one token", 163_840, "one token's"),
            ("megabytes", 491.52, "wanted in bytes"),
            ("kilobytes", 491_520, "wanted in bytes"),
            ("binary megabytes", 468.75, "In MiB"),
            ("binary kilobytes", 480_000, "In KiB"),
            ("two digits", 4.9e8, "Right, but rounded"),
            ("three digits", 492_000_000, "Right, but rounded"),
            ("one digit", 5e8, "Right, but rounded"),
        ),
        *one_wrong(
            DECODE,
            DECODE_RIGHT,
            2,
            ("rounded down", 28, "a little more yet"),
            ("a part of a sequence", 28.48, "whole"),
            ("two bytes a weight", 57, "weights of two bytes"),
            ("a cache for each head of queries", 6, "8 are kept"),
        ),
        *one_wrong(
            DECODE,
            DECODE_RIGHT,
            3,
            ("weights alone", 18_286, "Keys and values are read, too"),
            ("a cache that is shared", 17_666, "read 64 times"),
            ("steps", 88, "How many do all 64 get"),
            ("bound by compute", 6334, "bound by reading weights"),
            ("one after the other", 4705, "the longer of both"),
            ("weights for each sequence", 276, "share the weights"),
            ("two bytes a weight", 4305, "of one byte here"),
            ("caches alone", 8138, "The weights are read, too"),
            ("seconds of a step", 0.01136, "So long does a step take"),
        ),
        *one_wrong(
            DECODE,
            DECODE_RIGHT,
            4,
            ("caches alone", 8138, "that takes its time, too"),
            ("compute alone", 28_571, "no batch changes that"),
            ("of 64", 5630, "with 64 sequences"),
            ("multiply-adds", 7124, "two FLOPs for each token"),
            ("one alone", 276, "one sequence alone"),
            ("seconds a token", 1.579e-4, "So many seconds does one more sequence cost"),
        ),
        *one_wrong(
            DECODE,
            DECODE_RIGHT,
            5,
            ("rounded up", 155, "does not fit whole"),
            ("a part of a sequence", 154.6, "whole"),
            ("no weights", 183, "The weights are in memory as well"),
            ("nothing else", 166, "the other 6 GB"),
            ("two bytes a weight", 126, "of one byte in memory"),
            ("from which compute binds", 100, "capacity, not bandwidth"),
        ),
    ],
    "utilization": [
        Wrong("as reported", "return reported(run)", "take part in no product"),
        *in_place_of(
            'run["vocab"] * hidden\n',
            ("no head", "0 * hidden\n", "the head is missing"),
            ("embeddings, too", '2 * run["vocab"] * hidden\n', "take part in no product"),
        ),
        *in_place_of(
            "return [3 * wanted / most, computed / most]",
            (
                "three of four passes",
                "wanted = computed / passes\n    return [3 * wanted / most, computed / most]",
                "the head is computed once",
            ),
            (
                "swapped",
                "return [computed / most, 3 * wanted / most]",
                "The other way round",
            ),
            (
                "recomputed counted",
                "wanted = sum(of_layers(n) for n in run['lengths']) * passes / 3 + sum(2 * n * head for n in run['lengths'])\n"
                "    return [3 * wanted / most, computed / most]",
                "The model needs it once",
            ),
            (
                "percentages",
                "return [300 * wanted / most, 100 * computed / most]",
                "not percentages",
            ),
            (
                "padding counted",
                "wanted = len(run['lengths']) * (of_layers(n) + 2 * n * head)\n"
                "    return [3 * wanted / most, computed / most]",
                "Padding is in the MFU",
            ),
            (
                "recomputation nowhere",
                "computed = 3 * len(run['lengths']) * (of_layers(n) + 2 * n * head)\n"
                "    return [3 * wanted / most, computed / most]",
                "missing in the HFU",
            ),
            (
                "no padding in the HFU",
                "computed = sum(passes * of_layers(n) + 6 * n * head for n in run['lengths'])\n"
                "    return [3 * wanted / most, computed / most]",
                "HFU counts what they compute",
            ),
            (
                "the forward pass alone",
                "return [wanted / most, computed / most / 3]",
                "the forward pass alone",
            ),
            (
                "backward as much as forward",
                "return [2 * wanted / most, computed / most * 2 / 3]",
                "twice what forward does",
            ),
        ),
        *in_place_of(
            "return n * (2 * weights + 4 * layers * hidden * n)",
            ("no attention", "return n * 2 * weights", "Attention's scores"),
            (
                "layers by the width",
                "return n * (2 * weights + 4 * layers * hidden * n) / layers * (12 * hidden // 1024)",
                "How many layers there are",
            ),
            (
                "half of the scores",
                "return n * (2 * weights + 2 * layers * hidden * n)",
                "what the causal mask hides is counted",
            ),
            (
                "scores of whole rows",
                'return n * (2 * weights + 4 * layers * hidden * run["row"])',
                "not as the row has",
            ),
        ),
        *in_place_of(
            "row = passes * of_layers(n) + 3 * 2 * n * head",
            (
                "the head recomputed",
                "row = passes * (of_layers(n) + 2 * n * head)",
                "only layers are",
            ),
            (
                "attention not recomputed",
                "row = 3 * (of_layers(n) + 2 * n * head) + (passes - 3) * n * 2 * weights",
                "recomputed with the layers",
            ),
            (
                "padding not recomputed",
                "row = 3 * (of_layers(n) + 2 * n * head)\n"
                "    row += (passes - 3) * sum(map(of_layers, run['lengths'])) / len(run['lengths'])",
                "is the whole row",
            ),
        ),
        *in_place_of(
            'n = run["row"]',
            ("rows as before", "n = 2048", "Not every row has 2,048"),
        ),
        *in_place_of(
            'run["seconds"] * run["devices"] * run["peak"]',
            ("one device", 'run["seconds"] * run["peak"]', "There are 32 devices"),
            (
                "as many devices as before",
                'run["seconds"] * 32 * run["peak"]',
                "Not every run has 32 devices",
            ),
        ),
    ],
    "waves": [
        *in_place_of(
            "waves = -(-number // multiprocessors)",
            ("parts of a wave", "waves = number / multiprocessors", "waves come whole"),
            (
                "the last wave forgotten",
                "waves = max(1, number // multiprocessors)",
                "The tiles of the last wave are missing",
            ),
        ),
        *in_place_of(
            "number = -(-m // high) * -(-n // wide)",
            (
                "by the area",
                "number = -(-m * n // (high * wide))",
                "Tiles come whole on each side",
            ),
            ("warps", "number = -(-m // 32) * -(-n // 32)", "the size of a warp"),
            (
                "swapped",
                "number = -(-m // wide) * -(-n // high)",
                "High and wide are swapped",
            ),
            (
                "half a tile above",
                "number = m / high * -(-n // wide)",
                "above as well",
            ),
            (
                "half a tile beside",
                "number = -(-m // high) * n / wide",
                "cut in half costs as much",
            ),
        ),
        *in_place_of(
            "useful = m * n / (waves * microseconds)",
            (
                "as large as they are",
                "useful = m * n / (waves * high * wide)",
                "small ones take longer for each element",
            ),
            ("waves of one length", "useful = m * n / waves", "takes less time than one of large"),
            ("least time", "useful = 1 / (waves * microseconds)", "it does less, too"),
            (
                "least time, then the widest",
                "useful = 1 / (waves * microseconds) * (1 + n / 1e9)",
                "the widest of those that take least time",
            ),
            (
                "a full last wave",
                "useful = number / (waves * multiprocessors)",
                "The last wave is full",
            ),
            (
                "whole tiles",
                "useful = m * n / (number * high * wide)",
                "how full is the last wave",
            ),
        ),
        *in_place_of(
            "range(least, most + 1, 8)",
            ("every width", "range(least, most + 1)", "Not every width may be chosen"),
            ("without the last", "range(least, most, 8)", "may be chosen, too"),
            ("the widest", "(most,)", "A wave of small tiles takes less time"),
        ),
        *in_place_of(
            "if useful > best[0]:",
            ("the last of several", "if useful >= best[0]:", "the smallest n, and the first"),
            (
                "the widest of several",
                "if (useful, n) > (best[0], (best[1] or [0])[0]):",
                "take the smallest n",
            ),
        ),
        *in_place_of(
            "in tiles:",
            ("the last of several tiles", "in reversed(tiles):", "take the first"),
        ),
        Wrong(
            "the widest there is",
            "return [most, *tiles[0][:2]]",
            "A wave of small tiles takes less time",
        ),
    ],
    "fusion": [
        *in_place_of(
            "for name in read | (made & needed))",
            ("writes all", "for name in read | made)", "is neither written nor read"),
            (
                "writes what is needed in the end",
                "for name in read | (made & set(results)))",
                "What a later kernel reads",
            ),
            (
                "writes the last",
                "for name in read | {kernel[-1][0]})",
                "the last tensor of each kernel alone",
            ),
            (
                "writes the last, and results",
                "for name in read | {kernel[-1][0]} | (made & set(results)))",
                "may be read by a later one",
            ),
            (
                "writes the last, and what is needed",
                "for name in read | {kernel[-1][0]} | (made & needed))",
                "even where nobody needs it",
            ),
        ),
        *in_place_of(
            "read = {name for line in kernel for name in line[1]} - made",
            (
                "reads its own",
                "read = {name for line in kernel for name in line[1]}",
                "is neither written nor read",
            ),
        ),
        *in_place_of(
            "fused, needed = 0, set(results)",
            ("results forgotten", "fused, needed = 0, set()", "even if no line of the program"),
        ),
        *in_place_of(
            'if kernels and line[2] == "each" == kernels[-1][-1][2]:',
            ("all fused", "if kernels:", 'fuses lines of the kind "alone"'),
            (
                "a product takes what follows",
                'if kernels and line[2] == "each":',
                "fuses lines of the kind",
            ),
            ("nothing fused", "if False:", "Nothing is fused yet"),
            (
                "a product joins what was before",
                'if kernels and kernels[-1][-1][2] == "each":',
                "is a kernel by itself",
            ),
        ),
        *in_place_of(
            "{made, *read}",
            ("twice what is named twice", "(made, *read)", "that a line names twice"),
        ),
        *in_place_of(
            "return [apart, fused]",
            ("what is saved", "return [apart, apart - fused]", "not of those that it saves"),
            ("swapped", "return [fused, apart]", "The other way round"),
        ),
        Wrong(
            "reads its own, and writes",
            "used = {name for line in kernel for name in line[1]}\n        fused += sum(sizes[name] for name in used)\n        fused += sum(sizes[name] for name in made & needed)",
            "reads what the same kernel has made",
            "fused += sum(sizes[name] for name in read | (made & needed))",
        ),
        Wrong(
            "reads for each line",
            "fused += sum(sizes[n] for line in kernel for n in line[1] if n not in made)\n        fused += sum(sizes[n] for n in made & needed)",
            "once for each line of a kernel",
            "fused += sum(sizes[name] for name in read | (made & needed))",
        ),
        Wrong(
            "reads once for each line",
            "fused += sum(sizes[n] for line in kernel for n in set(line[1]) if n not in made)\n        fused += sum(sizes[n] for n in made & needed)",
            "once for each line of a kernel",
            "fused += sum(sizes[name] for name in read | (made & needed))",
        ),
        Wrong(
            "reads once for the program",
            "fused += sum(sizes[n] for n in read - needed | (made & needed))",
            "once for the whole program",
            "fused += sum(sizes[name] for name in read | (made & needed))",
        ),
    ],
    "traces": [
        *(
            one_wrong(
                WORDS,
                WORDS_RIGHT,
                0,
                ("half of the time is a wait", "input", "while no kernel runs"),
                ("six tenths", "compute", "What goes on in the rest"),
                ("too many launches", "launch", "within the first millisecond"),
            )
        ),
        *one_wrong(
            WORDS,
            WORDS_RIGHT,
            1,
            ("full, so capacity", "capacity", "nothing else was wanted of it"),
            ("messages in most of the time", "network", "all beside kernels"),
        ),
        *one_wrong(
            WORDS,
            WORDS_RIGHT,
            2,
            ("busy, so compute", "compute", "with how much arithmetic"),
            ("memory-bound", "capacity", "room is not what it lacks"),
        ),
        *one_wrong(
            WORDS,
            WORDS_RIGHT,
            3,
            ("low utilization, so input", "input", "nobody waits for a batch"),
            ("messages", "network", "who is busy all the time"),
        ),
        *one_wrong(
            WORDS,
            WORDS_RIGHT,
            4,
            ("messages at the end", "network", "only a little is not beside kernels"),
            ("less than half", "compute", "in less than half of the time"),
        ),
        *one_wrong(
            WORDS,
            WORDS_RIGHT,
            5,
            ("the symptom", "bandwidth", "why was it not done"),
            ("busy all the time", "compute", "far from the peak"),
        ),
        *one_wrong(
            WORDS,
            WORDS_RIGHT,
            6,
            ("all messages go away", 3.33, "Part of the messages is hidden already"),
            ("what goes away", 0.4, "So much of the time goes away"),
            ("what is left", 0.6, "So much of the time is left"),
        ),
        *one_wrong(
            WORDS,
            WORDS_RIGHT,
            7,
            ("kernels alone", 2.28, "A little of its messages is not hidden"),
            ("what goes away", 0.526, "So much of the time goes away"),
            ("over the wait", 1.9, "How long is it without the wait"),
        ),
        *in_place_of(
            'kinds = ("kernel", "message", "wait", "launch", "idle")',
            (
                "messages before kernels",
                'kinds = ("message", "kernel", "wait", "launch", "idle")',
                "that message is hidden",
            ),
            (
                "launches before waits",
                'kinds = ("kernel", "message", "launch", "wait", "idle")',
                "the wait counts",
            ),
            (
                "waits before messages",
                'kinds = ("kernel", "wait", "message", "launch", "idle")',
                "the message counts",
            ),
            (
                "waits before kernels",
                'kinds = ("wait", "kernel", "message", "launch", "idle")',
                "a wait is no loss",
            ),
            (
                "the other way round",
                'kinds = ("launch", "wait", "message", "kernel", "idle")',
                "the other way round",
            ),
        ),
        *in_place_of(
            "return found\n",
            (
                "nothing idles",
                'return found | {"idle": 0}\n',
                "nothing happens at all",
            ),
            (
                "from zero on",
                'return found | {"idle": found["idle"] + times[0]}\n',
                "not at 0",
            ),
            (
                "from the first to the last of the list",
                "whole = events[-1][2] - events[0][1]\n"
                "    return found | {'idle': whole - sum(found.values()) + found['idle']}\n",
                "in any order",
            ),
            (
                "to the end of the last to start",
                "by_start = sorted(events, key=lambda event: event[1])\n"
                "    whole = by_start[-1][2] - by_start[0][1]\n"
                "    return found | {'idle': whole - sum(found.values()) + found['idle']}\n",
                "in any order",
            ),
            (
                "lengths added up",
                "for kind in kinds[:4]:\n        found[kind] = sum(e - s for k, s, e in events if k == kind)\n"
                "    return found | {'idle': max(0, times[-1] - times[0] - sum(found.values()))}\n",
                "the lengths of all events",
            ),
            (
                "two kernels at a time",
                "return found | {'kernel': sum(e - s for k, s, e in events if k == 'kernel')}\n",
                "Two kernels run at the same time",
            ),
        ),
    ],
    "repairs": [
        Wrong("too many days", a_design(32, "fuse", "workers"), "more than four days"),
        Wrong("too much memory", a_design(32, "workers", "overlap"), "This does not fit"),
        Wrong("the best single repair", a_design(32, "fuse"), "What do several cheap ones do"),
        Wrong("the largest losses", a_design(16, "workers", "overlap"), "what makes room"),
        Wrong("the largest loss", a_design(16, "overlap"), "What do the other two days buy"),
        Wrong("a day left", a_design(32, "overlap", "recompute"), "a day is left"),
        Wrong("room alone", a_design(32, "workers", "recompute"), "is not mended"),
        Wrong("no larger batch", a_design(16, *CHEAP), "room for more sequences"),
        Wrong("small", a_design(8, *CHEAP), "what still takes most"),
        Wrong(
            "launches",
            a_design(32, "workers", "graph", "recompute"),
            "most of the time is not mended",
        ),
        Wrong(
            "a word for another design",
            REPAIRS.format(16, ["overlap"], "network", "network", "memory", 0.19),
            "What do the other two days buy",
        ),
        *one_wrong(
            REPAIRS,
            REPAIRS_RIGHT,
            2,
            ("kernels at first", "bandwidth", "kernels do not take most"),
            ("batches at first", "input", "Batches take time"),
            ("memory at first", "capacity", "takes no time"),
        ),
        *one_wrong(
            REPAIRS,
            REPAIRS_RIGHT,
            3,
            ("as at first", "network", "So it was at first"),
            ("compute", "compute", "at which of their roofs"),
        ),
        *one_wrong(
            REPAIRS,
            REPAIRS_RIGHT,
            4,
            ("a day more", "days", "Five days buy a little"),
        ),
        *one_wrong(
            REPAIRS,
            REPAIRS_RIGHT,
            5,
            ("of a day", 0.0385, "what a fifth day wins"),
            ("what is left", 0.806, "what is left"),
            ("a percentage", 19.4, "not a percentage"),
            ("milliseconds", 0.0747, "So many milliseconds"),
            ("from below", 0.241, "how much it was more before"),
        ),
    ],
}

# Answers of another structure: what came, its source, words of the sentence, what of the solution it replaces.
OTHERWISE: dict[str, list[tuple[str, ...]]] = {
    "shapes": [
        ("a pair", "return flops, numbers", "What intensity returns should be a number", "return flops / (size * numbers)"),
        ("text", 'return "170"', "the text '170'"),
        ("printed", "print(shape)", "not answered yet, or a function ends without `return`"),
    ],
    "roofs": [
        ("a list", "bandwidth = [24.0]", "take them off"),
        ("seconds in a list", "return list(held.values())", "a dictionary with the keys 'compute'", 'return held | {"rate": flops / sum(held.values())}'),
        ("no rate", "return held", "it is a dictionary with the keys ['compute', 'memory', 'network']", 'return held | {"rate": flops / sum(held.values())}'),
    ],
    "decode": [
        ("text", 'compute_from = "100"', "write it without quotes"),
        ("a pair", "compute_from = (100, 29)", "a list of 2 came"),
    ],
    "utilization": [
        ("the MFU alone", "return 3 * wanted / most", "should be a list of 2", "return [3 * wanted / most, computed / most]"),
        ("a dictionary", 'return {"mfu": 0.3, "hfu": 0.4}', "it is a dictionary"),
    ],
    "waves": [
        ("the width alone", "return best[1][0]", "should be a list of 3", "return best[1]"),
        ("the tile with its time", "return [1536, (128, 64, 32)]", "it is a list of 2"),
        ("parts of a width", "return [1536.5, 128, 64]", "the number 1,536.5"),
    ],
    "fusion": [
        ("one number", "return apart - fused", "should be a list of 2", "return [apart, fused]"),
        ("a dictionary", 'return {"apart": apart, "fused": fused}', "it is a dictionary", "return [apart, fused]"),
    ],
    "traces": [
        ("a list of words", 'limits = ["network", "compute"]', "should be a dictionary with the keys 'A'"),
        ("a word of its own", WORDS.format("loader", *WORDS_RIGHT[1:]), "is none of the words"),
        ("a pair", "return found, times", "it is a tuple of 2", "return found\n"),
        ("no idle", 'found.pop("idle")\n    return found\n', "with the keys 'kernel'", "return found\n"),
    ],
    "repairs": [
        ("a list", 'design = [32, "workers"]', "should be a dictionary with the keys 'batch'"),
        ("another batch", a_design(24), "take one of 8, 16, 32"),
        ("a number for a word", a_design(32, *CHEAP) + "\nat_first = 3", "should be text"),
    ],
}  # fmt: skip

# The programs that are asked for, by question.
PROGRAMS = {
    "shapes": "intensity",
    "roofs": "placed",
    "utilization": "utilization",
    "waves": "fastest",
    "fusion": "through_memory",
    "traces": "parts",
}

# Right answers of another kind: what came, its source, what of the solution it replaces.
RIGHT = {
    "shapes": [
        (
            "sides of a product",
            """
            if kind == "norm":
                n, h = shape
                return 8 * n * h / (n * (2 * size * h + 8) + 2 * size * h)
            if kind == "linear":
                n, i, o = shape
                return 2 / (size * (1 / o + 1 / n + 1 / i + 1 / (n * i)))
            b, heads, kv_heads, n, met, d = shape
            return 2 / (size * (1 / met + kv_heads / (heads * n) + 1 / d))
            """,
        )
    ],
    "roofs": [
        ("rounded", MEASURED.format(24, 5, 48, 0.41)),
        (
            "a rate of five digits",
            'return held | {"rate": float(f"{flops / sum(held.values()):.5g}")}',
            'return held | {"rate": flops / sum(held.values())}',
        ),
    ],
    "decode": [("rounded", DECODE.format(100, 491_520_000, 29, 5600, 6300, 154))],
    "utilization": [
        (
            "rounded to three digits",
            "return [float(f'{each:.3g}') for each in (3 * wanted / most, computed / most)]",
            "return [3 * wanted / most, computed / most]",
        ),
        (
            "emptied as they are counted",
            "n = run['row']\n    number = len(run['lengths'])\n"
            "    while run['lengths']:\n        run['lengths'].pop()\n"
            "    run['lengths'] = [n] * number",
            'n = run["row"]',
        ),
        (
            "by rows",
            "row = 3 * (of_layers(n) + 2 * n * head)\n    row += of_layers(n) if run['recompute'] else 0",
            "row = passes * of_layers(n) + 3 * 2 * n * head",
        ),
    ],
    "waves": [
        (
            "with numbers of NumPy",
            "import numpy as np\n    return list(np.array(best[1]))",
            "return best[1]",
        ),
        (
            "sorted",
            """
            def useful(one):
                n, (high, wide, microseconds) = one
                number = ((m + high - 1) // high) * ((n + wide - 1) // wide)
                return m * n / ((number + multiprocessors - 1) // multiprocessors * microseconds)

            n, tile = max(((n, tile) for n in range(least, most + 1, 8) for tile in tiles), key=useful)
            return [n, *tile[:2]]
            """,
        ),
    ],
    "traces": [
        (
            "with numbers of NumPy",
            "import numpy as np\n    return {kind: np.int64(time) for kind, time in found.items()}\n",
            "return found\n",
        ),
        ("rounded, in capitals", WORDS.format("Network", *WORDS_RIGHT[1:6], 1.7, 2.1)),
        (
            "microsecond by microsecond",
            """each = []
    for t in range(times[0], times[-1]):
        there = [kinds.index(kind) for kind, start, end in events if start <= t < end]
        each.append(min(there, default=4))
    return {kind: each.count(place) for place, kind in enumerate(kinds)}
""",
            "return found\n",
        ),
    ],
    "repairs": [("rounded", a_design(32, *CHEAP))],
}
