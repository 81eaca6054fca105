"""Who worked on which batch when, simulated or measured: who waited, and what was held."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise, zip_longest
from typing import NamedTuple

from dlsys.annotated import checked
from dlsys.input_pipeline.plan import InputPipeline


class Span(NamedTuple):
    """Worker `worker` of a stage works on a batch from `start` to `end`, in seconds."""

    stage: str
    batch: int
    worker: int
    start: float
    end: float


class Spent(NamedTuple):
    """A stage's worker-seconds: busy, starved (for input), blocked (no room ahead), done."""

    busy: float
    starved: float
    blocked: float
    done: float


@checked
@dataclass(frozen=True)
class Timeline:
    """What became of the batches of a pipeline: a span for each batch in each stage.

    Raises ValueError where a batch lacks a stage, or passes one twice.
    """

    pipeline: InputPipeline
    spans: tuple[Span, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "spans", tuple(self.spans))
        names = [stage.name for stage in self.pipeline.stages]
        seen = {(span.stage, span.batch) for span in self.spans}
        every = {(name, k) for name in names for k in range(self.batches)}
        if not self.spans or seen != every or len(seen) < len(self.spans):
            raise ValueError(
                f"spans has {len(self.spans)} spans; it must have one for each batch in each of "
                f"{', '.join(names)}."
            )

    @property
    def batches(self) -> int:
        """How many batches there were."""
        return len(self.spans) // len(self.pipeline.stages)

    @property
    def begin(self) -> float:
        """When the first stage began."""
        return min(span.start for span in self.spans)

    @property
    def end(self) -> float:
        """When the last step ended."""
        return max(span.end for span in self.spans)

    @property
    def seconds(self) -> float:
        """From the first stage's begin to the last step's end."""
        return self.end - self.begin

    @property
    def first_batch_seconds(self) -> float:
        """When the first step began, from second 0."""
        return self.of(self.pipeline.stages[-1].name)[0].start

    @property
    def samples_per_second(self) -> float:
        """The rate over the second half of the batches, when the pipeline has filled.

        Counted over whole rounds of all workers, who may hand over their batches at one moment.
        """
        ends = [span.end for span in self.of(self.pipeline.stages[-1].name)]
        round_of_all = math.lcm(*(stage.workers for stage in self.pipeline.stages))
        counted = len(ends) // 2
        counted = counted // round_of_all * round_of_all or counted
        gone = ends[-1] - ends[-1 - counted]
        return counted * self.pipeline.batch / gone if gone else 0.0

    def of(self, stage: str) -> list[Span]:
        """The spans of one stage, in the order of batches."""
        name = self.pipeline.stage(stage).name
        return sorted(s for s in self.spans if s.stage == name)  # of one stage: so by batch

    def spent(self, stage: str) -> Spent:
        """The worker-seconds of a stage; they add up to its workers times `seconds`."""
        at = [each.name for each in self.pipeline.stages].index(self.pipeline.stage(stage).name)
        arrived = [self.begin] * self.batches
        if at:
            arrived = [span.end for span in self.of(self.pipeline.stages[at - 1].name)]
        free = [self.begin] * self.pipeline.stages[at].workers
        busy = starved = blocked = 0.0
        for span in self.of(stage):
            idle = span.start - free[span.worker]
            lacking = min(idle, max(0.0, arrived[span.batch] - free[span.worker]))
            starved, blocked = starved + lacking, blocked + idle - lacking
            busy += span.end - span.start
            free[span.worker] = span.end
        return Spent(busy, starved, blocked, sum(self.end - each for each in free))

    def most_ahead(self, stage: str) -> int:
        """The most batches that were begun in a stage and not yet taken by the next one."""
        at = self.pipeline.stages.index(self.pipeline.stage(stage))
        if at == len(self.pipeline.stages) - 1:
            return 0
        pairs = self._pairs(stage, self.pipeline.stages[at + 1].name)
        return int(max(_held((a.start, b.start, 1.0) for a, b in pairs)))

    @property
    def peak_bytes(self) -> float:
        """The most bytes of batches at one moment.

        A batch of a stage is there from its first second until the next stage is done with it.
        """
        rooms: list[tuple[float, float, float]] = []
        for one, then in pairwise(self.pipeline.stages):
            size = one.sample_bytes * self.pipeline.batch
            rooms += [(a.start, b.end, size) for a, b in self._pairs(one.name, then.name)]
        return max([0.0, *_held(rooms)])

    def _pairs(self, one: str, then: str) -> Iterator[tuple[Span, Span]]:
        """The spans of each batch in two stages."""
        return zip(self.of(one), self.of(then), strict=True)

    def check(self) -> None:
        """Prove that it keeps to the plan; raises ValueError that names stage, batch and worker.

        No batch is begun before the stage in front is done with it, no worker has two at a time or
        takes them out of their order, and none is further ahead than its prefetch allows.
        """
        ready, stages = [self.begin] * self.batches, self.pipeline.stages
        for stage, following in zip_longest(stages, stages[1:]):
            spans, free = self.of(stage.name), [self.begin] * stage.workers
            taken = [span.start for span in self.of(following.name)] if following else []
            for span in spans:
                if not (0 <= span.worker < stage.workers and span.start <= span.end):
                    _refuse(span, "that the stage has not, or backwards in time")
                if span.start < ready[span.batch]:
                    _refuse(span, "before the stage in front was done with it")
                if span.start < free[span.worker]:
                    _refuse(span, "while that worker had another one")
                before = span.batch - stage.ahead
                if taken and before >= 0 and span.start < taken[before]:
                    _refuse(span, f"more than {stage.ahead} batches ahead of the next stage")
                free[span.worker] = span.end
            ready = [span.end for span in spans]


def _refuse(span: Span, why: str) -> None:
    raise ValueError(f"{span.stage} begins batch {span.batch} by worker {span.worker} {why}.")


def _held(rooms: Iterable[tuple[float, float, float]]) -> Iterator[float]:
    """What is held after each moment, of things that take (from, until, how much)."""
    moments = []
    for begin, end, size in rooms:
        moments += [(begin, size), (end, -size)]
    # In order, what goes at a moment, being negative, makes room for what comes at the same one.
    return accumulate(size for _, size in sorted(moments))
