"""Which files lie in a folder of submissions: whose they are, and since when.

    STUDENT/anything.ipynb   STUDENT/SLUG/SLUG.ipynb (nbgrader)   SLUG/STUDENT.ipynb
    STUDENT.ipynb   STUDENT_SLUG.ipynb   SLUG_STUDENT.ipynb
    doejane_LATE_123_4567_SLUG-1.ipynb (Canvas)   Jane Doe_123_assignsubmission_file_/... (Moodle)

A zip file of a student counts as a folder (`packed`). Links are listed, for somebody has handed
them in, and never followed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from dlsys.grading.collecting import naming, packed
from dlsys.grading.collecting.naming import Label
from dlsys.grading.collecting.reading import MOST_STORED, Refused, modified, read_bytes
from dlsys.grading.collecting.roster import Roster

TIMESTAMP = "timestamp.txt"
_LEFT_THERE = re.compile(rf"\.|__|{re.escape(TIMESTAMP)}\Z")  # by systems, editors and nbgrader
DEEPEST = 4  # folders in a student's folder
MOST_FILES = 5000  # in all of these together
MOST_ZIPS = 5  # that are opened for one student
MOST_NOTEBOOKS = 20  # that are read
MOST_BYTES = 100_000_000  # in these together, stored outputs included


@dataclass(frozen=True)
class File:
    """A file that somebody handed in. `slug` is the assignment that its folder names; `home` the
    student's folder, where it is in one; `member` its name in the zip file at `path`, and `size`
    its bytes there; `refusal` why that cannot be opened."""

    path: Path
    label: Label
    slug: str | None = None
    home: Path | None = None
    member: str = ""
    size: int | None = None
    refusal: str = ""

    @property
    def name(self) -> str:
        """What the student called it, as far as a platform leaves that to be seen."""
        inside = packed.parts(self.member)
        return inside[-1] if inside else self.label.file or self.path.name

    @property
    def is_notebook(self) -> bool:
        """Whether it is called one, or as one that a browser has renamed."""
        return naming.is_notebook(self.name) or naming.is_misnamed(self.name)

    @property
    def is_empty_folder(self) -> bool:
        """Whether it stands for a student's folder without anything in it."""
        return self.path == self.home


def files_in(submissions: Path, slugs: list[str], known: Roster) -> Iterator[File]:
    """The files in a folder of submissions, or the one file that it is.

    Other files than notebooks count where they are a student's. Raises ValueError where it is
    neither a folder nor a notebook.
    """
    folder = submissions.resolve().name
    if submissions.is_dir():
        yield from _inside(submissions, slugs, folder, known)
    elif not os.path.lexists(submissions):
        raise ValueError(f"There is no file or folder {submissions}.")
    elif submissions.name.casefold().endswith(".ipynb"):
        folder = submissions.resolve().parent.name
        label = naming.platforms(submissions.name)
        yield File(submissions, label or naming.students(submissions.name, slugs, folder))
    else:
        raise ValueError(
            f"{submissions} is no folder of submissions, and no notebook. Name the folder (unpack "
            "what a platform packed); a roster comes after --roster."
        )


def _inside(
    place: Path, slugs: list[str], folder: str, known: Roster, slug: str | None = None
) -> Iterator[File]:
    """What is in a folder that holds many students' files, all for `slug` where it is given."""
    for entry in _entries(place):
        path = Path(entry.path)
        label = naming.platforms(entry.name)
        if _is_folder(entry):
            # Who is called as an assignment could otherwise hand in for others.
            if slug is None and entry.name in slugs and not known.find(entry.name):
                yield from _inside(path, slugs, folder, known, entry.name)
            else:
                whose = label or Label(entry.name)
                found = list(_below(path, whose, slug, slugs, None if label else path))
                yield from found or [File(path, whose, slug, path)]
            continue
        file = File(path, label or naming.students(entry.name, slugs, folder), slug)
        is_ours = ".ipynb." in entry.name.casefold() or naming.slug_in(entry.name, slugs)
        meant = naming.is_misnamed(entry.name) and is_ours
        if (
            label
            or meant
            or naming.is_notebook(entry.name)
            or entry.is_symlink()
            or known.find(file.label.name)
        ):
            yield file


