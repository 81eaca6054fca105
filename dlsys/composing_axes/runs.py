"""Training runs as columns: one entry a run, what a step's time and memory depend on in arrays."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlsys.transformer import TransformerSpec

Array = NDArray[np.float64]
"""A number for each run."""


@dataclass(frozen=True)
class Shape:
    """What of a model enters a step's time, for one layer and one token unless said otherwise.

    - weights: parameters that a token is multiplied with, of a layer
    - held, experts: parameters of a layer that every token uses, and of its routed experts
    - core: FLOPs forward of scores and weighted sum with every position of the sequence
    - scores: numbers of the score matrix (heads times positions)
    - keys: numbers of a token's keys and values
    - wide: numbers inside the feed-forward network that backward needs
    - copies: experts that a token is sent to
    """

    layers: float
    hidden: float
    sequence: float
    vocab: float
    weights: float
    held: float
    experts: float
    core: float
    scores: float
    keys: float
    wide: float
    copies: float
    tied: float


@functools.lru_cache(maxsize=1024)
def shape(spec: TransformerSpec) -> Shape:
    """The shape of a spec, of whose layers, where they are of two kinds, this is the mean."""
    spec_layers = range(spec.layers)
    kinds = [spec.ffn_matrices(layer) for layer in spec_layers]
    attention = sum(m.rows * m.columns for m in spec.attention_matrices())
    used = sum(m.rows * m.columns * m.active for ffn in kinds for m in ffn) / spec.layers
    held = sum(m.rows * m.columns * m.copies for ffn in kinds for m in ffn) / spec.layers
    sparse, moe = spec.sparse_layers() / spec.layers, spec.moe
    one = spec.hidden * ((moe.ffn_hidden or spec.ffn_hidden) if moe else 0) * (2 + spec.gated)
    experts = sparse * moe.experts * one if moe else 0.0
    value = spec.latent.value_size if spec.latent else spec.head_size
    neurons = (used - (sparse * spec.hidden * moe.experts if moe else 0)) / (
        spec.hidden * (2 + spec.gated)
    )
    return Shape(
        layers=spec.layers,
        hidden=spec.hidden,
        sequence=spec.sequence,
        vocab=spec.vocab,
        weights=attention + used,
        held=attention + held - experts,
        experts=experts,
        core=2 * spec.sequence * spec.heads * (spec.head_size + value),
        scores=spec.heads * spec.sequence,
        keys=spec.kv_heads * (spec.head_size + value),
        wide=neurons * (4 if spec.gated else 2),
        copies=sparse * moe.experts_per_token if moe else 0.0,
        tied=spec.tied,
    )


DEGREES = {
    "tp": 1.0,
    "cp": 1.0,
    "dp": 1.0,
    "pp": 1.0,
    "ep": 1.0,
    "sequences": 1.0,  # of a micro-batch
    "micro_batches": 1.0,
    "zero": 0.0,
    "recompute": 0.0,  # 1: every layer's forward pass runs twice
    "flash": 1.0,
    "sequence_parallel": 1.0,
    "chunks": 1.0,  # stages of a rank: above 1, interleaved
    "split": 0.0,  # 1: backward for weights fills a part of the bubble (ZB-H1)
    "greedy": 0.0,  # how layers are cut into stages; see `cut`
    "gradient": 4.0,  # bytes of one, as ranks reduce it
}


@dataclass(frozen=True)
class Runs:
    """Columns of runs: `model` by the names of Shape, `how` by those of DEGREES, and stages.

    first, most, last: layers of the first stage, of the fullest of all but the last, and of the
    stage with the head.
    """

    model: dict[str, Array]
    how: dict[str, Array]
    first: Array
    most: Array
    last: Array

    def __getattr__(self, name: str) -> Array:
        """A column, by its name."""
        for columns in (self.__dict__.get("model", {}), self.__dict__.get("how", {})):
            if name in columns:
                return columns[name]
        raise AttributeError(name)

    def __len__(self) -> int:
        return len(self.first)

    @property
    def tokens(self) -> Array:
        """Of a micro-batch on one device."""
        return self.sequences * self.sequence / self.cp

    @property
    def data(self) -> Array:
        """Devices that hold the same weights, experts and ZeRO's sharding aside."""
        return self.dp * self.cp

    def take(self, which: Any) -> Runs:
        """Some of them, as an array is indexed."""
        pick = {n: {k: v[which] for k, v in getattr(self, n).items()} for n in ("model", "how")}
        return Runs(**pick, first=self.first[which], most=self.most[which], last=self.last[which])


def runs_of(spec: TransformerSpec | Sequence[TransformerSpec], **how: Any) -> Runs:
    """Runs of one model, or of one for each run; columns that are not given have DEGREES' value."""
    unknown = sorted(set(how) - set(DEGREES))
    if unknown:
        raise ValueError(f"There is no column {unknown[0]!r}; columns are {', '.join(DEGREES)}.")
    given = np.broadcast_arrays(*(np.asarray(how.get(k, v), float) for k, v in DEGREES.items()))
    columns = {name: np.atleast_1d(each) for name, each in zip(DEGREES, given, strict=True)}
    number = len(columns["tp"])
    specs = [spec] * number if isinstance(spec, TransformerSpec) else list(spec)
    if len(specs) != number:
        raise ValueError(f"{len(specs)} models were given for {number} runs.")
    table = {one: dataclasses.astuple(shape(one)) for one in dict.fromkeys(specs)}
    rows = np.array([table[one] for one in specs], float)
    names = [field.name for field in dataclasses.fields(Shape)]
    keys = zip(specs, columns["pp"], columns["greedy"], strict=True)
    cuts = np.array([cut(one, int(p), bool(g)) for one, p, g in keys], float)
    return Runs(dict(zip(names, rows.T, strict=True)), columns, *cuts.T)


@functools.lru_cache(maxsize=65536)
def cut(spec: TransformerSpec, p: int, greedy: bool) -> tuple[int, int, int]:
    """Layers of the first of p stages, of the fullest before the last, and of the head's stage.

    Layers are dealt out evenly, the first stages getting one more; or greedily, as nanotron does:
    a stage takes layers, and at the end the head, until it has more than its part of the weights.
    """
    if not greedy:
        each, over = divmod(spec.layers, p)
        return (each + (over > 0), each + (over > 0) if p > 1 else 0, each)
    head = spec.vocab * spec.hidden / shape(spec).weights  # in layers
    parts, stage, done = [0] * p, 0, 0.0
    for block in [*[1.0] * spec.layers, head]:
        done += block
        if block is head:
            break
        parts[stage] += 1
        stage += done > (spec.layers + head) * (stage + 1) / p and stage < p - 1
    others = [n for place, n in enumerate(parts) if place != stage]
    return parts[0], max(others, default=0), parts[stage]


def join(parts: Iterable[Runs]) -> Runs:
    """All runs of several, one after the other."""
    all_of = list(parts)

    def joined(name: str) -> dict[str, Array]:
        columns = [getattr(part, name) for part in all_of]
        return {key: np.concatenate([each[key] for each in columns]) for key in columns[0]}

    stages = (np.concatenate([getattr(r, n) for r in all_of]) for n in ("first", "most", "last"))
    return Runs(joined("model"), joined("how"), *stages)
