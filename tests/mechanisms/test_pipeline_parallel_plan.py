"""Pipeline schedules: their orders against torch's, their prices against closed forms."""

import itertools
import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.distributed.pipelining import schedules as torch_schedules

from dlsys.pipeline_parallel import (
    Action,
    Plan,
    PlanError,
    breadth_first,
    bubble_fraction,
    draw_comparison,
    dual_pipe_v,
    eager_1f1b,
    gpipe,
    interleaved,
    message_bytes,
    min_microbatches,
    numbered,
    one_f_one_b,
    pipedream,
    step_seconds,
    zero_bubble,
    zero_bubble_h2,
    zero_bubble_v,
)

BUILDERS = {
    "GPipe": gpipe,
    "1F1B": one_f_one_b,
    "Interleaved1F1B": interleaved,
    "LoopedBFS": breadth_first,
    "InterleavedZeroBubble": zero_bubble,
    "ZBVZeroBubble": zero_bubble_v,
    "DualPipeV": dual_pipe_v,
}
TIMES = [(1, 2, 0, None), (1, 1, 0, 1), (18.522, 18.086, 0.601, 9.337), (1, 2, 0.7, 0.5)]


# Against torch


def torch_order(name: str, p: int, m: int, v: int) -> Plan:
    """The order that torch.distributed.pipelining would run, had without any process.

    Where it splits backward passes, one in full is its two parts in a row, and a pair of passes that
    overlap is one after the other.
    """
    kinds = {"FORWARD": "F", "FULL_BACKWARD": "B", "BACKWARD_INPUT": "B", "BACKWARD_WEIGHT": "W"}
    if name == "DualPipeV":
        kinds["FULL_BACKWARD"] = "BW"
    stages = [
        SimpleNamespace(
            group_size=p, group_rank=0, num_stages=p * v, stage_index=i * p, group=None,
            is_first=i == 0, is_last=False, has_backward=True, submod=torch.nn.Identity(),
        )
        for i in range(v)
    ]  # fmt: skip
    schedule = torch_schedules.get_schedule_class(name)
    single = issubclass(schedule, torch_schedules.PipelineScheduleSingle)
    order = schedule(stages[0] if single else stages, m, loss_fn=None).pipeline_order
    ranks = []
    for rank in range(p):
        actions = [part for a in order[rank] if a for part in a.sub_actions or (a,)]
        made = [Action(kind, s, k) for s, t, k, *_ in actions for kind in kinds.get(t.name, "")]
        # torch 2.13 numbers the last rank's forward passes of 1F1B from 1.
        first = min(k for kind, _, k in made if kind == "F")
        ranks.append([Action(t, s, k - first * (t == "F")) for t, s, k in made])
    return Plan(name, p * v, m, ranks)


@pytest.mark.parametrize(("p", "m"), [(1, 3), (2, 4), (3, 6), (4, 12), (8, 24)])
@pytest.mark.parametrize(
    ("name", "v"),
    [
        ("GPipe", 1),
        ("1F1B", 1),
        ("Interleaved1F1B", 2),
        ("Interleaved1F1B", 3),
        ("LoopedBFS", 3),
        ("InterleavedZeroBubble", 1),
        ("ZBVZeroBubble", 2),
    ],
)
def test_every_rank_runs_in_the_order_of_torchs_schedule(name, v, p, m):
    several = name in ("Interleaved1F1B", "LoopedBFS")
    ours, theirs = BUILDERS[name](p, m, *[v] * several), torch_order(name, p, m, v)
    theirs.check()
    if name == "LoopedBFS":  # torch runs the last micro-batch's backward pass first
        for mine, order in zip(ours.ranks, theirs.ranks, strict=True):
            assert [a[:2] for a in mine] == [a[:2] for a in order]
    else:
        assert ours.ranks == theirs.ranks
    assert ours.peak_in_flight == theirs.peak_in_flight
    assert ours.placement == theirs.placement
    for times in TIMES:
        assert ours.price(*times).makespan <= theirs.price(*times).makespan * (1 + 1e-12)


