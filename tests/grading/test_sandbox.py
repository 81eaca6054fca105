"""Boxes for student code: what cannot be done in them, what still can, and that they end."""

import errno
import fcntl
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import dedent

import nbformat
import psutil
import pytest
from jupyter_client.manager import KernelManager
from jupyter_client.provisioning import KernelProvisionerFactory
from nbgrader.apps import NbGraderAPI
from nbgrader.coursedir import CourseDirectory
from traitlets.config import Config

from dlsys.grading.boxes import sandbox, seccomp, selftest
from dlsys.grading.boxes.memory import uses_more
from dlsys.grading.boxes.sandbox import Limits, SandboxError
from dlsys.grading.boxes.warm import Boxes
from tests.grading.boxes import opened

ROLE = "tests.grading.programs.boxed"
LIMITS = Limits(processes=24, memory_bytes=600 << 20, file_bytes=8 << 20, submission_seconds=60)


@pytest.fixture(scope="module")
def boxes():
    with opened(LIMITS) as made:
        yield made


@pytest.fixture
def box(boxes):
    with boxes.open(ROLE) as made:
        yield made


@pytest.fixture(scope="module")
def folders():
    """Without boxes: what runs in them is a test's own, and harms nothing where it fails."""
    with Boxes(LIMITS, trust_students=True) as made:
        yield made


def ask(box, source):
    """Run code in a box; its `answer`, or None where the box is gone."""
    try:
        box.socket.sendall(json.dumps(dedent(source)).encode() + b"\n")
        with box.socket.makefile() as lines:
            line = lines.readline()
    except ConnectionError:
        line = ""
    return json.loads(line) if line else None


def has_ended(process):
    """Whether a process runs no more; it may wait for its parent to take leave of it."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def call(numbers, *arguments):
    """Code that makes a system call, and gives its error as `answer` (None: it went through)."""
    column = seccomp.MACHINES[os.uname().machine][0]
    return f"""
        import ctypes, errno
        libc = ctypes.CDLL(None, use_errno=True)
        failed = libc.syscall({numbers[column]}, *{[*map(int, arguments)]}, 0, 0, 0, 0) < 0
        answer = errno.errorcode[ctypes.get_errno()] if failed else None
        """


# What cannot be done.


def test_a_box_holds(boxes):
    with boxes.open(selftest.__name__, Limits(processes=selftest.PROCESSES)) as box:
        assert selftest.failures(box.socket, Limits()) == []


def test_the_self_test_finds_what_a_process_without_a_box_can_do(folders):
    """Asked of its own folder and this machine's loopback alone, for nothing holds it there."""
    others = [subprocess.Popen([sys.executable, "-c", "input()"], stdin=-1) for _ in range(5)]
    with socket.create_server(("127.0.0.1", 0)) as listener, folders.open(selftest.__name__) as box:
        address = list(listener.getsockname())
        own = {"addresses": [address], "hidden": ["/usr"], "needed": ["/nowhere"], "fixed": ["."]}
        box.socket.sendall(json.dumps(own).encode() + b"\n")
        with box.socket.makefile() as lines:
            facts = json.loads(lines.readline())
    for other in others:
        other.communicate()
    assert (facts["reached"], facts["seen"]) == ([address], ["/usr"])
    assert (facts["closed"], facts["written"]) == (["/nowhere"], ["."])
    found = " ".join(selftest.wrong(facts, LIMITS))
    for sentence in ("privileges", "reaches", "cannot read", "can write", "no limit"):
        assert sentence in found
    if sys.platform == "linux":
        assert ("network" in found, "processes of this computer" in found) == (True, True)


def test_the_self_test_calls_each_thing_that_should_not_be_by_its_name():
    fine = {"user": 1, "privileges": [0, 0, 0, 1, 2], "interfaces": ["lo"], "reached": []}
    fine |= {"seen": [], "closed": [], "written": [], "processes": 4, "environment": []}
    fine |= {"forks": selftest.PROCESSES - 1, "room": LIMITS.file_bytes}
    assert selftest.wrong(fine, LIMITS) == []
    for name, bad in {
        **{"user": 0, "privileges": [1, 0, 0, 1, 2], "interfaces": ["lo", "eth0"]},
        **{"reached": [selftest.OUTSIDE], "seen": ["/srv/secret"], "closed": ["/usr"]},
        **{"written": ["/etc"], "processes": 5, "environment": ["TOKEN"]},
        **{"forks": selftest.PROCESSES, "room": LIMITS.file_bytes + 1},
    }.items():
        assert len(selftest.wrong(fine | {name: bad}, LIMITS)) == 1, name


