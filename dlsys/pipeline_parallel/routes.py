"""Which tensors cross ranks in a step of a plan, and when a rank gets ready for each."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

from dlsys.pipeline_parallel.action import Action
from dlsys.pipeline_parallel.plan import Plan


class Message(NamedTuple):
    """A tensor that crosses ranks, seen from one of them.

    user: the action that needs it. peer: the rank on the other side. made, used: the places of the
    action that makes it in the sender's order, and of `user` in the receiver's.
    """

    user: Action
    peer: int
    made: int
    used: int
    tag: int


@dataclass(frozen=True)
class Routes:
    """The messages of one rank.

    sends: by the action that makes one, receives: by the action that needs one. posts: for a place
    in the rank's order the receives that it posts there.
    """

    sends: dict[Action, Message]
    receives: dict[Action, Message]
    posts: dict[int, list[Message]]


def routes(plan: Plan, rank: int, ahead: int) -> Routes:
    """The messages of `rank`; a receive is posted with the `ahead`-th one before it is needed."""
    places = {
        action: (owner, place)
        for owner, order in enumerate(plan.ranks)
        for place, action in enumerate(order)
    }
    sends, receives = {}, {}
    for action, (src, made) in places.items():
        user = reader(plan, action)
        if user is None:
            continue
        dst, used = places[user]
        if src != dst and src == rank:
            sends[action] = Message(user, dst, made, used, tag(plan, user))
        elif src != dst and dst == rank:
            receives[user] = Message(user, src, made, used, tag(plan, user))
    return Routes(sends, receives, _posts(receives, ahead))


def reader(plan: Plan, action: Action) -> Action | None:
    """The action that reads what `action` passes on; None where none does."""
    kind, stage, k = action
    if kind == "F" and stage + 1 < plan.stages:
        return Action("F", stage + 1, k)
    return Action("B", stage - 1, k) if kind == "B" and stage else None


def tag(plan: Plan, user: Action) -> int:
    """A number of its own for what each action receives."""
    kind, stage, k = user
    return 2 * (stage * plan.micro_batches + k) + (kind == "B")


def _posts(receives: dict[Action, Message], ahead: int) -> dict[int, list[Message]]:
    # Those of one peer in the order in which it sends, for networks that do not look at tags.
    due: dict[int, deque[Message]] = defaultdict(deque)
    for message in sorted(receives.values(), key=attrgetter("made")):
        due[message.peer].append(message)
    posts: dict[int, list[Message]] = defaultdict(list)
    in_turn = sorted(receives.values(), key=attrgetter("used"))
    for number, message in enumerate(in_turn):
        place = in_turn[number - ahead].used if number >= ahead else 0
        queue = due[message.peer]
        while queue and queue[0].made <= message.made:
            posts[place].append(queue.popleft())
    return dict(posts)
