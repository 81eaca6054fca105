"""Laws of input pipelines: workers, depth, buffers, caches, and bytes a second behind tokens."""

from __future__ import annotations

import math

from dlsys.annotated import checked
from dlsys.checks import at_least, count, flag, fraction, positive


@checked
def workers_needed(load_seconds: float, step_seconds: float, margin: float = 1.0) -> int:
    """The least w with `w >= margin * load_seconds / step_seconds`.

    load_seconds: what one worker takes for a batch; step_seconds: what the device takes for it.
    Little's law: batches that arrive every step and stay so long are so many at a time.
    """
    at_least("load_seconds", load_seconds, 0)
    positive("step_seconds", step_seconds)
    at_least("margin", margin, 1)
    ratio = margin * load_seconds / step_seconds
    at_least("load_seconds / step_seconds", ratio, 0)
    return max(1, math.ceil(ratio * (1 - 1e-12)))  # 0.3 / 0.1 is 3, not a hair more


@checked
def depth_needed(latency_seconds: float, step_seconds: float) -> int:
    """Batches to have ahead so that a stage of this latency hides behind the steps.

    Little's law, `latency_seconds / step_seconds`, rounded up: what is on the way is rate x time.
    """
    at_least("latency_seconds", latency_seconds, 0)
    return workers_needed(latency_seconds, step_seconds)


@checked
def prefetch_needed(variation: float, margin: float) -> int:
    """Batches a worker should have ahead if its times vary: `4 variation^2 / (margin - 1)`, 2 at
    the least.

    margin: workers / the least that would do if nothing varied, above 1. A worker with a margin is
    late by about variation^2 / (2 (margin - 1)) of its batches (Kingman, "The single server queue
    in heavy traffic", 1961), and this is room for eight times that.

    A rule found by simulation: a step that never varies works 95 % of the time or more behind up to
    16 workers' worth of load, variations up to 1 and margins from 1.25 to 2.
    """
    at_least("variation", variation, 0)
    at_least("margin", margin, 1)
    positive("margin - 1", margin - 1)
    needed = 4 * variation * variation / (margin - 1)
    at_least("The batches ahead", needed, 0)
    return max(2, math.ceil(needed * (1 - 1e-12)))


@checked
def exponential_utilization(ratio: float, ahead: int) -> float:
    """Utilization of a step behind one worker that may be `ahead` batches ahead.

    Both take exponentially distributed times (variation 1), `ratio` = the worker's mean / the
    step's. What is ready or in the step is a queue M/M/1 with room for ahead + 1, which is empty
    for `(1 - r) / (1 - r**(ahead + 2))` of the time, r = 1 / ratio: the rest is utilization. For
    ratio 1 that is `(ahead + 1) / (ahead + 2)`.
    """
    positive("ratio", ratio)
    places = count("ahead", ahead) + 1
    # Sums of powers at most 1, which neither overflow nor lose their digits near ratio 1.
    small = min(ratio, 1 / ratio)
    if small == 1:
        return places / (places + 1)
    power = math.exp(places * math.log(small))
    top, bottom = 1 - power, 1 - power * small
    return top / bottom / max(1.0, ratio)


@checked
def storage_bandwidth(samples_per_second: float, sample_bytes: float) -> float:
    """Bytes a second that storage has to deliver; a sample may be a token, an image, a clip."""
    at_least("samples_per_second", samples_per_second, 0)
    at_least("sample_bytes", sample_bytes, 0)
    at_least("The bytes a second", samples_per_second * sample_bytes, 0)
    return samples_per_second * sample_bytes


def mean_displacement(buffer: int) -> float:
    """How far a shuffle buffer moves a sample from its place, on average: about 2/e x `buffer`.

    A sample stays for a number G of draws with P(G = g) = (1 - 1/B)^(g-1) / B, and moves by G - B;
    the mean of |G - B| is 2 (B-1) (1 - 1/B)^(B-1). A permutation of n moves n / 3.
    """
    size = count("buffer", buffer)
    return 2 * (size - 1) * math.exp((size - 1) * math.log1p(-1 / size)) if size > 1 else 0.0


def run_mates(run: int, buffer: int, batch: int) -> float:
    """How many others of its run a sample meets in its batch behind a shuffle buffer, on average.

    run: R samples that lie together (of one file, say). Places of two samples of a batch differ by
    d with the density exp(-|d|/B) / 2B, so they are of one run with probability
    1 - (1 - exp(-x)) / x for x = (R-1)/B, about R/2B: a buffer of B mixes as a permutation of 2B.
    (For buffers well above a batch, the places of which are taken to be one, and some 2B samples
    after the first: a buffer that has just been filled mixes as a permutation of B.)
    """
    x = (count("run", run) - 1) / count("buffer", buffer)
    others = count("batch", batch) - 1
    # Where the exact form would be a difference of numbers nearly alike, its first term.
    return others * (x / 2 if x < 1e-7 else 1 + math.expm1(-x) / x)


@checked
def buffer_needed(run: int, batch: int, mates: float = 1.0) -> int:
    """The shuffle buffer behind which a sample meets `mates` others of its run in its batch.

    By the law of `run_mates` for long buffers: B = (b - 1) (R - 1) / (2 mates).
    """
    positive("mates", mates)
    pairs = (count("batch", batch) - 1) * (count("run", run) - 1)
    at_least("batch x run / mates", pairs / mates, 0)
    return max(1, math.ceil(pairs / (2 * mates)))


@checked
def lru_hits(share: float) -> float:
    """Hits of a cache that drops what was used least recently, each epoch in another random order.

    share: c, the part of the data that it holds. A sample at place u of one epoch and v of the next
    is a hit if fewer than c others came in between: u (1 - v) > 1 - c, so c + (1 - c) ln(1 - c).
    A cache that never drops what it has hits c; in one fixed order an LRU cache hits nothing.
    """
    fraction("share", share)
    return share + (1 - share) * math.log1p(-share) if share < 1 else 1.0


@checked
def epoch_seconds(
    data_bytes: float, memory_bytes: float, bytes_per_second: float, lru: bool = True
) -> float:
    """What storage takes for a later epoch over `data_bytes`, when `memory_bytes` can be cached.

    lru: an operating system's page cache (about; `lru_hits`); otherwise one that keeps what it has.
    Nothing where all fits: 10 GB are read once, 10 TB in every epoch again.
    """
    positive("data_bytes", data_bytes)
    at_least("memory_bytes", memory_bytes, 0)
    positive("bytes_per_second", bytes_per_second)
    flag("lru", lru)
    share = min(1.0, memory_bytes / data_bytes)
    seconds = data_bytes * (1 - (lru_hits(share) if lru else share)) / bytes_per_second
    at_least("data_bytes / bytes_per_second", seconds, 0)
    return seconds
