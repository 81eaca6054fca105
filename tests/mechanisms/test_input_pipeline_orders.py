"""Orders of samples: everything once, the law of shuffle buffers, resuming exactly, and who reads what."""

from __future__ import annotations

import itertools
import json
import random
import re
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DistributedSampler

from dlsys.input_pipeline import (
    ResumableOrder,
    ShuffleBuffer,
    buffer_needed,
    dealt,
    dealt_evenly,
    displacements,
    mean_displacement,
    permutation,
    run_mates,
    seeks,
    shard_order,
)


@given(st.integers(0, 200), st.integers(-5, 5), st.integers(0, 5))
def test_a_permutation_has_every_sample_once_and_is_another_in_each_epoch(samples, seed, epoch):
    order = permutation(samples, seed, epoch)
    assert sorted(order) == list(range(samples))
    assert order == permutation(samples, seed, epoch)
    if samples > 20:
        assert order not in (permutation(samples, seed, epoch + 1), permutation(samples, seed + 1))


def test_epoch_1_of_seed_0_is_not_epoch_0_of_seed_1():
    assert permutation(50, 0, 1) != permutation(50, 1, 0)


def test_every_permutation_is_equally_likely():
    found = Counter(tuple(permutation(3, seed)) for seed in range(6000))
    assert len(found) == 6
    assert all(abs(n - 1000) < 5 * 1000**0.5 for n in found.values())


@given(st.integers(1, 40), st.integers(0, 100), st.integers(0, 9))
def test_a_shuffle_buffer_gives_every_item_once_and_none_too_early(size, items, seed):
    order = list(ShuffleBuffer(size, seed).shuffle(range(items)))
    assert sorted(order) == list(range(items))
    assert min([0, *displacements(order)]) > -size


def test_a_buffer_as_large_as_the_data_gives_every_permutation_and_one_of_1_none():
    found = Counter(tuple(ShuffleBuffer(3, seed).shuffle(range(3))) for seed in range(6000))
    assert len(found) == 6
    assert all(abs(n - 1000) < 5 * 1000**0.5 for n in found.values())
    assert list(ShuffleBuffer(1).shuffle(range(9))) == list(range(9))


@pytest.mark.parametrize("size", [2, 10, 100])
def test_a_buffer_moves_samples_by_a_geometric_number_of_places(size):
    n = 60_000
    moved = displacements(list(ShuffleBuffer(size, 7).shuffle(range(n))))[size : -20 * size]
    mean = sum(map(abs, moved)) / len(moved)
    assert mean == pytest.approx(mean_displacement(size), rel=0.03)
    for x in (-size // 2, 0, size, 2 * size):
        later = sum(d > x for d in moved) / len(moved)
        assert later == pytest.approx((1 - 1 / size) ** (x + size), abs=0.01)


def test_a_buffer_moves_by_three_quarters_of_its_size_and_a_permutation_by_a_third_of_the_data():
    assert mean_displacement(1) == 0
    assert mean_displacement(10_000) / 10_000 == pytest.approx(0.736, abs=0.001)
    moved = displacements(permutation(30_000))
    assert sum(map(abs, moved)) / len(moved) == pytest.approx(10_000, rel=0.02)


def mates(order: list[int], run: int, batch: int) -> float:
    """Others of its run that a sample has in its batch, counted."""
    batches = [
        Counter(row // run for row in order[k : k + batch])
        for k in range(0, len(order) - batch + 1, batch)
    ]
    return sum(n * (n - 1) for each in batches for n in each.values()) / (len(batches) * batch)


@pytest.mark.parametrize(("run", "size"), [(50, 512), (20, 640), (200, 800), (5, 1000)])
def test_a_sample_meets_as_many_of_its_run_as_the_law_says(run, size):
    order = list(ShuffleBuffer(size, 1).shuffle(range(200_000)))
    assert mates(order, run, 32) == pytest.approx(run_mates(run, size, 32), rel=0.05)


def test_a_buffer_of_b_mixes_like_a_permutation_of_twice_as_many():
    size, run = 500, 20
    buffered = list(ShuffleBuffer(size, 1).shuffle(range(100_000)))
    window = 2 * size
    permuted = [
        first + row for first in range(0, 100_000, window) for row in permutation(window, 3, first)
    ]
    assert mates(buffered, run, 32) == pytest.approx(mates(permuted, run, 32), rel=0.06)


def test_the_buffer_asked_for_leaves_as_many_mates_as_asked_for():
    size = buffer_needed(100, 32, mates=0.5)
    order = list(ShuffleBuffer(size).shuffle(range(200_000)))
    assert mates(order, 100, 32) == pytest.approx(0.5, rel=0.05)
    assert run_mates(1, 5, 32) == 0
    assert run_mates(10**9, 1, 32) == pytest.approx(31)
    # Where the series takes over, nothing jumps.
    assert run_mates(10_001, 10**11, 2) == pytest.approx(run_mates(10_002, 10**11, 2), rel=2e-4)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=8), st.integers(1, 20), st.integers(0, 3))
