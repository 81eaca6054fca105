"""Specs against a plain transformer built from them, and against published counts."""

import dataclasses
from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from dlsys.transformer import CATALOGUE, LatentAttention, MixtureOfExperts, TransformerSpec

# The reference: an ordinary transformer of torch's own modules, which knows no formula. It reads
# the spec's shape only. Its layout of attention and feed-forward network is that of the papers.


def make_norm(spec, size):
    if spec.norm == "rms":
        return nn.RMSNorm(size)
    return nn.LayerNorm(size, bias=spec.bias)


class Attention(nn.Module):
    def __init__(self, spec):
        super().__init__()
        self.spec, d = spec, spec.head_size
        self.query = nn.Linear(spec.hidden, spec.heads * d, bias=spec.bias)
        self.key = nn.Linear(spec.hidden, spec.kv_heads * d, bias=spec.bias)
        self.value = nn.Linear(spec.hidden, spec.kv_heads * d, bias=spec.bias)
        self.output = nn.Linear(spec.heads * d, spec.hidden, bias=spec.bias)
        self.norms = nn.ModuleList(nn.RMSNorm(d) for _ in range(2 * spec.query_key_norm))
        if spec.positions == "relative":
            self.position = nn.Linear(spec.hidden, spec.heads * d, bias=False)
            self.content_bias = nn.Parameter(torch.zeros(spec.heads, 1, d))
            self.position_bias = nn.Parameter(torch.zeros(spec.heads, 1, d))

    def forward(self, x):
        (b, s, _), a, d = x.shape, self.spec.heads, self.spec.head_size
        q = self.query(x).view(b, s, a, d).transpose(1, 2)
        k, v = (
            part(x).view(b, s, -1, d).transpose(1, 2).repeat_interleave(a // self.spec.kv_heads, 1)
            for part in (self.key, self.value)
        )
        if self.norms:
            q, k = (norm(y) for norm, y in zip(self.norms, (q, k), strict=True))
        if self.spec.positions == "relative":
            distances = torch.zeros(s, self.spec.hidden, device=x.device)
            r = self.position(distances).view(s, a, d).transpose(0, 1)
            scores = (q + self.content_bias) @ k.mT + (q + self.position_bias) @ r.mT
        else:
            scores = q @ k.mT
        return self.output((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, s, a * d))


class Latent(nn.Module):
    def __init__(self, spec):
        super().__init__()
        m, self.spec = spec.latent, spec
        self.query_down = nn.Linear(spec.hidden, m.query_rank, bias=spec.bias)
        self.query_norm = nn.RMSNorm(m.query_rank)
        query = spec.heads * (m.plain_size + m.rotary_size)
        self.query_up = nn.Linear(m.query_rank, query, bias=spec.bias)
        self.down = nn.Linear(spec.hidden, m.key_value_rank, bias=spec.bias)
        self.rotary_key = nn.Linear(spec.hidden, m.rotary_size, bias=spec.bias)
        self.key_value_norm = nn.RMSNorm(m.key_value_rank)
        self.key_up = nn.Linear(m.key_value_rank, spec.heads * m.plain_size, bias=spec.bias)
        self.value_up = nn.Linear(m.key_value_rank, spec.heads * m.value_size, bias=spec.bias)
        self.output = nn.Linear(spec.heads * m.value_size, spec.hidden, bias=spec.bias)

    def forward(self, x):
        (b, s, _), a = x.shape, self.spec.heads

        def heads(y):
            return y.view(b, s, a, -1).transpose(1, 2)

        low = self.key_value_norm(self.down(x))
        rotary = self.rotary_key(x).unsqueeze(1).expand(b, a, s, -1)
        q = heads(self.query_up(self.query_norm(self.query_down(x))))
        k = torch.cat([heads(self.key_up(low)), rotary], -1)
        weights = (q @ k.mT).softmax(-1)
        return self.output((weights @ heads(self.value_up(low))).transpose(1, 2).reshape(b, s, -1))


class FeedForward(nn.Module):
    def __init__(self, spec, neurons):
        super().__init__()
        self.up = nn.Linear(spec.hidden, neurons, bias=spec.bias)
        self.gate = nn.Linear(spec.hidden, neurons, bias=spec.bias) if spec.gated else None
        self.down = nn.Linear(neurons, spec.hidden, bias=spec.bias)

    def forward(self, x):
        return self.down(
            self.up(x).relu() if self.gate is None else self.up(x) * self.gate(x).relu()
        )


class Experts(nn.Module):
    """Every expert gets its fair share of the tokens, the first ones: enough to count."""

    def __init__(self, spec):
        super().__init__()
        self.moe, neurons = spec.moe, spec.moe.ffn_hidden or spec.ffn_hidden
        self.router = nn.Linear(spec.hidden, self.moe.experts, bias=False)
        self.experts = nn.ModuleList(FeedForward(spec, neurons) for _ in range(self.moe.experts))
        self.shared = nn.ModuleList(FeedForward(spec, neurons) for _ in range(self.moe.shared))

    def forward(self, x):
        tokens = x.reshape(-1, x.shape[-1])
        visits, left = divmod(len(tokens) * self.moe.experts_per_token, self.moe.experts)
        assert not left, "choose a size at which the experts' loads are equal"
        share = self.router(tokens).softmax(-1)
        parts = [
            e(tokens[:visits]).mean() * share[:, i : i + 1] for i, e in enumerate(self.experts)
        ]
        return (sum(parts) + sum(e(tokens) for e in self.shared) + tokens).view_as(x)


class Layer(nn.Module):
    def __init__(self, spec, dense):
        super().__init__()
        self.parallel = spec.parallel
        self.first = make_norm(spec, spec.hidden)
        self.second = None if spec.parallel else make_norm(spec, spec.hidden)
        self.attention = Latent(spec) if spec.latent else Attention(spec)
        self.ffn = FeedForward(spec, spec.ffn_hidden) if dense else Experts(spec)

    def forward(self, x):
        if self.parallel:
            y = self.first(x)
            return x + self.attention(y) + self.ffn(y)
        x = x + self.attention(self.first(x))
        return x + self.ffn(self.second(x))


class Reference(nn.Module):
    def __init__(self, spec):
        super().__init__()
        self.spec = spec
        self.tokens = nn.Embedding(spec.vocab, spec.hidden)
        learned = spec.positions == "learned"
        self.positions = nn.Embedding(spec.sequence, spec.hidden) if learned else None
        self.types = nn.Embedding(spec.token_types, spec.hidden) if spec.token_types else None
        dense = [not spec.is_sparse(layer) for layer in range(spec.layers)]
        self.layers = nn.ModuleList(Layer(spec, each) for each in dense)
        self.embedding_norm = make_norm(spec, spec.hidden) if spec.embedding_norm else None
        self.norm = make_norm(spec, spec.hidden)
        self.pooler = nn.Linear(spec.hidden, spec.hidden) if spec.pooler else None
        self.head = None if spec.tied else nn.Linear(spec.hidden, spec.vocab, bias=False)

    def forward(self, batch):
        x = self.tokens(torch.zeros(batch, self.spec.sequence, dtype=torch.long, device="meta"))
        if self.embedding_norm is not None:
            x = self.embedding_norm(x)
        for layer in self.layers:
            x = layer(x)
        x = self.norm(x)
        pooled = self.pooler(x[:, 0]).sum() if self.pooler else 0.0
        return (x @ (self.tokens if self.head is None else self.head).weight.T).sum() + pooled


def reference(spec):
    with torch.device("meta"):
        return Reference(spec)


def counted(model, batch, backward=False):
    with FlopCounterMode(display=False) as flops:
        loss = model(batch)
        if backward:
            loss.backward()
    return flops.get_total_flops()


SMALL = {
    "gpt": TransformerSpec(2, 12, 3, 29, 8),
    "llama": TransformerSpec(3, 16, 4, 40, 8, kv_heads=2, gated=True, tied=False),
    "wide heads": TransformerSpec(1, 12, 2, 10, 4, 20, 1, head_size=8, positions="none"),
    "palm": TransformerSpec(2, 12, 3, 20, 8, kv_heads=1, gated=True, parallel=True, norm="layer"),
    "bert": TransformerSpec(2, 12, 3, 29, 8, post_norm=True, token_types=2, pooler=True),
    "mixture": TransformerSpec(2, 8, 2, 9, 8, 24, gated=True, moe=MixtureOfExperts(4, 2)),
    "alternating": TransformerSpec(
        *(5, 8, 2, 9, 8, 24),
        gated=True,
        moe=MixtureOfExperts(4, 1, shared=1, ffn_hidden=6, dense_layers=1, every=2),
    ),
    "qwen": TransformerSpec(
        *(2, 12, 4, 9, 8, 24, 2),
        gated=True,
        head_size=5,
        query_key_norm=True,
        moe=MixtureOfExperts(4, 2, ffn_hidden=6),
    ),
    "chinchilla": TransformerSpec(2, 12, 3, 20, 8, norm="rms", positions="relative"),
    "deepseek": TransformerSpec(
        3,
        16,
        4,
        11,
        8,
        gated=True,
        tied=False,
        moe=MixtureOfExperts(8, 2, shared=1, ffn_hidden=6, dense_layers=1),
        latent=LatentAttention(10, 6, plain_size=4, rotary_size=2, value_size=5),
    ),
}
small = pytest.mark.parametrize("spec", SMALL.values(), ids=SMALL)
published = pytest.mark.parametrize("name", CATALOGUE)


@small
def test_parameters_are_those_of_a_plain_transformer(spec):
    assert spec.parameters() == sum(p.numel() for p in reference(spec).parameters())


@small
@pytest.mark.parametrize("batch", [1, 4])
def test_forward_flops_are_what_torch_counts(spec, batch):
    assert spec.forward_flops(batch) == counted(reference(spec), batch)


@small
def test_a_training_step_costs_three_forward_passes(spec):
    torch_counts = counted(reference(spec), 4, backward=True)
    if spec.positions == "relative":
        # The fixed encodings of distances need no gradient, so one product per layer is not run.
        torch_counts += spec.operations(4)["position"]
    assert spec.training_flops(4) == torch_counts


@published
def test_a_published_model_has_the_parameters_and_flops_of_a_plain_transformer(name):
    # Up to the first mixture there is every kind; published totals hold the number of layers.
    moe = CATALOGUE[name].moe
    spec = dataclasses.replace(CATALOGUE[name], layers=moe.dense_layers + moe.every if moe else 2)
    model = reference(spec)
    assert spec.parameters() == sum(p.numel() for p in model.parameters())
    assert spec.forward_flops(1) == counted(model, 1)


@st.composite
def specs(draw):
    kv_heads, groups, size = (draw(st.integers(1, 3)) for _ in range(3))
    heads = kv_heads * groups
    return TransformerSpec(
        draw(st.integers(1, 3)),
        heads * draw(st.integers(1, 3)),
        heads,
        draw(st.integers(1, 50)),
        draw(st.integers(1, 9)),
        draw(st.none() | st.integers(1, 40)),
        kv_heads,
        draw(st.booleans()),
        draw(st.booleans()),
        head_size=draw(st.sampled_from([None, size])),
        bias=draw(st.none() | st.booleans()),
        norm=draw(st.sampled_from([None, "layer", "rms"])),
        positions=draw(st.sampled_from([None, "learned", "rotary", "relative", "none"])),
        parallel=draw(st.booleans()),
        pooler=draw(st.booleans()),
        embedding_norm=draw(st.booleans()),
        token_types=draw(st.integers(0, 2)),
    )


@settings(max_examples=40, deadline=None)
@given(specs(), st.integers(1, 3))
def test_any_shape_has_the_parameters_and_flops_of_a_plain_transformer(spec, batch):
    model = reference(spec)
    assert spec.parameters() == sum(p.numel() for p in model.parameters())
    assert spec.forward_flops(batch) == counted(model, batch)


@given(specs(), st.sampled_from(["layers", "vocab", "ffn_hidden"]))
def test_more_of_anything_means_more_parameters_and_flops(spec, name):
    larger = dataclasses.replace(spec, **{name: getattr(spec, name) + 1})
    assert larger.parameters() > spec.parameters()
    assert larger.forward_flops(1) > spec.forward_flops(1)


@given(specs(), st.integers(1, 5))
def test_the_layers_and_the_ends_add_up_to_the_whole_model(spec, batch):
    layers = [spec.operations(batch, layer) for layer in range(spec.layers)]
    whole = spec.operations(batch)
    ends = whole["head"] + whole.get("pooler", 0)
    assert sum(sum(layer.values()) for layer in layers) + ends == spec.forward_flops(batch)


@published
def test_the_parts_add_up_to_the_total(name):
    spec = CATALOGUE[name]
    assert sum(spec.parameter_counts().values()) == spec.parameters()
    assert spec.active_parameters() <= spec.parameters()
    assert (spec.active_parameters() < spec.parameters()) == (spec.moe is not None)
    assert spec.name
    assert len(spec.source) > 20


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        # As counted in the released weights.
        ("gpt2-small", 124_439_808),
        ("gpt2-xl", 1_557_611_200),
        ("bloom-176b", 176_247_271_424),
        ("llama1-7b", 6_738_415_616),
        ("llama1-13b", 13_015_864_320),
        ("llama1-33b", 32_528_943_616),
        ("llama1-65b", 65_285_660_672),
        ("mpt-7b", 6_649_286_656),
        ("mpt-30b", 29_957_200_896),
        ("llama2-7b", 6_738_415_616),
        ("llama2-13b", 13_015_864_320),
        ("llama2-70b", 68_976_648_192),
        ("llama3-8b", 8_030_261_248),
        ("llama3-70b", 70_553_706_496),
        ("llama3-405b", 405_853_388_800),
        ("mixtral-8x7b", 46_702_792_704),
        ("qwen3-30b-a3b", 30_532_122_624),
        ("qwen3-235b-a22b", 235_093_634_560),
        # Released with 871,932,416 parameters more, in both: what sees images.
        ("llama4-scout", 108_641_793_536 - 871_932_416),
        ("llama4-maverick", 401_583_781_376 - 871_932_416),
        ("bert-large", 335_141_888),
    ],
)
def test_parameters_equal_those_of_the_released_weights(name, parameters):
    assert CATALOGUE[name].parameters() == parameters


