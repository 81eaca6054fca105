"""Collective plans: proved by symbolic execution, run on tensors, and refused where they are wrong."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from itertools import pairwise, product

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dlsys import collectives, world
from dlsys.collectives import Plan, PlanError, Transfer, candidates, plan_for, ring_all_reduce
from dlsys.collectives.check import initial
from dlsys.collectives.choose import FLAT, TWO_LEVEL
from dlsys.collectives.plan import KINDS, REDUCING, ROOTED, Rounds, builder, disturbed
from dlsys.hardware import DEVICES, LINKS, Cluster, Link

NAMED = [(kind, name) for kind, builders in FLAT.items() for name in builders]
LINK = Link("test", latency=3e-6, bandwidth=7e9)


def cluster(nodes, devices_per_node, nics=None):
    return Cluster(
        DEVICES["h100-sxm"],
        nodes,
        devices_per_node,
        LINKS["nvlink4"],
        LINKS["infiniband-ndr"],
        nics,
    )


def every_plan(ranks, nodes=None):
    """All plans for so many ranks, with the last rank as root; two-level ones for `nodes`."""
    plans = [plan_for(kind, ranks, name, root=ranks - 1) for kind, name in NAMED]
    if nodes:
        plans += [build(nodes, ranks // nodes) for build in TWO_LEVEL.values()]
    return plans


# -- every builder is right ----------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "name"), NAMED)
def test_every_plan_sums_each_contribution_once_from_1_to_17_ranks(kind, name):
    for n in range(1, 18):
        for root in range(n) if kind in ROOTED else [0]:
            plan = plan_for(kind, n, name, root=root)
            assert (plan.kind, plan.algorithm, plan.ranks, plan.root) == (kind, name, n, root)
            plan.check()
            assert n > 1 or not len(plan.rounds)


@pytest.mark.parametrize("build", TWO_LEVEL.values(), ids=lambda b: b.__name__)
def test_every_two_level_plan_is_right_for_any_nodes_and_devices(build):
    for nodes, devices in product(range(1, 7), repeat=2):
        rooted = "root" in inspect.signature(build).parameters
        for root in range(nodes * devices) if rooted else [0]:
            plan = build(nodes, devices, root) if rooted else build(nodes, devices)
            assert (plan.ranks, plan.root) == (nodes * devices, root)
            plan.check()


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(NAMED), st.integers(18, 40), st.integers(0, 39))
def test_plans_for_up_to_40_ranks_and_any_root_are_right(named, n, root):
    plan_for(named[0], n, named[1], root=root % n).check()


@given(st.integers(1, 12), st.integers(0, 11), st.integers(1, 20))
@settings(deadline=None)
def test_a_pipelined_broadcast_is_right_for_any_number_of_chunks(n, root, chunks):
    collectives.ring_broadcast(n, root % n, chunks).check()
    collectives.ring_reduce(n, root % n, chunks).check()


def test_the_rounds_are_made_when_asked_for_and_can_be_indexed_like_a_list():
    plan = ring_all_reduce(2**40)  # would not fit in any memory
    assert len(plan.rounds) == 2 * (2**40 - 1)
    rounds = ring_all_reduce(5).rounds
    assert list(rounds) == [rounds[k] for k in range(8)] == rounds[:]
    assert rounds[-1] == rounds[7]
    with pytest.raises(IndexError):
        rounds[8]


def test_a_builder_takes_whole_numbers_of_any_type_and_remembers_its_plans():
    built = []

    @builder
    def star(n: int, root: int = 0) -> Plan:
        """Everybody to everybody."""
        built.append((n, root))
        return Plan("broadcast", "star", n, 1, [], root)

    plan = star(4)
    assert star(n=4, root=0) is star(numpy.int64(4), numpy.int8(0)) is plan
    assert star(4, 1) is not plan
    assert star(1).ranks == 1
    assert built == [(4, 0), (4, 1), (1, 0)]
    assert {type(number) for numbers in built for number in numbers} == {int}
    assert (star.__name__, star.__doc__) == ("star", "Everybody to everybody.")
    for wrong in ({"n": 0}, {"n": True}, {"n": 4, "root": -1}, {"n": 4, "root": "1"}):
        name, value = list(wrong.items())[-1]
        said = f"{name} is {value!r}; it must be a whole number of at least {int(name == 'n')}."
        with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
            star(**wrong)


def test_a_plan_by_hand_holds_ints_of_pythons_own_whatever_type_they_came_in():
    written = [*map(numpy.int64, (0, 1, 2, 3)), numpy.bool_(True)]
    (transfers,) = Plan("all_reduce", "by hand", 4, 4, [[written]]).rounds
    assert transfers == (Transfer(0, 1, 2, 3, True),)
    assert list(map(type, transfers[0])) == 4 * [int] + [bool]


def test_a_plan_is_shown_with_its_root_where_its_kind_has_one():
    assert repr(ring_all_reduce(4)) == "Plan(all_reduce, ring, ranks=4, chunks=4, rounds=6)"
    assert (
        repr(collectives.tree_broadcast(4, 3))
        == "Plan(broadcast, tree, ranks=4, chunks=1, rounds=2, root=3)"
    )


def test_chunks_cover_the_buffer_and_differ_by_at_most_one():
    for length, n in product((0, 1, 5, 37), (1, 3, 8)):
        edges = ring_all_reduce(n).bounds(length)
        sizes = [b - a for a, b in pairwise(edges)]
        assert (edges[0], edges[-1], len(sizes)) == (0, length, n)
        assert max(sizes) - min(sizes) <= 1
        blocks = collectives.pairwise_all_to_all(n).bounds(length)
        assert blocks[: n + 1] == edges
        assert blocks[-1] == n * length


def test_steps_hold_every_transfer_once_at_each_end():
    for plan in every_plan(6):
        sends, receives = [], []
        for rank in range(6):
            for sent, received in plan.steps(rank):
                assert sent or received
                assert all(t.src == rank for t in sent)
                assert all(t.dst == rank for t in received)
                sends += sent
                receives += received
        moved = sorted(t for transfers in plan.rounds for t in transfers)
        assert sorted(sends) == sorted(receives) == moved


# -- what runs is what was priced ----------------------------------------------------------------

COLUMNS = 3  # elements in a row


def expected(kind, inputs, rank, root, length):
    """What the collective gives `rank`, from all ranks' inputs, without any communication."""
    n = len(inputs)
    part = slice(rank * length // n, (rank + 1) * length // n)
    if kind == "broadcast":
        return inputs[root]
    if kind in REDUCING:
        total = sum(inputs)
        if kind == "reduce":
            return total if rank == root else None
        return total[part] if kind == "reduce_scatter" else total
    if kind == "scatter":
        return inputs[root][part]
    if kind == "all_to_all":
        return torch.cat([x[part] for x in inputs])
    return torch.cat(inputs) if kind == "all_gather" or rank == root else None


def values(rank, rows):
    return (torch.arange(rows * COLUMNS, dtype=torch.int32).view(rows, COLUMNS) + 1) * 10**rank


def prepare(plan, length):
    """All ranks' arguments, what each must get, and the price of `plan` for `length` rows."""
    n, kind = plan.ranks, plan.kind
    if kind == "gather":
        length -= length % n
    edges = [r * length // n for r in range(n + 1)]
    gathers = kind in ("gather", "all_gather")
    inputs = [values(r, edges[r + 1] - edges[r] if gathers else length) for r in range(n)]
    right = [expected(kind, inputs, r, plan.root, length) for r in range(n)]
    options = {"length": length} if kind == "all_gather" else {}
    whole = kind in ("all_reduce", "reduce", "broadcast")  # cut anywhere, not only between rows
    nbytes, itemsize = length * COLUMNS * 4, 4 if whole else 4 * COLUMNS
    return inputs, right, options, nbytes, itemsize


def same(result, right):
    return result is None if right is None else torch.equal(result, right)


def hold_run_against_price(plan, length, where):
    """Run `plan` on integers; results, counted bytes, messages and seconds must be as predicted."""
    inputs, right, options, nbytes, itemsize = prepare(plan, length)
    originals = [x.clone() for x in inputs]
    network = {"cluster": where} if isinstance(where, Cluster) else {"link": where}
    run = world.simulate(  # nothing but the collective: computing would advance the clock, too
        lambda comm: plan.run(comm, inputs[comm.rank], **options), plan.ranks, **network
    )
    assert all(map(torch.equal, inputs, originals)), "an argument was written to"
    assert all(map(same, run.results, right)), (plan, length)
    price = plan.price(nbytes, where, itemsize)
    assert max(run.traffic.sent) == price.bytes_per_rank, (plan, length)
    assert len(run.traffic.messages) == price.messages
    communicating = max((m.end for m in run.traffic.messages), default=0.0)
    assert communicating == pytest.approx(price.seconds, rel=1e-12, abs=0)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8])
