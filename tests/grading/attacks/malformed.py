"""Files that are no notebook, or hardly one: refused with a reason, or graded; never a crash."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.grading.attacks import GUESSED, Attack, Notebook, cell, own_cell

ANY = "."  # some reason


def content(data: bytes) -> Callable[[Path, str], object]:
    return lambda path, text: path.write_bytes(data)


def changed(change: Callable[[str], bytes]) -> Callable[[Path, str], object]:
    return lambda path, text: path.write_bytes(change(text))


def top(**fields: Any) -> bytes:
    """A notebook with these fields and no cells."""
    empty = {"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(empty | fields).encode()


def link(target: str) -> Callable[[Path, str], object]:
    return lambda path, text: path.symlink_to(target)


def sparse(path: Path, text: str) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 33)


def loop(path: Path, text: str) -> None:
    path.symlink_to(path)


DEEP = b"[" * 100_000

# What the reason has to speak of.
REFUSED: dict[str, tuple[Callable[[Path, str], object], str]] = {
    "an empty file": (content(b""), "empty|JSON"),
    "spaces alone": (content(b" \n" * 100), "empty|JSON"),
    "a truncated file": (changed(lambda text: text[: len(text) // 2].encode()), "JSON|notebook"),
    "text": (content(b"Here is my homework."), "JSON|notebook"),
    "a script": (content(b"import os\nos.abort()\n"), "JSON|notebook"),
    "a list": (content(b"[1, 2]"), ANY),
    "a number": (content(b"3"), ANY),
    "null": (content(b"null"), ANY),
    "a text in JSON": (content(b'"notebook"'), ANY),
    "an empty object": (content(b"{}"), ANY),
    "lists a hundred thousand deep": (content(DEEP), ANY),
    "closed lists a hundred thousand deep": (content(DEEP + b"]" * 100_000), ANY),
    "deep metadata": (
        content(b'{"cells": [], "nbformat": 4, "nbformat_minor": 5, "metadata": ' + b'{"a":' * 50_000 + b"1" + b"}" * 50_001),
        ANY,
    ),
    "eight gigabytes of nothing": (sparse, "MB|large|bytes"),
    "forty megabytes": (changed(lambda text: text.encode() + b" " * 40_000_000), "MB|large|bytes"),
    "a hundred thousand cells": (content(top(cells=[own_cell("", "x")] * 100_000)), "cells|MB"),
    "UTF-16": (changed(lambda text: text.encode("utf-16")), "UTF-8|JSON"),
    "UTF-32": (changed(lambda text: text.encode("utf-32")), "UTF-8|JSON"),
    "bytes that are no UTF-8": (changed(lambda text: text.replace("def ", "d\udcff").encode("utf-8", "surrogateescape")), "UTF-8"),
    "null bytes": (content(b"\0" * 1000), ANY),
    "a compressed file": (changed(lambda text: gzip.compress(text.encode())), "UTF-8|JSON"),
    "a number of a million digits": (content(b'{"nbformat": ' + b"4" * 1_000_000 + b"}"), ANY),
    "a whole number too large for anything": (content(b'{"nbformat": 1e999, "cells": []}'), ANY),
    "nbformat 3 without cells": (content(json.dumps({"nbformat": 3, "nbformat_minor": 0, "metadata": {}, "worksheets": [{"cells": []}]}).encode()), "no answer cell"),
    "nbformat 3 with a heading of a thousand million levels": (content(json.dumps({"nbformat": 3, "worksheets": [{"cells": [{"cell_type": "heading", "level": 10**9, "source": "x"}]}]}).encode()), "no answer cell"),
    "nbformat 2": (content(json.dumps({"nbformat": 2, "worksheets": [{"cells": []}]}).encode()), "nbformat"),
    "nbformat as text": (content(top(nbformat="4")), ANY),
    "nbformat 99": (content(top(nbformat=99)), ANY),
    "cells that are an object": (content(top(cells={"a": 1})), "cells"),
    "cells that are text": (content(top(cells="cells")), "cells"),
    "cells that are null": (content(top(cells=None)), "cells"),
    "a cell that is a number": (content(top(cells=[3])), "cell"),
    "a cell without a source": (content(top(cells=[{"cell_type": "code", "metadata": {}}])), ANY),
    "a source that is a number": (content(top(cells=[own_cell("x", "x") | {"source": 3}])), ANY),
    "a source of numbers": (content(top(cells=[own_cell("x", "x") | {"source": [1, 2]}])), ANY),
    "a source that is an object": (content(top(cells=[own_cell("x", "x") | {"source": {"a": "b"}}])), ANY),
    "a link to another file": (link("/etc/passwd"), "link"),
    "a link to a secret": (link("../../home/secret.txt"), "link"),
    "a link to a neighbor": (link("../neighbor/memory_wall.ipynb"), "link"),
    "a link to nothing": (link("nowhere"), "link"),
    "a link to itself": (loop, "link"),
    "a link to a device": (link("/dev/zero"), "link"),
    "a pipe": (lambda path, text: os.mkfifo(path), ANY),
    "a folder": (lambda path, text: path.mkdir(), ANY),
}  # fmt: skip


# Hardly notebooks: they may be refused with a reason or graded, and earn no more than they should.
GRADED: dict[str, Callable[[Notebook], object]] = {
    "half a character": lambda n: cell(n, "free").update(source="x = '\ud800'"),
    "NaN in metadata": lambda n: n["metadata"].update(x=float("nan"), y=float("inf")),
    "ids that are numbers": lambda n: [one.update(id=k) for k, one in enumerate(n["cells"])],
    "ids that are lists": lambda n: [one.update(id=["x"]) for one in n["cells"]],
    "ids that are all the same": lambda n: [one.update(id="free") for one in n["cells"]],
    "ids with paths": lambda n: [one.update(id=f"../../{one['id']}") for one in n["cells"]],
    "roles that are text": lambda n: [one["metadata"].update(nbgrader="x") for one in n["cells"]],
    "roles that are lists": lambda n: [one["metadata"].update(nbgrader=["x"]) for one in n["cells"]],
    "names that are numbers": lambda n: [one["metadata"].get("nbgrader", {}).update(grade_id=3) for one in n["cells"]],
    "names that are objects": lambda n: [one["metadata"].get("nbgrader", {}).update(grade_id={}) for one in n["cells"]],
    "metadata that are lists": lambda n: [one.update(metadata=[]) for one in n["cells"]],
    "metadata that are null": lambda n: n.update(metadata=None),
    "cells of a kind that is a number": lambda n: [one.update(cell_type=3) for one in n["cells"]],
    "cells of no kind": lambda n: [one.pop("cell_type") for one in n["cells"]],
    "cells without metadata": lambda n: [one.pop("metadata") for one in n["cells"]],
    "outputs that are text": lambda n: [one.update(outputs="x") for one in n["cells"]],
    "attachments": lambda n: [one.update(attachments={"x": {"text/html": "<script>"}}) for one in n["cells"]],
    "a minor version that is text": lambda n: n.update(nbformat_minor="x"),
}  # fmt: skip


def beside(path: Path, text: str) -> None:
    """A right notebook, and beside it what must not be followed."""
    path.write_text(text, encoding="utf-8")
    (path.parent / "data.csv").symlink_to("/etc/passwd")
    (path.parent / "loop").symlink_to(path.parent)
    (path.parent / "torch.py").write_text("raise SystemExit\n")
    (path.parent / "dlsys").mkdir()
    (path.parent / "dlsys" / "__init__.py").write_text("raise SystemExit\n")
    (path.parent / "sitecustomize.py").write_text("raise SystemExit\n")
    (path.parent / ".ipynb_checkpoints").mkdir()
    (path.parent / ".ipynb_checkpoints" / path.name).write_text("{}")
    os.mkfifo(path.parent / "pipe")


BANK = [
    *(Attack(name, lay=lay, refused=reason) for name, (lay, reason) in REFUSED.items()),
    Attack("odd files beside the notebook", lay=beside),
]
HARDLY = [Attack(name, base=GUESSED, edit=edit) for name, edit in GRADED.items()]
