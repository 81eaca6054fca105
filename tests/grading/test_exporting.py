"""Exporters of one's own: what they get, where it goes, and that one that fails loses nothing."""

from pathlib import Path

import pytest

from dlsys.grading.commands import cli
from dlsys.grading.course import run as course
from dlsys.grading.course.grade import Grade
from dlsys.grading.course.plugins import load
from dlsys.grading.reports.exporting import export, folder_of
from dlsys.grading.reports.platforms import EXPORTERS, canvas
from tests.grading.test_course import Watched, an_assignment, graded, hand_in

PLATFORMS = {
    "canvas/collectives.csv",
    "moodle/collectives.csv",
    "gradescope/collectives/ada/results.json",
}


def write_own(folder: Path, body: str) -> str:
    path = folder / "own.py"
    path.write_text(f"def mine(grades, assignment):\n    {body}\n", "utf-8")
    return f"{path}:mine"


def exported(folder: Path, body: str) -> list[str]:
    """What is said of a function of one's own that writes one assignment of two students."""
    text = write_own(folder, body)
    grades = [Grade(graded("ada", 2, 1)), Grade(graded("bob", 0, 0, slug="other"))]
    return export(folder / "out", text, load(text), grades, {"collectives": an_assignment()})


def test_the_platforms_are_written_by_exporters_like_ones_own(tmp_path):
    grades = [Grade(graded("ada", 2, 1))]
    several = {"collectives": an_assignment()}
    for name, exporter in EXPORTERS.items():
        assert export(tmp_path, name, exporter, grades, several) == []
    files = {p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*") if p.is_file()}
    assert files == PLATFORMS
    text = (tmp_path / "canvas" / "collectives.csv").read_bytes().decode()
    assert text == canvas(grades, an_assignment())


def test_an_exporter_gets_the_grades_of_an_assignment_and_names_its_files(tmp_path):
    body = "return {f'{g.result.student}/{assignment.slug}.txt': b'%d' % g.total for g in grades}"
    assert exported(tmp_path, body) == []
    assert (tmp_path / "out" / "mine" / "ada" / "collectives.txt").read_text() == "3"
    assert [path.name for path in (tmp_path / "out" / "mine").iterdir()] == ["ada"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("raise KeyError('x')", "failed: KeyError: 'x'"),
        ("exit()", "failed: SystemExit"),
        ("return None", "returned None; it must return {file name: text}"),
        ("return 'text'", "returned 'text'"),
        ("return {'a.txt': 5}", "puts 5 into a.txt"),
        ("return {'a.txt': float('nan')}", "puts nan into a.txt"),
        ("return {5: 'text'}", "names a file 5"),
        ("return {'../grades.csv': ''}", "names a file '../grades.csv'; it must stay"),
        ("return {'/tmp/a': ''}", "names a file '/tmp/a'"),
        ("return {'': ''}", "names a file ''"),
        ("return {'.': ''}", "names a file '.'"),
        ("return {'a/../../b': ''}", "must stay in the folder"),
        ("return {'a\\0b': ''}", "must stay in the folder"),
    ],
)
def test_an_exporter_that_fails_is_named_and_writes_nothing(tmp_path, body, words):
    (said,) = exported(tmp_path, body)
    assert f"{tmp_path / 'own.py'}:mine" in said
    assert words in said
    assert "(collectives)" in said
    assert not (tmp_path / "out").exists()


def test_the_command_writes_all_other_files_says_what_failed_and_ends_with_1(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(course, "boxes", Watched())
    hand_in(tmp_path / "in", "ada")
    broken = write_own(tmp_path, "raise ValueError('no registrar today')")
    (tmp_path / "good.py").write_text("def good(grades, each): return {'all.txt': 'fine'}")
    out = tmp_path / "out"
    command = [str(tmp_path / "in"), "--out", str(out), "--assignment", "collectives"]
    command += ["--export", broken, "--export", f"{tmp_path / 'good.py'}:good"]
    assert cli.main(command) == cli.SOME_NOT_GRADED
    assert (
        f"{broken} failed: ValueError: no registrar today (collectives)" in capsys.readouterr().out
    )
    assert all((out / place).is_file() for place in PLATFORMS)
    assert (out / "grades.csv").is_file()
    assert (out / "feedback" / "ada.html").is_file()
    assert (out / "good" / "all.txt").read_text() == "fine"
    write_own(tmp_path, "return {'now.txt': ''}")
    assert cli.main(command) == cli.OK
    assert "Graded now: 0." in capsys.readouterr().out
    assert (out / "mine" / "now.txt").is_file()


@pytest.mark.parametrize("name", ["canvas", "records", "feedback", "nbgrader", "gone"])
def test_an_exporter_cannot_write_among_the_graders_own_files(tmp_path, capsys, name):
    hand_in(tmp_path / "in", "ada")
    (tmp_path / "own.py").write_text(f"{name} = print")
    text = f"{tmp_path / 'own.py'}:{name}"
    assert folder_of(text) == name
    command = [str(tmp_path / "in"), "--out", str(tmp_path / "out"), "--export", text]
    assert cli.main(command) == cli.USAGE
    assert f"there is another {name}/" in capsys.readouterr().err
