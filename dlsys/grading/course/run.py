"""Grade a class: every submission once, again only where something changed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from dlsys.checks import shown
from dlsys.grading.assignment import Assignment, load, preload, slugs
from dlsys.grading.boxes.sandbox import Limits
from dlsys.grading.boxes.warm import Boxes
from dlsys.grading.collecting.collect import FOUND, Found, Refused, find, read
from dlsys.grading.collecting.packed import is_zip
from dlsys.grading.collecting.rebuild import rebuild
from dlsys.grading.collecting.roster import read_roster
from dlsys.grading.course.records import (
    Deadline,
    Record,
    Run,
    key_of,
    load_all,
    locked,
    open_run,
    path_of,
    save,
    save_run,
    set_aside,
)
from dlsys.grading.judging.examine import Prepared, examine, prepare
from dlsys.grading.result import MISSING, NOT_GRADED, REFUSED, Result

Notebook = Mapping[str, Any]
Examiner = Callable[[Assignment, str, Notebook], Result]  # the student's name in between
Progress = Callable[[int, int, str], None]  # submissions done, of how many, and what is at hand


@dataclass(frozen=True)
class Plan:
    """How a run examines: so many `jobs` at a time, in boxes unless students are trusted.

    `seed` draws the hidden instances; None takes the recorded one, or draws one the first time.
    """

    seed: int | None = None
    trust: bool = False
    limits: Limits = field(default_factory=Limits)
    jobs: int = 1


Opener = Callable[[Plan, Sequence[Assignment], Progress], AbstractContextManager[Examiner]]


@dataclass(frozen=True)
class Class:
    """A class as it stands after a run: every record, `graded` of them just now, and assignments.

    `gone` says whose submissions are there no more, and `stamped` whose hold a timestamp.txt that
    did not count.
    """

    assignments: Mapping[str, Assignment]
    records: Sequence[Record]
    run: Run
    graded: int
    gone: Sequence[str]
    stamped: Sequence[str] = ()


@dataclass(frozen=True)
class _Task:
    """A submission to be graded: its record, with the result missing, and what was handed in."""

    record: Record
    notebook: Notebook
    notes: Sequence[str]


def grade(
    root: Path,
    submissions: Path,
    wanted: Sequence[str],
    out: Path,
    *,
    roster: Path | None = None,
    timestamps: bool = False,
    deadline: Callable[[Deadline], Deadline] | None = None,
    plan: Plan,
    progress: Progress,
    opener: Opener,
    finish: Callable[[Class], None],
) -> Class:
    """Grade the submissions of a folder, and keep a record of each in `out`.

    root: the project, with exercises/ and solutions/
    wanted: slugs of assignments
    timestamps: whether nbgrader has collected the folder, so that its timestamp.txt count
    deadline: gives the deadline to record for an assignment from the one recorded before, for
        whoever writes the reports; None keeps what is recorded
    opener: `boxes`, or another source of what examines; used where there is something to grade
    finish: called with the class while `out` is still locked, to write the reports

    A run that is interrupted leaves every finished record, and KeyboardInterrupt goes on. Raises
    ValueError, OSError or SandboxError, each a sentence, where nothing can be graded.
    """
    _check_folders(submissions, out)
    assignments = {slug: load(root, slug) for slug in wanted}
    students = read_roster(roster, slugs(root)) if roster else []
    others = _others(root, wanted)
    found = find(submissions, list(assignments.values()), students, others, timestamps)
    _check_there(submissions, found)
    out.mkdir(parents=True, exist_ok=True)
    with locked(out):
        run = open_run(out, plan.seed)
        if deadline is not None:
            before = {each.slug: run.deadlines.get(each.slug, (None, None)) for each in found}
            now = {slug: deadline(recorded) for slug, recorded in before.items()}
            run = replace(run, deadlines={**run.deadlines, **now})
        plan = replace(plan, seed=run.seed)
        save_run(out, run)
        tasks = _sort(submissions, out, plan, run.deadlines, assignments, found)
        gone = _clear(out, found)
        if tasks:
            needed = {task.record.result.slug for task in tasks}
            opened = opener(
                plan, [assignments[slug] for slug in wanted if slug in needed], progress
            )
            _grade_all(out, plan.jobs, opened, assignments, tasks, progress)
        kept = {slug: load_all(out, slug) for slug in slugs(root)}
        there = {
            slug: assignments.get(slug) or load(root, slug) for slug, some in kept.items() if some
        }
        records = [record for some in kept.values() for record in some.values()]
        stamped = [] if timestamps else [f"{f.student} ({f.slug})" for f in found if f.is_stamped]
        result = Class(there, records, run, len(tasks), gone, stamped)
        finish(result)
    return result


def _others(root: Path, wanted: Sequence[str]) -> list[Assignment]:
    """The project's other assignments, as students have them; but for those that are broken."""
    others = []
    for slug in slugs(root):
        with suppress(ValueError):  # it is no reason not to grade what is wanted
            others += [load(root, slug, solutions=False)] if slug not in wanted else []
    return others


def _check_folders(submissions: Path, out: Path) -> None:
    inside, outside = submissions.resolve(), out.resolve()
    if inside.is_relative_to(outside) or outside.is_relative_to(inside):
        raise ValueError(
            f"Submissions ({submissions}) and grades ({out}) are in one another; "
            "name a folder for the grades beside the submissions."
        )


