"""Ranks of a student's program, each in a process of its own, which try to tell each other a number
past the network that counts what they send."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from textwrap import dedent, indent

import pytest

from dlsys.grading.boxes.sandbox import Limits
from dlsys.grading.boxes.warm import Boxes
from dlsys.grading.result import QuestionResult
from tests.grading.boxes import opened
from tests.grading.test_examine import IMPORTS, judged

# Rank 0 is told 1, and then 2; rank 1 has to say what it was.
TRUSTED = (
    IMPORTS
    + """

def heard(program):
    return [world.simulate(lambda comm: program(comm, n * (1 - comm.rank)), 2).results[1] for n in (1, 2)]


def whispers(program):
    try:
        return heard(program) == [1, 2]
    except ConnectionError:
        raise  # a rank that has ended has not been tried
    except Exception:
        return False
"""
)
# What is done beforehand, in the cell; how rank 1 gets ready, rank 0 tells n, and rank 1 hears.
PROGRAM = """import ctypes, fcntl, glob, mmap, multiprocessing, os, resource, signal, socket, sys, threading, time
from multiprocessing import shared_memory
import torch

def others():
    "The processes that could be the other rank."
    found = range(max(2, os.getpid() - 8), os.getpid() + 9)
    alike = [p for p in found if os.path.exists(f"/proc/{p}/stat") and f") S {os.getppid()} " in open(f"/proc/{p}/stat").read()]
    return [p for p in alike or found if p != os.getpid()]

def first(function):
    "What a function gives for the first of the others that it does not fail for."
    for pid in reversed(others()):
        try:
            return function(pid)
        except (OSError, ValueError, IndexError):
            pass

@before@

def program(comm, n):
    if comm.rank == 1:
@ready@
    comm.barrier()
    if comm.rank == 0:
@tell@
    comm.barrier()
    if comm.rank == 1:
@hear@
    else:
        said = None
    comm.barrier()
    return said
