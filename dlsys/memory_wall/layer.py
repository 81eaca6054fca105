"""A picture of a layer's activations: what each operation keeps for the backward pass."""

from __future__ import annotations

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from dlsys.palette import GROUND, INK, ON_LIGHT
from dlsys.transformer import TransformerSpec
from dlsys.transformer.activations import activations

# The operations in their order, and the terms of `activations` that each keeps.
STEPS: dict[str, dict[str, tuple[str, ...]]] = {
    "attention": {
        "norm": ("norm_input",),
        "Q, K, V": ("input",),
        "QKᵀ": ("query", "key"),
        "softmax": ("probabilities",),
        "dropout": ("probabilities_mask",),
        "times V": ("probabilities_dropped", "value"),
        "output": ("output_input",),
        "dropout ": ("dropout_mask",),
    },
    "ffn": {
        "norm": ("norm_input",),
        "wider": ("input",),
        "GELU": ("activation_input",),
        "narrower": ("down_input",),
        "dropout": ("dropout_mask",),
    },
}
HALVES = {"attention": "attention", "ffn": "feed-forward\nnetwork"}
STYLE = {
    "the ten: not divided by tensor parallelism": "#E69F00",
    "divided by tensor parallelism": "#56B4E9",
    "attention scores: divided, too": "#CC79A7",
}


def kinds(spec: TransformerSpec) -> dict[str, str]:
    """What divides each term of a layer: its key in STYLE, told from a layer split by its heads."""
    whole, split = (activations(spec, 1, tensor_parallel=t).terms for t in (1, spec.heads))
    stream, divided, scores = STYLE
    return {
        name: scores if "probabilities" in name else divided if split[name] < nbytes else stream
        for name, nbytes in whole.items()
    }


def draw_layer(spec: TransformerSpec) -> Figure:
    """The operations of a plain layer with dropout, and under each the bytes that it keeps.

    Bytes are in units of sbh, or of as²b for attention scores (one number for each head and pair).
    Raises ValueError for a spec whose layer has other operations (a gated network, say).
    """
    drawn = {f"{half}.{name}" for half in STEPS for kept in STEPS[half].values() for name in kept}
    if other := drawn ^ set(activations(spec, 1).terms):
        raise ValueError(
            f"{spec.name or 'The model'} has a layer of other operations than GPT-2's, which is "
            f"what is drawn; they differ in {', '.join(sorted(other))}."
        )
    figure = plt.figure(figsize=(8, 3.9), layout="constrained")
    plt.close(figure)  # shown where it is returned, not a second time by its cell
    axes = figure.subplots()
    axes.set(xlim=(-1.25, 8), ylim=(-5.9, 0.75))
    axes.axis("off")
    for top, half in zip((0.0, -3.4), STEPS, strict=True):
        axes.text(-1.2, top, HALVES[half], va="center", fontweight="bold")
        _draw_half(axes, spec, half, top)
    handles = [Patch(facecolor=color, edgecolor=INK, label=name) for name, color in STYLE.items()]
    axes.legend(handles=handles, loc="lower left", fontsize="small", frameon=False)
    return figure


def _draw_half(axes: Axes, spec: TransformerSpec, half: str, top: float) -> None:
    """Operations from left to right at height `top`, each with what it keeps hanging below it."""
    terms, kind = activations(spec, 1).terms, kinds(spec)
    sbh, scores = spec.sequence * spec.hidden, spec.heads * spec.sequence**2
    box = {"boxstyle": "square,pad=0.3", "edgecolor": INK}
    for place, (operation, kept) in enumerate(STEPS[half].items()):
        x = place + 0.45
        axes.plot([x, max(0.45, x - 1)], [top, top], color=INK, linewidth=1, zorder=0)
        plain = box | {"facecolor": GROUND}
        axes.text(x, top, operation.strip(), ha="center", va="center", fontsize=9, bbox=plain)
        for row, name in enumerate(f"{half}.{each}" for each in kept):
            of_scores = "probabilities" in name
            number = terms[name] / (scores if of_scores else sbh)
            axes.text(
                x,
                top - 1 - 0.95 * row,
                f"{number:g} {'as²b' if of_scores else 'sbh'}",
                ha="center",
                va="center",
                fontsize=9,
                color=ON_LIGHT,
                bbox=box | {"facecolor": STYLE[kind[name]]},
            )
