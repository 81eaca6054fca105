"""Collecting: whose a file is, what cannot be read, and that nothing stops the class."""

import copy
import json
import os
import socket
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dlsys.grading.assignment import load
from dlsys.grading.collecting.collect import FOUND, Found, Refused, find, read
from dlsys.grading.collecting.handed_in import MOST_NOTEBOOKS, parse_timestamp
from dlsys.grading.collecting.reading import read_bytes
from dlsys.grading.collecting.rebuild import rebuild
from dlsys.grading.collecting.roster import Roster, Student, read_roster
from dlsys.grading.result import LOOK, MISSING, REFUSED
from dlsys.grading.text import file_name
from tests.exercises.notebooks import ROOT

COLLECTIVES, MEMORY = load(ROOT, "collectives"), load(ROOT, "memory_wall")
BOTH = [COLLECTIVES, MEMORY]


def released(slug: str) -> dict[str, Any]:
    return json.loads((ROOT / "exercises" / slug / f"{slug}.ipynb").read_text(encoding="utf-8"))


BLANK = {slug: released(slug) for slug in ("collectives", "memory_wall")}


def text(slug: str = "collectives", answers: int = 1) -> str:
    """A notebook with this many answers."""
    notebook = copy.deepcopy(BLANK[slug])
    cells = [c for c in notebook["cells"] if c["metadata"].get("nbgrader", {}).get("solution")]
    for cell in cells[:answers]:
        cell["source"] = "answer = 3"
    return json.dumps(notebook)


def put(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def by_student(found: list[Found], slug: str = "collectives") -> dict[str, Found]:
    return {one.student: one for one in found if one.slug == slug}


def only(found: list[Found]) -> Found:
    (one,) = found
    return one


# -- whose it is ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "student"),
    [
        ("ada/anything.ipynb", "ada"),
        ("ada/collectives/collectives.ipynb", "ada"),
        ("ada/week 3/mine/collectives.ipynb", "ada"),
        ("collectives/ada.ipynb", "ada"),
        ("collectives/ada/notebook.ipynb", "ada"),
        ("ada.ipynb", "ada"),
        ("ada_collectives.ipynb", "ada"),
        ("collectives_ada.ipynb", "ada"),
        ("Collectives - ada (1).ipynb", "ada"),
        ("ada-collectives-Copy1.ipynb", "ada"),
        ("collectives_123456.ipynb", "123456"),
        ("ada.b_collectives.ipynb", "ada.b"),
        ("ada_collectives_final.ipynb", "ada_final"),
        ("collectives.ipynb", "class"),
        ("doejane_12345_67890_collectives.ipynb", "doejane_12345"),
        ("doejane_LATE_12345_67890_collectives-1.ipynb", "doejane_12345"),
        ("doejane_LATE_1_2_assignsubmission_file_collectives.ipynb", "doejane_1"),
        ("doejane_LATE_1_2_x_3_assignsubmission_onlinetext_.ipynb", "doejane_1"),
        ("doejane_12345_67890_homework.ipynb", "doejane_12345"),
        ("Jane Doe_123_assignsubmission_file_/collectives.ipynb", "Jane Doe_123"),
        ("Jane Doe_123_assignsubmission_file/homework.ipynb", "Jane Doe_123"),
        ("Jane Doe_assignsubmission_file_/homework.ipynb", "Jane Doe"),
        ("Jane Doe_123_assignsubmission_file_collectives.ipynb", "Jane Doe_123"),
        ("Jane Doe_123_assignsubmission_onlinetext_/collectives.ipynb", "Jane Doe_123"),
        ("Jane van_Doe_123_assignsubmission_file_my_work.ipynb", "Jane van_Doe_123"),
        ("孫悟空/collectives.ipynb", "孫悟空"),
    ],
)
def test_a_student_is_found_in_any_layout(path: str, student: str, tmp_path: Path) -> None:
    file = put(tmp_path / "class" / path, text())
    one = by_student(find(tmp_path / "class", BOTH))[student]
    assert (one.status, one.path) == (FOUND, file), one
    assert one.marked_late == ("LATE" in path)
    assert rebuild(COLLECTIVES, read(file, tmp_path)).answers["seconds"] == "answer = 3"


def test_a_text_typed_into_moodle_is_of_the_student_who_handed_in_the_notebook(
    tmp_path: Path,
) -> None:
    for whose in ("Ann Bee_125", "Cee Dee_126"):
        put(tmp_path / f"{whose}_assignsubmission_onlinetext_" / "onlinetext.html", "<p>Hi</p>")
    notebook = tmp_path / "Ann Bee_125_assignsubmission_file_" / "mine.ipynb"
    put(notebook, text())
    roster = [Student("ann", moodle_id="125"), Student("cee", moodle_id="126")]
    ann, cee = find(tmp_path, [COLLECTIVES], roster)
    assert (ann.student, ann.status, ann.path, ann.notes) == ("ann", FOUND, notebook, ())
    assert (cee.student, cee.status, cee.listed) == ("cee", REFUSED, True)
    assert cee.reason.startswith("onlinetext.html is no notebook.")
    assert set(by_student(find(tmp_path, [COLLECTIVES]))) == {"Ann Bee_125", "Cee Dee_126"}


