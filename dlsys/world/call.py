"""One rank's call of a collective, and its handle while it is in flight."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from dlsys.checks import refuse
from dlsys.collectives import Plan
from dlsys.collectives.plan import REDUCING, ROOTED

REDUCTIONS = ("sum", "mean", "max", "min", "prod")


class Handle(Protocol):
    """An operation in flight."""

    def wait(self) -> Any:
        """Wait for it and return its result: a tensor, or None where this rank gets none."""


class Into:
    """A collective in flight whose result comes to lie in `out`."""

    def __init__(self, handle: Handle, out: torch.Tensor) -> None:
        self._handle: Handle | None = handle
        self._out = out

    @torch.no_grad()
    def wait(self) -> torch.Tensor:
        """Wait for it and return `out`; may be called again."""
        if self._handle is not None:
            result, self._handle = self._handle.wait(), None
            if result.data_ptr() != self._out.data_ptr():
                self._out.copy_(result)
        return self._out


@dataclass(frozen=True)
class Call:
    """One rank's call of a collective: what must agree between ranks, and this rank's tensor."""

    kind: str
    tensor: torch.Tensor | None
    plan: Plan | None = None
    op: str = "sum"
    root: int = 0
    length: int | None = None
    async_op: bool = False
    out: torch.Tensor | None = None

    def describe(self) -> str:
        """The call as a reader would write it: `all_reduce of 4x2 float32, sum`."""
        words = self.kind
        if words == "barrier":
            return words
        if self.tensor is not None:
            words += f" of {in_words(self.tensor)}"
        if self.kind in REDUCING:
            words += f", {self.op}"
        if self.kind in ROOTED:
            words += f", root {self.root}"
        if self.plan is not None:
            words += f", by {self.plan.algorithm}"
        return words

    def signature(self) -> Hashable:
        """What must be the same in every rank's call."""
        same: list[Hashable] = [self.kind, self.length]
        if self.kind in REDUCING:
            same.append(self.op)
        if self.kind in ROOTED:
            same.append(self.root)
        if self.plan is not None:
            same += [self.plan.algorithm, self.plan.chunks, len(self.plan.rounds)]
        if self.tensor is not None and self.kind != "scatter":
            rows = self.tensor.shape[1:] if self.length is not None else self.tensor.shape
            same += [self.tensor.dtype, tuple(rows)]
        return tuple(same)


def in_words(tensor: torch.Tensor) -> str:
    """The shape and dtype of a tensor: `4x2 float32`, `one int64`."""
    shape = "x".join(map(str, tensor.shape)) or "one"
    return f"{shape} {str(tensor.dtype).removeprefix('torch.')}"


def divided(requests: Sequence[tuple[Hashable, int | None]]) -> list[list[int]]:
    """The groups of a split, each its ranks in order, from the (color, key) of rank 0, 1, ..."""
    groups: dict[Hashable, list[tuple[int, int]]] = {}
    for rank, (color, key) in enumerate(requests):
        if color is not None:
            groups.setdefault(color, []).append((rank if key is None else key, rank))
    return [[rank for _, rank in sorted(ordered)] for ordered in groups.values()]


def reduction(kind: str, op: Any) -> str:
    """The name of a reduction; torch.distributed's ReduceOp is understood, too."""
    if isinstance(op, torch.Tensor):
        raise TypeError(f"op is a tensor; {kind} returns its result and fills no other tensor.")
    name = str(op).rpartition(".")[2].lower()
    name = {"avg": "mean", "product": "prod"}.get(name, name)
    if name not in REDUCTIONS:
        refuse("op", op, f"one of {', '.join(REDUCTIONS)}")
    return name
