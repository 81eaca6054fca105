"""States that are saved come back bit for bit, and nothing is written twice or too late."""

from __future__ import annotations

import hashlib
import math
import os
import random
import resource
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from torch import Tensor, nn

from dlsys import world
from dlsys.resilience import (
    AsyncSaver,
    CheckpointError,
    PerRank,
    Shard,
    compare_replicas,
    latest,
    restore,
    rotate,
    save,
    verify,
)
from dlsys.resilience.files import name_of, write
from dlsys.resilience.state import DTYPES
from tests.mechanisms.disks import in_a_child


def same(one: Any, other: Any) -> bool:
    """Whether two states are equal to the bit, of the same types."""
    if isinstance(one, PerRank):
        return isinstance(other, PerRank) and same(one.value, other.value)
    if isinstance(one, Tensor):
        alike = isinstance(other, Tensor) and (one.dtype, one.shape) == (other.dtype, other.shape)
        bits = [t.contiguous().reshape(-1).view(torch.uint8) for t in (one, other)] if alike else []
        return alike and bits[0].equal(bits[1])
    if isinstance(one, np.ndarray):
        return isinstance(other, np.ndarray) and (one.dtype == other.dtype, one.tobytes()) == (
            True,
            other.tobytes(),
        )
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return [*one] == [*other] and all(same(one[k], other[k]) for k in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return repr(one) == repr(other)


# -- what comes back -------------------------------------------------------------------------------


def tensors() -> st.SearchStrategy[Tensor]:
    @st.composite
    def drawn(draw: st.DrawFn) -> Tensor:
        shape = draw(st.lists(st.integers(0, 4), max_size=3))
        dtype = draw(st.sampled_from([*DTYPES.values()]))
        nbytes = math.prod(shape) * dtype.itemsize
        data = draw(st.binary(min_size=nbytes, max_size=nbytes))
        if dtype is torch.bool:
            data = bytes(b & 1 for b in data)
        flat = torch.tensor([*data], dtype=torch.uint8)
        flat = flat.view(dtype) if data else torch.empty(0, dtype=dtype)
        whole = flat.view(shape)
        return whole.transpose(0, -1) if shape and draw(st.booleans()) else whole

    return drawn()


PLAIN = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=4), st.binary(max_size=4)
)
KEYS = st.one_of(st.text(max_size=3), st.integers(-3, 3))
STATES = st.recursive(
    PLAIN | tensors(),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(KEYS, inner, max_size=3).filter(
            lambda d: len({str(key) for key in d}) == len(d)
        ),
    ),
    max_leaves=8,
)


@settings(max_examples=50)
@given(STATES)
def test_any_state_comes_back_to_the_bit(tmp_path_factory, state):
    root = tmp_path_factory.getbasetemp() / "any"
    assert same(restore(save(state, root, 1)), state)
    rotate(root, 1)


def test_views_that_are_conjugate_or_negative_only_by_a_mark_are_written_as_they_read(tmp_path):
    z = torch.tensor([1 + 2j, 3 - 4j])
    marked = {"conjugate": z.conj(), "negative": z.conj().imag, "parameter": nn.Parameter(z)}
    assert marked["conjugate"].is_conj()
    assert marked["negative"].is_neg()
    back = restore(save(marked, tmp_path, 1))
    assert back["conjugate"].tolist() == [1 - 2j, 3 + 4j]
    assert back["negative"].tolist() == [-2, 4]
    assert type(back["parameter"]) is Tensor


@pytest.mark.parametrize("shape", [(3, 3), (2, 5)])
def test_one_number_of_a_row_is_written_whatever_stride_it_has_there(shape, tmp_path):
    one = torch.arange(1.0, 1 + math.prod(shape)).view(shape)[:1, 0]
    assert one.stride() != (1,)
    assert torch.equal(restore(save({"w": one}, tmp_path, 1))["w"], one)
    alike = world.simulate(lambda comm: compare_replicas({"w": one}, comm), 3).results
    assert alike == [{}] * 3


