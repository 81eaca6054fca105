"""Counting what a torch program really does: each operation's FLOPs, bytes read and bytes written.

Every operation that autograd or the program dispatches passes by. A view writes nothing; a tensor
that is expanded is read as often as it has elements of its own; a table of which rows are taken is
read where they lie. So what is counted is the traffic of operations run one after the other, each
of which finds its operands in memory and leaves its result there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from dlsys.annotated import checked
from dlsys.meter import PRODUCTS, flops_of, is_composite
from dlsys.roofline.plan import (
    GELU_FLOPS,
    NORM_FLOPS,
    SOFTMAX_FLOPS,
    Operation,
    together,
)
from dlsys.tensors import address

aten = torch.ops.aten


class Counted(NamedTuple):
    """The operations of a run, in order, and how many views passed by."""

    operations: tuple[Operation, ...]
    views: int = 0

    @property
    def total(self) -> Operation:
        """The sums over all."""
        nothing = Operation("all", 0, 0, 0)
        return together([nothing, *self.operations], "all")

    @property
    def product_flops(self) -> int:
        """FLOPs of matrix products and attention, those that MFU and torch's counter count."""
        return sum(each.flops for each in self.operations if each.product)

    def by_name(self) -> dict[str, Operation]:
        """The sums over operations of a name, those with the most bytes first."""
        names = dict.fromkeys(each.name for each in self.operations)
        sums = [together([o for o in self.operations if o.name == n], n) for n in names]
        return {o.name: o for o in sorted(sums, key=lambda o: -o.nbytes)}


@checked
def count_operations(program: Callable[[], Any]) -> Counted:
    """Run `program()` and list what it dispatches: a step, forward and backward, or one operation.

    FLOPs are exact for products, convolutions and attention; an operation on elements counts one
    for each, softmax, norms and GELU some more (see `plan`), and whatever else is unknown none.
    Works on the meta device, too, where nothing is computed.
    """
    mode = _Counter()
    with mode:
        program()
    return Counted(tuple(mode.operations), mode.views)


@checked
def as_one(program: Callable[..., Any], *inputs: Tensor, name: str = "fused") -> Operation:
    """`program(*inputs)` as one fused kernel would run it: all FLOPs, each input read once, each
    result written once, nothing in between."""
    made: list[Any] = []
    flops = count_operations(lambda: made.append(program(*inputs))).total.flops
    results = [each for each in tree_iter(made) if isinstance(each, Tensor)]
    read = sum(map(_own_bytes, _distinct(inputs)))
    return Operation(name, flops, read, sum(map(_own_bytes, _distinct(results))))


