"""Plain keys: blocks' keys as data that means the same in every process."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from dataclasses import replace

from ..errors import InputError
from ..types import BlockRef, Request, short

MOST_BLOCKS = 65_536  # of one request
LONGEST_HEAD = 256
LONGEST = 64  # bytes, or characters; longer keys go by their hash


def plain_key(key: Hashable) -> bytes | str | int:
    """A key as bytes, a text or a 64-bit number: equal for equal keys, and different for different ones.

    Raises:
        InputError: a key of another type.

    >>> plain_key("doc-7"), plain_key(7), len(plain_key(10**30))
    ('doc-7', 7, 32)
    """
    kind = type(key)
    if kind is bytes and len(key) <= LONGEST:  # type: ignore[arg-type]
        return key  # type: ignore[return-value]
    if isinstance(key, int):
        number = int(key)
        if -(2**63) <= number < 2**63:
            return number
        return hashed(b"int", number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True))
    if isinstance(key, str):
        text = str.__str__(key)
        if len(text) <= LONGEST and (text.isascii() or is_text(text)):
            return text
        return hashed(b"str", text.encode("utf-8", "surrogatepass"))
    if isinstance(key, bytes):
        return hashed(b"bytes", bytes(key)) if len(key) > LONGEST else bytes(key)
    raise InputError(
        f"a block's key must be bytes, str or int for an index that is shared, not {type(key).__name__} {short(key)}"
    )


def plain_request(request: Request) -> Request:
    """The same request with plain keys; the very same where they are.

    Raises:
        InputError: a key that cannot be, or more than can be told.
    """
    if len(request.blocks) > MOST_BLOCKS or len(request.namespace.head) > LONGEST_HEAD:
        raise InputError(
            f"an index that is shared takes requests of at most {MOST_BLOCKS} blocks, in namespaces whose head has at "
            f"most {LONGEST_HEAD} characters"
        )
    plain = [plain_key(block.key) for block in request.blocks]
    if all(key is block.key for key, block in zip(plain, request.blocks, strict=True)):
        return request
    blocks = tuple([BlockRef(key, block.tokens) for key, block in zip(plain, request.blocks, strict=True)])
    return replace(request, blocks=blocks)


def hashed(kind: bytes, value: bytes) -> bytes:
    """What stands for a key of a kind: 32 bytes that no key of another kind has."""
    return hashlib.blake2b(value, digest_size=32, person=b"ctxpilot" + kind).digest()


def is_text(text: str) -> bool:
    """Whether it can be written at all: a lone surrogate, from a badly decoded file, cannot."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
