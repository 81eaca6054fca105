"""What a check may say beside its expectation, refused alike in a notebook and in a grader."""

from collections.abc import Mapping, Sequence
from typing import Any

from dlsys.annotated import checked
from dlsys.checks import at_least, flag, positive


@checked
def check_options(
    *,
    rtol: float,
    atol: float,
    hint: str | Mapping[Any, str] | list[tuple[Any, str]] | None,
    best: Mapping[str, float] | None,
    vary: Mapping[Any, Sequence[Any]] | None,
    weight: float,
    needed: bool,
) -> None:
    """Raise ValueError unless `same` takes each of these."""
    at_least("rtol", rtol, 0)
    at_least("atol", atol, 0)
    positive("weight", weight)
    flag("needed", needed)
