"""The manifest on disk: JSON that carries its own hash, written last and read with mistrust."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from dlsys.plain_data import Unfit, as_data, from_data
from dlsys.resilience.plan import VERSION, Manifest
from dlsys.resilience.tree import check_tree, text_of

FORMAT = "dlsys.resilience checkpoint"
_NAME = f"{Manifest.__module__}.{Manifest.__qualname__}"


def to_bytes(manifest: Manifest) -> bytes:
    """The manifest as it is written."""
    step, tensors, files, state, version = as_data(manifest)
    fields = {
        "format": FORMAT,
        "version": version,
        "step": step,
        "state": json.loads(state),
        "tensors": tensors,
        "files": files,
    }
    return _sealed(fields)


def _sealed(fields: dict[str, Any]) -> bytes:
    text = json.dumps(fields, separators=(",", ":"))
    return json.dumps({"sha256": _hash(text), **fields}, separators=(",", ":")).encode()


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def from_bytes(data: bytes) -> Manifest:
    """The manifest that was written; raises ValueError, which says what is wrong, for another."""
    try:
        fields = json.loads(data)
        others = {k: v for k, v in fields.items() if k != "sha256"} if type(fields) is dict else {}
        again = _sealed(others)
    except (ValueError, RecursionError):
        raise ValueError("is no JSON: it is torn or damaged") from None
    if others.get("format") != FORMAT:
        raise ValueError("is no manifest of a checkpoint, or damaged")
    if again != data:
        raise ValueError("is damaged: its SHA-256 is not the one that it carries")
    if others.get("version") != VERSION:
        raise ValueError(f"is of version {others.get('version')!r:.20}; this code reads {VERSION}")
    try:
        values = [others["step"], others["tensors"], others["files"], text_of(others["state"])]
        manifest: Manifest = from_data(_NAME, [*values, VERSION])
        manifest.check()
        check_tree(others["state"], {t.name for t in manifest.tensors}, len(manifest.files))
    except KeyError as missing:
        raise ValueError(f"has no {missing}") from None
    except (Unfit, ValueError) as error:
        raise ValueError(f"does not hold together: {str(error).rstrip('.')}") from None
    return manifest
