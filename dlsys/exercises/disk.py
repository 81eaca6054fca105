"""A pretend disk that a crash finds as it may: what is not fsynced may be there or not.

A disk is a dictionary: the name of a file with its text, that of a folder with such a dictionary of
its files. What a program does to it are plain tuples; a path is "file", "folder" or "folder/file":

- ("write", path, text): a new file, or an old one that is made empty and filled again
- ("fsync", path): from here on the disk has what is in this file, or which names this folder holds;
  "." holds the files and folders that are in no other folder
- ("rename", old, new): in one piece, within a folder; what had the new name before is gone
- ("delete", path): a file, or a folder with all that is in it
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from dlsys.exercises.forms import fits, formed
from dlsys.exercises.wrong import OtherStructure

_WORDS = {"write": 3, "fsync": 2, "rename": 3, "delete": 2}
_MOST = 500  # operations: after each of them every crash is looked at
_ROOT = 0


def operations(came: Any, what: str = "What the save returns") -> list[tuple[str, ...]]:
    """The operations of a program, if they are some; raises OtherStructure with a sentence."""
    if not fits(came, [[str]]):
        formed(came, [tuple], what)
        formed(came, [[str]], what)
    if len(came) > _MOST:
        raise OtherStructure(f"{what} has {len(came):,} operations; at most {_MOST} are tried.")
    for number, one in enumerate(came, 1):
        if not one or _WORDS.get(one[0]) != len(one):
            raise OtherStructure(
                f"{what}: operation {number} is {tuple(one)}. There are ('write', path, text), "
                "('fsync', path), ('rename', old, new) and ('delete', path)."
            )
    return [tuple(one) for one in came]


def crashes(came: Any, before: dict[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each disk that a crash may leave, with after how many operations it came.

    before: the disk at first, which is certain. Of the changes that are not, a crash has kept all,
    none, a single one, or all but one.
    """
    disk, done = _Disk(before), operations(came)
    yield 0, disk.after_crash(set())
    for number, operation in enumerate(done, 1):
        disk.do(number, operation)
        for kept in disk.what_may_be_kept():
            yield number, disk.after_crash(kept)


def at_the_end(came: Any, before: dict[str, Any]) -> dict[str, Any]:
    """The disk after all operations, without a crash."""
    disk = _Disk(before)
    for number, operation in enumerate(operations(came), 1):
        disk.do(number, operation)
    return disk.after_crash(set(range(len(disk.changes))))


class _Disk:
    """Files and folders by number; what is certain of each, and the changes that are not yet.

    A change gives a file another text, or names of a folder another number (None: no name more).
    """

    def __init__(self, before: dict[str, Any]) -> None:
        self.certain: list[Any] = [{}]
        self.changes: list[tuple[int, Any]] = []
        for name, value in before.items():
            self.certain[_ROOT][name] = number = self._new({} if type(value) is dict else value)
            for file, text in value.items() if type(value) is dict else ():
                self.certain[number][file] = self._new(text)
        self.now = copy.deepcopy(self.certain)

    def _new(self, value: Any) -> int:
        self.certain.append(value)
        return len(self.certain) - 1

    def _make(self, folder: int, name: str, value: Any) -> int:
        """A new file or folder, empty, whose name is not certain."""
        number = self._new(value)
        self.now.append(copy.deepcopy(value))
        self._change(folder, {name: number})
        return number

    def _change(self, number: int, change: Any) -> None:
        self.changes.append((number, change))
        _apply(self.now, number, change)

    def do(self, number: int, operation: tuple[str, ...]) -> None:
        """Do one operation; raises OtherStructure where it cannot be done."""

        def refuse(words: str) -> None:
            raise OtherStructure(f"Operation {number}, {operation}: {words}")

        kind, path, *more = operation
        folder, _, name = path.rpartition("/")
        if folder.count("/") or not name or (name == "." and (folder or kind != "fsync")):
            refuse('a path is "file", "folder" or "folder/file".')
        holder = self.now[_ROOT].get(folder) if folder else _ROOT
        if holder is None and kind == "write":
            holder = self._make(_ROOT, folder, {})
        if type(holder) is not int or type(self.now[holder]) is not dict:
            refuse(f"there is no folder {folder!r}.")
        assert holder is not None
        found = _ROOT if path == "." else self.now[holder].get(name)
        if found is None and kind != "write":
            refuse(f"there is no {path!r}.")
        if kind == "write":
            if found is None:
                found = self._make(holder, name, "")
            elif type(self.now[found]) is dict:
                refuse(f"{path!r} is a folder.")
            else:
                self._change(found, "")
            self._change(found, more[0])
        elif kind == "fsync":
            for number_of, change in self.changes:
                if number_of == found:
                    _apply(self.certain, number_of, change)
            self.changes = [one for one in self.changes if one[0] != found]
        elif kind == "rename":
            other, _, new = more[0].rpartition("/")
            if other != folder or new in ("", "."):
                refuse("the new name has to be one in the same folder.")
            if new != name:
                self._change(holder, {name: None, new: found})
        else:
            self._change(holder, {name: None})

    def what_may_be_kept(self) -> list[set[int]]:
        """Changes that a crash keeps, of those that are not certain."""
        every = set(range(len(self.changes)))
        return [set(), every, *({one} for one in every), *(every - {one} for one in every)]

    def after_crash(self, kept: set[int]) -> dict[str, Any]:
        """The disk if these changes are kept."""
        values = copy.deepcopy(self.certain)
        for place in sorted(kept):
            _apply(values, *self.changes[place])
        return {
            name: {file: values[n] for file, n in values[number].items()}
            if type(values[number]) is dict
            else values[number]
            for name, number in values[_ROOT].items()
        }


def _apply(values: list[Any], number: int, change: Any) -> None:
    if type(change) is str:
        values[number] = change
        return
    for name, other in change.items():
        values[number].pop(name, None)
        if other is not None:
            values[number][name] = other
