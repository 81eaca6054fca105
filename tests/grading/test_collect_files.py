"""Files that are read though they are no plain notebook of today: packed, old, full of outputs."""

import io
import itertools
import json
import stat
import time
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import nbformat
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsys.grading.collecting import handed_in, outputs, packed, reading, telling
from dlsys.grading.collecting.collect import FOUND, Refused, find, read
from dlsys.grading.collecting.handed_in import MOST_NOTEBOOKS, MOST_ZIPS
from dlsys.grading.collecting.rebuild import rebuild
from dlsys.grading.collecting.roster import Student
from dlsys.grading.result import REFUSED
from tests.grading.test_collect import (
    BLANK,
    BOTH,
    CELL,
    COLLECTIVES,
    FIELD,
    FUZZ,
    JSON,
    MEMORY,
    by_student,
    only,
    put,
    read_or_refuse,
    text,
)

# -- stored outputs ------------------------------------------------------------------------------


def with_outputs(output: Any) -> bytes:
    notebook = json.loads(text(answers=3))
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"] = [output]
    return json.dumps(notebook).encode()


PLOT = {"output_type": "display_data", "data": {"image/png": "iVBORw0KGgo=" * 70_000}}


def test_outputs_of_twenty_megabytes_are_not_counted(tmp_path: Path) -> None:
    content = with_outputs(PLOT)
    assert len(content) > 20_000_000
    put(tmp_path / "ada" / "collectives.ipynb", content)
    one = only(find(tmp_path, BOTH))
    assert one.status == FOUND, one.reason
    assert one.path
    assert read(one.path, tmp_path) == read(put(tmp_path / "b.ipynb", text(answers=3)))


@pytest.mark.parametrize("key", ["outputs", "attachments", "widgets"])
def test_what_is_stored_is_dropped_and_what_is_written_is_not(key: str) -> None:
    written = f'"{key}": [1]  # {{\\"{key}\\": [2]}} \\\\'
    stored = {key: [{"a": ['"]}', {"b\\": "}]"}]}], "source": written}
    before = json.dumps({"cells": [stored, {key: {}, "source": key}], key: 3}).encode()
    after = json.loads(outputs.without_outputs(before))
    assert after == {"cells": [{key: [], "source": written}, {key: {}, "source": key}], key: 3}


@given(JSON.map(lambda value: json.dumps({"outputs": [value], "x": [value]})))
def test_whatever_outputs_hold_goes_and_what_is_beside_them_stays(content: str) -> None:
    left = json.loads(outputs.without_outputs(content.encode()))
    assert left["outputs"] == []
    assert json.dumps(left["x"]) == json.dumps(json.loads(content)["x"])


