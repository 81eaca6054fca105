"""Wrong answers to the exercises of resilience."""

from tests.exercises.wrong_answers import Wrong, in_place_of, one_wrong

INTERVAL = "mean_hours = {}\ninterval_hours = {}\nlost_in_all = {}\nlost_hourly = {}\ndevices = {}"
DESIGN = (
    'design = {{"storage": {}, "saves": "{}", "levels": {}, "spares": {}, "restart": {}}}\n'
    'loosened, gained, gained_faster, gained_blocking = "money", 0.0194, 0.00622, 0.0358'
)
LEAST = DESIGN.format(0.1, "behind", 1, 16, 150) + "\n"
RIGHT_INTERVAL = ["7.97", "0.446", "0.0727", "0.0753", "19600"]
SAVED = "trained_twice = 800 * 640 * 4 - 830 * 512 * 4"
WRITTEN = """done += [("write", f"{part}/{name}", text)]
        done += [("fsync", f"{part}/{name}")]"""
PUT = 'done += [("write", "latest.part", slot), ("fsync", "latest.part")]'
NAMED = 'return [*done, ("rename", "latest.part", "latest"), ("fsync", ".")]'
FINAL = 'done += [("rename", part, new), ("fsync", ".")]'
POSITION = "return start + trained * ranks * each  # samples, not steps"
PLACES = "first = start + (step * ranks + rank) * each"
FAULTY = """


def places(start, step, rank, ranks, each):
    first = ((start + step) * ranks + rank) * each
    return [first + i for i in range(each)]
"""
BEST = "best_minutes = 30"
SUSPECTED = 'return {"slow": slow, "step": step, "wrong": wrong, "resume": resume}'


def design(name: str, hint: str, *choices: object) -> Wrong:
    """Another design, with the rest as it is."""
    return Wrong(name, DESIGN.format(*choices), hint)


