"""One suite, two worlds: what a program returns, sends and calls is the same in both.

All programs of a world run one after the other in a single run of it, so that the processes start
once. Tensors hold whole numbers, so that every order of summation gives the same bits.
"""

from __future__ import annotations

import functools
import inspect
from collections import Counter

import numpy as np
import pytest
import torch

from dlsys import world
from dlsys.collectives import Plan, Transfer
from dlsys.collectives.choose import FLAT

WORLDS = {"simulated": world.simulate, "processes": world.launch}
SIZES = (1, 3, 4)
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
DTYPES += (torch.int64, torch.int16, torch.uint8, torch.bool, torch.complex64)


def whole(comm, *shape, dtype=torch.float32):
    """Whole numbers that differ from rank to rank."""
    count = torch.Size(shape).numel()
    return ((torch.arange(count) * 3 + comm.rank * 5) % 7 + 1).reshape(shape).to(dtype)


# -- programs: each returns something that can be compared ---------------------------------------


def messages_round_a_ring(comm):
    if comm.size == 1:
        return None
    got = torch.empty(2, 3, dtype=torch.int64)
    sending = comm.isend(whole(comm, 2, 3, dtype=torch.int64), (comm.rank + 1) % comm.size)
    comm.recv(got, (comm.rank - 1) % comm.size)
    sending.wait()
    return got


def a_send_waited_for_long_after(comm):
    got = torch.zeros(4)
    if comm.size > 1:
        sending = comm.isend(whole(comm, 4), (comm.rank + 1) % comm.size, tag=9)
        comm.recv(got, (comm.rank - 1) % comm.size, tag=9)
    comm.barrier()
    if comm.size > 1:
        sending.wait()
    return got


def messages_cut_from_one_tensor(comm):
    """What is written beside a part that is being sent is no change of that part."""
    x = whole(comm, 4)
    x[0] = float("nan")
    if comm.size > 1:
        left, right = x.chunk(2)
        sending = comm.isend(left, (comm.rank + 1) % comm.size)
        comm.recv(right, (comm.rank - 1) % comm.size)
        sending.wait()
    return x[1:2]


def tags_tell_letters_apart(comm):
    if comm.size == 1 or comm.rank > 1:
        return None
    if comm.rank == 0:
        handles = [comm.isend(torch.full((2,), float(tag)), 1, tag) for tag in (5, 3, 0)]
        return [handle.wait() for handle in handles]
    return [comm.recv(torch.empty(2), 0, tag).tolist() for tag in (0, np.int64(3), 5)]


def messages_of_every_kind(comm):
    if comm.size == 1 or comm.rank > 1:
        return None
    kinds = [whole(comm, 3, dtype=dtype) for dtype in DTYPES]
    kinds += [
        torch.empty(0),
        torch.tensor(4.0),
        whole(comm, 1, 4)[:, 2],
        whole(comm, 4, 3).T,
        whole(comm, 9)[::2],
    ]
    if comm.rank == 0:
        return [comm.send(tensor, 1) for tensor in kinds]
    targets = [torch.zeros_like(tensor) for tensor in kinds]
    targets[-1] = torch.zeros(9)[::2]
    targets[-2] = torch.zeros(4, 3).T
    return [comm.recv(target, 0) for target in targets]


def every_collective(comm, make, plans=lambda kind: [None], **options):
    results = []
    for kind in FLAT:
        rooted = {"broadcast": "src", "scatter": "src", "reduce": "dst", "gather": "dst"}.get(kind)
        roots = [{rooted: 0}, {rooted: comm.size - 1}] if rooted else [{}]
        for plan in plans(kind):
            for root in roots:
                tensor = make(comm)
                if kind == "scatter" and comm.rank != root["src"]:
                    tensor = None
                before = None if tensor is None else tensor.clone()
                result = getattr(comm, kind)(tensor, plan=plan, **root, **options)
                if options.get("async_op"):
                    result = result.wait()
                assert before is None or torch.equal(before, tensor), "the argument was changed"
                results.append((kind, plan, result))
    return results


def collectives_of_every_dtype(comm):
    return [every_collective(comm, lambda c, d=d: whole(c, c.size, 2, dtype=d)) for d in DTYPES]


def collectives_of_uneven_rows(comm):
    return every_collective(comm, lambda c: whole(c, 2 * c.size + 1, 3))


def collectives_of_the_column_of_one_row(comm):
    """A single element counts as contiguous though its stride is not 1."""
    return every_collective(comm, lambda c: whole(c, 1, 4)[:, 2])


def collectives_of_few_rows(comm):
    return every_collective(comm, lambda c: whole(c, 2))


def collectives_of_a_number(comm):
    return every_collective(comm, lambda c: torch.tensor(c.rank + 2.0))


