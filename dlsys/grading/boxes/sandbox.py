"""The box that a student's code runs in: what it sees, what it may use, and what it gives up.

`command` has bubblewrap make the namespaces and mounts, `confine` gives up privileges and sets
limits from inside. Root makes boxes without a user namespace and gives each a user id of its own,
because no limit on processes holds for root; everybody else gets a user namespace, in which the
kernel counts processes by box.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import math
import os
import stat
import struct
import sys
from dataclasses import dataclass
from pathlib import Path

from dlsys.grading.boxes import seccomp

HOME = "/home/student"
FOLDERS = (Path(HOME), Path("/tmp"), Path("/dev/shm"))  # those to write to
DEVICES = tuple(f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom"))
PACKAGE = Path(__file__).resolve().parents[2]  # dlsys
# User ids that no system gives out: the process id of a box added, a number of its own for each.
# Where few ids exist, as in some containers, there are only as many as the second range holds.
MANY_USERS, FEW_USERS = 1_900_000_000, range(60_600, 61_180)


class SandboxError(RuntimeError):
    """Student code cannot be isolated on this machine; the message says what to install."""


@dataclass(frozen=True)
class Limits:
    """What one submission may use. Seconds of real time; bytes; processes and threads together.

    `open_files` are those of one process. `socket_bytes` is what all sockets of a box may hold of
    the kernel's memory, which belongs to no process.
    """

    cell_seconds: float = 60.0
    check_seconds: float = 20.0
    submission_seconds: float = 600.0
    memory_bytes: int = 4 << 30
    processes: int = 128
    file_bytes: int = 64 << 20
    open_files: int = 128
    socket_bytes: int = 256 << 20
    message_bytes: int = 64 << 20
    restarts: int = 3


def environment(home: str = HOME) -> dict[str, str]:
    """All environment variables of a box: nothing of the grader's own."""
    one = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    return {
        "PATH": f"{sys.prefix}/bin:/usr/local/bin:/usr/bin:/bin",
        "HOME": home,
        "USER": "student",
        "LOGNAME": "student",
        "LANG": "C.UTF-8",
        "PYTHONHASHSEED": "0",
        "PYTHONNOUSERSITE": "1",
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        **one,
        **({} if home == HOME else {"TMPDIR": home}),
    }


def libraries() -> list[Path]:
    """The folders outside of the system's that Python needs: its own, the environment, dlsys."""
    found: list[Path] = []
    # One may lie in another: an environment in a folder of Python, dlsys among its packages.
    for path in sorted({Path(sys.base_prefix), Path(sys.prefix), PACKAGE}):
        if not any(path.is_relative_to(one) for one in found):
            found.append(path)
    return found


def _way_to(path: Path) -> list[str]:
    """The folders above, open to the user in the box, who is not the one who makes it."""
    made = (["--perms", "0755", "--dir", str(parent)] for parent in reversed(path.parents))
    return [option for options in made for option in options]


def command(program: str, limits: Limits) -> list[str]:
    """The command line of bubblewrap, which is `program`, without what to start in the box."""
    bwrap = [program, "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"]
    bwrap += ["--hostname", "box", "--die-with-parent", "--new-session", "--clearenv"]
    if has_cgroup_namespace():
        bwrap += ["--unshare-cgroup"]
    if os.geteuid() != 0:
        bwrap += ["--unshare-user"]
    seen = [Path("/usr"), *(Path("/etc", one) for one in ("ld.so.cache", "alternatives", "fonts"))]
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        path = Path("/", name)
        if path.is_symlink():
            bwrap += ["--symlink", os.readlink(path), str(path)]
        else:
            seen.append(path)
    seen += [path for path in libraries() if not path.is_relative_to("/usr")]
    seen = [path for path in seen if path.exists()]
    # First, for what is needed may lie below /tmp.
    for folder in FOLDERS:
        size = str(limits.file_bytes)
        bwrap += _way_to(folder)
        bwrap += ["--perms", "0777", "--size", size, "--tmpfs", str(folder)]
    for path in seen:
        bwrap += [*_way_to(path), "--ro-bind", str(path), str(path)]
    for device in DEVICES:
        bwrap += ["--dev-bind", device, device]
    for name, target in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
        bwrap += ["--symlink", f"/proc/self/fd{target}", f"/dev/{name}"]
    bwrap += ["--proc", "/proc", "--remount-ro", "/proc", "--remount-ro", "/"]
    return [*bwrap, "--chdir", HOME]


