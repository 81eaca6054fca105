"""Which layers go to which stage: contiguous parts, the heaviest as light as can be."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import SupportsIndex

from dlsys.annotated import checked
from dlsys.checks import at_least, count, positive, some
from dlsys.transformer import TransformerSpec

_NO_WEIGHTS = ("scores", "position_scores", "weighted_sum")
"""Operations of a layer whose two operands are both activations."""


@checked
def partition(costs: Sequence[float], p: SupportsIndex) -> tuple[range, ...]:
    """The pieces of each of p contiguous parts, cut so that the largest sum of costs is smallest.

    Of several such cuts it is the one with the smallest second largest sum, and so on; of equal
    ones that whose first parts are the smaller, as the first stages hold the most micro-batches.
    Exact, by dynamic programming over the last cut: p len(costs)^2 / 2 steps, each on p sums.
    Raises ValueError for fewer pieces than parts or a cost below zero.
    """
    p, pieces = count("p (the number of stages)", p), len(costs)
    for piece, cost in enumerate(costs):
        at_least(f"The cost of piece {piece}", cost, 0)
    some("costs", costs)
    if pieces < p:
        raise ValueError(
            f"{pieces} pieces are too few for {p} stages, each of which needs one; the nearest "
            f"number of stages that works: {pieces}."
        )
    before = list(accumulate(costs, initial=0))
    # The linear partition problem: the best cut into `part` parts grows out of those into one less.
    # best[stop]: the sums of the best cut of the first `stop` pieces, largest first, and its cuts.
    # Adding the same part to two cuts keeps their order, so only the best one has to be known.
    best: dict[int, tuple[list[float], list[int]]] = {0: ([], [0])}
    for part in range(1, p + 1):
        best = {
            stop: min(
                (sorted([*sums, before[stop] - before[start]], reverse=True), [*cuts, stop])
                for start, (sums, cuts) in best.items()
                if start < stop
            )
            for stop in range(part, pieces - p + part + 1)
        }
    cuts = best[pieces][1]
    return tuple(map(range, cuts, cuts[1:]))


@checked
def piece_flops(spec: TransformerSpec) -> list[int]:
    """Forward FLOPs of one sequence through each piece of a model: embedding, layers, head.

    Looking up an embedding costs none. A stage's backward pass takes twice its forward pass.
    """
    layers = [sum(spec.operations(1, layer).values()) for layer in range(spec.layers)]
    return [0, *layers, spec.operations(1)["head"]]


@checked
def stage_seconds(
    spec: TransformerSpec, pieces: Sequence[range], rate: float, batch: SupportsIndex = 1
) -> dict[str, list[float]]:
    """What every stage takes for a micro-batch of `batch` sequences: `plan.price(**this)`.

    pieces: those of every stage, as `partition` gives them; rate: FLOP/s of a rank. A product x w
    costs as much again for the gradient of x ("backward") and for that of w ("weight_backward").
    Attention multiplies no weights, so its whole backward pass is in the first of the two.
    """
    positive("rate, in FLOP/s,", rate)
    per_flop = count("batch", batch) / rate
    flops = piece_flops(spec)
    without = [0] * len(flops)
    for layer in range(spec.layers):
        operations = spec.operations(1, layer)
        without[layer + 1] = sum(operations.get(name, 0) for name in _NO_WEIGHTS)
    forward = [sum(flops[piece] for piece in part) * per_flop for part in pieces]
    attention = [sum(without[piece] for piece in part) * per_flop for part in pieces]
    pairs = list(zip(forward, attention, strict=True))
    return {
        "forward": forward,
        "backward": [f + a for f, a in pairs],
        "weight_backward": [f - a for f, a in pairs],
    }


@checked
def piece_parameters(spec: TransformerSpec) -> list[int]:
    """Parameters of each piece of a model: embedding, layers, head with the last norm.

    A tied head counts: a stage that holds it without the embedding holds a copy of its matrix.
    """
    parts = spec.parameter_counts()
    ends = ("token_embedding", "position_embedding", "type_embedding", "embedding_norm")
    embedding = sum(parts.pop(part, 0) for part in ends)
    norm = spec.hidden * (2 if spec.norm == "layer" and spec.bias else 1)
    alike = (parts.pop("attention") + parts.pop("norms") - norm) // spec.layers
    del parts["ffn"]
    bias = int(spec.bias)
    layers = [
        alike
        + sum(
            m.copies * (m.rows + (bias if m.name != "router" else 0)) * m.columns
            for m in spec.ffn_matrices(layer)
        )
        for layer in range(spec.layers)
    ]
    head = norm + sum(parts.values()) + (spec.vocab * spec.hidden if spec.tied else 0)
    return [embedding, *layers, head]