def collectives_of_nothing(comm):
    return every_collective(comm, lambda c: torch.empty(0, 3))


def collectives_of_a_transposed_tensor(comm):
    return every_collective(comm, lambda c: whole(c, 3, c.size).T)


def collectives_in_flight(comm):
    return every_collective(comm, lambda c: whole(c, c.size, 4), async_op=True)


def plans_by_name(comm):
    return every_collective(comm, lambda c: whole(c, 3 * c.size), plans=FLAT.__getitem__)


def plans_by_name_uneven(comm):
    make = lambda c: whole(c, 2 * c.size + 1, 2, dtype=torch.int32)  # noqa: E731
    return every_collective(comm, make, plans=FLAT.__getitem__)


def plans_by_name_few_rows(comm):
    return every_collective(comm, lambda c: whole(c, 2), plans=FLAT.__getitem__)


def plans_by_name_in_flight(comm):
    make = lambda c: whole(c, c.size, dtype=torch.bfloat16)  # noqa: E731
    return every_collective(comm, make, plans=FLAT.__getitem__, async_op=True)


def a_plan_by_hand(comm):
    """Every rank sends its chunk on and receives into it in the same round."""
    if comm.size != 3:
        return None
    turn = [Transfer(r, (r + 1) % 3, 0, 1, True) for r in range(3)]
    plan = Plan("all_reduce", "by hand", 3, 1, [turn])
    return comm.all_reduce(whole(comm, 4), plan=plan)