@pytest.mark.parametrize(
    ("name", "parameters", "printed_to"),
    [
        # Brown et al. 2020, table D.1.
        ("gpt3-small", 125e6, 1e6),
        ("gpt3-medium", 356e6, 1e6),
        ("gpt3-large", 760e6, 1e6),
        ("gpt3-xl", 1320e6, 10e6),
        ("gpt3-2.7b", 2650e6, 10e6),
        ("gpt3-6.7b", 6660e6, 10e6),
        ("gpt3-13b", 12850e6, 10e6),
        ("gpt3-175b", 174600e6, 10e6),
        # The models' names.
        ("megatron-22b", 22e9, 1e9),
        ("megatron-175b", 175e9, 1e9),
        ("megatron-530b", 530e9, 1e9),
        ("megatron-1t", 1.0e12, 0.1e12),
        # Chowdhery et al. 2022, table 1; with the norms' 2 million weights it is 540.356.
        ("palm-540b", 540.35e9, 0.02e9),
        ("chinchilla-70b", 70e9, 1e9),
        ("opt-175b", 175e9, 1e9),
        ("deepseek-v3", 671e9, 1e9),
    ],
)
def test_parameters_round_to_the_published_figure(name, parameters, printed_to):
    assert abs(CATALOGUE[name].parameters() - parameters) <= printed_to / 2


