"""An optimizer split among ranks: equal to one device and to torch's own, with bytes as counted."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.optim import SGD, AdamW
from torch.optim.lr_scheduler import LinearLR, OneCycleLR

from dlsys import world
from dlsys.data_parallel import DataParallel
from dlsys.hardware import DEVICES, Link
from dlsys.zero import ShardedOptimizer

RANKS = [1, 2, 3, 4, 8]
ADAMW, MOMENTUM = (AdamW, {"lr": 0.05}), (SGD, {"lr": 0.1, "momentum": 0.9})


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


@pytest.fixture(scope="module", params=[ADAMW, MOMENTUM], ids=["AdamW", "momentum"])
def one_device(request):
    """What an optimizer does on one device: its class, settings, parameters and state after."""
    cls, kw = request.param
    net = Net()
    optimizer = cls(groups(net), **kw)
    return cls, kw, train(net, optimizer), optimizer.state_dict()


@pytest.mark.parametrize("stage", [1, 2])
@pytest.mark.parametrize("ranks", RANKS)
def test_ten_steps_are_those_of_one_device(one_device, ranks, stage):
    cls, kw, parameters, state = one_device

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


@pytest.mark.parametrize("ranks", RANKS)
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


def test_the_actions_of_a_step_are_on_record_by_micro_batch():
    def program(comm, stage):
        net = chain(2)
        optimizer = ShardedOptimizer(
            net.parameters(), AdamW, comm, stage=stage, bucket_bytes=64, lr=0.01
        )
        for _ in range(2):
            for _ in range(2):
                net(torch.ones(1, 4)).sum().backward()
            optimizer.step()
        return optimizer.actions

    end = [("update", -1), ("gather", 0), ("gather", 1)]
    first, second = (world.simulate(program, 2, args=(stage,)).results[0] for stage in (1, 2))
    assert first == [(*action, 0) for action in [("reduce", 1), ("reduce", 0), *end]]
    once = [("reduce", 1), ("free gradients", 1), ("reduce", 0), ("free gradients", 0)]
    assert second == [(*a, 0) for a in once] + [(*a, 1) for a in once + end]
