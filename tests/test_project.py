"""The project's layout: one slug names a chapter everywhere, and the parts stay as independent as promised."""

import importlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, metadata, requires
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.book.quizzes import contract as quizzes
from tests.contents import CHAPTERS, CONTENTS, MORE, ROOT, SLUGS
from tests.exercises import contract as exercises

PACKAGE = ROOT / "dlsys"


def tracked() -> list[Path]:
    """Every file of the project that belongs to it; all files where it is no git checkout."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if listing.returncode:
        pytest.skip("not a git checkout")
    paths = [ROOT / line for line in listing.stdout.splitlines()]
    return [path for path in paths if path.is_file()]


def pieces(slug: str) -> list[str]:
    """What a chapter consists of."""
    return [
        f"dlsys/{slug}/__init__.py",
        f"chapters/{slug}.md",
        f"reference/{slug}.md",
        f"dlsys/notebook/quizzes/{slug}.json",
        f"exercises/{slug}/{slug}.ipynb",
        f"solutions/{slug}/{slug}.ipynb",
        f"tests/mechanisms/test_{slug}.py",
        f"tests/exercises/test_{slug}.py",
        f"tests/exercises/wrong_answers/{slug}.py",
        f"tests/book/quizzes/test_{slug}.py",
    ]


@pytest.mark.parametrize("slug", SLUGS)
def test_a_chapter_has_its_package_exercises_solutions_and_tests_under_one_name(slug):
    missing = [piece for piece in pieces(slug) if not (ROOT / piece).is_file()]
    if f"exercises/{slug}/{slug}" not in CONTENTS:
        missing.append(f"exercises/{slug}/{slug} in _toc.yml")
    assert missing == []


def test_nothing_is_left_over_from_a_chapter_that_the_table_of_contents_does_not_name():
    elsewhere = {"contract", "conftest", "__init__", *SLUGS}
    elsewhere |= {"same", "structure", "folded", "disk", "points"}  # tests of what exercises share
    elsewhere |= {"shown"}  # of what quizzes share
    found = {
        slug: str(path.relative_to(ROOT))
        for place in (*pieces("*")[3:6], *pieces("*")[7:])
        for path in ROOT.glob(place)
        if (slug := path.stem.removeprefix("test_")) not in elsewhere
    }
    assert found == {}
    assert {path.stem for path in (ROOT / "chapters").glob("*.md")} == set(CHAPTERS)


def test_a_page_with_more_on_a_chapter_stands_between_it_and_the_next_one():
    assert [page for page in CHAPTERS if page.endswith("_more")] == MORE
    for page in MORE:
        slug = page.removesuffix("_more")
        before = CHAPTERS[CHAPTERS.index(page) - 1]
        assert before == slug, f"{page} stands below {before} in _toc.yml"
        assert f"{{doc}}`{page}`" in (ROOT / "chapters" / f"{slug}.md").read_text("utf-8")


def standard_library_only() -> list[str]:
    """The modules that promise to need nothing but Python: what lies below collectives, every plan, price and explorer."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    (layers,) = [c["layers"] for c in settings["contracts"] if c.get("containers") == ["dlsys"]]
    below = re.findall(r"\w+", " ".join(layers[layers.index("collectives | tensors") + 1 :]))
    files = [PACKAGE / "__init__.py"]
    files += [
        path for name in ("plan", "price", "explorer") for path in PACKAGE.glob(f"**/{name}.py")
    ]
    for name in below:
        files += [*PACKAGE.glob(f"{name}.py"), *PACKAGE.glob(f"{name}/*.py")]
    names = {".".join(path.relative_to(ROOT).with_suffix("").parts) for path in files}
    assert {"dlsys.units", "dlsys.lazy", "dlsys.transformer.spec"} < names
    names -= {"dlsys.composing_axes.explorer"}  # prices plans by the thousand, in NumPy
    return sorted(name.removesuffix(".__init__") for name in names)


