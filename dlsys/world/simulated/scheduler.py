"""One rank at a time: threads that pass a baton, in order of virtual time.

Every rank is a thread, because torch keeps gradient modes, dispatch modes and the autograd engine's
state per thread. Exactly one holds the baton. A rank that must wait runs the event queue until some
rank can go on and hands the baton to it, so the order of everything is the order of virtual time
and every run is the same.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch

from dlsys.network import EventQueue
from dlsys.world.errors import DeadlockError, WorldError, line_at, line_of, spot
from dlsys.world.matching import never_waited
from dlsys.world.simulated.ending import Aborted, end
from dlsys.world.simulated.rank import Pending, Rank, states

_FIRST = -1  # at one instant ranks go on before messages start, so that all have posted theirs
_RUN_OVER = (
    "this communicator or handle belongs to a run that has ended: every run passes its program a "
    "communicator of its own, and what was begun in a run is waited for there"
)
_NOT_YOURS = (
    "comm is the communicator of rank {0}, and rank {1} calls it; it must be rank {1}'s own, which "
    "its program is called with, and so must what it waits for"
)
_NO_THREAD = (
    "rank {} of {} could not start: every rank that waits holds a thread, and the system gives "
    "this process no more of them. Take fewer ranks"
)


class Scheduler:
    """Runs one body per rank to the end, or to the first error."""

    def __init__(self, ranks: int, seed: int) -> None:
        self.queue = EventQueue()
        self.ranks = [Rank(number) for number in range(ranks)]
        self._seed = seed
        self._generator = torch.default_generator
        self._runnable: Rank | None = None
        self._finished = threading.Lock()
        self._finished.acquire()
        self._running = ranks
        self._aborted = False
        self.failure: tuple[Rank | None, BaseException, str] | None = None

    def run(self, body: Callable[[Rank], Any]) -> None:
        """Run `body(rank)` in every rank; raises what ended the run early, None if nothing did."""
        self._body = body
        random = self._generator.get_state()
        for rank in self.ranks:
            self.queue.push(0.0, _FIRST, self._resume, rank)
        try:
            first = self._next()
            assert first is not None
            self._let(first)
            # An interrupt between the last look for one and the wait would be seen after the wait.
            while not self._finished.acquire(timeout=1):
                pass
        except KeyboardInterrupt as interrupt:
            interrupt.add_note(self._at_work())
            raise
        finally:
            self._aborted = True
            end(self.ranks)
            self._generator.set_state(random)

    @staticmethod
    def hand_out(pending: Pending, frame: FrameType) -> None:
        """Note that the program got a handle, from a call that leads to `frame`."""
        pending.begun = spot(frame)
        pending.owner.unwaited[pending] = None

    def check_all_waited(self) -> None:
        """Complain about a handle that a rank let go of."""
        for rank in self.ranks:
            for pending in rank.unwaited:
                raise never_waited(rank.number, pending.call(), line_at(pending.begun))

    def wait(self, pending: Pending) -> float:
        """Block the calling rank until `pending` is done; returns the seconds its clock jumped."""
        me = pending.owner
        me.unwaited.pop(pending, None)
        if pending.done_at is None:
            me.waiting = pending
            self._pass_on(me)
            me.waiting = None
        done_at = pending.done_at
        assert done_at is not None
        jump = done_at - me.clock
        if jump <= 0:
            return 0.0
        me.clock = done_at
        return jump

    def complete(self, pending: Pending, time: float) -> None:
        """Say that `pending` is done at `time`, and wake its rank if that is what it waits for."""
        pending.done_at = time
        if pending.owner.waiting is pending:
            self.queue.push(time, _FIRST, self._resume, pending.owner)

    def check_alive(self, owner: Rank | None = None) -> None:
        """Stop a rank that goes on after the run has ended, and refuse other callers.

        Raises RuntimeError for a caller that kept a communicator or a handle for after its run, and
        ValueError for one that is not `owner`, whose communicator or handle it is.
        """
        if self._aborted:
            thread = threading.current_thread()
            if any(rank.thread is thread for rank in self.ranks):
                raise Aborted
            raise RuntimeError(_RUN_OVER)
        me = self._runnable
        if owner is not None and me is not None and owner is not me:
            raise ValueError(_NOT_YOURS.format(owner.number, me.number))

    def _let(self, rank: Rank) -> None:
        """Hand the baton to `rank`; its first turn begins its thread.

        So ranks that never wait end while others begin, and their threads do not pile up.
        """
        if rank.thread is not None:
            rank.baton.release()
            return
        name = f"rank {rank.number}"
        rank.thread = threading.Thread(target=self._main, args=(rank,), name=name, daemon=True)
        try:
            rank.thread.start()
        except RuntimeError:
            rank.thread = None
            self._fail(WorldError(_NO_THREAD.format(rank.number, len(self.ranks))))

    def _at_work(self) -> str:
        """Which rank has the baton, and where its program is."""
        rank = self._runnable
        if rank is None or rank.thread is None:
            return "No rank was at work"
        return f"rank {rank.number} of {len(self.ranks)} was at work at {line_of(rank.frame())}"

    def _main(self, rank: Rank) -> None:
        if self._aborted:
            return
        self._generator.manual_seed(self._seed + rank.number)
        try:
            rank.result = self._body(rank)
            rank.ended = True
            self._running -= 1
            successor = self._next()
        except Aborted:
            return
        except BaseException as error:
            if not self._aborted:
                self.failure = (rank, error, "")
                try:
                    self.failure = (rank, error, states(self.ranks, but=rank))
                finally:
                    self._finished.release()
            return
        if successor is not None:
            self._let(successor)
        elif not self._aborted:
            if self._running:
                self._deadlock()
            else:
                self._finished.release()

    def _pass_on(self, me: Rank) -> None:
        """Run events until a rank can go on, and let it; returns when `me` is that rank."""
        successor = self._next()
        if successor is me:
            return
        me.random = self._generator.get_state()
        if successor is None:
            self._deadlock()
        else:
            self._let(successor)
        me.baton.acquire()
        self.check_alive()
        self._generator.set_state(me.random)

    def _next(self) -> Rank | None:
        """The rank to go on, None where none ever can: a discrete-event simulation's loop, which
        stops as soon as an event wakes a rank."""
        self._runnable = None
        while self._runnable is None:
            if not self.queue.step():
                return None
        return self._runnable

    def _resume(self, time: float, rank: Rank) -> None:
        self._runnable = rank

    def _deadlock(self) -> None:
        waiting = f"{self._running} of {len(self.ranks)} ranks wait and none can move"
        error = DeadlockError(f"Deadlock: {waiting}")
        try:
            error = DeadlockError(f"Deadlock: {waiting}:\n{states(self.ranks)}")
        finally:
            self._fail(error)

    def _fail(self, error: WorldError) -> None:
        """End the run with an error of no rank in particular."""
        self.failure = (None, error, "")
        self._finished.release()
