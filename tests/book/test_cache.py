"""The book's extension: what is executed again, what is offered, and where solutions show."""

import json
from pathlib import Path

import pytest

pytest.importorskip("myst_nb", reason="the book's tools are not installed")

from nbformat.v4 import new_code_cell, new_notebook
from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace, patch_docutils

from dlsys.notebook.book.cache import fingerprint
from dlsys.notebook.book.dependencies import dependencies

CHAPTER = """---
jupytext:
  text_representation:
    extension: .md
    format_name: myst
kernelspec:
  display_name: Python 3
  name: python3
---

# Chapter {name}

About {{term}}`words <word>` and {{doc}}`/index`.

```{{code-cell}} ipython3
from {package} import {name}
open("{folder}/{name}.log", "a").write("x")
print("says", {name}.say())
```
"""

PACKAGE = {
    "__init__.py": "",
    "alpha/__init__.py": "from .plan import say\n",
    "alpha/plan.py": "def say():\n    from . import run\n    return run.word\n",
    "alpha/run.py": "from {package}.base import word\n",
    "alpha/lazy.py": "",
    "beta/__init__.py": "def say():\n    return 'beta'\n",
    "base.py": "word = 'first'\n",
    "broken.py": "this is no Python",
}


@pytest.fixture
def book(tmp_path, monkeypatch):
    """A book of two chapters about a package of two mechanisms."""
    package = tmp_path / "code" / "twomechanisms"
    for name, text in PACKAGE.items():
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("{package}", package.name))
    source = tmp_path / "book"
    (source / "chapters").mkdir(parents=True)
    (source / "index.md").write_text(
        "# Book\n\n```{glossary}\nword\n  What is said.\n```\n\n```{toctree}\nchapters/alpha\nchapters/beta\n```\n"
    )
    for name in ("alpha", "beta"):
        text = CHAPTER.format(package=package.name, name=name, folder=source / "chapters")
        (source / "chapters" / f"{name}.md").write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")  # a rewritten module is not of a new second
    monkeypatch.syspath_prepend(str(package.parent))
    return source, package


def build(source: Path, package: str = "dlsys", solutions: bool = False) -> Path:
    out = source / "_build" / ("instructor" if solutions else "html")
    settings = {
        "extensions": ["myst_nb", "sphinx_design", "dlsys.notebook.book"],
        "exclude_patterns": ["_build", "solutions"],
        "nb_execution_mode": "cache",
        "nb_execution_excludepatterns": ["exercises/*/*"],
        "nb_execution_cache_path": str(source / "_build" / "cache"),
        "book_package": package,
        "book_solutions": solutions,
        "html_theme": "basic",
        "html_static_path": ["_static"] if (source / "_static").exists() else [],
    }
    doctrees = str(out) + ".doctrees"
    with patch_docutils(), docutils_namespace():
        quiet = {"status": None, "warning": None, "warningiserror": True}
        app = Sphinx(str(source), None, str(out), doctrees, "html", settings, **quiet)
        app.build()
    assert app.statuscode == 0
    return out


def runs(source: Path) -> dict[str, int]:
    logs = source.joinpath("chapters").glob("*.log")
    return {log.stem: len(log.read_text()) for log in logs}


def test_a_change_in_the_package_runs_again_exactly_the_chapters_that_import_it(book):
    source, package = book

    html = build(source, package.name)
    assert runs(source) == {"alpha": 1, "beta": 1}
    assert "says first" in (html / "chapters/alpha.html").read_text()

    build(source, package.name)
    assert runs(source) == {"alpha": 1, "beta": 1}, "nothing changed, yet something ran"

    (package / "base.py").write_text("word = 'second'\n")
    build(source, package.name)
    assert runs(source) == {"alpha": 2, "beta": 1}
    assert "says second" in (html / "chapters/alpha.html").read_text()

    (package / "base.py").write_text("word = 'first'\n")
    build(source, package.name)
    assert runs(source) == {"alpha": 2, "beta": 1}, "the result of the older code is still known"
    assert "says first" in (html / "chapters/alpha.html").read_text()