def test_the_solutions_and_what_is_beside_the_package_cannot_be_seen(box):
    root = sandbox.PACKAGE.parent
    assert {"solutions", "tests"} <= set(os.listdir(root))
    seen = set(ask(box, f"import os; answer = os.listdir({str(root)!r})"))
    assert seen <= {"dlsys", ".venv"}


def test_the_environment_of_the_grader_is_not_handed_on(boxes, monkeypatch):
    monkeypatch.setenv("PLANTED", "secret")
    with Boxes(LIMITS) as fresh, fresh.open(ROLE) as box:
        environment = ask(box, "import os; answer = dict(os.environ)")
        raw = ask(box, "answer = open('/proc/self/environ').read()")
    assert environment == sandbox.environment()
    assert "secret" not in raw


def test_no_call_that_leads_out_of_a_box_is_there(box):
    column = seccomp.MACHINES[os.uname().machine][0]
    on_this_machine = {name: each for name, each in seccomp.REFUSED.items() if each[column] >= 0}
    assert len(on_this_machine) > 40
    said = {name: ask(box, call(numbers)) for name, numbers in on_this_machine.items()}
    assert said == dict.fromkeys(on_this_machine, "ENOSYS")


def test_a_process_cannot_get_namespaces_or_unusual_sockets(box):
    assert ask(box, call(seccomp.CLONE, 0x10000000 | signal.SIGCHLD)) == "EPERM"
    virtual_machine, packets = 40, 17
    for family in (virtual_machine, packets):
        assert ask(box, call(seccomp.SOCKET, family, socket.SOCK_STREAM)) == "EAFNOSUPPORT"


def test_a_file_that_boxes_share_can_be_neither_locked_nor_watched(box):
    library = "import fcntl, os; file = os.open(os.__file__, os.O_RDONLY); "
    for lock in ("flock(file, fcntl.LOCK_SH)", "lockf(file, fcntl.LOCK_SH)"):
        said = f"{library}\ntry: fcntl.{lock}; answer = None\nexcept OSError as e: answer = e.errno"
        assert ask(box, said) in (errno.ENOSYS, errno.EINVAL)
    for lock in seccomp.LOCKS:
        assert ask(box, call(seccomp.FCNTL, 0, lock)) == "EINVAL"
    flags = f"{library}answer = fcntl.fcntl(file, fcntl.F_GETFD)"
    assert ask(box, flags) == fcntl.FD_CLOEXEC


def test_nothing_that_boxes_share_keeps_what_one_has_done_to_it(boxes):
    """Neither the times of a device, nor the flags and the signal of an open file."""
    mark = """
        import fcntl, os
        answer = []
        for place in (*%r, 0, 1, 2):
            try:
                os.utime(place)
                answer.append(place)
            except OSError:
                pass
        for number in range(3):
            answer += [fcntl.fcntl(number, 11)] if fcntl.fcntl(number, 11) else []
            answer += ["flags"] if fcntl.fcntl(number, fcntl.F_GETFL) & os.O_APPEND else []
        for number in range(3):
            fcntl.fcntl(number, fcntl.F_SETFL, os.O_APPEND)
            fcntl.fcntl(number, 10, 40)
        os.write(1, b"x")
        open("/dev/null", "w").write("x")
        """
    for _ in range(2):
        with boxes.open(ROLE) as box:
            assert ask(box, mark % (sandbox.DEVICES,)) == []


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="only there are two sets of numbers")
def test_the_other_numbers_of_calls_lead_nowhere(box):
    unshare = seccomp.REFUSED["unshare"][0] | seccomp.OTHER_ABI
    assert ask(box, call((unshare, unshare))) == "ENOSYS"


@pytest.mark.parametrize("made", [seccomp.filter_bytes, partial(seccomp.filter_of_ranks, 7)])
@pytest.mark.parametrize("machine", seccomp.MACHINES)
def test_no_jump_of_the_filter_leaves_it_and_every_end_is_an_answer(made, machine):
    program = list(struct.iter_unpack("=HBBI", made(machine)))
    for place, (code, yes, no, _) in enumerate(program):
        assert place + 1 + max(yes, no) < len(program) or code == seccomp.RETURN
    assert program[-1] == (seccomp.RETURN, 0, 0, seccomp.ALLOW)


def _files(process):
    """What the open files of a process are."""
    return [os.readlink(entry.path) for entry in os.scandir(f"/proc/{process}/fd")]


