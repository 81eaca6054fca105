"""What chapters use to show things: a table, a refusal."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from dlsys.annotated import checked

_NUMBER = re.compile(r"[-+≈<>]?\d[\d,.]*(?: to \d[\d,.]*)?%?( [^\d\s]+)?")


@dataclass(frozen=True)
class Table:
    """A table that shows itself as HTML in a notebook and as aligned text elsewhere."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: tuple[bool, ...]

    def _repr_html_(self) -> str:
        def cells(tag: str, texts: Sequence[str]) -> str:
            return "".join(
                f'<{tag} style="text-align: {"right" if n else "left"}; padding: 0.2em 0.7em">'
                f"{escape(text)}</{tag.split()[0]}>"
                for text, n in zip(texts, self.numeric, strict=True)
            )

        head = cells('th scope="col"', self.columns)
        body = "\n".join(f"<tr>{cells('td', row)}</tr>" for row in self.rows)
        return (
            '<table class="dataframe">\n'
            f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"
        )

    def __repr__(self) -> str:
        lines = [self.columns, *self.rows]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.columns))]
        return "\n".join(
            "  ".join(
                cell.rjust(w) if n else cell.ljust(w)
                for cell, w, n in zip(line, widths, self.numeric, strict=True)
            ).rstrip()
            for line in lines
        )


@checked
def table(rows: Iterable[Sequence[Any]], columns: Sequence[str]) -> Table:
    """A table of `rows` under `columns`; whole numbers get thousands separators.

    A column whose cells are all numbers, with or without a unit ("14 GB", "3 to 4"), is set to the
    right.
    Raises ValueError for a row of another length than `columns`.
    """
    made = []
    for number, row in enumerate(rows):
        if len(row) != len(columns):
            raise ValueError(
                f"Row {number} has {len(row)} cells, but there are {len(columns)} columns."
            )
        made.append(tuple(_text(cell) for cell in row))
    numeric = tuple(
        bool(made) and all(_NUMBER.fullmatch(row[i]) for row in made) for i in range(len(columns))
    )
    return Table(tuple(columns), tuple(made), numeric)


def _text(cell: Any) -> str:
    if isinstance(cell, int) and not isinstance(cell, bool):
        return f"{cell:,}"
    return str(cell)


@checked
def refusal(error: type[Exception], function: Callable[..., Any], *args: Any, **more: Any) -> None:
    """Call `function` and print the error that it raises, in lines that fit a page.

    Raises AssertionError where it raises none, other errors as they come.
    """
    try:
        result = function(*args, **more)
    except error as raised:
        print(f"{error.__name__}:")
        for line in str(raised).splitlines():
            print(textwrap.fill(line, 76, initial_indent="  ", subsequent_indent="    "))
    else:
        raise AssertionError(f"no {error.__name__} was raised; the result is {result!r}")
