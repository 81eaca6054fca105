"""Tensors that checks make up, and what a tensor that came is, in words that a hint can name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import torch

from dlsys.exercises.wrong import OtherStructure


def numbers(source: str | Random, *shape: int, most: int = 4) -> torch.Tensor:
    """Whole numbers from -most to most, as FP32: sums of them are exact in any order.

    source: a text to draw them by, the same for each text; or a Random, to go on with
    """
    random = source if isinstance(source, Random) else Random(source)
    return torch.empty(shape).apply_(lambda _: random.randint(-most, most))


def cut(x: torch.Tensor, dimension: int, comm: Any) -> torch.Tensor:
    """The part of x that a rank holds: x is cut along a dimension, a part for each rank."""
    return x.chunk(comm.size, dimension)[comm.rank].clone()


def in_words(came: Any, known: Mapping[str, torch.Tensor]) -> str:
    """What a tensor is: the first name of `known` whose tensor it is close to.

    Else "no tensor" of real numbers, "of another shape" than the first, "inf or nan", or "wrong".
    """
    values = _values(came)
    if values is None:
        return "no tensor"
    for name, value in known.items():
        if _is_close(values, value):
            return name
    if values.shape != next(iter(known.values())).shape:
        return "of another shape"
    return "wrong" if values.isfinite().all() else "inf or nan"


def beside_a_sum(right: torch.Tensor, ranks: int) -> dict[str, torch.Tensor]:
    """What often comes in the place of a sum over ranks, by name."""
    return {
        "the mean, not the sum": right / ranks,
        "the sum, times the number of ranks": right * ranks,
        "the negative": -right,
    }


def of_all(words: Sequence[str], each: str = "rank") -> str:
    """One word where all ranks (layers, steps, ...) have the same; else "rank 0: right; rank 1:
    wrong"."""
    places: dict[str, list[str]] = {}
    for place, word in enumerate(words):
        places.setdefault(word, []).append(str(place))
    if len(places) == 1:
        return words[0]
    said = ((f"{each}{'s' * (len(at) > 1)} {', '.join(at)}", word) for word, at in places.items())
    return "; ".join(f"{where}: {word}" for where, word in said)


def by_name(words: Sequence[Mapping[str, str]], each: str = "rank") -> dict[str, str]:
    """`of_all` for each name of several results."""
    return {name: of_all([one[name] for one in words], each) for name in words[0]}


def in_order(came: Sequence[Any], right: Mapping[str, torch.Tensor], what: str) -> Sequence[Any]:
    """`came`, unless it holds the right tensors in another order: OtherStructure says which."""
    names = list(right)
    found = [next((n for n in names if _is_close(one, right[n])), "") for one in came]
    if found != names and sorted(found) == sorted(names):
        raise OtherStructure(
            f"{what} is right but for the order: ({', '.join(found)}) came, and "
            f"({', '.join(names)}) is asked for."
        )
    return came


def _is_close(came: Any, value: torch.Tensor) -> bool:
    """Whether two tensors are equal but for rounding."""
    values = _values(came)
    if values is None or values.shape != value.shape:
        return False
    return torch.allclose(values, value.float(), rtol=1e-5, atol=1e-3)


def _values(came: Any) -> torch.Tensor | None:
    """The numbers of a dense tensor, as FP32; None where it has none, or complex ones."""
    if not isinstance(came, torch.Tensor) or came.is_meta or came.is_complex() or came.is_nested:
        return None
    try:
        return came.float() if came.layout is torch.strided else None
    except RuntimeError:  # of a few bits, quantized
        return None
