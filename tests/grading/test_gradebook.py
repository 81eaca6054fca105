"""The gradebook for grading by hand, in a real database and in nbgrader's own formgrader."""

import os
import re
import shutil
import socket
import string
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

pytest.importorskip("nbgrader", reason="nbgrader is not installed")

import nbformat
from nbconvert.filters.markdown_mistune import markdown2html_mistune
from nbgrader.api import Gradebook, MissingEntry
from nbgrader.nbgraderformat import MetadataValidator
from sqlalchemy import URL

from dlsys.grading.assignment import TEXT, Assignment, Cell, Question, WrittenQuestion
from dlsys.grading.reports.gradebook import manual_scores, update
from dlsys.grading.result import (
    GRADED,
    MISSING,
    NOT_GRADED,
    PARTLY,
    REFUSED,
    CheckResult,
    QuestionResult,
    Result,
    WrittenAnswer,
)

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
RUBRIC = "- 2 points: every link is busy\n- 1 point: nobody sends more than 2(n-1)/n"
RING = Assignment(
    slug="ring",
    title="Exercises: rings",
    cells=(Cell("why-question", TEXT, "## 2. Why a ring?\n\n*Explain* it with $n$ ranks."),),
    questions=(Question("sum", "1. A sum", 2.0, "total = ...", "total = 3", ("total",), ()),),
    written=(WrittenQuestion("why", "2. Why a ring?", 3.0, "", RUBRIC),),
    files={},
    digest="",
)
TREE = replace(RING, slug="tree", title="Exercises: trees")
BOTH = {"ring": RING, "tree": TREE}


def graded(student="ann", slug="ring", text="All links are busy.", earned=1.5, code="total = 3"):
    checks = [CheckResult(False, True, "total"), CheckResult(True, False, hint="One is missing.")]
    return Result(
        student,
        slug,
        GRADED,
        questions=[QuestionResult("sum", "1. A sum", 2.0, earned, PARTLY, checks, code)],
        written=[WrittenAnswer("why", "2. Why a ring?", 3.0, text, bool(text))],
    )


@contextmanager
def opened(folder: Path) -> Iterator[Gradebook]:
    url = URL.create("sqlite", database=str(folder / "nbgrader" / "gradebook.db"))
    with Gradebook(url, course_id="dlsys") as book:
        yield book


def grade_by_hand(folder, score, comment="", question="why", student="ann", slug="ring"):
    """What the formgrader does when a person types points and a comment."""
    with opened(folder) as book:
        grade = book.find_grade(question, slug, slug, student)
        grade.manual_score, grade.needs_manual_grade = score, False
        book.find_comment(question, slug, slug, student).manual_comment = comment or None
        book.db.commit()


def page(folder, student="ann", slug="ring"):
    return folder / "nbgrader" / "autograded" / student / slug / f"{slug}.ipynb"


def cell(path: Path, name: str) -> str:
    found = (c for c in nbformat.read(path, 4).cells if c.metadata.nbgrader.grade_id == name)
    return str(next(found).source)


def test_points_from_running_are_in_the_gradebook_and_written_ones_wait_for_a_person(tmp_path):
    update(tmp_path, BOTH, [graded(), graded(slug="tree", earned=2.0)])
    with opened(tmp_path) as book:
        submission = book.find_submission("ring", "ann")
        assert (submission.score, submission.max_score) == (1.5, 5.0)
        assert (submission.code_score, submission.max_written_score) == (1.5, 3.0)
        assert submission.needs_manual_grade
        assert book.find_submission_notebook("ring", "ring", "ann").failed_tests
        assert book.find_student("ann").score == 3.5
    waiting = (None, "")
    assert manual_scores(tmp_path) == {
        ("ann", "ring", "why"): waiting,
        ("ann", "tree", "why"): waiting,
    }


def test_no_gradebook_holds_no_scores(tmp_path):
    assert manual_scores(tmp_path) == {}


