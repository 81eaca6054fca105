"""Annotations that hold: `@checked` refuses an argument that is not of the kind annotated.

A number on its own is left to the function, which knows its range (`checks.count`,
`checks.positive`), as Python's own where it comes as one of NumPy's or as a tensor; a sequence of
numbers comes to it as lists, where it is an array or a tensor. Annotations are read at the first
call and import nothing: a class that a module names for type checkers alone (`if TYPE_CHECKING`) is
known by its name.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import inspect
import re
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from numbers import Integral, Rational, Real
from typing import Any, NamedTuple, SupportsFloat, SupportsIndex, TypeVar

from dlsys.checks import plain, refuse

_Called = TypeVar("_Called", bound=Callable[..., Any])
_NUMBERS = {
    int: "a whole number",
    SupportsIndex: "a whole number",
    float: "a number",
    SupportsFloat: "a number",
}
_PLAIN = (int, float, bool, str, type(None), list, tuple)
_EXAMPLES = {
    "BucketPlan": "buckets(sizes)",
    "Cluster": "dgx_h100(nodes)",
    "Block": "MXFP4",
    "Communicator": "the one that a rank program is called with",
    "Device": "DEVICES['h100-sxm']",
    "Format": "FP8_E4M3",
    "Layout": "layout(spec, tp)",
    "Link": "LINKS['nvlink4']",
    "Module": "torch.nn.Linear(4, 4)",
    "Overlap": "overlap(sizes, seconds, ranks, link)",
    "Tensor": "torch.ones(4)",
    "Recipe": "RECIPES['mixed-adamw']",
    "TransformerSpec": "CATALOGUE['gpt3-175b']",
}


def checked(called: _Called) -> _Called:
    """A function, or a class by its constructor, that takes what is of the kinds annotated.

    Raises ValueError for anything else; a default is always taken.
    """
    if isinstance(called, type):
        # As text, for mypy, to which a class in a variable may be any subclass.
        setattr(called, "__init__", checked(getattr(called, "__init__")))  # noqa: B009, B010
        return called

    @functools.wraps(called)
    def call(*args: Any, **named: Any) -> Any:
        for place, name, default, form in forms():
            value = args[place] if place < len(args) else named.get(name, default)
            if form.taken and type(value) not in _PLAIN and value is not default:
                value = form.taken(value)
                if place < len(args):
                    args = (*args[:place], value, *args[place + 1 :])
                else:
                    named[name] = value
            if not (value is default or form.number or form.fits(value)):
                refuse(name, value, _said_to(value, form.words))
        return called(*args, **named)

    @functools.cache
    def forms() -> list[tuple[int, str, Any, Form]]:
        return list(_forms(called))

    return typing.cast(_Called, call)


class Form(NamedTuple):
    """What an annotation allows: in words, and as a test.

    `number`: whether it is one number; `taken`: as what a function gets what is no plain number or
    list, where that is another thing.
    """

    words: str
    fits: Callable[[Any], bool]
    number: bool = False
    taken: Callable[[Any], Any] | None = None


def _forms(function: Callable[..., Any]) -> Iterator[tuple[int, str, Any, Form]]:
    """Place, name, default and form of each parameter that has a form."""
    names = _Names(inspect.unwrap(function).__globals__)
    for place, parameter in enumerate(inspect.signature(function).parameters.values()):
        loose = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        hint = parameter.annotation
        form = _form(eval(hint, {}, names) if isinstance(hint, str) else hint)
        if form and not loose:
            keyword = parameter.kind is parameter.KEYWORD_ONLY
            yield 10**6 if keyword else place, parameter.name, parameter.default, form


def _form(hint: Any) -> Form | None:
    """The form of an annotation; None where it allows anything."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if hint in (Any, object, inspect.Parameter.empty):
        return None
    if hint in _NUMBERS:
        return Form(_NUMBERS[hint], _is_number, number=True, taken=_number)
    if hint is bool:  # Python's or NumPy's
        return Form("True or False", lambda value: type(value).__name__ == "bool")
    if hint is str:
        return Form("text", lambda value: isinstance(value, str))
    if origin in (typing.Union, types.UnionType):
        form = _one_of([_form(part) for part in parts if part is not types.NoneType])
        return _or_none(form) if types.NoneType in parts else form
    if origin is typing.Literal:
        return Form(_listed(map(repr, parts)), lambda value: _is_any(value, parts))
    if origin is tuple and parts[-1] is not ...:
        return _row([_form(part) for part in parts])
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _mapping(_form(parts[1]))
    if isinstance(origin, type) and issubclass(origin, Iterable):
        return _sequence(_form(parts[0]), issubclass(origin, Sequence))
    if origin is type:
        return _subclass(parts[0])
    if origin is Callable:
        return Form("a function", callable)
    return _class(hint) if isinstance(hint, type) else None


def _one_of(forms: Sequence[Form | None]) -> Form | None:
    known = [form for form in forms if form is not None]
    if len(forms) == 1:
        return forms[0]
    if len(known) < len(forms) or any(form.number for form in known):
        return None
    return Form(
        _listed(form.words for form in known), lambda value: any(f.fits(value) for f in known)
    )


