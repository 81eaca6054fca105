"""Which modules of a model are units, and which unit each parameter belongs to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from torch import nn

from dlsys.checks import refuse

OUTER = "outer"
"""The name of the unit that holds what is in no other."""
_UNCALLED = (nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict)


class Slot(NamedTuple):
    """A parameter of the whole model: its name, and every (module, attribute) that it stands in.

    A tied parameter has several.
    """

    name: str
    owners: list[tuple[nn.Module, str]]
    parameter: nn.Parameter


Units = list[tuple[str, nn.Module, list[Slot]]]
"""The name of each, its module, and its slots in order of registration."""


def membership(module: nn.Module, chosen: Any) -> tuple[Units, list[Slot]]:
    """Assign each parameter of `module` to the innermost unit that holds all who share it; the
    second list has those of no unit.

    chosen: module types, or what says of a module whether it is a unit; None for the members of
    lists. Raises ValueError for a unit that is never called, in which nothing would be gathered.
    """
    units = _units(module, chosen)
    slots: dict[nn.Parameter, Slot] = {}
    around: dict[nn.Parameter, list[nn.Module]] = {}  # units that hold every place of it
    for path, owner, chain in _walk(module, "", []):
        for leaf, p in owner._parameters.items():
            if p is None:
                continue
            if hasattr(p, "is_shard"):
                raise ValueError(
                    f"module has {path[:-1]!r} in a FullyShardedDataParallel already: wrap the "
                    "whole module, once."
                )
            inside = [each for each in chain if each in units]
            around[p] = [unit for unit in around.get(p, inside) if unit in inside]
            slot = slots.setdefault(p, Slot(path + leaf, [], p))
            if (owner, leaf) not in slot.owners:  # a module may stand in two places
                slot.owners.append((owner, leaf))
    members: dict[nn.Module, list[Slot]] = {unit: [] for unit in units}
    replicated: list[Slot] = []
    for p, slot in slots.items():
        (members[around[p][-1]] if around[p] else replicated).append(slot)
    return [(units[unit], unit, found) for unit, found in members.items() if found], replicated


def _walk(
    module: nn.Module, path: str, around: list[nn.Module]
) -> Iterator[tuple[str, nn.Module, list[nn.Module]]]:
    """Every place that a module stands in: its path, the module, and the chain down to it."""
    chain = [*around, module]
    yield path, module, chain
    for name, child in module.named_children():
        yield from _walk(child, f"{path}{name}.", chain)


def _units(module: nn.Module, chosen: Any) -> dict[nn.Module, str]:
    """The units with their names, an outer module before those inside."""
    if chosen is None:
        lists = [m for m in module.modules() if isinstance(m, nn.ModuleList | nn.Sequential)]
        members = {module, *(m for each in lists for m in each if not isinstance(m, _UNCALLED))}
        return {m: name or OUTER for name, m in module.named_modules() if m in members}
    says = _says(chosen)
    found = {m: name or OUTER for name, m in module.named_modules() if says(m)}
    for unit, name in found.items():
        if isinstance(unit, _UNCALLED):
            raise ValueError(
                f"units makes {name!r} a unit, but nobody calls a {type(unit).__name__}, and its "
                "weights would never be gathered: make its members units."
            )
    return found


def _says(chosen: Any) -> Callable[[nn.Module], object]:
    """What says of a module whether it is a unit."""
    types = tuple(chosen) if isinstance(chosen, list | tuple | set | frozenset) else (chosen,)
    if types and all(isinstance(each, type) and issubclass(each, nn.Module) for each in types):
        return lambda module: isinstance(module, types)
    if isinstance(chosen, type) or not callable(chosen):
        refuse("units", chosen, "module types such as [Block], a function of a module, or None")
    return chosen
