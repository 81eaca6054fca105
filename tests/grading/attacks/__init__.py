"""Notebooks that attack the grader, and odd ones of honest students: one module a class of attack.

A module's `BANK` is a list of `Attack`. Each is a notebook that somebody might hand in, made from
one with every answer right, some, none, or every answer wrong, and says what it has to earn.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from textwrap import dedent
from typing import Any

from tests.exercises.notebooks import load

Notebook = dict[str, Any]
SOLVED, SPARSE, GUESSED, BLANK = "solved", "sparse", "guessed", "blank"
EMPTY = "..."  # in the place of an answer: what is not there takes no time to be checked
# The answers that a sparse notebook has, all of them right, and all of them quick.
KEPT = {
    "memory_wall": ("state", "free", "layer"),
    "collectives": ("seconds", "fault"),
    "data_parallel": ("bytes", "timeline"),
}

# How many attacks that share may be in one notebook: it is run again so often without one.
KERNELS, CHECKS = "several that break the kernel", "several that are called"
MOST = {KERNELS: 3, CHECKS: 4}

# A name that the answer to each question of memory_wall binds.
NAMES = {
    "state": "state_bytes",
    "free": "free_bytes",
    "peaks": "predicted_peaks",
    "alive": "predicted_alive",
    "layer": "layer_activations",
    "fit": "design",
    "cost": "training_cost",
    "frozen": "predicted",
}

# Wrong, and not the placeholder, so that an attack has something to be paid for.
GUESSES = {
    "memory_wall": {
        "state": "state_bytes = 1\ndevices = 1",
        "free": "def free_bytes(parameters, memory_gib):\n    return 1",
        "peaks": "predicted_peaks = dict.fromkeys('ABCDEF', 1)",
        "alive": "predicted_alive = dict.fromkeys('ABCDEFG', 9)",
        "layer": "def layer_activations(batch, sequence, hidden, heads):\n    return 1",
        "fit": 'design = {"zero_stage": 0, "recompute": "full"}',
        "cost": "def training_cost(*arguments):\n    return 1.0, 1.0",
        "frozen": 'predicted = {"weights": 1, "gradients": 1, "moments": 1}',
    },
    "collectives": {
        "seconds": "seconds = two_nodes = three_nodes = sixteen_nodes = 1",
        "sent": "def large_broadcast(comm, x):\n    return x + 100",
        "mean": "def ring_mean(comm, x):\n    return x + 100",
        "shift": "milliseconds = [0] * 7\n\n\ndef token_sum(comm, x):\n    return x + 100",
        "uneven": "short_rank = batches_of_it = 7\n\n\ndef epoch_of_all(comm, batches):\n    return [], 0",
        "fault": "fault_round = 7\nfault_src = 7\nrepaired = [list(each) for each in broken]",
        "broadcast": "def broadcast_rounds(ranks):\n    return [[(0, 0, 0, 1)]]",
        "cluster": 'one_card_is_enough_for = "?"\ndesign = {"algorithm": "tree", "cards": 1}',
    },
}


@dataclass(frozen=True)
class Places:
    """Where things are on the machine that grades, for attacks to look for or to write to."""

    home: Path
    submissions: Path
    out: Path
    root: Path  # the project
    port: int  # something listens here on the loopback

    def fill(self, text: str) -> str:
        """The JSON `text` with @home@, @out@, ... replaced by what they stand for."""
        text = text.replace("@fragments@", json.dumps(patterns_of_hidden())[1:-1])
        for name in ("home", "submissions", "out", "root", "port"):
            text = text.replace(f"@{name}@", str(getattr(self, name)))
        return text


@dataclass(frozen=True)
class Attack:
    """A notebook to grade, and what must come of it.

    answers: sources of answer cells, by id
    cells: sources of the student's own cells, by the id of the cell that they come after
    edit: changes the notebook's JSON in place
    lay: writes what is handed in, given the path of the notebook and its text
    earns: points by question, exactly; None: less than full. Questions that are not named have
        full points in a solved notebook and 0 in a guessed one.
    spoils: whether it may cost the other questions their points as well
    endless: whether nothing but a limit on time ends it, which is then a short one
    shares: with which others it may stand in one notebook, each in a question of its own
    refused: a pattern of the reason, where the notebook is refused
    """

    name: str
    slug: str = "memory_wall"
    base: str = SOLVED
    answers: Mapping[str, str] = field(default_factory=dict)
    cells: Mapping[str, str] = field(default_factory=dict)
    edit: Callable[[Notebook], object] | None = None
    lay: Callable[[Path, str], object] | None = None
    earns: Mapping[str, float | None] = field(default_factory=dict)
    spoils: bool = False
    endless: bool = False
    shares: str = ""
    refused: str = ""

    @property
    def student(self) -> str:
        """The name of the attack as that of a folder."""
        return "".join(c if c.isalnum() else "-" for c in self.name)

    def notebook(self) -> Notebook:
        """What is handed in, before `lay`."""
        if self.base == BLANK:
            notebook = load("exercises", self.slug)
        else:
            notebook = guessed(self.slug) if self.base == GUESSED else solved(self.slug)
            if self.base == SPARSE:
                _forget(notebook, KEPT[self.slug])
        for name, source in self.answers.items():
            cell(notebook, name)["source"] = dedent(source).strip("\n")
        for after, source in self.cells.items():
            place = position(notebook, after) + 1
            notebook["cells"].insert(place, own_cell(dedent(source).strip("\n"), f"own-{place}"))
        if self.edit:
            self.edit(notebook)
        return notebook

    def write(self, folder: Path, places: Places | None = None) -> None:
        """Hand it in: FOLDER/STUDENT/SLUG.ipynb."""
        path = folder / self.student / f"{self.slug}.ipynb"
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(self.notebook())
        text = places.fill(text) if places else text
        if self.lay:
            self.lay(path, text)
        else:
            path.write_text(text, encoding="utf-8")


def in_one(attacks: Iterable[Attack]) -> dict[str, Attack]:
    """By the name of each attack the notebook that it is in: of its own, or shared where it may."""
    found: dict[str, Attack] = {}
    shared: list[tuple[Attack, list[str]]] = []
    for each in attacks:
        if not each.shares:
            found[each.name] = each
            continue
        for place, (other, names) in enumerate(shared):
            taken = {*other.answers, *other.cells} & {*each.answers, *each.cells}
            alike = _kind(other) == _kind(each)
            if alike and not taken and len(names) < MOST.get(each.shares, 20):
                both = replace(
                    other,
                    answers={**other.answers, **each.answers},
                    cells={**other.cells, **each.cells},
                )
                shared[place] = both, [*names, each.name]
                break
        else:
            name = f"{each.shares} {len(shared)}"
            shared.append((replace(each, name=name), [each.name]))
    return found | {name: notebook for notebook, names in shared for name in names}


def _kind(attack: Attack) -> tuple[object, ...]:
    """What attacks in one notebook have in common."""
    return attack.slug, attack.base, attack.shares, attack.endless


@cache
def hidden() -> tuple[str, ...]:
    """Pieces of hidden checks that no released notebook holds."""
    found = []
    for slug in GUESSES:
        released = json.dumps(load("exercises", slug))
        for each in load("solutions", slug)["cells"]:
            _, _, checks = "".join(each["source"]).partition("### BEGIN HIDDEN TESTS\n")
            pieces = [line[len("same(") :][:32] for line in checks.split("\n") if "same(" in line]
            found += [piece for piece in pieces if json.dumps(piece)[1:-1] not in released]
    return tuple(found)


@cache
def patterns_of_hidden() -> str:
    """Python source of patterns that find `hidden` in memory, and not themselves."""
    some = hidden()[::5]  # every pattern takes its time over some hundred megabytes
    patterns = (f"[{piece[0]}]{re.escape(piece[1:])}".encode() for piece in some)
    return ", ".join(map(repr, patterns))


def probe(name: str, source: str, on: str) -> Attack:
    """Source that puts what it gets hold of into `found`, in the answer to question `on`.

    The answer is right where nothing is found, so that full points say that all of it ran.
    """
    fail = f"if found:\n    {NAMES[on]} = [str(one)[:200] for one in found]"
    right = "".join(cell(solved("memory_wall"), on)["source"])
    return Attack(
        name, answers={on: f"{dedent(source).strip()}\n{right}\n{fail}"}, shares="several probes"
    )


def probes(sources: Mapping[str, str]) -> list[Attack]:
    """A probe of each source, spread over the questions."""
    questions = list(NAMES)
    return [
        probe(name, source, questions[number % len(questions)])
        for number, (name, source) in enumerate(sources.items())
    ]


def solved(slug: str) -> Notebook:
    """The released notebook with every answer right."""
    right = {cell["id"]: _unmarked(cell) for cell in load("solutions", slug)["cells"]}
    notebook = load("exercises", slug)
    for each in notebook["cells"]:
        if is_answer(each):
            each["source"] = right[each["id"]]
    return notebook


def _forget(notebook: Notebook, but: Sequence[str]) -> None:
    """Make answers empty, but for some."""
    for each in notebook["cells"]:
        if is_answer(each) and each["id"] not in but:
            each["source"] = EMPTY


def guessed(slug: str) -> Notebook:
    """The released notebook with every answer wrong."""
    notebook = load("exercises", slug)
    for each in notebook["cells"]:
        if is_answer(each):
            each["source"] = GUESSES[slug].get(each["id"], each["source"])
    return notebook


def _unmarked(solution: Notebook) -> str:
    lines = "".join(solution["source"]).split("\n")
    return "\n".join(line for line in lines if " SOLUTION" not in line)


def is_answer(each: Notebook) -> bool:
    """Whether it is an answer that is graded by running it."""
    role = each["metadata"].get("nbgrader", {})
    return each["cell_type"] == "code" and role.get("solution", False)


def is_test(each: Notebook) -> bool:
    role = each["metadata"].get("nbgrader", {})
    return role.get("grade", False) and not role.get("solution", False)


def points(slug: str) -> dict[str, float]:
    """The points of each question that is graded by running it."""
    return {
        each["id"].removesuffix("-test"): float(each["metadata"]["nbgrader"]["points"])
        for each in load("exercises", slug)["cells"]
        if is_test(each)
    }


def position(notebook: Notebook, name: str) -> int:
    return next(i for i, each in enumerate(notebook["cells"]) if each.get("id") == name)


def cell(notebook: Notebook, name: str) -> Notebook:
    return notebook["cells"][position(notebook, name)]


def own_cell(source: str, name: str) -> Notebook:
    """A code cell as a student adds it."""
    return {
        "cell_type": "code",
        "execution_count": None,
        "id": name,
        "metadata": {},
        "outputs": [],
        "source": source,
    }


def function(body: str, name: str = "free_bytes(parameters, memory_gib)") -> str:
    """The source of an answer that is a function with this body."""
    lines = dedent(body).strip("\n").split("\n")
    return "\n".join([f"def {name}:", *(f"    {line}" if line else "" for line in lines)])


def in_answers(sources: Mapping[str, str], endless: bool = False) -> list[Attack]:
    """Each source in the place of an answer, spread over the questions."""
    questions = list(NAMES)
    return [
        Attack(name, answers={on: source}, earns={on: 0}, shares=KERNELS, endless=endless)
        for number, (name, source) in enumerate(sources.items())
        for on in [questions[number % len(questions)]]
    ]


def in_checks(bodies: Mapping[str, str], before: str = "", endless: bool = False) -> list[Attack]:
    """Each body as that of the function @name@ that a check calls, spread over the questions."""
    questions = ("free", "layer", "cost")
    return [
        Attack(
            name,
            answers={on: f"{before}\n{source}"},
            earns={on: 0},
            shares=CHECKS,
            endless=endless,
        )
        for number, (name, body) in enumerate(bodies.items())
        for on in [questions[number % len(questions)]]
        for source in [function(body.replace("@name@", NAMES[on]), f"{NAMES[on]}(*arguments)")]
    ]
