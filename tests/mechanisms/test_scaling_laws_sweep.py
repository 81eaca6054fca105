"""The sweep of tiny models: that its table is what running the script again would find."""

import hashlib
import json
import runpy
from collections import Counter
from dataclasses import asdict, replace
from importlib.resources import files

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from dlsys.model import GPT
from dlsys.plain_data import as_data, from_data
from dlsys.scaling_laws import Run, initialized, pieces, text, tiny_sweep, token_ids, train
from dlsys.scaling_laws.sweep import BLOCK, HELD_OUT, KINDS, SEQUENCE, STEP
from dlsys.scaling_laws.tiny import batches, learning_rates, rate, windows
from tests.contents import ROOT

pytestmark = pytest.mark.usefixtures("one_thread")

SWEEP = tiny_sweep()
SHORT = Run(2, 16, 4 * STEP, 0.02, 4 * STEP)
BAND = 0.002  # nats: another order of additions changes 0.00001, another seed 0.02


def quickest(kind, **wanted):
    """The row of a kind that takes the least time to run again."""
    rows = [r for r in SWEEP.of(kind) if wanted.items() <= asdict(r.run).items()]
    return min(rows, key=lambda row: (row.run.tokens, row.run.hidden))


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        ("iso_flop", {}),
        ("iso_flop", {"hidden": 8}),
        ("corrupted", {"corrupted": 0.4}),
        ("transfer", {"parametrization": "mup", "hidden": 32, "learning_rate": 0.04}),
    ],
)
def test_a_run_made_again_ends_with_the_loss_of_the_table(kind, wanted):
    row = quickest(kind, **wanted)
    assert train(row.run) == pytest.approx(row.loss, abs=BAND)


def test_the_table_holds_the_rows_that_the_script_plans_and_no_others():
    plan = runpy.run_path(str(ROOT / "bench" / "scaling_sweep.py"))["plan"]()
    assert [(row.kind, row.run) for row in SWEEP.rows] == plan
    assert {row.kind for row in SWEEP.rows} == set(KINDS)


def test_every_number_of_the_file_is_read():
    held = json.loads(files("dlsys.scaling_laws").joinpath("sweep.json").read_text("utf-8"))
    rows = held.pop("rows")
    assert held == {name: getattr(SWEEP, name) for name in ("tokens", "held_out", "sha256")}
    for row, given in zip(SWEEP.rows, rows, strict=True):
        flat = {n: value for n, value in vars(row).items() if n != "run"} | asdict(row.run)
        assert flat == given


@pytest.mark.parametrize("row", {row.run.hidden: row for row in SWEEP.rows}.values())
def test_parameters_and_flops_are_those_of_the_model_that_is_trained(row):
    model = initialized(row.run)
    sizes = {name: parameter.numel() for name, parameter in model.named_parameters()}
    outside = sizes["embedding.weight"] + sizes["head.weight"]
    assert (row.parameters, row.non_embedding) == (
        sum(sizes.values()),
        sum(sizes.values()) - outside,
    )
    plain = GPT(row.run.spec)  # its attention is products that the counter knows
    rows = next(batches(row.run))
    with FlopCounterMode(display=False) as counter:
        plain(rows[:, :-1], rows[:, 1:]).backward()
    assert row.flops == counter.get_total_flops() * row.run.tokens / STEP


def test_the_text_is_the_one_that_was_trained_on():
    assert hashlib.sha256(text().encode()).hexdigest() == SWEEP.sha256
    assert [len(part) * SEQUENCE for part in windows()] == [SWEEP.tokens, SWEEP.held_out]
    assert len(pieces()) == SHORT.spec.vocab == len(set(token_ids()))
    assert "# Sharded data parallelism" in text()


def test_no_held_out_token_is_trained_on():
    ids = list(token_ids())
    blocks = [ids[i : i + BLOCK] for i in range(0, len(ids), BLOCK)]
    held = [t for number, block in enumerate(blocks, 1) if number % HELD_OUT == 0 for t in block]
    rest = [t for number, block in enumerate(blocks, 1) if number % HELD_OUT for t in block]
    for part, tokens in zip(windows(), (rest, held), strict=True):
        assert part[:, :-1].flatten().tolist() == tokens[: part[:, :-1].numel()]
        assert part[:-1, -1].tolist() == part[1:, 0].tolist(), "the last is what follows"


def test_an_iso_flop_group_spends_one_budget():
    budgets = runpy.run_path(str(ROOT / "bench" / "scaling_sweep.py"))["BUDGETS"]
    rows = list(SWEEP.of("iso_flop"))
    for budget, widths in budgets.items():
        group, rows = rows[: len(widths)], rows[len(widths) :]
        assert [row.run.hidden for row in group] == list(widths)
        for row in group:
            assert abs(row.flops - budget) <= row.run.spec.training_flops(2) / 2
    assert rows == []


