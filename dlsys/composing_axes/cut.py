"""How a mixture of experts is cut over the tensor axis, in tensor_parallel's words."""

from __future__ import annotations

from collections.abc import Iterator

from dlsys.tensor_parallel import Parameter
from dlsys.transformer import TransformerSpec


def mixture_parameters(spec: TransformerSpec, tp: int, ep: int) -> Iterator[Parameter]:
    """How the parameters of a sparse layer's mixture lie on tp ranks, of those that hold the same.

    An expert is cut by its neurons, as a feed-forward network is; the router, and the bias of what
    is summed over the ranks, are copied.
    """
    if spec.moe is None:
        return
    name = "layers.*.ffn"
    h, width = spec.hidden, spec.moe.ffn_hidden or spec.ffn_hidden
    yield Parameter(f"{name}.router.weight", (spec.moe.experts, h), tp)
    for kind, number in {"experts": spec.moe.experts // ep, "shared": spec.moe.shared}.items():
        for matrix in ("gate", "up", "down") if spec.gated else ("up", "down"):
            rows, columns = (h, width) if matrix == "down" else (width, h)
            cut = {"dimension": 2 if matrix == "down" else 1, "pieces": tp}
            yield Parameter(f"{name}.{kind}.{matrix}.weight", (number, rows, columns), tp, **cut)
            if spec.bias:
                cut = {} if matrix == "down" else cut
                yield Parameter(f"{name}.{kind}.{matrix}.bias", (number, rows), tp, **cut)
