"""A bad argument of collectives or of hardware is called by its name, with what is allowed."""

from __future__ import annotations

import dataclasses
import inspect
import math
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from dlsys import collectives
from dlsys.collectives import Plan, plan_for, ring_all_reduce
from dlsys.collectives.choose import FLAT, TWO_LEVEL
from dlsys.hardware import DEVICES, LINKS, Cluster, Device, Link, dgx_a100, dgx_b200, dgx_h100

LINK, CLUSTER = LINKS["nvlink4"], dgx_h100(2)
NO_NUMBERS = (True, False, math.nan, math.inf, -math.inf, "4", None)


class Kind(NamedTuple):
    """What is refused, and a pattern of the words that say what is allowed."""

    refused: tuple[Any, ...]
    allowed: str

    def or_none(self) -> Kind:
        """The same where None is a right value."""
        return self._replace(refused=tuple(bad for bad in self.refused if bad is not None))


COUNT = Kind((*NO_NUMBERS, 0, -1, 2.5, 2.0), r"a whole number (from|of at least) 1\.")
PLACE = Kind((*NO_NUMBERS, -1, 0.5, 1.0), r"a whole number (from|of at least) 0\.")
RANK = Kind((*NO_NUMBERS, -1, 16, 0.5, 1.0), r"have ranks 0 to 15\.")
SIZE = Kind((*NO_NUMBERS, -1, -0.5), r"at least 0, and finite|a finite number.*from 0 bytes")
FROM_ONE = Kind((*NO_NUMBERS, 0, 0.5), r"at least 1, and finite")
ABOVE_ZERO = Kind((*NO_NUMBERS, -1, 0, 0.0), r"above zero, and finite")


class Case(NamedTuple):
    """A function of which one argument is replaced by a bad value."""

    function: str
    name: str
    kind: Kind
    call: Callable[[Any], object]


def builders() -> list[Case]:
    """Every argument of every builder of a plan."""
    cases = []
    every = [*(build for kind in FLAT.values() for build in kind.values()), *TWO_LEVEL.values()]
    for build in every:
        right = {name: 2 - (name == "root") for name in inspect.signature(build).parameters}
        for name in right:
            kind = PLACE if name == "root" else COUNT
            cases.append(Case(build.__name__, name, kind, replaced(build, right, name)))
    return cases


def replaced(build: Callable[..., Plan], right: dict[str, int], name: str) -> Callable[[Any], Plan]:
    """Build a plan with one argument replaced."""
    return lambda bad: build(**right | {name: bad})


def hand_written(**fields: Any) -> Plan:
    right = {"kind": "broadcast", "algorithm": "x", "ranks": 2, "chunks": 2, "rounds": []}
    return Plan(**right | fields)


def device(**fields: Any) -> Device:
    return dataclasses.replace(DEVICES["h100-sxm"], **fields)


def cluster(**fields: Any) -> Cluster:
    return dataclasses.replace(CLUSTER, **fields)


RING = ring_all_reduce(4)
CASES = [
    *builders(),
    Case("Plan", "ranks", COUNT, lambda bad: hand_written(ranks=bad)),
    Case("Plan", "chunks", COUNT, lambda bad: hand_written(chunks=bad)),
    Case("Plan", "root", PLACE, lambda bad: hand_written(root=bad)),
    Case("Plan.price", "nbytes", SIZE, lambda bad: RING.price(bad, LINK)),
    Case("Plan.price", "itemsize", COUNT.or_none(), lambda bad: RING.price(8, LINK, bad)),
    Case("Plan.draw", "width", ABOVE_ZERO, lambda bad: RING.draw(width=bad)),
    Case("plan_for", "ranks", COUNT, lambda bad: plan_for("all_reduce", bad)),
    Case("plan_for", "root", PLACE, lambda bad: plan_for("broadcast", 4, root=bad)),
    Case(
        "candidates",
        "ranks",
        COUNT.or_none(),
        lambda bad: collectives.candidates("all_reduce", LINK, bad),
    ),
    Case("best", "nbytes", SIZE, lambda bad: collectives.best("all_reduce", bad, CLUSTER)),
    Case(
        "best", "ranks", COUNT.or_none(), lambda bad: collectives.best("all_reduce", 1, LINK, bad)
    ),
    Case(
        "crossovers",
        "ranks",
        COUNT.or_none(),
        lambda bad: collectives.crossovers("all_reduce", LINK, bad),
    ),
    Case(
        "crossovers",
        "largest",
        FROM_ONE,
        lambda bad: collectives.crossovers("all_reduce", LINK, 4, largest=bad),
    ),
    Case("node_boundary", "nbytes", ABOVE_ZERO, lambda bad: collectives.node_boundary(bad)),
    Case("node_boundary", "small", ABOVE_ZERO, lambda bad: collectives.node_boundary(small=bad)),
    Case(
        "draw_crossovers",
        "sizes",
        ABOVE_ZERO,
        lambda bad: collectives.draw_crossovers("all_reduce", LINK, 4, sizes=(bad, 1e6)),
    ),
    Case(
        "draw_node_boundary",
        "sizes",
        ABOVE_ZERO,
        lambda bad: collectives.draw_node_boundary("all_reduce", [CLUSTER], sizes=(1e4, bad)),
    ),
    Case("Link", "latency", SIZE, lambda bad: Link("x", bad, 1e9)),
    Case("Link", "bandwidth", ABOVE_ZERO, lambda bad: Link("x", 0.0, bad)),
    Case("Link.seconds", "nbytes", SIZE, lambda bad: LINK.seconds(bad)),
    Case("Device", "flops", ABOVE_ZERO, lambda bad: device(flops={"fp32": bad})),
    Case("Device", "memory", ABOVE_ZERO, lambda bad: device(memory=bad)),
    Case("Device", "memory bandwidth", ABOVE_ZERO, lambda bad: device(memory_bandwidth=bad)),
    Case("Device", "tdp", ABOVE_ZERO.or_none(), lambda bad: device(tdp=bad)),
    Case("Cluster", "nodes", COUNT, lambda bad: cluster(nodes=bad)),
    Case("Cluster", "devices_per_node", COUNT, lambda bad: cluster(devices_per_node=bad)),
    Case("Cluster", "nics_per_node", COUNT.or_none(), lambda bad: cluster(nics_per_node=bad)),
    Case("Cluster.node", "rank", RANK, CLUSTER.node),
    Case("Cluster.nic", "rank", RANK, CLUSTER.nic),
    Case("Cluster.link", "src", RANK, lambda bad: CLUSTER.link(bad, 3)),
    Case("Cluster.link", "dst", RANK, lambda bad: CLUSTER.link(3, bad)),
    *[Case(f.__name__, "nodes", COUNT, f) for f in (dgx_a100, dgx_h100, dgx_b200)],
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.function}-{case.name}")
def test_a_bad_argument_is_called_by_its_name(case):
    for bad in case.kind.refused:
        with pytest.raises(ValueError) as caught:  # noqa: PT011 - the words are looked at below
            case.call(bad)
        said = str(caught.value)
        assert re.search(rf"\b{case.name}\b", said), (bad, said)
        assert repr(bad) in said, (bad, said)
        assert re.search(case.kind.allowed, said), (bad, said)
