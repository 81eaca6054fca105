"""What a step of a composed run sends, by axis: each mechanism's own price, and how often.

All bytes are those of all ranks together. A ring among n ranks sends 2(n-1) times a buffer to
all-reduce it, and (n-1) times to gather it or to reduce it to shards.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from dlsys import context_parallel, zero
from dlsys.annotated import checked
from dlsys.checks import count, divisor, refuse_what, unknown
from dlsys.composing_axes.cut import mixture_parameters
from dlsys.expert_parallel.price import COUNT_BYTES
from dlsys.hardware import Cluster, Link
from dlsys.mesh import Mesh
from dlsys.pipeline_parallel import Plan, message_bytes, one_f_one_b, partition, piece_flops
from dlsys.tensor_parallel import layout
from dlsys.transformer import TransformerSpec

CLIP_BYTES = 8
"""Of the sum of squares that clipping sums over all ranks, in FP64."""
RINGS = ("tp", "cp", "pp", "data", "holders")
"""Axes along which each rank sends to the next."""
ANY = Link("any", 0.0, 1.0)  # bytes do not depend on it


@dataclass(frozen=True)
class Run:
    """What is trained, and how: see `step_bytes`, whose arguments these are."""

    spec: TransformerSpec
    mesh: Mesh
    batch: int
    plan: Plan
    zero_stage: int
    sequence_parallel: bool
    recompute: bool
    itemsize: int
    state_itemsize: int

    @property
    def micro_batch(self) -> int:
        """Sequences of one micro-batch of one replica."""
        return self.batch // self.mesh.dp // self.plan.m

    @property
    def tokens(self) -> int:
        """Of them each rank's tokens, all sequences together."""
        return self.micro_batch * self.spec.sequence // self.mesh.cp

    @property
    def loss_itemsize(self) -> int:
        """Bytes of a loss, which has at least FP32."""
        return max(self.itemsize, 4)

    @property
    def passes_forward(self) -> int:
        """How often each layer goes forward for a micro-batch."""
        return 1 + self.recompute

    @property
    def sparse(self) -> int:
        """Layers with a mixture of experts."""
        return self.spec.sparse_layers()


@checked
def step_bytes(
    spec: TransformerSpec,
    mesh: Mesh,
    batch: int,
    *,
    plan: Plan | None = None,
    zero_stage: int = 1,
    sequence_parallel: bool = False,
    recompute: bool = False,
    itemsize: int = 2,
    state_itemsize: int = 4,
    clips: bool = False,
    leaving: int | None = None,
) -> dict[str, int]:
    """Bytes that all ranks together send in one step of `train`, by axis; "" is the whole mesh.

    - batch: sequences of the step, over all replicas; plan: the pipeline's (None: 1F1B with one
      micro-batch), whose m micro-batches each replica's share is cut into.
    - itemsize, state_itemsize: bytes of a number in the passes, and of one that is updated.
    - clips: whether the norm of all gradients is taken.
    - leaving: copies of tokens whose expert is on another rank, in all mixtures of the step. None:
      as many as if every expert were chosen alike.
    """
    zero_stage = count("zero_stage", zero_stage, 0, 3)
    plan = one_f_one_b(mesh.pp, 1) if plan is None else plan
    if plan.p != mesh.pp:
        refuse_what("plan", f"for {plan.p} ranks", f"for the {mesh.pp} of the mesh's pp")
    batch, itemsize = count("batch", batch), count("itemsize", itemsize)
    divisor("number of replicas' micro-batches", mesh.dp * plan.m, {"sequences of batch": batch})
    divisor("context-parallel degree", mesh.cp, {"tokens of a sequence": spec.sequence})
    if leaving is not None:
        leaving = count("leaving", leaving, 0)
    run = Run(
        spec, mesh, batch, plan, zero_stage, sequence_parallel, recompute, itemsize,
        count("state_itemsize", state_itemsize),
    )  # fmt: skip
    data, holders = over_data(run)
    found = {
        "tp": over_tp(run),
        "cp": over_cp(run),
        "pp": over_pp(run),
        "ep": over_ep(run, leaving),
        "data": data,
        "holders": holders,
        "": 2 * (mesh.size - 1) * CLIP_BYTES * clips,
    }
    return {axis: nbytes for axis, nbytes in found.items() if nbytes}