def test_states_of_random_numbers_come_back_and_give_the_same_numbers(tmp_path):
    np_random = np.random.default_rng(3)
    random.seed(4)
    torch.manual_seed(5)
    state = {
        "torch": torch.get_rng_state(),
        "python": random.getstate(),
        "numpy": np_random.bit_generator.state,
        "old numpy": np.random.RandomState(6).get_state(),
    }
    path = save(state, tmp_path, 0)
    first = torch.rand(3), random.random(), np_random.random(3)
    back = restore(path)
    assert same(back, state)
    torch.set_rng_state(back["torch"])
    random.setstate(back["python"])
    np_random.bit_generator.state = back["numpy"]
    again = torch.rand(3), random.random(), np_random.random(3)
    assert first[0].equal(again[0])
    assert (first[1], [*first[2]]) == (again[1], [*again[2]])


def test_a_run_goes_on_from_a_checkpoint_as_if_it_had_never_ended(tmp_path):
    def begin() -> tuple[nn.Module, torch.optim.Optimizer, Any]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 1))
        optimizer = torch.optim.AdamW(model.parameters(), 0.1)
        return model, optimizer, torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 4], 0.5)

    def train(parts: Any, steps: int) -> list[float]:
        model, optimizer, schedule = parts
        losses = []
        for _ in range(steps):
            loss = model(torch.rand(3, 4)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
        return losses

    whole = train(begin(), 7)
    parts = begin()
    before = train(parts, 3)
    state = [part.state_dict() for part in parts]
    path = save({"parts": state, "random": torch.get_rng_state()}, tmp_path, 3)
    parts = begin()
    back = restore(path)
    for part, each in zip(parts, back["parts"], strict=True):
        part.load_state_dict(each)
    torch.set_rng_state(back["random"])
    assert before + train(parts, 4) == whole


# -- many ranks --------------------------------------------------------------------------------------


def saved_by(comm: world.Communicator, root: Path) -> str:
    """A state of every kind of part."""
    rank, n = comm.rank, comm.size
    rows = torch.arange(21.0).view(7, 3)[7 * rank // n : 7 * (rank + 1) // n]
    state = {
        "rows": Shard(rows, (7 * rank // n, 0), (7, 3)),
        "same": {"large": torch.arange(100_000), "small": torch.tensor(2.5)},
        "own": PerRank({"random": torch.get_rng_state(), "rank": rank}),
        "rate": 0.1,
        f"stage {rank}": {"weight": torch.full((2,), rank)},
    }
    return str(save(state, root, 5, comm))


def keys_of(file: Any) -> list[str]:
    """The names of the tensors in a file; it is no dictionary."""
    return [*file.keys()]


def whole_state(n: int) -> dict[str, Any]:
    return {
        "rows": torch.arange(21.0).view(7, 3),
        "same": {"large": torch.arange(100_000), "small": torch.tensor(2.5)},
        "rate": 0.1,
        **{f"stage {rank}": {"weight": torch.full((2,), rank)} for rank in range(n)},
    }


@pytest.mark.parametrize("run", [world.simulate, world.launch])
def test_what_ranks_save_together_is_one_state(run, tmp_path):
    paths = run(saved_by, 3, args=(tmp_path,)).results
    assert len(set(paths)) == 1
    back = restore(paths[0])
    own = back.pop("own")
    assert own.value["rank"] == 0
    assert back.keys() == whole_state(3).keys()
    assert all(same(back[key], value) for key, value in whole_state(3).items())

    def returning(comm: world.Communicator) -> list[Any]:
        own = restore(paths[0], {"own": None}, comm)["own"].value
        return [own and [own["rank"], own["random"].equal(torch.get_rng_state())]]

    # Rank 3 did not exist.
    assert world.simulate(returning, 4).results[1:] == [[[1, True]], [[2, True]], [None]]


@pytest.mark.parametrize("n", [1, 2, 3, 8])
def test_every_number_is_written_once_and_every_rank_writes_as_much(n, tmp_path):
    path = Path(world.simulate(saved_by, n, args=(tmp_path,)).results[0])
    manifest = verify(path).manifest
    sizes = []
    for rank in range(n):  # as another library reads it
        with safe_open(path / name_of(rank), "pt") as file:
            sizes.append(sum(file.get_tensor(key).nbytes for key in keys_of(file)))
    states = n * torch.get_rng_state().nbytes
    assert sum(sizes) == manifest.nbytes == 21 * 4 + 800_000 + 4 + states + 16 * n
    assert max(sizes) <= 1.125 * sum(sizes) / n


def test_safetensors_itself_reads_every_file(tmp_path):
    path = Path(world.simulate(saved_by, 2, args=(tmp_path,)).results[0])
    found: dict[str, Tensor] = {}
    for rank in range(2):
        with safe_open(path / name_of(rank), "pt") as file:
            assert file.metadata() == {"step": "5", "rank": f"{rank}", "ranks": "2"}
            found |= {key: file.get_tensor(key) for key in keys_of(file)}
    rows = torch.cat([found["rows[0:3, 0:3]"], found["rows[3:7, 0:3]"]])
    assert rows.equal(torch.arange(21.0).view(7, 3))
    large = sorted(each.tolist() for key, each in found.items() if key.startswith("same/large["))
    assert [number for rows in large for number in rows] == [*range(100_000)]
    assert found["stage 1/weight"].tolist() == [1, 1]


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        (lambda r: {"a": r}, r"state\['a'\] is 1 on rank 1 and 0 on another: wrap in PerRank"),
        (lambda r: {"a": [0] * (r + 1)}, r"state\['a'\] is a list of 2 on rank 1 and a list of 1"),
        (lambda r: {"a": torch.ones(2) * r}, r"a\[0:2\] has other numbers on rank 1 than on rank"),
        (
            lambda r: {"a": torch.arange(2**18) if r == 0 else torch.arange(2**18).flip(0)},
            r"a\[0:262144\] has other numbers on rank 1 than on rank 0",
        ),
        (lambda r: {"a": torch.ones(2 + r)}, r"a is of shape \(3,\) and F32 on rank 1, and of"),
        (lambda r: {"a": torch.ones(1).to((torch.int8, torch.int16)[r])}, "I16 on rank 1, and of"),
        (lambda r: {"a": torch.ones(2) if r else 3}, "is a tensor on rank 1 and 3 on another"),
        (
            lambda r: {"a": Shard(torch.ones(2), (r,), (3,))},
            r"a\[1:2\] lies in file 0 \(with a\[0:2\]\) and in file 1 \(with a\[1:3\]\)",
        ),
        (lambda r: {"a": Shard(torch.ones(2), (3 * r,), (5,))}, r"a\[2:3\] lies in no file"),
        (lambda r: {"a": object()} if r else {}, r"rank 1: ValueError: state\['a'\] is <object"),
    ],
)
def test_states_that_do_not_fit_together_are_refused_on_every_rank(state, sentence, tmp_path):
    def program(comm: world.Communicator) -> str:
        with pytest.raises(CheckpointError, match=sentence) as error:
            save(state(comm.rank), tmp_path, 1, comm)
        return str(error.value)

    said = world.simulate(program, 2).results
    assert said[0] == said[1]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("run", [world.simulate, world.launch])
def test_ranks_that_disagree_about_the_step_are_refused_before_anything_is_written(run, tmp_path):
    def program(comm: world.Communicator) -> list[str]:
        saver, said = AsyncSaver(tmp_path, comm), []
        saver.save({"w": torch.ones(2)}, 1)
        saver.wait()
        before = os.listdir(tmp_path)
        saves = (saver.save, lambda state, step: save(state, tmp_path, step, comm))
        for each in saves:
            with pytest.raises(CheckpointError) as error:
                each({"w": torch.ones(2)}, 5 - comm.rank)
            said.append(str(error.value))
        assert os.listdir(tmp_path) == before
        return said

    sentence = "step is [5, 4, 3] on ranks 0 to 2; it must be the same on all."
    assert run(program, 3).results == [[sentence] * 2] * 3


class Odd:
    def __repr__(self) -> str:
        return "odd"


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        (
            {"a": [Odd()]},
            r"state\['a'\]\['0'\] is odd; it must be a tensor, a Shard, a PerRank, a d",
        ),
        ({(1, 2): 3}, r"A key of state is \(1, 2\); it must be text or a whole number"),
        ({1: torch.ones(1), "1": torch.ones(1)}, "is a key that another one equals as text"),
        (torch.ones(2, device="meta"), "state is on the device meta; it must be on a device that"),
        (torch.ones(2, dtype=torch.complex128), r"it must be .*pass torch.view_as_real\(it\)"),
        (torch.ones(2, 2).to_sparse(), "state is of layout torch.sparse_coo; it must be dense"),
        (PerRank([PerRank(1)]), "is a PerRank within a PerRank"),
        (np.array(["a"]), "is an array of <U1; it must be of a type that torch has"),
    ],
)
def test_what_is_no_data_is_refused_with_its_place(state, sentence, tmp_path):
    with pytest.raises((ValueError, TypeError), match=sentence):
        save(state, tmp_path, 1)
    assert not list(tmp_path.iterdir())


