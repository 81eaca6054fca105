"""Adam with moments of one byte: torch's AdamW where they are wide, and near it where they are not."""

from __future__ import annotations

from copy import deepcopy
from io import BytesIO

import pytest
import torch
from torch import nn
from torch.optim import AdamW

from dlsys.model import GPT
from dlsys.precision import Adam8bit, dynamic_tree, signal_to_noise
from dlsys.precision.eight_bit_adam import BLOCK, _read, _write
from dlsys.transformer import TransformerSpec

pytestmark = pytest.mark.usefixtures("one_thread")

SPEC = TransformerSpec(layers=1, hidden=32, heads=2, vocab=128, sequence=16)
TEXT = torch.tensor(list(b"Every rank holds a part, and all of them the whole. " * 3)[:144])


def rows(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def fit(make, steps: int = 25) -> list[float]:
    """Losses of the small GPT on a sentence."""
    model, losses = GPT(SPEC), []
    optimizer = make(model.parameters(), lr=3e-3)
    tokens = TEXT.view(9, 16)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(tokens, tokens.roll(-1, 1))
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def held(optimizer) -> int:
    """Bytes of tensors of more than one number in the state."""
    values = [v for state in optimizer.state.values() for v in state.values()]
    return sum(v.untyped_storage().nbytes() for v in values if torch.is_tensor(v) and v.ndim)


def stepped(make, shape: tuple[int, ...], steps: int = 3, **kw):
    parameter = nn.Parameter(rows(0, *shape))
    optimizer = make([parameter], **kw)
    for step in range(steps):
        parameter.grad = rows(step + 1, *shape)
        optimizer.step()
    return parameter.detach(), optimizer


def test_with_wide_moments_it_is_torchs_adamw():
    options = {"lr": 0.01, "betas": (0.8, 0.99), "eps": 1e-6, "weight_decay": 0.1}
    ours, _ = stepped(Adam8bit, (30, 40), least=10**6, **options)
    theirs, _ = stepped(AdamW, (30, 40), foreach=False, **options)
    assert torch.equal(ours, theirs)


def test_a_parameter_takes_2_bytes_of_state_and_4_more_a_block():
    for shape in ((64, 64), (100, 50), (4097,)):
        n = torch.Size(shape).numel()
        _, optimizer = stepped(Adam8bit, shape)
        assert held(optimizer) == 2 * n + 2 * 4 * -(-n // BLOCK)
        assert held(stepped(AdamW, shape)[1]) == 8 * n
    assert held(stepped(Adam8bit, (4095,))[1]) == 8 * 4095  # small ones stay wide
    assert held(stepped(Adam8bit, (4095,), least=0)[1]) == 2 * 4095 + 16


def test_the_small_gpt_learns_as_with_moments_of_four_bytes():
    wide, narrow = fit(AdamW), fit(lambda p, lr: Adam8bit(p, lr, least=0))
    assert wide[-1] < 2.5 < 4.5 < wide[0]
    assert max(abs(a - b) for a, b in zip(wide, narrow, strict=True)) < 0.05
    assert wide != narrow


@pytest.mark.parametrize("signed", [True, False])
def test_the_tree_has_each_power_of_ten_in_equal_parts(signed):
    tree = dynamic_tree(signed)
    assert len(tree) == len(tree.unique()) == 256
    assert (tree[0] == 0) == (not signed)
    assert {0.0, 1.0} <= set(tree.tolist())
    for zeros in range(7):
        inside = tree[(tree > 0.1 * 10.0**-zeros) & (tree < 0.9999 * 10.0**-zeros)]
        assert len(inside) == 2 ** (6 + (not signed) - zeros)
        gaps = inside.double().diff()
        assert torch.allclose(gaps, gaps[:1].expand_as(gaps), rtol=1e-4)
    negative = tree[tree < 0]
    assert set((-negative).tolist()) == set(tree[tree > 0].tolist()) - {1.0} if signed else True


@pytest.mark.parametrize("signed", [True, False])
def test_a_number_becomes_the_nearest_of_its_blocks_fractions(signed):
    tree = dynamic_tree(signed)
    x = rows(5, 3, 1000) if signed else rows(5, 3, 1000).square()
    codes, scale = _write(x, tree)
    assert (codes.dtype, codes.shape, scale.shape) == (torch.uint8, x.shape, (2,))
    found = _read(codes, scale, tree)
    each = scale.repeat_interleave(BLOCK)[:3000].view(x.shape)
    nearest = ((x / each)[..., None] - tree).abs().amin(-1)
    keeps = x != 0 if signed else x / each > tree[1] / 2
    assert torch.allclose((found - x).abs()[keeps], (nearest * each)[keeps], rtol=1e-4, atol=1e-6)
    assert signal_to_noise(x, found) > 35
    largest = x.flatten()[:BLOCK].abs().argmax()
    x.flatten()[largest].abs_()
    assert scale[0] == x.flatten()[largest]
    assert _read(*_write(x, tree), tree).flatten()[largest] == scale[0]  # it stays itself


def test_an_outlier_costs_its_own_block_alone():
    x = rows(6, 2 * BLOCK) * 1e-3
    x[0] = 1e5
    codes, scale = _write(x, dynamic_tree())
    found = _read(codes, scale, dynamic_tree())
    assert (found[1:BLOCK] == 0).all()
    assert signal_to_noise(x[BLOCK:], found[BLOCK:]) > 30


def test_a_second_moment_above_zero_never_becomes_zero():
    parameter = nn.Parameter(torch.zeros(BLOCK))
    optimizer = Adam8bit([parameter], lr=1.0, weight_decay=0.0, least=0)
    for _ in range(3):
        parameter.grad = torch.full((BLOCK,), 1e-4)  # a square 1e-8 times the largest
        parameter.grad[0] = 1.0
        optimizer.step()
    assert optimizer.state[parameter]["exp_avg_sq"].min() == 1
    assert parameter.detach().abs().max() < 3.5  # of three steps of 1; by eps, some 1e4
    zeros = _write(torch.zeros(BLOCK), dynamic_tree(False))
    assert not _read(*zeros, dynamic_tree(False)).any()


def test_a_state_that_is_saved_stays_bytes_and_goes_on_to_the_bit():
    parameter, optimizer = stepped(Adam8bit, (64, 64))
    file = BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    other = nn.Parameter(parameter.clone())
    resumed = Adam8bit([other])
    resumed.load_state_dict(torch.load(file, weights_only=True))
    state = resumed.state[other]
    assert {state[name].dtype for name in ("exp_avg", "exp_avg_sq")} == {torch.uint8}
    for each, run in ((optimizer.param_groups[0]["params"][0], optimizer), (other, resumed)):
        each.grad = rows(9, 64, 64)
        run.step()
    assert torch.equal(optimizer.param_groups[0]["params"][0], other)


def test_weights_of_16_bits_groups_and_unused_parameters():
    used, unused = nn.Parameter(rows(1, 64, 80).bfloat16()), nn.Parameter(torch.ones(2))
    before = deepcopy(used)
    optimizer = Adam8bit([{"params": [used], "lr": 0.1}, {"params": [unused]}])
    used.grad = torch.ones_like(used)
    assert optimizer.step(lambda: 7.0) == 7.0
    assert used.dtype == torch.bfloat16
    moved = before.detach().float() * (1 - 0.1 * 0.01) - 0.1
    assert torch.allclose(used.float(), moved, rtol=2**-8, atol=1e-6)
    assert unused.tolist() == [1, 1]
    assert unused not in optimizer.state


def test_what_cannot_be_is_refused_in_a_sentence():
    with pytest.raises(ValueError, match=r"betas is \(0.9, 1.0\); it must be two numbers from 0"):
        Adam8bit([nn.Parameter(torch.ones(1))], betas=(0.9, 1.0))
    embedding = nn.Embedding(4, 2, sparse=True)
    embedding(torch.tensor([1])).sum().backward()
    with pytest.raises(ValueError, match="A gradient is sparse; it must be dense"):
        Adam8bit(embedding.parameters()).step()
