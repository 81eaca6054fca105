"""The exercises on ZeRO: their figures are those of the package, and what holds for all."""

import re
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any

import pytest
import torch
from torch import nn

from dlsys import world
from dlsys.hardware import LINKS, Cluster, Link, dgx_h100
from dlsys.world import Communicator
from dlsys.zero import (
    FullyShardedDataParallel,
    ShardedOptimizer,
    StepPlan,
    collective_seconds,
    flat,
    held,
    overlap,
    price,
    sent,
    sharding,
    step_plan,
    tokens_to_hide,
)
from dlsys.zero.stages import Stage3
from tests.exercises import contract
from tests.exercises.notebooks import load, model_answer, solved


class TestForm(contract.Form): ...


class TestDraws(contract.Draws): ...


class TestWrongAnswers(contract.WrongAnswers): ...


class TestStructure(contract.Structure): ...


# -- the numbers ---------------------------------------------------------------------------------


def test_the_bytes_of_the_first_question_are_those_of_plans() -> None:
    answers, units = solved("zero"), {"all": 22_000_000_000}
    assert answers["held_1"] == pytest.approx(held(step_plan(1, units, 11)).at_rest)
    fewest = next(n for n in range(1, 99) if held(step_plan(2, units, n)).at_rest <= 60e9)
    assert answers["devices_2"] == fewest
    assert answers["sent_2"] == pytest.approx(price(2, 44e9, 11).bytes_per_rank)
    naive = price(0, 44e9, 11).bytes_per_rank * 3 / 2  # an all-reduce, and half of one
    assert answers["sent_twice"] == pytest.approx(naive)
    last = step_plan(3, units, 11, micro_batches=6, reduce="last")
    assert answers["sent_3"] == pytest.approx(sent(last))


def test_shards_without_alignment_are_those_of_the_package() -> None:
    answers, random = solved("zero"), Random(3)
    for ranks in (1, 2, 5, 9):
        sizes = [random.randint(0, 9) for _ in range(7)]
        if not sum(sizes):
            continue
        layout = flat({str(i): size for i, size in enumerate(sizes)}, ranks)
        theirs = [
            [(int(p.name), p.start, p.stop, p.place) for p in layout.pieces(rank) if p.elements]
            for rank in range(ranks)
        ]
        assert answers["shards"](sizes, ranks, 1) == theirs


def test_the_optimizer_of_the_exercises_is_torchs() -> None:
    w, adamw = torch.randn(9, generator=torch.Generator().manual_seed(0)), solved("zero")["adamw"]
    parameter = nn.Parameter(w.clone())
    settings: dict[str, Any] = {"betas": (0.9, 0.99), "eps": 0.1, "weight_decay": 0.01}
    torchs = torch.optim.AdamW([parameter], lr=0.1, **settings)
    m = v = torch.zeros(9)
    for step in range(1, 5):
        parameter.grad = torch.randn(9, generator=torch.Generator().manual_seed(step))
        torchs.step()
        w, m, v = adamw(w, parameter.grad, m, v, step)
        assert torch.allclose(w, parameter, rtol=1e-5)


