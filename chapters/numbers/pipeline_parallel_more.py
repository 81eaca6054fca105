"""Where the numbers of pipeline_parallel_more.md come from. Each part runs where its section ends."""

from dlsys.notebook.vouch import sourced
from dlsys.pipeline_parallel import stage_seconds
from dlsys.transformer import CATALOGUE

# %% Zero bubble without a gap: H2 and V

assert [row[2] for row in rows] == ["17.9%, 17.9%", "6.8%, 6.8%", "6.8%, 0.0%", "3.5%, 0.0%"]
assert [row[4].split(", ")[1] for row in rows[2:]] == ["2.8%", "7.7%"]
spans = [(each[0].start, each[-1].end) for each in zero_bubble_h2(2, 3).price(1, 2).spans]
assert spans == [(0, 9), (1, 10)] and max(zero_bubble_h2(8, 32).peak_in_flight) == 2 * 8 - 1
assert set(zero_bubble_v(8, 32).peak_in_flight) == {2 * 8}  # half shares
layer = stage_seconds(CATALOGUE["llama3-8b"], [range(1, 2)], rate=1e12)
layer = {name: seconds[0] for name, seconds in layer.items()}
assert layer["weight_backward"] < layer["backward"]
for plan, equal, unlike in (
    (zero_bubble(8, 32), 0.068, 0.097),
    (zero_bubble_v(8, 32), 0.035, 0.043),
):
    assert round(plan.price(1, 2).bubble_fraction, 3) == equal
    assert round(plan.price(**layer).bubble_fraction, 3) == unlike

# %% How large is a micro-batch?

assert round(fixed, 2) == 0.33 and best == {128: 2, 512: 4}
assert round(best_micro_batch(8, 512, fixed), 1) == 4.9

# %% One choice, whole

assert (round(model.parameters() / 1e9), model.sequence) == (175, 2048)
found = {(nodes, cut): rest for nodes, cut, *rest in choice}
assert found[16, "p=2, v=1"][2] == "91.8 GB" and found[16, "p=4, v=1"][2:] == [
    "59.3 GB",
    "1.8%",
    "0.4 s",
    "46.6 s",
]
sourced(0.47, 96, by="megatronreadme")
of_rank_0 = float(found[16, "p=4, v=1"][2].split()[0])
assert of_rank_0 == 59.3 and dgx_h100(1).device.memory == 80e9 and 80 - of_rank_0 > 20
assert (
    found[256, "p=4, v=1"][1:] == [24, "43.8 GB", "11.9%", "0.5 s", "3.8 s"]
    and round(float(found[256, "p=4, v=1"][3][:-1])) == 12
)
assert (
    found[256, "p=4, v=6"][3:] == ["3.2%", "0.2 s", "3.2 s"]
    and round(exposed[256, 4, 1] / (flops / (256 * t * rate)), 2) == 0.23
)
assert (
    found[256, "p=8, v=6"][4:] == ["0.0 s", "3.0 s"]
    and found[256, "ZeRO-3, 6 at a time"][-1] == "3.5 s"
)
assert (
    6 / 8 * sent < flops / (256 * t * rate) * (1 + extra) < sent
)  # ZeRO-3's gradients in 16 bits, and in 32
assert round(sent, 1) == 3.5
work = flops / (16 * t * rate)
assert round(work, 1) == 37.8 and (W, rate / W) == (50e9, 14_000)
mfu = flops / 46.6 / 128 / 989e12
assert 0.47 < round(mfu, 2) == 0.57 and round(46.6 * mfu / 0.47) == 57

# %% A pipeline that never waits

assert [round(ends[p], 1) for p in (1, 2, 4)] == [1.6, 2.0, 2.6]
assert round(losses[0], 1) == 3.5
assert all(row[-1] == 3 - stage for stage, row in enumerate(staleness(pipedream(4, 8))))
assert pipedream(4, 300).price(1, 2).bubble_fraction < 0.01

# %% A pipeline and a ring

assert 14 == chain.makespan == 8 + 7 - 1 and 6 / 14 == chain.bubble_fraction < 0.5
assert len(ring.rounds) == 7 and all(len(sends) == 8 for sends in ring.rounds)
