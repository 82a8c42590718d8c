"""History: what a chat engine really sent, kept beside what its users see, in any memory of the framework.

A stored user message has the bare question as its content. What was sent in its place stands in a record in
``additional_kwargs["contextpilot"]``, so that any stored history, also after a restart, gives the same bytes again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from contextpilot_rag.adapter import labelled
from contextpilot_rag.conversation.prompt import TurnPrompt
from contextpilot_rag.prompt.hints import LOCATION_HINT
from contextpilot_rag.prompt.parse import read_user
from contextpilot_rag.prompt.render import render_block, render_documents
from llama_index.core.llms import ChatMessage, MessageRole, TextBlock

KEY = "contextpilot"

Sent = dict[str, Any]
"""A message as it is sent: role and content; one that is not only text also holds the framework's own."""


def record_of(
    content: str, prompt: TurnPrompt | None, place: int, history: Sequence[Mapping[str, Any]] | None = None
) -> dict[str, Any]:
    """What is to be stored beside a question.

    Args:
        content: of the user message that was sent.
        prompt: the turn it belongs to, if it was made.
        place: how many messages are stored before it.
        history: what was sent before it, where that is not what the stored messages say, since it was cut.
    """
    record: dict[str, Any] = {"sent": content, "at": place}
    if prompt is not None:
        # What stands, in whole or in part, only in earlier messages; needed if these are lost.
        documents = content.removesuffix(prompt.question)
        texts = {
            str(number): block.text
            for number, block in zip(prompt.numbers, prompt.blocks, strict=True)
            if number in prompt.again or labelled(number, block.text) not in documents
        }
        if texts:
            record["texts"] = texts
    if history is not None:
        record["history"] = [dict(message) for message in history]
    return record


def stored_question(question: str, record: Mapping[str, Any]) -> ChatMessage:
    """A user message to store: the question, and what was sent."""
    return ChatMessage(role=MessageRole.USER, content=question, additional_kwargs={KEY: dict(record)})


def sent_before(stored: Sequence[ChatMessage]) -> list[Sent]:
    """The messages as they were sent.

    Where stored messages are missing before one, as after a memory has dropped them, what it points to stands in it in
    full.
    """
    records = [_record(message) for message in stored]
    cuts = [place for place, record in enumerate(records) if "history" in record]
    start = cuts[-1] if cuts else 0
    moved = start - records[start]["at"] if cuts else 0
    sent = [dict(message) for message in records[start]["history"]] if cuts else []
    for place in range(start, len(stored)):
        record = records[place]
        if record:
            content = _content(record, stored[place].content or "", whole=record["at"] + moved == place)
            sent.append({"role": "user", "content": content})
        else:
            sent.append(_as_sent(stored[place]))
    return sent


def as_chat(message: Mapping[str, Any]) -> ChatMessage:
    """A message for the framework's LLM."""
    if "message" in message:
        return ChatMessage.model_validate(message["message"])
    return ChatMessage(role=MessageRole(message["role"]), content=message["content"])


def _as_sent(message: ChatMessage) -> Sent:
    """Somebody else's message."""
    others = {key: value for key, value in message.additional_kwargs.items() if key != KEY}
    content = message.content or ""
    sent: Sent = {"role": message.role.value, "content": content}
    text = not message.blocks or (len(message.blocks) == 1 and isinstance(message.blocks[0], TextBlock))
    if others or not text:
        sent["message"] = message.model_copy(update={"additional_kwargs": others}).model_dump(mode="json")
    return sent


def _record(message: ChatMessage) -> dict[str, Any]:
    """A message's record, checked: it comes from wherever the caller keeps it. Empty if there is none."""
    found = message.additional_kwargs.get(KEY)
    if message.role != MessageRole.USER or not isinstance(found, Mapping):
        return {}
    record = dict(found)
    texts, history = record.get("texts", {}), record.get("history", [])
    sound = (
        isinstance(record.get("sent"), str)
        and type(record.get("at")) is int
        and isinstance(texts, Mapping)
        and all(str(label).isdecimal() and isinstance(text, str) for label, text in texts.items())
        and isinstance(history, list)
        and all(isinstance(one, Mapping) and isinstance(one.get("content"), str) and "role" in one for one in history)
    )
    return record if sound else {}


def _content(record: Mapping[str, Any], question: str, *, whole: bool) -> str:
    """A user message's content as it was sent.

    Args:
        record: of the message.
        question: as it is stored now; somebody may have edited it.
        whole: all that was stored before the message is still there.
    """
    sent = str(record["sent"])
    same = sent.endswith(question)
    if whole and same:
        return sent
    texts = {int(label): str(text) for label, text in record.get("texts", {}).items()}
    found = read_user(sent, set(texts))
    if found is None:
        return sent if same else question
    blocks = []
    for block in found[0]:
        if block.label in texts and not whole:
            blocks.append(labelled(block.label, texts[block.label]))
        elif block.text is None:
            blocks.append(f"[{block.label}] {LOCATION_HINT}")
        else:
            blocks.append(render_block(block.label, block.text, shielded=True))
    return render_documents(blocks) + (found[1] if same else f"\n\n{question}" if question else "")