def test_a_page_that_reads_the_folder_of_quizzes_runs_again_with_each(tmp_path):
    quizzes = tmp_path / "package" / "notebook" / "quizzes"
    quizzes.mkdir(parents=True)
    for name in ("page", "other"):
        (quizzes / f"{name}.json").write_text("[]")

    def prints() -> list[str]:
        codes = ['files("package.notebook").joinpath("quizzes")', 'quiz.show("page")']
        notebooks = [new_notebook(cells=[new_code_cell(code)]) for code in codes]
        path = tmp_path / "page.md"
        return [fingerprint(path, each, tmp_path / "package") for each in notebooks]

    first = prints()
    (quizzes / "other.json").write_text("[1]")
    second = prints()
    (quizzes / "page.json").write_text("[1]")
    assert [a == b for a, b in zip(first, second, strict=True)] == [False, True]
    assert [a == b for a, b in zip(second, prints(), strict=True)] == [False, False]


def test_a_change_of_style_alone_reaches_the_pages_and_runs_nothing(book):
    source, package = book
    (source / "_static").mkdir()
    (source / "_static" / "look.css").write_text("p { color: red }")
    html = build(source, package.name)
    (source / "_static" / "look.css").write_text("p { color: blue }")
    build(source, package.name)
    assert "blue" in (html / "_static" / "look.css").read_text()
    assert runs(source) == {"alpha": 1, "beta": 1}


def test_the_notebook_beside_a_page_holds_its_cells_and_no_outputs(book):
    source, package = book
    html = build(source, package.name)
    assert 'href="alpha.ipynb"' in (html / "chapters/alpha.html").read_text()
    notebook = json.loads((html / "chapters/alpha.ipynb").read_text())
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert "say()" in "".join(code[0]["source"])
    assert not code[0]["outputs"]
    assert "About words and /index." in "".join(notebook["cells"][0]["source"])
    assert "fingerprint" not in json.dumps(notebook)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("from pkg.alpha.plan import say", {"alpha/__init__", "alpha/plan", "alpha/run", "base"}),
        (
            "import pkg.alpha as a",
            {"alpha/__init__", "alpha/plan", "alpha/run", "alpha/lazy", "base"},
        ),
        ("def f():\n    from pkg import base", {"base"}),
        ("%matplotlib inline\nimport pkg.beta", {"beta/__init__"}),
        ("import numpy", set()),
        ("import pkg.broken", {"broken"}),
        ("this is no Python", set()),
    ],
)
def test_dependencies_are_followed_through_functions_and_relative_imports(tmp_path, code, expected):
    package = tmp_path / "pkg"
    for name, text in PACKAGE.items():
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("{package}", "pkg"))
    found = dependencies([code], package)
    names = {path.relative_to(package).with_suffix("").as_posix() for path in found}
    assert names - {"__init__"} == expected


@pytest.fixture
def exercise(tmp_path):
    """A book of one exercise with its solution."""

    def code(name, text, **grading):
        metadata = {"nbgrader": {"grade_id": name, **grading}}
        empty = {"cell_type": "code", "execution_count": None, "outputs": []}
        return empty | {"id": name, "metadata": metadata, "source": text}

    def write(path, text):
        question = code("question", text, solution=True, grade=False)
        check = code("check", "same(double(2), 4)", solution=False, grade=True)
        metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
        metadata["language_info"] = {"name": "python", "pygments_lexer": "ipython3"}
        title = {"cell_type": "markdown", "id": "t", "metadata": {}, "source": "# Exercises"}
        notebook = {"nbformat": 4, "nbformat_minor": 5, "metadata": metadata}
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(notebook | {"cells": [title, question, check]}))

    write(tmp_path / "exercises/sums/sums.ipynb", "def double(x):\n    ...")
    answer = "def double(x):\n    ### BEGIN SOLUTION\n    return x + x\n    ### END SOLUTION"
    write(tmp_path / "solutions/sums/sums.ipynb", answer)
    toctree = "```{toctree}\nexercises/sums/sums\n```\n"
    (tmp_path / "index.md").write_text(f"# Book\n\n{toctree}")
    return tmp_path


def everything(folder: Path) -> str:
    return "".join(
        p.read_text() for p in folder.rglob("*") if p.suffix in {".html", ".ipynb", ".js"}
    )


def test_solutions_show_in_the_instructors_book_and_nowhere_else(exercise):
    for _ in range(2):  # the second time from what the other build may have left behind
        students = build(exercise)
        instructors = build(exercise, solutions=True)
    text = everything(students)
    assert "return x" not in text
    assert "SOLUTION" not in text
    page = (instructors / "exercises/sums/sums.html").read_text()
    assert page.count("<details") == 2
    assert "SOLUTION" not in page
    assert page.count("return") == 1


def test_the_check_of_a_question_with_its_hints_is_folded_on_the_page(exercise):
    page = (build(exercise) / "exercises/sums/sums.html").read_text()
    assert page.count("<details") == 1
    assert "Show the check" in page
