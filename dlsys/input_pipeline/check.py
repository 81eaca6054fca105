"""The proof that a pipeline feeds its step, whichever of its stages is the slow one."""

from __future__ import annotations

from dlsys.input_pipeline.plan import InputPipeline
from dlsys.input_pipeline.simulation import simulate

_MOST = 2_000  # batches that are followed; workers and places beyond that are alike


def check(pipeline: InputPipeline) -> None:
    """Prove that a pipeline feeds its step; raises ValueError that names stage, batch and worker.

    Each stage in turn is the only one that takes time, for as many batches as fill every place
    twice; the timelines are held to the plan by `Timeline.check`.
    """
    batches = min(2 * sum(stage.ahead for stage in pipeline.stages), _MOST)
    for slow in pipeline.stages:
        seconds = {s.name: [float(s is slow)] * batches for s in pipeline.stages}
        simulate(pipeline, batches, seconds=seconds).check()
