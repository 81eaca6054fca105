"""Operations as data: FLOPs, bytes read and written, and bytes sent to other devices.

FLOPs are those of the arithmetic that defines an operation, a multiply and an add being two; an
exponential, a root or a division counts as one. Bytes are those of an implementation that reads
each operand once and writes each result once, which a single good kernel comes near.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from dlsys.annotated import checked
from dlsys.checks import count, counts, refuse, some
from dlsys.plain_data import plain_data
from dlsys.transformer import TransformerSpec

if TYPE_CHECKING:
    from dlsys.roofline.price import Placed

NORM_FLOPS = 8
"""An element of a layer norm: sum, difference, square, sum, difference, scale, weight, bias."""
SOFTMAX_FLOPS = 5
"""An element of a softmax: maximum, difference, exponential, sum, division."""
GELU_FLOPS = 5
"""An element of a GELU: x / sqrt 2, erf, + 1, times x, times 1/2."""


@checked
@plain_data
@dataclass(frozen=True)
class Operation:
    """What is computed once: `flops`, bytes `read` from memory and `written` to it, bytes `sent`.

    `product` says whether the FLOPs are those of a matrix product, for which devices have units of
    their own. Raises ValueError for counts below 0, and for FLOPs on no bytes at all.
    """

    name: str
    flops: int
    read: int
    written: int
    sent: int = 0
    product: bool = False

    def __post_init__(self) -> None:
        counts(self, "flops", "read", "written", "sent", least=0)
        if self.flops and not self.nbytes:
            refuse("flops", self.flops, f"0 where {self.name} reads and writes nothing")

    @property
    def nbytes(self) -> int:
        """Bytes that go through the device's memory."""
        return self.read + self.written

    @property
    def intensity(self) -> float:
        """FLOPs for each byte through memory; 0 where nothing is computed."""
        return self.flops / self.nbytes if self.nbytes else 0.0

    @property
    def network_intensity(self) -> float | None:
        """FLOPs for each byte sent; None where nothing is sent."""
        return self.flops / self.sent if self.sent else None

    def price(self, *args: Any, **options: Any) -> Placed:
        """Its place under a device's roofs; see `price.place`."""
        from dlsys.roofline.price import place

        return place(self, *args, **options)


@checked
def together(operations: Sequence[Operation], name: str = "together") -> Operation:
    """Several operations as one: the sums of all that they count."""
    some("operations", operations)
    flops, read = sum(o.flops for o in operations), sum(o.read for o in operations)
    written, sent = sum(o.written for o in operations), sum(o.sent for o in operations)
    return Operation(name, flops, read, written, sent, any(o.product for o in operations))


@checked
def matmul(
    m: int, k: int, n: int, batch: int = 1, itemsize: int = 2, bias: bool = False, name: str = ""
) -> Operation:
    """`batch` products of (m, k) and (k, n): 2 m k n FLOPs on mk + kn + mn elements each.

    Its intensity at two bytes is 1 / (1/m + 1/k + 1/n). A bias is n elements more to read.
    """
    m, k, n, b = count("m", m), count("k", k), count("n", n), count("batch", batch)
    size = count("itemsize", itemsize)
    read = size * (b * (m * k + k * n) + n * bool(bias))
    return Operation(name or "matmul", 2 * b * m * k * n, read, size * b * m * n, product=True)


@checked
def scores(sequence: int, head_size: int, heads: int = 1, itemsize: int = 2) -> Operation:
    """Q K^T of `heads` heads: (s, d) by (d, s) each; intensity s d / (2 d + s) at two bytes."""
    s, d = count("sequence", sequence), count("head_size", head_size)
    return matmul(s, d, s, count("heads", heads), itemsize, name="scores")


@checked
def elementwise(
    elements: int,
    flops_each: int = 1,
    inputs: int = 1,
    outputs: int = 1,
    itemsize: int = 2,
    name: str = "elementwise",
) -> Operation:
    """`flops_each` FLOPs on each element of `inputs` tensors, which make `outputs` of this size."""
    size = count("elements", elements) * count("itemsize", itemsize)
    flops = elements * count("flops_each", flops_each, least=0)
    return Operation(name, flops, size * count("inputs", inputs), size * count("outputs", outputs))


@checked
def layer_norm(tokens: int, hidden: int, itemsize: int = 2) -> Operation:
    """A layer norm of (tokens, hidden), with weight and bias; 8 FLOPs an element.

    Writes mean and 1 / deviation of each token, too, in at least 32 bits, as training keeps them.
    """
    n, h, size = count("tokens", tokens), count("hidden", hidden), count("itemsize", itemsize)
    written = size * n * h + 2 * n * max(4, size)
    return Operation("layer norm", NORM_FLOPS * n * h, size * (n * h + 2 * h), written)


