"""What a reader predicts: `answer(state.total / 1e9, "GB")` ends a cell tagged `predict`.

In a notebook running the cell shows the answer. On the page it lies under a fold, and a script
(chapters/_static/predict.js) asks for a guess first; it reads what it has to ask, and the true
value, from the attributes of what is shown here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape

from dlsys.annotated import checked
from dlsys.checks import at_least, refuse


@dataclass(frozen=True)
class Answer:
    """A number above 0 with its unit, or one of `choices`."""

    value: float | str
    unit: str = ""
    choices: tuple[str, ...] = ()

    def __str__(self) -> str:
        if isinstance(self.value, str):
            return self.value
        return f"{_three_digits(self.value)} {self.unit}".strip()

    def __repr__(self) -> str:
        return f"Answer: {self}"

    def _repr_html_(self) -> str:
        """The answer, and before it what asks for a guess, hidden where no script opens it."""
        return (
            f'<form class="guess" hidden>{self._fields()} <button>Compare</button> '
            '<button type="button">Show without guessing</button> <output></output></form>\n'
            f'<p class="answer" data-value="{escape(str(self.value))}">'
            f"Answer: <strong>{escape(str(self))}</strong></p>"
        )

    def _fields(self) -> str:
        field = '<label><input name="guess" required autocomplete="off" type='
        if not self.choices:
            ask = f'{field}"number" step="any" min="0"> {escape(self.unit)}</label>'
            return ask.replace("<label>", "<label>Your guess ")
        each = (escape(choice) for choice in self.choices)
        radios = "".join(f'{field}"radio" value="{choice}"> {choice}</label>' for choice in each)
        return f"<fieldset><legend>Your guess</legend>{radios}</fieldset>"


@checked
def answer(
    value: float | str, unit: str = "", choices: Iterable[str] | Mapping[str, float] = ()
) -> Answer:
    """The true value of a prediction, as the last expression of its cell.

    Args: `value`, a number above 0 in `unit`, as the reader is to state it (112 with "GB", 4 with
    "times"); or with `choices` one of these, or where they are a mapping from what a reader may
    choose to its number, the number.
    Raises ValueError for a number that is not above 0, and for a value that is no choice.
    """
    if isinstance(choices, str):
        refuse("choices", choices, "a sequence of texts, or a dictionary from text to number")
    if not isinstance(value, str):
        at_least("value", value, 0)
    names = tuple(choices)
    if isinstance(choices, Mapping) and not isinstance(value, str):
        near = [name for name, number in choices.items() if math.isclose(number, value)]
        value = near[0] if near else f"{value:g}"
    if names and value not in names:
        raise ValueError(f"The answer is {value!r}, but the choices are {', '.join(names)}.")
    if not names and (isinstance(value, str) or not 0 < value < math.inf):
        raise ValueError(
            f"The answer is {value!r}: a guess is off by a factor only from a number above 0; "
            "give `choices` for any other answer."
        )
    return Answer(value, unit, names)


def _three_digits(value: float) -> str:
    """The number as a page prints it: whole as it is, else three digits; 1,966, 10.1, 0.076."""
    whole = value == round(value) or value >= 1000
    return f"{round(value):,}" if whole else f"{float(f'{value:.3g}'):.10g}"
