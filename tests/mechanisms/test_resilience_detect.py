"""Who is slow and who is wrong, on runs in which one rank really is."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
import torch
from torch import nn

from dlsys import world
from dlsys.resilience import (
    Slow,
    compare_replicas,
    false_alarms,
    majority,
    outliers,
    step_times,
    stragglers,
    waited_for,
)

RANKS, STEPS, SLOW = 6, 40, 4


def noisy(ranks: int, steps: int, seed: int, slow: dict[int, float] | None = None) -> list:
    """Step times with 5 % of noise, and some ranks that are slower from half of the steps on."""
    rng, slow = random.Random(seed), slow or {}
    return [
        [
            rng.gauss(1, 0.05) * (slow.get(rank, 1.0) if step >= steps // 2 else 1.0)
            for rank in range(ranks)
        ]
        for step in range(steps)
    ]


# -- stragglers ----------------------------------------------------------------------------------


def slowed_run() -> world.Run:
    """A synchronous run in which rank 4 takes a third longer from step 20 on."""
    times = noisy(RANKS, STEPS, seed=3, slow={SLOW: 4 / 3})

    def program(comm: world.Communicator) -> None:
        gradient = torch.ones(8)
        for row in times:
            comm.compute(row[comm.rank], "step")
            comm.compute(0.01, "something else")
            gradient = comm.all_reduce(gradient, "mean")

    return world.simulate(program, RANKS)


@pytest.fixture(scope="module")
def trace() -> tuple[list[list[float]], list[list[float]]]:
    return step_times(slowed_run().timeline, "step")


def test_a_trace_has_what_each_rank_computed_and_what_it_waited(trace):
    computed, waited = trace
    times = noisy(RANKS, STEPS, seed=3, slow={SLOW: 4 / 3})
    for row, mine, waits in zip(times, computed, waited, strict=True):
        assert mine == pytest.approx(row)
        # Links are free: everybody ends the step with the slowest.
        assert [a + b for a, b in zip(mine, waits, strict=True)] == pytest.approx(
            [max(row)] * RANKS
        )


def test_the_rank_that_is_slow_is_named_with_its_steps(trace):
    computed, _ = trace
    (found,) = stragglers(computed, window=5)
    assert found[:3] == (SLOW, STEPS // 2, STEPS)
    assert found.slowdown == pytest.approx(4 / 3, rel=0.03)


def test_it_is_the_one_that_all_others_wait_for_and_the_sum_of_all_hides_it(trace):
    _, waited = trace
    assert set(waited_for(waited)[STEPS // 2 :]) == {SLOW}
    assert len(set(waited_for(waited)[: STEPS // 2])) > 2
    steps = [[a + b for a, b in zip(*rows, strict=True)] for rows in zip(*trace, strict=True)]
    assert stragglers(steps, window=5) == ()  # a step takes as long on every rank


def test_pauses_of_a_step_or_two_are_no_straggler():
    times = noisy(16, 40, seed=1)
    times[3][7] = times[4][7] = times[22][2] = 30.0
    assert stragglers(times, window=10) == ()


def test_half_of_all_but_one_may_be_slow_and_a_mean_would_miss_them():
    slow = dict.fromkeys(range(0, 14, 2), 1.4)
    times = noisy(16, 40, seed=2, slow=slow)
    found = stragglers(times, window=20, threshold=3.0)
    assert {one.rank for one in found} <= slow.keys()
    single = stragglers(noisy(16, 40, seed=2, slow={5: 1.4}), window=20)
    assert [(one.rank, one.first, one.stop) for one in single] == [(5, 20, 40)]


def test_a_rank_that_recovers_and_fails_again_is_two_entries():
    times = [[1.0, 1.0, 1.0, 2.0 if step // 10 in (1, 3) else 1.0] for step in range(45)]
    assert stragglers(times) == (Slow(3, 10, 20, 2.0), Slow(3, 30, 40, 2.0))


def test_a_rank_that_is_quick_is_not_slow():
    times = [[1.0, 1.01, 0.99, 0.2] for _ in range(10)]
    assert stragglers(times) == ()


@pytest.mark.parametrize(("ranks", "threshold"), [(32, 3.0), (64, 3.0), (128, 2.5)])
def test_healthy_ranks_are_named_as_often_as_the_law_of_false_alarms_says(ranks, threshold):
    windows = 150
    named = stragglers(noisy(ranks, 5 * windows, seed=0), 5, threshold, least=0.0)
    alarms = sum((one.stop - one.first) // 5 for one in named)
    expected = false_alarms(ranks, windows, threshold)
    # They come in windows of a small deviation, so they spread by more than their root.
    assert abs(alarms - expected) < 4 * math.sqrt(2 * expected)
    assert expected > 20
    assert stragglers(noisy(ranks, 500, seed=0), 5) == ()


# -- wrong numbers -------------------------------------------------------------------------------


def test_a_value_far_from_the_median_is_an_outlier_and_so_is_what_is_not_finite():
    norms = [1.01, 0.98, 1.0, 1.02, 9.0, 0.99]
    assert outliers(norms) == outliers(np.array(norms, np.float32)) == (4,)
    assert outliers([*norms, math.nan, math.inf, -5.0]) == (4, 6, 7, 8)
    assert outliers([1.0, 1.0, 1.0 + 1e-12]) == (2,)
    assert outliers([1.0, 1.0, 1.0 + 1e-12], least=1e-6) == ()
    assert outliers([math.nan] * 3) == (0, 1, 2)


def train(comm: world.Communicator, where: str) -> tuple[list, list[float]]:
    """Data-parallel steps in which rank 2 flips a high bit at step 3: of a weight, or of its own
    gradient before that is reduced. The verdicts of each step, and norms of local gradients."""
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    torch.manual_seed(comm.rank)
    verdicts, norms = [], []
    for step in range(6):
        loss = model(torch.randn(32, 4)).square().mean()
        gradients = list(torch.autograd.grad(loss, list(model.parameters())))
        if comm.rank == 2 and step == 3:
            target = {"weight": model.weight.data, "gradient": gradients[0]}[where]
            target.view(torch.int32)[1, 2] ^= 1 << 30
        norms.append(float(torch.stack([g.norm() for g in gradients]).norm()))
        for parameter, gradient in zip(model.parameters(), gradients, strict=True):
            parameter.data -= 0.1 * comm.all_reduce(gradient, "mean")
        verdicts.append({name: found.odd for name, found in compare_replicas(model, comm).items()})
    return verdicts, norms


def test_a_bit_that_flips_in_a_replica_is_found_by_name_on_every_rank():
    for verdicts, _ in world.simulate(train, 4, args=("weight",)).results:
        assert verdicts[:3] == [{}] * 3
        assert verdicts[3] == {"weight": (2,)}
        assert verdicts[5]["weight"] == (2,)  # it stays wrong


def test_a_bit_that_flips_before_the_reduction_leaves_replicas_alike_and_shows_in_its_norm():
    results = world.simulate(train, 4, args=("gradient",)).results
    for verdicts, _ in results:
        assert verdicts == [{}] * 6  # all are wrong alike
    norms = list(zip(*(norms for _, norms in results), strict=True))
    assert [outliers(row, 50) for row in norms[:4]] == [(), (), (), (2,)]


def test_two_ranks_that_differ_cannot_be_told_apart():
    def program(comm: world.Communicator) -> object:
        return compare_replicas({"w": torch.tensor([float(comm.rank)]), "b": torch.ones(2)}, comm)

    (found, again) = world.simulate(program, 2).results
    assert found == again
    assert list(found) == ["w"]
    assert (found["w"].value, found["w"].odd, found["w"].groups) == (None, (), ((0,), (1,)))
    assert (
        str(found["w"]) == "ranks differ, and no value is that of more than half: ranks 0; ranks 1"
    )


TENSORS = {
    "0-d": torch.tensor(3.5),
    "empty": torch.ones(0, 2),
    "bool": torch.tensor([True, False]),
    "fp64": torch.ones(2, dtype=torch.float64),
    "bf16": torch.ones(3, dtype=torch.bfloat16),
    "fp8": torch.ones(3).to(torch.float8_e4m3fn),
    "complex": torch.ones(2, dtype=torch.complex64),
    "turned": torch.arange(6.0).reshape(2, 3).T,
    "nan": torch.tensor([math.nan]),
}


def test_tensors_of_any_type_and_shape_are_compared_to_the_last_bit():
    def program(comm: world.Communicator) -> object:
        mine = {name: tensor.clone() for name, tensor in TENSORS.items()}
        alike = compare_replicas(mine, comm)
        if comm.rank == 1:
            mine["turned"] = mine["turned"].contiguous().reshape(2, 3)  # the same bytes
            mine["0-d"] = mine["0-d"].double()
            mine["fp64"][1] += 2**-52
        return alike, {name: found.odd for name, found in compare_replicas(mine, comm).items()}

    for alike, differ in world.simulate(program, 3).results:
        assert alike == {}
        assert differ == {"0-d": (1,), "fp64": (1,), "turned": (1,)}


def test_the_check_sends_eight_bytes_a_tensor_and_nothing_else():
    run = world.simulate(lambda comm: compare_replicas(nn.Linear(300, 300), comm) and None, 4)
    # All-gather: each rank sends 3 parts of two numbers.
    assert sum(message.nbytes for message in run.traffic.messages) == 4 * 3 * 2 * 8


def test_the_check_finds_its_world_by_itself_and_one_rank_is_alike():
    assert world.simulate(lambda comm: compare_replicas(nn.Linear(2, 2)), 1).results == [{}]


@pytest.mark.parametrize(
    ("values", "value", "odd", "words"),
    [
        ("aaa", "a", (), "all 3 ranks agree"),
        ("aba", "a", (1,), "rank 1 differs from most"),
        ("abcaa", "a", (1, 2), "ranks 1, 2 differ from most"),
        ("aabb", None, (), "ranks differ, and no value is that of more than half"),
        ("aabc", None, (), "ranks differ, and no value is that of more than half"),
        ("a", "a", (), "all 1 ranks agree"),
    ],
)
def test_whoever_differs_from_more_than_half_is_named(values, value, odd, words):
    found = majority(list(values))
    assert (found.value, found.odd) == (value, odd)
    assert str(found).startswith(words)
    assert found.agreed == (len(set(values)) == 1)
    assert sorted(rank for group in found.groups for rank in group) == [*range(len(values))]


# -- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: outliers([1.0, 2.0]), "values has 2 ranks; give at least three"),
        (lambda: outliers([1.0, 2.0, "3"]), "A value in values is '3'; it must be a number"),
        (lambda: outliers([1.0] * 3, 0), "threshold is 0"),
        (lambda: outliers([1.0] * 3, 1, -1), "least is -1"),
        (lambda: stragglers([]), "times is .*; it must have at least one"),
        (lambda: stragglers([[1.0, 2.0]]), "times has 2 ranks; give at least three"),
        (lambda: stragglers([[1.0] * 3, [1.0] * 4], 1), "times: step 1 has 4; give one for each"),
        (lambda: stragglers([[1.0] * 3]), "window is 10; it must be at most 1"),
        (lambda: stragglers([[1.0, 1.0, math.nan]], 1), "A time in times is nan"),
        (lambda: waited_for([[1.0, -1.0, 1.0]]), "A time in waits is -1"),
        (lambda: false_alarms(0, 1, 3), "ranks is 0"),
        (lambda: false_alarms(8, 1, -1), "threshold is -1"),
        (lambda: majority([]), "values is .*; it must have at least one"),
        (lambda: majority([math.nan]), "A value in values is nan; it must be equal to itself"),
        (lambda: majority([([],)]), "A value in values is .*; it must be hashable"),
        (lambda: step_times(slowed_run().timeline, "pass"), "compute is 'pass'; there must be one"),
        (lambda: compare_replicas({}), "replicas is .*; it must have at least one"),
        (lambda: compare_replicas({"w": 3}), "replicas is .*; it must be a Module such as"),
        (
            lambda: compare_replicas({"w": torch.ones(2, device="meta")}),
            r"replicas\['w'\] is on the device meta; it must be on a device that holds bytes",
        ),
    ],
)
def test_what_cannot_be_compared_is_refused(call, said):
    with pytest.raises(ValueError, match=said):
        call()
