"""A run that is interrupted and resumed has the bits of the run that never was."""

import random
import shutil
import warnings
from functools import partial

import numpy as np
import pytest
import torch

from dlsys import world
from dlsys.model import GPT
from dlsys.resilience import (
    AsyncSaver,
    CheckpointError,
    PerRank,
    SampleOrder,
    Shard,
    Trainer,
    latest,
    save,
)
from dlsys.resilience.order import share
from tests.mechanisms.trained import (
    BATCH,
    SAMPLES,
    SPEC,
    difference,
    first_difference,
    plain_loss,
    text,
    trainer,
)

STEPS, CUT = 9, 5


def into(folder, comm=None):
    """The save of a Trainer, into a folder."""
    return lambda state, step: save(state, folder, step, comm)


def whole(comm, folder, make=trainer):
    """A run that is never interrupted."""
    run = make(comm)
    run.train(STEPS)
    return run.state()


def begin(comm, folder, make=trainer, steps=CUT):
    """The first half of one, which writes a checkpoint at its end."""
    run = make(comm)
    run.train(steps, into(folder, comm), every=STEPS)
    return run.losses


def go_on(comm, folder, make=trainer, steps=STEPS):
    """The second half, which remembers nothing but the checkpoint."""
    random.seed(99)
    np.random.seed(99)
    run = make(comm)
    found = run.resume(folder)
    assert found is not None
    run.train(steps)
    return run.state()


def results(start, ranks, program, *args):
    return start(program, ranks, args=args).results


# -- as anybody would train ----------------------------------------------------------------------


def test_its_losses_are_those_of_a_plain_loop():
    torch.manual_seed(0)
    rows, model = text(), GPT(SPEC)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    order, plain = SampleOrder(SAMPLES, BATCH), []
    for _ in range(4):
        batch = rows[order.take()]
        optimizer.zero_grad()
        loss = model(batch[:, :-2], batch[:, 1:-1])
        loss.backward()
        optimizer.step()
        schedule.step()
        plain.append(loss.item())
    model = GPT(SPEC)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    order, saved = SampleOrder(SAMPLES, BATCH), []
    run = Trainer(model, optimizer, order, partial(plain_loss, rows), schedule)
    run.train(4, lambda state, step: saved.append((step, len(state["losses"]))), every=3)
    assert (run.losses, saved) == (plain, [(3, 3), (4, 4)])


def test_a_loss_is_the_mean_over_the_ranks():
    one = results(world.simulate, 1, whole, "", without_luck)[0]["losses"]
    two = results(world.simulate, 2, whole, "", without_luck)
    assert torch.equal(two[0]["losses"], two[1]["losses"])
    assert torch.allclose(one, two[0]["losses"], rtol=1e-5, atol=0)


# -- bit for bit ---------------------------------------------------------------------------------


def test_alone_it_goes_on_with_the_same_bits(tmp_path):
    begin(None, tmp_path)
    assert difference(go_on(None, tmp_path), whole(None, tmp_path)) is None


@pytest.mark.parametrize(
    ("start", "ranks"), [(world.simulate, 2), (world.simulate, 3), (world.launch, 3)]
)
def test_ranks_go_on_with_the_same_bits(tmp_path, start, ranks):
    never = results(start, ranks, whole, tmp_path)
    results(start, ranks, begin, tmp_path)
    again = results(start, ranks, go_on, tmp_path)
    assert [difference(a, b) for a, b in zip(again, never, strict=True)] == [None] * ranks
    assert len({r["random"].value["torch"].numpy().tobytes() for r in never}) == ranks


def test_simulated_ranks_are_those_of_real_processes(tmp_path):
    """Though as threads they share Python's and NumPy's random numbers."""
    results(world.launch, 2, begin, tmp_path)
    real, simulated = (results(w, 2, go_on, tmp_path) for w in (world.launch, world.simulate))
    for one, other in zip(real, simulated, strict=True):
        assert difference(one["order"], other["order"]) is None
        assert difference(one["random"], other["random"]) is None
        assert torch.allclose(one["losses"], other["losses"], rtol=1e-5)


