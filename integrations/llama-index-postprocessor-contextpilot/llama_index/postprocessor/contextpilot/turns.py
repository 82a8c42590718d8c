"""Turns of a chat engine: from nodes and stored messages to what is sent, and from the answer to what is stored."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from contextpilot_rag.adapter import Adapter
from contextpilot_rag.conversation import Conversation
from contextpilot_rag.conversation.prompt import TurnPrompt
from contextpilot_rag.errors import InputError, SettingsError
from contextpilot_rag.types import short
from llama_index.core.llms import ChatMessage, ChatResponse, ChatResponseAsyncGen, ChatResponseGen, MessageRole
from llama_index.core.schema import MetadataMode, NodeWithScore

from .arranged import Intake, intake
from .history import as_chat, record_of, sent_before, stored_question
from .nodes import marked
from .system import other_system, under
from .told import TOLD


@dataclass(slots=True)
class Turn:
    """One turn while it is under way.

    Args:
        question: as the user asked it.
        messages: to send.
        source_nodes: all that were retrieved.
        record: what is to be stored beside the question.
        conversation: what was sent before; None if that failed.
        prompt: the order that was chosen; None if that failed.
        answer: of the model, as far as it has come.
        raw: the engine's response, or the last part of it.
    """

    question: str
    messages: list[ChatMessage]
    source_nodes: list[NodeWithScore]
    record: dict[str, Any]
    conversation: Conversation | None = None
    prompt: TurnPrompt | None = None
    answer: str = ""
    raw: object = None

    @property
    def to_store(self) -> list[ChatMessage]:
        """The question and the answer, as users see them."""
        return [
            stored_question(self.question, self.record),
            ChatMessage(role=MessageRole.ASSISTANT, content=self.answer),
        ]

    def take(self, piece: str | None, raw: object) -> None:
        """Take in an answer, or the next piece of one."""
        self.answer += piece or ""
        self.raw = raw

    def watched(self, stream: ChatResponseGen) -> ChatResponseGen:
        """A stream of pieces, taken in on its way."""
        for part in stream:
            self.take(part.delta, part.raw)
            yield self._part(part)

    async def awatched(self, stream: ChatResponseAsyncGen) -> ChatResponseAsyncGen:
        """As `watched`."""
        async for part in stream:
            self.take(part.delta, part.raw)
            yield self._part(part)

    def _part(self, part: ChatResponse) -> ChatResponse:
        return ChatResponse(
            message=ChatMessage(role=MessageRole.ASSISTANT, content=self.answer), delta=part.delta, raw=part.raw
        )


@dataclass(frozen=True, slots=True)
class Turns:
    """The turns of one conversation.

    Args:
        adapter: chooses the first turn's order.
        name: of the conversation.
        system: the system prompt.
        hidden: patterns of metadata keys that are not shown.
        max_tokens: of the history; None: no limit.
        system_role: the role of the system prompt for this LLM.
        window: tokens that the LLM can take.

    Raises:
        SettingsError: ``max_tokens`` is no positive number.
    """

    adapter: Adapter
    name: Hashable
    system: str | None
    hidden: tuple[str, ...] | None
    max_tokens: int | None
    system_role: MessageRole
    window: int

    def __post_init__(self) -> None:
        if self.max_tokens is not None and (type(self.max_tokens) is not int or self.max_tokens < 1):
            raise SettingsError(f"max_history_tokens must be a positive int or None, not {short(self.max_tokens)}")

    def next(self, question: str, nodes: list[NodeWithScore], stored: Sequence[ChatMessage]) -> Turn:
        """The next turn.

        Args:
            question: what is asked.
            nodes: what was retrieved, best first; they stay as they are.
            stored: the chat history.
        """
        try:
            return self._next(question, nodes, stored)
        except Exception as error:  # noqa: BLE001  fails open: the user waits for an answer
            self.adapter.failed(error)
            texts = [node.node.get_content(metadata_mode=MetadataMode.LLM) for node in nodes]
            # Without labels of ours, which earlier turns may have.
            content = "\n\n".join(part for part in (*texts, question) if part)
            messages = [*self._head(), *stored, ChatMessage(role=MessageRole.USER, content=content)]
            return Turn(question, messages, nodes, under(record_of(content, None, len(stored)), self.system))

    def answered(self, turn: Turn) -> None:
        """A turn was answered and stored: the conversation goes on from it, and the pilot learns."""
        if turn.prompt is None or turn.conversation is None:
            return  # the next turn reads the conversation from what is stored
        try:
            # Where somebody else asked in the meantime it no longer waits; the next turn then reads what is stored.
            with suppress(InputError):
                turn.conversation.answer(turn.answer, turn.prompt)
            self.adapter.pilot.observe(turn.prompt, turn.raw)
        except Exception as error:  # noqa: BLE001  fails open: the answer is there, it must reach the user
            self.adapter.failed(error)

    def _next(self, question: str, nodes: list[NodeWithScore], stored: Sequence[ChatMessage]) -> Turn:
        taken = intake(nodes, self.hidden)
        head = [] if self.system is None else [{"role": "system", "content": self.system}]
        conversation = self.adapter.pilot.conversation(
            self.name,
            namespace=self.adapter.namespace,
            system=self.system,
            messages=[*head, *sent_before(stored)],
        )
        cut = 0 if self.max_tokens is None else conversation.truncate(self.max_tokens)
        sent, prompt = self.adapter.turn(conversation, taken.texts, question)
        own = sent[len(head) :]
        record = record_of(str(own[-1]["content"]), prompt, len(stored), own[:-1] if cut else None)
        messages = [*self._head(), *map(as_chat, own)]
        sources = nodes if prompt is None else _sources(taken, prompt)
        self._tell(stored, [str(message["content"]) for message in sent])
        return Turn(question, messages, sources, under(record, self.system), conversation, prompt)

    def _tell(self, stored: Sequence[ChatMessage], sent: Sequence[str]) -> None:
        """Say what makes turns cost more than they should, or fail; once."""
        if other_system(stored, self.system):
            TOLD.warn(
                "a conversation goes on under another system_prompt than before: the engine finds nothing of it in its "
                "cache; keep the system_prompt as it was, and put what changes into the question"
            )
        tokens = sum(map(self.adapter.pilot.count_tokens, sent))
        if tokens > self.window:
            TOLD.warn(
                "a turn's prompt has about %s tokens, more than the llm's context_window of %s: retrieve fewer or "
                "shorter nodes, lower max_history_tokens, or tell the llm its real context_window",
                tokens,
                self.window,
            )

    def _head(self) -> list[ChatMessage]:
        return [] if self.system is None else [ChatMessage(role=self.system_role, content=self.system)]


class Recorder:
    """Stands where the framework writes a streamed answer to memory; question and answer are stored together.

    Args:
        store: stores the turn.
        astore: as ``store``, to be awaited.
    """

    def __init__(self, store: Callable[[], None], astore: Callable[[], Awaitable[None]]) -> None:
        self._store = store
        self._astore = astore

    def put(self, _: ChatMessage) -> None:
        """The stream has ended."""
        self._store()

    async def aput(self, _: ChatMessage) -> None:
        """The stream has ended."""
        await self._astore()


def _sources(taken: Intake, prompt: TurnPrompt) -> list[NodeWithScore]:
    """All nodes of a turn, best first, each with its rank and label; those that are no text have no label."""
    label_of = {taken.places[position]: label for label, found in prompt.ids.items() for position in _ints(found)}
    return [
        node.model_copy(
            update={
                "node": marked(
                    copy,
                    {"rank": place, "label": label_of.get(place), "again": label_of.get(place) in prompt.again},
                )
            }
        )
        for place, (node, copy) in enumerate(zip(taken.nodes, taken.copies, strict=True))
    ]


def _ints(found: Sequence[Hashable]) -> Iterator[int]:
    return (position for position in found if isinstance(position, int))