BANK = {
    "interval": [
        *one_wrong(INTERVAL, RIGHT_INTERVAL, 
            0,
            ("devices alone", "8766 / (6144 * 0.12)", "These are the devices alone"),
        ),
        *one_wrong(INTERVAL, RIGHT_INTERVAL, 
            1,
            ("all of the interval is lost", "0.316", "throws half an interval away"),
            ("a guess", "1", "both in the same unit"),
            ("seconds and hours under one root", "26.8", "take one unit for both"),
        ),
        *one_wrong(INTERVAL, RIGHT_INTERVAL, 
            2,
            ("no restarts", "0.056", "Restarts are missing"),
        ),
        Wrong("writing alone", "sqrt(save / 2 / seconds_between)", "At the best interval, writing and redoing lose as much as", "sqrt(2 * save / seconds_between)"),
    ],
    "save": [
        *in_place_of(
            WRITTEN,
            (
                "no fsync of files",
                'done += [("write", f"{part}/{name}", text)]',
                "even in the end: its text",
            ),
        ),
        *in_place_of(
            "done += [(\"fsync\", part)]  # the names of the files",
            ("no fsync of the folder", "", "In what do these names lie"),
        ),
        *in_place_of(
            FINAL,
            ("no fsync of the names of folders", 'done += [("rename", part, new)]',
             "Where do names of folders lie"),
            ("not renamed", 'done += [("fsync", ".")]', "crash_report"),
        ),
        *in_place_of(
            'return [*done, ("delete", old)]',
            ("nothing is deleted", "return done", "still there in the end"),
            ("deleted first", 'return [("delete", old), *done]', "in which nothing may be found"),
        ),
        *in_place_of(
            'part = f"{new}.part"  # no reader looks there',
            ("written where it is read", "part = new", "may not have that name yet"),
        ),
        Wrong(
            "the names of the first check",
            """
            done = []
            for name, text in files.items():
                done += [("write", f"part/{name}", text), ("fsync", f"part/{name}")]
            done += [("fsync", "part"), ("rename", "part", "step-6"), ("fsync", ".")]
            return [*done, ("delete", "step-3")]
            """,
            "there is no 'step-3'",
        ),
    ],
    "reads": [
        Wrong("the writers' ranks", "return [[(f, 0, sum((rows * (f + 1) // saved - rows * f // saved) * b for rows, b in tensors))] for f in range(saved)]",
              "These are the files of those who wrote"),
        *in_place_of(
            "begin = place + (start - low) * row_bytes",
            ("from the tensor's beginning", "begin = place + start * row_bytes",
             "It counts in the file"),
            ("one tensor alone", "begin = (start - low) * row_bytes",
             "the second begins where the first one's ends"),
            ("the file's beginning", "begin = place", "Which rows has the rank"),
        ),
        *in_place_of(
            "piece = (file, begin, (stop - start) * row_bytes)",
            ("rows", "piece = (file, begin, stop - start)", "A row has 4 bytes"),
        ),
        *in_place_of(
            "if start < stop:",
            ("empty pieces", "if start <= stop:", "no request"),
        ),
        *in_place_of(
            "place += (high - low) * row_bytes",
            ("places count rows", "place += high - low", "How many bytes of a file lie before"),
        ),
        Wrong(
            "ranks that read nothing are left out",
            "found.append(joined(pieces)) if pieces else None",
            "rank 0 reads nothing at all",
            "found.append(joined(pieces))",
        ),
    ],
    "slots": [
        Wrong(
            "as it is",
            """
            done = [("write", "latest", slot), ("fsync", "latest")]
            for name, text in files.items():
                done += [("write", f"{slot}/{name}", text), ("fsync", f"{slot}/{name}")]
            return done
            """,
            "A reader follows `latest` while",
        ),
        Wrong(
            "the pointer last, in place",
            """
            done = []
            for name, text in files.items():
                done += [("write", f"{slot}/{name}", text), ("fsync", f"{slot}/{name}")]
            return [*done, ("write", "latest", slot), ("fsync", "latest")]
            """,
            "Better: the files come first",
        ),
        Wrong(
            "in place, with the folder",
            """
            done = []
            for name, text in files.items():
                done += [("write", f"{slot}/{name}", text), ("fsync", f"{slot}/{name}")]
            done += [("fsync", slot)]
            return [*done, ("write", "latest", slot), ("fsync", "latest")]
            """,
            "makes it empty first",
        ),
        *in_place_of(
            PUT,
            ("the pointer's text is not sure", 'done += [("write", "latest.part", slot)]',
             "may go over before the text under it is sure"),
        ),
        *in_place_of(
            'done += [("fsync", slot)]  # one file is new there',
            ("no fsync of the folder", "", "one of the files is new in its folder"),
        ),
        *in_place_of(
            NAMED,
            ("no fsync of the name", 'return [*done, ("rename", "latest.part", "latest")]',
             "where does the name `latest` lie"),
            ("deleted before",
             'return [*done, ("delete", "latest"), ("rename", "latest.part", "latest"), ("fsync", ".")]',
             "a moment without any `latest`"),
        ),
        Wrong("always b", 'slot = "b"\n    done = []', "not into a", "done = []"),
    ],
    "resume": [
        *in_place_of(
            SAVED,
            ("without the steps ahead", "trained_twice = 800 * 4 * 128", "30 more are loaded"),
        ),
        *in_place_of(
            "without_b = 4",
            ("ranks", "without_b = 6", "on what was it taken"),
        ),
        *in_place_of(
            POSITION,
            ("what is loaded", "return start + loaded * ranks * each", "16 samples are never trained on"),
            ("steps", "return start + trained", "counted in steps, and used in samples"),
            ("not from before", "return trained * ranks * each", "goes on from there"),
            ("of one rank", "return start + trained * each", "How many samples have been trained on"),
        ),
        *in_place_of(
            PLACES,
            ("all ranks alike", "first = start + step * ranks * each", "where does the part of a rank begin"),
            ("parts one apart", "first = start + step * ranks * each + rank", "the next `ranks * each`"),
        ),
        *in_place_of(
            POSITION,
            ("steps, of those that were trained", "return start + trained" + FAULTY,
             "still counts in steps"),
        ),
    ],
    "simulate": [
        *in_place_of(
            "useful += min(rest, interval)",
            ("the end is lost", "redone += min(rest, interval)", "the last 20 s are useful"),
            ("the end is forgotten", "pass", "The last 20 s are missing"),
            ("useful until the end", "useful += rest", "they are writing, and no work"),
        ),
        *in_place_of(
            "writing += max(0, rest - interval)",
            ("a write cut by the end", "pass", "nothing cuts short but the end"),
        ),
        *in_place_of(
            "redone += rest\n",
            ("nothing is lost", "useful += rest\n", "What was done after second 110 is lost"),
        ),
        *in_place_of(
            "now, up = stop, stop + restart",
            ("the restart goes on", "now, up = stop, max(up, stop + restart if stop >= up else up)",
             "begins it anew"),
        ),
        *in_place_of(
            "if each < end",
            ("failures after the end", "", "after the end"),
        ),
        *in_place_of(
            BEST,
            ("half the write", "best_minutes = 20", "half a minute"),
            ("another", "best_minutes = 45", "Simulate each"),
        ),
    ],
    "design": [
        design("nothing is bought", "Another design that is allowed", 0.1, "blocking", 1, 4, 900),
        design("too dear", "more than 20 units", 0.8, "behind", 1, 16, 400),
        design("three copies", "Three copies do not fit", 0.1, "behind", 2, 16, 400),
        design("no faster restart", "What would a faster restart save", 0.1, "behind", 1, 32, 400),
        design("too many spares", "how many devices are in repair", 0.1, "behind", 1, 48 + 16, 900),
        design("bandwidth", "what does the bandwidth still do", 0.4, "behind", 1, 16, 900),
        design("bandwidth, and blocking", "What is a cheaper one", 0.4, "blocking", 1, 16, 400),
        Wrong("copies", LEAST + 'loosened = "copies"', "a second level beside"),
        Wrong("another word", LEAST + 'loosened = "spares"', 'Write "money"'),
        Wrong("money is no object", "if copies(each)", "Of all designs, keep those that cost no more and need no", "if money(each) <= units and copies(each)"),
    ],
    "suspects": [
        *in_place_of(
            "each = [median(of_rank) for of_rank in zip(*times, strict=True)]",
            ("a mean over steps", "each = [sum(of) / len(of) for of in zip(*times, strict=True)]",
             "once"),
            ("the quickest step", "each = [min(of) for of in zip(*times, strict=True)]",
             "rank 6 was quick in one step"),
            ("the step before the last", "each = times[-2]", "in the step before the last"),
        ),
        *in_place_of(
            "limit = 1.05 * median(each)",
            ("the fastest", "limit = 1.005 * min(each)", "a median over steps"),
        ),
        *in_place_of(
            "good = [at for at in saved if step is None or at < step]",
            ("up to the step", "good = [at for at in saved if step is None or at <= step]",
             "may hold just them"),
            ("none where all are alike", "good = [at for at in saved if step is not None and at < step]",
             "the last checkpoint is good"),
        ),
        *in_place_of(
            "wrong = [r for r, one in enumerate(row) if one != most]",
            ("of all steps",
             "wrong = sorted({r for each in hashes for r, one in enumerate(each) if one != max(each, key=each.count)})",
             "Who is it after the first step"),
        ),
        *in_place_of(
            "if 2 * row.count(most) > len(row):",
            ("the most frequent", "if True:", "who is right is not to be told"),
        ),
    ],
}  # fmt: skip

