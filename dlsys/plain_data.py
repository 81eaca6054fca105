"""Classes whose values may go from one process to another as plain data: plans and their parts.

A class is offered where it is defined: `@plain_data` above a NamedTuple or a frozen dataclass. Its
values then leave as lists of their fields, and come in only as what the annotations say. Nothing is
imported and no other class is built for data from outside, so it may come from anybody.

Fields may be whole numbers, numbers, booleans, text, None, ranges, offered classes, and tuples,
sequences and unions of these; sequences come in as tuples.
"""

from __future__ import annotations

import functools
import types
import typing
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

_Class = TypeVar("_Class", bound=type)
_OFFERED: dict[str, type] = {}
_LEAVES: dict[Any, tuple[str, tuple[type, ...]]] = {
    bool: ("True or False", (bool,)),
    int: ("a whole number", (int,)),
    float: ("a number", (int, float)),
    str: ("text", (str,)),
    types.NoneType: ("None", (types.NoneType,)),
}


class Unfit(TypeError):  # noqa: N818  (what a value is, to whoever reads it)
    """Data that is none of what is offered, or has a field of another type than it should."""


def plain_data(cls: _Class) -> _Class:
    """Offer a class of this package as plain data; raises TypeError where its values can change."""
    frozen = getattr(getattr(cls, "__dataclass_params__", None), "frozen", _is_named_tuple(cls))
    if not (frozen and cls.__module__.startswith("dlsys.")):
        raise TypeError(
            f"{cls.__module__}.{cls.__qualname__} is not offered as plain data: only NamedTuples "
            "and frozen dataclasses of dlsys are."
        )
    _OFFERED[_name(cls)] = cls
    return cls


def offered_as(cls: type) -> str | None:
    """The name under which a class is offered; None for others, subclasses of one among them."""
    return _name(cls) if _OFFERED.get(_name(cls)) is cls else None


def as_data(value: Any) -> list[Any]:
    """The fields of a value whose class is offered, as JSON can hold them.

    Raises Unfit, which names the field, where it holds something else than it is annotated with.
    """
    cls: Any = type(value)
    data: list[Any] = _record(cls).write(value)
    return data


def from_data(name: Any, data: Any) -> Any:
    """The value that `as_data` gave, of the class offered as `name`; safe for whatever came.

    Raises Unfit, or what the class raises for fields that do not fit together.
    """
    if type(name) is not str or name not in _OFFERED:
        raise Unfit(f"Nothing is offered as plain data under the name {name!r:.80}.")
    return _record(_OFFERED[name]).read(data)


def _name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _is_named_tuple(cls: type) -> bool:
    return issubclass(cls, tuple) and hasattr(cls, "_fields")


@dataclass(frozen=True)
class _Form:
    """One annotated type: how its values are written as JSON, and read with all that is checked."""

    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


@functools.cache
def _record(cls: Any) -> _Form:
    """A class: the list of its fields, without their names."""
    named_tuple = _is_named_tuple(cls)
    names = cls._fields if named_tuple else [each.name for each in fields(cls) if each.init]
    hints = typing.get_type_hints(cls)
    forms = {name: _form(hints[name], f"{cls.__name__}.{name}") for name in names}

    def write(value: Any) -> list[Any]:
        _demand(type(value) is cls, cls.__name__, value, f"of type {cls.__name__}")
        return [form.write(getattr(value, name)) for name, form in forms.items()]

    def read(data: Any) -> Any:
        fits = type(data) is list and len(data) == len(forms)
        _demand(fits, cls.__name__, data, f"the list of its {len(forms)} fields")
        given = zip(forms.items(), data, strict=True)
        return cls(**{name: form.read(part) for (name, form), part in given})

    return _Form(write, read)


@functools.cache
def _form(kind: Any, where: str) -> _Form:
    """What the annotation `kind` of the field `where` stands for."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if kind in _LEAVES:
        return _leaf(kind, where)
    if kind is range:
        return _range(where)
    if origin in (typing.Union, types.UnionType):
        return _union([_form(part, where) for part in parts], kind, where)
    if origin is tuple and parts[-1] is not ...:
        return _row([_form(part, where) for part in parts], where)
    if origin in (tuple, Sequence):
        return _sequence(_form(parts[0], where), where)
    if isinstance(kind, type) and offered_as(kind):
        return _record(kind)
    raise TypeError(f"{where} cannot travel as plain data: it is annotated as {kind}.")


def _leaf(kind: Any, where: str) -> _Form:
    words, allowed = _LEAVES[kind]

    def read(data: Any) -> Any:
        _demand(type(data) in allowed, where, data, words)
        return data

    def write(value: Any) -> Any:
        plain = value.item() if hasattr(value, "item") else value  # NumPy has numbers of its own
        if kind in (bool, int) and isinstance(plain, int) and kind(plain) == plain:
            plain = kind(plain)
        return read(plain)

    return _Form(write, read)


def _union(forms: list[_Form], kind: Any, where: str) -> _Form:
    def first(value: Any, direction: str) -> Any:
        for form in forms:
            try:
                return getattr(form, direction)(value)
            except Unfit:
                continue
        raise Unfit(f"{where} is {value!r:.60}; it must be {kind}.")

    return _Form(lambda value: first(value, "write"), lambda data: first(data, "read"))


def _row(forms: list[_Form], where: str) -> _Form:
    """A tuple of fixed length, each place with a type of its own."""

    def each(value: Any, fits: bool, direction: str) -> list[Any]:
        _demand(fits and len(value) == len(forms), where, value, f"{len(forms)} values")
        pairs = zip(forms, value, strict=True)
        return [getattr(form, direction)(part) for form, part in pairs]

    return _Form(
        lambda value: each(value, isinstance(value, tuple | list), "write"),
        lambda data: tuple(each(data, type(data) is list, "read")),
    )


def _range(where: str) -> _Form:
    """A range, as its start, stop and step."""
    ends = _row([_form(int, where)] * 3, where)

    def write(value: Any) -> list[Any]:
        _demand(isinstance(value, range), where, value, "a range")
        found: list[Any] = ends.write((value.start, value.stop, value.step))
        return found

    def read(data: Any) -> range:
        start, stop, step = ends.read(data)
        _demand(step != 0, where, data, "a range with a step that is not 0")
        return range(start, stop, step)

    return _Form(write, read)


def _sequence(form: _Form, where: str) -> _Form:
    def write(value: Any) -> list[Any]:
        fits = isinstance(value, Iterable) and not isinstance(value, str)
        _demand(fits, where, value, "a sequence")
        return [form.write(part) for part in value]

    def read(data: Any) -> tuple[Any, ...]:
        _demand(type(data) is list, where, data, "a sequence")
        return tuple([form.read(part) for part in data])

    return _Form(write, read)


def _demand(fits: bool, where: str, value: object, words: str) -> None:
    if not fits:
        raise Unfit(f"{where} is {value!r:.60}; it must be {words}.")
