"""What is raised where a checkpoint cannot be written, or is not to be trusted."""

from __future__ import annotations


class CheckpointError(RuntimeError, ValueError):
    """A checkpoint that was not written, or must not be read; the message names file and fault."""
