"""Tensors checked where they come in: what torch would refuse later, in words of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor

from dlsys.checks import refuse, refuse_what, some

Key = TypeVar("Key")
Params = Iterable[Tensor] | Iterable[tuple[str, Tensor]] | Iterable[dict[str, Any]]
PARAMETERS = "parameters, (name, parameter) pairs, or groups of them, as torch's optimizers take"


class NoWordError(IndexError, ValueError):
    """A number that stands for none of the rows it is looked up in."""


def of_shape(x: Tensor) -> str:
    """Its shape and type, in words."""
    return f"of shape {tuple(x.shape)} and {x.dtype}"


def strided(name: str, x: Tensor) -> None:
    """Check that `x` lies in memory element by element; raises ValueError."""
    if x.is_nested:
        refuse_what(name, "a nested tensor", f"dense: pass {name}.to_padded_tensor(0)")
    if x.layout is not torch.strided:
        refuse_what(name, f"of layout {x.layout}", f"dense: pass {name}.to_dense()")
    if x.is_quantized:
        numbers = f"of a type that holds its numbers itself: pass {name}.dequantize()"
        refuse_what(name, f"quantized, of {x.dtype}", numbers)


def alike(name: str, came: object, mine: Tensor) -> None:
    """Check that `came` may be loaded into `mine`: a dense tensor of its shape, not one that would
    be spread to it, and of numbers of its kind; raises ValueError."""
    allowed = f"a tensor of shape {tuple(mine.shape)}, of a type that is {_kind(mine)}"
    if not isinstance(came, Tensor):
        refuse(name, came, allowed)
    strided(name, came)
    if came.is_meta:
        refuse_what(name, "on the device meta", allowed)
    if came.shape != mine.shape or _kind(came) != _kind(mine):
        refuse_what(name, of_shape(came), allowed)


def moments_alike(name: str, came: Any, mine: Mapping[str, Any]) -> None:
    """Check of an optimizer's state_dict that what it shares with another's, `mine`, may be loaded
    into that; raises ValueError. Of what a fresh optimizer has no numbers yet none are checked."""
    if not isinstance(came, Mapping) or not {"state", "param_groups"} <= set(came):
        refuse(name, came, "what an optimizer's state_dict() gives")
    for number, state in mine["state"].items():
        for key, each in state.items():
            given = came["state"].get(number, {}).get(key)
            if isinstance(each, Tensor) and isinstance(given, Tensor):
                alike(f"{name}['state'][{number!r}][{key!r}]", given, each)


@contextmanager
def whole_or_not(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Around what loads an optimizer's state: where that fails, the optimizer has the state that it
    had. torch makes all of a new one, and Adam looks into it once it has replaced the old one."""
    kept = dict(optimizer.__dict__)
    try:
        yield
    except BaseException:
        optimizer.__dict__.update(kept)
        raise


def _kind(x: Tensor) -> str:
    if x.dtype is torch.bool:
        return "bool"
    return "complex" if x.is_complex() else "floating-point" if x.is_floating_point() else "whole"


def dense(name: str, x: Tensor) -> None:
    """Check that `x` is dense, of numbers that can be computed with; raises ValueError."""
    strided(name, x)
    if x.is_floating_point() and x.itemsize == 1:
        computed = f"of a type that is computed in: pass {name}.to(torch.bfloat16)"
        refuse_what(name, f"of {x.dtype}", computed)


def of_numbers(name: str, x: Tensor) -> None:
    """Check that x is a dense tensor of floating-point numbers; raises ValueError."""
    dense(name, x)
    if not x.is_floating_point() or x.is_meta:
        where = "on the device meta" if x.is_meta else f"of {x.dtype}"
        refuse_what(name, where, "of a floating-point type, on a device that holds numbers")


def computed_in(name: str, dtype: torch.dtype | None) -> None:
    """Check that numbers of this type can be computed with; raises ValueError. None is allowed."""
    if dtype is not None and not (dtype.is_floating_point and dtype.itemsize > 1):
        refuse(name, dtype, "a floating-point type of 16 bits or more, such as torch.float32")


def device_of(device: torch.device | str) -> torch.device:
    """The device of this name; raises ValueError where torch knows none."""
    try:
        return torch.device(device)
    except RuntimeError:
        refuse("device", device, "a device of torch, such as 'cpu', 'cuda' or 'meta'")


