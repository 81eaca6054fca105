"""Rules of thumb as strategies: what each leaves to choose, and the fastest plan among that."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dlsys.annotated import checked
from dlsys.composing_axes.search import Plan, Search

Mask = NDArray[np.bool_]


@checked
def megatron(search: Search) -> Plan:
    """The plan by Megatron-LM's three takeaways; raises ValueError where none of its plans fits.

    Tensor parallelism up to a node's devices, a pipeline beyond that; of both just enough that the
    model fits, and data parallelism with what is left; then the best micro-batch. Narayanan et al.
    2021 (arXiv 2104.04473), sections 3.2 to 3.4.
    """
    runs, node = search.runs, search.machine.node
    split = runs.tp * runs.pp
    by_rule = (runs.cp == 1) & (runs.zero <= 1) & (runs.tp == np.minimum(split, node))
    enough = split[by_rule & _fits(search)]
    return _fastest(search, by_rule & (split == enough.min(initial=np.inf)), "Megatron-LM's rule")


@checked
def playbook(search: Search) -> Plan:
    """The plan by the Ultra-Scale Playbook's steps; raises ValueError where none of its plans fits.

    Below 10B parameters one technique, tensor parallelism over 8 devices or ZeRO-3 that recomputes;
    up to 100B tensor 8 with a pipeline or with ZeRO-3, or ZeRO-3 alone; from 512 devices on no
    ZeRO-3 alone; from 1,024 on tensor 8 with a pipeline and ZeRO-2, or ZeRO-1, because with many
    micro-batches stage 2 reduces gradients as often. Then the best micro-batch. Hugging Face 2025,
    "Finding the Best Training Configuration". What the text leaves open (100B and more on fewer
    devices) is taken as tensor 8 with a pipeline.
    """
    runs, size = search.runs, search.machine.cluster.size
    parameters = search.spec.parameters()
    cut, piped = (runs.tp == 8) & (runs.cp == 1), runs.pp > 1
    alone = (runs.tp == 1) & (runs.pp == 1) & (runs.cp == 1) & (runs.zero == 3)
    if size >= 1024:
        allowed = cut & piped & (runs.zero > 0) & (runs.zero < 3)
    elif parameters < 10e9:
        allowed = (cut & ~piped & (runs.zero < 3)) | (alone & (runs.recompute > 0))
    elif parameters < 100e9:
        allowed = (cut & piped) | (cut & (runs.zero == 3)) | alone
    else:
        allowed = cut & piped
    return _fastest(search, allowed & ~(alone & (size >= 512)), "The Playbook's rule")


def _fits(search: Search) -> Mask:
    return search.total <= search.memory


def _fastest(search: Search, allowed: Mask, rule: str) -> Plan:
    places = np.flatnonzero(allowed & _fits(search))
    if not len(places):
        raise ValueError(f"{rule} leaves none of {len(search)} plans that fits.")
    return search.at(int(places[np.argmin(search.seconds[places])]))
