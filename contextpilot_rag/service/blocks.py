"""Blocks off the wire as what the index needs. Texts are hashed and counted here, and go no further."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from ..dedup.units import normal
from ..identity import block_key
from ..remote.wire import BlockIn
from ..tokens import TokenCounter
from ..types import BlockRef
from .problems import TooLarge, Unusable
from .settings import ServiceSettings

_LONGEST_KEY = 64  # characters of an id that is its own key; longer ones go by their hash, so that memory is bounded
_counter = TokenCounter()  # never calibrated: the same text has the same estimate in every process


@dataclass(frozen=True, slots=True)
class Distinct:
    """The blocks of a request, each once.

    Args:
        refs: at their best rank.
        positions: for each of them, its position in what was sent.
        merged: position of a block that repeats another: position of the other.
    """

    refs: tuple[BlockRef, ...]
    positions: tuple[int, ...]
    merged: dict[int, int]


def distinct(blocks: Sequence[BlockIn], limits: ServiceSettings) -> Distinct:
    """Each block once, at its best rank.

    Raises:
        TooLarge: too many blocks, or an id that is too long.
        Unusable: a block without id, hash and text, or without tokens and text; or two texts under one id.
    """
    if len(blocks) > limits.max_blocks:
        raise TooLarge(f"{len(blocks)} blocks; at most {limits.max_blocks} are taken")
    refs: list[BlockRef] = []
    positions: list[int] = []
    merged: dict[int, int] = {}
    place_of: dict[Hashable, int] = {}
    key_of_id: dict[str, Hashable] = {}
    for position, block in enumerate(blocks):
        key = _key(block, position, limits.max_id)
        if block.id is not None and key_of_id.setdefault(block.id, key) != key:
            raise Unusable(f"blocks[{position}]: its id came before with another text")
        first = place_of.setdefault(key, position)
        if first != position:
            merged[position] = first
            continue
        refs.append(BlockRef(key, _tokens(block, position)))
        positions.append(position)
    return Distinct(tuple(refs), tuple(positions), merged)


def _key(block: BlockIn, position: int, max_id: int) -> Hashable:
    """Who it is: a hash as bytes, or an id as text, a long one as more bytes than hashes have; they never meet."""
    if block.id is not None and len(block.id) > max_id:
        raise TooLarge(f"blocks[{position}]: an id of {len(block.id)} characters; at most {max_id} are taken")
    if block.hash is not None:
        return bytes.fromhex(block.hash)
    if block.text is not None:
        return block_key(normal(block.text))
    if block.id is None:
        raise Unusable(f"blocks[{position}]: give an id, a hash or a text")
    return block.id if len(block.id) <= _LONGEST_KEY else _key_of_id(block.id)


def _key_of_id(name: str) -> bytes:
    """Longer than the key of any text, and than any hash that may be given: so it is nobody else's."""
    raw = name.encode("utf-8", "surrogatepass")
    return b"id:" + hashlib.blake2b(raw, digest_size=32, person=b"id").digest()


def _tokens(block: BlockIn, position: int) -> int:
    if block.tokens is not None:
        return block.tokens
    if block.text is None:
        raise Unusable(f"blocks[{position}]: give its tokens, or its text")
    return estimated(block.text)


def estimated(text: str) -> int:
    """Tokens of a text: as many in every process."""
    return _counter.estimate(text)
