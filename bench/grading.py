"""How fast a class is graded, each figure beside another of the same run.

    python bench/grading.py                      twenty right notebooks: about two minutes
    python bench/grading.py 300 --broken 0.1     a large class, a tenth of it broken or hostile
    python bench/grading.py 20 --slug collectives --without-nbgrader

What a notebook's own code takes is measured by running its cells and the expressions of its checks
in this process. What the grader takes beyond it is the time from the first submission to
the last, divided by their number, less that.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from dlsys.grading.assignment import load  # noqa: E402
from dlsys.grading.boxes.sandbox import Limits  # noqa: E402
from dlsys.grading.course.run import Plan, boxes, grade  # noqa: E402
from dlsys.grading.reports.everything import write_reports  # noqa: E402
from tests.exercises.notebooks import code_cells, execute, new_namespace  # noqa: E402
from tests.grading.attacks import Attack, cell  # noqa: E402

# What a broken submission has in the place of its first answer; None: a file cut in half.
BROKEN = (
    None,
    "raise RuntimeError",
    "def f(:",
    "import os\nos._exit(1)",
    "while True:\n    pass",
    "kept = []\nwhile True:\n    kept.append(b'x' * (64 << 20))",
)
MOST_OF_NBGRADER = 20


def write_class(folder: Path, slug: str, number: int, broken: float) -> None:
    """Right notebooks, no two of them equal, and evenly among them the broken ones."""
    first = load(ROOT, slug).questions[0].id
    solved = Attack("solved", slug).notebook()
    right = "".join(cell(solved, first)["source"])
    failed = 0
    for student in range(number):
        breaks = int((student + 1) * broken) > failed
        source = BROKEN[failed % len(BROKEN)] if breaks else f"{right}\n# student {student}"
        failed += breaks
        cell(solved, first)["source"] = source if source is not None else right
        text = json.dumps(solved)
        path = folder / f"student-{student:03}" / slug / f"{slug}.ipynb"
        path.parent.mkdir(parents=True)
        path.write_text(text if source is not None else text[: len(text) // 2], encoding="utf-8")


def compute_seconds(slug: str, repeats: int = 5) -> float:
    """What the cells of a right notebook take, and the expressions of its checks, in a process
    that has everything imported and, as a box, one thread."""
    import torch

    torch.set_num_threads(1)
    cells = code_cells(Attack("solved", slug).notebook())
    checks = {f"{each.id}-test": each.checks for each in load(ROOT, slug).questions}
    times = []
    for _ in range(repeats + 1):
        namespace = new_namespace()
        begin = time.perf_counter()
        for each in cells:
            if each.id not in checks:
                execute(each, namespace)
            for check in checks.get(each.id, ()):
                eval(check.expression, namespace)
        times.append(time.perf_counter() - begin)
    return statistics.median(times[1:])


def grader(folder: Path, slug: str, jobs: int, limits: Limits) -> tuple[float, float, float]:
    """Seconds until the first submission is begun, from there to the last, and for reports."""
    out = folder / f"grades-of-{jobs}"
    begun = time.perf_counter()
    marks = {"first": begun, "last": begun, "reports": begun}

    @contextlib.contextmanager
    def opener(plan, assignments, progress):  # type: ignore[no-untyped-def]
        with boxes(plan, assignments, progress) as examiner:
            marks["first"] = time.perf_counter()
            yield examiner

    def progress(done: int, of: int, what: str) -> None:
        marks["last"] = time.perf_counter()

    def finish(result) -> None:  # type: ignore[no-untyped-def]
        begin = time.perf_counter()
        write_reports(out, result)
        marks["reports"] = time.perf_counter() - begin

    grade(
        ROOT,
        folder / "submitted",
        [slug],
        out,
        plan=Plan(seed=0, limits=limits, jobs=jobs),
        progress=progress,
        opener=opener,
        finish=finish,
    )
    return marks["first"] - begun, marks["last"] - marks["first"], marks["reports"]


def nbgrader_seconds(folder: Path, slug: str, number: int) -> float:
    """What `nbgrader autograde` takes for one of the first submissions of the same folder."""
    course = folder / "nbgrader"
    source = course / "source" / slug / f"{slug}.ipynb"
    source.parent.mkdir(parents=True)
    source.write_bytes((ROOT / "solutions" / slug / f"{slug}.ipynb").read_bytes())
    (course / "submitted").mkdir()
    for path in sorted((folder / "submitted").iterdir())[:number]:
        (course / "submitted" / path.name).symlink_to(path)
    settings = ["--CourseDirectory.root=.", "--log-level=ERROR"]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # nbgrader runs alembic
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PATH": path}

    def run(*words: str) -> float:
        command = [sys.executable, "-m", "nbgrader", *words, *settings]
        begin = time.perf_counter()
        subprocess.run(command, cwd=course, env=environment, capture_output=True, check=True)
        return time.perf_counter() - begin

    run("generate_assignment", slug)
    return run("autograde", slug) / number


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("number", type=int, nargs="?", default=20)
    parser.add_argument("--slug", default="memory_wall")
    parser.add_argument("--broken", type=float, default=0.0, metavar="SHARE")
    parser.add_argument("--without-nbgrader", action="store_true")
    options = parser.parse_args()
    number, slug = options.number, options.slug
    limits = Limits(cell_seconds=5, check_seconds=5, memory_bytes=2 << 30)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_class(folder / "submitted", slug, number, options.broken)
        compute = compute_seconds(slug)
        print(f"a notebook's own code       {compute:6.2f} s")
        alone = 0.0
        for jobs in (1, 2):
            start, whole, reports = grader(folder, slug, jobs, limits)
            each = whole / number
            alone = alone or whole
            more = f"{each - compute:.2f} s beyond its own" if jobs == 1 else ""
            more = more or f"{alone / whole:.2f} times as fast as with one"
            print(f"graded, {jobs} at a time        {each:6.2f} s for each, {more}")
        print(f"once: start {start:.1f} s, reports for all {reports:.1f} s")
        if not options.without_nbgrader and not options.broken:
            some = min(number, MOST_OF_NBGRADER)
            plain = nbgrader_seconds(folder, slug, some)
            ratio = plain / (alone / number)
            print(f"nbgrader autograde          {plain:6.2f} s for each, {ratio:.1f} times one job")


if __name__ == "__main__":
    main()
