"""A script that launches at its top level: every process of it would launch again if it could.

Then it forks, and both processes launch.
"""

import os

import torch

from dlsys import world

print("the script runs")


class Point:
    def __init__(self, x):
        self.x = x


def program(comm, scale):
    if comm.rank == 1:
        print("rank 1 prints")
    comm.barrier()
    return Point(comm.all_reduce(torch.ones(2)).sum().item() * scale)


run = world.launch(program, 3, args=(10,))
same = all(type(point) is Point for point in run.results)
print([point.x for point in run.results], same, flush=True)

who = "forked" if os.fork() == 0 else "parent"
if who == "parent":
    os.wait()
print(f"{who}:", world.launch(lambda comm: comm.rank, 2).results, flush=True)