def test_a_score_given_by_hand_comes_back_and_survives_running_again(tmp_path):
    update(tmp_path, BOTH, [graded()])
    grade_by_hand(tmp_path, 2.5, "Say more.")
    before = page(tmp_path).stat().st_mtime_ns
    update(tmp_path, BOTH, [graded(), graded("ben")])
    assert manual_scores(tmp_path)["ann", "ring", "why"] == (2.5, "Say more.")
    assert page(tmp_path).stat().st_mtime_ns == before
    with opened(tmp_path) as book:
        assert book.find_submission("ring", "ann").score == 4.0


def test_extra_credit_counts(tmp_path):
    update(tmp_path, BOTH, [graded()])
    grade_by_hand(tmp_path, 3.0)
    with opened(tmp_path) as book:
        book.find_grade("why", "ring", "ring", "ann").extra_credit = 1.0
        book.db.commit()
    assert manual_scores(tmp_path)["ann", "ring", "why"] == (4.0, "")


def test_another_answer_waits_again_with_the_old_score_shown_until_a_person_agrees(tmp_path):
    update(tmp_path, BOTH, [graded()])
    grade_by_hand(tmp_path, 2.5, "Say more.")
    update(tmp_path, BOTH, [graded(text="No link is ever idle.")])
    assert manual_scores(tmp_path)["ann", "ring", "why"] == (None, "")
    with opened(tmp_path) as book:
        grade = book.find_grade("why", "ring", "ring", "ann")
        assert (grade.manual_score, grade.needs_manual_grade) == (2.5, True)
    assert "No link is ever idle." in cell(page(tmp_path), "why")
    grade_by_hand(tmp_path, 2.5, "Better.")
    update(tmp_path, BOTH, [graded(text="No link is ever idle.")])
    assert manual_scores(tmp_path)["ann", "ring", "why"] == (2.5, "Better.")


def test_a_run_that_ended_before_it_wrote_the_notebooks_still_asks_for_changed_answers(tmp_path):
    update(tmp_path, BOTH, [graded()])
    grade_by_hand(tmp_path, 2.5)
    page(tmp_path).write_text("{", "utf-8")
    update(tmp_path, BOTH, [graded()])
    assert manual_scores(tmp_path)["ann", "ring", "why"] == (None, "")


def test_an_answer_left_empty_asks_for_nobody(tmp_path):
    update(tmp_path, BOTH, [graded(text="")])
    assert manual_scores(tmp_path) == {}
    with opened(tmp_path) as book:
        assert not book.find_submission("ring", "ann").needs_manual_grade
    update(tmp_path, BOTH, [graded(text="All links are busy.")])
    assert manual_scores(tmp_path) == {("ann", "ring", "why"): (None, "")}


def test_other_points_for_a_question_graded_by_running_come_back_until_its_answer_changes(tmp_path):
    update(tmp_path, BOTH, [graded()])
    grade_by_hand(tmp_path, 2.0, "The idea is right.", question="sum")
    update(tmp_path, BOTH, [graded(earned=1.0)])
    assert manual_scores(tmp_path)["ann", "ring", "sum"] == (2.0, "The idea is right.")
    update(tmp_path, BOTH, [graded(earned=0.0, code="total = 4")])
    assert manual_scores(tmp_path)["ann", "ring", "sum"] == (None, "")
    with opened(tmp_path) as book:
        assert book.find_grade("sum", "ring", "ring", "ann").auto_score == 0.0


@pytest.mark.parametrize("status", [REFUSED, NOT_GRADED, MISSING])
def test_what_was_not_graded_is_no_zero_in_the_gradebook(tmp_path, status):
    update(tmp_path, BOTH, [Result("ann", "ring", status, "It cannot be read."), graded("ben")])
    with opened(tmp_path) as book, pytest.raises(MissingEntry):
        book.find_submission("ring", "ann")
    assert set(manual_scores(tmp_path)) == {("ben", "ring", "why")}


