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
from dlsys.grading.collecting.handed_in import File, few, files_in, stamped, submitted
from dlsys.grading.collecting.packed import read
from dlsys.grading.collecting.reading import ADVICE, Refused
from dlsys.grading.collecting.rebuild import rebuild
from dlsys.grading.collecting.roster import Roster, Student
from dlsys.grading.collecting.telling import tell, trimmed, unchanged
from dlsys.grading.result import LOOK, MISSING, REFUSED
from dlsys.grading.text import visible

__all__ = ["FOUND", "Found", "Refused", "find", "read"]

FOUND = "found"
_RELEASED = "Hand in the notebook that was released, with your answers in it."


@dataclass(frozen=True)
class Found:
    """What a student handed in for an assignment.

    `status` is FOUND, with the notebook's `path` (and `member`, in a zip file); or REFUSED or
    MISSING, with a `reason`. `notes` are sentences for student and instructor. `submitted` is when,
    by the file's date, or by nbgrader's timestamp.txt where that is asked for; `is_stamped` says
    that there is one where nbgrader puts it; `marked_late` is what Canvas says.
    `person` is what the roster or the platform knows: name, email, canvas_id, ...; `listed` is
    False for whom a roster does not know. `extension` is what the roster grants, for
    `times.extended`.
    """

    student: str
    slug: str
    status: str
    path: Path | None = None
    member: str = ""
    reason: str = ""
    notes: tuple[str, ...] = ()
    submitted: datetime | None = None
    is_stamped: bool = False
    marked_late: bool = False
    person: Mapping[str, str] = field(default_factory=dict)
    listed: bool = True
    extension: str = ""


@dataclass(frozen=True)
class _Candidate:
    """A file that was looked into: the assignment it is for, the reason where it is none, the
    number of answers in it, and when it was handed in."""

    file: File
    slug: str | None
    refusal: str = ""
    answered: int = 0
    submitted: datetime | None = None

    @property
    def has_released_name(self) -> bool:
        return self.file.name.casefold() == f"{self.slug}.ipynb"

    @property
    def newness(self) -> tuple[int, int, int]:
        """Grows from one file of a student's to a later one: by Canvas's number of the attempt,
        the date to the second, and the number of a copy."""
        seconds = int(self.submitted.timestamp()) if self.submitted else 0
        return self.file.label.attempt, seconds, naming.copy_number(self.file.name)

    def rank(self) -> tuple[Any, ...]:
        """Orders what a student handed in for an assignment, the one to be graded first."""
        late_first = [-each for each in self.newness]
        where = str(self.file.path), self.file.member
        other = not self.has_released_name
        return bool(self.refusal), -self.answered, late_first, other, *where


def find(
    submissions: Path,
    assignments: Sequence[Assignment],
    roster: Sequence[Student] = (),
    others: Sequence[Assignment] = (),
    timestamps: bool = False,
) -> list[Found]:
    """What each student handed in for each assignment, in order of student and assignment.

    Of several notebooks for one assignment the one with most answers is taken, of those with as
    many the newest, and a note says so. Assignments that nobody handed in are left out where there
    are others. `others` are the project's assignments that are not asked for: what was handed in
    for them is known by them. `timestamps` says that nbgrader has collected the folder, so that its
    timestamp.txt count. Raises ValueError where there is no such file or folder.
    """
    known = Roster(roster)
    by_slug = {assignment.slug: assignment for assignment in (*assignments, *others)}
    asked = [assignment.slug for assignment in assignments]
    below = submissions if submissions.is_dir() else None
    handed_in: dict[str, list[File]] = defaultdict(list)
    for file in files_in(submissions, list(by_slug), known):
        whose = known.find(file.label.name, file.label.numbers)
        handed_in[whose.id if whose else file.label.student].append(file)
    looked_into, said = {}, {}
    for student, files in handed_in.items():
        trimmed.cache_clear()  # of cells that no other student has
        chosen, said[student] = few(files, asked, below)
        looked_into[student] = [
            replace(
                _look_into(file, below, by_slug, asked),
                submitted=submitted(file, by_slug, below, timestamps),
            )
            for file in chosen
        ]
    slugs = {one.slug for several in looked_into.values() for one in several}
    wanted = [slug for slug in asked if slug in slugs] or asked
    found = []
    for student in sorted({*known.students, *handed_in}):
        person = _person(student, handed_in.get(student, []), known)
        listed = student in known.students or not known.students
        for slug in wanted:
            one = _found(student, slug, looked_into.get(student, []), below, list(by_slug))
            notes = (*said.get(student, []), *one.notes)
            extension = known.students[student].extension(slug) if student in known.students else ""
            found.append(
                replace(one, person=person, listed=listed, notes=notes, extension=extension)
            )
    return found


