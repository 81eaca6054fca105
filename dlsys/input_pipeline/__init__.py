"""Keeping the device fed: input pipelines planned, priced, simulated and run; orders, formats."""

from typing import TYPE_CHECKING

from dlsys import lazy

if TYPE_CHECKING:
    from dlsys.input_pipeline.bpe import Tokenizer, train_tokenizer
    from dlsys.input_pipeline.dealing import dealt, dealt_evenly
    from dlsys.input_pipeline.draw import draw_depth, draw_timeline
    from dlsys.input_pipeline.explorer import explore
    from dlsys.input_pipeline.laws import (
        buffer_needed,
        depth_needed,
        epoch_seconds,
        exponential_utilization,
        lru_hits,
        mean_displacement,
        prefetch_needed,
        run_mates,
        storage_bandwidth,
        workers_needed,
    )
    from dlsys.input_pipeline.ordering import ResumableOrder
    from dlsys.input_pipeline.packing import pack, pad, padding_share
    from dlsys.input_pipeline.plan import InputPipeline, Stage, fused
    from dlsys.input_pipeline.price import Price, speedups
    from dlsys.input_pipeline.processes import ProcessLoader
    from dlsys.input_pipeline.records import RecordError, Records, read_records, write_records
    from dlsys.input_pipeline.shuffling import (
        ShuffleBuffer,
        displacements,
        permutation,
        seeks,
        shard_order,
    )
    from dlsys.input_pipeline.simulation import simulate
    from dlsys.input_pipeline.tars import read_shard, write_shards
    from dlsys.input_pipeline.threads import LoaderError, ThreadLoader
    from dlsys.input_pipeline.timeline import Span, Spent, Timeline
    from dlsys.input_pipeline.tokens import TokenFile, write_tokens

lazy.exports(__name__)
