"""Pictures of context parallelism: who computes which scores, and the rounds of a ring."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any

from matplotlib.figure import Figure

from dlsys.annotated import checked
from dlsys.checks import count, some
from dlsys.context_parallel.laws import tokens_to_hide
from dlsys.context_parallel.plan import Layout
from dlsys.context_parallel.price import FORWARD, Pass
from dlsys.figures import area, block, closed_figure, lanes, time_unit
from dlsys.hardware import DEVICES
from dlsys.palette import COLORS, GROUND, LINES, MUTED, ON_DARK, ON_LIGHT
from dlsys.streams import Streams
from dlsys.transformer import TransformerSpec
from dlsys.transformer.activations import Recompute, activations

MOST_RANKS, MOST_TOKENS = 8, 256


@checked
def draw_scores(layouts: Mapping[str, Layout]) -> Figure:
    """The scores of a sequence, each query a row, by the rank that computes them.

    layouts: by the name that stands above. Raises ValueError for more than can be told apart.
    """
    some("layouts", layouts)
    figure, panels = closed_figure(3.4 * len(layouts), 3.4, 1, len(layouts))
    for axes, (name, layout) in zip(panels, layouts.items(), strict=True):
        _refuse_many(layout)
        share = [load / sum(layout.load()) for load in layout.load()]
        for rank in range(layout.ranks):
            rows = layout.positions(rank)
            first = [layout.documents[bisect_right(layout.documents, q) - 1] for q in rows]
            widths = [q + 1 - start for q, start in zip(rows, first, strict=True)]
            label = f"rank {rank}: {share[rank]:.0%}"
            axes.barh(rows, widths, 1.0, first, color=COLORS[rank % len(COLORS)], label=label)
        axes.set_xlim(0, layout.length)
        axes.set_ylim(layout.length - 0.5, -0.5)
        axes.set_aspect("equal")
        axes.set_title(name, fontsize="medium")
        axes.set_xlabel("key")
        axes.legend(loc="upper right", fontsize="small", title="scores")
    panels[0].set_ylabel("query")
    return figure


@checked
def draw_rounds(passes: Mapping[str, Pass]) -> Figure:
    """What each rank computes, a bar for a round, with the number of the rank whose keys it has.

    passes: by the name that stands above, on one axis of time. White is waiting.
    """
    some("passes", passes)
    unit, scale = time_unit(max(one.seconds for one in passes.values()))
    ranks = max(len(one.compute) for one in passes.values())
    ground = {"facecolor": ON_DARK, "edgecolor": "none", "pad": 1.0, "alpha": 0.85}
    number: Any = {"ha": "center", "va": "center", "fontsize": 8, "color": ON_LIGHT, "bbox": ground}
    figure, panels = closed_figure(7, (0.6 + 0.25 * ranks) * len(passes) + 0.5, len(passes))
    for axes, (name, one) in zip(panels, passes.items(), strict=True):
        for rank, spans in enumerate(one.compute):
            for span in spans:
                if span.seconds:
                    color = COLORS[span.action % len(COLORS)]
                    start, width = span.start * scale, span.seconds * scale
                    axes.barh(rank, width, 0.8, start, color=color, edgecolor=GROUND)
                    axes.text(start + width / 2, rank, str(span.action), **number)
        axes.set_title(name, fontsize="medium", loc="left")
        axes.set_xlim(0, 1.02 * scale * max(one.seconds for one in passes.values()))
        axes.set_yticks(range(len(one.compute)), [f"rank {r}" for r in range(len(one.compute))])
        axes.invert_yaxis()
    panels[-1].set_xlabel(f"time ({unit})")
    return figure


def draw_ring(n: int) -> Figure:
    """The rounds of ring attention side by side, a row for each of n ranks.

    Forward: the keys and values that a rank has, and under them to whose it has then attended.
    Backward: under them their gradient, and how many ranks have then added to it.
    """
    figure, panels = closed_figure(max(7, n + 1), 1 + 1.1 * n, 2)

    def put(left: float, top: float, wide: float, owner: int, words: str) -> None:
        block(axes, (left, top), wide, 0.36, words, **area(owner))

    for axes, name in zip(panels, ("forward", "backward"), strict=True):
        for me, step in product(range(n), range(n)):
            owner, left = (me - step) % n, step - 0.42
            put(left, me - 0.4, 0.84, owner, f"kv {owner}")
            if name == "backward":
                put(left + 0.1, me, 0.64, owner, f"dkv {owner} {step + 1}/{n}")
                continue
            for met in ((me - past) % n for past in range(step + 1)):
                put(left + 0.84 * met / n, me, 0.84 / n, met, str(met))
        rounds = [f"round {step}" for step in range(n)]
        axes.set_xticks(range(n), rounds)
        axes.set(xlim=(-0.5, n + 0.5), ylim=(n - 0.5, -0.5))
        axes.set_yticks(range(n), [f"rank {me}" for me in range(n)])
        axes.set_title(name, fontsize="medium", loc="left")
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
    for me in range(n):
        put(n - 0.32, me, 0.64, me, f"dkv {me} {n}/{n}")
    axes.set_xticks(range(n + 1), [*rounds, "home"])
    return figure


@checked
def draw_swap(ranks: int = 4) -> Figure:
    """Which of the ranks has which tokens of which heads, before Ulysses' swap and after it.

    A tile is what one rank sends to one: marked on the left with whom it goes to, and on the right
    with whom it came from. Raises ValueError for fewer ranks than two, and for too many to read.
    """
    n = count("ranks", ranks, least=2, most=MOST_RANKS)
    names = [f"rank {rank}" for rank in range(n)]
    figure, (before, after) = closed_figure(7, 1.2 + 0.5 * n, 1, 2)
    for axes, name in ((before, "before"), (after, "after")):
        for sender, receiver in product(range(n), range(n)):
            owner, words = sender, f"to {receiver}"
            if axes is after:
                owner, words = receiver, f"from {sender}"
            corner = receiver - 0.5, sender - 0.5
            block(axes, corner, 1, 1, words, edgecolor=GROUND, **area(owner))
        axes.set(xlim=(-0.5, n - 0.5), ylim=(n - 0.5, -0.5), xticks=[], yticks=[])
        axes.set(xlabel="heads", ylabel="tokens")
        axes.set_title(f"{name} the swap", fontsize="medium")
        axes.tick_params(length=0, labelsize="small")
        axes.spines[:].set_visible(False)
    before.set_yticks(range(n), names)
    after.xaxis.tick_top()
    after.set_xticks(range(n), names)
    return figure


@checked
def draw_lanes(ranks: int = 4) -> Figure:
    """What rank 0 computes in ring attention's backward pass, and what it sends meanwhile.

    A round is one wide. Keys leave as work on them begins, their gradients when it is done. Raises
    ValueError for fewer ranks than two, and for more than can be told apart.
    """
    n = count("ranks", ranks, least=2, most=MOST_RANKS)
    figure, (axes,) = closed_figure(7, 2.1)
    for row, (since, rounds, words) in enumerate(((0, n, "kv"), (0, n - 1, "kv"), (1, n, "dkv"))):
        for step in range(rounds):
            owner, corner = -step % n, (since + step, row)
            block(axes, corner, 1, 0.7, f"{words} {owner}", edgecolor=GROUND, **area(owner))
    axes.set(xlim=(0, n + 1), ylim=(2.8, -0.1))
    axes.set_xticks(
        [step + 0.5 for step in range(n + 1)], [*map("round {}".format, range(n)), "home"]
    )
    axes.set_yticks([0.35, 1.35, 2.35], ["computes with", "sends keys", "sends gradients"])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return figure


@checked
def draw_hidden(spec: TransformerSpec, rate: float, bandwidth: float, ranks: int = 4) -> Figure:
    """One rank's rounds of a ring, with half and with twice the tokens that hide its messages.

    rate and bandwidth are those of `tokens_to_hide`. Raises ValueError for fewer ranks than two,
    and for more than can be told apart.
    """
    n = count("ranks", ranks, least=2, most=MOST_RANKS)
    enough = tokens_to_hide(spec, rate, bandwidth)
    steps = {}
    for tokens in (enough / 2, 2 * enough):
        streams, arrived = Streams(), 0.0
        scores = FORWARD * spec.heads * tokens**2 / 2
        for step in range(n):
            streams.wait(arrived)
            if step < n - 1:
                message = 2 * 2 * spec.kv_heads * tokens * spec.head_size
                arrived = streams.carry((f"kv {step + 1}", step + 1), message / bandwidth)
            streams.compute((f"round {step}", step), streams.now + scores * spec.head_size / rate)
        steps[tokens] = streams.overlap()
    figure, panels = closed_figure(7, 3.6, 2)
    for axes, (tokens, each) in zip(panels, steps.items(), strict=True):
        lanes(axes, each, each.seconds)
        waits = f"{each.exposed_seconds / each.seconds:.0%} of the time"
        axes.set_title(f"{tokens:,.0f} tokens a rank: waits {waits}", fontsize="medium", loc="left")
    return figure


def _refuse_many(layout: Layout) -> None:
    if layout.ranks > MOST_RANKS or layout.length > MOST_TOKENS:
        raise ValueError(
            f"{layout.length} tokens on {layout.ranks} ranks could not be told apart: draw the "
            f"same kind with 4 ranks and 64 tokens, say; {MOST_TOKENS} tokens on {MOST_RANKS} "
            "ranks are the most."
        )


def draw_waiting(seconds: Mapping[str, tuple[float, float]]) -> Figure:
    """A bar for each name: seconds that a device computes, and that it waits beyond that."""
    unit, scale = time_unit(max(map(sum, seconds.values())))
    figure, (axes,) = closed_figure(7, 0.9 + 0.4 * len(seconds))
    compute, exposed = ([scale * both[i] for both in seconds.values()] for i in (0, 1))
    axes.barh([*seconds], compute, 0.7, color="#BDBDBD", label="compute")
    axes.barh([*seconds], exposed, 0.7, compute, color=LINES[1][0], hatch="///", label="exposed")
    axes.invert_yaxis()
    axes.set_xlabel(f"attention of a layer, forward and backward ({unit})")
    figure.legend(loc="outside upper center", ncols=2, fontsize="small")
    return figure


@checked
def draw_memory(spec: TransformerSpec, ranks: int = 8) -> Figure:
    """Activations that a device has of one sequence, by its length, alone and on `ranks`.

    With flash attention, with and without full recomputation, which at its peak has one layer
    rebuilt. A line is at the 80 GB of an H100.
    """
    count("ranks", ranks, most=MOST_TOKENS)
    figure, (axes,) = closed_figure(7, 3.4)
    lengths = [2**power for power in range(13, 21)]
    ways: dict[str, Recompute] = {"": "none", ", all recomputed": "full"}
    lines = iter(LINES)
    for n in (1, ranks):
        for words, recompute in ways.items():
            each = [replace(spec, sequence=length // n) for length in lengths]
            found = [activations(one, 1, recompute=recompute, flash=True) for one in each]
            kept = [(one + one.recomputed) / 1e9 for one in found]
            color, style, marker = next(lines)
            name = f"{n} rank{'s' * (n > 1)}{words}"
            axes.plot(lengths, kept, color=color, linestyle=style, marker=marker, label=name)
    memory = DEVICES["h100-sxm"].memory / 1e9
    axes.axhline(memory, color=MUTED, linewidth=1)
    axes.text(lengths[-1], memory, f"{memory:.0f} GB", ha="right", va="bottom", fontsize="small")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("tokens of the sequence")
    axes.set_ylabel("activations on a device (GB)")
    axes.legend(fontsize="small")
    return figure
