"""The page that a student gets: what it says, what it must not say, and that nothing in it runs."""

import base64
import hashlib
import os
import re
import shutil
from collections import Counter
from dataclasses import fields, replace
from html.parser import HTMLParser

import pytest

from dlsys.exercises import seal, sealed
from dlsys.exercises.judge import complaint
from dlsys.grading.assignment import Assignment, Question
from dlsys.grading.checks import Check
from dlsys.grading.course.grade import Grade
from dlsys.grading.reports.feedback import page, write
from dlsys.grading.result import (
    BROKE,
    GRADED,
    MISSING,
    NOT_GRADED,
    PARTLY,
    REFUSED,
    RIGHT,
    UNANSWERED,
    WRONG,
    CheckResult,
    QuestionResult,
    Result,
    WrittenAnswer,
)
from dlsys.grading.text import file_name, visible

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
RINGS = {"ring": Assignment("ring", "Exercises: rings", (), (), (), {}, "")}
HINT = "Both phases count."


def passed(**more):
    return CheckResult(False, True, "total", "a number", **more)


def failed(**more):
    message = f"total is not right.\n  came:      1\n  expected:  3\n  likely:    {HINT}"
    return CheckResult(
        False, False, "total", "a number", **{"message": message, "hint": HINT, **more}
    )


def question(status, earned, *checks, **more):
    values = {"id": "sum", "title": "1. A sum", "points": 2.0, "answer": "total = 1"}
    return QuestionResult(status=status, earned=earned, checks=list(checks), **{**values, **more})


def graded(*questions, written=(), **more):
    return Result("ann", "ring", GRADED, questions=list(questions), written=list(written), **more)


