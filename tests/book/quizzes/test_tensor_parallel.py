"""The numbers of the quiz on tensor parallel, computed."""

from contextlib import nullcontext

import torch

from dlsys import world
from dlsys.collectives import plan_for, ring_all_reduce
from dlsys.data_parallel import DataParallel
from dlsys.hardware import LINKS
from dlsys.tensor_parallel import activation_bytes, layout, reduce
from dlsys.transformer import CATALOGUE
from dlsys.world import Communicator
from tests.book.quizzes import contract

CUT = layout(CATALOGUE["gpt3-175b"], 4)
LAYER = CUT.layer.forward + CUT.layer.backward
BUFFER = LAYER[0].nbytes(3)
SENT = sum(
    ring_all_reduce(4).price(call.nbytes(3), LINKS["nvlink4"]).bytes_per_rank / 1e6
    for call in LAYER
)
REPEATED = (*CUT.layer.forward, *CUT.layer.forward, *CUT.layer.backward)
ONE = activation_bytes(CUT.spec, 1)
KEPT = activation_bytes(CUT.spec, 1, 4)


def sent(kind: str, width: int) -> float:
    """Bytes that each of eight ranks sends of one token, in units of columns and then rows."""
    usual = ring_all_reduce(8).price(2 * 8, LINKS["nvlink4"]).bytes_per_rank
    ring = plan_for(kind, 8)
    return ring.price(2 * 8 * width, LINKS["nvlink4"]).bytes_per_rank / usual


NUMBERS = {
    "tp-message": SENT,
    "tp-pairing": sent("all_reduce", 4) + sent("all_gather", 1),
    "tp-count": 80 * len(REPEATED),
    "tp-layer-memory": (KEPT.between + KEPT.inside) / 1e9,
}

MISCONCEPTIONS = {
    "tp-message": {
        "the size of a weight matrix": SENT * CUT.spec.hidden / (3 * CUT.spec.sequence),
        "the four buffers": len(LAYER) * BUFFER / 1e6,
        "limit for very many ranks": 2 * len(LAYER) * BUFFER / 1e6,
        "one sequence": SENT / 3,
        "half of it": SENT / 2,
        "one all-reduce": SENT / len(LAYER),
    },
    "tp-pairing": {
        "only some columns": sent("all_reduce", 4),
        "half of an all-reduce": sent("all_reduce", 4) + sent("all_reduce", 1),
        "a reduce-scatter": sent("reduce_scatter", 4) + sent("all_gather", 1),
        "how many numbers": sent("all_reduce", 1) + sent("all_gather", 1),
        "one sum at the end": sent("all_reduce", 1),
    },
    "tp-count": {
        "without recomputation": 80 * len(LAYER),
        "two branches in a layer": 80 * len(REPEATED) / 2,
        "one forward pass alone": 80 * len(CUT.layer.forward),
        "Only the forward pass is there twice": 80 * 2 * len(LAYER),
        "not each of its matrices": 80 * 2 * len(REPEATED),
    },
    "tp-layer-memory": {
        "as with sequence parallelism": (ONE.between + ONE.inside) / 4e9,
        "scores are counted": KEPT.total / 1e9,
        "what they keep with them": (ONE.between + ONE.inside) / 1e9,
        "what lies between the branches": KEPT.between / 1e9,
    },
}


def test_the_question_on_memory_says_what_one_device_keeps() -> None:
    assert f"{(ONE.between + ONE.inside) / 1e9:.3f}" == "0.856"
    assert f"{BUFFER / 1e6:.0f}" == "151"


class TestQuiz(contract.Quiz): ...


def test_a_bias_on_every_rank_shows_in_the_second_forward_pass_and_not_before() -> None:
    def program(comm: Communicator) -> list[list[float]]:
        bias, seen = torch.zeros(3, requires_grad=True), []
        for _ in range(2):
            y = reduce(torch.ones(3) + bias, comm) - comm.size  # so that the sum of the rest is 0
            (grad,) = torch.autograd.grad((y - 1).square().sum(), bias)
            seen += [y.tolist(), grad.tolist()]
            bias = (bias - grad / 4).detach().requires_grad_()
        return seen

    one, eight = (world.simulate(program, n).results[0] for n in (1, 8))
    assert one[:2] == eight[:2]
    assert eight[2] == [8 * number for number in one[2]] != one[2]


def test_the_loss_is_wrong_where_each_rank_subtracts_its_own_largest_logit() -> None:
    logits = torch.tensor([[3.0, 1.0], [7.0, 2.0]])  # two ranks' words of one token
    sums = sum((part - part.max()).exp().sum() for part in logits)
    right = logits.flatten().logsumexp(0)
    for largest in (3.0, 7.0):
        assert abs(largest + sums.log() - right) > 0.1


def test_with_twice_the_micro_batches_activations_double_and_gradients_stay() -> None:
    once, twice = (CUT.price(1, LINKS["nvlink4"], micro_batches=m) for m in (2, 4))
    assert twice.bytes_per_rank == 2 * once.bytes_per_rank

    def program(comm: Communicator, micro_batches: int) -> None:
        replica = DataParallel(torch.nn.Linear(4, 4), comm)
        for last in [False] * (micro_batches - 1) + [True]:
            with nullcontext() if last else replica.no_sync():
                replica(torch.ones(2, 4)).sum().backward()

    few, many = (world.simulate(program, 2, args=(m,)).traffic.sent for m in (2, 4))
    assert few == many != [0, 0]
