"""What the processes of a launched world do, seen from the one that launched them.

Real processes cannot look at each other, so each tells of every call before it makes it. From that
follow the same reports as in the simulated world: calls that do not fit together, ranks that wait
for each other for ever, messages that nobody took.
"""

from __future__ import annotations

from dataclasses import dataclass

from dlsys.world.errors import DeadlockError, MismatchError, members_text, place
from dlsys.world.matching import Collective, Group, Site, never_taken, never_waited, unlike


@dataclass
class _Request:
    """A send or a receive, as `rank` of the whole world told of it."""

    rank: int
    number: int
    key: tuple[int, int, int]
    sends: bool
    tensor: str
    text: str
    line: str

    def describe(self, rank: int) -> str:
        return self.text

    def left_over(self) -> str:
        return never_taken(self.rank, self.sends, self.tensor, f"{self.text} at {self.line}")


class _Collective(Collective):
    """A collective call, and under which number each rank waits for it."""

    def __init__(self, group: Group, index: int, site: Site) -> None:
        super().__init__(group, index, site)
        self.numbers: list[tuple[int, int]] = []

    def describe(self, rank: int) -> str:
        others = [r for r in self.waits_for(-1) if r != rank]
        return f"{self.site.text} (collective number {self.index + 1}) for {members_text(others)}"


class Watch:
    """What `ranks` processes have told so far."""

    def __init__(self, ranks: int) -> None:
        self.finished: set[int] = set()
        self._groups: dict[str, Group] = {}
        self._open: list[dict[int, _Request | _Collective]] = [{} for _ in range(ranks)]
        self._waiting: list[tuple[int, str] | None] = [None] * ranks
        self._unwaited: list[dict[int, tuple[str, str]]] = [{} for _ in range(ranks)]

    def take(self, rank: int, event: tuple) -> None:
        """Note what `rank` tells; raises MismatchError where it does not fit what others told."""
        getattr(self, f"_{event[0]}")(rank, *event[1:])

    def stuck(self) -> None:
        """Raise DeadlockError if every rank that still runs waits for what nobody can do any more.

        Ask when no rank has told anything for a while: what is in flight then tells of itself.
        """
        running = [r for r in range(len(self._open)) if r not in self.finished]
        lines = {rank: self.doing(rank) for rank in running}
        if running and all(lines.values()):
            report = "\n".join(
                f"  rank {r} {lines.get(r) or 'has finished'}" for r in range(len(self._open))
            )
            raise DeadlockError(
                f"Deadlock: {len(running)} of {len(self._open)} ranks wait and none can move:\n"
                f"{report}"
            )

    def doing(self, rank: int) -> str:
        """What `rank` waits in, if that is for something which others have not begun."""
        waiting = self._waiting[rank]
        if waiting is None or waiting[0] not in self._open[rank]:
            return ""
        number, line = waiting
        return f"waits in {self._open[rank][number].describe(rank)} at {line}"

    def check_nothing_left(self) -> None:
        """Complain about messages and collectives that were begun and never matched."""
        for items in self._open:
            for item in items.values():
                raise MismatchError(f"Every rank has finished, but {item.left_over()}")

    def check_all_waited(self) -> None:
        """Complain about a handle that a rank let go of."""
        for rank, handles in enumerate(self._unwaited):
            for text, line in handles.values():
                raise never_waited(rank, text, line)

    def _group(self, rank: int, number: int, name: str, members: list[int]) -> None:
        self._groups.setdefault(name, Group(members))

    def _call(self, rank: int, number: int, name: str, index: int, mine: int, site: Site) -> None:
        group = self._groups[name]
        collective = group.join(index, site, lambda: _Collective(group, index, site))
        collective.numbers.append((rank, number))
        self._open[rank][number] = collective
        self._unwaited[rank][number] = site.text, place(site.file, site.line)
        collective.arrive(mine)
        if not collective.missing:
            for member, its_number in collective.numbers:
                del self._open[member][its_number]

    def _message(
        self,
        rank: int,
        number: int,
        name: str,
        other: int,
        tag: int,
        sends: bool,
        tensor: str,
        text: str,
        line: str,
    ) -> None:
        key = (rank, other, tag) if sends else (other, rank, tag)
        mine = _Request(rank, number, key, sends, tensor, text, line)
        self._unwaited[rank][number] = f"i{text}", line
        theirs = self._groups[name].post(mine)
        if theirs is None:
            self._open[rank][number] = mine
            return
        del self._open[theirs.rank][theirs.number]
        send, receive = (mine, theirs) if sends else (theirs, mine)
        if send.tensor != receive.tensor:
            sides = (f"rank {side.rank} ({side.line})" for side in (send, receive))
            raise unlike(next(sides), send.tensor, next(sides), receive.tensor)

    def _wait(self, rank: int, number: int, line: str) -> None:
        self._waiting[rank] = (number, line)
        self._unwaited[rank].pop(number, None)

    def _done(self, rank: int) -> None:
        self._waiting[rank] = None