def test_the_two_passes_are_those_of_the_stage_that_the_page_shows() -> None:
    answers = solved("zero")
    x, dy, whole = (torch.randn(n, generator=DRAWN) for n in ((4, 5), (4, 5), (32,)))

    class Unit(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weights = nn.Parameter(whole.clone())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return answers["unit"](self.weights, x)

    def theirs(comm: Communicator) -> list[torch.Tensor]:
        stage, own = Stage3([Unit()], comm), x.chunk(comm.size)[comm.rank].clone().requires_grad_()
        y = stage(own)
        y.backward(dy.chunk(comm.size)[comm.rank])
        return [y.detach(), stage.shards[0].grad, own.grad]

    def mine(comm: Communicator) -> list[torch.Tensor]:
        own, shard = (t.chunk(comm.size)[comm.rank] for t in (x, whole))
        y, kept = answers["pass_forward"](comm, shard, own)
        each = dy.chunk(comm.size)[comm.rank]
        return [y, *answers["pass_backward"](comm, kept, each)]

    one, other = (world.simulate(program, 4) for program in (theirs, mine))
    for right, came in zip(one.results, other.results, strict=True):
        assert all(map(torch.equal, right, came))
    assert one.traffic.sent == other.traffic.sent == [price(3, whole.nbytes, 4).bytes_per_rank] * 4


def test_the_clipped_gradient_is_that_of_the_package() -> None:
    def run(comm: Communicator) -> torch.Tensor:
        parameters = [nn.Parameter(torch.zeros(24))]
        optimizer = ShardedOptimizer(parameters, torch.optim.SGD, comm, lr=1.0)
        parameters[0].grad = torch.arange(24.0) * (comm.rank + 1)
        optimizer.clip_grad_norm_(10.0)
        optimizer.step()
        return -parameters[0].detach()

    def mine(comm: Communicator) -> torch.Tensor:
        whole = comm.all_reduce(torch.arange(24.0) * (comm.rank + 1), op="mean")
        shard = whole.chunk(comm.size)[comm.rank]
        return solved("zero")["clipped"](comm, shard, torch.zeros(0), 10.0)[0]

    clipped = torch.cat(world.simulate(mine, 4).results)
    for theirs in world.simulate(run, 4).results:
        assert torch.allclose(theirs, clipped, rtol=1e-5)


# -- the reports ---------------------------------------------------------------------------------

STEPS, RANKS = 4, 4
DRAWN = torch.Generator().manual_seed(2)
X = torch.randn(32, 16, generator=DRAWN)
Y = torch.tanh(X @ torch.randn(16, 16, generator=DRAWN) / 2)


@dataclass(frozen=True)
class Report:
    """Losses on the whole batch before each step; bytes a parameter at rest and of whole weights
    gathered at most; bytes that a rank sends in a step, in units of (n-1)/n S."""

    losses: tuple[str, ...]
    weights: float
    gradients: float
    optimizer: float
    gathered: float
    sent: float


def network() -> nn.Sequential:
    """Six equal units that four ranks divide."""
    torch.manual_seed(1)
    return nn.Sequential(*(nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(6)))


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.0)


def stage_3(comm: Communicator, fault: str) -> tuple[torch.Tensor, Any]:
    """Losses on this rank's part and what it holds, with this fault."""
    rank = 0 if fault == "same part" else comm.rank
    x, y = X.chunk(comm.size)[rank], Y.chunk(comm.size)[rank]
    plain = network()
    before = adamw(plain)
    model = FullyShardedDataParallel(
        plain,
        units=(lambda module: module is plain) if fault == "one unit" else None,
        reshard_after_forward=fault != "kept",
    )
    optimizer = before if fault == "built before" else adamw(model)
    losses = []
    for _ in range(STEPS):
        model.zero_grad()
        losses.append((model(x) - y).square().mean())
        losses[-1].backward()
        optimizer.step()
    return torch.stack(losses).detach(), model.held(optimizer)


def stage_1(comm: Communicator, fault: str) -> tuple[torch.Tensor, Any]:
    """The same for stage 1."""
    x, y = X.chunk(comm.size)[comm.rank], Y.chunk(comm.size)[comm.rank]
    model, reduced = network(), fault == "all-reduced"
    optimizer = ShardedOptimizer(model.parameters(), torch.optim.AdamW, lr=0.01, weight_decay=0.0)
    if fault == "not gathered":
        optimizer._gather = lambda: None  # type: ignore[method-assign]

    def take_parts() -> None:
        """Gradients are means already: a rank takes its part of each."""
        for bucket in optimizer.buckets:
            for place in range(len(bucket.parameters)):
                bucket.take(place)
            assert bucket.flat is not None
            bucket.gradients = [*bucket.mine(bucket.flat.clone())]
            bucket.flat = None
            bucket.forget()

    if reduced:
        optimizer._reduce = take_parts  # type: ignore[method-assign]
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        losses.append((model(x) - y).square().mean())
        losses[-1].backward()
        for parameter in model.parameters() if reduced else ():
            assert parameter.grad is not None
            parameter.grad = comm.all_reduce(parameter.grad, op="mean")
        optimizer.step()
    return torch.stack(losses).detach(), optimizer.held()


