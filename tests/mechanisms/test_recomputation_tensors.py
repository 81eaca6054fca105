"""Which tensors to keep: the best there is, priced as it runs, and never beaten by torch's own."""

from __future__ import annotations

import copy
import gc
import itertools
import weakref
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import torch
import torch._functorch.config as functorch_config
from functorch.compile import aot_module, make_boxed_func, min_cut_rematerialization_partition
from hypothesis import given, settings
from torch import nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)
from torch.utils.flop_counter import FlopCounterMode

from dlsys.hardware import DEVICES
from dlsys.meter import LiveStorages
from dlsys.model import GPT, Block
from dlsys.recomputation import (
    Graph,
    Keeping,
    KeepTensors,
    Operation,
    Value,
    draw_keepings,
    keep_best,
    keep_in_layer,
    keeping_front,
    keeping_of,
    layer_graph,
    lifetimes,
    seconds_per_byte,
    step_graph,
)
from dlsys.tensors import storage_bytes
from dlsys.transformer import CATALOGUE, TransformerSpec
from dlsys.transformer.activations import activations
from tests.mechanisms.test_recomputation_lifetimes import graphs

BATCH = 2
SPEC = TransformerSpec(layers=1, hidden=16, heads=4, vocab=64, sequence=32)
GATED = TransformerSpec(layers=1, hidden=16, heads=4, kv_heads=2, vocab=64, sequence=32, gated=True)
A100, GPT3 = DEVICES["a100-80"], CATALOGUE["gpt3-175b"]


@cache
def block(spec: TransformerSpec = SPEC, dropout: float = 0.0, flash: bool = False) -> Block:
    return GPT(spec, dropout=dropout, flash=flash, dtype=torch.bfloat16).layers[0]


def stream(spec: TransformerSpec = SPEC) -> torch.Tensor:
    torch.manual_seed(1)
    x = torch.randn(BATCH, spec.sequence, spec.hidden, dtype=torch.bfloat16)
    return x.requires_grad_()


def rotation(spec: TransformerSpec) -> Any:
    return GPT(spec).rotation(torch.arange(spec.sequence), torch.bfloat16)


def points(front: tuple[Keeping, ...]) -> list[tuple[int, float]]:
    return [(each.nbytes, each.cost) for each in front]


def by_trying_all(graph: Graph) -> list[tuple[int, float]]:
    """The front, out of every set of values."""
    every = [
        keeping_of(graph, keep)
        for number in range(len(graph.producer) + 1)
        for keep in itertools.combinations(graph.producer, number)
    ]
    front, best = [], float("inf")
    for nbytes, cost in sorted(points(tuple(every))):
        if cost < best:
            front.append((nbytes, cost))
            best = cost
    return front


# What the plan says is what a real layer does.


@pytest.mark.parametrize(
    ("spec", "dropout", "flash"),
    [
        (SPEC, 0.0, False),
        (SPEC, 0.1, False),
        (SPEC, 0.0, True),
        (GATED, 0.1, False),
        (GATED, 0.0, True),
    ],
)
def test_the_front_of_the_spec_is_that_of_the_operations_that_a_real_layer_runs(
    spec, dropout, flash
):
    layer = block(spec, dropout, flash)
    with KeepTensors(None, layer) as seen:
        layer(stream(spec), rotation(spec))
    planned = layer_graph(spec, BATCH, dropout=bool(dropout), flash=flash)
    assert points(keeping_front(planned)) == points(keeping_front(seen.graph))
    assert sum(o.cost for o in planned.operations) == sum(o.cost for o in seen.graph.operations)


