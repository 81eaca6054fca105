"""Odd states and odd folders: what is promised holds for them too, or a sentence says that it cannot."""

from __future__ import annotations

import errno
import os
import shutil
import warnings
from typing import Any

import numpy as np
import pytest
import torch

from dlsys import world
from dlsys.resilience import (
    AsyncSaver,
    CheckpointError,
    PerRank,
    latest,
    restore,
    rotate,
    save,
    verify,
    verifying,
)
from dlsys.resilience.gathering import fingerprint

STATE = {"w": torch.arange(4.0)}


def errors(program: Any, ranks: int = 2) -> list[str]:
    """What `program` raises on each rank; where one raised alone, the world's own error."""

    def caught(comm: world.Communicator) -> str:
        with pytest.raises(CheckpointError) as error:
            program(comm)
        return str(error.value)

    return world.simulate(caught, ranks).results


def refused(state: Any, tmp_path: Any) -> str:
    with pytest.raises(ValueError, match=r"^(A key of )?state") as error:
        save(state, tmp_path, 1)
    return str(error.value)


# -- states ----------------------------------------------------------------------------------------


def test_what_ranks_have_of_their_own_under_other_keys_is_never_another_ranks(tmp_path):
    """Counted through, rank 1's first value would become rank 0's `a`."""

    def program(comm: world.Communicator) -> Any:
        mine = [("a", PerRank(("a", comm.rank))), ("b", PerRank({"b": torch.ones(comm.rank)}))]
        state = dict(mine[:: 1 - 2 * (comm.rank % 2)]) | {f"of {comm.rank}": PerRank(comm.rank)}
        return restore(save(state, tmp_path, 1, comm), None, comm)

    for rank, found in enumerate(world.simulate(program, 3).results):
        assert found["a"].value == ("a", rank)
        assert found["b"].value["b"].equal(torch.ones(rank))
        others = [found[f"of {each}"].value for each in range(3)]
        assert others == [rank if each == rank else None for each in range(3)]


def test_two_values_of_a_rank_whose_keys_are_equal_as_text_stay_apart(tmp_path):
    found = restore(save({0: PerRank(1), "0": PerRank(2)}, tmp_path, 1))
    assert [found[0].value, found["0"].value] == [1, 2]


@pytest.mark.parametrize("key", [False, True], ids=["value", "key"])
def test_a_number_that_python_does_not_write_is_refused_on_every_rank(key, tmp_path):
    huge = 10**5000
    first = errors(
        lambda comm: save({huge: 1} if key else {"n": 1 if comm.rank else huge}, tmp_path, 1, comm)
    )[0]
    assert "a number of at most 14,000 bits" in first
    large = 2**13_999
    assert restore(save({large: -large}, tmp_path, 1)) == {large: -large}


def test_a_nested_tensor_an_array_with_a_mask_and_foreign_bytes_are_refused_with_their_place(
    tmp_path,
):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its interface is a prototype
        nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    assert "state['w'] is a nested tensor" in refused({"w": nested}, tmp_path)
    assert (
        "rank 0: ValueError: state['w'] is a nested tensor"
        in errors(
            lambda comm: save({"w": torch.ones(2) if comm.rank else nested}, tmp_path, 1, comm)
        )[0]
    )
    masked = np.ma.array([1, 2], mask=[0, 1])
    assert "state['w'] is a masked array" in refused({"w": masked}, tmp_path)
    assert "state['w'] is an array of >f8" in refused({"w": np.arange(3, dtype=">f8")}, tmp_path)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.int64])
def test_large_tensors_that_are_negated_or_have_numbers_changed_places_are_told_apart(dtype):
    """All signs turned over, or two words exchanged, leave the sum of all words as it is."""
    one = torch.randint(1, 100, (2**20 + 3,), generator=torch.Generator().manual_seed(0)).to(dtype)
    one[:8] = torch.arange(8)
    swapped, doubled = one.clone(), one.clone()
    swapped[0:4], swapped[4:8] = one[4:8], one[0:4]
    doubled[[3, -1]] = one[[-1, 3]]
    last = one.clone()
    last[-1] += 1
    prints = [fingerprint(each) for each in (one, -one, swapped, doubled, last)]
    assert len({*prints}) == 5
    assert prints[0] == fingerprint(one.clone())


def test_a_state_may_be_empty_or_no_dictionary_and_keys_may_be_any_text(tmp_path):
    odd = {"": 1, "a\nb\0c": torch.ones(2), "a/b": torch.ones(1), "a": {"b": torch.zeros(1)}}
    odd |= {"w[0:1]": torch.ones(1), "__metadata__": torch.ones(1), "\ud800": "\ud800", -5: "ü"}
    odd |= {"per rank": 0, "dict": [], "list": ["per rank", 1], "tensor": ("tensor", "w")}
    for state in ({}, [], (), None, 3, {"a": {}, "b": [], "c": ()}, "x" * 100_000):
        assert restore(save(state, tmp_path, 1)) == state
    found = restore(save(odd, tmp_path, 1))
    assert [*found] == [*odd]
    assert all(torch.equal(found[k], v) for k, v in odd.items() if isinstance(v, torch.Tensor))
    assert found["a"]["b"].equal(torch.zeros(1))
    for key in ("", "\ud800", -5, "per rank", "dict", "list", "tensor"):
        assert found[key] == odd[key]
    bare = torch.tensor(2.0)
    assert restore(save(bare, tmp_path, 1)).equal(bare)


