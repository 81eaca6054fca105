"""The world of real processes: `launch` starts them, hears of what they do, and ends them.

The processes are forked from a server that has torch loaded, so that they start in a tenth of a
second. One pipe to each carries everything: the program there, results, errors and prints back, and
the end of either side tells the other that it is alone.
"""

from __future__ import annotations

import linecache
import os
import pickle
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from multiprocessing import connection
from typing import Any

import cloudpickle

from dlsys.checks import count
from dlsys.world.errors import MismatchError, WorldError, check_program, rank_error
from dlsys.world.real.fork_server import fork_server, meeting_point
from dlsys.world.real.rank_process import Start, main
from dlsys.world.real.watch import Watch
from dlsys.world.run import Run
from dlsys.world.span import Span
from dlsys.world.timeline import timeline_of
from dlsys.world.traffic import Traffic

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
    """Run `program(comm, *args)` in `ranks` processes on this machine that talk through gloo.

    Functions and classes of a notebook or a script go along as they are; what is printed appears
    here, and results come back. Rank r starts from `torch.manual_seed(seed + r)` and computes with
    `threads` threads. With `check` every call is compared with the other ranks' (some tens of
    microseconds each): without it a mismatch or a deadlock ends at the time limit or worse.

    Raises RankError (also of the original's type) when a rank raises, WorldError when one dies,
    MismatchError and DeadlockError as `simulate` does, TimeoutError after `timeout` seconds. In
    every case, and when the caller is interrupted or killed, all processes end.
    """
    ranks = count("ranks", ranks)
    check_program("launch", program, args)
    if not timeout > 0:
        raise ValueError(f"launch got timeout={timeout!r}; it takes seconds above 0")
    work = cloudpickle.dumps((program, tuple(args)))
    return _Launch(ranks, timeout, check).run(work, _source(program), seed, threads)


