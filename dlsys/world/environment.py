"""The world that the calling code is in: a simulated rank, or a process of torch.distributed."""

from __future__ import annotations

import atexit
import os

import torch
import torch.distributed as dist

from dlsys.world.communicator import Communicator
from dlsys.world.real.communicator import TorchCommunicator
from dlsys.world.real.session import Session
from dlsys.world.simulated import simulation as simulated

_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def current() -> Communicator:
    """The communicator of the world that the caller is in: of the simulated rank that this thread
    is, or of torch.distributed's default group.

    Raises RuntimeError where there is neither.
    """
    comm = getattr(simulated.current, "comm", None)
    if comm is not None:
        return comm
    if not dist.is_available() or not dist.is_initialized():
        raise RuntimeError(
            "this code runs in no world: pass the program to world.simulate or world.launch, or "
            "call world.from_environment() in a program that torchrun starts"
        )
    return default_communicator()


def default_communicator(session: Session | None = None) -> TorchCommunicator:
    """The one communicator of torch.distributed's present default group."""
    global _default
    if _default is None or _default._group is not dist.group.WORLD:
        _default = TorchCommunicator(session=session)
    return _default


_default: TorchCommunicator | None = None


def from_environment() -> Communicator:
    """The communicator of the world that torchrun started this process in.

    It initialises torch.distributed, unless that is done: NCCL with this process's GPU (and gloo
    for tensors on the CPU) where there is one, gloo alone elsewhere. Nobody watches over these
    ranks: try a program under `world.launch` first, which reports deadlocks and mismatches instead
    of hanging. Raises RuntimeError outside of torchrun.
    """
    if not dist.is_initialized():
        missing = [name for name in _VARIABLES if name not in os.environ]
        if missing:
            raise RuntimeError(
                f"the environment lacks {', '.join(missing)}: start this program with "
                "`torchrun --nproc-per-node 4 program.py`, or use world.launch or world.simulate"
            )
        if torch.cuda.is_available():
            here = int(os.environ.get("LOCAL_RANK", os.environ["RANK"]))
            torch.cuda.set_device(here % torch.cuda.device_count())
        dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
        atexit.register(_leave)
    return current()


def _leave() -> None:
    """End the process group before Python does: gloo's threads may not outlive the interpreter,
    and they end when nobody refers to a group any more."""
    if dist.is_initialized():
        if _default is not None:
            _default._session.groups.clear()
        dist.destroy_process_group()
