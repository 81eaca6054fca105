"""Products in pieces, and the laws of cut layers, against one device and against what runs."""

import dataclasses

import pytest
import torch
from torch.nn import functional as F

from dlsys import world
from dlsys.hardware import DEVICES, Device, Link
from dlsys.tensor_parallel import (
    all_gather_matmul,
    communication_over_compute,
    layout,
    matmul_reduce_scatter,
    seconds_in_pieces,
)
from dlsys.transformer import CATALOGUE

GPT3 = CATALOGUE["gpt3-175b"]
LINK = Link("plain", 1e-6, 1e9)
# Sums and joins of pieces cost memory's time, which the law leaves out.
FAST = Device("of products alone", {"fp32": 1e12, "bf16": 1e12}, 8e10, 1e30)


def integers(*shape, seed):
    stream = torch.Generator().manual_seed(seed)
    return torch.randint(-9, 10, shape, generator=stream).double()


def tokens_of(comm, x):
    return x.chunk(comm.size, dim=1)[comm.rank]


def branch(comm):
    """Two products with a function between them, forward and backward, of this rank's tokens."""
    x, up, down, y = (integers(*shape, seed=n) for n, shape in enumerate(SHAPES))
    mine = tokens_of(comm, x).clone().requires_grad_()
    a = up.chunk(comm.size, dim=0)[comm.rank].clone().requires_grad_()
    b = down.chunk(comm.size, dim=1)[comm.rank].clone().requires_grad_()
    out = matmul_reduce_scatter(all_gather_matmul(mine, a, comm).relu(), b, comm)
    out.backward(tokens_of(comm, y))
    return out.detach(), mine.grad, a.grad, b.grad


SHAPES = (2, 12, 5), (24, 5), (5, 24), (2, 12, 5)  # b s h, f h, h f, b s h


def expected():
    x, up, down = (integers(*shape, seed=n).requires_grad_() for n, shape in enumerate(SHAPES[:3]))
    out = F.linear(F.linear(x, up).relu(), down)
    out.backward(integers(*SHAPES[3], seed=3))
    return out.detach(), x.grad, up.grad, down.grad


