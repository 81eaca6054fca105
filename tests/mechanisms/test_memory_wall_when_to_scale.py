"""Whether a split run fits, when one device no longer does, and what was claimed about both."""

from __future__ import annotations

import dataclasses
import functools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from dlsys import memory_wall, world, zero
from dlsys.hardware import DEVICES
from dlsys.memory_wall import (
    REMEDIES,
    Fit,
    Split,
    activations,
    draw,
    explorer,
    fits,
    measure_activations,
    measure_state,
    model_state,
    parameters_held,
    should_scale,
)
from dlsys.meter import LiveStorages
from dlsys.model import GPT, SMALL
from dlsys.pipeline_parallel import one_f_one_b
from dlsys.tensor_parallel import layout
from dlsys.transformer import CATALOGUE, TransformerSpec
from dlsys.units import DAY, YEAR, format_bytes

H100, V100 = DEVICES["h100-sxm"], DEVICES["v100"]
GPT2_XL, GPT3, LLAMA_70B = (CATALOGUE[name] for name in ("gpt2-xl", "gpt3-175b", "llama2-70b"))
LLAMA = TransformerSpec(4, 48, 6, 99, 16, kv_heads=2, gated=True, tied=False, norm="layer")
UNTIED = dataclasses.replace(SMALL, tied=False)
NEURONS = dataclasses.replace(SMALL, ffn_hidden=250)
UNNAMED = dataclasses.replace(CATALOGUE["chinchilla-70b"], name="")
KEYS = TransformerSpec(2, 96, 12, 99, 16, kv_heads=6)

# --- does it fit ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "tensor"),
    [
        *((SMALL, 2), (SMALL, 8), (UNTIED, 4), (GPT2_XL, 5), (GPT3, 8)),
        # The last two have more ranks than key-value heads, and copies of these; here with biases.
        *((LLAMA_70B, 8), (LLAMA_70B, 64), (dataclasses.replace(LLAMA_70B, bias=True), 16)),
    ],
)
def test_the_fullest_tensor_rank_holds_what_its_layout_cuts_for_it(spec, tensor):
    cut = layout(spec, tensor)
    assert parameters_held(spec, tensor) == max(cut.held(rank) for rank in range(tensor))


@pytest.mark.parametrize("spec", [SMALL, UNTIED, LLAMA])
def test_the_first_and_the_last_stage_hold_the_modules_of_a_real_model(spec):
    parts = {"first": 0, "last": 0}
    for name, parameter in GPT(spec, device="meta").named_parameters():
        layer = int(name.split(".")[1]) if name.startswith("layers.") else None
        first = layer < 2 if layer is not None else name.startswith(("embedding", "positions"))
        parts["first" if first else "last"] += parameter.numel()
    if spec.tied:  # the head has the embedding's weights, and keeps a copy of its own
        parts["last"] += spec.vocab * spec.hidden
    assert spec.layers == 4
    assert parameters_held(spec, pipeline=2) == parts["first"]
    assert parameters_held(spec, pipeline=2, at_end=True) == parts["last"]
    assert parameters_held(spec) == spec.parameters()


@pytest.mark.parametrize("name", sorted(CATALOGUE))
def test_one_device_holds_every_parameter_of_every_model_without_relative_positions(name):
    spec = CATALOGUE[name]
    if spec.positions == "relative":
        with pytest.raises(ValueError, match=rf"^{spec.name} has relative positions, "):
            parameters_held(spec)
    else:
        assert repr(parameters_held(spec)) == repr(spec.parameters())  # a whole number


def test_layers_that_do_not_divide_are_rounded_up_to_whole_ones():
    five, six = (dataclasses.replace(SMALL, layers=n) for n in (5, 6))
    for tensor in (1, 2):
        assert parameters_held(five, tensor, 2) == parameters_held(six, tensor, 2)
        split = Split(tensor=tensor, pipeline=2)
        assert fits(five, H100, split).held == fits(six, H100, split).held


def test_a_stage_that_recomputes_has_room_for_the_layer_that_it_rebuilds():
    kept = activations(SMALL, 2, recompute="selective", dropout=False)
    layer = kept.per_layer + sum(kept.statistics.values())
    assert kept.recomputed == 2 * SMALL.heads * SMALL.sequence**2 * 2  # one set of scores
    held = fits(SMALL, H100, Split(pipeline=4), batch=2, recompute="selective").held
    assert held["activations"] == 4 * layer + kept.recomputed


