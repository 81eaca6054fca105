"""What a pipeline's replicas send each other once a step, and how much of it nothing hides."""

from __future__ import annotations

from dlsys.annotated import checked
from dlsys.checks import at_least
from dlsys.pipeline_parallel.price import Price
from dlsys.streams import Span


@checked
def exposed_seconds(price: Price, reduce: float, gather: float = 0.0) -> float:
    """By how many seconds the messages between data-parallel replicas lengthen a priced step.

    Seconds in which each rank's link is busy with them, shared evenly by the stages of a rank:

    - reduce: gradients. Those of a stage are final only in its backward pass on the last
      micro-batch, where they come evenly, the last layer's first; whatever is sent after the step's
      last action is exposed. Where the backward pass is split, that pass is W.
    - gather: updated weights. A stage needs them from its first forward pass on, evenly, and they
      are sent from the start of the step: its passes wait for what has not come.

    Messages between stages use the same link, and are left out here. With one stage per rank, of
    equal seconds, this is max(reduce - T_B, 0) + max(gather - T_F, 0): behind one micro-batch's
    passes they hide, however many there are. Raises ValueError for negative seconds.
    """
    at_least("reduce", reduce, 0)
    at_least("gather", gather, 0)
    late = (_after(spans, price.makespan, reduce) for spans in price.spans if spans)
    early = (_before(spans, gather) for spans in price.spans if spans)
    return max(0.0, *late) + max(0.0, *early)


def _after(spans: tuple[Span, ...], end: float, seconds: float) -> float:
    """How long after `end` a rank's gradients have been sent: `_wait`, read backward in time."""
    kind = "W" if any(span.action.kind == "W" for span in spans) else "B"
    last = {span.action.stage: span for span in spans if span.action.kind == kind}
    return _wait([end - span.start for span in last.values()], seconds)


def _before(spans: tuple[Span, ...], seconds: float) -> float:
    """How long a rank's forward passes wait for weights that are sent from second 0 on."""
    first = {span.action.stage: span for span in reversed(spans) if span.action.kind == "F"}
    return _wait([span.end for span in first.values()], seconds)


def _wait(ends: list[float], seconds: float) -> float:
    """The delay after which equal parts of `seconds`, in a row from 0 on, all come in time.

    ends: when the pass that uses a part ends, one pass after another. Each uses its part evenly, so
    it waits longest at its end, or at its start, which is no sooner than the end of the one before.
    """
    sent = (seconds * part / len(ends) for part in range(1, len(ends) + 1))
    return max((all_of - end for all_of, end in zip(sent, sorted(ends), strict=True)), default=0.0)
