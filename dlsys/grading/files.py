"""Write a file whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path


def write(path: Path, content: str | bytes) -> None:
    """Put `content` at `path`, folders included; whoever reads it meanwhile sees old or new.

    Raises OSError where it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if holds(path, content):
        return
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(_encoded(content))
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def holds(path: Path, content: str | bytes) -> bool:
    """Whether this is what is at `path` already, as `write` would put it there."""
    return path.is_file() and path.read_bytes() == _encoded(content)


def _encoded(content: str | bytes) -> bytes:
    return content if isinstance(content, bytes) else content.encode("utf-8", "backslashreplace")
