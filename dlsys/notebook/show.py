"""What chapters use to show things: a table, and a caption for what is not a Matplotlib figure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any


@dataclass(frozen=True)
class Table:
    """A table that shows itself as HTML in a notebook and as aligned text elsewhere."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: tuple[bool, ...]

    def _repr_html_(self) -> str:
        sides = ["right" if n else "left" for n in self.numeric]
        head = "".join(
            f'<th scope="col" style="text-align: {side}">{escape(c)}</th>'
            for c, side in zip(self.columns, sides, strict=True)
        )
        body = "\n".join(
            "<tr>"
            + "".join(
                f'<td style="text-align: {side}">{escape(cell)}</td>'
                for cell, side in zip(row, sides, strict=True)
            )
            + "</tr>"
            for row in self.rows
        )
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


def table(rows: Iterable[Sequence[Any]], columns: Sequence[str]) -> Table:
    """A table of `rows` under `columns`; whole numbers get thousands separators, others as they are.

    A column whose cells are all numbers, or text that begins with a digit, is set to the right.
    Raises ValueError for a row of another length than `columns`.
    """
    made = []
    for number, row in enumerate(rows):
        if len(row) != len(columns):
            raise ValueError(f"row {number} has {len(row)} cells, but there are {len(columns)} columns")
        made.append(tuple(_text(cell) for cell in row))
    numeric = tuple(
        bool(made) and all(row[i].lstrip("-+≈<>").strip()[:1].isdigit() for row in made)
        for i in range(len(columns))
    )
    return Table(tuple(columns), tuple(made), numeric)


def _text(cell: Any) -> str:
    if isinstance(cell, int) and not isinstance(cell, bool):
        return f"{cell:,}"
    return str(cell)


@dataclass(frozen=True)
class Captioned:
    """Something that shows itself as HTML, in a `<figure>` with its caption and a description."""

    html: str
    caption: str
    alt: str

    def _repr_html_(self) -> str:
        return (
            f'<figure role="group" aria-label="{escape(self.alt)}">\n{self.html}\n'
            f"<figcaption>{escape(self.caption)}</figcaption>\n</figure>"
        )

    def __repr__(self) -> str:
        return f"{self.caption} [{self.alt}]"


def captioned(shown: Any, caption: str, alt: str) -> Captioned:
    """An animation or other HTML output with a caption, and `alt` for readers who cannot see it."""
    html = shown if isinstance(shown, str) else shown._repr_html_()
    return Captioned(html, caption, alt)
