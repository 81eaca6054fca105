"""What context parallelism costs, held against runs in virtual time and against its laws."""

from __future__ import annotations

import dataclasses
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib import colors

from dlsys import world
from dlsys.context_parallel import (
    draw_hidden,
    draw_memory,
    draw_rounds,
    draw_scores,
    draw_swap,
    explore,
    gathered_attention,
    layout,
    price,
    ranks_for_ulysses,
    ring_attention,
    tokens_to_hide,
    ulysses_attention,
)
from dlsys.context_parallel.explorer import Choice
from dlsys.context_parallel.ulysses import to_heads
from dlsys.hardware import LINKS, Cluster, Device, Link, dgx_h100
from dlsys.palette import COLORS
from dlsys.transformer import CATALOGUE, TransformerSpec
from dlsys.transformer.activations import activations
from dlsys.units import format_bytes, format_seconds

METHODS = {"ring": ring_attention, "gathered": gathered_attention, "ulysses": ulysses_attention}
SPEC = TransformerSpec(layers=1, hidden=64, heads=8, vocab=10, sequence=64, kv_heads=4)
RATE = 1e9
# It computes at RATE, and everything else that a device does takes no time.
DEVICE = Device("products alone", {"fp32": RATE}, memory=1e15, memory_bandwidth=1e30)
NODES = Cluster(DEVICE, 2, 2, Link("inside", 1e-6, 1e9), Link("across", 1e-5, 2e8))
LLAMA = CATALOGUE["llama3-405b"]


def ran(method, shares, where=NODES, batch=2):
    """Seconds and bytes of the busiest rank, in either pass, of the mechanism without numbers."""

    def program(comm):
        size, tokens = SPEC.head_size, shares.tokens(comm.rank)
        q, k, v = (
            torch.empty(batch, tokens, heads, size, device="meta", requires_grad=True)
            for heads in (SPEC.heads, SPEC.kv_heads, SPEC.kv_heads)
        )
        out = METHODS[method](comm, shares, q, k, v)
        forward = comm.seconds, comm.traffic.sent[comm.rank]
        comm.compute(1.0 - comm.seconds)  # backward begins on all ranks at one time
        out.backward(torch.empty_like(out))
        return forward, (comm.seconds - 1.0, comm.traffic.sent[comm.rank] - forward[1])

    found = world.simulate(program, cluster=where).results
    return [tuple(max(one[which][what] for one in found) for what in (0, 1)) for which in (0, 1)]


def priced(method, shares, where=NODES, **options):
    return price(
        shares, SPEC, where, method, RATE, batch=2, itemsize=4, whole_blocks=True,
        algorithm="default", **options,
    )  # fmt: skip


# -- priced is what ran --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["contiguous", "zigzag", "striped"])
@pytest.mark.parametrize("length", [61, 256])
@pytest.mark.parametrize("method", METHODS)
def test_a_run_sends_the_bytes_and_takes_the_seconds_of_its_price(method, kind, length):
    shares = layout(length, 4, kind)
    found = priced(method, shares)
    for (seconds, sent), one in zip(
        ran(method, shares), (found.forward, found.backward), strict=True
    ):
        assert one.bytes_per_rank == sent
        kept = 0.0
        if method == "ulysses" and one is found.backward:  # autograd has kept one of five products
            kept = one.compute_seconds / 5
        assert one.seconds - kept == pytest.approx(seconds, rel=1e-9)


def test_documents_take_the_scores_that_they_hide_off_the_price():
    whole, halves = layout(256, 4), layout(256, 4, documents=(0, 128))
    assert halves.load() != whole.load()
    assert sum(halves.load()) == 2 * sum(layout(128, 4).load())
    for shares in (whole, halves):
        spent = price(shares, SPEC, NODES, "ring", RATE).forward.compute_seconds
        flops = 4 * SPEC.heads * SPEC.head_size * max(shares.load())
        assert spent == pytest.approx(flops / RATE)
        swapped = price(shares, SPEC, NODES, "ulysses", RATE).forward.compute_seconds
        assert swapped == pytest.approx(flops / max(shares.load()) * sum(shares.load()) / 4 / RATE)


