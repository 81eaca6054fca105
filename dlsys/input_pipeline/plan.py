"""An input pipeline as data: stages that batches pass in order, their workers, and how far each may
run ahead.

Batches flow, and every rate is in samples a second: in one unit, so that rates can be compared.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dlsys.annotated import checked
from dlsys.checks import at_least, count, counts, some, unknown
from dlsys.plain_data import plain_data

if TYPE_CHECKING:
    from dlsys.input_pipeline.price import Price

MOST = 10**9
"""Workers, prefetched batches or samples that a plan may have: more would be a slip of the pen."""


@plain_data
@checked
@dataclass(frozen=True)
class Stage:
    """One stage: what a batch takes there, who does it, and how far it may run ahead.

    - name: what it is called.
    - sample_seconds, batch_seconds: one worker takes `batch_seconds + b * sample_seconds` for a
      batch of b samples.
    - workers: how many batches are worked on at a time, by as many workers; worker j has the
      batches j, j + workers, ..., as in torch's DataLoader.
    - prefetch: batches of each worker that it may have begun and the next stage not yet taken
      (`prefetch_factor`), so that `workers * prefetch` are ahead in all.
    - sample_bytes: of a sample as it leaves this stage.
    - variation: standard deviation of a batch's seconds, divided by their mean; 0: always the same.
    """

    name: str
    sample_seconds: float
    batch_seconds: float = 0.0
    workers: int = 1
    prefetch: int = 1
    sample_bytes: float = 0.0
    variation: float = 0.0

    def __post_init__(self) -> None:
        for field in ("sample_seconds", "batch_seconds", "sample_bytes", "variation"):
            at_least(field, getattr(self, field), 0)
        counts(self, "workers", "prefetch", most=MOST)

    @property
    def ahead(self) -> int:
        """Batches that may be begun here and not yet taken by the next stage."""
        return self.workers * self.prefetch

    def seconds(self, batch: int) -> float:
        """What one worker takes for a batch of so many samples, on average."""
        return self.batch_seconds + count("batch", batch, most=MOST) * self.sample_seconds


@plain_data
@checked
@dataclass(frozen=True)
class InputPipeline:
    """Stages in the order in which batches pass them; the last one is the device's step.

    - batch: samples of a batch.
    - shuffle: samples that a shuffle buffer in front of the first stage holds.

    Raises ValueError for no stage, two of one name, or numbers too large to compute with.
    """

    stages: tuple[Stage, ...]
    batch: int = 1
    shuffle: int = 0

    def __post_init__(self) -> None:
        some("stages", self.stages)
        object.__setattr__(self, "stages", tuple(self.stages))
        counts(self, "batch")  # of which `Stage.seconds` says how many are too many
        counts(self, "shuffle", least=0, most=MOST)
        names = [stage.name for stage in self.stages]
        if len(set(names)) < len(names):
            raise ValueError(f"stages are called {', '.join(names)}; each needs a name of its own.")
        at_least("The seconds of stages in all", sum(self.seconds().values()), 0)
        at_least("The bytes of a batch in stages", self.batch * sum(self._sizes()), 0)

    def seconds(self) -> dict[str, float]:
        """What one worker of each stage takes for a batch, by name."""
        return {stage.name: stage.seconds(self.batch) for stage in self.stages}

    def stage(self, name: str) -> Stage:
        """The stage of this name; raises ValueError where there is none."""
        known = {stage.name: stage for stage in self.stages}
        if not isinstance(name, str) or name not in known:
            raise ValueError(unknown("stage of the name", name, known))
        return known[name]

    @checked
    def sped_up(self, name: str, factor: float = math.inf) -> InputPipeline:
        """The same with one stage faster by a factor; by default it takes no time at all.

        Changing one stage at a time, and seeing whether the whole moves, finds the bottleneck.
        """
        stage = self.stage(name)
        if type(factor) is not float or factor != math.inf:
            at_least("factor", factor, 1)
        faster = replace(
            stage,
            sample_seconds=stage.sample_seconds / factor,
            batch_seconds=stage.batch_seconds / factor,
        )
        return replace(self, stages=tuple(faster if s is stage else s for s in self.stages))

    def check(self) -> None:
        """Prove that it feeds its step, whichever stage is the slow one; see `check.check`."""
        from dlsys.input_pipeline.check import check

        check(self)

    def price(self) -> Price:
        """Samples a second, bottleneck, memory and time to the first batch; see `price.price`."""
        from dlsys.input_pipeline.price import price

        return price(self)

    def _sizes(self) -> list[float]:
        return [stage.sample_bytes for stage in self.stages]


@checked
def fused(stages: Sequence[Stage], name: str, workers: int = 1, prefetch: int = 1) -> Stage:
    """One stage whose workers do for a batch what these stages do, one after the other.

    So works a DataLoader, whose worker reads, transforms and collates. With all stages of a
    pipeline in one, nothing overlaps: `num_workers=0`.
    """
    some("stages", stages)
    sample = math.fsum(stage.sample_seconds for stage in stages)
    batch = math.fsum(stage.batch_seconds for stage in stages)
    # Variances of independent parts add up; a part counts by its seconds for one sample.
    spread = math.hypot(*(stage.variation * stage.seconds(1) for stage in stages))
    return Stage(
        name,
        sample,
        batch,
        workers,
        prefetch,
        stages[-1].sample_bytes,
        spread / (sample + batch) if spread else 0.0,
    )
