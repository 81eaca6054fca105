"""The explorer of schedules, held against plans, prices, its picture and its own words."""

import dataclasses
import itertools

import pytest

from dlsys.pipeline_parallel import explore, explorer, interleaved, one_f_one_b, zero_bubble_v
from dlsys.pipeline_parallel.explorer import Choice


def test_the_rows_are_what_it_draws():
    choice = Choice("interleaved", ranks=4, micro_batches=8, transfer=0.5, slow=1.5)
    rows, cost = choice.rows(), choice.price()
    starts = {
        round(path.vertices[0][0], 9)
        for bars in choice.figure().axes[0].collections
        for path in bars.get_paths()
    }
    assert starts == {round(row.start, 9) for row in rows}
    assert max(row.end for row in rows) == cost.makespan
    worked = sum(row.end - row.start for row in rows)
    assert 1 - worked / (4 * cost.makespan) == pytest.approx(cost.bubble_fraction)
    assert worked == pytest.approx(8 * (1 + 2) * (4 + 0.5)), "one rank works half as long again"
    assert f"{cost.makespan:.4g} s" in choice.summary()


def test_the_seconds_of_each_pass_are_those_of_a_ranks_share():
    choice = Choice("zero bubble V", 4, 8, forward=0.5, backward=1.5, weights=2.0)
    found = dict.fromkeys("FBW", 0.0)
    for row in choice.rows():
        if row.rank == 2:
            found[row.kind] += row.end - row.start
    assert found == {"F": 8 * 0.5, "B": 8 * 1.5, "W": 8 * 2.0}
    plain = dataclasses.replace(choice, schedule="1F1B")
    assert plain.price() == one_f_one_b(4, 8).price(0.5, 1.5, 0.0, 2.0)


def test_stages_on_a_rank_count_for_those_that_take_any_number():
    four = Choice("interleaved", micro_batches=8, stages=4)
    assert four.plan() == interleaved(4, 8, 4)
    assert Choice("1F1B", stages=4).plan() == Choice("1F1B").plan() == one_f_one_b(4, 4)


def test_what_a_row_says_is_held_are_the_forward_passes_begun_and_not_yet_undone():
    for schedule in ("1F1B", "DualPipe V", "interleaved"):
        choice = Choice(schedule, ranks=4, micro_batches=8)
        frees = "W" if schedule == "DualPipe V" else "B"
        for rank in range(4):
            rows = [row for row in choice.rows() if row.rank == rank]
            for row in rows:
                begun = sum(r.kind == "F" and r.start <= row.start for r in rows)
                undone = sum(r.kind == frees and r.end <= row.start for r in rows)
                assert row.held == begun - undone
        assert max(row.held for row in choice.rows()) == max(choice.plan().peak_in_flight)


def test_it_names_the_shortest_step_and_the_shortest_in_the_memory_of_1f1b():
    choice = Choice(micro_batches=8)
    shortest = zero_bubble_v(4, 8).price(1, 2)
    best = f"zero bubble V: {shortest.makespan:g} s, {shortest.bubble_fraction:.1%} idle, 4 held"
    assert choice.summary().count(best) == 2
    assert "holds 4 micro-batches" in choice.summary()
    slow = Choice(micro_batches=32, transfer=0.5).summary()
    assert "The shortest has zero bubble H2: 100.5 s, 4.5% idle, 7 held" in slow
    assert "4 micro-batches, zero bubble V: 104.5 s, 8.1% idle, 4 held" in slow
    assert Choice("breadth-first", micro_batches=8).held() == 8
    with pytest.raises(ValueError, match="did you mean 'GPipe'"):
        explore(schedule="Gpipe")


@pytest.mark.parametrize("schedule", explorer.SCHEDULES)
def test_every_schedule_can_be_explored_at_every_size(schedule):
    for ranks, micro_batches, stages in itertools.product((2, 4, 8), (1, 2, 6, 32), (1, 4)):
        choice = Choice(schedule, ranks, micro_batches, stages)
        times = [0.0] * ranks
        for row in choice.rows():
            times[row.rank] += row.end - row.start
        assert times == pytest.approx([3 * micro_batches] * ranks)
