"""Steps under ZeRO as plans: every plan that is built can be run, and what cannot is refused."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsys.zero import Action, StepPlan, Unit, flat, price, step_plan

UNITS = {"a": 5, "b": 6, "c": 7}


def plans() -> st.SearchStrategy[StepPlan]:
    @st.composite
    def drawn(draw: st.DrawFn) -> StepPlan:
        sizes = draw(st.lists(st.integers(0, 9), min_size=1, max_size=5))
        outer = draw(st.booleans())
        return step_plan(
            draw(st.integers(0, 3)),
            [Unit(f"u{i}", n, outer and not i) for i, n in enumerate(sizes)],
            draw(st.integers(1, 5)),
            draw(st.integers(1, 3)),
            draw(st.sampled_from(["each", "last"])),
            draw(st.booleans()),
            draw(st.integers(0, 3)),
        )

    return drawn()


def kinds(plan: StepPlan) -> list[str]:
    return [f"{action.kind} {action.unit}" for action in plan.actions]


# -- shards --------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 7), min_size=1, max_size=6), st.integers(1, 9))
def test_every_element_is_in_exactly_one_shard_and_where_its_place_says(sizes, ranks):
    layout = flat({f"p{i}": n for i, n in enumerate(sizes)}, ranks)
    where = [f"p{i}[{k}]" for i, n in enumerate(sizes) for k in range(n)]
    found = {}
    for rank in range(ranks):
        for piece in layout.pieces(rank):
            for k in range(piece.elements):
                found[rank * layout.shard + piece.place + k] = f"{piece.name}[{piece.start + k}]"
    assert found == dict(enumerate(where))
    assert layout.padded - layout.elements < ranks
    assert layout.padded == ranks * layout.shard
    assert [found[b] for b, n in zip(layout.begins, sizes, strict=True) if n] == [
        name for name in where if name.endswith("[0]")
    ]


def test_a_shard_may_cut_through_a_parameter_or_hold_nothing():
    layout = flat({"weight": 5, "bias": 2}, 4)
    assert [
        [(p.name, p.start, p.stop, p.place) for p in layout.pieces(r) if p.elements]
        for r in range(4)
    ] == [
        [("weight", 0, 2, 0)],
        [("weight", 2, 4, 0)],
        [("weight", 4, 5, 0), ("bias", 0, 1, 1)],
        [("bias", 1, 2, 0)],
    ]
    assert all(p.elements == 0 for p in flat({"one": 1}, 3).pieces(2))


# -- steps ---------------------------------------------------------------------------------------


def test_stage_3_gathers_one_ahead_and_each_unit_twice():
    assert kinds(step_plan(3, UNITS, 4)) == [
        *("gather 0", "gather 1", "forward 0", "free weights 0"),
        *("gather 2", "forward 1", "free weights 1", "forward 2", "free weights 2"),
        *("gather 2", "gather 1", "backward 2", "reduce 2", "free weights 2"),
        *("gather 0", "backward 1", "free gradients 2", "reduce 1", "free weights 1"),
        *("backward 0", "free gradients 1", "reduce 0", "free weights 0", "free gradients 0"),
        "update -1",
    ]


def test_stage_2_gives_gradients_back_one_unit_later_and_gathers_after_the_update():
    assert kinds(step_plan(2, UNITS, 4)) == [
        *("forward 0", "forward 1", "forward 2", "backward 2", "reduce 2"),
        *("backward 1", "free gradients 2", "reduce 1"),
        *("backward 0", "free gradients 1", "reduce 0", "free gradients 0", "update -1"),
        *("gather 0", "gather 1", "gather 2"),
    ]


def test_stage_1_is_data_parallelism_with_its_all_reduce_cut_in_two():
    whole, cut = (kinds(step_plan(stage, UNITS, 4)) for stage in (0, 1))
    assert cut == [*whole, "gather 0", "gather 1", "gather 2"]


def test_an_outer_unit_is_whole_around_the_others():
    plan = step_plan(3, [Unit("root", 9, outer=True), Unit("b", 6), Unit("c", 7)], 4, prefetch=0)
    assert kinds(plan) == [
        *("gather 0", "gather 1", "forward 1", "free weights 1"),
        *("gather 2", "forward 2", "free weights 2", "forward 0", "free weights 0"),
        *("gather 0", "gather 2", "backward 2", "reduce 2", "free weights 2"),
        *("gather 1", "backward 1", "free gradients 2", "reduce 1", "free weights 1"),
        *("backward 0", "free gradients 1", "reduce 0", "free weights 0", "free gradients 0"),
        "update -1",
    ]


@pytest.mark.parametrize(
    ("reduce", "reshard", "gathers", "reduces"),
    [("each", True, 6, 3), ("last", True, 6, 1), ("each", False, 3, 3), ("last", False, 3, 1)],
)
def test_accumulation_gathers_for_each_micro_batch_and_reduces_as_told(
    reduce, reshard, gathers, reduces
):
    plan = step_plan(3, UNITS, 4, micro_batches=3, reduce=reduce, reshard=reshard)
    times = Counter((action.kind, action.unit) for action in plan.actions)
    for unit in range(3):
        assert (times["gather", unit], times["reduce", unit]) == (gathers, reduces)
    plan.check()


@given(plans())
def test_every_plan_that_is_built_passes_its_check(plan):
    plan.check()


@given(plans(), st.data())
def test_a_plan_without_one_of_its_actions_is_refused(plan, data):
    needed = [
        i
        for i, (kind, _, batch) in enumerate(plan.actions)
        # What stages 0 and 1 do not reduce with this micro-batch they may with a later one.
        if not (kind == "reduce" and plan.stage < 2 and batch < plan.micro_batches - 1)
    ]
    place = data.draw(st.sampled_from(needed))
    less = plan.actions[:place] + plan.actions[place + 1 :]
    with pytest.raises(ValueError, match=r"^(Action \d+, .*: .+|After the last action .+)\.$"):
        replace(plan, actions=less).check()


@given(plans(), st.data())
def test_a_plan_with_an_action_twice_in_a_row_is_refused(plan, data):
    harmless = [
        i
        for i, action in enumerate(plan.actions)
        if not (action.kind == "gather" and plan.stage in (1, 2))  # only bytes are lost
    ]
    place = data.draw(st.sampled_from(harmless))
    twice = (*plan.actions[: place + 1], *plan.actions[place:])
    with pytest.raises(ValueError, match=r"^Action \d+"):
        replace(plan, actions=twice).check()


def without(*gone):
    return lambda actions: [a for a in actions if (a.kind, a.unit, a.micro_batch) not in gone]


def before(kind, *more):
    """Put actions in front of the first of this kind."""

    def change(actions):
        place = next(i for i, action in enumerate(actions) if action.kind == kind)
        return [*actions[:place], *more, *actions[place:]]

    return change


def first(*more):
    return lambda actions: [*more, *actions]


def last(*more):
    return lambda actions: [*actions, *more]


FORWARD, BACKWARD, GATHER, WAIT = (
    *(Action("forward", 1), Action("backward", 1), Action("gather", 0), Action("wait", -1)),
)
FREE, DROP = Action("free weights", 1), Action("free gradients", 1)
ONCE = "once for each micro-batch, in order, before the update"
AFTER = "once for each micro-batch, after its forward"
ITS, NONE_LEFT = "its gradients were", "there are no gradients that were not reduced yet"
TWICE = f"{ITS} reduced and are still there: what is reduced twice counts twice"


@pytest.mark.parametrize(
    ("stage", "batches", "change", "where", "why"),
    [
        (
            3,
            1,
            without(("gather", 1, 0)),
            "3, forward 1",
            "its weights are not whole: gather them before",
        ),
        (
            3,
            1,
            before("backward", FREE),
            "9, backward 1",
            "its weights are not whole: gather them before",
        ),
        (3, 1, before("backward", FREE, FREE), "9, free weights 1", "its weights are not whole"),
        (3, 1, last(GATHER, GATHER), "18, gather 0", "its weights are whole already"),
        (1, 1, first(GATHER), "0, gather 0", "its weights are whole already"),
        (2, 1, first(FREE), "0, free weights 1", "stage 2 keeps whole weights"),
        (0, 1, before("backward", FORWARD), "2, forward 1", f"a unit goes forward {ONCE}"),
        (0, 1, last(FORWARD), "8, forward 1", f"a unit goes forward {ONCE}"),
        (0, 1, first(BACKWARD), "0, backward 1", f"a unit goes backward {AFTER}"),
        (
            0,
            1,
            before("backward", BACKWARD, BACKWARD),
            "3, backward 1",
            f"a unit goes backward {AFTER}",
        ),
        (2, 2, without(("free gradients", 0, 0)), "11, backward 0", TWICE),
        (
            2,
            1,
            before("reduce", DROP),
            "3, free gradients 1",
            f"{ITS} not reduced: they would be lost",
        ),
        (1, 1, before("wait", DROP), "6, free gradients 1", "stage 1 keeps whole gradients"),
        (2, 1, before("free gradients", Action("reduce", 1)), "5, reduce 1", NONE_LEFT),
        (1, 1, first(Action("reduce", 1)), "0, reduce 1", NONE_LEFT),
        (
            1,
            2,
            without(("reduce", 1, 1)),
            "13, update",
            "unit 1 has reduced the gradients of 1 of 2 micro-batches",
        ),
        (
            1,
            1,
            without(("reduce", 1, 0)),
            "6, update",
            "unit 1 has reduced the gradients of 0 of 1 micro-batches",
        ),
        (0, 1, last(Action("update", -1)), "8, update", "the step has been taken"),
        (
            1,
            1,
            without(("wait", -1, 0)),
            "6, update",
            "nobody has waited for the reduction of unit 0",
        ),
        (2, 1, before("free gradients", WAIT), "5, wait", "there is no reduction to wait for"),
        (1, 1, before("reduce", WAIT), "3, wait", "there is no reduction to wait for"),
        (
            0,
            1,
            first(Action("scatter", 0)),
            "0, scatter 0",
            "there is no such action; there are gather, forward, b.*",
        ),
        (0, 1, first(Action("forward", 2)), "0, forward 2", "there are units 0 to 1"),
        (0, 1, first(Action("forward", 0, 1)), "0, forward 0", "there are micro-batches 0 to 0"),
    ],
)
def test_what_cannot_be_run_or_trains_something_else_is_refused(stage, batches, change, where, why):
    plan = step_plan(stage, {"a": 5, "b": 6}, 4, batches)
    with pytest.raises(ValueError, match=rf"^Action {where} of micro-batch \d: {why}\.$"):
        replace(plan, actions=tuple(change([*plan.actions]))).check()


@pytest.mark.parametrize(
    ("stage", "gone", "why"),
    [
        (0, ("update", -1, 0), "nothing was updated"),
        (1, ("gather", 1, 0), "unit 1 has new weights in this rank's shard alone"),
        (3, ("free weights", 0, 0), "unit 0 has whole weights still"),
    ],
)
def test_a_step_that_is_not_over_is_refused(stage, gone, why):
    plan = step_plan(stage, {"a": 5, "b": 6}, 4)
    actions = [*plan.actions]
    place = max(i for i, action in enumerate(actions) if tuple(action) == gone)
    with pytest.raises(ValueError, match=rf"^After the last action {why}\.$"):
        replace(plan, actions=tuple(actions[:place] + actions[place + 1 :])).check()


@pytest.mark.parametrize("stage", [1, 2])
def test_new_weights_may_be_gathered_twice_and_belong_to_the_last_micro_batch(stage):
    plan = step_plan(stage, {"a": 5, "b": 6}, 4, 3)
    assert [tuple(a) for a in plan.actions[-3:]] == [
        ("update", -1, 2),
        ("gather", 0, 2),
        ("gather", 1, 2),
    ]
    replace(plan, actions=(*plan.actions, Action("gather", 0))).check()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: flat({"one": 1}, 3).pieces(3), "rank is 3; it must be at most 2."),
        (lambda: flat({"one": -1}, 3), "The elements of 'one' is -1; "),
        (lambda: flat({2: 1}, 3), "A parameter's name is 2; "),
        (lambda: flat({"one": 1}, 1_000_001), "ranks is 1000001; it must be at most 1,000,000."),
        (
            lambda: step_plan(1, {"a": 1}, 1_000_001),
            "ranks is 1000001; it must be at most 1,000,000.",
        ),
        (lambda: step_plan(1, {2: 1}, 4), "name is 2; "),
        (lambda: Unit("a", -1), "elements is -1; "),
        (
            lambda: step_plan(1, [Unit("a", 1), Unit("b", 1, True)], 4),
            "outer is 'b'; it must be the first unit, which is 'a': it is around all.",
        ),
        (
            lambda: step_plan(1, {"a": 1, "b": 1, "c": 1}, 4, 41_667),
            "micro_batches is 41667; it must be at most 41,666.",
        ),
        (lambda: price(1, 8, 10_001), "n is 10001; it must be at most 10,000."),
    ],
)
def test_what_is_no_plan_is_called_by_its_name(call, said):
    with pytest.raises(ValueError, match=f"^{re.escape(said)}"):
        call()


def test_a_units_elements_are_a_whole_number_and_a_million_ranks_are_allowed():
    assert type(Unit("a", numpy.int64(3)).elements) is int
    assert flat({"one": 1}, 1_000_000).shard == step_plan(1, {"a": 1}, 1_000_000).shard(0) == 1


def test_a_plan_draws_itself_for_what_is_given_by_place():
    plan = step_plan(3, {"a": 5, "b": 6}, 4)
    titles = [
        plan.draw(*seconds).axes[0].get_title(loc="left") for seconds in [(), (2.0,), (2.0, 5.0)]
    ]
    assert len({*titles}) == 3


def test_a_wait_leaves_gradients_that_were_not_sent_as_they_are():
    plan = step_plan(0, {"a": 5, "b": 6}, 4)
    order = "forward 0, forward 1, backward 1, backward 0, reduce 1, wait, reduce 0, wait, update"
    words = (each.split() for each in order.split(", "))
    actions = tuple(Action(kind, int(unit[0]) if unit else -1) for kind, *unit in words)
    replace(plan, actions=actions).check()


def test_a_plan_says_what_it_is_asked():
    plan = step_plan(3, UNITS, 4)
    assert (plan.shard(0), plan.shard(2)) == (2, 2)
    for unit, allowed in ((3, "at most 2"), (-1, "a whole number of at least 0")):
        with pytest.raises(ValueError, match=f"^unit is {unit}; it must be {allowed}"):
            plan.shard(unit)
    assert str(Action("gather", 2, 1)) == "gather 2 of micro-batch 1"
    assert str(Action("update", -1)) == "update of micro-batch 0"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"stage": 4}, r"stage is 4; it must be 0 \(nothing sharded\), 1, 2 or 3"),
        ({"units": [7]}, r"units is \[7\]; it must be .* Unit"),
        ({"units": [Unit("a", 1), Unit("b", 1, True)]}, "outer is 'b'; it must be the first unit"),
        ({"micro_batches": 10**9}, "micro_batches is 1000000000; it must be at most"),
    ],
)
def test_a_step_that_cannot_be_planned_is_refused(more, said):
    with pytest.raises(ValueError, match=said):
        step_plan(**{"stage": 3, "units": UNITS, "ranks": 4} | more)
