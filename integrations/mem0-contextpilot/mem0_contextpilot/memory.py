"""ContextPilotMemory: a Mem0 memory whose results stand in the order that the engine's cache can reuse."""

from __future__ import annotations

import inspect
from collections.abc import Hashable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from contextpilot_rag import Namespace
from contextpilot_rag.adapter import PilotLike
from contextpilot_rag.dedup.messages import Messages
from contextpilot_rag.errors import SettingsError
from contextpilot_rag.settings import RequestOptions

from .context import MemoryContext
from .face import MemoryFace, question_of
from .results import Found, aligned

if TYPE_CHECKING:
    from typing_extensions import Unpack

_ASYNC = "what this memory's search returns has to be awaited: use AsyncContextPilotMemory"


class ContextPilotMemory(MemoryFace):
    """A Mem0 memory whose results stand in the order that the engine's cache can reuse. Thread-safe, if the memory is.

    Whatever is not named here is the memory's own: ``add``, ``get_all``, ``update``, ``delete``, ``close``, ...

    Args:
        memory: a ``mem0.Memory``, a ``mem0.MemoryClient``, or something with their ``search``.
        pilot: a `ContextPilot` to share, an index or its address, or None: an index of its own in this process.
        namespace: what may share cached prefixes, for all searches. None: each search's own ids (`namespace_for`).
        **options: settings for every request: order, min_gain, protect_top, ... With ``order_hint=True`` a model is
            told the memory's order, where it changed; by default it is not.

    Raises:
        SettingsError: no such memory; an unknown setting, index or namespace, or a value that a setting cannot have.

    >>> class Notes:  # instead of a mem0.Memory, which needs an embedder
    ...     def search(self, query, *, filters, top_k=20):
    ...         return {"results": [{"id": "m1", "memory": "Likes tea.", "score": 0.7, "user_id": "alice"}]}
    >>> memory = ContextPilotMemory(Notes())
    >>> memory.search("What to drink?", user_id="alice")["results"][0]["memory"]
    'Likes tea.'
    >>> context = memory.context("What to drink?", user_id="alice")
    >>> print(context.user_message)
    <documents>
    [1] Likes tea.
    </documents>
    <BLANKLINE>
    What to drink?
    >>> context.labels
    {1: 'm1'}
    """

    __slots__ = ()

    def __init__(
        self,
        memory: Any,  # noqa: ANN401  a Memory, a MemoryClient or something like them
        pilot: PilotLike = None,
        namespace: Namespace | str | None = None,
        **options: Unpack[RequestOptions],
    ) -> None:
        super().__init__(memory, pilot, namespace, **options)
        if inspect.iscoroutinefunction(memory.search):
            raise SettingsError(_ASYNC)

    def __enter__(self) -> ContextPilotMemory:
        if hasattr(self._wrapped, "__enter__"):
            self._wrapped.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> Any:  # noqa: ANN401  as the memory says
        if hasattr(self._wrapped, "__exit__"):
            return self._wrapped.__exit__(kind, error, traceback)
        return self._wrapped.close() if hasattr(self._wrapped, "close") else None

    def search(  # noqa: PLR0913  all but two by name
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
        """The memory's own search, with its results in aligned order; they count as about to be sent.

        Args:
            query: what to look for.
            options: a ``SearchMemoryOptions`` of the hosted client.
            top_k: how many results at most; None: as the memory has it. ``limit`` is taken as the same.
            filters: as in Mem0 2.
            user_id: as a filter; so are the other ids.
            agent_id: as a filter.
            app_id: as a filter, for the hosted client.
            run_id: as a filter.
            keep_order: the memory's own order; the index is not asked, and nothing counts as sent.
            namespace: what may share cached prefixes, for this search; None: as for the whole memory.
            **others: for the memory's own search: threshold, rerank, explain, ...

        Returns:
            What the memory returned: the same dicts, none more and none less. Copies of a text under other ids stand at
            the end if the order changed. `order_hint` tells a model the memory's order, if that was switched on.

        Raises:
            InputError: ids and filters, or limit and top_k, do not agree; or a keyword that nothing takes.
        """
        ids = {"user_id": user_id, "agent_id": agent_id, "app_id": app_id, "run_id": run_id}
        arguments, asked = self._asked("search", options, top_k, filters, ids, others)
        space = self._space(asked, namespace)
        reply = self._reply(query, arguments)
        found = None if keep_order else self._found(reply)
        if found is None:
            return reply
        return aligned(reply, found, self._adapter.arrange(found.texts, query, namespace=space))

    def context(  # noqa: PLR0913  all but three by name
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
        """The memories for a question as a prompt whose prefix can be cached.

        Args:
            query: what to look for.
            question: what is asked, last in the prompt; None: the query.
            options: as for `search`; so are all that are not named here.
            top_k: as for `search`.
            filters: as for `search`.
            user_id: as for `search`.
            agent_id: as for `search`.
            app_id: as for `search`.
            run_id: as for `search`.
            conversation: your name for it: memories that an earlier turn gave become location hints, and the history is
                append-only. A name is one conversation for each set of ids, whatever the namespace. None: a request of
                its own.
            messages: what the conversation was sent so far, as ``context.conversation.messages`` gave it, to go on from
                there: in another process, or after the pilot forgot it. They count, whatever the pilot has.
            system: the system prompt; constant in a conversation, and needed in its first turn only.
            namespace: as for `search`.
            **others: as for `search`.

        Raises:
            InputError: ids and filters, or limit and top_k, do not agree; a keyword that nothing takes; a conversation
                with another system prompt or without a name, or messages that are none.
        """
        ids = {"user_id": user_id, "agent_id": agent_id, "app_id": app_id, "run_id": run_id}
        arguments, asked = self._asked("context", options, top_k, filters, ids, others)
        asks, space = question_of(question, query), self._space(asked, namespace)
        self._check_conversation(conversation, messages)
        found = self._found(self._reply(query, arguments)) or Found((), ())
        talk = self._conversation(
            asked, space, system, conversation, messages
        )  # only now: a search may fail, or take long
        if talk is not None:
            return self._turn(found, asks, space, talk)
        prompt = self._adapter.arrange(found.texts, asks, namespace=space)
        return self._single(found, asks, system, space, prompt, self._adapter.extra_body(space, prompt))

    def _reply(self, query: str, arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401  as it came
        reply = self._wrapped.search(query, **arguments)
        if inspect.isawaitable(reply):
            if inspect.iscoroutine(reply):
                reply.close()
            raise SettingsError(_ASYNC)
        return reply
