"""Wrong answers to the exercises of roofline."""

from tests.exercises.wrong_answers import Wrong, in_place_of, one_wrong

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
            ("two bytes, always", "return flops / (2 * numbers)", "four bytes"),
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
        ),
        *in_place_of(
            "return 8 * n * hidden / (size * numbers + 8 * n)",
            (
                "nothing for the backward pass",
                "return 8 * n * hidden / (size * numbers)",
                "the mean and the inverse deviation of each token are results",
            ),
            (
                "two bytes, always, in norms",
                "return 8 * n * hidden / (2 * numbers + 8 * n)",
                "four bytes",
            ),
        ),
    ],
    "roofs": [
        *one_wrong(
            MEASURED,
            MEASURED_RIGHT,
            0,
            ("reads alone", 12.0, "and writes it, too"),
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
            "roof = max(asked, key=asked.get)",
            (
                "what sends is bound by the network",
                'roof = "network" if sent else max(asked, key=asked.get)',
                "reads for longer",
            ),
        ),
    ],
    "decode": [
        *one_wrong(
            DECODE,
            DECODE_RIGHT,
            0,
            ("the corner", 200, "weights of two bytes"),
        ),
        *one_wrong(
            DECODE,
            DECODE_RIGHT,
            1,
            ("keys alone", 245_760_000, "Keys and values"),
        ),
        *one_wrong(
            DECODE,
            DECODE_RIGHT,
            2,
            ("rounded down", 28, "a little more yet"),
        ),
        *one_wrong(
            DECODE,
            DECODE_RIGHT,
            3,
            ("weights alone", 18_286, "Keys and values are read, too"),
        ),
        Wrong(
            "the cache of one",
            "cache_takes = 2",
            "The products take what the slower of computing and reading",
            "cache_takes = sequences * 2",
        ),
    ],
    "utilization": [
        Wrong("as reported", "return reported(run)", "take part in no product"),
        *in_place_of(
            'run["vocab"] * hidden\n',
            ("no head", "0 * hidden\n", "the head is missing"),
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
                "padding counted",
                "wanted = len(run['lengths']) * (of_layers(n) + 2 * n * head)\n"
                "    return [3 * wanted / most, computed / most]",
                "Padding is in the MFU",
            ),
            (
                "no padding in the HFU",
                "computed = sum(passes * of_layers(n) + 6 * n * head for n in run['lengths'])\n"
                "    return [3 * wanted / most, computed / most]",
                "HFU counts what they compute",
            ),
        ),
        *in_place_of(
            "return n * (2 * weights + 4 * layers * hidden * n)",
            (
                "layers by the width",
                "return n * (2 * weights + 4 * layers * hidden * n) / layers * (12 * hidden // 1024)",
                "How many layers there are",
            ),
        ),
        *in_place_of(
            "row = passes * of_layers(n) + 3 * 2 * n * head",
            (
                "padding not recomputed",
                "row = 3 * (of_layers(n) + 2 * n * head)\n"
                "    row += (passes - 3) * sum(map(of_layers, run['lengths'])) / len(run['lengths'])",
                "is the whole row",
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
        ),
        *in_place_of(
            "range(least, most + 1, 8)",
            ("every width", "range(least, most + 1)", "Not every width may be chosen"),
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
            "fused, needed = 0, set(results)",
            ("results forgotten", "fused, needed = 0, set()", "even if no line of the program"),
        ),
        *in_place_of(
            'if kernels and line[2] == "each" == kernels[-1][-1][2]:',
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
    ],
    "traces": [
        *(
            one_wrong(
                WORDS,
                WORDS_RIGHT,
                0,
                ("half of the time is a wait", "input", "while no kernel runs"),
            )
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
        Wrong("small", a_design(8, *CHEAP), "what still takes most"),
        *one_wrong(
            REPAIRS,
            REPAIRS_RIGHT,
            2,
            ("kernels at first", "bandwidth", "kernels do not take most"),
        ),
        Wrong(
            "whatever memory it takes",
            "if days(one) <= most_days",
            "Of all repairs and batches, keep those that take no more",
            "if days(one) <= most_days and gigabytes(one) <= most_gigabytes",
        ),
    ],
}

# The wrong values that the sealed hints of a check are for, in their order; ... is one that
# nobody has found.
SEALED = {
    "roofs": {
        "bandwidth": [12, 2.4e10, 25.2, 0.5, 0.25, 48, 36, 24000, 2.4e7],
        "corner": [2.5, 10, 120, 1.2e11, 171, ..., 0.2],
        "small_copy": [96, 0.0208, 8.33e-8, 32, 24, 46.9],
        "share": [0.203, 41, 2.46, 0.0508, 0.813, ..., 16.7],
    },
    "decode": {
        "compute_from": [200, 400, 50, 0.01],
        "cache_bytes": [4.9e8, 5e8, 491520, 480000, 469, 245760000, 2457600000, ..., 12288000, 163840, 6.14e7, 0.492, 492, 1.23e8, 31457280000],
        "cache_from": [28, 28.5, 57, 5, 6, 30],
        "tokens_64": [18286, 17666, 88, 6334, 4705, 4305, ..., 8138, 276, 0.0114],
        "tokens_most": [8138, 28571, 5630, 276, 7124, ..., 5180, 0.000158],
        "fit": [155, 166, 183, 195, 126, 309, 30, 100],
    },
    "traces": {
        'said(limits, "A")': ['input', 'compute', 'bandwidth', 'launch', 'capacity'],
        'said(limits, "B")': ['capacity', 'network', 'bandwidth', 'input', 'launch'],
        'said(limits, "C")': ['compute', 'capacity', 'network', 'input', 'launch'],
        'said(limits, "D")': ['input', 'network', 'bandwidth', 'compute', 'capacity'],
        'said(limits, "E")': ['network', 'compute', 'bandwidth', 'launch', 'capacity'],
        'said(limits, "F")': ['bandwidth', 'compute', 'network', 'input', 'launch'],
        "faster_a": [3.33, 0.4, 0.6, 1.43, 1],
        "faster_e": [2.28, 2.28, 0.526, 0.474, 1.3, 1.9],
    },
    "repairs": {
        'a_word(at_first, "at_first")': ['bandwidth', 'compute', 'input', ..., 'capacity', 'memory', 'overlap'],
        'a_word(in_design, "in_design")': ['network', 'compute', 'input', ..., 'capacity', 'memory'],
        'a_word(worth_more, "worth_more")': ['days', 'capacity'],
        "falls": [0.0385, 0.806, 19.4, 0.241, 0.0747, 0.568, 0.464],
    },
}  # fmt: skip

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
