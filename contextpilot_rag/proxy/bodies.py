"""A request's body as its client sends it: whole, or piece by piece, and never waited for without end."""

from __future__ import annotations

from types import TracebackType
from typing import Literal

from ..service.body import ClientGoneError, Deadline, Receive
from .problems import TooSlow


class Patience(Deadline):
    """Ends what is awaited in its block when it takes too long, with an error.

    Args:
        seconds: that it may take.

    Raises:
        TooSlow: it took longer.
    """

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        if super().__exit__(kind, error, trace):
            raise TooSlow(f"nothing more of the body came in {self.seconds:g} seconds") from None
        return False


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