def updated(model):
    """AdamW after an update of master copies: by hand, for precision casts no meta tensors."""
    masters = [torch.nn.Parameter(p.detach().float()) for p in model.parameters()]
    for parameter, master in zip(model.parameters(), masters, strict=True):
        master.grad = parameter.grad.float()
    optimizer = torch.optim.AdamW(masters)
    optimizer.step()
    optimizer.zero_grad()
    return optimizer


def measured(spec, batch=2, dropout=0.0):
    """The buckets of a real training step, its activations counted as a GPU keeps them."""
    tokens = torch.zeros(batch, spec.sequence, dtype=torch.long, device="meta")
    model = GPT(spec, dropout, device="meta", dtype=torch.bfloat16)
    kept = measure_activations(model, tokens, tokens)
    model = GPT(spec, dtype=torch.bfloat16)
    model(tokens.new_zeros(tokens.shape, device="cpu"), targets=torch.zeros_like(tokens, device="cpu")).backward()  # fmt: skip
    return measure_state(model, updated(model)), kept


@pytest.mark.parametrize("spec", [SMALL, LLAMA])
@pytest.mark.parametrize("dropout", [0.1, 0.0])
def test_one_device_holds_what_a_real_step_holds(spec, dropout):
    state, kept = measured(spec, 2, dropout)
    held = fits(spec, H100, batch=2, dropout=dropout > 0, fused_loss=True).held
    assert [held[name] for name in ("weights", "gradients", "optimizer")] == [
        state.weights,
        state.gradients,
        state.optimizer,
    ]
    beside = kept.outside["loss.weight"] + kept.outside.get("positions.rotation", 0)
    assert held["activations"] == kept.everything - beside  # a number, and a table: no activations


@pytest.mark.parametrize("dropout", [0.1, 0.0])
def test_the_first_stage_holds_as_many_micro_batches_as_1f1b_has_in_flight(dropout):
    _, kept = measured(SMALL, 2, dropout)
    one = sum(kept.layers[0].values()) + sum(kept.statistics[0].values())
    one += kept.outside.get("embedding.dropout_mask", 0)
    in_flight = one_f_one_b(4, 9).price(1, 2).peak_in_flight
    held = fits(SMALL, H100, Split(pipeline=4), batch=2, dropout=dropout > 0).held
    # One layer a stage; the loss's tensors are on the last stage, which is the lighter here.
    assert held["activations"] == in_flight[0] * one == 4 * one
    assert held["weights"] == 2 * parameters_held(SMALL, pipeline=4)


def test_the_last_stage_is_told_where_the_loss_makes_it_the_fuller_one():
    wide = dataclasses.replace(LLAMA, vocab=50_000)
    _, kept = measured(wide)
    held = fits(wide, H100, Split(pipeline=2), batch=2, fused_loss=True).held
    layers = 2 * (sum(kept.layers[0].values()) + sum(kept.statistics[0].values()))
    outside = sum(kept.outside.values()) - kept.outside["loss.weight"]
    outside -= kept.outside.get("positions.rotation", 0)  # a table: no activation
    assert held["activations"] == layers + outside
    assert held["weights"] == 2 * parameters_held(wide, pipeline=2, at_end=True)


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_a_loss_makes_two_more_arrays_before_a_layer_is_rebuilt(recompute):
    wide = dataclasses.replace(LLAMA, vocab=50_000, bias=False)
    model = GPT(wide, device="meta", dtype=torch.bfloat16)
    if recompute == "full":
        for block in model.layers:
            block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)
    tokens = torch.zeros(2, wide.sequence, dtype=torch.long, device="meta")
    with LiveStorages() as counted:
        loss = model(tokens, tokens)
        before = counted.alive.peak = counted.alive.now
        loss.backward()
    in_backward = counted.alive.peak - before
    held, fused = (
        fits(wide, H100, batch=2, recompute=recompute, fused_loss=each).held["activations"]
        for each in (False, True)
    )
    kept = activations(wide, 2, recompute=recompute, dropout=False)
    assert held - kept.everything == in_backward
    assert fused - kept.everything == kept.recomputed < in_backward
    assert kept.peak == held
    first = fits(wide, H100, Split(pipeline=4), batch=2, recompute=recompute)
    assert first.whole["activations"] == held


@pytest.mark.parametrize(
    ("split", "factors"),
    [
        (Split(data=8), {"weights": 1, "gradients": 1, "optimizer": 1}),
        (Split(data=8, zero_stage=1), {"weights": 1, "gradients": 1, "optimizer": 8}),
        (Split(data=8, zero_stage=2), {"weights": 1, "gradients": 8, "optimizer": 8}),
        (Split(data=8, zero_stage=3), {"weights": 8, "gradients": 8, "optimizer": 8}),
    ],
)
def test_the_data_axis_divides_what_zero_says_and_never_activations(split, factors):
    verdict = fits(GPT3, H100, split)
    found = {bucket: axes["data"] for bucket, axes in verdict.divided.items()}
    assert found == pytest.approx(factors | {"activations": 1})
    assert all(
        axes["tensor"] == axes["pipeline"] == pytest.approx(1) for axes in verdict.divided.values()
    )


