"""A file of records of any length: each behind its length, checksums for both, and an index."""

from __future__ import annotations

import mmap
import struct
import zlib
from collections.abc import Iterable, Iterator
from os import PathLike, fspath
from pathlib import Path

from dlsys.annotated import checked
from dlsys.checks import count, refuse
from dlsys.files import written

HEAD, TAIL = struct.Struct("<QI"), struct.Struct("<I")
"""Length and its CRC-32, before a record; the CRC-32 of its bytes, behind it."""


class RecordError(ValueError):
    """A record that is not what was written."""


def index_of(path: str | PathLike) -> Path:
    """The file with the places of records: `<path>.idx`, a 64-bit number for each."""
    return Path(fspath(path) + ".idx")


def found(path: str | PathLike) -> Path:
    """The file of this name; raises ValueError where there is none."""
    if not Path(path).is_file():
        refuse("path", fspath(path), "the name of a file that there is")
    return Path(path)


@checked
def write_records(path: str | PathLike, records: Iterable[bytes]) -> int:
    """Write records one behind the other, and where each begins beside them; returns how many.

    What was there before stays until all of them are written, so that they may be read from it.
    """
    places = []
    with written(path) as file:
        for record in records:
            if not isinstance(record, bytes):
                refuse("A record of records", record, "bytes")
            places.append(file.tell())
            size = struct.pack("<Q", len(record))
            file.write(HEAD.pack(len(record), zlib.crc32(size)))
            file.write(record + TAIL.pack(zlib.crc32(record)))
        with written(index_of(path)) as index:
            index.write(struct.pack(f"<{len(places)}Q", *places))
    return len(places)


@checked
def read_records(path: str | PathLike) -> Iterator[bytes]:
    """The records from front to back, without the index, each checked; raises RecordError."""
    return _read(found(path))


def _read(path: Path) -> Iterator[bytes]:
    with open(path, "rb") as file:
        place = 0
        while head := file.read(HEAD.size):
            size = _size(head, place)
            record = file.read(size + TAIL.size)
            yield _checked(record, size, place)
            place += HEAD.size + size + TAIL.size


class Records:
    """Random access to the records of a file: `len(records)`, `records[i]`.

    The file is mapped: a record is read when it is asked for, by the pages that it lies in.
    Raises RecordError for a record that is not what was written.
    """

    @checked
    def __init__(self, path: str | PathLike) -> None:
        data = found(index_of(found(path))).read_bytes()
        self.places: tuple[int, ...] = struct.unpack(f"<{len(data) // 8}Q", data)
        self._file = open(path, "rb")  # noqa: SIM115  (as long as this lives)
        self._map = (
            mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ) if self.places else b""
        )

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, i: int) -> bytes:
        place = self.places[count("The number of a record", i, 0, len(self) - 1)]
        size = _size(self._map[place : place + HEAD.size], place)
        begin = place + HEAD.size
        return _checked(self._map[begin : begin + size + TAIL.size], size, place)

    def close(self) -> None:
        """Unmap and close the file."""
        if self.places:
            self._map.close()  # type: ignore[union-attr]
        self._file.close()


def _size(head: bytes, place: int) -> int:
    if len(head) < HEAD.size:
        raise RecordError(f"the record at byte {place:,} is cut off.")
    size, crc = HEAD.unpack(head)
    if zlib.crc32(head[:8]) != crc:
        raise RecordError(f"the length at byte {place:,} is not what was written.")
    return int(size)


def _checked(data: bytes, size: int, place: int) -> bytes:
    if len(data) < size + TAIL.size:
        raise RecordError(f"the record at byte {place:,} is cut off.")
    if zlib.crc32(data[:size]) != TAIL.unpack(data[size:])[0]:
        raise RecordError(f"the record at byte {place:,} is not what was written.")
    return data[:size]
