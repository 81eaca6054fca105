"""Where the numbers of collectives.md come from. Each part runs where its section ends."""

import math

from dlsys.collectives import (
    halving_doubling_all_reduce,
    hierarchical_all_reduce,
    naive_all_reduce,
    recursive_doubling_all_reduce,
    ring_all_reduce,
    tree_all_reduce,
)
from dlsys.collectives.choose import crossovers
from dlsys.hardware import LINKS, dgx_h100
from dlsys.notebook.vouch import given, says, sourced

pod, S = dgx_h100(16), 14e9
nvlink, ndr = LINKS["nvlink4"], LINKS["infiniband-ndr"]
leader, fast = (plan(8).price(S, nvlink) for plan in (naive_all_reduce, ring_all_reduce))

# %% Collectives

given(14)  # GB of gradient
says("450 GB/s", nvlink.bandwidth)
assert round(leader.seconds, 3) == 0.436 and round(7 * 2 * S / nvlink.bandwidth, 3) == 0.436
says("54 ms", fast.seconds)

# %% The ring

assert real.results == [3, 0, 1, 2]
says("222", parts[1])

# %% Bytes

says("98 GB", leader.bytes_per_rank)
says("24.5 GB", fast.bytes_per_rank)
given(1024)
assert round(ring_all_reduce(1024).price(S, nvlink).bytes_per_rank / 1e9) == 28

# %% Seconds

ethernet = LINKS["ethernet-100g"]
says("0.6 µs", nvlink.latency)
says("900 GB/s", 2 * nvlink.bandwidth)
says("100 Gb/s are 12.5 GB/s", 8 * ethernet.bandwidth, ethernet.bandwidth)

# %% Which one does a sharded product need?

given(1, 2, 3, 10, 20, 30, 100, 200, 300)

# %% When the buffer is small

says("48 ranks pays 94 latencies", 48, len(ring_all_reduce(48).rounds))
says("2.7 µs", ndr.latency)
latencies = 94 * ndr.latency
says("254 µs", latencies)
assert round((ring_all_reduce(48).price(1e3, ndr).seconds - latencies) * 1e6, 2) == 0.04
for n in (4, 16, 64):  # the table of plans
    doubled, deep = 2 * (n - 1) / n, math.log2(n)
    costs = {
        ring_all_reduce: (2 * (n - 1), doubled),
        tree_all_reduce: (2 * deep, 2 * deep),
        recursive_doubling_all_reduce: (deep, deep),
        halving_doubling_all_reduce: (2 * deep, doubled),
    }
    for plan, (rounds, buffers) in costs.items():
        seconds = rounds * ndr.latency + buffers * 64e6 / ndr.bandwidth
        assert len(plan(n).rounds) == rounds
        assert abs(plan(n).price(64e6, ndr).seconds / seconds - 1) < 1e-9
says("50 GB/s", ndr.bandwidth)
handed_over = halving_doubling_all_reduce(48).rounds[0]
assert 48 - 2 * len(handed_over) == 16
found = [size for size, _ in crossovers("all_reduce", ndr, ranks=48)[1:]]
says("220 kB and 5.6 MB", *(float(f"{size:.2g}") for size in found))

# %% Across the node boundary

says("card of 50 GB/s", pod.inter.bandwidth)

says("the 400 GB/s of eight cards", pod.nics * pod.inter.bandwidth)
one_ring = ring_all_reduce(16).price(1e9, dgx_h100(2))
says("37.6 ms", one_ring.seconds)
says("26.6 GB/s", one_ring.algbw)
says("49.9 GB/s", one_ring.busbw)
assert one_ring.busbw / one_ring.algbw == 30 / 16
sourced(320, 350, 16, by="benallal2025")
rates = [hierarchical_all_reduce(M, 8).price(S, dgx_h100(M)).busbw / 1e9 for M in (2, 16)]
says("293 GB/s on two nodes, and of 231 on 16", rates[0], rates[1], 16)

# %% A worked example: seven idle cards

given(7e9, 14e9, 128, 0.40, 40e9, 16_384)
says("989 TFLOP/s", pod.device.rate("bf16"))
says("320 GB/s", 4 / 5 * pod.nics * pod.inter.bandwidth)
times = [2 * 127 / 128 * S / busbw for busbw in (40e9, 320e9)]
assert [round(seconds, 3) for seconds in times] == [0.695, 0.087]
assert round(16_384 * backward, 2) == 1.16
says("at 4,096 tokens it costs 48 %", 4096, 1 - speed(40e9, 4096)[0] / speed(320e9, 4096)[0])
assert lost == 0
sourced(480, by="benallal2025")
ring, levels = ring_all_reduce(24), hierarchical_all_reduce(3, 8)
crossing = [
    sum(t.stop - t.first for one in plan.rounds for t in one if t.src // 8 != t.dst // 8)
    / plan.chunks
    for plan in (ring, levels)
]
seconds = [plan.price(1e9, dgx_h100(3)).seconds for plan in (ring, levels)]
assert round(crossing[0] / crossing[1], 1) == 1.4 and round(seconds[0] / seconds[1], 1) == 5.3
