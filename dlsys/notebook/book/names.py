"""The package's public names: what their pages of reference say, and links that lead there.

A page of `reference/` names a package, and Sphinx's autodoc and viewcode write the rest of it. Here
is what they do not know: how our docstrings are written, and where the lists of `dlsys.lazy` have
their names from. Cells and words of every other page lead to these pages without a word of theirs.
"""

import ast
import html
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.addnodes import desc, desc_content, pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.pycode import ModuleAnalyzer
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.nodes import make_refnode

from dlsys.lazy import _listed as listed
from dlsys.notebook.book.dependencies import parse

PYTHON = {"ipython3", "python"}  # the languages of cells
MARKED = re.compile(r"`+([^`]+)`+(?=(\w)?)|([*_|\\])")  # code, and what reStructuredText would take
ITEM = re.compile(r"^\s*- ", re.MULTILINE)
HANGING = re.compile(r"^\S.*\n +\S", re.MULTILINE)
PIECE = re.compile(r"<[^>]*>|&[^;]*;|[^<&]+")  # of HTML
Span = tuple[int, int, str]  # begin and end in a text, and a name there


def register(app: Sphinx) -> None:
    """Have autodoc and viewcode write the reference, and everything lead to it."""
    app.setup_extension("sphinx.ext.autodoc")
    app.setup_extension("sphinx.ext.viewcode")
    app.connect("autodoc-skip-member", _skip)
    app.connect("autodoc-process-docstring", _write_out)
    app.connect("viewcode-follow-imported", _follow)
    app.connect("doctree-read", _list_names)
    app.connect("missing-reference", _resolve)
    app.add_post_transform(Links)
    app.add_node(nodes.literal_block, override=True, html=(_visit, None))


@cache
def homes(package: str) -> Mapping[str, str]:
    """Return where a package, and those in it, have each name from that they import."""
    spec = find_spec(package)
    folder = Path(((spec and spec.submodule_search_locations) or [""])[0])
    found = {}
    for file in sorted(folder.rglob("__init__.py")):
        around = ".".join([package, *file.parent.relative_to(folder).parts])
        for line in ast.walk(parse(file.read_text("utf-8"))):
            if isinstance(line, ast.ImportFrom) and str(line.module).startswith(f"{package}."):
                for name in line.names:
                    found[f"{around}.{name.asname or name.name}"] = f"{line.module}.{name.name}"
    return found


def _home(name: str) -> tuple[str, str]:
    """Return the module and the name there of what a public module calls so."""
    module, _, own = homes(name.partition(".")[0]).get(name, name).rpartition(".")
    return module, own


@cache
def _constants(module: str) -> Mapping[str, tuple[int, int]]:
    """Return the lines of each name that a module assigns."""
    lines = ast.parse(ModuleAnalyzer.for_module(module).code).body
    return {
        target.id: (line.lineno, line.end_lineno or line.lineno)
        for line in lines
        if isinstance(line, (ast.Assign, ast.AnnAssign))
        for tuple_ in (line.targets if isinstance(line, ast.Assign) else [line.target])
        for target in ast.walk(tuple_)
        if isinstance(target, ast.Name)
    }


def _skip(app: Sphinx, what: str, name: str, it: Any, skip: bool, options: Any) -> bool | None:
    """Leave out the fields of tuples, which the signature has."""
    field = what != "module" and str(it.__doc__).startswith("Alias for field number")
    return True if field else None


def _write_out(app: Sphinx, what: str, name: str, it: Any, options: Any, lines: list[str]) -> None:
    """Write a docstring in Sphinx's language, once a module's constants are known."""
    if what == "module":
        _tell_of_constants(app, name, getattr(it, "__all__", _constants(name)))
        _load_annotations(app.config.book_package)
    if what == "data":  # and not what is said of its type
        module, _, own = name.rpartition(".")
        _tell_of_constants(app, module, [own])
        lines[:] = ModuleAnalyzer.for_module(module).find_attr_docs().get(("", own), [])
    lines[:] = written("\n".join(lines))


def _tell_of_constants(app: Sphinx, module: str, public: Iterable[str]) -> None:
    """Tell autodoc what stands below the constants of a module in the files that they come from,
    and viewcode where they stand there."""
    told = ModuleAnalyzer.for_module(module).find_attr_docs()
    for name in public:
        home, own = _home(f"{module}.{name}")
        if own in _constants(home) and not name.startswith("_"):
            source = ModuleAnalyzer.for_module(home)
            told["", name] = source.find_attr_docs().get(("", own), [""])
            source.tags[name] = ("def", *_constants(home)[own])
            app.env.note_dependency(source.srcname)


