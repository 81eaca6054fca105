"""Examining a submission: what a student's function gives is what it gives in a notebook, and what
it costs is counted where its code cannot reach."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from dlsys.exercises import WrongAnswer, seal
from dlsys.grading.assignment import Assignment, load, preload
from dlsys.grading.boxes.sandbox import Limits
from dlsys.grading.boxes.warm import Boxes
from dlsys.grading.collecting.rebuild import Step, rebuild
from dlsys.grading.judging import parties, running
from dlsys.grading.judging.examine import Prepared, examine, prepare
from dlsys.grading.judging.once import reaches
from dlsys.grading.result import BROKE, PARTLY, RIGHT, UNANSWERED, WRONG, QuestionResult, Result
from tests.exercises.notebooks import ROOT
from tests.grading.boxes import opened
from tests.grading.small_course import answered, make

IMPORTS = """import torch

from dlsys import world
from dlsys.exercises import same
from dlsys.hardware import LINKS
"""
WORLD = (
    IMPORTS
    + """

def runs(program, ranks):
    def with_numbers(comm):
        return program(comm, torch.arange(8, dtype=torch.float32) + comm.rank)

    return world.simulate(with_numbers, ranks, link=LINKS["nvlink4"])


def counts(run):
    return [run.traffic.sent, len(run.traffic.messages), len(run.traffic.calls)]


def message(program, ranks):
    try:
        runs(program, ranks)
    except Exception as error:
        return str(error)
"""
)
EVERYTHING = """def program(comm, x):
    '''Every word of a communicator.'''
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    came = torch.empty_like(x)
    sending = comm.isend(x, right)
    assert comm.recv(came, left) is came
    sending.wait()
    total = comm.all_reduce(came)
    work = comm.reduce_scatter(total, async_op=True)
    part = work.wait()
    whole = comm.all_gather(part, length=8)
    first = comm.broadcast(whole, src=1)
    down = comm.reduce(first, dst=0, op="max")
    mine = comm.scatter(down, src=0) if comm.rank == 0 else comm.scatter(None, src=0)
    back = comm.gather(mine, dst=2)
    swapped = comm.all_to_all(x, plan="pairwise")
    both = comm.all_reduce(swapped, op="mean")
    comm.barrier()
    comm.compute(1e-6)
    noise = torch.rand(2)
    return {"both": both, "back": back, "noise": noise, "axis": comm.axis, "at": comm.seconds}
"""
CHECKS = """same(runs(program, 4).results, [])
same(runs(program, 4).seconds, 0.0)
same(counts(runs(program, 4)), [])"""


@pytest.fixture(scope="module")
def boxes() -> Iterator[Boxes]:
    # As in grading: a first check that imports PyTorch would be late on a busy machine.
    with opened(Limits(), preload([load(ROOT, "recomputation")])) as made:
        yield made


def unchecked(assignment: Assignment) -> Prepared:
    """The checks as they are written, whatever the solution gives."""
    return Prepared(assignment, 0, {q.id: q.checks for q in assignment.questions})


def grade(prepared: Prepared, root: Path, boxes: Boxes, answers: dict[str, str]) -> Result:
    submission = rebuild(prepared.assignment, answered(root, answers))
    return examine(prepared, submission, boxes, "student")


def judged(
    factory: pytest.TempPathFactory, boxes: Boxes, trusted: str, *cases: tuple[str, str, str]
) -> list[QuestionResult]:
    """What comes of a notebook with a question for each case: blank answer, answer, check."""
    root = factory.mktemp("cases")
    questions = {f"case-{i}": (*case, "") for i, case in enumerate(cases)}
    assignment = make(root, trusted, questions)
    answers = {name: answer for name, (_, answer, *_) in questions.items()}
    return grade(unchecked(assignment), root, boxes, answers).questions


def of_the_book(slug: str, name: str, boxes: Boxes, answer: str = "") -> QuestionResult:
    """What comes of an answer to this question of the book, by default of the solution."""
    whole = load(ROOT, slug)
    [asked] = [each for each in whole.questions if each.id == name]
    cells = tuple(c for c in whole.cells if f"{c.id}-".startswith(("imports-", f"{name}-")))
    prepared = unchecked(replace(whole, cells=cells, questions=(asked,), written=()))
    notebook = answered(ROOT, {name: answer or asked.solution}, slug)
    return only(examine(prepared, rebuild(prepared.assignment, notebook), boxes, "student"))


def only(result: Result) -> QuestionResult:
    [question] = result.questions
    return question


def expecting(values: list[Any], boxes: Boxes, root: Path, checks: str, answer: str) -> list[str]:
    """What is said of an answer where these values are expected."""
    lines = [line for line in checks.split("\n") if line]
    written = "\n".join(
        f"{line.rpartition(', ')[0]}, {value!r})" for line, value in zip(lines, values, strict=True)
    )
    assignment = make(root, WORLD, {"answer": ("program = ...", answer, written, "")})
    result = grade(unchecked(assignment), root, boxes, {"answer": answer})
    return [check.message for check in only(result).checks]


def test_a_rank_program_gives_and_costs_what_it_does_in_a_notebook(
    boxes: Boxes, tmp_path: Path
) -> None:
    names: dict[str, Any] = {}
    exec(WORLD + "\n" + EVERYTHING, names)
    run = names["runs"](names["program"], 4)
    results = [
        {k: v.tolist() if hasattr(v, "tolist") else v for k, v in each.items()}
        for each in run.results
    ]
    values = [results, run.seconds, names["counts"](run)]
    assert expecting(values, boxes, tmp_path, CHECKS, EVERYTHING) == ["", "", ""]


def test_a_deadlock_is_told_with_the_line_of_the_students_cell(
    boxes: Boxes, tmp_path: Path
) -> None:
    waiting = "def program(comm, x):\n    # all wait\n    return comm.recv(x, (comm.rank + 1) % comm.size)"
    [said] = expecting([""], boxes, tmp_path, "same(message(program, 2), '')", waiting)
    assert "deadlock" in said.lower() or "waits" in said
    assert "cell line 3" in said
    assert ".py" not in said


def test_ranks_share_nothing_but_what_they_send(boxes: Boxes, tmp_path: Path) -> None:
    shared = "seen = []\ndef program(comm, x):\n    seen.append(comm.rank)\n    comm.barrier()\n    return len(seen)"
    assert expecting(
        [[1, 1, 1]], boxes, tmp_path, "same(runs(program, 3).results, [])", shared
    ) == [""]


def test_patching_the_library_changes_neither_results_nor_costs(
    boxes: Boxes, tmp_path: Path
) -> None:
    patched = """import dlsys.world, dlsys.world.traffic, dlsys.exercises, dlsys.exercises.judge
