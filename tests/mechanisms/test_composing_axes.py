"""Every mesh trains as one device does, and sends along each axis what that axis's own price says."""

from __future__ import annotations

import functools
import re
from collections import Counter
from dataclasses import replace
from itertools import product
from math import prod

import pytest
import torch
from matplotlib.colors import to_hex
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from dlsys import world
from dlsys.composing_axes import between_nodes, draw_holders, draw_step, step_bytes, train
from dlsys.composing_axes.gpt import CutMoE
from dlsys.composing_axes.training import Trainer
from dlsys.expert_parallel import MixtureGPT, count_copies
from dlsys.hardware import dgx_h100
from dlsys.mesh import Mesh
from dlsys.model import GPT
from dlsys.palette import COLORS, GRID
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
    """Losses of steps, the first one's gradients before they are clipped, and the parameters."""
    model = (MixtureGPT if spec.moe else GPT)(spec, dtype=torch.float64)
    optimizer = torch.optim.AdamW(model.parameters(), **ADAMW)
    losses, named = [], dict(model.named_parameters())
    for step in range(steps):
        optimizer.zero_grad()
        loss = model(*batch(spec, rows))
        loss.backward()
        losses.append(loss.item())
        if not step:
            gradients = {name: p.grad.clone() for name, p in named.items()}
        if most is not None:
            assert clip_grad_norm_(model.parameters(), most) > most
        optimizer.step()
    return losses, gradients, {name: p.detach() for name, p in named.items()}


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
    tokens, start = batch(spec, rows), sent(comm)
    losses = [trainer.backward(*tokens).item()]
    first, passes = list(chosen), sent(comm)
    gradients, middle = whole_gradients(trainer), sent(comm)
    trainer.update()
    nbytes = passes - start + (sent(comm) - middle)
    losses += [trainer.step(*tokens).item() for _ in range(steps - 1)]
    return losses, gradients, whole(trainer), nbytes, first


def whole_gradients(trainer: Trainer) -> dict[str, Tensor]:
    """The gradients, which take the way of the weights, and then the weights again."""
    shards = [shard for shard, _ in trainer.shards()]
    weights = [shard.detach().clone() for shard in shards]
    found = {}
    for values in ([shard.grad for shard in shards], weights):
        for shard, value in zip(shards, values, strict=True):
            shard.data.copy_(value)
        for group in trainer.groups.values():
            group.gather()
        found = found or whole(trainer)
    return found


def choices(trainer: Trainer) -> list[list[list[int]]]:
    """What each token of each mixture's pass forward will choose."""
    found = []
    for stage in trainer.stages.values():
        for mixture in [m for m in stage.modules() if isinstance(m, CutMoE)]:

            def note(_, args, scores, k=mixture.k):
                if torch._C._current_graph_task_id() == -1:  # not one that runs again
                    found.append(scores.detach().topk(k).indices.tolist())

            mixture.router.register_forward_hook(note)
    return found


def sent(comm) -> Counter[str]:
    """Bytes that this rank has sent so far, by axis."""
    found: Counter[str] = Counter()
    for message in comm.traffic.messages:
        if message.src == comm.rank:
            found[message.axis] += message.nbytes
    return found


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
    layers = max(1 if name == "mixture" else 2, mesh.pp - 2)  # as many pieces as stages
    recompute = number % 5 < 2
    options = {
        "schedule": (gpipe, one_f_one_b, one_f_one_b if recompute else zero_bubble)[number % 3],
        "micro_batches": 2 if mesh.pp > 1 else 1 + number % 2,
        "zero_stage": number % 4,
        "recompute": recompute,
        "max_norm": MOST,
        **({"sequence_parallel": True} if name == "llama" and 8 // mesh.cp % mesh.tp == 0 else {}),
    }
    spec, rows = replace(SPECS[name], layers=layers), mesh.dp * options["micro_batches"]
    return pytest.param(mesh, spec, rows, options, id=f"{name} {mesh}")


EVERY = [case(i, mesh, "gpt2") for i, mesh in enumerate(meshes(8))]
EVERY += [case(i + 1, mesh, "llama") for i, mesh in enumerate(meshes(8)) if i % 2 and mesh.tp < 8]
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


# -- settings, on three axes of two ranks --------------------------------------------------------

CUBE, SPARSE_CUBE = Mesh(dp=2, pp=2, tp=2), Mesh(dp=2, cp=2, tp=2, ep=2)
V_SHAPED = {"schedule": zero_bubble_v, "micro_batches": 2}


def looping(p, m):
    return interleaved(p, m, 2)


@pytest.mark.parametrize("zero_stage", range(4))
@pytest.mark.parametrize(("mesh", "name"), [(CUBE, "gpt2"), (SPARSE_CUBE, "mixture")], ids=str)
def test_every_stage_of_zero_trains_as_one_device_for_several_steps(mesh, name, zero_stage):
    options = {"micro_batches": 2, "zero_stage": zero_stage, "max_norm": MOST}
    assert_trains_as_one_device(mesh, SPECS[name], 4, steps=3, **options)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("gpt2", {"schedule": looping, "micro_batches": 2, "zero_stage": 2}),
        ("llama", {"schedule": looping, "micro_batches": 2, "zero_stage": 3}),
        ("gpt2", {**V_SHAPED, "zero_stage": 1}),
        ("gpt2", {**V_SHAPED, "zero_stage": 2}),
        ("llama", {**V_SHAPED, "zero_stage": 3}),
        ("mixtral", {"schedule": gpipe, "micro_batches": 4, "recompute": True}),
    ],
)
def test_stages_that_go_round_or_back_train_as_one_device_and_send_their_price(name, options):
    mesh, rows = Mesh(dp=2, pp=2), 2 * options["micro_batches"]
    results = assert_trains_as_one_device(mesh, SPECS[name], rows, **options)
    assert_sends_its_price(results, mesh, SPECS[name], rows, **options)


