"""Attacks on time, memory, processes, files, outputs and on the kernel itself."""

from __future__ import annotations

from tests.grading.attacks import Attack, in_answers, in_checks

SWALLOW = """
import signal

for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
while True:
    try:
        while True:
            pass
    except BaseException:
        pass
"""

GREED = "kept = []\nwhile True:\n    kept.append(b'x' * (32 << 20))"

FAMILY = """
import os, time

for _ in range(8):
    if os.fork() == 0:
        kept = b"x" * (400 << 20)
        time.sleep(600)
time.sleep(600)
"""

# Each flood ends where something stops it, so that what comes after it can be graded.
FLOOD = """
import os

def flood(folder):
    block, written = b"x" * (1 << 20), 0
    for k in range(100):
        try:
            with open(os.path.join(folder, f"flood{k}"), "wb", buffering=0) as file:
                while written < 8 << 30:
                    written += file.write(block)
        except OSError:
            if not written:
                return

for folder in (".", "/tmp", "/home", "/dev/shm", "/var/tmp", "/run", os.path.expanduser("~")):
    flood(folder)
"""

MEMFD = """
import os

block, files = b"x" * (32 << 20), []
while True:
    files.append(os.memfd_create("flood"))
    os.write(files[-1], block)
"""

# Memory of the kernel's that is no process's. It stops where it would be too much for the machine.
SOCKETS = """
import os, socket, time

for _ in range(110):
    if os.fork() == 0:
        kept = []
        while True:
            kept.append(socket.socketpair())
            if len(kept) < 16:
                kept[-1][0].setblocking(False)
                try:
                    while True:
                        kept[-1][0].send(bytes(1 << 16))
                except BlockingIOError:
                    pass
time.sleep(600)
"""

ENDLESS_ERROR = """
class Endless(Exception):
    def __str__(self):
        while True:
            pass
    __repr__ = __str__
    def _render_traceback_(self):
        while True:
            pass

raise Endless()
"""


ENDLESS_IN_AN_ANSWER = {
    "a loop in an answer": "while True:\n    pass",
    "a loop in C": "import itertools\nsum(itertools.count())",
    "a loop that swallows every signal": SWALLOW,
    "a loop in the repr of a result": "class R:\n    def __repr__(self):\n        while True:\n            pass\nR()",
    "an error whose text never ends": ENDLESS_ERROR,
    "a flood of stdout": "while True:\n    print('x' * 10_000)",
    "a flood of stderr": "import sys\nwhile True:\n    print('x' * 10_000, file=sys.stderr)",
    "a flood of displays": "from IPython.display import HTML, display\nwhile True:\n    display(HTML('x' * 10_000))",
    "a flood of the file behind stdout": "import os\nwhile True:\n    os.write(1, b'x' * 65_536)",
    "a flood of the file behind stderr": "import os\nwhile True:\n    os.write(2, b'x' * 65_536)",
    "memory in sockets": SOCKETS,
    "a kernel that stops itself": "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)",
    "a kernel without a stack": "import sys\nsys.setrecursionlimit(10**9)\ndef deeper(n):\n    return repr([deeper(n + 1)])\ndeeper(0)",
    "memory of many processes": FAMILY,
}

# As many threads as there may be but for one: the answer's own snapshot can be made and the next
# cannot, as if the next answer were to blame.
THREADS = """
import threading, time
threading.stack_size(1 << 16)
leave = threading.Event()
first = threading.Thread(target=leave.wait)
first.start()
try:
    while True:
        threading.Thread(target=time.sleep, args=(600,)).start()
except RuntimeError:
    leave.set()
    first.join()
"""

