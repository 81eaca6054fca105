"""What one device does all day, as data: a run by the iron law, and a step as a list of actions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from dlsys.annotated import checked
from dlsys.checks import at_least, count, positive, refuse, some
from dlsys.plain_data import plain_data

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dlsys.training_loop.price import Price

Kind = Literal["zero", "forward", "backward", "reduce", "clip", "update", "rate"]
KINDS = ("zero", "forward", "backward", "reduce", "clip", "update", "rate")
"""Gradients to zero; passes of a micro-batch; the sum over ranks; and what follows it."""


@checked
@plain_data
@dataclass(frozen=True)
class Technique:
    """What a technique multiplies each term of the iron law by; 1 where it leaves it alone.

    Raises ValueError for a factor that is not above zero.
    """

    name: str
    flops: float = 1.0
    peak_flops: float = 1.0
    utilization: float = 1.0

    def __post_init__(self) -> None:
        for term in ("flops", "peak_flops", "utilization"):
            positive(term, getattr(self, term))


@checked
@plain_data
@dataclass(frozen=True)
class IronLaw:
    """A run on one device: T = C / (R eta), and as well C_hw / (R eta_hw).

    `flops`, what the model needs, C, or all that is executed, C_hw; `peak_flops`, R, the device's
    dense FLOP/s in the format of the products; `utilization`, the part of R that these FLOPs use,
    above 0 and at most 1: MFU for C, HFU for C_hw. Raises ValueError out of range.
    """

    flops: float
    peak_flops: float
    utilization: float

    def __post_init__(self) -> None:
        positive("flops", self.flops)
        positive("peak_flops", self.peak_flops)
        positive("utilization", self.utilization)
        if self.utilization > 1:
            refuse("utilization", self.utilization, "at most 1: no device does more than its peak")
        positive("flops / (peak_flops x utilization)", self.seconds)

    @property
    def seconds(self) -> float:
        """T, in seconds."""
        return self.flops / (self.peak_flops * self.utilization)

    @checked
    def after(self, technique: Technique) -> IronLaw:
        """The same run with a technique; raises ValueError where it would pass the peak."""
        return IronLaw(
            self.flops * technique.flops,
            self.peak_flops * technique.peak_flops,
            self.utilization * technique.utilization,
        )


@plain_data
class Action(NamedTuple):
    """One thing that a step does; passes have a micro-batch, and the share its loss counts for."""

    kind: str
    micro_batch: int = -1
    share: float = 0.0

    def __str__(self) -> str:
        return self.kind if self.micro_batch < 0 else f"{self.kind} {self.micro_batch}"


@checked
@plain_data
@dataclass(frozen=True)
class StepPlan:
    """One optimizer step: the tokens of each micro-batch, and the actions in their order.

    Raises ValueError for an action that is none, or of a micro-batch that there is not.
    """

    tokens: Sequence[int]
    actions: Sequence[Action]

    def __post_init__(self) -> None:
        some("tokens", self.tokens)
        object.__setattr__(self, "tokens", tuple(count("tokens", t) for t in self.tokens))
        actions = tuple(self.actions)
        object.__setattr__(self, "actions", actions)
        for action in actions:
            last = len(self.tokens) - 1
            if not isinstance(action, Action) or action.kind not in KINDS:
                refuse("actions", action, f"Actions, of a kind among {', '.join(KINDS)}")
            passes = action.kind in ("forward", "backward")
            places = range(last + 1) if passes else (-1,)
            if isinstance(action.micro_batch, bool) or action.micro_batch not in places:
                allowed = f"from 0 to {last} for a pass, and -1 for all else"
                refuse("actions: micro_batch", action.micro_batch, allowed)
            at_least("actions: share", action.share, 0)

    def check(self) -> None:
        """Prove that the step is the one of the whole batch; raise ValueError with what is wrong.

        Gradients begin at zero; each micro-batch passes once, forward before backward, and counts
        for its part of the tokens; ranks are summed at most once; then the update, once, and the
        schedule once.
        """
        from dlsys.training_loop.check import check

        check(self)

    @checked
    def price(
        self,
        forward: float,
        backward: float,
        update: float = 0.0,
        reduce: float = 0.0,
        load: float = 0.0,
        prefetch: bool = False,
    ) -> Price:
        """See `dlsys.training_loop.price.price`."""
        from dlsys.training_loop.price import price

        return price(self, forward, backward, update, reduce, load, prefetch)

    @checked
    def draw(self, forward: float = 1.0, backward: float = 2.0, update: float = 0.5) -> Figure:
        """See `dlsys.training_loop.draw.draw_step`."""
        from dlsys.training_loop.draw import draw_step

        return draw_step(self, forward, backward, update)

    @checked
    def without(self, kind: Kind) -> StepPlan:
        """The plan with all actions of a kind left out: what forgetting them does is then run."""
        return StepPlan(self.tokens, tuple(a for a in self.actions if a.kind != kind))


@checked
def step_plan(tokens: Sequence[int], ranks: int = 1, clip: bool = True) -> StepPlan:
    """The step that accumulates the gradient of a batch over its micro-batches.

    `tokens` of each micro-batch: its mean loss counts for tokens / all tokens, so that the sum of
    the gradients is that of the whole batch, whatever the parts. Gradients are summed over `ranks`
    once, after the last backward pass; then clipped, applied, and the schedule moves on.
    """
    some("tokens", tokens)
    sizes = [count("tokens", each) for each in tokens]
    actions = [Action("zero")]
    for number, size in enumerate(sizes):
        share = size / sum(sizes)
        actions += [Action("forward", number, share), Action("backward", number, share)]
    after = ["reduce"] * (count("ranks", ranks) > 1) + ["clip"] * bool(clip) + ["update", "rate"]
    return StepPlan(tuple(sizes), (*actions, *map(Action, after)))


def micro_batch_sizes(batch: int, micro_batch: int) -> list[int]:
    """A batch cut into micro-batches of at most `micro_batch`: 10 by 4 is [4, 4, 2]."""
    batch, most = count("batch", batch), count("micro_batch", micro_batch)
    if batch > 10**6 * most:
        refuse("micro_batch", micro_batch, "large enough for at most a million micro-batches")
    return [min(most, batch - begin) for begin in range(0, batch, most)]