@pytest.mark.parametrize("order", ["pp-dp-cp-tp", "dp-cp-tp-pp"])
def test_another_order_of_axes_trains_alike_and_sends_as_much(order):
    options = {"zero_stage": 2, "max_norm": MOST}
    mesh = replace(SPARSE_CUBE, order=order)
    results = assert_trains_as_one_device(mesh, SPECS["mixture"], 4, **options)
    assert_sends_its_price(results, mesh, SPECS["mixture"], 4, **options)


def test_real_processes_train_as_one_device_does():
    def real(comm):
        trainer = Trainer(comm, CUBE, SPEC, dtype=torch.float64, micro_batches=2, **ADAMW)
        losses = [trainer.step(*batch(SPEC, 4)).item() for _ in range(2)]
        return losses, whole(trainer)

    losses, _, parameters = one_device(SPEC, 4, 2, None)
    for found, mine in world.launch(real, 8).results:
        torch.testing.assert_close(found, losses, **CLOSE)
        for name, parameter in mine.items():
            torch.testing.assert_close(parameter, parameters[name], **CLOSE, msg=name)


def test_any_optimizer_that_works_element_by_element_may_update():
    def program(comm):
        options = {"optimizer": torch.optim.SGD, "lr": 0.1, "momentum": 0.9}
        return train(comm, CUBE, SPEC, [batch(SPEC, 4)] * 3, dtype=torch.float64, **options)

    model, losses = GPT(SPEC, dtype=torch.float64), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(3):
        optimizer.zero_grad()
        losses.append(model(*batch(SPEC, 4)))
        losses[-1].backward()
        optimizer.step()
    expected = [loss.item() for loss in losses]
    for found in world.simulate(program, 8).results:
        torch.testing.assert_close(found, expected, **CLOSE)


# -- precision -----------------------------------------------------------------------------------


@functools.cache
def in_bf16(mesh: Mesh, zero_stage: int):
    """Losses, and bytes of the first step."""

    def program(comm):
        options = {"compute_dtype": torch.bfloat16, "zero_stage": zero_stage, "micro_batches": 2}
        trainer = Trainer(comm, mesh, SPECS["llama"], **options, **ADAMW)
        tokens, before = batch(SPECS["llama"], 4), sent(comm)
        losses = [trainer.step(*tokens).item()]
        nbytes = sent(comm) - before
        losses += [trainer.step(*tokens).item() for _ in range(3)]
        return losses, nbytes, {shard.dtype for shard, _ in trainer.shards()}

    return world.simulate(program, mesh.size).results


@pytest.mark.parametrize("zero_stage", range(4))
def test_passes_in_16_bits_send_half_and_update_what_has_32(zero_stage):
    spec, results = SPECS["llama"], in_bf16(CUBE, zero_stage)
    plan = one_f_one_b(2, 2)
    priced = step_bytes(
        spec, CUBE, 4, plan=plan, zero_stage=zero_stage, itemsize=2, state_itemsize=4
    )
    assert sum((nbytes for _, nbytes, _ in results), Counter()) == priced
    assert all(dtypes == {torch.float32} for *_, dtypes in results)


