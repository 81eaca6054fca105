"""Data parallelism: replicas that compute on parts of a batch and average their gradients."""

from typing import TYPE_CHECKING

from dlsys import lazy

if TYPE_CHECKING:
    from dlsys.data_parallel.compression import Int8, PowerSGD, TopK
    from dlsys.data_parallel.ddp import DataParallel, GradientBucket, Hook, all_reduce
    from dlsys.data_parallel.draw import (
        draw_bucket_tradeoff,
        draw_compression,
        draw_overlap,
        draw_scaling,
    )
    from dlsys.data_parallel.explorer import explore
    from dlsys.data_parallel.hooks import NoiseMeter
    from dlsys.data_parallel.laws import (
        Scaling,
        amdahl_speedup,
        strong_scaling,
        weak_scaling,
    )
    from dlsys.data_parallel.local_sgd import LocalSGD
    from dlsys.data_parallel.noise import BatchTradeoff, NoiseScale, noise_scale
    from dlsys.data_parallel.plan import Bucket, BucketPlan, buckets
    from dlsys.data_parallel.price import (
        accumulation_steps,
        all_reduce_seconds,
        bucket_tradeoff,
        overlap,
        step_bytes,
    )

lazy.exports(__name__)
