"""What an answer cost, in words."""

from collections.abc import Mapping
from typing import Any

from dlsys.units import format_bytes, format_seconds


def cost_of(run: Any) -> dict[str, float]:
    """What a run of a world cost: bytes that the busiest rank sent, messages, seconds.

    A cost that is given by name already is returned as it is.
    """
    if isinstance(run, Mapping):
        return dict(run)
    return {
        "bytes": max(run.traffic.sent),
        "messages": len(run.traffic.messages),
        "seconds": run.seconds,
    }


def cost_line(cost: Mapping[str, float], best: Mapping[str, float] | None = None) -> str:
    """A cost beside the best known: "  cost: 2 GB, 14 messages   best known: 1 GB, 14 messages"."""
    return f"  cost: {amounts(cost)}" + (f"   best known: {amounts(best)}" if best else "")


def amounts(cost: Mapping[str, float]) -> str:
    """A cost in words: "1.6 MB, 8 messages, 38 us"."""
    shown = {"bytes": format_bytes, "seconds": format_seconds}
    parts = [
        shown[name](value) if name in shown else f"{value:,} {name}" for name, value in cost.items()
    ]
    return ", ".join(parts)
