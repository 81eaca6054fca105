"""Linear layers of which every rank holds a part: a column-parallel one, then a row-parallel one.

Y = X A^T is cut by the rows of A (which the field calls columns, as it writes Y = X A): each rank
makes some features of Y from all of X. Z = Y B^T is cut by the columns of B: each rank makes one
term of Z from its features of Y. So between the two nothing is said, and Z is one sum.
Shoeybi et al. 2019 (arXiv 1909.08053), section 3.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from dlsys import world
from dlsys.annotated import checked
from dlsys.checks import count, divisor
from dlsys.tensor_parallel.autograd import (
    Finish,
    gather,
    reduce,
    scatter,
    scatter_sequence,
    start_joining,
    start_sharing,
    start_sum,
)
from dlsys.tensor_parallel.plan import Parameter
from dlsys.tensors import features
from dlsys.world import Communicator


def part(whole: Tensor, cut: Parameter, rank: int) -> Tensor:
    """What `rank` holds of a whole parameter, as a view."""
    if cut.dimension is None:
        return whole
    first, stop = cut.bounds(rank)
    return whole.narrow(cut.dimension, first, stop - first)


class ShardedModule(nn.Module, ABC):
    """A module whose `weight`, and maybe `bias`, are parts of wholes; `cuts` says which.

    Unless it is on the meta device it starts from what rank 0 would have drawn for the whole: every
    rank draws that, so that random states which agreed before agree after, and takes its part of
    rank 0's, so that ranks whose seeds differ hold parts of one matrix all the same.
    """

    weight: nn.Parameter
    bias: nn.Parameter | None

    def __init__(
        self, comm: Communicator | None, weight: Parameter, bias: Parameter | None
    ) -> None:
        super().__init__()
        self.comm = world.current() if comm is None else comm
        self.cuts = {"weight": weight} | ({} if bias is None else {"bias": bias})
        for name in ("weight", "bias"):
            cut = self.cuts.get(name)
            mine = None if cut is None else nn.Parameter(torch.empty(cut.shard(self.comm.rank)))
            self.register_parameter(name, mine)

    @abstractmethod
    def whole(self) -> nn.Module:
        """The module that this one is a part of, freshly drawn."""

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw the parameters anew; all ranks call it."""
        if self.weight.is_meta:
            return
        with self.weight.device:
            whole = self.whole()
        for name, cut in self.cuts.items():
            drawn = self.comm.broadcast(whole.get_parameter(name))
            self.get_parameter(name).copy_(part(drawn, cut, self.comm.rank))

    def extra_repr(self) -> str:
        """The shape of the whole weight, and how many ranks share it."""
        return f"weight={self.cuts['weight'].shape}, ranks={self.comm.size}"


class ShardedLinear(ShardedModule):
    """What the two kinds of linear layer share."""

    in_features: int
    out_features: int

    def whole(self) -> nn.Linear:
        """nn.Linear of all features."""
        return nn.Linear(self.in_features, self.out_features, self.bias is not None)


MOST_FEATURES = 2**24


def _check_features(in_features: int, out_features: int) -> None:
    count("in_features", in_features, most=MOST_FEATURES)
    count("out_features", out_features, most=MOST_FEATURES)


class ColumnParallelLinear(ShardedLinear):
    """torch.nn.Linear of which rank r of t computes output features [r*out/t, (r+1)*out/t).

    `weight` (out/t, in) and `bias` (out/t) are those rows of nn.Linear's. x (..., in), the same on
    every rank -> (..., out/t), or with `gather_output` (..., out). In backward the gradients of x
    are summed over the ranks, with `overlap` while the weight's is computed.

    With `sequence_parallel` x is (..., s/t, in), this rank's tokens: they are gathered, and again
    in backward rather than kept, and the gradient is reduce-scattered.

    It starts as nn.Linear would on rank 0 (see ShardedModule). `cut` says how the weight lies on
    the ranks if not in t equal pieces. comm=None means the world that the caller is in. Raises
    ValueError where t does not divide out_features.
    """

    @checked
    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        gather_output: bool = False,
        comm: Communicator | None = None,
        *,
        sequence_parallel: bool = False,
        overlap: bool = True,
        cut: Parameter | None = None,
    ) -> None:
        comm = world.current() if comm is None else comm
        _check_features(in_features, out_features)
        if cut is None:
            t = divisor("tensor-parallel degree", comm.size, {"out_features": out_features})
            cut = Parameter("weight", (out_features, in_features), t, 0, t)
        vector = Parameter("bias", (out_features,), cut.ranks, 0, cut.pieces)
        super().__init__(comm, cut, vector if bias else None)
        self.in_features, self.out_features = in_features, out_features
        self.gather_output = gather_output
        self.sequence_parallel, self.overlap = sequence_parallel, overlap
        self.reset_parameters()

    @checked
    def forward(self, x: Tensor) -> Tensor:
        """x (..., in_features) -> this rank's features, or all of them with `gather_output`."""
        features("x", x, self.in_features)
        (y,) = read_together([self], x)
        return gather(y, self.comm, self.out_features) if self.gather_output else y


