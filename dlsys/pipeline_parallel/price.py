"""What a pipeline schedule costs: seconds, idle ranks and messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from math import floor
from operator import add
from typing import SupportsIndex

from dlsys.annotated import checked
from dlsys.checks import at_least, count, positive
from dlsys.pipeline_parallel.plan import Plan, sizes
from dlsys.streams import Span

Seconds = float | Sequence[float]
"""Seconds of a rank's share of the model, or of each stage."""


@dataclass(frozen=True)
class Price:
    """What the simulation of a plan found.

    - makespan: seconds from the first action's start until every rank has ended its step.
    - spans: for each rank when its actions ran.
    - peak_in_flight: for each rank the most (stage, micro-batch) pairs it held.
    - update: for each rank the seconds of its work after its last action.
    """

    makespan: float
    spans: tuple[tuple[Span, ...], ...] = field(repr=False)
    peak_in_flight: tuple[int, ...]
    update: tuple[float, ...] = field(repr=False)

    @cached_property
    def busy(self) -> tuple[float, ...]:
        """For each rank the seconds in which it worked; messages that kept it are no work."""
        return tuple(acted + after for acted, after in zip(self._acted, self.update, strict=True))

    @cached_property
    def idle(self) -> tuple[float, ...]:
        """For each rank the seconds of the makespan in which it did not work."""
        return tuple(self.makespan - busy for busy in self.busy)

    @property
    def bubble_fraction(self) -> float:
        """Idle time as a share of all the time there is, p * makespan."""
        return sum(self.idle) / (len(self.spans) * self.makespan)

    @property
    def bubble_of_ideal(self) -> float:
        """Idle time as a share of the time worked: the makespan is (1 + this) times the ideal."""
        return sum(self.idle) / sum(self.busy)

    @property
    def bubble_of_span(self) -> float:
        """The bubble as Qi et al. (2023, arXiv 2401.10241) count it: 1 - work / longest span.

        A rank's span runs from its first action's start to its last one's end, so waiting for the
        first micro-batch or after the last is no bubble; work is the mean of the ranks' seconds in
        actions, and `update` is left out. Their T_comm is `transfer`. So read, their times give the
        bubbles that they print for 1F1B, ZB-H1 and ZB-H2; for interleaved 1F1B see `price`.
        """
        longest = max(spans[-1].end - spans[0].start for spans in self.spans if spans)
        return 1 - sum(self._acted) / (len(self.spans) * longest)

    @cached_property
    def _acted(self) -> tuple[float, ...]:
        return tuple(sum(end - start for _, start, end in spans) for spans in self.spans)


def price(
    plan: Plan,
    forward: Seconds,
    backward: Seconds,
    transfer: float = 0.0,
    weight_backward: Seconds | None = None,
    *,
    send: float = 0.0,
    receive: float = 0.0,
    update: Seconds = 0.0,
) -> Price:
    """Simulate the plan: every action starts when its rank is free and what it needs has arrived.

    Seconds of an action, for one micro-batch: one number is those of a rank's share of the model,
    of which a stage takes p/stages (1/v where every rank has v of them), so that plans compare on
    the same model; a sequence gives those of each stage.

    - forward, backward: backward is the whole backward pass, of which a plan that splits it spends
      half on each part.
    - weight_backward: where it is given, backward is the part for inputs only, and an unsplit
      backward pass takes the sum of both.
    - update: what a rank does once its last action has ended and its last message is sent, such as
      the optimizer's step; in seconds of a rank's share or of each stage, as above. No rank waits
      for another there, as ranks would that clip by the norm of the whole gradient.

    Seconds of a message, of each that goes from one rank to another; those within a rank are free:

    - transfer: after it is sent, until it has arrived. Transfers overlap with computing and with
      each other. Every message is waited for, also those of an interleaved plan that go round from
      the last rank to the first or back: with m a multiple of p, transfers delay its step by
      (2pv - 2) of them. Qi et al. (2023) let messages that go round be waited for only in the first
      micro-batch of a round, come to (2pv - p - 2), and so print smaller bubbles.
    - send: in which the sender does nothing else. A send that blocks its rank until the message has
      arrived is `send` and no `transfer`.
    - receive: in which the receiver does nothing else, before the action that needs the message.

    Raises PlanError where the plan cannot be executed, ValueError for impossible seconds.
    """
    for name, seconds in (("transfer", transfer), ("send", send), ("receive", receive)):
        at_least(name, seconds, 0)
    costs = _costs(plan, forward, backward, weight_backward)
    if not any(map(any, costs.values())):
        raise ValueError("Every action takes 0 seconds; give a forward or backward time above 0.")
    order, placement = plan.order, plan.placement
    # Boundaries lie in front of every stage and behind the last: which of them are between ranks?
    far = [False, *(a != b for a, b in pairwise(placement)), False]
    never = [0.0] * plan.micro_batches
    ends = {kind: [[0.0] * plan.micro_batches for _ in costs[kind]] for kind in costs}
    came, went = [never, *ends["F"]], [*ends["B"][1:], never]
    free = [0.0] * plan.p
    spans: list[list[Span]] = [[] for _ in range(plan.p)]
    for action in order:
        kind, stage, k = action
        rank = placement[stage]
        if kind == "F":
            made, before, after = came[stage][k], stage, stage + 1
        elif kind == "B":
            made, before, after = went[stage][k], stage + 1, stage
        else:  # what it needs of its own rank has ended, and it crosses no boundary
            made, before, after = 0.0, 0, 0
        arrived = made + far[before] * (send + transfer)
        start = max(arrived, free[rank]) + far[before] * receive
        ends[kind][stage][k] = end = start + costs[kind][stage]
        free[rank] = end + far[after] * send
        spans[rank].append(Span(action, start, end))
    updates = _of_ranks(plan, "update", update)
    makespan = max(map(add, free, updates))
    return Price(makespan, tuple(map(tuple, spans)), plan.peak_in_flight, updates)


