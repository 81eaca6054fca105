"""The pretend disk of exercises: without a crash as a real one, and after one as bad as it may be."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from dlsys.exercises import OtherStructure
from dlsys.exercises.disk import at_the_end, crashes, operations

BEFORE = {"latest": "a", "a": {"x": "1", "y": "2"}, "b": {"x": "0"}}
DONE = [
    ("write", "b/x", "3"),
    ("write", "c/z", "4"),
    ("fsync", "b/x"),
    ("rename", "c", "d"),
    ("write", "next", "d"),
    ("rename", "next", "latest"),
    ("delete", "a/y"),
    ("rename", "b/x", "b/w"),
    ("delete", "b"),
]


def on_a_real_disk(root: Path, done: list[tuple[str, ...]]) -> dict[str, Any]:
    """The same operations on a folder of this machine."""
    for name, value in BEFORE.items():
        for file, text in {"": value}.items() if isinstance(value, str) else value.items():
            (root / name / file).parent.mkdir(exist_ok=True)
            (root / name / file).write_text(text)
    for kind, name, *more in done:
        path = root / name
        if kind == "write":
            path.parent.mkdir(exist_ok=True)
            path.write_text(more[0])
        elif kind == "rename":
            os.replace(path, root / more[0])
        elif kind == "delete":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return {
        path.name: {file.name: file.read_text() for file in path.iterdir()}
        if path.is_dir()
        else path.read_text()
        for path in root.iterdir()
    }


@pytest.mark.parametrize("many", range(len(DONE) + 1))
def test_without_a_crash_the_disk_holds_what_a_real_one_holds(many: int, tmp_path: Path) -> None:
    assert at_the_end(DONE[:many], BEFORE) == on_a_real_disk(tmp_path, DONE[:many])


def after(*done: tuple[str, ...]) -> list[dict[str, Any]]:
    """The disks that a crash may leave after all of these."""
    return [disk for number, disk in crashes(list(done), BEFORE) if number == len(done)]


def test_a_crash_before_anything_leaves_all_as_it_was() -> None:
    assert [disk for number, disk in crashes(DONE, BEFORE) if number == 0] == [BEFORE]


def test_a_new_file_may_be_missing_empty_or_whole() -> None:
    assert {str(disk["a"].get("n")) for disk in after(("write", "a/n", "5"))} == {"None", "", "5"}


def test_an_fsync_of_a_file_is_of_its_text_and_not_of_its_name() -> None:
    found = after(("write", "a/n", "5"), ("fsync", "a/n"))
    assert {str(disk["a"].get("n")) for disk in found} == {"None", "5"}
    found = after(("write", "a/n", "5"), ("fsync", "a"))
    assert {str(disk["a"].get("n")) for disk in found} == {"", "5"}
    assert all(
        d["a"]["n"] == "5" for d in after(("write", "a/n", "5"), ("fsync", "a/n"), ("fsync", "a"))
    )


def test_a_file_that_is_written_over_may_be_old_empty_or_new() -> None:
    assert {disk["latest"] for disk in after(("write", "latest", "b"))} == {"a", "", "b"}


def test_a_rename_is_whole_or_not_at_all() -> None:
    found = after(("rename", "b", "c"))
    assert {tuple(sorted(disk)) for disk in found} == {("a", "b", "latest"), ("a", "c", "latest")}
    assert all("c" in disk for disk in after(("rename", "b", "c"), ("fsync", ".")))


def test_two_changes_of_a_folder_come_to_the_disk_in_any_order() -> None:
    found = after(("rename", "b", "c"), ("delete", "a"))
    assert {("a" in disk, "c" in disk) for disk in found} == {
        (a, c) for a in (False, True) for c in (False, True)
    }


@pytest.mark.parametrize(
    ("operation", "words"),
    [
        (("fsync", "c"), "there is no 'c'"),
        (("delete", "a/z"), "there is no 'a/z'"),
        (("write", "a", "text"), "'a' is a folder"),
        (("write", "latest/x", "text"), "there is no folder 'latest'"),
        (("rename", "a/x", "b/x"), "one in the same folder"),
        (("rename", "a", "."), "one in the same folder"),
        (("write", "a/b/c", "text"), 'a path is "file"'),
        (("delete", "."), 'a path is "file"'),
        (("write", "", "text"), 'a path is "file"'),
        (("mkdir", "c"), "There are ('write', path, text)"),
        (("write", "c"), "operation 1 is ('write', 'c')"),
        ((), "operation 1 is ()"),
    ],
)
def test_what_cannot_be_done_gets_a_sentence(operation: tuple[str, ...], words: str) -> None:
    with pytest.raises(OtherStructure) as caught:
        at_the_end([operation], BEFORE)
    assert words in str(caught.value)


def test_more_operations_than_are_tried_are_refused() -> None:
    with pytest.raises(OtherStructure, match="at most 500"):
        operations([("fsync", "a")] * 501)