@pytest.mark.skipif(sys.platform != "linux", reason="only there are boxes")
def test_what_holds_a_box_is_no_way_round_its_filter_and_its_limits(box):
    # Where the grader is not root, a student's process may write to the memory of these.
    holder = psutil.Process(box.processes[0].pid)
    for one in (holder, *holder.children()):
        status = dict(
            line.split(":\t", 1)
            for line in Path(f"/proc/{one.pid}/status").read_text().split("\n")
            if ":\t" in line
        )
        assert status["Seccomp"].strip() == "2"
        assert status["NoNewPrivs"].strip() == "1"
        assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == 0
        assert not [target for target in _files(one.pid) if target.startswith("socket:")]
        assert one.rlimit(psutil.RLIMIT_NPROC) == (LIMITS.processes,) * 2
        assert one.rlimit(psutil.RLIMIT_DATA) == (LIMITS.memory_bytes,) * 2


@pytest.mark.parametrize("machine", seccomp.MACHINES)
def test_every_way_through_the_filter_of_accidents_ends(machine):
    program = list(struct.iter_unpack("=HBBI", seccomp.filter_of_accidents(machine)))
    for place, (code, yes, no, _) in enumerate(program):
        assert place + 1 + max(yes, no) < len(program) or code == seccomp.RETURN
    assert [code for code, *_ in program[-2:]] == [seccomp.RETURN] * 2


@pytest.mark.skipif(sys.platform != "linux", reason="only there are calls filtered")
def test_no_signal_goes_to_everybody_where_there_is_no_box(folders):
    """Signal 0, which only asks whether one could be sent: a child of its own is there to get it."""
    kill = """
        import os, signal
        def said(process, number):
            try:
                os.kill(process, number)
            except OSError as error:
                return type(error).__name__
        if not (child := os.fork()):
            signal.pause()
        answer = [said(-1, 0), said(child, 0), said(child, 9)]
        """
    with folders.open(ROLE) as box:
        assert ask(box, kill) == ["PermissionError", None, None]


def test_an_unknown_processor_is_refused_by_name():
    with pytest.raises(ValueError, match="riscv64"):
        seccomp.filter_bytes("riscv64")


def test_processes_end_at_the_limit_and_another_box_has_its_own(boxes, box):
    bomb = """
        import os, time
        answer = 0
        try:
            while answer < 100:
                if os.fork() == 0:
                    time.sleep(1000)
                answer += 1
        except BlockingIOError:
            pass
        """
    assert ask(box, bomb) < LIMITS.processes
    with boxes.open(ROLE) as other:
        assert ask(other, "import subprocess; answer = subprocess.call(['true'])") == 0


def test_a_process_cannot_have_more_files_than_the_limit(box):
    opened = """
        import os
        answer = 0
        try:
            while answer < 10_000:
                answer = os.dup(0)
        except OSError:
            pass
        """
    assert ask(box, opened) == LIMITS.open_files - 1


def test_a_process_cannot_have_more_memory_than_the_limit(box):
    assert "MemoryError" in ask(box, f"bytearray({LIMITS.memory_bytes})")
    assert box.died is None


@pytest.mark.parametrize("kind", ["isolated", "folder"])
def test_processes_that_hold_too_much_memory_together_end_the_box(boxes, folders, kind):
    greedy = """
        import os, time
        for _ in range(4):
            if os.fork() == 0:
                keep = b'x' * (180 << 20)
                time.sleep(1000)
        time.sleep(1000)
        """
    with (boxes if kind == "isolated" else folders).open(ROLE) as box:
        assert ask(box, greedy) is None
        assert box.died == "memory"


@pytest.mark.skipif(sys.platform != "linux", reason="only there is the figure known")
def test_tables_of_empty_memory_count_as_memory(boxes):
    wide = """
        import mmap, time
        size = 512 << 30
        empty = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ)
        if hasattr(mmap, "MADV_NOHUGEPAGE"):
            empty.madvise(mmap.MADV_NOHUGEPAGE)
        for place in range(0, size, 2 << 20):
            empty[place]
        time.sleep(1000)
        """
    with boxes.open(ROLE) as box:
        assert ask(box, wide) is None
        assert box.died == "memory"


