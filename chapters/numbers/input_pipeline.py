"""Where the numbers of input_pipeline.md come from. Each part runs where its section ends."""

import math
from dataclasses import replace

from dlsys.input_pipeline import exponential_utilization, workers_needed
from dlsys.input_pipeline.tokens import token_bytes
from dlsys.notebook.vouch import sourced
from dlsys.transformer import CATALOGUE

# %% Memory

assert simulate(large, 40).peak_bytes == large.price().memory_bytes == 9 * 256 * 3 * 1024**2
assert (
    round(large.price().memory_bytes / 1e9, 1) == 7.2
    and round(large.price().memory_bytes / 9 / 1e9, 1) == 0.8
)
floats = replace(
    large, stages=(replace(load, sample_bytes=4 * load.sample_bytes), large.stages[1])
).price()
assert (
    round(floats.memory_bytes / 1e9) == 29
    and round(floats.memory_bytes / 9 * floats.batches_ahead / 1e9) == 26
)
assert round(1000 * evaluation.first_batch_seconds) == 655 and LINKS["pcie4"].bandwidth == 31.5e9
assert round(1000 * images(4).seconds()["transform"]) == 640 and workers_needed(0.640, 0.080) == 8
assert round(1000 * fused(images(1).stages[:2], "load").seconds(64)) == 654
assert workers_needed(0.654, 0.080) == 9 and images(8).price().bottleneck in ("step", "transform")
assert 4 < images(4).price().samples_per_second / alone.price().samples_per_second < 5

# %% Price: when times vary

assert (
    round(100 * exponential_utilization(1.0, ahead=16)) == 94
    and exponential_utilization(1.0, ahead=2) == 0.75
)
assert (
    abs(used(1, 1, 2, 1, 1, 20_000) - 0.75) < 0.02
    and abs(used(8, 8, 2, 1, 1, 20_000) - 0.56) < 0.03
)
assert all(found[v, w, p] < 0.98 for v, w, p in found if w == 8)
assert all(found[v, w, p] > 0.95 for v, w, p in found if w > 8 and p >= prefetch_needed(v, w / 8))
assert prefetch_needed(1 / 64**0.5, 1.25) == prefetch_needed(0.5, 1.5) == 2
assert prefetch_needed(1.0, 1.25) == 8 * 1.0**2 / (2 * (1.25 - 1))

# %% Formats: from text to rows of tokens

assert (
    58 < 100 * padding_share(lengths, 2048) < 62 and order.samples - order.steps * order.batch == 8
)
assert [token_bytes(vocab) for vocab in (65_536, 65_537)] == [2, 4]
assert round(100 * sum(max(0, n - 2048) for n in lengths) / sum(lengths)) == 18
integral = 63 * sum(
    (1 - x / 1000) * math.exp(-x / 10_000) / 10_000 for x in (n + 0.5 for n in range(1000))
)
assert (
    round(integral, 2) == 3.05 and round(100 * run_mates(1000, 10**6, 64), 2) == 3.15
)  # a buffer as long as the right side wants
assert abs(run_mates(1000, 1000, 64) - 63 / math.e) < 0.1
buffered = given["buffer of 10,000"]  # once no sample of the first filling is held, and at first
assert round(mates(buffered), 1) == 3.2 and 1.8 < mates(buffered[:640]) / 3.15 < 2.1
assert abs(mates(buffered[20_000:]) - 3.05) < 0.05
assert (nvme.latency, nvme.bandwidth) == (80e-6, 3.5e9)
assert (
    round(seeks(read["permutation"]) * nvme.latency) == 8
    and round(1e5 * 110e3 / nvme.bandwidth) == 3
)
assert b"".join(map(tokenizer.decode, coded)) == "".join(documents).encode()

# %% A worked example: what must storage deliver?

gaps = [1 - predicted[name] / measured[name] for name in predicted]
assert [round(100 * gap) for gap in gaps] == [28, 37]
assert [round(1000 * (measured[name] - predicted[name]) / 2) for name in predicted] == [40, 67]
assert round(tokens_a_second * 4 / 1e6, 1) == 10.8
sourced(16_384, 400e12, by="grattafiori2024, table 4")
sourced(16_200, by="mosaicffcv")
photographs, transforms, *_ = images(1).stages
assert round(storage_bandwidth(16_200, photographs.sample_bytes) / 1e9, 1) == 1.8
assert round(transforms.sample_seconds * 16_200) == 162
assert CATALOGUE["llama3-405b"].vocab == 128_256 and token_bytes(128_256) == 4
assert [round(100 * x) for x in (lru_hits(0.5), 1 - lru_hits(0.5))] == [15, 85]

# %% Where it breaks

assert len(set(source) - set(seen)) > 0 and len(seen) > len(set(seen))
sourced(64e6, by="dockerrun")
