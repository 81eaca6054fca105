"""Where the numbers of training_loop.md come from. Each part runs where its section ends."""

from math import log

from dlsys.roofline import on_h100
from dlsys.training_loop import evaluation_share, shapes_of

# %% Updates

assert (
    500 < worth < 600
    and round(worth / 2048, 1) == 0.3
    and round(update_share(16_384, worth), 2) == 0.03
)  # 16 % too high at most, without scores
for name in ("gpt2-xl", "llama2-7b", "gpt3-175b"):
    model = CATALOGUE[name]
    seconds = update_bytes("adamw", [s for kind in shapes_of(model) for s in kind]) / 3.35e12
    passes = model.training_flops(8) / (0.40 * 989e12)
    assert 1 <= update_share(8 * model.sequence, worth) / (seconds / (seconds + passes)) < 1.16
assert (counted.flops, counted.moved, counted.touched) == (14e6, 84e6, 28e6)
assert (
    state_bytes("adamw", [(4096, 4096)]) == 8 * 4096**2
    and round(state_bytes("adamw", [(4096, 4096)]) / 1e6) == 134
)
assert (
    state_bytes("adafactor", [(4096, 4096)]) == 2 * 4 * 4096
    and round(llama.parameters() / 1e9) == 7
)
assert (
    abs(
        (flash - plain) / (3 * sum(spec.operations(8)[n] for n in ("scores", "weighted_sum")))
        - 1 / 6
    )
    < 1e-9
)
assert operations(GPT(spec), (2, 2, 2, 2)) == plain < flash < again < 4 / 3 * plain
assert again - plain == plain / 3 - 8 * 64 * 2 * 64 * (
    256 + 4 * 256
)  # but the head and each layer's last product

took, tensors = on_h100(), len([*GPT(small, device="meta").parameters()])
ms, launch = [1e3 * rung.seconds for rung in took.ladder.values()], 1e3 * took.launches["eager"]
assert h100.rate("bf16") == 989e12 and h100.memory_bandwidth == 3.35e12 and small.sequence == 1024
assert (h100.rate("fp32"), h100.rate("tf32")) == (67e12, 494.5e12) and round(
    h100.rate("bf16") / h100.rate("fp32")
) == 15
assert (
    round(h100.rate("tf32") / h100.rate("fp32"), 1) == 7.4
    and round(needed / 1e12, 1) == 14.0
    and round(small.parameters() / 1e6) == 124
)
assert (
    round(ms[0]),
    round(ms[1]),
    round(ms[-1], 1),
    round(ms[0] / ms[-1], 1),
) == (395, 195, 36.6, 10.8)
assert [
    round(100 * reached(*rungs[name]))
    for name in ("FP32", "BF16 autocast", "padded vocabulary, torch.compile")
] == [53, 8, 39]
fused, lists, loop = (
    1e3 * took.optimizers[f"adamw {how}"] for how in ("fused", "foreach", "for-loop")
)
assert (
    1.4 < fused / priced["fused=True"] < 1.6
    and 1.2 < lists / priced["foreach=True, the default"] < 1.4
    and round(priced["fused=True"], 2) == 1.04
)
assert (
    tensors == 196
    and round(1e3 * launch, 1) == 5.5
    and round(tensors * 8 * launch, 1) == 8.6
    and round(loop, 1) == 14.6
)
assert (
    round(loop - fused, 1) == 13.0
    and round(ms[3] - ms[4], 1) == 5.6
    and round(100 * fused / ms[-1], 1) == 4.3
)
assert (
    round(update_tokens(28, 989e12, 28 * small.parameters() / fused * 1e3, utilization=0.40), -1)
    == 840
)
assert round(took.streams["copy"] / h100.memory_bandwidth, 1) == 0.9

# %% A whole run

