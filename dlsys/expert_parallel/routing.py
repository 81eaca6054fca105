"""Routing: from a router's scores (tokens, E), the k experts of each token and their weights.

`chosen`, numbers of experts, and their `weights` are (tokens, k). Each entry is a copy of the token
that an expert reads. What keeps experts equally loaded stands below.
"""

import math

import torch
from torch import Tensor


def choose(scores: Tensor, k: int, bias: Tensor | None = None) -> Tensor:
    """Give each token the k experts with the highest scores.

    Biases (E,) are added for the choice alone. Wang et al. (2024), arXiv 2408.15664.
    """
    return (scores if bias is None else scores.sigmoid() + bias).topk(k).indices


def choose_near(
    scores: Tensor, k: int, bias: Tensor | None = None, *, nodes: int, most: int
) -> Tensor:
    """Choose among the experts of the `most` best of `nodes` nodes. DeepSeek-V3, section 2.1.2.

    A node's experts follow each other; it is as good as its k / `most` highest sigmoids together.
    """
    sigmoids = scores.sigmoid() + (0 if bias is None else bias)
    by_node = sigmoids.unflatten(-1, (nodes, -1))
    best = by_node.topk(max(1, k // most)).values.sum(-1).topk(most).indices
    near = torch.zeros_like(by_node[..., 0], dtype=torch.bool).scatter(-1, best, True)
    return by_node.masked_fill(~near.unsqueeze(-1), -math.inf).flatten(-2).topk(k).indices


def softmax_before(scores: Tensor, chosen: Tensor) -> Tensor:
    """Weigh by a softmax over all experts. Switch, eq. 1: Fedus et al. (2021)."""
    return scores.softmax(-1).gather(-1, chosen)


def softmax_after(scores: Tensor, chosen: Tensor) -> Tensor:
    """Weigh by a softmax over the chosen ones. Mixtral: Jiang et al. (2024)."""
    return scores.gather(-1, chosen).softmax(-1)


def sigmoids(scores: Tensor, chosen: Tensor) -> Tensor:
    """Weigh by each one's sigmoid over their sum. DeepSeek-V3 (2024), arXiv 2412.19437, eq. 13."""
    weights = scores.gather(-1, chosen).sigmoid()
    return weights / weights.sum(-1, keepdim=True)


def capacity(factor: float, tokens: int, k: int, number: int) -> int:
    """The most copies that each of `number` experts reads: `factor` times the mean."""
    return math.ceil(factor * tokens * k / number)


def drop(chosen: Tensor, number: int, most: int) -> Tensor:
    """Keep each expert's first copies; one that is dropped goes to expert `number`."""
    copies = torch.nn.functional.one_hot(chosen.flatten(), number)
    place = (copies.cumsum(0) * copies).sum(-1).view_as(chosen)  # from 1 on
    return chosen.masked_fill(place > most, number)


def auxiliary_loss(scores: Tensor, shares: Tensor) -> Tensor:
    """Experts times the sum of f_i P_i: 1 where all is even. Switch, eq. 4 to 6.

    f_i is an expert's share of the copies, which has no gradient, P_i its mean
    probability, which the loss lowers where f_i is large.
    """
    return len(shares) * (shares * scores.softmax(-1).mean(0)).sum()


def z_loss(scores: Tensor) -> Tensor:
    """The mean square of log sum exp(scores). ST-MoE, Zoph (2022), arXiv 2202.08906, eq. 5."""
    return scores.logsumexp(-1).square().mean()


def rebalance(bias: Tensor, shares: Tensor, step: float) -> Tensor:
    """Move each bias by a fixed step against the load. DeepSeek-V3, section 2.1.2."""
    return bias + step * (shares.mean() - shares).sign()
