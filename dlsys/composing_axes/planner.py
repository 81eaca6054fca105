"""The planner: every way to lay a training run over a cluster, priced, refused or ranked.

Plans are columns (`Runs`), so that a hundred thousand of them take a second.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import SupportsIndex

import numpy as np

from dlsys.annotated import checked
from dlsys.checks import at_least, count, flag, refuse_what, some, unknown
from dlsys.composing_axes.memory import held_bytes
from dlsys.composing_axes.runs import runs_of
from dlsys.composing_axes.search import Search
from dlsys.composing_axes.step_time import Machine, step_parts, total
from dlsys.transformer import TransformerSpec

SCHEDULES = {"1f1b": (1, 0), "interleaved": (2, 0), "zero-bubble": (1, 1)}
"""Chunks of a rank, and whether backward is split: two stages a rank, and ZB-H1."""

Degrees = tuple[int, int, int, int]
"""tp, cp, dp, pp."""
MOST = 2**20
"""Sequences of a batch at most."""


@checked
def plan(
    spec: TransformerSpec,
    machine: Machine,
    batch: SupportsIndex,
    *,
    flash: bool = True,
    zero: Sequence[int] = (0, 1, 3),
    schedules: Sequence[str] = ("1f1b", "interleaved"),
    recompute: Sequence[bool] = (False, True),
    reserve: float = 0.0,
) -> Search:
    """Price every way to train with `batch` sequences a step on all devices of a machine.

    Every degree of tensor, context, data, pipeline and expert parallelism whose product is the
    number of devices and that model and batch can be cut by, every micro-batch, schedule, ZeRO
    stage and recomputation. ZeRO-3 goes without a pipeline, which would gather for each
    micro-batch. `reserve`: bytes of a device that are kept free. Raises ValueError where nothing
    can be cut so.
    """
    size, batch = machine.cluster.size, count("batch", batch, most=MOST)
    at_least("reserve", reserve, 0)
    for name, choices in (("zero", zero), ("schedules", schedules), ("recompute", recompute)):
        some(name, choices)
    for again in recompute:
        flag("recompute", again)
    for kind in schedules:
        if kind not in SCHEDULES:
            raise ValueError(unknown("schedule", kind, SCHEDULES))
    for stage in zero:
        count("zero", stage, 0, 3)
    rows = list(_rows(spec, size, batch, tuple(zero), tuple(schedules), tuple(recompute)))
    if not rows:
        refuse_what("batch", f"{batch} sequences on {size} devices", "one that some layout divides")
    names = ("tp", "cp", "dp", "pp", "ep", "sequences", "zero", "recompute", "schedule")
    columns = dict(zip(names, np.array(rows, float).T, strict=True))
    number = columns.pop("schedule").astype(int)
    kinds = tuple(schedules)
    columns["chunks"], columns["split"] = np.array([SCHEDULES[k] for k in kinds], float)[number].T
    columns["micro_batches"] = batch / columns["dp"] / columns["sequences"]
    runs = runs_of(spec, **columns, flash=float(flash))
    parts, held = step_parts(runs, machine), held_bytes(runs, machine)
    memory = machine.cluster.device.memory - reserve
    told = tuple(kinds[n] for n in number)
    return Search(spec, machine, batch, runs, told, total(parts), parts, held, memory)


def _rows(
    spec: TransformerSpec,
    size: int,
    batch: int,
    zero: tuple[int, ...],
    schedules: tuple[str, ...],
    recompute: tuple[bool, ...],
) -> Iterator[tuple[float, ...]]:
    for tp, cp, dp, pp in degrees(spec, size, batch):
        experts = [e for e in divisors(dp * cp) if spec.moe and spec.moe.experts % e == 0] or [1]
        stages = [z for z in zero if z < 3 or pp == 1] if dp * cp > 1 else [0]
        for ep, s in itertools.product(experts, divisors(batch // dp)):
            m = batch // dp // s
            kinds = [k for k, kind in enumerate(schedules) if _runs(kind, spec, pp, m)]
            for z, r, k in itertools.product(stages, recompute, kinds if pp > 1 else [0]):
                if not (r and pp > 1 and SCHEDULES[schedules[k]][1]):  # a layer runs again at once
                    yield tp, cp, dp, pp, ep, s, z, r, k


def _runs(kind: str, spec: TransformerSpec, pp: int, m: int) -> bool:
    """Whether a schedule can be had."""
    return kind != "interleaved" or (spec.layers >= 2 * pp and m % pp == 0)


def degrees(spec: TransformerSpec, size: int, batch: int) -> Iterator[Degrees]:
    """Every tp, cp, dp, pp of this product that model and batch can be cut by."""
    for tp in divisors(size):
        alike = tp % spec.kv_heads == 0 or spec.kv_heads % tp == 0
        widths = {spec.ffn_hidden, (spec.moe.ffn_hidden if spec.moe else 0) or spec.ffn_hidden}
        if spec.heads % tp or any(width % tp for width in widths) or not alike:
            continue
        for cp, pp in itertools.product(divisors(size // tp), repeat=2):
            dp, left = divmod(size // tp, cp * pp)
            even = spec.sequence % (cp * tp) == 0 and (cp == 1 or spec.sequence % (2 * cp) == 0)
            if even and not left and pp <= spec.layers and batch % dp == 0:
                yield tp, cp, dp, pp


def divisors(number: int) -> list[int]:
    """All of them."""
    return [each for each in range(1, number + 1) if number % each == 0]
