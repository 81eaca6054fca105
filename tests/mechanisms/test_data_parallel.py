"""Replicas that average their gradients: equal to one device, to torch's DDP, and to each other."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import distributed as dist
from torch import nn
from torch.utils.checkpoint import checkpoint

from dlsys import world
from dlsys.data_parallel import Bucket, BucketPlan, DataParallel, all_reduce, buckets, step_bytes
from dlsys.data_parallel.ddp import plan_of
from dlsys.model import GPT
from dlsys.transformer import TransformerSpec
from dlsys.world.real.rank_process import loopback
from tests.mechanisms.nets import Fails, whole_numbers

TINY = TransformerSpec(layers=2, hidden=16, heads=4, vocab=32, sequence=8)
SPECS = {
    "tied": TINY,
    "bias": replace(TINY, bias=True),
    "untied gated": replace(TINY, tied=False, gated=True, norm="rms", positions="rotary"),
    "grouped queries": replace(TINY, kv_heads=2),
}


def batch(rows, seed=0):
    stream = torch.Generator().manual_seed(seed)
    tokens = torch.randint(TINY.vocab, (rows, TINY.sequence + 1), generator=stream)
    return tokens[:, :-1], tokens[:, 1:]


def part(comm, tensors):
    return [tensor.chunk(comm.size)[comm.rank] for tensor in tensors]


def gradients(model):
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


class Branches(nn.Module):
    """Three layers, of which a pass uses those it is told to."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = (nn.Linear(2, 2, bias=False) for _ in range(3))

    def forward(self, x, use):
        return sum(getattr(self, name)(x).sum() for name in use)


# -- equal to one device -------------------------------------------------------------------------


def train(model, data, steps=4):
    """Losses, the first gradients and the parameters at the end."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, eps=1e-4)
    losses, first = [], None
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(*data)
        loss.backward()
        first = first or gradients(model)
        optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses), first, {n: p.detach() for n, p in model.named_parameters()}


@pytest.mark.parametrize("name", SPECS)
def test_training_on_parts_of_a_batch_is_training_on_the_batch(name):
    spec, data = SPECS[name], batch(6)

    def program(comm):
        # Every rank starts from other numbers, and takes over rank 0's.
        model = DataParallel(GPT(spec, seed=comm.rank), bucket_bytes=5_000)
        losses, first, last = train(model, part(comm, data))
        return comm.all_reduce(losses, "mean"), first, last

    one = world.simulate(lambda comm: train(GPT(spec), data), 1).results[0]
    results = world.simulate(program, 3).results
    # float32 sums in another order; a relative error of 1e-7 each, some of them cancelling.
    torch.testing.assert_close(results[0][0], one[0], rtol=1e-5, atol=1e-6)
    for mine, theirs in zip(results[0][1:], one[1:], strict=True):
        assert [n.removeprefix("module.") for n in mine] == list(theirs)
        for (name, a), b in zip(mine.items(), theirs.values(), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=2e-5, msg=name)
    for other in results[1:]:
        for mine, theirs in zip(results[0], other, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=0, atol=0)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_whole_numbers_give_exactly_the_mean(ranks):
    inputs = torch.randint(-3, 4, (8, 5), generator=torch.Generator().manual_seed(1)).float()

    def net():
        return whole_numbers(nn.Sequential(nn.Linear(5, 3), nn.ReLU(), nn.Linear(3, 2)))

    def program(comm):
        model = DataParallel(net(), comm, bucket_bytes=40)
        (x,) = part(comm, [inputs])
        model(x).sum().backward()
        return gradients(model.module)

    one = net()
    (one(inputs).sum() / ranks).backward()
    for result in world.simulate(program, ranks).results:
        torch.testing.assert_close(result, gradients(one), rtol=0, atol=0)


def test_accumulated_micro_batches_are_one_large_batch_and_send_once():
    data = batch(8)

    def program(comm, micro_batches):
        model = DataParallel(GPT(TINY), comm)
        rows = part(comm, data)
        for i in range(micro_batches):
            tokens, targets = (tensor.chunk(micro_batches)[i] for tensor in rows)
            with nullcontext() if i == micro_batches - 1 else model.no_sync():
                (model(tokens, targets) / micro_batches).backward()
        return gradients(model.module)

    runs = [world.simulate(program, 2, args=(m,)) for m in (1, 4)]
    for run in runs:
        assert run.traffic.count("all_reduce", rank=0) == 1
        assert run.traffic.by_kind()["all_reduce"] == 2 * step_bytes(4 * TINY.parameters(), 2)
    torch.testing.assert_close(*(run.results for run in runs), rtol=1e-4, atol=1e-6)


def test_gradients_of_passes_that_end_at_any_time_are_averaged_when_asked():
    def program(comm):
        model = DataParallel(whole_numbers(nn.Linear(3, 2)), comm, bucket_bytes=8)
        for _ in range(2):  # the second time into gradients that lie in their buckets
            model.zero_grad(set_to_none=False)
            with model.no_sync():
                with model.no_sync():
                    pass
                for part_of_model in (lambda x: x @ model.module.weight.T, model):
                    part_of_model(torch.full((1, 3), float(comm.rank))).sum().backward()
            local = model.module.weight.grad.clone()
            model.average()
        return local.unique().tolist(), model.module.weight.grad.unique().tolist()

    run = world.simulate(program, 2)
    assert run.results == [([0.0], [1.0]), ([2.0], [1.0])]
    assert run.traffic.count("all_reduce", rank=0) == 2 * 2  # a call for each bucket and step


class Net(nn.Module):
    """Batch norm, a tied layer, a branch that not every pass takes."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.side = nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Linear(6, 6)
        self.last = nn.Linear(6, 6)
        self.last.weight = self.first.weight

    def forward(self, x, aside):
        x = self.norm(self.first(x).tanh())  # else no gradient but noise reaches the bias
        return self.last(self.side(x) if aside else x)


