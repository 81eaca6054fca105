"""Find what each student handed in, and what of it is to be graded.

Whatever is wrong with a file is a result for its student, and stops nobody else's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from dlsys.grading.assignment import ANSWER, WRITTEN, Assignment
from dlsys.grading.collecting import naming
from dlsys.grading.collecting.handed_in import File, files_in, submitted
from dlsys.grading.collecting.reading import ADVICE, Refused, read
from dlsys.grading.collecting.rebuild import rebuild, unchanged
from dlsys.grading.collecting.roster import Roster, Student
from dlsys.grading.result import MISSING, REFUSED
from dlsys.grading.text import visible

__all__ = ["FOUND", "Found", "Refused", "find", "read"]

FOUND = "found"
MOST_NOTEBOOKS = 20  # that are read for one student
_RELEASED = "Hand in the notebook that was released, with your answers in it."


@dataclass(frozen=True)
class Found:
    """What a student handed in for an assignment.

    `status` is FOUND, with the notebook's `path`; or REFUSED or MISSING, with a `reason`. `notes`
    are sentences for student and instructor. `submitted` is when, by nbgrader's timestamp.txt or
    else by the file's date; `marked_late` is what Canvas says. `person` is what the roster or the
    platform knows: name, email, canvas_id, ...
    """

    student: str
    slug: str
    status: str
    path: Path | None = None
    reason: str = ""
    notes: tuple[str, ...] = ()
    submitted: datetime | None = None
    marked_late: bool = False
    person: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Candidate:
    """A file that was looked into: the assignment it is for, the reason where it is none, and the
    number of answers in it."""

    file: File
    slug: str | None
    refusal: str = ""
    answered: int = 0

    def rank(self) -> tuple[Any, ...]:
        """Orders what a student handed in for an assignment, the one to be graded first."""
        other = self.file.name.casefold() != f"{self.slug}.ipynb"
        return bool(self.refusal), not self.answered, other, -self.answered, str(self.file.path)


def find(
    submissions: Path, assignments: Sequence[Assignment], roster: Sequence[Student] = ()
) -> list[Found]:
    """What each student handed in for each assignment, in order of student and assignment.

    Of several notebooks for one assignment the one with answers and the released name is taken,
    else the one with most answers. Assignments that nobody handed in are left out where there are
    others. Raises ValueError where there is no such file or folder.
    """
    known = Roster(roster)
    by_slug = {assignment.slug: assignment for assignment in assignments}
    below = submissions if submissions.is_dir() else None
    handed_in: dict[str, list[File]] = defaultdict(list)
    for file in files_in(submissions, list(by_slug), known):
        listed = known.find(file.label.name, file.label.numbers)
        handed_in[listed.id if listed else file.label.student].append(file)
    candidates = {
        student: [_look_into(file, below, by_slug) for file in _few(files)]
        for student, files in handed_in.items()
    }
    slugs = {one.slug for several in candidates.values() for one in several}
    wanted = [slug for slug in by_slug if slug in slugs] or list(by_slug)
    found = []
    for student in sorted({*known.students, *handed_in}):
        files = handed_in.get(student, [])
        person, notes = _person(student, files, known)
        for slug in wanted:
            one = _found(student, slug, candidates.get(student, []), below)
            found.append(replace(one, person=person, notes=(*notes, *one.notes)))
    return found


def _few(files: list[File]) -> list[File]:
    """The notebooks among a student's files; without any, what there is instead."""
    files = [file for file in files if not file.is_empty_folder]
    notebooks = [file for file in files if file.is_notebook]
    return sorted(notebooks or files, key=lambda file: len(file.path.parts))[:MOST_NOTEBOOKS]


def _look_into(file: File, below: Path | None, by_slug: Mapping[str, Assignment]) -> _Candidate:
    named = naming.slug_in(file.name, by_slug) or file.slug
    only = next(iter(by_slug)) if len(by_slug) == 1 else None
    shown = visible(file.name, 100)
    if not file.is_notebook:
        what = "a link, and links are not followed" if file.path.is_symlink() else "no notebook"
        return _Candidate(file, named or only, f"{shown} is {what}. {ADVICE}")
    try:
        notebook = read(file.path, below)
    except Refused as error:
        return _Candidate(file, named or only, str(error))
    shared = {slug: _shared(notebook, assignment) for slug, assignment in by_slug.items()}
    slug = named if named and shared[named] else max(shared, key=lambda each: shared[each])
    if not shared[slug]:
        reason = f"{shown} holds no answer cell of {named or ' or '.join(by_slug)}. {_RELEASED}"
        return _Candidate(file, named or only, reason)
    submission = rebuild(by_slug[slug], notebook)
    blank = {each.id: each.blank for each in by_slug[slug].questions}
    blank |= {each.id: each.blank for each in by_slug[slug].written}
    texts = {**submission.answers, **submission.written}
    given = [
        id for id, text in texts.items() if text is not None and not unchanged(text, blank[id])
    ]
    return _Candidate(file, slug, "", len(given))


def _shared(notebook: Mapping[str, Any], assignment: Assignment) -> int:
    """How many answer cells of an assignment a notebook holds."""
    names = {cell.get("id") for cell in notebook["cells"]}
    names |= {cell["metadata"].get("nbgrader", {}).get("grade_id") for cell in notebook["cells"]}
    return sum(cell.id in names for cell in assignment.cells if cell.kind in (ANSWER, WRITTEN))


def _found(student: str, slug: str, candidates: list[_Candidate], below: Path | None) -> Found:
    mine = sorted((one for one in candidates if one.slug == slug), key=_Candidate.rank)
    if not mine:
        others = [one.refusal for one in candidates if one.slug is None]
        if others and not any(one.slug for one in candidates):
            return Found(student, slug, REFUSED, reason=others[0])
        return Found(student, slug, MISSING, reason=" ".join(["Nothing was handed in.", *others]))
    first = mine[0]
    notes = []
    if len(mine) > 1:
        taken = visible(first.file.name, 100)
        notes.append(f"{len(mine)} files were handed in for this; {taken} was taken.")
    return Found(
        student,
        slug,
        REFUSED if first.refusal else FOUND,
        None if first.refusal else first.file.path,
        first.refusal,
        tuple(notes),
        submitted(first.file, below),
        first.file.label.late,
    )


def _person(student: str, files: list[File], known: Roster) -> tuple[dict[str, str], list[str]]:
    """What is known of a student, and what to say where that is too little."""
    if student in known.students:
        return known.students[student].person(), []
    label = files[0].label
    name = {"name": visible(label.name, 100)} if "canvas_id" not in label.numbers else {}
    notes = ["No student on the roster goes by this name, or more than one."]
    return name | label.numbers, notes if known.students else []
