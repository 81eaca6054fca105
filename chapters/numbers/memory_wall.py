"""Where the numbers of memory_wall.md come from. Each part runs where its section ends."""

import torch
from torch.utils.checkpoint import checkpoint

from dlsys.attention.measuring import peak_bytes
from dlsys.memory_wall import largest_model
from dlsys.notebook.vouch import given, says, sourced


def update_needs(**how):
    matrices = [torch.nn.Parameter(torch.ones(1000, 1000)) for _ in range(8)]
    for matrix in matrices:
        matrix.grad = torch.ones_like(matrix)
    adamw = torch.optim.AdamW(matrices, **how)
    adamw.step()
    return peak_bytes(adamw.step) / 8e6


# %% Four buckets, counted

assert held == [4 * 1_000_000, 8 * 1_000_000, 4 * 1_000_000] and sum(held) == 16 * 1_000_000
peaks = [max((m for m in moments if m.step == step), key=lambda m: m.total) for step in (0, 1)]
assert [round(m.total / 1e6, 1) for m in peaks] == [3.9, 5.7]
assert all(m.phase == "forward" and not m.gradients for m in peaks)
assert round(100 * (peaks[1].total / peaks[0].total - 1)) == 45
of_second = [m for m in moments if m.step == 1]
together = sum(
    max(getattr(m, b) for m in of_second)
    for b in ("weights", "optimizer", "gradients", "activations")
)
assert round(100 * together / peaks[1].total) == 108
assert of_second[0].optimizer == 3 * moments[0].optimizer


# %% A recipe: which copies

assert round(update_needs(foreach=True), 3) == 4 and update_needs(fused=True) < 1e-3
assert round(4 * CATALOGUE["llama2-7b"].parameters() / 1e9) == 27

weights = torch.linspace(1, 2, 1001)[:-1]


def unchanged(dtype, ratio):
    before = weights.to(dtype)
    return (before - (ratio * weights).to(dtype) == before).float().mean()


assert unchanged(torch.bfloat16, 1e-3) == 1
assert unchanged(torch.float32, 1e-3) == 0
assert [bytes_per_parameter(d) for d in (torch.float32, torch.bfloat16)] == [16, 8]
assert before == after == 16 * gpt2 and round(after / 1e9, 1) == 24.9
gap = torch.finfo(torch.bfloat16).eps  # from 1 to the next number
assert (round(100 * gap / 2, 1), round(100 * gap, 1)) == (0.4, 0.8)

stack = [torch.nn.Linear(1000, 1000, bias=False) for _ in range(16)]


def forward(cache):
    x = torch.ones(8, 1000, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=cache):
        for part in stack:
            x = checkpoint(part, x, use_reentrant=False)


casts = [peak_bytes(lambda: forward(cache)) / 16e6 for cache in (True, False)]
assert round(casts[0], 1) == 2 and casts[1] < 0.2

# %% What it costs: how many devices, at least

sourced(85.5, by="belotti")
assert 5.5 == shares[1][0] == 2 + 2 + 12 / 8
assert round(16 / shares[1][0], 2) == 2.91
assert largest_model(80e9, devices=8) == 40e9
assert (
    largest_model(24e9) == 1.5e9
    and DEVICES["rtx-4090"].memory == 24e9 < states["mixed-adamw"].total
)
assert h100.memory == 80 * 10**9 and 0.9 * h100.memory == 72e9
assert RECIPES["mixed-adamw-fp32-gradients"].total == 18

# %% The fourth bucket: activations

