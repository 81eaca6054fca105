"""Operations and training steps on one GPU, in JSON: what chapters hold prices against.

    python bench/h100.py > bench/h100.json      four minutes on an H100

Seconds are the median of repeats between events of the GPU's own clock, on random numbers (a
product of zeros runs a sixth faster); a step's are the mean of six, after three. bench/h100.json
is from an H100 SXM of 80 GB at 1,980 MHz and 700 W with torch 2.11.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch.nn import functional as F

from dlsys.model import GPT
from dlsys.recomputation import Plan, Recomputing, every_layer, keep_all, segments, selective
from dlsys.transformer import CATALOGUE, TransformerSpec

BF16 = torch.bfloat16


def seconds(run: Callable[[], Any], repeats: int = 15, often: int = 5) -> float:
    """The median of `repeats` measurements, each of `often` calls."""
    found = []
    for repeat in range(3 + repeats):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(often):
            run()
        end.record()
        end.synchronize()
        if repeat >= 3:
            found.append(begin.elapsed_time(end) / 1e3 / often)
    return sorted(found)[repeats // 2]


def random(*shape: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", dtype=dtype)


def product(m: int, k: int, n: int, dtype: torch.dtype = BF16, batch: int = 0) -> float:
    """Seconds of (m, k) times (k, n), `batch` times side by side."""
    some = (batch,) if batch else ()
    a, b, c = (random(*some, *each, dtype=dtype) for each in ((m, k), (k, n), (m, n)))
    return seconds(lambda: torch.matmul(a, b, out=c))


def streams() -> dict[str, float]:
    """Bytes/s of streams over tensors of 1 GiB."""
    a, b, c = (torch.rand(2**28, device="cuda") for _ in range(3))
    runs = {
        "copy": (2, lambda: c.copy_(a)),
        "add": (3, lambda: torch.add(a, b, out=c)),
        "triad": (3, lambda: torch.add(a, b, alpha=3.0, out=c)),
    }
    return {name: times * a.nbytes / seconds(run) for name, (times, run) in runs.items()}


def formats() -> dict[str, float]:
    """FLOP/s of products of 8,192 by 8,192."""
    n, found = 8192, {}
    kinds = {"bf16": (BF16, False), "fp16": (torch.float16, False)}
    kinds |= {"fp32": (torch.float32, False), "tf32": (torch.float32, True)}
    for name, (dtype, short) in kinds.items():
        torch.backends.cuda.matmul.allow_tf32 = short
        found[name] = 2 * n**3 / product(n, n, n, dtype)
    a, b = random(n, n).to(torch.float8_e4m3fn), random(n, n).to(torch.float8_e4m3fn).t()
    one = torch.ones((), device="cuda")
    scaled = {"scale_a": one, "scale_b": one, "out_dtype": BF16}
    found["fp8"] = 2 * n**3 / seconds(lambda: torch._scaled_mm(a, b, **scaled))
    return found


def operations() -> dict[str, float]:
    """Seconds of operations in BF16, by name: (tokens, hidden) is (16384, 12288) where none is."""
    t, h = 16_384, 12_288
    x, y, weight, bias = random(t, h), random(t, h), random(h), random(h)
    ids, table = torch.randint(50_257, (t,), device="cuda"), random(50_257, h)
    found = {
        f"qkv {tokens} x {hidden}": product(tokens, hidden, 3 * hidden)
        for tokens, hidden in ((32_768, 768), (32_768, 1600), (2048, 12_288))
    }
    for s, d, heads in ((1024, 64, 384), (2048, 128, 96)):
        rows, name = random(heads, s, s), f"{heads} x {s} x {d}"
        q, k, v = (random(1, heads, s, d) for _ in range(3))
        found[f"scores {name}"] = product(s, d, s, batch=heads)
        found[f"weighted sum {name}"] = product(s, s, d, batch=heads)
        found[f"softmax {name}"] = seconds(lambda rows=rows: torch.softmax(rows, -1))
        found[f"flash attention {name}"] = seconds(
            lambda q=q, k=k, v=v: F.scaled_dot_product_attention(q, k, v, is_causal=True)
        )
    runs = {
        "layer norm": lambda: F.layer_norm(x, (h,), weight, bias),
        "gelu": lambda: F.gelu(x),
        "gelu tanh": lambda: F.gelu(x, approximate="tanh"),
        "relu": lambda: F.relu(x),
        "sigmoid": lambda: torch.sigmoid(x),
        "tanh": lambda: torch.tanh(x),
        "add": lambda: torch.add(x, y, out=x),
        "dropout": lambda: torch.native_dropout(x, 0.1, True),
        "embedding": lambda: F.embedding(ids, table),
    }
    return found | {name: seconds(run) for name, run in runs.items()}


def fusion() -> dict[str, float]:
    """Seconds of gelu(x + u) / 2 + x on (16384, 12288), operation by operation and compiled."""
    x, u = random(16_384, 12_288), random(12_288)

    def chain(x: torch.Tensor) -> torch.Tensor:
        return F.gelu(x + u) * 0.5 + x

    compiled = torch.compile(chain)
    return {"eager": seconds(lambda: chain(x)), "compiled": seconds(lambda: compiled(x))}


def launches() -> dict[str, float]:
    """Seconds of an operation on one number, one after the other and as a CUDA graph."""
    x = torch.ones(1, device="cuda")

    def many() -> None:
        for _ in range(1000):
            torch.add(x, x, out=x)

    many()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        many()
    runs = {"eager": many, "graph": graph.replay}
    return {name: seconds(run, often=1) / 1000 for name, run in runs.items()}


def optimizers() -> dict[str, float]:
    """Seconds of an update of GPT-2's 124 million parameters in FP32."""
    shapes = [p.shape for p in GPT(CATALOGUE["gpt2-small"], device="meta").parameters()]
    parameters = [random(*shape, dtype=torch.float32) for shape in shapes]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    kinds = {"for-loop": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}
    found = {}
    for name, how in kinds.items():
        optimizer = torch.optim.AdamW(parameters, **how)
        found[f"adamw {name}"] = seconds(optimizer.step)
    return found