def test_every_run_on_a_link_gives_the_right_result_bytes_and_seconds(n):
    for plan in every_plan(n):
        for length in sorted({0, 1, n - 1, n, n + 1, 37}):
            hold_run_against_price(plan, length, LINK)


@pytest.mark.parametrize(("nodes", "devices", "nics"), [(2, 3, None), (3, 2, 1), (2, 4, 2)])
def test_every_run_on_a_cluster_gives_the_right_result_bytes_and_seconds(nodes, devices, nics):
    where = cluster(nodes, devices, nics)
    for plan in every_plan(nodes * devices, nodes):
        for length in (1, 7, nodes * devices * 4):
            hold_run_against_price(plan, length, where)


# Recursive doubling by hand: partners swap whole buffers, and both add.
SWAPS = [[Transfer(r, r ^ apart, 0, 1, True) for r in range(4)] for apart in (1, 2)]


def test_a_plan_that_exchanges_the_same_chunk_both_ways_sends_what_was_there_before():
    doubling = Plan("all_reduce", "by hand", 4, 1, SWAPS)
    doubling.check()
    hold_run_against_price(doubling, 5, LINK)
    hold_run_against_price(
        Plan("all_reduce", "by hand", 4, 1, Rounds(2, SWAPS.__getitem__, True)), 5, LINK
    )


