"""Files that are there whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from os import PathLike, fspath
from pathlib import Path
from typing import IO

from dlsys.checks import refuse


@contextlib.contextmanager
def written(path: str | PathLike) -> Iterator[IO[bytes]]:
    """A file to write to, which is at `path` once the block has ended without an error.

    Until then, and after an error, `path` is what it was before; a link stays one, and a file that
    is replaced keeps its mode. What is no file, as a pipe, is written to as it is. Raises
    ValueError where there is a folder, or no name, and OSError where nothing can be written.
    """
    if not _is_name(path) or Path(path).is_dir():
        refuse("path", fspath(path), "the name of a file, old or new")
    if Path(path).exists() and not Path(path).is_file():
        with open(path, "wb") as file:
            yield file
        return
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{secrets.token_hex(8)}.part")
    try:
        with open(temporary, "xb") as file:
            yield file
        if target.exists():
            shutil.copymode(target, temporary)
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def _is_name(path: str | PathLike) -> bool:
    """Whether a file can have this name."""
    try:
        name = os.fsencode(path)
    except UnicodeEncodeError:
        return False
    return bool(name) and b"\0" not in name


def write(path: Path, content: str | bytes) -> None:
    """Put `content` at `path`, folders included, unless it is there; raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not holds(path, content):
        with written(path) as file:
            file.write(_encoded(content))


def holds(path: Path, content: str | bytes) -> bool:
    """Whether this is what is at `path` already, as `write` would put it there."""
    return path.is_file() and path.read_bytes() == _encoded(content)


def _encoded(content: str | bytes) -> bytes:
    return content if isinstance(content, bytes) else content.encode("utf-8", "backslashreplace")
