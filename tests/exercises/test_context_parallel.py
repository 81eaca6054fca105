"""The exercises on context parallelism: their figures are those of the package."""

import re
from dataclasses import replace
from functools import cache, partial
from itertools import product
from typing import Any

import pytest
import torch

from dlsys import world
from dlsys.context_parallel import (
    attend,
    attend_backward,
    layout,
    merge,
    price,
    ring_attention,
    tokens_to_hide,
)
from dlsys.context_parallel.ring import pass_on
from dlsys.hardware import Link, dgx_h100
from dlsys.transformer import TransformerSpec
from dlsys.world import Communicator
from tests.exercises import contract
from tests.exercises.notebooks import load, model_answer, solved


class TestForm(contract.Form): ...


class TestDraws(contract.Draws): ...


class TestWrongAnswers(contract.WrongAnswers): ...


class TestStructure(contract.Structure): ...


def question(name: str) -> str:
    """The text of a question."""
    cells = load("solutions", "context_parallel")["cells"]
    return {cell["id"]: "".join(cell["source"]) for cell in cells}[f"{name}-question"]


# -- the mechanism -------------------------------------------------------------------------------


def test_the_rest_of_the_keys_is_what_attention_finds_in_them_alone() -> None:
    q, k, v = torch.randn(3, 1, 12, 2, 4, generator=torch.Generator().manual_seed(1))
    seen = torch.ones(12, 12, dtype=torch.bool)
    whole, part, rest = (
        attend(q, k[:, keys], v[:, keys], seen[:, keys])
        for keys in (slice(12), slice(5), slice(5, 12))
    )
    for came, right in zip(solved("context_parallel")["rest"](whole, part), rest, strict=True):
        assert torch.allclose(came, right, atol=1e-4)


@pytest.mark.parametrize(("ranks", "tokens"), [(1, 5), (3, 13), (4, 16)])
def test_the_two_passes_are_those_of_the_ring_that_the_page_shows(ranks: int, tokens: int) -> None:
    answers, shares = solved("context_parallel"), layout(tokens, ranks)
    tensors = torch.randn(4, 1, tokens, 2, 4, generator=torch.Generator().manual_seed(1))

    def theirs(comm: Communicator) -> list[torch.Tensor]:
        *leaves, dout = (x[:, shares.positions(comm.rank)] for x in tensors)
        leaves = [x.requires_grad_() for x in leaves]
        out = ring_attention(comm, shares, *leaves)
        return [out.detach(), *torch.autograd.grad(out, leaves, dout)]

    def mine(comm: Communicator) -> list[torch.Tensor]:
        positions = [shares.positions(rank) for rank in range(ranks)]
        q, k, v, dout = (x[:, positions[comm.rank]] for x in tensors)
        out, lse = answers["ring_forward"](comm, positions, q, k, v)
        gradients = answers["ring_backward"](comm, positions, q, k, v, out, lse, dout)
        return [out, *gradients]

    one, other = (world.simulate(program, ranks) for program in (theirs, mine))
    for right, came in zip(one.results, other.results, strict=True):
        assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(right, came, strict=True))
    assert sum(one.traffic.sent) == sum(other.traffic.sent)


def test_scores_of_packed_documents_are_those_of_layouts() -> None:
    answers, documents = solved("context_parallel"), [65_536, *16 * [4096]]
    starts = [sum(documents[:i]) for i in range(len(documents))]
    contiguous, zigzag = (
        layout(sum(documents), 8, kind, starts).load() for kind in ("contiguous", "zigzag")
    )
    assert answers["each"] == pytest.approx(sum(contiguous) / 8)
    assert answers["busiest"] == max(contiguous)
    assert max(zigzag) > 1.2 * answers["each"]
    small = [8, 24, 16]
    load_of = layout(48, 4, "zigzag", (0, 8, 32)).load()
    assert answers["scores"](answers["whole_zigzag"](small, 4), small) == load_of


# -- the reports ---------------------------------------------------------------------------------

RANKS, EACH = 4, 3  # contiguous, so that rank 0 sees itself alone, and rank 3 is seen by nobody
Q, K, V, Y = (
    torch.randn(1, RANKS * EACH, heads, 4, dtype=torch.float64, generator=stream)
    for stream in [torch.Generator().manual_seed(2)]
    for heads in (4, 2, 2, 4)
)
# Tokens that the loss counts: 3, 1, 2 and 2 of each rank's.
COUNTED = torch.tensor([1, 1, 1, 0, 1, 0, 1, 0, 1, 1, 1, 0], dtype=torch.float64)[:, None, None]