def test_shards_are_read_whole_and_in_another_order_each_epoch(sizes, buffer, epoch):
    order = list(shard_order(sizes, 1, epoch, buffer))
    assert sorted(order) == list(range(sum(sizes)))
    unbuffered = list(shard_order(sizes, 1, epoch))
    shards = [i for i, size in enumerate(sizes) for _ in range(size)]
    blocks = [shard for shard, _ in itertools.groupby(shards[row] for row in unbuffered)]
    assert sorted(blocks) == list(range(len(sizes)))
    assert seeks(unbuffered) <= len(sizes)


def test_what_orders_cost_in_seeks():
    assert seeks(range(1000)) == 1
    assert seeks([]) == 0
    assert seeks([0, 1, 5, 6, 2]) == 3
    # Of a permutation nearly each read is one; of shards, one for each that does not follow.
    assert seeks(permutation(5000)) > 4990
    assert seeks(shard_order([100] * 50, 0)) <= 50


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 60), st.integers(1, 12), st.integers(1, 4), st.integers(0, 60), st.integers(0, 9)
)
def test_an_order_resumed_anywhere_goes_on_exactly(samples, part, ranks, steps, seed):
    batch = part * ranks
    if batch > samples:
        return
    whole = [ResumableOrder(samples, batch, seed, r, ranks) for r in range(ranks)]
    for _ in range(steps):
        for order in whole:
            next(order)
    state = json.loads(json.dumps(whole[0].state_dict()))
    for rank, order in enumerate(whole):
        other = ResumableOrder(samples, batch, 99, rank, ranks)
        other.load_state_dict(state)
        for _ in range(7):
            assert next(other) == next(order)


