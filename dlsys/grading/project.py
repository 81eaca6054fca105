"""Where the course is: the folder that holds exercises/ and, for an instructor, solutions/."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path

import dlsys


def find_root(given: Path | None, folders: Sequence[str], *starts: Path) -> Path:
    """The course: `given`, else the nearest folder that holds `folders`, upwards from each start
    and the working folder, else where this package is installed from.

    Raises ValueError where there is none.
    """
    wanted = " and ".join(f"{folder}/" for folder in folders)
    if given is not None:
        if not _holds(given, folders):
            raise ValueError(f"{given} does not hold {wanted}; name the course's folder.")
        return given
    package = Path(str(dlsys.__file__)).resolve().parent
    for start in (*starts, Path.cwd()):
        for place in (start.resolve(), *start.resolve().parents):
            if _holds(place, folders):
                return place
    if _holds(package.parent, folders):
        return package.parent
    raise ValueError(f"No folder with {wanted} was found; name the course's folder with --course.")


def _holds(place: Path, folders: Iterable[str]) -> bool:
    return all((place / folder).is_dir() for folder in folders)


def known(slug: str, slugs: Sequence[str]) -> str:
    """`slug`, if there is such an assignment; raises ValueError with the nearest that there is."""
    if slug in slugs:
        return slug
    near = get_close_matches(slug, slugs, n=1, cutoff=0.5)
    hint = f"Did you mean {near[0]!r}? " if near else ""
    raise ValueError(f"There is no assignment {slug!r}. {hint}Known: {', '.join(slugs) or 'none'}.")
