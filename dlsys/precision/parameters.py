"""What an optimizer is given, looked at before torch looks at it."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from dlsys.checks import refuse
from dlsys.tensors import PARAMETERS, listed


def groups_of(params: Any) -> list[dict[str, Any]]:
    """Parameters, (name, parameter) pairs or groups of them, as groups of parameters.

    Raises ValueError for what is none of these, or empty.
    """
    given = listed(params)
    groups = [dict(each) for each in given] if isinstance(given[0], dict) else [{"params": given}]
    for group in groups:
        each = group.get("params", ())
        each = [each] if isinstance(each, Tensor) else list(each)
        group["params"] = [p[1] if isinstance(p, tuple) and len(p) == 2 else p for p in each]
        if not all(isinstance(p, Tensor) and p.is_floating_point() for p in group["params"]):
            refuse("params", params, PARAMETERS)
    return groups
