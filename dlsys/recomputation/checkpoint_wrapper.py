"""Activation checkpointing of layers as a plan says: the same bits as without, in fewer bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn

from dlsys.annotated import checked
from dlsys.checks import refuse
from dlsys.recomputation.checkpointing import checkpoint
from dlsys.recomputation.plan import RECOMPUTE, SELECTIVE, Plan, Segment
from dlsys.tensors import indices

CORE = "core"
"""What the module is called, in every layer, that selective recomputation runs again."""


class Checkpointed(nn.Module):
    """A module that runs again in backward: called as the wrapped `.module` is.

    Its parameters are named after it, so wrap before an optimizer or a wrapper looks at names.
    """

    @checked
    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module gives."""
        return checkpoint(self.module, *args, **kwargs)


def run(plan: Plan, modules: Sequence[Callable[..., Any]], x: Tensor, *shared: Any) -> Any:
    """What the modules, one a layer of the plan, make of x one after another, run as it says.

    - keep: plainly; recompute: the segment as one checkpoint
    - selective: each module named `core` in a layer is a checkpoint, Megatron's selective
      recomputation (Korthikanti et al. 2022, arXiv 2205.05198, section 5)
    - shared: what every module gets after x, as the rotation of a GPT's layers

    Result and gradients are those of the plain run to the bit, dropout included. The modules stay
    as they are. Raises ValueError where the plan is not of as many layers, does not pass its own
    `check`, or asks a layer without a core for less.
    """
    plan.check()
    modules = list(modules)
    if plan.layers != len(modules):
        raise ValueError(
            f"The plan is of {plan.layers} layers, and there are {len(modules)} modules: make them "
            "the same number."
        )
    for segment in plan.segments:
        layers = modules[segment.start : segment.stop]
        if segment.mode == RECOMPUTE:
            x = checkpoint(_chain, layers, x, *shared)
        elif segment.mode == SELECTIVE:
            x = _with_cores(segment, layers, x, *shared)
        else:
            x = _chain(layers, x, *shared)
    return x


def _chain(layers: Sequence[Callable[..., Any]], x: Tensor, *shared: Any) -> Any:
    for layer in layers:
        x = layer(x, *shared)
    return x


def _with_cores(
    segment: Segment, layers: Sequence[Callable[..., Any]], x: Tensor, *shared: Any
) -> Any:
    for number, layer in zip(segment.layers, layers, strict=True):
        with _cores_checkpointed(number, layer):
            x = layer(x, *shared)
    return x


@contextmanager
def _cores_checkpointed(number: int, layer: Any) -> Iterator[None]:
    """While open, the cores of a layer are checkpoints."""
    modules = dict(layer.named_modules()) if isinstance(layer, nn.Module) else {}
    cores = {name: m for name, m in modules.items() if name.rpartition(".")[2] == CORE}
    if not cores:
        refuse(f"Layer {number}", layer, f"a module with one named {CORE!r} in it, to be selective")
    with ExitStack() as stack:
        for name, core in cores.items():
            parent = modules[name.rpartition(".")[0]]
            stack.callback(setattr, parent, CORE, core)
            setattr(parent, CORE, Checkpointed(core))
        yield


class Recomputing(nn.Module):
    """A GPT-like model whose layers run under a plan; called as the wrapped `.module` is.

    The plan is of the model's layers, or of those with its embedding before and its head behind, as
    a chain of a GPT has them. A model is GPT-like that has GPT's `layers` and its methods
    positions_of, embed, rotation and read_out. Raises ValueError for a plan of other layers.
    """

    @checked
    def __init__(self, module: nn.Module, plan: Plan) -> None:
        super().__init__()
        plan.check()
        layers = len(module.layers)  # type: ignore[arg-type]
        if plan.layers not in (layers, layers + 2):
            raise ValueError(
                f"The plan is of {plan.layers} layers; it must be of the model's {layers}, or of "
                f"{layers + 2} with its embedding and its head."
            )
        self.module, self.plan = module, plan

    @checked
    def forward(
        self, tokens: Tensor, targets: Tensor | None = None, positions: Tensor | None = None
    ) -> Tensor:
        """tokens (b, s) -> logits (b, s, vocab), or the mean loss where targets are given."""
        model: Any = self.module
        places = model.positions_of(tokens)
        where = places if positions is None else positions
        indices("positions", where, tuple(places.shape))
        layers = [*model.layers]
        if whole := self.plan.layers > len(layers):
            layers = [
                lambda tokens, rotation: model.embed(tokens, where),
                *layers,
                lambda x, rotation: model.read_out(x, targets),
            ]
        rotation = model.rotation(where, model.embedding.weight.dtype)
        x = run(self.plan, layers, tokens if whole else model.embed(tokens, where), rotation)
        return x if whole else model.read_out(x, targets)
