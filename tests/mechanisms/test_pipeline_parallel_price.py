"""Prices of pipeline schedules: published figures, closed forms, and arguments that are refused."""

import re

import pytest

from dlsys.hardware import Link
from dlsys.pipeline_parallel import (
    best_micro_batch,
    bubble_fraction,
    exposed_seconds,
    fixed_sequences,
    gpipe,
    interleaved,
    message_bytes,
    min_microbatches,
    one_f_one_b,
    partition,
    stage_seconds,
    step_seconds,
    transfer_share,
    transfers_waited_for,
    zero_bubble,
    zero_bubble_h2,
    zero_bubble_v,
)
from dlsys.pipeline_parallel.price import price
from dlsys.transformer import TransformerSpec

# Published figures

# Zero Bubble Pipeline Parallelism (arXiv 2401.10241), table 9 as its authors' efficiency.py prints
# it: p, m, milliseconds of F, B, W and T_comm; the bubbles of 1F1B, ZB-H1 and ZB-H2.
QI_ET_AL = [
    (8, 24, 18.522, 18.086, 9.337, 0.601, 0.2431, 0.1585, 0.1083),
    (8, 32, 18.513, 18.086, 9.331, 0.626, 0.1985, 0.1242, 0.0837),
    (8, 64, 18.546, 18.097, 9.321, 0.762, 0.1240, 0.0674, 0.0444),
    (8, 24, 29.718, 29.444, 19.927, 0.527, 0.2347, 0.1323, 0.0698),
    (8, 32, 29.802, 29.428, 19.530, 0.577, 0.1898, 0.1045, 0.0559),
    (8, 64, 29.935, 29.621, 19.388, 0.535, 0.1091, 0.0554, 0.0294),
    (16, 48, 11.347, 11.248, 8.132, 0.377, 0.2552, 0.1397, 0.0672),
    (16, 64, 11.307, 11.254, 8.101, 0.379, 0.2082, 0.1088, 0.0516),
    (16, 128, 11.325, 11.308, 8.109, 0.378, 0.1251, 0.0576, 0.0266),
    (32, 96, 10.419, 10.207, 7.715, 0.408, 0.2646, 0.1421, 0.0641),
    (32, 128, 10.408, 10.204, 7.703, 0.408, 0.2168, 0.1106, 0.0490),
    (32, 256, 10.402, 10.248, 7.698, 0.460, 0.1352, 0.0594, 0.0257),
]


@pytest.mark.parametrize(("p", "m", "f", "b", "w", "t", "plain", "h1", "h2"), QI_ET_AL)
def test_1f1b_and_the_zero_bubble_schedules_have_the_bubbles_that_qi_et_al_publish(
    p, m, f, b, w, t, plain, h1, h2
):
    plans = (one_f_one_b(p, m), zero_bubble(p, m), zero_bubble_h2(p, m))
    found = [round(plan.price(f, b, t, w).bubble_of_span, 4) for plan in plans]
    assert found == [plain, h1, h2]


def as_qi_et_al_count(plan, forward, backward, transfer):
    """The makespan if messages between the last rank and the first were waited for once a round."""
    free, ends = [0.0] * plan.p, {}
    for action in plan.order:
        rank = plan.placement[action.stage]
        start = free[rank]
        for need in plan.needs(action):
            peer = plan.placement[need.stage]
            if {rank, peer} != {0, plan.p - 1} or rank == peer or action.micro_batch % plan.p == 0:
                start = max(start, ends[need] + transfer * (peer != rank))
        seconds = {"F": forward, "B": backward}[action.kind] / plan.v
        free[rank] = ends[action] = start + seconds
    return max(free)


@pytest.mark.parametrize(("p", "m", "v"), [(3, 6, 2), (4, 8, 2), (4, 16, 3), (8, 24, 3), (8, 8, 4)])
def test_an_interleaved_step_waits_for_every_message_where_qi_et_al_leave_out_p_of_them(p, m, v):
    plan, free = interleaved(p, m, v), step_seconds(p, m, 1, 2, v)
    assert plan.price(1, 2, 0.01).makespan == pytest.approx(free + (2 * p * v - 2) * 0.01)
    theirs = as_qi_et_al_count(plan, 1, 2, 0.01)
    assert theirs == pytest.approx(free + (2 * p * v - p - 2) * 0.01)


