"""Conversations: the ones that a pilot keeps, bounded in number, age and length."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import partial

from ..errors import InputError
from ..forking import after_fork
from ..types import Namespace, short
from .conversation import Conversation

Key = tuple[Namespace, type, Hashable]


class _Entry:
    """A conversation's place. Its own lock is held while it is made, so that nobody else waits for that."""

    __slots__ = ("characters", "conversation", "making", "used_at")

    def __init__(self, now: float) -> None:
        self.conversation: Conversation | None = None
        self.making = threading.Lock()
        self.used_at = now
        self.characters = 0


class Conversations:
    """Conversations by namespace and name. Thread-safe.

    What goes is forgotten here; a caller who holds the object, or its messages, loses nothing.

    Args:
        most: beyond this many, the one used longest ago goes.
        seconds: what was not used for so long goes.
        characters: that all together hold; beyond, the ones used longest ago go, but never the one that is used.
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
        after_fork(self, Conversations._renew)

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def characters(self) -> int:
        """That all together hold."""
        return self._characters

    def get(
        self, namespace: Namespace, name: Hashable, make: Callable[[Conversation | None], Conversation]
    ) -> Conversation:
        """The conversation of this name.

        Args:
            namespace: whose it is; equal names in two namespaces are two conversations.
            name: the caller's; names of two types are two names, even if they are equal (1, True, 1.0).
            make: gives the conversation, from the one that is kept or None.

        Raises:
            InputError: a name that is not hashable, or empty.
        """
        key = _key(namespace, name)
        with self._lock:
            self._forget_old(self._clock())
            entry = self._entries.get(key)
            if entry is None:
                entry = self._entries[key] = _Entry(self._clock())
        try:
            with entry.making:
                conversation = entry.conversation
                made = make(conversation)
                entry.conversation = made
        except BaseException:
            with self._lock:
                if entry.conversation is None and self._entries.get(key) is entry:
                    self._remove(key)
            raise
        if made is not conversation:
            made.watch(partial(self._used, key))
        self._used(key, made)
        return made

    def forget(self, namespace: Namespace | None = None) -> None:
        """Forget all conversations of a namespace, or of all namespaces."""
        with self._lock:
            for key in list(self._entries):
                if namespace in {None, key[0]}:
                    self._remove(key)

    def forget_one(self, namespace: Namespace, name: Hashable) -> bool:
        """Forget the conversation of this name; whether there was one.

        Raises:
            InputError: a name that is not hashable, or empty.
        """
        key = _key(namespace, name)
        with self._lock:
            known = key in self._entries
            self._remove(key)
        return known

    def _renew(self) -> None:
        """In a forked child; whoever changed the map may have been in the middle of it."""
        self._lock = threading.Lock()
        self._entries = OrderedDict(dict.items(self._entries))
        self._characters = sum(entry.characters for entry in self._entries.values())
        for entry in self._entries.values():
            entry.making = threading.Lock()

    def _used(self, key: Key, conversation: Conversation) -> None:
        """Note that a conversation was used, and how long it is now; what no longer fits goes."""
        characters = conversation.characters
        with self._lock:
            entry = self._entries.get(key)
            if entry is None or entry.conversation is not conversation:
                return  # it was forgotten; somebody still holds it
            entry.used_at = self._clock()
            self._entries.move_to_end(key)
            self._characters += characters - entry.characters
            entry.characters = characters
            self._forget_old(entry.used_at)
            while len(self._entries) > self._most or (
                self._characters > self._most_characters and len(self._entries) > 1
            ):
                self._remove(next(iter(self._entries)))

    def _forget_old(self, now: float) -> None:
        while self._entries and next(iter(self._entries.values())).used_at <= now - self._seconds:
            self._remove(next(iter(self._entries)))

    def _remove(self, key: Key) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._characters -= entry.characters


def _key(namespace: Namespace, name: Hashable) -> Key:
    """Where a conversation of this name is kept.

    Raises:
        InputError: a name that is not hashable, or empty.
    """
    try:
        hash(name)
    except TypeError:
        raise InputError(f"a conversation's name must be hashable, not {short(name)}") from None
    if name == "":  # most likely a session id that is missing: all of those must not meet
        raise InputError("a conversation's name must not be empty; None makes a new one that is not kept")
    return (namespace, type(name), name)