@cache
def report(program: Any, fault: str, ranks: int = RANKS) -> Report:
    """What a run of this program reports."""
    run = world.simulate(program, ranks, args=(fault,))
    losses = sum(losses for losses, _ in run.results) / ranks
    resident, elements = run.results[0][1], sum(p.numel() for p in network().parameters())
    kinds = ("all_gather", "reduce_scatter", "all_reduce")  # without what construction sends
    nbytes = sum(run.traffic.by_kind().get(kind, 0) for kind in kinds) / ranks / STEPS
    unit = (ranks - 1) / ranks * 4 * elements or 1
    rest = (resident.weights, resident.gradients, resident.optimizer, resident.gathered)
    each = [round(b / elements, 1) for b in rest]
    return Report(tuple(f"{loss:.3f}" for loss in losses), *each, round(nbytes / unit, 1))


RUNS = {
    "one device": (stage_3, "none", 1),
    "stage 1": (stage_1, "none", RANKS),
    "stage 3": (stage_3, "none", RANKS),
    "A": (stage_3, "one unit", RANKS),
    "B": (stage_1, "not gathered", RANKS),
    "C": (stage_3, "built before", RANKS),
    "D": (stage_1, "all-reduced", RANKS),
    "E": (stage_3, "same part", RANKS),
    "F": (stage_3, "kept", RANKS),
}


def question(name: str) -> str:
    """The text of a question."""
    cells = {cell["id"]: "".join(cell["source"]) for cell in load("solutions", "zero")["cells"]}
    return cells[f"{name}-question"]


@pytest.mark.parametrize("name", RUNS)
def test_a_report_is_that_of_a_run(name: str) -> None:
    came = report(*RUNS[name])
    [line] = re.findall(rf"^{name}(?: \(stage (\d)\))? +(0.*)", question("reports"), re.MULTILINE)
    told = [*came.losses, came.weights, came.gradients, came.optimizer, came.gathered, came.sent]
    assert line[1].split() == [str(each) for each in told]
    if line[0]:
        assert RUNS[name][0].__name__ == f"stage_{line[0]}"


def test_the_causes_of_the_reports_are_those_of_the_runs() -> None:
    causes = dict(re.findall(r"^(\d)\. (.*)$", question("reports"), re.MULTILINE))
    words = {
        "one unit": "The whole model is one unit.",
        "not gathered": "New weights are not gathered.",
        "built before": "The optimizer was built before the model was sharded.",
        "all-reduced": "Gradients are all-reduced, and new weights are gathered after that.",
        "same part": "Every rank draws the same part of the batch.",
        "kept": "Weights are kept from forward to backward.",
    }
    for name in "ABCDEF":
        answer = solved("zero")[f"run_{name.lower()}"]
        assert causes[str(answer)] == words[RUNS[name][1]]


