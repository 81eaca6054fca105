"""An optimizer split among ranks: equal to one device and to torch's own, with bytes as counted."""

from __future__ import annotations

from functools import cache, partial
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import SGD, Adafactor, AdamW, Muon
from torch.optim.lr_scheduler import LinearLR, OneCycleLR

from dlsys import world, zero
from dlsys.hardware import DEVICES, Link
from dlsys.zero import ShardedOptimizer, step_plan
from dlsys.zero.flat import Dealt
from tests.mechanisms.nets import Fails, whole_numbers

RANKS = [1, 2, 3, 4, 8]
OPTIONS = {AdamW: {"lr": 0.05}, SGD: {"lr": 0.1, "momentum": 0.9}}


class Net(nn.Module):
    """Shapes that nothing divides, a tied weight, a frozen layer and a parameter of one number."""

    def __init__(self):
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

    def forward(self, x):
        x = self.middle(self.frozen(self.first(x).tanh()).tanh())
        return self.last(x) * self.scale


def rows(seed=0, of=5, number=24):
    return torch.randn(number, of, generator=torch.Generator().manual_seed(seed))


X, Y = rows(1), rows(2, of=7)


def loss(net, comm=None):
    """The mean square error on the rows of this rank, or on all of them."""
    x, y = X, Y
    if comm is not None:
        x, y = (each.chunk(comm.size)[comm.rank] for each in (x, y))
    return (net(x) - y).square().mean()


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


def both(build, cls, steps, ranks=2, like=close, more=None, **options):
    """Hold what `steps(net, optimizer, mine)` leaves in the parameters of ranks against one device.

    mine: the part of rows that is this rank's; more: options of ShardedOptimizer beside `options`.
    """

    def end(net, optimizer, mine):
        steps(net, optimizer, mine)
        return [p.detach().double() for p in net.parameters()]

    def program(comm):
        net = build()
        optimizer = ShardedOptimizer(net.named_parameters(), cls, comm, **options, **(more or {}))
        return end(net, optimizer, lambda rows: rows.chunk(comm.size)[comm.rank])

    one = build()
    expected = end(one, cls(one.parameters(), **options), lambda rows: rows)
    for found in world.simulate(program, ranks).results:
        like(found, expected)


def equal(mine, theirs):
    torch.testing.assert_close(mine, theirs, rtol=0, atol=0)


# -- equal to one device -------------------------------------------------------------------------


@cache
def one_device(cls):
    """Parameters after ten steps on one device."""
    net = Net()
    optimizer = cls(groups(net), **OPTIONS[cls])
    return train(net, optimizer)


@pytest.mark.parametrize("stage", [1, 2])
@pytest.mark.parametrize(("cls", "ranks"), [*((AdamW, n) for n in RANKS), (SGD, 3)])
def test_ten_steps_are_those_of_one_device(cls, ranks, stage):
    def program(comm):
        net = Net()
        with torch.no_grad():
            net.middle.bias.add_(comm.rank)  # every rank takes over rank 0's
        optimizer = ShardedOptimizer(
            groups(net), cls, comm, stage=stage, bucket_bytes=120, **OPTIONS[cls]
        )
        assert len(optimizer.buckets) == 3
        return train(net, optimizer, comm)

    results = world.simulate(program, ranks).results
    close(results[0], one_device(cls))
    for other in results[1:]:
        torch.testing.assert_close(other, results[0], rtol=0, atol=0)


@pytest.mark.parametrize("stage", [1, 2])
@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_whole_numbers_are_updated_exactly(ranks, stage):
    inputs = torch.randint(-3, 4, (16, 5), generator=torch.Generator().manual_seed(1)).float()

    def steps(net, optimizer, mine):
        for _ in range(3):
            optimizer.zero_grad()
            (net(mine(inputs)).sum() * (16 / len(mine(inputs)))).backward()
            optimizer.step()

    build = lambda: whole_numbers(nn.Linear(5, 3))  # noqa: E731
    both(build, SGD, steps, ranks, equal, {"stage": stage}, lr=0.25, momentum=0.5)


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


def passed(net, comm):
    """One micro-batch forward and backward."""
    x = torch.full((1, net.in_features), comm.rank + 1, dtype=net.weight.dtype)
    net(x).sum().backward()


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
        return optimizer.held()

    for held in world.simulate(program, ranks).results:
        assert held.at_rest == (everywhere + split / ranks) * 48
        assert held.weights == dtype.itemsize * 48