def test_recursive_doubling_swaps_whole_buffers_with_partners_1_2_4_apart():
    built = collectives.recursive_doubling_all_reduce(4)
    assert [list(transfers) for transfers in built.rounds] == SWAPS
    # Of six ranks 1 and 3 hand in their buffers to 0 and 2, which swap with 4 and 5.
    rounds = collectives.recursive_doubling_all_reduce(6).rounds
    pairs = [sorted({tuple(sorted(t[:2])) for t in transfers}) for transfers in rounds]
    assert pairs == [[(0, 1), (2, 3)], [(0, 2), (4, 5)], [(0, 4), (2, 5)], [(0, 1), (2, 3)]]


def test_only_plans_whose_ranks_may_swap_a_chunk_say_so():
    for plan in every_plan(6, nodes=2):
        swapped = any(disturbed(*step) for r in range(6) for step in plan.steps(r))
        assert plan.swaps == swapped, plan
    assert Plan("broadcast", "by hand", 2, 1, [[Transfer(0, 1, 0, 1)]]).swaps
    assert Rounds(2, SWAPS.__getitem__, swaps=True).mirrored().swaps


@pytest.mark.parametrize("n", [2, 3, 6, 8])
def test_all_ranks_get_the_same_bits_from_every_all_reduce_also_where_sums_are_rounded(n):
    x = torch.rand(n, 33, generator=torch.Generator().manual_seed(n)) * 1e8 - 5e7
    for name in FLAT["all_reduce"]:
        run = world.simulate(lambda c: c.all_reduce(x[c.rank], plan=name), n)  # noqa: B023
        assert all(torch.equal(result, run.results[0]) for result in run.results), name


