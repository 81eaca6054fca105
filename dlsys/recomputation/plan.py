"""What a forward pass keeps for backward, layer by layer, and what backward runs again instead.

A chain is what there is to keep; a plan cuts it into segments, and says what each of them keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isqrt
from typing import TYPE_CHECKING, Any, NamedTuple

from dlsys.annotated import checked
from dlsys.checks import at_least, count, refuse, some
from dlsys.plain_data import plain_data

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import Tensor

    from dlsys.recomputation.price import Price

KEEP, SELECTIVE, RECOMPUTE = "keep", "selective", "recompute"
MODES = {
    KEEP: "every layer keeps all that its backward needs",
    SELECTIVE: "every layer keeps all but its core's bytes; its backward runs the core again",
    RECOMPUTE: "only the first layer's input is kept; backward runs all layers again before them",
}
"""What a segment keeps, and what its backward runs again."""
MOST_LAYERS = 1_000_000


@checked
@plain_data
@dataclass(frozen=True)
class Layer:
    """A layer of a chain: what it keeps for its backward pass, and what its passes cost.

    - input_bytes: what it is given, which is what a segment that starts here keeps; 0 for data
    - saved_bytes: all that its backward needs, with `input_bytes` among them, counted once
    - forward, backward: their costs, in FLOPs, seconds or any unit that the whole chain has
    - core_bytes: of `saved_bytes`, what selective recomputation drops; never the input
    - core: the part of `forward` that makes these again; 0 with bytes that are free to remake
    - tail, core_tail: the parts of `forward` and `core` behind the last tensor that is saved, which
      early stop leaves out: nothing in backward needs their result
    - behind_bytes: of `saved_bytes`, what lies behind the core: freed before that is made again
    - copied_bytes: what the core saves, run again, beside `core_bytes`: copies of what it is given

    A layer's output is the next one's input and counted there. Raises ValueError for a number that
    is negative, or for a part that is more than what it is part of.
    """

    name: str
    input_bytes: float
    saved_bytes: float
    forward: float
    backward: float
    core_bytes: float = 0
    core: float = 0.0
    tail: float = 0.0
    core_tail: float = 0.0
    behind_bytes: float = 0
    copied_bytes: float = 0

    def __post_init__(self) -> None:
        for name, value in list(vars(self).items())[1:]:
            at_least(f"{name} of layer {self.name}", value, 0)
        self._part("input_bytes", "saved_bytes")
        self._part("core_bytes", "saved_bytes", less="input_bytes")
        self._part("core", "forward")
        self._part("tail", "forward")
        self._part("core_tail", "core")
        self._part("behind_bytes", "saved_bytes", less="core_bytes")

    @property
    def rebuilt_bytes(self) -> float:
        """What it holds when its core has been run again."""
        return self.saved_bytes - self.behind_bytes + self.copied_bytes

    def _part(self, part: str, whole: str, less: str = "") -> None:
        most = getattr(self, whole) - (getattr(self, less) if less else 0)
        if getattr(self, part) > most:
            words = f"{whole} less {less}" if less else whole
            name = f"{part} of layer {self.name}"
            refuse(name, getattr(self, part), f"at most its {words}, {most:g}")


@checked
@plain_data
@dataclass(frozen=True)
class Chain:
    """Layers of which each reads the one before: what a model is to recomputation."""

    layers: tuple[Layer, ...]

    def __post_init__(self) -> None:
        some("layers", self.layers)
        object.__setattr__(self, "layers", tuple(self.layers))
        count("The number of layers", len(self.layers), most=MOST_LAYERS)

    def __len__(self) -> int:
        return len(self.layers)

    @property
    def forward(self) -> float:
        """Cost of a forward pass."""
        return sum(layer.forward for layer in self.layers)

    @property
    def backward(self) -> float:
        """Cost of a backward pass that has all it needs."""
        return sum(layer.backward for layer in self.layers)

    @property
    def saved_bytes(self) -> float:
        """Bytes that a forward pass leaves where everything is kept."""
        return sum(layer.saved_bytes for layer in self.layers)


@plain_data
class Segment(NamedTuple):
    """Layers from `start` up to, not including, `stop`, in a mode of `MODES`."""

    start: int
    stop: int
    mode: str

    @property
    def layers(self) -> range:
        """Its layers."""
        return range(self.start, self.stop)

    def __str__(self) -> str:
        return f"{self.mode} layers {self.start} to {self.stop - 1}"


@checked
@plain_data
@dataclass(frozen=True)
class Plan:
    """What each of `layers` layers keeps: segments that follow one another.

    Plans of parts of a model are joined by `+`: `keep_all(1) + every_layer(48) + keep_all(1)`.
    """

    layers: int
    segments: tuple[Segment, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "layers", count("layers", self.layers, most=MOST_LAYERS))
        cut = tuple(Segment(*segment) for segment in self.segments)
        object.__setattr__(self, "segments", cut)

    def __add__(self, other: Plan) -> Plan:
        if not isinstance(other, Plan):
            return NotImplemented
        shifted = (Segment(s.start + self.layers, s.stop + self.layers, s.mode) for s in other)
        return Plan(self.layers + other.layers, (*self.segments, *shifted))

    def __iter__(self) -> Iterator[Segment]:
        return iter(self.segments)

    def check(self) -> None:
        """Prove that each layer is in one segment, in order; raises ValueError naming the layer."""
        done = 0
        for segment in self.segments:
            start = count("The start of a segment", segment.start, least=0)
            stop = count(f"The stop of the segment from layer {start}", segment.stop, least=0)
            if not isinstance(segment.mode, str) or segment.mode not in MODES:
                allowed = " or ".join(map(repr, MODES))
                refuse(f"The mode of the segment from layer {start}", segment.mode, allowed)
            if start > done:
                raise ValueError(f"Layer {done} is in no segment: the next one starts at {start}.")
            if start < done:
                raise ValueError(
                    f"Layer {start} is in two segments, or they are out of order: start the "
                    f"segment {segment} at {done}, where the one before it stops."
                )
            if stop <= start:
                raise ValueError(f"The segment from layer {start} to {stop} has no layer in it.")
            if stop > self.layers:
                raise ValueError(
                    f"There is no layer {stop - 1}: the plan is of {self.layers} layers, "
                    f"0 to {self.layers - 1}."
                )
            done = stop
        if done < self.layers:
            raise ValueError(f"Layer {done} is in no segment: the last one stops before it.")

    def keep_last(self) -> Plan:
        """The same plan with its last segment kept: backward, which needs it first, has it."""
        some("segments", self.segments)
        last = self.segments[-1]._replace(mode=KEEP)
        return Plan(self.layers, (*self.segments[:-1], last))

    @checked
    def price(self, chain: Chain, early_stop: bool = True) -> Price:
        """Bytes kept, the peak, and what is run again, in a step of this chain; see `price`."""
        from dlsys.recomputation.price import price

        return price(self, chain, early_stop)

    @checked
    def run(self, modules: Sequence[Callable[..., Any]], x: Tensor, *shared: Any) -> Any:
        """What the modules, one a layer, make of x in turn; see `checkpoint_wrapper.run`."""
        from dlsys.recomputation.checkpoint_wrapper import run

        return run(self, modules, x, *shared)

    @checked
    def draw(self, chain: Chain, early_stop: bool = True) -> Figure:
        """A Matplotlib figure of what is kept, and of the memory over a step; see `draw.draw`."""
        from dlsys.recomputation.draw import draw

        return draw(self, chain, early_stop)


def keep_all(layers: int) -> Plan:
    """The plan of plain training: nothing is run again."""
    n = _layers(layers)
    return Plan(n, (Segment(0, n, KEEP),))


def selective(layers: int) -> Plan:
    """The plan that drops every layer's core alone: in a transformer what is s x s.

    Source: Korthikanti et al. 2022 (arXiv 2205.05198), section 5.
    """
    n = _layers(layers)
    return Plan(n, (Segment(0, n, SELECTIVE),))


def every_layer(layers: int) -> Plan:
    """The plan that keeps every layer's input, and runs each again right before its backward."""
    return every(layers, 1)


