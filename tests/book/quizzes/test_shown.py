"""Quizzes: how they are shown, and that they work in a page without a network."""

from pathlib import Path
from typing import Any

import pytest

from dlsys.notebook import quiz
from tests.book.quizzes import QUIZZES

SLUGS = sorted(path.stem for path in QUIZZES.glob("*.json"))


def test_a_quiz_is_found_from_any_folder_and_shown_the_same_each_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    shown = quiz.show(SLUGS[0])
    assert shown._repr_html_() == quiz.show(SLUGS[0])._repr_html_()
    assert shown.questions[0]["question"] in repr(shown)
    with pytest.raises(ValueError, match=r"no quiz 'nowhere'; .* Known: .*collectives, "):
        quiz.show("nowhere")


def test_a_quiz_answers_in_a_page_without_network_or_console_error(
    tmp_path: Path, browser: Any
) -> None:
    page_file = tmp_path / "page.html"
    body = "".join(quiz.show(slug)._repr_html_() for slug in SLUGS)
    # A page that has begun to load MathJax, which the library would otherwise try to use.
    page_file.write_text(f"<!doctype html><script>MathJax = {{}}</script>{body}", encoding="utf-8")
    page = browser.new_page()
    requests: list[str] = []
    noise: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: noise.append(message.text))
    page.on("pageerror", lambda error: noise.append(str(error)))
    page.clock.install()
    page.goto(page_file.as_uri())
    assert page.locator(".Quiz").count() == sum(len(quiz.show(slug).questions) for slug in SLUGS)
    memory = page.locator("#quiz_memory_wall")
    memory.get_by_text("It falls by a quarter: only the weights shrink.").click()
    memory.get_by_text("✘ The 16-bit weights save 2 bytes of 16").wait_for()
    memory.get_by_text("It grows by an eighth.").click()
    memory.get_by_text("✔ Right. 4 + 4 + 8 before").wait_for()
    numeric = memory.locator("input[type=text]").first
    for typed, shown in (("8", "✘ 8 leaves out"), ("12", "✔ Right: 2 weights")):
        numeric.click()
        numeric.press_sequentially(typed)
        numeric.press("Enter")
        memory.get_by_text(shown).wait_for()
    page.clock.fast_forward(1000)  # the library looks for MathJax again half a second later
    page.close()
    assert requests == [page_file.as_uri()]
    assert noise == []
