"""Offload: what is saved goes over a link to the host and comes back, beside the computing."""

from __future__ import annotations

from dataclasses import dataclass

from dlsys.annotated import checked
from dlsys.checks import count, positive
from dlsys.hardware import Link
from dlsys.recomputation.plan import Chain


@dataclass(frozen=True)
class OffloadPrice:
    """A step whose saved bytes are on the host between forward and backward.

    - seconds: of the step; compute_seconds: of its passes alone
    - link_bytes: sent in one direction, and as many back
    - peak_bytes: room on the device for the layers that are there at once
    """

    seconds: float
    compute_seconds: float
    link_bytes: float
    peak_bytes: float

    @property
    def exposed_seconds(self) -> float:
        """What the step waits for the link: all that computing does not hide."""
        return max(0.0, self.seconds - self.compute_seconds)


@checked
def offload_price(chain: Chain, link: Link, rate: float, room: int = 2) -> OffloadPrice:
    """The price of keeping a chain's bytes on the host, all but those of the last `room` layers.

    - link: to the host, one direction; both directions are never used at once here
    - rate: of the device, in the chain's cost unit per second: FLOP/s, or 1 where costs are seconds
    - room: layers whose bytes the device holds at once; with 1 nothing is hidden

    Forward of a layer begins when the layer `room` places before it has left. Backward meets the
    last `room` layers first, which never left; each other one starts to come back when there is
    room, and its backward begins when it is there. Layers with nothing to save send nothing.
    """
    positive("rate", rate)
    room = min(count("room", room), len(chain))
    layers, n = chain.layers, len(chain)
    copies = [link.seconds(each.saved_bytes) if each.saved_bytes else 0.0 for each in layers]
    time, port, gone = 0.0, 0.0, [0.0] * n
    for i, layer in enumerate(layers):
        begin = max(time, gone[i - room]) if i >= room else time
        time = begin + layer.forward / rate
        if i < n - room:
            port = gone[i] = max(port, time) + copies[i]
    back = [0.0] * n  # when a layer's bytes are on the device again
    done = [time] * n  # when its backward has ended
    for i in reversed(range(n)):
        if i < n - room:
            port = back[i] = max(port, done[i + room]) + copies[i]
        time = max(time, back[i]) + layers[i].backward / rate
        done[i] = time
    held = [sum(each.saved_bytes for each in layers[i : i + room]) for i in range(n - room + 1)]
    compute = (chain.forward + chain.backward) / rate
    sent = sum(layer.saved_bytes for layer in layers[: n - room])
    return OffloadPrice(time, compute, sent, max(held))
