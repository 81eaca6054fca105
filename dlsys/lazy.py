"""A package's public names, written once and loaded where they are first asked for (PEP 562).

A package's `__init__.py` imports its names in one `if TYPE_CHECKING:` block, which type checkers
read and Python skips, and ends with a call of `exports`, which reads the same block:

    from typing import TYPE_CHECKING

    from dlsys import lazy

    if TYPE_CHECKING:
        from dlsys.zero.local_shard import LocalShard
        from dlsys.zero.plan import Stage

    lazy.exports(__name__)

So `import dlsys.zero` loads neither torch nor Matplotlib, and `dir`, Tab, `import *` and type
checkers know every name. What stands in that block is public, so nothing else goes there.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any


def exports(package: str) -> None:
    """Give `package` its `__all__`, `__dir__` and `__getattr__`, as its `__init__.py` lists names.

    Called at the end of that file. `__getattr__` is set here, out of a type checker's sight, which
    would otherwise take any misspelt name for one that it gives.
    """
    namespace = vars(sys.modules[package])
    with open(namespace["__file__"], encoding="utf-8") as file:
        home = dict(_listed(ast.parse(file.read())))

    def load(name: str) -> Any:
        if name not in home:
            raise AttributeError(_unknown(package, name, sorted(home)))
        module, original = home[name]
        namespace[name] = getattr(import_module(module), original)  # asked for once
        return namespace[name]

    namespace |= {"__all__": sorted(home), "__dir__": lambda: sorted(home), "__getattr__": load}
    for name, (module, _) in home.items():
        # Python binds `package.name` to a submodule of that name when it is imported: the public
        # name comes first, so that the import lies behind it, and binds once.
        if module == f"{package}.{name}":
            load(name)


def _listed(source: ast.Module) -> Iterator[tuple[str, tuple[str, str]]]:
    """(public name, (module, name there)) of each import in the blocks `if TYPE_CHECKING:`."""
    for block in source.body:
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING":
            for line in block.body:
                if isinstance(line, ast.ImportFrom) and line.module:
                    for name in line.names:
                        yield name.asname or name.name, (line.module, name.name)


def _unknown(package: str, name: str, known: list[str]) -> str:
    from difflib import get_close_matches  # a millisecond that only a misspelt name costs

    near = get_close_matches(name, known)
    advice = f"did you mean {' or '.join(near)}?" if near else f"it has {', '.join(known)}."
    return f"{package} has no {name!r}; {advice}"