def _look_into(
    file: File, below: Path | None, by_slug: Mapping[str, Assignment], asked: Sequence[str]
) -> _Candidate:
    named = naming.slug_in(file.name, by_slug) or file.slug
    only = asked[0] if len(asked) == 1 else None
    shown = visible(file.name, 100)
    if file.refusal:
        return _Candidate(file, named or only, file.refusal)
    if not file.is_notebook:
        what = "a link, and links are not followed" if file.path.is_symlink() else "no notebook"
        return _Candidate(file, named or only, f"{shown} is {what}. {ADVICE}")
    try:
        notebook = read(file.path, below, file.member)
    except Refused as error:
        return _Candidate(file, named or only, str(error))
    shared = {slug: _shared(notebook, assignment) for slug, assignment in by_slug.items()}
    # Names of cells recur between assignments, so the most of them decide, and then the file's.
    slug = max(by_slug, key=lambda each: (shared[each], each == named))
    if not shared[slug]:
        reason = f"{shown} holds no answer cell of {named or ' or '.join(asked)}. {_RELEASED}"
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
    there = {each.released for each in tell(assignment, notebook) if each.released}
    return sum(cell.kind in (ANSWER, WRITTEN) for cell in there)


def _found(
    student: str, slug: str, candidates: list[_Candidate], below: Path | None, slugs: list[str]
) -> Found:
    mine = sorted((one for one in candidates if one.slug == slug), key=_Candidate.rank)
    if not mine:
        unknown = [one.refusal for one in candidates if one.slug is None]
        if unknown and not any(one.slug for one in candidates):
            return Found(student, slug, REFUSED, reason=unknown[0])
        others = sorted({one.slug for one in candidates if one.slug})
        nothing = f" for this, only for {', '.join(others)}" if others else ""
        nothing = f"Nothing was handed in{nothing}."
        return Found(student, slug, MISSING, reason=" ".join([nothing, *unknown]))
    first = mine[0]
    notes = []
    # What holds no answer and is called otherwise was handed in beside it, not for it.
    several = [c for c in mine if not c.refusal or naming.slug_in(c.file.name, [slug])]
    if len(several) > 1:
        taken = visible(first.file.name, 100)
        why = _why(first, [one for one in mine[1:] if not one.refusal])
        notes.append(f"{len(several)} files were handed in for this; {taken} was taken, {why}")
    numbers = sorted({number for one in mine for number in one.file.label.numbers.values()})
    if len(numbers) > 1:
        who = f"{len(numbers)} users of the platform, {' and '.join(numbers)}"
        notes.append(f"Files of {who}, have this name: they may be of two students. {LOOK}")
    if naming.is_misnamed(first.file.name) and not first.refusal:
        name = visible(first.file.name, 100)
        notes.append(f"{name} was graded, though it is not called as a notebook, {slug}.ipynb.")
    return Found(
        student,
        slug,
        REFUSED if first.refusal else FOUND,
        None if first.refusal else first.file.path,
        first.file.member,
        first.refusal,
        tuple(notes),
        first.submitted,
        stamped(first.file, slugs, below) is not None,
        first.file.label.late,
    )


def _why(first: _Candidate, others: Sequence[_Candidate]) -> str:
    """Why the first of several files was taken, as the end of a sentence."""
    if not others:
        return "the only one that can be read."
    alike = [one for one in others if one.answered == first.answered]
    if not alike:
        newest = max(others, key=lambda one: one.newness)
        if newest.newness <= first.newness:
            return "which has the most answers."
        name = visible(newest.file.name, 100)
        return f"which has the most answers, though {name} is newer. {LOOK}"
    if all(one.newness < first.newness for one in alike):
        return "the newest of those with the most answers."
    if first.has_released_name and not any(one.has_released_name for one in alike):
        return "which has the released name."
    return f"the first of those that are alike. {LOOK}"


def _person(student: str, files: list[File], known: Roster) -> dict[str, str]:
    """What the roster, or else a platform, knows of a student."""
    if student in known.students:
        return known.students[student].person()
    label = files[0].label
    name = {"name": visible(label.name, 100)} if "canvas_id" not in label.numbers else {}
    return name | label.numbers
