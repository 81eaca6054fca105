"""Two ranks that take whatever is raised in them: one in the world's calls, and one that computes
until somebody interrupts the script.
"""

import signal
from contextlib import suppress

import torch

from dlsys import world
from dlsys.world.simulated import ending

ending._LAST = 1.0  # seconds that are computed until the script gives the second rank up
park = ending._park
ending._park = lambda thread, seconds: park(thread, 60.0)  # a busy machine may take its time


def program(comm):
    while comm.rank == 0:
        with suppress(BaseException):
            comm.barrier()
    print("running", flush=True)
    while True:
        with suppress(BaseException):
            torch.ones(100, 100) @ torch.ones(100, 100)


signal.signal(signal.SIGINT, signal.default_int_handler)  # what started it may ignore that
try:
    world.simulate(program, 2)
except KeyboardInterrupt as interrupt:
    print(interrupt.__notes__[0])
