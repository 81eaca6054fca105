"""The proof that the files of a checkpoint hold every number of every tensor exactly once."""

from __future__ import annotations

from collections.abc import Sequence

from dlsys.resilience.boxes import Box, miscounted, room_at
from dlsys.resilience.plan import BYTES, Manifest, Region, TensorEntry

MOST_AXES = 16
"""Axes along which a tensor may be cut: the proof takes twice as long for each."""


def check(manifest: Manifest) -> None:
    """What `Manifest.check` says."""
    entries: dict[str, TensorEntry] = {}
    for entry in manifest.tensors:
        if entry.name in entries:
            raise ValueError(f"{entry.name!r} is the name of two tensors.")
        if entry.dtype not in BYTES:
            raise ValueError(f"{entry.name} is of the unknown type {entry.dtype!r:.40}.")
        if any(size < 0 for size in entry.shape):
            raise ValueError(f"{entry.name} has the shape {entry.shape}.")
        entries[entry.name] = entry
    held: dict[str, list[tuple[Region, int]]] = {name: [] for name in entries}
    for file, (regions, _, _) in enumerate(manifest.files):
        for region in regions:
            _check_inside(region, file, entries.get(region.name))
            held[region.name].append((region, file))
    for name, each in held.items():
        _check_cover(entries[name], each)


def _check_inside(region: Region, file: int, entry: TensorEntry | None) -> None:
    if entry is None:
        raise ValueError(f"File {file} holds {region}, and there is no such tensor.")
    if not len(region.offsets) == len(region.sizes) == len(entry.shape):
        raise ValueError(
            f"File {file} holds {region.name} with offsets {region.offsets} and sizes "
            f"{region.sizes}, and its shape is {entry.shape}."
        )
    if any(o < 0 or s < 0 or o + s > n for o, s, n in zip(*region[1:], entry.shape, strict=True)):
        whole = Box((0,) * len(entry.shape), entry.shape)
        raise ValueError(f"File {file} holds {region}, which is not within {region.name}{whole}.")


def _check_cover(entry: TensorEntry, held: Sequence[tuple[Region, int]]) -> None:
    boxes, shape = [region.box for region, _ in held], entry.shape
    axes = sum(any(box.sizes[k] != size for box in boxes) for k, size in enumerate(shape))
    if axes > MOST_AXES:
        raise ValueError(f"{entry.name} is cut along {axes} axes; {MOST_AXES} are allowed.")
    found = miscounted(boxes, shape)
    if found is None:
        return
    index, times = found
    if times == 0:
        room = room_at(index, boxes, shape)
        raise ValueError(f"{entry.name}{room if shape else ''} lies in no file.")
    (one, first), (two, second) = [pair for pair in held if pair[0].box.holds(index)][:2]
    both = one.box.common(two.box)
    raise ValueError(
        f"{entry.name}{both if shape else ''} lies in file {first} (with {one}) and in file "
        f"{second} (with {two})."
    )
