"""AsyncContextPilot: `ContextPilot` for async code."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from . import asking
from .batch import Plan
from .conversation import Conversation
from .dedup.messages import Messages
from .engines.engine import EngineLike
from .index.local import ContextIndex
from .index.watch import Report
from .intake import BlockLike, ContextLike
from .pilot import ContextPilot
from .prompt.prompt import AlignedPrompt
from .quality.judge import Quality
from .results import RunReport
from .settings import PilotOptions, RequestOptions, Settings
from .tokens import CountTokens, Tokenizer
from .types import Alignment, IndexStats, Namespace, Usage
from .waiting import AlignmentWindow

if TYPE_CHECKING:
    from typing_extensions import ParamSpec, Unpack

    from .engines.pool import EnginePool
    from .replicas.process import ProcessReplica
    from .sending import Client

    P = ParamSpec("P")
T = TypeVar("T")


class AsyncContextPilot:
    """`ContextPilot` for async code: the same words, awaited.

    Args:
        index: as for `ContextPilot`.
        **options: as for `ContextPilot`.

    >>> import asyncio
    >>> alignment = asyncio.run(AsyncContextPilot().align(["Slices count from zero."], "Where do slices start?"))
    >>> alignment.changed
    False
    """

    def __init__(
        self,
        index: str | ContextIndex | None = None,
        *,
        engines: Iterable[EngineLike] | EngineLike | None = None,
        namespace: Namespace | str | None = None,
        tokenizer: Tokenizer | CountTokens | None = None,
        settings: Settings | None = None,
        **options: Unpack[PilotOptions],
    ) -> None:
        self._pilot = ContextPilot(
            index, engines=engines, namespace=namespace, tokenizer=tokenizer, settings=settings, **options
        )

    @classmethod
    def around(cls, pilot: ContextPilot) -> AsyncContextPilot:
        """The async face of a pilot that is there already: one index, one namespace, one set of settings."""
        made = cls.__new__(cls)
        made._pilot = pilot  # noqa: SLF001
        return made

    async def __aenter__(self) -> AsyncContextPilot:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    @property
    def blocking(self) -> ContextPilot:
        """The same pilot for code that is not async."""
        return self._pilot

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self._pilot.settings

    @property
    def engines(self) -> EnginePool:
        """As `ContextPilot.engines`."""
        return self._pilot.engines

    @property
    def replica(self) -> ProcessReplica | None:
        """As `ContextPilot.replica`."""
        return self._pilot.replica

    @property
    def failures(self) -> int:
        """How often the index failed and the retriever's order went out."""
        return self._pilot.failures

    async def align(
        self,
        blocks: Iterable[BlockLike],
        question: str = "",
        *,
        namespace: Namespace | str | None = None,
        key: Hashable = None,
        system: str | None = None,
        **options: Unpack[RequestOptions],
    ) -> AlignedPrompt:
        """As `ContextPilot.align`."""
        if asking.awaited(self._pilot.index) is None:
            return await self.apart(
                self._pilot.align, blocks, question, namespace=namespace, key=key, system=system, **options
            )
        prepared = self._pilot.prepare(blocks, question, namespace=namespace, key=key, system=system, **options)
        return await self._pilot.asker.adecide(prepared)

    async def plan(
        self,
        contexts: Mapping[Hashable, ContextLike] | Iterable[ContextLike],
        *,
        index: ContextIndex | None = None,
        namespace: Namespace | str | None = None,
        time_budget: float | None = None,
        ceiling: bool = False,
        progress: Report | None = None,
        **options: Unpack[RequestOptions],
    ) -> Plan[AlignedPrompt]:
        """As `ContextPilot.plan`, in a thread of its own: planning a large batch takes seconds."""
        return await asyncio.to_thread(
            self._pilot.plan,
            contexts,
            index=index,
            namespace=namespace,
            time_budget=time_budget,
            ceiling=ceiling,
            progress=progress,
            **options,
        )

    async def run(  # noqa: PLR0913  all but two by name
        self,
        plan: Plan[AlignedPrompt],
        client: Client,
        *,
        concurrency: int = 8,
        system: str | None = None,
        model: str | None = None,
        results: str | Path | None = None,
        retries: int = 5,
        give_up_after: int = 20,
        progress: bool = False,
        **options: Any,  # noqa: ANN401
    ) -> RunReport:
        """As `ContextPilot.run`."""
        return await self._pilot.run(
            plan,
            client,
            concurrency=concurrency,
            system=system,
            model=model,
            results=results,
            retries=retries,
            give_up_after=give_up_after,
            progress=progress,
            **options,
        )

    def conversation(
        self,
        name: Hashable = None,
        *,
        namespace: Namespace | str | None = None,
        system: str | None = None,
        messages: Messages | None = None,
    ) -> Conversation:
        """As `ContextPilot.conversation`. Its methods are not awaited.

        They answer at once, but for the first turn, which asks the index: where that is a service, the event loop can
        be spared with ``await pilot.apart(conversation.align, blocks, question)``.
        """
        return self._pilot.conversation(name, namespace=namespace, system=system, messages=messages)

    def window(self, size: int = 16, max_wait: float = 0.02, max_overtaken: int | None = None) -> AlignmentWindow:
        """A window of waiting requests, of which the one with the longest cached prefix goes first.

        Args:
            size: how many wait before one has to go.
            max_wait: seconds that a request waits at most.
            max_overtaken: how often a request may be overtaken; None: four times the size.

        Raises:
            SettingsError: a size below 1, or a negative bound.

        >>> import asyncio
        >>> async def ask(pilot):
        ...     async with pilot.window(size=16, max_wait=0.02) as window:
        ...         return await window.align(["Slices count from zero."], "Where do slices start?")
        >>> asyncio.run(ask(AsyncContextPilot())).question
        'Where do slices start?'
        """
        local = asking.at_once(self._pilot.index)
        return AlignmentWindow(self._pilot, size, max_wait, max_overtaken, None if local else self._pilot.asker)

    async def observe(self, alignment: Alignment, response: object, messages: Messages | None = None) -> Usage | None:
        """As `ContextPilot.observe`."""
        return await self._pilot.aobserve(alignment, response, messages)

    async def rate(self, alignment: Alignment, score: float) -> bool:
        """As `ContextPilot.rate`."""
        return self._pilot.rate(alignment, score)

    async def quality(self, namespace: Namespace | str | None = None) -> Quality:
        """As `ContextPilot.quality`."""
        return self._pilot.quality(namespace)

    async def extra_body(self, namespace: Namespace | str | None = None) -> dict[str, Any]:
        """As `ContextPilot.extra_body`."""
        space = self._pilot.prepare((), namespace=namespace).request.namespace
        salt = await self._pilot.asker.asalt(space)
        return {} if salt is None else {"cache_salt": salt}

    async def forget(self, namespace: Namespace | str | None = None, *, conversations: bool = False) -> None:
        """As `ContextPilot.forget`; it raises where a service is gone."""
        index = asking.awaited(self._pilot.index)
        if index is None:
            await self.apart(self._pilot.forget, namespace, conversations=conversations)
        else:
            await index.aforget(self._pilot.forget_own(namespace, conversations=conversations))

    async def forget_conversation(self, name: Hashable, *, namespace: Namespace | str | None = None) -> bool:
        """As `ContextPilot.forget_conversation`."""
        return self._pilot.forget_conversation(name, namespace=namespace)

    async def stats(self) -> IndexStats:
        """As `ContextPilot.stats`; it raises where a service is gone."""
        index = asking.awaited(self._pilot.index)
        if index is None:
            return await self.apart(self._pilot.stats)
        return self._pilot.asker.trials.counted(await index.astats())

    async def aclose(self) -> None:
        """As `ContextPilot.close`."""
        if self._pilot.replica is None:
            self._pilot.close()
        else:
            await asyncio.to_thread(self._pilot.close)

    async def apart(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of a call that may ask the index, which must not keep the event loop waiting.

        The embedded index answers in a fraction of a millisecond and does no input or output; any other one is asked in
        a thread.
        """
        return await asking.apart(self._pilot.index, call, *args, **kwargs)
