"""Tensors checked where they come in: what torch would refuse later, in words of its own."""

from __future__ import annotations

import torch
from torch import Tensor

from dlsys.checks import refuse, refuse_what


def of_shape(x: Tensor) -> str:
    """Its shape and type, in words."""
    return f"of shape {tuple(x.shape)} and {x.dtype}"


def dense(name: str, x: Tensor) -> None:
    """Check that `x` is dense, of numbers that can be computed with; raises ValueError."""
    if x.layout is not torch.strided:
        refuse_what(name, f"of layout {x.layout}", f"dense: pass {name}.to_dense()")
    if x.is_floating_point() and x.itemsize == 1:
        computed = f"of a type that is computed in: pass {name}.to(torch.bfloat16)"
        refuse_what(name, f"of {x.dtype}", computed)


def device_of(device: torch.device | str) -> torch.device:
    """The device of this name; raises ValueError where torch knows none."""
    try:
        return torch.device(device)
    except RuntimeError:
        refuse("device", device, "a device of torch, such as 'cpu', 'cuda' or 'meta'")


def token_ids(name: str, x: Tensor) -> None:
    """Check that `x` is (b, s) whole numbers; raises ValueError."""
    if x.dim() != 2 or not x.numel() or x.dtype not in (torch.int64, torch.int32):
        refuse_what(name, of_shape(x), "(b, s) whole numbers, of torch.int64")
