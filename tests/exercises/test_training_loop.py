"""The exercises on the training loop: their figures are those of the package, and what holds for all."""

import math
import re
from random import Random

import pytest
import torch

from dlsys.data_parallel import BatchTradeoff, noise_scale
from dlsys.hardware import DEVICES
from dlsys.model import GPT, SMALL
from dlsys.training_loop import (
    SGD,
    AdamW,
    IronLaw,
    Technique,
    clip_or_refuse,
    count_flops,
    evaluation_share,
    linear_rule,
    micro_batch_sizes,
    run_step,
    square_root_rule,
    state_bytes,
    step_plan,
    update_bytes,
    update_tokens,
    warm_up_cosine,
)
from tests.exercises import contract
from tests.exercises.notebooks import load, model_answer, run_of, solved

PLANNED = {"steps": 1200, "warm_up": 60, "peak": 6e-4, "least": 6e-5}


class TestForm(contract.Form): ...


class TestDraws(contract.Draws): ...


class TestWrongAnswers(contract.WrongAnswers): ...


class TestStructure(contract.Structure): ...


def drawn(random: Random, *sizes: int) -> list[torch.Tensor]:
    """Tensors of these sizes with numbers from -1 to 1, in FP64."""
    return [
        torch.tensor([random.uniform(-1, 1) for _ in range(n)], dtype=torch.float64) for n in sizes
    ]