@pytest.fixture(scope="module")
def beside_ddp():
    """What both ranks give that run torch's engine beside ours; to import it takes each a while."""
    return world.launch(lambda comm: (trained_beside_ddp(comm), sizes_of_ddp()), 2).results


def trained_beside_ddp(comm):
    torch.manual_seed(comm.rank)
    torch_net = nn.parallel.DistributedDataParallel(Net(), find_unused_parameters=True)
    ours = Net()
    ours.load_state_dict(torch_net.module.state_dict())
    ours = DataParallel(ours, bucket_bytes=200)
    outcomes = []
    for model in (torch_net, ours):
        torch.manual_seed(10 + comm.rank)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        seen = []
        for step in range(4):
            optimizer.zero_grad()
            x = torch.randn(2, 4, 6)
            with model.no_sync():
                model(x[0], True).square().mean().backward()
            model(x[1], step > 1 and comm.rank == 1).square().mean().backward()
            seen.append(gradients(model))
            optimizer.step()
        outcomes.append([seen, model.state_dict()])
    return outcomes


def test_torchs_own_engine_gives_the_same_gradients_buffers_and_parameters(beside_ddp):
    for (theirs, ours), _ in beside_ddp:
        # The two sum over the ranks in other orders, and Adam divides by small numbers.
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_an_ordinary_torch_distributed_program_needs_no_world(tmp_path):
    program = f"""
import os, torch, torch.distributed as dist
from dlsys.data_parallel import DataParallel
rank = 1 if os.fork() == 0 else 0
dist.init_process_group("gloo", "file://{tmp_path}/store", rank=rank, world_size=2)
model = DataParallel(torch.nn.Linear(2, 1, bias=False))
model(torch.full((1, 2), 4.0 * rank)).sum().backward()
os.write(1, str(model.module.weight.grad.tolist()).encode() + b";")  # in one piece
dist.barrier()
dist.destroy_process_group()
"""
    env = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": loopback()}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=env, timeout=60
    )
    assert done.stdout == "[[2.0, 2.0]];" * 2, done.stderr


# -- parameters of every kind --------------------------------------------------------------------


