"""Forward, what runs again, and backward as one graph, with the lifetimes of a training step."""

from __future__ import annotations

from collections.abc import Sequence

from dlsys.annotated import checked
from dlsys.recomputation.graph import Graph, Operation, Value
from dlsys.recomputation.keeping import keeping_of

BACKWARD, AGAIN, GRADIENT = "backward of ", "again: ", "gradient of "
"""What names begin with."""


@checked
def step_graph(graph: Graph, keep: Sequence[str] | None = None) -> Graph:
    """A training step of the graph: forward, then backward, which has kept the values named.

    keep: None is all that backward reads. The rest is made again, each operation just before
    backward first needs what it makes, from what is kept, the graph's inputs, and what was made
    again before. The backward of an operation reads what it saves and the gradients of its results,
    and gives a gradient of each input, a tensor of its own (autograd hands the gradient of a sum on
    as it is); a second gradient of a value is added to the first, so that for a moment there are
    both. Values that nobody reads, such as a mask or a norm's statistics, have none. It costs twice
    what the operation does, one product for each operand; gradients of weights are left out.

    The lifetimes of the result are those of a layer's tensors in a step; between forward and
    backward, what is alive is the inputs, the results' gradients, and what is kept.
    Raises ValueError for a name that the graph does not make, or a graph without results.
    """
    if not graph.results:
        raise ValueError("graph has no results; backward begins with their gradients.")
    keeping = keeping_of(graph, graph.needed if keep is None else keep)
    made = _Backward(graph, set(keeping.keep))
    for each in reversed(graph.operations):
        made.backward_of(each)
    given = tuple(Value(f"{GRADIENT}{name}", graph.sizes[name]) for name in graph.results)
    ends = [made.gradients[each.name] for each in graph.inputs if each.name in made.gradients]
    read = {name for each in made.operations for name in each.inputs}
    given = tuple(value for value in given if value.name in read)
    operations = (*graph.operations, *made.operations)
    return Graph(operations, (*graph.inputs, *given), tuple(ends))


class _Backward:
    """Operations of backward as they are added, with what they need made again before them."""

    def __init__(self, graph: Graph, kept: set[str]) -> None:
        self.graph, self.operations = graph, list[Operation]()
        self.there = kept | {value.name for value in graph.inputs}
        self.again = dict[str, str]()  # the name of each value that was made again
        self.gradients = {name: f"{GRADIENT}{name}" for name in graph.results}
        self.parts = dict.fromkeys(graph.results, 1)
        self.read = {name for each in graph.operations for name in each.inputs}

    def backward_of(self, each: Operation) -> None:
        """The backward of one operation, where the gradient of anything that it makes is there."""
        incoming = [self.gradients[v.name] for v in each.outputs if v.name in self.gradients]
        if not incoming:
            return
        saved = [self.present(name) for name in each.saves]
        made, sums = [], []
        for name in dict.fromkeys(each.inputs):
            self.parts[name] = self.parts.get(name, 0) + 1
            more = f" ({self.parts[name]})" if self.parts[name] > 1 else ""
            if name in self.gradients:
                sums.append(self.gradients[name])
            made.append(Value(f"{GRADIENT}{name}{more}", self.graph.sizes[name]))
        inputs = tuple(dict.fromkeys((*saved, *incoming, *sums)))
        name = f"{BACKWARD}{each.name}"
        self.operations.append(Operation(name, inputs, tuple(made), 2 * each.cost))
        self.gradients |= dict(zip(dict.fromkeys(each.inputs), (v.name for v in made), strict=True))

    def present(self, name: str) -> str:
        """The name under which a value is there; makes it again first where it is not."""
        waiting = [name]
        while waiting:
            last = waiting[-1]
            place = self.graph.producer.get(last)
            if place is None or last in self.there or last in self.again:
                waiting.pop()
                continue
            each = self.graph.operations[place]
            missing = [n for n in each.inputs if n not in self.there and n not in self.again]
            if missing:
                waiting += missing
                continue
            inputs = tuple(self.again.get(n, n) for n in each.inputs)
            outputs = tuple(Value(f"{AGAIN}{v.name}", v.nbytes) for v in each.outputs)
            self.operations.append(Operation(f"{AGAIN}{each.name}", inputs, outputs, each.cost))
            fresh = {v.name: f"{AGAIN}{v.name}" for v in each.outputs if v.name not in self.there}
            self.again |= fresh
        return self.again.get(name, name)
