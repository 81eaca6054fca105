"""Attacks by answers that do one thing for one question of a check and another for the next.

They send all that there is when their result is looked at, and little when it is counted; their
values have methods of their own; they change what they are given.
"""

from __future__ import annotations

from textwrap import dedent, indent

from tests.grading.attacks import NAMES, SPARSE, Attack, function

# What was asked before, by the bytes of all arguments; a rank keeps it from one run to the next.
KEPT = """
kept = {}


def key_of(*values):
    return tuple(v.numpy().tobytes() if hasattr(v, "numpy") else v for v in values)


def addends(w, x, y):
    return torch.cat([2 * x.T @ (x @ w - y), torch.tensor([float(len(x))])])


def largest(due, k):
    places = due.abs().topk(k).indices
    rest = due.clone()
    rest[places] = 0.0
    return places, rest


"""


def once_for(asked: str, first: str, again: str = "pass") -> str:
    """A body that does `first`, and keeps what comes of it; `again` where it is asked the same."""
    first, again = (indent(dedent(part).strip(), "    ") for part in (first, again))
    return f"key = key_of({asked})\nif key in kept:\n{again}\nelse:\n{first}\nreturn kept[key]"


MEAN = "repaired(comm, w, x, y)"
RIGHT_NUMBERS = "too_large, row_weighs = 16, (1 / 3) / (1 / 8)\n\n\n"
# Each is right when it is asked first, and sends hardly anything when it is asked again.
MEANS = {
    "a mean that is sent fifty times and then kept": once_for(
        "w, x, y, comm.size",
        """
        every = [comm.all_reduce(addends(w, x, y)) for _ in range(50)]
        kept[key] = w - 0.0625 * every[0][:-1] / every[0][-1]
        """,
    ),
    "a mean of all rows and then the kept one": once_for(
        "w, x, y, comm.size",
        """
        every = comm.all_gather(torch.stack([addends(w, x, y)] * 9))
        total = every[::9].sum(0)
        kept[key] = w - 0.0625 * total[:-1] / total[-1]
        """,
    ),
    "a mean that is right in every other call": """
        kept["calls"] = kept.get("calls", 0) + 1
        if kept["calls"] > 1 and kept["last"] == key_of(x, y, comm.size):
            return w
        kept["last"] = key_of(x, y, comm.size)
        total = [comm.all_reduce(addends(w, x, y)) for _ in range(30)][0]
        return w - 0.0625 * total[:-1] / total[-1]
    """,
}

TOPK = "topk_mean(comm, gradient, residual, k)"
FEW_NUMBERS = "comm.all_gather(torch.zeros(k, 2))"
# How the largest of all ranks are added up.
ADDING = {
    "what is largest in whole vectors and then in few numbers": "total = comm.all_reduce(due - rest)",
    "what is largest in two messages and then in one": """
        at, much = comm.all_gather(places), comm.all_gather(due[places])
        total = torch.zeros_like(due).index_add_(0, at, much)
    """,
    "what is largest by way of rank 0 and then by nobody": """
        total = comm.reduce(due - rest, dst=0)
        total = comm.broadcast(total if comm.rank == 0 else torch.zeros_like(due), src=0)
    """,
}
TOPKS = {
    name: once_for(
        "gradient, residual, k, comm.size",
        "due = gradient + residual\nplaces, rest = largest(due, k)\n"
        + dedent(adding).strip()
        + "\nkept[key] = total / comm.size, rest",
        FEW_NUMBERS,
    )
    for name, adding in ADDING.items()
}

SENT = "large_broadcast(comm, x)"
BINDS = 'binds = ["NVLink", "an HDR card", "latency"]\n\n\n'
LITTLE = "comm.all_gather(comm.scatter(torch.zeros_like(x)))"
SENDS = {
    f"a broadcast by {how}, kept for when it is counted": once_for(
        "x, comm.size", f"kept[key] = {sending}", LITTLE
    )
    for how, sending in {
        "all vectors": "comm.all_gather(x)[: len(x)]",
        "a sum": "comm.all_reduce(x if comm.rank == 0 else 0 * x)",
        "a tree": "comm.broadcast(x.clone(), src=0)",
    }.items()
}

ROUNDS = "broadcast_rounds(ranks)"
STAR = "[[(0, dst, 0, 1)] for dst in range(1, ranks)]"
CHAIN = "[[(dst - 1, dst, 0, 1)] for dst in range(1, ranks)]"
FEW = "[[(0, 1, 0, 1)]] * (ranks - 1).bit_length()"
PLANS = {
    "rounds of a star, and few when they are counted": f"""
        kept[ranks] = kept.get(ranks, 0) + 1
        return {STAR} if kept[ranks] == 1 else {FEW}
    """,
    "rounds of a chain, and few when they are counted": f"""
        first = ranks not in kept
        kept[ranks] = 1
        return {CHAIN} if first else {FEW}
    """,
    "rounds that were given out and are few afterwards": f"""
        if ranks not in kept:
            kept[ranks] = {STAR}
            return kept[ranks]
        kept[ranks][:] = {FEW}
        return kept[ranks]
    """,
}

