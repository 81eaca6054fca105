"""FlashAttention, forward and backward: tile by tile through a fast memory that counts what moves.

q is (lanes, g, queries, d), k and v are (lanes, keys, d): a lane is a head of keys and values, with
its g query heads, whose queries are taken together. Numbers of 16 bits are computed with in 32.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from dlsys.attention.memory import FastMemory
from dlsys.attention.plan import QUERIES, Schedule, Step


def forward(
    schedule: Schedule, q: Tensor, k: Tensor, v: Tensor, scale: float, memory: FastMemory
) -> tuple[Tensor, Tensor]:
    """The result (lanes, g, queries, d) and the log-sum-exp (lanes, g, queries) of each query.

    Dao 2023 (arXiv 2307.08691), algorithm 1, with queries outside; with keys outside the unfinished
    sums wait in slow memory, as in Dao et al. 2022 (arXiv 2205.14135), algorithm 1.
    """
    run = _Forward(schedule, q, k, v, scale, memory)
    visits = _visits(schedule)
    for visit in visits:
        run.visit(visit)
    run.write_unvisited({visit.step.queries for visit in visits})
    return run.out, run.lse


def backward(
    schedule: Schedule,
    saved: tuple[Tensor, Tensor, Tensor, Tensor, Tensor],
    grad: Tensor,
    scale: float,
    memory: FastMemory,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of q, k and v, of what forward saved (q, k, v, result, log-sum-exp).

    With P = exp(x - lse) and D = rowsum(dO * O): dV = P^T dO, dS = P * (dO V^T - D),
    dQ = dS K * scale, dK = dS^T Q * scale. Dao et al. 2022 (arXiv 2205.14135), algorithm 4.
    """
    run = _Backward(schedule, saved, grad, scale, memory)
    visits = _visits(schedule)
    for visit in visits:
        run.visit(visit)
    run.write_unvisited(visits)
    return run.dq, run.dk, run.dv


class _Side(NamedTuple):
    """What becomes of a step's tile of queries, or of keys."""

    enters: bool  # it is loaded
    leaves: bool
    first: bool  # never visited before
    last: bool  # and never again


class _Visit(NamedTuple):
    """A step, and what becomes of its two tiles."""

    step: Step
    rows: _Side
    columns: _Side


def _visits(schedule: Schedule) -> list[_Visit]:
    steps = [*enumerate(schedule.steps)]
    outer = 0 if schedule.outer == QUERIES else 1
    first = [{step[side]: n for n, step in reversed(steps)} for side in (0, 1)]
    last = [{step[side]: n for n, step in steps} for side in (0, 1)]

    def side(which: int, n: int, step: Step) -> _Side:
        begins, ends = first[which][step[which]] == n, last[which][step[which]] == n
        passes = which != outer  # what does not stay comes and goes with every step
        return _Side(begins or passes, ends or passes, begins, ends)

    return [_Visit(step, side(0, n, step), side(1, n, step)) for n, step in steps]


class _Tiles:
    """What both passes share: tiles of tensors in slow memory, and scores of a tile."""

    def __init__(
        self, schedule: Schedule, q: Tensor, k: Tensor, v: Tensor, scale: float, memory: FastMemory
    ) -> None:
        self.tiling, self.memory, self.scale = schedule.tiling, memory, scale
        self.q, self.k, self.v = q, k, v
        self.type = torch.promote_types(q.dtype, torch.float32)

    def rows(self, x: Tensor, tile: int) -> Tensor:
        """A tile of queries' part of x (lanes, g, queries[, d])."""
        span = self.tiling.rows(tile)
        return x[:, :, span.start : span.stop]

    def columns(self, x: Tensor, tile: int) -> Tensor:
        """A tile of keys' part of x (lanes, keys, d)."""
        span = self.tiling.columns(tile)
        return x[:, span.start : span.stop]

    def load_rows(self, x: Tensor, tile: int) -> Tensor:
        """(lanes, g * rows[, d]): the group's queries, one below the other."""
        return self.memory.load(self.rows(x, tile).flatten(1, 2).to(self.type))

    def load_columns(self, x: Tensor, tile: int) -> Tensor:
        """(lanes, columns, d)."""
        return self.memory.load(self.columns(x, tile).to(self.type))

    def store_rows(self, fast: Tensor, x: Tensor, tile: int) -> None:
        """Write (lanes, g * rows[, d]) to its part of x."""
        place = self.rows(x, tile)
        self.memory.store(fast.unflatten(1, place.shape[1:3]), place)

    def scores(self, q: Tensor, k: Tensor, step: Step) -> Tensor:
        """q k^T * scale (lanes, g * rows, columns); -inf where the mask forbids."""
        scores = self.memory.keep(torch.bmm(q, k.mT))
        scores *= self.scale
        if self.tiling.is_cut(step):
            rows = torch.tensor(self.tiling.rows(step.queries))
            columns = torch.tensor(self.tiling.columns(step.keys))
            forbidden = columns > rows[:, None] + (self.tiling.offset or 0)
            by_head = scores.unflatten(1, (-1, len(rows)))
            by_head.masked_fill_(forbidden.to(scores.device), -torch.inf)
        return scores


