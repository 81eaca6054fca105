"""Where the numbers of roofline.md come from. Each part runs where its section ends."""

from dlsys.model import SMALL
from dlsys.notebook.vouch import sourced
from dlsys.roofline import Tile, conv2d, tiled

# %% Plan: operations as data

assert (
    round(h100.rate("bf16") / 1e12) == 989
    and 0.985 < 768 / 2 / (queries.intensity + 4) < 1.005
    and h100.rate("fp32") / 1e12 == 67
    and h100.memory_bandwidth / 1e12 == 3.35
)
assert (
    round(layer[2].intensity) == round(measured["scores"].operation.intensity) == 57
    and xl.head_size == 64
)
shares = [run.share(h100) for run in measured.values()]
assert (
    round(100 * min(shares)) == 39
    and took.operations["square 8192"].operation.flops == 2 * 8_192**3
    and round(100 * max(shares)) == 90
    and round(100 * measured["ReLU"].share(h100)) == 89
)
assert (
    round(took.formats["bf16"] / 1e12) == 742
    and round(100 * took.formats["bf16"] / h100.rate("bf16")) == 75
)
sourced(792, by="bekman2024")
assert (
    round(took.operations["square 8192"].rate / 1e12) == 694
    and round(measured["ReLU"].rate / 1e12, 1) == 0.7
)
weights = [o for o in layer if o.name in ("qkv", "output", "up", "down")]
others = [o for o in layer if o not in weights]
assert (
    round(sum(o.flops for o in weights) / 1e12, 2) == 2.01
    and round(sum(o.nbytes for o in others) / 1e9, 1) == 9.0
)
assert (
    round(sum(o.flops for o in others) / 1e12, 2) == 0.22
    and 0.5 < priced.share("bandwidth") < 0.6
    and 0.09 < sum(o.flops for o in others) / priced.flops < 0.11
)
on_a100 = price(layer, a100)
assert round(100 * on_a100.flops / on_a100.seconds / a100.rate("bf16")) == 66

# %% Tiles and waves

assert [round(h100.rate("bf16") / LINKS[link].bandwidth) for link in names] == [
    2198,
    19_780,
] and round(h100.ridge("bf16")) == 295
assert (
    round(axis_ridge("tensor", rate, LINKS["infiniband-ndr"].bandwidth, 8))
    == 12_308
    < CATALOGUE["llama3-405b"].hidden
)
assert place(matmul(1, 8192, 8192), h100).rate < h100.rate("bf16") / 290
micro = {b: round(1e6 * run.seconds) for b, run in few.items()}
assert (micro[1], micro[256], micro[320]) == (393, 449, 596) and round(
    100 * (few[256].seconds / few[1].seconds - 1)
) == 14
assert max(b for b in few if b <= 256) - min(few) == 255 and round(llama.parameters() / 1e9) == 7
llamas = {o.name: o for o in layer_operations(llama, 1, 1, 512)}
held = sum(llamas[name].read for name in ("qkv", "output", "up", "gate", "down"))
assert (
    round(held / 1e6) == 405
    and round((llamas["scores"].read + llamas["weighted sum"].read) / 1e6, 1) == 8.4
)
assert 64 * (llamas["scores"].read + llamas["weighted sum"].read) > held
assert (
    round((sum(o.nbytes for o in layer_operations(llama, 64, 1, 512)) - held) / 64e6 - 8.4, 1)
    == 0.4
)