def chain(layers=6):
    return nn.Sequential(*(nn.Linear(4, 4, bias=False) for _ in range(layers)))


def test_whole_gradients_are_freed_while_backward_goes_on():
    seen = []

    def program(comm):
        net = chain(3)
        ShardedOptimizer(net.parameters(), AdamW, comm, stage=2, bucket_bytes=64).zero_grad()
        optimizer = ShardedOptimizer(net.parameters(), AdamW, comm, stage=2, bucket_bytes=64)

        def look(parameter):
            whole = [bucket.flat is not None for bucket in optimizer.buckets]
            seen.append((*(p.grad is None for p in net.parameters()), sum(whole)))

        for p in net.parameters():
            p.register_post_accumulate_grad_hook(look)
        net(torch.ones(1, 4)).sum().backward()
        assert all(bucket.flat is None for bucket in optimizer.buckets)

    run = world.simulate(program, 2)
    assert {tuple(none) for *none, _ in seen} == {(True,) * 3}
    assert max(whole for *_, whole in seen) <= 2
    assert run.traffic.count("reduce_scatter", rank=0) == 3  # the first optimizer has let go


def test_buckets_of_groups_that_go_through_the_model_side_by_side_are_filled_in_turn():
    def program(comm):
        net = nn.Sequential(*(nn.Linear(4, 4) for _ in range(3)))
        parts = [[(n, p) for n, p in net.named_parameters() if kind in n] for kind in ("w", "b")]
        groups = [{"params": parts[0]}, {"params": parts[1], "weight_decay": 0.0}]
        optimizer = ShardedOptimizer(groups, AdamW, comm, stage=2, bucket_bytes=16)
        return [name[0] for bucket in optimizer.buckets for name in bucket.names]

    assert world.simulate(program, 2).results == [["2", "2", "1", "1", "0", "0"]] * 2


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


@pytest.mark.parametrize("stage", [1, 2])
def test_a_step_does_what_its_plan_says_and_holds_what_its_price_says(stage):
    plan = step_plan(stage, {"0": 16, "1": 16, "2": 16}, 4, 2, "each" if stage == 2 else "last")

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
        begin = len(comm.traffic.calls)
        optimizer.zero_grad()
        for _ in range(2):
            net(torch.ones(1, 4, dtype=torch.bfloat16)).sum().backward()
        optimizer.step()
        calls = [c.kind for c in comm.traffic.calls[begin:] if c.rank == comm.rank]
        return calls, optimizer.held()

    kinds = {"reduce": "reduce_scatter", "gather": "all_gather"}
    planned = [kinds[action.kind] for action in plan.actions if action.kind in kinds]
    for calls, held in world.simulate(program, 4).results:
        assert calls == planned
        expected = zero.held(plan)
        for name in ("weights", "gradients", "optimizer"):
            assert getattr(held, name) == getattr(expected, name)


# -- gradients clipped ---------------------------------------------------------------------------


@pytest.mark.parametrize("stage", [1, 2])
def test_clipping_is_by_the_norm_of_all_shards_and_the_same_on_every_rank(stage):
    norms = []

    def steps(net, optimizer, mine):
        (net(mine(X)) - mine(Y)).square().mean().backward()
        clip = getattr(optimizer, "clip_grad_norm_", partial(clip_grad_norm_, net.parameters()))
        norms.append(clip(0.1))
        optimizer.step()

    both(Net, SGD, steps, 3, more={"stage": stage}, lr=0.5)
    assert norms[0] > 0.1
    torch.testing.assert_close(norms, norms[:1] * 4)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float64])
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


# -- 16 bits -------------------------------------------------------------------------------------


