"""Collective matmuls: each piece of a ring travels while one that has arrived is multiplied.

    all_gather_matmul(x, A)         gather_sequence(x) A^T
    matmul_reduce_scatter(y, B)     scatter_sequence(y B^T)

They give what the collective and the product give one after the other. Of t pieces, t - 1 travel,
each under a product: what `laws.seconds_in_pieces` prices. A piece reads all of the weight, so
with fewer tokens than the device's ridge, R/W, it waits for memory. PyTorch calls it async tensor
parallelism. Wang et al. 2023 (doi 10.1145/3567955.3567959).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from dlsys.annotated import checked
from dlsys.checks import divisor, refuse_what
from dlsys.tensor_parallel.autograd import SEQUENCE
from dlsys.tensor_parallel.linear import _Read
from dlsys.tensors import dense, of_shape
from dlsys.world import Communicator


@checked
def all_gather_matmul(x: Tensor, weight: Tensor, comm: Communicator) -> Tensor:
    """x (b, s/t, h), this rank's tokens, and weight (f/t, h) -> (b, s, f/t), of all tokens.

    What a column-parallel layer does with sequence parallelism.
    """
    _check(x, weight)
    return _GatherMultiply.apply(x, comm, True, True, weight, None)[0]


@checked
def matmul_reduce_scatter(x: Tensor, weight: Tensor, comm: Communicator) -> Tensor:
    """x (b, s, f/t), this rank's features, and weight (h, f/t) -> (b, s/t, h), of its tokens.

    What a row-parallel layer does with sequence parallelism, its bias left out. Raises ValueError
    where t does not divide s.
    """
    _check(x, weight)
    divisor("sequence-parallel degree", comm.size, {"tokens of a sequence": x.shape[SEQUENCE]})
    return _MultiplyScatter.apply(x, weight, comm)


def _check(x: Tensor, weight: Tensor) -> None:
    for name, each in {"x": x, "weight": weight}.items():
        dense(name, each)
        if not each.is_floating_point() or each.dim() < 2:
            refuse_what(name, of_shape(each), "floating-point numbers, a matrix at least")
    alike = x.shape[-1] == weight.shape[-1] and weight.dim() == 2
    if not alike or (x.dtype, x.device) != (weight.dtype, weight.device):
        raise ValueError(
            f"x is {of_shape(x)} on {x.device}, and weight {of_shape(weight)} on {weight.device}: "
            "weight must be a matrix with as many columns as x, of its type and on its device."
        )


def _round(x: Tensor, comm: Communicator) -> Iterator[tuple[int, Tensor]]:
    """(rank, its x) for every rank, this one first: while the caller computes, the next travels."""
    t, here = comm.size, x.contiguous()
    for step in range(t):
        owner = (comm.rank - step) % t
        if step == t - 1:
            yield owner, here
            return
        sent = comm.isend(here, (comm.rank + 1) % t)
        coming = comm.irecv(torch.empty_like(here), (comm.rank - 1) % t)
        yield owner, here
        sent.wait()
        here = coming.wait()


def _summed(x: Tensor, weight: Tensor, comm: Communicator) -> Tensor:
    """This rank's tokens of the ranks' sum of x weight^T; sums travel on, each rank adds its term.

    Its own piece comes last: step k makes the term of rank r - 1 - k, and adds what has come in.
    """
    t, pieces = comm.size, x.chunk(comm.size, SEQUENCE)
    total = torch.matmul(pieces[(comm.rank - 1) % t], weight.t())
    for step in range(1, t):
        sent = comm.isend(total, (comm.rank + 1) % t)
        coming = comm.irecv(torch.empty_like(total), (comm.rank - 1) % t)
        term = torch.matmul(pieces[(comm.rank - 1 - step) % t], weight.t())
        sent.wait()
        total = coming.wait().add_(term)
    return total


class _GatherMultiply(_Read):
    """All-gather and multiply forward; backward is that of `_Read`, which has products to spare."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, comm: Communicator, sequence: bool, overlap: bool, *matrices: Any
    ) -> tuple[Tensor, ...]:
        weight, _ = matrices
        ctx.comm, ctx.sequence, ctx.overlap = comm, sequence, overlap
        ctx.save_for_backward(x, weight)
        found = {owner: torch.matmul(piece, weight.t()) for owner, piece in _round(x, comm)}
        return (_joined(found),)


class _MultiplyScatter(torch.autograd.Function):
    """Multiply and reduce-scatter forward, all-gather and multiply backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, comm: Communicator) -> Tensor:
        ctx.comm = comm
        ctx.save_for_backward(x, weight)
        return _summed(x, weight, comm)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        x, weight = ctx.saved_tensors
        rows, found = {}, {}
        for owner, piece in _round(grad, ctx.comm):
            rows[owner], found[owner] = piece, torch.matmul(piece, weight)
        dw = _joined(rows).flatten(0, -2).t() @ x.flatten(0, -2)
        return _joined(found), dw, None


def _joined(found: Mapping[int, Tensor]) -> Tensor:
    """The pieces of all ranks, in the order of their tokens."""
    return torch.cat([found[owner] for owner in sorted(found)], dim=SEQUENCE)
