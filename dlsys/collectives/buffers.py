"""What one rank holds while a plan runs: the same for simulated ranks and for real processes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from itertools import pairwise

import torch

from dlsys.collectives.check import required
from dlsys.collectives.plan import BY_ROWS, REDUCING, Plan, Transfer

OPS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "sum": torch.Tensor.add_,
    "mean": torch.Tensor.add_,  # divided once, at the end
    "max": lambda mine, other: torch.maximum(mine, other, out=mine),
    "min": lambda mine, other: torch.minimum(mine, other, out=mine),
    "prod": torch.Tensor.mul_,
}
"""How a rank takes a message into what it holds, in place."""


class Buffers(ABC):
    """The chunks that rank `rank` holds; made by `hold`.

    edges: where each chunk begins, in units, and where the last ends (`Plan.bounds`). unit_bytes:
    bytes of one unit, an element or a row. passed_bytes: size of the tensor that was passed in.
    """

    def __init__(self, plan: Plan, rank: int, units: int, unit_bytes: int, passed: int) -> None:
        self.plan, self.rank = plan, rank
        self.edges = plan.bounds(units)
        self.unit_bytes, self.passed_bytes = unit_bytes, passed

    def nbytes(self, transfer: Transfer) -> int:
        """Bytes of a transfer's message; one of 0 bytes is not sent."""
        return self.unit_bytes * (self.edges[transfer.stop] - self.edges[transfer.first])

    @abstractmethod
    def outgoing(self, transfer: Transfer) -> torch.Tensor:
        """The message that this rank sends; contiguous, possibly a view of what it holds."""

    @abstractmethod
    def landing(self, transfer: Transfer) -> torch.Tensor:
        """A contiguous tensor for a message to be received into, then handed to `landed`."""

    @abstractmethod
    def landed(self, transfer: Transfer, message: torch.Tensor) -> None:
        """Take in a message that lies in a tensor of this rank's own (from `landing`)."""

    @abstractmethod
    def incoming(self, transfer: Transfer, message: torch.Tensor) -> None:
        """Take in a message that lies in another rank's memory, which may change later."""

    @abstractmethod
    def result(self) -> torch.Tensor | None:
        """What the collective returns on this rank; call it once, when the plan is done."""


def hold(
    plan: Plan, rank: int, tensor: torch.Tensor, length: int | None = None, op: str = "sum"
) -> Buffers:
    """The buffers of `rank` for `tensor`, which stays as it is.

    `length`: the rows of the whole, for an all_gather of uneven parts and for a rank that is handed
    its part of a scatter (it passes any tensor of the right dtype and row shape).
    """
    if plan.kind in ("all_to_all", "scatter", "gather"):
        return _Blocks(plan, rank, tensor, length)
    return _Flat(plan, rank, tensor, length, op)


class _Flat(Buffers):
    """One contiguous buffer that chunks are slices of: reductions, broadcast and all_gather."""

    def __init__(
        self, plan: Plan, rank: int, tensor: torch.Tensor, length: int | None, op: str
    ) -> None:
        self._op, self._shape = op, tensor.shape
        rows = as_rows(tensor) if plan.kind in BY_ROWS else tensor.reshape(-1)
        gathers, units = plan.kind == "all_gather", rows.shape[0]
        if gathers:
            units = _whole_length(plan, rank, units, length)
        super().__init__(plan, rank, units, _row_bytes(rows), tensor.nbytes)
        if gathers:
            self._held = rows.new_empty((units, *rows.shape[1:]))
            self._mine().copy_(rows)
        elif plan.kind == "broadcast" and rank != plan.root:
            self._held = torch.empty_like(rows, memory_format=torch.contiguous_format)
        else:
            self._held = rows.clone(memory_format=torch.contiguous_format)

    def outgoing(self, transfer: Transfer) -> torch.Tensor:
        first, stop = transfer.first, transfer.stop
        if stop - first == 1:
            return self._pieces[first]
        return self._held[self.edges[first] : self.edges[stop]]

    @cached_property
    def _pieces(self) -> tuple[torch.Tensor, ...]:
        """A view of every chunk: one split is a tenth of the cost of slicing them one by one."""
        return self._held.split([b - a for a, b in pairwise(self.edges)])

    def landing(self, transfer: Transfer) -> torch.Tensor:
        view = self.outgoing(transfer)
        return torch.empty_like(view) if transfer.reduce else view

    def landed(self, transfer: Transfer, message: torch.Tensor) -> None:
        if transfer.reduce:
            self.incoming(transfer, message)

    def incoming(self, transfer: Transfer, message: torch.Tensor) -> None:
        view = self.outgoing(transfer)
        if transfer.reduce:
            OPS[self._op](view, message)
        else:
            view.copy_(message)

    def result(self) -> torch.Tensor | None:
        kind, plan = self.plan.kind, self.plan
        if kind == "reduce" and self.rank != plan.root:
            return None
        # A part is copied out, so that it does not keep the whole buffer alive.
        held = self._mine().clone() if kind == "reduce_scatter" else self._held
        if kind in REDUCING and self._op == "mean":
            held.div_(plan.ranks)
        return held if kind in BY_ROWS else held.view(self._shape)

    def _mine(self) -> torch.Tensor:
        mine = self.plan.share(self.rank)
        return self._held[self.edges[mine.start] : self.edges[mine.stop]]


