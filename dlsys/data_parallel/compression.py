"""Gradient compression: top-k, 8 bits and PowerSGD, as hooks that send less, with error feedback.

Each is a hook of `DataParallel`: called with a bucket, it starts to communicate and returns a
handle whose `wait()` gives the mean gradient as this rank now believes it, the same on every rank.
Error feedback (Seide et al. 2014; Karimireddy et al. 2019): with e the residual that a bucket has
kept, it compresses x = g + e and keeps what was lost. Over many steps the sum of what is sent then
differs from the sum of the gradients by one residual, which stays bounded.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from dlsys.annotated import checked
from dlsys.checks import count, positive, whole
from dlsys.data_parallel.ddp import GradientBucket
from dlsys.data_parallel.hooks import OneRank, Then
from dlsys.data_parallel.price import step_bytes
from dlsys.world import Communicator, Handle

Shapes = Sequence[Sequence[int]]
"""Shapes of the gradients of a bucket."""


class Compression(OneRank):
    """What the hooks share: with `error_feedback`, a residual for each bucket, by its index.

    Make one where the module is wrapped: a rank that uses another's object gets a ValueError.
    """

    def __init__(self, error_feedback: bool) -> None:
        self.error_feedback = error_feedback
        self.residuals: dict[int, Tensor] = {}

    def _due(self, comm: Communicator, bucket: GradientBucket) -> Tensor:
        """What is to be sent: the bucket's gradients plus what earlier steps left out.

        In at least FP32: added up in 16 bits, small residuals would never grow.
        """
        self._claim(comm)
        due = bucket.flat.to(torch.promote_types(bucket.flat.dtype, torch.float32), copy=True)
        residual = self.residuals.get(bucket.index)
        return due if residual is None else due.add_(residual)

    def _keep(self, bucket: GradientBucket, residual: Tensor) -> None:
        if self.error_feedback:
            self.residuals[bucket.index] = residual


class TopK(Compression):
    """Sends the `fraction` of a bucket's elements that are largest in size, and where they stand.

    Of L elements k = max(1, round(fraction L)) are sent, each with a 4-byte index, and since every
    rank picks others they are gathered, not summed on the way: a rank sends (n-1) k (itemsize + 4)
    bytes, in proportion to n. With itemsize 4 that is less than an all-reduce's 2(n-1)/n S only
    where fraction < 1/n. What is sent plus the residual is exactly the gradient plus the old
    residual. Aji and Heafield 2017; Lin et al. 2018 (Deep Gradient Compression).
    """

    @checked
    def __init__(self, fraction: float, error_feedback: bool = True) -> None:
        super().__init__(error_feedback)
        positive("fraction", fraction)
        if fraction > 1:
            raise ValueError(f"fraction is {fraction!r}; it must be at most 1, which sends all.")
        self.fraction = fraction

    def kept(self, elements: int) -> int:
        """How many of a bucket's `elements` are sent."""
        elements = count("elements", elements, least=0)
        return min(elements, max(1, round(self.fraction * elements)))

    @checked
    def sent_bytes(self, shapes: Shapes, ranks: int, itemsize: int = 4) -> float:
        """Bytes that a rank sends for a bucket: (n-1) k (itemsize + 4)."""
        n, nbytes = count("ranks", ranks), count("itemsize", itemsize) + 4
        return (n - 1) * self.kept(sum(map(math.prod, shapes))) * nbytes

    def __call__(self, comm: Communicator, bucket: GradientBucket) -> Handle:
        """Start to gather every rank's choice; the sum over ranks / n is the result."""
        due = self._due(comm, bucket)
        chosen = due.abs().topk(self.kept(due.numel())).indices
        values = due[chosen].to(bucket.flat.dtype)
        due[chosen] -= values  # 0, or what rounding to 16 bits lost
        self._keep(bucket, due)

        def mean(values: Tensor, places: Tensor) -> Tensor:
            total = torch.zeros_like(bucket.flat)
            # One rank after another: index_add_ may add equal indices in any order on a GPU.
            for v, where in zip(values.chunk(comm.size), places.chunk(comm.size), strict=True):
                total[where.long()] += v
            return total / comm.size

        return Then(
            [
                comm.all_gather(values, async_op=True),
                comm.all_gather(chosen.to(torch.int32), async_op=True),
            ],
            mean,
        )


