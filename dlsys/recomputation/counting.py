"""What is counted of an operation: the storages of its result, and FLOPs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from dlsys.tensors import address


def storages(result: Any) -> list[Tensor]:
    """A tensor for each storage of what an operation gave."""
    tensors = (each for each in tree_leaves(result) if isinstance(each, Tensor))
    return [*{address(each): each for each in reversed([*tensors])}.values()][::-1]


def flops_of(function: Any, args: Any, kwargs: Any, result: Any) -> int:
    """FLOPs of matrix products, by torch's own formulas; 0 for what has none."""
    if function.overloadpacket is torch.ops.aten._scaled_dot_product_flash_attention_for_cpu:
        query, key, value = (each.shape for each in args[:3])  # the one that torch does not count
        return 2 * query[:-1].numel() * key[-2] * (query[-1] + value[-1])
    formula = flop_registry.get(function.overloadpacket)
    return formula(*args, **kwargs, out_val=result) if formula else 0
