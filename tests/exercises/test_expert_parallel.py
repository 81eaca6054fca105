"""The exercises on expert parallelism: their figures are those of the package."""

import re
from collections.abc import Callable
from functools import cache, partial
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from dlsys import world
from dlsys.expert_parallel import (
    MoE,
    average_gradients,
    copies_leaving,
    count_copies,
    drawn,
    nodes_reached,
    price,
    routing,
    volume_ratio,
    width_to_hide,
)
from dlsys.expert_parallel.dispatch import dispatched
from dlsys.expert_parallel.mixture import grouped
from dlsys.hardware import DEVICES, Cluster, Link
from dlsys.transformer import MixtureOfExperts, TransformerSpec
from dlsys.world import Communicator
from tests.exercises import contract
from tests.exercises.notebooks import load, model_answer, solved


class TestForm(contract.Form): ...


class TestDraws(contract.Draws): ...


class TestWrongAnswers(contract.WrongAnswers): ...


class TestStructure(contract.Structure): ...


def question(name: str) -> str:
    """The text of a question."""
    cells = load("solutions", "expert_parallel")["cells"]
    return {cell["id"]: "".join(cell["source"]) for cell in cells}[f"{name}-question"]


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# -- who is dropped ------------------------------------------------------------------------------


def test_the_dropped_of_the_table_are_those_of_the_package() -> None:
    a = solved("expert_parallel")
    line = re.search(r"^experts +(.*)$", question("table"), re.MULTILINE)
    assert line
    table = torch.tensor([[int(digit) for digit in pair] for pair in line[1].split()])
    assert len(table) == 14
    assert a["most"] == routing.capacity(1.2, 14, 2, 6)
    kept = routing.drop(table, 6, a["most"])
    assert a["dropped"] == (kept == 6).sum()
    assert a["left_out"] == (kept == 6).all(1).nonzero().flatten().tolist()
    of_ranks = count_copies([table.tolist()] * 3, 6)
    assert a["wait"] == pytest.approx(of_ranks.imbalance)


# -- the mechanism -------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "k", "most"), [(4, 2, 5), (6, 3, 2), (3, 1, 30)])
def test_a_padded_batch_gives_what_dropping_does(number: int, k: int, most: int) -> None:
    a = solved("expert_parallel")
    x, scores = torch.randn(20, 3, generator=seeded(1)), torch.rand(20, number, generator=seeded(2))
    experts, weights = scores.topk(k).indices, torch.rand(20, k, generator=seeded(3))

    def compute(rows: Tensor, counts: list[int]) -> Tensor:
        parts = rows.split(counts)
        made = [a["read_batch"](part.expand(number, -1, -1)) for part in parts]
        return torch.cat([one[e] for e, one in enumerate(made)])

    right = grouped(x, routing.drop(experts, number, most), weights, compute, number)
    came = a["padded"](x, experts, weights, number, most)
    torch.testing.assert_close(came, right)