def test_two_users_of_a_platform_with_one_name_are_told_apart_or_looked_at(tmp_path: Path) -> None:
    for user in (7, 8):
        name = f"Ada Lovelace_{user}_assignsubmission_file_"
        put(tmp_path / "moodle" / name / "collectives.ipynb", text())
        put(tmp_path / "canvas" / f"lovelaceada_{user}_99_collectives.ipynb", text())
    ada = [Student("ada", "Ada Lovelace", canvas_id="7")]
    merged = only(find(tmp_path / "moodle", [COLLECTIVES], ada))
    said = "Files of 2 users of the platform, 7 and 8, have this name: they may be of two students."
    assert f"{said} {LOOK}" in merged.notes
    hers, stranger = find(tmp_path / "canvas", [COLLECTIVES], ada)
    assert (hers.student, hers.path and hers.path.name) == (
        "ada",
        "lovelaceada_7_99_collectives.ipynb",
    )
    assert (stranger.student, stranger.listed) == ("lovelaceada_8", False)


def test_a_student_who_is_called_as_an_assignment_hands_in_for_nobody_else(tmp_path: Path) -> None:
    put(tmp_path / "collectives" / "ada.ipynb", text())
    found = by_student(find(tmp_path, [COLLECTIVES], [Student("ada"), Student("collectives")]))
    assert {name: one.status for name, one in found.items()} == {
        "ada": MISSING,
        "collectives": FOUND,
    }


def test_a_single_file_is_a_submission(tmp_path: Path) -> None:
    file = put(tmp_path / "ada" / "collectives.ipynb", text())
    assert only(find(file, BOTH)).student == "ada"
    other = put(tmp_path / "bob_collectives.ipynb", text())
    assert only(find(other, [COLLECTIVES])).student == "bob"
    with pytest.raises(ValueError, match="no file or folder"):
        find(tmp_path / "nowhere", BOTH)


def test_a_notebook_belongs_to_the_assignment_whose_cells_it_holds(tmp_path: Path) -> None:
    put(tmp_path / "ada" / "one.ipynb", text("memory_wall"))
    put(tmp_path / "ada" / "two.ipynb", text("collectives"))
    put(tmp_path / "bob" / "memory-wall.ipynb", text("collectives"))
    found = find(tmp_path, BOTH)
    assert by_student(found, "memory_wall")["ada"].path == tmp_path / "ada" / "one.ipynb"
    assert by_student(found, "collectives")["ada"].path == tmp_path / "ada" / "two.ipynb"
    assert by_student(found, "collectives")["bob"].status == FOUND  # whatever it is called


def test_a_notebook_without_ids_belongs_by_nbgraders_names(tmp_path: Path) -> None:
    notebook = json.loads(text())
    for cell in notebook["cells"]:
        del cell["id"]
    put(tmp_path / "ada.ipynb", json.dumps(notebook))
    assert by_student(find(tmp_path, BOTH))["ada"].status == FOUND


def test_a_notebook_that_lost_all_names_belongs_by_its_headings(tmp_path: Path) -> None:
    notebook = json.loads(text("memory_wall", answers=3))
    for number, cell in enumerate(notebook["cells"]):
        cell |= {"id": str(number), "metadata": {}}
    put(tmp_path / "ada" / "homework.ipynb", json.dumps(notebook))
    assert by_student(find(tmp_path, BOTH), "memory_wall")["ada"].status == FOUND
    blank = json.loads(text("memory_wall"))["cells"][0] | {"source": "YOUR ANSWER HERE", "id": "x"}
    put(tmp_path / "bob" / "x.ipynb", json.dumps(notebook | {"cells": [blank | {"metadata": {}}]}))
    assert by_student(find(tmp_path, BOTH), "memory_wall")["bob"].status == REFUSED


