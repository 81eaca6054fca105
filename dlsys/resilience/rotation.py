"""Old checkpoints are deleted, and never the last one that is good."""

from __future__ import annotations

import os
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import SupportsIndex

from dlsys.annotated import checked
from dlsys.checks import count
from dlsys.resilience.files import fsync_folder
from dlsys.resilience.refused import CheckpointError
from dlsys.resilience.saving import DELETING, NAME, folder_of, remove
from dlsys.resilience.verifying import sorted_names, verify

Rules = tuple[int, int | None]
"""How many of the last stay, and every how many steps one does."""


@checked
def rotate(
    folder: str | PathLike, keep: SupportsIndex, every: SupportsIndex | None = None
) -> list[Path]:
    """Delete all checkpoints below `folder` but the last `keep`; returns what was deleted.

    - every: those of steps that divide by it stay, too; None keeps none for that.

    Before anything goes, one that stays is read and found good; where none of them is, the newest
    good one of the others stays as well. What is deleted first loses its name, so a deletion that
    is cut short leaves nothing that looks like a checkpoint. One process of a run calls this.
    """
    return rotate_beside(folder_of(folder), rules(keep, every))


def rules(keep: SupportsIndex, every: SupportsIndex | None) -> Rules:
    """What to keep, checked."""
    return count("keep", keep), None if every is None else count("every", every)


def rotate_beside(root: Path, rules: Rules, good: str | None = None) -> list[Path]:
    """`rotate`, where the checkpoint named `good` is known to be."""
    names, (keep, every) = sorted_names(root), rules
    last = {*names[:keep], good}  # after a step back, what was just saved is not the last by number
    stay = [name for name in names if name in last or _periodic(name, every)]
    others = [name for name in names if name not in set(stay)]
    if others and good not in stay and not _any_good(root, stay):
        others = _without_newest_good(root, others)
    deleted = [root / name for name in others]
    for path in reversed(deleted):  # the oldest first
        _delete(path)
    return deleted


def _periodic(name: str, every: int | None) -> bool:
    match = NAME.fullmatch(name)
    return every is not None and match is not None and int(match[1]) % every == 0


def _any_good(root: Path, names: Sequence[str]) -> bool:
    return len(_without_newest_good(root, names)) < len(names)


def _without_newest_good(root: Path, names: Sequence[str]) -> list[str]:
    """The names but for that of the newest good checkpoint among them."""
    for place, name in enumerate(names):
        try:
            verify(root / name)
        except CheckpointError:
            continue
        return [*names[:place], *names[place + 1 :]]
    return [*names]


def _delete(path: Path) -> None:
    """Rename, which is done or not, before files go one by one."""
    gone = path.with_name(DELETING + path.name)
    if os.path.lexists(gone):  # left by a deletion of the same name that was cut short
        remove(gone)
    os.rename(path, gone)
    fsync_folder(path.parent)
    remove(gone)
