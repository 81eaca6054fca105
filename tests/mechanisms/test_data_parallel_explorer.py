"""The explorer of data parallelism, held against the simulated step and against its own words and picture."""

import dataclasses

import pytest

from dlsys.data_parallel import explore, overlap, weak_scaling
from dlsys.data_parallel.draw_explorer import draw_choice
from dlsys.data_parallel.explorer import BUCKETS, RANKS, Choice
from dlsys.hardware import LINKS
from dlsys.transformer import CATALOGUE


@pytest.mark.parametrize("bucket", BUCKETS)
@pytest.mark.parametrize("link", ["ethernet-100g", "nvlink4"])
@pytest.mark.parametrize("micro_batches", [1, 4])
def test_a_row_is_the_simulated_step(bucket, link, micro_batches):
    choice = Choice(model="gpt2-xl", bucket=bucket, link=link, micro_batches=micro_batches)
    row = choice.row()
    count = max(1, round(choice.gradients / BUCKETS[bucket]))
    step = overlap(
        [choice.gradients / count] * count, row.backward, 8, LINKS[link], "ring", row.forward
    )
    assert row.exposed == pytest.approx(step.exposed_seconds)
    assert row.hidden + row.exposed == pytest.approx(step.communication_seconds)
    assert row.seconds == pytest.approx(step.seconds)


def test_with_one_micro_batch_more_ranks_are_weak_scaling():
    choice = Choice(model="gpt2-xl", bucket="all in one", ranks=64)
    row = choice.row()
    compute = 6 * CATALOGUE["gpt2-xl"].parameters() * 16384 / (0.4 * 989e12)
    assert row.forward + row.backward == pytest.approx(compute)
    (scaled,) = weak_scaling([64], compute, choice.gradients, LINKS[choice.link])
    assert row.efficiency == pytest.approx(scaled.efficiency)


def test_more_micro_batches_leave_what_is_exposed_as_it_is():
    once, often = (Choice(micro_batches=m).row() for m in (1, 16))
    assert (once.exposed, once.hidden, once.backward) == (
        often.exposed,
        often.hidden,
        often.backward,
    )
    assert often.forward + often.backward == pytest.approx(16 * (once.forward + once.backward))
    assert once.efficiency < often.efficiency < 1


def test_the_explorer_draws_its_rows_and_marks_the_chosen_one():
    rows = Choice(model="gpt2-xl").rows()
    step, curves = draw_choice(rows, "250 MB", 32).axes
    drawn = {line.get_label(): list(line.get_ydata()) for line in curves.lines}
    for bucket in BUCKETS:
        mine = [row for row in rows if row.bucket == bucket]
        assert [row.ranks for row in mine] == list(RANKS)
        assert drawn[f"buckets: {bucket}"] == [100 * row.efficiency for row in mine]
    (chosen,) = (row for row in rows if row[:2] == ("250 MB", 32))
    mark = curves.lines[-1]
    assert ([*mark.get_xdata()], [*mark.get_ydata()]) == ([32], [100 * chosen.efficiency])
    ends = [bar.get_x() + bar.get_width() for bar in step.patches]
    assert max(ends) == pytest.approx(1e3 * chosen.seconds)  # in ms


def test_the_explorer_says_in_words_what_it_draws():
    choice = Choice(ranks=64, micro_batches=16)
    row = choice.row()
    assert "64 x H200" in choice.summary()
    assert f"{64 * 16 * 16384:,} together" in choice.summary()
    assert f"{row.efficiency:.0%} of their number" in choice.summary()
    assert explore(ranks=64, micro_batches=16).choice == choice


@pytest.mark.parametrize("field", ["model", "device", "link"])
def test_everything_that_can_be_chosen_has_a_price(field):
    for value in Choice.options()[field][1]:
        row = dataclasses.replace(Choice(), **{field: value}).row()
        assert 0 < row.efficiency < 1
        assert min(row[2:]) >= 0


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"device": "v100"}, "no device in the explorer"),
        ({"ranks": 12}, "no ranks in the explorer"),
    ],
)
def test_what_the_explorer_does_not_have_is_a_sentence(choice, message):
    with pytest.raises(ValueError, match=message):
        explore(**choice)
