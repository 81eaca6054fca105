"""Which copies of tokens go from which rank to which, as numbers."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dlsys.annotated import checked
from dlsys.checks import at_least, count, divisor, refuse, some, whole
from dlsys.plain_data import plain_data

if TYPE_CHECKING:
    from dlsys.expert_parallel.price import Price


_MOST = 2**20  # tokens, or experts, that are drawn


class DispatchError(ValueError):
    """A dispatch that no tokens and experts have."""


@plain_data
@dataclass(frozen=True)
class Dispatch:
    """`copies[src][dst]`: how many copies of rank src's tokens the experts of rank dst read.

    `nodes[src][node]`: how many of its tokens have a copy on that node. Ranks and experts are
    numbered node by node.
    """

    copies: tuple[tuple[int, ...], ...]
    nodes: tuple[tuple[int, ...], ...]

    @property
    def ranks(self) -> int:
        """How many ranks share the experts."""
        return len(self.copies)

    @property
    def devices_per_node(self) -> int:
        """How many ranks a node has."""
        return self.ranks // len(self.nodes[0])

    @property
    def read(self) -> list[int]:
        """Copies that the experts of each rank read."""
        return [sum(column) for column in zip(*self.copies, strict=True)]

    @property
    def imbalance(self) -> float:
        """The most that a rank reads over the mean: how much longer all wait for its experts."""
        return max(self.read) * self.ranks / (sum(self.read) or 1)

    @property
    def leaving(self) -> int:
        """Copies whose expert is on another rank."""
        return sum(self.read) - sum(self.copies[rank][rank] for rank in range(self.ranks))

    @checked
    def times(self, factor: int) -> Dispatch:
        """The dispatch of so many times the tokens, all of which choose as these do."""
        factor = count("factor", factor)
        copies, nodes = (
            tuple(tuple(factor * number for number in row) for row in table)
            for table in (self.copies, self.nodes)
        )
        return Dispatch(copies, nodes)

    def check(self) -> None:
        """Raise DispatchError for numbers that no tokens have."""
        n, size = self.ranks, self.devices_per_node
        for src, (copies, nodes) in enumerate(zip(self.copies, self.nodes, strict=True)):
            if len(copies) != n or len(nodes) * size != n or min(*copies, *nodes) < 0:
                raise DispatchError(
                    f"rank {src} has copies for {len(copies)} ranks and tokens for {len(nodes)} "
                    f"nodes; there are {n} ranks on {n // size} nodes, and no number is below 0."
                )
            for node, tokens in enumerate(nodes):
                there = sum(copies[node * size : (node + 1) * size])
                if tokens > there or (there and not tokens):
                    raise DispatchError(
                        f"rank {src} has {tokens} tokens with a copy on node {node}, which reads "
                        f"{there} of its copies."
                    )

    def price(self, *args: Any, **options: Any) -> Price:
        """Bytes and seconds of a layer's exchanges; see `price.price`."""
        from dlsys.expert_parallel.price import price

        return price(self, *args, **options)


@checked
def count_copies(
    choices: Sequence[Sequence[Sequence[int]]], experts: int, devices_per_node: int | None = None
) -> Dispatch:
    """The dispatch of what each rank's tokens have chosen: choices[rank][token] are its experts.

    Experts are numbers below `experts`; one that is not, as that of a dropped copy, is nobody.
    `devices_per_node` None: one node. Raises ValueError where ranks do not share out the experts
    evenly, or nodes the ranks.
    """
    some("choices", choices)
    n, experts = len(choices), count("experts", experts)
    held = experts // divisor("number of ranks", n, {"experts": experts})
    size = n if devices_per_node is None else count("devices_per_node", devices_per_node)
    if n % size:
        refuse("devices_per_node", size, f"a divisor of the {n} ranks")
    copies = [[0] * n for _ in range(n)]
    nodes = [[0] * (n // size) for _ in range(n)]
    for src, tokens in enumerate(choices):
        for chosen in tokens:
            numbers = [count("an expert of choices", e, 0) for e in chosen]
            ranks = [e // held for e in numbers if e < experts]
            for dst in ranks:
                copies[src][dst] += 1
            for node in {dst // size for dst in ranks}:
                nodes[src][node] += 1
    return Dispatch(tuple(map(tuple, copies)), tuple(map(tuple, nodes)))


@checked
def drawn(
    tokens: int,
    experts: int,
    k: int,
    ranks: int,
    skew: float = 0.0,
    devices_per_node: int | None = None,
    most_nodes: int | None = None,
    seed: int = 0,
) -> Dispatch:
    """The dispatch of `tokens` tokens a rank that draw k different experts each.

    The i-th most popular expert is drawn with a weight of i^-skew (0: all alike); which one that
    is, is drawn, too. `most_nodes` limits the nodes of a token as `routing.choose_near` does.
    Raises ValueError as `count_copies` does, and for more experts a token than its nodes have.
    """
    tokens, experts = (
        count(name, number, most=_MOST)
        for name, number in (("tokens", tokens), ("experts", experts))
    )
    n, seed = divisor("number of ranks", ranks, {"experts": experts}), whole("seed", seed)
    k = count("k", k, most=experts)
    at_least("skew", skew, 0)
    nodes = n // (n if devices_per_node is None else count("devices_per_node", devices_per_node))
    most = nodes if most_nodes is None else count("most_nodes", most_nodes, most=max(nodes, 1))
    stream = random.Random(seed)
    rare = [skew * math.log(i) for i in range(1, experts + 1)]
    stream.shuffle(rare)
    size = experts // max(nodes, 1)
    if k > most * size and nodes:
        refuse("most_nodes", most, f"enough for {k} experts a token, of {size} on each node")
    log, uniform = math.log, stream.random

    def choose() -> list[int]:
        if not skew and most >= nodes:
            return stream.sample(range(experts), k)
        # The k smallest log(-log u) - log w are a draw by weights w. Kool et al. 1903.06059.
        keys = [log(-log(1.0 - uniform())) + weight for weight in rare]
        allowed: Iterable[int] = range(experts)
        if most < nodes:
            best = [
                sorted(keys[i : i + size])[: max(1, k // most)] for i in range(0, experts, size)
            ]
            near = sorted(range(nodes), key=[*map(sum, best)].__getitem__)[:most]
            allowed = (e for node in near for e in range(node * size, (node + 1) * size))
        return sorted(allowed, key=keys.__getitem__)[:k]

    choices = [[choose() for _ in range(tokens)] for _ in range(n)]
    return count_copies(choices, experts, devices_per_node)
