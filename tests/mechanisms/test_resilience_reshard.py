"""What some ranks have saved, others restore: any number of them, on any mesh, and each reads its own."""

from __future__ import annotations

import functools
import itertools
import math
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from dlsys import world
from dlsys.model import GPT
from dlsys.resilience import (
    Checkpoint,
    CheckpointError,
    FileEntry,
    Manifest,
    Read,
    Region,
    Shard,
    TensorEntry,
    restore,
    save,
    verify,
)
from dlsys.resilience.boxes import Box, Index, room_at
from dlsys.tensor_parallel import ColumnParallelLinear, RowParallelLinear
from dlsys.transformer import TransformerSpec
from dlsys.zero import FullyShardedDataParallel, LocalShard, ShardedOptimizer

WORLDS = (1, 2, 3, 4, 8)


def part(rank: int, ranks: int, size: int) -> tuple[int, int]:
    """First and end of a rank's part of an axis that need not divide."""
    return rank * size // ranks, (rank + 1) * size // ranks


def shard(whole: Tensor, mesh: tuple[int, ...], place: tuple[int, ...]) -> Shard:
    """The part of a tensor at a place of a mesh that cuts axis k into mesh[k] parts."""
    cuts = [part(p, m, n) for p, m, n in zip(place, mesh, whole.shape, strict=True)]
    mine = whole[tuple(slice(*cut) for cut in cuts)]
    return Shard(mine.clone(), tuple(first for first, _ in cuts), tuple(whole.shape))


def saved(root: Path, whole: Tensor, mesh: tuple[int, ...], copies: int = 1) -> str:
    """Saved by a mesh of simulated ranks, each part held by as many of them."""
    places = [place for _ in range(copies) for place in itertools.product(*map(range, mesh))]

    def program(comm: world.Communicator) -> str:
        return str(save({"w": shard(whole, mesh, places[comm.rank])}, root, 1, comm))

    return world.simulate(program, len(places)).results[0]


def restored(path: str, whole: Tensor, mesh: tuple[int, ...]) -> list[Shard]:
    places = [*itertools.product(*map(range, mesh))]
    empty = torch.empty_like(whole, device="meta")

    def program(comm: world.Communicator) -> list[Any]:
        like = {"w": shard(empty, mesh, places[comm.rank])}
        back = restore(path, like, comm)["w"]
        assert (back.offsets, back.shape) == (like["w"].offsets, like["w"].shape)
        return [back.tensor.equal(shard(whole, mesh, places[comm.rank]).tensor)]

    return world.simulate(program, len(places)).results


def written(whole: Tensor, mesh: tuple[int, ...]) -> Manifest:
    """The manifest of a tensor on a mesh, a file for each place."""
    regions = [
        Region("w", each.offsets, tuple(each.tensor.shape))
        for place in itertools.product(*map(range, mesh))
        for each in [shard(whole, mesh, place)]
    ]
    entry = TensorEntry("w", tuple(whole.shape), "F32")
    return Manifest(1, (entry,), tuple(FileEntry((region,)) for region in regions))


# -- any number of ranks, any mesh ---------------------------------------------------------------


@pytest.mark.parametrize("n", WORLDS)
def test_every_number_of_ranks_restores_what_any_number_has_saved(n, tmp_path):
    whole = torch.randn(13, 5, generator=torch.Generator().manual_seed(0))
    path = saved(tmp_path, whole, (n, 1))
    for m in WORLDS:
        assert restored(path, whole, (m, 1)) == [[True]] * m
        assert restored(path, whole, (1, m)) == [[True]] * m


@pytest.mark.parametrize(
    ("before", "copies", "after"),
    [((1, 2), 2, (4, 1)), ((1, 2), 2, (1, 4)), ((2, 2), 1, (1, 3)), ((3, 2), 2, (2, 4))],
    ids=str,
)
def test_a_mesh_restores_what_another_mesh_has_saved(before, copies, after, tmp_path):
    whole = torch.randn(70, 331, generator=torch.Generator().manual_seed(1))
    path = saved(tmp_path, whole, before, copies)
    manifest = verify(path).manifest
    assert manifest.nbytes == whole.nbytes  # copies are written once, and not by one rank
    assert sum(r.elements for f in manifest.files for r in f.regions) == whole.numel()
    if copies > 1:
        assert sum(map(bool, (f.regions for f in manifest.files))) > math.prod(before)
    assert restored(path, whole, after) == [[True]] * math.prod(after)


