"""Where the numbers of expert_parallel.md come from. Each part runs where its section ends."""

from dlsys.hardware import DEVICES, LINKS
from dlsys.notebook.vouch import given, says, sourced
from dlsys.transformer import CATALOGUE

v3 = CATALOGUE["deepseek-v3"]

# %% Expert parallelism (mixtures)

sourced(37, by="deepseek2024")
says("671 billion", v3.parameters() / 1e9)
says("layer has 256", v3.moe.experts)
assert v3.moe.experts_per_token == 8
given(16)
one_expert = 3 * v3.hidden * v3.moe.ffn_hidden
says("layer, 22.5 GB", 2 * v3.moe.experts * one_expert)
given(4096)
says("are 0.9 GB", 2 * 2 * 4096 * v3.moe.experts_per_token * v3.hidden)
says(
    "With 98,304", 2 * v3.moe.experts * one_expert / (2 * 2 * v3.moe.experts_per_token * v3.hidden)
)
says("of 32 neurons", v3.moe.ffn_hidden // 64)
given(64)
says("10.7 TB", 16 * v3.parameters() / 1e12)
assert 134 < 16 * v3.parameters() / DEVICES["h100-sxm"].memory < 135
given(134)
says("of 80 GB", DEVICES["h100-sxm"].memory)

# %% Few of many

says("0.73 of", router_scores[best].softmax(0)[0].item())
says("and 0.27", router_scores[best].softmax(0)[1].item())
says("expert 1", best[0].item())
says("what expert 2", best[1].item())
given(0, 3)
assert not trial.grad.any()

# %% Nobody balances it

losses = [loss for loss, _ in found.values()]
assert max(losses) - min(losses) < 0.2
busiest = {name: max(n) * len(n) / sum(n) for name, (_, n) in found.items() if n}
assert 1.02 < busiest["balanced mixture"] < 0.75 * busiest["mixture"]

# %% What it costs

given(2)
assert volume_ratio(16, 8, 8) / 8 == 1
times = LINKS["nvlink4"].bandwidth / LINKS["infiniband-ndr"].bandwidth
assert round(times) == 9
assert volume_ratio(1, 8, 8) / 8 * times < 1 < volume_ratio(2, 8, 8) / 8 * times
given(64)

# %% What hides it

says("some 4,700", round(width_to_hide(400e12, LINKS["infiniband-ndr"].bandwidth, 8) / 100) * 100)
says("some 500", round(width_to_hide(400e12, LINKS["nvlink4"].bandwidth, 8) / 100) * 100)
says("have 2,048", v3.moe.ffn_hidden)
given(400)
says("50 GB/s", LINKS["infiniband-ndr"].bandwidth)
says("NVLink 450", LINKS["nvlink4"].bandwidth / 1e9)

# %% A worked example: DeepSeek-V3

sourced(160, 50, 64, 4, by="deepseek2024")
shortest = exchange_seconds["once a node, of at most four"]
assert 0.7 < shortest / compute < 0.8
assert 0.6 < shortest / exchange_seconds["each copy on its own"] < 0.7
between = draws[8].times(8).price(h800, 7168, 2, 1).between_nodes
says("line 12 ms", round(1e3 * between / 64 / 50e9))
sourced(20, 132, 16, by="deepseek2024")

# %% The same with PyTorch

given(2.13)

# %% Published mistakes

sourced(56, 14, by="jiang2024")
says("uses 12.9", CATALOGUE["mixtral-8x7b"].active_parameters() / 1e9)
