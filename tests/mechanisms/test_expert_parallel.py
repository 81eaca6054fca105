"""Expert parallelism: a mixture whose experts lie on ranks computes, and sends, what it should."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from dlsys import world
from dlsys.expert_parallel import routing
from dlsys.expert_parallel.dispatch import dispatched
from dlsys.expert_parallel.layer import MoE
from dlsys.expert_parallel.mixture import Experts, Linears, all_of, dense, grouped
from dlsys.model import FeedForward
from dlsys.transformer import MixtureOfExperts, TransformerSpec
from tests.mechanisms.nets import whole_numbers

pytestmark = pytest.mark.usefixtures("one_thread")

HIDDEN = 3


def spec_of(experts=6, k=2, gated=False, bias=None, **more):
    moe = MixtureOfExperts(experts, k, **more)
    return TransformerSpec(
        layers=1, hidden=8, heads=2, vocab=16, sequence=4, ffn_hidden=12, gated=gated, bias=bias,
        moe=moe,
    )  # fmt: skip


def draw(seed):
    return torch.Generator().manual_seed(seed)


def integers(*shape, seed=0):
    return torch.randint(-4, 5, shape, generator=draw(seed)).double()


def choice_of(tokens, number, k, seed, drop_some=False):
    """Experts (tokens, k), some of them dropped."""
    experts = torch.rand(tokens, number, generator=draw(seed)).topk(k).indices
    return routing.drop(experts, number, max(1, tokens * k // number)) if drop_some else experts


def linear_experts(number):
    """Experts of one matrix each, of whole numbers, so that every sum is exact."""
    return whole_numbers(Linears(number, HIDDEN, HIDDEN, bias=True).double())


# -- routing -------------------------------------------------------------------------------------

SCORES = torch.randn(50, 6, dtype=torch.float64, generator=draw(7))


@pytest.mark.parametrize("k", [1, 2, 6])
def test_the_weights_are_those_of_the_papers(k):
    experts = routing.choose(SCORES, k)
    before, after, sigmoids = (
        weigh(SCORES, experts)
        for weigh in (routing.softmax_before, routing.softmax_after, routing.sigmoids)
    )
    for t, scores in enumerate(SCORES.tolist()):
        best = sorted(range(6), key=scores.__getitem__, reverse=True)[:k]
        assert experts[t].tolist() == best
        powers = [math.exp(s) for s in scores]
        shares = [1 / (1 + math.exp(-scores[e])) for e in best]
        for j, e in enumerate(best):
            assert before[t, j] == pytest.approx(powers[e] / sum(powers))
            assert after[t, j] == pytest.approx(powers[e] / sum(powers[b] for b in best))
            assert sigmoids[t, j] == pytest.approx(shares[j] / sum(shares))


def test_a_softmax_after_the_choice_is_one_before_it_over_its_sum():
    experts = routing.choose(SCORES, 3)
    before = routing.softmax_before(SCORES, experts)
    scaled = before / before.sum(-1, keepdim=True)
    torch.testing.assert_close(routing.softmax_after(SCORES, experts), scaled)


def test_biases_change_the_choice_and_no_weight():
    bias = torch.tensor([2.0, 0, 0, 0, 0, 0])
    experts = routing.choose(SCORES, 2, bias)
    assert (experts[:, 0] == 0).all()
    rest = SCORES.clone()
    rest[:, 0] = -math.inf
    assert torch.equal(experts[:, 1], rest.argmax(-1))
    # It is added to sigmoids, which lie between 0 and 1, and not to scores: here it would decide.
    far = torch.tensor([[-6.0, 0.0, 6.0]])
    assert routing.choose(far, 1, torch.tensor([0.9, 0.0, 0.0])).item() == 2
    assert routing.choose(far, 1, torch.tensor([0.0, 0.6, 0.0])).item() == 1


@given(tokens=st.integers(1, 20), number=st.integers(1, 6), seed=st.integers(0, 99), data=st.data())
@settings(max_examples=40, deadline=None)
def test_each_expert_keeps_its_first_copies_in_order_of_position(tokens, number, seed, data):
    k, most = data.draw(st.integers(1, number)), data.draw(st.integers(1, 8))
    experts = choice_of(tokens, number, k, seed)
    kept = routing.drop(experts, number, most)
    read: Counter[int] = Counter()
    for chosen, found in zip(experts.tolist(), kept.tolist(), strict=True):
        for expert, left in zip(chosen, found, strict=True):
            assert left == (expert if read[expert] < most else number)
            read[expert] += 1


@pytest.mark.parametrize(
    ("factor", "tokens", "k", "number", "copies"),
    [
        (1, 64, 2, 8, 16),
        (1.25, 64, 2, 8, 20),
        (1, 10, 1, 4, 3),
        (0.01, 4, 1, 8, 1),
        (2, 3, 1, 1, 6),
    ],
)
def test_the_capacity_is_the_factor_times_the_equal_share_rounded_up(
    factor, tokens, k, number, copies
):
    assert routing.capacity(factor, tokens, k, number) == copies


def test_the_auxiliary_loss_is_that_of_switch_and_lowers_the_busiest_experts_probability():
    scores = SCORES.clone().requires_grad_()
    chosen = SCORES.argmax(-1)
    f = [(chosen == i).double().mean() for i in range(6)]  # eq. 5
    p = [SCORES.softmax(-1)[:, i].mean() for i in range(6)]  # eq. 6
    loss = routing.auxiliary_loss(scores, torch.stack(f))
    assert loss.item() == pytest.approx(6 * sum(a * b for a, b in zip(f, p, strict=True)).item())
    loss.backward()
    step = scores - 1e-3 * scores.grad / scores.grad.norm()
    busiest = torch.stack(f).argmax()
    assert step.softmax(-1).mean(0)[busiest] < p[busiest]


def test_the_auxiliary_loss_of_equal_loads_is_1():
    assert routing.auxiliary_loss(SCORES, torch.full((6,), 1 / 6).double()) == pytest.approx(1)


def test_the_z_loss_is_the_mean_square_of_the_log_of_the_softmaxs_sum():
    expected = [math.log(sum(map(math.exp, row))) ** 2 for row in SCORES.tolist()]
    assert routing.z_loss(SCORES).item() == pytest.approx(sum(expected) / 50)


def test_biases_that_move_against_the_load_level_a_skewed_choice():
    scores = torch.randn(512, 8, generator=draw(0)) + torch.linspace(-2, 2, 8)
    bias = torch.zeros(8)

    def loads():
        return routing.choose(scores, 2, bias).flatten().bincount(minlength=8).double()

    first = loads()
    assert torch.equal(routing.rebalance(bias, first, 0.01) > 0, first < first.mean()), (
        "an expert with less than the mean load is chosen more from now on"
    )
    assert first.max() / first.mean() > 2.5
    for _ in range(200):
        bias = routing.rebalance(bias, loads(), 0.005)
    assert loads().max() / loads().mean() < 1.1


# -- the mixture on one device -------------------------------------------------------------------


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_every_expert_is_the_feed_forward_network_with_its_weights(gated, bias):
    spec = spec_of(gated=gated, bias=bias)
    experts = Experts(6, 8, 12, gated, bias).double()
    x = torch.randn(5, 8, dtype=torch.float64, generator=draw(1))
    for p in experts.parameters():
        nn.init.normal_(p, generator=draw(p.numel()))
    every = all_of(experts, x)
    for i in range(6):
        network = FeedForward(spec).double()
        network.load_state_dict({name: whole[i] for name, whole in experts.state_dict().items()})
        torch.testing.assert_close(every[i], network(x))


@given(
    tokens=st.integers(1, 12),
    number=st.integers(1, 5),
    seed=st.integers(0, 99),
    drop_some=st.booleans(),
    data=st.data(),
)
@settings(max_examples=30, deadline=None)
def test_grouped_by_expert_is_exactly_the_dense_evaluation(tokens, number, seed, drop_some, data):
    k = data.draw(st.integers(1, number))
    experts = choice_of(tokens, number, k, seed, drop_some)
    assert_same(evaluated_densely(number, experts), evaluated(grouped, number, experts))


def leaves(tokens, k, first=0):
    """x, weights and the gradient of y of some tokens of a longer row, of whole numbers."""
    x = torch.stack([integers(HIDDEN, seed=t) for t in range(first, first + tokens)])
    dy = torch.stack([integers(HIDDEN, seed=1000 + t) for t in range(first, first + tokens)])
    weights = torch.stack([integers(k, seed=2000 + t) for t in range(first, first + tokens)])
    return x.requires_grad_(), weights.requires_grad_(), dy


def evaluated_densely(number, experts):
    x, weights, dy = leaves(*experts.shape)
    compute = linear_experts(number)
    outputs = [x @ w.T + b for w, b in zip(compute.weight, compute.bias, strict=True)]
    y = dense(x, experts, weights, torch.stack(outputs))
    y.backward(dy)
    return y.detach(), x.grad, weights.grad, compute.weight.grad, compute.bias.grad


def evaluated(function, number, experts):
    x, weights, dy = leaves(*experts.shape)
    compute = linear_experts(number)
    y = function(x, experts, weights, compute, number)
    y.backward(dy)
    return y.detach(), x.grad, weights.grad, compute.weight.grad, compute.bias.grad


def assert_same(expected, found):
    for one, other in zip(expected, found, strict=True):
        assert torch.equal(one, other)


def test_the_dense_evaluation_weighs_what_the_chosen_experts_give_and_leaves_out_the_dropped():
    x, weights, _ = leaves(4, 2)
    experts = torch.tensor([[0, 2], [1, 0], [2, 3], [3, 3]])  # 3: dropped
    every = integers(3, 4, HIDDEN, seed=5)
    y = dense(x, experts, weights, every)
    assert torch.equal(y[0], weights[0, 0] * every[0, 0] + weights[0, 1] * every[2, 0])
    assert torch.equal(y[1], weights[1, 0] * every[1, 1] + weights[1, 1] * every[0, 1])
    assert torch.equal(y[2], weights[2, 0] * every[2, 2])
    assert torch.equal(y[3], torch.zeros(HIDDEN).double())


# -- the ranks -----------------------------------------------------------------------------------


def on_ranks(comm, number, experts, tokens_of):
    """What a rank finds for its tokens and its experts."""
    ends = torch.tensor([0, *tokens_of]).cumsum(0).tolist()
    first, stop = ends[comm.rank], ends[comm.rank + 1]
    mine = experts[first:stop]
    held = number // comm.size
    x, weights, dy = leaves(stop - first, experts.shape[1], first)
    compute = Linears(held, HIDDEN, HIDDEN, bias=True).double()
    here = slice(comm.rank * held, (comm.rank + 1) * held)
    whole = linear_experts(number)
    compute.load_state_dict({name: w[here] for name, w in whole.state_dict().items()})
    y = dispatched(comm, x, mine, weights, compute, number)
    y.backward(dy)
    return y.detach(), x.grad, weights.grad, compute.weight.grad, compute.bias.grad


@given(
    tokens_of=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    held=st.integers(1, 3),
    seed=st.integers(0, 99),
    drop_some=st.booleans(),
    data=st.data(),
)
@settings(max_examples=30, deadline=None)
def test_ranks_with_any_tokens_find_exactly_the_dense_evaluation(
    tokens_of, held, seed, drop_some, data
):
    number = held * len(tokens_of)
    k = data.draw(st.integers(1, number))
    experts = choice_of(sum(tokens_of), number, k, seed, drop_some)
    run = world.simulate(on_ranks, len(tokens_of), args=(number, experts, tokens_of))
    found = [torch.cat(parts) for parts in zip(*run.results, strict=True)]
    assert_same(evaluated_densely(number, experts), found)


def test_real_processes_find_exactly_the_dense_evaluation():
    tokens_of, number = [3, 1, 4], 6
    experts = choice_of(8, number, 2, seed=3, drop_some=True)
    run = world.launch(on_ranks, 3, args=(number, experts, tokens_of), timeout=200)
    found = [torch.cat(parts) for parts in zip(*run.results, strict=True)]
    assert_same(evaluated_densely(number, experts), found)


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_each_copy_that_leaves_its_rank_is_sent_four_times_a_step_and_no_other(ranks):
    tokens_of, number = [5, 4, 7][:ranks], 6
    experts = choice_of(sum(tokens_of), number, 3, seed=1)
    traffic = world.simulate(on_ranks, ranks, args=(number, experts, tokens_of)).traffic
    owner = [rank for rank, tokens in enumerate(tokens_of) for _ in range(tokens)]
    copies = Counter(
        (owner[t], e // (number // ranks)) for t, es in enumerate(experts.tolist()) for e in es
    )
    expected = Counter()
    for (src, dst), number_of_copies in copies.items():
        if src != dst:
            # Dispatch, and the gradients of combine; combine, and the gradients of dispatch.
            expected[src, dst] += 2 * number_of_copies * HIDDEN * 8
            expected[dst, src] += 2 * number_of_copies * HIDDEN * 8
    sends = Counter()
    for m in traffic.messages:
        if m.kind == "send":
            sends[m.src, m.dst] += m.nbytes
    assert sends == expected
    # How many come, as int64: one number for each expert of each other rank.
    told = [m.nbytes for m in traffic.messages if m.kind == "all_to_all"]
    assert sum(told) == ranks * (ranks - 1) * number // ranks * 8
    assert traffic.count("all_to_all") == ranks


def test_no_message_goes_where_there_is_nothing_to_send():
    experts = torch.tensor([[0], [0], [1], [3], [3], [3]])  # rank 0 and 2 stay at home; 1 goes to 0
    messages = world.simulate(on_ranks, 3, args=(6, experts, [2, 1, 3])).traffic.messages
    pairs = {(m.src, m.dst) for m in messages if m.kind == "send"}
    assert pairs == {(1, 0), (0, 1), (2, 1), (1, 2)}


def test_an_expert_that_nobody_chooses_gets_zeros_for_a_gradient():
    experts = torch.zeros(4, 1, dtype=torch.long)  # so that rank 1 has nothing to do
    _, last = world.simulate(on_ranks, 2, args=(4, experts, [2, 2])).results
    assert torch.equal(last[3], torch.zeros(2, HIDDEN, HIDDEN).double())
    assert torch.equal(last[4], torch.zeros(2, HIDDEN).double())


# -- the layer -----------------------------------------------------------------------------------

CASES = {
    "gpt": spec_of(),
    "gated, shared": spec_of(gated=True, shared=2, ffn_hidden=5),
    "switch": spec_of(k=1),
    "all": spec_of(k=6, gated=True, bias=True),
}
X = torch.randn(6, 2, 8, dtype=torch.float64, generator=draw(4))


def layer_of(spec, comm=None, **options):
    torch.manual_seed(0 if comm is None else comm.rank)  # rank 0's counts
    return MoE(spec, comm, **options).double()


def passed(layer, x, comm=None):
    """Output, gradient of x, of every parameter: of the sum of y's cube and of the layer's loss."""
    x = x.clone().requires_grad_()
    y = layer(x)
    everyone = 1 if comm is None else comm.size
    ((y**3).sum() + layer.loss / everyone).backward()
    return y.detach(), x.grad, {name: p.grad for name, p in layer.named_parameters()}


@pytest.mark.parametrize("spec", CASES.values(), ids=CASES)
def test_the_layer_is_a_loop_over_tokens_and_their_experts(spec):
    layer = layer_of(spec)
    networks = [
        (kind, [one_network(spec, experts, i) for i in range(len(experts.up.weight))])
        for kind, experts in (("routed", layer.experts), ("shared", layer.shared))
        if experts is not None
    ]
    found = layer(X)
    for token, y in zip(X.flatten(0, 1), found.flatten(0, 1), strict=True):
        scores = layer.router.weight @ token
        best = scores.topk(spec.moe.experts_per_token).indices
        over = scores if len(best) == 1 else scores[best]
        weights = (scores[best] - over.logsumexp(0)).exp()
        expected = sum(w * networks[0][1][e](token) for w, e in zip(weights, best, strict=True))
        for _, shared in networks[1:]:
            expected = expected + sum(network(token) for network in shared)
        torch.testing.assert_close(y, expected)


def one_network(spec, experts, i):
    width = experts.up.weight.shape[1]
    network = FeedForward(
        TransformerSpec(1, 8, 2, 16, 4, width, gated=spec.gated, bias=spec.bias)
    ).double()
    network.load_state_dict({name: whole[i] for name, whole in experts.state_dict().items()})
    return network


@pytest.mark.parametrize("spec", CASES.values(), ids=CASES)
def test_a_layers_outputs_and_gradients_on_ranks_are_those_of_one_device(spec):
    options = {"auxiliary_loss": 0.3, "z_loss": 0.2}
    expected = passed(layer_of(spec, **options), X)

    def program(comm):
        return passed(layer_of(spec, comm, **options), X.chunk(comm.size)[comm.rank], comm)

    for ranks in (1, 2, 3, 6):
        outputs, inputs, gradients = zip(*world.simulate(program, ranks).results, strict=True)
        # float64, in which only the order of sums differs
        torch.testing.assert_close(torch.cat(outputs), expected[0])
        torch.testing.assert_close(torch.cat(inputs), expected[1])
        for name, gradient in expected[2].items():
            join = torch.cat if name.startswith("experts") else sum
            torch.testing.assert_close(join([g[name] for g in gradients]), gradient, msg=name)


def test_capacity_on_ranks_is_that_of_one_device_which_takes_each_ranks_tokens_alone():
    spec, options = spec_of(), {"capacity_factor": 0.6}
    alone = layer_of(spec, **options)
    parts = [passed(alone, x) for x in X.chunk(3)]  # gradients add up

    def program(comm):
        return passed(layer_of(spec, comm, **options), X.chunk(3)[comm.rank], comm)

    outputs, inputs, gradients = zip(*world.simulate(program, 3).results, strict=True)
    torch.testing.assert_close(torch.cat(outputs), torch.cat([y for y, _, _ in parts]))
    torch.testing.assert_close(torch.cat(inputs), torch.cat([dx for _, dx, _ in parts]))
    found = torch.cat([g["experts.up.weight"] for g in gradients])
    torch.testing.assert_close(found, alone.experts.up.weight.grad)
    free = layer_of(spec)(X)
    assert not torch.equal(torch.cat(outputs), free), "nothing is dropped"


def test_a_full_mixture_adds_nothing_to_a_dropped_token():
    layer = layer_of(spec_of(k=1), capacity_factor=1e-9)  # each expert reads one copy
    y = layer(X).flatten(0, 1)
    chosen = layer.router(X.flatten(0, 1)).argmax(-1).tolist()
    first = [chosen.index(e) for e in set(chosen)]
    assert sorted(first) == y.abs().sum(-1).nonzero().flatten().tolist()


def test_a_router_of_one_expert_a_token_learns_by_default_and_not_by_a_softmax_after():
    for weigh, learns in ((None, True), (routing.softmax_after, False)):
        layer = layer_of(spec_of(k=1), weigh=weigh)
        *_, gradients = passed(layer, X)
        assert bool(gradients["router.weight"].abs().max() > 1e-12) == learns


def test_biases_on_ranks_move_as_on_one_device():
    spec, options = spec_of(), {"balance_step": 0.05}

    def program(comm, x):
        layer = layer_of(spec, comm, **options)
        for _ in range(20):
            layer(x)
            layer.rebalance()
        return layer.bias, layer.loads.sum(), dict(layer.state_dict())

    alone, _, state = program(None, X)
    assert alone.unique().numel() > 2
    assert {"moves"} == {name for name in state if "." not in name}
    run = world.simulate(lambda comm: program(comm, X.chunk(3)[comm.rank]), 3)
    for bias, left, _ in run.results:
        assert torch.equal(bias, alone)
        assert not left


def test_evaluation_counts_no_loads_and_has_no_loss():
    layer = layer_of(spec_of(), balance_step=0.1, auxiliary_loss=1.0).eval()
    layer(X)
    assert layer.loss is None
    assert not layer.loads.any()


def test_loads_of_several_passes_add_up_until_biases_move():
    layer = layer_of(spec_of(), balance_step=0.1)
    for _ in range(2):
        layer(X)
    assert layer.loads.sum() == 2 * 12 * 2


def test_scores_of_a_layer_in_bfloat16_are_weighed_in_float32():
    kept = []

    def weigh(scores, experts):
        kept.append(scores.dtype)
        return routing.softmax_after(scores, experts)

    layer = layer_of(spec_of(), weigh=weigh).to(torch.bfloat16)
    assert layer(X.bfloat16()).dtype == torch.bfloat16
    assert kept == [torch.float32]


def test_converting_a_layer_rounds_no_bias():
    layer = layer_of(spec_of(), balance_step=0.001)
    layer.moves += 1025  # which neither bfloat16 nor float16 has
    assert layer.to(torch.bfloat16).moves.tolist() == [1025] * 6


def test_a_layer_starts_from_the_same_values_on_any_number_of_ranks():
    def program(comm):
        return dict(layer_of(CASES["gated, shared"], comm).named_parameters())

    alone = program(None)
    assert alone["experts.up.weight"].flatten(1).unique(dim=0).shape[0] == 6
    for ranks in (1, 2, 3):
        found = world.simulate(program, ranks).results
        for name, whole in alone.items():
            if name.startswith("experts"):
                assert torch.equal(torch.cat([each[name] for each in found]), whole)
            else:
                assert all(torch.equal(each[name], whole) for each in found)


# -- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "ranks", "message"),
    [
        (lambda: MoE(spec_of(8)), 3, "8 experts do not divide by a number of ranks of 3; the nearest that work: 2 and 4."),
        (lambda: MoE(spec_of(4)), 8, "4 experts do not divide .* of 8; the nearest that work: 4."),
        (lambda: MoE(spec_of(), capacity_factor=0), 1, "capacity_factor is 0; it must be a finite number above zero."),
        (lambda: MoE(spec_of(), z_loss=-1.0), 1, "z_loss is -1.0; it must be a finite number of at"),
        (lambda: MoE(TransformerSpec(1, 8, 2, 16, 4)), 1, r"spec is one without a mixture; it must be given with moe="),
        (lambda: MoE(spec_of())(torch.ones(2, 7)), 1, r"x is of shape \(2, 7\) .*; it must be \(..., 8\) float"),
        (lambda: MoE(spec_of())(torch.full((2, 8), math.nan)), 2, "scores have NaN for 2 of 2 tokens"),
        (lambda: MoE(spec_of())(torch.tensor([[1.0] * 8, [math.inf] * 8])), 1, "scores have NaN for 1 of 2 tokens"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_a_sentence(make, ranks, message):
    with pytest.raises(world.RankError, match=message):
        world.simulate(lambda comm: make(), ranks)