def test_tied_and_overlapping_weights_come_back_each_under_its_name(tmp_path):
    w = torch.arange(6.0)
    with AsyncSaver(tmp_path) as saver:
        saver.save({"a": w, "b": w, "c": w.view(2, 3).t(), "d": w[:1].expand(4)}, 1)
        w.zero_()
    found = restore(latest(tmp_path))
    assert found["a"].tolist() == found["b"].tolist() == [0, 1, 2, 3, 4, 5]
    assert found["c"].tolist() == [[0, 3], [1, 4], [2, 5]]
    assert found["d"].shape == (4,)
    found["a"].fill_(1)
    assert found["b"].sum() == 15  # each in memory of its own


# -- folders ---------------------------------------------------------------------------------------


def test_a_step_saved_again_after_a_rotation_is_the_latest(tmp_path):
    """The number after the step of the one that is left must not be passed from below."""
    for value in range(3):
        save({"v": value}, tmp_path, 7)
    rotate(tmp_path, 1)
    assert save({"v": 3}, tmp_path, 7).name == "step-000000000007.3"
    assert restore(latest(tmp_path)) == {"v": 3}
    rotate(tmp_path, 1)
    assert restore(latest(tmp_path)) == {"v": 3}


@pytest.mark.parametrize("kind", ["link", "file"])
def test_a_link_or_a_file_in_the_place_of_a_checkpoint_stops_no_rotation_and_no_save(
    kind, tmp_path
):
    root, kept = tmp_path / "root", tmp_path / "kept"
    old = save(STATE, root, 1)
    save(STATE, root, 2)
    shutil.move(old, kept)
    for place in (old, root / ".saving-step-000000000009"):
        place.symlink_to(kept) if kind == "link" else place.write_text("x")
    cut_short = root / f".deleting-{old.name}"
    cut_short.mkdir()
    (cut_short / "manifest.json").write_text("{}")
    assert rotate(root, 1) == [old]
    assert sorted(os.listdir(root))[1:] == ["step-000000000002"]
    save(STATE, root, 3)
    assert sorted(os.listdir(root)) == ["step-000000000002", "step-000000000003"]
    assert len(os.listdir(kept)) == 2  # what a link leads to stays


def test_a_folder_may_be_a_link_and_one_that_leads_nowhere_is_no_empty_folder(tmp_path):
    (tmp_path / "real\nname").mkdir()
    good, lost = tmp_path / "good", tmp_path / "lost"
    good.symlink_to(tmp_path / "real\nname")
    lost.symlink_to(tmp_path / "not mounted")
    save(STATE, good, 1)
    save(STATE, good, 2)
    rotate(good, 1)
    assert latest(good).step == 2
    for call in (lambda: latest(lost), lambda: save(STATE, lost, 1), lambda: rotate(lost, 1)):
        with pytest.raises(
            ValueError, match=r"folder is '.*lost'; it must be a folder; .* nowhere"
        ):
            call()


def test_a_folder_that_one_rank_cannot_read_or_write_makes_all_ranks_raise(tmp_path):
    long = tmp_path / ("x" * 300)
    assert all("File name too long" in said for said in errors(lambda c: save(STATE, long, 1, c)))
    file = tmp_path / "file"
    file.write_text("x")
    said = errors(lambda comm: save(STATE, file / "below", 1, comm), 3)
    assert len({*said}) == 1
    assert "rank 0: NotADirectoryError" in said[0]


def test_a_disk_that_fails_one_rank_in_reading_makes_all_ranks_take_the_one_before(
    tmp_path, monkeypatch
):
    program = lambda comm: str(save(STATE, tmp_path, 1 + comm.size, comm))  # noqa: E731
    old, new = (world.simulate(program, ranks).results[0] for ranks in (1, 2))
    check = verifying.check_file

    def failing(path: Any, manifest: Any, number: int) -> None:
        if number == 1:
            raise OSError(errno.EIO, "Input/output error")
        check(path, manifest, number)

    monkeypatch.setattr(verifying, "check_file", failing)
    said = errors(lambda comm: restore(new, None, comm))
    assert said == [f"{new} cannot be read: Input/output error."] * 2
    with pytest.raises(CheckpointError, match="cannot be read: Input/output error"):
        verify(new)
    for found in world.simulate(lambda comm: latest(tmp_path, comm), 2).results:
        assert (str(found.folder), found.skipped) == (old, tuple(said[:1]))
    assert latest(tmp_path).step == 2

    def unreadable(root: Any) -> Any:
        raise PermissionError("not yours")

    monkeypatch.setattr(verifying, "sorted_names", unreadable)
    said = errors(lambda comm: latest(tmp_path, comm))
    assert all("rank 0: PermissionError: not yours" in each for each in said)


def test_a_snapshot_that_one_rank_has_no_room_for_makes_all_ranks_raise(tmp_path, monkeypatch):
    copied = AsyncSaver._copied

    def full(self: AsyncSaver, gathered: Any) -> Any:
        if self._ranks.rank == 1:
            raise MemoryError("no room")
        return copied(self, gathered)

    monkeypatch.setattr(AsyncSaver, "_copied", full)
    said = errors(lambda comm: AsyncSaver(tmp_path, comm).save(STATE, 1))
    assert all("rank 1: MemoryError: no room" in each for each in said)
    monkeypatch.undo()
    assert save(STATE, tmp_path, 1).name == "step-000000000001"
    assert os.listdir(tmp_path) == ["step-000000000001"]


def test_a_save_beside_the_training_goes_where_it_was_told_though_the_program_moves(
    tmp_path, monkeypatch
):
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with AsyncSaver("saved", keep=1) as saver:
        monkeypatch.chdir(tmp_path / "there")
        saver.save(STATE, 1)
    assert os.listdir(tmp_path / "there") == []
    assert latest(tmp_path / "here" / "saved").step == 1
