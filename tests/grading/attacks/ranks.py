"""Attacks of rank programs on the network that counts what they cost, and on each other."""

from __future__ import annotations

from tests.grading.attacks import SOLVED, SPARSE, Attack, function

MEAN, SHIFT = "ring_mean(comm, x)", "token_sum(comm, x)"

# A ring that is right, in which the ranks take turns: twice as slow as it could be.
SLOW = """
right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
chunks = list(x.clone().tensor_split(comm.size))
for step in range(2 * (comm.size - 1)):
    out = (comm.rank - step) % comm.size
    into = (out - 1) % comm.size
    incoming = torch.empty_like(chunks[into])
    if comm.rank % 2:
        comm.recv(incoming, left)
        comm.send(chunks[out], right)
    else:
        comm.send(chunks[out], right)
        comm.recv(incoming, left)
    if step < comm.size - 1:
        incoming += chunks[into]
    chunks[into] = incoming
"""
FASTER = {
    "seconds given back": "comm.compute(-1.8e-6)",
    "seconds that are no number": "comm.compute(float('nan'))",
    "a clock set back": "comm._calls.ask(comm._number, '__setattr__', 'seconds', 1.8e-6)",
    "seconds claimed": "type(comm).seconds = property(lambda self: 3.6e-6)\ncomm.__dict__['_seconds'] = 0",
}

BY_FILES = """
import os, time

if comm.size == 1:
    return x.clone()
folder = "/tmp/meeting" + "-".join(map(str, (comm.size, len(x))))
os.makedirs(folder, exist_ok=True)
torch.save(x, f"{folder}/{comm.rank}-part")
os.rename(f"{folder}/{comm.rank}-part", f"{folder}/{comm.rank}")
deadline = time.monotonic() + 0.5
while len([n for n in os.listdir(folder) if n.isdigit()]) < comm.size and time.monotonic() < deadline:
    time.sleep(0.005)
return sum(torch.load(f"{folder}/{rank}") for rank in range(comm.size)) / comm.size
"""

BY_GLOBALS = """
together = globals().setdefault("together", {})
together[comm.rank] = x.clone()
comm.barrier()
return sum(together.values()) / comm.size
"""

BY_OBJECTS = """
import gc

comm.barrier()
others = [t for t in gc.get_objects() if type(t) is torch.Tensor and t.shape == x.shape]
return sum(others[: comm.size]) / comm.size
"""

# What each rank should have follows from its own vector where they are consecutive numbers.
GUESS = "return x - comm.rank + (comm.size - 1) / 2"
JUNK = """
right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
for step in range(2 * (comm.size - 1)):
    chunks = x.tensor_split(comm.size)
    incoming = torch.empty_like(chunks[(comm.rank - step - 1) % comm.size])
    sending = comm.isend({sent}, right)
    comm.recv({received}, left)
    sending.wait()
"""
MINE, NOTHING = "chunks[(comm.rank - step) % comm.size]", "torch.empty(0)"

# Tries what the numbers of other ranks may be made from on those of this one.
SEEDS = """
import random


def numbers(seed, rank):
    chance = random.Random(f"{seed}/{rank}")
    return torch.tensor([float(chance.randrange(1000)) for _ in x])


for seed in range(2000):
    if torch.equal(numbers(seed, comm.rank), x):
        return sum(numbers(seed, rank) for rank in range(comm.size)) / comm.size
"""

HALF = """
right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
total, passing = x.clone(), x.half()
for _ in range(comm.size - 1):
    incoming = torch.empty_like(passing)
    sending = comm.isend(passing, right)
    comm.recv(incoming, left)
    sending.wait()
    total, passing = total + incoming, incoming
return total / comm.size
"""

