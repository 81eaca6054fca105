"""Asynchronous checkpoints: a copy in host memory, which a thread writes to disk.

The ranks' threads send no messages, because the communicator belongs to the training. They meet in
the folder: each leaves a receipt when its file is on the disk, and the one that finds all of them
there makes the checkpoint, as the last to leave turns off the light.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, SupportsIndex

import torch
from torch import Tensor

from dlsys.annotated import checked
from dlsys.resilience.gathering import Gathered, gather
from dlsys.resilience.plan import Region
from dlsys.resilience.rotation import Rules, rotate_beside, rules
from dlsys.resilience.saving import (
    RECEIPTS,
    Entry,
    Target,
    commit,
    finish,
    folder_of,
    open_target,
    step_of,
    with_entries,
    write_mine,
)
from dlsys.resilience.together import Together
from dlsys.world import Communicator


@checked
class AsyncSaver:
    """Saves below `folder` while the training goes on; all ranks of `comm` call the same.

    - comm: None is the world that the caller is in, or this process alone.
    - keep, every: after each save old checkpoints are deleted as `rotate` does; None keeps all.

    At most one save is in flight. A process that ends waits for it, as long as Python ends it; a
    rank of `world.launch` is ended by its parent, so call `wait()`, or use it in `with`.

    It is of one thread at a time, and of the process that built it: `save` and `wait` raise
    RuntimeError while another thread is in one of them, and in a fork, which has no thread that
    writes.
    """

    def __init__(
        self,
        folder: str | PathLike,
        comm: Communicator | None = None,
        keep: SupportsIndex | None = None,
        every: SupportsIndex | None = None,
    ) -> None:
        # A program may change its folder while a thread writes.
        self._root, self._ranks = folder_of(folder).absolute(), Together(comm)
        checked_rules = rules(1 if keep is None else keep, every)
        self._rules = None if keep is None else checked_rules
        self._flight: _Flight | None = None
        self._memory: dict[tuple[Region, torch.dtype], Tensor] = {}
        self._process, self._busy = os.getpid(), threading.Lock()

    def save(self, state: Any, step: SupportsIndex) -> None:
        """Copy `state` into host memory, and write it as `save` does, in a thread.

        When this returns, the training may change every tensor. It waits for the save before, and
        raises CheckpointError where that failed on any rank; this one is not begun then.
        """
        number = step_of(step)
        with self._alone("save"):
            self._wait()
            self._begin(state, number)

    def _begin(self, state: Any, number: int) -> None:
        gathered = gather(state, number, self._ranks)
        error, parts = None, gathered.parts
        try:
            parts = self._copied(gathered)
        except Exception as found:  # no room, say
            error = found
        target = open_target(self._root, number, self._ranks, error)
        copied = gathered._replace(parts=parts)
        flight = _Flight(target, copied, self._ranks.rank, self._rules)
        try:
            flight.thread.start()
        except BaseException:  # too many threads
            target.give_up()
            raise
        self._flight = flight

    def wait(self) -> Path | None:
        """Where the save in flight has written its checkpoint; None where there was none.

        Raises CheckpointError on every rank where one of them could not write.
        """
        with self._alone("wait"):
            return self._wait()

    def _wait(self) -> Path | None:
        flight = self._flight
        if flight is None:
            return None
        flight.thread.join()
        self._flight = None
        outcome, manifest = flight.outcome, flight.gathered.manifest
        outcome.told = True
        finish(flight.target, manifest, self._ranks, outcome.error, outcome.entry)
        return flight.target.final

    @contextmanager
    def _alone(self, name: str) -> Iterator[None]:
        """Around what one thread of one process does; raises RuntimeError in any other."""
        if os.getpid() != self._process:
            raise RuntimeError(
                f"{name} was called in a fork of process {self._process}, which has built this "
                "AsyncSaver: build one after the fork, with a folder of its own."
            )
        if not self._busy.acquire(blocking=False):
            raise RuntimeError(
                f"{name} was called while another thread is in save or wait of this AsyncSaver: "
                "call both from one thread, or one after the other."
            )
        try:
            yield
        finally:
            self._busy.release()

    def __enter__(self) -> AsyncSaver:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.wait()
        elif self._flight is not None:
            self._flight.thread.join()  # the other ranks may never come to agree
            self._flight.target.let_go()

    def _copied(self, gathered: Gathered) -> list[Tensor]:
        """Copies of this rank's tensors, in the memory of the save before where they fit."""
        regions = gathered.manifest.files[self._ranks.rank].regions
        memory = {}
        for region, tensor in zip(regions, gathered.parts, strict=True):
            key = region, tensor.dtype
            copy = self._memory.get(key)
            if copy is None:
                copy = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")
            memory[key] = copy.copy_(tensor)
        self._memory = memory
        return list(memory.values())


class _Outcome:
    """What came of a save: this rank's entry, or its error, and whether anybody heard of it."""

    entry: Entry | None = None
    error: BaseException | None = None
    told = False


class _Flight:
    """One save under way."""

    def __init__(self, target: Target, gathered: Gathered, rank: int, rules: Rules | None) -> None:
        self.target, self.gathered, self._rank = target, gathered, rank
        self._rules = rules
        self.outcome = _Outcome()
        self.thread = threading.Thread(target=self._write, name=f"saving {target.name}")
        # What nobody asks about before the process ends is said then.
        weakref.finalize(self, _say, self.outcome, target.name)

    def _write(self) -> None:
        try:
            entry = self.outcome.entry = write_mine(self.target, self.gathered, self._rank)
            entries = self._receipts(entry)
            if entries:
                shutil.rmtree(self._taken)
                commit(self.target, with_entries(self.gathered.manifest, entries))
                if self._rules is not None:
                    rotate_beside(self.target.root, self._rules, good=self.target.name)
                self.target.let_go()
        except BaseException as error:
            self.outcome.error = error
            if len(self.gathered.manifest.files) == 1:  # nobody else writes
                self.target.give_up()

    @property
    def _folder(self) -> Path:
        return self.target.root / f"{RECEIPTS}{self.target.name}"

    @property
    def _taken(self) -> Path:
        return self.target.root / f"{RECEIPTS}{self.target.name}.taken"

    def _receipts(self, mine: Entry) -> list[Entry] | None:
        """Every rank's size and hash, once all have left a receipt, for one rank alone."""
        self._folder.mkdir(exist_ok=True)
        # All that a receipt says is in its name, so that it is there as a whole or not at all.
        (self._folder / f"{self._rank}-{mine[0]}-{mine[1]}").touch()
        try:
            found = [name.split("-") for name in os.listdir(self._folder)]
            if len(found) < len(self.gathered.manifest.files):
                return None
            os.rename(self._folder, self._taken)  # which only one can
        except FileNotFoundError:
            return None
        return [(int(nbytes), sha) for _, nbytes, sha in sorted(found, key=lambda f: int(f[0]))]


def _say(outcome: _Outcome, name: str) -> None:
    if outcome.error is not None and not outcome.told:
        print(f"{name} was not saved: {outcome.error}", file=sys.stderr)
