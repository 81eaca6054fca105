"""Wrong answers to the exercises of input_pipeline."""

from tests.exercises.wrong_answers import Wrong, in_place_of, one_wrong

FEED = (
    "clips_per_second = {}\ntimes_storage = {}\ntimes_both = {}\nworkers = {}\nmemory_gb = {}\n"
    "first_ms = {}\nahead = {}"
)
RIGHT_FEED = ["250", "1.07", "1.16", "14", "3.31", "1660", "32"]
ALIKE = 'sources = {{"A": {}, "B": {}, "C": {}, "D": {}, "E": {}}}'
SOURCES = 'sources = {"A": 1, "B": 3, "C": 4, "D": 2, "E": 6}'
FAULTS = 'faults = {"A": 1, "B": 2, "C": 3, "D": 4}'
SEED = 'return f"{seed} {epoch} {batch}"'
ASK_AND_STEP = """            ask(k + workers * prefetch)
            step(batch)"""
FAILED = "failed = k - 1  # what has been asked for still comes"
DESIGN = (
    'design = {{"stored": "{}", "storage": {}, "workers": {}, "prefetch": {}, "sent": "{}", '
    '"buffer": {}}}\nloosened, saved, faster = "images", 6, 0'
)
LEAST = DESIGN.format("resized", 1.0, 128, 1, "bytes", 20_000) + "\n"
DRAWN = "rows.append(held.pop(place(seed, drawn, len(held))))"
STATE = 'return rows, {"read": read, "held": held, "drawn": drawn}'
MINE = "mine = list(range(rank, samples, ranks))"
NUMBER = "number = ceil(samples / (ranks * batch))  # for every rank"
BEST = "best = min(counts, key=lambda pair: (-counts[pair], pair))"
COUNTED = "counts[pair] += times"
JOINED = """            if out and (out[-1], token) == best:
                out[-1] = new
            else:
                out.append(token)"""
ORDER = "order = sorted(range(len(lengths)), key=lambda n: -lengths[n])"


def sources(name: str, hint: str, *found: int) -> Wrong:
    """Another source for one of the programs."""
    return Wrong(name, ALIKE.format(*found), hint, SOURCES)


def design(name: str, hint: str, *choices: object) -> Wrong:
    """Another design, with the rest as it is."""
    return Wrong(name, DESIGN.format(*choices), hint)


