"""Conversations: the ones that a pilot keeps, bounded in number, age and length."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from ..errors import InputError
from ..types import Namespace, short
from .conversation import Conversation

Key = tuple[Namespace, Hashable]


@dataclass(slots=True)
class _Entry:
    conversation: Conversation
    used_at: float
    characters: int = 0


class Conversations:
    """Conversations by namespace and name. Thread-safe.

    What goes is forgotten here; a caller who holds the object, or its messages, loses nothing.

    Args:
        most: beyond this many, the one used longest ago goes.
        seconds: what was not used for so long goes.
        characters: of all together; beyond, the ones used longest ago go, but never the one that is asked for.
        clock: seconds that never run backwards.
    """

    def __init__(self, most: int, seconds: float, characters: int, clock: Callable[[], float]) -> None:
        self._most = most
        self._seconds = seconds
        self._most_characters = characters
        self._clock = clock
        self._entries: OrderedDict[Key, _Entry] = OrderedDict()  # used longest ago first
        self._characters = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def get(
        self, namespace: Namespace, name: Hashable, make: Callable[[Conversation | None], Conversation]
    ) -> Conversation:
        """The conversation of this name.

        Args:
            namespace: whose it is; equal names in two namespaces are two conversations.
            name: the caller's.
            make: gives the conversation, from the one that is kept or None.

        Raises:
            InputError: a name that is not hashable.
        """
        try:
            hash(name)
        except TypeError:
            raise InputError(f"a conversation's name must be hashable, not {short(name)}") from None
        now, key = self._clock(), (namespace, name)
        with self._lock:
            self._forget_old(now)
            entry = self._entries.get(key)
            conversation = make(None if entry is None else entry.conversation)
            self._remove(key)
            characters = conversation.characters
            self._entries[key] = _Entry(conversation, now, characters)
            self._characters += characters
            while len(self._entries) > self._most or (
                self._characters > self._most_characters and len(self._entries) > 1
            ):
                self._remove(next(iter(self._entries)))
            return conversation

    def forget(self, namespace: Namespace | None = None, name: Hashable = None) -> None:
        """Forget one conversation of a namespace, or all of them (no name), or all of all namespaces."""
        with self._lock:
            for key in list(self._entries):
                if namespace in {None, key[0]} and name in (None, key[1]):
                    self._remove(key)

    def _forget_old(self, now: float) -> None:
        while self._entries and next(iter(self._entries.values())).used_at <= now - self._seconds:
            self._remove(next(iter(self._entries)))

    def _remove(self, key: Key) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._characters -= entry.characters
