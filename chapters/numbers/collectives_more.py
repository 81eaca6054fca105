"""Where the numbers of collectives_more.md come from. Each part runs where its section ends."""

from dataclasses import replace

from dlsys.collectives import explore
from dlsys.collectives.choose import crossovers, plan_for
from dlsys.notebook.vouch import sourced
from dlsys.units import gigabits_per_second

# %% Few rounds and few bytes

sourced(14, 3.4, by="nccltuning")  # µs with Simple
simple = replace(infiniband, latency=14e-6)
for link, sizes in (infiniband, (220e3, 5.6e6)), (simple, (1.1e6, 29e6)):
    found = [size for size, _ in crossovers("all_reduce", link, ranks=48)[1:]]
    assert [float(f"{size:.2g}") for size in found] == list(sizes)
sent = [
    make(64).price(1e9, infiniband).bytes_per_rank
    for make in (ring_all_reduce, halving_doubling_all_reduce)
]
assert sent[0] == sent[1]

# %% Eight rings

fast = ring_all_reduce(8).price(S, nvlink)
pod, rings, levels, sides = (
    dgx_h100(16),
    ring_all_reduce(128),
    hierarchical_all_reduce(16, 8),
    node_boundary(),
)
sourced(100, by="benallal2025")  # Gb/s
assert pod.nics * pod.inter.bandwidth == 400e9 and boundary[2][:3] == [50, 400, 293]
assert fast.busbw / fast.algbw == 1.75 and gigabits_per_second(4 * 100) == pod.inter.bandwidth
assert boundary[16][:4] == [50, 396, 231, "320 to 350"]
assert [boundary[k][5] for k in (1, 2)] == [
    "15.2 µs",
    "25.2 µs",
]
assert (len(levels.rounds), len(rings.rounds)) == (44, 254)

measured = [rate / 1e9 for side in sides for rate in side.measured_busbw]
assert measured == [480, 480, 479, 479, 320, 350]
assert [round(1e6 * side.measured_latency) for side in sides] == [13, 55, 235]
assert round(sides[0].measured_latency / sides[0].predicted_latency) == 7
assert round(sides[2].overlapped_busbw / 1e9) == 423

# %% All eight

pod = dgx_h100(16)
small = torch.arange(16 * 64)
for kind, wanted in ("broadcast", [small] * 16), ("scatter", small.chunk(16)):
    run = world.simulate(from_rank_0, cluster=dgx_h100(2), args=(kind, small))
    assert all(map(torch.equal, run.results, wanted))
assert [
    round(far / near, k)
    for k, (near, far) in ((1, seconds["all_reduce"]), (0, seconds["all_to_all"]))
] == [1.5, 10]
assert [format_seconds(seconds[k][1]) for k in ("broadcast", "all_reduce")] == [
    "7.15 ms",
    "5.65 ms",
]
for kind, one_ring in halves.items():
    (halved := eight_rings(16, one_ring)).check()
    assert halved.price(1e9, pod).seconds == seconds[kind][1]
for there, back in ("scatter", "gather"), ("broadcast", "reduce"), ("all_gather", "reduce_scatter"):
    once, again = (plan_for(kind, 16).price(1e9, infiniband) for kind in (there, back))
    assert once.seconds == again.seconds


gain = {}
for kind in KINDS:
    at = {
        row.algorithm: row.seconds
        for row in explore(kind=kind, nbytes=10**9, nodes=3).choice.ranking()
    }
    gain[kind] = (
        min(seconds for name, seconds in at.items() if name != "hierarchical") / at["hierarchical"]
    )
assert all(gain[kind] < 1.01 for kind in ("broadcast", "reduce", "scatter", "gather"))
assert round(gain["all_gather"], 1) == 5.3 and min(gain["all_to_all"], gain["all_reduce"]) > 1.2
assert round(1e3 * eight_rings(3).price(1e9, dgx_h100(3)).seconds, 2) == 4.92
flat = explore(kind="all_reduce", algorithm="ring", nodes=3).choice
assert flat.cluster().size == 24 and all(
    r.between * 7 == r.inside for r in flat.rounds()
)  # 3 and 21 messages

# %% What number to expect

for rank, (root, rest) in enumerate(world.launch(native, ranks=4).results):
    assert root == (([60, 64, 68, 72], [0, 10, 20, 30]) if rank == 0 else None)
    assert rest == [
        [0, 1, 2, 3],
        [rank],
        [0, 10, 20, 30],
        [60, 64, 68, 72],
        [60 + 4 * rank],
        [rank, 10 + rank, 20 + rank, 30 + rank],
    ]
sourced(10, 50, by="reddi2026")
in_node, _, card, across = (low / most for most, low, _ in found.values())
assert min(in_node, card, across) >= 4 / 5
peak = sizes[4295][1]
assert sizes[34][1:] == (229, 380) and [round(sizes[k][1] / peak, 1) for k in (34, 537)] == [
    0.5,
    0.9,
]
sourced(2.13, by="pytorchnccl"), sourced(2.24, by="ncclras")  # whose variables are named
last, _ = measured[32]
assert (round(2**32 / last / 1e3, 2), busbw(32, 8, last)) == (270.63, 474)
