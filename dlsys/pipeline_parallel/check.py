"""The proof that a plan can be executed: every action once, after what it needs, to the end."""

from __future__ import annotations

from collections.abc import Sequence

from dlsys.pipeline_parallel.plan import Action, Plan, PlanError, at
from dlsys.units import count

Places = dict[Action, tuple[int, int]]
"""For every action its rank and its place in the rank's order."""


def check(plan: Plan, most_in_flight: int | Sequence[int] | None = None) -> None:
    """What `Plan.check` says."""
    assert plan.order  # or this raises
    if most_in_flight is not None:
        _bounded(plan, most_in_flight)


def executed(plan: Plan) -> list[Action]:
    """Let every rank run as far as it can, again and again, until all have ended or none can."""
    assert plan.placement  # a stage lives on one rank, or this raises
    places = _once(plan)
    at_place = [0] * plan.p
    ended: dict[Action, None] = {}  # a set that keeps its order
    waiting: dict[Action, int] = {}  # which rank waits for an action; never two wait for the same
    ready = list(range(plan.p))
    while ready:
        rank = ready.pop()
        for place in range(at_place[rank], len(plan.ranks[rank])):
            action = plan.ranks[rank][place]
            at_place[rank] = place
            missing = next((need for need in plan.needs(action) if need not in ended), None)
            if missing is not None:
                if places[missing][0] == rank:
                    raise PlanError(
                        f"{at(rank, place, action)}, but {missing} must come first and is its "
                        f"action {places[missing][1]}.",
                        rank,
                        place,
                        action,
                    )
                waiting[missing] = rank
                break
            ended[action] = None
            if action in waiting:
                ready.append(waiting.pop(action))
    if waiting:
        raise _deadlock(plan, places, {rank: need for need, rank in waiting.items()}, at_place)
    return list(ended)


def _once(plan: Plan) -> Places:
    places: Places = {}
    for rank, order in enumerate(plan.ranks):
        for place, action in enumerate(order):
            if action in places:
                raise PlanError(
                    f"{at(rank, place, action)}, which it already ran as its action "
                    f"{places[action][1]}.",
                    rank,
                    place,
                    action,
                )
            places[action] = rank, place
    kinds = "FBW" if plan.splits_backward else "FB"
    if len(places) < len(kinds) * plan.stages * plan.micro_batches:
        for kind in kinds:
            for stage, rank in enumerate(plan.placement):
                for k in range(plan.micro_batches):
                    action = Action(kind, stage, k)
                    if action not in places:
                        why = ": a plan with W actions needs one for every B" * (kind == "W")
                        raise PlanError(
                            f"Rank {rank} never runs {action}{why}.", rank, None, action
                        )
    return places


def _deadlock(
    plan: Plan, places: Places, waits: dict[int, Action], at_place: list[int]
) -> PlanError:
    """The error that names the ranks which wait for each other, in a circle."""
    seen: list[int] = []
    rank = next(iter(waits))
    while rank not in seen:
        seen.append(rank)
        rank = places[waits[rank]][0]
    circle = seen[seen.index(rank) :]
    parts = []
    for one in circle:
        owner, place = places[waits[one]]
        action = plan.ranks[one][at_place[one]]
        parts.append(
            f"{at(one, at_place[one], action).replace('Rank', 'rank')}, which needs "
            f"{waits[one]}, action {place} of rank {owner}"
        )
    text = "; ".join(parts)
    return PlanError(
        f"The ranks wait for each other: {text}.",
        rank,
        at_place[rank],
        plan.ranks[rank][at_place[rank]],
    )


def _bounded(plan: Plan, most: int | Sequence[int]) -> None:
    limits = list(most) if isinstance(most, Sequence) else [most] * plan.p
    if len(limits) != plan.p:
        raise ValueError(
            f"most_in_flight has {len(limits)} numbers; give one for each of the {plan.p} ranks, "
            "or one for all."
        )
    for rank, (limit, order) in enumerate(zip(limits, plan.ranks, strict=True)):
        limit = count("most_in_flight", limit, least=0)
        for place, held in enumerate(plan.in_flight(order)):
            if held > limit:
                action = order[place]
                raise PlanError(
                    f"{at(rank, place, action)} and then holds the activations of {held} "
                    f"(stage, micro-batch) pairs; at most {limit} are allowed.",
                    rank,
                    place,
                    action,
                )
