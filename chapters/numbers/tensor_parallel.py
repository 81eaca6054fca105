"""Where the numbers of tensor_parallel.md come from. Each part runs where its section ends."""

from dlsys.hardware import Link, dgx_a100, dgx_b200
from dlsys.notebook.vouch import given, sourced
from dlsys.tensor_parallel import (
    TensorParallelGPT,
    activation_bytes,
    all_reduce_bytes,
    communication_over_compute,
    layout,
    seconds_in_pieces,
    step_bytes,
)

message = all_reduce_bytes(tokens=2048, hidden=12288)  # GPT-3, one sequence


# %% Why it is right


def one_step(comm, sequence_parallel):
    TensorParallelGPT(small, comm, sequence_parallel)(text, text).backward()


# The price adds up latencies; in a run those of two of the loss's messages overlap.
link = Link("NVLink without latency", latency=0.0, bandwidth=450e9)
for sp in (False, True):
    run, cut = world.simulate(one_step, 4, link=link, args=(sp,)), layout(small, 4, sp)
    price = cut.price(batch=2, link_or_cluster=link, itemsize=4)
    said = [call.kind for call in run.traffic.calls if call.rank == 0]
    assert said == [c.kind for c in cut.collectives()]
    assert run.traffic.sent == [price.bytes_per_rank] * 4
    assert abs(run.seconds / price.seconds - 1) < 1e-9

# %% What it costs: seconds

assert message == 2 * 2048 * 12288
assert step_bytes(96, 64, 2048, 12288) / step_bytes(96, 8, 2048, 12288) == 1 + 1 / 8
assert (
    round(R / pod.intra.bandwidth, -2) == 2_200 and pod.intra.bandwidth / pod.inter.bandwidth == 9
)
laws = {
    t: communication_over_compute(12_288, t, R, pod.intra if t <= 8 else pod.inter)
    for t in (2, 4, 8, 16)
}
rings = {t: prices[t, "ring"] for t in laws}
assert all(abs(rings[t].compute_seconds * laws[t] / rings[t].seconds - 1) < 0.03 for t in laws)
assert [round(100 * p.share, 1) for p in rings.values()] == [3.8, 10.6, 22.1, 84.5]
best = prices[8, "best"]
assert [round(100 * x, 1) for x in (laws[8], best.seconds / best.compute_seconds)] == [27.8, 27.6]
gated = layout(replace(CATALOGUE["llama3-8b"], sequence=8192), 8).price(1, pod, algorithm="best")
pair = communication_over_compute(4096, 8, R, pod.intra), gated.seconds / gated.compute_seconds
assert [round(100 * x) for x in pair] == [83, 57]

assert round(step[1, "ring"], 1) == 2.2 and round(step[8, "best"] / step[16, "best"], 2) == 1.33
lost = [round(100 * (1 - step[8, way] / step[16, way] / 2)) for way in ("best", "ring")]  # a device
assert lost == [33, 80] and round(pod.device.rate("fp8") / R) == 2
llama = layout(CATALOGUE["llama3-70b"], 16)
assert (llama.spec.heads, llama.spec.kv_heads, llama["layers.0.attention.key.weight"].pieces) == (
    64,
    8,
    8,
)
sourced(of_8 := 10_903.32, of_16 := 6245.6, by="tazi2025, its bars")  # tokens a second and device
assert round(100 * (1 - of_16 / of_8)) == 43
for h, most in ((12_288, 7), (8_192, 5), (4_096, 3)):
    assert (
        communication_over_compute(h, most, R, pod.intra)
        < 1 / 4
        < communication_over_compute(h, most + 1, R, pod.intra)
    )
per_layer = 12 * gpt3.hidden**2
assert round(per_layer / 1e9, 1) == 1.8 and round(16 * per_layer / 1e9) == 29
assert pod.device.memory == 80e9

# %% Who waits for whom

hidden = backward.end - backward.start
assert abs(blocked.seconds - overlapped.seconds - hidden) < 1e-9
queries_keys_values = 2 * 2048 * 12288 * 3 * 12288 / 8 / R  # the shortest product, on eight ranks
assert queries_keys_values > 2 * 7 / 8 * message / pod.intra.bandwidth
sizes = [c.nbytes(1, 2) for c in plan.collectives()]
assert len(sizes) == 389 == prices[8, "ring"].calls and 386 == sizes.count(message) == 4 * 96 + 2

# %% Memory: what is still whole

