"""What goes through the pipes between the service and the process that works on one plan: frames of a kind and bytes.

Bodies and results go through as they are, so that the service's event loop never decodes or encodes them.
"""

from __future__ import annotations

import struct
from typing import BinaryIO

from msgspec import Struct

from ..index.state import TreePart
from ..remote.wire import NamespaceIn

HEAD = struct.Struct(">cQ")
CHUNK = 64 * 1024  # bytes of a large frame that are moved at a time

# from the service
LIMITS = b"L"  # `Limits`; the first
BODY = b"B"  # the whole body, as it came
TREE = b"T"  # `TreeOf`: what is believed cached, in parts
MORE = b"M"  # no more of these namespaces
GO = b"G"  # begin; the last

# from the process
REJECTED = b"R"  # `Refusal`; the last
ACCEPTED = b"A"  # `Accepted`
SPACES = b"N"  # some namespaces whose trees are wanted, and then it waits for `MORE`; none: there are no others
PROGRESS = b"P"  # `ProgressOut`
BROKEN = b"X"  # `Refusal`: an error of ours; the last
RESULT = b"D"  # `PlanOut`, as it goes to the client; the last


class Limits(Struct):
    """The settings that the process needs."""

    max_plan: int
    max_blocks: int
    max_id: int
    plan_seconds: float


class Refusal(Struct):
    """An error: of which kind, and what is wrong."""

    kind: str
    detail: str


class Accepted(Struct):
    """A batch that can be planned."""

    requests: int
    blocks: int
    tokens: int
    namespaces: int
    from_cache: bool


class TreeOf(Struct):
    """What is believed to be cached for a namespace, or a part of it."""

    namespace: NamespaceIn
    part: TreePart


Spaces = list[NamespaceIn]


def send(stream: BinaryIO, kind: bytes, data: bytes = b"") -> None:
    """Write a frame.

    Raises:
        BrokenPipeError: nobody reads it.
    """
    stream.write(HEAD.pack(kind, len(data)))
    stream.write(data)
    stream.flush()


def receive(stream: BinaryIO) -> tuple[bytes, bytes]:
    """Read a frame: its kind, its bytes.

    Raises:
        EOFError: the other side is gone.
    """
    kind, length = HEAD.unpack(_exactly(stream, HEAD.size))
    return kind, _exactly(stream, length)


def _exactly(stream: BinaryIO, length: int) -> bytes:
    data = stream.read(length)
    if len(data) < length:
        raise EOFError
    return data
