"""What the release command refuses to hand out."""

from pathlib import Path

import pytest

from dlsys.notebook import release
from tests.exercises.notebooks import ROOT
from tests.grading.small_course import make

ANSWER = "x = ...\n### BEGIN SOLUTION\nx = 3\n### END SOLUTION"
QUESTION = ("x = ...", ANSWER, "same(x, 3)", "same(x + 1, 4)")


@pytest.mark.parametrize("hidden", ["", "pass"])
@pytest.mark.parametrize("arguments", [[], ["--check"]])
def test_a_question_with_points_and_no_hidden_check_is_not_released(
    hidden: str, arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make(tmp_path, "pass", {"good": QUESTION})
    source = tmp_path / "solutions" / "small" / "small.ipynb"
    text = source.read_text().replace("same(x + 1, 4)", hidden)
    source.write_text(text)
    released = (tmp_path / "exercises" / "small" / "small.ipynb").read_text()
    assert release.main(["--root", str(tmp_path), *arguments]) == 1
    said = capsys.readouterr().err
    assert "good-test has points and no hidden check" in said
    assert "of another instance than the notebook shows" in said
    assert source.read_text() == text
    assert (tmp_path / "exercises" / "small" / "small.ipynb").read_text() == released


def test_a_question_with_a_hidden_check_is_released(tmp_path: Path) -> None:
    make(tmp_path, "pass", {"good": QUESTION})
    assert release.main(["--root", str(tmp_path)]) == 0


@pytest.mark.parametrize(
    "path", sorted((ROOT / "solutions").glob("*/*.ipynb")), ids=lambda p: p.stem
)
def test_each_question_of_the_book_has_a_hidden_check(path: Path) -> None:
    assert release.unhidden(path) == []
