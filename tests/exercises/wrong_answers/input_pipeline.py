"""Wrong answers to the exercises of input_pipeline."""

from tests.exercises.wrong_answers import Wrong, in_place_of

FEED = (
    "clips_per_second = {}\ntimes_storage = {}\ntimes_both = {}\nworkers = {}\nmemory_gb = {}\n"
    "first_ms = {}\nahead = {}"
)
RIGHT_FEED = ["250", "1.07", "1.16", "14", "3.31", "1660", "32"]
ALIKE = 'sources = {{"A": {}, "B": {}, "C": {}, "D": {}, "E": {}}}'
SOURCES = 'sources = {"A": 1, "B": 3, "C": 4, "D": 2, "E": 6}'
FAULTS = 'faults = {"A": 1, "B": 2, "C": 3, "D": 4}'
NEVER = "never = 8 * 4 * 256 + 20_000 - 1"
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


def one_of(place: int, *wrong: tuple[str, object, str]) -> list[Wrong]:
    """Answers to the first question with another value in this place: misconception, value, hint."""
    right = RIGHT_FEED
    return [
        Wrong(name, FEED.format(*right[:place], value, *right[place + 1 :]), hint)
        for name, value, hint in wrong
    ]


def sources(name: str, hint: str, *found: int) -> Wrong:
    """Another source for one of the programs."""
    return Wrong(name, ALIKE.format(*found), hint, SOURCES)


def design(name: str, hint: str, *choices: object) -> Wrong:
    """Another design, with the rest as it is."""
    return Wrong(name, DESIGN.format(*choices), hint)


