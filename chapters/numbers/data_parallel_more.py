"""Where the numbers of data_parallel_more.md come from. Each part runs where its section ends."""


# %% Measure the noise scale

assert 2 < noise[0] < noise[1] < noise[2] < 30
fit = [2 * 10**8 / loss ** (1 / 0.21) for loss in (3, 2)]
assert [round(tokens / 1e6, 1) for tokens in fit] == [1.1, 7.4]

# %% Send less

end = {k: run.results[0][-1] / fits["all"].results[0][-1] for k, run in fits.items()}
assert end.pop("top 5 %, no feedback") > 2 and max(end.values()) < 1.2
assert sent["8 bits"] < 0.3 * sent["all"] and sent["PowerSGD"] < 0.11 * sent["all"]

# %% Send less often

each, eighth = (local[every].traffic.by_kind()["all_reduce"] for every in (1, 8))
assert each == fits["all"].traffic.by_kind()["all_reduce"] == 8 * eighth
assert round(fits["all"].results[0][0]) == 81
assert round(local[8].results[0] / local[1].results[0], 2) == 1.05

# %% Copies of the model, or cuts through it

winners = {b: (1, 2, 4, 8, 16)[row.index(max(row))] for b, row in grid.items()}
assert (
    round(llama.parameters() / 1e9, -1) == 70
    and winners == {64: 8, 256: 4, 1024: 2}
    and all(row[4] < row[3] for row in grid.values())
)
assert [round(100 * left(4, 256, group)) for group in (8, 128)] == [83, 83]