def test_ranks_share_each_batch_whatever_their_number():
    alone = ResumableOrder(50, 12, seed=4)
    for ranks in (2, 3, 4):
        parts = [ResumableOrder(50, 12, 4, rank, ranks) for rank in range(ranks)]
        alone.load_state_dict({"samples": 50, "batch": 12, "seed": 4, "epoch": 0, "step": 0})
        for _ in range(9):
            rows = [next(part) for part in parts]
            assert {len(each) for each in rows} == {12 // ranks}
            assert sorted(itertools.chain(*rows)) == sorted(next(alone))


def test_an_epoch_has_no_sample_twice_and_leaves_out_what_fills_no_batch():
    order = ResumableOrder(50, 12)
    rows = [row for _ in range(order.steps) for row in next(order)]
    assert len(set(rows)) == len(rows) == 48
    assert order.epoch == 1
    assert order.step == 0
    left = set(range(50)) - set(rows)
    again = {row for _ in range(order.steps) for row in next(order)}
    assert left & again  # others are left out then


@given(st.integers(1, 12), st.integers(0, 80), st.integers(0, 80), st.integers(0, 4))
def test_a_shuffle_buffer_resumed_anywhere_goes_on_exactly(size, items, steps, seed):
    source = list(range(1000, 1000 + items))
    buffer = ShuffleBuffer(size, seed)
    walk = buffer.shuffle(source)
    for _ in itertools.islice(walk, steps):
        pass
    state = json.loads(json.dumps(buffer.state_dict()))
    other = ShuffleBuffer(size, 99)
    other.load_state_dict(state)
    # While the source lasts; what is left at its end has been shuffled, and is only handed out.
    if steps < max(0, items - size):
        assert list(other.shuffle(source[other.taken :])) == list(walk)


def test_a_buffer_without_its_state_reads_some_again_and_others_never():
    source, seen = range(1000), []
    buffer = ShuffleBuffer(100)
    seen += itertools.islice(buffer.shuffle(source), 500)
    fresh = ShuffleBuffer(100, 1)
    seen += fresh.shuffle(source[500:])
    assert len(seen) == 1000
    assert len(set(seen)) < 970


@settings(max_examples=80)
@given(st.integers(0, 70), st.integers(1, 6), st.integers(1, 6))
def test_every_sample_is_read_exactly_once_over_ranks_and_workers(samples, ranks, workers):
    parts = [
        dealt(range(samples), rank, ranks, worker, workers)
        for rank in range(ranks)
        for worker in range(workers)
    ]
    assert sorted(itertools.chain(*parts)) == list(range(samples))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1 + (samples > 0)


@settings(max_examples=80)
@given(st.integers(1, 70), st.integers(1, 9), st.booleans())
def test_ranks_get_what_torchs_distributed_sampler_deals_them(samples, ranks, drop_last):
    if drop_last and samples < ranks:
        with pytest.raises(ValueError, match=f"ranks is {ranks}; it must be at most {samples}"):
            dealt_evenly(range(samples), 0, ranks, drop_last)
        return
    for rank in range(ranks):
        theirs = DistributedSampler(
            range(samples),
            ranks,
            rank,
            shuffle=False,
            drop_last=drop_last,  # type: ignore[arg-type]
        )
        assert dealt_evenly(range(samples), rank, ranks, drop_last) == list(theirs)


def test_dealing_evenly_repeats_or_drops_and_says_so_by_its_counts():
    every = [row for rank in range(4) for row in dealt_evenly(range(10), rank, 4)]
    assert Counter(every).most_common(2) == [(0, 2), (1, 2)]
    assert len(every) == 12
    dropped = [row for rank in range(4) for row in dealt_evenly(range(10), rank, 4, True)]
    assert sorted(dropped) == list(range(8))


STATE = {"samples": 10, "batch": 2, "seed": 0, "epoch": 0, "step": 0}


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: dealt([1], 1, 1), "rank is 1; it must be at most 0."),
        (lambda: dealt([1], 0, 1, 2, 2), "worker is 2; it must be at most 1."),
        (lambda: dealt_evenly([], 0, 1), "items is []; it must have at least one."),
        (lambda: dealt_evenly([1], 2, 2), "rank is 2; it must be at most 1."),
        (
            lambda: dealt_evenly([1], 0, 2, True),
            "ranks is 2; it must be at most 1, the number of items, to drop the rest.",
        ),
        (lambda: ResumableOrder(10**9, 1), f"samples is {10**9}; it must be at most 100,000,000."),
        (lambda: ResumableOrder(10, 11), "batch is 11; it must be at most 10."),
        (lambda: ResumableOrder(9, 2, rank=2, ranks=2), "rank is 2; it must be at most 1."),
        (lambda: ResumableOrder(9, 4, ranks=3), "a batch of 4 does not divide by 3 ranks."),
        (
            lambda: ResumableOrder(9, 2).load_state_dict({}),
            "state_dict is {}; it must be a dictionary of samples, batch, seed, epoch, step.",
        ),
        (
            lambda: ResumableOrder(9, 2).load_state_dict(STATE),
            "samples of state_dict is 10; it must be 9, as here.",
        ),
        (
            lambda: ResumableOrder(10, 5).load_state_dict(STATE),
            "batch of state_dict is 2; it must be 5, as here.",
        ),
        (
            lambda: ResumableOrder(10, 2).load_state_dict(STATE | {"step": 5}),
            "step is 5; it must be at most 4.",
        ),
        (lambda: ShuffleBuffer(10**9), f"size is {10**9}; it must be at most 100,000,000."),
        (
            lambda: ShuffleBuffer(3).load_state_dict({"taken": 1, "held": []}),
            "state_dict has taken, held; it must have held, taken, random.",
        ),
        (
            lambda: ShuffleBuffer(3).load_state_dict({}),
            "state_dict has nothing; it must have held, taken, random.",
        ),
        (lambda: shard_order([]), "sizes is []; it must have at least one."),
        (
            lambda: shard_order([0]),
            "A size of sizes is 0; it must be a whole number of at least 1.",
        ),
        (
            lambda: shard_order([1], 0, 0, 10**9),
            f"buffer is {10**9}; it must be at most 100,000,000.",
        ),
        (lambda: seeks([0.5]), "A sample of order is 0.5; it must be a whole number."),
        (lambda: displacements([0.5]), "A sample of order is 0.5; it must be a whole number."),
        (lambda: displacements([0, 0]), "order has not every sample from 0 on once, as it must."),
        (lambda: displacements([0, 2]), "order has not every sample from 0 on once, as it must."),
    ],
)
def test_what_is_no_order_is_a_sentence(call, said):
    with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
        call()