def test_what_a_rank_draws_elsewhere_is_not_drawn_from_what_it_trains_with():
    def program(comm):
        run = trainer(comm)
        random.seed(5)
        np.random.seed(5)
        run.advance()
        return random.random(), np.random.rand()

    drawn = random.Random(5).random(), np.random.RandomState(5).rand()
    assert results(world.simulate, 1, program) == [drawn]


def test_a_save_beside_the_training_changes_no_bit(tmp_path):
    def beside(comm, folder):
        run = trainer(comm)
        with AsyncSaver(folder, comm) as saver:
            run.train(STEPS, saver.save, every=2)
        return run.state()

    never = results(world.launch, 2, whole, tmp_path)
    ran = results(world.launch, 2, beside, tmp_path)
    assert [difference(a, b) for a, b in zip(ran, never, strict=True)] == [None] * 2
    # Every checkpoint is of its own step, though tensors changed while it was written.
    for step in (6, 2):
        rotate_away(tmp_path, step)
        again = results(world.launch, 2, go_on, tmp_path)
        assert [difference(a, b) for a, b in zip(again, never, strict=True)] == [None] * 2


def rotate_away(folder, step):
    """Leave no checkpoint that is newer than a step."""
    for path in folder.iterdir():
        if int(path.name.removeprefix("step-")) > step:
            shutil.rmtree(path)
    assert latest(folder).step == step


# -- other numbers of ranks ----------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 6, 12])
def test_the_batch_of_a_step_is_the_same_samples_for_any_number_of_ranks(ranks):
    order, one = SampleOrder(SAMPLES, BATCH, seed=3), SampleOrder(SAMPLES, 1, seed=3)
    for _ in range(10):
        rows = order.take()
        dealt = torch.cat([share(rows, rank, ranks) for rank in range(ranks)])
        assert dealt.tolist() == rows.tolist() == [one.take().item() for _ in range(BATCH)]


def test_no_sample_is_read_twice_or_skipped_in_an_epoch_wherever_it_is_interrupted():
    order = SampleOrder(SAMPLES, BATCH, seed=2)
    read = []
    for step in range(SAMPLES):
        again = SampleOrder(SAMPLES, BATCH)
        again.load_state_dict(order.state_dict())
        read += again.take().tolist()
        order = again
        assert (order.epoch, order.next) == divmod((step + 1) * BATCH, SAMPLES)
    assert read == SampleOrder(SAMPLES, BATCH * SAMPLES, seed=2).take().tolist()
    epochs = [read[k * SAMPLES : (k + 1) * SAMPLES] for k in range(BATCH)]
    assert all(sorted(epoch) == list(range(SAMPLES)) for epoch in epochs)
    assert len(set(map(tuple, epochs))) == BATCH


def test_another_seed_gives_another_order_and_not_that_of_a_later_epoch():
    rows = [SampleOrder(SAMPLES, 2 * SAMPLES, seed).take().view(2, -1).tolist() for seed in (0, 1)]
    assert len({tuple(each) for both in rows for each in both}) == 4


def without_luck(comm):
    """Where nothing is drawn, in which ranks would differ."""
    return trainer(comm, dropout=0.0, drawn=False)


def test_with_fewer_or_more_ranks_it_trains_on_the_same_data(tmp_path):
    never = results(world.simulate, 4, whole, tmp_path, without_luck)[0]
    results(world.simulate, 4, begin, tmp_path, without_luck)
    for ranks in (1, 2, 3, 6):
        again = results(world.simulate, ranks, go_on, tmp_path, without_luck)[0]
        assert difference(again["order"], never["order"]) is None
        assert difference(again["schedule"], never["schedule"]) is None
        # Sums of float32 in another order: eps = 6e-8 in a gradient, which AdamW's division by its
        # square root passes on whole, four steps on.
        assert torch.equal(again["losses"][:CUT], never["losses"][:CUT])
        assert torch.allclose(again["losses"], never["losses"], rtol=1e-5, atol=0)


