"""The exercises on tensor parallel: their figures are those of the package, and what holds for all."""

from dataclasses import replace
from operator import itemgetter
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from dlsys import world
from dlsys.collectives import ring_all_reduce
from dlsys.exercises.tensors import cut, numbers
from dlsys.hardware import DEVICES, LINKS, Device
from dlsys.tensor_parallel import (
    ColumnParallelLinear,
    TensorParallelGPT,
    VocabParallelEmbedding,
    all_gather_matmul,
    all_reduce_bytes,
    copy,
    gather_sequence,
    matmul_reduce_scatter,
    reduce,
    scatter_sequence,
    step_bytes,
    vocab_parallel_cross_entropy,
)
from dlsys.transformer import TransformerSpec
from dlsys.world import Communicator
from tests.exercises import contract
from tests.exercises.notebooks import model_answer, solved


class TestForm(contract.Form): ...


class TestDraws(contract.Draws): ...


class TestWrongAnswers(contract.WrongAnswers): ...


class TestStructure(contract.Structure): ...


def test_the_figures_of_the_model_answer_on_staying_in_a_node_are_right() -> None:
    text, answers = model_answer("tensor_parallel"), solved("tensor_parallel")
    message, parameters = all_reduce_bytes(4096, 10240), 12 * 80 * 10240**2
    nvlink, network = (
        320 * ring_all_reduce(8).price(message, LINKS[name]).seconds
        for name in ("nvlink4", "infiniband-ndr")
    )
    compute = 6 * parameters * 4096 / 8 / (0.5 * DEVICES["h100-sxm"].rate("bf16"))
    sent, gradients = step_bytes(80, 8, 4096, 10240), 2 * parameters / 8
    waiting = 2 * gradients / LINKS["infiniband-ndr"].bandwidth  # of a ring over many groups
    assert compute * 2 / 3 < waiting < network * 8
    assert (
        answers["all_reduce_bytes"] * 80 * answers["sent"]["kept"] == sent == 320 * 7 / 4 * message
    )
    assert sent < 2 * gradients < 2 * sent
    assert nvlink / (nvlink + compute) < 0.2
    assert network / (network + compute) == pytest.approx(0.6, rel=0.02)
    for figure in (
        f"{sent / 1e9:.1f} GB for tensor parallelism",
        f"{parameters / 1e9:.1f} billion",
        f"{parameters / 8e9:.2f} billion",
        f"its {gradients / 1e9:.1f} GB of gradients: {2 * gradients / 1e9:.1f} GB",
        f"{sent / 320 / 1e6:.1f} MB",
        f"{compute:.2f} s for this micro-batch",
        f"add {nvlink:.3f} s",
        f"takes {waiting:.2f} s, and a backward pass of {compute * 2 / 3:.2f} s does not",
        f"computing takes {8 * compute:.1f} s, the gradients {waiting:.2f} s",
        f"over InfiniBand {8 * network:.1f} s",
        f"add {network:.3f} s",
        f"{320 * 14 * LINKS['infiniband-ndr'].latency * 1e3:.1f} ms",
    ):
        assert figure in text, figure


