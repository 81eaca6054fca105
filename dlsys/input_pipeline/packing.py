"""Documents into rows of one length: padded, or packed one behind the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from dlsys.annotated import checked
from dlsys.checks import count, some, whole


@checked
def pack(
    documents: Iterable[Sequence[int]], sequence: int, end_of_text: int
) -> Iterator[list[int]]:
    """Rows of `sequence` tokens out of documents one behind the other, `end_of_text` after each.

    No token is lost but those at the very end that fill no row; documents run on from row to row.
    """
    size, end = count("sequence", sequence), whole("end_of_text", end_of_text)
    return _packed(documents, size, end)


def _packed(documents: Iterable[Sequence[int]], size: int, end: int) -> Iterator[list[int]]:
    row: list[int] = []
    for document in documents:
        row += [*document, end]
        for begin in range(0, len(row) - size + 1, size):
            yield row[begin : begin + size]
        row = row[len(row) // size * size :]


@checked
def pad(
    documents: Iterable[Sequence[int]], sequence: int, end_of_text: int, padding: int = -100
) -> Iterator[list[int]]:
    """A row for each document: cut at `sequence` tokens, or filled up with `padding`.

    -100 is what PyTorch's cross-entropy leaves out.
    """
    size, end = count("sequence", sequence), whole("end_of_text", end_of_text)
    fill = whole("padding", padding)
    rows = ([*document, end][:size] for document in documents)
    return (row + [fill] * (size - len(row)) for row in rows)


@checked
def padding_share(lengths: Sequence[int], sequence: int) -> float:
    """The part of all places that `pad` fills with padding: 1 - sum min(length, s) / (rows x s).

    lengths: tokens of each document, its end-of-text among them.
    """
    some("lengths", lengths)
    size = count("sequence", sequence)
    used = sum(min(size, count("A length of lengths", each)) for each in lengths)
    return 1 - used / (size * len(lengths))
