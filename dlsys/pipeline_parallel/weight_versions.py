"""Pipelines that never wait: an update after every backward pass, and weights that miss some."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import SupportsIndex

from dlsys.annotated import checked
from dlsys.pipeline_parallel.plan import Plan
from dlsys.pipeline_parallel.schedules import one_f_one_b


def pipedream(p: SupportsIndex, m: SupportsIndex) -> Plan:
    """PipeDream (Narayanan et al. 2019): 1F1B over the m micro-batches of a whole run.

    No step ends in between: a rank updates its weights after every backward pass (`PipeDream` runs
    it so), and is idle only at both ends of the run, for (p-1)/(m+p-1) of it. The price is that
    its forward passes miss updates, see `staleness`. Raises ValueError for p or m below 1.
    """
    return dataclasses.replace(one_f_one_b(p, m), name="PipeDream")


@checked
def staleness(plan: Plan) -> tuple[tuple[int, ...], ...]:
    """For each stage and micro-batch k: of k updates before it, those that its forward pass misses.

    As if a rank updated a stage's weights whenever a backward pass has made their gradient. Under
    PipeDream stage s misses min(k, p-1-s), so that the last stage trains as one device would; under
    GPipe every pass has the weights of the beginning. Raises PlanError as `check` does.
    """
    plan.check()
    frees = "W" if plan.splits_backward else "B"
    missed = [[0] * plan.m for _ in range(plan.stages)]
    for order in plan.ranks:
        updates: Counter[int] = Counter()
        for kind, stage, k in order:
            if kind == "F":
                missed[stage][k] = k - updates[stage]
            updates[stage] += kind == frees
    return tuple(map(tuple, missed))