dlsys.exercises.judge.difference = lambda *a, **k: None
dlsys.exercises.same = same = lambda *a, **k: print("right")
dlsys.world.traffic.Traffic.sent = property(lambda self: [0, 0])
dlsys.world.simulate = world.simulate = runs = counts = lambda *a, **k: [[0, 0], 0, 0]
torch.equal = lambda a, b: True
def program(comm, x):
    return comm.all_reduce(x)
"""
    [said] = expecting(
        [[[0, 0], 0, 0]], boxes, tmp_path, "same(counts(runs(program, 2)), [])", patched
    )
    assert "came:      [[32, 32], 4, 2]" in said


FUNCTION = (
    IMPORTS
    + """

def refuses(function, *arguments):
    try:
        function(*arguments)
    except ValueError:
        return True
    return False


def doubled(function):
    x = torch.ones(2)
    numbers = [1]
    table = {"a": 1}
    function(x, numbers, table)
    return [x, numbers, table]


def apply(function):
    return function(lambda value: value + 1, 3)
"""
)


VALUES = [
    ("def f(n):\n    raise ValueError('no')", "same(refuses(f, 1), True)"),
    ("class No(ValueError): pass\ndef f(n):\n    raise No('no')", "same(refuses(f, 1), True)"),
    (
        "def f(x, numbers, table):\n    x *= 2\n    numbers.append(2)\n    table['b'] = 2",
        "same(doubled(f), [[2.0, 2.0], [1, 2], {'a': 1, 'b': 2}])",
    ),
    ("def f(g, n):\n    return g(n) * 2", "same(apply(f), 8)"),
    ("import functools\nf = functools.partial(max, 3)", "same(f(2), 3)"),
    ("f = lambda n: (n, [n], {'k': n})", "same(f(2), [2, [2], {'k': 2}])"),
    (
        "def f(n):\n    return torch.full((2,), n, dtype=torch.bfloat16)",
        "same(f(2.0), [2.0, 2.0])",
    ),
    ("f = await __import__('asyncio').sleep(0, result=7)", "same(f, 7)"),
    ("f = 1 << 200", f"same(f, {1 << 200})"),
    ("f = float('nan')", "same(f != f, True)"),
    ("from fractions import Fraction\nf = [Fraction(1, 4), Fraction(6, 2)]", "same(f, [0.25, 3])"),
    ("from decimal import Decimal\nf = lambda: Decimal('2.50')", "same(f(), 2.5)"),
    ("f = range(2, 8, 2)", "same(f, [2, 4, 6])"),
    ("f = lambda: [{'a': 1}.keys(), {'a': 1}.items()]", "same(f(), [['a'], [('a', 1)]])"),
]
"""Answers, and checks of what they are that hold in a notebook."""


@pytest.fixture(scope="module")
def values(boxes: Boxes, tmp_path_factory: pytest.TempPathFactory) -> list[QuestionResult]:
    return judged(tmp_path_factory, boxes, FUNCTION, *(("f = ...", *each) for each in VALUES))


@pytest.mark.parametrize("case", range(len(VALUES)), ids=[answer for answer, _ in VALUES])
def test_functions_and_values_are_what_they_are_in_a_notebook(
    values: list[QuestionResult], case: int
) -> None:
    assert [check.message for check in values[case].checks] == [""]
    assert values[case].status == RIGHT


WRONG_VALUES = ["f = 3", "f = [1, 2]", "f = None", "f = ...", "f = 1j", "f = {1, 2}"]
WRONG_VALUES += ["f = 4.0 + 1e-6", "f = (n for n in [4])", "f = map(abs, [4])", "f = zip([4], [4])"]
IS_FOUR = "same(f, 4.0, hint={3: 'one less', None: 'count again'})"


@pytest.fixture(scope="module")
def wrong_values(boxes: Boxes, tmp_path_factory: pytest.TempPathFactory) -> list[QuestionResult]:
    cases = (("f = 0", answer, IS_FOUR) for answer in WRONG_VALUES)
    return judged(tmp_path_factory, boxes, IMPORTS, *cases)


@pytest.mark.parametrize("case", range(len(WRONG_VALUES)), ids=WRONG_VALUES)
def test_a_wrong_value_is_told_in_the_words_of_the_notebook(
    wrong_values: list[QuestionResult], tmp_path: Path, case: int
) -> None:
    names: dict[str, Any] = {}
    # A source that can be read is what `same` finds the expression in.
    file = tmp_path / "cell.py"
    file.write_text(f"{IMPORTS}{WRONG_VALUES[case]}\n{IS_FOUR}")
    with pytest.raises(WrongAnswer) as caught:
        exec(compile(file.read_text(), str(file), "exec"), names)
    assert wrong_values[case].checks[0].message == str(caught.value)


class_of_lies = """class Equal(int):
    def __eq__(self, other): return True
    __hash__ = int.__hash__
