"""The small GPT: its shape is the spec's, and its arithmetic is torch's."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from dlsys.model import GPT, SMALL, Attention, rotary_tables, rotate
from dlsys.transformer import CATALOGUE, TransformerSpec

LLAMA = TransformerSpec(
    layers=2, hidden=48, heads=6, vocab=99, sequence=16, kv_heads=2, gated=True, tied=False
)
SPECS = {
    "small": SMALL,
    "llama": LLAMA,
    "multi-query": dataclasses.replace(LLAMA, kv_heads=1, tied=True),
    "wide heads": dataclasses.replace(LLAMA, head_size=16, norm="layer", bias=True),
    "no positions": dataclasses.replace(SMALL, positions="none", bias=False, tied=False),
}


def tokens_for(spec, batch=2):
    generator = torch.Generator().manual_seed(0)
    return torch.randint(spec.vocab, (batch, spec.sequence), generator=generator)


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_the_model_has_exactly_the_parameters_of_its_spec(spec):
    assert sum(p.numel() for p in GPT(spec).parameters()) == spec.parameters()


@pytest.mark.parametrize(
    ("name", "layers"), [("gpt2-xl", 48), ("gpt3-175b", 2), ("llama3-405b", 2), ("megatron-1t", 2)]
)
def test_a_published_model_on_the_meta_device_has_exactly_its_parameters(name, layers):
    spec = dataclasses.replace(CATALOGUE[name], layers=layers)  # gpt2-xl whole, any two of others
    model = GPT(spec, device="meta", dtype=torch.bfloat16)
    assert sum(p.numel() for p in model.parameters()) == spec.parameters()


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_flash_attention_and_the_plain_form_give_the_same_loss_and_gradients(spec):
    tokens = tokens_for(spec)
    plain, flash = (GPT(spec, flash=flash, dtype=torch.float64) for flash in (False, True))
    losses = [model(tokens, tokens.roll(-1, 1)) for model in (plain, flash)]
    torch.testing.assert_close(losses[0], losses[1])
    for loss in losses:
        loss.backward()
    for (name, a), b in zip(plain.named_parameters(), flash.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, msg=name)


def test_grouped_queries_equal_full_heads_whose_keys_and_values_repeat():
    grouped = Attention(LLAMA, 0.0, False).double()
    full = Attention(dataclasses.replace(LLAMA, kv_heads=6), 0.0, False).double()
    full.load_state_dict(
        {
            name: w.unflatten(0, (2, 8)).repeat_interleave(3, 0).flatten(0, 1)
            if name.startswith(("key", "value"))
            else w
            for name, w in grouped.state_dict().items()
        }
    )
    x = torch.randn(2, 16, 48, dtype=torch.float64)
    torch.testing.assert_close(grouped(x), full(x))


def test_a_layer_equals_the_encoder_layer_of_torch():
    model = GPT(SMALL, dtype=torch.float64)
    block = model.layers[0]
    torch_layer = nn.TransformerEncoderLayer(
        64, 8, 256, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
    ).double()
    a, f = block.attention, block.ffn
    torch_layer.load_state_dict(
        {
            "self_attn.in_proj_weight": torch.cat([m.weight for m in (a.query, a.key, a.value)]),
            "self_attn.in_proj_bias": torch.cat([m.bias for m in (a.query, a.key, a.value)]),
            "self_attn.out_proj.weight": a.output.weight,
            "self_attn.out_proj.bias": a.output.bias,
            "linear1.weight": f.up.weight,
            "linear1.bias": f.up.bias,
            "linear2.weight": f.down.weight,
            "linear2.bias": f.down.bias,
            **{f"norm{i}.{p}": getattr(n, p) for i, n in enumerate((block.norm1, block.norm2), 1) for p in ("weight", "bias")},
        }
    )  # fmt: skip
    x = torch.randn(2, 16, 64, dtype=torch.float64)
    mask = nn.Transformer.generate_square_subsequent_mask(16, dtype=torch.float64)
    torch.testing.assert_close(block(x), torch_layer(x, src_mask=mask))


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_no_logit_sees_a_later_token(spec):
    model, tokens = GPT(spec), tokens_for(spec)
    changed = tokens.clone()
    changed[:, 10:] = (changed[:, 10:] + 1) % spec.vocab
    before, after = model(tokens), model(changed)
    torch.testing.assert_close(before[:, :10], after[:, :10])
    assert not torch.allclose(before[:, 10:], after[:, 10:])


def test_rotary_scores_depend_on_distance_alone():
    q, k = torch.randn(1, 1, 1, 8).double(), torch.randn(1, 1, 1, 8).double()

    def score(i, j):
        tables = [rotary_tables(torch.tensor([p]), 8, torch.float64) for p in (i, j)]
        return (rotate(q, tables[0]) * rotate(k, tables[1])).sum()

    torch.testing.assert_close(score(7, 3), score(104, 100), rtol=1e-5, atol=1e-6)
    assert not torch.allclose(score(7, 3), score(7, 4))


@pytest.mark.parametrize("spec", [SMALL, LLAMA], ids=["learned", "rotary"])
def test_a_part_of_the_sequence_can_be_given_its_own_positions(spec):
    model, tokens = GPT(spec), tokens_for(spec)[:, 4:8]
    there = model(tokens, positions=torch.arange(4, 8))
    # Rotary scores depend on distances alone, learned positions on where the tokens stand.
    assert torch.allclose(there, model(tokens), atol=1e-5) == (spec.positions == "rotary")


def test_a_seed_and_a_name_fix_every_parameter_and_leave_the_global_stream_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first, again, other = GPT(SMALL), GPT(SMALL), GPT(SMALL, seed=1)
    assert torch.equal(torch.rand(3), expected)
    for a, b in zip(first.parameters(), again.parameters(), strict=True):
        assert torch.equal(a, b)
    assert not torch.equal(first.embedding.weight, other.embedding.weight)
    deeper = GPT(dataclasses.replace(SMALL, layers=6))
    assert torch.equal(first.layers[2].ffn.up.weight, deeper.layers[2].ffn.up.weight)
    assert not torch.equal(first.layers[2].ffn.up.weight, first.layers[3].ffn.up.weight)


def test_dropout_acts_in_training_only_and_keeps_the_mean():
    model, tokens = GPT(SMALL, dropout=0.5), tokens_for(SMALL)
    torch.manual_seed(0)
    assert not torch.equal(model(tokens), model(tokens))
    model.eval()
    assert torch.equal(model(tokens), model(tokens))
    assert torch.equal(model(tokens), GPT(SMALL)(tokens))


def test_the_head_is_the_embedding_where_tied_also_in_16_bits():
    model = GPT(SMALL, dtype=torch.bfloat16)
    assert model.head.weight is model.embedding.weight
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}


def test_the_loss_is_the_cross_entropy_of_the_logits():
    model, tokens = GPT(SMALL), tokens_for(SMALL)
    expected = F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
    assert torch.equal(model(tokens, tokens), expected)


@pytest.mark.usefixtures("one_thread")
def test_the_small_model_learns_a_repeating_text_in_75_steps():
    model = GPT(SMALL)
    text = torch.tensor(list(b"to be or not to be, that is the question: " * 4))
    tokens = text.unfold(0, SMALL.sequence + 1, 7)[:8]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(75):
        loss = model(tokens[:, :-1], tokens[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(5.55, abs=0.1)  # ln 256: at the start all bytes are alike
    assert losses[-1] < 1.0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GPT(CATALOGUE["mixtral-8x7b"]), "moe="),
        (lambda: GPT(CATALOGUE["palm-540b"]), "parallel=True"),
        (lambda: GPT(CATALOGUE["chinchilla-70b"]), "positions='relative'"),
        (lambda: GPT(dataclasses.replace(LLAMA, head_size=7)), "head_size of 7 is odd"),
        (lambda: GPT(SMALL, dropout=1.0), "dropout is 1.0"),
        (
            lambda: GPT(SMALL)(torch.zeros(1, 65, dtype=torch.long)),
            "65 tokens are more than the 64",
        ),
    ],
)
def test_what_cannot_be_built_or_run_is_a_sentence(make, message):
    with pytest.raises(ValueError, match=message):
        make()
