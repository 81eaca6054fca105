"""The checkpoint interval and goodput: how often to save, and exact shares of a run's time.

Failures come as a Poisson process of mean distance M. All prices are those of one renewal: the time
from the moment a checkpoint can be gone back to until the next one can.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from dlsys.annotated import checked
from dlsys.checks import at_least, count, fraction, positive, refuse

_RARE = 1e-100
"""A chance of less counts as this: what ends so seldom is never seen to end either way."""


@checked
def optimal_interval(write_seconds: float, mtbf_seconds: float) -> float:
    """Young's interval, seconds of work between two checkpoints: sqrt(2 C M).

    - write_seconds: C, for which the run stalls; mtbf_seconds: M, between failures of the whole.

    Writing takes C/tau of the time, and a failure throws away tau/2 on average, so tau/(2M): both
    are equal at the optimum. Holds while C is far below M: it is longer than `exact_interval` by
    about 2C/3. Source: Young 1974, "A first order approximation to the optimum checkpoint
    interval", CACM 17(9).
    """
    _check_write_and_mtbf(write_seconds, mtbf_seconds)
    return math.sqrt(2 * write_seconds) * math.sqrt(mtbf_seconds)


@checked
def daly_interval(write_seconds: float, mtbf_seconds: float) -> float:
    """Daly's interval: sqrt(2CM) (1 + sqrt(C/2M)/3 + C/18M) - C, and M from C = 2M on.

    A series about the exact optimum, without its equation. Source: Daly 2006, "A higher order
    estimate of the optimum checkpoint interval for restart dumps", FGCS 22(3), equation 37.
    """
    _check_write_and_mtbf(write_seconds, mtbf_seconds)
    half = write_seconds / mtbf_seconds / 2
    if half >= 1:
        return mtbf_seconds
    young = optimal_interval(write_seconds, mtbf_seconds)
    return max(0.0, young * (1 + math.sqrt(half) / 3 + half / 9) - write_seconds)


@checked
def exact_interval(write_seconds: float, mtbf_seconds: float) -> float:
    """The interval of the least expected time: M (1 - e^-s), where s - 1 + e^-s = C/M.

    s is (tau + C)/M, one whole period; the same in closed form is tau = M (1 + W(-e^(-1 - C/M)))
    with Lambert's W. How long a restart takes does not matter. Source: Daly 2006 (see
    `daly_interval`), its complete cost function, minimized.
    """
    _check_write_and_mtbf(write_seconds, mtbf_seconds)
    return mtbf_seconds * -math.expm1(-best_period(write_seconds / mtbf_seconds))


def best_period(c: float) -> float:
    """s > 0 with s - 1 + e^-s = c: the best period over M where writing takes c of M."""
    if c == 0:
        return 0.0
    s = math.sqrt(2 * c) + c  # above the root, from where Newton's steps fall to it
    while (lower := s - (_lag(s) - c) / -math.expm1(-s)) < s:
        s = lower
    return s


def _lag(s: float) -> float:
    """s - 1 + e^-s; as its series s^2/2 - s^3/6 + ... where the difference would lose digits."""
    if s > 0.5:
        return s + math.expm1(-s)
    return math.fsum((-s) ** n / math.factorial(n) for n in range(2, 20))


@checked
@dataclass(frozen=True)
class Cadence:
    """How a run saves: after each `interval` seconds of work it stalls for `stall` seconds, and
    `behind` seconds later what it saved can be gone back to.

    A save that blocks stalls for the whole write and leaves nothing behind. An asynchronous one
    stalls for the snapshot to host memory; the write goes on behind the work, and the next snapshot
    needs it ended: raises ValueError where `behind` is more than `interval`.
    """

    interval: float
    stall: float
    behind: float = 0.0

    def __post_init__(self) -> None:
        positive("interval", self.interval)
        at_least("stall", self.stall, 0)
        at_least("behind", self.behind, 0)
        if self.behind > self.interval:
            refuse("behind", self.behind, f"at most the interval, {self.interval:g} s")


@checked
@dataclass(frozen=True)
class Disk:
    """A second level: each `every`-th checkpoint goes to disk, too, which stalls for `stall` more.

    The first level is the host memory of a neighbour. `share` of all failures destroy it as well (a
    device with its neighbour, a rack, the power): they go back to the disk, and their restart takes
    `restart_seconds`. Source: Moody et al. 2010 (SCR), "Design, modeling, and evaluation of a
    scalable multi-level checkpointing system", SC10.
    """

    every: int
    stall: float
    share: float
    restart_seconds: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "every", count("every", self.every, most=1_000_000))
        at_least("stall", self.stall, 0)
        fraction("share", self.share)
        at_least("restart_seconds", self.restart_seconds, 0)


class Shares(NamedTuple):
    """What a long run's time goes into; the sum is 1.

    useful: work that stays. writing: stalls for checkpoints that stay. redone: work and stalls that
    a failure undoes. detecting: until a failure is noticed. restarting: until work goes on.
    """

    useful: float
    writing: float
    redone: float
    detecting: float
    restarting: float

    @property
    def goodput(self) -> float:
        """The useful share."""
        return self.useful

    @property
    def wasted(self) -> float:
        """All the rest."""
        return 1 - self.useful


@checked
def shares(
    cadence: Cadence,
    mtbf_seconds: float,
    restart_seconds: float = 0.0,
    detection_seconds: float = 0.0,
    disk: Disk | None = None,
) -> Shares:
    """The expected shares of a run whose failures come as a Poisson process, exactly.

    With tau, S, B of the cadence, D of detection, R of a restart and M between failures,
    goodput = tau/M e^-(B+D+R)/M / (e^(tau+S)/M - 1). A failure while another is detected or
    restarted from begins both anew, so exactly e^-(D+R)/M of the time the run is up. Writing behind
    costs what a restart that is longer by B would.

    - disk: a second level, whose failures restart in its own seconds; nothing is then written
      behind, and ValueError is raised where it is.

    Source: Daly 2006, its complete cost function, which this is for S = C and B = D = 0.
    """
    positive("mtbf_seconds", mtbf_seconds)
    at_least("restart_seconds", restart_seconds, 0)
    at_least("detection_seconds", detection_seconds, 0)
    m = mtbf_seconds
    if disk:
        if cadence.behind:
            refuse("behind", cadence.behind, "0 where every so many checkpoints go to disk")
        return _two_levels(cadence, m, restart_seconds, detection_seconds, disk)
    period = cadence.interval + cadence.stall
    kept = math.exp(-cadence.behind / m) * _passing(period / m)
    down = detection_seconds / m, restart_seconds / m
    up = math.exp(-sum(down))
    useful, writing = cadence.interval / period * kept, cadence.stall / period * kept
    redone = max(0.0, 1 - useful - writing)  # not -1e-17
    detecting, restarting = -math.expm1(-down[0]), math.exp(-down[0]) * -math.expm1(-down[1])
    return Shares(up * useful, up * writing, up * redone, detecting, restarting)


def _passing(x: float) -> float:
    """The part of all attempts' time that goes into those that no failure ends, each x of M long:
    x / (e^x - 1)."""
    return x / math.expm1(x) if 0 < x < 700 else float(x == 0)


class _Way(NamedTuple):
    """Expected seconds on a way through a pattern, and the chance that it ends well."""

    up: float
    detecting: float
    restarting: float
    done: float = 0.0

    def plus(self, chance: float, other: _Way) -> _Way:
        """This way, which another one follows with that chance."""
        return _Way(*(a + chance * b for a, b in zip(self, other, strict=True)))


def _two_levels(cadence: Cadence, m: float, restart: float, detect: float, disk: Disk) -> Shares:
    """A renewal is a pattern of `every` checkpoints, of which the last goes to disk.

    A way begins with the pattern and ends where that ends, or where it must begin anew. It is built
    from the end: a segment is passed, or tried again after a restart from host memory.
    """
    from_disk, _ = _restarts(m, detect, disk.restart_seconds, 0.0)
    from_memory, lost = _restarts(m, detect, restart, disk.share)
    from_memory = from_memory.plus(lost, from_disk)
    way = _Way(0.0, 0.0, 0.0, 1.0)
    for from_end in range(disk.every):
        seconds = cadence.interval + cadence.stall + (0.0 if from_end else disk.stall)
        passed, failed = math.exp(-seconds / m), -math.expm1(-seconds / m)
        tried = _Way(m * failed, 0.0, 0.0).plus(passed, way)
        tried = tried.plus(failed * disk.share, from_disk)
        tried = tried.plus(failed * (1 - disk.share), from_memory)
        left = passed + failed * (disk.share + (1 - disk.share) * lost)
        way = _Way(*(part / max(left, _RARE) for part in tried))
    useful = disk.every * cadence.interval * way.done
    writing = (disk.every * cadence.stall + disk.stall) * way.done
    redone = max(0.0, way.up - useful - writing)
    seconds_of = useful, writing, redone, way.detecting, way.restarting
    return Shares(*(each / sum(seconds_of) for each in seconds_of))


def _restarts(m: float, detect: float, restart: float, share: float) -> tuple[_Way, float]:
    """Restarts until one lasts, or a failure of that share ends them; the chance that one does."""
    lasts, failed = math.exp(-(detect + restart) / m), -math.expm1(-(detect + restart) / m)
    attempts = 1 / max(lasts + failed * share, _RARE)
    seconds = -m * math.expm1(-detect / m), -m * math.exp(-detect / m) * math.expm1(-restart / m)
    return _Way(0.0, attempts * seconds[0], attempts * seconds[1]), attempts * failed * share


@checked
def best_cadence(stall: float, mtbf_seconds: float, behind: float = 0.0) -> Cadence:
    """The cadence of the least expected time: `exact_interval` of the stall, or `behind` if longer.

    Raises ValueError where both are 0: what costs nothing is best done always.
    """
    at_least("behind", behind, 0)
    at_least("stall", stall, 0)
    if not stall + behind:
        refuse("stall", stall, "above zero, as nothing is written behind")
    return Cadence(max(exact_interval(stall, mtbf_seconds), behind), stall, behind)


@checked
def state_bytes(parameters: float, bytes_each: float = 16.0) -> float:
    """Bytes of a checkpoint, parameters x bytes of each: 16 are mixed-precision Adam's whole state.

    A checkpoint needs 14 of them, as gradients need not be kept: 2 for the weights, 12 for their
    32-bit copy and both moments.
    """
    at_least("parameters", parameters, 0)
    positive("bytes_each", bytes_each)
    at_least("parameters times bytes_each", parameters * bytes_each, 0)
    return parameters * bytes_each


def _check_write_and_mtbf(write_seconds: float, mtbf_seconds: float) -> None:
    at_least("write_seconds", write_seconds, 0)
    positive("mtbf_seconds", mtbf_seconds)
