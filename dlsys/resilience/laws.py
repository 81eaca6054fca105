"""Laws of the checkpoint interval: what saving wastes; when spares and two levels pay."""

from __future__ import annotations

import math

from dlsys.annotated import checked
from dlsys.checks import at_least, count, fraction, positive, refuse
from dlsys.resilience.price import Cadence, Shares, best_cadence, shares
from dlsys.units import YEAR


@checked
def wasted_share(write_seconds: float, mtbf_seconds: float, down_seconds: float = 0.0) -> float:
    """The law: a run that saves at its best interval wastes sqrt(2C/M) + (D + R)/M of its time.

    - write_seconds: C, the stall; mtbf_seconds: M; down_seconds: D + R, of each failure, to which
      what is written behind is added.

    Exactly 1 - (1 - tau*/M) e^-(D+R)/M, with tau* the best interval; without D and R that is
    tau*/M. The law is above it, by less than 2C/(3M) + wasted^2/2. More than 1 means that the run
    gets nowhere soon.
    """
    at_least("write_seconds", write_seconds, 0)
    positive("mtbf_seconds", mtbf_seconds)
    at_least("down_seconds", down_seconds, 0)
    return math.sqrt(2 * write_seconds / mtbf_seconds) + down_seconds / mtbf_seconds


@checked
def best_share(
    devices: int,
    failures_a_year: float,
    stall: float,
    restart_seconds: float = 0.0,
    detection_seconds: float = 0.0,
    behind: float = 0.0,
) -> tuple[Cadence, Shares]:
    """The best cadence of a run on so many devices, each with its failures a year, and its exact
    shares: M = YEAR / (devices x failures a year)."""
    positive("failures_a_year", failures_a_year)
    m = YEAR / count("devices", devices, most=10**9) / failures_a_year
    positive("The mean time between failures, by devices and failures_a_year,", m)
    cadence = best_cadence(stall, m, behind)
    return cadence, shares(cadence, m, restart_seconds, detection_seconds)


@checked
def devices_at_waste(share: float, write_seconds: float, failures_a_year: float) -> float:
    """The number of devices at which saving and redoing waste this share: YEAR x^2 / (2 f C).

    It falls as C grows, and with the square of the share: ten times the devices want a tenth of the
    write seconds. A write to storage that grows with the devices would do it; one of fixed
    bandwidth does not. Restarts come on top, (D + R)/M.
    """
    fraction("share", share)
    positive("write_seconds", write_seconds)
    positive("failures_a_year", failures_a_year)
    rate = 2 * failures_a_year * write_seconds
    devices = YEAR * share * share / rate if rate else math.inf
    at_least("devices, by write_seconds and failures_a_year,", devices, 0)
    return devices


@checked
def waiting_share(spares: int, repair_seconds: float, mtbf_seconds: float) -> float:
    """The part of the time in which more devices are in repair than there are spares.

    A device is here what fails, is repaired and is replaced as one: often a node. Those in repair
    are a Poisson number of mean repair/M, whatever the law of repairs, as long as failures go on
    while the run waits (an M/G/infinity queue). So this is P(that number > spares): half at
    spares = repair/M, a fortieth two square roots above. It includes moments in which the run would
    be down anyway.
    """
    spares = count("spares", spares, least=0, most=100_000)
    mean = _in_repair(repair_seconds, mtbf_seconds)
    head = math.fsum(_poisson(mean, k) for k in range(spares + 1))
    if head < 0.5:
        return 1 - head
    tail, k = 0.0, spares + 1  # summed by itself: 1 - head has no digits left
    while (term := _poisson(mean, k)) > 1e-17 * tail:  # which falls, as k is above the mean
        tail, k = tail + term, k + 1
    return tail


