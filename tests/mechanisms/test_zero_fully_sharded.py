"""Parameters, gradients and optimizer state in shards: equal to one device, counted as planned."""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from dlsys import world, zero
from dlsys.hardware import DEVICES, Link
from dlsys.model import GPT, Block
from dlsys.transformer import TransformerSpec
from dlsys.zero import FullyShardedDataParallel, step_plan
from tests.mechanisms.nets import Fails, whole_numbers

SPEC = TransformerSpec(layers=3, hidden=12, heads=4, vocab=33, sequence=8, tied=True)
"""Tied embeddings; 516 and 1884 elements a unit, which 8 does not divide."""
SMALLER = replace(SPEC, layers=2)


def batch(rows, seed=0):
    stream = torch.Generator().manual_seed(seed)
    tokens = torch.randint(SPEC.vocab, (rows, SPEC.sequence + 1), generator=stream)
    return tokens[:, :-1], tokens[:, 1:]


def part(comm, tensors):
    return [tensor.chunk(comm.size)[comm.rank] for tensor in tensors]


def layers(*sizes, bias=True):
    """Linear layers with whole numbers, each a unit."""
    return whole_numbers(nn.Sequential(*(nn.Linear(a, b, bias) for a, b in pairwise(sizes))))


def gradients(model):
    """Whole gradients by name, from the shards of all ranks."""
    found = {name: p.grad for name, p in model.module.named_parameters() if p.grad is not None}
    for name, mine in found.items():
        place = model.local_shards()[name]["weight"]
        whole = torch.full((place.elements,), -torch.inf, dtype=mine.dtype)
        whole[place.offset : place.offset + mine.numel()] = mine.reshape(-1)
        found[name] = model.comm.all_reduce(whole, "max").view(place.shape)
    return found


def plain_gradients(model):
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


def sent(comm):
    """Bytes that this rank has sent so far."""
    return comm.traffic.sent[comm.rank]


# -- equal to one device -------------------------------------------------------------------------


