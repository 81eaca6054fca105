"""Composing axes: data, pipeline, context, tensor and expert parallelism in one training run."""

from typing import TYPE_CHECKING

from dlsys import lazy

if TYPE_CHECKING:
    from dlsys.composing_axes.gpt import ComposedGPT
    from dlsys.composing_axes.price import step_bytes
    from dlsys.composing_axes.training import Trainer, train

lazy.exports(__name__)
