"""The memory wall and the walls of time and cost: formulas, and what no hardware can do."""

from __future__ import annotations

import copy
import dataclasses
import functools
import html
import math
import pickle
import re
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.checkpoint import checkpoint

from dlsys import memory_wall
from dlsys.hardware import DEVICES
from dlsys.memory_wall import (
    ImpossibleError,
    Recipe,
    activations,
    draw,
    explorer,
    layer,
    measure_activations,
    measure_state,
    model_state,
)
from dlsys.memory_wall.steps import BUCKETS, draw_steps, measure_steps
from dlsys.model import GPT, SMALL
from dlsys.precision import BF16, MixedPrecision
from dlsys.transformer import CATALOGUE, TransformerSpec
from dlsys.units import DAY, GIGA, YEAR

TINY_LLAMA = TransformerSpec(
    layers=2, hidden=48, heads=6, vocab=99, sequence=16, kv_heads=2, gated=True, tied=False
)


def mixed(model, optimizer=torch.optim.AdamW, **how):
    return MixedPrecision(model.parameters(), optimizer, BF16, **how)


# --- model state ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("recipe", "each"),
    [
        ("fp32-adam", (4, 4, 8, 16)),
        ("mixed-adamw", (2, 2, 12, 16)),
        ("pure-16bit", (2, 2, 8, 12)),
        ("all-16bit", (2, 2, 4, 8)),
        ("mixed-adamw-fp32-gradients", (2, 4, 12, 18)),
        ("mixed-adamw-both-gradients", (2, 6, 12, 20)),
        ("momentum", (4, 4, 4, 12)),
        ("mixed-momentum", (2, 2, 8, 12)),
        ("sgd", (4, 4, 0, 8)),
    ],
)
def test_a_recipe_keeps_so_many_bytes_for_each_parameter(recipe, each):
    state = model_state(1000, recipe)
    assert (state.weights, state.gradients, state.optimizer, state.total) == tuple(
        1000 * part for part in each
    )
    assert memory_wall.RECIPES[recipe].total == each[-1]
    assert memory_wall.RECIPES[recipe].why


def test_forgetting_a_bucket_gives_the_10_or_12_bytes_of_wrong_tables():
    # Tables in circulation give 10, 12 and 16 bytes a parameter for the same mixed-precision Adam.
    state = model_state(13e9)
    assert state.total == 208e9
    assert state.total - state.master == 156e9  # no master copy: right only for pure 16-bit weights
    assert state.total - state.master - state.gradients == 130e9  # and no gradients: never right
    assert model_state(13e9, "pure-16bit").total == 156e9


def test_mixed_precision_does_not_shrink_model_state():
    gpt2_xl = 1.5e9
    assert model_state(gpt2_xl, "fp32-adam").total == model_state(gpt2_xl).total == 24e9
    assert model_state(gpt2_xl).moments == 12e9  # Adam's moments alone, not all the static state


def test_adam_moments_of_100_million_and_7_billion_parameters():
    assert model_state(100e6, "fp32-adam").optimizer == 800e6
    assert model_state(7e9, "fp32-adam").optimizer == 56e9


def test_8bit_moments_are_a_quarter_of_fp32_ones_and_not_a_half():
    full, small = model_state(7e9).moments, model_state(7e9, "8bit-adam").moments
    assert full / small == pytest.approx(4, rel=2e-3)
    assert small == 2 * 7e9 + 2 * 4 * math.ceil(7e9 / 2048)  # int8 elements, FP32 scale per block


def test_zero_stages_reproduce_figure_1_of_the_zero_paper():
    totals = [model_state(7.5e9, zero_stage=z, data_parallel=64).total / 1e9 for z in range(4)]
    assert totals == pytest.approx([120, 31.4, 16.6, 1.9], abs=0.05)


@pytest.mark.parametrize(
    ("recipe", "each"),
    [("pure-16bit", (12, 5.0, 3.25, 1.5)), ("mixed-adamw", (16, 5.5, 3.75, 2.0))],
)
def test_zero_bytes_per_parameter_on_8_devices(recipe, each):
    for stage, expected in enumerate(each):
        assert model_state(8000, recipe, stage, 8).total == 8000 * expected


def test_zero_savings_named_4_and_8_are_limits_that_8_devices_do_not_reach():
    def saving(stage, n):
        return 16 * 10**9 / model_state(10**9, zero_stage=stage, data_parallel=n).total

    assert saving(1, 8) == pytest.approx(2.91, abs=0.005)
    assert saving(2, 8) == pytest.approx(4.27, abs=0.005)
    assert saving(1, 10**6) == pytest.approx(4, rel=1e-4)
    assert saving(2, 10**6) == pytest.approx(8, rel=1e-4)


def test_70b_under_zero_3_on_8_devices_is_105_gb_on_each_device_not_in_all():
    assert model_state(70e9, "pure-16bit", 3, 8).total == 105e9
    assert model_state(70e9, "mixed-adamw", 3, 8).total == 140e9


def test_13b_under_zero_2_and_3_on_8_devices():
    assert model_state(13e9, "pure-16bit", 2, 8).total == 42.25e9
    assert model_state(13e9, "pure-16bit", 3, 8).total == 19.5e9
    assert model_state(13e9, "mixed-adamw", 2, 8).total == 48.75e9
    assert model_state(13e9, "mixed-adamw", 3, 8).total == 26e9


def test_175b_split_over_tensor_and_pipeline_ranks_and_zero_2():
    part = 175e9 / (8 * 4)
    state = model_state(part, "pure-16bit", 2, 8)
    assert (state.weights, state.optimizer, state.gradients) == (
        10.9375e9,
        5.46875e9,
        1.3671875e9,
    )
    assert model_state(part, "mixed-adamw", 2, 8).total == 20.5078125e9


def test_a_share_that_is_not_whole_is_rounded_up_to_a_parameter():
    assert model_state(70e9 / 96) == model_state(math.ceil(70e9 / 96))
    assert model_state(0.5) == model_state(1)
    # Of 10 parameters on 4 devices the fullest has 3.
    assert model_state(10, zero_stage=3, data_parallel=4) == model_state(3)


def test_mixed_precision_saves_36_percent_of_gpt2_xls_published_memory_and_not_half():
    # Published activations of 65 GB in FP32, 32.6 with mixed precision, 8 with recomputation too.
    fp32, mixed = (model_state(1.5e9, recipe).total for recipe in ("fp32-adam", "mixed-adamw"))
    totals = [fp32 + 65e9, mixed + 32.6e9, mixed + 8e9]
    assert totals == [89e9, 56.6e9, 32e9]
    assert 1 - totals[1] / totals[0] == pytest.approx(0.364, abs=5e-4)


