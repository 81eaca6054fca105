"""The chapters as text: short cells, described figures, defined words, and numbers that a cell vouches for."""

from __future__ import annotations

import ast
import builtins
import dataclasses
import functools
import importlib
import itertools
import json
import math
import re

import pytest

from dlsys.collectives import ring_all_reduce, tree_all_reduce
from dlsys.hardware import LINKS
from dlsys.memory_wall.explorer import Choice
from dlsys.notebook.book.numbers import beside, parts
from dlsys.notebook.book.said import numbers_in as numbers_said
from dlsys.world.alpha_beta import Fit, Sample
from tests.book.test_notation import symbol_rows
from tests.contents import MORE, ROOT, SLUGS

jupytext = pytest.importorskip("jupytext")
get_kernel_spec = pytest.importorskip("jupyter_client.kernelspec").get_kernel_spec

CHAPTERS = ROOT / "chapters"
NOTEBOOKS = sorted(p for p in CHAPTERS.glob("*.md") if "format_name: myst" in p.read_text())
MECHANISMS = [CHAPTERS / f"{slug}.md" for slug in SLUGS]
WITH_MORE = [*MECHANISMS, *(CHAPTERS / f"{page}.md" for page in MORE)]
PAGES = sorted(CHAPTERS.glob("*.md"))
END = [
    "Where it breaks",
    "Published mistakes",
    "Key takeaways",
    "Quiz",
    "Exercises",
    "Further reading",
]
SHAPE = [  # of a chapter whose page shows its mechanism
    "What you will be able to do",
    "Why it is right",
    "What it costs",
    "A worked example",
    "The same with PyTorch",
    *END,
]
SECTIONS = [
    "What you will be able to do",
    "The property",
    "Plan",
    "Price",
    "Run, and compare",
    "A worked example",
    *END,
]


@functools.cache
def notebook(path):
    return jupytext.read(path)


def cells(path, kind):
    return [c for c in notebook(path).cells if c.cell_type == kind]


def tags_of(cell):
    return set(cell.metadata.get("tags", []))


def code(path):
    return [c.source for c in cells(path, "code")]


def code_and_numbers(path):
    """The code of a page, and what runs beside it to vouch for its numbers."""
    return [*code(path), *(part.source for part in parts(beside(path)).values())]


def prose(path):
    """The words of a page, without code, mathematics, citations, links and table rows."""
    text = "\n\n".join(c.source for c in cells(path, "markdown"))
    text = re.split(r"^## Further reading", text, flags=re.M)[0]
    text = re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)
    text = re.sub(r'\*\*"[^*]*\*\*', "", text)  # claims of others
    text = re.sub(r"\$\$.*?\$\$|\$[^$]*\$", " ", text, flags=re.S)
    text = re.sub(r"\{[\w:]+\}`[^`]*`", " word ", text)
    text = re.sub(r"`[^`]*`|\]\([^)]*\)", " ", text)
    return "\n".join(line for line in text.splitlines() if not line.startswith(("|", "#")))


def glossary_terms():
    terms = []
    for block in re.findall(
        r"```\{glossary\}\n(.*?)```", (CHAPTERS / "glossary.md").read_text(), re.S
    ):
        terms += [line for line in block.splitlines() if line and not line.startswith(" ")]
    return terms


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_no_code_cell_is_longer_than_15_lines(path):
    long = {
        i: n
        for i, c in enumerate(cells(path, "code"))
        if (n := len(c.source.splitlines())) > (40 if "mechanism" in tags_of(c) else 15)
    }
    assert not long, f"cells (by number) with too many lines: {long}; move code into the package"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_mechanism_on_a_page_is_its_file_word_for_word(path):
    own = ROOT / "dlsys" / path.stem.removesuffix("_more")
    texts = [
        file.read_text("utf-8") for folder in (own, own.parent) for file in folder.glob("*.py")
    ]
    for cell in cells(path, "code"):
        if "mechanism" in tags_of(cell):
            assert any(f"\n{cell.source}\n" in f"\n{text}" for text in texts), cell.source


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_chapter_opened_and_saved_in_jupyterlab_is_the_same_file(path):
    """With what JupyterLab adds: the name of the kernel that runs, and its language."""
    text = path.read_text(encoding="utf-8")
    notebook = jupytext.reads(text, fmt="md:myst")
    kernel = get_kernel_spec("python3")
    notebook.metadata["kernelspec"] = {
        "display_name": kernel.display_name,
        "language": kernel.language,
        "name": "python3",
    }
    notebook.metadata["language_info"] = {"name": "python", "pygments_lexer": "ipython3"}
    assert jupytext.writes(notebook, fmt="md:myst") == text, (
        "jupytext writes this page in another form; store that: jupytext.write(jupytext.read(path), path)"
    )


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_every_figure_has_a_caption_and_a_description(path):
    for cell in cells(path, "code"):
        last = cell.source.strip().splitlines()[-1]
        about = cell.metadata.get("mystnb", {})
        if about.get("figure", {}).get("name", "").startswith("tab-"):
            continue  # its words are there to be read
        if re.search(r"\bdraw\w*\(|\.plot\w*\(|^show\.\w+_figure\(", last) or "figure" in about:
            assert about.get("figure", {}).get("caption", "").strip(), f"no caption: {last}"
            assert len(about.get("image", {}).get("alt", "").split()) >= 8, (
                f"no description: {last}"
            )
            assert about["figure"].get("name", "").startswith("fig-"), last


