"""The world that the calling code is in: a simulated rank, or a process of torch.distributed."""

from __future__ import annotations

import atexit
import os

import torch
import torch.distributed as dist

from dlsys.world.communicator import Communicator
from dlsys.world.here import here
from dlsys.world.real.default import default_communicator, leave

_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_ADVICE = (
    "start this program with `torchrun --nproc-per-node 4 program.py`, or use world.launch or "
    "world.simulate"
)


def current() -> Communicator:
    """The communicator of the world that the caller is in: of the simulated rank that this thread
    is, or of torch.distributed's default group.

    Raises RuntimeError where there is neither.
    """
    if here.comm is not None:
        return here.comm
    if not dist.is_available() or not dist.is_initialized():
        raise RuntimeError(
            "this code runs in no world: pass the program to world.simulate or world.launch, or "
            "call world.from_environment() in a program that torchrun starts"
        )
    return default_communicator()


def current_or_none() -> Communicator | None:
    """The same, and None where there is neither."""
    try:
        return current()
    except RuntimeError:
        return None


def from_environment() -> Communicator:
    """The communicator of the world that torchrun started this process in.

    It initialises torch.distributed, unless that is done: NCCL with this process's GPU (and gloo
    for tensors on the CPU) where there is one, gloo alone elsewhere. Nobody watches over these
    ranks: try a program under `world.launch` first, which reports deadlocks and mismatches instead
    of hanging. Raises RuntimeError outside of torchrun, and where its variables do not fit.
    """
    if not dist.is_initialized():
        _check_environment()
        if torch.cuda.is_available():
            device = int(os.environ.get("LOCAL_RANK", os.environ["RANK"]))
            torch.cuda.set_device(device % torch.cuda.device_count())
        dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
        atexit.register(leave)
    return current()


def _check_environment() -> None:
    """Raise RuntimeError unless the variables that torchrun sets are there, and fit together."""
    missing = [name for name in _VARIABLES if name not in os.environ]
    if missing:
        raise RuntimeError(f"the environment lacks {', '.join(missing)}: {_ADVICE}")
    ranks = _number("WORLD_SIZE", 1, 2**31)
    _number("RANK", 0, ranks - 1)
    _number("MASTER_PORT", 0, 2**16 - 1)


def _number(name: str, least: int, most: int) -> int:
    text = os.environ[name]
    if not text.isdecimal() or not least <= int(text) <= most:
        raise RuntimeError(
            f"{name} is {text!r} in the environment; here it is a whole number from {least} to "
            f"{most}: {_ADVICE}"
        )
    return int(text)