def meshes(axes: int) -> st.SearchStrategy[tuple[int, ...]]:
    return st.lists(st.integers(1, 2 if axes > 2 else 3), min_size=axes, max_size=axes).map(tuple)


@settings(max_examples=40)
@given(st.data())
def test_any_part_is_read_from_any_mesh_bit_for_bit(tmp_path_factory, data):
    shape = data.draw(st.lists(st.integers(0, 6), min_size=1, max_size=4))
    whole = torch.randn(shape, generator=torch.Generator().manual_seed(2))
    mesh, again = data.draw(meshes(len(shape))), data.draw(meshes(len(shape)))
    root = tmp_path_factory.getbasetemp() / "any mesh"
    path = Path(saved(root, whole, mesh))
    found = verify(path)
    for place in itertools.product(*map(range, again)):
        like = shard(whole, again, place)
        assert restore(found, {"w": like})["w"].tensor.equal(like.tensor)
    for each in root.iterdir():
        for file in each.iterdir():
            file.unlink()
        each.rmdir()


# -- what has to be read -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"), [*itertools.product([(4, 1), (1, 4), (2, 3)], [(3, 1), (1, 8), (2, 2)])]
)
def test_together_the_ranks_read_every_number_once_and_each_no_other_than_its_own(before, after):
    whole = torch.empty(24, 48)
    manifest = written(whole, before)
    manifest.check()
    counts = torch.zeros(24, 48, dtype=torch.int)
    for place in itertools.product(*map(range, after)):
        mine = shard(whole, after, place)
        region = Region("w", mine.offsets, tuple(mine.tensor.shape))
        reads = manifest.reads([region])
        assert sum(each.nbytes for each in reads) == mine.tensor.nbytes
        for each in reads:
            assert each.part.box.common(region.box) == each.part.box
            assert each.part.box.common(each.stored.box) == each.part.box
            assert each.stored in manifest.files[each.file].regions
            box = zip(each.part.offsets, each.part.box.ends, strict=True)
            counts[tuple(slice(*cut) for cut in box)] += 1
    assert counts.eq(1).all()


def test_what_is_read_is_told_by_its_tensor_in_the_order_in_which_it_lies_in_the_files():
    z, first = Region("z", (0,), (3,)), Region("a", (0, 0), (2, 2))
    second = Region("a", (2, 0), (2, 2))
    tensors = TensorEntry("a", (4, 2), "F32"), TensorEntry("z", (3,), "F64")
    manifest = Manifest(1, tensors, (FileEntry((z, first)), FileEntry((second,))))
    assert manifest.reads([Region("a", (1, 0), (2, 2)), Region("z", (1,), (1,))]) == [
        Read(0, z, 0, Region("z", (1,), (1,)), 8, wanted=1),
        Read(0, first, 3 * 8, Region("a", (1, 0), (1, 2)), 8, wanted=0),
        Read(1, second, 0, Region("a", (2, 0), (1, 2)), 8, wanted=0),
    ]


def bytes_read(program: Callable[[], Any]) -> tuple[Any, int]:
    """What a program returns, and what this process has read meanwhile, as the system counts it."""

    def count() -> tuple[int, int]:
        """Bytes read so far, and how many of its own this question reads."""
        text = Path("/proc/self/io").read_text()
        told = next(line for line in text.splitlines() if line.startswith("rchar"))
        return int(told.split()[1]), len(text)

    before, own = count()
    result = program()
    return result, count()[0] - before - own


