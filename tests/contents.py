"""What the table of contents says: the pages of the book, and the slugs of its chapters."""

from pathlib import Path

import yaml

ROOT = Path(__file__).parent.parent
TABLE = yaml.safe_load((ROOT / "_toc.yml").read_text("utf-8"))


def pages(entry) -> list[str]:
    """Every file in a table of contents, in order."""
    if isinstance(entry, list):
        return [page for part in entry for page in pages(part)]
    own = [entry[key] for key in ("root", "file") if key in entry]
    return own + [p for key in ("parts", "chapters", "sections") for p in pages(entry.get(key, []))]


def slugs() -> list[str]:
    """The chapters in order; the parts "For ..." and the sections under a chapter are none."""
    parts = [part["chapters"] for part in TABLE["parts"] if not part["caption"].startswith("For ")]
    return [chapter["file"].removeprefix("chapters/") for part in parts for chapter in part]


CONTENTS = pages(TABLE)
CHAPTERS = [page.removeprefix("chapters/") for page in CONTENTS if page.startswith("chapters/")]
SLUGS = slugs()
# "More on ..." below its chapter: no exercises, quiz or mechanism of its own.
MORE = [f"{slug}_more" for slug in SLUGS if f"chapters/{slug}_more" in CONTENTS]
