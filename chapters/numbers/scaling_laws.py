"""Where the numbers of scaling_laws.md come from. Each part runs where its section ends."""

from math import log, prod

from dlsys.notebook.vouch import sourced
from dlsys.scaling_laws.counting import OMEGA
from dlsys.scaling_laws.fitting import FOLLOWED, STARTS

# %% When the data runs out

assert 0.02 < gopher - chinchilla < 0.03 and law.beta > law.alpha
assert round(1 - (chinchilla - law.E) / (gopher - law.E), 2) == round(1 / 7, 2) and (
    law.alpha,
    law.beta,
) == (0.3478, 0.3658)
assert (
    round(large.N / small.N, 2) == 3.26
    and runs["Gopher"].flops > 5e23
    and {round(row.D / row.N) for row in CHINCHILLA_TABLE} <= {20, 21, 22}
)
assert (
    round(runs["Chinchilla"].flops / runs["Gopher"].flops - 1, 2) == 0.17
    and 1.18 < compute_wasted(law, 2) < 1.2
)
assert round(6 * 280e9 * 300e9 / law.flops_for(gopher), 1) == 2.0 and round(law.exponent, 2) == 0.51
ratio = [each.optimal(5.76e23).tokens_per_parameter for each in (printed, law)]
assert round(ratio[0] / ratio[1]) == 3 and (theirs.alpha, theirs.beta) == (0.336, 0.283)
terms = [theirs.A * n**-theirs.alpha for n in (13e9, life.N)]
shares = [term / (theirs.loss(13e9, D) - theirs.E) for term in terms]
assert [round(share, 2) for share in shares] == [0.46, 0.56] and round(
    1 + 2e12 / 3 / life.D, 2
) == 1.53
assert (
    round(shares[1] / shares[0], 2) == 1.23
    and round(13 / (shares[1] / shares[0]) ** (1 / theirs.alpha)) == 7
    and round(life.D / 1e12, 2) == 1.25
)

for k in (0.25, 0.5, 2, 4):
    assert abs(compute_wasted_near(law, k) / compute_wasted(law, k) - 1) < 0.04
assert 1.9 < compute_wasted(law, 4) < compute_wasted_near(law, 4) < 2
slope = (law.alpha + law.beta) / 2
assert round(slope, 2) == 0.36 and round(log(compute_wasted_near(law, 2)) / slope, 2) == 0.48
assert round(half.tokens, 1) == 2.5 and 1.2 < half.flops < 1.3 and 1 / 7 < least_factor(law) < 1 / 6
assert (
    round(compute_wasted(printed, 10), 1) == 4.4 and round(compute_wasted_near(law, 10), 1) == 6.6
)
assert round(life.N / 1e9) == 7 and round(1 - life.flops / before, 2) == 0.17
assert effective_tokens(4, 1) > 0.93 * 4 and effective_tokens(1000, 1) < 1.1 * effective_tokens(
    40, 1
)
assert (
    round(effective_tokens(1e9, 1) - 1, 1) == 15.4
    and round(DataConstrainedLaw(web, 1e12).R_N, 1) == 5.3
)

# %% Five bad points

off = {name: one.optimal(5.76e23).N / true for name, (one, _) in found.items()}
assert (
    all(abs(off[n] - 1) < 0.04 for n in ("parabolas", "all at once"))
    and 190 < 5.76e23 / max(runs.flops) < 200
)
spread = {
    n: interval([x.optimal(5.76e23).N / true for x in many]) for n, (_, many) in found.items()
}
assert all(
    0.8 < spread[n][0] < 0.87 and 1.13 < spread[n][1] < 1.23 for n in ("parabolas", "all at once")
)
assert 0.65 < spread["envelope"][0] < 0.7
assert round(sum(curves().flops) / sum(runs.flops)) == 65
assert (
    all(round(100 * compute_wasted(law, k)) == 101 for k in (1 / 1.2, 1.2))
    and max(runs.flops) < 3.1e21
)
assert round(found["parabolas"][0].exponent, 2) == 0.51 and (prod(map(len, STARTS)), FOLLOWED) == (
    4_500,
    100,
)
assert (
    len(all_runs.N) == 245
    and round(bad.B / good.B) == 6
    and round(1 - len(without.N) / len(all_runs.N), 2) == 0.02
)
above = [all_runs.loss[k] / law.loss(all_runs.N[k], all_runs.D[k]) - 1 for k in range(240, 245)]
assert round(min(above), 2) == 0.08 and round(max(above), 2) == 0.24