two, three = (tiled(m, 4096, 2048, Tile(128, 256), PROCESSORS["h100-sxm"]) for m in (4224, 4352))
assert (two.waves, three.waves, two.tiles, PROCESSORS["h100-sxm"].multiprocessors) == (
    2,
    3,
    33 * 8,
    132,
)
assert [
    tiled(128 * n, 4096, 256, Tile(128, 256), PROCESSORS["h100-sxm"]).waves for n in (132, 133)
] == [1, 2]
assert (
    choose_tile(4352, 4096, 2048, PROCESSORS["h100-sxm"])[:3] == (Tile(128, 128), 544, 5)
    and three.seconds == 1.5 * two.seconds
)
assert (
    stairs[4352] == 1.25 * stairs[4224]
    and round(1e6 * took.waves[4224].seconds, 1) == 92.0
    and round(100 * (took.waves[4352].operation.flops / took.waves[4224].operation.flops - 1)) == 3
)
jumps = {m: took.waves[m + 128].seconds / took.waves[m].seconds for m in range(4224, 6400, 128)}
assert (
    sorted(sorted(jumps, key=jumps.get)[-3:])
    == [4224, 5248, 6272]
    == [m for m in jumps if stairs[m + 128] > 1.1 * stairs[m]]
)
assert [
    (round(jumps[m], 2), round(stairs[m + 128] / stairs[m], 2)) for m in (4224, 5248, 6272)
] == [(1.19, 1.25), (1.25, 1.20), (1.18, 1.17)]
assert (
    took.waves[7040].seconds > 1.15 * took.waves[6912].seconds
    and stairs[7040] == stairs[6912]
    and stairs[7360] > stairs[7296]
)
assert (
    stairs[1088] > 1.8 * stairs[1024]
    and took.waves[1152].seconds < 1.1 * took.waves[1024].seconds
    and round(max(m for m in stairs if stairs.get(m - 64, 1) * 1.4 < stairs[m]), -2) == 2200
)
assert round(100 * 2 * 4224 * 4096 * 2048 / took.waves[4224].seconds / h100.rate("bf16")) == 78
off = {m: run.seconds / stairs[m] - 1 for m, run in took.waves.items() if m >= 2048}
assert (
    sorted(map(abs, off.values()))[len(off) // 2] < 0.06
    and min(off, key=off.get) == 2176
    and round(100 * off[2176]) == -27
)

# %% Fusion

assert (
    4.4 < eager.nbytes / fused.nbytes < 4.6
    and round(took.fusion["eager"] / took.fusion["compiled"], 2) == 4.37
)
assert len(count_operations(lambda: chain(x, u)).operations) == 4 and [
    round(count.nbytes / x.nbytes) for count in (eager, fused)
] == [9, 2]
image, kernel = torch.ones(8, 64, 56, 56), torch.ones(64, 64, 3, 3)
direct, product = (
    count_operations(lambda f=f: f(image, kernel, padding=1)).total for f in (F.conv2d, conv2d)
)
assert (
    10.5 < product.nbytes / direct.nbytes < 11.5
    and round(product.nbytes / image.nbytes) == 22
    and product.flops == direct.flops
)

# %% The ladder

assert (
    abs(palm.mfu() - 0.462) < 0.0005
    and abs(palm.mfu(attention=False) - 0.457) < 0.0005
    and palm.devices == 6144
)
assert (
    palm.tokens_per_second == 238_300
    and megatron.flops_per_second / 1e12 == 153
    and round(a100.rate("bf16") / 1e12) == 312
    and round(megatron.spec.parameters(), -9) == 175e9
    and DEVICES["tpu-v4"].rate("bf16") / 1e12 == 275
)
assert (
    round(rate["FP32"] / 1e12) == 35
    and round(rate["torch.compile"] / 1e12) == 382
    and round(1e3 * rungs["fused AdamW"].seconds, 1) == 83.0
)
assert (
    plain.product_flops == rungs["FP32"].flops == small.training_flops(16)
    and small.sequence == 1024
    and max(took.vocabulary) - min(took.vocabulary) == 47
)

head = {n: 3 * 2 * 16 * 1024 * 768 * n for n in (50_257, 50_304)}
assert round(head[50_257] / 1e12, 1) == 3.8 and [
    round(run.rate / 1e12) for run in took.vocabulary.values()
] == [135, 690]
assert (
    round(
        1e3
        * (
            head[50_257] / took.vocabulary[50_257].rate
            - head[50_304] / took.vocabulary[50_304].rate
        ),
        1,
    )
    == 22.5
)
assert (
    round(100 * (rungs["torch.compile"].flops / rungs["FP32"].flops - 1), 2) == 0.03
    and 0.3 < 1 - rate["fused AdamW"] / rate["vocabulary of 50,304"] < 0.33
)
seconds = [1e3 * rung.seconds for rung in rungs.values()]
assert (
    round(ms["fp32"] - ms["tf32"]) == 181
    and round(seconds[0] - seconds[1]) in (199, 200)
    and 0.48 < 1 - seconds[3] / seconds[2] < 0.5
)
assert (
    round(100 * (1 - flash.total.nbytes / plain.total.nbytes)) == 67
    and round(seconds[3] - seconds[4], 1) == 5.6
    and small.vocab == 50_257
    and small.vocab % 2 == 1
)
assert [
    round(1e3 * took.optimizers[f"adamw {how}"], 1) for how in ("fused", "foreach", "for-loop")
] == [1.6, 4.0, 14.6]
assert [
    round(rungs[name].peak_bytes / 1e9, 1) for name in ("vocabulary of 50,304", "torch.compile")
] == [17.8, 9.1]
assert (
    round(1e3 * rungs["torch.compile"].flops / took.formats["bf16"], 1) == 18.9
    and round(seconds[-1], 1) == 36.6
)
sourced(16, 8, by="nvidia2023matmul")
assert round(seconds[-2] - seconds[-1], 1) == 20.7
assert [round(100 * s.lost / 989e12) for s in stairs] == [25, 36, 14, 8, 1, 8, 1, 4] and stairs[
    -1
].after < 0.04 * 989e12

# %% In practice

sourced(64, printed := 29, by="pope2022, abstract")  # ms a token
weights_alone = palm.spec.parameters() / (64 * tpu.memory_bandwidth)
assert (
    4 < printed / (1e3 * weights_alone) < 4.2
    and palm.spec.layers == 118
    and round(palm.spec.parameters() / 1e9) == 540
)
assert tpu.memory_bandwidth == 1.2e12
assert [round(1e6 * took.launches[how], 1) for how in ("eager", "graph")] == [5.5, 1.0] and (
    SMALL.layers,
    SMALL.hidden,
) == (4, 64)
at_most = price(plain.operations, h100, "tf32")
assert round(100 * plain.product_flops / at_most.seconds / h100.rate("tf32")) == 25
pieces = count_step(small, 16, flash=False, fused=False)
assert (
    round(
        100
        * pieces.product_flops
        / price(pieces.operations, h100, "tf32").seconds
        / h100.rate("tf32")
    )
    == 25
)
tensors, rest = divmod(
    len(pieces.operations) - len(plain.operations) + 2, 9
)  # of a tensor's nine operations one is the host's own count of steps
assert rest == 0 and 8 * tensors * took.launches["eager"] > took.optimizers["adamw for-loop"] / 2
assert round(100 * rungs["TF32"].flops / rungs["TF32"].seconds / h100.rate("tf32")) == 14