f = Equal(3)"""


def test_an_object_that_equals_everything_equals_nothing(boxes: Boxes, tmp_path: Path) -> None:
    checks = "same(f, 4)\nsame(f == 4, True)\nsame([f], [4])"
    assignment = make(tmp_path, IMPORTS, {"f": ("f = 0", "f = 4", checks, "")})
    question = only(grade(unchecked(assignment), tmp_path, boxes, {"f": class_of_lies}))
    assert question.earned == 0
    assert "of type Equal" in question.checks[0].message


def test_what_counts_is_the_state_at_the_question(boxes: Boxes, tmp_path: Path) -> None:
    questions = {
        "a": ("a = ...", "a = 1", "same(a, 1)", ""),
        "b": ("b = ...", "b = 2", "same(b, 2)", ""),
    }
    assignment = make(tmp_path, IMPORTS, questions)
    own = {
        "a": "a = 1",
        "before b-question": "a = 77",
        "b": "b = 5",
        "before b-test": "b = 2",
        "z": "b = 9",
    }
    result = grade(unchecked(assignment), tmp_path, boxes, own)
    assert [question.status for question in result.questions] == [RIGHT, RIGHT]


def test_a_call_of_one_question_changes_nothing_for_the_next(boxes: Boxes, tmp_path: Path) -> None:
    questions = {
        "f": ("f = ...", "f = 1", "same(f(1), 1)\nsame(f(2), 2)", ""),
        "g": ("g = ...", "g = 1", "same(g(), 0)", ""),
    }
    assignment = make(tmp_path, IMPORTS, questions)
    own = {
        "f": "calls = []\ndef f(n):\n    calls.append(1)\n    return len(calls)",
        "g": "def g():\n    return len(calls)",
    }
    result = grade(unchecked(assignment), tmp_path, boxes, own)
    assert [question.status for question in result.questions] == [RIGHT, RIGHT]


ROW = """from dataclasses import dataclass

import numpy as np
import torch

from dlsys import world
from dlsys.exercises import same

ROW = torch.arange(4.0)
TABLE = {"rows": [ROW, [1, 2]], "array": np.arange(3.0)}


def runs(program, ranks):
    return world.simulate(program, ranks)


def sent(run):
    return sum(run.traffic.sent)


def normalized(f):
    out = f(ROW[1:], TABLE["rows"][1], TABLE["array"][:2])
    return [ROW, *TABLE["rows"], TABLE["array"], out]


@dataclass(frozen=True)
class Given:
    numbers: list
    row: torch.Tensor


class Slim:
    __slots__ = ("__inside", "row")
    common = [1, 2]

    def __init__(self, inside, row):
        self.__inside, self.row = inside, row

    def numbers(self):
        return self.__inside


GIVEN = [Given([1, 2], torch.arange(2.0)), Slim([1, 2], np.arange(2.0))]
MODEL = torch.nn.Linear(1, 2)
MODEL.weight.data = torch.ones(2, 1)


def given(f):
    one, other = GIVEN
    f(one.numbers, one.row, other.numbers(), other.row, Slim.common, MODEL.weight.data)
    return [one.numbers, one.row, other.numbers(), other.row, Slim.common, MODEL.weight.sum().item()]


def made(n):
    return list(range(n))


def agrees(came, right):
    return came == right
"""
KEPT = """kept, calls = {}, []

def program(comm):
    x = torch.tensor([float(comm.rank)])
    if comm.rank not in kept:
        kept[comm.rank] = comm.all_reduce(x)
    return kept[comm.rank]

def f(n=0, *more):
    calls.append(n)
    return calls[:]

def changing(x, *more):
    for each in (x, *more):
        each[:] = each[:1] * len(each) if isinstance(each, list) else 0.0
    return 7

class Liar(np.ndarray):
    def mean(self, *more, **options): return 0.0
    def std(self, *more, **options): return 1.0

class Other:
    size = 3
    def mean(self, *more, **options): return 0.0

def lies(n):
    return np.arange(n, dtype=float).view(Liar) if n else Other()
