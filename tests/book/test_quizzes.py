"""Quizzes: their numbers are what dlsys computes, and they work in a page without a network."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dlsys.collectives import ring_all_reduce, tree_all_reduce
from dlsys.data_parallel import (
    BatchTradeoff,
    TopK,
    amdahl_speedup,
    constant_fraction_speedup,
)
from dlsys.data_parallel import step_bytes as gradient_bytes
from dlsys.hardware import DEVICES, LINKS
from dlsys.memory_wall import RECIPES, devices_needed, model_state, training_seconds
from dlsys.notebook import quiz
from dlsys.pipeline_parallel import (
    bubble_fraction,
    gpipe,
    message_bytes,
    min_microbatches,
    one_f_one_b,
    step_seconds,
)
from dlsys.tensor_parallel import activation_bytes, layout, step_bytes
from dlsys.transformer import CATALOGUE
from dlsys.units import DAY, GIB

QUIZZES = Path(__file__).parents[2] / "chapters" / "quizzes"
SLUGS = sorted(path.stem for path in QUIZZES.glob("*.json"))
QUESTIONS = [
    pytest.param(question, id=f"{slug}-{question['id']}")
    for slug in SLUGS
    for question in json.loads((QUIZZES / f"{slug}.json").read_text(encoding="utf-8"))
]

RING8 = ring_all_reduce(8).price(14e9, LINKS["nvlink3"])
GPT3 = 3.14e23
A100 = DEVICES["a100-80"].rate("bf16")
CUT = layout(CATALOGUE["gpt3-175b"], 8)
LAYER = CUT.layer.forward + CUT.layer.backward
BRANCH = ring_all_reduce(8).price(LAYER[0].nbytes(1), LINKS["nvlink4"]).bytes_per_rank / 1e6
KEPT = activation_bytes(CUT.spec, 1, 8)

NUMBERS = {
    "bytes-per-parameter": RECIPES["mixed-adamw"].total,
    "devices-70b": devices_needed(70e9, "mixed-adamw", 80e9),
    "gibibytes": 24 * GIB / 1e9,
    "a100-days": training_seconds(GPT3, A100, 0.4) / DAY / 1e3,
    "ring-bytes": RING8.bytes_per_rank / 1e9,
    "nvlink-direction": LINKS["nvlink3"].bandwidth / 1e9,
    "hdr-port": LINKS["infiniband-hdr"].bandwidth / 1e9,
    "latencies": len(ring_all_reduce(64).rounds),
    "bubble-total": gpipe(4, 12).price(1, 2).bubble_fraction * 100,
    "fewest": min_microbatches(8, 0.05),
    "in-flight": one_f_one_b(8, 32).peak_in_flight[5],
    "both-passes": one_f_one_b(2, 8).price(120, 220).makespan,
    "stage-message": message_bytes(1, 4096, 8192) / 1e6,
    "tp-message": BRANCH,
    "tp-count": CUT.spec.layers * len(LAYER),
    "tp-layer-memory": KEPT.total / 1e9,
    "dp-bytes": gradient_bytes(8e9, 32) / 1e9,
    "dp-amdahl": amdahl_speedup(256, 0.15),
    "dp-topk": TopK(0.01).sent_bytes([(10**9,)], 8) / 1e6,
}
"""The right answer to each numeric question, computed."""

MISCONCEPTIONS = {
    "bytes-per-parameter": {
        "leaves out the master weights": RECIPES["pure-16bit"].total,
        "kept in 32 bits": RECIPES["mixed-adamw-fp32-gradients"].total,
    },
    "devices-70b": {
        "12 bytes": devices_needed(70e9, "pure-16bit", 80e9),
        f"{13 * 80:,} GB; part of the {model_state(70e9).total / 1e9:,.0f}": 13,
    },
    "gibibytes": {"the other way round": 24e9 / GIB, "24 x 1.024": 24 * 1.024},
    "a100-days": {
        "at the peak": training_seconds(GPT3, A100) / DAY / 1e3,
        "not multiplied": training_seconds(GPT3, A100) / DAY / 1e3 * 0.4,
        "in thousands": training_seconds(GPT3, A100, 0.4) / DAY,
    },
    "ring-bytes": {
        "one phase": RING8.bytes_per_rank / 2e9,
        "also receives": 2 * RING8.bytes_per_rank / 1e9,
        "over all eight": 8 * RING8.bytes_per_rank / 1e9,
    },
    "latencies": {"a tree": len(tree_all_reduce(64).rounds)},
    "bubble-total": {"share of the time worked": gpipe(4, 12).price(1, 2).bubble_of_ideal * 100},
    "fewest": {"exactly 5 %": 7 / 0.05 - 7, "exactly 5 % of the time worked": 7 / 0.05},
    "in-flight": {
        "That is GPipe": gpipe(8, 32).peak_in_flight[5],
        "the first stage that holds": one_f_one_b(8, 32).peak_in_flight[2],
    },
    "both-passes": {
        "longer of the two": step_seconds(2, 8, 0, 220),
        "forward pass alone": step_seconds(2, 8, 120, 0),
        "runs both stages": step_seconds(1, 8, 240, 440),
    },
    "stage-message": {
        "four bytes": message_bytes(1, 4096, 8192, itemsize=4) / 1e6,
        "inside of the feed-forward": message_bytes(1, 4096, 4 * 8192) / 1e6,
        "in MiB": message_bytes(1, 4096, 8192) / 2**20,
    },
    "tp-message": {
        "the size of a weight matrix": BRANCH * CUT.spec.hidden / CUT.spec.sequence,
        "That is the buffer": LAYER[0].nbytes(1) / 1e6,
        "one phase": BRANCH / 2,
        "the whole layer": BRANCH * len(LAYER),
    },
    "tp-count": {
        "the forward pass alone": CUT.spec.layers * len(CUT.layer.forward),
        "full recomputation": CUT.spec.layers * len(LAYER + CUT.layer.forward),
    },
    "tp-layer-memory": {
        "as with sequence parallelism": activation_bytes(CUT.spec, 1, 8, True).total / 1e9,
        "scores are missing": (KEPT.between + KEPT.inside) / 1e9,
        "scores are divided and nothing else": (
            activation_bytes(CUT.spec, 1)._replace(scores=KEPT.scores).total / 1e9
        ),
        "what they keep with them": activation_bytes(CUT.spec, 1).total / 1e9,
    },
    "dp-bytes": {
        "reduce-scatter alone": gradient_bytes(8e9, 32) / 2e9,
        "over all ranks": 32 * gradient_bytes(8e9, 32) / 1e9,
        "What a rank receives": 2 * gradient_bytes(8e9, 32) / 1e9,
    },
    "dp-amdahl": {
        "15 % of its own step": constant_fraction_speedup(256, 0.15),
        "efficiency in percent": amdahl_speedup(256, 0.15) / 256 * 100,
        "very many ranks": 1 / 0.15,
    },
    "dp-topk": {
        "All seven others need it": TopK(0.01).sent_bytes([(10**9,)], 2) / 1e6,
        "One percent of an all-reduce": gradient_bytes(4e9, 8) / 1e8,
    },
}
"""Wrong answers to numeric questions, computed from the mistake that their feedback names."""


def answered(question: dict[str, Any], number: float) -> dict[str, Any]:
    """The answer of the quiz that a reader who types `number` is shown."""
    for answer in question["answers"]:
        low, high = answer.get("range", (answer.get("value"),) * 2)
        if low is not None and (low <= number < high or low == number):
            return answer
    return question["answers"][-1]


@pytest.mark.parametrize("question", QUESTIONS)
def test_numeric_answers_are_what_dlsys_computes(question: dict[str, Any]) -> None:
    if question["type"] != "numeric":
        assert question["id"] not in NUMBERS
        return
    assert answered(question, NUMBERS[question["id"]])["correct"]
    for words, number in MISCONCEPTIONS.get(question["id"], {}).items():
        answer = answered(question, number)
        assert not answer["correct"]
        assert words in answer["feedback"]


def test_the_feedback_on_recomputation_gives_the_share_of_the_attention_core() -> None:
    gpt3 = CATALOGUE["gpt3-175b"]
    core = 4 * gpt3.sequence**2 * gpt3.hidden * gpt3.layers  # two products, forward
    assert f"{core / gpt3.training_flops(1):.1%}" == "0.9%"
    long = replace(gpt3, sequence=131_072)
    assert core * 64**2 / long.training_flops(1) > 0.2


def test_the_feedback_on_nvlink_gives_the_seconds_of_the_ring() -> None:
    assert round(RING8.seconds * 1e3) == 82
    assert round(RING8.seconds * 1e3 / 2) == 41
    assert LINKS["nvlink3"].bandwidth / LINKS["infiniband-hdr"].bandwidth == 12


def test_the_feedback_on_the_fewest_micro_batches_gives_the_bubble_they_leave() -> None:
    assert f"{bubble_fraction(8, 134):.2%}" == "4.96%"
    assert bubble_fraction(8, 133) == 0.05


def test_the_feedback_on_the_noise_scale_gives_steps_and_samples() -> None:
    training = BatchTradeoff(least_steps=1, least_samples=1)  # a critical batch of 1
    assert training.steps(8) / training.steps(4) == pytest.approx(0.9)
    assert training.samples(8) / training.samples(4) == pytest.approx(1.8)


def test_the_feedback_on_nodes_gives_the_bytes_of_both_kinds_of_parallelism() -> None:
    gradients = 2 * 12 * 96 * 8192**2 / 8
    assert f"{step_bytes(96, 8, 2048, 8192) / 1e9:.1f}" == "22.5"
    assert f"{2 * gradients / 1e9:.1f}" == "38.7"  # round a ring of many groups


@pytest.mark.parametrize("question", QUESTIONS)
def test_every_option_has_feedback_of_its_own_and_no_latex(question: dict[str, Any]) -> None:
    answers = question["answers"]
    feedback = [answer["feedback"] for answer in answers]
    assert len(set(feedback)) == len(feedback) >= 4
    right = [answer for answer in answers if answer.get("correct")]
    if question["type"] == "numeric":
        assert answers[-1]["type"] == "default"
        assert len(right) == 1
    else:
        assert (len(right) == 1) == (question["type"] == "multiple_choice")
        assert len(right) < len(answers)
    # The quiz's script turns dollar signs into formulas and [..](..) into links.
    assert not re.search(r"[$\\]|\]\(", json.dumps(question).replace('\\"', ""))


@pytest.mark.parametrize("slug", SLUGS)
def test_a_quiz_has_six_to_eight_questions_of_several_kinds(slug: str) -> None:
    questions = quiz.show(slug, QUIZZES).questions
    assert 6 <= len(questions) <= 8
    assert {q["type"] for q in questions} == {"multiple_choice", "many_choice", "numeric"}
    assert len({q["id"] for q in questions}) == len(questions)
    first = [q["answers"][0].get("correct") for q in questions if q["type"] != "numeric"]
    assert not all(first), "the right answer always comes first"


def test_a_quiz_is_found_from_a_chapters_folder_and_shown_the_same_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(QUIZZES.parent)
    shown = quiz.show(SLUGS[0])
    assert shown._repr_html_() == quiz.show(SLUGS[0])._repr_html_()
    assert shown.questions[0]["question"] in repr(shown)
    with pytest.raises(FileNotFoundError, match=r"no quiz nowhere\.json in a folder quizzes"):
        quiz.show("nowhere")


@pytest.mark.skipif(not shutil.which("chromium"), reason="there is no chromium on this machine")
def test_a_quiz_answers_in_a_page_without_network_or_console_error(tmp_path: Path) -> None:
    from playwright.sync_api import sync_playwright

    page_file = tmp_path / "page.html"
    body = "".join(quiz.show(slug, QUIZZES)._repr_html_() for slug in SLUGS)
    # A page that has begun to load MathJax, which the library would otherwise try to use.
    page_file.write_text(f"<!doctype html><script>MathJax = {{}}</script>{body}", encoding="utf-8")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page()
        requests: list[str] = []
        noise: list[str] = []
        page.on("request", lambda request: requests.append(request.url))
        page.on("console", lambda message: noise.append(message.text))
        page.on("pageerror", lambda error: noise.append(str(error)))
        page.clock.install()
        page.goto(page_file.as_uri())
        assert page.locator(".Quiz").count() == sum(
            len(quiz.show(slug, QUIZZES).questions) for slug in SLUGS
        )
        memory = page.locator("#quiz_memory_wall")
        memory.get_by_text("It halves: everything is in 16 bits now.").click()
        memory.get_by_text("✘ Weights and gradients shrink to half.").wait_for()
        memory.get_by_text("Nothing: it stays at 16 bytes per parameter.").click()
        memory.get_by_text("✔ Right. 4 + 4 + 8 before").wait_for()
        numeric = memory.locator("input[type=text]").first
        for typed, shown in (("12", "✘ 12 leaves out"), ("16", "✔ Right: 2 weights")):
            numeric.click()
            numeric.press_sequentially(typed)
            numeric.press("Enter")
            memory.get_by_text(shown).wait_for()
        page.clock.fast_forward(1000)  # the library looks for MathJax again half a second later
        browser.close()
    assert requests == [page_file.as_uri()]
    assert noise == []
