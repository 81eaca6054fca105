"""Devices, links and clusters as data, with a catalogue in which each figure has its source.

Three conventions hold throughout. A link's bandwidth is of ONE direction: vendors print NVLink
as the sum of both (900 GB/s for an H100), a ring sends in one (450 GB/s). A device's FLOP/s are
dense: data sheets often print twice that, for weights with 2:4 sparsity. A catalogued memory is
the vendor's figure read as SI bytes, the cautious reading (drivers report up to 7 % more), except
for the V100, whose 32 GB are counted as the 32 GiB that they are, and the TPU v4, whose vendor
prints GiB. A `source` names the figures it covers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dlsys.annotated import checked
from dlsys.checks import at_least, counts, index_of, positive, shown, unknown
from dlsys.units import Catalogue, gibibytes, gigabits_per_second, gigabytes


@checked
@dataclass(frozen=True)
class Link:
    """A way for messages: a message of n bytes takes latency + n / bandwidth seconds.

    `latency` in seconds for each message, `bandwidth` in bytes per second in ONE direction (both
    directions at once carry that much each). Raises ValueError for a negative latency or a
    bandwidth that is not above zero.
    """

    name: str
    latency: float
    bandwidth: float
    source: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        at_least(f"The latency of link {self.name} in seconds", self.latency, 0)
        positive(f"The bandwidth of link {self.name} in bytes per second", self.bandwidth)

    def seconds(self, nbytes: float) -> float:
        """Seconds that one message of `nbytes` takes with the link to itself."""
        at_least("nbytes", nbytes, 0)
        return self.latency + float(nbytes) / self.bandwidth


@checked
@dataclass(frozen=True)
class Device:
    """An accelerator: dense FLOP/s by number format, memory and its bandwidth, and power.

    `flops` maps "fp32", "tf32", "fp16", "bf16", "fp8", "int8" to dense operations per second (a
    format the device lacks is absent), `memory` is in bytes, `memory_bandwidth` in bytes per
    second, `tdp` (thermal design power, the most it may draw for long) in watts, or None where the
    vendor publishes none. Raises ValueError for a figure that is not above zero.
    """

    name: str
    flops: Mapping[str, float] = field(hash=False)
    memory: float
    memory_bandwidth: float
    tdp: float | None = None
    source: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        for number_format, rate in self.flops.items():
            what = f"flops[{number_format!r}], the {number_format} rate of {self.name} in FLOP/s,"
            positive(what, rate)
        positive(f"The memory of {self.name} in bytes", self.memory)
        positive(f"The memory bandwidth of {self.name} in bytes per second", self.memory_bandwidth)
        if self.tdp is not None:
            positive(f"tdp, the power of {self.name} in watts,", self.tdp)

    @checked
    def rate(self, number_format: str) -> float:
        """Dense FLOP/s in `number_format`; raises ValueError where the device has no such rate."""
        if number_format not in self.flops:
            raise ValueError(unknown(f"rate of {self.name} for", number_format, self.flops))
        return self.flops[number_format]

    @checked
    def ridge(self, number_format: str) -> float:
        """FLOP per byte at which compute and memory take the same time: FLOP/s / (bytes/s).

        Work of lower arithmetic intensity is bound by memory. Williams et al., 2009 (roofline).
        """
        return self.rate(number_format) / self.memory_bandwidth


@checked
@dataclass(frozen=True)
class Cluster:
    """`nodes` nodes of `devices_per_node` devices: `intra` inside a node, `inter` between nodes.

    `intra` is one device's port, `inter` ONE network card. A node has `nics_per_node` cards, one
    for each device unless said otherwise; with fewer, devices share them (see `nic`). Ranks are
    node-major: rank = node * devices_per_node + place in the node. Raises ValueError for counts
    below 1 or more cards than devices.
    """

    device: Device
    nodes: int
    devices_per_node: int
    intra: Link
    inter: Link
    nics_per_node: int | None = None

    def __post_init__(self) -> None:
        for name, value, kind, example in (
            ("device", self.device, Device, 'DEVICES["h100-sxm"]'),
            ("intra", self.intra, Link, 'LINKS["nvlink4"]'),
            ("inter", self.inter, Link, 'LINKS["infiniband-ndr"]'),
        ):
            if not isinstance(value, kind):
                raise ValueError(
                    f"{name} is {value!r}; it must be a {kind.__name__} such as {example}."
                )
        counts(self, "nodes", "devices_per_node")
        if self.nics_per_node is not None:
            counts(self, "nics_per_node")
            if self.nics_per_node > self.devices_per_node:
                raise ValueError(
                    f"{self.nics_per_node} network cards for {self.devices_per_node} devices: a "
                    "device uses one card; give `inter` the joint bandwidth of a device's cards."
                )

    @property
    def size(self) -> int:
        """Number of devices, hence of ranks."""
        return self.nodes * self.devices_per_node

    @property
    def nics(self) -> int:
        """Number of network cards in each node."""
        return self.devices_per_node if self.nics_per_node is None else self.nics_per_node

    def node(self, rank: int) -> int:
        """The node that `rank` is in; raises ValueError where there is no such rank."""
        rank = self._check("rank", rank)
        return rank // self.devices_per_node

    def nic(self, rank: int) -> int:
        """The card, from 0 to nics - 1 in its node, that `rank` uses; neighbours share cards."""
        rank = self._check("rank", rank)
        # The place in the node, scaled to the cards and rounded down: 8 on 4 give 0 0 1 1 2 2 3 3.
        return rank % self.devices_per_node * self.nics // self.devices_per_node

    def link(self, src: int, dst: int) -> Link:
        """The link on which `src` reaches `dst`; raises ValueError where src is dst."""
        src = self._check("src", src)
        dst = self._check("dst", dst)
        if src == dst:
            raise ValueError(f"Rank {src} reaches itself without a link; name two different ranks.")
        return self.intra if self.node(src) == self.node(dst) else self.inter

    def _check(self, name: str, rank: int) -> int:
        whole = index_of(rank)
        if whole is None or not 0 <= whole < self.size:
            raise ValueError(
                f"{name} is {shown(rank)}; there is no rank {shown(rank)}: {self.nodes} nodes of "
                f"{self.devices_per_node} devices have ranks 0 to {self.size - 1}."
            )
        return whole


def _device(
    name: str, memory: float, bandwidth: float, tdp: float | None, source: str, **tera: float
) -> Device:
    return Device(name, {k: v * 1e12 for k, v in tera.items()}, memory, bandwidth, tdp, source)


_AMPERE = {"fp32": 19.5, "tf32": 156.0, "fp16": 312.0, "bf16": 312.0, "int8": 624.0}
_HOPPER = {"fp32": 67.0, "tf32": 494.5, "fp16": 989.0, "bf16": 989.0, "fp8": 1979.0, "int8": 1979.0}
_HOPPER_PCIE = {"fp32": 51.0, "tf32": 378.0, "fp16": 756.0, "bf16": 756.0}
_HOPPER_PCIE |= {"fp8": 1513.0, "int8": 1513.0}
_ADA = {"fp32": 82.6, "tf32": 82.6, "fp16": 165.2, "bf16": 165.2, "fp8": 330.3, "int8": 660.6}
_BLACKWELL = {"fp32": 75.0, "tf32": 1125.0, "fp16": 2250.0, "bf16": 2250.0}
_BLACKWELL |= {"fp8": 4500.0, "int8": 4500.0}

_ALL = ": rates{}, memory (its GB read as {}), memory bandwidth and power"
_HALVED = _ALL.format(" (those with sparsity halved)", "10^9 bytes")
_V100 = "NVIDIA V100 data sheet, 2020 (SXM2 32 GB)" + _ALL.format(" (fp16: tensor cores)", "GiB")
_A100 = "NVIDIA A100 data sheet, 2021 (SXM4)" + _ALL.format(" (dense)", "10^9 bytes")
_H100_SXM = "NVIDIA H100 data sheet, 2023" + _HALVED
_H100_PCIE = "NVIDIA H100 data sheet, 2022" + _HALVED
_H200 = "NVIDIA H200 data sheet, 2024 (SXM)" + _HALVED
_RTX_4090 = (
    "NVIDIA Ada GPU architecture white paper, 2023, appendix A: rates (dense, sums in 32 bits), "
    "memory (its GB read as 10^9 bytes), memory bandwidth and power"
)
_B200 = (
    "NVIDIA B200 data sheets, 2024, an eighth of eight devices; HGX B200: rates (those with "
    "sparsity halved) and power; DGX B200: memory (its GB read as 10^9 bytes) and its bandwidth "
    "(64 TB/s for eight; the sheet of HGX B200 prints 7.7 TB/s for one)"
)
_GOOGLE = "Google Cloud documentation of TPU {}, 2023: rates, memory (in {}) and its bandwidth; {}"
_TPU_V4 = _GOOGLE.format("v4", "GiB", "power: the most measured, not a limit")
_TPU_V5P = _GOOGLE.format("v5p", "GB of 10^9 bytes", "no power is published")
_TPU_V5E = _GOOGLE.format("v5e", "GB of 10^9 bytes", "no power is published")
_V5P, _V5E = {"bf16": 459.0, "int8": 918.0}, {"bf16": 197.0, "int8": 393.0}

DEVICES: Catalogue[Device] = Catalogue(
    "device",
    {
        "v100": _device("V100", gibibytes(32), 900e9, 300.0, _V100, fp32=15.7, fp16=125.0),
        "a100-40": _device("A100 40 GB", gigabytes(40), 1555e9, 400.0, _A100, **_AMPERE),
        "a100-80": _device("A100 80 GB", gigabytes(80), 2039e9, 400.0, _A100, **_AMPERE),
        "h100-sxm": _device("H100 SXM", gigabytes(80), 3.35e12, 700.0, _H100_SXM, **_HOPPER),
        "h100-pcie": _device("H100 PCIe", gigabytes(80), 2e12, 350.0, _H100_PCIE, **_HOPPER_PCIE),
        "h200": _device("H200", gigabytes(141), 4.8e12, 700.0, _H200, **_HOPPER),
        "b200": _device("B200", gigabytes(180), 8e12, 1000.0, _B200, **_BLACKWELL),
        "rtx-4090": _device("RTX 4090", gigabytes(24), 1008e9, 450.0, _RTX_4090, **_ADA),
        "tpu-v4": _device("TPU v4", gibibytes(32), 1.2e12, 192.0, _TPU_V4, bf16=275.0, int8=275.0),
        "tpu-v5p": _device("TPU v5p", gigabytes(95), 2765e9, None, _TPU_V5P, **_V5P),
        "tpu-v5e": _device("TPU v5e", gigabytes(16), 819e9, None, _TPU_V5E, **_V5E),
    },
)

_NCCL = "; latency: what NCCL's tuner assumes for a ring step on {} (2.20, src/graph/tuning.cc, LL)"
_NVLINK = "bandwidth: half of both directions' total per GPU, NVIDIA {} data sheet" + _NCCL
_PCIE = "bandwidth: PCI Express {} specification, x16, 128b/130b coding" + _NCCL.format("PCI")
_IB = "bandwidth: NVIDIA {} data sheet, a port of {} Gb/s" + _NCCL.format("the network")


def _nvlink(generation: int, bandwidth: float, gpu: str) -> Link:
    return Link(f"NVLink {generation}", 0.6e-6, bandwidth, _NVLINK.format(gpu, "NVLink"))


LINKS: Catalogue[Link] = Catalogue(
    "link",
    {
        "nvlink2": _nvlink(2, 150e9, "V100"),
        "nvlink3": _nvlink(3, 300e9, "A100"),
        "nvlink4": _nvlink(4, 450e9, "H100"),
        "nvlink5": _nvlink(5, 900e9, "B200"),
        "pcie3": Link("PCIe 3.0 x16", 1.0e-6, 15.75e9, _PCIE.format("3.0")),
        "pcie4": Link("PCIe 4.0 x16", 1.0e-6, 31.5e9, _PCIE.format("4.0")),
        "pcie5": Link("PCIe 5.0 x16", 1.0e-6, 63.0e9, _PCIE.format("5.0")),
        "infiniband-hdr": Link(
            "InfiniBand HDR", 2.7e-6, gigabits_per_second(200), _IB.format("ConnectX-6", 200)
        ),
        "infiniband-ndr": Link(
            "InfiniBand NDR", 2.7e-6, gigabits_per_second(400), _IB.format("ConnectX-7", 400)
        ),
        "ethernet-100g": Link(
            "100 Gb Ethernet",
            20e-6,
            gigabits_per_second(100),
            "bandwidth: IEEE 802.3bj; latency: an assumption for TCP through two kernels",
        ),
        "nvme": Link(
            "NVMe drive",
            80e-6,
            3.5e9,
            "bandwidth: sequential read of a PCIe 3.0 x4 drive, as data sheets of 2018 print it; "
            "latency: an assumption for a read from flash",
        ),
    },
)


def dgx_a100(nodes: int) -> Cluster:
    """`nodes` DGX A100: eight A100 80 GB on NVLink 3, an InfiniBand HDR card for each."""
    return Cluster(DEVICES["a100-80"], nodes, 8, LINKS["nvlink3"], LINKS["infiniband-hdr"])


def dgx_h100(nodes: int) -> Cluster:
    """`nodes` DGX H100: eight H100 SXM on NVLink 4, an InfiniBand NDR card for each."""
    return Cluster(DEVICES["h100-sxm"], nodes, 8, LINKS["nvlink4"], LINKS["infiniband-ndr"])


def dgx_b200(nodes: int) -> Cluster:
    """`nodes` DGX B200: eight B200 on NVLink 5, an InfiniBand NDR card for each."""
    return Cluster(DEVICES["b200"], nodes, 8, LINKS["nvlink5"], LINKS["infiniband-ndr"])
