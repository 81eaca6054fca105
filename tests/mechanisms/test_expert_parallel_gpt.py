"""The GPT with mixtures: trained on ranks, it is the one that one device trains."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from dlsys import world
from dlsys.data_parallel import DataParallel
from dlsys.expert_parallel import MixtureGPT, MoE, average_gradients
from dlsys.transformer import CATALOGUE, MixtureOfExperts, TransformerSpec

pytestmark = pytest.mark.usefixtures("one_thread")

MIXTRAL = TransformerSpec(
    layers=2, hidden=16, heads=4, vocab=33, sequence=8, ffn_hidden=24, kv_heads=2, gated=True,
    tied=False, moe=MixtureOfExperts(4, 2),
)  # fmt: skip
SPECS = {
    "mixtral": MIXTRAL,
    "deepseek": dataclasses.replace(
        MIXTRAL,
        layers=3,
        moe=MixtureOfExperts(8, 3, shared=1, ffn_hidden=5, dense_layers=1),
    ),
    "switch": TransformerSpec(2, 16, 4, 33, 8, moe=MixtureOfExperts(4, 1, dense_layers=1)),
    "multi-query, tied": dataclasses.replace(
        MIXTRAL, kv_heads=1, tied=True, norm="layer", bias=True, positions="none"
    ),
}
OPTIONS = {
    "mixtral": {"auxiliary_loss": 0.02, "z_loss": 0.001},
    "deepseek": {"balance_step": 0.01, "auxiliary_loss": 0.001},
    "switch": {"auxiliary_loss": 0.01},
    "multi-query, tied": {},
}


def text(spec, batch=4):
    return torch.randint(
        spec.vocab, (batch, spec.sequence), generator=torch.Generator().manual_seed(1)
    )


def train(model, tokens, finish, steps=3):
    """Losses, every gradient of every step, and the parameters after the last one."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses, gradients = [], []
    for _ in range(steps):
        loss = model(tokens, tokens.roll(-1, 1))
        optimizer.zero_grad()
        loss.backward()
        finish()
        losses.append(loss.detach())
        gradients.append({n: p.grad for n, p in model.named_parameters()})
        optimizer.step()
        model.rebalance()
    return losses, gradients, {n: p.detach() for n, p in model.named_parameters()}


def one_device(name):
    model = MixtureGPT(SPECS[name], seed=3, dtype=torch.float64, **OPTIONS[name])
    return train(model, text(SPECS[name]), lambda: None)


