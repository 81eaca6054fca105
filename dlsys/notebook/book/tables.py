"""Tables that a cell shows are numbered as tables, with the caption above them.

MyST-NB wraps whatever a cell shows into a figure; one whose name begins with `tab-` is none.
"""

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

PREFIX = "tab-"


class Shown(nodes.figure):
    """A table that a cell shows, with its caption."""


class Tables(SphinxTransform):
    """Make tables of figures that are named so, before Sphinx notes what has a number."""

    default_priority = 800  # SphinxDomains, which notes it, has 850

    def apply(self, **kwargs: Any) -> None:
        """Replace the figures of one page."""
        for figure in list(self.document.findall(nodes.figure)):
            if any(name.startswith(PREFIX) for name in figure["names"]):
                captions = [child for child in figure if isinstance(child, nodes.caption)]
                others = [child for child in figure if child not in captions]
                table = Shown("", *captions, *others, **figure.attributes)
                figure.replace_self(table)
                self.document.ids.update(dict.fromkeys(table["ids"], table))


def _caption(node: nodes.Element) -> str:
    return node[0].astext() if len(node) else ""


def register(app: Sphinx) -> None:
    """Give such tables a number of their own, and the form that figures have."""
    as_figure = (
        (lambda self, node: self.visit_figure(node)),
        (lambda self, node: self.depart_figure(node)),
    )
    app.add_enumerable_node(Shown, "table", _caption, html=as_figure)
    app.add_transform(Tables)