@checked
def between_nodes(sent: Mapping[str, float], mesh: Mesh, cluster: Cluster) -> dict[str, float]:
    """What of the bytes of `step_bytes` leaves a node, by axis, with ranks in the mesh's order.

    Of a ring of the group's ranks, and of a pipeline's chain of stages (one a rank), every hop
    carries as much. So the part that leaves a node is that of the hops between two nodes. Raises
    ValueError for an axis on which everybody sends to everybody, as on "ep", and for too small a
    cluster.
    """
    found = {}
    for axis, nbytes in sent.items():
        if axis and axis not in RINGS:
            raise ValueError(unknown("axis", axis, RINGS))
        hops = crossings = 0
        for ranks in mesh.groups(axis) if axis else [tuple(range(mesh.size))]:
            nodes = [cluster.node(rank) for rank in ranks]
            after = nodes[1:] if axis == "pp" else [*nodes[1:], nodes[0]]
            pairs = list(zip(nodes, after, strict=False))
            hops += len(pairs)
            crossings += sum(a != b for a, b in pairs)
        found[axis] = nbytes * crossings / max(hops, 1)
    return found


def over_tp(run: Run) -> int:
    """What every layer's collectives carry, of this rank's tokens; a mixture's has k weights more.

    A layer that runs again repeats what of its forward pass anything reads: not its last sum.
    """
    spec, mesh = run.spec, run.mesh
    cut = layout(replace(spec, moe=None), mesh.tp, run.sequence_parallel)
    again = [c for c in cut.layer.forward if c.where != "ffn.output"] if run.recompute else []
    total = 0
    for call in [*cut.collectives(), *again * spec.layers]:
        nbytes = call.nbytes(run.micro_batch, run.itemsize)
        nbytes //= mesh.cp if call.batched else 1
        n = call.ranks or mesh.tp
        times = 2 * (n - 1) if call.kind == "all_reduce" else n - 1
        total += mesh.tp // n * times * nbytes
    if run.sparse and spec.moe:
        weights = run.tokens * spec.moe.experts_per_token * run.itemsize
        total += run.sparse * 2 * (mesh.tp - 1) * weights
    return total * mesh.dp * mesh.cp * run.plan.m


