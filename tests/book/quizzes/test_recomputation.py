"""The numbers of the quiz on recomputation, computed."""

import random
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from dlsys.recomputation import (
    Chain,
    Layer,
    checkpoint,
    closed_form,
    every_layer,
    keep_all,
    keeping_of,
    layer_graph,
    stage_layers,
    uniform,
)
from dlsys.recomputation.plan import Plan
from dlsys.transformer import CATALOGUE
from dlsys.transformer.activations import activations
from tests.book.quizzes import contract

WIDE = uniform(64, Layer("wide", 1, 25, 1, 2))
EQUAL = Layer("equal", 1, 20, 1, 2)


def best_of_law(chain: Chain, most: int = 10_000) -> float:
    """Where the sum of two terms is least, of which one grows with k and one falls: tenths of k."""
    inputs, saved = len(chain), chain.saved_bytes
    assert closed_form(chain, 4) == 4 * inputs / len(chain) + saved / 4
    return min(range(1, most), key=lambda k: k / 10 + 10 * saved / k) / 10


def longer(again: int, layers: int = 120) -> float:
    """By how many percent a step is longer."""
    plan = every_layer(again) + keep_all(layers - again) if again < layers else every_layer(layers)
    return 100 * plan.price(uniform(layers, EQUAL), early_stop=False).share_of_step


def mfu(hfu: float, again: int) -> float:
    """MFU where so many of 40 layers are run again."""
    plan = every_layer(again) + keep_all(40 - again) if again < 40 else every_layer(40)
    price = plan.price(uniform(40, EQUAL), early_stop=False)
    return round(hfu * price.model_cost / price.hardware_cost, 4)


NUMBERS = {
    "recomputation-best-segments": best_of_law(WIDE),
    "recomputation-part-of-the-layers": round(longer(36), 9),
    "recomputation-mfu": mfu(0.49, 20),
}

MISCONCEPTIONS = {
    "recomputation-best-segments": {
        "keep their input alone": best_of_law(uniform(64)),
        "equally many whole layers": min(
            (2**i for i in range(7)), key=lambda k: closed_form(WIDE, k)
        ),
        "A segment for each layer": len(WIDE),
        "There are 64 layers": WIDE.saved_bytes,
        "So long is a segment": len(WIDE) / best_of_law(WIDE),
        "More than there are layers": 25 * best_of_law(uniform(64)),
        "a rebuilt one holds 320": 25**0.5,
    },
    "recomputation-part-of-the-layers": {
        "of a forward pass": 3 * longer(36),
        "all layers are run again": longer(120),
        "of the backward pass": 1.5 * longer(36),
        "of the longer step": 100 * longer(36) / (100 + longer(36)),
        "not a fraction": longer(36) / 100,
        "Backward is not done twice": 2 * longer(36),
    },
    "recomputation-mfu": {
        "what the devices do": 0.49,
        "every layer is run again": mfu(0.49, 40),
        "is not half of the work": 0.49 / 2,
        "not of what the devices do": 0.49 * 5 / 6,
        "never above HFU": 0.49 * 7 / 6,
        "less of it than that": 0.49 * 2 / 3,
    },
}
NUMBERS = {name: round(number, 9) for name, number in NUMBERS.items()}


class TestQuiz(contract.Quiz): ...


def test_a_segment_that_is_rebuilt_holds_what_the_feedback_says() -> None:
    assert WIDE.saved_bytes / 5 == 320
    assert closed_form(WIDE, 32) == 82


def half(recomputed: list[bool]) -> Plan:
    """The plan that recomputes these layers one by one."""
    first, *rest = (every_layer(1) if each else keep_all(1) for each in recomputed)
    return sum(rest, first)


def test_the_peak_is_lowest_where_the_first_half_is_recomputed() -> None:
    chain = uniform(40, EQUAL)
    ways = {
        "first": [i < 20 for i in range(40)],
        "last": [i >= 20 for i in range(40)],
        "every second": [i % 2 == 1 for i in range(40)],
    }
    prices = {name: half(way).price(chain) for name, way in ways.items()}
    assert len({price.kept_bytes for price in prices.values()}) == 1
    assert min(prices, key=lambda name: prices[name].peak_bytes) == "first"
    assert prices["first"].peak_bytes == prices["first"].kept_bytes
    numbers = random.Random(1)
    for _ in range(50):
        way = [True] * 20 + [False] * 20
        numbers.shuffle(way)
        assert half(way).price(chain).peak_bytes >= prices["first"].peak_bytes