def _check_there(submissions: Path, found: Sequence[Found]) -> None:
    """Raise ValueError where nobody handed in anything, or whatever came is still packed."""
    zips = sorted(path.name for path in submissions.glob("*") if is_zip(path.name))
    if any(each.status != MISSING for each in found) or (found and not zips):
        return
    named = ", ".join([*map(shown, zips[:3]), *(["..."] if len(zips) > 3 else [])])
    unpack = f" Unpack what holds the class: {named}." if zips else ""
    raise ValueError(f"There is nothing to grade in {submissions}: no file of a student.{unpack}")


def _sort(
    submissions: Path,
    out: Path,
    plan: Plan,
    deadlines: Mapping[str, Deadline],
    assignments: Mapping[str, Assignment],
    found: Sequence[Found],
) -> list[_Task]:
    """The submissions to grade. The records of all others are brought up to date."""
    kept = {slug: load_all(out, slug) for slug in assignments}
    tasks = []
    for each in found:
        result = Result(each.student, each.slug, each.status, each.reason, notes=[*each.notes])
        notebook: Notebook = {}
        if each.status == FOUND and each.path is not None:
            try:
                below = submissions if submissions.is_dir() else None
                notebook = read(each.path, below, each.member)
            except Refused as error:  # it has changed since it was found
                result = replace(result, status=REFUSED, reason=str(error))
        what = [each.student, result.status, result.reason, result.notes, notebook]
        rules = [assignments[each.slug].digest, plan.seed, plan.trust, asdict(plan.limits)]
        submitted = _submitted(each, *deadlines.get(each.slug, (None, None)))
        key = key_of(what, rules)
        known = (dict(each.person), submitted, each.listed, each.extension)
        record = Record(key, result, *known)
        before = kept[each.slug].get(each.student)
        if before is not None and before.holds_for(record.key):
            record = replace(record, result=before.result)
        elif result.status == FOUND:
            tasks.append(_Task(record, notebook, each.notes))
            continue
        if record != before:
            save(out, record)
    return tasks


def _submitted(found: Found, due: float | None, late: str | None) -> float | None:
    """When it was handed in, in seconds since 1970: after `due` where the platform says that it was
    late, whatever date the file has, for downloads are often dated anew."""
    seconds = found.submitted.timestamp() if found.submitted else None
    return max(due + 1, seconds or 0.0) if found.marked_late and due is not None else seconds


def _clear(out: Path, found: Sequence[Found]) -> list[str]:
    """Set aside the records of submissions that are there no more; whose they are.

    An assignment that nobody handed in here stays as it is: its folder is another one.
    """
    there = {(each.slug, each.student) for each in found}
    gone = []
    for slug in sorted({each.slug for each in found if each.status != MISSING}):
        for student, record in load_all(out, slug).items():
            if (slug, student) in there:
                continue
            if record.result.status == MISSING:  # who left the roster had handed in nothing
                path_of(out, slug, student).unlink()
                continue
            set_aside(out, slug, student)
            gone.append(f"{student} ({slug})")
    return gone


@contextmanager
def boxes(plan: Plan, assignments: Sequence[Assignment], progress: Progress) -> Iterator[Examiner]:
    """What examines submissions in boxes, with every assignment prepared.

    One that cannot be prepared fails its submissions with the reason. Raises SandboxError.
    """
    with Boxes(plan.limits, trust_students=plan.trust, preload=preload(assignments)) as opened:
        prepared: dict[str, Prepared | ValueError] = {}
        for each in assignments:
            progress(0, 0, f"preparing {each.slug}")
            try:
                prepared[each.slug] = prepare(each, opened, plan.seed or 0)
            except ValueError as error:
                prepared[each.slug] = error

        def examiner(assignment: Assignment, student: str, notebook: Notebook) -> Result:
            ready = prepared[assignment.slug]
            if isinstance(ready, ValueError):
                raise ready
            return examine(ready, rebuild(assignment, notebook), opened, student)

        yield examiner


def _grade_all(
    out: Path,
    jobs: int,
    opened: AbstractContextManager[Examiner],
    assignments: Mapping[str, Assignment],
    tasks: Sequence[_Task],
    progress: Progress,
) -> None:
    """Grade what is to be graded, so many at a time, and write each record at once."""
    stopping = threading.Event()

    def one(task: _Task) -> Result:
        result = task.record.result
        if stopping.is_set():
            return result
        try:
            result = examiner(assignments[result.slug], result.student, task.notebook)
            result = replace(result, notes=[*task.notes, *result.notes])
        except Exception as error:
            kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
            result = replace(result, status=NOT_GRADED, reason=f"{kind}{error}")
        except BaseException:
            stopping.set()
            raise
        if not stopping.is_set():  # else it may be of a box that was closed under it
            save(out, replace(task.record, result=result))
        return result

    # The boxes close before the pool waits for its threads, and so end what runs in them.
    with ThreadPoolExecutor(jobs) as pool, opened as examiner:
        futures = [pool.submit(one, task) for task in tasks]
        try:
            for done, future in enumerate(as_completed(futures), start=1):
                result = future.result()
                progress(done, len(tasks), f"{result.student} {result.slug}: {result.status}")
        except BaseException:
            stopping.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
