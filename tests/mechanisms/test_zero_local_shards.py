"""What a rank holds of each parameter and of its optimizer's state, and where that lies."""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adafactor, AdamW

from dlsys import world
from dlsys.zero import FullyShardedDataParallel, LocalShard, ShardedOptimizer

RANKS = (1, 2, 3, 5)
MOMENTS = ("exp_avg", "exp_avg_sq")


class Net(nn.Module):
    """Sizes that divide by no number of ranks, a scalar, no elements at all, and a frozen part;
    gradients do not depend on the weights."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList([nn.Linear(5, 7), nn.Linear(5, 3)])
        self.scale = nn.Parameter(torch.tensor(2.0))
        self.none = nn.Parameter(torch.ones(0, 3))
        self.frozen = nn.Parameter(torch.arange(11.0), requires_grad=False)

    def forward(self, x):
        return sum(each(x).sum() for each in self.layers) + self.scale + self.none.sum()


def stepped(comm, stage, steps=2, **options):
    """A model, its optimizer, and what gives and takes this rank's part."""
    net = Net()
    if stage == 3:
        net = FullyShardedDataParallel(net, comm, **options)
        optimizer = AdamW([p for p in net.parameters() if p.requires_grad], 0.1)
        local, load = net.local_shards, net.load_local_shards
        pair = lambda: local(optimizer), lambda states: load(states, optimizer)
    else:
        optimizer = ShardedOptimizer(
            net.named_parameters(), AdamW, comm, stage=stage, lr=0.1, bucket_bytes=64, **options
        )
        pair = optimizer.local_shards, optimizer.load_local_shards
    for step in range(steps):
        optimizer.zero_grad()
        net(torch.arange(10.0).view(2, 5) - step).backward()
        optimizer.step()
    return net, optimizer, *pair


def whole(net):
    if isinstance(net, FullyShardedDataParallel):
        return net.full_parameters()
    return {name: p.detach().clone() for name, p in net.named_parameters()}


def joined(each, name, key):
    """One tensor out of all ranks' parts of it; every number is in exactly one of them."""
    parts = [states[name][key] for states in each if name in states]
    shape, elements = parts[0].shape, parts[0].elements
    assert all((p.shape, p.elements, p.tensor.dim()) == (shape, elements, 1) for p in parts)
    assert elements == math.prod(shape)
    found, times = torch.zeros(elements), torch.zeros(elements)
    for part in parts:
        place = slice(part.offset, part.offset + len(part.tensor))
        found[place] = part.tensor
        times[place] += 1
    assert times.eq(1).all()
    return found.view(shape)


@pytest.mark.parametrize("stage", [1, 2, 3])
@pytest.mark.parametrize("ranks", RANKS)
def test_the_parts_of_all_ranks_are_every_number_once_as_one_device_has_them(stage, ranks):
    def program(comm):
        net, _, local, _ = stepped(comm, stage)
        return deepcopy(local()), whole(net)

    plain = Net()
    adamw = AdamW(plain.parameters(), 0.1)
    for step in range(2):
        adamw.zero_grad()
        plain(torch.arange(10.0).view(2, 5) - step).backward()
        adamw.step()
    results = world.simulate(program, ranks).results
    each = [states for states, _ in results]
    trained = {n: p for n, p in plain.named_parameters() if p.requires_grad}
    frozen = {"frozen"} if stage == 3 else set()  # stages 1 and 2 hold it whole, as it was
    empty = {"none"} if stage != 3 else set()  # no rank holds anything of it
    assert {name for states in each for name in states} == {*trained} - empty | frozen
    for name in {*trained} - empty:
        assert joined(each, name, "weight").equal(trained[name])
        for key in MOMENTS:
            assert joined(each, name, key).equal(adamw.state[trained[name]][key])
        for states in each:
            if name in states and trained[name].dim():
                assert states[name]["step"].equal(torch.tensor(2.0))
    if frozen:
        assert all(states["frozen"].keys() == {"weight"} for states in each)


def test_what_is_in_no_unit_is_whole_everywhere():
    def program(comm):
        _, _, local, _ = stepped(comm, 3, units=[nn.Linear])
        return deepcopy(local())

    for states in world.simulate(program, 4).results:
        weight = states["frozen"]["weight"]
        assert (weight.offset, weight.tensor.tolist()) == (0, [*range(11)])


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_loaded_parts_make_a_new_run_go_on_and_loading_shards_sends_nothing(stage):
    def program(comm):
        net, _, local, _ = stepped(comm, stage)
        states = deepcopy(local())
        again, _, loaded, load = stepped(comm, stage, steps=1)
        before = len(comm.traffic.messages)
        load(states)
        assert stage != 3 or len(comm.traffic.messages) == before
        for name, values in loaded().items():
            assert values.keys() == states[name].keys()
            for key, value in values.items():
                right = states[name][key]
                pair = [getattr(each, "tensor", each) for each in (value, right)]
                assert torch.equal(*pair)
        return whole(net), whole(again)

    for first, second in world.simulate(program, 3).results:
        torch.testing.assert_close(second, first, rtol=0, atol=0)


