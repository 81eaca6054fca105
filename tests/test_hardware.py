import dataclasses
import pickle
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsys.hardware import DEVICES, LINKS, Cluster, Device, Link, dgx_a100, dgx_b200, dgx_h100

FREE = Link("free", latency=0.0, bandwidth=1e9)


@pytest.mark.parametrize(
    ("device", "number_format", "ridge"),
    [("a100-80", "bf16", 153.0), ("h100-sxm", "bf16", 295.2), ("v100", "fp16", 138.9)],
)
def test_the_ridge_is_dense_flops_over_memory_bandwidth(device, number_format, ridge):
    assert DEVICES[device].ridge(number_format) == pytest.approx(ridge, abs=0.05)


def test_rounding_the_memory_bandwidth_of_an_a100_to_2_tb_a_second_moves_its_ridge_to_156():
    rounded = dataclasses.replace(DEVICES["a100-80"], memory_bandwidth=2e12)
    assert rounded.ridge("bf16") == 156.0


def test_rates_are_dense_not_doubled_for_sparsity():
    assert DEVICES["h100-sxm"].rate("bf16") == 989e12
    assert DEVICES["a100-80"].rate("bf16") == 312e12
    assert DEVICES["b200"].rate("bf16") == 2250e12


@pytest.mark.parametrize("name", DEVICES)
def test_halving_the_bits_never_makes_a_device_slower(name):
    flops = DEVICES[name].flops
    order = [flops[f] for f in ("fp32", "tf32", "bf16", "fp8") if f in flops]
    assert order == sorted(order)
    assert flops.get("fp16", flops.get("bf16")) == flops.get("bf16", flops.get("fp16"))


@pytest.mark.parametrize(
    ("link", "both_directions"),
    [("nvlink2", 300e9), ("nvlink3", 600e9), ("nvlink4", 900e9), ("nvlink5", 1800e9)],
)
def test_nvlink_carries_half_of_the_printed_total_in_one_direction(link, both_directions):
    assert LINKS[link].bandwidth * 2 == both_directions


def test_nvlink4_is_nine_times_infiniband_ndr_for_each_gpu():
    assert LINKS["nvlink4"].bandwidth / LINKS["infiniband-ndr"].bandwidth == 9
    assert LINKS["nvlink3"].bandwidth / LINKS["infiniband-hdr"].bandwidth == 12
    assert LINKS["nvlink4"].bandwidth / LINKS["ethernet-100g"].bandwidth == 36


LANES = {
    # link: (lanes, 10^9 transfers of a bit per second and lane, share that is payload)
    "nvlink2": (6 * 8, 25, 1),  # links of a V100, of 8 lanes each way
    "nvlink3": (12 * 4, 50, 1),
    "nvlink4": (18 * 2, 100, 1),
    "nvlink5": (18 * 2, 200, 1),
    "pcie3": (16, 8, 128 / 130),
    "pcie4": (16, 16, 128 / 130),
    "pcie5": (16, 32, 128 / 130),
    "infiniband-hdr": (4, 50, 1),
    "infiniband-ndr": (4, 100, 1),
    "ethernet-100g": (4, 25, 1),
}
"""From the specifications of PCI Express, InfiniBand and 802.3bj, and NVIDIA's white papers."""


@pytest.mark.parametrize("name", LANES)
def test_a_link_carries_what_its_lanes_carry_in_one_direction(name):
    lanes, rate, payload = LANES[name]
    assert LINKS[name].bandwidth == pytest.approx(lanes * rate * 1e9 / 8 * payload, rel=1e-3)


SHEETS = {
    # device: (TFLOP/s of bf16 or fp16 as printed, with sparsity, GB, TB/s, W)
    "v100": (125, False, 32 * 2**30 / 1e9, 0.9, 300),
    "a100-40": (624, True, 40, 1.555, 400),
    "a100-80": (624, True, 80, 2.039, 400),
    "h100-sxm": (1979, True, 80, 3.35, 700),
    "h100-pcie": (1513, True, 80, 2, 350),
    "h200": (1979, True, 141, 4.8, 700),
    "b200": (36_000 / 8, True, 1440 / 8, 64 / 8, 1000),
    "rtx-4090": (330.3, True, 24, 1.008, 450),
    "tpu-v4": (275, False, 32 * 2**30 / 1e9, 1.2, 192),
    "tpu-v5p": (459, False, 95, 2.765, None),
    "tpu-v5e": (197, False, 16, 0.819, None),
}


@pytest.mark.parametrize("name", DEVICES)
def test_a_device_has_the_figures_that_its_data_sheet_prints(name):
    printed, sparse, memory, bandwidth, watts = SHEETS[name]
    device = DEVICES[name]
    dense = device.flops.get("bf16") or device.rate("fp16")
    assert dense / 1e12 == pytest.approx(printed / (1 + sparse), rel=1e-3)
    assert device.memory / 1e9 == pytest.approx(memory, rel=1e-12)
    assert device.memory_bandwidth / 1e12 == pytest.approx(bandwidth, rel=1e-12)
    assert device.tdp == watts


