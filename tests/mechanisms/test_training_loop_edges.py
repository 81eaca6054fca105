"""What cannot be is refused in a whole sentence that names it; what just can be is taken."""

import re

import pytest
import torch
from torch import nn

from dlsys.training_loop import (
    SGD,
    Action,
    AdamW,
    IronLaw,
    StepPlan,
    Technique,
    clip_or_refuse,
    cosine,
    draw_step,
    exponential,
    fit_extremes,
    gradient_squares,
    held_bytes,
    linear,
    linear_rule,
    micro_batch_sizes,
    run_step,
    state_bytes,
    step_decay,
    step_plan,
    update_share,
    update_tokens,
    useful_micro_batches,
    warm_up,
    warm_up_cosine,
    warm_up_stable_decay,
)

NUMBER, ABOVE = "a finite number of at least 0", "a finite number above zero"
KINDS = "zero, forward, backward, reduce, clip, update, rate"
PLACE, ELSE = "actions: micro_batch is", " for a pass, and -1 for all else"
WHOLE = "a whole number of at least 1"

TWICE = StepPlan((4,), (*step_plan([4]).actions[:3], Action("backward", 0, 1.0)))
LOSS = "loss_of(micro_batch) is"
ONE = "; it must be a Tensor of one number, with a gradient."