def test_every_plan_gives_the_same_results_and_bytes_in_real_processes():
    plans = every_plan(4, nodes=2)
    plans.append(Plan("all_reduce", "by hand", 4, 1, SWAPS))
    cases = [(plan, *prepare(plan, length)) for plan in plans for length in (0, 1, 37)]

    def program(comm):
        sent = []
        for plan, inputs, right, options, *_ in cases:
            before = comm.traffic.sent[comm.rank]
            result = plan.run(comm, inputs[comm.rank], **options)
            assert same(result, right[comm.rank]), plan
            sent.append(comm.traffic.sent[comm.rank] - before)
        return sent

    run = world.launch(program, 4)
    for case, sent in zip(cases, zip(*run.results, strict=True), strict=True):
        plan, *_, nbytes, itemsize = case
        assert max(sent) == plan.price(nbytes, LINK, itemsize).bytes_per_rank, (plan, nbytes)


# Shapes of what a rank passes in that hold no byte at all.
EMPTY = [(6, 0), (7, 0), (2, 3, 0), (0, 4), (0,), (0, 0)]


def calls_without_bytes(comm):
    """The shapes that every collective by every plan returns for inputs without a byte."""
    found = {}
    for kind, shape in product(KINDS, EMPTY):
        for name in (*FLAT[kind], None):
            result = getattr(comm, kind)(torch.zeros(shape), plan=name)
            found[kind, shape, name] = result if result is None else tuple(result.shape)
    return found


@pytest.mark.parametrize("run", [world.simulate, world.launch], ids=["simulated", "processes"])
def test_rows_of_no_width_are_counted_and_no_rows_stay_none(run):
    for rank, found in enumerate(run(calls_without_bytes, 3).results):
        for (kind, shape, name), returned in found.items():
            right = expected(kind, [torch.zeros(shape)] * 3, rank, 0, shape[0])
            assert returned == (right if right is None else tuple(right.shape)), (kind, shape, name)


def test_a_block_without_rows_may_be_part_of_a_message_that_is_passed_on():
    # One row for three ranks: block 2 of every rank has it. Rank 0's blocks go by way of rank 1.
    by_way = [[(0, 1, 1, 2), (0, 1, 2, 3)], [(1, 2, 1, 3), (2, 1, 7, 8)], [(1, 2, 5, 6)]]
    back = [[(1, 0, 3, 4), (2, 0, 6, 7)]]
    plan = Plan("all_to_all", "by way of 1", 3, 9, by_way + back)
    plan.check()
    run = world.simulate(lambda c: plan.run(c, torch.tensor([c.rank + 1])), 3)
    assert [result.tolist() for result in run.results] == [[], [], [1, 2, 3]]


@pytest.mark.parametrize("op", ["mean", "max", "min", "prod"])
def test_reductions_other_than_the_sum_agree_with_torch(op):
    x = torch.tensor([[2.0, -4.0, 8.0], [16.0, 1.0, 0.5], [4.0, 2.0, 1.0], [-2.0, 8.0, 4.0]])
    reduce = {"mean": x.mean(0), "max": x.amax(0), "min": x.amin(0), "prod": x.prod(0)}[op]
    for name in FLAT["all_reduce"]:
        run = world.simulate(lambda c: c.all_reduce(x[c.rank], op, plan=name), 4)  # noqa: B023
        assert all(torch.equal(result, reduce) for result in run.results)
    for name in FLAT["reduce_scatter"]:
        run = world.simulate(lambda c: c.reduce_scatter(x[c.rank], op, plan=name), 4)  # noqa: B023
        assert torch.equal(torch.cat(run.results), reduce)