def tables_without_caption(cells):
    """The last line of each cell that shows a table and does not name it; predictions speak for themselves."""
    for cell in cells:
        tree, about = ast.parse(cell.source), cell.metadata.get("mystnb", {})
        last = ast.unparse(tree.body[-1]) if tree.body else ""
        if last.startswith("table(") and not about.get("figure", {}).get("caption", "").strip():
            yield last


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_the_paragraph_that_tells_an_answer_follows_its_prediction_and_waits_with_it(path):
    """The page hides one paragraph behind a prediction: with a cell between it would stand in sight."""
    everything = notebook(path).cells
    for cell, then in itertools.pairwise(everything):
        if "predict" in cell.metadata.get("tags", []):
            told = then.cell_type == "markdown" or "after-prediction" in then.metadata.get(
                "tags", []
            )
            assert told, f"after the cell that ends in {cell.source.splitlines()[-1]}"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_every_table_has_a_caption(path):
    assert list(tables_without_caption(cells(path, "code"))) == []


@pytest.mark.parametrize("path", MECHANISMS, ids=lambda p: p.stem)
def test_a_chapter_has_the_shape_of_a_chapter(path):
    headings = re.findall(r"^## (.*)$", path.read_text(), re.M)
    shape = SHAPE if any("mechanism" in tags_of(c) for c in cells(path, "code")) else SECTIONS
    found = [next((h for h in headings if h.startswith(s)), None) for s in shape]
    assert None not in found, f"missing: {[s for s, h in zip(shape, found, strict=True) if not h]}"
    assert found == sorted(found, key=headings.index), "sections are out of order"


FOLDED = {"remove-cell", "remove-input", "hide-cell", "hide-input", "predict"}


@pytest.mark.parametrize("path", MECHANISMS, ids=lambda p: p.stem)
def test_a_chapter_takes_45_to_60_minutes_with_its_predictions(path):
    tags = [set(c.metadata.get("tags", [])) for c in cells(path, "code")]
    shown = [c for c, t in zip(code(path), tags, strict=True) if not t & FOLDED]
    words, lines = len(prose(path).split()), sum(len(c.split("\n")) for c in shown)
    guesses = sum("predict" in t for t in tags)
    pictures = sum("figure" in c.metadata.get("mystnb", {}) for c in cells(path, "code"))
    pictures += path.read_text("utf-8").count(":::{table}")
    # 100 words a minute, as one studies and does not skim; five seconds for each line of code; half
    # a minute for a picture. Those who read all five, section by section, took a fifth longer.
    minutes = 1.2 * (words / 100 + lines / 12 + guesses + pictures / 2)
    assert 45 <= minutes <= 60, (
        f"{minutes:.1f}: {words} words, {lines} lines of code, {pictures} figures and tables"
    )
    assert len(tags) <= 42, "so many cells are two chapters"


def descriptions(path):
    """What is said about figures: captions, and texts for readers who cannot see them."""
    for cell in cells(path, "code"):
        about = cell.metadata.get("mystnb", {})
        yield about.get("figure", {}).get("caption", "")
        yield about.get("image", {}).get("alt", "")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_number_in_the_prose_that_no_cell_vouches_for_could_be_wrong(path):
    text = " ".join("\n".join([prose(path), *descriptions(path)]).split())
    sources = code_and_numbers(path)
    assert [words for words in quotes(sources) if words not in text] == []
    loose = unvouched(text, literals(sources), list(quotes(sources)))
    assert loose == [], f"in the prose or about a figure, but in no cell: {loose}"


