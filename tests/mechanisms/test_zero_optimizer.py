"""An optimizer split among ranks: equal to one device and to torch's own, with bytes as counted."""

from __future__ import annotations

import gc
from contextlib import nullcontext
from copy import deepcopy
from functools import cache
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import SGD, Adafactor, AdamW
from torch.optim.lr_scheduler import LinearLR, OneCycleLR

from dlsys import world, zero
from dlsys.data_parallel import DataParallel
from dlsys.hardware import DEVICES, Link
from dlsys.zero import ShardedOptimizer, flat, step_plan
from dlsys.zero.dealt import Dealt

RANKS = [1, 2, 3, 4, 8]
OPTIONS = {AdamW: {"lr": 0.05}, SGD: {"lr": 0.1, "momentum": 0.9}}


class Net(nn.Module):
    """Shapes that nothing divides, a tied weight, a frozen layer and a parameter of one number."""

    def __init__(self, dtype=torch.float32):
        super().__init__()
        stream = torch.Generator().manual_seed(3)
        self.first, self.frozen = nn.Linear(5, 7), nn.Linear(7, 7)
        self.middle, self.last = nn.Linear(7, 5), nn.Linear(5, 7)
        self.scale = nn.Parameter(torch.ones(()))
        self.last.weight = self.first.weight
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=stream) / 2)
        self.frozen.requires_grad_(False)
        self.to(dtype)

    def forward(self, x):
        x = self.middle(self.frozen(self.first(x).tanh()).tanh())
        return self.last(x) * self.scale


def rows(seed=0, of=5, number=24):
    return torch.randn(number, of, generator=torch.Generator().manual_seed(seed))


X, Y = rows(1), rows(2, of=7)


def loss(net, comm=None, of=slice(None)):
    """The mean square error on the rows of this rank, or on all of them."""
    x, y = X[of], Y[of]
    if comm is not None:
        x, y = (each.chunk(comm.size)[comm.rank] for each in (x, y))
    kind = next(net.parameters()).dtype
    return (net(x.to(kind)) - y.to(kind)).float().square().mean()


def groups(net):
    """Two groups with settings of their own, weights and the rest."""
    every = list(net.named_parameters())
    return [
        {"params": [(n, p) for n, p in every if p.dim() > 1], "weight_decay": 0.1},
        {"params": [(n, p) for n, p in every if p.dim() < 2], "lr": 0.02},
    ]


def cycle(optimizer):
    """A schedule of the learning rate and of momentum."""
    return OneCycleLR(optimizer, 0.05, total_steps=11)


def train(net, optimizer, comm=None, steps=10, schedule=cycle):
    """Train by a schedule; returns parameters at the end."""
    schedule = schedule(optimizer)
    for _ in range(steps):
        optimizer.zero_grad()
        loss(net, comm).backward()
        optimizer.step()
        schedule.step()
    return {name: p.detach().clone() for name, p in net.named_parameters()}


def close(mine, theirs):
    # float32 sums in another order; Adam divides by small numbers.
    torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


def whole_numbers(module, seed=0):
    """The module with small whole numbers as parameters: sums are exact in any order."""
    stream = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(torch.randint(-2, 3, p.shape, generator=stream))
    return module


# -- equal to one device -------------------------------------------------------------------------


@cache
def one_device(cls):
    """Parameters and state after ten steps on one device."""
    net = Net()
    optimizer = cls(groups(net), **OPTIONS[cls])
    return train(net, optimizer), optimizer.state_dict()


@pytest.mark.parametrize("stage", [1, 2])
@pytest.mark.parametrize(("cls", "ranks"), [*((AdamW, n) for n in RANKS), (SGD, 3)])
def test_ten_steps_are_those_of_one_device(cls, ranks, stage):
    parameters, state = one_device(cls)
    kw = OPTIONS[cls]

    def program(comm):
        net = Net()
        with torch.no_grad():
            net.middle.bias.add_(comm.rank)  # every rank takes over rank 0's
        optimizer = ShardedOptimizer(groups(net), cls, comm, stage=stage, bucket_bytes=120, **kw)
        assert len(optimizer.buckets) == 3
        return train(net, optimizer, comm), optimizer.state_dict()

    results = world.simulate(program, ranks).results
    close(results[0][0], parameters)
    close(results[0][1]["state"], state["state"])
    assert results[0][1]["param_groups"] == state["param_groups"]
    for other in results[1:]:
        torch.testing.assert_close(other[0], results[0][0], rtol=0, atol=0)
        torch.testing.assert_close(other[1]["state"], results[0][1]["state"], rtol=0, atol=0)


@pytest.mark.parametrize("stage", [1, 2])
@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_whole_numbers_are_updated_exactly(ranks, stage):
    inputs = torch.randint(-3, 4, (16, 5), generator=torch.Generator().manual_seed(1)).float()

    def steps(optimizer, net, x):
        for _ in range(3):
            optimizer.zero_grad()
            (net(x).sum() * (16 / len(x))).backward()
            optimizer.step()
        return [p.detach().clone() for p in net.parameters()]

    def net():
        return whole_numbers(nn.Linear(5, 3))

    def program(comm):
        mine = net()
        optimizer = ShardedOptimizer(
            mine.parameters(), SGD, comm, stage=stage, lr=0.25, momentum=0.5
        )
        return steps(optimizer, mine, inputs.chunk(comm.size)[comm.rank])

    one = net()
    expected = steps(SGD(one.parameters(), lr=0.25, momentum=0.5), one, inputs)
    for result in world.simulate(program, ranks).results:
        torch.testing.assert_close(result, expected, rtol=0, atol=0)


def beside_torchs_own(comm):
    from torch.distributed.optim import ZeroRedundancyOptimizer

    outcomes = []
    for stage in (0, 1, 2):
        net = Net()
        if stage:
            optimizer = ShardedOptimizer(groups(net), AdamW, comm, stage=stage, lr=0.05)
            outcomes.append(train(net, optimizer, comm, schedule=LinearLR))
        else:
            engine = nn.parallel.DistributedDataParallel(net)
            named = [{**g, "params": [p for _, p in g["params"]]} for g in groups(net)]
            optimizer = ZeroRedundancyOptimizer(named, AdamW, lr=0.05)
            outcomes.append(train(engine, optimizer, comm, schedule=LinearLR))
    return [list(parameters.values()) for parameters in outcomes]