def test_the_tensor_axis_leaves_ten_sbh_whole_and_the_pipeline_no_fewer_activations():
    plain = fits(GPT3, H100, Split(tensor=8, pipeline=16), dropout=True).divided
    assert plain["activations"]["tensor"] == pytest.approx(114 / 23, rel=0.01)
    assert plain["weights"]["tensor"] == pytest.approx(8, rel=2e-3)
    assert plain["optimizer"]["pipeline"] == pytest.approx(16, rel=0.06)
    assert plain["activations"]["pipeline"] == pytest.approx(1, abs=0.01)
    all_cut = fits(GPT3, H100, Split(tensor=8, sequence_parallel=True), dropout=True).divided
    assert all_cut["activations"]["tensor"] == pytest.approx(8, rel=1e-4)


@given(
    data=st.integers(1, 64),
    tensor=st.sampled_from([1, 2, 4, 8]),
    pipeline=st.sampled_from([1, 2, 3, 4]),
    stage=st.integers(0, 3),
    sequence_parallel=st.booleans(),
    recompute=st.sampled_from(["none", "selective", "full"]),
)
def test_no_axis_adds_state_and_all_devices_together_hold_at_least_all_of_it(
    data, tensor, pipeline, stage, sequence_parallel, recompute
):
    split = Split(data, tensor, pipeline, stage, sequence_parallel)
    verdict = fits(SMALL, H100, split, recompute=recompute)
    copies = 2 if pipeline > 1 else 1  # of the embedding that is the head as well
    for bucket in ("weights", "gradients", "optimizer"):
        assert verdict.held[bucket] <= verdict.whole[bucket]
        assert split.devices * verdict.held[bucket] * copies >= verdict.whole[bucket]
    assert verdict.free == H100.memory - sum(verdict.held.values())


def test_a_verdict_says_what_is_lacking_and_a_reserve_is_not_given_away():
    small = fits(CATALOGUE["llama2-7b"], H100)
    assert not small
    assert str(small).startswith("does not fit, ")
    assert f"{-small.free / 1e9:.1f} GB lacking" in str(small)
    assert fits(GPT2_XL, H100, flash=True)
    tight = fits(GPT2_XL, H100, flash=True).free
    assert not fits(GPT2_XL, H100, flash=True, reserve=tight + 1)
    assert fits(GPT2_XL, H100, flash=True, reserve=tight)


