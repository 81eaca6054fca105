"""What a training step holds on a device, by bucket: state, activations, logits, and a base."""

from __future__ import annotations

import numpy as np

from dlsys.composing_axes.runs import Array, Runs
from dlsys.composing_axes.step_time import Machine, kept_bytes, total

LOGIT = 16
"""Bytes a logit in `cross_entropy(logits.float())`: 16-bit logits and their gradient, and in FP32
logits, logarithms of probabilities and gradient."""
GATHERED = 8
"""Bytes a parameter of a layer under ZeRO-3: whole 16-bit weights, of the next layer too, and a
whole FP32 gradient."""
BASE = 0.5e9
"""Bytes of a framework and of its communicators."""


def held_bytes(runs: Runs, machine: Machine) -> dict[str, Array]:
    """Bytes of a device of the fullest stage, by bucket."""
    first, last = stage_bytes(runs, machine, True), stage_bytes(runs, machine, False)
    fuller = total(last) > total(first)
    return {name: np.where(fuller, last[name], first[name]) for name in first}


def stage_bytes(runs: Runs, machine: Machine, first: bool) -> dict[str, Array]:
    """Bytes of a device of the first stage, or of the one with the head, by bucket.

    The first has as many micro-batches under way as there are stages, with v chunks a rank
    ((v + 1) p - 1) / v, as Megatron-LM warms up (Narayanan et al. 2021); the last has one, with v
    chunks ((v - 1) p + 1) / v.
    """
    alone = runs.pp == 1
    layers = runs.first if first else runs.last
    words = runs.vocab * runs.hidden * np.where(alone & (runs.tied == 0), 2.0, 1.0)
    shared, experts = layers * runs.held + words, layers * runs.experts / runs.ep
    v = runs.chunks
    most = np.where(v > 1, ((v + 1) * runs.pp - 1) / v, runs.pp)
    most = most if first else ((v - 1) * runs.pp + 1) / v
    under_way = np.minimum(most, runs.micro_batches)
    one = machine.constants.slack * kept_bytes(runs)
    stream = 2 * runs.tokens * runs.hidden / np.where(runs.sequence_parallel > 0, runs.tp, 1.0)
    kept = np.where(runs.recompute > 0, stream, one)
    again = np.where(runs.recompute > 0, one, 0.0)
    logits = LOGIT * runs.tokens * runs.vocab / runs.tp
    gathered = GATHERED * (runs.held + runs.experts / runs.ep) / runs.tp
    state = state_bytes(runs, shared, runs.data)
    state = state + state_bytes(runs, experts, runs.data / runs.ep)
    return {
        "state": state,
        "gathered": np.where(runs.zero > 2, gathered, 0.0),
        "activations": under_way * layers * kept + again,
        "logits": np.where(alone, logits, 0.0) if first else logits,
        "base": np.full(len(runs), BASE),
    }


def state_bytes(runs: Runs, held: Array, over: Array) -> Array:
    """Weights 2, gradients 4 (or fewer), master copy and moments 12 bytes, of which ZeRO leaves a
    part."""
    parts = ((3, 2.0), (2, runs.gradient), (1, 12.0))
    each = sum(nbytes / np.where(runs.zero >= stage, over, 1.0) for stage, nbytes in parts)
    return held / runs.tp * each
