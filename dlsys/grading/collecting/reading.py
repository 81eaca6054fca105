"""Read a notebook that anybody may have written: what cannot be a notebook is refused, and why."""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from typing import Any

from dlsys.grading.collecting.older import converted
from dlsys.grading.collecting.outputs import without_outputs
from dlsys.grading.text import visible

MOST_BYTES = 10_000_000  # of a notebook without its stored outputs
MOST_STORED = 50_000_000  # of a file
MOST_CELLS = 1000
DEEPEST = 200
LONGEST_NAME = 200

ADVICE = "Hand in the .ipynb file as Jupyter saves it: File, Save, then File, Download."
_CLEAR = (
    "Clear its outputs (in Jupyter: Edit, Clear Outputs of All Cells), save it, and hand it in "
    "again."
)
_SHORTEN = (
    "Delete the data or the pictures that stand in the text of a cell, save it, and hand it in "
    "again."
)
# A text without an end reaches to the end of the file, so that every text is looked at once.
_JSON_TEXT = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
_NO_BRACKETS = re.compile(r"[^][{}]+")
_TYPES = ("code", "markdown", "raw")


class Refused(ValueError):  # noqa: N818  (what happens to it, named as it is told)
    """What was handed in cannot be read; the message says why and what to do."""


def read(path: Path, below: Path | None = None) -> dict[str, Any]:
    """A notebook's cells, checked: their types, sources, and the names they go by; nothing else.

    Folders between `below` and the file must be folders and no links. Raises Refused.
    """
    name = visible(path.name, LONGEST_NAME)
    return parse(name, read_bytes(path, below, MOST_STORED))


def parse(name: str, data: bytes) -> dict[str, Any]:
    """What `read` gives of a notebook whose bytes are `data`; `name` is what it is called."""
    try:
        data = without_outputs(data)
    except ValueError as error:
        raise Refused(f"{name} cannot be read: {error}. {_CLEAR}") from None
    if len(data) > MOST_BYTES:
        raise Refused(
            f"{name} is larger than {MOST_BYTES / 1e6:g} MB without its outputs. {_SHORTEN}"
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Refused(f"{name} is not UTF-8 text. {ADVICE}") from None
    if not text.strip():
        raise Refused(f"{name} is empty. {ADVICE}")
    if _depth(text) > DEEPEST:
        raise Refused(f"{name} is nested more than {DEEPEST} levels deep. {ADVICE}")
    try:
        notebook = json.loads(text)
    except (ValueError, RecursionError) as error:
        what = str(error) if isinstance(error, json.JSONDecodeError) else "a number is too long"
        raise Refused(f"{name} is not JSON, as notebooks are ({what}). {ADVICE}") from None
    try:
        return _checked(notebook)
    except Refused as error:
        raise Refused(f"{name} {error} {ADVICE}") from None


def read_bytes(path: Path, below: Path | None, most: int) -> bytes:
    """The bytes of an ordinary file; raises Refused for anything else, or for more than `most`."""
    name = visible(path.name, LONGEST_NAME)
    try:
        handle = _open(path, below)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK, errno.ENOTDIR):
            reason = "is a link or behind one, and links are not followed"
        else:
            reason = f"cannot be opened ({error.strerror})"
        raise Refused(f"{name} {reason}. {ADVICE}") from None
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            kind = "a folder" if stat.S_ISDIR(status.st_mode) else "a device or a pipe"
            raise Refused(f"{name} is {kind} and no file. {ADVICE}")
        data = b"" if status.st_size > most else _all(handle, most + 1)
    except OSError as error:
        raise Refused(f"{name} cannot be read ({error.strerror}). {ADVICE}") from None
    finally:
        os.close(handle)
    if status.st_size > most or len(data) > most:
        raise Refused(f"{name} is larger than {most / 1e6:g} MB. {_CLEAR}")
    return data


def modified(path: Path) -> datetime | None:
    """When a file was last written, in UTC; None where it is gone."""
    try:
        return datetime.fromtimestamp(path.lstat().st_mtime, UTC)
    except (OSError, OverflowError, ValueError):
        return None


def _open(path: Path, below: Path | None) -> int:
    flags = os.O_RDONLY
    for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_NOCTTY", "O_BINARY"):
        flags |= getattr(os, name, 0)
    if below is None or os.open not in os.supports_dir_fd:
        return os.open(path, flags)
    *folders, name = path.relative_to(below).parts
    here = os.open(below, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for folder in folders:
            parent, here = here, os.open(folder, flags | os.O_DIRECTORY, dir_fd=here)
            os.close(parent)
        return os.open(name, flags, dir_fd=here)
    finally:
        os.close(here)


def _all(handle: int, most: int) -> bytes:
    parts, length = [], 0
    while length < most and (part := os.read(handle, most - length)):
        parts.append(part)
        length += len(part)
    return b"".join(parts)


def _depth(text: str) -> int:
    """How deep brackets are nested outside of texts, in time linear in the length."""
    brackets = _NO_BRACKETS.sub("", _JSON_TEXT.sub("", text))
    steps = {"[": 1, "{": 1, "]": -1, "}": -1}
    return max(accumulate(steps[bracket] for bracket in brackets), default=0)


def _checked(notebook: Any) -> dict[str, Any]:
    if not isinstance(notebook, dict) or "nbformat" not in notebook:
        raise Refused("is JSON, but no notebook.")
    version = notebook["nbformat"]
    if type(version) is not int or version not in (3, 4):
        raise Refused(
            f"is of a notebook format that is not read here (nbformat {version!r:.20}; 3 and 4 are "
            "read). Open and save it in Jupyter, or run `jupyter nbconvert --to notebook FILE`."
        )
    cells = (
        notebook.get("cells") if version == 4 else converted(notebook.get("worksheets"), MOST_CELLS)
    )
    if not isinstance(cells, list):
        raise Refused("has no list of cells.")
    if len(cells) > MOST_CELLS:
        raise Refused(f"has {len(cells):,} cells; at most {MOST_CELLS:,} are read.")
    checked = [_cell(cell, number) for number, cell in enumerate(cells, 1)]
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": checked}


def _cell(cell: Any, number: int) -> dict[str, Any]:
    if not isinstance(cell, dict) or cell.get("cell_type") not in _TYPES:
        raise Refused(f"has something else than a cell as its cell {number}.")
    source = cell.get("source")
    if isinstance(source, list) and all(isinstance(line, str) for line in source):
        source = "".join(source)
    if not isinstance(source, str):
        raise Refused(f"has no text as the source of its cell {number}.")
    if not _encodable(source):
        raise Refused(f"has half a character (a lone surrogate) in its cell {number}; retype it.")
    checked = {"cell_type": cell["cell_type"], "metadata": {}, "source": source}
    if isinstance(metadata := cell.get("metadata"), dict):
        role = metadata.get("nbgrader")
        if isinstance(role, dict) and _is_name(role.get("grade_id")):
            checked["metadata"] = {"nbgrader": {"grade_id": role["grade_id"]}}
    if _is_name(cell.get("id")):
        checked["id"] = cell["id"]
    return checked


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= LONGEST_NAME and _encodable(value)


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