def test_a_recipe_of_ones_own_is_counted_as_a_named_one():
    own = Recipe(2, 2, 4, 1, "FP8 moment, one scale for 100", scale_block=100)
    state = model_state(1001, own)
    assert (state.weights, state.gradients, state.optimizer) == (2002, 2002, 4004 + 1001 + 4 * 11)
    # As the scales add 4 / 100 of a byte: 9.04 bytes a parameter.
    assert memory_wall.largest_model(904e6, own) == 10**8
    assert Recipe(*[np.int64(1)] * 4, "NumPy", np.int64(1)) == Recipe(1, 1, 1, 1, "NumPy", 1)


@pytest.mark.parametrize("field", ["weights", "gradients", "master", "moments", "scale_block"])
def test_a_bucket_of_a_recipe_may_be_empty_and_not_owed(field):
    empty = dict.fromkeys(("weights", "gradients", "master", "moments", "scale_block"), 0)
    assert Recipe(**empty, why="nothing").total == 0
    with pytest.raises(ValueError, match=f"^{field} is -1; .* at least 0"):
        Recipe(**empty | {field: -1}, why="a debt")
    part = Recipe(**empty | {field: np.int8(100)}, why="a NumPy number")
    assert type(getattr(part, field)) is int  # whose sums do not overflow


def test_devices_divide_nothing_without_a_stage_and_a_stage_nothing_on_one_device():
    assert model_state(8000, data_parallel=8).total == model_state(8000, zero_stage=3).total
    assert model_state(8000, zero_stage=3).total == 16 * 8000


def test_fewest_devices_for_the_state():
    assert model_state(70e9).total == 1.12e12
    assert memory_wall.devices_needed(13e9, "mixed-adamw", 80e9) == 3
    assert [memory_wall.devices_needed(80 * 10**9 + more) for more in (0, 1)] == [16, 17]
    sizes = (175e9, 70e9, 405e9)
    assert [memory_wall.devices_needed(p, "pure-16bit", 80e9) for p in sizes] == [27, 11, 61]
    assert [memory_wall.devices_needed(p, "mixed-adamw", 80e9) for p in sizes] == [35, 14, 81]


def test_one_node_holds_the_state_of_40_billion_parameters_so_10_billion_do_not_need_two():
    assert memory_wall.largest_model(80e9, "mixed-adamw", devices=8) == 40e9
    assert memory_wall.largest_model(80e9, "pure-16bit", devices=8) == pytest.approx(
        53.3e9, rel=1e-3
    )


@given(
    parameters=st.integers(1, 10**12),
    degree=st.integers(1, 10**5),
    recipe=st.sampled_from(list(memory_wall.RECIPES)),
)
def test_higher_zero_stages_never_keep_more_and_all_shards_cover_the_state(
    parameters, degree, recipe
):
    totals = [model_state(parameters, recipe, z, degree).total for z in range(4)]
    assert totals == sorted(totals, reverse=True)
    assert totals[3] * degree >= model_state(parameters, recipe).total - 8 * degree


@given(memory=st.floats(1e6, 1e13), recipe=st.sampled_from(list(memory_wall.RECIPES)))
def test_the_largest_model_fits_and_a_tenth_more_does_not(memory, recipe):
    largest = memory_wall.largest_model(memory, recipe)
    assert memory_wall.devices_needed(largest - 2048, recipe, memory) == 1
    assert memory_wall.devices_needed(int(largest * 1.1), recipe, memory) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0,), "parameters is 0"),
        ((float("nan"),), "parameters is nan"),
        (("7B",), r"parameters is '7B'; pass .* spec\.parameters\(\)"),
        ((SMALL,), r"TransformerSpec.*; pass .* spec\.parameters\(\)"),
        ((7e9, None), "recipe is None; it must be a Recipe"),
        ((10, "mixed-adamw", 4), "stages 0"),
        ((10, "mixed-adamw", 1, 0), "data_parallel is 0"),
    ],
)
def test_impossible_state_is_a_sentence(arguments, message):
    with pytest.raises(ValueError, match=message):
        model_state(*arguments)


def test_an_unknown_recipe_offers_the_nearest():
    with pytest.raises(KeyError, match="did you mean 'mixed-adamw'"):
        model_state(10, "mixed-adam")
    with pytest.raises(ValueError, match=r"^device_memory in bytes is 0; "):
        memory_wall.devices_needed(10, device_memory=0)
    with pytest.raises(ValueError, match=r"^device_memory is 80 bytes, less .* are 80e9 bytes"):
        memory_wall.devices_needed(10, device_memory=80)
    with pytest.raises(ValueError, match=r"^devices is 0; "):
        memory_wall.largest_model(80e9, devices=0)
    with pytest.raises(ValueError, match=r"recipe is 80000000000\.0; .*'mixed-adamw'"):
        memory_wall.devices_needed(13e9, 80e9)


# --- activations ----------------------------------------------------------------------------------

GPT3 = CATALOGUE["gpt3-175b"]
GPT2_XL = CATALOGUE["gpt2-xl"]
LLAMA_7B = TransformerSpec(32, 4096, 32, 32000, 2048)  # the shape, in GPT-2's manner


def test_a_gpt2_layer_keeps_34_sbh_and_5_a_s_squared_b():
    for spec, b in ((GPT2_XL, 32), (GPT3, 1), (LLAMA_7B, 1)):
        s, h, a = spec.sequence, spec.hidden, spec.heads
        kept = activations(spec, b)
        assert kept.per_layer == 34 * s * b * h + 5 * a * s * s * b
        assert kept == kept.total == spec.layers * kept.per_layer
        assert activations(spec, b, flash=True).per_layer == 34 * s * b * h
        assert activations(spec, b, recompute="full").per_layer == 2 * s * b * h


def test_gpt2_xl_with_batch_32_keeps_287_gb_and_not_41():
    kept = activations(GPT2_XL, 32)
    assert kept.per_layer == pytest.approx(5.9769e9, rel=1e-4)
    assert kept == pytest.approx(286.89e9, rel=1e-4)
    assert activations(GPT2_XL, 32, flash=True) == pytest.approx(85.6e9, rel=1e-3)
    assert activations(GPT2_XL, 32, recompute="full") == pytest.approx(5.03e9, rel=1e-3)
    # The published 40.7 GB is what is left when only these are counted: four tensors of the
    # attention, the one that leaves the FFN's first product, and a rounded 10 MB for norms.
    attention = ("query", "key", "value", "output_input")
    few = sum(kept.terms[f"attention.{term}"] for term in attention)
    few += kept.terms["ffn.activation_input"]
    assert few == pytest.approx(2 * 419e6, rel=2e-3)
    assert 48 * (few + 10e6) == pytest.approx(40.7e9, rel=2e-3)
    forgotten = sum(n for name, n in kept.terms.items() if "probabilities" in name)
    assert forgotten == pytest.approx(4.194e9, rel=1e-3)