def bubble_fraction(p: SupportsIndex, m: SupportsIndex, v: SupportsIndex = 1) -> float:
    """(p-1)/(v m+p-1): the idle share of GPipe and 1F1B, interleaved for v stages per rank.

    With equal stages and free transfers, and for v > 1 with m of at least p: with fewer, ranks also
    wait between their stages. m=1 is naive model parallelism: it uses 1/p.
    """
    p, m, v = sizes(p, m, v)
    return (p - 1) / (v * m + p - 1)


@checked
def min_microbatches(p: SupportsIndex, below: float, v: SupportsIndex = 1) -> int:
    """The fewest micro-batches whose `bubble_fraction` is below `below`, a share from 0 to 1.

    `below` is taken as the decimal it is written as: 133 micro-batches leave 8 ranks exactly 5 %
    idle, which is not below 0.05.
    """
    p, _, v = sizes(p, v=v)
    positive("below", below)
    if below > 1:
        raise ValueError(f"below is {below!r}; it is a share of the step, at most 1.")
    return floor((p - 1) * (1 / Fraction(str(float(below))) - 1) / v) + 1


@checked
def step_seconds(
    p: SupportsIndex,
    m: SupportsIndex,
    forward: float,
    backward: float,
    v: SupportsIndex = 1,
) -> float:
    """(m + (p-1)/v)(forward + backward): a step of GPipe or 1F1B, interleaved for v > 1.

    forward, backward: seconds of one rank's share of the model for one micro-batch.
    """
    p, m, v = sizes(p, m, v)
    at_least("forward", forward, 0)
    at_least("backward", backward, 0)
    return (m + (p - 1) / v) * (forward + backward)


def message_bytes(batch: int, sequence: int, hidden: int, itemsize: int = 2) -> int:
    """b s h itemsize: the bytes that cross a stage boundary for one micro-batch, each way.

    Forward they are the activations, backward their gradient, of the same shape. A plan sends
    `sum(plan.messages)` of them.
    """
    return (
        count("batch", batch)
        * count("sequence", sequence)
        * count("hidden", hidden)
        * count("itemsize", itemsize)
    )


def _costs(
    plan: Plan, forward: Seconds, backward: Seconds, weight_backward: Seconds | None
) -> dict[str, list[float]]:
    """The seconds of every stage's actions, by kind."""
    f, b = _of_stages(plan, "forward", forward), _of_stages(plan, "backward", backward)
    if weight_backward is None:
        w = [seconds / 2 for seconds in b]
        inputs = w
    else:
        w, inputs = _of_stages(plan, "weight_backward", weight_backward), b
        b = [x + y for x, y in zip(inputs, w, strict=True)]
    return {"F": f, "B": inputs, "W": w} if plan.splits_backward else {"F": f, "B": b}


def _of_ranks(plan: Plan, name: str, seconds: Seconds) -> tuple[float, ...]:
    """For each rank the sum over its stages."""
    totals = [0.0] * plan.p
    for rank, one in zip(plan.placement, _of_stages(plan, name, seconds), strict=True):
        totals[rank] += one
    return tuple(totals)


def _of_stages(plan: Plan, name: str, seconds: Seconds) -> list[float]:
    if not isinstance(seconds, Sequence) or isinstance(seconds, str):
        at_least(name, seconds, 0)
        return [seconds * plan.p / plan.stages] * plan.stages
    if len(seconds) != plan.stages:
        raise ValueError(
            f"{name} has {len(seconds)} times; give one for each of the {plan.stages} stages, or "
            "one number for a rank's share of the model."
        )
    for stage, one in enumerate(seconds):
        at_least(f"{name} of stage {stage}", one, 0)
    return list(seconds)