assert (
    round(evaluation_share(20, 8, 48), 1) == 0.1
    and round(-log(0.8), 2) == 0.22
    and evaluation_share(1, 1, 3) == 0.5
)
assert (
    220 < fitted.critical_batch < 270
    and round(fitted.critical_batch) == 244
    and (steps[0], steps[2], steps[4]) == (428, 32, 8)
)
assert [round(fit_extremes([4, 64], [428, k]).critical_batch) for k in (33, 32, 31)] == [
    253,
    302,
    374,
] and round(two.least_steps, 1) == 5.6
assert [*best.values()] == [5.6, 22, 64, 90, 128] and AdamW([weights]).defaults["betas"] == (
    0.9,
    0.999,
)
assert (
    noise[0] < fitted.critical_batch < noise[1]
    and heights["AdamW"][-1] < 1e-9
    and round(steep[-1] / steep[0]) == 10_000
)
assert (
    9_000 < heights["AdamW"][0] < 10_000
    and round(heights["SGD"][-1]) == 5
    and last > 2
    and len(steep) == 13
)
assert (
    round(heights["momentum"][-1], 1)
    == round(descend(Quadratic(steep, seed=0), make["momentum"], 300)[-1], 1)
    == 0.3
)
assert round(descend(Quadratic(steep, seed=0), make["SGD"], 300)[-1]) == 5
tuned = lambda seed: min(
    descend(Quadratic(steep, seed=seed), lambda p: AdamW(p, r, weight_decay=0), 300)[-1]
    for r in (0.3, 1.0, 3.0)
)
assert [round(tuned(seed), 1) for seed in (0, 1, 2)] == [0.9, 0.2, 0.7] and 0.85 < (
    two.least_steps + two.least_samples / 1024
) / 8 < 0.95
assert (
    abs(losses["SGD"][3] - losses["SGD"][0]) < 0.1
    and abs(losses["AdamW"][2] - losses["AdamW"][0]) < 0.1
)
assert (
    min(losses["SGD"][1:3]) > losses["SGD"][0] + 0.5
    and losses["AdamW"][1] > losses["AdamW"][0] + 0.5
)

text_seen, few_seen = curves["held back, the text"], curves["held back, 1,000 bytes"]
assert (
    text_seen[-1] < text_seen[0]
    and curves["training, the text"][-1] < curves["training, the text"][0]
)
assert few_seen[-1] > min(few_seen) + 0.3 and curves["training, 1,000 bytes"][-1] < 2
assert after["small letters, then capitals"][0] == 0 and after["mixed"][0] > 0
assert after["small letters, then capitals"][1] > after["mixed"][1] + 0.3
assert after["mixed, a fifth of it noise"][0] > 2 * after["mixed"][0]
assert max(t for t in range(100) if warm_up_stable_decay(t, 100, 10, 20) == 1) == 80
time = lambda size, x=4: (fitted.least_steps + fitted.least_samples / size) * (size + x)
assert min(range(1, 4096), key=time) == round((4 * fitted.critical_batch) ** 0.5)

# %% A worked example: GPT-2 XL, 512 sequences a step, on one H100

whole_batch, double = setting.choice.row(512), setting.choice.row(16)
assert round(row.activations / 1e9) == 22 and 17 < whole_batch.activations / 80e9 <= 18
assert (
    abs(row.seconds - whole_batch.seconds) < 1e-6
    and row.micro_batches == 64
    and round(double.memory / 1e9) == 72
)
assert (
    row.parameters == 10 * CATALOGUE["gpt2-xl"].parameters()
    and CATALOGUE["gpt2-xl"].sequence == 1024
)

# %% In practice

assert round(minutes / 90, 1) == 1.1 and DEVICES["a100-80"].rate("bf16") == 312e12
assert abs(small.training_flops_per_token() / (6 * 124e6 + 12 * 12 * 768 * 1024) - 1) < 0.01
assert (
    round(IronLaw(6 * 124e6 * 10e9, 8 * DEVICES["a100-80"].rate("bf16"), 0.60).seconds / 60) == 83
)
usual = AdamW([weights], lr=3e-3, betas=(0.9, 0.95), weight_decay=0.1)
