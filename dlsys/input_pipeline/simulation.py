"""A pipeline, event by event: when each stage begins and ends each batch, in virtual seconds."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

from dlsys.annotated import checked
from dlsys.checks import at_least, count, whole
from dlsys.input_pipeline.plan import InputPipeline, Stage
from dlsys.input_pipeline.price import fill_seconds
from dlsys.input_pipeline.timeline import Span, Timeline

MOST_SPANS = 2_000_000


@checked
def simulate(
    pipeline: InputPipeline,
    batches: int = 32,
    seed: int = 0,
    seconds: Mapping[str, Sequence[float]] | None = None,
) -> Timeline:
    """Run `batches` batches through a pipeline.

    Stage i begins batch k when the last of these has happened: stage i-1 has ended k; its worker
    k mod w has ended k - w; stage i+1 has begun k - w * prefetch. (The recurrence of a queueing
    network with bounded queues, in max and plus.)

    - seed: of the seconds of stages that have a `variation`, which are gamma-distributed.
    - seconds: by name, those of each batch in a stage instead: measured ones, say.

    Raises ValueError for more than two million spans, or seconds of another number of batches.
    """
    number = count("batches", batches, most=MOST_SPANS // len(pipeline.stages))
    given, seed = dict(seconds or {}), whole("seed", seed)
    takes = [
        _seconds(s, pipeline.batch, number, seed, given.pop(s.name, None)) for s in pipeline.stages
    ]
    for name in given:
        pipeline.stage(name)  # which says what names there are
    starts: list[list[float]] = [[] for _ in pipeline.stages]
    ends: list[list[float]] = [[] for _ in pipeline.stages]
    fill = fill_seconds(pipeline)
    for k in range(number):
        for i, stage in enumerate(pipeline.stages):
            start = ends[i - 1][k] if i else fill
            if k >= stage.workers:
                start = max(start, ends[i][k - stage.workers])
            if k >= stage.ahead and i + 1 < len(starts):
                start = max(start, starts[i + 1][k - stage.ahead])
            starts[i].append(start)
            ends[i].append(start + takes[i][k])
    spans = (
        Span(stage.name, k, k % stage.workers, starts[i][k], ends[i][k])
        for i, stage in enumerate(pipeline.stages)
        for k in range(number)
    )
    return Timeline(pipeline, tuple(spans))


def _seconds(
    stage: Stage, batch: int, batches: int, seed: int, given: Sequence[float] | None
) -> Sequence[float]:
    """What each batch takes in a stage."""
    if given is not None:
        for each in given:
            at_least(f"seconds of {stage.name}", each, 0)
        if len(given) != batches:
            raise ValueError(
                f"seconds of {stage.name} are those of {len(given)} batches; there are {batches}."
            )
        return given
    draw = _drawing(stage, stage.seconds(batch), random.Random(f"{seed} {stage.name}"))
    return [draw() for _ in range(batches)]


def _drawing(stage: Stage, mean: float, rng: random.Random) -> Callable[[], float]:
    # With a shape of 1 / variation^2 a gamma distribution has this variation; 1 is the exponential.
    shape = 1 / stage.variation**2 if stage.variation > 1e-6 else 0.0
    return lambda: rng.gammavariate(shape, mean / shape) if shape and mean else mean
