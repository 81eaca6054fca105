"""Every mesh trains as one device does, and sends along each axis what that axis's own price says."""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import replace
from itertools import product
from math import prod

import pytest
import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from dlsys import world
from dlsys.composing_axes import ComposedGPT, Trainer, step_bytes, train
from dlsys.composing_axes.gpt import CutMoE
from dlsys.expert_parallel import MixtureGPT, count_copies
from dlsys.mesh import Mesh
from dlsys.model import GPT
from dlsys.pipeline_parallel import (
    gpipe,
    interleaved,
    one_f_one_b,
    zero_bubble,
    zero_bubble_v,
)
from dlsys.tensor_parallel import gathered
from dlsys.transformer import MixtureOfExperts, TransformerSpec

pytestmark = pytest.mark.usefixtures("one_thread")

# In double precision, and with an epsilon that gradients of rounding error stay far below.
ADAMW = {"lr": 1e-2, "eps": 1e-4}
CLOSE = {"rtol": 1e-8, "atol": 1e-10}
MOST = 0.1
# Tied and with biases; two key-value heads, which 4 and 8 ranks have copies of; a vocabulary and
# parameters that nothing divides.
SPEC = TransformerSpec(2, 8, 8, 19, 8, kv_heads=2, ffn_hidden=16, head_size=2)
SPECS = {
    "gpt2": SPEC,
    "llama": replace(SPEC, kv_heads=4, gated=True, bias=False, norm="rms", positions="rotary", tied=False),
    "mixture": replace(SPEC, moe=MixtureOfExperts(8, 2, shared=1, ffn_hidden=8)),
    "mixtral": replace(
        SPEC, gated=True, bias=False, norm="rms", positions="rotary", tied=False,
        moe=MixtureOfExperts(4, 1, ffn_hidden=8, every=2),
    ),
}  # fmt: skip


def batch(spec: TransformerSpec, rows: int) -> tuple[Tensor, Tensor]:
    stream = torch.Generator().manual_seed(0)
    tokens = torch.randint(spec.vocab, (rows, spec.sequence + 1), generator=stream)
    return tokens[:, :-1], tokens[:, 1:]


@functools.cache
def one_device(spec: TransformerSpec, rows: int, steps: int, most: float | None):
    """Losses of steps and of one pass after them, that pass's gradients, and the parameters."""
    model = (MixtureGPT if spec.moe else GPT)(spec, dtype=torch.float64)
    optimizer = torch.optim.AdamW(model.parameters(), **ADAMW)
    losses = []
    for step in range(steps + 1):
        optimizer.zero_grad()
        loss = model(*batch(spec, rows))
        loss.backward()
        losses.append(loss.item())
        if step < steps:
            if most is not None:
                assert clip_grad_norm_(model.parameters(), most) > most
            optimizer.step()
    named = dict(model.named_parameters())
    return losses, {n: p.grad for n, p in named.items()}, {n: p.detach() for n, p in named.items()}


@torch.no_grad()
def whole(trainer: Trainer) -> dict[str, Tensor]:
    """The parameters of this rank's stages by their one-device names; all ranks call it."""
    found = {}
    for number, stage in trainer.stages.items():
        module = getattr(trainer.groups.get(number), "module", None)
        named = module.full_parameters() if module else dict(stage.named_parameters())
        for name, mine in named.items():
            name = name.replace(".module.", ".")
            mine = gathered(trainer.model, name, mine)
            found[name] = trainer.axes.ep.all_gather(mine) if ".experts." in name else mine
    return found


def program(comm, mesh, spec, rows, steps, options):
    """As `one_device`, with what this rank sent in the first step, and the experts it chose then."""
    trainer = Trainer(comm, mesh, spec, dtype=torch.float64, **ADAMW, **options)
    chosen = choices(trainer)
    tokens, before = batch(spec, rows), sent(comm)
    losses = [trainer.step(*tokens)]
    nbytes, first = sent(comm) - before, list(chosen)
    losses += [trainer.step(*tokens) for _ in range(steps - 1)]
    parameters = whole(trainer)
    losses.append(trainer.backward(*tokens))
    for shard, _ in trainer.shards():  # to see gradients whole, have them take the weights' way
        shard.data.copy_(shard.grad)
    for group in trainer.groups.values():
        group.gather()
    return losses, whole(trainer), parameters, nbytes, first


def choices(trainer: Trainer) -> list[list[list[int]]]:
    """What each token of each mixture's pass forward will choose."""
    found = []
    for stage in trainer.stages.values():
        for mixture in [m for m in stage.modules() if isinstance(m, CutMoE)]:

            def note(_, args, scores, k=mixture.k):
                if torch._C._current_graph_task_id() == -1:  # not one that runs again
                    found.append(scores.topk(k).indices.tolist())

            mixture.router.register_forward_hook(note)
    return found


