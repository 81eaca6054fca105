"""Where the numbers of attention.md come from. Each part runs where its section ends."""

from bisect import bisect
from functools import partial

from torch.nn.attention.bias import causal_lower_right

from dlsys.attention import (
    forward_resident,
    naive_backward_cost,
    naive_pays,
    rows_to_bind,
    summarize,
    weighted_mean,
)
from dlsys.notebook.vouch import sourced

room = (228 + 256) * 1024 // 4


# %% Backward

hidden = torch.full((1, 4), -torch.inf)
assert (
    hidden.softmax(-1).isnan().all()
    and weighted_mean(summarize(hidden, values[:4].float())).eq(0).all()
)
assert (
    F.scaled_dot_product_attention(*long, attn_mask=torch.zeros(2048, 2048, dtype=torch.bool))
    .eq(0)
    .all()
)
assert abs(merge(one, two).total.item() - (2 * 2.718281828 ** (3 - 5) + 1.5)) < 1e-5
in_all = len(tiling(4096, 4096, 256, 256).schedule().steps)
assert (
    in_all == 256
    and 136 == len(visited.steps) == 16 * 17 // 2
    and 0.5 < len(visited.steps) / in_all < 0.54
)
assert round(kept["naive_attention"] / 1e6, 1) == 18.4 and kept["flash_attention"] == 4 * (
    4 * 2048 * d + 2048
)
weights_bytes = kept["naive_attention"] - 3 * long[0].nbytes
assert round(long[0].nbytes / 1e6, 2) == 0.52 and round(weights_bytes / 1e6, 1) == 16.8