@pytest.mark.parametrize(
    ("tokens", "number", "k"), [([6], 4, 2), ([5, 0, 7], 6, 2), ([9, 2, 4, 3], 8, 3)]
)
def test_experts_that_are_dealt_out_give_what_one_device_gives(
    tokens: list[int], number: int, k: int
) -> None:
    """And they send what those of the package do, whose experts lie in blocks."""
    a, n = solved("expert_parallel"), len(tokens)
    data = a["choices"](3, tokens, number, k)

    def one_device(rows: Tensor, counts: list[int]) -> Tensor:
        return torch.cat([a["made_by"](e, part) for e, part in enumerate(rows.split(counts))])

    def mine(comm: Communicator) -> Tensor:
        return a["there_and_back"](comm, *data[comm.rank], number)

    def theirs(comm: Communicator) -> Tensor:
        x, experts, weights = data[comm.rank]
        dealt = experts % n * (number // n) + experts // n
        dealt = dealt.masked_fill(experts == number, number)
        compute = partial(a["read_here"], comm)
        return dispatched(comm, x, dealt, weights, compute, number)

    came, other = (world.simulate(program, n) for program in (mine, theirs))
    for rank, (x, experts, weights) in enumerate(data):
        right = grouped(x, experts, weights, one_device, number)
        torch.testing.assert_close(came.results[rank], right)
        torch.testing.assert_close(other.results[rank], right)
    assert came.traffic.by_pair() == other.traffic.by_pair()


# -- the reports ---------------------------------------------------------------------------------

RANKS, MIXTURE = 8, 4  # two mixtures, so that ranks r and r + 4 hold the same experts
SPEC = TransformerSpec(
    layers=1, hidden=8, heads=2, vocab=10, sequence=8, ffn_hidden=12, gated=True,
    moe=MixtureOfExperts(8, 2),
)  # fmt: skip
X, Y = (torch.randn(RANKS, 24, 8, generator=seeded(seed)).double() for seed in (3, 4))


def backward(comm: Communicator, mixture: Communicator | None) -> MoE:
    """A layer after its backward pass, with the gradients of this rank's tokens."""
    torch.manual_seed(1)
    layer = MoE(SPEC, mixture, everyone=comm).double()
    at = comm.rank if comm.size == RANKS else slice(None)
    (4 * layer(X[at]) - Y[at]).square().mean().backward()
    return layer


def gradients(layer: MoE) -> tuple[Tensor, Tensor]:
    """The router's, and the experts' as one."""
    router = layer.router.weight.grad
    experts = torch.cat(
        [p.grad.flatten() for p in layer.experts.parameters() if p.grad is not None]
    )
    assert router is not None
    return router, experts


@cache
def of_ranks() -> list[tuple[Tensor, Tensor]]:
    """The gradients that each rank has before they are averaged."""
    run = world.simulate(
        lambda comm: gradients(backward(comm, comm.split(comm.rank // MIXTURE))), RANKS
    )
    return run.results


Rule = Callable[[int], float]


def summed(part: int, group: Callable[[int], list[int]], by: int) -> Rule:
    """The norm of a rank's gradient that is summed over its group, in thousandths."""

    def norm(rank: int) -> float:
        parts = torch.stack([of_ranks()[one][part] for one in group(rank)])
        return float(1000 * parts.sum(0).norm() / by)

    return norm


def everyone(rank: int) -> list[int]:
    return [*range(RANKS)]


def mixture(rank: int) -> list[int]:
    first = rank // MIXTURE * MIXTURE
    return [*range(first, first + MIXTURE)]


def holders(rank: int) -> list[int]:
    return [*range(rank % MIXTURE, RANKS, MIXTURE)]


ROUTER, EXPERTS = summed(0, everyone, 8), summed(1, holders, 8)
RUNS = {
    "right": (ROUTER, EXPERTS, ""),
    "A": (ROUTER, summed(1, everyone, 8), "averaged over all ranks, as everything else"),
    "B": (ROUTER, summed(1, holders, 2), "averaged over the ranks that hold them"),
    "C": (summed(0, mixture, 4), EXPERTS, "averaged over the ranks of a mixture alone"),
    "D": (ROUTER, summed(1, lambda rank: [rank], 8), "and not summed"),
    "E": (ROUTER, summed(1, holders, 4), "and divided by the ranks of a mixture"),
}


def test_the_reports_are_those_of_runs() -> None:
    lines = ["       router's gradient on ranks 0 to 7          experts' gradients on ranks 0 to 7"]
    for name, (router, experts, _) in RUNS.items():
        parts = ("".join(f"{of(rank):5.0f}" for rank in range(RANKS)) for of in (router, experts))
        lines.append(f"{name:5}{'     '.join(parts)}")
    assert "\n".join(lines) in question("reports")


def test_the_run_that_is_right_has_the_gradients_of_one_device() -> None:
    alone = world.simulate(lambda comm: gradients(backward(comm, comm)), 1).results[0]

    def averaged(comm: Communicator) -> list[float]:
        layer = backward(comm, comm.split(comm.rank // MIXTURE))
        average_gradients(layer, comm, comm.split(comm.rank % MIXTURE))
        return [1000 * float(one.norm()) for one in gradients(layer)]

    for rank, norms in enumerate(world.simulate(averaged, RANKS).results):
        assert norms == pytest.approx([ROUTER(rank), EXPERTS(rank)])
    assert ROUTER(0) == pytest.approx(1000 * float(alone[0].norm()))
    of_experts = sum(EXPERTS(rank) ** 2 for rank in range(MIXTURE))
    assert of_experts**0.5 == pytest.approx(1000 * float(alone[1].norm()))


def test_the_causes_of_the_reports_are_those_of_the_runs() -> None:
    causes = dict(re.findall(r"^(\d)\. (.*)\.$", question("reports"), re.MULTILINE))
    assert len(causes) == 8
    for name in "ABCDE":
        answer = causes[str(solved("expert_parallel")[f"run_{name.lower()}"])]
        assert answer.endswith(RUNS[name][2])
        assert ("router" in answer) == (name == "C")


def test_the_factor_makes_a_mean_over_holders_right() -> None:
    mean, right = RUNS["B"][1](0), EXPERTS(0)
    assert right / mean == pytest.approx(1 / MIXTURE)  # whatever the number of holders
    assert solved("expert_parallel")["factor"] == 1 / 16


# -- the router ----------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 2, 4])
def test_the_repaired_weights_are_those_that_the_package_takes(k: int) -> None:
    scores = torch.randn(9, 6, generator=seeded(1))
    experts = routing.choose(scores, k)
    right = routing.softmax_before if k == 1 else routing.softmax_after
    torch.testing.assert_close(
        solved("expert_parallel")["weigh"](scores, experts), right(scores, experts)
    )


def test_the_router_stands_still_as_the_report_says() -> None:
    for k in (2, 1):
        spec = TransformerSpec(
            layers=1, hidden=8, heads=2, vocab=10, sequence=8, ffn_hidden=16,
            moe=MixtureOfExperts(4, k),
        )  # fmt: skip
        torch.manual_seed(1)
        layer = MoE(spec, weigh=routing.softmax_after).double()
        before = {name: p.detach().clone() for name, p in layer.named_parameters()}
        x, y = torch.randn(2, 64, 8, generator=seeded(2), dtype=torch.float64)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.5)
        for _ in range(50):
            optimizer.zero_grad()
            (layer(x) - y).square().mean().backward()
            optimizer.step()
        moved = {
            name: (p.detach() - before[name]).abs().max().item()
            for name, p in layer.named_parameters()
        }
        experts = max(far for name, far in moved.items() if name != "router.weight")
        report = f"k = {k}     {moved['router.weight']:.4f}      {experts:.4f}"
        assert report in question("router")


def test_the_slope_is_the_gradient_of_the_weight() -> None:
    a, scores = solved("expert_parallel"), torch.tensor([[2.1, 1.2, 0.4, -0.7]])
    scores.requires_grad_()
    a["weigh"](scores, routing.choose(scores, 1)).sum().backward()
    assert scores.grad is not None
    assert a["slope"] == pytest.approx(float(scores.grad[0, 0]))


def test_two_of_the_five_routers_learn_from_the_models_loss() -> None:
    weighed = {
        "a": (routing.softmax_after, 1),
        "b": (routing.softmax_after, 2),
        "c": (routing.sigmoids, 1),
        "d": (solved("expert_parallel")["weigh"], 1),
        "e": (routing.softmax_after, 1),
    }
    learns = []
    for letter, (weigh, k) in weighed.items():
        scores = torch.randn(5, 4, generator=seeded(1), requires_grad=True)
        weights = weigh(scores, routing.choose(scores, k))
        (weights * torch.randn(5, k, generator=seeded(2))).sum().backward()
        assert scores.grad is not None
        if scores.grad.abs().max() > 1e-3:
            learns.append(letter)
    assert solved("expert_parallel")["learns"] == learns


# -- what crosses --------------------------------------------------------------------------------


def test_what_crosses_nodes_is_what_the_laws_and_a_drawn_dispatch_say() -> None:
    a, row, tokens = solved("expert_parallel"), 2 * 5120, 6144
    assert a["once"] == pytest.approx(tokens * nodes_reached(5, 96, 3) * row)
    assert a["straight"] == pytest.approx(tokens * copies_leaving(5, 3) * row)
    card, fabric = Link("card", 0.0, 25e9), Link("fabric", 0.0, 300e9)
    cluster = Cluster(DEVICES["h100-sxm"], 3, 8, fabric, card)
    for name, limit, once in (("straight", 3, False), ("once", 3, True), ("limited", 2, True)):
        some = drawn(150, 96, 5, 24, devices_per_node=8, most_nodes=limit)
        cost = price(some, cluster, 5120, once_a_node=once)
        of_a_device = cost.between_nodes / 2 / 24  # dispatch and combine
        assert of_a_device * tokens / 150 == pytest.approx(a[name], rel=0.02)


def test_the_exchanges_send_more_from_the_k_of_the_exercise_on() -> None:
    k = solved("expert_parallel")["from_k"]
    assert volume_ratio(k - 1, 4, 8) < 1 < volume_ratio(k, 4, 8)


def test_the_neurons_of_the_exercise_are_those_of_the_law() -> None:
    assert solved("expert_parallel")["neurons"] == pytest.approx(width_to_hide(350e12, 300e9, 8))


# -- design --------------------------------------------------------------------------------------


def designs() -> list[dict[str, Any]]:
    """All that can be chosen."""
    choices = solved("expert_parallel")["CHOICES"]
    return [dict(zip(choices, one, strict=True)) for one in product(*choices.values())]


def shortest(most_bytes: float = 80e9, even: bool = False, **links: float) -> list[float]:
    """The seconds of all designs that are allowed, the shortest first, alike ones once."""
    a = solved("expert_parallel")
    allowed = [d for d in designs() if a["memory"](d, even) <= most_bytes]
    return sorted({a["seconds"](d, even=even, **links) for d in allowed})


def test_one_design_is_the_shortest_by_far() -> None:
    a, (first, second, *_) = solved("expert_parallel"), shortest()
    assert a["memory"](a["design"]) <= 80e9
    assert a["seconds"](a["design"]) == first
    assert second > 1.03 * first
    assert [d for d in designs() if a["seconds"](d) == first] == [a["design"]]


def test_memory_is_what_binds() -> None:
    a, (now, *_) = solved("expert_parallel"), shortest()
    saved = {
        "memory": now - shortest(141e9)[0],
        "cards": now - shortest(card=2 * a["CARD"])[0],
        "balance": now - shortest(even=True)[0],
    }
    assert max(saved, key=saved.__getitem__) == a["loosened"] == "memory"
    assert a["saves"] == pytest.approx(saved["memory"])
    assert saved["memory"] > 2 * max(saved["cards"], saved["balance"])


def test_the_model_and_the_links_of_the_design_are_those_of_the_question() -> None:
    a = solved("expert_parallel")
    text = question("design")
    experts = a["LAYERS"] * a["EXPERTS"] * 3 * a["WIDTH"] * a["NEURONS"]
    assert f"{(experts + a['REST']) / 1e9:.1f} billion parameters" in text
    assert f"{a['LAYERS']} layers of width {a['WIDTH']:,}" in text
    assert f"{a['EXPERTS']} gated experts of {a['NEURONS']:,} neurons" in text
    assert f"visits {a['VISITS']}." in text
    assert f"{a['INSIDE'] / 1e9:.0f} GB/s, and {a['CARD'] / 1e9:.0f} GB/s by its own card" in text
    assert f"{a['STEP']:,} tokens" in text


def test_the_loads_of_the_design_are_those_of_drawn_dispatches() -> None:
    a = solved("expert_parallel")
    for (ep, limit), seen in a["SEEN"].items():
        some = drawn(8192 // ep, a["EXPERTS"], a["VISITS"], ep, 0.15, 8, limit, seed=1)
        others = sum(
            tokens
            for rank, of_nodes in enumerate(some.nodes)
            for node, tokens in enumerate(of_nodes)
            if node != rank // 8
        )
        assert seen == pytest.approx((some.imbalance, others / 8192), abs=6e-4)


@pytest.mark.parametrize(("ep", "limit"), [(8, 1), (16, 1), (16, 2), (64, 2), (64, 8)])
def test_the_exchanges_of_the_design_take_as_long_as_those_of_the_package(
    ep: int, limit: int
) -> None:
    """But for what a rank waits in rounds whose message is another's, up to a half more."""
    a, each = solved("expert_parallel"), 8192 // ep
    some = drawn(each, a["EXPERTS"], a["VISITS"], ep, 0.15, 8, limit, seed=1)
    card, fabric = Link("card", 0.0, a["CARD"]), Link("fabric", 0.0, a["INSIDE"])
    cluster = Cluster(DEVICES["h100-sxm"], ep // 8, 8, fabric, card)
    cost = price(some, cluster, a["WIDTH"], once_a_node=True)
    of = a["parts"]({"ep": ep, "nodes": limit, "tokens": 2048, "recompute": False})
    needed = {1: 1.03, 2: 1.01}.get(limit, 1.0) if 8 * limit < ep else 1.0
    exchanges = needed * a["STEP"] / 64 / 2048 * 4 * a["LAYERS"]
    mine = (of["between nodes"] + of["inside"]) / exchanges * each / 2048
    assert 0.9 * mine < cost.dispatch < 1.6 * mine


# -- the answer in words -------------------------------------------------------------------------


def test_the_figures_of_the_model_answer_on_two_nodes_are_right() -> None:
    text, row, tokens = model_answer("expert_parallel"), 2 * 4096, 8192
    inside = tokens * copies_leaving(4, 8) * row
    crossing = tokens * copies_leaving(4, 2) * row
    reached = nodes_reached(4, 128, 2)
    once = tokens * reached * row
    assert f"{inside / 1e6:.0f} MB, which take {1e3 * inside / 300e9:.2f} ms" in text
    assert f"{crossing / 1e6:.0f} MB by the card, {1e3 * crossing / 25e9:.1f} ms" in text
    assert f"{100 * reached:.0f} % of the tokens" in text
    assert f"{once / 1e6:.0f} MB cross in {1e3 * once / 25e9:.1f} ms" in text
    assert f"half of the tokens cross, {tokens / 2 * row / 1e6:.0f} MB" in text
    everything = width_to_hide(250e12, 25e9, 16)
    assert f"half a point with {everything:,.0f}," in text
    before, after = width_to_hide(250e12, 300e9, 8), width_to_hide(250e12, 25e9, 2)
    assert f"{before:,.0f} neurons" in text
    assert f"it takes {after:,.0f}:" in text
    assert f"{after * reached / copies_leaving(4, 2):,.0f} neurons are enough" in text
    assert before < 2048 < after