class _Counter(TorchDispatchMode):
    """Lists what passes by."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[Operation] = []
        self.views = 0

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if function.namespace == "prim":  # asks a tensor where it lies
            return function(*args, **kwargs)
        if is_composite(function):
            with self:
                return function.decompose(*args, **kwargs)
        result = function(*args, **kwargs)
        if function.namespace == "aten":
            self._note(_Call(function, args, kwargs, result))
        return result

    def _note(self, call: _Call) -> None:
        if call.is_view:
            self.views += 1
        elif call.nbytes or call.flops:
            packet = call.function.overloadpacket
            name, product = packet.__name__, packet in PRODUCTS
            self.operations.append(
                Operation(name, call.flops, call.read, call.written, product=product)
            )


@dataclass
class _Call:
    """One operation: what it was given, and what came of it."""

    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any

    def __post_init__(self) -> None:
        self.packet = self.function.overloadpacket
        schema = self.function._schema
        given = {a.name: v for a, v in zip(schema.arguments, self.args, strict=False)}
        given |= self.kwargs
        writes = [a for a in schema.arguments if a.alias_info and a.alias_info.is_write]
        self.changed = _distinct(tree_iter([given.get(a.name) for a in writes]))
        seen = [given.get(a.name) for a in schema.arguments if a not in writes]
        out = _distinct(tree_iter([given.get(a.name) for a in writes if a.kwarg_only]))
        self.out = [x for x in out if not _among(x, _distinct(tree_iter(seen)))]
        self.inputs = _distinct(tree_iter(list(given.values())))
        self.outputs = _distinct(tree_iter(self.result))
        self.flops = self._flops()
        self.read, self.written = self._bytes()

    @property
    def nbytes(self) -> int:
        return self.read + self.written

    @property
    def is_view(self) -> bool:
        """Whether all that comes out lies where something lay that went in, and nothing changed."""
        places = {address(x) for x in self.inputs}
        there = [address(x) in places for x in self.outputs]
        return bool(there) and all(there) and not self.changed

    def _bytes(self) -> tuple[int, int]:
        if self.packet in _NOTHING:
            return 0, 0
        written = sum(map(_own_bytes, self.changed or self.outputs))
        if self.packet in _GATHERS:
            return _GATHERS[self.packet](self), written
        blind = self.changed if self.packet in _WRITES_BLINDLY else self.out
        return sum(_own_bytes(x) for x in self.inputs if not _among(x, blind)), written

    def _flops(self) -> int:
        if self.packet in PRODUCTS:
            return flops_of(self.function, self.args, self.kwargs, self.result)
        if self.packet in _EACH:
            each, of = _EACH[self.packet]
            return each * (self.inputs if of == "input" else self.outputs)[0].numel()
        if torch.Tag.pointwise in self.function.tags:
            return sum(x.numel() for x in self.changed or self.outputs)
        return 0


def _distinct(values: Any) -> list[Tensor]:
    """Tensors among these, each region of memory once."""
    found: dict[Any, Tensor] = {}
    for x in values:
        if isinstance(x, Tensor):
            place = address(x), x.storage_offset(), tuple(x.shape), x.stride()
            found.setdefault(place, x)
    return list(found.values())


def _among(x: Tensor, others: list[Tensor]) -> bool:
    return any(x is other for other in others)


def _own_bytes(x: Tensor) -> int:
    """Bytes of the elements that lie in memory: once where a tensor is expanded, or unfolded into
    windows that overlap."""
    if not x.numel():
        return 0
    sizes = list(zip(x.shape, x.stride(), strict=True))
    own = math.prod(size for size, stride in sizes if stride)
    span = 1 + sum((size - 1) * stride for size, stride in sizes)
    return min(own, span) * x.itemsize


# -- FLOPs of the rest: for each element of the first input or output ------------------------------

_EACH: dict[Any, tuple[int, str]] = {
    **dict.fromkeys(
        (aten._softmax, aten._safe_softmax, aten._log_softmax), (SOFTMAX_FLOPS, "output")
    ),
    # y (g - sum of y g): two products, a difference and a sum.
    aten._softmax_backward_data: (4, "output"),
    aten._log_softmax_backward_data: (4, "output"),
    aten.native_layer_norm: (NORM_FLOPS, "output"),
    # Normalized again: 2; gradients of weight and bias: 3; two sums of a row, and their use: 8.
    aten.native_layer_norm_backward: (13, "output"),
    aten.gelu: (GELU_FLOPS, "output"),
    # The normal distribution and its density, and what they join.
    aten.gelu_backward: (11, "output"),
    **dict.fromkeys((aten.sum, aten.mean, aten.amax, aten.embedding_dense_backward), (1, "input")),
    **dict.fromkeys((aten.clone, aten._to_copy, aten.copy_, aten.fill_), (0, "output")),
    **dict.fromkeys((aten.addcmul, aten.addcmul_, aten.addcdiv, aten.addcdiv_), (2, "output")),
    **dict.fromkeys((aten.lerp, aten.lerp_), (3, "output")),
    aten.native_dropout: (2, "output"),
}

# -- bytes where not all of every operand is read --------------------------------------------------


def _rows(call: _Call) -> int:
    """The numbers of the rows, and the rows."""
    return call.args[1].nbytes + sum(map(_own_bytes, call.outputs))


def _one_each(call: _Call) -> int:
    """The targets, and one number for each."""
    scores, targets = call.args[0], call.args[1]
    return targets.nbytes + targets.numel() * scores.itemsize


def _targets(call: _Call) -> int:
    """The gradient of the loss, and the targets."""
    return call.args[0].nbytes + call.args[2].nbytes


def _nothing(call: _Call) -> int:
    """What is only looked at for its shape."""
    return 0


_GATHERS: dict[Any, Callable[[_Call], int]] = {
    aten.embedding: _rows,
    aten.index_select: lambda call: call.args[2].nbytes + sum(map(_own_bytes, call.outputs)),
    aten.nll_loss_forward: _one_each,
    aten.nll_loss_backward: _targets,
    **dict.fromkeys(
        (aten.zeros_like, aten.ones_like, aten.full_like, aten.new_zeros, aten.new_full), _nothing
    ),
}
_WRITES_BLINDLY = {aten.copy_, aten.fill_, aten.zero_, aten.uniform_, aten.normal_}
_NOTHING = {aten.empty, aten.empty_like, aten.empty_strided, aten.new_empty}
_NOTHING |= {aten.new_empty_strided, aten._local_scalar_dense, aten.promote_types}
