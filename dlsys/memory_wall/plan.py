"""What a training run keeps for each parameter: named recipes, and how ZeRO divides them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real

from dlsys.annotated import checked
from dlsys.checks import count, counts, index_of, positive, shown
from dlsys.plain_data import plain_data
from dlsys.units import Catalogue


@plain_data
@dataclass(frozen=True)
class Buckets:
    """Weights, gradients and optimizer state; `master` and `moments` are parts of the last."""

    weights: int
    gradients: int
    master: int
    moments: int

    @property
    def optimizer(self) -> int:
        """Master copy and moments."""
        return self.master + self.moments

    @property
    def total(self) -> int:
        """All buckets."""
        return self.weights + self.gradients + self.optimizer


@checked
@plain_data
@dataclass(frozen=True)
class Recipe(Buckets):
    """Bytes per parameter in each bucket of model state, and why each is there.

    `moments` counts all of the optimizer's running averages together. `scale_block` is set where
    the moments are 8-bit: one FP32 scale, which no bucket here counts, for each block of that many
    elements, for each of `moments` bytes.
    """

    why: str
    scale_block: int = 0

    def __post_init__(self) -> None:
        counts(self, "weights", "gradients", "master", "moments", "scale_block", least=0)


RECIPES: Catalogue[Recipe] = Catalogue(
    "recipe",
    {
        "fp32-adam": Recipe(4, 4, 0, 8, "everything in FP32: weights, gradients, two moments"),
        "mixed-adamw": Recipe(
            2, 2, 4, 8, "16-bit weights and gradients; FP32 master copy and moments (ZeRO, §3.1)"
        ),
        "mixed-adamw-fp32-gradients": Recipe(
            2, 4, 4, 8, "as mixed-adamw, but gradients are kept and accumulated in FP32 only"
        ),
        "mixed-adamw-both-gradients": Recipe(
            2, 6, 4, 8, "as mixed-adamw, with 16-bit gradients and an FP32 sum of them side by side"
        ),
        "pure-16bit": Recipe(
            2, 2, 0, 8, "16-bit weights are the only copy; FP32 moments, no master copy"
        ),
        "all-16bit": Recipe(
            2, 2, 0, 4, "moments in 16 bits too: torch.optim.AdamW on bfloat16 parameters"
        ),
        "8bit-adam": Recipe(
            2,
            2,
            4,
            2,
            "mixed precision; each moment is int8 in blocks of 2,048 with an FP32 "
            "scale (Dettmers et al. 2022)",
            scale_block=2048,
        ),
        "fp32-8bit-adam": Recipe(
            4,
            4,
            0,
            2,
            "FP32 weights and gradients; int8 moments in blocks of 2,048 with an FP32 scale",
            scale_block=2048,
        ),
        "momentum": Recipe(4, 4, 0, 4, "FP32, one running average of the gradient"),
        "mixed-momentum": Recipe(2, 2, 4, 4, "mixed precision with one FP32 running average"),
        "sgd": Recipe(4, 4, 0, 0, "FP32; plain gradient descent remembers nothing"),
    },
)


@plain_data
class ModelState(Buckets):
    """The buckets of model state in bytes on one device."""


def named(recipe: Recipe | str) -> Recipe:
    """The recipe itself, or the one in RECIPES with that name; raises UnknownNameError."""
    return RECIPES[recipe] if isinstance(recipe, str) else recipe


@checked
def model_state(
    parameters: float,
    recipe: Recipe | str = "mixed-adamw",
    zero_stage: int = 0,
    data_parallel: int = 1,
) -> ModelState:
    """Bytes of weights, gradients and optimizer state on the fullest device.

    A bucket takes `bytes per parameter x parameters`. ZeRO stage 1 divides the optimizer bucket
    by `data_parallel`, stage 2 the gradients too, stage 3 the weights too; a device then holds
    ceil(parameters / data_parallel) elements of a divided bucket.

    Args: `parameters`, a count, rounded up where a share such as 70e9 / 96 is not whole; `recipe`,
    a name in RECIPES or a Recipe; `zero_stage`, 0 to 3; `data_parallel`, devices that share the
    state. Returns bytes, as a ModelState.
    Raises UnknownNameError (a KeyError) for an unknown recipe, ValueError for a stage outside 0-3
    or a count that is not above 0.
    Source: Rajbhandari et al. 2020 (arXiv 1910.02054), figure 1.
    """
    if not isinstance(parameters, Real):
        raise ValueError(
            f"parameters is {parameters!r:.60}; pass their number: 7e9, or spec.parameters()."
        )
    positive("parameters", parameters)
    held = math.ceil(parameters)
    share = -(-held // count("data_parallel", data_parallel))  # -(-a // b) rounds a / b up
    if index_of(zero_stage) not in (0, 1, 2, 3):
        raise ValueError(f"zero_stage is {shown(zero_stage)}; ZeRO has stages 0 (off), 1, 2 and 3.")
    each = named(recipe)
    # Figure 1 of the paper: each stage divides one bucket more.
    optimizer, gradients, weights = (share if zero_stage >= stage else held for stage in (1, 2, 3))
    scales = 4 * each.moments * -(-optimizer // each.scale_block) if each.scale_block else 0
    return ModelState(
        weights=each.weights * weights,
        gradients=each.gradients * gradients,
        master=each.master * optimizer,
        moments=each.moments * optimizer + scales,
    )


@checked
def devices_needed(
    parameters: float, recipe: Recipe | str = "mixed-adamw", device_memory: float = 80e9
) -> int:
    """The fewest devices whose memories together hold the model state, perfectly divided.

    ceil(model state / device_memory): a lower bound, for activations, buffers and fragmentation
    come on top. `device_memory` is in bytes (80e9 is 80 GB; a "32 GB" V100 has 32 * 2**30).
    Raises ValueError for memory below a megabyte, which was meant in gigabytes.
    """
    _memory(device_memory)
    return math.ceil(model_state(parameters, recipe).total / device_memory)


@checked
def largest_model(
    device_memory: float, recipe: Recipe | str = "mixed-adamw", devices: int = 1
) -> int:
    """The most parameters whose model state fits `devices` devices of `device_memory` bytes.

    devices x device_memory / bytes per parameter: the other side of `devices_needed`, and like it
    without activations. 8-bit scales are counted at 4 bytes in each block of each moment.
    """
    _memory(device_memory)
    each = named(recipe)
    scales = 4 * each.moments / each.scale_block if each.scale_block else 0
    return int(count("devices", devices) * device_memory / (each.total + scales))


def _memory(nbytes: float) -> None:
    positive("device_memory in bytes", nbytes)
    if nbytes < 1e6:
        raise ValueError(
            f"device_memory is {nbytes:g} bytes, less than any device has: 80 GB are 80e9 bytes."
        )