"""


ONCE = [
    # Whoever sends once, and then what it kept, has sent wherever it is asked.
    ("[runs(program, 2).results, sent(runs(program, 2))]", [[[1.0], [1.0]], 8]),
    ("[sent(each) for each in [runs(program, 2), runs(program, 2)]]", [8, 8]),
    ("[sent(runs(program, n)) for n in (2, 1 + 1, 2)]", [8, 8, 8]),
    ("(lambda n: sent(runs(program, n)) + sent(runs(program, 1 + 1)))(2)", 16),
    ("[runs(program, ranks=2).seconds > 1, sent(runs(program, ranks=2))]", [False, 8]),
    ("[f(1), f(1), len(f(1)), f(1.0), f(True), f(1)]", [[1], [1], 1, [1, 1.0], [1, 1.0, True], [1]]),
    ("f([1, (2,)]) + f([1, (2,)]) + f([1, [2]])", [[1, [2]], [1, [2]], [1, [2]], [1, [2]]]),
    ("[f(torch.ones(2)) is f(torch.ones(2)), f(np.ones(2)) is f(np.zeros(2))]", [True, False]),
    # What locked cells hold stays what it is, also seen through a view and in what is nested.
    ("normalized(changing)", [[0.0, 1.0, 2.0, 3.0], [0.0, 1.0, 2.0, 3.0], [1, 2], [0.0, 1.0, 2.0], 7]),
    ("[changing(made(3)), agrees(made(3), [0, 1, 2])]", [7, True]),
    ("given(changing)", [[1, 2], [0.0, 1.0], [1, 2], [0.0, 1.0], [1, 2], 2.0]),
]  # fmt: skip
NOTHING = "program = f = changing = lies = ..."


@pytest.fixture(scope="module")
def once(boxes: Boxes, tmp_path_factory: pytest.TempPathFactory) -> list[QuestionResult]:
    cases = ((NOTHING, KEPT, f"same({check}, {right!r})") for check, right in ONCE)
    return judged(tmp_path_factory, boxes, ROW, *cases)


@pytest.mark.parametrize("case", range(len(ONCE)), ids=[check for check, _ in ONCE])
def test_a_call_is_made_once_and_changes_nothing_of_the_authors(
    once: list[QuestionResult], case: int
) -> None:
    assert [check.message for check in once[case].checks] == [""]


class Link:
    def __init__(self, held: Any) -> None:
        self.held = held


def test_what_an_object_holds_is_reached_and_the_whole_process_is_not() -> None:
    wanted: list[Any] = []
    chain = Link(wanted)
    for _ in range(20_000):
        chain = Link([chain, chain])
    assert reaches([chain], wanted)
    everything = [sys, Link, test_what_an_object_holds_is_reached_and_the_whole_process_is_not]
    assert not reaches([Link(everything), everything], sys.path)
    assert not reaches([Link(everything), everything], ONCE)


def test_the_checks_of_a_question_share_its_calls_and_no_others(
    boxes: Boxes, tmp_path: Path
) -> None:
    shown = "same(sent(runs(program, 2)), 8)\nsame(runs(program, 2).results, [[1.0], [1.0]])"
    questions = {
        "program": ("program = f = changing = lies = ...", KEPT, shown, "same(sent(runs(program, 2)), 8)"),
        "other": ("other = ...", "other = program", "same(sent(runs(other, 2)), 8)", ""),
    }  # fmt: skip
    assignment = make(tmp_path, ROW, questions)
    own = {"program": KEPT, "other": "other = program"}
    result = grade(unchecked(assignment), tmp_path, boxes, own)
    assert [question.status for question in result.questions] == [RIGHT, RIGHT]


LIES = [
    "same([lies(3).mean(), lies(3).std()], [0.0, 1.0])",
    "same([np.mean(lies(3)), np.std(lies(3))], [0.0, 1.0])",
    "same(lies(0).mean(), 0.0)",
    "same(np.mean(lies(0)), 0.0)",
    "same(lies(0).size, 3)",
    "same(lies.__name__, 'lies')",
]


@pytest.fixture(scope="module")
def lies(boxes: Boxes, tmp_path_factory: pytest.TempPathFactory) -> list[QuestionResult]:
    return judged(tmp_path_factory, boxes, ROW, *((NOTHING, KEPT, check) for check in LIES))


@pytest.mark.parametrize("case", range(len(LIES)), ids=LIES)
def test_nothing_of_a_students_object_is_looked_at(lies: list[QuestionResult], case: int) -> None:
    question, check = lies[case], LIES[case]
    assert question.earned == 0
    assert "not looked at" in question.checks[0].message or "np." in check or "__" in check


# -- what is measured ----------------------------------------------------------------------------

WITH_THE_TABLE = """faults = {"A": "corner", "B": "sums", "C": "tiles", "D": "dropout"}
held = []


def mended(q, keys, values, start, offset, so_far):
    if so_far is None:
        held.clear()
    held.append((keys, values))
    k, v = map(torch.cat, zip(*held))
    allowed = torch.ones(len(q), len(k), dtype=torch.bool).tril(offset)
    x = (q @ k.T * q.shape[1] ** -0.5).masked_fill(~allowed, -torch.inf)
    empty = torch.zeros(len(q))
    return x.softmax(1) @ v, x.logsumexp(1), (empty, empty, torch.zeros_like(q))
