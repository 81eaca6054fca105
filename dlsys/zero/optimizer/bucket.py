"""Parameters that are reduced and gathered together, and this rank's part of each."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from dlsys.zero.flat import Flat, Piece
from dlsys.zero.optimizer.dealt import Dealt

Named = tuple[str, Tensor]


class Bucket:
    """Parameters of one group, dtype and device, laid out flat, and this rank's `parts` of them.

    `name` is that of its first parameter; `index` counts the buckets of an optimizer in the order
    of forward, and `begins_at` is how far into its group the first parameter is, from 0 to 1;
    `whole`: no parameter is cut.
    """

    def __init__(self, named: Sequence[Named], rank: int, ranks: int, whole: bool) -> None:
        self.index, self.begins_at, self.name = 0, 0.0, named[0][0]
        self.names = [name for name, _ in named]
        self.parameters = [parameter for _, parameter in named]
        sizes = tuple((name, parameter.numel()) for name, parameter in named)
        self.layout = Dealt(sizes, ranks) if whole else Flat(sizes, ranks)
        self._begins, self._rank = self.layout.begins, rank
        self.parts: list[Part] = []

    @property
    def nbytes(self) -> int:
        """Bytes of its parameters."""
        return sum(parameter.nbytes for parameter in self.parameters)

    def make_parts(self, dtype: torch.dtype | None, device: torch.device | None) -> list[Part]:
        """This rank's parts, held in `dtype` and on `device` (None: as the parameters are)."""
        pairs = zip(self.parameters, self.layout.pieces(self._rank), strict=True)
        self.parts = [Part(p, piece, dtype, device) for p, piece in pairs if piece.elements]
        return self.parts

    def flat(self) -> Tensor:
        """A flat tensor (padded,) for all parameters, with zeros where it is padded."""
        return self._new(self.layout.padded)

    def view(self, flat: Tensor, place: int) -> Tensor:
        """Where the parameter of this place lies in a flat tensor (padded,), with its shape."""
        parameter, begin = self.parameters[place], self._begins[place]
        return flat[begin : begin + parameter.numel()].view(parameter.shape)

    def shard_of_weights(self) -> Tensor:
        """This rank's shard (shard,) of the weights, as the update has left it."""
        shard = self._new(self.layout.shard)
        for part in self.parts:
            part.place_in(shard).copy_(part.tensor)
        return shard

    def _new(self, elements: int) -> Tensor:
        first, is_padded = self.parameters[0].detach(), self.layout.padded > self.layout.elements
        return first.new_zeros(elements) if is_padded else first.new_empty(elements)

    def take_weights(self, flat: Tensor) -> None:
        """Copy gathered weights (padded,) into the parameters."""
        views = [self.view(flat, place) for place in range(len(self.parameters))]
        torch._foreach_copy_([parameter.detach() for parameter in self.parameters], views)
        for part in self.parts:
            part.seen = part.parameter._version


class Part:
    """This rank's piece of one parameter: `tensor` is what its optimizer updates.

    A view of the parameter where that is possible, which costs no memory; a copy where it is held
    in another dtype or on another device, or is cut from what is not contiguous.
    """

    def __init__(
        self,
        parameter: Tensor,
        piece: Piece,
        dtype: torch.dtype | None,
        device: torch.device | None,
    ) -> None:
        self.parameter, self.piece = parameter, piece
        self.whole = piece.elements == parameter.numel()
        weights = parameter.detach()
        is_view = self.whole or parameter.is_contiguous()
        self.copied = not is_view or device is not None or dtype not in (None, parameter.dtype)
        self.tensor = self.of(weights)
        if self.copied:
            self.tensor = self.tensor.to(
                device or weights.device, dtype or weights.dtype, copy=True
            )
        self.tensor.requires_grad_()
        self.seen = parameter._version

    def of(self, like: Tensor) -> Tensor:
        """This rank's piece of a tensor of the parameter's shape; flat where it is a part."""
        return like if self.whole else like.reshape(-1)[self.piece.start : self.piece.stop]

    def place_in(self, shard: Tensor) -> Tensor:
        """Where the piece lies in this rank's shard (shard,) of its bucket."""
        first = self.piece.place
        return shard[first : first + self.piece.elements].view(self.tensor.shape)

    @torch.no_grad()
    def refresh(self) -> None:
        """Take over what was written into the parameter since its copy was made or gathered, such
        as a model's loaded weights; a copy that rounds to the weight as it is stays, bit by bit."""
        if self.copied and self.parameter._version != self.seen:
            now = self.of(self.parameter.detach()).to(self.tensor)
            rounded = self.tensor.to(self.parameter.dtype).to(self.tensor.dtype)
            self.tensor.copy_(torch.where(rounded == now, self.tensor, now))
            self.seen = self.parameter._version