@pytest.mark.parametrize(
    ("files", "taken", "why"),
    [
        (  # by name: number of answers and age
            {"collectives.ipynb": (1, 9), "other.ipynb": (5, 3)},
            "other.ipynb",
            "which has the most answers",
        ),
        (
            {"collectives.ipynb": (4, 9), "collectives (1).ipynb": (5, 3)},
            "collectives (1).ipynb",
            "which has the most answers",
        ),
        (
            {"collectives.ipynb": (5, 3), "collectives-1.ipynb": (4, 9)},
            "collectives.ipynb",
            "which has the most answers",
        ),
        (
            {"collectives.ipynb": (5, 3), "collectives-1.ipynb": (4, 1)},
            "collectives.ipynb",
            "which has the most answers, though collectives-1.ipynb is newer",
        ),
        (
            {"collectives.ipynb": (5, 9), "collectives (1).ipynb": (5, 3)},
            "collectives (1).ipynb",
            "the newest of those with the most answers",
        ),
        (
            {"collectives.ipynb": (5, 3), "collectives (2).ipynb": (5, 3)},
            "collectives (2).ipynb",
            "the newest of those with the most answers",
        ),
        (
            {"a.ipynb": (5, 3), "collectives.ipynb": (5, 3)},
            "collectives.ipynb",
            "which has the released name",
        ),
        ({"a.ipynb": (5, 3), "b.ipynb": (5, 3)}, "a.ipynb", "the first of those that are alike"),
        (
            {"collectives.ipynb": (None, 1), "b.ipynb": (0, 3)},
            "b.ipynb",
            "the only one that can be read",
        ),
    ],
)
def test_of_several_notebooks_the_fuller_or_newer_one_is_taken_and_the_student_is_told(
    files: dict[str, tuple[int | None, int]], taken: str, why: str, tmp_path: Path
) -> None:
    for name, (answers, age) in files.items():
        file = put(tmp_path / "ada" / name, "{" if answers is None else text(answers=answers))
        os.utime(file, (1_700_000_000 - age, 1_700_000_000 - age))
    one = by_student(find(tmp_path, BOTH))["ada"]
    assert one.path == tmp_path / "ada" / taken
    said = f"2 files were handed in for this; {taken} was taken, {why}."
    asks = "newer" in why or "alike" in why
    assert one.notes == (f"{said} {LOOK}" if asks else said,)


@pytest.mark.parametrize(
    "path",
    [
        "ada/collectives.ipynb.txt",
        "ada/collectives.json",
        "ada/work/mine.JSON",
        "ada_collectives.ipynb.txt",
        "collectives/ada.ipynb.txt",
        "doejane_1_2_collectives.json",
    ],
)
def test_a_notebook_that_a_browser_renamed_is_taken_with_a_note(path: str, tmp_path: Path) -> None:
    file = put(tmp_path / path, text())
    put(tmp_path / "settings.json", "{}")  # of the instructor's
    one = only(find(tmp_path, [COLLECTIVES]))
    assert (one.status, one.path) == (FOUND, file), one.reason
    assert one.student == ("doejane_1" if "doe" in path else "ada")
    assert one.notes == (
        f"{file.name.removeprefix('doejane_1_2_')} was graded, though it is not called as a "
        "notebook, collectives.ipynb.",
    )


def test_other_json_of_a_student_is_no_notebook_and_stands_in_no_way(tmp_path: Path) -> None:
    for number in range(MOST_NOTEBOOKS + 1):
        put(tmp_path / "ada" / "a" / f"{number}.json", '{"loss": 1}')
    file = put(tmp_path / "ada" / "z" / "mine.ipynb", text())
    put(tmp_path / "bob" / "data.json", '{"loss": 1}')
    ada, bob = find(tmp_path, [COLLECTIVES])
    assert (ada.path, [note for note in ada.notes if "taken" in note]) == (file, [])
    assert (bob.status, bob.reason[:36]) == (REFUSED, "data.json is JSON, but no notebook. ")


def test_a_later_attempt_at_canvas_is_newer_whatever_its_date(tmp_path: Path) -> None:
    for attempt in ("collectives", "collectives-1", "collectives-10", "collectives-9"):
        file = put(tmp_path / f"doejane_1_2_{attempt}.ipynb", text())
        age = len(attempt)
        os.utime(file, (1_700_000_000 - age, 1_700_000_000 - age))
    one = by_student(find(tmp_path, BOTH))["doejane_1"]
    assert one.path == tmp_path / "doejane_1_2_collectives-10.ipynb"


def test_what_editors_and_systems_leave_is_not_handed_in(tmp_path: Path) -> None:
    put(tmp_path / "ada" / "collectives.ipynb", text())
    put(tmp_path / "ada" / ".ipynb_checkpoints" / "collectives-checkpoint.ipynb", text(answers=9))
    put(tmp_path / "__MACOSX" / "ada" / "._collectives.ipynb", b"\0")
    put(tmp_path / "ada" / "data.csv", "1")
    put(tmp_path / "README.txt", "Submissions of week 3")
    assert only(find(tmp_path, BOTH)).notes == ()


# -- what is missing or no notebook --------------------------------------------------------------


def test_who_handed_in_nothing_is_missing_and_not_refused(tmp_path: Path) -> None:
    put(tmp_path / "ada.ipynb", text())
    (tmp_path / "bob").mkdir()
    found = by_student(find(tmp_path, BOTH, [Student("ada"), Student("cleo", "Cleo")]))
    assert {name: one.status for name, one in found.items()} == {
        "ada": FOUND,
        "bob": MISSING,
        "cleo": MISSING,
    }
    assert found["cleo"].reason == "Nothing was handed in."
    assert found["cleo"].person == {"name": "Cleo"}


