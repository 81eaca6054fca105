"""The built book as a browser shows it, with nothing outside the book within reach.

Skipped where there is no Chromium or no up-to-date book; with BOOK_TEST=required that is a failure.
"""

import ast
import html
import http.server
import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

import jupytext
import pytest

from tests.book.conftest import unavailable
from tests.book.quizzes import QUIZZES
from tests.contents import MORE, SLUGS

pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")

ROOT = Path(__file__).parents[2]
SITE = ROOT / "_build" / "html"
FILES = sorted(path.relative_to(SITE).as_posix() for path in SITE.rglob("*.html"))
SOURCES = [path for path in FILES if path.startswith("_modules/dlsys/")]  # one is as another
PAGES = [p for p in FILES if p not in SOURCES[1:] and not p.startswith(("_static/", "index.html"))]

# What must not be left in the text that a reader sees: LaTeX, and markup that was not understood.
RAW = re.compile(r"\$\$|\\[(\[]|\\[a-zA-Z]{2,}|\{[a-z:-]+\}`|^:::|^```", re.MULTILINE)
# An output that should have been a picture or a widget, or that differs from build to build.
OBJECT_AS_TEXT = re.compile(
    r"\b[A-Z]\w+\((children|value|description)=|<Figure size|< ?[^<>]* at 0x"
)

# Runs in the page once it is typeset, with every fold and prediction open, and returns what is wrong with it.
LOOK = r"""
async () => {
  if (window.MathJax?.startup?.promise) await window.MathJax.startup.promise;
  document.querySelectorAll("details").forEach(fold => fold.open = true);
  window.dispatchEvent(new Event("beforeprint"));
  const all = selector => [...document.querySelectorAll(selector)];
  const show = element => element.outerHTML.slice(0, 160);
  const skip = "script, style, noscript, template, textarea, pre, code, mjx-container";
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const text = [];
  while (walker.nextNode())
    if (!walker.currentNode.parentElement.closest(skip)) text.push(walker.currentNode.data);
  const widgets = all("[class*=jupyter-widgets], .widget-subarea, script[type*=widget-view]");
  const empty = all(".cell_output").filter(output => output.getBoundingClientRect().height < 4);
  const pictures = all("img");
  await Promise.all(pictures.map(picture => picture.decode().catch(() => null)));
  return {
    text: text.join("\n"),
    output: all(".cell_output pre").map(output => output.innerText).join("\n"),
    broken_formulas: all("mjx-merror, [data-mjx-error]").map(show),
    empty: [...widgets, ...empty].map(show),
    undescribed: [
      ...pictures.filter(p => !p.alt.trim() || /\.(png|svg|jpe?g)$/.test(p.alt)),
      ...all("svg.plot").filter(p => p.role != "img" || !p.getAttribute("aria-label")?.trim()),
    ].map(show),
    twice: all("[id]").filter(e => document.querySelectorAll(`[id="${e.id}"]`).length > 1)
      .filter(e => e.closest("svg.plot")).map(show),
    unshown: pictures.filter(picture => !picture.naturalWidth).map(show),
    targets: all("[href], [src]").map(e => e.href?.baseVal === undefined
        ? [e.tagName, e.href ?? e.src] : ["A", new URL(e.href.baseVal, location).href])
      .filter(([tag, target]) => typeof target == "string" && target),
    names: all("[id], a[name]").map(element => element.id || element.name),
    width: document.documentElement.scrollWidth,
  };
}
"""


OPEN = 'window.dispatchEvent(new Event("beforeprint"))'  # the answers of predictions