@pytest.mark.parametrize("zero_stage", range(4))
def test_passes_in_16_bits_train_as_masters_in_32_bits_do_on_one_device(zero_stage):
    spec = SPECS["llama"]
    masters = dict(GPT(spec).named_parameters())
    model, losses = GPT(spec, dtype=torch.bfloat16), []
    optimizer = torch.optim.AdamW(masters.values(), **ADAMW)
    for _ in range(4):
        loss = model(*batch(spec, 4))
        loss.backward()
        losses.append(loss.item())
        for name, p in model.named_parameters():
            masters[name].grad, p.grad = p.grad.float(), None
        optimizer.step()
        model.load_state_dict({name: p.detach() for name, p in masters.items()})
    # Sums of ranks round in another order, to 8 bits.
    for found, *_ in in_bf16(CUBE, zero_stage):
        torch.testing.assert_close(found, losses, rtol=5e-3, atol=0)


# -- what is refused -----------------------------------------------------------------------------

REFUSED = [
    (Mesh(cp=3), SPEC, {}, "8 tokens of a sequence do not divide by a context-parallel degree of 3"),
    (Mesh(tp=3), SPEC, {}, "8 heads do not divide by a tensor-parallel degree of 3"),
    (Mesh(dp=3, ep=3), SPECS["mixture"], {}, "8 experts do not divide by an expert-parallel degree of 3"),
    (Mesh(dp=2, ep=2), SPEC, {}, "1 experts of a dense model"),
    (Mesh(cp=4, tp=4), SPEC, {"sequence_parallel": True}, "2 tokens of a context-parallel rank"),
    (Mesh(tp=2), SPECS["mixture"], {"sequence_parallel": True}, "must be False"),
    (Mesh(), SPEC, {"zero_stage": 4}, "zero_stage is 4; it must be at most 3"),
    (Mesh(pp=2), SPEC, {"schedule": zero_bubble, "recompute": True}, "use another schedule"),
    (Mesh(pp=2), SPEC, {**V_SHAPED, "zero_stage": 3}, "use stage 2, or tied=False"),
    (Mesh(pp=2), SPEC, {"micro_batches": 3}, "2 sequences do not divide into 3 micro-batches"),
]  # fmt: skip


@pytest.mark.parametrize(("mesh", "spec", "options", "words"), REFUSED)
def test_what_does_not_go_together_is_refused_in_a_sentence(mesh, spec, options, words):
    def program(comm):
        train(comm, mesh, spec, [batch(spec, 2)], **options)

    with pytest.raises(world.RankError, match=words):
        world.simulate(program, mesh.size)


DIVIDES = "{} do not divide by a {}; the nearest that work: {}."
UNPRICED = [
    (Mesh(), {"plan": one_f_one_b(2, 2)}, "plan is for 2 ranks; it must be for the 1 of the mesh's pp."),
    (Mesh(dp=3), {}, DIVIDES.format("8 sequences of batch", "number of replicas' micro-batches of 3", "2 and 4")),
    (Mesh(cp=3), {}, DIVIDES.format("8 tokens of a sequence", "context-parallel degree of 3", "2 and 4")),
    (Mesh(), {"zero_stage": 4}, "zero_stage is 4; it must be at most 3."),
]  # fmt: skip


@pytest.mark.parametrize(("mesh", "options", "words"), UNPRICED)
def test_a_step_that_cannot_be_has_no_price(mesh, options, words):
    with pytest.raises(ValueError, match=f"^{re.escape(words)}$"):
        step_bytes(SPEC, mesh, 8, **options)


def test_a_price_is_of_16_bits_beside_32_and_of_one_micro_batch_unless_said_otherwise() -> None:
    spec, mesh = replace(SPECS["gpt2"], tied=True), Mesh(pp=2, dp=2)
    said = {"zero_stage": 3, "plan": one_f_one_b(2, 1)}
    expected = step_bytes(spec, mesh, 8, itemsize=2, state_itemsize=4, **said)
    assert step_bytes(spec, mesh, 8, zero_stage=3) == expected
    assert step_bytes(spec, mesh, 8, itemsize=4, state_itemsize=4, **said) != expected
    assert step_bytes(spec, mesh, 8, itemsize=2, state_itemsize=8, **said) != expected
    assert step_bytes(spec, mesh, 8, zero_stage=3, plan=one_f_one_b(2, 2)) != expected


def test_what_leaves_a_node_of_the_whole_mesh_and_of_an_axis_of_all_to_all() -> None:
    cluster = replace(dgx_h100(2), devices_per_node=2)
    assert between_nodes({"": 12, "pp": 6, "cp": 0}, Mesh(pp=4), cluster) == {
        "": 6,
        "pp": 2,
        "cp": 0,
    }
    assert between_nodes({"cp": 12}, Mesh(cp=4), cluster) == {"cp": 6}
    words = "There is no axis 'ep'; did you mean 'tp' or 'pp' or 'cp'? Known: tp, cp, pp, data, holders."
    with pytest.raises(ValueError, match=f"^{re.escape(words)}$"):
        between_nodes({"ep": 1}, Mesh(), cluster)


