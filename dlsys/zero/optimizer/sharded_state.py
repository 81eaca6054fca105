"""The state of a sharded optimizer: one rank's part, all parts put together, and cut anew."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from dlsys.annotated import checked
from dlsys.checks import refuse, some
from dlsys.world import Communicator
from dlsys.zero.optimizer.bucket import Part

MASTER = "master"
"""The name under which a state dict has a master copy; optimizers take no notice of it."""


@checked
def merge_state_dicts(shards: Sequence[dict]) -> dict[str, Any]:
    """The state dict of the plain optimizer on one device, out of every rank's
    `sharded_state_dict()`, in the order of ranks.

    Raises ValueError where a rank's is missing. Tensors lie on the CPU.
    """
    some("shards", shards)
    for rank, shard in enumerate(shards):
        if shard.get("rank") != rank or shard.get("ranks") != len(shards):
            refuse(
                "shards",
                [(each.get("rank"), each.get("ranks")) for each in shards],
                "what sharded_state_dict() gave on every rank, as (rank, ranks) in order",
            )
    state: dict[int, dict[str, Any]] = {}
    for index in sorted({index for shard in shards for index in shard["state"]}):
        parts = [shard["state"][index] for shard in shards if index in shard["state"]]
        state[index] = {key: _joined(key, parts) for key in parts[0]["values"]}
    return {"state": state, "param_groups": shards[0]["param_groups"]}


def _joined(key: str, parts: Sequence[Mapping[str, Any]]) -> Any:
    """One entry of a parameter's state: what has a number for each element is put together."""
    values = [part["values"][key] for part in parts]
    if len(parts) == 1 or not _is_cut(values[0]):
        return values[0]
    return torch.cat(values).view(parts[0]["shape"])


def _is_cut(value: object) -> bool:
    """Whether a part's entry is a part: one number or one setting is the same for all."""
    return isinstance(value, Tensor) and value.dim() > 0


def sharded(
    parts: Sequence[Part], state: Mapping[Tensor, Mapping[str, Any]], numbers: Mapping[int, int]
) -> dict[int, dict[str, Any]]:
    """Of each part that has a state: its values on the CPU, and its parameter's shape."""
    found = {}
    for part in parts:
        values = _values(part, state[part.parameter]) if part.parameter in state else {}
        if values:
            found[numbers[id(part.parameter)]] = {
                "shape": tuple(part.parameter.shape),
                "values": values,
            }
    return found


def _values(part: Part, values: Mapping[str, Any]) -> dict[str, Any]:
    if part.tensor.dtype != part.parameter.dtype:
        values = {**values, MASTER: part.tensor}
    return {
        key: value.detach().cpu() if isinstance(value, Tensor) else value
        for key, value in values.items()
    }


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
    if part.whole or not _is_cut(value):
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
