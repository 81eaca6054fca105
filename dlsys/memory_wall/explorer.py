"""An explorer of the memory wall: model x device x recipe x batch x sequence, drawn as you choose.

In JupyterLab it shows controls. Where no kernel answers, as in a built page, the same figure
stands still. Both describe the figure in words, for readers who cannot see it.
"""

from __future__ import annotations

import base64
import dataclasses
import io
from dataclasses import dataclass
from html import escape
from typing import Any

from matplotlib.figure import Figure

from dlsys.hardware import DEVICES
from dlsys.memory_wall.draw import SEQUENCES, draw_bars, draw_curves
from dlsys.memory_wall.plan import RECIPES, model_state
from dlsys.transformer import CATALOGUE
from dlsys.transformer.activations import Activations, activations
from dlsys.units import GIGA, format_bytes, unknown

SAVING: dict[str, dict[str, Any]] = {
    "keep everything": {},
    "flash attention": {"flash": True},
    "recompute attention": {"recompute": "selective"},
    "recompute every layer": {"recompute": "full"},
}
# The models whose layers `activations` describes.
MODELS = [
    name
    for name, spec in CATALOGUE.items()
    if not (spec.moe or spec.latent or spec.positions == "relative")
]
OPTIONS: dict[str, list[Any]] = {
    "model": MODELS,
    "device": list(DEVICES),
    "recipe": list(RECIPES),
    "batch": [2**power for power in range(9)],
    "sequence": list(SEQUENCES),
    "saving": list(SAVING),
    "zero_stage": [0, 1, 2, 3],
    "devices": [2**power for power in range(11)],
}
LABELS = {
    "model": "Model",
    "device": "Device",
    "recipe": "Recipe",
    "batch": "Samples a device",
    "sequence": "Tokens a sample",
    "saving": "Activations",
    "zero_stage": "ZeRO stage",
    "devices": "Devices",
}


@dataclass(frozen=True)
class Choice:
    """One setting: names of the catalogues, samples on a device, tokens of a sample, and sharing.

    Without dropout, as today's large models train. Raises ValueError for what is not in OPTIONS.
    """

    model: str = "llama3-8b"
    device: str = "h100-sxm"
    recipe: str = "mixed-adamw"
    batch: int = 1
    sequence: int = 8192
    saving: str = "keep everything"
    zero_stage: int = 0
    devices: int = 1

    def __post_init__(self) -> None:
        for name, known in OPTIONS.items():
            value = getattr(self, name)
            if value not in known:
                what = LABELS[name].lower()
                raise ValueError(unknown(f"{what} in the explorer", value, map(str, known)))

    def activations(self) -> Activations:
        """What the forward pass keeps on one device, and what backward rebuilds."""
        spec = dataclasses.replace(CATALOGUE[self.model], sequence=self.sequence)
        return activations(spec, self.batch, **SAVING[self.saving], dropout=False)

    def buckets(self) -> dict[str, int]:
        """Bytes of the four buckets on one device; activations with a layer being rebuilt."""
        spec = dataclasses.replace(CATALOGUE[self.model], sequence=self.sequence)
        state = model_state(spec.parameters(), self.recipe, self.zero_stage, self.devices)
        return {
            "weights": state.weights,
            "gradients": state.gradients,
            "optimizer": state.optimizer,
            "activations": self.activations().peak,
        }

    def summary(self) -> str:
        """What the figure shows, in a few sentences."""
        buckets, device = self.buckets(), DEVICES[self.device]
        total = sum(buckets.values())
        share = total / device.memory
        sharing = f", ZeRO stage {self.zero_stage} over {self.devices:,} devices"
        parts = ", ".join(f"{name} {format_bytes(n)}" for name, n in buckets.items())
        if rebuilt := self.activations().recomputed:
            parts += f" ({format_bytes(rebuilt)} of it one layer being recomputed)"
        verdict = f"fits: {share:.0%} of" if share <= 1 else f"does not fit: {share:.3g} times"
        return (
            f"{CATALOGUE[self.model].name} with {self.recipe}, {self.batch:,} x "
            f"{self.sequence:,} tokens a device, {self.saving}"
            f"{sharing if self.zero_stage else ''}. On each device: {parts}; together "
            f"{format_bytes(total)}. It {verdict} the {format_bytes(device.memory)} of one "
            f"{device.name}."
        )

    def figure(self) -> Figure:
        """Left, the buckets against the device's memory; right, activations against sequence."""
        device, buckets = DEVICES[self.device], self.buckets()
        figure = Figure(figsize=(10, 4), layout="constrained")
        bars, curves = figure.subplots(1, 2)
        rows: dict[str, dict[str, int]] = {name: {name: n} for name, n in buckets.items()}
        draw_bars(bars, {**rows, "together": buckets}, device.memory)
        state = sum(buckets.values()) - buckets["activations"]
        lines = {
            saving: [
                dataclasses.replace(self, saving=saving, sequence=s).activations().peak
                for s in SEQUENCES
            ]
            for saving in SAVING
        }
        draw_curves(curves, SEQUENCES, lines, state, device)
        here = buckets["activations"] / GIGA
        curves.plot([self.sequence], [here], "o", color="black", fillstyle="none", markersize=10)
        return figure

    def html(self) -> str:
        """The figure as an image with its description, in one piece of HTML without links."""
        png = base64.b64encode(self.png()).decode()
        words = escape(self.summary())
        return (
            '<figure style="margin: 0">'
            f'<img alt="{words}" src="data:image/png;base64,{png}" style="max-width: 100%">'
            f'<figcaption role="status">{words}</figcaption></figure>'
        )

    def png(self) -> bytes:
        """The figure as a PNG."""
        buffer = io.BytesIO()
        self.figure().savefig(buffer, format="png", dpi=100)
        return buffer.getvalue()


class Explorer:
    """A Choice that its reader can change; `choice` is the present one."""

    def __init__(self, choice: Choice) -> None:
        self.choice = choice

    def widget(self) -> Any:
        """The controls and the figure, as an ipywidgets box."""
        import ipywidgets

        shown = ipywidgets.HTML(self.choice.html())
        layout = ipywidgets.Layout(width="20em")
        style = {"description_width": "9em"}
        controls = {}
        for name, options in OPTIONS.items():
            sized = name in ("batch", "sequence", "devices")
            kind = ipywidgets.SelectionSlider if sized else ipywidgets.Dropdown
            controls[name] = kind(
                options=[(f"{o:,}" if sized else str(o), o) for o in options],
                value=getattr(self.choice, name),
                description=LABELS[name],
                layout=layout,
                style=style,
                **({"continuous_update": False} if sized else {}),
            )

        def changed(change: Any) -> None:
            self.choice = Choice(**{name: control.value for name, control in controls.items()})
            shown.value = self.choice.html()

        for control in controls.values():
            control.observe(changed, names="value")
        wrap = ipywidgets.Layout(display="flex", flex_flow="row wrap")
        return ipywidgets.VBox([ipywidgets.Box(list(controls.values()), layout=wrap), shown])

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        bundle: dict[str, Any] = dict(self.widget()._repr_mimebundle_())
        static = {"text/html": self.choice.html(), "text/plain": self.choice.summary()}
        return bundle | static


def explore(**choice: Any) -> Explorer:
    """An explorer that starts at a Choice of these fields: `explore(model="gpt2-xl", batch=8)`."""
    return Explorer(Choice(**choice))
