"""The GPT of dlsys.model cut along three axes at once: tensor, context and expert parallelism.

Tensor parallelism cuts the weights, and each rank runs the same code on its part. So the other two
fit inside: the heads of a rank go round its own ring of `cp` ranks, and the experts of a rank, cut
over `tp` as a feed-forward network is, read copies that come from its own `ep` ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from dlsys.checks import divisor
from dlsys.composing_axes.cut import mixture_parameters
from dlsys.context_parallel import layout, ring_attention
from dlsys.expert_parallel import MoE
from dlsys.expert_parallel.mixture import Experts, Linears
from dlsys.mesh import Axes
from dlsys.model import GPT
from dlsys.tensor_parallel import TensorParallelGPT, reduce
from dlsys.tensor_parallel.autograd import copies
from dlsys.tensor_parallel.linear import part
from dlsys.transformer import TransformerSpec
from dlsys.world import Communicator


class RingCore(nn.Module):
    """In the place of a layer's own attention: that of my heads, whose keys go round a ring."""

    def __init__(self, comm: Communicator) -> None:
        super().__init__()
        self.comm = comm

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """q (b, s/cp, heads, d), k and v (b, s/cp, kv_heads, d) -> as q."""
        n = self.comm.size
        return ring_attention(self.comm, layout(n * q.shape[1], n), q, k, v)


