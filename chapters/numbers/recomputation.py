"""Where the numbers of recomputation.md come from. Each part runs where its section ends."""

from dlsys.hardware import LINKS
from dlsys.notebook.vouch import sourced
from dlsys.recomputation import every_layer, explore
from dlsys.roofline import on_h100
from dlsys.transformer.activations import activations
from dlsys.zero import FullyShardedDataParallel

# %% Layers that keep their input alone

assert round(100 * seven.share_of_forward) == 85 and round(100 * seven.share_of_step) == 28
twice = every_layer(48).price(uniform(48), early_stop=False).share_of_step
assert round(100 * twice) == 33

# %% Which tensors: the price of a byte

kept = activations(gpt3, 1).terms
inputs = sum(kept.values()) / (2 * sbh)
assert (inputs, 2 * inputs, round((inputs * gpt3.layers) ** 0.5)) == (57, 114, 74) and round(
    gpt3.parameters() / 1e9
) == 175
assert round(sum(kept.values()) / 1e9, 1) == 2.9 and round(96 * sum(kept.values()) / 1e9) == 275
assert (
    round(100 * bill["core: softmax and its dropout (s x s)"][0] / 114) == 70
    and gpt3.head_size == 128
)
of_step = (
    80
    * sbh
    * bill["core: softmax and its dropout (s x s)"][2]
    / 3
    / sum(o.cost for o in graph.operations)
)
assert round(100 * of_step) == 5 and 1e12 * max(t for *_, t in list(bill.values())[:3]) < 1
assert min(t for *_, t in list(bill.values())[3:]) > 7.9 * max(
    t for *_, t in list(bill.values())[:3]
)
assert round(1 / (1 - held["74 segments"] / held["96 segments"])) == 9
assert round(held["96 segments"], 1) == 7.7 and round(100 * cores.share_of_step, 1) == 0.9
early = ends(selective(96)).price(chain)
assert abs(early.share_of_step / cores.share_of_step - 0.5) < 1e-6
for priced, s in ((cores, gpt3.sequence), (longer, 8192)):
    assert abs(3 * priced.share_of_step / (s / (6 * gpt3.hidden + s)) - 1) < 0.01
assert 3.6 < longer.share_of_step / cores.share_of_step < 3.8 and gpt3.sequence == 2048

# %% Beside the other axes, and instead


def sharded(comm, plan):
    model = FullyShardedDataParallel(Recomputing(GPT(small), plan))
    model(text[:, :-1], text[:, 1:]).backward()


plain_sent, again_sent = (
    world.simulate(sharded, 2, args=(plan,)).traffic.by_kind()["all_gather"]
    for plan in (keep_all(6), every_layer(6))
)
assert plain_sent == again_sent and 4 + (sent[1] - sent[0]) / one / 6 == 5

# %% A worked example: 175 billion parameters on 64 devices

early = ends(selective(96)).price(chain)
assert round(16 * gpt3.parameters() / 64 / 1e9) == 44 and round(first["tensors cut"], 1) == 55.6
assert (
    round(first["and sequences"], 1) == 34.4 and 9 < first["and cores"] - first["and layers"] < 10
)
assert round(chain.saved_bytes / 1e9) == 276 and round(early.peak_bytes / 1e9) == 84
assert optimal(chain, 84.3e9).price.share_of_step < 0.0046 and h100.rate("bf16") == 989e12
gb = {name: round(p.peak_bytes / 1e9, 1) for name, (p, _) in counts.items()}
assert [round(gb[name]) for name in ("keep all", "selective")] == [35, 12] and gb[
    "every layer"
] == 3.4
assert round(34 / 24 * 0.40 * h100.rate("bf16") / LINKS["pcie5"].bandwidth, -2) == 8900
assert (
    round(keep_best(graph, 2 * sbh).cost / forward, 2) == 0.73 and LINKS["pcie5"].bandwidth == 63e9
)
assert (
    round(16 * gpt3.parameters() / 64e9 + first["and sequences"]) == 78
    and len(activations(gpt3, 1).terms) == 15
)
rows = explore(model="gpt3-175b", batch=1, sequence=2048, budget=64).choice.rows()
share = {row.policy: row.share for row in rows}
assert round(share["as many layers as must"] / share["cheapest that fits"]) == 3

# %% In practice

assert core_share(model22, 4) < 0.02
assert round(100 * core_share(model22, 4, 312e12, a100.memory_bandwidth)) == 6
xl = replace(CATALOGUE["gpt2-xl"], layers=12)
priced = [
    ends(plan).price(chain_of(xl, batch=8))
    for plan in (keep_all(12), selective(12), every_layer(12))
]
took = [on_h100().recomputation[name] for name in ("keep all", "selective", "every layer")]
assert [round((priced[0].peak_bytes - p.peak_bytes) / 1e9, 1) for p in priced[1:]] == [12.6, 17.6]
assert [round((took[0].peak_bytes - t.peak_bytes) / 1e9, 1) for t in took[1:]] == [12.6, 17.6]
assert [round(100 * (t.seconds / took[0].seconds - 1)) for t in took[1:]] == [15, 25] and round(
    100 * priced[2].share_of_step
) == 28
assert (
    round(100 * core_share(xl, 8), 1) == 1.6
    and round(100 * core_share(xl, 8, h100.rate("bf16"), h100.memory_bandwidth)) == 15
)
assert round(model22.parameters() / 1e9) == 22 and (model22.hidden, model22.heads) == (6144, 64)
sourced(
    there := 7.7, both := 19.6, plain := 19.0, with_core := 20.3, by="korthikanti2022, table 4"
)  # ms
assert (
    round(100 * there / both) == 39
    and both - there < 2 * there
    and round(100 * (with_core / plain - 1)) == 7
)
assert a100.rate("bf16") == 312e12 and round(a100.memory_bandwidth / 1e12, 2) == 2.04
