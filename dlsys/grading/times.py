"""Times as an instructor writes them: when something is due, how long, and for whom longer."""

from __future__ import annotations

import re
from datetime import datetime, time

SECONDS = {"minute": 60, "hour": 3600, "day": 86400, "week": 7 * 86400}
SPAN = r"\d{1,4}(?:\.\d+)?\s*(?:minute|hour|day|week)s?"


def parse_due(text: str) -> datetime:
    """The moment that "2026-12-01T23:59" stands for, always with a time zone; raises ValueError.

    A time without a zone ("+01:00", "Z") is this machine's local time; a date alone is its end.
    """
    try:
        due = datetime.fromisoformat(text.strip())
        if re.fullmatch(r"[\dW-]+", text.strip()):
            due = datetime.combine(due.date(), time.max)
        return due.astimezone()
    except (OverflowError, ValueError):
        raise ValueError(
            f"{text!r} is no date: write for example 2026-12-01T23:59 (this machine's local "
            "time) or 2026-12-01T23:59+01:00."
        ) from None


def parse_span(text: str) -> float:
    """The seconds in "15 minutes", "36 hours", "2 days" or "1 week"; raises ValueError."""
    if not re.fullmatch(SPAN, text.strip().lower()):
        raise ValueError(f"{text!r} is no length of time: write for example '36 hours', '2 days'.")
    number, unit = re.findall(r"[\d.]+|[a-z]+", text.lower())
    return float(number) * SECONDS[unit.removesuffix("s")]


def extended(due: float, extension: str) -> float:
    """When something is due, in seconds since 1970, for whom `extension` is granted: so long after
    `due`, or until a date, and never earlier than for all. Raises ValueError."""
    if not extension:
        return due
    if re.match(r"\d{4}-", extension):
        return max(due, parse_due(extension).timestamp())
    return due + parse_span(extension)
