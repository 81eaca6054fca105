"""What other places grade with: an autograder for Gradescope, a workflow for GitHub Classroom. And
the solutions on paper.
"""

from __future__ import annotations

import base64
import html
import io
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

from dlsys.grading.assignment import load, slugs

_TEMPLATES = Path(__file__).parent / "templates"
_DATE = (1980, 1, 1, 0, 0, 0)  # the first that a zip file can hold
_PROJECT = ("pyproject.toml", "constraints.txt", "README.md", "LICENSE", "LICENSE-text")
_MATH = re.compile(r"(`+)(?s:.*?)\1|(?<!\$)\$(?P<math>[^\s$`]|[^\s$`][^$`]*[^\s$`])\$(?![\d$])")
_REPOSITORY = re.compile(r"(?:https://|ssh://|git@)[\w.@:/~+-]+")


def gradescope(root: Path, slug: str, seed: int | None = None) -> bytes:
    """The autograder of an assignment as the zip file that Gradescope takes.

    It holds solutions and hidden checks: it is for instructors. Every student gets the same hidden
    instances, those of `seed`; None takes one that follows from the assignment, solutions included.
    The same project gives the same bytes. Raises ValueError where the assignment is not right.
    """
    assignment = load(root, slug)
    if seed is None:
        seed = int(assignment.digest[:8], 16)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("setup.sh", "run_autograder"):
            _add(archive, name, _filled(name, {"SLUG": slug, "SEED": str(seed)}), executable=True)
        for path in _course_files(root, slug):
            _add(archive, f"course/{path.relative_to(root).as_posix()}", path.read_bytes())
    return file.getvalue()


def _course_files(root: Path, slug: str) -> Iterator[Path]:
    """The files that installing the package and grading one assignment need: of the others, the
    released notebooks, by which one that was handed in here by mistake is known."""
    folders = [root / "dlsys", root / "exercises" / slug, root / "solutions" / slug]
    paths = [root / name for name in _PROJECT if (root / name).is_file()]
    paths += [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    paths += [root / "exercises" / each / f"{each}.ipynb" for each in slugs(root)]
    for path in sorted({*paths}):
        parts = path.relative_to(root).parts
        if not any(part.startswith(".") or part == "__pycache__" for part in parts):
            yield path


def _add(archive: zipfile.ZipFile, name: str, content: bytes, executable: bool = False) -> None:
    entry = zipfile.ZipInfo(name, _DATE)
    entry.create_system = 3  # Unix, on every system: the mode counts
    entry.external_attr = (0o100755 if executable else 0o100644) << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(entry, content)


def github(root: Path, slug: str, repository: str) -> str:
    """The workflow `.github/workflows/classroom.yml` for the repository that students start from.

    repository: address of the course as students may read it, so without solutions/

    It checks the notebook at every push, by the checks that students see. Raises ValueError.
    """
    if not _REPOSITORY.fullmatch(repository):
        raise ValueError(
            f"{repository!r} is no address of a repository; write for example "
            "https://github.com/NAME/COURSE.git."
        )
    load(root, slug, solutions=False)
    return _filled("classroom.yml", {"SLUG": slug, "REPOSITORY": repository}).decode()


def solutions(root: Path, slug: str) -> bytes:
    """The notebook with the solutions of an assignment as PDF; raises ValueError."""
    import nbformat
    from nbconvert import HTMLExporter

    from dlsys.grading.reports.pdf import printer

    path = root / "solutions" / slug / f"{slug}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "markdown":  # a page without scripts has no MathJax
            cell.source = _MATH.sub(_drawn, cell.source)
    with printer() as printed:
        return printed(HTMLExporter().from_notebook_node(notebook)[0])


def _drawn(found: re.Match[str]) -> str:
    """A formula as an image; as it is in code, and where there is no Matplotlib that draws it."""
    tex = found["math"]
    if tex is None:
        return found[0]
    file = io.BytesIO()
    try:
        from matplotlib.mathtext import math_to_image

        deep = math_to_image(f"${' '.join(tex.split())}$", file, format="svg")
    except (ImportError, ValueError):
        return found[0]
    image = base64.b64encode(file.getvalue()).decode()
    words = html.escape(tex).replace("|", "&#124;")
    style = f"vertical-align: -{deep}pt"
    return f'<img src="data:image/svg+xml;base64,{image}" alt="{words}" style="{style}">'


def _filled(name: str, values: dict[str, str]) -> bytes:
    """A template with the names between @ signs replaced."""
    text = (_TEMPLATES / name).read_text(encoding="utf-8")
    for key, value in values.items():
        text = text.replace(f"@{key}@", value)
    return text.encode()
