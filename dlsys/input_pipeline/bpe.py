"""Byte-pair encoding: a vocabulary of byte strings, learnt by merging the most frequent pair.

After Sennrich, Haddow and Birch (2016), on bytes as in GPT-2, so that every text has a code.
Merges never cross words, and a word has at most 33 bytes, so that time grows with the text.
"""

from __future__ import annotations

import heapq
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise

from dlsys.annotated import checked
from dlsys.checks import count

WORD = re.compile(rb" ?\S{1,32}|\s{1,32}")
"""A run without white space, with one blank before it, or a run of white space."""
BYTES = 256
MOST_MERGES = 10**6
Pair = tuple[int, int]


class Tokenizer:
    """Bytes to tokens and back: tokens 0 to 255 are bytes, token 256 + i is what merge i joins.

    The last token, `end_of_text`, stands for no bytes; `vocab` counts it.
    """

    @checked
    def __init__(self, merges: Sequence[Pair] = ()) -> None:
        self.merges: list[Pair] = [(first, second) for first, second in merges]
        self.pieces = [bytes([byte]) for byte in range(BYTES)]
        for pair in self.merges:
            parts = [count("A token of merges", each, 0, len(self.pieces) - 1) for each in pair]
            self.pieces.append(b"".join(self.pieces[part] for part in parts))
        self._rank = {pair: rank for rank, pair in enumerate(self.merges)}
        self._known: dict[bytes, list[int]] = {}

    @property
    def vocab(self) -> int:
        """How many tokens there are."""
        return len(self.pieces) + 1

    @property
    def end_of_text(self) -> int:
        """The token that ends a document."""
        return len(self.pieces)

    @checked
    def encode(self, text: bytes | str) -> list[int]:
        """The tokens of bytes, or of text as UTF-8: in each word, the earliest merge first."""
        data = text.encode() if isinstance(text, str) else text
        return [token for word in WORD.findall(data) for token in self._word(word)]

    @checked
    def decode(self, tokens: Iterable[int]) -> bytes:
        """The bytes of tokens; raises ValueError for a number that is none."""
        numbers = [count("A token of tokens", token, 0, self.end_of_text) for token in tokens]
        return b"".join(self.pieces[n] for n in numbers if n != self.end_of_text)

    def _word(self, word: bytes) -> list[int]:
        if word not in self._known:
            tokens, last = [*word], len(self.merges)
            while len(tokens) > 1:
                rank = min(self._rank.get(pair, last) for pair in pairwise(tokens))
                if rank == last:
                    break
                tokens = joined(tokens, self.merges[rank], BYTES + rank)
            self._known[word] = tokens
        return self._known[word]


@checked
def train_tokenizer(text: bytes | str, merges: int) -> Tokenizer:
    """Learn at most so many merges: each time the most frequent pair, of equals the smallest.

    Counts change only in the words that have the pair; a heap knows the largest, old entries of
    which are put right when they come up. Takes time in proportion to the text and its merges.
    """
    data, number = text.encode() if isinstance(text, str) else text, count("merges", merges, 0)
    count("merges", merges, 0, MOST_MERGES)
    found = Counter(WORD.findall(data))
    words, times = [[*word] for word in found], [*found.values()]
    counts: Counter[Pair] = Counter()
    where: defaultdict[Pair, set[int]] = defaultdict(set)
    for i, word in enumerate(words):
        for pair in pairwise(word):
            counts[pair] += times[i]
            where[pair].add(i)
    heap, learnt = [(-n, pair) for pair, n in counts.items()], list[Pair]()
    heapq.heapify(heap)
    while heap and len(learnt) < number:
        n, pair = heapq.heappop(heap)
        if counts[pair] != -n:  # it has been counted anew since
            if counts[pair]:
                heapq.heappush(heap, (-counts[pair], pair))
            continue
        learnt.append(pair)
        for changed in _merge(pair, BYTES + len(learnt) - 1, words, times, counts, where):
            heapq.heappush(heap, (-counts[changed], changed))
    return Tokenizer(learnt)


def _merge(
    pair: Pair,
    token: int,
    words: list[list[int]],
    times: list[int],
    counts: Counter[Pair],
    where: defaultdict[Pair, set[int]],
) -> set[Pair]:
    """Join a pair wherever it is; returns the pairs that there are more of now."""
    grown = set()
    for i in where.pop(pair):
        for old in pairwise(words[i]):
            counts[old] -= times[i]
        words[i] = joined(words[i], pair, token)
        for new in pairwise(words[i]):
            counts[new] += times[i]
            where[new].add(i)
            grown |= {new} if token in new else set()
    del counts[pair]
    return grown


def joined(tokens: Sequence[int], pair: Pair, token: int) -> list[int]:
    """Tokens with each occurrence of `pair`, from the left, replaced by `token`."""
    out: list[int] = []
    for each in tokens:
        if out and (out[-1], each) == pair:
            out[-1] = token
        else:
            out.append(each)
    return out