@pytest.mark.parametrize("name", DEVICES)
def test_the_source_of_a_device_names_every_figure_how_it_was_read_and_its_year(name):
    device = DEVICES[name]
    for figure in ("rates", "memory", "bandwidth", "power"):
        assert figure in device.source
    assert re.search(r"\b20[12]\d\b", device.source)
    assert ("GiB" in device.source) == (device.memory % 2**30 == 0)
    assert ("no power is published" in device.source) == (device.tdp is None)


@pytest.mark.parametrize("name", LINKS)
def test_the_source_of_a_link_says_where_its_bandwidth_and_its_latency_are_from(name):
    bandwidth, latency = LINKS[name].source.split("; latency: ")
    assert re.match(r"bandwidth: .*(data sheet|specification|IEEE)", bandwidth)
    assert re.search(r"NCCL's tuner|an assumption for", latency)


def test_a_message_takes_latency_and_bytes_over_bandwidth():
    assert Link("x", latency=2.0, bandwidth=10.0).seconds(50) == 7.0
    assert Link("x", latency=2.0, bandwidth=10.0).seconds(0) == 2.0


def test_a_device_of_one_node_reaches_its_neighbor_on_the_inner_link():
    cluster = dgx_h100(2)
    assert cluster.size == 16
    assert [cluster.node(rank) for rank in (0, 7, 8, 15)] == [0, 0, 1, 1]
    assert cluster.link(0, 7) is LINKS["nvlink4"]
    assert cluster.link(7, 8) is LINKS["infiniband-ndr"]


@given(st.integers(1, 5), st.integers(1, 8), st.data())
def test_cards_are_shared_evenly_by_neighbors(nodes, devices, data):
    cards = data.draw(st.integers(1, devices))
    cluster = Cluster(DEVICES["a100-80"], nodes, devices, FREE, FREE, nics_per_node=cards)
    used = [cluster.nic(rank) for rank in range(devices)]
    assert used == sorted(used)
    assert set(used) == set(range(cards))
    shares = [used.count(card) for card in range(cards)]
    assert max(shares) - min(shares) <= 1
    assert [cluster.nic(rank) for rank in range(cluster.size)] == used * nodes


def test_a_device_has_its_own_card_unless_said_otherwise():
    assert [dgx_a100(1).nic(rank) for rank in range(8)] == list(range(8))


@pytest.mark.parametrize("make", [dgx_a100, dgx_h100, dgx_b200])
def test_clusters_travel_between_processes_and_serve_as_keys(make):
    cluster = make(4)
    assert pickle.loads(pickle.dumps(cluster)) == cluster
    assert {cluster: 1}[make(4)] == 1


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: Link("x", latency=-1e-6, bandwidth=1.0), "latency of link x .* at least 0"),
        (lambda: Link("x", latency=0.0, bandwidth=0.0), "bandwidth of link x .* above zero"),
        (lambda: Link("x", latency=None, bandwidth=1e9), "latency of link x in seconds is None"),
        (lambda: Link("x", latency=0.0, bandwidth="1e9"), "bandwidth of link x .* is '1e9'"),
        (lambda: FREE.seconds(-1), "nbytes is -1"),
        (lambda: Cluster(DEVICES["v100"], 1, 0, FREE, FREE), "devices_per_node is 0"),
        (lambda: Cluster(DEVICES["v100"], 1, 8, FREE, FREE, 16), "16 network cards for 8 devices"),
        (lambda: Cluster("v100", 1, 8, FREE, FREE), r"must be a Device such as DEVICES\["),
        (lambda: Cluster(DEVICES["v100"], 1, 8, 3e11, FREE), r"must be a Link such as LINKS\["),
        (lambda: dgx_h100(2).node(16), "no rank 16: 2 nodes of 8 devices have ranks 0 to 15"),
        (lambda: dgx_h100(2).link(-1, 3), "no rank -1"),
        (lambda: dgx_h100(2).link(3, 3), "Rank 3 reaches itself without a link"),
        (lambda: DEVICES["v100"].rate("bf16"), "no rate of V100 for 'bf16'; did you mean 'fp16'"),
        (lambda: Device("x", {"fp32": 0.0}, 1.0, 1.0), "fp32 rate of x"),
        (lambda: dataclasses.replace(DEVICES["v100"], tdp=-5.0), "power of V100"),
    ],
)
def test_impossible_hardware_is_refused_in_a_sentence(wrong, message):
    with pytest.raises(ValueError, match=message):
        wrong()


def test_an_unknown_device_or_link_names_the_nearest():
    with pytest.raises(KeyError, match=r"no device 'H100'; did you mean .*'h100-sxm'"):
        DEVICES["H100"]
    with pytest.raises(KeyError, match=r"no link 'infiniband'; did you mean .*'infiniband-ndr'"):
        LINKS["infiniband"]