def test_a_state_may_be_a_hundred_deep_and_no_deeper(tmp_path):
    deep: Any = torch.ones(1)
    for _ in range(100):
        deep = {"a": deep}
    assert same(restore(save(deep, tmp_path, 1)), deep)
    endless: list[Any] = []
    endless.append(endless)
    for state in ([deep], endless):
        with pytest.raises(ValueError, match="state is more than 100 deep, or without end: make"):
            save(state, tmp_path, 1)


def test_a_shard_lies_within_its_tensor():
    with pytest.raises(ValueError, match=r"offsets is \(2,\); it must be such that a tensor of sh"):
        Shard(torch.ones(2), (2,), (3,))
    with pytest.raises(ValueError, match=r"shape is \(3, 3\); it must be of 1 numbers, as the ten"):
        Shard(torch.ones(2), (0,), (3, 3))
    with pytest.raises(ValueError, match="A number of offsets is -1"):
        Shard(torch.ones(2), (-1,), (3,))


def test_like_names_what_is_wanted_and_what_is_not_there_is_said(tmp_path):
    listed = [torch.arange(4), (torch.ones(1), 5)]
    path = save({"a": {"w": torch.ones(2), "n": [1]}, "b": np.ones(3), "c": listed}, tmp_path, 1)
    like = {"a": {"w": torch.zeros(2, device="meta")}}
    assert same(restore(path, like), {"a": {"w": torch.ones(2)}})
    assert same(restore(path, {"b": 0, "c": []}), {"b": np.ones(3), "c": listed})
    some = restore(path, {"c": [Shard(torch.zeros(2).long(), (1,), (4,)), None]})["c"]
    assert same([some[0].tensor, some[1]], [torch.tensor([1, 2]), listed[1]])
    for wrong, sentence in [
        ({"d": None}, r"like\['d'\] is not in the checkpoint, which has there \['a', 'b', 'c'\]"),
        ({"c": [torch.ones(1)]}, r"like\['c'\] has 1 values; the checkpoint has 2"),
        ({"b": [torch.ones(1)]}, r"there is no list in the checkpoint"),
        ({"a": {"w": torch.ones(3)}}, r"like\['a'\]\['w'\] is of shape \(3,\) and torch.float32; "),
        ({"a": {"w": torch.ones(2).int()}}, "the checkpoint has .2,. and torch.float32"),
        ({"a": {"w": {}}}, "there is no dictionary in the checkpoint"),
        ({"a": {"n": torch.ones(1)}}, "there is no tensor in the checkpoint"),
    ]:
        with pytest.raises(ValueError, match=sentence):
            restore(path, wrong)


