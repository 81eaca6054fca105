"""Where the numbers of pipeline_parallel.md come from. Each part runs where its section ends."""

from dlsys.hardware import dgx_h100
from dlsys.memory_wall import model_state
from dlsys.notebook.vouch import given, sourced
from dlsys.pipeline_parallel import piece_parameters, transfers_waited_for

# %% Why it is right

at_once = world.simulate(one_device, 1, args=(1,)).results[0]
torch.testing.assert_close(accumulated, at_once)
of_rank_0 = [int(kB) for *_, kB in rows]
less = [1 - kB / of_rank_0[0] for kB in of_rank_0]
assert 0.3 < less[1] < 1 / 3

# %% What it costs

assert enough == 134
assert round(one_f_one_b(8, 4 * 8).price(1, 2).bubble_fraction, 3) == 0.179
assert all(bubble_fraction(p, 4 * p) < 1 / 5 < bubble_fraction(p, 3 * p) for p in (8, 64))
assert 0.45 < one_f_one_b(8, 8).price(1, 2).bubble_fraction < 0.5
assert one_f_one_b(8, 133).price(1, 2).bubble_fraction > 0.05 - 1e-12 > cost.bubble_fraction
assert gpipe(8, enough).price(1, 2).idle == cost.idle
assert one_f_one_b(8, 32).price(1, 2).idle == (7 * 3,) * 8  # seconds of each rank
assert one_f_one_b(8, 32).peak_in_flight == (8, 7, 6, 5, 4, 3, 2, 1)

# %% Zero bubble: put off what nobody waits for

for v in (2, 4):
    share = interleaved(8, 32, v).price(1, 2).bubble_fraction
    assert abs(share - bubble_fraction(8, 32, v)) < 1e-12
assert min_microbatches(8, 0.05) == 134 and interleaved(8, 72, 2).micro_batches == 9 * 8
assert (
    round(interleaved(8, 72, 2).price(1, 2).bubble_fraction, 3)
    == 0.046
    == round(bubble_fraction(8, 72, 2), 3)
)
assert max(interleaved(8, 32, 4).peak_in_flight) / 4 == 8 + (8 - 1) / 4  # p + (p - 1) / v
before, after = (plan(2, 3).price(1, 2) for plan in (one_f_one_b, zero_bubble))
assert (before.makespan, before.idle, after.makespan, after.idle) == (12, (3, 3), 10, (1, 1))
starts = [next(s for a, s, _ in cost.spans[0] if a.kind == "B") for cost in (before, after)]
assert starts == [4, 3] and [a.kind for a, *_ in after.spans[1]][-2:] == ["W", "W"]
assert [end for a, _, end in after.spans[1] if a.kind == "B"][-1] == 8
for p in (2, 3, 4, 8):
    before, after = (plan(p, 32).price(1, 2) for plan in (one_f_one_b, zero_bubble))
    assert [3 * s for s in after.idle] == [*before.idle] and max(after.peak_in_flight) == p

# %% Gradients between replicas come last


def later(plan):
    return plan.price(1, 2, transfer=0.2).makespan - plan.price(1, 2).makespan


assert round(later(gpipe(8, 32)) / 0.2) == 2 * 7
assert round(later(one_f_one_b(8, 32)) / 0.2) == transfers_waited_for(8, 32) > 14 * 32 / 8
assert R / bandwidth == 12_480 and interleaved(4, 24, 1).price(1, 2).makespan == 81
assert {v: round(late) for v, late in later_by.items()} == {1: 8, 2: 5, 6: 3}
rounds, all_at_once = plans["interleaved, rounds of 16"], plans["breadth-first"]
assert (
    round(fast, 3) == 0.052
    and round(slow, 3) == 0.155
    and max(all_at_once.peak_in_flight) / 4 == 32
)
assert round(rounds.price(1, 2, 0.2).bubble_fraction, 3) == 0.077
assert [max(plan.peak_in_flight) / 4 for plan in (rounds, interleaved(8, 32, 4))] == [15.75, 9.75]
quick = [plan.price(1, 2, 0.02).bubble_fraction for plan in (interleaved(8, 32, 4), rounds)]
assert 0 < quick[0] - quick[1] < 0.01

# %% Stages of equal weight

assert [round(share, 2) for share in shares["three layers each"]] == [0.47, 0.45]
assert shares["by cost"][1] < 0.10
idle = {
    (slow, m): explore(micro_batches=m, slow=slow).choice.price().bubble_fraction
    for slow in (1.0, 2.0)
    for m in (8, 32)
}
assert [round(share, 3) for share in idle.values()] == [0.273, 0.086, 0.455, 0.397]
assert (
    "The shortest has zero bubble V: 193 s, 37.8% idle"
    in explore(micro_batches=32, slow=2.0).choice.summary()
)
price = explore(micro_batches=32, slow=2.0).choice.price()
works = [price.makespan - idle for idle in price.idle]
assert 1 - sum(works) / 4 / max(works) == 0.375  # if the slow rank works all the time

# %% A worked example: 175 billion parameters over twelve nodes

kept, sizes = activation_bytes(model, 1, 8, True, dropout=False), piece_parameters(model)
one_layer = kept.total - kept.scores  # of a sequence, on a device
first = 16 * sum(sizes[:9]) / 8  # the embedding and eight layers
totals = [first, first + 12 * 8 * one_layer, first + 96 * 8 * one_layer]
assert [float(f"{n / 1e9:.3g}") for n in totals] == [30.3, 40, 108]
assert (
    round((16 * model.parameters() / 96 + 4 * 96 * one_layer) / 1e9) == 68
    and round(8 * 3 * gather.seconds) == 38
)
assert [round(nbytes / 1e9) for nbytes in sent] == [427, 240, 1]
assert steps[0][2] < steps[0][1] and steps[1][1] < steps[1][2] and steps[1][1] == 2 * work + node
assert round(work, 1) == 7.1 and (model.hidden, model.sequence, model.layers) == (12_288, 2048, 96)
assert (pod.intra.bandwidth, pod.inter.bandwidth) == (300e9, 25e9)
assert (
    model_state(175e9).total == 2.8e12
    and 8 * pod.device.memory == 640e9
    and 200 > sent[1] / sent[2] > 195
)

# %% The same with PyTorch

given(2.13)

# %% In practice

sourced(405, by="grattafiori2024")
assert dgx_h100(1).inter.bandwidth == 50e9 and 700e12 / dgx_h100(1).inter.bandwidth == 14_000
assert all(
    bubble_fraction(p, 9 * (p - 1)) == bubble_fraction(p, 9, p - 1) == 0.1 for p in (2, 4, 8)
)
