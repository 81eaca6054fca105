"""The program that the chapter gives to take away, started as it says there, on two processes."""

import re

import pytest
import torch
from torch.utils.data import TensorDataset

from tests import needs, torchrun
from tests.contents import ROOT

pytestmark = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # of a fork

MINE = """
import os
import torch
from torch.utils.data import TensorDataset

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1 + int(os.environ["RANK"]))  # rank 0's weights count
        self.inner, self.outer = torch.nn.Linear(3, 8), torch.nn.Linear(8, 1)

    def forward(self, inputs, targets):
        hidden = torch.nn.functional.dropout(self.inner(inputs).tanh(), 0.1)
        return (self.outer(hidden) - targets).square().mean()

def rate(step):
    return 1e-2 * min(1, (step + 1) / 4)

module = Net()
BATCH, MICRO, STEPS = 32, 4, int(os.environ["STEPS"])
numbers = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
data = TensorDataset(numbers[:, :3], numbers[:, 3:])
"""
RANKS, BATCH, MICRO, STEPS = 2, 32, 4, 10
ACCUMULATED = BATCH // (MICRO * RANKS)


def gradients(module, data: TensorDataset, step: int, sixteen: bool) -> list[torch.Tensor]:
    """The mean over the step's batch, of ranks that take every other sample, without any library.

    sixteen: as autocast computes it, and rounded as the hook does.
    """
    parameters = list(module.parameters())
    epoch, done = divmod(step, len(data) // BATCH)
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(epoch))
    sent = []
    for rank in range(RANKS):
        rows = order[rank::RANKS][done * BATCH // RANKS :]
        total = [torch.zeros_like(p) for p in parameters]
        for i in range(ACCUMULATED):
            inputs, targets = data[rows[i * MICRO : (i + 1) * MICRO]]
            torch.manual_seed((step * ACCUMULATED + i) * RANKS + rank)
            with torch.autocast("cpu", torch.bfloat16, enabled=sixteen):
                loss = module(inputs, targets) / ACCUMULATED
            for old, new in zip(total, torch.autograd.grad(loss, parameters), strict=True):
                old += new
        sent.append([x.to(torch.bfloat16 if sixteen else x.dtype) / RANKS for x in total])
    return [sum(pair).float() for pair in zip(*sent, strict=True)]


def on_one_device(
    module, data: TensorDataset, rate, sixteen: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """The weights after all steps, and the length of the last gradient."""
    optimizer = torch.optim.AdamW(module.parameters())
    for step in range(STEPS):
        found = gradients(module, data, step, sixteen)
        for parameter, gradient in zip(module.parameters(), found, strict=True):
            parameter.grad = gradient
        norm = torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.param_groups[0]["lr"] = rate(step)
        optimizer.step()
    return torch.nn.utils.parameters_to_vector(module.parameters()).detach(), norm


def launch(folder, steps: int) -> tuple[torch.Tensor, str]:
    """Start the program, or start it again; the weights that it saves at its end, and its words."""
    options, own = ["--nproc-per-node", str(RANKS)], {"STEPS": str(steps)}
    run = torchrun.begin(folder, "run", options, ["train.py"], **own)
    said, errors = torchrun.ended(folder, run=run)
    status, lines = said["run"]
    assert status == 0, errors
    done_steps, weights, _ = torch.load(folder / "last.pt")
    assert done_steps == steps
    return torch.cat([weight.flatten() for weight in weights.values()]), "\n".join(lines)


@needs.shared_memory
def test_the_program_to_take_away_gives_on_two_processes_the_weights_of_one(tmp_path, monkeypatch):
    page = (ROOT / "chapters" / "data_parallel.md").read_text("utf-8")
    (program,) = re.findall(r"^```python\n(# train\.py.*?)^```", page, re.S | re.M)
    (tmp_path / "train.py").write_text(program)
    (tmp_path / "mine.py").write_text(MINE)
    launch(tmp_path, 3)  # in the middle of an epoch of two steps
    found, said = launch(tmp_path, STEPS)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("STEPS", str(STEPS))
    weights = []
    for sixteen in (True, False):
        own: dict = {}
        exec(MINE, own)
        start = torch.nn.utils.parameters_to_vector(own["module"].parameters()).detach().clone()
        after, norm = on_one_device(own["module"], own["data"], own["rate"], sixteen)
        weights.append(after)
        assert (f", norm {norm:.4f}, " in said) == sixteen
    assert re.search(rf"^step {STEPS}: loss 0\.\d+, .* tokens/s$", said, re.M)
    torch.testing.assert_close(found, weights[0], rtol=1e-6, atol=1e-7)
    # Sixteen bits stray a little from 32; that little shows that what is computed is not that.
    strayed, way = (weights[0] - weights[1]).norm(), (weights[1] - start).norm()
    assert 1e-5 * way < strayed < 0.1 * way
