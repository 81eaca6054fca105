"""A profile in virtual time: a host that launches, a device that computes, and input."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dlsys.annotated import checked
from dlsys.checks import at_least, count, counts, refuse, some
from dlsys.hardware import Device, Link
from dlsys.plain_data import plain_data
from dlsys.roofline.plan import Operation
from dlsys.roofline.price import place
from dlsys.roofline.traces import COMMUNICATION, HOST, INPUT, KERNEL, Event, Trace

MOST_EVENTS = 1_000_000


@checked
@plain_data
@dataclass(frozen=True)
class Step:
    """A training step as a host drives it.

    - operations: in the order in which they are launched, each in `launch_seconds` of the host.
    - input_seconds: to make a batch. With `prefetch` batches ahead a worker makes them beside all
      else (one is enough here, where all take as long; more are for uneven ones); with 0 the host
      itself, between steps.
    - synchronous: the host waits for the device at the end of a step, as `loss.item()` has it.
    - overlap: an operation that sends goes on beside those after it, and only the step's end waits.
    - batch_bytes: of a batch that waits in memory.
    """

    operations: tuple[Operation, ...]
    input_seconds: float = 0.0
    prefetch: int = 0
    launch_seconds: float = 5e-6
    synchronous: bool = False
    overlap: bool = False
    batch_bytes: int = 0

    def __post_init__(self) -> None:
        some("operations", self.operations)
        at_least("input_seconds", self.input_seconds, 0)
        at_least("launch_seconds", self.launch_seconds, 0)
        counts(self, "prefetch", least=0)
        counts(self, "batch_bytes", least=0)

    @property
    def waiting_bytes(self) -> int:
        """Bytes of batches at hand: one, and those that are made ahead."""
        return (1 + self.prefetch) * self.batch_bytes

    def profile(self, *args: Any, **options: Any) -> Trace:
        """Its trace on a device; see `profile_step`."""
        return profile_step(self, *args, **options)


@checked
def profile_step(
    step: Step,
    device: Device,
    number_format: str = "bf16",
    link: Link | None = None,
    steps: int = 3,
) -> Trace:
    """The trace of some steps in virtual time, each operation as quick as its roofs allow.

    The host runs ahead of the device until it has to wait for it, or for a batch. Raises ValueError
    as `place` does, and for more than a million events.
    """
    number = count("steps", steps)
    if number * len(step.operations) > MOST_EVENTS // 2:
        refuse("steps", number, f"at most {MOST_EVENTS // 2 // len(step.operations):,} of these")
    run = _Run(step, device, number_format, link)
    return Trace(tuple(event for _ in range(number) for event in run.step()))


class _Run:
    """When host, device, network and the worker that makes batches are free."""

    def __init__(self, step: Step, device: Device, number_format: str, link: Link | None) -> None:
        self.plan = step
        self.host = self.device = self.network = 0.0
        self.ready = 0.0  # when the worker has made its last batch
        self.placed = [place(o, device, number_format, link) for o in step.operations]

    def step(self) -> Iterator[Event]:
        yield from self.input()
        for placed in self.placed:
            yield self.launch(placed.operation.name)
            yield self.send(placed) if placed.operation.sent else self.compute(placed)
        self.device = max(self.device, self.network)
        if self.plan.synchronous:
            self.host = max(self.host, self.device)

    def input(self) -> Iterator[Event]:
        """A batch: made by the host where nobody makes it ahead, else waited for."""
        start = self.host
        # With even times it never matters for how many batches the worker has room.
        begun = self.ready if self.plan.prefetch else start
        self.ready = begun + self.plan.input_seconds
        self.host = max(start, self.ready)
        if self.host > start:
            yield Event("wait for a batch", INPUT, start, self.host, "host")

    def launch(self, name: str) -> Event:
        start, self.host = self.host, self.host + self.plan.launch_seconds
        return Event(f"launch {name}", HOST, start, self.host, "host")

    def compute(self, placed: Any) -> Event:
        start = max(self.host, self.device)
        self.device = start + placed.seconds
        o = placed.operation
        return Event(o.name, KERNEL, start, self.device, "device", o.flops, o.nbytes, o.product)

    def send(self, placed: Any) -> Event:
        start = max(self.host, self.device, self.network)
        self.network = start + placed.seconds
        if not self.plan.overlap:
            self.device = self.network
        o = placed.operation
        return Event(o.name, COMMUNICATION, start, self.network, "network", o.flops, o.nbytes)
