"""Rank 0 computes without end and the others wait for it, until somebody stops the script."""

from dlsys import world


def program(comm):
    print("running", flush=True)
    comm.barrier()
    while comm.rank == 0:
        pass
    comm.barrier()


world.launch(program, 2)
