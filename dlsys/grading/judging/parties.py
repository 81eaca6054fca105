"""The grader's side of a submission: the student's box and the referee's, and what is said there.

Either may die, hang or lie; here that is an exception or an answer without a value.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dlsys.grading.assignment import ANSWER, FREE, TEST, TRUSTED, Assignment, Cell, names_in
from dlsys.grading.boxes.sandbox import Limits
from dlsys.grading.boxes.warm import MEMORY, Boxes
from dlsys.grading.collecting.rebuild import Step
from dlsys.grading.judging.packing import unpack
from dlsys.grading.judging.wire import FOR_THE_GRADER, Channel, Closed, Garbled, TooLate

# What runs in the two boxes, by name: the grader itself loads neither, nor what these load.
INSIDE, REFEREE = f"{__package__}.inside", f"{__package__}.referee"
_MOST_TEXT = 4_000  # characters of what is said of one thing
_GRACE = 5.0  # seconds that the referee has beyond the student's, before it is given up


class Broke(RuntimeError):  # noqa: N818  (what a cell did)
    """A cell broke the kernel; the message says how, in a sentence about "it"."""


class StudentBox:
    """A box with the student's cells in it, and the snapshots of its questions."""

    def __init__(self, boxes: Boxes, limits: Limits, files: Mapping[str, bytes]) -> None:
        self._box, self._limits = boxes.open(INSIDE), limits
        self._channel = Channel(self._box.socket, limits.message_bytes, FOR_THE_GRADER)
        self.snapshots: dict[str, socket.socket] = {}
        self._held = self._box.held()
        self._tasks = self._box.tasks()
        self._greedy: Step | None = None
        self._crowding: Step | None = None
        try:
            self._ask(("files", dict(files)), limits.cell_seconds)
        except BaseException:
            self.close()
            raise

    def run(self, step: Step, seconds: float) -> str | None:
        """Run a cell, or make the snapshot of a question; what the cell ended with, or None.

        Raises Broke.
        """
        try:
            if step.kind != TEST:
                error = self._ask(("run", step.source), seconds).get("error")
                self._weigh(step)
                return None if error is None else _readable(error)
            mine, theirs = socket.socketpair()
            with theirs:
                self.snapshots[step.id] = mine
                self._ask(("snapshot",), seconds, [theirs.fileno()])
        except TooLate:
            raise Broke(f"It took longer than {seconds:g} s.") from None
        except Garbled:
            raise Broke("It disturbed what the kernel says to the grader.") from None
        except Closed:
            if self._box.died == MEMORY:
                raise Broke(self.too_much) from None
            raise Broke("It ended the kernel.") from None
        return None

    @property
    def too_much(self) -> str:
        """What is said of a cell that took too much memory."""
        return f"It needed more than {self._limits.memory_bytes / 2**30:g} GiB of memory."

    @property
    def greedy(self) -> tuple[Step, str] | None:
        """The student's cell that left more than half of the memory in use, where the box was ended
        for want of memory, or else more than half of its processes and threads: whatever ran then
        found too little. With what is said of it."""
        if self._box.died == MEMORY:
            return (self._greedy, self.too_much) if self._greedy else None
        too_many = (
            "It left more than half of the processes and threads running that a submission may "
            f"have, {self._limits.processes}."
        )
        return (self._crowding, too_many) if self._crowding else None

    def _weigh(self, step: Step) -> None:
        before, self._held = self._held, self._box.held()
        others, self._tasks = self._tasks, self._box.tasks()
        if step.kind in (ANSWER, FREE):
            if self._held - before > self._limits.memory_bytes / 2:
                self._greedy = step
            if self._tasks - others > self._limits.processes / 2:
                self._crowding = step

    def imported(self) -> list[str]:
        """The modules that the cells have imported: to be asked of nobody but the author."""
        return self._ask(("imported",), self._limits.cell_seconds)["modules"]

    def close(self) -> None:
        """End the box and everything in it."""
        for end in self.snapshots.values():
            end.close()
        self._box.close()

    def _ask(self, message: Any, seconds: float, files: Sequence[int] = ()) -> dict[str, Any]:
        self._channel.tell(message, files)
        said, _ = self._channel.hear(seconds)
        self._channel.expect_silence()  # else an answer made up beforehand would count for later
        if type(said) is not dict:
            raise Garbled("no answer")
        return said

    def is_well(self, thoroughly: bool = True) -> bool:
        """Whether the kernel is there still, and can make processes: a check may have killed it
        or filled its box. One that a cell has nearly filled may have had no room for it."""
        if thoroughly and self._crowding:
            return False
        try:
            return self._ask(("ping", thoroughly), _GRACE).get("done") is True
        except (TooLate, Garbled, Closed):
            return False