def _below(
    home: Path, label: Label, slug: str | None, slugs: list[str], own: Path | None
) -> Iterator[File]:
    """What is in a student's folder, level by level: what is deep in it is cut off first.

    Of files that lead to no notebook one of each folder is enough, to name it.
    """
    left, level = MOST_FILES, [(home, slug)]
    for _ in range(DEEPEST):
        deeper = []
        for place, named in level:
            entries = _entries(place) if left else []
            nowhere = [entry for entry in entries if _leads_nowhere(entry)]
            ways = [entry for entry in entries if not _leads_nowhere(entry)][:left]
            left -= len(ways)
            misnamed = [entry for entry in nowhere if naming.is_misnamed(entry.name)]
            for entry in [*ways, *(misnamed[:MOST_NOTEBOOKS] or nowhere[:1])]:
                path = Path(entry.path)
                if _is_folder(entry):
                    deeper.append((path, entry.name if entry.name in slugs else named))
                else:
                    yield File(path, replace(label, file=""), named, own)
        level = deeper


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Whether it is to be looked into; one that is called a notebook is refused as that."""
    return entry.is_dir(follow_symlinks=False) and not entry.name.casefold().endswith(".ipynb")


def _leads_nowhere(entry: os.DirEntry[str]) -> bool:
    """Whether it is neither a notebook nor what may hold one."""
    is_file = not _is_folder(entry) and not entry.is_symlink()
    return is_file and not entry.name.casefold().endswith((".ipynb", ".zip"))


def few(
    files: list[File], slugs: Iterable[str], below: Path | None
) -> tuple[list[File], list[str]]:
    """The notebooks among a student's files, those with a released name first, and what to say of
    the others; without any, what there is instead."""
    files = [file for file in files if not file.is_empty_folder]
    plain = [file for file in files if not packed.is_zip(file.name)]
    names = {f"{slug}.ipynb" for slug in slugs}

    def order(file: File) -> tuple[Any, ...]:
        strange = file.name.casefold() not in names, not naming.slug_in(file.name, slugs)
        depth = len(file.path.parts) + len(packed.parts(file.member))
        return naming.is_misnamed(file.name), *strange, depth, str(file.path), file.member

    zips = sorted((file for file in files if packed.is_zip(file.name)), key=order)
    opened = zips[:MOST_ZIPS]
    inside = [each for file in opened for each in _unpacked(file, slugs, below)]
    found = sorted((file for file in (*plain, *inside) if file.is_notebook), key=order)
    read = _that_fit(found)
    notes = [
        f"Of {len(there)} {what} that were handed in, {len(taken)} were looked into, those with a "
        "released name first."
        for what, there, taken in (("zip files", zips, opened), ("notebooks", found, read))
        if len(taken) < len(there)
    ]
    return read or [*inside, *plain][:MOST_NOTEBOOKS], notes


def _that_fit(files: list[File]) -> list[File]:
    """The first of them, as many as are read for one student."""
    sizes = accumulate(map(_bytes_to_read, files))
    fitting = [file for file, size in zip(files, sizes, strict=True) if size <= MOST_BYTES]
    return fitting[:MOST_NOTEBOOKS]


def _bytes_to_read(file: File) -> int:
    try:
        size = file.path.lstat().st_size if file.size is None else file.size
    except OSError:
        return 0
    return size if size <= MOST_STORED else 0  # else it is refused unread


def _unpacked(file: File, slugs: Iterable[str], below: Path | None) -> list[File]:
    """The notebooks in a zip file, or itself with the reason why there are none."""
    try:
        members = packed.notebooks(file.path, below)
    except Refused as error:
        return [replace(file, refusal=str(error))]
    return [
        replace(
            file,
            member=name,
            size=size,
            slug=next((part for part in packed.parts(name) if part in slugs), file.slug),
        )
        for name, size in members.items()
    ]


def _entries(place: Path) -> list[os.DirEntry[str]]:
    """What is in a folder, in order of name, without what others than its owner leave there."""
    try:
        with os.scandir(place) as entries:
            shown = [entry for entry in entries if not _LEFT_THERE.match(entry.name)]
    except OSError:
        return []
    return sorted(shown, key=lambda entry: entry.name)


def submitted(
    file: File, slugs: Iterable[str], below: Path | None, timestamps: bool
) -> datetime | None:
    """When a file was handed in: by its date, or with `timestamps` as `stamped` says."""
    return (stamped(file, slugs, below) if timestamps else None) or modified(file.path)


def stamped(file: File, slugs: Iterable[str], below: Path | None) -> datetime | None:
    """When nbgrader collected a file, by STUDENT/SLUG/timestamp.txt; None where there is no such
    note, or none that can be read.

    Only the place tells it from one that a student has packed. One anywhere else is the student's.
    """
    if below is not None and file.home is not None and file.home.parent == below:
        assignment, *inner = file.path.relative_to(file.home).parts
        if inner and assignment in slugs:
            with suppress(ValueError):
                text = read_bytes(file.home / assignment / TIMESTAMP, below, 1000).decode()
                return parse_timestamp(text)
    return None


def parse_timestamp(text: str) -> datetime:
    """The time that nbgrader writes: 2025-02-02 15:58:23.948203 UTC; raises ValueError."""
    moment, _, zone = text.strip().rpartition(" ")
    try:
        if zone[:1].isalpha():
            return datetime.fromisoformat(moment).replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)
        # There is no zone, or one as a difference, with or without a space before it.
        when = datetime.fromisoformat(re.sub(r" (?=[+-])", "", text.strip()))
        return when.astimezone(UTC) if when.tzinfo else when.replace(tzinfo=UTC)
    except (ValueError, KeyError, OSError, OverflowError):
        raise ValueError(f"{text[:40]!r} is no time as nbgrader writes it.") from None
