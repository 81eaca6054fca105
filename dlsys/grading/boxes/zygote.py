"""The process that boxes come from: it has everything imported, forks, and moves the copy in.

It has one thread, knows nothing of the grader but its import path, and ends when the grader
does, because then the socket between them closes. A box is made by bubblewrap around a program
that only waits (`cat`); the copy joins that program's namespaces and gives up what it could do.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import signal
import socket
import sys
import tempfile
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil

from dlsys.grading.boxes import sandbox, seccomp
from dlsys.grading.boxes.sandbox import Limits, SandboxError

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
# CLONE_NEWNS, NEWUTS, NEWIPC, NEWPID, NEWNET; and two that are not always there.
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND = 1, 2, 4, 8, 32, 4096
MS_NOATIME = 1024
FILES = 20_000  # in each folder of a box; each takes about a kilobyte of the kernel's memory
NAMESPACES, NEW_CGROUP, NEW_USER = 0x6C020000, 0x02000000, 0x10000000


def send(end: socket.socket, message: dict[str, Any], files: tuple[int, ...] = ()) -> None:
    """Send a message, as a line of JSON, with open files."""
    socket.send_fds(end, [json.dumps(message).encode() + b"\n"], files)


def receive(end: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """What `send` sent at the other end; raises EOFError when that has closed."""
    line, files = b"", list[int]()
    while not line.endswith(b"\n"):
        part, more, _, _ = socket.recv_fds(end, 1 << 16, 4)
        for file in more:  # else bubblewrap would hold on to them
            os.set_inheritable(file, False)
        if not part:
            raise EOFError
        line, files = line + part, files + more
    return json.loads(line), files


class Zygote:
    """What the process knows: how it opens boxes, and the modules it has prepared."""

    def __init__(self, bwrap: str) -> None:
        self.bwrap = bwrap  # the program; empty: no boxes
        self.prepared: set[str] = set()

    def answer(self, request: dict[str, Any], files: list[int]) -> tuple[dict, tuple[int, ...]]:
        """Do what the grader asks: {"prepare": modules} or {"open": role, "limits", "home"}."""
        if "prepare" in request:
            self.prepare(request["prepare"])
            return {}, ()
        self.prepare([request["open"]])
        work = (request["open"], Limits(**request["limits"]), files[0])
        if not self.bwrap:
            return self.open_folder(*work, request["home"])
        return self.open_box(*work)

    def prepare(self, modules: list[str]) -> None:
        """Import modules, and have them do what can be done once for all boxes."""
        for name in modules:
            if name not in self.prepared:
                module = import_quickly(name)
                if hasattr(module, "prepare"):
                    module.prepare()
                self.prepared.add(name)
                if "torch" in sys.modules:
                    sys.modules["torch"].set_num_threads(1)
                # What is never collected is never written to, and stays shared with every box.
                gc.collect()
                gc.freeze()

    def open_box(self, role: str, limits: Limits, end: int) -> tuple[dict, tuple[int, ...]]:
        """Make a box and move a copy of this process in."""
        init, hold = start_holder(sandbox.command(self.bwrap, limits), limits)
        user = sandbox.user_for(init)
        box = os.pidfd_open(init)
        report, say = os.pipe()
        if os.fork() == 0:
            with _only_child(say):
                Path("/proc/self/oom_score_adj").write_text("1000")
                flags = NAMESPACES | (NEW_CGROUP if sandbox.has_cgroup_namespace() else 0)
                flags |= 0 if user is not None else NEW_USER
                sandbox.call("setns", box, flags)
                limit_files(limits)
                fix_devices()
                hide_processes()
                # A process id namespace is for the children of the one that joins it.
                if inner := os.fork():
                    os.write(say, b"%d\n" % inner)
                else:
                    become(role, limits, user, end, sandbox.HOME, True)
        os.close(say)
        with os.fdopen(report) as lines:
            said = lines.read()
        first, _, trouble = said.partition("\n")
        if trouble or not first.isdigit():
            os.close(hold)
            os.close(box)
            raise SandboxError(f"A box was made, and could not be entered: {said.strip()}")
        return {"processes": [init, int(first)]}, (box, hold)

    def open_folder(
        self, role: str, limits: Limits, end: int, home: str
    ) -> tuple[dict, tuple[int, ...]]:
        """Without a box: a copy of this process under limits, in a folder of its own."""
        report, say = os.pipe()
        child = os.fork()
        if child == 0:
            with _only_child(say):
                if sys.platform == "linux":
                    sandbox.call("prctl", PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
                user = sandbox.user_for(os.getpid()) if sandbox.libraries_are_open() else None
                if user is not None:
                    os.chown(home, user, user)
                become(role, limits, user, end, home, False)
        os.close(say)
        with os.fdopen(report) as lines:
            if trouble := lines.read():
                raise SandboxError(f"A process could not be limited: {trouble.strip()}")
        return {"processes": [child], "user": sandbox.user_for(child)}, ()


def import_quickly(name: str) -> ModuleType:
    """Import a module without looking for garbage, which takes a fifth of the time, and stays."""
    gc.disable()
    try:
        return importlib.import_module(name)
    finally:
        gc.enable()


class _only_child:  # noqa: N801  (a context manager, as a function would be)
    """What follows a fork: whatever happens, the copy ends here, and says what went wrong."""

    def __init__(self, say: int) -> None:
        self.say = say

    def __enter__(self) -> None:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            os.write(self.say, f"\n{error!r}".encode())
        os._exit(0)


def become(
    role: str, limits: Limits, user: int | None, end: int, home: str, isolated: bool
) -> None:
    """Turn from a copy of the zygote into the process that the box is for."""
    os.setsid()
    os.chdir(home)
    os.environ.clear()
    os.environ.update(sandbox.environment(home))
    tempfile.tempdir = None
    files = os.sysconf("SC_OPEN_MAX")  # before there is a lower limit
    sandbox.confine(limits, user, isolated)
    nothing = os.open(os.devnull, os.O_RDWR)  # its own: the flags of an open file are its sharers'
    for standard in range(3):
        os.dup2(nothing, standard)
    os.dup2(end, 3)
    os.set_inheritable(3, False)
    os.closerange(4, files)
    try:
        sys.modules[role].main(socket.socket(fileno=3), limits)
    finally:
        os._exit(0)


def limit_files(limits: Limits) -> None:
    """Limit the number of files in a box: bubblewrap limits only what they hold. And have the time
    at which one was read not kept, with which a rank could tell another what it has read."""
    options = f"size={limits.file_bytes},nr_inodes={FILES}".encode()
    for folder in sandbox.FOLDERS:
        flags = MS_NOSUID | MS_NODEV | MS_NOATIME | MS_REMOUNT
        sandbox.call("mount", b"tmpfs", bytes(folder), b"tmpfs", flags, options)


def fix_devices() -> None:
    """Make the devices' files read-only, which those who write to the devices do not notice: the
    time at which a file was touched could be read in another box."""
    for device in sandbox.DEVICES:
        kept = os.statvfs(device).f_flag & (MS_NOSUID | MS_NOEXEC)
        flags = MS_REMOUNT | MS_BIND | MS_RDONLY | kept
        sandbox.call("mount", b"none", device.encode(), b"none", flags, 0)


def hide_processes() -> None:
    """Show a process of a box no others but those that it may look into: a rank shows to none."""
    flags = MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC
    sandbox.call("mount", b"proc", b"/proc", b"proc", flags, b"hidepid=2")


def start_holder(box: list[str], limits: Limits) -> tuple[int, int]:
    """Have bubblewrap make a box; gives the process id of its first process, and a file that
    keeps the box as long as it is open.

    What holds the box may be of the student's user, who could write to its memory. So the filter
    and the limits of what runs in a box bind it, too.
    """
    wait, hold = os.pipe()
    rules = seccomp.filter_file()
    heard, echo = os.pipe()
    told, tell = os.pipe()
    complaints, complain = os.pipe()
    actions = [(os.POSIX_SPAWN_DUP2, mine, its) for its, mine in enumerate((wait, echo, complain))]
    # Numbers that none of the others has, as theirs would be overwritten.
    told_at = max(wait, echo, tell, complain, rules) + 1
    actions += [(os.POSIX_SPAWN_DUP2, tell, told_at), (os.POSIX_SPAWN_DUP2, rules, told_at + 1)]
    numbers = ["--info-fd", str(told_at), "--seccomp", str(told_at + 1)]
    try:
        os.posix_spawn(
            box[0],
            [*box, "--cap-drop", "ALL", *numbers, "cat"],
            os.environ,
            file_actions=actions,
            setsigdef=[signal.SIGCHLD],
        )
    except OSError as error:
        raise SandboxError(f"{box[0]} cannot be started: {error.strerror}.") from None
    for mine in (wait, echo, tell, complain, rules):
        os.close(mine)
    os.write(hold, b"x")
    # What comes back says that the mounts are done and the program runs.
    ready = os.read(heard, 1)
    info = os.read(told, 4096)
    os.close(heard)
    os.close(told)
    with os.fdopen(complaints) as lines:
        if not ready:
            os.close(hold)
            raise SandboxError(f"bubblewrap could not make a box: {lines.read().strip()}.")
    init = json.loads(info)["child-pid"]
    for one in (init, *(child.pid for child in psutil.Process(init).children())):
        sandbox.bind(limits, process=one)
    return init, hold


def main() -> None:
    """Serve the grader at the socket whose number is the first argument."""
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    start, _ = receive(control)
    os.dup2(0, 2)  # up to here the grader would hear why Python cannot start
    sys.path[:] = start["path"]
    zygote = Zygote(start["bwrap"])
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for what has ended
    if sys.platform == "linux":
        # Orphans come here, where they can be found, and where nobody waits for them either.
        sandbox.call("prctl", PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with tempfile.TemporaryDirectory(prefix="dlsys-", ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o711)
        os.environ["HOME"] = folder
        send(control, {"folder": folder})
        while True:
            try:
                request, files = receive(control)
            except (EOFError, ConnectionError):
                break
            try:
                answer, more = zygote.answer(request, files)
            except SandboxError as error:
                answer, more = {"error": str(error)}, ()
            except Exception:
                answer, more = {"error": traceback.format_exc()}, ()
            for file in files:
                os.close(file)
            send(control, answer, more)
            for file in more:
                os.close(file)
        end_all()


def end_all() -> None:
    """Kill whatever is left of the boxes, and of what ran without one.

    A list of processes lacks those whose parent ends while it is made. But of all that live some
    ancestor is a child of this process, because orphans become its children.
    """
    while has_children():
        left = psutil.Process().children(recursive=True)
        for one in left:
            with contextlib.suppress(psutil.Error):
                one.kill()
        psutil.wait_procs(left, timeout=1)


def has_children() -> bool:
    """Whether some process has this one as its parent."""
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return False
    return True


if __name__ == "__main__":
    main()
