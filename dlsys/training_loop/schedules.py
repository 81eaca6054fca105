"""Schedules: the learning rate as a function of the step, and nothing else.

Steps count from 0. A function of the step has no state to save and cannot fall out of step; what
is given as `peak` is the largest rate. Raises ValueError for steps that cannot be.
"""

from __future__ import annotations

import math

from dlsys.annotated import checked
from dlsys.checks import at_least, count, fraction, positive, refuse


@checked
def warm_up(step: int, steps: int, peak: float = 1.0) -> float:
    """From peak / steps at step 0 straight up to `peak` at step steps - 1, and there for good.

    The first step has a rate above zero: one of zero would be a step for nothing.
    """
    at_least("peak", peak, 0)
    return peak * min(1.0, (count("step", step, 0) + 1) / max(1, count("steps", steps, 0)))


@checked
def cosine(step: int, steps: int, peak: float = 1.0, least: float = 0.0) -> float:
    """least + (peak - least) (1 + cos(pi step / steps)) / 2: half a cosine, and then `least`.

    The cosine's other half would climb back to the peak (Loshchilov and Hutter 2017, eq. 5).
    """
    at_least("peak", peak, 0)
    at_least("least", least, 0)
    part = min(1.0, count("step", step, 0) / count("steps", steps))
    return least + (peak - least) * (1 + math.cos(math.pi * part)) / 2


@checked
def linear(step: int, steps: int, peak: float = 1.0, least: float = 0.0) -> float:
    """Straight down from `peak` at step 0 to `least` at step `steps`, and there for good."""
    at_least("peak", peak, 0)
    at_least("least", least, 0)
    return peak + (least - peak) * min(1.0, count("step", step, 0) / count("steps", steps))


@checked
def exponential(step: int, decay: float, peak: float = 1.0) -> float:
    """peak x decay^step."""
    fraction("decay", decay)
    at_least("peak", peak, 0)
    return peak * decay ** count("step", step, 0)


@checked
def step_decay(step: int, every: int, decay: float = 0.1, peak: float = 1.0) -> float:
    """peak x decay^(step // every): stairs."""
    fraction("decay", decay)
    at_least("peak", peak, 0)
    return peak * decay ** (count("step", step, 0) // count("every", every))


@checked
def warm_up_cosine(
    step: int, steps: int, warm_up_steps: int, peak: float = 1.0, least: float = 0.0
) -> float:
    """Warm-up, and from its end half a cosine down to `least` at step `steps`."""
    before = _within(warm_up_steps, steps)
    if count("step", step, 0) < before:
        return warm_up(step, before, peak)
    return cosine(step - before, steps - before, peak, least)


@checked
def warm_up_stable_decay(
    step: int, steps: int, warm_up_steps: int, decay_steps: int, peak: float = 1.0
) -> float:
    """Warm-up, then the peak, then in the last `decay_steps` straight down to 0 (WSD).

    Its long middle does not know where the run ends: a checkpoint of it can go on, or decay at any
    time (Hu et al. 2024, arXiv 2404.06395, section 4).
    """
    before, decay = _within(warm_up_steps, steps), count("decay_steps", decay_steps)
    if before + decay > steps:
        refuse("decay_steps", decay_steps, f"at most {steps - before}, what warm-up leaves")
    if count("step", step, 0) < steps - decay:
        return warm_up(step, before, peak)
    return linear(step - (steps - decay), decay, peak)


@checked
def linear_rule(rate: float, batch: float, base_batch: float) -> float:
    """rate x batch / base_batch: the rule for SGD (Goyal et al. 2017), until steps get too long."""
    return _scaled(rate, batch, base_batch, 1.0)


@checked
def square_root_rule(rate: float, batch: float, base_batch: float) -> float:
    """rate x sqrt(batch / base_batch): the rule for Adam (Malladi et al. 2022).

    Where noise is most of a gradient, Adam's steps are as long at any batch, and wander: over so
    many samples by rate^2 / batch in the mean square, which this rule keeps as it is.
    """
    return _scaled(rate, batch, base_batch, 0.5)


def _within(warm_up_steps: int, steps: int) -> int:
    before = count("warm_up_steps", warm_up_steps, 0)
    if before >= count("steps", steps):
        refuse("warm_up_steps", warm_up_steps, f"less than steps, {steps}")
    return before


def _scaled(rate: float, batch: float, base_batch: float, power: float) -> float:
    at_least("rate", rate, 0)
    positive("batch", batch)
    positive("base_batch", base_batch)
    scaled = rate * (batch / base_batch) ** power
    at_least("The rate, by batch,", scaled, 0)
    return scaled