def test_a_number_is_vouched_for_by_its_value_and_not_by_its_digits():
    def loose(text, source):
        return unvouched(text, literals([source]))

    assert loose("30 % of 3,000 GB, or 0.3", "share = 3") == ["30", "3,000", "0.3"]
    assert loose("1.12 TB, 30 %, 156 or 2,203 GB", "1.12e12, 0.3, 156e9, 2_203e9") == []
    assert loose("25 times, in 2019", "2.5") == ["25"]


def test_a_number_in_a_comment_a_text_or_a_source_vouches_for_nothing():
    source = 'sourced(4.4, by="dao2022, figure 7"), f"{x} and 8"  # 9'
    assert unvouched("4.4, 7, 8 and 9", literals([source])) == ["7", "8", "9"]


def test_a_number_is_vouched_for_where_it_is_quoted_and_nowhere_else():
    sources = ['says("the ring sends\\n24.5 GB", price.bytes_per_rank)']
    text = "Here the ring sends 24.5 GB, there 24.5 GB."
    assert unvouched(text, [], quotes(sources)) == ["24.5"]


def literals(sources):
    """The numbers that stand in code."""
    return [number for source in sources for number in numbers_in(ast.parse(source))]


def numbers_in(tree):
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    return [node.value for node in nodes if type(node.value) in (int, float)]


def unvouched(text, known, quoted=()):
    """The numbers in `text` that are not `known`, neither as they stand nor in the unit itself, and
    stand in none of the words that are `quoted`.

    14e9 vouches for 14 GB, 0.3 for 30 %. Years belong to citations.
    """
    text = " ".join(text.split())
    places = [m.span() for words in quoted for m in re.finditer(re.escape(words), text)]
    return [
        number.words
        for number in numbers_said(text)
        if not re.fullmatch(r"(19|20)\d\d", number.words)
        and not meant(number.meanings, known)
        and not any(start <= number.place < stop for start, stop in places)
    ]


def quotes(sources):
    """The words that calls of `says` quote."""
    for node in itertools.chain.from_iterable(ast.walk(ast.parse(s)) for s in sources):
        match node:
            case ast.Call(func=ast.Name(id="says"), args=[ast.Constant(value=str(words)), *_]):
                yield " ".join(words.split())


def meant(values, known):
    return any(math.isclose(v, k, rel_tol=1e-12) for v in values for k in known)


def test_what_vouches_for_numbers_stands_beside_a_page():
    files = sorted((CHAPTERS / "numbers").iterdir())
    pages = {beside(page) for page in NOTEBOOKS}
    assert [file.name for file in files if file not in pages and file.name != "__pycache__"] == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_an_assert_about_constants_alone_would_vouch_for_any_number(path):
    nothing = [claim for source in code_and_numbers(path) for claim in about_nothing(source)]
    assert nothing == [], (
        f"no object of the page or the package is in {nothing}; see dlsys.notebook.vouch"
    )


@pytest.mark.parametrize(
    "claim",
    [
        "64 == 8 * 8",
        "8192",
        "(320, 350)",
        "round(1.26, 1) == 1.3",
        "math.log2(8) == 3",
        "not 3 > 4",
        "all(x > 1 for x in (2, 3))",
        "(lambda x: x == 3)(3)",
    ],
)
def test_a_claim_without_a_name_is_about_nothing(claim):
    assert len(about_nothing(f"assert {claim}")) == 1
    assert len(about_nothing(f"assert a == 3 and ({claim}) and b")) == 1
    assert len(about_nothing(f"if a:\n    assert a > 2 or not ({claim})")) == 1


def test_of_a_chain_or_a_pair_each_part_is_a_claim():
    assert about_nothing("assert a == 3 > 2") == ["3 > 2"]
    assert about_nothing("assert len(a) == 136 == 16 * 17 // 2 > b") == ["136 == 16 * 17 // 2"]
    assert about_nothing("assert (a, 12) == (3, 8 + 4)") == ["12 == 8 + 4"]
    assert about_nothing("assert [a, *b] == [3, 4] and 0.5 < plan.price(8) / 256 < 0.6") == []
    assert about_nothing("assert 136 == len(a) == 16 * 17 // 2, 'a text'") == []
    assert about_nothing("assert all(spec.hidden == x for x in (3, 4)) and math.log2(a) == 3") == []


