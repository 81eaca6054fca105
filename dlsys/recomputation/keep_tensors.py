"""A function run with exactly the tensors kept that are named; backward makes the others again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.flop_counter import flop_registry

from dlsys.annotated import checked
from dlsys.checks import unknown
from dlsys.recomputation.graph import Graph, Operation, Value
from dlsys.recomputation.recipes import Call, Part, Recipe, address, storages
from dlsys.tensors import storage_bytes


class KeepTensors:
    """While entered, what autograd saves is kept if it is named in `keep`; the rest is made again.

        with KeepTensors(["attention.query.addmm"], layer) as kept:
            y = layer(x)
        y.sum().backward()

    Every operation that runs is written down, as what it did to which values. Backward asks for a
    tensor that was not kept: then the operations between what is kept and this tensor run again,
    each once, whatever else the function did, from the random state in which they ran. A value is
    a storage: views of it come with it. It is let go when nothing asks for it any more.

    - keep: names of values, as `graph` has them: the path of the module of `module` that made it, the
      operation, a number where it made several such, and for its several results which of them,
      ".0", ".1". None keeps all that autograd saves. Parameters, the function's arguments and
      whatever else was there before are never made again, so they do not count.
    - module: whose submodules give the names; None gives names without paths.

    After it was left, `graph` has what ran, `kept_bytes` and `again` what is held and ran again.

    Raises ValueError for names that nothing made, when left. Backward runs once: a second one
    through the same graph is refused, as is one that is to be differentiated itself.
    Source: the manner of Kirisame et al. 2021 (Dynamic Tensor Rematerialization, arXiv 2006.09616),
    which evicts and replays tensors by their operations; here the choice is made beforehand.
    """

    @checked
    def __init__(self, keep: Collection[str] | None = None, module: nn.Module | None = None) -> None:
        if isinstance(keep, str):
            keep = (keep,)
        self.keep, self.module = None if keep is None else set(keep), module
        self._tape = _Tape(self.keep)
        self._open = ExitStack()

    def __enter__(self) -> KeepTensors:
        tape = self._tape
        if tape.recipes or tape.done:
            raise RuntimeError("KeepTensors was entered before; make one for each forward pass.")
        self._open.enter_context(tape)
        self._open.enter_context(saved_tensors_hooks(tape.pack, tape.unpack))
        self._open.enter_context(_paths(self.module, tape.path))
        return self

    def __exit__(self, *error: Any) -> None:
        self._open.close()
        self._tape.finish()
        if error[0] is None:
            for name in self.keep or ():
                if name not in self._tape.made:
                    raise ValueError(f"keep: {unknown('value', name, self._tape.made)}")

    @property
    def graph(self) -> Graph:
        """The operations that ran; their costs are the FLOPs of matrix products."""
        asked = set(self._tape.asked)
        operations = [
            Operation(
                each.name,
                tuple(each.inputs),
                each.outputs,
                float(each.flops),
                tuple(value.name for value in each.outputs if value.name in asked),
            )
            for each in self._tape.recipes.values()
        ]
        return Graph(tuple(operations))

    @property
    def kept_bytes(self) -> int:
        """Bytes of the storages that are held now."""
        return storage_bytes(self._tape.held.values())

    @property
    def again(self) -> tuple[str, ...]:
        """Names of the operations that backward has run again so far, in their order."""
        return tuple(self._tape.again)


class _Tape(TorchDispatchMode):
    """What ran, by recipes; what is held; and what is still to be asked for."""

    def __init__(self, keep: set[str] | None) -> None:
        super().__init__()
        self.keep, self.done = keep, False
        self.path = [""]
        self.names = Counter[str]()
        self.recipes: dict[str, Recipe] = {}
        self.made: dict[str, Recipe] = {}
        # By address, which a weak reference keeps from being used for another storage.
        self.known: dict[int, tuple[StorageWeakRef, str]] = {}
        self.read = set[str]()
        self.held: dict[str, Tensor] = {}
        self.asked = Counter[str]()  # how often backward will still read a value
        self.left = Counter[str]()  # and operations that run again
        self.again: list[str] = []

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run an operation, and write down what it does to which values."""
        kwargs = kwargs or {}
        given = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
        parts = [part for part in map(self.part, given) if isinstance(part, Part)]
        call = Call(function, tree_map_only(Tensor, self.part, (args, kwargs)))
        result = function(*args, **kwargs)
        before = {*map(address, given)}
        fresh = [each for each in storages(result) if address(each) not in before]
        if fresh:
            recipe = self.new(function, fresh)
        elif function._schema.is_mutable and isinstance(into := self.part(given[0]), Part):
            recipe = self.written_to(into.value)
        else:
            return result  # a view, which comes with its storage
        recipe.calls.append(call)
        own = {value.name for value in recipe.outputs}
        recipe.inputs |= {part.value: None for part in parts if part.value not in own}
        self.read.update(recipe.inputs)
        recipe.flops += _flops(function, args, kwargs, result)
        return result

    def new(self, function: Any, fresh: list[Tensor]) -> Recipe:
        """A recipe for storages that were not there before."""
        base = ".".join(part for part in (self.path[-1], function.overloadpacket.__name__) if part)
        self.names[base] += 1
        base += f".{self.names[base]}" if self.names[base] > 1 else ""
        names = [f"{base}.{place}" if len(fresh) > 1 else base for place in range(len(fresh))]
        sizes = [tensor.untyped_storage().nbytes() for tensor in fresh]
        recipe = Recipe(base, tuple(map(Value, names, sizes)))
        self.recipes[base] = recipe
        for name, tensor in zip(names, fresh, strict=True):
            self.made[name] = recipe
            self.known[address(tensor)] = StorageWeakRef(tensor.untyped_storage()), name
            if self.keep is not None and name in self.keep:
                self.held[name] = tensor.detach()
        return recipe

    def written_to(self, name: str) -> Recipe:
        """The recipe of a value that is written to in place."""
        if name in self.read or self.asked[name]:
            raise RuntimeError(
                f"{name!r} is changed in place after it was read; KeepTensors could not make again "
                "what was read of it: give the change a tensor of its own."
            )
        # It reads what was made since, and nobody has read it yet: now it comes last.
        recipe = self.recipes.pop(self.made[name].name)
        self.recipes[recipe.name] = recipe
        return recipe

    def part(self, tensor: Tensor) -> Part | Tensor:
        """A tensor as a part of the value that it lies in; itself where no operation made it."""
        if address(tensor) not in self.known:
            return tensor
        name = self.known[address(tensor)][1]
        return Part(name, tuple(tensor.shape), tensor.stride(), tensor.storage_offset())

    def pack(self, tensor: Tensor) -> Part | Tensor:
        """What autograd holds in the place of a tensor that it saves."""
        part = self.part(tensor)
        if isinstance(part, Part):
            self.asked[part.value] += 1
            if self.keep is None:
                self.held.setdefault(part.value, tensor.detach())
        return part

    def unpack(self, packed: Part | Tensor) -> Tensor:
        """The tensor that autograd saved, made again where it was not kept."""
        if isinstance(packed, Tensor):
            return packed
        if not self.done:
            raise RuntimeError("Backward runs inside KeepTensors; leave it after forward.")
        if not self.asked[packed.value]:
            raise RuntimeError(
                f"Backward asks for {packed.value!r} a second time, after it was let go; "
                "KeepTensors serves one backward pass: run forward again."
            )
        self.make(packed.value)
        tensor = packed.of(self.held[packed.value])
        self.asked[packed.value] -= 1
        self.release(packed.value)
        return tensor

    def finish(self) -> None:
        """Forward has ended: count who will read what, and let go what nobody will."""
        self.done = True
        self.known.clear()
        waiting, run = [name for name in self.asked if name not in self.held], set[str]()
        while waiting:
            recipe = self.made[waiting.pop()]
            if recipe.name not in run:
                run.add(recipe.name)
                self.left.update([*recipe.inputs])
                waiting += [name for name in recipe.inputs if name not in self.held]
        for name in [*self.held]:
            self.release(name)

    def release(self, name: str) -> None:
        """Let a value go if neither backward nor an operation that runs again will read it."""
        if not self.asked[name] and not self.left[name]:
            self.held.pop(name, None)

    @torch.no_grad()
    def make(self, name: str) -> None:
        """Have a value held, by running again what lies between it and what is held."""
        waiting = [name]
        while waiting:
            if waiting[-1] in self.held:
                waiting.pop()
                continue
            recipe = self.made[waiting[-1]]
            missing = [each for each in recipe.inputs if each not in self.held]
            waiting += missing
            if not missing:
                self.again.append(recipe.name)
                for each, tensor in recipe.again(self.held).items():
                    self.held.setdefault(each, tensor)
                    self.release(each)
                for each in recipe.inputs:
                    self.left[each] -= 1
                    self.release(each)


def _flops(function: Any, args: Any, kwargs: Any, result: Any) -> int:
    """FLOPs of matrix products, by torch's own formulas; 0 for what has none."""
    if function.overloadpacket is torch.ops.aten._scaled_dot_product_flash_attention_for_cpu:
        query, key, value = (each.shape for each in args[:3])  # the one that torch does not count
        return 2 * query[:-1].numel() * key[-2] * (query[-1] + value[-1])
    formula = flop_registry.get(function.overloadpacket)
    return formula(*args, **kwargs, out_val=result) if formula else 0


@contextmanager
def _paths(module: nn.Module | None, path: list[str]) -> Iterator[None]:
    """While open, the last of `path` is the module whose forward is running."""

    def enter(name: str) -> Callable[..., Any]:
        return lambda module, arguments: path.append(name)

    def leave(module: nn.Module, arguments: Any, output: Any) -> None:
        path.pop()

    with ExitStack() as stack:
        for name, each in module.named_modules() if module is not None else ():
            stack.callback(each.register_forward_pre_hook(enter(name)).remove)
            stack.callback(each.register_forward_hook(leave).remove)
        yield
