"""A prediction is none where its answer is in sight: above it in an output, a caption, the prose or code, below it in
what its section does not hide, or on a page before.

Which numbers these are only an execution tells; the outputs are those of the last `make book`.
"""

import ast
import html
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import pairwise

import pytest

pytest.importorskip("jupyter_cache", reason="the book's tools are not installed")
pytest.importorskip("jupytext", reason="the book's tools are not installed")

import jupytext
from jupyter_cache import get_cache

from dlsys.notebook.predict import answer
from tests.book.conftest import unavailable
from tests.contents import CHAPTERS, MORE, ROOT, SLUGS

AT_LEAST = 4

CACHE = ROOT / "_build" / ".jupyter_cache"
OUT_OF_SIGHT = {"remove-cell", "hide-cell", "remove-input", "hide-input"}
FOLDED = OUT_OF_SIGHT | {"predict"}
BYTES = {"bytes": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "PB": 1e15}
SECONDS = {"µs": 1e-6, "microseconds": 1e-6, "ms": 1e-3, "milliseconds": 1e-3, "s": 1, "seconds": 1}
SECONDS |= {"minutes": 60, "hours": 3600, "days": 86400, "years": 365.25 * 86400}
SHARES = {"%": 0.01, "percent": 0.01}
KINDS = BYTES, {f"{unit}/s": scale for unit, scale in BYTES.items()}, SECONDS, SHARES
SCALE = {unit: scale for kind in KINDS for unit, scale in kind.items()}
NUMBER = re.compile(
    r"(?<![\w.,^$])(\d[\d,]*(?:\.\d+)?)(?![\d.]*[-\w]*\d)(?:[ \xa0-]?([^\W\d_]+(?:/s)?|%))?"
)
# What is another quantity than the answer: the page, its answer, and the number with a reason.
OTHERS = {
    ("pipeline_parallel", "45.1 %"): {
        "47 %": "what the question compares with",
        "46.67%": "of 1F1B",
    },
    ("recomputation", "13.8 %"): {"14%": "of a forward pass, tensor by tensor"},
    ("collectives", "28 GB"): {"28 GB": "the state of GaLore"},
    ("tensor_parallel", "1.33 times"): {"1.33 times": "six workers of an input pipeline"},
    ("precision", "36.5 %"): {"36.5 %": "of a step in which tensor parallelism talks"},
    ("recomputation", "10.3 GB"): {"10 GB": "the data of an input pipeline"},
    ("roofline", "4.5 times"): {"4.5 times": "an all-to-all beside an all-reduce"},
    ("scaling_laws", "6.97 billion"): {"7 billion": "the size of many a model"},
}


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


def seen(cell) -> Iterator[str]:
    """What a cell shows to a reader: text, a caption, a picture in words, or outputs."""
    about = cell.metadata.get("mystnb", {})
    yield from (about.get("figure", {}).get("caption", ""), about.get("image", {}).get("alt", ""))
    if cell.cell_type == "markdown":
        yield cell.source
    elif not tags(cell) & {"remove-cell", "hide-cell"}:
        yield from shown(cell.outputs)


def above(cells, number: int) -> Iterator[str]:
    """What a reader has seen before the cell of a prediction shows what it computes."""
    for cell in cells[:number]:
        yield from seen(cell)


@cache
def whole(page: str) -> tuple[str, ...]:
    """All that a page shows."""
    return tuple(text for cell in executed(page) for text in seen(cell))


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


def is_right(number: float, true: float) -> bool:
    """Whether the page would call a guess right (chapters/_static/predict.js)."""
    return max(number, true) < 1.05 * min(number, true)


def factor(word: str, unit: str) -> float | None:
    """What turns a number with a word behind it into the unit, if both are of one kind."""
    if any(word in kind and unit in kind for kind in KINDS):
        return SCALE[word] / SCALE[unit]
    return 1 if word and word == unit.split(" ")[0] else None


def told(text: str, value: float, unit: str, near: Callable[..., bool] = is_right) -> Iterator[str]:
    """The numbers in a text that are the value in its unit, or in another one of its kind."""
    for match in NUMBER.finditer(text):
        number, by = float(match[1].replace(",", "").rstrip(".")), factor(match[2] or "", unit)
        if by is not None and near(number * by, value):
            yield match[0]


def tells(text: str, value: float, unit: str) -> Iterator[str]:
    """The numbers in a text that say the value: with its unit, or, less rounded, as a bare number."""
    yield from told(text, value, unit)
    for match in NUMBER.finditer(text):
        number = float(match[1].replace(",", "").rstrip("."))
        if not match[2] and any(is_rounded(number / s, value, 3) for s in (1, SCALE.get(unit, 1))):
            yield match[0]


def left_in_sight(cells, number: int) -> Iterator[str]:
    """What a reader sees below a prediction in its section before there is a guess: a paragraph is hidden, and all
    up to the last cell that follows from the answer.
    """
    below: list[tuple[bool, list[str]]] = []  # whether all up to here is hidden, and what it shows
    for cell in cells[number + 1 :]:
        if cell.cell_type == "markdown":
            parts = re.split(r"\n\s*\n", cell.source)
            ends = [i for i, part in enumerate(parts) if re.match("#+ ", part)]
            paragraphs = parts[: ends[0]] if ends else parts
            below += [(not below and part is parts[0], [part]) for part in paragraphs]
            if ends:
                break
        elif "predict" in tags(cell):
            break
        else:
            below.append(("after-prediction" in tags(cell), [*seen(cell)]))
    hidden = max((i for i, (hides, _) in enumerate(below) if hides), default=-1)
    yield from (text for _, texts in below[hidden + 1 :] for text in texts)


