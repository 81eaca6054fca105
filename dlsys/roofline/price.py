"""The roofline: how fast an operation can be, and which of compute, memory and network binds.

Each roof has its own axis. A device's memory and its network see different bytes of one operation,
so its intensity under the one says nothing about its place under the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dlsys.annotated import checked
from dlsys.checks import at_least, refuse, some
from dlsys.hardware import Device, Link
from dlsys.roofline.plan import Operation

COMPUTE, BANDWIDTH, NETWORK = "compute", "bandwidth", "network"
ROOFS = (COMPUTE, BANDWIDTH, NETWORK)
"""What can hold an operation back: the peak rate, the memory's bandwidth, the link's."""


@checked
def attainable(
    intensity: float,
    device: Device,
    number_format: str = "bf16",
    link: Link | None = None,
    network_intensity: float | None = None,
) -> float:
    """FLOP/s that a device can reach: min(peak, intensity x bandwidth of its memory).

    - intensity: FLOPs for each byte through memory. network_intensity: for each byte sent over
      `link`, which makes a third roof, network_intensity x its bandwidth; both are given or none.

    Raises ValueError for a format that the device lacks. Source: Williams et al. 2009 (roofline).
    """
    at_least("intensity", intensity, 0)
    roofs = [device.rate(number_format), intensity * device.memory_bandwidth]
    if (link is None) != (network_intensity is None):
        refuse("network_intensity", network_intensity, "given where a link is, and only there")
    if link is not None and network_intensity is not None:
        at_least("network_intensity", network_intensity, 0)
        roofs.append(network_intensity * link.bandwidth)
    return min(roofs)


class Placed(NamedTuple):
    """An operation under the roofs of a device: seconds that each of them asks for."""

    operation: Operation
    compute: float
    bandwidth: float
    network: float = 0.0

    @property
    def seconds(self) -> float:
        """The longest, as if each were busy beside the others all the time."""
        return max(self.compute, self.bandwidth, self.network)

    @property
    def bound(self) -> str:
        """The one of ROOFS that takes longest."""
        return max(ROOFS, key=lambda roof: float(getattr(self, roof)))

    @property
    def rate(self) -> float:
        """FLOP/s at that roof; 0 where nothing takes time."""
        return self.operation.flops / self.seconds if self.seconds else 0.0


@checked
def place(
    operation: Operation, device: Device, number_format: str = "bf16", link: Link | None = None
) -> Placed:
    """What an operation takes: FLOPs / rate, bytes / bandwidth, and bytes sent / that of `link`.

    A product has the rate of `number_format`; all else that of "fp32", for units of matrices add no
    elements up (where a device prints no such rate, its format's). Raises ValueError for a format
    that the device lacks, and for bytes sent without a link.
    """
    rate = device.rate(number_format)
    if not operation.product:
        rate = device.flops.get("fp32", rate)
    if operation.sent and link is None:
        refuse("link", None, f"a Link, over which {operation.name} sends its bytes")
    network = operation.sent / link.bandwidth if link else 0.0
    return Placed(
        operation, operation.flops / rate, operation.nbytes / device.memory_bandwidth, network
    )


class Price(NamedTuple):
    """Operations one after the other: each under its roofs."""

    placed: tuple[Placed, ...]

    @property
    def seconds(self) -> float:
        """Seconds of all operations."""
        return sum(one.seconds for one in self.placed)

    @property
    def flops(self) -> int:
        """FLOPs of all operations."""
        return sum(one.operation.flops for one in self.placed)

    def share(self, bound: str) -> float:
        """The part of the seconds that one of ROOFS holds; raises ValueError for another."""
        if bound not in ROOFS:
            refuse("bound", bound, f"one of {', '.join(ROOFS)}")
        held = sum(one.seconds for one in self.placed if one.bound == bound)
        return held / self.seconds if self.seconds else 0.0


@checked
def price(
    operations: Sequence[Operation],
    device: Device,
    number_format: str = "bf16",
    link: Link | None = None,
) -> Price:
    """Operations one after the other, each as fast as its roofs allow: see `place`.

    Their sum is longer than that of `together(operations)`, in which one's products would run
    beside another's bytes.
    """
    some("operations", operations)
    return Price(tuple(place(each, device, number_format, link) for each in operations))
