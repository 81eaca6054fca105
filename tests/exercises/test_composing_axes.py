"""The exercises on composing the axes: their figures are those of the package and of runs."""

import re
from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import permutations
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dlsys import world
from dlsys.composing_axes import between_nodes, machine, sharding_degree, step_bytes, tokens_to_hide
from dlsys.composing_axes.runs import runs_of
from dlsys.composing_axes.step_time import step_parts
from dlsys.composing_axes.training import Trainer
from dlsys.context_parallel import layout
from dlsys.grading.checks import checks_of
from dlsys.hardware import DEVICES, LINKS, Cluster, Link
from dlsys.mesh import Mesh
from dlsys.model import GPT
from dlsys.pipeline_parallel import one_f_one_b
from dlsys.transformer import CATALOGUE, TransformerSpec
from dlsys.world import Communicator
from tests.exercises import contract
from tests.exercises.notebooks import Cell, code_cells, execute, load, model_answer, solved
from tests.exercises.notebooks import run_of as run_of_notebook
from tests.exercises.wrong_answers import Wrong, bank


class TestForm(contract.Form): ...


class TestDraws(contract.Draws): ...


class TestWrongAnswers(contract.WrongAnswers): ...


class TestStructure(contract.Structure): ...


def question(name: str) -> str:
    """The text of a question."""
    cells = load("solutions", "composing_axes")["cells"]
    return {cell["id"]: "".join(cell["source"]) for cell in cells}[f"{name}-question"]


def in_order(groups: Any) -> list[list[int]]:
    return sorted(sorted(group) for group in groups)


# -- who averages with whom ----------------------------------------------------------------------


@pytest.mark.parametrize("order", ["tp-cp-dp-pp", "dp-pp-tp-cp", "pp-cp-tp-dp"])
def test_the_groups_are_those_of_the_mesh(order: str) -> None:
    groups, mesh = solved("composing_axes")["groups"], Mesh(dp=3, pp=2, cp=1, tp=5, order=order)
    sizes = {axis: getattr(mesh, axis) for axis in order.split("-")}
    for axis in sizes:
        assert in_order(groups(sizes, (axis,))) == in_order(mesh.groups(axis))
    assert in_order(groups(sizes, ("dp", "cp"))) == in_order(mesh.groups("data"))


def test_the_ranks_of_the_question_are_those_of_the_mesh() -> None:
    a, mesh = solved("composing_axes"), Mesh(dp=3, pp=2, cp=2, tp=4, ep=3)
    assert mesh.coordinates(29)["pp"] == 1
    assert a["partners"] == [*mesh.group("data", 29)]
    assert a["holders"] == [*mesh.group("holders", 29)]
    assert {a["other"], 29} == {*mesh.group("pp", 29)}
    here = mesh.coordinates(29)
    same = [mesh.coordinates(rank) for rank in range(mesh.size)]
    assert a["readers"] == sum(at["dp"] == here["dp"] and at["cp"] == here["cp"] for at in same)
    assert str({"tp": 4, "cp": 2, "dp": 3, "pp": 2}).replace("'", '"') in question("groups")


# -- place ---------------------------------------------------------------------------------------


def test_the_bytes_of_the_question_are_those_of_the_package() -> None:
    line = re.search(r"^([\d,. ]+) GB$", question("place"), re.MULTILINE)
    assert line
    sent = solved("composing_axes")["sent"]
    assert line[1].split() == [f"{sent[axis] / 1e9:,.1f}" for axis in ("tp", "cp", "pp", "data")]
    assert f"{solved('composing_axes')['MODEL'].parameters() / 1e9:.1f} billion" in question(
        "place"
    )


def test_one_order_of_all_sends_the_fewest_bytes_between_nodes() -> None:
    a = solved("composing_axes")
    found = {"-".join(one): a["crossing"]("-".join(one)) for one in permutations(a["DEGREES"])}
    least = min(found.values())
    best = {order for order, each in found.items() if each < 1.001 * least}
    assert best == {"tp-cp-pp-dp", "cp-tp-pp-dp"}  # tp and cp fill the same places
    assert a["order"] in best
    assert sorted({round(each) for each in found.values()})[1] > 1.5 * least
    assert found["tp-cp-dp-pp"] == pytest.approx(a["usual"], rel=1e-3)
    assert found["tp-dp-cp-pp"] == pytest.approx(a["dp_first"], rel=1e-3)


