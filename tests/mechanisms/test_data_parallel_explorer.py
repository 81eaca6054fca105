"""The explorer of data parallelism, held against running ranks and prices, its words and its picture."""

import pytest
import torch

from dlsys import world
from dlsys.data_parallel import explore
from dlsys.data_parallel.draw import draw_choice
from dlsys.data_parallel.explorer import BUCKETS, RANKS, Choice
from dlsys.hardware import DEVICES, LINKS
from dlsys.model import GPT
from dlsys.transformer import CATALOGUE


def a_step(comm, seconds, micro_batches, nbytes, buckets):
    """What the network does in a step: it takes equal buckets as backward completes them, in turn.

    Backward is 2/3 of the compute of the last micro-batch.
    """
    ready = (micro_batches - 2 / 3) * seconds
    for _ in range(buckets):
        ready += 2 / 3 * seconds / buckets
        comm.compute(max(0.0, ready - comm.seconds))
        comm.all_reduce(torch.empty(round(nbytes / buckets), dtype=torch.uint8, device="meta"))


@pytest.mark.parametrize(
    ("link", "bucket", "buckets"),
    [
        ("nvlink4", "25 MB", 125),  # the network waits for backward
        ("ethernet-100g", "25 MB", 125),  # and here it never rests
        ("ethernet-100g", "all in one", 1),
    ],
)
@pytest.mark.parametrize("micro_batches", [1, 4])
def test_ranks_that_run_take_the_seconds_and_send_the_bytes_of_a_row(
    link, bucket, buckets, micro_batches
):
    choice = Choice("gpt2-xl", "h200", link, 8, 16384, micro_batches, bucket)
    (row,) = (row for row in choice.rows() if row[:2] == (bucket, 8))
    parameters = sum(p.numel() for p in GPT(CATALOGUE["gpt2-xl"], device="meta").parameters())
    seconds = 6 * parameters * 16384 / (0.4 * DEVICES["h200"].rate("bf16"))
    args = (seconds, micro_batches, 2 * parameters, buckets)
    run = world.simulate(a_step, 8, link=LINKS[link], args=args)
    computing, sending = micro_batches * seconds, run.timeline.seconds(0, "communication")
    found = [row.forward, row.backward, row.hidden + row.exposed, row.exposed, row.efficiency]
    exposed = run.seconds - computing
    ran = [computing - 2 / 3 * seconds, 2 / 3 * seconds, sending, exposed, computing / run.seconds]
    # 125 buckets are not all of whole bytes.
    assert found == pytest.approx(ran, rel=1e-6)
    assert run.traffic.sent[0] == pytest.approx(2 * 7 / 8 * choice.gradients, rel=1e-6)


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
    widths = [bar.get_width() for bar in step.patches]
    seconds = [chosen.forward, chosen.backward, chosen.hidden, chosen.exposed]
    assert widths == pytest.approx([1e3 * each for each in seconds])  # in ms


def test_the_explorer_says_in_words_what_it_draws():
    choice = Choice(ranks=64, micro_batches=16)
    row = choice.row()
    assert "64 x H200" in choice.summary()
    assert f"{64 * 16 * 16384:,} together" in choice.summary()
    whole = f"the work of {64 * row.efficiency:,.3g}, {row.efficiency:.0%} of their number"
    assert whole in choice.summary()
    assert explore(ranks=64, micro_batches=16).choice == choice
