"""FlashAttention as a function of torch.autograd, and the plain form of attention beside it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dlsys.annotated import checked
from dlsys.attention.flash import backward, forward
from dlsys.attention.memory import FastMemory
from dlsys.attention.plan import KEYS, QUERIES, Align, Tiling, tiling
from dlsys.checks import at_least, flag, refuse_what
from dlsys.tensors import of_numbers, of_shape

QUERY_TILE, KEY_TILE = 256, 512
"""Tiles that are quick on a CPU; a GPU's fast memory holds about 128 by 64."""


class FlashAttention(torch.autograd.Function):
    """softmax(q k^T * scale) v, tile by tile: `FlashAttention.apply(q, k, v, is_causal)`.

    Forward keeps q, k, v, the result and one log-sum-exp a query; backward makes the scores once
    more. There is no second derivative: backward through backward raises RuntimeError.
    `flash_attention` says what it takes.
    """

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        is_causal: bool = False,
        scale: float | None = None,
        tiles: Tiling | None = None,
        memory: FastMemory | None = None,
    ) -> Tensor:
        """q (..., queries, d), k and v (..., keys, d) -> as q."""
        _check(q, k, v, is_causal, scale, tiles)
        ctx.tiles = tiles or tiling(q.shape[-2], k.shape[-2], QUERY_TILE, KEY_TILE, bool(is_causal))
        ctx.scale = q.shape[-1] ** -0.5 if scale is None else float(scale)
        ctx.memory = memory or FastMemory()
        schedule = ctx.tiles.schedule(QUERIES)
        out, lse = forward(schedule, *_lanes(q, k, v), ctx.scale, ctx.memory)
        out, lse = out.view(q.shape), lse.view(q.shape[:-1])
        ctx.save_for_backward(q, k, v, out, lse)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        """Gradients of q, k and v."""
        found = _Gradients.apply(
            *ctx.saved_tensors, *grads, ctx.tiles.schedule(KEYS), ctx.scale, ctx.memory
        )
        return *found, None, None, None, None


class _Gradients(torch.autograd.Function):
    """The backward pass as a function, so that its own backward can refuse."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        out: Tensor,
        lse: Tensor,
        grad: Tensor,
        *rest: Any,
    ) -> tuple[Tensor, ...]:
        grouped = _lanes(q, k, v)
        shape = grouped[0].shape
        saved = (*grouped, out.reshape(shape), lse.reshape(shape[:-1]))
        schedule, scale, memory = rest
        found = backward(schedule, saved, grad.reshape(shape), scale, memory)
        return tuple(d.view(x.shape).to(x.dtype) for d, x in zip(found, (q, k, v), strict=True))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        raise RuntimeError(
            "FlashAttention has no second derivative, for its weights are made again and not "
            "recorded; take naive_attention where gradients of gradients are needed."
        )


@checked
def flash_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    is_causal: bool = False,
    scale: float | None = None,
    tiles: Tiling | None = None,
    memory: FastMemory | None = None,
) -> Tensor:
    """Exact attention without the table of scores: as q, (..., queries, d).

    - q: (..., heads, queries, d); k, v: (..., kv_heads, keys, d), where kv_heads divides heads.
      Two or three dimensions are one head, or heads without batch. Any lengths, any d.
    - is_causal: query i sees keys 0 to i, as torch's does ("upper-left").
    - scale: of the scores, 1/sqrt(d) unless said otherwise.
    - tiles: others than the default, with a mask of their own; for "lower-right" it is
      `tiling(queries, keys, 128, 64, True, "lower-right")`.
    - memory: counts both passes, and refuses what does not fit.

    A query that may see no key gives 0. 16-bit numbers are computed with in FP32. Raises ValueError
    for shapes and types that do not fit together.
    """
    out: Tensor = FlashAttention.apply(q, k, v, is_causal, scale, tiles, memory)
    return out


@checked
def naive_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    is_causal: bool = False,
    scale: float | None = None,
    align: Align = "upper-left",
) -> Tensor:
    """The same by the formula: the whole table of scores, its softmax, a product with v.

    Torch differentiates it, any number of times. A query that may see no key gives 0.
    """
    _check(q, k, v, is_causal, scale, None)
    grouped, k, v = _lanes(q, k, v)
    rows, columns = q.shape[-2], k.shape[-2]
    factor = q.shape[-1] ** -0.5 if scale is None else float(scale)
    scores = (grouped.flatten(1, 2) @ k.mT).mul(factor)
    if is_causal:
        offset = columns - rows if align == "lower-right" else 0
        allowed = torch.ones(rows, columns, dtype=torch.bool, device=q.device).tril(offset)
        mask = torch.zeros(rows, columns, dtype=q.dtype, device=q.device)
        mask = mask.masked_fill_(~allowed, -torch.inf).masked_fill_(~allowed.any(-1, True), 0.0)
        scores = scores.unflatten(1, (-1, rows)).add(mask).flatten(1, 2)
        out = scores.softmax(-1) @ v
        seen = allowed.any(-1, True).repeat(grouped.shape[1], 1)
        return out.masked_fill(~seen, 0.0).view(q.shape)
    return (scores.softmax(-1) @ v).view(q.shape)


def _lanes(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """q (lanes, g, queries, d), k and v (lanes, keys, d): a lane is a head of keys and values."""
    heads = q.shape[-3] if q.dim() > 2 else 1
    group = heads // (k.shape[-3] if k.dim() > 2 else 1)
    rows, d = q.shape[-2:]
    columns = k.shape[-2]
    return q.reshape(-1, group, rows, d), k.reshape(-1, columns, d), v.reshape(-1, columns, d)


def _check(
    q: Tensor, k: Tensor, v: Tensor, is_causal: bool, scale: float | None, tiles: Tiling | None
) -> None:
    """Raises ValueError for arguments that attention cannot take."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not isinstance(x, Tensor):
            raise ValueError(f"{name} is a {type(x).__name__}; it must be a tensor.")
        of_numbers(name, x)
        if x.dim() < 2 or 0 in x.shape:
            refuse_what(name, of_shape(x), "(..., heads, length, head_size), none of them 0")
        if x.dtype != q.dtype or x.device != q.device:
            refuse_what(name, f"of {x.dtype} on {x.device}", f"as q, {q.dtype} on {q.device}")
    if v.shape != k.shape:
        refuse_what("v", of_shape(v), f"of the shape of k, {tuple(k.shape)}")
    if k.dim() != q.dim() or k.shape[-1] != q.shape[-1] or k.shape[:-3] != q.shape[:-3]:
        refuse_what("k", of_shape(k), f"as q, {tuple(q.shape)}, but for its heads and length")
    if q.dim() > 2 and q.shape[-3] % k.shape[-3]:
        heads = f"of {k.shape[-3]} heads"
        refuse_what("k", heads, f"of a number of heads that divides the {q.shape[-3]} of q")
    flag("is_causal", is_causal)
    if scale is not None:
        at_least("scale", scale, 0)
    if tiles is not None and (
        not isinstance(tiles, Tiling) or (tiles.queries, tiles.keys) != (q.shape[-2], k.shape[-2])
    ):
        raise ValueError(
            f"tiles is {tiles}; it must be of q and k: tiling({q.shape[-2]}, {k.shape[-2]}, ...)."
        )
    if tiles is not None and is_causal and tiles.offset is None:
        raise ValueError("tiles have no mask but is_causal is True; give both the same one.")
