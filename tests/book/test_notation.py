"""The page of notation: a symbol means one thing, and what a table calls it in the code is there."""

import importlib
import inspect
import pkgutil
import re

import pytest

import dlsys
from tests.contents import ROOT, SLUGS

BESIDE_THE_BOOK = {"exercises", "grading", "notebook"}
MODULES = {
    found.name: importlib.import_module(f"dlsys.{found.name}")
    for found in pkgutil.iter_modules(dlsys.__path__)
    if found.name not in BESIDE_THE_BOOK
}
TO_COME = {"$c$": "context_parallel", "$e$": "expert_parallel"}


def rows() -> list[tuple[str, str]]:
    """(first column, last column) of each row of each table: a symbol, and its name in the code."""
    lines = (ROOT / "chapters" / "notation.md").read_text("utf-8").splitlines()
    columns = [[c.strip() for c in line.split("|")[1:-1]] for line in lines if line.startswith("|")]
    return [(row[0], row[-1]) for row in columns]


def symbol_rows() -> list[tuple[str, str]]:
    """The rows of this book's own symbols; another table says what others call them."""
    return [row for row in rows() if re.fullmatch(r"\$[^$]*\$", row[0])]


NAMED = [(symbol, name) for symbol, names in rows() for name in re.findall(r"`([^`]+)`", names)]


def public(module):
    """The names that a module offers: those it lists, or those it defines itself."""
    own = [n for n, t in vars(module).items() if getattr(t, "__module__", "") == module.__name__]
    return {n: getattr(module, n) for n in getattr(module, "__all__", own) if n[0] != "_"}


def owners(name):
    """{module: thing} for what `Class.attribute` or `module.function(argument=)` begins with."""
    first, *others = re.sub(r"^1 / |\(.*", "", name).split(".")
    within = MODULES
    if first in MODULES and others:
        within, first = {first: MODULES[first]}, others[0]
    return {m: public(module)[first] for m, module in within.items() if first in public(module)}


def test_a_symbol_means_one_thing():
    symbols = [symbol for symbol, _ in symbol_rows()]
    assert len(symbols) > 20
    assert len(symbols) == len(set(symbols))


def test_only_letters_of_chapters_to_come_have_no_name():
    waiting = {symbol for symbol, slug in TO_COME.items() if slug not in SLUGS}
    assert {symbol for symbol, names in symbol_rows() if "`" not in names} == waiting


@pytest.mark.parametrize(("symbol", "name"), NAMED)
def test_the_names_that_notation_promises_exist(symbol, name):
    """`[module.]Class.attribute` or `function(argument=)`, of one thing in the whole package."""
    things = {id(thing): thing for thing in owners(name).values()}
    assert len(things) == 1, f"{symbol}: {name} is in {[*owners(name)]}; name the one module"
    (thing,) = things.values()
    path, argument = re.fullmatch(r"(?:1 / )?([\w.]+)(?:\((?:(\w+)=)?\))?", name).groups()
    _, *members = path.split(".")
    for member in members[path.split(".")[0] in MODULES :]:
        known = set(dir(thing)) | set(getattr(thing, "__annotations__", {}))
        assert member in known, f"{symbol}: {name} has no {member}"
        thing = getattr(thing, member, None)
    if argument:
        assert argument in inspect.signature(thing).parameters, f"{symbol}: {name}"


@pytest.mark.parametrize("slug", SLUGS)
def test_a_chapter_has_a_row_in_the_notation(slug):
    """One that names something which its package offers."""
    assert slug in {module for _, name in NAMED for module in owners(name)}
