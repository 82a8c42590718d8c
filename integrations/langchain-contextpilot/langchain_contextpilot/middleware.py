"""ContextPilotMiddleware: an agent whose every prompt begins with the whole of the one before.

Documents become part of the user's message in the agent's state, so that later turns send them again as they were. What
was given in an earlier turn is not given again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Optional

from contextpilot_rag import AsyncContextPilot, ContextPilot, Namespace, Usage
from contextpilot_rag.adapter import Adapter, PilotLike
from contextpilot_rag.conversation import Conversation, TurnPrompt, left_out
from contextpilot_rag.engines.usage import usage_of
from contextpilot_rag.errors import SettingsError
from contextpilot_rag.forking import after_fork
from contextpilot_rag.intake import namespace_of
from contextpilot_rag.prompt.render import OPEN
from contextpilot_rag.settings import RequestOptions
from langchain.agents.middleware.types import AgentMiddleware, AgentState, PrivateStateAttr
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.prompts import BasePromptTemplate
from langchain_core.retrievers import RetrieverLike
from langchain_core.runnables import Runnable, RunnableBinding, RunnableConfig, ensure_config
from langgraph.runtime import Runtime
from typing_extensions import NotRequired, Unpack

from ._checking import check_names, positive, prompt_checked, switch, tools_checked
from ._config import NamespaceLike, named, namespace_in, required
from ._messages import all_plain, last_question, plain, text_of
from ._placing import Found, found
from ._repeats import without_repeats
from .turns import as_sent, has_documents, mended, note_of_turn, turn_message

Update = dict[str, Any]

_OWN = "retriever pilot namespace require_namespace document_prompt tools retrieve_if salt remember".split()
_SETTINGS = (*_OWN, *RequestOptions.__annotations__)


class ContextPilotState(AgentState[Any]):
    """What the middleware adds to an agent's state. Callers can neither set nor see it."""

    contextpilot_space: Annotated[NotRequired[list[str]], PrivateStateAttr]


if TYPE_CHECKING:  # these took other type parameters, or were not there, in langchain 1.0
    from langchain.agents.middleware.types import ExtendedModelResponse, ModelRequest, ModelResponse

    Handler = Callable[[ModelRequest[Any]], ModelResponse[Any]]
    AsyncHandler = Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    Answer = ModelResponse[Any] | AIMessage | ExtendedModelResponse[Any]
    Base = AgentMiddleware[ContextPilotState, Any, Any]
else:
    Base = AgentMiddleware