def test_by_their_count_the_interleaved_bubble_is_the_published_one():
    f, b, w, t = 18.522, 18.086, 9.337, 0.601  # the 1.5B model on 8 ranks, 3 stages each, m = 24
    plan, work = interleaved(8, 24, 3), 24 * (f + b + w)
    assert round(1 - work / as_qi_et_al_count(plan, f, b + w, t), 4) == 0.1055
    assert round(plan.price(f, b, t, w).bubble_of_span, 4) == 0.1090


# Messages between replicas

BUCKETS = 200


def sent_in_buckets(passes, seconds, stages):
    """When a link that sends one bucket after another is done; each is ready as its part has run."""
    free, part = 0.0, seconds / stages / BUCKETS
    for start, end in passes:
        for bucket in range(BUCKETS):
            ready = start + (end - start) * bucket / BUCKETS
            free = max(free, ready) + part
    return free


@pytest.mark.parametrize("seconds", [0.0, 0.3, 2.0, 7.0, 30.0])
@pytest.mark.parametrize(
    "plan",
    [gpipe(3, 4), one_f_one_b(4, 8), interleaved(4, 8, 3), zero_bubble(3, 5), zero_bubble_v(3, 5)],
    ids=str,
)
def test_gradients_are_exposed_for_as_long_as_a_link_sends_them_after_the_step(plan, seconds):
    cost = plan.price(1, 2, transfer=0.1)
    kind = "W" if plan.splits_backward else "B"
    late = 0.0
    for spans in cost.spans:
        last = {a.stage: (start, end) for a, start, end in spans if a.kind == kind}
        done = sent_in_buckets(sorted(last.values()), seconds, len(last))
        late = max(late, done - cost.makespan)
    assert exposed_seconds(cost, seconds) == pytest.approx(late, abs=1.5 * 2 / BUCKETS)


@pytest.mark.parametrize("seconds", [0.0, 0.3, 2.0, 7.0, 30.0])
@pytest.mark.parametrize(
    "plan", [gpipe(3, 4), one_f_one_b(4, 8), interleaved(4, 8, 3), zero_bubble_v(3, 5)], ids=str
)
def test_forward_passes_that_begin_as_late_as_is_said_find_their_weights(plan, seconds):
    cost = plan.price(1, 2, transfer=0.1)
    delay, latest = exposed_seconds(cost, 0, seconds), float("-inf")
    for spans in cost.spans:
        first = {a.stage: (s, e) for a, s, e in reversed(spans) if a.kind == "F"}
        part = seconds / len(first) / BUCKETS
        for place, (start, end) in enumerate(sorted(first.values())):
            for bucket in range(1, BUCKETS + 1):
                sent = part * (place * BUCKETS + bucket)
                latest = max(latest, sent - start - (end - start) * bucket / BUCKETS)
                latest = max(latest, sent - part - start - (end - start) * (bucket - 1) / BUCKETS)
    assert delay == pytest.approx(max(0, latest))


def test_all_but_one_micro_batchs_passes_of_the_messages_between_replicas_are_exposed():
    for m in (8, 80):
        cost = one_f_one_b(4, m).price(1, 2)
        assert exposed_seconds(cost, 7, 5) == (7 - 2) + (5 - 1)
        assert exposed_seconds(cost, 2, 1) == 0


def test_gpipe_takes_the_time_that_llm_training_puzzles_prints():
    # Rush (2023): 8 layers over 4 ranks, 4 batches; a layer takes 1 each way and 0.5 to update, and
    # a pass takes 0.2 of the rank that sends it and 0.2 of the one that receives it.
    cost = gpipe(4, 4).price(2, 2, send=0.2, receive=0.2, update=2 * 0.5)
    assert cost.makespan == pytest.approx(33.8)
    assert gpipe(1, 4).price(2, 2, update=2 * 0.5).makespan == pytest.approx(17.0)  # "standard"