"""
BOX = "/tmp", "/dev/shm", "."
SIGNALED = (  # how a rank hears of a signal, and what it does for that beforehand
    """
    signal.sigtimedwait([signal.SIGRTMIN + i for i in (3, 4)], 0)
    said = came[-1]
    """,
    """
    for i in (1, 2): signal.signal(signal.SIGRTMIN + i, lambda number, frame: came.append(number - signal.SIGRTMIN))
    """,
)  # fmt: skip
WAYS: dict[str, tuple[str, str, str] | tuple[str, str, str, str]] = {
    "memory that is shared": ("m = mmap.mmap(-1, 8)", "m[0] = n", "said = m[0]"),
    "memory that is shared, and may not be written yet": (
        "m = mmap.mmap(-1, 8, prot=mmap.PROT_READ)\nlibc = ctypes.CDLL(None)\n"
        "at = int(next(l for l in open('/proc/self/maps') if ' r--s ' in l and '/dev/zero' in l).split('-')[0], 16)",
        "libc.mprotect(ctypes.c_void_p(at), 4096, 3); ctypes.memset(at, n, 1)",
        "said = m[0]",
    ),
    "a tensor in shared memory": (
        "t = torch.zeros(1).share_memory_()",
        "t[0] = n",
        "said = int(t[0])",
    ),
    "a value of multiprocessing": (
        "v = multiprocessing.Value('i', 0, lock=False)",
        "v.value = n",
        "said = v.value",
    ),
    "a file mapped into memory": (
        "f = open('/tmp/mapped', 'w+b'); f.write(b'x' * 8); f.flush(); m = mmap.mmap(f.fileno(), 8)",
        "m[0] = n",
        "said = m[0]",
    ),
    "shared memory by its name": (
        "s = shared_memory.SharedMemory('here', create=True, size=8)",
        "other = shared_memory.SharedMemory('here'); other.buf[0] = n",
        "other = shared_memory.SharedMemory('here'); said = other.buf[0]",
    ),
    **{
        f"a file in {folder}": (
            "",
            f"open('{folder}/note', 'w').write(str(n))",
            f"said = int(open('{folder}/note').read())",
        )
        for folder in BOX
    },
    "a file that was open": (
        "f = open('/tmp/open', 'w+')",
        "f.seek(0); f.write(str(n)); f.flush()",
        "f.seek(0); said = int(f.read())",
    ),
    "the place in a file that was open for reading": (
        "open('/tmp/place', 'w').write('x' * 9); f = os.open('/tmp/place', os.O_RDONLY)",
        "os.lseek(f, n, 0)",
        "said = os.lseek(f, 0, 1)",
    ),
    "that there is a folder": (
        "",
        "os.makedirs(f'/tmp/folder-{n}')",
        "said = len(glob.glob('/tmp/folder-*'))",
    ),
    "that there is no file any more": (
        "for i in (1, 2): open(f'/tmp/gone-{i}', 'w')",
        "os.remove(f'/tmp/gone-{n}')",
        "said = 2 - len(glob.glob('/tmp/gone-*'))",
    ),
    "the name of a file": (
        "open('/tmp/named-0', 'w')",
        "os.rename(glob.glob('/tmp/named-*')[0], f'/tmp/named-{n}')",
        "said = int(glob.glob('/tmp/named-*')[0][-1])",
    ),
    "a link": (
        "",
        "os.symlink(str(n), f'/tmp/link-{n}')",
        "said = int(os.readlink(sorted(glob.glob('/tmp/link-*'))[-1]))",
    ),
    "the time at which a file was changed": (
        "open('/tmp/times', 'w')",
        "os.utime('/tmp/times', (n, n))",
        "said = int(os.stat('/tmp/times').st_mtime)",
    ),
    "the time at which a file was read": (
        "for i in (1, 2): open(f'/tmp/read-{i}', 'w').write('x'); os.utime(f'/tmp/read-{i}', (5, 9))",
        "open(f'/tmp/read-{n}').read()",
        "said = sum(os.stat(f'/tmp/read-{i}').st_atime > 5 for i in (1, 2))",
    ),
    "the mode of a file": (
        "open('/tmp/mode', 'w')",
        "os.chmod('/tmp/mode', n << 6)",
        "said = os.stat('/tmp/mode').st_mode >> 6 & 7",
    ),
    "the mode of a file that is open for reading": (
        "open('/tmp/mode-r', 'w')",
        "os.fchmod(os.open('/tmp/mode-r', os.O_RDONLY), 0o400 | n)",
        "said = os.stat('/tmp/mode-r').st_mode & 7",
    ),
    "a pipe": ("r, w = os.pipe()", "os.write(w, bytes([n]))", "said = os.read(r, 1)[0]"),
    "a pair of sockets": (
        "a, b = socket.socketpair()",
        "a.send(bytes([n]))",
        "said = b.recv(1)[0]",
    ),
    "what counts events": (
        "e = os.eventfd(0, os.EFD_NONBLOCK)",
        "os.eventfd_write(e, n)",
        "said = os.eventfd_read(e)",
    ),
    "a pipe in the place of standard output": (
        "r, w = os.pipe(); os.set_blocking(r, False); os.dup2(r, 0); os.dup2(w, 1)",
        "os.write(1, bytes([n]))",
        "said = os.read(0, 1)[0]",
    ),
    "flags of standard input": (
        "",
        "fcntl.fcntl(0, fcntl.F_SETFL, os.O_NONBLOCK if n == 2 else 0)",
        "said = 2 if fcntl.fcntl(0, fcntl.F_GETFL) & os.O_NONBLOCK else 1",
    ),
    "a name of a socket": (
        "kept = []",
        "s = socket.socket(socket.AF_UNIX); s.bind(f'\\0{n}'); s.listen(); kept.append(s)",
        """
        for n in (1, 2):
            try:
                socket.socket(socket.AF_UNIX).connect(f'\\0{n}')
                said = n
            except ConnectionRefusedError:
                pass
        """,
    ),
    "a port of the network": (
        "kept = []",
        "s = socket.create_server(('127.0.0.1', 4000 + n)); kept.append(s)",
        """
        for n in (1, 2):
            try:
                socket.create_connection(('127.0.0.1', 4000 + n))
                said = n
            except ConnectionRefusedError:
                pass
        """,
    ),
    "signals": (
        "came = []",
        """
        for pid in others():
            try: os.kill(pid, signal.SIGRTMIN + n)
            except OSError: pass
        """,
        *SIGNALED,
    ),
    "signals to all that are together": (
        "came = []",
        "signal.signal(signal.SIGRTMIN + n, signal.SIG_IGN); os.kill(0, signal.SIGRTMIN + n)",
        *SIGNALED,
    ),
    "the name of a process": (
        "libc = ctypes.CDLL(None)",
        "libc.prctl(15, f'whisper{n}'.encode(), 0, 0, 0)",
        "said = next(int(s[7]) for p in glob.glob('/proc/[0-9]*/comm') for s in [open(p).read()] if 'whisper' in s)",
    ),
    "how many files a process has open": (
        "kept = []",
        "[os.close(each) for each in kept]; kept[:] = [os.open('/etc', os.O_RDONLY) for _ in range(40 * n)]",
        "most = max(os.stat(p).st_size for p in glob.glob('/proc/[0-9]*/fd')); said = most // 40",
    ),
    "how much memory a process has": (
        "kept = []",
        "kept[:] = [mmap.mmap(-1, n << 34, flags=mmap.MAP_PRIVATE | 0x4000, prot=1)]",
        "said = max(int(open(p).read().split()[0]) for p in glob.glob('/proc/[0-9]*/statm')) >> 22",
    ),
    "the memory of a process": (
        "b = ctypes.create_string_buffer(b'0')",
        "b[0] = str(n).encode()",
        """
        for pid in reversed(others()):
            try:
                with open(f'/proc/{pid}/mem', 'rb') as f:
                    f.seek(ctypes.addressof(b)); found = f.read(1)
                    if found in b'12': said = int(found); break
            except OSError: pass
        """,
    ),
    "a child that looks into memory": (
        """
        b = ctypes.create_string_buffer(b'0')
        if os.fork() == 0:
            while True:
                for path in glob.glob('/proc/[0-9]*/mem'):
                    try:
                        with open(path, 'rb') as f:
                            f.seek(ctypes.addressof(b)); found = f.read(1)
                        if found in b'12':
                            with open('/tmp/relay-part', 'wb') as f: f.write(found)
                            os.rename('/tmp/relay-part', '/tmp/relay')
                    except OSError: pass
                time.sleep(0.01)
        """,
        "b[0] = str(n).encode()",
        """
        said, until = 0, time.monotonic() + 1
        while said not in (1, 2) or said == before:
            if time.monotonic() > until: break
            if os.path.exists('/tmp/relay'): said = int(open('/tmp/relay').read())
        globals()['before'] = said
        """,
        "globals().setdefault('before', 0)",
    ),
    "how nice a process is": (
        "",
        "os.setpriority(os.PRIO_PROCESS, 0, n)",
        "said = max(filter(None, [first(lambda pid: os.getpriority(os.PRIO_PROCESS, pid) or [][0])]))",
    ),
    "the group of a process": (
        "",
        "os.setpgid(0, 0) if n == 2 else None",
        "said = 1 + any(first(lambda p: os.getpgid(p)) and os.getpgid(p) == p for p in others() if os.path.exists(f'/proc/{p}'))",
    ),
    "the limits of a process": (
        "hard = resource.getrlimit(resource.RLIMIT_STACK)[1]",
        "resource.setrlimit(resource.RLIMIT_STACK, (n << 24, hard))",
        "said = max(resource.prlimit(p, resource.RLIMIT_STACK)[0] for p in others()) >> 24",
    ),
    "the processors of a process": (
        "every = os.sched_getaffinity(0)",
        "os.sched_setaffinity(0, every if n == 2 else {min(every)})",
        "said = 1 if any(os.sched_getaffinity(p) == {min(every)} for p in others() if os.path.exists(f'/proc/{p}')) else 2",
    ),
    "the clock of a process": (
        "",
        "until = time.process_time() + 0.5 * (n == 2)\nwhile time.process_time() < until: pass",
        "said = 1 + (max(time.clock_gettime(~p << 3 | 2) for p in others()) > 0.5)",
    ),
    "how many processes there may be still": (
        "kept = []",
        """
        try:
            while n == 2:
                threading.Thread(target=time.sleep, args=(2,), daemon=True).start()
        except RuntimeError: pass
        """,
        """
        try:
            threading.Thread(target=time.sleep, args=(0,)).start()
            said = 1
        except RuntimeError: said = 2
        """,
    ),
    "who waits at an address of a library": (
        """
        libc = ctypes.CDLL(None, use_errno=True)
        at = ctypes.cast(libc.printf, ctypes.c_void_p).value & ~4095
        holds = ctypes.c_uint.from_address(at).value
        number = {"x86_64": 202, "aarch64": 98}[os.uname().machine]
        if os.fork() == 0:
            for i in (1, 2):
                while libc.syscall(number, ctypes.c_void_p(at), 0, holds, None): pass
                open(f'/tmp/woken-{i}', 'w')
            os._exit(0)
        """,
        """
        until = time.monotonic() + 1
        while libc.syscall(number, ctypes.c_void_p(at), 1, 1, None) != 1 and time.monotonic() < until: pass
        """,
        """
        until = time.monotonic() + 1
        while not os.path.exists(f'/tmp/woken-{1 + before}') and time.monotonic() < until: pass
        said = len(glob.glob('/tmp/woken-*'))
        globals()['before'] = said
        """,
        "globals().setdefault('before', 0)",
    ),
    "a named pipe": (
        """
        os.mkfifo('/tmp/fifo-1'), os.mkfifo('/tmp/fifo-2')
        kept = []
        if os.fork() == 0:
            for n in (1, 2):
                open(f'/tmp/fifo-{n}', 'w')
                open(f'/tmp/opened-{n}', 'w')
            os._exit(0)
        """,
        "kept.append(open(f'/tmp/fifo-{n}'))",
        """
        until = time.monotonic() + 1
        while not os.path.exists(f'/tmp/opened-{1 + before}') and time.monotonic() < until: pass
        said = len(glob.glob('/tmp/opened-*'))
        globals()['before'] = said
        """,
        "globals().setdefault('before', 0)",
    ),
}  # fmt: skip


def answer(way: tuple[str, ...]) -> str:
    before, tell, hear, *ready = (dedent(part).strip("\n") for part in way)
    source = PROGRAM.replace("@before@", before)
    for name, part in {"tell": tell, "hear": hear, "ready": "".join(ready) or "pass"}.items():
        source = source.replace(f"@{name}@", indent(part, " " * 8))
    return source


@pytest.fixture(scope="module")
def boxes() -> Iterator[Boxes]:
    with opened(Limits()) as made:
        yield made


@pytest.fixture(scope="module")
def whispered(boxes: Boxes, tmp_path_factory: pytest.TempPathFactory) -> dict[str, QuestionResult]:
    check = "same(whispers(program), False)"
    cases = (("program = ...", answer(way), check) for way in WAYS.values())
    return dict(zip(WAYS, judged(tmp_path_factory, boxes, TRUSTED, *cases), strict=True))


@pytest.mark.parametrize("way", WAYS)
def test_ranks_tell_each_other_nothing_past_the_network(
    whispered: dict[str, QuestionResult], way: str
) -> None:
    if way == "a child that looks into memory" and os.getuid() != 0:
        pytest.skip("an ordinary user's boxes count memory by what a process shows to its own user")
    assert whispered[way].error is None or "mkfifo" in WAYS[way][0]
    assert whispered[way].earned == whispered[way].points, whispered[way].checks[0].message


HONEST = """import mmap, os, sys
import torch, torch._dynamo  # as it is where the author's cells simulate

