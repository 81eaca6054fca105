"""ZeRO and FSDP: data parallelism whose ranks each keep a part of what all of them would."""

from typing import TYPE_CHECKING

from dlsys import lazy

if TYPE_CHECKING:
    from dlsys.zero.flat import Flat, Piece, flat

lazy.exports(__name__)
