"""Figures stand in the page itself, as SVG in the colors of its theme (a plug-in of MyST-NB).

Only pages have them so: a reader's JupyterLab shows figures in the form that it is set to.
"""

import re
from html import escape

from docutils import nodes
from myst_nb.core.render import MimeData, NbElementRenderer

from dlsys import palette, svg

_INLINE = {
    "figure_formats": {"svg"},
    "print_figure_kwargs": {"bbox_inches": "tight", "metadata": {"Date": None}},
    "rc": palette.STYLE,
}
KERNEL = [f"--InlineBackend.{name}={value!r}" for name, value in _INLINE.items()]
"""Arguments of a kernel that draws figures for pages."""

_MOVING = re.compile(r'(<div class="moving-figure (?s:.*?)<svg [^>]*aria-label=")[^"]*')


class Figures:
    """What MyST-NB asks how an output of a MIME type becomes a part of the page."""

    mime_priority_overrides = ()

    @staticmethod
    def handle_mime(
        renderer: NbElementRenderer, data: MimeData, inline: bool
    ) -> list[nodes.Element] | None:
        """An SVG with the description and the name that its cell gives; nothing for the rest.

        One that moves comes as HTML, with names of its own, and is only described.
        """
        moves = data.mime_type == "text/html" and _MOVING.match(data.string)
        if inline or not (moves or data.mime_type == "image/svg+xml"):
            return None
        try:
            told = renderer.renderer.get_cell_level_config(
                "render_image_options", data.cell_metadata, line=data.line
            )
            if moves:
                old = moves[0].removeprefix(moves[1])
                own = f'aria-label="{escape(told.get("alt", "")) or old}"'
                return [
                    nodes.raw("", data.string.replace(f'aria-label="{old}"', own), format="html")
                ]
            name = data.cell_metadata.get("mystnb", {}).get("figure", {}).get("name", "figure")
            unique = f"{name}-{data.cell_index}-{data.output_index}"
            drawn = svg.inline(data.string, told.get("alt", ""), unique)
        except (AttributeError, LookupError, SyntaxError, ValueError):  # not as Matplotlib draws it
            return None
        return [nodes.raw("", drawn, format="html")]
