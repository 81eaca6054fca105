"""How the grader, the referee and the student's box talk: frames over a Unix socket.

What trusted code says to a box is pickled, for the box may trust us. What comes out of a box is
JSON and raw bytes (see `packing`), never unpickled, for whatever is in the box may have written it.
"""

from __future__ import annotations

import json
import pickle
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from typing import Any

_LENGTHS = struct.Struct("!IQ")  # bytes of JSON or pickle, bytes of arrays behind it
# Bytes that the grader reads at once. JSON grows thirtyfold where `[],[],[]` becomes lists, and the
# grader is in no box.
FOR_THE_GRADER = 4 << 20
_MOST_NAMES = 10


class Closed(ConnectionError):  # noqa: N818  (what happened, named as it is told)
    """The process at the other end is gone."""


class Garbled(Exception):  # noqa: N818
    """What came is not what the two have agreed on; the message says in what.

    It is no ValueError: a check that asks whether a function raises one is not to be fooled.
    """


class TooLate(TimeoutError):  # noqa: N818
    """Nothing complete came in time."""


def _few(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object; there is none with many names here, and many could be made to collide."""
    if len(pairs) > _MOST_NAMES:
        raise Garbled(f"an object of {len(pairs):,} names")
    return dict(pairs)


class Channel:
    """One end of a conversation. `limit` is the most bytes that a frame may have that is sent,
    `heard` one that is read (default: the same)."""

    def __init__(self, end: socket.socket, limit: int, heard: int | None = None) -> None:
        self._end, self._limit = end, limit
        self._heard = limit if heard is None else heard

    def close(self) -> None:
        """Hang up."""
        self._end.close()

    def say(self, message: Any, arrays: Sequence[bytes] = ()) -> None:
        """Send JSON, and bytes that it refers to; raises Garbled where it is too much."""
        head = json.dumps(message).encode()
        self._send(head, arrays, ())

    def hear(self, seconds: float | None = None) -> tuple[Any, memoryview]:
        """What the other end said: JSON and bytes. Nothing in it is to be trusted.

        Raises Closed, TooLate after `seconds` for the whole frame, Garbled.
        """
        head, arrays, _ = self._receive(seconds, 0)
        try:
            return json.loads(bytes(head), object_pairs_hook=_few), arrays
        except (ValueError, RecursionError) as error:
            raise Garbled(f"no JSON: {type(error).__name__}") from None

    def expect_silence(self) -> None:
        """Raise Garbled where the other end has said more than it was asked, Closed where it is
        gone."""
        self._end.settimeout(0)
        try:
            more = self._end.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return
        except OSError as error:
            raise Closed(str(error)) from None
        if not more:
            raise Closed("the other end has closed")
        raise Garbled("an answer to no question")

    def tell(self, message: Any, files: Sequence[int] = (), pickled: bytes | None = None) -> None:
        """Send anything to a box, with file descriptors for it."""
        self._send(pickle.dumps(message) if pickled is None else pickled, (), files)

    def listen(self, files: int = 0) -> tuple[bytes, list[int]]:
        """In a box: what `tell` sent, still pickled, and up to `files` descriptors."""
        head, _, descriptors = self._receive(None, files)
        return bytes(head), descriptors

    def orders(self) -> Iterator[tuple[str, list[Any], list[int]]]:
        """In a box: what it is told to do, a word and details and descriptors, until the other end
        has closed."""
        while True:
            try:
                message, files = self.listen(files=1)
            except Closed:
                return
            word, *details = pickle.loads(message)
            yield word, details, files

    def _send(self, head: bytes, arrays: Sequence[bytes], files: Sequence[int]) -> None:
        size = sum(map(len, arrays))
        if len(head) + size > self._limit:
            raise Garbled(f"{len(head) + size:,} bytes; at most {self._limit:,} may be sent")
        try:
            self._end.settimeout(60)
            start = _LENGTHS.pack(len(head), size)
            if files:
                socket.send_fds(self._end, [start], list(files))
                start = b""
            self._end.sendall(b"".join((start, head, *arrays)))
        except TimeoutError:
            raise TooLate("nobody reads at the other end") from None
        except OSError as error:
            raise Closed(str(error)) from None

    def _receive(self, seconds: float | None, files: int) -> tuple[memoryview, memoryview, list]:
        until = None if seconds is None else time.monotonic() + seconds
        descriptors: list[int] = []
        start = bytearray()
        if files:
            part, descriptors, _, _ = socket.recv_fds(self._end, _LENGTHS.size, files)
            start += part
            if not part:
                raise Closed("the other end has closed")
        self._fill(start, _LENGTHS.size, until)
        head, size = _LENGTHS.unpack(start)
        if head + size > self._heard:
            raise Garbled(f"{head + size:,} bytes; at most {self._heard:,} are read")
        body = bytearray()
        self._fill(body, head + size, until)
        view = memoryview(body)
        return view[:head], view[head:], descriptors

    def _fill(self, buffer: bytearray, size: int, until: float | None) -> None:
        got = len(buffer)
        buffer.extend(bytes(size - got))
        view = memoryview(buffer)
        while got < size:
            try:
                left = None if until is None else until - time.monotonic()
                if left is not None and left <= 0:
                    raise TimeoutError
                self._end.settimeout(left)
                part = self._end.recv_into(view[got:])
            except TimeoutError:
                raise TooLate("no answer in time") from None
            except OSError as error:
                raise Closed(str(error)) from None
            if not part:
                raise Closed("the other end has closed")
            got += part
