"""Under torchrun a worker or a node is killed; what is left begins again from the last checkpoint."""

import pickle
from datetime import UTC, datetime
from multiprocessing import connection
from pathlib import Path

import pytest
import torch
from torch.distributed import FileStore
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend

from dlsys import world
from dlsys.resilience import latest, restore
from tests import torchrun
from tests.mechanisms.programs.elastic import trainer
from tests.mechanisms.trained import difference

PROGRAM = Path(__file__).parent / "programs" / "elastic.py"
ROOT = Path(__file__).parents[2]
KILLED, SAVED, STEPS = 5, 3, 9

pytestmark = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # of a fork


def begin(folder, name, options, what):
    """Start torchrun on the program, which dies as `what` says."""
    program = [str(PROGRAM), str(folder), str(STEPS), str(KILLED), what]
    # Lives would share one store, where a rank may find an address of the life before:
    # https://github.com/pytorch/pytorch/issues/135712, and 167288.
    own = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "PYTHONPATH": str(ROOT)}
    return torchrun.begin(folder, name, options, program, **own)


@pytest.fixture(scope="module")
def never_killed():
    """The state of two ranks at the end of a run in which nobody dies."""

    def program(comm):
        run = trainer(comm)
        run.train(STEPS)
        return run.state()

    return world.simulate(program, 2).results[0]


def test_torchrun_begins_again_with_the_bits_of_a_run_that_was_never_killed(tmp_path, never_killed):
    options = ["--nproc-per-node", "2", "--max-restarts", "1"]
    said, errors = torchrun.ended(tmp_path, one=begin(tmp_path, "one", options, "worker"))
    lines = [f"a worker dies after step {KILLED}", f"ranks: 2, steps: {SAVED} to {STEPS}"]
    assert said == {"one": (0, lines)}, errors
    # Two ranks' sums are the same in either order, so that simulated ranks have the same bits.
    assert begun_again(tmp_path, ranks=2, never=never_killed) is None


def test_a_node_that_is_left_alone_goes_on_with_fewer_ranks(tmp_path, never_killed):
    """Two agents that find each other by a file, of one rank each; one is killed with its rank."""
    # Nobody who lives is silent for ten minutes, and who comes early waits as long for the other.
    patient = "keep_alive_interval=1,keep_alive_max_attempt=600,last_call_timeout=600"
    options = ["--nnodes", "1:2", "--nproc-per-node", "1", "--rdzv-id", "run"]
    options += ["--rdzv-backend", "c10d", "--rdzv-endpoint", str(tmp_path / "meeting")]
    options += ["--rdzv-conf", f"store_type=file,{patient}", "--max-restarts", "9"]
    agents = {name: begin(tmp_path, name, options, "node") for name in ("one", "other")}
    # By sentinels: who has just closed them may count as alive still.
    ended = connection.wait([agent.sentinel for agent in agents.values()], 300)
    dead = [agent.pid for agent in agents.values() if agent.sentinel in ended]
    alive = [agent.sentinel for agent in agents.values() if agent.sentinel not in ended]
    for _ in range(3000):
        if connection.wait(alive, 0.1):
            break
        leave_alone(tmp_path / "meeting", dead)
    said, errors = torchrun.ended(tmp_path, **agents)
    lines = [f"a node dies after step {KILLED}"], [f"ranks: 1, steps: {SAVED} to {STEPS}"]
    assert sorted(said.values()) == [(-9, lines[0]), (0, lines[1])], errors
    begun_again(tmp_path, ranks=1, never=never_killed)


def leave_alone(meeting, dead):
    """Have these agents' last signs of life, and the last call to join, be of long ago, so that who
    is left waits for nobody."""
    backend = C10dRendezvousBackend(FileStore(str(meeting)), "run")
    long_ago = datetime.min.replace(tzinfo=UTC)
    written, token = backend.get_state()
    state = pickle.loads(written)
    state.last_heartbeats |= {n: long_ago for n in state.last_heartbeats if n.pid in dead}
    state.deadline = state.deadline and long_ago
    if pickle.dumps(state) != written:
        backend.set_state(pickle.dumps(state), token)  # or not, if others write: then the next time


def begun_again(folder, ranks, never):
    """Where the last checkpoint, of so many ranks, differs by a bit; it may by rounding alone, as one
    rank adds up in another order what two have."""
    found = latest(folder / "saved")
    assert (found.step, len(found.manifest.files)) == (STEPS, ranks)
    state = restore(found)
    assert torch.equal(state["losses"][:SAVED], never["losses"][:SAVED])
    # Of float64: six digits more than some hundreds of roundings take.
    assert torch.allclose(state["losses"], never["losses"], rtol=1e-8, atol=0)
    assert difference(state["order"], never["order"]) is None
    return difference([*state["model"].values()], [*never["model"].values()])