def test_a_process_that_torchrun_started_is_not_taken_to_be_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(RuntimeError, match="this code runs in no world"):
        save({}, tmp_path, 1)


def test_the_same_step_saved_again_lies_beside_and_is_the_latest(tmp_path):
    first, second = save({"n": 1}, tmp_path, 7), save({"n": 2}, tmp_path, 7)
    assert (first.name, second.name) == ("step-000000000007", "step-000000000007.1")
    assert restore(latest(tmp_path)) == {"n": 2}
    assert restore(first) == {"n": 1}
    save({"n": 0}, tmp_path, 6)
    assert latest(tmp_path).folder == second


@pytest.mark.parametrize("behind", [0, 100, 2**26])
def test_the_hash_is_of_all_parts_in_order_however_far_it_stays_behind(
    behind, tmp_path, monkeypatch
):
    monkeypatch.setattr("dlsys.resilience.files._BEHIND", behind)
    parts = [bytes([i]) * n for i, n in enumerate((70, 1, 0, 500, 30, 30, 30, 30, 99))]
    written = write(tmp_path / "f", iter(parts))
    assert (tmp_path / "f").read_bytes() == b"".join(parts)
    assert written == (790, hashlib.sha256(b"".join(parts)).hexdigest())


# -- beside the training -----------------------------------------------------------------------------


