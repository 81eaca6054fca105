"""The exercises on recomputation: their figures are those of the package, and what holds for all."""

import math
import re
from dataclasses import dataclass
from functools import cache
from itertools import product
from random import Random
from typing import Any

import pytest
import torch
from torch import nn

from dlsys.hardware import DEVICES, LINKS
from dlsys.recomputation import (
    Chain,
    Graph,
    Layer,
    Operation,
    Plan,
    Segment,
    Value,
    checkpoint,
    closed_form,
    core_bytes_share,
    core_flops_share,
    every,
    keep_all,
    keep_best,
    keeping_of,
    least_peak,
    measure,
    optimal,
    segments,
    stage_layers,
    uniform,
    width_to_offload,
)
from dlsys.transformer import CATALOGUE
from dlsys.transformer.activations import activations
from tests.exercises import contract
from tests.exercises.notebooks import load, model_answer, run_of, solved


class TestForm(contract.Form): ...


class TestDraws(contract.Draws): ...


class TestWrongAnswers(contract.WrongAnswers): ...


class TestStructure(contract.Structure): ...


# -- the reports ---------------------------------------------------------------------------------

STEPS, WIDTH = 4, 16
DRAWN = torch.Generator().manual_seed(2)
X = torch.randn(32, WIDTH, generator=DRAWN)
Y = torch.tanh(X @ torch.randn(WIDTH, WIDTH, generator=DRAWN) / 2)


