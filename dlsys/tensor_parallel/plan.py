"""How a GPT is cut over ranks: which weights, in which dimension, and with which collectives."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from dlsys.annotated import checked
from dlsys.checks import UnknownNameError, count, counts, unknown
from dlsys.plain_data import plain_data
from dlsys.transformer import TransformerSpec
from dlsys.transformer.activations import check_cut

if TYPE_CHECKING:
    from dlsys.hardware import Cluster, Link
    from dlsys.tensor_parallel.price import Price

BRANCHES = {"attention": (("query", "key", "value"), "output"), "ffn": (("gate", "up"), "down")}
"""The matrices that read a branch's input, and the one that writes what it adds to the stream."""
FP32 = 4


class LayoutError(ValueError):
    """A layout under which the ranks together would not compute what one device computes."""


@checked
@plain_data
@dataclass(frozen=True)
class Parameter:
    """How one parameter of `dlsys.model.GPT` lies on `ranks` ranks; `*` stands for every layer.

    `shape` is that of the whole. It is cut in `dimension` (None: nowhere) into `pieces`; piece i of
    a length n is [i*n//pieces, (i+1)*n//pieces). Rank r holds piece r*pieces//ranks: with fewer
    pieces than ranks, neighbours hold the same one. `summed`: over so many neighbours must the
    gradients that ranks find be summed to give the parameter's (1: each finds it whole).
    """

    name: str
    shape: tuple[int, ...]
    ranks: int
    dimension: int | None = None
    pieces: int = 1
    summed: int = 1

    def __post_init__(self) -> None:
        counts(self, "ranks", "pieces", "summed")
        shape = [count(f"shape[{i}]", size, least=0) for i, size in enumerate(self.shape)]
        object.__setattr__(self, "shape", tuple(shape))
        if self.dimension is not None:
            count("dimension", self.dimension, 0, len(shape) - 1)

    def bounds(self, rank: int) -> tuple[int, int]:
        """First and stop of what `rank` holds in `dimension`; (0, 1) where nothing is cut."""
        if count("rank", rank, 0) >= self.ranks:
            raise ValueError(f"There is no rank {rank}: ranks are 0 to {self.ranks - 1}.")
        length = 1 if self.dimension is None else self.shape[self.dimension]
        piece = rank * self.pieces // self.ranks
        return piece * length // self.pieces, (piece + 1) * length // self.pieces

    def shard(self, rank: int) -> tuple[int, ...]:
        """The shape of what `rank` holds."""
        first, stop = self.bounds(rank)
        held = enumerate(self.shape)
        return tuple(stop - first if i == self.dimension else size for i, size in held)

    @property
    def cut(self) -> str:
        """Where it is cut, in words."""
        if self.dimension is None or self.pieces == 1:
            return "a copy on every rank"
        copies = self.ranks // self.pieces
        words = f"cut in dimension {self.dimension} into {self.pieces} pieces"
        return words if copies == 1 else f"{words}, each on {copies} ranks"


@plain_data
class Collective(NamedTuple):
    """One call that every rank makes. `shape` is that of the full buffer, in words.

    `where`: "<part>.input" or "<part>.output" of "embedding", "attention", "ffn" or "head";
    "<part>.input again", where backward repeats a gather of forward; "loss"; or "gradients", those
    of a part's copied parameters. `elements` are those of one sequence, or of all where the batch
    does not matter (`batched` False). Numbers are as wide as the activations, and at least
    `least_itemsize` bytes. `ranks` None means all; otherwise it is a call among so many neighbours.
    """

    kind: str
    where: str
    shape: str
    elements: int
    least_itemsize: int = 1
    batched: bool = True
    ranks: int | None = None

    def itemsize(self, activations: int = 2) -> int:
        """Bytes of one number, where one of the activations has so many."""
        return max(count("activations", activations), self.least_itemsize)

    def nbytes(self, batch: int, itemsize: int = 2) -> int:
        """Bytes of the full buffer for `batch` sequences, with activations of `itemsize` bytes."""
        batch, itemsize = count("batch", batch), count("itemsize", itemsize)
        return (batch if self.batched else 1) * self.elements * self.itemsize(itemsize)


@plain_data
class Communication(NamedTuple):
    """The collectives of one part of the model, each pass in its order."""

    forward: tuple[Collective, ...]
    backward: tuple[Collective, ...]