def rotated(x: torch.Tensor, positions: list[int], back: bool = False) -> torch.Tensor:
    """Rotary positions of a head of four numbers."""
    angles = torch.tensor(positions, dtype=torch.float64)[:, None, None] * torch.tensor([1.0, 0.1])
    cos, sin = angles.cos(), angles.sin() * (-1 if back else 1)
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


def step(comm: Communicator, fault: str) -> list[torch.Tensor]:
    """The rank's loss, its results, and the gradients of its q, k and v, with this fault."""
    me, n = comm.rank, comm.size
    shares = layout(RANKS * EACH, n, "contiguous")
    at = [torch.tensor(shares.positions(rank)) for rank in range(n)]
    numbered = [*range(len(at[me]))] if fault == "anew" else at[me].tolist()
    q, k = (rotated(x[:, at[me]], numbered) for x in (Q, K))
    kv, found = torch.stack((k, V[:, at[me]])), None
    mine = kv
    for i in range(n):
        owner = (me - i) % n
        one = attend(q, kv[0], kv[1], at[owner] <= at[me][:, None])
        found = merge(found, one) if found else one
        kv = pass_on(comm, kv, len(at[owner]))()
    assert found
    out, lse = found
    counted = COUNTED[at[me]]
    total = n * counted.sum() if fault == "mean of means" else COUNTED.sum()
    difference = counted * (out - Y[:, at[me]])
    loss, dout = difference.square().sum() / total, 2 * difference / total
    delta = (out * dout).sum(-1, keepdim=True)
    kv, dq, dkv = mine, torch.zeros_like(q), torch.zeros_like(mine)
    for i in range(n):
        owner = (me - i) % n
        seen = at[owner] <= at[me][:, None]
        own_lse = attend(q, kv[0], kv[1], seen)[1] if fault == "lse of each block" else lse
        more = attend_backward(q, kv[0], kv[1], seen, own_lse, dout, delta)
        dq += more[0]
        if fault != "lost" or i == 0:
            dkv = dkv + torch.stack(more[1:])
        if i < n - 1 or fault != "one hop short":
            dkv = pass_on(comm, dkv, EACH)()
        if fault != "stale":
            kv = pass_on(comm, kv, EACH)()
    return [loss, out, rotated(dq, numbered, True), rotated(dkv[0], numbered, True), dkv[1]]


@cache
def report(fault: str) -> list[str]:
    """The loss, and how far a rank's results and gradients are off, in percent, by rank."""
    right, came = (world.simulate(step, RANKS, args=(one,)).results for one in ("none", fault))
    words = [f"{sum(loss for loss, *_ in came):.3f}"]
    for part in range(1, 5):
        for one, other in zip(right, came, strict=True):
            off = (one[part] - other[part]).abs().max() / one[part].abs().max()
            words.append(f"{100 * off:.0f}")
    return words


RUNS = {
    "right": "none",
    "A": "stale",
    "B": "anew",
    "C": "lost",
    "D": "mean of means",
    "E": "one hop short",
    "F": "lse of each block",
}


def table() -> str:
    """The reports as the question shows them."""
    parts = [f"{part:24}" for part in ("out", "dq", "dk", "dv")]
    lines = [f"       loss      {'   '.join(parts)}".rstrip()]
    for name, fault in RUNS.items():
        loss, *errors = report(fault)
        each = ["".join(f"{one:>6}" for one in errors[i : i + 4]) for i in range(0, 16, 4)]
        lines.append(f"{name:5}  {loss}  {'   '.join(each)}")
    return "\n".join(lines)


def test_without_a_fault_the_step_is_that_of_one_device() -> None:
    q, k, v = (x.clone().requires_grad_() for x in (Q, K, V))
    at = [*range(RANKS * EACH)]
    seen = torch.ones(len(at), len(at)).tril().bool()
    out, _ = attend(rotated(q, at), rotated(k, at), v, seen)
    loss = (COUNTED * (out - Y)).square().sum() / COUNTED.sum()
    alone = torch.autograd.grad(loss, (q, k, v))
    results = world.simulate(step, RANKS, args=("none",)).results
    assert sum(loss for loss, *_ in results).item() == pytest.approx(loss.item())
    for part, right in enumerate(alone, start=2):
        assert torch.allclose(torch.cat([one[part] for one in results], 1), right)


