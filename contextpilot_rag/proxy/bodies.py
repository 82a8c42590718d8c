"""A request's body as its client sends it: whole, or piece by piece, and never waited for without end."""

from __future__ import annotations

import asyncio
from types import TracebackType

from ..service.body import ClientGoneError, Receive
from .problems import TooSlow


class Patience:
    """Ends what is awaited in its block when it takes too long.

    `asyncio.timeout` is newer than Python 3.10, and `asyncio.wait_for` makes a task of each wait.

    Args:
        seconds: that it may take.

    Raises:
        TooSlow: it took longer.
    """

    __slots__ = ("_passed", "_seconds", "_task", "_timer")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._passed = False

    def __enter__(self) -> Patience:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  nothing is awaited outside of one
        self._task = task
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._end)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        if not self._passed or kind is not asyncio.CancelledError:
            return
        uncancel = getattr(self._task, "uncancel", None)  # newer than Python 3.10
        if uncancel is None or uncancel() == 0:
            raise TooSlow(f"nothing more of the body came in {self._seconds:g} seconds") from None

    def _end(self) -> None:
        self._passed = True
        self._task.cancel()


async def piece(receive: Receive, seconds: float) -> tuple[bytes, bool]:
    """What comes next of a body, and whether more follows.

    Raises:
        ClientGoneError: the client went away before the end.
        TooSlow: nothing came in time.
    """
    with Patience(seconds):
        message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientGoneError
    return message.get("body", b""), message.get("more_body", False)


async def beginning(receive: Receive, most: int, seconds: float) -> tuple[bytes, bool]:
    """A body as far as it is not longer than it may be.

    Args:
        receive: gives it, as ASGI has it.
        most: bytes; what is read may be longer by one piece.
        seconds: between two pieces.

    Returns:
        What was read, and whether more follows.

    Raises:
        ClientGoneError: the client went away before the end.
        TooSlow: nothing came in time.
    """
    first, more = await piece(receive, seconds)
    if not more:
        return first, False
    pieces, size = [first], len(first)
    while more and size <= most:
        part, more = await piece(receive, seconds)
        pieces.append(part)
        size += len(part)
    return b"".join(pieces), more