"""


def test_a_pass_that_holds_the_whole_table_is_not_taken_for_one_in_tiles(boxes: Boxes) -> None:
    """Right as its results would be in a notebook, where one process has all tiles."""
    assert of_the_book("attention", "fault", boxes).status == RIGHT
    found = of_the_book("attention", "fault", boxes, WITH_THE_TABLE)
    several = [each for each in found.checks if "mended, 1, 24, 12, 99)" in each.expression]
    assert [each.passed for each in several] == [False]
    assert not any(each.passed for each in found.checks if each.hidden)
    assert found.earned == 0


WITH_THE_GRAPH = """import torch.utils.checkpoint
kept = []


def first_run(name, *args):
    state = torch.get_rng_state()
    leaves = [a.detach().requires_grad_(a.requires_grad) if isinstance(a, torch.Tensor) else a
              for a in args]
    result = RUN(LAYERS[name], *leaves)
    kept.append((leaves, result))
    return result.detach(), state


def second_run(name, args, state, gradient):
    leaves, result = kept.pop()
    result.backward(gradient)
    return [getattr(a, "grad", None) for a in leaves]
"""
PLAIN = "(lambda f, *args: f(*args))"
TORCHS = "(lambda f, *args: torch.utils.checkpoint.checkpoint(f, *args, use_reentrant=False))"


@pytest.mark.parametrize("run", [PLAIN, TORCHS], ids=["plain", "torchs"])
def test_a_checkpoint_that_holds_the_first_runs_graph_earns_nothing(boxes: Boxes, run: str) -> None:
    """Right as its gradients would be in a notebook, where one process runs both halves."""
    right = of_the_book("recomputation", "checkpoint", boxes)
    assert right.status == RIGHT, [each for each in right.checks if not each.passed]
    answer = WITH_THE_GRAPH.replace("RUN", run)
    found = of_the_book("recomputation", "checkpoint", boxes, answer)
    assert not any(each.passed for each in found.checks)
    assert found.earned == 0


# -- points --------------------------------------------------------------------------------------

SQUARE = {
    "square": (
        "def square(n):\n    ...",
        "def square(n):\n    return n * n",
        "same(square(3), 9)\nsame(square(2) == 5, False)",
        "same(square(7), 49, vary={7: [11, 12, 13, 14, 15, 16]})\nsame(square(-2), 4)",
    )
}


@pytest.fixture
def square(boxes: Boxes, tmp_path: Path) -> Any:
    assignment = make(tmp_path, IMPORTS, SQUARE)
    prepared = prepare(assignment, boxes, seed=1)

    def answer(source: str) -> QuestionResult:
        return only(grade(prepared, tmp_path, boxes, {"square": source}))

    return answer


def test_points_are_shared_among_checks(square: Any) -> None:
    assert square("def square(n):\n    return n * n").earned == 2
    partly = square("def square(n):\n    return n * abs(n)")
    assert (partly.earned, partly.status) == (1.5, PARTLY)


@pytest.mark.parametrize(
    ("answer", "earned"),
    [
        ("n * n", 2),
        ("n * n if n != 5 else 0", 2 * 6 / 7),
        ("n * n if n != 2 else 0", 2 * 5 / 7),
        ("n * n if n != 3 else 0", 0),  # what is needed is not there
    ],
)
def test_a_check_may_weigh_more_than_another_or_be_needed(
    boxes: Boxes, tmp_path: Path, answer: str, earned: float
) -> None:
    checks = "same(square(5), 25)\nsame(square(2), 4, weight=2)\nsame(square(3), 9, needed=True)"
    hidden = "same(square(7), 49, weight=3, vary={7: [7]})"
    made = ("def square(n):\n    ...", "def square(n):\n    return n * n", checks, hidden)
    prepared = prepare(make(tmp_path, IMPORTS, {"square": made}), boxes, seed=1)
    source = f"def square(n):\n    return {answer}"
    assert only(grade(prepared, tmp_path, boxes, {"square": source})).earned == pytest.approx(
        earned
    )


def test_knowing_the_numbers_of_the_notebook_by_heart_earns_nothing(square: Any) -> None:
    known = square("def square(n):\n    return {3: 9, 2: 4}.get(n)")
    assert [check.passed for check in known.checks] == [True, True, False, False]
    assert (known.earned, known.status) == (0, WRONG)


@pytest.mark.parametrize(
    ("square", "largest", "earned"),
    [("n * n", 8, 2), ("{3: 9}.get(n)", 8, 1), ("n * n", 3, 1), ("{3: 9}.get(n)", 3, 0)],
)
def test_a_right_number_pays_for_no_function_whose_numbers_are_known_by_heart(
    boxes: Boxes, tmp_path: Path, square: str, largest: int, earned: float
) -> None:
    blank, solution = (
        f"def square(n):\n    return {made}\n\nlargest = {number}"
        for made, number in (("...", "..."), ("n * n", "8"))
    )
    checks = "same(square(3), 9)\nsame(largest, 8)"
    hidden = "same(square(7), 49, vary={7: [11, 12]})\nsame(largest + 1, 9)"
    both = {"both": (blank, solution, checks, hidden)}
    prepared = prepare(make(tmp_path, IMPORTS, both), boxes, seed=1)
    answer = f"def square(n):\n    return {square}\n\nlargest = {largest}"
    assert only(grade(prepared, tmp_path, boxes, {"both": answer})).earned == earned


def test_a_drawn_check_accepts_a_list_for_an_array_as_the_shown_one_does(
    boxes: Boxes, tmp_path: Path
) -> None:
    doubled = (
        "def doubled(n):\n    ...",
        "def doubled(n):\n    return torch.ones(2) * 2 * n",
        "same(doubled(3), [6.0, 6.0])",
        "same([doubled(7), 1], [[14.0, 14.0], 1], vary={7: [11, 12, 13]})",
    )
    prepared = prepare(make(tmp_path, IMPORTS, {"doubled": doubled}), boxes, seed=1)
    for answer in ("[2 * n, 2 * n]", "(2.0 * n,) * 2", "torch.full((2,), 2 * n)"):
        source = f"def doubled(n):\n    return {answer}"
        assert only(grade(prepared, tmp_path, boxes, {"doubled": source})).earned == 2
    one = only(grade(prepared, tmp_path, boxes, {"doubled": "def doubled(n):\n    return [2 * n]"}))
    assert one.earned == 0


def test_the_blank_answer_earns_nothing_though_it_passes_a_check(square: Any) -> None:
    blank = square("def square(n):\n    ...  ")
    assert [check.passed for check in blank.checks] == [False, True, False, False]
    assert (blank.earned, blank.status) == (0, UNANSWERED)
    almost = square("def square(n):\n    pass")
    assert (almost.earned, almost.status) == (0, WRONG)


def test_a_hidden_check_says_neither_its_expression_nor_a_value(square: Any) -> None:
    *_, drawn, fixed = square("def square(n):\n    raise ValueError(n)").checks
    for check in (drawn, fixed):
        assert (check.expression, check.message, check.hint) == ("", "", None)
        assert check.kind == "a number"


@pytest.fixture(scope="module")
def hinted(boxes: Boxes, tmp_path_factory: Any) -> list[tuple[Any, Path, str | None]]:
    """The assignment without hints and with some, each prepared; and what a hidden check may say."""
    hints = [*SQUARE["square"][:3], "same(square(17), 289, hint={1: 'one', None: 'any other'})"]
    found = []
    for texts, said in ((SQUARE["square"], None), (tuple(hints), "any other")):
        root = tmp_path_factory.mktemp("hinted")
        prepared = prepare(make(root, IMPORTS, {"square": texts}), boxes, seed=1)
        found.append((prepared, root, said))
    return found


@pytest.mark.parametrize(
    "built", ["float(f'{n * n:.1e}')", "[n] * n", "-n * n", "1000 * n * n", "{n: n}", "str(n)"]
)
def test_a_hidden_check_says_nothing_that_an_answer_was_built_for(
    boxes: Boxes, hinted: list[tuple[Any, Path, str | None]], built: str
) -> None:
    for prepared, root, said in hinted:
        answer = {"square": f"def square(n):\n    return {built}"}
        checks = only(grade(prepared, root, boxes, answer)).checks
        assert {check.hint for check in checks if check.hidden and not check.passed} <= {said}


def test_what_kind_of_value_is_sealed_is_told(boxes: Boxes, tmp_path: Path) -> None:
    check = f"same(f, sealed({seal([1.0, 2.0])!r}))"
    imports = IMPORTS.replace("import same", "import same, sealed")
    assignment = make(tmp_path, imports, {"f": ("f = ...", "f = [1.0, 2.0]", check, "")})
    question = only(grade(prepare(assignment, boxes, 1), tmp_path, boxes, {"f": "f = 3"}))
    assert question.checks[0].kind == "a list"


def test_a_seed_draws_the_same_and_another_one_others(boxes: Boxes, tmp_path: Path) -> None:
    assignment = make(tmp_path, IMPORTS, SQUARE)
    drawn = [prepare(assignment, boxes, seed).checks["square"] for seed in (1, 1, 2, 3, 4, 5)]
    assert drawn[0] == drawn[1]
    assert len({checks[2].expression for checks in drawn}) > 1
    for checks in drawn:
        number = int(checks[2].expression.removeprefix("square(").removesuffix(")"))
        assert checks[2].expected == number * number


@pytest.mark.parametrize(
    ("solution", "blank", "words"),
    [
        ("def square(n):\n    return n + n", "square = ...", "does not pass its own check `square"),
        ("def square(n):\n    return 1 / 0", "square = ...", "gives no value for .*ZeroDivision"),
        (
            "def square(n): return n * n",
            "def square(n): return n**2",
            "blank answer .* every check",
        ),
    ],
)
def test_an_assignment_that_cannot_be_graded_fairly_is_refused(
    boxes: Boxes, tmp_path: Path, solution: str, blank: str, words: str
) -> None:
    _, _, visible, hidden = SQUARE["square"]
    assignment = make(tmp_path, IMPORTS, {"square": (blank, solution, visible, hidden)})
    with pytest.raises(ValueError, match=words):
        prepare(assignment, boxes, seed=1)


# -- what goes wrong -----------------------------------------------------------------------------

THREE = {
    name: (f"def {name}(n):\n    ...", f"def {name}(n):\n    return n", f"same({name}(3), 3)", "")
    for name in ("a", "b", "c")
}


@pytest.fixture
def three(boxes: Boxes, tmp_path: Path) -> Any:
    assignment = make(tmp_path, IMPORTS, THREE)

    def answer(**changed: str) -> Result:
        own = {name: f"def {name}(n):\n    return n" for name in THREE} | changed
        return grade(unchecked(assignment), tmp_path, boxes, own)

    return answer


def statuses(result: Result) -> list[str]:
    return [question.status for question in result.questions]


@pytest.fixture
def hasty(three: Any, boxes: Boxes, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`three` for what may not end, and its limit: one that is long enough for all that does."""

    def answer(expected: list[str], **changed: str) -> tuple[Result, int]:
        for seconds in (2, 12, 60):
            limits = replace(boxes.limits, cell_seconds=seconds, check_seconds=seconds)
            monkeypatch.setattr(boxes, "limits", limits)
            result = three(**changed)
            if statuses(result) == expected:
                break
        return result, seconds

    return answer