def test_a_master_copy_adds_up_what_16_bits_round_away():
    def trained(net, optimizer):
        for _ in range(4):
            net.zero_grad()
            net(torch.ones(1, net.in_features, dtype=net.weight.dtype)).sum().backward()
            optimizer.step()
        return [p.detach().clone() for p in net.parameters()]

    options = {"lr": 2**-11, "momentum": 0.5}
    one = flat_net(48)  # gradients are 1 whatever the weights: a copy in 32 bits takes these steps
    expected = [p.bfloat16() for p in trained(one, SGD(one.parameters(), **options))]

    def program(comm, master):
        net = flat_net(48, torch.bfloat16)
        sharded = ShardedOptimizer(net.parameters(), SGD, comm, master_dtype=master, **options)
        found = trained(net, sharded)
        net.weight.data.fill_(8.0)  # a weight that was loaded is followed
        net.zero_grad()
        sharded.step()
        assert (net.weight > 7.9).all()
        return found

    for found in world.simulate(program, 3, args=(torch.float32,)).results:
        equal(found, expected)
    assert (expected[0] != 0.5).all()
    assert (world.simulate(program, 1, args=(None,)).results[0][0] == 0.5).all()


# -- whole tensors -------------------------------------------------------------------------------


def matrices():
    net = nn.Sequential(*(nn.Linear(a, b, bias=False) for a, b in ((5, 7), (7, 3), (3, 4))))
    with torch.no_grad():
        for place, p in enumerate(net.parameters()):
            p.copy_(rows(place, p.shape[1], p.shape[0]))
    return net


@pytest.mark.parametrize("cls", [Adafactor, Muon])
@pytest.mark.parametrize("stage", [1, 2])
def test_optimizers_of_whole_tensors_train_as_on_one_device(cls, stage):
    owned = []

    def steps(net, optimizer, mine):
        for _ in range(4):
            optimizer.zero_grad()
            net(mine(X)).square().mean().backward()
            optimizer.step()
        if isinstance(optimizer, ShardedOptimizer):
            owned.append(sum(shard.numel() > 0 for shard in optimizer.buckets[0].shards))

    both(matrices, cls, steps, more={"stage": stage, "whole_tensors": True}, lr=0.05)
    assert sorted(owned) == [1, 2]  # 35 elements, and 21 + 12


def test_whole_tensors_are_dealt_out_together_however_large():
    def program(comm):
        net = nn.ModuleList(nn.Linear(4096, 4096, bias=False, device="meta") for _ in range(2))
        optimizer = ShardedOptimizer(net.parameters(), Muon, comm, whole_tensors=True)
        return [shard.numel() > 0 for bucket in optimizer.buckets for shard in bucket.shards]

    assert world.simulate(program, 2).results == [[True, False], [False, True]]


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
        filled = sorted((piece.place, piece.elements) for piece in pieces if piece.elements)
        assert sum(elements for _, elements in filled) == sum(p.elements for p in pieces)
        assert all(a + n == b for (a, n), (b, _) in pairwise(filled))
    for i, begin in enumerate(dealt.begins):
        rank, place = divmod(begin, dealt.shard or 1)
        elements = parameters[i][1]
        assert not elements or shards[rank][i] == (f"p{i}", 0, elements, place)


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
def test_ranks_may_use_different_parameters(stage, bucket_bytes):
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


@pytest.mark.parametrize("stage", [1, 2])
def test_what_no_rank_used_is_left_alone_by_adamw_as_on_one_device(stage):
    def steps(net, optimizer, mine):
        for use in ("abc", "ab", "b", "ac"):  # momentum and decay would move it
            optimizer.zero_grad()
            net(torch.ones(1, 2), use).backward()
            optimizer.step()

    build = lambda: whole_numbers(Branches())  # noqa: E731
    both(build, AdamW, steps, 2, equal, {"stage": stage}, lr=0.1, weight_decay=0.5)


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

    def steps(net, optimizer, mine):
        for _ in range(3):
            optimizer.zero_grad()
            net().backward()
            optimizer.step()
        kinds = [
            {p.dtype for p in bucket.parameters} for bucket in getattr(optimizer, "buckets", [])
        ]
        assert all(len(kind) == 1 for kind in kinds)

    both(Odd, AdamW, steps, ranks, more={"stage": stage}, lr=0.25)


class Counting(SGD):
    """An optimizer that keeps a number of its own among a group's settings."""

    def step(self, closure=None):
        super().step(closure)
        for group in self.param_groups:
            group["steps"] = group.get("steps", 0) + 1


def test_what_an_optimizer_keeps_among_the_settings_stays():
    def program(comm):
        net, optimizer = start(comm, {}, cls=Counting)
        for _ in range(3):
            passed(net, comm)
            optimizer.step()
        return optimizer.param_groups[0]["steps"]

    assert world.simulate(program, 2).results == [3, 3]


# -- passes of every kind ------------------------------------------------------------------------


