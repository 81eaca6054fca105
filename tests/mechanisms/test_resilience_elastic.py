"""Under torchrun a worker is killed; all begin again from the last good checkpoint, also fewer of them."""

import multiprocessing
import os
from pathlib import Path

import pytest
import torch

from dlsys import world
from dlsys.resilience import latest, restore
from tests.mechanisms.programs.elastic import trainer
from tests.mechanisms.trained import difference

PROGRAM = Path(__file__).parent / "programs" / "elastic.py"
ROOT = Path(__file__).parents[2]
RANKS, FEWER, KILLED, STEPS, MORE = 2, 1, 5, 9, 12  # each start takes a second and more


def torchrun(folder, ranks, restarts, *arguments):
    """Its exit status and what it printed; in a fork of this process, which has imported torchrun."""
    from torch.distributed import run

    options = ["--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", str(ranks)]
    options += ["--max-restarts", str(restarts), str(PROGRAM), str(folder), *map(str, arguments)]

    def begin():
        for number, name in enumerate(("out", "err"), 1):
            os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        os.environ |= {
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(ROOT),
            # Lives would share one store, where a rank may find an address of the life before:
            # https://github.com/pytorch/pytorch/issues/135712, and 167288.
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        }
        run.main(options)

    process = multiprocessing.get_context("fork").Process(target=begin)
    process.start()
    process.join(120)
    return process.exitcode, (folder / "out").read_text(), (folder / "err").read_text()


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run whose last rank is killed, restarted by torchrun; then one of fewer that goes on with it."""
    folder = tmp_path_factory.mktemp("elastic")
    killed = torchrun(folder, RANKS, 1, STEPS, KILLED)
    return folder, (killed, torchrun(folder, FEWER, 0, MORE, MORE + 1))


pytestmark = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # of the fork


def test_torchrun_begins_again_from_the_last_good_checkpoint(runs):
    _, ((status, out, err), _) = runs
    lines = ["rank 1 of 2 dies after step 5", "life 1 of 2 ranks: steps 3 to 9"]
    assert (status, out.splitlines()) == (0, lines), err


def test_fewer_ranks_go_on_where_more_have_been(runs):
    _, (_, (status, out, err)) = runs
    assert (status, out) == (0, "life 0 of 1 ranks: steps 9 to 12\n"), err


def test_the_losses_are_those_of_a_run_that_was_never_killed(runs):
    folder, _ = runs

    def never(comm):
        run = trainer(comm)
        run.train(MORE)
        return run.state()

    before = world.simulate(never, RANKS).results[0]
    found = latest(folder / "saved")
    assert (found.step, len(found.manifest.files)) == (MORE, FEWER)
    after = restore(found)
    assert torch.equal(after["losses"][:STEPS], before["losses"][:STEPS])
    # From there one rank adds up in float32 what two have: another order, an eps or two.
    assert torch.allclose(after["losses"], before["losses"], rtol=1e-6, atol=0)
    assert difference(after["order"], before["order"]) is None
