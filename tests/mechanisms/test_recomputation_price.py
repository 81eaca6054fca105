"""Prices of recomputation, held against what training steps under torch.utils.checkpoint hold and
run, against published figures, and the laws against the prices."""

from __future__ import annotations

import dataclasses
import math
import re
import subprocess
import sys
from itertools import groupby, pairwise
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from dlsys.hardware import DEVICES, Device, Link
from dlsys.model import GPT
from dlsys.pipeline_parallel import one_f_one_b
from dlsys.recomputation import (
    Chain,
    Law,
    Layer,
    Plan,
    against_tensor_parallel,
    chain_of,
    closed_form,
    core_bytes_share,
    core_flops_share,
    every,
    every_layer,
    first_layers,
    full_share,
    keep_all,
    keeping_of,
    layer_graph,
    least_peak,
    micro_batch_overhead,
    offload_price,
    recompute_beats_offload,
    segments,
    selective,
    smallest,
    square_root,
    square_root_peak,
    stage_layers,
    uniform,
    width_to_offload,
)
from dlsys.recomputation.price import BACKWARD, FORWARD, REBUILD, Moment
from dlsys.transformer import CATALOGUE, TransformerSpec
from dlsys.transformer.activations import activations
from tests.mechanisms.held_over_time import chain_modules, count_step

GPT3 = CATALOGUE["gpt3-175b"]
H100, FREE = DEVICES["h100-sxm"], Link("a quick link", 0.0, 1e30)
SMALL = TransformerSpec(layers=4, hidden=8, heads=4, vocab=32, sequence=8)


def between_ends(plan: Plan) -> Plan:
    return keep_all(1) + plan + keep_all(1)


# -- counted while training ----------------------------------------------------------------------

LINEAR_PLANS = {
    "all kept": keep_all(12),
    "every layer": every_layer(12),
    "every 5th": every(12, 5),
    "square root": square_root(12),
    "last kept": square_root(12).keep_last(),
    "4 kept in the middle": segments(5, 2) + keep_all(4) + every_layer(3),
}


@pytest.mark.parametrize("early_stop", [True, False])
@pytest.mark.parametrize("name", LINEAR_PLANS)
def test_a_chain_of_linear_layers_holds_at_every_moment_what_the_curve_says(name, early_stop):
    """Equal layers that save their input alone: the chain that k + L/k is about."""
    plan = LINEAR_PLANS[name]
    layers = [nn.Linear(8, 8, bias=False) for _ in range(12)]
    counted = count_step(plan, layers, torch.ones(4, 8, requires_grad=True), early_stop)
    unit_bytes, unit_flops = 4 * 8 * 4, 2 * 4 * 8 * 8
    cost = plan.price(uniform(12), early_stop)
    assert counted.kept == cost.kept_bytes * unit_bytes
    assert counted.peak == cost.peak_bytes * unit_bytes
    assert counted.flops == cost.hardware_cost * unit_flops
    # It is looked when an operation of backward begins: not between two layers that are rebuilt.
    curve = cost.curve[11:]
    rebuilding = [a.action == b.action == REBUILD for a, b in pairwise(curve)]
    seen = [m.nbytes for m, skip in zip(curve[:-1], rebuilding, strict=True) if not skip]
    assert counted.curve == [unit_bytes * nbytes for nbytes, _ in groupby(seen)]


GPT_PLANS = {
    "all kept": keep_all(6),
    "cores": between_ends(selective(4)),
    "every layer": between_ends(every_layer(4)),
    "two segments": between_ends(segments(4, 2)),
    "first two": between_ends(first_layers(4, 2)),
    "the ends, too": every_layer(6),
    "mixed": keep_all(2) + selective(2) + segments(2, 1),
}


