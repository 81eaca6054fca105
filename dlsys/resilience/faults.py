"""A planted fault: what a save must not do, done as programs do it."""

from __future__ import annotations

import hashlib
from os import PathLike
from pathlib import Path
from typing import Any, SupportsIndex

from dlsys.annotated import checked
from dlsys.resilience import files, manifest_file
from dlsys.resilience.gathering import gather
from dlsys.resilience.saving import Target, folder_of, step_of, with_entries, write_mine
from dlsys.resilience.together import Together
from dlsys.world import Communicator


class _InPlace(Target):
    """A folder that is written where it will be read."""

    @property
    def temporary(self) -> Path:
        return self.final


@checked
def save_manifest_first(
    state: Any, folder: str | PathLike, step: SupportsIndex, comm: Communicator | None = None
) -> Path:
    """`save` as it must not be: into one folder, `folder`/current, over what was there, and the
    manifest before the files that it speaks of, which ranks write one after the other.

    Until the last of them is written, the manifest promises what is not there. Only a
    comparison of hashes can tell: names, sizes and shapes are right.
    """
    root, number, ranks = folder_of(folder), step_of(step), Together(comm)
    target = _InPlace(root, "current")
    gathered = gather(state, number, ranks)
    head = files.header(gathered.manifest, ranks.rank)
    whole = b"".join([head, *(bytes(files.as_bytes(part)) for part in gathered.parts)])
    entries = ranks.hear([len(whole), hashlib.sha256(whole).hexdigest()])
    if ranks.rank == 0:
        target.final.mkdir(parents=True, exist_ok=True)
        where = target.final / files.MANIFEST
        where.unlink(missing_ok=True)
        files.write(where, [manifest_file.to_bytes(with_entries(gathered.manifest, entries))])
    for turn in range(ranks.size):
        if turn == ranks.rank:
            (target.final / files.name_of(turn)).unlink(missing_ok=True)
            write_mine(target, gathered, turn)
        ranks.hear(None)
    return target.final