def test_a_tied_parameter_is_sent_once_and_a_frozen_one_not_at_all():
    def program(comm):
        net = GPT(replace(TINY, tied=True))
        net.positions.weight.requires_grad_(False)
        model = DataParallel(net, comm)
        model(*part(comm, batch(4))).backward()
        assert net.positions.weight.grad is None
        assert net.head.weight.grad is net.embedding.weight.grad
        return model.plan

    run = world.simulate(program, 2)
    plan = run.results[0]
    names = [name for bucket in plan.buckets for name in bucket.names]
    assert "embedding.weight" in names
    assert not {"head.weight", "positions.weight"} & set(names)
    assert plan.nbytes == 4 * (TINY.parameters() - TINY.sequence * TINY.hidden)
    assert run.traffic.by_kind()["all_reduce"] == 2 * plan.nbytes


def test_a_parameter_frozen_later_stays_and_one_thawed_or_replaced_later_is_refused():
    def program(comm):
        net, x = whole_numbers(Branches()), torch.ones(1, 2)
        net.c.weight.requires_grad_(False)
        model = DataParallel(net, comm)
        net.a.weight.requires_grad_(False)
        model(x, "abc").backward()
        assert net.a.weight.grad is None
        assert net.b.weight.grad.tolist() == [[1, 1], [1, 1]]
        net.c.weight.requires_grad_(True)
        with torch.no_grad():  # whoever only looks at the outputs needs no gradients
            model(x, "abc")
        with pytest.raises(RuntimeError, match=r"'c.weight' was frozen, or"):
            model(x, "abc")
        state = {name: value.clone() for name, value in net.state_dict().items()}
        model = DataParallel(net.requires_grad_(True), comm)
        net.load_state_dict(state)
        model(x, "abc").backward()
        net.load_state_dict(state, assign=True)
        with pytest.raises(RuntimeError, match=r"'a.weight' was frozen, or another"):
            model(x, "abc")

    world.simulate(program, 2)


STEPS = {
    "an unused parameter": {},
    "one frozen before": {"before": "b"},
    "one frozen after": {"after": "b"},
    "the unused one frozen after": {"after": "c"},
    "accumulated steps": {"quiet": True},
    "a hook": {"hook": all_reduce},
    "averaged when asked": {"quiet": True, "asked": True},
}


@pytest.mark.parametrize("what", STEPS)
def test_one_rank_trains_as_two_ranks_that_do_the_same(what):
    def program(comm, before="", after="", quiet=False, asked=False, hook=None):
        net = whole_numbers(Branches())
        net.get_parameter("c.weight").data.fill_(3.0)  # is not used, and must not decay
        for name in before:
            net.get_parameter(f"{name}.weight").requires_grad_(False)
        model = DataParallel(net, comm, bucket_bytes=16, hook=hook)
        for name in after:
            net.get_parameter(f"{name}.weight").requires_grad_(False)
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.1, weight_decay=0.5)
        for step in range(3):
            optimizer.zero_grad()
            x = torch.full((1, 2), 1.0 + step)
            with model.no_sync() if quiet else nullcontext():
                model(x, "ab").backward()
            if quiet:
                assert net.c.weight.grad is None  # the step has not ended
                model.average() if asked else model(x, "a").backward()
            optimizer.step()
        assert net.c.weight.grad is None
        assert (net.c.weight == 3.0).all()
        return gradients(net), dict(net.state_dict())

    one, two = (world.simulate(lambda c: program(c, **STEPS[what]), n).results for n in (1, 2))
    # Both ranks pass the same numbers, whose mean is exact.
    torch.testing.assert_close([*one, *one], two, rtol=0, atol=0)