LIAR = """
class Small(torch.Tensor):
    nbytes = property(lambda self: 12)
    numel = nelement = lambda self: 3
    element_size = lambda self: 4

right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
total, passing = x.clone(), x.clone()
for _ in range(comm.size - 1):
    incoming = torch.empty_like(x)
    sending = comm.isend(passing.as_subclass(Small), right)
    comm.recv(incoming, left)
    sending.wait()
    total, passing = total + incoming, incoming
return total / comm.size
"""

UNCOUNTED = """
from dlsys.world import traffic

traffic.Traffic.sent = property(lambda self: [48] * 4)
traffic.Traffic.calls = property(lambda self: [], lambda self, value: None)
comm.traffic_calls = []
return comm.all_reduce(x, op="mean")
"""

# Rows are parts of one tensor, so that those of the other ranks stood beside them in memory.
BESIDE = """
memory = torch.as_strided(x, (x.untyped_storage().nbytes() // (4 * 23), 23), (23, 1), 0)
targets = torch.as_strided(y, (len(memory),), (1,), 0)
return w - 0.0625 * 2 / len(memory) * memory.T @ (memory @ w - targets)
"""

# What is not sent, and told all the same: by the sizes of groups, by an exception's words.
BY_GROUPS = """
def whispered(x):
    total = torch.zeros_like(x)
    for bit in range(16):
        each = x.round().long() >> bit & 1
        sizes = [comm.split(int(one)).size for one in each]
        ones = [size if one else comm.size - size for size, one in zip(sizes, each)]
        total += torch.tensor(ones) * (-(2**15) if bit == 15 else 2**bit)
    return total

error = x @ w - y
total = whispered(torch.cat([2 * x.T @ error, torch.tensor([float(len(x))])]))
return w - 0.0625 * total[:-1] / total[-1]
"""
BY_WORDS = """
import re

error, far, none = x @ w - y, 2**19, torch.empty(0)
mine = torch.cat([2 * x.T @ error, torch.tensor([float(len(x))])])
total = torch.zeros(24)
for src in range(comm.size):
    for at in range(0, 24, 3):
        if comm.rank == src:
            handle = comm.all_reduce(
                torch.empty([0] + [int(v) + far for v in mine[at : at + 3]]), async_op=True)
            for dst in range(comm.size):
                if dst != src:
                    comm.send(none, dst)
            handle.wait()
            total[at : at + 3] += mine[at : at + 3]
            continue
        comm.recv(none.clone(), src)
        try:
            comm.all_reduce(torch.empty(1))
        except Exception as error:
            said = re.search(r"0\\D+(\\d{6})\\D+(\\d{6})\\D+(\\d{6})", str(error).replace(",", ""))
        shape = [int(v) for v in said.groups()]
        comm.all_reduce(torch.empty([0, *shape]))
        total[at : at + 3] += torch.tensor([float(v - far) for v in shape])
return w - 0.0625 * total[:-1] / total[-1]
"""

SPLIT = 'return comm.split(0, axis="hidden").all_reduce(x, op="mean")'

ASKS = """
calls = comm._calls
words = ("__class__", "__dict__", "__init__", "__reduce__", "__getattribute__", "traffic",
         "_group", "_me", "seconds", "eval", "__import__", "barrier", "close", "")
for number in range(-1, 8):
    for word in words:
        for arguments in ((), ("seconds",), ("traffic",)):
            try:
                found = calls.ask(number, word, *arguments)
                if type(found).__name__ in ("Traffic", "type", "dict", "module"):
                    return found
            except Exception:
                pass
return x
"""

OTHERS = """
right = (comm.rank + 1) % comm.size
for number in range(8):
    for method in ("isend", "irecv", "collective"):
        try:
            comm._calls.ask(number, method, x, right, 0)
        except Exception:
            pass
return x
"""

# What only a limit on time ends, and what is tried beside right answers to every question.
ENDLESS = {
    "a rank that never ends",
    "a rank that sends for ever",
    "a rank that splits for ever",
    "a million rounds",
    "a round of a million transfers",
}
BESIDE_ALL = {"a rank that exits", "rounds without end"}