def test_an_assignment_that_nobody_handed_in_is_not_missing(tmp_path: Path) -> None:
    put(tmp_path / "ada.ipynb", text())
    assert {one.slug for one in find(tmp_path, BOTH)} == {"collectives"}
    empty = tmp_path / "empty"
    empty.mkdir()
    assert len(find(empty, BOTH, [Student("ada")])) == 2
    assert find(empty, BOTH) == []


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("report.pdf", b"%PDF", "report.pdf is no notebook. Hand in the .ipynb file"),
        ("collectives.zip", b"PK", "is no notebook"),
        ("other.ipynb", text("memory_wall").encode(), "holds no answer cell of collectives"),
        ("collectives.ipynb", b"{", "is not JSON, as notebooks are"),
        ("broken.ipynb", b"", "broken.ipynb is empty"),
    ],
)
def test_what_is_no_notebook_of_the_assignment_is_refused_with_a_reason(
    name: str, content: bytes, reason: str, tmp_path: Path
) -> None:
    put(tmp_path / "ada" / name, content)
    put(tmp_path / "bob" / "collectives.ipynb", text())
    found = by_student(find(tmp_path, [COLLECTIVES]))
    assert (found["ada"].status, found["ada"].path) == (REFUSED, None)
    assert reason in found["ada"].reason
    assert found["bob"].status == FOUND


def test_a_foreign_notebook_beside_a_right_one_is_only_spoken_of(tmp_path: Path) -> None:
    put(tmp_path / "ada" / "collectives.ipynb", text())
    put(tmp_path / "ada" / "scratch.ipynb", json.dumps(BLANK["memory_wall"] | {"cells": []}))
    put(tmp_path / "bob" / "memory_wall.ipynb", text("memory_wall"))
    found = find(tmp_path, BOTH)
    assert by_student(found)["ada"].status == FOUND
    missing = by_student(found, "memory_wall")["ada"]
    assert missing.status == MISSING
    assert "scratch.ipynb holds no answer cell of collectives or memory_wall" in missing.reason


def test_links_are_refused_wherever_they_are(tmp_path: Path) -> None:
    secret = put(tmp_path / "secret" / "collectives.ipynb", text())
    place = tmp_path / "class"
    put(place / "bob" / "collectives.ipynb", text(answers=8))
    (place / "ada.ipynb").symlink_to(secret)
    (place / "cleo").symlink_to(secret.parent)
    (place / "dora").mkdir()
    (place / "dora" / "collectives.ipynb").symlink_to("../bob/collectives.ipynb")
    (place / "eve").mkdir()
    (place / "eve" / "collectives").symlink_to(place / "bob")
    found = by_student(find(place, [COLLECTIVES]))
    assert {name for name, one in found.items() if one.status == REFUSED} == {
        *("ada", "cleo", "dora", "eve")
    }
    assert all("link" in found[name].reason for name in ("ada", "cleo", "dora", "eve"))


def test_a_folder_that_becomes_a_link_after_it_was_found_is_not_followed(tmp_path: Path) -> None:
    put(tmp_path / "bob" / "collectives.ipynb", text(answers=8))
    put(tmp_path / "ada" / "collectives.ipynb", text())
    path = by_student(find(tmp_path, BOTH))["ada"].path
    assert path is not None
    (tmp_path / "ada").rename(tmp_path / "gone")
    (tmp_path / "ada").symlink_to("bob")
    with pytest.raises(Refused, match="links are not followed"):
        read(path, tmp_path)


# -- names ---------------------------------------------------------------------------------------

ODD_NAMES = [
    "a\u202eb",
    "a\\u202eb",
    "x\ny",
    "x y",
    "x\x1b[31m y",
    "x~3",
    "é",
    "e\u0301",
    "-rf",
    "a" * 200,
]


def test_odd_names_are_shown_in_plain_view_and_never_shared(tmp_path: Path) -> None:
    for name in ODD_NAMES:
        put(tmp_path / name / "collectives.ipynb", text())
    found = [one.student for one in find(tmp_path, [COLLECTIVES])]
    assert len(set(found)) == len(ODD_NAMES)
    assert not any(mark in name for name in found for mark in "\u202e\n\x1b")
    assert all(len(name) <= 100 for name in found)
    files = {file_name(name) for name in found}
    assert len(files) == len(ODD_NAMES)
    forged = next(name for name in found if name.startswith("x~"))
    put(tmp_path / forged / "collectives.ipynb", text())
    assert len({one.student for one in find(tmp_path, [COLLECTIVES])}) == len(ODD_NAMES) + 1


def test_a_name_that_is_no_utf_8_is_a_name(tmp_path: Path) -> None:
    put(Path(os.fsdecode(os.fsencode(tmp_path) + b"/a\xff.ipynb")), text())
    one = only(find(tmp_path, [COLLECTIVES]))
    assert one.status == FOUND
    assert one.student.startswith("a\\udcff~")


# -- the roster ----------------------------------------------------------------------------------


def roster(tmp_path: Path, content: str | bytes) -> list[Student]:
    return read_roster(put(tmp_path / "roster.csv", content))


