"""torch's own engines compose on this machine, two axes on four processes and three on eight, as on one device."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests import torchrun
from tests.mechanisms.programs.compose import drawn

pytestmark = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # of a fork
PROGRAM = Path(__file__).parent / "programs" / "compose.py"


@pytest.fixture(scope="module")
def alone() -> float:
    """The loss of the third step on one device."""
    model, batch, targets = drawn()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(3):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(batch), targets)
        loss.backward()
        optimizer.step()
    return loss.item()


@pytest.mark.parametrize("mesh", [(2, 1, 2), (2, 2, 2)], ids=str)
def test_fsdp_dtensor_and_pipelining_train_together_as_one_device(mesh, alone, tmp_path):
    number = mesh[0] * mesh[1] * mesh[2]
    options, program = ["--nproc-per-node", f"{number}"], [str(PROGRAM), *map(str, mesh)]
    ended, errors = torchrun.ended(tmp_path, run=torchrun.begin(tmp_path, "run", options, program))
    status, lines = ended["run"]
    assert status == 0, errors
    assert [float(line) for line in lines] == [pytest.approx(alone, abs=2e-6)]
