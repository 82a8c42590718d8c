"""What the blocking and the async memory have in common: everything but the waiting."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any

from contextpilot_rag import AlignedPrompt, Block, ContextPilot, Conversation, Namespace, TurnPrompt, Usage
from contextpilot_rag.adapter import Adapter, PilotLike
from contextpilot_rag.conversation.history import text_of
from contextpilot_rag.dedup.messages import Messages, checked_messages
from contextpilot_rag.errors import InputError, SettingsError
from contextpilot_rag.intake import namespace_of
from contextpilot_rag.settings import RequestOptions

from .context import MemoryContext, system_explained
from .filters import IDS, namespace_of_filters, owner_of_conversation, with_ids
from .keywords import check_keywords, takes
from .results import Found, found_in

if TYPE_CHECKING:
    from contextpilot_rag.prompt.render import Message
    from typing_extensions import Unpack

_OWN = ("_adapter", "_options", "_shared", "_wrapped")


class MemoryFace:
    """Stands before a memory; whatever is not its own is the memory's, to read and to set."""

    __slots__ = (*_OWN, "__weakref__")

    _adapter: Adapter
    _options: RequestOptions
    _shared: Namespace | None
    _wrapped: Any

    def __init__(
        self,
        memory: Any,  # noqa: ANN401  any of Mem0's four classes, or one like them
        pilot: PilotLike = None,
        namespace: Namespace | str | None = None,
        **options: Unpack[RequestOptions],
    ) -> None:
        if not callable(getattr(memory, "search", None)):
            raise SettingsError(f"memory must have a search method, as mem0.Memory has, not {type(memory).__name__}")
        self._wrapped = memory
        self._adapter = Adapter(pilot, **options)
        self._options = options
        self._shared = None if namespace is None else namespace_of(namespace)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  the memory's own
        if name in _OWN:  # not set yet, as in a copy that is being made
            raise AttributeError(name)
        return getattr(self._wrapped, name)

    def __setattr__(self, name: str, value: object) -> None:
        if name in _OWN:
            object.__setattr__(self, name, value)
        elif hasattr(type(self), name):
            raise AttributeError(f"{name} cannot be set")
        else:
            setattr(self._wrapped, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._wrapped, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self._wrapped)})

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._wrapped!r})"

    @property
    def memory(self) -> Any:  # noqa: ANN401
        """The memory that this one stands before."""
        return self._wrapped

    @property
    def pilot(self) -> ContextPilot:
        """The pilot, to share it with others: ``ContextPilotMemory(other, pilot=memory.pilot)``."""
        return self._adapter.pilot

    @property
    def failures(self) -> int:
        """How often something failed, and the memory's own result was used: the pilot's count, ``pilot.failures``."""
        return self._adapter.failures

    def namespace_for(
        self,
        filters: Mapping[str, Any] | None = None,
        *,
        user_id: str | None = None,
        agent_id: str | None = None,
        app_id: str | None = None,
        run_id: str | None = None,
    ) -> Namespace:
        """What may share cached prefixes with a search by these filters and ids.

        Raises:
            InputError: filters and ids do not agree, or the filters are none, such as a user's id without its name.
        """
        return self._space(self._filters(filters, _ids(user_id, agent_id, app_id, run_id)), None)

    def extra_body(
        self,
        filters: Mapping[str, Any] | None = None,
        *,
        user_id: str | None = None,
        agent_id: str | None = None,
        app_id: str | None = None,
        run_id: str | None = None,
    ) -> dict[str, Any]:
        """What a request with these memories carries as ``extra_body``: the namespace's ``cache_salt``.

        For those who render what `search` returns themselves; a context has it as ``context.extra_body``.

        Raises:
            InputError: as for `namespace_for`.
        """
        space = self.namespace_for(filters, user_id=user_id, agent_id=agent_id, app_id=app_id, run_id=run_id)
        return self.pilot.extra_body(space)

    def learn(
        self, sent: str | Messages, response: object, *, namespace: Namespace | str | None = None
    ) -> Usage | None:
        """Learn from an engine's report on a prompt that you rendered yourself from what `search` returned.

        Args:
            sent: the messages that were sent, or their text. Only messages are looked for in what followed engines
                have cached.
            response: the engine's answer, or the last chunk of a stream.
            namespace: of the search (`namespace_for`). None: any; nothing is learnt where two of them fit.

        Returns:
            What was reported; None if nothing was, or if no search fits the prompt.

        Raises:
            InputError: no messages or text, or a text in place of the engine's response.
        """
        messages: Messages | None = None
        if not isinstance(sent, str):
            if not isinstance(sent, list | tuple):
                raise InputError(
                    f"learn takes what was sent, a text or messages, before the response, not {_kind(sent)}"
                )
            messages = checked_messages(sent)
            sent = "\n".join(map(text_of, messages))
        if isinstance(response, str | bytes | list | tuple):
            raise InputError(f"learn takes the engine's response, which holds its usage, not {_kind(response)}")
        return self._adapter.learn(sent, response, namespace=namespace, messages=messages)

    def _asked(
        self,
        method: str,
        options: Any,  # noqa: ANN401  a SearchMemoryOptions of Mem0
        top_k: int | None,
        filters: Mapping[str, Any] | None,
        ids: Mapping[str, Any],
        others: dict[str, Any],
    ) -> tuple[dict[str, Any], Mapping[str, Any] | None]:
        """The arguments for the memory's own search, and the filters in force, as "search" or "context" was given them.

        Raises:
            InputError: what was asked for does not fit together.
        """
        limit = None
        if not takes(self._wrapped.search, "limit"):  # Mem0 2 takes it among others, and does nothing
            limit = others.pop("limit", None)
        if limit is not None and top_k not in (None, limit):
            raise InputError(f"limit={limit!r} and top_k={top_k!r} are the same thing; say it once")
        chosen = {"options": options, "top_k": limit if top_k is None else top_k}
        named = getattr(options, "filters", None) if filters is None else filters
        asked = self._filters(named, ids)
        if asked is not None and not (filters is None and asked is named):  # else the options hold them
            chosen["filters"] = asked
        arguments = {**others, **{name: value for name, value in chosen.items() if value is not None}}
        check_keywords(method, self._wrapped.search, arguments)
        return arguments, asked

    def _filters(self, filters: Mapping[str, Any] | None, ids: Mapping[str, Any]) -> Mapping[str, Any] | None:
        if filters is not None and not isinstance(filters, Mapping):
            raise InputError(
                f"filters must be a mapping like {{'user_id': 'alice'}}, not {_kind(filters)}; or say user_id='alice'"
            )
        return with_ids(filters, ids, nested=not hasattr(self._wrapped, "vector_store"))

    def _space(self, filters: Mapping[str, Any] | None, namespace: Namespace | str | None) -> Namespace:
        """The namespace: of the call, else of this memory, else the filters' own below the pilot's."""
        if namespace is not None:
            return namespace_of(namespace)
        return self._shared if self._shared is not None else self._owner(filters)

    def _owner(
        self,
        filters: Mapping[str, Any] | None,
        of: Callable[[Mapping[str, Any] | None, Namespace], Namespace] = namespace_of_filters,
    ) -> Namespace:
        """Whose memories are asked for, below the pilot's namespace."""
        try:
            return of(filters, self.pilot.prepare(()).request.namespace)
        except Exception as error:  # noqa: BLE001  somebody else's object among the filters; the memory may take it
            self._adapter.failed(error)
            return Namespace(f"nobody else's: {secrets.token_hex(16)}")

    def _found(self, reply: object) -> Found | None:
        """The memories of a reply; None where there are none to be seen, which is a failure."""
        try:
            return found_in(reply)
        except InputError as error:
            self._adapter.failed(error)
            return None

    def _single(
        self,
        found: Found,
        question: str,
        system: str | None,
        space: Namespace,
        prompt: AlignedPrompt | None,
        body: dict[str, Any],
    ) -> MemoryContext:
        return MemoryContext(question, system, space, prompt, None, found, self._adapter, _body=body)

    def _check_conversation(self, conversation: Hashable, messages: Messages | None) -> None:
        """See to it that there can be one of this name.

        Raises:
            InputError: no name, or messages that are none.
        """
        if conversation is None:
            if messages is not None:
                raise InputError("messages are of a conversation: give its name, too (conversation=...)")
            return
        try:
            hash(conversation)
        except TypeError:
            raise InputError(f"a conversation's name must be hashable, not {_kind(conversation)}") from None
        if isinstance(conversation, str) and not conversation:  # most likely a session id that is missing
            raise InputError("a conversation's name must not be empty; None is a request of its own")
        if isinstance(messages, list | tuple):  # anything else can be looked at only once
            checked_messages(messages)

    def _conversation(
        self,
        asked: Mapping[str, Any] | None,
        space: Namespace,
        system: str | None,
        conversation: Hashable,
        messages: Messages | None,
    ) -> Conversation | None:
        """The conversation of this name; None for a request of its own.

        Raises:
            InputError: another system prompt than the conversation's.
        """
        if conversation is None:
            return None
        # A namespace may be shared by many; a conversation is of those whose memories are asked for. The type, because
        # 1 and True are two names.
        name = (self._owner(asked, owner_of_conversation), type(conversation), conversation)
        with system_explained():
            return self.pilot.conversation(name, namespace=space, system=system, messages=messages)

    def _turn(self, found: Found, question: str, space: Namespace, talk: Conversation) -> MemoryContext:
        """A turn of a conversation; asks the index, if it is the first."""
        sent, prompt = self._aligned_turn(found, question, talk)
        unaligned = () if prompt is not None else tuple(sent)
        body = self._adapter.extra_body(space, prompt)
        return MemoryContext(question, talk.system, space, prompt, talk, found, self._adapter, unaligned, body)

    def _aligned_turn(self, found: Found, question: str, talk: Conversation) -> tuple[list[Message], TurnPrompt | None]:
        """As `Adapter.turn`, but the conversation knows the memories by their ids."""
        try:
            blocks = [Block(text, name) for text, name in zip(found.texts, found.names, strict=True)]
            prompt = talk.align(blocks, question, **self._options)
            return prompt.messages(), prompt
        except Exception as error:  # noqa: BLE001  fails open: the turn can be sent all the same, in full
            self._adapter.failed(error)
        return talk.ask("\n\n".join(part for part in (*found.texts, question) if part)), None


def question_of(question: object, query: str) -> str:
    """What is asked; the query, if nothing else.

    Raises:
        InputError: no text.
    """
    if question is None:
        return query
    if not isinstance(question, str):
        raise InputError(f"the question must be a str, not {type(question).__name__}")
    return question


def _kind(value: object) -> str:
    return type(value).__name__


def _ids(*values: Any) -> dict[str, Any]:  # noqa: ANN401
    return dict(zip(IDS, values, strict=True))
