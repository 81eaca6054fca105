"""Traces: what ran when, in the format that Perfetto opens and torch.profiler writes."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from dlsys.annotated import checked
from dlsys.checks import at_least, refuse, some
from dlsys.files import written
from dlsys.plain_data import plain_data

KERNEL, COMMUNICATION, HOST, INPUT = "kernel", "communication", "host", "input"
CATEGORIES = (KERNEL, COMMUNICATION, HOST, INPUT)
"""What an event is: work of a device, messages, work of the host, and the host's wait for data."""

# What torch.profiler and `dlsys.world` call these; anything else is no event of ours.
_KNOWN = {each: each for each in CATEGORIES}
_KNOWN |= dict.fromkeys(("gpu_memcpy", "gpu_memset", "compute"), KERNEL)
_KNOWN |= dict.fromkeys(("cpu_op", "cuda_runtime", "cuda_driver"), HOST)


@plain_data
class Event(NamedTuple):
    """[start, end) seconds in a lane: of one of CATEGORIES, with FLOPs and bytes where known."""

    name: str
    category: str
    start: float
    end: float
    lane: str = ""
    flops: int = 0
    nbytes: int = 0
    product: bool = False

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.end - self.start


@checked
@plain_data
@dataclass(frozen=True)
class Trace:
    """Events in no particular order. Raises ValueError for one that ends before it starts, or is of
    no known category."""

    events: tuple[Event, ...]

    def __post_init__(self) -> None:
        some("events", self.events)
        for event in self.events:
            if not isinstance(event, Event):
                refuse("An event of events", event, "an Event, of name, category, start and end")
        object.__setattr__(self, "events", tuple(self.events))
        for event in self.events:
            at_least(f"The seconds in events, of {event.name}", event.seconds, 0)
            if event.category not in CATEGORIES:
                refuse(f"The category in events, of {event.name},", event.category, _words())

    @property
    def start(self) -> float:
        """When the first event starts."""
        return min(event.start for event in self.events)

    @property
    def seconds(self) -> float:
        """From the first start to the last end."""
        return max(event.end for event in self.events) - self.start

    @checked
    def of(self, category: str) -> list[Event]:
        """The events of one of CATEGORIES, by start; raises ValueError for another."""
        if category not in CATEGORIES:
            refuse("category", category, _words())
        found = (event for event in self.events if event.category == category)
        return sorted(found, key=lambda event: (event.start, event.end))

    @checked
    def covered(self, category: str) -> list[Stretch]:
        """The time that events of one of CATEGORIES cover, as stretches in order."""
        return union((event.start, event.end) for event in self.of(category))

    def own_seconds(self) -> dict[str, tuple[int, float]]:
        """By name: how many events, and their seconds without those of events inside them, the
        longest first. An event lies inside another one of its lane that starts before and ends
        after it, as operations that call others do."""
        totals: dict[str, tuple[int, float]] = {}
        for lane in {event.lane for event in self.events}:
            for event, inside in _nested(event for event in self.events if event.lane == lane):
                number, seconds = totals.get(event.name, (0, 0.0))
                totals[event.name] = number + 1, seconds + event.seconds - inside
        return dict(sorted(totals.items(), key=lambda item: -item[1][1]))

    @checked
    def save(self, path: str | Path) -> None:
        """Write it as JSON that Perfetto opens."""
        with written(path) as file:
            file.write(json.dumps(self.chrome()).encode())

    def chrome(self) -> dict[str, Any]:
        """The trace in the Trace Event Format: times in microseconds, a thread for each lane."""
        lanes = {lane: i for i, lane in enumerate(sorted({e.lane for e in self.events}))}
        named = [
            {"ph": "M", "pid": 0, "tid": tid, "name": "thread_name", "args": {"name": lane}}
            for lane, tid in lanes.items()
        ]
        timed = [
            {
                "ph": "X",
                "pid": 0,
                "tid": lanes[event.lane],
                "ts": event.start * 1e6,
                "dur": event.seconds * 1e6,
                "name": event.name,
                "cat": event.category,
                "args": {"flops": event.flops, "bytes": event.nbytes, "product": event.product},
            }
            for event in self.events
        ]
        return {"traceEvents": [*named, *timed]}