def plans_of_long_messages(comm):
    """Longer than the pieces in which real processes add a message up."""
    x = whole(comm, 7, dtype=torch.uint8).repeat(5 * 2**20 // 7 + 2)
    results = []
    for plan in ("ring", "tree", "halving_doubling", "naive"):
        y = comm.all_reduce(x, plan=plan)
        results.append((plan, y.sum().item(), y[::9973].clone()))
    return results


def two_in_flight_at_once(comm):
    x, y = whole(comm, 5), whole(comm, 4, 2)
    first = comm.all_reduce(x, plan="ring", async_op=True)
    second = comm.all_gather(y, plan="ring", async_op=True)
    third = comm.all_reduce(y, async_op=True)
    comm.compute(0.0)
    fourth = comm.all_reduce(x, op="max", plan="ring")
    return third.wait(), fourth, second.wait(), first.wait(), first.wait()


def messages_while_a_plan_is_in_flight(comm):
    """Rank 0 waits for a message that rank 1 sends before it joins the collective."""
    got = torch.zeros(3)
    if comm.size > 1 and comm.rank == 1:
        comm.send(whole(comm, 3), 0)
    reducing = comm.all_reduce(whole(comm, 6), plan="ring", async_op=True)
    if comm.size > 1 and comm.rank == 0:
        comm.recv(got, 1)
    return got, reducing.wait()


def every_reduction(comm):
    x = whole(comm, 4, 2)
    return [
        call(x, op=op, plan=plan)
        for call in (comm.all_reduce, comm.reduce, comm.reduce_scatter)
        for op in ("sum", "max", "min", "prod")
        for plan in (None, "ring")
    ]


def means(comm):
    x = torch.full((comm.size,), comm.rank * comm.size * 2.0)
    return [f(x, op="mean") for f in (comm.all_reduce, comm.reduce, comm.reduce_scatter)]


def results_that_lie_where_the_caller_wants_them(comm):
    found = []
    for plan in (None, "ring"):
        for op in ("sum", "mean"):
            x, there = torch.full((3, 2), comm.rank * comm.size * 2.0), torch.zeros(3, 2)
            assert comm.all_reduce(x, op, plan=plan, out=there) is there
            kept = x.clone()
            handle = comm.all_reduce(x, op, plan=plan, async_op=True, out=x)
            assert handle.wait() is x
            assert handle.wait() is x
            found += [kept, there, x]
    return found


def uneven_parts_join_again(comm):
    x = whole(comm, 2 * comm.size + 1, 2)
    part = comm.reduce_scatter(x)
    return part, comm.all_gather(part, length=len(x)), comm.all_gather(part, len(x), plan="ring")


def a_grid_of_groups(comm):
    row = comm.split(comm.rank // 2, axis="tp")
    column = comm.split(comm.rank % 2, key=-comm.rank, axis="dp")
    x = whole(comm, 4)
    inner = column.split(0, axis="inner")
    return [
        (row.rank, row.size, row.axis, column.rank, column.size, inner.rank, inner.axis),
        row.all_reduce(x, plan="ring"),
        column.all_gather(x, plan="ring"),
        column.all_gather(x),
        column.broadcast(x, src=column.size - 1),
        inner.all_reduce(row.all_reduce(x)),
        row.barrier(),
    ]


def some_take_no_part(comm):
    pair = comm.split("even" if comm.rank % 2 == 0 else None)
    if pair is None:
        return None
    x = whole(comm, 3)
    return pair.size, pair.all_reduce(x), pair.all_gather(x, plan="ring")


def gradients_stay_behind(comm):
    x = whole(comm, 4).requires_grad_()
    results = [comm.all_reduce(x), comm.all_reduce(x, plan="ring"), comm.broadcast(x)]
    return [r.requires_grad for r in results], results


def random_numbers(comm):
    first = torch.rand(2)
    comm.barrier()
    return first, torch.rand(2)


BAD_TAGS = ("a", None, -1, 2**30, 1.0, True, [0])


def errors_at_the_call(comm):
    """Bad input is refused before anything is sent, so the program can go on."""
    words, other = [], (comm.rank + 1) % comm.size
    for call in (
        lambda: comm.isend(torch.ones(1), comm.rank),
        lambda: comm.irecv(torch.ones(1), comm.size),
        *(lambda tag=tag: comm.isend(torch.ones(1), other, tag) for tag in BAD_TAGS),
        *(lambda tag=tag: comm.recv(torch.ones(1), other, tag) for tag in BAD_TAGS),
        lambda: comm.all_reduce([1.0]),
        lambda: comm.all_reduce(torch.ones(1), op="average"),
        lambda: comm.all_reduce(torch.ones(1, dtype=torch.int64), op="mean"),
        lambda: comm.all_reduce(torch.ones(1), out=torch.ones(2)),
        lambda: comm.all_reduce(torch.ones(2, 2), out=torch.ones(2, 2).T),
        lambda: comm.broadcast(torch.ones(1), src=comm.size),
        lambda: comm.all_reduce(torch.ones(1), plan="rings"),
        lambda: comm.all_reduce(torch.ones(1), plan=FLAT["all_reduce"]["ring"](comm.size + 1)),
        lambda: comm.compute(-1.0),
    ):
        try:  # by pytest.raises, every rank would have to import pytest
            call()
        except (TypeError, ValueError) as error:
            words.append(str(error))
        else:
            raise AssertionError(f"call {len(words)} went through")
    return words


PROGRAMS = [
    value
    for value in list(globals().values())
    if inspect.isfunction(value)
    and list(inspect.signature(value).parameters) == ["comm"]
    and value.__module__ == __name__
]
NAMED = [p for p in PROGRAMS if "plan" in p.__name__ or "message" in p.__name__]
# What torch's own collectives do is no matter of powers of two, nor of grids: three ranks show it.
OF_FOUR = [*NAMED, a_grid_of_groups, some_take_no_part]


def programs(size):
    return OF_FOUR if size == 4 else PROGRAMS


# -- both worlds ---------------------------------------------------------------------------------


def all_programs(comm):
    """Run every program; by name what it returned, the bytes this rank sent, and its calls."""
    outcomes = {}
    for program in programs(comm.size):
        messages, calls = len(comm.traffic.messages), len(comm.traffic.calls)
        try:
            result = program(comm)
        except Exception as error:
            error.add_note(f"(in {program.__name__})")
            raise
        comm.barrier()  # in the simulated world others may still have to take what was sent
        outcomes[program.__name__] = result, *mine(comm, messages, calls)
    return outcomes


def mine(comm, messages, calls):
    """(kind, axis) -> bytes that this rank has sent, and its calls with the bytes they passed;
    of the traffic without so many messages and calls at its start."""
    sent: Counter = Counter()
    for m in comm.traffic.messages[messages:]:
        if m.src == comm.rank:
            sent[m.kind, m.axis] += m.nbytes
    called = (c for c in comm.traffic.calls[calls:] if c.rank == comm.rank)
    return sent, Counter((c.kind, c.axis, c.nbytes) for c in called)


@functools.cache
def outcomes(name, size):
    return WORLDS[name](all_programs, size).results


def same(a, b):
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return a == b


@pytest.mark.parametrize(
    ("program", "size"),
    [(program, size) for size in SIZES for program in programs(size)],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_results_and_calls_are_the_same_in_both_worlds(program, size):
    for rank in range(size):
        (simulated, _, calls), (real, _, real_calls) = (
            outcomes(name, size)[rank][program.__name__] for name in WORLDS
        )
        assert same(simulated, real), f"rank {rank}: {simulated}\n{real}"
        assert calls == real_calls, f"rank {rank}"


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("program", NAMED, ids=lambda p: p.__name__)
def test_by_plan_and_point_to_point_every_rank_sends_the_same_bytes_in_both_worlds(program, size):
    for rank in range(size):
        sent, real = (outcomes(name, size)[rank][program.__name__][1] for name in WORLDS)
        del sent["barrier", ""]  # torch's own in real processes
        assert sent == real, f"rank {rank}"