def over_cp(run: Run) -> int:
    """A ring in every layer, of the keys and values that a tensor-parallel rank has."""
    spec, mesh = run.spec, run.mesh
    keys = max(1, spec.kv_heads // mesh.tp)
    mine = replace(spec, heads=keys, kv_heads=keys, head_size=spec.head_size, moe=None)
    price = context_parallel.price(
        context_parallel.layout(spec.sequence, mesh.cp), mine, ANY, "ring", 1.0,
        run.micro_batch, run.itemsize,
    )  # fmt: skip
    each = run.passes_forward * price.forward.bytes_per_rank + price.backward.bytes_per_rank
    return round(each) * spec.layers * mesh.cp * mesh.tp * mesh.dp * run.plan.m


def over_pp(run: Run) -> int:
    """Messages between stages, both copies' gradients of a tied matrix, and the loss for all."""
    spec, mesh, plan = run.spec, run.mesh, run.plan
    sequence = spec.sequence // mesh.cp // (mesh.tp if run.sequence_parallel else 1)
    each = message_bytes(run.micro_batch, sequence, spec.hidden, run.itemsize)
    total = sum(plan.messages) * each * mesh.tp + (mesh.pp - 1) * run.loss_itemsize * mesh.tp
    if spec.tied and plan.placement[0] != plan.placement[-1]:
        itemsize = run.state_itemsize if run.zero_stage == 3 else run.itemsize
        total += 2 * spec.vocab * spec.hidden * itemsize
    return total * mesh.dp * mesh.cp


def over_ep(run: Run, leaving: int | None) -> int:
    """How many copies come, and the copies, out and back; in backward their gradients."""
    spec, ep = run.spec, run.mesh.ep
    if spec.moe is None or ep == 1:
        return 0
    if leaving is None:
        copies = run.batch * spec.sequence * spec.moe.experts_per_token * run.sparse
        leaving = copies * (ep - 1) // ep
    groups = run.mesh.dp * run.mesh.cp // ep
    calls = run.plan.m * run.sparse * groups * run.passes_forward
    told = (ep - 1) * spec.moe.experts * COUNT_BYTES * calls
    rows = 2 * (run.passes_forward + 1) * leaving
    return (told + rows * spec.hidden * run.itemsize) * run.mesh.tp


def over_data(run: Run) -> tuple[int, int]:
    """What ZeRO's stage sends of all parameters but experts, with the loss; and of experts."""
    mesh, n = run.mesh, run.mesh.dp * run.mesh.cp
    found = [2 * (n - 1) * run.loss_itemsize * mesh.tp, 0]
    for place in range(mesh.pp):
        for rank in range(mesh.tp):
            stages = held(run, place, rank)
            for i, (ranks, routed) in enumerate(((n, False), (n // mesh.ep, True))):
                found[i] += mesh.ep**i * shared_out(run, stages, ranks, routed)
    return found[0], found[1]


Held = dict[str, int]
"""Parameters of a pipeline stage, by name: how many numbers of each a rank holds."""


def held(run: Run, place: int, rank: int) -> list[Held]:
    """The stages of a pipeline rank, of which a tensor-parallel rank has its part."""
    pieces = partition(piece_flops(run.spec), run.plan.stages)
    return [
        {name: elements for piece in pieces[stage] for name, elements in of_piece(run, piece, rank)}
        for stage, owner in enumerate(run.plan.placement)
        if owner == place
    ]


def of_piece(run: Run, piece: int, rank: int) -> Iterator[tuple[str, int]]:
    """The parameters of a piece of the model, 0 its embedding, then its layers, and its head."""
    spec, mesh = run.spec, run.mesh
    layer = f"layers.{piece - 1}."
    starts: tuple[str, ...] = ("layers.*.",)
    if piece == 0:
        starts = ("embedding.", "positions.")
    elif piece > spec.layers:
        starts = ("norm.", "embedding." if spec.tied else "head.")
    cuts = layout(replace(spec, moe=None), mesh.tp, run.sequence_parallel).parameters
    if 0 < piece <= spec.layers and spec.is_sparse(piece - 1):
        attention = (cut for cut in cuts if ".ffn." not in cut.name)
        cuts = (*attention, *mixture_parameters(spec, mesh.tp, mesh.ep))
    for cut in cuts:
        if cut.name.startswith(starts):
            yield cut.name.replace("layers.*.", layer), math.prod(cut.shard(rank))


def shared_out(run: Run, stages: list[Held], n: int, routed: bool) -> int:
    """What n ranks send that hold these stages: of routed experts alone, or of all else."""
    parts = [{k: v for k, v in each.items() if (".experts." in k) == routed} for each in stages]
    ends = run.plan.placement[0], run.plan.placement[-1]
    tied = "embedding.weight" if run.spec.tied and ends[0] != ends[1] else ""
    if run.zero_stage == 3:
        return sum(of_weights(run, part, n, tied) for part in parts)
    every = {name: elements for part in parts for name, elements in part.items()}
    total = 0
    if tied in every:
        total = sent(run, min(run.zero_stage, 1), {tied: every.pop(tied)}, n)
    if run.zero_stage < 2:
        return total + sent(run, run.zero_stage, {"all": sum(every.values())}, n)
    for name, elements in every.items():  # a tied matrix has a gradient on each of two stages
        passes = sum(name in part for part in parts)
        total += sent(run, 2, {name: elements}, n, passes)
    return total


def of_weights(run: Run, part: Held, n: int, tied: str) -> int:
    """Stage 3: a unit for the experts or the rest of each layer, and one for the ends of the model;
    beside a tied matrix these stay whole, and are averaged as their weights are kept."""
    units: Held = {}
    rest = 0
    for name, elements in part.items():
        if name.startswith("layers."):
            block = ".".join(name.split(".")[:2])
            units[block] = units.get(block, 0) + elements
        else:
            rest += elements
    if tied in part:
        whole = zero.price(0, rest * run.state_itemsize, n).bytes_per_rank * n
        return sent(run, 3, units, n) + run.plan.m * round(whole)
    return sent(run, 3, units | ({"ends": rest} if rest else {}), n)


def sent(run: Run, stage: int, units: Held, n: int, passes: int = 1) -> int:
    """What ZeRO's stage has n ranks send of these units in a step."""
    units = {name: elements for name, elements in units.items() if elements}
    if not units:
        return 0
    if stage == 0:
        whole = sum(units.values()) * run.itemsize
        return round(zero.price(0, whole, n).bytes_per_rank * n)
    micro_batches = 1 if stage == 1 else run.plan.m * passes
    return zero.sent(zero.step_plan(stage, units, n, micro_batches), run.itemsize) * n
