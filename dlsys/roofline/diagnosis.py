"""What holds a step back: shares of its time from a trace, and memory that is full apart from them.

Bandwidth and capacity are two things of one memory. The first is a roof and shows in time; the
second is a size, takes no time at all, and shows in what does not fit. And a device that idles
waits for somebody: for data, for messages, or for the host to tell it what to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from dlsys.annotated import checked
from dlsys.checks import at_least
from dlsys.hardware import Device
from dlsys.roofline.plan import Operation
from dlsys.roofline.price import BANDWIDTH, COMPUTE, NETWORK, place
from dlsys.roofline.traces import (
    COMMUNICATION,
    HOST,
    INPUT,
    KERNEL,
    Event,
    Trace,
    length,
    union,
    without,
)

LAUNCH, IDLE, CAPACITY = "launch", "idle", "capacity"
LIMITS = (COMPUTE, BANDWIDTH, NETWORK, INPUT, LAUNCH, IDLE)
"""What a step's time goes into; `capacity` is none of them."""
FULL = 0.9
"""The part of a memory above which it is called full."""


class Remedy(NamedTuple):
    """What a profile shows at a limit, what to do first, and what that costs."""

    shows: str
    first: str
    costs: str


REMEDIES: Mapping[str, Remedy] = {
    COMPUTE: Remedy(
        "long products, near their roof; nothing idles",
        "a narrower format; fewer FLOPs",
        "digits",
    ),
    BANDWIDTH: Remedy(
        "the device is busy, with little arithmetic",
        "fuse; a larger batch for products; a narrower format",
        "memory for the batch; digits",
    ),
    NETWORK: Remedy(
        "messages with no kernel beside them",
        "overlap; more tokens a device; another axis",
        "memory for buckets and tokens",
    ),
    INPUT: Remedy(
        "the host waits for a batch, then all go on",
        "more workers; batches ahead; prepare beforehand",
        "the host's memory and processors",
    ),
    LAUNCH: Remedy(
        "short kernels with gaps, a busy host",
        "fuse; a larger batch; CUDA graphs; no waiting for a loss",
        "memory for the batch; fixed shapes",
    ),
    CAPACITY: Remedy(
        "out of memory, or a batch too small for all else",
        "shard; recompute; offload",
        "bytes sent, or FLOPs",
    ),
}
"""Where each limit shows and what moves it. What one remedy takes is often another limit's own."""


class Diagnosis(NamedTuple):
    """Where a step's time goes: the share of each of LIMITS, 1 in all.

    memory: the part of the device's memory in use, where it was told. roof_seconds / busy seconds:
    `efficiency`, of kernels beside their own roofs.
    """

    shares: dict[str, float]
    seconds: float
    efficiency: float
    memory: float | None = None

    @property
    def limit(self) -> str:
        """The one of LIMITS that takes most of the time."""
        return max(self.shares, key=lambda limit: self.shares[limit])

    @property
    def is_full(self) -> bool:
        """Whether memory is full: capacity, whatever takes the time."""
        return self.memory is not None and self.memory > FULL

    @property
    def busy(self) -> float:
        """The share of the time in which some kernel computes. A device's counter of utilization
        says more where messages are sent by kernels, which run as well."""
        return self.shares[COMPUTE] + self.shares[BANDWIDTH]


@checked
def diagnose(
    trace: Trace, device: Device, number_format: str = "bf16", peak_bytes: float | None = None
) -> Diagnosis:
    """What a trace's time goes into.

    Time in which kernels run is compute's or bandwidth's, by each one's place under the roofs (that
    of unknown FLOPs and bytes is bandwidth's). Of the rest, messages take what they cover
    (network), then waits for a batch (input), then the host's own work (launch); what is left is
    idle.

    peak_bytes: the most that was in use of the device's memory.
    """
    kernels = trace.of(KERNEL)
    busy = covered = trace.covered(KERNEL)
    shares = dict.fromkeys(LIMITS, 0.0)
    for limit, category in ((NETWORK, COMMUNICATION), (INPUT, INPUT), (LAUNCH, HOST)):
        stretches = trace.covered(category)
        shares[limit] = length(without(stretches, covered))
        covered = union([*covered, *stretches])
    shares[IDLE] = trace.seconds - length(covered)
    placed = [(event, place(_operation(event), device, number_format)) for event in kernels]
    work = sum(event.seconds for event in kernels)
    for event, at in placed:
        limit = COMPUTE if at.compute > at.bandwidth else BANDWIDTH
        shares[limit] += event.seconds / work * length(busy) if work else 0.0
    total = trace.seconds or 1.0
    memory = None
    if peak_bytes is not None:
        at_least("peak_bytes", peak_bytes, 0)
        memory = peak_bytes / device.memory
    roofs = sum(at.seconds for _, at in placed)
    parts = {limit: max(0.0, seconds) / total for limit, seconds in shares.items()}
    return Diagnosis(parts, trace.seconds, roofs / work if work else 0.0, memory)


def _operation(event: Event) -> Operation:
    flops = event.flops if event.nbytes else 0
    return Operation(event.name, flops, event.nbytes, 0, product=event.product)


@checked
def by_utilization_alone(utilization: float, memory: float) -> str:
    """A flowchart that is in print, kept to be refuted: below 70 % busy it says input, above 90 %
    of memory in use capacity, else compute. It asks neither what the device waited for nor what
    it was busy with."""
    at_least("utilization", utilization, 0)
    at_least("memory", memory, 0)
    if utilization < 0.7:
        return INPUT
    return CAPACITY if memory > FULL else COMPUTE
