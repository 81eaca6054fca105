"""Fault tolerance: checkpoints that survive what a machine can do, and how often to write one."""

from typing import TYPE_CHECKING

from dlsys import lazy

if TYPE_CHECKING:
    from dlsys.resilience.background import AsyncSaver
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
    from dlsys.resilience.faults import save_manifest_first
    from dlsys.resilience.laws import (
        asynchronous_pays,
        best_share,
        best_spares,
        corruption_pays,
        devices_at_waste,
        two_levels_pay,
        waiting_share,
        wasted_share,
    )
    from dlsys.resilience.order import SampleOrder
    from dlsys.resilience.plan import FileEntry, Manifest, Read, Region, TensorEntry
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
    from dlsys.resilience.refused import CheckpointError
    from dlsys.resilience.replicas import compare_replicas
    from dlsys.resilience.restoring import restore
    from dlsys.resilience.rotation import rotate
    from dlsys.resilience.running import SPENT_ON
    from dlsys.resilience.saving import save
    from dlsys.resilience.simulation import Found, SimulatedRun, Stretch, search, simulate_run
    from dlsys.resilience.state import PerRank, Shard
    from dlsys.resilience.training import Trainer
    from dlsys.resilience.troubles import Corruption, Maintenance, Spares, Stragglers, Weibull
    from dlsys.resilience.verifying import Checkpoint, latest, verify

lazy.exports(__name__)
