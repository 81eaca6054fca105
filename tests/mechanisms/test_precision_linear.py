"""Linear layers in short formats: their products against explicitly quantised operands and torch's FP8
product, and training in which each recipe breaks where it is said to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from dlsys.model import GPT
from dlsys.precision import (
    BF16,
    E8M0,
    FP4_E2M1,
    FP8_E4M3,
    FP8_E5M2,
    INT8,
    LINEAR_RECIPES,
    MXFP4,
    MXFP8_E4M3,
    NVFP4,
    Block,
    Format,
    LinearRecipe,
    QuantizedLinear,
    loss_curve,
    loss_curves,
    quantize,
    quantize_linears,
    round_to,
    straight_through,
)
from dlsys.precision.curves import TINY
from dlsys.precision.recipe import MXFP4_UP

PAGE = Path(__file__).parents[2] / "chapters" / "memory_wall.md"
E4M3 = LinearRecipe(FP8_E4M3, FP8_E4M3, FP8_E4M3)


def whole(*shape: int, seed: int = 0) -> torch.Tensor:
    stream = torch.Generator().manual_seed(seed)
    return torch.randint(-40, 41, shape, generator=stream).float()


def products(recipe: LinearRecipe, x: torch.Tensor, w: torch.Tensor, dy: torch.Tensor, seed=0):
    """y, dx and dW of a layer with weights w."""
    linear = nn.Linear(w.shape[1], w.shape[0], bias=False)
    linear.weight = nn.Parameter(w.clone())
    x = x.clone().requires_grad_()
    y = QuantizedLinear(linear, recipe, seed)(x)
    y.backward(dy)
    return y.detach(), x.grad, linear.weight.grad


def q(x: torch.Tensor, fmt) -> torch.Tensor:
    return x if fmt is None else quantize(x, fmt).dequantize()


def each_of(*names: str):
    return pytest.mark.parametrize("name", names)


# --- one layer ------------------------------------------------------------------------------------


@each_of("fp32", "mxfp4", "mxfp8", "fp8-current", "deepseek-v3")
def test_each_product_reads_its_operands_quantised_along_what_it_sums_over(name):
    recipe = LINEAR_RECIPES[name]
    x, w, dy = whole(40, 72), whole(48, 72, seed=1), whole(40, 48, seed=2)
    y, dx, dw = products(recipe, x, w, dy)
    for found, a, b, formats in (
        (y, x, w, (recipe.inputs, recipe.weights)),
        (dx, dy, w.T, (recipe.gradients, recipe.weights)),
        (dw, dy.T, x.T, (recipe.gradients, recipe.inputs)),
    ):
        expected = q(a.contiguous(), formats[0]).double() @ q(b.contiguous(), formats[1]).double().T
        if name in ("fp32", "mxfp4", "mxfp8"):  # scales are powers of two: sums are exact
            assert torch.equal(found.double(), expected)
        assert torch.allclose(found.double(), expected, rtol=1e-5, atol=1e-3)
    assert torch.equal(y, x @ w.T) is (name == "fp32")


def test_blocks_along_the_other_dimension_hold_other_numbers():
    x, w, dy = whole(40, 72), whole(48, 72, seed=1), whole(40, 48, seed=2)
    recipe = replace(LINEAR_RECIPES["mxfp4"], gradients=None)
    _, dx, dw = products(recipe, x, w, dy)
    assert not torch.equal(dx, dy @ q(w, MXFP4))  # along `in`, as the forward pass has them
    assert not torch.equal(dw, dy.T @ q(x, MXFP4))
    square = Block(FP4_E2M1, 16, E8M0, rows=16)
    _, dx, _ = products(replace(recipe, weights=square), x, w, dy)
    assert torch.equal(dx, dy @ q(w, square))  # squares are the same both ways


def test_a_scale_for_each_tensor_is_torchs_scaled_fp8_product():
    x, w = torch.randn(32, 64), torch.randn(48, 64)
    y, _, _ = products(E4M3, x, w, torch.zeros(32, 48))
    (a, s), (b, t) = (
        ((x / (x.abs().max() / 448)).to(torch.float8_e4m3fn), x.abs().max() / 448) for x in (x, w)
    )
    expected = torch._scaled_mm(a, b.t(), scale_a=s, scale_b=t, out_dtype=torch.float32)
    assert torch.allclose(y, expected, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(x @ w.T, expected, rtol=1e-2, atol=1e-2)


def test_with_one_scale_a_layer_is_a_linear_between_straight_through_roundings():
    x, w, dy = whole(40, 72), whole(48, 72, seed=1), whole(40, 48, seed=2)
    a, b = x.clone().requires_grad_(), w.clone().requires_grad_()
    y = straight_through(a, FP8_E4M3) @ straight_through(b, FP8_E4M3).T
    straight_through(y, None, FP8_E5M2).backward(dy)
    found = products(LINEAR_RECIPES["fp8-current"], x, w, dy)
    for mine, other in zip(found, (y.detach(), a.grad, b.grad), strict=True):
        assert torch.allclose(mine, other, rtol=1e-6)


def test_straight_through_rounds_forward_and_passes_or_rounds_backward():
    x = torch.tensor([1.3, -0.4, 2.5, 7.0], requires_grad=True)
    y = straight_through(x, FP4_E2M1, scaled=False)
    assert y.tolist() == [1.5, -0.5, 2.0, 6.0]
    y.backward(torch.tensor([1.3, 2.0, 0.1, 5.2]))
    assert x.grad.tolist() == torch.tensor([1.3, 2.0, 0.1, 5.2]).tolist()
    x.grad = None
    straight_through(x, None, FP4_E2M1, scaled=False).backward(torch.tensor([1.3, 2.0, 0.1, 5.2]))
    assert x.grad.tolist() == [1.5, 2.0, 0.0, 6.0]


def test_without_a_scale_a_format_ends_where_it_ends():
    x = torch.tensor([[1000.0, 1e-4]])
    weight = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    y, _, _ = products(replace(E4M3, scaled=False), x, weight, torch.zeros(1, 2))
    assert bool(y.isnan().all())  # E4M3 has no infinity, and NaN times zero is NaN
    bf16 = LINEAR_RECIPES["bf16"]
    assert torch.equal(products(bf16, x, weight, torch.zeros(1, 2))[0], round_to(x, BF16))


def test_mixing_tokens_cancels_in_the_product_and_its_signs_are_the_seeds():
    x, w, dy = whole(40, 72), whole(48, 72, seed=1), whole(40, 48, seed=2)
    mixing = LinearRecipe(None, None, None, hadamard=16)
    _, dx, dw = products(mixing, x, w, dy)
    assert torch.equal(dw, dy.T @ x)
    assert torch.equal(dx, dy @ w)
    rounded = replace(mixing, gradients=MXFP4)
    assert not torch.equal(products(rounded, x, w, dy)[2], products(rounded, x, w, dy, 1)[2])


def test_a_gradient_in_4_bits_is_lost_to_nearest_and_right_on_average_if_stochastic():
    dy = torch.full((32, 1), 0.2)  # of 32 tokens, a block of dW
    dy[0] = 6.0
    x, w = torch.eye(32), torch.zeros(1, 32)
    nearest = LinearRecipe(None, None, MXFP4)
    assert products(nearest, x, w, dy)[2][0].tolist() == [6.0] + [0.0] * 31
    often = replace(nearest, stochastic=True)
    mean = products(often, x.repeat(100, 1) / 100, w, dy.repeat(100, 1))[2][0, 1:].mean()
    assert mean == pytest.approx(0.2, abs=0.02)  # 3,100 draws, of deviation 0.25


def test_stochastic_rounding_is_wrong_on_average_where_the_largest_saturates():
    dy = torch.full((3200, 1), 7.9)  # the specification's scale is 1, and 6 the largest element
    x, w = torch.full((3200, 1), 1 / 3200), torch.zeros(1, 1)
    for fmt, expected in ((MXFP4, 6.0), (MXFP4_UP, 7.9)):
        found = products(LinearRecipe(None, None, fmt, stochastic=True), x, w, dy)[2]
        assert float(found) == pytest.approx(expected, abs=0.1)  # of deviation 0.01


def test_a_delayed_scale_is_stale_for_one_step_after_a_jump():
    delayed = LINEAR_RECIPES["fp8-delayed"]
    linear = nn.Linear(16, 16, bias=False)
    linear.weight = nn.Parameter(torch.eye(16))
    layer, ones = QuantizedLinear(linear, delayed), torch.ones(4, 16)
    assert layer(1000 * ones).eq(448).all()  # nothing seen yet: the scale is 1
    for _ in range(delayed.history):
        layer(ones)
    assert torch.allclose(layer(ones), ones)
    assert torch.allclose(layer(16 * ones), ones)  # 16 became 1: all that the old scale can hold
    assert torch.allclose(layer(16 * ones), 16 * ones)
    current = QuantizedLinear(linear, LINEAR_RECIPES["fp8-current"])
    assert torch.allclose(current(16 * ones), 16 * ones)


def test_in_the_first_step_a_delayed_scale_flushes_small_gradients():
    x, w, dy = torch.ones(1, 4), torch.eye(4), torch.full((1, 4), 2.0**-18)
    assert products(LINEAR_RECIPES["fp8-delayed"], x, w, dy)[2].eq(0).all()
    assert torch.allclose(products(LINEAR_RECIPES["fp8-current"], x, w, dy)[2], dy.T @ x)


def test_blocks_of_several_rows_have_one_scale_and_may_be_turned():
    block = Block(INT8, 2, Format(8, 23), rows=2)
    x = torch.tensor([[127.0, 4, 1, 1, 5], [3, 3, 1, 1, 5], [0, 0, 254, 2, 1]])
    found = quantize(x, block)
    assert torch.allclose(found.scales, torch.tensor([[127.0, 1, 5], [0, 254, 1]]) / 127, rtol=1e-6)
    assert torch.allclose(found.dequantize(), x, rtol=1e-6)
    assert torch.equal(quantize(x.T.contiguous(), block).dequantize(), found.dequantize().T)
    assert block.bits == 8 + 32 / 4
    assert found.nbytes == 15 + 6 * 4


# --- modules --------------------------------------------------------------------------------------


def test_layers_are_replaced_but_those_kept_high_and_parameters_stay_the_same_objects():
    model = GPT(replace(TINY, tied=True))
    before = dict(model.named_parameters())
    assert quantize_linears(model, LINEAR_RECIPES["nvfp4"]) is model
    kinds = {name: type(module) for name, module in model.named_modules()}
    assert kinds["head"] is nn.Linear
    assert sum(kind is QuantizedLinear for kind in kinds.values()) == 6
    after = dict(model.named_parameters())
    assert after.keys() == before.keys()
    assert all(after[name] is before[name] for name in before)
    assert model.head.weight is model.embedding.weight
    quantize_linears(model, replace(LINEAR_RECIPES["mxfp4"], high=("layers.*.ffn.*",)))
    assert model.head.weight is model.embedding.weight
    assert isinstance(model.head, QuantizedLinear)
    assert model.layers[0].attention.query.recipe.weights == MXFP4
    assert model.layers[0].ffn.up.recipe.weights.rows == 16  # stays what it was


def test_a_layer_alone_is_replaced_and_a_module_without_one_refused():
    layer = quantize_linears(nn.Linear(4, 4), replace(E4M3, high=()))
    assert isinstance(layer, QuantizedLinear)
    with pytest.raises(ValueError, match=r"module is .*; it must be one with nn.Linear layers"):
        quantize_linears(nn.ReLU(), E4M3)


def test_all_shapes_of_inputs_and_16_bit_tensors_pass_through():
    layer = quantize_linears(nn.Linear(8, 3).bfloat16(), LINEAR_RECIPES["mxfp8"])
    x = torch.randn(2, 5, 8, dtype=torch.bfloat16, requires_grad=True)
    y = layer(x)
    y.sum().backward()
    assert (y.shape, y.dtype, x.grad.dtype) == ((2, 5, 3), torch.bfloat16, torch.bfloat16)
    assert layer.weight.grad.dtype == torch.bfloat16
    assert torch.equal(layer(x[0, 0]), y[0, 0])
    assert layer.bias.grad.tolist() == [10.0] * 3


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"history": 4, "inputs": MXFP4}, "history is 4; it must be 0 where blocks"),
        ({"history": 4, "scaled": False}, "history is 4; it must be 0 where blocks"),
        ({"history": 4, "hadamard": 16}, "hadamard is 16; it must be 0 with scales of the steps b"),
        ({"hadamard": 1025}, "hadamard is 1025; it must be at most 1,024"),
        ({"hadamard": 12}, "hadamard is 12; it must be 0 or a power of two"),
        ({"scaled": False, "weights": NVFP4}, "scaled is False; it must be True with blocks"),
    ],
)
def test_a_recipe_whose_parts_contradict_each_other_is_refused(change, sentence):
    with pytest.raises(ValueError, match=sentence):
        replace(E4M3, **change)


def test_a_recipes_numbers_are_whole_and_mixing_may_be_of_one_token():
    assert replace(E4M3, hadamard=1).hadamard == 1
    assert type(replace(E4M3, hadamard=np.int64(16)).hadamard) is int
    assert type(replace(E4M3, history=np.int64(4)).history) is int


# --- loss curves ----------------------------------------------------------------------------------


def page() -> str:
    text = PAGE.read_text("utf-8")
    return text[text.index("\n# ") :][:600]


def last(recipe: LinearRecipe, **burden) -> float:
    """The mean loss of steps 25 to 29."""
    return sum(loss_curve(recipe, page(), 30, **burden)[25:]) / 5


@pytest.fixture(scope="module")
def fp32() -> float:
    return last(LINEAR_RECIPES["fp32"])


def test_burdens_change_not_a_bit_where_nothing_is_rounded():
    plain = loss_curve(LINEAR_RECIPES["fp32"], page(), 4)
    products_alone = replace(LINEAR_RECIPES["fp32"], high=())
    both = {"outlier": 2.0**10, "loss_scale": lambda step: 2.0**step}
    assert loss_curve(products_alone, page(), 4, **both) == plain


def test_curves_are_the_same_every_time_and_begin_at_the_same_weights():
    recipes = {name: LINEAR_RECIPES[name] for name in ("fp32", "mxfp4-stochastic")}
    curves = loss_curves(recipes, page(), 3)
    assert curves == loss_curves(recipes, page(), 3)
    assert list(curves) == list(recipes)
    assert curves["fp32"][0] == pytest.approx(curves["mxfp4-stochastic"][0], abs=0.01)
    assert curves["fp32"] != curves["mxfp4-stochastic"]


def test_gradients_without_a_scale_are_lost(fp32):
    # Mean gradients over 256 tokens are below half of E4M3's smallest number, 2^-9.
    assert last(replace(E4M3, scaled=False)) > fp32 + 0.2


def test_an_outlier_takes_the_other_channels_from_int8_long_before_fp8(fp32):
    assert last(LinearRecipe(INT8, INT8, INT8), outlier=2.0**10) > fp32 + 0.2
    assert last(E4M3, outlier=2.0**10) < fp32 + 0.1
    assert last(E4M3, outlier=2.0**20) > fp32 + 0.2
    for fmt, powers in ((INT8, 8), (FP4_E2M1, 5), (FP8_E4M3, 19), (FP8_E5M2, 33)):
        # Beside an outlier of 2^powers a 1 is lost; beside a quarter of that it is not.
        assert q(torch.tensor([2.0**powers, 1.0]), fmt)[1] == 0
        assert q(torch.tensor([2.0 ** (powers - 2), 1.0]), fmt)[1] > 0
    assert q(torch.tensor([[2.0**20] + [0.0] * 31 + [1.0] * 32]), MXFP8_E4M3)[0, 32:].eq(1).all()