# The wrong values that the sealed hints of a check are for, in their order; ... is one that
# nobody has found.
SEALED = {
    "interval": {
        "mean_hours": [11.9, 8.33, 8.97, 9.65, 3.59, 1100, 0.126, 28700, 478, 0.332, 73050, ...],
        "interval_hours": [0.316, 1607, 26.8, 1.52, 0.438, 3.46],
        "lost_in_all": [0.056, 0.0447, 0.028, 0.0167, 0.927, 7.27, 0.0644, 0.0707, 0.0706],
        "lost_hourly": [0.0628, 0.0125, 0.138, ..., 0.056, 0.092, 7.53],
        "devices": [10970, 1930, 11600, 3.19, 8570, 29200],
    },
    "resume": {
        "trained_twice": [409600, 424960, 1699840, 2048000, 87040, 106000, 0],
        "never_trained": [512000, 531200, 76800, ..., 2656000, 152000],
        "without_a": [2, 1, 4, 5, 6],
        "without_b": [1, 2, 3, 5],
        "without_c": [3, 1, 4, 5],
    },
    "simulate": {
        "best_minutes": [20, 25, 5, 120],
        "young_minutes": [19.2, 1626, 0.452, ..., 66.4, 26.4],
    },
    "design": {
        "in_small_letters(loosened)": ['copies'],
        "gained": [0.00316, 0.0589, 1.94, 0.247, 0.0225],
        "gained_faster": [0.00311, 0.622, 0.0358, 0],
        "gained_blocking": [0.00622, 3.58],
    },
}  # fmt: skip

