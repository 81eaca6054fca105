"""Whose a file is and what it answers, as far as its name says."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from dlsys.grading.text import visible

# How Canvas and Moodle call the files of a bulk download; Moodle's folders have no file, and what
# was typed there is in one of its own.
_CANVAS = re.compile(r"(?P<name>[^_]+)_(?P<late>LATE_)?(?P<number>\d+)_\d+_(?P<file>.+)", re.DOTALL)
_MOODLE = re.compile(
    r"(?P<name>.+?)(?:_(?P<number>\d+))?_assignsubmission_(?:file|onlinetext)_?(?P<file>.*)",
    re.DOTALL,
)
_ENDING = re.compile(r"(?:\.ipynb)?\.(?:ipynb|json|zip|pdf|py|txt|md|html?|docx?)$", re.IGNORECASE)
# What a browser or Jupyter adds to a second file of a name.
_COPY = re.compile(r"[-_ ]?\((\d+)\)$|[-_ ]copy(\d*)$", re.IGNORECASE)
_ATTEMPT = re.compile(r"-(\d{1,4})$")  # what Canvas adds to a file that is handed in again


@dataclass(frozen=True)
class Label:
    """What a name says: the student's `name`, `numbers` by which a platform knows them, the name
    of the `file` that they handed in, and whether the platform calls it late."""

    name: str
    file: str = ""
    numbers: dict[str, str] = field(default_factory=dict)
    late: bool = False
    is_platforms: bool = False

    @property
    def attempt(self) -> int:
        """Which attempt of a student's a file of Canvas is, as far as its name says; else 0."""
        found = _ATTEMPT.search(_ENDING.sub("", self.file)) if "canvas_id" in self.numbers else None
        return int(found[1]) if found else 0

    @property
    def student(self) -> str:
        """The student's name where there is no roster: in plain view, and no two are the same."""
        whole = "_".join([self.name, *self.numbers.values()])
        shown = visible(whole[:80])[:80].replace("\n", " ").strip()
        if shown == whole and "~" not in whole:
            return whole
        digest = hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()
        return f"{shown}~{digest[:12]}"


def platforms(name: str) -> Label | None:
    """The label of a file or folder that Canvas or Moodle named; None for any other."""
    # A file of Canvas may be called as one of Moodle, and none of Moodle as one of Canvas.
    for pattern, key in ((_CANVAS, "canvas_id"), (_MOODLE, "moodle_id")):
        if found := pattern.fullmatch(name):
            parts = found.groupdict()
            numbers = {key: parts["number"]} if parts["number"] else {}
            return Label(parts["name"], parts["file"], numbers, bool(parts.get("late")), True)
    return None


def students(name: str, slugs: Iterable[str], folder: str) -> Label:
    """The label of a file called STUDENT, STUDENT_SLUG or SLUG_STUDENT; one that is called
    SLUG alone is of the student who is called as its folder."""
    stem = _COPY.sub("", _ENDING.sub("", name))
    slug = slug_in(stem, slugs)
    found = _pattern(slug).search(stem) if slug else None
    if found is None:
        return Label(stem, name)
    around = [part.strip("-_. ") for part in (stem[: found.start()], stem[found.end() :])]
    return Label("_".join(filter(None, around)) or folder, name)


def is_notebook(name: str) -> bool:
    """Whether a file is called as a notebook."""
    return name.casefold().endswith(".ipynb")


def is_misnamed(name: str) -> bool:
    """Whether a file is called as what browsers and editors make of a notebook."""
    return name.casefold().endswith((".ipynb.txt", ".json"))


def copy_number(name: str) -> int:
    """The number that a browser or Jupyter gave a second file of a name, 1 without one; else 0."""
    found = _COPY.search(_ENDING.sub("", name))
    return int((found[1] or found[2] or "1")[:9]) if found else 0


def slug_in(name: str, slugs: Iterable[str]) -> str | None:
    """The assignment that a file's name mentions, the longest where it mentions several."""
    return max((slug for slug in slugs if _pattern(slug).search(name)), key=len, default=None)


def _pattern(slug: str) -> re.Pattern[str]:
    """A slug as words of their own, with anything but letters and digits between them."""
    words = r"[\W_]+".join(map(re.escape, slug.split("_")))
    return re.compile(rf"(?<![^\W_]){words}(?![^\W_])", re.IGNORECASE)