@pytest.mark.parametrize("make", [AdamW, torch.optim.AdamW])
@pytest.mark.parametrize("seed", range(4))
def test_adamw_of_the_exercises_moves_weights_as_torch_and_the_package_do(
    make: type[torch.optim.Optimizer], seed: int
) -> None:
    random, sizes = Random(seed), (3, 1, 3)
    weights = drawn(random, *sizes)
    gradients: list[list[torch.Tensor | None]] = [[*drawn(random, *sizes)] for _ in range(6)]
    gradients[0][1] = gradients[3][2] = gradients[4][2] = None
    settings = {"lr": 0.1, "betas": (0.8, 0.97), "eps": 0.02, "weight_decay": 0.3}
    parameters = [torch.nn.Parameter(w.clone()) for w in weights]
    optimizer = make(parameters, **settings)
    for step in gradients:
        for parameter, gradient in zip(parameters, step, strict=True):
            parameter.grad = None if gradient is None else gradient.clone()
        optimizer.step()
    came = solved("training_loop")["adamw"](weights, gradients, 0.1, 0.8, 0.97, 0.02, 0.3)
    for after, parameter in zip(came, parameters, strict=True):
        torch.testing.assert_close(after, parameter.detach(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("spoiled", [None, math.inf, math.nan])
@pytest.mark.parametrize("size", [0.1, 5.0, 1e25])
def test_the_guarded_step_of_the_exercises_is_that_of_the_package(
    spoiled: float | None, size: float
) -> None:
    random, sizes = Random(5), (3, 2, 4)
    weights, moments, gradients = ([t.float() for t in drawn(random, *sizes)] for _ in range(3))
    gradients = [size * g for g in gradients]
    if spoiled is not None:
        gradients[2][1] = spoiled
    parameters = [torch.nn.Parameter(w.clone()) for w in weights]
    optimizer = SGD(parameters, 0.3, momentum=0.9)
    for parameter, moment, gradient in zip(parameters, moments, gradients, strict=True):
        optimizer.state[parameter]["m"] = moment.clone()
        parameter.grad = gradient.clone()
    parameters[1].grad = None
    norm, may_step = clip_or_refuse(parameters, 1.5)
    if may_step:
        optimizer.step()
    given = [gradients[0], None, gradients[2]]
    came = solved("training_loop")["guarded_step"](weights, moments, given, 7, 0.3, 1.5)
    assert came[2] == 7 + may_step
    assert came[3] == pytest.approx(norm, nan_ok=True)
    for after, moment, parameter in zip(came[0], came[1], parameters, strict=True):
        torch.testing.assert_close(after, parameter.detach())
        torch.testing.assert_close(moment, optimizer.state[parameter]["m"])


class Regression(torch.nn.Module):
    """x w, as a module of torch."""

    def __init__(self, w: torch.Tensor) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(w.clone())

    def loss(self, part: list[torch.Tensor]) -> torch.Tensor:
        """The mean over real rows."""
        x, y, real = part
        return ((x @ self.w - y) * real).square().sum() / real.sum()


@pytest.mark.parametrize("limit", [1e9, 0.25])
@pytest.mark.parametrize("order", ["last", "first", "every"])
@pytest.mark.parametrize(
    ("cuts", "padding"), [([24], 0), ([16, 8], 0), ([9, 9, 6], 4), ([22, 2], 1)]
)
def test_the_repaired_step_is_run_steps_with_shares_by_tokens(
    cuts: list[int], padding: int, order: str, limit: float
) -> None:
    answers = solved("training_loop")
    parts, start = answers["in_parts"](3, cuts, padding, order), torch.tensor([1.0, -2.0, 0.5, 0.0])
    model = Regression(start)
    plan = step_plan([int(real.sum()) for _, _, real in parts])
    plan.check()
    run_step(plan, model.loss, parts, SGD(model.parameters(), 0.5), max_norm=limit)
    came = answers["repaired"](start, parts, limit, 0.5)
    torch.testing.assert_close(came, model.w.detach())


def test_the_report_has_one_line_for_all_cuts_once_the_step_is_repaired(
    capsys: pytest.CaptureFixture[str],
) -> None:
    answers = solved("training_loop")

    def lines(text: str) -> tuple[set[str], set[str]]:
        """What the table says after cuts and padding, of 24 real rows and of 20."""
        ends = [line.split("]")[1].split(maxsplit=1)[1] for line in text.splitlines()[2:]]
        return set(ends[:5]), set(ends[5:])

    whole, padded = lines(run_of("training_loop").printed["parts-program"].rstrip())
    assert len(whole) == 5, "each cut reports something else"
    assert len(padded) >= 3
    answers["report"](answers["repaired"])
    assert [len(each) for each in lines(capsys.readouterr().out)] == [1, 1]


def test_a_gradient_four_times_as_large_moves_adam_by_as_much() -> None:
    answers, random = solved("training_loop"), Random(1)
    gradients = [drawn(random, 5) for _ in range(4)]
    moves = []
    for times in (1, 4):
        weights = [torch.zeros(5, dtype=torch.float64)]
        scaled = [[times * g for g in step] for step in gradients]
        moves.append(answers["adamw"](weights, scaled, 0.1, 0.9, 0.99, 1e-12, 0.0)[0])
    torch.testing.assert_close(moves[0] * answers["adam_longer"], moves[1])


@pytest.mark.parametrize(("steps", "warm_up"), [(100, 7), (30, 1), (1200, 60)])
def test_the_rate_is_the_packages_with_a_cosine_that_begins_an_update_sooner(
    steps: int, warm_up: int
) -> None:
    rate = solved("training_loop")["rate"]
    for step in range(steps + 20):
        theirs = warm_up_cosine(step + (step >= warm_up), steps, warm_up, 0.5, 0.02)
        assert rate(step, steps, warm_up, 0.5, 0.02) == pytest.approx(theirs, rel=1e-12)
    assert rate(warm_up - 1, steps, warm_up, 0.5, 0.02) == 0.5
    assert rate(steps - 1, steps, warm_up, 0.5, 0.02) == pytest.approx(0.02)
    assert rate(steps - 2, steps, warm_up, 0.5, 0.02) > 0.02


def test_the_four_runs_report_the_rates_of_what_is_the_matter_with_them() -> None:
    answers = solved("training_loop")
    rate = answers["rate"]
    last = answers["planned"] - 1
    planned_less = PLANNED | {"steps": answers["planned"]}
    of = {
        "right": lambda u: rate(u, **PLANNED),
        "micro-batches": lambda u: rate(answers["micro_batches"] * u, **PLANNED),
        "climbs": lambda u: rate(last - abs(last - u), **planned_less),
        "anew": lambda u: rate(u - answers["anew"] * (u >= answers["anew"]), **PLANNED),
    }
    lines = question("rate").splitlines()
    rows = [line.strip(" |").split(" | ") for line in lines if line.startswith("| ")]
    updates = [int(u) for u in rows[0][1:]]
    assert [row[0] for row in rows[1:]] == [*"ABCD"]
    for name, *shown in rows[1:]:
        matter = of[answers["runs"][name]]
        assert shown == [f"{1e4 * matter(u):.3g}" for u in updates]


def question(answer: str) -> str:
    """The text of a question, without commas in its numbers."""
    cells = load("solutions", "training_loop")["cells"]
    (text,) = ["".join(c["source"]) for c in cells if c["id"] == f"{answer}-question"]
    return re.sub(r"(?<=\d),(?=\d{3})", "", text)


SHAPES = [(2048, 2048)] * 28 * 4 + [(2048, 6144)] * 28 * 2
TABLE = [(56_000, 2048)]


def test_the_state_of_the_exercises_is_that_of_the_package() -> None:
    answers, text = solved("training_loop"), question("state")
    assert "28 layers, each with four matrices of 2048 by 2048 and two of 2048 by 6144" in text
    assert "an embedding of 56000 by 2048" in text
    beside = state_bytes("adamw", TABLE)
    assert answers["muon"] == state_bytes("muon", SHAPES) + beside
    assert answers["galore"] == state_bytes("galore", SHAPES, rank=256) + beside
    parameters = sum(math.prod(shape) for shape in SHAPES + TABLE)
    others = 10 * parameters
    adamw = others + state_bytes("adamw", SHAPES + TABLE)
    assert answers["short"] == pytest.approx(adamw + 1.3e9 - 24e9)
    room = 24e9 - others - answers["muon"]
    at_once = max(n for n in range(250) if n * 1.3e9 <= room)
    sizes = micro_batch_sizes(250, at_once)
    assert answers["muon_parts"] == len(sizes)
    moved = update_bytes("muon", SHAPES) + update_bytes("adamw", TABLE)
    assert answers["moved_bytes"] == moved
    worth = update_tokens(moved / parameters, 150e12, 1.2e12, utilization=0.4)
    assert answers["tokens"] == pytest.approx(worth)


def test_accumulation_takes_as_many_flops_as_the_batch_at_once() -> None:
    rows = torch.zeros(10, 9, dtype=torch.long)

    def flops(micro_batch: int) -> int:
        sizes, model = micro_batch_sizes(10, micro_batch), GPT(SMALL)
        return count_flops(
            lambda: run_step(
                step_plan(sizes),
                lambda part: model(part[:, :-1], part[:, 1:]),
                rows.split(sizes),
                SGD(model.parameters()),
            )
        )

    assert flops(4) == solved("training_loop")["flops"] * flops(10)


@pytest.mark.parametrize("rows", [2, 7])
@pytest.mark.parametrize("micro_batch", [1, 16])
def test_the_critical_batch_is_the_packages_noise_scale(rows: int, micro_batch: int) -> None:
    gradients = torch.stack(drawn(Random(rows), *[6] * rows)) + 2
    squares = gradients.square().sum(1).mean(), gradients.mean(0).square().sum()
    small, large = map(float, squares)
    scale = noise_scale(micro_batch, small, rows * micro_batch, large)
    came = solved("training_loop")["critical_batch"](gradients, micro_batch)
    assert came == pytest.approx(scale.simple)


def test_the_plans_with_a_batch_are_those_of_the_law() -> None:
    answers = solved("training_loop")
    least = 30_000 / BatchTradeoff(1.0, 1024.0).steps(256)
    law = BatchTradeoff(least, 1024 * least)
    assert law.steps(256) == pytest.approx(30_000)
    assert answers["steps"] == pytest.approx(law.steps(1024))
    assert answers["faster"] == pytest.approx(law.steps(256) / law.steps(1024))
    assert answers["longer"] == pytest.approx(law.samples(1024) / law.samples(256))
    assert answers["fastest"] == pytest.approx(law.steps(256) / law.steps(1e12))
    batch = answers["a_tenth_more"]
    assert law.samples(batch) == pytest.approx(1.1 * law.least_samples)
    assert answers["adam_rate"] == pytest.approx(square_root_rule(3e-4, 1024, 256))
    assert answers["sgd_rate"] == pytest.approx(linear_rule(3e-4, 1024, 256))


@pytest.mark.parametrize(("memory", "behind"), [(24, False), (32, False), (24, True)])
def test_one_design_takes_the_fewest_hours_by_far_enough_to_tell(memory: int, behind: bool) -> None:
    answers = solved("training_loop")
    fits = [one for one in answers["every"] if answers["gigabytes"](one) <= memory]
    best, second = sorted(answers["hours"](one, behind) for one in fits)[:2]
    assert second > 1.003 * best
    assert best == answers["hours"](answers["soonest"](memory, behind), behind)
    edges = [abs(answers["gigabytes"](one) - memory) for one in answers["every"]]
    assert min(edges) > 0.05, "rounding decides what fits"


def test_each_hint_on_an_optimizers_best_is_for_the_best_that_it_has() -> None:
    """Found by search, among the designs that fit."""
    answers = solved("training_loop")
    cells = load("solutions", "training_loop")["cells"]
    (text,) = ["".join(c["source"]) for c in cells if c["id"] == "plan-test"]
    names = {"AdamW": "adamw", "8-bit Adam": "8bit-adam", "Adafactor": "adafactor"}
    hinted = re.findall(r"\((\d+\.\d+), \"This is the best with ([^:.,]*)[:.,]", text)
    said = {name: float(hours) for hours, name in hinted}
    assert said.keys() == names.keys()
    fits = [one for one in answers["every"] if answers["gigabytes"](one) <= 24]
    for name, optimizer in names.items():
        of = [answers["hours"](one) for one in fits if one["optimizer"] == optimizer]
        assert said[name] == pytest.approx(min(of), rel=1e-5)


def test_padding_is_where_the_checks_of_the_repaired_step_say() -> None:
    in_parts = solved("training_loop")["in_parts"]

    def padding(cuts: list[int], order: str) -> list[int]:
        return [int((real == 0).sum()) for _, _, real in in_parts(5, cuts, 4, order)]

    assert padding([2, 4, 6], "first") == [2, 2, 0]
    assert min(padding([4, 4, 4], "every")) > 0
    assert padding([4, 4, 4], "last") == [0, 0, 4]


TERMS = {"C": "flops", "R": "peak_flops", "eta": "utilization"}


def test_what_is_touched_is_the_term_by_which_the_hours_change() -> None:
    """Of the passes, where the batch and all else stay as they are."""
    answers = solved("training_loop")
    design, law = answers["design"] | {"recompute": False}, IronLaw(1e18, 1e12, 0.25)

    def passes(**other: object) -> float:
        return answers["parts"](design | other)["passes"]

    def by_the_law(name: str, factor: float) -> float:
        technique = Technique(name, **{TERMS[answers["touches"][name]]: factor})
        return law.after(technique).seconds / law.seconds

    assert passes(recompute=True) / passes() == pytest.approx(by_the_law("recompute", 4 / 3))
    more = (8 / 9.5) / (4 / 5.5)  # of the peak
    larger = passes(at_once=8, accumulate=4) / passes(at_once=4, accumulate=8)
    assert larger == pytest.approx(by_the_law("at_once", more))
    fewer = passes(optimizer="muon") / passes(optimizer="adamw")
    assert fewer == pytest.approx(by_the_law("optimizer", 0.75), rel=0.01)
    h100 = DEVICES["h100-sxm"]
    assert by_the_law("fp8", h100.rate("fp8") / h100.rate("bf16")) == pytest.approx(0.5, rel=0.01)


def test_a_look_has_the_share_of_the_time_that_the_package_gives() -> None:
    answers = solved("training_loop")
    for design in answers["every"][::37]:
        if design["recompute"]:
            continue
        of = answers["parts"](design)
        batch = design["at_once"] * design["accumulate"]
        share = of["looks"] / (of["looks"] + of["passes"])
        theirs = evaluation_share(design["look_every"], batch, answers["HELD_BACK"])
        assert share == pytest.approx(theirs)


def test_the_figures_of_the_model_answer_on_accumulation_are_right() -> None:
    text, law = model_answer("training_loop"), BatchTradeoff(1.0, 512.0)
    assert "a step of 1,024 takes 16 times as long as one of 64" in text
    assert 1024 / 64 == 16
    assert "from 9 times the least at 64 to 1.5 times at 1,024: to a sixth" in text
    assert [law.steps(64), law.steps(1024)] == [9, 1.5]
    assert "from 1.125 times the least to 3 times: the run takes 2.7 times as long" in text
    samples = [law.samples(batch) / law.least_samples for batch in (64, 1024)]
    assert samples == [1.125, 3]
    assert f"{samples[1] / samples[0]:.1f}" == "2.7"
    assert "the rule is the square root, 4 times the rate" in text
    assert square_root_rule(1.0, 1024, 64) == 4
    assert "the linear rule for SGD would say 16" in text
    assert linear_rule(1.0, 1024, 64) == 16