def test_the_layers_input_is_the_dearest_byte() -> None:
    spec = CATALOGUE["gpt3-175b"]
    graph = layer_graph(spec, 1)
    kept = [name for name in graph.needed if name in graph.producer]
    prices = {
        name: keeping_of(graph, [each for each in kept if each != name]).cost / graph.sizes[name]
        for name in ("attention.query", "attention.probabilities", "ffn.down_input")
    }
    made = next(each for each in graph.operations if each.outputs[0].name == "ffn.output")
    prices["the layer before's output"] = made.cost / graph.sizes["ffn.output"]
    assert sorted(prices, key=prices.__getitem__)[-1] == "the layer before's output"
    assert prices["attention.query"] > prices["attention.probabilities"] > 0
    assert prices["ffn.down_input"] == 0


def test_what_holds_less_on_the_first_stage() -> None:
    assert stage_layers(48, 8, 64) == stage_layers(48, 16, 64) == stage_layers(48, 8, 32)
    spec = CATALOGUE["gpt3-175b"]
    plain = int(activations(spec, 2, 8))
    assert int(activations(spec, 1, 8)) == plain / 2
    assert int(activations(spec, 2, 8, True)) < plain
    assert int(activations(spec, 2, 8, False, "selective")) < plain


def gradient(run: Callable[[Tensor], Tensor], between: Callable[[], object]) -> Tensor:
    """The gradient of an argument; something happens between forward and backward."""
    torch.manual_seed(0)
    random.seed(3)
    x = torch.randn(8, 4, generator=torch.Generator().manual_seed(1)).requires_grad_()
    loss = run(x).square().sum()
    between()
    loss.backward()
    assert x.grad is not None
    return x.grad


def right(make: Callable[[], tuple[Callable[[Tensor], Tensor], Callable[[], object]]]) -> bool:
    """Whether a function's gradients are those without a checkpoint."""
    function, between = make()
    plain = gradient(function, lambda: None)
    function, between = make()
    return torch.equal(gradient(lambda x: checkpoint(function, x), between), plain)


def counter() -> tuple[Callable[[Tensor], Tensor], Callable[[], object]]:
    calls: list[int] = []

    def skips(x: Tensor) -> Tensor:
        calls.append(1)
        return (x * (2 if len(calls) % 2 else 3)).exp()

    return skips, lambda: None


def scaled() -> tuple[Callable[[Tensor], Tensor], Callable[[], object]]:
    scale = [4.0]
    return lambda x: (x * scale[0]).exp(), lambda: scale.append(scale.pop() / 2)


def flipped() -> tuple[Callable[[Tensor], Tensor], Callable[[], object]]:
    return lambda x: (x.flip(0) if random.random() < 0.5 else x).exp() * x, lambda: None


def bias() -> tuple[Callable[[Tensor], Tensor], Callable[[], object]]:
    layer = nn.Parameter(torch.ones(4))
    return lambda x: (x + layer).exp(), lambda: None


@pytest.mark.parametrize(
    ("make", "is_right"),
    [
        (lambda: (lambda x: x * torch.randn_like(x), lambda: None), True),
        (flipped, False),
        (bias, True),
        (counter, False),
        (lambda: (nn.BatchNorm1d(4), lambda: None), True),
        (scaled, False),
    ],
)
def test_functions_that_may_run_twice(
    make: Callable[[], tuple[Callable[[Tensor], Tensor], Callable[[], object]]], is_right: bool
) -> None:
    assert right(make) == is_right


def test_a_running_mean_moves_twice() -> None:
    norms = nn.BatchNorm1d(4), nn.BatchNorm1d(4)
    gradient(norms[0], lambda: None)
    gradient(lambda x: checkpoint(norms[1], x), lambda: None)
    means = [norm.running_mean for norm in norms]
    assert means[0] is not None
    assert means[1] is not None
    assert not torch.equal(means[0], means[1])