def test_a_mixture_uses_the_published_part_of_its_parameters():
    assert CATALOGUE["mixtral-8x7b"].active_parameters() / 1e9 == pytest.approx(12.9, abs=0.05)
    # Yang et al. 2025, table 2 and the model cards; Meta's model cards say 17 billion of both.
    assert CATALOGUE["qwen3-30b-a3b"].active_parameters() / 1e9 == pytest.approx(3.3, abs=0.06)
    assert round(CATALOGUE["qwen3-235b-a22b"].active_parameters() / 1e9) == 22
    assert round(CATALOGUE["llama4-scout"].active_parameters() / 1e9) == 17
    assert round(CATALOGUE["llama4-maverick"].active_parameters() / 1e9) == 17
    # Its report says 37 billion, which is so with the head but without the embedding, a look-up;
    # with both it is 37.6.
    deepseek = CATALOGUE["deepseek-v3"]
    embedding = deepseek.parameter_counts()["token_embedding"]
    assert round((deepseek.active_parameters() - embedding) / 1e9) == 37


def test_of_alternating_layers_each_second_is_a_mixture_from_the_second_on():
    # As the released configuration lists them: `moe_layers` 1, 3, ... 47.
    spec = CATALOGUE["llama4-maverick"]
    assert [i for i in range(48) if spec.is_sparse(i)] == list(range(1, 48, 2))
    assert (spec.sparse_layers(), spec.sparse_layers(0, 3), spec.sparse_layers(3, 8)) == (24, 1, 3)
    later = SMALL["alternating"]
    assert [later.is_sparse(i) for i in range(5)] == [False, False, True, False, True]
    assert CATALOGUE["llama3-8b"].sparse_layers() == 0


