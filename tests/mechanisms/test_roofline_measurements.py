"""What an H100 took, held against plans and prices; and steps counted where nothing is computed."""

import json
import runpy
from dataclasses import replace
from importlib.resources import files

import pytest
import torch
from torch.nn import functional as F

from dlsys.hardware import DEVICES
from dlsys.model import GPT, SMALL
from dlsys.roofline import (
    PROCESSORS,
    Machine,
    Tile,
    as_one,
    choose_tile,
    count_operations,
    count_step,
    decode_batch,
    draw_beside,
    draw_measured,
    inferred_bubble,
    matmul,
    on_h100,
    place,
    tiled,
)
from dlsys.transformer import CATALOGUE
from tests.contents import ROOT

H100, TOOK = DEVICES["h100-sxm"], on_h100()


def test_every_number_of_the_file_is_read_and_none_else():
    held = json.loads(files("dlsys.roofline").joinpath("h100.json").read_text("utf-8"))
    squares = held.pop("squares")
    assert set(held) == set(TOOK._fields)
    for part in ("decode", "waves", "vocabulary"):
        assert {str(size): run.seconds for size, run in getattr(TOOK, part).items()} == held[part]
    named = {f"square {n}": s for n, s in squares.items()} | held["operations"]
    assert {name: run.seconds for name, run in TOOK.operations.items()} == named
    for part in ("ladder", "recomputation"):
        assert {n: rung._asdict() for n, rung in getattr(TOOK, part).items()} == held[part]
    for part in ("streams", "formats", "fusion", "launches", "optimizers", "device", "torch"):
        assert getattr(TOOK, part) == held[part]


def test_what_is_planned_has_the_shapes_that_the_benchmark_multiplies():
    bench = runpy.run_path(str(ROOT / "bench" / "h100.py"))
    parts = bench["PARTS"]
    # There may be no GPU here, so what a product would be stands for the seconds that it took.
    parts["waves"].__globals__["product"] = lambda m, k, n: matmul(m, k, n)
    for part in ("waves", "decode", "vocabulary"):
        planned = {size: run.operation for size, run in getattr(TOOK, part).items()}
        assert parts[part]() == planned
    squares = {f"square {n}": operation for n, operation in parts["squares"]().items()}
    assert squares.items() <= {n: run.operation for n, run in TOOK.operations.items()}.items()


def test_no_operation_is_above_the_roof_and_large_ones_are_not_far_below():
    timed = [*TOOK.operations.values(), *TOOK.decode.values(), *TOOK.waves.values()]
    shares = [run.share(H100) for run in timed]
    assert max(shares) < 1
    large = {n: r for n, r in TOOK.operations.items() if not n.startswith("square")}
    assert min(run.share(H100) for run in large.values()) > 0.35


MADE = {
    "relu": lambda x: F.relu(x),
    "gelu": lambda x: F.gelu(x),
    "tanh": lambda x: torch.tanh(x),
    "sigmoid": lambda x: torch.sigmoid(x),
    "add": lambda x: x + x.clone(),
    "dropout": lambda x: torch.native_dropout(x, 0.1, True),
    "layer norm": lambda x: F.layer_norm(x, x.shape[1:], x[0], x[1]),
}


@pytest.mark.parametrize("name", MADE)
def test_a_measured_operation_is_planned_as_torch_runs_it(name):
    tokens, hidden = 1638, 1228  # a tenth of what was measured, either way
    x = torch.empty(tokens * 10, hidden * 10, dtype=torch.bfloat16, device="meta")
    counted = count_operations(lambda: MADE[name](x)).operations[-1]
    planned = TOOK.operations[name].operation
    scale = (16_384 * 12_288) / x.numel()
    assert planned.nbytes == pytest.approx(counted.nbytes * scale, rel=2e-3)
    assert planned.flops == pytest.approx(counted.flops * scale, rel=2e-3)


def test_flash_attention_is_planned_as_half_of_what_is_counted_without_the_mask():
    plain, flash = (count_step(SMALL, 2, flash=each, fused=True) for each in (False, True))
    scores = sum(SMALL.operations(2)[name] for name in ("scores", "weighted_sum"))
    assert flash.product_flops - plain.product_flops == scores * 3 // 6
    run = TOOK.operations["flash attention 384 x 1024 x 64"].operation
    assert run.flops == (2 * 2 * 1024 * 1024 * 64) * 384 // 2
    assert run.nbytes == 4 * (2 * 384 * 1024 * 64) + 4 * 384 * 1024


def test_a_decode_batch_costs_next_to_nothing_up_to_the_corner_and_in_proportion_from_there():
    seconds = {b: run.seconds for b, run in TOOK.decode.items()}
    below = [b for b in seconds if b < decode_batch(H100)]
    assert max(below) == 256
    assert seconds[256] < 1.15 * seconds[1]
    assert seconds[1024] > 1.9 * seconds[512] > 1.9 * 1.7 * seconds[256]


