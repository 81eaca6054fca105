"""A loader of threads: bounded, in order, and with the errors of its workers.

Threads share memory and one interpreter: they overlap reading and waiting, and NumPy or torch where
these let go of the interpreter, not Python code. For that there are processes.
"""

from __future__ import annotations

import queue
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dlsys.annotated import checked
from dlsys.checks import count, whole
from dlsys.input_pipeline.plan import InputPipeline, Stage
from dlsys.input_pipeline.timeline import Span, Timeline

Fetch = Callable[[Any, random.Random], Any]
"""fetch(rows, rng) -> a batch: reads and transforms these samples, at random by `rng` alone."""
MOST_WORKERS = 1024


class LoaderError(RuntimeError):
    """A worker has failed; the sentence names it, its batch and what went wrong."""


def batch_random(seed: int, epoch: int, batch: int) -> random.Random:
    """The random numbers of one batch of one epoch: alike whichever worker has it.

    A generator that workers bring along from where they were started is a copy, alike in each.
    """
    return random.Random(f"{seed} epoch {epoch} batch {batch}")


class ThreadLoader:
    """Batches made by threads ahead of the training loop, in order.

    - fetch: see `Fetch`. batches: the samples of each batch.
    - workers, prefetch: worker j makes the batches j, j + workers, ..., of which it has at most
      `prefetch` begun and not yet taken: a place is freed when a batch is *taken*.
    - seed, epoch: the random numbers that `fetch` is given are made of them and the batch's number.

    Each iteration begins anew, and draws what the last one drew unless `epoch` has changed. One
    that is left early, or that raises LoaderError, ends its threads: they finish the batch they
    have in hand. `timeline()` is that of the last one.
    """

    @checked
    def __init__(
        self,
        fetch: Fetch,
        batches: Sequence[Any],
        workers: int = 2,
        prefetch: int = 2,
        seed: int = 0,
        epoch: int = 0,
    ) -> None:
        self.fetch, self.batches, self.seed = fetch, batches, whole("seed", seed)
        self.epoch = count("epoch", epoch, 0)
        self.workers = count("workers", workers, most=MOST_WORKERS)
        self.prefetch = count("prefetch", prefetch)
        self.spans: list[Span] = []

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[Any]:
        stop, self.spans = threading.Event(), []
        lanes = [_Lane(j, self, stop) for j in range(min(self.workers, len(self)))]
        try:
            for lane in lanes:
                lane.thread.start()
            for k in range(len(self)):
                given = lanes[k % len(lanes)].take()
                begin = time.monotonic()
                lanes[k % len(lanes)].places.release()
                yield given
                self.spans.append(Span("step", k, 0, begin, time.monotonic()))
        finally:
            stop.set()
            for lane in lanes:
                lane.places.release()
                lane.thread.join()

    def timeline(self) -> Timeline:
        """Who did what when in the last iteration; raises ValueError where that has not ended."""
        if len(self.spans) < 2 * len(self) or not self.spans:
            raise ValueError("the timeline is that of an iteration that has gone to its end.")
        stages = Stage("load", 0.0, 0.0, self.workers, self.prefetch), Stage("step", 0.0)
        return Timeline(InputPipeline(stages), tuple(self.spans))


class _Lane:
    """One worker with the places of its batches, and what it has made."""

    def __init__(self, number: int, loader: ThreadLoader, stop: threading.Event) -> None:
        self.number, self.loader, self.stop = number, loader, stop
        self.places = threading.Semaphore(loader.prefetch)
        self.made: queue.SimpleQueue[tuple[int, Any, BaseException | None]] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._work, daemon=True)

    def take(self) -> Any:
        """The next batch of this worker; raises LoaderError where it could not be made."""
        batch, made, error = self.made.get()
        if error is not None:
            raise failed(self.number, batch, error) from error
        return made

    def _work(self) -> None:
        loader = self.loader
        for k in range(self.number, len(loader), loader.workers):
            self.places.acquire()
            if self.stop.is_set():
                return
            begin = time.monotonic()
            try:
                rng = batch_random(loader.seed, loader.epoch, k)
                made = loader.fetch(loader.batches[k], rng)
            except BaseException as error:  # sys.exit() as well: somebody waits for this batch
                self.made.put((k, None, error))
                return
            loader.spans.append(Span("load", k, self.number, begin, time.monotonic()))
            self.made.put((k, made, None))


def failed(worker: int, batch: int, error: BaseException | str) -> LoaderError:
    """The error of a worker, in a sentence."""
    what = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
    return LoaderError(f"worker {worker} could not make batch {batch}: {what}")
