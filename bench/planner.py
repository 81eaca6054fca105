"""How many plans a second the planner prices on one core, beside pricing each by itself."""

import statistics
import time

import torch

from dlsys.composing_axes import machine, plan
from dlsys.composing_axes.memory import held_bytes
from dlsys.composing_axes.step_time import step_parts
from dlsys.transformer import CATALOGUE


def seconds(call, times=5):
    taken = []  # processor seconds: what else a machine does is not counted
    for _ in range(times):
        start = time.process_time()
        call()
        taken.append(time.process_time() - start)
    return statistics.median(taken)


def one_by_one(search, number=500):
    """Seconds of as many plans, each priced by itself."""
    for place in range(number):
        one = search.runs.take(slice(place, place + 1))
        step_parts(one, search.machine)
        held_bytes(one, search.machine)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name, nodes, batch in (("megatron-175b", 64, 1536), ("deepseek-v3", 256, 15360)):
        spec, made = CATALOGUE[name], machine("a100" if nodes == 64 else "h100", nodes)
        search = plan(spec, made, batch)
        together = seconds(lambda: plan(spec, made, batch)) / len(search)  # noqa: B023
        alone = seconds(lambda: one_by_one(search), 3) / 500  # noqa: B023
        print(
            f"{name} on {8 * nodes:,} devices: {len(search):,} plans, {1 / together:,.0f} a second;"
            f" {alone / together:.0f} times as many as one by one"
        )
