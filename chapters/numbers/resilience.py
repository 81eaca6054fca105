"""Where the numbers of resilience.md come from. Each part runs where its section ends."""

from dlsys.hardware import dgx_h100
from dlsys.memory_wall import RECIPES
from dlsys.notebook.vouch import sourced
from dlsys.resilience import best_share

# %% Young's interval

assert round(m / 3600, 2) == 3.05 and round(young / 60, 1) == 19.1
exact = shares(best, m, 300).goodput
assert all(
    abs(one.goodput - shares(one.cadence, m, 300).goodput) < 5 * one.standard_error for one in found
)
assert round(best.interval / 60) == 18 and round(young / 60) == 19
double, waste = shares(Cadence(2 * young, 60), m).wasted, shares(Cadence(young, 60), m).wasted
assert 1.2 < double / waste < 1.27 and 0.095 < waste < 0.105
assert int(1000 * (2 * 60 / m) ** 0.5 + 0.5) / 10 == 10.5
assert round(1 / failures_a_year(50_000 * 3600)) == 6 and (sizes[0], sizes[-1]) == (64, 131_072)
left = {
    n: [best_share(n, 0.17, x, 300)[1].goodput for x in (3, 60, 600)] for n in (16_384, 131_072)
}
assert [round(x, 2) for x in left[16_384]] == [0.95, 0.88, 0.69]
assert [round(x, 2) for x in left[131_072]] == [0.76, 0.6, 0.27]
assert best_share(131_072, 0.17, 3, 300)[1].restarting > 0.7 * (1 - left[131_072][0])

# %% Less to lose

waste = shares(Cadence(young, 60), m).wasted
spares = best_spares(2048, 2 * 86_400, m)
assert round(2 * 86_400 / m) == 16 and spares == 29 and 3 < (spares - 16) / 4 < 4
wasted = shares(behind, m).wasted
assert 0.3 < wasted / waste < 0.37 and round(100 * 60 / behind.interval) == 18
assert alone.goodput < two.goodput < copied.goodput < soon.goodput

# %% A worked example: Llama 3 on 16,384 devices

sourced(2e12, 7e12, 0.90, 30.1, by="grattafiori2024")
saved, of_node = RECIPES["mixed-adamw"], dgx_h100(1).devices_per_node
assert (saved.weights, saved.master, saved.moments) == (
    2,
    4,
    4 + 4,
) and llama.devices // of_node == 2048
assert [round(state_bytes(405e9, 14) / rate, -1) for rate in (10e9, 100e9)] == [570, 60] and round(
    write
) == 3
assert round(llama.days * 24 * llama.devices / llama.interruptions, -3) == 51_000
assert round(state_bytes(405e9, 14) / 1e12, 1) == 5.7 and round(llama.mtbf_seconds / 3600, 1) == 3.1
assert (
    llama.causes["faulty GPU"] == 148
    and round(100 * 148 / llama.interruptions, 1) == 35.3
    and llama.days == 54
)
assert round(llama.failures_a_device_year, 2) == 0.17
saving = shares(best_cadence(write, llama.mtbf_seconds), llama.mtbf_seconds).wasted
assert (
    round(100 * saving) == 2
    and llama.interruptions == 419
    and round(100 * (1 - 0.90 - saving)) == 8
)
assert round(0.08 * llama.mtbf_seconds / 60) == 15
