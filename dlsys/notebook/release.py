"""Make what students receive from what instructors write: exercises/ from solutions/.

`python -m dlsys.notebook.release` runs nbgrader's own generate_assignment (solutions, hidden tests
and outputs go; test cells are locked and get their checksums) and writes the result the same way
each time. With `--check` it writes nothing and fails where exercises/ is out of step. With `--run`
it first runs the solutions and stores their outputs, which `pytest --nbval solutions` compares.
"""

import argparse
import json
import logging
import re
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from dlsys.files import write
from dlsys.notebook.fold import fold
from dlsys.notebook.measuring import measured_amiss

# A comment and no error: an answer then stays at `...`, and a function, whose docstring is its
# whole body, gives None. `same` knows both and says "not answered yet".
STUB = "# YOUR ANSWER HERE"
HIDDEN = re.compile(r"### BEGIN HIDDEN TESTS\n(.*?)### END HIDDEN TESTS", re.S)


def release(solutions: Path, slugs: list[str]) -> dict[str, str]:
    """The text of the released notebook for each slug, made from solutions/<slug>/<slug>.ipynb.

    Nothing is written into the tree: nbgrader works in a temporary folder, without its database.
    Raises ValueError where two text cells of a notebook begin with the same heading, or a check
    would measure what it cannot see.
    """
    for slug in slugs:
        _check_headings(solutions / slug / f"{slug}.ipynb")
    from nbgrader.converters import GenerateAssignment
    from nbgrader.coursedir import CourseDirectory
    from traitlets.config import Config

    released = {}
    with tempfile.TemporaryDirectory() as folder:
        config = Config()
        config.CourseDirectory.root = folder
        config.ClearSolutions.code_stub = {"python": STUB}
        config.GenerateAssignment.no_database = True
        config.SaveCells.enabled = False
        for slug in slugs:
            shutil.copytree(solutions / slug, Path(folder, "source", slug))
            config.CourseDirectory.assignment_id = slug
            converter = GenerateAssignment(coursedir=CourseDirectory(config=config), config=config)
            converter.log.setLevel(logging.ERROR)
            converter.start()
            text = Path(folder, "release", slug, f"{slug}.ipynb").read_text(encoding="utf-8")
            released[slug] = as_text(json.loads(text))
            written = json.loads((solutions / slug / f"{slug}.ipynb").read_text(encoding="utf-8"))
            if amiss := _measured_amiss(json.loads(text), written):
                raise ValueError(f"{slug}: {amiss}")
    return released


def _check_headings(path: Path) -> None:
    """Each heading once: a cell that has lost its name is known by it when it is graded."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    texts = ["".join(cell["source"]).strip() for cell in cells if cell["cell_type"] == "markdown"]
    headings = [text.partition("\n")[0].rstrip() for text in texts if text.startswith("#")]
    twice = [heading for heading, times in Counter(headings).items() if times > 1]
    if twice:
        raise ValueError(f"{path} has the heading {twice[0]!r} twice; give each cell its own.")


def _measured_amiss(released: dict[str, Any], written: dict[str, Any]) -> str | None:
    """What is wrong with how a notebook measures; the hidden checks are in what was `written`."""

    def sources(notebook: dict[str, Any], *role: bool) -> list[str]:
        return [
            "".join(cell["source"])
            for cell in notebook["cells"]
            for flags in [cell["metadata"].get("nbgrader", {})]
            if cell["cell_type"] == "code"
            and tuple(flags.get(name) for name in ("solution", "grade")) == role
        ]

    return measured_amiss(
        sources(released, False, False),
        sources(released, True, False),
        sources(written, False, True),
    )


def unhidden(path: Path) -> list[str]:
    """The ids of the test cells of a notebook that have points and no hidden check.

    What stands in the notebook can be known by heart, and a seal can be tried.
    """
    found = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        role = cell["metadata"].get("nbgrader", {})
        is_test = cell["cell_type"] == "code" and role.get("grade") and not role.get("solution")
        hidden = HIDDEN.findall("".join(cell["source"]))
        if is_test and role.get("points") and not any("same(" in each for each in hidden):
            found.append(role["grade_id"])
    return found


def run(path: Path) -> None:
    """Run a notebook in its folder and store its outputs; raises where a cell fails."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    place = {"metadata": {"path": str(path.parent)}}
    NotebookClient(notebook, timeout=120, record_timing=False, resources=place).execute()
    write(path, as_text(json.loads(nbformat.writes(notebook))))


