"""What mixtures of experts, other attention and context parallelism hold, against real modules."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from dlsys.hardware import DEVICES
from dlsys.memory_wall import (
    Split,
    activations,
    fits,
    measure_activations,
    measure_state,
    parameters_held,
    should_scale,
)
from dlsys.model import GPT, Core, FeedForward, rotate
from dlsys.transformer import CATALOGUE, LatentAttention, MixtureOfExperts, TransformerSpec

H100 = DEVICES["h100-sxm"]
STATE = ("weights", "gradients", "optimizer")

# The reference: torch modules that know no formula, within the small GPT in place of its own.


class Route(nn.Module):
    """x (n, h) -> the weights of each token's experts in 16 bits, and which they are, (n, k)."""

    def __init__(self, spec):
        super().__init__()
        self.k = spec.moe.experts_per_token
        self.linear = nn.Linear(spec.hidden, spec.moe.experts, bias=False)

    def forward(self, x):
        chosen = self.linear(x).softmax(-1, dtype=torch.float32).topk(self.k)
        return chosen.values.to(x.dtype), chosen.indices


class Combine(nn.Module):
    """What came back from experts, times its weight, summed for each token."""

    def forward(self, y, weights, token, x):
        # Not index_add, which keeps what it adds although no gradient needs it.
        token = token.unsqueeze(1).expand_as(y)
        return torch.zeros_like(x).scatter_add(0, token, y * weights.unsqueeze(1))


class Mixture(nn.Module):
    """Tokens sorted by expert, each expert's in one product; `held` of all experts are here.

    With `gathered` > 1 the copies of that many ranks of a sequence-parallel group are computed
    here, as an expert cut by its neurons needs them, and a rank's share of the sums goes back.
    """

    def __init__(self, spec, gathered=1):
        super().__init__()
        self.moe, self.gathered = spec.moe, gathered
        inside = dataclasses.replace(dense(spec), ffn_hidden=spec.moe.ffn_hidden or spec.ffn_hidden)
        self.route, self.combine = Route(spec), Combine()
        self.experts = nn.ModuleList(FeedForward(inside) for _ in range(spec.moe.experts))
        self.shared = nn.ModuleList(FeedForward(inside) for _ in range(spec.moe.shared))

    def forward(self, x):
        shape, x = x.shape, x.flatten(0, -2)
        weights, chosen = self.route(x)
        order = chosen.flatten().argsort(stable=True)
        token = order // self.moe.experts_per_token
        loads = (chosen.flatten().bincount(minlength=self.moe.experts) * self.gathered).tolist()
        copies = x[token]
        if self.gathered > 1:
            copies = copies.repeat_interleave(self.gathered, 0)
        parts = zip(self.experts, copies.split(loads), strict=True)
        back = torch.cat([expert(part) for expert, part in parts])
        if self.gathered > 1:
            back = back[:: self.gathered].clone()
        y = self.combine(back, weights.flatten()[order], token, x)
        return (y + sum(expert(x) for expert in self.shared)).view(shape)


class Latent(nn.Module):
    """DeepSeek's attention; the key's part with a position leaves the product of the low rank."""

    def __init__(self, spec, dropout):
        super().__init__()
        self.m, self.heads = m, a = spec.latent, spec.heads
        self.query_down = nn.Linear(spec.hidden, m.query_rank, bias=False)
        self.query_norm = nn.LayerNorm(m.query_rank, bias=False)
        self.query_up = nn.Linear(m.query_rank, a * spec.head_size, bias=False)
        down = m.key_value_rank + m.rotary_size
        self.key_value_down = nn.Linear(spec.hidden, down, bias=False)
        self.key_value_norm = nn.LayerNorm(m.key_value_rank, bias=False)
        self.key_up = nn.Linear(m.key_value_rank, a * m.plain_size, bias=False)
        self.value_up = nn.Linear(m.key_value_rank, a * m.value_size, bias=False)
        self.core = Core(dropout, False)
        self.output = nn.Linear(a * m.value_size, spec.hidden, bias=False)

    def forward(self, x, rotation):
        m = self.m
        q = self.query_up(self.query_norm(self.query_down(x))).unflatten(-1, (self.heads, -1))
        plain, turned = q.split((m.plain_size, m.rotary_size), -1)
        q = torch.cat((plain, rotate(turned, rotation)), -1)
        low, key = self.key_value_down(x).split((m.key_value_rank, m.rotary_size), -1)
        low = self.key_value_norm(low)
        key = rotate(key.unsqueeze(2), rotation).expand(-1, -1, self.heads, -1)
        k = torch.cat((self.key_up(low).unflatten(-1, (self.heads, -1)), key), -1)
        v = self.value_up(low).unflatten(-1, (self.heads, -1))
        return self.output(self.core(q, k, v).flatten(2))


