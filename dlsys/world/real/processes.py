"""The world of real processes: `launch` starts them, hears of what they do, and ends them.

A keeper, forked from a server that has torch loaded, forks them, so that they start in a tenth of a
second, and ends them with all that they have started.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from dlsys.checks import count, flag, positive
from dlsys.world.arguments import check_program, check_ranks, check_seed
from dlsys.world.errors import MismatchError, WorldError, of_each, rank_error
from dlsys.world.real import rank_process
from dlsys.world.real.fork_server import rendezvous
from dlsys.world.real.lines import Lines
from dlsys.world.real.rank_process import Start
from dlsys.world.real.serialization import gathered, packed, source_of
from dlsys.world.real.watch import Watch
from dlsys.world.run import Run

_PROCESS = 10 * 2**20  # bytes that a rank takes beside what all share
_UNSTARTED = "rank {} of {} could not start ({}): take fewer ranks"
_LAUNCHED_AGAIN = (
    "a rank that imports the module of its program comes to this launch, and would launch ranks of "
    'its own without end: put the call under `if __name__ == "__main__":`'
)
_LAUNCHED_WITHIN = (
    "launch was called by a rank of another launch, or by a process that a rank has forked, which "
    "would load torch anew while the other launch's time goes by: split the communicator, "
    "comm.split(color), or launch both from where the other one was launched"
)
_THREADS = 1024  # of a rank; more than a machine has cores
_LONGEST = 1e6  # seconds, twelve days; the system counts in numbers that more would overflow
_QUIET = 1.0  # seconds without news after which a launch looks for a deadlock
_ANSWER = 1.0  # seconds that processes have to tell what they are doing


def launch(
    program: Callable[..., Any],
    ranks: int = 4,
    *,
    args: Sequence[Any] = (),
    timeout: float = 60.0,
    seed: int = 0,
    threads: int = 1,
    check: bool = True,
) -> Run:
    """Run `program(comm, *args)` in `ranks` processes on this machine, connected by gloo.

    Functions and classes of a notebook or a script go along as they are; what is printed appears
    here, and results come back. Rank r starts from `torch.manual_seed(seed + r)` and computes with
    `threads` threads. With `check` every call is compared with the other ranks' (some tens of
    microseconds each): without it a mismatch or a deadlock ends at the time limit or worse.

    A rank takes about 10 MiB of memory and 30 ms of a core to start, and holds a connection to each
    other one; more ranks than half of the machine's memory holds are refused.

    Raises RankError (also of the original's type) when a rank raises, WorldError when one dies,
    MismatchError and DeadlockError as `simulate` does, TimeoutError `timeout` seconds after
    the call, and RuntimeError at once in a rank, which may split its communicator. In every case,
    and when the caller is interrupted or killed, all ranks end with all that they have started
    (outside of Linux: what has not left its process group).
    """
    if rank_process.is_loading:
        raise RuntimeError(_LAUNCHED_AGAIN)
    if rank_process.is_rank:
        raise RuntimeError(_LAUNCHED_WITHIN)
    positive("timeout", timeout)
    timeout = float(min(timeout, _LONGEST))
    deadline = time.monotonic() + timeout
    ranks = check_ranks(ranks, _PROCESS)
    seed, threads = check_seed(seed), count("threads", threads, most=_THREADS)
    flag("check", check)
    work = packed(program, check_program(program, args))
    one = _Launch(ranks, timeout, deadline, check)
    return one.run(work, source_of(program), seed, threads)


class _Launch:
    """The processes of one launch, as their parent sees them."""

    def __init__(self, ranks: int, timeout: float, deadline: float, check: bool) -> None:
        self.ranks, self.timeout, self.deadline = ranks, timeout, deadline
        self.watch = Watch(ranks) if check else None
        self.lines = Lines()
        self.results: dict[int, bytes] = {}
        self.states: dict[int, str] = {}
        self.codes: dict[int, int] = {}  # with which processes ended
        self.started = self.ready = 0

    def run(
        self, work: bytes, source: tuple[str, list[str]] | None, seed: int, threads: int
    ) -> Run:
        store = rendezvous()
        start = Start(
            self.ranks,
            store.port,
            seed,
            threads,
            self.timeout,
            self.watch is not None,
            dict(os.environ),
            os.getcwd(),
            list(sys.path),
            list(sys.argv),
            source,
        )
        try:
            self._start(start, work)
            while len(self.results) < self.ranks:
                self._hear()
            if self.watch is not None:
                self.watch.check_nothing_left()
                self.watch.check_all_waited()
            return gathered(self.results[rank] for rank in range(self.ranks))
        finally:
            self.lines.end()

    def _start(self, start: Start, work: bytes) -> None:
        """Have the ranks forked, as far as the time allows."""
        self.lines.fork_keeper()
        self._until_started()
        self.lines.instruct(start, work)
        for rank in range(self.ranks):
            try:
                self.lines.fork()
            except OSError as error:  # every pipe is an open file, and there may be too many
                raise WorldError(_UNSTARTED.format(rank, self.ranks, error)) from None
            self._until_started()

    def _until_started(self) -> None:
        """Hear of the keeper, then of its ranks one by one, to end as soon as time is up."""
        while self.started <= len(self.lines):
            self._hear()

    def _left(self) -> float:
        """Seconds until the time is up; raises TimeoutError when it is."""
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise self._out_of_time()
        return left

    def _hear(self) -> None:
        """Take in what the processes send next, or notice that nothing comes any more."""
        news = self.lines.next(min(self._left(), _QUIET))
        if news is not None:
            self._take(*news)
        elif self.watch is not None:
            self.watch.stuck()

    def _take(self, rank: int, message: tuple | None) -> None:
        """Act on a message; raises what ends the launch early."""
        if message is None:
            raise self._died(rank)
        what, *details = message
        if what == "event" and self.watch is not None:
            self.watch.take(rank, details[0])
        elif what == "print":
            sys.stdout.write(details[0])
            sys.stdout.flush()  # what a rank printed is to be seen while it runs
        elif what == "state":
            self.states[rank] = details[0]
        elif what == "ready":
            self.ready += 1
            if self.ready == self.ranks:
                self.lines.tell(range(self.ranks), ("go", time.perf_counter()))
        elif what == "result":
            self.results[rank] = details[0]
            self.lines.silent.add(rank)
            if self.watch is not None:
                self.watch.finished.add(rank)
        elif what == "error":
            raise self._failed(rank, *details)
        elif what == "ended":
            self.codes[rank] = details[0]
            if rank not in self.results:
                raise self._died(rank)
        elif what == "started":
            self.started += 1
        elif what == "unstarted":
            raise WorldError(_UNSTARTED.format(rank, self.ranks, details[0]))
        elif what == "unkept":
            raise WorldError("the process that keeps the ranks was ended, and they with it")

    def _failed(self, rank: int, error: bytes, kind: str, text: str, trace: str, lost: bool) -> Any:
        """The exception for a program that raised in `rank`."""
        until = time.monotonic() + _ANSWER
        while lost and time.monotonic() < until:  # gloo lost a peer, and why is the news
            news = self.lines.next(until - time.monotonic())
            if news and not (news[1] and news[1][0] == "error" and news[1][-1]):
                self._take(*news)
        try:
            cause = pickle.loads(error)
        except Exception:  # a class may refuse to be made again
            cause = None
        if not isinstance(cause, BaseException):
            cause = RuntimeError(f"{kind}: {text}")
        if isinstance(cause, WorldError):
            return cause
        message = f"rank {rank} of {self.ranks} raised {kind}: {text}\n{trace}\nMeanwhile:\n"
        return rank_error(message + self._meanwhile(rank), cause)

    def _died(self, rank: int) -> WorldError:
        """The exception for a process that ended before its program did."""
        until = time.monotonic() + _ANSWER
        while news := self.lines.next(0.0 if rank in self.codes else until - time.monotonic()):
            who, message = news
            if message and message[0] == "ended":
                self.codes[who] = message[1]
            elif message and message[0] == "event":
                self._take(*news)  # calls that did not fit together may be why
        code = self.codes.get(rank)
        how = f"exited with code {code}"
        if code is not None and code < 0:
            how = f"was ended by {signal.Signals(-code).name}"
            if -code == signal.SIGKILL:
                how += " (as a system that runs out of memory does, too)"
        return WorldError(
            f"rank {rank} of {self.ranks} {how} before its program returned\n"
            f"Meanwhile:\n{self._meanwhile(rank)}"
        )

    def _out_of_time(self) -> TimeoutError:
        running = self.ranks - len(self.results)
        return TimeoutError(
            f"launch reached its time limit of {self.timeout:g} s while {running} of {self.ranks} "
            "ranks still ran (if that was too early, give a larger timeout=):\n"
            f"{self._meanwhile(None)}"
        )

    def _meanwhile(self, but: int | None) -> str:
        """What every other rank is doing, a line each."""
        asked = set(range(len(self.lines))) - self.lines.silent - {but}
        self.lines.tell(asked, ("state",))
        until = time.monotonic() + _ANSWER
        while asked - self.states.keys() - self.lines.silent and time.monotonic() < until:
            news = self.lines.next(until - time.monotonic())
            if news and news[1] and news[1][0] in ("state", "print", "event"):
                with suppress(MismatchError):
                    self._take(*news)
        return of_each([rank for rank in range(self.ranks) if rank != but], self._doing)

    def _doing(self, rank: int) -> str:
        if rank in self.results:
            return "has finished"
        if rank >= len(self.lines):
            return "has not started"
        waits = self.watch.doing(rank) if self.watch is not None else ""
        return waits or self.states.get(rank, "gives no answer")