# How well each text of a page's figures stands out from what lies under its middle: bar or page.
# WCAG's ratio, from 1 to 21; a hatch counts as the color that it is drawn on.
CONTRAST = r"""
() => {
  const light = color => {
    const [red, green, blue] = color.match(/[\d.]+/g).map(part => part / 255)
      .map(part => part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const fill = element => {
    const pattern = getComputedStyle(element).fill.match(/url\("#(.*)"\)/);
    return getComputedStyle(pattern ? document.getElementById(pattern[1]).firstChild : element).fill;
  };
  const ground = getComputedStyle(document.body).backgroundColor;
  const found = [];
  for (const figure of document.querySelectorAll("svg.plot")) {
    if (!figure.getBoundingClientRect().width) continue;
    figure.scrollIntoView({block: "center"});
    for (const text of figure.querySelectorAll("text")) {
      const box = text.getBoundingClientRect();
      if (!box.width || getComputedStyle(text).visibility == "hidden") continue;
      const under = document.elementsFromPoint(box.x + box.width / 2, box.y + box.height / 2);
      const shapes = under.filter(e => figure.contains(e) && ["path", "rect", "use"].includes(e.tagName));
      const behind = shapes.map(fill).find(color => !/none|rgba\(.*, 0\)/.test(color)) ?? ground;
      const [low, high] = [light(fill(text)), light(behind)].sort((a, b) => a - b);
      found.push([(high + 0.05) / (low + 0.05), text.textContent, figure.ariaLabel]);
    }
  }
  return found;
}
"""


@dataclass
class Visit:
    """What a browser met on a page: complaints, where its links lead, and the anchors it has."""

    complaints: list[str] = field(default_factory=list)
    links: set[str] = field(default_factory=set)
    names: set[str] = field(default_factory=set)


class Reader:
    """A browser that reads one site, served from a folder, and can reach nothing else."""

    def __init__(self, browser, folder: Path) -> None:
        handler = partial(QuietHandler, directory=str(folder))
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.home = f"http://127.0.0.1:{self.server.server_port}/"
        self.folder = folder
        self.context = browser.new_context()
        self.context.route(lambda url: not self.inside(url), lambda route: route.abort())
        self.visits: dict[str, Visit] = {}

    def inside(self, url: str) -> bool:
        return url.startswith((self.home, "data:", "blob:", "about:"))

    def close(self) -> None:
        self.context.close()
        self.server.shutdown()
        self.server.server_close()

    def visit(self, path: str) -> Visit:
        """Open a page and note everything about it but whether its links lead somewhere."""
        if path in self.visits:
            return self.visits[path]
        visit = self.visits[path] = Visit()
        complain = visit.complaints.append
        page = self.context.new_page()
        page.on(
            "request",
            lambda r: self.inside(r.url) or complain(f"asks for something outside: {r.url}"),
        )
        page.on("websocket", lambda socket: complain(f"opens a socket: {socket.url}"))
        page.on(
            "response", lambda r: r.status < 400 or complain(f"asks for what is not there: {r.url}")
        )
        page.on(
            "console", lambda m: m.type == "error" and complain(f"error in the console: {m.text}")
        )
        page.on("pageerror", lambda error: complain(f"error in a script: {error}"))
        page.goto(self.home + path, wait_until="load")
        seen = page.evaluate(LOOK)
        for found in RAW.findall(seen["text"]):
            complain(f"raw markup in the text: {found}")
        for match in OBJECT_AS_TEXT.finditer(seen["output"]):
            complain(f"an object shown as text: {match.group()}")
        for kind in ("broken_formulas", "empty", "undescribed", "unshown", "twice"):
            visit.complaints.extend(f"{kind}: {element}" for element in seen[kind])
        page.set_viewport_size({"width": 400, "height": 800})
        if (width := page.evaluate("document.documentElement.scrollWidth")) > 400:
            complain(f"wider than a window of 400 pixels: {width}")
        page.close()
        for tag, target in seen["targets"]:
            if tag in {"A", "AREA"}:
                visit.links.add(target)
            elif not self.inside(target):
                complain(f"refers to something outside: {target}")
        visit.names = set(seen["names"])
        return visit

    def dead_links(self, path: str) -> list[str]:
        """Return the links of a page that lead to a page, file or anchor that does not exist."""
        return [link for link in sorted(self.visit(path).links) if self._dead(link)]

    def _dead(self, link: str) -> bool:
        target, anchor = urldefrag(link)
        if not target.startswith(self.home):
            return False
        path = unquote(urlsplit(target).path).lstrip("/")
        if path.endswith("/") or not path:
            path += "index.html"
        if not (self.folder / path).is_file():
            return True
        return bool(anchor) and path.endswith(".html") and (unquote(anchor) not in self.names(path))

    def names(self, path: str) -> set[str]:
        """Return the anchors of a page; those of a source, of which there are hundreds, unvisited."""
        if path in SOURCES[1:]:
            return set(re.findall(r'\bid="([^"]*)"', (self.folder / path).read_text("utf-8")))
        return self.visit(path).names

    def complaints(self, path: str) -> list[str]:
        return [*self.visit(path).complaints, *(f"dead link: {x}" for x in self.dead_links(path))]


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args) -> None:
        pass


