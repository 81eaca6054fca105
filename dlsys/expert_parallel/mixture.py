"""A mixture of experts on one device: feed-forward networks of which each token visits k of E.

x is (tokens, hidden); `chosen` and `weights`, (tokens, k), are as routing.py gives them.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Linears(nn.Module):
    """One linear layer for each expert: weights (E, out, in), biases (E, out)."""

    def __init__(self, number: int, in_features: int, out_features: int, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(number, out_features, in_features))
        self.bias = nn.Parameter(torch.empty(number, out_features)) if bias else None

    def forward(self, x: Tensor, counts: list[int]) -> Tensor:
        """One product for each expert, of its `counts` rows of x, which lie expert by expert."""
        none = [None] * len(counts)
        biases = none if self.bias is None else self.bias.unbind()
        groups = zip(x.split(counts), self.weight.unbind(), biases, strict=True)
        return torch.cat([F.linear(*group) for group in groups])


class Experts(nn.Module):
    """Feed-forward networks of one shape: down(gelu(up(x))), or gated ones with a third matrix."""

    def __init__(self, number: int, hidden: int, width: int, gated: bool, bias: bool) -> None:
        super().__init__()
        self.gate = Linears(number, hidden, width, bias) if gated else None
        self.up = Linears(number, hidden, width, bias)
        self.down = Linears(number, width, hidden, bias)

    def forward(self, x: Tensor, counts: list[int]) -> Tensor:
        """Rows of x -> as many, those of expert 0 first."""
        up = self.up(x, counts)
        gated = F.gelu(up) if self.gate is None else F.silu(self.gate(x, counts)) * up
        return self.down(gated, counts)


def all_of(experts: Experts, x: Tensor) -> Tensor:
    """What every expert makes of every token (E, tokens, hidden)."""
    number = len(experts.up.weight)
    return experts(x.repeat(number, 1), [len(x)] * number).unflatten(0, (number, -1))


def dense(x: Tensor, chosen: Tensor, weights: Tensor, every: Tensor) -> Tensor:
    """Weigh what every expert made of every token, with 0 where the token has not chosen it."""
    number = len(every)
    table = weights.new_zeros(len(x), number + 1).scatter(1, chosen, weights)
    return torch.einsum("te,eth->th", table[:, :number].to(x.dtype), every)


def by_expert(chosen: Tensor, number: int) -> tuple[Tensor, Tensor]:
    """Sort copies by expert, without the dropped: their places, and counts (E,)."""
    flat = chosen.flatten()
    counts = flat.bincount(minlength=number + 1)[:number]
    return flat.argsort(stable=True)[: counts.sum()], counts


def weigh_and_add(x: Tensor, copies: Tensor, weights: Tensor, order: Tensor) -> Tensor:
    """Weigh what the experts made of the copies, and add it up for each token."""
    weighted = copies * weights.flatten()[order, None].to(x.dtype)
    return torch.zeros_like(x).index_add(0, order // weights.shape[1], weighted)


def grouped(x, chosen, weights, compute, number: int) -> Tensor:
    """Have every expert read the tokens that chose it, and no others."""
    order, counts = by_expert(chosen, number)
    copies = compute(x[order // chosen.shape[1]], counts.tolist())
    return weigh_and_add(x, copies, weights, order)