class ContextPilotMiddleware(Base):
    """Retrieves for the user's question, and keeps the agent's prompts append-only.

    The documents become part of the user's message, in the agent's state; the question as it was asked stays in
    ``additional_kwargs["contextpilot"]``, and `langchain_contextpilot.sources` says what a label stands for. Documents
    that were given in an earlier turn get a location hint, and what tools' results repeat gets one in the prompt, not
    in the state. All of it follows from the messages: any checkpointer will do, and any process can go on.

    Put it last in the list: it has to see what is really sent.

    Args:
        retriever: any retriever; None: only tools' results are looked at.
        pilot: a `ContextPilot` or `AsyncContextPilot` to share, an index or its address, or None: an index of its own
            in this process.
        namespace: what may share cached prefixes: a `Namespace`, or a tenant's name, number or UUID; None: the pilot's.
            ``contextpilot_namespace`` in ``configurable`` or ``metadata`` of a request's config names another.
        require_namespace: whether a request that no namespace is named for is an error.
        document_prompt: renders a document; None: its content.
        tools: whether results of tools that repeat what stands before get location hints; or the names of those tools.
        retrieve_if: whether documents are to be retrieved for a question; None: always. What it raises passes.
        salt: send the namespace's cache salt; False, for models that cannot: their engine may share between namespaces.
        remember: turns under way that an engine's report can be matched to; the oldest go.
        **options: settings for every request: order, min_gain, ...

    Raises:
        SettingsError: an unknown setting, index or namespace, or a value that a setting cannot have; for a request a
            namespace that is none, or that its model cannot send a salt for.

    >>> from langchain_core.runnables import RunnableLambda
    >>> retriever = RunnableLambda(lambda question: [Document("Slices count from zero.")])
    >>> middleware = ContextPilotMiddleware(retriever)
    >>> state = {"messages": [HumanMessage("Where do slices start?", id="1")]}
    >>> print(middleware.before_agent(state, Runtime())["messages"][0].content)
    <documents>
    [1] Slices count from zero.
    </documents>
    <BLANKLINE>
    Where do slices start?
    """

    state_schema = ContextPilotState

    def __init__(  # noqa: PLR0913  all but one by name
        self,
        retriever: RetrieverLike | None = None,
        *,
        pilot: PilotLike = None,
        namespace: NamespaceLike | None = None,
        require_namespace: bool = False,
        document_prompt: BasePromptTemplate[str] | None = None,
        tools: bool | Collection[str] = True,
        retrieve_if: Callable[[str], bool] | None = None,
        salt: bool = True,
        remember: int = 256,
        **options: Unpack[RequestOptions],
    ) -> None:
        super().__init__()
        check_names(options, _SETTINGS, type(self).__name__)
        self._retriever = _retriever(retriever)
        self._adapter = Adapter(pilot, namespace=named(namespace), **options)
        self._document_prompt = prompt_checked(document_prompt)
        self._deduplicated = tools_checked(tools)
        if retrieve_if is not None and not callable(retrieve_if):
            raise SettingsError(f"retrieve_if is called with the question, but {retrieve_if!r} cannot be")
        self._retrieve_if = retrieve_if
        self._salt, self._required = switch(salt, "salt"), switch(require_namespace, "require_namespace")
        self._under_way: OrderedDict[tuple[str, ...], TurnPrompt] = (
            OrderedDict()
        )  # callers' ids may meet in two tenants
        self._remember = positive(remember, "remember")
        self._renew_lock()
        after_fork(self, ContextPilotMiddleware._renew_lock)

    def _renew_lock(self) -> None:
        self._lock = threading.Lock()

    @property
    def pilot(self) -> ContextPilot:
        """The pilot in use."""
        return self._adapter.pilot

    @property
    def failures(self) -> int:
        """How often something of ours failed."""
        return self._adapter.failures

    def before_agent(
        self,
        state: ContextPilotState,
        runtime: Runtime[Any],  # noqa: ARG002
        config: Optional[RunnableConfig] = None,  # noqa: UP045  langgraph looks for this spelling
    ) -> Update | None:
        """Retrieve for the user's question, and put the documents into the user's message."""
        config = ensure_config(config)
        space = self._namespace(config)
        asked = self._asked(state)
        if asked is None or self._retriever is None:
            return self._update(state, space)
        question = text_of(asked[1])
        documents = self._retriever.invoke(question, config) if self._wanted(question) else []
        return self._update(state, space, self._with_documents(state["messages"], asked, documents, space))

    async def abefore_agent(
        self,
        state: ContextPilotState,
        runtime: Runtime[Any],  # noqa: ARG002
        config: Optional[RunnableConfig] = None,  # noqa: UP045  as above
    ) -> Update | None:
        """As `before_agent`, awaiting the retriever."""
        config = ensure_config(config)
        space = self._namespace(config)
        asked = self._asked(state)
        if asked is None or self._retriever is None:
            return self._update(state, space)
        question = text_of(asked[1])
        documents = await self._retriever.ainvoke(question, config) if self._wanted(question) else []
        pilot = AsyncContextPilot.around(self.pilot)
        message = await pilot.apart(self._with_documents, state["messages"], asked, documents, space)
        return self._update(state, space, message)

    def wrap_model_call(self, request: ModelRequest[Any], handler: Handler) -> Answer:
        """Send what stands in the state, without what tools' results repeat, and learn from the engine's report."""
        sent = self._sent(request, self._adapter.extra_body(*self._of(request)) if self._salt else {})
        answer = handler(sent)
        self._learn(sent, answer)
        return answer

    async def awrap_model_call(self, request: ModelRequest[Any], handler: AsyncHandler) -> Answer:
        """As `wrap_model_call`."""
        sent = self._sent(request, await self._adapter.aextra_body(*self._of(request)) if self._salt else {})
        answer = await handler(sent)
        await self._alearn(sent, answer)
        return answer

    def _asked(self, state: ContextPilotState) -> tuple[int, HumanMessage] | None:
        """The question that documents are to be retrieved for, and its place."""
        asked = last_question(state["messages"])
        if asked is None or asked[1].id is None or has_documents(asked[1]):
            return None
        return asked if text_of(asked[1]).strip() else None

    def _wanted(self, question: str) -> bool:
        return self._retrieve_if is None or bool(self._retrieve_if(question))

    def _update(
        self, state: ContextPilotState, namespace: Namespace | str | None, message: HumanMessage | None = None
    ) -> Update | None:
        update: Update = {} if message is None else {"messages": [message]}
        fields = _fields(namespace)
        if fields != (state.get("contextpilot_space") or []):
            update["contextpilot_space"] = fields
        return update or None

    def _namespace(self, config: RunnableConfig) -> Namespace | str | None:
        space = namespace_in(config.get("configurable"), config.get("metadata"))
        return required(space, self._adapter.namespace, required=self._required)

    def _with_documents(
        self,
        messages: Sequence[BaseMessage],
        question: tuple[int, HumanMessage],
        documents: Sequence[Document],
        namespace: Namespace | str | None,
    ) -> HumanMessage | None:
        """The user's message with the documents in it; None if there are none."""
        place, asked = question
        last = asked.content if isinstance(asked.content, str) else ""  # parts of a message follow by themselves
        try:
            given = self._found(documents)
            try:
                talk = self._conversation(messages[:place], namespace)
                sent, prompt = self._adapter.turn(talk, given.texts, last)
                text = str(sent[-1].get("content"))
            except Exception as error:  # noqa: BLE001  fails open: the documents in full
                self._adapter.failed(error)
                text, prompt = "\n\n".join([*given.texts, *([last] if last else [])]), None
                text = f"\n\n{text}" if text.startswith(OPEN) else text
            return self._message(asked, given, text, prompt, _fields(namespace), unchanged=last)
        except Exception as error:  # noqa: BLE001  fails open: the question alone
            self._adapter.failed(error)
            return None

    def _found(self, documents: Sequence[Document]) -> Found:
        try:
            return found(documents, self._document_prompt)
        except Exception as error:  # noqa: BLE001  fails open: the contents alone
            self._adapter.failed(error)
            return found(documents)

    def _message(
        self,
        asked: HumanMessage,
        given: Found,
        text: str,
        prompt: TurnPrompt | None,
        space: list[str],
        *,
        unchanged: str,
    ) -> HumanMessage | None:
        if text == unchanged:
            return None
        if prompt is None:
            return turn_message(asked, text, {"blocks": []})
        with self._lock:
            self._under_way[_key(asked, space)] = replace(prompt, history=())  # a report is about the turn
            while len(self._under_way) > self._remember:
                self._under_way.popitem(last=False)
        return turn_message(asked, text, note_of_turn(given, prompt))

    def _conversation(self, messages: Sequence[BaseMessage], namespace: Namespace | str | None) -> Conversation:
        """What was sent before. Parts of texts are left out of tools' results alone, where the prompt is known."""
        pilot = self._adapter.pilot
        dedup = replace(left_out(pilot.settings), chunks=False)
        if namespace is None:
            namespace = pilot.prepare(()).request.namespace
        before = [{**plain(message), "content": as_sent(message)} for message in mended(messages)]
        return Conversation(pilot, namespace_of(namespace), None, dedup, before)

    def _sent(self, request: ModelRequest[Any], salt: dict[str, Any]) -> ModelRequest[Any]:
        """The request as it is sent; if something fails, as it came, but for what did not."""
        request = self._with_salt(request, salt)  # tenants are kept apart, or nothing is sent
        for step in (self._mended, self._without_repeats):
            try:
                request = step(request)
            except Exception as error:  # noqa: BLE001  fails open: the request goes out without it
                self._adapter.failed(error)
        return request

    def _mended(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        messages: list[Any] = mended(request.messages)
        return request.override(messages=messages)

    def _without_repeats(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        """With location hints in tools' results. They follow from the messages before, each time anew."""
        settings = self._adapter.pilot.settings
        system, messages = _system(request), request.messages
        if settings.dedup == "off" or not any(self._is_deduplicated(message) for message in messages):
            return request
        plains = [] if system is None else [plain(system)]
        for message in messages:
            other = isinstance(message, ToolMessage) and not self._is_deduplicated(message)
            plains.append({**plain(message), **({"role": "other"} if other else {})})
        contents = without_repeats(plains, settings)[-len(messages) :]
        sent = [
            message if content == message.content else message.model_copy(update={"content": content})
            for message, content in zip(messages, contents, strict=True)
        ]
        return request.override(messages=sent)

    def _is_deduplicated(self, message: BaseMessage) -> bool:
        if not isinstance(message, ToolMessage):
            return False
        return self._deduplicated if isinstance(self._deduplicated, bool) else message.name in self._deduplicated

    def _of(self, request: ModelRequest[Any]) -> tuple[Namespace | None, TurnPrompt | None]:
        """Whose a request is, and the turn that it is of, if that one is under way."""
        asked = next((message for message in reversed(request.messages) if isinstance(message, HumanMessage)), None)
        space: Any = request.state.get("contextpilot_space") or []
        with self._lock:
            prompt = None if asked is None else self._under_way.get(_key(asked, space))
        return (Namespace(*space) if space else None), prompt

    def _with_salt(self, request: ModelRequest[Any], salt: dict[str, Any]) -> ModelRequest[Any]:
        """With the namespace's cache salt, for a model that can send one."""
        if not salt:
            return request
        if not hasattr(request.model, "extra_body"):
            raise SettingsError(
                f"{type(request.model).__name__} has no extra_body that could carry the namespace's cache salt; "
                "ContextPilotMiddleware(..., salt=False) does without, if nothing has to be kept apart in its engine"
            )
        body: dict[str, Any] = {**(request.model.extra_body or {})}
        if isinstance(request.model, RunnableBinding):
            body.update(request.model.kwargs.get("extra_body") or {})
        body.update(request.model_settings.get("extra_body") or {})
        return request.override(model_settings={**request.model_settings, "extra_body": {**body, **salt}})

    def _learn(self, request: ModelRequest[Any], answer: Answer) -> None:
        try:
            reported = self._reported(request, answer)
            if reported is not None:
                self.pilot.observe(*reported)
        except Exception as error:  # noqa: BLE001  fails open: an answer is there, it must reach the caller
            self._adapter.failed(error)

    async def _alearn(self, request: ModelRequest[Any], answer: Answer) -> None:
        try:
            reported = self._reported(request, answer)
            if reported is not None:
                await self.pilot.aobserve(*reported)
        except Exception as error:  # noqa: BLE001  as above
            self._adapter.failed(error)

    def _reported(self, request: ModelRequest[Any], answer: Answer) -> tuple[TurnPrompt, Usage] | None:
        prompt = self._of(request)[1]
        if prompt is None:
            return None
        sent = [] if request.tools else _all(request)  # tools are tokens that we don't see, and so may a format be
        prompt.sent.note(map(text_of, sent), all_plain(sent) if sent and not request.response_format else None)
        return prompt, next(filter(None, map(usage_of, _answers(answer))), Usage())  # nothing reported counts


def _key(asked: HumanMessage, space: Sequence[str]) -> tuple[str, ...]:
    return (str(asked.id), *space)


def _fields(namespace: Namespace | str | None) -> list[str]:
    """A namespace as a state can keep it; empty for none."""
    space = None if namespace is None else namespace_of(namespace)
    return [] if space is None else [space.tenant, space.model, space.corpus]


def _retriever(given: Any) -> RetrieverLike | None:  # noqa: ANN401
    if given is None or isinstance(given, Runnable):
        return given
    hint = "; RunnableLambda makes one of a function" if callable(given) else ""
    hint = "; give its as_retriever()" if hasattr(given, "as_retriever") else hint
    raise SettingsError(f"retriever is a LangChain retriever, or None, not {type(given).__name__}{hint}")


def _answers(answer: Answer) -> list[BaseMessage]:
    if isinstance(answer, AIMessage):
        return [answer]
    response: Any = getattr(answer, "model_response", answer)
    return list(response.result)


def _system(request: ModelRequest[Any]) -> SystemMessage | None:
    """The request's system message; in langchain 1.0 it was a text."""
    text = request.system_prompt
    return getattr(request, "system_message", None) or (None if text is None else SystemMessage(text))


def _all(request: ModelRequest[Any]) -> list[BaseMessage]:
    """The messages that a request's prompt is made of."""
    system = _system(request)
    return [*([] if system is None else [system]), *request.messages]
