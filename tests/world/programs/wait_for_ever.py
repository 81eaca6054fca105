"""Rank 0 computes without end and the others wait for it, until somebody stops the script."""

import signal

from dlsys import world


def program(comm):
    print("running", flush=True)
    comm.barrier()
    while comm.rank == 0:
        pass
    comm.barrier()


signal.signal(signal.SIGINT, signal.default_int_handler)  # what started it may ignore that
world.launch(program, 2)