@pytest.mark.parametrize("stage", [1, 2])
def test_after_a_backward_pass_that_raised_the_next_step_is_right(stage):
    def program(comm, fails):
        net = whole_numbers(chain(3))
        optimizer = ShardedOptimizer(
            net.parameters(), SGD, comm, stage=stage, bucket_bytes=64, lr=0.5
        )
        x = torch.full((1, 4), 1.0 + comm.rank)
        if fails:
            with pytest.raises(ArithmeticError, match="no gradient"):
                net[2](Fails.apply(net[1](net[0](x)))).sum().backward()
            if stage == 2:
                with pytest.raises(RuntimeError, match=r"\(or zero_grad\(\)\) on every rank"):
                    net(x).sum().backward()
        optimizer.zero_grad()
        net(x).sum().backward()
        optimizer.step()
        return [p.detach() for p in net.parameters()]

    expected, found = (world.simulate(program, 2, args=(f,)).results for f in (False, True))
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


@pytest.mark.parametrize("stage", [1, 2])
def test_micro_batches_add_up_to_the_batch(stage):
    def steps(net, optimizer, mine):
        for _ in range(2):
            net.zero_grad()  # the model's own: a step has used up what stage 2 keeps
            for x, y in zip(X.chunk(3), Y.chunk(3), strict=True):
                (net(mine(x)) - mine(y)).square().mean().div(3).backward()
            optimizer.step()

    both(Net, SGD, steps, more={"stage": stage, "bucket_bytes": 100}, lr=0.5)


def test_zero_grad_forgets_shards():
    def program(comm):
        net = whole_numbers(chain(2))
        optimizer = ShardedOptimizer(net.parameters(), SGD, comm, stage=2, bucket_bytes=64, lr=1.0)
        net(torch.ones(1, 4)).sum().backward()
        optimizer.zero_grad()
        before = [p.detach().clone() for p in net.parameters()]
        held = optimizer.held()
        optimizer.step()
        torch.testing.assert_close([p.detach() for p in net.parameters()], before, rtol=0, atol=0)
        return held.gradients

    assert world.simulate(program, 2).results == [0, 0]


def test_what_step_is_given_goes_to_the_optimizer_that_is_sharded():
    class Scaled(SGD):
        def step(self, closure=None, *, scale=1.0):
            for group in self.param_groups:
                for p in group["params"]:
                    p.grad.mul_(scale)
            super().step(closure)

    def program(comm):
        net, optimizer = start(comm, {"lr": 1.0}, cls=Scaled)
        before = net.bias.detach().clone()
        passed(net, comm)
        optimizer.step(scale=0.5)
        return (before - net.bias.detach()).tolist()

    assert world.simulate(program, 2).results == [[0.5] * 3] * 2


def test_a_state_of_one_rank_is_not_given_out_as_the_whole():
    def program(comm):
        _, optimizer = start(comm, {})
        with pytest.raises(RuntimeError, match=r"use local_shards\(\)"):
            optimizer.state_dict()

    world.simulate(program, 1)


def test_a_closure_is_run_with_gradients_and_its_loss_returned():
    losses = []

    def steps(net, optimizer, mine):
        def closure():
            optimizer.zero_grad()
            value = (net(mine(X)) - mine(Y)).square().mean()
            value.backward()
            return value

        losses.append(optimizer.step(closure).item())

    both(Net, SGD, steps, lr=0.5)
    alone, *mine = losses
    assert sum(mine) / 2 == pytest.approx(alone)


# -- wrong use -----------------------------------------------------------------------------------

WRONG = [
    ({"master_dtype": torch.int32}, "master_dtype is torch.int32; it must be a floating-point"),
    ({"lr": -1.0}, "Invalid learning rate"),
    ({"optimizer_cls": Adafactor}, "whole_tensors is False; it must be True for Adafactor"),
    ({"optimizer_cls": nn.Linear}, "optimizer_cls is <class .*a class of Optimizers"),
    ({"params": iter([torch.ones(2), None])}, r"params is \[tensor"),
]


@pytest.mark.parametrize(("options", "says"), WRONG)
def test_wrong_options_are_refused(options, says):
    right = {"params": flat_net().parameters(), "optimizer_cls": SGD}
    with pytest.raises(ValueError, match=says):
        world.simulate(lambda comm: ShardedOptimizer(**{**right, **options}), 1)
