"""The GPT of dlsys.model under tensor and sequence parallelism, as the plan `layout` says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from dlsys import world
from dlsys.annotated import checked
from dlsys.checks import divisor
from dlsys.model import GPT, at_least_float32
from dlsys.tensor_parallel.autograd import gather
from dlsys.tensor_parallel.copied import sum_gradients
from dlsys.tensor_parallel.dropout import Seed, Seeded, own_seed, same_seed
from dlsys.tensor_parallel.linear import (
    ColumnParallelLinear,
    ReadTogether,
    RowParallelLinear,
    part,
)
from dlsys.tensor_parallel.plan import BRANCHES, Parameter, layout
from dlsys.tensor_parallel.vocabulary import VocabParallelEmbedding, vocab_parallel_cross_entropy
from dlsys.tensors import device_of
from dlsys.transformer import TransformerSpec
from dlsys.world import Communicator


class TensorParallelGPT(GPT):
    """dlsys.model.GPT of which each rank of `comm` holds the parts that `self.layout` says.

    Parameters have GPT's names and, for a `seed`, parts of its values. It is called as GPT is, with
    the same tokens and targets on every rank, and gives the same loss on every rank; without
    targets the logits of all words are gathered, which training avoids. Gradients are final when
    backward() returns. With `sequence_parallel` what lies between the branches, and `x` of embed,
    layers and read_out, has this rank's tokens alone, (b, s/t, h); t must divide s. With `overlap`
    sums over the ranks go on while weights' gradients are computed; the values are the same.

    Dropout: what every rank has whole (between the branches, without `sequence_parallel`) must lose
    the same elements on every rank, so rank 0 draws a seed for each of these masks and broadcasts
    it, 8 bytes. What ranks have different parts of (heads, or tokens) loses different ones. So it
    does not matter whether the ranks' random states agree. With fewer key-value heads than ranks,
    all ranks construct it together (it splits `comm`).

    comm=None means the world that the caller is in. Raises ValueError as `layout` and GPT do.
    """

    @checked
    def __init__(
        self,
        spec: TransformerSpec,
        comm: Communicator | None = None,
        sequence_parallel: bool = False,
        overlap: bool = True,
        dropout: float = 0.0,
        flash: bool = False,
        seed: int = 0,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        comm = world.current() if comm is None else comm
        plan = layout(spec, comm.size, sequence_parallel)
        device = device_of(device)
        super().__init__(spec, dropout, flash, seed, "meta", dtype)
        self.comm, self.layout, self.sequence_parallel = comm, plan, sequence_parallel
        words = plan["embedding.weight" if spec.tied else "head.weight"]
        with torch.device("meta"):
            embedding = VocabParallelEmbedding(
                spec.vocab, spec.hidden, comm, sequence_parallel=sequence_parallel
            )
            self.add_module("embedding", embedding)
            self.add_module("head", self._column(words, overlap, bias=False))
            for block in self.layers:
                self._cut(block, overlap)
        if dropout and comm.size > 1:
            self._seed_dropout()
        self._sum_gradients()
        self.to(dtype)
        if device.type != "meta":
            self.to_empty(device=device)
        if spec.tied:
            self.head.weight = self.embedding.weight
        self.initialize(seed)

    def stream_shape(self, tokens: Tensor) -> tuple[int, ...]:
        """The shape of x between layers: (b, s, hidden), or (b, s/t, hidden)."""
        b, s, h = super().stream_shape(tokens)
        if not self.sequence_parallel:
            return b, s, h
        t = divisor("sequence-parallel degree", self.comm.size, {"tokens of a sequence": s})
        return b, s // t, h

    def embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """tokens (b, s) -> x (b, s, hidden), or this rank's (b, s/t, hidden)."""
        _, length, _ = self.stream_shape(tokens)
        if self.sequence_parallel:
            positions = positions.split(length)[self.comm.rank]
        return super().embed(tokens, positions)

    def read_out(self, x: Tensor, targets: Tensor | None = None) -> Tensor:
        """x, from the last layer -> logits (b, s, vocab), or the mean loss; see GPT."""
        logits = self.head(self.norm(x))
        if targets is None:
            return gather(logits, self.comm, self.spec.vocab)
        logits = at_least_float32(logits)
        return vocab_parallel_cross_entropy(logits, targets, self.comm, self.spec.vocab)

    def initial(self, name: str, shape: Sequence[int], seed: int) -> Tensor:
        """This rank's part of the value that GPT gives the parameter."""
        cut = self.layout[name]
        return part(super().initial(name, cut.shape, seed), cut, self.comm.rank)

    def _cut(self, block: Any, overlap: bool) -> None:
        """Replace the linear layers of a block by parts of them."""
        for branch, (readers, writer) in BRANCHES.items():
            module, prefix = getattr(block, branch), f"layers.*.{branch}"
            for name in readers:
                if getattr(module, name) is not None:
                    cut = self.layout[f"{prefix}.{name}.weight"]
                    setattr(module, name, self._column(cut, overlap, self.spec.bias))
            out_features, in_features = self.layout[f"{prefix}.{writer}.weight"].shape
            row = RowParallelLinear(
                in_features,
                out_features,
                self.spec.bias,
                comm=self.comm,
                sequence_parallel=self.sequence_parallel,
            )
            setattr(module, writer, row)
            module.read = ReadTogether()

    def _column(self, cut: Parameter, overlap: bool, bias: bool) -> ColumnParallelLinear:
        out_features, in_features = cut.shape
        return ColumnParallelLinear(
            in_features,
            out_features,
            bias,
            comm=self.comm,
            sequence_parallel=self.sequence_parallel,
            overlap=overlap,
            cut=cut,
        )

    def _seed_dropout(self) -> None:
        """Have masks agree between the ranks where tensors do, and differ where those differ."""
        between = own_seed if self.sequence_parallel else same_seed
        places: list[tuple[nn.Module, str, Seed]] = [(self, "dropout", between)]
        for block in self.layers:
            places += [(block, "dropout1", between), (block, "dropout2", between)]
            places += [(block.get_submodule("attention"), "core", own_seed)]
        for parent, name, seed in places:
            parent.add_module(name, Seeded(parent.get_submodule(name), seed, self.comm))

    def _sum_gradients(self) -> None:
        """Have gradients summed over the ranks that find parts of them; the layout says which."""
        numbers = sorted({cut.summed for cut in self.layout.parameters} - {1})
        t, rank = self.comm.size, self.comm.rank
        groups = {
            n: self.comm if n == t else self.comm.split(rank // n, axis=self.comm.axis)
            for n in numbers
        }
        parts: dict[str, nn.Module | None] = {"positions": self.positions, "norm": self.norm}
        parts |= {f"layers.{i}": block for i, block in enumerate(self.layers)}
        for path, module in parts.items():
            for n, group in groups.items():
                if module is not None and group is not None:
                    names = [name for name, _ in module.named_parameters()]
                    names = [name for name in names if self.layout[f"{path}.{name}"].summed == n]
                    sum_gradients(module, names, group)
