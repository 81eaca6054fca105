"""How two plain values are built: what to say where the values may be right and the brackets not.

Values are as `plain` gives them: tuples are lists, and arrays have been turned into lists.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from dlsys.exercises.plain import Array
from dlsys.exercises.seal import Sealed

_KINDS = {bool: "True or False", int: "a number", float: "a number", str: "text"}
_KINDS |= {list: "a list", tuple: "a list", dict: "a dictionary", Array: "an array"}
_OF_FORM = {
    "number": "a number",
    "count": "a number",
    "text": "text",
    "bool": "True or False",
    "none": "None",
}
_ADVICE = {
    ("a number", "text"): ": write it without quotes",
    ("True or False", "text"): ": write it without quotes",
    ("text", "a function"): ": write a word in quotes",
    ("text", "a number"): ": write a word in quotes",
    ("text", "True or False"): ": write a word in quotes",
}


def kind(value: Any) -> str:
    """The kind of a plain value, in words; whole numbers and floats are both numbers."""
    if isinstance(value, Sealed):
        return "a sealed value"
    return "None" if value is None else _KINDS.get(type(value), type(value).__name__)


def built_otherwise(came: Any, expected: Any) -> str | None:
    """How `came` is built otherwise than `expected`, as a sentence; None where both are alike.

    Alike are two numbers, two texts, lists of one length or dictionaries with the same keys, if all
    that is in them is alike. An answer that is not there yet (None) is not built otherwise.
    """
    if isinstance(came, list) and isinstance(expected, list) and len(came) == len(expected):
        return _inside(dict(enumerate(came)), dict(enumerate(expected)))
    if isinstance(came, dict) and isinstance(expected, dict) and came.keys() == expected.keys():
        return _inside(came, expected)
    if isinstance(came, list) and isinstance(expected, list) and _depth(came) != _depth(expected):
        return f"Lists {_depth(expected)} deep are wanted; lists {_depth(came)} deep came."
    return _otherwise(came, expected)


def _inside(came: dict[Any, Any], expected: dict[Any, Any]) -> str | None:
    """What `built_otherwise` says of the first part that it says something of."""
    found = ((key, built_otherwise(came[key], expected[key])) for key in expected)
    return next((f"In its part [{key!r}]: {text}" for key, text in found if text), None)


def _otherwise(came: Any, expected: Any) -> str | None:
    length, wanted = _length(expected), kind(expected)
    if isinstance(expected, Sealed):
        wanted = "a list" if expected.form.startswith("list") else _OF_FORM.get(expected.form, "")
    is_list = isinstance(came, list)
    if not wanted or wanted == kind(came) or came is None:
        return None
    if wanted == "a list":
        return f"{_several(length)} wanted, in square brackets{_instead(came)}."
    if wanted == "a dictionary":
        return f"A dictionary is wanted, with a name for each value{_instead(came)}."
    if wanted == "None":
        return f"None is expected; {kind(came)} came."
    if is_list and len(came) == 1:
        return "One value is wanted, and it came inside brackets: take them off."
    if is_list:
        return f"One value is wanted, and a list of {len(came)} came: which of them is it?"
    if isinstance(came, dict):
        return "One value is wanted, and a dictionary came: which of its values is it?"
    return f"{wanted} is expected; {kind(came)} came{_ADVICE.get((wanted, kind(came)), '')}."


def rearranged(came: Any, expected: Any) -> str | None:
    """That a list has the expected values in another order or nesting; None where it has not."""
    if not isinstance(came, list) or not isinstance(expected, list) or came == expected:
        return None
    if came == expected[::-1]:
        return "The values are right, but in reverse order."
    mine, theirs = _flat(came), _flat(expected)
    if mine == theirs:
        return "The values are right, but there are other brackets around them."
    try:  # as long as what is expected, and no longer: numbers can be made to collide
        is_same = len(mine) == len(theirs) > 1 and Counter(mine) == Counter(theirs)
    except TypeError:  # dictionaries
        is_same = False
    return "The values are right, but in another order." if is_same else None


def _depth(value: Any) -> int:
    """How deep lists are nested, by the first value of each; an empty one may hold anything."""
    return 1 + _depth(value[0]) if isinstance(value, list) and value else 0


def _length(expected: Any) -> int:
    if isinstance(expected, Sealed):
        return int(expected.form.removeprefix("list") or 0) if "list" in expected.form else 0
    return len(expected) if isinstance(expected, list) else 0


def _several(length: int) -> str:
    return f"A list of {length} is" if length else "A list is"


def _instead(came: Any) -> str:
    if isinstance(came, dict):
        return "; a dictionary came: give its values alone, in order"
    return f"; {kind(came)} came" if isinstance(came, list) else f"; {kind(came)} came alone"


def _flat(value: Any) -> list[Any]:
    if isinstance(value, list):
        return [leaf for item in value for leaf in _flat(item)]
    return [value]
