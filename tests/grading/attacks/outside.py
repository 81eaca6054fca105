"""Attacks that were thought of by reading the grader alone, without a look at its tests.

Those that mark files for other boxes, or build a wrong answer so that a report tells of it, are in
`marks`; those that answer twice, in `twice`.
"""

from __future__ import annotations

from tests.grading.attacks import SPARSE, Attack, function

# Python's hash of a whole number is the number modulo this.
PRIME = 2**61 - 1

# What takes the grader itself a long time to compare, to hash or to look for mistakes in.
HEAVY = {
    "numbers of one hash in a list": f"[k * {PRIME} for k in range(15_000)]",
    "a hundred thousand numbers, in a thousand lists": "[[1.234567] * 99 for _ in range(1000)]",
    "twenty thousand numbers, a few lists deep": "[[[1.5] * 99] * 50 for _ in range(4)]",
    "a text of a million letters": "'x' * 1_000_000",
    "keys of one hash": f"{{k * {PRIME}: 1 for k in range(3000)}}",
    "numbers beyond every float": "[10**6000, -(10**400), 1.8e308, 5e-324]",
    "numbers of one hash in lists of one": f"[[k * {PRIME}] for k in range(10_000)]",
    "half a character in a list and in a key": "['\\ud800', '\\udfff', {'\\ud800': 1}]",
    "lists as deep as may be": "[[[[[[[[[[[[[[[[[[1.5]] * 3]]]]]]]]]]]]]]] * 9]",
    "a hundred thousand numbers in a list": "[1.5] * 100_000",
    "keys that are tuples of one hash": f"{{(k * {PRIME}, 1): 1 for k in range(3000)}}",
    "a set of one hash": f"{{k * {PRIME} for k in range(3000)}}",
}
# A place for each where a list, a seal, or a table of mistakes is compared with it.
NAMES = {
    "shift": "milliseconds = {0}\n\n\ndef token_sum(comm, x):\n    return None",
    "sent": "binds = {0}\n\n\ndef large_broadcast(comm, x):\n    return None",
    "fault": "fault_round = fault_src = {0}\nrepaired = None",
    "seconds": "seconds = two_nodes = three_nodes = sixteen_nodes = {0}",
    "cluster": "one_card_is_enough_for = {0}\ndesign = {0}",
    "uneven": "short_rank = batches_of_it = {0}\n\n\ndef epoch_of_all(comm, batches):\n    return None",
}

MEAN = "ring_mean(comm, x)"
ON_MEAN = {
    "an error that ends the author's loops": "raise StopIteration('done')",
    "an error that says proved": "raise ValueError('proved')",
    "the error of another rank, raised again": """
        try:
            comm.recv(torch.empty(3), 99)
        except Exception as error:
            error._number = 0
            raise error
    """,
    "a number for an error that is none": """
        error = IndexError("x")
        error._number = 10**6
        raise error
    """,
    "a plan of one's own for the collective of the library": """
        from dlsys.collectives import Plan

        rounds = [[(s, (s + 1) % comm.size, 0, 1, False) for s in range(comm.size)]]
        return comm.all_reduce(x, plan=Plan("all_reduce", "mine", comm.size, 1, rounds))
    """,
    "a function for what a collective does": """
        return comm._calls.ask(comm._number, "collective", "all_reduce", x, None, ring_mean, None, None)
    """,
    "bits told by who splits with whom": """
        total = x.clone()
        for other in range(comm.size):
            part = comm.split(int(x[0] if len(x) else 0) >> other & 1)
            total = total + part.size
        return total / comm.size
    """,
    "an order told by keys of a split": """
        part = comm.split(0, key=int(x[0]) if len(x) else 0)
        return x * part.rank / comm.size
    """,
    "shapes of messages of no bytes": """
        right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
        for value in x:
            sending = comm.isend(torch.empty(int(value) + 1, 0), right)
            try:
                comm.recv(torch.empty(1, 0), left)
            except Exception as error:
                return x + len(str(error))
            sending.wait()
        return x
    """,
    "tags that are numbers": """
        right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
        sending = [comm.isend(torch.empty(0), right, tag=int(value)) for value in x]
        for value in range(3):
            comm.recv(torch.empty(0), left, tag=value)
        return x
    """,
    "a tensor without numbers": "return torch.empty(x.shape, device='meta')",
    "arguments that were never changed": """
        from dlsys.grading.judging import calls

        calls.Calls._call = lambda *a: (x, {"1": x * 0, "comm": x, "ranks": 1, "length": 0, "seed": None})
        return x
    """,
    "an array made by the wire": """
        from dlsys.grading.judging import packing

        packing.Packer.pack = lambda self, value, depth=0: {"plain": ["floating", [6], [1.5, 2.5, 3.5, 4.5, 5.5, 6.5]]}
        return x
    """,
    "a plan made by the wire": """
        from dlsys.grading.judging import packing

        packing.Packer.pack = lambda self, value, depth=0: {"data": ["dlsys.collectives.plan.Plan", ["all_reduce", "x", 4, 4, [], 0, None]]}
        return x
    """,
}

DEEP = """
import os, struct, time

body = b'{"error": ' + b'[' * DEPTH + b']' * DEPTH + b'}'
os.write(3, struct.pack("!IQ", len(body), 0) + body)
os.kill(os.getpid(), 9)
"""

BANK = [
    *(
        Attack(
            name,
            "collectives",
            base=SPARSE,
            answers={on: NAMES[on].format(source)},
            earns={on: 0},
            shares="several that are heavy",
        )
        for number, (name, source) in enumerate(HEAVY.items())
        for on in [list(NAMES)[number % len(NAMES)]]
    ),
    *(
        Attack(
            name,
            "collectives",
            base=SPARSE,
            answers={"mean": function(body, MEAN)},
            earns={"mean": 0},
            shares="several on ranks",
        )
        for name, body in ON_MEAN.items()
    ),
    *(
        Attack(
            f"an error of {depth} lists said to the grader",
            base=SPARSE,
            answers={on: DEEP.replace("DEPTH", str(depth))},
            earns={on: 0},
            shares="several that break the kernel",
        )
        for on, depth in (("state", 900), ("peaks", 985), ("frozen", 100_000))
    ),
]
