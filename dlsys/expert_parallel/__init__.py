"""Expert parallelism: a mixture of experts whose experts lie on different ranks."""

from typing import TYPE_CHECKING

from dlsys import lazy

if TYPE_CHECKING:
    from dlsys.expert_parallel.gpt import MixtureGPT
    from dlsys.expert_parallel.gradients import average_gradients
    from dlsys.expert_parallel.layer import MoE

lazy.exports(__name__)
