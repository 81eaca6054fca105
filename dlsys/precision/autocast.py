"""Autocast: matrix products in 16 bits, and what sums up or exponentiates in FP32 between them.

An operation takes its inputs in the type of its list: products in `fmt`, sums in FP32, all
others as they come. The choice is made operation by operation, so that a module needs no change.
torch.autocast does the same by longer lists; on CPU its FP32 list has no softmax.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from dlsys.annotated import checked
from dlsys.checks import refuse
from dlsys.precision.mixed import DTYPES
from dlsys.precision.plan import BF16, Format

InFP32 = Literal["softmax", "norm", "loss"]
"""Attention's and others' normalisation; norms and their statistics; what is minimised."""

PRODUCTS: frozenset[Any] = frozenset(
    {F.linear, torch.einsum, torch.matmul, torch.mm, torch.bmm, torch.addmm, torch.baddbmm}
    | {Tensor.matmul, Tensor.mm, Tensor.bmm, Tensor.__matmul__, Tensor.__rmatmul__}
    | {F.bilinear, F.conv1d, F.conv2d, F.conv3d, F.scaled_dot_product_attention}
)
"""They take nearly all the time, and tensor cores compute them of 16-bit inputs, with FP32 sums."""

FP32_LIST: Mapping[InFP32, frozenset[Any]] = {
    "softmax": frozenset({F.softmax, F.log_softmax, torch.softmax, torch.log_softmax})
    | {Tensor.softmax, Tensor.log_softmax, torch.logsumexp, Tensor.logsumexp},
    "norm": frozenset({F.layer_norm, F.rms_norm, F.group_norm, torch.layer_norm, torch.rms_norm}),
    "loss": frozenset({F.cross_entropy, F.nll_loss, F.mse_loss, F.l1_loss, F.kl_div})
    | {F.binary_cross_entropy, F.binary_cross_entropy_with_logits},
}


class Autocast:
    """While open, products are computed in `fmt` and the operations named in `fp32` in FP32.

    `with Autocast(BF16): loss = model(tokens, targets)`; backward follows what forward did, and
    comes after. Weights may be FP32, from which each product casts them as torch.autocast does, or
    16-bit, as MixedPrecision keeps them. The optimizer, in FP32 too, is MixedPrecision's. An
    operation that is left out takes its inputs as they come. Raises ValueError for a format that is
    no type of torch, in which there is nothing to compute.
    """

    @checked
    def __init__(self, fmt: Format = BF16, fp32: Sequence[InFP32] = get_args(InFP32)) -> None:
        if fmt not in DTYPES:
            refuse("fmt", fmt, f"{' or '.join(map(str, DTYPES))}, in which torch computes")
        wide = frozenset().union(*(FP32_LIST[name] for name in fp32))
        self._mode = _Casting(DTYPES[fmt], wide)

    def __enter__(self) -> Autocast:
        self._mode.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._mode.__exit__(kind, error, trace)


class _Casting(TorchFunctionMode):
    """What torch asks before each operation; what an operation calls itself is asked no more."""

    def __init__(self, narrow: torch.dtype, wide: frozenset[Any]) -> None:
        self.narrow, self.wide = narrow, wide

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        dtype = self.narrow if func in PRODUCTS else torch.float32 if func in self.wide else None
        if dtype is not None:
            args, kwargs = _cast(args, dtype), _cast(kwargs, dtype)
        return func(*args, **kwargs)


def _cast(value: Any, dtype: torch.dtype) -> Any:
    """The tensors of floating-point numbers in it, in this type; FP64 is asked for, and stays."""
    if isinstance(value, Tensor):
        is_cast = value.is_floating_point() and value.dtype != torch.float64
        return value.to(dtype) if is_cast else value
    if isinstance(value, dict):
        return {key: _cast(each, dtype) for key, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_cast(each, dtype) for each in value)
    return value
