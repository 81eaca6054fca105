"""Who is in the class: a table of one's own, or one that Canvas or Moodle exports."""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from dlsys.grading.times import extended

# What a column's heading means, in the three kinds of tables.
_OWN = {"student": "id", "student_id": "id", "id": "id", "name": "name", "email": "email"}
_OWN |= {each: each for each in ("canvas_id", "moodle_id", "sis_id", "login", "section")}
_CANVAS = {"student": "name", "id": "canvas_id", "sis user id": "sis_id", "section": "section"}
_CANVAS |= {"sis login id": "login"}
_MOODLE = {"first name": "first", "last name": "last", "surname": "last", "full name": "name"}
_MOODLE |= {"email address": "email", "id number": "sis_id", "username": "login"}
_MOODLE |= {"identifier": "moodle_id", "groups": "section"}


@dataclass(frozen=True)
class Student:
    """A student, by what a platform may call them; `id` is unique in the class.

    `extensions` are what `times.extended` takes: by assignment, and for all others by "".
    """

    id: str
    name: str = ""
    email: str = ""
    login: str = ""
    sis_id: str = ""
    canvas_id: str = ""
    moodle_id: str = ""
    section: str = ""
    extensions: Mapping[str, str] = field(default_factory=dict)

    def person(self) -> dict[str, str]:
        """What is known, by name, without the id and extensions."""
        left_out = ("id", "extensions")
        return {key: value for key, value in asdict(self).items() if value and key not in left_out}

    def extension(self, slug: str) -> str:
        """The extension for an assignment; empty where there is none."""
        return self.extensions.get(slug) or self.extensions.get("", "")


def read_roster(path: Path, slugs: Sequence[str] = ()) -> list[Student]:
    """The students of a CSV file: with the columns student, name, email, canvas_id, moodle_id,
    section, of which only the first is needed; or as Canvas exports a gradebook, or Moodle its
    participants or a grading worksheet. Each may have the columns extension, for all assignments,
    and extension_SLUG for one of `slugs`. Raises ValueError."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not UTF-8; save it as 'CSV UTF-8'.") from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}.") from None
    head = text.partition("\n")[0]
    table = csv.reader(io.StringIO(text, newline=""), delimiter=max(",;\t", key=head.count))
    try:
        rows = [(table.line_num, [cell.strip() for cell in row]) for row in table]
    except csv.Error as error:
        raise ValueError(f"{path}, line {table.line_num} cannot be read: {error}.") from None
    heading = [column.lower() for column in rows[0][1]] if rows else []
    meaning = _meaning(heading)
    if not set(meaning.values()) & {"id", "login", "email", "canvas_id"}:
        raise ValueError(
            f"{path} has the columns {', '.join(heading) or 'none'}; a roster needs `student`, and "
            "may have name, email, canvas_id, moodle_id and section."
        )
    extensions = _extensions(path, heading, slugs)
    students: dict[str, Student] = {}
    for line, row in rows[1:]:
        cells = dict(zip(heading, row, strict=False))
        known = {word: cells.get(column, "") for column, word in meaning.items()}
        student = _student(known)
        if student is None:
            continue  # an empty line, or Canvas's possible points and test student
        given = {slug: cells.get(column, "") for column, slug in extensions.items()}
        given = {slug: text for slug, text in given.items() if text}
        for text in given.values():
            _check(text, f"{path}, line {line}: the extension of {student.id!r}")
        student = replace(student, extensions=given)
        if student.id in students:
            raise ValueError(f"{path}, line {line}: {student.id!r} is there twice; remove one.")
        students[student.id] = student
    return list(students.values())


def _meaning(heading: list[str]) -> dict[str, str]:
    """The words for columns, by heading."""
    if {"student", "id"} <= set(heading):
        meaning = _CANVAS
    elif set(heading) & {"first name", "full name", "email address"}:
        meaning = _MOODLE
    else:
        meaning = _OWN
    return {column: meaning[column] for column in heading if column in meaning}


def _extensions(path: Path, heading: list[str], slugs: Sequence[str]) -> dict[str, str]:
    """The assignments that columns of extensions are for, by heading; "" for all."""
    allowed = {"extension": ""} | {f"extension_{slug}".lower(): slug for slug in slugs}
    found = [column for column in heading if re.fullmatch(r"extensions?(_\w*)?", column)]
    for column in found:
        if column not in allowed:
            words = ", ".join(allowed)
            raise ValueError(f"{path} has a column {column!r}; those for extensions are {words}.")
    return {column: allowed[column] for column in found}


def _check(extension: str, whose: str) -> None:
    try:
        extended(0.0, extension)
    except ValueError:
        raise ValueError(
            f"{whose} is {extension!r}; write how long after the due date, as '36 hours', '2 days' "
            "or '1 week', or until when, as 2026-12-03 or 2026-12-03T12:00, or nothing."
        ) from None


def _student(known: dict[str, str]) -> Student | None:
    first, last = known.pop("first", ""), known.pop("last", "")
    known["name"] = known.get("name") or f"{first} {last}".strip()
    known["moodle_id"] = known.get("moodle_id", "").removeprefix("Participant ")
    names = ("id", "login", "sis_id", "email", "canvas_id")
    known["id"] = next((known[name] for name in names if known.get(name)), "")
    there = known["id"] and known["name"] != "Student, Test"
    return Student(extensions={}, **known) if there else None


class Roster:
    """Finds the student that a file is named after."""

    def __init__(self, students: Iterable[Student] = ()) -> None:
        self.students = {student.id: student for student in students}
        self._exact: dict[str, set[str]] = defaultdict(set)
        self._alike: dict[str, set[str]] = defaultdict(set)
        for student in self.students.values():
            words = [student.id, student.name, student.email, student.login, student.sis_id]
            for word in filter(None, [*words, student.email.partition("@")[0]]):
                self._exact[word].add(student.id)
                self._alike[_letters(word)].add(student.id)
            for turned in _turns(student.name):
                self._alike[turned].add(student.id)

    def find(self, name: str, numbers: Mapping[str, str] | None = None) -> Student | None:
        """The one student whom `name` fits: an id, login, email or name, in either order, without
        regard to case, accents and what is between letters. `numbers` ("canvas_id", "moodle_id")
        come first. None where nobody or more than one fits, or whom it fits is another user of
        Canvas. (Moodle numbers a student anew in each assignment.)"""
        numbers = numbers or {}
        for key, number in numbers.items():
            same = [s for s in self.students.values() if getattr(s, key) == number]
            if len(same) == 1:
                return same[0]
        found = self._by_name(name)
        theirs = numbers.get("canvas_id") if found and found.canvas_id else None
        return None if theirs else found

    def _by_name(self, name: str) -> Student | None:
        if name in self.students:
            return self.students[name]
        for index, key in ((self._exact, name), (self._alike, _letters(name))):
            fitting = index.get(key, set())
            if key and len(fitting) == 1:
                return self.students[min(fitting)]
        return None


def _letters(text: str) -> str:
    """Letters and digits alone, in small letters without accents."""
    plain = unicodedata.normalize("NFKD", text).casefold()
    return "".join(character for character in plain if character.isalnum())


def _turns(name: str) -> set[str]:
    """A name beginning with any of its words: Canvas writes the family name first."""
    words = [_letters(word) for word in re.split(r"[\s,]+", name)]
    return {"".join(words[i:] + words[:i]) for i in range(len(words))} - {""}
