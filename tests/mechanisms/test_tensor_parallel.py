"""Tensor parallelism: a GPT cut over ranks computes, and says, what it should."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from dlsys import world
from dlsys.hardware import DEVICES, LINKS, Cluster
from dlsys.model import GPT
from dlsys.pipeline_parallel import Pipeline, one_f_one_b, split
from dlsys.tensor_parallel import (
    ColumnParallelLinear,
    RowParallelLinear,
    TensorParallelGPT,
    VocabParallelEmbedding,
    full_state,
    layout,
    load,
    vocab_parallel_cross_entropy,
)
from dlsys.tensor_parallel import autograd as conjugate
from dlsys.tensor_parallel.weights import gathered
from dlsys.transformer import CATALOGUE, TransformerSpec
from tests.contents import ROOT

pytestmark = pytest.mark.usefixtures("one_thread")

PLAIN = TransformerSpec(layers=2, hidden=16, heads=4, vocab=33, sequence=8)
LLAMA = TransformerSpec(
    layers=2, hidden=16, heads=4, vocab=32, sequence=8, kv_heads=2, gated=True, ffn_hidden=24,
    tied=False,
)  # fmt: skip
SPECS = {
    "gpt": PLAIN,
    "llama": LLAMA,
    "multi-query with biases": dataclasses.replace(LLAMA, kv_heads=1, norm="layer", bias=True),
    "tied, wide heads": dataclasses.replace(LLAMA, head_size=6, tied=True, bias=True),
    "no biases, no positions": dataclasses.replace(PLAIN, bias=False, positions="none"),
}
H100S = Cluster(DEVICES["h100-sxm"], 1, 4, LINKS["nvlink4"], LINKS["infiniband-ndr"])


def text(spec, batch=2):
    generator = torch.Generator().manual_seed(1)
    return torch.randint(spec.vocab, (batch, spec.sequence), generator=generator)


def integers(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-4, 5, shape, generator=generator).double()


# -- the conjugate collectives -------------------------------------------------------------------

KINDS = {  # what is whole: the argument, the result
    "copy": (True, False),
    "reduce": (False, True),
    "scatter": (True, False),
    "gather": (False, True),
    "gather_sequence": (False, False),
    "scatter_sequence": (False, False),
}


@pytest.mark.parametrize("name", KINDS)
@given(ranks=st.integers(1, 4), b=st.integers(1, 3), s=st.integers(1, 2), h=st.integers(1, 2))
@settings(max_examples=10, deadline=None)
def test_backward_is_not_the_adjoint_of_forward(name, ranks, b, s, h):
    function, (whole_in, whole_out) = getattr(conjugate, name), KINDS[name]

    def program(comm):
        x = integers(b, s * ranks, h * ranks, seed=0 if whole_in else comm.rank).requires_grad_()
        out = function(x, comm)
        y = integers(*out.shape, seed=100 if whole_out else 100 + comm.rank)
        (back,) = torch.autograd.grad(out, x, y)
        return x.detach(), back, out.detach(), y

    xs, backs, outs, ys = zip(*world.simulate(program, ranks).results, strict=True)

    def inner(left, right, whole):
        products = [(a * b).sum() for a, b in zip(left, right, strict=True)]
        if whole:
            assert all(torch.equal(a, left[0]) for a in left), "ranks differ"
            assert all(torch.equal(b, right[0]) for b in right), "ranks differ"
        return products[0] if whole else sum(products)

    assert inner(outs, ys, whole_out) == inner(xs, backs, whole_in)


@pytest.mark.parametrize("first", list(KINDS)[::2])
def test_neighbours_in_the_table_are_not_each_others_adjoints(first):
    forth = getattr(conjugate, first)
    back = getattr(conjugate, list(KINDS)[list(KINDS).index(first) + 1])

    def program(comm):
        x = integers(2, 6, 6, seed=0 if KINDS[first][0] else comm.rank).requires_grad_()
        y = forth(x, comm).detach() + comm.rank
        (gradient,) = torch.autograd.grad(forth(x, comm), x, y)
        return gradient, back(y, comm)

    for gradient, value in world.simulate(program, 3).results:
        assert torch.equal(gradient, value)


def test_copies_send_one_message_in_place_of_several():
    def program(comm):
        xs = [integers(n, 2).requires_grad_() for n in (1, 3)]
        sum((x * (comm.rank + 1)).sum() for x in conjugate.copies(xs, comm)).backward()
        return [x.grad for x in xs]

    run = world.simulate(program, 3)
    assert all(torch.equal(x, torch.full_like(x, 6.0)) for xs in run.results for x in xs)
    assert run.traffic.count("all_reduce", rank=0) == 1


# -- linear layers -------------------------------------------------------------------------------


def pair_of(comm, **options):
    column = ColumnParallelLinear(4, 12, comm=comm, **options).double()
    options.pop("overlap", None)
    return column, RowParallelLinear(12, 4, comm=comm, **options).double()


@torch.no_grad()
def fill(module, *names_of_wholes):
    for number, (name, whole) in enumerate(names_of_wholes):
        whole.copy_(integers(*whole.shape, seed=number))
        if module is not None:
            cut = module.cuts[name]
            first, stop = cut.bounds(module.comm.rank)
            mine = (
                whole if cut.dimension is None else whole.narrow(cut.dimension, first, stop - first)
            )
            module.get_parameter(name).copy_(mine)


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_a_column_and_a_row_layer_are_exactly_two_linear_layers(sequence_parallel, overlap):
    up, down = nn.Linear(4, 12).double(), nn.Linear(12, 4).double()
    for layer in (up, down):
        fill(None, *layer.named_parameters())
    x, y = integers(2, 6, 4, seed=8).requires_grad_(), integers(2, 6, 4, seed=9)
    out = down(up(x).relu())
    out.backward(y)

    def program(comm):
        column, row = pair_of(comm, sequence_parallel=sequence_parallel, overlap=overlap)
        fill(column, *up.named_parameters())
        fill(row, *down.named_parameters())
        tokens = slice(2 * comm.rank, 2 * comm.rank + 2) if sequence_parallel else slice(None)
        mine = x.detach()[:, tokens].clone().requires_grad_()
        z = row(column(mine).relu())
        z.backward(y[:, tokens])
        part = slice(4 * comm.rank, 4 * comm.rank + 4)
        assert torch.equal(z, out[:, tokens])
        assert torch.equal(mine.grad, x.grad[:, tokens])
        assert torch.equal(column.weight.grad, up.weight.grad[part])
        assert torch.equal(column.bias.grad, up.bias.grad[part])
        assert torch.equal(row.weight.grad, down.weight.grad[:, part])
        return row.bias.grad

    run = world.simulate(program, 3)
    biases = run.results
    assert torch.equal(sum(biases) if sequence_parallel else biases[1], down.bias.grad)


def test_what_columns_give_is_joined_and_what_rows_give_is_summed():
    """Published: the weights are split by columns, and an all-reduce combines the outputs."""
    up, down = nn.Linear(4, 12).double(), nn.Linear(12, 4).double()
    for layer in (up, down):
        fill(None, *layer.named_parameters())
    x = integers(2, 3, 4, seed=8)

    def program(comm):
        column, row = pair_of(comm)
        fill(column, *up.named_parameters())
        fill(row, *down.named_parameters())
        mine = column(x)
        joined = conjugate.gather(mine, comm)
        return joined, row(mine), row(comm.all_reduce(mine)), comm.all_reduce(joined)

    for joined, out, out_of_sum, sum_of_joined in world.simulate(program, 2).results:
        assert torch.equal(joined, up(x))
        assert torch.equal(out, down(up(x)))
        # The sum of other features has a shape that the rows accept, and so has a sum of the whole.
        assert out_of_sum.shape == out.shape
        assert not torch.equal(out_of_sum, out)
        assert torch.equal(sum_of_joined, 2 * up(x))


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (1, 2, 3)], ids=str)
def test_a_layer_takes_inputs_of_any_shape_as_torchs_does(shape):
    def program(comm):
        column, row = pair_of(comm)
        x = torch.ones(*shape, 4, dtype=torch.double, requires_grad=True)
        out = row(column(x))
        out.sum().backward()
        return out.shape, x.grad.shape, column.weight.grad.shape

    assert world.simulate(program, 2).results == [((*shape, 4), (*shape, 4), (6, 4))] * 2


def test_gathered_outputs_and_scattered_inputs_are_those_of_whole_layers():
    x = integers(2, 3, 4, seed=8)
    up, down = nn.Linear(4, 12).double(), nn.Linear(12, 4).double()
    for layer in (up, down):
        fill(None, *layer.named_parameters())

    def program(comm):
        column = ColumnParallelLinear(4, 12, gather_output=True).double()
        row = RowParallelLinear(12, 4, input_is_parallel=False).double()
        fill(column, *up.named_parameters())
        fill(row, *down.named_parameters())
        mine = x.detach().clone().requires_grad_()
        row(column(mine)).square().sum().backward()
        return column(mine).detach(), row(column(mine)).detach(), mine.grad, column.weight.grad

    down(up(x.requires_grad_())).square().sum().backward()
    for rank, (middle, out, gradient, weight) in enumerate(world.simulate(program, 3).results):
        assert torch.equal(middle, up(x))
        assert torch.equal(out, down(up(x)))
        assert torch.equal(gradient, x.grad)
        assert torch.equal(weight, up.weight.grad[4 * rank : 4 * rank + 4])


@pytest.mark.parametrize("agree", [False, True])
def test_layers_start_as_parts_of_one_draw_whether_or_not_seeds_agree(agree):
    def program(comm):
        torch.manual_seed(5 if agree else 5 + comm.rank)
        column, row = pair_of(comm)
        words = VocabParallelEmbedding(7, 2)
        return [*column.parameters(), *row.parameters(), *words.parameters(), torch.rand(1)]

    torch.manual_seed(5)
    wholes = [*nn.Linear(4, 12).parameters(), *nn.Linear(12, 4).parameters()]
    wholes += [*nn.Embedding(7, 2).parameters(), torch.rand(1)]
    results = world.simulate(program, 2).results
    for i, dimension in enumerate([0, 0, 1, None, 0]):
        first, second = (result[i].detach() for result in results)
        if dimension is None:
            assert torch.equal(first, second)
            assert torch.equal(first, wholes[i])
        else:
            assert torch.equal(torch.cat([first, second], dimension), wholes[i])
    assert torch.equal(results[0][-1], wholes[-1])
    assert torch.equal(results[1][-1], wholes[-1]) == agree


def test_sequence_parallelism_keeps_this_ranks_tokens_alone_for_backward():
    def program(comm):
        column = ColumnParallelLinear(6, 9, sequence_parallel=True)
        kept = []
        with torch.autograd.graph.saved_tensors_hooks(
            lambda t: kept.append(t.shape) or t, lambda t: t
        ):
            column(torch.ones(2, 4, 6, requires_grad=True))
        return kept

    assert world.simulate(program, 3).results[0] == [(2, 4, 6), (3, 6)]


def test_what_needs_no_gradient_costs_no_message():
    def program(comm):
        column = ColumnParallelLinear(4, 4, comm=comm)
        column(torch.ones(2, 4)).sum().backward()
        return column.weight.grad

    run = world.simulate(program, 2)
    assert run.traffic.count("all_reduce") == 0
    assert torch.equal(run.results[0], torch.full((2, 4), 2.0))


# -- vocabulary ----------------------------------------------------------------------------------


@given(
    ranks=st.integers(1, 4),
    vocab=st.integers(4, 11),
    scale=st.sampled_from([1.0, 1e4]),
    seed=st.integers(0, 99),
)
@settings(max_examples=25, deadline=None)
def test_the_loss_of_split_logits_is_torchs_also_for_huge_ones(ranks, vocab, scale, seed):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(2, 3, vocab, generator=generator).double().mul(scale).requires_grad_()
    targets = torch.randint(vocab, (2, 3), generator=generator)
    targets[0, 0] = -100
    loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
    loss.backward()

    def program(comm):
        part = slice(comm.rank * vocab // ranks, (comm.rank + 1) * vocab // ranks)
        mine = logits.detach()[..., part].clone().requires_grad_()
        found = vocab_parallel_cross_entropy(mine, targets, comm, vocab)
        found.backward()
        return found.detach(), mine.grad

    results = world.simulate(program, ranks).results
    # float64; sums in another order
    torch.testing.assert_close(torch.cat([g for _, g in results], -1), logits.grad)
    for found, _ in results:
        torch.testing.assert_close(found, loss.detach())


def test_the_loss_sends_three_numbers_a_token_and_no_logits():
    tokens, words = 6, 1000

    def program(comm):
        logits = torch.ones(tokens, words // comm.size, requires_grad=True)
        vocab_parallel_cross_entropy(logits, torch.arange(tokens)).backward()

    traffic = world.simulate(program, 2).traffic
    assert [call.nbytes for call in traffic.calls] == [tokens * 4] * 6


@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_every_rank_looks_up_the_words_that_it_has(sequence_parallel):
    tokens = torch.tensor([[0, 6, 3, 3], [2, 5, 6, 1]])

    def program(comm):
        torch.manual_seed(0)
        words = VocabParallelEmbedding(7, 2, sequence_parallel=sequence_parallel)
        x = words(tokens)
        x.backward(torch.ones_like(x))
        return x.detach(), words.weight.grad

    torch.manual_seed(0)
    whole = nn.Embedding(7, 2)
    whole(tokens).sum().backward()
    (first, mine), (second, other) = world.simulate(program, 2).results
    assert torch.equal(torch.cat([first, second], 1) if sequence_parallel else first, whole(tokens))
    assert torch.equal(torch.cat([mine, other]), whole.weight.grad)


@pytest.mark.parametrize("word", [-1, 7, 99])
def test_a_word_that_is_not_in_the_vocabulary_is_refused_as_on_one_device(word):
    # Ranks that each leave it to the others would make zeros of it.
    with pytest.raises(IndexError, match=f"tokens holds {word}; it must hold a .* from 0 to 6"):
        world.simulate(lambda comm: VocabParallelEmbedding(7, 2)(torch.tensor([word])), 2)

    def program(comm):
        vocab_parallel_cross_entropy(torch.zeros(1, 3 + comm.rank), torch.tensor([word]), vocab=7)

    with pytest.raises(ValueError, match=f"targets has {word}; a target is a word, from 0 to 6"):
        world.simulate(program, 2)


# -- the whole model -----------------------------------------------------------------------------


def train(model, tokens, whole, steps=3):
    """Losses, every gradient of every step, and the parameters after the last one."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses, gradients = [], []
    for _ in range(steps):
        loss = model(tokens, tokens.roll(-1, 1))
        optimizer.zero_grad()
        loss.backward()
        losses.append(loss.detach())
        gradients.append({n: whole(n, p.grad) for n, p in model.named_parameters()})
        optimizer.step()
    return losses, gradients, {n: whole(n, p.detach()) for n, p in model.named_parameters()}


