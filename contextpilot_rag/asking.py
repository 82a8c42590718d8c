"""Asking: what a pilot asks of its index, blocking or awaited. The one place where the index's failures end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

from .deciding import decided
from .failing import Failures
from .identity import cache_salt, warn_of_short_secret
from .index.local import ContextIndex, LocalIndex
from .index.sound import sound
from .index.tree import PrefixTree
from .prompt.prompt import AlignedPrompt
from .quality.judge import Role
from .quality.trials import Trials, as_retrieved
from .types import Alignment, IndexStats, Namespace, Request, Usage

if TYPE_CHECKING:
    from typing_extensions import ParamSpec

    P = ParamSpec("P")
T = TypeVar("T")
_SALTS = 1_000  # that are remembered: the same one is asked for several times of each request


class AwaitedIndex(ContextIndex, Protocol):
    """A `ContextIndex` that can be awaited, too: each method once more, its name beginning with an "a"."""

    async def aalign(self, request: Request) -> Alignment:
        """As `align`."""
        ...

    async def apredict(self, request: Request) -> int:
        """As `predict`."""
        ...

    async def asent(self, alignment: Alignment) -> None:
        """As `sent`."""
        ...

    async def aobserve(self, alignment: Alignment, usage: Usage) -> None:
        """As `observe`."""
        ...

    async def aforget(self, namespace: Namespace | None = None) -> None:
        """As `forget`."""
        ...

    async def astats(self) -> IndexStats:
        """As `stats`."""
        ...


class SaltingIndex(ContextIndex, Protocol):
    """A `ContextIndex` that says which cache salts the engine's requests carry."""

    def cache_salt(self, namespace: Namespace, otherwise: str | None, *, ask: bool = False) -> str | None:
        """The salt of a namespace as far as it is known; ``otherwise`` is what the pilot would take by itself."""
        ...


def at_once(index: ContextIndex) -> bool:
    """Whether an index answers in a fraction of a millisecond and does no input or output."""
    return isinstance(index, LocalIndex) or getattr(index, "answers_at_once", False) is True


_AWAITED = ("aalign", "apredict", "asent", "aobserve", "aforget", "astats")


def awaited(index: ContextIndex) -> AwaitedIndex | None:
    """The index, if it can be awaited."""
    able = all(callable(getattr(index, name, None)) for name in _AWAITED)
    return cast("AwaitedIndex", index) if able else None


