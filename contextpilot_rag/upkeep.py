"""Upkeep: what a pilot is told of its answers, what it forgets, and what it counts."""

from __future__ import annotations

from collections.abc import Hashable

from .asking import Asker
from .conversation.store import Conversations
from .intake import namespace_of
from .quality.judge import Quality
from .types import Alignment, IndexStats, Namespace


class Upkeep:
    """The part of `ContextPilot` that no single request needs."""

    asker: Asker
    _conversations: Conversations
    _namespace: Namespace

    def rate(self, alignment: Alignment, score: float) -> bool:
        """Tell how good an answer was. With ``quality_drop``, alignment is turned off where it makes them worse.

        Rate as many requests as you can, and without looking at which were reordered: what is compared are requests
        that were, and requests that would have been and were sent as retrieved.

        Args:
            alignment: what ``align`` returned for the request.
            score: from 0 (useless) to 1, by any measure that is the same for all requests of a namespace.

        Returns:
            Whether it shows anything: only where the order was changed, or would have been.

        Raises:
            InputError: no alignment, or a score that is no number from 0 to 1.
        """
        return self.asker.trials.rate(alignment, score)

    def quality(self, namespace: Namespace | str | None = None) -> Quality:
        """How the answers of a namespace were rated, and whether alignment is turned off for it.

        Args:
            namespace: which; None: the pilot's.

        Raises:
            SettingsError: a namespace that is none.
        """
        return self.asker.trials.quality(self._namespace if namespace is None else namespace_of(namespace))

    def forget(self, namespace: Namespace | str | None = None, *, conversations: bool = False) -> None:
        """Drop what the index knows of a namespace; None: of all. A service, and replicas, forget it for all processes.

        Ratings go with it, so alignment that they turned off comes back.

        Args:
            namespace: which; None: all.
            conversations: drop this pilot's, too. An engine's restart is nothing to them.

        Raises:
            IndexFailed: the index is a service, and did not say that it has forgotten, whatever ``on_error`` is.
        """
        self.asker.index.forget(self.forget_own(namespace, conversations=conversations))

    def forget_own(self, namespace: Namespace | str | None, *, conversations: bool) -> Namespace | None:
        """The part of `forget` that does not ask the index; gives what the index is to forget."""
        space = None if namespace is None else namespace_of(namespace)
        self.asker.trials.forget(space)
        if conversations:
            self._conversations.forget(space)
        return space

    def forget_conversation(self, name: Hashable, *, namespace: Namespace | str | None = None) -> bool:
        """Drop one conversation: what was sent in it, texts and all. The next one of this name begins anew.

        Args:
            name: as ``conversation`` was given it.
            namespace: whose it is; None: the pilot's.

        Returns:
            Whether the pilot kept one of that name.

        Raises:
            InputError: a name that is not hashable, or empty.
            SettingsError: a namespace that is none.

        >>> from contextpilot_rag import ContextPilot
        >>> pilot = ContextPilot()
        >>> _ = pilot.conversation("of Ada").align(["Slices count from zero."], "What is a slice?")
        >>> pilot.forget_conversation("of Ada"), pilot.forget_conversation("of Ada")
        (True, False)
        """
        space = self._namespace if namespace is None else namespace_of(namespace)
        return self._conversations.forget_one(space, name)

    def stats(self) -> IndexStats:
        """The index's counts. A service's are of all the tenant's processes; one that is gone raises IndexFailed."""
        return self.asker.trials.counted(self.asker.index.stats())
