"""MemoryContext: the memories for one question, ready to be sent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from contextpilot_rag import AlignedPrompt, Block, Conversation, Namespace, TurnPrompt, Usage
from contextpilot_rag.adapter import Adapter
from contextpilot_rag.engines.usage import usage_of
from contextpilot_rag.errors import InputError
from contextpilot_rag.prompt.render import render_messages, render_user
from contextpilot_rag.retrieval import from_mem0

from .results import Found

if TYPE_CHECKING:
    from contextpilot_rag.dedup.messages import Messages
    from contextpilot_rag.prompt.render import Message


@dataclass(frozen=True, slots=True)
class MemoryContext:
    """What ``memory.context(...)`` returns.

    Args:
        question: stands last in the prompt.
        system: the system prompt.
        namespace: what may share the prompt's cached prefix.
        alignment: the order, its reasons and the rendered prompt; None where something failed: the memories then stand
            in the memory's order, in full, and in a conversation without labels.
        conversation: that this is a turn of, or None.
    """

    question: str
    system: str | None
    namespace: Namespace
    alignment: AlignedPrompt | None
    conversation: Conversation | None
    _found: Found = field(repr=False)
    _adapter: Adapter = field(repr=False)
    _unaligned: tuple[Message, ...] = field(default=(), repr=False)
    _body: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def results(self) -> list[Any]:
        """What the memory returned, best first: its own dicts, also those without a text."""
        return list(self._found.items)

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The memories in prompt order, each text once. Ids are ``(id, hash)``: an updated memory is another block."""
        placed = [memories[0] for memories in self.memories.values()] or self._found.memories
        return tuple(_block(memory) for memory in placed)

    @property
    def memories(self) -> dict[int, tuple[Any, ...]]:
        """For each label in the prompt, the memories that have its text: the memory's own dicts."""
        own = self._found.memories
        if self.alignment is None:
            return {} if self._unaligned else {place + 1: (memory,) for place, memory in enumerate(own)}
        names = self._found.names if isinstance(self.alignment, TurnPrompt) else range(len(own))
        named = dict(zip(names, own, strict=True))
        return {label: tuple(named[name] for name in ids) for label, ids in self.alignment.ids.items()}

    @property
    def labels(self) -> dict[int, Any]:
        """For each label in the prompt, the id of its memory: what a citation [2] stands for."""
        return {label: memories[0].get("id") for label, memories in self.memories.items()}

    @property
    def again(self) -> frozenset[int]:
        """Labels of memories that an earlier turn gave; location hints stand for them."""
        return self.alignment.again if isinstance(self.alignment, TurnPrompt) else frozenset()

    @property
    def order_hint(self) -> str:
        """The sentence that tells the model the memory's order.

        "" where it did not change; and by default, unless the memory or its pilot was made with ``order_hint=True`` (or
        a wording).
        """
        return (self.alignment.order_hint or "") if self.alignment is not None else ""

    @property
    def user_message(self) -> str:
        """The content of the user message: memories, the order hint if there is one, question."""
        if self.alignment is not None:
            return self.alignment.user_message
        if self._unaligned:
            return str(self._unaligned[-1]["content"])
        return render_user(self._found.texts, question=self.question)

    @property
    def text(self) -> str:
        """The user message without the question, for a prompt of your own. Whatever varies goes after it."""
        return self.user_message.removesuffix(self.question).removesuffix("\n\n")

    def messages(self, system: str | None = None) -> list[Message]:
        """The messages to send; in a conversation all that was sent before, and this turn's.

        Args:
            system: the system prompt, if it was not given before. Keep it constant.

        Raises:
            InputError: another system prompt than the conversation's.
        """
        if self.alignment is None:
            return list(self._unaligned) or render_messages(system or self.system, self.user_message)
        if self.conversation is not None:
            with system_explained():
                return self.alignment.messages(system)
        return self.alignment.messages(self.system if system is None else system)

    @property
    def extra_body(self) -> dict[str, Any]:
        """What to pass as ``extra_body`` to the OpenAI client: the namespace's ``cache_salt``, if it has one."""
        return dict(self._body)

    def observe(self, response: object, messages: Messages | None = None) -> Usage | None:
        """Learn from the engine's answer, or the last chunk of a stream, what was cached.

        In an event loop, an index that is a service is told of it in a thread, so nobody waits for that.

        Args:
            response: anything with an OpenAI-style ``usage``.
            messages: as they were sent, where that was not ``context.messages()``.

        Returns:
            What was reported, or None if nothing was.

        Raises:
            InputError: a text, which reports nothing.
        """
        if isinstance(response, str):
            raise InputError("observe takes the engine's response, which holds its usage, not a text")
        return self._observed(response, messages)

    def _observed(self, response: object, messages: Messages | None) -> Usage | None:
        if self.alignment is None:
            return usage_of(response)
        return self._adapter.report(self.alignment, response, messages)

    def answer(self, response: object, messages: Messages | None = None) -> Usage | None:
        """The model's answer to a turn: its text, its message, or the engine's whole response.

        Outside a conversation nothing is kept of it, and of a text nothing is learnt. A turn that is never answered
        counts as never sent.

        Args:
            response: of the model.
            messages: as they were sent, where that was not ``context.messages()``.

        Raises:
            InputError: in a conversation, something that is no answer, or another turn took this one's place.
        """
        usage = None if isinstance(response, str) else self._observed(response, messages)
        if self.conversation is not None:
            turn = self.alignment if isinstance(self.alignment, TurnPrompt) else self._unaligned or None
            self.conversation.answer(response, turn)
        return usage


@contextmanager
def system_explained() -> Iterator[None]:
    """Say what to do about a system prompt that is not the conversation's."""
    try:
        yield
    except InputError as error:
        if "system prompt" not in str(error):
            raise
        raise InputError(
            f"{error}; leave it out after the first turn, put what varies (such as a date) into the question, or start "
            "another conversation"
        ) from None


def _block(memory: dict[str, Any]) -> Block:
    """A memory as a block; what `from_mem0` cannot name goes by the hash of its text."""
    if isinstance(memory.get("id"), str):
        return from_mem0([memory]).blocks[0]
    return Block(memory["memory"])