def test_whole_weights_are_those_of_two_units_and_of_one_that_is_everything() -> None:
    answers = solved("zero")
    units = {f"unit {i}": 30_000_000_000 // 40 for i in range(40)}
    assert answers["gathered"] == held(step_plan(3, units, 8)).gathered
    one = step_plan(3, {"all": 30_000_000_000}, 8)
    assert answers["gathered_a"] == held(one).gathered


# -- tokens --------------------------------------------------------------------------------------

LAYERS = {f"layer {i}": 300_000_000 for i in range(40)}
NODE = Link("fabric", 0.0, 300e9)


def cluster(nodes: int = 16, card: float = 12.5e9) -> Cluster:
    """Nodes of eight devices, each with a card of its own."""
    return Cluster(dgx_h100(1).device, nodes, 8, NODE, Link("card", 0.0, card))


def law(where: Cluster, rate: float = 120e12, itemsize: int = 2) -> float:
    """Tokens that compute for as long as a gather of their unit takes: both levels, by its price."""
    seconds = collective_seconds("all_gather", 1e12, where.size, where) / 1e12
    return seconds * itemsize / 2 * rate


def step_of(tokens: float, layers: dict[str, int], ranks: int = 128) -> Any:
    """A step of stage 3 across nodes, with so many tokens a device."""
    plan = step_plan(3, layers, ranks)
    forward = 2 * plan.elements * tokens / 120e12
    return overlap(plan, forward, 2 * forward, cluster())


def test_the_tokens_of_the_exercise_are_those_of_the_law() -> None:
    answers = solved("zero")
    assert answers["in_node"] == pytest.approx(tokens_to_hide(120e12, 300e9, 8))
    assert answers["across"] == pytest.approx(law(cluster()))
    for tokens in (5000, 50_000):  # what never hides does not depend on them
        exposed = step_of(tokens, LAYERS).exposed_seconds
        assert answers["never_hidden"] == pytest.approx(exposed, rel=1e-6)


def test_a_device_waits_as_long_as_the_exercise_says_but_for_what_never_hides() -> None:
    fine = {f"part {i}": 3_000_000 for i in range(2000)}  # whose first gather is very short
    step = step_of(400, fine)
    assert step.exposed_seconds / step.seconds == pytest.approx(solved("zero")["waits"], rel=2e-3)


def test_two_changes_lower_the_tokens_and_four_do_not() -> None:
    base = law(cluster())
    changed = {
        "b": law(cluster(64)),
        "c": law(cluster(), itemsize=1),
        "d": law(cluster(), rate=240e12),
        "e": law(cluster(card=25e9)),
    }
    assert [letter for letter, tokens in changed.items() if tokens < base] == ["c", "e"]
    assert solved("zero")["lower"] == ["c", "e"]
    more = {f"layer {i}": 300_000_000 for i in range(80)}
    hidden = [step_of(1.01 * base, layers).exposed_seconds for layers in (LAYERS, more)]
    assert hidden[0] == pytest.approx(hidden[1])  # "a": what is exposed never hides
    halves = step_plan(3, LAYERS, 128, micro_batches=2)
    forward = 2 * halves.elements * base / 2 / 120e12
    step = overlap(halves, forward, 2 * forward, cluster())  # "f"
    assert step.seconds > 1.9 * step.compute_seconds


# -- design --------------------------------------------------------------------------------------


def allowed(most_bytes: float, most_seconds: float) -> list[dict[str, Any]]:
    """The designs within these limits, the cheapest first."""
    a = solved("zero")
    every = a["every"]
    fits = [d for d in every if a["memory"](d) <= most_bytes and a["seconds"](d) <= most_seconds]
    return sorted(fits, key=a["device_seconds"])


def test_one_design_is_the_cheapest_with_any_of_the_limits() -> None:
    price_of = solved("zero")["device_seconds"]
    for limits in ((80e9, 4), (141e9, 4), (80e9, 8)):
        first, second = map(price_of, allowed(*limits)[:2])
        assert second > 1.02 * first
    assert allowed(80e9, 4)[0] == solved("zero")["design"]


def test_memory_is_what_binds() -> None:
    answers = solved("zero")
    price_of = answers["device_seconds"]
    now, larger, longer = (
        price_of(allowed(*limits)[0]) for limits in ((80e9, 4), (141e9, 4), (80e9, 8))
    )
    assert answers["loosened"] == "memory"
    assert answers["saves"] == pytest.approx(now - larger)
    assert now - larger > 3 * (now - longer) > 0


def test_the_prices_of_the_designs_are_those_of_the_package() -> None:
    answers = solved("zero")
    intra = Link("inside", 0.0, answers["INSIDE"])
    card = Link("card", 0.0, answers["CARD"])
    device = dgx_h100(1).device
    weights = 2 * answers["PARAMETERS"]
    for nodes in (2, 8):
        cluster = Cluster(device, nodes, 8, intra, card)
        for shard, devices in (("node", 8), ("cluster", 8 * nodes)):
            design = {"nodes": nodes, "stage": 3, "shard": shard, "tensor": 1, "micro_batches": 1}
            theirs = sharding(weights, cluster, devices)
            mine = answers["parts"](design)
            assert mine["within nodes"] == pytest.approx(theirs.inside)
            assert mine["across nodes"] == pytest.approx(theirs.across)
            units = {f"layer {i}": answers["PARAMETERS"] // 60 for i in range(60)}
            plan = step_plan(3, units, devices)
            assert mine["state"] == pytest.approx(held(plan).at_rest)
            assert mine["gathered"] == pytest.approx(held(plan).gathered)


def test_six_times_as_much_crosses_nodes_with_the_other_shard() -> None:
    answers = solved("zero")
    across = [
        answers["parts"](answers["design"] | {"shard": shard})["across nodes"]
        for shard in ("cluster", "node")
    ]
    assert across[0] / across[1] == pytest.approx(answers["times_across"])


# -- the answer in words -------------------------------------------------------------------------


CLAIM = Cluster(dgx_h100(1).device, 8, 8, Link("fabric", 0.0, 450e9), Link("card", 0.0, 12.5e9))


def law_of_claim() -> float:
    """Tokens that hide stage 3 over all devices of the claim."""
    return law(CLAIM, rate=400e12)


def test_the_step_of_the_claim_becomes_twice_as_long() -> None:
    assert "become twice as long" in question("claim")
    layers = {f"layer {i}": 13_000_000_000 // 40 for i in range(40)}
    forward = 2 * 13e9 * 1000 / 400e12
    before, after = (
        overlap(step_plan(stage, layers, 64, 4), forward, 2 * forward, CLAIM).seconds
        for stage in (2, 3)
    )
    assert after / before == pytest.approx(2, rel=0.02)


def collectives_of(plan: StepPlan) -> int:
    """How many a step of one unit has."""
    return sum(action.kind in ("gather", "reduce") for action in plan.actions)


def test_the_figures_of_the_model_answer_on_stage_3_are_right() -> None:
    text, units = model_answer("zero"), {"all": 13_000_000_000}
    before, after = (held(step_plan(stage, units, 64)) for stage in (2, 3))
    assert f"{before.at_rest / 1e9:.1f} GB in stage 2 and {after.at_rest / 1e9:.2f} GB" in text
    assert f"so the {before.weights / 1e9:.0f} GB that the weights take" in text
    collectives = []
    for stage, words in ((2, "128 GB"), (3, "307 GB")):
        plan = step_plan(stage, units, 64, micro_batches=4)
        collectives.append(collectives_of(plan))
        assert f"{sent(plan) / 1e9:.0f} GB" == words
        assert f"which send {words}" in text
    assert "- 1 point: 28.8 and 3.25 GB" in text
    assert "or 128 and 307 GB; and that about 4,300 tokens" in text
    assert collectives == [5, 12]
    assert "stage 2 has 5 collectives over 26 GB (four reductions, one gather" in text
    assert "Stage 3 has 12" in text
    cards, inside = tokens_to_hide(400e12, 8 * 12.5e9, 8), tokens_to_hide(400e12, 450e9, 8)
    assert f"which asks for {cards:,.0f} tokens" in text
    assert f"another {inside:.0f}, together about {round(law_of_claim(), -1):,.0f}" in text
    assert law_of_claim() == pytest.approx(cards + inside)
    assert f"{round(law_of_claim(), -2):,.0f}" == "4,300"
    assert 4 < law_of_claim() / 1000 < 4.5  # "more than four times as long as its compute"
    assert f"where {inside:.0f} tokens hide them" in text
    by_cards_alone = (cards, tokens_to_hide(400e12, 8 * 12.5e9, 64))
    assert [round(each, -2) for each in by_cards_alone] == [3500, 3900]  # "will do"
    assert held(step_plan(3, units, 8)).at_rest == 26e9  # a copy in each node
    once = step_plan(2, units, 64, micro_batches=4, reduce="last")
    assert collectives_of(once) == 2
    assert LINKS["ethernet-100g"].bandwidth == 12.5e9
