"""A file of tokens, nothing else: mapped into memory, and read without a copy."""

from __future__ import annotations

import mmap
from collections.abc import Iterable
from os import PathLike
from typing import Any

import torch
from torch import Tensor

from dlsys.annotated import checked
from dlsys.checks import count, refuse, some
from dlsys.files import written
from dlsys.input_pipeline.records import found

WIDTHS = {2: torch.uint16, 4: torch.int32}
"""Bytes of a token, and what they are to torch: 2 for up to 65,536 tokens, else 4."""


def token_bytes(vocab: int) -> int:
    """Bytes that a token of a vocabulary of this size takes in a file; raises ValueError."""
    return 2 if count("vocab", vocab, most=2**31) <= 2**16 else 4


@checked
def write_tokens(path: str | PathLike, tokens: Iterable[int], vocab: int) -> int:
    """Write tokens as a `.bin` of nanoGPT or Megatron has them; returns how many."""
    width = token_bytes(vocab)
    values = torch.tensor([count("A token of tokens", t, 0, vocab - 1) for t in tokens])
    with written(path) as file:
        file.write(values.to(WIDTHS[width]).view(torch.uint8).numpy().tobytes())
    return len(values)


class TokenFile:
    """Rows of `sequence` + 1 tokens out of a mapped file: inputs, and targets one token on.

    Row i begins at token i x sequence, so each token is a target once. A row is a view of the map:
    none of it is copied, and no page of the file is read, before its tokens are.
    """

    @checked
    def __init__(self, path: str | PathLike, sequence: int, vocab: int) -> None:
        self.sequence, width = count("sequence", sequence), token_bytes(vocab)
        with open(found(path), "rb") as file:
            if file.seek(0, 2) < (self.sequence + 1) * width:
                refuse("sequence", sequence, "so short that the file has a row and a token")
            # Private: torch is told that it may be written to, which nobody does.
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        self.tokens: Tensor = torch.frombuffer(self._map, dtype=WIDTHS[width])

    def __len__(self) -> int:
        return (len(self.tokens) - 1) // self.sequence

    def __getitem__(self, i: int) -> Tensor:
        """Tokens (sequence + 1,) of row i, in the file's own type."""
        begin = count("A row of rows", i, 0, len(self) - 1) * self.sequence
        return self.tokens[begin : begin + self.sequence + 1]

    @checked
    def batch(self, rows: Iterable[int]) -> tuple[Tensor, Tensor]:
        """Inputs and targets (rows, sequence), int64, as an embedding wants them: the one copy."""
        some("rows", rows := list(rows))
        both: Any = torch.stack([self[i] for i in rows]).long()
        return both[:, :-1], both[:, 1:]
