"""Which files of a package some code depends on, found without running it."""

import ast
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

from IPython.core.inputtransformer2 import TransformerManager


def dependencies(code: Iterable[str], package: Path) -> set[Path]:
    """Return every file of `package` that importing what the `code` imports may read, at any depth.

    Imports inside functions count. A package that is imported as a whole counts with all files in
    its folder, because it may load some of them only when asked for a name.
    """
    found: set[Path] = set()
    waiting: list[str] = []
    for cell in code:
        waiting.extend(_imports(parse(cell, TransformerManager().transform_cell), "", package.name))
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        for file in _files(name, package):
            if file not in found:
                found.add(file)
                waiting.extend(_imports_of_file(file, package))
    return found


def parse(code: str, to_python: Callable[[str], str] = str) -> ast.Module:
    """Return the syntax tree of some code, or none of what is broken, which fails when run."""
    try:
        return ast.parse(to_python(code))
    except (SyntaxError, ValueError):  # the second for null bytes
        return ast.Module([], [])


def _files(name: str, package: Path) -> Iterator[Path]:
    """Yield the files behind a dotted name: of the packages around it, and of the innermost one."""
    folder = package
    for part in name.split(".")[1:]:
        yield from (file for file in [folder / "__init__.py"] if file.is_file())
        if (folder / f"{part}.py").is_file():
            yield folder / f"{part}.py"
            return
        if not (folder / part).is_dir():
            break
        folder = folder / part
    if folder != package:
        yield from (file for file in folder.iterdir() if file.is_file())


def _imports_of_file(file: Path, package: Path) -> tuple[str, ...]:
    if file.suffix != ".py":
        return ()
    around = ".".join(file.relative_to(package.parent).parent.parts)
    return _imports_of_code(file.read_text("utf-8", "replace"), around, package.name)


@cache
def _imports_of_code(code: str, around: str, root: str) -> tuple[str, ...]:
    return tuple(_imports(parse(code), around, root))


def _imports(tree: ast.Module, around: str, root: str) -> Iterator[str]:
    """Yield the names under `root` that the tree imports; relative ones start from `around`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = (
                around.split(".")[: len(around.split(".")) - node.level + 1] if node.level else []
            )
            origin = ".".join([*above, *([node.module] if node.module else [])])
            names = [f"{origin}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from (name for name in names if name.split(".")[0] == root)