BANK = {
    "feed": [
        *one_wrong(FEED, RIGHT_FEED, 
            0,
            ("the step", "290.9", "So many the step could take"),
            ("a sum", "800", "Take each stage alone"),
        ),
        *one_wrong(FEED, RIGHT_FEED, 
            3,
            ("cores", "16", "how long"),
        ),
        *one_wrong(FEED, RIGHT_FEED, 
            6,
            ("a guess", "16", "at least 0.97"),
        ),
        Wrong("the fastest stage", "return max(storage", "Four stages follow each other", "return min(storage"),
    ],
    "loader": [
        *in_place_of(
            ASK_AND_STEP,
            ("a place is free after the step",
             "            step(batch)\n            ask(k + workers * prefetch)", "when is a place free"),
        ),
        *in_place_of(
            "while asked < min(limit, batches):",
            ("two places at most", "while asked < min(limit - workers * max(0, prefetch - 2), batches):",
             "Four are ahead, two for each worker"),
            ("one place for each", "while asked < min(limit - workers * (prefetch - 1), batches):",
             "Three are ahead, one for each worker"),
            ("one for each at least", "while asked < max(workers, min(limit, batches)):", "two workers have nothing to do"),
        ),
        *in_place_of(
            "except ValueError:\n                batch = torch.full((2,), torch.nan)",
            ("nobody catches it", "except KeyError:\n                batch = None", "ends its worker"),
        ),
        *in_place_of(
            "handles.append(comm.isend(torch.tensor([float(number)]), rank))",
            ("rank 0 waits at once", "comm.isend(torch.tensor([float(number)]), rank).wait()",
             "Does it wait for a handle"),
        ),
        *in_place_of(
            "return failed",
            ("True", "return failed and True", "a number is expected"),
            ("0 for None", "return failed or None", "0 is its number"),
        ),
        *in_place_of(
            FAILED,
            ("the last error", FAILED + "\n        elif batch.isnan().any():\n            failed = k - 1", "at another one"),
        ),
    ],
    "alike": [
        sources("A by worker", "four generators", 2, 3, 4, 2, 6),
        sources("E hashed", "Who reads what", 1, 3, 4, 2, 4),
        *in_place_of(
            SEED,
            ("one seed", "return seed", "One seed for all"),
            ("the worker", "return f'{seed} {worker}'", "Only workers differ"),
            ("no epoch", "return f'{seed} {batch}'", "seeds of the first one"),
            ("a sum", "return seed + epoch + batch", "A sum makes batch 1"),
            ("who makes it, too", "return f'{seed} {epoch} {batch} {worker}'", "cannot be repeated elsewhere"),
            ("no seed", "return f'{epoch} {batch}'", "Two runs with different"),
            ("nothing between", "return f'{seed} {epoch}{batch}'", "without anything between"),
        ),
    ],
    "deal": [
        *in_place_of(
            MINE,
            ("every rank reads everything", "mine = list(range(samples)); number = ceil(samples / batch)",
             "rank and ranks are not used"),
            ("filled up from the front",
             "mine = [i % samples for i in range(rank, ceil(samples / ranks) * ranks, ranks)]", "counted twice"),
            ("filled up to the last place",
             "mine = [i % samples for i in range(rank, number * ranks * batch, ranks)]", "up to the last place"),
            ("rank 0 alone", "mine = list(range(rank, samples, ranks))\n    if rank:\n        return []", "Only rank 0 reads"),
            ("an error", "mine = list(range(rank, samples, ranks))\n    if samples < batch:\n        several.x",
             "raises UnboundLocalError in line"),
        ),
        *in_place_of(
            NUMBER,
            ("one more", "number = samples // (ranks * batch) + 1", "no third one"),
        ),
        *in_place_of(
            "return several[worker::workers]",
            ("each worker all", "return several", "worker and workers are not used"),
            ("the first worker all", "return several if worker == 0 else []", "Two workers for each rank"),
        ),
    ],
    "resume": [
        Wrong("A the buffer", FAULTS.replace('"A": 1', '"A": 2'), "999 that the buffer holds", FAULTS),
        *in_place_of(
            STATE,
            ("the buffer is not in it", 'return rows, {"read": read, "held": [], "drawn": drawn}',
             "29 samples are lost each time"),
        ),
        *in_place_of(
            'held, rows = list(state["held"]), []',
            ("changed in place", 'held, rows = state["held"], []', "make a new one"),
        ),
        *in_place_of(
            DRAWN,
            ("the first", "rows.append(held.pop(0))", "Nothing is shuffled"),
            ("its own random numbers", "rows.append(held.pop(Random(f'own {seed} {drawn}').randrange(len(held))))",
             "in another order than asked for"),
            ("draws of this batch", "rows.append(held.pop(place(seed, len(rows), len(held))))", "draws at the same places"),
        ),
        *in_place_of(
            """    while len(rows) < batch:
        while len(held) < size and read < samples:
            held.append(read)
            read += 1
""",
            ("filled once", """    while len(held) < size and read < samples:
        held.append(read)
        read += 1
    while len(rows) < batch:
""", "filled up once for a batch"),
        ),
        *in_place_of(
            "return states[trained]",
            ("what was made", "return states[made]", "made and not trained on"),
            ("the first", "return states[0]", "begins anew"),
        ),
    ],
    "merge": [
        *in_place_of(
            COUNTED,
            ("words, not occurrences", "counts[pair] += 1", "not how often they occur"),
            ("once a word", "counts[pair] = counts[pair] + (0 if pair == getattr(merge, 'last', None) else times); merge.last = pair",
             "as pairs may overlap"),
        ),
        *in_place_of(
            BEST,
            ("the largest", "best = max(counts, key=lambda pair: (counts[pair], pair))", "not the largest"),
        ),
        *in_place_of(
            JOINED,
            ("from the right",
             """            out.append(token)
        i = len(out) - 1
        while i > 0:
            if (out[i - 1], out[i]) == best:
                out[i - 1 : i + 1] = [new]
                i -= 1
            i -= 1""", "Join from the left"),
            ("the first place",
             """            if out and (out[-1], token) == best and new not in out:
                out[-1] = new
            else:
                out.append(token)""", "several times"),
        ),
        *in_place_of(
            "    if not counts:\n        return None, words\n",
            ("a pair that occurs once is none",
             "    if not counts or max(counts.values()) == 1:\n        return None, words\n", "is a pair, too"),
            ("no pair", "", "There is no pair here"),
        ),
        *in_place_of(
            "joined.append((out, times))",
            ("always 256", "joined.append(([256 if token == new else token for token in out], times))", "300 here"),
        ),
        *in_place_of(
            "file_gb = 4.0 / 2.9 * 4  # two bytes tell 65,536 words apart",
            ("two bytes", "file_gb = 2.76", "65,536 words"),
        ),
    ],
    "pack": [
        *in_place_of(
            "    return rows\n",
            ("lengths", "    return [[lengths[n] for n in row] for row in rows]\n", "These are lengths"),
            ("an error", "    return rows + lengths[sequence]\n", "raises IndexError in line"),
        ),
        Wrong("a row each", "return [[n] for n in range(len(lengths))]", "that is padding", None),
        *in_place_of(
            ORDER,
            ("as they come", "order = range(len(lengths))", "what if they come first"),
            ("the shortest first", "order = sorted(range(len(lengths)), key=lambda n: lengths[n])", "The longest first"),
        ),
        *in_place_of(
            "if lengths[number] <= room:",
            ("any room", "if room > 0:", "room for all of the document"),
        ),
        *in_place_of(
            "                break\n",
            ("in every row", "", "One is enough"),
        ),
        Wrong(
            "cut",
            """
            rows, room = [], 0
            for number, length in enumerate(lengths):
                while length > 0:
                    if room == 0:
                        rows.append([])
                        room = sequence
                    rows[-1].append(number)
                    part = min(room, length)
                    room, length = room - part, length - part
            return rows
            """,
            "runs on into the next row",
        ),
        *in_place_of(
            "padding_alone = 100 * (1 - used / (60 * SEQUENCE))",
            ("a fraction", "padding_alone = 1 - used / (60 * SEQUENCE)", "not a fraction"),
        ),
    ],
    "design": [
        design("too slow", "Fewer than 11,500", "resized", 1.0, 64, 1, "bytes", 20_000),
        design("too large", "More than 5 GB", "resized", 1.0, 96, 2, "bytes", 20_000),
        design("a short buffer", "a larger buffer", "resized", 1.0, 128, 1, "bytes", 5_000),
        design("faster storage", "is reading the slowest stage", "resized", 2.0, 128, 1, "bytes", 20_000),
        design("fastest storage", "is reading the slowest stage", "resized", 4.0, 128, 1, "bytes", 20_000),
        Wrong("memory", LEAST + 'loosened = "memory"', "does cost less"),
        Wrong("another word", LEAST + 'loosened = "storage"', 'Write "memory"'),
        Wrong("a little", LEAST + "faster = 0.75", "what is simulated"),
        Wrong("twice as many", "then / now", "The slowest stage says how many go through", "min(then, others) / min(now, others)"),
    ],
}  # fmt: skip