@pytest.fixture(scope="module")
def book(browser) -> Iterator[Reader]:
    built = SITE / ".complete"
    if not built.is_file():
        unavailable("the book is not built: run make book")
    folders = ("chapters", "exercises", "reference", "dlsys")
    sources = [
        p for name in folders for p in (ROOT / name).rglob("*") if "__pycache__" not in p.parts
    ]
    if any(path.stat().st_mtime > built.stat().st_mtime for path in sources if path.is_file()):
        unavailable("the built book is older than its sources: run make book")
    reader = Reader(browser, SITE)
    yield reader
    reader.close()


@pytest.mark.parametrize("path", PAGES or ["chapters/intro.html"])
def test_a_page_works_without_the_network_and_shows_no_errors(book, path):
    complaints = book.complaints(path)
    assert not complaints, "\n".join(complaints)


def test_the_front_page_leads_to_the_introduction(book):
    page = book.context.new_page()
    page.goto(book.home + "index.html")
    page.wait_for_url("**/chapters/intro.html")
    page.close()


def test_the_search_finds_words_without_the_network(book):
    page = book.context.new_page()
    page.goto(book.home + "search.html?q=parameters")
    page.wait_for_selector("#search-results li a")
    page.close()


def test_every_chapter_offers_its_notebook_and_its_exercises(book):
    slugs = [path.stem for path in (ROOT / "exercises").glob("*/*.ipynb")]
    assert slugs, "the book has no exercises"
    for slug in slugs:
        chapter = {
            link.removeprefix(book.home) for link in book.visit(f"chapters/{slug}.html").links
        }
        exercise = f"exercises/{slug}/{slug}"
        assert {f"chapters/{slug}.ipynb", f"{exercise}.html", f"{exercise}.ipynb"} <= chapter
        back = {link.removeprefix(book.home) for link in book.visit(f"{exercise}.html").links}
        assert {f"chapters/{slug}.html", f"{exercise}.ipynb"} <= back


def test_every_word_in_a_figure_stands_out_on_light_and_dark(book):
    page = book.context.new_page()
    page.set_viewport_size({"width": 1400, "height": 1000})
    page.emulate_media(reduced_motion="reduce")  # figures that move show all of their rounds
    faint, words = [], 0
    for slug in [*SLUGS, *MORE]:
        page.goto(f"{book.home}chapters/{slug}.html", wait_until="domcontentloaded")
        page.evaluate(OPEN)  # what is hidden has no place
        for theme in ("light", "dark"):
            page.evaluate(f"document.documentElement.dataset.theme = '{theme}'")
            found = page.evaluate(CONTRAST)
            faint += [(slug, theme, *each) for each in found if each[0] < 4.5]
            words += len(found)
    page.close()
    assert words > 2000
    assert faint == []