class Normed(nn.Module):
    """Attention with a norm of each head's query and key, before rotation."""

    def __init__(self, attention, size):
        super().__init__()
        self.inner, self.size = attention, size
        self.query_norm, self.key_norm = (nn.LayerNorm(size, bias=False) for _ in range(2))

    def forward(self, x, rotation):
        inner = self.inner
        q, k, v = (
            f(x).unflatten(-1, (-1, self.size)) for f in (inner.query, inner.key, inner.value)
        )
        q, k = rotate(self.query_norm(q), rotation), rotate(self.key_norm(k), rotation)
        return inner.output(inner.core(q, k, v).flatten(2))


def dense(spec):
    """The spec without what the small GPT does not have; its rotary tables fit the latent part."""
    odd = {"moe": None, "latent": None, "query_key_norm": False}
    size = spec.latent.rotary_size if spec.latent else spec.head_size
    return dataclasses.replace(spec, head_size=size, **odd)


def model(spec, dropout=0.0, gathered=1):
    """A small GPT in bfloat16 with the spec's mixtures and attention."""
    torch.manual_seed(0)
    net = GPT(dense(spec), dropout)
    for i, block in enumerate(net.layers):
        if spec.is_sparse(i):
            block.ffn = Mixture(spec, gathered)
        if spec.latent:
            block.attention = Latent(spec, dropout)
        if spec.query_key_norm:
            block.attention = Normed(block.attention, spec.head_size)
    return net.to(torch.bfloat16)


NAMES = {
    r"ffn\.route\.linear.*": "ffn.input",
    r"ffn\.route\[0\]": "ffn.router_probabilities",
    r"ffn\.combine\[0\]": "ffn.router_weights",
    r"ffn\.combine\[1\]": "ffn.expert_output",
    r"ffn\.experts\.\d+\.(gate|up)\[0\]": "ffn.expert_input",
    r"ffn\.(experts|shared)\.\d+\[0\]": "ffn.activation_input",
    r"ffn\.(experts|shared)\.\d+\[1\]": "ffn.up_output",
    r"ffn\.(experts|shared)\.\d+\[2\]": "ffn.activation_output",
    r"ffn\.(experts|shared)\.\d+\.down\[0\]": "ffn.down_input",
    r"attention\.(query|key|key_value)_norm\[0\]": r"attention.\1_norm_input",
    r"attention\.(query|key|key_value)_norm\[[12]\]": r"attention.\1_norm_statistics",
    r"attention\.(query|key)_up\[0\]": r"attention.\1_up_input",
    r"attention\.(query_down|inner\.query)\[0\]": "attention.input",
    r"attention\.inner\.output\[0\]": "attention.output_input",
}
CORE = ("key", "query", "probabilities", "value", "probabilities_dropped")
NAMES |= {rf"attention\.inner\.core\[{i}\]": f"attention.{name}" for i, name in enumerate(CORE)}
NAMES[r"attention\.inner\.core\.dropout\[0\]"] = "attention.probabilities_mask"


