"""Operations written down as they run, and values held until backward is done."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from dlsys.meter import flops_of
from dlsys.recomputation.graph import Value
from dlsys.recomputation.recipes import Call, Part, Recipe, storages
from dlsys.tensors import address


class Tape(TorchDispatchMode):
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
        call = Call(function, tree_map_only(Tensor, self.part, (args, kwargs)), given)
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
        recipe.flops += flops_of(function, args, kwargs, result)
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
        offset = int(tensor.storage_offset())
        return Part(name, tuple(tensor.shape), tensor.stride(), offset)

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
        if torch.is_grad_enabled():
            raise RuntimeError(
                "Backward is to be differentiated itself (create_graph=True), and what KeepTensors "
                "makes again has no history: keep by autograd alone."
            )
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