def test_gpt2_xl_is_12_l_h_squared_and_its_embeddings():
    parts = CATALOGUE["gpt2-xl"].parameter_counts()
    blocks = 12 * 48 * 1600**2
    assert blocks / 1e9 == pytest.approx(1.4746, abs=5e-5)
    # Biases are all that 12 L h^2 leaves out of the blocks.
    assert parts["attention"] + parts["ffn"] == blocks + 48 * (3 + 1 + 4 + 1) * 1600
    embeddings = parts["token_embedding"] + parts["position_embedding"]
    assert (blocks + embeddings) / 1e9 == pytest.approx(1.5566, abs=5e-5)


def test_a_gpt2_xl_layer_and_step_cost_what_they_should():
    # Batch 32, sequence 1,024. Leaving out the output projection gives 2,060 G and 296.67 T.
    spec = CATALOGUE["gpt2-xl"]
    layer = spec.operations(32, layer=0)
    assert layer["qkv"] / 1e9 == pytest.approx(503.3, abs=0.05)
    assert layer["scores"] / 1e9 == pytest.approx(107.4, abs=0.05)
    assert (layer["ffn_up"] + layer["ffn_down"]) / 1e9 == pytest.approx(1342.2, abs=0.05)
    assert sum(layer.values()) / 1e9 == pytest.approx(2228.0, abs=0.05)
    partial = sum(layer.values()) - layer["output"]
    assert partial / 1e9 == pytest.approx(2060.2, abs=0.05)
    assert 3 * 48 * partial / 1e12 == pytest.approx(296.67, abs=0.005)
    assert 3 * 48 * sum(layer.values()) / 1e12 == pytest.approx(320.83, abs=0.005)
    assert spec.training_flops(32) / 1e12 == pytest.approx(336.64, abs=0.005)
    # 6 N D leaves out attention itself: 306.2 T; with N rounded to 1.5 billion, 294.9.
    estimate = spec.approximate_training_flops(32 * 1024)
    assert estimate / 1e12 == pytest.approx(306.2, abs=0.05)
    assert estimate * 1.5e9 / spec.parameters() / 1e12 == pytest.approx(294.9, abs=0.05)


