"""The proof that a layout's ranks compute together what one device does."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dlsys.tensor_parallel.plan import BRANCHES, Layout, LayoutError

# What a rank holds of a tensor: all of it, some tokens, some features, or one addend of a sum; and
# what a matrix or a collective makes of it. Any other pair would compute something else.
MOVES = {
    ("all", "column-parallel"): "features",
    ("features", "row-parallel"): "addend",
    ("addend", "all_reduce"): "all",
    ("addend", "reduce_scatter"): "tokens",
    ("tokens", "all_gather"): "all",
    ("all", "copied"): "all",
    ("tokens", "copied"): "tokens",
}
TRANSPOSED = {
    "column-parallel": "row-parallel",
    "row-parallel": "column-parallel",
    "copied": "copied",
}
HELD = {
    "all": "all of the tensor",
    "tokens": "all features of some tokens",
    "features": "some features of all tokens",
    "addend": "one addend of a sum",
}
ADVICE = {
    "all": "cut by columns the matrix before it",
    "tokens": "gather the tokens first",
    "features": "gather the features first, or cut it by rows",
    "addend": "sum the addends first",
}


def check(layout: Layout) -> None:
    """Prove the layout right, or raise LayoutError with what is wrong.

    Every parameter is there once, and its pieces make up the whole. Then every path through the
    matrices is walked with what a rank holds at each place (`MOVES`): forward, and backward, where
    a matrix acts transposed, columns for rows. In a branch, between the two matrices, everything
    acts on single heads or neurons: a rank must have there just those that its next matrix reads.
    Last, biases are cut as what they are added to, everything else is copied, and gradients of
    which ranks find parts are summed.
    """
    _check_parameters(layout)
    if layout.tp == 1:
        return
    between = "tokens" if layout.sequence_parallel else "all"
    # A look-up is a product with a one-hot row, of which a rank has the features of its words, and
    # an embedding's rows are what a linear layer of torch calls columns.
    lookup = TRANSPOSED[_kind(layout, "embedding.weight")]
    _walk(layout, "embedding", [("embedding.weight", lookup)], "features", between)
    walked = {"embedding.weight"}
    for branch, (reading, writing) in BRANCHES.items():
        for matrix in reading:
            if matrix != "gate" or layout.spec.gated:
                names = [f"layers.*.{branch}.{m}.weight" for m in (matrix, writing)]
                path = [(name, _kind(layout, name)) for name in names]
                _walk(layout, branch, path, between, between)
                _check_fit(layout, *names)
                walked.update(names)
    head = "embedding.weight" if layout.spec.tied else "head.weight"
    _walk(layout, "head", [(head, _kind(layout, head))], between, "features")
    _check_others(layout, walked | {head})
    _check_gradients(layout)


def _kind(layout: Layout, name: str) -> str:
    dimension = layout[name].dimension
    return "copied" if dimension is None else ("column-parallel", "row-parallel")[dimension]


def _check_parameters(layout: Layout) -> None:
    spec, names = layout.spec, [p.name for p in layout.parameters]
    for name in names:
        if names.count(name) > 1:
            raise LayoutError(f"{name} is in the layout {names.count(name)} times.")
    covered = sum(layout.times(p) * math.prod(p.shape) for p in layout.parameters)
    if covered != spec.parameters():
        raise LayoutError(
            f"The layout covers {covered:,} of the model's {spec.parameters():,} parameters."
        )
    for p in layout.parameters:
        pieces = {p.bounds(rank): math.prod(p.shard(rank)) for rank in range(layout.tp)}
        if sum(pieces.values()) != math.prod(p.shape):
            raise LayoutError(
                f"{p.name}: the pieces that {layout.tp} ranks hold have {sum(pieces.values()):,} "
                f"numbers, and the whole has {math.prod(p.shape):,}."
            )


def _walk(layout: Layout, part: str, path: Sequence[tuple[str, str]], start: str, end: str) -> None:
    """Follow a path of matrices, each with its kind, from `start` to `end` and back."""
    communication = layout.layer if part in BRANCHES else getattr(layout, part)
    transposed = [(f"{name} transposed", TRANSPOSED[kind]) for name, kind in reversed(path)]
    for words, calls, ends, steps, held, target in (
        ("forward", communication.forward, ("input", "output"), path, start, end),
        ("backward", communication.backward, ("output", "input"), transposed, end, start),
    ):
        first, last = ([(c.where, c.kind) for c in calls if c.where == f"{part}.{e}"] for e in ends)
        for name, kind in [*first, *steps, *last]:
            if (held, kind) not in MOVES:
                need = " or ".join(HELD[h] for h, k in MOVES if k == kind)
                raise LayoutError(
                    f"{words}, {part}: a rank has {HELD[held]}, but {name} ({kind}) takes {need}: "
                    f"{ADVICE[held]}."
                )
            held = MOVES[held, kind]
        if held != target:
            raise LayoutError(
                f"{words}, {part}: at its end a rank has {HELD[held]}, where it must have "
                f"{HELD[target]}."
            )


def _check_fit(layout: Layout, before: str, after: str) -> None:
    """Check that each rank has before `after` just the heads or neurons that `after` reads."""
    leaving, reading = layout[before], layout[after]
    size = layout.spec.head_size if "attention" in before else 1
    sharing = reading.shape[1] // leaving.shape[0]  # query heads that read one key-value head
    for rank in range(layout.tp):
        first, stop = reading.bounds(rank)
        needed = first // size // sharing * size, ((stop - 1) // size // sharing + 1) * size
        if first % size or leaving.bounds(rank) != needed:
            raise LayoutError(
                f"rank {rank} holds {after} {first} to {stop}, which reads {before} "
                f"{needed[0]} to {needed[1]}, but holds {leaving.bounds(rank)[0]} to "
                f"{leaving.bounds(rank)[1]} of that."
            )


def _check_others(layout: Layout, matrices: set[str]) -> None:
    """Check that a column-parallel matrix's bias is cut like it, and all other vectors nowhere."""
    for p in layout.parameters:
        if p.name in matrices:
            continue
        weight = p.name.removesuffix("bias") + "weight"
        like = layout[weight] if weight in matrices else None
        dimension, pieces = (0, like.pieces) if like and like.dimension == 0 else (None, 1)
        if (p.dimension, p.pieces) != (dimension, pieces):
            needs = f"rows that {weight} has" if dimension == 0 else "numbers: copy it"
            raise LayoutError(f"{p.name} is {p.cut}, but each rank needs all {needs}.")


def _check_gradients(layout: Layout) -> None:
    """Check that a gradient of which ranks find parts is summed over all that find one."""
    for p in layout.parameters:
        parts = p.ranks // p.pieces  # each neighbour's heads add to it
        if p.dimension is None:  # each rank's tokens do, where it has some of them alone
            parts = layout.tp if layout.sequence_parallel else 1
        if p.summed != parts:
            raise LayoutError(
                f"{p.name}: {parts} ranks find parts of its gradient, but {p.summed} are summed."
            )
