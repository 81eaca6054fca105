"""The command `dlsys-grade`: a folder of submissions in, grades out."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from dlsys.grading.assignment import slugs
from dlsys.grading.project import find_root, known

if TYPE_CHECKING:
    from dlsys.grading.course.records import Deadline
    from dlsys.grading.course.run import Class
    from dlsys.grading.reports.exporting import Exporter

LEAST_GIB = 0.5  # that a box can be limited to
OK, SOME_NOT_GRADED, USAGE, NO_SANDBOX, INTERRUPTED = 0, 1, 2, 3, 130

_EPILOG = """\
Run again, it grades only what changed, and keeps what was graded by hand. It ends with 0 where
every submission is graded or was refused with a reason, 1 where some could not be graded, or a
plug-in or a PDF failed (the same command tries them again), 2 where an argument or a folder is not
right, 3 where students' code cannot be isolated here, 130 where it was interrupted (the same
command goes on).

dlsys-grade export gradescope|github writes an autograder or a workflow for these places;
dlsys-grade export solutions writes a PDF of the solutions.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        if arguments[:1] == ["export"]:
            return _export(arguments[1:])
        return _grade(arguments)
    except OSError as error:
        _say(
            f"dlsys-grade: {error.filename or 'a file'} cannot be used: {error.strerror or error}."
        )
        return USAGE
    except ValueError as error:
        _say(f"dlsys-grade: {error}")
        return USAGE
    except KeyboardInterrupt:
        _say("Interrupted. What was graded is kept; the same command goes on from there.")
        return INTERRUPTED
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _say(line: str) -> None:
    print(line, file=sys.stderr)