def test_scores_and_weighted_sum_reach_the_feed_forward_network_at_four_times_the_width():
    wide = dataclasses.replace(CATALOGUE["gpt2-xl"], sequence=4 * 1600).operations(1, layer=0)
    assert wide["scores"] + wide["weighted_sum"] == wide["ffn_up"] + wide["ffn_down"]


@pytest.mark.parametrize(
    ("name", "flops"),
    [
        ("gpt3-small", 2.25e20),
        ("gpt3-2.7b", 4.77e21),
        ("gpt3-13b", 2.31e22),
        ("gpt3-175b", 3.14e23),
    ],
)
def test_gpt3_on_300_billion_tokens_costs_6_n_d(name, flops):
    # Brown et al. 2020, table D.1, which rounds the parameters first.
    assert CATALOGUE[name].approximate_training_flops(300e9) == pytest.approx(flops, rel=3e-3)


def test_llama3_405b_on_15_6_trillion_tokens_costs_3_8e25():
    # Grattafiori et al. 2024, section 3.2.1.
    spec = CATALOGUE["llama3-405b"]
    assert spec.approximate_training_flops(15.6e12) == pytest.approx(3.8e25, rel=5e-3)


def test_palm_used_46_percent_of_its_machine():
    # Chowdhery et al. 2022, section 4.1 and table 3: 238,300 tokens/s on 6,144 TPU v4.
    spec, peak = CATALOGUE["palm-540b"], 6144 * 275e12
    assert 238_300 * spec.training_flops_per_token() / peak == pytest.approx(0.462, abs=5e-4)
    assert spec.approximate_training_flops(238_300) / peak == pytest.approx(0.457, abs=5e-4)