def test_interleaving_runs_in_torchs_order_whatever_m_and_where_torch_refuses_it_runs_too():
    refused = 0
    for p, m, v in itertools.product((1, 2, 3, 4, 5), range(1, 15), (2, 3)):
        ours = interleaved(p, m, v)
        ours.check()
        if m % max(1, m // p):  # not in equal rounds
            with pytest.raises(ValueError, match="multiple of the number of rounds"):
                torch_order("Interleaved1F1B", p, m, v)
            refused += 1
        else:
            assert ours.ranks == torch_order("Interleaved1F1B", p, m, v).ranks, (p, m, v)
    assert refused == 2 * 16


@pytest.mark.parametrize(("p", "m"), [(1, 2), (2, 4), (3, 7), (4, 8), (5, 12), (8, 24)])
def test_dual_pipe_runs_in_torchs_order_in_the_step_of_zero_bubble_v(p, m):
    ours = dual_pipe_v(p, m)
    assert ours.ranks == torch_order("DualPipeV", p, m, 2).ranks
    assert ours.peak_in_flight == (2 * p + 1,) * p
    assert ours.price(1, 2).makespan == pytest.approx(zero_bubble_v(p, m).price(1, 2).makespan)


def test_plans_say_what_they_are_called():
    assert dual_pipe_v(2, 4).name == "DualPipe V"
    assert pipedream(2, 4).name == "PipeDream"
    assert eager_1f1b(2, 4).name == "eager 1F1B"


@pytest.mark.parametrize("build", [dual_pipe_v, eager_1f1b, pipedream])
def test_a_schedule_of_too_many_passes_is_refused_before_it_is_written_down(build):
    with pytest.raises(ValueError, match="schedules are written down for p x m x v of at most"):
        build(2, 2**20)
    if build is dual_pipe_v:  # of which a rank has two stages
        with pytest.raises(ValueError, match="schedules are written down"):
            build(4, 2**18)


def in_units(plan, rank):
    """A rank's order, where pairs, and backward passes in full, are one unit each."""
    order, p = plan.ranks[rank], plan.p
    below, steady = p - 1 - rank, plan.m - 2 * p + rank + 1
    lengths = [1] * (2 * below + 2 * (rank + 1) + 3 * below) + [3] * (2 * steady) + [2, 3] * below
    if rank == p - 1:  # whose first two passes are no pair
        lengths[lengths.index(3)] = 1
        lengths.insert(lengths.index(3), 2)
    edges = list(itertools.accumulate(lengths, initial=0))
    units = [order[a:b] for a, b in itertools.pairwise(edges)]
    rest = list(order[edges[-1] :])
    while rest:
        full = len(rest) > 1 and rest[0].kind == "B" and rest[1] == ("W", *rest[0][1:])
        units.append(tuple(rest[: 1 + full]))
        rest = rest[1 + full :]
    return units


@pytest.mark.parametrize(("p", "m"), [(2, 4), (3, 6), (4, 16), (8, 32)])
def test_pairs_that_begin_together_have_the_bubble_that_deepseek_publish(p, m):
    plan = dual_pipe_v(p, m)
    units, ended, free = [in_units(plan, rank) for rank in range(p)], {}, [0] * p
    while any(units):
        for rank, left in enumerate(units):
            while left:
                needs = {need for action in left[0] for need in plan.needs(action)} - {*left[0]}
                if needs - ended.keys():
                    break
                unit = left.pop(0)
                free[rank] = max(free[rank], *(ended[need] for need in needs), 0) + len(unit)
                ended |= dict.fromkeys(unit, free[rank])
    bubble = max(free) - 2 * m * 3  # two chunks of F, B and W, a second each
    assert bubble == (p - 1) * (3 + 2 - 3)  # F&B + B - 3W, B in full
    assert plan.price(2, 4).makespan - 2 * m * 3 == pytest.approx(bubble / 2)


@pytest.mark.parametrize("p", [1, 2, 3, 5])
def test_dual_pipe_runs_also_with_fewer_micro_batches_than_torch_takes(p):
    for m in range(1, 2 * p):
        plan, v = dual_pipe_v(p, m), zero_bubble_v(p, m)
        plan.check(most_in_flight=2 * m)
        assert plan.price(1, 2).makespan <= v.price(1, 2).makespan + 1e-9
    assert plan.price(1, 2).makespan == pytest.approx(v.price(1, 2).makespan)
    with pytest.raises(ValueError, match="at least as many microbatches as stages"):
        torch_order("DualPipeV", p, 2 * p - 1, 2)


def rounds_of(plan, rank, kind):
    """The lengths of a rank's runs of one kind of action on one stage."""
    stages = [action.stage for action in plan.ranks[rank] if action.kind == kind]
    return [len(list(run)) for _, run in itertools.groupby(stages)]


@pytest.mark.parametrize(
    ("p", "m", "v", "per_round"), [(4, 24, 2, 4), (4, 24, 2, 8), (3, 11, 3, 4), (4, 9, 2, 9)]
)
def test_rounds_are_as_long_as_they_are_set_and_the_last_takes_what_is_left(p, m, v, per_round):
    plan = interleaved(p, m, v, per_round)
    expected = [min(per_round, m - start) for start in range(0, m, per_round) for _ in range(v)]
    for rank in range(p):
        assert rounds_of(plan, rank, "F") == rounds_of(plan, rank, "B") == expected
        first = next(i for i, a in enumerate(plan.ranks[rank]) if a.kind == "B")
        assert first == min(v * m, 2 * (p - 1 - rank) + (v - 1) * per_round + 1)
    assert plan.price(1, 2).bubble_fraction == pytest.approx(bubble_fraction(p, m, v))
    assert plan.name.endswith(f"rounds of {per_round}")


def test_longer_rounds_hide_transfers_and_hold_more():
    """Llama 3's choice: rounds of p save memory, those of 2p take the time of breadth-first."""
    plans = [interleaved(8, 32, 4, r) for r in (8, 12, 16, 32)]
    took = [plan.price(1, 2, 0.2).makespan for plan in plans]
    assert took == pytest.approx([113.65, 110.65, 104.05, 104.05])
    assert breadth_first(8, 32, 4).price(1, 2, 0.2).makespan == pytest.approx(took[2])
    held = [max(plan.peak_in_flight) for plan in plans]
    assert held == [2 * 7 + 3 * r + 1 for r in (8, 12, 16, 32)]
    assert plans[0].ranks == interleaved(8, 32, 4).ranks
    longest, wide = (
        [action for action in plan.ranks[0] if action.kind == "F"]
        for plan in (plans[-1], breadth_first(8, 32, 4))
    )
    assert longest == wide


def test_the_order_of_rounds_that_megatron_documents():
    # model_parallel_config.py: two ranks, two stages on each, rounds of 3 of 5 micro-batches.
    for rank in range(2):
        forward = [a for a in interleaved(2, 5, 2, 3).ranks[rank] if a.kind == "F"]
        assert [a.micro_batch for a in forward] == [0, 1, 2, 0, 1, 2, 3, 4, 3, 4]


def test_rounds_that_could_leave_ranks_waiting_for_each_other_are_refused():
    for per_round, message in [
        (3, "per_round is 3; a round has at least as many micro-batches as there are ranks"),
        (11, "no more than the step (m is 10)"),
        (8, "10 micro-batches in rounds of 8 leave 2 over"),
        (0, "per_round"),
    ]:
        with pytest.raises(ValueError, match=re.escape(message)):
            interleaved(4, 10, 2, per_round)
    with pytest.raises(ValueError, match="11 micro-batches in rounds of 8 leave 3 over"):
        interleaved(4, 11, 2, 8)
    interleaved(4, 12, 2, 8).check()
    refused = 0
    for p, m in itertools.product(range(1, 6), range(5, 17)):
        for per_round in range(p, m + 1):
            if 0 < m % per_round < p:
                refused += 1
            else:
                interleaved(p, m, 3, per_round).check()
    assert refused > 50


@pytest.mark.parametrize(("p", "m"), [(1, 1), (2, 3), (4, 4), (4, 12), (8, 32)])
def test_eager_1f1b_begins_as_h2_does_and_waits_for_transfers_no_more_than_gpipe(p, m):
    plan = eager_1f1b(p, m)
    h2 = zero_bubble_h2(p, m)
    for mine, theirs in zip(plan.ranks, h2.ranks, strict=True):  # H2 without its W
        assert mine == tuple(action for action in theirs if action.kind != "W")
    assert plan.peak_in_flight == tuple(min(m, 2 * (p - 1 - s) + 1) for s in range(p))
    for transfer in (0, 0.2, 1.5):  # up to half of a forward and a backward pass
        took = plan.price(1, 2, transfer).makespan
        assert took == pytest.approx((m + p - 1) * 3 + 2 * (p - 1) * transfer)


def test_more_in_flight_hides_the_transfers_of_1f1b():
    eager, plain = eager_1f1b(8, 32), one_f_one_b(8, 32)
    took = [plan.price(1, 2, 0.2).makespan for plan in (eager, plain)]
    assert took == pytest.approx([119.8, 130.6])
    assert [plan.peak_in_flight[0] for plan in (eager, plain)] == [15, 8]
    # Longer ones are not hidden: nobody runs that far ahead.
    assert eager.price(1, 2, 2).makespan > (32 + 7) * 3 + 2 * 7 * 2


def test_rounds_that_are_not_even_put_the_larger_first():
    order = interleaved(4, 11, 2).ranks[3]
    forward = [action.stage for action in order if action.kind == "F"]
    backward = [action.stage for action in order if action.kind == "B"]
    assert forward == [3] * 6 + [7] * 6 + [3] * 5 + [7] * 5
    assert backward == [7] * 6 + [3] * 6 + [7] * 5 + [3] * 5


# Against closed forms


@pytest.mark.parametrize(("p", "m"), [(1, 1), (2, 8), (4, 4), (4, 1), (3, 2), (8, 32)])
@pytest.mark.parametrize("build", [gpipe, one_f_one_b])
def test_the_bubble_is_p_minus_1_over_m_plus_p_minus_1(build, p, m):
    cost = build(p, m).price(1, 2)
    assert cost.makespan == step_seconds(p, m, 1, 2) == (m + p - 1) * 3
    assert cost.bubble_fraction == pytest.approx(bubble_fraction(p, m))
    assert cost.bubble_of_ideal == pytest.approx((p - 1) / m)
    assert cost.idle == pytest.approx([3 * (p - 1)] * p)


@pytest.mark.parametrize("build", [interleaved, breadth_first])
@pytest.mark.parametrize(
    ("p", "m", "v"), [(8, 32, 1), (8, 32, 2), (8, 32, 4), (4, 4, 3), (1, 2, 2)]
)
def test_v_stages_per_rank_divide_the_bubble_by_v(build, p, m, v):
    cost = build(p, m, v).price(1, 2)
    assert cost.bubble_fraction == pytest.approx(bubble_fraction(p, m, v))
    assert cost.makespan == pytest.approx(step_seconds(p, m, 1, 2, v))


def test_interleaving_8_ranks_takes_the_bubble_from_18_to_10_and_5_percent():
    bubbles = [interleaved(8, 32, v).price(1, 2).bubble_fraction for v in (1, 2, 4)]
    assert [round(100 * bubble, 1) for bubble in bubbles] == [17.9, 9.9, 5.2]


def test_gpipe_holds_every_micro_batch_and_1f1b_no_more_than_there_are_ranks_after_it():
    assert gpipe(8, 32).peak_in_flight == (32,) * 8
    assert one_f_one_b(8, 32).peak_in_flight == (8, 7, 6, 5, 4, 3, 2, 1)
    assert one_f_one_b(4, 2).peak_in_flight == (2, 2, 2, 1)
    assert gpipe(8, 32).price(1, 2).makespan == one_f_one_b(8, 32).price(1, 2).makespan == 117


def test_transfers_delay_1f1b_more_than_gpipe():
    # Milliseconds: forward 100 and 2 collectives of 10, backward 200 and 2, transfers of 5.
    assert (
        gpipe(2, 8).price(120, 220).makespan == one_f_one_b(2, 8).price(120, 220).makespan == 3060
    )
    assert gpipe(2, 8).price(120, 220, 5).makespan == 3070
    assert one_f_one_b(2, 8).price(120, 220, 5).makespan == 3100


def test_two_stages_are_1_78_times_as_fast_as_one_group_that_holds_both_and_not_1_32():
    # Printed: 9 x 220 = 1980 ms, the slower pass alone, against 8 x 340, a half of the model alone.
    one_group, staged = gpipe(1, 8).price(2 * 120, 2 * 220), one_f_one_b(2, 8).price(120, 220)
    assert one_group.makespan == 5440
    assert one_group.makespan / staged.makespan == pytest.approx(2 * 8 / 9)


def test_between_70_and_90_percent_hold_for_some_micro_batches_and_not_for_pipelines_as_such():
    busy = [1 - gpipe(4, m).price(1, 2).bubble_fraction for m in (1, 8, 32)]
    assert busy == pytest.approx([0.25, 0.727, 0.914], abs=5e-4)


@pytest.mark.parametrize("seconds", [0.2, 5])
@pytest.mark.parametrize(("p", "m"), [(2, 2), (2, 6), (3, 9), (4, 4), (4, 64), (8, 24), (8, 32)])
def test_gpipe_waits_for_2_p_minus_1_transfers_and_1f1b_with_every_p_micro_batches(p, m, seconds):
    # And 1F1B for 2(p - 2) more at the end, where no round is left to hide them.
    waits = {gpipe(p, m): 2 * (p - 1), one_f_one_b(p, m): 2 * (p - 1) * m // p + 2 * (p - 2)}
    for plan, transfers in waits.items():
        later = plan.price(1, 2, transfer=seconds).makespan - plan.price(1, 2).makespan
        assert later == pytest.approx(transfers * seconds)


def test_below_5_percent_is_134_micro_batches_because_133_leave_exactly_5():
    assert bubble_fraction(8, 133) == 0.05
    assert min_microbatches(8, below=0.05) == 134
    assert min_microbatches(1, below=0.05) == 1


@given(st.integers(1, 40), st.integers(1, 99), st.integers(1, 4))
def test_min_microbatches_is_the_first_that_gets_below(p, percent, v):
    m = min_microbatches(p, percent / 100, v)
    assert (p - 1) * 100 < percent * (v * m + p - 1)
    assert m == 1 or (p - 1) * 100 >= percent * (v * (m - 1) + p - 1)


def test_naive_model_parallelism_uses_one_pth_of_the_machine():
    assert gpipe(4, 1).price(1, 2).bubble_fraction == 3 / 4 == bubble_fraction(4, 1)


@pytest.mark.parametrize(("p", "m"), [(2, 2), (4, 8), (8, 9)])
def test_zero_bubble_h1_idles_f_plus_b_minus_w_for_every_other_rank_in_the_memory_of_1f1b(p, m):
    plan = zero_bubble(p, m)
    for f, b, w in [(5, 4, 3), (1, 1, 1), (2, 3, 4)]:
        idle = (p - 1) * (f + b - min(w, f))
        assert plan.price(f, b, 0, w).idle == pytest.approx([idle] * p)
    plan.check(most_in_flight=max(one_f_one_b(p, m).peak_in_flight))


@pytest.mark.parametrize(("p", "m"), [(1, 1), (2, 3), (4, 7), (8, 24)])
def test_zero_bubble_v_has_none_where_f_b_and_w_take_as_long_in_the_memory_of_1f1b(p, m):
    plan = zero_bubble_v(p, m)
    assert plan.price(1, 1, 0, 1).bubble_of_span == pytest.approx(0, abs=1e-12)
    assert plan.placement == (*range(p), *reversed(range(p)))
    plan.check(most_in_flight=2 * p)  # of half a rank's share each


def test_interleaving_multiplies_the_messages():
    assert one_f_one_b(4, 8).messages == (8, 16, 16, 8)
    assert sum(one_f_one_b(4, 8).messages) == 2 * 8 * 3
    assert sum(interleaved(4, 8, 2).messages) == 2 * 8 * (2 * 4 - 1)
    assert sum(zero_bubble_v(4, 8).messages) == 2 * 8 * (2 * 4 - 2)  # none where the V turns
    assert message_bytes(1, 2048, 12288) == 1 * 2048 * 12288 * 2


# The simulation


def legal_plans():
    sizes = st.tuples(st.integers(1, 5), st.integers(1, 9), st.integers(1, 3))

    def build(which, p, m, v):
        return which(p, m, v) if which in (interleaved, breadth_first) else which(p, m)

    builders = [*BUILDERS.values(), zero_bubble_h2]
    return st.builds(lambda which, size: build(which, *size), st.sampled_from(builders), sizes)


SECONDS = st.integers(0, 4)


@settings(max_examples=50, deadline=None)
@given(legal_plans(), st.data(), SECONDS, SECONDS, SECONDS)
def test_every_action_starts_as_soon_as_its_rank_is_free_and_its_needs_have_arrived(
    plan, data, transfer, send, receive
):
    plan.check()
    stage_seconds = st.lists(SECONDS, min_size=plan.stages, max_size=plan.stages)
    f, b, w, update = (data.draw(stage_seconds) for _ in range(4))
    assume(any(f))
    cost = plan.price(f, b, transfer, w, send=send, receive=receive, update=update)
    ends = {action: end for spans in cost.spans for action, _, end in spans}
    both = {
        "F": f,
        "B": b if plan.splits_backward else [x + y for x, y in zip(b, w, strict=True)],
        "W": w,
    }
    needed = {(need, a) for order in plan.ranks for a in order for need in plan.needs(a)}
    crossing = {
        pair for pair in needed if plan.placement[pair[0].stage] != plan.placement[pair[1].stage]
    }
    senders, receivers = {need for need, _ in crossing}, {user for _, user in crossing}
    left, after = [], [0] * plan.p
    for stage, rank in enumerate(plan.placement):
        after[rank] += update[stage]
    for spans, order in zip(cost.spans, plan.ranks, strict=True):
        assert tuple(action for action, _, _ in spans) == order
        free = 0
        for action, start, end in spans:
            arrived = [
                ends[need] + (send + transfer) * ((need, action) in crossing)
                for need in plan.needs(action)
            ]
            assert start == max([free, *arrived]) + receive * (action in receivers)
            assert end - start == both[action.kind][action.stage]
            free = end + send * (action in senders)
        left.append(free)
    assert cost.makespan == max(map(sum, zip(left, after, strict=True)))
    assert cost.idle == tuple(
        cost.makespan - sum(both[a.kind][a.stage] for a in order) - after[rank]
        for rank, order in enumerate(plan.ranks)
    )


def test_one_number_is_the_seconds_of_a_ranks_share_whatever_the_stages():
    for plan in (one_f_one_b(2, 4), interleaved(2, 4, 2), zero_bubble(2, 4), zero_bubble_v(2, 4)):
        assert plan.price(3, 4).busy == (4 * 7, 4 * 7)
        assert plan.price(3, 4, 0, 2).busy == (4 * 9, 4 * 9)


def test_a_plan_of_64_stages_and_512_micro_batches_can_be_handled():
    plan = one_f_one_b(64, 512)
    plan.check(most_in_flight=range(64, 0, -1))
    assert plan.price(1, 2).makespan == (512 + 63) * 3


# What check refuses


@settings(max_examples=50, deadline=None)
@given(legal_plans(), st.data())
def test_any_single_fault_in_a_legal_plan_is_refused(plan, data):
    plan.check(most_in_flight=plan.peak_in_flight)
    rank = data.draw(st.integers(0, plan.p - 1))
    order = list(plan.ranks[rank])
    place = data.draw(st.integers(0, len(order) - 1))
    action = order[place]
    fault = data.draw(st.sampled_from(["drop", "repeat", "early", "elsewhere", "memory"]))
    limit = None
    if fault == "drop":
        # Without its only W a plan is one that does not split the backward pass.
        assume(action.kind != "W" or plan.stages * plan.m > 1)
        del order[place]
    elif fault == "repeat":
        order.insert(data.draw(st.integers(0, len(order))), action)
    elif fault == "early":
        own = [order.index(need) for need in plan.needs(action) if need in order]
        assume(own)
        order.insert(max(own), order.pop(place))
    ranks = [*plan.ranks[:rank], order, *plan.ranks[rank + 1 :]]
    if fault == "elsewhere":
        assume(plan.p > 1)
        order.pop(place)
        other = (rank + 1) % plan.p
        ranks[other] = [*ranks[other], action]
    elif fault == "memory":
        limit = [held - (r == rank) for r, held in enumerate(plan.peak_in_flight)]
    with pytest.raises(PlanError):
        Plan("faulty", plan.stages, plan.micro_batches, ranks).check(limit)


def orders(*texts):
    """Orders from text: "F0 B0" is rank r's for stage r, "F0@1" for stage 1."""
    return [
        [
            Action(word[0], int(stage or rank), int(word[1:]))
            for word, _, stage in (item.partition("@") for item in text.split())
        ]
        for rank, text in enumerate(texts)
    ]


@pytest.mark.parametrize(
    ("ranks", "message", "rank", "place"),
    [
        (
            orders("F0 B0 F1 B1", "F0 F1 B0 B1"),
            "The ranks wait for each other: rank 0 runs B0 of stage 0 as its action 1, which needs B0 "
            "of stage 1, action 2 of rank 1; rank 1 runs F1 of stage 1 as its action 1, which needs F1 "
            "of stage 0, action 2 of rank 0.",
            0,
            1,
        ),
        (
            orders("F0 B0 F1 B1", "F0 B1 B0 F1"),
            "Rank 1 runs B1 of stage 1 as its action 1, but F1 of stage 1 must come first and is its "
            "action 3.",
            1,
            1,
        ),
        (orders("F0 F1 B0 B1", "F0 F1 B0"), "Rank 1 never runs B1 of stage 1.", 1, None),
        (
            orders("F0 F1 B0 B1", "F0 F1 B0 B1 W0"),
            "Rank 0 never runs W0 of stage 0: a plan with W actions needs one for every B.",
            0,
            None,
        ),
        (
            orders("F0 F1 B0 B1", "F0 F1 B0 F1 B1"),
            "Rank 1 runs F1 of stage 1 as its action 3, which it already ran as its action 1.",
            1,
            3,
        ),
        (
            orders("F0 F1 B0 B1", "F0 F1@0 B0 B1"),
            "Rank 1 runs F1 of stage 0 as its action 1, but stage 0 lives on rank 0: a stage has one "
            "rank, which holds its weights.",
            1,
            1,
        ),
        (orders("F0 F1 B0 B1"), "No rank runs stage 1 of the 2 stages.", None, None),
    ],
)
def test_check_names_rank_place_and_action(ranks, message, rank, place):
    with pytest.raises(PlanError) as caught:
        Plan("by hand", 2, 2, ranks).check()
    error = caught.value
    assert (str(error), error.rank, error.place) == (message, rank, place)
    if place is not None:
        assert ranks[rank][place] == error.action
    elif rank is not None:
        assert f"never runs {error.action}" in message


def test_a_circle_names_its_ranks_and_not_those_that_wait_for_it():
    # Ranks 1 and 2 wait for each other, and rank 0 for rank 1.
    ranks = orders("F0 B0 F1 B1", "F0 B0 F1 B1", "F0 F1 B0 B1")
    with pytest.raises(PlanError, match=r"^The ranks wait for each other: rank [12] ") as caught:
        Plan("by hand", 3, 2, ranks).check()
    assert "rank 1 runs" in str(caught.value)
    assert "rank 2 runs" in str(caught.value)
    assert "rank 0 runs" not in str(caught.value)
    assert caught.value.rank in (1, 2)


def test_check_says_where_the_memory_bound_breaks():
    message = (
        "Rank 1 runs F1 of stage 1 as its action 1 and then holds the activations of 2 (stage, "
        "micro-batch) pairs; at most 1 are allowed."
    )
    with pytest.raises(PlanError) as caught:
        gpipe(2, 4).check(most_in_flight=[4, 1])
    error = caught.value
    assert (str(error), error.rank, error.place) == (message, 1, 1)
    assert error.action == Action("F", 1, 1)
    with pytest.raises(PlanError, match=r"Rank 0 runs F0 .* of 1 .* at most 0 are allowed"):
        gpipe(2, 4).check(most_in_flight=0)
    with pytest.raises(
        ValueError,
        match=r"^most_in_flight has 3 numbers; give one for each of the 2 ranks, or one for all\.$",
    ):
        gpipe(2, 4).check(most_in_flight=(1, 2, 3))


KINDS = "; the kinds are 'F' (forward), 'B' (backward), 'W' (backward for weights)."


@pytest.mark.parametrize(
    ("ranks", "message", "rank", "place"),
    [
        (None, "ranks is None; give for each rank the sequence of its actions.", None, None),
        ([], "The plan has no ranks; give the order of actions of at least one.", None, None),
        ("FB", "ranks is 'FB'; give for each rank the sequence of its actions.", None, None),
        ([[], 3], "Rank 1 has 3; give the sequence of its actions.", 1, None),
        (
            [[("F", 0, 0), "B0"]],
            "Rank 0 has 'B0' as its action 1; write Action(kind, stage, micro_batch).",
            0,
            1,
        ),
        (
            [[("F", 0)]],
            "Rank 0 has ('F', 0) as its action 0; write Action(kind, stage, micro_batch).",
            0,
            0,
        ),
        ([[("G", 0, 0)]], "Rank 0 has ('G', 0, 0) as its action 0" + KINDS, 0, 0),
        ([[([], 0, 0)]], "Rank 0 has ([], 0, 0) as its action 0" + KINDS, 0, 0),
        *(
            (
                [[("F", stage, 0)]],
                f"Rank 0 has ('F', {stage!r}, 0) as its action 0; its stage {stage!r} is none of 0 "
                "to 1.",
                0,
                0,
            )
            for stage in (2, -1)
        ),
        *(
            (
                [[("F", 0, k)]],
                f"Rank 0 has ('F', 0, {k!r}) as its action 0; its micro-batch {k!r} is none of 0 "
                "to 2.",
                0,
                0,
            )
            for k in (3, True, "1", 1.0)
        ),
    ],
)
def test_a_malformed_plan_is_a_sentence(ranks, message, rank, place):
    with pytest.raises(PlanError) as caught:
        Plan("by hand", 2, 3, ranks)
    error = caught.value
    assert (str(error), error.rank, error.place) == (message, rank, place)


def test_a_rank_may_have_nothing_to_do():
    plan = Plan("one works", 1, 2, orders("F0 F1 B0 B1", ""))
    plan.check(most_in_flight=[2, 0])
    cost = plan.price([1], [2])
    assert cost.idle == (0, 6)
    assert cost.bubble_of_span == 0.5
    assert plan.peak_in_flight == (2, 0)


def test_a_hand_written_plan_may_place_stages_as_it_likes():
    plan = Plan("uneven", 3, 1, orders("F0 F0@1 B0@1 B0", "F0@2 B0@2"))
    plan.check(most_in_flight=2)
    assert (plan.p, plan.m, plan.v, plan.placement) == (2, 1, 2, (0, 0, 1))
    assert plan.price([1, 1, 1], [2, 2, 2], 5).makespan == 3 + 6 + 2 * 5
    assert plan.price(3, 6).busy == (2 * (2 + 4), 2 + 4)  # a stage is a third of two ranks' shares
    assert Plan("uneven", 3, 1, plan.ranks) == plan
    assert hash(Plan("uneven", 3, 1, plan.ranks)) == hash(plan)
    assert numbered([("F", 0), ("F", 0), ("B", 0), ("B", 0)]) == gpipe(1, 2).ranks[0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: gpipe(0, 4), "p .the number of ranks. is 0"),
        (lambda: one_f_one_b(4, 0), "m .the number of micro-batches. is 0"),
        (lambda: zero_bubble(2.5, 4), "p .the number of ranks. is 2.5"),
        (lambda: interleaved(4, 8, 0), "v .the number of stages per rank. is 0"),
        (lambda: gpipe(2, 2).price(-1, 2), "forward is -1"),
        (
            lambda: gpipe(2, 2).price([1, 2, 3], 2),
            "^forward has 3 times; give one for each of the 2 stages, or one number for a rank's share"
            " of the model.$",
        ),
        (lambda: gpipe(2, 2).price(1, [1, -2]), "backward of stage 1 is -2"),
        (lambda: gpipe(2, 2).price(1, 2, -5), "transfer is -5"),
        (
            lambda: gpipe(2, 2).price(0, 0),
            "^Every action takes 0 seconds; give a forward or backward time above 0.$",
        ),
        (lambda: min_microbatches(8, 0), "below is 0"),
        (lambda: min_microbatches(8, 5), "^below is 5; it is a share of the step, at most 1.$"),
        (lambda: gpipe(65, 1).draw(), "draw the same schedule with 8"),
    ],
)
def test_impossible_sizes_and_times_are_sentences(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# Pictures


def test_every_schedule_can_be_drawn():
    for plan in (gpipe(1, 1), one_f_one_b(8, 32), interleaved(2, 4, 3), zero_bubble_v(3, 5)):
        figure = plan.draw(1, 2, 0.1, memory=True, until=200)
        figure.canvas.draw()
        assert len(figure.axes) == 2
    without = draw_comparison([gpipe(4, 8), one_f_one_b(4, 8)])
    assert len(without.axes[0].lines) == 2  # nothing hollow


def test_schedules_are_compared_at_two_networks_each_in_a_row_beside_what_it_holds():
    plans = [build(4, 8) for build in (gpipe, one_f_one_b, eager_1f1b, zero_bubble, zero_bubble_h2)]
    plans += [breadth_first(4, 8, 2), interleaved(4, 8, 2), zero_bubble_v(4, 8)]
    idle, memory = draw_comparison(plans, transfer=0.2, quick=0.02).axes
    names = [label.get_text() for label in idle.get_yticklabels()]
    held = [bar.get_width() for bar in memory.patches]
    assert held == sorted(held)
    assert memory.get_ylim() == idle.get_ylim()
    assert [bar.get_y() + bar.get_height() / 2 for bar in memory.patches] == [*range(len(plans))]
    assert [float(text.get_text()) for text in memory.texts] == held
    assert dict(zip(names, held, strict=True)) == {
        plan.name: max(plan.peak_in_flight) / plan.v for plan in plans
    }
    points = [line for line in idle.lines if line.get_marker() != "None"]
    for seconds, style in ((0.2, "full"), (0.02, "none")):
        shares = {
            names[int(line.get_ydata()[0])]: line.get_xdata()[0]
            for line in points
            if line.get_fillstyle() == style
        }
        assert shares == {
            plan.name: pytest.approx(100 * plan.price(1, 2, seconds).bubble_fraction)
            for plan in plans
        }


@pytest.mark.parametrize("plan", [gpipe(3, 2), zero_bubble_v(3, 5), zero_bubble(3, 5)], ids=str)
def test_what_is_drawn_takes_the_seconds_of_the_price(plan):
    times = {"transfer": 0.1, "send": 0.2, "receive": 0.3, "update": 0.7}
    cost = plan.price(1, 2, **times)
    (axes,) = plan.draw(1, 2, **times).axes
    squares = {
        tuple(path.vertices[[0, 2]].flatten().round(9))
        for bars in axes.collections
        for path in bars.get_paths()
    }
    expected = {
        tuple(np.round([start, rank - 0.42, end, rank + 0.42], 9))
        for rank, spans in enumerate(cost.spans)
        for _, start, end in spans
    }
    assert squares == expected
    ends = [bar.get_x() + bar.get_width() for bar in axes.patches]
    assert [bar.get_width() for bar in axes.patches] == pytest.approx(cost.update)
    assert max(ends) == pytest.approx(cost.makespan) == axes.get_xlim()[1]
    assert "update" in [text.get_text() for text in axes.figure.legends[0].get_texts()]


def test_an_update_is_drawn_after_the_last_message_of_its_rank():
    for stage in range(3):
        times = {"send": 0.2, "update": [50 * (each == stage) for each in range(3)]}
        (bar,) = gpipe(3, 2).draw(1, 2, **times).axes[0].patches
        ends = bar.get_x() + bar.get_width()
        assert ends == pytest.approx(gpipe(3, 2).price(1, 2, **times).makespan)


@pytest.mark.parametrize(
    ("order", "late"), [("F W B", "B0"), ("B F W", "F0"), ("W F B", "B0")], ids=str
)
def test_no_part_of_a_backward_pass_runs_before_what_it_needs(order, late):
    """Said here action by action, and not by what the plan itself takes for a need."""
    plan = Plan("too early", 1, 1, (tuple(Action(kind, 0, 0) for kind in order.split()),))
    with pytest.raises(PlanError, match=rf"but {late} of stage 0 must come first"):
        plan.check()
    Plan("in time", 1, 1, (tuple(Action(kind, 0, 0) for kind in "FBW"),)).check()