@pytest.mark.parametrize("bucket_bytes", [16, 32, 1000])
def test_ranks_may_use_different_parameters_and_what_none_used_has_no_gradient(bucket_bytes):
    def program(comm):
        model = DataParallel(Branches(), comm, bucket_bytes)
        x = torch.full((1, 2), 3.0)
        model(x, ["a", "ab", "b"][comm.rank]).backward()
        found = [p.grad if p.grad is None else p.grad[0, 0].item() for p in model.parameters()]
        model.zero_grad()
        # Used by one rank, and its gradient is zero: an optimizer's momentum goes on, on all ranks.
        model(0 * x, ["a", "b", "b"][comm.rank]).backward()
        return [*found, *(p.grad is None for p in model.parameters())]

    expected = [2.0, 2.0, None, False, False, True]
    assert world.simulate(program, 3).results == [expected] * 3


class Mixed(nn.Sequential):
    def forward(self, x):
        for layer in self:
            x = layer(x.to(layer.weight.dtype))
        return x


def test_a_bucket_holds_one_dtype_and_gradients_keep_theirs():
    kinds = (torch.float32, torch.bfloat16, torch.float32, torch.float64, torch.bfloat16)

    def program(comm, averaged):
        net = whole_numbers(Mixed(*(nn.Linear(4, 4, dtype=d) for d in kinds)))
        model = DataParallel(net, comm) if averaged else net
        model(torch.full((1, 4), float(comm.rank))).sum().backward()
        return [p.grad for p in net.parameters()], averaged and model.plan

    (found, plan), _ = world.simulate(program, 2, args=(True,)).results
    plan.check()
    assert [bucket.dtype for bucket in plan.buckets] == ["float64", "bfloat16", "float32"]
    alone = [own for own, _ in world.simulate(program, 2, args=(False,)).results]
    for mean, *own in zip(found, *alone, strict=True):
        torch.testing.assert_close(mean, sum(own) / 2, rtol=0, atol=0)


def test_parameters_that_are_not_contiguous_have_gradients_laid_out_as_they_are():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            whole = torch.arange(24.0)
            self.turned = nn.Parameter(whole.view(6, 4).T)
            self.gaps = nn.Parameter(whole.view(6, 4)[:, ::2])

        def forward(self, x):
            return (x @ self.turned).sum() + (x[:2] @ self.gaps.T).square().sum()

    def program(comm):
        model = DataParallel(Net(), comm)
        x = torch.arange(4.0) + comm.rank
        for _ in range(2):
            model.zero_grad()
            (model.module.turned * x[:, None]).sum().backward(retain_graph=True)
            (model.module.gaps * x[:2]).sum().backward()
        assert model.module.turned.grad.stride() == model.module.turned.stride()
        return gradients(model.module)

    for found in world.simulate(program, 2).results:
        assert found["turned"].tolist() == [[0.5] * 6, [1.5] * 6, [2.5] * 6, [3.5] * 6]
        assert found["gaps"].tolist() == [[0.5, 1.5]] * 6


def test_tensors_without_data_train_in_virtual_time():
    def program(comm, device):
        model = DataParallel(GPT(TINY, device=device), comm)
        tokens = torch.zeros(2, 8, dtype=torch.int64, device=device)
        model(tokens, tokens).backward()

    sent = [world.simulate(program, 3, args=(d,)).traffic.by_kind() for d in ("cpu", "meta")]
    assert sent[0] == sent[1]


# -- construction --------------------------------------------------------------------------------


def test_every_rank_takes_over_rank_0_in_few_messages():
    def program(comm):
        net = GPT(TINY, seed=comm.rank)
        net.register_buffer("mask", torch.full((3,), comm.rank % 2 == 0))
        model = DataParallel(net, comm)
        assert model.module is net
        return net.state_dict()

    run = world.simulate(program, 3)
    for found in run.results:
        torch.testing.assert_close(found, run.results[0], rtol=0, atol=0)
    # What the modules are takes two, and each dtype one.
    assert run.traffic.count("broadcast", rank=0) == 4


def named(dtype=torch.float32, **shapes):
    """A module with parameters of these names and shapes."""
    module = nn.Module()
    for name, shape in shapes.items():
        module.register_parameter(name, nn.Parameter(torch.ones(shape, dtype=dtype)))
    return module