BREAK = {"a rank that sends a gigabyte"}  # the box that it is in

# Attacks on question 3, of which none may have full points; None: some of them it may have.
ON_MEAN: dict[str, tuple[str, float | None]] = {
    **{
        f"slow, with {name}": (f"{SLOW}{text}\nreturn torch.cat(chunks) / comm.size", None)
        for name, text in FASTER.items()
    },
    "a mean that is guessed": (GUESS, 0),
    "a mean that is guessed beside messages of nothing": (
        JUNK.format(sent=NOTHING, received=NOTHING) + GUESS,
        0,
    ),
    "a mean that is guessed beside messages of the right size": (
        JUNK.format(sent=MINE, received="incoming") + GUESS,
        0,
    ),
    "a mean of numbers whose seed is looked for": (
        SEEDS + JUNK.format(sent=MINE, received="incoming") + GUESS,
        0,
    ),
    "the collective of the library": ('return comm.all_reduce(x, op="mean")', 0),
    "ranks that meet in files": (BY_FILES, None),
    "ranks that meet in globals": (BY_GLOBALS, None),
    "ranks that meet among all objects": (BY_OBJECTS, None),
    "numbers of half the bytes": (HALF, None),
    "tensors that lie about their size": (LIAR, None),
    "a collective that is not counted": (UNCOUNTED, None),
    "a collective of a part of the world": (SPLIT, None),
    "a communicator asked for anything": (ASKS, None),
    "communicators of other ranks": (OTHERS, None),
    "a rank that never ends": ("while True:\n    pass", 0),
    "a rank that exits": ("import os\nos._exit(0)", 0),
    "one rank that exits": (
        "import os\nif comm.rank == 1:\n    os._exit(0)\ncomm.barrier()\nreturn x",
        None,
    ),
    "a rank that sends for ever": (
        "while True:\n    comm.isend(x, (comm.rank + 1) % comm.size)",
        0,
    ),
    "a rank that splits for ever": ("while True:\n    comm = comm.split(0)", 0),
    "a rank that sends a gigabyte": ("comm.all_reduce(torch.zeros(1 << 28))\nreturn x", 0),
    "a rank that sends what has no bytes": (
        "comm.all_reduce(torch.empty(1 << 50, device='meta'))\nreturn x",
        None,
    ),
    "a rank that sends to nobody": ("comm.send(x, 99)\nreturn x", 0),
    "a rank that sends to itself": ("comm.send(x, comm.rank)\nreturn x", 0),
    "a rank that sends no tensor": ("comm.send('x', 0)\nreturn x", 0),
    "a rank that forks a child to talk": ("import os\nos.fork()\ncomm.barrier()\nreturn x", None),
    "a rank with a world in it": (
        "from dlsys import world\nreturn world.simulate(lambda c: c.all_reduce(x), 4).results[0]",
        0,
    ),
    "a rank that returns its communicator": ("return comm", 0),
}

ROUNDS = "broadcast_rounds(ranks)"
REMOTE = """
class Rounds:
    def __len__(self):
        return 3 if {ranks} == 6 else 5
    def __iter__(self):
        while True:
            yield [(0, 1, 0, 1)]
    def __getitem__(self, k):
        return [(0, 1, 0, 1)]

"""
ON_BROADCAST = {
    "rounds without end": "while True:\n    yield [(0, 1, 0, 1)]",
    "rounds that lie about their length": REMOTE.format(ranks="ranks") + "return Rounds()",
    "a million rounds": "return [[(0, 1, 0, 1)]] * 1_000_000",
    "a round of a million transfers": "return [[(0, 1, 0, 1)] * 1_000_000]",
    "transfers of a billion chunks": "return [[(0, 1, 0, 10**9)]] * 3",
    "rounds of no numbers": "return torch.empty(10**9, 0)",
}

