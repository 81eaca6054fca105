"""The explorer's rows are those of operations, and pictures have what they are asked for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlsys.hardware import DEVICES
from dlsys.roofline import (
    PROCESSORS,
    Step,
    Tile,
    UnderRoof,
    diagnose,
    draw_measured,
    draw_roofline,
    draw_shares,
    draw_trace,
    draw_waterfall,
    draw_waves,
    elementwise,
    layer_operations,
    matmul,
    measure,
    tiled,
    waterfall,
)
from dlsys.roofline.explorer import FORMATS, OPERATIONS, Choice
from dlsys.transformer import CATALOGUE

H100 = DEVICES["h100-sxm"]


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("device", ["h100-sxm", "v100", "tpu-v5e"])
def test_every_choice_has_rows_and_words(operation, device):
    for number_format in FORMATS:
        choice = Choice(device=device, operation=operation, number_format=number_format)
        assert choice.row() in choice.rows()
        summary = choice.summary()
        assert choice.row().bound in summary
        assert DEVICES[device].name in summary


def test_a_linear_layers_corner_is_crossed_where_the_summary_says():
    choice = Choice(tokens=64)
    assert "From 512 tokens on (of powers of two) it is bound by compute." in choice.summary()
    bounds = {tokens: replace(choice, tokens=tokens).row().bound for tokens in (256, 512)}
    assert bounds == {256: "bandwidth", 512: "compute"}
    assert "Fewer FLOPs or a format" in replace(choice, tokens=4096).summary()
    assert "More tokens do not help" in Choice(operation="layer norm").summary()


def test_attention_in_the_explorer_is_that_of_a_layer():
    spec = CATALOGUE["llama2-7b"]
    row = Choice(operation="attention, plain", hidden=4096, tokens=4096).row()
    core = [o for o in layer_operations(spec, 1) if o.name in ("scores", "softmax", "weighted sum")]
    assert row.flops == sum(o.flops for o in core)
    assert row.nbytes == sum(o.nbytes for o in core)


def test_the_figure_marks_the_chosen_size():
    (axes,) = Choice(tokens=64).figure().axes
    assert axes.get_legend_handles_labels()[1][-1].startswith("64 tokens: ")


def test_a_picture_of_roofs_has_a_line_for_each_device_and_a_point_for_each_operation():
    points = {
        "product": matmul(4096, 4096, 4096),
        "sum": elementwise(100),
        "none": elementwise(9, 0),
    }
    (axes,) = draw_roofline([H100, DEVICES["a100-80"]], points).axes
    labels = [line.get_label() for line in axes.lines]
    assert labels[0] == "H100 SXM, corner at 295"
    assert labels[2:] == ["product: 1,365", "sum: 0.25"]
    x, y = axes.lines[3].get_data()
    assert (x[0], y[0]) == (0.25, 0.25 * 3.35e12)


def test_measured_points_stand_where_they_were_measured():
    machine = measure(1, 16, 1)
    run = UnderRoof(matmul(8, 8, 8, itemsize=4), 1, 2.0, 1.0, 0.0)
    (axes,) = draw_measured(machine, {"product": run}).axes
    assert axes.lines[-1].get_ydata()[0] == 1024 / 2


def test_waves_are_drawn_in_steps():
    columns = list(range(128, 4700, 128))
    figure = draw_waves(columns, 2304, 4096, Tile(256, 128), PROCESSORS["a100-80"])
    seconds = figure.axes[1].lines[0].get_ydata()
    assert len(set(seconds)) == 3
    first = tiled(2304, 4096, 128, Tile(256, 128), PROCESSORS["a100-80"])
    assert seconds[0] == pytest.approx(first.seconds * 1e6)


def test_a_waterfall_hatches_what_is_inferred():
    (axes,) = draw_waterfall(waterfall(2.0, {"a": 1.5, "b": 1.0}, ["a"])).axes
    assert [bar.get_hatch() for bar in axes.patches] == [None, None, "///", None]
    assert [bar.get_width() for bar in axes.patches] == [100, 25, 25, 50]
    assert "hatched" in axes.get_xlabel()
    (axes,) = draw_waterfall(waterfall(2.0, {"a": 1.5}, ["a"])).axes
    assert "hatched" not in axes.get_xlabel()


def test_a_trace_has_a_row_for_each_category_it_has():
    trace = Step((matmul(64, 64, 64),), input_seconds=1e-4).profile(H100)
    (axes,) = draw_trace(trace, 2e-4).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["kernel", "host", "input"]


def test_bars_of_shares_end_at_the_whole_time():
    each = {n: diagnose(Step((matmul(n, n, n),)).profile(H100), H100) for n in (64, 4096)}
    (axes,) = draw_shares({str(n): diagnosis for n, diagnosis in each.items()}).axes
    ends = [bar.get_x() + bar.get_width() for bar in axes.patches]
    assert max(ends) == pytest.approx(100)
