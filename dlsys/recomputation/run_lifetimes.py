"""A graph run on tensors in a given order, each reference dropped once its value is dead."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dlsys.annotated import checked
from dlsys.checks import refuse, unknown
from dlsys.meter import LiveStorages
from dlsys.recomputation.graph import Graph, Operation
from dlsys.recomputation.lifetimes import lifetimes
from dlsys.tensors import of_shape, strided


@dataclass(frozen=True)
class Execution:
    """What a run gave and held.

    - results: the graph's results, by name.
    - during, after: bytes of all storages that were alive at the end of each step, and after what
      was dead had been dropped; counted, not computed.
    - within: the most bytes alive at any moment of each step, what an operation needs for itself
      included.
    """

    results: Mapping[str, Tensor]
    during: tuple[int, ...]
    after: tuple[int, ...]
    within: tuple[int, ...]

    @property
    def peak(self) -> int:
        """The most bytes that were alive at the end of a step."""
        return max(self.during)


@checked
def execute(
    graph: Graph,
    functions: Mapping[str, Callable[..., Any]],
    inputs: Mapping[str, Tensor],
    order: Sequence[str] | None = None,
) -> Execution:
    """Run the graph's operations in an order, dropping each value when its last reader is done.

    - functions: by the operation's name, a function of its inputs in their order that gives its
      outputs in theirs: a tensor, or a tuple of as many as there are. It must give storages of its
      own, not views of its inputs, which could not be freed then.
    - inputs: by name. The caller's own references to them end where it drops them, so a copy of
      each is run on.

    No gradients are recorded, for autograd would hold on to values. Raises ValueError for an order
    that is none (see `lifetimes`), an operation without a function, an input that is missing or of
    another size, or an output of another size than the graph has for it.
    """
    plan = lifetimes(graph, order)
    operations = {each.name: each for each in graph.operations}
    for name in operations:
        if name not in functions:
            raise ValueError(f"functions: {unknown('operation', name, map(str, functions))}")
    with torch.no_grad(), LiveStorages() as live:
        alive = live.alive
        values = {each.name: _copy(each.name, each.nbytes, inputs) for each in graph.inputs}
        dying: list[list[str]] = [[] for _ in plan.order]
        for value in plan.values:
            if value.name not in graph.results:
                dying[value.last].append(value.name)
        during, after, within = [], [], []
        for step, name in enumerate(plan.order):
            alive.peak = alive.now
            values |= _outputs(operations[name], functions[name], values)
            during.append(alive.now)
            within.append(alive.peak)
            for dead in dying[step]:
                del values[dead]
            after.append(alive.now)
    return Execution(values, tuple(during), tuple(after), tuple(within))


def _outputs(
    operation: Operation, function: Callable[..., Any], values: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    made = function(*(values[name] for name in operation.inputs))
    each = (made,) if isinstance(made, Tensor) else made
    where = f"functions[{operation.name!r}]"
    if not isinstance(each, tuple | list) or len(each) != len(operation.outputs):
        refuse(where, made, f"a function that gives {len(operation.outputs)} tensors")
    for value, tensor in zip(operation.outputs, each, strict=True):
        _sized(f"{where} gives {value.name!r}, which", tensor, value.nbytes)
    return dict(zip((value.name for value in operation.outputs), each, strict=True))


def _copy(name: str, nbytes: int, inputs: Mapping[str, Tensor]) -> Tensor:
    if name not in inputs:
        raise ValueError(f"inputs: {unknown('tensor', name, map(str, inputs))}")
    _sized(f"inputs[{name!r}]", inputs[name], nbytes)
    return inputs[name].clone()


def _sized(where: str, tensor: object, nbytes: int) -> None:
    if not isinstance(tensor, Tensor):
        refuse(where, tensor, f"a tensor of {nbytes:,} bytes")
    strided(where, tensor)
    if tensor.nbytes != nbytes:
        given = f"{of_shape(tensor)}, {tensor.nbytes:,} bytes"
        raise ValueError(f"{where} is {given}; it must be of the {nbytes:,} bytes that graph has.")
