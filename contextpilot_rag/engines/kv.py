"""What engines tell of their caches: KV blocks stored, removed, all cleared. vLLM and SGLang mean the same by these.

A KV block is the engine's: so many tokens behind a certain prefix. (A block, without more, is the retriever's.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b

Hash = int | bytes
"""An engine's name for a KV block: 64 bits, as an unsigned number whatever sign it had on the wire; or bytes."""


@dataclass(frozen=True, slots=True)
class Stored:
    """KV blocks that follow each other were computed and can be found from now on.

    Args:
        hashes: of these.
        parent: of the KV block before the first; None: the first begins a prompt.
        tokens: of all of them, one after another.
        block_size: tokens of each.
        extra: for each, what but tokens its identity depends on (cache salt, LoRA, images), as text; "" for nothing.
            A cache salt alone is `salt_extra` of it. Empty: nothing for any of them.
        medium: where: "GPU", "CPU", "STORAGE", "CPU_PINNED", "DISK", "EXTERNAL", ...
        group: of the cache, where a model has several kinds of attention.
        sliding: its kind of attention sees only what is near, so these KV blocks say little about a prefix.
    """

    hashes: tuple[Hash, ...]
    parent: Hash | None
    tokens: tuple[int, ...]
    block_size: int
    extra: tuple[str, ...] = ()
    medium: str = "GPU"
    group: int = 0
    sliding: bool = False


@dataclass(frozen=True, slots=True)
class Removed:
    """KV blocks are no longer there. One that was stored twice is there until it was removed twice."""

    hashes: tuple[Hash, ...]
    medium: str = "GPU"
    group: int = 0


@dataclass(frozen=True, slots=True)
class Cleared:
    """Nothing is there any more, in any medium."""


Event = Stored | Removed | Cleared


@dataclass(frozen=True, slots=True)
class Batch:
    """What an engine tells in one message.

    Args:
        events: in the order they happened.
        rank: data-parallel rank, where the engine says so.
        unknown: events that are left out here, as their kind is not known, or as it is not clear which tokens belong to
            which KV block.
        at: when, by the engine's clock in seconds, where it says so.
        epoch: which life of the engine this is, where it says so.
    """

    events: tuple[Event, ...]
    rank: int | None = None
    unknown: int = 0
    at: float | None = None
    epoch: str | None = None


MAX_SALT = 256
"""Characters; of a longer one a digest is kept."""


def told_block_size(events: Iterable[Event]) -> int | None:
    """Tokens of the KV blocks that these were told of last, and that are found by a prefix; None: of none.

    >>> told_block_size([Stored((1,), None, (5, 6), 2), Removed((1,))])
    2
    """
    sizes = [event.block_size for event in events if isinstance(event, Stored) and not event.sliding]
    return sizes[-1] if sizes else None


def salt_extra(salt: str | None) -> str:
    """The ``extra`` of the first KV block of a prompt that has this cache salt and nothing else.

    >>> salt_extra(None), salt_extra("s-1")
    ('', 'salt:s-1')
    """
    if salt is not None and len(salt) > MAX_SALT:
        return "long salt:" + blake2b(salt.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return "" if salt is None else f"salt:{salt}"


def in_parts(events: Iterable[Event], most: int) -> Iterator[Event]:
    """The same events, with those of many KV blocks in parts.

    Args:
        events: in the order in which they happened.
        most: KV blocks of a part.

    >>> [len(part.hashes) for part in in_parts([Removed((1, 2, 3))], 2)]
    [2, 1]
    """
    for event in events:
        if isinstance(event, Cleared) or len(event.hashes) <= most:
            yield event
            continue
        if isinstance(event, Removed):
            for start in range(0, len(event.hashes), most):
                yield replace(event, hashes=event.hashes[start : start + most])
            continue
        size, parent = event.block_size, event.parent
        for start in range(0, len(event.hashes), most):
            hashes = event.hashes[start : start + most]
            tokens = event.tokens[start * size : (start + most) * size]
            extra = event.extra[start : start + most]
            yield replace(event, hashes=hashes, parent=parent, tokens=tokens, extra=extra)
            parent = hashes[-1]
