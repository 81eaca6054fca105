"""A whole run on one device: batches, schedule, clipping, accumulation, and a look now and then."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from dlsys.annotated import checked
from dlsys.checks import at_least, count, finite, positive, refuse, refuse_what
from dlsys.model import GPT, SMALL
from dlsys.tensors import in_one_thread, indices, of_shape
from dlsys.training_loop.optimizers import AdamW
from dlsys.training_loop.plan import step_plan
from dlsys.training_loop.schedules import warm_up_cosine
from dlsys.training_loop.text import byte_tokens, hold_back, shuffled, windows
from dlsys.training_loop.training_step import Schedule, run_step
from dlsys.transformer import TransformerSpec


class Record(NamedTuple):
    """A step: its rate, the batch's loss before it, the gradient's norm, whether it was skipped,
    and after it the loss on held-back text, where that was looked at."""

    step: int
    rate: float
    loss: float
    norm: float
    skipped: bool
    held_back: float | None


@checked
def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: Iterable[Tensor],
    steps: int,
    rate: Callable[[int], float] | None = None,
    max_norm: float = 1.0,
    micro_batch: int | None = None,
    held_back: Tensor | None = None,
    every: int = 1,
) -> list[Record]:
    """Train `model(tokens, targets) -> mean loss` for `steps` steps, in one thread.

    Args: `batches`, rows (batch, length + 1) one after the other; `rate(step)`, a schedule, or the
    optimizer's own rate; `max_norm` of clipping; `micro_batch`, the rows that pass at once, or all;
    `held_back`, rows that are looked at after each `every` steps and after the last. Where batches
    end before, so does the run.
    """
    steps, every = count("steps", steps, most=10**7), count("every", every)
    positive("max_norm", max_norm)
    if micro_batch is not None:
        count("micro_batch", micro_batch)
    if held_back is not None:
        _rows("held_back", held_back)
    if isinstance(batches, Tensor):
        refuse("batches", batches, "Tensors one after the other, such as shuffled(tokens, 8, 32)")
    group = optimizer.param_groups[0]
    schedule = Schedule(optimizer, rate) if rate is not None else None
    records: list[Record] = []
    for step, rows in in_one_thread(zip(range(steps), batches, strict=False)):
        _rows("batches", rows)
        parts = rows.split(micro_batch or len(rows))
        plan, now = step_plan([part[:, 1:].numel() for part in parts]), group["lr"]
        found = run_step(
            plan, lambda part: loss_on(model, part), parts, optimizer, max_norm, schedule
        )
        look = held_back is not None and ((step + 1) % every == 0 or step + 1 == steps)
        seen = evaluate(model, held_back) if look and held_back is not None else None
        norm = 0.0 if found.norm is None else found.norm
        records.append(Record(step, now, found.loss, norm, found.skipped, seen))
    return records


@checked
def learn_text(
    text: str,
    steps: int = 500,
    spec: TransformerSpec = SMALL,
    batch: int = 16,
    peak: float = 3e-3,
    every: int = 50,
    seed: int = 0,
) -> tuple[GPT, list[Record]]:
    """A GPT that reads bytes, trained on nine tenths of a text as large runs are trained.

    AdamW with betas 0.9 and 0.95, decay on matrices alone, clipping at 1, warm-up over a tenth of
    the steps and a cosine down to a tenth of `peak`. The records look at the last tenth. The whole
    of it takes less than a minute on one core.
    """
    if spec.vocab < 256:
        refuse_what("spec", f"of a vocab of {spec.vocab}", "of at least 256, for all bytes")
    positive("peak", peak)
    if peak > 1:
        refuse("peak", peak, "at most 1, which is far too much already")
    if len(text) <= 2 * spec.sequence + 2:
        refuse_what("text", f"of {len(text)} letters", f"of more than {2 * spec.sequence + 2}")
    learned, held = hold_back(byte_tokens(text))
    rows = shuffled(learned, batch, spec.sequence, seed)
    look = windows(held, min(spec.sequence, len(held) - 2))
    model, before = GPT(spec, seed=seed), max(1, count("steps", steps, 2) // 10)
    optimizer = AdamW(decay_groups(model, 0.1), peak, (0.9, 0.95))
    rate = partial(warm_up_cosine, steps=steps, warm_up_steps=before, peak=peak, least=peak / 10)
    return model, train(model, optimizer, rows, steps, rate, held_back=look, every=every)


@checked
def decay_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Groups for an optimizer: matrices decay, norms and biases, which are vectors, do not."""
    at_least("weight_decay", weight_decay, 0)
    learning = [p for p in model.parameters() if p.requires_grad]
    return [
        {"params": [p for p in learning if p.dim() >= 2], "weight_decay": weight_decay},
        {"params": [p for p in learning if p.dim() < 2], "weight_decay": 0.0},
    ]


def loss_on(model: nn.Module, rows: Tensor) -> Tensor:
    """The mean loss of rows (b, length + 1), each token from those before it."""
    return model(rows[:, :-1], rows[:, 1:])


@checked
@torch.no_grad()
def evaluate(model: nn.Module, rows: Tensor, batch: int = 64) -> float:
    """The mean loss of rows (n, length + 1), with dropout off, in batches of forward passes."""
    _rows("rows", rows)
    was, model = model.training, model.eval()
    parts = rows.split(count("batch", batch))
    total = sum(float(loss_on(model, part)) * len(part) for part in parts)
    model.train(was)
    return total / len(rows)


@checked
def steps_to(losses: Sequence[float], target: float, window: int = 1) -> int | None:
    """After how many steps the mean of the last `window` losses is first at most `target`.

    None where it never is.
    """
    finite("target", target)
    window = count("window", window)
    for loss in losses:
        finite("losses", loss)
    for end in range(window, len(losses) + 1):
        if sum(losses[end - window : end]) / window <= target:
            return end
    return None


def evaluation_share(every: int, batch: int, held_back: int) -> float:
    """The part of all FLOPs that goes into looking: held_back / (held_back + 3 x every x batch).

    All counted in rows, or all in tokens: a forward pass is a third of what a trained row takes.
    """
    rows = count("held_back", held_back, 0)
    return rows / (rows + 3 * count("every", every) * count("batch", batch))


def _rows(name: str, rows: Tensor) -> None:
    if not isinstance(rows, Tensor):
        refuse(name, rows, "a Tensor (n, length + 1)")
    indices(name, rows)
    if rows.dim() != 2 or rows.shape[1] < 2 or not len(rows):
        refuse_what(name, of_shape(rows), "of shape (n, length + 1)")
