"""Restoring and resharding: each rank reads what it needs, however many ranks have written it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dlsys.annotated import checked
from dlsys.checks import refuse, shown
from dlsys.resilience import files
from dlsys.resilience.plan import Manifest, Read, Region, TensorEntry
from dlsys.resilience.refused import CheckpointError
from dlsys.resilience.saving import folder_of
from dlsys.resilience.state import DTYPES, PerRank, Shard
from dlsys.resilience.together import Together
from dlsys.resilience.tree import at, built
from dlsys.resilience.verifying import Checkpoint, verified_together
from dlsys.world import Communicator


@checked
def restore(
    checkpoint: str | PathLike | Checkpoint,
    like: Any = None,
    comm: Communicator | None = None,
) -> Any:
    """The state that was saved, or of it what `like` is like.

    - checkpoint: what `latest` or `verify` gave, or a checkpoint's folder, which is verified first.
    - like: nested dictionaries and lists that name what is wanted. A `Shard` asks for this rank's
      part, as many ranks and whatever mesh there are now, and where a dictionary was saved, for
      that part of each tensor of its shape in there, of any type; a tensor asks for the whole one,
      on its device; anything else, None for one, asks for all that was saved there, tensors whole.
    - comm: the ranks that restore together; None is the world that the caller is in, or this
      process alone.

    Tensors are new, nothing in `like` changes. What was saved as a `PerRank` comes back as one:
    that of the rank of the same number, holding None where there was no such rank, or it had none.
    Raises CheckpointError for a checkpoint that is not good, ValueError where `like` asks for what
    is not in it, or in another shape or type.
    """
    ranks = Together(comm)
    if isinstance(checkpoint, Checkpoint):
        folder, manifest = checkpoint.folder, checkpoint.manifest
    else:
        folder = folder_of(checkpoint, "checkpoint")
        manifest = verified_together(folder, ranks)
    wanted = _Wanted(manifest, ranks.rank)
    plan = wanted.plan(like, json.loads(manifest.state), ())
    tensors = _read(folder, manifest, wanted.regions)
    return wanted.filled(plan, tensors)


class _Wanted:
    """What is asked for, in a first walk; what came of it, in a second."""

    def __init__(self, manifest: Manifest, rank: int) -> None:
        self.entries = {t.name: t for t in manifest.tensors}
        self.regions: list[Region] = []
        self.rank = rank

    def plan(self, like: Any, tree: Any, path: tuple[Any, ...]) -> Any:
        """A function for each place that is wanted, of the list of tensors that were read."""
        if isinstance(like, Mapping):
            return self._dictionary(like, tree, path)
        if isinstance(like, Shard) and _kind(tree) == "dict":
            return self._parts_in(like, tree)
        if isinstance(like, Shard | Tensor):
            return self._tensor(like, tree, path)
        if isinstance(like, list | tuple) and _asks_for_parts(like):
            return self._sequence(like, tree, path)
        return built(tree, self._whole, self._own)

    def _own(self, trees: list[Any]) -> PerRank:
        mine = trees[self.rank] if self.rank < len(trees) else None
        return PerRank(built(mine, self._whole, self._own))

    def _dictionary(self, like: Mapping[Any, Any], tree: Any, path: tuple[Any, ...]) -> Any:
        if _kind(tree) != "dict":
            refuse(f"like{at(path)}", like, "None: there is no dictionary in the checkpoint")
        there = dict(map(tuple, tree[1]))
        for key in like:
            if key not in there:
                raise ValueError(
                    f"like{at((*path, key))} is not in the checkpoint, which has there "
                    f"{shown([*there])}."
                )
        return {key: self.plan(value, there[key], (*path, key)) for key, value in like.items()}

    def _sequence(self, like: Sequence[Any], tree: Any, path: tuple[Any, ...]) -> Any:
        if _kind(tree) not in ("list", "tuple"):
            refuse(f"like{at(path)}", like, "None: there is no list in the checkpoint")
        if len(tree) - 1 != len(like):
            raise ValueError(
                f"like{at(path)} has {len(like)} values; the checkpoint has {len(tree) - 1}."
            )
        pairs = enumerate(zip(like, tree[1:], strict=True))
        found = [self.plan(value, there, (*path, i)) for i, (value, there) in pairs]
        return found if tree[0] == "list" else tuple(found)

    def _parts_in(self, like: Shard, tree: Any) -> Any:
        """The part of each tensor of this shape, wherever it is in a dictionary."""
        if _kind(tree) == "dict":
            return {key: self._parts_in(like, value) for key, value in tree[1]}
        if _kind(tree) in ("tensor", "shard") and self.entries[tree[1]].shape == like.shape:
            return self._shard(like, tree[1])
        return built(tree, self._whole, self._own)

    def _shard(self, like: Shard, name: str) -> _Place:
        offsets, shape = like.offsets, like.shape
        region = Region(name, offsets, tuple(like.tensor.shape))
        return self._want(region, _device(like.tensor), lambda x: Shard(x, offsets, shape))

    def _tensor(self, like: Shard | Tensor, tree: Any, path: tuple[Any, ...]) -> Any:
        if _kind(tree) not in ("tensor", "shard"):
            refuse(f"like{at(path)}", like, "None: there is no tensor in the checkpoint")
        entry: TensorEntry = self.entries[tree[1]]
        tensor = like.tensor if isinstance(like, Shard) else like
        shape = like.shape if isinstance(like, Shard) else tuple(like.shape)
        if shape != entry.shape or tensor.dtype != DTYPES[entry.dtype]:
            raise ValueError(
                f"like{at(path)} is of shape {shape} and {tensor.dtype}; the checkpoint has "
                f"{entry.shape} and {DTYPES[entry.dtype]}."
            )
        if isinstance(like, Shard):
            return self._shard(like, entry.name)
        return self._want(Region(entry.name, (0,) * len(shape), shape), _device(like), lambda x: x)

    def _whole(self, kind: str, name: str) -> Any:
        entry = self.entries[name]
        whole = Region(name, (0,) * len(entry.shape), entry.shape)
        return self._want(whole, torch.device("cpu"), lambda x: x.numpy() if kind == "array" else x)

    def _want(self, region: Region, device: torch.device, made: Callable[[Tensor], Any]) -> _Place:
        self.regions.append(region)
        return _Place(len(self.regions) - 1, device, made)

    def filled(self, plan: Any, tensors: list[Tensor]) -> Any:
        """What was planned, with tensors in their places."""
        if isinstance(plan, _Place):
            return plan.made(tensors[plan.number].to(plan.device))
        if isinstance(plan, PerRank):
            return PerRank(self.filled(plan.value, tensors))
        if isinstance(plan, dict):
            return {key: self.filled(value, tensors) for key, value in plan.items()}
        if isinstance(plan, list | tuple):
            return type(plan)([self.filled(value, tensors) for value in plan])
        return plan


def _kind(tree: Any) -> str | None:
    """What a tree stands for; None for a plain value."""
    return tree[0] if isinstance(tree, list) else None


def _device(like: Tensor) -> torch.device:
    return torch.device("cpu") if like.is_meta else like.device


def _asks_for_parts(like: Any) -> bool:
    """Whether there is a tensor or a Shard in it."""
    inside = like.values() if isinstance(like, Mapping) else like
    if isinstance(like, Mapping | list | tuple):
        return any(map(_asks_for_parts, inside))
    return isinstance(like, Shard | Tensor)


class _Place(NamedTuple):
    """Where a tensor goes: its number among those read, its device, and what is made of it."""

    number: int
    device: torch.device
    made: Callable[[Tensor], Any]


def _read(folder: Path, manifest: Manifest, regions: Sequence[Region]) -> list[Tensor]:
    """The numbers of these regions, each in memory of its own."""
    dtypes = {t.name: DTYPES[t.dtype] for t in manifest.tensors}
    found = [torch.empty(r.sizes, dtype=dtypes[r.name], device="cpu") for r in regions]
    by_file: dict[int, list[Read]] = {}
    for each in manifest.reads(regions):
        by_file.setdefault(each.file, []).append(each)
    for file, reads in by_file.items():
        where = folder / files.name_of(file)
        begin = len(files.header(manifest, file))
        try:
            with files.opened(where) as fd:
                for each in reads:
                    into = found[each.wanted][inside(regions[each.wanted], each.part)]
                    files.read_into(into, fd, begin, each)
        except EOFError as error:
            raise CheckpointError(f"{where} is torn: {error}.") from None
    return found


def inside(region: Region, part: Region) -> tuple[slice, ...]:
    """Where a part of a region lies in it."""
    return tuple(
        slice(p - r, p - r + size)
        for p, r, size in zip(part.offsets, region.offsets, part.sizes, strict=True)
    )