@pytest.mark.parametrize("axis", [0, 1])
def test_a_rank_of_a_real_world_reads_the_bytes_of_its_part_and_no_others(axis, tmp_path):
    whole = torch.arange(96.0 * 8_000).view(96, 8_000)
    found = verify(saved(tmp_path, whole, (4, 1)))

    def program(comm: world.Communicator) -> tuple[int, int, bool]:
        mesh = (3, 1) if axis == 0 else (1, 3)
        place = (comm.rank, 0) if axis == 0 else (0, comm.rank)
        like = shard(torch.empty_like(whole, device="meta"), mesh, place)
        restore(Checkpoint(*found), {"w": like}, comm)  # which imports what it needs
        back, nbytes = bytes_read(lambda: restore(Checkpoint(*found), {"w": like}, comm))
        right = torch.arange(96.0 * 8_000).view(96, 8_000)
        return nbytes, like.tensor.nbytes, back["w"].tensor.equal(shard(right, mesh, place).tensor)

    for nbytes, needed, is_right in world.launch(program, 3).results:
        assert is_right
        assert nbytes == needed


def test_narrow_columns_are_read_with_what_is_between_them_as_a_disk_gives_pages(tmp_path):
    whole = torch.arange(1000.0 * 8).view(1000, 8)
    found = verify(save({"w": whole}, tmp_path, 1))
    like = {"w": shard(whole, (1, 4), (0, 1))}
    back, nbytes = bytes_read(lambda: restore(found, like))
    assert back["w"].tensor.equal(whole[:, 2:4])
    assert nbytes == whole.nbytes - 6 * 4  # from the first number to the last, in one piece


def calls(program: Callable[[], Any]) -> int:
    """How many calls of Python functions a program makes."""
    number = [0]

    def count(frame: Any, event: str, arg: Any) -> None:
        number[0] += event == "call"

    sys.setprofile(count)
    try:
        program()
    finally:
        sys.setprofile(None)
    return number[0]


def test_proof_and_reads_take_time_in_proportion_to_the_pieces():
    def of(n: int) -> int:
        manifest = written(torch.empty(4 * n, 4 * n, device="meta"), (n, n))
        wanted = [region for file in manifest.files for region in file.regions]
        random.Random(0).shuffle(wanted)
        return calls(lambda: (manifest.check(), manifest.reads(wanted)))

    assert of(32) < 5.2 * of(16)  # 4 times as many pieces, and the logarithm


class Asked(Box):
    """A box that counts how often its ends are looked at."""

    looks = 0

    @property
    def ends(self) -> tuple[int, ...]:
        Asked.looks += 1
        return super().ends


def test_a_question_about_one_box_looks_at_those_around_it_alone():
    # Furthest apart on the second axis, and in the order of none.
    boxes = [Box((10**6 + i % 3, i), (1, 1)) for i in range(1024)]
    random.Random(0).shuffle(boxes)
    index = Index((box, None) for box in boxes)
    for box in boxes[::50]:
        Asked.looks = 0
        assert index.meeting(Asked(*box)) == [(box, None)]
        # What is around all, seven times around two halves, and then eight boxes one by one.
        assert Asked.looks <= 1 + 2 * 7 + 8