class Block(nn.Module):
    """A layer with a running mean and random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(WIDTH, momentum=0.3)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = torch.tanh(self.up(self.norm(x)))
        if self.training:  # torch's dropout draws other numbers on some processors
            wide = wide * ((torch.rand(wide.shape) >= 0.3) / 0.7)
        return x + self.down(wide)


class Faulty(torch.autograd.Function):
    """A checkpoint with one of the faults, or none."""

    @staticmethod
    def forward(ctx: Any, module: nn.Module, fault: str, x: torch.Tensor) -> torch.Tensor:
        ctx.module, ctx.fault, ctx.random = module, fault, torch.get_rng_state()
        ctx.save_for_backward(x)
        if fault == "graph":
            with torch.enable_grad():
                ctx.result = module(x.detach().requires_grad_())
            return ctx.result.detach()
        return module(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        x = ctx.saved_tensors[0].detach().requires_grad_()
        norms = [m for m in ctx.module.modules() if isinstance(m, nn.BatchNorm1d)]
        now = torch.get_rng_state()
        if ctx.fault != "lost":
            torch.set_rng_state(ctx.random)
        for norm in norms:
            norm.momentum = 0.3 if ctx.fault == "mean" else 0.0
        with torch.enable_grad():
            y = ctx.module(x)
        for norm in norms:
            norm.momentum = 0.3
        if ctx.fault not in ("lost", "not put back"):
            torch.set_rng_state(now)
        y.backward(gradient)
        return None, None, None if ctx.fault == "cut" else x.grad


class Again(nn.Module):
    """A module behind such a checkpoint."""

    def __init__(self, module: nn.Module, fault: str) -> None:
        super().__init__()
        self.module, self.fault = module, fault

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Faulty.apply(self.module, self.fault, x) if self.training else self.module(x)


@dataclass(frozen=True)
class Report:
    """Losses before each step and in evaluation, the first gradient's length; bytes held when
    forward ends and at the peak; how often each block runs in a step."""

    losses: tuple[str, ...]
    evaluation: str
    length: str
    kept: int
    peak: int
    runs: tuple[int, ...]


@cache
def report(fault: str) -> Report:
    """What a run with this fault reports; "plain" has no checkpoint."""
    torch.manual_seed(9)  # no number printed is near the middle of two
    blocks = [Block() for _ in range(4)]
    model: nn.Module = nn.Sequential(*blocks)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    if fault == "one segment":
        model = Again(model, fault)
    elif fault == "nested":
        model = nn.Sequential(*(Again(Again(b, fault), fault) for b in blocks))
    elif fault != "plain":
        model = nn.Sequential(*(Again(block, fault) for block in blocks))
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        x = X.clone().requires_grad_()

        def forward_and_backward(x: torch.Tensor = x) -> None:
            loss = (model(x) - Y).square().mean()
            losses.append(f"{loss.item():.3f}")
            loss.backward()

        found = measure(forward_and_backward)
        if step == 0:
            gradients = [p.grad for p in model.parameters() if p.grad is not None]
            length = math.sqrt(sum(float(g.square().sum()) for g in gradients))
        optimizer.step()
    model.eval()
    with torch.no_grad():
        evaluation = (model(X) - Y).square().mean().item()
    runs = tuple(found.forwards.get(block, 0) for block in blocks)
    sizes = found.kept_bytes // 1024, found.peak_bytes // 1024
    return Report(tuple(losses), f"{evaluation:.3f}", f"{length:.3f}", *sizes, runs)


RUNS = {
    "plain": "plain",
    "right": "none",
    "A": "not put back",
    "B": "one segment",
    "C": "cut",
    "D": "lost",
    "E": "mean",
    "F": "graph",
}
CAUSES = {
    "lost": "The second run draws other random numbers than the first.",
    "not put back": "The random state is not put back after the second run.",
    "graph": "The graph of the first run is held, although backward runs the block again.",
    "one segment": "All blocks are one segment.",
    "mean": "Running means are updated in the second run as well.",
    "cut": "Backward returns no gradient of the arguments.",
}


def question(name: str) -> str:
    """The text of a question."""
    cells = load("solutions", "recomputation")["cells"]
    return {cell["id"]: "".join(cell["source"]) for cell in cells}[f"{name}-question"]


@pytest.mark.parametrize("name", RUNS)
def test_a_report_is_that_of_a_run(name: str) -> None:
    came = report(RUNS[name])
    [line] = re.findall(rf"^{name} +(\d\..*)", question("reports"), re.MULTILINE)
    sizes = (str(came.kept), str(came.peak), *map(str, came.runs))
    assert line.split() == [*came.losses, came.evaluation, came.length, *sizes]


def test_the_causes_of_the_reports_are_those_of_the_runs() -> None:
    causes = dict(re.findall(r"^(\d)\. (.*)$", question("reports"), re.MULTILINE))
    for name in "ABCDEF":
        answer = solved("recomputation")[f"run_{name.lower()}"]
        assert causes[str(answer)] == CAUSES[RUNS[name]]
    assert len(set(map(report, RUNS.values()))) == len(RUNS)


def test_a_checkpoint_in_a_checkpoint_runs_each_block_three_times() -> None:
    nested = report("nested")
    assert nested.runs == (3, 3, 3, 3)
    assert solved("recomputation")["nested_longer"] == pytest.approx(100 * (3 + 2) / (1 + 2) - 100)


# -- the numbers ---------------------------------------------------------------------------------


def test_the_numbers_of_the_first_question_are_those_of_plans() -> None:
    ns = bound_by("bytes")
    chain = uniform(64, Layer("layer", 1e8, 1.5e9, 6e12, 12e12))
    first = (every(48, 6) + keep_all(16)).price(chain, early_stop=False)
    second = (keep_all(16) + every(48, 6)).price(chain, early_stop=False)
    assert ns["peak_a"] == pytest.approx(first.peak_bytes)
    assert ns["peak_b"] == pytest.approx(second.peak_bytes)
    assert ns["again"] == first.recomputed == second.recomputed
    assert ns["longer"] == pytest.approx(100 * first.share_of_step)
    assert ns["mfu"] == pytest.approx(0.47 * first.model_cost / first.hardware_cost)


def bound_by(name: str) -> dict[str, Any]:
    """The names that the answer cell of a question binds."""
    cells = load("solutions", "recomputation")["cells"]
    [source] = ["".join(cell["source"]) for cell in cells if cell["id"] == name]
    bound: dict[str, Any] = {}
    exec(source, bound)
    return bound


@pytest.mark.parametrize(
    "kind", ["no random numbers", "dropout", "two in a row", "other arguments"]
)
def test_two_halves_give_what_the_packages_checkpoint_and_torchs_give(
    kind: str,
) -> None:
    from torch.utils.checkpoint import checkpoint as torchs

    answers = solved("recomputation")
    for name, args, gradient in answers["calls_of"](kind, 11):
        found = []
        for theirs in (checkpoint, lambda f, *args: torchs(f, *args, use_reentrant=False)):
            leaves = [
                a.detach().requires_grad_(a.requires_grad) if isinstance(a, torch.Tensor) else a
                for a in args
            ]
            torch.manual_seed(5)
            result = theirs(answers["LAYERS"][name], *leaves)
            result.backward(gradient)
            found.append((result, [getattr(leaf, "grad", None) for leaf in leaves]))
        torch.manual_seed(5)
        result, state = answers["first_run"](name, *args)
        found.append((result, answers["second_run"](name, args, state, gradient)))
        for other, gradients in found[:2]:
            assert torch.equal(result, other)
            assert all(map(answers["alike"], found[2][1], gradients))


def chain_of_triples(layers: list[tuple[int, int, int]]) -> Chain:
    """The chain of layers (input, saved, forward)."""
    return Chain(tuple(Layer(str(i), g, s, f, 2 * f) for i, (g, s, f) in enumerate(layers)))


def plan_of(pairs: list[tuple[int, str]]) -> Plan:
    """The plan of segments (count, mode)."""
    cut, start = [], 0
    for count, mode in pairs:
        cut.append(Segment(start, start + count, mode))
        start += count
    return Plan(start, tuple(cut))


@pytest.mark.parametrize("seed", range(20))
def test_prices_are_those_of_the_package(seed: int) -> None:
    answers = solved("recomputation")
    layers = answers["drawn_layers"](seed, 12)
    pairs = answers["drawn_plan"](seed, 12, 5)
    theirs = plan_of(pairs).price(chain_of_triples(layers), early_stop=False)
    assert answers["price"](layers, pairs) == (theirs.peak_bytes, theirs.recomputed)


def test_the_numbers_of_the_law_are_those_of_the_closed_form() -> None:
    ns = bound_by("law")
    chain = uniform(144, Layer("layer", 1, 9, 1, 2))
    peaks = {k: closed_form(chain, k) for k in range(1, 145)}
    assert ns["segments"] == min(peaks, key=peaks.__getitem__)
    assert ns["held"] == peaks[36]
    assert ns["twice"] == pytest.approx(100 * (peaks[72] / peaks[36] - 1))
    deep = uniform(576, Layer("layer", 1, 9, 1, 2))
    least = min(closed_form(deep, k) for k in range(1, 577))
    assert ns["deeper"] == pytest.approx(least / peaks[36])
    for keeps, best in ((143, 143), (144, 144), (145, 144)):
        chain = uniform(144, Layer("layer", 1, keeps, 1, 2))
        found = min(range(1, 145), key=lambda k: (round(closed_form(chain, k), 9), -k))
        assert abs(found - best) <= 1


def test_the_most_layers_are_those_of_the_least_peak() -> None:
    most = solved("recomputation")["most_layers"]
    for room in range(1, 40):
        assert least_peak(most(room, 1)) == room < least_peak(most(room, 1) + 1)
    assert segments(48, 7).price(uniform(48)).peak_bytes == 12  # equal ones: 78 fit
    assert most(12, 1) == 78


@pytest.mark.parametrize("keeps", [2, 3])
def test_no_segments_have_room_for_more_layers(keeps: int) -> None:
    most = solved("recomputation")["most_layers"]
    for room in range(1, 7):
        count = most(room, keeps)
        for layers, fits in ((count, True), (count + 1, False)):
            chain = uniform(layers, Layer("layer", 1, keeps, 1, 2)) if layers else None
            plans = (plan_of(cut) for cut in cuts(layers)) if chain else ()
            found = not chain or any(p.price(chain).peak_bytes <= room for p in plans)
            assert found == fits


def cuts(layers: int) -> list[list[tuple[int, str]]]:
    """All ways to cut so many layers into recomputed segments."""
    if not layers:
        return [[]]
    return [
        [(first, "recompute"), *rest]
        for first in range(1, layers + 1)
        for rest in cuts(layers - first)
    ]


@pytest.mark.parametrize("seed", range(12))
def test_the_cheapest_plan_is_that_of_the_package_and_of_all_plans(seed: int) -> None:
    answers, random = solved("recomputation"), Random(seed)
    layers = answers["drawn_layers"](seed, 7)
    chain = chain_of_triples(layers)
    budget = int(random.uniform(0.3, 0.8) * chain.saved_bytes)
    found = answers["cheapest_plan"](layers, budget)
    priced = [plan_of(pairs).price(chain, early_stop=False) for pairs in all_plans(7)]
    costs = [price.recomputed for price in priced if price.peak_bytes <= budget]
    if found is None:
        assert not costs
        return
    mine = plan_of(found).price(chain, early_stop=False)
    assert mine.peak_bytes <= budget
    assert (
        mine.recomputed == min(costs) == optimal(chain, budget, early_stop=False).price.recomputed
    )


def test_the_plan_of_thirty_layers_is_that_of_the_package() -> None:
    random, layers = Random(5), []  # as the helper draws them
    for _ in range(30):
        given = random.randint(1, 4)
        saved = given + random.randint(2, 26)
        layers.append((given, saved, random.randint(1, 20)))
    chain = chain_of_triples(layers)
    best = optimal(chain, int(0.4 * chain.saved_bytes), early_stop=False)
    assert best.exact
    of_layers = solved("recomputation")["of_layers"]
    said = of_layers(solved("recomputation")["cheapest_plan"], 5, 30, 0.4)
    assert said == ["fits", best.price.recomputed]


def all_plans(layers: int) -> list[list[tuple[int, str]]]:
    """All plans of so many layers; a kept segment has one."""
    if not layers:
        return [[]]
    rests = {count: all_plans(layers - count) for count in range(1, layers + 1)}
    kept = [[(1, "keep"), *rest] for rest in rests[1]]
    return kept + [[(count, "recompute"), *r] for count, rest in rests.items() for r in rest]


def test_the_utilization_is_that_of_the_price() -> None:
    answers = solved("recomputation")
    sizes = [3.0, 5.0, 2.0, 9.0]
    chain = Chain(tuple(Layer(str(i), 1, 1, f, 2 * f) for i, f in enumerate(sizes)))
    for kind, plan in (("keep all", keep_all(4)), ("every layer", every(4, 1))):
        price = plan.price(chain, early_stop=False)
        trace = answers["traced"](kind, 3, sizes)
        came = answers["utilization"](trace, 2.0, 10.0)
        wanted = (3 * price.hardware_cost / 20, 3 * price.model_cost / 20)
        assert came == pytest.approx(wanted)


def test_the_reported_utilization_rises_while_the_tokens_fall() -> None:
    answers = solved("recomputation")
    printed = run_of("recomputation").printed["mfu-program"].splitlines()[1:]
    speeds, hfus, mfus = (
        [float(row.replace(",", "").split()[-i]) for row in printed] for i in (3, 2, 1)
    )
    assert sorted(speeds, reverse=True) == speeds
    assert sorted(mfus) == mfus
    assert mfus[2] > hfus[2]  # which cannot be
    assert answers["times"] == pytest.approx(mfus[2] / mfus[0], rel=1e-2)
    right = answers["utilization"](answers["traced"]("every layer", 4, [10.0] * 24), 8.8, 1e3)
    assert bound_by("mfu")["mfu"] == pytest.approx(right[1])


# -- tensors -------------------------------------------------------------------------------------


def graph_of(tensors: list[tuple[str, int, float, list[str], bool]]) -> Graph:
    """The graph of tensors (name, MB, ms, reads, needed)."""
    made = (
        Operation(name, tuple(reads), (Value(name, size),), ms, (name,) if needed else ())
        for name, size, ms, reads, needed in tensors
    )
    return Graph(tuple(made), (Value("x", 64),))


def test_the_kept_tensors_are_the_best_of_the_package() -> None:
    answers = solved("recomputation")
    graph = graph_of(answers["LAYER"])
    best = {budget: keep_best(graph, budget) for budget in (600, 700)}
    assert set(best[700].keep) == set(answers["kept"])
    assert best[600].cost - best[700].cost == pytest.approx(answers["more"])
    [alone] = set(answers["kept"]) - set(graph.needed)
    assert alone == answers["not_read"]


def test_one_choice_is_the_best_in_700_megabytes() -> None:
    answers = solved("recomputation")
    names = [name for name, *_ in answers["LAYER"]]
    found = []
    for chosen in product([False, True], repeat=len(names)):
        kept = [name for name, keep in zip(names, chosen, strict=True) if keep]
        size, ms = answers["cost_of"](answers["LAYER"], kept)
        if size <= 700:
            found.append((round(ms, 9), kept))
    first, second = sorted(found)[:2]
    assert len(chosen) == 12
    assert first[1] == answers["kept"]
    assert second[0] > 1.5 * first[0]


@pytest.mark.parametrize("seed", range(10))
def test_the_cost_of_a_choice_is_that_of_the_package(seed: int) -> None:
    answers, random = solved("recomputation"), Random(seed)
    tensors = answers["drawn_tensors"](seed, 12)
    read = {name for _, _, _, reads, _ in tensors for name in reads}
    if "x" not in read:
        return
    kept = random.sample([name for name, *_ in tensors], 4)
    theirs = keeping_of(graph_of(tensors), kept)
    size, again = answers["cost_of"](tensors, kept)
    assert size == sum(n for name, n, *_ in tensors if name in kept)
    assert again == pytest.approx(theirs.cost)


# -- the answer in words -------------------------------------------------------------------------


def test_the_figures_of_the_model_answer_are_right() -> None:
    text, spec = model_answer("recomputation"), CATALOGUE["gpt3-13b"]
    asked = question("memory")
    assert (spec.layers, spec.hidden, spec.heads, spec.sequence) == (40, 5120, 40, 2048)
    held = {
        "6 sequences": activations(spec, 6, 4, True),
        "3 sequences": activations(spec, 3, 4, True),
        "no cores": activations(spec, 6, 4, True, "selective"),
        "no layers": activations(spec, 6, 4, True, "full"),
    }
    sizes = {name: round(int(each) / 1e9) for name, each in held.items()}
    assert sizes == {"6 sequences": 72, "3 sequences": 36, "no cores": 21, "no layers": 1}
    state = 16 * spec.parameters() / 16 / 1e9
    assert round(state) == 13
    assert "13 GB of model state and 72 GB of activations" in asked
    assert 72 + 13 - 80 == 5  # "Five gigabytes too many"
    assert "72 GB to 36 GB" in text
    assert "72 GB become 21 GB" in text
    assert (80 - 13 - 36) == 31
    assert "with 31 GB to spare" in text
    bubbles = [round(100 * (4 - 1) / (m + 4 - 1)) for m in (32, 64)]
    assert bubbles == [9, 4]
    assert "4 % in the place of 9 %" in text
    share = core_flops_share(spec)
    assert 0.02 < share.exact < share.law < 0.022
    assert core_bytes_share(spec).exact == pytest.approx(0.7, abs=0.01)
    assert round(72 + state / 2) == 78
    assert stage_layers(40, 4, 32) == stage_layers(40, 8, 32)
    h100, link = DEVICES["h100-sxm"], LINKS["pcie5"]
    rate = 0.4 * h100.rate("bf16")
    assert 8_700 < width_to_offload(rate, link.bandwidth) < 8_900
    kept = held["6 sequences"].per_layer
    assert kept / (6 * spec.sequence * spec.hidden / 4) == pytest.approx(114, abs=0.1)
    seconds = sum(spec.operations(6, 0).values()) / 4 / rate  # of a layer's forward pass
    part = seconds * link.bandwidth / kept
    assert 1 / part == pytest.approx(6, abs=0.9)
    assert round(part * int(held["6 sequences"]) / 1e9) == 13
    rebuilt = (int(held["no layers"]) + kept) / 1e9
    assert round(rebuilt) == 3
    assert 80 - state - rebuilt > 60