def test_a_7b_model_on_2048_tokens_keeps_30_gb_and_not_2():
    assert activations(LLAMA_7B, 1) == pytest.approx(30.60e9, rel=1e-3)
    assert activations(LLAMA_7B, 1, flash=True) == pytest.approx(9.127e9, rel=1e-3)
    # One 16-bit tensor a layer, the formula given with the "2 GB", is 0.54 GB.
    assert 32 * activations(LLAMA_7B, 1).terms["attention.input"] == pytest.approx(0.54e9, rel=0.01)


def test_a_square_root_of_the_parameters_is_not_the_width():
    # b s sqrt(N / 12) x 2 bytes is meant as one tensor b s h; but sqrt(N / 12) is h sqrt(L).
    guess = 8 * 2048 * math.sqrt(175e9 / 12) * 2
    assert guess == pytest.approx(3.96e9, rel=1e-3)
    assert math.sqrt(175e9 / 12) == pytest.approx(GPT3.hidden * math.sqrt(GPT3.layers), rel=0.01)
    assert activations(GPT3, 8) == pytest.approx(2203e9, rel=1e-3)


@pytest.mark.parametrize(
    ("options", "gigabytes"),
    [
        ({}, 2.869),
        ({"tensor_parallel": 8}, 0.579),
        ({"tensor_parallel": 8, "sequence_parallel": True}, 0.359),
        ({"tensor_parallel": 8, "sequence_parallel": True, "recompute": "selective"}, 0.107),
        ({"tensor_parallel": 8, "recompute": "full"}, 0.0503),
        ({"tensor_parallel": 8, "sequence_parallel": True, "recompute": "full"}, 0.00629),
    ],
)
def test_one_gpt3_layer_by_what_is_split_and_recomputed(options, gigabytes):
    assert activations(GPT3, 1, **options).per_layer == pytest.approx(gigabytes * 1e9, rel=2e-3)


@pytest.mark.parametrize("name", ["22b", "175b", "530b", "1t"])
@pytest.mark.parametrize("recompute", ["none", "selective"])
@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_the_equations_of_the_paper_for_its_four_models(name, recompute, sequence_parallel):
    spec, t, b = CATALOGUE[f"megatron-{name}"], 8, 1
    s, h, a = spec.sequence, spec.hidden, spec.heads
    # Formula against formula: the chapters that split layers count these on running ranks.
    linear = 34 / t if sequence_parallel else 10 + 24 / t
    scores = 5 * a * s / (h * t) if recompute == "none" else 0
    kept = activations(spec, b, t, sequence_parallel, recompute)
    assert kept.per_layer == pytest.approx(s * b * h * (linear + scores), rel=1e-12)


def test_selective_recomputation_saves_70_percent_of_gpt3_and_65_of_530b():
    # Korthikanti et al., section 5: "70 % and 65 %" for these two.
    for name, saved in (("175b", 0.70), ("530b", 0.65)):
        spec = CATALOGUE[f"megatron-{name}"]
        part = activations(spec, 1, 8, True, "selective") / activations(spec, 1, 8, True)
        assert 1 - part == pytest.approx(saved, abs=0.005)


@given(
    a=st.integers(1, 8),
    groups=st.integers(1, 4),
    d=st.integers(1, 8),
    s=st.integers(1, 33),
    b=st.integers(1, 5),
    t=st.integers(1, 8),
    gated=st.booleans(),
    options=st.fixed_dictionaries(
        {"recompute": st.sampled_from(["none", "selective", "full"]), "flash": st.booleans()}
    ),
)
def test_sequence_parallelism_divides_everything_and_nothing_is_negative(
    a, groups, d, s, b, t, gated, options
):
    spec = TransformerSpec(
        3, a * groups * d * t, a * groups * t, 7, s * t, 8 * t, a * t, gated=gated, head_size=d
    )
    whole = activations(spec, b, **options)
    split = activations(spec, b, t, True, **options)
    only_tensor = activations(spec, b, t, **options)
    assert split.per_layer * t == whole.per_layer
    assert split <= only_tensor <= whole
    assert set(split.terms) == set(whole.terms)
    assert all(n > 0 for n in whole.terms.values())
    assert activations(spec, 2 * b, **options) == 2 * whole
    assert split.recomputed * t == whole.recomputed


def test_the_layer_being_recomputed_still_has_its_scores_unless_attention_is_flash():
    # One layer of Llama 2 7B at 131,072 tokens: 1.10 TB of probabilities, whatever was kept.
    longer = dataclasses.replace(CATALOGUE["llama2-7b"], sequence=131_072)
    for recompute in ("selective", "full"):
        kept = activations(longer, 1, recompute=recompute, dropout=False)
        assert kept.recomputed > 1.09e12
        assert kept.peak == kept.everything + kept.recomputed
        assert kept.recomputed > 2 * kept.outside["loss.log_probabilities"] == kept.of_loss
        assert activations(longer, 1, recompute=recompute, flash=True).recomputed < 0.1e12
    assert activations(longer, 1).recomputed == 0
    s, a = GPT3.sequence, GPT3.heads
    assert activations(GPT3, 3, recompute="selective").recomputed == 5 * a * s * s * 3


def test_key_value_heads_are_copied_where_there_are_more_devices_than_heads():
    # Llama 2 70B has 8 of them and PaLM one: each device still holds a whole one.
    for name, t in (("llama2-70b", 16), ("palm-540b", 8)):
        spec = CATALOGUE[name]
        kept, whole = activations(spec, 1, t).terms, activations(spec, 1).terms
        assert kept["attention.key"] == 2 * spec.sequence * spec.head_size
        assert kept["attention.query"] * t == whole["attention.query"]


