"""Where the numbers of memory_wall_more.md come from. Each part runs where its section ends."""

from math import ceil

from dlsys.data_parallel import accumulation_steps
from dlsys.notebook.vouch import sourced

# %% Long contexts change the regime

whole_state = model_state(llama.parameters()).total
longest = activations(replace(llama, sequence=131_072), 1, recompute="selective", dropout=False)
assert SEQUENCES[0] == 256 and SEQUENCES[-1] == 131_072
assert round(whole_state / 1e9) == 108 and round(longest.recomputed, -10) == 1.10e12
assert [float(f"{crossing(flash, 1):.2g}") for flash in (False, True)] == [6200, 22_000]
assert [crossing(True, n) for n in (8, 64)] == [2750, 350]
assert (llama.layers, llama.heads, llama.hidden) == (32, 32, 4096)
x = 32 * 6000 * 4096  # layers x sequence x width
assert kept_of(6000, flash=True).total == 37.5 * x
assert kept_of(6000, flash=False).total == (37.5 + 6000 / 64) * x

# %% Eight devices, launched

assert accumulation_steps(512, 1, ranks=8) == 64
assert ceil(20 * llama.parameters() / (512 * 4096)) == 64_263

# %% A measurement

llama3 = CATALOGUE["llama3-8b"]
of_8b = llama3.parameters()
fewer = [(a - b) * 2**30 / 1e9 for a, b in ((82.4, 67.0), (77.0, 62.0))]
by_law = 16 * of_8b * (1 / 8 - 1 / 128) / 1e9
assert round(by_law, 1) == 15.1 and [round(n, 1) for n in fewer] == [16.5, 16.1]
assert [round(100 * (n / by_law - 1)) for n in fewer] == [10, 7]
sourced(*(tps := (5762, 6667)), by="torchtitan2024")
assert [round(100 * t * 6 * of_8b / R) for t in tps] == [28, 32]
assert [round(100 * t * llama3.training_flops(1) / llama3.sequence / R) for t in tps] == [34, 39]
sourced(96, 500, by="torchtitan2024")
assert round(0.4 * R / (6 * of_8b)) == 8211 and llama3.sequence == 8192