def train(model, data, steps):
    """The losses of steps with AdamW."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, eps=1e-4)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(*data)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses)


def one_device(spec=SPEC, rows=24, steps=10):
    def program(comm):
        model = GPT(spec)
        losses = train(model, batch(rows), steps)
        return losses, {name: p.detach() for name, p in model.named_parameters()}

    return world.simulate(program, 1).results[0]


@pytest.fixture(scope="module")
def ten_steps_alone():
    return one_device(SMALLER)


@pytest.fixture(scope="module")
def few_steps_alone():
    return one_device(rows=8, steps=2)


def sharded(comm, spec=SPEC, rows=24, steps=10, **options):
    # Every rank starts from other numbers, and takes over rank 0's.
    model = FullyShardedDataParallel(GPT(spec, seed=comm.rank), comm, **options)
    losses = train(model, part(comm, batch(rows)), steps)
    return comm.all_reduce(losses, "mean"), model.full_parameters()


def assert_same_training(results, one):
    for losses, parameters in results:
        # float32 sums in another order; a relative error of 1e-7 each, some of them cancelling.
        torch.testing.assert_close(losses, one[0], rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(parameters, one[1], rtol=1e-4, atol=3e-5)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
def test_ten_steps_of_adamw_are_those_of_one_device(ranks, ten_steps_alone):
    run = world.simulate(lambda comm: sharded(comm, SMALLER), ranks)
    assert_same_training(run.results, ten_steps_alone)


OPTIONS = {
    "one unit": {"units": GPT},
    "blocks alone": {"units": [Block]},
    "not resharded": {"reshard_after_forward": False},
    "a predicate": {"units": lambda module: isinstance(module, Block | nn.LayerNorm)},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_no_option_changes_the_result(name, few_steps_alone):
    run = world.simulate(lambda comm: sharded(comm, SPEC, 8, 2, **OPTIONS[name]), 4)
    assert_same_training(run.results, few_steps_alone)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_whole_numbers_give_outputs_gradients_and_steps_exactly(ranks):
    stream = torch.Generator().manual_seed(1)
    inputs = torch.randint(-3, 4, (8, 5), generator=stream).float()

    def step(model, x):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        out = model(x)
        out.sum().backward()
        return out.detach(), optimizer

    def program(comm):
        model = FullyShardedDataParallel(layers(5, 7, 3), comm)
        out, optimizer = step(model, part(comm, [inputs])[0])
        found = gradients(model)
        optimizer.step()
        return out, found, model.full_parameters()

    one = layers(5, 7, 3)
    out, optimizer = step(one, inputs)
    for p in one.parameters():
        p.grad /= ranks
    mean = plain_gradients(one)
    optimizer.step()
    results = world.simulate(program, ranks).results
    torch.testing.assert_close(torch.cat([r[0] for r in results]), out, rtol=0, atol=0)
    for _, found, parameters in results:
        torch.testing.assert_close(found, mean, rtol=0, atol=0)
        torch.testing.assert_close(
            parameters, {n: p.detach() for n, p in one.named_parameters()}, rtol=0, atol=0
        )


# -- counted as planned --------------------------------------------------------------------------


def steps(comm, number=1, micro_batches=1, reshard=True):
    """Collectives and bytes of the last of so many steps, the units, and what is held after it."""
    model = FullyShardedDataParallel(GPT(SPEC), comm, reshard_after_forward=reshard)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(number):
        before, calls = sent(comm), len(comm.traffic.calls)
        optimizer.zero_grad()
        for _ in range(micro_batches):
            (model(*part(comm, batch(8))) / micro_batches).backward()
        optimizer.step()
    done = [(c.kind, c.nbytes) for c in comm.traffic.calls[calls:] if c.rank == comm.rank]
    return done, sent(comm) - before, model.units, model.held(optimizer)


def planned(plan):
    """Collectives of a plan, in order: a gather is passed a shard, a reduction the padded whole."""
    shard = [4 * plan.shard(i) for i in range(len(plan.units))]
    return [
        ("all_gather", shard[unit]) if kind == "gather" else ("reduce_scatter", 4 * shard[unit])
        for kind, unit, _ in plan.actions
        if kind in ("gather", "reduce")
    ]


@pytest.mark.parametrize("reshard", [True, False])
@pytest.mark.parametrize("micro_batches", [1, 3])
@pytest.mark.parametrize("number", [1, 2])  # the second in an order that is known
def test_a_step_does_and_sends_what_the_plan_says(number, micro_batches, reshard):
    for done, nbytes, units, held in world.simulate(
        lambda comm: steps(comm, number, micro_batches, reshard), 4
    ).results:
        plan = step_plan(3, units, 4, micro_batches, reshard=reshard)
        assert held.gathered == zero.held(plan, weights=4).gathered
        assert done == planned(plan)
        assert nbytes == zero.sent(plan, 4)


@pytest.mark.parametrize("ranks", [1, 2, 8])
def test_a_rank_holds_16_bytes_a_parameter_over_the_number_of_ranks(ranks):
    padded = sum(-(-elements // ranks) for elements in (516, 1884, 1884, 1884))
    counters = 4 * len(list(GPT(SPEC).parameters()))  # AdamW counts steps, for each apart
    results = world.simulate(steps, ranks).results
    for *_, held in results:
        assert (held.weights, held.gradients) == (4 * padded, 4 * padded)
    # Padding has no state: it stands in no parameter, and all of it in the last rank's shards.
    assert results[0][3].optimizer == 8 * padded + counters
    states = sum(held.optimizer - counters for *_, held in results)
    assert states == 8 * (516 + 3 * 1884)


def test_units_in_flight_are_the_most_that_is_whole():
    nets = [nn.Sequential(*(nn.Linear(64, 64, bias=False) for _ in range(16))) for _ in range(4)]

    def program(comm):
        model = FullyShardedDataParallel(nets.pop(), comm)
        model(torch.ones(1, 64)).sum().backward()

    peak = world.simulate(program, 4, track_memory=True).peak_memory[3]
    layer = 4 * 64 * 64
    # Shards and their gradients are 4 layers each; beside them are two layers gathered, and two
    # whole gradients with what the world copies of them. All layers would be 16 more.
    assert 10 * layer < peak < 12 * layer


# -- passes of every kind ------------------------------------------------------------------------


class Branches(nn.Module):
    """Units of which a pass uses those it is told to."""

    def __init__(self):
        super().__init__()
        self.units = nn.ModuleList(nn.Linear(3, 3, bias=False) for _ in range(3))
        whole_numbers(self)

    def forward(self, x, use):
        for index in use:
            x = self.units[index](x)
        return x


class Pair(nn.Module):
    """A unit that uses the first or the second of its weights, or neither."""

    def __init__(self):
        super().__init__()
        self.a, self.b = (nn.Parameter(torch.full((3,), float(i))) for i in (1, 2))

    def forward(self, x, use):
        for name in use:
            x = x * getattr(self, name)
        return x + 1


def both(build, passes, ranks=2, **options):
    """The same passes on one device and on ranks: the gradients of `passes(model, x)` summed.

    Rank r has x = r + 1, as whole numbers: means over 1, 2 and 4 ranks are exact.
    """

    def program(comm):
        model = FullyShardedDataParallel(build(), comm, **options)
        passes(model, torch.full((2, 3), comm.rank + 1.0))
        return gradients(model)

    one = build()
    for rank in range(ranks):
        passes(one, torch.full((2, 3), rank + 1.0))
    expected = {name: gradient / ranks for name, gradient in plain_gradients(one).items()}
    for found in world.simulate(program, ranks).results:
        torch.testing.assert_close(found, expected, rtol=0, atol=0)


@pytest.mark.parametrize("use", ["01", "0101", "00", "2", "10", "211", "010"])
def test_units_may_run_in_any_order_and_several_times(use):
    def passes(model, x):
        for each in (use, use, "01"):
            model(x, list(map(int, each))).sum().backward()

    both(Branches, passes)


def test_the_next_unit_is_asked_for_while_a_pass_goes_as_the_last_one_did():
    def program(comm):
        model, found = FullyShardedDataParallel(Branches(), comm), []
        for use in ([2, 1, 0], [2, 1, 0], [0, 1, 2]):
            before, model._engine.gathered.most = (
                comm.traffic.count("all_gather", rank=comm.rank),
                0,
            )
            with torch.no_grad():
                model(torch.ones(1, 3), use)
            calls = comm.traffic.count("all_gather", rank=comm.rank) - before
            found.append((calls, model.held().gathered // (4 * 10)))  # of 9 elements, padded
        return found

    assert world.simulate(program, 2).results == [[(3, 1), (3, 2), (3, 1)]] * 2


def test_two_forward_passes_may_share_a_backward_and_one_may_have_two():
    def passes(model, x):
        (model(x, [0, 1]) + model(2 * x, [0, 2])).sum().backward()
        out = model(x, [0, 1, 2])
        out.sum().backward(retain_graph=True)
        (2 * out).sum().backward()

    both(Branches, passes)


def test_what_no_rank_used_has_no_gradient_and_adamw_leaves_it_alone():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.pairs = nn.ModuleList(Pair() for _ in range(3))

        def forward(self, x, use):
            return self.pairs[1](self.pairs[0](x, use), "b")

    def steps(model, x):
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
        for use in ("ab", "a", "b"):  # momentum of what was used before would move it
            optimizer.zero_grad()
            model(x, use).sum().backward()
            optimizer.step()
        return sorted(n for n, p in model.named_parameters() if p.grad is not None)

    def program(comm):
        model = FullyShardedDataParallel(Net(), comm)
        names = steps(model, torch.ones(1, 3))
        return [name.removeprefix("module.") for name in names], model.full_parameters()

    one = Net()
    used = steps(one, torch.ones(1, 3))
    assert used == ["pairs.0.b", "pairs.1.b"]
    for names, parameters in world.simulate(program, 2).results:
        assert names == used
        torch.testing.assert_close(parameters, dict(one.state_dict()), rtol=0, atol=0)


def test_ranks_may_use_different_weights_of_a_unit():
    def program(comm):
        model = FullyShardedDataParallel(Pair(), comm)
        x = torch.full((1, 3), comm.rank + 1.0)
        model(x, "ab"[comm.rank]).sum().backward()
        return [p.grad.tolist() for p in model.parameters() if p.numel()]

    # Rank 0 has all of a, rank 1 all of b.
    assert world.simulate(program, 2).results == [[[0.5] * 3], [[1.0] * 3]]


def test_a_unit_whose_outputs_nobody_can_look_into_is_gathered_when_backward_needs_it():
    class Box:
        def __init__(self, inside):
            self.inside = inside

    class Boxed(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = layers(3, 3)[0]

        def forward(self, x):
            return Box(self.linear(x.inside if isinstance(x, Box) else x))

    def passes(model, x):
        x.requires_grad_()
        model(x).inside.sum().backward()

    both(lambda: nn.Sequential(Boxed(), Boxed(), Boxed()), passes)


@pytest.mark.parametrize("reshard", [True, False])
def test_what_autograd_keeps_are_places_not_weights(reshard):
    def program(comm):
        net = layers(6, 6, 6, 6, 6)
        model = FullyShardedDataParallel(net, comm, reshard_after_forward=reshard)
        out = model(torch.ones(1, 6))
        assert len(model._engine.gathered.units) == (0 if reshard else 4)
        assert not any("weight" in vars(m) for m in model.modules())
        out.sum().backward()
        assert not model._engine.gathered.units
        assert not any("weight" in vars(m) for m in model.modules())

    world.simulate(program, 2)


@pytest.mark.parametrize("reshard", [True, False])
@pytest.mark.parametrize("without", [torch.no_grad, torch.inference_mode])
def test_generation_gathers_and_frees_and_keeps_nothing(without, reshard):
    def program(comm):
        model = FullyShardedDataParallel(GPT(SPEC), comm, reshard_after_forward=reshard)
        tokens, targets = part(comm, batch(2))
        model(tokens, targets).backward()
        model.eval()
        with without():
            before = sent(comm)
            logits = model(tokens)
            assert sent(comm) - before == 2 * SPEC.parameters()
        assert not model._engine.gathered.units
        assert not logits.requires_grad
        model.train()
        model(tokens, targets).backward()
        return logits.clone(), tokens

    for logits, tokens in world.simulate(program, 2).results:
        torch.testing.assert_close(logits, GPT(SPEC)(tokens).detach(), rtol=0, atol=0)


class Half(nn.Module):
    """A unit of two layers; the second may lie under a checkpoint."""

    def __init__(self, again=None):
        super().__init__()
        (self.first, self.second), self.again = layers(3, 3, 3), again

    def forward(self, x):
        x = self.first(x)
        return self.second(x) if self.again is None else checkpoint(self.second, x, **self.again)


class Recomputed(nn.Module):
    """Blocks under checkpoints: each, pairs of them, or the second half of each."""

    def __init__(self, where, reentrant=False):
        super().__init__()
        self.where, self.again = where, {"use_reentrant": reentrant}
        inside = self.again if where == "inside" else None
        self.blocks = nn.ModuleList(Half(inside) for _ in range(4))

    def forward(self, x):
        if self.where == "pairs":
            for a, b in (self.blocks[:2], self.blocks[2:]):
                x = checkpoint(lambda x, a=a, b=b: b(a(x)), x, **self.again)
            return x
        for block in self.blocks:
            x = checkpoint(block, x, **self.again) if self.where == "each" else block(x)
        return x


@pytest.mark.parametrize("units", [None, nn.Linear], ids=["blocks", "layers"])
@pytest.mark.parametrize("where", ["each", "pairs", "inside", "around"])
def test_checkpointing_changes_no_gradient_and_reduces_once(where, units):
    def passes(model, x):
        for _ in range(2):
            before = calls(model)
            if where == "around":
                checkpoint(model, x, use_reentrant=False).sum().backward()
            else:
                model(x).sum().backward()
            if isinstance(model, FullyShardedDataParallel):
                assert not model._engine.gathered.units
                units = len(model.units)
                done = {"all_gather": 2 * units, "reduce_scatter": units}
                assert calls(model) - before == done

    def calls(model):
        comm = getattr(model, "comm", None)
        return Counter(c.kind for c in comm.traffic.calls if c.rank == comm.rank) if comm else None

    both(
        lambda: Recomputed(where),
        passes,
        units=units,
    )


def test_a_units_output_may_be_changed_in_place():
    def build():
        first, second = layers(3, 3, 3)
        return nn.Sequential(first, nn.ReLU(inplace=True), second, nn.ReLU(inplace=True))

    both(build, lambda model, x: model(x).sum().backward())


@pytest.mark.parametrize("reshard", [True, False])
def test_a_forward_pass_without_a_backward_leaves_no_old_weights_behind(reshard):
    def program(comm):
        net = layers(3, 3, 3)
        model = FullyShardedDataParallel(net, comm, reshard_after_forward=reshard)
        first = model(torch.ones(1, 3))
        with torch.no_grad():
            for p in model.parameters():
                p.mul_(2.0)
        model.zero_grad()
        second = model(torch.ones(1, 3))
        plain = layers(3, 3, 3)
        assert torch.equal(first, plain(torch.ones(1, 3)))
        plain.load_state_dict(model.full_parameters())
        assert torch.equal(second, plain(torch.ones(1, 3)))

    world.simulate(program, 2)


def test_weights_that_changed_between_forward_and_backward_are_refused():
    def program(comm):
        model = FullyShardedDataParallel(layers(3, 3, 3), comm)
        loss = model(torch.ones(1, 3)).sum()
        with torch.no_grad():
            for p in model.parameters():
                p.add_(1.0)
        with pytest.raises(RuntimeError, match=r"run backward before optimizer\.step"):
            loss.backward()
        model(torch.ones(1, 3)).sum().backward()

    world.simulate(program, 2)


class Failing(nn.Module):
    """A unit that raises where it is told to."""

    def __init__(self):
        super().__init__()
        (self.first, self.last), self.where = layers(3, 3, 3), None

    def forward(self, x):
        if self.where == "forward":
            raise ArithmeticError("no output")
        x = self.first(x)
        return self.last(Fails.apply(x) if self.where == "backward" else x)


@pytest.mark.parametrize("where", ["forward", "backward"])
def test_after_a_pass_that_raised_the_next_step_is_right(where):
    def program(comm):
        net = nn.Sequential(*layers(3, 3, 3), Failing(), *layers(3, 3, 3))
        model = FullyShardedDataParallel(net, comm)
        x = torch.full((1, 3), comm.rank + 1.0)
        model(x).sum().backward()
        expected = gradients(model)
        net[2].where = where
        with pytest.raises(ArithmeticError):
            model(x).sum().backward()
        net[2].where = None
        model.zero_grad()
        model(x).sum().backward()
        assert not model._engine.gathered.units
        torch.testing.assert_close(gradients(model), expected, rtol=0, atol=0)

    world.simulate(program, 4)


# -- parameters of every kind --------------------------------------------------------------------


def test_frozen_parameters_are_gathered_and_not_reduced():
    def build():
        net = nn.Sequential(*(Half() for _ in range(3)))
        for block in net:
            block.first.requires_grad_(False)
        net[1].requires_grad_(False)
        return net

    both(build, lambda model, x: model(x).sum().backward())

    def program(comm):
        model = FullyShardedDataParallel(build(), comm)
        before = sent(comm)
        model(torch.ones(1, 3, requires_grad=True)).sum().backward()
        assert not model._engine.gathered.units
        assert model.module[1].second.weight.grad is None
        return sent(comm) - before

    # Of 12 elements a layer half is sent in each gather, twice, and of two in a reduction.
    assert world.simulate(program, 2).results == [4 * 6 * (6 * 2 + 2)] * 2


def test_frozen_units_that_backward_has_left_are_freed():
    def program(comm):
        model = FullyShardedDataParallel(layers(*[3] * 9).requires_grad_(False), comm)
        model(torch.ones(1, 3, requires_grad=True)).sum().backward()
        return model.held().gathered

    # The one in backward, and the one that is asked for ahead: 12 elements each.
    assert world.simulate(program, 2).results == [2 * 12 * 4] * 2


def test_parameters_may_be_frozen_and_thawed_later():
    def program(comm):
        net = nn.Sequential(*(Half() for _ in range(2)))
        net[0].second.requires_grad_(False)
        model = FullyShardedDataParallel(net, comm)
        net[0].second.requires_grad_(True)
        net[1].first.requires_grad_(False)
        model(torch.ones(1, 3)).sum().backward()
        return sorted(gradients(model))

    names = ["0.first", "0.second", "1.second"]
    expected = [f"{name}.{leaf}" for name in names for leaf in ("bias", "weight")]
    assert world.simulate(program, 2).results == [expected] * 2


class Mixed(nn.Module):
    """A unit of three dtypes."""

    def __init__(self):
        super().__init__()
        kinds = (torch.float32, torch.bfloat16, torch.float64)
        self.layers = nn.ParameterList(torch.full((3,), 2.0, dtype=kind) for kind in kinds)

    def forward(self, x):
        for weight in self.layers:
            x = (x.to(weight.dtype) * weight).to(x.dtype)
        return x


def test_a_unit_may_hold_several_dtypes_and_gradients_keep_theirs():
    def passes(model, x):
        model(x).sum().backward()
        assert all(p.grad.dtype == p.dtype for p in model.parameters())

    both(lambda: nn.Sequential(Mixed(), Mixed()), passes)
    both(lambda: nn.Sequential(Mixed(), Mixed()), passes, units=Mixed)
    both(lambda: nn.Sequential(Mixed(), Half()), passes, units=Half)


def test_complex_weights_may_be_read_as_real_ones():
    class Waves(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.tensor([1 + 2j, 3 - 1j, 2 + 0j]))

        def forward(self, x):
            return torch.view_as_real(self.w).square() * x[0, 0]

    def program(comm):
        model = FullyShardedDataParallel(Waves(), comm)
        model(torch.ones(1, 1)).sum().backward()
        return model.w.grad

    one = Waves()
    one(torch.ones(1, 1)).sum().backward()
    assert torch.equal(torch.cat(world.simulate(program, 3).results), one.w.grad)


def test_a_parameter_tied_across_units_belongs_to_the_innermost_unit_around_both():
    def build():
        inner = nn.Sequential(*layers(3, 3, 3, 3))
        inner[2].weight = inner[0].weight
        return nn.Sequential(layers(3, 3)[0], nn.Sequential(inner, layers(3, 3)[0]))

    def program(comm):
        model = FullyShardedDataParallel(build(), comm)
        assert model.module[1][0][0].weight is model.module[1][0][2].weight
        return [(unit.name, unit.elements) for unit in model.units]

    both(build, lambda model, x: model(x).sum().backward())
    # Of the layers with the tied weight only biases are their own.
    units = [("0", 12), ("1.0", 9), ("1.0.0", 3), ("1.0.1", 12), ("1.0.2", 3), ("1.1", 12)]
    assert world.simulate(program, 2).results[0] == units


def test_a_module_that_two_units_share_belongs_to_what_is_around_both():
    def build():
        a, b = Half(), Half()
        b.first = a.first
        return nn.Sequential(a, b)

    both(build, lambda model, x: model(x).sum().backward())


@pytest.mark.parametrize("dtype", [None, torch.float64])
def test_what_is_in_no_unit_stays_whole_and_its_gradients_are_averaged_once(dtype):
    def build():
        net = nn.Sequential(*layers(3, 3, 3), Half())
        return net.append(nn.Linear(3, 3))

    def passes(model, x):
        model(2 * x).sum().backward()
        model(x).sum().backward()

    both(lambda: whole_numbers(build()), passes, units=[Half], compute_dtype=dtype)

    def program(comm):
        model = FullyShardedDataParallel(build(), comm, units=[Half])
        assert [p.dim() for p in model.module[0].parameters()] == [2, 1]
        before = comm.traffic.count("all_reduce", rank=comm.rank)
        passes(model, torch.ones(1, 3))
        return comm.traffic.count("all_reduce", rank=comm.rank) - before

    assert world.simulate(program, 2).results == [2, 2]


def test_recurrent_layers_compute_with_whole_weights():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.cells = nn.ModuleList(nn.LSTM(3, 3, num_layers=2) for _ in range(2))

        def forward(self, x):
            for cell in self.cells:
                x, _ = cell(x)
            return x

    def run(model):
        model(torch.ones(2, 1, 3)).sum().backward()

    def program(comm):
        torch.manual_seed(3)
        model = FullyShardedDataParallel(Net(), comm)
        run(model)
        lstm = model.module.cells[0]
        assert all(a is b for a, b in zip(lstm._flat_weights, lstm.parameters(), strict=True))
        return gradients(model)

    torch.manual_seed(3)
    net = Net()
    run(net)
    for found in world.simulate(program, 2).results:
        torch.testing.assert_close(found, plain_gradients(net), rtol=1e-6, atol=1e-7)


def test_buffers_are_those_of_rank_0_and_stay_each_ranks_own():
    def program(comm):
        net = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 2))
        net[0].running_mean.fill_(comm.rank + 5)
        model = FullyShardedDataParallel(net, comm)
        first = net[0].running_mean.tolist()
        model(torch.full((2, 2), 10.0 * comm.rank)).sum().backward()
        return first, net[0].running_mean[0].item()

    assert world.simulate(program, 2).results == [([5.0, 5.0], 4.5), ([5.0, 5.0], 5.5)]


def test_tensors_without_data_train_in_virtual_time():
    def program(comm, device):
        model = FullyShardedDataParallel(GPT(SPEC, device=device), comm)
        tokens = torch.zeros(2, 8, dtype=torch.int64, device=device)
        model(tokens, tokens).backward()

    sums = [world.simulate(program, 3, args=(d,)).traffic.by_kind() for d in ("cpu", "meta")]
    assert sums[0] == sums[1]


# -- options -------------------------------------------------------------------------------------


def test_half_precision_halves_what_is_sent_and_masters_stay_whole():
    def program(comm):
        dtypes = []
        model = FullyShardedDataParallel(GPT(SPEC), comm, compute_dtype=torch.bfloat16)
        model.module.layers[1].register_forward_hook(lambda m, a, out: dtypes.append(out.dtype))
        before = sent(comm)
        loss = model(*part(comm, batch(4)))
        loss.backward()
        assert dtypes == [torch.bfloat16]
        assert {p.dtype for p in model.parameters()} == {torch.float32}
        assert {p.grad.dtype for p in model.parameters()} == {torch.float32}
        held = zero.held(step_plan(3, model.units, 2), weights=2)
        assert model.held().gathered == held.gathered
        return sent(comm) - before, loss.item(), gradients(model)

    results = world.simulate(program, 2).results
    assert {nbytes for nbytes, _, _ in results} == {3 * 2 * SPEC.parameters() // 2}
    one = GPT(SPEC)
    loss = one(*batch(4))
    loss.backward()
    assert sum(loss for _, loss, _ in results) / 2 == pytest.approx(loss.item(), rel=1e-3)
    for name, expected in plain_gradients(one).items():
        error = (results[0][2][name] - expected).norm()
        assert error < 0.05 * expected.norm() + 1e-4, name


def test_whole_numbers_are_gathered_as_they_are():
    class Table(nn.Module):
        def __init__(self):
            super().__init__()
            self.rows = nn.Parameter(torch.arange(300, 303), requires_grad=False)

        def forward(self):
            return self.rows.clone()

    def program(comm):
        return FullyShardedDataParallel(Table(), comm, compute_dtype=torch.bfloat16)()

    assert world.simulate(program, 2).results[0].tolist() == [300, 301, 302]


def test_every_unit_gets_its_inputs_in_the_dtype_that_it_computes_in():
    class Island(nn.Module):
        """Two units, between which numbers are in 32 bits."""

        def __init__(self):
            super().__init__()
            self.units = nn.ModuleList(layers(3, 3, 3))

        def forward(self, x):
            first, second = self.units
            y = first(x).float().softmax(-1)
            assert y.dtype == torch.float32
            return second(y)

    def program(comm):
        model = FullyShardedDataParallel(Island(), comm, compute_dtype=torch.bfloat16)
        return model(torch.ones(1, 3)).dtype

    assert world.simulate(program, 2).results == [torch.bfloat16] * 2


@pytest.mark.parametrize(("options", "max_norm"), [({}, 0.5), ({"units": [Block]}, 0.5), ({}, 1e6)])
def test_the_norm_that_is_clipped_is_that_of_all_gradients(options, max_norm):
    def program(comm):
        model = FullyShardedDataParallel(GPT(SMALLER), comm, **options)
        model(*part(comm, batch(4))).backward()
        norm = model.clip_grad_norm_(max_norm)
        return norm, gradients(model)

    one = GPT(SMALLER)
    one(*batch(4)).backward()
    expected = nn.utils.clip_grad_norm_(one.parameters(), max_norm)
    for norm, found in world.simulate(program, 4).results:
        torch.testing.assert_close(norm, expected, rtol=1e-5, atol=0)
        torch.testing.assert_close(found, plain_gradients(one), rtol=1e-4, atol=1e-6)


# -- saving --------------------------------------------------------------------------------------


# -- what is refused -----------------------------------------------------------------------------


def test_unlike_options_are_refused_on_every_rank():
    def program(comm):
        dtype = torch.bfloat16 if comm.rank == 2 else None
        with pytest.raises(ValueError, match=r"rank 2 has compute_dtype = torch.bfloat16, .* wher"):
            FullyShardedDataParallel(layers(2, 3), comm, compute_dtype=dtype)

    world.simulate(program, 3)


REFUSED = {
    "a list as a unit": (lambda c: sharded_gpt(c, nn.ModuleList), "nobody calls a ModuleList"),
    "no type": (lambda c: sharded_gpt(c, [int]), "units is .*; it must be module types"),
    "no float": (lambda c: sharded_gpt(c, compute_dtype=torch.int8), "compute_dtype is torch.int8"),
    "twice": (lambda c: FullyShardedDataParallel(sharded_gpt(c).module, c), "already"),
}


def sharded_gpt(comm, units=None, **options):
    return FullyShardedDataParallel(GPT(SPEC), comm, units, **options)


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_sharded_is_refused(what):
    def program(comm):
        build, says = REFUSED[what]
        with pytest.raises(ValueError, match=says):
            build(comm)

    world.simulate(program, 4)


@pytest.mark.parametrize(
    "change", [nn.Module.double, lambda net: setattr(net[0], "bias", nn.Parameter(torch.ones(3)))]
)
def test_parameters_replaced_or_converted_later_are_refused(change):
    def program(comm):
        model = FullyShardedDataParallel(layers(3, 3, 3), comm)
        change(model.module)
        with pytest.raises(
            RuntimeError, match="is not the shard that FullyShardedDataParallel made"
        ):
            model(torch.ones(1, 3))

    world.simulate(program, 2)


# -- time ----------------------------------------------------------------------------------------


def test_weights_asked_for_ahead_and_reductions_hide_behind_compute():
    link = Link("plain", latency=1e-9, bandwidth=1e12)

    def program(comm):
        net = nn.Sequential(*(nn.Linear(64, 64, bias=False) for _ in range(8)))
        model = FullyShardedDataParallel(net, comm)
        comm.barrier()
        start = comm.seconds
        model(torch.ones(256, 64)).sum().backward()
        return comm.seconds - start

    def seconds(link):
        where = {"link": link, "device": DEVICES["h100-sxm"]}
        return world.simulate(program, 4, **where).results[0]

    compute = seconds(Link("endless", latency=1e-15, bandwidth=1e18))
    layer = 4 * 64 * 64
    waiting = 8 * sum(
        zero.collective_seconds(kind, layer, 4, link)
        for kind in ("all_gather", "all_gather", "reduce_scatter")
    )
    # What is left is the first gather of each pass, and the last reduction.
    assert seconds(link) - compute < 0.2 * waiting


# -- beside torch's own engine -------------------------------------------------------------------


def beside_fully_shard(comm):
    """Losses and parameters of ours and of fully_shard's, and what each called in a step."""
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.debug import CommDebugMode

    theirs, ours = GPT(SPEC), FullyShardedDataParallel(GPT(SPEC))
    for layer in theirs.layers:
        fully_shard(layer)
    fully_shard(theirs, reshard_after_forward=True)
    data, outcomes = part(comm, batch(8)), []
    for model in (theirs, ours):
        losses = train(model, data, 3)
        with warnings.catch_warnings(action="ignore"), CommDebugMode() as mode:  # of its hooks
            model(*data).backward()
        counts = {str(op).split(".")[-1]: n for op, n in mode.get_comm_counts().items()}
        outcomes.append((losses, counts))
    whole = {name: p.full_tensor().detach() for name, p in theirs.named_parameters()}
    return outcomes, whole, ours.full_parameters()


