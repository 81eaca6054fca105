"""Context parallelism: ranks that share a sequence's tokens compute what one device does."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from dlsys import world
from dlsys.attention import flash_attention
from dlsys.context_parallel import (
    ContextParallel,
    Layout,
    LayoutError,
    attend,
    gathered_attention,
    layout,
    merge,
    ring_attention,
    ulysses_attention,
)
from dlsys.data_parallel import DataParallel
from dlsys.model import GPT
from dlsys.transformer import TransformerSpec

pytestmark = pytest.mark.usefixtures("one_thread")

METHODS = {"ring": ring_attention, "gathered": gathered_attention, "ulysses": ulysses_attention}
KINDS = ("contiguous", "zigzag", "striped")
PLAIN = TransformerSpec(layers=2, hidden=16, heads=4, vocab=33, sequence=13)
LLAMA = TransformerSpec(
    layers=2, hidden=16, heads=4, vocab=32, sequence=13, kv_heads=2, gated=True, ffn_hidden=24,
    tied=False,
)  # fmt: skip
SPECS = {
    "gpt": PLAIN,
    "llama": LLAMA,
    "multi-query with biases": dataclasses.replace(LLAMA, kv_heads=1, norm="layer", bias=True),
    "no biases, no positions": dataclasses.replace(PLAIN, bias=False, positions="none"),
}


def drawn(length, heads, kv_heads, size=4, batch=2):
    """q, k, v and the gradient of the result, in double precision."""
    stream = torch.Generator().manual_seed(length)
    shapes = [(batch, length, n, size) for n in (heads, kv_heads, kv_heads, heads)]
    return [torch.randn(s, generator=stream, dtype=torch.float64) for s in shapes]


def seen(length, documents):
    """(queries, keys): the same document, and no later key; from the words, not from a layout."""
    text = [sum(position >= first for first in documents) for position in range(length)]
    return torch.tensor(
        [[text[k] == text[q] and k <= q for k in range(length)] for q in range(length)]
    )


def plain(q, k, v, documents=(0,)):
    """torch's attention of the whole sequence."""
    mask = seen(q.shape[1], documents)
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    grouped = q.shape[1] != k.shape[1]
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=grouped)
    return out.transpose(1, 2)


def with_gradients(function, tensors, dout):
    leaves = [x.detach().requires_grad_() for x in tensors]
    out = function(*leaves)
    return [out.detach(), *torch.autograd.grad(out, leaves, dout)]


def on_ranks(method, shares, q, k, v, dout, run=world.simulate):
    """The result and the gradients of the whole sequence, put together from all ranks'."""

    def program(comm):
        at = shares.positions(comm.rank)
        mine = [x[:, at] for x in (q, k, v)]
        return with_gradients(lambda *x: method(comm, shares, *x), mine, dout[:, at])

    found = run(program, shares.ranks).results
    whole = [torch.empty_like(x) for x in (q, q, k, v)]
    for rank, parts in enumerate(found):
        for to, part in zip(whole, parts, strict=True):
            to[:, shares.positions(rank)] = part
    return whole


def differ(one, other):
    return max((a - b).abs().max().item() for a, b in zip(one, other, strict=True))


# -- equals one device ---------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", KINDS)
@given(
    ranks=st.integers(1, 4),
    length=st.integers(4, 17),
    heads=st.sampled_from([(12, 12), (12, 4), (12, 1), (24, 12)]),
    cuts=st.sets(st.integers(1, 16)),
)
@settings(max_examples=12, deadline=None)
def test_ranks_that_share_a_sequence_attend_as_one_device(method, kind, ranks, length, heads, cuts):
    if method == "ulysses" and heads[1] % ranks and ranks % heads[1]:
        ranks = 1
    documents = (0, *sorted(cut for cut in cuts if cut < length))
    q, k, v, dout = drawn(length, *heads)
    alone = with_gradients(lambda *x: plain(*x, documents), (q, k, v), dout)
    shares = layout(length, ranks, kind, documents)
    assert differ(on_ranks(METHODS[method], shares, q, k, v, dout), alone) < 1e-12


@pytest.mark.parametrize("method", METHODS)
def test_real_processes_attend_as_one_device(method):
    q, k, v, dout = drawn(13, 4, 2)
    alone = with_gradients(plain, (q, k, v), dout)
    shares = layout(13, 2)
    assert differ(on_ranks(METHODS[method], shares, q, k, v, dout, world.launch), alone) < 1e-12


@pytest.mark.parametrize("method", METHODS)
def test_gradients_are_those_of_small_steps(method):
    shares = layout(5, 2)
    q, k, v, _ = drawn(5, 2, 2, 2, 1)

    def whole(*tensors):
        """One device's view of two ranks, which autograd can differentiate and gradcheck nudge."""

        class OnRanks(torch.autograd.Function):
            @staticmethod
            def forward(ctx, *x):
                ctx.save_for_backward(*x)
                return on_ranks(METHODS[method], shares, *x, torch.zeros_like(x[0]))[0]

            @staticmethod
            def backward(ctx, dout):
                return tuple(on_ranks(METHODS[method], shares, *ctx.saved_tensors, dout)[1:])

        return OnRanks.apply(*tensors)

    assert torch.autograd.gradcheck(whole, [x.requires_grad_() for x in (q, k, v)])