UNLIKE = {
    "shape": (named(w=(3, 2), b=4), "rank 1 has w, 3x2 float32 where rank 0 has w, 4x2 float32"),
    "fewer": (named(w=(4, 2)), "nothing more where rank 0 has b, 4 float32"),
    "more": (named(w=(4, 2), b=4, c=1), "c, 1 float32 where rank 0 has nothing more"),
    "frozen": (named(w=(4, 2), b=4).requires_grad_(False), "rank 1 has w, 4x2 float32, frozen"),
}


@pytest.mark.parametrize("what", UNLIKE)
def test_unlike_modules_are_refused_on_every_rank(what):
    def program(comm):
        with pytest.raises(ValueError, match="needs the same parameters on every rank") as caught:
            DataParallel(UNLIKE[what][0] if comm.rank == 1 else named(w=(4, 2), b=4), comm)
        assert UNLIKE[what][1] in str(caught.value)

    world.simulate(program, 3)


def test_other_bucket_sizes_are_refused_too_and_so_is_none():
    def program(comm):
        with pytest.raises(ValueError, match="rank 1 has bucket_bytes = 2000 where rank 0 has"):
            DataParallel(nn.Linear(2, 4), comm, bucket_bytes=1000 * (comm.rank + 1))
        with pytest.raises(ValueError, match="bucket_bytes is 0"):
            DataParallel(nn.Linear(2, 4), comm, bucket_bytes=0)

    world.simulate(program, 2)


def test_a_module_that_is_wrapped_again_is_averaged_once():
    def program(comm):
        net = nn.Linear(2, 1, bias=False)
        old = DataParallel(net, comm)
        new = DataParallel(net, comm, bucket_bytes=4)
        new(torch.ones(1, 2)).sum().backward()
        with old.no_sync():  # means nothing any more
            new(torch.ones(1, 2)).sum().backward()
        del old, new
        gc.collect()
        net(torch.ones(1, 2)).sum().backward()  # no wrapper, no messages
        DataParallel(net, comm)

    run = world.simulate(program, 2)
    assert run.traffic.count("all_reduce", rank=0) == 2


def test_alone_there_is_nothing_to_send_or_copy():
    def program(comm):
        one, model = GPT(TINY), DataParallel(GPT(TINY), comm)
        for net in (one, model):
            net(*batch(2)).backward()
        torch.testing.assert_close(gradients(model.module), gradients(one), rtol=0, atol=0)

    run = world.simulate(program, 1)
    assert run.traffic.calls == []


# -- passes of every kind ------------------------------------------------------------------------


def test_several_backward_passes_add_up():
    def program(comm):
        model = DataParallel(whole_numbers(Branches()), comm, bucket_bytes=16)
        x = torch.full((1, 2), float(comm.rank))
        model(x, "ab").backward()
        model(x, "b").backward()
        (model(x, "a") + model(2 * x, "ac")).backward()
        return [p.grad[0, 0].item() for p in model.parameters()]

    assert world.simulate(program, 2).results == [[2.0, 1.0, 1.0]] * 2


def test_outputs_of_any_kind_pass_through():
    class Net(nn.Linear):
        def forward(self, x, *, scale):
            y = super().forward(x) * scale
            return {"y": y, "parts": (y.sum(), [y.mean()])}

    def program(comm):
        model = DataParallel(whole_numbers(Net(2, 2)), comm)
        out = model(torch.full((1, 2), float(comm.rank)), scale=2.0)
        (out["parts"][0] + out["y"].sum()).backward()
        return model.module.weight.grad.tolist()

    assert world.simulate(program, 2).results == [[[2.0, 2.0]] * 2] * 2


