"""Shards: tar archives of samples, written and read from front to back, as WebDataset has them."""

from __future__ import annotations

import io
import os
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from os import PathLike
from pathlib import Path

from dlsys.annotated import checked
from dlsys.checks import count, refuse
from dlsys.input_pipeline.records import found

Sample = dict[str, bytes]
"""The files of a sample by their extensions, and its name as `__key__`."""


@checked
def write_shards(
    folder: str | PathLike, samples: Iterable[Mapping[str, bytes]], per_shard: int
) -> list[Path]:
    """Write samples, so many to an archive, as files `<number>.<extension>`; returns the paths.

    Archives that were there stay until all are written, so that samples may be read from them.
    """
    size, rest, paths = count("per_shard", per_shard), enumerate(samples), list[Path]()
    if Path(folder).is_file():
        refuse("folder", str(folder), "the name of a folder, not of a file")
    Path(folder).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".") as aside:
        while shard := list(islice(rest, size)):
            paths.append(Path(folder, f"{len(paths):06}.tar"))
            with tarfile.open(Path(aside, paths[-1].name), "w") as archive:
                for number, sample in shard:
                    _add(archive, number, sample)
        for path in paths:
            os.replace(Path(aside, path.name), path)
    return paths


def _add(archive: tarfile.TarFile, number: int, sample: Mapping[str, bytes]) -> None:
    if not isinstance(sample, Mapping):
        refuse("A sample of samples", sample, "a dictionary of bytes by extension")
    for extension, data in sample.items():
        if not isinstance(data, bytes):
            refuse(f"{extension} of samples", data, "bytes")
        entry = tarfile.TarInfo(f"{number:08}.{extension}")
        entry.size = len(data)
        archive.addfile(entry, io.BytesIO(data))


@checked
def read_shard(path: str | PathLike) -> Iterator[Sample]:
    """The samples of an archive, in order: files one behind the other of one name are one sample.

    Read as a stream, so it might as well come through a network; raises tarfile.ReadError.
    """
    return _read(found(path))


def _read(path: Path) -> Iterator[Sample]:
    with tarfile.open(path, "r|") as archive:
        sample: Sample = {}
        for entry in archive:
            name, _, extension = entry.name.partition(".")
            if sample and sample["__key__"] != name.encode():
                yield sample
                sample = {}
            file = archive.extractfile(entry)
            if file is not None:
                sample |= {"__key__": name.encode(), extension: file.read()}
        if sample:
            yield sample
