"""The online softmax: a weighted mean with softmax weights, from summaries of parts.

A part of the scores is summed up by three things: their maximum, the sum of exp(score - maximum),
and the values weighted by the same exponentials. Two summaries merge into that of both parts.
"""

from __future__ import annotations

from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor

from dlsys.annotated import checked
from dlsys.checks import count, refuse, refuse_what
from dlsys.tensors import of_numbers, of_shape


class Summary(NamedTuple):
    """What is left of a part of the keys, for each query.

    - maximum, total: (..., rows); weighted: (..., rows, width)
    """

    maximum: Tensor
    total: Tensor
    weighted: Tensor


@checked
def summarize(scores: Tensor, values: Tensor) -> Summary:
    """The summary of scores (..., rows, keys) over values (..., keys, width).

    m = max_j x_j, l = sum_j exp(x_j - m), o = sum_j exp(x_j - m) v_j. A score of -inf is a pair
    that a mask forbids. Raises ValueError for shapes that do not fit.
    """
    _check(scores, values)
    maximum = scores.amax(-1).clamp_min(torch.finfo(scores.dtype).min)
    weights = torch.exp(scores - maximum[..., None])
    return Summary(maximum, weights.sum(-1), weights @ values)


@checked
def merge(one: Summary, other: Summary) -> Summary:
    """The summary of both parts: each is scaled by exp(its maximum - the larger maximum).

    In any order and any grouping, up to rounding.
    Source: Milakov and Gimelshein 2018 (arXiv 1805.02867), section 3.1.
    """
    _check_summary("one", one)
    _check_summary("other", other)
    maximum = torch.maximum(one.maximum, other.maximum)
    a, b = torch.exp(one.maximum - maximum), torch.exp(other.maximum - maximum)
    return Summary(
        maximum,
        one.total * a + other.total * b,
        one.weighted * a[..., None] + other.weighted * b[..., None],
    )


@checked
def weighted_mean(summary: Summary) -> Tensor:
    """sum_j softmax(x)_j v_j (..., rows, width): divided once, at the end; 0 for no key at all."""
    _check_summary("summary", summary)
    total = summary.total[..., None]
    return torch.where(total > 0, summary.weighted / total, torch.zeros_like(summary.weighted))


@checked
def log_sum_exp(summary: Summary) -> Tensor:
    """log sum_j exp(x_j) = m + log l (..., rows): all that backward needs to make weights again."""
    _check_summary("summary", summary)
    return summary.maximum + summary.total.log()


@checked
def online_attention(scores: Tensor, values: Tensor, tile: int = 32) -> Tensor:
    """softmax(scores) values, `tile` scores of a row at a time: the merge in a loop."""
    size = count("tile", tile)
    _check(scores, values)
    parts = zip(scores.split(size, -1), values.split(size, -2), strict=True)
    return weighted_mean(reduce(merge, (summarize(*part) for part in parts)))


def _check_summary(name: str, given: object) -> None:
    if not isinstance(given, Summary):
        refuse(name, given, "a Summary, as summarize(scores, values) gives")


def _check(scores: Tensor, values: Tensor) -> None:
    of_numbers("scores", scores)
    of_numbers("values", values)
    if scores.dim() < 2 or values.dim() < 2 or scores.shape[-1] != values.shape[-2]:
        allowed = f"(..., rows, keys) and values (..., keys, width), which are {of_shape(values)}"
        refuse_what("scores", of_shape(scores), allowed)
    if not scores.shape[-1]:
        refuse_what("scores", of_shape(scores), "of at least one key")