def step(layer: Block, kept: KeepTensors | None) -> tuple[list[torch.Tensor], int, int]:
    """Result and gradients; bytes of storages that forward left; FLOPs of forward and backward."""
    x = stream()
    torch.manual_seed(3)
    with FlopCounterMode(display=False) as counter:
        with LiveStorages() as storages:
            if kept is None:
                y = layer(x)
            else:
                with kept:
                    y = layer(x)
        left = storages.alive.now - y.untyped_storage().nbytes()
        state = torch.get_rng_state()
        y.float().square().sum().backward()
    gradients = [x.grad, *(parameter.grad for parameter in layer.parameters())]
    layer.zero_grad()
    assert torch.equal(state, torch.get_rng_state())  # what ran again drew from states of its own
    return [y, *gradients], left, counter.get_total_flops()


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_every_point_of_the_front_runs_in_its_bytes_and_its_flops_to_the_same_bits(dropout):
    layer = block(dropout=dropout)
    timed = layer_graph(
        SPEC, BATCH, A100.rate("bf16"), A100.memory_bandwidth, dropout=bool(dropout)
    )
    flops = layer_graph(SPEC, BATCH, dropout=bool(dropout))
    plain, _, plain_flops = step(layer, None)
    front = keeping_front(timed)
    assert len(front) > 15
    for point in front:
        kept = keep_in_layer(layer, point.keep)
        tensors, left, ran = step(layer, kept)
        assert all(map(torch.equal, tensors, plain))
        # On CPU the statistics of norms are in 16 bits, half of what they take elsewhere.
        halves = sum(timed.sizes[name] // 2 for name in point.keep if "statistics" in name)
        assert left == point.nbytes - halves
        assert ran - plain_flops == keeping_of(flops, point.keep).cost
        assert kept.kept_bytes == 0  # all let go when backward was done
        assert len(kept.again) == len({*kept.again})


# The best there is.


@settings(max_examples=80, deadline=None)
@given(graphs(5))
def test_no_set_of_values_keeps_fewer_bytes_at_less_cost(graph):
    saving = Graph(
        tuple(
            each._replace(cost=float(3 * place % 5), saves=tuple(v.name for v in each.outputs[:1]))
            for place, each in enumerate(graph.operations)
        ),
        graph.inputs,
        graph.results,
    )
    front = keeping_front(saving)
    assert points(front) == by_trying_all(saving)
    for nbytes in range(30):
        best = keep_best(saving, nbytes)
        assert points((best,))[0] == [p for p in points(front) if p[0] <= nbytes][-1]


def test_the_front_of_a_layer_is_that_of_all_32_768_sets():
    graph = layer_graph(SPEC, BATCH, A100.rate("bf16"), A100.memory_bandwidth, dropout=False)
    short = Graph(graph.operations[:-1], graph.inputs, ("ffn.output",))
    # The exactness of the sum is not what is asked: costs add up in one order here, in another there.
    found, tried = points(keeping_front(short)), by_trying_all(short)
    assert [nbytes for nbytes, _ in found] == [nbytes for nbytes, _ in tried]
    assert [cost for _, cost in found] == pytest.approx([cost for _, cost in tried], rel=1e-12)


def test_a_value_that_backward_does_not_read_is_kept_where_that_is_cheaper():
    graph = layer_graph(GPT3, 1, A100.rate("bf16"), A100.memory_bandwidth)
    gone = {"ffn.norm_input", "attention.dropout_mask", "attention.dropped"}
    unread = [each for each in keeping_front(graph) if "attention.output" in each.keep]
    # One tensor before the dropout stands for three bytes an element after it.
    assert unread
    assert all(gone.isdisjoint(each.keep) for each in unread)


def test_choices_alike_in_bytes_and_cost_are_told_apart_without_going_through_them():
    """Either of two values is made again, then a thousand others: to look at all would recurse."""
    n = 1000
    chain = [Operation(f"o{i}", (f"v{i}",), (Value(f"v{i + 1}", 1),), 1.0) for i in range(n)]
    ends = [Operation(name, (), (Value(f"of {name}", 1),), 1.0) for name in ("left", "right")]
    last = Operation("last", ("of left", "of right", f"v{n}"), (Value("y", 1),), 1.0, ("y",))
    front = keeping_front(Graph((*ends, *chain, last), (Value("v0", 1),), ("y",)))
    assert points(front) == [(0, n + 3.0), (1, 0.0)]


def test_of_choices_alike_in_bytes_and_cost_that_of_the_fewest_operations_is_chosen():
    free = Graph((Operation("a", (), (Value("x", 0),), 0.0, ("x",)),))
    assert keeping_front(free) == (Keeping(("x",), 0, (), 0.0),)


# The laws that a reader takes away.


def test_without_the_cores_matrices_gpt3_keeps_what_selective_recomputation_does_for_one_product():
    graph = layer_graph(GPT3, 1)
    core = [name for name in graph.needed if "probabilities" in name]
    keeping = keeping_of(graph, [name for name in graph.needed if name not in core])
    assert (
        keeping.nbytes - graph.total(name for name in keeping.keep if "statistics" in name)
        == activations(GPT3, 1, recompute="selective").per_layer
        - graph.sizes["attention.norm_input"]
    )
    assert 1 - keeping.nbytes / graph.total(graph.needed) == pytest.approx(0.714, abs=5e-3)
    # A checkpoint round the whole core runs both products; what the second gives is kept anyway.
    assert keeping.cost == GPT3.operations(1, 0)["scores"]
    forward = GPT3.forward_flops(1) - GPT3.operations(1)["head"]
    assert keeping.cost * GPT3.layers / forward == pytest.approx(0.0135, abs=2e-4)


def test_what_elementwise_operations_make_goes_first_and_what_matrices_make_last():
    graph = layer_graph(GPT3, 1, A100.rate("bf16"), A100.memory_bandwidth)
    rates = {n: rate for n, rate in seconds_per_byte(graph).items() if "statistics" not in n}
    cheap = list(rates)[:6]
    assert {*cheap[:3]} == {"ffn.down_input", "attention.input", "ffn.input"}
    assert {*cheap[3:]} == {name for name in graph.needed if "probabilities" in name}
    # h weights in a row are 3h FLOPs a byte saved; a score is d = 128 of them, far below.
    assert rates["attention.query"] / rates["attention.probabilities"] > 20
    by_hand = max(2 * 2048 * 12288**2 / A100.rate("bf16"), 0) / (2 * 2048 * 12288)
    assert rates["attention.query"] == pytest.approx(by_hand)
    # Memory-bound: 2 bytes read and 2 written for 2 saved, and less than a product's time.
    assert rates["ffn.down_input"] == pytest.approx(2 / A100.memory_bandwidth)


@pytest.mark.parametrize("keep", [None, (), ("attention.query", "ffn.norm_input")])
def test_between_forward_and_backward_a_step_holds_its_input_and_what_is_kept(keep):
    graph = layer_graph(SPEC, BATCH)
    keeping = keeping_of(graph, graph.needed if keep is None else keep)
    plan = lifetimes(step_graph(graph, keep))
    given = 2 * graph.sizes["attention.norm_input"]  # and the gradient of the result
    assert plan.after[len(graph.operations) - 1] == keeping.nbytes + given
    again = [name.removeprefix("again: ") for name in plan.order if name.startswith("again: ")]
    assert sorted(again) == sorted(keeping.again)
    backward = [name for name in plan.order if name.startswith("backward of ")]
    assert len(backward) == len(graph.operations)


def test_layers_that_keep_less_have_a_lower_peak_although_one_layer_has_not():
    graph = layer_graph(SPEC, BATCH)
    whole, nothing = (step_graph(graph, keep) for keep in (None, ()))
    peaks = lifetimes(whole).peak, lifetimes(nothing).peak
    assert peaks[1] > 0.9 * peaks[0]  # what a layer's backward needs at once does not go away
    kept = graph.total(graph.needed)
    assert 11 * kept + peaks[0] > 3 * (peaks[1] + 11 * graph.sizes["attention.norm_input"])


# Second opinions: torch's own engines.


def selective(keep: set[str], graph: Graph) -> Any:
    """torch's selective policy that saves what the operations that make these values give."""
    chosen, numbers = set[tuple[str, int]](), Counter[str]()
    for each in graph.operations:
        kind = each.name.split(".")[-1] if not each.name[-1].isdigit() else each.name.split(".")[-2]
        numbers[kind] += 1
        if keep.intersection(value.name for value in each.outputs):
            chosen.add((kind, numbers[kind]))
    seen: dict[bool, Counter[str]] = {False: Counter(), True: Counter()}

    def policy(context: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        name = op.overloadpacket.__name__
        seen[context.is_recompute][name] += 1
        saved = (name, seen[context.is_recompute][name]) in chosen
        return CheckpointPolicy.MUST_SAVE if saved else CheckpointPolicy.PREFER_RECOMPUTE

    return lambda: create_selective_checkpoint_contexts(policy)


class Checkpointed(nn.Module):
    """A layer under torch's selective checkpoint."""

    def __init__(self, layer: Block, keep: set[str], graph: Graph) -> None:
        super().__init__()
        self.layer, self.keep, self.graph = layer, keep, graph

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        contexts = selective(self.keep, self.graph)
        return checkpoint(self.layer, x, use_reentrant=False, context_fn=contexts)


def test_torchs_selective_checkpoint_holds_the_same_bytes_and_multiplies_no_less():
    layer = block()
    with KeepTensors(None, layer) as seen:
        layer(stream())
    graph, more = seen.graph, 0
    plain, _, plain_flops = step(layer, None)
    for point in keeping_front(graph):
        ours, left, ran = step(layer, KeepTensors(point.keep, layer))
        theirs, their_left, their_flops = step(Checkpointed(layer, {*point.keep}, graph), None)
        assert all(map(torch.equal, ours, plain))
        assert all(map(torch.equal, theirs, plain))
        assert left == their_left == point.nbytes
        assert ran - plain_flops == point.cost <= their_flops - plain_flops
        more += point.cost < their_flops - plain_flops
    # It runs whatever is not saved, the product into a kept sum included, which nobody asks for.
    assert more


def partitions(
    layer: nn.Module, x: torch.Tensor, budgets: list[float]
) -> Iterator[tuple[float, int, float]]:
    """Bytes between torch's two graphs of a layer, and FLOPs of the second, at each budget."""
    halves, primals = {}, []

    def partition(joint: Any, inputs: Any, **more: Any) -> Any:
        for budget in budgets:
            with functorch_config.patch(activation_memory_budget=budget):
                halves[budget] = min_cut_rematerialization_partition(
                    copy.deepcopy(joint), inputs, **more
                )
        return halves[budgets[0]]

    def forward(graph: Any, inputs: Any) -> Any:
        def call(*args: Any) -> Any:
            primals[:] = args
            return graph(*args)

        return make_boxed_func(call)

    backward = lambda graph, inputs: make_boxed_func(graph.forward)  # noqa: E731
    aot_module(layer, fw_compiler=forward, bw_compiler=backward, partition_fn=partition)(x)
    given_ = {t.untyped_storage()._cdata for t in primals if isinstance(t, torch.Tensor)}
    for budget, (first, second) in halves.items():
        out, *saved = first(*primals)
        tensors = [t for t in saved if isinstance(t, torch.Tensor)]
        kept = storage_bytes(t for t in tensors if t.untyped_storage()._cdata not in given_)
        with FlopCounterMode(display=False) as counter:
            second(*saved, torch.ones_like(out))
        yield budget, kept, counter.get_total_flops()


def test_torchs_partitioner_keeps_no_fewer_bytes_at_less_cost():
    graph = layer_graph(SPEC, BATCH)
    front = keeping_front(graph)
    backward = 2 * sum(each.cost for each in graph.operations)
    found = {}
    for budget, kept, flops in partitions(block(dropout=0.1), stream(), [1.0, 0.7, 0.4, 0.1]):
        ours = max((each for each in front if each.nbytes <= kept), key=lambda each: each.nbytes)
        theirs = flops - backward
        assert ours.cost <= theirs
        cheapest = next(each.nbytes for each in front if each.cost <= theirs)
        found[budget] = kept - cheapest, theirs
    # At 1.0 it saves what takes no product to make again, so that backward runs fewer kernels.
    assert found[1.0][0] > 0 == found[1.0][1]
    # Below, it is at the front or beside it: once it has taken the sum after a dropout as one item
    # and the mask as another, it does not see that what the dropout reads stands for both.
    mask, spare = graph.sizes["attention.dropout_mask"], {found[b][0] for b in (0.7, 0.4, 0.1)}
    assert spare == {0, mask}
    assert found[0.1][1] > found[0.4][1] >= 0


# Edges.


def test_a_whole_model_runs_with_one_tensor_of_one_layer_kept():
    spec = TransformerSpec(layers=2, hidden=8, heads=2, vocab=16, sequence=4)
    model = GPT(spec, dropout=0.2)
    tokens = torch.arange(8).view(2, 4)

    def gradients(kept: KeepTensors | None) -> list[torch.Tensor]:
        torch.manual_seed(0)
        if kept is None:
            loss = model(tokens, tokens)
        else:
            with kept:
                loss = model(tokens, tokens)
        return list(torch.autograd.grad(loss, list(model.parameters())))

    kept = KeepTensors(["layers.1.ffn.up.addmm"], model)
    assert all(map(torch.equal, gradients(kept), gradients(None)))
    assert "layers.1.ffn.up.addmm" not in kept.again
    assert "layers.0.ffn.up.addmm" in kept.again


def test_what_is_kept_is_let_go_with_the_result_when_backward_never_comes():
    layer, x = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)), torch.ones(2, 4)
    with LiveStorages() as storages:
        kept = KeepTensors(None, layer)
        with kept:
            y = layer(x)
        alone = weakref.ref(kept)
        del kept
        assert storages.alive.now == 2 * y.nbytes
        del y
    gc.collect()
    assert alone() is None
    assert storages.alive.now == 0


