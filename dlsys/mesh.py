"""The mesh of a run: which place every rank has along each axis, and who shares which place.

Ranks are counted along the fastest axis first. Neighbours in the fastest axis are neighbours in a
node, so the order of the axes decides what each axis's messages travel on.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from dlsys.annotated import checked
from dlsys.checks import count, counts, divisor, refuse, unknown
from dlsys.plain_data import plain_data

if TYPE_CHECKING:
    from dlsys.hardware import Cluster
    from dlsys.world import Communicator

GROUPS = ("dp", "pp", "cp", "tp", "ep", "data", "holders")
"""The axes, and two groups made of them: see `Mesh.group`."""


def coordinates(rank: int, sizes: Mapping[str, int]) -> dict[str, int]:
    """A rank's place along each axis; `sizes` are degrees, the fastest axis first."""
    found = {}
    for axis, size in sizes.items():
        rank, found[axis] = divmod(rank, size)
    return found


def rank_at(place: Mapping[str, int], sizes: Mapping[str, int]) -> int:
    """The rank with these coordinates."""
    rank, stride = 0, 1
    for axis, size in sizes.items():
        rank += stride * place[axis]
        stride *= size
    return rank


def group(rank: int, axis: str, sizes: Mapping[str, int]) -> list[int]:
    """The ranks that differ from this one along one axis alone."""
    place = coordinates(rank, sizes)
    return [rank_at(place | {axis: at}, sizes) for at in range(sizes[axis])]


class Placement(NamedTuple):
    """Where a cluster has the groups of an axis, of all its groups the most spread out one.

    in_node: the most members of a group in one node; nodes: the most nodes that a group is on.
    crossings: of a ring of the group's members, the most hops that leave a node.
    """

    in_node: int
    nodes: int
    crossings: int


class Axes(NamedTuple):
    """A rank's communicators: of everybody, and of its group along each axis; see `Mesh.group`."""

    world: Communicator
    dp: Communicator
    pp: Communicator
    cp: Communicator
    tp: Communicator
    ep: Communicator
    data: Communicator
    holders: Communicator


