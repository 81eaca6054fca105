"""Weights in 4 bits as they lie in memory, training on top of them, and bytes as the price has them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

from dlsys.memory_wall import measure_state, model_state
from dlsys.model import GPT
from dlsys.precision import (
    E8M0,
    FP6_E3M2,
    FP8_E4M3,
    FP32,
    INT8,
    MXFP4,
    MXFP8_E5M2,
    NVFP4,
    Block,
    Integer,
    LoRALinear,
    Packed,
    add_lora,
    block_bytes,
    lora_parameters,
    quantize,
    train_on,
)
from dlsys.precision.curves import TINY

INT4 = Block(Integer(4), 64, FP32)
BLOCKS = (NVFP4, MXFP4, MXFP8_E5M2, INT4, Block(INT8, 10, E8M0), Block(FP8_E4M3, 16, FP32, rows=16))
PAGE = Path(__file__).parents[2] / "chapters" / "memory_wall.md"


@pytest.mark.parametrize("shape", [(5, 7), (64, 64), (33, 130)])
@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_packed_bytes_stand_for_the_quantized_tensor_and_are_as_many_as_priced(block, shape):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    x[0] = 0
    packed = Packed(x, block)
    found = quantize(x, block)
    assert torch.equal(packed.dequantize(), found.dequantize())
    assert packed.nbytes == found.nbytes == block_bytes(*shape, block)
    assert packed.nbytes == sum(b.nbytes for b in packed.state_dict().values())


def test_two_elements_lie_in_a_byte_the_first_in_its_low_half():
    packed = Packed(torch.tensor([[6.0, 0.5, -1.0]]), MXFP4)
    assert packed.codes.tolist() == [0x17, 0x0A]
    assert packed.scales.tolist() == [[127]]
    assert Packed(torch.tensor([[7.0, -7.0]]), INT4).codes.tolist() == [0x97]


def test_a_block_that_is_no_number_stays_none():
    x = torch.ones(1, 64)
    x[0, 0] = torch.nan
    back = Packed(x, MXFP4).dequantize()
    assert back[0, :32].isnan().all()
    assert back[0, 32:].eq(1).all()


def test_what_does_not_fit_into_bytes_is_refused():
    with pytest.raises(ValueError, match=r"block is .*; it must be of 4 or 8 bits, with scales of"):
        Packed(torch.ones(2, 2), Block(FP6_E3M2, 32, E8M0))


def test_a_65b_model_takes_35_gb_in_int4_as_qlora_says_without_double_quantization():
    # arXiv 2305.14314, section 3: blocks of 64 with FP32 scales add 0.5 bits a parameter.
    assert INT4.bits == 4.5
    side = 8192
    assert block_bytes(side, side, INT4) == side * side * 4.5 / 8
    assert lora_parameters(side, side, 64) == 64 * 2 * side


def with_lora(rank: int = 4) -> GPT:
    model = GPT(TINY)
    add_lora(model, NVFP4, rank)
    return model


def test_a_layer_with_lora_begins_as_its_4_bit_weights_and_sends_gradients_through_them():
    linear = nn.Linear(40, 24)
    layer = LoRALinear(linear, NVFP4, 4)
    w4 = quantize(linear.weight.detach(), NVFP4).dequantize()
    x = torch.randn(6, 40, requires_grad=True)
    y = layer(x)
    assert torch.equal(y, x @ w4.T + linear.bias)
    dy = torch.randn(6, 24)
    y.backward(dy)
    assert torch.allclose(x.grad, dy @ w4, atol=1e-6)
    assert layer.down.grad.eq(0).all()  # B is zero
    expected = 2.0 * dy.T @ (x.detach() @ layer.down.detach().float().T)
    assert torch.allclose(layer.up.grad.float(), expected, rtol=0.02, atol=0.05)
    with torch.no_grad():
        layer.up += 1
    merged = w4 + 2.0 * layer.down.detach().float().sum(0)
    assert torch.allclose(layer.merged(), merged, atol=1e-5)
    assert torch.allclose(layer(x) - linear.bias, x @ merged.T, atol=1e-4)


def test_no_unpacked_weight_is_kept_for_backward():
    layer = LoRALinear(nn.Linear(40, 24), NVFP4, 4)
    shapes = []

    def pack(tensor):
        shapes.append(tuple(tensor.shape))
        return tensor

    with saved_tensors_hooks(pack, lambda t: t):
        layer(torch.randn(6, 40, requires_grad=True))
    assert shapes
    assert not {(40, 24), (24, 40)} & set(shapes)


def test_only_lora_learns_and_no_bit_of_the_4_bit_weights_moves():
    text = PAGE.read_text("utf-8")[2000:2600]
    model = with_lora()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    losses = train_on(model, text, 20, learning_rate=1e-2)
    assert losses[-1] < losses[0] - 0.2
    moved = {n for n, value in model.state_dict().items() if not torch.equal(value, before[n])}
    assert moved == {n for n in before if n.endswith((".up", ".down"))}
    assert len(moved) == 12


def test_bytes_of_lora_and_weights_are_those_of_the_recipe():
    model = with_lora(rank=4)
    layers = [m for m in model.modules() if isinstance(m, LoRALinear)]
    shapes = [(m.up.shape[0], m.down.shape[1]) for m in layers]
    assert shapes == [(64, 64)] * 4 + [(256, 64), (64, 256)]
    assert sum(m.packed.nbytes for m in layers) == sum(block_bytes(*s, NVFP4) for s in shapes)
    learning = [p for p in model.parameters() if p.requires_grad]
    count = sum(lora_parameters(*s, 4) for s in shapes)
    assert sum(p.numel() for p in learning) == count
    optimizer = torch.optim.AdamW(learning)
    model(torch.zeros(1, 4, dtype=torch.long)).sum().backward()
    optimizer.step()
    held, priced = (
        measure_state(nn.ParameterList(learning), optimizer),
        model_state(count, "all-16bit"),
    )
    assert (held.weights, held.gradients, held.master, held.moments) == (
        priced.weights,
        priced.gradients,
        priced.master,
        priced.moments,
    )
