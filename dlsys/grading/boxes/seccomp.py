"""Which system calls a box may make: a filter for Linux' seccomp, written out as its bytes.

Everything is allowed but what leaves a box, reaches another process or tells it something through
a file that both may only read, takes memory that no limit counts or more than a share of the
processors, or is a part of the kernel that programs do not need and attackers like. A refused call
fails as in a kernel that does not have it, so that libraries fall back to what they did before.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterable, Mapping, Sequence
from functools import cache

# Numbers of the calls on x86-64 and on 64-bit ARM, from the kernel's tables; -1: not there.
REFUSED = {
    # Namespaces, mounts and roots.
    **{"unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39)},
    **{"pivot_root": (155, 41), "chroot": (161, 51), "open_tree": (428, 428)},
    **{"move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431)},
    **{"fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442)},
    **{"name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265)},
    # The filter cannot read the flags of clone3; libraries then call clone.
    "clone3": (435, 435),
    # Other processes.
    **{"ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271)},
    **{"kcmp": (312, 272), "pidfd_getfd": (438, 438), "process_madvise": (440, 440)},
    **{"move_pages": (279, 239), "migrate_pages": (256, 238)},
    # What a file that is only read can be marked with, for another box to see: that pages of it are
    # in memory, that it is locked or watched.
    **{"preadv2": (327, 286), "readahead": (187, 213), "fadvise64": (221, 223)},
    **{"mincore": (27, 232), "cachestat": (451, 451), "flock": (73, 32)},
    **{"inotify_init": (253, -1), "inotify_init1": (294, 26)},
    # Memory that belongs to no process, and queues that the kernel keeps.
    **{"memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194)},
    **{"semget": (64, 190), "msgget": (68, 186), "mq_open": (240, 180)},
    # Pipes in folders, whose other end sees who has opened them.
    **{"mknod": (133, -1), "mknodat": (259, 33)},
    # Processors are shared fairly between sessions; a box is one.
    "setsid": (112, 157),
    # Parts of the kernel with a history of holes.
    **{"bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282)},
    **{"io_uring_setup": (425, 425), "io_uring_enter": (426, 426)},
    **{"io_uring_register": (427, 427), "add_key": (248, 217), "request_key": (249, 218)},
    **{"keyctl": (250, 219), "fanotify_init": (300, 262), "modify_ldt": (154, -1)},
    **{"personality": (135, 92), "lookup_dcookie": (212, 18)},
    # The machine.
    **{"reboot": (169, 142), "kexec_load": (246, 104), "kexec_file_load": (320, 294)},
    **{"init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106)},
    **{"swapon": (167, 224), "swapoff": (168, 225), "acct": (163, 89), "quotactl": (179, 60)},
    **{"syslog": (103, 116), "settimeofday": (164, 170), "clock_settime": (227, 112)},
    **{"clock_adjtime": (305, 266), "adjtimex": (159, 171), "sethostname": (170, 161)},
    **{"setdomainname": (171, 162), "vhangup": (153, 58), "iopl": (172, -1), "ioperm": (173, -1)},
}
CLONE = (56, 220)
NEW_NAMESPACES = 0x7E020000  # CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
SOCKET = (41, 198)
# A box has its own network for these; others, a virtual machine's to its host, pass it by.
FAMILIES = (1, 2, 10, 16)  # AF_UNIX, AF_INET, AF_INET6, AF_NETLINK
FCNTL = (72, 25)
# F_GETLK, SETLK, SETLKW, OFD_GETLK, OFD_SETLK, OFD_SETLKW, SETLEASE, GETLEASE, NOTIFY
LOCKS = (5, 6, 7, 36, 37, 38, 1024, 1025, 1026)
SETSOCKOPT = (54, 208)
BUFFERS = (7, 8, 32, 33)  # SO_SNDBUF, SO_RCVBUF, and those of who may have more than is allowed
KILL = (62, 129)
EVERYBODY = 0xFFFFFFFF  # -1 in the place of a process: all that may be signaled, the shell included

# What a simulated rank may not do either: whatever another process of its box could notice.
REFUSED_TO_RANKS = {
    # Files: names, sizes, times and marks. Those that are open are read-only.
    **{"creat": (85, -1), "openat2": (437, 437), "truncate": (76, 45), "rename": (82, -1)},
    **{"renameat": (264, 38), "renameat2": (316, 276), "link": (86, -1), "linkat": (265, 37)},
    **{"symlink": (88, -1), "symlinkat": (266, 36), "unlink": (87, -1), "unlinkat": (263, 35)},
    **{"mkdir": (83, -1), "mkdirat": (258, 34), "rmdir": (84, -1), "chdir": (80, 49)},
    **{"fchdir": (81, 50), "chmod": (90, -1), "fchmod": (91, 52), "fchmodat": (268, 53)},
    **{"fchmodat2": (452, 452), "chown": (92, -1), "fchown": (93, 55), "lchown": (94, -1)},
    **{"fchownat": (260, 54), "utime": (132, -1), "utimes": (235, -1), "futimesat": (261, -1)},
    **{"utimensat": (280, 88), "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7)},
    **{"removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16)},
    **{"setxattrat": (463, 463), "removexattrat": (466, 466), "file_setattr": (469, 469)},
    # What is left on a disk, or in the machine's memory.
    **{"statfs": (137, 43), "fstatfs": (138, 44), "ustat": (136, -1), "sysinfo": (99, 179)},
    # Other ends. What it has of sockets is its line, over which no files go.
    **{"socketpair": (53, 199), "bind": (49, 200), "connect": (42, 203), "listen": (50, 201)},
    **{"socket": (41, 198), "sendmsg": (46, 211), "sendmmsg": (307, 269)},
    # Numbers of which all processes of a user, or of the machine, may have so many together.
    **{"fork": (57, -1), "vfork": (58, -1), "clone": (56, 220), "pipe": (22, -1)},
    **{"pipe2": (293, 59), "timer_create": (222, 107), "io_setup": (206, 0)},
    **{"epoll_ctl": (233, 21)},
    # Signals, and what a process can be seen to be.
    **{"tkill": (200, 130), "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240)},
    **{"pidfd_open": (434, 434), "pidfd_send_signal": (424, 424), "execve": (59, 221)},
    **{"execveat": (322, 281), "setpgid": (109, 154), "getpriority": (140, 141)},
    **{"setpriority": (141, 140), "ioprio_get": (252, 31), "ioprio_set": (251, 30)},
    **{"sched_setaffinity": (203, 122), "sched_setscheduler": (144, 119), "capget": (125, 90)},
    **{"sched_setparam": (142, 118), "sched_setattr": (314, 274), "setrlimit": (160, 164)},
    **{"prctl": (157, 167)},
    # Whoever waits at an address of a file, as of a library, is woken by other processes.
    **{"futex_waitv": (449, 449), "futex_wake": (454, 454), "futex_wait": (455, 455)},
    **{"futex_requeue": (456, 456)},
}
FUTEX, PRIVATE = (202, 98), 128
# Calls whose first argument is a process; 0 is the one that calls, but for the first two.
SIGNALS = {"kill": KILL, "tgkill": (234, 131)}
QUESTIONS = {
    **{"getpgid": (121, 155), "getsid": (124, 156), "sched_getaffinity": (204, 123)},
    **{"sched_getscheduler": (145, 120), "sched_getparam": (143, 121)},
    **{"sched_getattr": (315, 275), "prlimit64": (302, 261)},
    **{"sched_rr_get_interval": (148, 127), "get_robust_list": (274, 100)},
}
CLOCKS = {"clock_gettime": (228, 113), "clock_getres": (229, 114), "clock_nanosleep": (230, 115)}
OF_OTHERS = 0x80000000  # clocks of which number on count what another process computes
OPEN, OPENAT, IOCTL = (2, -1), (257, 56), (16, 29)
# O_WRONLY, O_RDWR, O_CREAT, O_TRUNC, O_PATH; O_TMPFILE is none without O_RDWR or O_WRONLY.
NOT_READING = 0x1 | 0x2 | 0x40 | 0x200 | 0x200000
# TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX: questions, and what is its own
HARMLESS = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
OWNERS = (8, 10, 15, 1031)  # F_SETOWN, F_SETSIG, F_SETOWN_EX, F_SETPIPE_SZ

MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
OTHER_ABI = 0x40000000  # x32 calls on x86-64 have this bit, and would pass by their other numbers

# The instructions: load a word, jump if equal, at least, or any bit set, return.
LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, ERRNO = 0x7FFF0000, 0x00050000
# Where these stand in what a filter sees.
NUMBER, MACHINE, FIRST_ARGUMENT, SECOND, THIRD = 0, 4, 16, 24, 32

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, MODE_FILTER = 38, 22, 2


def filter_bytes(machine: str | None = None) -> bytes:
    """The filter for `machine` (this one's: "x86_64", "aarch64"), eight bytes an instruction.

    Raises ValueError for another machine.
    """
    column, _ = _numbers(machine)
    parts = _without(REFUSED, errno.ENOSYS, machine)
    families = [op(EQUAL, family, len(FAMILIES) - i, 0) for i, family in enumerate(FAMILIES)]
    for call, argument, allowed in (
        (CLONE, FIRST_ARGUMENT, [op(ANY_BIT, NEW_NAMESPACES, 0, 1), refuse(errno.EPERM)]),
        (SOCKET, FIRST_ARGUMENT, [*families, refuse(errno.EAFNOSUPPORT)]),
        (FCNTL, SECOND, _refuse_each(LOCKS, errno.EINVAL)),
        # Memory that is counted by the socket: 0 says that the wish was heard.
        (SETSOCKOPT, THIRD, _refuse_each(BUFFERS, 0)),
    ):
        parts += _of([call], column, argument, allowed)
    return b"".join([*parts, op(RETURN, ALLOW)])


def filter_of_ranks(process: int, machine: str | None = None) -> bytes:
    """The filter for a simulated rank, beside the one of its box: with it `process` (a number as
    it sees it itself) does nothing that another one would notice, but on what it has open.

    Raises ValueError for another machine.
    """
    column, _ = _numbers(machine)
    mine = [op(EQUAL, process, 1, 0), refuse(errno.EPERM)]
    signals = _of(SIGNALS.values(), column, FIRST_ARGUMENT, mine)
    asked = _of(QUESTIONS.values(), column, FIRST_ARGUMENT, [op(EQUAL, 0, 2, 0), *mine])
    return _for_any_rank(machine) + b"".join([*signals, *asked, op(RETURN, ALLOW)])


@cache
def _for_any_rank(machine: str | None) -> bytes:
    """The instructions that are the same for every process; what they do not refuse is loaded."""
    column, _ = _numbers(machine)
    clock = [op(AT_LEAST, OF_OTHERS, 0, 1), refuse(errno.EINVAL)]
    reading = [op(ANY_BIT, NOT_READING, 0, 1), refuse(errno.EROFS)]
    harmless = [op(EQUAL, each, len(HARMLESS) - i, 0) for i, each in enumerate(HARMLESS)]
    return b"".join(
        [
            *_without(REFUSED_TO_RANKS, errno.EPERM, machine),
            *_of([FUTEX], column, SECOND, [op(ANY_BIT, PRIVATE, 1, 0), refuse(errno.EPERM)]),
            *_of(CLOCKS.values(), column, FIRST_ARGUMENT, clock),
            *_of([OPEN], column, SECOND, reading),
            *_of([OPENAT], column, THIRD, reading),
            *_of([FCNTL], column, SECOND, _refuse_each(OWNERS, errno.EPERM)),
            *_of([IOCTL], column, SECOND, [*harmless, refuse(errno.ENOTTY)]),
        ]
    )


def _of(
    calls: Iterable[tuple[int, int]], column: int, argument: int, allowed: list[bytes]
) -> list[bytes]:
    """The instructions that allow some calls unless `allowed` refuses them for an argument."""
    body = [op(LOAD, argument), *allowed, op(RETURN, ALLOW)]
    each = [call[column] for call in calls if call[column] >= 0]
    return [part for number in each for part in _where(number, body)]


def _without(calls: Mapping[str, tuple[int, int]], error: int, machine: str | None) -> list[bytes]:
    """The instructions that refuse some calls, and all that another kind of machine would make;
    behind them the number of any other call is loaded."""
    column, audit = _numbers(machine)
    missing = refuse(errno.ENOSYS)
    parts = [op(LOAD, MACHINE), op(EQUAL, audit, 1, 0), missing, op(LOAD, NUMBER)]
    if column == 0:
        parts += [op(AT_LEAST, OTHER_ABI, 0, 1), missing]
    for numbers in calls.values():
        if numbers[column] >= 0:
            parts += _where(numbers[column], [refuse(error)])
    return parts


def _where(number: int, body: list[bytes]) -> list[bytes]:
    """The instructions `body`, the last of which returns, where a call has this number."""
    return [op(EQUAL, number, 0, len(body)), *body]


def _refuse_each(values: Sequence[int], error: int) -> list[bytes]:
    """The instructions that refuse a call whose loaded argument is one of some values."""
    last = len(values) - 1
    return [*(op(EQUAL, each, last - i, i == last) for i, each in enumerate(values)), refuse(error)]


def filter_of_accidents(machine: str | None = None) -> bytes:
    """The filter where there is no box: a signal to everybody at once is refused, nothing else.

    Raises ValueError for another machine.
    """
    column, audit = _numbers(machine)
    return b"".join(
        (
            *(op(LOAD, MACHINE), op(EQUAL, audit, 0, 4)),
            *(op(LOAD, NUMBER), op(EQUAL, KILL[column], 0, 2)),
            *(op(LOAD, FIRST_ARGUMENT), op(EQUAL, EVERYBODY, 1, 0)),
            *(op(RETURN, ALLOW), refuse(errno.EPERM)),
        )
    )


def _numbers(machine: str | None) -> tuple[int, int]:
    """Which column of numbers is a machine's, and what the kernel calls it."""
    machine = machine or os.uname().machine
    if machine not in MACHINES:
        known = " and ".join(MACHINES)
        raise ValueError(f"system calls are known for {known} processors, not for {machine}")
    return MACHINES[machine]


def filter_file() -> int:
    """The filter in an open file, for bubblewrap to read."""
    read, write = os.pipe()
    os.write(write, filter_bytes())
    os.close(write)
    return read


def op(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    """An instruction; a jump skips `yes` instructions where its test holds, else `no`."""
    return struct.pack("=HBBI", code, yes, no, value)


def refuse(error: int) -> bytes:
    """The instruction with which a call fails."""
    return op(RETURN, ERRNO | error)


def install(program: bytes) -> None:
    """Filter this thread's calls, and those of all that it starts, for good.

    Raises OSError where the kernel has no filters.
    """
    buffer = ctypes.create_string_buffer(program, len(program))
    # struct sock_fprog: the number of instructions, and where they are.
    pointer = struct.pack("@HP", len(program) // 8, ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    for arguments in (PR_SET_NO_NEW_PRIVS, 1, 0), (PR_SET_SECCOMP, MODE_FILTER, pointer):
        if libc.prctl(*arguments, 0, 0):
            raise OSError(ctypes.get_errno(), "the kernel takes no filter of system calls")
