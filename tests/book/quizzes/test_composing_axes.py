"""The numbers of the quiz on composing the axes, computed."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from dlsys import world, zero
from dlsys.composing_axes import between_nodes, machine, step_bytes, tokens_to_hide
from dlsys.composing_axes.memory import stage_bytes
from dlsys.composing_axes.runs import runs_of
from dlsys.composing_axes.step import clip
from dlsys.composing_axes.step_time import Constants, Machine, head_seconds, step_parts
from dlsys.composing_axes.training import Trainer
from dlsys.mesh import Mesh
from dlsys.pipeline_parallel import one_f_one_b
from dlsys.transformer import CATALOGUE, TransformerSpec
from dlsys.world import Communicator
from tests.book.quizzes import contract

MESH = Mesh(tp=2, cp=4, dp=3, pp=2, ep=6)
(HOLDER,) = set(MESH.group("holders", 21)) - {21}

NODES = machine("h100", 16)
BYTES = step_bytes(
    CATALOGUE["llama3-70b"],
    Mesh(tp=8, dp=4, pp=4),
    512,
    plan=one_f_one_b(4, 128),
    sequence_parallel=True,
)
TERABYTES = BYTES["tp"] / 128 / 1e12


def leaving(order: str) -> float:
    """TB of tensor parallelism that a device sends between nodes."""
    mesh = Mesh(tp=8, dp=4, pp=4, order=order)
    return between_nodes({"tp": TERABYTES}, mesh, NODES.cluster)["tp"]


def norm(share: float, ranks: int = 4, cut: float = 5, copied: float = 6) -> float:
    """What `clip` takes for the norm, with one share for all that a rank of tp has."""

    def scale(comm: Communicator) -> float:
        axes = Mesh(tp=comm.size).split(comm)
        gradient = torch.tensor([cut / 4**0.5, copied], dtype=torch.float64)
        shard = torch.zeros(2, dtype=torch.float64)
        shard.grad = gradient.clone()
        clip(axes, [(shard, torch.full((2,), share))], 1.0)
        return (gradient / shard.grad)[0].item()

    return round(world.simulate(scale, ranks).results[0], 5)


TINY = TransformerSpec(32, 8, 1, 8, 8)
PIPED = runs_of(TINY, pp=4, micro_batches=16)


def parts() -> dict[str, float]:
    """Seconds of a step whose layers take 10 ms, its head 30 ms, and what follows 0.1 s."""

    def having(logits: float) -> Machine:
        return NODES.having(Constants(floor=0.01, latency=0.0, fixed=0.1, logits=logits))

    none, one = (head_seconds(PIPED, having(logits)).item() for logits in (0, 1))
    paced = having((0.03 - none) / (one - none))
    return {name: each.item() for name, each in step_parts(PIPED, paced).items()}


def simulated(*stages: float) -> float:
    """Seconds of the passes, with a stage's of each micro-batch."""
    each = [one / 3 for one in stages]
    return one_f_one_b(4, 16).price(each, [2 * one for one in each]).makespan


PARTS = parts()
SECONDS = round(sum(PARTS.values()), 5)

ONCE = tokens_to_hide(28672, 4e14, 5e10, 45e10)


def tokens(rate: float, sharding: float, tensor: float) -> float:
    """Tokens a device that hide both axes, where they were 1,200."""
    return round(1200 * tokens_to_hide(28672, rate * 4e14, sharding * 5e10, tensor * 45e10) / ONCE)


NUMBERS = {
    "composing_axes-place": HOLDER,
    "composing_axes-order": leaving("dp-tp-pp-cp"),
    "composing_axes-norm": norm(1.0),
    "composing_axes-seconds": SECONDS,
    "composing_axes-tokens": tokens(4, 2, 2),
}

MISCONCEPTIONS = {
    "composing_axes-place": {
        "differ along tp count": 21 - 6,
        "in the other stage": (set(MESH.group("pp", 21)) - {21}).pop(),
        "other half": (set(MESH.group("tp", 21)) - {21}).pop(),
        "neighbor along dp": MESH.group("dp", 21)[1],
        "same place along cp": MESH.group("dp", 21)[0],
        "The distance is right": 21 + (21 - HOLDER),
        "Which other place": MESH.place(21),
        "What is its number": MESH.place(HOLDER),
    },
    "composing_axes-order": {
        "still has room": leaving("tp-cp-dp-pp"),
        "still share a node": TERABYTES,
        "only to the next one": TERABYTES * 6 / 8,
        "leaves each of them once": TERABYTES / 4,
        "of a node send together": 8 * leaving("dp-tp-pp-cp"),
    },
    "composing_axes-norm": {
        "true norm": math.hypot(5, 6),
        "every number four times": 2 * math.hypot(5, 6),
        "the root of that": round(norm(1.0) ** 2, 3),
        "squares, not norms.": 5 + 4 * 6,
        "four ranks add theirs": 5 + 6,
        "before the sum over ranks": norm(1.0, 1),
    },
    "composing_axes-seconds": {
        "as slow as the last one": round(simulated(0.11, 0.11, 0.11, 0.11) + 0.1, 5),
        "waits for its first": round(SECONDS - PARTS["bubble"], 5),
        "What follows them": round(SECONDS - PARTS["fixed"], 5),
        "a stage without the head": round(16 * 0.08 + 3 * 0.08 + 0.03 + 0.1, 5),
        "of the mean stage": round(simulated(*[0.35 / 4] * 4) + 0.1, 5),
        "one stage after the other": round(16 * 0.35 + 0.1, 5),
    },
    "composing_axes-tokens": {
        "do not cancel": 1200 * 4 / 2 / 2,
        "ZeRO-3 alone": 1200 * zero.tokens_to_hide(4, 2, 8) / zero.tokens_to_hide(1, 1, 8),
        "only one link": tokens(4, 2, 1),
        "leaves out the links": tokens(4, 1, 1),
        "or less": tokens(1, 2, 2),
    },
}


