"""The reference has every public name, with its source, and cells and words lead there."""

import ast
import importlib
import re
import sys
from html import unescape
from pathlib import Path
from urllib.parse import urldefrag

import jupytext
import pytest

pytest.importorskip("myst_nb", reason="the book's tools are not installed")

from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace, patch_docutils

from dlsys.lazy import _listed
from dlsys.notebook.book.dependencies import parse
from dlsys.notebook.book.names import linked, written
from tests.book.conftest import unavailable
from tests.book.test_cache import CHAPTER
from tests.contents import ROOT, SLUGS

SITE = ROOT / "_build" / "html"
PACKAGES = [
    path.parent
    for path in sorted((ROOT / "dlsys").rglob("__init__.py"))
    if list(_listed(ast.parse(path.read_text("utf-8")))) and "notebook" not in path.parts
]
HIDDEN = {"remove-cell", "remove-input"}
TARGET = re.compile(r'<a [^>]*href="([^"]*)"')

LAZY = """from typing import TYPE_CHECKING

from dlsys import lazy

if TYPE_CHECKING:
    from PACKAGE.mechanism.plan import KINDS, Plan, Unit, build

lazy.exports(__name__)
"""
PLAN = '''"""Plans."""
from typing import NamedTuple

KINDS = {"a": 1}
"""What there `is`."""
_HIDDEN = 3
INNER = 4

class Unit(NamedTuple):
    """A unit."""
    size: int

class Plan:
    """A plan of *all* |x|_1, as `build` makes it,
    - units: of `Unit`, more of
      them
    and no more.

        plan = build(2)
        plan.check(*args, `x`)
    """

    def check(self) -> None:
        """Raise where it is wrong."""

def build(number: int, near: "Near | None" = None) -> Plan:
    """Build a `Plan`s' list.

    number, other: of units,
        counted
    near: another
    """
    return Plan()

class Near:
    """Not public."""
'''
CELLS = (
    """from PACKAGE.mechanism import build, missing
from PACKAGE.mechanism.plan import Plan as P
import PACKAGE.mechanism as m
"é"; build(2), P.check, m.KINDS["build"], m.missing, missing
""",
    """def f(Unit): return Unit
build = build(3)
build
""",
)
WORDS = "`build(2)`, `Plan.check`, `m.KINDS`, `Unit`, `missing`, `other.Plan`, `Plan is`, `INNER`"


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> tuple[Path, str]:
    """A book of one chapter and the reference of one mechanism."""
    folder = tmp_path_factory.mktemp("reference")
    package = "publicnames"
    mechanism = folder / package / "mechanism"
    mechanism.mkdir(parents=True)
    (folder / package / "__init__.py").write_text("")
    (mechanism / "__init__.py").write_text(
        f'"""A mechanism."""\n{LAZY}'.replace("PACKAGE", package)
    )
    (mechanism / "plan.py").write_text(PLAN)
    source = folder / "book"
    source.mkdir()
    head = CHAPTER.partition("About")[0].replace("{name}", "`build`")
    head = head.replace("  name: python3", "  name: python3\n  language: python")
    cells = "".join(f"```{{code-cell}} ipython3\n{cell}```\n\n" for cell in CELLS)
    (source / "index.md").write_text(head + (cells + WORDS).replace("PACKAGE", package) + (
        "\n\n```{toctree}\nmechanism\n```\n"
    ))  # fmt: skip
    text = (
        (ROOT / "reference/resilience.md")
        .read_text("utf-8")
        .replace("dlsys.resilience", f"{package}.mechanism")
    )
    (source / "mechanism.md").write_text(text)
    settings = {
        "extensions": ["myst_nb", "dlsys.notebook.book"],
        "nb_execution_mode": "off",
        "book_package": package,
        "html_theme": "basic",
        "nitpicky": True,
        "nitpick_ignore_regex": [("py:.*", ".*")],
        "autodoc_default_options": {"members": True, "no-value": True},
    }
    out = folder / "html"
    sys.path.insert(0, str(folder))
    try:
        with patch_docutils(), docutils_namespace():
            quiet = {"status": None, "warningiserror": True}
            app = Sphinx(
                str(source), None, str(out), str(folder / "trees"), "html", settings, **quiet
            )
            app.build()
    finally:
        sys.path.remove(str(folder))
    assert app.statuscode == 0
    return out, f"{package}.mechanism"


def entry(page: str, name: str) -> str:
    """The signature of a name on its page."""
    _, _, rest = page.partition(f'id="{name}"')
    return rest.partition("</dt>")[0]


def links(page: str) -> list[tuple[str, str]]:
    """Where code on a page leads, and its words."""
    found = re.findall(r'<a [^>]*href="([^"]*)"[^>]*>(?:<code[^>]*>)?(.*?)(?:</code>)?</a>', page)
    return [(target, re.sub("<[^>]*>", "", text)) for target, text in found]