def test_odd_tensors_are_handled_by_every_all_reduce():
    tensors = {
        "transposed": torch.arange(12).view(3, 4).t(),
        "every second": torch.arange(10.0)[::2],
        "zero-dimensional": torch.tensor(5),
        "no elements": torch.empty(0, 3),
        "half": torch.ones(7, dtype=torch.float16),
        "expanded": torch.ones(1, dtype=torch.int8).expand(5),
    }
    for (name, x), algorithm in product(tensors.items(), FLAT["all_reduce"]):
        before = x.clone()
        run = world.simulate(lambda comm: comm.all_reduce(x, plan=algorithm), 3)  # noqa: B023
        for result in run.results:
            assert torch.equal(result, 3 * x), (name, algorithm)
            assert result.dtype == x.dtype
        assert torch.equal(x, before)


def test_meta_tensors_cost_what_real_ones_cost():
    def program(comm, device):
        x = torch.ones(1000, 2, device=device)
        comm.all_gather(comm.reduce_scatter(comm.all_reduce(x)), length=1000)
        return comm.all_to_all(x)

    real, meta = (world.simulate(program, 6, link=LINK, args=(d,)) for d in ("cpu", "meta"))
    assert real.traffic.messages == meta.traffic.messages
    assert [y.shape for y in real.results] == [y.shape for y in meta.results]
    assert all(y.is_meta for y in meta.results)


# -- wrong plans ---------------------------------------------------------------------------------

RING = [list(transfers) for transfers in ring_all_reduce(4).rounds]
GATHER = [list(transfers) for transfers in collectives.ring_all_gather(4).rounds]


def with_transfer(rounds, index, position, transfer):
    """A copy of `rounds` with one transfer replaced, or left out where None."""
    copy = [list(transfers) for transfers in rounds]
    copy[index][position : position + 1] = [] if transfer is None else [transfer]
    return copy