def test_a_verdict_reads_as_one_line_with_every_bucket():
    held = {"weights": 4 * 10**9, "gradients": 3 * 10**9, "optimizer": 24 * 10**9}
    parts = "weights 4 GB, gradients 3 GB, optimizer 24 GB"
    assert str(Fit(held, held, {}, 40e9)) == f"fits, 9 GB free: {parts}"
    assert str(Fit(held, held, {}, 31e9)) == f"fits, 0 B free: {parts}"
    assert str(Fit(held, held, {}, 30e9)) == f"does not fit, 1 GB lacking: {parts}"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fits(SMALL, H100, Split(pipeline=5)), "pipeline is 5"),
        (lambda: fits(SMALL, H100, Split(tensor=3)), "do not divide"),
        (lambda: fits(SMALL, H100, reserve=-1), "reserve is -1"),
        (lambda: Split(zero_stage=4), "zero_stage is 4"),
        (lambda: Split(data=0), "data is 0"),
        (lambda: Split(tensor=0), "tensor is 0"),
        (lambda: Split(pipeline=0), "pipeline is 0"),
        (lambda: fits(CATALOGUE["chinchilla-70b"], H100), "relative positions"),
        (lambda: parameters_held(SMALL, pipeline=5), "pipeline is 5"),
        (lambda: parameters_held(SMALL, 3), "8 heads do not divide by a tensor of 3; .* 2 and 4"),
        (lambda: parameters_held(UNNAMED), "^The model has relative positions, "),
        (lambda: parameters_held(NEURONS, 4), "250 FFN neurons do not divide by a tensor of 4"),
        (lambda: parameters_held(KEYS, 4), "6 key-value heads do not divide by a tensor of 4"),
    ],
)
def test_a_split_that_cannot_be_is_a_sentence(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("saving", explorer.SAVING)
@pytest.mark.parametrize(("stage", "devices"), [(0, 1), (1, 8), (3, 64)])
def test_the_explorers_row_is_the_price_of_state_and_of_activations(saving, stage, devices):
    choice = explorer.Choice(
        model="llama2-13b", sequence=4096, saving=saving, zero_stage=stage, devices=devices
    )
    spec = CATALOGUE["llama2-13b"]
    state = model_state(spec.parameters(), "mixed-adamw", stage, devices)
    kept = activations(spec, 1, dropout=False, **explorer.SAVING[saving]).peak
    assert list(choice.row().buckets.values()) == [
        state.weights,
        state.gradients,
        state.optimizer,
        kept,
    ]


def of_gpt2(saving="keep everything", **options):
    """A choice in the explorer, and its row."""
    choice = explorer.Choice("gpt2-small", batch=2, sequence=512, saving=saving, **options)
    (row,) = (row for row in choice.rows() if (row.saving, row.sequence) == (saving, 512))
    return choice, row


@pytest.mark.parametrize(
    ("saving", "again"),
    [
        ("keep everything", lambda block: None),
        ("recompute attention", lambda block: block.attention.core),
        ("recompute every layer", lambda block: block),
    ],
)
def test_a_step_of_mixed_precision_holds_the_bytes_of_the_explorers_row(saving, again):
    spec = dataclasses.replace(CATALOGUE["gpt2-small"], sequence=512)
    model = GPT(spec, device="meta", dtype=torch.bfloat16)
    tokens = torch.zeros(2, 512, dtype=torch.long, device="meta")
    plain = measure_activations(model, tokens, tokens)
    for block in model.layers:
        if part := again(block):
            part.forward = functools.partial(checkpoint, part.forward, use_reentrant=False)
    kept = measure_activations(model, tokens, tokens)
    model(tokens, tokens).backward()
    state = measure_state(model, updated(model))
    # One layer at a time is rebuilt, here without the two numbers that a norm keeps of a row.
    rebuilt = sum(plain.layers[0].values()) - sum(kept.layers[0].values())
    of_loss = 2 * kept.outside["loss.log_probabilities"]
    held = kept.everything - kept.outside["loss.weight"] + max(rebuilt, of_loss)
    choice, row = of_gpt2(saving)
    assert row[2:] == (state.weights, state.gradients, state.optimizer, held)
    assert f"together {format_bytes(state.total + held)}. It fits" in choice.summary()


@pytest.mark.parametrize("stage", [1, 3])
def test_running_ranks_hold_the_state_of_the_explorers_row(stage):
    spec = dataclasses.replace(CATALOGUE["gpt2-small"], sequence=512)

    def step(comm):
        model = GPT(spec, device="meta")
        if stage == 1:
            optimizer = zero.ShardedOptimizer(model.parameters(), torch.optim.AdamW, comm)
        else:
            model = zero.FullyShardedDataParallel(model, comm)
            optimizer = torch.optim.AdamW(model.parameters())
        tokens = torch.zeros(2, 512, dtype=torch.long, device="meta")
        model(tokens, tokens).backward()
        optimizer.step()
        state = measure_state(model, optimizer)
        return state.weights, state.gradients, state.optimizer

    _, row = of_gpt2(recipe="fp32-adam", zero_stage=stage, devices=4)
    assert world.simulate(step, 4).results == [row[2:5]] * 4


def test_a_published_loss_of_memory_to_sharding_is_predicted_to_a_tenth():
    # torchtitan, benchmarks of December 2024, tables 1 and 3: GiB a device on 8 and on 128.
    spec = CATALOGUE["llama3-8b"]
    held = [
        fits(spec, H100, Split(data=n, zero_stage=3), batch=2, recipe="fp32-adam", flash=True).total
        for n in (8, 128)
    ]
    predicted = (held[0] - held[1]) / 2**30
    assert predicted == pytest.approx(14.0, abs=0.05)
    for on_8, on_128 in ((82.4, 67.0), (77.0, 62.0), (76.8, 61.8)):
        assert 0.9 < predicted / (on_8 - on_128) < 0.95


# --- when to scale --------------------------------------------------------------------------------


def of(parameters, layers=40):
    """A plain model of about so many parameters."""
    hidden = 128 * round(math.sqrt(parameters / (12 * layers)) / 128)
    return TransformerSpec(layers, hidden, hidden // 128, 32_000, 2048)


def test_state_beyond_the_device_is_a_limit_that_no_remedy_moves():
    # Published: recomputation lets 3.7 billion parameters train on a V100; their state is 59 GB.
    big = of(3.7e9)
    assert model_state(big.parameters()).total > 1.6 * V100.memory
    advice = should_scale(big, V100, 1e9, using=())
    assert advice.limits == ("memory",)
    assert advice.devices == 2
    assert fits(big, V100, recompute="full").held["activations"] < 0.2 * V100.memory


def test_ten_billion_parameters_fit_a_node_and_so_do_thirty_eight():
    # A published table sends everything from 10 billion on to several nodes.
    for parameters, devices in ((10e9, 3), (20e9, 5), (38e9, 8)):
        advice = should_scale(of(parameters), H100, 1e9, days=1000)
        assert (advice.devices, advice.where) == (devices, "one node")
    assert should_scale(of(45e9), H100, 1e9, days=1000).where == "2 nodes"


@pytest.mark.parametrize(
    ("parameters", "data", "where"),
    [
        (0.9e9, 100e9, "one device"),
        (4.5e9, 100e9, "one device"),  # published: a node, from one billion on
        (9e9, 1e12, "one node"),
        (38e9, 1e12, "one node"),  # published: several nodes, from ten billion on
        (45e9, 1e12, "2 nodes"),
        (0.9e9, 11e12, "one device, data streamed"),
        (45e9, 11e12, "2 nodes, data streamed"),
    ],
)
def test_a_published_table_of_sizes_is_right_at_its_ends_and_too_soon_between(
    parameters, data, where
):
    found = should_scale(of(parameters), H100, 1e9, days=1000, dataset_bytes=data)
    assert found.where == where


def test_a_small_model_on_few_tokens_stays_where_it_is():
    advice = should_scale(CATALOGUE["gpt2-small"], H100, 10e9)
    assert advice.limits == advice.first == ()
    assert advice.where == "one device"


def test_more_than_two_weeks_is_a_limit_and_so_many_devices_take_two_weeks():
    tokens = 20 * GPT2_XL.parameters()
    assert should_scale(GPT2_XL, H100, tokens).limits == ()
    advice = should_scale(GPT2_XL, H100, 3 * tokens)
    assert advice.limits == ("time",)
    flops = GPT2_XL.approximate_training_flops(3 * tokens)
    took = [
        memory_wall.training_seconds(flops, H100.rate("bf16"), 0.4, n) / DAY
        for n in (advice.devices - 1, advice.devices)
    ]
    assert took[0] > 14 >= took[1]


@pytest.mark.parametrize(
    ("batch", "days", "first"),
    [
        (64, 1e4, ("mixed precision", "accumulation", "recomputation")),  # memory alone
        (1, 1, ("mixed precision", "input pipeline")),  # time alone
        (64, 1, tuple(REMEDIES)),
        (1, 1e4, ()),
    ],
)
def test_what_is_exhausted_first_is_what_moves_the_limit_that_is_exceeded(batch, days, first):
    small = CATALOGUE["gpt2-small"]
    advice = should_scale(small, H100, 5e9, using=(), batch=batch, days=days)
    assert advice.first == first
    assert should_scale(small, H100, 5e9, batch=batch, days=days).first == ()


def test_32_bits_keep_as_much_state_and_twice_the_activations():
    nearly = dataclasses.replace(of(4.5e9), vocab=80_000)  # 77 of 80 GB without activations
    but_precision = tuple(name for name in REMEDIES if name != "mixed precision")
    advice = should_scale(nearly, H100, 1e9, using=but_precision, days=1e4)
    assert advice.limits == ()
    assert advice.first == ("mixed precision",)


def test_32_bits_keep_twice_the_activations_to_the_last_sequence_that_fits():
    small, one = CATALOGUE["gpt2-small"], activations(CATALOGUE["gpt2-small"], 1, dropout=False)
    most = int((H100.memory - model_state(small.parameters()).total) // (2 * one.peak))
    first = [should_scale(small, H100, 1e9, using=(), batch=n).first for n in (most, most + 1)]
    assert first == [(), ("mixed precision", "accumulation", "recomputation")]
    three = of(2.9e9)  # two sequences at once have no room in 32 bits, and one has
    assert should_scale(three, H100, 1e9, using=(), days=1e4).first == ()
    assert should_scale(three, H100, 1e9, using=(), days=1e4, batch=2).first


def test_a_run_that_fills_the_device_and_the_days_to_the_last_needs_no_more():
    small = CATALOGUE["gpt2-small"]
    full = dataclasses.replace(H100, memory=fits(small, H100, recompute="full").total)
    flops = small.approximate_training_flops(1e9)
    days = memory_wall.training_seconds(flops, H100.rate("bf16"), 0.4) / DAY
    using = ("mixed precision", "recomputation")
    for more, first in ((1, ()), (1 - 1e-9, ("input pipeline",))):
        advice = should_scale(small, full, 1e9, using=using, days=days * more)
        assert (advice.first, advice.devices) == (first, 1 if more == 1 else 2)
    less = dataclasses.replace(full, memory=full.memory - 1)
    assert should_scale(small, less, 1e9, using=using, days=days).first == ("accumulation",)


def test_each_remedy_in_use_is_no_longer_advised():
    small = CATALOGUE["gpt2-small"]
    for remedy in REMEDIES:
        left = should_scale(small, H100, 5e9, using=(remedy,), batch=512, days=0.1).first
        helps = tuple(name for name in REMEDIES if name != remedy)
        # One sequence at a time fits as it is, so that nothing is to be recomputed.
        assert left == (helps if remedy != "accumulation" else helps[:2])


def test_more_data_than_a_node_holds_is_streamed_whatever_the_model():
    small = CATALOGUE["gpt2-small"]
    here, there = (should_scale(small, H100, 1e9, dataset_bytes=n) for n in (10e12, 10.1e12))
    assert (here.limits, there.limits) == ((), ("data",))
    assert (here.where, there.where) == ("one device", "one device, data streamed")
    assert should_scale(small, H100, 1e12).needs["data"] == 0.2  # two bytes a token
    # A vocabulary of 128,256 words does not fit in two bytes, and one of 65,536 just does.
    for vocab, share in ((2**16, 0.2), (2**16 + 1, 0.4)):
        some = dataclasses.replace(small, vocab=vocab)
        assert should_scale(some, H100, 1e12).needs["data"] == share


def test_a_device_without_a_plain_rate_in_32_bits_is_asked_for_the_one_it_has():
    tpu = DEVICES["tpu-v5p"]
    assert should_scale(SMALL, tpu, 1e9, using=()).limits == ()
    assert should_scale(GPT2_XL, V100, 1e9).needs["time"] == pytest.approx(
        6 * GPT2_XL.parameters() * 1e9 / (125e12 * 0.4) / (14 * DAY)
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"using": ("accumulate",)},
            "^There is no remedy 'accumulate'; did you mean 'accumulation'",
        ),
        ({"days": 0}, "days is 0"),
        ({"tokens": 0}, "^tokens is 0; .* above zero"),
        ({"batch": 0}, "^batch is 0"),
        ({"dataset_bytes": 0.0}, "dataset_bytes is 0"),
        ({"utilization": 1.1}, "above 1"),
    ],
)
def test_advice_about_nothing_is_a_sentence(options, message):
    with pytest.raises(ValueError, match=message):
        should_scale(SMALL, H100, **{"tokens": 1e9} | options)


