"""This process's part in torch.distributed's default group, whoever has initialised that."""

from __future__ import annotations

import torch.distributed as dist

from dlsys.world.real.communicator import TorchCommunicator
from dlsys.world.real.session import Session

_default: TorchCommunicator | None = None


def default_communicator(session: Session | None = None) -> TorchCommunicator:
    """The one communicator of torch.distributed's present default group."""
    global _default
    if _default is None or _default.session.is_over:
        _default = TorchCommunicator(session=session)
    return _default


def leave() -> None:
    """End the process group before Python does: gloo's threads may not outlive the interpreter,
    and they end when nobody refers to a group any more."""
    if dist.is_initialized():
        if _default is not None:
            _default._session.groups.clear()
        dist.destroy_process_group()