SOCKETS = """
import os, socket, time
for _ in range(16):
    if os.fork() == 0:
        kept = []
        for _ in range(50):
            kept += pair()
            for each in kept[-2:]:
                each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
                each.setblocking(False)
                try:
                    for _ in range(64):
                        each.send(bytes(1 << 16))
                except BlockingIOError:
                    pass
        time.sleep(1000)
time.sleep(1000)
"""
PAIRS = {
    "unix": "pair = socket.socketpair",
    "TCP": """
server = socket.create_server(("127.0.0.1", 0), backlog=1000)
def pair():
    one = socket.create_connection(server.getsockname())
    return one, server.accept()[0]
""",
}


@pytest.mark.skipif(sys.platform != "linux", reason="only there is the figure known")
@pytest.mark.parametrize("kind", PAIRS)
def test_what_sockets_hold_ends_a_box_though_no_process_has_it(boxes, kind):
    # Each of 16 processes takes 400 MB of the kernel's and hardly any of its own.
    before = psutil.virtual_memory().available
    with boxes.open(ROLE) as box:
        assert ask(box, f"import socket\n{PAIRS[kind]}\n{SOCKETS}") is None
        assert before - psutil.virtual_memory().available < 4 << 30
        assert box.died == "memory"


def test_some_sockets_are_nobodys_business(box):
    some = "import socket\nanswer = len([socket.socketpair() for _ in range(50)])"
    assert ask(box, some) == 50


@pytest.mark.skipif(sys.platform != "linux", reason="only there may it be asked for")
def test_a_box_cannot_say_that_others_should_be_ended_first_where_memory_is_short(box):
    spare = "from pathlib import Path; Path('/proc/self/oom_score_adj').write_text('0')"
    assert "Read-only file system" in ask(box, spare)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can become another")
def test_a_process_that_hides_its_memory_counts_with_all_of_it():
    # As one that is not dumpable does, where the grader is not root.
    child = os.fork()
    if child == 0:
        try:
            os.setgid(65_534)
            os.setuid(65_534)
            os._exit(not uses_more([psutil.Process(os.getppid())], 1))
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_files_end_at_the_limit_of_their_size_their_folder_and_their_number(box):
    write = "from pathlib import Path; Path('{0}').write_bytes(bytes({1}))"
    assert "File too large" in ask(box, write.format("large", LIMITS.file_bytes + 1))
    for folder in ("/home/student", "/tmp", "/dev/shm"):
        half = LIMITS.file_bytes // 2 + 1
        ask(box, write.format(f"{folder}/one", half))
        assert "No space left" in ask(box, write.format(f"{folder}/two", half))
    many = "for n in range(100_000): open(f'/tmp/{n}', 'w').close()"
    assert "No space left" in ask(box, many)


# What still can.


@pytest.mark.parametrize(
    ("work", "expected"),
    {
        "threads": (
            "from concurrent.futures import ThreadPoolExecutor as P\n"
            "answer = list(P(4).map(abs, [-1, 2]))",
            [1, 2],
        ),
        "a program": (
            "import subprocess, sys\n"
            "answer = subprocess.run([sys.executable, '-c', 'import dlsys; print(1)'],"
            "capture_output=True, text=True).stdout",
            "1\n",
        ),
        "processes": (
            "import multiprocessing as m\nwith m.get_context('fork').Pool(2) as p:\n"
            "    answer = p.map(abs, [-1, 2])",
            [1, 2],
        ),
        "a callback from C": (
            "import ctypes\nsort = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 7)\nanswer = sort()",
            7,
        ),
        "its own network": (
            "import socket\nwith socket.create_server(('127.0.0.1', 0)) as s:\n"
            "    answer = socket.create_connection(s.getsockname()).getsockname()[0]",
            "127.0.0.1",
        ),
        "ranks and tensors": (
            "from dlsys import world\nimport torch\n"
            "answer = (torch.ones(64, 64) @ torch.ones(64)).tolist()[:1]\n"
            "answer += world.launch(lambda comm: comm.all_reduce(torch.ones(1)).item(), 2).results",
            [64, 2.0, 2.0],
        ),
    }.values(),
    ids=["threads", "a program", "processes", "a callback", "sockets", "ranks and tensors"],
)
def test_honest_work_still_runs(boxes, work, expected):
    with boxes.open(ROLE, Limits()) as box:
        assert ask(box, work) == expected


def test_without_a_box_there_is_a_folder_that_goes_with_it(folders):
    with folders.open(ROLE) as box:
        found = ask(box, "import os, tempfile; answer = [os.getcwd(), tempfile.gettempdir()]")
        ask(box, "open('mine', 'w').write('x')")
        home = Path(found[0])
        assert found == [str(home)] * 2
        assert (home / "mine").exists()
        assert ask(box, "answer = os.environ['HOME']; import os") != os.environ["HOME"]
    assert not home.exists()


