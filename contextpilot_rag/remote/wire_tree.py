"""A tree over the wire: its parts as a MessagePack array. Made part by part, so that no answer holds anybody up."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ..errors import StateError
from ..index.state import TreePart, load_tree
from ..index.tree import PrefixTree

MEDIA = "application/vnd.msgpack"
MOST_BLOCKS = 1_000_000  # of one answer
MANY_BLOCKS = 200_000  # where nobody says how many

_ARRAY = b"\xdd"  # of up to 2**32 - 1 parts; their number follows in four bytes


def encoded_tree(parts: Iterable[bytes]) -> bytes:
    """An answer from parts, each encoded by `encoded_part`."""
    all_parts = list(parts)
    return b"".join([_ARRAY, len(all_parts).to_bytes(4, "big"), *all_parts])


def encoded_part(part: TreePart) -> bytes:
    """One part."""
    return msgspec.msgpack.encode(part)


def decoded_tree(
    answer: bytes | bytearray, capacity_tokens: int | None = None, max_blocks: int = 1_000_000
) -> PrefixTree:
    """The tree that an answer tells of, within limits of its own.

    Raises:
        StateError: it tells of none.

    >>> decoded_tree(encoded_tree([encoded_part(TreePart([b"k"], [100], [0], [1], [0]))])).tokens
    100
    """
    try:
        parts = msgspec.msgpack.decode(answer, type=list[TreePart])
    except msgspec.DecodeError as error:
        raise StateError(f"no tree: {error}") from None
    return load_tree(parts, capacity_tokens, max_blocks)
