"""torch.distributed's own collectives, as functions: the argument stays, the result is new, or
lies where the caller wants it.

What only moves data is handed over as bytes, so that every type can be sent; what reduces is
limited to the types that gloo knows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from dlsys.collectives.buffers import as_rows
from dlsys.collectives.plan import REDUCING
from dlsys.world.call import Call
from dlsys.world.memory import as_bytes

_OPS = {
    "sum": dist.ReduceOp.SUM,
    "mean": dist.ReduceOp.SUM,  # gloo has no mean: divided once, at the end
    "max": dist.ReduceOp.MAX,
    "min": dist.ReduceOp.MIN,
    "prod": dist.ReduceOp.PRODUCT,
}
_REDUCIBLE = frozenset(
    {
        torch.float64,
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.int64,
        torch.int32,
        torch.int8,
        torch.uint8,
    }
)
# torch 2.13 renamed both and warns about the old names.
_all_gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
_reduce_scatter = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)

Finish = Callable[[], torch.Tensor | None]


def is_native(call: Call, size: int) -> bool:
    """Whether torch.distributed can carry out this call; the same answer on every rank."""
    if call.kind == "barrier":
        return True
    tensor = call.tensor
    assert tensor is not None
    if tensor.numel() == 0 or (call.kind in REDUCING and tensor.dtype not in _REDUCIBLE):
        return False
    rows = len(as_rows(tensor))
    if call.kind in ("scatter", "reduce_scatter"):
        return rows % size == 0
    return call.length is None or rows * size == call.length


def start(call: Call, group: dist.ProcessGroup, rank: int, size: int) -> tuple[Any, Finish]:
    """Start a collective; returns its Work, and what gives the result once that is done.

    `call.tensor` of a scatter is the whole on the root, and a template of its shape elsewhere.
    """
    if call.kind == "barrier":
        return dist.barrier(group, async_op=True), lambda: None
    assert call.tensor is not None
    tensor = call.tensor.detach().resolve_conj().resolve_neg()  # in memory as it reads
    rows = as_rows(tensor)
    return _STARTERS[call.kind](call, tensor, rows, group, rank, size)


def _all_reduce(
    call: Call, tensor: torch.Tensor, rows: torch.Tensor, group: Any, rank: int, size: int
) -> tuple[Any, Finish]:
    if call.out is None:
        out = tensor.clone(memory_format=torch.contiguous_format)
    else:
        out = call.out.detach()
        if call.out is not call.tensor:
            out.copy_(tensor)
    work = dist.all_reduce(out, _OPS[call.op], group, async_op=True)
    return work, lambda: _averaged(out, call, size)


def _reduce(
    call: Call, tensor: torch.Tensor, rows: torch.Tensor, group: Any, rank: int, size: int
) -> tuple[Any, Finish]:
    out = tensor.clone(memory_format=torch.contiguous_format)
    work = dist.reduce(out, op=_OPS[call.op], group=group, async_op=True, group_dst=call.root)
    return work, lambda: _averaged(out, call, size) if rank == call.root else None


def _scattered_sum(
    call: Call, tensor: torch.Tensor, rows: torch.Tensor, group: Any, rank: int, size: int
) -> tuple[Any, Finish]:
    out = rows.new_empty((rows.shape[0] // size, *rows.shape[1:]))
    work = _reduce_scatter(out, rows.contiguous(), _OPS[call.op], group, async_op=True)
    return work, lambda: _averaged(out, call, size)


def _broadcast(
    call: Call, tensor: torch.Tensor, rows: torch.Tensor, group: Any, rank: int, size: int
) -> tuple[Any, Finish]:
    out = tensor.clone(memory_format=torch.contiguous_format)
    work = dist.broadcast(as_bytes(out), group=group, async_op=True, group_src=call.root)
    return work, lambda: out


def _joined(
    call: Call, tensor: torch.Tensor, rows: torch.Tensor, group: Any, rank: int, size: int
) -> tuple[Any, Finish]:
    out = rows.new_empty((rows.shape[0] * size, *rows.shape[1:]))
    return _all_gather(as_bytes(out), as_bytes(rows), group, async_op=True), lambda: out


def _gather(
    call: Call, tensor: torch.Tensor, rows: torch.Tensor, group: Any, rank: int, size: int
) -> tuple[Any, Finish]:
    out = parts = None
    if rank == call.root:
        out = rows.new_empty((rows.shape[0] * size, *rows.shape[1:]))
        parts = list(as_bytes(out).view(size, -1).unbind())
    mine = as_bytes(rows)
    work = dist.gather(mine, parts, group=group, async_op=True, group_dst=call.root)
    return work, lambda: out


def _scatter(
    call: Call, tensor: torch.Tensor, rows: torch.Tensor, group: Any, rank: int, size: int
) -> tuple[Any, Finish]:
    out = rows.new_empty((rows.shape[0] // size, *rows.shape[1:]))
    parts = list(as_bytes(rows).view(size, -1).unbind()) if rank == call.root else None
    work = dist.scatter(as_bytes(out), parts, group=group, async_op=True, group_src=call.root)
    return work, lambda: out


def _all_to_all(
    call: Call, tensor: torch.Tensor, rows: torch.Tensor, group: Any, rank: int, size: int
) -> tuple[Any, Finish]:
    length, row_bytes = rows.shape[0], rows.shape[1:].numel() * rows.itemsize
    blocks = [(j + 1) * length // size - j * length // size for j in range(size)]
    out = rows.new_empty((blocks[rank] * size, *rows.shape[1:]))
    work = dist.all_to_all_single(
        as_bytes(out),
        as_bytes(rows),
        [blocks[rank] * row_bytes] * size,
        [block * row_bytes for block in blocks],
        group,
        async_op=True,
    )
    return work, lambda: out


_STARTERS: dict[str, Callable[..., tuple[Any, Finish]]] = {
    "all_reduce": _all_reduce,
    "reduce": _reduce,
    "reduce_scatter": _scattered_sum,
    "broadcast": _broadcast,
    "all_gather": _joined,
    "gather": _gather,
    "scatter": _scatter,
    "all_to_all": _all_to_all,
}


def _averaged(out: torch.Tensor, call: Call, size: int) -> torch.Tensor:
    return out.div_(size) if call.op == "mean" else out