@pytest.mark.parametrize("times", [0.95, 1.05])
def test_the_batch_of_the_question_is_where_the_usual_order_takes_over(times: float) -> None:
    a = solved("composing_axes")
    batch = times * a["batch"] / 512
    sent = {axis: each * (1 if axis == "data" else batch) for axis, each in a["sent"].items()}
    crossing = {}
    for one in permutations(a["DEGREES"]):
        mesh = Mesh(**a["DEGREES"], order="-".join(one))
        crossing["-".join(one)] = sum(between_nodes(sent, mesh, a["cluster"]).values())
    best = min(crossing.values())
    usual_is_best = crossing["tp-cp-dp-pp"] < 1.001 * best
    assert usual_is_best == (times < 1)


# -- reports -------------------------------------------------------------------------------------

SMALL = TransformerSpec(
    layers=2, hidden=8, heads=4, vocab=16, sequence=12, ffn_hidden=32, tied=False
)
DEGREES = {"tp": 2, "cp": 3, "pp": 2}
TWO_NODES = Cluster(DEVICES["h100-sxm"], 2, 6, Link("fabric", 0.0, 4e6), Link("card", 0.0, 0.25e6))
# The order of the axes, by what the last stage divides a micro-batch's loss, and by what the
# log's is multiplied.
RUNS = {
    "right": ("tp-cp-dp-pp", 1, 1),
    "A": ("cp-pp-dp-tp", 1, 1),
    "B": ("tp-cp-dp-pp", 3, 3),  # the log adds up the losses of the context ranks
    "C": ("tp-cp-dp-pp", 4, 1),
}
CAUSES = {
    "A": "The ranks of a tensor group lie in different nodes.",
    "B": "Each rank divides its loss by all tokens of its sequences, and gradients are averaged",
    "C": "The last stage divides the loss of a micro-batch by their number, and the pipeline does",
}


def batch() -> tuple[Tensor, Tensor]:
    stream = torch.Generator().manual_seed(0)
    tokens = torch.randint(SMALL.vocab, (4, SMALL.sequence), generator=stream)
    return tokens, (tokens * 5 + 3) % SMALL.vocab


def length(model: GPT) -> float:
    """The norm of all gradients on one device."""
    return (
        torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
        .norm()
        .item()
    )


def norm_of(trainer: Trainer) -> float:
    mine = [(share * shard.grad.square()).sum().double() for shard, share in trainer.shards()]
    return trainer.axes.world.all_reduce(torch.stack(mine).sum()).sqrt().item()


def two_steps(comm: Communicator, mesh: Mesh, by: int, logged: int) -> list[float]:
    """Two losses as the log has them, and two norms."""
    trainer = Trainer(
        comm, mesh, SMALL, micro_batches=4, zero_stage=0, dtype=torch.float64,
        optimizer=torch.optim.SGD, lr=0.1,
    )  # fmt: skip
    for number, stage in trainer.stages.items():
        if number == mesh.pp - 1:
            stage.register_forward_hook(lambda module, given, loss: loss / by)
    losses, norms = [], []
    for step in range(2):
        losses.append(logged * trainer.backward(*batch()))
        norms.append(norm_of(trainer))
        if not step:
            trainer.update()
    return losses + norms


@cache
def run_of(name: str) -> Any:
    order, by, logged = RUNS[name]
    mesh = Mesh(**DEGREES, order=order)
    return world.simulate(two_steps, mesh.size, args=(mesh, by, logged))


@cache
def numbers_of(name: str) -> tuple[Counter[tuple[str, bool]], Counter[str]]:
    """Bytes by axis and by whether they leave a node, and seconds of rank 0's messages by axis."""
    nbytes, seconds = Counter[tuple[str, bool]](), Counter[str]()
    for message in run_of(name).traffic.messages:
        leaves = TWO_NODES.node(message.src) != TWO_NODES.node(message.dst)
        nbytes[message.axis, leaves] += message.nbytes
        if message.src == 0:
            link = TWO_NODES.link(message.src, message.dst)
            seconds[message.axis] += link.seconds(message.nbytes)
    return nbytes, seconds


AXES = ("tp", "cp", "pp", "data")