def test_the_run_held_back_is_larger_than_every_other_one():
    (held_back,) = SWEEP.of("held_back")
    others = [row for row in SWEEP.rows if row is not held_back]
    assert held_back.flops > 3 * max(row.flops for row in others)
    fitted = [row for row in others if row.kind != "transfer"]
    assert held_back.parameters > 3 * max(row.parameters for row in fitted)


def test_only_repeated_rows_see_a_token_twice():
    for row in SWEEP.rows:
        assert (row.run.epochs > 1) == (row.kind == "repeated" and row.run.tokens > row.run.unique)


@pytest.mark.parametrize("epochs", [1, 3])
def test_every_unique_window_is_read_once_an_epoch_in_an_order_of_its_own(epochs):
    run = replace(SHORT, tokens=epochs * SHORT.unique)
    rows = [tuple(row.tolist()) for some in batches(run) for row in some]
    number = run.unique // SEQUENCE
    parts = [rows[i : i + number] for i in range(0, len(rows), number)]
    assert [set(part) for part in parts] == [set(parts[0])] * epochs
    assert set(Counter(rows).values()) == {epochs}
    assert len(set(map(tuple, parts))) == epochs, "another order each time"
    assert set(parts[0]) <= {tuple(row) for row in windows()[0].tolist()}


def test_another_seed_has_other_weights_and_another_order():
    other = replace(SHORT, seed=1)
    weights = [initialized(run).layers[0].ffn.up.weight for run in (SHORT, other)]
    assert not torch.equal(*weights)
    assert not torch.equal(next(batches(SHORT)), next(batches(other)))


def test_corruption_changes_that_share_of_the_training_tokens_and_no_others():
    long = replace(SHORT, tokens=400 * STEP, unique=400 * STEP)
    clean, dirty = (torch.cat(list(batches(replace(long, corrupted=c)))) for c in (0.0, 0.25))
    same_windows = torch.cat(list(batches(replace(long, corrupted=1e-9))))
    changed = (same_windows != dirty).float().mean()
    assert changed == pytest.approx(0.25 * (1 - 1 / 346), abs=0.01)
    known = {tuple(row) for row in windows()[0].tolist()}
    assert {tuple(row) for row in clean.tolist()} <= known


def test_the_learning_rate_rises_over_a_tenth_of_the_steps_and_falls_to_nothing():
    assert [rate(step, 20) for step in (0, 1, 2, 11, 19)] == pytest.approx([0.5, 1, 1, 0.5, 1 / 18])
    assert rate(0, 1) > 0


def trained(model, groups, multiplier=1.0, steps=12):
    """Losses of a few steps of Adam, the head's result multiplied."""
    adam = torch.optim.Adam(groups, betas=(0.9, 0.95), eps=1e-20)
    losses = []
    for rows in list(batches(replace(SHORT, tokens=steps * STEP, unique=steps * STEP))):
        adam.zero_grad()
        logits = model(rows[:, :-1]) * multiplier
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        loss.backward()
        adam.step()
        losses.append(loss.item())
    return losses


def test_mup_trains_as_table_8_of_its_paper_says():
    """Output multiplier 1/m, the head's learning rate the base model's; ours folds it in."""
    run = replace(SHORT, hidden=64, parametrization="mup")
    m, ours, theirs = 4, initialized(run).double(), initialized(run).double()
    with torch.no_grad():
        theirs.head.weight.mul_(m)
    hidden = [p for n, p in theirs.layers.named_parameters() if p.dim() == 2]
    rest = [p for p in theirs.parameters() if all(p is not one for one in hidden)]
    groups = [
        {"params": hidden, "lr": run.learning_rate / m},
        {"params": rest, "lr": run.learning_rate},
    ]
    table_8 = trained(theirs, groups, multiplier=1 / m)
    assert trained(ours, learning_rates(ours, run)) == pytest.approx(table_8, rel=1e-9)


def test_at_the_base_width_both_parametrizations_are_one():
    mup = replace(SHORT, parametrization="mup")
    assert train(SHORT) == train(mup)
    wide = [train(replace(run, hidden=32)) for run in (SHORT, mup)]
    assert wide[0] != wide[1]


def test_rows_travel_as_plain_data():
    row = SWEEP.rows[0]
    assert from_data("dlsys.scaling_laws.sweep.Row", as_data(row)) == row


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tokens": 100}, "multiple of the 128 tokens"),
        ({"unique": 5 * STEP}, "at most the 512 tokens"),
        ({"corrupted": 1.5}, "fraction"),
        ({"parametrization": "sp"}, "There is no parametrization 'sp'"),
        ({"learning_rate": 0.0}, "above zero"),
    ],
)
def test_a_run_that_cannot_be_is_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        replace(SHORT, **changes)


def test_more_unique_tokens_than_the_text_has_are_refused():
    whole = SWEEP.tokens // STEP * STEP + STEP
    with pytest.raises(ValueError, match="more than the 239,360 of the text"):
        train(replace(SHORT, tokens=whole, unique=whole))


def test_an_unknown_kind_of_rows_is_refused():
    with pytest.raises(ValueError, match="did you mean 'iso_flop'"):
        SWEEP.of("isoflop")