class Referee:
    """A referee's box, which evaluates the checks of one question after the other.

    Where it hangs or dies, a new one takes its place, with the trusted cells run again.
    """

    def __init__(
        self,
        boxes: Boxes,
        limits: Limits,
        assignment: Assignment,
        snapshots: Mapping[str, socket.socket],
    ) -> None:
        self._boxes, self._snapshots = boxes, snapshots
        self._limits = replace(limits, open_files=256)  # there is a socket to each rank
        self._stations = stations(assignment)
        self._behind = 0  # how many of them this box has behind it
        self._channel: Channel | None = None
        self._question, self._is_ready = "", False

    def question(self, question: str) -> None:
        """Turn to a question: what is evaluated from now on has its snapshot's names."""
        self._question, self._is_ready = question, False

    def evaluate(self, expression: str, cost: bool = False) -> tuple[str, Any]:
        """("value", plain value), or why there is none: ("late" | "not plain" | "error", text)."""
        try:
            if not self._is_ready:
                self._make_ready()
            said = self._ask(("evaluate", expression, cost))
            if type(said) is not tuple or len(said) != 2:
                raise Garbled("no answer")
            word, value = said
            return word, value if word == "value" else _readable(value)
        except (TooLate, Closed, Garbled) as error:
            self.close()
            word = "late" if isinstance(error, TooLate) else "error"
            return word, "The check could not be evaluated with this answer."

    def imported(self) -> list[str]:
        """The modules that the trusted cells and the checks have imported so far."""
        return self._ask(("imported",))

    def close(self) -> None:
        """End the box."""
        if self._channel is not None:
            self._box.close()
        self._channel, self._is_ready = None, False

    def _make_ready(self) -> None:
        """Run the trusted cells before the question, and take its names."""
        if self._channel is None:
            self._box, self._behind = self._boxes.open(REFEREE, self._limits), 0
            most = self._limits.message_bytes
            self._channel = Channel(self._box.socket, most, FOR_THE_GRADER)
        index = next(i for i, each in enumerate(self._stations) if each.question == self._question)
        for station in self._stations[self._behind : index + 1]:
            self._turn_to(station)
            for cell in station.cells:
                self._ask(("run", cell.id, cell.source))
        if index < self._behind:  # its cells were run before; its names are to be taken again
            self._turn_to(self._stations[index])
        self._behind = max(self._behind, index + 1)
        self._is_ready = True

    def _turn_to(self, station: Station) -> None:
        end = self._snapshots.get(station.question)
        message = ("question", station.question, list(station.names))
        self._ask(message, [] if end is None else [end.fileno()])

    def _ask(self, message: Any, files: Sequence[int] = ()) -> Any:
        if self._channel is None:
            raise Closed("there is no referee")
        self._channel.tell(message, files)
        said, arrays = self._channel.hear(self._limits.check_seconds + _GRACE)
        return unpack(said, arrays, _refuse)


@dataclass(frozen=True)
class Station:
    """A question, the trusted cells since the question before it, and the student's names that
    these and the checks may need."""

    question: str
    cells: tuple[Cell, ...]
    names: tuple[str, ...]


def stations(assignment: Assignment) -> list[Station]:
    """The questions of an assignment in order."""
    found: list[Station] = []
    questions = {f"{question.id}-test": question for question in assignment.questions}
    cells: list[Cell] = []
    exported: list[str] = []
    mentioned: set[str] = set()
    for cell in assignment.cells:
        if cell.kind == TRUSTED:
            cells.append(cell)
            mentioned |= names_in(cell.source)
        elif cell.id in questions:
            question = questions[cell.id]
            exported += question.names
            for check in question.checks:
                mentioned |= names_in(check.expression) | names_in(check.cost or "")
            names = tuple(name for name in exported if name in mentioned)
            found.append(Station(question.id, tuple(cells), names))
            cells = []
    return found


def _readable(text: Any) -> str:
    """A student's text that can be written to any file."""
    return str(text)[:_MOST_TEXT].encode(errors="backslashreplace").decode()


def _refuse(said: Any) -> Any:
    raise Garbled("a value that is not plain")