@checked
@plain_data
@dataclass(frozen=True)
class Mesh:
    """dp x pp x cp x tp ranks: replicas, pipeline stages, parts of a sequence, parts of a layer.

    The expert degree `ep` takes no ranks of its own: it divides the dp x cp ranks that would
    otherwise hold the same weights, ep neighbours among them holding different experts.

    `order` names the axes from the fastest to the slowest. The default is that of Megatron-LM's
    `initialize_model_parallel`, tp-cp-ep-dp-pp (core/parallel_state.py). Raises ValueError for an
    order that does not name each axis once, and for an ep that does not divide dp x cp.
    """

    dp: int = 1
    pp: int = 1
    cp: int = 1
    tp: int = 1
    ep: int = 1
    order: str = "tp-cp-dp-pp"

    def __post_init__(self) -> None:
        counts(self, "dp", "pp", "cp", "tp", "ep")
        if sorted(self.order.split("-")) != ["cp", "dp", "pp", "tp"]:
            refuse("order", self.order, "tp, cp, dp and pp, each once, such as 'tp-cp-dp-pp'")
        divisor("ep", self.ep, {"ranks of dp and cp": self.dp * self.cp})

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self.dp * self.pp * self.cp * self.tp

    @property
    def sizes(self) -> dict[str, int]:
        """The degree of each axis that has coordinates, the fastest first."""
        return {axis: getattr(self, axis) for axis in self.order.split("-")}

    def coordinates(self, rank: int) -> dict[str, int]:
        """A rank's place along each axis: the digits of its number, the fastest axis's the last."""
        return coordinates(count("rank", rank, 0, self.size - 1), self.sizes)

    def rank(self, **place: int) -> int:
        """The rank with these coordinates; 0 along an axis that is not given."""
        sizes = self.sizes
        found = {a: count(a, place.pop(a, 0), 0, size - 1) for a, size in sizes.items()}
        if place:
            raise ValueError(unknown("axis", next(iter(place)), [*sizes]))
        return rank_at(found, sizes)

    @checked
    def color(self, axis: str, rank: int) -> Hashable:
        """What the ranks of one group have in common, and no others."""
        if axis not in list(GROUPS):
            raise ValueError(unknown("axis", axis, GROUPS))
        place = self.coordinates(rank)
        if axis in place:  # all other coordinates are the same
            return tuple(at for other, at in place.items() if other != axis)
        data = place["pp"], place["tp"]  # of all that share the weights, experts apart
        if axis == "data":
            return data
        block, expert = divmod(self.place(rank), self.ep)
        return (*data, block if axis == "ep" else expert)

    def place(self, rank: int) -> int:
        """A rank's place in its joint data group, in the order of ranks."""
        at = self.coordinates(rank)
        cp_first = self.order.index("cp") < self.order.index("dp")
        return at["dp"] * self.cp + at["cp"] if cp_first else at["cp"] * self.dp + at["dp"]

    @checked
    def group(self, axis: str, rank: int) -> tuple[int, ...]:
        """The ranks that differ from `rank` along the axis alone, in order.

        - "dp", "pp", "cp", "tp": one axis.
        - "data": dp and cp together, the ranks over which gradients are summed, experts' apart.
        - "ep": ep neighbours in that, which together hold all experts.
        - "holders": the dp x cp / ep ranks in that which hold the same experts as `rank`.
        """
        if axis in list(self.sizes):
            return tuple(group(count("rank", rank, 0, self.size - 1), axis, self.sizes))
        color = self.color(axis, rank)
        return tuple(other for other in range(self.size) if self.color(axis, other) == color)

    @checked
    def groups(self, axis: str) -> list[tuple[int, ...]]:
        """All groups of the axis; every rank is in one of them."""
        found: dict[Hashable, list[int]] = {}
        for rank in range(self.size):
            found.setdefault(self.color(axis, rank), []).append(rank)
        return [tuple(ranks) for ranks in found.values()]

    def split(self, comm: Communicator) -> Axes:
        """This rank's communicators, of one rank where a degree is 1; all ranks of `comm` call it.

        Raises ValueError where `comm` has not as many ranks as the mesh.
        """
        if comm.size != self.size:
            raise ValueError(
                f"A mesh of {self} has {self.size} ranks, and the communicator {comm.size}: the "
                "product of dp, pp, cp and tp must be the number of ranks."
            )
        made = {g: comm.split(self.color(g, comm.rank), axis=g) for g in GROUPS}
        return Axes(comm, **made)  # type: ignore[arg-type]

    @checked
    def placement(self, axis: str, cluster: Cluster) -> Placement:
        """How the groups of an axis lie in the nodes of a cluster of as many devices, or more."""
        if cluster.size < self.size:
            refuse("cluster", cluster.size, f"one of at least {self.size} devices, as the mesh has")
        found = []
        for ranks in self.groups(axis):
            nodes = [cluster.node(rank) for rank in ranks]
            crossings = sum(a != b for a, b in zip(nodes, [*nodes[1:], nodes[0]], strict=True))
            found.append((max(map(nodes.count, nodes)), len(set(nodes)), crossings))
        return Placement(*map(max, zip(*found, strict=True)))

    def device_mesh(self, device_type: str = "cpu") -> Any:
        """torch.distributed's DeviceMesh of the same coordinates, its dimensions named as the axes.

        All processes call it. Its last dimension is the fastest one, as in a tensor's memory.
        """
        from torch.distributed.device_mesh import init_device_mesh

        sizes = dict(reversed(self.sizes.items()))
        return init_device_mesh(device_type, (*sizes.values(),), mesh_dim_names=(*sizes,))

    def __str__(self) -> str:
        degrees = {axis: getattr(self, axis) for axis in ("dp", "pp", "cp", "tp", "ep")}
        named = [f"{axis}={degree}" for axis, degree in degrees.items() if degree > 1]
        return " ".join(named) or "one rank"