@pytest.mark.parametrize("method", ["ring", "gathered"])
def test_what_a_rank_merges_is_rounded_to_16_bits_once(method):
    """Sixteen merges in BF16 would be an order of magnitude farther from double precision.

    A number that is rounded once is off by some 0.0017. Gradients of keys and values are rounded
    again on each rank that adds to them, because they travel in 16 bits.
    """
    exact = drawn(256, 2, 1, size=32, batch=1)
    rounded = [x.bfloat16() for x in exact]
    expected = with_gradients(plain, [x.double() for x in rounded[:3]], rounded[3].double())
    found = on_ranks(METHODS[method], layout(256, 16), *rounded)
    for one, whole, most in zip(found, expected, (0.003, 0.004, 0.01, 0.01), strict=True):
        assert (one.double() - whole).norm() / whole.norm() < most


def test_the_ring_attends_as_the_tiles_of_one_device():
    q, k, v, dout = drawn(16, 4, 4)

    def tiles(*x):
        q, k, v = (y.transpose(1, 2) for y in x)
        return flash_attention(q, k, v, is_causal=True).transpose(1, 2)

    alone = with_gradients(tiles, (q, k, v), dout)
    assert differ(on_ranks(ring_attention, layout(16, 4), q, k, v, dout), alone) < 1e-12


def test_parts_of_the_keys_merge_into_the_whole_in_any_grouping():
    q, k, v, _ = drawn(12, 4, 2)
    mask = seen(12, (0,))
    parts = [
        attend(q, k[:, keys], v[:, keys], mask[:, keys])
        for keys in (slice(0, 3), slice(3, 7), slice(7, 12))
    ]
    whole = attend(q, k, v, mask)
    for merged in (
        merge(merge(parts[0], parts[1]), parts[2]),
        merge(parts[2], merge(parts[1], parts[0])),
    ):
        assert differ(merged, whole) < 1e-12


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
@pytest.mark.parametrize(("method", "kind"), [*zip(METHODS, KINDS, strict=True)])
def test_a_gpt_trains_as_on_one_device(spec, method, kind):
    tokens, targets = torch.randint(
        spec.vocab, (2, 2, 13), generator=torch.Generator().manual_seed(0)
    )
    documents = (0, 4)

    def steps(model, *inputs):
        optimizer, losses = torch.optim.AdamW(model.parameters(), lr=0.01), []
        for _ in range(3):
            optimizer.zero_grad()
            loss = model(*inputs)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        gradients = {name: p.grad for name, p in model.named_parameters()}
        return torch.stack(losses), gradients, model.state_dict()

    def on_a_rank(comm):
        shared = ContextParallel(GPT(spec, dtype=torch.float64), comm, method, kind)
        losses, gradients, weights = steps(DataParallel(shared), tokens, targets, documents)
        return comm.all_reduce(losses, "mean"), gradients, weights

    alone = GPT(spec, dtype=torch.float64)
    for block in alone.layers:  # documents are a matter of the mask alone
        block.attention.core.forward = lambda q, k, v: plain(q, k, v, documents)
    losses, gradients, weights = steps(alone, tokens, targets)
    for found_losses, found_gradients, found_weights in world.simulate(on_a_rank, 4).results:
        assert torch.allclose(found_losses, losses, atol=1e-12)
        for name, gradient in gradients.items():
            found = found_gradients[f"module.module.{name}"]
            assert torch.allclose(found, gradient, atol=1e-12), name
        for name, weight in weights.items():
            found = found_weights[f"module.module.{name}"]
            assert torch.allclose(found, weight, atol=1e-9), name


def test_logits_are_those_of_a_ranks_own_tokens():
    tokens = torch.randint(33, (2, 13), generator=torch.Generator().manual_seed(0))
    alone = GPT(PLAIN)(tokens)
    shares = layout(13, 3)
    found = world.simulate(lambda comm: ContextParallel(GPT(PLAIN), comm)(tokens), 3).results
    for rank, logits in enumerate(found):
        assert torch.allclose(logits, alone[:, shares.positions(rank)], atol=1e-5)


# -- layouts -------------------------------------------------------------------------------------


def check_scores(shares, mask):
    """Any two ranks see as many scores as the mask has between their positions."""
    for mine in range(shares.ranks):
        for theirs in range(shares.ranks):
            pairs = mask[shares.positions(mine)][:, shares.positions(theirs)]
            assert shares.scores(mine, theirs) == int(pairs.sum())