@pytest.mark.parametrize("name", ["megatron-22b", "megatron-175b", "megatron-530b", "megatron-1t"])
def test_flops_with_recomputation_are_megatrons_formula(name):
    # Narayanan et al. 2021, equation 3: 96 B s l h^2 (1 + s / 6h + V / 16 l h).
    spec, batch = CATALOGUE[name], 8
    s, l, h, v = spec.sequence, spec.layers, spec.hidden, spec.vocab  # noqa: E741
    recomputed = spec.forward_flops(batch) - spec.operations(batch)["head"]
    formula = 96 * batch * s * l * h**2 * (1 + s / (6 * h) + v / (16 * l * h))
    assert spec.training_flops(batch) + recomputed == pytest.approx(formula, rel=1e-12)


class Config(NamedTuple):
    model: str
    config: dict


_LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "intermediate_size": 14336,
    "tie_word_embeddings": False,
}
CONFIGS = [
    Config(
        "gpt2-xl",
        {
            "model_type": "gpt2",
            "n_layer": 48,
            "n_embd": 1600,
            "n_head": 25,
            "vocab_size": 50257,
            "n_positions": 1024,
        },
    ),
    Config("llama3-8b", _LLAMA),
    Config(
        "llama2-7b",
        _LLAMA
        | {
            "num_key_value_heads": None,
            "vocab_size": 32000,
            "max_position_embeddings": 4096,
            "intermediate_size": 11008,
        },
    ),
    Config(
        "mixtral-8x7b",
        _LLAMA
        | {
            "model_type": "mixtral",
            "vocab_size": 32000,
            "max_position_embeddings": 32768,
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
        },
    ),
    Config(
        "bert-large",
        {
            "model_type": "bert",
            "num_hidden_layers": 24,
            "hidden_size": 1024,
            "num_attention_heads": 16,
            "vocab_size": 30522,
            "max_position_embeddings": 512,
            "intermediate_size": 4096,
            "type_vocab_size": 2,
        },
    ),
    Config(
        "deepseek-v3",
        {
            "model_type": "deepseek_v3",
            "num_hidden_layers": 61,
            "hidden_size": 7168,
            "num_attention_heads": 128,
            "num_key_value_heads": 128,
            "vocab_size": 129280,
            "max_position_embeddings": 4096,
            "intermediate_size": 18432,
            "q_lora_rank": 1536,
            "kv_lora_rank": 512,
            "qk_nope_head_dim": 128,
            "qk_rope_head_dim": 64,
            "v_head_dim": 128,
            "n_routed_experts": 256,
            "n_shared_experts": 1,
            "num_experts_per_tok": 8,
            "moe_intermediate_size": 2048,
            "first_k_dense_replace": 3,
            "tie_word_embeddings": False,
        },
    ),
    Config(
        "qwen3-235b-a22b",
        _LLAMA
        | {
            "model_type": "qwen3_moe",
            "num_hidden_layers": 94,
            "num_attention_heads": 64,
            "num_key_value_heads": 4,
            "head_dim": 128,
            "vocab_size": 151936,
            "max_position_embeddings": 32768,
            "intermediate_size": 12288,
            "moe_intermediate_size": 1536,
            "num_experts": 128,
            "num_experts_per_tok": 8,
            "decoder_sparse_step": 1,
            "mlp_only_layers": [],
        },
    ),
    Config(
        "llama4-maverick",
        _LLAMA
        | {
            "model_type": "llama4_text",
            "num_hidden_layers": 48,
            "hidden_size": 5120,
            "num_attention_heads": 40,
            "head_dim": 128,
            "vocab_size": 202048,
            "max_position_embeddings": 1_048_576,
            "intermediate_size": 8192,
            "intermediate_size_mlp": 16384,
            "num_local_experts": 128,
            "num_experts_per_tok": 1,
            "interleave_moe_layer_step": 2,
        },
    ),
]