NO_NAMES = {*dir(builtins), "math"}


def about_nothing(source):
    """The claims of a cell's asserts that speak of no object: constants, and what Python makes of them."""
    asserts = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Assert)]
    return [
        ast.unparse(claim)
        for node in asserts
        for claim in claims(node.test)
        if not names(claim) - NO_NAMES
    ]


def claims(test):
    """What an assert says, one by one: parts of `and` and `or`, of a chain, and of two rows side by side."""
    match test:
        case ast.BoolOp(values=parts):
            yield from itertools.chain.from_iterable(map(claims, parts))
        case ast.UnaryOp(op=ast.Not(), operand=part):
            yield from claims(part)
        case ast.Compare(left=left, ops=[op, *ops], comparators=[right, *more]) if more:
            yield from claims(ast.Compare(left, [op], [right]))
            yield from claims(ast.Compare(right, ops, more))
        case ast.Compare(
            left=ast.Tuple(elts=left) | ast.List(elts=left),
            ops=[op],
            comparators=[ast.Tuple(elts=right) | ast.List(elts=right)],
        ) if len(left) == len(right):
            for a, b in zip(left, right, strict=True):
                yield from claims(ast.Compare(a, [op], [b]))
        case _:
            yield test


def names(claim):
    """The names that a claim reads and does not bind itself."""
    nodes = list(ast.walk(claim))
    bound = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    bound |= {n.arg for n in nodes if isinstance(n, ast.arg)}
    return {n.id for n in nodes if isinstance(n, ast.Name)} - bound


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_what_is_given_is_in_the_prose_and_the_source_of_what_is_sourced_exists(path):
    text = "\n".join([prose(path), *descriptions(path)])
    for form, numbers, by in vouchers(code_and_numbers(path)):
        if form == "given":
            assert unsaid(text, numbers) == [], "given, but nowhere in the prose"
        else:
            assert not (wrong := no_source(by, numbers)), wrong


def test_a_number_that_the_prose_no_longer_has_is_found():
    assert unsaid("14 GB of 30 %, or 8", [14e9, 0.3, 8, 9, 0.08]) == [9, 0.08]


def test_a_source_is_an_entry_of_the_bibliography_or_a_file_with_the_numbers():
    calls = vouchers(['x = 1\nsourced(4.4, 3e9, by="dao2022, figure 2")', "given(7)\nprint(8)"])
    assert list(calls) == [("sourced", [4.4, 3e9], "dao2022, figure 2"), ("given", [7], "")]
    for by in ("dao2022", "dao2022, figure 2", "bench/README.md, resilience"):
        assert no_source(by, [0.43]) is None
    for by in ("", "dao1922", "Dao and others", "bench/README.txt", "bench/README.md"):
        assert no_source(by, [0.4321])


def vouchers(sources):
    """Each call that says of numbers where they come from: its name, the numbers, and by whom."""
    for node in itertools.chain.from_iterable(ast.walk(ast.parse(s)) for s in sources):
        match node:
            case ast.Call(func=ast.Name(id="given" | "sourced" as form), args=args):
                by = [k.value.value for k in node.keywords if k.arg == "by"]
                yield form, [n for arg in args for n in numbers_in(arg)], "".join(by)


def unsaid(text, numbers):
    meanings = [number.meanings for number in numbers_said(text)]
    return [number for number in numbers if not any(meant(v, [number]) for v in meanings)]


def no_source(by, numbers):
    """What is wrong with a source: a key that the bibliography lacks, or a file without the numbers."""
    source = by.split(",")[0]
    if "/" not in source:
        keys = re.findall(r"^@\w+\{(.+),$", (CHAPTERS / "references.bib").read_text(), re.M)
        return None if source in keys else f"references.bib has no entry {source!r}"
    file = ROOT / source
    held = [number.meanings for number in numbers_said(file.read_text())] if file.is_file() else []
    missing = [n for n in numbers if not any(meant(v, [n]) for v in held)]
    return f"{source} does not have {missing}" if missing else None


