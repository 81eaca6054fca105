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
says("only 5 remain", round(8 * whole_stack.per_layer / 16 / 1e9))

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
says("from 20,000 tokens", tokens_to_hide(CATALOGUE["gpt3-175b"], 500e12, fabric))
says("from 2,500", tokens_to_hide(replace(llama, kv_heads=16), 500e12, fabric))
wider = tokens_to_hide(CATALOGUE["gpt3-175b"], 500e12, fabric)
assert tokens_to_hide(llama, 500e12, fabric) == wider * llama.kv_heads / llama.heads

assert sorted(shares.tokens(rank) for rank in range(4)) == [3, 3, 3, 4]
block = 2 * 2 * 2 * 8  # of a token: k and v, 2 heads of 2 numbers of 8 bytes
for rank, nbytes in enumerate(world.simulate(blocks_sent, 4, args=(ring_attention,)).results):
    owners = [(rank - step) % 4 for step in range(4)]  # keys twice, all but the last; gradients
    tokens = sum(2 * shares.tokens(o) for o in owners[:3]) + sum(map(shares.tokens, owners))
    assert nbytes * 4 == tokens
n, a, kv = 4, q.shape[2], k.shape[2]
for attention, blocks in (
    (gathered_attention, 3 * (n - 1)),
    (ulysses_attention, 2 * (n - 1) / n * (a + max(kv, n)) / kv),
):
    assert max(world.simulate(blocks_sent, n, args=(attention,)).results) == blocks

# %% A worked example: 131,072 tokens on 16 ranks

sourced(131_072, 16, 38, by="grattafiori2024")
assert (one_of_eight.heads, one_of_eight.kv_heads) == (16, 1)
gathered = long.price(one_of_eight, nodes, "gathered", rate)
in_scores = gathered.forward.compute_seconds + gathered.backward.compute_seconds
says("67 MB", gathered.forward.buffer_bytes)
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
assert abs(right - wrong) > 0.005

# %% Published mistakes

sourced(128, by="ttsugriy")
given(32)
assert twice == 2 * short
