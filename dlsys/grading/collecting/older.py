"""Notebooks of nbformat 3, as Jupyter wrote them until 2015: nbformat itself converts them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

# The types of cells, with what each needs beside its text.
_FIELDS: dict[str, dict[str, Any]] = {
    "code": {"outputs": [], "language": "python", "collapsed": False},
    "heading": {"level": 1},
    **{kind: {} for kind in ("markdown", "raw", "html")},
}


def converted(sheets: Any, most: int) -> list[Any] | None:
    """The cells of the worksheets of nbformat 3 as nbformat 4 has them, `most` and one at most.

    None where there are no worksheets; None in the place of cells where one is no cell. nbformat
    trusts what it is given, so it is given the types, texts and names of cells alone.
    """
    if not isinstance(sheets, list):
        return None
    cells = list(islice(_plain(sheets), most + 1))
    if None in cells:
        return cells

    from nbformat import convert, from_dict

    old = {"nbformat": 3, "nbformat_minor": 0, "metadata": {}, "worksheets": [{"cells": cells}]}
    for cell in (new := convert(from_dict(old), 4).cells):
        del cell["id"]  # drawn just now, and by it nothing was released
    return list(new)


def _plain(sheets: list[Any]) -> Iterator[dict[str, Any] | None]:
    for sheet in sheets:
        cells = sheet.get("cells") if isinstance(sheet, dict) else None
        yield from map(_cell, cells if isinstance(cells, list) else [None])


def _cell(cell: Any) -> dict[str, Any] | None:
    kind = cell.get("cell_type") if isinstance(cell, dict) else None
    if not isinstance(kind, str) or kind not in _FIELDS:
        return None
    text = cell.get("input" if kind == "code" else "source")
    if isinstance(text, list) and all(isinstance(line, str) for line in text):
        text = "".join(text)
    if not isinstance(text, str):
        return None
    fields = dict(_FIELDS[kind])
    if kind == "heading" and type(level := cell.get("level")) is int:
        fields["level"] = max(1, min(level, 6))
    text_in = {"input" if kind == "code" else "source": text}
    return {"cell_type": kind, "metadata": _name(cell.get("metadata")), **fields, **text_in}


def _name(metadata: Any) -> dict[str, Any]:
    """nbgrader's name of a cell, as metadata."""
    role = metadata.get("nbgrader") if isinstance(metadata, dict) else None
    name = role.get("grade_id") if isinstance(role, dict) else None
    return {"nbgrader": {"grade_id": name}} if isinstance(name, str) else {}