class Text(HTMLParser):
    """The text of a page, without what is folded or styles it, and its elements in order."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.parts: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(source)
        self.text = " ".join(" ".join(self.parts).split())

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data):
        if self.elements and self.elements[-1][0] != "style":
            self.parts.append(data)


def text(*grades, comments=None):
    return Text(page([*map(as_grade, grades)], RINGS, comments)).text


def as_grade(each):
    return each if isinstance(each, Grade) else Grade(each)


# -- what the page says ---------------------------------------------------------------------------


@pytest.mark.parametrize("status", [RIGHT, PARTLY, WRONG, UNANSWERED, BROKE])
def test_every_status_is_there_in_words_with_its_points(status):
    assert f"{status.capitalize()} : 1.33 of 2 points" in text(graded(question(status, 4 / 3)))


def test_a_failed_check_shows_what_came_the_kind_wanted_and_the_hint_once():
    shown = text(graded(question(WRONG, 0.0, failed())))
    assert "total is not right. came: 1 expected: 3 Wanted here: a number." in shown
    assert Counter(re.findall(re.escape(HINT), shown))[HINT] == 1


def test_what_a_check_is_worth_stands_beside_it():
    checks = (
        Check("total", 3),
        Check("total + 1", 4, weight=2, hidden=True),
        Check("total + 2", 5, hidden=True, needed=True),
    )
    asked = Question("sum", "1. A sum", 2.0, "", "", ("total",), checks)
    rings = {"ring": replace(RINGS["ring"], questions=(asked,))}
    hidden = CheckResult(True, True)
    came = graded(question(PARTLY, 1.5, failed(), hidden, hidden))
    shown = Text(page([Grade(came)], rings)).text
    assert "total is not right. (worth 0.5 points) came: 1" in shown
    assert "numbers: passed (worth 1 point) " in shown
    assert "passed (worth 0.5 points; without it the question earns nothing)" in shown
    # of an older assignment: nothing can be said
    older = graded(question(PARTLY, 1.5, failed(), hidden))
    assert "worth" not in Text(page([Grade(older)], rings)).text


def test_what_is_expected_stands_on_the_page_only_where_the_notebook_shows_it():
    for expected, told in ((81234.5, "expected: 81,234.5"), (sealed(seal(81234.5)), "not shown")):
        message = complaint("total", 2.0, expected, "It differs.")
        shown = text(graded(question(WRONG, 0.0, failed(message=message, hint=None))))
        assert f"came: 2.0 {'' if told != 'not shown' else 'expected: '}{told}" in shown
        assert ("234.5" in shown) == (told != "not shown")


def test_an_answer_that_beats_the_best_known_is_congratulated():
    cost, best = {"messages": 16, "seconds": 2.4e-6}, {"messages": 24, "seconds": 3.6e-6}
    assert "well done" in text(graded(question(RIGHT, 2.0, passed(cost=cost, best=best))))
    assert "well done" not in text(graded(question(RIGHT, 2.0, passed(cost=best, best=cost))))


def test_a_cost_stands_beside_the_best_known():
    cost, best = {"bytes": 2e9, "messages": 14, "seconds": 3.8e-5}, {"bytes": 1.2e9}
    shown = text(graded(question(RIGHT, 2.0, passed(cost=cost, best=best))))
    assert "Cost of your answer 2 GB, 14 messages, 38 µs Best known 1.2 GB" in shown


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf"), "x", None, [1]])
def test_a_cost_that_is_none_does_not_stop_the_page(value):
    for name in ("bytes", "seconds", "messages"):
        text(graded(question(RIGHT, 2.0, passed(cost={name: value}, best={name: value}))))


def test_hidden_checks_show_neither_expression_nor_values():
    secret = CheckResult(
        True,
        False,
        "SECRET(7)",
        "SECRET",
        "SECRET is not right",
        HINT,
        {"SECRET": 7.0},
        {"SECRET": 7.0},
    )
    source = page(
        [Grade(graded(question(PARTLY, 1.0, replace(secret, passed=True), secret)))], RINGS
    )
    assert "SECRET" not in source
    shown = Text(source).text
    assert "A check with other numbers: passed" in shown
    assert "A check with other numbers: not passed" in shown
    assert HINT in shown


def test_the_error_of_an_answer_and_the_answer_are_there():
    shown = text(graded(question(WRONG, 0.0, error="ZeroDivisionError: division by zero")))
    assert "ended with an error: ZeroDivisionError: division by zero" in shown
    assert "Your answer total = 1" in shown


def test_written_answers_wait_until_a_person_has_graded_them():
    why = WrittenAnswer("why", "2. Why?", 3.0, "Because.", True)
    shown = text(graded(question(RIGHT, 2.0), written=[why]))
    assert "To be graded by hand , 3 points Your answer Because." in shown
    so_far = "2 of 5 points so far; up to 3 more for answers that a person has yet to grade."
    assert shown.count(so_far) == 2
    grade = Grade(graded(question(RIGHT, 2.0), written=[why]), by_hand={"why": 2.5})
    shown = text(
        grade, comments={("ann", "ring", "why"): "Say more.", ("ben", "ring", "why"): "No"}
    )
    assert "Graded by hand : 2.5 of 3 points Comment: Say more." in shown
    assert "4.5 of 5 points." in shown
    assert "wait" not in shown
    assert "No" not in shown.split()


def test_a_written_question_left_empty_is_not_answered():
    shown = text(graded(written=[WrittenAnswer("why", "2. Why?", 3.0, "*Write here.*", False)]))
    assert "Not answered : 0 of 3 points" in shown


def test_points_that_a_person_changed_say_so():
    shown = text(Grade(graded(question(PARTLY, 0.5)), by_hand={"sum": 2.0}))
    assert "2 of 2 points A person has changed the points; by running they were 0.5." in shown


def test_lateness_is_told_and_taken_from_the_total():
    grade = Grade(graded(question(RIGHT, 2.0)), penalty_for=lambda score, seconds: 0.5)
    assert "1.5 of 2 points, after 0.5 were taken for being late" in text(grade)


@pytest.mark.parametrize("status", [REFUSED, NOT_GRADED, MISSING])
def test_what_was_not_graded_has_a_reason_and_no_points(status):
    shown = text(Result("ann", "ring", status, "It is no notebook."))
    assert f"{status.capitalize()}. It is no notebook." in shown
    assert "no points yet" in shown
    assert not re.search(r"\d", shown)


def test_a_page_says_where_nothing_was_isolated():
    assert "NOT ISOLATED" in text(graded(question(RIGHT, 2.0), isolated=False))
    assert "NOT ISOLATED" not in text(graded(question(RIGHT, 2.0)))


def test_notes_on_the_notebook_are_shown():
    assert "A cell was doubled." in text(graded(notes=["A cell was doubled."]))


def test_the_page_is_named_after_the_student_and_called_by_name(tmp_path):
    path = write(tmp_path, [Grade(graded(), {"name": "Ann Example"})], RINGS)
    assert path == tmp_path / "feedback" / "ann.html"
    assert "<title>Feedback for Ann Example</title>" in path.read_text("utf-8")


# -- how it is built ------------------------------------------------------------------------------


def test_headings_are_in_order_and_tables_and_fields_are_named():
    why = WrittenAnswer("why", "2. Why?", 3.0, "Because.", True)
    full = graded(question(RIGHT, 2.0, passed()), written=[why])
    elements = Text(page([Grade(full), Grade(replace(full, slug="tree"))], RINGS)).elements
    levels = [int(tag[1]) for tag, _ in elements if re.fullmatch("h[1-6]", tag)]
    assert levels == [1, 2, 3, 3, 2, 3, 3]
    tags = [tag for tag, _ in elements]
    assert tags.count("caption") == tags.count("table") == 1
    assert all(attrs.get("scope") for tag, attrs in elements if tag == "th")
    ids = [attrs["id"] for _, attrs in elements if "id" in attrs]
    assert len(set(ids)) == len(ids)
    assert {attrs["href"] for tag, attrs in elements if tag == "a"} == {f"#{each}" for each in ids}
    assert ("html", {"lang": "en"}) in elements


def test_the_policy_admits_the_styles_of_the_page_and_nothing_else():
    source = page([Grade(graded())], RINGS)
    style = re.search(r"<style>(.*?)</style>", source, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    assert f'content="{policy}"' in source


# -- what a student may have written --------------------------------------------------------------

HOSTILE = (
    "</pre></code></style></title><script>alert(1)</script><img src=x onerror=alert(2)>"
    "<svg onload=alert(3)><a href=javascript:alert(4)>x</a><iframe src=//example.org></iframe>"
    "<link rel=stylesheet href=http://example.org/a.css><meta http-equiv=refresh content=0>"
    "{{ 7 * 7 }}{% raw %}\"'><base href=//example.org><style>*{display:none}</style>"
    "\x1b[31mred\x00\x07\u202egnp.exe\u2066\ud800\r\n" + "long" * 5000
)


def hostile_grade():
    check = CheckResult(
        False, False, HOSTILE, HOSTILE, HOSTILE, HOSTILE, {HOSTILE: 1.0}, {HOSTILE: 1.0}
    )
    hidden = CheckResult(True, False, hint=HOSTILE)
    result = Result(
        HOSTILE,
        "ring",
        GRADED,
        reason=HOSTILE,
        questions=[
            QuestionResult("sum", HOSTILE, 2.0, 1.0, PARTLY, [check, hidden], HOSTILE, HOSTILE)
        ],
        written=[WrittenAnswer("why", HOSTILE, 3.0, HOSTILE, True)],
        notes=[HOSTILE],
    )
    return Grade(result, {"name": HOSTILE})


def hostile_page():
    refused = Grade(Result(HOSTILE, HOSTILE, REFUSED, HOSTILE))
    return page([hostile_grade(), refused], RINGS, {(HOSTILE, "ring", "why"): HOSTILE})


def test_whatever_a_student_writes_is_text():
    elements = Counter(tag for tag, _ in Text(hostile_page()).elements)
    forbidden = {"script", "img", "svg", "iframe", "link", "base", "object", "form"}
    assert not forbidden & elements.keys()
    assert elements["style"] == elements["title"] == 1
    assert elements["meta"] == 5
    for _, attrs in Text(hostile_page()).elements:
        assert not any(name.startswith("on") or name in ("src", "style") for name in attrs)
        assert attrs.get("href", "#").startswith("#")


def test_nothing_that_cannot_be_seen_is_on_the_page():
    source = hostile_page()
    assert "{{ 7 * 7 }}" in source
    assert not re.search(
        "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", source
    )
    assert "\\u202egnp.exe\\u2066\\ud800" in source
    assert "[31m" not in source
    source.encode()


def test_an_endless_answer_is_cut():
    assert len(page([Grade(graded(question(WRONG, 0.0, answer="x" * 10**7)))], RINGS)) < 10**5


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    with playwright.sync_playwright() as driver:
        flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = driver.chromium.launch(executable_path=CHROMIUM, headless=True, args=flags)
        yield browser
        browser.close()


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")
@pytest.mark.parametrize("width", [400, 1200])
def test_nothing_runs_and_no_request_leaves_a_hostile_page(browser, tmp_path, width):
    path = tmp_path / "page.html"
    path.write_text(hostile_page(), "utf-8")
    asked, alerts, complaints = [], [], []
    with browser.new_context(viewport={"width": width, "height": 800}) as context:
        tab = context.new_page()
        tab.on("request", lambda request: asked.append(request.url))
        tab.on("dialog", lambda dialog: (alerts.append(dialog.message), dialog.dismiss()))
        tab.on("console", lambda message: complaints.append(message.text))
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.goto(path.as_uri(), wait_until="networkidle")
        tab.evaluate("document.querySelectorAll('details').forEach(fold => fold.open = true)")
        wide = tab.evaluate("document.documentElement.scrollWidth")
        shown = tab.locator("main").inner_text()
    assert asked == [path.as_uri()]
    assert not alerts
    assert not complaints
    assert wide <= width
    assert "<script>alert(1)</script>" in shown


# -- names and text -------------------------------------------------------------------------------


def test_files_are_named_plainly_and_no_two_students_share_one():
    names = [
        "ann",
        "ann@uni.example",
        "Ann",
        "a/b",
        "a b",
        "..",
        ".",
        "",
        "x" * 300,
        "é",
        "a~1",
        "-a",
    ]
    found = [file_name(name) for name in names]
    assert len(set(found)) == len(names)
    assert found[:3] == names[:3]
    assert all(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._@~-]{0,99}", each) for each in found)
    assert file_name(found[3]) != found[3]  # nobody can be called as somebody else's file


def test_text_in_other_scripts_is_left_as_it_is():
    kept = "naïve Ελληνικά עברית 名前 👩‍👩‍👧 x\ty\nz"
    assert visible(kept) == kept


def test_terminal_commands_go_and_line_ends_become_one_kind():
    assert visible("\x1b[1;31mred\x1b[0m \x1b]0;title\x07a\r\nb\rc") == "red a\nb\nc"
    assert visible("\x1b") == "\\x1b"


def test_every_field_of_a_result_that_holds_text_was_tried():
    # A field that is added has to be thought of here, and in the hostile page above.
    assert [f.name for f in fields(CheckResult) if f.name not in ("hidden", "passed")] == [
        *("expression", "kind", "message", "hint", "cost", "best")
    ]
    assert {f.name for f in fields(QuestionResult)} == {
        *("id", "title", "points", "earned", "status", "checks", "answer", "error")
    }
