"""Whatever happens to a machine or to a file: a checkpoint is good as a whole, or is refused."""

from __future__ import annotations

import json
import os
import pickle
import resource
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dlsys import world
from dlsys.resilience import (
    AsyncSaver,
    CheckpointError,
    PerRank,
    Shard,
    latest,
    manifest_file,
    restore,
    rotate,
    save,
    verify,
)
from tests.mechanisms.disks import PowerCuts, in_a_child, killed_at, small_disk, watched

OLD, NEW = {"w": torch.arange(6.0), "step": 1}, {"w": torch.arange(6.0) + 1, "step": 2}


@pytest.fixture(scope="module")
def good(tmp_path_factory) -> Path:
    """A checkpoint of two ranks, and one before it."""
    root = tmp_path_factory.mktemp("good")

    def program(comm: world.Communicator) -> str:
        part = Shard(torch.arange(12.0).view(4, 3)[2 * comm.rank :][:2], (2 * comm.rank, 0), (4, 3))
        state = {"w": part, "all": torch.arange(5), "rate": 0.5, "own": PerRank(comm.rank)}
        save(state, root, 1, comm)
        return str(save(state, root, 2, comm))

    return Path(world.simulate(program, 2).results[0])


@pytest.fixture
def copy(good, tmp_path) -> Path:
    """Of both checkpoints, to be damaged: the path of the newer one."""
    shutil.copytree(good.parent, tmp_path / "run")
    return tmp_path / "run" / good.name


def refused(path: Path) -> str:
    """The sentence with which a checkpoint is refused, whoever asks; the one before is found."""
    with pytest.raises(CheckpointError) as verifying:
        verify(path)
    with pytest.raises(CheckpointError) as restoring:
        restore(path)
    found = latest(path.parent)
    assert found is not None
    assert found.step == 1
    assert found.skipped == (str(verifying.value),) == (str(restoring.value),)
    return str(verifying.value).replace(f"{path.parent}{os.sep}", "")


# -- damaged files ---------------------------------------------------------------------------------


@settings(max_examples=150)
@given(st.data())
def test_a_flipped_bit_or_a_cut_at_any_byte_of_any_file_is_never_accepted(good, data):
    name = data.draw(st.sampled_from(sorted(os.listdir(good))))
    path, whole = good / name, (good / name).read_bytes()
    place = data.draw(st.integers(0, len(whole) - 1))
    how = data.draw(st.sampled_from(["flip", "cut", "zeros"]))
    torn = bytearray(whole[:place])
    if how == "flip":
        torn = bytearray(whole)
        torn[place] ^= 1 << data.draw(st.integers(0, 7))
    elif how == "zeros" and any(whole[place:]):  # as some file systems leave what was not flushed
        torn += bytes(len(whole) - place)
    try:
        path.write_bytes(torn)
        with pytest.raises(CheckpointError, match=name):
            verify(good)
        with pytest.raises(CheckpointError, match=name):
            restore(good)
    finally:
        path.write_bytes(whole)
    assert verify(good).step == 2


def test_every_bit_of_a_manifest_counts(copy):
    path = copy / "manifest.json"
    whole = path.read_bytes()
    for bit in range(8 * len(whole)):
        torn = bytearray(whole)
        torn[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ValueError, match=r"^(is|has|does) "):
            manifest_file.from_bytes(bytes(torn))
    manifest_file.from_bytes(whole)


def test_a_missing_a_foreign_and_a_cut_file_are_named(copy):
    name = copy / "rank-00001.safetensors"
    whole = name.read_bytes()
    name.unlink()
    assert refused(copy) == f"{copy.name}/rank-00001.safetensors is missing."
    name.write_bytes(whole[:-3])
    assert f"{name.name} has {len(whole) - 3:,} bytes and the manifest says" in refused(copy)
    name.write_bytes(whole)
    (copy / "notes.txt").write_text("mine")
    assert refused(copy) == f"{copy.name}/notes.txt is foreign: the manifest does not name it."
    (copy / "notes.txt").unlink()
    assert verify(copy).step == 2
    (copy / "manifest.json").unlink()
    assert refused(copy) == f"{copy.name} has no manifest.json: it is no checkpoint."


