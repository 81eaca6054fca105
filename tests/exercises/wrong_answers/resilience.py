"""Wrong answers to the exercises of resilience."""

from tests.exercises.wrong_answers import Wrong, in_place_of

INTERVAL = (
    "mean_hours = {}\ninterval_minutes = {}\nlost_in_all = {}\nlost_hourly = {}\ndevices = {}"
)
RESUME = "trained_twice = {}\nnever_trained = {}"
DESIGN = (
    'design = {{"storage": {}, "saves": "{}", "levels": {}, "spares": {}, "restart": {}}}\n'
    'loosened, gained, gained_faster, gained_blocking = "money", 0.0194, 0.00622, 0.0358'
)
LEAST = DESIGN.format(0.1, "behind", 1, 16, 150) + "\n"
RIGHT_INTERVAL = ["7.97", "26.8", "0.0727", "0.0753", "19600"]
SAVED = "trained_twice = 800 * 640 * 4 - 830 * 512 * 4"
LEFT_OUT = "never_trained = 830 * 800 * 4 - 800 * 640 * 4"
WRITTEN = """done += [("write", f"{part}/{name}", text)]
        done += [("fsync", f"{part}/{name}")]"""
WRITTEN_B = WRITTEN.replace("part", "slot")
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
YOUNG = "young_minutes = sqrt(2 * 1 * QUARTER / len(TRACE))"
SUSPECTED = 'return {"slow": slow, "step": step, "wrong": wrong, "resume": resume}'


def one_of(place: int, *wrong: tuple[str, object, str]) -> list[Wrong]:
    """Answers to the first question with another value in this place: misconception, value, hint."""
    right = RIGHT_INTERVAL
    return [
        Wrong(name, INTERVAL.format(*right[:place], value, *right[place + 1 :]), hint)
        for name, value, hint in wrong
    ]


def design(name: str, hint: str, *choices: object) -> Wrong:
    """Another design, with the rest as it is."""
    return Wrong(name, DESIGN.format(*choices), hint)


