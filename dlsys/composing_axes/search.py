"""What a search found: plans by seconds and bytes, the best against the next, and what binds."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dlsys.checks import count, fraction, refuse_what, unknown
from dlsys.composing_axes.calibrate import interval
from dlsys.composing_axes.runs import Array, Runs
from dlsys.composing_axes.step_time import Machine, step_parts, total
from dlsys.hardware import Cluster
from dlsys.transformer import TransformerSpec
from dlsys.units import format_bytes, format_seconds

SURE = 1.3
"""A plan cannot fit where it is predicted to hold more than so many times what there is; above once
it may not. Of 505 runs that ran none was predicted to hold more, of 410 that did not, three fifths
were, and 78 % more than there is (Ultra-Scale Playbook, 1B and 3B; crashes count as such)."""
NAMES = ("tp", "cp", "dp", "pp", "ep", "sequences", "micro_batches", "zero", "recompute", "chunks")
COMPUTING = ("products", "traffic", "head", "update")
"""Parts of a step in which a device computes; in the others it waits."""
HELP = {
    "state": "more devices, a higher ZeRO stage, or a larger tensor or pipeline degree",
    "gathered": "a lower ZeRO stage, or a larger tensor degree",
    "activations": "smaller micro-batches, recomputation, or a larger tensor or context degree",
    "logits": "smaller micro-batches, or a larger tensor degree",
    "base": "a device with more memory",
}


@dataclass(frozen=True)
class Plan:
    """One way to lay out a run, with what it is predicted to take and to hold.

    sequences: of a micro-batch; "4 x 2" in words are four micro-batches of two. seconds: of a step,
    `parts` by what they are spent on. held: bytes on the fullest device, by bucket.
    """

    tp: int
    cp: int
    dp: int
    pp: int
    ep: int
    sequences: int
    micro_batches: int
    zero: int
    recompute: bool
    schedule: str
    seconds: float
    parts: dict[str, float]
    held: dict[str, float]

    @property
    def axes(self) -> dict[str, int]:
        """The degrees."""
        return {name: getattr(self, name) for name in ("tp", "cp", "dp", "pp", "ep")}

    @property
    def how(self) -> str:
        """What is chosen beside the degrees, in words."""
        words = [f"{self.micro_batches} x {self.sequences}", f"ZeRO-{self.zero}"]
        return ", ".join(words + ["recomputing"] * self.recompute + [self.schedule] * (self.pp > 1))

    def __str__(self) -> str:
        axes = ", ".join(f"{name} {degree}" for name, degree in self.axes.items() if degree > 1)
        cost = f"{format_seconds(self.seconds)}, {format_bytes(sum(self.held.values()))}"
        return f"{axes or 'one device'}: {self.how}; {cost}"


@dataclass(frozen=True)
class Search:
    """All plans of a run, by seconds: those that fit, and what became of the others."""

    spec: TransformerSpec
    machine: Machine
    batch: int
    runs: Runs
    schedules: tuple[str, ...]
    seconds: Array
    parts: dict[str, Array]
    held: dict[str, Array]
    memory: float

    @property
    def total(self) -> Array:
        """Bytes on the fullest device of each plan."""
        return total(self.held)

    @property
    def fitting(self) -> NDArray[np.intp]:
        """Places of the plans that fit, fastest first."""
        places = np.flatnonzero(self.total <= self.memory)
        return places[np.argsort(self.seconds[places], kind="stable")]

    def __len__(self) -> int:
        return len(self.seconds)

    def __getitem__(self, place: int) -> Plan:
        """The plan of this place among those that fit: 0 is the fastest."""
        return self.at(int(self.fitting[place]))

    @property
    def best(self) -> Plan:
        """The fastest plan that fits; raises ValueError where none does, with what would help."""
        if not len(self.fitting):
            least = int(np.argmin(self.total))
            raise ValueError(f"None of {len(self)} plans fits. {self.refusal(least)}")
        return self[0]

    def at(self, place: int) -> Plan:
        """The plan of this row."""
        how = {n: int(getattr(self.runs, n)[place]) for n in ("tp", "cp", "dp", "pp", "ep")}
        names = ("sequences", "micro_batches", "zero")
        how |= {name: int(getattr(self.runs, name)[place]) for name in names}
        return Plan(
            **how,
            recompute=bool(self.runs.recompute[place]),
            schedule=self.schedules[place],
            seconds=float(self.seconds[place]),
            parts={name: float(each[place]) for name, each in self.parts.items()},
            held={name: float(each[place]) for name, each in self.held.items()},
        )

    def joules(self, waiting: float = 0.5) -> Array:
        """Energy of a step of each plan, on all devices: one draws its thermal design power while
        it computes, and the part `waiting` of that while it waits for others.

        Raises ValueError for a device whose power is not published.
        """
        fraction("waiting", waiting)
        device = self.machine.cluster.device
        if device.tdp is None:
            refuse_what("machine", f"one of {device.name}, without a power", "one with tdp")
        busy = total({name: self.parts[name] for name in COMPUTING})
        seconds = busy + waiting * (self.seconds - busy)
        return device.tdp * self.machine.cluster.size * seconds

    def least(self, cost: Array) -> Plan:
        """The plan that fits and has the least of a cost, given for each plan, as by `joules`."""
        if len(cost) != len(self):
            refuse_what("cost", f"{len(cost)} numbers", f"one for each of {len(self)} plans")
        places = self.fitting
        return self.at(int(places[np.argmin(cost[places])])) if len(places) else self.best

    def where(self, **degrees: int) -> Plan:
        """The fastest plan with these degrees (and `zero`, `sequences`, ...) that fits, or if none
        does, the one that holds least; raises ValueError where there is no such plan."""
        same = np.full(len(self), True)
        for name, degree in degrees.items():
            if name not in NAMES:
                raise ValueError(unknown("degree", name, NAMES))
            count(name, degree, 0)
            same &= getattr(self.runs, name) == degree
        if not same.any():
            asked = ", ".join(f"{name} {degree}" for name, degree in degrees.items())
            raise ValueError(f"No plan has {asked}: model, batch or devices do not divide so.")
        fits = np.flatnonzero(same & (self.total <= self.memory))
        if len(fits):
            return self.at(int(fits[np.argmin(self.seconds[fits])]))
        return self.at(int(np.flatnonzero(same)[np.argmin(self.total[same])]))

    def refusal(self, place: int) -> str:
        """Why a plan does not fit, by bucket, and what would help most."""
        plan, over = self.at(place), self.total[place] - self.memory
        if over <= 0:
            refuse_what("place", f"{place}, of a plan that fits", "that of one that does not")
        fullest = max(plan.held, key=lambda name: plan.held[name])
        sure = "cannot fit" if self.total[place] > SURE * self.memory else "may not fit"
        held = ", ".join(f"{name} {format_bytes(n)}" for name, n in plan.held.items())
        return f"{plan} {sure}, {format_bytes(over)} too much ({held}): {HELP[fullest]}."

    def front(self) -> list[Plan]:
        """Plans that no other beats in both seconds and bytes, from the fastest on."""
        found, least = [], np.inf
        for place in self.fitting:
            if self.total[place] < least:
                least = self.total[place]
                found.append(self.at(int(place)))
        return found

    def runner_up(self) -> Plan:
        """The fastest plan whose degrees differ from the best one's."""
        place = self._other_than(self.best)
        if place is None:
            raise ValueError("No plan of other degrees fits.")
        return self.at(place)

    def _other_than(self, best: Plan) -> int | None:
        """The row of the fastest plan that fits and has other degrees, if there is one."""
        fitting, axes = self.fitting, best.axes
        other = [getattr(self.runs, name)[fitting] != degree for name, degree in axes.items()]
        others = np.flatnonzero(np.any(other, axis=0))
        return int(fitting[others[0]]) if len(others) else None

    def explain(self) -> str:
        """The best plan against the runner-up: what it saves, and what that costs."""
        best = self.best
        place = self._other_than(best)
        if place is None:
            return f"best: {best}, and no plan of other degrees fits."
        other = self.at(place)
        saved = {name: other.parts[name] - best.parts[name] for name in best.parts}
        lines = [f"best:      {best}", f"runner-up: {other}"]
        for name, seconds in sorted(saved.items(), key=lambda item: -abs(item[1])):
            if abs(seconds) > 0.001 * best.seconds:
                verb = "saves" if seconds > 0 else "costs"
                lines.append(f"{verb} {format_seconds(abs(seconds))} of {name}")
        if not self.machine.source:
            low, high = interval(self.runs.take(self.fitting[:1]), self.machine)
            between = f"{format_seconds(low[0])} and {format_seconds(high[0])}"
            lines.append(
                f"No run of this machine was seen: nine of ten would take between {between}."
            )
        nbytes = sum(best.held.values()) - sum(other.held.values())
        lines.append(f"holds {format_bytes(abs(nbytes))} {'more' if nbytes > 0 else 'less'}")
        return "\n".join(lines)

    def binding(self) -> dict[str, float]:
        """How many times faster the best plan is with twice as much of each; the largest one binds.

        memory: bytes of a device; flops and memory_bandwidth: its rates; intra and inter:
        bandwidth inside nodes and between them.
        """
        best = self.best.seconds
        fits, faster = self.total <= self.memory, {}
        faster["memory"] = self.seconds[self.total <= 2 * self.memory].min()
        for name, cluster in _with_twice(self.machine.cluster).items():
            parts = step_parts(self.runs, replace(self.machine, cluster=cluster))
            faster[name] = total(parts)[fits].min()
        return {name: float(best / seconds) for name, seconds in faster.items()}


def _with_twice(cluster: Cluster) -> dict[str, Cluster]:
    """The cluster with twice as much of each rate, by its name."""
    device, intra, inter = cluster.device, cluster.intra, cluster.inter
    rates = {kind: 2 * rate for kind, rate in device.flops.items()}
    wider = replace(device, memory_bandwidth=2 * device.memory_bandwidth)
    return {
        "flops": replace(cluster, device=replace(device, flops=rates)),
        "memory_bandwidth": replace(cluster, device=wider),
        "intra": replace(cluster, intra=replace(intra, bandwidth=2 * intra.bandwidth)),
        "inter": replace(cluster, inter=replace(inter, bandwidth=2 * inter.bandwidth)),
    }