@checked
def best_spares(devices: int, repair_seconds: float, mtbf_seconds: float) -> int:
    """The number s of hot spares that gives most goodput a device: the best P(N <= s) / (n + s).

    N, devices in repair, is a Poisson number of mean a = repair/M. One more spare lets the run of n
    devices go on in the share of time in which exactly s + 1 are broken, and could have been a
    1/(n + s) of the run: it pays while P(N = s + 1) > P(N <= s) / (n + s). With thousands of
    devices that ends three to four sqrt(a) above a.
    """
    n = count("devices", devices, most=10**9)
    mean = _in_repair(repair_seconds, mtbf_seconds)
    spares, below = 0, 1.0  # below: P(N <= s) / P(N = s), whose terms may be too small for a float
    while mean * (n + spares) > below * (spares + 1):
        spares += 1
        below = 1 + below * spares / mean
    return spares


def _in_repair(repair_seconds: float, mtbf_seconds: float) -> float:
    at_least("repair_seconds", repair_seconds, 0)
    positive("mtbf_seconds", mtbf_seconds)
    mean = repair_seconds / mtbf_seconds
    if mean > 1e5:
        refuse("repair_seconds", repair_seconds, "so few that at most 100,000 devices are broken")
    return mean


def _poisson(mean: float, k: int) -> float:
    """The chance of k events where `mean` are expected."""
    if mean == 0:
        return float(k == 0)
    return math.exp(k * math.log(mean) - mean - math.lgamma(k + 1))


@checked
def asynchronous_pays(snapshot_seconds: float, write_seconds: float) -> float:
    """The mean time between failures from which on saving behind the work pays, in seconds.

    A stall of S for one of C saves sqrt(2C/M) - sqrt(2S/M), and what is not yet written is lost,
    C/M more. So from M = C / (2 (1 - sqrt(S/C))^2) on where S is a quarter of C or more. Shorter
    ones save as often as a write allows, each C: that wastes S/C + 3C/(2M), less than sqrt(2C/M)
    from M = 9 C / (sqrt 2 + sqrt(2 - 6S/C))^2 on, one to two writes. In truth it pays sooner, from
    0.5 to 1 times this on. Raises ValueError for a snapshot that is not shorter than a write.
    """
    positive("write_seconds", write_seconds)
    at_least("snapshot_seconds", snapshot_seconds, 0)
    if snapshot_seconds >= write_seconds:
        refuse("snapshot_seconds", snapshot_seconds, f"less than write_seconds, {write_seconds:g}")
    part = snapshot_seconds / write_seconds
    if part < 0.25:
        least = 9 / (math.sqrt(2) + math.sqrt(2 - 6 * part)) ** 2
    else:
        least = 1 / (2 * (1 - math.sqrt(part)) ** 2)
    at_least("The time, by write_seconds,", write_seconds * least, 0)
    return write_seconds * least


@checked
def two_levels_pay(share: float) -> float:
    """Two levels pay where the first stalls for less than this part of the second's seconds.

    With a share p of failures that only disk survives, sqrt(2 (1-p) C1/M) + sqrt(2 p C2/M) is below
    sqrt(2 C2/M) where C1/C2 < (1 - sqrt p) / (1 + sqrt p): 0.82 at one in a hundred, a third at a
    quarter. Then every sqrt(C2 (1-p) / (C1 p))-th checkpoint goes to disk.
    """
    fraction("share", share)
    root = math.sqrt(share)
    return (1 - root) / (1 + root)


@checked
def corruption_pays(write_seconds: float, mtbf_seconds: float, corruption_seconds: float) -> float:
    """Seconds to notice silent corruption from which on it wastes more than plain failures do.

    - mtbf_seconds: M of plain failures; corruption_seconds: K, mean distance of silent ones.

    Each throws away what was done until it was found, Delta/K of the time, against sqrt(2C/M): from
    Delta = K sqrt(2C/M) on a check that finds it sooner pays more than a faster write.
    """
    positive("corruption_seconds", corruption_seconds)
    found = wasted_share(write_seconds, mtbf_seconds) * corruption_seconds
    at_least("The time to notice, by corruption_seconds,", found, 0)
    return found