def _or_none(form: Form | None) -> Form | None:
    if form is None or form.number:
        return form
    fits = form.fits
    return form._replace(
        words=f"{form.words}, or None", fits=lambda value: value is None or fits(value)
    )


def _row(forms: Sequence[Form | None]) -> Form:
    """A tuple of fixed length."""

    def fits(value: Any) -> bool:
        if not isinstance(value, tuple | list) or len(value) != len(forms):
            return False
        pairs = zip(forms, value, strict=True)
        return all(form is None or form.number or form.fits(v) for form, v in pairs)

    words = _listed((form.words if form else "any value" for form in forms), "and")
    return Form(f"a tuple of {len(forms)}: {words}", fits)


def _sequence(form: Form | None, written_down: bool) -> Form:
    """A sequence; where it need not be written down, whatever yields one thing after another."""
    numbers = form is not None and (form.number or form.taken is _rows)

    def fits(value: Any) -> bool:
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
            return False
        if hasattr(value, "shape") and (value.shape == () or (written_down and numbers)):
            return False  # an array that is one number, or that holds none
        # Only what is written down is looked into: a plan's rounds are made as they are asked for.
        looked_into = type(value) in (list, tuple) or (written_down and hasattr(value, "shape"))
        return all(map(inner.fits, value)) if inner and looked_into else True

    inner = None if form and form.number else form  # numbers on their own are left to the function
    words = f"a sequence, of {form.words} each" if form else "a sequence"
    taken = (_rows if numbers else _listed_out) if written_down else None
    return Form(words, fits, taken=taken)


def _mapping(form: Form | None) -> Form:
    def fits(value: Any) -> bool:
        within = value.values() if isinstance(value, Mapping) and inner else ()
        return isinstance(value, Mapping) and all(map(inner.fits, within) if inner else ())

    inner = None if form and form.number else form

    return Form(f"a dictionary, of {form.words} each" if form else "a dictionary", fits)


def _class(cls: type) -> Form | None:
    if issubclass(cls, tuple):  # whose values may be written as tuples
        return None
    kind = vars(cls)
    if kind.get("_is_protocol") and not kind.get("_is_runtime_protocol"):  # isinstance refuses it
        return None
    name = cls.__name__
    words = f"{'an' if name[0] in 'AEIO' else 'a'} {name}"
    example = f" such as {_EXAMPLES[name]}" if name in _EXAMPLES else ""
    return Form(words + example, lambda value: isinstance(value, cls))


def _subclass(cls: type) -> Form:
    def fits(value: Any) -> bool:
        return isinstance(value, type) and issubclass(value, cls)

    return Form(f"a class of {cls.__name__}s", fits)


def _is_number(value: Any) -> bool:
    """Whether it is any number: its range, and that True is none, are its function's business."""
    return isinstance(value, Real) or hasattr(value, "__index__")


def _number(value: Any) -> Any:
    """Python's own number, a float for a fraction; anything else as it is."""
    value = plain(value)
    if isinstance(value, Rational) and not isinstance(value, Integral):
        with contextlib.suppress(OverflowError):  # beyond every float
            return float(value)
    return value


def _rows(value: Any) -> Any:
    """An array or a tensor of numbers as lists of Python's; anything else as `_listed_out`."""
    if not getattr(value, "shape", ()) or getattr(value, "requires_grad", False):
        return _listed_out(value)
    try:
        return value.tolist()
    except Exception:  # it is no array, or holds no numbers
        return value


def _listed_out(value: Any) -> Any:
    """What can be gone through only once, or only in one order, as a list."""
    once = isinstance(value, Iterable) and not hasattr(value, "__getitem__")
    return list(value) if once and not isinstance(value, type) else value


def _is_any(value: Any, allowed: Sequence[Any]) -> bool:
    return any(type(value) is type(each) and value == each for each in allowed)


def _listed(words: Iterable[str], last: str = "or") -> str:
    *first, end = words
    return f"{', '.join(first)} {last} {end}" if first else end


def _said_to(value: Any, words: str) -> str:
    """The words with `value` in their example, where it looks like a name of a catalogue."""
    if isinstance(value, str) and re.fullmatch(r"[a-z][a-z.-]*\d[\w.-]*", value):
        return re.sub(r"([A-Z]+)\['[\w.-]+'\]", rf"\1['{value}']", words)
    return words


class _Named(type):
    """A class of which only the name is known: instances of any class of this name are its."""

    def __instancecheck__(cls, value: object) -> bool:
        return any(base.__name__ == cls.__name__ for base in type(value).__mro__)

    def __getattr__(cls, name: str) -> Any:  # nn.Module, where nn is not imported
        if name.startswith("__"):
            raise AttributeError(name)
        return _Named(name, (), {})


class _Names(dict[str, Any]):
    """A module's names, Python's own, and classes known by their name alone."""

    def __missing__(self, name: str) -> Any:
        return getattr(builtins, name, None) or _Named(name, (), {})