# What a message takes of a rank, and what comes after the last action


@pytest.mark.parametrize(("p", "m"), [(2, 2), (3, 5), (4, 8)])
def test_a_rank_of_gpipe_that_sends_works_on_nothing_else(p, m):
    # A stage and its message go through as a longer stage would; nobody sends for the last stage.
    cost = gpipe(p, m).price(1, 2, send=0.25)
    assert (
        cost.makespan == (m - 1) * 1.25 + (p - 1) * 1.25 + 1 + (m - 1) * 2.25 + (p - 1) * 2.25 + 2
    )
    assert cost.busy == (m * 3,) * p
    overlapped = gpipe(p, m).price(1, 2, transfer=0.25)
    assert overlapped.makespan == (m + p - 1) * 3 + 2 * (p - 1) * 0.25


def test_sends_that_block_hide_nothing_and_delay_1f1b_about_as_much_as_gpipe():
    # Overlapped, these transfers delay GPipe by 2.8 and 1F1B by 13.6 seconds.
    took = [plan(8, 32).price(1, 2, send=0.2).makespan for plan in (gpipe, one_f_one_b)]
    assert took == pytest.approx([117 + 15.2, 117 + 15.0])


def test_a_message_within_a_rank_takes_nothing():
    free = zero_bubble_v(1, 4).price(1, 2)
    assert zero_bubble_v(1, 4).price(1, 2, 9, send=9, receive=9) == free


def test_the_update_begins_where_a_ranks_last_action_ended_and_is_work():
    plan = one_f_one_b(4, 8)
    free, cost = plan.price(1, 2), plan.price(1, 2, update=[5, 0, 7, 1])
    assert cost.spans == free.spans
    assert cost.update == (5, 0, 7, 1)
    ends = [spans[-1].end for spans in free.spans]  # 33, 31, 29, 27
    assert cost.makespan == max(ends[0] + 5, ends[2] + 7) == ends[0] + 5
    assert cost.busy == (24 + 5, 24, 24 + 7, 24 + 1)
    assert cost.idle == tuple(cost.makespan - busy for busy in cost.busy)
    assert cost.bubble_of_span == free.bubble_of_span
    assert interleaved(2, 4, 2).price(1, 2, update=6).update == (6, 6)
    assert interleaved(2, 4, 2).price(1, 2, update=[1, 2, 3, 4]).update == (1 + 3, 2 + 4)


def test_a_plan_prices_itself_as_the_function_does():
    plan = zero_bubble(2, 3)
    assert price(plan, 1, 2) == plan.price(1, 2)
    assert plan.price(1, 2).makespan == 3 * 3 + 1  # (p-1)(F + B - W), of which each takes 1


def test_a_weight_part_waits_for_no_more_than_its_rank():
    cost = zero_bubble(1, 2).price(0, 0, 0, 1)
    assert [(a.kind, start) for a, start, _ in cost.spans[0] if a.kind == "W"] == [
        ("W", 0),
        ("W", 1),
    ]


# Closed forms


def test_in_a_bubble_of_all_but_everything_one_micro_batch_will_do():
    assert min_microbatches(8, below=1.0) == 1
    assert min_microbatches(8, below=1) == 1
    with pytest.raises(ValueError, match=re.escape("below is 1.5; it is a share of the step")):
        min_microbatches(8, below=1.5)


def test_a_message_has_two_bytes_a_number_unless_told():
    assert message_bytes(3, 5, 7) == 2 * 3 * 5 * 7
    assert message_bytes(3, 5, 7, itemsize=4) == 4 * 3 * 5 * 7


@pytest.mark.parametrize(("p", "m", "v"), [(4, 10, 2), (3, 5, 2), (5, 14, 3), (4, 11, 4)])
def test_uneven_rounds_have_the_bubble_of_even_ones(p, m, v):
    cost = interleaved(p, m, v).price(1, 2)
    assert cost.bubble_fraction == pytest.approx(bubble_fraction(p, m, v))
    assert cost.makespan == pytest.approx(step_seconds(p, m, 1, 2, v))