def test_checkpointing_changes_no_gradient_and_sends_nothing_twice():
    def program(comm, inside, around):
        torch.manual_seed(0)
        layers = [nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Tanh()) for _ in range(3)]
        module = nn.Sequential(*layers)
        if inside:
            for layer in layers:
                layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)
        model = DataParallel(module, comm, bucket_bytes=40)
        x = torch.arange(8.0).view(2, 4) + comm.rank
        out = checkpoint(model, x, use_reentrant=False) if around else model(x)
        out.sum().backward()
        return list(gradients(module).values()), len(model.plan.buckets)

    plain, *runs = (
        world.simulate(program, 2, args=where)
        for where in ((False, False), (True, False), (False, True))
    )
    for run in runs:
        assert run.traffic.count("all_reduce", rank=0) == run.results[0][1] > 3
        # Buffers come with the forward pass, and not again where it is repeated.
        counts = [each.traffic.count("broadcast", rank=0) for each in (run, plain)]
        assert counts[0] == counts[1]
        torch.testing.assert_close(run.results[0], plain.results[0])


def test_a_pass_inside_a_pass_is_refused_not_halved():
    class Reentrant(Branches):
        def forward(self, x):
            return self.b(checkpoint(self.a, x, use_reentrant=True))

    def program(comm):
        model = DataParallel(Reentrant(), comm)
        with pytest.raises(RuntimeError, match="use_reentrant=False"):
            model(torch.ones(1, 2, requires_grad=True)).sum().backward()

    world.simulate(program, 2)


@pytest.mark.parametrize("set_to_none", [True, False])
def test_after_a_backward_pass_that_raised_the_next_step_is_right(set_to_none):
    def program(comm):
        net = whole_numbers(nn.Sequential(*(nn.Linear(2, 2, bias=False) for _ in range(3))))
        model = DataParallel(net, comm, bucket_bytes=16)
        x = torch.full((1, 2), 1.0 + comm.rank)
        model(x).sum().backward()
        expected = gradients(net)
        model.zero_grad(set_to_none)
        out = net[2](Fails.apply(net[1](net[0](x))))
        with pytest.raises(ArithmeticError, match="no gradient"):
            out.sum().backward()
        model.zero_grad(set_to_none)
        model(x).sum().backward()
        torch.testing.assert_close(gradients(net), expected, rtol=0, atol=0)

    run = world.simulate(program, 2)
    assert run.traffic.count("all_reduce", rank=0) == 3 + 1 + 3


@pytest.mark.parametrize("set_to_none", [True, False])
def test_gradients_lie_in_their_bucket_whatever_zero_grad_does(set_to_none):
    seen = []

    def hook(comm, bucket):
        seen.append((comm.rank, bucket.index, bucket.flat.data_ptr()))
        assert [g.shape for g in bucket.gradients()] == [p.shape for p in bucket.parameters]
        assert [*zip(bucket.names, (p.numel() for p in bucket.parameters), strict=True)] == [
            ("bias", 2),
            ("weight", 6),
        ]
        assert all(p.grad is g for p, g in zip(bucket.parameters, bucket.gradients(), strict=True))
        return all_reduce(comm, bucket)

    def program(comm):
        model = DataParallel(whole_numbers(nn.Linear(3, 2)), comm, hook=hook)
        flats = []
        for step in range(3):
            model.zero_grad(set_to_none)
            model(torch.full((1, 3), float(comm.rank + step))).sum().backward()
            grad = model.module.bias.grad
            flats.append(grad.untyped_storage().data_ptr())
            assert model.module.weight.grad.tolist() == [[0.5 + step] * 3] * 2
        assert len(set(flats)) == 1

    world.simulate(program, 2)
    assert len(seen) == 6


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (SimpleNamespace(wait=lambda: None), "the hook's handle gave NoneType for bucket 0"),
        (SimpleNamespace(wait=lambda: torch.ones(2)), "a tensor of 3 elements like `flat`"),
        (None, "the hook returned None"),
    ],
)
def test_a_hook_that_gives_no_mean_is_refused(given, says):
    def program(comm):
        model = DataParallel(nn.Linear(2, 1), comm, hook=lambda comm, bucket: given)
        model(torch.ones(1, 2)).sum().backward()

    with pytest.raises(TypeError, match=says):
        world.simulate(program, 1)


# -- buffers -------------------------------------------------------------------------------------


