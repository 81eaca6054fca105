"""Boxes of indices: `offsets[k]` to `offsets[k] + sizes[k]` on each axis k.

Whether boxes cover a tensor exactly once is told by their corners alone: give each box +1 at its
first corner, and a change of sign for each axis along which one goes to its far side. Summed up
over all indices below a point, this gives how many boxes hold the point (inclusion and exclusion),
so the boxes cover what one large box covers just where the sums of corners are the large box's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import Generic, NamedTuple, TypeVar

Ints = tuple[int, ...]
Found = TypeVar("Found")


class Box(NamedTuple):
    """The indices from `offsets` up, `sizes` of them on each axis."""

    offsets: Ints
    sizes: Ints

    @property
    def ends(self) -> Ints:
        """One beyond the last index on each axis."""
        return tuple(o + s for o, s in zip(self.offsets, self.sizes, strict=True))

    def __str__(self) -> str:
        return f"[{', '.join(f'{o}:{e}' for o, e in zip(self.offsets, self.ends, strict=True))}]"

    def holds(self, point: Sequence[int]) -> bool:
        """Whether the point is in it."""
        return all(o <= p < e for o, p, e in zip(self.offsets, point, self.ends, strict=True))

    def common(self, other: Box) -> Box | None:
        """The box of what is in both; None where nothing is."""
        first = tuple(map(max, self.offsets, other.offsets))
        sizes = tuple(e - f for e, f in zip(map(min, self.ends, other.ends), first, strict=True))
        return Box(first, sizes) if all(size > 0 for size in sizes) else None


def miscounted(boxes: Sequence[Box], shape: Ints) -> tuple[Ints, int] | None:
    """The first index, in order, that is not in exactly one of the boxes, and in how many it is.

    None where all are. Takes time in proportion to the boxes (times two for each axis that is cut).
    """
    cut = [k for k, size in enumerate(shape) if any(box.sizes[k] != size for box in boxes)]
    sums: Counter[Ints] = Counter()
    for box, sign in [(Box((0,) * len(shape), shape), -1), *((box, 1) for box in boxes)]:
        for corner, turn in _corners(box, cut):
            sums[corner] += sign * turn
    wrong = min((corner for corner, total in sums.items() if total), default=None)
    if wrong is None:
        return None
    # No corner lies below the first one that does not come out, so its sum is the whole count.
    index = [0] * len(shape)
    for k, place in zip(cut, wrong, strict=True):
        index[k] = place
    return tuple(index), 1 + sums[wrong]


def _corners(box: Box, cut: Sequence[int]) -> Iterator[tuple[Ints, int]]:
    sides = [((box.offsets[k], 1), (box.offsets[k] + box.sizes[k], -1)) for k in cut]
    if 0 in box.sizes:
        return
    for corner in product(*sides):
        sign = 1
        for _, turn in corner:
            sign *= turn
        yield tuple(place for place, _ in corner), sign


def room_at(point: Ints, boxes: Sequence[Box], shape: Ints) -> Box:
    """A box of indices that none of the boxes holds, from `point` on, which none holds either."""
    room = Box(point, (1,) * len(shape))
    for k in reversed(range(len(shape))):
        onward = Box(point, _with(room.sizes, k, shape[k] - point[k]))
        met = (both.offsets[k] for box in boxes if (both := box.common(onward)))
        room = Box(point, _with(room.sizes, k, min(met, default=shape[k]) - point[k]))
    return room


def _with(sizes: Ints, axis: int, size: int) -> Ints:
    return (*sizes[:axis], size, *sizes[axis + 1 :])


class Index(Generic[Found]):
    """Boxes with what belongs to each, asked for those that a box meets.

    A tree: each node holds half of its parent's boxes, split along the axis where they lie furthest
    apart, and the box around them. A question goes down only where the boxes around meet.
    """

    def __init__(self, entries: Iterable[tuple[Box, Found]]) -> None:
        self._root = _node([entry for entry in entries if 0 not in entry[0].sizes])

    def meeting(self, box: Box) -> list[tuple[Box, Found]]:
        """(what is common, what belongs to it) for each box that meets this one, in no order."""
        found, open_ = [], [self._root] if self._root else []
        while open_:
            node = open_.pop()
            if node.around.common(box) is None:
                continue
            open_ += node.halves
            for one, what in node.entries:
                both = one.common(box)
                if both is not None:
                    found.append((both, what))
        return found


class _Node(NamedTuple):
    around: Box
    entries: list
    halves: list


_FEW = 8  # boxes that are looked at one by one


def _node(entries: list) -> _Node | None:
    if not entries:
        return None
    firsts = [*zip(*(box.offsets for box, _ in entries), strict=True)]
    ends = [*zip(*(box.ends for box, _ in entries), strict=True)]
    first = tuple(map(min, firsts))
    around = Box(first, tuple(max(e) - f for e, f in zip(ends, first, strict=True)))
    spread = [max(each) - min(each) for each in firsts]
    if len(entries) <= _FEW or not any(spread):
        return _Node(around, entries, [])
    axis = spread.index(max(spread))
    entries.sort(key=lambda entry: entry[0].offsets[axis])
    half = len(entries) // 2
    return _Node(around, [], [_node(entries[:half]), _node(entries[half:])])
