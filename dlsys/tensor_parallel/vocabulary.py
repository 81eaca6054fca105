"""Vocabulary-parallel embedding and loss: every rank holds some of the words.

Of V words rank r of t has [r*V//t, (r+1)*V//t); where t does not divide V some ranks have one more.
Logits are never gathered: a token's loss is log(sum_v exp(z_v)) - z_target, so a largest logit, a
sum and the target's logit, each a number for every token, are all that ranks tell each other.
Shoeybi et al. 2019 (arXiv 1909.08053), section 3.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from dlsys import world
from dlsys.annotated import checked
from dlsys.checks import count, refuse_what, whole
from dlsys.tensor_parallel.autograd import reduce, scatter_sequence, start_sum
from dlsys.tensor_parallel.linear import MOST_FEATURES, ShardedModule
from dlsys.tensor_parallel.plan import Parameter
from dlsys.tensors import among, dense, indices, of_shape
from dlsys.world import Communicator


class VocabParallelEmbedding(ShardedModule):
    """torch.nn.Embedding of which every rank holds the rows of some words.

    tokens (b, s) -> (b, s, h) on every rank: each looks up the words that it has, takes 0 for the
    others, and the ranks' results are summed. With `sequence_parallel` the sum is reduce-scattered:
    (b, s/t, h). It starts as nn.Embedding would on rank 0 (see ShardedModule). comm=None means the
    world that the caller is in. Raises ValueError where there are fewer words than ranks.
    """

    @checked
    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        comm: Communicator | None = None,
        *,
        sequence_parallel: bool = False,
    ) -> None:
        comm = world.current() if comm is None else comm
        count("num_embeddings", num_embeddings, most=MOST_FEATURES)
        count("embedding_dim", embedding_dim, most=MOST_FEATURES)
        if num_embeddings < comm.size:
            raise ValueError(
                f"{num_embeddings} words cannot be shared by {comm.size} ranks; use at most "
                f"{num_embeddings} ranks."
            )
        shape = (num_embeddings, embedding_dim)
        super().__init__(comm, Parameter("weight", shape, comm.size, 0, comm.size), None)
        self.num_embeddings, self.embedding_dim = shape
        self.sequence_parallel = sequence_parallel
        self.reset_parameters()

    def whole(self) -> nn.Embedding:
        """nn.Embedding of all words."""
        return nn.Embedding(self.num_embeddings, self.embedding_dim)

    @checked
    def forward(self, tokens: Tensor) -> Tensor:
        """tokens (b, s), integers below V -> (b, s, h), or (b, s/t, h)."""
        indices("tokens", tokens)
        with among("tokens", tokens, self.num_embeddings):
            return self._rows(tokens)

    def _rows(self, tokens: Tensor) -> Tensor:
        if self.comm.size == 1:
            return F.embedding(tokens, self.weight)
        first, stop = self.cuts["weight"].bounds(self.comm.rank)
        others = _of_others(tokens, first, stop, self.num_embeddings)
        rows = F.embedding((tokens - first).masked_fill(others, 0), self.weight)
        rows = rows.masked_fill(others.unsqueeze(-1), 0.0)
        return (scatter_sequence if self.sequence_parallel else reduce)(rows, self.comm)


@checked
def vocab_parallel_cross_entropy(
    logits: Tensor,
    targets: Tensor,
    comm: Communicator | None = None,
    vocab: int | None = None,
    ignore_index: int = -100,
) -> Tensor:
    """F.cross_entropy, the mean over tokens, of logits of which each rank has some words' columns.

    logits (..., V/t); targets (...), integers below V or `ignore_index`, and `vocab` V (None: the
    ranks have equally many words) the same on every rank -> the loss, the same on every rank. Like
    F.cross_entropy it stays finite for logits of any size. Raises ValueError for shapes that do not
    fit and for a target that is no word.
    """
    comm = world.current() if comm is None else comm
    _check_loss(logits, targets)
    ignore_index = whole("ignore_index", ignore_index)
    vocab = comm.size * logits.shape[-1] if vocab is None else count("vocab", vocab)
    first, stop = (rank * vocab // comm.size for rank in (comm.rank, comm.rank + 1))
    if stop - first != logits.shape[-1]:
        raise ValueError(
            f"logits has {logits.shape[-1]} columns on rank {comm.rank}; of a vocab of {vocab} "
            f"words that {comm.size} ranks share it has {stop - first}."
        )
    kept = targets != ignore_index
    odd = kept & ((targets < 0) | (targets >= vocab))
    if not odd.is_meta and odd.any():
        raise ValueError(
            f"targets has {targets[odd][0].item()}; a target is a word, from 0 to {vocab - 1}, or "
            f"ignore_index, {ignore_index}."
        )
    losses = _TokenLosses.apply(logits, targets.masked_fill(~kept, 0), vocab, comm)
    return losses.masked_fill(~kept, 0.0).sum() / kept.sum()


def _check_loss(logits: Tensor, targets: Tensor) -> None:
    """Check that there are logits of numbers, and one target for each token."""
    dense("logits", logits)
    dense("targets", targets)
    if not (logits.is_floating_point() and logits.dim() and logits.numel()):
        refuse_what("logits", of_shape(logits), "numbers (..., words), not empty")
    if targets.shape != logits.shape[:-1] or targets.dtype not in (torch.int64, torch.int32):
        tokens = tuple(logits.shape[:-1])
        refuse_what(
            "targets",
            of_shape(targets),
            f"of shape {tokens}, as logits has tokens, and of torch.int64",
        )


def _of_others(words: Tensor, first: int, stop: int, vocab: int) -> Tensor:
    """Which of the words other ranks hold. No rank does those that are not in the vocabulary: all
    of them look for one among their own, which raises as on one device."""
    return ((words < first) & (words >= 0)) | ((words >= stop) & (words < vocab))


class _TokenLosses(torch.autograd.Function):
    """log(sum_v exp(z_v)) - z_target for every token; its gradient is softmax(z) - onehot."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, targets: Tensor, vocab: int, comm: Communicator
    ) -> Tensor:
        # log(sum exp z) = c + log(sum exp(z - c)) for any c: with the largest nothing overflows.
        largest = logits.amax(-1, keepdim=True)
        if comm.size > 1:
            largest = comm.all_reduce(largest, "max")
        shifted = logits - largest
        first = comm.rank * vocab // comm.size
        others = _of_others(targets, first, first + logits.shape[-1], vocab)
        column = (targets - first).masked_fill(others, 0).unsqueeze(-1)
        mine = shifted.gather(-1, column).squeeze(-1).masked_fill(others, 0.0)
        powers = shifted.exp_()
        # Both sums travel at once; what is saved for backward is computed in between.
        total, target = (start_sum(x, comm) for x in (powers.sum(-1), mine))
        sums = total()
        ctx.save_for_backward(powers.div_(sums.unsqueeze(-1)), column, others)
        return sums.log() - target()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        softmax, column, others = ctx.saved_tensors
        # d loss / d z = softmax(z) - onehot: the rank that has the target's column takes 1 off.
        grad = grad.unsqueeze(-1)
        mine = grad.masked_fill(others.unsqueeze(-1), 0.0)
        return (softmax * grad).scatter_add_(-1, column, -mine), None, None, None
