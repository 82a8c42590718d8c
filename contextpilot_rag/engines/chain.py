"""Our own names for an engine's KV blocks: chained hashes of token ids, the first one also of the cache salt.

Engines hash with seeds and encodings of their own, which differ by version and process. What they tell of a KV block
has its tokens, though, and so has a prompt of ours: both are named here, and meet under equal names. (llm-d's index
has two keys for each block for the same reason.)
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from hashlib import blake2b

from .kv import salt_extra

ROOT = b""
"""What stands before the first KV block of a prompt."""


def extended(parent: bytes, tokens: Sequence[int], extra: str = "") -> bytes:
    """The name of a KV block.

    Args:
        parent: the name of the one before it, or `ROOT`.
        tokens: its token ids.
        extra: what else it depends on, as `Stored.extra`.

    Raises:
        OverflowError, TypeError: a token id that is no int from 0 to 2**64 - 1.
    """
    more = extra.encode("utf-8", "surrogatepass")
    head = b"%d,%d:" % (len(parent), len(more))
    return blake2b(head + parent + more + array("Q", tokens).tobytes(), digest_size=16).digest()


def chain(tokens: Sequence[int], block_size: int, salt: str | None = None) -> tuple[bytes, ...]:
    """The names of a prompt's full KV blocks.

    Args:
        tokens: the prompt's token ids.
        block_size: tokens of a KV block.
        salt: the prompt's cache salt.

    >>> one, other = chain(range(10), 4), chain([0, 1, 2, 3, 9, 9, 9, 9], 4)
    >>> len(one), one[0] == other[0], one[1] == other[1]
    (2, True, False)
    >>> chain(range(4), 4, "acme") == chain(range(4), 4)
    False
    """
    names: list[bytes] = []
    parent, extra = ROOT, salt_extra(salt)
    for start in range(0, len(tokens) - block_size + 1, block_size):
        parent = extended(parent, tokens[start : start + block_size], extra)
        names.append(parent)
        extra = ""
    return tuple(names)


def content(tokens: Sequence[int]) -> bytes:
    """A name for a KV block's tokens by themselves, wherever they stand."""
    return extended(ROOT, tokens, "content")
