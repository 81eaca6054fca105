"""Attacks that look for what no student may see, or put script where others read."""

from __future__ import annotations

from tests.grading.attacks import Attack, cell, function, probes

READ = """
found = []

def look(path):
    import os
    try:
        if os.path.isdir(path):
            found.extend(os.listdir(path))
        else:
            with open(path, "rb") as file:
                found.append(file.read(100_000))
    except OSError:
        pass

"""

# Each pattern is written so that it is not a match of itself.
SEARCH = """
import os, re

found = []
patterns = [re.compile(text) for text in [b"same[-]secret-of-the", @fragments@]]

def search(text, where):
    for pattern in patterns:
        if match := pattern.search(text):
            found.append((where, match[0]))

for name in filter(str.isdigit, os.listdir("/proc")):
    for part in ("environ", "cmdline"):
        try:
            with open(f"/proc/{name}/{part}", "rb") as file:
                search(file.read(), part)
        except OSError:
            pass
"""

MEMORY = (
    SEARCH
    + """
for name in {"self", "1", str(os.getppid())}:
    try:
        maps = open(f"/proc/{name}/maps").read().split("\\n")
        memory = open(f"/proc/{name}/mem", "rb", 0)
    except OSError:
        continue
    for line in maps:
        match = re.match(r"([0-9a-f]+)-([0-9a-f]+) rw", line)
        if match and "/" not in line:
            first, last = (int(part, 16) for part in match.groups())
            try:
                memory.seek(first)
                search(memory.read(min(last - first, 64 << 20)), name)
            except (OSError, ValueError, OverflowError):
                pass
"""
)

OBJECTS = (
    SEARCH
    + """
import gc

for thing in gc.get_objects():
    parts = thing.values() if type(thing) is dict else thing if type(thing) in (list, tuple) else ()
    for part in list(parts):
        if type(part) is str and len(part) < 100_000:
            search(part.encode(errors="replace"), "text")
    if type(thing).__name__ in ("Prepared", "Assignment", "Question", "Check"):
        found.append(type(thing).__name__)
"""
)

CONNECT = """
import socket

found = []

def reach(family, kind, address):
    end = socket.socket(family, kind)
    end.settimeout(1)
    try:
        end.connect(address)
        if kind == socket.SOCK_DGRAM:
            end.send(b"x")
        found.append(address)
    except OSError:
        pass
    finally:
        end.close()

"""

PROBES = {
    "the environment": "import os\nfound = [k for k, v in os.environ.items() if 'secret-of-the' in v or 'TOKEN' in k]",
    "environments and command lines of other processes": SEARCH,
    "memory of all processes within reach": MEMORY,
    "objects left by the grader": OBJECTS,
    "the home folder": READ
    + "import os\nlook('@home@/secret.txt')\nlook('@home@')\nlook('/root/.ssh')\nlook('/root/.bashrc')\nlook(os.path.expanduser('~/secret.txt'))",
    "the folders of other students": READ
    + "look('@submissions@')\nlook('@submissions@/neighbor/memory_wall.ipynb')",
    "the folder of grades": READ
    + "look('@out@')\nlook('@out@/grades.csv')\nlook('@out@/gradebook.db')",
    "the solutions": READ
    + "look('@root@/solutions')\nlook('@root@/solutions/memory_wall/memory_wall.ipynb')",
    "the solutions beside the package": READ
    + "import os, dlsys\nroot = os.path.dirname(os.path.dirname(dlsys.__file__))\nfor name in ('solutions', 'tests', '.git', 'exercises', '_build'):\n    look(os.path.join(root, name))",
    "paths with dots": READ
    + "import os\nfor name in ('solutions', 'tests'):\n    look('../' * 12 + '@root@'.lstrip('/') + '/' + name)\nlook('/proc/1/root@root@/solutions')\nlook('/proc/self/root@root@/solutions')\nlook('/proc/1/cwd/solutions')",
    "secrets of the machine": READ
    + "for path in ('/etc/shadow', '/etc/ssh', '/var/lib', '/var/log', '/root/.ssh', '/run/secrets', '/boot'):\n    look(path)",
    "files that were left open": "import os\nfound = []\nfor name in os.listdir('/proc/self/fd'):\n    try:\n        target = os.readlink(f'/proc/self/fd/{name}')\n    except OSError:\n        continue\n    if target.startswith('/') and not target.startswith(('/dev/', '/proc/')):\n        found.append(target)",
    "other processes": "import os\nfound = []\nfor name in filter(str.isdigit, os.listdir('/proc')):\n    try:\n        text = open(f'/proc/{name}/cmdline').read()\n    except OSError:\n        continue\n    if 'dlsys-grade' in text or 'pytest' in text:\n        found.append(text)",
    "the network": CONNECT
    + "for address in (('1.1.1.1', 53), ('8.8.8.8', 443), ('192.0.2.1', 80)):\n    reach(socket.AF_INET, socket.SOCK_STREAM, address)\n    reach(socket.AF_INET, socket.SOCK_DGRAM, address)\nreach(socket.AF_INET6, socket.SOCK_STREAM, ('2606:4700:4700::1111', 53))",
    "the loopback of the machine": CONNECT
    + "reach(socket.AF_INET, socket.SOCK_STREAM, ('127.0.0.1', @port@))\nreach(socket.AF_INET, socket.SOCK_STREAM, ('0.0.0.0', @port@))",
    "names of the network": "import socket\nfound = []\ntry:\n    found.append(socket.getaddrinfo('example.com', 80))\nexcept OSError:\n    pass",
    "abstract sockets of the machine": CONNECT
    + "reach(socket.AF_UNIX, socket.SOCK_STREAM, '\\0dlsys-attack-@port@')",
    "network interfaces": "import socket\nfound = [name for _, name in socket.if_nameindex() if name != 'lo']",
    "a note of another student": READ
    + "for folder in ('/tmp', '/dev/shm', '.', '/var/tmp'):\n    look(f'{folder}/note-of-a-neighbor')",
    "hidden tests in the history": "found = [text for text in In if 'HID' + 'DEN TESTS' in text or 'same' + '(' in text]",
    "the frames of the grader": "import sys\nfound, frame = [], sys._getframe()\nwhile frame is not None:\n    found += [name for name in ('assignment', 'prepared', 'checks', 'solution', 'expected') if name in frame.f_locals]\n    frame = frame.f_back",
}