def run_on(loss_of, micro_batches=(1,), plan=None):
    optimizer = SGD([nn.Parameter(torch.ones(1))])
    return run_step(plan or step_plan([1]), loss_of, micro_batches, optimizer)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda: IronLaw(1, 1, 1.5),
            "utilization is 1.5; it must be at most 1: no device does more than its peak.",
        ),
        (
            lambda: IronLaw(1e300, 1e-300, 1),
            f"flops / (peak_flops x utilization) is inf; it must be {ABOVE}.",
        ),
        (lambda: StepPlan((), ()), "tokens is (); it must have at least one."),
        (lambda: StepPlan((4, 0), ()), f"tokens is 0; it must be {WHOLE}."),
        (
            lambda: StepPlan((4,), (Action("jump", 2, 0.5),)),
            "actions is Action(kind='jump', micro_batch=2, share=0.5); "
            f"it must be Actions, of a kind among {KINDS}.",
        ),
        (
            lambda: StepPlan((4,), (3,)),
            f"actions is 3; it must be Actions, of a kind among {KINDS}.",
        ),
        (
            lambda: StepPlan((4, 4), (Action("forward", 2),)),
            f"{PLACE} 2; it must be from 0 to 1{ELSE}.",
        ),
        (
            lambda: StepPlan((4, 4), (Action("backward"),)),
            f"{PLACE} -1; it must be from 0 to 1{ELSE}.",
        ),
        (
            lambda: StepPlan((4, 4), (Action("zero", 1),)),
            f"{PLACE} 1; it must be from 0 to 1{ELSE}.",
        ),
        (
            lambda: StepPlan((4, 4), (Action("forward", True),)),
            f"{PLACE} True; it must be from 0 to 1{ELSE}.",
        ),
        (
            lambda: StepPlan((4,), (Action("forward", 0, -1),)),
            f"actions: share is -1; it must be {NUMBER}.",
        ),
        (lambda: step_plan([]), "tokens is []; it must have at least one."),
        (lambda: step_plan([0]), f"tokens is 0; it must be {WHOLE}."),
        (
            lambda: micro_batch_sizes(2 * 10**6 + 1, 2),
            "micro_batch is 2; it must be large enough for at most a million micro-batches.",
        ),
        (lambda: state_bytes("sgd", []), "shapes is []; it must have at least one."),
        (lambda: state_bytes("sgd", [(2, 0)]), f"shapes: a size is 0; it must be {WHOLE}."),
        (
            lambda: state_bytes("sgd", [(10**15 + 1,)]),
            "shapes: a size is 1000000000000001; it must be at most 1,000,000,000,000,000.",
        ),
        (lambda: state_bytes("galore", [(2, 2)], 0), f"rank is 0; it must be {WHOLE}."),
        (lambda: update_tokens(1, 1, 1, 1.5), "utilization is 1.5; it must be at most 1."),
        (
            lambda: update_tokens(1, 1e300, 1e-300),
            f"The tokens, by bytes_per_parameter, is inf; it must be {NUMBER}.",
        ),
        (lambda: fit_extremes([], []), "batches is []; it must have at least one."),
        (lambda: fit_extremes([0, 1], [2, 1]), f"batches is 0; it must be {ABOVE}."),
        (lambda: fit_extremes([1, 2], [0, 1]), f"steps is 0; it must be {ABOVE}."),
        (
            lambda: fit_extremes([1, 2], [2]),
            "batches is 2 for 1 steps; it must be as many, two at least.",
        ),
        (
            lambda: fit_extremes([2, 2], [2, 1]),
            "batches is 2 for 2 steps; it must be as many, two at least.",
        ),
        (
            lambda: fit_extremes([1, 2], [1, 2]),
            "steps is [1, 2]; it must be fewer at larger batches, but less than in proportion.",
        ),
        (
            lambda: useful_micro_batches(1e300, 1e-300),
            f"The number, by critical_batch, is inf; it must be {NUMBER}.",
        ),
        (lambda: exponential(0, 1.5), "decay is 1.5; it must be a fraction, from 0 to 1."),
        (lambda: step_decay(0, 1, 1.5), "decay is 1.5; it must be a fraction, from 0 to 1."),
        (lambda: warm_up_cosine(0, 9, 9), "warm_up_steps is 9; it must be less than steps, 9."),
        (
            lambda: warm_up_stable_decay(0, 9, 3, 7),
            "decay_steps is 7; it must be at most 6, what warm-up leaves.",
        ),
        (
            lambda: linear_rule(1e300, 1e300, 1),
            f"The rate, by batch, is inf; it must be {NUMBER}.",
        ),
        (
            lambda: held_bytes("adamw"),
            "optimizer is 'adamw'; it must be an Optimizer, such as AdamW(model.parameters()).",
        ),
        (
            lambda: gradient_squares(len, nn.Linear(1, 1), [1]),
            "micro_batches is 1 of them; it must be two at least.",
        ),
        (lambda: run_on(lambda x: x, []), "micro_batches is []; it must have at least one."),
        (
            lambda: run_on(lambda x: x, [1, 2]),
            "micro_batches is 2 of them; it must be 1, as the plan has.",
        ),
        (
            lambda: run_on(lambda x: x, [1], step_plan([1]).without("forward")),
            "plan: backward is 0; it must be after its forward pass, once.",
        ),
        (
            lambda: run_on(lambda x: torch.ones(1, requires_grad=True), plan=TWICE),
            "plan: backward is 0; it must be after its forward pass, once.",
        ),
        (lambda: run_on(lambda x: 3.0), f"{LOSS} 3.0{ONE}"),
        (
            lambda: run_on(lambda x: torch.ones(2, requires_grad=True)),
            f"{LOSS} of shape (2,) and torch.float32{ONE}",
        ),
        (lambda: run_on(lambda x: torch.ones(())), f"{LOSS} of shape () and torch.float32{ONE}"),
        (
            lambda: clip_or_refuse(torch.ones(()), 1),
            "parameters is tensor(1.); it must be a sequence, of a Tensor such as torch.ones(4) each.",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence_that_names_it(call, said):
    with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
        call()


def test_a_beta_below_0_is_refused():
    with pytest.raises(ValueError, match=f"^betas is -1; it must be {NUMBER}.$"):
        AdamW([nn.Parameter(torch.ones(2, 2))], betas=(0.9, -1))


def test_a_schedule_of_which_nothing_is_said_goes_between_one_and_nothing():
    assert [warm_up(k, 4) for k in (0, 3, 9)] == [0.25, 1, 1]
    for falling in (cosine, linear):
        assert [falling(k, 4) for k in (0, 2, 4, 9)] == pytest.approx([1, 0.5, 0, 0])
    assert [exponential(k, 0.5) for k in (0, 1)] == [1, 0.5]
    assert [step_decay(k, 5) for k in (4, 5, 10)] == pytest.approx([1, 0.1, 0.01])
    assert [warm_up_cosine(k, 8, 4) for k in (0, 4, 6, 8)] == pytest.approx([0.25, 1, 0.5, 0])


def test_a_schedule_ends_at_its_least_and_stays():
    for step in (20, 30, 41):
        assert linear(step, 20, 0.5, 0.125) == 0.125
        assert warm_up_cosine(step, 20, 4, 0.5, 0.125) == 0.125
        assert warm_up_stable_decay(step, 20, 4, 8, 0.5) == 0


def test_a_warm_up_may_have_no_steps_and_a_peak_of_nothing():
    assert warm_up(0, 0, 0.5) == 0.5
    assert [warm_up(k, 3, 0) for k in (0, 5)] == [0, 0]
    for step in range(9):
        assert warm_up_cosine(step, 9, 0, 0.5, 0.1) == cosine(step, 9, 0.5, 0.1)
        assert warm_up_stable_decay(step, 9, 0, 9, 0.5) == linear(step, 9, 0.5)


def test_warm_up_and_decay_may_be_the_whole_run():
    rates = [warm_up_stable_decay(k, 9, 4, 5, 2.0) for k in range(10)]
    assert rates == pytest.approx([0.5, 1.0, 1.5, 2.0, 2.0, 1.6, 1.2, 0.8, 0.4, 0.0])


def test_an_update_that_moves_nothing_is_worth_no_tokens():
    assert update_tokens(0, 1e12, 1e9) == 0
    assert update_tokens(12, 1e12, 1e9) == 2 * update_tokens(12, 1e12, 1e9, 0.5) == 2000
    assert update_share(3.0, 0) == 0
    assert update_share(1.5, 0.5) == 0.25


def test_a_plan_made_of_lists_is_the_plan_made_of_tuples():
    plan = step_plan([4, 12])
    listed = StepPlan([4, 12], [*plan.actions])
    assert listed == plan
    assert hash(listed) == hash(plan)


def test_a_batch_is_cut_into_a_million_micro_batches_and_no_more():
    assert micro_batch_sizes(10**6, 500) == [500] * 2000
    assert micro_batch_sizes(2 * 10**6, 2) == [2] * 10**6


def test_what_is_at_a_bound_is_taken():
    assert IronLaw(2e15, 1e15, 1.0).seconds == 2
    assert state_bytes("momentum", [(10**15,), (1, 1)]) == 4 * 10**15 + 4


def test_a_step_of_no_time_has_no_spans():
    nothing = step_plan([3, 1]).price(0, 0)
    assert (nothing.seconds, nothing.busy, nothing.spans) == (0, 1, ())


def bars(figure) -> list[tuple[float, float]]:
    """Where each bar of a step's picture begins, and how long it is, in parts of the axis."""
    (axes,) = figure.axes
    whole = axes.get_xlim()[1] / 1.01
    return [(bar.get_x() / whole, bar.get_width() / whole) for bar in axes.patches]


def test_a_plan_is_drawn_as_it_is_priced():
    plan = step_plan([2, 2])
    spans = plan.price(1, 2, 0.5).spans  # 6.5 seconds
    assert bars(plan.draw()) == bars(draw_step(plan))
    for figure in (plan.draw(), plan.draw(2, 4, 1)):
        assert bars(figure) == [
            pytest.approx((span.start / 6.5, (span.end - span.start) / 6.5)) for span in spans
        ]


def test_a_step_is_a_list_of_actions_and_each_takes_its_time_from_the_end_of_the_one_before():
    """Loads of three seconds before passes of one and two; the second micro-batch is half as large."""
    plan = step_plan([4, 2], ranks=2)
    first, second = Action("forward", 0, 2 / 3), Action("forward", 1, 1 / 3)
    passes = (first, first._replace(kind="backward"), second, second._replace(kind="backward"))
    after = tuple(map(Action, ("reduce", "clip", "update", "rate")))
    assert plan.actions == (Action("zero"), *passes, *after)
    assert step_plan([4, 2]).actions == (Action("zero"), *passes, *after[1:])
    assert step_plan([4, 2], clip=False) == step_plan([4, 2]).without("clip")
    lanes = ("load 0", "forward 0", "backward 0", "load 1", "forward 1", "backward 1")
    in_turn = (0, 3), (3, 4), (4, 6), (6, 7.5), (7.5, 8), (8, 9), (9, 9.25), (9.25, 9.75)
    ahead = (0, 3), (3, 4), (4, 6), (3, 4.5), (6, 6.5), (6.5, 7.5), (7.5, 7.75), (7.75, 8.25)
    for prefetch, times in ((False, in_turn), (True, ahead)):
        cost = plan.price(1, 2, 0.5, 0.25, 3, prefetch)
        names = (*lanes, "reduce", "update")
        assert [span.action for span in cost.spans] == [*names]
        assert [(span.start, span.end) for span in cost.spans] == [*times]
        assert cost.busy == 4.5 / cost.seconds
    small_first = step_plan([2, 4]).price(1, 2)
    assert [span.end for span in small_first.spans] == [0.5, 1.5, 2.5, 4.5]
    assert plan.price(1, 2) == plan.price(1, 2, 0, 0, 0, False)
    assert plan.price(1, 2, load=1) == plan.price(1, 2, 0, 0, 1, False)


def test_a_technique_changes_the_terms_that_it_names_and_no_other():
    run = IronLaw(6e20, 1e15, 0.25)
    assert run.after(Technique("none")) == run
    assert run.after(Technique("all", 2, 4, 0.5)) == IronLaw(1.2e21, 4e15, 0.125)


def test_squares_of_gradients_are_of_each_part_and_of_their_mean():
    """Of w x the gradient is x; what is frozen is left out."""
    model = nn.Linear(2, 1)
    model.bias.requires_grad_(False)
    parts = [torch.tensor([[3.0, 4.0]]), torch.tensor([[1.0, 0.0]])]
    small, large = gradient_squares(lambda x: model(x).mean(), model, parts)
    assert small == pytest.approx((25 + 1) / 2)
    assert large == pytest.approx(2**2 + 2**2)
    assert all(p.grad is None for p in model.parameters())


def test_two_runs_have_the_extremes_that_a_line_through_them_has():
    """Steps of 3 and 2 at batches of 1 and 2: 1 + 2 / batch; in proportion, they have no least."""
    found = fit_extremes([1, 2], [3, 2])
    assert found == pytest.approx((1, 2))
    assert found.critical_batch == pytest.approx(2)
    assert fit_extremes([1, 2], [1.5, 1.25]) == pytest.approx((1, 0.5))
    assert fit_extremes([1, 2], [1.25, 0.75]) == pytest.approx((0.25, 1))
    for steps in ([2, 1], [2, 2]):
        with pytest.raises(ValueError, match="but less than in proportion"):
            fit_extremes([1, 2], steps)
