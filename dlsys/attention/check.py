"""The proof that a schedule is right: every pair once, what stays comes once, all fits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from dlsys.annotated import checked
from dlsys.attention.plan import MOST_TILES, QUERIES, Schedule, Step, Tiling
from dlsys.attention.price import backward_resident, forward_resident
from dlsys.checks import count, positive


def check(schedule: Schedule) -> None:
    """Prove that each pair that the mask allows is visited exactly once.

    Raises ValueError that names the step: for a tile that there is not, one visited twice or not at
    all or without a pair, and for an operand that should stay and comes a second time.
    """
    tiling, outer = schedule.tiling, 0 if schedule.outer == QUERIES else 1
    seen: set[Step] = set()
    left: set[int | None] = set()
    last: int | None = None
    for number, step in enumerate(schedule.steps):
        at = f"Step {number} visits queries {step[0]} and keys {step[1]}"
        _check_one(tiling, step, at)
        if step in seen:
            raise ValueError(f"{at} a second time: its pairs would count twice.")
        seen.add(step)
        if step[outer] != last:
            if step[outer] in left:
                raise ValueError(f"{at}, but {schedule.outer} {step[outer]} had left fast memory.")
            left.add(last)
            last = step[outer]
    # Each side is counted in its own loop, so a tile that one of them skips shows.
    for i in range(tiling.query_tiles):
        for j in tiling.sees(i):
            if (i, j) not in seen:
                raise ValueError(
                    f"No step visits queries {i} and keys {j}, of which the mask allows some pair."
                )


def _check_one(tiling: Tiling, step: Step, at: str) -> None:
    if not (0 <= step[0] < tiling.query_tiles and 0 <= step[1] < tiling.key_tiles):
        raise ValueError(
            f"{at}; there are {tiling.query_tiles} tiles of queries and {tiling.key_tiles} of keys."
        )
    if step[1] not in tiling.sees(step[0]):
        raise ValueError(f"{at}, of which the mask allows no pair: skip it.")


@checked
def check_fits(
    tiling: Tiling,
    head_size: int,
    nbytes: float,
    itemsize: int = 4,
    group: int = 1,
    backward: bool = False,
) -> None:
    """Check that what is resident in one pass fits in `nbytes` of fast memory.

    Raises ValueError that names the bytes, and the next tiles that fit.
    """
    positive("nbytes", nbytes)
    resident = backward_resident if backward else forward_resident
    size = count("itemsize", itemsize)

    def needed(tiles: Tiling) -> int:
        return size * resident(tiles, head_size, group)

    if needed(tiling) <= nbytes:
        return
    raise ValueError(
        f"Tiles of {tiling.query_tile} queries and {tiling.key_tile} keys (head_size {head_size}, "
        f"group {group}, itemsize {itemsize}) hold {needed(tiling):,} bytes in fast memory, and "
        f"nbytes is {nbytes:,.0f}; {_advice(tiling, needed, nbytes)}."
    )


def _advice(tiling: Tiling, needed: Callable[[Tiling], int], nbytes: float) -> str:
    """The next tiles that fit: smaller on one side, else on both."""
    # Fewer than these and there would be more tiles than a tiling may have.
    rows, columns = (-(-n // MOST_TILES) for n in (tiling.queries, tiling.keys))

    def make(b: int) -> Tiling:
        return replace(tiling, query_tile=max(rows, b), key_tile=max(columns, b))

    sides: tuple[tuple[str, Callable[[int], Tiling], int, int], ...] = (
        ("queries", lambda b: replace(tiling, query_tile=b), rows, tiling.query_tile),
        ("keys", lambda b: replace(tiling, key_tile=b), columns, tiling.key_tile),
    )
    found = [
        f"{tile} {name}"
        for name, shrink, least, most in sides
        if (tile := _most(shrink, needed, least, most, nbytes))
    ]
    if found:
        return f"instead, {' or '.join(found)} would fit"
    if b := _most(make, needed, 1, min(tiling.query_tile, tiling.key_tile), nbytes):
        both = make(b)
        return f"instead, tiles of {both.query_tile} by {both.key_tile} would fit"
    return f"not even tiles of {rows} by {columns} would fit"


def _most(
    make: Callable[[int], Tiling],
    needed: Callable[[Tiling], int],
    least: int,
    most: int,
    nbytes: float,
) -> int:
    """The largest tile from `least` to below `most` that fits, 0 where none does."""
    low, high = least - 1, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if needed(make(middle)) <= nbytes else (low, middle)
    return low if low >= least else 0