def test_an_endless_loop_in_a_function_costs_its_own_question_alone(hasty: Any) -> None:
    expected = [RIGHT, WRONG, RIGHT]
    result, _ = hasty(expected, b="def b(n):\n    while True: pass")
    assert statuses(result) == expected
    assert result.questions[1].checks[0].message == "b(3) took too long."


def test_a_loop_that_was_broken_off_takes_no_time_from_the_next_question(hasty: Any) -> None:
    others = """def c(n):
    import os, psutil
    kernel = psutil.Process().parent().parent()
    running = [each for each in kernel.children(recursive=True) if each.status() == "running"]
    return n + len([each for each in running if each.pid != os.getpid()])"""
    expected = [RIGHT, WRONG, RIGHT]
    result, _ = hasty(expected, b="def b(n):\n    while True: pass", c=others)
    assert statuses(result) == expected


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("import os; os._exit(0)", "It ended the kernel."),
        ("import time\nwhile True: time.sleep(60)", "It took longer than {} s."),
        (
            "import os\nfor fd in range(3, 200):\n    try: os.write(fd, b'\\xff' * 99)\n    except OSError: pass",
            "disturbed",
        ),
    ],
)
def test_a_cell_that_breaks_the_kernel_is_left_out(hasty: Any, cell: str, words: str) -> None:
    expected = [RIGHT, BROKE, RIGHT]
    result, seconds = hasty(expected, b=cell)
    assert statuses(result) == expected
    assert words.format(seconds) in result.questions[1].error
    assert any("broke the kernel" in note and "“b”" in note for note in result.notes)