class Again(torch.nn.Module):
    """A module that backward computes again."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *x: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.module, *x, use_reentrant=False)


def one_layer(comm: Communicator, sequence_parallel: bool, case: str) -> None:
    """Forward and backward of a layer in the middle, some of it computed again."""
    spec = TransformerSpec(layers=1, hidden=16, heads=4, kv_heads=4, vocab=32, sequence=8)
    layer = TensorParallelGPT(spec, comm, sequence_parallel).layers[0]
    if case == "scores":
        layer.attention.core = Again(layer.attention.core)
    if case == "frozen":
        for parameter in layer.parameters():
            parameter.requires_grad_(parameter.dim() == 1)
    tokens = 8 // (comm.size if sequence_parallel else 1)
    x = torch.randn(1, tokens, 16, requires_grad=True)
    if case == "branches":
        x = x + Again(torch.nn.Sequential(layer.norm1, layer.attention))(x)
        y = x + Again(torch.nn.Sequential(layer.norm2, layer.ffn))(x)
    else:
        y = (Again(layer) if case == "layer" else layer)(x)
    y.square().sum().backward()


def test_a_layer_sends_what_the_exercise_predicts_whatever_is_computed_again() -> None:
    for case, said in solved("tensor_parallel")["sent"].items():
        parallel = case.startswith("sp ")
        run = world.simulate(one_layer, 4, args=(parallel, case.removeprefix("sp ")))
        kinds = [call.kind for call in run.traffic.calls if call.rank == 0]
        counted = [kinds.count("all_gather"), kinds.count("reduce_scatter")]
        assert said == (counted if parallel else kinds.count("all_reduce")), case
        assert parallel or counted == [0, 0]


def on_the_layers(comm: Communicator, way: str) -> None:
    """The branch of the question on pieces, on the package's functions: 16 tokens, h = 64."""
    t = comm.size
    x, up, down = (
        torch.empty(*shape, dtype=torch.bfloat16, device="meta")
        for shape in ((1, 16 // t, 64), (256 // t, 64), (64, 256 // t))
    )
    if way == "plain":
        scatter_sequence(F.linear(F.linear(gather_sequence(x, comm), up), down), comm)
    elif way == "halves":
        x = torch.empty(1, 8, 64, dtype=torch.bfloat16, device="meta")
        first = comm.all_reduce(F.linear(F.linear(x, up), down), async_op=True)
        second = F.linear(F.linear(x, up), down)
        first.wait()
        comm.all_reduce(second)
    else:
        matmul_reduce_scatter(all_gather_matmul(x, up, comm), down, comm)


@pytest.mark.parametrize("way", ["plain", "pieces", "fast", "eight", "halves"])
def test_a_branch_in_pieces_takes_as_long_as_the_packages_own(way: str) -> None:
    rate, message = 2 * 4 * 64 * 64 / 2e-3, 4 * 64 * 2 / (1e-3 if way == "fast" else 3e-3)
    device = Device("made up", {"bf16": rate}, memory=1e12, memory_bandwidth=1e15)
    link = replace(LINKS["nvlink4"], latency=0.0, bandwidth=message)
    ranks = 8 if way == "eight" else 4
    run = world.simulate(on_the_layers, ranks, args=(way,), link=link, device=device)
    assert solved("tensor_parallel")["measured"][way] == pytest.approx(1e3 * run.seconds, rel=1e-4)


def sizes(keys: str, seed: int = 0) -> list[torch.Tensor]:
    """Matrices and vectors of the branch: x, w, U, D, b."""
    shapes = {"x": (8, 4), "w": (4,), "U": (4, 12), "D": (12, 4), "b": (4,), "words": (12, 4)}
    return [numbers(f"{seed}/{key}", *shapes[key]) for key in keys.split()]


class Otherwise(torch.autograd.Function):
    """A collective forward, and another backward."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, forward: Any, backward: Any) -> torch.Tensor:
        ctx.backward_with = backward
        return forward(x) if forward else x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return ctx.backward_with(grad), None, None


def trained(comm: Communicator, case: str) -> dict[str, torch.Tensor]:
    """The gradients of the branch on this rank, with the change that a case names."""
    x, w, up, down, bias = sizes("x w U D b")
    up, down = cut(up, 1, comm), cut(down, 0, comm)
    leaves = {"w": w, "U": up, "D": down, "b": bias}
    for leaf in leaves.values():
        leaf.requires_grad_()
    target = numbers("target", 8, 4)
    if case == "loss":
        x, target = cut(x, 0, comm), cut(target, 0, comm)
        y = x + scatter_sequence((gather_sequence(x * w, comm) @ up).relu() @ down, comm) + bias
    elif case == "sum":
        normed = Otherwise.apply(x * w, None, lambda g: comm.all_reduce(g, "mean"))
        addend = (normed @ up).relu() @ down
        y = x + Otherwise.apply(addend, comm.all_reduce, comm.all_reduce) + bias
    elif case == "bias":
        y = x + reduce((copy(x * w, comm) @ up).relu() @ down + bias / 4, comm)
    else:
        y = x + reduce((copy(x * w, comm) @ up).relu() @ down, comm) + bias
    if case == "masks":
        y = y * (numbers(f"mask {comm.rank}", 8, 4) > 0)
    (y * target).sum(1).mean().backward()
    found = {name: leaf.grad for name, leaf in leaves.items()}
    if case == "loss":
        found |= {name: comm.all_reduce(found[name], "mean") for name in ("w", "b")}
    return found


def factor(several: list[torch.Tensor], right: list[torch.Tensor]) -> float:
    """How many times what it should be each rank has; 0 where these differ."""
    ratios = torch.cat([(a / b)[b.abs() > 1e-6] for a, b in zip(several, right, strict=True)])
    return ratios[0].item() if torch.allclose(ratios, ratios[:1], rtol=1e-3) else 0.0


def run_trained(case: str, name: str) -> list[torch.Tensor]:
    return [each[name] for each in world.simulate(trained, 4, args=(case,)).results]


@pytest.mark.parametrize(
    ("case", "name"), [("sum", "w"), ("bias", "b"), ("loss", "U"), ("masks", "b")]
)
def test_a_changed_branch_has_a_gradient_of_the_factor_that_the_exercise_predicts(
    case: str, name: str
) -> None:
    said = solved("tensor_parallel")["factors"][case]
    assert said == pytest.approx(factor(run_trained(case, name), run_trained("right", name)))


def test_what_the_exercise_says_beside_is_so_too() -> None:
    assert factor(run_trained("sum", "D"), run_trained("right", "D")) == pytest.approx(4)
    for name in ("w", "b"):
        assert factor(run_trained("loss", name), run_trained("right", name)) == pytest.approx(1)


def test_adam_does_not_see_a_mean_in_the_place_of_a_sum() -> None:
    steps = []
    for times in (1, 1 / 4):
        w = torch.ones(4, requires_grad=True)
        w.grad = run_trained("right", "w")[0] * times
        torch.optim.Adam([w]).step()
        steps.append(w.detach() - 1)
    said = solved("tensor_parallel")["factors"]["adam"]
    assert said == pytest.approx(factor([steps[1]], [steps[0]]), rel=1e-3)


def clipped(comm: Communicator, counted: bool) -> torch.Tensor:
    """The gradient of a rank's part of U, clipped by a norm that counts copies of w as said."""
    whole, copies = torch.full((8,), 3.0), torch.full((4,), 3.0)  # squares 72 and 36
    own = cut(whole, 0, comm)
    squares = comm.all_reduce(own.square().sum() + counted * copies.square().sum())
    squares += (not counted) * copies.square().sum()
    return own / squares.sqrt()


def test_a_norm_that_counts_copies_clips_by_the_factor_that_the_exercise_predicts() -> None:
    several, right = (world.simulate(clipped, 4, args=(c,)).results for c in (True, False))
    both = torch.cat([torch.full((8,), 3.0), torch.full((4,), 3.0)])
    by_torch = both.clone().requires_grad_()
    by_torch.grad = both
    torch.nn.utils.clip_grad_norm_([by_torch], 1.0)
    assert torch.allclose(torch.cat(right), by_torch.grad[:8])
    assert solved("tensor_parallel")["factors"]["clip"] == pytest.approx(factor(several, right))


def tied(comm: Communicator) -> torch.Tensor:
    tokens, targets = torch.arange(8) % 12, torch.arange(3, 11)
    layer = VocabParallelEmbedding(12, 4, comm)
    layer.weight.data.copy_(cut(sizes("words")[0], 0, comm))
    logits = copy(layer(tokens), comm) @ layer.weight.T
    vocab_parallel_cross_entropy(logits, targets, comm).backward()
    return layer.weight.grad


def gathered_logits(comm: Communicator) -> torch.Tensor:
    x, words = sizes("x words")
    own = cut(words, 0, comm).requires_grad_()
    logits = Otherwise.apply((x @ own.T).T.contiguous(), comm.all_gather, comm.reduce_scatter).T
    torch.nn.functional.cross_entropy(logits, torch.arange(8)).backward()
    return own.grad


def test_words_gradients_are_those_of_one_device_times_what_the_exercise_predicts() -> None:
    answers = solved("tensor_parallel")["factors"]
    for name, program in (("tied", tied), ("gather", gathered_logits)):
        one, four = (world.simulate(program, ranks).results for ranks in (1, 4))
        assert answers[name] == pytest.approx(factor([torch.cat(four)], one)), name


def kept_numbers(comm: Communicator, name: str) -> float:
    """What autograd keeps of a network beside its weights, in numbers of x."""
    tokens, width = 16, 32
    kind, divided = name.split()[0], name in ("gathered", "again")
    x = torch.randn(tokens // (comm.size if divided else 1), width).requires_grad_()
    up, gate = torch.randn(2, width, width).unbind()
    down = torch.randn(width, width)
    first = ColumnParallelLinear(width, 4 * width, False, comm=comm, sequence_parallel=True)
    weights = {"U": up, "G": gate, "D": down}
    for key, weight in weights.items():
        weight.requires_grad_(not name.endswith("frozen") and not (name == "half" and key == "U"))
    kept: dict[int, int] = {}

    def pack(saved: torch.Tensor) -> torch.Tensor:
        kept[saved.untyped_storage().data_ptr()] = saved.untyped_storage().nbytes() // 4
        return saved

    own = {w.untyped_storage().data_ptr() for w in (*weights.values(), first.weight)}
    alive = x * 1.0  # x comes from layers below
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved):
        if kind == "again":
            neurons = F.gelu(first(alive))
        elif kind == "gathered":
            neurons = F.gelu(gather_sequence(alive, comm) @ up)
        elif kind == "gated":
            whole = copy(alive, comm)
            neurons = F.silu(whole @ gate) * (whole @ up)
        else:
            z = copy(alive, comm) @ up
            neurons = z.relu() if kind == "relu" else F.gelu(z)
        y = (scatter_sequence if divided else reduce)(neurons @ down, comm)
    y.sum().backward()
    return sum(size for where, size in kept.items() if where not in own) / (tokens * width)


def test_autograd_keeps_what_the_exercise_predicts() -> None:
    for name, said in solved("tensor_parallel")["kept"].items():
        assert world.simulate(kept_numbers, 4, args=(name,)).results == [said] * 4, name


def test_the_collective_between_two_matrices_goes_back_by_its_transpose() -> None:
    """Of what follows, too: where each rank goes on with columns of its own, a sum comes first."""
    answers = solved("tensor_parallel")
    transposed = {"none": "none", "all_gather": "reduce_scatter", "reduce_scatter": "all_gather"}
    transposed["all_reduce"] = "all_reduce"  # summed for all, and then copied to ranks that differ
    assert {cuts: transposed[words[0]] for cuts, words in answers["after"].items()} == answers[
        "back"
    ]


def test_one_design_of_a_tensor_parallel_group_is_the_fastest_that_fits() -> None:
    answers = solved("tensor_parallel")
    fitting = [d for d in answers["every"] if answers["memory_bytes"](d) <= 75e9]
    seconds = sorted(map(answers["step_seconds"], fitting))
    assert answers["design"] == {"tp": 4, "sequence_parallel": True, "recompute": "selective"}
    assert seconds[0] == answers["step_seconds"](answers["design"])
    assert seconds[1] > 1.02 * seconds[0]


def test_with_more_memory_the_fastest_design_gives_up_sequence_parallelism_first() -> None:
    answers = solved("tensor_parallel")
    memory, seconds = answers["memory_bytes"], answers["step_seconds"]
    priced = [(seconds(design), memory(design), design) for design in answers["every"]]

    def fastest(free: float) -> dict:
        return min((p for p in priced if p[1] <= free), key=itemgetter(0))[2]

    edge = answers["from_gb"] * 1e9 - 5e9
    assert {str(fastest(free * 1e9)) for free in range(75, answers["from_gb"] - 5)} == {
        str(answers["design"])
    }
    changed = fastest(edge).items() ^ answers["design"].items()
    assert {name for name, _ in changed} == {answers["changes_first"]}
    assert {fastest(free * 1e9)["tp"] for free in range(75, 400)} == {answers["design"]["tp"]}
