"""Gradient buckets: gradients that travel together, in the order in which backward makes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dlsys.annotated import checked
from dlsys.checks import count, positive
from dlsys.plain_data import plain_data
from dlsys.units import MIB

if TYPE_CHECKING:
    from dlsys.network import Where
    from dlsys.streams import Overlap


FIRST_BYTES, BUCKET_BYTES = 1 * MIB, 25 * MIB
"""DDP's defaults: the first bucket is sent early, so that the network has something to do."""


@plain_data
@dataclass(frozen=True)
class Bucket:
    """Gradients of one dtype that one all-reduce averages, in the order of their places in it.

    `names` of their parameters, `sizes` in bytes; `index` says when it is sent, 0 first.
    """

    index: int
    names: tuple[str, ...]
    sizes: tuple[int, ...]
    dtype: str = "float32"

    @property
    def nbytes(self) -> int:
        """Bytes of all its gradients."""
        return sum(self.sizes)


@plain_data
@dataclass(frozen=True)
class BucketPlan:
    """The buckets of a model's gradients, in the order in which every rank sends them.

    `parameters` are (name, bytes, dtype) in order of registration. A bucket is sent when all its
    gradients are there and those before it are sent, so that all ranks send in one order whatever
    the order in which their gradients come.
    """

    parameters: tuple[tuple[str, int, str], ...]
    buckets: tuple[Bucket, ...]
    bucket_bytes: float

    @property
    def nbytes(self) -> int:
        """Bytes of all gradients."""
        return sum(size for _, size, _ in self.parameters)

    def check(self) -> None:
        """Prove that the buckets are right; raises ValueError that names bucket and parameter.

        Each parameter is in exactly one bucket, with its size and dtype; the parameters of a dtype
        follow each other in reverse order of registration; buckets are in the order in which
        backward completes them; and none had `bucket_bytes` before its last parameter.
        """
        known = {name: (size, dtype) for name, size, dtype in self.parameters}
        place = {name: i for i, (name, _, _) in enumerate(self.parameters)}
        home: dict[str, int] = {}
        last: dict[str, str] = {}
        before = len(place)
        for number, bucket in enumerate(self.buckets):
            who = f"Bucket {number}"
            if bucket.index != number:
                raise ValueError(f"{who} says that its index is {bucket.index}.")
            if not bucket.names or len(bucket.names) != len(bucket.sizes):
                raise ValueError(
                    f"{who} has {len(bucket.names)} names and {len(bucket.sizes)} sizes: it needs "
                    "a size for each, and at least one."
                )
            for name, size in zip(bucket.names, bucket.sizes, strict=True):
                if name not in known:
                    raise ValueError(f"{who} holds {name!r}, which is no parameter of this plan.")
                if name in home:
                    raise ValueError(
                        f"{who} holds {name!r} again: it is in bucket {home[name]}, and a gradient "
                        "that is averaged twice costs its bytes twice."
                    )
                home[name] = number
                if (size, bucket.dtype) != known[name]:
                    raise ValueError(
                        f"{who} holds {name!r} with {size} bytes of {bucket.dtype}; the parameter "
                        f"has {known[name][0]} bytes of {known[name][1]}."
                    )
                later = last.get(bucket.dtype)
                if later is not None and place[later] < place[name]:
                    raise ValueError(
                        f"{who} holds {name!r} after {later!r}, which is registered before it: "
                        "backward makes gradients in reverse order of registration."
                    )
                last[bucket.dtype] = name
            before_last = bucket.nbytes - bucket.sizes[-1]
            if not before_last < self.bucket_bytes:  # also where that is no number
                raise ValueError(
                    f"{who} has {before_last} bytes before its last parameter, "
                    f"{bucket.names[-1]!r}: it is sent once it has {self.bucket_bytes:g}."
                )
            complete = place[bucket.names[-1]]
            if complete > before:
                raise ValueError(
                    f"{who} is complete before bucket {number - 1}: its last gradient is "
                    f"{bucket.names[-1]!r}. Put it first, or it waits for nothing."
                )
            before = complete
        missing = [name for name in known if name not in home]
        if missing:
            raise ValueError(f"{missing[0]!r} is in no bucket: its gradient would stay local.")

    def price(
        self, ranks: int, where: Where = None, backward_seconds: float = 0.0, **more: Any
    ) -> Overlap:
        """Seconds of a step whose buckets are sent as backward makes them; see `price.overlap`."""
        from dlsys.data_parallel.price import overlap

        sizes = [bucket.nbytes for bucket in self.buckets]
        return overlap(sizes, backward_seconds, ranks, where, **more)

    def draw(self) -> Any:
        """A Matplotlib figure of the buckets; see `draw.draw`."""
        from dlsys.data_parallel.draw import draw

        return draw(self)


@checked
def buckets(
    sizes: Mapping[str, int],
    bucket_bytes: float | None = None,
    dtypes: Mapping[str, str] | None = None,
) -> BucketPlan:
    """Cut gradients, last registered first, into buckets that are full at `bucket_bytes`.

    Backward reaches the last layer first, so a bucket of neighbours is complete early. A bucket is
    sent once it has `bucket_bytes`, so its last gradient may take it above them. Each dtype fills
    buckets of its own. These are the buckets of PyTorch's DDP where backward makes gradients in
    reverse order of registration.

    - sizes: bytes of each parameter by name, in order of registration.
    - bucket_bytes: above 0. None, as DDP by default: 25 MiB, and 1 MiB for the first bucket, so
      that the network begins early.
    - dtypes: names of the dtypes of those that are not "float32".

    Source: Li et al. 2020 (PyTorch Distributed, arXiv 2006.15704), section 3.2.3.
    """
    if bucket_bytes is not None:
        positive("bucket_bytes", bucket_bytes)
    first = bucket_bytes or FIRST_BYTES
    most = bucket_bytes or BUCKET_BYTES
    dtypes = dtypes or {}
    parameters = tuple(
        (name, count(f"The size of {name!r} in bytes", size, least=0), dtypes.get(name, "float32"))
        for name, size in sizes.items()
    )
    made: list[list[tuple[str, int, str]]] = []
    filling: dict[str, list[tuple[str, int, str]]] = {}  # by dtype
    limits: dict[str, float] = {}
    for parameter in reversed(parameters):
        dtype = parameter[2]
        if dtype not in filling:
            made.append(filling.setdefault(dtype, []))
        filling[dtype].append(parameter)
        if sum(size for _, size, _ in filling[dtype]) >= limits.get(dtype, first):
            del filling[dtype]
            limits[dtype] = most
    place = {name: i for i, (name, _, _) in enumerate(parameters)}
    made.sort(key=lambda bucket: -place[bucket[-1][0]])  # as their last gradients come
    cut = (tuple(zip(*bucket, strict=True)) for bucket in made)
    return BucketPlan(
        parameters,
        tuple(Bucket(i, names, sizes, of[0]) for i, (names, sizes, of) in enumerate(cut)),
        most,
    )