def user_for(process: int) -> int | None:
    """The user id for the box that `process` is the first of; None where only root can choose."""
    if os.geteuid() != 0:
        return None
    known = Path("/proc/self/uid_map")  # rows of: first id, first id outside, how many
    rows = [row.split() for row in known.read_text().splitlines()] if known.exists() else []
    user = MANY_USERS + process
    if all(not int(first) <= user < int(first) + int(count) for first, _, count in rows):
        user = FEW_USERS[process % len(FEW_USERS)] if rows else user
    return user


def libraries_are_open() -> bool:
    """Whether another user could load what Python needs; not so in the home folder of root."""
    folders = {folder for path in libraries() for folder in (path, *path.parents)}
    return all(folder.stat().st_mode & stat.S_IXOTH for folder in folders)


def has_cgroup_namespace() -> bool:
    """Whether this kernel has namespaces of control groups."""
    return os.path.exists("/proc/self/ns/cgroup")


def bind(limits: Limits, more_processes: int = 0, process: int | None = None) -> None:
    """Bind a process, None for this one, to `limits`, or to lower ones that it has already."""
    import resource

    for name, most in (
        ("NPROC", limits.processes + more_processes),
        ("FSIZE", limits.file_bytes),
        ("CORE", 0),
        ("NOFILE", limits.open_files),
        ("CPU", math.ceil(limits.submission_seconds)),
        ("DATA", limits.memory_bytes),
        ("MSGQUEUE", 0),
    ):
        if hasattr(resource, f"RLIMIT_{name}"):
            which = getattr(resource, f"RLIMIT_{name}")
            hard = resource.getrlimit(which)[1]
            most = most if hard == resource.RLIM_INFINITY else min(most, hard)
            if process is None:
                resource.setrlimit(which, (most, most))
            else:
                resource.prlimit(process, which, (most, most))


def confine(limits: Limits, user: int | None, isolated: bool = True) -> None:
    """Bind this process, and all that it starts, to `limits`; take away what it could do more.

    `user` is the user id to become, None to stay. Raises OSError or ValueError where that fails.
    """
    bind(limits, 0 if user or isolated else _processes_of_this_user())
    if isolated:
        # Only who has capabilities can renounce those that might ever be had; the rest need not.
        for capability in range(64):
            if _libc().prctl(PR_CAPBSET_DROP, capability, 0, 0, 0):
                break
    if user is not None:
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
    if isolated:
        call("prctl", PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
        call("capset", struct.pack("=Ii", CAPABILITY_VERSION_3, 0), bytes(24))
        # Becoming another user hides a process from itself; its files in /proc are needed.
        call("prctl", PR_SET_DUMPABLE, 1, 0, 0, 0)
        seccomp.install(seccomp.filter_bytes())
    else:
        _prevent_accidents()


def _prevent_accidents() -> None:
    """Refuse `kill(-1)`, which would end the session of whoever runs this: by the kernel, and where
    that has no filters, as on macOS, in Python at least."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, ValueError):
            return seccomp.install(seccomp.filter_of_accidents())
    kill = os.kill

    def spare_everybody(process: int, number: int) -> None:
        if process == -1:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
        kill(process, number)

    os.kill = spare_everybody


PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 4, 24, 47, 4
CAPABILITY_VERSION_3 = 0x20080522


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: int | bytes) -> None:
    """Call a function of the C library; raises OSError where it does not return 0."""
    if getattr(_libc(), name)(*arguments):
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")


def _processes_of_this_user() -> int:
    """Processes and threads that count against a limit, where no namespace counts apart."""
    import psutil

    found = psutil.process_iter(["uids", "num_threads"])
    return sum(
        one.info["num_threads"] or 1
        for one in found
        if one.info["uids"] and one.info["uids"].real == os.getuid()
    )