def test_paper_is_white_and_the_screen_stays_as_it_was(book):
    page = book.context.new_page()
    page.goto(f"{book.home}chapters/{SLUGS[0]}.html")
    page.evaluate("document.documentElement.dataset.theme = 'dark'")
    ground = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(ground)
    page.evaluate(f"addEventListener('beforeprint', () => window.paper = {ground})")
    page.pdf()
    assert page.evaluate("window.paper") == "rgb(255, 255, 255)" != dark
    assert page.evaluate(ground) == dark
    page.close()


def test_the_cheat_sheet_is_one_printed_page(book):
    page = book.context.new_page()
    page.goto(f"{book.home}chapters/cheat_sheet.html")
    page.evaluate("window.MathJax?.startup?.promise")
    paper = page.pdf(format="A4")
    assert len(re.findall(rb"/Type\s*/Page\b", paper)) == 1
    page.close()


def test_a_page_opened_as_a_file_says_where_its_notebooks_lie(book, browser):
    page = browser.new_page()
    page.goto((SITE / "chapters" / f"{SLUGS[0]}.html").as_uri())
    links = page.locator("nav.page-links")
    assert links.locator("a[download]").count() == 0, "a click would show raw JSON"
    for path in (f"chapters/{SLUGS[0]}.ipynb", f"exercises/{SLUGS[0]}/{SLUGS[0]}.ipynb"):
        assert str(SITE / path) in links.inner_text()
    page.close()


def code_cells(notebook: str, form: str) -> list[str]:
    return [c.source for c in jupytext.reads(notebook, fmt=form).cells if c.cell_type == "code"]


def imports_and_quiz(cells: list[str], slug: str) -> str:
    """What a chapter's cells import, and its quiz: what can depend on where they run."""
    imports = [
        ast.unparse(node)
        for cell in cells
        for node in ast.walk(ast.parse(cell))
        if isinstance(node, (ast.Import, ast.ImportFrom))
    ]
    shown = [f"quiz.show({slug!r})._repr_html_()"] if slug in SLUGS else []
    return "\n".join([*imports, *shown])


