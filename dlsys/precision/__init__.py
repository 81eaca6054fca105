"""Precision: number formats, what rounding to them does, and training that survives it."""

from typing import TYPE_CHECKING

from dlsys import lazy

if TYPE_CHECKING:
    from dlsys.precision.autocast import Autocast
    from dlsys.precision.block_formats import (
        MXFP4,
        MXFP6_E2M3,
        MXFP6_E3M2,
        MXFP8_E4M3,
        MXFP8_E5M2,
        NVFP4,
        Block,
    )
    from dlsys.precision.blocks import DelayedScaling, Quantized, quantize
    from dlsys.precision.casting import straight_through
    from dlsys.precision.curves import loss_curve, loss_curves, train_on
    from dlsys.precision.draw import draw_errors, draw_losses, draw_number_line
    from dlsys.precision.eight_bit_adam import Adam8bit, dynamic_tree
    from dlsys.precision.explorer import explore
    from dlsys.precision.linear import QuantizedLinear, quantize_linears
    from dlsys.precision.lora import LoRALinear, add_lora
    from dlsys.precision.lost import flushed, stuck
    from dlsys.precision.mixed import MixedPrecision
    from dlsys.precision.mixed_state import MixedState
    from dlsys.precision.narrow import moving_average, softmax, variance
    from dlsys.precision.packed import Packed
    from dlsys.precision.plan import (
        BF16,
        E8M0,
        FP4_E2M1,
        FP6_E2M3,
        FP6_E3M2,
        FP8_E4M3,
        FP8_E5M2,
        FP16,
        FP32,
        INT8,
        TF32,
        Format,
        Integer,
        PowerOfTwo,
    )
    from dlsys.precision.price import block_bytes, expected_signal_to_noise, lora_parameters
    from dlsys.precision.recipe import LINEAR_RECIPES, LinearRecipe
    from dlsys.precision.rounding import decode, encode, round_to
    from dlsys.precision.scaler import LossScaler
    from dlsys.precision.sums import accumulate, matmul, signal_to_noise
    from dlsys.precision.training import train

lazy.exports(__name__)