# --- what is priced beside ------------------------------------------------------------------------


def test_a_steady_load_pays_for_devices_in_a_year_and_bursts_in_six():
    bill = memory_wall.rent_or_buy(1, 3.0, 1, 30_000.0)
    assert bill.break_even_days(1) == pytest.approx(10_000 / 24)
    assert bill.break_even_days(1) * DAY / YEAR == pytest.approx(1.14, abs=0.005)
    assert bill.break_even_days(0.2) * DAY / YEAR == pytest.approx(5.7, abs=0.05)
    for load in (0, 1.1, -1):
        with pytest.raises(ValueError, match=f"^load is {load}; "):
            bill.break_even_days(load)


def test_ten_times_the_devices_cost_the_same_unless_they_are_used_worse():
    flops = 6 * 70e9 * 2e12
    month = memory_wall.training_seconds(flops, 989e12, 0.5, devices=655)
    three_days = memory_wall.training_seconds(flops, 989e12, 0.5, devices=6550)
    assert month / three_days == pytest.approx(10)
    hours = memory_wall.gpu_hours(month, 655)
    assert memory_wall.gpu_hours(three_days, 6550) == pytest.approx(hours)
    worse = memory_wall.training_seconds(flops, 989e12, 0.4, devices=6550)
    assert memory_wall.gpu_hours(worse, 6550) / hours == pytest.approx(1.25)