def sent(comm) -> Counter[str]:
    """Bytes that this rank has sent so far, by axis."""
    if not hasattr(comm, "traffic"):
        return Counter()
    mine = (m for m in comm.traffic.messages if m.src == comm.rank)
    return sum((Counter({m.axis: m.nbytes}) for m in mine), Counter())


@functools.cache
def trained(mesh: Mesh, spec: TransformerSpec, rows: int, steps: int, options: tuple):
    return world.simulate(program, mesh.size, args=(mesh, spec, rows, steps, dict(options))).results


def assert_trains_as_one_device(mesh, spec, rows, steps=1, **options):
    results = trained(mesh, spec, rows, steps, tuple(options.items()))
    assert_same(results, one_device(spec, rows, steps, options.get("max_norm")))
    return results


def assert_same(results, expected):
    losses, gradients, parameters = expected
    for found, found_gradients, found_parameters, *_ in results:
        torch.testing.assert_close(found, losses, **CLOSE)
        for name, gradient in found_gradients.items():
            torch.testing.assert_close(gradient, gradients[name], **CLOSE, msg=name)
            torch.testing.assert_close(found_parameters[name], parameters[name], **CLOSE, msg=name)
    assert set().union(*(result[1] for result in results)) == set(parameters)


def assert_sends_its_price(results, mesh, spec, rows, **options):
    """Byte for byte. Copies that left are counted from what was chosen, not from messages."""
    leaving = 0
    for group in mesh.groups("ep") if spec.moe else ():
        if not mesh.coordinates(group[0])["tp"]:  # others send the same
            for each in zip(*(results[rank][4] for rank in group), strict=True):
                leaving += count_copies(each, spec.moe.experts).leaving
    schedule = options.pop("schedule", one_f_one_b)
    plan = schedule(mesh.pp, options.pop("micro_batches", 1))
    clips = options.pop("max_norm", None) is not None
    priced = step_bytes(
        spec, mesh, rows, plan=plan, itemsize=8, state_itemsize=8, clips=clips, leaving=leaving,
        **options,
    )  # fmt: skip
    assert sum((result[3] for result in results), Counter()) == priced


def meshes(size: int, experts: int = 1) -> list[Mesh]:
    """All of this size whose expert degree divides `experts`."""
    divisors = [d for d in range(1, size + 1) if size % d == 0]
    return [
        Mesh(dp, pp, cp, tp, ep)
        for dp, pp, cp, tp in product(divisors, repeat=4)
        if prod((dp, pp, cp, tp)) == size
        for ep in divisors
        if dp * cp % ep == 0 and experts % ep == 0
    ]


def case(number: int, mesh: Mesh, name: str):
    """A mesh with settings that change from case to case."""
    layers = max(2, mesh.pp - 2)  # as many pieces as stages
    options = {
        "schedule": (gpipe, one_f_one_b, zero_bubble)[number % 3],
        "micro_batches": 2 if mesh.pp > 1 else 1 + number % 2,
        "zero_stage": number % 4,
        "recompute": number % 5 < 2,
        "max_norm": MOST,
        **({"sequence_parallel": True} if name == "llama" and 8 // mesh.cp % mesh.tp == 0 else {}),
    }
    spec = replace(SPECS[name], layers=layers)
    return pytest.param(mesh, spec, 2 * mesh.dp, options, id=f"{name} {mesh}")


EVERY = [case(i, mesh, "gpt2") for i, mesh in enumerate(meshes(8))]
EVERY += [case(i + 1, mesh, "llama") for i, mesh in enumerate(meshes(8)) if mesh.tp <= 4]
EVERY += [case(i, mesh, "mixture") for i, mesh in enumerate(meshes(8, 8))]
LARGER = [
    case(1, Mesh(2, 2, 2, 2), "gpt2"),
    case(3, Mesh(2, 2, 2, 2), "llama"),
    case(2, Mesh(2, 2, 2, 2, ep=4), "mixture"),
    case(3, Mesh(4, 1, 2, 2, ep=2), "mixtral"),
    case(3, Mesh(3, 2, 2, 2), "gpt2"),
    case(2, Mesh(3, 1, 2, 4, ep=2), "mixture"),
]


@pytest.mark.parametrize(("mesh", "spec", "rows", "options"), EVERY + LARGER)
def test_a_mesh_trains_as_one_device_and_sends_its_price(mesh, spec, rows, options):
    results = assert_trains_as_one_device(mesh, spec, rows, **options)
    assert_sends_its_price(results, mesh, spec, rows, **options)


def test_the_meshes_of_8_ranks_are_all_there_are():
    assert len(meshes(8)) == 20  # 3 twos dealt to 4 axes
    assert len(meshes(8, 8)) == 50
