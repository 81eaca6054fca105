"""Where the numbers of expert_parallel_more.md come from. Each part runs where its section ends."""

from dlsys.hardware import DEVICES
from dlsys.notebook.vouch import given, says, sourced

# %% A choice among few nodes

given(1000)
sourced(3, 256, by="deepseek2024")
assert reached[4] < reached[8]

# %% The hours of DeepSeek-V3

sourced(3, 14.8, 2.66, 2.79, by="deepseek2024")
given(400)
assert 2.5 < hidden / 1e6 < 2.66
says("some 770 TFLOP/s", round(rate * hidden / (2.66e6 - (exposed - hidden)) / 1e13) * 10)
says("peak of 1,979", DEVICES["h100-sxm"].rate("fp8") / 1e12)
assert 1.45 < exposed / hidden < 1.55

# %% What a faster exchange saves

sourced(14_796, 9_930, 8, 33, 3, 30, 200, by="torchtitandeepep")
assert 0.3 < saved * 9_930 < 0.35
assert 6e-6 < wire < 8e-6

# %% Balance on one rank

given(0, 1)
assert abs(all_ranks - 1) < 1e-6
assert own > 1.5

# %% Tables that no token multiplies

given(4096, 64, 26, 128)
assert asked.dispatch < answered.combine / 5
