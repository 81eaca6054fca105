"""Where rank programs run: simulated in this process, in real processes, or under torchrun."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dlsys.world.alpha_beta import Fit, measure, measure_plan
    from dlsys.world.call import Handle
    from dlsys.world.communicator import Communicator
    from dlsys.world.distributed import TorchCommunicator
    from dlsys.world.environment import current, from_environment
    from dlsys.world.errors import DeadlockError, MismatchError, RankError, WorldError
    from dlsys.world.processes import launch
    from dlsys.world.run import Run
    from dlsys.world.simulated import simulate
    from dlsys.world.timeline import Span, Timeline
    from dlsys.world.traffic import CallRecord, Message, Traffic

# Imported on first use: torch takes a second to load, and `import dlsys.world` should not.
_HOME = {
    "CallRecord": "traffic",
    "Communicator": "communicator",
    "DeadlockError": "errors",
    "Fit": "alpha_beta",
    "Handle": "call",
    "Message": "traffic",
    "MismatchError": "errors",
    "RankError": "errors",
    "Run": "run",
    "Span": "timeline",
    "Timeline": "timeline",
    "TorchCommunicator": "distributed",
    "Traffic": "traffic",
    "WorldError": "errors",
    "current": "environment",
    "from_environment": "environment",
    "launch": "processes",
    "measure": "alpha_beta",
    "measure_plan": "alpha_beta",
    "simulate": "simulated",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"dlsys.world has no {name!r}; it has {', '.join(sorted(_HOME))}")
    return getattr(importlib.import_module(f"dlsys.world.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(_HOME)


__all__ = [
    "CallRecord",
    "Communicator",
    "DeadlockError",
    "Fit",
    "Handle",
    "Message",
    "MismatchError",
    "RankError",
    "Run",
    "Span",
    "Timeline",
    "TorchCommunicator",
    "Traffic",
    "WorldError",
    "current",
    "from_environment",
    "launch",
    "measure",
    "measure_plan",
    "simulate",
]