def test_64_replicas_hold_54_tb_of_which_all_but_one_copy_is_redundant():
    # Published: "53.8 TB redundant" at 12 bytes; one of the 64 copies is needed.
    every = [64 * model_state(70e9, recipe).total for recipe in ("pure-16bit", "mixed-adamw")]
    assert every == [53.76e12, 71.68e12]
    assert every[0] * 63 / 64 == 52.92e12
    assert every[1] - model_state(70e9).total == 70.56e12
    # The 12 bytes are weights, gradients and moments; the optimizer's are 8 of them.
    assert model_state(1, "pure-16bit").optimizer == 8
    shared = model_state(70e9, "pure-16bit", 3, 64)
    assert shared.total == 52.5e9 / 4 == 12 / 64 * 70e9  # to 12/n of a byte, not by it


def test_training_adds_five_times_the_weights_or_seven_with_a_master_copy():
    for recipe, total, tax in (("pure-16bit", 84e9, 5), ("mixed-adamw", 112e9, 7)):
        state = model_state(7e9, recipe)
        assert state.total == total
        assert (state.optimizer + state.gradients) / state.weights == tax


def test_the_walls_show_weights_alone_and_the_fewest_devices():
    names = ("gpt2-xl", "llama2-70b", "gpt3-175b", "llama3-405b")
    specs = [CATALOGUE[name] for name in names]
    memory, time = draw.draw_walls(specs, H100).axes
    rings = next(line for line in memory.lines if "run" in str(line.get_label()))
    assert list(rings.get_ydata()) == [2 * spec.parameters() / 1e9 for spec in specs]
    labels = [text.get_text() for text in memory.texts][: len(specs)]
    fewest = [memory_wall.devices_needed(s.parameters(), "mixed-adamw", 80e9) for s in specs]
    assert [int(label.rsplit(", ")[1]) for label in labels] == fewest == [1, 14, 35, 82]
    assert [text.get_text() for text in time.texts][: len(specs)] == [s.name for s in specs]