per_visit = {
    "forward": [(2 * d + 1, 2 * d, 0), (2 * d, 3 * d + 4, d + 3)],
    "backward": [(5 * d + 3, 6 * d, 2 * d), (6 * d + 1, 4 * d + 2, d)],
}
for cost, entries in zip((forward_cost, backward_cost), per_visit.values(), strict=True):
    for outer, (once, visit, first) in zip(("queries", "keys"), entries, strict=True):
        assert cost(square, d, outer).elements == s * (once + s // 128 * visit - first)
assert memory.capacity == 64 * (3 * 32 + 2) + 4 * 64 * 32 + 2 * 64 * 64
assert (
    1.9 < plain.elements / tiled.elements / 2 < 2.0
    and plain.elements == 4 * s * s + 4 * s * d
    and round(2 * 128 / d) == 4
)
assert tiled.elements == 2 * s * d + s + 2 * s * d * s // 128
assert round(peaks["flash_attention"] / 1e6, 1) == 3.5
assert 0 <= peaks["naive_attention"] - 3 * weights_bytes - long[0].nbytes < 64
assert round(3 * weights_bytes / 1e6, 1) == 50.3 and round(long[0].nbytes / 1e6, 1) == 0.5
assert (
    backward_cost(square, d).flops * 4 == 5 * naive_backward_cost(s, s, d).flops
    and plain.flops == tiled.flops
)
assert 6 * (tiled.flops + backward_cost(square, d).flops) == 7 * (
    plain.flops + naive_backward_cost(s, s, d).flops
)

# %% When attention outgrows the rest of the layer

gap = {M: curves["law"][M] / curves["tiled"][M] - 1 for M in sizes}
far = [M for M in sizes if abs(gap[M]) >= 0.10]
close = [M for M in sizes if far[2] < M < far[3]]
assert (round(close[0], -2), round(close[-1], -4)) == (2_900, 260_000)
assert [2 * crossover_memory(d), crossover_limit(d)] == [d * d, 4096] and abs(
    crossover_tile(s, d) - d / 2
) < 0.5


def gains(M, room):
    return (
        forward_cost(best_tiling(length, length, d, M), d).elements
        < naive_forward_cost(length, length, d, memory=room or M).elements
    )


found = {
    name: bisect(range(8192), False, lo=1024, key=partial(gains, room=room))
    for name, room in (("plain", None), ("floor", 10**6))
}
assert (round(found["plain"], -2), round(found["floor"], -2)) == (2_400, 4_300) and not naive_pays(
    length, d, found["plain"]
)

sourced(228, 256, by="nvidiahopper")  # KiB of shared memory and of registers, of 32 bits each
thin, wide_tiles = (
    best_tiling(length, length, d, forward_resident(square, d)),
    tiling(length, length, 128, 128),
)
assert (
    forward_resident(square, d) == 49_408
    and round(forward_cost(wide_tiles, d).elements / forward_cost(thin, d).elements, 1) == 2.8
)
assert (
    len(naive_backward_cost(s, s, d).kernels) == 5 and round(1 / (1 + min(gap.values())), 2) == 1.33
)
assert round(room / d**2) == 30 and round(room / 256**2, 1) == 1.9
assert not any(naive_pays(s, 256, room, passes) for passes in ("forward", "backward", "both"))
assert [crossover_limit(256, passes) < room for passes in ("forward", "backward", "both")] == [
    True,
    False,
    True,
]
alone = backward_cost(
    tiling(s, s, 1, (room - 770) // 1026), 256
).elements  # backward_resident: 4 d + 2 a key, 3 d + 2 a query
assert (
    naive_backward_cost(s, s, 256).elements
    < alone
    < naive_backward_cost(s, s, 256, memory=room).elements
)
assert (
    round(rows_to_bind(h100)) == 295
    and d / 2 == 32
    and abs(naive_forward_cost(s, s, d).intensity() - d / 2) < 0.5
)
assert (
    12_288 == gpt3.hidden == gpt3.heads * 128
    and gpt3.heads == 96
    and round(gpt3.parameters() / 1e9) == 175
)
assert 73_728 == overtaking_length(gpt3) == 6 * gpt3.hidden

crossings = [
    (at(77 * d, "backward"), at(77 * d, "both")) for at in (crossover_memory, crossover_limit)
]
assert crossings == [
    (12 * 77 * 11 * d * d, 14 * 77 * 7 * d * d),
    (16 * 77 * 11 * d * d, 20 * 77 * 7 * d * d),
]
even = round(3 * gpt3.hidden * 128 / h100.ridge("bf16") - 128)
share = naive_forward_cost(even, even, 128, heads=96).seconds(h100) / (
    24 * even * gpt3.hidden**2 / h100.rate("bf16")
)
assert (
    abs(share - 1) < 1e-4
    and 73_728 / even > 4
    and overtaking_length(gpt3, is_causal=True) == 12 * gpt3.hidden
)

# %% A worked example: the layer from the beginning

took = ran["flash attention 96 x 2048 x 128"]
bytes_moved = 2 * flash.elements
assert (
    round(1e6 * flash.flops / h100.rate("bf16")) == 111
    and round(bytes_moved / 1e6) == 957
    and round(1e6 * flash.seconds(h100)) == 286
)
assert (
    h100.memory_bandwidth == 3.35e12 and h100.rate("bf16") == 989e12 and took < flash.seconds(h100)
)
assert (
    round(2 * heads * compulsory(n, n, wide) / 1e6) == 202
    and round(1e6 * 2 * heads * compulsory(n, n, wide) / 3.35e12) == 60
)
sourced(50e6, by="nvidiahopper")
assert 2 * 2 * n * wide == 2**20
plain_took, moved = (
    sum(at for name, at in ran.items() if "flash" not in name),
    2 * sum(k.read + k.written for k in kernels),
)
assert (
    round(2 * heads * n * n / 1e6) == 805
    and round(moved / 1e9, 1) == 3.4
    and round(moved / (2 * heads * compulsory(n, n, wide))) == 17
)
assert (
    round(2 * h100.ridge("bf16")) == 590
    and round(100 * 2 * n * n * wide * heads / 989e12 / took) == 50
    and float(on_h100().torch[:4]) == 2.11
)
skipped = 16**2 / len(tiling(n, n, 128, 128, True).schedule().steps)
assert (
    round(skipped, 1) == 1.9
    and round(plain_took / took / skipped, 1) == 4.1
    and 7.5 < plain_took / took < 8
)
assert (
    round(1e6 * flash.flops / (4 * wide) / (3.9 * 1e12)) == 55
)  # a pair has 4 d FLOPs and one exponential
assert round(1e6 * (ran["scores 96 x 2048 x 128"] + ran["weighted sum 96 x 2048 x 128"])) == 675
assert round(1e6 * ran["softmax 96 x 2048 x 128"]) == 942 and 0.5 < least["softmax"] / 942e-6 < 0.52

# %% In practice

sourced(printed_plain := 40.3, printed_tiled := 4.4, by="dao2022, figure 2, left")
whole = naive_forward_cost(1024, 1024, 64, **gpt2) + naive_backward_cost(1024, 1024, 64, **gpt2)
assert round(2 * whole.elements / 1e9, 1) == 25.2 and round(2 * first.elements / 1e9, 2) == 4.61
assert round(100 * (1 - printed_tiled / (2 * first.elements / 1e9))) == 5
assert (
    round((printed_plain - 2 * whole.elements / 1e9) / (2 * 16 * 64 * 1024**2 / 1e9)) == 7
)  # passes over the table
assert (
    round(
        2
        * sum(
            cost(tiling(1024), 64, "keys", **gpt2).elements
            for cost in (forward_cost, backward_cost)
        )
        / 1e9,
        1,
    )
    == 8.4
)
sourced(2.1, 192, 256, by="flashattn"), sourced(2.13, by="pytorchsdpa")
check_fits(tiling(4096, None, 33, 33), 512, 484 * 1024, backward=True)
assert (
    round(740e12 / h100.rate("fp16"), 2) == 0.75
    and abs(agree - (4 + 12 * 0.82) / 16) < 0.02
    and merged.total == 4096
)
for cost, plain_cost in ((forward_cost, naive_forward_cost), (backward_cost, naive_backward_cost)):
    assert (
        cost(tiling(4096, None, 33, 33), 512).elements
        > plain_cost(4096, 4096, 512, memory=room).elements
    )
lower_right = F.scaled_dot_product_attention(
    q[:, :2, -4:], k, v, attn_mask=causal_lower_right(4, 500)
)
assert torch.allclose(
    lower_right,
    flash_attention(q[:, :2, -4:], k, v, tiles=tiling(4, 500, 4, 64, True, "lower-right")),
)