assert (
    round(bad.beta - good.beta, 3) == 0.086
    and round(10 ** (9 * round(bad.beta - good.beta, 3)), 1) == 5.9
)
assert (round(good.beta, 2), round(bad.beta, 2)) == (0.35, 0.44) and max(
    all_runs.D[240:]
) < 1e9 < min(without.D)
loud = [
    second(isoflop_runs(law, [6e18, 3e19, 1e20, 6e20, 3e21], noise=2 * 0.003, skew=1.3, seed=k))
    for k in range(200)
]
least, most = interval([x.optimal(5.76e23).N / true for x in loud])
assert (
    round(100 * (1 - least)) == 37
    and round(100 * (compute_wasted(law, least) - 1)) == 8
    and most < 1.37
)
wide, narrow = ([x.exponent for x in clouds[n]] for n in ("and five bad ones", "240 runs"))
assert (round(median(narrow), 2), round(median(wide), 2), round(law.exponent, 2)) == (
    0.51,
    0.54,
    0.51,
) and len(wide) == 300
assert (
    mean(x > law.exponent for x in wide) > 0.95
    and 0.4 < mean(x > law.exponent for x in narrow) < 0.6
)
high_B = {name: max(each.B for each in laws) for name, laws in clouds.items()}
assert high_B["and five bad ones"] > 5 * high_B["240 runs"]

# %% A sweep of our own

assert sweep.held_out / (sweep.tokens + sweep.held_out) < 0.11
dearest = max(row.flops for row in sweep.of("iso_flop"))
assert (
    round(back.flops / dearest) == 18
    and min(N) < 3200
    and 0.02 < said / back.loss - 1 < 0.03
    and low < back.loss < high
)
assert [round(x - own.E, 2) for x in (said, back.loss)] == [1.04, 0.97]
assert round(100 * ((said - own.E) / (back.loss - own.E) - 1), 1) == 7.5
gains = [x.flops_for(back.loss) / x.flops_for(said) for x in resampled]
assert (
    [round(x, 1) for x in interval(gains)] == [1.4, 2.1]
    and len(gains) == 300
    and round(back.parameters / max(N), 1) == 3.5
)
assert back.run.tokens / max(D) < 1.002
sourced(smallest := 44e6, by="hoffmann2022, table A9")  # parameters
assert (max(N), round(min(D), -3), round(max(D), -3)) == (288_096, 8e3, 239e3) and smallest / min(
    N
) > 1e4
assert {round(r.flops / 1e9) for r in sweep.of("iso_flop")} == {2, 4, 9, 20, 40, 80}
assert all(abs(r.run.learning_rate - 0.08 / r.run.hidden**0.5) < 1e-4 for r in sweep.of("iso_flop"))

ends = [
    min((r.loss, r.parameters) for r in sweep.of("iso_flop") if round(r.flops / 1e9) == c)[1]
    for c in (40, 80)
]
assert ends == [
    min(r.parameters for r in sweep.of("iso_flop") if round(r.flops / 1e9) == c) for c in (40, 80)
]
assert (
    len(N) == 31
    and sum(d < n for n, d in zip(N, D)) == 16
    and 0.2 < back.run.tokens / back.parameters < 0.25
)
assert round(own.flops_for(back.loss) / dearest, 1) == 6.5 and (
    round(max(N) / 1e3),
    round(max(D) / 1e3),
) == (288, 239)
errors = [abs(own.loss(n, d) / x - 1) for n, d, x in zip(N, D, losses)]
seeds = {}
for row in (*sweep.of("iso_flop"), *sweep.of("seed")):
    seeds.setdefault((row.run.hidden, row.run.tokens), []).append(row.loss)
apart = sorted(stdev(x) / mean(x) for x in seeds.values() if len(x) == 3)
assert [round(100 * x, 1) for x in apart] == [0.2, 0.5, 0.9] and round(100 * mean(errors), 1) == 0.8
assert max(errors) > said / back.loss - 1 and 3.5 < min(losses) < max(losses) < 5.21
lost = [
    tokens_worth(own, r.parameters, r.run.tokens, r.loss) for r in spoilt if r.run.corrupted == 0.1
]
assert [round(100 * (1 - x)) for x in lost] == [34, 41] and len(spoilt) == 6
assert {r.run.corrupted for r in spoilt} == {10 / 100, 20 / 100, 40 / 100}

