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
    except (ValueError, RecursionError):
        raise ValueError("is no JSON: it is torn or damaged") from None
    if not isinstance(fields, dict) or fields.get("format") != FORMAT:
        raise ValueError("is no manifest of a checkpoint, or damaged")
    fields.pop("sha256", None)
    if _sealed(fields) != data:
        raise ValueError("is damaged: its SHA-256 is not the one that it carries")
    if fields.get("version") != VERSION:
        raise ValueError(f"is of version {fields.get('version')!r:.20}; this code reads {VERSION}")
    try:
        values = [fields["step"], fields["tensors"], fields["files"], text_of(fields["state"])]
        manifest: Manifest = from_data(_NAME, [*values, VERSION])
        manifest.check()
        check_tree(fields["state"], {t.name for t in manifest.tensors}, len(manifest.files))
    except KeyError as missing:
        raise ValueError(f"has no {missing}") from None
    except (Unfit, ValueError) as error:
        raise ValueError(f"does not hold together: {str(error).rstrip('.')}") from None
    return manifest
