"""What is counted is what torch runs: FLOPs by its own counter, bytes by tensors, sums by the model."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from dlsys import world
from dlsys.model import GPT, SMALL
from dlsys.roofline import (
    Operation,
    all_reduce,
    as_one,
    convolution,
    count_operations,
    elementwise,
    embedding,
    gelu,
    layer_norm,
    layer_operations,
    matmul,
    scores,
    softmax,
    together,
)
from dlsys.roofline.plan import output_side
from dlsys.transformer import CATALOGUE, TransformerSpec

TOKENS = torch.zeros(2, 64, dtype=torch.long)
GROUPED = TransformerSpec(2, 32, 4, 64, 16, kv_heads=2, gated=True, tied=False)


def torchs_flops(program):
    with FlopCounterMode(display=False) as counter:
        program()
    return counter.get_total_flops()


def only(program):
    """The one operation that a program runs."""
    (operation,) = count_operations(program).operations
    return operation


def as_counted(operation):
    return operation.flops, operation.read, operation.written, operation.product


def ones(*shape):
    return torch.ones(*shape)


X, W, ROWS = ones(6, 5), ones(5, 7), torch.tensor([3, 0, 3])
IMAGE, KERNEL = ones(2, 3, 9, 9), ones(4, 3, 3, 3)
PAIR = ones(12, 6, 5), ones(12, 5, 6)
AFFINE = ones(5), ones(5)


@pytest.mark.parametrize(
    ("planned", "program"),
    [
        (lambda: matmul(6, 5, 7, itemsize=4), lambda: X @ W),
        (lambda: matmul(6, 5, 7, itemsize=8), lambda: X.double() @ W.double()),
        (lambda: matmul(6, 5, 7, itemsize=4, bias=True), lambda: torch.addmm(ones(7), X, W)),
        (lambda: scores(6, 5, 12, itemsize=4), lambda: PAIR[0] @ PAIR[1]),
        (lambda: matmul(6, 5, 6, 12, 4), lambda: torch.bmm(*PAIR)),
        (lambda: elementwise(30, 1, 2, 1, 4), lambda: X + X.clone()),
        (lambda: elementwise(30, 1, 1, 1, 4), lambda: X * X),
        (lambda: elementwise(30, 5, 1, 1, 4), lambda: F.gelu(X)),
        (lambda: softmax(6, 5, 4), lambda: X.softmax(-1)),
        (lambda: layer_norm(6, 5, 4), lambda: F.layer_norm(X, (5,), *AFFINE)),
        (lambda: embedding(3, 5, 4), lambda: F.embedding(ROWS, X)),
        (lambda: convolution(2, 3, 9, 4, 3, itemsize=4), lambda: F.conv2d(IMAGE, KERNEL)),
        (
            lambda: convolution(2, 3, 9, 4, 3, 2, 1, itemsize=4),
            lambda: F.conv2d(IMAGE, KERNEL, None, 2, 1),
        ),
        (
            lambda: convolution(2, 3, 9, 3, 3, groups=3, itemsize=4),
            lambda: F.conv2d(IMAGE, KERNEL[:3, :1], groups=3),
        ),
    ],
)
def test_an_operation_that_is_planned_is_the_one_that_torch_runs(planned, program):
    last = count_operations(program).operations[-1]
    assert as_counted(planned()) == as_counted(last)


@pytest.mark.parametrize("stride", [1, 2])
def test_both_gradients_of_a_convolution_cost_what_torch_says(stride):
    image, kernel = IMAGE.clone().requires_grad_(), KERNEL.clone().requires_grad_()

    def program(*of):
        torch.autograd.grad(F.conv2d(image, kernel, stride=stride).sum(), of)

    for of in ((image, kernel), (kernel,), (image,)):
        assert count_operations(lambda of=of: program(*of)).product_flops == torchs_flops(
            lambda of=of: program(*of)
        )


def test_a_transposed_convolution_costs_what_torch_says():
    def program():
        F.conv_transpose2d(ones(2, 4, 5, 5), KERNEL)

    assert count_operations(program).product_flops == torchs_flops(program) > 0


@pytest.mark.parametrize("spec", [SMALL, GROUPED, CATALOGUE["gpt2-small"]], ids=lambda s: s.name)
def test_a_training_step_costs_three_forward_passes_of_the_model_whoever_counts(spec):
    device = "meta" if spec.name.startswith("GPT-2") else "cpu"
    model = GPT(spec, device=device)
    tokens = torch.zeros(2, spec.sequence, dtype=torch.long, device=device)

    def step():
        model(tokens, tokens).backward()

    counted = count_operations(step).product_flops
    assert counted == torchs_flops(step) == spec.training_flops(2) == 3 * spec.forward_flops(2)


def test_backward_costs_twice_the_forward_pass():
    model = GPT(SMALL)
    loss = model(TOKENS, TOKENS)
    forward = count_operations(lambda: model(TOKENS, TOKENS)).product_flops
    assert (
        count_operations(loss.backward).product_flops == 2 * forward == 2 * SMALL.forward_flops(2)
    )


def test_fused_attention_counts_its_products_where_torchs_counter_sees_none():
    model = GPT(SMALL, flash=True)
    core = SMALL.layers * 2 * 2 * SMALL.heads * SMALL.sequence**2 * 2 * SMALL.head_size

    def forward():
        model(TOKENS)

    assert torchs_flops(forward) == SMALL.forward_flops(2) - core
    assert count_operations(forward).product_flops == SMALL.forward_flops(2)
    # Backward makes the scores once more: five products for the four of plain attention.
    step = count_operations(lambda: model(TOKENS, TOKENS).backward()).product_flops
    assert step == SMALL.training_flops(2) + core // 2


def test_an_optimizer_that_is_one_operation_moves_each_tensor_once_and_a_loop_many_times():
    parameter = torch.nn.Parameter(ones(1000))
    moved = []
    for fused in (True, False):
        adamw = torch.optim.AdamW([parameter], fused=fused, foreach=False)
        parameter.sum().backward()
        adamw.step()
        moved.append(count_operations(adamw.step).total.nbytes)
    # Weights, gradients and both moments, read and written (gradients may be: it can unscale them).
    assert 8 * 4000 <= moved[0] < 8 * 4000 + 100
    assert moved[1] > 2 * moved[0]


def test_views_move_nothing_and_are_no_operations():
    counted = count_operations(lambda: X.view(30).unsqueeze(0).expand(4, 30)[1:, ::2].t().detach())
    assert counted.operations == ()
    assert counted.views == 7  # indexing is two


def test_an_expanded_tensor_is_read_once_and_a_copy_of_it_written_whole():
    wide = ones(5).expand(100, 5)
    assert as_counted(only(lambda: wide.clone())) == (0, 20, 2000, False)


def test_a_tensor_that_is_given_twice_is_read_once():
    assert only(lambda: X * X).read == 120


def test_what_is_written_over_without_a_look_is_not_read():
    held = ones(30)
    other = ones(30)
    assert (only(lambda: held.copy_(other)).read, only(lambda: held.fill_(2)).read) == (120, 0)
    assert as_counted(only(lambda: held.add_(1))) == (30, 120, 120, False)


def test_a_result_that_has_its_place_already_is_not_read_there():
    place = ones(6, 5)
    add = only(lambda: torch.add(X, 1, out=place))
    assert (add.flops, add.read, add.written) == (30, 120, 120)
    held = ones(6, 7)
    product = only(lambda: torch.mm(X, W, out=held))
    assert as_counted(product) == as_counted(matmul(6, 5, 7, itemsize=4))


def test_a_table_is_read_where_its_rows_are_taken_and_not_whole():
    table = ones(10_000, 5)
    assert only(lambda: F.embedding(ROWS, table)).read == 3 * (8 + 20)


def test_the_loss_reads_one_number_for_each_target():
    logits = ones(64, 1000)
    targets = torch.arange(64)
    read = only(lambda: F.nll_loss(logits, targets)).read
    assert read == 64 * (8 + 4)


def test_linear_layers_count_with_and_without_gradients():
    linear = torch.nn.Linear(5, 7)
    with torch.inference_mode():
        inference = count_operations(lambda: linear(X)).product_flops
    assert inference == count_operations(lambda: linear(X)).product_flops == 2 * 6 * 5 * 7


def test_meta_tensors_count_as_real_ones():
    def program(device):
        x = torch.ones(6, 5, device=device)
        return lambda: F.gelu(x @ x.t()).softmax(0).sum()

    assert count_operations(program("meta")) == count_operations(program("cpu"))


def test_a_fused_kernel_reads_its_inputs_and_writes_its_result_alone():
    a, b, c = (torch.randint(-9, 9, (1000,)).float() for _ in range(3))
    eager = count_operations(lambda: a + b * c).total
    fused = as_one(lambda a, b, c: a + b * c, a, b, c)
    by_hand = count_operations(lambda: torch.addcmul(a, b, c)).total
    assert (eager.nbytes, fused.nbytes) == (6 * 4000, 4 * 4000)
    assert (by_hand.flops, by_hand.nbytes) == (fused.flops, fused.nbytes) == (2000, 16_000)
    assert eager.flops == fused.flops
    assert torch.equal(torch.addcmul(a, b, c), a + b * c)


def test_a_fused_norm_residual_and_activation_saves_what_lies_between():
    def tail(x, residual):
        y = x + residual
        return F.gelu(F.layer_norm(y, (64,))), y

    x, residual = ones(128, 64), ones(128, 64).clone()
    eager = count_operations(lambda: tail(x, residual)).total
    fused = as_one(tail, x, residual)
    assert fused.nbytes == 4 * x.nbytes
    assert 7 * x.nbytes <= eager.nbytes < 7.1 * x.nbytes


@pytest.mark.parametrize("n", range(1, 8))
def test_an_all_reduce_sends_what_the_busiest_rank_of_a_ring_sends(n):
    for elements in (1, 3, 8, 47, 100):
        run = world.simulate(lambda comm, e=elements: comm.all_reduce(torch.ones(e)), n)
        sent = [0] * n
        for message in run.traffic.messages:
            sent[message.src] += message.nbytes
        assert all_reduce(elements, n, 4).sent == max(sent)


@pytest.mark.parametrize("key", ["gpt2-small", "gpt2-xl", "llama2-7b", "llama3-70b", "palm-540b"])
def test_the_operations_of_a_layer_have_the_flops_of_the_specs_layer(key):
    spec = CATALOGUE[key]
    products = {o.name: o.flops for o in layer_operations(spec, 2) if o.product}
    expected = spec.operations(2, 0)
    assert sorted(products.values()) == sorted(expected.values())
    assert products["scores"] == expected["scores"]


def test_the_products_of_a_layer_read_and_write_what_the_model_does():
    spec = TransformerSpec(1, 64, 8, 256, 64, bias=False, norm="layer")
    model = GPT(spec)
    with torch.no_grad():
        counted = count_operations(lambda: model(TOKENS)).operations
    products = [o for o in counted if o.product]
    planned = {o.name: o for o in layer_operations(spec, 2, itemsize=4) if o.product}
    *layer, head = products
    query, key, value, *others = layer
    # The model multiplies by queries', keys' and values' matrices one after the other.
    x = 2 * 64 * 64 * 4
    assert sum(o.nbytes for o in (query, key, value)) == planned["qkv"].nbytes + 2 * x
    names = ("scores", "weighted sum", "output", "up", "down")
    for counted_one, name in zip(others, names, strict=True):
        assert as_counted(counted_one) == as_counted(planned[name]), name
    assert as_counted(head) == as_counted(matmul(128, 64, 256, itemsize=4))


def test_what_is_no_product_in_a_layer_moves_what_it_moves_in_the_model():
    spec = TransformerSpec(1, 64, 8, 256, 64)
    model = GPT(spec)
    with torch.no_grad():
        run = {o.name: o for o in count_operations(lambda: model(TOKENS)).operations}
    planned = {o.name: o for o in layer_operations(spec, 2, itemsize=4)}
    names = {"native_layer_norm": "layer norm", "_softmax": "softmax"}
    names |= {"gelu": "activation", "add": "residual"}
    for name, ours in names.items():
        assert as_counted(run[name]) == as_counted(planned[ours]), ours


def test_a_gated_layer_has_its_operations_in_order_and_one_kernel_for_gate_and_product():
    operations = layer_operations(GROUPED, 2, itemsize=4)
    assert [o.name for o in operations] == [
        *("layer norm", "qkv", "scores", "softmax", "weighted sum", "output", "residual"),
        *("layer norm", "up", "gate", "activation", "down", "residual"),
    ]
    up, gate = (torch.ones(2 * GROUPED.sequence, GROUPED.ffn_hidden) for _ in range(2))
    fused = as_one(lambda up, gate: F.silu(gate) * up, up, gate)
    assert (operations[10].read, operations[10].written) == (fused.read, fused.written)


def test_decode_reads_every_key_and_value_once_and_shares_them_in_a_group():
    spec = CATALOGUE["llama3-8b"]
    one = {o.name: o for o in layer_operations(spec, 3, 1, 1000)}
    keys = 3 * 1000 * spec.kv_heads * spec.head_size * 2
    small = 2 * 3 * spec.heads * (spec.head_size + 1000)
    assert one["scores"].nbytes == keys + small
    assert one["scores"].flops == 2 * 3 * spec.heads * 1000 * spec.head_size
    alone = {o.name: o for o in layer_operations(CATALOGUE["llama2-7b"], 3, 1, 1000)}
    assert one["scores"].intensity > 3 * alone["scores"].intensity


def test_attention_over_more_keys_than_queries_has_those_of_the_context():
    few = {o.name: o for o in layer_operations(SMALL, 2, 8, 32)}
    assert few["softmax"].flops == 5 * 2 * 8 * 8 * 32
    assert few["qkv"].flops == 2 * 16 * 64 * 192


def test_operations_together_are_their_sums():
    parts = [matmul(4, 5, 6), elementwise(10), all_reduce(10, 2)]
    whole = together(parts, "all")
    assert (whole.flops, whole.nbytes) == (240 + 10, 2 * (20 + 30 + 24) + 40)
    assert (whole.sent, whole.name, together(parts).name) == (20, "all", "together")
    assert whole.network_intensity == 12.5
    assert whole.product
    assert together(parts[1:2]).network_intensity is None


def test_flops_on_no_bytes_are_refused():
    with pytest.raises(ValueError, match="flops is 3; it must be 0 where magic reads and writes"):
        Operation("magic", 3, 0, 0)
    assert Operation("nothing", 0, 0, 0).intensity == 0


def test_a_mixture_of_experts_is_refused_and_context_is_not_shorter_than_what_is_new():
    with pytest.raises(ValueError, match="Mixtral 8x7B'; it must be a dense transformer"):
        layer_operations(CATALOGUE["mixtral-8x7b"], 1)
    with pytest.raises(ValueError, match="context is 4; it must be a whole number of at least 8"):
        layer_operations(SMALL, 1, 8, 4)
    with pytest.raises(ValueError, match="groups is 2; it must divide 3 channels and 4 filters"):
        convolution(1, 3, 9, 4, 3, groups=2)
    with pytest.raises(ValueError, match="kernel is 12; it must be at most 11, the side with its"):
        convolution(1, 3, 9, 4, 12, padding=1)


def test_a_number_that_nobody_speaks_of_has_two_bytes():
    assert convolution(1, 3, 9, 4, 9).written == 2 * 4  # one place, two bytes
    assert (elementwise(10).flops, elementwise(10).read, elementwise(10).written) == (10, 20, 20)
    assert scores(4, 2).flops == 2 * 4 * 4 * 2
    assert (embedding(3, 5).read, embedding(3, 5).written) == (3 * (8 + 10), 30)
    assert output_side(9, 9) == 1
    assert output_side(9, 3) == 7


# -- FLOPs by convention: those of the same function written out ----------------------------------

G = torch.randn(40, 50, generator=torch.Generator().manual_seed(0)).double()
Y, WEIGHT = G.flip(0).clone(), torch.ones(50).double()


def written_softmax(x):
    e = (x - x.amax(-1, keepdim=True)).exp()
    return e / e.sum(-1, keepdim=True)


def written_softmax_backward(y, g):
    return y * (g - (y * g).sum(-1, keepdim=True))


def written_log_softmax_backward(y, g):
    return g - y.exp() * g.sum(-1, keepdim=True)


def written_gelu_backward(x, g):
    density = (x * x * -0.5).exp() * (2 * math.pi) ** -0.5
    return g * (((x * 0.5**0.5).erf() + 1) * 0.5 + x * density)


def written_norm_backward(x, mean, scale, weight, g):
    normal, gw = (x - mean) * scale, g * weight
    bias, weights = g.sum(0), (g * normal).sum(0)
    along = (gw * normal).sum(-1, keepdim=True) / 50
    return (gw - gw.sum(-1, keepdim=True) / 50 - normal * along) * scale, weights, bias


def forms():
    """torch's own operation, and the function written out."""
    y, log = Y.softmax(-1), Y.log_softmax(-1)
    _, mean, scale = torch.native_layer_norm(Y, (50,), WEIGHT, WEIGHT, 1e-5)
    ops = torch.ops.aten
    yield lambda: Y.softmax(-1), lambda: written_softmax(Y)
    yield lambda: F.gelu(Y), lambda: gelu(Y)
    yield (
        lambda: ops._softmax_backward_data(G, y, -1, y.dtype),
        lambda: written_softmax_backward(y, G),
    )
    yield (
        lambda: ops._log_softmax_backward_data(G, log, -1, y.dtype),
        lambda: written_log_softmax_backward(log, G),
    )
    yield lambda: ops.gelu_backward(G, Y), lambda: written_gelu_backward(Y, G)
    yield (
        lambda: ops.native_layer_norm_backward(
            G, Y, [50], mean, scale, WEIGHT, WEIGHT, [True, True, True]
        ),
        lambda: written_norm_backward(Y, mean, scale, WEIGHT, G),
    )