@pytest.mark.parametrize("flash", [False, True])
def test_a_step_is_counted_as_it_runs(flash):
    model, text = GPT(SMALL, flash=flash), torch.randint(SMALL.vocab, (2, SMALL.sequence + 1))
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)

    def step():
        model(text[:, :-1], text[:, 1:]).backward()
        optimizer.step()

    step()
    optimizer.zero_grad()
    counted = count_step(SMALL, 2, flash, fused=True)
    assert count_operations(step).operations == counted.operations


def test_the_ladders_flops_are_those_that_its_step_counts():
    small = CATALOGUE["gpt2-small"]
    assert TOOK.ladder["FP32"].flops == count_step(small, 16, fused=True).product_flops
    padded = replace(small, vocab=50_304)
    assert TOOK.ladder["torch.compile"].flops == padded.training_flops(16)
    assert [round(100 * rung.mfu, 1) for rung in TOOK.ladder.values()][:: len(TOOK.ladder) - 1] == [
        3.6,
        38.7,
    ]


def test_adamw_in_pieces_is_nine_operations_a_tensor_and_fused_two_for_all():
    pieces, fused = (count_step(SMALL, 1, fused=each) for each in (False, True))
    tensors = len(list(GPT(SMALL).parameters()))
    assert len(pieces.operations) - len(fused.operations) == 9 * tensors - 2


def test_fusion_saved_the_time_that_it_saves_in_bytes():
    x, u = torch.ones(256, 512, dtype=torch.bfloat16), torch.ones(512, dtype=torch.bfloat16)

    def chain(x, u):
        return F.gelu(x + u) * 0.5 + x

    moved = count_operations(lambda: chain(x, u)).total.nbytes / as_one(chain, x, u).nbytes
    assert TOOK.fusion["eager"] / TOOK.fusion["compiled"] == pytest.approx(moved, rel=0.05)


def test_a_samples_warp_makes_no_step_and_a_full_wave_does():
    took = {
        rows: tiled(rows, 4096, 4096, Tile(128, 128), PROCESSORS["h100-sxm"]).seconds
        for rows in (32, 33, 128, 129, 512, 513)
    }
    assert took[32] == took[33] == took[128] == took[129] == took[512] == took[513] / 2


def test_the_largest_jumps_of_measured_waves_are_where_the_best_tile_runs_out():
    sms = PROCESSORS["h100-sxm"]
    priced = {m: choose_tile(m, 4096, 2048, sms).seconds for m in TOOK.waves}
    sizes = [m for m in TOOK.waves if 4224 <= m < 6400]
    jump = {m: TOOK.waves[m + 128].seconds / TOOK.waves[m].seconds for m in sizes}
    largest = sorted(sizes, key=lambda m: jump[m])[-3:]
    assert sorted(largest) == [m for m in sizes if priced[m + 128] > priced[m]]


def test_a_bubble_from_rounded_speeds_has_a_wide_margin():
    given = [(430, 400), (425, 405), (435, 395)]
    assert [round(inferred_bubble(a, 32, b, 16), 1) for a, b in given] == [2.6, 1.7, 3.6]


def test_windows_that_overlap_are_read_once_and_written_whole():
    x = torch.ones(10)
    windows = x.unfold(0, 3, 1)  # eight of three
    (copied,) = count_operations(lambda: windows.clone()).operations
    assert (copied.read, copied.written) == (40, 96)


def test_a_result_that_is_written_over_an_operand_does_not_spare_reading_it():
    x, y = torch.ones(10), torch.ones(10)
    added = [count_operations(lambda out=out: torch.add(x, y, out=out)) for out in (x, x.clone())]
    assert [each.total.read for each in added] == [80, 80]


def test_nothing_is_read_of_a_tensor_without_elements():
    assert count_operations(lambda: torch.ones(0, 3).clone()).operations == ()


def test_measured_points_lie_where_they_were_measured():
    runs = {"sum": TOOK.operations["add"], "rows": TOOK.operations["embedding"]}
    (axes,) = draw_measured(H100, runs).axes
    roof, point = axes.lines
    assert list(point.get_xdata()) == [runs["sum"].operation.intensity]
    assert list(point.get_ydata()) == [runs["sum"].rate]
    assert max(roof.get_ydata()) == H100.rate("bf16")
    own = draw_measured(Machine(1e11, {"copy": 1e10}, 0.0), runs).axes[0].lines[0]
    assert max(own.get_ydata()) == 1e11


def test_prices_and_measurements_are_drawn_over_their_sizes():
    few = {b: run.seconds for b, run in TOOK.decode.items() if b < 100}
    priced = {b: place(matmul(b, 12_288, 49_152), H100).seconds for b in (1, 64, 4)}
    (axes,) = draw_beside(few, priced, "rows").axes
    line, points = axes.lines
    assert list(line.get_xdata()) == [1, 4, 64]
    assert list(points.get_ydata()) == [1e6 * few[b] for b in sorted(few)]
    assert axes.get_ylabel() == "time (µs)"
