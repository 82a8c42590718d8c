"""AsyncContextPilotMemory: `ContextPilotMemory` for async code."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Hashable, Mapping
from types import TracebackType
from typing import Any

from contextpilot_rag import AsyncContextPilot, Namespace
from contextpilot_rag.dedup.messages import Messages

from .context import MemoryContext
from .face import MemoryFace, question_of
from .results import Found, aligned


class AsyncContextPilotMemory(MemoryFace):
    """`ContextPilotMemory` for ``mem0.AsyncMemory`` and ``mem0.AsyncMemoryClient``: the same words, awaited.

    A memory that is not async is searched in a thread.

    Args:
        memory: as for `ContextPilotMemory`; so are the other arguments.

    >>> import asyncio
    >>> class Notes:
    ...     async def search(self, query, *, filters, top_k=20):
    ...         return {"results": [{"id": "m1", "memory": "Likes tea."}]}
    >>> context = asyncio.run(AsyncContextPilotMemory(Notes()).context("What to drink?", user_id="alice"))
    >>> context.labels
    {1: 'm1'}
    """

    __slots__ = ()

    async def __aenter__(self) -> AsyncContextPilotMemory:
        if hasattr(self._wrapped, "__aenter__"):
            await self._wrapped.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> Any:  # noqa: ANN401  as the memory says
        if hasattr(self._wrapped, "__aexit__"):
            return await self._wrapped.__aexit__(kind, error, traceback)
        closed = self._wrapped.close() if hasattr(self._wrapped, "close") else None  # the first Mem0 2 had only this
        return await closed if inspect.isawaitable(closed) else closed

    async def search(  # noqa: PLR0913  all but two by name
        self,
        query: str,
        options: Any = None,  # noqa: ANN401
        *,
        top_k: int | None = None,
        filters: Mapping[str, Any] | None = None,
        user_id: str | None = None,
        agent_id: str | None = None,
        app_id: str | None = None,
        run_id: str | None = None,
        keep_order: bool = False,
        namespace: Namespace | str | None = None,
        **others: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401  as the memory returns it
        """As `ContextPilotMemory.search`."""
        ids = {"user_id": user_id, "agent_id": agent_id, "app_id": app_id, "run_id": run_id}
        arguments, asked = self._asked("search", options, top_k, filters, ids, others)
        space = self._space(asked, namespace)
        reply = await self._reply(query, arguments)
        found = None if keep_order else self._found(reply)
        if found is None:
            return reply
        return aligned(reply, found, await self._adapter.aarrange(found.texts, query, namespace=space))

    async def context(  # noqa: PLR0913  all but three by name
        self,
        query: str,
        question: str | None = None,
        options: Any = None,  # noqa: ANN401
        *,
        top_k: int | None = None,
        filters: Mapping[str, Any] | None = None,
        user_id: str | None = None,
        agent_id: str | None = None,
        app_id: str | None = None,
        run_id: str | None = None,
        conversation: Hashable = None,
        messages: Messages | None = None,
        system: str | None = None,
        namespace: Namespace | str | None = None,
        **others: Any,  # noqa: ANN401
    ) -> MemoryContext:
        """As `ContextPilotMemory.context`; the context's own methods answer at once and are not awaited."""
        ids = {"user_id": user_id, "agent_id": agent_id, "app_id": app_id, "run_id": run_id}
        arguments, asked = self._asked("context", options, top_k, filters, ids, others)
        asks, space = question_of(question, query), self._space(asked, namespace)
        self._check_conversation(conversation, messages)
        found = self._found(await self._reply(query, arguments)) or Found((), ())
        talk = self._conversation(
            asked, space, system, conversation, messages
        )  # only now: a search may fail, or take long
        if talk is not None:
            return await AsyncContextPilot.around(self.pilot).apart(self._turn, found, asks, space, talk)
        prompt = await self._adapter.aarrange(found.texts, asks, namespace=space)
        return self._single(found, asks, system, space, prompt, await self._adapter.aextra_body(space, prompt))

    async def aextra_body(
        self,
        filters: Mapping[str, Any] | None = None,
        *,
        user_id: str | None = None,
        agent_id: str | None = None,
        app_id: str | None = None,
        run_id: str | None = None,
    ) -> dict[str, Any]:
        """As `extra_body`, awaiting an index that is a service; that one keeps the event loop waiting."""
        space = self.namespace_for(filters, user_id=user_id, agent_id=agent_id, app_id=app_id, run_id=run_id)
        return await self._adapter.aextra_body(space)

    async def _reply(self, query: str, arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401  as it came
        search = self._wrapped.search
        if inspect.iscoroutinefunction(search):
            return await search(query, **arguments)
        reply = await asyncio.to_thread(search, query, **arguments)
        return await reply if inspect.isawaitable(reply) else reply
