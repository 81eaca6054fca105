"""Columns of a table of runs, checked: equally long sequences of finite numbers, as arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dlsys.checks import refuse, refuse_what, shown

Array = NDArray[np.float64]
Places = NDArray[np.intp]


def column(name: str, values: Sequence[float], least: int = 1) -> Array:
    """`values` as an array of at least `least` finite numbers."""
    try:
        kind = np.asarray(values).dtype.kind
        array = np.asarray(values, dtype=float) if kind in "iuf" else None
    except (TypeError, ValueError, OverflowError):
        array = None
    if array is None or array.ndim != 1 or len(array) < least:
        refuse(name, values, f"a sequence of at least {least} numbers")
    if not np.isfinite(array).all():
        refuse_what(name, f"{shown(values)}, of which one is not finite", "finite numbers")
    return array


def above_zero(name: str, values: Sequence[float], least: int = 1) -> Array:
    """`column`, of numbers above zero."""
    array = column(name, values, least)
    if not (array > 0).all():
        refuse_what(
            name, f"{float(array.min()):g} in one run", "a finite number above zero in each"
        )
    return array


def alike(**columns: Array) -> None:
    """Check that columns are as long as the first of them."""
    (first, array), *others = columns.items()
    for name, other in others:
        if len(other) != len(array):
            refuse_what(name, f"of {len(other)} runs", f"of as many as {first}, {len(array)}")