# That they end.

STRAYS = """
    import contextlib, os, time
    wait, go = os.pipe()
    if os.fork() == 0:
        with contextlib.suppress(OSError):
            os.setsid()
        if os.fork() == 0:
            os.write(go, b"x")
        while True:
            try:
                time.sleep(1000)
            except BaseException:
                pass
    os.read(wait, 1)
    """


@pytest.mark.parametrize("kind", ["isolated", "folder"])
def test_what_ran_in_a_box_has_ended_when_it_is_closed(boxes, folders, kind):
    box = (boxes if kind == "isolated" else folders).open(ROLE)
    ask(box, STRAYS)
    inside = [one for root in box.processes for one in (root, *root.children(recursive=True))]
    assert len(inside) >= 3
    box.close()
    box.close()
    assert all(map(has_ended, inside))


def test_boxes_are_opened_by_many_threads_at_once(boxes):
    def work(number):
        with boxes.open(ROLE) as box:
            return ask(box, f"import os; answer = [{number}, os.getuid()]")

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(work, range(16)))
    assert [number for number, _ in found] == list(range(16))
    assert 0 not in {user for _, user in found}


@pytest.mark.parametrize("kind", ["isolated", "folder"])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_nothing_outlives_a_grader(boxes, tmp_path, kind, how):
    program = Path(__file__).parent / "programs" / "opens_boxes.py"
    with subprocess.Popen(
        [sys.executable, program, kind],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        start_new_session=True,
    ) as grader:
        assert grader.stdout.readline() == b"open\n"
        below = psutil.Process(grader.pid).children(recursive=True)
        assert len(below) >= 5
        files = [os.pidfd_open(one.pid) for one in below]
        grader.send_signal(how)
        # Readable when the process has ended, even if nobody has taken leave of it yet.
        alive = [file for file in files if not select.select([file], [], [], 120)[0]]
    for file in files:
        os.close(file)
    assert alive == []
    assert list(tmp_path.iterdir()) == []


MISSED = """
import psutil, signal, subprocess, sys
from dlsys.grading.boxes import zygote
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
children, lists = psutil.Process.children, [[], []]  # the first two lack whom they should have
psutil.Process.children = lambda *a, **k: lists.pop() if lists else children(*a, **k)
one = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
zygote.end_all()
print(psutil.pid_exists(one.pid))
"""


def test_a_list_of_processes_that_lacks_some_ends_nothing_too_early():
    # As where a student's process ends while its parents' are listed, and what it started is not.
    found = subprocess.run(
        [sys.executable, "-c", MISSED], capture_output=True, text=True, timeout=300
    )
    assert found.stdout == "False\n", found.stderr


def test_a_role_that_does_not_exist_is_named(boxes):
    with pytest.raises(SandboxError, match="nowhere"):
        boxes.open("nowhere")
    with boxes.open(ROLE) as box:
        assert ask(box, "answer = 1") == 1


def test_a_role_that_fails_hangs_up(boxes):
    with boxes.open(ROLE) as box:
        assert ask(box, "import sys; sys.exit(3)") is None


def test_where_bubblewrap_is_missing_the_message_says_how_to_install_it(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SandboxError, match=r"apt install bubblewrap.*--trust-students"), Boxes():
        pass