@given(ranks=st.integers(1, 8), each=st.integers(1, 50), batch=st.integers(1, 3))
@settings(max_examples=20, deadline=None)
def test_bytes_are_those_of_the_closed_forms(ranks, each, batch):
    shares, link = layout(ranks * each, ranks), Link("any", 0, 1e9)
    keys, heads = (2 * batch * each * n * SPEC.head_size for n in (SPEC.kv_heads, SPEC.heads))
    copies = 2 * batch * each * max(SPEC.kv_heads, ranks) * SPEC.head_size
    n, some = ranks, (ranks - 1) / ranks
    expected = {  # a rank's tensors of one name, and how often each leaves it
        "ring": ((n - 1) * 2 * keys, (n - 1) * 2 * keys + (n if n > 1 else 0) * 2 * keys),
        "gathered": ((n - 1) * 2 * keys, 2 * (n - 1) * 2 * keys),
        "ulysses": (some * 2 * (heads + copies), some * 2 * (heads + copies)),
    }
    for method, (forward, backward) in expected.items():
        if method == "ulysses" and ranks not in (1, 2, 4, 8):
            continue
        found = price(shares, SPEC, link, method, RATE, batch, algorithm="default")
        assert found.forward.bytes_per_rank == pytest.approx(forward)
        assert found.backward.bytes_per_rank == pytest.approx(backward)


def test_buffers_are_what_comes_from_other_ranks():
    shares = layout(64, 4)
    block = 2 * 16 * SPEC.kv_heads * SPEC.head_size * 2  # keys and values of a rank
    held = {m: price(shares, SPEC, NODES, m, RATE) for m in METHODS}
    assert held["ring"].forward.buffer_bytes == 2 * block  # here, and arriving
    assert held["ring"].backward.buffer_bytes == 5 * block  # and three of gradients
    assert held["gathered"].forward.buffer_bytes == 4 * block
    assert held["gathered"].backward.buffer_bytes == 8 * block
    swapped = 16 * 2 * (8 + 4) * SPEC.head_size * 2  # queries and results, keys and values
    assert held["ulysses"].forward.buffer_bytes == swapped
    assert held["ulysses"].backward.buffer_bytes == 2 * swapped  # and their gradients


@pytest.mark.parametrize(("ranks", "forward", "backward"), [(1, 0, 0), (2, 1, 4), (3, 2, 5)])
def test_few_ranks_hold_no_more_blocks_than_there_are(ranks, forward, backward):
    shares = layout(16 * ranks, ranks)
    block = 2 * 16 * SPEC.kv_heads * SPEC.head_size * 2
    held = price(shares, SPEC, Link("any", 0, 1e9), rate=RATE)
    assert held.forward.buffer_bytes == forward * block
    assert held.backward.buffer_bytes == backward * block


def test_a_cluster_computes_at_its_devices_peak_where_no_rate_is_given():
    shares, cluster = layout(64, 8), dgx_h100(1)
    found = price(shares, SPEC, cluster)
    assert found == price(shares, SPEC, cluster, "ring", cluster.device.rate("bf16"), 1, 2, True)
    assert found == shares.price(SPEC, cluster)
    apart = shares.price(SPEC, cluster, overlap=False)
    assert apart == price(shares, SPEC, cluster, overlap=False) != found
    assert found.seconds == found.forward.seconds + found.backward.seconds


def test_the_spans_of_a_ring_name_the_owners_of_the_keys():
    one = price(layout(64, 4, "contiguous"), SPEC, NODES, "ring", RATE).forward
    assert [[span.action for span in spans] for spans in one.compute] == [
        [(rank - step) % 4 for step in range(4)] for rank in range(4)
    ]
    gathered = price(layout(64, 4), SPEC, NODES, "gathered", RATE, algorithm="default").forward
    assert [sorted(span.action for span in spans) for spans in gathered.compute] == 4 * [
        [*range(4)]
    ]


