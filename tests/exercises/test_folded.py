"""Between a question and its answer stands little code, and what is folded is so everywhere."""

import json
from typing import Any

import pytest

from dlsys.notebook.fold import fold, is_folded
from tests.contents import CONTENTS, SLUGS
from tests.exercises.notebooks import ROOT, load

MOST_OPEN_LINES = 25


def open_lines(cells: list[dict[str, Any]]) -> dict[str, int]:
    """Lines of unfolded code between each question and its check, the answer cell left out."""
    found: dict[str, int] = {}
    question = ""
    for cell in cells:
        role = cell["metadata"].get("nbgrader", {})
        if cell["cell_type"] == "markdown":
            question = cell["id"] if cell["id"].endswith("-question") else question
        elif role.get("grade"):
            question = ""
        elif question and not role.get("solution") and not is_folded(cell):
            source = "".join(cell["source"])
            found[question] = found.get(question, 0) + len(source.splitlines())
    return found


def test_the_table_of_contents_names_every_exercise_notebook() -> None:
    stored = {path.stem for path in (ROOT / "solutions").glob("*/*.ipynb")}
    assert {page.split("/")[-1] for page in CONTENTS if page.startswith("exercises/")} == stored


@pytest.mark.parametrize("name", SLUGS)
@pytest.mark.parametrize("folder", ["solutions", "exercises"])
def test_at_most_25_lines_stand_open_between_a_question_and_its_answer(
    folder: str, name: str
) -> None:
    counted = open_lines(load(folder, name)["cells"])
    assert {place: n for place, n in counted.items() if n > MOST_OPEN_LINES} == {}


@pytest.mark.parametrize("name", SLUGS)
@pytest.mark.parametrize("folder", ["solutions", "exercises"])
def test_folded_cells_carry_what_the_page_jupyterlab_and_colab_read(folder: str, name: str) -> None:
    folded = 0
    for cell in load(folder, name)["cells"]:
        metadata = cell["metadata"]
        tags = metadata.get("tags", [])
        if "helper" in tags or cell["id"].endswith("-test"):
            folded += 1
            assert metadata["jupyter"] == {"source_hidden": True}
            assert metadata["cellView"] == "form"
            assert "hide-input" in tags
            assert set(metadata["mystnb"]) == {"code_prompt_show", "code_prompt_hide"}
        else:
            assert not {"jupyter", "cellView", "mystnb"} & set(metadata), cell["id"]
    assert folded >= 6


@pytest.mark.parametrize("name", SLUGS)
def test_the_title_says_that_what_is_folded_has_to_be_run(name: str) -> None:
    title = "".join(load("exercises", name)["cells"][0]["source"])
    assert "It is folded, as it holds the hints to every mistake; run it all the same." in title
    assert "Helpers are folded, too: run these cells as well" in title


def cell(kind: str, metadata: dict[str, Any]) -> dict[str, Any]:
    return {"cell_type": kind, "id": "one", "metadata": metadata, "source": "x = 3"}


def test_an_author_sets_one_tag_and_taking_it_away_unfolds_the_cell() -> None:
    one = cell("code", {"tags": ["helper", "mine"]})
    fold(one)
    assert is_folded(one)
    assert one["metadata"]["tags"] == ["helper", "mine", "hide-input"]
    before = json.dumps(one)
    fold(one)
    assert json.dumps(one) == before
    one["metadata"]["tags"].remove("helper")
    fold(one)
    assert one["metadata"] == {"tags": ["mine"]}


def test_checks_are_folded_without_a_tag_and_answers_never() -> None:
    check = cell("code", {"nbgrader": {"grade": True, "solution": False}})
    answer = cell("code", {"nbgrader": {"grade": False, "solution": True}})
    for one in (check, answer):
        fold(one)
    assert is_folded(check)
    assert check["metadata"]["mystnb"]["code_prompt_show"] == "Show the check"
    assert not is_folded(answer)


def test_a_cell_that_is_folded_in_one_place_alone_is_not_folded() -> None:
    assert not is_folded(cell("code", {"jupyter": {"source_hidden": True}}))
    assert not is_folded(cell("code", {"cellView": "form", "tags": ["hide-input"]}))


def test_lines_are_counted_from_the_question_to_its_check() -> None:
    def named(name: str, kind: str = "code", **role: bool) -> dict[str, Any]:
        metadata = {"nbgrader": role} if role else {}
        return {"cell_type": kind, "id": name, "metadata": metadata, "source": ["a\n", "b"]}

    cells = [named("imports"), named("q-question", "markdown"), named("q-run")]
    cells += [named("q", solution=True), named("q-more"), named("q-test", grade=True), named("try")]
    assert open_lines(cells) == {"q-question": 4}
