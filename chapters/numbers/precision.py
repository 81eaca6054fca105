"""Where the numbers of precision.md come from. Each part runs where its section ends."""

import math

from dlsys.hardware import DEVICES
from dlsys.notebook.vouch import sourced
from dlsys.precision import Format
from dlsys.precision.eight_bit_adam import BLOCK

# %% Seconds

h100 = DEVICES["h100-sxm"]
assert [h100.rate(f) / 1e12 for f in ("fp32", "bf16", "fp8")] == [67, 989, 1979]


def step_times(k, y=0.40):
    return 1 / (1 - y + y / k)


assert [round(step_times(k), 2) for k in (h100.rate("fp8") / h100.rate("bf16"), math.inf)] == [
    1.25,
    1.67,
]
fit = [expected_signal_to_noise(f) + 20 * math.log10(f.epsilon) for f in (BF16, FP8_E4M3)]
assert all(abs(c - 13.45) < 0.1 for c in fit)
assert round(expected_signal_to_noise(Format(8, 8)) - expected_signal_to_noise(BF16), 2) == 6.02

# %% Gradients that flush to zero

assert stuck(torch.tensor([0.0079]), torch.tensor([3e-5]), BF16) == 1
assert stuck(torch.tensor([0.0077]), torch.tensor([3e-5]), BF16) == 0
assert (
    round(min(w for w in BF16.values() if 0 < w < 0.02 and BF16.spacing(w) / 2 > 3e-5), 4) == 0.0078
)
assert stuck(weights, torch.full_like(weights, 3e-5), FP16) < 0.003
assert (
    abs(weights.std() * 2500**0.5 - 1) < 0.01
    and FP16.max == 65_504
    and round(BF16.digits, 1) == 2.4
)
assert round(flushed(exact, FP16), 2) == 0.35 and round(BF16.epsilon / 4, 3) == 0.002
assert (gradients(FP16, 2.0**-16) == 0).float().mean() > 0.98
assert LossScaler().growth_interval == 2000 and LossScaler().factor == 2.0**16

# %% Sums that stagnate

assert tenth[-1] == 0.03125 and (tenth == tenth[-1]).nonzero()[0].item() + 1 == 273
assert round(BF16.spacing(0.03125), 5) == 0.00024
assert round(moving_average(torch.zeros(500), 0.999, FP32, start=1.0)[-1].item(), 3) == 0.606
assert accumulate(torch.ones(1000), BF16)[-1] == 256 and total == 4
assert round(1e-4 / FP16.spacing(0.1), 2) == 1.64 and FP16.spacing(0.1) * 8 == BF16.spacing(0.1)
assert round(accumulate(torch.full((1000,), 1e-4), FP32)[-1].item(), 4) == 0.1000

# %% Products in 8 and 4 bits

assert (FP32.min_normal, FP32.largest_exponent, 2**FP32.exponent) == (2.0**-126, 127, 256)
assert FP8_E4M3.max == 448 and (dy == 0.2).sum() == 31 and BF16.mantissa == 7
assert sorted({abs(value) for value in FP4_E2M1.values()}) == [0, 0.5, 1, 1.5, 2, 3, 4, 6]
assert (
    model_state(1, "mixed-adamw-fp32-gradients").total == 18
    and round(quality(bell, FP8_E4M3), 1) == 31.5
)
wild[::4096] *= 10  # a thousandfold
assert round(quality(wild, FP8_E4M3), 1) == 31.5
assert BLOCK == 2048 and len(torch.unique(dy)) == 2 and curves["E4M3, no scales"][-1] > 2.9
assert FP8_E4M3.min_subnormal == 128 * FP8_E5M2.min_subnormal
wide = replace(LINEAR_RECIPES["fp8-current"], scaled=False)  # its gradients are E5M2
others = [*curves.values()][:4] + [loss_curves({"": wide}, text[:600], 20)[""]]
assert all(abs(losses[-1] - curves["FP32"][-1]) < 0.1 for losses in others)

# %% A worked example: fine-tuning 65 billion parameters on one device

frozen = 65e9 * NVFP4.bits / 8
assert model_state(65e9).total == 1.04e12 and round(frozen / 1e9, 1) == 36.6 and NVFP4.bits == 4.5
assert round((frozen + model_state(learning, "all-16bit").total) / 1e9) == 43
assert (
    round(TransformerSpec(80, 8192, 64, 32_000, 2048, 22_016, gated=True).parameters() / 1e9) == 65
)

# %% In practice

sourced(bf16 := 6150, gathered := 7689.5, by_row := 6768, by="torchaofloat8")  # tokens a second
assert (
    round(linear / 1e9, 2) == 6.98
    and round(1e6 / bf16) == 163
    and len(torch.arange(100.0, 1000.0)) == 900
)
assert round(6 * linear / (0.70 * h100.rate("bf16")) * 1e6) == 60
assert round(100 * (gathered / bf16 - 1)) == 25 and round(100 * (by_row / bf16 - 1)) == 10
assert round(100 * (1 / (1 - part / 2) - 1)) == 23 and FP32.mantissa + 1 > 14  # of an accumulator
assert [round(100 * (1 / (1 - part * 0.35 / at) - 1)) for at in (0.6, 0.8)] == [28, 19]

# %% Published mistakes, and the runs that refute them

assert [round(sums[f], 4) for f in ("FP32", "FP16")] == [0.1, 0.1058] and sums["BF16"] == 0.03125
