"""What an instructor sees on the terminal: progress, and a summary at the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from typing import TextIO

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from dlsys.grading.assignment import Assignment
from dlsys.grading.course import run as course
from dlsys.grading.course.grade import NOT_ISOLATED, Grade
from dlsys.grading.reports.everything import Reports
from dlsys.grading.reports.looking import PAGE, asking
from dlsys.grading.reports.marks import LOG, TOTAL, Change
from dlsys.grading.reports.statistics import Item
from dlsys.grading.reports.tables import cell
from dlsys.grading.result import GRADED, MISSING, NOT_GRADED, REFUSED
from dlsys.grading.text import visible

_LISTED = 20  # sentences, or names, of one kind that the summary holds
_HARDEST = 8  # questions that it shows


@contextmanager
def progress_on(stream: TextIO) -> Iterator[course.Progress]:
    """A function that shows progress: a bar on a terminal, plain lines elsewhere."""
    if not stream.isatty():

        def lines(done: int, of: int, what: str) -> None:
            print(f"[{done}/{of}] {_line(what)}" if of else _line(what), file=stream, flush=True)

        yield lines
        return
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    text = TextColumn("{task.description}", markup=False)
    with Progress(*columns, text, console=Console(file=stream), transient=True) as shown:
        task = shown.add_task("", total=None)

        def bar(done: int, of: int, what: str) -> None:
            shown.update(task, completed=done, total=of or None, description=_line(what)[:60])

        yield bar


def _line(text: str) -> str:
    """A line without anything that a terminal would take for a command."""
    return " ".join(visible(text, 1000).split())


def summary(out: Path, result: course.Class, reports: Reports, stream: TextIO) -> None:
    """Print how the class did, who has no grade and why, and where everything is."""
    grades = reports.grades
    console = Console(file=stream, highlight=False, markup=False, emoji=False)
    if any(grade.isolation == NOT_ISOLATED for grade in grades):
        console.print(
            f"{NOT_ISOLATED}: students' code ran as you, with limits on resources alone. "
            "It could read your files, and write to them.",
            style="bold red",
        )
    console.print(_of_assignments(result, grades))
    if reports.items:
        console.print(_of_items(reports.items))

    def say(line: str) -> None:
        console.print(line, soft_wrap=True)  # a path is not cut in two

    mistakes = [(item, item.mistakes[0]) for _, item in _hardest(reports.items) if item.mistakes]
    if mistakes:
        say("The commonest mistake in each:")
    for item, (hint, times) in mistakes:
        say(f"  {_line(f'{item.slug} {item.id}: {times} x {hint}')}")
    strangers = sorted({grade.result.student for grade in grades if not grade.listed})
    if strangers:
        say(_line(f"Not on the roster, and so not in canvas/ and moodle/: {_some(strangers)}."))
    late = [each for each in grades if each.result.status == GRADED and each.seconds_late > 0]
    if late:
        say(_line(_of_late(late)))
    if result.stamped:
        say(
            _line(
                "A timestamp.txt lies there that a student may have made, so the date of the file "
                f"counts; with --timestamps, where nbgrader collected: {_some(result.stamped)}."
            )
        )
    for sentence in reports.failed:
        say(_line(sentence))
    if result.gone:
        say(
            _line(f"No longer there, kept in {out / 'gone'}: {', '.join(map(_plain, result.gone))}")
        )
    say(f"Graded now: {result.graded}. Seed: {result.run.seed}.")
    folders = "feedback/, gradescope/, canvas/, moodle/, nbgrader/"
    say(f"{out}: grades.csv, items.csv, {PAGE}, {folders}")
    by_hand = sum(grade.waiting > 0 for grade in grades)
    if by_hand:
        say(
            f"Submissions with written answers to grade by hand: {by_hand}. To grade them:\n"
            f"    cd {out / 'nbgrader'} && jupyter lab      then Nbgrader > Formgrader\n"
            "Until then mean and maximum above are without these questions. Afterwards run this "
            "command again: it takes the points into all files."
        )
    if reports.changes:
        say(
            _line(f"Marks that changed, see {LOG}: {_some(_totals(reports.changes), quoted=True)}.")
        )
    said = [(grade, sentence) for grade in grades for sentence in asking(grade)]
    if said:
        say(f"To be looked at by a person, see {PAGE}:")
    for grade, sentence in said[:_LISTED]:
        say(f"  {_line(f'{grade.result.student} ({grade.result.slug}): {sentence}')}")
    if len(said) > _LISTED:
        say(f"  ... and {len(said) - _LISTED} more.")


def _totals(changes: Sequence[Change]) -> list[str]:
    """Whose totals changed, from what to what."""
    return [
        f"{_plain(one.student)} ({one.slug}) from {_told(one.before)} to {_told(one.after)}"
        for one in changes
        if one.of == TOTAL
    ]


def _told(points: float | None) -> str:
    return "none" if points is None else cell(points)


def _some(names: Sequence[str], quoted: bool = False) -> str:
    """Names, as many as a summary holds; in quotes where they need them, unless they are."""
    more = [f"and {len(names) - _LISTED} more"] if len(names) > _LISTED else []
    shown = names[:_LISTED] if quoted else [_plain(name) for name in names[:_LISTED]]
    return ", ".join([*shown, *more])


def _plain(name: str) -> str:
    """A name as it stands in a list: in quotes where it could be read as two."""
    return repr(name) if "," in name or name.startswith(("'", '"')) else name


def _of_late(grades: Sequence[Grade]) -> str:
    """How many are late and lose points for it, and whose they are."""
    losing = sum(grade.late_penalty > 0 for grade in grades)
    whose = [f"{grade.result.student} ({grade.result.slug})" for grade in grades]
    return (
        "Late, by the date of the file or timestamp.txt, or by Canvas's mark: "
        f"{len(grades)}, of which {losing} lose{'s' * (losing == 1)} points: {_some(whose)}."
    )


def _of_assignments(result: course.Class, grades: Sequence[Grade]) -> Table:
    table = Table(box=box.SIMPLE)
    for name in ("assignment", GRADED, REFUSED, NOT_GRADED, MISSING, "mean", "maximum"):
        table.add_column(name, justify="left" if name == "assignment" else "right")
    for slug, assignment in result.assignments.items():
        own = [grade for grade in grades if grade.result.slug == slug]
        counts = [
            str(sum(grade.result.status == status for grade in own))
            for status in (GRADED, REFUSED, NOT_GRADED, MISSING)
        ]
        mean, maximum = _mean(own, assignment)
        table.add_row(slug, *counts, "" if mean is None else f"{mean:.1f}", cell(maximum))
    return table


def _mean(grades: Sequence[Grade], assignment: Assignment) -> tuple[float | None, float]:
    """The mean of the totals, and their maximum, without the questions of which an answer still
    waits for a person: nobody's points for them count, so that the mean is of equals."""
    waiting = {id_: points for grade in grades for id_, points in grade.unread.items()}
    totals = [
        grade.total - sum(grade.points().get(id_, 0.0) for id_ in waiting)
        for grade in grades
        if grade.total is not None
    ]
    return fmean(totals) if totals else None, assignment.points - sum(waiting.values())


def _hardest(items: Sequence[Item]) -> list[tuple[float, Item]]:
    judged = [(item.difficulty, item) for item in items if item.difficulty is not None]
    return sorted(judged, key=lambda each: each[0])[:_HARDEST]


def _of_items(items: Sequence[Item]) -> Table:
    table = Table(box=box.SIMPLE, title="The hardest questions", title_justify="left")
    table.add_column("question", no_wrap=True)
    for name in ("earned", "discri-\nmination", "not\nanswered"):
        table.add_column(name, justify="right", no_wrap=True)
    for difficulty, item in _hardest(items):
        known = item.discrimination is not None
        table.add_row(
            Text(f"{item.slug} {item.id}"),
            f"{difficulty:.0%}",
            f"{item.discrimination:.2f}" if known else "",
            str(item.unanswered),
        )
    return table
