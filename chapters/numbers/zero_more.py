"""Where the numbers of zero_more.md come from. Each part runs where its section ends."""

from dlsys.memory_wall import model_state
from dlsys.notebook.vouch import given, says, sourced
from dlsys.pipeline_parallel import message_bytes
from dlsys.zero import held, sent, tokens_to_hide, tokens_to_offload

# %% What changes around it

assert [3 * bytes_of(8, r) / bytes_of(1, r) for r in ("last", "each")] == [17, 24]

# %% Or cut the matrices instead

assert held(step_plan(1, {"all": 8000}, 8)).at_rest / 8000 == 4 + 12 / 8
assert round(tokens_to_offload(rate, LINKS["pcie5"].bandwidth)) == 2093
assert round(best_degree(8192, 512 * 512, 512), 1) == 8.5
one, two = (mixed_bytes(80, 8192, 2.25 * 8192 * 512, 512, t) for t in (1, 2))
assert abs(one / two - 1) < 0.01

# %% A measurement

for n, measured in {384: 144, 768: 88, 1536: 44}.items():
    assert abs(found[n][2] / measured - 1) < 0.02 and found[n][0] > 151
sourced(16_384, by="grattafiori2024")
assert (
    round(big.parameters() / 1e9) == 175
    and round(big.training_flops_per_token() / big.parameters()) == 6
)
assert 0.5 < nets[2].bandwidth / nets[1].bandwidth < 0.7 and nets[2].bandwidth == 16e9

for n, tokens, measured in ((640, 8192, 138), (1120, 4096, 98), (2240, 2048, 48)):
    flops = 8 * 529.6e9 * tokens
    plan530 = step_plan(3, {f"layer {i}": 529_600_000_000 // 105 for i in range(105)}, n)
    step = plan530.price(flops / 4 / 171e12, 3 * flops / 4 / 171e12, Link("fitted", 0, 16e9))
    assert abs(flops / step.seconds / 1e12 / measured - 1) < 0.15
sourced(theirs := 173, 128, 512, by="zhao2023")
for n in (128, 512):
    flops = 8 * big.parameters() * 2048
    step = step_plan(3, {f"layer {i}": big.parameters() // 96 for i in range(96)}, n).price(
        flops / 4 / 173e12, 3 * flops / 4 / 173e12, dgx_a100(n // 8)
    )
    assert step.exposed_seconds < 0.02 * step.seconds and 3.9 < theirs / rows[-1][-1] < 4
each = message_bytes(1, 2048, 12_288) / 8  # of a card
assert round(2 * 96 * each / 1e9, 1) == 1.2
assert sent(step_plan(3, {"all": big.parameters()}, 96)) > 1e12
assert round(CATALOGUE["llama3-405b"].parameters() / 1e9) in (405, 406)

# %% Easily got wrong

assert model_state(1).total == 16
given(5)  # of PCIe
fabric = LINKS["nvlink4"].bandwidth
says("asks for 385 tokens", round(tokens_to_hide(rate, fabric, 8) / 2))
says("forward pass of 769 tokens", round(tokens_to_hide(rate, fabric, 8)))
total = [sent(step_plan(stage, blocks, 8)) for stage in (0, 3)]
says("total of 1.5 times", total[1] / total[0])
