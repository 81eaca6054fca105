"""Lifetimes: what the plan says is alive is what real storages hold, in every order."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dlsys.recomputation import (
    Graph,
    Operation,
    Value,
    best_order,
    draw_lifetimes,
    execute,
    greedy_order,
    layer_graph,
    lifetimes,
    step_graph,
)
from dlsys.transformer import TransformerSpec

SPEC = TransformerSpec(layers=1, hidden=16, heads=4, vocab=64, sequence=32)


@st.composite
def graphs(draw: st.DrawFn, most: int = 6) -> Graph:
    """Graphs of a few operations that read any values before them, and make one or two."""
    sizes = st.integers(0, 9)
    names = ["x0", "x1"][: draw(st.integers(0, 2))]
    inputs = [Value(name, draw(sizes)) for name in names]
    operations = []
    for place in range(draw(st.integers(1, most))):
        read = draw(st.lists(st.sampled_from(names), max_size=3)) if names else []
        made = [
            Value(f"v{place}{letter}", draw(sizes)) for letter in "ab"[: draw(st.integers(1, 2))]
        ]
        operations.append(Operation(f"o{place}", tuple(read), tuple(made), 1.0))
        names += [value.name for value in made]
    results = tuple(draw(st.lists(st.sampled_from(names), max_size=2, unique=True)))
    read = {name for each in operations for name in each.inputs} | {*results}
    return Graph(tuple(operations), tuple(v for v in inputs if v.name in read), results)


def orders(graph: Graph) -> Iterator[tuple[str, ...]]:
    """Every order in which the operations can run, by trying all."""
    for order in itertools.permutations(graph.operations):
        there = {value.name for value in graph.inputs}
        for each in order:
            if not there.issuperset(each.inputs):
                break
            there |= {value.name for value in each.outputs}
        else:
            yield tuple(each.name for each in order)


def function_of(operation: Operation):
    """Bytes that depend on every input: in real tensors, of the sizes that the graph has."""

    def run(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        seed = sum(int(x.sum()) * (1 + place) for place, x in enumerate(inputs)) + len(
            operation.name
        )
        # Beginning at what it reads, so that an operation of the wrong inputs gives other numbers.
        return tuple(
            torch.full((value.nbytes,), (seed + place) % 251, dtype=torch.uint8)
            for place, value in enumerate(operation.outputs)
        )

    return run


def tensors_of(graph: Graph) -> dict[str, torch.Tensor]:
    return {
        value.name: torch.full((value.nbytes,), place + 3, dtype=torch.uint8)
        for place, value in enumerate(graph.inputs)
    }


@settings(max_examples=30, deadline=None)
@given(graphs(), st.randoms(use_true_random=False))
def test_storages_alive_in_every_step_are_those_that_the_plan_says(graph, random):
    order = random.choice(list(orders(graph)))
    functions = {each.name: function_of(each) for each in graph.operations}
    plan = lifetimes(graph, order)
    run = execute(graph, functions, tensors_of(graph), order)
    plain = execute(graph, functions, tensors_of(graph))
    assert (run.during, run.after, run.peak) == (plan.during, plan.after, plan.peak)
    assert run.results.keys() == set(graph.results)
    assert all(torch.equal(run.results[name], plain.results[name]) for name in graph.results)


@settings(max_examples=80, deadline=None)
@given(graphs())
def test_no_order_has_a_lower_peak_than_the_best(graph):
    least = min(lifetimes(graph, order).peak for order in orders(graph))
    assert lifetimes(graph, best_order(graph)).peak == least
    assert least <= lifetimes(graph, greedy_order(graph)).peak <= lifetimes(graph).peak


def heads(number: int, length: int = 16, size: int = 4) -> Graph:
    """Attention, head by head, written down breadth first: all scores, then all weighted sums."""
    scores, small = 4 * length * length, 4 * length * size
    inputs = tuple(Value(f"{x}{h}", small) for h in range(number) for x in "qkv")
    steps = [
        [
            Operation(f"scores{h}", (f"q{h}", f"k{h}"), (Value(f"s{h}", scores),))
            for h in range(number)
        ],
        [Operation(f"softmax{h}", (f"s{h}",), (Value(f"p{h}", scores),)) for h in range(number)],
        [Operation(f"sum{h}", (f"p{h}", f"v{h}"), (Value(f"o{h}", small),)) for h in range(number)],
    ]
    return Graph(tuple(itertools.chain(*steps)), inputs, tuple(f"o{h}" for h in range(number)))


def test_head_by_head_holds_the_scores_of_one_head_and_gives_the_same():
    graph, scores, small = heads(4), 4 * 16 * 16, 4 * 16 * 4
    rules = {
        "scores": lambda q, k: q @ k.T,
        "softmax": lambda s: torch.softmax(s, -1),
        "sum": lambda p, v: p @ v,
    }
    functions = {each.name: rules[each.name[:-1]] for each in graph.operations}
    torch.manual_seed(0)
    inputs = {value.name: torch.randn(16, 4) for value in graph.inputs}
    wide, deep = (
        execute(graph, functions, inputs),
        execute(graph, functions, inputs, best_order(graph)),
    )
    # Breadth first, the fourth head's scores become probabilities beside those of three, with all v.
    assert wide.peak == 5 * scores + 4 * small
    # Depth first, a head's two matrices at once, beside q, k and v of three heads and its own v.
    assert deep.peak == lifetimes(graph, best_order(graph)).peak == 2 * scores + 10 * small
    assert lifetimes(graph, greedy_order(graph)).peak == deep.peak
    assert all(torch.equal(deep.results[name], wide.results[name]) for name in graph.results)


def test_what_an_operation_needs_for_itself_and_what_hidden_references_hold_is_counted():
    graph = Graph(
        (Operation("a", (), (Value("x", 40),)), Operation("b", ("x",), (Value("y", 40),))),
        results=("y",),
    )
    hidden: list[torch.Tensor] = []

    def hides(x: torch.Tensor) -> torch.Tensor:
        hidden.append(x)
        return (x * 2) * 3  # for a moment there are x, 2x and 6x

    run = execute(graph, {"a": lambda: torch.ones(10), "b": hides}, {})
    plan = lifetimes(graph)
    assert (plan.during, plan.after) == ((40, 80), (40, 40))
    assert (plan.peak, plan.peak_step) == (80, 1)
    assert plan.values == (("x", 40, 0, 1), ("y", 40, 1, 1))  # first and last step of each
    assert (run.during, run.after, run.within) == ((40, 80), (40, 80), (40, 120))


def test_recording_gradients_does_not_hold_on_to_values():
    graph = Graph(
        (Operation("a", ("x",), (Value("y", 40),)), Operation("b", ("y",), (Value("z", 40),))),
        (Value("x", 40),),
        ("z",),
    )
    x = torch.ones(10, requires_grad=True)
    run = execute(graph, {"a": torch.exp, "b": torch.exp}, {"x": x})
    assert run.during == (80, 80)
    assert run.after == (40, 40)


def test_graphs_too_wide_for_the_exact_order_are_refused_and_ordered_greedily():
    wide = Graph(
        tuple(
            each
            for i in range(40)
            for each in (
                Operation(f"a{i}", (), (Value(f"x{i}", 10 + i),)),
                Operation(f"b{i}", (f"x{i}",), (Value(f"y{i}", 1),)),
            )
        ),
        results=tuple(f"y{i}" for i in range(40)),
    )
    with pytest.raises(ValueError, match=r"graph has more than 20,000 sets .* greedy_order"):
        best_order(wide)
    assert lifetimes(wide, greedy_order(wide)).peak <= lifetimes(wide).peak
    chain = Graph(
        (
            Operation("o0", (), (Value("v0", 1),)),
            *(Operation(f"o{i}", (f"v{i - 1}",), (Value(f"v{i}", 1),)) for i in range(1, 1200)),
        )
    )
    assert (
        lifetimes(chain, best_order(chain)).peak == lifetimes(chain, greedy_order(chain)).peak == 2
    )


X, Y = Value("x", 1), Value("y", 1)
A, B = Operation("a", (), (X,)), Operation("b", ("x",), (Y,))


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Graph(()), "operations is .*at least one"),
        (lambda: Graph((A, A)), "two of the name 'a'"),
        (lambda: Graph((B, A)), "'b' reads 'x', which is neither in inputs nor made"),
        (
            lambda: Graph((A, Operation("c", (), (X,)))),
            "operation 'c' makes 'x', which there is already",
        ),
        (lambda: Graph((A, Operation("c", (), (Y,), 0.0, ("x",)))), "'c' in operations saves 'x'"),
        (lambda: Graph((A,), results=("z",)), "results: There is no value 'z'"),
        (lambda: Graph((A,), inputs=(Y,)), "inputs has 'y', which nothing reads"),
        (lambda: Graph((A._replace(cost=-1.0),)), "cost of 'a' is -1.0"),
        (lambda: Graph((A._replace(cost=float("nan")),)), "cost of 'a' is nan"),
        (lambda: Graph((Operation("a", (), (Value("x", 1.5),)),)), "bytes of 'x' is 1.5"),
        (lambda: Graph((Operation("a", "x", (Y,)),)), "a part of 'a' is 'x'; it must be a tuple"),
        (lambda: Graph((Operation("a", (), ("x",)),)), "an output of 'a' is 'x'"),
        (lambda: Graph((("a",),)), "operations is"),
        (lambda: lifetimes(Graph((A, B)), ["a"]), "order has no 'b'"),
        (lambda: lifetimes(Graph((A, B)), ["a", "a"]), "order has 'a' twice"),
        (lambda: lifetimes(Graph((A, B)), ["b", "a"]), "order has 'b' before what makes 'x'"),
        (lambda: lifetimes(Graph((A, B)), ["a", "c"]), "order: There is no operation 'c'"),
        (
            lambda: execute(Graph((A, B)), {"a": torch.ones}, {}),
            "functions: There is no operation 'b'",
        ),
        (
            lambda: execute(Graph((A,)), {"a": lambda: torch.ones(1)}, {}),
            "gives 'x', which is .* 1 bytes",
        ),
        (lambda: execute(Graph((A,)), {"a": lambda: 3}, {}), "a function that gives 1 tensors"),
        (lambda: execute(Graph((B,), (X,)), {"b": abs}, {}), "inputs: There is no tensor 'x'"),
        (
            lambda: execute(Graph((B,), (X,)), {"b": abs}, {"x": torch.ones(3)}),
            r"inputs\['x'\] is of shape \(3,\) .* 12 bytes; it must be of the 1 bytes",
        ),
    ],
)
def test_wrong_graphs_orders_and_functions_are_refused_in_a_sentence(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()


def test_a_picture_has_a_bar_for_each_value_as_long_as_it_lives():
    graph = step_graph(layer_graph(SPEC, 2), ())
    figure = draw_lifetimes(graph)
    bars = [bar for bars in figure.axes[0].containers for bar in bars]
    plan = lifetimes(graph)
    drawn = sorted((bar.get_x(), bar.get_width()) for bar in bars)
    assert drawn == sorted((v.first, v.last + 1 - v.first) for v in plan.values)
    with pytest.raises(ValueError, match=r"graph is .* at most 80 values"):
        draw_lifetimes(
            Graph(tuple(Operation(f"o{i}", (), (Value(f"v{i}", 1),)) for i in range(81)))
        )


def test_planning_needs_the_standard_library_alone():
    names = ("graph", "lifetimes", "orders", "keeping", "tensor_graph", "training_step")
    modules = ", ".join(f"dlsys.recomputation.{name}" for name in names)
    code = f"import sys, {modules}; print([x for x in ('torch', 'numpy', 'matplotlib') if x in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