def test_torchs_own_engine_gives_the_same_losses_and_parameters_with_as_many_calls():
    for (theirs, ours), whole, mine in world.launch(beside_fully_shard, 2).results:
        # The two sum over the ranks in other orders, and Adam divides by small numbers.
        torch.testing.assert_close(ours[0], theirs[0], rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(mine, whole, rtol=1e-4, atol=3e-5)
        assert ours[1] == theirs[1] == {"_allgather_base_": 8, "_reduce_scatter_base_": 4}


def test_a_unit_that_other_ranks_share_is_averaged_over_these_alone():
    class Own(nn.Linear):
        """A layer of which only pairs of ranks hold the same."""

    def program(comm):
        pair = comm.split(comm.rank % 2, axis="pair")
        module = nn.Sequential(nn.Linear(1, 1, bias=False), Own(1, 1, bias=False))
        whole_numbers(module)
        with torch.no_grad():
            module[1].weight.fill_(1.0 + comm.rank % 2)
        model = FullyShardedDataParallel(module, comm, units=[Own], over={Own: pair})
        model(torch.full((1, 1), float(comm.rank))).sum().backward()
        weight = model.full_parameters()["1.weight"].item()
        mine = module[1].weight.grad
        found = pair.all_reduce(torch.zeros(1) if mine is None or not len(mine) else mine)
        return weight, found.item(), module[0].weight.item()

    results = world.simulate(program, 4).results
    first = results[0][2]
    # The pairs are 0 with 2 and 1 with 3: a layer's gradient is the mean of what it reads.
    assert [(w, g) for w, g, _ in results] == [
        (1, first),
        (2, 2 * first),
        (1, first),
        (2, 2 * first),
    ]
