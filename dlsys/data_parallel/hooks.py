"""What hooks of DataParallel are made of: handles in sequence, and a memory that is one rank's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dlsys.world import Communicator, Handle


class Then:
    """A handle that waits for others and finishes with `function` of their results."""

    def __init__(self, handles: Sequence[Handle], function: Callable[..., Any]) -> None:
        self._handles, self._function = handles, function

    def wait(self) -> Any:
        """Wait for all of them, then compute the result."""
        return self._function(*(handle.wait() for handle in self._handles))


class OneRank:
    """A hook that remembers, and so belongs to one rank (of one group)."""

    _owner: Communicator | None = None

    def _claim(self, comm: Communicator) -> None:
        """Raise ValueError where another rank, or this one in another group, has used it before."""
        if self._owner not in (None, comm):
            raise ValueError(
                f"One {type(self).__name__} object is used with {self._owner} and with {comm}, but "
                "what it remembers is one rank's: make it inside the rank program."
            )
        self._owner = comm