def train_split(comm, spec, sequence_parallel, flash=False):
    model = TensorParallelGPT(
        spec, comm, sequence_parallel, flash=flash, seed=3, dtype=torch.float64
    )
    found = train(model, text(spec), lambda name, mine: gathered(model, name, mine))
    return found, sum(p.numel() for p in model.parameters())


def one_device(spec, flash=False):
    model = GPT(spec, flash=flash, seed=3, dtype=torch.float64)
    return train(model, text(spec), lambda name, mine: mine.clone())


def assert_equal(found, expected):
    # float64, in which only the order of sums differs; AdamW divides small gradients by their size.
    torch.testing.assert_close(found[:2], expected[:2], rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(found[2], expected[2], rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_loss_gradients_and_three_steps_are_those_of_one_device(spec):
    expected = one_device(spec)
    for ranks, sequence_parallel in [(1, True), (2, False), (4, False), (4, True)]:
        run = world.simulate(train_split, ranks, args=(spec, sequence_parallel))
        for rank, (found, held) in enumerate(run.results):
            assert_equal(found, expected)
            assert held == layout(spec, ranks, sequence_parallel).held(rank)


def test_real_processes_find_the_gradients_of_one_device():
    spec = dataclasses.replace(SPECS["multi-query with biases"], layers=1)
    tokens, whole = text(spec), GPT(spec, dtype=torch.float64)
    loss = whole(tokens, tokens)
    loss.backward()
    expected = {name: p.grad for name, p in whole.named_parameters()}

    def program(comm):  # without an optimizer, which takes a new process a second to load
        model = TensorParallelGPT(spec, sequence_parallel=True, dtype=torch.float64)
        loss = model(tokens, tokens)
        loss.backward()
        found = {name: gathered(model, name, p.grad) for name, p in model.named_parameters()}
        return loss.detach(), found

    for found in world.launch(program, 2).results:
        torch.testing.assert_close(found, (loss.detach(), expected))


def test_flash_attention_on_a_ranks_heads_is_that_of_one_device():
    run = world.simulate(train_split, 2, args=(LLAMA, True, True))
    assert_equal(run.results[0][0], one_device(LLAMA, True))


@pytest.mark.parametrize("sequence_parallel", [False, True])
@pytest.mark.parametrize("spec", [PLAIN, LLAMA], ids=["gpt", "llama"])
def test_what_is_said_in_a_step_is_what_the_layout_says(spec, sequence_parallel):
    def program(comm):
        model = TensorParallelGPT(spec, comm, sequence_parallel)
        model(text(spec), text(spec)).backward()
        return model.layout

    run = world.simulate(program, 4)
    planned = Counter(c.kind for c in run.results[0].collectives())
    assert Counter(c.kind for c in run.traffic.calls if c.rank == 3) == planned


def test_a_layer_sums_twice_forward_and_twice_backward():
    counts = []
    for layers in (1, 2):
        spec = dataclasses.replace(PLAIN, layers=layers)

        def program(comm, spec=spec):
            loss = TensorParallelGPT(spec, comm)(text(spec), text(spec))
            comm.barrier()
            forward = comm.traffic.count("all_reduce", rank=0)
            loss.backward()
            return forward

        run = world.simulate(program, 2)
        counts.append((run.results[0], run.traffic.count("all_reduce", rank=0)))
    assert counts[1][0] - counts[0][0] == 2
    assert counts[1][1] - counts[0][1] == 4


def test_overlap_saves_time_and_changes_no_bit():
    spec = dataclasses.replace(PLAIN, hidden=64, ffn_hidden=256)

    def program(comm, sequence_parallel, overlap):
        model = TensorParallelGPT(spec, comm, sequence_parallel, overlap)
        model(text(spec), text(spec)).backward()
        return [p.grad for p in model.parameters()]

    for sequence_parallel in (False, True):
        runs = [
            world.simulate(program, cluster=H100S, args=(sequence_parallel, overlap))
            for overlap in (False, True)
        ]
        assert runs[1].seconds < runs[0].seconds
        assert runs[1].traffic.nbytes == runs[0].traffic.nbytes
        for a, b in zip(runs[0].results[1], runs[1].results[1], strict=True):
            assert torch.equal(a, b)


def test_logits_are_gathered_where_no_targets_are_given():
    expected = GPT(PLAIN, dtype=torch.float64)(text(PLAIN)[:, :6])

    def program(comm, sequence_parallel):
        model = TensorParallelGPT(PLAIN, comm, sequence_parallel, dtype=torch.float64)
        with torch.no_grad():
            return model(text(PLAIN)[:, :6])

    for sequence_parallel in (False, True):
        for logits in world.simulate(program, 2, args=(sequence_parallel,)).results:
            torch.testing.assert_close(logits, expected)


@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_gradients_of_two_micro_batches_add_up_as_on_one_device(sequence_parallel):
    spec, halves = SPECS["multi-query with biases"], text(PLAIN, 4).clamp(max=31).chunk(2)
    whole = GPT(spec, dtype=torch.float64)
    for tokens in halves:
        whole(tokens, tokens).backward()
    expected = {name: p.grad for name, p in whole.named_parameters()}

    def program(comm):
        model = TensorParallelGPT(spec, comm, sequence_parallel, dtype=torch.float64)
        for tokens in halves:
            model(tokens, tokens).backward()
        return {name: gathered(model, name, p.grad) for name, p in model.named_parameters()}

    for found in world.simulate(program, 4).results:
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_under_autocast_gradients_are_near_those_of_float32(sequence_parallel):
    def program(comm):
        model, found = TensorParallelGPT(LLAMA, comm, sequence_parallel), []
        for enabled in (False, True):
            with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
                loss = model(text(LLAMA), text(LLAMA))
            model.zero_grad()
            loss.backward()
            found.append([p.grad for p in model.parameters()])
        return zip(*found, strict=True)

    for exact, rounded in world.simulate(program, 2).results[0]:
        assert rounded.dtype == torch.float32
        # bfloat16 has 8 bits, and a gradient is the result of a dozen products.
        torch.testing.assert_close(rounded, exact, rtol=0, atol=0.05 * exact.abs().max().item())


@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_stages_of_a_pipeline_can_be_cut_too(sequence_parallel):
    spec = SPECS["multi-query with biases"]
    tokens, whole, plan = text(spec), GPT(spec, dtype=torch.float64), one_f_one_b(2, 2)
    whole(tokens, tokens).backward()
    expected = {name: p.grad for name, p in whole.named_parameters()}

    def program(comm):
        layers, inside = comm.split(comm.rank % 2), comm.split(comm.rank // 2)
        model = TensorParallelGPT(spec, inside, sequence_parallel, dtype=torch.float64)
        pipeline = Pipeline(plan, split(model, plan, layers.rank), layers)
        pipeline.step(tokens, tokens)
        return {name: gathered(model, name, p.grad) for name, p in pipeline.named_parameters()}

    results = world.simulate(program, 4).results
    for first, last in (results[::2], results[1::2]):
        torch.testing.assert_close(first | last, expected)


def test_a_published_model_trains_on_the_meta_device_in_virtual_time():
    spec = TransformerSpec(
        layers=2,
        hidden=8192,
        heads=64,
        vocab=32000,
        sequence=4096,
        ffn_hidden=28672,
        kv_heads=2,
        gated=True,
    )

    def program(comm):
        model = TensorParallelGPT(spec, comm, True, device="meta", dtype=torch.bfloat16)
        tokens = torch.empty(1, 4096, dtype=torch.long, device="meta")
        model(tokens, tokens).backward()

    run = world.simulate(program, cluster=H100S)
    assert 0.01 < run.seconds < 1.0


# -- weights -------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_weights_go_in_and_come_out_as_they_were(spec):
    state = GPT(spec, seed=11).state_dict()

    def program(comm):
        model = TensorParallelGPT(spec, comm)
        load(model, state)
        back = full_state(model)
        assert list(back) == list(state)
        assert all(torch.equal(back[name], state[name]) for name in state)
        return [tuple(p.shape) for p in model.parameters()]

    for rank, shapes in enumerate(world.simulate(program, 4).results):
        words = (rank + 1) * spec.vocab // 4 - rank * spec.vocab // 4
        assert shapes[0] == (words, spec.hidden)


def test_parameters_come_in_the_order_of_the_whole_model():
    def program(comm):
        return [name for name, _ in TensorParallelGPT(PLAIN, comm).named_parameters()]

    assert world.simulate(program, 2).results[0] == [n for n, _ in GPT(PLAIN).named_parameters()]


@pytest.mark.parametrize("sequence_parallel", [False, True])
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_squares_over_ranks_with_copies_counted_once_do_not_give_the_gradients_length(
    spec, sequence_parallel
):
    def program(comm):
        model = TensorParallelGPT(spec, comm, sequence_parallel, dtype=torch.float64)
        model(text(spec), text(spec)).backward()
        pieces = {name: model.layout[name].pieces for name, _ in model.named_parameters()}
        once = sum(
            pieces[name] / comm.size * parameter.grad.square().sum()
            for name, parameter in model.named_parameters()
        )
        return comm.all_reduce(once).sqrt()

    whole = GPT(spec, dtype=torch.float64)
    whole(text(spec), text(spec)).backward()
    expected = nn.utils.get_total_norm([parameter.grad for parameter in whole.parameters()])
    for found in world.simulate(program, 4).results:
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)


# -- dropout -------------------------------------------------------------------------------------


@pytest.mark.parametrize("agree", [False, True])
@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_masks_agree_where_tensors_do_and_differ_where_they_differ(sequence_parallel, agree):
    def program(comm):
        torch.manual_seed(0 if agree else comm.rank)
        model = TensorParallelGPT(PLAIN, comm, sequence_parallel, dropout=0.5)
        block, ones = model.layers[0], torch.ones(2, 8, 16)
        between = torch.stack([drop(ones) for drop in (model.dropout, block.dropout1)])
        heads = block.attention.core(*torch.ones(3, 2, 8, 2, 4))
        loss = model(text(PLAIN), text(PLAIN))
        loss.backward()
        return between, heads, loss.detach(), model.norm.weight.grad

    (between, heads, loss, norm), *others = world.simulate(program, 2).results
    assert not torch.equal(between[0], between[1])
    for other in others:
        assert torch.equal(between, other[0]) != sequence_parallel
        assert not torch.equal(heads, other[1])
        assert torch.equal(loss, other[2])
        assert torch.equal(norm, other[3])


@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_dropout_follows_the_seed_and_a_checkpoint_draws_the_same_masks_again(sequence_parallel):
    def program(comm):
        model = TensorParallelGPT(PLAIN, comm, sequence_parallel, dropout=0.5, dtype=torch.float64)
        layer, x = model.layers[0], integers(2, 4, 16).requires_grad_()

        def gradients(function):
            torch.manual_seed(comm.rank)
            return torch.autograd.grad(function(x).square().sum(), [x, *layer.parameters()])

        again = gradients(lambda x: checkpoint(layer, x, use_reentrant=False))
        return zip(gradients(layer), again, strict=True)

    for pairs in world.simulate(program, 2).results:
        assert all(torch.equal(plain, again) for plain, again in pairs)


# -- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "ranks", "message"),
    [
        (lambda: ColumnParallelLinear(4, 10), 4, "10 out_features do not divide by .* of 4; .* 2 and 5"),
        (lambda: RowParallelLinear(10, 4), 4, "10 in_features do not divide by .* of 4; .* 2 and 5"),
        (lambda: VocabParallelEmbedding(3, 4), 4, "3 words cannot be shared by 4 ranks"),
        (lambda: TensorParallelGPT(PLAIN), 3, "4 heads do not divide by .* of 3; .* 2 and 4"),
        (
            lambda: TensorParallelGPT(PLAIN, sequence_parallel=True)(text(PLAIN)[:, :6]),
            4,
            "6 tokens of a sequence do not divide by .* of 4; .* 3 and 6",
        ),
        (lambda: load(TensorParallelGPT(PLAIN), {}), 2, "The state lacks embedding.weight"),
        (
            lambda: load(TensorParallelGPT(PLAIN), TensorParallelGPT(PLAIN).state_dict()),
            2,
            r"has the shape \(16, 16\); the whole of this model's spec has \(33, 16\)",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_cut_is_a_sentence(make, ranks, message):
    with pytest.raises(ValueError, match=message):
        world.simulate(lambda comm: make(), ranks)


def test_a_rank_that_leaves_early_is_reported():
    def program(comm):
        model = TensorParallelGPT(PLAIN, comm)
        loss = model(text(PLAIN), text(PLAIN))
        if comm.rank:
            loss.backward()

    with pytest.raises(world.DeadlockError, match="rank 0 has finished"):
        world.simulate(program, 2)


# -- in practice ---------------------------------------------------------------------------------


def test_the_command_of_more_on_the_chapter_is_not_that_of_llama_3_8b():
    page = (ROOT / "chapters" / "tensor_parallel_more.md").read_text("utf-8")
    (command,) = re.findall(r"^torchrun (.*?)\n```", page, re.S | re.M)
    flags = dict(re.findall(r"--([\w-]+)(?: ([^-\s]\S*))?", command))
    spec = CATALOGUE["llama3-8b"]
    assert {
        "num-layers": spec.layers,
        "hidden-size": spec.hidden,
        "ffn-hidden-size": spec.ffn_hidden,
        "num-attention-heads": spec.heads,
        "num-query-groups": spec.kv_heads,
        "vocab-size": spec.vocab,
        "seq-length": 8192,
        "max-position-embeddings": 8192,
    }.items() <= {name: int(x) for name, x in flags.items() if x.isdigit()}.items()
    named = {"rope": "position-embedding-type", "RMSNorm": "normalization"}
    assert all(flags[name] == value for value, name in named.items())
    assert (spec.gated, spec.bias, spec.tied) == (True, False, False)
    assert {"swiglu", "disable-bias-linear", "untie-embeddings-and-output-weights"} <= set(flags)
    layout(spec, int(flags["tensor-model-parallel-size"]), sequence_parallel=True).check()
