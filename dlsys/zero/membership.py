"""Which modules of a model are units, and which unit each parameter belongs to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from dlsys.checks import refuse

Chosen = type | Sequence[type] | Callable[[nn.Module], bool] | None
"""Module types, or what says of a module whether it is a unit; None for the members of lists."""

OUTER = "outer"
"""The name of the unit that holds what is in no other."""
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
    units = _units(module, chosen)
    around: dict[nn.Parameter, list[nn.Module]] = {}  # units that hold every place of it
    owners: dict[nn.Parameter, dict[tuple[int, str], tuple[nn.Module, str]]] = {}
    names: dict[nn.Parameter, str] = {}
    for path, owner in module.named_modules(remove_duplicate=False):
        for leaf, p in owner._parameters.items():
            if p is None:
                continue
            if hasattr(p, "is_shard"):
                raise ValueError(
                    f"module has {path!r} in a FullyShardedDataParallel already: wrap the whole "
                    "module, once."
                )
            chain = [unit for unit in _chain(module, path) if unit in units]
            around[p] = [unit for unit in around.get(p, chain) if unit in chain]
            owners.setdefault(p, {})[id(owner), leaf] = owner, leaf
            names.setdefault(p, f"{path}.{leaf}".lstrip("."))
    found = Membership([(name, unit, []) for unit, name in units.items()], [])
    slots = {unit: slots for _, unit, slots in found.units}
    for p, name in names.items():
        slot = Slot(name, tuple(owners[p].values()), p)
        (slots[around[p][-1]] if around[p] else found.replicated).append(slot)
    return Membership([each for each in found.units if each[2]], found.replicated)


def _units(module: nn.Module, chosen: Chosen) -> dict[nn.Module, str]:
    """The units with their names, an outer module before those inside."""
    if chosen is None:
        lists = [m for m in module.modules() if isinstance(m, nn.ModuleList | nn.Sequential)]
        members = {module, *(m for each in lists for m in each if not isinstance(m, _UNCALLED))}
        return {m: name or OUTER for name, m in module.named_modules() if m in members}
    says = _predicate(chosen)
    found = {m: name or OUTER for name, m in module.named_modules() if says(m)}
    for unit, name in found.items():
        if isinstance(unit, _UNCALLED):
            raise ValueError(
                f"units makes {name!r} a unit, but nobody calls a {type(unit).__name__}, and its "
                "weights would never be gathered: make its members units."
            )
    return found


def _predicate(chosen: object) -> Callable[[nn.Module], bool]:
    several = isinstance(chosen, list | tuple | set | frozenset)
    types: tuple[Any, ...] = tuple(chosen) if several else (chosen,)  # type: ignore[arg-type]
    if types and all(isinstance(each, type) and issubclass(each, nn.Module) for each in types):
        return lambda module: isinstance(module, types)
    if isinstance(chosen, type) or not callable(chosen):
        refuse("units", chosen, "module types such as [Block], a function of a module, or None")
    return lambda module: bool(chosen(module))


def _chain(module: nn.Module, path: str) -> list[nn.Module]:
    """The modules from the outermost to the one at `path`."""
    steps = [module]
    for name in filter(None, path.split(".")):
        steps.append(steps[-1].get_submodule(name))
    return steps
