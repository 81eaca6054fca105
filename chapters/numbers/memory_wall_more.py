"""Where the numbers of memory_wall_more.md come from. Each part runs where its section ends."""

from math import ceil

from dlsys.data_parallel import accumulation_steps

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
