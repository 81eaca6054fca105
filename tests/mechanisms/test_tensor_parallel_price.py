"""The plan, the price and the pictures of tensor parallelism, against what runs."""

import dataclasses
import functools
import subprocess
import sys
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.colors import to_hex
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn.functional import cross_entropy

from dlsys import memory_wall, world
from dlsys.collectives import hierarchical_all_reduce, ring_all_reduce
from dlsys.hardware import Link, dgx_h100
from dlsys.model import GPT
from dlsys.tensor_parallel import (
    Collective,
    LayoutError,
    Price,
    TensorParallelGPT,
    activation_bytes,
    all_reduce_bytes,
    draw_activations,
    draw_share,
    layout,
    step_bytes,
)
from dlsys.tensor_parallel.draw import SIDE, STEP, STREAM
from dlsys.tensor_parallel.linear import part
from dlsys.transformer import CATALOGUE, TransformerSpec

GPT3, LLAMA = CATALOGUE["gpt3-175b"], CATALOGUE["llama3-70b"]
LINK = Link("plain", 1e-6, 1e9)
TINY = TransformerSpec(2, 16, 4, 32, 8)
# What GPT-2 does not have: grouped queries, a gated FFN, an untied head, and a vocabulary and a
# head size that nothing divides.
TINY_LLAMA = TransformerSpec(2, 16, 4, 33, 8, 24, 2, gated=True, tied=False, head_size=6)

# --- the plan -------------------------------------------------------------------------------------


# A layer norm without biases, and biases without a layer norm.
BARE = dataclasses.replace(TINY, bias=False)
BIASED = dataclasses.replace(TINY_LLAMA, bias=True)


@pytest.mark.parametrize(
    "spec",
    [TINY, TINY_LLAMA, BARE, BIASED, GPT3, LLAMA],
    ids=["tiny", "tiny llama", "bare", "biased", "gpt3", "llama3"],
)
def test_the_plan_names_every_parameter_of_the_model_with_its_shape_and_no_other(spec):
    model = GPT(dataclasses.replace(spec, layers=2), device="meta")
    plan = layout(model.spec, 2)
    shapes = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    assert {name: plan[name].shape for name in shapes} == shapes
    assert sum(plan.times(p) for p in plan.parameters) == len(shapes)
    with pytest.raises(
        KeyError,
        match=r"There is no parameter 'layers\.0\.norm3\.weight'; did you mean 'layers\.\*\.norm2",
    ):
        plan["layers.0.norm3.weight"]


@settings(max_examples=50, deadline=None)
@given(
    kv=st.sampled_from([1, 2, 3, 4, 6]),
    group=st.integers(1, 4),
    size=st.integers(1, 4),
    vocab=st.integers(13, 40),
    t=st.integers(1, 12),
    sequence_parallel=st.booleans(),
    gated=st.booleans(),
    tied=st.booleans(),
)
def test_whatever_can_be_laid_out_is_right_and_its_pieces_make_up_the_whole(
    kv, group, size, vocab, t, sequence_parallel, gated, tied
):
    heads = kv * group
    spec = TransformerSpec(
        2, 4 * heads, heads, vocab, 24, 24, kv, gated, tied, head_size=size, bias=not gated
    )
    works = not heads % t and not 24 % t and (not kv % t or not t % kv)
    if not works:
        with pytest.raises(ValueError, match="do not divide by a tensor-parallel degree of"):
            layout(spec, t, sequence_parallel)
        return
    plan = layout(spec, t, sequence_parallel)
    plan.check()
    for p in plan.parameters:
        bounds = sorted({p.bounds(rank) for rank in range(t)})
        edges = [0 if p.dimension is None else p.shape[p.dimension], *(stop for _, stop in bounds)]
        assert len(bounds) == p.pieces
        assert [first for first, _ in bounds] == [0, *edges[1:-1]]
        assert p.dimension is None or edges[-1] == edges[0]
        assert p.shard(t - 1)[p.dimension or 0] == (bounds[-1][1] - bounds[-1][0] if p.dimension is not None else p.shape[0])  # fmt: skip


@pytest.mark.parametrize(
    ("spec", "t"),
    [
        (LLAMA, 16),  # each key-value head is on two ranks
        (BIASED, 4),
        (dataclasses.replace(TINY, ffn_hidden=4), 4),  # a rank has one neuron
        (TINY, 1),
    ],
    ids=["shared heads", "shared heads with biases", "one neuron", "one rank"],
)
@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_a_layout_at_the_edge_is_right(spec, t, sequence_parallel):
    layout(spec, t, sequence_parallel).check()


def refusal(plan):
    """The sentence with which a wrong layout is refused."""
    with pytest.raises(LayoutError) as caught:
        plan.check()
    return str(caught.value)


