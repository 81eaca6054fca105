"""Where the numbers of tensor_parallel_more.md come from. Each part runs where its section ends."""

from dataclasses import replace

from dlsys.hardware import dgx_h100
from dlsys.notebook.vouch import sourced
from dlsys.tensor_parallel import activation_bytes, layout, seconds_in_pieces
from dlsys.transformer import CATALOGUE
from dlsys.zero import collective_seconds, sharding

# %% Six more silent mistakes

(alone := GPT(small, dtype=torch.float64))(text, text.roll(-1, 1)).backward()
length = nn.utils.get_total_norm([p.grad for p in alone.parameters()])
assert all(abs(x - length) < 1e-9 for x in true)
assert [round(copies[0], 2), round(true[0], 2)] == [3.24, 1.99]

# %% Commands, and what does what


def taken(t, state):  # state bytes a parameter, activations, and logits in 16 and in 32 bits
    spec = replace(CATALOGUE["llama3-8b"], sequence=8192)
    kept = activation_bytes(spec, 1, t, sequence_parallel=True, dropout=False)
    return (
        state * layout(spec, t).held()
        + spec.layers * (kept.total - kept.scores)
        + 6 * 8192 * spec.vocab / t
    )


assert [round(taken(*x) / 1e9) for x in ((1, 16 / 8), (1, 6 + 12 / 8), (2, 6 + 12 / 4))] == [
    66,
    111,
    61,
]

# %% Measurements

llama, pod = CATALOGUE["llama3-70b"], dgx_h100(4)
R, h, f, tokens = pod.device.rate("bf16"), llama.hidden, llama.ffn_hidden, 8192


def gain(rate):
    apart, pieces = [], []
    for columns in (h + 2 * h // 8, h, 2 * f, f):  # of all ranks: gathers first, then scatters
        product, message = 2 * tokens * h * columns / 8 / rate, 2 * tokens * h
        apart += [product, 7 * pod.intra.seconds(message / 8)]
        pieces += [seconds_in_pieces(product, message, 8, pod.intra)]
    once = sum(apart[::2])  # of products; all are run twice forward, and once for each gradient
    return (2 * sum(apart) + 2 * once) / (2 * sum(pieces) + 2 * once) - 1


sourced(
    *(bf16 := (597.3, 652.4)),
    *(fp8 := (809.8, 942.4)),
    *(by_row := (599.6, 624.8)),
    by="torchtitan2025",
)
ran = 8 * llama.parameters() * bf16[0] / R  # FLOPs, forward twice, of the peak
assert [round(100 * x) for x in (ran, gain(ran * R), gain(R / 2))] == [34, 10, 15]
assert [round(100 * (b / a - 1)) for a, b in (bf16, fp8, by_row)] == [9, 16, 4] and round(
    R / pod.device.memory_bandwidth
) == 295

wide = layout(llama, 16, sequence_parallel=True)
key = wide["layers.*.attention.key.weight"]
assert (llama.heads, llama.kv_heads, key.pieces, key.summed) == (64, 8, 8, 2) and round(
    llama.parameters() / 1e9, -1
) == 70
shares = [wide.price(1, dgx_h100(2), algorithm="best", rate=x).share for x in (R, R / 2)]
assert [round(100 * share) for share in shares] == [59, 41]

assert [[round(x) for x in column] for column in columns[::2]] == [
    [11, 18, 42, 46],
    [13, 21, 46, 48],
]
assert [round(x, 1) for x in columns[1] + columns[3]] == [
    10.8,
    12.2,
    42.7,
    65.6,
    5.0,
    19.1,
    43.4,
    41.4,
]
gaps = [round(a - b) for sp in (0, 1) for a, b in zip(columns[2 * sp], columns[2 * sp + 1])]
assert max(abs(gaps[2]), abs(gaps[6])) < 4 and sorted(map(abs, gaps))[-2:] == [8, 20]
assert round(lost(False, "ring")[2]) == 85 and guess.hidden // 32 == 96
assert 0.2 < 6 * guess.parameters() * 13_923 / R < 0.3
widths = [TransformerSpec(*a, 32, 49_152, 4096) for a in ((40, 2560), (14, 4096))]
assert {round(w.parameters() / 1e9) for w in (*widths, guess)} == {3}
edges = []
for spec, rate in [(w, R / 2) for w in (guess, *widths)] + [(guess, x * R) for x in (0.4, 0.6)]:
    a, b = (layout(spec, t).price(4, pod, algorithm="best", rate=rate) for t in (8, 16))
    edges += [1 - (a.seconds + a.compute_seconds) / (b.seconds + b.compute_seconds) / 2]
assert [round(100 * x) for x in edges] == [42, 44, 37, 39, 45]

nodes, P = dgx_h100(64), llama.parameters()
mates = replace(nodes, devices_per_node=1, nics_per_node=None)  # those with the same cut
kinds = "all_gather", "all_gather", "reduce_scatter"
cut = sum(collective_seconds(kind, 2 * P / 8, 64, mates) for kind in kinds)
sharded = sharding(2 * P, nodes).bytes_across
assert sharded == 3 * 63 / 64 * 2 * P / 8 and abs(cut * nodes.inter.bandwidth / sharded - 1) < 0.01