def on_ranks(comm, name, degree):
    """`degree` ranks share the experts out, and as many others as there are hold the same ones."""
    mixture = comm.split(comm.rank // degree, axis="ep")
    holders = comm.split(comm.rank % degree, axis="holders")
    spec = SPECS[name]
    model = MixtureGPT(spec, mixture, seed=3, dtype=torch.float64, everyone=comm, **OPTIONS[name])
    mine = text(spec).chunk(comm.size)[comm.rank]
    found = train(model, mine, lambda: average_gradients(model, comm, holders))
    return [comm.all_reduce(loss, "mean") for loss in found[0]], *found[1:]


def joined(found, degree):
    """What the ranks hold together, by name; what several hold is alike."""
    whole = {}
    for name in found[0]:
        parts = [each[name] for each in found]
        if ".experts." in name:
            for rank, part in enumerate(parts):
                assert torch.equal(part, parts[rank % degree]), name
            whole[name] = torch.cat(parts[:degree])
        else:
            assert all(torch.equal(part, parts[0]) for part in parts), name
            whole[name] = parts[0]
    return whole


@pytest.mark.parametrize("name", SPECS)
def test_loss_gradients_and_three_steps_on_ranks_are_those_of_one_device(name):
    losses, gradients, parameters = one_device(name)
    for ranks, degree in [(1, 1), (2, 2), (4, 2), (4, 4)]:
        results = world.simulate(on_ranks, ranks, args=(name, degree)).results
        for each in results:
            torch.testing.assert_close(each[0], losses, rtol=1e-9, atol=1e-12)
        for step, expected in enumerate(gradients):
            found = joined([each[1][step] for each in results], degree)
            # float64, in which only the order of sums differs
            torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
        found = joined([each[2] for each in results], degree)
        # AdamW divides small gradients by their size.
        torch.testing.assert_close(found, parameters, rtol=1e-7, atol=1e-9)


def test_real_processes_find_the_gradients_of_one_device():
    spec = SPECS["deepseek"]
    tokens = text(spec)
    whole = MixtureGPT(spec, dtype=torch.float64)
    loss = whole(tokens, tokens)
    loss.backward()

    def program(comm):  # without an optimizer, which takes a new process a second to load
        model = MixtureGPT(spec, dtype=torch.float64)
        mine = tokens.chunk(2)[comm.rank]
        loss = model(mine, mine)
        loss.backward()
        average_gradients(model, comm)
        return comm.all_reduce(loss.detach(), "mean"), {
            n: p.grad for n, p in model.named_parameters()
        }

    results = world.launch(program, 2, timeout=200).results
    found = joined([gradients for _, gradients in results], 2)
    torch.testing.assert_close(results[0][0], loss.detach())
    torch.testing.assert_close(found, {n: p.grad for n, p in whole.named_parameters()})


def test_a_mean_over_their_holders_makes_experts_gradients_too_large_by_the_degree():
    """Published: each group averages its own gradients, experts' over the ranks that hold them."""
    _, gradients, _ = one_device("multi-query, tied")

    def program(comm):
        mixture, holders = comm.split(comm.rank // 2), comm.split(comm.rank % 2)
        spec = SPECS["multi-query, tied"]
        model = MixtureGPT(spec, mixture, seed=3, dtype=torch.float64)
        mine = text(spec).chunk(4)[comm.rank]
        model(mine, mine.roll(-1, 1)).backward()
        up = model.mixtures[0].experts.up.weight.grad
        return holders.all_reduce(up, "mean")

    expected = gradients[0]["layers.0.ffn.experts.up.weight"]
    found = world.simulate(program, 4).results
    torch.testing.assert_close(torch.cat(found[:2]), 2 * expected)


def test_data_parallelism_averages_whole_mixtures_as_any_module():
    """With experts on every rank there is nothing to dispatch: one degree more to compare with."""
    losses, gradients, _ = one_device("multi-query, tied")

    def program(comm):
        spec, alone = SPECS["multi-query, tied"], comm.split(comm.rank)
        model = DataParallel(MixtureGPT(spec, alone, seed=3, dtype=torch.float64))
        mine = text(spec).chunk(2)[comm.rank]
        loss = model(mine, mine.roll(-1, 1))
        loss.backward()
        gradients = {n: p.grad for n, p in model.module.named_parameters()}
        return comm.all_reduce(loss.detach(), "mean"), gradients

    for loss, found in world.simulate(program, 2).results:
        torch.testing.assert_close(loss, losses[0])
        torch.testing.assert_close(found, gradients[0])


def test_micro_batches_add_up_as_on_one_device():
    expected = one_device("multi-query, tied")[1][0]
    spec = SPECS["multi-query, tied"]

    def program(comm):
        model = MixtureGPT(spec, comm, seed=3, dtype=torch.float64)
        for mine in text(spec).chunk(2)[comm.rank]:
            (model(mine[None], mine[None].roll(-1, 1)) / 2).backward()
        average_gradients(model, comm)
        return {n: p.grad for n, p in model.named_parameters()}

    found = joined(world.simulate(program, 2).results, 2)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


# -- the model's shape -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", SPECS)
def test_the_model_has_exactly_the_parameters_of_its_spec(name):
    spec = SPECS[name]
    assert sum(p.numel() for p in MixtureGPT(spec).parameters()) == spec.parameters()

    def held(comm):
        model = MixtureGPT(spec)
        experts = [p for layer in model.mixtures for p in layer.experts.parameters()]
        return sum(p.numel() for p in model.parameters()), sum(p.numel() for p in experts)

    (all_of_one, experts), *others = world.simulate(held, 2).results
    assert others == [(all_of_one, experts)]
    assert all_of_one + experts == spec.parameters()


def test_mixtral_on_the_meta_device_has_exactly_its_parameters():
    spec = CATALOGUE["mixtral-8x7b"]
    model = MixtureGPT(spec, device="meta", dtype=torch.bfloat16)
    assert sum(p.numel() for p in model.parameters()) == spec.parameters()


def test_the_first_layers_are_dense_and_the_rest_mixtures():
    kinds = [type(block.ffn).__name__ for block in MixtureGPT(SPECS["deepseek"]).layers]
    assert kinds == ["FeedForward", "MoE", "MoE"]


def test_an_expert_starts_from_values_of_its_own_as_every_parameter_of_the_gpt_does():
    model = MixtureGPT(SPECS["multi-query, tied"], seed=5)
    experts = model.layers[0].ffn.experts
    assert experts.up.weight.flatten(1).unique(dim=0).shape[0] == 4
    assert experts.up.weight.std().item() == pytest.approx(0.02, rel=0.1)
    # Where a branch joins the residual stream, over the root of twice the layers.
    assert experts.down.weight.std().item() == pytest.approx(0.01, rel=0.1)
    assert not experts.up.bias.any()
    before = torch.get_rng_state()
    MixtureGPT(SPECS["mixtral"])
    assert torch.equal(torch.get_rng_state(), before)


def test_in_training_the_loss_has_the_mixtures_own_and_in_evaluation_it_has_not():
    spec = SPECS["mixtral"]
    tokens = text(spec)
    plain, more = (MixtureGPT(spec, auxiliary_loss=a, z_loss=z) for a, z in ((0, 0), (0.5, 0.25)))
    loss = more(tokens, tokens)
    own = sum(layer.loss for layer in more.mixtures)
    assert own > 1.0  # each of two mixtures has 0.5 at the least
    torch.testing.assert_close(loss, plain(tokens, tokens) + own)
    torch.testing.assert_close(more.eval()(tokens, tokens), plain(tokens, tokens))


def test_a_balanced_mixture_trains_with_nearly_equal_loads():
    spec = dataclasses.replace(MIXTRAL, layers=1, moe=MixtureOfExperts(8, 2))
    tokens = text(spec, 16)

    def spread(**options):
        model = MixtureGPT(spec, **options)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        for _ in range(30):
            optimizer.zero_grad()
            model(tokens, tokens.roll(-1, 1)).backward()
            optimizer.step()
            model.rebalance()
        model(tokens)
        (layer,) = model.mixtures
        return (layer.loads.max() / layer.loads.double().mean()).item()

    unbalanced = spread()
    assert spread(auxiliary_loss=0.1) < unbalanced
    assert spread(balance_step=0.01) < unbalanced


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MixtureGPT(dataclasses.replace(MIXTRAL, moe=None)), "spec is one without a mixt"),
        (lambda: MixtureGPT(CATALOGUE["deepseek-v3"]), "latent="),
        (lambda: MixtureGPT(MIXTRAL, capacity_factor=-1), "capacity_factor is -1; it must be"),
        (lambda: MoE(MIXTRAL, weigh=3), "weigh is 3; it must be a function, or None"),
    ],
)
def test_what_no_model_has_is_a_sentence(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_layers_between_the_sparse_ones_have_an_ordinary_network():
    spec = dataclasses.replace(
        MIXTRAL, layers=5, moe=MixtureOfExperts(4, 2, dense_layers=1, every=2)
    )
    model = MixtureGPT(spec)
    assert [isinstance(block.ffn, MoE) for block in model.layers] == [
        False,
        False,
        True,
        False,
        True,
    ]
    assert sum(p.numel() for p in model.parameters()) == spec.parameters()
