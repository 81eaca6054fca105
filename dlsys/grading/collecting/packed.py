"""Notebooks in a zip file, unpacked in memory: no name in it leads to any place on the disk."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import Any
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

from dlsys.grading.collecting import naming, reading
from dlsys.grading.collecting.reading import (
    ADVICE,
    LONGEST_NAME,
    MOST_STORED,
    Refused,
    read_bytes,
)
from dlsys.grading.text import visible

MOST_MEMBERS = 1000
MOST_TIMES = 200  # that a notebook may be as large as it is packed
_ENTRY = b"PK\x01\x02"  # with which each entry of the table of contents begins


def is_zip(name: str) -> bool:
    """Whether a file is called as one."""
    return name.casefold().endswith(".zip")


def notebooks(path: Path, below: Path | None) -> dict[str, int]:
    """The names of the notebooks in a zip file, without what systems leave there, and their bytes.

    Zip files in it stay closed. Raises Refused where there is no notebook.
    """
    with _opened(path, below) as archive:
        entries = archive.infolist()
        found = {e.filename: e.file_size for e in entries if _is_notebook(e.filename)}
    if not found:
        shown = visible(path.name, LONGEST_NAME)
        raise Refused(
            f"{shown} is no notebook and holds none (zip files in it count as none). {ADVICE}"
        )
    return found


def read(path: Path, below: Path | None = None, member: str = "") -> dict[str, Any]:
    """`reading.read` of a file, or of the notebook called `member` in a zip file."""
    if not member:
        return reading.read(path, below)
    name = visible(f"{parts(member)[-1]} in {path.name}", LONGEST_NAME)
    with _opened(path, below) as archive:
        entry = archive.getinfo(member)
        if wrong := _wrong(entry):
            raise Refused(f"{name} {wrong}. {ADVICE}")
        data = archive.read(entry)  # never more than the size that was just looked at
    return reading.parse(name, data)


@contextmanager
def _opened(path: Path, below: Path | None) -> Iterator[ZipFile]:
    name = visible(path.name, LONGEST_NAME)
    data = read_bytes(path, below, MOST_STORED)
    if data.count(_ENTRY) > MOST_MEMBERS:
        raise Refused(f"{name} holds more than {MOST_MEMBERS:,} files. {ADVICE}")
    try:
        with ZipFile(BytesIO(data)) as archive:
            yield archive
    except Refused:
        raise
    except Exception as error:  # of many kinds, where a zip file is damaged
        what = visible(str(error), LONGEST_NAME)
        raise Refused(
            f"{name} is no notebook, and no zip file that can be unpacked ({what}). {ADVICE}"
        ) from None


def parts(member: str) -> tuple[str, ...]:
    """The folders that a name in a zip file leads through, some of Windows, and the last name."""
    return PurePosixPath(member.replace("\\", "/")).parts


def _is_notebook(name: str) -> bool:
    hidden = any(part.startswith((".", "__", "/")) for part in parts(name))  # or leads out of it
    called = naming.is_notebook(name) or naming.is_misnamed(name)
    return called and not hidden and len(name) <= LONGEST_NAME


def _wrong(entry: ZipInfo) -> str:
    """Why an entry is not unpacked; empty where it is."""
    if stat.S_ISLNK(entry.external_attr >> 16):
        return "is a link, and links are not followed"
    if entry.flag_bits & 1:
        return "is encrypted"
    if entry.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
        return "is packed in a way that is not read here"
    if entry.file_size > min(MOST_STORED, MOST_TIMES * max(entry.compress_size, 1000)):
        most = f"{MOST_STORED / 1e6:g} MB or {MOST_TIMES} times what it is packed"
        return f"is larger than {most}"
    return ""
