"""Attached: the blocks of earlier turns of conversations that clients name, who send each turn's blocks only once.

They belong to messages, each known by all that stands before it, as the client sends it. A history that is sent again
gets its blocks back, and so becomes the bytes that it was. Where they are remembered no longer it goes as the client
sends it, and nothing points at them: what is left out follows from the messages and blocks of one request alone.

They are texts, so they stay in this process: proxies that share a log do not tell each other of them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from ..identity import block_key
from ..types import Block
from .explicit import FIELD, Explicit, Given
from .lasting import lasting
from .memory import chain
from .words import Asked, Message

MAX_CHARACTERS = 64 * 2**20
_ENTRY, _BLOCK = 512, 256  # characters that stand for what it takes to hold one, besides its text


@dataclass(slots=True)
class _Entry:
    given: Given
    texts: tuple[bytes, ...]
    used_at: float


@dataclass(slots=True)
class _Held:
    text: str
    times: int = 0


class Attached:
    """Blocks by tenant, model, conversation and message. Not thread-safe: one event loop owns it.

    Args:
        seconds: what was not used for so long goes.
        clock: seconds that never run backwards.
        characters: of all blocks; those used longest ago go. A text is held once, however often it was given.
    """

    def __init__(self, seconds: float, clock: Callable[[], float], characters: int = MAX_CHARACTERS) -> None:
        self._seconds = seconds
        self._clock = clock
        self._most = characters
        self._entries: OrderedDict[bytes, _Entry] = OrderedDict()  # used longest ago first
        self._texts: dict[bytes, _Held] = {}
        self._characters = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def characters(self) -> int:
        """That all together hold."""
        return self._characters

    def joined(self, asked: Asked, explicit: Explicit, tenant: str) -> Explicit:
        """What a request says of its blocks, with those that earlier turns of its conversation were given.

        Args:
            asked: the request.
            explicit: what it says.
            tenant: whose it is.
        """
        given = dict(explicit.given)
        for message, key in _keyed(asked, explicit, tenant):
            if message.number in given or message.role not in ("user", "system") or _says(message):
                continue
            before = self._get(key)
            if before is not None:
                given[message.number] = before
        return replace(explicit, given={number: given[number] for number in sorted(given)})

    def keep(self, asked: Asked, explicit: Explicit, tenant: str) -> None:
        """Remember what a request says of its blocks, for those that follow in its conversation.

        Args:
            asked: the request.
            explicit: what it says; nothing in it was refused.
            tenant: whose it is.
        """
        for message, key in _keyed(asked, explicit, tenant):
            given = explicit.given.get(message.number)
            if given is not None:
                self._put(key, given)

    def _get(self, key: bytes) -> Given | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        now = self._clock()
        if now - entry.used_at > self._seconds:
            self._remove(key)
            return None
        entry.used_at = now
        self._entries.move_to_end(key)
        return entry.given

    def _put(self, key: bytes, given: Given) -> None:
        self._remove(key)
        if given.blocks:
            names = tuple(block_key(block.text) for block in given.blocks)
            held = tuple(map(self._hold, names, given.blocks))
            self._entries[key] = _Entry(replace(given, blocks=held, param=FIELD), names, self._clock())
            self._characters += _overhead(given)
        self._forget()

    def _hold(self, name: bytes, block: Block) -> Block:
        """A block with the text that is held already, if it is."""
        held = self._texts.get(name)
        if held is None:
            held = self._texts[name] = _Held(block.text)
            self._characters += len(block.text)
        held.times += 1
        return block if held.text is block.text else replace(block, text=held.text)

    def _forget(self) -> None:
        """Let go what is too old, or too much."""
        now = self._clock()
        for key in self._oldest():
            if now - self._entries[key].used_at <= self._seconds and self._characters <= self._most:
                break
            self._remove(key)

    def _oldest(self) -> Iterator[bytes]:
        while self._entries:
            yield next(iter(self._entries))

    def _remove(self, key: bytes) -> None:
        entry = self._entries.pop(key, None)
        if entry is None:
            return
        self._characters -= _overhead(entry.given)
        for name in entry.texts:
            held = self._texts[name]
            held.times -= 1
            if not held.times:
                self._characters -= len(held.text)
                del self._texts[name]


def _keyed(asked: Asked, explicit: Explicit, tenant: str) -> Iterator[tuple[Message, bytes]]:
    """Each message of a named conversation with what it is known by."""
    if explicit.conversation is None:
        return iter(())
    fields = (tenant, asked.model, asked.api, explicit.conversation)
    return zip(asked.messages, chain("attached v1", fields, map(lasting, asked.messages)), strict=True)


def _overhead(given: Given) -> int:
    return _ENTRY + sum(_BLOCK + (len(block.id) if isinstance(block.id, str) else 0) for block in given.blocks)


def _says(message: Message) -> bool:
    """Whether a message says itself what it was given, if only that it is nothing."""
    return isinstance(message.value, Mapping) and FIELD in message.value