@given(
    length=st.integers(1, 40),
    ranks=st.integers(1, 6),
    kind=st.sampled_from(KINDS),
    cuts=st.sets(st.integers(1, 39)),
)
@settings(max_examples=80, deadline=None)
def test_a_layout_counts_the_scores_that_its_ranks_see(length, ranks, kind, cuts):
    length = max(length, ranks)
    documents = (0, *sorted(cut for cut in cuts if cut < length))
    shares, mask = layout(length, ranks, kind, documents), seen(length, documents)
    shares.check()
    check_scores(shares, mask)
    sizes = [shares.tokens(rank) for rank in range(ranks)]
    assert sum(sizes) == shares.length == length
    assert max(sizes) - min(sizes) <= 1
    assert sum(shares.load()) == int(mask.sum())


@pytest.mark.parametrize("step", [1, 3])
def test_a_layout_by_hand_counts_stripes_that_begin_late_or_have_another_step(step):
    late = (range(2, 3, step), range(5, 12, 3))
    shares = Layout(((range(0, 12, 3),), (range(1, 12, 3),), late))
    shares.check()
    check_scores(shares, seen(12, (0,)))


@given(
    length=st.integers(1, 24),
    ranks=st.integers(1, 4),
    kind=st.sampled_from(["contiguous", "zigzag"]),
    cuts=st.sets(st.integers(1, 23)),
)
@settings(max_examples=60, deadline=None)
def test_chunks_of_which_no_score_is_seen_are_no_block(length, ranks, kind, cuts):
    length = max(length, ranks)
    documents = (0, *sorted(cut for cut in cuts if cut < length))
    shares, mask = layout(length, ranks, kind, documents), seen(length, documents)
    for mine in range(ranks):
        for theirs in range(ranks):
            blocks = {(queries, keys) for _, queries, _, keys in shares.blocks(mine, theirs)}
            pairs = {(q, k) for q in shares.chunks[mine] for k in shares.chunks[theirs]}
            assert blocks == {(q, k) for q, k in pairs if mask[list(q)][:, list(k)].any()}


def test_stripes_are_every_nth_token_and_zigzag_a_piece_from_either_end():
    assert layout(10, 3, "striped").positions(1) == [1, 4, 7]
    assert layout(12, 3).positions(1) == [2, 3, 8, 9]
    assert layout(12, 3, "contiguous").positions(1) == [4, 5, 6, 7]


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_zigzag_gives_every_rank_the_same_scores_in_every_round(ranks):
    shares = layout(8 * ranks, ranks)
    for back in range(ranks):
        assert len({shares.scores(r, (r - back) % ranks) for r in range(ranks)}) == 1
    assert shares.balance == 1


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_contiguous_pieces_leave_the_last_rank_almost_twice_the_mean(ranks):
    """(2n - 1) / n of it, as pieces of the triangle of scores are wide: its last strip."""
    share = layout(1000 * ranks, ranks, "contiguous").balance
    assert share == pytest.approx(ranks / (2 * ranks - 1), rel=1e-3)


@pytest.mark.parametrize(
    ("chunks", "documents", "words"),
    [
        (((range(0, 3),), (range(2, 5),)), (0,), "position 2 is on ranks 0 and 1"),
        (((range(0, 3),), (range(4, 6),)), (0,), "no rank has position 3 of 5 tokens"),
        (((range(0, 3), range(3, 3)), (range(3, 5),)), (0,), "rank 0 has chunks"),
        (((range(0, 3),), (range(3, 5),)), (1,), r"documents begin at \[1\]"),
        (((range(0, 3),), (range(3, 5),)), (0, 5), r"documents begin at \[0, 5\]"),
        (((range(0, 3),), (range(3, 5),)), (0, 2, 2), "each before the next"),
    ],
)
def test_a_wrong_layout_is_refused(chunks, documents, words):
    with pytest.raises(LayoutError, match=words):
        Layout(chunks, documents).check()


# -- refusals ------------------------------------------------------------------------------------


def test_fewer_tokens_than_ranks_are_refused():
    with pytest.raises(ValueError, match="length is 3; it must be at least 1 token for each of 4"):
        layout(3, 4)


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        (3, "4 heads do not divide by a Ulysses degree of 3; the nearest that work: 2 and 4"),
        (8, "4 heads do not divide by a Ulysses degree of 8; the nearest that work: 4"),
    ],
)
def test_heads_that_ulysses_cannot_share_out_are_refused(ranks, words):
    with pytest.raises(ValueError, match=words):
        world.simulate(lambda comm: ContextParallel(GPT(PLAIN), comm, "ulysses"), ranks)


def test_a_sequence_that_is_too_long_is_refused():
    with pytest.raises(ValueError, match="length is 1073741825; it must be at most 1,073,741,824"):
        layout(2**30 + 1, 2)


def test_dropout_is_refused():
    with pytest.raises(ValueError, match=r"The GPT has dropout 0.1; it must be 0"):
        world.simulate(lambda comm: ContextParallel(GPT(PLAIN, dropout=0.1), comm), 2)
