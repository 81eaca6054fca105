"""One save at a time below a folder: others are told who is at it, and nothing is left of one that ends."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import socket
import subprocess
import sys
import weakref
from typing import Any

import pytest
import torch

from dlsys import world
from dlsys.resilience import AsyncSaver, CheckpointError, files, holding, latest, save, verify
from tests.mechanisms.disks import Killed, in_a_child

STATE = {"w": torch.arange(4.0)}
ME = f"process {os.getpid()} of {socket.gethostname()}"


class Stopping:
    """What stops a save in the middle of its files: `do` is called there, once."""

    def __init__(self, do: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.do, self.as_bytes = do, files.as_bytes
        monkeypatch.setattr(files, "as_bytes", self)

    def __call__(self, tensor: Any) -> Any:
        do, self.do = self.do, lambda: None
        do()
        return self.as_bytes(tensor)


SAVES = """
import sys, torch
from dlsys.resilience import CheckpointError, save
saved = []
print("ready", flush=True)
sys.stdin.readline()
for step in range(8):
    try:
        saved.append(save({"w": torch.ones(1000)}, sys.argv[1], step))
    except CheckpointError as error:
        assert "is saved into by process " in str(error) or "another process" in str(error), error
assert all(path.is_dir() for path in saved), saved
print(*saved, sep="\\n")
"""


def test_two_processes_that_save_into_one_folder_are_never_told_of_a_checkpoint_that_is_not_there(
    tmp_path,
):
    command = [sys.executable, "-c", SAVES, tmp_path]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    both = [subprocess.Popen(command, **pipes) for _ in range(2)]
    assert [each.stdout.readline() for each in both] == ["ready\n"] * 2
    for each in both:
        each.stdin.write("\n")
        each.stdin.flush()
    told = [path for each in both for path in each.communicate(timeout=120)[0].split()]
    assert [each.returncode for each in both] == [0, 0]
    assert sorted(map(os.path.basename, told)) == sorted(os.listdir(tmp_path))
    assert all(verify(path) for path in told)


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_save_beside_another_is_refused_on_every_rank_and_told_of_its_process(
    ranks, tmp_path, monkeypatch
):
    said = []

    def another() -> None:
        for _ in range(2):
            said.append(in_a_child(lambda: refused(tmp_path, ranks)))
        said.append(refused(tmp_path, ranks))

    Stopping(another, monkeypatch)
    path = save(STATE, tmp_path, 1)
    for each in said:
        assert (
            each
            == [
                "the save of step 1 failed: rank 0: CheckpointError: "
                f"{tmp_path} is saved into by {ME}: wait until that save has ended (for an AsyncSaver's, "
                "call its wait()), or name another folder"
            ]
            * ranks
        )
    assert len(said) == 3
    assert os.listdir(tmp_path) == [path.name]
    assert verify(path).step == 1
    assert save(STATE, tmp_path, 1).name == "step-000000000001.1"


def refused(root: Any, ranks: int) -> list[str]:
    """What each of some ranks hears that save into a folder."""

    def program(comm: world.Communicator) -> str:
        with pytest.raises(CheckpointError) as error:
            save(STATE, root, 1, comm)
        return str(error.value)

    return world.simulate(program, ranks).results


def test_what_a_killed_process_leaves_holds_nobody_off(tmp_path, monkeypatch):
    def child() -> None:
        Stopping(lambda: os.kill(os.getpid(), signal.SIGKILL), monkeypatch)
        save(STATE, tmp_path, 1)

    with pytest.raises(Killed):
        in_a_child(child)
    assert sorted(os.listdir(tmp_path)) == [".lock", ".saving-step-000000000001"]
    save(STATE, tmp_path, 2)
    assert os.listdir(tmp_path) == ["step-000000000002"]


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # of a fork beside threads
def test_a_process_forked_amid_a_save_neither_ends_its_lock_nor_keeps_it(tmp_path, monkeypatch):
    end, ended = os.pipe()

    def fork() -> None:
        if os.fork() == 0:
            try:
                for each, kept in [*weakref.finalize._registry.items()]:
                    if kept.func is holding._release:
                        each()  # as when Python ends
                os.close(ended)
                os.read(end, 1)  # lives on
            finally:
                os._exit(0)
        assert "is saved into by" in in_a_child(lambda: refused(tmp_path, 1))[0]

    Stopping(fork, monkeypatch)
    save(STATE, tmp_path, 1)
    save(STATE, tmp_path, 2)
    os.close(ended)
    os.close(end)
    os.wait()
    assert sorted(os.listdir(tmp_path)) == ["step-000000000001", "step-000000000002"]


def test_a_file_system_without_locks_holds_nobody_off_and_one_that_fails_is_told_of(
    tmp_path, monkeypatch
):
    def failing(number: int) -> Any:
        def flock(fd: int, how: int) -> None:
            raise OSError(number, os.strerror(number))

        return flock

    monkeypatch.setattr(fcntl, "flock", failing(errno.ENOLCK))
    save(STATE, tmp_path, 1)
    monkeypatch.setattr(fcntl, "flock", failing(errno.EIO))
    with pytest.raises(CheckpointError, match=r"rank 0: OSError: .*Input/output error"):
        save(STATE, tmp_path, 2)
    monkeypatch.undo()
    assert latest(tmp_path).step == 1
    save(STATE, tmp_path, 2)
    assert sorted(os.listdir(tmp_path)) == ["step-000000000001", "step-000000000002"]


def test_a_lock_that_was_deleted_as_it_was_opened_is_taken_anew(tmp_path, monkeypatch):
    flock, gone = fcntl.flock, [(tmp_path / ".lock").unlink, lambda: None]

    def late(fd: int, how: int) -> None:
        gone.pop(0)()
        flock(fd, how)
        if how != fcntl.LOCK_UN:
            gone.append(lambda: None)

    monkeypatch.setattr(fcntl, "flock", late)
    save(STATE, tmp_path, 1)
    assert os.listdir(tmp_path) == ["step-000000000001"]


def test_saves_of_one_process_into_one_folder_wait_for_each_other_or_are_refused(tmp_path):
    first, second = AsyncSaver(tmp_path), AsyncSaver(tmp_path)
    first.save(STATE, 1)
    first.wait()
    second.save(STATE, 2)
    second._flight.thread.join()  # it is saved: nobody needs to ask
    save(STATE, tmp_path, 3)
    second.wait()
    assert sorted(os.listdir(tmp_path)) == [f"step-{step:012d}" for step in (1, 2, 3)]


def test_a_saver_that_failed_holds_nobody_off_before_somebody_asks(tmp_path, monkeypatch):
    def full() -> None:
        raise OSError(errno.ENOSPC, "No space left")

    Stopping(full, monkeypatch)
    saver = AsyncSaver(tmp_path)
    saver.save(STATE, 1)
    saver._flight.thread.join()
    save(STATE, tmp_path, 2)
    assert os.listdir(tmp_path) == ["step-000000000002"]
    with pytest.raises(CheckpointError, match="the save of step 1 failed: rank 0: OSError"):
        saver.wait()


# -- a save that ends in the middle ------------------------------------------------------------------


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError])
def test_a_save_that_an_exception_ends_leaves_nothing(error, tmp_path, monkeypatch):
    def stop() -> None:
        raise error

    before = save(STATE, tmp_path, 1).name
    kind = error if not issubclass(error, Exception) else CheckpointError
    Stopping(stop, monkeypatch)
    with pytest.raises(kind):
        save(STATE, tmp_path, 2)
    assert os.listdir(tmp_path) == [before]
    Stopping(stop, monkeypatch)
    saver = AsyncSaver(tmp_path)
    saver.save(STATE, 2)
    with pytest.raises(
        CheckpointError, match=f"the save of step 2 failed: rank 0: {error.__name__}"
    ):
        saver.wait()
    assert os.listdir(tmp_path) == [before]
    save(STATE, tmp_path, 2)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.EIO, "Input/output error")])
@pytest.mark.parametrize("beside", [False, True])
def test_a_save_whose_name_cannot_be_put_on_the_disk_leaves_nothing_under_it(
    error, beside, tmp_path, monkeypatch
):
    save(STATE, tmp_path, 1)
    fsync = files.fsync_folder

    def failing(folder: Any) -> None:
        if folder == tmp_path:
            raise error
        fsync(folder)

    monkeypatch.setattr(files, "fsync_folder", failing)
    if beside:
        saver = AsyncSaver(tmp_path)
        saver.save(STATE, 2)
        with pytest.raises(CheckpointError, match=type(error).__name__):
            saver.wait()
    else:
        with pytest.raises((CheckpointError, KeyboardInterrupt)):
            save(STATE, tmp_path, 2)
    assert os.listdir(tmp_path) == ["step-000000000001"]
