"""What students wrote, made fit to be shown to a person and to name a file."""

from __future__ import annotations

import hashlib
import re
import unicodedata

MOST_CHARACTERS = 20_000

# Colours and other commands to a terminal: CSI, OSC up to its end, and the two-letter ones.
_TERMINAL = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]{0,1000}(?:\x07|\x1b\\)|\x1b[@-Z\\^_]"
)
_UNUSUAL = re.compile(r"[^\n\t -~]")
# Joiners are part of some scripts and of emoji; a soft hyphen shows nothing but where to break.
_HARMLESS = "\u200c\u200d\u00ad"
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,79}(?<!\.)")


def visible(text: str, most: int = MOST_CHARACTERS) -> str:
    """`text` without colour codes, at most `most` characters of it, nothing in it invisible.

    Control characters, changes of writing direction, lone surrogates and the like become escapes
    such as \\u202e, so that what a reader sees is what there is.
    """
    cut = text[:most]
    shown = _TERMINAL.sub("", cut).replace("\r\n", "\n").replace("\r", "\n")
    shown = _UNUSUAL.sub(_escape, shown)
    return shown if len(text) <= most else f"{shown}\n... ({len(text) - most:,} characters more)"


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    if character in _HARMLESS or unicodedata.category(character) not in (
        *("Cc", "Cf", "Cs", "Co", "Cn"),
        *("Zl", "Zp"),
    ):
        return character
    return character.encode("unicode_escape").decode()


def file_name(student: str) -> str:
    """A name for a student's files: theirs where it is plain, else its plain letters and a digest.

    Two students never share one: plain names hold no `~`.
    """
    if _PLAIN_NAME.fullmatch(student):
        return student
    letters = unicodedata.normalize("NFKD", student).encode("ascii", "ignore").decode()
    start = re.sub(r"[^A-Za-z0-9]+", "-", letters).strip("-")[:40] or "student"
    digest = hashlib.sha256(student.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{start}~{digest}"