@pytest.mark.parametrize(
    ("parameter", "fields", "sentence"),
    [
        (
            "layers.*.ffn.down.weight",
            {"dimension": 0},
            "forward, ffn: a rank has some features of all tokens, but layers.*.ffn.down.weight "
            "(column-parallel) takes all of the tensor: gather the features first, or cut it by rows.",
        ),
        (
            "layers.*.ffn.up.weight",
            {"dimension": 1},
            "forward, ffn: a rank has all of the tensor, but layers.*.ffn.up.weight (row-parallel) "
            "takes some features of all tokens: cut by columns the matrix before it.",
        ),
        (
            "layers.*.ffn.up.weight",
            {"dimension": None, "pieces": 1},
            "forward, ffn: a rank has all of the tensor, but layers.*.ffn.down.weight (row-parallel) "
            "takes some features of all tokens: cut by columns the matrix before it.",
        ),
        (
            "layers.*.attention.output.weight",
            {"dimension": None, "pieces": 1},
            "forward, attention: a rank has some features of all tokens, but "
            "layers.*.attention.output.weight (copied) takes all of the tensor or all features of "
            "some tokens: gather the features first, or cut it by rows.",
        ),
        (
            "layers.*.attention.key.weight",
            {"pieces": 4},
            "rank 0 holds layers.*.attention.output.weight 0 to 512, which reads "
            "layers.*.attention.key.weight 0 to 128, but holds 0 to 256 of that.",
        ),
        (
            "layers.*.attention.query.weight",
            {"pieces": 8},
            "rank 0 holds layers.*.attention.output.weight 0 to 512, which reads "
            "layers.*.attention.query.weight 0 to 512, but holds 0 to 1024 of that.",
        ),
        (
            "layers.*.attention.key.weight",
            {"pieces": 32},
            "layers.*.attention.key.weight: the pieces that 16 ranks hold have 4,194,304 numbers, "
            "and the whole has 8,388,608.",
        ),
        (
            "layers.*.norm2.weight",
            {"name": "norm.weight"},
            "norm.weight is in the layout 2 times.",
        ),
        (
            "embedding.weight",
            {"dimension": 1},
            "forward, embedding: a rank has some features of all tokens, but embedding.weight "
            "(column-parallel) takes all of the tensor: gather the features first, or cut it by rows.",
        ),
        (
            "layers.*.attention.key.weight",
            {"summed": 1},
            "layers.*.attention.key.weight: 2 ranks find parts of its gradient, but 1 are summed.",
        ),
        (
            "norm.weight",
            {"shape": (3,)},
            "The layout covers 70,553,698,307 of the model's 70,553,706,496 parameters.",
        ),
    ],
)
def test_a_wrong_cut_is_found_with_what_would_be_right(parameter, fields, sentence):
    assert refusal(layout(LLAMA, 16).recut(parameter, **fields)) == sentence


@pytest.mark.parametrize(
    ("parameter", "fields", "sentence"),
    [
        (
            "layers.*.ffn.up.bias",
            {"dimension": None, "pieces": 1},
            "layers.*.ffn.up.bias is a copy on every rank, but each rank needs all rows that "
            "layers.*.ffn.up.weight has.",
        ),
        (
            "layers.*.ffn.down.bias",
            {"dimension": 0, "pieces": 8},
            "layers.*.ffn.down.bias is cut in dimension 0 into 8 pieces, but each rank needs all "
            "numbers: copy it.",
        ),
        (
            "norm.weight",
            {"dimension": 0, "pieces": 8},
            "norm.weight is cut in dimension 0 into 8 pieces, but each rank needs all numbers: "
            "copy it.",
        ),
        (
            "norm.weight",
            {"summed": 1},
            "norm.weight: 8 ranks find parts of its gradient, but 1 are summed.",
        ),
    ],
)
def test_a_wrong_bias_or_norm_is_found_too(parameter, fields, sentence):
    assert refusal(layout(GPT3, 8, True).recut(parameter, **fields)) == sentence


@pytest.mark.parametrize(
    ("sequence_parallel", "left", "sentence"),
    [
        (
            False,
            {"forward": 1},
            "forward, ffn: at its end a rank has one addend of a sum, where it must have all of the "
            "tensor.",
        ),
        (
            False,
            {"backward": 1},
            "backward, attention: at its end a rank has one addend of a sum, where it must have all "
            "of the tensor.",
        ),
        (
            True,
            {"forward": 0},
            "forward, attention: a rank has all features of some tokens, but "
            "layers.*.attention.query.weight (column-parallel) takes all of the tensor: gather the "
            "tokens first.",
        ),
        (
            True,
            {"backward": 3},
            "backward, attention: a rank has all features of some tokens, but "
            "layers.*.attention.output.weight transposed (column-parallel) takes all of the tensor: "
            "gather the tokens first.",
        ),
    ],
)
def test_a_collective_left_out_is_missed_by_two_ranks_and_more(sequence_parallel, left, sentence):
    plan = layout(GPT3, 2, sequence_parallel)
    ((pass_, number),) = left.items()
    layer = plan.layer._replace(**{pass_: getattr(plan.layer, pass_)[:number]})
    assert refusal(dataclasses.replace(plan, layer=layer)) == sentence


def test_a_sequence_parallel_model_with_tensor_parallel_collectives_is_refused():
    assert refusal(dataclasses.replace(layout(GPT3, 8), sequence_parallel=True)) == (
        "forward, embedding: at its end a rank has all of the tensor, where it must have all "
        "features of some tokens."
    )