@checked
def read_trace(source: str | Path | Mapping[str, Any]) -> Trace:
    """A trace of `Trace.save`, of `world`'s timeline or of torch.profiler's `export_chrome_trace`.

    source: a file, or what it holds. Times count from the first event. A kernel of NCCL is
    communication, and the profiler's step of a DataLoader is input. Raises ValueError where there
    is no event to read.
    """
    held: Any = source if isinstance(source, Mapping) else _loaded(source)
    events = held.get("traceEvents") if isinstance(held, Mapping) else held
    if not isinstance(events, Sequence) or isinstance(events, str):
        refuse("source", held, "a trace, with a list of `traceEvents`")
    lanes = {_thread(e): str(e["args"]["name"]) for e in events if _names_a_thread(e)}
    read = [event for event in events if _is_read(event)]
    if not read:
        refuse("source", held, f"a trace with events of {_words()}")
    # A clock of this century in microseconds leaves too few digits for what takes less than one.
    first = min(float(event["ts"]) for event in read)
    return Trace(tuple(_event(event, first, lanes) for event in read))


def _loaded(path: str | Path) -> Any:
    if not Path(path).is_file():  # to read a pipe might never end
        refuse("source", str(path), "a file of JSON")
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        refuse("source", str(path), "a file of JSON")


def _event(event: Mapping[str, Any], first: float, lanes: Mapping[Any, str]) -> Event:
    start, args = (float(event["ts"]) - first) * 1e-6, event.get("args", {})
    return Event(
        str(event["name"]),
        _category(event),
        start,
        start + float(event["dur"]) * 1e-6,
        lanes.get(_thread(event), str(_thread(event))),
        int(args.get("flops", 0)),
        int(args.get("bytes", 0)),
        bool(args.get("product", False)),
    )


def _category(event: Mapping[str, Any]) -> str:
    name = str(event.get("name", ""))
    if "DataLoader" in name:
        return INPUT
    category = _KNOWN.get(str(event.get("cat", "")), "")
    return COMMUNICATION if category == KERNEL and name.startswith("nccl") else category


def _is_read(event: Any) -> bool:
    timed = isinstance(event, Mapping) and event.get("ph") == "X" and {"ts", "dur"} <= event.keys()
    return timed and bool(_category(event))


def _names_a_thread(event: Any) -> bool:
    return isinstance(event, Mapping) and event.get("name") == "thread_name"


def _thread(event: Mapping[str, Any]) -> tuple[Any, Any]:
    return event.get("pid"), event.get("tid")


def _words() -> str:
    return f"one of {', '.join(CATEGORIES)}"


# -- stretches of time ---------------------------------------------------------------------------

Stretch = tuple[float, float]


def union(stretches: Iterable[Stretch]) -> list[Stretch]:
    """The time that any of them covers, as stretches in order that do not touch."""
    merged: list[Stretch] = []
    for start, end in sorted(stretches):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def without(stretches: Iterable[Stretch], taken: Sequence[Stretch]) -> list[Stretch]:
    """What of some stretches no other one covers; both are in order and do not touch."""
    left: list[Stretch] = []
    ends = [stop for _, stop in taken]
    for start, end in stretches:
        for begin, stop in islice(taken, bisect_right(ends, start), None):
            if begin >= end:
                break
            if begin > start:
                left.append((start, begin))
            start = max(start, stop)
        if start < end:
            left.append((start, end))
    return left


def length(stretches: Iterable[Stretch]) -> float:
    """Seconds of all."""
    return sum(end - start for start, end in stretches)


def _nested(events: Iterable[Event]) -> Iterator[tuple[Event, float]]:
    """Each event of a lane, and the seconds of those right inside it."""
    opened: list[tuple[Event, list[float]]] = []
    for event in sorted(events, key=lambda event: (event.start, -event.end)):
        while opened and opened[-1][0].end <= event.start:
            done, inside = opened.pop()
            yield done, sum(inside)
        if opened and event.end <= opened[-1][0].end:
            opened[-1][1].append(event.seconds)
        opened.append((event, []))
    yield from ((done, sum(inside)) for done, inside in reversed(opened))