@pytest.mark.parametrize("name", RUNS)
def test_a_report_is_that_of_a_run(name: str) -> None:
    one, two, first, second = run_of(name).results[0]
    nbytes, seconds = numbers_of(name)
    inside, between = (
        "".join(f"{nbytes[axis, leaves] / 1e3:5.0f}" for axis in AXES) for leaves in (False, True)
    )
    times = "".join(f"{1e3 * seconds[axis]:6.2f}" for axis in AXES)
    line = f"{name:6} {one:7.4f}{two:7.4f}  {first:7.3f}{second:7.3f}  {inside}  {between}  {times}"
    assert line in question("reports")


def test_the_right_run_has_the_losses_and_norms_of_one_device() -> None:
    model = GPT(SMALL, dtype=torch.float64)
    losses: list[float] = []
    norms: list[float] = []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        loss = model(*batch())
        loss.backward()
        losses.append(loss.item())
        norms.append(length(model))
        optimizer.step()
    for result in run_of("right").results:
        assert result == pytest.approx(losses + norms)


def test_the_causes_and_factors_are_those_of_the_runs() -> None:
    a = solved("composing_axes")
    causes = dict(re.findall(r"^(\d)\. (.*)$", question("reports"), re.MULTILINE))
    assert len(causes) == 8
    for name, cause in CAUSES.items():
        assert causes[str(a[f"run_{name.lower()}"])].startswith(cause)
    right = run_of("right").results[0][2]
    assert right / run_of("B").results[0][2] == pytest.approx(a["factor_b"])
    assert right / run_of("C").results[0][2] == pytest.approx(a["factor_c"])
    longer = numbers_of("A")[1]["tp"] / numbers_of("right")[1]["tp"]
    assert a["longer_a"] == pytest.approx(longer, rel=1e-6)


@pytest.mark.parametrize("name", ["right", "A"])
def test_what_leaves_a_node_is_what_the_package_says(name: str) -> None:
    """Two steps, and for each the sum of squares besides, which is on the axis of nobody."""
    mesh = Mesh(**DEGREES, order=RUNS[name][0])
    sent = step_bytes(
        SMALL, mesh, 4, plan=one_f_one_b(2, 4), zero_stage=0, itemsize=8, state_itemsize=8
    )
    expected = between_nodes(sent, mesh, TWO_NODES)
    nbytes, _ = numbers_of(name)
    for axis in AXES:
        assert nbytes[axis, True] == 2 * expected[axis]
        assert nbytes[axis, True] + nbytes[axis, False] == 2 * sent[axis]


# -- the norm ------------------------------------------------------------------------------------


def mine(trainer: Trainer, whole: Tensor) -> Tensor:
    """My replica's rows of a batch, and of these my context rank's columns."""
    dp, cp = trainer.axes.dp, trainer.axes.cp
    columns = layout(whole.shape[1], cp.size).positions(cp.rank)
    return whole.chunk(dp.size)[dp.rank][:, columns]


@pytest.mark.parametrize(
    ("mesh", "tied"),
    [
        (Mesh(dp=2, pp=2, tp=2), True),
        (Mesh(cp=2, pp=2, tp=2), False),
        (Mesh(dp=3, tp=2), True),
    ],
)
def test_the_norm_of_the_solution_is_that_of_one_device(mesh: Mesh, tied: bool) -> None:
    norm, spec = solved("composing_axes")["norm"], replace(SMALL, tied=tied, sequence=8)
    tokens = torch.arange(6 * 9).reshape(6, 9) % spec.vocab
    tokens, targets = tokens[:, :-1], tokens[:, 1:]

    def program(comm: Communicator) -> float:
        trainer = Trainer(comm, mesh, spec, zero_stage=0, dtype=torch.float64)
        held = trainer.holders()
        trainer.pipeline.step(mine(trainer, tokens), mine(trainer, targets))
        kinds: dict[str, list[Tensor]] = {}
        for p, copies in held.items():
            assert p.grad is not None
            kind = "tied" if p in trainer.tied else "whole" if copies > 1 else "cut"
            mean = trainer.axes.data.all_reduce(p.grad, "mean")
            kinds.setdefault(kind, []).append(mean.flatten())
        return norm(comm, mesh, {kind: torch.cat(each) for kind, each in kinds.items()})

    model = GPT(spec, dtype=torch.float64)
    model(tokens, targets).backward()
    for found in world.simulate(program, mesh.size).results:
        assert found == pytest.approx(length(model))


