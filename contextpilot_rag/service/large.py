"""Large bodies: one that takes long to work through must not be waited for by those who asked something small."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from ..dedup.units import normal
from ..identity import block_key
from ..remote.wire import BlockIn
from .blocks import estimated
from .problems import TooLarge

LARGE = 256 * 2**10  # bytes; smaller ones are done with in a millisecond or two


class _Block(msgspec.Struct, gc=False):
    """A block that was not looked into; what is none is found at once."""


class _Counted(msgspec.Struct):
    """A request whose blocks were not looked into."""

    blocks: list[_Block]


_counted = msgspec.json.Decoder(_Counted)


def check_count(raw: bytes | bytearray | msgspec.Raw, most: int) -> None:
    """Too many blocks are refused before they are all made; whatever else is wrong is found where it is decoded.

    Raises:
        TooLarge: too many blocks.
    """
    if len(memoryview(raw)) <= LARGE:
        return
    body = bytes(raw)
    if body.count(b"{") <= most:  # as many objects at most, and the request is one of them
        return
    # A quote within a text is escaped: there the two meet only where a text ends in a brace, and a block has three.
    if body.count(b'{"') > 4 * most + 64:
        raise TooLarge(f"more than {most} blocks")
    try:
        blocks = _counted.decode(body).blocks
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    if len(blocks) > most:
        raise TooLarge(f"{len(blocks)} blocks; at most {most} are taken")


async def condensed(raw: bytes | bytearray | msgspec.Raw, blocks: Sequence[BlockIn]) -> None:
    """Texts of a large body give way to their hashes and lengths, in a thread: the event loop goes on meanwhile."""
    if len(memoryview(raw)) > LARGE:
        await asyncio.to_thread(_condense, blocks)


def _condense(blocks: Sequence[BlockIn]) -> None:
    for block in blocks:
        if block.text is not None:
            if block.tokens is None:
                block.tokens = estimated(block.text)
            if block.hash is None:
                block.hash = block_key(normal(block.text)).hex()
            block.text = None