def _grade(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        allow_abbrev=False,
        prog="dlsys-grade",
        description="Grade a folder of notebooks, each isolated from this machine and all others.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("submissions", type=Path, help="the folder with what students handed in")
    parser.add_argument("--out", type=Path, required=True, help="the folder for the grades")
    parser.add_argument(
        "--assignment",
        default="all",
        metavar="all|SLUG",
        help="which exercises to grade (default: all)",
    )
    parser.add_argument("--roster", type=Path, help="a CSV file of the class")
    parser.add_argument("--jobs", type=_count, default=1, help="how many at a time (default: 1)")
    parser.add_argument(
        "--due",
        metavar="DATE",
        help="2026-12-01T23:59, local time; or with +01:00; or a day; or none "
        "(default: as recorded)",
    )
    parser.add_argument(
        "--late",
        metavar="RATE",
        help="10%%/day, 5%%/hour, 20%%, 1 point/day, 10%%/day after 15 minutes, FILE.py:FUNCTION",
    )
    parser.add_argument(
        "--timestamps",
        action="store_true",
        help="count lateness from STUDENT/SLUG/timestamp.txt: only where nbgrader collected",
    )
    parser.add_argument(
        "--export",
        action="append",
        default=[],
        metavar="FILE.py:FUNCTION",
        help="write grades with a function of your own, too",
    )
    parser.add_argument(
        "--pdf", action="store_true", help="print feedback as PDF, with Chromium or Chrome"
    )
    parser.add_argument("--seed", type=int, help="draws the hidden instances (default: recorded)")
    parser.add_argument("--course", type=Path, help="the folder with exercises/ and solutions/")
    parser.add_argument(
        "--trust-students",
        action="store_true",
        help="run students' code as you, with limits on resources alone",
    )
    limits = parser.add_argument_group("limits for each submission")
    limits.add_argument("--cell-seconds", type=_amount, metavar="S")
    limits.add_argument("--check-seconds", type=_amount, metavar="S")
    limits.add_argument("--memory-gib", type=_gib, metavar="GIB")
    options = parser.parse_args(arguments)

    root = find_root(options.course, ["exercises", "solutions"])
    here = slugs(root)
    wanted = here if options.assignment == "all" else [known(options.assignment, here)]
    return _run(root, wanted, options)


def _run(root: Path, wanted: Sequence[str], options: argparse.Namespace) -> int:
    # What loads nbgrader and others comes in here, so that --help and errors above are quick.
    from dlsys.grading.boxes.sandbox import Limits, SandboxError
    from dlsys.grading.commands.display import progress_on, summary
    from dlsys.grading.course.run import Plan, boxes, grade
    from dlsys.grading.reports import pdf
    from dlsys.grading.reports.everything import Reports, write_reports
    from dlsys.grading.result import NOT_GRADED

    exporters = _exporters(options.export)
    if options.pdf:
        pdf.browser()

    given = {
        "cell_seconds": options.cell_seconds,
        "check_seconds": options.check_seconds,
        "memory_bytes": options.memory_gib and int(options.memory_gib * 2**30),
    }
    limits = Limits(**{name: value for name, value in given.items() if value})
    reports: list[Reports] = []

    def finish(done: Class) -> None:
        made = write_reports(options.out, done, exporters)
        failed = pdf.print_new(options.out / "feedback", progress) if options.pdf else []
        reports.append(replace(made, failed=[*made.failed, *failed]))

    try:
        with progress_on(sys.stderr) as progress:
            result = grade(
                root,
                options.submissions,
                wanted,
                options.out,
                roster=options.roster,
                timestamps=options.timestamps,
                deadline=_deadline(options.due, options.late),
                plan=Plan(options.seed, options.trust_students, limits, options.jobs),
                progress=progress,
                opener=boxes,
                finish=finish,
            )
    except SandboxError as error:
        _say(f"dlsys-grade: {error}")
        return NO_SANDBOX
    summary(options.out, result, reports[0], sys.stdout)
    failed = any(grade.result.status == NOT_GRADED for grade in reports[0].grades)
    return SOME_NOT_GRADED if failed or reports[0].failed else OK


def _exporters(texts: Sequence[str]) -> dict[str, Exporter]:
    """The functions that `--export` names, each with a folder of its own; raises ValueError."""
    from dlsys.grading.course.plugins import load
    from dlsys.grading.reports.exporting import folder_of
    from dlsys.grading.reports.platforms import EXPORTERS

    taken = {*EXPORTERS, "feedback", "gone", "nbgrader", "records"}
    for text in texts:
        if folder_of(text) in taken:
            raise ValueError(f"--export {text}: there is another {folder_of(text)}/; rename yours.")
        taken.add(folder_of(text))
    return {text: load(text) for text in texts}


def _deadline(due: str | None, late: str | None) -> Callable[[Deadline], Deadline] | None:
    """What becomes of a recorded deadline: what is not given stays. None where nothing is given.

    Raises ValueError, also where it is called, for a rate without a due date.
    """
    if due is None and late is None:
        return None
    from dlsys.grading.course.late import policy
    from dlsys.grading.course.plugins import absolute, is_plugin
    from dlsys.grading.times import parse_due

    if late is not None:
        policy(late)
        late = absolute(late) if is_plugin(late) else late
    moment = None if due in (None, "none") else parse_due(str(due)).timestamp()

    def changed(before: Deadline) -> Deadline:
        when = before[0] if due is None else moment
        if when is None and late is not None:
            raise ValueError("--late needs --due: late after when? No due date is recorded.")
        if due == "none":
            return None, None
        return when, before[1] if late is None else late

    return changed


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1")
    return int(text)


def _amount(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")
    return number


def _gib(text: str) -> float:
    if _amount(text) < LEAST_GIB:
        raise argparse.ArgumentTypeError(
            f"{text} is less than {LEAST_GIB:g}, which Python with torch needs to start"
        )
    return _amount(text)


def _export(arguments: Sequence[str]) -> int:
    from dlsys.files import write
    from dlsys.grading.commands import export

    parser = argparse.ArgumentParser(
        allow_abbrev=False,
        prog="dlsys-grade export",
        description="Write what another place grades with: for Gradescope the autograder as a zip "
        "file (with solutions: for instructors alone), for GitHub Classroom the workflow of the "
        "repository that students start from. Or write the solutions as PDF.",
    )
    parser.add_argument("place", choices=["gradescope", "github", "solutions"])
    parser.add_argument("--assignment", required=True, metavar="SLUG")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    parser.add_argument("--course", type=Path, help="the folder with exercises/ and solutions/")
    parser.add_argument("--seed", type=int, help="gradescope: draws the hidden instances")
    parser.add_argument(
        "--repository", metavar="URL", help="github: the course without solutions, for git clone"
    )
    options = parser.parse_args(arguments)
    if options.place == "github" and not options.repository:
        parser.error("github needs --repository, the address of the course without solutions")
    needed = ["exercises"] if options.place == "github" else ["exercises", "solutions"]
    root = find_root(options.course, needed)
    slug = known(options.assignment, slugs(root))
    content: bytes | str
    if options.place == "gradescope":
        content = export.gradescope(root, slug, options.seed)
    elif options.place == "solutions":
        content = export.solutions(root, slug)
    else:
        content = export.github(root, slug, options.repository)
    write(options.out, content)
    print(f"Written: {options.out}")
    return OK


if __name__ == "__main__":
    sys.exit(main())