def test_one_reduction_for_each_branch_and_pass():
    plan = layout(GPT3, 8)
    assert [(c.kind, c.where) for c in plan.layer.forward] == [
        ("all_reduce", "attention.output"),
        ("all_reduce", "ffn.output"),
    ]
    assert [(c.kind, c.where) for c in plan.layer.backward] == [
        ("all_reduce", "ffn.input"),
        ("all_reduce", "attention.input"),
    ]
    assert not list(layout(GPT3, 1).collectives())


def test_the_collectives_of_a_step_with_shared_heads_are_these_in_this_order():
    plan = layout(dataclasses.replace(BIASED, layers=1, positions="learned"), 4, True)

    def stream(kind, where):
        return Collective(kind, where, "b·s·h", 8 * 16)

    def gradients(numbers, ranks):  # FP32 is not asked for: they are as wide as the activations
        return Collective("all_reduce", "gradients", "copies", numbers, 1, False, ranks)

    assert [repr(c) for c in plan.collectives()] == [
        repr(c)
        for c in (
            stream("reduce_scatter", "embedding.output"),
            stream("all_gather", "attention.input"),
            stream("reduce_scatter", "attention.output"),
            stream("all_gather", "ffn.input"),
            stream("reduce_scatter", "ffn.output"),
            stream("all_gather", "head.input"),
            *[Collective("all_reduce", "loss", "b·s", 8, 4)] * 3,
            stream("all_gather", "head.input again"),
            stream("reduce_scatter", "head.input"),
            gradients(16, 4),  # of the last norm
            stream("all_gather", "ffn.output"),
            stream("all_gather", "ffn.input again"),
            stream("reduce_scatter", "ffn.input"),
            stream("all_gather", "attention.output"),
            stream("all_gather", "attention.input again"),
            stream("reduce_scatter", "attention.input"),
            gradients(4 * 16, 4),  # of two norms, and of the biases of `output` and `down`
            gradients(2 * 6 * (16 + 1), 2),  # of a head's rows and biases in `key` and `value`
            gradients(8 * 16, 4),  # of the positions
            stream("all_gather", "embedding.output"),
        )
    ]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: layout(GPT3, 7), "96 heads .* degree of 7; the nearest that work: 6 and 8"),
        (lambda: layout(TINY, 0), "tensor-parallel degree is 0"),
        (lambda: layout(dataclasses.replace(TINY, sequence=6), 4, True), "6 tokens of a sequence"),
        (
            lambda: layout(dataclasses.replace(TINY, ffn_hidden=6), 4),
            "6 FFN neurons do not divide by a tensor-parallel degree of 4",
        ),
        (
            lambda: layout(TransformerSpec(2, 96, 24, 32, 24, kv_heads=8, ffn_hidden=48), 6),
            "^8 key-value heads .* degree of 6; the nearest that work: 4 and 8",
        ),
        (
            lambda: layout(CATALOGUE["mixtral-8x7b"], 2),
            "^Mixtral 8x7B has moe; GPT has no such part",
        ),
        (
            lambda: layout(dataclasses.replace(CATALOGUE["mixtral-8x7b"], positions="relative"), 2),
            "^Mixtral 8x7B has moe, relative positions; GPT has no such part",
        ),
        (lambda: layout(TINY, 2)["norm.weight"].bounds(2), "no rank 2: ranks are 0 to 1"),
        (
            lambda: layout(dataclasses.replace(TINY, positions="relative"), 2),
            "The spec has relative",
        ),
        (lambda: step_bytes(96, 0, 2048, 8192), "tp is 0"),
        (
            lambda: layout(LLAMA, 2).price(1, dgx_h100(1), algorithm="rings"),
            r"There is no all_reduce algorithm 'rings'; did you mean 'ring'\? Known: best, ring, tree",
        ),
        (lambda: layout(LLAMA, 2).price(1, algorithm="rings"), "'ring'"),
        (
            lambda: layout(LLAMA, 8).price(1, dgx_h100(1), algorithm="hierarchical"),
            "Known: best, ring",
        ),
        (lambda: layout(LLAMA, 8).price(1, algorithm="hierarchical"), "needs to know the nodes"),
        (lambda: layout(LLAMA, 16).price(1, dgx_h100(1)), "16 ranks on 1 nodes of 8 devices"),
        (lambda: layout(GPT3, 6).price(1, dgx_h100(2)), "where its size divides 8"),
        (lambda: activation_bytes(GPT3, 1, 5), "degree of 5; the nearest that work: 4 and 6"),
        (
            lambda: activation_bytes(dataclasses.replace(TINY, sequence=6), 1, 4, True),
            "6 tokens of a sequence do not divide by a tensor-parallel degree of 4",
        ),
    ],
)
def test_what_cannot_be_is_a_sentence(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_the_plan_says_where_a_parameter_lies():
    plan = layout(LLAMA, 16)
    assert plan["layers.3.ffn.up.weight"].cut == "cut in dimension 0 into 16 pieces"
    key, norm = plan["layers.*.attention.key.weight"], plan["norm.weight"]
    assert key.cut == "cut in dimension 0 into 8 pieces, each on 2 ranks"
    assert norm.cut == layout(LLAMA, 1)["head.weight"].cut == "a copy on every rank"
    assert [key.bounds(rank) for rank in (0, 1, 2, 15)] == [(0, 128)] * 2 + [
        (128, 256),
        (896, 1024),
    ]
    assert norm.bounds(15) == (0, 1)
    assert norm.shard(15) == norm.shape
    uneven = layout(GPT3, 8)  # of 50,257 words the last rank has one more
    assert uneven.held() == uneven.held(0) == uneven.held(7) - 12288
    halves = layout(dataclasses.replace(TINY, vocab=33), 2)
    assert halves.held() == halves.held(1) - 16


def test_plan_and_price_load_without_torch_and_numpy():
    code = (
        "import sys, dlsys.tensor_parallel as t; from dlsys.transformer import CATALOGUE as c; "
        "p = t.layout(c['gpt3-175b'], 8); p.check(); p.price(1); assert 'TensorParallelGPT' in "
        "t.__all__; sys.exit(bool({'torch', 'numpy', 'matplotlib'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# --- the price ------------------------------------------------------------------------------------


def test_a_step_of_96_layers_on_8_ranks_sends_22_5_gb_and_not_90():
    assert step_bytes(96, 8, 2048, 8192) == pytest.approx(22.549e9, rel=1e-4)
    # The published 90.2 GB has h x h for a message: right where b s happens to be h = 8192.
    assert step_bytes(96, 8, 8192, 8192) == pytest.approx(90.194e9, rel=1e-4)
    # 67.1 MB x 128 = 8.59 GB: h = 4096 squared again, and the whole message instead of 2(t-1)/t.
    assert 2 * all_reduce_bytes(4096, 4096) * 4 * 32 == 8_589_934_592
    assert all_reduce_bytes(2048, 4096) == 2 * 2048 * 4096


def test_the_bytes_of_a_rank_saturate_and_do_not_grow_with_the_ranks():
    sent = [step_bytes(1, t, 2048, 8192) for t in (1, 2, 4, 8, 64, 4096)]
    factors = [each / (4 * all_reduce_bytes(2048, 8192)) for each in sent]
    assert factors == pytest.approx([0, 1, 1.5, 1.75, 1.96875, 1.99951], rel=1e-4)


def test_the_layers_of_the_plan_send_what_the_formula_says():
    for t in (2, 4, 8):
        plan = layout(GPT3, t)
        ends = dataclasses.replace(plan, layer=plan.layer._replace(forward=(), backward=()))
        for m in (1, 3):
            whole, rest = (each.price(2, micro_batches=m) for each in (plan, ends))
            formula = step_bytes(96, t, 2 * 2048, 12288, micro_batches=m)
            assert whole.bytes_per_rank - rest.bytes_per_rank == formula
            assert whole.calls - rest.calls == 4 * 96 * m


def test_sequence_parallelism_sends_as_much_but_for_the_gather_that_backward_repeats():
    plain, parallel = layout(GPT3, 8), layout(GPT3, 8, True)

    def sent(plan, words=""):
        calls = [c for c in plan.collectives() if words in c.where]
        factor = {"all_reduce": 2 * 7 / 8, "all_gather": 7 / 8, "reduce_scatter": 7 / 8}
        return sum(factor[c.kind] * c.nbytes(1) for c in calls)

    again, copies = sent(parallel, "again"), sent(parallel, "gradients")
    # An all-reduce is a reduce-scatter and an all-gather; the embedding's has its half in backward.
    assert sent(parallel) - again - copies == sent(plain) == plain.price(1).bytes_per_rank
    assert again == (2 * 96 + 1) * 7 / 8 * all_reduce_bytes(2048, 12288)
    # And copied parameters, norms say, see a rank's tokens alone: little, whatever the batch.
    assert copies == 2 * 7 / 8 * 2 * (96 * 6 + 2 + 2048) * 12288
    assert parallel.price(1).bytes_per_rank == sent(parallel)


def test_one_rank_says_nothing_and_without_a_rate_computes_in_no_time():
    assert layout(GPT3, 1).price(1, LINK) == Price(0, 0.0, 0.0, 0.0)


def test_a_group_of_fewer_ranks_than_a_node_has_cards_is_priced_as_its_links():
    node = dgx_h100(1)
    cards = dataclasses.replace(node, nics_per_node=4)
    for algorithm in ("ring", "best"):
        price = layout(GPT3, 2).price(1, node.intra, algorithm=algorithm, rate=1e15)
        for where in (node, cards):
            assert layout(GPT3, 2).price(1, where, algorithm=algorithm, rate=1e15) == price


def test_across_the_node_boundary_communication_takes_over():
    shares = {
        (t, algorithm): layout(GPT3, t).price(1, dgx_h100(4), algorithm=algorithm).share
        for t in (8, 16)
        for algorithm in ("ring", "best")
    }
    assert shares[8, "ring"] == pytest.approx(0.22, abs=0.005)
    assert shares[16, "ring"] == pytest.approx(0.845, abs=0.005)
    # Also where it crosses in the best way, each card carrying an eighth.
    assert shares[16, "best"] == pytest.approx(0.478, abs=0.005)


def test_without_a_link_the_best_algorithm_is_a_ring_and_takes_no_time():
    for sequence_parallel in (False, True):
        plan = layout(GPT3, 8, sequence_parallel)
        assert plan.price(1, algorithm="best") == plan.price(1, algorithm="ring")
        assert plan.price(1).seconds == plan.price(1).share == 0


@pytest.mark.parametrize("spec", [GPT3, LLAMA], ids=["gpt", "llama"])
def test_hierarchical_collectives_are_those_of_the_nodes(spec):
    cluster, plan = dgx_h100(2), layout(spec, 16)
    node = dataclasses.replace(cluster, nodes=1, devices_per_node=2, nics_per_node=None)
    two_level = hierarchical_all_reduce(2, 8)
    each = [
        # Two neighbours that share a key-value head lie in one node.
        two_level.price(c.nbytes(1), cluster, c.itemsize())
        if c.ranks is None
        else ring_all_reduce(2).price(c.nbytes(1), node, c.itemsize())
        for c in plan.collectives()
    ]
    found = plan.price(1, cluster, algorithm="hierarchical")
    assert found.seconds == pytest.approx(sum(price.seconds for price in each))
    assert found.bytes_per_rank == pytest.approx(sum(price.bytes_per_rank for price in each))
    assert found.seconds < plan.price(1, cluster).seconds


def test_compute_is_that_of_all_micro_batches_at_the_rate():
    plan = layout(GPT3, 8)
    flops = GPT3.training_flops(2) / 8
    assert plan.price(2, rate=1e14).compute_seconds == pytest.approx(flops / 1e14)
    assert plan.price(2).compute_seconds == 0
    node = dgx_h100(1)
    peak = plan.price(2, node)
    assert peak.compute_seconds == pytest.approx(flops / node.device.rate("bf16"))
    slow = plan.price(2, node, rate=node.device.rate("bf16") / 2, micro_batches=3)
    assert slow.compute_seconds == pytest.approx(6 * peak.compute_seconds)
    assert slow.share == pytest.approx(peak.seconds / (peak.seconds + 2 * peak.compute_seconds))


def test_175b_parameters_on_8_by_4_ranks_take_10_9_gb_in_16_bits():
    held = [layout(GPT3, 8).held(rank) for rank in range(8)]
    assert 2 * held[0] / 4 == pytest.approx(10.94e9, rel=2e-3)
    # Two ten-thousandths of the model are copies: in a layer the weights and biases of two norms
    # and the biases of two matrices, the last norm's two, and the positions.
    assert sum(held) - GPT3.parameters() == 7 * (96 * 6 + 2 + 2048) * 12288


def test_the_activations_of_gpt3_by_degree():
    sbh = 2048 * 12288
    whole, eight, both = (
        activation_bytes(GPT3, 1, t, sp) for t, sp in ((1, False), (8, False), (8, True))
    )
    assert whole == (10 * sbh, 24 * sbh, 80 * sbh)
    assert whole.total == 114 * sbh
    assert [k.total / 1e9 for k in (whole, eight, both)] == pytest.approx([2.869, 0.579, 0.359], rel=2e-3)  # fmt: skip
    assert eight == (10 * sbh, 3 * sbh, 10 * sbh)
    assert (both.total - both.scores) / 1e9 == pytest.approx(0.107, rel=1e-3)


@pytest.mark.parametrize("name", ["gpt3-175b", "llama3-70b", "llama2-7b"])
@pytest.mark.parametrize("t", [1, 8, 16])
@pytest.mark.parametrize("sequence_parallel", [False, True])
@pytest.mark.parametrize("dropout", [False, True])
def test_three_terms_follow_the_spec(name, t, sequence_parallel, dropout):
    spec = CATALOGUE[name]
    sb = 2 * spec.sequence
    # Of each branch its norm's input and its own, 2 bytes each, and its mask.
    between = (8 + 2 * dropout) * sb * spec.hidden // (t if sequence_parallel else 1)
    # Queries and what `output` reads; keys and values of at least one head; 2 or 4 wide tensors.
    keys = max(1, spec.kv_heads // t) * spec.head_size
    wide = (4 if spec.gated else 2) * spec.ffn_hidden // t
    inside = 2 * sb * (2 * spec.hidden // t + 2 * keys + wide)
    scores = (5 if dropout else 2) * spec.heads * spec.sequence * sb // t
    kept = activation_bytes(spec, 2, t, sequence_parallel, dropout)
    assert kept == (between, inside, scores)
    flash = memory_wall.activations(spec, 2, t, sequence_parallel, flash=True, dropout=dropout)
    assert flash.per_layer == between + inside


def test_by_default_activations_are_those_of_one_rank_with_dropout():
    assert activation_bytes(GPT3, 1) == activation_bytes(GPT3, 1, 1, False, True)
    assert activation_bytes(GPT3, 1, 8) == activation_bytes(GPT3, 1, 8, False, True)
    assert activation_bytes(GPT3, 1).scores == 5 * 96 * 2048**2


# --- drawn ----------------------------------------------------------------------------------------


def test_a_layers_picture_names_its_collectives():
    words = [text.get_text() for axes in layout(GPT3, 4).draw().axes for text in axes.texts]
    assert words.count("→ all-reduce") == words.count("← all-reduce") == 2
    words = [text.get_text() for axes in layout(GPT3, 8, True).draw().axes for text in axes.texts]
    assert words.count("→ reduce-scatter") == words.count("→ all-gather") == 2
    assert words.count("rank 3") == 2
    assert "rank 4" not in words


@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_a_layers_picture_has_the_shapes_that_a_rank_has(sequence_parallel):
    spec = TransformerSpec(1, 16, 4, 40, 8, 48)
    sizes = {"b": 3, "s": 8, "h": 16, "f": 48}

    def shapes(comm):
        model, found = TensorParallelGPT(spec, comm, sequence_parallel, device="meta"), []

        def keep(_, x, y):
            found.extend([tuple(x[0].shape), tuple(y.shape)])

        for place in ("norm1", "attention.output", "norm2", "ffn.down"):
            model.layers[0].get_submodule(place).register_forward_hook(keep)
        x = torch.zeros(3, 8, dtype=torch.long, device="meta")
        model(x, x)
        return found

    ran = world.simulate(shapes, 4).results[0]
    for axes, (stream, _, inside, out) in zip(
        layout(spec, 4, sequence_parallel).draw().axes, (ran[:4], ran[4:]), strict=True
    ):
        words = [text.get_text() for text in axes.texts if text.get_text().startswith("(b")]
        drawn = [eval(word, {}, sizes) for word in words]
        whole = (*inside[:2], spec.hidden)
        assert drawn == [stream, whole, inside, whole, out]


@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_a_layers_picture_has_norm_and_dropout_outside_of_the_collectives(sequence_parallel):
    """They are filled as the stream is: whole, or a rank's own tokens."""
    for axes in layout(GPT3, 4, sequence_parallel).draw().axes:
        at = {text.get_text(): text.get_position()[0] for text in axes.texts}
        left, right = (line.get_xdata()[0] for line in axes.lines)
        assert at["norm"] < left < min(at.get("query", 9), at.get("up", 9))
        assert right < at["dropout, +"]
        grey = [p for p in axes.patches if to_hex(p.get_facecolor()) == to_hex(STREAM)]
        heights = {round(p.get_height(), 6) for p in grey}
        assert len(grey) == 4 * 4
        assert heights == {round(SIDE / 4 if sequence_parallel else SIDE, 6)}
        assert len({round(p.get_y() % STEP, 6) for p in grey}) == (4 if sequence_parallel else 1)


def test_the_pictures_show_the_prices():
    (axes,) = draw_share(GPT3, 1, dgx_h100(2), (4, 8, 16)).axes
    rings = list(axes.lines[0].get_ydata())
    assert rings[-1] == pytest.approx(100 * layout(GPT3, 16).price(1, dgx_h100(2)).share)
    (law,) = [line for line in axes.lines if line.get_label() == "rings, by the law"]
    assert list(law.get_ydata()) == pytest.approx(rings, rel=0.03)
    assert "%" in axes.get_ylabel()
    (axes,) = draw_activations(GPT3, 1, (1, 8)).axes
    assert [text.get_text() for text in axes.texts][2:] == ["579 MB", "359 MB"]
    assert "GB" in axes.get_ylabel()


# --- against what runs ----------------------------------------------------------------------------


def trained(comm, spec, sequence_parallel, batch, micro_batches=1, overlap=True, **options):
    """Backward passes of a model, whose parameters' shapes are returned by name."""
    model = TensorParallelGPT(spec, comm, sequence_parallel, overlap, **options)
    tokens = torch.arange(batch * spec.sequence).view(batch, -1) % spec.vocab
    for _ in range(micro_batches):
        model(tokens, tokens).backward()
    return {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("spec", [TINY, TINY_LLAMA], ids=["gpt", "llama"])
@pytest.mark.parametrize("sequence_parallel", [False, True])
@pytest.mark.parametrize("t", [1, 2, 4])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_the_model_holds_and_says_what_the_plan_says_in_its_order(
    dtype, t, sequence_parallel, spec
):
    plan, itemsize = layout(spec, t, sequence_parallel), dtype.itemsize
    program = functools.partial(trained, dtype=dtype)
    run = world.simulate(program, t, args=(spec, sequence_parallel, 2))
    for rank, shapes in enumerate(run.results):
        assert shapes == {name: plan[name].shard(rank) for name in shapes}
        said = [(c.kind, c.nbytes) for c in run.traffic.calls if c.rank == rank]
        # A record has what the rank passed: of an all-gather its part of the plan's full buffer.
        planned = [
            (c.kind, c.nbytes(2, itemsize) // (t if c.kind == "all_gather" else 1))
            for c in plan.collectives()
        ]
        assert said == planned
        assert run.traffic.sent[rank] == plan.price(2, itemsize=itemsize).bytes_per_rank


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_a_price_is_the_busiest_ranks_where_a_message_does_not_divide(dtype):
    spec = dataclasses.replace(TINY, sequence=7)  # four ranks take 1, 2, 2 and 2 of 7 losses
    program = functools.partial(trained, dtype=dtype)
    sent = world.simulate(program, 4, args=(spec, False, 1)).traffic.sent
    price = layout(spec, 4).price(1, itemsize=dtype.itemsize)
    assert max(sent) == price.bytes_per_rank > min(sent)


@pytest.mark.parametrize("sequence_parallel", [False, True])
@pytest.mark.parametrize("overlap", [False, True])
def test_micro_batches_take_the_seconds_and_bytes_of_the_price_each(sequence_parallel, overlap):
    link = Link("without latency", 0.0, 1e9)
    run = world.simulate(trained, 4, link=link, args=(TINY, sequence_parallel, 2, 3, overlap))
    plan = layout(TINY, 4, sequence_parallel)
    price = plan.price(2, link, itemsize=4, micro_batches=3)
    # Nothing computes in this world, so nothing hides behind computing.
    assert run.seconds == pytest.approx(price.seconds)
    assert run.traffic.sent == [price.bytes_per_rank] * 4
    assert run.traffic.count(rank=0) == price.calls


@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_dropout_adds_8_bytes_for_each_mask_that_ranks_must_share_and_nothing_else(
    sequence_parallel,
):
    def program(comm):
        trained(comm, TINY, sequence_parallel, 2, dropout=0.5)

    calls = [c for c in world.simulate(program, 2).traffic.calls if c.rank == 0]
    planned = [c.kind for c in layout(TINY, 2, sequence_parallel).collectives()]
    seeds = [c.nbytes for c in calls if c.kind == "broadcast"]
    assert [c.kind for c in calls if c.kind != "broadcast"] == planned
    # Of the embedding and of both branches of each of two layers; with sequence parallelism ranks
    # have different tokens there.
    assert seeds == ([] if sequence_parallel else [8] * 5)


def test_the_layers_of_a_run_send_2_t_minus_1_over_t_bsh_4_l():
    sent = []
    for layers in (1, 3):
        spec = dataclasses.replace(TINY, layers=layers)
        sent.append(world.simulate(trained, 4, args=(spec, False, 2)).traffic.sent[0])
    assert sent[1] - sent[0] == step_bytes(2, 4, 2 * 8, 16, itemsize=4)


def kept(comm, spec, sequence_parallel, dropout, flash):
    """What the layers keep, by term."""
    model = TensorParallelGPT(
        spec, comm, sequence_parallel, dropout=dropout, flash=flash, dtype=torch.bfloat16
    )
    tokens = torch.arange(2 * spec.sequence).view(2, -1) % spec.vocab
    return memory_wall.measure_activations(model, tokens, tokens)


@pytest.mark.parametrize("spec", [TINY, dataclasses.replace(TINY_LLAMA, norm="layer")], ids=["gpt", "llama"])  # fmt: skip
@pytest.mark.parametrize("sequence_parallel", [False, True])
@pytest.mark.parametrize("t", [1, 2, 4])
def test_a_layer_keeps_10_bytes_on_every_rank_and_24_cut_or_34_cut(t, sequence_parallel, spec):
    for dropout, flash in [(0.0, False), (0.1, False), (0.0, True)]:
        run = world.simulate(kept, t, args=(spec, sequence_parallel, dropout, flash))
        formula = activation_bytes(spec, 2, t, sequence_parallel, dropout > 0)
        layer = formula.total - flash * formula.scores
        terms = memory_wall.activations(
            spec, 2, t, sequence_parallel, flash=flash, dropout=dropout > 0
        ).terms
        for measured in run.results:
            assert measured.layers == (terms,) * 2
            assert measured.total == 2 * layer
    if spec == TINY:
        formula = activation_bytes(spec, 2, t, sequence_parallel)
        bsh, shared = 2 * 8 * 16, t if sequence_parallel else 1
        scores = 5 * 4 * 8 * 8 * 2 // t
        assert formula.total == 10 * bsh // shared + 24 * bsh // t + scores


def by_torch(comm, sequence_parallel, together):
    """A block cut by torch's own tensor parallelism, through which a pass goes."""
    between = Shard(1) if sequence_parallel else Replicate()
    plan = {f"attention.{name}": ColwiseParallel() for name in ("query", "key", "value")}
    plan |= {"ffn.up": ColwiseParallel()}
    plan |= {n: RowwiseParallel(output_layouts=between) for n in ("attention.output", "ffn.down")}
    if together:  # queries, keys and values read one tensor, whose gradient is summed once
        for branch, others in (("attention", (None,)), ("ffn", ())):
            plan[branch] = PrepareModuleInput(
                input_layouts=(between, *others),
                desired_input_layouts=(Replicate(), *others),
                use_local_output=False,
            )
    block = GPT(TINY, seed=1).layers[0]
    return parallelize_module(block, init_device_mesh("cpu", (comm.size,)), plan)


def test_torchs_tensor_parallelism_computes_and_says_the_same():
    def program(comm):
        def own(tensor):
            return tensor.tensor_split(comm.size, 1)[comm.rank] if sequence_parallel else tensor

        said = {}
        whole = GPT(TINY, seed=1).layers[0]
        x = torch.linspace(-3, 3, 2 * 8 * 16).sin().view(2, 8, 16).requires_grad_()
        expected = whole(x)
        expected.square().sum().backward()
        for sequence_parallel, together in ((False, True), (False, False), (True, True)):
            plan = layout(TINY, comm.size, sequence_parallel)
            ours = TensorParallelGPT(TINY, comm, sequence_parallel, seed=1).layers[0]
            torchs = by_torch(comm, sequence_parallel, together)
            for block in (ours, torchs):
                mine = own(x.detach()).clone().requires_grad_()
                with CommDebugMode() as forward:
                    y = block(mine)
                with CommDebugMode() as backward:
                    y.square().sum().backward()
                # Sums in another order: float32's rounding, within torch's default tolerance.
                torch.testing.assert_close(y, own(expected))
                torch.testing.assert_close(mine.grad, own(x.grad))
                for name, parameter in block.named_parameters():
                    if block is torchs and sequence_parallel and name.startswith("norm"):
                        continue  # torch leaves these sums to another style, SequenceParallel
                    cut, grad = plan[f"layers.0.{name}"], parameter.grad
                    grad = grad.to_local() if isinstance(grad, DTensor) else grad
                    expected_grad = part(whole.get_parameter(name).grad, cut, comm.rank)
                    torch.testing.assert_close(grad, expected_grad)
            said[sequence_parallel, together] = [  # by the last block, torch's
                {str(op).split(".")[1]: n for op, n in mode.get_comm_counts().items()}
                for mode in (forward, backward)
            ]
        return said

    said = world.launch(program, 2).results[0]
    names = {
        "all_reduce": "all_reduce",
        "all_gather": "all_gather_into_tensor",
        "reduce_scatter": "reduce_scatter_tensor",
    }
    for sequence_parallel in (False, True):
        # torch keeps what it gathered, so it does not gather again.
        planned = [
            Counter(names[c.kind] for c in calls if not c.where.endswith(("again", "gradients")))
            for calls in layout(TINY, 2, sequence_parallel).layer
        ]
        assert said[sequence_parallel, True] == planned
    # Where queries, keys and values each have their input to themselves, each gradient is a sum.
    assert said[False, False] == [{"all_reduce": 2}, {"all_reduce": 4}]


def test_torch_unties_weights_and_clips_by_the_whole_length_if_all_parameters_are_dtensors():
    def program(comm):
        mesh, words = init_device_mesh("cpu", (comm.size,)), torch.arange(14).view(2, 7) * 5 % 33
        model = GPT(dataclasses.replace(TINY, vocab=33, tied=True), seed=1)
        assert model.head.weight is model.embedding.weight
        hidden = model.embedding(words)
        expected = cross_entropy(model.head(hidden).flatten(0, 1), words.flatten())
        (grad,) = torch.autograd.grad(expected, model.embedding.weight)
        plan = {
            "embedding": RowwiseParallel(input_layouts=Replicate()),
            "head": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False),
        }
        parallelize_module(model, mesh, plan)
        untied = model.head.weight is not model.embedding.weight
        model.head.weight = model.embedding.weight
        with loss_parallel():
            logits = model.head(model.embedding(words)).flatten(0, 1)
            loss = cross_entropy(logits, words.flatten())
            loss.backward()
        torch.testing.assert_close(loss.full_tensor(), expected)
        torch.testing.assert_close(model.embedding.weight.grad.full_tensor(), grad)
        return untied, len(model.embedding.weight.to_local()), *lengths(comm)

    def lengths(comm):
        whole = GPT(TINY, seed=1).layers[0]
        x = torch.linspace(-3, 3, 2 * 8 * 16).sin().view(2, 8, 16)
        whole(x).square().sum().backward()
        grads = [parameter.grad for parameter in whole.parameters()]
        mixed = by_torch(comm, sequence_parallel=False, together=True)
        mixed(x).square().sum().backward()
        with pytest.raises(RuntimeError, match=r"mixed torch\.Tensor and DTensor"):
            torch.nn.utils.clip_grad_norm_(mixed.parameters(), 1.0)
        alike = by_torch(comm, sequence_parallel=True, together=True)
        norms = {name: SequenceParallel(use_local_output=True) for name in ("norm1", "norm2")}
        alike = parallelize_module(alike, init_device_mesh("cpu", (comm.size,)), norms)
        alike(x.tensor_split(comm.size, 1)[comm.rank]).square().sum().backward()
        found = torch.nn.utils.clip_grad_norm_(alike.parameters(), 1.0).full_tensor()
        return found.item(), torch.nn.utils.get_total_norm(grads).item()

    untied, rows, found, expected = zip(*world.launch(program, 2).results, strict=True)
    assert (untied, rows) == ((True, True), (17, 16))
    assert found == pytest.approx(expected, rel=1e-5)