def test_rosters_are_read_as_one_writes_them_and_as_platforms_export_them(tmp_path: Path) -> None:
    assert roster(tmp_path, "student,name,email\nada,Ada L,ada@x.org\n\nbob,,\n") == [
        Student("ada", "Ada L", "ada@x.org"),
        Student("bob"),
    ]
    assert roster(tmp_path, "\ufeffid;name;section\r\n7;Ä;A\r\n".encode()) == [
        Student("7", "Ä", section="A")
    ]
    canvas = (
        "Student,ID,SIS User ID,SIS Login ID,Section,Collectives (7)\n"
        "    Points Possible,,,,,25\n"
        '"Doe, Jane",123,s9,jdoe,A,20\n'
        '"Student, Test",999,,abc,A,\n'
    )
    assert roster(tmp_path, canvas) == [
        Student("jdoe", "Doe, Jane", "", "jdoe", "s9", "123", section="A")
    ]
    people = "First name,Last name,Email address,ID number\nJane,Doe,j@x.org,77\nAl,Roe,a@x.org,\n"
    assert roster(tmp_path, people) == [
        Student("77", "Jane Doe", "j@x.org", sis_id="77"),
        Student("a@x.org", "Al Roe", "a@x.org"),
    ]
    sheet = "Identifier,Full name,Email address,Status\nParticipant 31,Jane Doe,j@x.org,Submitted\n"
    assert roster(tmp_path, sheet) == [Student("j@x.org", "Jane Doe", "j@x.org", moodle_id="31")]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "has the columns none; a roster needs `student`"),
        (b"name,mark\na,3\n", "has the columns name, mark"),
        (b"student\nada\nada\n", "line 3: 'ada' is there twice"),
        (b"student\n\xff\n", "is not UTF-8"),
        (b'student,name\nada,"' + b"x" * 200_000, "line 2 cannot be read: field larger than"),
    ],
)
def test_a_roster_that_cannot_be_used_is_a_sentence(
    content: bytes, words: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=r"roster\.csv") as caught:
        roster(tmp_path, content)
    assert words in str(caught.value)
    with pytest.raises(ValueError, match="cannot be read"):
        read_roster(tmp_path / "none.csv")


@pytest.mark.parametrize(
    ("name", "numbers", "student"),
    [
        ("jdoe", {}, "jdoe"),
        ("JDoe", {}, "jdoe"),
        ("doejane", {}, "jdoe"),
        ("Jane Doe", {}, "jdoe"),
        ("jane.doe@x.org", {}, "jdoe"),
        ("jane.doe", {}, "jdoe"),
        ("whoever", {"canvas_id": "123"}, "jdoe"),
        ("jdoe", {"canvas_id": "124"}, "mroe"),
        ("roemaryann", {}, "mroe"),
        ("Mary Ann Roé", {}, "mroe"),
        ("Kim Lee", {}, None),
        ("kl1", {}, "kl1"),
        ("nobody", {"moodle_id": "5"}, None),
        ("", {}, None),
        ("🎉", {}, None),
    ],
)
def test_a_name_finds_the_one_student_it_fits(
    name: str, numbers: dict[str, str], student: str | None
) -> None:
    known = Roster(
        [
            Student("jdoe", "Jane Doe", "jane.doe@x.org", canvas_id="123"),
            Student("mroe", "Roe, Mary Ann", canvas_id="124"),
            Student("kl1", "Kim Lee"),
            Student("kl2", "Kim Lee"),
            Student("🙂"),
        ]
    )
    found = known.find(name, numbers)
    assert (found.id if found else None) == student


def test_files_of_one_student_under_several_names_come_together(tmp_path: Path) -> None:
    put(tmp_path / "doejane_123_9_collectives.ipynb", text())
    put(tmp_path / "Jane Doe_5_assignsubmission_file_" / "memory_wall.ipynb", text("memory_wall"))
    put(tmp_path / "stranger.ipynb", text())
    found = find(tmp_path, BOTH, [Student("jdoe", "Jane Doe", canvas_id="123")])
    assert [(one.student, one.slug, one.status) for one in found] == [
        ("jdoe", "collectives", FOUND),
        ("jdoe", "memory_wall", FOUND),
        ("stranger", "collectives", FOUND),
        ("stranger", "memory_wall", MISSING),
    ]
    assert found[0].person == {"name": "Jane Doe", "canvas_id": "123"}
    assert all(one.notes == () for one in found)  # who is listed may change, and the notes not
    assert [one.listed for one in found] == [True, True, False, False]
    assert all(one.listed for one in find(tmp_path, BOTH))  # without a roster everybody is


# -- when ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("2025-02-02 15:58:23.948203 UTC", datetime(2025, 2, 2, 15, 58, 23, 948203, UTC)),
        ("2025-02-02 15:58:23 America/Los_Angeles\n", datetime(2025, 2, 2, 23, 58, 23, 0, UTC)),
        ("2025-02-02 15:58:23 +0100", datetime(2025, 2, 2, 14, 58, 23, 0, UTC)),
        ("2025-02-02 15:58:23", datetime(2025, 2, 2, 15, 58, 23, 0, UTC)),
        ("2025-02-02 15:58:23+01:00", datetime(2025, 2, 2, 14, 58, 23, 0, UTC)),
        ("2025-02-02T15:58:23.5-02:00", datetime(2025, 2, 2, 17, 58, 23, 500_000, UTC)),
        ("2025-02-02 15:58:23 +01:00", datetime(2025, 2, 2, 14, 58, 23, 0, UTC)),
    ],
)
def test_nbgraders_timestamps_are_read(written: str, meant: datetime, tmp_path: Path) -> None:
    assert parse_timestamp(written) == meant
    put(tmp_path / "ada" / "collectives" / "collectives.ipynb", text())
    put(tmp_path / "ada" / "collectives" / "timestamp.txt", written)
    os.utime(tmp_path / "ada/collectives/collectives.ipynb", (1_700_000_000, 1_700_000_000))
    assert only(find(tmp_path, BOTH, timestamps=True)).submitted == meant
    unasked = only(find(tmp_path, BOTH))  # a student may have packed it into a zip file
    assert (unasked.submitted, unasked.is_stamped) == (OLD_DATE, True)


