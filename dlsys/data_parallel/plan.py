"""Gradient buckets: gradients that travel together, in the order in which backward makes them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dlsys.annotated import checked
from dlsys.checks import count, positive
from dlsys.collectives import plan_for
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

    @property
    def itemsize(self) -> int:
        """Bytes of one element, which no message cuts."""
        return itemsize(self.dtype)


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

    @checked
    def sent(self, ranks: int, algorithm: str = "ring") -> tuple[int, ...]:
        """Bytes that each of `ranks` ranks sends in a step, as a run counts them.

        Chunks are whole elements, so ranks differ where a bucket's elements do not divide by
        `ranks`; where they do, each sends 2(n-1)/n of `nbytes` round a ring.
        """
        plan = plan_for("all_reduce", count("ranks", ranks, most=10_000), algorithm)
        edges = [
            [bucket.itemsize * edge for edge in plan.bounds(bucket.nbytes // bucket.itemsize)]
            for bucket in self.buckets
        ]
        sent = [0] * ranks
        for transfers in plan.rounds:
            for m in transfers:
                sent[m.src] += sum(each[m.stop] - each[m.first] for each in edges)
        return tuple(sent)

    def price(
        self, ranks: int, where: Where = None, backward_seconds: float = 0.0, **more: Any
    ) -> Overlap:
        """Seconds of a step whose buckets are sent as backward makes them; see `price.overlap`."""
        from dlsys.data_parallel.price import overlap

        return overlap(self, backward_seconds, ranks, where, **more)

    def draw(self) -> Any:
        """A Matplotlib figure of the buckets; see `draw.draw`."""
        from dlsys.data_parallel.draw import draw

        return draw(self)


@checked
def buckets(
    sizes: Mapping[str, int] | Sequence[tuple[str, int]],
    bucket_bytes: float | None = None,
    dtypes: str | Mapping[str, str] = "float32",
) -> BucketPlan:
    """Cut gradients, last registered first, into buckets that are full at `bucket_bytes`.

    Backward reaches the last layer first, so a bucket of neighbours is complete early. A bucket is
    sent once it has `bucket_bytes`, so its last gradient may take it above them. Each dtype fills
    buckets of its own. These are the buckets of PyTorch's DDP where backward makes gradients in
    reverse order of registration.

    - sizes: bytes of each parameter by name, in order of registration.
    - bucket_bytes: above 0. None, as DDP by default: 25 MiB, and 1 MiB for the first bucket, so
      that the network begins early.
    - dtypes: the name of the dtype of all, or of each by name.

    Raises ValueError for a name given twice, a size that is not a whole number of elements, or a
    dtype whose name does not say its bits.
    Source: Li et al. 2020 (PyTorch Distributed, arXiv 2006.15704), section 3.2.3.
    """
    first: float = FIRST_BYTES
    most: float = BUCKET_BYTES
    if bucket_bytes is not None:
        positive("bucket_bytes", bucket_bytes)
        first = most = bucket_bytes
    pairs = list(sizes.items()) if isinstance(sizes, Mapping) else list(sizes)
    parameters: dict[str, tuple[str, int, str]] = {}
    for name, size in pairs:
        dtype = dtypes.get(name, "none for it") if isinstance(dtypes, Mapping) else dtypes
        if name in parameters:
            raise ValueError(f"{name!r} is given twice; a tied parameter has one gradient.")
        nbytes = count(f"The size of {name!r} in bytes", size, least=0)
        if nbytes % itemsize(dtype):
            raise ValueError(
                f"{name!r} has {nbytes} bytes, not a whole number of {dtype} elements of "
                f"{itemsize(dtype)} bytes: sizes are bytes, not elements."
            )
        parameters[name] = (name, nbytes, dtype)
    made: list[list[tuple[str, int, str]]] = []
    open_: dict[str, list[tuple[str, int, str]]] = {}
    limits: dict[str, float] = {}
    for parameter in reversed(parameters.values()):
        dtype = parameter[2]
        if dtype not in open_:
            made.append(open_.setdefault(dtype, []))
        open_[dtype].append(parameter)
        if sum(size for _, size, _ in open_[dtype]) >= limits.get(dtype, first):
            del open_[dtype]
            limits[dtype] = most
    place = {name: i for i, name in enumerate(parameters)}
    made.sort(key=lambda bucket: -place[bucket[-1][0]])
    return BucketPlan(
        tuple(parameters.values()),
        tuple(
            Bucket(i, tuple(p[0] for p in bucket), tuple(p[1] for p in bucket), bucket[0][2])
            for i, bucket in enumerate(made)
        ),
        most,
    )


def itemsize(dtype: str) -> int:
    """Bytes of an element, from the bits in a dtype's name: 4 for "float32", 2 for "bfloat16"."""
    if dtype == "bool":
        return 1
    bits = re.match(r"(?:b?float|complex|u?int)(8|16|32|64|128)", str(dtype))
    if not bits:
        raise ValueError(
            f"dtype is {dtype!r}; write its name with its bits: 'float32', 'bfloat16'."
        )
    return int(bits[1]) // 8
