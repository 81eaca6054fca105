"""What optimizers hold and move, in bytes, and what a step takes, in seconds, span by span."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from dlsys.annotated import checked
from dlsys.checks import at_least, count, some
from dlsys.streams import Span
from dlsys.units import Catalogue

if TYPE_CHECKING:
    from dlsys.training_loop.plan import StepPlan
    from dlsys.transformer import TransformerSpec

Shape = Sequence[int]
BLOCK, LEAST_8_BIT = 2048, 4096
"""Elements that share the scale of an 8-bit moment, and of the least tensor that has such."""


class OptimizerPrice(NamedTuple):
    """`held(shape, rank)`: bytes of state for a parameter of this shape; `why` they are needed."""

    held: Callable[[Shape, int], int]
    why: str


def _moments(number: int, shape: Shape, rank: int) -> int:
    return 4 * number * math.prod(shape)


def _factored(shape: Shape, rank: int) -> int:
    if len(shape) < 2:
        return 4 * math.prod(shape)
    *others, rows, columns = shape
    return 4 * math.prod(others) * (rows + columns)


def _orthogonal(shape: Shape, rank: int) -> int:
    return 4 * (1 if len(shape) == 2 else 2) * math.prod(shape)


def _low_rank(shape: Shape, rank: int) -> int:
    if len(shape) != 2 or min(shape) <= rank:
        return 8 * math.prod(shape)
    return 4 * rank * (min(shape) + 2 * max(shape))


def _bytes(shape: Shape, rank: int) -> int:
    size = math.prod(shape)
    return 2 * size + 8 * -(-size // BLOCK) if size >= LEAST_8_BIT else 8 * size


OPTIMIZERS: Catalogue[OptimizerPrice] = Catalogue(
    "optimizer",
    {
        "sgd": OptimizerPrice(partial(_moments, 0), "remembers nothing"),
        "momentum": OptimizerPrice(partial(_moments, 1), "one running sum of gradients"),
        "rmsprop": OptimizerPrice(partial(_moments, 1), "one running average of squared gradients"),
        "adamw": OptimizerPrice(
            partial(_moments, 2), "an average of gradients, and one of their squares"
        ),
        "adafactor": OptimizerPrice(
            _factored, "of a matrix's squares, the mean of each row and of each column"
        ),
        "muon": OptimizerPrice(
            _orthogonal, "one average for the layers' matrices; else AdamW's two"
        ),
        "galore": OptimizerPrice(
            _low_rank, "for the layers' matrices two averages and a projection; else AdamW's two"
        ),
        "8bit-adam": OptimizerPrice(
            _bytes, "AdamW's two in a byte each; an FP32 scale for each block of 2,048"
        ),
    },
)
"""Names of optimizers with FP32 states; of `galore` the rank matters, of the others it does not."""


@checked
def state_bytes(optimizer: str, shapes: Sequence[Shape], rank: int = 128) -> int:
    """Bytes that an optimizer holds between steps, for parameters of these shapes.

    Args: `optimizer`, a name in OPTIMIZERS; `shapes`, one for each parameter tensor; `rank` of
    GaLore's projection. Raises UnknownNameError for another name, ValueError for no shapes.
    """
    held, rank = OPTIMIZERS[optimizer].held, count("rank", rank)
    return sum(held(shape, rank) for shape in _shapes(shapes))


@checked
def update_bytes(optimizer: str, shapes: Sequence[Shape], rank: int = 128) -> int:
    """Bytes that an update in FP32 moves at least: weights, gradients and state, each once.

    Reads weights, gradients, state, and writes weights and state: 12 a parameter, and twice the
    state's. AdamW's 28 in one fused kernel; a kernel for each operation moves two to three times
    as many. No reuse within: each number takes part in a dozen operations, so memory is the limit.
    """
    elements = sum(math.prod(shape) for shape in _shapes(shapes))
    return 12 * elements + 2 * state_bytes(optimizer, shapes, rank)


def _shapes(shapes: Sequence[Shape]) -> list[tuple[int, ...]]:
    some("shapes", shapes)
    return [tuple(count("shapes: a size", n, most=10**15) for n in shape) for shape in shapes]


class Shapes(NamedTuple):
    """Shapes of parameters: `matrices` of hidden layers; `others`, embeddings and the head as
    matrices, and all norms and biases as one vector."""

    matrices: Sequence[Shape]
    others: Sequence[Shape]


@checked
def shapes_of(spec: TransformerSpec) -> Shapes:
    """The matrices of attention and feed-forward networks; embeddings, head, norms and biases.

    Query, key and value are matrices of their own, as `dlsys.model.GPT` has them.
    """
    h, keys = spec.hidden, spec.kv_heads * spec.head_size
    within: list[tuple[int, int]] = []
    for layer in range(spec.layers):
        for m in (*spec.attention_matrices(), *spec.ffn_matrices(layer)):
            qkv = [(h, m.columns - 2 * keys), (h, keys), (h, keys)]
            within += qkv if m.name == "qkv" else [(m.rows, m.columns)] * m.copies
    if spec.positions == "relative":
        within += [(h, spec.heads * spec.head_size)] * spec.layers
    counts = spec.parameter_counts()
    tables = ("token_embedding", "position_embedding", "type_embedding", "head")
    beside = [(counts[part] // h, h) for part in tables if part in counts] + [(h, h)] * spec.pooler
    vectors = spec.parameters() - sum(math.prod(shape) for shape in within + beside)
    return Shapes(within, [*beside, (vectors,)])


@checked
def model_state_bytes(optimizer: str, spec: TransformerSpec, rank: int = 128) -> int:
    """`state_bytes` for a model: of `muon` and `galore` for the matrices of hidden layers alone.

    These two leave embeddings, head, norms and biases to AdamW; every other rule, `adafactor` too,
    has all parameters.
    """
    matrices, others = shapes_of(spec)
    beside = "adamw" if optimizer in ("muon", "galore") else optimizer
    return state_bytes(optimizer, matrices, rank) + state_bytes(beside, others)


@dataclass(frozen=True)
class Price:
    """A step's spans in order: "load ...", by whoever loads, and what the device does."""

    spans: Sequence[Span]

    @property
    def seconds(self) -> float:
        """Seconds of the whole step."""
        return max((span.end for span in self.spans), default=0.0)

    @property
    def busy(self) -> float:
        """The part of the step in which the device is in a forward or backward pass."""
        names = ("forward", "backward")
        passes = (s.seconds for s in self.spans if s.action.startswith(names))
        return sum(passes) / self.seconds if self.seconds else 1.0


