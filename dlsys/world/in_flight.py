"""A tensor in flight: nobody may write to it before the handle of its send is waited for."""

from __future__ import annotations

import torch

from dlsys.world.memory import as_bytes


class InFlight:
    """What was in `tensor` when its send began.

    torch counts the writes to a tensor and to all views of its memory together. Where the tensor is
    all of that memory the count alone tells; where it is a part, a copy tells whether the write was
    to this part. Writes that torch does not count (by NumPy, through `.data`) go unseen.
    """

    __slots__ = ("_before", "_tensor", "_writes")

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor.detach() if tensor.requires_grad else tensor
        self._writes = _writes(tensor)
        self._before: torch.Tensor | None = None
        if tensor.nbytes != tensor.untyped_storage().nbytes():
            self._before = self._tensor.clone()

    def is_changed(self) -> bool:
        """Whether somebody has written to it since."""
        if _writes(self._tensor) == self._writes or not self._tensor.nbytes:
            return False
        if self._before is None:
            return True
        if self._tensor.is_meta:  # nobody can say to which part: there are no numbers
            return False
        if torch.equal(self._tensor, self._before):
            return False
        return not torch.equal(as_bytes(self._tensor), as_bytes(self._before))  # NaN is NaN


def _writes(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version