def test_a_test_of_hostile_code_is_skipped_where_nothing_holds_it(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("SANDBOX_TEST", raising=False)
    with pytest.raises(pytest.skip.Exception, match="apt install bubblewrap"), opened(LIMITS):
        pytest.fail("a box without isolation was opened")


def test_what_python_needs_can_be_reached_where_the_box_has_its_own_folder(boxes, monkeypatch):
    """A course may lie below /tmp, where the box has a folder of its own."""
    with TemporaryDirectory(dir="/tmp") as folder:
        place = Path(folder, "environment")
        place.mkdir()
        monkeypatch.setattr(sandbox, "libraries", lambda: [place])
        look = ["/usr/bin/stat", "--format", "%a", "/tmp", folder]
        command = [*sandbox.command("bwrap", Limits()), *look]
        shown = subprocess.run(command, capture_output=True, text=True)
    assert shown.stdout.split() == ["777", "755"], shown.stderr


# Jupyter kernels in boxes.


@pytest.fixture
def jupyter(boxes, monkeypatch):
    monkeypatch.setenv("JUPYTER_DEFAULT_PROVISIONER_NAME", "dlsys-sandbox")
    # The factory is one for the whole process, and has read the variable before.
    KernelProvisionerFactory.clear_instance()
    yield
    KernelProvisionerFactory.clear_instance()


@pytest.fixture
def manager(jupyter):
    managers = []

    def start(folder, transport="ipc"):
        managers.append(KernelManager(kernel_name="python3", transport=transport))
        managers[-1].start_kernel(cwd=str(folder))
        return managers[-1]

    yield start
    for one in managers:
        if one.has_kernel:
            one.shutdown_kernel(now=True)


@contextmanager
def talk(manager):
    """A function that runs code in a kernel and gives its status, and what it printed."""
    client = manager.client()
    client.start_channels()
    client.wait_for_ready(timeout=60)

    def run(code, hook=None):
        texts = []

        def hear(message):
            texts.append(message["content"].get("text", ""))
            if hook and texts[-1]:
                hook()

        reply = client.execute_interactive(code, timeout=60, output_hook=hear)
        return reply["content"]["status"], "".join(texts)

    yield run
    client.stop_channels()


def test_a_kernel_in_a_box_has_the_files_and_nothing_else(manager, tmp_path):
    (tmp_path / "data.txt").write_text("seven")
    (tmp_path / "link").symlink_to("/etc/passwd")
    (tmp_path / "folder").mkdir()
    look = "import os, socket; print(sorted(os.listdir()), socket.if_nameindex(), os.getuid() == 0)"
    with talk(manager(tmp_path)) as run:
        assert run(look)[1] == "['.ipython', 'data.txt'] [(1, 'lo')] False\n"
        assert run("open('data.txt', 'a').write('!')")[0] == "ok"
        assert run("print('Seccomp:\\t2' in open('/proc/1/status').read())")[1] == "True\n"
    assert (tmp_path / "data.txt").read_text() == "seven"


def test_an_interrupt_ends_the_cell_and_not_the_kernel(manager, tmp_path):
    kernel = manager(tmp_path)
    with talk(kernel) as run:
        run("kept = 7")
        loop = "print('running', flush=True)\nwhile True: pass"
        assert run(loop, hook=kernel.interrupt_kernel)[0] == "error"
        assert run("print(kept)") == ("ok", "7\n")


def test_a_restarted_kernel_is_in_a_new_box_and_the_old_one_has_ended(manager, tmp_path):
    kernel = manager(tmp_path)
    with talk(kernel) as run:
        run("open('mine', 'w')")
    old = psutil.Process(kernel.provisioner.pid)
    kernel.restart_kernel()
    with talk(kernel) as run:
        assert run("import os; print(os.path.exists('mine'))") == ("ok", "False\n")
    assert has_ended(old)
    kernel.shutdown_kernel()
    assert not Path(kernel.connection_file).exists()


def test_a_kernel_that_wants_the_network_is_refused_with_the_setting_to_change(manager, tmp_path):
    with pytest.raises(SandboxError, match=r"KernelManager\.transport=ipc"):
        manager(tmp_path, transport="tcp")


@pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SAWarning")  # nbgrader's own
def test_nbgrader_grades_in_a_box_by_two_settings(jupyter, tmp_path, monkeypatch):
    # nbgrader starts a program by its name.
    monkeypatch.setenv("PATH", f"{sys.prefix}/bin{os.pathsep}{os.environ['PATH']}")
    notebook = nbformat.v4.new_notebook()
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3"}
    roles = {"schema_version": 3, "locked": False, "task": False}
    answer = {**roles, "grade_id": "answer", "grade": False, "solution": True}
    test = {**roles, "grade_id": "test", "grade": True, "solution": False, "points": 2}
    look = "import socket\nassert socket.gethostname() == 'box' and value == 7"
    for source, about in (("value = 7", answer), (look, test)):
        cell = nbformat.v4.new_code_cell(source, metadata={"nbgrader": about})
        notebook.cells.append(cell)
    for folder in ("source/one", "submitted/ada/one"):
        (tmp_path / folder).mkdir(parents=True)
        nbformat.write(notebook, tmp_path / folder / "one.ipynb")
    # What nbgrader_config.py sets.
    config = Config()
    config.CourseDirectory.root = str(tmp_path)
    config.KernelManager.transport = "ipc"
    course = NbGraderAPI(CourseDirectory(config=config), config=config)
    for done in (course.generate_assignment("one"), course.autograde("one", "ada")):
        assert done["success"], done["log"]
    with course.gradebook as book:
        assert book.find_submission("one", "ada").score == 2
