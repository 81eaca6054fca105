"""From the state of every rank to one manifest, and to what this rank has to write of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import xxhash
from torch import Tensor

from dlsys.checks import shown
from dlsys.resilience.dealing import deal
from dlsys.resilience.files import as_bytes
from dlsys.resilience.plan import FileEntry, Manifest, Region, TensorEntry
from dlsys.resilience.refused import CheckpointError
from dlsys.resilience.state import State
from dlsys.resilience.together import Together
from dlsys.resilience.tree import merged, text_of


class Gathered(NamedTuple):
    """A manifest that lacks sizes and hashes of files, and the tensors of this rank's file."""

    manifest: Manifest
    parts: list[Tensor]


def gather(state: Any, step: int, ranks: Together) -> Gathered:
    """What all ranks agree to write.

    Raises CheckpointError on every rank where their states or steps do not fit together.
    """
    doing = f"the state of step {step} cannot be saved"
    mine, told, error = None, None, None
    try:
        mine = State(state, ranks.rank)
        text_of(mine.tree)
        told = [step, mine.tree, list(mine.entries.values()), _prints(mine.parts, ranks.size)]
    except Exception as found:  # whatever a tensor's own class may raise: the others wait
        if ranks.size == 1:
            raise
        error = found
    heard = ranks.agree(doing, error, told)
    assert mine is not None
    steps = [each for each, *_ in heard]
    if len({*steps}) > 1:
        raise CheckpointError(
            f"step is {shown(steps)} on ranks 0 to {ranks.size - 1}; it must be the same on all."
        )
    entries: dict[str, TensorEntry] = {}
    prints = [
        {Region(n, tuple(o), tuple(s)): found for (n, o, s), found in each} for *_, each in heard
    ]
    held = [list(each) for each in prints]
    try:
        for rank, (*_, listed, _) in enumerate(heard):
            _join(entries, listed, rank)
        text = text_of(merged([tree for _, tree, *_ in heard]))
        _check_replicas(prints)
        dealt = deal(entries, held)
        files = tuple(FileEntry(tuple(regions)) for regions in dealt)
        manifest = Manifest(step, tuple(entries.values()), files, text)
        manifest.check()
    except ValueError as different:  # on every rank alike, for all have heard the same
        raise CheckpointError(f"{doing}: {different}") from None
    return Gathered(manifest, [_cut(mine.parts, region) for region in dealt[ranks.rank]])


def _join(entries: dict[str, TensorEntry], listed: Iterable[Any], rank: int) -> None:
    for name, shape, dtype in listed:
        entry = TensorEntry(name, tuple(shape), dtype)
        other = entries.setdefault(name, entry)
        if other != entry:
            raise ValueError(
                f"{name} is of shape {entry.shape} and {dtype} on rank {rank}, and of "
                f"{other.shape} and {other.dtype} on another"
            )


def _prints(parts: Mapping[Region, Tensor], ranks: int) -> list[tuple[Region, str]]:
    """Each region with its fingerprint, which nobody needs of a rank that is alone."""
    return [(region, fingerprint(part) if ranks > 1 else "") for region, part in parts.items()]


def _check_replicas(prints: Sequence[Mapping[Region, str]]) -> None:
    """Raise ValueError where ranks hold other numbers in the place of the same ones."""
    first: dict[Region, tuple[int, str]] = {}
    for rank, each in enumerate(prints):
        for region, found in each.items():
            other, right = first.setdefault(region, (rank, found))
            if found != right:
                raise ValueError(
                    f"{region} has other numbers on rank {rank} than on rank {other}: a tensor "
                    "that is no Shard is the same everywhere; wrap in PerRank what every rank has "
                    "of its own"
                )


def fingerprint(tensor: Tensor) -> str:
    """What is the same for the same numbers, and another for others but by a rare chance: XXH3,
    of 128 bits, at the speed of memory (https://xxhash.com; no cryptographic hash)."""
    return xxhash.xxh3_128_hexdigest(as_bytes(tensor))


def _cut(parts: Mapping[Region, Tensor], region: Region) -> Tensor:
    """A region that this rank has, or some rows of one."""
    if region in parts:
        return parts[region]
    for held, tensor in parts.items():
        if held.name == region.name and held.box.common(region.box) == region.box:
            first = region.offsets[0] - held.offsets[0]
            return tensor[first : first + region.sizes[0]]
    raise AssertionError(f"{region} is not here")
