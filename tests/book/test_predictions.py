"""A prediction on a page: with scripts it asks for a guess and tells how far off it was, without them it folds."""

import pytest

pytest.importorskip("myst_nb", reason="the book's tools are not installed")

from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace, patch_docutils

from dlsys.notebook.predict import answer
from tests.contents import ROOT

PAGE = """---
jupytext:
  text_representation:
    extension: .md
    format_name: myst
kernelspec:
  display_name: Python 3
  name: python3
---

# A chapter

Predict how much is kept.

```{code-cell} ipython3
:tags: [predict]
from dlsys.notebook.predict import answer
print("of four")
answer(2 * 56, "GB")
```

It is one hundred and twelve.

In between.

```{code-cell} ipython3
:tags: [after-prediction]
print("56 + 56")
```

```{code-cell} ipython3
:tags: [after-prediction, hide-input]
print("4", "times", "28")
```

Not hidden.

## A choice

Does it grow or shrink? Predict.

```{code-cell} ipython3
:tags: [predict]
answer(0.5, choices={"it grows": 2, "it shrinks": 0.5})
```

(told)=
It shrinks.
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A book of one page, with the theme, style and script of ours."""
    source = tmp_path_factory.mktemp("book")
    (source / "index.md").write_text(PAGE)
    settings = {
        "extensions": ["myst_nb", "dlsys.notebook.book"],
        "nb_execution_mode": "cache",
        "nb_execution_cache_path": str(source / "cache"),
        "html_theme": "sphinx_book_theme",
        "html_static_path": [str(ROOT / "chapters" / "_static")],
        "html_css_files": ["book.css"],
        "html_js_files": [["predict.js", {"defer": "defer"}]],
    }
    out = source / "html"
    with patch_docutils(), docutils_namespace():
        quiet = {"status": None, "warning": None, "warningiserror": True}
        app = Sphinx(str(source), None, str(out), str(source / "trees"), "html", settings, **quiet)
        app.build()
    assert app.statuscode == 0
    return (out / "index.html").as_uri()


@pytest.fixture
def page(browser, site):
    context = browser.new_context()
    page = context.new_page()
    page.on("pageerror", lambda error: pytest.fail(str(error)))
    page.goto(site)
    yield page
    context.close()


@pytest.fixture
def page_without_scripts(browser, site):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(site)
    yield page
    context.close()


def texts(page, *shown: str) -> list[bool]:
    """Whether each text is there to be seen; what is `until-found` has a box of no height."""
    look = "e => e.checkVisibility() && e.getBoundingClientRect().height > 4"
    return [page.get_by_text(text, exact=True).last.evaluate(look) for text in shown]


NUMBER = "of four", "112 GB", "It is one hundred and twelve.", "In between.", "56 + 56"
CHOICE = "it shrinks", "It shrinks."


def guess(page, number: str) -> None:
    page.get_by_label("Your guess").first.fill(number)
    page.keyboard.press("Enter")


def load_again(page) -> None:
    page.wait_for_timeout(500)  # a browser writes its storage behind, and readers are no quicker
    page.reload()


def test_what_tells_the_answer_is_hidden_until_there_is_a_guess_and_no_more_than_that(page):
    assert not any(texts(page, *NUMBER))
    assert texts(page, "Not hidden.") == [True]
    guess(page, "28")
    assert all(texts(page, *NUMBER))
    assert texts(page, "It shrinks.") == [False], "the other prediction was answered, too"


def test_code_that_its_author_hides_stays_folded_beside_the_answer(page):
    guess(page, "28")
    source = page.locator(".tag_hide-input .cell_input")
    assert texts(page, "4 times 28") == [True]
    assert not source.evaluate("e => e.checkVisibility()")
    page.get_by_text("Show code cell source").click()
    assert source.evaluate("e => e.checkVisibility()")


@pytest.mark.parametrize(
    ("number", "said"),
    [
        ("28", "Your guess is too low by a factor of 4. Answer: 112 GB."),
        ("224000", "Your guess is too high by a factor of 2,000. Answer: 112 GB."),
        ("110", "Right, within 5 %. Answer: 112 GB."),
        ("0", "Your guess is too low. Answer: 112 GB."),
    ],
)
def test_it_says_by_which_factor_a_guess_is_off(page, number, said):
    guess(page, number)
    assert page.get_by_role("status").first.inner_text() == said


def test_a_choice_is_right_or_not(page):
    form = page.locator("form.guess").nth(1)
    form.get_by_label("it grows").check()
    form.get_by_text("Compare").click()
    assert form.get_by_role("status").inner_text() == "Not so. Answer: it shrinks."
    form.get_by_label("it shrinks").check()
    form.get_by_text("Compare").click()
    assert form.get_by_role("status").inner_text() == "Right. Answer: it shrinks."


def test_a_guess_outlives_a_reload_until_it_is_cleared(page):
    guess(page, "28")
    page.locator("form.guess").nth(1).get_by_label("it grows").check()
    page.locator("form.guess").nth(1).get_by_text("Compare").click()
    load_again(page)
    assert page.get_by_label("Your guess").first.input_value() == "28"
    assert page.get_by_label("it grows").is_checked()
    assert all(texts(page, *NUMBER, *CHOICE))
    page.get_by_text("Clear and hide").first.click()
    assert not any(texts(page, *NUMBER))
    load_again(page)
    assert page.get_by_label("Your guess").first.input_value() == ""
    assert not any(texts(page, *NUMBER))


