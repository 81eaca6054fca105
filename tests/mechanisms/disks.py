"""Machines that fail: a child process that is killed at an operation on files, one on a full disk,
and a disk of which a power cut leaves only what was asked to be on it."""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import io
import os
import pickle
import shutil
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch

OPERATIONS = ("mkdir", "rename", "open", "fsync", "unlink", "rmdir", "utime")


class Killed(Exception):  # noqa: N818  (it is what was asked for)
    """The child was killed."""


def in_a_child(program: Callable[[], Any]) -> Any:
    """What a program returns in a process of its own; Killed where that was killed."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(60)
        try:
            torch.set_num_threads(1)
            result = program()
            for thread in threading.enumerate():
                if thread is not threading.current_thread() and not thread.daemon:
                    thread.join()
            sent = pickle.dumps((True, result))
        except BaseException:
            sent = pickle.dumps((False, traceback.format_exc()))
        with contextlib.suppress(BaseException):
            os.write(write, sent)
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        raise Killed
    is_result, result = pickle.loads(data)
    assert is_result, result
    return result


@contextlib.contextmanager
def watched(root: Path, seen: Callable[[str, Any], None]) -> Iterator[None]:
    """Call `seen(name, arguments)` before each operation that changes what lies below `root`, and in
    the middle of each write."""
    changes = {name: getattr(os, name) for name in OPERATIONS}

    def calling(name: str) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            is_reading = name == "open" and not args[1] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            if not is_reading:
                seen(name, args)
            return changes[name](*args, **named)

        return call

    class Written(io.FileIO):
        def write(self, data: Any) -> int:  # type: ignore[override]
            seen("write", (self.fileno(),))
            half = len(data) // 2
            done = super().write(memoryview(data)[:half]) if half else 0
            seen("write", (self.fileno(),))
            return done + super().write(memoryview(data)[half:])

    original = builtins.open

    def opening(file: Any, mode: str = "r", *args: Any, **named: Any) -> Any:
        if str(file).startswith(str(root)) and "x" in mode:
            seen("create", (file,))
            return Written(file, mode)
        return original(file, mode, *args, **named)

    with contextlib.ExitStack() as stack:
        for name in OPERATIONS:
            stack.enter_context(mock.patch.object(os, name, calling(name)))
        stack.enter_context(mock.patch.object(builtins, "open", opening))
        yield


def killed_at(number: int, root: Path, program: Callable[[], Any]) -> int | None:
    """Run a program in a child that SIGKILL ends before its operation of this number, from 0; how
    many there were where it came to its end."""
    count = [0]

    def seen(name: str, args: Any) -> None:
        if count[0] == number:
            os.kill(os.getpid(), signal.SIGKILL)
        count[0] += 1

    def child() -> int:
        with watched(root, seen):
            program()
            for thread in threading.enumerate():
                if thread is not threading.current_thread() and not thread.daemon:
                    thread.join()
        return count[0]

    try:
        return in_a_child(child)
    except Killed:
        return None


@contextlib.contextmanager
def small_disk(folder: Path, nbytes: int) -> Iterator[None]:
    """In a process of one thread: a disk of this size at `folder`, which nobody else sees.

    Raises PermissionError where the system allows no such thing.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.getuid(), os.getgid()
    if libc.unshare(0x10000000 | 0x00020000):  # a user and a mount namespace
        raise PermissionError(os.strerror(ctypes.get_errno()))
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"0 {user} 1"),
        ("gid_map", f"0 {group} 1"),
    ):
        Path(f"/proc/self/{name}").write_text(text)
    options = f"size={nbytes}".encode()
    if libc.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", 0, options):
        raise PermissionError(os.strerror(ctypes.get_errno()))
    yield


class PowerCuts:
    """What is on a disk for certain, operation by operation, while a program writes below `root`.

    A file's content is there once it was fsynced, a name once its folder was: the least that POSIX
    promises (Pillai et al. 2014, "All File Systems Are Not Created Equal", OSDI). `judge` is called
    with a copy of what a power cut would leave, before each operation: first with names as they were
    asked for, then with names as they happen to be written already.
    """

    def __init__(self, root: Path, scratch: Path, judge: Callable[[Path], None]) -> None:
        self.root, self.scratch, self.judge = root, scratch, judge
        self.content: dict[int, bytes] = {}
        self.names: dict[int, dict[str, int]] = {}
        self.cuts = 0
        self._keep(root)

    def _keep(self, path: Path) -> None:
        """All that is there now is on the disk."""
        if path.is_dir():
            self.names[path.stat().st_ino] = {c.name: c.stat().st_ino for c in path.iterdir()}
            for child in path.iterdir():
                self._keep(child)
        else:
            self.content[path.stat().st_ino] = path.read_bytes()

    def seen(self, name: str, args: Any) -> None:
        """Cut the power before this operation; an fsync then puts something on the disk."""
        for names_written in (False, True):
            self.cut(names_written)
        if name == "fsync":
            path = Path(os.readlink(f"/proc/self/fd/{args[0]}"))
            if path.is_dir():
                self.names[path.stat().st_ino] = {c.name: c.stat().st_ino for c in path.iterdir()}
            else:
                self.content[path.stat().st_ino] = path.read_bytes()

    def cut(self, names_written: bool) -> None:
        """Judge what is left."""
        left = self.scratch / f"{self.cuts}"
        self.cuts += 1
        left.mkdir()
        if names_written:
            self._live(self.root, left)
        else:
            self._durable(self.root.stat().st_ino, left)
        self.judge(left)
        shutil.rmtree(left)

    def _live(self, path: Path, into: Path) -> None:
        for child in path.iterdir():
            if child.is_dir():
                (into / child.name).mkdir()
                self._live(child, into / child.name)
            else:
                (into / child.name).write_bytes(self.content.get(child.stat().st_ino, b""))

    def _durable(self, folder: int, into: Path) -> None:
        for name, inode in self.names.get(folder, {}).items():
            if inode in self.content:
                (into / name).write_bytes(self.content[inode])
            else:
                (into / name).mkdir()
                self._durable(inode, into / name)
