"""A function run with exactly the tensors kept that are named; backward makes the others again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import nn
from torch.autograd.graph import saved_tensors_hooks

from dlsys.annotated import checked
from dlsys.checks import unknown
from dlsys.recomputation.graph import Graph, Operation
from dlsys.recomputation.tape import Tape
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

    - keep: names of values, as `graph` has them: the path in `module` of the module that made it,
      the operation, a number where it made several such, and where the operation has several
      results which of them, ".0", ".1". None keeps all that autograd saves. Parameters, arguments
      and whatever else was there before are never made again, so they do not count.
    - module: whose submodules give the names; None gives names without paths.

    After it was left, `graph` has what ran, `kept_bytes` and `again` what is held and ran again.

    Raises ValueError for names that nothing made, when left. Backward runs once: a second one
    through the same graph is refused, as is one that is to be differentiated itself.
    Source: the manner of Kirisame et al. 2021 (Dynamic Tensor Rematerialization, arXiv 2006.09616),
    which evicts and replays tensors by their operations; here the choice is made beforehand.
    """

    @checked
    def __init__(self, keep: Sequence[str] | None = None, module: nn.Module | None = None) -> None:
        self.keep, self.module = None if keep is None else set(keep), module
        self._tape = Tape(self.keep)
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
