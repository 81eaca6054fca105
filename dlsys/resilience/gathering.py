"""From the state of every rank to one manifest, and to what this rank has to write of it."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dlsys.resilience.dealing import deal
from dlsys.resilience.files import as_bytes
from dlsys.resilience.plan import FileEntry, Manifest, Region, TensorEntry
from dlsys.resilience.refused import CheckpointError
from dlsys.resilience.state import State
from dlsys.resilience.together import Together
from dlsys.resilience.tree import merged, text_of

_WORDS = 1024  # of 4 bytes, of which one number is made in a tensor too large to be hashed at once
_SMALL = 2**20  # bytes
_AT_ONCE = 2**16  # words, that what is made of them stays in a processor's cache


class Gathered(NamedTuple):
    """A manifest that lacks sizes and hashes of files, and the tensors of this rank's file."""

    manifest: Manifest
    parts: list[Tensor]


def gather(state: Any, step: int, ranks: Together) -> Gathered:
    """What all ranks agree to write.

    Raises CheckpointError on every rank where their states do not fit together.
    """
    doing = f"the state of step {step} cannot be saved"
    mine, error = None, None
    try:
        mine = State(state, ranks.rank)
        text_of(mine.tree)
    except Exception as found:  # whatever a tensor's own class may raise: the others wait
        if ranks.size == 1:
            raise
        error = found
    told = mine and [mine.tree, list(mine.entries.values()), list(mine.parts)]
    heard = ranks.agree(doing, error, told)
    assert mine is not None
    entries: dict[str, TensorEntry] = {}
    held = [[Region(n, tuple(o), tuple(s)) for n, o, s in regions] for *_, regions in heard]
    try:
        for rank, (_, listed, _) in enumerate(heard):
            _join(entries, listed, rank)
        text = text_of(merged([tree for tree, *_ in heard]))
        _check_replicas(mine.parts, held, ranks)
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


def _check_replicas(
    parts: Mapping[Region, Tensor], held: list[list[Region]], ranks: Together
) -> None:
    """Raise ValueError where ranks hold other numbers in the place of the same ones."""
    if ranks.size == 1:
        return
    times: dict[Region, int] = {}
    for regions in held:
        for region in regions:
            times[region] = times.get(region, 0) + 1
    shared = [region for region, number in times.items() if number > 1]
    mine = [fingerprint(parts[region]) if region in parts else None for region in shared]
    everyone = ranks.hear(mine)
    for region, prints in zip(shared, zip(*everyone, strict=True), strict=True):
        known = [(rank, each) for rank, each in enumerate(prints) if each is not None]
        first, right = known[0]
        other = next((rank for rank, each in known if each != right), None)
        if other is not None:
            raise ValueError(
                f"{region} has other numbers on rank {other} than on rank {first}: a tensor that "
                "is no Shard is the same everywhere; wrap in PerRank what every rank has of its own"
            )


def fingerprint(tensor: Tensor) -> str:
    """What is the same for the same numbers, and another for others but by a rare chance.

    Of a large tensor the words in each run of 4 KiB are first summed up, at nearly the speed of
    memory: each times a random number of its place, for a plain sum is the same when two words
    change places, or all signs. Lemire and Kaser 2014 (arXiv 1202.4961), "multilinear".
    """
    data, digest = as_bytes(tensor), hashlib.sha256()
    if len(data) > _SMALL:
        whole = len(data) // (4 * _WORDS) * 4 * _WORDS
        for words in torch.frombuffer(data[:whole], dtype=torch.int32).split(_AT_ONCE):
            digest.update(as_bytes((words.view(-1, _WORDS) * _factors()).sum(1)))
        data = data[whole:]
    digest.update(data)
    return digest.hexdigest()[:16]


@functools.cache
def _factors() -> Tensor:
    stream = torch.Generator().manual_seed(0)
    return torch.randint(-(2**63), 2**63 - 1, (_WORDS,), generator=stream, device="cpu")


def _cut(parts: Mapping[Region, Tensor], region: Region) -> Tensor:
    """A region that this rank has, or some rows of one."""
    if region in parts:
        return parts[region]
    for held, tensor in parts.items():
        if held.name == region.name and held.box.common(region.box) == region.box:
            first = region.offsets[0] - held.offsets[0]
            return tensor[first : first + region.sizes[0]]
    raise AssertionError(f"{region} is not here")
