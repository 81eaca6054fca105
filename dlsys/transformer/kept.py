"""What one device keeps of a transformer's layer for the backward pass, tensor by tensor.

A 16-bit number is two bytes, hence most of the factors; a dropout mask is one byte an element.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dlsys.transformer.spec import TransformerSpec


@dataclass(frozen=True)
class Device:
    """What one device has of a micro-batch, and what its layers keep of that, in bytes by name.

    It has `rows` tokens, 1/`tensor` of their heads and neurons, and 1/`shared` of what lies between
    the tensor-parallel parts. Names are in the order of the forward pass.
    """

    spec: TransformerSpec
    rows: int
    tensor: int
    shared: int
    flash: bool
    dropout: bool

    @property
    def stream(self) -> int:
        """Elements of one tensor of the residual stream."""
        return self.rows * self.spec.hidden // self.shared

    @property
    def norm(self) -> int:
        """Bytes of a norm's mean (RMS norms have none) and deviation, in FP32."""
        return 4 * (2 if self.spec.norm == "layer" else 1) * self.rows // self.shared

    def layer(self, sparse: bool) -> tuple[dict[str, int], dict[str, int]]:
        """Terms and statistics of one layer; `sparse`, of one that is a mixture of experts."""
        attention, ffn = self.attention(), self.mixture() if sparse else self.ffn()
        terms, statistics = (one | other for one, other in zip(attention, ffn, strict=True))
        return _present(terms), _present(statistics)

    def attention(self) -> tuple[dict[str, int], dict[str, int]]:
        """Terms and statistics of attention."""
        spec, rows, t, mask = self.spec, self.rows, self.tensor, int(self.dropout)
        heads, kv_heads = rows * spec.heads // t, rows * max(1, spec.kv_heads // t)
        query, key = heads * spec.head_size, kv_heads * spec.head_size
        value, scores = key, 0 if self.flash else heads * spec.sequence
        between = {"query_norm": 2 * query, "key_norm": 2 * key} if spec.query_key_norm else {}
        small = {"query_norm": 4 * heads, "key_norm": 4 * kv_heads} if spec.query_key_norm else {}
        terms = {"attention.norm_input": 2 * self.stream, "attention.input": 2 * self.stream}
        if m := spec.latent:
            value = heads * m.value_size
            key = query  # each head has its own key, with a copy of the part with a position
            ranks = {"query": m.query_rank, "key_value": m.key_value_rank}
            # The key's part with a position leaves the same product as the low rank.
            made = ranks | {"key_value": m.key_value_rank + m.rotary_size}
            between = {f"{name}_norm": 2 * rows * n // self.shared for name, n in made.items()}
            between |= {f"{name}_up": 2 * rows * n // self.shared for name, n in ranks.items()}
            small = dict.fromkeys(("query_norm", "key_value_norm"), 4 * rows // self.shared)
        terms |= {f"attention.{name}_input": nbytes for name, nbytes in between.items()}
        terms |= {
            "attention.query": 2 * query,
            "attention.key": 2 * key,
            "attention.value": 2 * value,
            "attention.probabilities": 2 * scores,
            "attention.probabilities_mask": mask * scores,
            "attention.probabilities_dropped": 2 * mask * scores,
            "attention.output_input": 2 * (value if spec.latent else query),
            "attention.dropout_mask": mask * self.stream,
        }
        statistics = {
            "attention.norm_statistics": self.norm,
            **{f"attention.{name}_statistics": nbytes for name, nbytes in small.items()},
            "attention.log_sum_exp": 4 * heads if self.flash else 0,
        }
        return terms, statistics

    def ffn(self, neurons: int | None = None) -> tuple[dict[str, int], dict[str, int]]:
        """Terms and statistics of a feed-forward network (or of several, of `neurons` in all)."""
        spec = self.spec
        wide = self.rows * (neurons or spec.ffn_hidden) // self.tensor
        before = 0 if spec.parallel else 1  # a parallel layer (PaLM) feeds one norm to both halves
        terms = {
            "ffn.norm_input": 2 * before * self.stream,
            "ffn.input": 2 * before * self.stream,
            "ffn.activation_input": 2 * wide,
            "ffn.activation_output": 2 * wide if spec.gated else 0,
            "ffn.up_output": 2 * wide if spec.gated else 0,
            "ffn.down_input": 2 * wide,
            "ffn.dropout_mask": int(self.dropout) * self.stream,
        }
        return terms, {"ffn.norm_statistics": before * self.norm}

    def mixture(self) -> tuple[dict[str, int], dict[str, int]]:
        """Terms and statistics of a router and its experts."""
        moe, rows = self.spec.moe, self.rows
        assert moe is not None
        k = moe.experts_per_token
        terms, statistics = self.ffn((k + moe.shared) * (moe.ffn_hidden or self.spec.ffn_hidden))
        terms |= {
            "ffn.expert_input": 2 * k * rows * self.spec.hidden,
            "ffn.expert_output": 2 * k * self.stream,
        }
        statistics |= {
            "ffn.router_probabilities": 4 * moe.experts * rows // self.shared,
            "ffn.router_weights": 2 * k * rows // self.shared,  # of 16 bits, as what they weigh
        }
        return terms, statistics

    def outside(self) -> dict[str, int]:
        """Bytes of what is kept outside the layers."""
        vocabulary = -(-self.spec.vocab // self.tensor)
        return _present(
            {
                "embedding.norm_input": 2 * self.stream * self.spec.embedding_norm,
                "embedding.norm_statistics": self.norm * self.spec.embedding_norm,
                "embedding.dropout_mask": int(self.dropout) * self.stream,
                "final.norm_input": 2 * self.stream,
                "final.norm_statistics": self.norm,
                "head.input": 2 * self.stream,
                "loss.log_probabilities": 4 * self.rows * vocabulary,  # the loss is taken in FP32
            }
        )


def _present(parts: Mapping[str, int]) -> dict[str, int]:
    return {name: nbytes for name, nbytes in parts.items() if nbytes}