def _load_annotations(package: str) -> None:
    """Import what modules import for a type checker alone, so that annotations say which `Plan`."""
    for name in [name for name in sys.modules if name.startswith(f"{package}.")]:
        _load_annotations_of(name)


@cache  # each page brings modules
def _load_annotations_of(name: str) -> None:
    module = sys.modules[name]
    for own, (home, original) in listed(ast.parse(ModuleAnalyzer.for_module(name).code)):
        if own not in vars(module):
            setattr(module, own, getattr(import_module(home), original))


def _follow(app: Sphinx, module: str, name: str) -> str:
    """Return the module whose source has a name (viewcode-follow-imported)."""
    return _home(f"{module}.{name.partition('.')[0]}")[0]


def written(docstring: str) -> list[str]:
    """Return the lines of a docstring, whose lists and code are Markdown's, as Sphinx reads them.

    Nothing else is markup: a star is a star. Lines with others indented below them are a list.
    """
    lines: list[str] = []
    within = False  # a list
    for block in docstring.split("\n\n"):
        if block.startswith("    ") and not within:
            lines += ["::", "", *block.splitlines(), ""]
            continue
        if HANGING.search(block) and not ITEM.search(block):
            block = re.sub(r"^\s*", lambda space: "  " if space[0] else "- ", block, flags=re.M)
        for line in MARKED.sub(_plain, block).splitlines():
            item = bool(ITEM.match(line))
            if item or (within and line[:1].strip()):
                lines.append("")
            within = item or (within and not line[:1].strip())
            lines.append(line)
        lines.append("")
    return lines


def _plain(match: re.Match[str]) -> str:
    code, after, sign = match.groups()
    if sign:
        return f"\\{sign}"
    return f"``{' '.join(code.split())}``" + ("\\ " if after else "")


def _list_names(app: Sphinx, doctree: nodes.document) -> None:
    """Begin a page of reference with links to what it has (doctree-read).

    Sphinx would list all of it in the contents of every page of the book, and take minutes.
    """
    words = nodes.paragraph(classes=["names"])
    for entry in doctree.findall(desc):
        if entry.get("domain") == "py" and not isinstance(entry.parent, desc_content):
            for name in entry[0]["ids"][:1]:
                short = nodes.literal("", name.rpartition(".")[2])
                words += [
                    nodes.reference("", "", short, internal=True, refid=name),
                    nodes.Text(" "),
                ]
    first = next(doctree.findall(desc), None)
    if len(words) and first is not None:
        first.parent.insert(first.parent.index(first), words)


class Names:
    """What the pages of reference have, found by whatever a cell or a sentence calls it."""

    def __init__(self, env: BuildEnvironment) -> None:
        self.objects = env.get_domain("py").objects  # type: ignore[attr-defined]
        self.package = env.config.book_package
        self.public = {home: n for n, home in homes(self.package).items() if n in self.objects}
        self.short: dict[str, set[str]] = {}
        for name, entry in self.objects.items():
            if entry.objtype not in ("method", "attribute", "property") and not entry.aliased:
                self.short.setdefault(name.rpartition(".")[2], set()).add(name)

    def full(self, name: str) -> str | None:
        """Return the name under which the reference has what is called so in full."""
        parent, _, own = name.rpartition(".")  # perhaps a member of what has another home
        known = (name, self.public.get(name), f"{self.public.get(parent)}.{own}")
        return next((n for n in known if n in self.objects), None)

    def meant(self, name: str, page: str, known: Mapping[str, str]) -> str | None:
        """Return what a page calls so: what its cells know, what the package of the page's name
        has, or the only thing of this name.

        On a chapter a mere word is none of another's: it may well be torch's.
        """
        first, dot, rest = name.partition(".")
        if first in known:
            return self.full(known[first] + dot + rest)
        own = f"{self.package}.{page.rpartition('/')[2].removesuffix('_more')}"
        if found := self.full(f"{own}.{name}"):
            return found
        candidates = {first} if first == self.package else self.short.get(first, set())
        clear = dot or not (own in self.objects or (first.isalpha() and first.islower()))
        return self.full(min(candidates) + dot + rest) if clear and len(candidates) == 1 else None

    def read(self, code: str, known: dict[str, str]) -> Iterator[Span]:
        """Yield where a cell names what the reference has, and note what its imports bring."""
        tree, lines = parse(code), code.splitlines(keepends=True)

        def place(line: int, column: int) -> int:  # Python counts bytes
            before = lines[line - 1].encode()[:column].decode()
            return sum(map(len, lines[: line - 1])) + len(before)

        def span(end: int, name: str, shown: str) -> Iterator[Span]:
            if code[end - len(shown) : end] == shown and (full := self.full(name)):
                yield end - len(shown), end, full

        for node in ast.walk(tree):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                module = getattr(node, "module", "") or ""
                if module:
                    begin = place(node.lineno, node.col_offset) + len("from ")
                    yield from span(begin + len(module), module, module)
                for alias in node.names:
                    name = f"{module}.{alias.name}" if module else alias.name
                    begin = place(alias.lineno, alias.col_offset)
                    yield from span(begin + len(alias.name), name, alias.name)
                    bound = alias.asname or alias.name.partition(".")[0]
                    known[bound] = name if module or alias.asname else bound
            elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                known[node.id] = ""
            elif isinstance(node, ast.arg):
                known[node.arg] = ""
            elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                known[node.name] = ""
        for node in ast.walk(tree):
            if isinstance(node, (ast.Name, ast.Attribute)) and (name := ast.unparse(node)):
                first, dot, rest = name.partition(".")
                if known.get(first):
                    end = place(node.end_lineno or 1, node.end_col_offset or 0)
                    yield from span(end, known[first] + dot + rest, name.rpartition(".")[2])


