"""A plan by the name of its algorithm."""

from __future__ import annotations

import inspect

import dlsys.collectives as catalogue
from dlsys.collectives.plan import KINDS, ROOTED, Plan

DEFAULT = {
    "broadcast": "tree",
    "reduce": "tree",
    "scatter": "tree",
    "gather": "tree",
    "all_gather": "ring",
    "reduce_scatter": "ring",
    "all_reduce": "ring",
    "all_to_all": "pairwise",
}
"""What a simulated collective runs when no plan is named."""


def algorithms(kind: str) -> list[str]:
    """The names of the algorithms for `kind` that need nothing but a number of ranks."""
    found = []
    for name in catalogue.__all__:
        algorithm = name.removesuffix(f"_{kind}")
        if algorithm != name and f"{algorithm}_{kind}" == name and _fits(name, kind):
            found.append(algorithm)
    return found


def plan_for(kind: str, ranks: int, algorithm: str | None = None, root: int = 0) -> Plan:
    """The plan of `algorithm` (the default one where None) for `kind` among `ranks` ranks.

    Raises ValueError for a kind or an algorithm that is not known, naming those that are.
    """
    if kind not in KINDS:
        raise ValueError(f"There is no collective {kind!r}; the kinds are {', '.join(KINDS)}.")
    known = algorithms(kind)
    name = DEFAULT[kind] if algorithm is None else algorithm
    if name not in known:
        raise ValueError(
            f"There is no algorithm {name!r} for {kind}; there is {', '.join(sorted(known))}."
        )
    build = getattr(catalogue, f"{name}_{kind}")
    return build(ranks, root) if kind in ROOTED else build(ranks)


def _fits(name: str, kind: str) -> bool:
    parameters = list(inspect.signature(getattr(catalogue, name)).parameters)
    return parameters == (["n", "root"] if kind in ROOTED else ["n"])