def test_statistics_come_from_rank_0_once_a_training_step():
    def program(comm):
        model = DataParallel(nn.BatchNorm1d(2), comm)
        norm, x = model.module, torch.full((4, 2), 8.0 * comm.rank)
        model(x)
        own = norm.running_mean.clone()
        (model(x) + model(x)).sum().backward()  # nor is what a pass has saved then out of date
        norm.running_mean.fill_(comm.rank)
        model.eval()
        model(x)
        assert norm.running_mean[0] == comm.rank
        model.train()
        with model.no_sync():
            model(x)
        assert norm.running_mean[0] == pytest.approx(0.8 * comm.rank)
        model(x)  # the step's second micro-batch
        assert norm.running_mean[0] == pytest.approx((0.9 * 0.8 + 0.8) * comm.rank)
        return own[0].item(), norm.num_batches_tracked.item()

    run = world.simulate(program, 2)
    assert run.results == [(0.0, 5), (pytest.approx(0.8), 5)]
    # What the module is takes two, and two dtypes take two: at construction and in four passes.
    assert run.traffic.count("broadcast", rank=0) == 2 + 2 * 5


# -- time ----------------------------------------------------------------------------------------


# -- ranks that do something else ----------------------------------------------------------------


# -- the plan ------------------------------------------------------------------------------------


def test_buckets_of_a_small_model_by_hand():
    sizes = {"a": 40, "b": 400, "c": 8, "d": 80, "e": 20, "f": 400}
    plan = buckets(sizes, bucket_bytes=100)
    assert [bucket.names for bucket in plan.buckets] == [("f",), ("e", "d"), ("c", "b"), ("a",)]
    assert [bucket.nbytes for bucket in plan.buckets] == [400, 100, 408, 40]


def ddp_buckets(named_parameters, bucket_bytes):
    """What DDP makes of gradients that come in reverse order, sorted by when they are complete."""
    names, tensors = zip(*reversed(named_parameters), strict=True)
    limits = [dist._DEFAULT_FIRST_BUCKET_BYTES, 25 * 2**20]  # where none is given
    found, _ = dist._compute_bucket_assignment_by_size(
        tensors, [bucket_bytes] if bucket_bytes else limits, [], list(range(len(names)))
    )
    return [tuple(names[i] for i in bucket) for bucket in sorted(found, key=max)]


@pytest.mark.parametrize("bucket_bytes", [None, 1, 5_000, 2**20, 25 * 2**20, 10**9])
@pytest.mark.parametrize("name", SPECS)
def test_buckets_are_those_of_ddp(name, bucket_bytes):
    spec = replace(SPECS[name], layers=12, hidden=384, head_size=None)
    named = list(GPT(spec, device="meta").named_parameters())
    plan = plan_of(dict(named), bucket_bytes)
    plan.check()
    assert [bucket.names for bucket in plan.buckets] == ddp_buckets(named, bucket_bytes)


@given(
    st.lists(st.tuples(st.integers(0, 9), st.sampled_from(["float32", "bfloat16"])), min_size=1),
    st.integers(1, 60),
)
@settings(max_examples=50, deadline=None)
def test_buckets_of_two_dtypes_are_those_of_ddp(sizes, bucket_bytes):
    named = [(str(i), torch.empty(n, dtype=getattr(torch, d))) for i, (n, d) in enumerate(sizes)]
    plan = plan_of(dict(named), bucket_bytes)
    plan.check()
    assert [bucket.names for bucket in plan.buckets] == ddp_buckets(named, bucket_bytes)


def test_by_default_the_first_bucket_of_a_dtype_is_small():
    sizes = {f"p{i}": 2**20 for i in range(60)}
    dtypes = {name: "float32" if i >= 30 else "bfloat16" for i, name in enumerate(sizes)}
    found = [(len(bucket.names), bucket.dtype) for bucket in buckets(sizes, None, dtypes).buckets]
    kinds = ["float32"] * 3 + ["bfloat16"] * 3
    assert found == list(zip([1, 25, 4] * 2, kinds, strict=True))


