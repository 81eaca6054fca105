"""A pipeline, as one rank runs it: GPipe, and 1F1B, which is GPipe with two lines more.

The same as data, to be checked, priced and drawn, is `schedules.py`; `pipeline.py` runs any plan.
Huang et al. (2019), Narayanan et al. (2019).
"""

import torch
from torch import Tensor


class Rank:
    """One stage of a model, and the micro-batches that are in flight there.

    The last stage returns the loss, others a tensor of the shape that they get.
    """

    def __init__(self, comm, stage):
        self.comm, self.stage = comm, stage
        self.is_last = comm.rank == comm.size - 1
        self.held, self.sends = [], []

    def forward(self, x: Tensor) -> None:
        """Run the stage on x, or in its place on what the rank before makes of x."""
        if self.comm.rank > 0:
            x = self.comm.recv(torch.empty_like(x), self.comm.rank - 1)
            x.requires_grad_()
        y = self.stage(x)
        if not self.is_last:
            self.sends.append(self.comm.isend(y.detach(), self.comm.rank + 1))
        self.held.append((x, y))

    def backward(self) -> None:
        """Go back through the stage with the micro-batch that has waited longest."""
        x, y = self.held.pop(0)
        if self.is_last:
            y.backward()
        else:
            y.backward(self.comm.recv(torch.empty_like(y), self.comm.rank + 1))
        if self.comm.rank > 0:
            self.sends.append(self.comm.isend(x.grad, self.comm.rank - 1))


def run_gpipe(comm, stage, micro_batches) -> None:
    """All forward passes, then all backward passes."""
    rank = Rank(comm, stage)
    for x in micro_batches:
        rank.forward(x)
    while rank.held:
        rank.backward()
    for send in rank.sends:
        send.wait()


def run_1f1b(comm, stage, micro_batches) -> None:
    """Each backward pass as early as it can be."""
    rank = Rank(comm, stage)
    for x in micro_batches:
        if len(rank.held) == comm.size - comm.rank:
            rank.backward()
        rank.forward(x)
    while rank.held:
        rank.backward()
    for send in rank.sends:
        send.wait()