class TestQuiz(contract.Quiz): ...


def test_tensor_parallelism_sends_3_03_terabytes() -> None:
    assert round(TERABYTES, 2) == 3.03


def test_clip_takes_the_true_norm_where_copies_count_once() -> None:
    def scale(comm: Communicator) -> float:
        cut, copied = torch.zeros(1), torch.zeros(1)
        cut.grad, copied.grad = torch.full((1,), 5 / 2), torch.full((1,), 6.0)
        held = [(cut, torch.ones(1)), (copied, torch.full((1,), 1 / 4))]
        clip(Mesh(tp=4).split(comm), held, 1.0)
        return 6 / copied.grad.item()

    assert world.simulate(scale, 4).results[0] == pytest.approx(math.hypot(5, 6), rel=1e-5)


def test_the_pipeline_of_the_quiz_takes_as_long_in_simulation() -> None:
    assert simulated(0.08, 0.08, 0.08, 0.11) + 0.1 == pytest.approx(SECONDS)


def test_so_many_ranks_average_as_the_quiz_says() -> None:
    mesh = Mesh(tp=4, cp=2, dp=8, pp=2, ep=4)
    assert {len(group) for group in mesh.groups("data")} == {16}
    assert {len(group) for group in mesh.groups("holders")} == {4}


def test_of_the_changes_to_a_refused_plan_one_lets_it_fit() -> None:
    spec = TransformerSpec(32, 64, 4, 1, 64)

    def holds(**how: float) -> dict[str, float]:
        columns = {"pp": 4, "dp": 4, "micro_batches": 16, "sequences": 2} | how
        held = stage_bytes(runs_of(spec, **columns), NODES, True)
        return {name: each.item() for name, each in held.items()}

    before, refused = holds(), {"state": 16.0, "activations": 76.0, "base": 0.5, "logits": 0.0}

    def gigabytes(**how: float) -> float:
        after = holds(**how)
        return sum(n * after[name] / (before[name] or 1) for name, n in refused.items())

    assert gigabytes() == 92.5 > 80
    assert gigabytes(pp=8, dp=2, micro_batches=32) == pytest.approx(8 + 76 + 0.5, rel=0.001)
    assert gigabytes(zero=1) == pytest.approx(8 + 76 + 0.5)
    assert gigabytes(micro_batches=8) == 92.5
    assert gigabytes(micro_batches=32, sequences=1) == pytest.approx(16 + 38 + 0.5)


@pytest.mark.usefixtures("one_thread")
def test_a_tied_gradient_that_is_averaged_shows_as_the_quiz_says() -> None:
    spec = TransformerSpec(2, 8, 2, 19, 8)
    stream = torch.Generator().manual_seed(0)
    rows = torch.randint(spec.vocab, (4, spec.sequence + 1), generator=stream)

    def run(comm: Communicator, mesh: Mesh, kind: Any, fault: float) -> Any:
        """Losses of two steps, and the parameters after the first."""
        trainer = Trainer(
            comm, mesh, spec, optimizer=kind, lr=0.1, dtype=torch.float64, zero_stage=0
        )
        right, losses = trainer.pipeline.step, []

        def step(*batch: Any) -> Any:
            loss = right(*batch)
            for p in trainer.tied:
                p.grad *= fault
            return loss

        trainer.pipeline.step = step
        losses.append(trainer.step(rows[:, :-1], rows[:, 1:]))
        named = {
            (stage, name): p.detach().clone()
            for stage, module in trainer.stages.items()
            for name, p in module.named_parameters()
        }
        losses.append(trainer.step(rows[:, :-1], rows[:, 1:]))
        return [loss.item() for loss in losses], named

    def on(mesh: Mesh, kind: Any = torch.optim.SGD, fault: float = 0.5) -> Any:
        return world.simulate(run, mesh.size, args=(mesh, kind, fault)).results

    ((one, _),) = on(Mesh())
    (replicated, _), _ = on(Mesh(dp=2))
    assert replicated == pytest.approx(one)
    right, wrong = on(Mesh(pp=2), fault=1.0), on(Mesh(pp=2))
    assert right[0][0] == pytest.approx(one)
    assert wrong[0][0][0] == pytest.approx(one[0])
    assert abs(wrong[0][0][1] - one[1]) > 1e-3
    odd = {
        name
        for (_, ours), (_, theirs) in zip(wrong, right, strict=True)
        for (_, name), p in ours.items()
        if not torch.allclose(p, theirs[_, name])
    }
    assert odd == {"embedding.weight"}
    first, last = wrong[0][1][0, "embedding.weight"], wrong[1][1][1, "embedding.weight"]
    assert torch.equal(first, last)
    adam = on(Mesh(pp=2), torch.optim.AdamW)[0][0], on(Mesh(), torch.optim.AdamW)[0][0]
    assert adam[0] == pytest.approx(adam[1], abs=1e-5)
