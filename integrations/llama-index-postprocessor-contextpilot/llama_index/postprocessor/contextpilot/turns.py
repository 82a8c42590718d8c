"""Turns of a chat engine: from nodes and stored messages to what is sent, and from the answer to what is stored."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, ParamSpec, TypeVar

from contextpilot_rag.adapter import Adapter
from contextpilot_rag.conversation import Conversation
from contextpilot_rag.conversation.prompt import TurnPrompt
from contextpilot_rag.errors import InputError, SettingsError
from contextpilot_rag.index.local import LocalIndex
from contextpilot_rag.prompt.render import OPEN
from contextpilot_rag.types import short
from llama_index.core.llms import ChatMessage, ChatResponse, ChatResponseAsyncGen, ChatResponseGen, MessageRole
from llama_index.core.schema import MetadataMode, NodeWithScore

from .arranged import Intake, intake
from .before import Sent
from .history import after_cut, as_chat, bare, instructing, record_of, sent_before, stored_question
from .nodes import marked
from .sent import as_sent
from .system import other_system, under
from .told import TOLD

P = ParamSpec("P")
T = TypeVar("T")


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
            return self._as_retrieved(question, nodes, stored)

    async def anext(self, question: str, nodes: list[NodeWithScore], stored: Sequence[ChatMessage]) -> Turn:
        """As `next`; the event loop does not wait for an index that is elsewhere."""
        return await self._apart(self.next, question, nodes, stored)

    async def aanswered(self, turn: Turn) -> None:
        """As `answered`; the event loop does not wait for an index that is elsewhere."""
        await self._apart(self.answered, turn)

    def answered(self, turn: Turn) -> None:
        """A turn was answered and stored: the conversation goes on from it, and the pilot learns."""
        if turn.prompt is None or turn.conversation is None:
            return  # the next turn reads the conversation from what is stored
        try:
            # Where somebody else asked in the meantime it no longer waits; the next turn then reads what is stored.
            with suppress(InputError):
                turn.conversation.answer(turn.answer, turn.prompt)
            sent = as_sent(turn.messages)
            turn.prompt.sent.messages = None  # what it rendered is not what this llm is sent
            self.adapter.pilot.observe(turn.prompt, turn.raw, sent)
        except Exception as error:  # noqa: BLE001  fails open: the answer is there, it must reach the user
            self.adapter.failed(error)

    def _next(self, question: str, nodes: list[NodeWithScore], stored: Sequence[ChatMessage]) -> Turn:
        taken = intake(nodes, self.hidden)
        head = self._system()
        conversation, kept = self._conversation(head, stored)
        sent, prompt = self.adapter.turn(conversation, taken.texts, question)
        own = sent[len(head) :]
        record = record_of(question, sent[:-1], str(own[-1]["content"]), prompt, kept)
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

    def _conversation(self, head: list[Sent], stored: Sequence[ChatMessage]) -> tuple[Conversation, int | None]:
        """What was sent before; and if it had to be cut, how many of the last stored messages are kept."""
        opened = partial(
            self.adapter.pilot.conversation, self.name, namespace=self.adapter.namespace, system=self.system
        )
        conversation = opened(messages=[*head, *sent_before(stored, head)])
        if self.max_tokens is None or not conversation.truncate(self.max_tokens):
            return conversation, None
        kept = max(0, len(conversation.messages) - len(head) - len(instructing(stored)))
        # As the next turns will read it from what is stored.
        return opened(messages=[*head, *sent_before(after_cut(stored, kept), head)]), kept

    def _as_retrieved(self, question: str, nodes: list[NodeWithScore], stored: Sequence[ChatMessage]) -> Turn:
        """A turn for which no prompt could be made: all that was sent before, then the nodes in full."""
        head = self._system()
        before: list[Sent] | None = None
        with suppress(Exception):
            before = sent_before(stored, head)
        # Without labels of ours, which earlier turns may have.
        content = "\n\n".join(part for part in (*map(_shown, nodes), question) if part)
        if content.startswith(OPEN):
            content = f"\n\n{content}"  # so that nobody takes it for one of ours
        told = list(map(bare, stored)) if before is None else list(map(as_chat, before))
        messages = [*self._head(), *told, ChatMessage(role=MessageRole.USER, content=content)]
        record = record_of(question, [*head, *(before or ())], content)
        return Turn(question, messages, nodes, under(record, self.system))

    async def _apart(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of a call that may ask the index. The embedded one answers at once."""
        if isinstance(self.adapter.pilot.index, LocalIndex):
            return call(*args, **kwargs)
        return await asyncio.to_thread(call, *args, **kwargs)

    def _system(self) -> list[Sent]:
        return [] if self.system is None else [{"role": "system", "content": self.system}]

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


def _shown(node: NodeWithScore) -> str:
    """What a model is shown of a node; of one that cannot say, its bare text or nothing."""
    for mode in (MetadataMode.LLM, MetadataMode.NONE):
        with suppress(Exception):
            return node.node.get_content(metadata_mode=mode)
    return ""


def _ints(found: Sequence[Hashable]) -> Iterator[int]:
    return (position for position in found if isinstance(position, int))