class Links(SphinxPostTransform):
    """Note in each cell where names lead, and make links of words that are a name's code."""

    default_priority = 5  # before code is highlighted

    def run(self, **kwargs: Any) -> None:
        """Do so on one page."""
        if self.app.builder.format != "html":
            return
        names, known = _names(self.env), dict[str, str]()
        cells = [c for c in self.document.findall(nodes.literal_block) if _is_python(c)]
        for cell in cells:
            found = names.read(cell.astext().strip("\n"), known)
            cell["book_names"] = [(*place, name, self._uri(names, name)) for *place, name in found]
        for word in list(self.document.findall(nodes.literal)):
            if isinstance(word.parent, nodes.TextElement) and not _within(word):
                full = names.meant(word.astext().partition("(")[0], self.env.docname, known)
                if full:
                    uri = self._uri(names, full)
                    link = nodes.reference("", "", internal=True, refuri=uri, reftitle=full)
                    word.replace_self(link)
                    link += word

    def _uri(self, names: Names, name: str) -> str:
        entry = names.objects[name]
        page = self.app.builder.get_relative_uri(self.env.docname, entry.docname)
        return f"{page}#{entry.node_id}"


@cache  # asked for by every page and by every annotation, once all names are known
def _names(env: BuildEnvironment) -> Names:
    return Names(env)


def _is_python(block: nodes.literal_block) -> bool:
    return block.get("language") in PYTHON


def _within(word: nodes.Node) -> bool:
    """Whether a word is in a link or a title."""
    while word := word.parent:  # type: ignore[assignment]
        if isinstance(word, (nodes.reference, nodes.title)):
            return True
    return False


def _resolve(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.TextElement
) -> nodes.reference | None:
    """Find what an annotation names, by its last name if need be (missing-reference)."""
    if node.get("refdomain") != "py":
        return None
    names, target = _names(env), node["reftarget"]
    name = names.full(target) or names.meant(target, "", {})
    if name is None:
        return None
    entry = names.objects[name]
    page = node.get("refdoc", env.docname)
    return make_refnode(app.builder, page, entry.docname, entry.node_id, content, name)


def _visit(translator: Any, block: nodes.literal_block) -> None:
    """Write a block as ever, with links where `Links` has found names."""
    body = translator.body
    before = len(body)
    try:
        type(translator).visit_literal_block(translator, block)
    except nodes.SkipNode:
        if spans := block.get("book_names"):
            body[before:] = [linked("".join(body[before:]), block.astext().strip("\n"), spans)]
        raise


def linked(shown: str, code: str, spans: Iterable[tuple[int, int, str, str]]) -> str:
    """Return code as HTML with links; as it came, where it does not show this very code.

    Each span is the place of an identifier in the code, its full name and where that leads.
    """
    pieces = PIECE.findall(shown)
    if html.unescape("".join(p for p in pieces if p[0] != "<")).strip("\n") != code:
        return shown
    begins = {begin: (end, name, uri) for begin, end, name, uri in spans}
    written, place, started = [], 0, False
    for piece in pieces:
        text = "" if piece[0] == "<" else html.unescape(piece)
        if not started:
            text = text.lstrip("\n")
            started = bool(text)
        if text and place in begins and begins[place][0] == place + len(text):
            _, name, uri = begins[place]
            piece = f'<a href="{html.escape(uri)}" title="{html.escape(name)}">{piece}</a>'
        written.append(piece)
        place += len(text)
    return "".join(written)