@pytest.mark.parametrize(
    "written",
    ["", "yesterday", "2025-02-02 15:58:23 ../../etc/passwd", "0001-01-01 00:00:00 +2300"],
)
def test_a_timestamp_that_is_none_leaves_the_date_of_the_file(written: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is no time as nbgrader writes it"):
        parse_timestamp(written)
    file = put(tmp_path / "ada" / "collectives.ipynb", text())
    put(tmp_path / "ada" / "timestamp.txt", written)
    os.utime(file, (1_700_000_000, 1_700_000_000))
    assert only(find(tmp_path, BOTH, timestamps=True)).submitted == OLD_DATE


def test_a_timestamp_that_was_uploaded_with_the_notebook_does_not_count(tmp_path: Path) -> None:
    folder = tmp_path / "Jane Doe_5_assignsubmission_file_"
    file = put(folder / "collectives.ipynb", text())
    put(folder / "timestamp.txt", "2001-01-01 00:00:00 UTC")
    os.utime(file, (1_700_000_000, 1_700_000_000))
    assert only(find(tmp_path, BOTH, timestamps=True)).submitted == OLD_DATE


OLD_DATE = datetime.fromtimestamp(1_700_000_000, UTC)
EARLY = "2001-01-01 00:00:00 UTC"


@pytest.mark.parametrize(
    ("note", "notebook"),
    [
        ("ada/timestamp.txt", "ada/collectives.ipynb"),
        ("ada/timestamp.txt", "ada/collectives/collectives.ipynb"),
        ("ada/work/timestamp.txt", "ada/work/collectives.ipynb"),
        ("ada/collectives/mine/timestamp.txt", "ada/collectives/mine/collectives.ipynb"),
        ("collectives/ada/timestamp.txt", "collectives/ada/collectives.ipynb"),
        ("collectives/ada/collectives/timestamp.txt", "collectives/ada/collectives/a.ipynb"),
        ("timestamp.txt", "ada.ipynb"),
    ],
)
def test_a_timestamp_in_no_place_of_the_platforms_does_not_count(
    note: str, notebook: str, tmp_path: Path
) -> None:
    put(tmp_path / note, EARLY)
    os.utime(put(tmp_path / notebook, text()), (1_700_000_000, 1_700_000_000))
    one = by_student(find(tmp_path, BOTH, timestamps=True))["ada"]
    assert (one.submitted, one.is_stamped) == (OLD_DATE, False)


def test_a_nested_copy_with_an_early_timestamp_does_not_beat_the_platforms(tmp_path: Path) -> None:
    late = datetime(2026, 12, 2, 1, 0, tzinfo=UTC)
    put(tmp_path / "ada" / "collectives" / "timestamp.txt", "2026-12-02 01:00:00 UTC")
    put(tmp_path / "ada" / "collectives" / "collectives.ipynb", text(answers=0))
    for inner in ("collectives", "a/b"):
        put(tmp_path / "ada" / "collectives" / inner / "timestamp.txt", EARLY)
        put(tmp_path / "ada" / "collectives" / inner / "collectives.ipynb", text(answers=9))
    assert by_student(find(tmp_path, BOTH, timestamps=True))["ada"].submitted == late


# -- other chapters ------------------------------------------------------------------------------

DATA_PARALLEL = load(ROOT, "data_parallel")
OTHERS = [load(ROOT, slug, solutions=False) for slug in ("collectives", "memory_wall")]


@pytest.mark.parametrize(
    "path",
    ["ada/collectives.ipynb", "ada/homework.ipynb", "ada.ipynb", "ada/data_parallel.ipynb"],
)
def test_a_notebook_of_another_chapter_is_missing_and_never_graded(
    path: str, tmp_path: Path
) -> None:
    assert {q.id for q in DATA_PARALLEL.questions} & {q.id for q in COLLECTIVES.questions}
    put(tmp_path / path, text(answers=9))
    one = only(find(tmp_path, [DATA_PARALLEL], others=OTHERS))
    assert (one.slug, one.status, one.path) == ("data_parallel", MISSING, None)
    assert one.reason == "Nothing was handed in for this, only for collectives."


def test_the_name_of_another_chapter_is_no_part_of_a_students(tmp_path: Path) -> None:
    put(tmp_path / "ada_collectives.ipynb", text())
    put(tmp_path / "collectives" / "bob.ipynb", text())
    found = find(tmp_path, [DATA_PARALLEL], others=OTHERS)
    assert {one.student: one.status for one in found} == {"ada": MISSING, "bob": MISSING}


def test_what_cannot_be_read_is_refused_unless_it_is_called_as_another_chapter(
    tmp_path: Path,
) -> None:
    put(tmp_path / "ada" / "collectives.ipynb", "{")
    put(tmp_path / "bob" / "work.ipynb", "{")
    found = by_student(find(tmp_path, [DATA_PARALLEL], others=OTHERS), "data_parallel")
    assert {name: one.status for name, one in found.items()} == {"ada": MISSING, "bob": REFUSED}


@pytest.mark.parametrize("name", ["roster.csv", "class.zip", "class"])
def test_a_file_that_is_no_notebook_is_no_folder_of_submissions(name: str, tmp_path: Path) -> None:
    file = put(tmp_path / name, "student\nada\n")
    with pytest.raises(ValueError, match=r"is no folder of submissions.*--roster"):
        find(file, BOTH)


@pytest.mark.parametrize("name", ["ada.pdf", "ada_collectives.pdf", "Collectives - ada (1).docx"])
def test_another_file_of_a_student_on_the_roster_is_theirs(name: str, tmp_path: Path) -> None:
    put(tmp_path / name, "%PDF")
    one = only(find(tmp_path, [COLLECTIVES], [Student("ada")]))
    assert (one.student, one.status) == ("ada", REFUSED)


# -- reading -------------------------------------------------------------------------------------


def edited(**changes: Any) -> bytes:
    return json.dumps(json.loads(text()) | changes).encode()


def with_cell(cell: Any) -> bytes:
    return edited(cells=[cell])


CELL = {"cell_type": "code", "id": "a", "metadata": {}, "source": "x", "outputs": []}
OLD = {"cell_type": "heading", "level": 2, "source": "x", "metadata": {}}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b" \n\t", "is empty"),
        (b"\xff\xfe{}", "is not UTF-8"),
        (text().encode("utf-16"), "is not UTF-8"),
        (b"<!DOCTYPE html>", "is not JSON"),
        (b'{"cells": [', "is not JSON"),
        (b"9" * 5000, "a number is too long"),
        (b"[" * 100_000 + b"]" * 100_000, "nested more than 200 levels"),
        (b'{"a":' * 100_000, "nested more than 200 levels"),
        (b"[]", "is JSON, but no notebook"),
        (b"null", "is JSON, but no notebook"),
        (b"{}", "is JSON, but no notebook"),
        (
            edited(nbformat=2),
            "nbformat 2; 3 and 4 are read). Open and save it in Jupyter, or run `jupyter",
        ),
        (edited(nbformat=3), "has no list of cells"),
        (edited(nbformat=3, worksheets=[{"cells": [3]}]), "as its cell 1"),
        (edited(nbformat=3, worksheets=[{"cells": [CELL]}]), "as its cell 1"),  # no input
        (edited(nbformat=3, worksheets=[{"cells": [OLD] * 1001}]), "1,001 cells; at most 1,000"),
        (edited(nbformat="4"), "nbformat '4'"),
        (edited(nbformat=True), "nbformat True"),
        (edited(nbformat={"a": ["b"] * 100}), "nbformat {'a': ['b', 'b', 'b"),
        (edited(cells={}), "has no list of cells"),
        (edited(cells=[CELL] * 1001), "1,001 cells; at most 1,000"),
        (with_cell("x"), "as its cell 1"),
        (with_cell({}), "as its cell 1"),
        (with_cell(CELL | {"cell_type": ["code"]}), "as its cell 1"),
        (with_cell(CELL | {"source": None}), "no text as the source of its cell 1"),
        (with_cell(CELL | {"source": ["a", 1]}), "no text as the source of its cell 1"),
        (with_cell(CELL | {"source": "\ud800"}), "lone surrogate) in its cell 1"),
        (with_cell(CELL | {"source": ["\ud83d", "x"]}), "lone surrogate) in its cell 1"),
    ],
    ids=lambda value: value[:20].decode("latin-1") if isinstance(value, bytes) else None,
)
def test_what_is_no_notebook_is_refused_with_advice(
    content: bytes, words: str, tmp_path: Path
) -> None:
    with pytest.raises(Refused, match=r"^a.ipynb .*Hand in the .ipynb file") as caught:
        read(put(tmp_path / "a.ipynb", content))
    assert words in str(caught.value)


