"""Model state and activations measured: bytes of real tensors, to hold the formulas against."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from dlsys.annotated import checked
from dlsys.checks import refuse_what
from dlsys.memory_wall.plan import ModelState
from dlsys.tensors import of_shape, token_ids


@dataclass(frozen=True)
class MeasuredState(ModelState):
    """Model state as real tensors hold it; `steps`, step counters, are outside the buckets."""

    steps: int = 0


@checked
def measure_state(model: nn.Module, *optimizers: torch.optim.Optimizer) -> MeasuredState:
    """Bytes (`nbytes`) of a model's parameters, gradients and optimizer state, by bucket.

    Run it after a step, before gradients are set to None. Parameters that an optimizer updates and
    the model does not have are master copies; state tensors of a parameter's shape are moments,
    and scalars are step counters. A tensor that two modules share counts once.
    """
    weights = list(model.parameters())
    known = {id(p) for p in weights}
    updated = [p for o in optimizers for group in o.param_groups for p in group["params"]]
    masters = [p for p in updated if id(p) not in known]
    state = [
        value
        for optimizer in optimizers
        for values in optimizer.state.values()
        for value in values.values()
        if isinstance(value, Tensor)
    ]
    return MeasuredState(
        weights=sum(p.nbytes for p in weights),
        gradients=sum(p.grad.nbytes for p in [*weights, *masters] if p.grad is not None),
        master=sum(p.nbytes for p in masters),
        moments=sum(value.nbytes for value in state if value.ndim),
        steps=sum(value.nbytes for value in state if not value.ndim),
    )


# What each module of the GPT keeps for backward, in the order in which torch packs it. Linear
# layers, norms and dropouts keep one tensor; the modules below compute without submodules.
ORDER: Mapping[str, tuple[str, ...]] = {
    "attention.core": (
        "attention.key",
        "attention.query",
        "attention.probabilities",
        "attention.value",
        "attention.probabilities_dropped",
    ),
    "attention.core (recomputed)": ("attention.query", "attention.key", "attention.value"),
    "attention.core (flash)": (
        "attention.key",
        "attention.query",
        "attention.value",
        "attention.log_sum_exp",
        "attention.output_input",
    ),
    "ffn": ("ffn.activation_input", "ffn.up_output", "ffn.activation_output"),
    "norm1": ("attention.norm_input",),
    "norm2": ("ffn.norm_input",),
    "attention.query": ("attention.input",),
    "attention.read": ("attention.input",),  # where several layers read it at once
    "attention.core.dropout": ("attention.probabilities_mask",),
    "attention.output": ("attention.output_input",),
    "dropout1": ("attention.dropout_mask",),
    "ffn.gate": ("ffn.input",),
    "ffn.read": ("ffn.input",),
    "ffn.up": ("ffn.input",),
    "ffn.down": ("ffn.down_input",),
    "dropout2": ("ffn.dropout_mask",),
    "dropout": ("embedding.dropout_mask",),
    "norm": ("final.norm_input",),
    "head": ("head.input",),
    "attention": ("positions.rotation", "positions.rotation"),
    "": ("loss.log_probabilities", "loss.log_probabilities", "loss.weight"),
}


@dataclass(frozen=True)
class Saved:
    """Bytes that a forward pass kept: by term for each layer, and outside the layers.

    `statistics` are the FP32 (on CPU: the parameters' format) numbers for each row that norms and
    flash attention keep. Names are those of `memory_wall.activations`.
    """

    layers: tuple[Mapping[str, int], ...]
    statistics: tuple[Mapping[str, int], ...]
    outside: Mapping[str, int]

    @property
    def total(self) -> int:
        """Bytes of all layers without statistics: what `int(memory_wall.activations(...))` is."""
        return sum(sum(terms.values()) for terms in self.layers)

    @property
    def everything(self) -> int:
        """Bytes of everything kept."""
        parts = (*self.layers, *self.statistics, self.outside)
        return sum(sum(terms.values()) for terms in parts)


@checked
def measure_activations(model: nn.Module, tokens: Tensor, targets: Tensor | None = None) -> Saved:
    """Run the GPT forward and count what autograd keeps, by the module that asked to keep it.

    Counts each storage once, in full, where it is first saved; leaves out parameters, buffers and
    whole numbers (token ids and targets are data). Works on the meta device, where a model of any
    size is counted without memory. A module that ORDER does not know gives its own name as term.
    Args: `tokens` and `targets` (b, s), as for the model. Returns bytes.
    """
    token_ids("tokens", tokens)
    if targets is not None:
        token_ids("targets", targets)
        if targets.shape != tokens.shape:
            refuse_what(
                "targets", of_shape(targets), f"of the shape of tokens, {tuple(tokens.shape)}"
            )
    names: list[str] = [""]
    saved: list[tuple[str, int, Tensor]] = []
    calls: Counter[str] = Counter()
    # The address of the storage object, for tensors on the meta device have no data pointer.
    fixed = [*model.parameters(), *model.buffers()]
    seen = {tensor.untyped_storage()._cdata for tensor in fixed}
    held = set(seen)

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()._cdata
        if storage in held or not (tensor.is_floating_point() or tensor.dtype == torch.bool):
            return tensor
        if storage not in seen:
            saved.append((names[-1], calls[names[-1]], tensor))
            seen.add(storage)
        calls[names[-1]] += 1
        return tensor

    with _names_of_running_modules(model, names), saved_tensors_hooks(pack, lambda t: t):
        # Holding the result keeps the graph, so that no storage is freed and its address reused.
        result = model(tokens) if targets is None else model(tokens, targets)
    flash = any(getattr(module, "flash", False) for module in model.modules())
    layers: dict[int, dict[str, int]] = {}
    statistics: dict[int, dict[str, int]] = {}
    outside: dict[str, int] = {}
    for name, call, tensor in saved:
        layer, term, small = _term(name, call, calls[name], tensor, flash)
        per_layer = statistics if small else layers
        into = outside if layer is None else per_layer.setdefault(layer, {})
        into[term] = into.get(term, 0) + tensor.untyped_storage().nbytes()
    del result
    return Saved(
        tuple(layers[i] for i in sorted(layers)),
        tuple(statistics[i] for i in sorted(statistics)),
        outside,
    )


def _term(
    name: str, call: int, calls: int, tensor: Tensor, flash: bool
) -> tuple[int | None, str, bool]:
    """The layer (None: outside), the term, and whether the tensor is a statistic of each row."""
    match = re.fullmatch(r"layers\.(\d+)\.?(.*)", name)
    layer, inner = (int(match[1]), match[2]) if match else (None, name)
    if match and not inner:
        return layer, "layer.input", False  # a checkpointed layer keeps what it was given
    if inner == "attention.core" and calls == 3:  # a checkpoint keeps the three arguments alone
        inner += " (recomputed)"
    elif inner == "attention.core" and flash:
        inner += " (flash)"
    order = ORDER.get(inner, ())
    term = order[call] if call < len(order) else f"{inner or 'model'}[{call}]"
    if inner.startswith("norm") and tensor.shape[-1] == 1:
        return layer, ORDER[inner][0].replace("norm_input", "norm_statistics"), True
    if inner.startswith("norm"):
        return layer, ORDER[inner][0], False
    if term.startswith("positions"):
        layer = None  # all layers share the one table
    return layer, term, term == "attention.log_sum_exp"


@contextmanager
def _names_of_running_modules(model: nn.Module, names: list[str]) -> Iterator[None]:
    """While open, the last of `names` is the module whose forward is running."""

    def enter(name: str) -> Callable[..., Any]:
        return lambda module, arguments: names.append(name)

    def leave(module: nn.Module, arguments: Any, output: Any) -> None:
        names.pop()

    # Hooks run round every forward, so the names are a stack: a module's inner ones lie above it.
    handles = []
    for path, module in model.named_modules():
        # Wrappers, torch's too, call what they wrap `module`: the wrapper's name stands for both.
        name = ".".join(part for part in path.split(".") if part != "module")
        handles.append(module.register_forward_pre_hook(enter(name)))
        handles.append(module.register_forward_hook(leave))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
