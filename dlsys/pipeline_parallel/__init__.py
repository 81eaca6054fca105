"""Pipeline parallelism: the layers cut into stages, and the order that keeps the ranks busy."""

from __future__ import annotations

from dlsys.pipeline_parallel.plan import Action, Plan, PlanError
from dlsys.pipeline_parallel.schedules import gpipe, one_f_one_b

__all__ = ["Action", "Plan", "PlanError", "gpipe", "one_f_one_b"]