@plain_data
@dataclass(frozen=True)
class Layout:
    """A GPT on `tp` ranks: its parameters, each once, and the collectives of its parts.

    `head` contains the last norm and the loss. `spec.sequence` tokens a sample; without the seeds
    of dropout's masks, 8 bytes each.
    """

    spec: TransformerSpec
    tp: int
    sequence_parallel: bool
    parameters: tuple[Parameter, ...] = field(repr=False)
    embedding: Communication = field(repr=False)
    layer: Communication = field(repr=False)
    head: Communication = field(repr=False)

    @checked
    def __getitem__(self, name: str) -> Parameter:
        """The parameter of this name, with `*` or a number for the layer; raises KeyError."""
        by_name = {parameter.name: parameter for parameter in self.parameters}
        pattern = re.sub(r"^layers\.\d+\.", "layers.*.", name)
        if pattern not in by_name:
            raise UnknownNameError(unknown("parameter", name, by_name))
        return by_name[pattern]

    def recut(self, name: str, /, **changes: Any) -> Layout:
        """The layout with one parameter's fields changed, for `check` to judge."""
        old = self[name]
        parameters = [replace(p, **changes) if p is old else p for p in self.parameters]
        return replace(self, parameters=tuple(parameters))

    def collectives(self) -> Iterator[Collective]:
        """The collectives of one micro-batch, forward and then backward, in order."""
        layers = self.spec.layers
        yield from self.embedding.forward + self.layer.forward * layers + self.head.forward
        yield from self.head.backward + self.layer.backward * layers + self.embedding.backward

    @checked
    def held(self, rank: int = 0) -> int:
        """Number of parameters that `rank` holds."""
        return sum(self.times(p) * math.prod(p.shard(rank)) for p in self.parameters)

    def check(self) -> None:
        """Prove that the ranks together compute what one device does; see `check.check`.

        Raises LayoutError, which says what is wrong and what would be right.
        """
        from dlsys.tensor_parallel.check import check

        check(self)

    def price(
        self, batch: int, link_or_cluster: Link | Cluster | None = None, **options: Any
    ) -> Price:
        """Bytes and seconds of a step; see `price.price`."""
        from dlsys.tensor_parallel.price import price

        return price(self, batch, link_or_cluster, **options)

    def draw(self) -> Any:
        """A Matplotlib figure of one layer, its cuts and its collectives."""
        from dlsys.tensor_parallel.draw import draw_layer

        return draw_layer(self)

    @checked
    def times(self, parameter: Parameter) -> int:
        """How many parameters of the model it stands for: one in each layer, or one."""
        return self.spec.layers if parameter.name.startswith("layers.") else 1


@checked
def layout(spec: TransformerSpec, tp: int, sequence_parallel: bool = False) -> Layout:
    """The cut of Megatron-LM: into a branch by columns, out of it by rows, one sum for each.

    Attention is cut by heads, the feed-forward network by neurons, embedding and head by words (the
    pieces of a vocabulary may differ by one word). With fewer key-value heads than ranks each is
    copied to tp / kv_heads neighbours. Norms, learned positions and the biases of matrices cut by
    rows are copied. With `sequence_parallel` each rank has s/t tokens of whatever lies between the
    branches, and each all-reduce becomes a reduce-scatter and an all-gather.

    Raises ValueError for a `tp` that does not divide the heads and the neurons (and with
    `sequence_parallel` the tokens), or that neither divides the key-value heads nor is a multiple
    of them; and for a spec with parts that `dlsys.model.GPT` does not have.
    Sources: Shoeybi et al. 2019 (arXiv 1909.08053), section 3; Korthikanti et al. 2022 (arXiv
    2205.05198), section 4.2.
    """
    t = check_degree(spec, tp, sequence_parallel)
    parameters = _parameters(spec, t, sequence_parallel)
    communication = _communication(spec, t, sequence_parallel, parameters)
    return Layout(spec, t, sequence_parallel, parameters, *communication)


def check_degree(spec: TransformerSpec, tp: int, sequence_parallel: bool) -> int:
    """`tp` as an int; raises ValueError where it cannot cut the spec, as `layout` says."""
    if spec.beyond_gpt:
        odd = ", ".join(spec.beyond_gpt).replace("positions", "relative positions")
        raise ValueError(f"{spec.name or 'The spec'} has {odd}; GPT has no such part.")
    return check_cut("tensor-parallel degree", tp, spec, sequence_parallel)


