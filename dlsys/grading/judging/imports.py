"""Which modules a process has imported, so that the processes that come later have them already."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Container


def since(loaded: Container[str]) -> list[str]:
    """The installed modules that are not among those `loaded`, in order of name."""
    installed = tuple(sysconfig.get_paths()[place] for place in ("stdlib", "purelib"))
    new = {name: module for name, module in [*sys.modules.items()] if name not in loaded}
    specs = {name: getattr(module, "__spec__", None) for name, module in new.items()}
    return sorted(
        name
        for name, spec in specs.items()
        if spec and spec.name == name and str(spec.origin).startswith(installed)
    )
