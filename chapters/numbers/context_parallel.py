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

# %% A mean out of parts

given(1, 3, 4, 8, 2)
says("7 and 2", first, second)
says("4.5", whole)

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
sourced(32_768, 30, 1.67, by="pithtrain2026")
fast, slow = (layout(4 * 1024, 4, kind).balance for kind in ("zigzag", "contiguous"))
says("is 1.75", fast / slow)
assert abs(rounds["contiguous"].seconds / rounds["zigzag"].seconds - 15 / 8) < 0.01

# %% Two other ways

sourced(405, by="grattafiori2024")
says("has 128 heads", llama.heads)
says("and 8 of keys", llama.kv_heads)

# %% What it costs

sourced(405, by="grattafiori2024")
assert ranks_for_ulysses(llama) == 17
assert ranks_for_ulysses(CATALOGUE["gpt3-175b"]) == 2

# %% When the ring hides

sourced(405, by="grattafiori2024")
given(500)
fabric = LINKS["infiniband-ndr"].bandwidth
says("50 GB/s", fabric)
says("from 20,000 tokens", tokens_to_hide(CATALOGUE["gpt3-175b"], 500e12, fabric))
says("With 16 heads", llama.heads / llama.kv_heads)
says("from 1,250 on", tokens_to_hide(llama, 500e12, fabric))

# %% A worked example: 131,072 tokens on 16 ranks

sourced(131_072, 16, 41, 8192, 38, by="grattafiori2024")
assert (one_of_eight.heads, one_of_eight.kv_heads) == (16, 1)
found = {m: long.price(one_of_eight, nodes, m, 400e12) for m in ("ring", "gathered")}
says("67 MB", found["gathered"].forward.buffer_bytes)
step = matrices + compute
waiting = found["gathered"].forward.exposed_seconds + found["gathered"].backward.exposed_seconds
says("add 4 %", round(100 * waiting / step))
says("is 39 %", round(41 * step / (step + waiting)))
eight = CATALOGUE["llama3-8b"]
most = activations(replace(eight, sequence=300_000), 1, recompute="full", flash=True)
says("some 300 thousand", 300 * round(80e9 / most))
alone_at = activations(replace(eight, sequence=14_000), 1, flash=True)
says("about 14 thousand", 14 * round(80e9 / alone_at))
start = Choice(length=16_384)
assert {row.method: row.exposed for row in start.rows()}["ring"] > 0
longer = replace(start, length=2**17)
assert longer.rows()[0].exposed / longer.rows()[0].compute < 0.01

# %% The same with PyTorch

given(2.13, 2, 4096)

# %% Where it breaks

given(4, 3)
shares_of_13 = sorted(layout(13, 4).tokens(rank) for rank in range(4))
assert shares_of_13 == [3, 3, 3, 4]
assert abs(right - wrong) > 0.005

# %% Published mistakes

sourced(128, by="ttsugriy")
assert twice == 2 * short
