"""The GPT of dlsys.model whose ranks share the tokens of each sequence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from dlsys import world
from dlsys.annotated import checked
from dlsys.context_parallel.plan import Kind, Layout, layout
from dlsys.context_parallel.ring_attention import ring_attention
from dlsys.context_parallel.ulysses import ulysses
from dlsys.model import GPT
from dlsys.world import Communicator

Attention = Callable[[Communicator, Layout, Tensor, Tensor, Tensor], Tensor]
"""`ring_attention`, `ulysses` or `gathered_attention`."""


class _Core(nn.Module):
    """In the place of a layer's attention: the same over the tokens of all ranks."""

    def __init__(self, attention: Attention, comm: Communicator) -> None:
        super().__init__()
        self.attention, self.comm = attention, comm
        self.layout: Layout  # of the sequence under way

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """q (b, tokens, heads, d), k and v (b, tokens, kv_heads, d) -> as q."""
        return self.attention(self.comm, self.layout, q, k, v)


class ContextParallel(nn.Module):
    """A GPT that every rank has whole, and of whose sequences each has some tokens.

    It is called with the whole tokens and targets (b, s) on every rank, as GPT is. Everything but
    attention is done to a rank's own tokens. The loss is this rank's share of the mean over all
    tokens, times n: its mean over the ranks, and that of the gradients, are those of one device. So
    average gradients as in data parallelism (wrap this in DataParallel). Without targets it gives
    the logits of this rank's tokens (b, tokens, vocab), in the order of `layout.positions(rank)`.

    - attention: `ring_attention`, `ulysses` or `gathered_attention`.
    - kind: how tokens are shared out; see `plan.layout`. `documents`: see there.

    comm=None means the world that the caller is in. Raises ValueError for a GPT with dropout in its
    attention, or for heads that `ulysses` cannot share out.
    """

    @checked
    def __init__(
        self,
        module: GPT,
        comm: Communicator | None = None,
        attention: Attention = ring_attention,
        kind: Kind = "zigzag",
    ) -> None:
        super().__init__()
        self.comm = world.current() if comm is None else comm
        self.module, self.kind = module, kind
        ...
        self._cores = [...]
