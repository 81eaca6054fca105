"""The cheat sheet: a law of every chapter, each with its number and a link to cells that vouch for it."""

import re

import pytest

from tests.book.test_chapters import CHAPTERS, code, literals, prose, unvouched
from tests.contents import SLUGS

pages = pytest.importorskip("dlsys.notebook.book.pages")

SHEET = CHAPTERS / "cheat_sheet.md"
LINK = re.compile(r"\[[^\]]+\]\((\w+)\.md#([^)]+)\)")


def laws():
    """The rows of its tables: law, when it holds, and a number."""
    rows = re.findall(r"^\| (\[.*) \|$", SHEET.read_text("utf-8"), re.M)
    return [row.split(" | ") for row in rows]


def sections(slug):
    """The text of each section by the name that links give it, those below it included."""
    text = (CHAPTERS / f"{slug}.md").read_text("utf-8")
    heads = [
        *re.finditer(r"^(#+) (.*)$", re.sub(r"^```.*?^```", blank, text, flags=re.M | re.S), re.M)
    ]
    found = {}
    for i, head in enumerate(heads):
        after = [h.start() for h in heads[i + 1 :] if len(h[1]) <= len(head[1])]
        name = re.sub(r"[^\w\- ]", "", head[2].strip().lower()).replace(" ", "-")
        found[name] = text[head.start() : after[0] if after else None]
    return found


def blank(match):
    return " " * len(match[0])


@pytest.mark.parametrize("law", laws(), ids=lambda law: law[0].partition("]")[0][1:])
def test_a_law_has_a_condition_a_number_and_a_section_with_cells(law):
    assert len(law) == 3
    ((slug, name),) = LINK.findall(law[0])
    assert slug.removesuffix("_more") in SLUGS
    assert "```{code-cell}" in sections(slug).get(name, ""), (
        f"{slug}.md has no such section: {name}"
    )


@pytest.mark.parametrize("slug", SLUGS)
def test_every_chapter_has_a_law_on_the_sheet_and_leads_there_and_to_the_axes(slug):
    assert slug in {slug for law in laws() for slug, _ in LINK.findall(law[0])}
    takeaways = sections(slug)["key-takeaways"]
    assert "<cheat_sheet>`" in takeaways
    assert "(intro.md#which-axis-splits-what)" in takeaways
    assert ":name: tab-axes" in sections("intro")["which-axis-splits-what"]


def test_the_introduction_leads_to_the_sheet():
    assert "<cheat_sheet>`" in (CHAPTERS / "intro.md").read_text("utf-8")


def test_a_number_on_the_sheet_that_no_cell_of_it_vouches_for_could_be_wrong():
    numbers = "\n".join(re.sub(r"\{,\}", ",", law[2]).replace("$", " ") for law in laws())
    loose = unvouched(numbers, literals(code(SHEET)))
    assert loose == []


def test_a_sheet_without_its_cells_would_be_loose():
    assert unvouched(laws()[0][2], literals(["largest = 4e9"])) == ["5", "80"]


def test_the_sheet_says_what_every_letter_of_its_own_is_or_leads_to_the_notation():
    assert "{doc}`letters <notation>`" in SHEET.read_text("utf-8")
    assert len(prose(SHEET).split()) < 120  # the rest of the page is laws


def test_a_link_to_a_section_is_words_in_a_notebook_that_is_downloaded():
    assert pages.plain("[A run](memory_wall.md#time) and {term}`ranks <rank>`") == "A run and ranks"
    assert pages.plain("[here](https://a.b/c.md#d)") == "[here](https://a.b/c.md#d)"