def test_no_word_is_defined_twice():
    terms = glossary_terms()
    assert len(terms) == len({t.lower() for t in terms})


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.stem)
def test_every_reference_to_a_term_or_a_page_has_a_target(path):
    text = path.read_text()
    for target in re.findall(r"\{term\}`(?:[^`<]*<)?([^`>]+)>?`", text):
        assert target in glossary_terms(), f"{target!r} is not in the glossary"
    for target in re.findall(r"\{doc\}`(?:[^`<]*<)?([^`>]+)>?`", text):
        there = (path.parent / target).resolve()
        assert any(there.with_suffix(s).exists() for s in (".md", ".ipynb")), f"no page {target!r}"


@pytest.mark.parametrize("path", WITH_MORE, ids=lambda p: p.stem)
def test_every_symbol_in_a_formula_is_in_the_notation(path):
    known = {x for symbol, _ in symbol_rows() for x in symbols_of(symbol)}
    local = set("xyzijk")  # explained where they stand
    text = "\n".join(c.source for c in cells(path, "markdown"))
    for display, inline in re.findall(r"\$\$(.*?)\$\$|\$([^$]+)\$", text, re.S):
        words = r"\\(?:text|mathrm)\{[^}]*\}|_\{[^}]*\}|_\w"
        unknown = symbols_of(re.sub(words, " ", display + inline)) - known - local
        assert not unknown, f"{unknown} in {display + inline!r}"


GREEK = [
    "alpha",
    "beta",
    "gamma",
    "delta",
    "epsilon",
    "zeta",
    "eta",
    "theta",
    "kappa",
    "lambda",
    "mu",
    "nu",
    "xi",
    "pi",
    "rho",
    "sigma",
    "tau",
    "phi",
    "chi",
    "psi",
    "omega",
]


def symbols_of(formula):
    """The Latin and Greek letters of a formula, commands such as \\frac left out."""
    letters = "|".join([*GREEK, *map(str.title, GREEK)])
    greek = set(re.findall(rf"\\(?:var)?({letters})(?![A-Za-z])", formula))
    return greek | set(re.findall(r"[A-Za-z]", re.sub(r"\\[A-Za-z]+", " ", formula)))


def test_greek_letters_are_symbols_too():
    assert symbols_of(r"\gamma = \frac{2\Psi}{\beta S}") == {"gamma", "Psi", "beta", "S"}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_cells_import_only_what_exists(path):
    for source in code(path):
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dlsys"):
                module = importlib.import_module(node.module)
                for name in node.names:
                    assert hasattr(module, name.name) or importlib.import_module(
                        f"{node.module}.{name.name}"
                    )


def test_the_explorers_llama_2_7b_fits_up_to_8192_tokens_and_not_to_16384():
    cell = next(c for c in code(CHAPTERS / "memory_wall.md") if "\nexplore(" in c)
    choice = eval(cell.splitlines()[-1], {"explore": Choice})
    longer = {s: dataclasses.replace(choice, sequence=s) for s in Choice.options()["sequence"][1]}
    assert max(s for s, each in longer.items() if "It fits" in each.summary()) == 8192


def test_the_figure_of_measured_seconds_is_drawn_by_the_words_that_the_chapter_prints():
    path = CHAPTERS / "collectives_more.md"
    (expression,) = re.findall(r"`(fitted\.draw\(.*?\))`", " ".join(path.read_text().split()))
    tree, samples = tree_all_reduce(2), (Sample(4096, 2e-3, 1e-3, 3e-3),) * 2
    fitted = Fit(ring_all_reduce(2), LINKS["ethernet-100g"], samples)
    figure = eval(expression, {"fitted": fitted, "tree": tree, "measured": samples})
    assert figure.axes[0].get_legend_handles_labels()[1] == ["ring all_reduce", "tree all_reduce"]


def test_the_seconds_that_training_loop_calls_measured_are_those_that_were():
    measured = json.loads((ROOT / "dlsys" / "roofline" / "h100.json").read_text())
    page = (CHAPTERS / "training_loop.md").read_text()
    ladder = dict(measured["ladder"])
    del ladder["vocabulary of 50,304"]  # roofline asks its reader to predict it
    steps = [rung["seconds"] for rung in ladder.values()]
    updates = [round(1e3 * seconds, 3) for seconds in measured["optimizers"].values()]
    for number in (*steps, *updates):
        assert f"{number}" in page


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.stem)
def test_pages_speak_of_the_book_and_nothing_around_it(path):
    text = path.read_text()
    for word in ("/tmp/", "/home/", "TODO", "FIXME", "localhost"):
        assert word not in text