def test_what_is_no_longer_handed_in_stays(tmp_path):
    update(tmp_path, BOTH, [graded(), graded("ben")])
    grade_by_hand(tmp_path, 3.0)
    update(tmp_path, BOTH, [graded("ben"), Result("ann", "ring", REFUSED, "It is no notebook.")])
    assert manual_scores(tmp_path)["ann", "ring", "why"] == (3.0, "")
    assert page(tmp_path).is_file()


PLAIN = set(string.ascii_letters + string.digits + "._@-~")
ODD = [
    "Zoë Smith",
    "zoe smith",
    "../../up",
    "a/b",
    ".",
    "x" * 300,
    "<img src=x>",
    "名前",
    "\udcff",
    "",
]


def test_odd_names_are_students_of_their_own_and_lead_nowhere_else(tmp_path):
    folder = tmp_path / "a ? b # c" / "grades"
    update(folder, BOTH, [graded(name) for name in ODD])
    update(folder, BOTH, [graded(name) for name in ODD])
    assert {student for student, _, _ in manual_scores(folder)} == set(ODD)
    assert [path.name for path in tmp_path.iterdir()] == ["a ? b # c"]
    assert sorted(p.name for p in folder.iterdir()) == ["nbgrader"]
    with opened(folder) as book:
        ids = [student.id for student in book.students]
    assert len(ids) == len(ODD)
    assert all(set(each) <= PLAIN for each in ids)


def test_a_question_that_was_added_later_is_there_for_everybody(tmp_path):
    update(tmp_path, BOTH, [graded()])
    grade_by_hand(tmp_path, 3.0)
    more = replace(RING, written=(*RING.written, WrittenQuestion("how", "3. How?", 1.0, "", "")))
    answers = [*graded().written, WrittenAnswer("how", "3. How?", 1.0, "In rounds.", True)]
    update(tmp_path, {"ring": more}, [replace(graded(), written=answers)])
    assert manual_scores(tmp_path) == {
        ("ann", "ring", "why"): (3.0, ""),
        ("ann", "ring", "how"): (None, ""),
    }
    grade_by_hand(tmp_path, 1.0, "Yes.", question="how")
    assert manual_scores(tmp_path)["ann", "ring", "how"] == (1.0, "Yes.")


@pytest.mark.parametrize("zone", [None, UTC, timezone(timedelta(hours=2))])
def test_the_date_is_kept_in_utc(tmp_path, zone):
    due = datetime(2026, 12, 1, 23, 59, tzinfo=zone)
    update(tmp_path, {"ring": RING}, [], due)
    update(tmp_path, {"ring": RING}, [])
    with opened(tmp_path) as book:
        expected = datetime(2026, 12, 1, 21 if zone and zone is not UTC else 23, 59)
        assert book.find_assignment("ring").duedate == expected


def test_a_grader_sees_question_rubric_answer_and_what_the_checks_gave(tmp_path):
    update(tmp_path, BOTH, [replace(graded(), isolated=False)])
    notebook = nbformat.read(page(tmp_path), 4)
    names = [c.metadata.nbgrader.grade_id for c in notebook.cells]
    asked, rubric, answer = (names.index(f"why{part}") for part in ("-question", "-rubric", ""))
    assert asked < rubric < answer < names.index("sum")
    assert "every link is busy" in notebook.cells[rubric].source
    assert "All links are busy." in notebook.cells[answer].source
    outcome = notebook.cells[names.index("sum")].source
    assert all(
        t in outcome for t in ("total = 3", "✔ total", "✘ a hidden check", "One is missing.")
    )
    assert "NOT ISOLATED" in cell(page(tmp_path), "not-isolated")


def test_the_notebooks_are_valid_and_none_holds_a_cell_that_runs(tmp_path):
    update(tmp_path, BOTH, [graded()])
    paths = list(tmp_path.rglob("*.ipynb"))
    assert len(paths) == 3
    for path in paths:
        notebook = nbformat.read(path, 4)
        nbformat.validate(notebook)
        MetadataValidator().validate_nb(notebook)
        assert {c.cell_type for c in notebook.cells} == {"markdown"}