@pytest.mark.parametrize("mistake", bank("composing_axes")["norm"], ids=lambda one: one.source)
def test_a_mistake_in_the_norm_is_told_one_cause_on_whatever_mesh(mistake: Wrong) -> None:
    """A grader runs all checks, and a cause that is a coincidence of degrees would be false."""
    cells = {cell.id: cell for cell in code_cells(load("solutions", "composing_axes"))}
    namespace = dict(run_of_notebook("composing_axes").before["norm"])
    for cell in (Cell("norm", mistake.cell(cells["norm"].source), {}), cells["norm-run"]):
        execute(cell, namespace)
    shown = [check for check in checks_of(cells["norm-test"].source) if not check.hidden]
    causes = {eval(check.expression, namespace) for check in shown} - {"right"}
    assert len(causes) == 1
    assert causes <= {*(shown[0].hint or ()), *(shown[1].hint or ())}


# -- a step --------------------------------------------------------------------------------------


def seconds_of(pp: int, m: int) -> dict[str, float]:
    """The parts of a step that the package predicts."""
    gpt = CATALOGUE["megatron-22b"]
    runs = runs_of(gpt, tp=8, dp=2, pp=pp, sequences=2, micro_batches=m, zero=1, flash=0)
    parts = step_parts(runs, machine("a100", 2 * pp))
    return {name: float(each[0]) for name, each in parts.items()}


@pytest.mark.parametrize(("pp", "m"), [(1, 4), (2, 6), (4, 16), (5, 9), (7, 21)])
def test_a_step_takes_what_the_package_predicts(pp: int, m: int) -> None:
    a, parts = solved("composing_axes"), seconds_of(pp, m)
    expected = sum(parts.values()) - parts["update"] - parts["fixed"]
    assert a["step"](**a["given"](pp, m)) == pytest.approx(expected)


def test_the_numbers_of_the_step_are_the_packages() -> None:
    a, parts, more = solved("composing_axes"), seconds_of(4, 16), seconds_of(4, 32)
    now, then = (sum(one.values()) - one["update"] - one["fixed"] for one in (parts, more))
    assert a["predicted"] == pytest.approx(now)
    assert a["waits"] == pytest.approx(parts["bubble"] / now)
    assert a["doubled"] == pytest.approx(then / now)


# -- how wide ------------------------------------------------------------------------------------


def test_the_widths_are_those_of_the_laws() -> None:
    a, rate = solved("composing_axes"), 0.6 * DEVICES["h100-sxm"].rate("bf16")
    inter, intra = LINKS["infiniband-ndr"].bandwidth, LINKS["nvlink4"].bandwidth
    assert a["tokens"] == pytest.approx(tokens_to_hide(20480, rate, inter, intra))
    over = sharding_degree(512 * a["tokens"], 512, 20480, inter, intra)
    assert a["cut"] == pytest.approx(512 / over)


def test_at_the_width_of_the_question_both_messages_take_half_of_the_products() -> None:
    a, rate = solved("composing_axes"), 0.6 * DEVICES["h100-sxm"].rate("bf16")
    h, f, x, t = 7168, 20480, a["tokens"], a["cut"]
    gathering = 4 * h * f / t / LINKS["infiniband-ndr"].bandwidth
    reducing = 4 * h * t * x / LINKS["nvlink4"].bandwidth
    assert gathering == pytest.approx(reducing)
    assert gathering + reducing == pytest.approx(4 * h * f * x / rate)


def test_sharding_alone_hides_where_products_take_as_long_as_gathering() -> None:
    a, rate = solved("composing_axes"), 0.6 * DEVICES["h100-sxm"].rate("bf16")
    h, f = 7168, 20480
    products = 2 * a["alone"] * 2 * h * f / rate  # two matrices of h x f
    gathering = 2 * 2 * h * f / LINKS["infiniband-ndr"].bandwidth
    assert products == pytest.approx(gathering)


