"""The state of a sharded optimizer: one rank's part, all parts put together, and cut anew."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from dlsys.world import Communicator
from dlsys.zero.local_shard import WEIGHT, LocalShard, placed
from dlsys.zero.optimizer.bucket import Part

MASTER = "master"
"""The name under which a state dict has a master copy; optimizers take no notice of it."""


def merged(every: Sequence[Mapping[int, Mapping[str, Any]]]) -> dict[int, dict[str, Any]]:
    """By a parameter's number its whole state, out of every rank's parts in the order of ranks."""
    state: dict[int, dict[str, Any]] = {}
    for number in sorted({number for parts in every for number in parts}):
        found = [parts[number] for parts in every if number in parts]
        state[number] = {key: _joined([part[key] for part in found]) for key in found[0]}
    return state


def _joined(values: Sequence[Any]) -> Any:
    """One entry of a parameter's state: what has a number for each element is put together."""
    if not isinstance(values[0], LocalShard):
        return values[0]
    return torch.cat([each.tensor for each in values]).view(values[0].shape)


def of_part(part: Part, state: Mapping[str, Any]) -> dict[str, Any]:
    """A part of a parameter, and its state, with their places."""
    return placed(part.tensor, part.piece.start, tuple(part.parameter.shape), state)


def on_cpu(part: Part, state: Mapping[str, Any]) -> dict[str, Any]:
    """A part's state as others hear of it, with a master copy where there is one."""
    master = {MASTER: part.tensor} if part.tensor.dtype != part.parameter.dtype else {}
    found = {
        key: value.detach().cpu() if isinstance(value, Tensor) else value
        for key, value in {**state, **master}.items()
    }
    return {key: value for key, value in of_part(part, found).items() if key != WEIGHT}


def load(
    inner: torch.optim.Optimizer, parts: Sequence[Part], entries: Sequence[Mapping | None]
) -> None:
    """Give each part its share of what one device has for its parameter (None: nothing)."""
    state = {}
    for place, (part, values) in enumerate(zip(parts, entries, strict=True)):
        if values is not None:
            state[place] = cut(part, values)
            master = state[place].pop(MASTER, None)
            if master is not None and part.copied:
                part.tensor.copy_(master)
    # Its own load_state_dict puts every value into the type and onto the device of its part.
    inner.load_state_dict({"state": state, "param_groups": inner.state_dict()["param_groups"]})


def cut(part: Part, values: Mapping[str, Any]) -> dict[str, Any]:
    """A part's share of what one device has for its parameter, in memory of its own.

    Raises ValueError where an entry has another shape than the parameter.
    """
    return {key: _cut(part, key, value) for key, value in values.items()}


def _cut(part: Part, key: str, value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    if part.whole or not value.dim():  # one number is the same for all
        return value.clone()
    if value.shape != part.parameter.shape:
        raise ValueError(
            f"the state_dict has {key!r} of shape {tuple(value.shape)} for {part.piece.name!r}, "
            f"whose shape is {tuple(part.parameter.shape)}."
        )
    return part.of(value).clone()


def exchange(comm: Communicator, mine: object, device: torch.device) -> list[Any]:
    """What every rank has brought, by rank, on every rank."""
    file = io.BytesIO()
    torch.save(mine, file)
    letters = torch.frombuffer(file.getbuffer(), dtype=torch.uint8).to(device)
    lengths = comm.all_gather(torch.tensor([len(letters)], device=device)).tolist()
    padded = letters.new_zeros(max(lengths))
    padded[: len(letters)] = letters
    everything = comm.all_gather(padded).cpu().view(comm.size, -1)
    return [_read(row[:length]) for row, length in zip(everything, lengths, strict=True)]


def _read(letters: Tensor) -> Any:
    # What is read was written by this very program in another rank.
    return torch.load(io.BytesIO(letters.numpy().tobytes()), weights_only=False)