BANK = {
    "interval": [
        *one_of(
            0,
            ("devices alone", "8766 / (6144 * 0.12)", "These are the devices alone"),
            ("no switches", "8.33", "Switches are missing"),
            ("no cards", "8.97", "Network cards are missing"),
            ("no nodes", "9.65", "What else is in a node is missing"),
            ("nodes for each device", "3.59", "once for eight devices"),
            ("failures a year", "1100.16", "So often does the whole fail in a year"),
            ("seconds", "28700", "not in seconds"),
            ("one device", "73050", "So long does one device live"),
        ),
        *one_of(
            1,
            ("all of the interval is lost", "18.9", "throws half an interval away"),
            ("seconds", "1607", "not in seconds"),
            ("hours", "0.446", "not in hours"),
            ("restarts in the root", "91.5", "does not move the best one"),
            ("the exact one", "26.3", "This is the best interval, exactly"),
            ("a guess", "60", "both in seconds"),
        ),
        *one_of(
            2,
            ("no restarts", "0.056", "Restarts are missing"),
            ("writing and restarting", "0.0447", "As much as for writing"),
            ("restarts alone", "0.0167", "These are restarts alone"),
            ("what is left", "0.927", "This is what is left"),
            ("percent", "7.27", "not a percentage"),
            ("the exact price", "0.0707", "This is the exact price"),
        ),
        *one_of(
            3,
            ("redoing alone", "0.0628", "Writing costs a little"),
            ("writing alone", "0.0125", "This is writing"),
            ("all of it", "0.138", "does not wait for the end"),
            ("the best interval", "0.056", "An hour is not that"),
            ("with restarts", "0.092", "has restarts in it"),
        ),
        *one_of(
            4,
            ("in proportion", "10970", "does not grow as the devices do"),
            ("inverse", "1930", "The other way round"),
            ("with restarts", "11600", "has restarts in it"),
            ("every hour", "8570", "the question is for the best interval"),
            ("times as many", "3.19", "So many times as many"),
            ("devices alone", "29200", "leaves out cards"),
        ),
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
            ("another folder's fsync", 'done += [("rename", part, new), ("fsync", new)]',
             "Where do names of folders lie"),
            ("not renamed", 'done += [("fsync", ".")]', "crash_report"),
        ),
        *in_place_of(
            'return [*done, ("delete", old)]',
            ("nothing is deleted", "return done", "still there in the end"),
            ("deleted first", 'return [("delete", old), *done]', "in which nothing may be found"),
            ("deleted before the name is sure",
             'return [*done[:-1], ("delete", old), done[-1]]', "in which nothing may be found"),
        ),
        *in_place_of(
            'part = f"{new}.part"  # no reader looks there',
            ("written where it is read", "part = new", "may not have that name yet"),
        ),
        Wrong(
            "renamed before it is on the disk",
            """
            part, done = new + ".part", []
            done += [("write", f"{part}/{name}", text) for name, text in files.items()]
            done += [("rename", part, new), ("fsync", ".")]
            done += [("fsync", f"{new}/{name}") for name in files]
            return [*done, ("fsync", new), ("delete", old)]
            """,
            "what may not have that name yet",
        ),
        Wrong(
            "the folder's fsync does for the files",
            """
            part = new + ".part"
            done = [("write", f"{part}/{name}", text) for name, text in files.items()]
            done += [("fsync", part), ("rename", part, new), ("fsync", ".")]
            return [*done, ("delete", old)]
            """,
            "its text was never sure",
        ),
        Wrong(
            "neither deleted nor sure",
            """
            part, done = new + ".part", []
            for name, text in files.items():
                done += [("write", f"{part}/{name}", text), ("fsync", f"{part}/{name}")]
            return [*done, ("fsync", part), ("rename", part, new)]
            """,
            "it is not yet sure that the new one has its name",
        ),
        Wrong("nothing", "return []", "Nothing is saved"),
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
            ("whole parts", "piece = (file, place, (high - low) * row_bytes)", "Whole files are read"),
            ("ends", "piece = (file, begin, begin + (stop - start) * row_bytes)", "Which rows has the rank"),
        ),
        *in_place_of(
            "if start < stop:",
            ("empty pieces", "if start <= stop:", "no request"),
            ("negative pieces", "if True:", "Which rows has the rank"),
        ),
        *in_place_of(
            "for rows, row_bytes in tensors:",
            ("the first tensor", "for rows, row_bytes in tensors[:1]:", "Only the first tensor"),
        ),
        *in_place_of(
            "place += (high - low) * row_bytes",
            ("places count rows", "place += high - low", "How many bytes of a file lie before"),
            ("places of what is read", "place += max(stop - start, 0) * row_bytes",
             "How many bytes of a file lie before"),
        ),
        Wrong(
            "equal parts, rounded down",
            """
            return [[(f, 0, sum(rows // saved * b for rows, b in tensors))
                     for f in range(saved) if f % ranks == rank] for rank in range(ranks)]
            """,
            "Which rows has the rank",
        ),
        Wrong(
            "the file of the own number",
            """
            def size(f):
                return sum((rows * (f + 1) // saved - rows * f // saved) * b for rows, b in tensors)
            return [[(rank, 0, size(rank))] for rank in range(ranks)]
            """,
            "and nobody the last one",
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
            ("not renamed", 'return [*done, ("fsync", ".")]', "Nothing leads to the new one"),
            ("the folder too late",
             'return [*done[:-3], *done[-2:], ("rename", "latest.part", "latest"), ("fsync", "."), ("fsync", slot)]',
             "becomes sure too late"),
        ),
        *in_place_of(
            WRITTEN_B,
            ("files are not sure", 'done += [("write", f"{slot}/{name}", text)]',
             "are not sure when `latest` leads to them"),
        ),
        Wrong("always b", 'slot = "b"\n    done = []', "not into a", "done = []"),
    ],
    "resume": [
        *in_place_of(
            SAVED,
            ("without the steps ahead", "trained_twice = 800 * 4 * 128", "30 more are loaded"),
            ("with them", "trained_twice = 830 * 4 * 128", "not trained on a first time"),
            ("the place", "trained_twice = 830 * 512 * 4", "the place at which it goes on"),
            ("all", "trained_twice = 800 * 640 * 4", "At which of them does it go on"),
            ("turns", "trained_twice = 800 * 640 - 830 * 512", "each has 4 samples"),
            ("none", "trained_twice = 0", "See the report"),
        ),
        *in_place_of(
            LEFT_OUT,
            ("without the steps ahead", "never_trained = 800 * 4 * 160", "30 more are loaded"),
            ("as if they had been seen", "never_trained = 830 * 4 * 160", "are not seen either"),
            ("the steps ahead alone", "never_trained = 30 * 2560", "as many ranks as before"),
            ("the place", "never_trained = 830 * 3200", "Up to which place had it trained"),
        ),
        *in_place_of(
            "without_a = 3",
            ("moments", "without_a = 2", "the second loss tells"),
            ("data", "without_a = 4", "one on other samples"),
            ("gradients", "without_a = 5", "the next step makes its own"),
        ),
        *in_place_of(
            "without_b = 4",
            ("weights", "without_b = 1", "has learned nothing, about 4.2"),
            ("moments", "without_b = 2", "Moments act in a step"),
            ("ranks", "without_b = 6", "on what was it taken"),
        ),
        *in_place_of(
            "without_c = 2",
            ("schedule", "without_c = 3", "differ by little"),
            ("weights", "without_c = 1", "so the weights are"),
            ("data", "without_c = 4", "on the right samples"),
        ),
        *in_place_of(
            POSITION,
            ("what is loaded", "return start + loaded * ranks * each", "16 samples are never trained on"),
            ("steps", "return start + trained", "counted in steps, and used in samples"),
            ("begins anew", "return start", "the position does not move on"),
            ("not from before", "return trained * ranks * each", "goes on from there"),
            ("of one rank", "return start + trained * each", "How many samples have been trained on"),
            ("in batches of four", "return start + trained * 8", "another number of ranks each"),
        ),
        *in_place_of(
            PLACES,
            ("all ranks alike", "first = start + step * ranks * each", "where does the part of a rank begin"),
            ("always the same", "first = start + rank * each", "Every step reads the same"),
            ("parts one apart", "first = start + step * ranks * each + rank", "the next `ranks * each`"),
        ),
        *in_place_of(
            POSITION,
            ("as it is", "return start + loaded" + FAULTY, "16 samples are never trained on"),
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
            ("work alone is lost", "redone += min(rest, interval)\n", "5 s are missing"),
            ("lost work is counted as useful, too", "redone += rest\n            useful += min(rest, interval)\n",
             "counted twice"),
            ("the write is lost and not the work",
             "useful += min(rest, interval)\n            redone += max(0, rest - interval)\n",
             "What was done after second 110 is lost"),
            ("a cut write counts as writing",
             "redone += min(rest, interval)\n            writing += max(0, rest - interval)\n",
             "The write that was cut short is lost"),
        ),
        *in_place_of(
            "now, up = stop, stop + restart",
            ("no restarts", "now, up = stop, stop", "Restarts take time"),
            ("the restart goes on", "now, up = stop, max(up, stop + restart if stop >= up else up)",
             "begins it anew"),
            ("restarts queue", "now, up = stop, max(up, stop) + restart", "cut short, after 20 s"),
        ),
        *in_place_of(
            "if each < end",
            ("failures after the end", "", "after the end"),
        ),
        Wrong(
            "writes at fixed times",
            """
            kinds = dict(useful=0, writing=0, redone=0, restarting=0)
            state, up, mark = [0, 0], 0, [0, 0]
            for now in range(end):
                if now in failures:
                    kinds["redone"] += sum(state) - sum(mark)
                    state, up = mark[:], now + restart
                if now < up:
                    kinds["restarting"] += 1
                    continue
                at = now % (interval + write)
                state[at >= interval] += 1
                if at == interval + write - 1:
                    mark = state[:]
            return {"useful": state[0], "writing": state[1], "redone": kinds["redone"],
                    "restarting": kinds["restarting"]}
            """,
            "At a failure the interval begins anew",
        ),
        *in_place_of(
            BEST,
            ("half the write", "best_minutes = 20", "half a minute"),
            ("Young's", "best_minutes = 25", "the nearest to Young's"),
            ("often", "best_minutes = 5", "So the least is thrown away"),
            ("seldom", "best_minutes = 120", "So the least is written"),
            ("another", "best_minutes = 45", "Simulate each"),
        ),
        *in_place_of(
            YOUNG,
            ("all of the interval is lost", "young_minutes = 19.16", "Half an interval is thrown away"),
            ("seconds", "young_minutes = 1626", "not in seconds"),
            ("restarts in the root", "young_minutes = 66.4", "does not move the best one"),
            ("the exact one", "young_minutes = 26.44", "This is the best interval, exactly"),
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
        design("some bandwidth", "Four units buy more elsewhere", 0.2, "behind", 1, 32, 400),
        design("a second level", "for less", 0.1, "blocking", 2, 32, 400),
        design("few spares", "Fewer spares than devices", 0.1, "behind", 1, 8, 150),
        Wrong("copies", LEAST + 'loosened = "copies"', "a second level beside"),
        Wrong("another word", LEAST + 'loosened = "spares"', 'Write "money"'),
        Wrong("gained by copies", LEAST + "gained = 0.00316", "what room for three copies saves"),
        Wrong("lost then", LEAST + "gained = 0.0589", "what is lost then"),
        Wrong("both gains", LEAST + "gained = 0.0225", "added up"),
        Wrong("percent", LEAST + "gained = 1.94", "not a percentage"),
        Wrong("a part of the loss", LEAST + "gained = 0.247", "the part of the loss"),
        Wrong("loading alone", LEAST + "gained_faster = 0.00311", "Two things become shorter"),
        Wrong("nothing", LEAST + "gained_faster = 0", "see parts(design)"),
        Wrong("as if blocking", LEAST + "gained_faster = 0.0358", "So it is for saves that block"),
        Wrong("as if behind", LEAST + "gained_blocking = 0.00622", "stall for all of the write"),
    ],
    "suspects": [
        *in_place_of(
            "each = [median(of_rank) for of_rank in zip(*times, strict=True)]",
            ("a mean over steps", "each = [sum(of) / len(of) for of in zip(*times, strict=True)]",
             "once"),
            ("the first step", "each = times[0]", "Rank 0 had a pause in the first step"),
            ("the last step", "each = times[-1]", "Rank 7 had a pause in the last step"),
            ("the slowest step", "each = [max(of) for of in zip(*times, strict=True)]", "once each"),
            ("the quickest step", "each = [min(of) for of in zip(*times, strict=True)]",
             "rank 6 was quick in one step"),
            ("the step before the last", "each = times[-2]", "in the step before the last"),
        ),
        *in_place_of(
            "limit = 1.05 * median(each)",
            ("a mean over ranks", "limit = 1.05 * sum(each) / len(each)", "which rank 6 moves"),
            ("the fastest", "limit = 1.005 * min(each)", "a median over steps"),
            ("the fastest, and 5 %", "limit = 1.05 * min(each)", "slower than the fastest"),
            ("all times together", "limit = 1.05 * median([time for row in times for time in row])",
             "Each rank counts once"),
            ("2 %", "limit = 1.02 * median(each)", "rank 3 takes 4 % more"),
            ("8 %", "limit = 1.08 * median(each)", "rank 5 takes 6 % more"),
            ("so many milliseconds more", "limit = median(each) + 5", "however many milliseconds"),
            ("so many milliseconds", "limit = 210", "and not 200"),
        ),
        *in_place_of(
            "slow = [rank for rank, time in enumerate(each) if time > limit]",
            ("the slowest", "slow = [each.index(max(each))]", "Is it compared with a mean"),
        ),
        *in_place_of(
            "step, wrong = (differ[0] if differ else None), []",
            ("the last step", "step, wrong = (differ[-1] if differ else None), []",
             "the first step is asked for"),
        ),
        *in_place_of(
            "good = [at for at in saved if step is None or at < step]",
            ("the last", "good = saved", "a rank was wrong already"),
            ("up to the step", "good = [at for at in saved if step is None or at <= step]",
             "may hold just them"),
            ("none where all are alike", "good = [at for at in saved if step is not None and at < step]",
             "the last checkpoint is good"),
        ),
        *in_place_of(
            "wrong = [r for r, one in enumerate(row) if one != most]",
            ("the others", "wrong = [r for r, one in enumerate(row) if one == most]",
             "The other way round"),
            ("other than rank 0", "wrong = [r for r, one in enumerate(row) if one != row[0]]",
             "nobody is right by his number"),
            ("of all steps",
             "wrong = sorted({r for each in hashes for r, one in enumerate(each) if one != max(each, key=each.count)})",
             "Who is it after the first step"),
        ),
        *in_place_of(
            "if 2 * row.count(most) > len(row):",
            ("the most frequent", "if True:", "who is right is not to be told"),
            ("half is enough", "if 2 * row.count(most) >= len(row):", "who is right is not to be told"),
        ),
        *in_place_of(
            "resume = good[-1] if good else None",
            ("0 for none", "resume = good[-1] if good else 0", "for none the question asks for None"),
            ("the first", "resume = good[0] if good else None", "the last checkpoint that is good"),
        ),
        *in_place_of(
            SUSPECTED,
            ("nobody is wrong", SUSPECTED.replace('"wrong": wrong', '"wrong": []'),
             "Nobody is wrong?"),
            ("nobody is slow", SUSPECTED.replace('"slow": slow', '"slow": []'),
             "Nobody is slow?"),
        ),
        *in_place_of(
            "row = hashes[step]",
            ("of all steps together", "row = [one[-1] for one in zip(*hashes, strict=True)]",
             "Who is it after the first step"),
        ),
        *in_place_of(
            "differ = [i for i, row in enumerate(hashes) if len(set(row)) > 1]",
            ("hashes of steps", "differ = [i for i, row in enumerate(hashes) if row != hashes[-1]]",
             "Compare the ranks of one step"),
        ),
    ],
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
        ("a range", "return range(first, first + each)", "should be a list",
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
    "interval": [("rounded", INTERVAL.format("8.0", "27", "0.073", "0.075", "20000"))],
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