class Scale(torch.autograd.Function):
    """x times one factor, and in backward the gradient times another."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, there: float, back: float) -> Tensor:
        """x `there`."""
        ctx.back = back
        return x * there

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None, None]:
        """dy `back`."""
        return dy * ctx.back, None, None


class Addends(Linears):
    """Linear layers whose results are summed over t ranks: each adds 1/t of a bias that all have.

    The bias is in the sum once, so its gradient is the sum's, which every rank has.
    """

    ranks = 1

    def forward(self, x: Tensor, counts: list[int]) -> Tensor:
        """See Linears."""
        if self.bias is None or self.ranks == 1:
            return super().forward(x, counts)
        biases = Scale.apply(self.bias, 1 / self.ranks, 1.0).unbind()
        groups = zip(x.split(counts), self.weight.unbind(), biases, strict=True)
        return torch.cat([nn.functional.linear(*group) for group in groups])


class CutExperts(Experts):
    """Experts of which each of tp ranks has some neurons; what they make is one addend of a sum."""

    def __init__(
        self, tp: int, number: int, hidden: int, width: int, gated: bool, bias: bool
    ) -> None:
        super().__init__(number, hidden, width // tp, gated, bias)
        self.down = Addends(number, width // tp, hidden, bias)
        self.down.ranks = tp


class RoutedExperts(CutExperts):
    """Experts that read tokens of `ep` ranks, which all else does of one.

    A rank's loss is the mean over its own tokens, and gradients are averaged over the ranks. What
    an expert's gradient is before has been summed over ep ranks' tokens, and must be divided by ep.
    So gradients shrink on their way in, and on their way out to the tokens they grow back.
    """

    def __init__(self, ep: int, *shape: Any) -> None:
        super().__init__(*shape)
        self.ep = ep

    def forward(self, x: Tensor, counts: list[int]) -> Tensor:
        """See Experts."""
        if self.ep == 1:
            return super().forward(x, counts)
        return Scale.apply(super().forward(Scale.apply(x, 1, self.ep), counts), 1, 1 / self.ep)


class CutMoE(MoE):
    """A mixture whose experts lie on the ep ranks, each cut by its neurons over the tp ranks.

    The tp ranks route alike, because they have the same tokens and the same router. What their
    experts make is summed once for each token, after the weights. A rank's experts find a part of
    the gradients of tokens and weights, so both are `copies`, and the router's is whole.
    """

    def __init__(self, spec: TransformerSpec, axes: Axes) -> None:
        super().__init__(spec, axes.ep, axes.data)
        assert spec.moe is not None
        ep, tp, self.tensor = axes.ep.size, axes.tp.size, axes.tp
        shape = spec.hidden, spec.moe.ffn_hidden or spec.ffn_hidden, spec.gated, spec.bias
        self.experts = RoutedExperts(ep, tp, spec.moe.experts // ep, *shape)
        self.shared = CutExperts(tp, spec.moe.shared, *shape) if spec.moe.shared else None

    def read(self, tokens: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        """See MoE."""
        tokens, weights = copies([tokens, weights.to(tokens.dtype)], self.tensor)
        return reduce(super().read(tokens, chosen, weights), self.tensor)


class ComposedGPT(TensorParallelGPT):
    """dlsys.model.GPT, or MixtureGPT, cut for a rank with these communicators, on the meta device.

    `split` of pipeline_parallel takes its stages out and gives them memory. It is called with this
    rank's tokens, (b, s/cp) of whole sequences (b, s): those of `positions_of`. The loss is their
    mean, so the mean over the `data` ranks, of losses and of gradients, is what one device gets.
    Parameters have their one-device names, and an expert's its place among this rank's.

    Raises ValueError where tp cannot cut the spec, cp its sequence, or ep its experts, and for
    sequence parallelism beside a mixture, whose router would read tokens that tp ranks share out.
    """

    def __init__(
        self,
        spec: TransformerSpec,
        axes: Axes,
        sequence_parallel: bool = False,
        seed: int = 0,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        check(spec, axes, sequence_parallel)
        without = replace(spec, moe=None)
        super().__init__(without, axes.tp, sequence_parallel, seed=seed, device="meta", dtype=dtype)
        self.spec, self.axes = spec, axes
        self.layout = replace(
            self.layout,
            parameters=(
                *self.layout.parameters,
                *mixture_parameters(spec, axes.tp.size, axes.ep.size),
            ),
        )
        block: Any
        for number, block in enumerate(self.layers):
            if axes.cp.size > 1:
                block.attention.core = RingCore(axes.cp)
            if spec.is_sparse(number):
                with torch.device("meta"):
                    block.ffn = CutMoE(spec, axes).to(dtype)

    def positions_of(self, tokens: Tensor) -> Tensor:
        """Where in their sequence this rank's tokens (b, s/cp) stand, (s/cp,); see GPT."""
        n = self.axes.cp.size
        super().positions_of(tokens.repeat(1, n))
        at = layout(n * tokens.shape[1], n).positions(self.axes.cp.rank)
        return torch.tensor(at, device=tokens.device)

    def initial(self, name: str, shape: Sequence[int], seed: int) -> Tensor:
        """This rank's part of the value that GPT, or MixtureGPT, gives the parameter."""
        for kind, first in (("experts", self.axes.ep.rank * shape[0]), ("shared", 0)):
            layer, found, matrix = name.partition(f".ffn.{kind}.")
            if found:
                cut = self.layout[name]
                each = [f"{layer}.ffn.{kind}.{first + i}.{matrix}" for i in range(shape[0])]
                wholes = [GPT.initial(self, one, cut.shape[1:], seed) for one in each]
                return part(torch.stack(wholes), cut, self.axes.tp.rank)
        return super().initial(name, shape, seed)

    def holders(self, name: str) -> int:
        """How many of the tp ranks hold the same numbers of this parameter."""
        cut = self.layout[name]
        return cut.ranks // (1 if cut.dimension is None else cut.pieces)


def check(spec: TransformerSpec, axes: Axes, sequence_parallel: bool) -> None:
    """Raise ValueError, as ComposedGPT does."""
    tp, cp = axes.tp.size, axes.cp.size
    divisor("context-parallel degree", cp, {"tokens of a sequence": spec.sequence})
    if sequence_parallel:
        cut = {"tokens of a context-parallel rank": spec.sequence // cp}
        divisor("sequence-parallel degree", tp, cut)
    if spec.moe is None:
        divisor("expert-parallel degree", axes.ep.size, {"experts of a dense model": 1})
        return
    divisor("expert-parallel degree", axes.ep.size, {"experts": spec.moe.experts})
    divisor(
        "tensor-parallel degree",
        tp,
        {"neurons of an expert": spec.moe.ffn_hidden or spec.ffn_hidden},
    )
    if sequence_parallel:
        raise ValueError(
            "sequence_parallel is True beside a mixture of experts; it must be False, because each "
            "tp rank routes all tokens of its group."
        )