def test_the_best_algorithm_is_one_for_the_ranks_of_the_layout():
    two = price(layout(64, 2), SPEC, Link("any", 1e-6, 1e9), "gathered", RATE).forward
    keys = 2 * 32 * SPEC.kv_heads * SPEC.head_size * 2
    assert two.bytes_per_rank == keys  # of two ranks, each sends the other what it has


def test_without_overlap_a_ring_waits_for_every_message():
    shares = layout(256, 4)
    link = Link("slow", 1e-6, 1e9)
    apart = priced("ring", shares, link, overlap=False).forward
    block = 2 * 2 * 64 * SPEC.kv_heads * SPEC.head_size * 4
    assert apart.exposed_seconds == pytest.approx(3 * link.seconds(block))
    assert priced("ring", shares, link).forward.exposed_seconds < apart.exposed_seconds
    backward = priced("ring", shares, link, overlap=False).backward  # and four of gradients
    assert backward.exposed_seconds == pytest.approx(7 * link.seconds(block))


def test_a_rank_goes_on_when_its_own_message_has_gone_and_its_left_neighbors_has_come():
    # In two nodes of two, each rank sends to the other node or receives from there.
    one = price(layout(64, 4, "contiguous"), SPEC, NODES, "ring", 1e30).forward
    block = 2 * 16 * SPEC.kv_heads * SPEC.head_size * 2
    starts = [spans[1].start for spans in one.compute]
    assert starts == pytest.approx(4 * [NODES.inter.seconds(block)])


@pytest.mark.parametrize("name", ["rate", "batch", "itemsize"])
def test_what_is_no_number_of_anything_is_refused_by_its_name(name):
    with pytest.raises(ValueError, match=f"^{name} is 0; it must"):
        price(layout(8, 2), SPEC, LINKS["nvlink4"], **{"rate": RATE, name: 0})
    if name != "batch":
        with pytest.raises(ValueError, match=f"^{name} is 0; it must"):
            tokens_to_hide(SPEC, **{"rate": RATE, "bandwidth": 1e9, name: 0})
    with pytest.raises(ValueError, match=r"^bandwidth is 0; it must"):
        tokens_to_hide(SPEC, RATE, 0)
    with pytest.raises(ValueError, match=r"^ranks is 0; it must"):
        layout(8, 0)


# -- laws ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("name", ["llama3-405b", "gpt3-175b"])
def test_a_ring_waits_below_its_law_and_not_above(name, causal):
    spec, link, n = CATALOGUE[name], Link("fabric", 0, 50e9), 4
    law = tokens_to_hide(spec, 400e12, link.bandwidth, causal)
    for factor, waits in ((0.9, True), (1.1, False)):
        shares = layout(round(n * law * factor), n)
        whole = not causal  # a block of the ring without its mask
        if whole:
            found = price(
                layout(shares.length, n, "contiguous"), spec, link, "ring", 400e12,
                whole_blocks=True,
            ).forward  # fmt: skip
            idle = found.compute[-1][-1].end - sum(s.seconds for s in found.compute[-1])
        else:
            found = price(shares, spec, link, "ring", 400e12).forward
            idle = found.exposed_seconds
        assert (idle > 1e-3 * found.compute_seconds) == waits


@pytest.mark.parametrize(
    ("heads", "kv_heads", "ranks"),
    [(128, 8, 16), (96, 96, 2), (48, 8, 8), (32, 2, 16), (16, 1, None), (8, 1, None), (6, 2, 6)],
)
def test_ulysses_sends_fewer_bytes_from_its_law_on(heads, kv_heads, ranks):
    spec = dataclasses.replace(LLAMA, heads=heads, kv_heads=kv_heads)
    assert ranks_for_ulysses(spec) == ranks
    link = Link("any", 0, 1e9)
    for n in (n for n in range(2, heads + 1) if heads % n == 0):
        if n % kv_heads and kv_heads % n:
            continue
        ring, ulysses = (
            price(layout(4 * n, n), spec, link, m, RATE, algorithm="default").bytes_per_rank
            for m in ("ring", "ulysses")
        )
        assert (ulysses < ring) == (ranks is not None and n >= ranks), n