@pytest.mark.parametrize(("p", "m", "v"), [(4, 3, 2), (4, 2, 3), (5, 4, 2)])
def test_with_fewer_micro_batches_than_ranks_an_interleaved_plan_also_waits_between_stages(p, m, v):
    cost = interleaved(p, m, v).price(1, 2)
    assert bubble_fraction(p, m, v) < cost.bubble_fraction < bubble_fraction(p, m)


@pytest.mark.parametrize(("p", "m"), [(1, 1), (3, 5), (4, 7), (4, 12)])
def test_zero_bubble_h2_idles_f_plus_b_minus_2_w_for_every_other_rank_in_2p_minus_1_micro_batches(
    p, m
):
    plan = zero_bubble_h2(p, m)
    for f, b, w, t in [(3, 2, 1, 0.25), (1, 1, 1, 0), (2, 2, 2, 0.5), (2, 2, 2.5, 0)]:
        cost = plan.price(f, b, t, w)
        span = max(spans[-1].end - spans[0].start for spans in cost.spans)
        assert span - m * (f + b + w) == pytest.approx(max(0, (p - 1) * (f + b + 2 * t - 2 * w)))
    assert plan.peak_in_flight == (2 * p - 1,) * p


# Laws


@pytest.mark.parametrize(("p", "sequences", "fixed"), [(2, 48, 0.5), (8, 512, 0.33), (4, 360, 6)])
def test_no_other_size_of_micro_batch_has_a_shorter_step_than_those_beside_the_best(
    p, sequences, fixed
):
    def step(b):  # every schedule that is simulated, and not the law's own formula
        return one_f_one_b(p, sequences // b).price((b + fixed) / 3, 2 * (b + fixed) / 3).makespan

    sizes = [b for b in range(1, sequences + 1) if sequences % b == 0]
    shortest, best = min(sizes, key=step), best_micro_batch(p, sequences, fixed)
    beside = (max(b for b in sizes if b <= max(best, 1)), min(b for b in sizes if b >= best))
    assert shortest in beside
    bubble = one_f_one_b(p, sequences // shortest).price(1, 2).bubble_of_ideal
    assert 0.5 < bubble / (fixed / shortest) < 2  # as much lost by the one as by the other


def test_at_the_best_size_the_bubble_costs_what_the_fixed_parts_cost():
    assert best_micro_batch(8, 28 * 16, 1) == 8  # sqrt(64)
    assert one_f_one_b(8, 28 * 16 // 8).price(1, 2).bubble_of_ideal == pytest.approx(1 / 8)
    assert best_micro_batch(1, 8, 1) == float("inf")
    assert best_micro_batch(4, 8, 0) == 0


@pytest.mark.parametrize("fixed", [0.0, 0.25, 3.0])
def test_one_measurement_gives_the_fixed_part(fixed):
    rate = {b: b / (b + fixed) for b in (1, 16)}  # sequences a second
    assert fixed_sequences(rate[16] / rate[1], 16) == pytest.approx(fixed)
    with pytest.raises(ValueError, match="gain is 16; micro-batches of 16 sequences run between 1"):
        fixed_sequences(16, 16)
    with pytest.raises(ValueError, match=re.escape("gain is 0.9")):
        fixed_sequences(0.9, 16)


@pytest.mark.parametrize(("p", "m"), [(1, 4), (2, 2), (2, 6), (3, 9), (8, 32), (12, 96)])
def test_a_step_of_1f1b_waits_for_as_many_transfers_as_the_law_says(p, m):
    plan = one_f_one_b(p, m)
    later = plan.price(1, 2, 0.01).makespan - plan.price(1, 2).makespan
    assert later == pytest.approx(0.01 * transfers_waited_for(p, m), abs=1e-9)


def test_transfers_of_a_part_of_a_round_have_no_law():
    with pytest.raises(ValueError, match="9 micro-batches are no rounds of 4"):
        transfers_waited_for(4, 9)


@pytest.mark.parametrize(("t", "batch", "layers"), [(1, 1, 4), (8, 1, 4), (8, 4, 4), (2, 2, 2)])
def test_a_transfer_takes_its_share_of_a_forward_pass_whatever_the_batch_and_the_cut_inside(
    t, batch, layers
):
    spec = TransformerSpec(layers=4, hidden=2048, heads=16, vocab=64, sequence=32)
    message = message_bytes(batch, spec.sequence, spec.hidden)  # 16 bits, counted by the spec
    (forward,) = stage_seconds(spec, [range(1, 1 + layers)], t * 3e14, batch)["forward"]
    transfer = Link("card", 0, 25e9).seconds(message / t)
    law = transfer_share(spec.hidden, layers, 3e14, 25e9)
    assert transfer / forward == pytest.approx(law, rel=0.01)  # scores are the rest


def test_recomputation_by_the_first_rank_alone_costs_nearly_as_much_as_by_all():
    """The slowest stage sets the pace: the seconds that others save are spent waiting."""
    plan, m = one_f_one_b(8, 96), 96
    none, everywhere = plan.price(1, 2), plan.price(1, 3)
    first = plan.price([1.0] * 8, [3.0] + [2.0] * 7)
    assert none.makespan == (m + 7) * 3
    assert everywhere.makespan == (m + 7) * 4
    assert first.makespan == m * 4 + 7 * 2  # paced by the first, filled and drained by the others
    assert everywhere.bubble_fraction == pytest.approx(none.bubble_fraction)


# Published mistakes that no page refutes any more


@pytest.mark.parametrize("m", [4, 7, 32])
def test_1f1b_has_the_bubble_of_gpipe_where_both_have_as_many_micro_batches(m):
    """ "Same shape, much smaller bubble" (Apartsin 2026): its figure gives 4 to the one, 7 to the other."""
    of_gpipe, of_1f1b = (plan(4, m).price(1, 2) for plan in (gpipe, one_f_one_b))
    assert of_gpipe.makespan == of_1f1b.makespan
    assert of_gpipe.idle == of_1f1b.idle


@pytest.mark.parametrize(("m", "busy"), [(1, 0.25), (4, 0.57), (8, 0.73), (32, 0.91)])
def test_how_busy_micro_batches_keep_devices_depends_on_their_number(m, busy):
    """ "70 to 90 %" (Reddi et al. 2026) holds for no pipeline in general."""
    assert round(1 - gpipe(4, m).price(1, 2).bubble_fraction, 2) == busy


def test_a_rank_spends_both_passes_on_a_micro_batch_and_not_the_longer_one():
    """A step of two stages, 8 micro-batches, 120 and 220 ms is no (8 + 1) max(120, 220) = 1,980 ms."""
    plans = one_f_one_b(2, 8), gpipe(2, 8)
    assert [plan.price(120, 220).makespan for plan in plans] == [3060, 3060]
    assert [plan.price(120, 220, 5).makespan for plan in plans] == [3100, 3070]
    assert one_f_one_b(1, 8).price(2 * 120, 2 * 220).makespan == 5440  # both stages on one rank


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: gpipe(0, 4), "p (the number of ranks) is 0; it must be a whole number"),
        (lambda: gpipe(4, 0), "m (the number of micro-batches) is 0; it must be"),
        (lambda: interleaved(4, 4, 0), "v (the number of stages per rank) is 0; it must be"),
        (lambda: partition([1, 2, 3], 0), "p (the number of stages) is 0; it must be"),
        (lambda: partition([1, -1, 3], 2), "The cost of piece 1 is -1; it must be"),
        (lambda: gpipe(2, 2).price([1, -1], 2), "forward of stage 1 is -1; it must be"),
        (lambda: gpipe(2, 2).price(1, 2, update=[-1, 1]), "update of stage 0 is -1; it must be"),
        (lambda: gpipe(1, 2).check([-1]), "most_in_flight is -1; it must be"),
    ],
)
def test_a_number_of_several_is_called_by_what_it_counts(call, words):
    with pytest.raises(ValueError, match="^" + re.escape(words)):
        call()