BY_ITSELF = """import ast, dataclasses, fractions, inspect, os, random, statistics, sys, traceback, typing
sys.path.insert(0, sys.argv[1])
for module in sys.argv[2:]:
    if os.fork() == 0:
        try:
            __import__(module)
            if module.endswith(".explorer"):
                choice = sys.modules[module].explore().choice
                assert choice.rows() and choice.summary()
            os._exit(0)
        except BaseException:
            print(module, flush=True)
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
    os.wait()
"""


@pytest.fixture(scope="module")
def not_loaded() -> tuple[list[str], str]:
    """Of these modules, each loaded by itself, those that cannot be, and why."""
    # -S: the interpreter cannot even see installed packages, so an import of one would fail.
    command = [sys.executable, "-I", "-S", "-c", BY_ITSELF, str(ROOT), *standard_library_only()]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout.split(), done.stderr


@pytest.mark.parametrize("module", standard_library_only())
def test_plans_prices_and_facts_load_and_explorers_answer_without_any_installed_package(
    module, not_loaded
):
    assert module not in not_loaded[0], not_loaded[1]


def test_importing_the_package_loads_hardly_anything():
    program = (
        "import sys; before = set(sys.modules); import dlsys; print(*sys.modules.keys() - before)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    loaded = done.stdout.split()
    assert "dlsys" in loaded
    assert len(loaded) < 20, f"import dlsys also loads {loaded}"


def test_no_file_names_a_place_on_somebodys_machine():
    # /home/student is in a box that students' code runs in, on every machine.
    places = re.compile(rb"(?<![\w.])/(?:home(?!/student\b)|root|Users|work|mnt)/\w|[A-Z]:\\Users")
    found = {
        str(path.relative_to(ROOT)): match.group()
        for path in tracked()
        if "vendor" not in path.parts and (match := places.search(path.read_bytes()))
    }
    assert found == {}


def test_nothing_is_left_to_do_in_package_and_chapters():
    unfinished = re.compile("TO" + "DO|FIX" + "ME|XX" + "X|NotImplemented" + "Error")
    folders = (PACKAGE, ROOT / "chapters", ROOT / "solutions")
    files = [path for path in tracked() if any(folder in path.parents for folder in folders)]
    texts = {p: p.read_text("utf-8") for p in files if p.suffix in {".py", ".md", ".ipynb"}}
    assert [str(p.relative_to(ROOT)) for p, text in texts.items() if unfinished.search(text)] == []


def test_links_between_the_documents_of_the_project_lead_somewhere():
    link = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)")
    documents = [path for path in tracked() if path.suffix == ".md"]
    dead = [
        f"{path.relative_to(ROOT)}: {target}"
        for path in documents
        for target in link.findall(path.read_text("utf-8"))
        if not any((path.parent / (target + suffix)).exists() for suffix in ("", ".md", ".ipynb"))
    ]
    assert dead == []


def requirements(name: str) -> list[str]:
    """What an installed package requires; of mutmut, which `make mutants` alone installs, nothing may be known."""
    try:
        return requires(name) or []
    except PackageNotFoundError:
        assert name == "mutmut"
        return []


