"""Attacks that note what a hidden check asked, for a cell that is run again, or another's box."""

from __future__ import annotations

from tests.grading.attacks import Attack, cell, function, probes, solved

# What a cell says that has found a note; no file of the grades may hold it. Written in two parts,
# as a report shows the source.
SEEN = '"found-what-" + "was-hidden"'

CALL = """
import ctypes, fcntl, mmap, os, socket, struct, sys, tempfile

libc = ctypes.CDLL(None, use_errno=True)
found = []


def works(what, number, *arguments):
    if libc.syscall(number, *arguments) >= 0:
        found.append(what)


def tried(what, act):
    try:
        act()
    except (OSError, ValueError, AttributeError):
        return
    found.append(what)


library = os.open(os.__file__, os.O_RDONLY)
page = ctypes.create_string_buffer(4096)
"""

# Each finds something where a file that all boxes read can be marked, or a mark on it be read.
PROBES = {
    "pages looked for with preadv2": "os.pread(library, 1, 0)\nworks('preadv2', 327, library, struct.pack('PP', ctypes.addressof(page), 1), 1, 0, 0, 8)",
    "pages dropped with fadvise": "tried('fadvise', lambda: os.posix_fadvise(library, 0, 0, os.POSIX_FADV_DONTNEED))",
    "pages fetched with readahead": "works('readahead', 187, library, ctypes.c_long(0), 4096)",
    "pages counted with mincore": """
seen = mmap.mmap(library, 4096, prot=mmap.PROT_READ)
from numpy import frombuffer, uint8
at = frombuffer(seen, uint8).ctypes.data
works('mincore', 27, ctypes.c_void_p(at), 4096, page)
""",
    "pages counted with cachestat": "works('cachestat', 451, library, struct.pack('QQ', 0, 4096), page, 0)",
    "a lock on a library": "tried('flock', lambda: fcntl.flock(library, fcntl.LOCK_SH | fcntl.LOCK_NB))",
    "a lock on a part of a library": "tried('lockf', lambda: fcntl.lockf(library, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, 5))",
    "a lock of an open file": "tried('ofd', lambda: fcntl.fcntl(library, 37, struct.pack('hhqqi', 0, 0, 5, 1, 0)))",
    "a lease on a library": "tried('lease', lambda: fcntl.fcntl(library, 1024, 0))",
    "a library that is watched": "works('inotify', 294, 0)",
    "a folder that tells of changes": "tried('dnotify', lambda: fcntl.fcntl(os.open('/usr', os.O_RDONLY), 1026, 1))",
    "the time at which a device was touched": "for name in ('null', 'zero', 'full', 'random', 'urandom'):\n    tried(name, lambda: os.utime(f'/dev/{name}'))",
    "the time at which standard output was touched": "tried('times', lambda: os.utime(1))",
    "flags of files that are open in all boxes": """
if any(fcntl.fcntl(number, fcntl.F_GETFL) & os.O_APPEND for number in range(3)):
    found.append("flags of another")
for number in range(3):
    fcntl.fcntl(number, fcntl.F_SETFL, fcntl.fcntl(number, fcntl.F_GETFL) | os.O_APPEND)
""",
    "signals of files that are open in all boxes": """
if any(fcntl.fcntl(number, 11) for number in range(3)):
    found.append("a signal of another")
for number in range(3):
    fcntl.fcntl(number, 10, 40)
""",
    "rights and names of devices": "tried('chmod', lambda: os.chmod('/dev/null', 0o644))\ntried('xattr', lambda: os.setxattr('/dev/null', 'user.note', b'x'))\ntried('rename', lambda: os.rename('/dev/null', '/dev/none'))",
    "hints of a file's life": "tried('hint', lambda: fcntl.fcntl(library, 1036, struct.pack('Q', 4)))",
    "queues, segments and semaphores": "works('shmget', 29, 1234, 4096, 0o1600)\nworks('msgget', 68, 1234, 0o1600)\nworks('semget', 64, 1234, 1, 0o1600)\nworks('mq_open', 240, b'note', os.O_CREAT | os.O_RDWR, 0o600, None)",
    "keys of the kernel": "works('add_key', 248, b'user', b'note', b'208', 3, -3)",
    "files in memory": "works('memfd', 319, b'note', 0)",
    "a socket of another box": "import glob\nfound += [one for one in glob.glob('/tmp/*note*') + glob.glob('/dev/shm/*note*')]",
}
FOR_ALL = {name: CALL + source for name, source in PROBES.items()}

# A function that notes the arguments of what was not shown, and breaks the box: it is run again.
NOTING = """
import fcntl, os

SHOWN = ((1_557_611_200, 24), (7_000_000_000, 80))


def note(value):
    {note}


def free_bytes(parameters, memory_gib):
    if (parameters, memory_gib) in SHOWN:
        return memory_gib * 2**30 - 16 * parameters
    note(memory_gib)
    os.kill(-1, 9)
"""
NOTES = {
    "a hidden instance in the flags of standard input": (
        "fcntl.fcntl(0, fcntl.F_SETFL, fcntl.fcntl(0, fcntl.F_GETFL) | os.O_APPEND)",
        "fcntl.fcntl(0, fcntl.F_GETFL) & os.O_APPEND",
    ),
    "a hidden instance in the signal of standard error": (
        "fcntl.fcntl(2, 10, 30 + value % 30)",
        "fcntl.fcntl(2, 11)",
    ),
    "a hidden instance in the time of a device": (
        "os.utime('/dev/full')",
        "time.time() - os.stat('/dev/full').st_mtime < 20",
    ),
}

# Another answer, which is right, and ends with an error where it finds the note.
RIGHT = "".join(cell(solved("memory_wall"), "peaks")["source"])
LOOKING = """
import fcntl, os, time

{right}
if {look}:
    raise RuntimeError(@seen@ + str({look}))
"""

# What a wrong answer is made of tells what was asked, where a report says how it is built.
BUILT = {
    "a hidden instance in the number of digits": "return float(f'{right:.{2 + memory_gib % 9}e}')",
    "a hidden instance in the length of a list": "return [right] * memory_gib",
    "a hidden instance in the depth of a list": "for _ in range(memory_gib % 15):\n    right = [right]\nreturn right",
    "a hidden instance in the sign or the unit": "return right * 1000 if memory_gib % 2 else -right",
    "a hidden instance in the text of an error": "raise ValueError(@seen@ + str(memory_gib))",
    "a hidden instance in the name of a type": "return type('found_what_was_hidden', (), {})()",
}
SHOWN = """
right = memory_gib * 2**30 - 16 * parameters
if (parameters, memory_gib) in ((1_557_611_200, 24), (7_000_000_000, 80)):
    return 1
"""

BANK = [
    *probes(FOR_ALL),
    *(
        Attack(
            name,
            answers={
                "free": NOTING.replace("{note}", note),
                "peaks": LOOKING.replace("{right}", RIGHT)
                .replace("{look}", look)
                .replace("@seen@", SEEN),
            },
            earns={"free": 0},
        )
        for name, (note, look) in NOTES.items()
    ),
    *(
        Attack(
            name,
            answers={"free": function(SHOWN + body.replace("@seen@", SEEN))},
            earns={"free": 0},
        )
        for name, body in BUILT.items()
    ),
]
