"""What a check may measure: what comes back to the locked cells, and is counted there.

A student's function runs in a process of its own. What watches the process of the locked cells sees
nothing of it; and what an answer cell gives in full runs beside it, where it can be rewritten.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

_Defined = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef

# What sees what happens in its own process, by the last part of its name.
WATCHERS = {
    *("TorchDispatchMode", "TorchFunctionMode", "FlopCounterMode", "CommDebugMode"),
    *("saved_tensors_hooks", "profile", "tracemalloc", "settrace", "setprofile", "monitoring"),
    *("getrusage", "memory_info", "max_memory_allocated", "perf_counter", "process_time"),
}


def measured_amiss(
    locked: Iterable[str], answers: Iterable[str], checks: Iterable[str]
) -> str | None:
    """What is wrong with how a notebook measures, or None.

    Given are the sources of its locked cells, of its answer cells as they are released, and of its
    checks, the hidden ones too.
    """
    helpers = {node.name: _names(node) for source in locked for node in _defined(source)}
    theirs = [node for source in answers for node in _defined(source)]
    for node in theirs:
        if not _is_left_open(node) and (called := sorted(_names(node) & helpers.keys())):
            return (
                f"the answer cell gives {node.name} in full, and it uses {called[0]} of a locked "
                "cell: that would run in the student's process, where it can be made to say "
                f"anything. Have {called[0]} call what the student writes, from a check."
            )
    watching = _reaching(helpers)
    names = {node.name for node in theirs}
    for call in (node for source in checks for node in ast.walk(ast.parse(source))):
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)):
            continue
        parts = [*call.args, *(word.value for word in call.keywords)]
        handed = [one.id for one in parts if isinstance(one, ast.Name) and one.id in names]
        if handed and call.func.id in watching:
            return (
                f"a check hands {handed[0]} to {call.func.id}, which watches the process that it "
                f"is in by {watching[call.func.id]}; {handed[0]} runs in the student's. Count "
                "what comes back from there, as messages do, or ask for something else."
            )
    return None


def _defined(source: str) -> Iterator[_Defined]:
    return (node for node in ast.parse(source).body if isinstance(node, _Defined))


def _names(node: ast.AST) -> set[str]:
    """All names in it, those of attributes too."""
    parts = list(ast.walk(node))
    names = {part.id for part in parts if isinstance(part, ast.Name)}
    return names | {part.attr for part in parts if isinstance(part, ast.Attribute)}


def _is_left_open(node: _Defined) -> bool:
    """Whether its body is a docstring, `...` or `pass`, and the rest is the student's to write."""
    return all(
        isinstance(one, ast.Pass) or (isinstance(one, ast.Expr) and type(one.value) is ast.Constant)
        for one in node.body
    )


def _reaching(helpers: dict[str, set[str]]) -> dict[str, str]:
    """The helpers that use a watcher, by themselves or by way of others, each with which."""
    found = {name: min(used & WATCHERS) for name, used in helpers.items() if used & WATCHERS}
    while more := {
        name: found[min(used & found.keys())]
        for name, used in helpers.items()
        if name not in found and used & found.keys()
    }:
        found |= more
    return found