NOTE = "for folder in ('/tmp', '/dev/shm', '.', '/var/tmp'):\n    try:\n        open(f'{folder}/note-of-a-neighbor', 'w').write('208e9')\n    except OSError:\n        pass"

SCRIPT = "<script>alert('attack')</script><img src=x onerror=alert('attack')>"
LINK = "[x](javascript:alert('attack')) </pre></code></td><svg/onload=alert('attack')>"

SCRIPTS = {
    "script in a value": {
        "state": f"state_bytes = '{SCRIPT}'\ndevices = ['{SCRIPT}']".replace("'attack'", "1")
    },
    "script in a key": {"frozen": f"predicted = {{'{SCRIPT}': 1}}".replace("'attack'", "1")},
    "script in an error": {"free": function(f'raise ValueError("{SCRIPT}")')},
    "script in the name of an error": {
        "free": function(f'raise type("{SCRIPT}", (Exception,), {{}})("{LINK}")')
    },
    "script in the name of a type": {"free": function(f'return type("{SCRIPT}", (), {{}})()')},
    "script in the source": {
        "free": f"# {SCRIPT}\n# {LINK}\n# </textarea></style><!-- -->\nfree_bytes = 1"
    },
    "script in an output": {
        "free": f'from IPython.display import HTML, Javascript, display\nprint("{SCRIPT}")\ndisplay(HTML("{SCRIPT}"), Javascript("alert(1)"))\nfree_bytes = 1'
    },
    "script in an answer cell's error": {"free": f'raise RuntimeError("{SCRIPT} {LINK}")'},
    "control characters in an error": {
        "free": function(
            "raise ValueError('\\x1b]0;attack\\x07\\x1b[2J\\x00\\x08 \\ud800 \\u202e')"
        )
    },
    "a formula in an error": {"free": function("raise ValueError('=cmd|attack!A0')")},
    "templates in an error": {
        "free": function("raise ValueError('{{ 7 * 7 }} {% raw %} %(x)s {0.__class__} [bold red]')")
    },
}

BANK = [
    Attack("a note for another student", cells={"imports": NOTE}),
    *probes(PROBES),
    *(
        Attack(name, answers=answers, earns=dict.fromkeys(answers, 0))
        for name, answers in SCRIPTS.items()
    ),
    Attack(
        "script in markdown of one's own",
        edit=lambda notebook: [
            one.update(source=f"{SCRIPT}\n\n{LINK}")
            for one in notebook["cells"]
            if one["cell_type"] == "markdown"
        ],
    ),
    Attack(
        "script in ids",
        edit=lambda notebook: cell(notebook, "free").update(id=SCRIPT, metadata={}),
    ),
]