class Int8(Compression):
    """Sends each element in one byte: a scale for each rank's bucket, and whole numbers to ±127.

    Integers of different scales cannot be summed on the way, and gathering all would send
    (n-1) L bytes. So, as in a reduce-scatter and an all-gather: an all-to-all takes block r of
    every rank's bytes to rank r, which averages them in full precision, quantises the mean with
    a scale of its own and passes it to all. A rank sends 2(n-1)/n L bytes, a quarter of FP32, and
    8(n-1) for the scales. Both roundings have residuals; the second is rank r's, for its block.
    (Two-phase 1-bit compression: Tang et al. 2021, 1-bit Adam.)
    """

    @checked
    def __init__(self, error_feedback: bool = True) -> None:
        super().__init__(error_feedback)
        self.block_residuals: dict[int, Tensor] = {}

    @checked
    def sent_bytes(self, shapes: Shapes, ranks: int, itemsize: int = 4) -> float:
        """Bytes that a rank sends for a bucket, on average; `itemsize` is no matter."""
        count("itemsize", itemsize)
        return step_bytes(sum(map(math.prod, shapes)), ranks) + 8 * (ranks - 1)

    def __call__(self, comm: Communicator, bucket: GradientBucket) -> Handle:
        """Start the all-to-all; `wait` averages and gathers."""
        due = self._due(comm, bucket)
        whole, scale = quantize(due)
        self._keep(bucket, due - whole * scale)

        def mean(blocks: Tensor, scales: Tensor) -> Tensor:
            # Row r is rank r's bytes for this rank's block, each in a scale of its own.
            rows = blocks.view(comm.size, len(blocks) // comm.size)
            block = (rows * scales[:, None]).mean(0)
            if bucket.index in self.block_residuals:
                block += self.block_residuals[bucket.index]
            mine, size = quantize(block)
            if self.error_feedback:
                self.block_residuals[bucket.index] = block - mine * size
            parts = comm.all_gather(mine, due.numel())
            sizes = comm.all_gather(size.view(1))
            return join(parts, sizes).to(bucket.flat.dtype)

        return Then(
            [
                comm.all_to_all(whole, async_op=True),
                comm.all_gather(scale.view(1), async_op=True),
            ],
            mean,
        )


def quantize(x: Tensor) -> tuple[Tensor, Tensor]:
    """x as (int8, scale): scale = max |x| / 127 in FP32, round(x / scale); an error of scale/2."""
    scale = x.abs().max().float() / 127 if x.numel() else torch.zeros((), device=x.device)
    # A bucket of zeros has scale 0; dividing by 1 keeps it zeros.
    return (x / torch.where(scale > 0, scale, 1)).round().to(torch.int8), scale


def join(parts: Tensor, scales: Tensor) -> Tensor:
    """Whole numbers (L,) whose block r, [r*L//n, (r+1)*L//n), has scale r -> values (L,)."""
    n, length = len(scales), len(parts)
    edges = [rank * length // n for rank in range(n + 1)]
    sizes = torch.tensor([b - a for a, b in pairwise(edges)])
    return parts * scales.repeat_interleave(sizes.to(scales.device))


class PowerSGD(Compression):
    """PowerSGD: sends each matrix as two thin factors (Vogels et al. 2019, algorithms 1 and 2).

    A gradient of two or more dimensions is a matrix M (rows, columns), its first dimension against
    the others. With Q (columns, r) from the last step: P = mean of M Q, made orthonormal; then
    Q = mean of M^T P; the result is P Q^T. Factors add up, so both means are all-reduces: a rank
    sends 2(n-1)/n x itemsize x (sum of r (rows + columns) + elements of vectors, sent as they
    are), whatever n. r = min(rank, rows, columns); at r = rows the result is the plain mean.
    The residual is g + e - P Q^T on each rank, so that their mean is exact up to rounding.
    """

    @checked
    def __init__(self, rank: int, error_feedback: bool = True, seed: int = 0) -> None:
        super().__init__(error_feedback)
        self.rank = count("rank", rank)
        self.seed = whole("seed", seed)
        self.factors: dict[tuple[int, int], Tensor] = {}

    @checked
    def sent_bytes(self, shapes: Shapes, ranks: int, itemsize: int = 4) -> float:
        """Bytes that a rank sends for a bucket, on average over the ranks."""
        elements = 0
        for shape in shapes:
            rows, columns = shape[0] if shape else 1, math.prod(shape[1:])
            thin = min(self.rank, rows, columns) * (rows + columns)
            elements += thin if len(shape) > 1 else rows
        return step_bytes(count("itemsize", itemsize) * elements, ranks)

    def __call__(self, comm: Communicator, bucket: GradientBucket) -> Handle:
        """Start the all-reduce of the left factors and vectors; `wait` does the right factors."""
        due, dtype = self._due(comm, bucket), bucket.flat.dtype
        pieces = _like_gradients(due, bucket)
        matrices = {i: x.flatten(1) for i, x in enumerate(pieces) if x.ndim > 1 and x.numel()}
        vectors = {i: x for i, x in enumerate(pieces) if i not in matrices}
        right = {i: self._start(bucket.index, i, matrix) for i, matrix in matrices.items()}
        left = {i: matrix @ right[i] for i, matrix in matrices.items()}

        def mean(joined: Tensor) -> Tensor:
            found = unpacked(joined.to(due.dtype), {**left, **vectors})
            # Algorithm 1: one step of power iteration, with Q from the last step as its start.
            basis = {i: torch.linalg.qr(found[i]).Q for i in matrices}
            right = {i: matrix.T @ basis[i] for i, matrix in matrices.items()}
            if right:
                averaged = comm.all_reduce(packed(right).to(dtype), op="mean")
                right = unpacked(averaged.to(due.dtype), right)
            for i, factor in right.items():
                self.factors[bucket.index, i] = factor
                found[i] = basis[i] @ factor.T
            result = torch.empty_like(due)
            for i, place in enumerate(_like_gradients(result, bucket)):
                place.copy_(found[i].view(place.shape))
            for i in vectors:
                pieces[i].copy_(found[i])  # sent whole: nothing is left over
            self._keep(bucket, due - result)
            return result.to(dtype)

        joined = packed({**left, **vectors}).to(dtype)
        return Then([comm.all_reduce(joined, op="mean", async_op=True)], mean)

    def _start(self, bucket: int, place: int, matrix: Tensor) -> Tensor:
        """The right factor to begin with: the last one, at first the same random one everywhere."""
        kept = self.factors.get((bucket, place))
        if kept is not None:
            return kept
        columns = matrix.shape[1]
        stream = torch.Generator().manual_seed(zlib.crc32(f"{self.seed} {bucket} {place}".encode()))
        normal = torch.randn(columns, min(self.rank, *matrix.shape), generator=stream)
        return normal.to(matrix)


def _like_gradients(flat: Tensor, bucket: GradientBucket) -> list[Tensor]:
    """Views of `flat` laid out as the bucket's gradients are in its own."""
    return [flat.as_strided(g.shape, g.stride(), g.storage_offset()) for g in bucket.gradients()]


def packed(tensors: dict[int, Tensor]) -> Tensor:
    """All of them in one flat tensor."""
    return torch.cat([tensor.flatten() for tensor in tensors.values()])


def unpacked(flat: Tensor, like: dict[int, Tensor]) -> dict[int, Tensor]:
    """The inverse of `packed` for tensors of the shapes in `like`."""
    pieces = flat.split([tensor.numel() for tensor in like.values()])
    return {i: p.view_as(t) for (i, t), p in zip(like.items(), pieces, strict=True)}
