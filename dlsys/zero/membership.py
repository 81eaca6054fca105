"""Which modules of a model are units, and which unit each parameter belongs to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from dlsys.checks import refuse

Chosen = type | Sequence[type] | Callable[[nn.Module], bool] | None
"""Module types, or what says of a module whether it is a unit; None for the members of lists."""

OUTER = "outer"
"""The name of the unit that holds what is in no other."""
_LISTS = (nn.ModuleList, nn.Sequential)
_UNCALLED = (nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict)


class Slot(NamedTuple):
    """A parameter of the whole model: its name, and every (module, attribute) that it stands in.

    A tied parameter has several.
    """

    name: str
    owners: tuple[tuple[nn.Module, str], ...]
    parameter: nn.Parameter

    @property
    def shape(self) -> torch.Size:
        """Of the whole parameter."""
        return self.parameter.shape


class Membership(NamedTuple):
    """The slots of each unit (name, module, slots) in order of registration, and of no unit."""

    units: list[tuple[str, nn.Module, list[Slot]]]
    replicated: list[Slot]


def membership(module: nn.Module, chosen: Chosen) -> Membership:
    """Assign each parameter of `module` to the innermost unit that holds all who share it.

    Raises ValueError for a unit that is never called, in which nothing would be gathered.
    """
    units = _unit_modules(module, chosen)
    slots: dict[int, list[Slot]] = {id(unit): [] for unit in units}
    replicated: list[Slot] = []
    for slot, chains in _slots(module):
        held_by = [unit for unit in chains[0] if all(unit in chain for chain in chains)]
        inner = [id(unit) for unit in held_by if id(unit) in slots]
        (slots[inner[-1]] if inner else replicated).append(slot)
    found = [(name, unit, slots[id(unit)]) for unit, name in units.items()]
    return Membership([each for each in found if each[2]], replicated)


def _unit_modules(module: nn.Module, chosen: Chosen) -> dict[nn.Module, str]:
    """The units with their names, an outer module before those inside."""
    if chosen is None:
        members = {id(m) for each in module.modules() if isinstance(each, _LISTS) for m in each}
        members.add(id(module))
        found = {m: n for n, m in module.named_modules() if id(m) in members}
        return {m: n or OUTER for m, n in found.items() if m is module or not _is_uncalled(m)}
    says = _predicate(chosen)
    found = {m: n or OUTER for n, m in module.named_modules() if says(m)}
    for unit, name in found.items():
        if _is_uncalled(unit):
            raise ValueError(
                f"units makes {name!r} a unit, but nobody calls a {type(unit).__name__}, and its "
                "weights would never be gathered: make its members units."
            )
    return found


def _is_uncalled(module: nn.Module) -> bool:
    return isinstance(module, _UNCALLED) and not isinstance(module, nn.Sequential)


def _predicate(chosen: object) -> Callable[[nn.Module], bool]:
    several = isinstance(chosen, list | tuple | set | frozenset)
    types: tuple[Any, ...] = tuple(chosen) if several else (chosen,)  # type: ignore[arg-type]
    if types and all(isinstance(each, type) and issubclass(each, nn.Module) for each in types):
        return lambda module: isinstance(module, types)
    if isinstance(chosen, type) or not callable(chosen):
        refuse("units", chosen, "module types such as [Block], a function of a module, or None")
    return lambda module: bool(chosen(module))


def _slots(module: nn.Module) -> Iterator[tuple[Slot, list[list[nn.Module]]]]:
    """Each parameter once, with the modules on the way to each place that it stands in."""
    names, places, chains = {}, {}, {}  # type: ignore[var-annotated]
    for path, owner in module.named_modules(remove_duplicate=False):
        for leaf, parameter in owner._parameters.items():
            if parameter is None:
                continue
            if hasattr(parameter, "is_shard"):
                raise ValueError(
                    f"module has {path!r} in a FullyShardedDataParallel already: wrap the whole "
                    "module, once."
                )
            key = id(parameter)
            names.setdefault(key, (f"{path}.{leaf}".lstrip("."), parameter))
            places.setdefault(key, {})[id(owner), leaf] = (owner, leaf)
            chains.setdefault(key, []).append(_chain(module, path))
    for key, (name, parameter) in names.items():
        yield Slot(name, tuple(places[key].values()), parameter), chains[key]


def _chain(module: nn.Module, path: str) -> list[nn.Module]:
    """The modules from the outermost to the one at `path`."""
    steps = [module]
    for name in filter(None, path.split(".")):
        steps.append(steps[-1]._modules[name])  # type: ignore[arg-type]
    return steps