def test_the_power_of_two_is_beside_the_best_degree_and_takes_least() -> None:
    a, inter = solved("composing_axes"), LINKS["infiniband-ndr"].bandwidth
    intra = LINKS["nvlink4"].bandwidth
    best = 512 / sharding_degree(512 * 8192, 512, 20480, inter, intra)
    assert a["power"] < best < 2 * a["power"]
    seconds = {t: 4 * 20480 / t / inter + 4 * 8192 * t / intra for t in (1, 2, 4, 8)}
    assert min(seconds, key=seconds.__getitem__) == a["power"]
    assert sorted(seconds.values())[1] > 1.1 * seconds[a["power"]]


# -- a budget ------------------------------------------------------------------------------------


def test_the_best_design_is_the_cheapest_that_is_done_in_time() -> None:
    a = solved("composing_axes")
    best = {n: a["searched"](n).best.seconds * a["STEPS"] / 86400 for n in a["CHOICES"]["nodes"]}
    in_time = {n: 8 * n * days for n, days in best.items() if days <= 25}
    assert min(in_time, key=in_time.__getitem__) == a["design"]["nodes"] == 32
    assert a["device_days"](a["design"]) == pytest.approx(in_time[32])
    assert in_time[64] > 1.1 * in_time[32]
    assert best[16] > 1.2 * 25
    assert f"{a['MODEL_36B'].parameters() / 1e9:.1f} billion" in question("budget")


def test_three_per_cent_leave_several_designs_and_not_all() -> None:
    a = solved("composing_axes")
    search = a["searched"](32)
    good = [p for p in map(search.at, search.fitting) if p.seconds <= 1.03 * search.best.seconds]
    assert len({tuple(plan.axes.values()) for plan in good}) == 3
    slow = [p for p in map(search.at, search.fitting[:200]) if p not in good]
    for plan in good + slow[:40]:
        how = {name: degree for name, degree in plan.axes.items() if name != "ep"}
        design = {"nodes": 32, **how, "sequences": plan.sequences, "zero": plan.zero}
        assert (a["verdict"](design) == "good") == (a["planned"](design) in good)


def test_memory_binds_and_saves_exchanges() -> None:
    a, search = solved("composing_axes"), solved("composing_axes")["searched"](16)
    faster = {name: x for name, x in search.binding().items() if name != "flops"}
    assert max(faster, key=faster.__getitem__) == a["binds"]
    roomier = a["roomier"](16)
    assert a["shorter"] == pytest.approx(100 * (1 - roomier.seconds / search.best.seconds))
    assert sorted(faster.values())[-2] < 1 + (faster["memory"] - 1) / 2
    saved = {name: search.best.parts[name] - each for name, each in roomier.parts.items()}
    assert saved[a["part"]] == max(saved.values()) > 3 * np.partition(list(saved.values()), -2)[-2]


# -- the answer in words -------------------------------------------------------------------------


def test_the_figures_of_the_model_answer_are_those_of_the_formula() -> None:
    text, step = model_answer("composing_axes"), solved("composing_axes")["step"]

    def seconds(pp: int, dp: int) -> float:
        gradients = 5e9 * 8 / pp
        return step(64, pp, 256 // dp, 0.010, 0.020, gradients, dp, 25e9)

    before, stages, replicas = seconds(8, 8), seconds(16, 8), seconds(8, 16)
    assert f"{1e3 * before:,.0f} ms in all" in text
    assert f"a step takes {1e3 * stages:,.0f} ms, {stages / before:.2f} of before" in text
    assert f"{1e3 * replicas:,.0f} ms, so the replicas" in text
    assert f"{60 / stages:.0f} % of it where it was {56 / before:.0f} %" in text
    moved = [5, 5] + [4] * 13 + [2]  # layers of the stages
    assert sum(moved) == 64
    slowest = max(*moved[:-1], moved[-1] + 2)
    other = 66 - slowest
    assert f"1,600 + {10 * other} + 175 = {32 * 50 + 10 * other + 175:,} ms" in text
    assert slowest == 5
    assert f"halves the bubble: {1e3 * stages - 300:,.0f} ms" in text
    assert f"{1e3 * before:,.0f} ms before and {1e3 * stages:,.0f} ms with pp 16" in text
    assert f"{1e3 * before - 350:,.0f} ms and {1e3 * stages - 175:,.0f} ms)" in text
    assert f"{1e3 * replicas:,.0f} ms with dp 16" in text