@pytest.mark.parametrize("run", [world.simulate, world.launch])
def test_a_snapshot_holds_what_was_there_though_the_training_goes_on(run, tmp_path):
    def program(comm: world.Communicator) -> list[float]:
        weights, found = torch.zeros(1000), []
        with AsyncSaver(tmp_path, comm) as saver:
            for step in range(4):
                saver.save({"w": weights, "own": PerRank([step])}, step)
                weights += 1  # at once
            found.append(str(saver.wait()))
        assert saver.wait() is None
        return found

    ended = run(program, 2).results
    assert ended[0] == ended[1] == [str(tmp_path / "step-000000000003")]
    names = sorted(os.listdir(tmp_path))
    assert names == [f"step-{step:012d}" for step in range(4)]
    for step, name in enumerate(names):
        state = restore(tmp_path / name)
        assert state["w"].equal(torch.full((1000,), float(step)))
        assert state["own"].value == [step]


def test_an_error_beside_the_training_surfaces_once_at_the_next_call_on_every_rank(tmp_path):
    def program(comm: world.Communicator) -> list[str]:
        saver, said = AsyncSaver(tmp_path, comm), []
        weights = torch.ones(10_000)
        saver.save({"w": weights}, 1)
        saver.wait()
        if comm.rank == 1:  # no file of it may grow beyond this: write returns EFBIG
            resource.setrlimit(resource.RLIMIT_FSIZE, (1500, resource.RLIM_INFINITY))
        saver.save({"w": weights}, 2)
        for step in (3, 4):
            try:
                saver.save({"w": weights}, step)
            except CheckpointError as error:
                said.append(str(error))
                resource.setrlimit(resource.RLIMIT_FSIZE, [resource.RLIM_INFINITY] * 2)
        saver.wait()
        return said

    said = world.launch(program, 2).results
    assert said[0] == said[1]
    assert len(said[0]) == 1
    assert said[0][0].startswith("the save of step 2 failed: rank 1: OSError: [Errno 27]")
    assert steps(tmp_path) == [1, 4]


SCRIPT = """
import resource, sys, torch
from dlsys.resilience import AsyncSaver
resource.setrlimit(resource.RLIMIT_FSIZE, (2**25, 2**25))
good, full = AsyncSaver(sys.argv[1] + "/good"), AsyncSaver(sys.argv[1] + "/full")
good.save({"w": torch.ones(2**22)}, 1)
full.save({"w": torch.ones(2**24)}, 1)
"""