LIARS = """
import numpy


class Lying(numpy.ndarray):
    mean = std = item = lambda self, *a, **k: RIGHT
    tolist = lambda self: RIGHT
    __eq__ = __le__ = __ge__ = lambda self, other: True
    __array__ = lambda self, *a, **k: numpy.array(RIGHT)


class Agreeing(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return RIGHT


class Own:
    shape, size, dtype = (), 1, "float64"
    __len__ = lambda self: 2
    __iter__ = lambda self: iter([RIGHT, RIGHT])
    __int__ = __index__ = __float__ = __abs__ = lambda self, *a: RIGHT
    __array__ = lambda self, *a, **k: numpy.array(RIGHT)
    __getattr__ = lambda self, name: lambda *a, **k: RIGHT
    __reduce__ = lambda self: (int, (RIGHT,))


"""
RIGHT_BYTES = "848024576"
OBJECTS = {
    "an array whose mean lies": ("free", "numpy.zeros(3).view(Lying)"),
    "a number of an array that lies": ("layer", "numpy.zeros(()).view(Lying)"),
    "a list of arrays that lie": ("cost", "[numpy.zeros(3).view(Lying)] * 2"),
    "a tensor whose every function lies": ("layer", "torch.zeros(3).as_subclass(Agreeing)"),
    "a parameter that lies": (
        "free",
        "torch.nn.Parameter(torch.zeros(()).as_subclass(Agreeing))",
    ),
    "tensors that lie in a tuple": ("cost", "(torch.zeros(()).as_subclass(Agreeing),) * 2"),
    "an object with a size and a shape": ("free", "Own()"),
    "an object that is an array when asked": ("layer", "[Own()]"),
    "an object that is iterated over": ("cost", "Own()"),
    "a class in the place of a number": ("layer", "Own"),
    "a method of an object in the place of a number": ("layer", "Own().__len__"),
    "a dictionary with an object in it": ("layer", "{'value': Own()}"),
}

# Names that a cell binds and that checks use, as what has attributes.
MODULES = {
    "a name that is a module": (
        "state",
        "import types\nstate_bytes = devices = types.SimpleNamespace(mean=lambda: 208e9, item=lambda: 3)",
    ),
    "a name that is a class": (
        "peaks",
        "class predicted_peaks(dict):\n    keys = items = values = lambda *a: ['A', 'B']",
    ),
    "a name that is the library": ("frozen", "import torch as predicted"),
}

CHANGES = {
    "rows made nothing in place": (
        "mean",
        RIGHT_NUMBERS.replace("16", "1"),
        MEAN,
        "x.zero_()\ny.zero_()\nw.zero_()\nreturn w",
    ),
    "a gradient made nothing in place": (
        "topk",
        "",
        TOPK,
        "gradient.zero_()\nresidual.zero_()\nreturn gradient, residual",
    ),
    "samples, gradients and seconds made nothing in place": (
        "step",
        "",
        "step_gradients(comm, samples, room, gradients, seconds)",
        "samples[:] = [0] * len(samples)\nfor one in gradients:\n    for each in one:\n        each.zero_()\nseconds[:] = [0.0] * len(seconds)\nreturn gradients[0]",
    ),
    "sizes emptied in place": (
        "cut",
        "",
        "cut_buckets(sizes, first, limit)",
        "sizes.clear()\nreturn []",
    ),
}

# What the first run deserves: right values, and as much sent as was sent.
EARNED = {"mean": 4 * 7 / 10, "topk": 4 * 3 / 6, "sent": 2 * 6 / 8, "broadcast": 3 * 4 / 8}


def asked_twice(question: str, name: str, head: str, call: str, body: str) -> Attack:
    slug = "collectives" if question in ("sent", "broadcast") else "data_parallel"
    lines = function(body, call)
    return Attack(
        name,
        slug,
        base=SPARSE,
        answers={question: KEPT + head + lines},
        earns={question: EARNED[question]},
        shares="several that are asked twice",
    )


BANK = [
    *(asked_twice("mean", name, RIGHT_NUMBERS, MEAN, body) for name, body in MEANS.items()),
    *(asked_twice("topk", name, "", TOPK, body) for name, body in TOPKS.items()),
    *(asked_twice("sent", name, BINDS, SENT, body) for name, body in SENDS.items()),
    *(asked_twice("broadcast", name, "", ROUNDS, body) for name, body in PLANS.items()),
    *(
        Attack(
            name,
            base=SPARSE,
            answers={
                on: f"import torch\n{LIARS.replace('RIGHT', RIGHT_BYTES)}"
                + function(f"return {value}", f"{NAMES[on]}(*_)")
            },
            earns={on: 0},
            shares="several that lie",
        )
        for name, (on, value) in OBJECTS.items()
    ),
    *(
        Attack(name, base=SPARSE, answers={on: source}, earns={on: 0}, shares="several that lie")
        for name, (on, source) in MODULES.items()
    ),
    *(
        Attack(
            name,
            "data_parallel",
            base=SPARSE,
            answers={on: head + function(body, call)},
            earns={on: None if on == "cut" else 0},
            shares="several that are asked twice",
        )
        for name, (on, head, call, body) in CHANGES.items()
    ),
]
