"""The whole programs on the pages run under torchrun as they stand, and give what the pages say."""

import re

import pytest
import torch

from tests import torchrun
from tests.contents import ROOT

pytestmark = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # of a fork


def program(page: str, name: str) -> str:
    """The program that a page tells its reader to save under a name."""
    text = (ROOT / "chapters" / f"{page}.md").read_text("utf-8")
    [found] = re.findall(rf"^```python\n(# {name}\n.*?)^```", text, re.S | re.M)
    return found


def said(folder, page: str, name: str) -> list[str]:
    """What the program prints on two processes."""
    (folder / name).write_text(program(page, name))
    options = ["--nproc-per-node", "2", name]
    ended, errors = torchrun.ended(folder, run=torchrun.begin(folder, "run", options))
    status, lines = ended["run"]
    assert status == 0, errors
    assert "Warning" not in errors, errors
    return lines


def test_the_sums_of_torchs_own_collectives_are_those_that_the_page_prints(tmp_path):
    page = (ROOT / "chapters" / "collectives.md").read_text("utf-8")
    [line] = said(tmp_path, "collectives", "sums.py")
    assert line == f"True True {839.0 * 3}"
    assert f"prints `{line}`" in page


def test_two_processes_shard_and_train_what_one_device_trains(tmp_path):
    [line] = said(tmp_path, "zero", "shard.py")
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(4)])
    optimizer = torch.optim.AdamW(model.parameters())
    batch = torch.randn(8, 64)
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    shape, _, found = line.rpartition(" ")
    assert shape == "(32, 64)"  # half of the rows
    assert float(found) == pytest.approx(loss.item(), abs=6e-5)