def test_another_checkpoints_file_of_the_same_size_is_refused(copy):
    before = copy.parent / "step-000000000001"
    name = "rank-00000.safetensors"
    assert (copy / name).stat().st_size == (before / name).stat().st_size
    shutil.copy(before / name, copy / name)
    assert "has another header than the manifest says" in refused(copy)


def test_a_checkpoint_under_another_steps_name_is_refused(copy):
    shutil.rmtree(copy)
    shutil.copytree(copy.parent / "step-000000000001", copy)
    assert refused(copy) == f"{copy.name}/manifest.json is of step 1, not of its folder's."


def test_links_pipes_and_folders_are_no_files(copy, tmp_path):
    name = copy / "rank-00000.safetensors"
    shutil.move(name, tmp_path / "elsewhere")
    name.symlink_to(tmp_path / "elsewhere")
    assert refused(copy) == f"{copy.name}/{name.name} is a link, not a file."
    name.unlink()
    os.mkfifo(name)
    assert refused(copy) == f"{copy.name}/{name.name} is a pipe or device, not a file."
    name.unlink()
    name.mkdir()
    assert refused(copy) == f"{copy.name}/{name.name} is a folder, not a file."
    name.rmdir()
    shutil.move(tmp_path / "elsewhere", name)
    shutil.move(copy, tmp_path / "moved")
    copy.symlink_to(tmp_path / "moved")
    assert refused(copy) == f"{copy.name} is a link, not a folder."


def forged(path: Path, **fields: Any) -> None:
    """Write a manifest that fits its own hash, with other fields."""
    old = json.loads((path / "manifest.json").read_bytes())
    del old["sha256"]
    (path / "manifest.json").write_bytes(manifest_file._sealed(old | fields))


FORGED = [
    ({"version": 2}, "manifest.json is of version 2; this code reads 1."),
    ({"version": "1"}, "manifest.json is of version '1'; this code reads 1."),
    ({"format": "zip"}, "manifest.json is no manifest of a checkpoint, or damaged."),
    ({"step": "two"}, "Manifest.step is 'two'; it must be a whole number."),
    ({"tensors": [["w", [4, 3], "F32"]]}, "File 0 holds all[0:5], and there is no such tensor."),
    ({"tensors": [["w", [-4], "F32"]]}, "w has the shape (-4,)."),
    ({"tensors": [["w", [4, 3], "PICKLE"]]}, "w is of the unknown type 'PICKLE'."),
    ({"tensors": [["w", [2**62, 2**62], "F32"]], "files": []}, "lies in no file."),
    ({"files": []}, "lies in no file."),
]


@pytest.mark.parametrize(("fields", "sentence"), FORGED, ids=[words for _, words in FORGED])
def test_a_manifest_with_a_right_hash_is_still_judged(copy, fields, sentence):
    forged(copy, **fields)
    assert sentence in refused(copy)


def test_a_state_that_is_no_tree_is_refused_and_runs_nothing(copy):
    deep: Any = 1
    for _ in range(200):
        deep = ["list", deep]
    for state in (
        deep,
        ["call", "os.system"],
        [],
        {"a": 1},
        ["tensor", "nothing"],
        ["dict", 3],
        [["x"]],
    ):
        forged(copy, state=state)
        assert "manifest.json does not hold together: " in refused(copy)


