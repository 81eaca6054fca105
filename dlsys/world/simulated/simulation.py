"""The simulated world: every rank in this process, in virtual time, every message on record."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from threading import Lock
from typing import Any, TypeVar

import torch

from dlsys.checks import flag, refuse
from dlsys.hardware import DEVICES, LINKS, Cluster, Device, Link
from dlsys.units import Catalogue
from dlsys.world.arguments import check_program, check_ranks, check_result, check_seed
from dlsys.world.errors import WorldError, last_frame, line_of, rank_error, text_of
from dlsys.world.here import here
from dlsys.world.run import Run
from dlsys.world.simulated.communicator import SimulatedCommunicator
from dlsys.world.simulated.compute import Charge
from dlsys.world.simulated.rank import Rank
from dlsys.world.simulated.state import SimulatedGroup, State
from dlsys.world.timeline import timeline_of

T = TypeVar("T")
_RANK = 2**16  # bytes that a rank takes while it waits: its thread, above all


def simulate(
    program: Callable[..., Any],
    ranks: int | None = None,
    cluster: Cluster | None = None,
    *,
    link: Link | str | None = None,
    device: Device | str | None = None,
    args: Sequence[Any] = (),
    seed: int = 0,
    track_memory: bool = False,
) -> Run:
    """Run `program(comm, *args)` on `ranks` simulated ranks, one at a time, deterministically.

    Virtual time passes as messages cross `cluster` (two levels), or `link` (one link per rank and
    direction), and as torch operations run on the cluster's device, or `device`: each takes
    max(FLOPs / peak, bytes / memory bandwidth). With none of them everything takes 0 s. A link and
    a device may be given by their names in LINKS and DEVICES. `ranks` defaults to the cluster's
    size. Rank r's torch generator starts from `seed + r`. Peak memory is
    counted where there is a device, or with `track_memory`.

    A rank is a thread: it takes some 0.2 ms, and while it waits 64 KiB of memory; more ranks than
    half of the machine's memory holds are refused.

    Raises RankError (also of the original's type) when a rank raises, DeadlockError when no rank
    can move, MismatchError when ranks call different collectives, UnwaitedError when a rank lets go
    of a handle, or writes to a tensor that is being sent.
    """
    ranks = _rank_count(ranks, _one_of("cluster", cluster, Cluster, None))
    link, device = _one_of("link", link, Link, LINKS), _one_of("device", device, Device, DEVICES)
    if cluster is not None and link is not None:
        raise ValueError("cluster and link are both given; give the one that the ranks run on.")
    flag("track_memory", track_memory)
    seed, args = check_seed(seed), check_program(program, args)
    if device is None and cluster is not None:
        device = cluster.device
    state = State(ranks, cluster or link, seed)
    charges = _charges(state, device) if device is not None or track_memory else None
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # a rank is a device: no rank borrows the others' cores
    try:
        with _collector:
            return _run(state, charges, program, args)
    finally:
        torch.set_num_threads(threads)


class _Collector:
    """Looks for garbage more rarely while simulations run, beside and within each other.

    The records of messages are many small objects that stay; to look through them every 700 new
    ones takes as long as the run itself.
    """

    def __init__(self) -> None:
        self.lock, self.running, self.before = Lock(), 0, gc.get_threshold()

    def __enter__(self) -> None:
        with self.lock:
            if not self.running:
                self.before = gc.get_threshold()
                gc.set_threshold(max(10_000, self.before[0]), *self.before[1:])
            self.running += 1

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.running -= 1
            if not self.running:
                gc.set_threshold(*self.before)


_collector = _Collector()


def _rank_count(ranks: int | None, cluster: Cluster | None) -> int:
    if ranks is None:
        if cluster is None:
            raise ValueError("ranks is None, and so is cluster; give ranks=4, say.")
        return cluster.size
    if isinstance(ranks, Cluster):
        refuse("ranks", ranks, "a whole number; pass a Cluster as cluster=...")
    return check_ranks(ranks, _RANK)


def _one_of(name: str, value: Any, kind: type[T], catalogue: Catalogue[T] | None) -> T | None:
    """`value`, or what has that name in the catalogue; raises TypeError for anything else."""
    if catalogue is not None and isinstance(value, str):
        return catalogue[value]
    if value is not None and not isinstance(value, kind):
        names = f", or one's name: {', '.join(catalogue)}" if catalogue else ""
        refuse(name, value, f"a {kind.__name__}{names}", TypeError)
    return value


def _charges(state: State, device: Device | None) -> list[Charge]:
    """What charges each rank for its torch operations, by rank."""
    ranks = state.scheduler.ranks
    return [Charge(rank, device, state.spans, state.quiet, state.hidden) for rank in ranks]


def _run(
    state: State, charges: list[Charge] | None, program: Callable[..., Any], args: Sequence[Any]
) -> Run:
    """Run the program in every rank and gather what the run gives back."""
    scheduler = state.scheduler
    world = SimulatedGroup(state, range(len(scheduler.ranks)), "")

    def body(rank: Rank) -> Any:
        comm = here.comm = SimulatedCommunicator(world, rank, rank.number)
        with nullcontext() if charges is None else charges[rank.number]:
            result = program(comm, *args)
        check_result(rank.number, result)
        return result

    scheduler.run(body)
    if scheduler.failure is not None:
        raise _error(len(scheduler.ranks), *scheduler.failure)
    world.check_nothing_left()
    scheduler.check_all_waited()
    return Run(
        results=[rank.result for rank in scheduler.ranks],
        traffic=state.traffic,
        seconds=max(rank.clock for rank in scheduler.ranks),
        timeline=timeline_of(state.traffic, state.spans),
        peak_memory=None if charges is None else [each.alive.peak for each in charges],
    )


def _error(ranks: int, rank: Rank | None, error: BaseException, others: str) -> BaseException:
    """What a run raises that ended with `error` in `rank`; the world's own errors stay as is."""
    if rank is None or isinstance(error, WorldError):
        return error
    line = line_of(error.__traceback__ and last_frame(error.__traceback__))
    message = (
        f"rank {rank.number} of {ranks} raised {type(error).__name__} at {line}: {text_of(error)}\n"
        f"Meanwhile:\n{others}"
    )
    return rank_error(message, error)