# The wrong values that the sealed hints of a check are for, in their order; ... is one that
# nobody has found.
SEALED = {
    "feed": {
        "clips_per_second": [332, 291, 267, 22.2, 450, 7.81, ..., 19.1, 18, 89.4, 70.4],
        "times_storage": [2, 1.16, 1, 267],
        "times_both": [2, 1.07, 291],
        "workers": [13, 13.1, 12, 1, 0.409, 0.0764],
        "memory_gb": [3.24, 0.829, ..., 1.16, 1.08, 0.308, 4.32, 4.39, 0.104, 2.48, 3.09, 3314],
        "first_ms": [1536, 1568, 1440, 248, 344, 231, 327, 269, 1774, 110, 1.66],
        "ahead": [31, 33, 34, 33.3, 32.3, 31.3, 1, 2],
    },
    "alike": {
        "of_runs(sources)[0]": [2, 3, 4, 5, 6],
        "of_runs(sources)[1]": [1, 2, 4, 5, 6],
        "of_runs(sources)[2]": [5, 1, 2, 3, 6],
        "of_runs(sources)[3]": [1, 3, 4, 5, 6],
        "crops_of_16": [62.5, 62, 16, 1000, ..., 1],
        "generators": [80, 18, 16, 8, 10],
    },
    "resume": {
        "numbers_of(faults)[0]": [2, 3, 4],
        "numbers_of(faults)[1]": [1, 3, 4],
        "numbers_of(faults)[2]": [1, 2, 4],
        "numbers_of(faults)[3]": [1, 2, 3],
        "never": [28192, 8192, ..., 20000, 28200, ..., ..., ..., 22047, 20031, ...],
    },
    "merge": {
        "file_gb": [2.76, 1.38, 11, 4.14, 46.4, 11.6, 16, 4, 5.52e9],
    },
    "pack": {
        "padding_alone": [0.516, 48.4, 6.4],
        "padding_packed": [0.0641, ..., 3.29, 9.34, 51.6],
    },
    "design": {
        "in_small_letters(loosened)": ['memory'],
        "saved": [4, 17, 19, 2, 10],
        "faster": [100, 2.5],
    },
}  # fmt: skip

