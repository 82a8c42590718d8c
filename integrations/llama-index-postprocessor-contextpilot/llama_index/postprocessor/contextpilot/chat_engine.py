"""ContextPilotChatEngine: the retrieved nodes at the tail of an append-only history, each given once."""

from __future__ import annotations

import asyncio
import inspect
import uuid
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, cast

from contextpilot_rag import Namespace
from contextpilot_rag.adapter import Adapter, PilotLike
from contextpilot_rag.errors import SettingsError
from contextpilot_rag.settings import RequestOptions
from contextpilot_rag.types import short
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.callbacks import CallbackManager, trace_method
from llama_index.core.chat_engine.types import AgentChatResponse, BaseChatEngine, StreamingAgentChatResponse
from llama_index.core.llms import LLM, ChatMessage
from llama_index.core.memory import BaseMemory, Memory
from llama_index.core.memory.types import DEFAULT_CHAT_STORE_KEY
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle
from llama_index.core.settings import Settings
from llama_index.core.tools import ToolOutput
from llama_index.core.types import Thread

from .base import ContextPilotPostprocessor
from .guarded import guarded
from .nodes import HIDDEN_METADATA
from .options import check_names, patterns_of
from .salt import salted, takes_salt
from .turns import Recorder, Turn, Turns

if TYPE_CHECKING:
    from typing_extensions import Unpack

_NO_LIMIT = 2**31  # tokens: a memory must not drop what the engine's cache still holds


