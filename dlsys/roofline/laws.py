"""Laws of the ridge: where it lies in tokens, in widths, and in sequences of a batch."""

from __future__ import annotations

from typing import Literal

from dlsys.annotated import checked
from dlsys.checks import count, positive
from dlsys.hardware import Device

Axis = Literal["data", "zero", "context", "tensor", "expert"]
UNITS = {
    "data": "tokens a device",
    "zero": "tokens a device",
    "context": "tokens a device",
    "tensor": "hidden width",
    "expert": "hidden width of an expert",
}
"""What an axis needs enough of, so that its messages hide behind compute."""


@checked
def axis_ridge(axis: Axis, rate: float, bandwidth: float, n: int, itemsize: int = 2) -> float:
    """How much of `UNITS[axis]` makes messages take as long as the compute beside them.

    - rate: C, FLOP/s that a device achieves; bandwidth: W, bytes/s of its link in one direction;
      n: devices of the axis; itemsize: bytes of an element that is sent.

    Below C/W at two bytes, C/W (n-1)/n:

    - data: gradients of P parameters, 2 (n-1)/n 2P/W, beside backward's 4 P x / C on x tokens
    - zero: gathers of stage 3 forward, (n-1)/n 2P/W, beside 2 P x / C
    - context: keys and values of x tokens, 4 x h / W a hop, beside 4 x^2 h / C; the hops are not
      one less than n, for a rank works on its own block, too: C/W
    - tensor: four all-reduces of (x, h) a layer, beside all of its 72 x h^2 / (n C):
      2/9 (n-1) C/W; the product after a sum waits for it, so less than all is really beside it
    - expert: x tokens to k experts and back, 4 k x h (n-1)/n / W, beside two matrices of h by f,
      4 k x h f / C; three matrices need 2/3 of it

    Latencies are left out. Sources: the chapters of each axis; Liu et al. 2023 (ring attention),
    section 3; Shoeybi et al. 2019; Lepikhin et al. 2020 (GShard).
    """
    positive("rate", rate)
    positive("bandwidth", bandwidth)
    n = count("n", n)
    ridge = count("itemsize", itemsize) / 2 * rate / bandwidth
    if axis == "context":
        return ridge
    return ridge * (2 / 9 * (n - 1) if axis == "tensor" else (n - 1) / n)


@checked
def decode_batch(device: Device, number_format: str = "bf16", itemsize: int = 2) -> float:
    """Sequences that decode together before compute takes as long as reading the weights.

    A weight of `itemsize` bytes is read once and costs 2 FLOPs for each sequence: batch b takes
    2 b / C beside itemsize / W, so C/W itemsize / 2. Keys and values are not shared by sequences
    and stay where they are, however large the batch.
    """
    return device.ridge(number_format) * count("itemsize", itemsize) / 2


@checked
def exact_decode_batch(
    device: Device, inputs: int, outputs: int, number_format: str = "bf16", itemsize: int = 2
) -> float:
    """`decode_batch` with the activations of an (inputs, outputs) matrix counted as well.

    2 b i o / (itemsize (b i + i o + b o)) = C/W. Raises ValueError where the matrix is so small
    that no batch gets there.
    """
    i, o, size = count("inputs", inputs), count("outputs", outputs), count("itemsize", itemsize)
    ridge = device.ridge(number_format) * size / 2
    room = i * o - ridge * (i + o)
    if room <= 0:
        raise ValueError(
            f"With inputs of {i}, outputs of {o} and an itemsize of {size} no batch is bound by "
            f"compute: 1 / (1 / inputs + 1 / outputs) must be above {ridge:.4g}."
        )
    return ridge * i * o / room
