"""Gradient compression: top-k, 8 bits and PowerSGD, as hooks that send less, with error feedback.

Each is a hook of `DataParallel`: called with a bucket, it starts to communicate and returns a
handle whose `wait()` gives the mean gradient as this rank now believes it, the same on every rank.
Error feedback (Seide et al. 2014; Karimireddy et al. 2019): with e the residual that a bucket has
kept, it compresses x = g + e and keeps what was lost. Over many steps the sum of what is sent then
differs from the sum of the gradients by one residual, which stays bounded.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from dlsys.annotated import checked
from dlsys.checks import count, positive, refuse
from dlsys.data_parallel.ddp import GradientBucket
from dlsys.data_parallel.hooks import OneRank, Then
from dlsys.world import Communicator, Handle


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
            refuse("fraction", fraction, "at most 1, which sends all")
        self.fraction = fraction

    def kept(self, elements: int) -> int:
        """How many of a bucket's `elements` are sent."""
        elements = count("elements", elements, least=0)
        return min(elements, max(1, round(self.fraction * elements)))

    def sent_bytes(self, elements: int, ranks: int, itemsize: int = 4) -> int:
        """Bytes that a rank sends for a bucket: (n-1) k (itemsize + 4)."""
        return (count("ranks", ranks) - 1) * self.kept(elements) * (count("itemsize", itemsize) + 4)

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

        both = (values, chosen.to(torch.int32))
        return Then(mean, *(comm.all_gather(x, async_op=True) for x in both))


class Int8(Compression):
    """Sends each element in one byte: a scale for each rank's bucket, and whole numbers to ±127.

    Integers of different scales cannot be summed on the way, and gathering all would send
    (n-1) L bytes. So, as in a reduce-scatter and an all-gather: an all-to-all takes block r of
    every rank's bytes to rank r, which averages them in full precision, quantises the mean with
    a scale of its own and passes it to all. A rank sends 2(n-1)/n L bytes, a quarter of FP32 (with
    L rounded up to n blocks), and 8(n-1) for the scales. Both roundings have residuals; the second
    is rank r's, for its block. (Two-phase 1-bit compression: Tang et al. 2021, 1-bit Adam.)
    """

    @checked
    def __init__(self, error_feedback: bool = True) -> None:
        super().__init__(error_feedback)
        self.block_residuals: dict[int, Tensor] = {}

    def __call__(self, comm: Communicator, bucket: GradientBucket) -> Handle:
        """Start the all-to-all; `wait` averages and gathers."""
        n, length = comm.size, bucket.flat.numel()
        due = pad(self._due(comm, bucket), (0, -length % n))  # n blocks of one length
        whole, scale = quantize(due)
        self._keep(bucket, (due - whole * scale)[:length])

        def mean(blocks: Tensor, scales: Tensor) -> Tensor:
            # Row r is rank r's bytes for this rank's block, each in a scale of its own.
            block = dequantize(blocks, scales).mean(0)
            if bucket.index in self.block_residuals:
                block += self.block_residuals[bucket.index]
            mine, size = quantize(block)
            if self.error_feedback:
                self.block_residuals[bucket.index] = block - mine * size
            means = dequantize(comm.all_gather(mine), comm.all_gather(size.view(1)))
            return means.flatten()[:length].to(bucket.flat.dtype)

        sent = comm.all_to_all(whole, async_op=True), comm.all_gather(scale.view(1), async_op=True)
        return Then(mean, *sent)


def quantize(x: Tensor) -> tuple[Tensor, Tensor]:
    """x as (int8, scale): scale = max |x| / 127 in FP32, round(x / scale); an error of scale/2."""
    scale = (x.abs().max() if x.numel() else x.new_zeros(())).float() / 127
    # A bucket of zeros has scale 0; dividing by 1 keeps it zeros.
    return (x / torch.where(scale > 0, scale, 1)).round().to(torch.int8), scale


def dequantize(whole: Tensor, scales: Tensor) -> Tensor:
    """Whole numbers (elements,) in n equal blocks, each with its scale (n,) -> values by block."""
    return whole.view(len(scales), len(whole) // len(scales)) * scales[:, None]


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
    def __init__(self, rank: int, error_feedback: bool = True) -> None:
        super().__init__(error_feedback)
        self.rank = count("rank", rank)
        self.factors: dict[int, dict[int, Tensor]] = {}  # Q by bucket, and by place in it

    def __call__(self, comm: Communicator, bucket: GradientBucket) -> Handle:
        """Start the all-reduce of the left factors and vectors; `wait` does the right factors."""
        due, dtype = self._due(comm, bucket), bucket.flat.dtype
        gradients = bucket.gradients()
        pieces = [due.as_strided(g.shape, g.stride(), g.storage_offset()) for g in gradients]
        matrices = {i: x.flatten(1) for i, x in enumerate(pieces) if x.ndim > 1}
        vectors = {i: x for i, x in enumerate(pieces) if i not in matrices}
        right = self.factors.get(bucket.index) or self._first(bucket.index, matrices)
        left = {i: matrix @ right[i] for i, matrix in matrices.items()}

        def mean(sums: Tensor) -> Tensor:
            found = _unpacked(sums.to(due.dtype), left | vectors)
            # Algorithm 1: one step of power iteration, with Q from the last step as its start.
            basis = {i: torch.linalg.qr(found[i]).Q for i in matrices}
            right = {i: matrix.T @ basis[i] for i, matrix in matrices.items()}
            if right:
                averaged = comm.all_reduce(_packed(right).to(dtype), op="mean")
                right = _unpacked(averaged.to(due.dtype), right)
            self.factors[bucket.index] = right
            for i, (piece, gradient) in enumerate(zip(pieces, gradients, strict=True)):
                if i in matrices:
                    found[i] = (basis[i] @ right[i].T).view(piece.shape)
                    piece -= found[i]
                else:
                    piece.zero_()  # sent whole: nothing is left over
                gradient.copy_(found[i])
            self._keep(bucket, due)
            return bucket.flat

        packed = _packed(left | vectors).to(dtype)
        return Then(mean, comm.all_reduce(packed, op="mean", async_op=True))

    def _first(self, bucket: int, matrices: dict[int, Tensor]) -> dict[int, Tensor]:
        """The right factors to begin with: random, and the same on every rank."""
        stream = torch.Generator().manual_seed(bucket)
        return {
            i: torch.randn(m.shape[1], min(self.rank, *m.shape), generator=stream).to(m)
            for i, m in matrices.items()
        }


def _packed(tensors: dict[int, Tensor]) -> Tensor:
    """All of them in one flat tensor."""
    return torch.cat([tensor.flatten() for tensor in tensors.values()])


def _unpacked(flat: Tensor, like: dict[int, Tensor]) -> dict[int, Tensor]:
    """The inverse of `_packed` for tensors of the shapes in `like`."""
    pieces = flat.split([tensor.numel() for tensor in like.values()])
    return {i: p.view_as(t) for (i, t), p in zip(like.items(), pieces, strict=True)}