@pytest.mark.parametrize("number", range(6))
def test_a_function_has_the_flops_of_the_same_function_written_out(number):
    torchs, written = list(forms())[number]
    for a, b in zip(tree_leaves(torchs()), tree_leaves(written()), strict=True):
        assert torch.allclose(a, b)
    each = [count_operations(program).total.flops / G.numel() for program in (torchs, written)]
    # A row's own numbers, such as its mean, are a fiftieth of this, or two.
    assert each[0] == pytest.approx(each[1], abs=0.1)


def test_attention_over_more_keys_than_queries_costs_all_pairs():
    q, k = torch.ones(1, 2, 8, 4, requires_grad=True), torch.ones(1, 2, 16, 4, requires_grad=True)
    forward = count_operations(lambda: F.scaled_dot_product_attention(q, k, k)).product_flops
    assert forward == 2 * 2 * (2 * 8 * 16 * 4)
    out = F.scaled_dot_product_attention(q, k, k)
    backward = count_operations(lambda: out.sum().backward()).product_flops
    assert backward == 5 * 2 * (2 * 8 * 16 * 4)


def test_memory_that_is_only_asked_for_and_a_number_that_is_looked_at_are_nothing():
    x = ones(30)
    counted = count_operations(lambda: (torch.empty(30), x.new_empty(9), x[0].item()))
    assert counted.operations == ()


def test_chosen_rows_are_read_and_no_others():
    table, rows = ones(1000, 5), torch.tensor([1, 2])
    assert only(lambda: table.index_select(0, rows)).read == 2 * 8 + 2 * 20
    assert only(lambda: torch.zeros_like(table)).read == 0


def test_a_count_of_nothing_is_all_zeros():
    counted = count_operations(lambda: None)
    assert (counted.total.flops, counted.total.nbytes, counted.views) == (0, 0, 0)
