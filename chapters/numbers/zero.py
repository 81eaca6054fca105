"""Where the numbers of zero.md come from. Each part runs where its section ends."""

from dataclasses import replace

from dlsys.hardware import LINKS, dgx_a100, dgx_h100
from dlsys.memory_wall import model_state
from dlsys.notebook.vouch import given, says, sourced
from dlsys.transformer import CATALOGUE
from dlsys.zero import collective_seconds, step_plan

# %% Sharded data parallelism (ZeRO, FSDP)

given(7.5e9)
says("takes 16", model_state(1).total)
says("120 GB", model_state(7.5e9).total)
says("80 GB", dgx_h100(1).device.memory)

# %% Stage 1: update your own part

given(5, 2)

# %% What a device holds

parts = model_state(1)
says("Of the 16 bytes", parts.total)
assert (parts.weights, parts.gradients, parts.optimizer) == (2, 2, 12)
for stage, law in enumerate((16, 4 + 12 / 16, 2 + 14 / 16, 1)):
    assert held(step_plan(stage, layers, 16)).at_rest == law * sum(layers.values())
says("35.6 GB", held(step_plan(1, layers, 16)).at_rest)
rest = [round(h.at_rest / 1e9, 1) for h in stages.values()]
assert rest == [120, 31.4, 16.6, 1.9]
most = [h.most for h in stages.values()]
assert [round(b / 1e9, 1) for b in most[2:]] == [17.9, 4.4]
given(640)
element = alone[0][0].weight.element_size()
assert element == 4
says("9, 6 and 3", 8 + 4 / 4, 4 + 8 / 4, 12 / 4)
assert [*map(round, counted)] == [9 + 1 + 1, 6 + 1, 3]

# %% What it sends

assert gigabytes[3] == 1.5 * gigabytes[1]

# %% When it hides

given(40)
h100, here = dgx_h100(1).device.rate("bf16"), LINKS["nvlink4"].bandwidth
says("200 MB", 2 * 100e6)
says("450 GB/s", here)
assert round(1e3 * 7 / 8 * 200e6 / here, 2) == 0.39
says("989 TFLOP/s", h100)
assert round(2e8 / (0.40 * h100) * 1e6, 1) == 0.5
says("770 tokens", round(tokens_to_hide(1), -1))
assert 1700 < tokens_to_hide(10**9) < 1850
given(1800)
sourced(175e9, 2048, 44, 153, by="narayanan2021")
given(16)  # fitted in zero_more
sourced(173, by="zhao2023")
a100 = dgx_a100(192)
asked = 7 / 8 / a100.intra.bandwidth + 191 / 192 / 8 / a100.inter.bandwidth
says("gets 127 GB/s", 1 / asked)
says("needs 1,200 tokens", round(153e12 * asked, -2))
for nodes in (2, 8, 512):  # as the price of a gather has it
    seconds = collective_seconds("all_gather", 1e12, 8 * nodes, dgx_h100(nodes)) / 1e12
    assert abs(0.40 * h100 * seconds / tokens_to_hide(nodes) - 1) < 0.01

# %% How far to shard

assert round(1 - copies.bytes_across / full.bytes_across, 6) == round(1 / 3, 6)

# %% A worked example: 70 billion parameters on 64 devices

llama = CATALOGUE["llama2-70b"]
says("1.1 TB", model_state(llama.parameters()).total)
on = {n: explore(model="llama2-70b", devices=n, tokens=4096).choice.row() for n in (8, 64)}
says("138 GB", on[8].held.at_rest)
says("17.2 GB", on[64].held.at_rest)
says("7.9 GB", on[64].gathered + on[64].unreduced)
assert 2200 < 4e6 / tokens_to_hide(10**9) < 2300
says("1,758 tokens", round(tokens_to_hide(10**9)))
says("has 4,096", llama.sequence)
says("only 976", 4e6 // llama.sequence)
assert setting.choice.tokens == llama.sequence / 4
assert setting.choice.row().exposed > setting.choice.row().seconds / 3
given(512)
waits = {
    words: replace(setting.choice, **change).row().exposed
    for words, change in {"": {}, "stage": {"stage": 2}, "devices": {"devices": 512}}.items()
}
assert replace(setting.choice, tokens=2048).row().exposed < min(waits.values()) / 20

# %% Which stage?

given(7e9, 64, 1024)
for stage in (1, 3):
    assert held(step_plan(stage, layers, 64)).most < 30e9
few, many = (step_plan(3, layers, 64, m).price(forward, 2 * forward, dgx_h100(8)) for m in (1, 8))
assert 7 < many.exposed_seconds / few.exposed_seconds < 9

# %% The same with PyTorch

given(2.13)

# %% Where it breaks

given(0.5)
says("0.96 long", right[0])
assert sorted(x > 0.5 for x in local) == [False, False, True, True]