def no_file(path: Path) -> None:
    pass


def listening(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(path))


def large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(10_000_001)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (no_file, "cannot be opened (No such file"),
        (Path.mkdir, "is a folder and no file"),
        (os.mkfifo, "is a device or a pipe"),
        (listening, "cannot be opened"),
        (large, "is larger than 10 MB without its outputs. Delete the data or the pictures"),
        (lambda path: path.symlink_to("/etc/passwd"), "is a link"),
        (lambda path: path.symlink_to(path), "is a link"),
        (lambda path: path.symlink_to("/dev/zero"), "is a link"),
    ],
)
def test_what_is_no_ordinary_file_is_refused_and_not_waited_for(
    make: Callable[[Path], object], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make(tmp_path / "a.ipynb")
    for below in (None, tmp_path):
        with pytest.raises(Refused, match=r"^a\.ipynb") as caught:
            read(tmp_path / "a.ipynb", below)
        assert words in str(caught.value)


def test_a_file_that_grows_under_the_reader_is_not_read_without_end() -> None:
    growing = Path("/proc/self/maps")  # of no size, as far as the system says, and with content
    assert growing.stat().st_size == 0
    with pytest.raises(Refused, match=r"larger than 1e-06 MB"):
        read_bytes(growing, None, most=1)


@pytest.mark.parametrize("unit", ['\\\\"', '""', "[]", "[", "{", '"', "1,", "\\\\", "😀"])
def test_nesting_is_measured_in_one_pass_whatever_the_text(unit: str, tmp_path: Path) -> None:
    """A text of quotes that are escaped, looked at again from each of them, would take a year."""
    for start in ('"', ""):
        content = start + unit * (1_000_000 // len(unit)) + "\\"
        began = time.process_time()
        with pytest.raises(Refused):
            read(put(tmp_path / "a.ipynb", content))
        assert time.process_time() - began < 60


def test_a_notebook_is_read_with_a_byte_order_mark_and_without_what_is_not_needed(
    tmp_path: Path,
) -> None:
    cell = {
        "cell_type": "code",
        "id": "a",
        "source": ["x = 1\n", "y = '[{'"],
        "outputs": [{"text": "x"}],
        "attachments": {"a": 1},
        "execution_count": 10**50,
        "metadata": {"nbgrader": {"grade_id": "b", "points": 99}, "tags": ["x"]},
    }
    others = [CELL | {"id": 3, "metadata": []}, {"cell_type": "raw", "source": "", "id": "x" * 999}]
    content = edited(cells=[cell, *others], metadata={"x": float("nan")}, nbformat_minor=2)
    found = read(put(tmp_path / "a.ipynb", b"\xef\xbb\xbf" + content))
    role = {"nbgrader": {"grade_id": "b"}}
    assert found == {
        "nbformat": 4,
        "nbformat_minor": 5,
        "metadata": {},
        "cells": [
            {"cell_type": "code", "id": "a", "metadata": role, "source": "x = 1\ny = '[{'"},
            {"cell_type": "code", "metadata": {}, "source": "x"},
            {"cell_type": "raw", "metadata": {}, "source": ""},
        ],
    }


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)
WORDS = st.sampled_from(["code", "markdown", "raw", "heading", "seconds", "mean-test", "imports"])
FIELD = JSON | WORDS | st.lists(WORDS | JSON, max_size=3)
FUZZED_CELL = JSON | st.fixed_dictionaries(
    {},
    optional={
        "cell_type": FIELD,
        "id": FIELD,
        "source": FIELD,
        "metadata": FIELD | st.fixed_dictionaries({"nbgrader": FIELD | st.fixed_dictionaries({"grade_id": FIELD})}),
    },
)  # fmt: skip


def read_or_refuse(content: bytes, path: Path) -> None:
    """It is read, and then rebuilt, or it is refused; nothing else comes of it."""
    try:
        notebook = read(put(path, content))
    except Refused:
        return
    assert all(type(cell["source"]) is str for cell in notebook["cells"])
    json.dumps(notebook).encode()
    assert set(rebuild(COLLECTIVES, notebook).answers) == {q.id for q in COLLECTIVES.questions}


FUZZ = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@FUZZ
@given(st.binary(max_size=60) | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_and_any_json_are_read_or_refused(tmp_path: Path, content: bytes) -> None:
    read_or_refuse(content, tmp_path / "a.ipynb")


@FUZZ
@given(st.lists(FUZZED_CELL, max_size=6) | JSON, FIELD | st.just(4))
def test_any_cells_are_read_or_refused(tmp_path: Path, cells: Any, version: Any) -> None:
    read_or_refuse(json.dumps({"nbformat": version, "cells": cells}).encode(), tmp_path / "a.ipynb")
    read_or_refuse(json.dumps({"nbformat": 4, "cells": cells}).encode(), tmp_path / "a.ipynb")


@FUZZ
@given(st.integers(0, 60), st.sampled_from(["id", "cell_type", "source", "metadata"]), FIELD)
def test_a_released_notebook_with_any_field_changed_is_read_or_refused(
    tmp_path: Path, number: int, field: str, value: Any
) -> None:
    notebook = copy.deepcopy(BLANK["collectives"])
    notebook["cells"][number % len(notebook["cells"])][field] = value
    read_or_refuse(json.dumps(notebook).encode(), tmp_path / "a.ipynb")


@FUZZ
@given(st.integers(0, 2**31), st.binary(max_size=4), st.integers(0, 50))
def test_a_damaged_notebook_is_read_or_refused(
    tmp_path: Path, place: int, bytes_put: bytes, lost: int
) -> None:
    content = text().encode()
    place %= len(content)
    read_or_refuse(content[:place] + bytes_put + content[place + lost :], tmp_path / "a.ipynb")