def test_llama_3_learned_long_sequences_at_almost_the_same_rate():
    """38 % MFU at 131,072 tokens on 16 context-parallel ranks, 41 % at 8,192 (table 4)."""
    shares, cluster = layout(131_072, 16), dgx_h100(2)
    one_of_eight = dataclasses.replace(LLAMA, heads=16, kv_heads=1)  # tensor parallelism of 8
    attention = price(shares, one_of_eight, cluster, "gathered", 400e12)
    matrices = 6 * LLAMA.parameters() / LLAMA.layers / 8 * 131_072 / 16 / 400e12
    compute = matrices + attention.forward.compute_seconds + attention.backward.compute_seconds
    exposed = attention.forward.exposed_seconds + attention.backward.exposed_seconds
    assert 0.38 < 0.41 * compute / (compute + exposed) < 0.41


# -- refusals, explorer, pictures ----------------------------------------------------------------


def test_a_link_without_a_rate_is_refused():
    with pytest.raises(ValueError, match="rate is None; it must be given with a link"):
        price(layout(8, 2), SPEC, LINKS["nvlink4"])


def test_attention_is_causal_unless_said_otherwise():
    assert tokens_to_hide(LLAMA, 4e14, 5e10) == tokens_to_hide(LLAMA, 4e14, 5e10, True)
    assert tokens_to_hide(LLAMA, 4e14, 5e10) == 2 * tokens_to_hide(LLAMA, 4e14, 5e10, False)


def test_key_value_heads_that_ulysses_cannot_share_out_have_no_price():
    odd = dataclasses.replace(SPEC, heads=6, kv_heads=3, hidden=48)
    with pytest.raises(ValueError, match="3 key-value heads"):
        price(layout(8, 2), odd, LINKS["nvlink4"], "ulysses", RATE)


def test_heads_that_ulysses_cannot_share_out_have_no_price():
    with pytest.raises(ValueError, match="8 heads do not divide by a Ulysses degree of 3"):
        price(layout(8, 3), SPEC, LINKS["nvlink4"], "ulysses", RATE)


def test_the_explorer_says_in_words_what_its_rows_hold():
    choice = Choice(ranks=8, length=32768)
    words = choice.summary()
    for row in choice.rows():
        for said in (format_seconds(row.exposed), format_bytes(row.sent)):
            assert said in words
    assert [row.method for row in choice.rows()] == ["ring", "gathered", "ulysses"]
    few = explore(model="gpt2-xl", ranks=8).choice
    assert [row.method for row in few.rows()] == ["ring", "gathered"]
    assert "cannot share out 25 heads" in few.summary()


def test_bars_of_the_explorer_are_as_long_as_its_rows():
    choice = Choice()
    (axes,) = choice.figure().axes
    lengths = [bar.get_width() for bar in axes.patches]
    rows = choice.rows()
    expected = [1e3 * row.compute for row in rows] + [1e3 * row.exposed for row in rows]
    assert lengths == pytest.approx(expected)


def test_a_picture_has_every_score_once_in_the_color_of_its_rank():
    shares = {kind: layout(40, 4, kind, (0, 10)) for kind in ("contiguous", "zigzag")}
    for axes, one in zip(draw_scores(shares).axes, shares.values(), strict=True):
        assert sum(bar.get_width() for bar in axes.patches) == sum(one.load())
        areas = {}
        for bar in axes.patches:
            color = bar.get_facecolor()
            areas[color] = areas.get(color, 0) + bar.get_width()
        assert sorted(areas.values()) == sorted(one.load())