HOARD = "hoard = b'x' * {}"
# No limit of a process holds for shared memory: what watches the box has to find it.
NEED = """import mmap, time
need = mmap.mmap(-1, {})
need[::4096] = b"x" * len(need[::4096])
time.sleep(600 if "hoard" in globals() else 0)"""


@cache
def _torch_bytes() -> int:
    """What a process with torch holds: a build for GPUs three times as much as one for CPUs."""
    ask = "import psutil, torch; print(psutil.Process().memory_info().rss)"
    return int(subprocess.check_output([sys.executable, "-c", ask]))


@pytest.mark.parametrize("where", ["in a cell", "in a check"])
def test_the_cell_that_took_the_memory_is_to_blame_wherever_it_runs_out(
    three: Any, boxes: Boxes, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = max(600 << 20, _torch_bytes() * 5 // 2)
    monkeypatch.setattr(boxes, "limits", replace(boxes.limits, memory_bytes=most))
    hoard, need = HOARD.format(most * 55 // 100), NEED.format(most * 45 // 100)
    inside = "\n    ".join(["def c(n):", *need.split("\n"), "return n"])
    own = "def c(n):\n    return n"
    result = three(b=hoard, c=inside if where == "in a check" else f"{need}\n{own}")
    assert statuses(result) == [RIGHT, BROKE, RIGHT]
    assert "of memory" in result.questions[1].error


def test_after_three_restarts_the_rest_is_left_and_what_came_before_counts(three: Any) -> None:
    breaking = {
        f"before {name}": "import os; os._exit(1)" for name in ("b", "c", "c-test", "imports")
    }
    result = three(**breaking)
    assert statuses(result)[0] == RIGHT
    assert "not run" in result.notes[-1]


@pytest.mark.parametrize(
    ("breaks_at", "told", "notes"),
    [
        (3, "RuntimeError: run 3", 1),  # in a check that is shown nothing can be found out
        (7, "RuntimeError: run 1", 0),
    ],
)
def test_cells_that_run_again_after_hidden_checks_tell_nothing(
    boxes: Boxes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    breaks_at: int,
    told: str,
    notes: int,
) -> None:
    runs: list[None] = []

    class Marked(parties.StudentBox):
        """One whose cells know which run this is, as if an earlier one had left a mark."""

        def __init__(self, *arguments: Any) -> None:
            runs.append(None)
            super().__init__(*arguments)

        def run(self, step: Step, seconds: float) -> str | None:
            return super().run(replace(step, source=f"RUN = {len(runs)}\n{step.source}"), seconds)

    monkeypatch.setattr(running, "StudentBox", Marked)
    questions = THREE | {"a": (*THREE["a"][:3], "same(a(7), 7)")}
    own = {
        "a": f"import os\ndef a(n):\n    return os.kill(-1, 9) if n == {breaks_at} else n",
        "b": "def b(n):\n    return n\nraise RuntimeError(f'run {RUN}')",
        "c": "def c(n):\n    return n",
        "before c": "import os\nif RUN == 2: os._exit(0)",
    }
    result = grade(unchecked(make(tmp_path, IMPORTS, questions)), tmp_path, boxes, own)
    assert len(runs) == 3
    assert statuses(result) == [BROKE, RIGHT, RIGHT]
    assert result.questions[1].error.startswith(told)
    assert len(result.notes) == notes


def test_an_error_in_a_cell_is_told_with_its_line(three: Any) -> None:
    result = three(b="def b(n):\n    return n\n1 / 0")
    assert statuses(result) == [RIGHT, RIGHT, RIGHT]
    assert result.questions[1].error == "ZeroDivisionError: division by zero\n  in line 3: 1 / 0"
    broken = three(b="def b(n:\n    return n")
    assert broken.questions[1].error.startswith("SyntaxError in line 1")
    assert "b(3) ended with an error.\n  NameError" in broken.questions[1].checks[0].message


def test_a_lying_process_is_an_error_and_not_an_answer(three: Any) -> None:
    """Replies of any form, forged where the functions are called."""
    forged = """import dlsys.grading.judging.calls as calls
def b(n):
    import socket, struct, json
    for message in ({'value': [3, {}]}, {'value': {'tuple': [3]}}, [], {'ask': 1}, {'error': 4}, {'x': 1}):
        head = json.dumps(message).encode()
        for fd in range(3, 40):
            try: socket.socket(fileno=fd).send(struct.pack('!IQ', len(head), 0) + head)
            except Exception: pass
    return 4
"""
    result = three(b=forged)
    assert statuses(result) == [RIGHT, WRONG, RIGHT]


def test_a_plan_of_any_mechanism_is_judged_where_nobody_has_patched_its_class(
    boxes: Boxes, tmp_path: Path
) -> None:
    """No trusted cell imports the mechanism; the answer makes its plans cheap and always right."""
    patched = """from dlsys.pipeline_parallel import Plan, gpipe
Plan.price = lambda self, *times: type("Price", (), {"makespan": 3.0})()
Plan.check = lambda self: None
answer = gpipe(2, 3)
"""
    checks = "same(answer.price(1.0, 2.0).makespan, 3.0)\nsame(answer.name, 'mine')"
    assignment = make(tmp_path, IMPORTS, {"answer": ("answer = ...", patched, checks, "")})
    result = only(grade(unchecked(assignment), tmp_path, boxes, {"answer": patched}))
    price, name = [check.message for check in result.checks]
    assert "came:      12.0" in price
    assert "GPipe" in name or "gpipe" in name


def test_a_plan_with_a_field_of_another_type_is_told_in_a_sentence(
    boxes: Boxes, tmp_path: Path
) -> None:
    wrong = """from dlsys.collectives import Transfer
answer = Transfer._make((0, 1.5, 0, 1, False))
"""
    assignment = make(
        tmp_path, IMPORTS, {"answer": ("answer = ...", wrong, "same(answer.src, 0)", "")}
    )
    result = only(grade(unchecked(assignment), tmp_path, boxes, {"answer": wrong}))
    assert "Transfer.dst is 1.5; it must be a whole number." in result.checks[0].message


def test_nothing_of_a_hidden_check_is_in_what_may_be_shown(boxes: Boxes, tmp_path: Path) -> None:
    """A function leaves its arguments in a file, and says what is there whenever it is called."""
    leaking = """import glob
def NAME(n):
    open(f"/tmp/NAME{n}", "w").write(str(n))
    raise ValueError(str(sorted(glob.glob("/tmp/[a-z][0-9]*"))))
"""
    names = ("f", "g")
    questions = {
        name: (
            f"{name} = ...",
            f"def {name}(n): return n",
            f"same({name}(3), 3)",
            f"same({name}(314159265), 314159265)",
        )
        for name in names
    }
    assignment = make(tmp_path, IMPORTS, questions)
    result = grade(
        unchecked(assignment), tmp_path, boxes, {n: leaking.replace("NAME", n) for n in names}
    )
    assert "/tmp/f3" in str(result.as_json())
    assert "314159265" not in str(result.as_json())


def test_checks_that_ask_for_parts_of_a_run_are_of_one_run(boxes: Boxes, tmp_path: Path) -> None:
    """Else a program could be right in one run and cheap in another."""
    changing = """calls = 0
def program(comm, x):
    global calls
    calls += 1
    return calls
"""
    checks = """same(runs(program, 2).results, [1, 1])
same(runs(program, 2).results[0], 1)
same([runs(program, 2).results for _ in range(2)], [[1, 1], [1, 1]])
same(len(runs(program, 2).results), 2)
same(runs(program, 3).results, [2, 2, 1])"""
    assignment = make(tmp_path, WORLD, {"answer": ("program = ...", changing, checks, "")})
    result = grade(unchecked(assignment), tmp_path, boxes, {"answer": changing})
    assert [check.message for check in only(result).checks] == [""] * 5