def test_a_guess_can_be_changed(page):
    guess(page, "28")
    guess(page, "56")
    assert "too low by a factor of 2." in page.get_by_role("status").first.inner_text()


def test_nothing_is_compared_without_a_guess(page):
    page.get_by_text("Compare").first.click()
    assert not any(texts(page, *NUMBER))


def test_the_answer_shows_without_a_guess_for_who_asks(page):
    page.get_by_text("Show without guessing").first.click()
    assert all(texts(page, *NUMBER))
    assert page.get_by_role("status").first.inner_text() == "Answer: 112 GB."


def test_by_keyboard_alone_the_next_step_is_always_one_key_away(page):
    focused = "document.activeElement.textContent.trim()"
    page.get_by_label("Your guess").first.focus()
    page.keyboard.type("28")
    page.keyboard.press("Tab")
    assert page.evaluate(focused) == "Compare"
    page.keyboard.press("Enter")
    assert "112 GB" in page.evaluate(focused), "the answer is where one reads on"
    page.keyboard.press("Shift+Tab")
    assert page.evaluate(focused) == "Clear and hide"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.name") == "guess"
    assert not any(texts(page, *NUMBER))


def test_each_field_has_a_name_for_who_hears_the_page(page):
    assert page.get_by_role("spinbutton", name="Your guess GB").count() == 1
    assert page.get_by_role("group", name="Your guess").get_by_role("radio").count() == 2
    assert page.get_by_role("status").count() == 2


def test_a_link_into_an_answer_opens_it(page, site):
    page.goto(f"{site}#told")
    page.wait_for_load_state()
    assert texts(page, "It shrinks.") == [True]
    assert texts(page, "112 GB") == [False]


def test_a_link_followed_on_the_page_opens_the_answer(page):
    page.evaluate("location.hash = '#told'")
    page.wait_for_function("document.querySelectorAll('form.guess output')[1].textContent")
    assert texts(page, "It shrinks.") == [True]


def test_what_a_browser_finds_within_an_answer_opens_it(page, site):
    page.goto(f"{site}#:~:text=In%20between")
    page.wait_for_function("document.querySelector('form.guess output').textContent")
    assert all(texts(page, *NUMBER))
    assert texts(page, "It shrinks.") == [False]


@pytest.mark.parametrize("follow", ["location.reload()", "location.hash = '#told'"])
def test_a_link_opens_the_answer_where_a_browser_cannot_look_into_what_is_hidden(
    page, site, follow
):
    page.add_init_script("delete HTMLElement.prototype.onbeforematch")
    page.goto(f"{site}#told" if "reload" in follow else site)
    load_again(page)
    assert page.locator("[hidden=until-found]").count() == 0
    page.evaluate(follow)
    page.wait_for_function("document.querySelectorAll('form.guess output')[1]?.textContent")
    assert texts(page, "It shrinks.", "112 GB") == [True, False]


def test_printing_shows_every_answer_and_hides_it_again(page):
    page.evaluate(
        "addEventListener('beforeprint', () => window.left = document.querySelectorAll('p[hidden], details[hidden]').length)"
    )
    page.pdf()
    assert page.evaluate("window.left") == 0
    assert not any(texts(page, *NUMBER, "It shrinks."))


def test_a_browser_that_stores_nothing_still_asks(site, browser):
    context = browser.new_context()
    context.add_init_script("Object.defineProperty(window, 'localStorage', {get() {throw 'no'}})")
    page = context.new_page()
    page.goto(site)
    guess(page, "28")
    assert all(texts(page, *NUMBER))
    context.close()


def test_without_scripts_folds_hold_the_answers(page_without_scripts):
    page = page_without_scripts
    assert texts(page, "of four", "112 GB", "56 + 56", "4 times 28") == [False] * 4
    assert page.locator("form.guess").first.is_visible() is False
    page.get_by_text("Show the output").first.click()
    assert texts(page, "of four", "112 GB", "56 + 56") == [True, True, False]


def test_a_notebook_shows_the_answer_as_text():
    assert repr(answer(1966.2, "days")) == "Answer: 1,966 days"
    assert repr(answer(10.12, "years")) == "Answer: 10.1 years"
    assert repr(answer(0.07612)) == "Answer: 0.0761"
    assert repr(answer(16.000004, "MB")) == "Answer: 16 MB"
    assert repr(answer("b", choices=["a", "b"])) == "Answer: b"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((0, "GB"), "above 0"),
        ((-1,), "value is -1; it must be a finite number of at least 0"),
        (("it grows",), "above 0"),
        ((float("inf"),), "inf"),
        (("c", "", ["a", "b"]), "choices are a, b"),
        ((3, "", {"a": 1, "b": 2}), "'3'"),
    ],
)
def test_an_answer_that_no_guess_can_be_compared_with_is_refused(arguments, reason):
    with pytest.raises(ValueError, match=reason):
        answer(*arguments)


def test_words_of_a_choice_are_words_and_no_markup():
    shown = answer("a < b", choices=["a < b", 'a "b"'])._repr_html_()
    assert "a &lt; b" in shown
    assert "a &quot;b&quot;" in shown