def test_what_belongs_to_boxes_that_are_alike_needs_no_order():
    boxes = [Box((i // 2,), (1,)) for i in range(20)]
    assert Index([]).meeting(boxes[0]) == []
    assert Index((box, {}) for box in boxes).meeting(boxes[6]) == [(boxes[6], {})] * 2


# -- the proof that pieces are a tensor ------------------------------------------------------------


def cut_at_random(shape: tuple[int, ...], times: int, draw: random.Random) -> list[Region]:
    """A tensor cut in two again and again."""
    regions = [Region("w", (0,) * len(shape), shape)]
    for _ in range(times):
        region = regions.pop(draw.randrange(len(regions)))
        axis = draw.randrange(len(shape))
        first = draw.randint(0, region.sizes[axis])
        for begin, size in ((0, first), (first, region.sizes[axis] - first)):
            offsets, sizes = [*region.offsets], [*region.sizes]
            offsets[axis] += begin
            sizes[axis] = size
            regions.append(Region("w", tuple(offsets), tuple(sizes)))
    return regions


def counted(regions: list[Region], shape: tuple[int, ...]) -> Tensor:
    """How many regions hold each element."""
    counts = torch.zeros(shape, dtype=torch.int)
    for region in regions:
        counts[tuple(slice(*c) for c in zip(region.offsets, region.box.ends, strict=True))] += 1
    return counts


def manifest_with(regions: list[Region], shape: tuple[int, ...]) -> Manifest:
    files = tuple(FileEntry((region,)) for region in regions)
    return Manifest(1, (TensorEntry("w", shape, "F32"),), files)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=3), st.integers(0, 8), st.randoms())
def test_the_proof_agrees_with_counting_and_names_an_element_that_is_wrong(sizes, times, draw):
    shape = tuple(sizes)
    regions = cut_at_random(shape, times, draw)
    manifest_with(regions, shape).check()
    change = draw.randrange(4)
    place = draw.randrange(len(regions))
    if change == 0:
        regions.pop(place)
    elif change == 1:
        regions.append(regions[place])
    else:  # moved or resized, still within the tensor
        at = [draw.randint(0, n) for n in shape]
        regions[place] = Region(
            "w", tuple(at), tuple(draw.randint(0, n - o) for o, n in zip(at, shape, strict=True))
        )
    counts = counted(regions, shape)
    if counts.eq(1).all():
        manifest_with(regions, shape).check()
        return
    with pytest.raises(ValueError, match=r"^w\[") as error:
        manifest_with(regions, shape).check()
    said = str(error.value)
    box = said[2 : said.index("]")]
    named = counts[tuple(slice(*map(int, each.split(":"))) for each in box.split(", "))]
    assert named.eq(0).all() if said.endswith("] lies in no file.") else named.ge(2).all()


@pytest.mark.parametrize(
    ("regions", "sentence"),
    [
        ([((0, 0), (2, 6)), ((3, 0), (1, 6))], r"^w\[2:3, 0:6\] lies in no file\.$"),
        ([((0, 0), (4, 5))], r"^w\[0:4, 5:6\] lies in no file\.$"),
        (
            [((0, 0), (3, 6)), ((2, 0), (2, 6))],
            r"^w\[2:3, 0:6\] lies in file 0 \(with w\[0:3, 0:6\]\) and in file 1 \(with w\[2:4, 0:6",
        ),
        (
            [((0, 0), (2, 6)), *[((2, 0), (2, 6))] * 2],
            r"^w\[2:4, 0:6\] lies in file 1 \(with w\[2:4, 0:6\]\) and in file 2 \(",
        ),
        ([((0, 0), (4, 7))], r"^File 0 holds w\[0:4, 0:7\], which is not within w\[0:4, 0:6\]\.$"),
        ([((0,), (4,))], r"^File 0 holds w with offsets \(0,\) and sizes \(4,\), and its shape is"),
        ([((-1, 0), (5, 6))], r"^File 0 holds w\[-1:4, 0:6\], which is not within"),
        ([((0, 0), (4, 6))] * 3, r"^w\[0:4, 0:6\] lies in file 0 \(.*\) and in file 1 \("),
    ],
)
def test_an_overlap_a_gap_and_what_lies_outside_are_named(regions, sentence):
    with pytest.raises(ValueError, match=sentence):
        manifest_with([Region("w", *each) for each in regions], (4, 6)).check()


def test_scalars_and_empty_tensors_are_proved_too():
    manifest_with([Region("w", (), ())], ()).check()
    manifest_with([], (0, 3)).check()
    manifest_with([Region("w", (0, 0), (0, 3))], (0, 3)).check()
    with pytest.raises(ValueError, match=r"^w lies in no file"):
        manifest_with([], ()).check()
    with pytest.raises(ValueError, match=r"^w lies in file 0 \(with w\) and in file 1"):
        manifest_with([Region("w", (), ())] * 2, ()).check()
    manifest_with([Region("w", (0,) * 17, (0, *(1,) * 16))], (0, *(2,) * 16)).check()
    assert room_at((), [], ()) == Box((), ())
    with pytest.raises(ValueError, match="w is cut along 17 axes; 16 are allowed"):
        manifest_with([Region("w", (0,) * 17, (1,) * 17)], (2,) * 17).check()
    with pytest.raises(ValueError, match=r"^File 0 holds v\[0:4\], and there is no such tensor\.$"):
        manifest_with([Region("v", (0,), (4,))], (4,)).check()
    with pytest.raises(ValueError, match=r"^'w' is the name of two tensors"):
        Manifest(1, (TensorEntry("w", (0,), "F32"),) * 2, ()).check()


def test_what_no_tensor_has_is_not_read():
    manifest = manifest_with([Region("w", (0,), (4,))], (4,))
    with pytest.raises(ValueError, match=r"regions is 'v\[0:1\]'; it must be of tensors that the"):
        manifest.reads([Region("v", (0,), (1,))])
    with pytest.raises(ValueError, match=r"regions is 'w\[2:6\]'; it must be within w\[0:4\]"):
        manifest.reads([Region("w", (2,), (4,))])
    with pytest.raises(ValueError, match=r"^regions is \('w', .*\); it must be a Region each\.$"):
        manifest.reads([("w", (0,), (4,))])
    with pytest.raises(ValueError, match=r"^file is 1; it must be at most 0\.$"):
        manifest.begins(1)


# -- those who save like this ----------------------------------------------------------------------

SPEC = TransformerSpec(layers=2, hidden=8, heads=2, vocab=11, sequence=4, tied=False)


def shards(states: Any) -> Any:
    """What a sharded optimizer or model tells of its parts, as a checkpoint takes it."""
    as_shard = lambda each: Shard(each.tensor, (each.offset,), (each.elements,))  # noqa: E731
    return tree_map_only(LocalShard, as_shard, states)


def places(states: Any) -> Any:
    """The same, to ask for weights and whatever was saved beside them."""
    return {name: each["weight"] for name, each in shards(states).items()}


def fully_sharded(comm: world.Communicator) -> tuple[FullyShardedDataParallel, Any]:
    torch.manual_seed(3)
    model = FullyShardedDataParallel(GPT(SPEC), comm)
    return model, torch.optim.AdamW(model.parameters(), 0.1)


def trained(model: Any, optimizer: torch.optim.Optimizer, steps: range) -> list[float]:
    """Every rank has the same batch, so that means over 1, 2, 4 or 8 ranks are exact."""
    losses = []
    for step in steps:
        words = torch.randint(11, (2, 5), generator=torch.Generator().manual_seed(step))
        loss = model(words[:, :-1].contiguous(), words[:, 1:].contiguous())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_a_fully_sharded_model_goes_on_with_another_number_of_ranks(tmp_path):
    torch.manual_seed(3)
    plain = GPT(SPEC)
    losses = trained(plain, torch.optim.AdamW(plain.parameters(), 0.1), range(4))

    def before(comm: world.Communicator) -> str:
        model, optimizer = fully_sharded(comm)
        assert trained(model, optimizer, range(2)) == pytest.approx(losses[:2], rel=1e-6)
        return str(save(shards(model.local_shards(optimizer)), tmp_path, 2, comm))

    def after(comm: world.Communicator) -> list[Any]:
        model, optimizer = fully_sharded(comm)
        states = restore(path, places(model.local_shards()), comm)
        model.load_local_shards(states, optimizer)
        whole = model.full_parameters()
        return [whole, trained(model, optimizer, range(2, 4))]

    path = world.simulate(before, 4).results[0]
    first: dict[str, Tensor] | None = None
    for ranks in (1, 2, 8):
        for whole, went_on in world.simulate(after, ranks).results:
            first = first or whole
            assert all(whole[name].equal(each) for name, each in first.items())
            assert went_on == pytest.approx(losses[2:], rel=1e-6)


class Linears(nn.Module):
    """36 + 18 numbers, whose gradients are whole numbers that do not depend on them: their mean is
    exact over any number of ranks."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.layers = nn.ModuleList([nn.Linear(5, 6), nn.Linear(5, 3)])

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([layer(x).sum() for layer in self.layers]).sum()


def new(stage: int, comm: world.Communicator | None) -> tuple[Any, Any, Any, Any]:
    """A model and its optimizer, what tells of this rank's parts, and what takes them."""
    model: Any = Linears()
    options: Any = {"lr": 0.1, "amsgrad": True}
    if stage == 0:
        return model, torch.optim.AdamW(model.parameters(), **options), None, None
    if stage == 3:
        model = FullyShardedDataParallel(model, comm)
        adamw = torch.optim.AdamW(model.parameters(), **options)
        local = functools.partial(model.local_shards, adamw)
        return model, adamw, local, lambda states: model.load_local_shards(states, adamw)
    named = model.named_parameters()
    sharded = ShardedOptimizer(named, torch.optim.AdamW, comm, stage=stage, **options)
    return model, sharded, sharded.local_shards, sharded.load_local_shards


def exactly_trained(model: Any, optimizer: Any, steps: range) -> None:
    for step in steps:
        optimizer.param_groups[0]["lr"] = 0.1 * 0.5**step  # as a schedule of a Trainer does
        optimizer.zero_grad()
        x = torch.randint(-4, 5, (2, 5), generator=torch.Generator().manual_seed(step))
        model(x.float()).backward()
        optimizer.step()


def begun(comm: world.Communicator, stage: int, root: Path) -> str:
    model, optimizer, local, _ = new(stage, comm)
    exactly_trained(model, optimizer, range(3))
    return str(save({"parts": shards(local())}, root, 3, comm))


def gone_on(comm: world.Communicator, stage: int, path: str) -> dict[str, Tensor]:
    model, optimizer, local, load = new(stage, comm)
    load(restore(path, {"parts": places(local())}, comm)["parts"])
    exactly_trained(model, optimizer, range(3, 6))
    if stage == 3:
        return model.full_parameters()
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def on_one_device() -> dict[str, Tensor]:
    model, optimizer, *_ = new(0, None)
    exactly_trained(model, optimizer, range(6))
    return {name: p.detach() for name, p in model.named_parameters()}


@pytest.mark.parametrize(
    ("stages", "saving"),
    [((1, 1), 1), ((1, 1), 4), ((2, 1), 2), ((3, 3), 2), ((3, 3), 4), ((1, 3), 1), ((3, 1), 4)],
    ids=str,
)
def test_sharded_training_goes_on_bit_for_bit_on_another_number_of_ranks(stages, saving, tmp_path):
    right, (first, then) = on_one_device(), stages
    path = world.simulate(begun, saving, args=(first, tmp_path)).results[0]
    manifest = verify(path).manifest
    entries = {t.name: math.prod(t.shape) for t in manifest.tensors}
    assert {name for name in entries if "0.bias" in name} == {
        f"parts/layers.0.bias/{key}"
        for key in ("weight", "exp_avg", "exp_avg_sq", "max_exp_avg_sq", "step")
    }
    assert sum(n for name, n in entries.items() if not name.endswith("step")) == 4 * (36 + 18)
    for ranks in (1, 3, 5):
        for found in world.simulate(gone_on, ranks, args=(then, path)).results:
            torch.testing.assert_close(found, right, rtol=0, atol=0)


def test_real_processes_go_on_bit_for_bit_with_what_others_have_saved(tmp_path):
    path = world.launch(begun, 2, args=(1, tmp_path)).results[0]
    for found in world.launch(gone_on, 3, args=(3, path)).results:
        torch.testing.assert_close(found, on_one_device(), rtol=0, atol=0)


def test_a_rank_that_asks_for_its_part_of_all_beside_a_weight_gets_no_more(tmp_path):
    state = {
        "w": {
            "weight": torch.arange(6.0),
            "moment": torch.arange(6).double(),
            "inner": {"square": torch.arange(6.0) ** 2, "names": ["a"]},
            "step": torch.tensor(3.0),
            "factor": torch.ones(2, 3),
            "row": torch.ones(7),
            "array": np.ones(6),
            "lr": 0.5,
        }
    }
    found = restore(save(state, tmp_path, 1), {"w": Shard(torch.empty(2), (3,), (6,))})["w"]
    assert found.keys() == state["w"].keys()
    for part, dtype in ((found["weight"], torch.float32), (found["moment"], torch.float64)):
        assert (part.offsets, part.shape) == ((3,), (6,))
        assert part.tensor.equal(torch.tensor([3, 4], dtype=dtype))
    assert found["inner"]["square"].tensor.tolist() == [9, 16]
    assert (found["inner"]["names"], found["lr"]) == (["a"], 0.5)
    assert found["step"].equal(torch.tensor(3.0))
    assert (found["factor"].shape, found["row"].shape) == ((2, 3), (7,))
    assert isinstance(found["array"], np.ndarray)


def of_layer(layer: ColumnParallelLinear | RowParallelLinear) -> dict[str, Any]:
    """The parameters of a layer as shards."""
    found = {}
    for name, cut in layer.cuts.items():
        offsets = [0] * len(cut.shape)
        if cut.dimension is not None:
            offsets[cut.dimension] = cut.bounds(layer.comm.rank)[0]
        mine = layer.get_parameter(name).detach()
        found[name] = Shard(mine, tuple(offsets), cut.shape)
    return found


def test_tensor_parallel_layers_of_two_groups_of_two_are_restored_by_four(tmp_path):
    def layers(comm: world.Communicator) -> tuple[ColumnParallelLinear, RowParallelLinear]:
        torch.manual_seed(5)
        return ColumnParallelLinear(6, 12, comm=comm), RowParallelLinear(12, 6, comm=comm)

    def before(comm: world.Communicator) -> str:
        tp = comm.split(comm.rank // 2, axis="tp")
        state = {str(i): of_layer(layer) for i, layer in enumerate(layers(tp))}
        return str(save(state, tmp_path, 1, comm))

    def after(comm: world.Communicator) -> list[bool]:
        found = []
        for i, layer in enumerate(layers(comm)):
            back = restore(path, {str(i): of_layer(layer)}, comm)[str(i)]
            right = of_layer(layer)  # drawn from the same seed
            found += [each.tensor.equal(right[name].tensor) for name, each in back.items()]
        return found

    path = world.simulate(before, 4).results[0]
    assert world.simulate(after, 4).results == [[True] * 4] * 4
    torch.manual_seed(5)
    plain = nn.Sequential(nn.Linear(6, 12), nn.Linear(12, 6))
    back = restore(path)
    assert all(each.equal(back[k[0]][k[2:]]) for k, each in plain.state_dict().items())


# -- a second opinion --------------------------------------------------------------------------------


def both_ways(comm: world.Communicator, root: Path) -> list[bool]:
    """The same state through torch's own checkpoints and through ours."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, distribute_tensor
    from torch.distributed.tensor import Shard as CutAlong

    mesh = init_device_mesh("cpu", (comm.size,))
    whole = torch.randn(7, 5, generator=torch.Generator().manual_seed(6))
    rest = {"same": torch.arange(100), "half": torch.ones(3, dtype=torch.bfloat16), "n": 3}
    cut: DTensor = distribute_tensor(whole, mesh, [CutAlong(0)])
    dcp.save({"w": cut, **rest}, checkpoint_id=root / "torch")
    with pytest.raises(CheckpointError, match=r"rank 1: ValueError: state\['w'\] is a DTensor"):
        save({"w": cut}, root / "ours", 1, comm)
    first = 4 * comm.rank  # DTensor's parts have ceil(7 / 2) rows
    path = save({"w": Shard(cut.to_local(), (first, 0), (7, 5)), **rest}, root / "ours", 1, comm)
    found = []
    for axis in (0, 1):  # as it was cut, and along the other axis
        empty = distribute_tensor(torch.zeros(7, 5), mesh, [CutAlong(axis)])
        theirs = {"w": empty, "same": torch.zeros(100).long(), "half": rest["half"] * 0, "n": 0}
        dcp.load(theirs, checkpoint_id=root / "torch")
        mine = theirs["w"].to_local()
        offsets = (first, 0) if axis == 0 else (0, 3 * comm.rank)
        like = {"w": Shard(torch.empty_like(mine), offsets, (7, 5)), "same": None, "half": None}
        ours = restore(path, {**like, "n": None}, comm)
        found += [ours["w"].tensor.equal(mine), ours["n"] == theirs["n"] == 3]
        found += [ours[key].equal(theirs[key]) for key in ("same", "half")]
    return found


def test_what_torchs_own_checkpoints_give_back_is_what_ours_do(tmp_path):
    assert world.launch(both_ways, 2, args=(tmp_path,)).results == [[True] * 8] * 2
