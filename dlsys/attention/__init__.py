"""IO-aware attention: exact attention whose table of scores never reaches slow memory."""

from typing import TYPE_CHECKING

from dlsys import lazy

if TYPE_CHECKING:
    from dlsys.attention.check import check_fits
    from dlsys.attention.draw import draw_curves
    from dlsys.attention.explorer import explore
    from dlsys.attention.function import FlashAttention, flash_attention, naive_attention
    from dlsys.attention.laws import (
        backward_law,
        best_tiling,
        compulsory,
        crossover_limit,
        crossover_memory,
        crossover_tile,
        forward_law,
        naive_pays,
        overtaking_length,
        rows_to_bind,
    )
    from dlsys.attention.measuring import peak_bytes, saved_bytes
    from dlsys.attention.memory import FastMemory, FastMemoryFullError, tiled_matmul
    from dlsys.attention.online import (
        Summary,
        log_sum_exp,
        merge,
        online_attention,
        summarize,
        weighted_mean,
    )
    from dlsys.attention.plain_price import (
        matmul_cost,
        naive_backward_cost,
        naive_forward_cost,
        naive_saved_bytes,
    )
    from dlsys.attention.plan import Schedule, Step, Tiling, tiling
    from dlsys.attention.price import (
        Cost,
        Kernel,
        backward_cost,
        backward_resident,
        forward_cost,
        forward_resident,
        tiled_saved_bytes,
    )

lazy.exports(__name__)
