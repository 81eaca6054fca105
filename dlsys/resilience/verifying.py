"""Whether a checkpoint may be trusted: every file is looked at before a number of it is used."""

from __future__ import annotations

import hashlib
import os
import stat
from os import PathLike
from pathlib import Path
from typing import NamedTuple

from dlsys.annotated import checked
from dlsys.resilience import files, manifest_file
from dlsys.resilience.plan import Manifest
from dlsys.resilience.refused import CheckpointError
from dlsys.resilience.saving import NAME, folder_of
from dlsys.resilience.together import Together
from dlsys.world import Communicator

_MOST = 2**30  # bytes of a manifest
_CHUNK = 2**22


class Checkpoint(NamedTuple):
    """A checkpoint that was verified: its folder, its manifest, and a sentence for each newer one
    that was refused."""

    folder: Path
    manifest: Manifest
    skipped: tuple[str, ...] = ()

    @property
    def step(self) -> int:
        """The step that it is of."""
        return self.manifest.step


@checked
def verify(folder: str | PathLike) -> Checkpoint:
    """Read all of a checkpoint, and prove that it is what was written.

    Raises CheckpointError, which names the file and says what is wrong: a file that is missing,
    torn, damaged, foreign or no file at all. Nothing in it is run or unpickled: it is data.
    """
    path = folder_of(folder)
    return Checkpoint(path, _verified(path, 0, 1))


def _verified(path: Path, first: int, every: int) -> Manifest:
    """The manifest of a checkpoint, of whose files these were looked at."""
    try:
        manifest = manifest_of(path)
        for file in range(first, len(manifest.files), every):
            check_file(path, manifest, file)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error}.") from None
    return manifest


@checked
def latest(folder: str | PathLike, comm: Communicator | None = None) -> Checkpoint | None:
    """The last good checkpoint below `folder`; None where there never was one.

    comm: the ranks that ask together, each of which verifies some of the files; None is the world
    that the caller is in, or this process alone. `skipped` tells of the newer ones that were
    refused. Raises CheckpointError where there are checkpoints and none of them is good: nobody
    should begin anew without a word.
    """
    root, ranks = folder_of(folder), Together(comm)
    error, mine = None, None
    try:
        mine = sorted_names(root) if ranks.rank == 0 else None
    except OSError as found:
        error = found
    names = ranks.agree(f"{root} cannot be read", error, mine)[0]
    skipped: list[str] = []
    for name in names:
        try:
            manifest = verified_together(root / name, ranks)
        except CheckpointError as refused:
            skipped.append(str(refused))
        else:
            return Checkpoint(root / name, manifest, tuple(skipped))
    if skipped:
        raise CheckpointError(f"{root} has no good checkpoint: {' '.join(skipped)}")
    return None


def sorted_names(root: Path) -> list[str]:
    """The names of checkpoints, the newest first."""
    if not os.path.lexists(root):
        return []
    found = [(match, name) for name in os.listdir(root) if (match := NAME.fullmatch(name))]
    order = sorted(((int(m[1]), int(m[2] or 0), name) for m, name in found), reverse=True)
    return [name for _, _, name in order]


def verified_together(path: Path, ranks: Together) -> Manifest:
    """The manifest of a checkpoint, of whose files each rank has verified some."""
    error, manifest = None, None
    try:
        manifest = _verified(path, ranks.rank, ranks.size)
    except CheckpointError as found:
        error = str(found)
    wrong = next((each for each in ranks.hear(error) if each), None)
    if wrong:
        raise CheckpointError(wrong)
    assert manifest is not None
    return manifest


def manifest_of(path: Path) -> Manifest:
    """The manifest of a checkpoint whose folder holds what it should, and nothing else."""
    try:
        kind = os.lstat(path).st_mode
    except OSError:
        raise CheckpointError(f"{path} is missing.") from None
    if not stat.S_ISDIR(kind):
        raise CheckpointError(f"{path} is a {files.kind_of(kind)}, not a folder.")
    there = set(os.listdir(path))
    if files.MANIFEST not in there:
        inside = sorted_names(path)
        advice = f"; it holds checkpoints: pass {path / inside[0]}" if inside else ""
        raise CheckpointError(f"{path} has no {files.MANIFEST}: it is no checkpoint{advice}.")
    where = path / files.MANIFEST
    with files.opened(where) as fd:
        size = os.fstat(fd).st_size
        if size > _MOST:
            raise CheckpointError(f"{where} has {size:,} bytes, more than a manifest has.")
        data = b"".join(iter(lambda: os.read(fd, _CHUNK), b""))
    try:
        manifest = manifest_file.from_bytes(data)
    except ValueError as error:
        raise CheckpointError(f"{where} {error}.") from None
    named = NAME.fullmatch(path.name)
    if named and int(named[1]) != manifest.step:
        raise CheckpointError(f"{where} is of step {manifest.step}, not of its folder's.")
    expected = {files.MANIFEST, *(files.name_of(file) for file in range(len(manifest.files)))}
    for name in sorted(expected - there):
        raise CheckpointError(f"{path / name} is missing.")
    for name in sorted(there - expected):
        raise CheckpointError(f"{path / name} is foreign: the manifest does not name it.")
    return manifest


def check_file(path: Path, manifest: Manifest, number: int) -> None:
    """Raise CheckpointError unless a rank's file is, byte for byte, what was written."""
    where, entry = path / files.name_of(number), manifest.files[number]
    with files.opened(where) as fd:
        size = os.fstat(fd).st_size
        if size != entry.nbytes:
            raise CheckpointError(
                f"{where} has {size:,} bytes and the manifest says {entry.nbytes:,}: it is torn, "
                "or another checkpoint's."
            )
        head = files.header(manifest, number)
        if os.read(fd, len(head)) != head:
            raise CheckpointError(
                f"{where} has another header than the manifest says: it is damaged, or another "
                "checkpoint's."
            )
        digest = hashlib.sha256(head)
        while chunk := os.read(fd, _CHUNK):
            digest.update(chunk)
    if digest.hexdigest() != entry.sha256:
        raise CheckpointError(
            f"{where} is damaged: its SHA-256 begins with {digest.hexdigest()[:8]}, and in the "
            f"manifest with {entry.sha256[:8]}."
        )
