"""What is said of others names them, and what has a number is spoken of by it."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from tests.book.test_chapters import CHAPTERS, MECHANISMS, NOTEBOOKS, cells, code

references = pytest.importorskip("dlsys.notebook.book.references")

PAGES = sorted(CHAPTERS.glob("*.md"))
BIBLIOGRAPHY = CHAPTERS / "references.bib"
MISTAKES = "Published mistakes"
MOST_MISTAKES = 5
HELPERS = {"LINKS", "DEVICES", "CATALOGUE", "table", "refusal", "format_bytes", "format_seconds"}
# An author or "and others" before a year in brackets, in words instead of by a role.
IN_WORDS = re.compile(r"(?:[A-Z][\w-]+|others|al\.),? \(?(?:19|20)\d\d\b")


@cache
def entries():
    return references.read_entries(BIBLIOGRAPHY)


def markdown(path):
    return "\n\n".join(cell.source for cell in cells(path, "markdown"))


def cited_keys(text):
    roles = references.CITATION.findall(text)
    return {key.strip() for _, keys in roles for key in keys.split(",")}


def section(path, title):
    """The items of a section: each begins with its claim in bold, at the start of a paragraph."""
    parts = re.split(r"^## ", path.read_text("utf-8"), flags=re.M)
    (found,) = [part for part in parts if part.startswith(title)]
    return re.split(r"^(?=\*\*)", found, flags=re.M)[1:]


def unsourced(items):
    return [item.split("\n\n")[0] for item in items if not cited_keys(item.split("\n\n")[0])]


def mechanisms(sources):
    """The names in code that come from the book's package or from torch, and functions that use them."""
    names = set()
    for node in ast.walk(ast.parse("\n".join(sources))):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith(("dlsys", "torch")):
            names |= {alias.asname or alias.name for alias in node.names} - HELPERS
        if isinstance(node, ast.FunctionDef) and names & set(re.findall(r"\w+", ast.unparse(node))):
            names.add(node.name)
    return names


def is_run(item, names):
    """Does a cell of this item use a mechanism, and not only arithmetic?"""
    source = "\n".join(re.findall(r"^```\{code-cell\}[^\n]*\n(.*?)^```", item, re.M | re.S))
    return bool(names & set(re.findall(r"\w+", source)))


@pytest.mark.parametrize("path", MECHANISMS, ids=lambda p: p.stem)
def test_a_published_mistake_says_who_published_it_and_a_run_refutes_it(path):
    items = section(path, MISTAKES)
    assert 1 <= len(items) <= MOST_MISTAKES
    assert unsourced(items) == []
    names = mechanisms(code(path))
    assert [item.splitlines()[0] for item in items if not is_run(item, names)] == []


def test_a_mistake_of_nobody_in_particular_is_found():
    assert unsourced(["**2 and 2 is 5.** No.\n\n{cite:p}`later`"]) == ["**2 and 2 is 5.** No."]
    assert unsourced(["**2 and 2 is 5** {cite:p}`brown2020`."]) == []


def test_arithmetic_on_a_claim_is_no_run():
    names = mechanisms(
        ["from dlsys.a import b, LINKS", "def c():\n    return b(1)", "def d(): ..."]
    )
    assert names == {"b", "c"}
    cell = "**A.**\n\n```{{code-cell}} ipython3\nassert {} == 4\n```"
    assert not is_run(cell.format("round(2 + 2)"), names)
    assert not is_run(cell.format("LINKS['x'].bandwidth / 2"), names)
    assert is_run(cell.format("c()"), names)


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.stem)
def test_what_a_page_cites_is_in_the_list_of_references(path):
    assert cited_keys(path.read_text("utf-8")) <= entries().keys()


@pytest.mark.parametrize("path", MECHANISMS, ids=lambda p: p.stem)
def test_an_author_and_a_year_are_a_citation(path):
    text = re.sub(r"^```.*?^```", "", markdown(path), flags=re.M | re.S)
    assert IN_WORDS.findall(text) == []


def test_an_author_and_a_year_in_words_are_found():
    for words in ("(Li and others, 2020)", "Qi and others (2023, table 5)", "(Yuan, 2009)"):
        assert IN_WORDS.findall(words), words


def test_every_reference_is_cited_and_has_a_link_an_author_and_a_year():
    cited = {key for path in PAGES for key in cited_keys(path.read_text("utf-8"))}
    assert entries().keys() - cited == set()
    for key, entry in entries().items():
        assert {"doi", "url"} & entry.fields.keys(), key
        assert entry.persons["author"], key
        assert entry.fields["year"], key
        assert entry.fields.get("url", "https://").startswith("https://"), key


def test_no_two_references_have_the_same_name_and_year():
    labels = list(references.Labels().format_labels(entries().values()))
    assert len(labels) == len(set(labels))


def numbered_and_named(path):
    """The figures, tables and equations with a number, and those that the prose speaks of."""
    abouts = [cell.metadata.get("mystnb", {}) for cell in cells(path, "code")]
    figures = {about["figure"]["name"] for about in abouts if "figure" in about}
    text = markdown(path)
    tables = {name for _, name, _ in references.TABLE.findall(text)}
    return figures | tables | set(references.LABEL.findall(text)), {
        name for _, name in references.NUMBER.findall(text)
    }


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_every_figure_table_and_equation_with_a_number_is_spoken_of(path):
    numbered, named = numbered_and_named(path)
    assert named == numbered


def test_citations_in_a_downloaded_notebook_are_names_and_years():
    text = (
        "As {cite:t}`patarasuk2009` say {cite:p}`korthikanti2022`, {cite:p}`hockney1994, li2020`."
    )
    assert references.cited(text, entries()) == (
        "As Patarasuk and Yuan (2009) say (Korthikanti et al., 2022), (Hockney, 1994; Li et al., 2020)."
    )


def test_numbers_in_a_downloaded_notebook_are_those_of_the_page():
    text = "{numref}`fig-ring` has {eq}`eq-x`:\n\n$$x = 1$$ (eq-x)\n\n$$y$$ (or not)"
    assert references.numbered(text, {"fig-ring": "2.1", "eq-x": "2.3"}) == (
        "Fig. 2.1 has (2.3):\n\n$$x = 1\\tag{2.3}$$\n\n$$y$$ (or not)"
    )


def test_a_table_in_a_downloaded_notebook_has_its_number_and_caption():
    text = "In {numref}`tab-x`:\n\n:::{table} Of two.\n:name: tab-x\n\n| a |\n|---|\n| 1 |\n:::\n\nAfter"
    assert references.numbered(text, {"tab-x": "2"}) == (
        "In Table 2:\n\nTable 2: Of two.\n\n| a |\n|---|\n| 1 |\n\n\nAfter"
    )