def test_torchs_own_sharded_optimizer_trains_to_the_same_weights_in_real_processes():
    for theirs, first, second in world.launch(beside_torchs_own, 2).results:
        close(first, theirs)
        torch.testing.assert_close(second, first, rtol=0, atol=0)


# -- bytes sent ----------------------------------------------------------------------------------


def flat_net(elements=48, dtype=torch.float32):
    """A module of one matrix and one vector with so many elements in all."""
    net = nn.Linear(elements // 3 - 1, 3, dtype=dtype)
    with torch.no_grad():
        net.weight.fill_(0.5)
        net.bias.fill_(0.25)
    return net


def passed(net, comm, syncing=nullcontext):
    """One micro-batch forward and backward."""
    with syncing():
        net(
            torch.ones(1, net.in_features, dtype=net.weight.dtype) * (comm.rank + 1)
        ).sum().backward()


def sent_in_a_step(program, ranks, *args):
    """Bytes that each rank sends by kind of collective, beside what construction sends."""
    before, after = (world.simulate(program, ranks, args=(n, *args)).traffic for n in (0, 1))
    rises = [b - a for a, b in zip(before.sent, after.sent, strict=True)]
    assert len(set(rises)) == 1  # every rank as much
    return {kind: nbytes / ranks for kind, nbytes in (after.by_kind() - before.by_kind()).items()}


def start(comm, options, elements=48, dtype=torch.float32, cls=AdamW):
    net = flat_net(elements, dtype)
    return net, ShardedOptimizer(net.parameters(), cls, comm, **{"lr": 0.01, **options})


@pytest.mark.parametrize("stage", [1, 2])
@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
def test_a_step_sends_what_an_all_reduce_sends(ranks, stage):
    def program(comm, steps):
        net, optimizer = start(comm, {"stage": stage})
        for _ in range(steps):
            passed(net, comm)
            optimizer.step()

    once = (ranks - 1) / ranks * 48 * 4
    assert sent_in_a_step(program, ranks) == {"reduce_scatter": once, "all_gather": once}


def test_gradients_that_are_averaged_first_make_it_half_as_much_again():
    def program(comm, steps):
        net = flat_net()
        model = DataParallel(net, comm)
        optimizer = ShardedOptimizer(net.parameters(), AdamW, comm, averaged=True, lr=0.01)
        for _ in range(steps):
            model(torch.ones(1, net.in_features)).sum().backward()
            optimizer.clip_grad_norm_(1.0)  # every rank has all it needs for the norm
            optimizer.step()

    once = 3 / 4 * 48 * 4
    assert sent_in_a_step(program, 4) == {"all_reduce": 2 * once, "all_gather": once}


@pytest.mark.parametrize(
    ("stage", "quiet", "reductions"), [(1, False, 1), (2, False, 3), (2, True, 1)]
)
def test_accumulated_micro_batches_are_reduced_each_by_itself_or_together(stage, quiet, reductions):
    def program(comm, steps):
        net, optimizer = start(comm, {"stage": stage})
        for _ in range(steps):
            for i in range(3):
                passed(net, comm, optimizer.no_sync if quiet and i < 2 else nullcontext)
            optimizer.step()

    once = 3 / 4 * 48 * 4
    sent = sent_in_a_step(program, 4)
    assert sent == {"reduce_scatter": reductions * once, "all_gather": once}


# -- bytes held ----------------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [1, 3, 8])
@pytest.mark.parametrize(
    ("dtype", "master", "stage", "everywhere", "split"),
    [
        (torch.bfloat16, torch.float32, 1, 4, 12),
        (torch.bfloat16, torch.float32, 2, 2, 14),
        (torch.float32, None, 1, 8, 8),
        (torch.float32, torch.float32, 2, 4, 12),
        (torch.bfloat16, None, 1, 4, 4),  # moments in the weights' own format
        (torch.bfloat16, None, 2, 2, 6),
    ],
)
def test_a_rank_holds_its_nth_of_what_is_sharded(ranks, dtype, master, stage, everywhere, split):
    def program(comm):
        net, optimizer = start(comm, {"stage": stage, "master_dtype": master}, 48, dtype)
        for _ in range(2):
            optimizer.zero_grad()
            passed(net, comm)
            optimizer.step()
        state = optimizer.state_dict()  # leaves nothing behind
        optimizer.load_state_dict(state)
        return optimizer.held()

    for held in world.simulate(program, ranks).results:
        assert held.at_rest == (everywhere + split / ranks) * 48
        assert held.weights == dtype.itemsize * 48


def test_a_rank_holds_no_more_than_its_share_rounded_up():
    def program(comm):
        _, optimizer = start(comm, {"master_dtype": torch.float64}, 51)
        passed(_, comm)
        optimizer.step()
        return optimizer.held().optimizer // 24

    assert world.simulate(program, 4).results == [13, 13, 13, 12]
    assert world.simulate(program, 8).results == [7] * 7 + [2]


def test_storages_are_counted_in_full_and_once():
    def program(comm):
        whole = torch.zeros(10)
        optimizer = ShardedOptimizer([nn.Parameter(whole[:4]), nn.Parameter(whole[4:6])], SGD, comm)
        return optimizer.held().weights

    assert world.simulate(program, 2).results == [40, 40]


def chain(layers=6):
    return nn.Sequential(*(nn.Linear(4, 4, bias=False) for _ in range(layers)))


def test_stage_2_has_two_buckets_of_whole_gradients_at_most_and_no_sync_all_of_them():
    def program(comm, quiet):
        net = chain()
        optimizer = ShardedOptimizer(
            net.parameters(), AdamW, comm, stage=2, bucket_bytes=64, lr=0.01
        )
        for _ in range(2):
            net(torch.ones(1, 4)).sum().backward()
            optimizer.step()
        with optimizer.no_sync() if quiet else nullcontext():
            net(torch.ones(1, 4)).sum().backward()
        assert all((p.grad is not None) == quiet for p in net.parameters())
        net(torch.ones(1, 4)).sum().backward()
        assert all(p.grad is None for p in net.parameters())
        held = optimizer.held()
        optimizer.step()
        net(torch.ones(1, 4)).sum().backward()
        assert optimizer.held().unreduced == 2 * 64  # a step counts its own
        return held.unreduced, held.gradients

    # Those of a bucket in backward, and of the one before it, which is on its way.
    assert world.simulate(program, 2, args=(False,)).results == [(2 * 64, 6 * 64 // 2)] * 2
    # All, as the last one is copied into its bucket and the one before is on its way.
    assert world.simulate(program, 2, args=(True,)).results[0][0] == 7 * 64


def test_whole_gradients_are_freed_while_backward_goes_on():
    seen = []

    def program(comm):
        net = chain(3)
        ShardedOptimizer(net.parameters(), AdamW, comm, stage=2, bucket_bytes=64).zero_grad()
        optimizer = ShardedOptimizer(net.parameters(), AdamW, comm, stage=2, bucket_bytes=64)

        def look(parameter):
            seen.append([p.grad is None for p in net.parameters()])

        for p in net.parameters():
            p.register_post_accumulate_grad_hook(look)
        net(torch.ones(1, 4)).sum().backward()
        return optimizer.actions

    run = world.simulate(program, 2)
    assert seen == [[True] * 3] * 6
    assert run.results[0] == [
        ("reduce", 2, 0),
        ("free gradients", 2, 0),
        ("reduce", 1, 0),
        ("free gradients", 1, 0),
        ("reduce", 0, 0),
        ("free gradients", 0, 0),
    ]
    assert run.traffic.count("reduce_scatter", rank=0) == 3  # the first optimizer has let go


def test_what_is_reduced_under_backward_shortens_the_step():
    link = Link("slow", latency=1e-9, bandwidth=1e11)

    def program(comm, stage):
        net = nn.Sequential(*(nn.Linear(64, 64, bias=False) for _ in range(8)))
        optimizer = ShardedOptimizer(
            net.parameters(), SGD, comm, stage=stage, bucket_bytes=64 * 64 * 4, lr=0.1
        )
        comm.barrier()
        before = comm.seconds
        net(torch.ones(256, 64)).sum().backward()
        optimizer.step()
        return comm.seconds - before

    args = {"link": link, "device": DEVICES["h100-sxm"]}
    first, second = (world.simulate(program, 4, args=(s,), **args).results[0] for s in (1, 2))
    assert second < 0.9 * first


COMPUTED = ("forward", "backward")


@pytest.mark.parametrize(("stage", "reduce"), [(1, "last"), (2, "each"), (2, "last")])
def test_a_step_does_what_its_plan_says_and_holds_what_its_price_says(stage, reduce):
    plan = step_plan(stage, {"0": 16, "1": 16, "2": 16}, 4, 2, reduce)

    def program(comm):
        net = chain(3).bfloat16()
        optimizer = ShardedOptimizer(
            net.parameters(),
            AdamW,
            comm,
            stage=stage,
            bucket_bytes=32,
            master_dtype=torch.float32,
        )
        for _ in range(2):
            optimizer.zero_grad()
            for batch in range(2):
                quiet = reduce == "last" and batch == 0
                with optimizer.no_sync() if quiet else nullcontext():
                    net(torch.ones(1, 4, dtype=torch.bfloat16)).sum().backward()
            optimizer.step()
        return optimizer.actions, optimizer.held()

    planned = [action for action in plan.actions if action.kind not in COMPUTED]
    for actions, held in world.simulate(program, 4).results:
        # Stage 1 does not see passes: all that it does, it does at the step.
        assert actions == [
            a._replace(micro_batch=a.micro_batch if stage == 2 else 0) for a in planned
        ]
        expected = zero.held(plan)
        for name in ("weights", "gradients", "optimizer"):
            assert getattr(held, name) == getattr(expected, name)
        if reduce == "each":
            assert held.unreduced == expected.unreduced


# -- gradients clipped ---------------------------------------------------------------------------

CLIPPED = {"stage 1": {}, "stage 2": {"stage": 2}, "averaged": {"averaged": True}}


def clipped_on_one_device(**options):
    net = Net()
    optimizer = SGD(net.parameters(), lr=0.5)
    loss(net).backward()
    norm = clip_grad_norm_(net.parameters(), **options)
    optimizer.step()
    return norm, [p.detach() for p in net.parameters()]


@pytest.mark.parametrize("what", CLIPPED)
@pytest.mark.parametrize("norm_type", [2.0, float("inf")])
def test_clipping_is_by_the_norm_of_all_shards_and_the_same_on_every_rank(what, norm_type):
    def program(comm):
        net = Net()
        optimizer = ShardedOptimizer(net.parameters(), SGD, comm, lr=0.5, **CLIPPED[what])
        model = DataParallel(net, comm) if what == "averaged" else net
        loss(model, comm).backward()
        norm = optimizer.clip_grad_norm_(0.1, norm_type)
        optimizer.step()
        return norm, [p.detach() for p in net.parameters()]

    norm, expected = clipped_on_one_device(max_norm=0.1, norm_type=norm_type)
    assert norm > 0.1
    for found, parameters in world.simulate(program, 3).results:
        torch.testing.assert_close(found, norm)
        close(parameters, expected)
    large, untouched = clipped_on_one_device(max_norm=1e9)
    assert large > 0.1
    assert not torch.equal(untouched[1], expected[1])


@pytest.mark.parametrize("what", CLIPPED)
@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
def test_a_norm_that_is_not_finite_is_told_on_every_rank_or_passed_on_as_torch_does(what, bad):
    def gradients(net, comm=None):
        for place, p in enumerate(net.parameters()):
            p.grad = torch.full_like(p, float(place))
        if comm is None or comm.rank == 1 or what == "averaged":
            net.weight.grad[0, 0] = bad  # of one rank's gradients only, and then of one shard

    def program(comm):
        net = flat_net(12)
        optimizer = ShardedOptimizer(net.parameters(), SGD, comm, lr=1.0, **CLIPPED[what])
        gradients(net, comm)
        with pytest.raises(RuntimeError, match="cannot be clipped"):
            optimizer.clip_grad_norm_(1.0, error_if_nonfinite=True)
        norm = optimizer.clip_grad_norm_(1.0)
        optimizer.step()
        return norm, net.weight.detach(), net.bias.detach()

    one = flat_net(12)
    gradients(one)
    norm = clip_grad_norm_(one.parameters(), 1.0)
    SGD(one.parameters(), lr=1.0).step()
    for found in world.simulate(program, 2).results:
        expected = (norm, one.weight.detach(), one.bias.detach())
        torch.testing.assert_close(found, expected, equal_nan=True)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float64, torch.complex64])
def test_the_norm_is_of_all_numbers_whatever_their_type(kind):
    def program(comm):
        p = nn.Parameter(torch.zeros(5, dtype=kind))
        optimizer = ShardedOptimizer([p], SGD, comm, lr=1.0)
        p.grad = torch.full((5,), 3.0 + comm.rank, dtype=kind)
        return optimizer.clip_grad_norm_(float("inf")), optimizer.held().gradients / p.grad.itemsize

    wide = torch.float64 if kind == torch.float64 else torch.float32
    expected = torch.tensor(5 * 3.5**2, dtype=wide).sqrt()
    for norm, held in world.simulate(program, 2).results:
        torch.testing.assert_close(norm, expected)
        assert held == 5 + 3  # until the step, the shard is there beside the whole


def test_gradients_that_change_between_clipping_and_the_step_are_refused_not_left_out():
    def program(comm):
        net, optimizer = start(comm, {})
        passed(net, comm)
        optimizer.clip_grad_norm_(1.0)
        passed(net, comm)
        with pytest.raises(RuntimeError, match=r"after clip_grad_norm_\(\) had reduced them"):
            optimizer.step()
        optimizer.zero_grad()
        passed(net, comm)
        optimizer.step()

    world.simulate(program, 2)


# -- state ---------------------------------------------------------------------------------------


def fresh(cls, net, comm=None, **options):
    made = groups(net)
    if comm is None:
        return cls(made, lr=0.05)
    return ShardedOptimizer(made, cls, comm, bucket_bytes=120, lr=0.05, **options)


def go_on(net, optimizer, comm=None, steps=3):
    for _ in range(steps):
        optimizer.zero_grad()
        loss(net, comm).backward()
        optimizer.step()
    return [p.detach().clone() for p in net.parameters()]


@pytest.fixture(scope="module")
def saved():
    """Weights and gathered state after three steps on four ranks, and three more on one device."""

    def program(comm):
        net = Net()
        optimizer = fresh(AdamW, net, comm, stage=2)
        go_on(net, optimizer, comm)
        return {n: v.clone() for n, v in net.state_dict().items()}, optimizer.state_dict()

    results = world.simulate(program, 4).results
    net = Net()
    optimizer = fresh(AdamW, net)
    go_on(net, optimizer)
    return results, deepcopy(optimizer.state_dict()), go_on(net, optimizer)


def test_gathered_state_goes_on_with_another_number_of_ranks(saved):
    (weights, state), *_ = saved[0]

    def program(comm):
        net = Net()
        optimizer = fresh(AdamW, net, comm)
        net.load_state_dict(weights)
        before = optimizer.held()
        optimizer.load_state_dict(state)
        # In memory of its own: a slice of what was read would keep all of it.
        assert optimizer.held().optimizer - before.optimizer <= 2 * 4 * (-(-131 // comm.size) + 3)
        return go_on(net, optimizer, comm)

    for ranks in (1, 3):
        for result in world.simulate(program, ranks).results:
            close(result, saved[2])


def test_gathered_state_is_loaded_by_the_plain_optimizer_and_back(saved):
    (weights, state), *others = saved[0]
    for _, other in others:
        torch.testing.assert_close(other["state"], state["state"], rtol=0, atol=0)
    net = Net()
    optimizer = fresh(AdamW, net)
    net.load_state_dict(weights)
    optimizer.load_state_dict(deepcopy(state))  # torch goes on in the tensors that it is given
    close(go_on(net, optimizer), saved[2])

    def program(comm):
        mine = Net()
        sharded = fresh(AdamW, mine, comm)
        mine.load_state_dict(weights)
        sharded.load_state_dict(saved[1])
        close(sharded.state_dict()["state"], state["state"])
        return go_on(mine, sharded, comm)

    for result in world.simulate(program, 2).results:
        close(result, saved[2])


def test_state_of_another_model_is_refused(saved):
    state = saved[0][0][1]

    def program(comm):
        with pytest.raises(ValueError, match="different number of parameter groups"):
            fresh(AdamW, Net(), comm).load_state_dict({**state, "param_groups": []})
        other = {**state["state"][2], "exp_avg": torch.ones(3, 3)}
        with pytest.raises(ValueError, match=r"'exp_avg' of shape \(3, 3\) for 'middle.weight'"):
            fresh(AdamW, Net(), comm).load_state_dict({**state, "state": {2: other}})

    world.simulate(program, 4)


def mixed_precision(net, comm=None, steps=4):
    """bfloat16 weights updated in float32: by a master copy of one's own, or a sharded one."""
    if comm is not None:
        optimizer = ShardedOptimizer(
            net.parameters(), SGD, comm, master_dtype=torch.float32, lr=2**-11, momentum=0.5
        )
        master = None
    else:
        master = [nn.Parameter(p.detach().float()) for p in net.parameters()]
        optimizer = SGD(master, lr=2**-11, momentum=0.5)
    for _ in range(steps):
        net.zero_grad()
        net(torch.ones(1, net.in_features, dtype=torch.bfloat16)).sum().backward()
        for p, m in zip(net.parameters(), master or (), strict=False):
            m.grad = p.grad.float()
        optimizer.step()
        with torch.no_grad():
            for p, m in zip(net.parameters(), master or (), strict=False):
                p.copy_(m)
    return optimizer, master


def test_a_master_copy_adds_up_what_16_bits_round_away_and_is_saved():
    one = flat_net(48, torch.bfloat16)
    optimizer, master = mixed_precision(one)

    def program(comm):
        net = flat_net(48, torch.bfloat16)
        sharded, _ = mixed_precision(net, comm)
        return [p.detach() for p in net.parameters()], sharded.state_dict()["state"]

    def plain(comm):
        net = flat_net(48, torch.bfloat16)
        sharded = ShardedOptimizer(net.parameters(), SGD, comm, lr=2**-11)
        for _ in range(4):
            sharded.zero_grad()
            passed(net, comm)
            sharded.step()
        return net.weight.detach()

    parameters, state = world.simulate(program, 3).results[1]
    torch.testing.assert_close(parameters, [p.detach() for p in one.parameters()], rtol=0, atol=0)
    assert [state[i]["master"].tolist() for i in (0, 1)] == [m.tolist() for m in master]
    torch.testing.assert_close(
        state[0]["momentum_buffer"], optimizer.state_dict()["state"][0]["momentum_buffer"]
    )
    assert (parameters[0] != 0.5).all()
    assert (world.simulate(plain, 1).results[0] == 0.5).all()


def test_a_master_copy_goes_through_a_state_dict_and_follows_loaded_weights():
    def program(comm, state, weights):
        net = flat_net(48, torch.bfloat16)
        options = {"master_dtype": torch.float32, "stage": 2}
        optimizer = ShardedOptimizer(net.parameters(), AdamW, comm, lr=2**-10, **options)
        if state is not None:
            net.load_state_dict(weights)
            optimizer.load_state_dict(state)
        for _ in range(3):
            optimizer.zero_grad()
            net(torch.ones(1, 15, dtype=torch.bfloat16)).sum().backward()
            optimizer.step()
        found = optimizer.state_dict()
        with torch.no_grad():
            net.bias.fill_(8.0)
        optimizer.step()
        assert (net.bias > 7.9).all()  # not what the copy was before
        return found, {name: value.clone() for name, value in net.state_dict().items()}, net

    def six(comm):
        net = flat_net(48, torch.bfloat16)
        optimizer = ShardedOptimizer(
            net.parameters(), AdamW, comm, lr=2**-10, master_dtype=torch.float32
        )
        for _ in range(6):
            optimizer.zero_grad()
            net(torch.ones(1, 15, dtype=torch.bfloat16)).sum().backward()
            optimizer.step()
        return optimizer.state_dict()

    state = world.simulate(lambda c: program(c, None, None), 4).results[0][0]
    weights = {"weight": state["state"][0]["master"], "bias": state["state"][1]["master"]}
    again = world.simulate(lambda c: program(c, state, weights), 3).results[0][0]
    torch.testing.assert_close(again["state"], world.simulate(six, 2).results[0]["state"])


# -- whole tensors -------------------------------------------------------------------------------


def matrices():
    net = nn.Sequential(*(nn.Linear(a, b, bias=False) for a, b in ((5, 7), (7, 3), (3, 4))))
    with torch.no_grad():
        for place, p in enumerate(net.parameters()):
            p.copy_(rows(place, p.shape[1], p.shape[0]))
    return net


WHOLE = [c for name in ("Adafactor", "Muon") if (c := getattr(torch.optim, name, None))]


@pytest.mark.parametrize("cls", WHOLE, ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("stage", [1, 2])
def test_optimizers_of_whole_tensors_train_as_on_one_device(cls, stage):
    def steps(net, optimizer, x):
        for _ in range(4):
            optimizer.zero_grad()
            net(x).square().mean().backward()
            optimizer.step()
        return [p.detach() for p in net.parameters()], optimizer.state_dict()["state"]

    def program(comm):
        net = matrices()
        optimizer = ShardedOptimizer(
            net.parameters(), cls, comm, stage=stage, whole_tensors=True, lr=0.05
        )
        owned = [set(part.tensor.shape) for part in optimizer.buckets[0].parts]
        return *steps(net, optimizer, X.chunk(comm.size)[comm.rank]), len(owned)

    one = matrices()
    expected = steps(one, cls(one.parameters(), lr=0.05), X)
    results = world.simulate(program, 2).results
    for parameters, state, _ in results:
        close((parameters, state), expected)
    assert [owned for *_, owned in results] == [1, 2]  # 35 elements, and 21 + 12


@given(st.lists(st.integers(0, 50), min_size=1, max_size=12), st.integers(1, 6))
@settings(max_examples=60, deadline=None)
def test_whole_tensors_are_dealt_each_to_one_rank_and_evenly(sizes, ranks):
    parameters = tuple((f"p{i}", n) for i, n in enumerate(sizes))
    dealt = Dealt(parameters, ranks)
    shards = [dealt.pieces(rank) for rank in range(ranks)]
    for i, (_, elements) in enumerate(parameters):
        assert sorted(pieces[i].elements for pieces in shards) == [0] * (ranks - 1) + [elements]
    loads = [sum(piece.elements for piece in pieces) for pieces in shards]
    assert dealt.shard == max(loads)
    assert dealt.padded == ranks * max(loads)
    # Whoever holds most had least before the last one came, which is no larger than the others.
    assert max(loads) <= max(
        max(sizes), 4 / 3 * max(sum(sizes) / ranks, max(sizes)) + max(sizes) / 3
    )
    for pieces in shards:
        filled = [(piece.place, piece.elements) for piece in pieces if piece.elements]
        assert filled == sorted(filled)
        assert sum(elements for _, elements in filled) == sum(p.elements for p in pieces)
        assert all(a + n == b for (a, n), (b, _) in pairwise(filled))
    for i, begin in enumerate(dealt.begins):
        rank, place = divmod(begin, dealt.shard or 1)
        assert not parameters[i][1] or shards[rank][i] == (f"p{i}", 0, parameters[i][1], place)


# -- parameters of every kind --------------------------------------------------------------------


class Branches(nn.Module):
    """Three layers, of which a pass uses those it is told to."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = (nn.Linear(2, 2, bias=False) for _ in range(3))

    def forward(self, x, use):
        return sum(getattr(self, name)(x).sum() for name in use)


@pytest.mark.parametrize("bucket_bytes", [16, 32, None])
@pytest.mark.parametrize("stage", [1, 2])
def test_ranks_may_use_different_parameters_and_none_counts_as_zeros(stage, bucket_bytes):
    def program(comm):
        net = whole_numbers(Branches())
        before = [p.detach().clone() for p in net.parameters()]
        optimizer = ShardedOptimizer(
            net.parameters(), SGD, comm, stage=stage, bucket_bytes=bucket_bytes, lr=1.0
        )
        net(torch.full((1, 2), 3.0), ["a", "ab", "b"][comm.rank]).backward()
        optimizer.step()
        return [
            (b - p.detach())[0, 0].item() for p, b in zip(net.parameters(), before, strict=True)
        ]

    assert world.simulate(program, 3).results == [[2.0, 2.0, 0.0]] * 3


@pytest.fixture
def _unwritten_is_nan():
    """torch fills memory that is not yet written with NaN."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("_unwritten_is_nan")
@pytest.mark.parametrize("stage", [1, 2])
def test_nothing_is_read_that_was_not_written(stage):
    def program(comm):
        net = whole_numbers(Branches())
        optimizer = ShardedOptimizer(net.parameters(), SGD, comm, stage=stage, lr=1.0)
        net(torch.ones(1, 2), "ab").backward()
        norm = optimizer.clip_grad_norm_(1e9)
        optimizer.step()
        return norm.item() ** 2, all(p.isfinite().all() for p in net.parameters())

    # 12 elements on 5 ranks are padded, and four of them are in use by nobody.
    assert world.simulate(program, 5).results == [(pytest.approx(8), True)] * 5


@pytest.mark.parametrize("stage", [1, 2])
def test_one_rank_trains_as_two_that_do_the_same(stage):
    def program(comm):
        net = whole_numbers(Branches())
        optimizer = ShardedOptimizer(
            net.parameters(), AdamW, comm, stage=stage, lr=0.1, weight_decay=0.5
        )
        for step in range(3):
            optimizer.zero_grad()
            net(torch.full((1, 2), 1.0 + step), "ab").backward()
            if step == 1:
                net.b.weight.requires_grad_(False)
            optimizer.step()
        # An unused one decays, and one that is frozen later stays.
        return [p.detach() for p in net.parameters()], optimizer.state_dict()["state"]

    one, two = (world.simulate(program, n).results for n in (1, 2))
    torch.testing.assert_close([*one, *one], two, rtol=0, atol=0)


def test_one_that_is_frozen_later_stays_and_one_thawed_later_is_refused():
    def program(comm):
        net = whole_numbers(Branches())
        net.c.weight.requires_grad_(False)
        optimizer = ShardedOptimizer(
            net.named_parameters(), AdamW, comm, stage=2, lr=0.1, weight_decay=0.5
        )
        kept = [p.detach().clone() for p in net.parameters()]
        net.b.weight.requires_grad_(False)
        net(torch.ones(1, 2), "abc").backward()
        optimizer.step()
        assert torch.equal(net.b.weight, kept[1])
        assert torch.equal(net.c.weight, kept[2])
        assert not torch.equal(net.a.weight, kept[0])
        net.c.weight.requires_grad_(True)
        with pytest.raises(RuntimeError, match=r"'c.weight' was frozen when it was given"):
            optimizer.step()

    world.simulate(program, 2)


@pytest.mark.parametrize("stage", [1, 2])
@pytest.mark.parametrize("ranks", [1, 4, 8])
def test_scalars_empty_ones_dtypes_and_more_ranks_than_elements(ranks, stage):
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.number = nn.Parameter(torch.tensor(2.0))
            self.nothing = nn.Parameter(torch.zeros(0, 3, dtype=torch.float16))
            self.sixteen = nn.Parameter(torch.ones(3, dtype=torch.bfloat16))
            self.large = nn.Parameter(torch.ones(2, dtype=torch.float64))
            self.turned = nn.Parameter(torch.arange(6.0).view(3, 2).T)
            self.gaps = nn.Parameter(torch.arange(12.0).view(3, 4)[:, ::2])

        def forward(self):
            every = (
                self.sixteen.sum(),
                self.large.square().sum(),
                (self.turned * self.gaps.T).sum(),
            )
            return self.number * sum(each.float() for each in every) + self.nothing.sum()

    def steps(net, optimizer):
        for _ in range(3):
            optimizer.zero_grad()
            net().backward()
            optimizer.step()
        return [p.detach().double() for p in net.parameters()], optimizer.state_dict()["state"]

    def program(comm):
        net = Odd()
        every = list(net.parameters())
        optimizer = ShardedOptimizer(
            [{"params": every[:3]}, {"params": every[3:]}], AdamW, comm, stage=stage, lr=0.25
        )
        kinds = [[str(p.dtype)[6:] for p in bucket.parameters] for bucket in optimizer.buckets]
        assert sorted(kinds) == [
            ["bfloat16"],
            ["float16"],
            ["float32"],
            ["float32", "float32"],
            ["float64"],
        ]
        return steps(net, optimizer)

    one = Odd()
    parameters, state = steps(one, AdamW(one.parameters(), lr=0.25))
    del state[1]  # of nothing
    for result in world.simulate(program, ranks).results:
        close(result, (parameters, state))


def test_a_group_that_is_added_later_is_trained_too():
    def steps(net, optimizer, comm=None):
        loss(net, comm).backward()
        optimizer.step()
        optimizer.add_param_group({"params": [net.last.bias], "lr": 0.5})
        for _ in range(2):
            optimizer.zero_grad()
            loss(net, comm).backward()
            optimizer.step()
        return [p.detach() for p in net.parameters()], optimizer.state_dict()["state"]

    def program(comm, stage):
        net = Net()
        optimizer = ShardedOptimizer(first(net), AdamW, comm, stage=stage, lr=0.1)
        found = steps(net, optimizer, comm)
        assert sorted(bucket.name for bucket in optimizer.buckets) == ["0", "7"]
        return found

    def first(net):
        return [p for p in net.parameters() if p is not net.last.bias]

    one = Net()
    expected = steps(one, AdamW(first(one), lr=0.1))
    for stage in (1, 2):
        for result in world.simulate(program, 3, args=(stage,)).results:
            close(result, expected)


class Counting(SGD):
    """An optimizer that keeps a number of its own among a group's settings."""

    def step(self, closure=None):
        super().step(closure)
        for group in self.param_groups:
            group["steps"] = group.get("steps", 0) + 1


def test_what_an_optimizer_keeps_among_the_settings_stays_and_is_saved():
    def program(comm):
        net, optimizer = start(comm, {}, cls=Counting)
        for _ in range(3):
            passed(net, comm)
            optimizer.step()
        return optimizer.state_dict()["param_groups"][0]["steps"]

    assert world.simulate(program, 2).results == [3, 3]


def test_a_sparse_gradient_is_refused_by_name():
    def program(comm):
        net = nn.Embedding(4, 2, sparse=True)
        optimizer = ShardedOptimizer(net.named_parameters(), SGD, comm, lr=0.1)
        net(torch.tensor([1])).sum().backward()
        optimizer.step()

    with pytest.raises(ValueError, match="the gradient of 'weight' is of layout"):
        world.simulate(program, 1)


# -- passes of every kind ------------------------------------------------------------------------


class Fails(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        raise ArithmeticError("no gradient")


@pytest.mark.parametrize("ranks_that_fail", [{0, 1}, {1}])
@pytest.mark.parametrize("stage", [1, 2])
def test_after_a_backward_pass_that_raised_the_next_step_is_right(stage, ranks_that_fail):
    def program(comm, fails):
        net = whole_numbers(chain(3))
        optimizer = ShardedOptimizer(
            net.parameters(), SGD, comm, stage=stage, bucket_bytes=64, lr=0.5
        )
        x = torch.full((1, 4), 1.0 + comm.rank)
        if comm.rank in fails:
            with pytest.raises(ArithmeticError, match="no gradient"):
                net[2](Fails.apply(net[1](net[0](x)))).sum().backward()
            if stage == 2:
                with pytest.raises(RuntimeError, match=r"call zero_grad\(\) on every rank"):
                    optimizer.step()
                with pytest.raises(RuntimeError, match=r"call zero_grad\(\) first"):
                    net(x).sum().backward()
        elif fails:
            net(x).sum().backward()
        optimizer.zero_grad()
        net(x).sum().backward()
        optimizer.step()
        return [p.detach() for p in net.parameters()]

    expected, found = (
        world.simulate(program, 2, args=(fails,)).results for fails in (set(), ranks_that_fail)
    )
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_a_rank_whose_backward_pass_raised_sends_zeros_for_what_it_had_not_sent():
    def program(comm):
        net = whole_numbers(chain(3))
        optimizer = ShardedOptimizer(net.parameters(), SGD, comm, stage=2, bucket_bytes=128, lr=1.0)
        before = [p.detach().clone() for p in net.parameters()]
        x = torch.ones(1, 4)
        if comm.rank == 1:  # when half of the last bucket is filled
            with pytest.raises(ArithmeticError, match="no gradient"):
                net[2](Fails.apply(net[1](net[0](x)))).sum().backward()
            optimizer.zero_grad()
        else:
            net(x).sum().backward()
        optimizer.step()
        return [b - p.detach() for b, p in zip(before, net.parameters(), strict=True)]

    net = whole_numbers(chain(3))
    net(torch.ones(1, 4)).sum().backward()
    for changes in world.simulate(program, 2).results:  # rank 0 has the first half of each bucket
        assert changes[1].tolist() == (net[1].weight.grad / 2).tolist()
        assert (changes[0][:2] == net[0].weight.grad[:2] / 2).all()


@pytest.mark.parametrize("stage", [1, 2])
def test_a_forward_pass_that_raised_on_one_rank_is_run_again(stage):
    def program(comm, fails):
        net = whole_numbers(chain(3))
        optimizer = ShardedOptimizer(net.parameters(), SGD, comm, stage=stage, lr=0.5)
        x = torch.full((1, 4), 1.0 + comm.rank)
        if fails and comm.rank == 1:
            with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
                net(x[:, :3])
        net(x).sum().backward()
        optimizer.step()
        return [p.detach() for p in net.parameters()]

    expected, found = (world.simulate(program, 2, args=(fails,)).results for fails in (False, True))
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


@pytest.mark.parametrize("stage", [1, 2])
@pytest.mark.parametrize("quiet", [0, 2, 3])
def test_micro_batches_add_up_to_the_batch_whatever_is_reduced_when(stage, quiet):
    def program(comm):
        net = Net()
        optimizer = ShardedOptimizer(
            net.parameters(), SGD, comm, stage=stage, bucket_bytes=100, lr=0.5
        )
        for _ in range(2):  # with no word of zero_grad(): a step has used its gradients
            if stage == 1:
                net.zero_grad()
            for i in range(3):
                with optimizer.no_sync() if i < quiet else nullcontext():
                    (loss(net, comm, slice(8 * i, 8 * i + 8)) / 3).backward()
            optimizer.step()
        return [p.detach() for p in net.parameters()]

    net = Net()
    optimizer = SGD(net.parameters(), lr=0.5)
    go_on(net, optimizer, steps=2)
    for result in world.simulate(program, 2).results:
        close(result, [p.detach() for p in net.parameters()])


def test_a_step_reduces_what_no_sync_has_left_though_a_rank_has_nothing():
    def program(comm):
        net = whole_numbers(chain(2))
        optimizer = ShardedOptimizer(net.parameters(), SGD, comm, stage=2, lr=1.0)
        before = net[1].weight.detach().clone()
        with optimizer.no_sync():
            if comm.rank == 0:
                net(torch.ones(1, 4)).sum().backward()
                gradient = net[1].weight.grad.clone()
        optimizer.step()
        assert net[1].weight.grad is None
        change = before - net[1].weight.detach()
        return comm.rank or torch.equal(change, gradient / 2), change

    (right, first), (_, second) = world.simulate(program, 2).results
    assert right
    assert torch.equal(first, second)


def test_zero_grad_forgets_shards_and_whole_gradients_alike():
    def program(comm, to_none):
        net = whole_numbers(chain(2))
        optimizer = ShardedOptimizer(net.parameters(), SGD, comm, stage=2, bucket_bytes=64, lr=1.0)
        x = torch.ones(1, 4)
        net(x).sum().backward()
        with optimizer.no_sync():
            net(x).sum().backward()
        optimizer.zero_grad(to_none)
        before = [p.detach().clone() for p in net.parameters()]
        held = optimizer.held()
        optimizer.step()
        torch.testing.assert_close([p.detach() for p in net.parameters()], before, rtol=0, atol=0)
        return held.gradients

    assert world.simulate(program, 2, args=(True,)).results == [0, 0]
    assert world.simulate(program, 2, args=(False,)).results == [64, 64]


def test_a_closure_is_run_with_gradients_and_its_loss_returned():
    def program(comm):
        net = Net()
        optimizer = ShardedOptimizer(net.parameters(), SGD, comm, lr=0.5)

        def closure():
            optimizer.zero_grad()
            value = loss(net, comm)
            value.backward()
            return value

        return optimizer.step(closure).item(), [p.detach() for p in net.parameters()]

    one = Net()
    expected = loss(one).item()
    go_on(one, SGD(one.parameters(), lr=0.5), steps=1)
    results = world.simulate(program, 2).results
    assert sum(value for value, _ in results) / 2 == pytest.approx(expected)
    close(results[0][1], [p.detach() for p in one.parameters()])


def test_an_optimizer_that_is_gone_leaves_its_parameters_alone():
    def program(comm):
        net = chain(2)
        optimizer = ShardedOptimizer(net.parameters(), SGD, comm, stage=2, lr=0.5)
        del optimizer
        gc.collect()
        net(torch.ones(1, 4)).sum().backward()
        assert all(p.grad is not None for p in net.parameters())

    assert world.simulate(program, 2).traffic.count("reduce_scatter") == 0


# -- offload -------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", [1, 2])
def test_what_is_offloaded_trains_alike_and_its_bytes_are_counted_both_ways(stage):
    def program(comm, options):
        net = flat_net(48, torch.bfloat16)
        optimizer = ShardedOptimizer(
            net.parameters(), AdamW, comm, stage=stage, master_dtype=torch.float32, **options
        )
        for _ in range(2):
            optimizer.zero_grad()
            for _ in range(2):
                passed(net, comm)
            optimizer.step()
        return [p.detach() for p in net.parameters()], optimizer.held(), optimizer.moved

    plain, offloaded = (
        world.simulate(program, 4, args=(options,)).results for options in ({}, {"offload": "cpu"})
    )
    for (mine, held, moved), (theirs, before, unmoved) in zip(offloaded, plain, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0)
        shards = 2 * 12 if stage == 2 else 0  # gradients are shards at rest in stage 2
        assert held.host == 12 * 12 + shards
        assert (held.weights, held.optimizer) == (before.weights, 0)
        assert held.gradients == before.gradients - shards
        batches = 2 if stage == 2 else 1
        assert moved == {"to host": batches * 2 * 12, "to device": 2 * 12}
        assert unmoved == {}


def test_offloaded_weights_of_the_same_type_are_a_copy_too():
    def program(comm):
        net, optimizer = start(comm, {"offload": "cpu"})
        passed(net, comm)
        optimizer.step()
        return optimizer.held().host

    assert world.simulate(program, 4).results == [12 * (4 + 8)] * 4


# -- wrong use -----------------------------------------------------------------------------------

WRONG = [
    ({"stage": 3}, r"stage is 3; it must be at most 2"),
    ({"stage": 0}, "stage is 0"),
    ({"stage": 2, "averaged": True}, "averaged is True and stage is 2"),
    ({"bucket_bytes": 0}, "bucket_bytes is 0"),
    ({"master_dtype": torch.int32}, "master_dtype is torch.int32; it must be a floating-point"),
    ({"offload": "disk"}, "offload is 'disk'; it must be 'cpu'"),
    ({"lr": -1.0}, "Invalid learning rate"),
    ({"optimizer_cls": Adafactor}, "whole_tensors is False; it must be True for Adafactor"),
    ({"optimizer_cls": torch.optim.LBFGS}, "optimizer_cls is <class .*LBFGS.*inner products"),
    ({"optimizer_cls": nn.Linear}, "optimizer_cls is <class .*a class of Optimizers"),
    ({"params": []}, r"params is \[\]"),
    ({"params": torch.ones(2)}, "params is tensor"),
    ({"params": iter([torch.ones(2), None])}, r"params is \[tensor"),
]


@pytest.mark.parametrize(("options", "says"), WRONG)
def test_wrong_options_are_refused(options, says):
    right = {"params": flat_net().parameters(), "optimizer_cls": SGD}
    with pytest.raises(ValueError, match=says):
        world.simulate(lambda comm: ShardedOptimizer(**{**right, **options}), 1)


def test_flat_layouts_are_those_of_the_plans():
    def program(comm):
        _, optimizer = start(comm, {"bucket_bytes": 1e9}, 51)
        (bucket,) = optimizer.buckets
        return bucket.layout == flat({"0": 48, "1": 3}, 4)

    assert world.simulate(program, 4).results == [True] * 4
