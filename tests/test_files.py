"""A file is there whole or not at all, whoever writes it, and whatever ends the writing."""

import ast
import os
import resource
import stat
from pathlib import Path

import pytest

from dlsys.files import holds, write, written
from dlsys.input_pipeline import (
    Records,
    read_records,
    read_shard,
    write_records,
    write_shards,
    write_tokens,
)
from dlsys.roofline.traces import HOST, Event, Trace
from dlsys.world.timeline import Timeline
from tests.contents import ROOT


def fails_after(first, then):
    yield from first
    raise then


def tree(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.mark.parametrize("error", [RuntimeError("no more"), KeyboardInterrupt(), SystemExit(1)])
@pytest.mark.parametrize("there", [True, False])
def test_what_ends_amid_writing_leaves_what_was_there(tmp_path, error, there):
    writers = {
        "records": lambda path, some: write_records(path, some),
        "tokens": lambda path, some: write_tokens(path, (len(each) for each in some), 100),
        "shards": lambda path, some: write_shards(path, ({"txt": each} for each in some), 1),
    }
    for name, writer in writers.items():
        path = tmp_path / name / name
        path.parent.mkdir()
        if name == "shards":
            path.mkdir()
        if there:
            writer(path, [b"old", b"older"])
        before = tree(path if path.is_dir() else path.parent)
        with pytest.raises(type(error)):
            writer(path, fails_after([b"a", b"bc"], error))
        assert tree(path if path.is_dir() else path.parent) == before


def test_records_and_shards_may_be_written_from_the_file_that_has_them(tmp_path):
    path = tmp_path / "records"
    write_records(path, [b"a", b"bc", b""])
    assert write_records(path, read_records(path)) == 3
    assert list(read_records(path)) == [b"a", b"bc", b""]
    assert write_records(path, list(read_records(path))[:2]) == len(Records(path)) == 2
    (shard,) = write_shards(tmp_path / "shards", [{"txt": b"x"}, {"txt": b"y"}], 2)
    samples = ({"txt": sample["txt"]} for sample in read_shard(shard))
    assert len(write_shards(tmp_path / "shards", samples, 1)) == 2
    assert [sample["txt"] for sample in read_shard(tmp_path / "shards" / "000001.tar")] == [b"y"]


def test_a_disk_that_is_full_leaves_what_was_there(tmp_path):
    path = tmp_path / "records"
    write_records(path, [b"old"])
    before, limits = tree(tmp_path), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))  # no file may become larger
    try:
        with pytest.raises(OSError, match="large"):
            write_records(path, [bytes(10_000)] * 3)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert tree(tmp_path) == before


def test_a_link_stays_a_link_a_mode_stays_and_a_device_is_written_to(tmp_path):
    path, link = tmp_path / "file", tmp_path / "link"
    path.write_text("old")
    path.chmod(0o640)
    link.symlink_to(path)
    write(link, "new")
    assert link.is_symlink()
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("new", 0o640)
    with written(os.devnull) as file:
        file.write(b"gone")
    assert not Path(os.devnull).is_file()
    reader, writer = os.pipe()
    with written(f"/dev/fd/{writer}") as file:
        file.write(b"through")
    os.close(writer)
    assert os.read(reader, 100) == b"through"
    os.close(reader)
    masked = os.umask(0o027)
    try:
        write(tmp_path / "made" / "fresh", b"x")
    finally:
        os.umask(masked)
    assert stat.S_IMODE((tmp_path / "made" / "fresh").stat().st_mode) == 0o640
    assert {each.name for each in tmp_path.iterdir()} == {"file", "link", "made"}


def test_what_is_there_already_is_not_written_again(tmp_path):
    write(tmp_path / "file", "ä\udc80")
    before = (tmp_path / "file").stat()
    write(tmp_path / "file", "ä\udc80")
    assert (tmp_path / "file").stat().st_mtime_ns == before.st_mtime_ns
    assert (tmp_path / "file").stat().st_ino == before.st_ino
    assert holds(tmp_path / "file", "ä\\udc80".encode())


@pytest.mark.parametrize(
    "save",
    [
        Timeline(1).save,
        Trace([Event("product", HOST, 0.0, 1.0)]).save,
        lambda path: write_tokens(path, [], 9),
    ],
)
def test_a_folder_and_an_empty_name_are_no_file(tmp_path, save):
    for path in (tmp_path, ""):
        with pytest.raises(ValueError, match=r"^path is '.*'; it must be the name of a file"):
            save(path)
    assert list(tmp_path.iterdir()) == []


# Who may write otherwise, and why.
ELSEWHERE = {
    "files.py",
    "input_pipeline/tars.py",  # into a folder aside
    "resilience/files.py",  # checkpoints, by a protocol of their own
    "resilience/holding.py",  # a lock
    "grading/course/records.py",  # a lock
    "grading/judging/inside.py",  # in a box, as the next three
    "grading/boxes/selftest.py",
    "grading/boxes/zygote.py",
    "grading/boxes/cold.py",
    "grading/judging/referee.py",  # to nowhere
    "notebook/book/pages.py",  # pages of a build, which is whole when it says so
    "svg.py",  # to memory
}


def writes(call):
    """Whether a call writes a file: `path.write_text(...)`, `open(..., "wb")`, or by a descriptor,
    `os.open(..., os.O_CREAT)`."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name not in {"open", "fdopen"}:
        return name in {"write_text", "write_bytes", "savefig"}
    if "O_CREAT" in {getattr(node, "attr", "") for arg in call.args for node in ast.walk(arg)}:
        return True
    modes = [*call.args[:2], *(k.value for k in call.keywords if k.arg == "mode")]
    return any(
        isinstance(mode, ast.Constant) and isinstance(mode.value, str) and {*mode.value} & {*"wxa+"}
        and {*mode.value} <= {*"rwxabt+|:gz"}
        for mode in modes
    )  # fmt: skip


def test_every_writer_of_the_package_writes_whole_files():
    found = {
        path.relative_to(ROOT / "dlsys").as_posix(): call.lineno
        for path in sorted((ROOT / "dlsys").rglob("*.py"))
        for call in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(call, ast.Call) and writes(call)
    }
    assert found.keys() - ELSEWHERE == set()
    assert ELSEWHERE - found.keys() == set()