class RowsOfMomentum:
    """SGD with momentum on one matrix, of which each rank holds the momentum of some rows."""

    def __init__(self, weight, comm):
        self.weight, self.comm = weight, comm
        self.mine = torch.zeros_like(weight.view(comm.size, -1)[comm.rank])
        self.offset = comm.rank * len(self.mine)

    def zero_grad(self):
        self.weight.grad = None

    @torch.no_grad()
    def step(self):
        part = self.comm.reduce_scatter(self.weight.grad.flatten())
        self.mine.mul_(0.5).add_(part, alpha=0.25 / self.comm.size)
        self.weight.sub_(self.comm.all_gather(self.mine).view_as(self.weight))

    def state_dict(self):
        return {"momentum": Shard(self.mine, (self.offset,), (self.weight.numel(),))}

    def load_state_dict(self, state):
        self.mine.copy_(state["momentum"].tensor)


def in_rows(comm):
    """Whole numbers and halves of them, whose sums are exact in every order."""
    table = torch.arange(SAMPLES).float()[:, None] % 5 - 2

    def loss(model, rows):
        return (model.weight * table[rows].mean(0)).sum() * 4

    model = torch.nn.Linear(12, 1, bias=False)
    torch.nn.init.ones_(model.weight)
    optimizer = RowsOfMomentum(model.weight, comm)
    return Trainer(model, optimizer, SampleOrder(SAMPLES, 16), loss, None, comm)


def test_shards_are_asked_for_as_the_ranks_of_now_hold_them(tmp_path):
    never = results(world.simulate, 4, whole, tmp_path, in_rows)
    results(world.simulate, 4, begin, tmp_path, in_rows)
    again = results(world.simulate, 2, go_on, tmp_path, in_rows)
    parts = [
        torch.cat([each["optimizer"]["momentum"].tensor for each in run]) for run in (never, again)
    ]
    assert torch.equal(*parts)
    assert parts[0].count_nonzero() == 12
    assert torch.equal(never[0]["model"]["weight"], again[0]["model"]["weight"])
    assert torch.equal(never[0]["losses"], again[0]["losses"])


# -- what a checkpoint must not lack -------------------------------------------------------------


@pytest.mark.parametrize(
    ("lacking", "step"),
    [("random", CUT + 1), ("order", CUT + 1), ("optimizer", CUT + 2), ("schedule", CUT + 3)],
)
def test_a_checkpoint_that_lacks_a_part_goes_on_with_other_losses(tmp_path, lacking, step):
    """From the first step on where a loss depends on it, from the second where an update does.

    A new schedule is found out last: the optimizer has brought along the rate of the first update,
    and the schedule sets its own, that of its second step, before the next one.
    """

    def make(comm):
        run = trainer(comm)
        del run.parts[lacking]
        return run

    never = whole(None, tmp_path)
    begin(None, tmp_path, make)
    again = go_on(None, tmp_path, make)
    assert first_difference(again["losses"].tolist(), never["losses"].tolist()) == step


@pytest.mark.parametrize("lacking", ["torch", "python", "numpy"])
def test_each_kind_of_random_numbers_is_needed(tmp_path, lacking):
    def make(comm):
        run = trainer(comm)
        random_states = run.parts["random"]

        class Some:
            def state_dict(self):
                return random_states.state_dict()

            def load_state_dict(self, state):
                here = random_states.state_dict().value[lacking]
                random_states.load_state_dict(PerRank({**state.value, lacking: here}))

        run.parts["random"] = Some()
        return run

    never = whole(None, tmp_path)
    begin(None, tmp_path, make)
    again = go_on(None, tmp_path, make)
    steps = first_difference(again["losses"].tolist(), never["losses"].tolist())
    # A window has two places, so chance may choose the same for some steps.
    assert steps is not None
    assert steps > CUT


def test_replayed_data_is_read_twice_and_as_much_is_skipped():
    order = SampleOrder(SAMPLES, BATCH)
    before = order.take().tolist() + order.take().tolist()
    replayed = SampleOrder(SAMPLES, BATCH).take().tolist()
    assert set(replayed) <= set(before)
    assert set(order.take().tolist()[: SAMPLES - 2 * BATCH]).isdisjoint(before)


# -- resuming ------------------------------------------------------------------------------------


def test_there_is_nothing_to_resume_before_the_first_checkpoint(tmp_path):
    assert trainer(None).resume(tmp_path) is None
    assert trainer(None).resume(tmp_path / "nowhere") is None