def test_a_process_that_ends_waits_for_its_save_and_says_what_went_wrong(tmp_path):
    command = [sys.executable, "-c", SCRIPT, tmp_path]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert latest(tmp_path / "good").step == 1
    assert latest(tmp_path / "full") is None
    assert ended.stderr.startswith("step-000000000001 was not saved: [Errno 27] File too large")
    assert ended.stderr.count("\n") == 1


def test_a_saver_is_of_one_thread_at_a_time(tmp_path, monkeypatch):
    saver, amid, told = AsyncSaver(tmp_path), threading.Event(), threading.Event()
    copied = AsyncSaver._copied

    def slow(self: AsyncSaver, gathered: Any) -> Any:
        amid.set()
        told.wait(60)
        return copied(self, gathered)

    monkeypatch.setattr(AsyncSaver, "_copied", slow)
    other = threading.Thread(target=saver.save, args=({"n": 1}, 1))
    other.start()
    amid.wait(60)
    for call in (lambda: saver.save({"n": 2}, 2), saver.wait):
        with pytest.raises(
            RuntimeError, match=r"^(save|wait) was called while another thread is in"
        ):
            call()
    told.set()
    other.join()
    assert saver.wait() == tmp_path / "step-000000000001"
    saver.save({"n": 2}, 2)
    assert saver.wait() == tmp_path / "step-000000000002"


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # of a fork beside threads
def test_a_fork_of_a_process_uses_its_saver_not(tmp_path):
    with AsyncSaver(tmp_path) as saver:
        saver.save({"w": torch.ones(10)}, 1)

        def child() -> list[str]:
            said = []
            for call in (lambda: saver.save({}, 2), saver.wait):
                with pytest.raises(RuntimeError) as error:
                    call()
                said.append(str(error.value))
            return said

        said = in_a_child(child)
        assert said[0].startswith(f"save was called in a fork of process {os.getpid()}, which")
        assert said[1].startswith("wait was called in a fork of process")
    assert latest(tmp_path).step == 1
    assert restore(latest(tmp_path))["w"].equal(torch.ones(10))


# -- rotation ------------------------------------------------------------------------------------------


def steps(root: Path) -> list[int]:
    return [int(name[5:]) for name in sorted(os.listdir(root))]


def test_the_last_and_every_so_manyth_stay(tmp_path):
    for step in range(0, 100, 10):
        save({"n": step}, tmp_path, step)
    deleted = rotate(tmp_path, 2, every=40)
    assert steps(tmp_path) == [0, 40, 80, 90]
    assert [int(path.name[5:]) for path in deleted] == [70, 60, 50, 30, 20, 10]
    assert rotate(tmp_path, 2, every=40) == []
    with AsyncSaver(tmp_path, keep=1) as saver:
        saver.save({}, 100)
        saver.save({}, 110)
    assert steps(tmp_path) == [110]


def test_the_only_good_one_is_never_deleted(tmp_path):
    for step in range(5):
        save({"n": step}, tmp_path, step)
    for step in (2, 3, 4):
        os.truncate(tmp_path / f"step-{step:012d}" / "manifest.json", 10)
    rotate(tmp_path, 2)
    assert steps(tmp_path) == [1, 3, 4]
    assert latest(tmp_path).step == 1
    save({"n": 5}, tmp_path, 5)
    rotate(tmp_path, 2)
    assert steps(tmp_path) == [4, 5]


def test_what_was_just_saved_stays_though_there_are_later_steps(tmp_path):
    for step in (10, 20, 30):
        save({"n": step}, tmp_path, step)
    with AsyncSaver(tmp_path, keep=2) as saver:
        saver.save({"n": 11}, 11)
        assert saver.wait() == tmp_path / "step-000000000011"
    assert steps(tmp_path) == [11, 20, 30]