IN_AN_ANSWER = {
    "memory without end": GREED,
    "memory after raising its own limits": "import resource\nfor kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA):\n    try:\n        resource.setrlimit(kind, (-1, -1))\n    except (OSError, ValueError):\n        pass\n"
    + GREED,
    "memory in files without a name": MEMFD,
    "a fork bomb": "import os\nwhile True:\n    os.fork()",
    "a thread bomb": "import threading, time\nwhile True:\n    threading.Thread(target=time.sleep, args=(600,)).start()",
    "threads that leave little room": """
import threading

threading.stack_size(1 << 16)
left = []
try:
    while True:
        ends = threading.Event()
        threading.Thread(target=ends.wait).start()
        left.append(ends)
except RuntimeError:
    for ends in left[-6:]:
        ends.set()
""",
    "every disk full": FLOOD,
    "a file of a terabyte": "with open('huge', 'wb') as file:\n    file.truncate(1 << 40)\n    file.write(b'x')\n    file.seek(1 << 40)\n    file.write(b'x')",
    "an output of a gigabyte": "print('x' * (1 << 30))",
    "a kernel that exits": "import os\nos._exit(0)",
    "a kernel that aborts": "import os\nos.abort()",
    "a kernel that kills itself": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
    "a kernel that reads from nowhere": "import ctypes\nctypes.string_at(0)",
    "sys.exit": "import sys\nsys.exit(0)",
    "exit": "exit()",
    "a keyboard interrupt": "raise KeyboardInterrupt",
    "every file closed": "import os\nos.closerange(0, 1 << 16)",
    "input that nobody gives": "state = input('points? ')",
    "a syntax error": "def free_bytes(:",
    "a null byte": "def free_bytes():\0 pass",
    "a cell of five megabytes": "x = '" + "x" * 5_000_000 + "'",
    "a cell nested beyond the parser": "x = " + "(" * 50_000 + ")" * 50_000,
}

ENDLESS_IN_A_CHECK = {
    "a loop in a check": "while True:\n    pass",
    "a loop in a regular expression": "import re\nre.match(r'(a+)+$', 'a' * 60 + 'b')\nreturn 1",
    "a check that swallows every signal": SWALLOW,
    "a check that sleeps": "import time\ntime.sleep(600)",
    "a flood of stdout in a check": "while True:\n    print('x' * 10_000)",
    "a fork bomb in a check": "import os\nwhile True:\n    os.fork()",
    "recursion in a check": "return @name@(*arguments)",
    "a huge list from a check": "return list(range(10**7))",
    "a huge number from a check": "return 1 << (10**8)",
    "a number of a million digits from a check": "return 10**1_000_000",
    "a check whose child answers as well": "import os\nos.fork()\nreturn 1",
    "a check that closes every file": "import os\nos.closerange(0, 1 << 16)\nreturn 1",
    "a deep list from a check": "x = []\nfor _ in range(10**6):\n    x = [x]\nreturn x",
}

IN_A_CHECK = {
    "memory in a check": GREED,
    "a check that exits": "import os\nos._exit(0)",
    "a check that raises SystemExit": "raise SystemExit(0)",
    "a check that raises KeyboardInterrupt": "raise KeyboardInterrupt",
    "a check that kills whatever it may": "import os\nos.kill(-1, 9)",
    "a huge text from a check": "return 'x' * (500 << 20)",
    "a list that holds itself": "x = []\nx.append(x)\nreturn x",
    "a wide list that grows where it is opened": "x = [0]\nfor _ in range(64):\n    x = [x, x]\nreturn x",
    "a huge tensor from a check": "return torch.empty(1, device='meta').expand(1 << 40)",
    "a tensor that is one number many times": "return torch.zeros(1).expand(1 << 33)",
    "a tensor of no numbers and many rows": "return torch.empty(10**9, 0)",
    "an error of a gigabyte": "raise ValueError('x' * (1 << 29))",
}

# What happens in a cell of the student's own costs no point: the notebook goes on without it.
OWN_CELLS = {
    "a cell of one's own that never ends": "while True:\n    pass",
    "a cell of one's own that kills the kernel": "import os\nos.kill(os.getpid(), 9)",
    "a cell of one's own that takes all memory": GREED,
    "a cell of one's own that raises": "1 / 0",
    "a thread that exits the process": "import os, threading\nthreading.Timer(0.05, os._exit, (1,)).start()\nimport time\ntime.sleep(1)",
    "an exit that never ends": "import atexit, time\natexit.register(time.sleep, 600)\n"
    "class D:\n    def __del__(self):\n        time.sleep(600)\nheld_to_the_end = D()",
}

BANK = [
    *in_answers(ENDLESS_IN_AN_ANSWER, endless=True),
    *in_answers(IN_AN_ANSWER),
    *in_checks(ENDLESS_IN_A_CHECK, endless=True),
    *in_checks(IN_A_CHECK),
    *(
        Attack(name, cells={"imports": text}, endless="never ends" in name)
        for name, text in OWN_CELLS.items()
    ),
    Attack(
        "threads that leave room for the next question",
        answers={"peaks": THREADS},
        earns={"peaks": 0.0},
    ),
    Attack(
        "a kernel that dies in every answer",
        base="guessed",
        answers=dict.fromkeys(
            ("state", "free", "peaks", "alive", "layer", "fit", "cost", "frozen"),
            "import os\nos._exit(0)",
        ),
    ),
]
