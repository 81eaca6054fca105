"""Where the numbers of composing_axes.md come from. Each part runs where its section ends."""

from dlsys.notebook.vouch import given, says, sourced

# %% Composing the axes

given(16, 70)
from dlsys.composing_axes import machine, plan
from dlsys.transformer import CATALOGUE

every = plan(CATALOGUE["llama3-70b"], machine("h100", 16), 512, reserve=8e9)
says("some 6,200", round(len(every), -2))
fit = every.seconds[every.fitting]
assert 0.77 < 1 - len(fit) / len(every) < 0.83
says("some 150", round(fit.max() / fit.min(), -1))
given(1, 2, 3)

# %% A place along each axis

given(5, 101)
assert group(5, "tp", sizes) == [4, 5] and group(5, "dp", sizes) == [5, 7]
assert group(5, "pp", sizes) == [1, 5]
given(8, 32)
drawn = {"tp": 4, "cp": 2, "dp": 2, "pp": 2}
assert [group(5, axis, drawn) for axis in drawn] == [[4, 5, 6, 7], [1, 5], [5, 13], [5, 21]]
given(4, 6, 7, 1, 13, 21, 0, 22)

# %% One step on any mesh

given(0, 1, 2, 4, 5)

# %% Why it is right

sourced(20, 50, by="tests/mechanisms/test_composing_axes.py")
assert all(abs(a - b) < 1e-9 for found in runs.values() for a, b in zip(found, runs["one rank"]))

# %% Bytes

given(70, 8, 4, 512)
says("NVLink brings a device 450", cluster.intra.bandwidth / 1e9)
says("InfiniBand 50", cluster.inter.bandwidth / 1e9)
assert 55 < sent["tp"] / mesh.size / cluster.inter.bandwidth < 65
says("instead of 7 s", sent["tp"] / mesh.size / cluster.intra.bandwidth)
from dlsys.composing_axes import between_nodes

assert between_nodes(sent, mesh, cluster)["tp"] == 0
given(0, 1, 2, 3, 4, 8, 12, 128)

# %% Seconds

given(32, 1)
from dlsys.pipeline_parallel.price import price

says("bubble adds 9 %", 100 * (price(one_f_one_b(4, 32), 1.0, 2.0).makespan / (32 * 3.0) - 1))

# %% A law to take away

given(400, 1)
assert llama.ffn_hidden == 28_672
assert h100s.cluster.nics == 8 and inter == 50e9
assert 400e12 / 8 / inter == 1000
from dlsys.composing_axes import sharding_degree

x = tokens_to_hide(llama.ffn_hidden, 400e12, inter, intra)
assert round(128 / sharding_degree(128 * x, 128, llama.ffn_hidden, inter, intra)) == 16

# %% The planner

given(128, 8, 16, 4, 2, 3, 0)
times = [each.seconds for each in kinds.values()]
says("are 4 % apart", 100 * (times[1] / times[0] - 1))
flops = 6 * llama.parameters() * 512 * llama.sequence / 128 / cluster.device.rate("bf16")
says("reaches 33 % of", 100 * flops / search.best.seconds)
half = min(
    search.front(),
    key=lambda each: abs(sum(each.held.values()) - sum(search.best.held.values()) / 2),
)
says("a step takes 15 % longer", 100 * (half.seconds / search.best.seconds - 1))
assert all(times < 1.1 for name, times in binds.items() if name != "flops")
at = {b: plan(llama, h100s, b, reserve=8e9).best for b in (32, 16)}
assert at[32].zero == 3 and at[32].tp == at[32].pp == 1
assert at[16].zero < 3 and at[16].tp > 1 and at[16].pp > 1
says("With 2,048 tokens", 32 * llama.sequence / 128)
says("At 1,024 ZeRO", 16 * llama.sequence / 128)

# %% How far off is it?

sourced(
    216,
    342,
    10,
    6.0,
    10.3,
    7.9,
    11.2,
    11.0,
    12.9,
    10.8,
    2.7,
    410,
    78,
    505,
    4,
    28.7,
    by="bench/README.md",
)
sourced(2, 8, 64, 512, 3, 1, by="bench/README.md")
given(32, 16)

# %% A worked example: 175 billion on 256 A100

given(32, 80, 12, 1536, 405, 16_384, 2_048, 8, 4, 1, 2)
says("has 17.8 GB", (weights + gradients + moments) / 1e9)
says("degrees are 6 % slower", 100 * (first.seconds / of_gpt3.best.seconds - 1))
says("micro-batch, 64 times", theirs.micro_batches)
assert 1.5 < theirs.seconds / first.seconds < 1.7

# %% Which one?

assert megatron(search).recompute