@pytest.mark.parametrize(
    "unit", [b" ", b"\\n", b'"', b'"",', b"[],", b"[", b'"outputs":[],', b'"outputs":[', b'\\\\"']
)
@pytest.mark.parametrize("start", [b'{"outputs": [', b'{"outputs": ["', b"{"])
def test_hostile_outputs_are_passed_in_time_that_grows_with_their_length(
    unit: bytes, start: bytes, tmp_path: Path
) -> None:
    content = start + unit * (2_000_000 // len(unit))
    began = time.process_time()
    with pytest.raises(Refused):
        read(put(tmp_path / "a.ipynb", content))
    # More than a second of it is for a million brackets, where it ends whatever the length.
    assert time.process_time() - began < 60


def test_a_file_of_outputs_alone_is_not_read_without_end(tmp_path: Path) -> None:
    with (tmp_path / "a.ipynb").open("wb") as file:
        file.truncate(reading.MOST_STORED + 1)
    with pytest.raises(Refused, match=r"larger than 50 MB\. Clear its outputs"):
        read(tmp_path / "a.ipynb")
    lists = b'{"outputs": [' + b"[]," * outputs.MOST_BRACKETS
    with pytest.raises(
        Refused, match=r"more than 1,000,000 lists are stored in it\. Clear its out"
    ):
        read(put(tmp_path / "a.ipynb", lists))


# -- nbformat 3 ----------------------------------------------------------------------------------


def old(notebook: str) -> bytes:
    """A notebook as nbformat 3 stores it, without ids and with headings as cells."""
    downgraded = nbformat.convert(nbformat.reads(notebook, 4), 3)
    return json.dumps(downgraded).encode()


def test_a_notebook_of_nbformat_3_is_converted_and_is_the_same_each_time(tmp_path: Path) -> None:
    content = old(text(answers=3))
    assert json.loads(content)["nbformat"] == 3
    assert b'"input"' in content
    file = put(tmp_path / "ada" / "collectives.ipynb", content)
    one = only(find(tmp_path, BOTH))
    assert one.status == FOUND, one.reason
    notebook = read(file, tmp_path)
    assert notebook == read(file, tmp_path)
    rebuilt = rebuild(COLLECTIVES, notebook)
    expected = rebuild(COLLECTIVES, json.loads(text(answers=3)))
    assert (rebuilt.answers, rebuilt.steps) == (expected.answers, expected.steps)


OLD_CELL = JSON | st.fixed_dictionaries(
    {},
    optional={
        "cell_type": FIELD | st.sampled_from(["code", "heading", "html"]),
        "level": FIELD | st.sampled_from([2, 10**9, -1, 2.0, True]),
        **dict.fromkeys(("input", "source", "outputs", "metadata", "language"), FIELD),
    },
)


@FUZZ
@given(st.lists(OLD_CELL | st.fixed_dictionaries({"cells": st.lists(OLD_CELL)}), max_size=3) | JSON)
def test_any_worksheets_are_read_or_refused(tmp_path: Path, sheets: Any) -> None:
    for content in ({"worksheets": sheets}, {"worksheets": [{"cells": sheets}]}):
        data = json.dumps(content | {"nbformat": 3}).encode()
        read_or_refuse(data, tmp_path / "a.ipynb")


def test_nothing_is_said_on_the_terminal_of_an_old_notebook(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    read(put(tmp_path / "a.ipynb", old(text())))
    assert capfd.readouterr() == ("", "")  # where a warning that is logged would stand, too


# -- zip files -----------------------------------------------------------------------------------


def packing(files: dict[str, str | bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return made.getvalue()


@pytest.mark.parametrize(
    "path",
    [
        *("ada/work.zip", "ada/week 3/WORK.ZIP", "ada.zip", "collectives/ada.zip"),
        *("ada_1_2_mine.zip", "ada_collectives.zip", "Collectives-ada (1).zip"),
    ],
)
def test_a_notebook_in_a_zip_file_is_found_and_read(path: str, tmp_path: Path) -> None:
    files = {"my work/collectives.ipynb": text(answers=2), "__MACOSX/._x.ipynb": b"\0", "d.csv": ""}
    file = put(tmp_path / path, packing(files))
    put(tmp_path / "bob" / "collectives.ipynb", text())
    one = by_student(find(tmp_path, BOTH, [Student("ada", canvas_id="1")]))["ada"]
    assert (one.status, one.path, one.member) == (FOUND, file, "my work/collectives.ipynb")
    assert read(file, tmp_path, one.member)["cells"] == read_cells(text(answers=2), tmp_path)


def read_cells(content: str, folder: Path) -> Any:
    return read(put(folder / "plain.ipynb", content))["cells"]


def test_several_notebooks_in_a_zip_file_are_each_for_their_assignment(tmp_path: Path) -> None:
    files = {"a.ipynb": text("memory_wall"), "b.ipynb": text(), "collectives.ipynb": text()}
    put(tmp_path / "ada" / "all.zip", packing(files))
    found = find(tmp_path, BOTH)
    assert by_student(found)["ada"].member == "collectives.ipynb"
    assert by_student(found, "memory_wall")["ada"].member == "a.ipynb"


def test_a_zip_file_of_windows_names_its_folders_in_another_way(tmp_path: Path) -> None:
    files = {"work\\collectives.ipynb": text(answers=3), "work\\b.ipynb": text()}
    put(tmp_path / "ada" / "all.zip", packing(files))
    one = only(find(tmp_path, BOTH))
    assert one.member == "work\\collectives.ipynb"
    assert one.notes == (
        "2 files were handed in for this; collectives.ipynb was taken, which has the most answers.",
    )


def encrypted(data: bytes) -> bytes:
    """The zip file with every entry marked as encrypted."""
    return data.replace(b"PK\1\2\x14\x03\x14\0\0\0", b"PK\1\2\x14\x03\x14\0\1\0")


def a_link() -> bytes:
    made, entry = io.BytesIO(), zipfile.ZipInfo("a.ipynb")
    entry.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr(entry, "/etc/passwd")
    return made.getvalue()


def lying() -> bytes:
    """A zip file whose notebook says that it is small, and is a hundred times as large."""
    good = packing({"a.ipynb": b" " * 1_000_000})
    size = (1_000_000).to_bytes(4, "little")
    return good.replace(size, (10_000).to_bytes(4, "little"))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (packing({}), "holds none"),
        (packing({"notes.txt": "x"}), "holds none"),
        (packing({"inner.zip": packing({"a.ipynb": text()})}), "zip files in it count as none"),
        (packing({"../a.ipynb": text()}), "holds none"),
        (packing({"/a.ipynb": text()}), "holds none"),
        (packing({"..\\a.ipynb": text()}), "holds none"),
        (packing({"x" * 300 + ".ipynb": text()}), "holds none"),
        (packing({f"{n}.txt": "" for n in range(1001)}), "more than 1,000 files"),
        (packing({"a.ipynb": b" " * 60_000_000}), "larger than 50 MB or 200 times"),
        (packing({"a.ipynb": b" " * 9_000_000}), "larger than 50 MB or 200 times"),
        (packing({"a.ipynb": text()}, zipfile.ZIP_BZIP2), "packed in a way that is not read"),
        (packing({"a.ipynb": text()}, zipfile.ZIP_LZMA), "packed in a way that is not read"),
        (encrypted(packing({"a.ipynb": text()})), "is encrypted"),
        (a_link(), "is a link"),
        (lying(), "can be unpacked"),
        (packing({"a.ipynb": text()})[:-10], "no zip file that can be unpacked"),
        (b"PK\5\6" + b"\0" * 18, "holds none"),
        (text().encode(), "no zip file that can be unpacked"),
        (packing({"a.ipynb": "{"}), "a.ipynb in ada.zip is not JSON"),
        (packing({"a.ipynb": b" "}), "a.ipynb in ada.zip is empty"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_zip_file_that_is_hostile_or_broken_is_refused_with_a_reason(
    content: bytes, words: str, tmp_path: Path
) -> None:
    put(tmp_path / "class" / "ada" / "ada.zip", content)
    one = only(find(tmp_path / "class", [COLLECTIVES]))
    assert one.status == REFUSED
    assert words in one.reason
    assert "Hand in the .ipynb file" in one.reason
    assert {path.name for path in tmp_path.rglob("*")} == {"class", "ada", "ada.zip"}


def test_a_broken_zip_file_beside_a_notebook_does_no_harm(tmp_path: Path) -> None:
    put(tmp_path / "ada" / "a.zip", b"PK")
    put(tmp_path / "ada" / "collectives.ipynb", text())
    assert only(find(tmp_path, BOTH)).status == FOUND


def test_links_that_are_called_zip_files_are_not_followed(tmp_path: Path) -> None:
    secret = put(tmp_path / "secret.zip", packing({"collectives.ipynb": text()}))
    (tmp_path / "class" / "ada").mkdir(parents=True)
    (tmp_path / "class" / "ada" / "a.zip").symlink_to(secret)
    one = only(find(tmp_path / "class", [COLLECTIVES]))
    assert (one.status, "links are not followed" in one.reason) == (REFUSED, True)


def test_only_so_many_zip_files_are_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []
    real = packed.notebooks
    monkeypatch.setattr(packed, "notebooks", lambda *a: opened.append(a) or real(*a))
    for number in range(30):
        put(tmp_path / "ada" / f"{number}.zip", packing({"x.ipynb": "{"}))
    put(tmp_path / "ada" / "my collectives.zip", packing({"collectives.ipynb": text()}))
    one = only(find(tmp_path, BOTH))
    assert (one.status, one.member) == (FOUND, "collectives.ipynb"), one.reason
    assert len(opened) == MOST_ZIPS
    assert one.notes[0] == (
        "Of 31 zip files that were handed in, 5 were looked into, those with a released name first."
    )


ZIP = packing({"collectives.ipynb": text(), "x/b.ipynb": text()})


@FUZZ
@given(st.integers(0, len(ZIP)), st.binary(max_size=8), st.integers(0, 50))
def test_a_damaged_zip_file_is_read_or_refused(
    tmp_path: Path, place: int, put_in: bytes, lost: int
) -> None:
    end = len(ZIP) - place  # the table of contents is at the end
    put(tmp_path / "ada" / "a.zip", ZIP[:end] + put_in + ZIP[end + lost :])
    assert only(find(tmp_path, [COLLECTIVES])).status in (FOUND, REFUSED)


# -- many files ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "where", ["collectives.ipynb", "a/b/collectives.ipynb", "z/collectives (1).ipynb"]
)
def test_among_300_stray_notebooks_the_released_name_comes_first(
    where: str, tmp_path: Path
) -> None:
    stray = json.dumps(BLANK["collectives"] | {"cells": [CELL]})
    for number in range(300):
        put(tmp_path / "ada" / f"{number:03}.ipynb", stray)
    file = put(tmp_path / "ada" / where, text())
    one = only(find(tmp_path, [COLLECTIVES]))
    assert (one.status, one.path) == (FOUND, file), one.reason
    assert one.notes == (
        f"Of 301 notebooks that were handed in, {MOST_NOTEBOOKS} were looked into, those with a "
        "released name first.",
    )


def test_only_so_many_bytes_are_read_for_one_student(tmp_path: Path) -> None:
    large = json.dumps(BLANK["memory_wall"] | {"widgets": ["x" * 40_000_000]})
    for number in range(3):
        put(tmp_path / "ada" / f"{number}.ipynb", large)
    put(tmp_path / "ada" / "all.zip", packing(dict.fromkeys("ab", large) | {"c.ipynb": large}))
    put(tmp_path / "ada" / "collectives.ipynb", text())
    found = find(tmp_path, BOTH)
    assert by_student(found)["ada"].status == FOUND
    assert by_student(found, "memory_wall")["ada"].status == FOUND
    assert found[0].notes[0].startswith("Of 5 notebooks that were handed in, 3 were looked into")


def test_folders_in_folders_are_walked_level_by_level_and_not_to_their_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in itertools.product("abcdefgh", repeat=3):
        tmp_path.joinpath("ada", *place).mkdir(parents=True)
    put(tmp_path / "ada" / "h" / "collectives.ipynb", text())
    listed: list[Any] = []
    real = handed_in._entries

    def entries(*arguments: Any) -> Any:
        found = real(*arguments)
        listed.extend(found)
        return found

    monkeypatch.setattr(handed_in, "_entries", entries)
    monkeypatch.setattr(handed_in, "MOST_FILES", 100)
    assert only(find(tmp_path, [COLLECTIVES])).status == FOUND
    # The student's folder, all on two levels, and four folders more, until there are 100.
    assert len(listed) == 1 + 8 + (64 + 1) + 4 * 8


@pytest.mark.parametrize("place", ["ada", "ada/data"])
def test_a_notebook_among_or_behind_any_number_of_other_files_is_found(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handed_in, "MOST_FILES", 10)
    for number in range(100):
        put(tmp_path / place / f"{number:05}.txt", "")
    file = put(tmp_path / "ada" / "work" / "collectives.ipynb", text())
    assert only(find(tmp_path, BOTH)).path == file
    file.unlink()
    reason = only(find(tmp_path, [COLLECTIVES])).reason
    assert reason.startswith("00000.txt is no notebook. Hand in the .ipynb file as Jupyter")


def test_a_notebook_of_short_lines_is_not_looked_through_for_each_assignment(
    tmp_path: Path,
) -> None:
    cells = [CELL | {"id": f"x{number}", "source": f"{number}\n" * 9_800} for number in range(60)]
    put(tmp_path / "ada.ipynb", json.dumps(BLANK["memory_wall"] | {"cells": cells}))
    telling.trimmed.cache_clear()
    find(tmp_path, [COLLECTIVES], others=[MEMORY, *(replace(MEMORY, slug=c) for c in "abcdefgh")])
    released = {cell.source for assignment in BOTH for cell in assignment.cells}
    assert 60 <= telling.trimmed.cache_info().misses <= 60 + len(released)


def test_a_zip_file_that_changes_after_it_was_found_is_refused(tmp_path: Path) -> None:
    put(tmp_path / "ada" / "a.zip", packing({"collectives.ipynb": text()}))
    one = only(find(tmp_path, BOTH))
    assert one.path
    put(one.path, packing({"other.ipynb": text()}))
    with pytest.raises(Refused, match="no zip file that can be unpacked"):
        read(one.path, tmp_path, one.member)
