"""ZeRO and FSDP: data parallelism whose ranks each keep a part of what all of them would."""

from typing import TYPE_CHECKING

from dlsys import lazy

if TYPE_CHECKING:
    from dlsys.zero.draw import draw_held, draw_shards
    from dlsys.zero.explorer import explore
    from dlsys.zero.flat import Flat, Piece, flat
    from dlsys.zero.fsdp.fully_sharded import FullyShardedDataParallel
    from dlsys.zero.local_shard import LocalShard
    from dlsys.zero.optimizer.resident import Resident
    from dlsys.zero.optimizer.sharded_optimizer import ShardedOptimizer
    from dlsys.zero.plan import KINDS, Action, StepPlan, Unit, step_plan
    from dlsys.zero.price import (
        Held,
        Price,
        collective_seconds,
        held,
        overlap,
        price,
        sent,
    )
    from dlsys.zero.scaling import (
        Sharding,
        best_degree,
        mixed_bytes,
        sharding,
        tokens_to_hide,
        tokens_to_offload,
    )

lazy.exports(__name__)
