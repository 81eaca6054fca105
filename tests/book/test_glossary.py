"""The glossary has the words that the pages use: found on the pages, and not on a typed list."""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from functools import cache

import pytest

from dlsys.hardware import DEVICES
from dlsys.transformer import CATALOGUE as MODELS
from tests.book.test_chapters import CHAPTERS, WITH_MORE, cells, descriptions, glossary_terms, prose
from tests.book.test_notation import MODULES, public
from tests.contents import SLUGS

# With one of these no pair of words is a term.
FUNCTION_WORDS = """
    a about across after again all also among an and another any anybody are as assume at be because before between both
    but by can come compute could do does down each eight even every everybody far few five for four from
    get go had half has have here hold how if in into is it its just keep kept last least less little make
    many may more most much must need next no nobody not nothing now of off on one only or other our out
    over own pass per read same say second send seven several should show since six so some stay still such
    take ten than that the their them then there they this three through throw to too two under until up
    very was way we what when where whether which while who whose whole why will with within without word
    work would you your
"""
# Pairs that pages share, and that mean what their words mean: a new pair is put here, or explained.
PLAIN = """
    billion parameters; busiest rank; billion token; card carries; cut matrices; data parallel; data sheets; device waits; drift apart; dropout masks;
    equally long; find fault; full recomputation; grouped queries; ranks share;
    first line; first rank; first stage; first step; flash attention; forward bar; gantt chart; hide behind; let rank; rank first; simulated rank; token uses; token visits; gpt small; held back;
    hundred times; large buffer; larger batch; line chart; million token; thousand token; logarithmic axis; loss falls; matrix products; new token; new weights;
    random numbers; rank adds; ranks run; ranks wait; real processes; small gpt; small messages; square root;
    tensor parallel; thousand times; training run; trillion tokens; true gradient; twenty tokens; published run;
    best plan; tensor axis; count bytes; logarithmic axes; long run; mean loss; fewer tokens; device shares; rank updates; training step; large model; dotted line
"""
# The same of pairs that hold a function word, in names: `share_of_step`.
PLAIN_IN_NAMES = """
    a device; as one; device at; every layer; to hide; end of; flop for; in order; is cut; of step; on h; of two; on any; rank for; power
    of; ring all; second in; shape of; share of; step to; train on; two levels; between nodes; per rank; plan for; tokens to
"""
UNITS = "GB MB KB TB PB TFLOP"
EMPHASIS = """
    additive; composition; first by columns, then by rows; gradients; hierarchical; linear; many devices;
    one; samples need not meet in one pass; summed over the ranks; weights
"""


def words(text):
    """Words in small letters, without a plural's s; the parts of a hyphenated word stand alone."""
    found = re.findall(r"[a-z]+", text.lower())
    return tuple(re.sub(r"(?<=[a-rt-z]{2})s$", "", re.sub(r"(?<=ch|ss)es$", "", w)) for w in found)


def listed(text):
    return {words(item) for item in text.split(";")}


@cache
def explained():
    """The terms of the glossary, and every pair of words within one."""
    terms = [words(term) for term in glossary_terms()]
    return {*terms, *(term[i : i + 2] for term in terms for i in range(len(term) - 1))}


@cache
def spoken():
    """What is said on each page: prose, captions, alternative texts, and the table of notation."""
    others = [CHAPTERS / f"{name}.md" for name in ("intro", "cheat_sheet", "catalogue")]
    pages = (*WITH_MORE, *others)
    said = {path.stem: "\n\n".join([prose(path), *descriptions(path)]) for path in pages}
    return said | {"notation": (CHAPTERS / "notation.md").read_text("utf-8")}


def shared_pairs(said):
    """Pairs of words that are on three pages and said four times, or on two and said six times."""
    pages, times, plain = defaultdict(set), Counter(), set(words(FUNCTION_WORDS))
    for page, text in said.items():
        for clause in re.split(r"[^\w\s'-]|\n\n", text):
            found = words(clause)
            for pair in itertools.pairwise(found):
                if not plain & set(pair) and min(map(len, pair)) > 2:
                    pages[pair].add(page)
                    times[pair] += 1
    often = {2: 6, 3: 4}
    return {
        pair for pair, on in pages.items() if len(on) > 1 and times[pair] >= often.get(len(on), 0)
    }


