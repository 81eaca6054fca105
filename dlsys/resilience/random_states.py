"""Random states of a rank: torch's, Python's and NumPy's generators."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from dlsys.annotated import checked
from dlsys.checks import refuse
from dlsys.resilience.state import PerRank
from dlsys.world.here import here

_KIND = "a PerRank, as state_dict() gives it"


class RandomStates:
    """The states of this rank's generators: torch's on the CPU (and on its GPU where that is in
    use), Python's `random` and NumPy's global one.

    Simulated ranks are threads of one process. The world gives each a torch generator of its own;
    Python's and NumPy's they share, so each rank has copies here, from when this is built: what is
    drawn within `own()` is drawn from them, as long as nothing in there waits for another rank.
    """

    def __init__(self) -> None:
        self._shared = _shared()

    @contextmanager
    def own(self) -> Iterator[None]:
        """Where a simulated rank draws by Python and NumPy; elsewhere it does nothing."""
        if here.comm is None:
            yield
            return
        before = _shared()
        _set_shared(self._shared)
        try:
            yield
        finally:
            self._shared = _shared()
            _set_shared(before)

    def state_dict(self) -> PerRank:
        """All states, as they are now."""
        shared = _shared() if here.comm is None else self._shared
        mine = {"torch": torch.get_rng_state(), **shared}
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            mine["cuda"] = torch.cuda.get_rng_state()
        return PerRank(mine)

    @checked
    def load_state_dict(self, state_dict: PerRank) -> None:
        """Go on drawing where the rank of this number was; a rank that there was not goes on as it
        began."""
        mine = state_dict.value
        if mine is None:
            return
        if not isinstance(mine, dict) or not {"torch", "python", "numpy"} <= set(mine):
            refuse("state_dict", mine, _KIND)
        shared = {name: mine[name] for name in ("python", "numpy")}
        try:  # on generators that nobody draws from
            torch.Generator().set_state(mine["torch"])
            _set(random.Random(), np.random.RandomState(), shared)
            if "cuda" in mine and torch.cuda.is_available():
                torch.Generator("cuda").set_state(mine["cuda"])
        except (AttributeError, IndexError, OverflowError, RuntimeError, TypeError, ValueError):
            refuse("state_dict", mine, _KIND)
        torch.set_rng_state(mine["torch"])
        self._shared = shared
        if here.comm is None:
            _set_shared(shared)
        if "cuda" in mine and torch.cuda.is_available():
            torch.cuda.set_rng_state(mine["cuda"])


def _shared() -> dict[str, Any]:
    """Python's and NumPy's: 624 words each, kept as an array, and what they have drawn ahead."""
    version, words, normal = random.getstate()
    return {
        "python": (version, np.array(words, dtype=np.int64), normal),
        "numpy": np.random.get_state(),
    }


def _set_shared(states: dict[str, Any]) -> None:
    _set(random, np.random, states)


def _set(of_python: Any, of_numpy: Any, states: dict[str, Any]) -> None:
    version, words, normal = states["python"]
    of_python.setstate((version, tuple(words.tolist()), normal))
    of_numpy.set_state(tuple(states["numpy"]))