# What is built otherwise than asked for: what came, its source, words of what is said, and what of
# the solution it replaces.
OTHERWISE: dict[str, list[tuple[str, ...]]] = {
    "feed": [
        ("a list", "clips_per_second = [250]", "take them off"),
        ("a text", 'clips_per_second = "250"', "without quotes"),
    ],
    "loader": [("a list for a batch", "step([1.0, 2.0])", "A batch that is trained on should be a tensor", "step(batch)")],
    "alike": [
        ("a list", "sources = [1, 3, 4, 2, 6]", "the keys 'A', 'B'", SOURCES),
        ("words", SOURCES.replace("1", "'copy'"), "is the text 'copy'", SOURCES),
        ("a tuple", "return seed, epoch, batch", "should be a whole number", SEED),
        ("a generator", "return Random(seed)", "should be a whole number", SEED),
    ],
    "deal": [
        ("a flat list", "return [row for b in several for row in b]", "a list of lists of whole numbers",
         "return several[worker::workers]"),
        ("a dictionary", "return dict(enumerate(several))", "a list of lists",
         "return several[worker::workers]"),
    ],
    "resume": [
        ("a list", "faults = [1, 2, 3, 4]", "the keys 'A', 'B'", FAULTS),
        ("rows alone", "return rows", "a tuple of 2", STATE),
        ("another key", 'return rows, {"read": read, "held": held}', "the keys 'read', 'held', 'drawn'", STATE),
        ("a number", "return trained", "the keys 'read'", "return states[trained]"),
        ("an error", "return states[made + 99]", "raises IndexError in line", "return states[trained]"),
    ],
    "merge": [
        ("words alone", "return joined", "two things", "return best, joined"),
        ("tokens alone", "return best, [out for out, _ in joined]", "The new words", "return best, joined"),
        ("a text", 'return "es", joined', "The pair", "return best, joined"),
    ],
    "pack": [
        ("a flat list", "return list(range(len(lengths)))", "a list of lists of whole numbers"),
        ("a number", "return 3", "a list of lists of whole numbers"),
    ],
    "design": [
        ("a list", 'design = [1, 2]\nloosened, saved, faster = "images", 6, 0', "the keys 'stored'"),
        ("no choice", DESIGN.format("resized", 1.0, 100, 1, "bytes", 20_000), "workers = 100 is no choice"),
    ],
}  # fmt: skip

# The programs that are asked for, by question.
PROGRAMS = {
    "loader": "loader",
    "alike": "seed_of",
    "deal": "batches_of",
    "resume": "take",
    "merge": "merge",
    "pack": "packed",
}