def test_the_reports_are_those_of_runs() -> None:
    assert table() in question("reports")


def test_the_causes_of_the_reports_are_those_of_the_runs() -> None:
    causes = dict(re.findall(r"^(\d)\. (.*)$", question("reports"), re.MULTILINE))
    words = {
        "stale": "In backward a rank attends to its own keys in every round.",
        "anew": "Every rank numbers its tokens from 0 on.",
        "lost": "What a rank finds for other ranks' keys is lost.",
        "mean of means": "The loss is the mean of the ranks' means.",
        "one hop short": "Gradients of keys and values make one hop too few.",
        "lse of each block": "Backward takes the log-sum-exp of each block, not of all keys.",
    }
    for name in "ABCDEF":
        answer = solved("context_parallel")[f"run_{name.lower()}"]
        assert causes[str(answer)] == words[RUNS[name]]


# -- tokens --------------------------------------------------------------------------------------

SPEC = TransformerSpec(
    layers=1, hidden=5120, heads=40, vocab=10, sequence=8192, kv_heads=8, gated=True
)
TOKENS_RATE, WIRE = 180e12, Link("card", 0.0, 25e9)


def exposed(tokens: float, ranks: int = 4, which: str = "forward", **options: Any) -> float:
    """The share of a pass in which the busiest device of a ring waits."""
    shares = layout(round(tokens) * ranks, ranks)
    one = getattr(price(shares, SPEC, WIRE, "ring", TOKENS_RATE, **options), which)
    return one.exposed_seconds / one.seconds


def test_the_tokens_of_the_exercise_are_those_of_the_law() -> None:
    answers, law = solved("context_parallel"), partial(tokens_to_hide, SPEC, TOKENS_RATE)
    assert answers["forward"] == pytest.approx(law(WIRE.bandwidth))
    assert answers["no_mask"] == pytest.approx(law(WIRE.bandwidth, causal=False))
    assert exposed(1.01 * answers["forward"]) < 1e-9 < exposed(0.99 * answers["forward"])


def test_backward_hides_earlier() -> None:
    """But for the last hop of the gradients, which has nothing to hide behind."""
    edge = solved("context_parallel")["backward"]
    below, above = (
        price(layout(round(x * edge) * 8, 8), SPEC, WIRE, "ring", TOKENS_RATE).backward
        for x in (0.9, 1.1)
    )
    hop = [WIRE.seconds(2 * round(x * edge) * 8 * 128 * 2) for x in (0.9, 1.1)]
    assert above.exposed_seconds == pytest.approx(hop[1], rel=1e-6)
    assert below.exposed_seconds > 1.5 * hop[0]


def test_a_device_waits_as_long_as_the_exercise_says_in_a_long_ring() -> None:
    waits = solved("context_parallel")["waits"]
    assert exposed(2048, 256) == pytest.approx(waits, rel=0.02)
    assert waits == pytest.approx(1 - 2048 / solved("context_parallel")["forward"])


def test_two_changes_lower_the_tokens_and_four_do_not() -> None:
    law, base = tokens_to_hide, tokens_to_hide(SPEC, TOKENS_RATE, WIRE.bandwidth)
    changed = {
        "a": law(replace(SPEC, head_size=256), TOKENS_RATE, WIRE.bandwidth),
        "b": law(SPEC, TOKENS_RATE, WIRE.bandwidth, itemsize=1),
        "c": law(SPEC, 2 * TOKENS_RATE, WIRE.bandwidth),
        "d": law(SPEC, TOKENS_RATE, WIRE.bandwidth),  # of the number of ranks it knows nothing
        "e": law(replace(SPEC, kv_heads=4), TOKENS_RATE, WIRE.bandwidth),
        "f": law(replace(SPEC, heads=24), TOKENS_RATE, WIRE.bandwidth),
    }
    assert [letter for letter, tokens in changed.items() if tokens < base] == ["b", "e"]
    assert solved("context_parallel")["lower"] == ["b", "e"]
    assert exposed(1.01 * base, 16) < 1e-9


# -- design --------------------------------------------------------------------------------------


def designs() -> list[dict[str, Any]]:
    """All that can be chosen."""
    choices = solved("context_parallel")["CHOICES"]
    return [dict(zip(choices, one, strict=True)) for one in product(*choices.values())]