def tanh_twice(x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(torch.tanh(x))


def test_backward_twice_or_differentiated_is_refused_in_a_sentence():
    x = torch.ones(3, requires_grad=True)
    with KeepTensors(()) as kept:
        y = tanh_twice(x).sum()
    y.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="a second time"):
        y.backward()
    with pytest.raises(RuntimeError, match="entered before"):
        kept.__enter__()
    with KeepTensors(()):
        y = tanh_twice(x).sum()
    with pytest.raises(RuntimeError, match="create_graph=True"):
        torch.autograd.grad(y, x, create_graph=True)
    with KeepTensors(()), pytest.raises(RuntimeError, match="inside KeepTensors"):
        tanh_twice(x).sum().backward()


def test_changes_in_place_that_would_give_other_numbers_are_refused():
    x = torch.ones(3, requires_grad=True)

    def change_late(x: torch.Tensor) -> None:
        y = x.detach().exp()
        y.mul_(2)  # nobody has read it yet
        y.sin()
        y.mul_(2)

    with (
        KeepTensors(()),
        pytest.raises(RuntimeError, match="'exp' is changed in place after it was"),
    ):
        change_late(x)
    weight = torch.ones(3, requires_grad=True)
    with KeepTensors(()):
        y = (x * weight).tanh().tanh().sum()
    with torch.no_grad():
        weight.add_(1)
    with pytest.raises(RuntimeError, match="was changed in place since it first ran"):
        y.backward()


