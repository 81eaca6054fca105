"""Operations that make tensors of tensors: a graph of values to be kept, freed or made again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from dlsys.annotated import checked
from dlsys.checks import at_least, count, refuse, some, text, unknown
from dlsys.plain_data import plain_data


@plain_data
class Value(NamedTuple):
    """A tensor: its name, and its size in bytes."""

    name: str
    nbytes: int


@plain_data
class Operation(NamedTuple):
    """What makes `outputs` of the values named in `inputs`, at a cost in seconds (or FLOPs).

    `saves` names those of its inputs and outputs that its own backward reads.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[Value, ...]
    cost: float = 0.0
    saves: tuple[str, ...] = ()


@checked
@plain_data
@dataclass(frozen=True)
class Graph:
    """Operations in an order in which they can be run, on the values that are given.

    - inputs: values that are there before the first operation.
    - results: names of the values that are wanted at the end, so never freed.

    Raises ValueError, which names the operation, for a value that is made twice, read before it is
    made, saved by what neither reads nor makes it, or of a size or cost that is no number.
    """

    operations: tuple[Operation, ...]
    inputs: tuple[Value, ...] = ()
    results: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "operations", _read(self.operations))
        object.__setattr__(self, "inputs", tuple(_value("inputs", each) for each in self.inputs))
        object.__setattr__(self, "results", tuple(self.results))
        some("operations", self.operations)
        known, names = set[str](), set[str]()
        _made("the graph's inputs", self.inputs, known)
        for each in self.operations:
            where = f"operation {each.name!r}"
            if each.name in names:
                raise ValueError(
                    f"operations has two of the name {each.name!r}; give each its own."
                )
            names.add(each.name)
            for name in each.inputs:
                if name not in known:
                    raise ValueError(
                        f"{where} reads {name!r}, which is neither in inputs nor made by "
                        "operations before it."
                    )
            _made(where, each.outputs, known)
            if odd := set(each.saves) - {*each.inputs, *(value.name for value in each.outputs)}:
                raise ValueError(
                    f"{where} in operations saves {min(odd)!r}, which it neither reads nor makes."
                )
        for name in self.results:
            if name not in known:
                raise ValueError(f"results: {unknown('value', name, known)}")
        read = {name for each in self.operations for name in each.inputs} | {*self.results}
        for value in self.inputs:
            if value.name not in read:
                raise ValueError(f"inputs has {value.name!r}, which nothing reads; leave it out.")

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Bytes of every value, by name: the inputs first, the others as they are made."""
        made = (value for each in self.operations for value in each.outputs)
        return dict((*self.inputs, *made))

    @cached_property
    def producer(self) -> dict[str, int]:
        """The place in `operations` of what makes each value; the graph's inputs are not in it."""
        places = enumerate(self.operations)
        return {value.name: place for place, each in places for value in each.outputs}

    @cached_property
    def needed(self) -> tuple[str, ...]:
        """Names of what backward reads and the graph's operations make, in the order of `sizes`."""
        saved = {name for each in self.operations for name in each.saves}
        return tuple(name for name in self.producer if name in saved)

    def total(self, names: Iterable[str]) -> int:
        """Bytes of the values of these names."""
        return sum(self.sizes[name] for name in names)


def _read(operations: Iterable[Operation]) -> tuple[Operation, ...]:
    """The operations with plain tuples and numbers within."""
    read = []
    for each in operations:
        if not isinstance(each, tuple) or not 3 <= len(each) <= 5:
            refuse("operations", each, "Operation(name, inputs, outputs, cost, saves) each")
        name, inputs, outputs, cost, saves = Operation(*each)
        text("operations: a name", name)
        for part in (inputs, outputs, saves):
            if not isinstance(part, tuple | list):
                refuse(f"operations: a part of {name!r}", part, "a tuple")
        at_least(f"operations: the cost of {name!r}", cost, 0)
        made = tuple(_value(f"operations: an output of {name!r}", value) for value in outputs)
        read.append(Operation(name, tuple(inputs), made, cost, tuple(saves)))
    return tuple(read)


def _value(where: str, value: object) -> Value:
    if not isinstance(value, tuple) or len(value) != 2 or not isinstance(value[0], str):
        refuse(where, value, "Value(name, nbytes)")
    return Value(value[0], count(f"{where}: the bytes of {value[0]!r}", value[1], least=0))


def _made(where: str, values: Iterable[Value], known: set[str]) -> None:
    for value in values:
        if value.name in known:
            raise ValueError(f"{where} makes {value.name!r}, which there is already; rename one.")
        known.add(value.name)
