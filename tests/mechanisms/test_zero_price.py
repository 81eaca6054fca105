"""What ZeRO costs: prices held against ranks that really send, and plans that really run."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dlsys import world
from dlsys.data_parallel import step_bytes
from dlsys.hardware import LINKS, Link, dgx_h100
from dlsys.memory_wall import model_state
from dlsys.zero import (
    StepPlan,
    Unit,
    collective_seconds,
    flat,
    held,
    overlap,
    price,
    sent,
    step_plan,
)

LINK = Link("plain", latency=2e-3, bandwidth=1e6)
BLOCKS = {f"block {i}": 7_500_000_000 // 24 for i in range(24)}


def ran(plan: StepPlan, forward: list[float], backward: list[float], link: Link) -> world.Run:
    """The plan as a rank program of collectives on 2-byte elements, in virtual time."""

    def program(comm: world.Communicator) -> None:
        handles: dict[tuple[str, int], world.Handle] = {}
        for kind, unit, _ in plan.actions:
            shard = plan.shard(unit) if unit >= 0 else 0
            if kind == "gather":
                part = torch.empty(shard, dtype=torch.bfloat16, device="meta")
                handles[kind, unit] = comm.all_gather(part, async_op=True)
            elif kind == "reduce":
                whole = plan.units[unit].elements if plan.stage == 0 else shard * comm.size
                gradient = torch.empty(whole, dtype=torch.bfloat16, device="meta")
                call = comm.all_reduce if plan.stage == 0 else comm.reduce_scatter
                handles[kind, unit] = call(gradient, async_op=True)
            elif kind in ("forward", "backward"):
                if ("gather", unit) in handles:
                    handles.pop(("gather", unit)).wait()
                comm.compute((forward if kind == "forward" else backward)[unit])
            elif kind == "free gradients":
                handles.pop(("reduce", unit)).wait()
            elif kind == "wait":
                for key in [key for key in handles if key[0] == "reduce"]:
                    handles.pop(key).wait()
        for handle in handles.values():
            handle.wait()

    return world.simulate(program, plan.ranks, link=link)


# -- bytes sent ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stage", "nbytes", "n", "sent_bytes"),
    [  # D = 20 GB among 64 (facts of published examples): 39.4, 39.4, 39.4, 59.1 GB
        (0, 20e9, 64, 39.375e9),
        (1, 20e9, 64, 39.375e9),
        (2, 20e9, 64, 39.375e9),
        (3, 20e9, 64, 59.0625e9),
        (3, 20e9, 1, 0),
        (3, 0, 8, 0),
    ],
)
def test_stages_1_and_2_send_what_data_parallelism_does_and_stage_3_half_as_much_again(
    stage, nbytes, n, sent_bytes
):
    assert price(stage, nbytes, n).bytes_per_rank == sent_bytes
    assert price(0, nbytes, n).bytes_per_rank == step_bytes(nbytes, n)


def test_a_stage_costs_the_seconds_of_its_collectives_on_the_given_link():
    link = LINKS["nvlink4"]
    per_collective = 7 * (link.latency + 1e9 / 8 / link.bandwidth)
    assert price(2, 1e9, 8, link).seconds == pytest.approx(2 * per_collective)
    assert price(3, 1e9, 8, link).seconds == pytest.approx(3 * per_collective)
    assert price(3, 1e9, 8).seconds == 0
    assert price(3, 1e9, 8).collectives == ("all_gather", "all_gather", "reduce_scatter")
    assert price(3, 1e9, 16, dgx_h100(2)).seconds > price(3, 1e9, 16, link).seconds


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_the_busiest_rank_sends_exactly_what_the_plan_says(stage, ranks):
    units = [Unit("outer", 5, outer=True), Unit("a", 12), Unit("b", 17), Unit("none", 0)]
    for more in (
        {},
        {"micro_batches": 2},
        {"micro_batches": 3, "reduce": "last"},
        {"reshard": False},
    ):
        plan = step_plan(stage, units, ranks, **more)
        run = ran(plan, [0.0] * 4, [0.0] * 4, LINK)
        assert sent(plan) == max(run.traffic.sent)


def test_what_a_stage_sends_where_shards_divide_is_its_closed_form():
    for stage in range(4):
        plan = step_plan(stage, BLOCKS, 64)
        ideal = price(stage, 2 * plan.elements, 64).bytes_per_rank
        padding = 24 * 64 * 2 * 3
        assert ideal <= sent(plan) <= ideal + padding


# -- bytes held ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("stage", "gigabytes"), [(0, 120.0), (1, 31.4), (2, 16.6), (3, 1.9)])
def test_the_papers_7_5_billion_parameters_on_64_devices(stage, gigabytes):
    # Rajbhandari et al. 2020, figure 1.
    assert round(held(step_plan(stage, BLOCKS, 64)).at_rest / 1e9, 1) == gigabytes


@given(st.integers(1, 10**12), st.integers(1, 4096), st.integers(0, 3))
def test_one_unit_is_held_as_the_memory_wall_says(parameters, ranks, stage):
    state = model_state(parameters, "mixed-adamw", stage, ranks)
    found = held(step_plan(stage, {"all": parameters}, ranks))
    assert (found.weights, found.gradients, found.optimizer) == (
        *(state.weights, state.gradients, state.optimizer),
    )


def test_other_recipes_are_other_bytes_a_parameter():
    found = held(step_plan(2, {"all": 13_000_000_000}, 8), weights=2, gradients=2, optimizer=8)
    assert found.at_rest == 42.25e9
    found = held(step_plan(3, {"all": 70_000_000_000}, 8), weights=2, gradients=2, optimizer=8)
    assert found.at_rest == 105e9  # of each device: not of all eight together


def test_beside_its_shards_stage_3_has_the_units_in_flight():
    units = {"a": 8, "b": 16, "c": 24, "d": 4}
    assert held(step_plan(3, units, 4)).gathered == 2 * (16 + 24)
    assert held(step_plan(3, units, 4, prefetch=0)).gathered == 2 * 24
    assert held(step_plan(3, units, 4, prefetch=9)).gathered == 2 * (8 + 16 + 24 + 4)
    assert held(step_plan(3, units, 4, reshard=False)).gathered == 2 * (8 + 16 + 24 + 4)
    outer = [Unit("outer", 100, outer=True), *(Unit(*pair) for pair in units.items())]
    assert held(step_plan(3, outer, 4)).gathered == 2 * (100 + 16 + 24)
    assert held(step_plan(2, units, 4)).gathered == 0


def test_whole_gradients_are_those_of_two_neighbours_unless_they_are_kept():
    units = {"a": 8, "b": 16, "c": 24, "d": 4}
    assert held(step_plan(2, units, 4)).unreduced == 2 * (16 + 24)
    assert held(step_plan(3, units, 4)).unreduced == 2 * (16 + 24)
    late = step_plan(3, units, 4, micro_batches=2, reduce="last")
    assert held(late).unreduced == 2 * (8 + 16 + 24 + 4)
    assert held(step_plan(1, units, 4)).unreduced == 0


def test_gathered_weights_are_padded():
    assert held(step_plan(3, {"a": 5}, 4)).gathered == 2 * flat({"a": 5}, 4).padded == 16
    assert held(step_plan(2, {"a": 5}, 4)).unreduced == 2 * 5
    assert held(step_plan(3, {"a": 0}, 4)).gathered == 0


# -- seconds -------------------------------------------------------------------------------------

TIMES = st.floats(0, 0.05)


@settings(max_examples=40)
@given(
    st.integers(0, 3),
    st.lists(
        st.tuples(st.integers(1, 400).map(lambda k: 12 * k), TIMES, TIMES), min_size=1, max_size=4
    ),
    st.sampled_from([1, 2, 3, 4]),
    st.integers(0, 2),
    st.integers(1, 2),
    st.booleans(),
)
def test_a_step_takes_what_the_same_program_takes_in_virtual_time(
    stage, sizes, ranks, prefetch, micro_batches, reshard
):
    free = Link("no latency", latency=0.0, bandwidth=1e6)
    units = {f"u{i}": n for i, (n, _, _) in enumerate(sizes)}
    forward, backward = [f for _, f, _ in sizes], [b for _, _, b in sizes]
    plan = step_plan(stage, units, ranks, micro_batches, prefetch=prefetch, reshard=reshard)
    step = overlap(plan, forward, backward, free)
    assert step.compute_seconds == pytest.approx(micro_batches * sum(forward + backward))
    one_at_a_time = step.compute_seconds + step.communication_seconds
    assert step.compute_seconds <= step.seconds <= one_at_a_time * (1 + 1e-12)
    run = ran(plan, forward, backward, free)
    # Collectives that go on at one time share links there, where the price has them queue.
    queued = sum(after.start == before.end for before, after in pairwise(step.network))
    longest = max(span.seconds for span in step.network)
    assert step.seconds == pytest.approx(run.seconds, rel=1e-9, abs=queued * longest)


def test_stage_3_hides_its_gathers_behind_units_that_take_longer():
    plan = step_plan(3, {"a": 4000, "b": 4000, "c": 4000, "d": 4000}, 4)
    one = 3 * (2e-3 + 2000 * 1e-6)  # three rounds of 2,000 bytes
    step = overlap(plan, [2 * one] * 4, [2 * one] * 4, LINK)
    # The first gather, the one that backward starts with, and the last reduction have nothing to
    # hide behind. Before backward's first pass two gathers are asked for, and it needs one.
    assert step.communication_seconds == pytest.approx(12 * one)
    assert step.exposed_seconds == pytest.approx(3 * one)
    blocking = overlap(step_plan(3, plan.units, 4, prefetch=0), [2 * one] * 4, [2 * one] * 4, LINK)
    assert blocking.exposed_seconds > 8 * one


def test_seconds_may_be_given_for_each_unit_or_in_all():
    plan = step_plan(3, {"a": 100, "b": 300}, 2)
    whole, parts = overlap(plan, 4.0, 8.0, LINK), overlap(plan, [1.0, 3.0], [2.0, 6.0], LINK)
    assert whole == parts
    with pytest.raises(ValueError, match="forward has 1 numbers; give one for each of the 2 units"):
        overlap(plan, [1.0], 1.0, LINK)
    with pytest.raises(ValueError, match=r"^forward is -1\.0"):
        overlap(plan, [1.0, -1.0], 1.0, LINK)


@pytest.mark.parametrize(("stage", "elements"), [(0, 5), (1, 8), (2, 8), (3, 8)])
def test_a_reduction_carries_padding_where_it_leaves_shards(stage, elements):
    kind = "reduce_scatter" if stage else "all_reduce"
    step = step_plan(stage, {"a": 5}, 4).price(1.0, 2.0, LINK, itemsize=4)
    spans = {span.action.kind: span.seconds for span in step.network}
    assert spans["reduce"] == pytest.approx(collective_seconds(kind, 4 * elements, 4, LINK))
