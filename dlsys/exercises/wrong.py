"""What an exercise raises, shown in a notebook as its sentence and without a traceback."""

from dlsys.exercises.plain import NotPlain

GREEN_TICK = "\x1b[32m✔\x1b[0m"
RED_CROSS = "\x1b[31m✘\x1b[0m"


class WrongAnswer(AssertionError):  # noqa: N818  (what it is, to a student who reads it)
    """An answer that differs from what is expected, or cannot be compared with it."""

    def _render_traceback_(self) -> list[str]:
        # IPython shows this in place of a traceback, which would only lead into this package.
        return [f"{RED_CROSS} {self}"]


class OtherStructure(WrongAnswer, NotPlain):
    """An answer that is built otherwise than asked for; its sentence says how.

    It is NotPlain, too, so that a grader tells the sentence as it is.
    """