def test_every_public_name_has_an_entry_with_its_docstring_and_its_source(small):
    out, package = small
    page = (out / "mechanism.html").read_text()
    source = f"_modules/{package.replace('.', '/')}/plan.html"
    text = (out / source).read_text()
    for name in ("KINDS", "Plan", "Plan.check", "Unit", "build"):
        assert f'href="{source}#{name}"' in entry(page, f"{package}.{name}"), name
        assert f'id="{name}"' in text
        assert f'mechanism.html#{package}.{name}"' in text, "and back"
    assert "What there <code" in page
    assert "Alias for field" not in page
    assert "_HIDDEN" not in page
    assert "INNER" not in page
    assert f'href="#{package}.Plan"' in entry(page, f"{package}.build"), "its annotation"


def test_a_docstring_shows_its_lists_and_its_code_and_every_other_sign_as_it_is(small):
    page = (small[0] / "mechanism.html").read_text()
    shown = unescape(re.sub("<[^>]*>", "", page))
    assert "A plan of *all* |x|_1, as build makes it," in shown
    assert "plan = build(2)\nplan.check(*args, `x`)" in shown
    items = [re.sub("<[^>]*>", "", item) for item in re.findall("<li><p>(.*?)</p>", page, re.S)]
    assert [item.replace("\n", " ") for item in items if ":" in item] == [
        "units: of Unit, more of them",
        "number, other: of units, counted",
        "near: another",
    ]


def test_names_in_cells_and_words_lead_to_their_entries_and_no_others_do(small):
    out, package = small
    article = (out / "index.html").read_text().partition('class="body"')[2]
    body = article.partition('<div class="toctree')[0]
    cells, _, words = body.rpartition('<div class="highlight')
    own = f"mechanism.html#{package}"
    module = f"mechanism.html#module-{package}"
    assert [link for link in links(cells) if "mechanism" in link[0]] == [
        (module, package),
        (f"{own}.build", "build"),
        (f"{own}.Plan", "Plan"),
        (module, package),
        (f"{own}.build", "build"),
        (f"{own}.Plan", "P"),
        (f"{own}.Plan.check", "check"),
        (module, "m"),
        (f"{own}.KINDS", "KINDS"),
        (module, "m"),
    ]
    assert [link for link in links(words) if "mechanism" in link[0]] == [
        (f"{own}.Plan.check", "Plan.check"),
        (f"{own}.KINDS", "m.KINDS"),
    ]


def test_links_stand_around_what_is_shown_or_nowhere():
    shown = (
        '<pre><span class="n">a</span><span class="o">&lt;</span> <span class="n">b</span>\n</pre>'
    )
    assert linked(shown, "a< b", [(3, 4, "m.b", "x#m.b")]) == shown.replace(
        ">b<", '><a href="x#m.b" title="m.b">b</a><'
    )
    assert linked(shown, "a > b", [(4, 5, "m.b", "x#m.b")]) == shown
    assert written("`a`s, x_ and **kw") == ["``a``\\ s, x\\_ and \\*\\*kw", ""]


def test_each_package_with_public_names_has_a_page(small):
    named = [path.relative_to(ROOT / "dlsys").as_posix() for path in PACKAGES]
    assert set(SLUGS) < set(named)
    pages = [(ROOT / "reference" / f"{name}.md") for name in named]
    assert [page.name for page in pages if not page.is_file()] == []


@pytest.fixture(scope="module")
def site() -> Path:
    if not (SITE / ".complete").is_file():
        unavailable("the book is not built: run make book")
    return SITE


@pytest.mark.parametrize("path", PACKAGES, ids=lambda path: path.name)
def test_every_public_name_of_the_package_has_an_entry_and_a_source(site, path):
    package = importlib.import_module(".".join(path.relative_to(ROOT).parts))
    page = (site / f"reference/{path.name}.html").read_text("utf-8")
    for name in package.__all__:
        shown = entry(page, f"{package.__name__}.{name}")
        target, anchor = urldefrag(TARGET.findall(shown.partition("viewcode-link")[0])[-1])
        source = (site / "reference" / target).read_text("utf-8")
        assert f'id="{anchor}"' in source, name
    assert f"{package.__name__}.nothing" not in page


@pytest.mark.parametrize(
    "path",
    sorted([*ROOT.glob("chapters/*.md"), *ROOT.glob("exercises/*/*.ipynb")]),
    ids=lambda path: f"{path.parent.name}-{path.stem}",
)
def test_every_import_from_the_package_in_a_cell_leads_to_an_entry(site, path):
    built = site / path.relative_to(ROOT).with_suffix(".html")
    found = re.findall(r'<a href="([^"]*)" title="dlsys[^"]*">(\w+)</a>', built.read_text("utf-8"))
    for target in {target for target, _ in found}:
        page, anchor = urldefrag(target)
        assert f'id="{anchor}"' in (built.parent / page).read_text("utf-8"), target
    cells = [c for c in jupytext.read(path).cells if c.cell_type == "code"]
    code = [c.source for c in cells if HIDDEN.isdisjoint(c.metadata.get("tags", ()))]
    imports = [
        alias.name
        for cell in code
        for node in ast.walk(parse(cell))
        if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == "dlsys"
        for alias in node.names
    ]
    linked_words = {word for _, word in found}
    assert [name for name in imports if name not in linked_words] == []