# --- operations -----------------------------------------------------------------------------------


def test_backward_makes_twice_the_operations_of_forward_in_a_real_model():
    model, tokens = GPT(SMALL), torch.zeros(2, SMALL.sequence, dtype=torch.long)
    with FlopCounterMode(display=False) as forward:
        loss = model(tokens, tokens)
    with FlopCounterMode(display=False) as backward:
        loss.backward()
    assert forward.get_total_flops() == SMALL.forward_flops(2)
    assert backward.get_total_flops() == 2 * SMALL.forward_flops(2)


# --- published, and refuted -----------------------------------------------------------------------


def resnet50():
    """ResNet-50 (He et al. 2015, table 1) as vendors train it: stride 2 in the 3 x 3 convolution."""

    def unit(c_in, c_out, size, stride=1, act=True):
        conv = nn.Conv2d(c_in, c_out, size, stride, size // 2, bias=False)
        return nn.Sequential(conv, nn.BatchNorm2d(c_out), *([nn.ReLU(inplace=True)] if act else []))

    class Bottleneck(nn.Module):
        def __init__(self, c_in, width, stride):
            super().__init__()
            self.body = nn.Sequential(
                unit(c_in, width, 1),
                unit(width, width, 3, stride),
                unit(width, 4 * width, 1, act=False),
            )
            same = c_in == 4 * width and stride == 1
            self.skip = nn.Identity() if same else unit(c_in, 4 * width, 1, stride, act=False)

        def forward(self, x):
            return torch.relu_(self.body(x) + self.skip(x))

    blocks, c_in = [], 64
    for width, depth, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for i in range(depth):
            blocks.append(Bottleneck(c_in, width, stride if i == 0 else 1))
            c_in = 4 * width
    stem = [unit(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)]
    return nn.Sequential(
        *stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000)
    )


def test_an_image_leaves_a_tenth_of_a_gigabyte_in_resnet_50_and_not_one_point_two():
    with torch.device("meta"):
        model = resnet50()
    assert sum(p.numel() for p in model.parameters()) == 25_557_032
    kept = {}
    for batch in (1, 32):
        images = torch.empty(batch, 3, 224, 224, device="meta")
        held = {p.untyped_storage()._cdata for p in (*model.parameters(), *model.buffers())}
        found = {}

        def pack(tensor, held=held, found=found):
            storage = tensor.untyped_storage()
            if storage._cdata not in held:
                found[storage._cdata] = (storage.nbytes(), tensor)
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            result = model(images)
        kept[batch] = sum(nbytes for nbytes, _ in found.values())
        del result
    assert 0.08e9 < kept[1] < 0.1e9  # published: 1.2 GB an image, 8 GB for 32
    assert kept[32] == pytest.approx(32 * kept[1], rel=0.01)
    assert kept[32] < 3e9


