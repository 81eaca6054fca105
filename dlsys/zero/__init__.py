"""ZeRO and FSDP: data parallelism whose ranks each keep a part of what all of them would."""

from typing import TYPE_CHECKING

from dlsys import lazy

if TYPE_CHECKING:
    from dlsys.zero.draw import draw_borrow, draw_gather, draw_held, draw_shards, draw_update
    from dlsys.zero.explorer import explore
    from dlsys.zero.flat import Flat, Piece, flat
    from dlsys.zero.fully_sharded import FullyShardedDataParallel
    from dlsys.zero.laws import (
        Sharding,
        best_degree,
        mixed_bytes,
        sharding,
        tokens_to_hide,
        tokens_to_offload,
    )
    from dlsys.zero.local_shard import LocalShard
    from dlsys.zero.plan import Action, StepPlan, Unit, step_plan
    from dlsys.zero.price import (
        Held,
        Price,
        collective_seconds,
        held,
        overlap,
        price,
        sent,
    )
    from dlsys.zero.sharded_optimizer import ShardedOptimizer

lazy.exports(__name__)
