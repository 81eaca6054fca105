"""What a grading run leaves for the next: a record for each submission, the seed, the lock."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import dlsys
from dlsys.files import write
from dlsys.grading.result import NOT_GRADED, Result
from dlsys.grading.text import file_name

RUN = "run.json"
RECORDS = "records"
GONE = "gone"


@dataclass(frozen=True)
class Record:
    """A result as it is kept. `key` stands for everything that it depends on; `person`,
    `submitted` and `listed` are as in `Grade`, `extension` as in `Found`."""

    key: str
    result: Result
    person: Mapping[str, str] = field(default_factory=dict)
    submitted: float | None = None
    listed: bool = True
    extension: str = ""

    def holds_for(self, key: str) -> bool:
        """Whether there is nothing to grade again."""
        return self.key == key and self.result.status != NOT_GRADED


def key_of(*parts: Any) -> str:
    """The digest of what a result depends on; each part is plain, or bytes."""
    digest = hashlib.sha256()
    for part in (*parts, _grader()):
        data = part if isinstance(part, bytes) else json.dumps(part, sort_keys=True).encode()
        digest.update(f"{type(part).__name__} {len(data)} ".encode() + data)
    return digest.hexdigest()


@cache
def _grader() -> str:
    """The digest of the package's own source: a grader that was changed grades again."""
    package = Path(str(dlsys.__file__)).parent
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(path.relative_to(package).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()


def path_of(out: Path, slug: str, student: str) -> Path:
    """Where the record of a student's assignment is."""
    return out / RECORDS / slug / f"{file_name(student)}.json"


def save(out: Path, record: Record) -> None:
    """Write a record, whole or not at all."""
    content = {
        "key": record.key,
        "submitted": record.submitted,
        "person": dict(record.person),
        "listed": record.listed,
        "extension": record.extension,
        "result": record.result.as_json(),
    }
    path = path_of(out, record.result.slug, record.result.student)
    write(path, json.dumps(content, indent=1) + "\n")


def load_all(out: Path, slug: str) -> dict[str, Record]:
    """The records of an assignment by student; one that cannot be read counts as none."""
    found = (_load(path) for path in sorted((out / RECORDS / slug).glob("*.json")))
    return {record.result.student: record for record in found if record}


def _load(path: Path) -> Record | None:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        result = Result.from_json(data["result"])
        known = (data["person"], data["submitted"], data["listed"], data.get("extension", ""))
        return Record(data["key"], result, *known)
    except (AttributeError, KeyError, OSError, TypeError, ValueError):
        return None


def set_aside(out: Path, slug: str, student: str) -> None:
    """Move what was written about a submission that is gone to `gone/`; nothing is deleted."""
    places = [path_of(out, slug, student), out / "gradescope" / slug / file_name(student)]
    if not any(path_of(out, path.name, student).exists() for path in _others(out, slug)):
        places += [out / "feedback" / f"{file_name(student)}.{kind}" for kind in ("html", "pdf")]
    for place in places:
        if place.exists():
            target = out / GONE / place.relative_to(out)
            target.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(OSError):  # an older folder of the same name stands there
                os.replace(place, target)


def _others(out: Path, slug: str) -> list[Path]:
    return [path for path in (out / RECORDS).glob("*") if path.name != slug]


# When it was due, in seconds since 1970, and what lateness takes; None for no deadline, no penalty.
Deadline = tuple[float | None, str | None]


@dataclass(frozen=True)
class Run:
    """What holds for the whole of an output folder: the seed, and the deadlines by assignment."""

    seed: int
    deadlines: Mapping[str, Deadline] = field(default_factory=dict)


def open_run(out: Path, seed: int | None) -> Run:
    """The run recorded in `out`, with `seed` where one is given; a new one draws its seed once.

    Raises ValueError where the folder is somebody else's: not empty, and no run recorded in it.
    """
    path = out / RUN
    if path.exists():
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            deadlines = {slug: (due, late) for slug, (due, late) in data["deadlines"].items()}
            return Run(data["seed"] if seed is None else seed, deadlines)
        except (AttributeError, KeyError, TypeError, ValueError):
            raise ValueError(f"{path} cannot be read; move it away to begin anew.") from None
    others = [other.name for other in out.iterdir() if other.name != ".lock"]
    if others:
        raise ValueError(
            f"{out} holds other files ({', '.join(sorted(others)[:3])}) and no {RUN}; "
            "name a new folder for the grades."
        )
    return Run(secrets.randbelow(2**32) if seed is None else seed)


def save_run(out: Path, run: Run) -> None:
    """Record the seed and the deadlines."""
    content = {"seed": run.seed, "deadlines": dict(run.deadlines)}
    write(out / RUN, json.dumps(content, indent=1) + "\n")


@contextlib.contextmanager
def locked(out: Path) -> Iterator[None]:
    """Hold `out` for this process; raises ValueError, naming the other, where one holds it.

    The lock ends with its process, so a file that is left over locks nothing.
    """
    with open(out / ".lock", "a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise ValueError(
                f"Another run grades into {out} (process {file.read().strip() or 'unknown'}): "
                "wait until it has ended, or name another folder."
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)
