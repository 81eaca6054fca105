"""A class of thirty notebooks, and what each of them has to earn: worked out by hand.

    python -m tests.grading.the_class FOLDER

writes FOLDER/submissions, FOLDER/roster.csv and FOLDER/expected.csv, to try the grader on:

    dlsys-grade FOLDER/submissions --roster FOLDER/roster.csv --out FOLDER/grades

`expected.csv` has a row for each student and assignment, with the points of every question. Those of
an answer in words are empty: they are for a person to give, and 0 where there is none.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.exercises.notebooks import load, slugs
from tests.exercises.wrong_answers import bank
from tests.grading.attacks import BLANK, GUESSED, SOLVED, Attack, points
from tests.grading.attacks.malformed import BANK as MALFORMED

REFUSED, MISSING = "refused", "missing"
BANKS = {slug: bank(slug) for slug in slugs()}
# The questions to answer in words.
IN_WORDS = {slug: load("solutions", slug)["cells"][-1]["id"] for slug in slugs()}
STATE = (
    "state_bytes = 208e9\ndevices = 3\n\n\ndef devices_for(parameters, gigabytes):\n"
    "    return int(-(-16 * parameters // (gigabytes * 1e9)))\n"
)
FREE = "def free_bytes(parameters, memory_gib):\n    "


@dataclass(frozen=True)
class Handed:
    """What a student hands in: where it lies, what it is made from, and what it earns.

    wrong: misconceptions by question, out of the banks of wrong answers
    answers, cells: sources, as in `Attack`
    words: the answer in words, if there is one
    earns: points by question where they are not those of the base (all of a solved notebook, and
        0 in others), or `REFUSED`
    """

    student: str
    slug: str
    where: str
    base: str = SOLVED
    wrong: Mapping[str, str] = field(default_factory=dict)
    answers: Mapping[str, str] = field(default_factory=dict)
    cells: Mapping[str, str] = field(default_factory=dict)
    words: str = ""
    like: str = ""  # the entry of the bank of malformed files
    earns: Mapping[str, float] | str = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """Put it into the folder of submissions."""
        path = folder / self.where
        path.parent.mkdir(parents=True, exist_ok=True)
        answers = {**self.answers, **{q: self._wrong(q, name) for q, name in self.wrong.items()}}
        if self.words:
            answers[IN_WORDS[self.slug]] = self.words
        attack = Attack(self.student, self.slug, self.base, answers=answers, cells=self.cells)
        text = json.dumps(attack.notebook(), indent=1)
        lay = next((each.lay for each in MALFORMED if self.like and each.name == self.like), None)
        if lay:
            lay(path, text)
        else:
            path.write_text(text, encoding="utf-8")

    def _wrong(self, question: str, misconception: str) -> str:
        [wrong] = [w for w in BANKS[self.slug][question] if w.misconception == misconception]
        [cell] = [c for c in load("solutions", self.slug)["cells"] if c["id"] == question]
        return wrong.cell("".join(cell["source"]))

    def expected(self) -> dict[str, float] | str:
        """Points by question, or `REFUSED`."""
        if isinstance(self.earns, str):
            return self.earns
        full = points(self.slug)
        return {q: self.earns.get(q, full[q] if self.base == SOLVED else 0.0) for q in full}


def memory(student: str, where: str, **details: object) -> Handed:
    return Handed(student, "memory_wall", where, **details)  # type: ignore[arg-type]


def collectives(student: str, where: str, **details: object) -> Handed:
    return Handed(student, "collectives", where, **details)  # type: ignore[arg-type]


# The first says what shrinks, with numbers, and no remedy; the second leaves out the crossover.
HALF_THE_BATCH = """
Only the activations shrink with the batch; weights, gradients and the optimizer's state stay as they
are. GPT-2 XL with a batch of 32 goes from 312 GB to 168 GB, nearly half. With a batch of 2 it goes
from 43 GB to 34 GB only.
"""
TREE_OR_RING = """
The 1 kB goes through the tree: 12 rounds and not 126, so 0.24 ms instead of 2.5 ms. The 10 GB go
round the ring, in which a rank sends 2 x 63/64 of them and not 12 times all: 1.6 s instead of 9.6 s.
"""

# A question's points are shared equally among its checks, hidden ones included. In brackets below:
# how many of them this answer passes.
THE_CLASS = (
    # Right.
    memory("ada", "ada/memory_wall.ipynb", words=HALF_THE_BATCH),
    collectives("ada", "ada/collectives.ipynb", words=TREE_OR_RING),
    collectives("bela", "bela_collectives.ipynb"),
    memory("chen", "memory_wall/chen.ipynb", cells={"imports": "import math\nprint(math.pi)\n1 / 0"}),
    memory("dora", "doradora_1104_77001_memory_wall-1.ipynb", answers={"free": FREE + "return torch.tensor(memory_gib) * 2**30 - 16 * parameters"}),
    # Blank.
    memory("emil", "emil/memory_wall.ipynb", base=BLANK),
    collectives("emil", "emil/week 2/my homework.ipynb", base=BLANK),
    memory("fatima", "Fatima Noor_1206_assignsubmission_file_/memory_wall (1).ipynb", base=BLANK, answers={"state": STATE}, earns={"state": 2}),
    # Wrong in known ways.
    memory(
        "goran",
        "goran/memory_wall/memory_wall.ipynb",
        wrong={
            "state": "GB for bytes",  # 3 of 4
            "free": "forgotten master weights",  # 0 of 5
            "peaks": "every peak is where the passes meet",  # 4 of 5: the function is right
            "alive": "every list grows",  # 2 of 3
            "layer": "scores of one sequence",  # 2 of 4: those of one sequence
            "fit": "divide everything",  # 3 of 4: it fits
            "cost": "the peak refused",  # 4 of 6: what it takes, and the shown refusal
            "frozen": "one moment",  # 3 of 4
        },
        earns={"state": 2 * 3 / 4, "free": 0, "peaks": 3 * 4 / 5, "alive": 3 * 2 / 3, "layer": 1, "fit": 2 * 3 / 4, "cost": 2 * 4 / 6, "frozen": 2 * 3 / 4},
    ),
    memory(
        "hana",
        "hana_memory_wall.ipynb",
        wrong={
            "state": "forgotten master weights",
            "free": "GB for GiB",
            "peaks": "every bucket at once",
            "alive": "a sum grows",
            "layer": "keys as wide as queries",
            "fit": "nothing divided",
            "cost": "price of one device",  # 4 of 6: the refusals, and the one with one device
            "frozen": "frozen weights are gone",
        },
        earns={"state": 2 * 2 / 4, "free": 0, "peaks": 3 * 4 / 5, "alive": 3 * 2 / 3, "layer": 0, "fit": 2 * 2 / 4, "cost": 2 * 4 / 6, "frozen": 2 * 3 / 4},
    ),
    collectives(
        "ivan",
        "collectives/ivan.ipynb",
        wrong={
            "seconds": "bits for bytes",  # 5 of 6
            "sent": "a sum with zeros",  # 6 of 8: not who sends
            "mean": "missing 1/n",  # 3 of 7: what it costs, which is right, and no hidden one
            "shift": "asked for is on its way",  # 6 of 8
            "uneven": "the call that differs",  # 3 of 4
            "fault": "not repaired",  # 3 of 5
            "broadcast": "powers of two alone",  # 3 of 8
            "cluster": "all the cards",  # 4 of 5
        },
        earns={"seconds": 2 * 5 / 6, "sent": 2 * 6 / 8, "mean": 0, "shift": 3 * 6 / 8, "uneven": 3 * 3 / 4, "fault": 2 * 3 / 5, "broadcast": 3 * 3 / 8, "cluster": 3 * 4 / 5},
    ),
    collectives(
        "jana",
        "jana/collectives_jana.ipynb",
        wrong={
            "seconds": "one phase, in both directions",  # 5 of 6
            "sent": "a factor of two for an all-gather",  # 7 of 8
            "mean": "ranks take turns",  # 6 of 7
            "shift": "recursive doubling",  # 6 of 8: not how soon
            "uneven": "as many steps as all ranks have",  # 2 of 4: what the report says, and no hidden one
            "fault": "one more round instead",  # 4 of 5
            "broadcast": "a round for nobody",  # 6 of 8: not for 1, 16, ...
            "cluster": "two cards",  # 3 of 5
        },
        earns={"seconds": 2 * 5 / 6, "sent": 2 * 7 / 8, "mean": 4 * 7 / 8, "shift": 3 * 6 / 8, "uneven": 0, "fault": 2 * 4 / 5, "broadcast": 3 * 6 / 8, "cluster": 3 * 3 / 5},
    ),
    collectives("kofi", "kofi_LATE_1109_77002_collectives.ipynb", wrong={"mean": "the library's collective"}, earns={"mean": 0}),
    # Partly done.
    memory("lena", "memory_wall_lena.ipynb", base=BLANK, answers={"state": STATE, "free": FREE + "return memory_gib * 2**30 - 16 * parameters"}, earns={"state": 2, "free": 2}),
    collectives("mira", "Mira Okafor_1213_assignsubmission_file_/solution.ipynb", base=BLANK, answers={"seconds": "seconds = 0.07875\ntwo_nodes = three_nodes = sixteen_nodes = 1"}, earns={"seconds": 0}),
    memory("noah", "noah/memory_wall.ipynb", answers={"cost": "raise NotImplementedError"}, earns={"cost": 0}),
    memory("olga", "olga/memory_wall.ipynb", answers={"layer": "def layer_activations(:"}, earns={"layer": 0}),
    # Broken.
    memory("petr", "petr/memory_wall.ipynb", like="a truncated file", earns=REFUSED),
    memory("quinn", "quinn_memory_wall.ipynb", like="an empty file", earns=REFUSED),
    collectives("rosa", "rosa/collectives.ipynb", like="UTF-16", earns=REFUSED),
    memory("sami", "sami/memory_wall.ipynb", like="a link to another file", earns=REFUSED),
    memory("tara", "tara/memory_wall.ipynb", like="closed lists a hundred thousand deep", earns=REFUSED),
    # Hostile.
    memory("udo", "udo/memory_wall.ipynb", answers={"free": "while True:\n    pass"}, earns={"free": 0}),
    memory("vera", "vera/memory_wall.ipynb", answers={"layer": "import os\nos._exit(0)"}, earns={"layer": 0}),
    memory("wim", "wim/memory_wall.ipynb", answers={"free": FREE + "return 'x' * (500 << 20)"}, earns={"free": 0}),
    memory("xenia", "xenia/memory_wall.ipynb", answers={"layer": "kept = []\nwhile True:\n    kept.append(b'x' * (64 << 20))"}, earns={"layer": 0}),
    memory("yuri", "yuri/memory_wall.ipynb", base=GUESSED, cells={"imports": "import dlsys.exercises\nfrom dlsys.exercises import judge\n\nsame = dlsys.exercises.same = lambda *a, **k: print('✔')\njudge.difference = lambda *a, **k: None"}),
    collectives("zoe", "zoe/collectives.ipynb", base=GUESSED, cells={"cluster-seconds": "on_numbers = on_token = verdict = all_reduce_seconds = lambda *a: 1\nget_ipython().ast_transformers.clear()"}),
    collectives("aron", "aron/collectives.ipynb", answers={"mean": "def ring_mean(comm, x):\n    while True:\n        pass"}, earns={"mean": 0}),
    memory("bibi", "bibi/memory_wall.ipynb", answers={"free": FREE + "import os\n    os.kill(-1, 9)\n    return 1"}, earns={"free": 0}),
)  # fmt: skip

ASSIGNMENTS = tuple(dict.fromkeys(each.slug for each in THE_CLASS))
NOTHING = ("cleo",)  # on the roster alone
PLATFORMS = {"dora": ("canvas_id", "1104"), "kofi": ("canvas_id", "1109")}
PLATFORMS |= {"fatima": ("moodle_id", "1206"), "mira": ("moodle_id", "1213")}


def write(folder: Path) -> dict[tuple[str, str], dict[str, float] | str]:
    """Write the class; what is expected by student and assignment: points, or a status."""
    for each in THE_CLASS:
        each.write(folder / "submissions")
    students = sorted({*(each.student for each in THE_CLASS), *NOTHING})
    with (folder / "roster.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, ["student", "name", "canvas_id", "moodle_id"])
        table.writeheader()
        for student in students:
            row = {"student": student, "name": student.capitalize()}
            table.writerow(row | dict([PLATFORMS[student]] if student in PLATFORMS else []))
    expected: dict[tuple[str, str], dict[str, float] | str] = {
        (student, slug): MISSING for student in students for slug in ASSIGNMENTS
    }
    return expected | {(each.student, each.slug): each.expected() for each in THE_CLASS}


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    expected = write(folder)
    waiting = {(each.student, each.slug) for each in THE_CLASS if each.words}
    questions = [one for slug in ASSIGNMENTS for one in [*points(slug), IN_WORDS[slug]]]
    with (folder / "expected.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["student", "assignment", "status", *questions])
        for (student, slug), earns in sorted(expected.items()):
            status, known = (earns, {}) if isinstance(earns, str) else ("graded", dict(earns))
            if status == "graded" and (student, slug) not in waiting:
                known[IN_WORDS[slug]] = 0.0
            row = [round(known[q], 4) if q in known else "" for q in questions]
            table.writerow([student, slug, status, *row])
    print(f"{len(THE_CLASS)} notebooks of {len({e.student for e in THE_CLASS})} students: {folder}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
