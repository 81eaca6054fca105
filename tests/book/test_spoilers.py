"""A prediction is none where its answer stands above it: in an output, a caption, the prose, or an assert in sight.

Which numbers these are only an execution tells; the outputs are those of the last `make book`.
"""

import ast
import html
import re
from collections.abc import Iterable, Iterator
from itertools import pairwise

import pytest

pytest.importorskip("jupyter_cache", reason="the book's tools are not installed")
pytest.importorskip("jupytext", reason="the book's tools are not installed")

import jupytext
from jupyter_cache import get_cache

from dlsys.notebook.predict import answer
from tests.book.conftest import unavailable
from tests.contents import MORE, ROOT, SLUGS

AT_LEAST = 4

CACHE = ROOT / "_build" / ".jupyter_cache"
OUT_OF_SIGHT = {"remove-cell", "hide-cell", "remove-input", "hide-input"}
SCALE = {"bytes": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "PB": 1e15}
SCALE |= {"microseconds": 1e-6, "ms": 1e-3, "s": 1, "seconds": 1, "minutes": 60, "hours": 3600}
SCALE |= {"days": 86400, "years": 365.25 * 86400, "%": 0.01, "percent": 0.01}
NUMBER = re.compile(
    r"(?<![\w.,^$])(\d[\d,]*(?:\.\d+)?)(?![\d.]*[-\w]*\d)(?:[ \xa0-]?([^\W\d_]+|%))?"
)


def tags(cell) -> set[str]:
    return set(cell.metadata.get("tags", ()))


def source(slug: str) -> list:
    return jupytext.read(ROOT / "chapters" / f"{slug}.md").cells


def executed(slug: str) -> list:
    """The cells of a chapter, with the outputs that the book shows."""
    cells = source(slug)
    code = [cell for cell in cells if cell.cell_type == "code"]
    cache = get_cache(CACHE)
    records = [
        r for r in (cache.list_cache_records() if CACHE.is_dir() else []) if slug in str(r.uri)
    ]
    for record in sorted(records, key=lambda r: r.accessed, reverse=True):
        known = cache.get_cache_bundle(record.pk).nb.cells
        known = [cell for cell in known if cell.cell_type == "code"]
        if [cell.source for cell in known] == [cell.source for cell in code]:
            for cell, run in zip(code, known, strict=True):
                cell.outputs = run.outputs
            return cells
    unavailable(f"the book is not built, or not from this text of {slug}: run make book")
    raise AssertionError


def shown(outputs) -> Iterator[str]:
    """The text of each output; of a table, each cell on a line of its own."""
    for output in outputs:
        data = output.get("data", {})
        if "text/html" in data:
            yield html.unescape(
                re.sub(r"<(script|style).*?</\1>|<[^>]*>", "\n", data["text/html"], flags=re.S)
            )
        else:
            yield output.get("text") or data.get("text/plain", "")


def above(cells, number: int) -> Iterator[str]:
    """What a reader has seen before the cell of a prediction shows what it computes."""
    for cell in cells[:number]:
        about = cell.metadata.get("mystnb", {})
        yield from (
            about.get("figure", {}).get("caption", ""),
            about.get("image", {}).get("alt", ""),
        )
        if cell.cell_type == "markdown":
            yield cell.source
        elif not tags(cell) & {"remove-cell", "hide-cell"}:
            yield from shown(cell.outputs)


def asserted(cells) -> Iterator[ast.expr]:
    """The expressions in the asserts that a reader sees."""
    for cell in cells:
        if cell.cell_type == "code" and not tags(cell) & OUT_OF_SIGHT:
            for node in ast.walk(ast.parse(cell.source)):
                if isinstance(node, ast.Assert):
                    yield from (each for each in ast.walk(node) if isinstance(each, ast.expr))


def constants(expressions: Iterable[ast.expr]) -> Iterator[float | str]:
    """The numbers and strings that need no name: 16 * 7e9 and its two factors."""
    for expression in expressions:
        try:
            code = compile(ast.Expression(expression), "assert", "eval")
            value = eval(code, {"__builtins__": {}})
        except (NameError, SyntaxError, TypeError, ValueError):  # a starred one stands alone
            continue
        if isinstance(value, int | float | str):
            yield value


def is_rounded(number: float, true: float, digits: int = 2) -> bool:
    """Whether a number is the true one, to so many digits or more."""
    rounded = {float(f"{true:.{n}g}") for n in range(digits, 9)}
    return number in rounded or abs(number - true) < 1e-8 * true


def tells(text: str, value: float, unit: str) -> bool:
    """Whether a text says the value: in its unit or another one of its kind, or, less rounded, as
    a bare number.
    """
    for digits, word in NUMBER.findall(text):
        number = float(digits.replace(",", "").rstrip("."))
        scale = SCALE.get(word, 1) / SCALE.get(unit, 1)
        kind = word == unit or (word in SCALE and unit in SCALE)
        if (kind or not word) and is_rounded(number * scale, value, 2 if kind else 3):
            return True
        if not word and is_rounded(number, value, 3):
            return True
    return False


