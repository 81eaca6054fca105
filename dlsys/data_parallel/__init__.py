"""Data parallelism: replicas that compute on parts of a batch and average their gradients."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dlsys.data_parallel.noise import BatchTradeoff, NoiseMeter, NoiseScale, noise_scale
from dlsys.data_parallel.plan import Bucket, BucketPlan, buckets
from dlsys.data_parallel.price import (
    Overlap,
    accumulation_steps,
    all_reduce_seconds,
    best_bucket_bytes,
    bucket_tradeoff,
    overlap,
    step_bytes,
)
from dlsys.data_parallel.scaling import (
    Scaling,
    amdahl_speedup,
    constant_fraction_speedup,
    slowest_of,
    straggler_seconds,
    strong_scaling,
    weak_scaling,
)

if TYPE_CHECKING:
    from dlsys.data_parallel.compression import Int8, LowRank, TopK
    from dlsys.data_parallel.draw import (
        draw_batch_tradeoff,
        draw_bucket_tradeoff,
        draw_compression,
        draw_overlap,
        draw_scaling,
        draw_taxes,
    )
    from dlsys.data_parallel.local_sgd import LocalSGD
    from dlsys.data_parallel.run import DataParallel, GradientBucket, Hook, all_reduce

__all__ = [
    "BatchTradeoff",
    "Bucket",
    "BucketPlan",
    "DataParallel",
    "GradientBucket",
    "Hook",
    "Int8",
    "LocalSGD",
    "LowRank",
    "NoiseMeter",
    "NoiseScale",
    "Overlap",
    "Scaling",
    "TopK",
    "accumulation_steps",
    "all_reduce",
    "all_reduce_seconds",
    "amdahl_speedup",
    "best_bucket_bytes",
    "bucket_tradeoff",
    "buckets",
    "constant_fraction_speedup",
    "draw_batch_tradeoff",
    "draw_bucket_tradeoff",
    "draw_compression",
    "draw_overlap",
    "draw_scaling",
    "draw_taxes",
    "noise_scale",
    "overlap",
    "slowest_of",
    "step_bytes",
    "straggler_seconds",
    "strong_scaling",
    "weak_scaling",
]

# What runs imports torch and what draws Matplotlib: loaded where first asked for (PEP 562).
_HOME = {
    "DataParallel": "run",
    "GradientBucket": "run",
    "Hook": "run",
    "Int8": "compression",
    "LocalSGD": "local_sgd",
    "LowRank": "compression",
    "TopK": "compression",
    "all_reduce": "run",
    "draw_batch_tradeoff": "draw",
    "draw_bucket_tradeoff": "draw",
    "draw_compression": "draw",
    "draw_overlap": "draw",
    "draw_scaling": "draw",
    "draw_taxes": "draw",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
