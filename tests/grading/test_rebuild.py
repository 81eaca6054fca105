"""A student's notebook on the trusted one: what is theirs stays, and what is not is put back."""

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlsys.grading.assignment import ANSWER, FREE, TEST, TRUSTED, load
from dlsys.grading.collecting.rebuild import Step, Submission, rebuild, unchanged
from dlsys.grading.result import LOOK
from tests.exercises.notebooks import ROOT

COLLECTIVES = load(ROOT, "collectives")
RELEASED = json.loads((ROOT / "exercises" / "collectives" / "collectives.ipynb").read_text())
ANSWERS = [question.id for question in COLLECTIVES.questions]
Cells = list[dict[str, Any]]


def place(cells: Cells, name: str) -> int:
    return next(i for i, cell in enumerate(cells) if cell["id"] == name)


def cell(cells: Cells, name: str) -> dict[str, Any]:
    return cells[place(cells, name)]


def own(source: str, kind: str = "code", **more: Any) -> dict[str, Any]:
    return {"cell_type": kind, "id": "mine", "metadata": {}, "source": source} | more


def copied(original: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A cell as Jupyter pastes it: its metadata, and an id of its own."""
    return copy.deepcopy(original) | {"id": "pasted"} | changes


def after(*edits: Callable[[Cells], object]) -> Submission:
    notebook = copy.deepcopy(RELEASED)
    for edit in edits:
        edit(notebook["cells"])
    return rebuild(COLLECTIVES, notebook)


def answer(name: str, source: str) -> Callable[[Cells], object]:
    return lambda cells: cell(cells, name).update(source=source)


def insert(before: str, new: dict[str, Any]) -> Callable[[Cells], object]:
    return lambda cells: cells.insert(place(cells, before), new)


def remove(*names: str) -> Callable[[Cells], object]:
    return lambda cells: [cells.remove(cell(cells, name)) for name in names]


def around(submission: Submission, first: str, last: str) -> list[tuple[str, str]]:
    """Kinds and sources of the steps from the ANSWER of `first` to the TEST of `last`."""
    steps = [(step.kind, step.source) for step in submission.steps]
    ids = [(step.kind, step.id) for step in submission.steps]
    return steps[ids.index((ANSWER, first)) : ids.index((TEST, last)) + 1]


BLANK = after()
TRUSTED_CELLS = [step for step in BLANK.steps if step.kind in (TRUSTED, TEST)]


def test_the_released_notebook_is_rebuilt_as_it_is() -> None:
    assert BLANK.notes == ()
    assert BLANK.answers == {q.id: q.blank for q in COLLECTIVES.questions}
    assert BLANK.written == {"choice": "YOUR ANSWER HERE"}
    code = [each for each in COLLECTIVES.cells if each.kind in (TRUSTED, ANSWER, FREE, TEST)]
    assert [step.kind for step in BLANK.steps] == [each.kind for each in code]
    assert all(not step.source for step in BLANK.steps if step.kind == TEST)


def test_answers_are_taken_by_the_id_of_their_cell() -> None:
    rebuilt = after(answer("seconds", "seconds = 3"), answer("choice", "A ring."))
    assert rebuilt.answers["seconds"] == "seconds = 3"
    assert rebuilt.written == {"choice": "A ring."}
    assert Step(ANSWER, "seconds", "seconds = 3") in rebuilt.steps
    assert rebuilt.notes == ()


@pytest.mark.parametrize("ids", [None, "8f2c"])
def test_answers_are_taken_by_nbgraders_name_where_an_editor_changes_ids(ids: str | None) -> None:
    def renamed(cells: Cells) -> None:
        for number, each in enumerate(cells):
            each["id"] = f"{ids}{number}"
            if ids is None:
                del each["id"]

    rebuilt = after(answer("mean", "ring_mean = 3"), renamed)
    assert rebuilt.answers["mean"] == "ring_mean = 3"
    assert [s for s in rebuilt.steps if s.kind in (TRUSTED, TEST)] == TRUSTED_CELLS
    assert rebuilt.notes == ()


def test_ends_of_lines_and_spaces_behind_them_change_nothing() -> None:
    def as_windows(cells: Cells) -> None:
        for each in cells:
            each["source"] = "".join(each["source"]).replace("\n", "  \r\n") + "\n\n"

    assert after(as_windows).notes == ()
    assert unchanged("a = 1  \r\n", "a = 1")
    assert not unchanged(" a = 1", "  a = 1\nb")


# -- tests and locked cells ----------------------------------------------------------------------


def test_edited_deleted_and_relabelled_checks_are_put_back() -> None:
    rebuilt = after(
        lambda cells: cell(cells, "seconds-test").update(source="print('passed')"),
        remove("sent-test"),
        lambda cells: cell(cells, "mean-test").update(id="x", metadata={}),
        lambda cells: cell(cells, "shift-test").update(cell_type="markdown"),
    )
    assert [s for s in rebuilt.steps if s.kind in (TRUSTED, TEST)] == TRUSTED_CELLS
    assert rebuilt.notes[0] == (
        "The check of '1. One node, and several' had been changed; the original was used."
    )
    assert "check of '2. A broadcast of two others' was missing" in rebuilt.notes[1]


def test_an_edited_locked_cell_runs_before_the_original_so_that_its_imports_are_kept() -> None:
    theirs = "import numpy as np\nfrom dlsys import world"
    rebuilt = after(lambda cells: cell(cells, "imports").update(source=theirs))
    first, second = rebuilt.steps[:2]
    assert first == Step(FREE, "own-1", theirs)
    assert (second.kind, second.id) == (TRUSTED, "imports")
    assert (
        "'imports' had been changed; the original was used, after your version." in rebuilt.notes[0]
    )


def test_a_deleted_locked_cell_is_put_back() -> None:
    rebuilt = after(remove("mean-numbers"))
    assert [s for s in rebuilt.steps if s.kind in (TRUSTED, TEST)] == TRUSTED_CELLS
    assert rebuilt.notes == ("The cell 'mean-numbers' was missing; the original was used.",)


def test_cells_that_were_moved_run_where_they_were_released() -> None:
    rebuilt = after(answer("seconds", "seconds = 3"), lambda cells: cells.reverse())
    assert [s for s in rebuilt.steps if s.kind in (TRUSTED, TEST)] == TRUSTED_CELLS
    assert around(rebuilt, "seconds", "seconds") == [(ANSWER, "seconds = 3"), (TEST, "")]


def test_a_pasted_check_that_calls_itself_the_check_replaces_nothing() -> None:
    fake = {"metadata": {"nbgrader": {"grade_id": "seconds-test"}}}
    rebuilt = after(insert("seconds-test", own("print('passed')", **fake)))
    assert around(rebuilt, "seconds", "seconds")[1:] == [(FREE, "print('passed')"), (TEST, "")]


# -- cells of one's own --------------------------------------------------------------------------


def test_own_cells_run_where_they_are_and_bear_no_name_of_the_students() -> None:
    rebuilt = after(
        insert("title", own("first = 1")),
        insert("sent-test", own("second = 2", id="sent-test-2")),
        insert("sent-test", own("a text", "markdown")),
        insert("mean-question", own("third = 3", id="imports-2")),
    )
    assert rebuilt.steps[0] == Step(FREE, "own-1", "first = 1")
    assert around(rebuilt, "sent", "sent")[1:] == [(FREE, "second = 2"), (TEST, "")]
    following = rebuilt.steps[rebuilt.steps.index(Step(TEST, "sent", "")) + 1]
    assert following == Step(FREE, "own-3", "third = 3")
    assert rebuilt.notes == ()


def test_released_cells_to_play_with_are_the_students() -> None:
    assert Step(FREE, "uneven-try", "x = 3") in after(answer("uneven-try", "x = 3")).steps
    gone = after(remove("uneven-try"))
    assert not [step for step in gone.steps if step.kind == FREE]
    assert gone.notes == ()


# -- several, moved, and missing answers ---------------------------------------------------------


def test_a_missing_answer_is_none_and_said() -> None:
    rebuilt = after(remove("sent", "choice"))
    assert rebuilt.answers["sent"] is None
    assert rebuilt.written["choice"] is None
    assert not [step for step in rebuilt.steps if step == (ANSWER, "sent")]
    assert rebuilt.notes == (
        "The answer cell of '2. A broadcast of two others' is missing.",
        "The answer cell of '9. A tree or a ring?' is missing.",
    )


def test_of_copies_the_cell_in_its_own_place_counts_and_the_others_run_as_own_cells() -> None:
    original = cell(RELEASED["cells"], "sent")
    rebuilt = after(
        answer("sent", "large_broadcast = 1"),
        insert("sent", copied(original, source="large_broadcast = 2")),
        insert("sent-test", copied(original, source="large_broadcast = 3")),
    )
    assert rebuilt.answers["sent"] == "large_broadcast = 1"
    steps = [step.source for step in rebuilt.steps]
    at = steps.index("large_broadcast = 1")
    assert steps[at - 1] == "large_broadcast = 2"
    assert steps[at + 1] == "large_broadcast = 3"
    assert rebuilt.notes == (
        "There are several answer cells for '2. A broadcast of two others'; one of them counts. "
        + LOOK,
    )


def test_an_answer_in_a_copy_counts_where_the_cell_itself_was_left_blank() -> None:
    original = cell(RELEASED["cells"], "seconds")
    rebuilt = after(insert("seconds", copied(original, source="seconds = 3")))
    assert rebuilt.answers["seconds"] == "seconds = 3"
    assert around(rebuilt, "seconds", "seconds") == [(ANSWER, "seconds = 3"), (TEST, "")]
    assert rebuilt.notes == ()


def test_a_split_answer_cell_runs_whole() -> None:
    original = cell(RELEASED["cells"], "fault")
    rebuilt = after(
        answer("fault", "fault_round, fault_src = 1, 1"),
        insert("fault-test", copied(original, source="repaired[1][1] = (1, 2, 0, 1, True)")),
    )
    assert around(rebuilt, "fault", "fault") == [
        (ANSWER, "fault_round, fault_src = 1, 1"),
        (FREE, "repaired[1][1] = (1, 2, 0, 1, True)"),
        (TEST, ""),
    ]


@pytest.mark.parametrize(
    "source", ["def large_broadcast(comm, x):\n    return 3", "large_broadcast = f"]
)
@pytest.mark.parametrize("kept", [True, False])
def test_an_answer_in_a_new_cell_below_the_blank_one_counts(source: str, kept: bool) -> None:
    edits = [insert("sent-test", own(source)), *([] if kept else [remove("sent")])]
    rebuilt = after(*edits)
    assert rebuilt.answers["sent"] == source
    assert Step(FREE, "own-1", source) in rebuilt.steps
    assert rebuilt.notes[-1] == (
        "The answer to '2. A broadcast of two others' was found in a cell beside its own. " + LOOK
    )


@pytest.mark.parametrize(
    "source",
    ["print(large_broadcast(comm, x))", "x = 3", "if x:\n    large_broadcast = 3", "f(large_broadcast=3)"],
)  # fmt: skip
def test_a_trial_below_a_blank_answer_is_no_answer(source: str) -> None:
    assert after(insert("sent-test", own(source))).answers["sent"] == BLANK.answers["sent"]


def test_a_written_answer_in_a_new_cell_counts() -> None:
    def add(cells: Cells) -> None:
        cells.append(own("A ring, as ...", "markdown"))

    assert after(add).written["choice"] == "A ring, as ..."
    assert after(answer("choice", "A tree."), add).written["choice"] == "A tree."
    assert after(remove("choice"), add).written["choice"] == "A ring, as ..."


def test_an_answer_that_was_turned_into_text_runs_all_the_same() -> None:
    for kind in ("markdown", "raw"):
        rebuilt = after(
            lambda cells, kind=kind: cell(cells, "sent").update(cell_type=kind, source="x = 3")
        )
        assert Step(ANSWER, "sent", "x = 3") in rebuilt.steps
        assert "had been turned into text; it was run as code." in rebuilt.notes[0]


# -- cells that lost their names ------------------------------------------------------------------


def stripped(cells: Cells) -> None:
    """What is left where an editor keeps neither ids nor metadata."""
    for number, each in enumerate(cells):
        each["metadata"] = {}
        each["id"] = f"{number:08x}"


def renamed(cells: Cells) -> None:
    for number, each in enumerate(cells):
        each["id"] = f"cell-{number}"
        each["metadata"] = {"nbgrader": {"grade_id": f"cell-{number}"}}


ALL = [*ANSWERS, "choice"]


def answer_all(cells: Cells) -> None:
    for question in COLLECTIVES.questions:
        cell(cells, question.id)["source"] = f"{question.names[0]} = {question.id!r}"
    cell(cells, "choice")["source"] = "answer = 'choice'"


def told(submission: Submission) -> dict[str, str | None]:
    return {id: text and text.partition(" = ")[2] for id, text in submission.answers.items()}


@pytest.mark.parametrize("lose", [stripped, renamed])
def test_cells_without_their_names_are_told_by_headings_and_order(
    lose: Callable[[Cells], None],
) -> None:
    rebuilt = after(answer_all, lose)
    expected = after(answer_all)
    assert (rebuilt.answers, rebuilt.written) == (expected.answers, expected.written)
    assert rebuilt.steps == expected.steps
    (note,) = rebuilt.notes
    assert "lost the names" in note
    assert f"order instead: {len(ALL)}." in note


def test_a_notebook_without_names_that_was_left_blank_is_blank() -> None:
    rebuilt = after(stripped)
    assert (rebuilt.answers, rebuilt.written) == (BLANK.answers, BLANK.written)


def test_edited_questions_own_cells_and_edited_helpers_do_not_hide_an_answer() -> None:
    rebuilt = after(
        answer_all,
        lambda cells: cell(cells, "sent-question").update(source="## 2. Bytes for three kinds\n\nMy notes"),
        lambda cells: cell(cells, "sent-lines").update(source="mine = 3"),
        lambda cells: cell(cells, "sent-test").update(source="print('passed')"),
        insert("mean", own("trial = 1")),
        insert("mean", own("trial = 2")),
        insert("choice", own("print(3)")),
        stripped,
    )  # fmt: skip
    assert told(rebuilt) == {id: repr(id) for id in ANSWERS}
    assert rebuilt.written == {"choice": "answer = 'choice'"}
    assert [s for s in rebuilt.steps if s.kind in (TRUSTED, TEST)] == TRUSTED_CELLS


def test_without_its_heading_an_answer_is_missing_and_no_other_takes_its_place() -> None:
    rebuilt = after(answer_all, remove("mean-question"), stripped)
    assert told(rebuilt) == {id: repr(id) for id in ANSWERS} | {"mean": None}


def test_a_deleted_answer_is_not_taken_from_the_next_question() -> None:
    rebuilt = after(answer_all, remove("mean", "mean-test", "mean-numbers"), stripped)
    assert told(rebuilt) == {id: repr(id) for id in ANSWERS} | {"mean": None}


def test_only_cells_without_names_are_told_by_their_place() -> None:
    lose = [lambda cells, id=id: cell(cells, id).update(metadata={}, id=f"x{id}") for id in ("mean", "mean-question")]  # fmt: skip
    rebuilt = after(answer_all, *lose)
    assert told(rebuilt) == {id: repr(id) for id in ANSWERS}
    assert "order instead: 1." in rebuilt.notes[0]


# -- whatever comes ------------------------------------------------------------------------------

KEEP, DROP, TWICE, TEXTED, UNNAMED = range(5)


@settings(max_examples=60, deadline=None)
@given(
    st.permutations(range(len(RELEASED["cells"]))),
    st.lists(
        st.sampled_from([KEEP, KEEP, DROP, TWICE, TEXTED, UNNAMED]),
        min_size=len(RELEASED["cells"]),
        max_size=len(RELEASED["cells"]),
    ),
)
def test_any_shuffling_duplicating_and_deleting_keeps_each_answer_once_and_what_is_trusted(
    order: list[int], what: list[int]
) -> None:
    cells: Cells = []
    there = set()
    for index in order:
        original = copy.deepcopy(RELEASED["cells"][index])
        name, fate = original["id"], what[index]
        if fate == DROP:
            continue
        if name in [*ANSWERS, "choice"]:
            original["source"] = f"answer = {name!r}"
            there.add(name)
        if fate == TEXTED:
            original["cell_type"] = "raw"
        if fate == UNNAMED:
            del original["id"]
        cells += [original, copied(original)] if fate == TWICE else [original]
    rebuilt = rebuild(COLLECTIVES, {"cells": cells})
    assert [s for s in rebuilt.steps if s.kind in (TRUSTED, TEST)] == TRUSTED_CELLS
    assert [s.id for s in rebuilt.steps if s.kind == ANSWER] == [n for n in ANSWERS if n in there]
    for name, text in (rebuilt.answers | rebuilt.written).items():
        assert text == (f"answer = {name!r}" if name in there else None)
    assert len({step.id for step in rebuilt.steps if step.kind == FREE}) == sum(
        step.kind == FREE for step in rebuilt.steps
    )