@pytest.mark.parametrize(("model", "config"), CONFIGS, ids=[c.model for c in CONFIGS])
def test_a_released_configuration_gives_the_catalogued_shape(model, config):
    assert TransformerSpec.from_config(config) == CATALOGUE[model]


@pytest.mark.parametrize(("model", "config"), CONFIGS, ids=[c.model for c in CONFIGS])
def test_a_configuration_without_a_needed_key_names_it(model, config):
    optional = {"num_key_value_heads", "tie_word_embeddings", "head_dim", "mlp_only_layers"}
    for key in set(config) - optional:
        with pytest.raises(ValueError, match=f"no '{key}'"):
            TransformerSpec.from_config({k: v for k, v in config.items() if k != key})


def test_of_a_model_that_sees_the_part_for_text_is_read():
    model, config = CONFIGS[-1]
    seeing = {"model_type": "llama4", "text_config": config, "vision_config": {}}
    assert TransformerSpec.from_config(seeing) == CATALOGUE[model]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mlp_only_layers": [0]}, r"mlp_only_layers = \[0\] is not supported; it must be \[\]"),
        ({"model_type": "llama4"}, "no 'text_config', which a llama4 config needs"),
        ({"model_type": "lama"}, "no supported model_type 'lama'; did you mean 'llama'"),
        ({"attention_bias": True}, "attention_bias = True is not supported"),
        ({"num_hidden_layers": 0}, "layers is 0"),
    ],
)
def test_a_configuration_that_is_not_supported_says_which_key(change, message):
    with pytest.raises(ValueError, match=message):
        TransformerSpec.from_config(_LLAMA | change)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: TransformerSpec(2, 8.5, 2, 9, 4), "hidden is 8.5"),
        (lambda: TransformerSpec(2, 10, 3, 9, 4), "10 hidden do not divide by 3 heads"),
        (
            lambda: TransformerSpec(2, 8, 4, 9, 4, kv_heads=3),
            "4 heads do not divide by 3 key-value",
        ),
        (lambda: TransformerSpec(2, 8, 4, 9, 4, norm="batch"), "no norm 'batch'"),
        (lambda: TransformerSpec(2, 8, 4, 9, 4, positions="rotery"), "did you mean 'rotary'"),
        (
            lambda: TransformerSpec(2, 8, 4, 9, 4, moe=MixtureOfExperts(4, 1, dense_layers=3)),
            "3 dense",
        ),
        (lambda: MixtureOfExperts(4, 5), "cannot visit 5 of 4 experts"),
        (lambda: MixtureOfExperts(4, 1, every=0), "every is 0"),
        (
            lambda: dataclasses.replace(SMALL["deepseek"], query_key_norm=True),
            "no head's query or key",
        ),
        (lambda: LatentAttention(0, 4, 4, 4, 4), "query_rank is 0"),
        (lambda: CATALOGUE["gpt2-xl"].sparse_layers(0, 49), "stop is 49; it must be at most 48"),
        (lambda: CATALOGUE["gpt2-xl"].operations(0), "batch is 0"),
        (lambda: CATALOGUE["gpt2-xl"].operations(1, layer=48), "no layer 48; layers are 0 to 47"),
    ],
)
def test_impossible_shapes_are_refused_in_a_sentence(wrong, message):
    with pytest.raises(ValueError, match=message):
        wrong()


def test_an_unknown_model_names_the_nearest():
    with pytest.raises(KeyError, match="no model 'llama-3-8b'; did you mean 'llama3-8b'"):
        CATALOGUE["llama-3-8b"]


def test_a_spec_survives_a_change_of_one_field():
    longer = dataclasses.replace(CATALOGUE["llama3-8b"], sequence=131072)
    assert longer.parameters() == CATALOGUE["llama3-8b"].parameters()
    assert longer.ffn_hidden == 14336
