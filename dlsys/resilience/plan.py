"""What a checkpoint is: which region of which tensor lies in which rank's file."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from dlsys.annotated import checked
from dlsys.checks import count, refuse
from dlsys.plain_data import plain_data
from dlsys.resilience.boxes import Box, Index

VERSION = 1
"""The version of the format; a manifest of another one is not read."""
BYTES = {
    **{"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "C64": 8, "BOOL": 1},
    **{"I64": 8, "I32": 4, "I16": 2, "I8": 1, "U64": 8, "U32": 4, "U16": 2, "U8": 1},
    **{"F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1},
}
"""Bytes of an element, by the names that safetensors has for types."""


@plain_data
class TensorEntry(NamedTuple):
    """A tensor as a whole: its name, its global shape, and its dtype, a name of `BYTES`."""

    name: str
    shape: tuple[int, ...]
    dtype: str


@plain_data
class Region(NamedTuple):
    """The part of a tensor from index `offsets[k]` to `offsets[k] + sizes[k]` on each axis k."""

    name: str
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]

    @property
    def box(self) -> Box:
        """Its indices, whatever the tensor."""
        return Box(self.offsets, self.sizes)

    @property
    def elements(self) -> int:
        """How many there are."""
        return math.prod(self.sizes)

    def __str__(self) -> str:
        return f"{self.name}{self.box}" if self.sizes else self.name


@plain_data
class FileEntry(NamedTuple):
    """One rank's file: its regions in the order in which they lie there, its size and its hash."""

    regions: tuple[Region, ...]
    nbytes: int = 0
    sha256: str = ""


@plain_data
class Read(NamedTuple):
    """One thing to read: `part` out of the region `stored`, which begins `begin` bytes behind the
    header of file `file`; `nbytes` in all, for the region number `wanted` of those asked for."""

    file: int
    stored: Region
    begin: int
    part: Region
    nbytes: int
    wanted: int


@plain_data
@dataclass(frozen=True)
class Manifest:
    """All that is in a checkpoint but the numbers: `files[r]` is that of rank r.

    `state` is the nested state as JSON, with names where tensors were.
    """

    step: int
    tensors: tuple[TensorEntry, ...]
    files: tuple[FileEntry, ...]
    state: str = "null"
    version: int = VERSION

    def check(self) -> None:
        """Prove that regions cover every tensor exactly once; raises ValueError that names tensor,
        indices and files where they overlap or leave a gap. See `check.check`."""
        from dlsys.resilience.check import check

        check(self)

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors' numbers."""
        return sum(math.prod(t.shape) * BYTES[t.dtype] for t in self.tensors)

    def begins(self, file: int) -> list[tuple[Region, int]]:
        """The regions of a file, each with the byte behind the header at which it begins."""
        regions = self.files[count("file", file, 0, len(self.files) - 1)].regions
        width = {t.name: BYTES[t.dtype] for t in self.tensors}
        sizes = (region.elements * width[region.name] for region in regions)
        begins = accumulate(sizes, initial=0)
        return [(region, next(begins)) for region in regions]

    @checked
    def reads(self, regions: Sequence[Region]) -> list[Read]:
        """What a rank that wants these regions has to read, in the order in which it lies in files.

        Takes time in proportion to the regions asked for and stored, times the logarithm of these,
        and to what is found. Raises ValueError for what no tensor has.
        """
        entries = {t.name: t for t in self.tensors}
        for region in regions:
            _check_within(region, entries)
        names = {region.name for region in regions}
        stored: dict[str, list[tuple[Box, tuple[int, Region, int]]]] = {n: [] for n in names}
        for file in range(len(self.files)):
            for region, begin in self.begins(file):
                if region.name in names:
                    stored[region.name].append((region.box, (file, region, begin)))
        indices = {name: Index(each) for name, each in stored.items()}
        found = []
        for wanted, region in enumerate(regions):
            size = BYTES[entries[region.name].dtype]
            for both, (file, whole, begin) in indices[region.name].meeting(region.box):
                part = Region(region.name, *both)
                found.append(Read(file, whole, begin, part, part.elements * size, wanted))
        return sorted(found, key=lambda read: (read.file, read.begin, read.part))


def _check_within(region: Region, entries: Mapping[str, TensorEntry]) -> None:
    """Raise ValueError where the checkpoint has no such region."""
    if not isinstance(region, Region):
        refuse("regions", region, "a Region each")
    entry = entries.get(region.name)
    if entry is None:
        refuse("regions", str(region), "of tensors that the checkpoint has")
    box = Box((0,) * len(entry.shape), entry.shape)
    inside = len(region.offsets) == len(region.sizes) == len(entry.shape) and all(
        o >= 0 and s >= 0 and o + s <= n
        for o, s, n in zip(region.offsets, region.sizes, entry.shape, strict=True)
    )
    if not inside:
        refuse("regions", str(region), f"within {region.name}{box}")