tiny = TransformerSpec(1, hidden=32, heads=4, vocab=28, sequence=20, ffn_hidden=96, tied=False)
letters = {3: "b", 20: "s", 5: "s/4", 32: "h", 8: "h/4", 24: "f/4", 7: "V/4"}


def shapes(comm, sp):  # outputs; inside a branch, what its second matrix reads
    model, found = TensorParallelGPT(tiny, comm, sp), []
    for path in (
        "embedding",
        "layers.0.norm1",
        "layers.0.attention.output",
        "layers.0.ffn.down",
        "head",
    ):

        def note(_, inputs, output, inside=path.endswith(("output", "down"))):
            found.append(inputs[0] if inside else output)

        model.get_submodule(path).register_forward_hook(note)
    model(torch.arange(60).view(3, 20) % 28, torch.zeros(3, 20, dtype=torch.int64))
    return [f"({', '.join(letters[n] for n in x.shape)})" for x in found]


short = {"all_reduce": "AR", "all_gather": "AG", "reduce_scatter": "RS"}
regions = "embedding", "norm", "attention", "ffn", "head"
for sp in (False, True):
    drawn = layout(tiny, 4, sp)
    at = {
        c.where: short[c.kind]
        for part in (drawn.embedding, drawn.layer, drawn.head)
        for c in part.forward
    }
    ways = [f"{at.get(f'{name}.input', '-')} / {at.get(f'{name}.output', '-')}" for name in regions]
    assert ways == [row[3 + 2 * sp] for row in held]
    ran = world.simulate(shapes, 4, args=(sp,)).results
    assert ran == [[row[2 + 2 * sp] for row in held]] * 4

kinds = [c.kind for c in both.layer.forward + both.layer.backward]  # the one: of norms and biases
assert [kinds.count(k) for k in ("all_gather", "reduce_scatter", "all_reduce")] == [6, 4, 1]
assert sum(c.where == "gradients" for c in both.collectives()) == 96 + 2
kept = {(t, sp): activation_bytes(gpt3, 1, t, sp) for t in (1, 8) for sp in (False, True)}
assert round(after / before, 2) == 1.25
assert [round(kept[8, sp].total / 1e9, 3) for sp in (0, 1)] == [0.579, 0.359]
assert kept[1, 0].total == 8 * kept[8, 1].total

assert kept[1, 0].between / (kept[1, 0].total - kept[1, 0].scores) == 10 / 34

# %% Hidden in pieces


def exposed(tokens=2048, h=12_288, t=8):
    product = 2 * tokens * h * (h // t) / R  # the output matrix
    communication = (t - 1) * pod.intra.seconds(2 * tokens * h / t)
    return (seconds_in_pieces(product, 2 * tokens * h, t, pod.intra) - product) / communication


assert run.timeline.of(0, "wait") == [] and run.seconds < overlapped.seconds
assert [gpt3.hidden / t for t in (4, 8)] == [3_072, 1_536]
assert exposed(t=4) == 0 and round(exposed(), 2) == 0.33 and exposed(h=17_600) < 0.03
assert abs(exposed(tokens=65_536) - exposed()) < 0.03

# %% A worked example: 70 billion parameters on 512 devices

given(72)  # GB that a step may take
one_device = activation_bytes(large, 1, dropout=False)
assert round(L * (one_device.between + one_device.inside) / 1e9) == 217
assert again == {1: 58, 2: 32, 4: 0, 8: 0} and round(parts[4][0]) == 8
assert [round(x, 1) for x in seconds.values()] == [9.9, 9.3, 8.6, 9.7]
assert round(100 * (seconds[2] / seconds[4] - 1)) == 8 and round(large.parameters() / 1e9, -1) == 70
rate, useful = 8192 / seconds[4], large.training_flops(1) / 8192 / R  # n sequences on n devices
assert (
    round(rate, -1) == 960 and round(100 * rate * useful) == 47 and round(memory(4, 0) / 1e9) == 66
)

setting = explore(model="llama3-8b", ranks=8, batch=1, sequence=8192).choice
tries = {}, {"cluster": "DGX A100"}, {"cluster": "DGX B200"}, {"batch": 32}, {"sequence": 16_384}
shares = [round(100 * replace(setting, **one).row().share, 1) for one in tries]
assert shares == [36.5, 21.3, 39.8, 36.1, 31.8]
old, new = ((k.device.rate("bf16"), k.intra.bandwidth) for k in (dgx_a100(1), pod))
assert (
    round(new[0] / old[0]) == 3 and new[1] / old[1] == 1.5 and dgx_b200(1).device.rate("bf16") > R
)

# %% The same with PyTorch

given(2.13, 256)
