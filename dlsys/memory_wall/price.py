"""The walls of time and cost: the iron law, device-hours, money, energy, and what cannot be.

Sizes are FLOPs, seconds, joules, dollars. A claim that no hardware can meet raises
`ImpossibleError`: more FLOP/s than the peak, more energy than the power limit allows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dlsys.annotated import checked
from dlsys.checks import at_least, count, fraction, positive
from dlsys.units import HOUR, format_flops

JOULES_PER_KWH = 3.6e6


class ImpossibleError(ValueError):
    """A claim that breaks a physical limit; its text names the claim and the limit."""


@checked
def training_seconds(
    flops: float, peak_flops: float, utilization: float = 1.0, devices: int = 1
) -> float:
    """The iron law of training: T = FLOPs / (devices x peak FLOP/s x utilization).

    Args: `flops` of the whole run (6 x parameters x tokens for a dense model); `peak_flops`, one
    device's dense FLOP/s; `utilization`, the fraction of it that is reached, above 0 and at most
    1. Returns seconds. Raises ImpossibleError for a utilization above 1, ValueError for other
    values out of range.
    """
    at_least("flops", flops, 0)
    positive("peak_flops", peak_flops)
    devices = count("devices", devices)
    positive("utilization", utilization)
    if utilization > 1:
        raise ImpossibleError(
            f"A utilization of {utilization:.3g} is above 1: no device does more than its peak."
        )
    return flops / (devices * peak_flops * utilization)


@checked
def utilization(flops: float, seconds: float, peak_flops: float, devices: int = 1) -> float:
    """The fraction of peak that a claim implies: FLOPs / (seconds x devices x peak FLOP/s).

    Turns any claimed speed into a check: FLOPs of a step and its milliseconds, FLOPs of a sample
    and 1 / (samples per second). Raises ImpossibleError where the fraction is above 1.
    """
    at_least("flops", flops, 0)
    positive("seconds", seconds)
    positive("peak_flops", peak_flops)
    devices = count("devices", devices)
    fraction = flops / (seconds * devices * peak_flops)
    if fraction > 1:
        raise ImpossibleError(
            f"{format_flops(flops / seconds)}/s is {fraction:.3g} times the peak of {devices} "
            f"device{'s' if devices > 1 else ''} at {format_flops(peak_flops)}/s each; it takes "
            f"at least {math.ceil(fraction * devices)} of them, or {fraction:.3g} times as long."
        )
    return fraction


@checked
def gpu_hours(seconds: float, devices: int = 1) -> float:
    """Device-hours, what clusters are billed in: devices x seconds / 3600."""
    at_least("seconds", seconds, 0)
    devices = count("devices", devices)
    return devices * seconds / HOUR


@dataclass(frozen=True)
class RentOrBuy:
    """Dollars to rent for one run, dollars to buy, and after how much use buying is cheaper."""

    rent: float
    buy: float
    break_even_runs: float
    break_even_hours: float

    @checked
    def break_even_days(self, load: float) -> float:
        """Days on the calendar until buying is cheaper, if devices are busy `load` of the time.

        break_even_hours / (24 load): a steady load of 1 pays soonest; bursts with idle weeks
        between them may not pay before the devices are outdated. Raises ValueError outside (0, 1].
        """
        positive("load", load)
        fraction("load", load)
        return self.break_even_hours / 24 / load


@checked
def rent_or_buy(
    hours: float, dollars_per_hour: float, devices: int, dollars_per_device: float
) -> RentOrBuy:
    """Compare renting `devices` devices for one run with buying them.

    rent = device-hours x price; buy = devices x price of one; buying pays after buy / rent runs,
    which is `break_even_hours` = price of a device / hourly price of wall-clock use. Power, hosting
    and staff of the bought ones are left out, so the true break-even is later.

    Args: `hours`, DEVICE-hours of one run; prices in dollars. Raises ValueError for values <= 0.
    """
    positive("hours", hours)
    positive("dollars_per_hour", dollars_per_hour)
    positive("dollars_per_device", dollars_per_device)
    devices = count("devices", devices)
    rent, buy = hours * dollars_per_hour, devices * dollars_per_device
    return RentOrBuy(rent, buy, buy / rent, dollars_per_device / dollars_per_hour)


@dataclass(frozen=True)
class Waste:
    """What a utilization below the achievable one loses: the fraction, and it in dollars.

    `more_training` is how much more the same budget would train at the achievable utilization.
    """

    fraction: float
    dollars: float
    more_training: float


@checked
def waste(achieved: float, achievable: float, budget: float) -> Waste:
    """The part of `budget` (dollars) lost at utilization `achieved` instead of `achievable`.

    fraction = 1 - achieved / achievable: relative to what good software reaches on the same
    hardware, not to the peak, which nothing reaches. Raises ImpossibleError where `achievable` is
    above 1 or below `achieved`.
    """
    positive("achieved", achieved)
    at_least("budget", budget, 0)
    positive("achievable", achievable)
    if not achieved <= achievable <= 1:
        raise ImpossibleError(
            f"A utilization of {achieved:g} where {achievable:g} is achievable: the first is at "
            "most the second, and that at most 1."
        )
    fraction = 1 - achieved / achievable
    return Waste(fraction, fraction * budget, achievable / achieved - 1)


@dataclass(frozen=True)
class Energy:
    """Energy in joules, and what it means in kilowatt-hours, dollars and carbon dioxide."""

    joules: float

    @property
    def kwh(self) -> float:
        """Kilowatt-hours."""
        return self.joules / JOULES_PER_KWH

    @checked
    def dollars(self, dollars_per_kwh: float) -> float:
        """Price of the electricity at `dollars_per_kwh`."""
        at_least("dollars_per_kwh", dollars_per_kwh, 0)
        return self.kwh * dollars_per_kwh

    @checked
    def carbon_kg(self, kg_per_kwh: float) -> float:
        """Kilograms of carbon dioxide on a grid that emits `kg_per_kwh` for each kilowatt-hour."""
        at_least("kg_per_kwh", kg_per_kwh, 0)
        return self.kwh * kg_per_kwh


@checked
def energy(
    seconds: float,
    devices: int,
    watts: float,
    *,
    pue: float,
    hosts: int = 0,
    host_watts: float = 0.0,
    tdp: float | None = None,
) -> Energy:
    """Energy of a run: seconds x (devices x watts + hosts x host_watts) x PUE.

    `watts` is one device's draw and `tdp`, where given, the most it can be (`Device.tdp`);
    `host_watts` is one host's draw besides its devices.
    PUE, power usage effectiveness, is what the building takes for each watt that reaches the
    computers: 1.0 counts the computers alone, good data centres have 1.1, and it must be said.
    Raises ImpossibleError for a PUE below 1 or watts above the TDP, ValueError for negative values.
    """
    at_least("seconds", seconds, 0)
    devices = count("devices", devices)
    at_least("watts", watts, 0)
    hosts = count("hosts", hosts, 0)
    at_least("host_watts", host_watts, 0)
    at_least("pue", pue, 0)
    if pue < 1:
        raise ImpossibleError(
            f"A PUE of {pue!r} is below 1: a building cannot take less power than its computers."
        )
    if tdp is not None:
        positive("tdp", tdp)
    if tdp is not None and watts > tdp:
        raise ImpossibleError(
            f"{watts:g} W is above the {tdp:g} W that a device can draw for long."
        )
    return Energy(seconds * (devices * watts + hosts * host_watts) * pue)


@checked
def check_energy(
    claimed: Energy,
    seconds: float,
    devices: int,
    tdp: float,
    *,
    pue: float,
    hosts: int = 0,
    host_watts: float = 0.0,
) -> float:
    """The claimed energy as a fraction of the most that the hardware can draw in that time.

    Most = seconds x (devices x TDP + hosts x host_watts) x PUE (see `energy`; `tdp` in watts).
    Raises ImpossibleError where the claim is above it.
    """
    positive("seconds", seconds)
    positive("tdp", tdp)
    most = energy(seconds, devices, tdp, pue=pue, hosts=hosts, host_watts=host_watts)
    fraction = claimed.joules / most.joules
    if fraction > 1:
        raise ImpossibleError(
            f"{claimed.kwh:,.0f} kWh is {fraction:.3g} times the {most.kwh:,.0f} kWh that "
            f"{devices} devices of {tdp:g} W can draw in {seconds / HOUR:,.4g} hours at a PUE of "
            f"{pue:g}; each would draw {fraction * tdp:,.0f} W."
        )
    return fraction