@pytest.mark.parametrize("options", [{"master_dtype": torch.float32}, {}], ids=str)
def test_the_weight_is_the_one_that_the_optimizer_updates(options):
    def program(comm):
        def new():
            net = nn.Linear(5, 3).to(torch.bfloat16)
            return net, ShardedOptimizer(net.parameters(), SGD, comm, lr=2**-12, **options)

        torch.manual_seed(0)
        net, optimizer = new()
        net(torch.ones(1, 5, dtype=torch.bfloat16)).sum().backward()
        optimizer.step()
        states = deepcopy(optimizer.local_shards())
        dtype = options.get("master_dtype", torch.bfloat16)
        assert {each["weight"].tensor.dtype for each in states.values()} == {dtype}
        again, other = new()
        other.load_local_shards(states)
        for name, each in other.local_shards().items():
            assert each["weight"].tensor.equal(states[name]["weight"].tensor)
        return [p.equal(q) for p, q in zip(net.parameters(), again.parameters(), strict=True)]

    assert world.simulate(program, 2).results == [[True, True]] * 2


def test_what_has_no_number_for_each_element_is_given_as_the_optimizer_has_it():
    def program(comm):
        net = nn.Sequential(nn.Linear(5, 7), nn.Linear(7, 4))
        optimizer = ShardedOptimizer(net.parameters(), Adafactor, comm, whole_tensors=True)
        net(torch.ones(2, 5)).sum().backward()
        optimizer.step()
        states = optimizer.local_shards()
        optimizer.load_local_shards(deepcopy(states))
        return {name: each["row_var"].shape for name, each in states.items() if "row_var" in each}

    first, second = world.simulate(program, 2).results
    assert first | second == {"0": (7, 1), "2": (4, 1)}


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("stage", [1, 2])
def test_ranks_with_other_parameters_are_told_before_anything_is_sent_among_them(stage, named):
    def program(comm):
        net = nn.Sequential(nn.Linear(5, 7), nn.Linear(7, 5))
        params = list(net.named_parameters() if named else net.parameters())
        order = params if comm.rank == 0 else params[::-1]
        before = [p.clone() for p in net.parameters()]
        with pytest.raises(
            ValueError, match=r"rank 1 has .*, 5 float32 where rank 0 has .*, 7x5 f"
        ):
            ShardedOptimizer(order, SGD, comm, stage=stage)
        assert all(map(torch.equal, before, net.parameters()))

    world.simulate(program, 2)


def test_parameters_of_one_name_are_refused():
    def program(comm):
        groups = [{"params": list(nn.Linear(2, 2).named_parameters())} for _ in range(2)]
        optimizer = ShardedOptimizer(groups, SGD, comm)
        with pytest.raises(ValueError, match=r"^two parameters have the name"):
            optimizer.local_shards()

    world.simulate(program, 2)


def moved(shard, by, rows=7):
    """A part as if it began elsewhere, or were of a matrix of other rows."""
    return replace(shard, offset=shard.offset + by, shape=(rows, 35 // rows))


WRONG = {
    "a name is missing": (
        lambda s: s.pop("layers.0.weight"),
        r"states is other than .*layers\.0\.w",
    ),
    "a name too many": (
        lambda s: s.update(other={}),
        r"states is other than this rank's in \['oth",
    ),
    "no weight": (
        lambda s: s["layers.0.weight"].pop("weight"),
        r"'layers.0.weight'\]\['weight'\] is",
    ),
    "no state": (lambda s: s.update({"layers.0.weight": None}), r"states\['layers.0.weight'\]\["),
    "a plain tensor": (
        lambda s: s["layers.0.weight"].update(weight=torch.ones(35)),
        r"it must be a part of \d+ elements, from \d+ on of \(7, 5\)\.$",
    ),
    "another size": (
        lambda s: s["layers.0.weight"].update(exp_avg=LocalShard(torch.ones(2), 0, (7, 5))),
        r"states\['layers.0.weight'\]\['exp_avg'\] is LocalShard",
    ),
    "from another place": (
        lambda s: s["layers.0.weight"].update(weight=moved(s["layers.0.weight"]["weight"], 1)),
        r"states\['layers.0.weight'\]\['weight'\] is LocalShard",
    ),
    "of another shape": (
        lambda s: s["layers.0.weight"].update(weight=moved(s["layers.0.weight"]["weight"], 0, 5)),
        r"states\['layers.0.weight'\]\['weight'\] is LocalShard",
    ),
}


@pytest.mark.parametrize("stage", [1, 3])
@pytest.mark.parametrize("what", WRONG)
def test_states_that_are_no_local_shards_of_this_rank_are_refused_before_anything_changes(
    what, stage
):
    spoil, sentence = WRONG[what]

    def program(comm):
        _, _, local, load = stepped(comm, stage)
        before, states = deepcopy(local()), local()
        spoil(states)
        with pytest.raises(ValueError, match=sentence):
            load(states)
        for name, each in local().items():
            assert each["weight"].tensor.equal(before[name]["weight"].tensor)

    world.simulate(program, 1)
