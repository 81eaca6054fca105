"""The one small GPT that every chapter trains, splits and shards, built from a TransformerSpec.

It keeps for the backward pass exactly what the memory formulas count: no hidden copies. Tensors
are (batch, sequence, hidden); inside attention, (batch, sequence, heads, head_size).
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dlsys.annotated import checked
from dlsys.checks import at_least, refuse_what, whole
from dlsys.tensors import among, device_of, indices, of_shape, token_ids
from dlsys.transformer import TransformerSpec

SMALL = TransformerSpec(layers=4, hidden=64, heads=8, vocab=256, sequence=64, name="small")
"""Reads bytes; 200 thousand parameters that train in seconds on one core."""


class Dropout(nn.Module):
    """Zeroes a part of its input in training; keeps a mask of one byte an element, on CPU too."""

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    def forward(self, x: Tensor) -> Tensor:
        """x of any shape -> the same shape."""
        if not (self.training and self.probability):
            return x
        # F.dropout keeps its mask in x's dtype on CPU; this is the operation that GPUs run.
        return torch.native_dropout(x, self.probability, train=True)[0]


class Core(nn.Module):
    """Causal attention itself: softmax(q k^T / sqrt(d)) v, without weights.

    Queries come in groups, one group for each key-value head (grouped-query attention).
    """

    def __init__(self, dropout: float, flash: bool) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)
        self.flash = flash

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """q (b, s, heads, d), k and v (b, s, kv_heads, d) -> (b, s, heads, d)."""
        if self.flash:
            q, k, v = (x.transpose(1, 2) for x in (q, k, v))
            p = self.dropout.probability if self.training else 0.0
            grouped = q.shape[1] != k.shape[1]
            out = F.scaled_dot_product_attention(
                q, k, v, dropout_p=p, is_causal=True, enable_gqa=grouped
            )
            return out.transpose(1, 2)
        q = (q * q.shape[-1] ** -0.5).unflatten(2, (k.shape[2], -1))
        scores = torch.einsum("bskgd,btkd->bksgt", q, k)
        # Adding the mask keeps nothing for backward; masked_fill would keep the mask. And the order
        # s, g is that of the result: the other order would cost a hidden copy of the weights.
        scores += causal_mask(q.shape[1], q)
        weights = self.dropout(F.softmax(scores, dim=-1))
        return torch.einsum("bksgt,btkd->bskgd", weights, v).flatten(2, 3)


def read_each(layers: Sequence[nn.Module], x: Tensor) -> tuple[Tensor, ...]:
    """What each of the layers makes of x."""
    return tuple(layer(x) for layer in layers)


class Attention(nn.Module):
    """Grouped-query attention. A rank that holds some of the heads runs the same code on them.

    `read` calls the linear layers that read the same x, here and in FeedForward.
    """

    def __init__(self, spec: TransformerSpec, dropout: float, flash: bool) -> None:
        super().__init__()
        self.head_size = spec.head_size
        width, kv_width = spec.heads * spec.head_size, spec.kv_heads * spec.head_size
        self.query = nn.Linear(spec.hidden, width, spec.bias)
        self.key = nn.Linear(spec.hidden, kv_width, spec.bias)
        self.value = nn.Linear(spec.hidden, kv_width, spec.bias)
        self.core = Core(dropout, flash)
        self.output = nn.Linear(width, spec.hidden, spec.bias)
        self.read = read_each

    def forward(self, x: Tensor, rotation: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """x (b, s, hidden) -> (b, s, hidden); `rotation` as given by `rotary`."""
        q, k, v = (
            y.unflatten(-1, (-1, self.head_size))
            for y in self.read((self.query, self.key, self.value), x)
        )
        if rotation is not None:
            q, k = rotate(q, rotation), rotate(k, rotation)
        return self.output(self.core(q, k, v).flatten(2))


class FeedForward(nn.Module):
    """down(gelu(up(x))), or where the spec is gated down(silu(gate(x)) * up(x))."""

    def __init__(self, spec: TransformerSpec) -> None:
        super().__init__()
        self.gate = nn.Linear(spec.hidden, spec.ffn_hidden, spec.bias) if spec.gated else None
        self.up = nn.Linear(spec.hidden, spec.ffn_hidden, spec.bias)
        self.down = nn.Linear(spec.ffn_hidden, spec.hidden, spec.bias)
        self.read = read_each

    def forward(self, x: Tensor) -> Tensor:
        """x (b, s, hidden) -> (b, s, hidden)."""
        if self.gate is None:
            (up,) = self.read((self.up,), x)
            return self.down(F.gelu(up))
        gate, up = self.read((self.gate, self.up), x)
        return self.down(F.silu(gate) * up)


class Block(nn.Module):
    """One layer: attention, then the feed-forward network, each read from a norm and added."""

    def __init__(self, spec: TransformerSpec, dropout: float, flash: bool) -> None:
        super().__init__()
        self.norm1 = make_norm(spec)
        self.attention = Attention(spec, dropout, flash)
        self.dropout1 = Dropout(dropout)
        self.norm2 = make_norm(spec)
        self.ffn = FeedForward(spec)
        self.dropout2 = Dropout(dropout)

    def forward(self, x: Tensor, rotation: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """x (b, s, hidden) -> (b, s, hidden)."""
        x = x + self.dropout1(self.attention(self.norm1(x), rotation))
        return x + self.dropout2(self.ffn(self.norm2(x)))


class GPT(nn.Module):
    """A decoder-only transformer with exactly `spec.parameters()` parameters.

    Parameters start from normal numbers of deviation 0.02 (0.02 / sqrt(2 layers) where a branch
    joins the residual stream), biases from 0, norms from 1 (Radford et al. 2019). Each parameter
    has its own random stream, seeded by `seed` and its name, so a rank that builds only some of
    them gets the same values; torch's global stream stays where it was. On the meta device nothing
    is filled. Raises ValueError for a spec with parts that this model does not have.
    """

    @checked
    def __init__(
        self,
        spec: TransformerSpec,
        dropout: float = 0.0,
        flash: bool = False,
        seed: int = 0,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        refuse(spec)
        at_least("dropout", dropout, 0)
        seed, device = whole("seed", seed), device_of(device)
        if dropout >= 1:
            raise ValueError(f"dropout is {dropout!r}; it must be at least 0 and below 1.")
        self.spec = spec
        learned = spec.positions == "learned"
        # torch's own initialisation draws from the global random state; put that back after.
        with torch.random.fork_rng(devices=[]), torch.device(device):
            self.embedding = nn.Embedding(spec.vocab, spec.hidden)
            self.positions = nn.Embedding(spec.sequence, spec.hidden) if learned else None
            self.dropout = Dropout(dropout)
            self.layers = nn.ModuleList(Block(spec, dropout, flash) for _ in range(spec.layers))
            self.norm = make_norm(spec)
            self.head = nn.Linear(spec.hidden, spec.vocab, bias=False)
        if spec.tied:
            self.head.weight = self.embedding.weight
        self.to(dtype)
        self.initialize(seed)

    @torch.no_grad()
    def initialize(self, seed: int) -> None:
        """Fill every parameter from its own random stream; see the class."""
        seed = whole("seed", seed)
        for name, parameter in self.named_parameters():
            if not parameter.is_meta:
                parameter.copy_(self.initial(name, parameter.shape, seed))

    def initial(self, name: str, shape: Sequence[int], seed: int) -> Tensor:
        """The value (shape) that the parameter of this name starts from; see the class."""
        if len(shape) == 1:
            return torch.full(shape, 0.0 if name.endswith("bias") else 1.0)
        joins = name.endswith(("output.weight", "down.weight"))
        deviation = 0.02 / math.sqrt(2 * self.spec.layers) if joins else 0.02
        stream = torch.Generator().manual_seed(zlib.crc32(f"{seed} {name}".encode()))
        return torch.empty(shape).normal_(0.0, deviation, generator=stream)

    @checked
    def forward(
        self, tokens: Tensor, targets: Tensor | None = None, positions: Tensor | None = None
    ) -> Tensor:
        """tokens (b, s) -> logits (b, s, vocab), or the mean loss where targets (b, s) are given.

        `positions` (s,) says where in the sequence the tokens stand; None means 0 to s - 1.
        Raises ValueError for tokens, targets and positions that are none.
        """
        places = self.positions_of(tokens)
        positions = places if positions is None else positions
        indices("positions", positions, tuple(places.shape))
        x = self.embed(tokens, positions)
        rotation = self.rotation(positions, x.dtype)
        for layer in self.layers:
            x = layer(x, rotation)
        return self.read_out(x, targets)

    def positions_of(self, tokens: Tensor) -> Tensor:
        """0 to s - 1 (s,) for tokens (b, s); ValueError where the model has fewer positions."""
        if tokens.dim() != 2:
            refuse_what("tokens", of_shape(tokens), "(b, s) whole numbers, of torch.int64")
        if tokens.shape[1] > self.spec.sequence:
            raise ValueError(
                f"{tokens.shape[1]} tokens are more than the {self.spec.sequence} positions "
                "of the spec's `sequence`."
            )
        return torch.arange(tokens.shape[1], device=tokens.device)

    def stream_shape(self, tokens: Tensor) -> tuple[int, ...]:
        """The shape of x between layers, (b, s, hidden), for tokens (b, s)."""
        return *tokens.shape, self.spec.hidden

    def embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """tokens (b, s) -> x (b, s, hidden), what the first layer reads."""
        token_ids("tokens", tokens)
        with among("tokens", tokens, self.spec.vocab):
            x = self.embedding(tokens)
        if self.positions is not None:
            with among("positions", positions, self.spec.sequence):
                x = x + self.positions(positions)
        return self.dropout(x)

    def rotation(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor] | None:
        """What every layer's attention turns queries and keys by; None without rotary positions."""
        if self.spec.positions != "rotary":
            return None
        return rotary_tables(positions, self.spec.head_size, dtype)

    def read_out(self, x: Tensor, targets: Tensor | None = None) -> Tensor:
        """x (b, s, hidden), from the last layer -> logits, or the mean loss; see `forward`."""
        logits = self.head(self.norm(x))
        if targets is None:
            return logits
        if targets.shape != x.shape[:-1] or targets.dtype != torch.int64:
            numbers = f"{tuple(x.shape[:-1])} whole numbers, as tokens is, of torch.int64"
            refuse_what("targets", of_shape(targets), numbers)
        with among("targets", targets, self.spec.vocab):
            return F.cross_entropy(at_least_float32(logits).flatten(0, 1), targets.flatten())