def kept(spec, batch, tokens=None, **how):
    """Bytes that autograd keeps, by layer and by the names of `activations`."""
    tokens = torch.randint(spec.vocab, (batch, spec.sequence)) if tokens is None else tokens
    measured = measure_activations(model(spec, **how), tokens)
    layers = []
    for terms, statistics in zip(measured.layers, measured.statistics, strict=True):
        named = dict(statistics)
        for name, nbytes in terms.items():
            for pattern, term in NAMES.items():
                name = re.sub(f"^{pattern}$", term, name)
            name = name.replace("attention.key_up_input", "attention.key_value_up_input")
            named[name] = named.get(name, 0) + nbytes
        layers.append(named)
    return layers


def formula(counted, sparse, norms):
    """Terms and statistics of a mixture's layer, or of a dense one, with `norms` halved."""
    one = counted.dense if counted.dense is not None and not sparse else counted
    statistics = {
        name: nbytes // 2 if name in norms else nbytes for name, nbytes in one.statistics.items()
    }
    return {**one.terms, **statistics}


BASE = TransformerSpec(3, 24, 4, 50, 12, 40, 2, True, False, norm="layer")
BALANCED = MixtureOfExperts(4, 2, ffn_hidden=20)
SPECS = {
    "mixture": dataclasses.replace(BASE, moe=BALANCED),
    "one of eight": dataclasses.replace(BASE, moe=MixtureOfExperts(8, 1)),
    "shared": dataclasses.replace(BASE, moe=MixtureOfExperts(4, 2, shared=2, ffn_hidden=20)),
    "plain experts": dataclasses.replace(
        BASE, gated=False, bias=True, positions="rotary", moe=BALANCED
    ),
    "alternating": dataclasses.replace(
        BASE, layers=5, moe=MixtureOfExperts(4, 2, 1, 20, dense_layers=1, every=2)
    ),
    "normed": dataclasses.replace(BASE, query_key_norm=True, moe=BALANCED),
    "latent": dataclasses.replace(
        BASE,
        head_size=10,
        kv_heads=1,  # of no matter: each head has its own key
        moe=MixtureOfExperts(6, 3, 1, 20, dense_layers=1),
        latent=LatentAttention(14, 10, plain_size=6, rotary_size=4, value_size=5),
    ),
}
each = pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
# On CPU norms keep 16-bit numbers; where layer norms stand for RMS norms they keep two of them.
HALVED = ("attention.norm_statistics", "ffn.norm_statistics")


# --- activations ----------------------------------------------------------------------------------


@each
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_saved_tensors_of_a_routed_layer_equal_the_formula_term_by_term(spec, dropout):
    counted = activations(spec, 3, dropout=dropout > 0)
    layers = kept(spec, 3, dropout=dropout)
    assert len(layers) == spec.layers
    for i, found in enumerate(layers):
        assert found == formula(counted, spec.is_sparse(i), HALVED)
    terms = [formula(counted, spec.is_sparse(i), ()) for i in range(spec.layers)]
    outside = sum(counted.outside.values())
    assert counted.everything == sum(sum(each.values()) for each in terms) + outside
    small = {name for name in terms[-1] if "statistics" in name or "router" in name}
    assert counted == counted.everything - outside - sum(
        nbytes for layer in terms for name, nbytes in layer.items() if name in small
    )


def test_a_skewed_router_keeps_as_much_on_one_device():
    # All copies are on it, whoever they are for; here each token chooses the same two experts.
    spec = SPECS["mixture"]
    equal = torch.zeros(3, spec.sequence, dtype=torch.long)
    assert kept(spec, 3, equal) == kept(spec, 3)


