"""Where the numbers of composing_axes_more.md come from. Each part runs where its section ends."""

from dlsys.notebook.vouch import given, sourced

# %% Published plans beside ours

sourced(16_384, 8, 16, 128, 8_192, 131_072, 41, 405, by="grattafiori2024")
sourced(2_048, 64, 16, by="deepseek2024")
given(1, 3)
assert 1.8 < slower["DeepSeek-V3"] < 2.1
big = searches["DeepSeek-V3"].where(**published["DeepSeek-V3"])
assert sum(big.held.values()) > 80e9 and theirs.recompute

# %% Seconds, money and joules

given(70, 512)
assert found.machine.cluster.device.tdp == 700
paid = {nodes: nodes * best.seconds for nodes, (best, _, _) in sizes.items()}
assert max(sizes) == 32 * min(sizes) and round(100 * (paid[128] / paid[4] - 1)) == 4
for nodes in (4, 16, 64):
    fastest, frugal, joules = sizes[nodes]
    assert fastest.recompute and not frugal.recompute and joules.min() < 0.99 * joules[0]

# %% Rules and the law on many cases

assert sum(costs["playbook"]) < sum(costs["megatron"])

# %% Calibrate it on your cluster

given(40)
assert error(runs, measured, after) < 8 < error(runs, measured, before)

# %% The program at full width

sourced(70, 128, 80, 12, 2.6, 405, 16, 23, by="bench/README.md")