def test_every_downloaded_chapter_runs_in_an_empty_folder(book, tmp_path):
    """It has the cells that the build ran in an empty folder; here their imports and the quiz."""
    program = ["import os"]
    for slug in [*SLUGS, *MORE]:
        offered = book.context.request.get(f"{book.home}chapters/{slug}.ipynb").text()
        cells = code_cells(offered, "ipynb")
        assert cells == code_cells((ROOT / "chapters" / f"{slug}.md").read_text("utf-8"), "md:myst")
        (tmp_path / slug).mkdir()
        program += [f"os.chdir({str(tmp_path / slug)!r})", imports_and_quiz(cells, slug)]
    command = [sys.executable, "-c", "\n".join(program)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_quiz_answers_a_click_without_a_kernel(book):
    page = book.context.new_page()
    for source in QUIZZES.glob("*.json"):
        page.goto(f"{book.home}chapters/{source.stem}.html")
        questions = page.locator(".Quiz")
        assert questions.count() == len(json.loads(source.read_text("utf-8")))
        choice = questions.filter(has=page.locator(".MCButton")).first
        assert not choice.locator(".Feedback").inner_text()
        choice.locator(".MCButton").first.click()
        assert choice.locator(".Feedback").inner_text()
    page.close()


def code_of(path: Path) -> set[str]:
    """The lines of code in a notebook, leaving out those too short to say anything."""
    cells = json.loads(path.read_text("utf-8"))["cells"]
    lines = (line.strip() for cell in cells for line in "".join(cell["source"]).splitlines())
    return {line for line in lines if len(line) > 20}


def test_students_pages_hold_no_trace_of_solutions(book):
    for solution in (ROOT / "solutions").glob("*/*.ipynb"):
        slug = solution.stem
        secret = code_of(solution) - code_of(ROOT / "exercises" / slug / solution.name)
        assert secret, f"the solution of {slug} says no more than its exercise"
        page = (SITE / "exercises" / slug / f"{slug}.html").read_text("utf-8")
        shown = html.unescape(re.sub("<[^>]*>", "", page))
        given = (SITE / "exercises" / slug / solution.name).read_text("utf-8")
        assert [line for line in secret if line in shown or json.dumps(line)[1:-1] in given] == []


FAULTS = {
    "<script>throw new Error('thrown')</script>": "error in a script: thrown",
    "<script>console.error('said')</script>": "error in the console: said",
    "<img src='https://example.org/a.png' alt='a'>": "asks for something outside: https://example",
    "<link rel='preconnect' href='https://example.org'>": "refers to something outside: https://ex",
    "<script src='missing.js'></script>": "asks for what is not there: HOME/missing.js",
    "<p>Half is \\frac{1}{2}.</p>": r"raw markup in the text: \frac",
    "<p>So $$ x $$ is</p>": "raw markup in the text: $$",
    "<p>where \\(x\\) is</p>": r"raw markup in the text: \(",
    "<p>as {numref}`figure` shows</p>": "raw markup in the text: {numref}`",
    "<p>:::{note}</p>": "raw markup in the text: :::",
    "<div class='cell_output'><pre>VBox(children=(Text(),))</pre></div>": "as text: VBox(children=",
    "<div class='cell_output'><pre>&lt;Figure size 8x4></pre></div>": "as text: <Figure size",
    "<div class='cell_output'><pre>&lt;dlsys.Plan object at 0x7f></pre></div>": "as text: <dlsys.Plan",
    "<div class='cell_output'><b class='jupyter-widgets'></b></div>": 'empty: <b class="jupyter-wid',
    "<div class='cell_output'></div>": 'empty: <div class="cell_output"></div>',
    "<img id='a' src='data:image/gif;base64,R0lGODlhAQABAAAAACwAAAAAAQABAAA='>": 'undescribed: <img id="a',
    "<svg id='c' class='plot' role='img'></svg>": 'undescribed: <svg id="c',
    "<svg class='plot' role='img' aria-label='a'><g id='d'/><g id='d'/></svg>": 'twice: <g id="d',
    "<img id='b' src='data:image/gif;base64,AAAA' alt='broken'>": 'unshown: <img id="b',
    "<div style='width: 900px'>wide</div>": "wider than a window",
    "<a href='nowhere.html'>link</a>": "dead link: HOME/nowhere.html",
    "<a href='fine.html#nothing'>link</a>": "dead link: HOME/fine.html#nothing",
    "<a href='#nothing'>link</a>": "dead link: HOME/faulty.html#nothing",
    "<a href='missing.ipynb' download>link</a>": "dead link: HOME/missing.ipynb",
}
FINE = r"""<h1 id='top'>Fine</h1> <p>It costs $2 and $3.</p> <code>\frac{1}{2}</code>
<a href='faulty.html#there'>link</a> <a href='#top'>link</a> <a href='https://example.org'>away</a>
<div class='cell_output'><pre>3</pre></div>
<img src='data:image/gif;base64,R0lGODlhAQABAAAAACwAAAAAAQABAAA=' alt='a dot'>"""


def test_the_checks_above_notice_every_kind_of_fault_and_nothing_else(browser, tmp_path):
    head = "<!DOCTYPE html><html lang='en'><meta charset='utf-8'><link rel='icon' href='data:,'>"
    (tmp_path / "fine.html").write_text(head + FINE)
    (tmp_path / "faulty.html").write_text(head + "<p id='there'>there</p>" + "\n".join(FAULTS))
    reader = Reader(browser, tmp_path)
    assert reader.complaints("fine.html") == []
    found = [text.replace(reader.home, "HOME/") for text in reader.complaints("faulty.html")]
    assert [wanted for wanted in FAULTS.values() if not any(wanted in text for text in found)] == []
    reader.close()
