"""One transformer layer as a graph: what each operation reads, makes, saves and costs."""

from __future__ import annotations

from collections.abc import Iterable

from dlsys.annotated import checked
from dlsys.checks import flag, positive, refuse_what
from dlsys.recomputation.graph import Graph, Operation, Value
from dlsys.transformer import TransformerSpec
from dlsys.transformer.activations import activations

ITEM = 2  # bytes of a 16-bit number, in which `activations` counts


@checked
def layer_graph(
    spec: TransformerSpec,
    batch: int,
    rate: float = 1.0,
    bandwidth: float | None = None,
    *,
    dropout: bool = True,
    flash: bool = False,
) -> Graph:
    """One layer of `spec` over `batch` sequences, tensor by tensor, in 16-bit numbers.

    Names and bytes of what backward reads are those of `transformer.activations`, statistics
    included; between them stand the tensors that backward does not read (attention's scores, what
    a linear layer gives a dropout). `attention.norm_input` is the layer's input, always there.

    An operation costs the longer of its arithmetic and its memory traffic, in seconds:

        max(FLOPs / rate, bytes moved / bandwidth)

    with the matrix products of `spec.operations` as FLOPs, in FLOP/s of `rate`, and each of its
    inputs, weights and outputs moved once, as one kernel does, at `bandwidth` in bytes/s. So norms,
    dropouts, softmax and activation functions, which multiply no matrices, are bound by memory.
    None moves bytes for nothing: with the rate of 1 that is there unless said otherwise, costs are
    FLOPs then.

    Raises ValueError for a spec of which `dlsys.model.GPT` has not all parts.
    Source: terms from Korthikanti et al. 2022 (arXiv 2205.05198), section 4; the roofline of
    Williams et al. 2009.
    """
    flag("dropout", dropout)
    flag("flash", flash)
    positive("rate", rate)
    if bandwidth is not None:
        positive("bandwidth", bandwidth)
    if spec.beyond_gpt:
        parts = ", ".join(spec.beyond_gpt)
        refuse_what("spec", f"one with {parts}", "a layer as dlsys.model.GPT has, without these")
    kept = activations(spec, batch, flash=flash, dropout=dropout)
    sizes = {**kept.terms, **kept.statistics}
    rows = spec.sequence * batch
    sizes |= dict.fromkeys(STREAM, ITEM * rows * spec.hidden)
    sizes["attention.scores"] = ITEM * spec.heads * spec.sequence * rows
    flops = spec.operations(batch, 0)
    width, kv_width = spec.heads * spec.head_size, spec.kv_heads * spec.head_size
    share = {"query": width, "key": kv_width, "value": kv_width}
    flops |= {
        part: flops["qkv"] * columns // (width + 2 * kv_width) for part, columns in share.items()
    }
    flops["core"] = flops["scores"] + flops["weighted_sum"]

    def operation(
        name: str, inputs: str, outputs: str, product: str = "", saves: str = ""
    ) -> Operation:
        """One operation; names apart by spaces, those without a size left out of what it makes."""
        made = [Value(each, sizes[each]) for each in outputs.split() if each in sizes]
        moved = sum(sizes[each] for each in inputs.split()) + sum(each.nbytes for each in made)
        work = flops[product] if product else 0
        if product not in WITHOUT_WEIGHTS:
            moved += ITEM * work // (2 * rows)  # a weight takes part in two FLOPs a token
        memory = 0.0 if bandwidth is None else moved / bandwidth
        own = tuple(each for each in saves.split() if each in sizes)
        return Operation(name, tuple(inputs.split()), tuple(made), max(work / rate, memory), own)

    def rows_of(table: Iterable[tuple[str, ...]]) -> tuple[Operation, ...]:
        return tuple(operation(*row) for row in table)

    core = FLASH if flash else attention_core(dropout)
    ffn = GATED if spec.gated else PLAIN
    operations = rows_of((*PROJECTIONS, *core, *joins(dropout, "attention"), *ffn))
    end = rows_of(joins(dropout, "ffn"))
    given = Value("attention.norm_input", sizes["attention.norm_input"])
    return Graph((*operations, *end), (given,), ("layer.output",))


STREAM = (
    "attention.output",
    "attention.dropped",
    "ffn.output",
    "ffn.dropped",
    "layer.output",
)
"""Tensors of the residual stream's size that backward does not read."""
WITHOUT_WEIGHTS = ("", "scores", "weighted_sum", "core")

# (operation, what it reads, what it makes, its product in `spec.operations`, what it saves)
PROJECTIONS = (
    (
        "attention.norm",
        "attention.norm_input",
        "attention.input attention.norm_statistics",
        "",
        "attention.norm_input attention.norm_statistics",
    ),
    *(
        (f"attention.{each}", "attention.input", f"attention.{each}", each, "attention.input")
        for each in ("query", "key", "value")
    ),
)
FLASH = (
    (
        "attention.core",
        "attention.query attention.key attention.value",
        "attention.output_input attention.log_sum_exp",
        "core",
        "attention.query attention.key attention.value attention.output_input "
        "attention.log_sum_exp",
    ),
)
PLAIN = (
    ("ffn.up", "ffn.input", "ffn.activation_input", "ffn_up", "ffn.input"),
    ("ffn.gelu", "ffn.activation_input", "ffn.down_input", "", "ffn.activation_input"),
)
GATED = (
    ("ffn.gate", "ffn.input", "ffn.activation_input", "ffn_gate", "ffn.input"),
    ("ffn.silu", "ffn.activation_input", "ffn.activation_output", "", "ffn.activation_input"),
    ("ffn.up", "ffn.input", "ffn.up_output", "ffn_up", "ffn.input"),
    (
        "ffn.product",
        "ffn.activation_output ffn.up_output",
        "ffn.down_input",
        "",
        "ffn.activation_output ffn.up_output",
    ),
)


def attention_core(dropout: bool) -> tuple[tuple[str, ...], ...]:
    """Attention itself, as operations one by one; softmax saves its result, dropout its mask."""
    weights = "attention.probabilities" + ("_dropped" if dropout else "")
    mask = "attention.probabilities_mask"
    dropping = ("attention.core_dropout", "attention.probabilities", f"{weights} {mask}", "", mask)
    summed = f"{weights} attention.value"
    pair, scores = "attention.query attention.key", "attention.scores"
    return (
        (scores, pair, scores, "scores", pair),
        ("attention.softmax", scores, "attention.probabilities", "", "attention.probabilities"),
        *((dropping,) if dropout else ()),
        ("attention.weighted_sum", summed, "attention.output_input", "weighted_sum", summed),
    )


def joins(dropout: bool, half: str) -> tuple[tuple[str, ...], ...]:
    """How half a layer ends: its last matrix, dropout, the sum with the stream, the next norm."""
    attention = half == "attention"
    last, matrix = ("output", "output") if attention else ("down", "ffn_down")
    stream, sum_ = f"{half}.norm_input", "ffn.norm_input" if attention else "layer.output"
    out, dropped, mask = f"{half}.output", f"{half}.dropped", f"{half}.dropout_mask"
    dropping = (f"{half}.dropout", out, f"{dropped} {mask}", "", mask)
    norm = (
        "ffn.norm",
        "ffn.norm_input",
        "ffn.input ffn.norm_statistics",
        "",
        "ffn.norm_input ffn.norm_statistics",
    )
    return (
        (f"{half}.{last}", f"{half}.{last}_input", out, matrix, f"{half}.{last}_input"),
        *((dropping,) if dropout else ()),
        (f"{half}.sum", f"{stream} {dropped if dropout else out}", sum_),
        *((norm,) if attention else ()),
    )