def test_every_package_that_an_installation_brings_is_pinned():
    constraints = (ROOT / "constraints.txt").read_text("utf-8")
    pinned = {
        canonicalize_name(line.split("==")[0]) for line in constraints.splitlines() if "==" in line
    }
    extras = ("", *metadata("dlsys").get_all("Provides-Extra"))
    waiting, needed = [("dlsys", extra) for extra in extras], set()
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) in needed:
            continue
        needed.add((name, extra))
        if name == "torch":  # names the exact versions of its accelerators' libraries itself
            continue
        for text in requirements(name):
            required = Requirement(text)
            if required.marker is None or required.marker.evaluate({"extra": extra}):
                waiting += [(canonicalize_name(required.name), e) for e in ("", *required.extras)]
    assert {name for name, _ in needed} - pinned == {"dlsys"}


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_a_missing_or_too_old_python_gets_a_sentence(tmp_path):
    for name in ("Makefile", "pyproject.toml", "constraints.txt", "_config.yml", "_toc.yml"):
        shutil.copy(ROOT / name, tmp_path)
    old = tmp_path / "python"
    old.write_text("#!/bin/sh\nexit 1  # as `sys.exit(sys.version_info < (3, 11))` in an old one\n")
    old.chmod(0o755)
    for python in (old, tmp_path / "nowhere"):
        done = subprocess.run(
            ["make", "test", f"PYTHON={python}"], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode
        assert "This book needs Python 3.11 or later" in done.stderr


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_a_files_name_is_a_name_to_make_and_a_file_that_comes_goes_or_changes_is_seen(tmp_path):
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name in ("chapters", "exercises", "dlsys"):
        (tmp_path / name).mkdir()
    listed = tmp_path / "_build" / "files"

    def seen() -> bool:
        before = listed.stat().st_mtime_ns if listed.exists() else 0
        subprocess.run(["make", "-s", "_build/files"], cwd=tmp_path, check=True)
        return listed.stat().st_mtime_ns != before

    strange = tmp_path / "exercises" / "x';touch RAN;'$(touch RAN)`touch RAN` a.ipynb"
    strange.touch()
    assert [seen(), seen()] == [True, False]
    assert not (tmp_path / "RAN").exists()
    assert listed.read_text() == f"exercises/{strange.name}\n"
    later = listed.stat().st_mtime_ns + 10**9
    os.utime(strange, ns=(later, later))
    assert seen()
    strange.unlink()
    assert seen()
    assert not seen()


def _index(folder: Path, version: str) -> str:
    """A package index with one build of torch, and nothing in that."""
    place = folder / version / "torch"
    place.mkdir(parents=True)
    wheel, info = f"torch-{version}-py3-none-any.whl", f"torch-{version}.dist-info"
    with ZipFile(place / wheel, "w") as archive:
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n"
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    (place / "index.html").write_text(f'<a href="{wheel.replace("+", "%2B")}">{wheel}</a>')
    return place.parent.as_uri()


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_a_smaller_build_of_torch_is_installed_by_a_word(tmp_path):
    version = re.search(r"^torch==(\S+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)[1]
    usual, small = _index(tmp_path, version), _index(tmp_path, f"{version}+cpu")
    told = subprocess.run(
        ["make", "--dry-run", "--always-make", ".venv/installed", f"TORCH={small}"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    [line] = [line for line in told.stdout.splitlines() if "--editable" in line]
    options = shlex.split(line.rpartition(" install ")[2].partition(" --no-compile")[0])
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "torch", "--no-deps", *options,
         "--index-url", usual, "--dest", tmp_path / "here"],
        cwd=ROOT, env={**os.environ, "PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": ""}, check=True,
    )  # fmt: skip
    assert [file.name for file in (tmp_path / "here").iterdir()] == [
        f"torch-{version}+cpu-py3-none-any.whl"
    ]


def test_every_command_of_the_makefile_is_explained():
    makefile = (ROOT / "Makefile").read_text("utf-8")
    commands = re.search(r"^\.PHONY: (.*)", makefile, re.MULTILINE).group(1).split()
    explained = re.findall(r"@echo 'make (\w+)", makefile)
    assert set(commands) - {"help", "FORCE"} == set(explained)


@pytest.mark.parametrize("slug", SLUGS)
def test_an_exercise_and_a_quiz_are_held_to_what_holds_for_all_of_them(slug):
    """A class of a contract that a file does not take over would leave its notebook untried."""
    for folder, contract in (
        (
            "exercises",
            (exercises.Form, exercises.Draws, exercises.WrongAnswers, exercises.Structure),
        ),
        ("book.quizzes", (quizzes.Quiz,)),
    ):
        module = importlib.import_module(f"tests.{folder}.test_{slug}")
        tests = [each for name, each in vars(module).items() if name.startswith("Test")]
        left_out = [part for part in contract if not any(issubclass(t, part) for t in tests)]
        assert left_out == [], f"{module.__name__} takes over no {left_out}"