each = [
    sorted(
        n / sbh
        for name, n in one.terms.items()
        if name.startswith(half) and "probabilities" not in name
    )
    for half in ("attention", "ffn")
]
assert each == [[1, 2, 2, 2, 2, 2, 2], [1, 2, 2, 8, 8]] and [sum(n) for n in each] == [13, 21]
scores = 5 * spec.heads * spec.sequence**2
assert one.per_layer == 34 * sbh + scores == 114 * sbh and scores == 80 * sbh
of_eight = activations(spec, batch=1, tensor_parallel=8).terms
ten = [n // sbh for term, n in one.terms.items() if of_eight[term] == n]
assert sorted(ten) == [1, 1, 2, 2, 2, 2] and sum(ten) == 10
assert sum(of_eight.values()) == 23 * sbh and [round(100 * x, 1) for x in again[3:]] == [
    0.9,
    0.4,
    33.2,
]
assert (spec.layers, spec.heads, spec.hidden, spec.sequence) == (96, 96, 12_288, 2048)
assert one.total > 3 * 80e9 and round(one.total / 1e9) == 275
assert round(2 * spec.parameters(), -10) == 350e9 and round(100 * again[-1]) == 33

# %% The wall of time

by_rule = [m.approximate_training_flops(m.sequence) / m.training_flops(1) for m in models]
assert round(min(by_rule), 2) == 0.88 and round(max(by_rule), 2) == 0.97
assert [row[1:] for row in rows[:2]] == [[1, 1], [2, 12]]
per_square = 120 / (R * 0.4 * 14 * DAY)
assert round(16 / 80e9 / per_square / 1e9, 1) == 0.8 and round(per_square**-0.5 / 1e9, 1) == 2.0
assert all(ceil(per_square * (n * 1e8) ** 2) > devices_needed(n * 1e8) for n in range(20, 4000))
assert round(training_seconds(1e20, R, 0.3) / training_seconds(1e20, R, 0.4), 2) == 1.33
assert (
    R == 989e12
    and round(6e20 / (training_seconds(8e20, R, utilization=0.40) * R), 2) == 0.30
    and int(100 * 430e12 / R) == 43  # 33: the source of 5,762 tokens a second
)  # at most, Llama 3

# %% The wall of money and energy

assert (round(3 * hours / 1e6, 2), round(3 * hours / 0.9 / 1e6, 2)) == (1.77, 1.97)

# %% A worked example: the 7 billion, on one device and on eight

alone = fits(llama, h100, recipe="fp32-8bit-adam", flash=True)
assert not alone and alone.held["activations"] > 20e9
assert [bool(fit) for fit in plans.values()] == [False, False, False, True, True]
totals = [round(fit.total / 1e9, 1) for fit in plans.values()]
says("plan takes 70.1 GB", totals[3])
says("in place of 164", totals[0])
assert (
    71.3 == totals[4] < 72
    and round(2 * llama.parameters() / 1e9, 1) == 13.5 > plans[list(plans)[3]].free / 1e9
)
assert [round(totals[i]) for i in (0, 3, 4)] == [164, 70, 71]
of_loss = 3 * activations(llama, 1, dropout=False, **full).of_loss / 2
assert of_loss > plans[list(plans)[3]].held["activations"] / 2
assert [round(d) for d in dollars.values()] == [15_304, 11_478] and dollars[8] / dollars[1] == 0.75
took = [training_seconds(f * N * D, R, 0.4, n) / DAY for n, f in ((1, 8), (8, 6))]
assert (
    [round(t) for t in took] == [213, 20]
    and round(took[1] / 0.75) == 27
    and round(dollars[8] / 0.75) == round(dollars[1])
)


def start(saving, sequence):
    return explore(
        model="llama2-7b", recipe="fp32-8bit-adam", saving=saving, sequence=sequence
    ).choice


def takes(saving, sequence):
    return sum(start(saving, sequence).row().buckets.values()) / 1e9


assert 0.9 * h100.memory / 1e9 < round(takes("recompute every layer", 8192), 1) == 76.2
assert takes("recompute every layer", 16_384) > 80
assert round(start("recompute every layer", 16_384).activations().recomputed / 1e9, 1) == 19.6

# %% The same with PyTorch

given(2.13)  # PyTorch's

layer = (llama.parameters() - 2 * llama.vocab * llama.hidden) / llama.layers
assert round((2 * 2 + 2 + 4) * layer / 1e9) == 2  # two layers' casts, gradients in 16 and 32 bits

# %% Where it breaks

assert total == 256 and torch.tensor(257.0).bfloat16() == 256
assert (
    round(3 * logits / 1e9, 1) == 12.6 and 3 * logits > h100.memory / 7 and llama3.vocab == 128_256
)


def of_loss():
    scores = torch.zeros(64, 1000, requires_grad=True)
    torch.nn.functional.cross_entropy(scores, torch.zeros(64, dtype=torch.long)).backward()


made = peak_bytes(of_loss) / (64 * 1000 * 4) - 1  # without the scores themselves
assert round(made, 2) == 3 and logits == 4 * llama3.sequence * llama3.vocab

# %% Decide, in this order

kept_by = activations(llama, 1, flash=True, dropout=False).terms
by_element = [
    kept_by[f"ffn.{name}"] / (4096 * 4096) for name in ("activation_output", "down_input")
]
assert sum(by_element) == 10.75 and sum(kept_by.values()) / 4096**2 == 37.5