@checked
def softmax(rows: int, columns: int, itemsize: int = 2) -> Operation:
    """A softmax over `columns` numbers in each of `rows` rows; 5 FLOPs an element."""
    elements = count("rows", rows) * count("columns", columns)
    return elementwise(elements, SOFTMAX_FLOPS, itemsize=itemsize, name="softmax")


@checked
def embedding(tokens: int, hidden: int, itemsize: int = 2, index_size: int = 8) -> Operation:
    """Rows of a table by their number: reads each token's number and its row, not the table."""
    n, row = count("tokens", tokens), count("hidden", hidden) * count("itemsize", itemsize)
    return Operation("embedding", 0, n * (count("index_size", index_size) + row), n * row)


@checked
def all_reduce(elements: int, n: int, itemsize: int = 2) -> Operation:
    """The sum of n devices' tensors on each: 2 (n-1)/n of its bytes are sent, by the busiest rank.

    What it reads, writes and adds on the way is left out. Chunks are whole elements, hence rounded
    up. Source: Patarasuk and Yuan 2009 (ring all-reduce).
    """
    n, size = count("n", n), count("itemsize", itemsize)
    sent = -(-2 * (n - 1) * count("elements", elements) // n)
    return Operation("all-reduce", 0, 0, 0, sent=size * sent)


@checked
def convolution(
    batch: int,
    channels: int,
    side: int,
    filters: int,
    kernel: int,
    stride: int = 1,
    padding: int = 0,
    groups: int = 1,
    itemsize: int = 2,
) -> Operation:
    """A convolution of square images and kernels: 2 k^2 c / groups FLOPs for each output.

    An output is floor((side + 2 padding - k) / stride) + 1 wide. Raises ValueError where the kernel
    does not fit, or groups do not divide the channels and the filters.
    """
    wide = output_side(side, kernel, stride, padding)
    c, f, g = count("channels", channels), count("filters", filters), count("groups", groups)
    if c % g or f % g:
        raise ValueError(f"groups is {g}; it must divide {c} channels and {f} filters.")
    b, size = count("batch", batch), count("itemsize", itemsize)
    weights, out = f * c // g * kernel**2, b * f * wide**2
    read = size * (b * c * side**2 + weights)
    flops = 2 * out * c // g * kernel**2
    return Operation("convolution", flops, read, size * out, product=True)


def output_side(side: int, kernel: int, stride: int = 1, padding: int = 0) -> int:
    """floor((side + 2 padding - kernel) / stride) + 1; ValueError where the kernel does not fit."""
    room = count("side", side) + 2 * count("padding", padding, least=0)
    if count("kernel", kernel) > room:
        refuse("kernel", kernel, f"at most {room}, the side with its padding")
    return (room - kernel) // count("stride", stride) + 1


@checked
def layer_operations(
    spec: TransformerSpec,
    batch: int,
    tokens: int | None = None,
    context: int | None = None,
    itemsize: int = 2,
) -> tuple[Operation, ...]:
    """The forward pass of one dense layer, operation by operation, nothing fused.

    - tokens: new ones of each sequence (prefill: all, decode: 1); None: the spec's sequence.
    - context: keys and values that each of them meets, at least `tokens`; None: as many.

    Queries that share a key-value head are one product, so its keys are read once for all of them.
    Biases are left out. Raises ValueError for a mixture of experts, latent attention
    or norms of queries and keys.
    """
    if spec.moe or spec.latent or spec.query_key_norm:
        refuse("spec", spec.name or spec, "a dense transformer with ordinary attention")
    b = count("batch", batch)
    s = spec.sequence if tokens is None else count("tokens", tokens)
    met = s if context is None else count("context", context, least=s)
    n, h, f, d = b * s, spec.hidden, spec.ffn_hidden, spec.head_size
    group, wide, qkv = spec.heads // spec.kv_heads, spec.heads * d, spec.attention_matrices()[0]
    linear = partial(matmul, itemsize=itemsize)
    heads = partial(matmul, batch=b * spec.kv_heads, itemsize=itemsize)
    norm = layer_norm(n, h, itemsize)
    added = elementwise(n * h, 1, 2, 1, itemsize, "residual")
    acted = elementwise(n * f, GELU_FLOPS, 1 + spec.gated, 1, itemsize, "activation")
    return (
        norm,
        linear(n, h, qkv.columns, name="qkv"),
        heads(group * s, d, met, name="scores"),
        softmax(b * spec.heads * s, met, itemsize),
        heads(group * s, met, d, name="weighted sum"),
        linear(n, wide, h, name="output"),
        added,
        norm,
        *[linear(n, h, f, name=name) for name in ("up", "gate")[: 1 + spec.gated]],
        acted,
        linear(n, f, h, name="down"),
        added,
    )
