"""Context and expert parallelism under torchrun: three steps on two processes are those of one device."""

from __future__ import annotations

import pytest
import torch

from dlsys.expert_parallel import MixtureGPT
from dlsys.model import GPT
from dlsys.transformer import MixtureOfExperts, TransformerSpec
from tests import torchrun

pytestmark = [
    pytest.mark.filterwarnings("ignore:This process:DeprecationWarning"),  # of a fork
    pytest.mark.usefixtures("one_thread"),
]
SPECS = {
    "context": TransformerSpec(2, 16, 4, 33, 9, kv_heads=2, gated=True, tied=False),
    "expert": TransformerSpec(2, 16, 4, 33, 9, moe=MixtureOfExperts(4, 2)),
}
TOKENS = torch.randint(33, (4, 10), generator=torch.Generator().manual_seed(1))

PROGRAM = """
import torch
from dlsys import world
from dlsys.context_parallel import ContextParallel
from dlsys.data_parallel import DataParallel
from dlsys.expert_parallel import MixtureGPT, average_gradients
from dlsys.model import GPT

comm = world.from_environment()
specs, tokens, steps = torch.load("given.pt", weights_only=False)
cut = DataParallel(ContextParallel(GPT(specs["context"], dtype=torch.float64)))
mixture = MixtureGPT(specs["expert"], dtype=torch.float64)
mine = tokens.chunk(comm.size)[comm.rank]
found = {}
for name, model, rows in (("context", cut, tokens), ("expert", mixture, mine)):
    adamw = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(steps):
        adamw.zero_grad()
        model(rows[:, :-1], rows[:, 1:]).backward()
        if name == "expert":
            average_gradients(model, comm)
        adamw.step()
    found[name] = [p.detach() for p in model.parameters()]
torch.save(found, f"found-{comm.rank}.pt")
torch.distributed.destroy_process_group()
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, list[torch.Tensor]]]:
    """The parameters of each rank after three steps, by axis."""
    folder = tmp_path_factory.mktemp("axes")
    (folder / "program.py").write_text(PROGRAM)
    torch.save((SPECS, TOKENS, 3), folder / "given.pt")
    started = torchrun.begin(folder, "run", ["--nproc-per-node", "2"], ["program.py"])
    ended, errors = torchrun.ended(folder, run=started)
    assert ended["run"][0] == 0, errors
    return [torch.load(folder / f"found-{rank}.pt", weights_only=True) for rank in range(2)]


@pytest.mark.parametrize("axis", SPECS)
def test_three_steps_under_torchrun_are_those_of_one_device(axis, found):
    # In double precision: AdamW makes steps of rounding where a gradient should be nothing.
    model = (MixtureGPT if axis == "expert" else GPT)(SPECS[axis], dtype=torch.float64)
    adamw = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(3):
        adamw.zero_grad()
        model(TOKENS[:, :-1], TOKENS[:, 1:]).backward()
        adamw.step()
    for rank, parameters in enumerate(found):
        for (name, whole), mine in zip(model.named_parameters(), parameters[axis], strict=True):
            part = whole.chunk(2)[rank] if ".experts." in name else whole
            torch.testing.assert_close(mine, part.detach(), msg=name)
