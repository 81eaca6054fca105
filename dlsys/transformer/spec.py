"""What a transformer is made of: one table of matrices that gives both parameters and FLOPs.

A matrix of m inputs and n outputs holds m n weights and costs 2 m n FLOPs a token (a multiply and
an add). Everything else that costs matrix FLOPs is attention itself: each of a heads multiplies
(s, d) by (d, s) for the scores and (s, s) by (s, d) for the weighted sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dlsys.annotated import checked
from dlsys.checks import at_least, count, counts, unknown
from dlsys.plain_data import plain_data


class Matrix(NamedTuple):
    """Weights of `rows` inputs by `columns` outputs: `copies` are held, a token uses `active`."""

    name: str
    rows: int
    columns: int
    copies: int = 1
    active: int = 1


NORMS = ("layer", "rms")
POSITIONS = ("learned", "rotary", "relative", "none")


@plain_data
@dataclass(frozen=True)
class MixtureOfExperts:
    """Feed-forward networks of which each token visits a few, chosen by a router.

    A token visits `experts_per_token` of `experts` and every one of `shared`. Each has
    `ffn_hidden` neurons (None: the model's own `ffn_hidden`). The first `dense_layers` layers have
    one ordinary feed-forward network instead, and of those after them all but each `every`-th.
    """

    experts: int
    experts_per_token: int
    shared: int = 0
    ffn_hidden: int | None = None
    dense_layers: int = 0
    every: int = 1

    def __post_init__(self) -> None:
        counts(self, "experts", "experts_per_token", "every")
        counts(self, "shared", "dense_layers", least=0)
        if self.ffn_hidden is not None:
            counts(self, "ffn_hidden")
        if self.experts_per_token > self.experts:
            raise ValueError(
                f"A token cannot visit {self.experts_per_token} of {self.experts} experts."
            )


@plain_data
@dataclass(frozen=True)
class LatentAttention:
    """Multi-head latent attention: queries, and keys with values, pass through low ranks.

    A head's query and key have `plain_size` numbers without a position and `rotary_size` with one
    (the key's shared by all heads); its value has `value_size`. DeepSeek-V2 (2024), section 2.1.
    """

    query_rank: int
    key_value_rank: int
    plain_size: int
    rotary_size: int
    value_size: int

    def __post_init__(self) -> None:
        counts(self, *vars(self))


@checked
@plain_data
@dataclass(frozen=True)
class TransformerSpec:
    """A transformer's shape, from which its parameters and FLOPs follow exactly.

    - `ffn_hidden`: None means 4 h, or round(8 h / 3) where the feed-forward network is `gated` (a
      third matrix, Shazeer 2020)
    - `kv_heads`: None means one for each of `heads`; fewer is grouped-query attention, one
      multi-query
    - `gated`: False otherwise means GPT-2's manner (biases, layer norm, learned positions), True
      Llama's (no biases, RMS norm, rotary positions); `bias`, `norm`, `positions` change that
    - `tied`: the head reuses the token embedding
    - `norm`: a layer norm has a bias where the linear layers do
    - `positions`: "relative" ones are Transformer-XL's, a matrix and two vectors in each layer
    - `parallel`: attention and feed-forward network read the same norm (PaLM)
    - `post_norm`: norms follow, with one after the embedding and none at the end (BERT)
    - `embedding_norm`: a norm follows the embedding, beside the one at the end (BLOOM)
    - `query_key_norm`: an RMS norm of each head's query and of its key, before rotation (Qwen3)

    Raises ValueError, as a sentence, for shapes that no transformer has.
    """

    layers: int
    hidden: int
    heads: int
    vocab: int
    sequence: int
    # None is resolved below, so that readers of a spec always find numbers.
    ffn_hidden: int = None  # type: ignore[assignment]
    kv_heads: int = None  # type: ignore[assignment]
    gated: bool = False
    tied: bool = True
    name: str = field(default="", kw_only=True, compare=False)
    source: str = field(default="", kw_only=True, compare=False)
    head_size: int = field(default=None, kw_only=True)  # type: ignore[assignment]
    bias: bool = field(default=None, kw_only=True)  # type: ignore[assignment]
    norm: str = field(default=None, kw_only=True)  # type: ignore[assignment]
    positions: str = field(default=None, kw_only=True)  # type: ignore[assignment]
    parallel: bool = field(default=False, kw_only=True)
    post_norm: bool = field(default=False, kw_only=True)
    embedding_norm: bool = field(default=False, kw_only=True)
    query_key_norm: bool = field(default=False, kw_only=True)
    token_types: int = field(default=0, kw_only=True)
    pooler: bool = field(default=False, kw_only=True)
    moe: MixtureOfExperts | None = field(default=None, kw_only=True)
    latent: LatentAttention | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        counts(self, "layers", "hidden", "heads", "vocab", "sequence")
        if self.head_size is None and self.latent is None and self.hidden % self.heads:
            raise ValueError(
                f"{self.hidden} hidden do not divide by {self.heads} heads; give `head_size`."
            )
        m = self.latent
        family: dict[str, Any] = {
            "ffn_hidden": round(8 * self.hidden / 3) if self.gated else 4 * self.hidden,
            "kv_heads": self.heads,
            "head_size": m.plain_size + m.rotary_size if m else self.hidden // self.heads,
            "bias": not self.gated,
            "norm": "rms" if self.gated else "layer",
            "positions": "rotary" if self.gated else "learned",
        }
        for name, value in family.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)  # the way to default a frozen field
        counts(self, "ffn_hidden", "kv_heads", "head_size")
        counts(self, "token_types", least=0)
        if self.heads % self.kv_heads:
            raise ValueError(
                f"{self.heads} heads do not divide by {self.kv_heads} key-value heads."
            )
        if self.norm not in NORMS:
            raise ValueError(unknown("norm", self.norm, NORMS))
        if self.positions not in POSITIONS:
            raise ValueError(unknown("kind of positions", self.positions, POSITIONS))
        if m and self.positions == "relative":
            raise ValueError("Latent attention has rotary positions; relative ones do not fit it.")
        if m and self.query_key_norm:
            raise ValueError("Latent attention norms its low ranks, and no head's query or key.")
        if self.moe and self.moe.dense_layers > self.layers:
            raise ValueError(f"{self.moe.dense_layers} dense layers are more than {self.layers}.")

    @property
    def beyond_gpt(self) -> list[str]:
        """The fields that ask for parts which `dlsys.model.GPT` does not have."""
        names = (
            "moe",
            "latent",
            "query_key_norm",
            "embedding_norm",
            "parallel",
            "post_norm",
            "token_types",
            "pooler",
        )
        odd = [name for name in names if getattr(self, name)]
        return odd + ["positions"] * (self.positions == "relative")

    @classmethod
    @checked
    def from_config(cls, config: Mapping[str, Any]) -> TransformerSpec:
        """The spec of a Hugging Face `config.json`, read as a dict; raises ValueError.

        Knows the model types gpt2, llama, mistral, mixtral, bert, deepseek_v3, qwen3_moe and
        llama4, of which it reads the part for text.
        """
        from dlsys.transformer.config import spec_of

        return spec_of(config)

    def is_sparse(self, layer: int) -> bool:
        """Whether `layer` (from 0) is a mixture of experts."""
        layer = count("layer", layer, least=0)
        if layer >= self.layers:
            raise ValueError(f"There is no layer {layer}; layers are 0 to {self.layers - 1}.")
        after = layer - self.moe.dense_layers if self.moe else -1
        return self.moe is not None and after >= 0 and (after + 1) % self.moe.every == 0

    @checked
    def sparse_layers(self, first: int = 0, stop: int | None = None) -> int:
        """How many layers are mixtures, of those from `first` up to `stop` (None: the last)."""
        end = self.layers if stop is None else count("stop", stop, most=self.layers)
        layers = range(count("first", first, least=0), end)
        return sum(map(self.is_sparse, layers)) if self.moe else 0

    def attention_matrices(self) -> list[Matrix]:
        """The weight matrices of one layer's attention."""
        h, a, d = self.hidden, self.heads, self.head_size
        if m := self.latent:
            return [
                Matrix("query_down", h, m.query_rank),
                Matrix("query_up", m.query_rank, a * d),
                # The key's part with a position is made here, once for all heads.
                Matrix("key_value_down", h, m.key_value_rank + m.rotary_size),
                Matrix("key_value_up", m.key_value_rank, a * (m.plain_size + m.value_size)),
                Matrix("output", a * m.value_size, h),
            ]
        return [Matrix("qkv", h, (a + 2 * self.kv_heads) * d), Matrix("output", a * d, h)]

    def ffn_matrices(self, layer: int) -> list[Matrix]:
        """The weight matrices of `layer`'s feed-forward network, or of its router and experts."""
        h, f, held, used = self.hidden, self.ffn_hidden, 1, 1
        router, sparse = [], self.is_sparse(layer)
        if self.moe and sparse:
            router = [Matrix("router", h, self.moe.experts)]
            f = self.moe.ffn_hidden or f
            held = self.moe.experts + self.moe.shared
            used = self.moe.experts_per_token + self.moe.shared
        gate = [Matrix("ffn_gate", h, f, held, used)] if self.gated else []
        up, down = Matrix("ffn_up", h, f, held, used), Matrix("ffn_down", f, h, held, used)
        return [*router, up, *gate, down]

    @checked
    def parameter_counts(self, active: bool = False) -> dict[str, int]:
        """Parameters by part of the model; where `active`, without experts a token does not visit.

        Parts that the model does not have are absent. The sum is `parameters(active)`.
        """
        h, a, d = self.hidden, self.heads, self.head_size
        norm = h * (2 if self.norm == "layer" and self.bias else 1)
        attention = sum(self._weights(m, active) for m in self.attention_matrices())
        norms = (1 if self.parallel else 2) * norm
        if self.latent:
            norms += self.latent.query_rank + self.latent.key_value_rank
        norms += 2 * d * self.query_key_norm
        if self.positions == "relative":
            attention += h * a * d + 2 * a * d  # W_kR, u and v: Dai et al. 2019, section 3.3
        ffn = [  # a router has no bias
            self._weights(m, active) if m.name != "router" else m.rows * m.columns
            for layer in range(self.layers)
            for m in self.ffn_matrices(layer)
        ]
        parts = {
            "token_embedding": self.vocab * h,
            "position_embedding": self.sequence * h if self.positions == "learned" else 0,
            "type_embedding": self.token_types * h,
            "embedding_norm": norm * self.embedding_norm,
            "attention": self.layers * attention,
            "ffn": sum(ffn),
            "norms": self.layers * norms + norm,  # one more, at the end (BERT: after the embedding)
            "pooler": h * h + h if self.pooler else 0,
            "head": 0 if self.tied else self.vocab * h,
        }
        return {part: number for part, number in parts.items() if number}

    def parameters(self, active: bool = False) -> int:
        """Number of parameters; where `active`, of those that one token uses."""
        return sum(self.parameter_counts(active).values())

    def active_parameters(self) -> int:
        """Parameters that one token uses: all but the experts it does not visit."""
        return self.parameters(active=True)

    def operations(self, batch: int, layer: int | None = None) -> dict[str, int]:
        """FLOPs of the forward pass by operation, over `batch` sequences of `sequence` tokens.

        Of one `layer` (from 0), or of the whole model with its head where `layer` is None. Matrix
        products only, and attention scores of every pair of tokens (a causal mask halves what is
        needed, not what a plain implementation computes).
        """
        batch = count("batch", batch)
        if layer is None:
            total: dict[str, int] = {}
            for each in range(self.layers):
                for name, number in self.operations(batch, each).items():
                    total[name] = total.get(name, 0) + number
            if self.pooler:
                total["pooler"] = 2 * batch * self.hidden**2
            return total | {"head": 2 * batch * self.sequence * self.hidden * self.vocab}
        tokens, pairs = batch * self.sequence, batch * self.heads * self.sequence**2
        d = self.head_size
        ffn = self.ffn_matrices(layer)
        *inputs, output = self.attention_matrices()  # attention itself stands between them
        flops = {i.name: 2 * tokens * i.rows * i.columns for i in inputs}
        flops["scores"] = 2 * pairs * d
        if self.positions == "relative":
            # The matrix meets one vector per distance, whatever the batch.
            flops["position"] = 2 * self.sequence * self.hidden * self.heads * d
            flops["position_scores"] = 2 * pairs * d
        flops["weighted_sum"] = 2 * pairs * (self.latent.value_size if self.latent else d)
        return flops | {i.name: 2 * tokens * i.rows * i.columns * i.active for i in [output, *ffn]}

    def forward_flops(self, batch: int) -> int:
        """FLOPs of a forward pass over `batch` sequences: the sum of `operations(batch)`."""
        return sum(self.operations(batch).values())

    def training_flops(self, batch: int) -> int:
        """FLOPs of a training step without recomputation: forward, and backward twice that.

        Backward has two products for each of forward: one for the input's gradient, one for the
        weight's (or, in attention, for each of the two operands).
        """
        return 3 * self.forward_flops(batch)

    def training_flops_per_token(self) -> float:
        """FLOPs of training per token, in sequences of `sequence` tokens."""
        return self.training_flops(1) / self.sequence

    @checked
    def approximate_training_flops(self, tokens: float) -> float:
        """The estimate 6 N D: six FLOPs for each (active) parameter and token.

        Kaplan et al. 2020, section 2.1. It counts the token embedding, a look-up, as a product
        (the head, where tied) and leaves out scores and weighted sum.
        """
        at_least("tokens", tokens, 0)
        return 6.0 * self.active_parameters() * tokens

    def _weights(self, matrix: Matrix, active: bool) -> int:
        bias = matrix.columns if self.bias else 0
        copies = matrix.active if active else matrix.copies
        return copies * (matrix.rows * matrix.columns + bias)
