"""An explorer of roofs: a device, an operation, its size and format, and what would move it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

from dlsys.exploring import Choices, Explorer, option
from dlsys.hardware import DEVICES
from dlsys.roofline.plan import Operation, elementwise, layer_norm, matmul, softmax, together
from dlsys.roofline.price import COMPUTE, place
from dlsys.units import format_bytes, format_flops, format_seconds

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = {"bf16": 2, "fp8": 1, "tf32": 4}
OPERATIONS = (
    "linear layer",
    "attention, plain",
    "decode attention",
    "layer norm",
    "residual addition",
)
TOKENS = [2**power for power in range(0, 16)]
HEAD = 128


class Row(NamedTuple):
    """An operation on so many tokens, and its FLOP/s and seconds at its roof."""

    tokens: int
    flops: int
    nbytes: int
    intensity: float
    rate: float
    seconds: float
    bound: str


@dataclasses.dataclass(frozen=True)
class Choice(Choices):
    """One setting. A linear layer is square; heads have 128 numbers. `tokens` are those of a
    sequence in attention, and of keys and values where one token is decoded. Raises ValueError for
    what no option has."""

    device: str = option("Device", DEVICES, "h100-sxm")
    operation: str = option("Operation", OPERATIONS, "linear layer")
    hidden: int = option("Hidden width", [2**power for power in range(9, 15)], 4096)
    tokens: int = option("Tokens", TOKENS, 256)
    number_format: str = option("Format", FORMATS, "bf16")

    def made(self) -> Operation:
        """The operation."""
        n, h, size = self.tokens, self.hidden, FORMATS[self.number_format]
        heads = max(1, h // HEAD)
        if self.operation == "linear layer":
            return matmul(n, h, h, itemsize=size)
        if self.operation == "layer norm":
            return layer_norm(n, h, size)
        if self.operation == "residual addition":
            return elementwise(n * h, 1, 2, 1, size, "residual addition")
        rows = 1 if self.operation == "decode attention" else n
        parts = [
            matmul(rows, HEAD, n, heads, size),
            softmax(heads * rows, n, size),
            matmul(rows, n, HEAD, heads, size),
        ]
        return together(parts, self.operation)

    def rate_name(self) -> str:
        """The format whose rate the device has: a V100 computes in FP16, a TPU in BF16."""
        rates = DEVICES[self.device].flops
        return next(name for name in (self.number_format, "bf16", "fp16") if name in rates)

    def row(self) -> Row:
        """The row of this very choice."""
        made = self.made()
        at = place(made, DEVICES[self.device], self.rate_name())
        return Row(
            self.tokens, made.flops, made.nbytes, made.intensity, at.rate, at.seconds, at.bound
        )

    def rows(self) -> list[Row]:
        """A row for each number of tokens, all else equal."""
        return [dataclasses.replace(self, tokens=tokens).row() for tokens in TOKENS]

    def moves(self) -> str:
        """What would move the point."""
        row, last = self.row(), self.rows()[-1]
        if row.bound == COMPUTE:
            return "Fewer FLOPs or a format with a higher rate make it quicker; bandwidth does not."
        if last.bound == COMPUTE:
            first = next(r.tokens for r in self.rows() if r.bound == COMPUTE)
            return f"From {first:,} tokens on (of powers of two) it is bound by compute."
        return (
            "More tokens do not help, for its intensity hardly grows with them. Fewer bytes do: "
            "a narrower format, or no way through memory at all, in a kernel with its neighbors."
        )

    def summary(self) -> str:
        """What the figure shows, in a few sentences."""
        row, device = self.row(), DEVICES[self.device]
        name = self.rate_name()
        return (
            f"{self.operation.capitalize()} of width {self.hidden:,} on {self.tokens:,} tokens, "
            f"numbers of {FORMATS[self.number_format]} bytes, at the {name.upper()} rate of "
            f"{device.name}: {format_flops(row.flops)} on {format_bytes(row.nbytes)}, "
            f"{row.intensity:.3g} FLOPs a byte; the corner is at {device.ridge(name):.3g}. It is "
            f"bound by {row.bound}, takes at least {format_seconds(row.seconds)} and reaches at "
            f"most {row.rate / device.rate(name):.2%} of the peak. {self.moves()}"
        )

    def figure(self) -> Figure:
        """Every size under the roof, the chosen one marked."""
        from dlsys.roofline.draw import draw_choice

        return draw_choice(self.rows(), self.row(), DEVICES[self.device], self.rate_name())


def explore(**choice: Any) -> Explorer:
    """An explorer that starts at a Choice of these fields: `explore(operation="layer norm")`."""
    return Explorer(Choice(**choice))
