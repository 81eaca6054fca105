"""The roof of energy: what an operation costs in joules, where time has nothing to say."""

from __future__ import annotations

from collections.abc import Mapping

from dlsys.annotated import checked
from dlsys.checks import refuse
from dlsys.roofline.plan import Operation

PICOJOULES: Mapping[str, float] = {
    "int8 add": 0.03,
    "int8 multiply": 0.2,
    "fp16 add": 0.4,
    "fp16 multiply": 1.1,
    "fp32 add": 0.9,
    "fp32 multiply": 3.7,
    "cache 8 KiB, 64 bits": 10.0,
    "cache 32 KiB, 64 bits": 20.0,
    "cache 1 MiB, 64 bits": 100.0,
    "DRAM, 64 bits": 1300.0,
}
"""At 45 nm and 0.9 V; DRAM takes 1,300 to 2,600. Source: Horowitz 2014 (ISSCC), figure 1.1.9."""
SIZES = {"int8": 1, "fp16": 2, "fp32": 4}


def flop_joules(number_format: str) -> float:
    """Joules of a FLOP: the mean of an add and a multiply. ValueError for another format."""
    if not isinstance(number_format, str) or number_format not in SIZES:
        refuse("number_format", number_format, f"one of {', '.join(SIZES)}")
    pair = PICOJOULES[f"{number_format} add"] + PICOJOULES[f"{number_format} multiply"]
    return pair / 2 * 1e-12


def byte_joules() -> float:
    """Joules of a byte from DRAM, by the lower of the two figures."""
    return PICOJOULES["DRAM, 64 bits"] / 8 * 1e-12


@checked
def joules(operation: Operation, number_format: str = "fp16") -> float:
    """What an operation takes: FLOPs and bytes through DRAM, which add up where seconds overlap.

    So the roof of energy has no corner. Idle power, wires and control are left out, which are the
    larger part of a real device's. Source of the model: Choi et al. 2013.
    """
    return operation.flops * flop_joules(number_format) + operation.nbytes * byte_joules()


def energy_ridge(number_format: str = "fp16") -> float:
    """FLOPs for each byte at which arithmetic takes as much energy as memory."""
    return byte_joules() / flop_joules(number_format)


def operand_cost(number_format: str) -> float:
    """How many multiplications a number's way from DRAM costs, in its format."""
    flop_joules(number_format)  # refuses other formats
    moved = byte_joules() * 1e12 * SIZES[number_format]
    return moved / PICOJOULES[f"{number_format} multiply"]
