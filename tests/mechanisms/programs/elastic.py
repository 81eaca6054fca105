"""Training under torchrun, of whose first life the last rank kills itself.

elastic.py FOLDER STEPS KILLED: until STEPS are done; the rank dies after KILLED of them.
"""

import os
import signal
import sys
from functools import partial
from pathlib import Path

import torch

from dlsys import world
from dlsys.data_parallel import DataParallel
from dlsys.model import GPT
from dlsys.resilience import SampleOrder, Trainer, save
from tests.mechanisms.trained import BATCH, SAMPLES, SPEC, plain_loss, text


class Momentum:
    """SGD with momentum: torch's optimizers import for a second what they step with."""

    def __init__(self, parameters):
        self.parameters = list(parameters)
        self.moments = [torch.zeros_like(p) for p in self.parameters]

    def zero_grad(self):
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self):
        for parameter, moment in zip(self.parameters, self.moments, strict=True):
            parameter.sub_(moment.mul_(0.9).add_(parameter.grad), alpha=0.1)

    def state_dict(self):
        return {"moments": self.moments}

    def load_state_dict(self, state):
        self.moments = state["moments"]


def trainer(comm, dropout=0.0):
    """The run's beginning; without dropout nothing is drawn, in which ranks would differ."""
    model = DataParallel(GPT(SPEC, dropout=dropout, dtype=torch.float64), comm)
    order = SampleOrder(SAMPLES, BATCH)
    loss = partial(plain_loss, text())
    return Trainer(model, Momentum(model.parameters()), order, loss, None, comm)


def main(folder, steps, killed, what):
    comm = world.from_environment()
    run = trainer(comm)
    found = run.resume(folder / "saved")
    while run.step < steps:
        run.advance()
        if (comm.rank, run.step) == (1, killed) and found is None:
            print(f"a {what} dies after step {run.step}", flush=True)
            die(what)
        if run.step % 3 == 0:
            save(run.state(), folder / "saved", run.step, comm)
    if comm.rank == 0:
        print(f"ranks: {comm.size}, steps: {found.step if found else 0} to {steps}", flush=True)


def die(what):
    agent = int(os.environ["AGENT"])
    if what == "node" and os.getppid() == agent:  # another parent would be a shell or the session's
        os.kill(agent, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
