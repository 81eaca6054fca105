"""Cut out of a notebook what is stored in it and not handed in: outputs, attachments, widgets.

They can be many times what was written, so they go before anything of the file is parsed.
"""

from __future__ import annotations

import re

MOST_BRACKETS = 1_000_000  # in all that is cut out

# In JSON a quote within a text is escaped, so wherever this is found it is a key, or ends one.
_STORED = re.compile(rb'"(?:outputs|attachments|widgets)"\s*+:\s*+(?=[\[{])')
# Texts are passed over whole; without an end, one reaches to the end of the file.
_TO_BRACKET = re.compile(
    rb'(?:[^][{}"]++|"(?:[^"\\]++|\\.)*+(?:"|\\?\Z))*+(?P<bracket>[][{}])', re.DOTALL
)


def without_outputs(data: bytes) -> bytes:
    """The JSON `data` with every stored list or object empty, in time linear in its length.

    Raises ValueError where they hold more than MOST_BRACKETS lists and objects.
    """
    parts, place, left = [], 0, MOST_BRACKETS
    while found := _STORED.search(data, place):
        end, left = _end(data, found.end(), left)
        brackets = b"[]" if data[found.end()] == ord("[") else b"{}"
        parts += [data[place : found.end()], brackets]
        place = end
    return b"".join([*parts, data[place:]])


def _end(data: bytes, place: int, left: int) -> tuple[int, int]:
    """Where the list or object at `place` ends, and how many brackets may follow."""
    depth = 0
    while found := _TO_BRACKET.match(data, place):
        depth += 1 if found["bracket"] in b"[{" else -1
        place, left = found.end(), left - 1
        if not depth:
            return place, left
        if left <= 0:
            raise ValueError(f"more than {MOST_BRACKETS:,} lists are stored in it")
    return len(data), left
