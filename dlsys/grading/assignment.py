"""What there is to earn: an exercise notebook's questions and checks, and its trusted cells."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
import re
import symtable
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from dlsys.grading.checks import Check, checks_of
from dlsys.notebook.measuring import measured_amiss
from dlsys.notebook.release import STUB

TRUSTED = "trusted"  # a locked code cell: imports, helpers, runs
ANSWER = "answer"  # the student's
TEST = "test"  # calls of `same`
FREE = "free"  # a code cell that is in the notebook to play with
WRITTEN = "written"  # an answer that a person grades
TEXT = "text"
SOLUTION = re.compile(r"^([ \t]*)### BEGIN SOLUTION.*?### END SOLUTION[^\n]*$", re.M | re.S)


@dataclass(frozen=True)
class Question:
    """A question: its answer cell `id`, what the blank and the solved cell hold, its checks.

    `names` are those that the blank answer cell binds: what a student has to supply.
    """

    id: str
    title: str
    points: float
    blank: str
    solution: str
    names: tuple[str, ...]
    checks: tuple[Check, ...]

    @cached_property
    def functions(self) -> frozenset[str]:
        """The functions and classes among `names`."""
        body = ast.parse(self.blank).body
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        return frozenset(one.name for one in body if isinstance(one, kinds))


@dataclass(frozen=True)
class WrittenQuestion:
    """A question that a person grades, by `rubric`, which holds a model answer too."""

    id: str
    title: str
    points: float
    blank: str
    rubric: str


@dataclass(frozen=True)
class Cell:
    """A cell of the released notebook: its id, kind (`TRUSTED`, ...) and source."""

    id: str
    kind: str
    source: str


@dataclass(frozen=True)
class Assignment:
    """An exercise notebook: its cells in order, what they ask, and the files that go with it.

    `files` are the released files by name, the notebook itself left out; `digest` changes when
    anything of it does. Without solutions (a student's copy) checks are the visible ones, and
    every `solution` and `rubric` is empty.
    """

    slug: str
    title: str
    cells: tuple[Cell, ...]
    questions: tuple[Question, ...]
    written: tuple[WrittenQuestion, ...]
    files: Mapping[str, bytes]
    digest: str

    @property
    def points(self) -> float:
        """The most that can be earned, written questions included."""
        return sum(q.points for q in self.questions) + sum(w.points for w in self.written)


def slugs(root: Path) -> list[str]:
    """The assignments of the project at `root`: the folders of exercises/, in order of name."""
    notebooks = (root / "exercises").glob("*/*.ipynb")
    return sorted(path.stem for path in notebooks if path.stem == path.parent.name)


def load(root: Path, slug: str, solutions: bool = True) -> Assignment:
    """The assignment `slug` of the project at `root`; raises ValueError with what is wrong.

    Where somebody has answered in exercises/ itself, the blank answers are made from the solutions.
    Without these such an answer's blank is empty.
    """
    if slug not in slugs(root):
        known = ", ".join(slugs(root)) or "none"
        raise ValueError(f"There is no assignment {slug!r} in {root / 'exercises'}; known: {known}")
    folder = root / "exercises" / slug
    try:
        found = _stored(folder / f"{slug}.ipynb")
        solved = _stored(root / "solutions" / slug / f"{slug}.ipynb") if solutions else []
        by_id = {cell.id: cell for cell in solved}
        released = [_blank(cell, by_id) for cell in found]
        return _assignment(slug, released, solved, _files(folder, slug))
    except ValueError as error:
        raise ValueError(f"{slug}: {error}") from None


# What PyTorch imports when an optimizer is made: a second of each box that makes one. In a rank,
# which may write no file, it cannot be imported at all.
WITH_OPTIMIZERS = "torch._dynamo"


def preload(assignments: Iterable[Assignment]) -> tuple[str, ...]:
    """The modules that trusted cells import, to be loaded before any student's box is opened."""
    found = set()
    for cell in (cell for assignment in assignments for cell in assignment.cells):
        for node in ast.walk(ast.parse(cell.source)) if cell.kind == TRUSTED else ():
            if isinstance(node, ast.Import):
                found |= {name.name for name in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                inside = (f"{node.module}.{name.name}" for name in node.names)
                found |= {node.module, *filter(_is_module, inside)}
                if any(name.name == "simulate" for name in node.names):
                    found.add(WITH_OPTIMIZERS)
            elif isinstance(node, ast.Attribute) and node.attr in ("optim", "simulate"):
                found.add(WITH_OPTIMIZERS)
    return tuple(sorted(found))


def names_in(source: str) -> set[str]:
    """The names that Python source mentions, within functions as well."""
    return {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}


# -- reading -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Stored:
    """A cell as a notebook holds it; `role` is nbgrader's metadata."""

    id: str
    type: str
    source: str
    role: Mapping[str, Any]

    @property
    def kind(self) -> str:
        answer, graded = self.role.get("solution"), self.role.get("grade")
        if self.type != "code":
            return WRITTEN if answer and graded else TEXT
        if answer and graded:
            raise ValueError(f"cell {self.id} is code to grade by hand; make it a text cell.")
        kind = ANSWER if answer else TEST if graded else TRUSTED
        return kind if self.role.get("locked") or answer or graded else FREE


def _stored(path: Path) -> list[_Stored]:
    try:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        return [
            _Stored(
                cell["id"],
                cell["cell_type"],
                "".join(cell["source"]),
                cell["metadata"].get("nbgrader", {}),
            )
            for cell in cells
        ]
    except FileNotFoundError:
        raise ValueError(f"there is no {path}, and grading needs it.") from None
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is no notebook of nbformat 4.5: {error!r}.") from None


def _blank(cell: _Stored, solved: Mapping[str, _Stored]) -> _Stored:
    """A released cell as it was released, whatever somebody has written into it since."""
    if cell.kind not in (ANSWER, WRITTEN) or _is_as_released(cell):
        return cell
    source = _cleared(solved[cell.id]) if cell.id in solved else ""
    before = replace(cell, source=source)
    if solved and not _is_as_released(before):
        raise ValueError(
            f"the answer cell {cell.id!r} is neither blank nor in step with its solution; run "
            "python -m dlsys.notebook.release"
        )
    return before


def _is_as_released(cell: _Stored) -> bool:
    """Whether a cell has the checksum that nbgrader gave it, where it gave one."""
    flags = [str(bool(cell.role.get(flag))) for flag in ("grade", "solution", "locked")]
    parts = [cell.source, cell.type, *flags, cell.role.get("grade_id", "")]
    if cell.role.get("grade"):
        parts.append(str(_points(cell)))
    digest = hashlib.md5("".join(parts).encode(), usedforsecurity=False).hexdigest()
    return cell.role.get("checksum", digest) == digest


def _cleared(cell: _Stored) -> str:
    """A solution's cell without its solution, as nbgrader releases it."""
    stub = STUB if cell.type == "code" else "YOUR ANSWER HERE"
    return SOLUTION.sub(rf"\1{stub}", cell.source) if SOLUTION.search(cell.source) else stub


def _files(folder: Path, slug: str) -> dict[str, bytes]:
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    names = {path.relative_to(folder): path for path in paths if path.name != f"{slug}.ipynb"}
    return {
        name.as_posix(): path.read_bytes()
        for name, path in names.items()
        if not any(part.startswith((".", "__")) for part in name.parts)
    }


def _assignment(
    slug: str, released: list[_Stored], solved: list[_Stored], files: dict[str, bytes]
) -> Assignment:
    cells = {cell.id: cell for cell in released}
    if len(cells) < len(released):
        raise ValueError("two cells have the same id; give each its own.")
    if solved and [(c.id, c.kind) for c in solved] != [(c.id, c.kind) for c in released]:
        raise ValueError(
            "exercises/ and solutions/ have different cells; run python -m dlsys.notebook.release"
        )
    solutions = {cell.id: cell.source for cell in solved}
    questions = [_question(cell, cells, solutions) for cell in released if cell.kind == TEST]
    written = [_written(cell, cells, solutions) for cell in released if cell.kind == WRITTEN]
    untested = {cell.id for cell in released if cell.kind == ANSWER} - {q.id for q in questions}
    if untested:
        raise ValueError(f"answer cell {min(untested)!r} has no test cell {min(untested)}-test.")
    _check_names(released)
    _check_imports(released, solutions)
    sources = {kind: [c.source for c in released if c.kind == kind] for kind in (TRUSTED, ANSWER)}
    tests = [solutions.get(c.id, c.source) for c in released if c.kind == TEST]  # with hidden ones
    if amiss := measured_amiss(sources[TRUSTED], sources[ANSWER], tests):
        raise ValueError(amiss)
    content = [
        [(c.id, c.type, c.source, c.role.get("points")) for c in released],
        *solutions.items(),
    ]
    digest = hashlib.sha256(json.dumps([slug, content]).encode())
    for name, data in files.items():
        digest.update(f"{name} {len(data)}".encode() + data)
    return Assignment(
        slug=slug,
        title=_heading(released[0].source),
        cells=tuple(Cell(cell.id, cell.kind, cell.source) for cell in released),
        questions=tuple(questions),
        written=tuple(written),
        files=files,
        digest=digest.hexdigest(),
    )


def _question(
    test: _Stored, cells: Mapping[str, _Stored], solutions: Mapping[str, str]
) -> Question:
    answer = cells.get(test.id.removesuffix("-test"))
    if answer is None or answer.kind != ANSWER or answer.id == test.id:
        raise ValueError(f"test cell {test.id!r} is not called as an answer cell, with -test.")
    try:
        visible = checks_of(test.source)
        checks = checks_of(solutions.get(test.id, test.source))
    except ValueError as error:
        raise ValueError(f"{test.id}, {error}") from None
    if visible != tuple(check for check in checks if not check.hidden):
        raise ValueError(
            f"{test.id} is out of step with its solution; run python -m dlsys.notebook.release"
        )
    return Question(
        answer.id,
        _title(answer.id, cells),
        _points(test),
        answer.source,
        solutions.get(answer.id, ""),
        _names(answer),
        checks,
    )


def _written(
    answer: _Stored, cells: Mapping[str, _Stored], solutions: Mapping[str, str]
) -> WrittenQuestion:
    rubric = solutions.get(answer.id, "")
    if solutions and rubric.strip() in ("", answer.source.strip()):
        raise ValueError(f"{answer.id} has no rubric; write it into the cell in solutions/.")
    title = _title(answer.id, cells)
    return WrittenQuestion(answer.id, title, _points(answer), answer.source, rubric)


def _points(cell: _Stored) -> float:
    points = cell.role.get("points")
    if not isinstance(points, int | float) or not points > 0:
        raise ValueError(f"{cell.id} has points {points!r}; give it more than 0.")
    return float(points)


def _title(answer: str, cells: Mapping[str, _Stored]) -> str:
    if f"{answer}-question" not in cells:
        raise ValueError(f"there is no cell {answer}-question with the text of {answer!r}.")
    return _heading(cells[f"{answer}-question"].source)


def _heading(source: str) -> str:
    first = source.strip().partition("\n")[0]
    if not first.startswith("#"):
        raise ValueError(f"the text {first[:40]!r} does not begin with a heading.")
    return first.strip("# ")


def _names(cell: _Stored) -> tuple[str, ...]:
    """The names that a cell binds at its top level, in the order in which they occur."""
    return tuple(s.get_name() for s in _symbols(cell) if s.is_assigned() or s.is_imported())


class _WithoutComprehensions(ast.NodeTransformer):
    """From Python 3.12 on, symtable takes the names in a comprehension for those around it."""

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            return ast.List([], ast.Load())
        return self.generic_visit(node)


def _symbols(cell: _Stored) -> list[symtable.Symbol]:
    try:
        plain = ast.unparse(_WithoutComprehensions().visit(ast.parse(cell.source, cell.id)))
        return symtable.symtable(plain, cell.id, "exec").get_symbols()
    except SyntaxError as error:
        raise ValueError(f"cell {cell.id!r} is no plain Python: {error}.") from None


def _check_names(cells: list[_Stored]) -> None:
    """Nothing trusted is bound twice, so what a trusted cell defines stays what it is."""
    answers = {name for cell in cells if cell.kind == ANSWER for name in _names(cell)}
    bound: dict[str, str] = dict.fromkeys(answers, "an answer cell")
    for cell in cells:
        for name in _names(cell) if cell.kind == TRUSTED else ():
            if name in bound:
                raise ValueError(
                    f"cell {cell.id!r} binds {name}, as {bound[name]} does; rename one of the two."
                )
            bound[name] = f"cell {cell.id!r}"


def _check_imports(cells: list[_Stored], solutions: Mapping[str, str]) -> None:
    """Nothing trusted uses a name that an answer cell imports: it would be the student's."""
    imports = {
        symbol.get_name(): cell.id
        for cell in cells
        if cell.kind == ANSWER
        for symbol in _symbols(cell)
        if symbol.is_imported()
    }
    for cell in cells if imports else ():
        if cell.kind not in (TRUSTED, TEST):
            continue
        used = names_in(solutions.get(cell.id, cell.source))  # with the hidden checks
        for name in sorted(used & imports.keys()):
            raise ValueError(
                f"cell {cell.id!r} uses {name}, which the blank answer cell {imports[name]!r} "
                "imports, so that it is the student's; import it in a locked cell instead."
            )


def _is_module(name: str) -> bool:
    """Whether `package.name` is a module, said without importing the package."""
    top, *rest = name.split(".")
    spec = importlib.util.find_spec(top)
    places = (spec and spec.submodule_search_locations) or []
    paths = [Path(place, *rest) for place in places]
    return any(p.with_suffix(".py").is_file() or (p / "__init__.py").is_file() for p in paths)
