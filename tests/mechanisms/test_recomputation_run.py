"""Run again in backward: the numbers of the plain run to the bit, whatever is checkpointed."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.nn import functional as F
from torch.utils import checkpoint as theirs

from dlsys import world
from dlsys.model import GPT, Core
from dlsys.recomputation import (
    LINEAR,
    Checkpointed,
    Offload,
    Plan,
    RecomputationError,
    Recomputing,
    checkpoint,
    every,
    every_layer,
    first_layers,
    keep_all,
    keeping_results,
    measure,
    segments,
    selective,
)
from dlsys.recomputation.checkpoint_wrapper import run
from dlsys.transformer import TransformerSpec

SPEC = TransformerSpec(layers=5, hidden=16, heads=4, vocab=32, sequence=8)
ROTARY = TransformerSpec(
    layers=3,
    hidden=24,
    heads=4,
    vocab=30,
    sequence=8,
    kv_heads=2,
    gated=True,
    norm="rms",
    positions="rotary",
    tied=False,
    bias=False,
)
by_torch = partial(theirs.checkpoint, use_reentrant=False)
Checkpoint = Callable[..., Any]


def batch(spec: TransformerSpec = SPEC) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(1)
    words = torch.randint(spec.vocab, (2, spec.sequence + 1), generator=random)
    return words[:, :-1], words[:, 1:]


def step(model: nn.Module, spec: TransformerSpec = SPEC) -> tuple[list[Tensor], Tensor]:
    """Loss and gradients of a step from a fixed random state, and what is drawn after it."""
    torch.manual_seed(7)
    loss = model(*batch(spec))
    loss.backward()
    return [loss.detach(), *(p.grad for p in model.parameters())], torch.rand(2)


def same(ours: tuple[list[Tensor], Tensor], plain: tuple[list[Tensor], Tensor]) -> None:
    assert len(ours[0]) == len(plain[0])
    assert all(map(torch.equal, ours[0], plain[0]))
    assert torch.equal(ours[1], plain[1])


def values(*shape: int) -> Tensor:
    """Small whole numbers, which every order of summation adds up to the same bits."""
    return torch.arange(1.0, torch.Size(shape).numel() + 1).reshape(shape).requires_grad_()


# -- the same numbers ------------------------------------------------------------------------------


MIXED = first_layers(2, 1) + selective(1) + every(2, 2)


@pytest.mark.parametrize("spec", [SPEC, ROTARY], ids=["gpt2", "llama"])
@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_every_plan_gives_the_plain_steps_bits(spec, dropout):
    n = spec.layers
    plans = [keep_all(n), every_layer(n), every(n, 2), segments(n, 1), selective(n)]
    plans += [MIXED] if n == 5 else []
    plans += [segments(n + 2, 2), keep_all(1) + selective(n) + keep_all(1)]
    plain = step(GPT(spec, dropout), spec)
    for plan in plans:
        same(step(Recomputing(GPT(spec, dropout), plan), spec), plain)


def test_modules_under_a_plan_stay_as_they_were():
    model = GPT(SPEC, dropout=0.1)
    before = [*model.named_modules()]
    step(Recomputing(model, MIXED))
    assert [*model.named_modules()] == before
    assert all("forward" not in vars(module) for module in model.modules())


def test_a_plan_runs_any_modules_with_what_they_share():
    layers = [nn.Bilinear(3, 3, 3) for _ in range(4)]
    x, other = values(2, 3), values(2, 3)
    results = []
    for plan in (keep_all(4), segments(4, 2), every(4, 3)):
        y = plan.run(layers, x, other)
        results.append(torch.autograd.grad(y.square().sum(), [x, other, layers[0].weight]))
    assert all(map(torch.equal, results[0], results[1]))
    assert all(map(torch.equal, results[0], results[2]))
    assert keep_all(1).run([nn.Identity()], x) is x


# -- the same as torch's own -----------------------------------------------------------------------


def wrapped(wrap: Callable[[nn.Module], nn.Module], what: str = "layers") -> GPT:
    model = GPT(SPEC, dropout=0.1)
    for number, layer in enumerate(model.layers):
        if what == "layers":
            model.layers[number] = wrap(layer)
        else:
            layer.attention.core = wrap(layer.attention.core)
    return model


class ByTorch(Checkpointed):
    def forward(self, *args: Any) -> Any:
        return by_torch(self.module, *args)


@pytest.mark.parametrize("what", ["layers", "cores"])
@pytest.mark.parametrize("other", [ByTorch, checkpoint_wrapper])
def test_a_checkpoint_holds_runs_and_computes_what_torchs_does(what, other):
    found = []
    for wrap in (Checkpointed, other):
        model = wrapped(wrap, what)
        results: list[Any] = []
        measured = measure(lambda model=model, results=results: results.append(step(model)))
        runs = [measured.forwards[m] for m in model.modules() if isinstance(m, Core)]
        kept = measured.kept_bytes, measured.peak_bytes, measured.left_bytes
        found.append((results[0], kept, measured.recomputed_flops, runs))
    same(found[0][0], found[1][0])
    assert found[0][1:] == found[1][1:]
    assert found[0][3] == [2] * 5


def function_of(x: Tensor, w: Tensor) -> Tensor:
    return (F.gelu(x @ w) @ w).softmax(-1) @ w


def test_keeping_results_runs_again_what_torchs_policy_does():
    x, w = torch.randn(6, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)
    context = partial(theirs.create_selective_checkpoint_contexts, [torch.ops.aten.mm.default])
    ours, yours = keeping_results(LINEAR), partial(by_torch, context_fn=context)
    found = []
    for each in (lambda f, *args: f(*args), checkpoint, by_torch, ours, yours):
        results: list[Any] = []

        def backward(each=each, results=results):
            y = each(function_of, x, w)
            results.extend(torch.autograd.grad(y.sum(), [x, w]))

        measured = measure(backward)
        found.append((results, measured.recomputed_flops))
    (plain, none), *others = found
    assert all(
        torch.equal(a, b) for results, _ in others for a, b in zip(results, plain, strict=True)
    )
    mm = 2 * 6 * 4 * 4
    # The last product's result is no one's to save, so early stop leaves it out.
    assert [none, *(flops for _, flops in others)] == [0, 2 * mm, 2 * mm, 0, 0]


# -- random and autocast state ---------------------------------------------------------------------


def test_a_ranks_random_state_is_its_own_where_others_draw_between():
    def program(comm, each):
        torch.manual_seed(comm.rank)
        x = torch.ones(4, requires_grad=True)

        def drawn(x):
            first = F.dropout(x.exp(), 0.5)
            comm.barrier()  # here another rank goes on, and draws
            return first * comm.all_reduce(torch.rand(4)) * F.dropout(x.exp(), 0.5)

        y = each(drawn, x)
        comm.barrier()
        (gradient,) = torch.autograd.grad(y.sum(), x)
        return gradient, torch.rand(2)

    ours, plain = (
        world.simulate(program, 3, args=(each,)).results for each in (checkpoint, lambda f, x: f(x))
    )
    for mine, other in zip(ours, plain, strict=True):
        assert all(map(torch.equal, mine, other))


@pytest.mark.parametrize("inside", [True, False])
def test_autocast_is_what_it_was_in_forward(inside):
    linear, x = nn.Linear(4, 4), torch.randn(3, 4, requires_grad=True)
    seen: list[torch.dtype] = []

    def function(x):
        y = linear(x)
        seen.append(y.dtype)
        return y.float().exp()

    forward = torch.autocast("cpu", torch.bfloat16) if inside else nullcontext()
    backward = nullcontext() if inside else torch.autocast("cpu", torch.bfloat16)
    with forward:
        y, plain = checkpoint(function, x).sum(), function(x).sum()
    with backward:
        y.backward()
        (gradient,) = torch.autograd.grad(plain, x)
    assert seen == [torch.bfloat16 if inside else torch.float32] * 3
    assert torch.equal(x.grad, gradient)
    assert not torch.is_autocast_enabled("cpu")


# -- whatever goes in and comes out ----------------------------------------------------------------


def test_arguments_of_every_kind_come_through_twice():
    x, y, z = values(3), values(3), values(3).detach()
    seen = []

    def function(first, pair, *, table, scale, nothing=None):
        seen.append((scale, nothing, type(pair)))
        out = first * pair[0].exp() * table["deep"][0][1] * scale
        return {"sum": out.sum(), "both": (out, "text", None)}, 3

    def call(each):
        return each(function, x, (y, 1), table={"deep": [[0, z]]}, scale=2)

    (result, three), (plain, _) = call(checkpoint), call(lambda f, *a, **k: f(*a, **k))
    assert three == 3
    assert result["both"][1:] == ("text", None)
    for one in ("sum", "both"):
        a, b = (r[one] if one == "sum" else r[one][0].square().sum() for r in (result, plain))
        grads = (torch.autograd.grad(s, [x, y], retain_graph=True) for s in (a, b))
        assert all(map(torch.equal, *grads))
    assert set(seen) == {(2, None, tuple)}
    assert not z.requires_grad


def test_parameters_get_gradients_where_no_argument_asks_for_one():
    tokens, table = torch.tensor([0, 1, 1]), nn.Embedding(2, 4)
    checkpoint(lambda tokens: table(tokens).square(), tokens).sum().backward()
    assert torch.equal(table.weight.grad, 2 * table.weight * torch.tensor([[1.0], [2.0]]))


def test_views_detached_tensors_and_arguments_given_back_are_as_without():
    x = values(4, 3)

    def function(view, still):
        return view, view.exp() * still, still, view.t()[0]

    def grads(each):
        view, product, still, row = each(function, x[1:, :2], x.detach()[1:, :2] * 2)
        assert not still.requires_grad
        return torch.autograd.grad(product.sum() + view.sum() + (row**2).sum(), x)[0]

    assert torch.equal(grads(checkpoint), grads(lambda f, *a: f(*a)))


def test_nested_checkpoints_give_the_plain_gradients_and_torchs_number_of_runs():
    layers = [nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(4)]
    x = torch.randn(2, 4, requires_grad=True)

    def nest(each, inside, x):
        if len(inside) == 1:
            return each(inside[0], x)
        half = len(inside) // 2
        first, second = (partial(nest, each, part) for part in (inside[:half], inside[half:]))
        return each(second, each(first, x))

    found = []
    for each in (lambda f, x: f(x), checkpoint, by_torch):
        results: list[Any] = []

        def backward(each=each, results=results):
            results.extend(
                torch.autograd.grad(nest(each, layers, x).sum(), [x, layers[0][0].weight])
            )

        measured = measure(backward)
        runs = [measured.forwards[layer] for layer in layers]
        found.append((results, runs, measured.recomputed_flops, measured.peak_bytes))
    assert all(torch.equal(a, b) for f in found[1:] for a, b in zip(f[0], found[0][0], strict=True))
    assert found[1][1:] == found[2][1:]
    assert found[0][1] == [1] * 4
    assert max(found[1][1]) > 2


def test_a_function_that_differentiates_within_itself_is_as_without():
    x = values(3) / 4

    def function(x):
        y = x.sin().exp()
        (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        return slope * y

    ours, plain = (
        torch.autograd.grad(e(function, x).sum(), x) for e in (checkpoint, lambda f, x: f(x))
    )
    assert torch.equal(ours[0], plain[0])


# -- backward in every form ------------------------------------------------------------------------


def test_second_derivatives_and_gradients_of_some_inputs():
    x, y = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)

    def function(x, y):
        return (x.sin() * y.exp()).tanh()

    def second(each):
        out = each(function, x, y).sum()
        (first,) = torch.autograd.grad(out, x, create_graph=True)
        return torch.autograd.grad(first.square().sum(), [x, y])

    assert all(map(torch.equal, second(checkpoint), second(lambda f, *a: f(*a))))


def test_backward_twice_through_a_graph_that_is_kept():
    model = Recomputing(GPT(SPEC, dropout=0.1), segments(5, 2))
    loss = model(*batch())
    parameters = [*model.parameters()]
    first = torch.autograd.grad(loss, parameters, retain_graph=True)
    second = torch.autograd.grad(loss, parameters)
    assert all(map(torch.equal, first, second))
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        torch.autograd.grad(loss, parameters)


def test_what_a_backward_did_not_ask_for_is_let_go_at_its_end():
    x, w = torch.randn(64, requires_grad=True), torch.randn(64, requires_grad=True)
    graph = []

    def some():
        graph.append(checkpoint(lambda x, w: (x.exp() * w.exp()).sin(), x, w).sum())
        torch.autograd.grad(graph[0], x, retain_graph=True)

    measured = measure(some)
    # The arguments, though the graph is still there, and w's gradient was never asked for.
    assert measured.left_bytes == x.nbytes + w.nbytes
    assert torch.equal(
        torch.autograd.grad(graph[0], w)[0], (x.exp() * w.exp()).cos() * x.exp() * w.exp()
    )


def test_saved_tensors_are_to_be_looked_at_outside_of_backward():
    x = values(3)
    y = checkpoint(torch.exp, x)
    assert torch.equal(y.grad_fn._saved_result, x.exp())
    assert torch.equal(y.grad_fn._saved_result, x.exp())


# -- early stop ------------------------------------------------------------------------------------


def test_the_second_run_ends_with_the_last_tensor_that_backward_needs():
    last = nn.Linear(4, 4)
    reached = []

    def function(x):
        y = last(x.exp())
        reached.append("linear")
        y = y + 1
        reached.append("end")
        return y

    x = torch.randn(2, 4, requires_grad=True)
    checkpoint(function, x).sum().backward()
    # The product saves what it reads, and nothing after it saves.
    assert reached == ["linear", "end"]


def test_a_function_that_stops_every_exception_gets_the_same_gradients():
    caught = []

    def function(x):
        try:
            return x.exp() + 1
        except Exception as error:
            caught.append(error)
            return (x.sin() * x.cos()).tanh().exp()  # saves more than there was

    x = values(3)
    checkpoint(function, x).sum().backward()
    assert torch.equal(x.grad, x.detach().exp())
    assert len(caught) == 1


def test_the_end_of_a_second_run_leaves_out_no_hook_that_is_to_run_always():
    linear, ended = nn.Linear(3, 3), []
    linear.register_forward_hook(lambda *_: ended.append(1), always_call=True)
    checkpoint(linear, values(2, 3)).sum().backward()
    assert ended == [1, 1]


def test_what_no_output_needs_is_not_held_in_backward():
    x = torch.randn(100, requires_grad=True)

    def function(x):
        x.exp().sin().sum()  # for nobody
        return x.tanh()

    measured = measure(lambda: checkpoint(function, x).sum().backward())
    rebuilt = [i.nbytes for i in measured.curve if i.action == "rebuild"]
    assert rebuilt[-1] <= 2 * 400


# -- where it is told ------------------------------------------------------------------------------


def test_a_second_run_of_another_shape_is_told_by_number_and_shapes():
    sizes = iter([3, 4])

    def function(x):
        return (x.sin() * torch.ones(2, next(sizes), 1)).exp()

    y = checkpoint(function, values(1))
    said = r"Tensor 1 that .*function saves was of shape \(2, 3, 1\) and torch.float32 on cpu in "
    with pytest.raises(RecomputationError, match=said + r"forward, and is of shape \(2, 4, 1\)"):
        y.sum().backward()


def test_a_second_run_that_saves_less_is_told_by_both_numbers():
    times = iter([3, 1])

    def function(x):
        for _ in range(next(times)):
            x = x.exp()
        return x

    y = checkpoint(function, values(2))
    with pytest.raises(RecomputationError, match="saved 3 tensors in forward, and 1 when it ran"):
        y.sum().backward()


def test_an_argument_changed_in_place_is_told():
    for change in ("after", "within"):
        x = values(3) * 1

        def function(x, change=change):
            y = x.exp() * x
            if change == "within":
                x.add_(1)
            return y

        y = checkpoint(function, x)
        if change == "after":
            x.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


def test_a_parameter_stepped_before_backward_is_told():
    linear = nn.Linear(3, 3)
    y = checkpoint(linear, values(2, 3)).square()
    with torch.no_grad():
        linear.weight.mul_(2)
    with pytest.raises(
        RecomputationError, match=r"parameter, of shape .* changed in place between"
    ):
        y.sum().backward()


def test_a_result_changed_in_place_after_it_was_saved_is_told():
    def function(x):
        y = x.exp()
        z = y.sin()
        y.add_(1)
        return z

    with pytest.raises(RecomputationError, match="changed in place by the function later"):
        checkpoint(lambda x: function(x) * x, values(3)).sum().backward()


def test_an_error_in_the_second_run_leaves_nothing_half_done():
    fails = [False, True, False]

    def function(x):
        y = F.dropout(x.exp(), 0.5)
        if fails.pop(0):
            raise KeyError("in the middle")
        return y.exp()

    x = torch.ones(8, requires_grad=True)
    y = checkpoint(function, x)
    before = torch.get_rng_state()
    with pytest.raises(KeyError, match="in the middle"):
        torch.autograd.grad(y.sum(), x, retain_graph=True)
    assert torch.equal(torch.get_rng_state(), before)
    kept = x.exp()  # saves as always: no hooks are left
    assert torch.equal(kept.grad_fn._saved_result, kept)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    mask = y.detach().log() / torch.e
    assert torch.allclose(gradient, y.detach() * mask * torch.e)


def test_without_gradients_it_is_a_plain_call_that_holds_nothing():
    x = torch.ones(3)
    for off in (torch.no_grad, torch.inference_mode):
        with off():
            assert checkpoint(lambda y: y, x) is x
            assert keeping_results(LINEAR)(lambda y: y, x) is x
    model = Recomputing(GPT(SPEC, dropout=0.1).eval(), every_layer(5))
    with torch.no_grad():
        measured = measure(lambda: model(*batch()))
    assert not measured.curve
    assert set(measured.forwards.values()) == {1}


def test_a_graph_that_is_dropped_drops_the_arguments_without_a_search_for_garbage():
    gc.disable()
    try:
        for backward in (False, True):
            x = values(3) * 1
            gone = weakref.ref(x)
            y = checkpoint(lambda x: x.exp().sin(), x).sum()
            del x
            assert gone() is not None
            if backward:
                y.backward()
            else:
                del y
            assert gone() is None
    finally:
        gc.enable()


def test_what_is_no_function_and_what_is_no_plan_are_told():
    with pytest.raises(ValueError, match="function is 3; it must be a function"):
        checkpoint(3)
    with pytest.raises(ValueError, match="keep is 'mm'; it must be operations"):
        keeping_results("mm")
    with pytest.raises(ValueError, match="plan is of 3 layers, and there are 2 modules"):
        run(keep_all(3), [nn.Identity()] * 2, values(1))
    with pytest.raises(ValueError, match=r"Layer 0 is Identity\(\); it must be a module with one"):
        run(selective(1), [nn.Identity()], values(1))
    with pytest.raises(ValueError, match="of the model's 5, or of 7 with its embedding"):
        Recomputing(GPT(SPEC), keep_all(6))
    with pytest.raises(ValueError, match="Layer 1 is in no segment"):
        run(Plan(2, ((0, 1, "keep"),)), [nn.Identity()] * 2, values(1))


# -- results that stay -----------------------------------------------------------------------------


def test_results_that_stay_are_saved_and_counted():
    x, w = torch.randn(6, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)
    gc.disable()  # what is freed is freed at once
    kept = []
    for keep in ((), LINEAR, lambda operation, *args: operation is torch.ops.aten.gelu.default):
        measured = measure(
            lambda keep=keep: keeping_results(keep)(function_of, x, w).sum().backward()
        )
        kept.append(measured.kept_bytes)
        assert measured.left_bytes == x.nbytes + w.nbytes
    gc.enable()
    size = x.nbytes
    # Three products: x and w; and their results, the last of which is the result itself.
    assert kept == [size + w.nbytes, 4 * size + w.nbytes, 2 * size + w.nbytes]


def test_a_result_that_stays_and_is_changed_is_told():
    def within(x):
        return (x @ x).add_(1).exp()

    with pytest.raises(
        RecomputationError, match=r"aten.mm.default, which is to be kept, is changed"
    ):
        keeping_results(LINEAR)(within, values(2, 2))
    x = values(2, 2)
    y = keeping_results(LINEAR)(lambda x: ((z := x @ x), z.sin()), x)
    y[0].add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y[1].sum().backward()


def test_other_operations_the_second_time_are_told():
    first = [True, False]

    def function(x):
        return (x @ x if first.pop(0) else x * x).exp()

    y = keeping_results(LINEAR)(function, values(2, 2))
    with pytest.raises(
        RecomputationError, match=r"was aten.mm.default in forward, and is aten.mul"
    ):
        y.sum().backward()


# -- offload ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("plan", [keep_all(5), every(5, 2)], ids=["all", "inputs"])
def test_offload_moves_what_is_kept_once_and_brings_back_what_is_needed(plan, prefetch):
    plain = measure(lambda: step(Recomputing(GPT(SPEC, dropout=0.1), plan)))
    model = Recomputing(GPT(SPEC, dropout=0.1), plan)
    offload = Offload(prefetch=prefetch)
    tokens, targets = batch()

    def moved():
        torch.manual_seed(7)
        with offload:
            loss = model(tokens, targets)
        assert offload.host_bytes == offload.moved_bytes
        loss.backward()

    measured = measure(moved)
    assert all(
        map(torch.equal, step(GPT(SPEC, dropout=0.1))[0][1:], (p.grad for p in model.parameters()))
    )
    # Token ids, positions and targets move, too, and the measure leaves them out.
    ids = tokens.untyped_storage().nbytes() + tokens[0].nbytes + targets.numel() * 8
    assert offload.moved_bytes == plain.kept_bytes + ids
    assert offload.peak_host_bytes == offload.moved_bytes == offload.returned_bytes
    assert offload.host_bytes == 0
    assert measured.peak_bytes < plain.peak_bytes
    assert measured.left_bytes == 0


def test_offload_leaves_parameters_and_small_tensors_and_keeps_what_was_saved():
    linear, x = nn.Linear(4, 4), torch.randn(8, 4, requires_grad=True)
    with Offload() as offload:
        y = linear(x * 1).exp()
    assert offload.moved_bytes == 2 * x.nbytes
    with Offload(least_bytes=129) as none:
        linear(x * 1).exp()
    assert none.moved_bytes == 0
    with Offload() as twice:
        z = x * 1
        first = z.exp() * z
        with torch.no_grad():
            z.add_(1)
        second = z.sin()
    # Another version is another tensor: each comes back as it was saved.
    assert torch.autograd.grad(first.sum() + 0 * second.sum(), x)[0].isfinite().all()
    assert twice.moved_bytes == 3 * x.nbytes
    for wrong in (-1, 1.5, True, None):
        with pytest.raises(ValueError, match="prefetch is"):
            Offload(prefetch=wrong)
    assert y.requires_grad


def test_offload_brings_back_ahead_what_backward_needs_next():
    for prefetch in (0, 1, 2):
        with Offload(prefetch=prefetch) as offload:
            x = torch.randn(8, requires_grad=True)
            first = (x * 1).sin()
            last = (first * 1).sin().cos().cos()
        torch.autograd.grad(last.sum(), first, retain_graph=True)
        # sin, cos and cos saved what they read; the first sine's is needed for x alone.
        assert offload.returned_bytes == 3 * x.nbytes + (prefetch > 0) * x.nbytes
        assert offload.moved_bytes == 4 * x.nbytes


def test_offload_brings_parts_of_a_storage_back_to_their_place():
    x = torch.arange(12.0).reshape(4, 3).requires_grad_()

    def gradient(hooks):
        with hooks:
            z = x * 1
            y = z[1:].sin().sum() + z.t()[1].cos().sum()
        return torch.autograd.grad(y, x)[0]

    offload = Offload()
    assert torch.equal(gradient(offload), gradient(nullcontext()))
    assert offload.moved_bytes == x.nbytes