def test_what_is_written_in_place_before_it_is_read_runs_again_as_it_was():
    x = torch.linspace(0, 1, 5, requires_grad=True)

    def function(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y += torch.full((5,), 0.5)
        y[1:3].mul_(3)
        return y.sin().tanh().sum()

    (plain,) = torch.autograd.grad(function(x), x)
    with KeepTensors(()) as kept:
        y = function(x)
    assert torch.equal(torch.autograd.grad(y, x)[0], plain)
    assert Counter(kept.again) == Counter({"mul": 1, "full": 1, "sin": 1, "tanh": 1})


def test_plans_on_the_meta_device_take_no_memory():
    spec = GPT3
    with torch.device("meta"):
        layer = Block(spec, 0.1, False).to(torch.bfloat16)
        x = torch.empty(1, spec.sequence, spec.hidden, dtype=torch.bfloat16, requires_grad=True)
        with KeepTensors((), layer) as kept:
            layer(x)
    planned = layer_graph(spec, 1)
    assert points(keeping_front(kept.graph)) == points(keeping_front(planned))


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: keeping_of(layer_graph(SPEC, 1), ["attention.kee"]),
            "keep: There is no value .*'attention.kee'; did you mean 'attention.key'",
        ),
        (lambda: keeping_front(layer_graph(SPEC, 1), -1), "^budget is -1"),
        (lambda: keep_best(layer_graph(SPEC, 1), -1), "^budget is -1"),
        (lambda: keep_best(layer_graph(SPEC, 1), None), "^budget is None"),
        (lambda: keep_best(layer_graph(SPEC, 1), float("nan")), "budget is nan"),
        (lambda: layer_graph(SPEC, 0), "batch is 0"),
        (lambda: layer_graph(SPEC, 1, 0.0), "rate is 0.0"),
        (lambda: layer_graph(SPEC, 1, 1.0, 0.0), "bandwidth is 0.0"),
        (lambda: layer_graph(CATALOGUE["palm-540b"], 1), "spec is one with parallel"),
        (lambda: keep_in_layer(block(GATED), []), "block is one with a gated"),
        (lambda: keep_in_layer(block(flash=True), []), "block is one with flash attention"),
        (lambda: keep_in_layer(block(), ["attention.dropout_mask"]), "keep: There is no tensor"),
        (
            lambda: step_graph(Graph((Operation("a", (), (Value("x", 1),)),))),
            "graph has no results",
        ),
    ],
)
def test_wrong_names_and_numbers_are_refused_in_a_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()


