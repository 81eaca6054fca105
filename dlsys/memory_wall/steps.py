"""Memory over time: the four buckets after each event of some training steps, counted and drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import matplotlib.pyplot as plt
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from dlsys.annotated import checked
from dlsys.checks import count, divisor, some
from dlsys.memory_wall.buckets import Buckets, train_step
from dlsys.memory_wall.draw import STYLE
from dlsys.palette import GROUND, INK
from dlsys.tensors import token_ids

BUCKETS = ("weights", "optimizer", "gradients", "activations")  # what stays lies at the bottom
MEGA = 1e6


@dataclass(frozen=True)
class Moment:
    """Bytes by bucket that are live after one event, and the step and phase that it falls in."""

    step: int
    phase: str
    weights: int
    optimizer: int
    gradients: int
    activations: int

    @property
    def total(self) -> int:
        """All four buckets."""
        return self.weights + self.optimizer + self.gradients + self.activations


@runtime_checkable
class Updater(Protocol):
    """What updates a model by an optimizer on its master copies, as precision.MixedPrecision."""

    optimizer: torch.optim.Optimizer

    def step(self) -> Any:
        """Update the master copies, and the model."""


@checked
def measure_steps(
    model: nn.Module,
    optimizer: Updater,
    tokens: Tensor,
    steps: int = 2,
    micro_batches: int = 1,
) -> tuple[Moment, ...]:
    """Train `steps` steps on `tokens` (b, s), and count the four buckets after each event.

    The batch passes in `micro_batches` equal parts, whose gradients are added up before an update.

    Events: autograd saves a storage or frees one, a gradient is complete, the optimizer has made
    its update, gradients are set to None. Parameters, buffers and whole numbers are not counted as
    activations, nor are tensors that an operation needs only while it runs. The tokens are their
    own targets. Returns a Moment for each event; raises ValueError for tokens that are none, or for
    a batch that cannot be divided so.
    """
    token_ids("tokens", tokens)
    parts = tokens.chunk(divisor("micro_batches", micro_batches, {"sequences": len(tokens)}))
    buckets = Buckets(model, optimizer.optimizer)
    moments: list[Moment] = []
    try:
        for step in range(count("steps", steps)):
            train_step(buckets, model, optimizer, parts)
            moments += [Moment(step, *noted) for noted in buckets.noted]
            buckets.noted.clear()
    finally:
        for hook in buckets.hooks:
            hook.remove()
    return tuple(moments)


@checked
def draw_steps(moments: Sequence[Moment]) -> Figure:
    """The four buckets over the events of `measure_steps`, one upon the other, phase by phase."""
    some("moments", moments)
    figure = plt.figure(figsize=(8, 3.6), layout="constrained")
    plt.close(figure)  # shown where it is returned, not a second time by its cell
    axes = figure.subplots()
    events = range(len(moments))
    floor = [0.0] * len(moments)
    for bucket in BUCKETS:
        top = [f + getattr(m, bucket) / MEGA for f, m in zip(floor, moments, strict=True)]
        style: dict[str, Any] = {"edgecolor": GROUND, "linewidth": 0.0, **STYLE[bucket]}
        axes.fill_between(events, floor, top, step="post", label=bucket, **style)
        floor = top
    highest = 1.22 * max(floor)
    for event, moment in enumerate(moments):
        before = moments[event - 1] if event else None
        if before is None or (before.step, before.phase) != (moment.step, moment.phase):
            axes.axvline(event, color=INK, linewidth=0.8, linestyle=":")
            side = "right" if moment.phase == "update" else "left"  # an update is too narrow
            name = f" {moment.phase} "
            axes.text(event, 0.98 * highest, name, va="top", ha=side, fontsize="small", color=INK)
    axes.set(xlim=(0, len(moments) - 1), ylim=(0, highest), xticks=[])
    axes.set_xlabel("events: a tensor is saved or freed, a gradient is done, an update is made")
    axes.set_ylabel("live memory (MB, 10⁶ bytes)")
    axes.legend(fontsize="small", loc="lower center", bbox_to_anchor=(0.5, 1), ncols=4)
    return figure