BANK = {
    "feed": [
        *one_of(
            0,
            ("the step", "290.9", "So many the step could take"),
            ("decoding", "267", "So many twelve workers decode"),
            ("one worker", "22.2", "So many one worker decodes"),
            ("megabytes", "450", "How many clips are these"),
            ("batches", "7.81", "how many clips has one"),
            ("the link", "332", "So many cross the link"),
            ("one after the other", "70.4", "one thing after the other"),
            ("one after the other, no link", "89.4", "one thing after the other"),
            ("one after the other, one worker", "18", "with one worker"),
            ("one after the other, one worker, no link", "19.1", "with one worker"),
            ("a sum", "800", "Take each stage alone"),
        ),
        *one_of(
            1,
            ("twice", "2", "as fast as its slowest stage"),
            ("the step", "1.164", "As if the step were next"),
            ("nothing", "1", "reading was the slowest"),
            ("clips", "266.7", "How many times as many"),
        ),
        *one_of(
            2,
            ("twice", "2", "There is a third one"),
            ("storage alone", "1.067", "without the workers"),
            ("clips", "291", "How many times as many"),
        ),
        *one_of(
            3,
            ("rounded down", "13", "How often do so many"),
            ("the quotient", "13.09", "Workers come whole"),
            ("for storage", "12", "storage apart"),
            ("of one clip", "0.409", "A batch has 32"),
            ("upside down", "0.0764", "Upside down"),
            ("one", "1", "Upside down, or for one clip"),
            ("cores", "16", "how long"),
        ),
        *one_of(
            4,
            ("ahead alone", "3.237", "One more is being transferred"),
            ("bytes", "0.8285", "They are floats of four"),
            ("no places", "1.156", "what are the places for"),
            ("places of one worker", "0.308", "So many places has one worker"),
            ("those in hand twice", "4.393", "has begun"),
            ("a place more for each", "4.32", "has begun"),
            ("one clip", "0.1036", "It has 32"),
            ("as stored", "2.4768", "as they lie in storage"),
            ("GiB", "3.086", "in GiB"),
            ("MB", "3314", "in MB"),
        ),
        *one_of(
            5,
            ("decoding alone", "1440", "What is before it"),
            ("no link", "1568", "not where the step is"),
            ("no reading", "1536", "What is before them"),
            ("workers share", "344.3", "Do they share one"),
            ("workers share, no link", "248", "Do they share one"),
            ("fourteen share", "327.2", "Do they share one"),
            ("fourteen share, no link", "230.9", "Do they share one"),
            ("one clip", "269.3", "one after the other"),
            ("its end", "1774", "Then the first step ends"),
            ("seconds", "1.664", "not in seconds"),
            ("the step", "110", "What has the first batch behind it"),
        ),
        *one_of(
            6,
            ("one too few", "31", "Too few, by a little"),
            ("one too many", "33", "More than are needed"),
            ("lengths", "34", "So many lengths"),
            ("a fraction", "31.3", "Batches come whole"),
            ("a fraction of lengths", "33.3", "How many are whole"),
            ("as if nothing varied", "1", "Without variation"),
            ("double buffering", "2", "a quarter of the time"),
            ("a guess", "16", "at least 0.97"),
        ),
    ],
    "loader": [
        *in_place_of(
            ASK_AND_STEP,
            ("a place is free after the step",
             "            step(batch)\n            ask(k + workers * prefetch)", "when is a place free"),
            ("nothing is asked for again", "            step(batch)", "has to be told to its worker"),
        ),
        *in_place_of(
            "ask(workers * prefetch)\n    while",
            ("all at once", "ask(batches)\n    while", "Nothing holds the worker back"),
            ("nothing at first", "while", "ask for the first batches"),
        ),
        *in_place_of(
            "while asked < min(limit, batches):",
            ("one place too many", "while asked < min(limit + 1, batches):", "Two are ahead"),
            ("two places at most", "while asked < min(limit - workers * max(0, prefetch - 2), batches):",
             "Four are ahead, two for each worker"),
            ("one place for each", "while asked < min(limit - workers * (prefetch - 1), batches):",
             "Three are ahead, one for each worker"),
            ("places in all", "while asked < min(limit - (workers - 1) * prefetch, batches):",
             "Two are ahead in all"),
            ("one at a time", "while asked < min(limit - workers * prefetch + 1, batches):",
             "ask several workers"),
        ),
        *in_place_of(
            "except ValueError:\n                batch = torch.full((2,), torch.nan)",
            ("nobody catches it", "except KeyError:\n                batch = None", "ends its worker"),
            ("the worker ends", "except ValueError:\n                break",
             "also after an error"),
            ("nothing is sent", "except ValueError:\n                continue", "Rank 0 waits for what nobody will do"),
        ),
        *in_place_of(
            "batch = fetch(k)", ("fetched twice", "batch = fetch(k) + 0 * fetch(k)", "fetched twice")
        ),
        *in_place_of(
            "handles.append(comm.isend(batch, 0))",
            ("a worker waits at once", "comm.isend(batch, 0).wait()", "does a worker wait for a handle"),
        ),
        *in_place_of(
            "handles.append(comm.isend(torch.tensor([float(number)]), rank))",
            ("rank 0 waits at once", "comm.isend(torch.tensor([float(number)]), rank).wait()",
             "Does it wait for a handle"),
        ),
        *in_place_of(
            "return failed",
            ("nothing is returned", "return None", "returns the number of the batch"),
            ("True", "return failed and True", "a number is expected"),
            ("0 for None", "return failed or None", "0 is its number"),
        ),
        *in_place_of(
            FAILED,
            ("the last error", FAILED + "\n        elif batch.isnan().any():\n            failed = k - 1", "at another one"),
            ("at once", "failed = k - 1\n            break", "Rank 0 is done, and others still wait"),
            ("the next one", "failed = k", "counted from 0"),
        ),
        *in_place_of(
            "        if failed is None:\n" + ASK_AND_STEP,
            ("training goes on without it",
             "        ask(k + workers * prefetch)\n        if failed != k - 1:\n            step(batch)",
             "goes on without it"),
            ("all is fetched after the error",
             "        ask(k + workers * prefetch)\n        if failed is None:\n            step(batch)",
             "fetched, for nobody"),
            ("on what came after", "        if failed is None:\n            ask(k + workers * prefetch)\n"
             "        if failed != k - 1:\n            step(batch)", "thrown away"),
        ),
        *in_place_of(
            "    for rank in range(1, comm.size):\n        tell(rank, -1)  # it is over\n",
            ("nobody is told", "", "Rank 0 is done, and others still wait"),
            ("one is told", "    tell(1, -1)\n", "Rank 0 is done, and others still wait"),
            ("those with batches are told",
             "    for rank in range(1, 1 + min(workers, batches)):\n        tell(rank, -1)\n",
             "Rank 0 is done, and others still wait"),
        ),
        *in_place_of(
            "        for handle in handles:\n            handle.wait()\n        return None",
            ("a worker does not wait", "        return None", "wait()"),
        ),
        *in_place_of(
            "        tell(rank, -1)  # it is over\n    for handle in handles:\n        handle.wait()",
            ("rank 0 does not wait", "        tell(rank, -1)", "wait()"),
        ),
        *in_place_of(
            "tell(1 + asked % workers, asked)",
            ("one worker for all", "tell(1, asked)", "Rank 0 waits for what nobody will do"),
            ("another worker", "tell(comm.size - 1 - asked % workers, asked)", "received from"),
        ),
        Wrong(
            "one after the other",
            """
            workers = comm.size - 1
            if comm.rank > 0:
                for k in range(comm.rank - 1, batches, workers):
                    comm.send(fetch(k), 0)
                return None
            for k in range(batches):
                step(comm.recv(torch.empty(2), 1 + k % workers))
            """,
            "Three are ahead, one for each worker",
        ),
        Wrong(
            "rank 0 fetches",
            """
            for k in range(batches):
                if comm.rank == 0:
                    step(fetch(k))
            """,
            "Who fetches here",
        ),
        Wrong("nothing", "return None", "Nothing is fetched"),
    ],
    "alike": [
        sources("A by worker", "four generators", 2, 3, 4, 2, 6),
        sources("A by batch", "its own crops", 5, 3, 4, 2, 6),
        sources("B anew", "in three quarters", 1, 2, 4, 2, 6),
        sources("B hashed", "would come again", 1, 4, 4, 2, 6),
        sources("B a copy", "a quarter of the crops", 1, 1, 4, 2, 6),
        sources("C by batch", "knows something of the workers", 1, 3, 5, 2, 6),
        sources("D a sum", "another one in the second epoch", 1, 3, 4, 3, 6),
        sources("D hashed", "Here all do", 1, 3, 4, 4, 6),
        sources("E hashed", "Who reads what", 1, 3, 4, 2, 4),
        *in_place_of(
            "crops_of_16 = ceil(1000 / 16)",
            ("a mean", "crops_of_16 = 62.5", "one batch more"),
            ("rounded down", "crops_of_16 = 62", "one batch more"),
            ("those alike", "crops_of_16 = 16", "So many workers draw the same"),
            ("as many as batches", "crops_of_16 = 1000", "So many there should be"),
            ("one", "crops_of_16 = 1", "goes on from batch to batch"),
        ),
        *in_place_of(
            "generators = 7 + 9 + 1",
            ("all", "generators = 80", "So many seeds there are"),
            ("counted from 1", "generators = 18", "counted from 0"),
            ("a difference", "generators = 16", "both counted"),
            ("workers", "generators = 8", "in one epoch"),
            ("epochs", "generators = 10", "So many epochs"),
        ),
        *in_place_of(
            SEED,
            ("one seed", "return seed", "One seed for all"),
            ("the worker", "return f'{seed} {worker}'", "Only workers differ"),
            ("no epoch", "return f'{seed} {batch}'", "seeds of the first one"),
            ("a sum", "return seed + epoch + batch", "A sum makes batch 1"),
            ("who makes it, too", "return f'{seed} {epoch} {batch} {worker}'", "cannot be repeated elsewhere"),
            ("how many there are, too", "return f'{seed} {epoch} {batch} {workers}'",
             "cannot be repeated elsewhere"),
            ("worker and epoch", "return f'{seed} {epoch} {worker}'", "a seed for each epoch"),
            ("no seed", "return f'{epoch} {batch}'", "Two runs with different"),
            ("nothing between", "return f'{seed} {epoch}{batch}'", "without anything between"),
            ("a sum of products", "return 10_000 * seed + 100 * epoch + batch", "unambiguous"),
            ("a longer sum of products", "return 10**9 * seed + 10**6 * epoch + batch", "meet somewhere"),
            ("the epoch", "return f'{seed} {epoch}'", "All batches of an epoch"),
            ("few bits", "return hash((seed, epoch, batch)) % 2**16", "few bits"),
            ("thousands", "return seed * 10**6 + epoch * 1000 + batch", "meet somewhere"),
            ("for these numbers", "return (seed * 12 + epoch) * 112 + batch", "meet somewhere"),
            ("bits side by side", "return seed << 20 | epoch << 10 | batch", "meet somewhere"),
            ("the batch of the run", "return f'{seed} {batch + epoch * 120}'", "meet somewhere"),
            ("nothing between seed and epoch", "return f'{seed}{epoch} {batch}'", "epoch 11 of seed 1"),
            ("by chance", "return __import__('os').urandom(8).hex()", "never be repeated"),
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
            ("filled up with what is not there", "mine = list(range(rank, ceil(samples / ranks) * ranks, ranks))",
             "no samples 25 and 26"),
            ("the rest is dropped",
             "mine = list(range(rank, samples // ranks * ranks, ranks)); number = ceil(samples // ranks / batch)",
             "The last sample is dropped"),
            ("whole batches", "mine = list(range(rank * number * batch, (rank + 1) * number * batch))",
             "go on beyond"),
        ),
        *in_place_of(
            NUMBER,
            ("own batches", "number = ceil(len(range(rank, samples, ranks)) / batch)", "wait for them for ever"),
            ("dropped batches", "number = samples // (ranks * batch)", "The last sample is dropped"),
            ("one more", "number = samples // (ranks * batch) + 1", "no third one"),
            ("single samples", "number, batch = ceil(samples / ranks), 1", "Batches of one sample"),
            ("one batch", "number, batch = 1, samples", "at most `batch`"),
        ),
        *in_place_of(
            "return several[worker::workers]",
            ("each worker all", "return several", "worker and workers are not used"),
            ("the first worker all", "return several if worker == 0 else []", "Two workers for each rank"),
            ("consecutive", "share = ceil(number / workers)\n    return several[worker * share : (worker + 1) * share]",
             "every so-manyth"),
            ("consecutive, as evenly as can be",
             "cuts = [-(-number * j // workers) for j in (worker, worker + 1)]\n    return several[cuts[0] : cuts[1]]",
             "follow on each other"),
            ("empty ones left out", "return [b for b in several[worker::workers] if b]", "wait for them for ever"),
        ),
    ],
    "resume": [
        Wrong("A the buffer", FAULTS.replace('"A": 1', '"A": 2'), "999 that the buffer holds", FAULTS),
        Wrong("A the place", FAULTS.replace('"A": 1', '"A": 4'), "some would be trained on twice", FAULTS),
        Wrong("B what was made", FAULTS.replace('"B": 2', '"B": 1'), "which are 600", FAULTS),
        Wrong("B draws", FAULTS.replace('"B": 2', '"B": 3'), "in which order", FAULTS),
        Wrong("C the buffer", FAULTS.replace('"C": 3', '"C": 2'), "would be lost", FAULTS),
        Wrong("C the place", FAULTS.replace('"C": 3', '"C": 4'), "some come twice", FAULTS),
        Wrong("D the buffer", FAULTS.replace('"D": 4', '"D": 2'), "none come twice", FAULTS),
        *in_place_of(
            NEVER,
            ("a full buffer", "never = 28192", "One too many"),
            ("batches alone", "never = 8192", "what the buffer holds"),
            ("the buffer alone", "never = 20_000", "the batches made ahead"),
            ("rounded", "never = 28200", "every digit"),
            ("one for each worker", "never = 8 * 256 + 19_999", "It has four places"),
            ("batches for samples", "never = 20_031", "How many samples has a batch"),
        ),
        *in_place_of(
            STATE,
            ("the buffer is not in it", 'return rows, {"read": read, "held": [], "drawn": drawn}',
             "29 samples are lost each time"),
            ("draws are not in it", 'return rows, {"read": read, "held": held, "drawn": 0}', "drawn at the same places"),
            ("where the batch is", 'return rows, {"read": state["read"] + batch, "held": held, "drawn": drawn}',
             "The buffer has read more"),
        ),
        *in_place_of(
            'held, rows = list(state["held"]), []',
            ("changed in place", 'held, rows = state["held"], []', "make a new one"),
            ("a new buffer", "held, rows = [], []", "What the state holds is not used"),
        ),
        *in_place_of(
            DRAWN,
            ("the first", "rows.append(held.pop(0))", "Nothing is shuffled"),
            ("no seed", "rows.append(held.pop(place(0, drawn, len(held))))", "`seed` is not used"),
            ("its own random numbers", "rows.append(held.pop(Random(f'own {seed} {drawn}').randrange(len(held))))",
             "in another order than asked for"),
            ("a swap in the place of a shift",
             "at = place(seed, drawn, len(held))\n        held[at], held[-1] = held[-1], held[at]\n"
             "        rows.append(held.pop())", "to stay in order"),
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
        *in_place_of("held.append(read)", ("in front", "held.insert(0, read)", "Append them at the end")),
        *in_place_of(
            '    return rows, {"read"',
            ("a short batch is none", '    if len(rows) < batch:\n        rows = []\n    return rows, {"read"',
             "a last one that is smaller"),
        ),
        *in_place_of(
            "if not held:",
            ("the buffer never runs empty", "if len(held) < size:", "runs empty"),
        ),
        *in_place_of(
            "return states[trained]",
            ("what was made", "return states[made]", "made and not trained on"),
            ("the last", "return states[-1]", "made and not trained on"),
            ("the first", "return states[0]", "begins anew"),
            ("one too early", "return states[trained - 1]", "states[i]"),
            ("one too late", "return states[min(trained + 1, made)]", "states[i]"),
            ("as many as are ahead", "return states[made - trained]", "begins anew"),
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
            "for pair in zip(tokens, tokens[1:]):",
            ("each pair once a word", "for pair in set(zip(tokens, tokens[1:])):", "as pairs may overlap"),
            ("every second one", "for pair in zip(tokens[::2], tokens[1::2]):", "as pairs may overlap"),
        ),
        *in_place_of(
            BEST,
            ("the largest", "best = max(counts, key=lambda pair: (counts[pair], pair))", "not the largest"),
            ("the first found", "best = max(counts, key=counts.get)", "not the first"),
            ("the smallest of all", "best = min(counts)", "smallest pair of all"),
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
            ("overlapping",
             """            out.append(token)
        out = [new if pair == best else pair[0] for pair in zip(out, out[1:] + [None])
               ] if len(out) > 1 else out""", "one token takes the place of both"),
            ("the first place",
             """            if out and (out[-1], token) == best and new not in out:
                out[-1] = new
            else:
                out.append(token)""", "several times"),
            ("removed", """            if not out or (out[-1], token) != best:
                out.append(token)""", "where is the new token"),
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
            ("a dictionary",
             "joined.append((out, times))\n    several = Counter()\n    for tokens, times in joined:\n"
             "        several[tuple(tokens)] += times\n    joined = [*several.items()]", "became one"),
            ("a dictionary of the last",
             "joined.append((out, times))\n    joined = [*{tuple(tokens): n for tokens, n in joined}.items()]", "is lost"),
            ("in place", "joined.append((out, times)); tokens[:] = out", "changes the words"),
        ),
        *in_place_of(
            "file_gb = 4.0 / 2.9 * 4  # two bytes tell 65,536 words apart",
            ("two bytes", "file_gb = 2.76", "65,536 words"),
            ("one byte", "file_gb = 1.38", "256 words"),
            ("a token a byte", "file_gb = 16", "every byte were a token"),
            ("more tokens", "file_gb = 46.4", "fewer tokens than bytes"),
            ("three bytes", "file_gb = 4.14", "Three bytes would do"),
            ("the text", "file_gb = 4", "That is the text"),
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
            ("never full", "if lengths[number] < room:", "up to the last place"),
            ("any room", "if room > 0:", "room for all of the document"),
            ("only the last row", "if lengths[number] <= room and i == len(left) - 1:", "no row is closed"),
        ),
        *in_place_of(
            "                left[i] -= lengths[number]\n",
            ("room is not counted", "", "already taken off"),
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
            ("what is filled", "padding_alone = 100 * used / (60 * SEQUENCE)", "How much is padding"),
            ("packed", "padding_alone = 6.4", "So it is packed"),
        ),
        *in_place_of(
            "padding_packed = 100 * (1 - used / (31 * SEQUENCE))  # len(packed(...)) rows",
            ("thirty rows", "padding_packed = 3.29", "in 30 rows"),
            ("as they come", "padding_packed = 9.34", "in 32 rows"),
            ("alone", "padding_packed = 51.6", "with a row for each"),
        ),
    ],
    "design": [
        design("too slow", "Fewer than 11,500", "resized", 1.0, 64, 1, "bytes", 20_000),
        design("no margin", "Fewer than 11,500", "resized", 1.0, 80, 1, "bytes", 20_000),
        design("too large", "More than 5 GB", "resized", 1.0, 96, 2, "bytes", 20_000),
        design("floats", "More than 5 GB", "resized", 1.0, 160, 2, "floats", 20_000),
        design("a short buffer", "a larger buffer", "resized", 1.0, 128, 1, "bytes", 5_000),
        design("faster storage", "is reading the slowest stage", "resized", 2.0, 128, 1, "bytes", 20_000),
        design("fastest storage", "is reading the slowest stage", "resized", 4.0, 128, 1, "bytes", 20_000),
        Wrong("memory", LEAST + 'loosened = "memory"', "does cost less"),
        Wrong("another word", LEAST + 'loosened = "storage"', 'Write "memory"'),
        Wrong("saved by memory", LEAST + "saved = 4", "save. The other one saves more"),
        Wrong("what it costs then", LEAST + "saved = 17", "How many fewer"),
        Wrong("both", LEAST + "saved = 10", "added up"),
        Wrong("slower storage", LEAST + "saved = 2", "not the only thing"),
        Wrong("twice as fast", LEAST + "faster = 100", "Is it the slowest stage"),
        Wrong("a little", LEAST + "faster = 0.75", "what is simulated"),
    ],
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