def assert_they_are_those_of_one_device(results):
    by_kind = zip(*results, strict=True)
    found = [torch.cat(parts, dim) for parts, dim in zip(by_kind, (1, 1, 0, 1), strict=True)]
    for one, other in zip(found, expected(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_products_in_pieces_give_the_bits_of_one_device_and_so_do_all_gradients(ranks):
    assert_they_are_those_of_one_device(world.simulate(branch, ranks).results)


def test_real_processes_pass_the_pieces_on_as_simulated_ones_do():
    assert_they_are_those_of_one_device(world.launch(branch, ranks=2).results)


def test_a_layer_below_that_needs_no_gradient_gets_none():
    def program(comm):
        x, a = integers(1, 4, 3, seed=0), integers(2, 3, seed=1).requires_grad_()
        b = integers(3, 2, seed=2)
        matmul_reduce_scatter(all_gather_matmul(x, a, comm), b, comm).sum().backward()
        return a.grad is not None and x.grad is None

    assert world.simulate(program, 2).results == [True, True]


def forward(comm, tokens, hidden, inner, kind):
    """One product of meta tensors in BF16: what `kind` does, with `inner` features on a rank."""

    def empty(*shape):
        return torch.empty(*shape, device="meta", dtype=torch.bfloat16)

    if kind == "gather":
        return all_gather_matmul(empty(1, tokens // comm.size, hidden), empty(inner, hidden), comm)
    return matmul_reduce_scatter(empty(1, tokens, inner), empty(hidden, inner), comm)


@pytest.mark.parametrize("kind", ["gather", "scatter"])
@pytest.mark.parametrize("ranks", [1, 2, 4, 7])
@pytest.mark.parametrize("inner", [100, 1000, 1100, 5000])  # R beta is 1,000
def test_a_run_takes_the_seconds_of_the_law_and_sends_what_the_collective_sends(kind, ranks, inner):
    tokens, hidden = 28, 3000
    args = (tokens, hidden, inner, kind)
    run = world.simulate(forward, ranks, link=LINK, device=FAST, args=args)
    product, nbytes = 2 * tokens * hidden * inner / 1e12, 2 * tokens * hidden
    assert run.seconds == pytest.approx(seconds_in_pieces(product, nbytes, ranks, LINK), rel=1e-9)
    assert run.traffic.sent == [nbytes * (ranks - 1) // ranks] * ranks


def test_behind_a_gathering_product_backward_hides_its_messages_under_two_products():
    def program(comm, tokens=28, hidden=3000, inner=5000):
        mine, weight = (
            torch.empty(*shape, device="meta", dtype=torch.bfloat16, requires_grad=True)
            for shape in ((1, tokens // comm.size, hidden), (inner, hidden))
        )
        out = all_gather_matmul(mine, weight, comm)
        forward = comm.seconds
        out.backward(torch.empty_like(out))
        return comm.seconds - forward

    product = 2 * 28 * 3000 * 5000 / 1e12
    for backward in world.simulate(program, 4, link=LINK, device=FAST).results:
        assert backward == pytest.approx(2 * product, rel=1e-9)


@pytest.mark.parametrize("kind", ["gather", "scatter"])
@pytest.mark.parametrize(("tokens", "hidden"), [(64, 500), (64, 4000), (1024, 500)])
def test_with_r_beta_features_on_a_rank_all_hides_whatever_the_tokens_and_the_width(
    kind, tokens, hidden
):
    link = Link("without latency", 0.0, 1e9)

    def exposed(inner):
        """Of the seconds of the collective alone, the part that is not hidden."""
        args = (tokens, hidden, inner, kind)
        run = world.simulate(forward, 4, link=link, device=FAST, args=args)
        product = 2 * tokens * hidden * inner / 1e12
        return (run.seconds - product) / (3 * link.seconds(2 * tokens * hidden / 4))

    assert exposed(1000) == pytest.approx(0, abs=1e-9)
    assert exposed(1001) == pytest.approx(0, abs=1e-9)
    assert exposed(900) == pytest.approx(0.1)


def test_what_takes_no_time_or_has_no_bytes_costs_the_rest():
    assert seconds_in_pieces(0, 0, 1, LINK) == 0
    assert seconds_in_pieces(0.5, 0, 5, Link("without latency", 0.0, 1e9)) == 0.5
    assert seconds_in_pieces(0, 100, 2, LINK) == LINK.seconds(50)


def test_pieces_of_fewer_tokens_than_the_ridge_wait_for_memory():
    """Each reads all of the weight; pieces of more tokens do not."""
    device = dataclasses.replace(FAST, flops={"bf16": 1e12}, memory_bandwidth=1e12 / 100)
    inner, hidden = 4000, 4000
    for tokens, slow in ((4 * 50, True), (4 * 400, False)):
        args = (tokens, hidden, inner, "gather")
        run = world.simulate(forward, 4, link=LINK, device=device, args=args)
        product = 2 * tokens * hidden * inner / 1e12
        assert (run.seconds > 1.5 * product) == slow


@pytest.mark.parametrize("t", [2, 4, 8])
@pytest.mark.parametrize(("batch", "sequence"), [(1, 2048), (8, 2048), (1, 1024)])
def test_communication_over_compute_is_that_of_the_price_whatever_the_batch(t, batch, sequence):
    rate, nvlink = DEVICES["h100-sxm"].rate("bf16"), Link("without latency", 0.0, 450e9)
    plan = layout(dataclasses.replace(GPT3, sequence=sequence), t)
    price = plan.price(batch, nvlink, rate=rate)
    law = communication_over_compute(GPT3.hidden, t, rate, nvlink)
    assert law == pytest.approx(price.seconds / price.compute_seconds, rel=0.03)


def test_a_wider_model_on_as_many_times_the_ranks_less_one_talks_for_the_same_share():
    rate, link = 1e15, Link("a link", 0.0, 1e11)
    assert communication_over_compute(4096, 1, rate, link) == 0
    once, twice = (communication_over_compute(h, t, rate, link) for h, t in ((4096, 3), (8192, 5)))
    assert once == twice


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda comm: matmul_reduce_scatter(torch.ones(1, 3, 4), torch.ones(2, 4), comm),
            "3 tokens of a sequence do not divide by a sequence-parallel degree of 2",
        ),
        (
            lambda comm: all_gather_matmul(torch.ones(1, 3, 4), torch.ones(4), comm),
            r"weight is of shape \(4,\) .*; it must be floating-point numbers, a matrix at least\.",
        ),
        (
            lambda comm: all_gather_matmul(torch.ones(4), torch.ones(2, 4), comm),
            r": x is of shape \(4,\) .* a matrix at least\.",
        ),
        (
            lambda comm: all_gather_matmul(torch.ones(2, 4).to_sparse(), torch.ones(2, 4), comm),
            "x is of layout",
        ),
        (
            lambda comm: all_gather_matmul(torch.ones(1, 3, 4), torch.ones(2, 5), comm),
            r"on cpu: weight must be a matrix with as many columns .* and on its device\.",
        ),
    ],
)
def test_what_cannot_be_multiplied_in_pieces_is_a_sentence(call, message):
    with pytest.raises(world.RankError, match=message):
        world.simulate(call, 2)
