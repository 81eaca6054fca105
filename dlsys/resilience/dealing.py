"""Deduplication: of copies on many ranks one is written, and each rank writes about as much."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from dlsys.resilience.plan import BYTES, Region, TensorEntry

_LEAST = 4096  # bytes, a page: nothing smaller is cut


def deal(
    entries: Mapping[str, TensorEntry], held: Sequence[Sequence[Region]]
) -> list[list[Region]]:
    """The regions that each rank writes, of those that it holds.

    What one rank alone holds it writes. What several hold goes, the largest first, to the one of
    them that has least to write (Graham 1969, "Bounds on multiprocessing timing anomalies"). What
    is more than an eighth of a rank's fair share is cut into rows, so that none gets much more.
    """
    holders: dict[Region, list[int]] = {}
    for rank, each in enumerate(held):
        for region in dict.fromkeys(each):
            holders.setdefault(region, []).append(rank)
    width = {name: BYTES[entry.dtype] for name, entry in entries.items()}
    share = sum(region.elements * width[region.name] for region in holders) / len(held)
    written: list[list[Region]] = [[] for _ in held]
    load = [0] * len(held)
    shared: dict[tuple[int, ...], list[Region]] = {}
    for region, ranks in holders.items():
        if len(ranks) == 1:
            written[ranks[0]].append(region)
            load[ranks[0]] += region.elements * width[region.name]
        else:
            most = int(max(share / 8, _LEAST) / width[region.name])
            shared.setdefault(tuple(ranks), []).extend(in_rows(region, most))
    for several, regions in shared.items():
        heap = [(load[rank], rank) for rank in several]
        heapq.heapify(heap)
        for region in sorted(regions, key=lambda r: (-r.elements * width[r.name], r)):
            loaded, rank = heapq.heappop(heap)
            written[rank].append(region)
            load[rank] = loaded + region.elements * width[region.name]
            heapq.heappush(heap, (load[rank], rank))
    # Wide numbers first, so that each begins at a multiple of its width, as safetensors has it.
    return [sorted(regions, key=lambda r: (-width[r.name], r)) for regions in written]


def in_rows(region: Region, most: int) -> Iterator[Region]:
    """A region in even parts along axis 0, of `most` elements at most where rows are that small."""
    parts = min(-(-region.elements // most), region.sizes[0] if region.sizes else 1)
    if parts <= 1:
        yield region
        return
    cuts = [part * region.sizes[0] // parts for part in range(parts + 1)]
    for first, end in pairwise(cuts):
        offsets = (region.offsets[0] + first, *region.offsets[1:])
        yield Region(region.name, offsets, (end - first, *region.sizes[1:]))