def cut(spec, t):
    """What one of t tensor-parallel ranks builds: heads, neurons and vocabulary over t."""
    moe = spec.moe and dataclasses.replace(spec.moe, ffn_hidden=spec.moe.ffn_hidden // t)
    return dataclasses.replace(
        spec,
        heads=spec.heads // t,
        kv_heads=max(1, spec.kv_heads // t),
        ffn_hidden=spec.ffn_hidden // t,
        vocab=spec.vocab // t,
        head_size=spec.head_size,
        moe=moe,
    )


CUT = pytest.mark.parametrize("name", sorted(set(SPECS) - {"one of eight"}))


@CUT
@pytest.mark.parametrize("t", [2, 4])
def test_a_tensor_parallel_rank_keeps_what_its_cut_modules_keep(name, t):
    spec = SPECS[name]
    counted = activations(spec, 2, t, dropout=False)
    for i, found in enumerate(kept(cut(spec, t), 2)):
        assert found == formula(counted, spec.is_sparse(i), HALVED)


@CUT
@pytest.mark.parametrize("t", [1, 2])
def test_a_tensor_parallel_rank_holds_the_parameters_of_its_cut_modules(name, t):
    spec = SPECS[name]
    held = sum(p.numel() for p in model(cut(spec, t)).parameters())
    assert parameters_held(spec, t) == held
    assert (t > 1) or held == spec.parameters()


def test_with_sequence_parallelism_the_copies_to_experts_stay_whole_and_what_returns_is_cut():
    spec, t = SPECS["mixture"], 2
    rank = dataclasses.replace(cut(spec, t), sequence=spec.sequence // t)
    counted = activations(spec, 2, t, True, dropout=False)
    want = formula(counted, True, HALVED)
    for found in kept(rank, 2, gathered=t):
        assert {n: b for n, b in found.items() if n.startswith("ffn.")} == {
            n: b for n, b in want.items() if n.startswith("ffn.")
        }


@each
def test_sequence_parallelism_divides_everything_but_the_copies_sent_to_experts(spec):
    whole, split = activations(spec, 2, flash=True), activations(spec, 2, 2, True, flash=True)
    for one, part in ((whole, split), (whole.dense, split.dense))[: 1 + (whole.dense is not None)]:
        assert one.terms == {
            name: nbytes * (1 if name == "ffn.expert_input" else 2)
            for name, nbytes in part.terms.items()
        }
        assert one.statistics == {name: 2 * nbytes for name, nbytes in part.statistics.items()}


def test_the_layer_that_is_rebuilt_is_a_mixtures_where_that_is_the_larger():
    spec = SPECS["alternating"]
    counted = activations(spec, 1, recompute="full")
    rebuilt = [kind.recomputed for kind in (counted, counted.dense)]
    plain = activations(spec, 1)
    assert rebuilt == [
        kind.per_layer - 2 * spec.sequence * spec.hidden for kind in (plain, plain.dense)
    ]
    assert counted.peak == counted.everything + max(rebuilt)
    assert counted == spec.layers * 2 * spec.sequence * spec.hidden
    small = dataclasses.replace(spec, moe=dataclasses.replace(spec.moe, shared=0, ffn_hidden=1))
    wide = dataclasses.replace(small, ffn_hidden=400)
    counted = activations(wide, 1, recompute="full")
    assert counted.dense.recomputed > counted.recomputed
    assert counted.peak == counted.everything + counted.dense.recomputed
    held = fits(wide, H100, recompute="full", dropout=True).held
    assert held["activations"] == counted.peak


def test_a_count_of_two_kinds_of_layers_survives_copies():
    counted = activations(SPECS["alternating"], 1)
    for again in (copy.deepcopy(counted), pickle.loads(pickle.dumps(counted))):
        assert (again, again.terms, again.layers) == (counted, counted.terms, 2)
        assert (again.dense, again.dense.terms) == (counted.dense, counted.dense.terms)
        assert (again.dense.layers, again.peak) == (3, counted.peak)


# --- context --------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", [CATALOGUE["llama3-405b"], SPECS["alternating"], SPECS["latent"]])
@pytest.mark.parametrize("how", [{}, {"recompute": "full"}, {"dropout": False}])
def test_a_context_rank_keeps_what_a_device_keeps_of_a_sequence_as_short_as_its_part(spec, how):
    short = dataclasses.replace(spec, sequence=spec.sequence // 4)
    part = activations(spec, 2, flash=True, context_parallel=4, **how)
    alone = activations(short, 2, flash=True, **how)
    assert (part.peak, part.everything, part.terms) == (alone.peak, alone.everything, alone.terms)
    assert part.outside == alone.outside
    held = [
        fits(each, H100, s, 2, flash=True).held
        for each, s in ((spec, Split(context=4)), (short, Split()))
    ]
    assert held[0]["activations"] == held[1]["activations"]
    assert held[0]["weights"] == held[1]["weights"]  # no rank holds less of these


def test_scores_that_are_kept_are_those_of_a_ranks_queries_with_all_keys():
    spec = dataclasses.replace(BASE, heads=4)
    part, whole = (activations(spec, 3, context_parallel=c) for c in (4, 1))
    assert part.terms == {name: nbytes // 4 for name, nbytes in whole.terms.items()}


def test_activations_from_8_thousand_to_a_million_tokens_with_and_without_full_recomputation():
    # Llama 3 405B with flash attention: what one device keeps grows with the tokens it has, so 128
    # times as many tokens over 128 times as many devices take no more room.
    spec, lengths = CATALOGUE["llama3-405b"], [2**power for power in range(13, 21)]

    def on_a_device(length, context, recompute):
        longer = dataclasses.replace(spec, sequence=length)
        how = {"flash": True, "dropout": False, "context_parallel": context}
        kept = activations(longer, 1, recompute=recompute, **how)
        return kept.everything + kept.recomputed

    for recompute in ("none", "full"):
        kept = [on_a_device(length, 1, recompute) for length in lengths]
        assert kept == [kept[0] * length // 8192 for length in lengths]
        assert {on_a_device(length, length // 8192, recompute) for length in lengths} == {kept[0]}
    assert on_a_device(8192, 1, "none") / 1e9 == pytest.approx(652.1, rel=1e-3)
    assert on_a_device(8192, 1, "full") / 1e9 == pytest.approx(43.4, rel=1e-3)


# --- state ----------------------------------------------------------------------------------------


@each
def test_one_device_holds_the_state_of_a_real_step_by_bucket(spec):
    net = model(spec)
    tokens = torch.randint(spec.vocab, (2, spec.sequence))
    net(tokens, tokens).backward()
    masters = [nn.Parameter(p.detach().float()) for p in net.parameters()]
    for parameter, master in zip(net.parameters(), masters, strict=True):
        master.grad = parameter.grad.float()
    optimizer = torch.optim.AdamW(masters)
    optimizer.step()
    optimizer.zero_grad()
    state, held = measure_state(net, optimizer), fits(spec, H100).held
    assert [held[name] for name in STATE] == [getattr(state, name) for name in STATE]


def routed(name):
    return ".experts." in name


def shards(spec, split):
    """Bytes of weights, gradients and optimizer on each rank, its elements dealt out one by one.

    Rank r of data x context has part r % expert of each layer's experts, as Megatron-LM places
    them, and of what ZeRO divides each r-th element that its holders have.
    """
    own = {name: p.numel() for name, p in model(spec).named_parameters()}
    experts = spec.moe.experts // split.expert
    ranks = []
    for rank in range(split.replicas):
        place, among = divmod(rank, split.expert), split.replicas // split.expert
        ours = [
            n
            for name, n in own.items()
            if routed(name) and int(name.split(".experts.")[1].split(".")[0]) // experts == place[1]
        ]
        rest = [n for name, n in own.items() if not routed(name)]
        whole = sum(ours) + sum(rest)
        part = len(range(place[0], sum(ours), among)) + len(range(rank, sum(rest), split.replicas))
        over = [part if split.zero_stage >= stage else whole for stage in (3, 2, 1)]
        ranks.append([size * n for size, n in zip((2, 2, 12), over, strict=True)])
    return ranks


@pytest.mark.parametrize("name", ["mixture", "shared", "alternating", "latent"])
@pytest.mark.parametrize(
    ("data", "context", "expert"), [(4, 1, 2), (2, 3, 2), (1, 4, 2), (3, 2, 1)]
)
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_the_fullest_rank_holds_the_most_that_dealing_out_gives_any(
    name, data, context, expert, stage
):
    spec = SPECS[name]
    split = Split(data, context=context, expert=expert, zero_stage=stage)
    ranks = shards(spec, split)
    held = fits(spec, H100, split, flash=True).held
    assert [held[bucket] for bucket in STATE] == max(ranks)
    assert split.devices == len(ranks)


def test_experts_of_ranks_are_a_part_of_all_and_shared_ones_are_on_each():
    spec = SPECS["shared"]
    few = dataclasses.replace(spec, moe=dataclasses.replace(spec.moe, experts=2))
    router = (4 - 2) * spec.hidden * spec.layers  # a rank's router knows all experts
    assert parameters_held(spec, expert=2) == few.parameters() + router


def test_under_stage_3_it_does_not_matter_who_holds_which_expert():
    spec = CATALOGUE["mixtral-8x7b"]
    held = [
        fits(spec, H100, Split(64, zero_stage=3, expert=e), flash=True).held for e in (1, 2, 4, 8)
    ]
    for bucket in STATE:
        assert {each[bucket] for each in held} == {held[0][bucket]}
    # Without ZeRO eight ranks hold an eighth of the experts each, and all of the rest.
    split = fits(spec, H100, Split(8, expert=8), flash=True)
    experts = spec.layers * 8 * 3 * spec.hidden * spec.ffn_hidden
    assert split.held["weights"] == 2 * (spec.parameters() - experts * 7 // 8)
    assert split.divided["weights"]["expert"] == split.whole["weights"] / split.held["weights"]
    assert split.divided["weights"]["data"] == split.divided["activations"]["expert"] == 1


def test_the_context_axis_divides_activations_and_what_zero_divides():
    spec = CATALOGUE["llama3-8b"]
    verdict = fits(spec, H100, Split(2, zero_stage=1, context=4, tensor=2), flash=True)
    assert {bucket: axes["context"] for bucket, axes in verdict.divided.items()} == pytest.approx(
        {"weights": 1, "gradients": 1, "optimizer": 4, "activations": 4}
    )
    assert verdict.held["optimizer"] == 12 * -(-parameters_held(spec, 2) // 8)
    assert Split(2, 3, 5, context=7).devices == 2 * 3 * 5 * 7


@pytest.mark.parametrize("pipeline", [1, 2, 3, 6])
@pytest.mark.parametrize(
    "moe", [MixtureOfExperts(4, 2, 1, 20, dense_layers=2), MixtureOfExperts(4, 2, every=2)]
)
@pytest.mark.parametrize("vocab", [50, 4000])
def test_the_fullest_stage_of_unequal_layers_is_told_wherever_it_is(pipeline, moe, vocab):
    spec = dataclasses.replace(BASE, layers=6, moe=moe, vocab=vocab)
    net, per = model(spec), 6 // pipeline
    counted = activations(spec, 2, dropout=False)
    layers = [sum(formula(counted, spec.is_sparse(i), ()).values()) for i in range(6)]
    ends = [counted.outside.get("embedding.dropout_mask", 0), sum(counted.outside.values())]
    stages = []
    for stage in range(pipeline):
        modules = [net.layers[i] for i in range(stage * per, (stage + 1) * per)]
        kept = sum(layers[stage * per : (stage + 1) * per])
        modules += [net.embedding] * (stage == 0) + [net.norm, net.head] * (stage == pipeline - 1)
        kept += ends[0] * (stage == 0) + ends[1] * (stage == pipeline - 1)
        numel = sum(p.numel() for module in modules for p in module.parameters())
        stages.append([2 * numel, 2 * numel, 12 * numel, (pipeline - stage) * kept])
    stages[-1][3] += 2 * counted.outside["loss.log_probabilities"]  # in backward
    held = fits(spec, H100, Split(pipeline=pipeline), 2).held
    assert list(held.values()) == max(stages, key=sum)


@given(
    expert=st.sampled_from([1, 2, 4]),
    data=st.sampled_from([4, 8, 12]),
    context=st.sampled_from([1, 2, 3]),
    tensor=st.sampled_from([1, 2]),
    stage=st.integers(0, 3),
    name=st.sampled_from(sorted(SPECS)),
)
def test_all_devices_together_hold_all_state_and_none_more_than_all(
    expert, data, context, tensor, stage, name
):
    spec = SPECS[name]
    expert = expert if spec.moe.experts % expert == 0 else 1
    split = Split(data, tensor, zero_stage=stage, context=context, expert=expert)
    verdict = fits(spec, H100, split, flash=True)
    for bucket in STATE:
        assert verdict.held[bucket] <= verdict.whole[bucket]
        assert split.devices * verdict.held[bucket] >= verdict.whole[bucket]


def test_every_mixture_of_the_catalogue_has_a_verdict():
    for name, spec in CATALOGUE.items():
        if spec.moe:
            verdict = fits(
                dataclasses.replace(spec, sequence=8192),
                H100,
                Split(
                    data=64, zero_stage=1, expert=8, tensor=8, sequence_parallel=True, pipeline=8
                ),
                flash=True,
                recompute="full",
            )
            assert verdict.whole["weights"] == 2 * spec.parameters(), name
            assert verdict.held["weights"] < verdict.whole["weights"] / 64, name


def test_whether_a_mixture_needs_more_than_one_device_counts_all_experts_and_the_active_flops():
    spec = CATALOGUE["mixtral-8x7b"]
    advice = should_scale(spec, H100, tokens=1e12, days=1, utilization=0.5)
    full = fits(spec, H100, recompute="full").total
    assert advice.needs["memory"] == full / H100.memory
    seconds = 6 * spec.active_parameters() * 1e12 / (0.5 * H100.rate("bf16"))
    assert advice.needs["time"] == pytest.approx(seconds / 86_400)


# --- errors ---------------------------------------------------------------------------------------

MIXTRAL = CATALOGUE["mixtral-8x7b"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: Split(data=6, expert=4),
            "6 devices of data and context do not divide by an expert degree of 4; .* 3 and 6",
        ),
        (lambda: Split(expert=2), "1 devices of data and context .* the nearest that work: 1"),
        (lambda: Split(context=0), "context is 0"),
        (lambda: Split(expert=0), "expert is 0"),
        (
            lambda: fits(MIXTRAL, H100, Split(data=3, expert=3)),
            "8 experts do not divide by an expert degree of 3; the nearest that work: 2 and 4",
        ),
        (
            lambda: fits(BASE, H100, Split(data=2, expert=2)),
            "expert is 2; it must be 1 for a model without experts",
        ),
        (lambda: parameters_held(BASE, expert=2), "expert is 2; it must be 1"),
        (lambda: parameters_held(MIXTRAL, expert=5), "8 experts .* 5; .* 4 and 8"),
        (
            lambda: fits(BASE, H100, Split(context=5)),
            "12 tokens of a sequence do not divide by a context of 5; the nearest that work: 4 and 6",
        ),
        (
            lambda: activations(BASE, 1, context_parallel=5),
            "12 tokens of a sequence do not divide by a context_parallel of 5; .* 4 and 6",
        ),
        (
            lambda: fits(BASE, H100, Split(context=4, tensor=2, sequence_parallel=True)),
            "3 tokens of a sequence do not divide by a tensor of 2",
        ),
        (lambda: fits(MIXTRAL, H100, Split(pipeline=33)), "pipeline is 33; it must be at most 32"),
        (
            lambda: activations(dataclasses.replace(BASE, moe=MixtureOfExperts(4, 1, 0, 9)), 1, 2),
            "9 neurons of an expert do not divide by a tensor_parallel of 2",
        ),
        (
            lambda: activations(dataclasses.replace(SPECS["alternating"], ffn_hidden=41), 1, 2),
            "41 FFN neurons do not divide by a tensor_parallel of 2",
        ),
    ],
)
def test_a_degree_that_does_not_divide_is_a_sentence(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_width_that_no_layer_has_need_not_divide():
    odd = dataclasses.replace(SPECS["mixture"], ffn_hidden=41)
    assert activations(odd, 1, 2) == activations(SPECS["mixture"], 1, 2)
