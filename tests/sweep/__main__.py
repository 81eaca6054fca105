"""Call whatever is public with one argument of another kind, and count what comes of it.

    python -m tests.sweep [--calls 50000] [--seed 0] [--show 10]

Exits with 1 where a call hangs, kills its process or takes a value for another one than it is equal
to, or where fewer than 98 of 100 refusals name the parameter.
"""

from __future__ import annotations

import argparse
import collections
import os
import random
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.public_api import Public, public, reason
from tests.sweep.calling import admits, hints_of
from tests.sweep.ending import ENDINGS, HUNG, KILLED, REFUSED, RIGHT, TAKEN, UNNAMED, WRONG, Ending
from tests.sweep.values import CALLABLE, KINDS
from tests.sweep.workers import Call, made

NAMED = 0.98  # of the refusals, those that name the parameter


def drawn(number: int, seed: int) -> list[Call]:
    """So many of all calls, each at most once, in the order of their names."""
    called = [each for each in public() if reason(each.name) is None]
    every = [call for each in called for call in calls_of(each)]
    return sorted(random.Random(seed).sample(every, min(number, len(every))))


def calls_of(each: Public) -> Iterator[Call]:
    """Each parameter with each kind of value; what a function of one's own does is one's own."""
    hints = hints_of(each)
    for name in each.parameters:
        yield from (
            Call(each.name, name, kind)
            for kind in KINDS
            if kind not in CALLABLE or not admits(hints.get(name, Any), abs)
        )


def faults(counted: Mapping[str, int]) -> list[str]:
    """What of these endings is not allowed, a line each."""
    found = [f"{counted[kind]} {kind}" for kind in (WRONG, HUNG, KILLED) if counted[kind]]
    refused = counted[REFUSED] + counted[UNNAMED]
    if counted[REFUSED] < NAMED * refused:
        found.append(f"only {counted[REFUSED]} of {refused} refusals name the parameter")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the calls, print how they ended, and return the status to exit with."""
    parser = argparse.ArgumentParser("python -m tests.sweep", description=__doc__.split("\n")[0])
    parser.add_argument("--calls", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", type=int, default=10, help="calls shown of each bad ending")
    parser.add_argument("--only", default="", help="names that a call has to begin with")
    chosen = parser.parse_args(arguments)
    calls = [c for c in drawn(chosen.calls, chosen.seed) if c.function.startswith(chosen.only)]
    found: dict[str, list[tuple[Call, Ending]]] = collections.defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        for call, end in made(calls, Path(folder), os.cpu_count() or 1):
            found[end.kind].append((call, end))
    for kind in ENDINGS:
        print(f"{len(found[kind]):8,}  {kind}")
    for kind in ENDINGS:
        shown = [] if kind in (REFUSED, RIGHT, TAKEN) else sorted(found[kind])[: chosen.show]
        for call, end in shown:
            words = " ".join(end.words.split())
            print(f"{kind}: {call.function}({call.name}=<{call.kind}>) {words:.200}")
    wrong = faults({kind: len(found[kind]) for kind in ENDINGS})
    print(*wrong, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
