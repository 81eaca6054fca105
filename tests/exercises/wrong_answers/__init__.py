"""Plausible wrong answers to the exercises, named by their misconception: one module a notebook.

A module's `BANK` maps the id of an answer cell to its wrong answers. The question of an answer
cell `ring-bytes` is the test cell `ring-bytes-test`.
"""

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import dedent
from typing import Any


@dataclass(frozen=True)
class Wrong:
    """A wrong answer: what goes in place of the solution, and words its rejection must hold.

    With `find`, the solution stays and only this text in it is replaced by `source`.
    """

    misconception: str
    source: str
    hint: str
    find: str | None = None

    def cell(self, source_of_solution: str) -> str:
        """The source of the answer cell with this wrong answer in it."""
        if self.find is None:
            return in_place_of_solution(source_of_solution, dedent(self.source).strip("\n"))
        if source_of_solution.count(self.find) != 1:
            raise ValueError(f"{self.find!r} does not occur once in the solution.")
        return source_of_solution.replace(self.find, self.source)


def in_place_of_solution(source: str, answer: str) -> str:
    """`source` with the lines between BEGIN SOLUTION and END SOLUTION replaced by `answer`."""
    lines = source.split("\n")
    begin = next(i for i, line in enumerate(lines) if "### BEGIN SOLUTION" in line)
    end = next(i for i, line in enumerate(lines) if "### END SOLUTION" in line)
    indent = lines[begin][: len(lines[begin]) - len(lines[begin].lstrip())]
    answer_lines = [indent + line if line else "" for line in answer.split("\n")]
    return "\n".join(lines[:begin] + answer_lines + lines[end + 1 :])


def in_place_of(find: str, *wrong: tuple[str, str, str]) -> list[Wrong]:
    """Wrong answers that differ from the solution in one text: misconception, source and hint."""
    return [Wrong(misconception, source, hint, find) for misconception, source, hint in wrong]


def one_wrong(
    form: str, right: Sequence[object], place: int, *wrong: tuple[str, object, str]
) -> list[Wrong]:
    """Answers that are right but for the one in this place: misconception, what came, and hint."""
    return [
        Wrong(name, form.format(*right[:place], came, *right[place + 1 :]), hint)
        for name, came, hint in wrong
    ]


# What several right answers share. An all-reduce without a ring: in two rounds each rank sends a
# chunk to each of the others, all at once, so that these sends wait for one latency together.
DIRECT = """
def exchange(outs, like):
    others = [r for r in range(comm.size) if r != comm.rank]
    came = {r: torch.empty_like(like[r]) for r in others}
    handles = [comm.isend(outs[r], r) for r in others]
    handles += [comm.irecv(came[r], r) for r in others]
    for handle in handles:
        handle.wait()
    return [came.get(r, outs[comm.rank]) for r in range(comm.size)]


def direct(x):
    parts = x.tensor_split(comm.size)
    mine = sum(exchange(parts, [parts[comm.rank]] * comm.size))
    return torch.cat(exchange([mine] * comm.size, parts))


"""


def module(slug: str) -> Any:
    """The wrong answers to a notebook: its `BANK`, `OTHERWISE` and `PROGRAMS`; `RIGHT` ones, too."""
    return importlib.import_module(f"{__name__}.{slug}")


def right_answers(slug: str) -> dict[str, list[Wrong]]:
    """Answers that are right and not the solution's, by the id of the answer cell: rounded ones,
    and programs that cost less."""
    given = getattr(module(slug), "RIGHT", {}).items()
    return {answer: [Wrong(name, source, "", *find) for name, source, *find in each]
            for answer, each in given}  # fmt: skip


def bank(slug: str) -> dict[str, list[Wrong]]:
    """The wrong answers to a notebook's questions, by the id of the answer cell."""
    return module(slug).BANK