def answered(cell) -> str:
    """What a prediction shows as its answer."""
    (said,) = (text for text in shown(cell.outputs) if "Answer: " in text)
    return re.search(r"Answer:\s*([^\n]*)", said)[1]


def spoilers(cells, number: int, earlier: Iterable[str] = ()) -> Iterator[str]:
    """What tells the answer of the prediction in cell `number` before there is a guess."""
    data = "".join(o.get("data", {}).get("text/html", "") for o in cells[number].outputs)
    value = html.unescape(re.search(r'data-value="([^"]*)"', data)[1])
    checks = list(constants(asserted(cells[: number + 1])))
    if "radio" in data:
        outputs = [
            t for cell in cells[:number] if cell.cell_type == "code" for t in shown(cell.outputs)
        ]
        said = re.compile(rf"\b{re.escape(value)}\b")
        yield from (text for text in outputs if said.search(text))
        yield from (str(each) for each in checks if each == value)
        return
    unit = answered(cells[number]).partition(" ")[2]
    true, scales = float(value), {1, SCALE.get(unit, 1)}
    common = unit in SHARES or unit == "times"  # pages are full of these

    def rounded(number, true):
        return is_rounded(number, true, 3 if common else 2)

    code = [c.source for c in cells[:number] if c.cell_type == "code" and not tags(c) & FOLDED]
    for text in above(cells, number):
        yield from tells(text, true, unit)
    for text in code:
        yield from told(text, true, unit)
    for text in left_in_sight(cells, number):
        yield from told(text, true, unit, is_rounded)
    for text in earlier:
        yield from told(text, true, unit, rounded)
    for each in checks:
        if isinstance(each, str):
            yield from tells(each, true, unit)
        elif any(is_rounded(each, true * scale, 3) for scale in scales):
            yield str(each)


def predictions(cells) -> list[int]:
    return [i for i, cell in enumerate(cells) if "predict" in tags(cell)]


@pytest.mark.parametrize("slug", [*SLUGS, *MORE])
def test_nothing_in_sight_of_a_prediction_and_no_page_before_it_tells_its_answer(slug):
    cells = executed(slug)
    earlier = [text for page in CHAPTERS[: CHAPTERS.index(slug)] for text in whole(page)]
    for i in predictions(cells):
        known, found = OTHERS.get((slug, answered(cells[i])), {}), set(spoilers(cells, i, earlier))
        assert found == {*known}, f"{cells[i].source}\n  is told by: {found - {*known}}"


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


def asking(*before: Cell, below=(), earlier=(), shows=None, **code: str) -> list[str]:
    prediction = Cell("code", code.get("code", "answer(state / 1e9, 'GB')"), "", "predict")
    found = shows or answer(112.2, "GB")
    prediction.outputs = [{"data": {"text/html": found._repr_html_(), "text/plain": repr(found)}}]
    return list(spoilers([*before, prediction, *below], len(before), earlier))


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
        Cell("markdown", "A guess of some 115 GB is right, says the page."),
        Cell("code", "limit = 80  # of 112 GB"),
    ],
    ids=lambda cell: cell.source,
)
def test_an_answer_in_any_form_in_which_a_page_prints_it_is_found(before):
    assert asking(before)


def test_what_is_out_of_sight_or_another_quantity_is_no_answer():
    seen = "110, 112 layers, 12 GB, 1,112 GB, 119 GB, 112 GB/s, a 112-way split, 2 x 112 devices, 110 MB"
    assert asking(Cell("code", "assert n == 96", seen)) == []
    assert asking(Cell("code", "assert state == 112.2e9", "", "hide-cell")) == []
    assert asking(Cell("markdown", "What do 7 billion parameters need? Predict.")) == []


ANSWER = Cell("markdown", "As much.\n\nSo 112 GB.\n\n## Next\n\nIn all 112 GB.")


def test_what_stays_in_sight_below_it_tells_nothing_either():
    assert asking(below=[ANSWER]) == ["112 GB"]
    assert not asking(below=[Cell("markdown", "It is 112 GB, or 112 GB.\n\nWhy?")])
    follows = Cell("code", "show()", "112 GB", "after-prediction")
    before, after = Cell("markdown", "As much.\n\nSo 112 GB."), Cell("markdown", "It is 112 GB.")
    assert not asking(below=[before, follows])
    assert asking(below=[before, follows, after]) == ["112 GB"]


def test_a_page_before_tells_nothing_in_its_unit():
    assert asking(earlier=["a copy of 112 GB"]) == ["112 GB"]
    assert not asking(earlier=["115 GB", "112 layers", "112"])
    third, times = answer(100 / 3, "%"), answer(4 / 3, "times")
    assert asking(earlier=["33.3 %"], shows=third)
    assert not asking(earlier=["33 %"], shows=third)
    assert asking(earlier=["1.33 times"], shows=times)
    assert not asking(earlier=["1.3 times"], shows=times)


def test_the_code_of_a_prediction_tells_nothing_either():
    assert asking(code="assert round(state) == 112\nanswer(state, 'GB')")


def test_a_choice_is_told_by_its_words():
    chosen = answer("it grows", choices=["it grows", "it shrinks"])
    assert asking(Cell("code", "print(end)", "so it grows"), shows=chosen)
    assert asking(Cell("code", "assert end == 'it grows'"), shows=chosen)
    assert not asking(Cell("code", "print(end)", "so it grows2"), shows=chosen)
    assert not asking(Cell("markdown", "Predict whether it grows or it shrinks."), shows=chosen)
