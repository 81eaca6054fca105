"""The training program at full width, on meta tensors and in virtual time, beside the planner.

    python bench/full_scale.py

Meshes on one node find the planner's constants, as measured runs of a machine would: here of eager
operations, each at its roof's price. With these it predicts the same program on many nodes: as
the planner does, where a ring has the cards of all its ranks in a node, and with one card, as a
simulated ring has. Takes an hour on one core, most of it for all 80 layers.
"""

import dataclasses
import time

import numpy as np
import torch

from dlsys import world
from dlsys.composing_axes.calibrate import calibrated
from dlsys.composing_axes.runs import join, runs_of
from dlsys.composing_axes.step_time import Constants, Machine, step_seconds
from dlsys.composing_axes.training import Trainer
from dlsys.hardware import dgx_h100
from dlsys.mesh import Mesh
from dlsys.pipeline_parallel import partition, piece_flops
from dlsys.transformer import CATALOGUE

SHEET = Constants(
    products=0.97, half_work=1e8, intra=0.97, inter=0.97, latency=2e-5, floor=1e-6, fixed=1e-3
)
"""Where the search for constants begins: nearly what data sheets say, because nothing is lost."""
LLAMA = dataclasses.replace(CATALOGUE["llama3-70b"], sequence=2048)
LARGER = dataclasses.replace(CATALOGUE["llama3-405b"], sequence=2048)
ONE_NODE = [  # layers, mesh, micro-batches, sequences of one
    (4, Mesh(dp=8), 1, 1),
    (4, Mesh(tp=8), 1, 1),
    (4, Mesh(tp=8), 1, 4),
    (4, Mesh(tp=8), 2, 1),
    (4, Mesh(dp=2, tp=4), 1, 1),
    (4, Mesh(dp=4, tp=2), 1, 2),
    (8, Mesh(pp=2, tp=4), 4, 1),
    (8, Mesh(pp=4, tp=2), 4, 1),
    (8, Mesh(pp=4, tp=2), 8, 1),
    (8, Mesh(dp=2, pp=2, tp=2), 4, 1),
    (8, Mesh(dp=4, tp=2), 1, 1),
]
MANY_NODES = [
    (LLAMA, 16, Mesh(dp=8, pp=4, tp=4), 8, 1),
    (LLAMA, 80, Mesh(dp=8, pp=4, tp=4), 8, 1),
    (LARGER, 16, Mesh(dp=1, pp=16, tp=8), 16, 1),
]


class FusedAdamW(torch.optim.Optimizer):
    """AdamW in one operation; torch's own refuses tensors on the meta device."""

    def __init__(self, params):
        super().__init__(params, {})
        self.held = [p for group in self.param_groups for p in group["params"]]
        self.moments = [[torch.zeros_like(p) for p in self.held] for _ in range(2)]
        self.steps = [torch.zeros((), device=p.device) for p in self.held]

    @torch.no_grad()
    def step(self):
        torch._fused_adamw_(
            self.held, [p.grad for p in self.held], *self.moments, [], self.steps, lr=1e-4,
            beta1=0.9, beta2=0.95, weight_decay=0.1, eps=1e-8, amsgrad=False, maximize=False,
        )  # fmt: skip


def simulated(spec, mesh, micro_batches, sequences):
    """Virtual seconds of the slowest rank's step, and what the simulation took."""
    batch = sequences * micro_batches * mesh.dp
    tokens = torch.empty(batch, spec.sequence, dtype=torch.long, device="meta")

    def program(comm):
        trainer = Trainer(
            comm, mesh, spec, micro_batches=micro_batches, compute_dtype=torch.bfloat16,
            optimizer=FusedAdamW, device="meta",
        )  # fmt: skip
        comm.barrier()
        begin = comm.seconds
        trainer.step(tokens, tokens)
        comm.barrier()
        return comm.seconds - begin

    begin = time.perf_counter()
    run = world.simulate(program, cluster=dgx_h100(max(1, mesh.size // 8)))
    return max(run.results), time.perf_counter() - begin


def columns(spec, mesh, micro_batches, sequences):
    """The run for the planner, with the program's own stages, scores kept and 16-bit gradients."""
    degrees = {name: getattr(mesh, name) for name in ("dp", "pp", "tp")}
    runs = runs_of(
        spec, **degrees, sequences=sequences, micro_batches=micro_batches, zero=1, flash=0,
        sequence_parallel=0, gradient=2,
    )  # fmt: skip
    pieces = partition(piece_flops(spec), mesh.pp)
    layers = [sum(0 < piece <= spec.layers for piece in stage) for stage in pieces]
    cuts = {"first": layers[0], "most": max(layers[:-1], default=0), "last": layers[-1]}
    return dataclasses.replace(runs, **{name: np.array([float(n)]) for name, n in cuts.items()})


def show(runs, seconds, machine, names):
    predicted = step_seconds(runs, machine)
    errors = predicted / seconds - 1
    for name, found, said, off in zip(names, seconds, predicted, errors, strict=True):
        print(f"{name:60} {found:8.4f} s, planned {said:8.4f} s: {off:+7.1%}", flush=True)
    if len(names) > 1:
        print(f"{'mean absolute error':60} {np.abs(errors).mean():.1%}", flush=True)


def main():
    small = [(dataclasses.replace(LLAMA, layers=n), *how) for n, *how in ONE_NODE]
    runs = join([columns(*one) for one in small])
    seconds = np.array([simulated(*one)[0] for one in small])
    machine = calibrated(runs, seconds, Machine(dgx_h100(1), SHEET))
    print(machine.constants)
    show(runs, seconds, machine, [f"{s.layers} layers, {m}, {n} x {b}" for s, m, n, b in small])
    for spec, layers, *how in MANY_NODES:
        one = (dataclasses.replace(spec, layers=layers), *how)
        found, taken = simulated(*one)
        mesh, n, b = how
        name = f"{layers} layers of {spec.hidden}, {mesh}, {n} x {b} ({taken:.0f} s)"
        inside = max(1, 8 // mesh.tp)  # of a data group
        slower = dataclasses.replace(machine.constants, inter=machine.constants.inter / inside)
        for each in (machine, machine.having(slower)):
            show(columns(*one), np.array([found]), each, [name])


if __name__ == "__main__":
    main()