FAULTS = {  # a kind, its rounds, what is said of them, and the rank, round and chunk at fault
    "one message left out": (
        "all_reduce",
        with_transfer(RING, 5, 2, None),
        "after round 5: rank 3 lacks the contributions of rank 0 to chunk 0",
        (3, 5, 0),
    ),
    "stores where it should add": (
        "all_reduce",
        with_transfer(RING, 1, 0, RING[1][0]._replace(reduce=False)),
        "after round 5: rank 0 lacks the contributions of rank 1 to chunk 2",
        (0, 5, 2),
    ),
    "adds where it should store": (
        "all_reduce",
        with_transfer(RING, 3, 0, RING[3][0]._replace(reduce=True)),
        "round 3: rank 1 adds chunk 0 from rank 0, and the contribution of rank 1 is then summed "
        "twice",
        (1, 3, 0),
    ),
    "sends one chunk more than it holds": (
        "all_gather",
        with_transfer(GATHER, 0, 1, Transfer(1, 2, 1, 3)),
        "round 0: rank 1 sends chunk 2 to rank 2 but does not hold it",
        (1, 0, 2),
    ),
    "no such rank to send to": (
        "all_gather",
        with_transfer(GATHER, 0, 3, Transfer(3, 4, 3, 4)),
        "round 0: the transfer 3 -> 4 of chunks [3, 4) names rank 4, but the ranks are 0 to 3",
        (4, 0, 3),
    ),
    "no such rank to send": (
        "all_gather",
        with_transfer(GATHER, 1, 0, Transfer(5, 0, 2, 3)),
        "round 1: the transfer 5 -> 0 of chunks [2, 3) names rank 5, but the ranks are 0 to 3",
        (5, 1, 2),
    ),
    "no such chunk": (
        "all_gather",
        with_transfer(GATHER, 2, 1, Transfer(1, 2, 3, 5)),
        "round 2: the transfer 1 -> 2 of chunks [3, 5) has no chunks: 0 <= first < stop <= 4 must "
        "hold",
        (1, 2, 3),
    ),
    "no chunk at all": (
        "all_gather",
        with_transfer(GATHER, 2, 1, Transfer(1, 2, 3, 3)),
        "round 2: the transfer 1 -> 2 of chunks [3, 3) has no chunks: 0 <= first < stop <= 4 must "
        "hold",
        (1, 2, 3),
    ),
    "to itself": (
        "all_gather",
        with_transfer(GATHER, 1, 2, Transfer(2, 2, 1, 2)),
        "round 1: rank 2 sends chunk 1 to itself",
        (2, 1, 1),
    ),
    "two at once": (
        "all_reduce",
        [[Transfer(1, 0, 2, 3, True), Transfer(3, 0, 2, 3, True)]],
        "round 0: rank 0 receives chunk 2 twice: the result would depend on the order",
        (0, 0, 2),
    ),
    "adds in a gather": (
        "all_gather",
        with_transfer(GATHER, 0, 0, GATHER[0][0]._replace(reduce=True)),
        "round 0: the transfer 0 -> 1 of chunks [0, 1) adds, but nothing is summed in all_gather",
        (1, 0, 0),
    ),
    "only the root has the sum": (
        "all_reduce",
        [list(t) for t in plan_for("reduce", 4).rounds],
        "after round 1: rank 1 lacks the contributions of ranks 0, 2 to chunk 0",
        (1, 1, 0),
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_caught_with_its_rank_round_and_chunk(fault):
    kind, rounds, said, at = FAULTS[fault]
    chunks = 1 if fault.startswith("only the root") else 4
    plan = Plan(kind, "faulty", 4, chunks, rounds)
    with pytest.raises(PlanError) as caught:
        plan.check()
    assert str(caught.value) == f"{kind} (faulty), {said}."
    assert (caught.value.rank, caught.value.round, caught.value.chunk) == at


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(NAMED), st.integers(2, 9), st.data())
def test_leaving_out_any_transfer_of_any_plan_is_caught(named, n, data):
    # Every plan of the library is minimal: no message of it could be spared.
    kind, name = named
    plan = plan_for(kind, n, name)
    rounds = [list(transfers) for transfers in plan.rounds]
    index = data.draw(st.integers(0, len(rounds) - 1))
    position = data.draw(st.integers(0, len(rounds[index]) - 1))
    faulty = Plan(kind, name, n, plan.chunks, with_transfer(rounds, index, position, None))
    with pytest.raises(PlanError):
        faulty.check()


def test_bit_r_says_before_the_first_round_that_rank_r_contributed():
    def before(kind, chunks, root=0):
        return initial(Plan(kind, "x", 3, chunks, [], root))

    for kind in ("reduce", "reduce_scatter", "all_reduce"):
        assert before(kind, 3) == [dict.fromkeys(range(3), bit) for bit in (1, 2, 4)]
    for kind in ("broadcast", "scatter"):
        assert before(kind, 3, root=1) == [{}, dict.fromkeys(range(3), 2), {}]
    for kind in ("gather", "all_gather"):
        assert before(kind, 6) == [{0: 1, 1: 1}, {2: 2, 3: 2}, {4: 4, 5: 4}]
    assert before("all_to_all", 9)[2] == {6: 4, 7: 4, 8: 4}


def test_a_plan_that_says_nothing_is_caught_for_every_kind():
    first = {"reduce": 0, "gather": 0, "all_gather": 0, "reduce_scatter": 0, "all_reduce": 0}
    chunks = {"scatter": 1, "gather": 1, "all_gather": 1, "all_to_all": 2}
    for kind in KINDS:
        with pytest.raises(PlanError) as caught:
            Plan(kind, "silent", 2, 4 if kind == "all_to_all" else 2, []).check()
        rank, chunk = first.get(kind, kind != "all_to_all"), chunks.get(kind, 0)
        what = "lacks the contributions of rank 1 to" if kind in REDUCING else "lacks"
        said = f"{kind} (silent), without any round: rank {rank:d} {what} chunk {chunk}."
        assert str(caught.value) == said
        assert (caught.value.rank, caught.value.round, caught.value.chunk) == (rank, None, chunk)


def test_plain_tuples_make_a_plan_that_checks_prices_and_runs():
    plan = Plan("broadcast", "by hand", 3, 1, [[(0, 1, 0, 1)], [(1, 2, 0, 1)]])
    plan.check()
    assert plan.price(7e9, LINK).seconds == pytest.approx(2 * (1 + 3e-6))
    run = world.simulate(lambda comm: plan.run(comm, torch.tensor([comm.rank + 5])), 3)
    assert [result.item() for result in run.results] == [5, 5, 5]


# -- bad input -----------------------------------------------------------------------------------


def test_a_plan_of_another_size_than_the_communicator_names_both():
    with pytest.raises(ValueError, match="for 4 ranks and the communicator has 3"):
        world.simulate(lambda comm: ring_all_reduce(4).run(comm, torch.ones(2)), 3)


def test_an_unknown_kind_or_algorithm_names_the_nearest():
    with pytest.raises(ValueError, match="did you mean 'all_reduce'"):
        plan_for("allreduce", 4)
    with pytest.raises(ValueError, match="did you mean 'all_reduce'"):
        candidates("allreduce", LINK, 4)
    with pytest.raises(ValueError, match="did you mean 'halving_doubling'"):
        plan_for("all_reduce", 4, "halving-doubling")
    with pytest.raises(
        ValueError, match=r"pass plan=candidates\('all_reduce', cluster\)\['hierarchical'\]"
    ):
        plan_for("all_reduce", 4, "hierarchical")


# -- drawing and importing -----------------------------------------------------------------------


def test_plans_and_prices_load_without_torch_numpy_or_matplotlib():
    code = (
        "import sys, dlsys.collectives as c; c.ring_all_reduce(8).check(); "
        "c.ring_all_reduce(8).price(1e6, __import__('dlsys.hardware').hardware.LINKS['nvlink4']); "
        "print([m for m in ('torch', 'numpy', 'matplotlib') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_drawing_has_a_panel_for_the_start_and_each_round_and_names_who_holds_what():
    figure = ring_all_reduce(4).draw()
    panels = [axes for axes in figure.axes if axes.axison]
    assert [p.get_title() for p in panels] == ["start", *(f"round {k}" for k in range(6))]
    cells = [{t.get_text() for t in p.texts} for p in panels]
    assert cells[0] == {"0", "1", "2", "3"}
    assert "1,2" in cells[1]
    assert "0,1,3" in cells[2]
    assert cells[6] == {"all"}
    for panel, transfers in zip(panels[1:], RING, strict=True):  # framed is what has just come
        squares = [path.vertices[:-1].mean(0) for path in panel.collections[0].get_paths()]
        frames = panel.collections[0].get_linewidths()
        new = {
            (*at.round().astype(int),) for at, wide in zip(squares, frames, strict=True) if wide > 1
        }
        assert new == {(t.dst, t.first) for t in transfers}
    # With many cells only those that a round wrote are named, and all of them at the start.
    crowded = ring_all_reduce(16).draw().axes
    assert [len(axes.texts) for axes in crowded] == [256] + 15 * [16]
    assert [axes.get_title() for axes in crowded[::15]] == ["start", "round 29"]
    for plan in (ring_all_reduce(1), plan_for("gather", 6, root=2)):
        assert plan.draw().axes


def test_a_plan_too_large_to_read_is_not_drawn():
    with pytest.raises(ValueError, match="A drawing of 1024 ranks"):
        ring_all_reduce(1024).draw()
    with pytest.raises(ValueError, match="A drawing of 33 ranks and 1 chunks"):
        plan_for("broadcast", 33).draw()
