"""What one layer's attention costs when ranks share its tokens: bytes, seconds and memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Literal

from dlsys.annotated import checked
from dlsys.checks import count, divisor, positive, refuse
from dlsys.collectives import Plan, best, plan_for
from dlsys.context_parallel.plan import Layout
from dlsys.hardware import Cluster, Link
from dlsys.network import Network
from dlsys.streams import Span
from dlsys.transformer import TransformerSpec

Method = Literal["ring", "ulysses", "gathered"]
FORWARD, BACKWARD = 4, 10
"""FLOPs for a score and a number of its head: two products forward, five backward."""


@dataclass(frozen=True)
class Pass:
    """A forward or a backward pass of one layer's attention.

    - compute: what each rank computes, in order; the action of a span is the owner of the keys.
    - seconds: until the last rank is done.
    - bytes_per_rank: that the busiest rank sends.
    - buffer_bytes: what a rank has, at most, of other ranks' tensors or of its own swapped ones.
    """

    compute: tuple[tuple[Span, ...], ...]
    seconds: float
    bytes_per_rank: float
    buffer_bytes: int

    @property
    def compute_seconds(self) -> float:
        """What the busiest rank computes."""
        return max(sum(span.seconds for span in spans) for spans in self.compute)

    @property
    def exposed_seconds(self) -> float:
        """What waiting adds to that."""
        return self.seconds - self.compute_seconds


@dataclass(frozen=True)
class Price:
    """Both passes of one layer's attention."""

    forward: Pass
    backward: Pass

    @property
    def seconds(self) -> float:
        """Of both passes."""
        return self.forward.seconds + self.backward.seconds

    @property
    def bytes_per_rank(self) -> float:
        """Of both passes."""
        return self.forward.bytes_per_rank + self.backward.bytes_per_rank


@checked
def price(
    layout: Layout,
    spec: TransformerSpec,
    where: Link | Cluster,
    method: Method = "ring",
    rate: float | None = None,
    batch: int = 1,
    itemsize: int = 2,
    overlap: bool = True,
    whole_blocks: bool = False,
    algorithm: Literal["best", "default"] = "best",
) -> Price:
    """The price of causal attention in one layer of `spec`, for `batch` sequences of the layout.

    - where: the link or the cluster of the layout's ranks.
    - rate: FLOP/s that a device reaches in attention; None: the BF16 peak of the cluster's device.
    - overlap: whether the ring computes while keys are on their way. What the other two methods
      send nothing hides, because no rank can begin without it.
    - whole_blocks: whether a pair of chunks of which any score is seen is computed whole, as
      `attend` does. A kernel with small tiles skips what a mask hides.
    - algorithm: of collectives, the "best" of those that fit, or the "default" of a communicator.

    The ring sends keys and values n - 1 times, once more in backward, and their gradients n times.
    Gathering sends (n-1)/n of all ranks' keys and values, once more in backward, and as much for
    gradients. Ulysses sends (n-1)/n of a rank's queries, keys, values and results, and once more in
    backward. Raises ValueError where Ulysses cannot share out the heads.
    """
    itemsize, batch = count("itemsize", itemsize), count("batch", batch)
    if rate is None:
        if not isinstance(where, Cluster):
            refuse("rate", rate, "given with a link; the device of a cluster has one")
        rate = where.device.rate("bf16")
    positive("rate", rate)
    if method == "ulysses":
        check_heads(spec, layout.ranks)
    run = _Run(
        layout,
        spec,
        where,
        batch * spec.head_size / rate,
        batch * itemsize,
        whole_blocks,
        algorithm,
    )
    if method == "ring":
        return Price(run.ring(FORWARD, overlap), run.ring(BACKWARD, overlap))
    one = run.gathered if method == "gathered" else run.ulysses
    return Price(one(FORWARD), one(BACKWARD))


def check_heads(spec: TransformerSpec, ranks: int) -> None:
    """Raise ValueError where Ulysses cannot give every rank as many heads."""
    divisor("Ulysses degree", ranks, {"heads": spec.heads}, {"key-value heads": spec.kv_heads})


