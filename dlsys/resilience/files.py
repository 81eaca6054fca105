"""One rank's file, in the format of safetensors: a header of JSON, then numbers end to end.

The header follows from the manifest, so a reader never takes what stands in a file for what should:
https://github.com/huggingface/safetensors#format.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from io import FileIO
from itertools import accumulate, product
from operator import mul
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dlsys.resilience.plan import BYTES, Manifest, Read
from dlsys.resilience.refused import CheckpointError
from dlsys.world import memory

MANIFEST = "manifest.json"
_BEHIND = 2**26  # bytes that may wait to be hashed
_PAGE = 4096  # bytes that a disk gives at least: a smaller gap is read over


def name_of(rank: int) -> str:
    """The name of a rank's file."""
    return f"rank-{rank:05d}.safetensors"


def header(manifest: Manifest, file: int) -> bytes:
    """The bytes of a file before its numbers, eight for the length among them."""
    shapes = {t.name: (t.shape, t.dtype) for t in manifest.tensors}
    ranks = len(manifest.files)
    fields: dict[str, object] = {
        "__metadata__": {"step": str(manifest.step), "rank": str(file), "ranks": str(ranks)}
    }
    for region, begin in manifest.begins(file):
        shape, dtype = shapes[region.name]
        key = region.name if region.sizes == shape else str(region)
        end = begin + region.elements * BYTES[dtype]
        fields[key] = {"dtype": dtype, "shape": region.sizes, "data_offsets": [begin, end]}
    text = json.dumps(fields, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def as_bytes(tensor: Tensor) -> memoryview:
    """The numbers of a tensor, as they lie in memory one after the other."""
    return memoryview(memory.as_bytes(tensor.cpu()).numpy())  # type: ignore[arg-type]


def write(path: Path, parts: Iterable[bytes | memoryview]) -> tuple[int, str]:
    """Write a new file and have it on the disk; returns its bytes and their SHA-256."""
    try:
        with open(path, "xb", buffering=0) as file, ThreadPoolExecutor(2) as beside:
            return _write(file, parts, beside)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


def _write(
    file: FileIO, parts: Iterable[bytes | memoryview], beside: ThreadPoolExecutor
) -> tuple[int, str]:
    """Hashing stays behind: the disk gets all that it can take first, and works meanwhile."""
    digest, nbytes, waiting = hashlib.sha256(), 0, 0
    behind: deque[memoryview] = deque()
    hashed = _done()
    for part in parts:
        view = memoryview(part)
        nbytes, waiting = nbytes + len(view), waiting + len(view)
        behind.append(view)
        while view:  # a disk that is nearly full takes a part
            view = view[file.write(view) :]
        while waiting > _BEHIND:
            hashed.result()
            waiting -= len(behind[0])
            hashed = _begin(beside, digest.update, behind.popleft())
    synced = _begin(beside, os.fsync, file.fileno())
    hashed.result()
    for view in behind:
        digest.update(view)
    synced.result()
    return nbytes, digest.hexdigest()


def _begin(beside: ThreadPoolExecutor, act: Callable[[Any], None], what: Any) -> Future:
    """Begin it in another thread; a process that ends begins nothing there, and does it here."""
    try:
        return beside.submit(act, what)
    except RuntimeError:
        act(what)
        return _done()


def _done() -> Future:
    future: Future = Future()
    future.set_result(None)
    return future


def fsync_folder(folder: Path) -> None:
    """Have the names in a folder on the disk."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextmanager
def opened(path: Path) -> Iterator[int]:
    """A regular file to read from, by its descriptor; no link is followed, no pipe waited for.

    Raises CheckpointError for anything else.
    """
    try:
        kind = os.lstat(path).st_mode
        if not stat.S_ISREG(kind):
            raise CheckpointError(f"{path} is a {kind_of(kind)}, not a file.")
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}.") from None
    try:
        yield fd
    finally:
        os.close(fd)


def kind_of(mode: int) -> str:
    """The kind of a file by its mode, in a word."""
    kinds = {stat.S_IFLNK: "link", stat.S_IFDIR: "folder", stat.S_IFREG: "file"}
    return kinds.get(stat.S_IFMT(mode), "pipe or device")


def read_into(target: Tensor, fd: int, data: int, each: Read) -> None:
    """Fill `target` with the part that a read asks for; numbers begin at byte `data` of the file.

    What lies together in the file is read in one piece (a run). Nothing between runs is read,
    unless they are less than a page apart. Raises EOFError where the file ends before.
    """
    if not target.numel():
        return
    part, stored = each.part, each.stored
    cut = [k for k, n in enumerate(part.sizes) if n != stored.sizes[k]]
    axis = cut[-1] if cut else 0  # behind the last axis that is cut all is wanted
    strides = list(accumulate(reversed((*stored.sizes[1:], target.itemsize)), mul))[::-1]
    first = data + each.begin
    for p, s, stride in zip(part.offsets, stored.offsets, strides, strict=False):
        first += (p - s) * stride
    found = target if target.is_contiguous() else torch.empty_like(target).contiguous()
    into = as_bytes(found)
    run = part.sizes[axis] * strides[axis] if part.sizes else target.itemsize
    rows, step = 1, run
    if axis and strides[axis - 1] - run < _PAGE:  # as many runs at once as lie along one axis more
        rows, step, axis = part.sizes[axis - 1], strides[axis - 1], axis - 1
    for number, index in enumerate(product(*map(range, part.sizes[:axis]))):
        begin = first + sum(i * stride for i, stride in zip(index, strides, strict=False))
        place = into[number * rows * run : (number + 1) * rows * run]
        if rows == 1:
            _fill(fd, begin, place)
        else:
            every = torch.zeros(rows * step, dtype=torch.uint8, device="cpu")
            _fill(fd, begin, as_bytes(every)[: (rows - 1) * step + run])
            runs = torch.frombuffer(place, dtype=torch.uint8).view(rows, run)
            runs.copy_(every.view(rows, step)[:, :run])
    if found is not target:
        target.copy_(found)


def _fill(fd: int, begin: int, into: memoryview) -> None:
    """Read as many bytes as there is room for; raises EOFError where the file ends before."""
    while into:
        got = os.preadv(fd, [into[: 2**30]], begin)
        if not got:
            raise EOFError(f"it ends at byte {begin}")
        begin, into = begin + got, into[got:]
