"""A request's body, read within limits of size and time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from types import TracebackType
from typing import Any, TypeVar

from .problems import Malformed, Rejected, TooLarge, TooSlow

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Result = TypeVar("Result")


class ClientGoneError(Exception):
    """The client went away before its request was complete. Nobody hears an answer."""


async def read(receive: Receive, length: int | None, most: int, seconds: float) -> bytes | bytearray:
    """The whole body. Its pieces are put where it ends up as they come: to join those of a long one takes too long.

    Args:
        receive: gives it, as ASGI has it.
        length: as the request's head says; None: it does not.
        most: bytes.
        seconds: for all of it.

    Raises:
        TooLarge: more bytes than that; none beyond were kept.
        TooSlow: not complete in time.
        Malformed: shorter than the head says.
        ClientGoneError: the client is no more there.
    """
    if length is not None and length > most:
        raise TooLarge(f"a body of {length} bytes; at most {most} are taken")
    body = bytearray()
    with Deadline(seconds) as deadline:
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientGoneError
            piece = message.get("body", b"")
            if len(body) + len(piece) > most:
                raise TooLarge(f"a body of more than {most} bytes")
            if not message.get("more_body", False):
                break
            body += piece
    if deadline.passed:
        raise TooSlow(f"the body was not complete in {seconds:g} seconds")
    if not body:
        return bytes(piece)
    body += piece
    if length is not None and len(body) != length:
        raise Malformed("the body is shorter than its Content-Length")
    return body


async def while_there(receive: Receive, work: Awaitable[Result]) -> Result:
    """Do work that takes long, for as long as the client is there; the whole body was read.

    Raises:
        ClientGoneError: it is not; the work was cancelled.
        Rejected: it closed its side of the connection, which is all that is heard of most that are gone; so, too.
    """
    working = asyncio.ensure_future(work)
    listening = asyncio.ensure_future(receive())  # nothing comes any more, until the client goes
    try:
        await asyncio.wait({working, listening}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            if listening.result()["type"] == "http.disconnect":
                raise ClientGoneError
            raise Rejected("the connection was closed on the client's side before there was an answer")
        return await working
    finally:
        working.cancel()
        listening.cancel()
        await asyncio.wait({working, listening})


async def linger(receive: Receive, most: int, seconds: float) -> None:
    """Read and drop the rest of a body: a client that is still sending would not hear why it is refused."""
    with Deadline(seconds):
        while most > 0:
            message = await receive()
            most -= len(message.get("body", b""))
            if message["type"] == "http.disconnect" or not message.get("more_body", False):
                return


class Deadline:
    """Ends what is awaited in its block when time is up, and the block with it; `passed` tells.

    `asyncio.timeout` is newer than Python 3.10, and `asyncio.wait_for` makes a task of each wait.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.passed: bool = False

    def __enter__(self) -> Deadline:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  nothing is awaited outside of one
        self._task = task
        self._timer = asyncio.get_running_loop().call_later(self.seconds, self._end)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._timer.cancel()
        if not self.passed or kind is not asyncio.CancelledError:
            return False
        uncancel = getattr(self._task, "uncancel", None)  # newer than Python 3.10
        return uncancel is None or uncancel() == 0

    def _end(self) -> None:
        self.passed = True
        self._task.cancel()
