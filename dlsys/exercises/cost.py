"""What an answer cost, in words."""

from collections.abc import Mapping
from typing import Any

from dlsys.annotated import checked
from dlsys.checks import refuse
from dlsys.units import format_bytes, format_seconds

BEATEN = "This beats the best that we know: well done! Show your instructor how, or write to us."


def cost_of(run: Any) -> dict[str, float]:
    """What a run of a world cost: bytes that the busiest rank sent, messages, seconds.

    A cost that is given by name already is returned as it is.
    """
    if isinstance(run, Mapping):
        return dict(run)
    if not (hasattr(run, "traffic") and hasattr(run, "seconds")):
        refuse("cost", run, "a run of a world, or a dictionary such as {'bytes': 8}")
    return {
        "bytes": max(run.traffic.sent),
        "messages": len(run.traffic.messages),
        "seconds": run.seconds,
    }


@checked
def cost_line(cost: Mapping[str, float], best: Mapping[str, float] | None = None) -> str:
    """A cost beside the best known: "  cost: 2 GB, 14 messages   best known: 1 GB, 14 messages".

    An answer that beats the best known is told so in a line of its own.
    """
    if best is None:
        return f"  cost: {amounts(cost)}"
    line = f"  cost: {amounts(cost)}   best known: {amounts(best)}"
    return f"{line}\n  {BEATEN}" if beats(cost, best) else line


def beats(cost: Mapping[str, float], best: Mapping[str, float]) -> bool:
    """Whether a cost is below the best known by one amount and above it by none.

    A thousandth more or less is rounding: the best are written down with the digits shown.
    """
    pairs = [(cost[name], best[name]) for name in best if name in cost]
    none_above = len(pairs) == len(best) and all(mine <= 1.001 * known for mine, known in pairs)
    return none_above and any(mine < 0.999 * known for mine, known in pairs)


@checked
def amounts(cost: Mapping[str, float]) -> str:
    """A cost in words: "1.6 MB, 8 messages, 38 us"."""
    shown = {"bytes": format_bytes, "seconds": format_seconds}
    parts = [
        shown[name](value) if name in shown else f"{value:,} {name}" for name, value in cost.items()
    ]
    return ", ".join(parts)
