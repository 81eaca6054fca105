"""Stragglers and outliers: named from what a run reports, by the median of all ranks.

Ranks of a synchronous run do the same work, so each is the others' measure. A mean and a standard
deviation are moved by the very rank that is looked for; median and median absolute deviation are
not, as long as most ranks are well.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from numbers import Real
from statistics import NormalDist, median
from typing import TYPE_CHECKING, NamedTuple

from dlsys.annotated import checked
from dlsys.checks import at_least, count, plain, positive, refuse, some, text

if TYPE_CHECKING:
    from dlsys.world.timeline import Timeline

DEVIATIONS = 1.4826
"""Standard deviations of a normal law in one median absolute deviation: 1 / 0.6745."""


@checked
def outliers(
    values: Sequence[float], threshold: float = 6.0, least: float = 0.0
) -> tuple[int, ...]:
    """The ranks whose value is far from the median of all: over `threshold` robust deviations.

    - values: one of each rank, such as the norm of its gradients; what is not finite is far.
    - least: the part of the median by which a value must differ as well, so that ranks that agree
      to the last digit do not make an outlier of the next digit.

    A robust deviation is 1.4826 x the median of |value - median|. Raises ValueError for fewer than
    three ranks, among which nobody is the odd one. Source: Iglewicz and Hoaglin 1993, "How to
    detect and handle outliers".
    """
    _check_rule(threshold, least)
    _check_ranks("values", values)
    for value in values:
        if not isinstance(value, Real) or isinstance(value, bool):
            refuse("A value in values", value, "a number")
    return _outliers([float(value) for value in values], threshold, least)


def _outliers(values: Sequence[float], threshold: float, least: float) -> tuple[int, ...]:
    numbers = [value for value in values if math.isfinite(value)]
    middle = median(numbers) if numbers else 0.0
    spread = DEVIATIONS * median(abs(value - middle) for value in numbers) if numbers else 0.0
    bound = max(threshold * spread, least * abs(middle))
    return tuple(r for r, value in enumerate(values) if not abs(value - middle) <= bound)


class Slow(NamedTuple):
    """A rank that was slow in all windows from step `first` up to `stop`: its median step time over
    that of all ranks."""

    rank: int
    first: int
    stop: int
    slowdown: float


@checked
def stragglers(
    times: Sequence[Sequence[float]],
    window: int = 10,
    threshold: float = 6.0,
    least: float = 0.02,
) -> tuple[Slow, ...]:
    """The ranks that are slower than the others, from a trace of each one's own step times.

    - times: for each step the seconds of each rank, without what it waited (`step_times`).
    - window: steps whose median stands for a rank, so that a pause or two are nobody's fault.
    - threshold, least: of `outliers`, upwards alone.

    A run of windows in which a rank is too slow is one entry. How often a healthy rank is named is
    `false_alarms`. Raises ValueError for steps of unequal ranks, or fewer than one window of them.
    """
    _check_rule(threshold, least)
    ranks = _check_trace(times)
    size = count("window", window, most=len(times))
    starts = range(0, len(times) - size + 1, size)
    found: list[Slow] = []
    open_: dict[int, list[float]] = {}
    for start in [*starts, -1]:
        slow: dict[int, float] = {}
        if start >= 0:
            rows = times[start : start + size]
            each = [median(row[rank] for row in rows) for rank in range(ranks)]
            middle = median(each)
            named = _outliers(each, threshold, least)
            slow = {rank: each[rank] / middle for rank in named if each[rank] > middle}
        for rank in [rank for rank in open_ if rank not in slow]:
            ratios = open_.pop(rank)
            stop = start if start >= 0 else starts[-1] + size
            found.append(Slow(rank, stop - size * len(ratios), stop, median(ratios)))
        for rank, ratio in slow.items():
            open_.setdefault(rank, []).append(ratio)
    return tuple(sorted(found, key=lambda slow: (slow.first, slow.rank)))


@checked
def false_alarms(ranks: int, windows: int, threshold: float) -> float:
    """Healthy ranks that are named in so many windows, on average, if their times are about normal:
    ranks x windows x Q(t / sqrt(1 + 1.36 t^2 / ranks)).

    Q is the normal law's tail on the one side that is slow. The root is there as the deviation is
    estimated as well, and with few ranks it is often too small: its variance is 1.36/ranks of its
    square, since of normal numbers it uses 36.8 % of what they tell. Holds from some thirty ranks
    on, and is too many for ten. A `least` above the noise leaves no alarm.
    """
    n, windows = count("ranks", ranks, most=10**9), count("windows", windows, most=10**9)
    at_least("threshold", threshold, 0)
    if threshold > 1e6:
        refuse("threshold", threshold, "at most 1e6")
    tail = NormalDist().cdf(-threshold / math.sqrt(1 + 0.5 / 0.3675 * threshold**2 / n))
    return n * windows * tail


@checked
def waited_for(waits: Sequence[Sequence[float]]) -> tuple[int | None, ...]:
    """For each step the rank that waited least: the one that all others waited for; None where all
    waited as long.

    - waits: for each step the seconds that each rank waited in it, as `step_times` gives them.

    A rank that stands here again and again is a straggler, even where only waits were recorded.
    """
    _check_trace(waits, "waits")
    ranks = range(len(waits[0]))
    return tuple(min(ranks, key=row.__getitem__) if min(row) < max(row) else None for row in waits)


@checked
def step_times(
    timeline: Timeline, compute: str = "compute"
) -> tuple[list[list[float]], list[list[float]]]:
    """Seconds that each rank computed and waited in each step, from a run's timeline.

    A step ends where the next span of that name begins; each rank has as many. Raises ValueError
    where there is none, or ranks differ in their number.
    """
    text("compute", compute)
    computed: list[list[float]] = []
    waited: list[list[float]] = []
    for rank in range(timeline.ranks):
        spans = [span for span in timeline.of(rank, "compute") if span.name == compute]
        ends = [span.start for span in spans[1:]] + [math.inf]
        waits = [0.0] * len(spans)
        step = 0
        for wait in timeline.of(rank, "wait"):
            while step < len(spans) and wait.start >= ends[step]:
                step += 1
            if spans and wait.start >= spans[0].start:
                waits[step] += wait.end - wait.start
        computed.append([span.end - span.start for span in spans])
        waited.append(waits)
    steps = {len(of_rank) for of_rank in computed}
    if len(steps) != 1 or steps == {0}:
        numbers = f"spans of that name by rank: {[len(row) for row in computed][:8]}"
        raise ValueError(f"compute is {compute!r}; there must be one for each step. {numbers}.")
    return [list(row) for row in zip(*computed, strict=True)], [
        list(row) for row in zip(*waited, strict=True)
    ]


class Majority(NamedTuple):
    """What most ranks have; `odd` ranks have something else.

    Where no value is that of more than half, `value` is None and `odd` is empty: some are wrong,
    and nobody can say who. `groups`: the ranks of each value, largest group first.
    """

    value: Hashable
    odd: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]

    @property
    def agreed(self) -> bool:
        """Whether all have the same."""
        return len(self.groups) == 1

    def __str__(self) -> str:
        if self.agreed:
            return f"all {len(self.groups[0])} ranks agree"
        each = "; ".join(f"ranks {', '.join(map(str, group))}" for group in self.groups)
        if self.odd:
            one = len(self.odd) == 1
            who = f"rank{'' if one else 's'} {', '.join(map(str, self.odd))}"
            return f"{who} {'differs' if one else 'differ'} from most"
        return f"ranks differ, and no value is that of more than half: {each}"


@checked
def majority(values: Sequence[Hashable]) -> Majority:
    """What most ranks have of something that all replicas share to the last bit: a checksum, or the
    norm of the reduced gradients.

    One wrong rank of three or more is named; of two, it is only known that they differ. Equal wrong
    values of more than half would be believed. NaN equals no value, so compare its bits instead.
    """
    some("values", values)
    ranks: dict[Hashable, list[int]] = {}
    for rank, value in enumerate(map(plain, values)):
        if isinstance(value, float) and math.isnan(value):
            refuse("A value in values", value, "equal to itself; give the bits of a number")
        try:
            ranks.setdefault(value, []).append(rank)
        except TypeError:
            refuse("A value in values", value, "hashable, such as a number or text")
    (value, number), *_ = Counter({value: len(of) for value, of in ranks.items()}).most_common(1)
    groups = tuple(sorted(map(tuple, ranks.values()), key=lambda of: (-len(of), of)))
    if 2 * number <= len(values):
        return Majority(None, (), groups)
    odd = tuple(sorted(rank for group in groups[1:] for rank in group))
    return Majority(value, odd, groups)


def _check_rule(threshold: float, least: float) -> None:
    positive("threshold", threshold)
    at_least("least", least, 0)


def _check_ranks(name: str, values: Sequence[object]) -> None:
    if len(values) < 3:
        raise ValueError(f"{name} has {len(values)} ranks; give at least three, to compare.")


def _check_trace(times: Sequence[Sequence[float]], name: str = "times") -> int:
    """The number of ranks of a trace that is one."""
    some(name, times)
    _check_ranks(name, times[0])
    for step, row in enumerate(times):
        if len(row) != len(times[0]):
            ranks = f"{len(times[0])} ranks"
            raise ValueError(f"{name}: step {step} has {len(row)}; give one for each of {ranks}.")
        for value in row:
            at_least(f"A time in {name}", value, 0)
    return len(times[0])