def test_a_file_of_a_huge_header_or_a_manifest_without_end_is_not_read_into_memory(copy):
    name = copy / "rank-00000.safetensors"
    whole = bytearray(name.read_bytes())
    whole[:8] = (2**63).to_bytes(8, "little")
    name.write_bytes(whole)
    assert "has another header than the manifest says" in refused(copy)
    os.truncate(copy / "manifest.json", 2**40)
    assert "manifest.json has 1,099,511,627,776 bytes, more than a manifest has." in refused(copy)
    (copy / "manifest.json").write_bytes(b"[" * 10**6)
    assert "manifest.json is no JSON: it is torn or damaged." in refused(copy)


class Bomb:
    def __reduce__(self) -> tuple:
        return os.system, ("touch /tmp/exploded",)


def test_nothing_is_ever_unpickled_or_run(copy):
    def child() -> list[str]:
        events: list[str] = []

        def hear(event: str, args: tuple) -> None:
            if event.split(".")[0] in ("pickle", "marshal", "exec", "os.system", "subprocess"):
                events.append(f"{event} {args}")

        save(NEW, copy.parent, 3)
        restore(latest(copy.parent))
        sys.addaudithook(hear)
        restore(latest(copy.parent))
        restore(copy)
        for name in sorted(os.listdir(copy)):
            (copy / name).write_bytes(pickle.dumps(Bomb()))
            with pytest.raises(CheckpointError):
                restore(copy)
        assert latest(copy.parent).step == 3
        pickle.loads(pickle.dumps(Path("x")))
        return events

    events = in_a_child(child)
    assert len(events) == 1, events  # our own: so it would have been heard
    assert "pickle.find_class" in events[0]


def test_where_no_checkpoint_is_good_nobody_begins_anew(copy, tmp_path):
    for name in ("step-000000000001", "step-000000000002"):
        os.truncate(copy.parent / name / "manifest.json", 10)
    with pytest.raises(CheckpointError, match=r"has no good checkpoint: .*002/manifest.*001/mani"):
        latest(copy.parent)
    assert latest(tmp_path / "never") is None
    with pytest.raises(CheckpointError, match=r"it holds checkpoints: pass .*step-000000000002"):
        verify(copy.parent)


# -- a process that is killed ------------------------------------------------------------------------


def found(root: Path) -> int:
    """The step of the good checkpoint that is found, and holds what was saved."""
    checkpoint = latest(root)
    assert checkpoint is not None
    assert checkpoint.skipped == ()
    state = restore(checkpoint)
    assert state["step"] == checkpoint.step
    assert state["w"].equal((OLD if checkpoint.step == 1 else NEW)["w"])
    return checkpoint.step


def asynchronous(root: Path) -> None:
    with AsyncSaver(root, keep=1) as saver:
        saver.save(NEW, 2)


def both_ranks(root: Path) -> None:
    world.simulate(lambda comm: save(NEW, root, 2, comm), 2)


def both_asynchronous(root: Path) -> None:
    def program(comm: world.Communicator) -> None:
        with AsyncSaver(root, comm, keep=1) as saver:
            saver.save(NEW, 2)

    world.simulate(program, 2)


def alone(root: Path) -> None:
    save(NEW, root, 2)


@pytest.mark.parametrize(
    ("program", "least"),
    [(alone, 12), (both_ranks, 18), (asynchronous, 20), (both_asynchronous, 25)],
)
def test_killed_at_any_operation_either_the_old_or_the_new_checkpoint_is_found(
    program, least, tmp_path
):
    steps, number, ended = [], 0, None
    while ended is None:
        root = tmp_path / f"{number}"
        save(OLD, root, 1)
        ended = killed_at(number, root, lambda root=root: program(root))
        steps.append(found(root))
        save(NEW, root, 2)  # goes on as if nothing had happened, and tidies up
        assert found(root) == 2
        assert not [name for name in os.listdir(root) if name.startswith(".")]
        number += 1
    assert (steps[0], steps[-1]) == (1, 2)
    if program is not both_asynchronous:  # whose threads take turns as they like
        assert steps == sorted(steps)
    assert ended >= least