@pytest.mark.parametrize("order", ["tp-cp-dp-pp", "dp-tp-cp-pp", "pp-cp-tp-dp"])
def test_what_leaves_a_node_is_counted_and_priced_alike(order: str) -> None:
    mesh, cluster = (
        Mesh(dp=2, cp=2, tp=2, pp=2, order=order),
        replace(dgx_h100(4), devices_per_node=4),
    )

    def crossing(comm):
        trainer = Trainer(comm, mesh, SPECS["llama"], zero_stage=1, dtype=torch.float64, **ADAMW)
        trainer.step(*batch(SPECS["llama"], 4))
        found: Counter[str] = Counter()
        for message in comm.traffic.messages:
            if message.axis and cluster.node(message.src) != cluster.node(message.dst):
                found[message.axis] += message.nbytes
        comm.barrier()
        return found

    found = world.simulate(crossing, mesh.size).results[0]
    sent = step_bytes(SPECS["llama"], mesh, 4, itemsize=8, state_itemsize=8)
    assert {**found} == {axis: n for axis, n in between_nodes(sent, mesh, cluster).items() if n}


def test_drawn_ranks_update_the_model_once_and_read_a_batch_once() -> None:
    mesh = Mesh(dp=2, pp=2, cp=2, tp=2)
    (axes,) = draw_holders(mesh, 8).axes
    drawn = [(p.get_facecolor(), p.get_bbox()) for p in axes.patches]
    boxes = [drawn[5 * rank : 5 * rank + 5] for rank in range(mesh.size)]

    def inside(around, part):
        """Edges of a part, as shares of what is around it."""
        x, y = around[1].x0, around[1].y0
        edges = part[1].x0 - x, part[1].y0 - y, part[1].x1 - x, part[1].y1 - y
        sides = 2 * (around[1].width, around[1].height)
        return tuple(round(edge / side, 6) for edge, side in zip(edges, sides, strict=True))

    held, updated = ([inside(box[0], box[i]) for box in boxes] for i in (1, 2))
    read = [inside(box[3], box[4]) for box in boxes]
    assert {to_hex(box[1][0]) for box in boxes} == {COLORS[0].lower()}
    assert len({*updated}) == 16
    assert {(c - a) * (d - b) for a, b, c, d in updated} == {1 / 16}
    for rank in range(mesh.size):
        left, top, right, bottom = held[rank]
        at = mesh.coordinates(rank)
        assert (left, top, right - left, bottom - top) == (at["tp"] / 2, at["pp"] / 2, 0.5, 0.5)
        assert left == updated[rank][0]
        assert top <= updated[rank][1] < updated[rank][3] <= bottom
        assert read[rank][:2] == (at["cp"] / 2, at["dp"] / 2)
        for axis, alike in {"data": held, "tp": read, "pp": read}.items():
            assert len({alike[other] for other in mesh.group(axis, rank)}) == 1
        assert len({read[other] for other in mesh.group("data", rank)}) == 4


def test_a_drawn_step_has_every_axis_where_its_calls_were() -> None:
    def program(comm):
        axes = Mesh(tp=2, dp=2, pp=2).split(comm)
        axes.tp.all_reduce(torch.ones(1000))
        comm.compute(2e-3)
        begin = comm.seconds
        comm.compute(1e-3)
        axes.data.all_reduce(torch.ones(100_000))
        if axes.pp.rank == 0:
            axes.pp.send(torch.ones(10), 1)
        else:
            axes.pp.recv(torch.ones(10), 0)
        return begin

    run = world.simulate(program, 8, link="nvlink4")
    begin = min(run.results)
    (axes,) = draw_step(run, begin).axes
    wide: dict[str, float] = {}
    for bars in axes.collections:
        for path in bars.get_paths():
            color = to_hex(bars.get_facecolor()[0])
            wide[color] = wide.get(color, 0) + path.get_extents().width / 1e3
    calls = [c.end - c.start for c in run.traffic.calls if c.axis == "data" and c.start >= begin]
    assert {COLORS[0].lower(), COLORS[2].lower()} & {*wide} == {COLORS[2].lower()}
    assert wide[COLORS[2].lower()] == pytest.approx(sum(calls))
    assert wide[GRID.lower()] == pytest.approx(8 * 1e-3)
    assert len(axes.lines) == 4
    with pytest.raises(ValueError, match="without seconds"):
        draw_step(world.simulate(lambda comm: None, 2))