class ContextPilotChatEngine(BaseChatEngine):
    """Chats over a retriever. Each turn's prompt begins with the whole of the one before.

    A turn adds one user message: the nodes that the model was not given yet, location hints for those that it was, and
    the question. The system prompt comes first and stays as it is. `chat_history` shows bare questions and answers;
    what was really sent stands in the messages' ``additional_kwargs``, so a conversation goes on from any stored chat
    history, with the same bytes. ``response.source_nodes`` are all nodes of the turn, best first, without labels in
    their texts; `citations` says which label is whose.

    Args:
        retriever: finds the nodes.
        llm: answers.
        memory: holds the chat history. Of its own limits and summaries nothing is used: all that it has is sent.
        system_prompt: constant for the conversation.
        node_postprocessors: what else is to be done with the nodes, but no `ContextPilotPostprocessor`.
        pilot: as `ContextPilotPostprocessor` takes it.
        namespace: whose conversation it is; None: the pilot's.
        conversation_id: yours for it; None: the memory's own (``session_id`` or ``chat_store_key``). The pilot keeps
            what was sent under it, so that an engine that is made for each request need not read the history again.
        hidden_metadata: patterns of metadata keys that the model is not shown.
        max_history_tokens: a longer history is cut before a turn, in one piece, to half of this; None: never.
        send_salt: whether each call to the llm carries `extra_body`, so that the engine's cache keeps namespaces apart.
            None: if the llm is an ``OpenAILike``. True: other LLMs have to take ``extra_body`` in their calls.
        callback_manager: None: an empty one.
        **options: settings of the first turn's order: order, min_gain, ...

    Raises:
        SettingsError: an unknown setting, a value that a setting cannot have, an id that is not hashable, or a
            `ContextPilotPostprocessor` among the postprocessors.
    """

    def __init__(  # noqa: PLR0913  all but three by name
        self,
        retriever: BaseRetriever,
        llm: LLM,
        memory: BaseMemory,
        *,
        system_prompt: str | None = None,
        node_postprocessors: Sequence[BaseNodePostprocessor] | None = None,
        pilot: PilotLike = None,
        namespace: Namespace | str | None = None,
        conversation_id: Hashable = None,
        hidden_metadata: Sequence[str] | None = HIDDEN_METADATA,
        max_history_tokens: int | None = None,
        send_salt: bool | None = None,
        callback_manager: CallbackManager | None = None,
        **options: Unpack[RequestOptions],
    ) -> None:
        check_names(type(self).__name__, options, [*RequestOptions.__annotations__, *_names()])
        self._retriever = retriever
        self._llm = llm
        self._memory = memory
        self._guarded = guarded(memory)
        self._postprocessors = list(node_postprocessors or ())
        if any(isinstance(one, ContextPilotPostprocessor) for one in self._postprocessors):
            raise SettingsError("the chat engine arranges the nodes itself: leave ContextPilotPostprocessor out")
        if not _is_name(conversation_id):
            raise SettingsError(f"a conversation's id must be hashable and not empty, not {short(conversation_id)}")
        self._adapter = Adapter(pilot, namespace=namespace, **options)
        self._turns = Turns(
            self._adapter,
            _name_of(memory) if conversation_id is None else conversation_id,
            system_prompt,
            patterns_of(hidden_metadata),
            max_history_tokens,
            llm.metadata.system_role,
            llm.metadata.context_window,
        )
        self._send_salt = send_salt
        self.callback_manager: CallbackManager = callback_manager or CallbackManager([])
        for postprocessor in self._postprocessors:
            postprocessor.callback_manager = self.callback_manager

    @classmethod
    def from_defaults(  # noqa: PLR0913  all but one by name
        cls,
        retriever: BaseRetriever,
        *,
        llm: LLM | None = None,
        memory: BaseMemory | None = None,
        chat_history: Sequence[ChatMessage] | None = None,
        system_prompt: str | None = None,
        node_postprocessors: Sequence[BaseNodePostprocessor] | None = None,
        pilot: PilotLike = None,
        namespace: Namespace | str | None = None,
        conversation_id: Hashable = None,
        hidden_metadata: Sequence[str] | None = HIDDEN_METADATA,
        max_history_tokens: int | None = None,
        send_salt: bool | None = None,
        **options: Unpack[RequestOptions],
    ) -> ContextPilotChatEngine:
        """An engine with the framework's defaults.

        Args:
            retriever: finds the nodes.
            llm: None: ``Settings.llm``.
            memory: None: a `Memory` that drops nothing.
            chat_history: what was said before, for that memory.
            system_prompt: as for the class, and so for all that follow.
            node_postprocessors: applied in their order.
            pilot: to share an index and its settings.
            namespace: whose conversation it is.
            conversation_id: yours for it.
            hidden_metadata: patterns of metadata keys.
            max_history_tokens: None: three quarters of the llm's ``context_window``.
            send_salt: whether the llm's calls carry the namespace's salt.
            **options: settings of the first turn's order.

        Raises:
            SettingsError: as for the class, or both a memory and a chat history that is not empty.
        """
        llm = llm or Settings.llm
        if memory is not None and chat_history:
            raise SettingsError(
                "a chat history is given twice: in memory, and as chat_history; give it to the memory (memory.set), "
                "or to the first turn (chat_history=)"
            )
        if max_history_tokens is None:
            max_history_tokens = max(1, llm.metadata.context_window * 3 // 4)
        if memory is None:
            memory = Memory.from_defaults(chat_history=list(chat_history or ()), token_limit=_NO_LIMIT)
        return cls(
            retriever,
            llm,
            memory,
            system_prompt=system_prompt,
            node_postprocessors=node_postprocessors,
            pilot=pilot,
            namespace=namespace,
            conversation_id=conversation_id,
            hidden_metadata=hidden_metadata,
            max_history_tokens=max_history_tokens,
            send_salt=send_salt,
            callback_manager=Settings.callback_manager,
            **options,
        )

    @property
    def adapter(self) -> Adapter:
        """What it is built on; ``adapter.pilot`` is the pilot."""
        return self._adapter

    @property
    def failures(self) -> int:
        """How often something failed, and a turn's nodes went out in full, as retrieved."""
        return self._adapter.failures

    @property
    def chat_history(self) -> list[ChatMessage]:
        """The questions and answers so far. Keep it to resume."""
        return self._guarded.messages()

    def extra_body(self) -> dict[str, Any]:
        """What the llm's requests have to carry as ``extra_body``: the namespace's ``cache_salt``, if it has one.

        Only for LLMs that are not sent it with each call, see ``send_salt``.
        """
        return self._adapter.pilot.extra_body(self._adapter.namespace)

    def reset(self) -> None:
        """Forget the conversation."""
        self._guarded.reset()

    @trace_method("chat")
    def chat(
        self,
        message: str,
        chat_history: list[ChatMessage] | None = None,
        prev_chunks: list[NodeWithScore] | None = None,
    ) -> AgentChatResponse:
        """Answer a question.

        Args:
            message: the question.
            chat_history: takes the place of what the memory has.
            prev_chunks: nodes to use if none are retrieved.
        """
        turn = self._begun(message, chat_history, prev_chunks)
        response = self._llm.chat(turn.messages, **self._options(turn))
        turn.take(response.message.content, response.raw)
        self._store(turn)
        return AgentChatResponse(response=turn.answer, sources=_sources(turn), source_nodes=turn.source_nodes)

    @trace_method("chat")
    async def achat(
        self,
        message: str,
        chat_history: list[ChatMessage] | None = None,
        prev_chunks: list[NodeWithScore] | None = None,
    ) -> AgentChatResponse:
        """As `chat`."""
        turn = await self._abegun(message, chat_history, prev_chunks)
        response = await self._llm.achat(turn.messages, **await self._aoptions(turn))
        turn.take(response.message.content, response.raw)
        await self._astore(turn)
        return AgentChatResponse(response=turn.answer, sources=_sources(turn), source_nodes=turn.source_nodes)

    @trace_method("chat")
    def stream_chat(
        self,
        message: str,
        chat_history: list[ChatMessage] | None = None,
        prev_chunks: list[NodeWithScore] | None = None,
    ) -> StreamingAgentChatResponse:
        """As `chat`, in pieces. The turn counts when the stream has ended."""
        turn = self._begun(message, chat_history, prev_chunks)
        response = StreamingAgentChatResponse(
            chat_stream=turn.watched(self._llm.stream_chat(turn.messages, **self._options(turn))),
            sources=_sources(turn),
            source_nodes=turn.source_nodes,
        )
        recorder = cast("BaseMemory", Recorder(lambda: self._store(turn), lambda: self._astore(turn)))
        thread = Thread(target=response.write_response_to_history, args=(recorder,))
        response.write_response_to_history_thread = thread
        thread.start()
        return response

    @trace_method("chat")
    async def astream_chat(
        self,
        message: str,
        chat_history: list[ChatMessage] | None = None,
        prev_chunks: list[NodeWithScore] | None = None,
    ) -> StreamingAgentChatResponse:
        """As `stream_chat`."""
        turn = await self._abegun(message, chat_history, prev_chunks)
        response = StreamingAgentChatResponse(
            achat_stream=turn.awatched(await self._llm.astream_chat(turn.messages, **await self._aoptions(turn))),
            sources=_sources(turn),
            source_nodes=turn.source_nodes,
        )
        recorder = cast("BaseMemory", Recorder(lambda: self._store(turn), lambda: self._astore(turn)))
        response.awrite_response_to_history_task = asyncio.create_task(response.awrite_response_to_history(recorder))
        return response

    def _options(self, turn: Turn) -> dict[str, Any]:
        """What each call to the llm is given beside the messages."""
        if not takes_salt(self._llm, self._send_salt):
            return {}
        return salted(self._llm, self._adapter.extra_body(None, turn.prompt), self._send_salt)

    async def _aoptions(self, turn: Turn) -> dict[str, Any]:
        """As `_options`."""
        if not takes_salt(self._llm, self._send_salt):
            return {}
        return salted(self._llm, await self._adapter.aextra_body(None, turn.prompt), self._send_salt)

    def _begun(
        self, message: str, chat_history: list[ChatMessage] | None, prev_chunks: list[NodeWithScore] | None
    ) -> Turn:
        nodes = self._retriever.retrieve(message)
        for postprocessor in self._postprocessors:
            nodes = postprocessor.postprocess_nodes(nodes, query_bundle=QueryBundle(message))
        return self._turns.next(message, nodes or prev_chunks or [], self._guarded.messages(chat_history))

    async def _abegun(
        self, message: str, chat_history: list[ChatMessage] | None, prev_chunks: list[NodeWithScore] | None
    ) -> Turn:
        nodes = await self._retriever.aretrieve(message)
        for postprocessor in self._postprocessors:
            nodes = await postprocessor.apostprocess_nodes(nodes, query_bundle=QueryBundle(message))
        stored = await self._guarded.amessages(chat_history)
        return await self._turns.anext(message, nodes or prev_chunks or [], stored)

    def _store(self, turn: Turn) -> None:
        """Take a turn as sent and answered: question and answer together, so that a failed turn leaves nothing."""
        self._guarded.put(turn.to_store)
        self._turns.answered(turn)

    async def _astore(self, turn: Turn) -> None:
        await self._guarded.aput(turn.to_store)
        await self._turns.aanswered(turn)


def _is_name(value: object) -> bool:
    """Whether a conversation can have this name. An empty one is most likely missing: all of those must not meet."""
    try:
        hash(value)
    except TypeError:
        return False
    return value != ""


def _name_of(memory: BaseMemory) -> str:
    """The framework's own name for a conversation, or a new one. Who shares a name by chance shares nothing else."""
    for attribute in ("session_id", "chat_store_key"):
        name = getattr(memory, attribute, None)
        if isinstance(name, str) and name not in ("", DEFAULT_CHAT_STORE_KEY):
            return name
    return uuid.uuid4().hex


def _names() -> list[str]:
    """Of all that can be set, but for the options."""
    names = [*inspect.signature(ContextPilotChatEngine.from_defaults).parameters, "callback_manager"]
    return [name for name in names if name != "options"]


def _sources(turn: Turn) -> list[ToolOutput]:
    nodes: Any = turn.source_nodes
    return [
        ToolOutput(tool_name="retriever", content=str(nodes), raw_input={"message": turn.question}, raw_output=nodes)
    ]