def step(
    spec: TransformerSpec,
    batch: int,
    plan: Plan | None = None,
    dtype: torch.dtype = torch.float32,
    short: bool = True,
    autocast: bool = False,
    flash: bool = False,
    fused: bool = True,
    compiled: bool = False,
    dropout: float = 0.0,
) -> dict[str, float]:
    """Seconds of a training step with AdamW, its FLOPs as the model needs them, and peak bytes."""
    torch.cuda.empty_cache()
    torch.backends.cuda.matmul.allow_tf32 = short
    model = GPT(spec, flash=flash, dropout=dropout).to("cuda", dtype)
    how = {"fused": True} if fused else {"foreach": False}
    optimizer = torch.optim.AdamW(model.parameters(), **how)
    run: Any = model if plan is None else Recomputing(model, plan)
    if compiled:
        run = torch.compile(run)
    text = torch.randint(spec.vocab, (batch, spec.sequence + 1), device="cuda")
    for number in range(9):
        if number == 3:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            begin = time.perf_counter()
        optimizer.zero_grad()
        with torch.autocast("cuda", BF16, enabled=autocast):
            loss = run(text[:, :-1], text[:, 1:])
        loss.backward()
        optimizer.step()
    torch.cuda.synchronize()
    took = (time.perf_counter() - begin) / 6
    peak = torch.cuda.max_memory_allocated()
    return {"seconds": took, "flops": spec.training_flops(batch), "peak_bytes": peak}


def ladder() -> dict[str, dict[str, float]]:
    """Steps of GPT-2 small, 16 sequences: each rung adds one thing to those before."""
    small = replace(CATALOGUE["gpt2-small"], sequence=1024)
    padded, how = replace(small, vocab=50_304), {"short": False, "fused": False}
    rungs: dict[str, dict[str, Any]] = {
        "FP32": {},
        "TF32": {"short": True},
        "BF16 autocast": {"autocast": True},
        "flash attention": {"flash": True},
        "fused AdamW": {"fused": True},
        "vocabulary of 50,304": {"spec": padded},
        "torch.compile": {"compiled": True},
    }
    found, now = {}, {"spec": small, "batch": 16, **how}
    for name, change in rungs.items():
        now |= change
        found[name] = step(**now)
    return found


def recomputation() -> dict[str, dict[str, float]]:
    """Steps of twelve layers of GPT-2 XL, 8 sequences, BF16, dropout, under plans."""
    twelve = replace(CATALOGUE["gpt2-xl"], layers=12, sequence=1024)
    plans = {"keep all": keep_all(12), "selective": selective(12)}
    plans |= {"3 segments": segments(12, 3), "every layer": every_layer(12)}
    return {
        name: step(twelve, 8, keep_all(1) + plan + keep_all(1), BF16, dropout=0.1)
        for name, plan in plans.items()
    }


PARTS: dict[str, Callable[[], Any]] = {
    "streams": streams,
    "formats": formats,
    "squares": lambda: {n: product(n, n, n) for n in (256, 512, 1024, 2048, 4096, 8192, 16_384)},
    "operations": operations,
    "decode": lambda: {
        b: product(b, 12_288, 49_152)
        for b in (1, 4, 16, 64, 128, 192, 256, 320, 384, 512, 768, 1024, 2048)
    },
    "waves": lambda: {m: product(m, 4096, 2048) for m in range(256, 8193, 128)},
    "vocabulary": lambda: {n: product(8192, 1600, n) for n in (50_257, 50_304)},
    "fusion": fusion,
    "launches": launches,
    "optimizers": optimizers,
    "ladder": ladder,
    "recomputation": recomputation,
}


if __name__ == "__main__":
    if not torch.cuda.is_available():
        sys.exit("This measures a GPU that CUDA reaches, and there is none.")
    found: dict[str, Any] = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    for part in sys.argv[1:] or PARTS:
        found[part] = PARTS[part]()
        torch.cuda.empty_cache()
        print(part, file=sys.stderr)
    print(json.dumps(found, indent=1))
