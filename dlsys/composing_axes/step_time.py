"""How long a training step takes on a machine: each term is a chapter of this book.

A layer's passes over one micro-batch take the longer of two times: what its products, its memory
traffic and its collectives take together, and what launching its kernels takes. A stage has its
layers, the last one the head; the pipeline multiplies and adds its bubble; then come gradients and
the update. Nine constants say what data sheets do not; `calibrate` finds them in measured runs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dlsys.composing_axes.runs import Array, Runs
from dlsys.hardware import Cluster


@dataclass(frozen=True)
class Constants:
    """What of a machine stands on no data sheet.

    - products: the part of the peak FLOP/s that large products reach
    - half_work: FLOPs of a layer's forward pass on a device at which they reach half of that
      (Hockney's half-performance length)
    - passes: how often a byte that a layer keeps for backward crosses the memory's port in all
    - intra, inter: the part of a link's bandwidth that collectives reach, in and between nodes
    - latency: seconds of a collective beside its bytes
    - floor: seconds that launching a layer's kernels takes, forward and backward
    - logits: how often the 16-bit logits cross the memory's port
    - fixed: seconds of a step that depend on nothing
    - slack: what activations take in memory, in what the formula counts
    """

    products: float = 0.65
    half_work: float = 5e10
    passes: float = 6.0
    intra: float = 0.8
    inter: float = 0.85
    latency: float = 1e-4
    floor: float = 3e-3
    logits: float = 16.0
    fixed: float = 2e-2
    slack: float = 1.25


UPDATE = 30
"""Bytes a parameter that AdamW reads and writes: gradient 4, master copy and moments 12 both ways,
and the 16-bit copy 2."""
FRACTIONS = ("products", "intra", "inter")


@dataclass(frozen=True)
class Machine:
    """A cluster with the constants of its devices, and the runs that these are from.

    Without a `source` they are what is likely before any run was seen: a data sheet is no
    calibration, and `calibrate.interval` says how unsure a step's seconds then are.
    """

    cluster: Cluster
    constants: Constants = Constants()
    number_format: str = "bf16"
    source: str = ""

    def having(self, constants: Constants) -> Machine:
        """The same with other constants."""
        return replace(self, constants=constants)

    @property
    def node(self) -> int:
        """Devices of a node."""
        return self.cluster.devices_per_node

    @property
    def fast(self) -> float:
        """Bytes a second that a device sends inside its node."""
        return self.constants.intra * self.cluster.intra.bandwidth

    @property
    def card(self) -> float:
        """Bytes a second that a device sends to other nodes, with its part of the node's cards."""
        cluster = self.cluster
        return self.constants.inter * cluster.inter.bandwidth * cluster.nics / self.node

    def inside(self, members: Array, stride: Array) -> Array:
        """How many of a group's members are in one node, `stride` ranks lying between two."""
        return np.clip(self.node / stride, 1, members)

    def bandwidth(self, members: Array, stride: Array) -> Array:
        """Bytes a second that each of a group's members sends in a ring.

        Groups that lie in step share a node's cards evenly, so a group has as many of them as
        members in the node.
        """
        inside = self.inside(members, stride)
        between = np.minimum(self.fast, inside * self.card)
        return np.where(members <= inside, self.fast, between)


def step_seconds(runs: Runs, machine: Machine) -> Array:
    """Seconds of a step of each run."""
    return total(step_parts(runs, machine))


def step_parts(runs: Runs, machine: Machine) -> dict[str, Array]:
    """Seconds of a step of each run, by what they are spent on.

    - products, traffic, all_reduces, exchanges, launches, head: of the slowest stage, of
      all micro-batches; see `layer_parts`
    - bubble: what a micro-batch's way through the other stages adds
    - gradients, update, fixed: after the passes
    """
    each, head = layer_parts(runs, machine), head_seconds(runs, machine)
    one = total(each)
    computes = one - each["all_reduces"] - each["exchanges"]
    # Is the stage with the head the slowest?
    at_end = runs.last * one + head >= runs.most * one
    layers = np.where(at_end, runs.last, runs.most)
    m = runs.micro_batches
    found = {name: m * layers * seconds for name, seconds in each.items()}
    found["head"] = m * np.where(at_end, head, 0.0)
    others = (runs.layers - layers) * one + np.where(at_end, 0.0, head)
    # Narayanan et al. 2021, section 2.2.2; Qi et al. 2023, table 1, for equal thirds.
    bubbles = np.where(runs.split > 0, 1 / 3, 1 / runs.chunks)
    return found | {
        "bubble": np.where(runs.pp > 1, bubbles * others, 0.0),
        "gradients": gradient_seconds(runs, machine, computes),
        "update": UPDATE * updated(runs) / port(machine),
        "fixed": np.full(len(runs), machine.constants.fixed),
    }


def total(parts: dict[str, Array]) -> Array:
    """The sum of arrays of one length."""
    return np.sum(list(parts.values()), axis=0)


def layer_seconds(runs: Runs, machine: Machine) -> Array:
    """A micro-batch's passes through a layer, forward and backward."""
    return total(layer_parts(runs, machine))


def layer_parts(runs: Runs, machine: Machine) -> dict[str, Array]:
    """The same by what they are spent on: products of matrices, memory traffic, tensor
    parallelism's all-reduces, what rings and experts' exchanges do not hide, and by how much
    launching the kernels takes longer than all of this but the last."""
    c = machine.constants
    work = 2 * runs.weights * runs.tokens / runs.tp
    core = np.where(runs.flash > 0, 0.5, 1.0) * runs.core * runs.tokens / runs.tp
    passes = 3 + runs.recompute
    rate = c.products * machine.cluster.device.rate(machine.number_format)
    found = {
        "products": passes * (work + core) / rate * (1 + c.half_work / work),
        "traffic": passes / 3 * c.passes * kept_bytes(runs) / port(machine),
        "all_reduces": collective_seconds(runs, machine),
    }
    launches = np.maximum(passes / 3 * c.floor - total(found), 0.0)
    exchanges = exchange_seconds(runs, machine, core / rate)
    return found | {"exchanges": exchanges, "launches": launches}


def kept_bytes(runs: Runs) -> Array:
    """What a layer without recomputation keeps of a micro-batch on one device.

    Korthikanti et al. 2022 (arXiv 2205.05198), equation 2.
    """
    stream = 10 * runs.hidden / np.where(runs.sequence_parallel > 0, runs.tp, 1.0)
    row = stream + (4 * runs.hidden + 2 * runs.keys + 2 * runs.wide) / runs.tp
    return runs.tokens * (row + np.where(runs.flash > 0, 0.0, 5 * runs.scores / runs.tp))


def collective_seconds(runs: Runs, machine: Machine) -> Array:
    """All-reduces of tensor parallelism: two forward, two backward, two if forward runs again."""
    t = runs.tp
    nbytes = 4 * runs.tokens * runs.hidden * (t - 1) / t
    one = machine.constants.latency + nbytes / machine.bandwidth(t, np.ones_like(t))
    return np.where(t > 1, (4 + 2 * runs.recompute) * one, 0.0)


def exchange_seconds(runs: Runs, machine: Machine, core: Array) -> Array:
    """What of a ring of keys and of the experts' all-to-alls is not hidden.

    The ring's messages hide behind attention's products, except that each costs its latency. A rank
    sends them, and its copies, through its own card, where rings have all of a node's.
    """
    latency, again = machine.constants.latency, runs.recompute
    inside = machine.inside(runs.cp, runs.tp)
    ring = np.where(runs.cp > inside, machine.card, machine.fast)
    keys = 2 * runs.tokens * runs.keys / runs.tp * (runs.cp - 1) / ring
    late = (3 + again) * np.maximum(keys - core, 0) + (2 + again) * (runs.cp - 1) * latency
    e, inside = runs.ep, machine.inside(runs.ep, runs.tp)
    copies = 2 * runs.tokens * runs.copies * runs.hidden / e
    sent = np.maximum(copies * (e - inside) / machine.card, copies * (e - 1) / machine.fast)
    exchanges = (4 + 2 * again) * (sent + latency)
    return np.where(runs.cp > 1, late, 0.0) + np.where(e > 1, exchanges, 0.0)


def head_seconds(runs: Runs, machine: Machine) -> Array:
    """The head and the loss of a micro-batch, forward and backward."""
    c, words = machine.constants, runs.tokens * runs.vocab / runs.tp
    rate = c.products * machine.cluster.device.rate(machine.number_format)
    return 6 * words * runs.hidden / rate + c.logits * 2 * words / port(machine)


def gradient_seconds(runs: Runs, machine: Machine, layer: Array) -> Array:
    """What gradients and ZeRO send, of a parameter: in stages 0 and 1 twice a gradient's bytes
    after the passes, as an all-reduce does; in stage 2 a micro-batch's gradient to shards, and two
    bytes of new weights; in stage 3 also two of weights in 16 bits for each pass. What a
    micro-batch sends hides behind what it computes, `layer` seconds in each."""
    of_both = [runs.zero == 2, runs.zero == 3]
    each = np.select(of_both, [runs.gradient, 4 + runs.gradient], 0.0)
    once = np.select(of_both, [2.0, 0.0], 2 * runs.gradient)
    groups = (
        (shared_parameters(runs), runs.data, runs.tp),
        (expert_parameters(runs), runs.data / runs.ep, runs.tp * runs.ep),
    )
    seconds = sum(
        held * (over - 1) / over / machine.bandwidth(over, stride) for held, over, stride in groups
    )
    computes = np.maximum(runs.most, runs.last) * layer
    return runs.micro_batches * np.maximum(each * seconds - computes, 0.0) + once * seconds


def shared_parameters(runs: Runs) -> Array:
    """Parameters that every token uses, on a device of the fullest stage."""
    words = runs.vocab * runs.hidden
    apart = np.where((runs.pp > 1) | (runs.tied == 0), words, 0.0)
    inner = np.maximum(np.maximum(runs.first * runs.held + words, runs.most * runs.held), 0)
    last = runs.last * runs.held + np.where(runs.pp > 1, words, words + apart)
    return np.where(runs.pp > 1, np.maximum(inner, last), last) / runs.tp


def expert_parameters(runs: Runs) -> Array:
    """Parameters of routed experts on a device of the fullest stage."""
    return np.maximum(runs.most, runs.last) * runs.experts / runs.tp / runs.ep


def parameters(runs: Runs) -> Array:
    """Parameters on a device of the fullest stage, before ZeRO."""
    return shared_parameters(runs) + expert_parameters(runs)


def updated(runs: Runs) -> Array:
    """Parameters that a device updates, after ZeRO."""
    shared, experts = shared_parameters(runs), expert_parameters(runs)
    return np.where(
        runs.zero > 0, shared / runs.data + experts * runs.ep / runs.data, shared + experts
    )


def port(machine: Machine) -> float:
    """Bytes a second of a device's memory."""
    return machine.cluster.device.memory_bandwidth