def test_killed_in_a_rotation_what_is_deleted_is_there_or_gone(tmp_path):
    number, ended = 0, None
    while ended is None:
        root = tmp_path / f"{number}"
        for step in range(4):
            save({"step": step}, root, step)
        ended = killed_at(number, root, lambda root=root: rotate(root, 1))
        left = [int(name[-1]) for name in sorted(os.listdir(root)) if name[0] != "."]
        assert left == list(range(left[0], 4))
        assert all(verify(root / f"step-{step:012d}").step == step for step in left)
        rotate(root, 1)
        save({}, root, 9)
        assert sorted(os.listdir(root)) == ["step-000000000003", "step-000000000009"]
        number += 1
    assert ended >= 15


@pytest.mark.parametrize("program", [alone, asynchronous])
def test_a_power_cut_leaves_the_old_or_the_new_checkpoint_and_the_new_one_once_saved(
    program, tmp_path
):
    root, scratch = tmp_path / "run", tmp_path / "scratch"
    save(OLD, root, 1)
    scratch.mkdir()
    steps: list[int] = []
    cuts = PowerCuts(root, scratch, lambda left: steps.append(found(left)))
    is_cutting = [False]

    def seen(name: str, args: Any) -> None:
        if not is_cutting[0]:
            is_cutting[0] = True
            cuts.seen(name, args)
            is_cutting[0] = False

    with watched(root, seen):
        program(root)
    assert set(steps) == {1, 2}
    cuts.cut(names_written=False)
    assert steps[-1] == 2


# -- a disk that is full -----------------------------------------------------------------------------


def test_a_full_disk_stops_a_save_and_nothing_that_was_good(tmp_path):
    pages = 64

    def child() -> list[str]:
        try:
            with small_disk(tmp_path, pages * 4096):
                save(OLD, tmp_path, 1)
                before, said = os.listdir(tmp_path), []
                for k in reversed(range(pages - 8, pages + 2)):  # until file and manifest fit
                    try:
                        save({"w": torch.zeros(1024 * k)}, tmp_path, 2)
                    except CheckpointError as error:
                        said.append(str(error))
                        assert os.listdir(tmp_path) == before
                        assert found(tmp_path) == 1
                        continue
                    break
                shutil.rmtree(tmp_path / "step-000000000002")
                saver = AsyncSaver(tmp_path)
                saver.save({"w": torch.zeros(1024 * pages)}, 3)
                with pytest.raises(CheckpointError, match="No space left"):
                    saver.wait()
                saver.save(NEW, 2)
                saver.wait()
                assert found(tmp_path) == 2
                return said
        except PermissionError as error:
            return [f"skip: {error}"]

    said = in_a_child(child)
    if said[0].startswith("skip"):
        pytest.skip(f"no small disk can be mounted here: {said[0]}")
    assert len(said) >= 3
    for each, name in ((said[0], "rank-00000.safetensors"), (said[-1], "manifest.json")):
        assert each.startswith("the save of step 2 failed: rank 0: OSError: [Errno 28] No space")
        assert each.endswith(f"step-000000000002/{name}'")


def test_a_rank_that_cannot_write_makes_all_raise(tmp_path):
    def program(comm: world.Communicator) -> str:
        state = {"w": Shard(torch.zeros(1000), (1000 * comm.rank,), (3000,))}
        save(state, tmp_path, 1, comm)
        if comm.rank == 1:  # no file of it may grow beyond this: write returns EFBIG
            resource.setrlimit(resource.RLIMIT_FSIZE, (1500, 1500))
        try:
            save(state, tmp_path, 2, comm)
        except CheckpointError as error:
            return str(error)
        return "saved"

    said = world.launch(program, 3).results
    assert said[0].startswith("the save of step 2 failed: rank 1: OSError: [Errno 27]")
    assert said == [said[0]] * 3
    assert os.listdir(tmp_path) == ["step-000000000001"]
    assert verify(tmp_path / "step-000000000001").step == 1