class _Launch:
    """The processes of one launch, as their parent sees them."""

    def __init__(self, ranks: int, timeout: float, check: bool) -> None:
        self.ranks, self.timeout = ranks, timeout
        self.deadline = time.monotonic() + timeout
        self.watch = Watch(ranks) if check else None
        self.processes: list[Any] = []
        self.pipes: list[Any] = []
        self.results: dict[int, tuple] = {}
        self.states: dict[int, str] = {}
        self.silent: set[int] = set()
        self.inbox: deque[tuple[int, tuple | None]] = deque()
        self.ready = 0

    def run(
        self, work: bytes, source: tuple[str, list[str]] | None, seed: int, threads: int
    ) -> Run:
        store = meeting_point()
        try:
            with fork_server(main) as context:
                for rank in range(self.ranks):
                    here, there = context.Pipe()
                    self.pipes.append(here)
                    start = Start(
                        rank,
                        self.ranks,
                        store.port,
                        seed,
                        threads,
                        self.timeout,
                        self.watch is not None,
                        dict(os.environ),
                        source,
                    )
                    process = context.Process(target=main, args=(there, start), name=f"rank {rank}")
                    process.start()
                    there.close()
                    self.processes.append(process)
            for pipe in self.pipes:
                with suppress(OSError):  # a process that has died is noticed below
                    pipe.send_bytes(work)
            while len(self.results) < self.ranks:
                self._hear()
            if self.watch is not None:
                self.watch.check_nothing_left()
                self.watch.check_all_waited()
            self._tell(range(self.ranks), ("exit",))
            return self._outcome()
        finally:
            self._end()

    def _hear(self) -> None:
        """Take in what the processes send next, or notice that nothing comes any more."""
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise self._out_of_time()
        news = self._next(min(left, _QUIET))
        if news is not None:
            self._take(*news)
        elif self.watch is not None:
            self.watch.stuck()

    def _next(self, seconds: float) -> tuple[int, tuple | None] | None:
        """The next message of a rank, waiting at most `seconds` for one; the message is None where
        the rank has closed its end."""
        if not self.inbox:
            deaf = self.results.keys() | self.silent
            pipes: dict[Any, int] = {
                pipe: rank for rank, pipe in enumerate(self.pipes) if rank not in deaf
            }
            ready: list[Any] = connection.wait(list(pipes), max(0.0, seconds)) if pipes else []
            for pipe in ready:
                try:
                    self.inbox.append((pipes[pipe], pickle.loads(pipe.recv_bytes())))
                except (EOFError, ConnectionError):
                    self.silent.add(pipes[pipe])
                    self.inbox.append((pipes[pipe], None))
        return self.inbox.popleft() if self.inbox else None

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
                self._tell(range(self.ranks), ("go", time.perf_counter()))
        elif what == "result":
            self.results[rank] = tuple(details)
            if self.watch is not None:
                self.watch.finished.add(rank)
        elif what == "error":
            raise self._failed(rank, *details)

    def _failed(self, rank: int, error: bytes, kind: str, text: str, trace: str, lost: bool) -> Any:
        """The exception for a program that raised in `rank`."""
        until = time.monotonic() + _ANSWER
        while lost and time.monotonic() < until:  # gloo lost a peer, and why is the news
            news = self._next(until - time.monotonic())
            if news and not (news[1] and news[1][0] == "error" and news[1][-1]):
                self._take(*news)
        try:
            cause = pickle.loads(error)
        except Exception:  # a class may refuse to be made again
            cause = RuntimeError(f"{kind}: {text}")
        if isinstance(cause, WorldError | KeyboardInterrupt):
            return cause
        message = f"rank {rank} of {self.ranks} raised {kind}: {text}\n{trace}\nMeanwhile:\n"
        return rank_error(message + self._meanwhile(rank), cause)

    def _died(self, rank: int) -> WorldError:
        """The exception for a process that ended before its program did."""
        while news := self._next(0.0):  # calls that did not fit together may be why
            if news[1] and news[1][0] == "event":
                self._take(*news)
        process = self.processes[rank]
        process.join(_ANSWER)
        code = process.exitcode
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
        asked = set(range(self.ranks)) - self.results.keys() - self.silent - {but}
        self._tell(asked, ("state",))
        until = time.monotonic() + _ANSWER
        while asked - self.states.keys() - self.silent and time.monotonic() < until:
            news = self._next(until - time.monotonic())
            if news and news[1] and news[1][0] in ("state", "print", "event"):
                with suppress(MismatchError):
                    self._take(*news)
        lines = []
        for rank in range(self.ranks):
            if rank in self.results:
                doing = "has finished"
            else:
                waits = self.watch.doing(rank) if self.watch is not None else ""
                doing = waits or self.states.get(rank, "gives no answer")
            if rank != but:
                lines.append(f"  rank {rank} {doing}")
        return "\n".join(lines)

    def _tell(self, ranks: Iterable[int], message: tuple) -> None:
        for rank in ranks:
            with suppress(OSError):  # one that has died is noticed when its end is read
                self.pipes[rank].send(message)

    def _outcome(self) -> Run:
        """Put the ranks' parts of the run together."""
        parts = [pickle.loads(self.results[rank][0]) for rank in range(self.ranks)]
        traffic = Traffic(self.ranks)
        spans: list[Span] = []
        for _, messages, calls, waits, _ in parts:
            traffic.messages += messages
            traffic.calls += calls
            spans += waits
        traffic.messages.sort(key=lambda m: (m.start, m.end))
        traffic.calls.sort(key=lambda c: (c.start, c.end))
        return Run(
            results=[pickle.loads(part[0]) for part in parts],
            traffic=traffic,
            seconds=max(part[-1] for part in parts),
            timeline=timeline_of(traffic, spans),
        )

    def _end(self) -> None:
        """End every process that this launch started."""
        for pipe in self.pipes:
            pipe.close()  # those that wait for a word exit by themselves
        for process in self.processes:
            if len(self.results) < self.ranks:
                process.kill()
            process.join(_ANSWER)
            if process.is_alive():
                process.kill()
                process.join()
            process.close()


def _source(program: Callable[..., Any]) -> tuple[str, list[str]] | None:
    """The text of a notebook's cell, which no file holds, for the processes' tracebacks."""
    code = getattr(program, "__code__", None)
    if code is None or os.path.exists(code.co_filename):
        return None
    return code.co_filename, linecache.getlines(code.co_filename)
