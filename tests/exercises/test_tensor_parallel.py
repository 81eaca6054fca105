"""The exercises on tensor parallel: their figures are those of the package, and what holds for all."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from dlsys import world
from dlsys.collectives import ring_all_reduce
from dlsys.hardware import DEVICES, LINKS
from dlsys.tensor_parallel import (
    TensorParallelGPT,
    activation_bytes,
    all_reduce_bytes,
    layout,
    step_bytes,
)
from dlsys.transformer import CATALOGUE, TransformerSpec
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


def test_the_exercises_cut_heads_and_keep_activations_as_the_layout_does() -> None:
    answers = solved("tensor_parallel")
    for t in (2, 4, 8, 16):
        cut = layout(CATALOGUE["llama2-70b"], t)
        keys, size = cut["layers.*.attention.key.weight"], cut.spec.head_size
        for rank in range(t):
            held = answers["held"](rank, t, cut.spec.heads, cut.spec.kv_heads)
            first, stop = cut["layers.*.attention.query.weight"].bounds(rank)
            assert held["query"] == list(range(first // size, stop // size))
            first, stop = keys.bounds(rank)
            assert held["key_value"] == list(range(first // size, stop // size))
            same_keys = [r for r in range(t) if keys.bounds(r) == (first, stop)]
            assert held["summed_over"] == same_keys
            assert len(same_keys) == keys.summed
    llama = CATALOGUE["llama2-70b"]
    shape = llama.sequence, llama.hidden, llama.heads, llama.kv_heads, llama.ffn_hidden
    for t, divided in ((1, False), (4, True), (8, False), (8, True), (16, False), (32, True)):
        kept = answers["kept_bytes"](3, *shape, t, divided)
        assert kept == activation_bytes(llama, 3, t, divided, dropout=False).total


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

    def fastest(free: float) -> dict:
        return min((d for d in answers["every"] if memory(d) <= free), key=seconds)

    edge = answers["from_gb"] * 1e9 - 5e9
    assert {str(fastest(free * 1e9)) for free in range(75, answers["from_gb"] - 5)} == {
        str(answers["design"])
    }
    changed = fastest(edge).items() ^ answers["design"].items()
    assert {name for name, _ in changed} == {answers["changes_first"]}
    assert {fastest(free * 1e9)["tp"] for free in range(75, 400)} == {answers["design"]["tp"]}
