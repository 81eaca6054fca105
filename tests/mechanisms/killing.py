"""Runs whose ranks are killed by SIGKILL, at seeded moments, and begun again until one ends.

A moment is a number of calls into C that a rank still makes (`sys.setprofile` counts them), in a
step or in a save, where only calls that touch the disk count: so it may lie between any two writes.
Or the rank tells its parent that it is its turn, trains on, and is killed from outside whenever that
comes about. When one rank dies the launch ends the others, in the middle of whatever they do.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any, NamedTuple

from dlsys import world
from dlsys.resilience import AsyncSaver, CheckpointError, rotate, save, verify
from dlsys.resilience.verifying import sorted_names
from dlsys.world import Communicator
from tests.mechanisms.trained import trainer

ON_DISK = {"open", "write", "fsync", "rename", "mkdir", "close", "unlink", "rmdir", "scandir"}
MOST_STEPS = 7
MOST_CALLS = {"step": 3000, "save": 60, "outside": 1}


class Death(NamedTuple):
    """Who is killed, in which step or save of this life, and after how many calls."""

    ranks: tuple[int, ...]
    where: str  # "step", "save" or "outside"
    after: int  # steps or saves of this life
    calls: int


class Job(NamedTuple):
    """What is trained, and how it is saved."""

    ranks: int = 2
    steps: int = 24
    every: int = 3
    beside: bool = False


def drawn(random: Random, job: Job) -> Death:
    """A death at a random moment."""
    ranks = tuple(range(job.ranks)) if random.random() < 0.3 else (random.randrange(job.ranks),)
    where = random.choice(["step", "save", "save", "outside"])
    after = random.randrange(2) if where == "save" else random.randrange(MOST_STEPS)
    return Death(ranks, where, after, 1 + random.randrange(MOST_CALLS[where]))


# -- in a rank -----------------------------------------------------------------------------------


def kill_myself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    signal.pause()


def arm(calls: int, counts: Callable[[Any], bool]) -> None:
    """Be killed at a call, the n-th of those that count, in whichever thread it comes."""
    left = calls

    def look(frame: FrameType, event: str, called: Any) -> None:
        nonlocal left
        # Half of the moments are before a call, half after it.
        if event == ("c_call" if calls % 2 else "c_return") and counts(called):
            left -= 1
            if left == 0:
                kill_myself()

    threading.setprofile(look)
    sys.setprofile(look)


def touches_disk(called: Any) -> bool:
    return getattr(called, "__name__", "") in ON_DISK


def life(comm: Communicator, root: Path, job: Job, death: Death | None) -> tuple[int, Any]:
    """From the last checkpoint on to the end, or to a death before it; the step it began from."""
    run, mine = trainer(comm), death is not None and comm.rank in death.ranks
    with warnings.catch_warnings(action="ignore"):  # of what is skipped, which is counted below
        found = run.resume(root / "saved")
    if comm.rank == 0:
        skipped = len(found.skipped) if found else 0
        (root / "life").write_text(f"{run.step} {skipped}")
    comm.barrier()  # nobody dies before that is written
    with AsyncSaver(root / "saved", comm, keep=3) as saver:
        keep = saver.save if job.beside else saved_at_once(root / "saved", comm)
        steps, saves, told = 0, 0, False
        while run.step < job.steps:
            if mine and (death.where, death.after) == ("outside", steps):
                tell(root)
                told = True
            if mine and (death.where, death.after) == ("step", steps):
                arm(death.calls, lambda called: True)
            run.advance()
            steps += 1
            if run.step % job.every == 0:
                if mine and (death.where, death.after) == ("save", saves):
                    arm(death.calls, touches_disk)
                keep(run.state(), run.step)
                saves += 1
        if death is not None:  # whose moment has not come
            if mine and death.where != "outside":
                kill_myself()
            if mine and not told:
                tell(root)
            signal.pause()
    return run.state()


def saved_at_once(folder: Path, comm: Communicator) -> Callable[[Any, int], None]:
    def keep(state: Any, step: int) -> None:
        save(state, folder, step, comm)
        if comm.rank == 0:
            rotate(folder, keep=3)
        comm.barrier()

    return keep


def tell(root: Path) -> None:
    """Say who is to be killed."""
    with (root / "turns").open("w") as pipe:
        print(os.getpid(), file=pipe)


# -- in the parent -------------------------------------------------------------------------------


@dataclass
class Told:
    """What came of a campaign: deaths by where they were planned, and what they left."""

    kills: Counter[str] = field(default_factory=Counter)
    cut_short: int = 0  # saves of which a temporary folder was left
    damaged: int = 0  # good checkpoints that were then torn by hand
    skipped: int = 0  # checkpoints that a life refused as it began
    torn_by_kills: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    state: list[Any] = field(default_factory=list)


class Killer:
    """Kills, from outside, the ranks that say so."""

    def __init__(self, root: Path, victims: int) -> None:
        self.pipe, self.victims = root / "turns", victims
        os.mkfifo(self.pipe)
        # Open for both, so that neither side waits for the other to open it.
        self.fd = os.open(self.pipe, os.O_RDWR)
        self.thread = threading.Thread(target=self._listen)
        self.thread.start()

    def _listen(self) -> None:
        found = []
        with os.fdopen(os.dup(self.fd)) as lines:
            while len(found) < self.victims:
                number = lines.readline().strip()
                if number == "end":
                    break
                # By a handle of the process, for its number may be another's soon.
                with suppress(ProcessLookupError):
                    found.append(os.pidfd_open(int(number)))
        for each in found:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(each, signal.SIGKILL)
            os.close(each)

    def end(self) -> None:
        os.write(self.fd, b"end\n")
        self.thread.join()
        os.close(self.fd)
        self.pipe.unlink()


def never_killed(root: Path, job: Job) -> list[Any]:
    """The state of each rank at the end of the run that nobody interrupts, and that saves nothing."""

    def program(comm: Communicator) -> Any:
        run = trainer(comm)
        run.train(job.steps)
        return run.state()

    return world.launch(program, job.ranks).results


def campaign(root: Path, job: Job, kills: int, random: Random, damage: float = 0.0) -> Told:
    """Begin `job` again and again, killed `kills` times, until it ends.

    damage: how likely the newest good checkpoint is torn after a death, where there is another one.
    """
    told, torn, begins, newer = Told(), set[str](), 0, 0
    seen = set[tuple[str, int]]()  # a folder that is half done stays until the next save begins
    (root / "saved").mkdir()
    import_module("torch._dynamo")  # then the server that lives are forked from has it, too
    while True:
        death = drawn(random, job) if told.kills.total() < kills else None
        end_life(root, job, death, told)
        began, skipped = map(int, (root / "life").read_text().split())
        told.skipped += skipped
        if (began, skipped) != (begins, newer):
            told.unexpected.append(f"a life began at {began}, and {skipped} were skipped")
        if death is None:
            return told
        names = checkpoints(root)
        good = [name for name in names if is_good(root, name)]
        halves = half_done(root)
        told.cut_short += not halves <= seen
        seen = halves
        told.torn_by_kills += sorted(set(names) - set(good) - torn)
        if len(good) > 1 and random.random() < damage:
            tear(root / "saved" / good[0], random)
            torn.add(good.pop(0))
            told.damaged += 1
        begins = step_of(good[0]) if good else 0
        newer = checkpoints(root).index(good[0]) if good else 0


def end_life(root: Path, job: Job, death: Death | None, told: Told) -> None:
    """Launch a life, and note how it ended."""
    killer = Killer(root, len(death.ranks) if death and death.where == "outside" else 1)
    try:
        told.state = world.launch(life, job.ranks, args=(root, job, death), check=False).results
    except world.WorldError as error:
        if death is None or "SIGKILL" not in str(error):
            raise
        told.kills[death.where] += 1
    else:
        assert death is None, f"nobody was killed by {death}"
    finally:
        killer.end()


def half_done(root: Path) -> set[tuple[str, int]]:
    """The folders of saves that were cut short, and when."""
    return {(each.name, each.stat().st_ctime_ns) for each in (root / "saved").glob(".saving-*")}


def checkpoints(root: Path) -> list[str]:
    """The names of checkpoints, the newest first."""
    return sorted_names(root / "saved")


def step_of(name: str) -> int:
    return int(name.removeprefix("step-").partition(".")[0])


def is_good(root: Path, name: str) -> bool:
    try:
        verify(root / "saved" / name)
    except CheckpointError:
        return False
    return True


def tear(checkpoint: Path, random: Random) -> None:
    """Damage a file of a checkpoint, as disks and people do."""
    file = random.choice(sorted(checkpoint.iterdir()))
    data = bytearray(file.read_bytes())
    how = random.choice(["missing", "short", "empty", "flipped", "foreign"])
    if how == "missing":
        file.unlink()
    elif how == "foreign":
        (checkpoint / "notes.txt").write_text("of somebody else")
    else:
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
        short = {"short": random.randrange(len(data)), "empty": 0, "flipped": len(data)}
        file.write_bytes(data[: short[how]])