def features(name: str, x: Tensor, size: int) -> None:
    """Check that `x` is (..., size) floating-point numbers; raises ValueError."""
    dense(name, x)
    if not (x.is_floating_point() and x.dim() and x.shape[-1] == size):
        refuse_what(name, of_shape(x), f"(..., {size}) floating-point numbers")


def indices(name: str, x: Tensor, shape: tuple[int, ...] | None = None) -> None:
    """Check that `x` is whole numbers, of this shape where there is one; raises ValueError."""
    strided(name, x)
    if x.dtype not in (torch.int64, torch.int32) or shape not in (None, tuple(x.shape)):
        refuse_what(name, of_shape(x), f"{shape or '(...)'} whole numbers, of torch.int64")


def token_ids(name: str, x: Tensor) -> None:
    """Check that `x` is (b, s) whole numbers; raises ValueError."""
    if x.dim() != 2 or not x.numel() or x.dtype not in (torch.int64, torch.int32):
        refuse_what(name, of_shape(x), "(b, s) whole numbers, of torch.int64")


@contextmanager
def among(name: str, x: Tensor, rows: int) -> Iterator[None]:
    """Have torch's IndexError say which of the numbers `x` is none from 0 to rows - 1.

    To look beforehand would cost an operation in every pass.
    """
    try:
        yield
    except IndexError:
        odd = x[(x < 0) | (x >= rows)]
        first = odd[0].item() if odd.numel() else "another number"
        allowed = f"a whole number from 0 to {rows - 1}"
        raise NoWordError(f"{name} holds {first}; it must hold {allowed} each.") from None


def listed(params: Any) -> list[Any]:
    """What an optimizer is given, as a list of parameters, (name, parameter) pairs or groups.

    Raises ValueError for what is none of these, or empty; torch looks into it further.
    """
    if isinstance(params, Tensor):
        refuse("params", params, PARAMETERS, TypeError)  # as torch does
    if not isinstance(params, Iterable) or isinstance(params, str | bytes | Mapping):
        refuse("params", params, PARAMETERS)
    given = list(params)
    some("params", given)
    kinds = {kind for each in given for kind in (Tensor, tuple, dict) if isinstance(each, kind)}
    if len(kinds) != 1 or not all(isinstance(each, *kinds) for each in given):
        refuse("params", given, PARAMETERS)
    return given


def groups_of(params: Any) -> list[dict[str, Any]]:
    """Parameters, (name, parameter) pairs or groups of them, as groups of parameters.

    Raises ValueError for what is none of these, or empty.
    """
    given = listed(params)
    groups = [dict(each) for each in given] if isinstance(given[0], dict) else [{"params": given}]
    for group in groups:
        each = group.get("params", ())
        each = [each] if isinstance(each, Tensor) else list(each)
        group["params"] = [p[1] if isinstance(p, tuple) and len(p) == 2 else p for p in each]
        if not all(isinstance(p, Tensor) and p.is_floating_point() for p in group["params"]):
            refuse("params", params, PARAMETERS)
    return groups


def in_one_thread(steps: Iterable[Key]) -> Iterator[Key]:
    """The steps, with torch in one thread: on tensors so small, threads wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield from steps
    finally:
        torch.set_num_threads(threads)


def address(tensor: Tensor) -> int:
    """Where its storage object lies: on the meta device there is no other address."""
    return tensor.untyped_storage()._cdata


def storage_bytes(tensors: Iterable[Any]) -> int:
    """Bytes of the storages that these tensors lie in, each counted once; others do not count."""
    storages = (each.untyped_storage() for each in tensors if isinstance(each, Tensor))
    return sum({storage._cdata: storage.nbytes() for storage in storages}.values())


def bucketed(
    tensors: Sequence[tuple[Key, Tensor]], limit: float
) -> Iterator[list[tuple[Key, Tensor]]]:
    """Tensors of one dtype and device together, from the last to the first, closed as soon as
    there are `limit` bytes: backward has gradients in this order, and what is full can be sent."""
    kinds: dict[tuple[torch.dtype, torch.device], list[tuple[Key, Tensor]]] = {}
    for key, tensor in reversed(tensors):
        kinds.setdefault((tensor.dtype, tensor.device), []).append((key, tensor))
    for each in kinds.values():
        open_, nbytes = [], 0
        for key, tensor in each:
            open_.append((key, tensor))
            nbytes += tensor.nbytes
            if nbytes >= limit:
                yield open_[::-1]
                open_, nbytes = [], 0
        if open_:
            yield open_[::-1]