def every(layers: int, k: int) -> Plan:
    """Segments of k layers, each run again as one; the last has what is left."""
    n, k = _layers(layers), count("k", k)
    return _cut(n, range(0, n, k))


def segments(layers: int, k: int) -> Plan:
    """k segments, each run again as one, as equal as whole numbers allow; longer ones come first.

    Backward meets the last segment while the inputs of all others are still kept, and the first
    when they are gone: so the room is for longer segments at the start. Raises ValueError for more
    segments than layers.
    """
    n = _layers(layers)
    k = count("k", k)
    if k > n:
        refuse("k", k, f"at most the number of layers, {n}: a segment has a layer or more")
    return _cut(n, [i * (n // k) + min(i, n % k) for i in range(k)])


def square_root(layers: int) -> Plan:
    """About sqrt(layers) segments: the whole number nearest to where k + layers/k is least.

    Source: Chen et al. 2016 (arXiv 1604.06174), section 4.1.
    """
    n = _layers(layers)
    k = isqrt(n)
    return segments(n, k + (n > k * (k + 1)))  # (k + 1/2)^2 is k (k + 1), and a quarter


def first_layers(layers: int, n: int) -> Plan:
    """The first n layers run again one by one, the rest kept: Megatron's method "block"."""
    total, n = _layers(layers), count("n", n, least=0)
    if n > total:
        refuse("n", n, f"at most the number of layers, {total}")
    if n == 0:
        return keep_all(total)
    return every_layer(n) + keep_all(total - n) if n < total else every_layer(n)


def _layers(layers: int) -> int:
    return count("layers", layers, most=MOST_LAYERS)


def _cut(layers: int, starts: Sequence[int]) -> Plan:
    """Segments that are run again, from these starts, the first of which is 0."""
    cut = (Segment(*pair, RECOMPUTE) for pair in pairwise([*starts, layers]))
    return Plan(layers, tuple(cut))
