"""Machines whose constants were found in published runs."""

from __future__ import annotations

import functools
import json
from importlib import resources
from typing import Any, SupportsIndex

from dlsys.annotated import checked
from dlsys.checks import count, unknown
from dlsys.composing_axes.step_time import Constants, Machine
from dlsys.hardware import DEVICES, LINKS, Cluster


@checked
def machine(name: str, nodes: SupportsIndex = 1) -> Machine:
    """So many nodes of a machine in machines.json, "a100" or "h100"; raises ValueError.

    A machine that was never measured is `Machine(cluster)`: it has the constants that are likely
    before any run, and `interval` says how unsure a step's seconds then are.
    """
    table = _table()
    if name not in table:
        raise ValueError(unknown("machine", name, table))
    made = table[name]
    cluster = Cluster(
        DEVICES[made["device"]],
        count("nodes", nodes),
        made["devices_per_node"],
        LINKS[made["intra"]],
        LINKS[made["inter"]],
        made["nics_per_node"],
    )
    return Machine(cluster, Constants(**made["constants"]), made["number_format"], made["source"])


@functools.cache
def _table() -> dict[str, Any]:
    return json.loads(resources.files(__package__).joinpath("machines.json").read_text("utf-8"))
