"""What ShardedOptimizer is given, looked at before torch looks at it."""

from __future__ import annotations

import torch

from dlsys.checks import count, positive, refuse
from dlsys.tensors import computed_in


def check_options(
    optimizer_cls: type[torch.optim.Optimizer],
    stage: int,
    bucket_bytes: float | None,
    master_dtype: torch.dtype | None,
    whole_tensors: bool,
    averaged: bool,
) -> None:
    """Check options against their ranges and against each other; raises ValueError."""
    if count("stage", stage, most=2) == 2 and averaged:
        raise ValueError(
            "averaged is True and stage is 2: stage 2 reduces gradients itself, so give it the "
            "plain module, or use stage=1."
        )
    if bucket_bytes is not None:
        positive("bucket_bytes", bucket_bytes)
    computed_in("master_dtype", master_dtype)
    if issubclass(optimizer_cls, torch.optim.LBFGS):
        refuse(
            "optimizer_cls",
            optimizer_cls,
            "one that treats parameters apart: L-BFGS takes inner products over all of them",
        )
    wholes = tuple(c for n in ("Adafactor", "Muon") if (c := getattr(torch.optim, n, None)))
    if issubclass(optimizer_cls, wholes) and not whole_tensors:
        refuse(
            "whole_tensors",
            whole_tensors,
            f"True for {optimizer_cls.__name__}, which looks at a parameter as a whole",
        )