@checked
def price(
    plan: StepPlan,
    forward: float,
    backward: float,
    update: float,
    reduce: float,
    load: float,
    prefetch: bool,
) -> Price:
    """The seconds of a step on one device.

    `forward`, `backward` and `load` are seconds for the largest micro-batch, and fall with the
    tokens of smaller ones; `update` and `reduce` are for the whole model. A micro-batch is loaded
    just before it passes; with `prefetch` from the step's start on, one after the other, while the
    device computes, so that only the first is waited for in full. k micro-batches take
    k (forward + backward) + reduce + update and what loading cannot hide: as long as the whole
    batch would, were there memory for it.
    """
    seconds = {"forward": forward, "backward": backward, "update": update, "reduce": reduce}
    for name, each in (seconds | {"load": load}).items():
        at_least(name, each, 0)
    spans: list[Span] = []
    now = loaded = 0.0
    for action in plan.actions:
        part = 1.0
        if action.micro_batch >= 0:
            part = plan.tokens[action.micro_batch] / max(plan.tokens)
        if action.kind == "forward" and load:
            begin = loaded if prefetch else now
            loaded = begin + load * part
            spans.append(Span(f"load {action.micro_batch}", begin, loaded))
            now = max(now, loaded)
        if took := seconds.get(action.kind, 0.0) * part:
            spans.append(Span(str(action), now, now + took))
            now += took
    return Price(tuple(spans))
