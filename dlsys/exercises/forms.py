"""The form that an answer is asked for in, which a helper checks before it looks at values.

A form is an example made of types:

- `int`, `float`, `bool`, `str`, `torch.Tensor`: one such value; `callable`: a function
- `[form]`: a list of any length
- `(form, form)`: so many values, in this order, as a tuple or a list; `[form, form]` the same,
  where a list is asked for
- `{"name": form}`: a dictionary with these keys; `{str: form}`: one with any texts as keys
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from dlsys.exercises.judge import close, show, unanswered
from dlsys.exercises.usual import usual
from dlsys.exercises.wrong import OtherStructure

_ONE = {int: "a whole number", float: "a number", bool: "True or False", str: "text"}
_MANY = {int: "whole numbers", float: "numbers", bool: "True or False", str: "texts"}
_FUNCTIONS = {"function", "method", "builtin_function_or_method"}


def formed(came: Any, form: Any, what: str = "The answer") -> Any:
    """`came`, if it has the form; raises OtherStructure with a sentence on `what` otherwise.

    An array or a tensor in the place of a list comes back as a list. Nothing of `came` is called
    but what lists and tensors have.
    """
    if missing := unanswered(came):
        raise OtherStructure(f"{what}: {missing}")
    came = _listed(came, form)
    for place, part in _misfits(came, form, ""):
        if missing := unanswered(part):
            raise OtherStructure(f"{what}, at {place}: {missing}")
        where = f"in it, {place}" if place else "it"
        raise OtherStructure(f"{what} should be {described(form)}; {where} is {_named(part)}.")
    return came


def fits(came: Any, form: Any) -> bool:
    """Whether `came` has the form."""
    return not any(_misfits(_listed(came, form), form, ""))


def by_rank(results: Sequence[Any], form: Any) -> list[Any]:
    """What the ranks of a run have returned, each of this form; raises OtherStructure."""
    return [formed(came, form, f"What rank {rank} returns") for rank, came in enumerate(results)]


def chosen(design: Any, choices: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """A design, in the order of `choices`, with one of the allowed values for each name.

    Raises OtherStructure where it is none.
    """
    is_plain = type(design) is dict and all(type(value) in _ONE for value in design.values())
    if not is_plain or design.keys() != choices.keys():  # hundreds of thousands may be priced
        design = formed(design, dict.fromkeys(choices, object), "The design")
    return {name: _choice(name, design[name], allowed) for name, allowed in choices.items()}


def _choice(name: str, value: Any, allowed: Sequence[Any]) -> Any:
    value = _listed(value, float)
    is_one = type(value) in _ONE
    if is_one and value in allowed and (type(value) is bool) == (type(allowed[0]) is bool):
        return allowed[allowed.index(value)]  # 4 where 4.0 came
    came = f"{name} = {show(value)}" if is_one else f"{name} is {_named(value)}, which"
    raise OtherStructure(
        f"{came} is no choice that there is: take one of {', '.join(map(repr, allowed))}."
    )


def proved(check: Callable[[], object]) -> str:
    """ "proved", or what the check of a plan says that is wrong with it."""
    try:
        check()
    except ValueError as error:
        return str(error)
    return "proved"


def beside(predicted: Any, measured: Mapping[str, float], rtol: float = 0.0) -> str:
    """ "as measured", or the first name in `measured` that another number was predicted for.

    It is said whether that number is too much or too little: "gradients: too much". Raises
    OtherStructure where it is no dictionary with a number for each name.
    """
    found = formed(predicted, dict.fromkeys(measured, float), "The prediction")
    for name, right in measured.items():
        if not close(found[name], float(right), rtol, 0.0):
            return f"{name}: too {'much' if found[name] > right else 'little'}"
    return "as measured"


def described(form: Any, many: bool = False) -> str:
    """A form in words: "a list of lists of whole numbers"."""
    if _is_of_any_length(form):
        return f"{'lists' if many else 'a list'} of {described(form[0], many=True)}"
    if isinstance(form, list | tuple):
        name, parts = type(form).__name__, ", ".join(map(described, form))
        return f"{f'{name}s' if many else f'a {name}'} of {len(form)} ({parts})"
    if isinstance(form, dict):
        keys = "texts as keys" if str in form else f"the keys {', '.join(map(repr, form))}"
        return f"{'dictionaries' if many else 'a dictionary'} with {keys}"
    name = "function" if form is callable else form.__name__.lower()
    return _MANY.get(form, f"{name}s") if many else _ONE.get(form, f"a {name}")


def _misfits(came: Any, form: Any, place: str) -> Iterator[tuple[str, Any]]:
    """The parts of `came` that have another form, each with its place."""
    parts = _parts(came, form)
    if parts is None:
        yield place, came
    for key, part, its_form in parts or ():
        yield from _misfits(part, its_form, f"{place}[{key!r}]")


def _parts(came: Any, form: Any) -> list[tuple[Any, Any, Any]] | None:
    """Key, part and form of all that `came` holds; None where it is itself of another form."""
    if isinstance(form, list | tuple):
        if not _is_list(came):
            return None
        forms = form * len(came) if _is_of_any_length(form) else form
        if len(forms) != len(came):
            return None
        return [(i, part, forms[i]) for i, part in enumerate(came)]
    if isinstance(form, dict):
        if type(came) is not dict:
            return None
        any_text = str in form and all(type(key) is str for key in came)
        if not any_text and came.keys() != form.keys():
            return None
        return [(key, part, form[str] if str in form else form[key]) for key, part in came.items()]
    return [] if _is(came, form) else None


def _is(came: Any, form: Any) -> bool:
    if form is callable:
        return callable(came)
    if form in (int, float):
        return type(came) is int or (type(came) is float and form is float)
    return isinstance(came, form)


def _is_of_any_length(form: Any) -> bool:
    return isinstance(form, list) and len(form) == 1


def _is_list(came: Any) -> bool:
    return type(came) in (list, tuple)


def _listed(came: Any, form: Any) -> Any:
    """Tensors and arrays as numbers, or as lists of numbers, where the form has these."""
    came = usual(came)
    if type(came) in _ONE:
        return came
    if isinstance(came, _arrays()):
        innermost = form
        while isinstance(innermost, list | tuple) and innermost:
            innermost = innermost[0]
        with contextlib.suppress(RuntimeError):  # a meta tensor, a sparse one
            return came.tolist() if innermost in (int, float, bool) else came
        return came
    parts = _parts(came, form) if isinstance(form, list | tuple | dict) else None
    if not parts:
        return came
    listed = [
        # Where one number is wanted an array stays one, to be told as such.
        part
        if getattr(part, "ndim", 0) and not isinstance(its_form, list)
        else _listed(part, its_form)
        for _, part, its_form in parts
    ]
    if isinstance(form, dict):
        return {key: part for (key, *_), part in zip(parts, listed, strict=True)}
    return tuple(listed) if type(came) is tuple else listed


def _arrays() -> tuple[Any, ...]:
    """The types of tensors, arrays and their numbers, of those libraries that are loaded."""
    places = (("torch", "Tensor"), ("numpy", "ndarray"), ("numpy", "generic"))
    return tuple(getattr(sys.modules[m], name) for m, name in places if m in sys.modules)


def _named(value: Any) -> str:
    """What a value is, in words; of one that is not plain, its type alone."""
    name = type(value).__name__
    if _is_list(value):
        return f"a {name} of {len(value)}"
    if type(value) is dict and all(type(key) in _ONE for key in value):
        return f"a dictionary with the keys {show(list(value), 80)}"
    if type(value) in _ONE:
        what = {bool: "", str: "the text "}.get(type(value), "the number ")
        return f"{what}{show(value, 80)}"
    if isinstance(value, _arrays()):
        with contextlib.suppress(RuntimeError):  # a nested tensor has no shape
            return f"an array or tensor of shape {tuple(value.shape)}"
    return "a function" if name in _FUNCTIONS else f"of type {name}"