def test_a_peak_without_the_master_copy_is_6_gb_too_low():
    # Published: 3 + 3 + 12 + 40.7 = 59 GB in 16 bits; the same text keeps 6 GB of master weights.
    state = model_state(1.5e9)
    assert state.total - state.master + 40.7e9 == pytest.approx(58.7e9)
    assert state.master == 6e9
    assert round((state.total + 40.7e9) / 1e9) == 65


def test_gpt2s_budget_of_1e20_is_neither_of_its_own_two_runs():
    a_step = 296.7e12  # published, for 32 sequences
    assert 50_000 * a_step == pytest.approx(1.48e19, rel=0.01)
    assert 50_000 * a_step * 512 / 32 == pytest.approx(2.37e20, rel=0.01)
    # By the count of every product the second is 2.7e20.
    assert 50_000 * GPT2_XL.training_flops(512) == pytest.approx(2.69e20, rel=0.01)


def test_gpt2_takes_one_v100_weeks_and_one_h100_days():
    for flops, days in ((1e20, 23), (2.37e20, 55)):
        assert memory_wall.training_seconds(flops, 125e12, 0.4) / DAY == pytest.approx(
            days, abs=0.5
        )
    fast = [memory_wall.training_seconds(f, 989e12, 0.4) / DAY for f in (1e20, 2.37e20)]
    assert fast == pytest.approx([2.9, 6.9], abs=0.05)


def test_405_billion_parameters_take_one_h100_millennia_and_not_decades():
    flops = 6 * 405e9 * 15.6e12
    assert flops == pytest.approx(3.8e25, rel=0.01)
    years = memory_wall.training_seconds(flops, 989e12, 0.5) / YEAR
    assert years == pytest.approx(2430, rel=0.01)


def test_from_14_to_8_point_4_days_is_1_67_times_and_not_2_4():
    flops = 32 * 125e12 * 0.3 * 14 * DAY
    faster = memory_wall.training_seconds(flops, 125e12, 0.3 * 14 / 8.4, devices=32)
    assert faster / DAY == pytest.approx(8.4)
    assert pytest.approx(1.67, abs=0.005) == 14 / 8.4
    at_2_4 = memory_wall.training_seconds(flops, 125e12, 0.3 * 2.4, devices=32) / DAY
    assert at_2_4 == pytest.approx(5.8, abs=0.05)
    assert 14 - faster / DAY == pytest.approx(5.6)  # "6 days" saved


def test_gpt3_on_1024_v100_takes_months_and_on_10000_under_a_fortnight():
    # Published side by side for one run: "more than 10,000 V100" and "1,024 V100 for months".
    few, many = (
        memory_wall.training_seconds(3.14e23, 125e12, 0.3, devices=n) / DAY for n in (1024, 10_000)
    )
    assert (few, many) == (pytest.approx(94.6, abs=0.1), pytest.approx(9.7, abs=0.1))
    # As long as the few, the many would do a thirtieth of their peak.
    used = memory_wall.utilization(3.14e23, few * DAY, 125e12, devices=10_000)
    assert used == pytest.approx(0.031, abs=0.0005)


@pytest.mark.parametrize("flash", [False, True])
def test_16_bits_halve_activations_and_with_the_state_save_nothing_to_a_half(flash):
    # Published: mixed precision reduces memory by about 50 %.
    tokens = torch.zeros(2, SMALL.sequence, dtype=torch.long)
    in_16, in_32 = (
        measure_activations(GPT(SMALL, dtype=dtype), tokens, tokens).total
        for dtype in (torch.bfloat16, torch.float32)
    )
    assert in_32 == 2 * in_16
    saved = []
    for batch in (1, 4, 32):
        kept = activations(GPT2_XL, batch, flash=flash, dropout=False).total
        full = model_state(GPT2_XL.parameters(), "fp32-adam").total + 2 * kept
        saved.append(1 - (model_state(GPT2_XL.parameters()).total + kept) / full)
    assert saved == sorted(saved)
    assert saved[0] < (0.1 if flash else 0.2)
    assert 0.35 < saved[-1] < 0.5


def test_gradients_in_32_bits_overrun_a_device_that_the_state_had_filled():
    assert memory_wall.largest_model(80e9) == 5e9
    over = [
        model_state(5e9, f"mixed-adamw{kind}").total - 80e9
        for kind in ("", "-fp32-gradients", "-both-gradients")
    ]
    assert over == [0, 10e9, 20e9]


def test_the_optimizers_state_is_made_in_its_first_step():
    weight = nn.Parameter(torch.ones(4))
    optimizer = torch.optim.AdamW([weight])
    weight.sum().backward()
    assert not optimizer.state
    optimizer.step()
    assert measure_state(nn.ParameterList([weight]), optimizer).moments == 2 * weight.nbytes