def test_one_design_is_the_cheapest_by_far() -> None:
    a = solved("context_parallel")
    fits = [d for d in designs() if a["memory"](d) <= 80e9 and a["seconds"](d) <= 1.2]
    first, second = sorted(fits, key=a["device_seconds"])[:2]
    assert first == a["design"]
    assert a["device_seconds"](second) > 1.1 * a["device_seconds"](first)


def test_cards_are_what_binds() -> None:
    a = solved("context_parallel")

    def cheapest(most_bytes: float = 80e9, **faster: float) -> float:
        return min(
            a["device_seconds"](d, **faster)
            for d in designs()
            if a["memory"](d) <= most_bytes and a["seconds"](d, **faster) <= 1.2
        )

    saved = {
        "memory": cheapest() - cheapest(141e9),
        "cards": cheapest() - cheapest(card=2 * a["CARD"]),
        "fabric": cheapest() - cheapest(inside=2 * a["INSIDE"]),
    }
    assert a["loosened"] == "cards"
    assert a["saves"] == pytest.approx(saved["cards"])
    assert saved["cards"] > 10 * max(saved["memory"], saved["fabric"])


@pytest.mark.parametrize(("nodes", "ulysses"), [(4, 4), (8, 8), (16, 8), (16, 2)])
@pytest.mark.parametrize("keys", ["ring", "gathered"])
def test_the_prices_of_the_designs_are_those_of_the_package(
    nodes: int, ulysses: int, keys: str
) -> None:
    a = solved("context_parallel")
    design = {"nodes": nodes, "keys": keys, "ulysses": ulysses, "inside": "ulysses",
              "recompute": False}  # fmt: skip
    model = replace(SPEC, heads=a["HEADS"], kv_heads=a["KEY_HEADS"])
    ring = 8 * nodes // ulysses
    of_ring = replace(model, heads=40 // ulysses, kv_heads=8 // ulysses, head_size=128)
    card, fabric = Link("card", 0.0, a["CARD"]), Link("fabric", 0.0, a["INSIDE"])
    passes = price(layout(a["LENGTH"], ring), of_ring, card, keys, a["RATE"], algorithm="default")  # type: ignore[arg-type]
    waits = passes.forward.exposed_seconds + passes.backward.exposed_seconds
    assert a["parts"](design)["waiting for keys"] == pytest.approx(a["LAYERS"] * waits, rel=0.04)
    swaps = price(layout(a["LENGTH"] // ring, ulysses), model, fabric, "ulysses", a["RATE"])
    both = swaps.forward.exposed_seconds + swaps.backward.exposed_seconds
    assert a["parts"](design)["swaps"] == pytest.approx(a["LAYERS"] * both)


def test_the_ring_of_the_design_hides_from_the_length_of_the_exercise_on() -> None:
    a = solved("context_parallel")
    ring = 8 * a["design"]["nodes"] // a["design"]["ulysses"]
    assert a["hides_from"] == pytest.approx(ring * tokens_to_hide(SPEC, a["RATE"], a["CARD"]))


# -- the answer in words -------------------------------------------------------------------------

CLAIM = TransformerSpec(
    layers=1, hidden=8192, heads=64, vocab=10, sequence=8192, kv_heads=8, gated=True
)


def test_the_figures_of_the_model_answer_on_fewer_bytes_are_right() -> None:
    text, shares = model_answer("context_parallel"), layout(131_072, 16)
    ring, ulysses = (
        price(shares, CLAIM, dgx_h100(2), m, 400e12, algorithm="default").forward  # type: ignore[arg-type]
        for m in ("ring", "ulysses")
    )
    assert f"{ring.bytes_per_rank / 1e6:.0f} MB" in text
    assert f"{ulysses.bytes_per_rank / 1e6:.0f} MB" in text
    block = ring.bytes_per_rank / 15
    assert f"{block / 1e6:.1f} MB" in text
    keys = 15 / 16 * block  # of the swaps, without copies
    assert f"{(ulysses.bytes_per_rank - keys) / 1e6:.0f} MB" in text
    assert ring.exposed_seconds < 1e-9
    tokens = tokens_to_hide(CLAIM, 400e12, 50e9)
    assert all(f"{many * tokens:,.0f} tokens" in text for many in (1, 2, 16))
    assert f"{1e3 * ulysses.exposed_seconds:.1f} ms" in text
    assert f"{1e3 * ring.compute_seconds:.0f} ms" in text