def test_an_activation_count_survives_copies():
    kept = activations(GPT2_XL, 1)
    for again in (copy.deepcopy(kept), pickle.loads(pickle.dumps(kept))):
        assert (again, again.terms, again.layers) == (kept, kept.terms, kept.layers)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: activations(GPT3, 1, 5),
            "96 heads do not divide by a tensor_parallel of 5.*4 and 6",
        ),
        (
            lambda: activations(dataclasses.replace(GPT3, kv_heads=8), 1, 6),
            "8 key-value heads .* 6.*: 4 and 8",
        ),
        (
            lambda: activations("gpt3-175b", 1),
            r"must be a TransformerSpec such as CATALOGUE\['gpt3-175b'\]",
        ),
        (lambda: activations(GPT3, 1, 0), "tensor_parallel is 0"),
        (lambda: activations(GPT3, 0), "batch is 0"),
        (lambda: activations(GPT3, 1, 3, True), "2048 tokens of a sequence do not divide"),
        (lambda: activations(GPT3, 1, recompute="some"), "recompute is 'some'"),
        (lambda: activations(CATALOGUE["chinchilla-70b"], 1), "relative positions"),
    ],
)
def test_impossible_activations_are_a_sentence(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# --- measured -------------------------------------------------------------------------------------


def step(model, optimizer, batch=2):
    tokens = torch.zeros(batch, model.spec.sequence, dtype=torch.long)
    model(tokens, tokens).backward()
    optimizer.step()


@pytest.mark.parametrize(
    ("recipe", "make", "dtype"),
    [
        ("fp32-adam", torch.optim.AdamW, torch.float32),
        ("all-16bit", torch.optim.AdamW, torch.bfloat16),
        ("momentum", lambda p: torch.optim.SGD(p, 0.1, momentum=0.9), torch.float32),
        ("sgd", lambda p: torch.optim.SGD(p, 0.1), torch.float32),
    ],
)
@pytest.mark.parametrize("spec", [SMALL, TINY_LLAMA], ids=["tied", "untied"])
def test_real_tensors_hold_what_the_recipe_says(spec, recipe, make, dtype):
    model = GPT(spec, dtype=dtype)
    optimizer = make(model.parameters())
    step(model, optimizer)
    measured, formula = measure_state(model, optimizer), model_state(spec.parameters(), recipe)
    for bucket in ("weights", "gradients", "master", "moments", "total"):
        assert getattr(measured, bucket) == getattr(formula, bucket)
    # Adam also counts its steps: one FP32 scalar for each parameter tensor.
    adam = make is torch.optim.AdamW
    assert measured.steps == (4 * len(list(model.parameters())) if adam else 0)


@pytest.mark.parametrize(
    ("recipe", "make"),
    [
        ("mixed-adamw", mixed),
        (
            "mixed-momentum",
            functools.partial(mixed, optimizer=torch.optim.SGD, lr=0.1, momentum=0.9),
        ),
    ],
)
def test_mixed_precision_really_takes_as_many_bytes_as_fp32(recipe, make):
    model = GPT(SMALL)
    training = make(model)
    step(model, training)
    measured, formula = measure_state(model, training.optimizer), model_state(220_544, recipe)
    for bucket in ("weights", "gradients", "master", "moments", "optimizer", "total"):
        assert getattr(measured, bucket) == getattr(formula, bucket)


def test_frozen_and_shared_parameters_are_counted_as_they_are():
    model = GPT(SMALL)
    model.positions.requires_grad_(False)
    frozen = model.positions.weight.numel()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
    step(model, optimizer)
    measured = measure_state(model, optimizer)
    assert measured.weights == 4 * SMALL.parameters()
    assert measured.gradients == 4 * (SMALL.parameters() - frozen)
    assert measured.moments == 8 * (SMALL.parameters() - frozen)


def measured_and_formula(spec, batch, dropout=0.1, flash=False, device="cpu"):
    model = GPT(spec, dropout, flash, device=device, dtype=torch.bfloat16)
    tokens = torch.zeros(batch, spec.sequence, dtype=torch.long, device=device)
    return measure_activations(model, tokens, tokens), activations(
        spec, batch, flash=flash, dropout=dropout > 0
    )


@pytest.mark.parametrize("b", [1, 3])
@pytest.mark.parametrize("s", [1, 16, 33])
@pytest.mark.parametrize(("h", "a"), [(48, 6), (48, 1), (40, 5), (16, 16)])
def test_saved_tensors_equal_the_formula_term_by_term(b, s, h, a):
    spec = TransformerSpec(2, h, a, 50, s)
    measured, formula = measured_and_formula(spec, b)
    assert all(terms == formula.terms for terms in measured.layers)
    assert measured.total == formula == 2 * (34 * s * b * h + 5 * a * s * s * b)


@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("kv_heads", [1, 2, 6])
@pytest.mark.parametrize("head_size", [4, 8])
def test_grouped_queries_gated_ffn_and_no_dropout_equal_the_formula_too(
    dropout, kv_heads, head_size
):
    spec = dataclasses.replace(TINY_LLAMA, kv_heads=kv_heads, head_size=head_size, norm="layer")
    measured, formula = measured_and_formula(spec, 3, dropout)
    assert measured.layers == (formula.terms,) * 2
    table = 2 * 2 * spec.sequence * head_size // 2  # cosines and sines, once for all layers
    assert measured.outside["positions.rotation"] == table


def test_flash_attention_keeps_no_scores_but_a_number_for_each_query():
    spec = dataclasses.replace(TINY_LLAMA, norm="layer")
    measured, formula = measured_and_formula(spec, 3, dropout=0.0, flash=True)
    assert measured.layers == (formula.terms,) * 2
    log_sum_exp = 4 * spec.heads * spec.sequence * 3
    assert all(s["attention.log_sum_exp"] == log_sum_exp for s in measured.statistics)
    assert formula.statistics["attention.log_sum_exp"] == log_sum_exp


def test_a_layer_of_gpt3_is_counted_on_the_meta_device_with_all_that_is_outside_it():
    spec = dataclasses.replace(GPT3, layers=1)
    measured, formula = measured_and_formula(spec, 1, device="meta")
    assert measured.layers == (formula.terms,)
    assert measured.total == pytest.approx(2.869e9, rel=1e-3)
    # On GPUs (and meta) a layer norm keeps two FP32 numbers a row beside the 34.
    assert measured.statistics == (formula.statistics,)
    weight = {"loss.weight": 4}  # the FP32 number of targets, by which the mean divides
    assert measured.outside == formula.outside | weight
    assert measured.everything == formula.everything + 4


def test_norms_on_cpu_keep_their_statistics_in_16_bits():
    measured, formula = measured_and_formula(SMALL, 2)
    for kept in measured.statistics:
        assert {name: 2 * n for name, n in kept.items()} == formula.statistics


def test_an_rms_norm_without_a_fused_kernel_keeps_two_fp32_tensors_for_one_of_16_bits():
    # torch fuses RMSNorm on CUDA alone; elsewhere it computes, and keeps, x and the result in FP32.
    measured, formula = measured_and_formula(TINY_LLAMA, 2)
    norms = ("attention.norm_input", "ffn.norm_input")
    for kept in measured.layers:
        assert {name: n // 4 if name in norms else n for name, n in kept.items()} == formula.terms


def test_checkpointing_every_layer_keeps_each_layers_input_alone():
    model = GPT(SMALL, dropout=0.1, dtype=torch.bfloat16)
    for block in model.layers:
        block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)
    measured = measure_activations(model, torch.zeros(2, 64, dtype=torch.long))
    formula = activations(SMALL, 2, recompute="full")
    assert measured.layers == (formula.terms,) * 4


def test_selective_recomputation_keeps_queries_keys_and_values_and_no_scores():
    plain, recomputing = (GPT(SMALL, dropout=0.1, dtype=torch.bfloat16) for _ in range(2))
    for block in recomputing.layers:
        core = block.attention.core
        core.forward = functools.partial(checkpoint, core.forward, use_reentrant=False)
    tokens = torch.zeros(2, 64, dtype=torch.long)
    everything, kept = (measure_activations(model, tokens) for model in (plain, recomputing))
    formula = activations(SMALL, 2, recompute="selective")
    assert kept.layers == (formula.terms,) * 4
    assert sum(kept.layers[0].values()) == 278_528
    # What backward rebuilds at once is what one plain layer kept beyond that.
    assert (everything.total - kept.total) / 4 == formula.recomputed
    full = activations(SMALL, 2, recompute="full")
    assert everything.total / 4 - full.per_layer == full.recomputed


def test_counting_changes_no_result_and_leaves_no_hook():
    model = GPT(SMALL)
    tokens = torch.arange(64).unsqueeze(0)
    before = model(tokens, tokens)
    measure_activations(model, tokens, tokens)
    assert torch.equal(model(tokens, tokens), before)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_gradients_do_not_grow_with_the_batch_and_activations_do():
    sizes = {}
    for batch in (1, 4):
        model = GPT(SMALL, dtype=torch.bfloat16)
        tokens = torch.zeros(batch, SMALL.sequence, dtype=torch.long)
        model(tokens, tokens).backward()
        kept = measure_activations(model, tokens, tokens).total
        sizes[batch] = measure_state(model).gradients, kept
    assert sizes[4] == (sizes[1][0], 4 * sizes[1][1])
    assert sizes[1][0] == 2 * SMALL.parameters()


def test_the_first_convolution_of_resnet_50_keeps_103_mb_for_32_images_and_not_3():
    conv = torch.nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False, device="meta")
    one, many = (conv(torch.empty(b, 3, 224, 224, device="meta")).nbytes for b in (1, 32))
    assert one == pytest.approx(3.2e6, rel=0.01)  # the published 3 MB are of one image
    assert many == 102_760_448
    # And its 25.6 million weights and gradients are 102 MB each, not 200 MB and 4 GB.
    state = model_state(25.6e6, "sgd")
    assert state.weights == state.gradients == 102.4e6


