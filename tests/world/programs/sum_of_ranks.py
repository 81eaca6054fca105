"""A program as a user writes it for torchrun: no guard, no launch, one file."""

import torch

from dlsys import world

comm = world.from_environment()
assert world.current() is comm
assert world.from_environment() is comm
total = comm.all_reduce(torch.tensor([comm.rank + 1]), plan="ring")
part = comm.reduce_scatter(torch.arange(comm.size) * (comm.rank + 1))
assert total.item() == comm.size * (comm.size + 1) // 2
assert part.item() == total.item() * comm.rank
rows = comm.gather(total)
if comm.rank == 0:
    print(f"{comm.size} ranks agree on {rows.unique().tolist()}")
