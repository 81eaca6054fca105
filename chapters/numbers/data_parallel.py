"""Where the numbers of data_parallel.md come from. Each part runs where its section ends."""

from dlsys.data_parallel import BatchTradeoff
from dlsys.hardware import dgx_h100
from dlsys.memory_wall import activations, model_state
from dlsys.notebook.vouch import sourced
from dlsys.transformer import CATALOGUE, TransformerSpec

ours = TransformerSpec(28, 3072, 24, 32_000, 4096, 8192, kv_heads=8, gated=True, norm="rms")
keeps = {
    (spec.layers, b): activations(spec, b, flash=True, dropout=False).everything / 1e9
    for spec, b in ((ours, 4), (CATALOGUE["llama2-7b"], 1))
}


# %% From one all-reduce a gradient to overlap

assert [round(ms) for ms in took.values()] == [189, 663, 261, 285, 212]
assert slow["link"].latency == 1e-3 and slow["link"].bandwidth == 20e6

# %% How many tokens hide it

for link, tokens in ((ethernet, 27_692), (nvlink, 769)):
    law = 7 / 8 * 0.40 * h200.rate("bf16") / link.bandwidth
    assert round(tokens_that_hide(3e9, link)) == round(law) == tokens
assert nics.bandwidth == 400e9 and infiniband.bandwidth == 50e9
assert h200.rate("bf16") == 989e12 and round(512 / 4 * compute * 100_000 / 86400) == 110
assert round(step_bytes(6e9, 1000), -8) == 12e9
assert round(compute, 2) == 0.75 and len(plan.buckets) == 5
assert one.hidden_fraction < 1e-9 and one.seconds > 2 * compute
assert round(8 * compute / one.seconds, 1) == 3.8
assert round(eight.hidden_fraction, 2) == 0.52
assert round(inside.hidden_fraction, 4) == 7 / 8
assert one.communication_seconds > backward  # the network wall
assert backward == backward_seconds(3e9, 16_384) and 90 < 512 / 4 * compute < 100
assert (
    max(tokens_that_hide(3e9, link, n) for link, n in ((nvlink, 8), (nics, 64), (infiniband, 8)))
    < 16_384
)

# %% How small a bucket may be

sourced(25, by="li2020"), sourced(320, 350, by="benallal2025")
assert round(nics.latency * 1e6, 1) == 4.7
good = [size for size, x in tradeoff.items() if x.seconds < 1.01 * backward]
assert min(good) < 8e6 and max(good) >= 750e6
there = bucket_tradeoff(6e9, backward, 64, nics, bucket_bytes=[1e6, 25 * 2**20])
assert 7 < there[1e6].seconds / backward < 7.5 and there[25 * 2**20].seconds < 1.01 * backward

# %% What it does nothing for

assert round(ours.parameters() / 1e9) == 3 and model_state(3e9).total == 48e9
assert [round(x) for x in keeps.values()] == [51, 21] and model_state(3e9).total + 1e9 * keeps[
    28, 4
] < h200.memory
assert model_state(7e9).total / 1e9 == 112 and h200.memory == 141e9
assert (model_state(1).optimizer, model_state(1).total) == (12, 16)
assert round((model_state(7e9).total + 1e9 * keeps[32, 1]) / h200.memory, 2) == 0.94

assert [x.item() for x in groupings] == [0, 2**-24] and first_step(groupings[0], 1e-8) == 0
assert round(100 * first_step(tiny, 1e-8)) == 86 and round(100 * first_step(tiny, 1e-5), 1) == 0.6

# %% How far it scales

