"""The checks of a question as data, read from the source of its test cell and never run there."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from dlsys.exercises import Sealed, plain, sealed
from dlsys.exercises.options import check_options

_LITERALS = ("rtol", "atol", "hint", "best", "vary", "weight", "needed")


@dataclass(frozen=True)
class Check:
    """One call of `same`, as data.

    `expression` and `cost` are source text; `expected` is plain, or `Sealed`; `hint` is as `same`
    takes it. `vary` maps a literal of the expression to the values to draw in its place;
    the expectation of a drawn check is what the solution gives. Of a question's points a check is
    worth its `weight` beside the others'; who fails one that is `needed` gets none of them.
    """

    expression: str
    expected: Any
    rtol: float = 1e-9
    atol: float = 0.0
    hint: Any = None
    cost: str | None = None
    best: Mapping[str, float] | None = None
    hidden: bool = False
    vary: Mapping[Any, Sequence[Any]] | None = None
    weight: float = 1
    needed: bool = False


def checks_of(source: str) -> tuple[Check, ...]:
    """The calls of `same` in a test cell, those between the marks of hidden tests `hidden`.

    Raises ValueError where the cell holds anything else, or an argument that is no literal.
    """
    try:
        statements = ast.parse(source).body
    except SyntaxError as error:
        raise ValueError(f"line {error.lineno} is no Python: {error.msg}.") from None
    lines = source.split("\n")
    written = [line.encode() for line in lines]  # Python counts columns in bytes
    hidden = 0
    is_hidden = []
    for line in lines:
        hidden += ("### BEGIN HIDDEN TESTS" in line) - ("### END HIDDEN TESTS" in line)
        is_hidden.append(hidden > 0)
    return tuple(_check(one, written, is_hidden[one.lineno - 1]) for one in statements)


def _check(statement: ast.stmt, lines: Sequence[bytes], hidden: bool) -> Check:
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not (isinstance(call, ast.Call) and ast.unparse(call.func) == "same"):
        raise ValueError(
            f"line {statement.lineno} holds {ast.unparse(statement)[:60]!r}; test cells hold only "
            "same(...). Put helpers into a locked cell above."
        )
    named = {word.arg: word.value for word in call.keywords}
    if len(call.args) != 2 or not set(named) <= {*_LITERALS, "cost"}:
        raise ValueError(
            f"line {call.lineno}: give `same` an expression and an expected value, and by name "
            f"{', '.join(_LITERALS)} or cost."
        )
    try:
        expected = _value(call.args[1])
        literals = {name: _value(named[name]) for name in _LITERALS if name in named}
        check = Check(
            _text(call.args[0], lines),
            expected if isinstance(expected, Sealed) else plain(expected),
            cost=_text(named["cost"], lines) if "cost" in named else None,
            hidden=hidden,
            **literals,
        )
        check_options(**{name: getattr(check, name) for name in _LITERALS})
    except (TypeError, ValueError) as error:  # NotPlain and an unhashable key are TypeErrors
        raise ValueError(f"line {call.lineno}: {error}") from None
    _check_domains(check, call)
    return check


def _text(node: ast.expr, lines: Sequence[bytes]) -> str:
    """The source of an expression in one line.

    `ast.get_source_segment` would split the whole cell again for each expression in it.
    """
    own = list(lines[node.lineno - 1 : node.end_lineno])
    own[-1] = own[-1][: node.end_col_offset]
    own[0] = own[0][node.col_offset :]
    text = " ".join(b" ".join(own).decode().split())
    try:
        unchanged = ast.dump(ast.parse(text, mode="eval").body) == ast.dump(node)
    except SyntaxError:  # a comment in the midst of it
        unchanged = False
    return text if unchanged else ast.unparse(node)


def _value(node: ast.expr) -> Any:
    """The value of a literal in which there may be calls of `sealed`."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "sealed" and len(node.args) == 1:
        return sealed(ast.literal_eval(node.args[0]))
    if isinstance(node, ast.Dict):
        keys = [_value(key or ast.Name("**")) for key in node.keys]
        if len(set(keys)) != len(keys):
            raise ValueError(f"two keys of {ast.unparse(node)[:60]!r} are equal; keep one.")
        return dict(zip(keys, map(_value, node.values), strict=True))
    if isinstance(node, ast.List | ast.Tuple):
        values = [_value(item) for item in node.elts]
        return values if isinstance(node, ast.List) else tuple(values)
    try:
        return ast.literal_eval(node)
    except ValueError:
        text = ast.unparse(node)[:60]
        raise ValueError(f"{text!r} is no literal; write the value, or sealed(...).") from None


# -- drawing -------------------------------------------------------------------------------------


def drawn(check: Check, random: Random) -> Check:
    """An instance of a check with `vary`: each of its literals replaced by a value of its domain.

    A check without `vary` is returned as it is. Of its hints a drawn one keeps those that are not
    for one wrong value, and no `best`; `expected` is still the one of the written instance.
    """
    if not check.vary:
        return check
    return varied(check, {key: random.choice(list(values)) for key, values in check.vary.items()})


def varied(check: Check, chosen: Mapping[Any, Any]) -> Check:
    """The check with the literals that equal a key of `chosen` replaced, in expression and cost.

    A literal equals a key of its own type alone: 5 is not 5.0 and not True.
    """
    hint = check.hint
    if isinstance(hint, Mapping):
        hint = hint.get(None)
    elif isinstance(hint, list):
        hint = next((text for wrong, text in hint if wrong is None), None)
    return replace(
        check,
        expression=_replaced(check.expression, chosen),
        cost=None if check.cost is None else _replaced(check.cost, chosen),
        hint=hint,
        best=None,
        vary=None,
    )


def _replaced(text: str, chosen: Mapping[Any, Any]) -> str:
    marks = {_mark(key): value for key, value in chosen.items()}

    class Replace(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST:
            mark = _literal(node)
            if mark in marks:
                return ast.parse(repr(marks[mark]), mode="eval").body
            return node if mark else self.generic_visit(node)

    return ast.unparse(Replace().visit(ast.parse(text, mode="eval").body))


def _mark(value: Any) -> tuple[str, str]:
    return type(value).__name__, repr(value)


def _literal(node: ast.AST) -> tuple[str, str] | None:
    """The mark of a node that is one literal, its sign included; of an f-string no part is."""
    if isinstance(node, ast.JoinedStr):
        return "f-string", ""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        bare = node.operand
        number = isinstance(bare, ast.Constant) and isinstance(bare.value, int | float)
        return _mark(ast.literal_eval(node)) if number else None
    return _mark(node.value) if isinstance(node, ast.Constant) else None


def _literals(node: ast.AST) -> Iterator[tuple[str, str]]:
    if mark := _literal(node):
        yield mark
    else:
        for child in ast.iter_child_nodes(node):
            yield from _literals(child)


def _check_domains(check: Check, call: ast.Call) -> None:
    if check.vary is None:
        return
    where = f"line {call.lineno}: vary"
    if not check.hidden:
        raise ValueError(f"{where} is for hidden checks; move this one between the marks.")
    if not isinstance(check.vary, Mapping) or not check.vary:
        raise ValueError(f"{where} is {{literal of the expression: [values to draw], ...}}.")
    found = set(_literals(call.args[0]))
    for key, values in check.vary.items():
        if _mark(key) not in found:
            raise ValueError(
                f"{where} replaces {key!r}, which is no literal of {check.expression!r}; "
                "write the key as it stands there (5 is not 5.0)."
            )
        if not isinstance(values, list) or not values:
            raise ValueError(f"{where} has no list of values for {key!r}.")