def _parameters(spec: TransformerSpec, t: int, sequence_parallel: bool) -> tuple[Parameter, ...]:
    h, f, words = spec.hidden, spec.ffn_hidden, spec.vocab
    query, key = spec.heads * spec.head_size, spec.kv_heads * spec.head_size
    among = t if sequence_parallel else 1  # a rank's tokens give a part of the gradient
    groups = min(t, spec.kv_heads)

    def matrix(name: str, rows: int, columns: int, dimension: int, pieces: int = t) -> None:
        summed = t // pieces
        found.append(Parameter(f"{name}.weight", (rows, columns), t, dimension, pieces, summed))
        if spec.bias and dimension == 0:
            found.append(Parameter(f"{name}.bias", (rows,), t, 0, pieces, summed))
        elif spec.bias:
            copied(f"{name}.bias", rows)

    def copied(name: str, *shape: int) -> None:
        found.append(Parameter(name, shape, t, summed=among))

    def norm(name: str) -> None:
        copied(f"{name}.weight", h)
        if spec.norm == "layer" and spec.bias:
            copied(f"{name}.bias", h)

    found = [Parameter("embedding.weight", (words, h), t, 0, t)]
    if spec.positions == "learned":
        copied("positions.weight", spec.sequence, h)
    norm("layers.*.norm1")
    matrix("layers.*.attention.query", query, h, 0)
    matrix("layers.*.attention.key", key, h, 0, groups)
    matrix("layers.*.attention.value", key, h, 0, groups)
    matrix("layers.*.attention.output", h, query, 1)
    norm("layers.*.norm2")
    if spec.gated:
        matrix("layers.*.ffn.gate", f, h, 0)
    matrix("layers.*.ffn.up", f, h, 0)
    matrix("layers.*.ffn.down", h, f, 1)
    norm("norm")
    if not spec.tied:
        found.append(Parameter("head.weight", (words, h), t, 0, t))
    return tuple(found)


def _communication(
    spec: TransformerSpec, t: int, sequence_parallel: bool, parameters: tuple[Parameter, ...]
) -> tuple[Communication, Communication, Communication]:
    """The collectives of embedding, layer, and head with loss; none where there is one rank."""
    if t == 1:
        return Communication((), ()), Communication((), ()), Communication((), ())

    def call(kind: str, where: str) -> tuple[Collective, ...]:
        return (Collective(kind, where, "b·s·h", spec.sequence * spec.hidden),)

    def enter(part: str) -> Communication:  # every rank reads all of it; its gradient is a sum
        if not sequence_parallel:
            return Communication((), call("all_reduce", f"{part}.input"))
        again = call("all_gather", f"{part}.input again")
        return Communication(
            call("all_gather", f"{part}.input"), again + call("reduce_scatter", f"{part}.input")
        )

    def leave(part: str) -> Communication:  # every rank has an addend; its gradient goes to all
        if not sequence_parallel:
            return Communication(call("all_reduce", f"{part}.output"), ())
        return Communication(
            call("reduce_scatter", f"{part}.output"), call("all_gather", f"{part}.output")
        )

    def joined(*parts: Communication) -> Communication:
        forward = [c for part in parts for c in part.forward]
        return Communication(
            tuple(forward), tuple(c for part in reversed(parts) for c in part.backward)
        )

    def gradients(prefix: str) -> Communication:  # one message for each number of ranks to sum over
        sums: dict[int, int] = {}
        for p in parameters:
            if p.summed > 1 and p.name.startswith(prefix):
                sums[p.summed] = sums.get(p.summed, 0) + math.prod(p.shard(0))
        return Communication(
            (),
            tuple(
                Collective("all_reduce", "gradients", "copies", size, 1, False, ranks)
                for ranks, size in sorted(sums.items(), reverse=True)
            ),
        )

    branches = [side(branch) for branch in BRANCHES for side in (enter, leave)]
    # The loss needs, of every token's logits, the largest, the sum of exponentials, and the target,
    # in FP32 where activations have 16 bits.
    loss = Communication((Collective("all_reduce", "loss", "b·s", spec.sequence, FP32),) * 3, ())
    return (
        joined(leave("embedding"), gradients("positions.")),
        joined(gradients("layers."), *branches),
        joined(gradients("norm."), enter("head"), loss),
    )