def sizes_of_ddp():
    found = []
    for spec in SPECS.values():
        engine = nn.parallel.DistributedDataParallel(GPT(spec), bucket_cap_mb=0.005)
        for _ in range(3):  # the first finds out the order, and the third one reports it
            engine(*batch(2)).backward()
        sizes = engine._get_ddp_logging_data()["rebuilt_bucket_sizes"]
        found.append([int(size) for size in sizes.split(",")])
    return found


def test_torchs_engine_sends_buckets_of_the_planned_sizes(beside_ddp):
    for spec, theirs in zip(SPECS.values(), beside_ddp[0][1], strict=True):
        plan = plan_of(dict(GPT(spec).named_parameters()), int(0.005 * 2**20))
        assert [bucket.nbytes for bucket in plan.buckets] == theirs
        assert len(theirs) > 3


def wrong(*groups, sizes=None, dtype="float32", index=None):
    """A plan for a, b, c of 8 bytes each in these groups."""
    made = [
        Bucket(i if index is None else index, names, sizes or (8,) * len(names), dtype)
        for i, names in enumerate(groups)
    ]
    return BucketPlan(tuple((name, 8, "float32") for name in "abc"), tuple(made), 16)


AFTER = "which is registered before it: backward makes gradients in reverse order of registration"
WRONG = [
    (wrong(("c", "b")), "'a' is in no bucket: its gradient would stay local."),
    (
        wrong(("c", "b"), ("b", "a")),
        "Bucket 1 holds 'b' again: it is in bucket 0, and a gradient that is averaged twice costs "
        "its bytes twice.",
    ),
    (wrong(("c", "b"), ("a", "d")), "Bucket 1 holds 'd', which is no parameter of this plan."),
    (wrong(("b", "c"), ("a",)), f"Bucket 0 holds 'c' after 'b', {AFTER}."),
    (wrong(("b",), ("c", "a")), f"Bucket 1 holds 'c' after 'b', {AFTER}."),
    (
        wrong(("c", "b", "a")),
        "Bucket 0 has 16 bytes before its last parameter, 'a': it is sent once it has 16.",
    ),
    (
        wrong(("c",), ("b", "a"), sizes=(8,)),
        "Bucket 1 has 2 names and 1 sizes: it needs a size for each, and at least one.",
    ),
    (
        wrong(()),
        "Bucket 0 has 0 names and 0 sizes: it needs a size for each, and at least one.",
    ),
    (
        wrong(("c",), ("b",), ("a",), sizes=(4,)),
        "Bucket 0 holds 'c' with 4 bytes of float32; the parameter has 8 bytes of float32.",
    ),
    (
        wrong(("c",), ("b", "a"), dtype="bfloat16"),
        "Bucket 0 holds 'c' with 8 bytes of bfloat16; the parameter has 8 bytes of float32.",
    ),
    (wrong(("c", "b"), ("a",), index=0), "Bucket 1 says that its index is 0."),
]


@pytest.mark.parametrize(("plan", "message"), WRONG)
def test_a_wrong_plan_is_refused_by_bucket_and_parameter(plan, message):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        plan.check()
    assert str(caught.value) == message


def test_a_limit_that_is_no_number_proves_nothing():
    with pytest.raises(ValueError, match="it is sent once it has nan"):
        replace(wrong(("c", "b"), ("a",)), bucket_bytes=float("nan")).check()


def test_a_bucket_sent_before_an_earlier_one_is_complete_is_refused():
    halves = (("a", 4, "float16"), ("b", 4, "float32"), ("c", 4, "float16"))
    late = Bucket(0, ("c", "a"), (4, 4), "float16")
    early = Bucket(1, ("b",), (4,), "float32")
    said = "Bucket 1 is complete before bucket 0: its last gradient is 'b'. Put it first, or it"
    with pytest.raises(ValueError, match=f"^{said} waits for nothing.$"):
        BucketPlan(halves, (late, early), 100).check()
    plan = buckets({"a": 4, "b": 4, "c": 4}, 100, {"a": "float16", "c": "float16"})
    assert [bucket.dtype for bucket in plan.buckets] == ["float32", "float16"]
