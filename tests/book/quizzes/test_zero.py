"""The numbers of the quiz on ZeRO, computed."""

from typing import Any

import pytest
import torch
from torch import nn

from dlsys import world
from dlsys.hardware import Link
from dlsys.world import Communicator
from dlsys.zero import (
    FullyShardedDataParallel,
    ShardedOptimizer,
    best_degree,
    held,
    mixed_bytes,
    overlap,
    price,
    sent,
    step_plan,
    tokens_to_hide,
)
from tests.book.quizzes import contract

PARAMETERS = 8_000_000_000  # of which a device holds 30 GB in stage 2 on 8 devices
UNITS = {f"unit {i}": 8_000_000 for i in range(1000)}  # whose first gather is very short
WIRE = Link("no latency", 0.0, 50e9)
RATE = 2000 * WIRE.bandwidth * 8 / 7  # with which 2,000 tokens hide it


def gigabytes(stage: int, devices: int) -> float:
    """At rest."""
    return held(step_plan(stage, {"all": PARAMETERS}, devices)).at_rest / 1e9


def sent_gigabytes(micro_batches: int, reduce: str = "each", reshard: bool = True) -> float:
    """By a rank, where a step of one micro-batch sends 90."""
    plans = [
        step_plan(3, {"all": 7_000_000}, 8, many, how, keep)  # type: ignore[arg-type]
        for many, how, keep in ((micro_batches, reduce, reshard), (1, "each", True))
    ]
    return 90 * sent(plans[0]) / sent(plans[1])


def step(tokens: float, rate: float) -> Any:
    """A step of stage 3 on eight devices, of which each achieves this rate."""
    plan = step_plan(3, UNITS, 8)
    forward = 2 * plan.elements * tokens / rate
    return overlap(plan, forward, 2 * forward, WIRE)


def times_as_fast(tokens: float, faster: float) -> float:
    """A step, with devices that compute so many times as fast; rounded, as units are not
    infinitely many."""
    return round(step(tokens, RATE).seconds / step(tokens, faster * RATE).seconds, 2)


def degree_of_few(tokens: float) -> int:
    """The whole degree with which a device sends least, the smaller of two that send alike."""
    return min((1, 2, 4, 8), key=lambda t: mixed_bytes(32, 4096, tokens * 512, 512, t))


TOKENS = 1152 * 512
NUMBERS = {
    "zero-more-devices": gigabytes(2, 32),
    "zero-keep-weights": sent_gigabytes(8, reshard=False),
    "zero-faster-devices": times_as_fast(5000, 4),
    "zero-degree": best_degree(4096, TOKENS, 512),
}

MISCONCEPTIONS = {
    "zero-more-devices": {
        "A quarter would be": gigabytes(2, 8) / 4,
        "That is stage 3": gigabytes(3, 32),
        "limit for very many": held(step_plan(2, {"all": PARAMETERS}, 8)).weights / 1e9,
        "That is stage 1": gigabytes(1, 32),
        "what is sharded": 14 / 32 * PARAMETERS / 1e9,
        "smaller shards": gigabytes(2, 8),
        "weights are there eight times": gigabytes(2, 8) * 8 / 4,
    },
    "zero-keep-weights": {
        "all three collectives": sent_gigabytes(8),
        "reduces once in a step": sent_gigabytes(8, "last", reshard=False),
        "the other way round": sent_gigabytes(8, "last"),
        "That is one micro-batch": sent_gigabytes(1, reshard=False),
        "in stage 3 with one": sent_gigabytes(1),
        "one collective for each": 8 * sent_gigabytes(1) / 3,
    },
    "zero-faster-devices": {
        "So much faster is compute": times_as_fast(1_000_000, 4),
        "nothing would be won": times_as_fast(2000, 4),
        "longer than compute": 4 * 2000 / 5000,
        "beside what it was": 1 / times_as_fast(5000, 4),
        "in which a device computes": 5000 / (4 * 2000),
        "more than its compute": 4 * 5000 / 2000,
    },
    "zero-degree": {
        "One term falls": best_degree(4096, TOKENS, 512) ** 2,
        "for each element of the width": degree_of_few(2.25 * 4096),
        "that of all devices": best_degree(4096, 1152, 512),
        "How many gathers": best_degree(4096, 4.5 * TOKENS, 512),
        "in a node, often": 8,
        "A little too few": 2,
    },
}


class TestQuiz(contract.Quiz): ...


def test_a_device_holds_30_gigabytes_on_8_devices() -> None:
    assert gigabytes(2, 8) == 30


def test_2000_tokens_would_just_hide_the_collectives_of_stage_3() -> None:
    assert tokens_to_hide(RATE, WIRE.bandwidth, 8) == pytest.approx(2000)
    assert step(2000, RATE).exposed_seconds < 0.01 * step(2000, RATE).seconds


def test_a_device_sends_least_with_the_degree_of_the_quiz() -> None:
    sizes = {t: mixed_bytes(32, 4096, TOKENS, 512, t) for t in (1, 2, 4, 8, 16)}
    assert min(sizes, key=sizes.__getitem__) == NUMBERS["zero-degree"]


@pytest.mark.parametrize(("tokens", "best"), [(9_200, 2), (9_230, 1)])
def test_sharding_alone_sends_least_from_9216_tokens_a_device_on(tokens: int, best: int) -> None:
    assert 2.25 * 4096 == 9216
    sizes = {t: mixed_bytes(32, 4096, tokens * 512, 512, t) for t in (1, 2, 4, 8)}
    assert min(sizes, key=sizes.__getitem__) == best


@pytest.mark.parametrize("n", [2, 64])
def test_stage_2_sends_no_byte_more_than_data_parallelism(n: int) -> None:
    assert price(2, 1e9, n).bytes_per_rank == price(0, 1e9, n).bytes_per_rank
    assert price(2, 1e9, n).collectives == ("reduce_scatter", "all_gather")


def test_adam_and_weight_decay_act_on_slices_and_muon_on_matrices_dealt_out_whole() -> None:
    torch.manual_seed(0)
    whole = torch.randn(4, 6)
    gradient = torch.randn(4, 6)

    def stepped(comm: Communicator, kind: Any, whole_tensors: bool, more: Any) -> torch.Tensor:
        parameter = nn.Parameter(whole.clone())
        optimizer = ShardedOptimizer([parameter], kind, comm, whole_tensors=whole_tensors, **more)
        parameter.grad = gradient.clone()
        optimizer.step()
        return parameter.detach()

    def alone(kind: Any, more: Any) -> torch.Tensor:
        parameter = nn.Parameter(whole.clone())
        parameter.grad = gradient.clone()
        kind([parameter], **more).step()
        return parameter.detach()

    decayed = {"lr": 0.1, "weight_decay": 0.3}
    run = world.simulate(stepped, 4, args=(torch.optim.AdamW, False, decayed))
    assert torch.allclose(run.results[0], alone(torch.optim.AdamW, decayed))
    with pytest.raises(world.RankError, match="looks at a parameter as a whole"):
        world.simulate(stepped, 4, args=(torch.optim.Muon, False, decayed))
    run = world.simulate(stepped, 4, args=(torch.optim.Muon, True, decayed))
    assert torch.allclose(run.results[0], alone(torch.optim.Muon, decayed), atol=1e-5)


def test_a_rank_that_generates_alone_waits() -> None:
    def generate(comm: Communicator) -> None:
        model = FullyShardedDataParallel(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)))
        if comm.rank == 0:
            model(torch.ones(1, 4))

    with pytest.raises(world.DeadlockError, match="rank 0 waits in all_gather"):
        world.simulate(generate, 2)
