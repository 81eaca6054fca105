"""What a tensor is made of, whatever its type."""

from __future__ import annotations

import torch


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of a tensor as it reads: a view where it is contiguous, a copy where not, or where
    its numbers are seen through a sign or a conjugate."""
    whole = tensor.detach().resolve_conj().resolve_neg().contiguous()
    # A single element counts as contiguous with any stride; bytes are looked at with that of 1.
    return whole.as_strided((whole.numel(),), (1,)).view(torch.uint8)
