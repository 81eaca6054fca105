"""A loader of processes: each worker an interpreter of its own, as in torch's DataLoader."""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, Literal

from dlsys.annotated import checked
from dlsys.checks import count, whole
from dlsys.input_pipeline.threads import MOST_WORKERS, Fetch, LoaderError, batch_random, failed

Start = Literal["forkserver", "spawn", "fork"]


class ProcessLoader:
    """Batches made by processes ahead of the training loop, in order.

    As `ThreadLoader`, but `fetch` is sent to the processes (by cloudpickle, so that functions of a
    notebook go along), and batches come back pickled, through a pipe. What `fetch` refers to is
    a copy in each worker: none sees what another one changes.

    - start: how processes begin. "fork" takes milliseconds and copies the parent as it is, threads'
      locks included, which nobody will ever open; the others begin anew, and import a script
      again: it needs its `if __name__ == "__main__":`.

    A process that dies is a LoaderError, with its exit code. However an iteration ends, its
    processes have ended with it.
    """

    @checked
    def __init__(
        self,
        fetch: Fetch,
        batches: Sequence[Any],
        workers: int = 2,
        prefetch: int = 2,
        seed: int = 0,
        start: Start = "forkserver",
        epoch: int = 0,
    ) -> None:
        self.fetch, self.batches, self.seed = fetch, batches, whole("seed", seed)
        self.epoch = count("epoch", epoch, 0)
        self.workers = count("workers", workers, most=MOST_WORKERS)
        self.prefetch, self.start = count("prefetch", prefetch), start
        self.most_asked = 0

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[Any]:
        import cloudpickle

        work = cloudpickle.dumps((self.fetch, list(self.batches), self.seed, self.epoch))
        context = multiprocessing.get_context(self.start)
        lanes: list[_Lane] = []
        self.most_asked = 0
        try:
            lanes += (_Lane(j, context, work) for j in range(min(self.workers, len(self))))
            asked = min(self.prefetch * len(lanes), len(self))
            for k in range(asked):
                lanes[k % len(lanes)].ask(k)
            for k in range(len(self)):
                self.most_asked = max(self.most_asked, asked - k)
                given = lanes[k % len(lanes)].take(k)
                if asked < len(self):
                    lanes[asked % len(lanes)].ask(asked)
                    asked += 1
                yield given
        finally:
            for lane in lanes:
                lane.end()


class _Lane:
    """One process, and the pipe to it."""

    def __init__(self, number: int, context: Any, work: bytes) -> None:
        self.number = number
        self.line, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, work), daemon=True)
        self.process.start()
        theirs.close()

    def ask(self, batch: int) -> None:
        """A number is so short that the pipe always has room for it."""
        with suppress(BrokenPipeError):  # it has died, which `take` tells
            self.line.send(batch)

    def take(self, batch: int) -> Any:
        try:
            made, error = self.line.recv()
        except (EOFError, ConnectionError):
            self.process.join()
            why = f"its process ended with exit code {self.process.exitcode}"
            raise failed(self.number, batch, why) from None
        if error is not None:
            what, where = error
            raise failed(self.number, batch, what) from LoaderError(where)
        return made

    def end(self) -> None:
        with suppress(BrokenPipeError):
            self.line.send(None)
        self.line.close()  # so that what it still sends fails
        self.process.join(1)
        if self.process.is_alive():  # busy with a batch
            self.process.kill()
            self.process.join()


def _serve(line: Connection, work: bytes) -> None:
    """What a worker does: make the batches whose numbers come, until None does."""
    import cloudpickle

    with suppress(EOFError, ConnectionError, KeyboardInterrupt):
        fetch, batches, seed, epoch = cloudpickle.loads(work)
        while (batch := line.recv()) is not None:
            try:
                line.send((fetch(batches[batch], batch_random(seed, epoch, batch)), None))
            except ConnectionError:
                raise
            except Exception as error:  # of fetch, or a batch that cannot be sent
                what = f"{type(error).__name__}: {error}"
                line.send((None, (what, traceback.format_exc())))