best = {
    name: [min(points, key=points.get) for points in lines.values()]
    for name, lines in panels.items()
}
assert list(panels["muP"]) == [f"width {h}" for h in (16, 32, 64, 128)]
assert best["standard"] == [0.08, 0.02, 0.01, 0.005] and best["muP"] == [0.08, 0.04, 0.04, 0.04]
more = [100 * (points[0.08] / points[0.04] - 1) for points in panels["muP"].values()][1:]
assert max(more) < 0.91  # percent
assert [round(min(panels[n]["width 128"].values()), 2) for n in panels] == [4.05, 4.03] and round(
    max(losses), 1
) == 5.2
at = {h: panels["standard"][f"width {h}"][0.08] for h in (16, 32, 64, 128)}
assert at[16] == min(at.values()) and at[128] == max(at.values()) and round(back.loss, 2) == 3.07

# %% In practice

first, bill = printed.optimal(bought.flops), 2 * bought.N * served
assert [round(x / 1e9) for x in (first.N, bought.N)] == [44, 81] and [
    round(x / 1e12, 1) for x in (first.D, bought.D)
] == [2.7, 1.5]
assert round(bought.device_hours) == 500_000
assert (
    round(saved, 2) == 0.27 and round(life.N / 1e9) == 39 and round(bill / bought.flops, 1) == 2.3
)
assert round(life.D / 1e12, 1) == 3.9 and round(life.training / bought.flops, 2) == 1.29
short = explore(law="besiroglu-2024", budget="1e25", data="1 trillion", load="10 trillion").choice
less = short.lifetime()
assert round(less.D / 1e12) == 9 and round(1 - less.flops / short.row().flops, 2) == 0.04
assert (
    round(PUBLISHED["kaplan-2020"].law.exponent, 3) == 0.575
    and 1.18 < compute_wasted(law, 0.5) < 1.2
)
assert round(100 * compute_wasted(law, first.N / bought.N)) == 100 + 13
assert len(runs.N) == 9 * 5 and round(100 * sum(runs.flops) / (1000 * max(runs.flops))) == 1

at = {name: each.law.optimal(3.8e25) for name, each in laws.items()}
assert [round(at[n].N / 1e9) for n in ("llama3-2024", "hoffmann-2022", "deepseek-2024")] == [
    389,
    273,
    737,
]
assert (
    round(at["llama3-2024"].D / 1e12, 1) == 16.3
    and round(at["besiroglu-2024"].N / at["hoffmann-2022"].N, 1) == 2.3
)
sourced(sized := 402e9, read := 16.55e12, 405e9, 15.6e12, by="grattafiori2024, section 3.2.1")
assert [
    round(100 * (x - 1)) for x in (sized / at["llama3-2024"].N, read / at["llama3-2024"].D)
] == [3, 2]
assert [
    round(compute_wasted(each, 405e9 / each.optimal(3.8e25).N) - 1, 2) for each in (printed, law)
] == [0.05, 0.07]
assert round(PUBLISHED["llama3-2024-rounded"].law.optimal(3.8e25).D / 1e12, 1) == 10.5
ends = {
    n: [round(e.law.optimal(c).tokens_per_parameter) for c in (1e18, 1e26)] for n, e in laws.items()
}
assert ends["hoffmann-2022"] == [19, 93] or (
    ends["hoffmann-2022"] == [19, 92] and ends["llama3-2024"] == [12, 45]
)
assert (
    ends["besiroglu-2024"] == [26, 16]
    and ends["deepseek-2024"] == [27, 11]
    and ends["kaplan-2020"] == [12, 1]
)

# %% Where it breaks

assert OMEGA == 47_491
assert round(law.exponent, 2) == 0.51 and round(law.beta / (law.alpha / 3 + law.beta), 2) == 0.76
assert [round(apparent_exponent(x, 1e3, 1.5e9), 2) for x in (printed, law)] == [0.75, 0.79]
assert (
    PUBLISHED["kaplan-2020-frontier"].law.exponent == 0.73
    and round(apparent_exponent(law, 2e6 / 1.1, 2e6 * 1.1), 2) == 0.98
)
