"""Fold the code of a cell on the page, in JupyterLab and in Colab alike.

An author tags a cell `helper`; that is all there is to do. Checks are folded without a tag.
"""

from __future__ import annotations

from typing import Any

HELPER = "helper"
_ON_THE_PAGE = "hide-input"


def fold(cell: dict[str, Any]) -> None:
    """Set or remove what folds a code cell of an exercise notebook, by its tag and its role.

    The page (MyST-NB) reads the tag `hide-input` and the words of its button, JupyterLab reads
    `source_hidden`, and Colab `cellView`. What is folded still runs, and one click opens it.
    """
    metadata = cell["metadata"]
    tags = [tag for tag in metadata.pop("tags", []) if tag != _ON_THE_PAGE]
    for key in ("cellView", "jupyter", "mystnb"):
        metadata.pop(key, None)
    if what := _folded(cell, tags):
        metadata["jupyter"] = {"source_hidden": True}
        metadata["cellView"] = "form"
        metadata["mystnb"] = {
            "code_prompt_show": f"Show {what}",
            "code_prompt_hide": f"Hide {what}",
        }
        tags.append(_ON_THE_PAGE)
    if tags:
        metadata["tags"] = tags


def is_folded(cell: dict[str, Any]) -> bool:
    """Whether a cell has all that `fold` sets."""
    metadata = cell["metadata"]
    in_lab = metadata.get("jupyter", {}).get("source_hidden") is True
    on_page = _ON_THE_PAGE in metadata.get("tags", ()) and "mystnb" in metadata
    return in_lab and on_page and metadata.get("cellView") == "form"


def _folded(cell: dict[str, Any], tags: list[str]) -> str:
    """What is folded in a cell, in words; nothing where it stays open."""
    role = cell["metadata"].get("nbgrader", {})
    if cell["cell_type"] == "code" and role.get("grade") and not role.get("solution"):
        return "the check"  # it holds the hints to every mistake, for those who have made it
    return "the helpers" if cell["cell_type"] == "code" and HELPER in tags else ""