@dataclass(frozen=True)
class _Run:
    """A layer's attention, and how long and how large its parts are."""

    layout: Layout
    spec: TransformerSpec
    where: Link | Cluster
    second: float  # for a FLOP of every number of one head
    unit: int  # bytes of one number of every sequence
    whole_blocks: bool
    algorithm: str

    def compute(self, layout: Layout, mine: int, owner: int, flops: int) -> float:
        """Seconds of the scores of one head of a rank's queries and another's keys."""
        scores = layout.computed if self.whole_blocks else layout.scores
        return flops * self.second * scores(mine, owner)

    def nbytes(self, tokens: int, heads: int) -> int:
        """Of a tensor of so many tokens and heads."""
        return tokens * heads * self.spec.head_size * self.unit

    def ring(self, flops: int, overlap: bool) -> Pass:
        """A rank goes on when it has computed and the next keys have come.

        Its messages take its link one after the other. In backward the gradients leave when what it
        has found for some keys is added to what came, and come home after the last step.
        """
        n, layout, heads = self.layout.ranks, self.layout, 2 * self.spec.kv_heads
        spans: list[list[Span]] = [[] for _ in range(n)]
        network, sent = Network(n, self.where), [0] * n
        start, added = [0.0] * n, [0.0] * n

        def carried(since: list[float], tokens: list[int]) -> list[float]:
            """When each rank's message has gone and its left neighbor's has come."""
            end = []
            for r in range(n):
                right, nbytes = (r + 1) % n, self.nbytes(tokens[r], heads)
                ready = max(since[r], since[right])  # one sends and the other receives
                end.append(network.transfer(r, right, nbytes, ready)[1])
                sent[r] += nbytes
            return [max(end[r], end[r - 1]) for r in range(n)]

        for step in range(n):
            owner = [(r - step) % n for r in range(n)]
            tokens = [layout.tokens(one) for one in owner]
            passed = carried(start, tokens) if step < n - 1 else start
            end = []
            for r, begin in enumerate(start if overlap else passed):
                took = self.spec.heads * self.compute(layout, r, owner[r], flops)
                spans[r].append(Span(owner[r], begin, begin + took))
                end.append(begin + took)
            if flops == BACKWARD and n > 1:
                end = [*map(max, end, added)]
                added = carried(end, tokens)
                end = end if overlap else added
            start = [*map(max, end, passed)]
        blocks = min(n - 1, 2)  # of keys, here and arriving
        if flops == BACKWARD and n > 1:
            blocks += 3  # of gradients: leaving, arriving, and what this rank adds
        return Pass(
            tuple(map(tuple, spans)),
            max(*start, *added),
            max(sent),
            blocks * self.nbytes(self.layout.most, heads),
        )

    def gathered(self, flops: int) -> Pass:
        """Gather all keys and values, compute, and in backward reduce their gradients."""
        n, heads = self.layout.ranks, self.spec.heads
        everything = self.nbytes(n * self.layout.most, 2 * self.spec.kv_heads)
        after = [("reduce_scatter", everything)] if flops == BACKWARD else []
        work = [
            [(owner, heads * self.compute(self.layout, r, owner, flops)) for owner in range(n)]
            for r in range(n)
        ]
        return self.between([("all_gather", everything)], work, after)

    def ulysses(self, flops: int) -> Pass:
        """Swap tokens for heads, compute all scores of some heads, and swap the results back."""
        n, spec = self.layout.ranks, self.spec
        there = [
            ("all_to_all", self.nbytes(self.layout.most, heads))
            for heads in (spec.heads, *2 * [max(n, spec.kv_heads)])
        ]
        back = there[:1]
        one = spec.heads // n * self.compute(self.layout.whole(), 0, 0, flops)
        work = [[(r, one)] for r in range(n)]
        if flops == FORWARD:
            return self.between(there, work, back)
        found = self.between(back, work, there)
        return replace(found, buffer_bytes=2 * found.buffer_bytes)  # forward's are there still

    def between(
        self,
        before: list[tuple[str, int]],
        work: list[list[tuple[int, float]]],
        after: list[tuple[str, int]],
    ) -> Pass:
        """Collectives, by kind and bytes of the buffer, then what each rank computes, then more."""
        prices = [self.plan(*each).price(each[1], self.where) for each in before + after]
        first = sum(price.seconds for price in prices[: len(before)])
        compute = []
        for parts in work:
            ends = accumulate((seconds for _, seconds in parts), initial=first)
            compute.append(
                tuple(
                    Span(owner, *both)
                    for (owner, _), both in zip(parts, pairwise(ends), strict=True)
                )
            )
        last = max(spans[-1].end for spans in compute)
        return Pass(
            tuple(compute),
            last + sum(price.seconds for price in prices[len(before) :]),
            sum(price.bytes_per_rank for price in prices),
            sum(nbytes for _, nbytes in before + after),
        )

    def plan(self, kind: str, nbytes: int) -> Plan:
        """The plan of a collective."""
        n = self.layout.ranks
        if self.algorithm == "default":
            return plan_for(kind, n)
        return best(kind, nbytes, self.where, n)