def test_names_that_nothing_made_are_refused_when_forward_is_done():
    with (
        pytest.raises(ValueError, match="keep: There is no value 'tan'; did you mean 'tanh'"),
        KeepTensors(["tan"]),
    ):
        tanh_twice(torch.ones(3, requires_grad=True))


def test_a_front_too_long_is_refused():
    wide = Graph(
        tuple(
            Operation(f"o{i}", (), (Value(f"v{i}", 2**i),), 2.0**i, (f"v{i}",)) for i in range(30)
        )
    )
    with pytest.raises(ValueError, match=r"more than 50,000 choices .* at operation 'o15'"):
        keeping_front(wide)
    assert keep_best(wide, 100.0).nbytes == 100


def test_as_many_choices_as_there_may_be_are_no_more(monkeypatch):
    """Of values of 1, 2 and 4 bytes, whose bytes cost alike, no choice beats another."""
    monkeypatch.setattr("dlsys.recomputation.keeping.MOST_CHOICES", 8)
    operations = [
        Operation(f"o{i}", (), (Value(f"v{i}", 2**i),), 2.0**i, (f"v{i}",)) for i in range(4)
    ]
    assert len(keeping_front(Graph(tuple(operations[:3])))) == 8
    with pytest.raises(ValueError, match=r"more than 8 choices .* at operation 'o3'"):
        keeping_front(Graph(tuple(operations)))


def test_the_picture_of_the_front_has_a_cell_for_each_tensor_kept_at_each_point():
    graph = layer_graph(SPEC, BATCH)
    cells = draw_keepings(graph).axes[1].containers
    assert sum(map(len, cells)) == sum(len(each.keep) for each in keeping_front(graph))