async def apart(index: ContextIndex, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """The result of a call that asks an index, which must not keep the event loop waiting.

    The embedded index answers in a fraction of a millisecond and does no input or output; any other one is asked in a
    thread.
    """
    if at_once(index):
        return call(*args, **kwargs)
    return await asyncio.to_thread(call, *args, **kwargs)


class Asker:
    """Asks an index, and fails open.

    Args:
        index: that is asked.
        failures: counts, and raises where that was asked for.
        salt_secret: what cache salts are derived with, where the index has none of its own.
        trials: which requests are only compared with; None: none are.
    """

    def __init__(self, index: ContextIndex, failures: Failures, salt_secret: str, trials: Trials | None = None) -> None:
        self.index = index
        self.failures = failures
        self.trials: Trials = trials or Trials(None)
        warn_of_short_secret(salt_secret)
        self._own_salt = lru_cache(_SALTS)(partial(_derived, salt_secret))

    def decide(self, prepared: AlignedPrompt) -> AlignedPrompt:
        """The prompt in the order that the index chose; or as it is, if there is no answer that can be used."""
        role = self._role(prepared)
        gain = self._gain(prepared) if self._unsaid(role) else None
        given = prepared if role in {None, "aligned"} else as_retrieved(prepared)
        try:
            answer = sound(self.index.align(given.request), given.request)
        except Exception as raised:  # noqa: BLE001  fails open
            self.failures.fail(raised, "align")
            return prepared
        self.failures.answered("align")
        chosen = decided(given, answer, self.salt(given.request.namespace))
        return self.trials.shown(prepared, chosen, role, gain)

    async def adecide(self, prepared: AlignedPrompt) -> AlignedPrompt:
        """As `decide`."""
        index = awaited(self.index)
        if index is None:
            return await apart(self.index, self.decide, prepared)
        role = self._role(prepared)
        gain = await self._awaited_gain(prepared) if self._unsaid(role) else None
        given = prepared if role in {None, "aligned"} else as_retrieved(prepared)
        try:
            answer = sound(await index.aalign(given.request), given.request)
        except Exception as raised:  # noqa: BLE001  fails open
            self.failures.fail(raised, "align")
            return prepared
        self.failures.answered("align")
        chosen = decided(given, answer, self.salt(given.request.namespace))
        return self.trials.shown(prepared, chosen, role, gain)

    def _role(self, prepared: AlignedPrompt) -> Role | None:
        """What is to become of a request, as far as ratings of answers decide it."""
        try:
            return self.trials.role(prepared)
        except Exception as error:  # noqa: BLE001  fails open, always: it is aligned, and shows nothing
            self.failures.note(error)
            return None

    def _unsaid(self, role: Role | None) -> bool:
        """Whether an answer will not tell what another order gains.

        As retrieved, it says nothing of others; where an engine is chosen, nothing of what another one would have had.
        """
        return role == "control" or (role == "aligned" and callable(getattr(self.index, "route", None)))

    def _gain(self, prepared: AlignedPrompt) -> int:
        """Tokens that another order than the retriever's gains; 0 if it is not known."""
        best = self.predict(prepared)
        return best and best - self.predict(as_retrieved(prepared))

    async def _awaited_gain(self, prepared: AlignedPrompt) -> int:
        """As `_gain`, awaited."""
        best = await self.apredict(prepared)
        return best and best - await self.apredict(as_retrieved(prepared))

    def predict(self, prepared: AlignedPrompt) -> int:
        """Tokens that would be cached; 0 if it is not known."""
        try:
            tokens = int(self.index.predict(prepared.request))
        except Exception as error:  # noqa: BLE001  fails open, always: it is only about who goes first
            self.failures.note(error, "predict")
            return 0
        self.failures.answered("predict")
        return tokens

    async def apredict(self, prepared: AlignedPrompt) -> int:
        """As `predict`."""
        index = awaited(self.index)
        if index is None:
            return await apart(self.index, self.predict, prepared)
        try:
            tokens = int(await index.apredict(prepared.request))
        except Exception as error:  # noqa: BLE001  fails open, always
            self.failures.note(error, "predict")
            return 0
        self.failures.answered("predict")
        return tokens

    def observe(self, alignment: Alignment, usage: Usage) -> None:
        """Report what the engine said."""
        try:
            self.index.observe(alignment, usage)
        except Exception as error:  # noqa: BLE001  fails open: an answer is there, it must reach the caller
            self.failures.fail(error, "observe")
        else:
            self.failures.answered("observe")

    async def aobserve(self, alignment: Alignment, usage: Usage) -> None:
        """As `observe`."""
        index = awaited(self.index)
        if index is None:
            await apart(self.index, self.observe, alignment, usage)
            return
        try:
            await index.aobserve(alignment, usage)
        except Exception as error:  # noqa: BLE001  fails open
            self.failures.fail(error, "observe")
        else:
            self.failures.answered("observe")

    def answered(self, alignment: Alignment) -> None:
        """An answer came that reports nothing. An index in this process notes it; to any other it would say nothing."""
        tell = getattr(self.index, "answered", None)
        if not (callable(tell) and at_once(self.index)):
            return
        try:
            tell(alignment)
        except Exception as error:  # noqa: BLE001  fails open: an answer is there, it must reach the caller
            self.failures.fail(error, "observe")
        else:
            self.failures.answered("observe")

    async def asent(self, alignment: Alignment) -> None:
        """Tell of an order that was chosen elsewhere. What fails is raised."""
        index = awaited(self.index)
        if index is None:
            await apart(self.index, self.index.sent, alignment)
        else:
            await index.asent(alignment)
        self.failures.answered("sent")

    def salt(self, namespace: Namespace, *, ask: bool = False) -> str | None:
        """The engine's cache salt for a namespace.

        Args:
            namespace: whose.
            ask: ask an index that derives salts itself, if it has not said yet.
        """
        own = self._own_salt(namespace.tenant, namespace.model, namespace.corpus)
        salting = cast("SaltingIndex", self.index)
        if not callable(getattr(salting, "cache_salt", None)):
            return own
        if ask:
            try:
                salt = salting.cache_salt(namespace, own, ask=True)
            except Exception as error:  # noqa: BLE001  fails open
                self.failures.fail(error, "salt")
            else:
                self.failures.answered("salt")
                return salt
        return salting.cache_salt(namespace, own)

    async def asalt(self, namespace: Namespace) -> str | None:
        """As `salt`, asking an index that derives salts itself, if it has not said yet."""
        if not callable(getattr(self.index, "cache_salt", None)):
            return self.salt(namespace)
        asked = getattr(self.index, "acache_salt", None)
        if not callable(asked):
            return await apart(self.index, self.salt, namespace, ask=True)
        own = self._own_salt(namespace.tenant, namespace.model, namespace.corpus)
        try:
            salt: str | None = await asked(namespace, own)
        except Exception as error:  # noqa: BLE001  fails open
            self.failures.fail(error, "salt")
            return self.salt(namespace)
        self.failures.answered("salt")
        return salt

    def believed(self, index: ContextIndex | None) -> Callable[[Namespace], PrefixTree | None] | None:
        """What an index believes to be cached, for a plan; one that fails is not asked for the next namespace."""
        if index is None:
            return None
        able = True

        def tree(namespace: Namespace) -> PrefixTree | None:
            nonlocal able
            try:
                found = index.tree(namespace) if able else None
            except Exception as error:  # noqa: BLE001  fails open: the plan starts from an empty cache
                able = False
                self.failures.fail(error, "tree")
                return None
            if able:
                self.failures.answered("tree")
            return found

        return tree


def _derived(secret: str, tenant: str, model: str, corpus: str) -> str | None:
    """The salt of a namespace, where an index has none of its own."""
    return cache_salt(Namespace(tenant, model, corpus), secret)
