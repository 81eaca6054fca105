"""Saving: every rank's file into a temporary folder, the manifest last, then one rename."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, SupportsIndex

from torch import Tensor

from dlsys.annotated import checked
from dlsys.checks import count, refuse
from dlsys.resilience import files, manifest_file
from dlsys.resilience.gathering import Gathered, gather
from dlsys.resilience.holding import Lock
from dlsys.resilience.plan import FileEntry, Manifest
from dlsys.resilience.together import Together
from dlsys.world import Communicator

SAVING, DELETING, RECEIPTS = ".saving-", ".deleting-", ".receipts-"
"""What the names of folders begin with that are no checkpoints yet, no longer, or not at all."""
NAME = re.compile(r"step-(\d{12})(?:\.(\d+))?")
"""The name of a checkpoint's folder: its step, and how many of the same step are older."""
MOST_STEPS = 10**12 - 1


Entry = tuple[int, str]
"""Size and SHA-256 of a file."""


class Target(NamedTuple):
    """Where a checkpoint is written, and what it is to be called; on rank 0 with a lock."""

    root: Path
    name: str
    lock: Lock | None = None

    @property
    def temporary(self) -> Path:
        """The folder as long as it is no checkpoint."""
        return self.root / f"{SAVING}{self.name}"

    @property
    def final(self) -> Path:
        """The folder of the checkpoint."""
        return self.root / self.name

    def let_go(self) -> None:
        """Let others save below `root`."""
        if self.lock is not None:
            self.lock.release()

    def give_up(self) -> None:
        """The same, with nothing left of what was written; where that is done, nothing."""
        if self.lock is not None and self.lock.release.alive:
            shutil.rmtree(self.temporary, ignore_errors=True)
            self.lock.release()


@checked
def save(
    state: Any, folder: str | PathLike, step: SupportsIndex, comm: Communicator | None = None
) -> Path:
    """Write a checkpoint of `step` into a new folder below `folder`; returns where it lies.

    - state: nested dictionaries, lists and tuples. A tensor is the same on every rank and written
      once, a `Shard` is this rank's part of one, a `PerRank` is every rank's own; numbers, text and
      None are the same on every rank. A key of a dictionary may be on some ranks alone.
    - comm: the ranks that save together, all of which call this; None is the world that the caller
      is in, or this process alone.

    Each rank writes one file and has it on the disk; then the manifest with every file's size and
    SHA-256 is written, and the folder gets its name, which is the moment at which there is a new
    checkpoint. Until then nothing that was there is touched. A step that was saved before gets a
    folder of its own beside the older one.

    Raises CheckpointError on every rank where a rank cannot write, states or steps do not fit
    together, or another save into the folder is under way, whose process it names.
    """
    root, number, ranks = folder_of(folder), step_of(step), Together(comm)
    gathered = gather(state, number, ranks)
    target = open_target(root, number, ranks)
    error, entry = None, None
    try:
        entry = write_mine(target, gathered, ranks.rank)
    except Exception as found:
        error = found
    except BaseException:  # nobody is told of an interrupt, so this rank leaves alone
        target.give_up()
        raise
    finish(target, gathered.manifest, ranks, error, entry)
    return target.final


def finish(
    target: Target,
    manifest: Manifest,
    ranks: Together,
    error: BaseException | None,
    entry: Entry | None,
) -> None:
    """Make a checkpoint of what all ranks have written, unless one of them has an error.

    Raises CheckpointError on all of them then, and nothing is left of what was written. Others may
    save below the folder afterwards.
    """
    doing = f"the save of step {manifest.step} failed"
    try:
        entries = ranks.agree(doing, error, entry)
        try:
            if ranks.rank == 0 and not target.final.exists():
                commit(target, with_entries(manifest, entries))
            target.let_go()  # before any rank goes on
        except Exception as found:
            error = found
            target.give_up()
        ranks.agree(doing, error)
    except BaseException:
        target.give_up()
        raise


def folder_of(folder: str | PathLike, name: str = "folder") -> Path:
    """The folder as a path; raises ValueError for what names none."""
    if not isinstance(folder, str | PathLike) or not os.fspath(folder):
        refuse(name, folder, "the name of a folder")
    path = Path(os.fsdecode(folder))
    if "\0" in str(path):
        refuse(name, folder, "the name of a folder")
    if os.path.lexists(path) and not os.path.isdir(path):
        refuse(name, str(path), "a folder; there is a file of that name, or a link to nowhere")
    return path


def step_of(step: SupportsIndex) -> int:
    """The number of a step."""
    return count("step", step, 0, MOST_STEPS)


def open_target(root: Path, step: int, ranks: Together, error: Exception | None = None) -> Target:
    """A new temporary folder, made by rank 0, once what earlier saves left half done is gone.

    error: what has gone wrong on this rank before, of which all are to hear. Rank 0 holds other
    saves off until the target is let go.
    """
    target = Target(root, "")
    try:
        if ranks.rank == 0 and error is None:
            try:
                _make(root)
                target = Target(root, "", Lock(root))
                target = target._replace(name=_new_name(root, step))
                clean(root)
                target.temporary.mkdir()
            except Exception as found:
                error = found
        heard = ranks.agree(f"the save of step {step} failed", error, target.name)
    except BaseException:
        target.give_up()
        raise
    return target._replace(name=heard[0])


def _make(root: Path) -> None:
    """Have a folder on the disk."""
    missing = [each for each in (root, *root.parents) if not each.exists()]
    root.mkdir(parents=True, exist_ok=True)
    for each in missing:
        files.fsync_folder(each.parent)


def _new_name(root: Path, step: int) -> str:
    """The name for a checkpoint that is newer than all others, those of the same step too."""
    found = [match for name in os.listdir(root) if (match := NAME.fullmatch(name))]
    again = max((int(m[2] or 0) + 1 for m in found if int(m[1]) == step), default=0)
    return f"step-{step:012d}" + (f".{again}" if again else "")


def remove(path: Path) -> None:
    """Delete a folder and all in it, or a file, or a link and not what it leads to."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def clean(root: Path) -> None:
    """Delete what saves and deletions that were cut short have left."""
    for path in root.iterdir():
        if path.name.startswith((SAVING, DELETING, RECEIPTS)):
            remove(path)


def write_mine(target: Target, gathered: Gathered, rank: int) -> Entry:
    """Write this rank's file; returns its size and hash."""
    parts: Sequence[Tensor] = gathered.parts
    head = files.header(gathered.manifest, rank)
    views = (files.as_bytes(tensor) for tensor in parts)
    return files.write(target.temporary / files.name_of(rank), (head, *views))


def with_entries(manifest: Manifest, entries: Sequence[Sequence[Any]]) -> Manifest:
    """The manifest with the size and hash of every rank's file."""
    every = tuple(
        FileEntry(file.regions, nbytes, sha256)
        for file, (nbytes, sha256) in zip(manifest.files, entries, strict=True)
    )
    return Manifest(manifest.step, manifest.tensors, every, manifest.state)


def commit(target: Target, manifest: Manifest) -> None:
    """Make a checkpoint of a folder in which every file is on the disk."""
    files.write(target.temporary / files.MANIFEST, [manifest_file.to_bytes(manifest)])
    files.fsync_folder(target.temporary)
    os.rename(target.temporary, target.final)
    try:
        files.fsync_folder(target.root)
    except BaseException:  # a save that fails leaves nothing under a checkpoint's name
        os.rename(target.final, target.temporary)
        raise
