"""Figures for pages: colors by role, one description, no name twice, and nothing lost in making them small."""

import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest

pytest.importorskip("matplotlib", reason="the book's tools are not installed")

from matplotlib.figure import Figure

from dlsys import svg
from dlsys.palette import GRID, GROUND, INK, LINES, MUTED, ON_DARK, ON_LIGHT, ROLES
from dlsys.pipeline_parallel import one_f_one_b


def small() -> Figure:
    figure = Figure(figsize=(3, 2))
    axes = figure.subplots()
    axes.bar([0, 1], [2, 3], color="#123456", hatch="//", edgecolor=GROUND)
    axes.text(0, 1, "dark", color=ON_DARK)
    axes.text(1, 1, "light", color=ON_LIGHT)
    axes.plot([0, 1], [1, 1], "o", color=MUTED)
    axes.grid()
    axes.set_title("all & nothing")
    return figure


def style(page: ElementTree.Element, element: ElementTree.Element) -> str:
    """What an element looks like: its own style, or that of its class."""
    sheet = dict(re.findall(r"\.([\w-]+)\{([^}]*)\}", page.find("style").text))
    return element.get("style") or sheet[element.get("class")]


def test_roles_follow_the_page_and_what_stands_on_a_bar_stays():
    page = ElementTree.fromstring(svg.inline(svg.drawn(small), "two bars", "fig"))
    looks = {text.text: style(page, text) for text in page.iter("text")}
    assert f"fill: var(--figure-ink, {INK})" in looks["all & nothing"]
    assert f"fill: {ON_DARK}" in looks["dark"]
    assert "fill" not in looks["light"], "black is SVG's own color"
    whole = ElementTree.tostring(page, encoding="unicode")
    for name, color in ROLES.items():
        assert f"var(--figure-{name}, {color})" in whole
        assert not re.findall(rf'(?<!, ){color}|(fill|stroke)="{color}"', whole)
    assert "#123456" in whole


def test_a_role_has_a_color_that_nothing_else_has():
    colors = [INK, GROUND, MUTED, GRID, ON_DARK, ON_LIGHT]
    assert len({color.lower() for color in colors}) == len(colors)
    assert {color.lower() for color, _, _ in LINES} & set(colors) == {INK}
    assert all(re.fullmatch("#[0-9a-f]{6}", color) for color in colors), "as Matplotlib writes them"


def test_a_figure_has_one_description_and_its_text_is_text():
    made = svg.inline(svg.drawn(small), 'bars <of> "two"', "fig")
    page = ElementTree.fromstring(made)
    assert page.attrib | {"role": "img", "aria-label": 'bars <of> "two"'} == page.attrib
    assert "all & nothing" in [text.text for text in page.iter("text")]
    assert made == svg.inline(svg.drawn(small), 'bars <of> "two"', "fig")
    for left_over in ("<?xml", "metadata", "DejaVu", "*{", "rotate(-0"):
        assert left_over not in made


def names(made: str) -> set[str]:
    page = ElementTree.fromstring(made)
    return {each for x in page.iter() for each in (x.get("id"), x.get("class")) if each} - {"plot"}


def test_two_figures_of_a_page_share_no_name_and_refer_to_their_own():
    one, two = (svg.inline(svg.drawn(small), "bars", name) for name in ("one", "two"))
    assert names(one)
    assert not names(one) & names(two)
    for made in (one, two):
        referred = set(re.findall(r'(?:url\(|href=")#([\w-]+)', made))
        assert referred
        assert referred <= names(made)


def test_a_hatch_of_dots_is_a_few_kilobytes_and_has_every_dot():
    def dotted() -> Figure:
        figure = Figure(figsize=(3, 2))
        figure.subplots().bar([0], [1], hatch="...", edgecolor=GROUND)
        return figure

    raw = svg.drawn(dotted)
    circles = re.search(r"<pattern.*?<path d=\"(.*?)\"", raw, re.DOTALL).group(1).count("M")
    page = ElementTree.fromstring(svg.inline(raw, "a bar", "fig"))
    (way,) = page.iter("pattern")
    assert way.find("path").get("d").count("h0") == circles > 200
    assert "linecap: round" in style(page, way.find("path"))
    assert len(raw) > 100_000
    assert len(ElementTree.tostring(page)) < 15_000


def corners(text: str) -> list[tuple[float, float]]:
    """The points that the straight paths of a figure go through, in order."""
    found = []
    for way in re.findall(r'<path[^>]* d="([^"]*)"', text.replace("\n", " ")):
        x = y = 0.0
        for letter, numbers in re.findall(r"([MLHV])([^MLHVCQz]*)", way):
            parts = [float(n) for n in numbers.split()]
            x = parts[0] if letter in "MLH" else x
            y = parts[-1] if letter in "MLV" else y
            found.append((round(x, 1), round(y, 1)))
    return found


def test_what_repeats_is_written_once_and_no_bar_is_lost():
    raw = svg.drawn(lambda: one_f_one_b(16, 64).draw())
    made = svg.inline(raw, "a chart", "fig")
    assert len(raw) > 350_000
    assert len(made) < 100_000
    before, after = corners(raw), corners(made)
    assert len(before) == len(after) > 2 * 16 * 64 * 4
    apart = [max(abs(a - c), abs(b - d)) for (a, b), (c, d) in zip(before, after, strict=True)]
    assert max(apart) < 0.11
    assert any(abs(x - z) > 1 for (x, _), (z, _) in pairwise(after))


def test_a_path_of_several_parts_keeps_where_each_begins():
    assert svg._straight("M 0 0 L 2 0 L 2 2 z M 1 1 L 3 3 z") == "M0 0H2V2zM1 1L3 3z"


def test_a_figure_that_is_drawn_first_leaves_a_notebooks_settings_as_they_are():
    nbclient = pytest.importorskip("nbclient", reason="the book's tools are not installed")
    nbformat = pytest.importorskip("nbformat")
    from jupyter_client.manager import KernelManager

    first = "from dlsys import svg\nfrom matplotlib import pyplot\nsvg.drawn(pyplot.figure)"
    then = "import matplotlib\nprint(matplotlib.rcParams['svg.fonttype'])"
    cells = [nbformat.v4.new_code_cell(code) for code in (first, then)]
    notebook = nbformat.v4.new_notebook(cells=cells)
    rc = "--InlineBackend.rc={'svg.fonttype': 'none'}"
    kernel = KernelManager(kernel_name="python3")
    nbclient.NotebookClient(notebook, kernel, extra_arguments=[rc]).execute()
    assert notebook.cells[1].outputs[0]["text"] == "none\n"
