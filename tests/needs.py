"""What some tests need of the machine, and skip without."""

import multiprocessing

import pytest


def locks_are_missing() -> bool:
    """Whether this machine has no shared memory for the locks of processes."""
    try:
        multiprocessing.Lock()
    except OSError:
        return True
    return False


# PyTorch's loader waits, and hands over tensors, by shared memory.
shared_memory = pytest.mark.skipif(locks_are_missing(), reason="/dev/shm cannot be written")
