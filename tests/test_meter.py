"""The one meter: bytes that are alive, each storage once and whole, and FLOPs of products."""

import pytest
import torch
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from dlsys.meter import Alive, Flops, LiveStorages


def test_a_storage_counts_once_and_whole_from_when_it_is_seen_until_nobody_holds_it():
    changes = []
    alive = Alive(lambda: changes.append(alive.now))
    x, y = torch.ones(10), torch.ones(5)
    assert alive.see(x) is x
    alive.see(x[2:4])
    alive.see(y)
    part = y[:1]
    del y
    assert (alive.now, alive.peak) == (60, 60)
    del part
    x = alive.see(torch.ones(1))
    assert (alive.now, alive.peak) == (4, 60)
    alive.see(torch.ones(0))
    assert changes == [40, 60, 40, 44, 4]


def test_operations_make_storages_and_views_make_none():
    there = torch.ones(100)
    with LiveStorages() as live:
        there.view(10, 10).add_(1)
        assert live.alive.peak == 0
        made = there + 1
        del made
        kept = there[:50] * 2
    assert (live.alive.now, live.alive.peak) == (200, 400)
    del kept
    assert live.alive.now == 0


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_products_are_those_of_torchs_counter_and_of_what_it_leaves_out(context):
    a, b, into = torch.ones(2, 3), torch.ones(3, 4), torch.ones(2, 4)
    with context(), Flops() as ours, FlopCounterMode(display=False) as torchs:
        F.linear(a, b.T, into[0]) + a @ b
    assert ours.total == torchs.get_total_flops() == 2 * (2 * 2 * 3 * 4)
    each: list[int] = []
    with context(), Flops(each.append):
        into.addmm_(a, b)
        into[None].baddbmm_(a[None], b[None])
    assert each == [2 * 2 * 3 * 4] * 2


def test_flash_attention_costs_two_products_forward_and_five_backward_with_shared_keys_too():
    q, k = torch.ones(1, 4, 8, 4, requires_grad=True), torch.ones(1, 2, 16, 4, requires_grad=True)
    product = 2 * 4 * 8 * 16 * 4
    with Flops() as flops:
        out = F.scaled_dot_product_attention(q, k, k, enable_gqa=True)
    assert flops.total == 2 * product
    with Flops() as flops:
        out.sum().backward()
    assert flops.total == 5 * product
