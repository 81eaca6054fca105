"""Which files lie in a folder of submissions: whose they are, and since when.

    STUDENT/anything.ipynb   STUDENT/SLUG/SLUG.ipynb (nbgrader)   SLUG/STUDENT.ipynb
    STUDENT.ipynb   STUDENT_SLUG.ipynb   SLUG_STUDENT.ipynb
    doejane_LATE_123_4567_SLUG-1.ipynb (Canvas)   Jane Doe_123_assignsubmission_file_/... (Moodle)

Links are listed, for somebody has handed them in, and never followed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from zoneinfo import ZoneInfo

from dlsys.grading.collecting import naming
from dlsys.grading.collecting.naming import Label
from dlsys.grading.collecting.reading import modified, read_bytes
from dlsys.grading.collecting.roster import Roster

TIMESTAMP = "timestamp.txt"
DEEPEST = 4  # folders in a student's folder
MOST_FILES = 200  # in one of them


@dataclass(frozen=True)
class File:
    """A file that somebody handed in. `slug` is the assignment that its folder names; `home` the
    student's folder, where it is in one."""

    path: Path
    label: Label
    slug: str | None = None
    home: Path | None = None

    @property
    def name(self) -> str:
        """What the student called it, as far as a platform leaves that to be seen."""
        return self.label.file or self.path.name

    @property
    def is_notebook(self) -> bool:
        """Whether it is called one."""
        return self.name.casefold().endswith(".ipynb")

    @property
    def is_empty_folder(self) -> bool:
        """Whether it stands for a student's folder without anything in it."""
        return self.path == self.home


def files_in(submissions: Path, slugs: list[str], known: Roster) -> Iterator[File]:
    """The files in a folder of submissions, or the one file that it is.

    Other files than notebooks count where they are a student's. Raises ValueError where there is
    nothing.
    """
    folder = submissions.resolve().name
    if submissions.is_dir():
        yield from _inside(submissions, slugs, folder, known)
    elif submissions.is_file() or submissions.is_symlink():
        folder = submissions.resolve().parent.name
        label = naming.platforms(submissions.name)
        yield File(submissions, label or naming.students(submissions.name, slugs, folder))
    else:
        raise ValueError(f"There is no file or folder {submissions}.")


def _inside(
    place: Path, slugs: list[str], folder: str, known: Roster, slug: str | None = None
) -> Iterator[File]:
    """What is in a folder that holds many students' files, all for `slug` where it is given."""
    for entry in _entries(place):
        path = Path(entry.path)
        label = naming.platforms(entry.name)
        if entry.is_dir(follow_symlinks=False) and not entry.name.casefold().endswith(".ipynb"):
            if slug is None and entry.name in slugs:
                yield from _inside(path, slugs, folder, known, entry.name)
            else:
                whose = label or Label(entry.name)
                found = list(_below(path, whose, slug, slugs, None if label else path))
                yield from found or [File(path, whose, slug, path)]
            continue
        file = File(path, label or naming.students(entry.name, slugs, folder), slug)
        if label or file.is_notebook or entry.is_symlink() or known.find(path.stem):
            yield file


def _below(
    place: Path, label: Label, slug: str | None, slugs: list[str], home: Path | None, deep: int = 1
) -> Iterator[File]:
    """What is in a student's folder."""
    for entry in _entries(place, MOST_FILES):
        path = Path(entry.path)
        if entry.is_dir(follow_symlinks=False) and not entry.name.casefold().endswith(".ipynb"):
            if deep < DEEPEST:
                named = entry.name if entry.name in slugs else slug
                yield from _below(path, label, named, slugs, home, deep + 1)
        elif entry.name != TIMESTAMP:
            yield File(path, replace(label, file=""), slug, home)


def _entries(place: Path, most: int | None = None) -> list[os.DirEntry[str]]:
    """What is in a folder, in order of name, without what systems and editors leave there."""
    try:
        with os.scandir(place) as entries:
            shown = (entry for entry in entries if not entry.name.startswith((".", "__")))
            return sorted(islice(shown, most), key=lambda entry: entry.name)
    except OSError:
        return []


def submitted(file: File, below: Path | None) -> datetime | None:
    """When a file was handed in: as nbgrader noted it in the student's folder, or its date.

    A platform's folder holds only what the student put there, so no note in it counts.
    """
    folder = file.path.parent
    while file.home and folder.is_relative_to(file.home):
        try:
            text = read_bytes(folder / TIMESTAMP, below, 1000).decode()
            return parse_timestamp(text)
        except ValueError:  # none there, or none that can be read
            folder = folder.parent
    return modified(file.path)


def parse_timestamp(text: str) -> datetime:
    """The time that nbgrader writes: 2025-02-02 15:58:23.948203 UTC; raises ValueError."""
    moment, _, zone = text.strip().rpartition(" ")
    try:
        if ":" in zone:  # it is the time, and there is no zone
            return datetime.fromisoformat(text.strip()).replace(tzinfo=UTC)
        if zone[:1] in ("+", "-"):
            return datetime.fromisoformat(moment + zone).astimezone(UTC)
        return datetime.fromisoformat(moment).replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)
    except (ValueError, KeyError, OSError, OverflowError):
        raise ValueError(f"{text[:40]!r} is no time as nbgrader writes it.") from None
