"""Tensor parallelism: every layer cut over the ranks of a node, by columns and then by rows."""

from typing import TYPE_CHECKING

from dlsys import lazy

if TYPE_CHECKING:
    from dlsys.tensor_parallel.autograd import (
        copy,
        gather,
        gather_sequence,
        reduce,
        scatter,
        scatter_sequence,
    )
    from dlsys.tensor_parallel.draw import draw_activations, draw_layer, draw_share
    from dlsys.tensor_parallel.explorer import explore
    from dlsys.tensor_parallel.gpt import TensorParallelGPT
    from dlsys.tensor_parallel.laws import communication_over_compute, seconds_in_pieces
    from dlsys.tensor_parallel.linear import ColumnParallelLinear, RowParallelLinear
    from dlsys.tensor_parallel.pieces import all_gather_matmul, matmul_reduce_scatter
    from dlsys.tensor_parallel.plan import Collective, Layout, LayoutError, Parameter, layout
    from dlsys.tensor_parallel.price import (
        Kept,
        Price,
        activation_bytes,
        all_reduce_bytes,
        step_bytes,
    )
    from dlsys.tensor_parallel.vocabulary import (
        VocabParallelEmbedding,
        vocab_parallel_cross_entropy,
    )
    from dlsys.tensor_parallel.weights import full_state, gathered, load

lazy.exports(__name__)