HOSTILE = (
    "```\n<script>alert(1)</script>\n`````\n<img src=x onerror=alert(1)>\n"
    "$\\href{javascript:alert(1)}{x}$\n$$\n[x](javascript:alert(1))\n</code></pre>\x1b[31m\x00\u202e"
)


def test_no_answer_is_more_than_text_to_the_grader(tmp_path):
    update(tmp_path, BOTH, [graded(text=HOSTILE, code=HOSTILE)])
    for name in ("why", "sum"):
        html = markdown2html_mistune(cell(page(tmp_path), name))
        assert not any(tag in html for tag in ("<script", "<img", "<a ", "href="))
        assert html.count("</pre>") == (1 if name == "why" else 2)
        shown = re.sub(r"<[^>]+>", "", html)
        assert "\\u202e" in shown
        assert "\\x00" in shown


def test_an_unusable_gradebook_is_told_in_a_sentence(tmp_path):
    (tmp_path / "nbgrader").mkdir()
    (tmp_path / "nbgrader" / "gradebook.db").write_bytes(b"no database" * 500)
    with pytest.raises(ValueError, match="cannot be used"):
        update(tmp_path, BOTH, [graded()])
    with pytest.raises(ValueError, match="cannot be used"):
        manual_scores(tmp_path)


def test_nothing_is_printed_and_no_command_is_needed(tmp_path, capfd, monkeypatch):
    monkeypatch.setenv("PATH", "")
    update(tmp_path, BOTH, [graded()])
    manual_scores(tmp_path)
    assert capfd.readouterr() == ("", "")


@pytest.fixture
def formgrader(tmp_path) -> Iterator[str]:
    """The address of a Jupyter server in the course's folder, with its token."""
    update(tmp_path / "grades", BOTH, [graded(text=HOSTILE)])
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [
            *(sys.executable, "-m", "jupyter_server", "--no-browser", "--allow-root"),
            *("--ip=127.0.0.1", f"--port={port}", "--ServerApp.port_retries=0"),
            "--IdentityProvider.token=secret",
        ],
        cwd=tmp_path / "grades" / "nbgrader",
        env={**os.environ, "HOME": str(tmp_path), "JUPYTER_CONFIG_DIR": str(tmp_path / "config")},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert server.stderr is not None
    try:
        said = []
        for line in server.stderr:
            said.append(line)
            if "is running at" in line:
                break
        else:
            pytest.fail("".join(said))
        yield f"http://127.0.0.1:{port}/formgrader?token=secret"
    finally:
        server.terminate()
        server.wait()
        server.stderr.close()


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")
def test_a_score_typed_in_the_formgrader_comes_back_and_no_answer_runs_there(formgrader, tmp_path):
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    home = formgrader.split("/formgrader")[0]
    alerts = []
    with playwright.sync_playwright() as driver:
        flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = driver.chromium.launch(executable_path=CHROMIUM, headless=True, args=flags)
        tab = browser.new_page()
        tab.route(lambda url: not url.startswith(home), lambda route: route.abort())
        tab.on("dialog", lambda dialog: (alerts.append(dialog.message), dialog.dismiss()))
        tab.goto(formgrader)
        tab.goto(f"{home}/formgrader/gradebook/ring/ring")
        tab.locator("td.name a").first.click()
        tab.locator("input#why.needs_manual_grade").wait_for()
        assert "every link is busy" in tab.locator("#notebook").first.inner_text()
        assert (
            "<script>alert(1)</script>" in tab.locator("#notebook-container pre").first.inner_text()
        )
        with tab.expect_response(lambda r: r.request.method == "PUT" and "/grade/" in r.url):
            tab.fill("input#why", "2")
            tab.keyboard.press("Tab")
        with tab.expect_response(lambda r: r.request.method == "PUT" and "/comment/" in r.url):
            tab.fill("textarea#why-comment", "Say more.")
            tab.keyboard.press("Tab")
        browser.close()
    assert not alerts
    assert manual_scores(tmp_path / "grades") == {("ann", "ring", "why"): (2.0, "Say more.")}
