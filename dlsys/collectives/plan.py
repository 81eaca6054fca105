"""A collective is a plan: rounds of transfers of chunks between ranks, as plain data."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, overload

from dlsys.annotated import checked
from dlsys.checks import count, counts, flag, refuse
from dlsys.plain_data import plain_data

if TYPE_CHECKING:
    from dlsys.collectives.price import Price
    from dlsys.hardware import Cluster, Link

REDUCING = frozenset({"reduce", "reduce_scatter", "all_reduce"})
"""Kinds that sum what the ranks hold."""
BY_ROWS = frozenset({"scatter", "gather", "all_gather", "reduce_scatter"})
"""Kinds whose buffer is cut along dimension 0, each rank owning an equal run of chunks."""
ROOTED = {"broadcast": "src", "scatter": "src", "reduce": "dst", "gather": "dst"}
"""Kinds with a root, and the name of the root in a communicator's method."""
KINDS = (
    "broadcast",
    "reduce",
    "scatter",
    "gather",
    "all_gather",
    "reduce_scatter",
    "all_reduce",
    "all_to_all",
)


@plain_data
class Transfer(NamedTuple):
    """One message: `src` sends chunks [first, stop) to `dst`, which adds them (`reduce`) or stores
    them. What can be no message is found by `Plan.check`."""

    src: int
    dst: int
    first: int
    stop: int
    reduce: bool = False


def disturbed(sends: Sequence[Transfer], receives: Sequence[Transfer]) -> list[Transfer]:
    """The sends of a round whose chunks one of the same rank's receives of that round changes."""
    return [s for s in sends if any(r.first < s.stop and s.first < r.stop for r in receives)]


Step = tuple[list[Transfer], list[Transfer]]
"""What one rank does in one round: what it sends, and what it receives."""


class PlanError(ValueError):
    """A plan that does not do what its kind promises, with the rank, round and chunk at fault."""

    def __init__(
        self,
        message: str,
        rank: int | None = None,
        round: int | None = None,
        chunk: int | None = None,
    ) -> None:
        super().__init__(message)
        self.rank, self.round, self.chunk = rank, round, chunk


class Rounds(Sequence[Sequence[Transfer]]):
    """A sequence of `count` rounds, each made by `build(index)` when it is asked for.

    swaps: whether a rank may send and receive the same chunk in one round.
    """

    def __init__(
        self, count: int, build: Callable[[int], Sequence[Transfer]], swaps: bool = False
    ) -> None:
        self._count, self._build, self.swaps = count, build, swaps

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Sequence[Transfer]: ...
    @overload
    def __getitem__(self, index: slice) -> list[Sequence[Transfer]]: ...
    def __getitem__(self, index: int | slice) -> Sequence[Transfer] | list[Sequence[Transfer]]:
        picked = range(self._count)[index]
        return self._build(picked) if isinstance(picked, int) else [self[k] for k in picked]

    def __iter__(self) -> Iterator[Sequence[Transfer]]:
        return map(self._build, range(self._count))

    def then(self, other: Rounds) -> Rounds:
        """These rounds followed by `other`."""
        mine, swaps = self._count, self.swaps or other.swaps
        return Rounds(mine + len(other), lambda k: self[k] if k < mine else other[k - mine], swaps)

    def mirrored(self, reduce: bool = False) -> Rounds:
        """The same rounds backwards in time, every arrow turned round: reduce-scatter becomes
        all-gather, reduce becomes broadcast, gather becomes scatter."""
        last = self._count - 1
        return Rounds(
            self._count,
            lambda k: [Transfer(t.dst, t.src, t.first, t.stop, reduce) for t in self[last - k]],
            self.swaps,
        )


