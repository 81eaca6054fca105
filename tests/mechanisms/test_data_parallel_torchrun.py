"""The program that the chapter gives to take away, started as it says there, on two processes."""

import os
import re
import subprocess
import sys

import torch
from torch.utils.data import TensorDataset

from tests.contents import ROOT

MINE = """
import torch
from torch.utils.data import TensorDataset

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1 + int(__import__("os").environ["RANK"]))  # rank 0's weights count
        self.inner, self.outer = torch.nn.Linear(3, 4), torch.nn.Linear(4, 1)

    def forward(self, inputs, targets):
        return (self.outer(self.inner(inputs).tanh()) - targets).square().mean()

module = Net()
numbers = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
data = TensorDataset(5 * numbers[:, :3], 5 * numbers[:, 3:])
"""


def on_one_device(module, data: TensorDataset) -> list[torch.Tensor]:
    """Two epochs of batches of 32, each epoch in an order of its own, without any library."""
    optimizer = torch.optim.AdamW(module.parameters(), eps=1e-6)
    inputs, targets = data.tensors
    for epoch in range(2):
        order = torch.randperm(len(data), generator=torch.Generator().manual_seed(epoch))
        for rows in order.split(32):
            optimizer.zero_grad()
            module(inputs[rows], targets[rows]).backward()
            torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
            optimizer.step()
    return list(module.state_dict().values())


def test_the_program_to_take_away_gives_on_two_processes_the_weights_of_one(tmp_path, monkeypatch):
    page = (ROOT / "chapters" / "data_parallel.md").read_text("utf-8")
    (program,) = re.findall(r"^```python\n(# train\.py.*?)^```", page, re.S | re.M)
    (tmp_path / "train.py").write_text(program)
    (tmp_path / "mine.py").write_text(MINE)
    environment = {**os.environ, "BATCH": "32", "OMP_NUM_THREADS": "1"}
    environment["GLOO_SOCKET_IFNAME"] = "lo"
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    launch += ["--local-addr", "127.0.0.1", "--nproc-per-node", "2", "train.py"]
    done = subprocess.run(
        launch, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    found = torch.load(tmp_path / "weights.pt", weights_only=True)
    monkeypatch.setenv("RANK", "0")
    own: dict = {}
    exec(MINE, own)
    expected = on_one_device(own["module"], own["data"])
    # The same sums in another order; what Adam makes of it is bounded by its eps.
    torch.testing.assert_close(list(found.values()), expected, rtol=1e-5, atol=1e-6)