def on_cpu(chain: Chain, rows: int, hidden: int) -> Chain:
    """The chain as CPUs have it: norms keep their statistics in the layer's 16 bits, not in 32, and
    the loss keeps a number for the weight of all targets."""
    *layers, head = chain.layers[1:]
    less = 2 * 2 * 2 * rows  # two norms, mean and deviation, two bytes less
    layers = [dataclasses.replace(layer, saved_bytes=layer.saved_bytes - less) for layer in layers]
    head = dataclasses.replace(head, saved_bytes=head.saved_bytes - less // 2 + 4)
    return Chain((chain.layers[0], *layers, head))


@pytest.mark.parametrize(
    ("name", "dropout"), [("mixed", 0.0), *((name, 0.1) for name in GPT_PLANS)]
)
def test_a_gpt_holds_and_runs_what_its_chain_is_priced_at(name, dropout):
    plan = GPT_PLANS[name]
    torch.manual_seed(0)
    gpt = GPT(SMALL, dropout, dtype=torch.bfloat16)
    tokens = torch.randint(SMALL.vocab, (2, SMALL.sequence))
    modules = chain_modules(gpt, tokens.roll(1, 1))
    chain = on_cpu(chain_of(SMALL, 2, dropout=bool(dropout)), 2 * SMALL.sequence, SMALL.hidden)
    for early_stop in (True, False) if name in ("cores", "two segments") else (True,):
        counted = count_step(plan, modules, tokens, early_stop)
        cost = plan.price(chain, early_stop)
        assert counted.kept == cost.kept_bytes
        assert counted.peak == cost.peak_bytes
        assert counted.flops == cost.hardware_cost


@pytest.mark.parametrize("spec", [SMALL, dataclasses.replace(SMALL, kv_heads=2)], ids=["", "gqa"])
def test_grouped_queries_are_priced_as_they_run(spec):
    gpt = GPT(spec, dtype=torch.bfloat16)
    tokens = torch.zeros(1, spec.sequence, dtype=torch.long)
    counted = count_step(GPT_PLANS["cores"], chain_modules(gpt, tokens), tokens)
    chain = on_cpu(chain_of(spec, 1, dropout=False), spec.sequence, spec.hidden)
    cost = GPT_PLANS["cores"].price(chain)
    assert (counted.peak, counted.flops) == (cost.peak_bytes, cost.hardware_cost)


# -- what holds for every plan -------------------------------------------------------------------


@st.composite
def plans(draw: st.DrawFn) -> tuple[Plan, Chain]:
    kinds = [keep_all, selective, every_layer, square_root]
    parts = draw(st.lists(st.tuples(st.sampled_from(kinds), st.integers(1, 6)), min_size=1))
    plan = parts[0][0](parts[0][1])
    for build, n in parts[1:]:
        plan = plan + build(n)
    number = st.integers(0, 50)
    layers = []
    for i in range(plan.layers):
        inputs, core, rest, forward = (draw(number) for _ in range(4))
        part, tail = (draw(st.integers(0, forward)) for _ in range(2))
        parts = core, part, tail, draw(st.integers(0, part))
        saved = inputs + core + rest
        layers.append(Layer(str(i), inputs, saved, forward, draw(number), *parts))
    return plan, Chain(tuple(layers))


@given(plans(), st.booleans())
def test_a_step_ends_with_nothing_held_and_each_layer_runs_at_most_twice(pair, early_stop):
    plan, chain = pair
    cost = plan.price(chain, early_stop)
    assert cost.curve[-1].nbytes == 0
    assert cost.curve[-1].cost == pytest.approx(cost.hardware_cost)
    for action in (FORWARD, BACKWARD):
        done = [m.layer for m in cost.curve if m.action == action]
        order = range(len(chain))
        assert done == [*order] if action == FORWARD else done == [*reversed(order)]
    again = [m.layer for m in cost.curve if m.action == REBUILD]
    assert len(again) == len(set(again))  # "recomputed up to three times": each once
    assert cost.kept_bytes <= cost.peak_bytes
    assert cost.peak_bytes <= cost.saved_bytes


@pytest.mark.parametrize(
    ("beside", "rebuilt"),
    [
        ({}, 12),
        ({"behind_bytes": 3}, 9),
        ({"copied_bytes": 2}, 14),  # more than plain training holds of it
        ({"behind_bytes": 3, "copied_bytes": 2}, 11),
    ],
)
def test_a_core_is_run_again_layer_by_layer_right_before_its_backward(beside, rebuilt):
    """12 bytes a layer, 5 of them the core's; the core costs 4, of which early stop leaves out 1.
    Rebuilt, a layer holds less what lies behind the core, and copies; and the one before it 7."""
    layer = Layer("", 2, 12, 10, 20, 5, 4, 0, 1, **beside)
    cost = selective(2).price(uniform(2, layer))
    assert cost.curve == (
        Moment(FORWARD, 0, 10, 7),
        Moment(FORWARD, 1, 20, 14),
        Moment(REBUILD, 1, 23, 7 + rebuilt),
        Moment(BACKWARD, 1, 43, 7),
        Moment(REBUILD, 0, 46, rebuilt),
        Moment(BACKWARD, 0, 66, 0),
    )
    assert cost.peak == cost.curve[2]
    assert (cost.recomputed, cost.recomputed_layers) == (6, 0)  # cores are no layers


@pytest.mark.parametrize(("early_stop", "less"), [(True, 1), (False, 0)])
def test_a_segment_is_run_again_from_its_first_layer_to_the_last_tensor_that_is_saved(
    early_stop, less
):
    """12 bytes a layer, 2 of them its input; a tail of 1 of 10, left out of the last alone."""
    layer = Layer("", 2, 12, 10, 20, 5, 4, 1, 1)
    again = segments(2, 1).price(uniform(2, layer), early_stop).curve
    assert again == (
        Moment(FORWARD, 0, 10, 2),
        Moment(FORWARD, 1, 20, 2),
        Moment(REBUILD, 0, 30, 12),
        Moment(REBUILD, 1, 40 - less, 24),
        Moment(BACKWARD, 1, 60 - less, 12),
        Moment(BACKWARD, 0, 80 - less, 0),
    )
    cores = selective(2).price(uniform(2, layer), early_stop).curve
    assert [moment.cost for moment in cores[2:]] == [
        *(24 - less, 44 - less, 48 - 2 * less, 68 - 2 * less)
    ]


def test_a_layer_that_costs_nothing_is_run_again_all_the_same():
    """As an embedding is: early stop leaves out a last layer that has a cost, and all of it."""
    free = uniform(2, Layer("", 1, 1, 0, 0))
    assert every_layer(2).price(free).recomputed_layers == 2
    assert every_layer(2).price(uniform(2)).recomputed_layers == 0


def test_a_step_of_nothing_has_no_shares_of_it():
    nothing = every_layer(2).price(uniform(2, Layer("", 0, 0, 0, 0)))
    shares = nothing.saved_share, nothing.share_of_forward, nothing.share_of_step
    assert shares == (0, 0, 0)


def test_mfu_does_not_count_what_hfu_does():
    cost = segments(48, 7).price(uniform(48))
    assert (cost.model_cost, cost.hardware_cost) == (144, 144 + 41)
    seconds = 185.0  # of a device that does a unit of work a second, all the time
    assert cost.hardware_cost / seconds == 1
    assert cost.model_cost / seconds == pytest.approx(0.778, abs=5e-4)


def test_a_plan_of_another_number_of_layers_is_refused():
    words = (
        "The plan is of 3 layers and the chain has 4: make them the same number; an embedding and "
        "a head are layers of their own."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(words)}$"):
        keep_all(3).price(uniform(4))


# -- what is published ---------------------------------------------------------------------------


def test_48_layers_in_7_segments():
    """The formula's 13.857 A, and the exact 12: the last segment's input is no second tensor, and
    segments of 7 come before the one of 6."""
    chain, plan = uniform(48), segments(48, 7)
    assert closed_form(chain, 7) == pytest.approx(13.857, abs=5e-4)
    assert 1 - closed_form(chain, 7) / 48 == pytest.approx(0.7113, abs=5e-5)
    cost = plan.price(chain)
    assert (cost.kept_bytes, cost.peak_bytes, cost.peak.layer) == (7, 12, 47)
    # Linear layers: early stop leaves the last of each segment out, so L - k are run again.
    assert (cost.recomputed_layers, cost.recomputed) == (41, 41)
    assert plan.price(chain, early_stop=False).recomputed_layers == 48
    assert cost.share_of_forward == pytest.approx(0.854, abs=5e-4)
    assert cost.share_of_step == pytest.approx(0.285, abs=5e-4)


def test_the_last_segment_may_be_kept_for_the_same_peak():
    chain = uniform(48)
    kept, again = segments(48, 7).keep_last().price(chain), segments(48, 7).price(chain)
    assert (kept.peak_bytes, again.peak_bytes) == (12, 12)
    assert (kept.recomputed_layers, again.recomputed_layers) == (36, 41)


def test_the_sum_is_least_at_the_square_root():
    chain = uniform(48)
    assert [closed_form(chain, k) for k in (6, 12)] == [14, 16]
    best = min(range(1, 49), key=lambda k: closed_form(chain, k))
    assert best == len(square_root(48).segments) == 7


def test_a_checkpoint_at_every_layer_keeps_all_inputs_and_not_one():
    """Published: "A bytes, and L - 1 layers run again". By the formula itself it is L + 1 and 0; of
    a transformer, all layers' inputs, one layer, and about a whole forward pass."""
    assert closed_form(uniform(48), 48) == 49
    linear = every_layer(48).price(uniform(48))
    assert (linear.peak_bytes, linear.recomputed_layers) == (48, 0)
    chain = chain_of(GPT3, 1)
    cost = between_ends(every_layer(96)).price(chain)
    layer = chain.layers[1]
    assert layer.input_bytes == 2 * 2048 * 12288
    rebuilt = max(moment.nbytes for moment in cost.curve if moment.action == REBUILD)
    mask = chain.layers[0].saved_bytes  # the embedding's
    assert rebuilt == mask + 95 * layer.input_bytes + layer.saved_bytes
    assert cost.share_of_forward == pytest.approx(1, abs=0.01)


def test_a_third_of_a_step_is_a_whole_forward_pass():
    """Published: "33 % additional forward time"."""
    cost = every_layer(12).price(uniform(12, Layer("", 1, 4, 1, 2)))
    assert cost.share_of_forward == 1
    assert cost.share_of_step == pytest.approx(1 / 3)


def test_every_fourth_of_12_layers_runs_each_layer_again_once():
    """Published: "recomputed up to three times"."""
    cost = every(12, 4).price(uniform(12, Layer("", 1, 4, 1, 2)))
    again = [moment.layer for moment in cost.curve if moment.action == REBUILD]
    assert sorted(again) == list(range(12))


def test_every_fourth_layer_saves_a_factor_of_three():
    """Published: "every 4 layers, so 4 times less"."""
    chain = uniform(48)
    assert 48 / closed_form(chain, 12) == 3
    assert 48 / every(48, 4).price(chain).peak_bytes == pytest.approx(3.2)


def test_what_is_saved_depends_on_layers_and_segments():
    """Published: 10 times, over 70 %, 71 %, 75 %, 60 to 80 %, 50 to 90 %, as if of recomputation."""
    shares = {
        "linear": square_root(12).price(uniform(12)).saved_share,
        "deep": square_root(200).price(uniform(200)).saved_share,
        "core": between_ends(selective(96)).price(chain_of(GPT3, 1)).saved_share,
        "full": between_ends(every_layer(96)).price(chain_of(GPT3, 1)).saved_share,
    }
    rounded = {name: round(share, 2) for name, share in shares.items()}
    assert rounded == {"linear": 0.5, "deep": 0.86, "core": 0.7, "full": 0.97}


# -- the chain of a transformer ------------------------------------------------------------------

CUTS: list[dict[str, Any]] = [{}, {"tensor_parallel": 4}, {"tensor_parallel": 4, "flash": True}]


@pytest.mark.parametrize("name", ["gpt3-175b", "llama2-7b", "gpt2-small"])
@pytest.mark.parametrize("sequence_parallel", [False, True])
@pytest.mark.parametrize("dropout", [False, True])
@pytest.mark.parametrize("cut", CUTS, ids=str)
def test_the_chain_keeps_what_the_memory_formulas_say(name, sequence_parallel, dropout, cut):
    spec = CATALOGUE[name]
    options = cut | {"sequence_parallel": sequence_parallel, "dropout": dropout}
    chain = chain_of(spec, 2, **options)
    n = spec.layers
    for plan, recompute in (
        (keep_all(n), "none"),
        (selective(n), "selective"),
        (every_layer(n), "full"),
    ):
        said = activations(spec, 2, recompute=recompute, **options)
        cost = between_ends(plan).price(chain)
        assert cost.kept_bytes == said.everything
        # Its peak adds the layer that is rebuilt to what the head keeps, which is gone by then.
        assert cost.peak_bytes <= said.peak
    flops = spec.training_flops(2) / options.get("tensor_parallel", 1)
    assert chain.forward + chain.backward == pytest.approx(flops)


def test_the_chain_of_a_model_is_named_and_splits_no_sequence_unless_told():
    chain = chain_of(SMALL, 1, 4)
    names = [layer.name for layer in chain.layers]
    assert names == ["embedding", "layer 0", "layer 1", "layer 2", "layer 3", "head"]
    whole = 2 * SMALL.sequence * SMALL.hidden
    assert [layer.input_bytes for layer in chain.layers] == [0, *[whole] * 5]
    assert chain.layers[0] == Layer("embedding", 0, whole // 2, 0, 0)  # a mask of a byte each


def test_flash_attention_has_no_core_to_drop():
    layer = chain_of(SMALL, 1, flash=True).layers[1]
    assert (layer.core_bytes, layer.core, layer.core_tail) == (0, 0, 0)


def test_a_batch_that_is_none_is_refused_by_its_name():
    with pytest.raises(ValueError, match=r"^batch is 0"):
        chain_of(SMALL, 0)
    with pytest.raises(ValueError, match="3"):
        chain_of(SMALL, 1, 3)


# -- laws ----------------------------------------------------------------------------------------

KORTHIKANTI = {name: CATALOGUE[f"megatron-{name}"] for name in ("22b", "175b", "530b", "1t")}


@pytest.mark.parametrize(("name", "saved", "flops"), [("175b", 0.70, 0.027), ("530b", 0.65, 0.016)])
def test_dropping_the_core_saves_and_costs_what_its_paper_prints(name, saved, flops):
    """Korthikanti et al. 2022, section 5: 70 % and 65 % of the bytes for 2.7 % and 1.6 % of FLOPs,
    which are those of a forward pass: of a step it is a third of that."""
    spec = KORTHIKANTI[name]
    assert core_bytes_share(spec).exact == pytest.approx(saved, abs=0.005)
    assert 3 * core_flops_share(spec).law == pytest.approx(flops, abs=0.0005)
    core = core_flops_share(spec)
    assert core.exact == pytest.approx(core.law, rel=0.01)
    assert core_bytes_share(spec).error == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("name", KORTHIKANTI)
def test_both_techniques_together_leave_a_fifth(name):
    """The abstract: 5 times less with both."""
    parts = against_tensor_parallel(KORTHIKANTI[name], 8)
    assert 1 / parts["both"] == pytest.approx(5.5, abs=0.8)
    assert 0.07 < parts["full"] < 0.1


@pytest.mark.parametrize("name", KORTHIKANTI)
def test_what_is_done_beside_tensor_parallelism_leaves_what_its_paper_tabulates(name):
    """Korthikanti et al. 2022, table 2: bytes of a layer by sbh, and sequences, of 8 devices."""
    spec = KORTHIKANTI[name]
    scores = 5 * spec.heads * spec.sequence / spec.hidden / 8
    alone = 10 + 24 / 8 + scores
    assert against_tensor_parallel(spec, 8) == pytest.approx(
        {
            "sequence parallel": (34 / 8 + scores) / alone,
            "selective": (10 + 24 / 8) / alone,
            "both": 34 / 8 / alone,
            "full": 2 / alone,
        }
    )


def test_full_recomputation_takes_a_third_more_and_was_measured_to_take_39_percent():
    """Korthikanti et al. 2022, table 4, a layer of the 22B model: 39 % and, of the core, 7 % (20.3 ms
    for 19.0 with sequence parallelism). FLOPs say less of both: the core's softmax and dropout are
    bound by memory, and backward is not twice as long as forward."""
    full, core = full_share(KORTHIKANTI["22b"]), core_flops_share(KORTHIKANTI["22b"])
    assert full.exact == pytest.approx(0.329, abs=5e-4)
    assert abs(full.error) < 0.015
    assert 0.39 / full.exact == pytest.approx(1.19, abs=0.01)
    assert core.law == pytest.approx(0.0175, abs=5e-5)
    assert 0.07 / core.law == pytest.approx(4, abs=0.05)


def again(name: str, device: Device | None = None) -> float:
    """What a byte of a tensor costs to be made again while all else is kept: FLOPs, or seconds."""
    rate = {"rate": device.rate("bf16"), "bandwidth": device.memory_bandwidth} if device else {}
    graph = layer_graph(GPT3, 1, **rate)
    rest = [each for each in graph.needed if each in graph.producer and each != name]
    return keeping_of(graph, rest).cost / graph.sizes[name]


def test_a_byte_costs_the_width_of_the_product_that_makes_it():
    h, d = 12288, 128
    for name, width in {
        "attention.query": h,
        "attention.key": h,
        "attention.value": h,
        "attention.probabilities": d,
        "attention.output_input": 2048,  # over the sequence
        "ffn.norm_input": h,
        "ffn.activation_input": h,
        "attention.input": 0,
        "attention.probabilities_dropped": 0,
        "ffn.input": 0,
        "ffn.down_input": 0,
    }.items():
        assert again(name) == width


def test_the_order_of_tensors_is_not_ffn_first():
    """Published the other way round: queries, keys and values take 6bsh^2 FLOPs again, the FFN's
    two products 16; and a byte of the core is far cheaper than of either, by time, too."""
    unit, flops = 2048 * 12288**2, GPT3.operations(1, 0)
    assert flops["qkv"] == 6 * unit
    assert flops["ffn_up"] + flops["ffn_down"] == 16 * unit
    core = max(again(f"attention.probabilities{part}", H100) for part in ("", "_dropped"))
    assert again("attention.query", H100) > 5 * core
    assert again("ffn.activation_input", H100) > 5 * core


def test_what_is_more_than_can_be_is_refused_by_name():
    for call, words in (
        (lambda: closed_form(uniform(4), 5), "k is 5; it must be at most 4."),
        (
            lambda: micro_batch_overhead(0.3, 1.0, 1),
            "parts is 1; it must be a whole number of at least 2.",
        ),
        (lambda: uniform(10**18), f"layers is {10**18}; it must be at most 1,000,000."),
        (lambda: smallest(uniform(10_001)), "The number of layers is 10001; it must be at most "),
    ):
        with pytest.raises(ValueError, match="^" + re.escape(words)):
            call()


@given(st.integers(1, 300))
def test_the_square_root_law_is_high_by_about_one_layer(n):
    law = square_root_peak(n)
    assert -0.01 <= law.law - law.exact < 2
    assert least_peak(n) <= law.exact
    assert least_peak(n) == pytest.approx(math.sqrt(2 * n), abs=1)


def test_a_law_says_how_far_it_is_off():
    assert Law(11, 10).error == pytest.approx(0.1)
    assert Law(0.5, 0).error == 0.5


# -- instead of recomputation --------------------------------------------------------------------


@pytest.mark.parametrize("m", [1, 3, 8, 20])
@pytest.mark.parametrize("p", [1, 2, 4, 8])
def test_more_stages_of_a_pipeline_hold_no_less(p, m):
    held = one_f_one_b(p, m).price(1.0, 2.0).peak_in_flight
    assert stage_layers(24, p, m) == 24 / p * max(held)
    if m >= p:
        assert stage_layers(24, p, m) == 24


def test_a_link_that_is_quick_enough_hides_offload_from_the_laws_width_on():
    rate, bandwidth = 4e14, 64e9
    width = width_to_offload(rate, bandwidth)
    assert width == pytest.approx(8854, abs=1)
    for factor, hidden in ((1.02, True), (0.98, False)):
        h, s = width * factor, 128
        layer = Layer("", 2 * s * h, 34 * s * h, 24 * s * h**2, 48 * s * h**2)
        step = offload_price(uniform(30, layer), Link("host", 0.0, bandwidth), rate)
        assert (step.exposed_seconds < 1e-9 * step.seconds) == hidden
        assert step.link_bytes == pytest.approx(28 * layer.saved_bytes)
        assert step.peak_bytes == pytest.approx(2 * layer.saved_bytes)


def test_with_room_for_one_layer_nothing_is_hidden():
    chain = uniform(10, Layer("", 1, 3, 1, 2))
    step = offload_price(chain, Link("host", 0.0, 3.0), 1.0, room=1)
    assert step.seconds == 30 + 2 * 9
    # Copies of 5 s, out and back, of the first of two layers alone: 1 + 5 + 1 + 2 + 5 + 2.
    two = uniform(2, Layer("", 1, 5, 1, 2))
    assert offload_price(two, Link("host", 0.0, 1.0), 1.0, room=1).seconds == 16
    assert offload_price(chain, FREE, 1.0).exposed_seconds == pytest.approx(0)
    assert offload_price(chain, Link("host", 0.0, 3.0), 1.0, room=99).link_bytes == 0


@pytest.mark.parametrize("rate", [1.0, 8.0])
@pytest.mark.parametrize("copy_seconds", [0.5, 1.5, 1.9, 2.0, 2.1, 4.0])
def test_running_again_beats_offload_where_a_copy_takes_two_forwards(copy_seconds, rate):
    """Over many layers: what offload exposes against a forward of each."""
    layer = Layer("", 1, 100, rate, 2 * rate)
    link = Link("host", 0.0, 100 / copy_seconds)
    step = offload_price(uniform(200, layer), link, rate)
    assert recompute_beats_offload(layer, rate, link) == (copy_seconds > 2)
    assert (step.exposed_seconds > 198) == (copy_seconds > 2)


def test_a_backward_as_short_as_forward_hides_less_of_a_copy():
    """Beside passes of 1 s, copies of 1.4 s there and back expose 0.8 s, of 1.6 s they expose 1.2:
    a forward lies between."""
    layer = Layer("", 1, 100, 8, 8)
    links = [Link("host", 0.0, 100 / copy_seconds) for copy_seconds in (1.4, 1.6)]
    assert [recompute_beats_offload(layer, 8.0, link) for link in links] == [False, True]


def test_recomputation_costs_as_much_as_its_overheads_at_the_break_even():
    share = every_layer(8).price(uniform(8, Layer("", 1, 4, 1, 2))).share_of_step
    each = micro_batch_overhead(share, 3.0, 5)
    assert 3.0 + 4 * each == pytest.approx(3.0 * (1 + share))
    assert micro_batch_overhead(0.5, 3.0, 2) == 1.5  # one more micro-batch


def test_planning_loads_neither_torch_nor_numpy():
    code = (
        "import sys; from dlsys.recomputation import explorer, laws, price, segments, uniform; "
        "segments(48, 7).price(uniform(48)); explorer.Choice().summary(); "
        "assert not {'torch', 'numpy', 'matplotlib'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