def at_least_float32(logits: Tensor) -> Tensor:
    """Logits in the precision that a loss is computed in: float32, or float64 where they are."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def make_norm(spec: TransformerSpec) -> nn.Module:
    """The spec's norm over the hidden dimension; a layer norm has a bias where linears do."""
    if spec.norm == "rms":
        return nn.RMSNorm(spec.hidden, eps=1e-5)
    return nn.LayerNorm(spec.hidden, bias=spec.bias)


def causal_mask(length: int, like: Tensor) -> Tensor:
    """(s, 1, s) to add to scores: -inf where the key comes after the query, 0 elsewhere."""
    later = torch.full((length, length), -math.inf, dtype=like.dtype, device=like.device).triu(1)
    return later.unsqueeze(1)


def rotary_tables(positions: Tensor, size: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and sines (s, 1, size/2) of position x 10000^(-2i/size). Su et al. 2021, eq. 15."""
    steps = torch.arange(0, size, 2, device=positions.device)
    angles = torch.outer(positions.float(), 10000.0 ** (-steps / size)).unsqueeze(1)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(x: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    """Turn each pair (x[i], x[i + size/2]) of x (b, s, heads, size) by its position's angle."""
    (cos, sin), (a, b) = rotation, x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def refuse(spec: TransformerSpec) -> None:
    """Raise ValueError where `spec` has parts that this GPT does not."""
    if spec.beyond_gpt:
        fields = ", ".join(f"{name}={getattr(spec, name)!r}" for name in spec.beyond_gpt)
        raise ValueError(f"This GPT cannot be built with {fields}: it has no such parts.")
    if spec.positions == "rotary" and spec.head_size % 2:
        raise ValueError(f"Rotary positions turn pairs; a head_size of {spec.head_size} is odd.")
