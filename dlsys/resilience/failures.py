"""Failure rates: of a run from its parts, each so many failures a year, and from published runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dlsys.annotated import checked
from dlsys.checks import at_least, count, positive, refuse, some
from dlsys.units import DAY, YEAR, Catalogue


def _known(name: str, value: object, result: float) -> float:
    """`result`, unless it is beyond what is computed with."""
    if not 0 < result < math.inf:
        refuse(name, value, "such that numbers of failures and seconds stay finite and above zero")
    return result


@checked
@dataclass(frozen=True)
class Part:
    """`count` alike parts of a run, each of which fails `failures_a_year` times a year on average.

    One failure of any of them ends the step that all are in.
    """

    name: str
    count: int
    failures_a_year: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "count", count("count", self.count, most=10**9))
        at_least("failures_a_year", self.failures_a_year, 0)


@checked
def failures_a_year(mttf_seconds: float) -> float:
    """Failures a year of a part that lives `mttf_seconds` on average: YEAR / MTTF.

    50,000 hours, a figure that vendors give, are 0.175 failures a device-year.
    """
    positive("mttf_seconds", mttf_seconds)
    return _known("mttf_seconds", mttf_seconds, YEAR / mttf_seconds)


@checked
def yearly_failures(parts: Sequence[Part]) -> float:
    """Failures a year of all parts together: the sum of count x failures a year.

    It holds for parts that fail independently of each other, whatever the law of each one's life,
    once they have been replaced a few times: many independent parts fail as a Poisson process.
    """
    some("parts", parts)
    return sum(part.count * part.failures_a_year for part in parts)


@checked
def mtbf(parts: Sequence[Part]) -> float:
    """Mean seconds between failures of the whole: YEAR / `yearly_failures`.

    Raises ValueError where nothing ever fails.
    """
    yearly = yearly_failures(parts)
    if not yearly:
        refuse("parts", parts, "at least one that fails")
    return _known("parts", parts, YEAR / yearly)


@checked
@dataclass(frozen=True)
class PublishedRun:
    """What stopped somebody's run: interruptions by their cause, in `days` on `devices`."""

    name: str
    devices: int
    days: float
    causes: dict[str, int]
    source: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "devices", count("devices", self.devices, most=10**9))
        positive("days", self.days)
        some("causes", self.causes)
        for number in self.causes.values():
            count("A number in causes", number, most=10**9)
        for result in (self.mtbf_seconds, self.failures_a_device_year):
            _known("days", self.days, result)

    @property
    def interruptions(self) -> int:
        """All of them."""
        return sum(self.causes.values())

    @property
    def mtbf_seconds(self) -> float:
        """Mean seconds from one to the next."""
        return self.days * DAY / self.interruptions

    @property
    def failures_a_device_year(self) -> float:
        """Interruptions / (devices x years): what a run of another size would be priced with."""
        return self.interruptions / self.devices * (YEAR / DAY) / self.days

    def share(self, cause: str) -> float:
        """The part of all interruptions that had this cause; raises ValueError for another."""
        if not isinstance(cause, str) or cause not in self.causes:
            refuse("cause", cause, f"one of {', '.join(map(repr, self.causes))}")
        return self.causes[cause] / self.interruptions


RUNS = Catalogue(
    "published run",
    {
        "llama3-405b": PublishedRun(
            "Llama 3 405B",
            16_384,
            54,
            {
                "faulty GPU": 148,
                "GPU HBM3 memory": 72,
                "software bug": 54,
                "network switch or cable": 35,
                "host maintenance": 32,
                "GPU SRAM memory": 19,
                "GPU system processor": 17,
                "NIC": 7,
                "NCCL watchdog timeout": 7,
                "silent data corruption": 6,
                "GPU thermal interface": 6,
                "SSD": 3,
                "power supply": 3,
                "server chassis": 2,
                "IO expansion board": 2,
                "dependency": 2,
                "CPU": 2,
                "system memory": 2,
            },
            "Grattafiori et al. 2024 (arXiv 2407.21783), table 5: 419 unexpected interruptions. "
            "It prints 30.1 % for faulty GPUs; 148 of 419 are 35.3 %.",
        ),
        "opt-175b": PublishedRun(
            "OPT-175B",
            1_024,
            33,
            {"restart of any cause": 90},
            "Zhang et al. 2022 (arXiv 2205.01068) and the logbook of its run: about 90 restarts in "
            "about 33 days of computing, by hand and automatic.",
        ),
    },
)
"""Published runs: their unexpected interruptions."""
