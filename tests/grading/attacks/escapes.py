"""Attacks on the machine: files to write, processes to leave behind, ways out of the box.

`PWNED` is in the name of every file and process that one tries to make.
"""

from __future__ import annotations

from tests.grading.attacks import GUESSED, Attack, function, probes

WRITE = """
import os

found = []

def write(path):
    try:
        with open(path, "a") as file:
            file.write("PWNED")
        found.append(path)
    except OSError:
        pass

def touch(path):
    try:
        os.close(os.open(path, os.O_WRONLY))
        found.append(path)
    except OSError:
        pass

"""

SYSTEM = """
import ctypes, os

libc, found = ctypes.CDLL(None, use_errno=True), []

def attempt(name, *arguments):
    if getattr(libc, name)(*arguments) == 0:
        found.append(name)

"""

LEAVE = """
import contextlib, os

if os.fork() == 0:
    with contextlib.suppress(OSError):
        os.setsid()
    if os.fork() == 0:
        for number in range(64):
            try:
                os.close(number)
            except OSError:
                pass
        os.execv("/bin/sleep", ["sleep-PWNED", "600"])
    os._exit(0)
os.wait()
found = []
"""

BUSY = """
import contextlib, os, signal

if os.fork() == 0:
    with contextlib.suppress(OSError):
        os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    while True:
        if os.fork() != 0:
            os._exit(0)
found = []
"""

KILL = """
import os, signal

for process in (-1, 1, os.getppid(), 2, 3, 4):
    try:
        os.kill(process, signal.SIGKILL)
    except OSError:
        pass
"""

