"""Context parallelism: the ranks share the tokens of each sequence, and attention sees them all."""

from typing import TYPE_CHECKING

from dlsys import lazy

if TYPE_CHECKING:
    from dlsys.context_parallel.animate import animate_ring
    from dlsys.context_parallel.attention import attend, attend_backward, merge
    from dlsys.context_parallel.draw import (
        draw_hidden,
        draw_lanes,
        draw_memory,
        draw_rounds,
        draw_scores,
        draw_swap,
    )
    from dlsys.context_parallel.explorer import explore
    from dlsys.context_parallel.gathered import gathered_attention
    from dlsys.context_parallel.gpt import ContextParallel
    from dlsys.context_parallel.laws import ranks_for_ulysses, tokens_to_hide
    from dlsys.context_parallel.plan import Layout, LayoutError, layout
    from dlsys.context_parallel.price import Price, price
    from dlsys.context_parallel.ring import ring_attention
    from dlsys.context_parallel.ulysses import ulysses_attention

lazy.exports(__name__)
