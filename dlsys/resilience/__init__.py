"""Resilience: failures of long runs, the checkpoints that survive them, and how often to save."""

from typing import TYPE_CHECKING

from dlsys import lazy

if TYPE_CHECKING:
    # Cadence: when to save, and what failures leave of a run.
    from dlsys.resilience.detect import (
        Majority,
        Slow,
        false_alarms,
        majority,
        outliers,
        step_times,
        stragglers,
        waited_for,
    )
    from dlsys.resilience.draw import draw_devices, draw_intervals, draw_month
    from dlsys.resilience.explorer import explore
    from dlsys.resilience.failures import (
        RUNS,
        Part,
        PublishedRun,
        failures_a_year,
        mtbf,
        yearly_failures,
    )
    from dlsys.resilience.price import (
        Cadence,
        Disk,
        Shares,
        best_cadence,
        daly_interval,
        exact_interval,
        optimal_interval,
        shares,
        state_bytes,
    )
    from dlsys.resilience.replicas import compare_replicas
    from dlsys.resilience.running import SPENT_ON
    from dlsys.resilience.scaling import (
        asynchronous_pays,
        best_share,
        best_spares,
        corruption_pays,
        devices_at_waste,
        two_levels_pay,
        waiting_share,
        wasted_share,
    )
    from dlsys.resilience.simulation import Found, SimulatedRun, Stretch, search, simulate_run
    from dlsys.resilience.troubles import (
        Corruption,
        Maintenance,
        Spares,
        Stragglers,
        Weibull,
    )

lazy.exports(__name__)