class RowParallelLinear(ShardedLinear):
    """torch.nn.Linear of which rank r of t reads input features [r*in/t, (r+1)*in/t).

    `weight` (out, in/t) is those columns of nn.Linear's, `bias` (out) is whole and added once,
    after the sum over the ranks. x (..., in/t), as a column-parallel layer gives it, or without
    `input_is_parallel` (..., in), the same on every rank -> (..., out) on every rank.

    With `sequence_parallel` the sum is reduce-scattered: x (..., s, in/t) -> (..., s/t, out). The
    bias's gradient is then that of this rank's tokens alone; see `copied.sum_gradients`.

    It starts as nn.Linear would on rank 0 (see ShardedModule). comm=None means the world that the
    caller is in. Raises ValueError where t does not divide in_features.
    """

    @checked
    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        input_is_parallel: bool = True,
        comm: Communicator | None = None,
        *,
        sequence_parallel: bool = False,
    ) -> None:
        comm = world.current() if comm is None else comm
        _check_features(in_features, out_features)
        t = divisor("tensor-parallel degree", comm.size, {"in_features": in_features})
        vector = Parameter("bias", (out_features,), t)
        cut = Parameter("weight", (out_features, in_features), t, 1, t)
        super().__init__(comm, cut, vector if bias else None)
        self.in_features, self.out_features = in_features, out_features
        self.input_is_parallel, self.sequence_parallel = input_is_parallel, sequence_parallel
        self.reset_parameters()

    @checked
    def forward(self, x: Tensor) -> Tensor:
        """x (..., in_features/t), or (..., in_features) -> (..., out_features)."""
        features("x", x, self.weight.shape[1] if self.input_is_parallel else self.in_features)
        if not self.input_is_parallel:
            x = scatter(x, self.comm)
        term = F.linear(x, self.weight)
        total = (scatter_sequence if self.sequence_parallel else reduce)(term, self.comm)
        return total if self.bias is None else total + self.bias


def read_together(layers: Sequence[ColumnParallelLinear], x: Tensor) -> tuple[Tensor, ...]:
    """What column-parallel layers make of one x, with one collective a pass for all of them.

    They have one communicator and the first one's `sequence_parallel` and `overlap`.
    """
    first, matrices = layers[0], [m for layer in layers for m in (layer.weight, layer.bias)]
    return _Read.apply(x, first.comm, first.sequence_parallel, first.overlap, *matrices)


class ReadTogether(nn.Module):
    """`read_together` as a module: hooks see it run, and its name tells what it keeps."""

    def forward(self, layers: Sequence[ColumnParallelLinear], x: Tensor) -> tuple[Tensor, ...]:
        """What the layers make of x."""
        return read_together(layers, x)


class _Read(torch.autograd.Function):
    """x A^T + a, x B^T + b, ... forward; backward, the gradient of x is summed over the ranks."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, comm: Communicator, sequence: bool, overlap: bool, *matrices: Any
    ) -> tuple[Tensor, ...]:
        weights, biases = matrices[::2], matrices[1::2]
        ctx.comm, ctx.sequence, ctx.overlap = comm, sequence, overlap
        ctx.save_for_backward(x, *weights)
        if sequence:
            x = start_joining(x, comm)()
        return tuple(F.linear(x, *pair) for pair in zip(weights, biases, strict=True))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        (x, *weights), comm = ctx.saved_tensors, ctx.comm
        needs_x, _, _, _, *needs = ctx.needs_input_grad
        under_way = _as_it_is if ctx.overlap else _at_once
        rows = [_rows(grad) for grad in grads]
        dtype = rows[0].dtype  # not that of the weights under autocast
        dx, all_x = None, lambda: x
        # The tokens come in while the input's gradient is computed, ...
        if ctx.sequence and any(needs[::2]):
            all_x = under_way(start_joining(x, comm))
        if needs_x:
            product = rows[0] @ weights[0].to(dtype)
            for row, weight in zip(rows[1:], weights[1:], strict=True):
                product.addmm_(row, weight.to(dtype))
            x = all_x()
            start = start_sharing if ctx.sequence else start_sum
            dx = under_way(start(product.view(*grads[0].shape[:-1], product.shape[-1]), comm))
        else:
            x = all_x()
        # ... and that is summed over the ranks while the weights' gradients are computed.
        x = _rows(x).to(dtype)
        found: list[Tensor | None] = []
        for row, weight, bias in zip(rows, needs[::2], needs[1::2], strict=True):
            found.append(row.t() @ x if weight else None)
            found.append(row.sum(0) if bias else None)
        return dx and dx(), None, None, None, *found


def _rows(x: Tensor) -> Tensor:
    """x (..., features) as a matrix."""
    return x.reshape(-1, x.shape[-1])


def _as_it_is(finish: Finish) -> Finish:
    return finish


def _at_once(finish: Finish) -> Finish:
    result = finish()
    return lambda: result
