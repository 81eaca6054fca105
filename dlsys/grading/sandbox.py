"""The box that a student's code runs in: what it sees, what it may use, and what it gives up.

`command` has bubblewrap make the namespaces and mounts, `confine` gives up privileges and sets
limits from inside. Root makes boxes without a user namespace and gives each a user id of its own,
because no limit on processes holds for root; everybody else gets a user namespace, in which the
kernel counts processes by box.
"""

from __future__ import annotations

import ctypes
import math
import os
import struct
import sys
from dataclasses import dataclass
from pathlib import Path

from dlsys.grading import seccomp

HOME = "/home/student"
PACKAGE = Path(__file__).resolve().parents[1]
# No distribution gives these out; a box takes one that no other open box has.
USER_IDS = range(60600, 61180)


class SandboxError(RuntimeError):
    """Student code cannot be isolated on this machine; the message says what to install."""


@dataclass(frozen=True)
class Limits:
    """What one submission may use. Seconds of real time; bytes; processes and threads together."""

    cell_seconds: float = 60.0
    check_seconds: float = 20.0
    submission_seconds: float = 600.0
    memory_bytes: int = 4 << 30
    processes: int = 128
    file_bytes: int = 64 << 20
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


def command(limits: Limits) -> list[str]:
    """The bubblewrap command line, without the program to start in the box."""
    bwrap = ["bwrap", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"]
    bwrap += ["--hostname", "box", "--die-with-parent", "--new-session", "--clearenv"]
    if has_cgroup_namespace():
        bwrap += ["--unshare-cgroup"]
    if os.geteuid() != 0:
        bwrap += ["--unshare-user"]
    seen: list[str] = []
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        path = Path("/", name)
        if path.is_symlink():
            bwrap += ["--symlink", os.readlink(path), str(path)]
        elif path.is_dir():
            seen.append(str(path))
    # An environment may be a folder of another, and the package one of its packages: once is enough.
    seen += ["/usr", "/etc/ld.so.cache", "/etc/alternatives", "/etc/fonts"]
    for path in sorted({Path(sys.base_prefix), Path(sys.prefix), PACKAGE}):
        seen += [str(path)] if not any(path.is_relative_to(one) for one in seen) else []
    parents = {str(parent) for path in (*seen, HOME, "/dev/shm") for parent in Path(path).parents}
    # The user in the box differs from the one who makes it, and has to pass through.
    for parent in sorted(parents - {"/"} - set(seen)):
        if not any(Path(parent).is_relative_to(one) for one in seen):
            bwrap += ["--perms", "0755", "--dir", parent]
    for one in seen:
        bwrap += ["--ro-bind-try", one, one]
    for device in ("null", "zero", "full", "random", "urandom"):
        bwrap += ["--dev-bind", f"/dev/{device}", f"/dev/{device}"]
    for name, target in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
        bwrap += ["--symlink", f"/proc/self/fd{target}", f"/dev/{name}"]
    for folder in (HOME, "/tmp", "/dev/shm"):
        bwrap += ["--perms", "0777", "--size", str(limits.file_bytes), "--tmpfs", folder]
    return [*bwrap, "--proc", "/proc", "--remount-ro", "/", "--chdir", HOME]


def has_cgroup_namespace() -> bool:
    """Whether this kernel has namespaces of control groups."""
    return os.path.exists("/proc/self/ns/cgroup")


def confine(limits: Limits, user: int | None, isolated: bool = True) -> None:
    """Bind this process, and all that it starts, to `limits`; take away what it could do more.

    `user` is the user id to become, None to stay. Raises OSError or ValueError where that fails.
    """
    import resource

    for name, most in (
        ("NPROC", limits.processes + (0 if user or isolated else _processes_of_this_user())),
        ("FSIZE", limits.file_bytes),
        ("CORE", 0),
        ("NOFILE", 256),
        ("CPU", math.ceil(limits.submission_seconds)),
        ("DATA", limits.memory_bytes),
        ("MSGQUEUE", 0),
    ):
        if hasattr(resource, f"RLIMIT_{name}"):
            which = getattr(resource, f"RLIMIT_{name}")
            hard = resource.getrlimit(which)[1]
            most = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(which, (most, most))
    if user is not None:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    if isolated:
        _drop_capabilities()
        # Becoming another user hides a process from itself; its files in /proc are needed.
        _call("prctl", PR_SET_DUMPABLE, 1, 0, 0, 0)
        seccomp.install()


PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 4, 24, 47, 4


def _drop_capabilities() -> None:
    _call("prctl", PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    # As another user than root there are none left, and dropping them from the set of those that
    # could ever be had is not allowed; without new privileges it is not needed either.
    for capability in range(64):
        if _libc().prctl(PR_CAPBSET_DROP, capability, 0, 0, 0):
            break
    version_3, this_process = 0x20080522, 0
    _call("capset", struct.pack("=Ii", version_3, this_process), bytes(24))


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments: int | bytes) -> None:
    """Call the C library; a result other than 0 raises OSError."""
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