def test_a_layout_draws_itself():
    shares = layout(16, 2)
    (axes,) = shares.draw().axes
    assert "16 tokens on 2 ranks" in axes.get_title(loc="left") + axes.get_title()
    assert sum(bar.get_width() for bar in axes.patches) == sum(shares.load())


def test_a_picture_of_rounds_has_a_bar_for_each_span():
    one = price(layout(64, 4, "contiguous"), SPEC, NODES, "ring", RATE).forward
    (axes,) = draw_rounds({"contiguous": one}).axes
    assert len(axes.patches) == 4 + 3 + 2 + 1  # rank r sees the keys of r + 1 ranks
    ends = [bar.get_x() + bar.get_width() for bar in axes.patches]
    assert max(ends) == pytest.approx(1e6 * one.compute[-1][-1].end)  # microseconds


def test_the_picture_of_hiding_has_the_times_that_a_ring_is_priced_at():
    spec, rate = CATALOGUE["llama3-8b"], 400e12
    half = tokens_to_hide(spec, rate, 50e9) / 2
    few, many = draw_hidden(spec, rate, 50e9, 4).axes
    for axes, tokens in ((few, half), (many, 4 * half)):
        shares = layout(4 * round(tokens), 4)
        priced = price(shares, spec, Link("no latency", 0, 50e9), "ring", rate).forward
        last = max(bar.get_x() + bar.get_width() for bar in axes.patches)
        unit = {"time (µs)": 1e-6, "time (ms)": 1e-3}[axes.get_xlabel()]
        assert last * unit == pytest.approx(priced.seconds, rel=2e-3)  # and half a diagonal
        waits = float(re.search(r"waits ([0-9]+)%", axes.get_title(loc="left"))[1])
        assert waits == pytest.approx(100 * priced.exposed_seconds / priced.seconds, abs=0.6)
    assert waits == 0


def test_the_swaps_picture_has_each_rank_with_what_to_heads_gives_it():
    """Three ranks mark their tile of each third of the heads, and swap: who has which then?"""

    def program(comm):
        mine = torch.full((1, 1, 3, 1), float(comm.rank))  # my token's number, under each head
        return to_heads(comm, mine).flatten().int().tolist()

    before, after = draw_swap(3).axes
    for receiver, senders in enumerate(world.simulate(program, 3).results):
        for row, sender in enumerate(senders):  # whose token each row is
            at = (receiver - 0.5, row - 0.5)
            left, right = (
                next(tile for tile in axes.patches if tile.get_xy() == at)
                for axes in (before, after)
            )
            assert colors.to_hex(left.get_facecolor()) == COLORS[sender].lower()
            assert colors.to_hex(right.get_facecolor()) == COLORS[receiver].lower()
            words = [
                text.get_text()
                for axes in (before, after)
                for text in axes.texts
                if text.get_position() == (receiver, row)
            ]
            assert words == [f"to {receiver}", f"from {sender}"]


def test_a_picture_of_memory_has_the_bytes_of_a_ranks_share_of_each_length():
    spec = CATALOGUE["llama3-8b"]
    (axes,) = draw_memory(spec, ranks=4).axes
    kept = {
        line.get_label(): dict(zip(line.get_xdata(), line.get_ydata(), strict=True))
        for line in axes.lines
    }
    one = dataclasses.replace(spec, sequence=2**15)
    assert kept["1 rank"][2**15] == activations(one, 1, flash=True) / 1e9
    assert kept["4 ranks"][2**17] == kept["1 rank"][2**15]
    full = activations(one, 1, recompute="full", flash=True)
    rebuilt = activations(one, 1, flash=True).per_layer
    peak = full + rebuilt - full.per_layer  # what enters the layer is kept, and not rebuilt
    assert kept["4 ranks, all recomputed"][2**17] == peak / 1e9


def test_what_could_not_be_told_apart_is_not_drawn():
    with pytest.raises(ValueError, match="512 tokens on 4 ranks could not be told apart"):
        draw_scores({"": layout(512, 4)})
