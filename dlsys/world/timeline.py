"""When each rank did what: the spans of a run, as a Gantt chart or a trace for Perfetto."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from dlsys.annotated import checked
from dlsys.checks import count, refuse
from dlsys.files import written
from dlsys.world.span import KINDS, Span
from dlsys.world.traffic import Traffic

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass
class Timeline:
    """The spans of a run, in no particular order."""

    ranks: int
    spans: list[Span] = field(default_factory=list)

    @checked
    def of(self, rank: int, kind: str | None = None) -> list[Span]:
        """The spans of one rank (of one kind of KINDS), by start; raises ValueError for others."""
        rank = count("rank", rank, 0, self.ranks - 1)
        if kind is not None and kind not in KINDS:
            refuse("kind", kind, f"{', '.join(KINDS)} or None")
        return sorted(s for s in self.spans if s.rank == rank and kind in (None, s.kind))

    @checked
    def seconds(self, rank: int, kind: str | None = None) -> float:
        """How long `rank` spent on spans (of one kind), overlapping ones counted once."""
        total, reached = 0.0, float("-inf")
        for span in self.of(rank, kind):
            total += max(0.0, span.end - max(span.start, reached))
            reached = max(reached, span.end)
        return total

    def chrome_trace(self) -> dict:
        """The Trace Event Format that Perfetto and chrome://tracing open; times in microseconds."""
        lanes = {kind: lane for lane, kind in enumerate(KINDS)}
        events: list[dict] = []
        for rank in range(self.ranks):
            events.append(_metadata("process_name", rank, 0, f"rank {rank}"))
            events += [_metadata("thread_name", rank, lanes[kind], kind) for kind in KINDS]
        events += [
            {
                "ph": "X",
                "pid": span.rank,
                "tid": lanes[span.kind],
                "ts": span.start * 1e6,
                "dur": (span.end - span.start) * 1e6,
                "name": span.name,
                "cat": span.kind,
            }
            for span in sorted(self.spans)
        ]
        return {"displayTimeUnit": "ns", "traceEvents": events}

    @checked
    def save(self, path: str | Path) -> None:
        """Write the chrome trace to `path` as JSON."""
        with written(path) as file:
            file.write(json.dumps(self.chrome_trace()).encode())

    @checked
    def draw(self, title: str = "") -> Figure:
        """A Gantt chart: a row per rank, compute above communication, waiting hatched."""
        from dlsys.world.draw import gantt

        return gantt(self.ranks, self.spans, title)


def timeline_of(traffic: Traffic, spans: list[Span]) -> Timeline:
    """The timeline of a run: what its ranks recorded, and what follows from its traffic."""
    spans = list(spans)
    for m in traffic.messages:
        if m.kind == "send":
            spans.append(Span(m.src, m.start, m.end, "communication", f"send to {m.dst}"))
            spans.append(Span(m.dst, m.start, m.end, "communication", f"recv from {m.src}"))
    spans += [Span(c.rank, c.start, c.end, "communication", c.kind) for c in traffic.calls]
    return Timeline(traffic.ranks, spans)


def _metadata(what: str, process: int, thread: int, name: str) -> dict:
    return {"ph": "M", "pid": process, "tid": thread, "name": what, "args": {"name": name}}