def test_every_pair_of_words_that_pages_share_is_in_the_glossary_or_plain():
    unexplained = shared_pairs(spoken()) - explained() - listed(PLAIN)
    assert sorted(map(" ".join, unexplained)) == [], (
        "explain each in the glossary, or call it plain"
    )


def test_a_pair_on_three_pages_is_found_and_one_with_a_function_word_is_not():
    said = dict.fromkeys("abc", "The residual streams of a layer.\n\nStream") | {
        "a": "A residual stream. " * 2
    }
    assert shared_pairs(said) == {("residual", "stream")}
    assert shared_pairs(dict.fromkeys("ab", "A loss scale. " * 2)) == set()
    assert shared_pairs(dict.fromkeys("ab", "A loss scale. " * 3)) == {("loss", "scale")}


def inline_bold(path):
    """Words in bold within a sentence: what a page defines there."""
    text = "\n\n".join(cell.source for cell in cells(path, "markdown"))
    text = re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)
    return {b.strip(" .") for b in re.findall(r"(?<=[\w,;:)] )\*\*([^*\n\"]{2,40})\*\*", text)}


@pytest.mark.parametrize("path", WITH_MORE, ids=lambda p: p.stem)
def test_a_word_that_a_page_defines_in_bold_is_in_the_glossary(path):
    bold = {words(bold) for bold in inline_bold(path)}
    assert sorted(map(" ".join, bold - explained() - listed(EMPHASIS))) == []


def names():
    """What mechanisms call their public things and their fields, cut into words."""
    for slug in SLUGS:
        for name, thing in public(MODULES[slug]).items():
            parts = [name, *(vars(thing) if isinstance(thing, type) else [])]
            yield from (re.sub(r"(?<=[a-z])(?=[A-Z])", "_", part) for part in parts)


@cache
def spoken_pairs_of_names():
    """Two words of a name that three pages say: `peak_in_flight` holds "in flight"."""
    pairs = {w[i : i + 2] for w in map(words, map(spaced, names())) for i in range(len(w) - 1)}
    flat = {page: f" {' '.join(words(text))} " for page, text in spoken().items()}
    return {p for p in pairs if sum(f" {' '.join(p)} " in text for text in flat.values()) > 2}


def spaced(name):
    return name.replace("_", " ")


def test_two_words_of_a_name_that_pages_share_are_in_the_glossary_or_plain():
    plain = listed(PLAIN) | listed(PLAIN_IN_NAMES)
    assert sorted(map(" ".join, spoken_pairs_of_names() - explained() - plain)) == []


def test_no_pair_is_called_plain_that_pages_share_no_more():
    found = shared_pairs(spoken())
    assert sorted(map(" ".join, listed(PLAIN) - found - spoken_pairs_of_names())) == []
    assert sorted(map(" ".join, listed(PLAIN_IN_NAMES) - spoken_pairs_of_names())) == []


def abbreviations(text):
    """Words of capitals and digits: TP, HBM, E4M3; no unit, and no name of a device or a model."""
    named = re.split(r"[^A-Z0-9]+", " ".join(["gpt", *DEVICES, *MODELS]).upper())
    found = set(re.findall(r"(?<![\w-])[A-Z][A-Z0-9]+(?![\w-])", text))
    return found - set(named) - set(UNITS.split())


def test_an_abbreviation_that_pages_share_is_in_the_glossary():
    pages = Counter(short for text in spoken().values() for short in abbreviations(text))
    told = (CHAPTERS / "glossary.md").read_text("utf-8")
    shared = {short for short, times in pages.items() if times > 1}
    assert sorted(s for s in shared if not re.search(rf"\b{s}s?\b", told)) == []
    assert abbreviations("An H100 reads 80 GB of HBM by TP-2, in FP8.") == {"HBM", "FP8"}


def test_a_kind_of_parallelism_is_in_the_glossary():
    kinds = {
        words(kind)
        for text in spoken().values()
        for kind in re.findall(r"\b[A-Za-z]+ parallelism", text)
        if words(kind)[0] not in words(FUNCTION_WORDS)
    }
    assert kinds - explained() - {("naive", "parallelism")} == set()
