"""The explorer of tensor parallelism: its rows are the price's, and it draws and says no others."""

import dataclasses
import html

import pytest
import torch

from dlsys import memory_wall, tensor_parallel, world
from dlsys.collectives import best
from dlsys.hardware import DEVICES, Device, dgx_a100
from dlsys.tensor_parallel import TensorParallelGPT, layout
from dlsys.tensor_parallel.explorer import MODELS, RANKS, Choice
from dlsys.transformer import CATALOGUE
from dlsys.transformer.activations import activations
from dlsys.units import GIGA

CHOICE = Choice(
    model="llama2-7b",
    cluster="DGX A100",
    sequence_parallel=True,
    batch=2,
    sequence=2048,
    percent=50,
)


def a_step(comm, spec, sequence_parallel, batch, where):
    """A step without a second micro-batch or overlap, each message by its cheapest algorithm."""
    for kind in ("all_reduce", "all_gather", "reduce_scatter"):
        call = getattr(comm, kind)

        def cheapest(tensor, *args, kind=kind, call=call, **options):
            nbytes = tensor.nbytes * (comm.size if kind == "all_gather" else 1)
            plan = best(kind, nbytes, where, comm.size)
            return call(tensor, *args, plan=plan, **options)

        setattr(comm, kind, cheapest)
    tokens = torch.zeros(batch, spec.sequence, dtype=torch.long, device="meta")
    cut = TensorParallelGPT(
        spec,
        comm,
        sequence_parallel,
        overlap=False,
        flash=True,
        dtype=torch.bfloat16,
        device="meta",
    )
    cut(tokens, tokens).backward()
    return sum(parameter.numel() for parameter in cut.parameters())


def kept(comm, spec, sequence_parallel, batch):
    """Bytes of a layer but for its scores, which the explorer's attention does not store."""
    tokens = torch.zeros(batch, spec.sequence, dtype=torch.long, device="meta")
    options = {"dtype": torch.bfloat16, "device": "meta"}
    cut = TensorParallelGPT(spec, comm, sequence_parallel, **options)
    (terms,) = memory_wall.measure_activations(cut, tokens, tokens).layers
    return sum(n for name, n in terms.items() if name != "attention.probabilities")


@pytest.mark.parametrize(
    ("ranks", "percent", "sequence_parallel"), [(4, 100, False), (4, 100, True), (16, 40, False)]
)
def test_ranks_that_run_take_the_seconds_and_hold_the_bytes_of_a_row(
    ranks, percent, sequence_parallel
):
    """Of models of one and of two layers, from which those of all others follow."""
    choice = Choice("llama2-7b", "DGX A100", ranks, sequence_parallel, 2, 2048, percent)
    where = dgx_a100(2) if ranks == 16 else dgx_a100(1).intra
    rate = DEVICES["a100-80"].rate("bf16") * percent / 100
    device = Device("products alone", {"bf16": rate}, 80e9, 1e30)
    place = {"cluster": where} if ranks == 16 else {"link": where}
    runs = []
    for layers in (1, 2):
        spec = dataclasses.replace(CATALOGUE["llama2-7b"], sequence=2048, layers=layers)
        args = (spec, sequence_parallel, 2)
        runs.append(world.simulate(a_step, ranks, device=device, args=(*args, where), **place))

    def of_all(one, two):
        return one + (CATALOGUE["llama2-7b"].layers - 1) * (two - one)

    (row,) = (row for row in choice.rows() if row.ranks == ranks)
    times = [(r.timeline.seconds(0, "compute"), r.seconds) for r in runs]
    computing, seconds = (of_all(*each) for each in zip(*times, strict=True))
    assert row.computing == pytest.approx(computing)
    # The price has the loss's two sums one after the other, and in a run both are under way at once.
    assert row.communication == pytest.approx(seconds - computing, rel=2e-4)
    assert row.share == pytest.approx(1 - computing / seconds, rel=2e-4)
    assert row.state == 16 * of_all(*(run.results[0] for run in runs))
    # RMS norms that are not of one kernel, as on CPU and meta, would keep more than layer norms.
    spec = dataclasses.replace(spec, layers=1, norm="layer")
    (one, *_) = world.simulate(kept, ranks, args=(spec, sequence_parallel, 2)).results
    assert row.activations == CATALOGUE["llama2-7b"].layers * one


def test_a_row_is_the_price_of_its_layout_with_the_memory_of_flash_attention():
    spec = dataclasses.replace(CATALOGUE["llama2-7b"], sequence=2048)
    for row in CHOICE.rows():
        cut = layout(spec, row.ranks, sequence_parallel=True)
        price = cut.price(
            2, dgx_a100(4), algorithm="best", rate=DEVICES["a100-80"].rate("bf16") / 2
        )
        assert (row.computing, row.communication) == (price.compute_seconds, price.seconds)
        assert row.share == price.share
        kept = activations(spec, 2, row.ranks, True, flash=True, dropout=False)
        # Flash attention keeps a number for each query and head; scores alone are left out here.
        assert row.activations == pytest.approx(spec.layers * kept.per_layer, rel=0.01)
        assert row.memory == 16 * cut.held() + row.activations


def test_the_figure_draws_the_rows_and_marks_the_chosen_one():
    rows = CHOICE.rows()
    time, space = CHOICE.figure().axes
    for axes, unit, wholes in (
        (time, 1e-3, [row.computing + row.communication for row in rows]),
        (space, GIGA, [row.memory for row in rows]),
    ):
        tops = [0.0] * len(rows)
        for bars in axes.containers:
            tops = [
                max(top, bar.get_y() + bar.get_height())
                for top, bar in zip(tops, bars, strict=True)
            ]
        assert tops == pytest.approx([whole / unit for whole in wholes])
        assert axes.texts[0].xy == pytest.approx((3, wholes[3] / unit))
        assert axes.get_ylim()[1] > 1.05 * max(tops)
        assert axes.get_xlabel()
        assert axes.get_ylabel()
    (line,) = space.lines
    assert set(line.get_ydata()) == {DEVICES["a100-80"].memory / GIGA}


def test_it_says_whether_a_rank_holds_it():
    large = Choice(model="gpt3-175b", ranks=16)
    assert large.row().memory > DEVICES["h100-sxm"].memory
    assert "does not fit into 80 GB" in large.summary()
    assert "which fits into 80 GB" in Choice().summary()
    assert f"{100 * Choice().row().share:.1f} % of the step" in Choice().summary()


@pytest.mark.parametrize("model", MODELS)
def test_all_ranks_can_share_every_model_that_it_offers(model):
    shortest = min(Choice.options()["sequence"][1])
    choice = Choice(model=model, sequence_parallel=True, sequence=shortest)
    assert [row.ranks for row in choice.rows()] == list(RANKS)


def test_it_stands_still_in_a_page_and_has_a_control_for_each_choice():
    exploring = tensor_parallel.explore(sequence=1024)
    bundle = exploring._repr_mimebundle_()
    assert f'aria-label="{html.escape(exploring.choice.summary())}"' in bundle["text/html"]
    controls, _ = exploring.widget().children
    by_label = {control.description: control for control in controls.children}
    by_label["Ranks"].value = 2
    assert exploring.choice == Choice(sequence=1024, ranks=2)
