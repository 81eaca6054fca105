"""What a pipeline delivers in the long run, and what it holds, in closed form."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from dlsys.annotated import checked
from dlsys.checks import at_least, refuse
from dlsys.input_pipeline.plan import InputPipeline


@dataclass(frozen=True)
class Price:
    """What a pipeline delivers and holds.

    - rates: samples a second that each stage could do alone, by name.
    - bottleneck: the name of the slowest. Its rate is `samples_per_second`.
    - utilization: the share of the time in which the last stage, the device, works.
    - first_batch_seconds: from the start until the first step begins.
    - batches_ahead: batches that may be begun and not yet in the step, all stages together.
    - memory_bytes: the most that batches on the way, in the step, and the shuffle buffer hold.
    """

    rates: dict[str, float]
    bottleneck: str
    samples_per_second: float
    utilization: float
    first_batch_seconds: float
    batches_ahead: int
    memory_bytes: float


def price(pipeline: InputPipeline) -> Price:
    """The price of a pipeline whose stages take what they take on average, without variation.

    Rate: the least `min(workers, ahead) * b / seconds` of a stage; here ahead >= workers.
    (In the recurrence of `simulate` no circle of waiting takes longer for a batch than one stage's
    own: a circle over several stages is a mean of theirs.) With variation this is an upper bound.

    Memory: stage i's batches, at most `ahead` and those in the hands of the next stage's workers.

    Raises ValueError where no stage takes any time.
    """
    stages, taken = pipeline.stages, pipeline.seconds()
    if not any(taken.values()):
        refuse("The seconds of all stages", 0, "above zero for one of them")
    slowest = max(stages, key=lambda stage: taken[stage.name] / stage.workers)
    rate = slowest.workers * pipeline.batch / taken[slowest.name]
    at_least("The samples a second", rate, 0)
    rates = {
        stage.name: stage.workers * pipeline.batch / taken[stage.name]
        for stage in stages
        if taken[stage.name]
    }
    last = stages[-1]
    held = [(one.ahead + then.workers) * one.sample_bytes for one, then in pairwise(stages)]
    return Price(
        rates,
        slowest.name,
        rate,
        rate * taken[last.name] / (pipeline.batch * last.workers),
        fill_seconds(pipeline) + sum(taken[stage.name] for stage in stages[:-1]),
        sum(stage.ahead for stage in stages[:-1]),
        pipeline.batch * sum(held) + pipeline.shuffle * stages[0].sample_bytes,
    )


def fill_seconds(pipeline: InputPipeline) -> float:
    """What it takes to fill the shuffle buffer before the first batch can be drawn from it."""
    first = pipeline.stages[0]
    return pipeline.shuffle * first.sample_seconds / first.workers


@checked
def speedups(pipeline: InputPipeline, factor: float = 2.0) -> dict[str, float]:
    """By which factor the whole gets faster if one stage alone gets `factor` times faster.

    One for each stage by name: only the bottleneck's is above 1, and less than `factor` where
    another stage becomes the bottleneck.
    """
    now = price(pipeline).samples_per_second
    at_least("factor", factor, 1)
    return {
        stage.name: price(pipeline.sped_up(stage.name, factor)).samples_per_second / now
        for stage in pipeline.stages
    }
