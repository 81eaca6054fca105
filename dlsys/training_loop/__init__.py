"""What one device does all day: the iron law, the step, optimizers, schedules, accumulation."""

from typing import TYPE_CHECKING

from dlsys import lazy

if TYPE_CHECKING:
    from dlsys.training_loop.adafactor import Adafactor
    from dlsys.training_loop.clipping import clip_or_refuse, global_norm
    from dlsys.training_loop.counting import count_flops, count_update
    from dlsys.training_loop.draw import draw_batches, draw_losses, draw_schedules, draw_step
    from dlsys.training_loop.explorer import explore
    from dlsys.training_loop.galore import GaLore
    from dlsys.training_loop.laws import (
        Extremes,
        fit_extremes,
        update_share,
        update_tokens,
        useful_micro_batches,
    )
    from dlsys.training_loop.muon import Muon, orthogonal
    from dlsys.training_loop.noise import gradient_squares
    from dlsys.training_loop.optimizers import SGD, AdamW, RMSprop
    from dlsys.training_loop.plan import (
        Action,
        IronLaw,
        StepPlan,
        Technique,
        micro_batch_sizes,
        step_plan,
    )
    from dlsys.training_loop.price import (
        OPTIMIZERS,
        model_state_bytes,
        shapes_of,
        state_bytes,
        update_bytes,
    )
    from dlsys.training_loop.problems import Bigram, Quadratic, descend
    from dlsys.training_loop.schedules import (
        cosine,
        exponential,
        linear,
        linear_rule,
        square_root_rule,
        step_decay,
        warm_up,
        warm_up_cosine,
        warm_up_stable_decay,
    )
    from dlsys.training_loop.text import (
        byte_tokens,
        corrupt,
        hold_back,
        in_order,
        shuffled,
        windows,
    )
    from dlsys.training_loop.training import (
        Record,
        decay_groups,
        evaluate,
        evaluation_share,
        learn_text,
        steps_to,
        train,
    )
    from dlsys.training_loop.training_step import Schedule, run_step
    from dlsys.training_loop.update_rule import held_bytes

lazy.exports(__name__)
