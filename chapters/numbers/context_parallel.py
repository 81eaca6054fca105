"""Where the numbers of context_parallel.md come from. Each part runs where its section ends."""

from dataclasses import replace

from dlsys.context_parallel.explorer import Choice
from dlsys.hardware import DEVICES, LINKS
from dlsys.notebook.vouch import given, says, sourced
from dlsys.transformer import CATALOGUE
from dlsys.transformer.activations import activations

# %% Context parallelism (long sequences)

sourced(131_072, 16e6, 16_384, by="grattafiori2024")
spec = replace(CATALOGUE["llama3-405b"], sequence=131_072)
says("only 128", 2**24 // 131_072)
given(128, 8, 16)
whole_stack = activations(spec, 1, 8, sequence_parallel=True, flash=True)
says("86 GB", 8 * whole_stack.per_layer)  # 126 layers on 16 stages
says("80 GB", DEVICES["h100-sxm"].memory)
says("of 126 layers", spec.layers)
sequences = 2**24 // spec.sequence
assert round(spec.layers / 16) == 8
assert 16_384 / sequences == 8 * 16  # devices for each sequence
assert sequences / (16_384 / (8 * 16 * 16)) == 16  # for each replica, once ranks share them
says("ranks only 5", round(8 * whole_stack.per_layer / 16 / 1e9))

# %% A mean out of parts

given(1, 3, 4, 8)
says("are 7 and 2", first, second)
says("mean is 4", whole)

# %% The ring

given(0)

# %% Who has which tokens

sourced(405, by="grattafiori2024")
says("for 21 ms", 1e3 * rounds["contiguous"].seconds)
says("after 11 ms", 1e3 * rounds["zigzag"].seconds)
assert load[3] / sum(load) > 0.43
given(4)
n = 4
assert abs(7 / 16 - (2 * n - 1) / n**2) < 1e-9
assert abs(rounds["contiguous"].seconds / rounds["zigzag"].seconds - 15 / 8) < 0.01

# %% Two other ways

sourced(405, by="grattafiori2024")
says("has 128 heads", llama.heads)
says("and 8 of keys", llama.kv_heads)

# %% What it costs

sourced(405, by="grattafiori2024")
assert ranks_for_ulysses(llama) == 16
assert ranks_for_ulysses(CATALOGUE["gpt3-175b"]) == 2

# %% When the ring hides

sourced(405, by="grattafiori2024")
given(500)
fabric = LINKS["infiniband-ndr"].bandwidth
says("50 GB/s", fabric)
says("has 20,000 tokens", tokens_to_hide(CATALOGUE["gpt3-175b"], 500e12, fabric))
says("keys, 1,250", tokens_to_hide(llama, 500e12, fabric))
assert llama.heads == 16 * llama.kv_heads
wider = tokens_to_hide(CATALOGUE["gpt3-175b"], 500e12, fabric)
assert tokens_to_hide(llama, 500e12, fabric) == wider * llama.kv_heads / llama.heads

n, a, kv = 4, q.shape[2], k.shape[2]
assert all(shares.tokens(rank) == 4 for rank in range(n))
for attention, blocks in (
    (ring_attention, 3 * n - 2),
    (gathered_attention, 3 * (n - 1)),
    (ulysses_attention, 2 * (n - 1) / n * (a + max(kv, n)) / kv),
):
    assert world.simulate(blocks_sent, n, args=(attention,)).results == [blocks] * n

# %% A worked example: 131,072 tokens on 16 ranks

sourced(131_072, 16, 400, by="grattafiori2024")
assert (one_of_eight.heads, one_of_eight.kv_heads) == (16, 1)
gathered = long.price(one_of_eight, nodes, "gathered", rate)
in_scores = gathered.forward.compute_seconds + gathered.backward.compute_seconds
says("67 MB", gathered.forward.buffer_bytes)
result = 131_072 // 16 * one_of_eight.heads * 128 * 4  # bytes, in float32
merges = 15 * 3 / 4 * 3 * result / DEVICES["h100-sxm"].memory_bandwidth  # two read and one written
says("some 0.7 ms", round(1e3 * merges, 1))
says("add 4 %", round(100 * (gathered.seconds - in_scores) / (matrices + in_scores)))
assert tokens_to_hide(CATALOGUE["llama3-8b"], 400e12, LINKS["nvlink4"].bandwidth) < 500
start = Choice(length=16_384)
first, *_ = start.rows()
assert (first.method, first.exposed / first.compute < 0.05) == ("ring", True)
ungrouped = replace(start, model="gpt3-175b").rows()[0]
assert ungrouped.exposed / ungrouped.compute > 0.2

# %% The same with PyTorch

given(2.13, 2, 4096)

# %% Where it breaks

given(16)

# %% Published mistakes

sourced(128, by="ttsugriy")
given(32)
assert twice == 2 * short
