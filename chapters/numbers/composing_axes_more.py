"""Where the numbers of composing_axes_more.md come from. Each part runs where its section ends."""

from dlsys.notebook.vouch import given, sourced

# %% Published plans beside ours

sourced(16_384, 8, 16, 128, 8_192, 131_072, 41, 405, by="grattafiori2024")
sourced(2_048, 64, 16, by="deepseek2024")
given(1, 3, 18)
assert 1.02 < slower["405B, 131,072 tokens"] < 1.035
assert slower["DeepSeek-V3"] < 1

# %% Rules and the law on many cases

assert sum(costs["playbook"]) < sum(costs["megatron"])

# %% Calibrate it on your cluster

given(40)
assert error(runs, measured, after) < 8 < error(runs, measured, before)
