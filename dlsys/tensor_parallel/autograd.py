"""Collectives that autograd can differentiate: the backward of each is the adjoint of its forward.

A tensor is *whole* where every rank has the same one, and counts once in an inner product. It is
*own* where ranks have different ones (shards, or the terms of a sum) and is then all of them: inner
products are summed over the ranks. A collective f is linear, so one f* has <f(x), y> = <x, f*(y)>,
and by the chain rule f* is what backward must do:

    function          makes          forward                backward
    copy              whole -> own   nothing                all-reduce
    reduce            own -> whole   all-reduce             nothing
    scatter           whole -> own   take a part            all-gather       last dimension
    gather            own -> whole   all-gather             take a part      last dimension
    gather_sequence   own -> own     all-gather             reduce-scatter   dimension -2
    scatter_sequence  own -> own     reduce-scatter         all-gather       dimension -2

Each is the adjoint of its neighbour: Megatron's f and g are the first two (Shoeybi et al. 2019,
section 3), those of sequence parallelism the last two (Korthikanti et al. 2022, section 4.2.2).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from dlsys.annotated import checked
from dlsys.checks import count, divisor, refuse_what
from dlsys.tensors import dense, of_shape
from dlsys.world import Communicator

SEQUENCE = -2
"""The dimension of the tokens in (b, s, h)."""


@checked
def copy(x: Tensor, comm: Communicator) -> Tensor:
    """x, for every rank to go on with in its own way: in backward their gradients are summed."""
    dense("x", x)
    return copies([x], comm)[0]


def copies(tensors: Sequence[Tensor], comm: Communicator) -> tuple[Tensor, ...]:
    """`copy` of several tensors of one dtype, whose gradients travel in one message."""
    return _Copy.apply(comm, *tensors)


@checked
def reduce(x: Tensor, comm: Communicator) -> Tensor:
    """The sum of the ranks' tensors, on every rank."""
    dense("x", x)
    return _Reduce.apply(x, comm)


@checked
def scatter(x: Tensor, comm: Communicator) -> Tensor:
    """This rank's part of the last dimension; of n columns rank r gets [r*n//t, (r+1)*n//t)."""
    dense("x", x)
    if not x.dim():
        refuse_what("x", of_shape(x), "of at least one dimension, whose parts the ranks get")
    return _Scatter.apply(x, comm)


@checked
def gather(x: Tensor, comm: Communicator, length: int | None = None) -> Tensor:
    """The ranks' tensors joined along the last dimension, of `length` where parts are uneven."""
    dense("x", x)
    if length is not None:
        length = count("length", length)
    return _Gather.apply(x, comm, length)


@checked
def gather_sequence(x: Tensor, comm: Communicator) -> Tensor:
    """The tokens of all ranks: (b, s/t, h) -> (b, s, h)."""
    dense("x", x)
    return _GatherSequence.apply(x, comm)


@checked
def scatter_sequence(x: Tensor, comm: Communicator) -> Tensor:
    """This rank's tokens of the sum over the ranks: (b, s, h) -> (b, s/t, h).

    Raises ValueError where t does not divide s.
    """
    dense("x", x)
    return _ScatterSequence.apply(x, comm)


# What follows starts a collective and returns what waits for it and gives its result.
Finish = Callable[[], Tensor]


def start_sum(x: Tensor, comm: Communicator) -> Finish:
    """Start to sum the ranks' tensors."""
    if comm.size == 1:
        return lambda: x
    return comm.all_reduce(x, async_op=True).wait


def start_joining(x: Tensor, comm: Communicator) -> Finish:
    """Start to gather tokens: (b, s/t, h) -> (b, s, h)."""
    if comm.size == 1:
        return lambda: x
    handle = comm.all_gather(x, async_op=True)
    return lambda: _joined(handle.wait(), comm.size, SEQUENCE)


def start_sharing(x: Tensor, comm: Communicator) -> Finish:
    """Start to sum the ranks' tensors into parts of the sequence: (b, s, h) -> (b, s/t, h)."""
    if comm.size == 1:
        return lambda: x
    divisor("sequence-parallel degree", comm.size, {"tokens of a sequence": x.shape[SEQUENCE]})
    # A collective's parts lie along dimension 0: the shards one after the other, not interleaved.
    parts = x.unflatten(SEQUENCE, (comm.size, -1)).movedim(SEQUENCE - 1, 0)
    return comm.reduce_scatter(parts.flatten(0, 1), async_op=True).wait


def _joined(rows: Tensor, size: int, dimension: int) -> Tensor:
    """Blocks that a collective has joined along dimension 0, joined along another instead."""
    # Tokens: (t b, s/t, h) -> (t, b, s/t, h) -> (b, t, s/t, h) -> (b, s, h).
    blocks = rows.unflatten(0, (size, -1))
    return blocks.movedim(0, dimension - 1).flatten(dimension - 1, dimension)


def _columns(x: Tensor, comm: Communicator) -> Tensor:
    """This rank's part of the last dimension, in memory of its own."""
    first, stop = (rank * x.shape[-1] // comm.size for rank in (comm.rank, comm.rank + 1))
    return x[..., first:stop].contiguous() if comm.size > 1 else x


def _all_columns(x: Tensor, comm: Communicator, length: int | None) -> Tensor:
    """All ranks' parts of the last dimension, on every rank."""
    if comm.size == 1:
        return x
    # Uneven parts have no common block to put apart again: gather columns as rows of dimension 0.
    if length is None or length % comm.size == 0:
        return _joined(comm.all_gather(x), comm.size, -1)
    return comm.all_gather(x.movedim(-1, 0), length).movedim(0, -1)


class _Copy(torch.autograd.Function):
    """Nothing forward, one all-reduce backward."""

    @staticmethod
    def forward(ctx: Any, comm: Communicator, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.comm = comm
        return tuple(x.view_as(x) for x in tensors)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        # One all-reduce of everything: small gradients, of norms say, would each pay its latency.
        if len(grads) == 1:
            return None, start_sum(grads[0], ctx.comm)()
        total = start_sum(torch.cat([grad.flatten() for grad in grads]), ctx.comm)()
        pieces = total.split([grad.numel() for grad in grads])
        return None, *(piece.view(grad.shape) for piece, grad in zip(pieces, grads, strict=True))


class _Reduce(torch.autograd.Function):
    """All-reduce forward, nothing backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, comm: Communicator) -> Tensor:
        return start_sum(x, comm)()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None


class _Scatter(torch.autograd.Function):
    """Take a part forward, all-gather backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, comm: Communicator) -> Tensor:
        ctx.comm, ctx.length = comm, x.shape[-1]
        return _columns(x, comm)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _all_columns(grad, ctx.comm, ctx.length), None


class _Gather(torch.autograd.Function):
    """All-gather forward, take a part backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, comm: Communicator, length: int | None) -> Tensor:
        ctx.comm = comm
        return _all_columns(x, comm, length)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return _columns(grad, ctx.comm), None, None


class _GatherSequence(torch.autograd.Function):
    """All-gather forward, reduce-scatter backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, comm: Communicator) -> Tensor:
        ctx.comm = comm
        return start_joining(x, comm)()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return start_sharing(grad, ctx.comm)(), None


class _ScatterSequence(torch.autograd.Function):
    """Reduce-scatter forward, all-gather backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, comm: Communicator) -> Tensor:
        ctx.comm = comm
        return start_sharing(x, comm)()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return start_joining(grad, ctx.comm)(), None