@plain_data
@dataclass(frozen=True)
class Symmetry:
    """What a builder knows about its rounds, from which `price` takes a closed form.

    - `phases`: (rounds, chunks, scope); in each of `rounds` rounds every rank of the critical path
      sends `chunks` chunks to whom the scope says:
      - "ring": always the next rank;
      - "intra", "inter": a rank of the same or of another node of `shape`;
      - a power of two d: rank xor d;
      - "any": it varies.
    - `sent`: the number of chunks that the busiest rank sends.
    - `messages`: of all ranks together.
    - `shape`: (nodes, devices_per_node) of a plan on two levels.
    """

    phases: tuple[tuple[int, int, str | int], ...]
    sent: int
    messages: int
    shape: tuple[int, int] | None = None


@checked
@plain_data
@dataclass(frozen=True, eq=False)
class Plan:
    """A collective operation as data: `rounds` of transfers among `ranks` ranks.

    - kind: the communicator's method (`all_reduce`, `broadcast`, ...).
    - algorithm: a name for people.
    - chunks: the number of pieces the buffer is cut into. Chunk k of L elements covers
      [k*L//chunks, (k+1)*L//chunks). In scatter, gather, all_gather and reduce_scatter L counts
      rows, and rank r owns chunks [r*chunks/ranks, (r+1)*chunks/ranks). An all_to_all has
      ranks*ranks chunks, chunk i*ranks+j being the block from rank i for rank j.
    - rounds: in a round all sends read what was held before any receive of that round is stored; a
      rank enters its next round as soon as its own transfers are done.
    - root: of a kind that has one.
    - symmetry: what the builder knows, for a closed-form price.

    Raises PlanError where kind, ranks, chunks and root do not fit together, ValueError for what is
    no whole number.
    """

    kind: str
    algorithm: str
    ranks: int
    chunks: int
    rounds: Sequence[Sequence[Transfer]] = field(repr=False)
    root: int = 0
    symmetry: Symmetry | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise PlanError(
                f"There is no collective {self.kind!r}; the kinds are {', '.join(KINDS)}."
            )
        counts(self, "ranks", "chunks")
        counts(self, "root", least=0)
        if self.root >= self.ranks:
            raise PlanError(
                f"Root {self.root} of {self.ranks} ranks: the root is one of the ranks, "
                f"0 to {self.ranks - 1}."
            )
        if self.kind == "all_to_all" and self.chunks != self.ranks**2:
            raise PlanError(
                f"An all_to_all among {self.ranks} ranks has {self.ranks**2} chunks, one "
                f"for each pair; this plan has {self.chunks}."
            )
        if self.kind in BY_ROWS and self.chunks % self.ranks:
            raise PlanError(
                f"{self.chunks} chunks do not give each of {self.ranks} ranks equally many "
                f"in {self.kind}: use a multiple of {self.ranks}."
            )

        if not isinstance(self.rounds, Rounds):  # written by hand: fix it, and claim nothing
            try:
                rounds = tuple(tuple(map(_written, transfers)) for transfers in self.rounds)
            except (TypeError, ValueError) as error:
                raise PlanError(
                    "rounds must be a list of rounds, each a list of Transfer(src, dst, first, "
                    "stop, reduce=False) of whole numbers, also where a round has only one "
                    f"({str(error).removesuffix('.')})."
                ) from None
            object.__setattr__(self, "rounds", rounds)
            object.__setattr__(self, "symmetry", None)

    def __repr__(self) -> str:
        root = f", root={self.root}" if self.kind in ROOTED else ""
        return (
            f"Plan({self.kind}, {self.algorithm}, ranks={self.ranks}, chunks={self.chunks}, "
            f"rounds={len(self.rounds)}{root})"
        )

    @property
    def swaps(self) -> bool:
        """Whether a rank may send and receive the same chunk in one round, so that what it sends
        must be kept apart; of rounds written by hand nobody knows."""
        return not isinstance(self.rounds, Rounds) or self.rounds.swaps

    @property
    def pieces(self) -> int:
        """How many chunks the buffer that one rank passes is cut into."""
        return self.ranks if self.kind == "all_to_all" else self.chunks

    def share(self, rank: int) -> range:
        """The chunks of `rank`, where every rank has equally many; those that begin with it, in an
        all_to_all."""
        rank = count("rank", rank, 0, self.ranks - 1)
        return range(rank * self.chunks // self.ranks, (rank + 1) * self.chunks // self.ranks)

    def bounds(self, length: int) -> list[int]:
        """Where the chunks of `length` elements (or rows) begin, and where the last ends.

        For all_to_all `length` counts the rows that each rank passes, and row i*length is the
        first of rank i, so that block j of every rank has the same size.
        """
        length = count("length", length, 0)
        return [k * length // self.pieces for k in range(self.chunks + 1)]

    def steps(self, rank: int) -> list[Step]:
        """What `rank` sends and receives, round by round; rounds without it are left out."""
        return self._steps[count("rank", rank, 0, self.ranks - 1)]

    @functools.cached_property
    def _steps(self) -> list[list[Step]]:
        steps: list[list[Step]] = [[] for _ in range(self.ranks)]
        for transfers in self.rounds:
            now: dict[int, Step] = {}
            for transfer in transfers:
                now.setdefault(transfer.src, ([], []))[0].append(transfer)
                now.setdefault(transfer.dst, ([], []))[1].append(transfer)
            for rank, step in now.items():
                steps[rank].append(step)
        return steps

    def check(self) -> None:
        """Prove by symbolic execution that the plan does what its kind promises; see `check`.

        Raises PlanError naming rank, round and chunk.
        """
        from dlsys.collectives.check import check

        check(self)

    @checked
    def price(
        self, nbytes: float, link_or_cluster: Link | Cluster | None, itemsize: int | None = None
    ) -> Price:
        """Seconds and bytes for a buffer of `nbytes` on a link or cluster; see `price.price`."""
        from dlsys.collectives.price import price

        return price(self, nbytes, link_or_cluster, itemsize)

    @checked
    def run(self, comm: Any, tensor: Any, **options: Any) -> Any:
        """Carry the plan out on real tensors: the result of `comm.<kind>(tensor, plan=self)`.

        Raises ValueError where the communicator is of another size.
        """
        if not hasattr(comm, self.kind):
            refuse("comm", comm, "a communicator, such as a rank program is called with")
        if comm.size != self.ranks:
            raise ValueError(
                f"This plan is for {self.ranks} ranks and the communicator has {comm.size}: "
                f"build the plan with {comm.size}."
            )
        root = {ROOTED[self.kind]: self.root} if self.kind in ROOTED else {}
        return getattr(comm, self.kind)(tensor, plan=self, **root, **options)

    @checked
    def draw(self, animate: bool = False, **options: Any) -> Any:
        """A Matplotlib figure of the rounds, or an SVG in which they follow one another."""
        if animate:
            from dlsys.collectives.animate import animate as animated

            return animated(self, **options)
        from dlsys.collectives.draw import draw

        return draw(self, **options)


def _written(transfer: Sequence[Any]) -> Transfer:
    """A transfer of a plan written by hand, in ints of Python's own; raises where it is none."""
    written = Transfer(*transfer)
    if list(map(type, written)) == [int, int, int, int, bool]:  # there may be a million
        return written
    src, dst, first, stop, reduce = written
    flag("reduce", reduce)
    ends = count("src", src, 0), count("dst", dst, 0)
    return Transfer(*ends, count("first", first, 0), count("stop", stop, 0), bool(reduce))


P = ParamSpec("P")


def builder(build: Callable[P, Plan]) -> Callable[P, Plan]:
    """Make a builder refuse impossible sizes, and give the same plan for the same arguments."""
    bind, cached = inspect.signature(build).bind, functools.cache(build)

    @functools.wraps(build)
    def checked(*args: P.args, **kwargs: P.kwargs) -> Plan:
        bound = bind(*args, **kwargs)
        bound.apply_defaults()
        for name, value in bound.arguments.items():
            bound.arguments[name] = count(name, value, least=int(name != "root"))
        return cached(*bound.args, **bound.kwargs)

    return checked