class _Forward(_Tiles):
    """The forward pass: a tile of queries has sums, a maximum and a total that grow with keys."""

    def __init__(
        self, schedule: Schedule, q: Tensor, k: Tensor, v: Tensor, scale: float, memory: FastMemory
    ) -> None:
        super().__init__(schedule, q, k, v, scale, memory)
        self.out = torch.empty_like(self.q, memory_format=torch.contiguous_format)
        self.lse = self.out.new_empty(self.q.shape[:-1], dtype=self.type)
        if schedule.outer != QUERIES:  # where unfinished sums wait, unrounded
            self.sums = torch.empty_like(self.out, dtype=self.type)
            self.maxima, self.totals = torch.empty_like(self.lse), torch.empty_like(self.lse)

    def visit(self, visit: _Visit) -> None:
        i, j = visit.step
        if visit.rows.enters:
            self.tile = self.begin(i) if visit.rows.first else self.resume(i)
        if visit.columns.enters:
            self.kv = self.load_columns(self.k, j), self.load_columns(self.v, j)
        self.absorb(visit.step)
        if visit.columns.leaves:
            self.memory.free(*self.kv)
        if visit.rows.leaves:
            (self.finish if visit.rows.last else self.put_aside)(i)

    def begin(self, i: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        q = self.load_rows(self.q, i)
        keep, lowest = self.memory.keep, torch.finfo(self.type).min
        # The lowest number, not -inf: the difference of two such maxima is 0.
        return (
            q,
            keep(torch.zeros_like(q)),
            keep(q.new_full(q.shape[:2], lowest)),
            keep(q.new_zeros(q.shape[:2])),
        )

    def resume(self, i: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        waiting = (self.q, self.sums, self.maxima, self.totals)
        q, sums, maxima, totals = (self.load_rows(x, i) for x in waiting)
        return q, sums, maxima, totals

    def absorb(self, step: Step) -> None:
        """Merge a tile of keys into the sums: those so far shrink by exp(old - new maximum)."""
        q, sums, maxima, totals = self.tile
        k, v = self.kv
        scores = self.scores(q, k, step)
        new = torch.maximum(maxima, scores.amax(-1))
        weights = scores.sub_(new[..., None]).exp_()
        shrink = torch.exp(maxima - new)
        sums = sums.mul_(shrink[..., None]).baddbmm_(weights, v)
        self.tile = q, sums, new, totals.mul_(shrink).add_(weights.sum(-1))
        self.memory.free(weights)

    def finish(self, i: int) -> None:
        """Divide once, and keep one number a query for backward."""
        _, sums, maxima, totals = self.tile
        # A query that saw no key has a total of 0, and the result 0.
        self.store_rows(sums.div_(totals.masked_fill(totals == 0, 1.0)[..., None]), self.out, i)
        self.store_rows(maxima + totals.log(), self.lse, i)
        self.memory.free(*self.tile)

    def put_aside(self, i: int) -> None:
        _, *state = self.tile
        for fast, slow in zip(state, (self.sums, self.maxima, self.totals), strict=True):
            self.store_rows(fast, slow, i)
        self.memory.free(*self.tile)

    def write_unvisited(self, visited: set[int]) -> None:
        for i in range(self.tiling.query_tiles):
            if i not in visited:
                for x, value in ((self.out, 0.0), (self.lse, -torch.inf)):
                    place = self.rows(x, i)
                    self.memory.store(torch.full_like(place, value), place)


class _Backward(_Tiles):
    """The backward pass: scores are made once more, tile by tile."""

    def __init__(
        self,
        schedule: Schedule,
        saved: tuple[Tensor, Tensor, Tensor, Tensor, Tensor],
        grad: Tensor,
        scale: float,
        memory: FastMemory,
    ) -> None:
        q, k, v, out, lse = saved
        super().__init__(schedule, q, k, v, scale, memory)
        self.grad = grad
        # exp(x - inf) is 0: a query without keys has no weights.
        self.lse = lse.masked_fill(lse == -torch.inf, torch.inf)
        self.delta = torch.empty_like(lse)
        for i in range(self.tiling.query_tiles):
            parts = self.load_rows(out, i), self.load_rows(grad, i)
            self.store_rows((parts[0] * parts[1]).sum(-1), self.delta, i)
            memory.free(*parts)
        # Sums over tiles that leave fast memory in between are not rounded to 16 bits there.
        self.dq = torch.empty(q.shape, dtype=self.type, device=q.device)
        self.dk, self.dv = (torch.empty(x.shape, dtype=self.type, device=x.device) for x in (k, v))

    def visit(self, visit: _Visit) -> None:
        i, j = visit.step
        if visit.rows.enters:
            self.of_rows = [self.load_rows(x, i) for x in (self.q, self.grad, self.lse, self.delta)]
            dq = self.rows(self.dq, i).flatten(1, 2)
            self.dq_tile = self.sum_so_far(self.of_rows[0], dq, visit.rows)
        if visit.columns.enters:
            self.of_columns = [self.load_columns(x, j) for x in (self.k, self.v)]
            self.d_columns = [
                self.sum_so_far(self.of_columns[0], self.columns(x, j), visit.columns)
                for x in (self.dk, self.dv)
            ]
        self.absorb(visit.step)
        if visit.rows.leaves:
            self.store_rows(self.dq_tile, self.dq, i)
            self.memory.free(*self.of_rows, self.dq_tile)
        if visit.columns.leaves:
            for fast, slow in zip(self.d_columns, (self.dk, self.dv), strict=True):
                self.memory.store(fast, self.columns(slow, j))
            self.memory.free(*self.of_columns, *self.d_columns)

    def sum_so_far(self, like: Tensor, slow: Tensor, side: _Side) -> Tensor:
        """A gradient in fast memory: 0 at first, later what waits in slow memory."""
        if side.first:
            return self.memory.keep(torch.zeros_like(like))
        return self.memory.load(slow)

    def absorb(self, step: Step) -> None:
        q, grad, lse, delta = self.of_rows
        k, v = self.of_columns
        dk, dv = self.d_columns
        weights = self.scores(q, k, step).sub_(lse[..., None]).exp_()
        dv.baddbmm_(weights.mT, grad)
        d_scores = self.memory.keep(torch.bmm(grad, v.mT))
        d_scores.sub_(delta[..., None]).mul_(weights)
        self.dq_tile.baddbmm_(d_scores, k, alpha=self.scale)
        dk.baddbmm_(d_scores.mT, q, alpha=self.scale)
        self.memory.free(weights, d_scores)

    def write_unvisited(self, visits: list[_Visit]) -> None:
        """Zeros where a query has no key or a key no query."""
        rows, columns = ({visit.step[side] for visit in visits} for side in (0, 1))
        places = [self.rows(self.dq, i) for i in range(self.tiling.query_tiles) if i not in rows]
        for j in range(self.tiling.key_tiles):
            if j not in columns:
                places += [self.columns(x, j) for x in (self.dk, self.dv)]
        for place in places:
            self.memory.store(torch.zeros_like(place), place)