def settle_cells(path: Path) -> bool:
    """Give the cells of a notebook nbgrader's ids, and fold checks and helpers; whether that
    changed it. An author can only set nbgrader's ids and tags, and grading knows cells by theirs.
    """
    before = path.read_text(encoding="utf-8")
    notebook = json.loads(before)
    for cell in notebook["cells"]:
        cell["id"] = cell["metadata"].get("nbgrader", {}).get("grade_id", cell["id"])
        fold(cell)
    after = as_text(notebook)
    if after != before:
        write(path, after)
    return after != before


def as_text(notebook: dict[str, Any]) -> str:
    """A notebook's JSON in the one form it is stored in, without times, versions and chance."""
    for cell in notebook["cells"]:
        cell["metadata"].pop("execution", None)  # times
        if cell["cell_type"] == "code":
            cell["outputs"] = _joined(cell["outputs"])
    notebook["metadata"].pop("widgets", None)
    notebook["metadata"]["language_info"] = {"name": "python"}
    return json.dumps(notebook, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def _joined(outputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The outputs with what was printed in one piece: where a kernel cuts it is chance."""
    joined: list[dict[str, Any]] = []
    for output in outputs:
        last = joined[-1] if joined else {}
        if output["output_type"] == "stream" and last.get("name") == output["name"]:
            last["text"] = [*last["text"], *output["text"]]
        else:
            joined.append(output)
    return joined


def main(arguments: list[str] | None = None) -> int:
    """Release every folder of solutions/, or check that exercises/ is what a release gives."""
    parser = argparse.ArgumentParser(prog="python -m dlsys.notebook.release", description=__doc__)
    parser.add_argument("--root", type=Path, default=Path(), help="the project's folder")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if out of step")
    parser.add_argument("--run", action="store_true", help="run the solutions first")
    options = parser.parse_args(arguments)
    solutions, exercises = options.root / "solutions", options.root / "exercises"
    slugs = sorted(path.parent.name for path in solutions.glob("*/*.ipynb"))
    if not slugs:
        print(f"There is no notebook in {solutions.resolve()}.", file=sys.stderr)
        return 1
    shown = [(path, name) for path in solutions.glob("*/*.ipynb") for name in unhidden(path)]
    for path, name in sorted(shown):
        print(
            f"{path}: {name} has points and no hidden check. Put one between ### BEGIN HIDDEN "
            "TESTS and ### END HIDDEN TESTS, of another instance than the notebook shows.",
            file=sys.stderr,
        )
    if shown:
        return 1
    for slug in slugs if options.run else []:
        run(solutions / slug / f"{slug}.ipynb")
    targets = {slug: exercises / slug / f"{slug}.ipynb" for slug in slugs}
    strangers = sorted(set(exercises.glob("*/*.ipynb")) - set(targets.values()))
    changed = []
    for slug in () if options.check else slugs:
        if settle_cells(path := solutions / slug / f"{slug}.ipynb"):
            print(f"wrote {path}: its cells have nbgrader's ids, and helpers are folded")
    try:
        released = release(solutions, slugs)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    for slug, text in released.items():
        target = targets[slug]
        if target.exists() and target.read_text(encoding="utf-8") == text:
            continue
        changed.append(target)
        if not options.check:
            write(target, text)
    for path in strangers:
        print(f"{path} has no solution; remove it.", file=sys.stderr)
    for path in changed:
        print(f"{path} is out of step: run make release" if options.check else f"wrote {path}")
    if not changed:
        print(f"{len(targets)} exercise notebooks are in step with their solutions.")
    return 1 if strangers or (options.check and changed) else 0


if __name__ == "__main__":
    sys.exit(main())
