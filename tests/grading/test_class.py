"""A whole class through the real grader: exactly the points that were worked out by hand."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dlsys.grading.result import GRADED
from tests.exercises.notebooks import ROOT
from tests.grading import the_class
from tests.grading.attacks import points

NO_SANDBOX = 3
Rows = dict[tuple[str, str], dict[str, str]]


def command(folder: Path, out: str, *more: str) -> subprocess.CompletedProcess[str]:
    """Grade the class in `folder` as an instructor does, with less patience."""
    words = [str(Path(sys.executable).with_name("dlsys-grade")), str(folder / "submissions")]
    words += ["--roster", str(folder / "roster.csv"), "--out", str(folder / out), "--jobs", "2"]
    words += ["--seed", "11", "--cell-seconds", "5", "--check-seconds", "5", "--memory-gib", "1.5"]
    words += more
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=900)
    if done.returncode == NO_SANDBOX and os.environ.get("SANDBOX_TEST") != "required":
        pytest.skip(done.stderr)
    return done


def rows(path: Path) -> Rows:
    with path.open(encoding="utf-8-sig", newline="") as file:
        return {(row["student"], row["assignment"]): row for row in csv.DictReader(file)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("class")


@pytest.fixture(scope="module")
def expected(folder: Path) -> dict[tuple[str, str], dict[str, float] | str]:
    return the_class.write(folder)


@pytest.fixture(scope="module")
def graded(folder: Path, expected: object) -> Rows:
    done = command(folder, "grades")
    assert done.returncode == 0, done.stdout + done.stderr
    return rows(folder / "grades" / "grades.csv")


def test_the_class_has_thirty_notebooks_of_every_sort() -> None:
    assert len(the_class.THE_CLASS) == 30
    assert len({each.where for each in the_class.THE_CLASS}) == 30
    assert {each.base for each in the_class.THE_CLASS} == {"solved", "guessed", "blank"}


def test_every_student_has_exactly_the_expected_points(
    graded: Rows, expected: dict[tuple[str, str], dict[str, float] | str]
) -> None:
    assert graded.keys() == expected.keys()
    for key, earns in expected.items():
        row = graded[key]
        questions = points(key[1])
        if isinstance(earns, str):
            assert row["status"] == earns, (key, row["reason"])
            assert row["reason"]
            assert not any(row[question] for question in questions), key
            assert row["total"] == ""
        else:
            assert row["status"] == GRADED, (key, row["reason"])
            found = {question: float(row[question]) for question in questions}
            assert found == pytest.approx(earns, abs=1e-4), key
            assert float(row["total"]) == pytest.approx(sum(earns.values()), abs=1e-3)


def test_answers_in_words_wait_for_a_person_and_others_for_nobody(graded: Rows) -> None:
    answered = {(each.student, each.slug) for each in the_class.THE_CLASS if each.words}
    assert len(answered) == 2
    for key, row in graded.items():
        if row["status"] == GRADED:
            points, waiting = ("", 3) if key in answered else ("0", 0)
            assert row[the_class.IN_WORDS[key[1]]] == points, key
            assert float(row["to_grade_by_hand"]) == waiting, key


def test_grading_again_from_the_start_gives_the_same_grades(folder: Path, graded: Rows) -> None:
    slug = "collectives"  # with threads of ranks and hidden instances it could come out otherwise
    done = command(folder, "again", "--assignment", slug)
    assert done.returncode == 0, done.stdout + done.stderr
    again = rows(folder / "again" / "grades.csv")
    both = [key for key, row in graded.items() if key[1] == slug and row["status"] == GRADED]
    assert len(both) == 9
    for key in both:  # the other assignment has columns of its own
        assert again[key] == {column: graded[key][column] for column in again[key]}


def test_every_student_has_feedback(folder: Path, graded: Rows) -> None:
    names = {path.stem for path in (folder / "grades" / "feedback").glob("*.html")}
    assert {student for student, _ in graded} - set(the_class.NOTHING) <= names