assert round(256 * 4096 / tokens_that_hide(3e9, ethernet, ranks=32)) == 34
last = {name: [round(s.speedup) for s in curve[-3:]] for name, curve in curves.items()}
assert last["strong, eight NICs, 100 MB"] == [64, 127, 200]
assert last["strong, eight NICs, 25 MiB"] == [64, 111, 74]
assert [round(s.speedup) for s in curves["strong, Ethernet, 100 MB"][-3:]] == [35, 34, 29]
[levels] = strong_scaling([256], work, 6e9, dgx_h100(256 // 8), "hierarchical", small)
assert round(levels.speedup) == 255 and ranks[-1] == 512

for (near, far), least, most in (((0.6, 2.7), 247, 255), ((3.4, 14), 74, 200)):
    hop = replace(nics, latency=1e-6 * (7 * near + far) / 8)
    found = [
        strong_scaling([256], work, 6e9, hop, "ring", size)[0].speedup for size in (small, 100e6)
    ]
    assert [round(x) for x in found] == [least, most]
flat = [round(s.efficiency, 2) for s in curves["weak, Ethernet, not hidden"]]
assert flat[4] == 0.45 and flat[-1] == 0.43
fall = [round(s.efficiency, 2) for s in curves["weak, eight NICs, 25 MiB"]]
assert fall[7] == 1 and fall[-1] == 0.54

# %% How large a batch pays

trade = BatchTradeoff(least_steps=10_000, least_samples=10_000_000)
assert trade.critical_batch == 1000 and round(trade.samples(4000) / trade.samples(1000), 1) == 2.5
assert round(trade.steps(1000) / trade.steps(4000), 1) == 1.6

# %% A worked example: 3 billion parameters on eight devices

assert round(one.communication_seconds, 2) == 0.84
assert rows[2][2:] == ["3.76", "5.36"] and rows[3][2:] == ["7.47", "7.76"]
assert round(float(rows[3][3]), 1) == 7.8
assert 14 < 110 / float(rows[3][3]) < 14.5

left = {name: replace(setting.choice, model=name).row().efficiency for name in CATALOGUE}
assert round(left["mixtral-8x7b"], 2) == 0.13 and round(left["deepseek-v3"], 2) == 0.03
mixtures = [left.pop(name) for name, spec in CATALOGUE.items() if spec.moe]
assert max(mixtures) == replace(setting.choice, model="mixtral-8x7b").row().efficiency < 0.14
assert all(abs(x - 0.41) < 0.015 for x in left.values())

# %% Where it breaks

assert round(2 * tokens_that_hide(3e9, nics, 64)) == 1_947
sourced(96, 384, by="pytorch106395")
assert 0.003 < errors[8] < 0.005 and 4 < errors[256] / errors[8] < 7

# %% When something is wrong

assert round(speeds[256] / speeds[8], 2) == 0.39 and lost[8] == 0
assert all(abs(lost[n] / 0.11 - 1) < 0.08 for n in (16, 32, 64, 128))
assert all(prices[n] > 0.99 * speeds[8] for n in speeds if n <= 64)
assert round(1 - speeds[64] / speeds[8], 2) == 0.23

assert [deal[4] for deal in deals] == ["40%", "39%", "40%", "33%", "40%", "16%"]
priced_days, days = [float(deal[5]) for deal in deals], [float(deal[6]) for deal in deals[::2]]
assert (
    priced_days[4] == 0.9
    and days[1:] == [3.7, 1.2]
    and round(0.40 * compute * 100_000 / 86_400 / days[2], 2) == 0.29
)
assert 1.9 < priced_days[3] / priced_days[5] < 2.1 and round(1024 * ours.sequence / 1e6, 1) == 4.2
assert round(256 * days[2] / (64 * days[1]), 1) == 1.3 and (days[1] / days[2]) ** 0.5 > 1.7
assert (
    111 == round((model_state(3e9).total + 4 * 3e9) / 1e9 + keeps[28, 4]) < 0.9 * h200.memory / 1e9
)
full = overlap([200e6] * 60, backward, 256, nics, forward_seconds=forward)  # in 32 bits
assert 0.40 * compute / full.seconds > 0.39
assert 2 * speeds[128] / speeds[64] + 0.01 > 1.7  # the rule stops there
