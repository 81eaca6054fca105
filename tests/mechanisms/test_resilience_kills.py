"""Killed for real, at any moment, a run ends where it would have ended (`soak.py`: 200 times)."""

import shutil
import sys
from random import Random

import pytest
import torch

from dlsys import world
from dlsys.resilience import (
    Checkpoint,
    CheckpointError,
    manifest_file,
    restore,
    save_manifest_first,
    verify,
)
from tests.mechanisms.killing import Job, arm, campaign, never_killed
from tests.mechanisms.trained import difference, first_difference, trainer


@pytest.mark.skipif(sys.platform != "linux", reason="kills by a handle of the process")
@pytest.mark.parametrize(("job", "seed"), [(Job(2), 5), (Job(2, beside=True), 3)])
def test_however_often_it_is_killed_a_run_ends_with_the_bits_of_the_run_that_never_was(
    tmp_path, job, seed
):
    told = campaign(tmp_path, job, kills=3, random=Random(seed), damage=0.5)
    assert told.kills.total() == 3
    assert (told.torn_by_kills, told.unexpected) == ([], [])
    never = never_killed(tmp_path, job)
    for one, other in zip(told.state, never, strict=True):
        assert difference(one, other) is None


def overwrite(run, comm, folder):
    """Save in place, manifest first, what always takes as many bytes: all but the losses so far."""
    state = {name: part for name, part in run.state().items() if name != "losses"}
    save_manifest_first(state, folder, run.step, comm)


def begin(comm, folder, dies):
    """Eight steps, saved after the fourth and the eighth, when rank 1 may die."""
    run = trainer(comm)
    run.train(4)
    overwrite(run, comm, folder)
    run.train(8)
    if dies and comm.rank == 1:
        arm(1, lambda called: getattr(called, "__name__", "") == "unlink")
    overwrite(run, comm, folder)


def go_on_in_trust(comm, folder, losses):
    """Four steps more of a run that takes a manifest at its word, and looks at no hash."""
    run = trainer(comm)
    manifest = manifest_file.from_bytes((folder / "current" / "manifest.json").read_bytes())
    state = restore(Checkpoint(folder / "current", manifest), None, comm)
    run.load({**state, "losses": torch.tensor(losses[: manifest.step], dtype=torch.float64)})
    return run.train(12)


def test_a_manifest_that_is_written_first_lets_a_run_go_on_with_half_of_another_step(tmp_path):
    """Rank 1 dies before it replaces its file, which is that of four steps before."""
    never = never_killed(tmp_path, Job(2, steps=12))[0]["losses"].tolist()
    world.launch(begin, 2, args=(tmp_path, False))
    whole = world.launch(go_on_in_trust, 2, args=(tmp_path, never)).results[0]
    assert (verify(tmp_path / "current").step, whole) == (8, never)
    shutil.rmtree(tmp_path / "current")
    with pytest.raises(world.WorldError, match="rank 1 of 2 was ended by SIGKILL"):
        world.launch(begin, 2, args=(tmp_path, True))
    mixed = world.launch(go_on_in_trust, 2, args=(tmp_path, never)).results[0]
    assert first_difference(mixed, never) == 9
    # Names and sizes are right: only the hash can tell, or the step in the file's own header.
    with pytest.raises(CheckpointError, match=r"rank-00001.safetensors has another header"):
        verify(tmp_path / "current")
