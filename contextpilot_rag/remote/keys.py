"""Keys: which block goes over the wire as what. Equal keys are equal there, and two different ones never meet."""

from __future__ import annotations

from ..errors import InputError
from ..index.plain_keys import hashed, is_text
from ..types import BlockRef, short
from .wire import BlockIn

_LONGEST_ID = 64  # characters; longer ones go by their hash, as they would in the service


def block_in(block: BlockRef) -> BlockIn:
    """A block for the wire: by its hash, or by its id.

    Bytes are taken for a hash, as the pilot's keys are; short and long ones, integers, and texts that could be no id
    go by a hash that says which of these they were.

    Raises:
        InputError: a key of another type.

    >>> block_in(BlockRef("doc-7", 120)).id
    'doc-7'
    >>> block_in(BlockRef(bytes(16), 120)).hash
    '00000000000000000000000000000000'
    >>> block_in(BlockRef(7, 120)).hash == block_in(BlockRef("7", 120)).hash
    False
    """
    key = block.key
    if isinstance(key, bytes):
        named = key.hex() if 8 <= len(key) <= 32 and type(key) is bytes else hashed(b"bytes", bytes(key)).hex()
        return BlockIn(hash=named, tokens=block.tokens)
    if isinstance(key, str):
        text = str.__str__(key)
        if text and len(text) <= _LONGEST_ID and (text.isascii() or is_text(text)):
            return BlockIn(id=text, tokens=block.tokens)
        return BlockIn(hash=hashed(b"str", text.encode("utf-8", "surrogatepass")).hex(), tokens=block.tokens)
    if isinstance(key, int):
        number = int(key)
        digits = number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)
        return BlockIn(hash=hashed(b"int", digits).hex(), tokens=block.tokens)
    raise InputError(
        f"a block's key must be bytes, str or int for an index that is a service, not {type(key).__name__} {short(key)}"
    )
