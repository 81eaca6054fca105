"""Exporters: functions that write a class's grades as other programs read them.

An exporter is called with the grades of one assignment, in order of students, and the assignment,
and returns {name of a file: its text or bytes}. What it returns goes into a folder of its name.
Those in `platforms.EXPORTERS` are called in the same way as an instructor's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath

from dlsys.checks import shown
from dlsys.files import write
from dlsys.grading.assignment import Assignment
from dlsys.grading.course.grade import Grade
from dlsys.grading.course.plugins import call

Files = Mapping[str, str | bytes]
Exporter = Callable[[Sequence[Grade], Assignment], Files]


def folder_of(name: str) -> str:
    """The folder that an exporter writes to: its name, or the function in FILE.py:FUNCTION."""
    return name.rpartition(":")[2]


def export(
    out: Path,
    name: str,
    exporter: Exporter,
    grades: Sequence[Grade],
    assignments: Mapping[str, Assignment],
) -> list[str]:
    """Write what an exporter makes of each assignment; sentences on those where it failed."""
    failed = []
    for slug, assignment in assignments.items():
        own = [grade for grade in grades if grade.result.slug == slug]
        try:
            files = call(name, exporter, own, assignment)
            _check(name, files)
        except ValueError as error:
            failed.append(f"{error} ({slug})")
            continue
        for file, content in files.items():
            write(out / folder_of(name) / file, content)
    return failed


def _check(name: str, files: object) -> None:
    if not isinstance(files, dict):
        raise ValueError(f"{name} returned {shown(files)}; it must return {{file name: text}}.")
    for file, content in files.items():
        if not isinstance(file, str) or not _stays(file):
            raise ValueError(f"{name} names a file {shown(file)}; it must stay in the folder.")
        if not isinstance(content, str | bytes):
            raise ValueError(f"{name} puts {shown(content)} into {file}; it must be text or bytes.")


def _stays(file: str) -> bool:
    path = PurePosixPath(file)
    return bool(path.name) and not path.is_absolute() and not {"..", "\0"} & {*path.parts, *file}
