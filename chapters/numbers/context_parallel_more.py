"""Where the numbers of context_parallel_more.md come from. Each part runs where its section ends."""

from dataclasses import replace

from dlsys.notebook.vouch import given, says, sourced
from dlsys.transformer import CATALOGUE
from dlsys.transformer.activations import activations

# %% Stripes, and packed documents

given(8192)
sourced(3, 30, 1.67, 4, 32_768, by="pithtrain2026")
fast, slow = (layout(4 * 1024, 4, kind).balance for kind in ("zigzag", "contiguous"))
says("ranks 1.75", fast / slow)
assert percent["one", "zigzag"] > 99
assert percent["three", "zigzag"] < 75
assert min(percent[many, "striped"] for many in packed) > 95
assert percent["thirty-two", "contiguous"] == 100
assert percent["three", "contiguous"] < 75
assert min(percent[many, "zigzag each"] for many in packed) > 99
for documents in packed.values():
    by_document(documents, 8).check()

# %% How long can a sequence be?

sourced(3, by="grattafiori2024")
eight = CATALOGUE["llama3-8b"]
most = activations(replace(eight, sequence=180_000), 1, recompute="full", flash=True)
says("some 180 thousand", 180 * round(80e9 / (most + most.recomputed)))
alone_at = activations(replace(eight, sequence=14_000), 1, flash=True)
says("about 14 thousand", 14 * round(80e9 / alone_at))

# %% Llama 3's 38 percent

sourced(3, 41, 8192, 38, 131_072, 16e6, by="grattafiori2024")
says("has 16 heads", one_of_eight.heads)
assert one_of_eight.kv_heads == 1
assert 0.4 < scores / (matrices + scores) < 0.5
assert 36.5 < predicted < 37.5

# %% DeepSpeed-Ulysses' seconds

sourced(7, 64, 128, 256, 131_072, 32.43, 17.05, 9.89, 165.5, 157.4, 136.1, 3, by="jacobs2023")
for devices, published in ((64, 165.5), (128, 157.4), (256, 136.1)):
    assert abs(work / devices / took[devices] / 1e12 / published - 1) < 2e-3
assert gpt.heads == 32
given(8, 16, 32)
assert abs(foretold[128] / took[128] - 1) < 0.01
assert 0.88 < foretold[256] / took[256] < 0.91