PROBES = {
    "grades written": WRITE
    + "for name in ('grades.csv', 'gradebook.db', 'PWNED', 'results/PWNED.json', 'feedback/PWNED.html'):\n    write('@out@/' + name)",
    "submissions written": WRITE
    + "write('@submissions@/PWNED')\nwrite('@submissions@/neighbor/PWNED')",
    "the home folder written": WRITE
    + "for name in ('.bashrc', '.profile', 'PWNED', '.ipython/profile_default/startup/PWNED.py', '.local/PWNED'):\n    write('@home@/' + name)",
    "the project written": WRITE
    + "write('@root@/PWNED')\nwrite('@root@/dlsys/PWNED.py')\nwrite('@root@/solutions/PWNED')\ntouch('@root@/dlsys/__init__.py')\ntouch('@root@/pyproject.toml')",
    "packages written": WRITE
    + "import site, sys, sysconfig\nfor folder in {*sys.path, *site.getsitepackages(), site.getusersitepackages(), sysconfig.get_path('stdlib')}:\n    if folder and not folder.startswith(('/tmp', os.path.expanduser('~'))):\n        for name in ('PWNED.pth', 'PWNED.py'):\n            write(os.path.join(folder, name))\nimport torch, dlsys\ntouch(torch.__file__)\ntouch(dlsys.__file__)",
    "the system written": WRITE
    + "for path in ('/etc/PWNED', '/usr/PWNED', '/usr/bin/PWNED', '/usr/local/bin/PWNED', '/lib/PWNED'):\n    write(path)\nfor path in ('/etc/passwd', '/usr/bin/env', '/bin/sh'):\n    touch(path)",
    "kernel files written": WRITE
    + "for path in ('/proc/sys/kernel/core_pattern', '/proc/sysrq-trigger', '/sys/kernel/uevent_helper', '/sys/fs/cgroup/cgroup.procs', '/proc/1/oom_score_adj', '/proc/sys/vm/drop_caches'):\n    touch(path)",
    "devices opened": "import os\nfound = []\nfor name in ('mem', 'kmem', 'sda', 'vda', 'nvme0n1', 'kmsg', 'port', 'kvm', 'fuse', 'loop0', 'loop-control'):\n    try:\n        os.close(os.open(f'/dev/{name}', os.O_RDONLY))\n        found.append(name)\n    except OSError:\n        pass",
    "a mount": SYSTEM
    + "attempt('mount', b'none', b'/tmp', b'tmpfs', 0, None)\nattempt('mount', b'/', b'/tmp', None, 4096, None)\nattempt('umount2', b'/tmp', 2)\nattempt('umount2', b'/proc', 2)\nattempt('pivot_root', b'.', b'.') if hasattr(libc, 'pivot_root') else None",
    "namespaces of one's own": SYSTEM
    + "for flag in (0x10000000, 0x20000, 0x10020000, 0x40000000, 0x50000000, 0x20000000, 0x2000000):\n    attempt('unshare', flag)",
    "the namespaces of the machine": SYSTEM
    + "for name in ('mnt', 'net', 'pid', 'user', 'ipc'):\n    try:\n        number = os.open(f'/proc/1/ns/{name}', os.O_RDONLY)\n        attempt('setns', number, 0)\n        os.close(number)\n    except OSError:\n        pass",
    "another user": SYSTEM
    + "attempt('setuid', 0)\nattempt('setgid', 0)\nattempt('setresuid', 0, 0, 0)\nattempt('setreuid', 0, 0)\nattempt('setgroups', 0, None)\nif os.getuid() == 0 and os.access('@root@/solutions', os.R_OK):\n    found.append('root')",
    "another root folder": SYSTEM + "attempt('chroot', b'/tmp')\nattempt('chroot', b'/')",
    "capabilities": "found = []\nfor line in open('/proc/self/status'):\n    name, _, value = line.partition(':')\n    if name in ('CapEff', 'CapPrm', 'CapInh', 'CapAmb') and int(value, 16):\n        found.append(line)\n    if name == 'NoNewPrivs' and value.strip() != '1':\n        found.append(line)",
    "programs that run as root": "import subprocess\nfound = []\nfor command in (['su', '-c', 'id'], ['sudo', '-n', 'id'], ['mount', '-t', 'tmpfs', 'x', '/tmp'], ['bwrap', '--bind', '/', '/', 'true'], ['unshare', '-r', 'true'], ['chroot', '/', 'true']):\n    try:\n        done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=2)\n        if done.returncode == 0 and (command[0] != 'unshare' or True):\n            found.append(command)\n    except (OSError, subprocess.SubprocessError):\n        pass",
    "another process traced": SYSTEM
    + "parent = os.getppid()\nfor process in {1, 2, parent} - {0, os.getpid()}:\n    attempt('ptrace', 16, process, 0, 0)\n    attempt('ptrace', 0x4206, process, 0, 0)\n    try:\n        os.close(os.open(f'/proc/{process}/mem', os.O_RDWR))\n        found.append(f'memory of {process}')\n    except OSError:\n        pass",
    "system calls of the kernel's edge": SYSTEM
    + "libc.syscall.restype = ctypes.c_long\nbuffer = ctypes.create_string_buffer(256)\nfor name, number, arguments in (('bpf', 321, (0, buffer, 48)), ('perf_event_open', 298, (buffer, 0, -1, -1, 0)), ('userfaultfd', 323, (0,)), ('io_uring_setup', 425, (8, buffer)), ('keyctl', 250, (0, -3, 1)), ('add_key', 248, (b'user', b'x', b'x', 1, -3)), ('kexec_load', 246, (0, 0, 0, 0)), ('init_module', 175, (buffer, 0, b'')), ('open_by_handle_at', 304, (-1, buffer, 0)), ('process_vm_writev', 311, (1, buffer, 1, buffer, 1, 0))):\n    if __import__('platform').machine() == 'x86_64' and libc.syscall(number, *arguments) >= 0:\n        found.append(name)",
    "a terminal typed into": "import fcntl, os, termios\nfound = []\nfor number in range(10):\n    try:\n        fcntl.ioctl(number, termios.TIOCSTI, b'x')\n        found.append(number)\n    except (OSError, ValueError):\n        pass\ntry:\n    os.close(os.open('/dev/tty', os.O_RDWR))\n    found.append('/dev/tty')\nexcept OSError:\n    pass",
    "links out of the working folder": WRITE
    + "for number, target in enumerate(('@out@', '@home@', '@root@/solutions', '/etc')):\n    try:\n        os.symlink(target, f'link{number}')\n        found += os.listdir(f'link{number}') if number < 3 else []\n        write(f'link{number}/PWNED')\n    except OSError:\n        pass",
    "priority": "import os\nfound = []\ntry:\n    os.nice(-5)\n    found.append('nice')\nexcept OSError:\n    pass\ntry:\n    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))\n    found.append('real time')\nexcept OSError:\n    pass",
    "a process that stays": LEAVE,
    "a process that always forks away": BUSY,
}

BANK = [
    *probes(PROBES),
    Attack("every process killed", answers={"free": KILL}, earns={"free": 0}),
    Attack(
        "every process killed from a check",
        answers={"free": function(KILL + "return 1")},
        earns={"free": 0},
    ),
    Attack(
        "every process killed again and again",
        base=GUESSED,
        answers=dict.fromkeys(("state", "free", "layer", "cost", "fit"), KILL),
    ),
    Attack(
        "a process that waits for the next question",
        answers={
            "free": "import os, time\nif os.fork() == 0:\n    time.sleep(0.3)\n    os.kill(-1, 9)\nfree_bytes = 1"
        },
        earns={"free": 0},
        spoils=True,
    ),
    Attack(
        "a startup file for the next notebook",
        cells={
            "imports": "import os\nfor folder in (get_ipython().ipython_dir or '.', '.', os.path.expanduser('~')):\n    for name in ('profile_default/startup/PWNED.py', 'sitecustomize.py', 'usercustomize.py', 'torch.py', 'dlsys.py'):\n        try:\n            path = os.path.join(folder, name)\n            os.makedirs(os.path.dirname(path), exist_ok=True)\n            open(path, 'w').write('raise SystemExit')\n        except OSError:\n            pass"
        },
    ),
]