def test_it_says_what_it_skipped_and_goes_on_from_the_last_good_one(tmp_path):
    run = trainer(None)
    run.train(6, into(tmp_path), every=2)
    (tmp_path / "step-000000000006" / "manifest.json").unlink()
    again = trainer(None)
    with pytest.warns(RuntimeWarning, match=r"skipped: .*step-000000000006 has no manifest.json"):
        found = again.resume(tmp_path)
    assert (found.step, again.step, len(found.skipped)) == (4, 4, 1)
    assert again.train(6) == run.losses


def test_a_run_whose_checkpoints_are_all_bad_does_not_begin_anew(tmp_path):
    begin(None, tmp_path)
    (tmp_path / f"step-{CUT:012d}" / "rank-00000.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"has no good checkpoint: .*is missing"):
        trainer(None).resume(tmp_path)


def test_one_rank_alone_speaks_of_what_was_skipped(tmp_path):
    results(world.simulate, 2, begin, tmp_path)
    (save(trainer(None).state(), tmp_path, CUT + 1) / "rank-00000.safetensors").write_bytes(b"")

    def resumes(comm):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            found = trainer(comm).resume(tmp_path)
        return found.step, len(found.skipped), len(said)

    assert results(world.launch, 2, resumes) == [(CUT, 1, 1), (CUT, 1, 0)]


def test_what_joins_the_parts_is_saved_and_asked_for(tmp_path):
    def make(comm):
        run = trainer(comm)
        run.parts["average"] = torch.optim.swa_utils.AveragedModel(run.model)
        return run

    begin(None, tmp_path)
    with pytest.raises(ValueError, match=r"like\['average'\] is not in the checkpoint"):
        make(None).resume(tmp_path)
    with pytest.raises(ValueError, match="must be a dictionary that has average as well"):
        make(None).load(trainer(None).state())
    begin(None, tmp_path / "averaged", make)
    assert (
        difference(
            go_on(None, tmp_path / "averaged", make)["average"], whole(None, "", make)["average"]
        )
        is None
    )


def test_a_rank_that_there_was_not_draws_as_it_began(tmp_path):
    results(world.simulate, 1, begin, tmp_path)

    def draws(comm):
        run = trainer(comm)
        before = run.parts["random"].state_dict()
        run.resume(tmp_path)
        return difference(before, run.parts["random"].state_dict()) is None

    assert results(world.simulate, 3, draws) == [False, True, True]


# -- errors --------------------------------------------------------------------------------------


def some(**other):
    """A Trainer of which some argument is another."""
    model = torch.nn.Linear(1, 1)
    said = {
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
        "order": SampleOrder(8, 4),
        "loss": lambda model, rows: model(rows[:, None].float()).mean(),
    }
    return Trainer(**{**said, **other})


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: share(torch.arange(12), 0, 5), "12 does not divide by 5 ranks: take one of 10"),
        (lambda: share(torch.arange(3), 0, 5), "3 does not divide by 5 ranks: take one of 5"),
        (lambda: some(optimizer=torch.nn.Linear(1, 1)).optimizer, "methods zero_grad, step, state"),
        (lambda: some(schedule=3), "schedule is 3; it must be an object with the methods step"),
        (lambda: some(loss=lambda m, rows: 1.0).advance(), r"What loss\(\) returned is 1.0"),
        (lambda: some(loss=lambda m, rows: m.weight.data.sum()).advance(), "one number that"),
        (lambda: some(loss=lambda m, rows: rows[:, None] * m.weight).advance(), "one number that"),
        (lambda: some().train(3, save=4), "save is 4; it must be a function of a state and a step"),
        (
            lambda: SampleOrder(9, 4).load_state_dict(SampleOrder(8, 4).state_dict()),
            "among 8 samples, and here are 9: go on with the data",
        ),
        (lambda: SampleOrder(9, 4).load_state_dict({}), "a dictionary of samples, seed, epoch"),
        (
            lambda: some().parts["random"].load_state_dict(PerRank({"torch": 1})),
            "must be a PerRank, as state_dict\\(\\) gives it",
        ),
    ],
)
def test_what_cannot_be_trained_is_a_sentence(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_ranks_that_a_batch_does_not_divide_by_are_refused_before_the_first_step():
    with pytest.raises(ValueError, match="12 does not divide by 5 ranks"):
        results(world.simulate, 5, trainer)
