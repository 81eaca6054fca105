"""Where rank programs run: simulated in this process, in real processes, or under torchrun."""

from typing import TYPE_CHECKING

from dlsys import lazy

if TYPE_CHECKING:
    from dlsys.world.alpha_beta import Fit, measure, measure_plan
    from dlsys.world.call import Handle
    from dlsys.world.communicator import Communicator
    from dlsys.world.environment import current, from_environment
    from dlsys.world.errors import (
        DeadlockError,
        MismatchError,
        RankError,
        UnwaitedError,
        WorldError,
    )
    from dlsys.world.real.communicator import TorchCommunicator
    from dlsys.world.real.processes import launch
    from dlsys.world.run import Run
    from dlsys.world.simulated.simulation import simulate
    from dlsys.world.span import Span
    from dlsys.world.timeline import Timeline
    from dlsys.world.traffic import CallRecord, Message, Traffic

lazy.exports(__name__)
