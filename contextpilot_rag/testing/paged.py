"""A paged prefix cache in vLLM's manner: hashes of blocks, no keys, no values. Pure: no clock, no input or output."""

from __future__ import annotations

import itertools
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b

from ..engines.kv import Cleared, Event, Removed, Stored, salt_extra
from ..errors import InputError, SettingsError

DEFAULT_CAPACITY_BLOCKS = 262_144
_LARGEST = 2**31
_TYPECODE = "Q"  # 64 bits unsigned, so that a block's tokens have one and only one encoding

Told = Callable[[tuple[Event, ...], str | None], object]
"""Hears what happened in one step of the engine, in order, and the salt of the prompt that it happened for."""


class PagedPrefixCache:
    """What of a prompt is cached, by the rules of vLLM's automatic prefix caching.

    A prompt is cut into blocks of ``block_size`` tokens. A full block is known by a hash over its parent's hash and its
    tokens, the first one also over the salt; so a block is found only behind the very prefix it was computed with.
    A look-up walks from the start and ends at the first miss, and the last token is never a hit: the engine computes at
    least one to have something to sample from. The least recently used block is evicted first, and of one request
    its tail first; descendants of an evicted block stay, out of reach, until it is their turn. A block that is only
    partly filled goes before all others, once its request has been answered.

    One request at a time: nothing is held by a running one. A block that is computed again takes the place of its old
    copy, where vLLM keeps both until the old one is evicted. Not thread-safe.

    What happens can be heard, as the events that vLLM publishes. The step that computes a prompt makes its room first,
    a `Removed` for each block, and then tells in one `Stored` of the prompt's full blocks that were no hit. Each
    further step computes one token of the answer; where it begins a block it makes room, where it fills one it
    tells of it. An old copy whose place is taken is removed and stored.

    Args:
        block_size: tokens of one block.
        capacity_blocks: blocks that the cache holds; None: 262,144, some 50 MB of hashes.
        told: called with the events of each step that has some, while the request is served.

    Raises:
        SettingsError: one of them is no positive int.

    >>> cache = PagedPrefixCache(block_size=4)
    >>> cache.serve(range(10)), cache.serve(range(10)), cache.serve(range(8))
    (0, 8, 4)
    >>> cache = PagedPrefixCache(block_size=4, capacity_blocks=3, told=lambda events, salt: print(*map(short, events)))
    >>> def short(event):
    ...     return type(event).__name__, len(event.hashes)
    >>> hits = [cache.serve(range(10)), cache.serve(range(6, 12))]
    ('Stored', 2)
    ('Removed', 1) ('Stored', 1)
    """

    def __init__(self, block_size: int = 16, capacity_blocks: int | None = None, told: Told | None = None) -> None:
        self.block_size: int = _positive("block_size", block_size)
        if capacity_blocks is None:
            capacity_blocks = DEFAULT_CAPACITY_BLOCKS
        self.capacity_blocks: int = _positive("capacity_blocks", capacity_blocks)
        self._told = told
        # The next to be evicted stands first. Bytes: the hash of a full block. Ints: a block that is not full takes
        # room and is never found.
        self._blocks: OrderedDict[bytes | int, None] = OrderedDict()
        self._unnamed = itertools.count()
        # The prompt that was hashed last, its salt, its hashes: what was looked up is served next.
        self._hashed: tuple[bytes, str | None, list[bytes]] = b"", None, []

    def __len__(self) -> int:
        """Blocks in use."""
        return len(self._blocks)

    @property
    def capacity_tokens(self) -> int:
        """The longest prompt that fits."""
        return self.capacity_blocks * self.block_size

    @property
    def hashes(self) -> frozenset[int]:
        """The hashes of the full blocks that are there, as events call them."""
        return frozenset(_event_hash(block) for block in self._blocks if isinstance(block, bytes))

    def lookup(self, tokens: Sequence[int], salt: str | None = None) -> int:
        """How many tokens of a prompt are cached. Touches nothing.

        Raises:
            InputError: a token that is no int from 0 to 2**64 - 1.
        """
        return self._hit(self._hashes(_as_array(tokens), salt), len(tokens))

    def serve(self, tokens: Sequence[int], salt: str | None = None, answer: Iterable[int] = ()) -> int:
        """Look a prompt up, then cache it.

        Args:
            tokens: the prompt.
            salt: prompts share blocks only if they have the same salt.
            answer: the tokens generated. They are cached behind the prompt, all but the last, which the engine never
                computes: a next turn that repeats the answer finds it.

        Returns:
            How many tokens of the prompt were cached before.

        Raises:
            InputError: prompt and answer do not fit in the cache, or a token is no int from 0 to 2**64 - 1. Nothing
                was changed.
        """
        data = _as_array(tokens)
        data.extend(_as_array(list(answer)[:-1]))
        needed = -(-len(data) // self.block_size)
        if needed > self.capacity_blocks:
            raise InputError(
                f"{len(data)} tokens need {needed} blocks of {self.block_size}, and the cache holds "
                f"{self.capacity_blocks}"
            )
        hashes = self._hashes(data, salt)
        cached = self._hit(hashes, len(tokens))
        blocks: list[bytes | int] = [*hashes]
        if needed > len(hashes):
            blocks.append(next(self._unnamed))
        for block in blocks[: cached // self.block_size]:
            self._blocks.move_to_end(block)  # held, so that the room is made elsewhere
        taken = stored = cached // self.block_size
        for end in (len(tokens), *range(len(tokens) + 1, len(data) + 1)):
            begun, full = -(-end // self.block_size), end // self.block_size
            if begun > taken or full > stored:
                events: list[Event] = [*self._take(blocks[taken:begun])]
                if full > stored and self._told:
                    events.append(self._stored(data, hashes, stored, full, salt))
                taken, stored = begun, max(stored, full)
                if events and self._told:
                    self._told(tuple(events), salt)
        # A request's blocks go back in reverse order, so that the next to be evicted is its tail. One that is not full
        # is of no use to anybody: it is taken before any other.
        for block in reversed(blocks):
            self._blocks.move_to_end(block, last=isinstance(block, bytes))
        return cached

    def clear(self) -> None:
        """Forget all."""
        self._blocks.clear()
        if self._told:
            self._told((Cleared(),), None)

    def _take(self, blocks: Sequence[bytes | int]) -> list[Removed]:
        """Make room for blocks, and take it. All that the cache held of their request has been touched before."""
        gone: list[bytes | int] = []
        for block in blocks:
            if block in self._blocks:
                gone.append(block)
            self._blocks[block] = None
            self._blocks.move_to_end(block)
        while len(self._blocks) > self.capacity_blocks:
            gone.append(self._blocks.popitem(last=False)[0])
        if not self._told:
            return []
        return [Removed((_event_hash(block),)) for block in gone if isinstance(block, bytes)]

    def _stored(self, data: array[int], hashes: Sequence[bytes], first: int, end: int, salt: str | None) -> Stored:
        """The event for a request's blocks from ``first`` up to ``end``."""
        size = self.block_size
        return Stored(
            hashes=tuple(map(_event_hash, hashes[first:end])),
            parent=_event_hash(hashes[first - 1]) if first else None,
            tokens=tuple(data[first * size : end * size]),
            block_size=size,
            extra=(salt_extra(salt), *[""] * (end - 1)) if salt is not None and not first else (),
        )

    def _hit(self, hashes: Sequence[bytes], prompt_tokens: int) -> int:
        findable = hashes[: max(0, prompt_tokens - 1) // self.block_size]
        return self.block_size * sum(1 for _ in itertools.takewhile(self._blocks.__contains__, findable))

    def _hashes(self, data: array[int], salt: str | None) -> list[bytes]:
        """The chained hashes of the full blocks."""
        size = self.block_size * data.itemsize
        full = data.tobytes()[: len(data) // self.block_size * size]
        before, of, known = self._hashed
        hashes = [*known] if of == salt and full.startswith(before) else []
        parent = hashes[-1] if hashes else b"" if salt is None else _digest(salt.encode("utf-8", "surrogatepass"))
        for start in range(len(hashes) * size, len(full), size):
            parent = _digest(parent + full[start : start + size])
            hashes.append(parent)
        self._hashed = full, salt, hashes
        return hashes


def _as_array(tokens: Sequence[int]) -> array[int]:
    try:
        return array(_TYPECODE, tokens)
    except (TypeError, OverflowError) as error:
        raise InputError(f"tokens must be ints from 0 to 2**64 - 1: {error}") from None


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()


def _event_hash(digest: bytes) -> int:
    """The low 64 bits, as vLLM's events have them."""
    return int.from_bytes(digest[8:], "big")


def _positive(name: str, value: object) -> int:
    if type(value) is not int or not 1 <= value <= _LARGEST:
        raise SettingsError(f"{name} must be an int from 1 to {_LARGEST:,}, not {value!r}")
    return value
