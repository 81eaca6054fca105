"""The GPT of dlsys.model with the tokens of every sequence shared out over ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from dlsys import world
from dlsys.annotated import checked
from dlsys.checks import refuse_what
from dlsys.context_parallel.gathered import gathered_attention
from dlsys.context_parallel.plan import Kind, Layout, layout
from dlsys.context_parallel.price import Method, check_heads
from dlsys.context_parallel.ring import ring_attention
from dlsys.context_parallel.ulysses import ulysses_attention
from dlsys.model import GPT
from dlsys.tensors import dense, of_shape
from dlsys.world import Communicator

Shared = Callable[[Communicator, Layout, Tensor, Tensor, Tensor], Tensor]
METHODS: dict[Method, Shared] = {
    "ring": ring_attention,
    "gathered": gathered_attention,
    "ulysses": ulysses_attention,
}


class _Core(nn.Module):
    """In the place of a layer's own attention."""

    layout: Layout  # of the sequences under way

    def __init__(self, attention: Shared, comm: Communicator) -> None:
        super().__init__()
        self.attention, self.comm = attention, comm

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """q (b, tokens, heads, d), k and v (b, tokens, kv_heads, d) -> as q."""
        return self.attention(self.comm, self.layout, q, k, v)


class ContextParallel(nn.Module):
    """A GPT that every rank has whole, and of every sequence some tokens.

    Call it as GPT, with whole sequences on every rank. All but attention runs on a rank's own
    tokens. The loss is n times this rank's part of the mean over all tokens, so the mean over the
    ranks of losses, and of gradients, is what one device gets: average them as in data parallelism,
    by `DataParallel(ContextParallel(gpt))`. Without targets it returns the logits of this rank's
    tokens (b, tokens, vocab), at `layout.positions(rank)`.

    - method: "ring", "gathered" or "ulysses", for attention.
    - kind: how tokens are shared out, as for `plan.layout`.

    comm=None means the world that the caller is in. Raises ValueError for a GPT with dropout, whose
    masks would depend on the ranks, or with heads that Ulysses cannot share out.
    """

    @checked
    def __init__(
        self,
        module: GPT,
        comm: Communicator | None = None,
        method: Method = "ring",
        kind: Kind = "zigzag",
    ) -> None:
        super().__init__()
        self.comm = world.current() if comm is None else comm
        self.module, self.kind = module, kind
        if module.dropout.probability:
            raise ValueError(
                f"The GPT has dropout {module.dropout.probability}; it must be 0, because ranks "
                "cannot draw the masks of one device."
            )
        if method == "ulysses":
            check_heads(module.spec, self.comm.size)
        self._cores = [_Core(METHODS[method], self.comm) for _ in module.layers]
        for block, core in zip(module.layers, self._cores, strict=True):
            block.get_submodule("attention").add_module("core", core)

    @checked
    def forward(
        self, tokens: Tensor, targets: Tensor | None = None, documents: Sequence[int] = (0,)
    ) -> Tensor:
        """tokens and targets (b, s) -> this rank's loss, or logits (b, tokens, vocab).

        `documents`: the first positions of the texts packed into each sequence.
        """
        dense("tokens", tokens)
        if tokens.dim() != 2:
            refuse_what("tokens", of_shape(tokens), "(b, s) whole numbers, of torch.int64")
        if targets is not None:
            dense("targets", targets)
            if targets.shape != tokens.shape:
                refuse_what("targets", of_shape(targets), f"{tuple(tokens.shape)}, as tokens is")
        shares = layout(tokens.shape[1], self.comm.size, self.kind, documents)
        for core in self._cores:
            core.layout = shares
        at = torch.tensor(shares.positions(self.comm.rank), device=tokens.device)
        if targets is None:
            return self.module(tokens[:, at], None, at)
        loss = self.module(tokens[:, at], targets[:, at], at)
        return loss * (len(at) * self.comm.size / tokens.shape[1])
