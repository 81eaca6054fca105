"""Fault tolerance: checkpoints that survive what a machine can do, and how often to write one."""

from typing import TYPE_CHECKING

from dlsys import lazy

if TYPE_CHECKING:
    from dlsys.resilience.background import AsyncSaver
    from dlsys.resilience.faults import save_manifest_first
    from dlsys.resilience.order import SampleOrder
    from dlsys.resilience.plan import FileEntry, Manifest, Read, Region, TensorEntry
    from dlsys.resilience.refused import CheckpointError
    from dlsys.resilience.restoring import restore
    from dlsys.resilience.rotation import rotate
    from dlsys.resilience.saving import save
    from dlsys.resilience.state import PerRank, Shard
    from dlsys.resilience.training import Trainer
    from dlsys.resilience.verifying import Checkpoint, latest, verify

lazy.exports(__name__)
