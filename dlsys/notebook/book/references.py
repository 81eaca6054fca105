"""Citations by name and year, and numbers of what has one, for every reader of Markdown.

A page writes {cite:p}`li2020` for "(Li et al., 2020)", {cite:t}`li2020` for "Li et al. (2020)",
{numref}`fig-ring` for "Fig. 4", {numref}`tab-sums` for "Table 2" and {eq}`eq-ring` for "(1)".
Sphinx makes links of them; a notebook that is downloaded has the words.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from pybtex.database import Entry, parse_file
from pybtex.plugin import register_plugin as register_style
from pybtex.style.formatting.plain import Style
from pybtex.style.labels import BaseLabelStyle
from sphinx.application import Sphinx
from sphinxcontrib.bibtex.plugin import register_plugin
from sphinxcontrib.bibtex.style.referencing import BracketStyle
from sphinxcontrib.bibtex.style.referencing.author_year import AuthorYearReferenceStyle

CITATION = re.compile(r"\{cite:([pt])\}`([^`]+)`")
NUMBER = re.compile(r"\{(numref|eq)\}`([^`]+)`")
TABLE = re.compile(r"^:::\{table\} (.*)\n:name: (\S+)\n+((?:\|.*\n)+)\n*:::$", re.M)
LABEL = re.compile(r"\$\$ \((eq-[\w-]+)\)")  # behind a displayed equation


def _round() -> BracketStyle:
    return BracketStyle(left="(", right=")")


@dataclass
class NamesAndYears(AuthorYearReferenceStyle):
    """The extension's author-year style, in round brackets."""

    bracket_parenthetical: BracketStyle = field(default_factory=_round)
    bracket_textual: BracketStyle = field(default_factory=_round)


class Labels(BaseLabelStyle):
    """In the list of references each entry stands behind what the pages call it."""

    def format_labels(self, entries: Iterable[Entry]) -> Iterator[str]:
        """Yield the name and year of each entry."""
        yield from (f"{_names(entry, entry.key)}, {_year(entry)}" for entry in entries)


class List(Style):
    """The list of references, by names and years."""

    default_label_style = Labels


def register() -> None:
    """Make the styles known under the name that _config.yml gives."""
    group = "sphinxcontrib.bibtex.style.referencing"
    register_plugin(group, "names_and_years", NamesAndYears, force=True)
    register_style("pybtex.style.formatting", "names_and_years", List, force=True)


def written_out(app: Sphinx, page: str, text: str) -> str:
    """Return a page's `text` with words in the place of citations and of numbered references."""
    files = [Path(app.srcdir, f) for f in getattr(app.config, "bibtex_bibfiles", None) or []]
    entries = {k: e for file in files if file.is_file() for k, e in read_entries(file).items()}
    return cited(numbered(text, _numbers(app, page)), entries)


@cache  # every cell in words of every page asks for them
def read_entries(path: Path) -> Mapping[str, Entry]:
    """Return the entries of a .bib file by their keys."""
    return dict(parse_file(str(path), "bibtex").entries)


def cited(text: str, entries: Mapping[str, Entry]) -> str:
    """Return `text` with names and years where it cites by key, or the key of an unknown work."""

    def words(match: re.Match[str]) -> str:
        works = {
            key: entries.get(key, Entry("misc")) for key in map(str.strip, match[2].split(","))
        }
        pairs = [(_names(work, key), _year(work)) for key, work in works.items()]
        if match[1] == "t":
            return ", ".join(f"{names} ({year})" for names, year in pairs)
        return "(" + "; ".join(f"{names}, {year}" for names, year in pairs) + ")"

    return CITATION.sub(words, text)


def numbered(text: str, numbers: Mapping[str, str]) -> str:
    """Return `text` with the numbers of what it names, and each table and equation with its own.

    What has no number, as where the cell that draws it failed, keeps its name.
    """

    def named(name: str) -> str:
        kind = {"fig": "Fig. {}", "tab": "Table {}", "eq-": "({})"}.get(name[:3], "{}")
        return kind.format(numbers[name]) if name in numbers else name

    text = TABLE.sub(lambda match: f"{named(match[2])}: {match[1]}\n\n{match[3]}", text)
    text = NUMBER.sub(lambda match: named(match[2]), text)
    return LABEL.sub(lambda match: rf"\tag{{{numbers.get(match[1], match[1])}}}$$", text)


def _numbers(app: Sphinx, page: str) -> dict[str, str]:
    """Return what Sphinx counted on a page: the number of each figure, table and equation."""
    kinds = app.env.toc_fignumbers.get(page, {})
    return {
        node.removeprefix("equation-"): ".".join(map(str, number))
        for nodes in kinds.values()
        for node, number in nodes.items()
    }


def _names(work: Entry, key: str) -> str:
    people = work.persons.get("author", ())
    parts = [" ".join((*p.prelast_names, *p.last_names)).strip("{}") for p in people]
    return f"{parts[0]} et al." if len(parts) > 2 else " and ".join(parts) or key


def _year(work: Entry) -> str:
    return str(work.fields.get("year", "n.d."))
