"""History: what a chat engine really sent, kept beside what its users see, in any memory of the framework.

A stored user message has the bare question as its content. What was sent in its place stands in a record in
``additional_kwargs["contextpilot"]``, so that any stored history, also after a restart, gives the same bytes again.

Stored messages may have been edited, replaced, deleted or mixed with others since. So nothing is sent that they no
longer say, and a location hint stays only where the text that it means really stands before it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

from contextpilot_rag.adapter import labelled
from contextpilot_rag.conversation.prompt import TurnPrompt
from contextpilot_rag.prompt.hints import LOCATION_HINT
from contextpilot_rag.prompt.parse import ReadBlock, read_user
from contextpilot_rag.prompt.render import render_block, render_documents
from llama_index.core.llms import ChatMessage, MessageRole, TextBlock

from .before import Before, Sent, revealed

KEY = "contextpilot"


def record_of(
    question: str,
    before: Sequence[Mapping[str, Any]],
    content: str,
    prompt: TurnPrompt | None = None,
    kept: int | None = None,
) -> dict[str, Any]:
    """What is to be stored beside a question.

    Args:
        question: as it is stored.
        before: all that was sent before it, with the system prompt.
        content: of the user message that was sent.
        prompt: the turn it belongs to, if it was made.
        kept: how many of the messages stored right before it were sent, where that is not all.
    """
    record: dict[str, Any] = {"sent": content, "question": _hash(question), "before": Before(before).digest}
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
    if kept is not None:
        record["kept"] = kept
    return record


def stored_question(question: str, record: Mapping[str, Any]) -> ChatMessage:
    """A user message to store: the question, and what was sent."""
    return ChatMessage(role=MessageRole.USER, content=question, additional_kwargs={KEY: dict(record)})


def sent_before(stored: Sequence[ChatMessage], head: Sequence[Mapping[str, Any]] = ()) -> list[Sent]:
    """The messages as they were sent, so far as they still are what they were.

    Args:
        stored: the chat history.
        head: what is sent before it: the system prompt.
    """
    before = Before(head)
    for message in _remaining(stored):
        record = _record(message)
        if not record:
            before.add(_as_sent(message))
        else:
            before.add(*_again(message, record, before))
    return before.sent[len(head) :]


def instructing(stored: Sequence[ChatMessage]) -> list[ChatMessage]:
    """The messages that a history begins with, and that stay there when it is cut."""
    return list(takewhile(lambda message: message.role in (MessageRole.SYSTEM, MessageRole.DEVELOPER), stored))


def after_cut(stored: Sequence[ChatMessage], kept: int) -> list[ChatMessage]:
    """What remains of a history of which the last messages are kept. It begins with one of the user's."""
    first = instructing(stored)
    rest = list(stored[max(len(first), len(stored) - kept) :])
    while rest and rest[0].role != MessageRole.USER:
        del rest[0]
    return [*first, *rest]


def as_chat(message: Mapping[str, Any]) -> ChatMessage:
    """A message for the framework's LLM."""
    if "message" in message:
        return ChatMessage.model_validate(message["message"])
    return ChatMessage(role=MessageRole(message["role"]), content=message["content"])


def bare(message: ChatMessage) -> ChatMessage:
    """A stored message without what is ours."""
    others = {key: value for key, value in message.additional_kwargs.items() if key != KEY}
    return message.model_copy(update={"additional_kwargs": others})


def _remaining(stored: Sequence[ChatMessage]) -> list[ChatMessage]:
    """The messages that were not cut off."""
    cuts = [(place, _record(message).get("kept")) for place, message in enumerate(stored)]
    place, kept = next(((place, kept) for place, kept in reversed(cuts) if kept is not None), (0, None))
    return list(stored) if kept is None else [*after_cut(stored[:place], kept), *stored[place:]]


def _as_sent(message: ChatMessage) -> Sent:
    """Somebody else's message."""
    own = bare(message)
    sent: Sent = {"role": message.role.value, "content": message.content or ""}
    text = not message.blocks or (len(message.blocks) == 1 and isinstance(message.blocks[0], TextBlock))
    if own.additional_kwargs or not text:
        sent["message"] = _dumped(own)
    return sent


def _dumped(message: ChatMessage) -> Any:  # noqa: ANN401
    """A message as plain JSON; one that cannot be that, as it is."""
    try:
        return message.model_dump(mode="json")
    except Exception:  # noqa: BLE001  somebody's own objects
        return message


def _record(message: ChatMessage) -> dict[str, Any]:
    """A message's record, checked: it comes from wherever the caller keeps it. Empty if there is none."""
    found = message.additional_kwargs.get(KEY)
    if message.role != MessageRole.USER or not isinstance(found, Mapping):
        return {}
    record = dict(found)
    texts, kept = record.get("texts", {}), record.get("kept")
    sound = (
        all(isinstance(record.get(name), str) for name in ("sent", "question", "before"))
        and isinstance(texts, Mapping)
        and all(str(label).isdecimal() and isinstance(text, str) for label, text in texts.items())
        and (kept is None or (type(kept) is int and kept >= 0))
    )
    return record if sound else {}


def _again(message: ChatMessage, record: Mapping[str, Any], before: Before) -> tuple[Sent, dict[int, str] | None]:
    """A user message of ours as it is to be sent now, and the texts of what does not stand in it in full."""
    texts = {int(label): str(text) for label, text in record.get("texts", {}).items()}
    question = message.content or ""
    only_text = all(isinstance(block, TextBlock) for block in message.blocks)
    same = only_text and _hash(question) == record["question"]
    sent: Sent = {"role": "user", "content": str(record["sent"])}
    if same and record["before"] == before.digest:
        return sent, texts
    found = read_user(sent["content"], texts)
    if found is None:
        return (sent if same else _as_sent(message)), None
    documents = render_documents(_blocks(found[0], texts, before, all_in_full=not only_text))
    if only_text:
        sent["content"] = documents + (found[1] if same else f"\n\n{question}" if question else "")
        return sent, {}
    # The core is shown a text that it does not read as ours: it knows nothing of parts.
    whole = bare(message).model_copy(update={"blocks": [TextBlock(text=documents), *message.blocks]})
    return {"role": "user", "content": f"\n\n{documents}\n\n{question}", "message": _dumped(whole)}, None


def _blocks(read: Sequence[ReadBlock], texts: Mapping[int, str], before: Before, *, all_in_full: bool) -> list[str]:
    """The blocks of a message, rendered.

    A hint stays if what it means stands before. Where a label of the message has another text before, all are given in
    full: the message has to be understood by itself.
    """
    hints = {
        block.label
        for block in read
        if block.text is None and (block.label not in texts or before.has(block.label, texts[block.label]))
    }
    full = [
        (block.label, texts.get(block.label, revealed(block.text or "")))
        for block in read
        if block.text is not None or block.label not in hints
    ]
    if all_in_full or any(before.differs(label, text) for label, text in full):
        hints = {label for label in hints if label not in texts}
    pieces = []
    for block in read:
        if block.label in hints and block.text is None:
            pieces.append(f"[{block.label}] {LOCATION_HINT}")
        elif block.label in texts:
            pieces.append(labelled(block.label, texts[block.label]))
        else:
            pieces.append(render_block(block.label, block.text or "", shielded=True))
    return pieces


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