def spoilers(cells, number: int) -> Iterator[str]:
    """What tells the answer of the prediction in cell `number` before it."""
    (line,) = (text for text in shown(cells[number].outputs) if "Answer: " in text)
    data = "".join(o.get("data", {}).get("text/html", "") for o in cells[number].outputs)
    value = html.unescape(re.search(r'data-value="([^"]*)"', data)[1])
    before, checks = list(above(cells, number)), asserted(cells[: number + 1])
    if "radio" in data:
        outputs = [
            t for cell in cells[:number] if cell.cell_type == "code" for t in shown(cell.outputs)
        ]
        said = re.compile(rf"\b{re.escape(value)}\b")
        yield from (text for text in outputs if said.search(text))
        yield from (str(each) for each in constants(checks) if each == value)
        return
    true, (unit,) = float(value), re.findall(r"Answer:\s*[\d,.]+ ?([^\n]*)", line) or [""]
    yield from (text for text in before if tells(text, true, unit))
    scales = {1, SCALE.get(unit, 1)}
    for each in constants(checks):
        if isinstance(each, str):
            told = tells(each, true, unit)
        else:
            told = any(is_rounded(each, true * scale, 3) for scale in scales)
        if told:
            yield str(each)


def predictions(cells) -> list[int]:
    return [i for i, cell in enumerate(cells) if "predict" in tags(cell)]


@pytest.mark.parametrize("slug", [*SLUGS, *MORE])
def test_nothing_above_a_prediction_tells_its_answer(slug):
    cells = executed(slug)
    told = {
        cells[i].source: found for i in predictions(cells) if (found := list(spoilers(cells, i)))
    }
    assert not told, "\n\n".join(f"{code}\n  is told by: {found}" for code, found in told.items())


@pytest.mark.parametrize("slug", SLUGS)
def test_a_chapter_asks_for_predictions(slug):
    assert len(predictions(source(slug))) >= AT_LEAST


def test_a_chapter_with_a_prediction_is_held_to_all_of_this():
    pages = [path.stem for path in (ROOT / "chapters").glob("*.md")]
    asking = {slug for slug in pages if predictions(source(slug))}
    assert asking <= {*SLUGS, *MORE}


@pytest.mark.parametrize("slug", [*SLUGS, *MORE])
def test_what_the_reader_is_to_predict_is_asked_and_answered_by_the_next_cell(slug):
    cells = source(slug)
    for question, cell in pairwise(cells):
        asks = question.cell_type == "markdown" and re.search(r"\b[Pp]redict\b", question.source)
        assert bool(asks) == ("predict" in tags(cell)), question.source


class Cell:
    """A cell as jupytext and the cache give it."""

    def __init__(self, kind: str, text: str, output: str = "", *named: str, **metadata) -> None:
        self.cell_type, self.source, self.metadata = kind, text, {"tags": list(named), **metadata}
        self.outputs = [{"text": output}] if output else []


def asking(*before: Cell, code: str = "answer(state / 1e9, 'GB')", shows=None) -> list[str]:
    prediction = Cell("code", code, "", "predict")
    found = shows or answer(112.2, "GB")
    prediction.outputs = [{"data": {"text/html": found._repr_html_(), "text/plain": repr(found)}}]
    return list(spoilers([*before, prediction], len(before)))


@pytest.mark.parametrize(
    "before",
    [
        Cell("code", "print(state)", "It needs 112 GB."),
        Cell("code", "print(state)", "112,200,000,000 bytes"),
        Cell("code", "print(state)", "112200000000"),
        Cell("code", "print(state)", "0.1122 TB"),
        Cell("code", "table()", "", mystnb={"figure": {"caption": "All of 112.2 GB."}}),
        Cell("code", "assert state == 112.2e9"),
        Cell("code", "assert state == 16 * 7.0125e9"),
        Cell("code", "assert format_bytes(state) == '112 GB'"),
        Cell("code", "assert round(state / 1e9) == 112"),
        Cell("markdown", "As we saw, it is 112 GB. Predict it."),
    ],
    ids=lambda cell: cell.source,
)
def test_an_answer_in_any_form_in_which_a_page_prints_it_is_found(before):
    assert asking(before)


def test_what_is_out_of_sight_or_another_quantity_is_no_answer():
    seen = "110, 112 layers, 12 GB, 1,112 GB, 112.9 GB, a 112-way split, 2 x 112 devices, 110 MB"
    assert asking(Cell("code", "assert n == 96", seen)) == []
    assert asking(Cell("code", "assert state == 112.2e9", "", "hide-cell")) == []
    assert asking(Cell("markdown", "What do 7 billion parameters need? Predict.")) == []


def test_the_code_of_a_prediction_tells_nothing_either():
    assert asking(code="assert round(state) == 112\nanswer(state, 'GB')")


def test_a_choice_is_told_by_its_words():
    chosen = answer("it grows", choices=["it grows", "it shrinks"])
    assert asking(Cell("code", "print(end)", "so it grows"), shows=chosen)
    assert asking(Cell("code", "assert end == 'it grows'"), shows=chosen)
    assert not asking(Cell("code", "print(end)", "so it grows2"), shows=chosen)
    assert not asking(Cell("markdown", "Predict whether it grows or it shrinks."), shows=chosen)