def test_formulas_load_without_torch_and_numpy():
    code = (
        "import sys, dlsys.memory_wall as m; m.model_state(1); assert 'explore' in m.__all__; "
        "sys.exit(bool({'torch', 'numpy', 'matplotlib'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# --- time and cost --------------------------------------------------------------------------------


def test_gpt3_on_one_h100_takes_ten_years_at_peak():
    flops = 6 * 175e9 * 300e9
    seconds = memory_wall.training_seconds(flops, DEVICES["h100-sxm"].flops["bf16"])
    assert seconds == pytest.approx(3.185e8, rel=1e-3)
    assert seconds / YEAR == pytest.approx(10.1, abs=0.05)


def test_7b_on_2_trillion_tokens_takes_1966_days_of_one_h100():
    seconds = memory_wall.training_seconds(6 * 7e9 * 2e12, 989e12, 0.5)
    assert seconds / DAY == pytest.approx(1966.07, abs=0.01)


def test_gpt3_takes_thousands_of_a100_days_not_one_thousand():
    days = memory_wall.training_seconds(3.14e23, 312e12) / DAY
    assert days == pytest.approx(11_648, abs=1)
    assert memory_wall.training_seconds(3.14e23, 312e12, 0.4) / DAY == pytest.approx(29_121, abs=1)
    # The claim of 1,000 GPU-days needs 11.6 times the peak of every GPU.
    for devices, claimed, several in ((1, "3.63", "1 device"), (2, "7.27", "2 devices")):
        with pytest.raises(ImpossibleError) as refused:
            memory_wall.utilization(3.14e23, 1000 * DAY / devices, 312e12, devices)
        assert str(refused.value) == (
            f"{claimed} PFLOP/s is 11.6 times the peak of {several} at 312 TFLOP/s each; "
            f"it takes at least {12 * devices} of them, or 11.6 times as long."
        )
    assert memory_wall.utilization(312e12, 1, 312e12) == 1  # the peak itself breaks no law


def test_1e24_flops_on_one_h100_take_decades_not_3000_years():
    year = 365 * DAY
    assert memory_wall.training_seconds(1e24, 989e12) / year == pytest.approx(32.0, abs=0.1)
    assert memory_wall.training_seconds(1e24, 989e12, 0.5) / year == pytest.approx(64.1, abs=0.1)
    # "1e15 FLOP a day" would be a hundred-thousandth of the peak; at that pace, 2.7 million years.
    slow = memory_wall.utilization(1e15, DAY, 989e12)
    assert slow == pytest.approx(1.17e-5, rel=0.01)
    assert memory_wall.training_seconds(1e24, 989e12, slow) / year == pytest.approx(
        2.74e6, rel=0.01
    )


def test_the_bill_of_llama_2_70b():
    flops = 6 * 70e9 * 2e12
    one = memory_wall.training_seconds(flops, 989e12, 0.5)
    assert flops == 8.4e23
    assert one == pytest.approx(1.6987e9, rel=1e-4)
    assert one / YEAR == pytest.approx(53.8, abs=0.05)
    many = memory_wall.training_seconds(flops, 989e12, 0.5, devices=1000)
    assert many / DAY == pytest.approx(19.66, abs=0.005)
    bill = memory_wall.rent_or_buy(memory_wall.gpu_hours(many, 1000), 3.0, 1000, 30_000.0)
    assert bill.rent == pytest.approx(1.4156e6, rel=1e-4)  # 19.66 days, not 20
    assert bill.buy == 30e6
    assert bill.break_even_runs == pytest.approx(21.19, abs=0.005)


def test_a_gpu_at_thousands_of_dollars_an_hour_would_pay_for_itself_within_two_days():
    assert memory_wall.rent_or_buy(1, 1000.0, 1, 30_000.0).break_even_hours == 30
    assert memory_wall.rent_or_buy(1, 3.0, 1, 30_000.0).break_even_hours == 10_000


def test_waste_is_relative_to_what_is_achievable():
    lost = memory_wall.waste(0.35, 0.50, 10e6)
    assert (lost.fraction, lost.dollars) == (pytest.approx(0.30), pytest.approx(3e6))
    assert lost.more_training == pytest.approx(3 / 7)
    assert memory_wall.waste(0.40, 0.50, 1).fraction == pytest.approx(0.2)  # not 60 %
    # Who reaches what is achievable, the peak even, loses nothing.
    assert memory_wall.waste(1, 1, 10e6) == memory_wall.waste(0.5, 0.5, 10e6)
    assert memory_wall.waste(1, 1, 10e6).dollars == 0


def test_fewer_devices_and_accumulation_do_not_save_device_hours():
    flops = 50_000 * 512 * 9.2e12
    wide = memory_wall.training_seconds(flops, 125e12, 0.4, devices=32)
    narrow = memory_wall.training_seconds(flops, 125e12, 0.4, devices=8)
    for seconds, devices in ((wide, 32), (narrow, 8)):
        assert memory_wall.gpu_hours(seconds, devices) == pytest.approx(1308.4, abs=0.1)


@pytest.mark.parametrize(
    ("device", "number_format", "samples_per_second", "devices", "times_peak"),
    [
        ("v100", "fp32", 18, 1, 10.6),
        ("v100", "fp32", 90, 1, 53),
        ("v100", "fp16", 45, 1, 3.3),
        ("v100", "fp16", 220, 1, 16),
        ("a100-80", "bf16", 165, 1, 4.9),
        ("h100-sxm", "fp8", 380, 1, 1.8),
        ("v100", "fp16", 380, 8, 3.5),
    ],
)
def test_published_throughputs_above_peak_are_refused(
    device, number_format, samples_per_second, devices, times_peak
):
    per_sample = 6 * 1.5e9 * 1024
    peak = DEVICES[device].flops[number_format]
    fraction = per_sample * samples_per_second / peak / devices
    assert fraction == pytest.approx(times_peak, rel=0.02)
    with pytest.raises(ImpossibleError, match=f"{fraction:.3g} times the peak"):
        memory_wall.utilization(per_sample, 1 / samples_per_second, peak, devices)


def test_a_forward_pass_of_80_ms_needs_ten_v100_and_a_step_of_180_more_than_8():
    """By the FLOPs printed beside them, for 32 sequences on GPT-2 XL: of its layers alone, without
    their output projections."""
    of_layer, peak = GPT2_XL.operations(32, layer=0), DEVICES["v100"].rate("fp16")
    forward = 48 * (sum(of_layer.values()) - of_layer["output"])
    assert forward / 0.080 == pytest.approx(1236e12, rel=1e-3)
    with pytest.raises(ImpossibleError, match=r"9\.89 times the peak .* at least 10 of them"):
        memory_wall.utilization(forward, 0.080, peak)
    assert memory_wall.utilization(forward, 0.080, peak, devices=20) < 0.5
    for seconds, devices in ((0.220, 11), (0.180, 14)):
        with pytest.raises(ImpossibleError, match=f"of 8 devices .* at least {devices} of them"):
            memory_wall.utilization(3 * forward, seconds, peak, devices=8)


def test_the_energy_of_a_7b_run_on_1024_a100():
    seconds = memory_wall.training_seconds(6 * 7e9 * 1e12, 150e12, devices=1024)
    assert seconds / 3600 == pytest.approx(75.95, abs=0.01)
    used = memory_wall.energy(seconds, 1024, 400.0, hosts=128, host_watts=200.0, pue=1.0)
    assert used.kwh == pytest.approx(33_055.6, abs=0.1)
    assert used.kwh / 900 == pytest.approx(36.7, abs=0.05)
    # Half the time is half the energy, exactly; 1 % is 0.13 t of carbon dioxide, not "dozens of cars".
    half = memory_wall.energy(seconds / 2, 1024, 400.0, hosts=128, host_watts=200.0, pue=1.0)
    assert half.kwh == pytest.approx(used.kwh / 2)
    assert half.carbon_kg(0.4) == pytest.approx(6611, abs=1)
    assert 0.01 * used.carbon_kg(0.4) == pytest.approx(132, abs=1)
    # That run is at 48 % of peak already: 30 % and 60 % are other runs.
    assert memory_wall.utilization(150e12, 1.0, 312e12) == pytest.approx(0.48, abs=0.005)


def test_275_megawatt_hours_from_32_v100_in_two_weeks_are_refused():
    claimed = memory_wall.Energy(275_000 * 3.6e6)
    with pytest.raises(ImpossibleError) as refused:
        memory_wall.check_energy(claimed, 14 * DAY, 32, 300.0, pue=1.0)
    assert str(refused.value) == (
        "275,000 kWh is 85.3 times the 3,226 kWh that 32 devices of 300 W can draw in 336 hours at "
        "a PUE of 1; each would draw 25,577 W."
    )
    possible = memory_wall.energy(14 * DAY, 32, 300.0, pue=1.0)
    assert possible.kwh == pytest.approx(3226, abs=0.5)
    assert possible.dollars(0.10) == pytest.approx(323, abs=0.5)
    assert possible.carbon_kg(0.45) == pytest.approx(1452, abs=0.5)
    assert memory_wall.check_energy(possible, 14 * DAY, 32, 300.0, pue=1.0) == 1


def test_the_building_takes_its_share_on_top_and_hosts_that_are_not_there_take_nothing():
    # Two devices of 400 W and a host of 200 W are 1 kW: in an hour, 1 kWh and 1.25 from the grid.
    assert memory_wall.energy(3600, 2, 400, hosts=1, host_watts=200, pue=1).kwh == 1
    drawn = memory_wall.energy(3600, 2, 400, hosts=1, host_watts=200, pue=1.25)
    assert drawn.kwh == 1.25
    alone = memory_wall.energy(3600, 2, 400, pue=1.25)
    assert alone.kwh == 1
    assert memory_wall.energy(3600, 2, 400, host_watts=200, pue=1.25) == alone
    assert memory_wall.energy(3600, 2, 400, hosts=1, pue=1.25) == alone
    # At the most that the devices can draw a claim still stands; beside it, not.
    assert memory_wall.energy(3600, 2, 400, pue=1.25, tdp=400) == alone
    hosts = {"hosts": 1, "host_watts": 200}
    assert memory_wall.check_energy(drawn, 3600, 2, 400, **hosts, pue=1.25) == 1
    for without in ({}, {"hosts": 1}, {"host_watts": 200}):
        assert memory_wall.check_energy(alone, 3600, 2, 400, **without, pue=1.25) == 1
        with pytest.raises(ImpossibleError, match=r"is 1\.25 times the 1 kWh"):
            memory_wall.check_energy(drawn, 3600, 2, 400, **without, pue=1.25)


def test_what_does_nothing_costs_nothing_and_one_device_is_meant_where_none_is_said():
    assert memory_wall.training_seconds(0, 1e12) == memory_wall.utilization(0, 1, 1e12) == 0
    assert memory_wall.gpu_hours(0) == memory_wall.waste(0.5, 0.5, 0).dollars == 0
    assert memory_wall.energy(0, 8, 400, pue=1).kwh == memory_wall.energy(1, 8, 0, pue=1).kwh == 0
    assert memory_wall.gpu_hours(7200) == 2


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: memory_wall.training_seconds(1e20, 1e12, 1.01), "above 1"),
        (
            lambda: memory_wall.waste(0.6, 0.5, 1),
            "A utilization of 0.6 where 0.5 is achievable: the first is at most the second, and",
        ),
        (lambda: memory_wall.waste(0.6, 1.5, 1), r"second, and that at most 1\.$"),
        (lambda: memory_wall.energy(1, 1, 400, pue=0.9), "below 1"),
        (lambda: memory_wall.energy(1, 1, 450, pue=1.1, tdp=400), "450 W is above the 400 W"),
    ],
)
def test_impossible_time_and_cost_is_a_sentence(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# --- drawn and explored ---------------------------------------------------------------------------


def test_lines_of_activations_are_the_formula():
    spec = CATALOGUE["llama3-8b"]
    (axes,) = draw.draw_activations(spec, 2, (512, 8192), device=DEVICES["h100-sxm"]).axes
    drawn = [list(line.get_ydata()) for line in axes.lines[:3]]
    for values, recompute in zip(drawn, ("none", "selective", "full"), strict=True):
        for value, s in zip(values, (512, 8192), strict=True):
            expected = activations(dataclasses.replace(spec, sequence=s), 2, recompute=recompute)
            assert value * 1e9 == pytest.approx(expected)
    assert axes.get_xlabel().endswith("(tokens)")
    assert "GB" in axes.get_ylabel()


def test_the_explorers_lines_include_the_layer_being_recomputed():
    choice = explorer.Choice(model="gpt2-small", sequence=131072, saving="recompute attention")
    # Its twelve layers keep little, but one layer's scores alone are 412 GB.
    assert choice.activations().recomputed == pytest.approx(412e9, rel=2e-3)
    assert "does not fit" in choice.summary()
    assert "412 GB of it one layer being recomputed" in choice.summary()
    _, curves = choice.figure().axes
    lines = {line.get_label(): line.get_ydata()[-1] for line in curves.lines}
    for saving in explorer.SAVING:
        peak = dataclasses.replace(choice, saving=saving).activations().peak
        assert lines[saving] * 1e9 == pytest.approx(peak)


def test_the_explorer_draws_its_rows_and_nothing_else():
    rows = explorer.Choice(model="gpt2-small", sequence=1024).rows()
    bars, curves = draw.draw_choice(rows, "flash attention", 512, DEVICES["a100-80"]).axes
    drawn = {line.get_label(): list(line.get_ydata()) for line in curves.lines}
    for saving in explorer.SAVING:
        mine = [row for row in rows if row.saving == saving]
        assert [row.sequence for row in mine] == list(explorer.SEQUENCES)
        assert drawn[saving] == [row.activations / GIGA for row in mine]
    (chosen,) = (row for row in rows if row[:2] == ("flash attention", 512))
    widths = [bar.get_width() for bar in bars.patches if bar.get_width()]
    assert sum(widths) == pytest.approx(2 * sum(chosen[2:]) / GIGA)
    assert list(curves.lines[-1].get_ydata()) == [chosen.activations / GIGA]


def test_every_picture_names_its_units():
    specs = [CATALOGUE["gpt2-xl"], CATALOGUE["llama3-8b"]]
    device = DEVICES["a100-80"]
    figures = [
        draw.draw_walls(specs, device),
        draw.draw_activations(specs[0], 1, device=device),
        explorer.Choice().figure(),
    ]
    for figure in figures:
        for axes in figure.axes:
            assert axes.get_xlabel()
            assert axes.get_ylabel() or axes.get_yticklabels()


def test_the_explorer_says_in_words_what_it_draws():
    choice = explorer.Choice(model="gpt2-xl", batch=32, sequence=1024, device="a100-80")
    assert sum(choice.row().buckets.values()) > DEVICES["a100-80"].memory
    assert "does not fit" in choice.summary()
    small = explorer.Choice(model="gpt2-small", sequence=1024)
    assert "It fits" in small.summary()
    state = model_state(GPT2_XL.parameters()).total
    assert sum(choice.row().buckets.values()) - choice.row().activations == state


def test_the_explorer_moves_in_a_notebook_and_stands_still_in_a_page():
    exploring = memory_wall.explore(model="gpt2-small", sequence=1024)
    bundle = exploring._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert '<svg class="plot" role="img"' in bundle["text/html"]
    assert f'aria-label="{html.escape(exploring.choice.summary())}"' in bundle["text/html"]
    assert not re.search(r'(?:src|href)="http', bundle["text/html"])
    assert bundle["text/plain"] == exploring.choice.summary()


def test_a_control_changes_the_choice_and_the_figure():
    exploring = memory_wall.explore(model="gpt2-small", sequence=1024)
    controls, shown = exploring.widget().children
    before = shown.value
    by_label = {control.description: control for control in controls.children}
    by_label["Recipe"].value = "sgd"
    assert exploring.choice.recipe == "sgd"
    assert shown.value != before
    by_label["Tokens a sample"].value = 2048
    assert exploring.choice == explorer.Choice(model="gpt2-small", sequence=2048, recipe="sgd")
    assert set(by_label) == {label for label, _ in explorer.Choice.options().values()}


def test_the_explorer_has_every_model_whose_activations_are_known():
    for name, spec in CATALOGUE.items():
        if name in explorer.MODELS:
            assert activations(spec, 1) > 0
        else:
            with pytest.raises(ValueError, match="whose layers keep other tensors"):
                activations(spec, 1)


@pytest.mark.parametrize("model", explorer.MODELS)
@pytest.mark.parametrize("saving", explorer.SAVING)
def test_every_model_can_be_explored(model, saving):
    assert (
        min(explorer.Choice(model=model, saving=saving, sequence=2048).row().buckets.values()) > 0
    )


# --- the picture of a layer -----------------------------------------------------------------------


def test_the_picture_of_a_layer_holds_every_term_and_its_ten_are_what_tensor_parallelism_leaves():
    spec = CATALOGUE["gpt2-xl"]
    kept = [t.get_text() for t in layer.draw_layer(spec).axes[0].texts if t.get_text()[0] in "1248"]
    units = {u: sum(int(k.split()[0]) for k in kept if k.endswith(u)) for u in ("sbh", "as²b")}
    assert units == {"sbh": 34, "as²b": 5}
    stream, divided, scores = layer.STYLE
    terms, kinds = activations(spec, 1).terms, layer.kinds(spec)
    sizes = {kind: sum(terms[n] for n in terms if kinds[n] == kind) for kind in layer.STYLE}
    sbh = spec.sequence * spec.hidden
    assert (sizes[stream], sizes[divided]) == (10 * sbh, 24 * sbh)
    assert sizes[scores] == 5 * spec.heads * spec.sequence**2


def test_a_layer_with_other_operations_is_not_drawn_as_a_plain_one():
    with pytest.raises(ValueError, match=r"they differ in ffn.*ffn\.up_output"):
        layer.draw_layer(TINY_LLAMA)


# --- memory over time -----------------------------------------------------------------------------


def trained(steps=2, **options):
    tokens = torch.randint(SMALL.vocab, (2, SMALL.sequence), generator=torch.Generator())
    model = GPT(SMALL, **options)
    optimizer = mixed(model)
    return model, optimizer, tokens, measure_steps(model, optimizer, tokens, steps)


@pytest.mark.parametrize("options", [{}, {"dropout": 0.1}, {"flash": True}])
def test_activations_climb_to_what_a_forward_pass_keeps_and_fall_to_nothing(options):
    model, _, tokens, moments = trained(**options)
    kept = measure_activations(model, tokens, tokens).everything
    for step in (0, 1):
        phases = {
            phase: [m for m in moments if (m.step, m.phase) == (step, phase)]
            for phase in ("forward", "backward", "update")
        }
        rising, falling = (
            [m.activations for m in phases[phase]] for phase in ("forward", "backward")
        )
        assert max(rising) == falling[0] == kept
        assert falling == sorted(falling, reverse=True)
        assert falling[-1] == 0 == max(m.activations for m in phases["update"])


def test_gradients_grow_in_backward_and_the_moments_are_there_from_the_first_update_on():
    model, optimizer, _, moments = trained()
    assert measure_state(model, optimizer.optimizer).gradients == 0
    state = model_state(SMALL.parameters(), "mixed-adamw")
    grown = [m.gradients for m in moments if m.step == 1 and m.phase == "backward"]
    assert grown == sorted(grown)
    assert (grown[0], grown[-1], moments[-1].gradients) == (0, state.gradients, 0)
    assert {m.gradients for m in moments if m.phase == "forward"} == {0}
    held = {step: {m.optimizer for m in moments if m.step == step} for step in (0, 1)}
    assert held == {0: {state.master, state.optimizer}, 1: {state.optimizer}}
    assert all(m.total == m.weights + m.optimizer + m.gradients + m.activations for m in moments)
    assert not any(p._post_accumulate_grad_hooks for p in model.parameters())


def test_counting_over_time_trains_as_without_it():
    model, _, tokens, _ = trained(steps=3)
    plain = GPT(SMALL)
    optimizer = mixed(plain)
    for _ in range(3):
        plain(tokens, tokens).backward()
        optimizer.step()
        plain.zero_grad()
    for counted, expected in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.equal(counted, expected)


@pytest.mark.parametrize(("sequences", "micro_batches"), [(16, 1), (4, 1), (4, 2), (2, 1), (3, 3)])
def test_a_step_peaks_between_its_passes_or_with_all_gradients_and_averages(
    sequences, micro_batches
):
    tokens = torch.zeros(sequences, 16, dtype=torch.int64)
    model = GPT(SMALL, flash=True)
    optimizer = mixed(model)
    kept = measure_activations(model, *[tokens[: sequences // micro_batches]] * 2).everything
    moments = measure_steps(model, optimizer, tokens, 2, micro_batches)
    state = model_state(SMALL.parameters(), "mixed-adamw")
    before = state.gradients if micro_batches > 1 else 0
    for step, moments_held in ((0, 0), (1, state.moments)):
        passes = state.weights + state.master + moments_held + before + kept
        peak = max(m.total for m in moments if m.step == step)
        assert peak == max(passes, state.total)


def test_micro_batches_add_up_what_each_of_them_gives():
    tokens = torch.randint(SMALL.vocab, (4, 16), generator=torch.Generator())
    model, plain = (GPT(SMALL) for _ in range(2))
    measure_steps(model, mixed(model), tokens, 1, 2)
    update = mixed(plain)
    for part in (tokens[:2], tokens[2:]):
        (plain(part, part) / 2).backward()
    update.step()
    for counted, expected in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.equal(counted, expected)


def test_a_batch_that_does_not_divide_into_micro_batches_is_refused():
    tokens, model = torch.zeros(4, 8, dtype=torch.int64), GPT(SMALL)
    with pytest.raises(ValueError, match="4 sequences do not divide by a micro_batches of 3"):
        measure_steps(model, mixed(model), tokens, 1, 3)


def test_the_picture_of_steps_is_as_high_as_what_was_counted():
    *_, moments = trained(steps=1)
    (axes,) = draw_steps(moments).axes
    tops = [max(area.get_paths()[0].vertices[:, 1]) for area in axes.collections]
    assert max(tops) == pytest.approx(max(m.total for m in moments) / 1e6)
    assert axes.get_legend_handles_labels()[1] == [*BUCKETS]
    assert "MB" in axes.get_ylabel()


def test_tokens_that_are_none_are_not_trained_on():
    model = GPT(SMALL)
    with pytest.raises(ValueError, match="whole numbers"):
        measure_steps(model, mixed(model), torch.zeros(2, 4))


def test_level_lines_are_the_state_that_each_of_so_many_devices_holds():
    spec = CATALOGUE["llama2-7b"]
    (axes,) = draw.draw_activations(spec, 1, (512, 8192), shares=(1, 8)).axes
    levels = [line.get_ydata()[0] * 1e9 for line in axes.lines[3:]]
    state = model_state(spec.parameters()).total
    assert levels == pytest.approx([state, state / 8])