with open("mine.py", "w") as file:
    file.write("NUMBER = 7")
notes = open("mine.py")
shared = torch.arange(3_000_000.0).share_memory_()
short = open("/tmp/short", "w+b")
short.truncate(1)
beyond = mmap.mmap(short.fileno(), 1)

def program(comm, n):
    global notes
    import sqlite3, xml.dom.minidom  # which nobody has imported
    import mine
    notes = open("mine.py")  # and the one that was open is closed
    print("said", file=sys.stderr)
    x = torch.ones(4, requires_grad=True)
    torch.optim.SGD([x], lr=0.0).step()
    torch.func.grad(torch.sum)(x)
    (x @ x).backward()
    total = comm.all_reduce(x.grad)
    total += float(shared[2_999_999]) + beyond[0]
    os.kill(os.getpid(), 0)
    return [mine.NUMBER, notes.read(), float(total[0]), torch.get_num_threads(), os.getcwd() != "/"]
"""


def test_a_rank_computes_imports_reads_and_prints_as_before(
    boxes: Boxes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    said = [7, "NUMBER = 7", 3_000_003.0, 1, True]
    check = f"same(heard(program), {[said, said]})"
    [question] = judged(tmp_path_factory, boxes, TRUSTED, ("program = ...", HONEST, check))
    assert question.error is None
    assert question.checks[0].message == ""


HIDDEN = """import mmap, os
from dlsys.grading.boxes import alone, sandbox

shared, (read, write) = mmap.mmap(-1, 4), os.pipe()
shared[:] = b"kept"
os.setgid(sandbox.FEW_USERS[0])
os.setuid(sandbox.FEW_USERS[0])
if os.fork():
    os.close(write)
    print(os.read(read, 9).decode(), shared[:].decode())
else:
    alone.be_alone(write)
    was, shared[:] = shared[:], b"lost"
    os.write(write, was)
"""


@pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="only root becomes another user"
)
def test_a_process_that_its_user_hides_from_itself_is_alone_as_well() -> None:
    done = subprocess.run([sys.executable, "-c", HIDDEN], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("kept kept\n", "")