class _Blocks(Buffers):
    """Chunks held one by one, since a rank only ever holds some: scatter, gather, all_to_all."""

    def __init__(self, plan: Plan, rank: int, tensor: torch.Tensor, length: int | None) -> None:
        rows = as_rows(tensor)
        self._template = rows[:0]
        units = rows.shape[0]
        if plan.kind == "gather":
            units = _whole_length(plan, rank, units, length)
        elif length is not None:
            units = length
        super().__init__(plan, rank, units, _row_bytes(rows), tensor.nbytes)
        self._blocks: dict[int, torch.Tensor] = {}
        if plan.kind == "scatter":
            mine = range(plan.chunks if rank == plan.root else 0)
        else:
            mine = plan.share(rank)
        start = self.edges[mine.start]
        for chunk in mine:
            self._blocks[chunk] = rows[self.edges[chunk] - start : self.edges[chunk + 1] - start]

    def outgoing(self, transfer: Transfer) -> torch.Tensor:
        blocks = [self._block(chunk) for chunk in range(transfer.first, transfer.stop)]
        return blocks[0].contiguous() if len(blocks) == 1 else torch.cat(blocks)

    def landing(self, transfer: Transfer) -> torch.Tensor:
        return self._rows(self.edges[transfer.stop] - self.edges[transfer.first])

    def landed(self, transfer: Transfer, message: torch.Tensor) -> None:
        start = self.edges[transfer.first]
        for chunk in range(transfer.first, transfer.stop):
            self._blocks[chunk] = message[self.edges[chunk] - start : self.edges[chunk + 1] - start]

    def incoming(self, transfer: Transfer, message: torch.Tensor) -> None:
        self.landed(transfer, message.clone())

    def result(self) -> torch.Tensor | None:
        plan = self.plan
        if plan.kind == "gather" and self.rank != plan.root:
            return None
        return torch.cat([self._block(chunk) for chunk in required(plan, self.rank)])

    def _block(self, chunk: int) -> torch.Tensor:
        """The chunk; one of 0 bytes never came, and yet it has rows where these have no width."""
        if chunk in self._blocks:
            return self._blocks[chunk]
        return self._rows(self.edges[chunk + 1] - self.edges[chunk])

    def _rows(self, number: int) -> torch.Tensor:
        return self._template.new_empty((number, *self._template.shape[1:]))


def as_rows(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself, or one number as the one row that it counts as."""
    return tensor.reshape(1) if tensor.dim() == 0 else tensor


def _row_bytes(rows: torch.Tensor) -> int:
    return rows.shape[1:].numel() * rows.itemsize


def _whole_length(plan: Plan, rank: int, mine: int, length: int | None) -> int:
    """The rows of all ranks' parts together."""
    if length is None:
        return mine * plan.ranks
    share = (rank + 1) * length // plan.ranks - rank * length // plan.ranks
    if mine != share:
        raise ValueError(
            f"{plan.kind} of length {length} got {mine} rows from rank {rank} of {plan.ranks}; "
            f"its part, rows r*length//ranks to (r+1)*length//ranks, is {share} rows"
        )
    return length
