"""The groups of an optimizer laid out in buckets, in the order in which gradients come."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from dlsys.tensors import bucketed
from dlsys.world import Communicator, Handle
from dlsys.world.alike import take_over
from dlsys.zero.journal import Journal
from dlsys.zero.optimizer.bucket import Bucket, Named, Part
from dlsys.zero.plan import GATHER

_BUCKET_BYTES = 25 * 2**20  # DDP's default


class Layout:
    """Buckets in the order of forward, this rank's `parts` of their parameters in the order of
    groups, and the `frozen` parameters, of which nobody has a part.

    bucket_bytes=None is 25 MiB, and no limit where whole tensors are dealt: few are not dealt
    evenly. `dtype` and `host` are where a part is held in another way than its parameter.
    """

    def __init__(
        self,
        comm: Communicator,
        bucket_bytes: float | None,
        whole_tensors: bool,
        dtype: torch.dtype | None,
        host: torch.device | None,
    ) -> None:
        self.buckets: list[Bucket] = []
        self.parts: list[Part] = []
        self.frozen: list[Named] = []
        self._seen = 0
        self._comm, self._whole, self._dtype, self._host = comm, whole_tensors, dtype, host
        self._limit = bucket_bytes or (float("inf") if whole_tensors else _BUCKET_BYTES)

    def add(self, group: Mapping[str, Any]) -> list[Part]:
        """Lay out a group, with rank 0's parameters on every rank; returns this rank's parts."""
        named = self._named(group)
        take_over(self._comm, [parameter for _, parameter in named])
        self.frozen += [pair for pair in named if not pair[1].requires_grad]
        trained = [pair for pair in named if pair[1].requires_grad]
        rank, ranks = self._comm.rank, self._comm.size
        made = [Bucket(each, rank, ranks, self._whole) for each in bucketed(trained, self._limit)]
        parts = [part for one in made for part in one.make_parts(self._dtype, self._host)]
        self._order(made, [name for name, _ in trained])
        self.parts += parts
        return parts

    def gather(self, journal: Journal) -> None:
        """Give every rank every shard; the next bucket is on its way while one is taken in."""
        before: list[tuple[Bucket, Handle]] = []
        for bucket in self.buckets:
            journal.note(GATHER, bucket.index)
            shard = bucket.shard_of_weights()
            if self._host is not None:
                journal.move("to device", shard.nbytes)
            before.append((bucket, self._comm.all_gather(shard, async_op=True)))
            if len(before) == 2:
                _take(*before.pop(0))
        for each in before:
            _take(*each)

    def _named(self, group: Mapping[str, Any]) -> list[Named]:
        """A group's parameters, each once, by their names or their numbers."""
        parameters = group["params"]
        names = group.get("param_names") or map(
            str, range(self._seen, self._seen + len(parameters))
        )
        self._seen += len(parameters)
        found = {id(p): (name, p) for name, p in zip(names, parameters, strict=True)}
        return list(found.values())

    def _order(self, made: list[Bucket], names: list[str]) -> None:
        """Put new buckets among the others, in the order of forward as far as it can be known:
        a group has its parameters in that order, and groups go through the model side by side."""
        for bucket in made:
            bucket.begins_at = names.index(bucket.name) / len(names)
        self.buckets = sorted(self.buckets + made, key=lambda bucket: bucket.begins_at)
        for index, bucket in enumerate(self.buckets):
            bucket.index = index


def _take(bucket: Bucket, under_way: Handle) -> None:
    bucket.take_weights(under_way.wait())