# Right answers of another kind: what came, its source, what of the solution it replaces.
RIGHT = {
    "feed": [("rounded", FEED.format("250", "1.1", "1.2", "14", "3.3", "1700", "32"))],
    "loader": [
        (
            "places are given out one for one, and an error is a batch of another length",
            """
            workers, handles = comm.size - 1, []
            def post(rank, *numbers):
                handles.append(comm.isend(torch.tensor(numbers, dtype=torch.float64), rank))
            failed = None
            if comm.rank:
                for k in range(comm.rank - 1, batches, workers):
                    if comm.recv(torch.empty(1, dtype=torch.float64), 0).item() == 0:
                        break
                    try:
                        post(0, 1.0, *fetch(k).tolist())
                    except ValueError:
                        post(0, 0.0, 0.0, 0.0)
                else:
                    comm.recv(torch.empty(1, dtype=torch.float64), 0)
            else:
                begun = min(batches, workers * prefetch)
                for k in range(begun):
                    post(1 + k % workers, 1.0)
                for k in range(batches):
                    if k == begun:
                        break
                    good, *numbers = comm.recv(torch.empty(3, dtype=torch.float64), 1 + k % workers).tolist()
                    if not good and failed is None:
                        failed = k
                    if failed is None:
                        if begun < batches:
                            post(1 + begun % workers, 1.0)
                            begun += 1
                        step(torch.tensor(numbers))
                for rank in range(1, comm.size):
                    post(rank, 0.0)
            for handle in handles:
                handle.wait()
            return failed
            """,
        )
    ],
    "alike": [
        ("a hash of a tuple", "return hash((seed, epoch, batch))", SEED),
        ("numbers of NumPy",
         'sources = {k: __import__("numpy").int64(n) for k, n in dict(A=1, B=3, C=4, D=2, E=6).items()}', SOURCES),
        ("a cached text",
         "return repr((seed, epoch, batch))\n\n\nimport functools\nseed_of = functools.cache(seed_of)", SEED),
        ("a nested hash", "import zlib\n    return zlib.crc32(repr((seed, epoch, batch)).encode()) * 10**9 + batch",
         SEED),
    ],
    "deal": [
        (
            "as evenly as can be",
            """
            number = -(-samples // (ranks * batch))
            cuts = [samples * i // (ranks * number) for i in range(ranks * number + 1)] if number else []
            mine = []
            for i in range(number):
                low, high = (samples * (i * ranks + rank + x) // (ranks * number) for x in (0, 1))
                mine.append(list(range(low, high)))
            return [b for i, b in enumerate(mine) if i % workers == worker]
            """,
        )
    ],
    "resume": [("in order in any case", "held.sort()\n        " + DRAWN, DRAWN)],
    "merge": [
        ("words as lists", "joined.append([out, times])", "joined.append((out, times))"),
        ("tokens as a tuple", "joined.append((tuple(out), times))", "joined.append((out, times))"),
    ],
    "pack": [
        (
            "each row as full as can be",
            """
            left = sorted(range(len(lengths)), key=lambda n: -lengths[n])
            rows = []
            while left:
                first = left.pop(0)
                found = {lengths[first]: (first,)}
                for number in left:
                    for total in sorted(found, reverse=True):
                        more = total + lengths[number]
                        if more <= sequence and more not in found:
                            found[more] = (*found[total], number)
                    if sequence in found:
                        break
                rows.append(list(found[max(found)]))
                left = [number for number in left if number not in rows[-1]]
            fewer = len(rows) <= rows_needed(lengths, sequence)
            if fewer:
                return rows
            rows, room = [], []
            for number in sorted(range(len(lengths)), key=lambda n: -lengths[n]):
                at = next((i for i, r in enumerate(room) if r >= lengths[number]), len(rows))
                if at == len(rows):
                    rows.append([])
                    room.append(sequence)
                rows[at].append(number)
                room[at] -= lengths[number]
            return rows
            """,
        )
    ],
    "design": [("the numbers alone", LEAST)],
}  # fmt: skip
