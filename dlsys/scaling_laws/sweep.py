"""A sweep of tiny models, trained on this book's own text: the table of what was run and found.

The table lies in sweep.json and the text in tokens.xz, beside this file; bench/scaling_sweep.py
makes them. A token is a piece of the text, one of 346 that 256 merges of byte pairs led to.
"""

from __future__ import annotations

import json
import lzma
import struct
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files
from typing import Any

from dlsys.annotated import checked
from dlsys.checks import counts, fraction, positive, refuse, unknown, whole
from dlsys.checks import text as check_text
from dlsys.plain_data import plain_data
from dlsys.transformer import TransformerSpec

VOCAB, SEQUENCE, BATCH = 346, 64, 2
"""Tokens there are, tokens of a sequence, sequences of a step; the same in every run."""
STEP = BATCH * SEQUENCE
"""Tokens of a step of training."""
BLOCK, HELD_OUT = 512, 10
"""Tokens of a block, and which block in so many is held out: no run trains on it."""
BASE_WIDTH = 16
"""The width at which both parametrizations are one."""

KINDS = ("iso_flop", "held_back", "corrupted", "repeated", "transfer", "seed")
"""What a row is for: see `Row`."""
PARAMETRIZATIONS = ("standard", "mup")


@checked
@plain_data
@dataclass(frozen=True)
class Run:
    """One model and how it is trained: all that its loss follows from, beside the text.

    - `layers`, `hidden`: of a decoder with rotary positions and without biases, whose heads have 8
      numbers (of less width: one head)
    - `tokens`: D, those seen in training, each counted as often as it is seen
    - `unique`: those that are drawn from; tokens / unique is the number of epochs
    - `corrupted`: the share of the training tokens that are random ones instead
    - `learning_rate`: Adam's at its peak, at the base width where `parametrization` is "mup"

    Raises ValueError for runs that cannot be.
    """

    layers: int
    hidden: int
    tokens: int
    learning_rate: float
    unique: int
    corrupted: float = 0.0
    parametrization: str = "standard"
    seed: int = 0

    def __post_init__(self) -> None:
        counts(self, "layers", "hidden", "tokens", "unique")
        positive("learning_rate", self.learning_rate)
        fraction("corrupted", self.corrupted)
        object.__setattr__(self, "seed", whole("seed", self.seed))
        known("parametrization", self.parametrization, PARAMETRIZATIONS)
        for name in ("tokens", "unique"):
            if getattr(self, name) % STEP:
                refuse(name, getattr(self, name), f"a multiple of the {STEP} tokens of a step")
        if self.unique > self.tokens:
            refuse("unique", self.unique, f"at most the {self.tokens:,} tokens that are seen")

    @property
    def epochs(self) -> float:
        """How often each of the `unique` tokens is seen."""
        return self.tokens / self.unique

    @property
    def spec(self) -> TransformerSpec:
        """The model's shape."""
        return TransformerSpec(
            self.layers, self.hidden, max(1, self.hidden // 8), VOCAB, SEQUENCE,
            tied=False, bias=False, norm="rms", positions="rotary",
        )  # fmt: skip


@checked
@plain_data
@dataclass(frozen=True)
class Row:
    """A run and what came out.

    - `kind`: "iso_flop", one of a group of models that share a budget of FLOPs; "held_back", larger
      than all of them; "corrupted"; "repeated", epochs over a quarter of the text; "transfer", for
      the best learning rate by width; "seed", a run of the first kind with another seed
    - `parameters`: N, all of them; `non_embedding`: those of the layers and norms, without the
      token embedding and the head
    - `flops`: of all matrix products of the training, forward and backward
    - `loss`: nats a token on the held-out text, after the last step
    """

    kind: str
    run: Run
    parameters: int
    non_embedding: int
    flops: int
    loss: float

    def __post_init__(self) -> None:
        known("kind", self.kind, KINDS)
        counts(self, "parameters", "non_embedding", "flops")
        positive("loss", self.loss)


@checked
@plain_data
@dataclass(frozen=True)
class Sweep:
    """All rows, and of what text: `tokens` to train on, `held_out` others, their SHA-256."""

    rows: tuple[Row, ...]
    tokens: int
    held_out: int
    sha256: str

    def __post_init__(self) -> None:
        counts(self, "tokens", "held_out")
        check_text("sha256", self.sha256)

    @checked
    def of(self, kind: str) -> tuple[Row, ...]:
        """The rows of one kind; raises ValueError for none of `KINDS`."""
        known("kind", kind, KINDS)
        return tuple(row for row in self.rows if row.kind == kind)


def known(what: str, name: str, names: Sequence[str]) -> None:
    """Check that `name` is one of these names."""
    if name not in names:
        raise ValueError(unknown(what, name, names))


@cache
def tiny_sweep() -> Sweep:
    """The table as bench/scaling_sweep.py made it."""
    held: dict[str, Any] = json.loads(_file("sweep.json").read_text(encoding="utf-8"))
    rows = tuple(map(_row, held.pop("rows")))
    return Sweep(rows, **held)


def _row(held: dict[str, Any]) -> Row:
    run = Run(**{field.name: held.pop(field.name) for field in fields(Run)})
    return Row(run=run, **held)


@cache
def pieces() -> tuple[str, ...]:
    """What each token stands for, in ASCII."""
    return tuple(json.loads(_frozen().split(b"\n", 1)[0]))


@cache
def token_ids() -> tuple[int, ...]:
    """The book's chapters as they were when the sweep was made, as tokens."""
    data = _frozen().split(b"\n", 1)[1]
    return struct.unpack(f"<{len(data) // 2}H", data)


def text() -> str:
    """The chapters themselves."""
    return "".join(map(pieces().__getitem__, token_ids()))


@cache
def _frozen() -> bytes:
    return lzma.decompress(_file("tokens.xz").read_bytes())


def _file(name: str) -> Any:
    return files(__package__).joinpath(name)
