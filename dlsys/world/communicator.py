"""What a rank program communicates through: one `Communicator`, the same in every world.

The words are torch.distributed's and MPI's. `send` and `recv` work on tensors in place; collectives
are functions: the argument stays as it is and the result is returned, or, with `async_op=True`, a
handle whose `wait()` returns it.

As in MPI, every handle is waited for before the program returns, and nobody writes to a tensor that
is being sent before that. A run of either world ends with UnwaitedError otherwise (`launch`: unless
`check=False`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import Any

import torch

from dlsys.checks import count, flag, index_of, refuse, refuse_what, shown
from dlsys.collectives import Plan, plan_for
from dlsys.collectives.plan import REDUCING, ROOTED
from dlsys.tensors import dense, strided
from dlsys.world.call import Call, Handle, Into, in_words, reduction

TAGS = 2**30
"""Tags of messages are below it; a world of real processes has others of its own above."""


class Communicator(ABC):
    """A group of ranks, seen by one of them.

    Attributes: `rank` (0 to size - 1, within this group), `size`, `axis` (a label that traffic is
    counted under; "" for the whole world).
    """

    rank: int
    size: int
    axis: str

    # -- point to point --------------------------------------------------------------------------

    def send(self, tensor: torch.Tensor, dst: int, tag: int = 0) -> None:
        """Send `tensor` to rank `dst`; returns when that rank has received it.

        A receive takes the sends of its `tag`, a whole number below 2**30, in their order.
        """
        dst = self._peer("send to", dst)
        self._check_tensor("send", tensor)
        self._isend(tensor, dst, _tag(tag)).wait()

    def recv(self, tensor: torch.Tensor, src: int, tag: int = 0) -> torch.Tensor:
        """Receive from rank `src` into `tensor`, which must have the shape and dtype sent."""
        src = self._peer("receive from", src)
        self._check_tensor("recv", tensor)
        return self._irecv(tensor, src, _tag(tag)).wait()

    def isend(self, tensor: torch.Tensor, dst: int, tag: int = 0) -> Handle:
        """Start to send; call `wait()` before you write to `tensor`, and before you return."""
        dst = self._peer("send to", dst)
        self._check_tensor("isend", tensor)
        return self._isend(tensor, dst, _tag(tag))

    def irecv(self, tensor: torch.Tensor, src: int, tag: int = 0) -> Handle:
        """Start to receive; `wait()` returns `tensor`, filled: until then nothing is in it."""
        src = self._peer("receive from", src)
        self._check_tensor("irecv", tensor)
        return self._irecv(tensor, src, _tag(tag))

    # -- collectives -----------------------------------------------------------------------------
    # Every one takes `plan`: a Plan of this kind and size, or the name of an algorithm ("ring",
    # "tree", ...); None leaves the choice to the world.

    def broadcast(
        self,
        tensor: torch.Tensor,
        src: int = 0,
        *,
        plan: Plan | str | None = None,
        async_op: bool = False,
    ) -> Any:
        """The tensor of rank `src`, on every rank; all pass one of its shape and dtype."""
        return self._call("broadcast", tensor, plan, async_op, root=src)

    def reduce(
        self,
        tensor: torch.Tensor,
        dst: int = 0,
        op: str = "sum",
        *,
        plan: Plan | str | None = None,
        async_op: bool = False,
    ) -> Any:
        """The reduction of all ranks' tensors on rank `dst`; None on the others."""
        return self._call("reduce", tensor, plan, async_op, op=op, root=dst)

    def all_reduce(
        self,
        tensor: torch.Tensor,
        op: str = "sum",
        *,
        plan: Plan | str | None = None,
        async_op: bool = False,
        out: torch.Tensor | None = None,
    ) -> Any:
        """The reduction of all ranks' tensors, on every rank.

        op: "sum", "mean", "max", "min" or "prod".
        `out`, contiguous and like `tensor`, takes the result and is returned. It may be `tensor`
        itself, which then needs no copy, and which nobody may touch before `wait()` has returned.
        """
        return self._call("all_reduce", tensor, plan, async_op, op=op, out=out)

    def reduce_scatter(
        self,
        tensor: torch.Tensor,
        op: str = "sum",
        *,
        plan: Plan | str | None = None,
        async_op: bool = False,
    ) -> Any:
        """This rank's part, along dimension 0, of the reduction of all ranks' tensors.

        Of L rows rank r gets [r*L//size, (r+1)*L//size).
        """
        return self._call("reduce_scatter", tensor, plan, async_op, op=op)

    def all_gather(
        self,
        tensor: torch.Tensor,
        length: int | None = None,
        *,
        plan: Plan | str | None = None,
        async_op: bool = False,
    ) -> Any:
        """All ranks' tensors joined along dimension 0, on every rank.

        `length` is the number of rows in all, needed only where the ranks' parts differ (then rank
        r passes rows [r*length//size, (r+1)*length//size), as `reduce_scatter` returns them).
        """
        return self._call("all_gather", tensor, plan, async_op, length=length)

    def gather(
        self,
        tensor: torch.Tensor,
        dst: int = 0,
        *,
        plan: Plan | str | None = None,
        async_op: bool = False,
    ) -> Any:
        """All ranks' tensors joined along dimension 0 on rank `dst`; None on the others."""
        return self._call("gather", tensor, plan, async_op, root=dst)

    def scatter(
        self,
        tensor: torch.Tensor | None,
        src: int = 0,
        *,
        plan: Plan | str | None = None,
        async_op: bool = False,
    ) -> Any:
        """This rank's part, along dimension 0, of the tensor of rank `src`; others pass None."""
        return self._call("scatter", tensor, plan, async_op, root=src)

    def all_to_all(
        self,
        tensor: torch.Tensor,
        *,
        plan: Plan | str | None = None,
        async_op: bool = False,
    ) -> Any:
        """Block i of the result is block `rank` of rank i's tensor, blocks along dimension 0.

        Of L rows block j is [j*L//size, (j+1)*L//size); the ranks' tensors have one shape.
        """
        return self._call("all_to_all", tensor, plan, async_op)

    @abstractmethod
    def barrier(self) -> None:
        """Wait until every rank of the group is here."""

    @abstractmethod
    def split(self, color: Hashable, key: int | None = None, axis: str = "") -> Communicator | None:
        """A communicator for the ranks that pass the same `color`, ordered by `key`, then rank.

        All ranks of the group call it. `color=None` takes no part and gets None. Traffic of the new
        group is counted under `axis`.
        """

    # -- time ------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def seconds(self) -> float:
        """This rank's clock: virtual in a simulated world, the wall's elsewhere."""

    @abstractmethod
    def compute(self, seconds: float, name: str = "compute") -> None:
        """Spend `seconds` computing in virtual time; nothing where time is real."""

    # -- what a world supplies -------------------------------------------------------------------

    @abstractmethod
    def _isend(self, tensor: torch.Tensor, dst: int, tag: int) -> Handle: ...

    @abstractmethod
    def _irecv(self, tensor: torch.Tensor, src: int, tag: int) -> Handle: ...

    @abstractmethod
    def _collective(self, call: Call) -> Handle: ...

    # -- shared checks ---------------------------------------------------------------------------

    def _call(self, kind: str, tensor: Any, plan: Any, async_op: bool, **more: Any) -> Any:
        root = more.get("root", 0)
        if kind in ROOTED:
            root = more["root"] = self._member(ROOTED[kind], root)
        if kind in REDUCING:
            more["op"] = reduction(kind, more["op"])
        flag("async_op", async_op)
        if kind == "scatter" and self.rank != root:
            tensor = None
        else:
            self._check_tensor(kind, tensor)
        if kind in REDUCING:
            _check_reducible(tensor, more["op"])
        if isinstance(plan, str):
            plan = plan_for(kind, self.size, plan, root=root)
        elif plan is not None:
            self._check_plan(kind, plan, root)
        if more.get("length") is not None:
            more["length"] = count("length", more["length"], 0)
        out = more.get("out")
        if out is not None:
            _check_out(out, tensor)
        handle = self._collective(Call(kind, tensor, plan, async_op=async_op, **more))
        if out is not None:
            handle = Into(handle, out)
        return handle if async_op else handle.wait()

    def _check_tensor(self, name: str, tensor: object) -> None:
        if not isinstance(tensor, torch.Tensor):
            advice = f": {name} returns its result" if isinstance(tensor, list | tuple) else ""
            refuse("tensor", tensor, f"one torch.Tensor{advice}", TypeError)
        strided("tensor", tensor)

    def _peer(self, action: str, peer: int) -> int:
        if not self._is_member(peer):
            ranks = f"ranks are 0 to {self.size - 1}"
            raise ValueError(f"rank {self.rank} cannot {action} rank {shown(peer)}: {ranks}")
        if peer == self.rank:
            raise ValueError(f"rank {self.rank} cannot {action} itself; copy the tensor instead")
        return peer.__index__()

    def _member(self, name: str, rank: Any) -> int:
        """`rank`, of any integer type, as an int; ValueError where the group has no such rank."""
        if not self._is_member(rank):
            refuse(name, rank, f"a rank of this communicator, from 0 to {self.size - 1}")
        return rank.__index__()

    def _is_member(self, rank: Any) -> bool:
        if type(rank) is int:
            return 0 <= rank < self.size
        whole = index_of(rank)
        return whole is not None and 0 <= whole < self.size

    def _check_plan(self, kind: str, plan: Plan, root: int) -> None:
        if not isinstance(plan, Plan):
            refuse("plan", plan, "a Plan, or an algorithm's name", TypeError)
        if plan.kind != kind:
            refuse_what("plan", f"a plan for {plan.kind}", f"one for {kind}")
        if plan.ranks != self.size:
            refuse_what(
                "plan", f"for {plan.ranks} ranks", f"for the {self.size} of this communicator"
            )
        if kind in ROOTED and plan.root != root:
            refuse_what("plan", f"one whose root is {plan.root}", f"one whose root is {root}")


def _check_reducible(tensor: torch.Tensor, op: str) -> None:
    """Raise ValueError where this reduction of such numbers is none."""
    dense("tensor", tensor)
    if op == "mean" and not (tensor.is_floating_point() or tensor.is_complex()):
        floating = "of a floating-point type for op='mean': a mean of integers is no integer"
        refuse_what("tensor", f"of {tensor.dtype}", f"{floating}; use op='sum', or convert it")
    if op in ("max", "min") and tensor.is_complex():
        ordered = f"real for op={op!r}: complex numbers have no order"
        refuse_what("tensor", f"of {tensor.dtype}", ordered)


def _check_out(out: object, tensor: torch.Tensor) -> None:
    """Raise ValueError unless the result can come to lie in `out`."""
    if not isinstance(out, torch.Tensor):
        refuse("out", out, "a tensor, or None")
    if not out.is_contiguous() or (out.shape, out.dtype) != (tensor.shape, tensor.dtype):
        refuse_what("out", in_words(out), f"contiguous, and {in_words(tensor)} as the tensor")


def _tag(tag: Any) -> int:
    """`tag`, of any integer type, as an int; ValueError where it is none, or out of bounds."""
    return count("tag", tag, 0, TAGS - 1)
