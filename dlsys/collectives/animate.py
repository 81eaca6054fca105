"""Animations of plans that play in the page and ask nothing of the network."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from html import escape
from itertools import islice

from matplotlib.figure import Figure

from dlsys import svg
from dlsys.annotated import checked
from dlsys.collectives.draw import Panel, draw_panel, panel_size, panels, title
from dlsys.collectives.plan import Plan, Transfer
from dlsys.palette import GROUND


@dataclass(frozen=True)
class Animation:
    """An animation that plays in the page, from pictures inside it, and loads nothing.

    It stands still until the reader starts it, steps by buttons and slider, and tells each
    frame in words. A frame is an SVG: sharp at any size, and in the colors of the page's theme.
    """

    label: str
    frames: tuple[str, ...]
    captions: tuple[str, ...]
    interval_ms: int = 1200

    def __repr__(self) -> str:
        return f"<animation of {len(self.frames)} frames: {self.label}>"

    def _repr_html_(self) -> str:
        name = re.sub(r"\W+", "-", self.label)
        told = enumerate(zip(self.frames, self.captions, strict=True))
        drawn = [svg.inline(frame, words, f"{name}-{i}") for i, (frame, words) in told]
        images = "".join(
            f'<div class="frame"{" hidden" * (i > 0)}>{frame}</div>'
            for i, frame in enumerate(drawn)
        )
        buttons = "".join(
            f'<button type="button" data-step="{step}" aria-label="{name}" title="{name}">'
            f"{glyph}</button>"
            for step, name, glyph in (
                ("first", "First frame", "|&lt;"),
                ("back", "One round back", "&lt;"),
                ("play", "Play or pause", "Play"),
                ("on", "One round on", "&gt;"),
            )
        )
        return _PAGE.format(
            label=escape(self.label),
            ground=GROUND,
            images=images,
            buttons=buttons,
            last=len(self.frames) - 1,
            first_caption=escape(self.captions[0]),
            longest_caption=escape(max(self.captions, key=len)),
            interval=self.interval_ms,
            script=_SCRIPT,
        )


# The longest caption, unseen in the same place, keeps the page from jumping where captions wrap.
_PAGE = """<div class="plan-animation" role="group" aria-label="{label}" data-interval="{interval}">
<div style="background: var(--figure-ground, {ground})">{images}</div>
<div>{buttons}
<input type="range" min="0" max="{last}" value="0" aria-label="Round"></div>
<div style="display: grid">
<span aria-live="polite" style="grid-area: 1 / 1">{first_caption}</span>
<span aria-hidden="true" style="grid-area: 1 / 1; visibility: hidden">{longest_caption}</span>
</div>
</div>
<script>{script}</script>"""

_SCRIPT = """
document.querySelectorAll(".plan-animation:not([data-ready])").forEach(function (root) {
  root.dataset.ready = "yes";
  const images = root.querySelectorAll(".frame"), slider = root.querySelector("input");
  const words = root.querySelector("[aria-live]"), play = root.querySelector("[data-step=play]");
  let timer = null;
  function show(k) {
    k = Math.max(0, Math.min(images.length - 1, k));
    images.forEach(function (image, i) { image.hidden = i !== k; });
    slider.value = k;
    words.textContent = images[k].firstChild.getAttribute("aria-label");
    if (k === images.length - 1) stop();
  }
  function stop() { clearInterval(timer); timer = null; play.textContent = "Play"; }
  function start() {
    if (Number(slider.value) === images.length - 1) show(0);
    timer = setInterval(function () { show(Number(slider.value) + 1); },
                        Number(root.dataset.interval));
    play.textContent = "Pause";
  }
  root.querySelectorAll("button").forEach(function (button) {
    button.addEventListener("click", function () {
      const step = button.dataset.step, k = Number(slider.value);
      if (step === "play") { if (timer) stop(); else start(); return; }
      stop();
      show(step === "first" ? 0 : step === "back" ? k - 1 : k + 1);
    });
  });
  slider.addEventListener("input", function () { stop(); show(Number(slider.value)); });
});
"""


@checked
def animate(plan: Plan, interval_ms: int = 1200) -> Animation:
    """The rounds of `plan` one after another, `interval_ms` milliseconds each, to play in the page.

    Deterministic: the same plan gives the same HTML. Raises ValueError as `panels` does.
    """
    frames, captions = [], []
    for panel in panels(plan, most=64):
        frames.append(svg.drawn(partial(_frame, plan, panel)))
        captions.append(_words(panel))
    label = f"Animation: {title(plan)}, {len(plan.rounds)} rounds"
    return Animation(label, tuple(frames), tuple(captions), interval_ms)


def _frame(plan: Plan, panel: Panel) -> Figure:
    figure = Figure(figsize=panel_size(plan), layout="constrained")
    draw_panel(figure.subplots(), plan, panel)
    return figure


def _words(panel: Panel) -> str:
    """A frame in words, as its text alternative."""
    if not panel.transfers:
        return "start"
    told = [
        f"{t.src} sends {_chunks(t)} to {t.dst}{', which adds' * t.reduce}"
        for t in islice(panel.transfers, 8)
    ]
    more = len(panel.transfers) - len(told)
    return f"{panel.title}: {'; '.join(told)}{f'; and {more} more' if more else ''}"


def _chunks(t: Transfer) -> str:
    return f"chunk {t.first}" if t.stop == t.first + 1 else f"chunks {t.first} to {t.stop - 1}"