# What is built otherwise than asked for: what came, its source, words of what is said, and what of
# the solution it replaces.
OTHERWISE: dict[str, list[tuple[str, ...]]] = {
    "interval": [("a list", "mean_hours = [7.97]", "take them off"),
                 ("a text", 'mean_hours = "7.97"', "without quotes")],
    "save": [
        ("a text", 'return "write"', "it is the text"),
        ("no such operation", 'return [("mkdir", new)]', "operation 1 is ('mkdir'"),
        ("no text", 'return [("write", new)]', "operation 1 is ('write'"),
        ("lists of numbers", "return [(1, 2)]", "texts"),
        ("too deep", 'return [("write", "a/b/c", "d")]', 'a path is "file"'),
        ("what is not there", 'return [("fsync", "a")]', "there is no 'a'"),
    ],
    "reads": [
        ("pieces without ranks", "return [(0, 0, 8)]", "a list of lists of tuples of 3"),
        ("a dictionary", "return dict(enumerate(found))", "it is a dictionary", "return found"),
        ("no files", "found.append([one[1:] for one in pieces])", "a tuple of 2",
         "found.append(joined(pieces))"),
    ],
    "slots": [("a dictionary", "return {}", "What the save returns should be a list"),
              ("a name that is none", 'return [("write", ".", slot)]', 'a path is "file"')],
    "resume": [
        ("a set", "return {first + i for i in range(each)}", "should be a list",
         "return [first + i for i in range(each)]"),
        ("a fraction", "return start + trained * ranks * each / 1", "a whole number", POSITION),
        ("a dictionary", 'return {"step": trained}', "it is a dictionary", POSITION),
    ],
    "simulate": [
        ("a tuple", "return 1, 2, 3, 4", "a dictionary with the keys 'useful'"),
        ("another key", 'return {"work": 1}', "a dictionary with the keys 'useful'"),
    ],
    "design": [("a list", "design = [8, 3]\nloosened, gained, gained_faster, gained_blocking = 1, 2, 3, 4",
                "the keys 'storage', 'saves'")],
    "suspects": [
        ("a list", "return slow", "it is a list of", SUSPECTED),
        ("a single rank", SUSPECTED.replace('"slow": slow', '"slow": 2'), "['slow'] is the number 2", SUSPECTED),
        ("a text for a step", SUSPECTED.replace('"step": step', '"step": str(step)'),
         "if it is not None, should be a whole number; it is the text '6'", SUSPECTED),
    ],
}  # fmt: skip

# The programs that are asked for, by question.
PROGRAMS = {
    "save": "atomic_save",
    "reads": "reads",
    "slots": "repaired",
    "resume": "places",
    "simulate": "simulate",
    "suspects": "suspects",
}

# Right answers of another kind: what came, its source, what of the solution it replaces.
RIGHT = {
    "interval": [("rounded", INTERVAL.format("8.0", "0.45", "0.073", "0.075", "20000"))],
    "save": [
        (
            "each kind by itself",
            """
            part = "new-" + new
            done = [("write", f"{part}/{name}", text) for name, text in files.items()]
            done += [("fsync", part)]
            done += [("fsync", f"{part}/{name}") for name in reversed(files)]
            done += [("rename", part, new), ("fsync", ".")]
            done += [("delete", f"{old}/{name}") for name in files if name == "manifest"]
            return [*done, ("delete", old), ("fsync", ".")]
            """,
        )
    ],
    "reads": [("a piece for each tensor", "found.append(pieces)", "found.append(joined(pieces))")],
    "slots": [
        (
            "more often than is needed",
            """
            done = []
            for name, text in files.items():
                done += [("write", f"{slot}/{name}", text), ("fsync", f"{slot}/{name}")]
                done += [("fsync", slot), ("fsync", ".")]
            done += [("write", "next", slot), ("fsync", "next"), ("fsync", ".")]
            return [*done, ("rename", "next", "latest"), ("fsync", ".")]
            """,
        )
    ],
    "resume": [
        (
            "dealt out one by one",
            "return [start + (step * each + i) * ranks + rank for i in range(each)]",
            "return [first + i for i in range(each)]",
        )
    ],
    "simulate": [
        (
            "second by second",
            """
            spent = {"useful": 0, "writing": 0, "redone": 0, "restarting": 0}
            worked = wrote = down = 0
            kept = dict(spent)
            failing = set(failures)
            for now in range(end):
                if now in failing:
                    spent["redone"] += worked + wrote
                    worked = wrote = 0
                    down = restart
                if down:
                    down -= 1
                    spent["restarting"] += 1
                elif worked < interval:
                    worked += 1
                else:
                    wrote += 1
                if wrote and wrote == write:
                    spent["useful"] += worked
                    spent["writing"] += wrote
                    worked = wrote = 0
            spent["useful"] += worked
            spent["writing"] += wrote
            return spent
            """,
        )
    ],
    "design": [("rounded", LEAST + "gained, gained_faster, gained_blocking = 0.019, 0.0062, 0.036")],
}  # fmt: skip