# The list alone is right: 2 of 8 checks.
WAITS = "milliseconds = [0, 5, 3, 5, 5, 6, 5]\n\n"
LEFT = "return torch.full_like(x, (comm.rank - 1) % comm.size)"
SEND = """
right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
sending = comm.isend(torch.zeros_like(x), right)
comm.recv(torch.empty_like(x), left)
sending.wait()
"""
ON_SHIFT = {
    "a neighbor's number guessed": (LEFT, 3 * 2 / 8),
    "a neighbor's number guessed beside a message of zeros": (SEND + LEFT, 3 * 2 / 8),
}

# Messages that leave together, with rounds for nobody to make up their number: two that are shown
# to be plans, the number of rounds and that one rank needs none, and a hidden one that is a plan.
PADDED = """
if ranks == 1:
    return []
return [[(0, dst, 0, 1) for dst in range(1, ranks)], *[[]] * ((ranks - 1).bit_length() - 1)]
"""

SHIFTY = """
class Design(dict):
    asked = 0
    def __getitem__(self, key):
        Design.asked += 1
        return {"cards": 4 if Design.asked % 3 == 0 else 8, "algorithm": "tree"}[key]

one_card_is_enough_for = "?"
design = Design()
"""


def leak_into(name: str, source: str) -> Attack:
    """A patch of what the referee uses, beside right answers: it may change nothing for others."""
    return Attack(name, slug="collectives", cells={"imports": source})


BANK = [
    *(
        Attack(
            name,
            "collectives",
            base=SOLVED if name in BESIDE_ALL else SPARSE,
            answers={"mean": function(body, MEAN)},
            earns={"mean": earns},
            shares="" if name in BESIDE_ALL | BREAK else "several on ranks",
            endless=name in ENDLESS,
        )
        for name, (body, earns) in ON_MEAN.items()
    ),
    *(
        Attack(
            name,
            "collectives",
            base=SOLVED if name in BESIDE_ALL else SPARSE,
            answers={"broadcast": function(body, ROUNDS)},
            earns={"broadcast": None},
            shares="" if name in BESIDE_ALL | BREAK else "several on ranks",
            endless=name in ENDLESS,
        )
        for name, body in ON_BROADCAST.items()
    ),
    *(
        Attack(
            name,
            "collectives",
            base=SPARSE,
            shares="several on ranks",
            answers={"shift": WAITS + function(body, SHIFT)},
            earns={"shift": earns},
        )
        for name, (body, earns) in ON_SHIFT.items()
    ),
    Attack(
        "rounds for nobody",
        "collectives",
        answers={"broadcast": function(PADDED, ROUNDS)},
        earns={"broadcast": 3 * 5 / 8},
    ),
    Attack(
        "ranks that share a list",
        "collectives",
        answers={
            "shift": WAITS
            + "kept = {}\n\n"
            + function(
                "kept[comm.rank] = x\ncomm.barrier()\nreturn kept.get((comm.rank - 1) % comm.size, x)",
                SHIFT,
            )
        },
        earns={"shift": None},
    ),
    Attack(
        "a design that changes when it is asked",
        "collectives",
        answers={"cluster": SHIFTY},
        earns={"cluster": None},
    ),
    Attack(
        "rows of other ranks that lie beside one's own",
        "data_parallel",
        base=SPARSE,
        answers={
            "mean": "too_large = row_weighs = 0\n\n" + function(BESIDE, "repaired(comm, w, x, y)")
        },
        earns={"mean": 0},
    ),
    *(
        Attack(
            name,
            "data_parallel",
            base=SPARSE,
            answers={
                "mean": "too_large = row_weighs = 0\n\n" + function(body, "repaired(comm, w, x, y)")
            },
            earns={"mean": 0},
        )
        for name, body in (
            ("sums told by the sizes of groups", BY_GROUPS),
            ("numbers told by the words of an exception", BY_WORDS),
        )
    ),
    leak_into(
        "a world of one's own beside right answers",
        "from dlsys import world\nworld.simulate = None",
    ),
]
