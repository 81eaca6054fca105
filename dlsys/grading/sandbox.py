"""The box that a student's code runs in."""

from __future__ import annotations

from dataclasses import dataclass


class SandboxError(RuntimeError):
    """Student code cannot be isolated on this machine; the message says what to install."""


@dataclass(frozen=True)
class Limits:
    """What one submission may use. Seconds of real time; bytes; processes and threads together."""

    cell_seconds: float = 60.0
    check_seconds: float = 20.0
    submission_seconds: float = 600.0
    memory_bytes: int = 4 << 30
    processes: int = 128
    file_bytes: int = 64 << 20
    message_bytes: int = 64 << 20
    restarts: int = 3