def test_a_buffer_does_not_disturb_python_s_own_random_numbers():
    random.seed(1)
    before = random.getstate()
    list(ShuffleBuffer(5).shuffle(range(20)))
    permutation(20)
    assert random.getstate() == before


def test_a_seed_alone_means_its_first_epoch_and_none_seed_0():
    assert permutation(30) == permutation(30, 0) == permutation(30, 0, 0)
    buffered = list(ShuffleBuffer(5).shuffle(range(30)))
    assert buffered == list(ShuffleBuffer(5, 0, 0).shuffle(range(30)))
    assert list(shard_order([5] * 6)) == list(shard_order([5] * 6, 0, 0, 1))
    first, named = ResumableOrder(30, 30), ResumableOrder(30, 30, 0, 0, 1)
    assert next(first) == next(named) == permutation(30)
    assert dealt(range(5)) == dealt_evenly(range(5)) == list(range(5))
    assert dealt_evenly(range(5), 1, 2) == [1, 3, 0]  # filled up, and nothing dropped


def test_shards_and_the_buffer_behind_them_are_shuffled_by_seed_and_epoch():
    """Of a single shard the buffer alone makes the order; without a buffer the shards do."""
    for sizes, buffer in (([60], 10), ([2] * 30, 1)):
        orders = [tuple(shard_order(sizes, s, e, buffer)) for s in range(3) for e in range(3)]
        assert len(set(orders)) == 9
        assert {tuple(sorted(order)) for order in orders} == {tuple(range(60))}


def test_an_epoch_of_batches_is_the_permutation_of_its_seed_and_epoch_made_once(monkeypatch):
    made: list[tuple[int, int, int]] = []

    def noted(samples: int, seed: int, epoch: int) -> list[int]:
        made.append((samples, seed, epoch))
        return permutation(samples, seed, epoch)

    monkeypatch.setattr("dlsys.input_pipeline.ordering.permutation", noted)
    order = ResumableOrder(50, 12, seed=7)
    for epoch in (0, 1):
        rows = [row for _ in range(order.steps) for row in next(order)]
        assert rows == permutation(50, 7, epoch)[:48]
    assert made == [(50, 7, 0), (50, 7, 1)]
