"""Data against model parallelism: the formulas against what running programs hold and send."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from dlsys import world
from dlsys.data_parallel import DataParallel, data_or_model, even_tokens, step_bytes
from dlsys.hardware import LINKS, dgx_h100
from dlsys.model import GPT
from dlsys.tensor_parallel import TensorParallelGPT, layout
from dlsys.transformer import CATALOGUE, TransformerSpec

TINY = TransformerSpec(layers=2, hidden=16, heads=4, vocab=32, sequence=8)


def step(make, spec, batch):
    def program(comm):
        model = make(spec)
        mine = batch if isinstance(model, TensorParallelGPT) else batch.chunk(comm.size)[comm.rank]
        model(mine[:, :-1], mine[:, 1:]).backward()
        return sum(p.numel() for p in model.parameters())

    return program


def run(make, spec, n, sequences=4):
    """Bytes that a rank sends in a step, and the parameters that it holds."""
    tokens = torch.arange(sequences * (spec.sequence + 1)).reshape(sequences, -1) % spec.vocab
    done = world.simulate(step(make, spec, tokens), n)
    sent = done.traffic.by_kind().get("all_reduce", 0) / n
    return sent, done.results[0]


def copies(spec):
    return DataParallel(GPT(spec))


@pytest.mark.parametrize("n", [1, 2, 4])
def test_copies_send_all_gradients_whatever_the_batch(n):
    share, _ = data_or_model(TINY, 4, n, itemsize=4)
    sent, held = run(copies, TINY, n)
    assert (sent, 16 * held) == (share.sent_bytes, share.state_bytes)
    assert data_or_model(TINY, 400, n, itemsize=4)[0].sent_bytes == share.sent_bytes


@pytest.mark.parametrize("n", [1, 2, 4])
def test_a_copy_makes_the_flops_of_its_part_of_the_batch(n):
    tokens = torch.arange(4 * (TINY.sequence + 1)).reshape(4, -1) % TINY.vocab

    def program(comm):
        with FlopCounterMode(display=False) as counter:
            step(copies, TINY, tokens)(comm)
        return counter.get_total_flops()

    data, model = data_or_model(TINY, 4, n)
    assert world.simulate(program, n).results == [data.flops] * n == [model.flops] * n


@pytest.mark.parametrize("n", [2, 4])
@pytest.mark.parametrize("sequences", [1, 3])
def test_cut_matrices_send_activations_of_each_layer(n, sequences):
    """Of two more layers, so that what the model's ends say falls out."""
    deep = replace(TINY, layers=4)
    (low, few), (high, more) = (run(TensorParallelGPT, s, n, sequences) for s in (TINY, deep))
    shares = [data_or_model(s, sequences, n, itemsize=4)[1] for s in (TINY, deep)]
    assert high - low == shares[1].sent_bytes - shares[0].sent_bytes
    # Norms and the biases of row-parallel layers are whole: 6 h of each of two layers.
    whole = 2 * 6 * TINY.hidden
    apart = (shares[1].state_bytes - shares[0].state_bytes) / 16
    assert more - few == apart + whole * (1 - 1 / n)


@pytest.mark.parametrize("name", ["gpt3-175b", "gpt3-13b"])
def test_a_whole_models_messages_are_those_of_its_layers_but_for_a_few_percent(name):
    spec = CATALOGUE[name]
    share = data_or_model(spec, 2, 8)[1]
    priced = layout(spec, 8).price(2, dgx_h100(1))
    assert share.sent_bytes == pytest.approx(priced.bytes_per_rank, rel=0.05)
    assert share.state_bytes == pytest.approx(16 * layout(spec, 8).held(), rel=0.01)
    peak = dgx_h100(1).device.rate("bf16")
    assert share.flops == pytest.approx(priced.compute_seconds * peak, rel=1e-12)


@pytest.mark.parametrize("name", ["gpt2-xl", "gpt3-175b", "llama2-7b"])
@pytest.mark.parametrize("ranks", [2, 8, 64])
def test_both_ways_send_the_same_at_the_even_number_of_tokens(name, ranks):
    spec = CATALOGUE[name]
    sequences = even_tokens(spec) / spec.sequence
    below, above = int(sequences), int(sequences) + 1
    for batch, sign in ((below, -1), (above, 1)):
        if batch:
            data, model = data_or_model(spec, batch, ranks)
            assert sign * (model.sent_bytes - data.sent_bytes) > 0


def test_even_tokens_of_plain_layers_are_three_widths():
    assert even_tokens(CATALOGUE["gpt3-175b"]) == pytest.approx(3 * 12_288, rel=0.01)
    assert even_tokens(CATALOGUE["gpt3-13b"]) == pytest.approx(3 * 5120, rel=0.03)


def test_twice_the_batch_halves_what_an_epoch_sends():
    """An epoch of 64 samples, in steps of 8 and of 16: counted, and by the price of a step."""

    def epoch(comm, per_step):
        model = DataParallel(torch.nn.Linear(4, 4, bias=False))
        for step in torch.ones(64, 4).split(per_step):
            model(step.chunk(comm.size)[comm.rank]).sum().backward()

    runs = [world.simulate(epoch, 2, args=(b,)).traffic.by_kind()["all_reduce"] for b in (8, 16)]
    assert [both / 2 for both in runs] == [8 * step_bytes(64, 2), 4 * step_bytes(64, 2)]


def test_ranks_that_share_one_batch_do_not_train_linearly_faster():
    """ "Data parallelism scales training throughput linearly with GPU count when models fit in
    single-GPU memory": with one batch of a second's work and 14 GB, 16 times as many hardly help."""

    def shared(comm):
        comm.compute(seconds=1 / comm.size)
        comm.all_reduce(torch.empty(3_500_000_000, device="meta"))

    speedup = {
        n: 1 / world.simulate(shared, n, link=LINKS["infiniband-ndr"]).seconds for n in (4, 64)
    }
    assert speedup[64] < 1.2 * speedup[4]
