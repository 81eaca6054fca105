"""The laws of sharding, held against the exact price and against ranks that run."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dlsys import tensor_parallel, world
from dlsys.collectives import plan_for
from dlsys.hardware import DEVICES, LINKS, Cluster, Link, dgx_h100
from dlsys.transformer import CATALOGUE
from dlsys.zero import (
    best_degree,
    collective_seconds,
    mixed_bytes,
    overlap,
    price,
    sharding,
    step_plan,
    tokens_to_hide,
    tokens_to_offload,
)

RATE = 0.4 * DEVICES["h100-sxm"].rate("bf16")


# -- how many tokens hide it ---------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gpt2-xl", "llama2-7b", "llama2-70b"])
@pytest.mark.parametrize("link", [LINKS["nvlink4"], LINKS["infiniband-ndr"]])
@pytest.mark.parametrize("n", [2, 8, 64])
def test_with_the_tokens_of_the_law_all_but_the_ends_is_hidden_whatever_the_model(name, link, n):
    spec = CATALOGUE[name]
    link = replace(link, latency=0.0)
    elements = n * (spec.parameters() // spec.layers // n)
    plan = step_plan(3, {f"block {i}": elements for i in range(spec.layers)}, n)
    law = tokens_to_hide(RATE, link.bandwidth, n)

    def exposed(tokens: float) -> float:
        forward = 2 * plan.elements * tokens / RATE
        return overlap(plan, forward, 2 * forward, link).exposed_seconds

    one = (n - 1) / n * 2 * elements / link.bandwidth
    # A pass's first gathers are asked for two at a time, and the last reduction follows the last
    # unit: less than the collectives of two units of the model's many, with more tokens, too.
    assert exposed(1.01 * law) <= 5 * one * (1 + 1e-9)
    assert exposed(4 * law) == pytest.approx(3 * one)
    # A tenth below the law a tenth of all collectives shows, but for the ends.
    whole = price(3, 2 * plan.elements, n, link).seconds
    assert exposed(0.9 * law) > 0.09 * whole


def test_the_law_is_what_a_device_computes_while_its_link_sends_a_byte():
    h100, link = DEVICES["h100-sxm"].rate("bf16"), LINKS["nvlink4"].bandwidth
    assert tokens_to_hide(h100, link, 10**6) == pytest.approx(989e12 / 450e9, rel=1e-5)
    assert tokens_to_hide(h100, link, 1) == 0
    assert tokens_to_hide(h100, link, 8, itemsize=4) == 2 * tokens_to_hide(h100, link, 8)


# -- how far to shard ----------------------------------------------------------------------------


def step(comm: world.Communicator, elements: int, node: int, copies: bool) -> None:
    """A step's collectives, with weights on all ranks, or a copy of them in each node."""
    inside = comm.split(comm.rank // node, axis="inside")
    across = comm.split(comm.rank % node, axis="across")
    assert inside
    assert across
    parts = node if copies else comm.size
    part = torch.empty(elements // parts, dtype=torch.bfloat16, device="meta")
    for _ in range(2):
        whole = inside.all_gather(part if copies else across.all_gather(part))
    gradient = inside.reduce_scatter(whole)
    reduced = across.all_reduce(gradient) if copies else across.reduce_scatter(gradient)
    assert reduced.shape == part.shape


@pytest.mark.parametrize("copies", [True, False])
@pytest.mark.parametrize(("nodes", "node", "cards"), [(2, 2, 2), (3, 4, 4), (4, 2, 2), (2, 4, 2)])
def test_sharding_takes_and_sends_what_ranks_do(nodes, node, cards, copies):
    fast, slow = Link("fast", 1e-6, 4e8), Link("slow", 5e-6 if cards == node else 0.0, 1e8)
    cluster = Cluster(DEVICES["h100-sxm"], nodes, node, fast, slow, nics_per_node=cards)
    found = sharding(2 * 12_000, cluster, node if copies else None)
    run = world.simulate(step, cluster.size, cluster=cluster, args=(12_000, node, copies))
    assert found.seconds == pytest.approx(run.seconds)
    assert run.traffic.by_axis()["across"] == found.bytes_across * cluster.size


def test_a_copy_in_each_node_saves_a_third_of_what_crosses_nodes():
    cluster = dgx_h100(16)
    full, copies = sharding(14e9, cluster), sharding(14e9, cluster, 8)
    assert (full.shard, copies.shard) == (128, 8)
    assert copies.bytes_across == pytest.approx(2 / 3 * full.bytes_across)
    assert copies.inside == full.inside
    assert copies.across == pytest.approx(2 / 3 * full.across)


def test_one_ring_across_nodes_leaves_all_cards_but_one_idle():
    cluster = dgx_h100(16)
    ring = plan_for("all_gather", 128).price(14e9, cluster).seconds
    found = collective_seconds("all_gather", 14e9, 128, cluster)
    assert ring > 3 * found
    two = plan_for("all_gather", 16).price(14e9, dgx_h100(2)).seconds
    assert two > collective_seconds("all_gather", 14e9, 16, dgx_h100(2))
    # Not more than the fabric and all cards of a node, one after the other.
    slow = 14e9 / cluster.intra.bandwidth + 14e9 / (8 * cluster.inter.bandwidth)
    assert found == pytest.approx(slow, rel=0.1)
    assert collective_seconds("all_gather", 1e3, 4, LINKS["nvlink4"]) == (
        plan_for("all_gather", 4).price(1e3, LINKS["nvlink4"]).seconds
    )


def test_on_one_node_hybrid_and_full_are_one():
    cluster = dgx_h100(1)
    assert sharding(14e9, cluster, 8) == sharding(14e9, cluster)
    assert sharding(14e9, cluster).seconds == price(3, 14e9, 8, cluster).seconds


# -- sharding against cutting tensors ------------------------------------------------------------


@given(
    st.integers(1, 100),
    st.integers(1, 64).map(lambda k: 128 * k),
    st.integers(1, 10**5),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from([1, 2, 8]),
)
def test_a_mix_sends_what_both_prices_say(layers, hidden, each, t, groups):
    n = t * groups
    held = 2 * 12 * layers * hidden**2 / t
    alone = price(3, held, groups).bytes_per_rank
    cut = tensor_parallel.step_bytes(layers, t, each * t, hidden)
    assert mixed_bytes(layers, hidden, each * n, n, t) == pytest.approx(alone + cut)
    assert mixed_bytes(layers, hidden, each * n, n) == mixed_bytes(layers, hidden, each * n, n, 1)


@pytest.mark.parametrize("tokens_per_device", [100, 1000, 10_000, 36_863, 36_865, 100_000])
def test_no_degree_sends_less_than_that_of_the_law(tokens_per_device):
    hidden, n, layers = 8192, 4096, 80
    tokens = tokens_per_device * n

    def sent(t: int) -> float:
        return mixed_bytes(layers, hidden, tokens, n, t)

    best = best_degree(hidden, tokens, n)
    least = min((2**k for k in range(13)), key=sent)
    assert least / math.sqrt(2) <= best * (1 + 1e-9) <= least * math.sqrt(2) * (1 + 1e-9)
    assert (best > 1) == (tokens_per_device < 4.5 * hidden)


# -- offload -------------------------------------------------------------------------------------


def test_offload_hides_when_both_directions_of_the_host_link_take_no_longer_than_computing():
    pcie = LINKS["pcie5"].bandwidth
    tokens = tokens_to_offload(RATE, pcie)
    parameters = 7e9
    assert 2 * parameters / pcie == pytest.approx(6 * parameters * tokens / RATE)
    assert round(tokens_to_offload(DEVICES["h100-sxm"].rate("bf16"), pcie)) == 5233


def test_what_no_law_holds_for_is_refused():
    with pytest.raises(ValueError, match="shard is 4; it must be 8, a node, or 16, the cluster"):
        sharding(1e9, dgx_h100(2), 4)
    with pytest.raises(ValueError, match="8 devices do not divide by a t of 3"):
        mixed_bytes(2, 64, 1e6, 8, 3)
