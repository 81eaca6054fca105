"""Symbolic execution: who holds whose contributions to which chunk, after every round.

A chunk on a rank is an integer whose bit r says that rank r's contribution is in it. Adding two
chunks is `|`, and a contribution added twice shows as a common bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NoReturn

from dlsys.collectives.plan import REDUCING, Plan, PlanError, Transfer

Holdings = list[dict[int, int]]
"""For each rank: chunk -> bit mask of the contributions in it."""


def initial(plan: Plan) -> Holdings:
    """What every rank holds before the first round."""
    n, chunks = plan.ranks, plan.chunks
    if plan.kind in REDUCING:
        return [dict.fromkeys(range(chunks), 1 << r) for r in range(n)]
    if plan.kind in ("broadcast", "scatter"):
        everything = dict.fromkeys(range(chunks), 1 << plan.root)
        return [everything if r == plan.root else {} for r in range(n)]
    return [dict.fromkeys(plan.share(r), 1 << r) for r in range(n)]


def required(plan: Plan, rank: int) -> range:
    """The chunks that `rank` must hold after the last round."""
    n, chunks = plan.ranks, plan.chunks
    if plan.kind == "all_to_all":
        return range(rank, chunks, n)
    if plan.kind in ("scatter", "reduce_scatter"):
        return plan.share(rank)
    if plan.kind in ("reduce", "gather") and rank != plan.root:
        return range(0)
    return range(chunks)


def states(plan: Plan) -> Iterator[Holdings]:
    """The holdings before the first round and after each round (one object, updated in place).

    Raises PlanError at the first transfer that is impossible or adds a contribution twice.
    """
    held = initial(plan)
    yield held
    for index, transfers in enumerate(plan.rounds):
        for t in transfers:
            _check_transfer(plan, held, index, t)
        # All are read before any is written.
        payloads = [(t, [held[t.src][c] for c in range(t.first, t.stop)]) for t in transfers]
        written: set[tuple[int, int]] = set()
        for t, payload in payloads:
            mine = held[t.dst]
            for chunk, mask in enumerate(payload, t.first):
                if (t.dst, chunk) in written:
                    what = f"rank {t.dst} receives chunk {chunk} twice"
                    what += ": the result would depend on the order"
                    _fail(plan, index, t.dst, chunk, what)
                written.add((t.dst, chunk))
                if t.reduce and (twice := mine[chunk] & mask):
                    what = f"rank {t.dst} adds chunk {chunk} from rank {t.src}, and the "
                    what += f"contribution of {_names(twice)} is then summed twice"
                    _fail(plan, index, t.dst, chunk, what)
                mine[chunk] = mask | mine[chunk] if t.reduce else mask
        yield held


def check(plan: Plan) -> None:
    """Prove that the plan does what its kind promises: every contribution arrives exactly once.

    Takes time proportional to the chunks moved. Raises PlanError naming rank, round and chunk, all
    counted from 0: round k is `plan.rounds[k]`.
    """
    *_, held = states(plan)
    everyone, last = (1 << plan.ranks) - 1, len(plan.rounds) - 1 if plan.rounds else None
    for rank in range(plan.ranks):
        for chunk in required(plan, rank):
            if plan.kind in REDUCING:
                lacking = everyone & ~held[rank][chunk]
                what = f"lacks the contributions of {_names(lacking)} to"
            else:
                lacking, what = chunk not in held[rank], "lacks"
            if lacking:
                when = "without any round" if last is None else f"after round {last}"
                _fail(plan, last, rank, chunk, f"rank {rank} {what} chunk {chunk}", when)


def _check_transfer(plan: Plan, held: Holdings, index: int, t: Transfer) -> None:
    """Raise PlanError for a message that can be none, or whose sender does not hold it."""
    n, chunks = plan.ranks, plan.chunks
    for end in (t.src, t.dst):
        if not 0 <= end < n:
            what = f"{_named(t)} names rank {end}, but the ranks are 0 to {n - 1}"
            _fail(plan, index, end, t.first, what)
    if t.src == t.dst:
        _fail(plan, index, t.src, t.first, f"rank {t.src} sends chunk {t.first} to itself")
    if not 0 <= t.first < t.stop <= chunks:
        what = f"{_named(t)} has no chunks: 0 <= first < stop <= {chunks} must hold"
        _fail(plan, index, t.src, t.first, what)
    if t.reduce and plan.kind not in REDUCING:
        what = f"{_named(t)} adds, but nothing is summed in {plan.kind}"
        _fail(plan, index, t.dst, t.first, what)
    for chunk in range(t.first, t.stop):
        if chunk not in held[t.src]:
            what = f"rank {t.src} sends chunk {chunk} to rank {t.dst} but does not hold it"
            _fail(plan, index, t.src, chunk, what)


def _named(t: Transfer) -> str:
    return f"the transfer {t.src} -> {t.dst} of chunks [{t.first}, {t.stop})"


def _fail(
    plan: Plan, index: int | None, rank: int, chunk: int, what: str, when: str = ""
) -> NoReturn:
    when = when or f"round {index}"
    raise PlanError(f"{plan.kind} ({plan.algorithm}), {when}: {what}.", rank, index, chunk)


def _names(mask: int) -> str:
    ranks = [str(r) for r in range(mask.bit_length()) if mask >> r & 1]
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(ranks)}"
