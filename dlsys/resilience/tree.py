"""A state as JSON: every list in it begins with what it stands for.

    ["dict", [[key, value], ...]]   ["list", value, ...]   ["tuple", value, ...]   ["bytes", hex]
    ["tensor", name]   ["shard", name]   ["array", name]   ["per rank", [value of rank 0, ...]]

Numbers, text, True, False and None stand for themselves. There is nothing else, so nothing that is
read can be anything else, or do anything.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from typing import Any

from dlsys.checks import shown

PLAIN = (bool, int, float, str, type(None))
TENSORS = ("tensor", "shard", "array")
DEEPEST = 100
"""Dictionaries and lists within one another, so that no state is too deep to be walked through."""


def text_of(tree: Any) -> str:
    """A tree as JSON text, always the same for the same tree."""
    return json.dumps(tree, separators=(",", ":"))


def at(path: Sequence[Any]) -> str:
    """A place in a state, as it is written in a program: ['model'][0]."""
    return "".join(f"[{shown(part)}]" for part in path)


def merged(trees: Sequence[Any]) -> Any:
    """One tree of what all ranks have: a dictionary's keys may be on some ranks alone, as the
    layers of a pipeline's stage are; raises ValueError where ranks have different values."""
    whole, *others = trees
    for rank, tree in enumerate(others, start=1):
        if text_of(tree) != text_of(whole):
            whole = _joined(whole, tree, rank, ())
    return _by_rank(whole, len(trees))


def _joined(whole: Any, mine: Any, rank: int, path: tuple[str, ...]) -> Any:
    kinds = [each[:1] if isinstance(each, list) else None for each in (whole, mine)]
    if kinds == [["dict"], ["dict"]]:
        joined, new = dict(map(tuple, whole[1])), dict(map(tuple, mine[1]))
        for key, value in new.items():
            is_new = key not in joined
            joined[key] = value if is_new else _joined(joined[key], value, rank, (*path, str(key)))
        return ["dict", [[key, value] for key, value in joined.items()]]
    if kinds == [["per rank"], ["per rank"]]:
        return ["per rank", whole[1] + mine[1]]
    if kinds[0] in (["list"], ["tuple"]) and kinds[0] == kinds[1] and len(whole) == len(mine):
        pairs = enumerate(zip(whole[1:], mine[1:], strict=True))
        return [
            *kinds[0],
            *(_joined(there, here, rank, (*path, str(i))) for i, (there, here) in pairs),
        ]
    if text_of(whole) != text_of(mine):
        raise ValueError(
            f"state{at(path)} is {_told(mine)} on rank {rank} and {_told(whole)} on another: wrap "
            "in PerRank what every rank has of its own"
        )
    return whole


def _by_rank(tree: Any, ranks: int) -> Any:
    """The tree with what every rank has of its own in their order, None where one has nothing."""
    if not isinstance(tree, list):
        return tree
    kind, *rest = tree
    if kind == "per rank":
        own = dict(rest[0])
        return [kind, [own.get(rank) for rank in range(ranks)]]
    if kind == "dict":
        return [kind, [[key, _by_rank(value, ranks)] for key, value in rest[0]]]
    if kind in ("list", "tuple"):
        return [kind, *(_by_rank(value, ranks) for value in rest)]
    return tree


def _told(tree: Any) -> str:
    """What a tree stands for, in words."""
    if not isinstance(tree, list):
        return shown(tree)
    if tree[0] in ("list", "tuple", "dict"):
        values = tree[1] if tree[0] == "dict" else tree[1:]
        return f"a {tree[0]} of {len(values)}"
    return f"a {tree[0]}"


def check_tree(tree: Any, names: Collection[str], ranks: int) -> None:
    """Raise ValueError unless it is a tree of tensors of these names and of every rank's values."""
    open_ = [(tree, 0)]
    while open_:
        each, depth = open_.pop()
        if type(each) in PLAIN:
            continue
        if depth > DEEPEST + 1:  # a rank's own lies one deeper
            raise ValueError(f"its state is more than {DEEPEST} deep")
        kind, *rest = each if isinstance(each, list) and each else (None,)
        only = rest[0] if len(rest) == 1 else None
        if kind in ("list", "tuple"):
            open_ += [(value, depth + 1) for value in rest]
        elif kind == "dict" and isinstance(only, list) and all(map(_is_pair, only)):
            open_ += [(value, depth + 1) for _, value in only]
        elif kind == "per rank" and isinstance(only, list) and len(only) == ranks:
            open_ += [(value, depth + 1) for value in only]
        elif not (
            (kind in TENSORS and isinstance(only, str) and only in names)
            or (kind == "bytes" and isinstance(only, str) and _is_hex(only))
        ):
            raise ValueError(f"its state has {shown(each)}, which stands for nothing")


def _is_pair(pair: Any) -> bool:
    return isinstance(pair, list) and len(pair) == 2 and type(pair[0]) in (str, int)


def _is_hex(text: str) -> bool:
    try:
        return bytes.fromhex(text).hex() == text
    except ValueError:
        return False


def built(tree: Any, tensor: Callable[[str, str], Any], own: Callable[[list[Any]], Any]) -> Any:
    """The state of a tree, with `tensor(kind, name)` where tensors were, and `own(trees)` where
    every rank had something else."""
    if not isinstance(tree, list):
        return tree
    kind, *rest = tree
    if kind in TENSORS:
        return tensor(*tree)
    if kind == "bytes":
        return bytes.fromhex(rest[0])
    if kind == "dict":
        return {key: built(value, tensor, own) for key, value in rest[0]}
    if kind == "per rank":
        return own(rest[0])
    values = [built(value, tensor, own) for value in rest]
    return values if kind == "list" else tuple(values)
