"""One turn of an agent: the user's message with the documents in it, and what was noted about them.

The note stands in the message's ``additional_kwargs["contextpilot"]``, which models are not sent: the question as it
was asked, and for each document its label, id and metadata. A document that was given before has its text there, too:
should what its location hint points to be cut from the history, it is given in full where the hint stands.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from contextpilot_rag.adapter import labelled
from contextpilot_rag.conversation import TurnPrompt
from contextpilot_rag.dedup.units import normal
from contextpilot_rag.errors import InputError
from contextpilot_rag.identity import block_key
from contextpilot_rag.prompt.hints import LOCATION_HINT, label
from contextpilot_rag.prompt.parse import read_user
from contextpilot_rag.prompt.render import OPEN, render_documents
from langchain_core.documents import Document
from langchain_core.messages import BaseMessage, HumanMessage

from ._messages import Content, head_of, with_head
from ._placing import KEY, Found, duplicates, without_mark

Note = dict[str, Any]


def turn_message(question: HumanMessage, text: str, note: Note) -> HumanMessage:
    """The user's message with the documents in it. It replaces the one without, as it has the same id.

    Args:
        question: the user's message; is not changed.
        text: documents, order hint and question; of a message in parts without the question, which its parts ask.
        note: about the documents.
    """
    content = question.content
    sent: Content = text if isinstance(content, str) else [{"type": "text", "text": text}, *content]
    extra = {**question.additional_kwargs, KEY: {"question": content, "sent": block_key(text).hex(), **note}}
    return question.model_copy(update={"content": sent, "additional_kwargs": extra})


def note_of_turn(given: Found, prompt: TurnPrompt) -> Note:
    """What is noted about a turn's documents, in prompt order."""
    blocks = []
    texts = dict(zip(prompt.numbers, prompt.blocks, strict=True))
    for number, positions in prompt.ids.items():
        (rank, document), *same = given.of(positions)
        block = {
            "label": number,
            "rank": rank,
            "id": document.id,
            "metadata": _storable(without_mark(document.metadata)),
            "duplicates": _storable(duplicates(document, [one for _, one in same])),
        }
        if number in prompt.again:
            block["text"] = texts[number].text
        blocks.append(block)
    others = [
        {"rank": given.rank(place), "id": one.id, "metadata": _storable(without_mark(one.metadata))}
        for place, one in ((place, given.documents[place]) for place in given.others)
    ]
    return {"blocks": blocks, **({"others": others} if others else {})}


def noted(message: BaseMessage) -> Note | None:
    """The note on a user's message of ours; None on any other message."""
    note = message.additional_kwargs.get(KEY)
    return note if isinstance(message, HumanMessage) and isinstance(note, dict) and "question" in note else None


def has_documents(message: BaseMessage) -> bool:
    """Whether a user's message is as `turn_message` made it, or has documents in it all the same.

    Somebody may have sent a message back with another content and the note still on it: that is a new question.
    """
    note = noted(message)
    head = head_of(message.content)
    return note is not None and (head.startswith(OPEN) or note.get("sent") == block_key(head).hex())


def as_sent(message: BaseMessage) -> Content:
    """The content of a user's message as a conversation reads it: documents in a first part count, too."""
    content: Content = message.content
    if noted(message) is None or isinstance(content, str):
        return content
    return head_of(content)


def sources(messages: Mapping[str, Any] | BaseMessage | Sequence[BaseMessage]) -> dict[int, Document]:
    r"""What the labels in an agent's messages stand for: for a citation ``[3]``, the document of label 3.

    Args:
        messages: the agent's state, its messages, or one of them. As OpenAI's dicts they have lost what was noted.

    Raises:
        InputError: something else.

    >>> note = {"question": "Why?", "blocks": [{"label": 1, "rank": 0, "id": "a", "metadata": {"page": 7}}]}
    >>> asked = "<documents>\n[1] Slices.\n</documents>\n\nWhy?"
    >>> sources([HumanMessage(asked, additional_kwargs={"contextpilot": note})])
    {1: Document(id='a', metadata={'page': 7}, page_content='Slices.')}
    """
    cited: dict[int, Document] = {}
    for message in _messages_of(messages):
        texts = {number: text for number, text in _standing(message)[0] if text is not None}
        for number, block in _blocks(noted(message)).items():
            text = block.get("text", texts.get(number))
            if isinstance(text, str) and number not in cited:
                metadata = {**(block.get("metadata") or {})}
                if block.get("duplicates"):
                    metadata[KEY] = {"duplicates": block["duplicates"]}
                cited[number] = Document(page_content=text, id=block.get("id"), metadata=metadata)
    return cited


def _messages_of(given: object) -> list[BaseMessage]:
    if isinstance(given, BaseMessage):
        return [given]
    found = given.get("messages") if isinstance(given, Mapping) else given
    if not isinstance(found, Iterable) or isinstance(found, str | bytes | Mapping):
        got = f"a mapping with {list(given)}" if isinstance(given, Mapping) else type(given).__name__
        raise InputError(f"sources takes an agent's state or its messages, not {got}")
    messages: list[Any] = list(found)
    for message in messages:
        if not isinstance(message, BaseMessage):
            raise InputError(
                f"sources takes LangChain's messages, not {type(message).__name__}: what was noted about the documents "
                "stands in their additional_kwargs (to store them: langchain_core.messages.messages_to_dict)"
            )
    return messages


def mended(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Messages in which no location hint points to a document that is not there; those that did get it in full.

    Messages that somebody cut, summarised or edited may have lost what later ones point to. Where nothing is lost,
    the messages come back as they are; equal messages give equal ones.
    """
    known: dict[int, str] = {}
    result: list[BaseMessage] = []
    for message in messages:
        texts = {number: block["text"] for number, block in _blocks(noted(message)).items() if "text" in block}
        blocks, rest = _standing(message, {*known, *texts})
        lost = {number for number, text in blocks if text is None and not _same(known.get(number), texts.get(number))}
        if lost:
            rendered = [
                labelled(number, texts[number])
                if number in lost
                else (f"{label(number)} {LOCATION_HINT}" if text is None else labelled(number, text))
                for number, text in blocks
            ]
            head = render_documents(rendered) + rest
            message = message.model_copy(update={"content": with_head(message.content, head)})  # noqa: PLW2901
        for number, text in blocks:
            known.setdefault(number, texts[number] if text is None and number in lost else text or "")
        result.append(message)
    return result


def _same(given_before: str | None, meant: str | None) -> bool:
    """Whether what stands before is what a hint means; where it is not noted, whatever stands there."""
    return meant is None or (given_before is not None and normal(given_before) == normal(meant))


def _standing(message: BaseMessage, known: set[int] | None = None) -> tuple[list[tuple[int, str | None]], str]:
    """The blocks in a user's message, and what stands after them. A location hint has no text."""
    head = head_of(message.content) if isinstance(message, HumanMessage) else ""
    if not head.startswith(OPEN):
        return [], ""
    hinted = {number for number, block in _blocks(noted(message)).items() if "text" in block}
    found = read_user(head, hinted if known is None else known)
    return ([], "") if found is None else ([(block.label, block.text) for block in found[0]], found[1])


def _blocks(note: Note | None) -> dict[int, Mapping[str, Any]]:
    """The blocks that a note tells of, by label. A note may have come from anywhere."""
    blocks = [] if note is None else note.get("blocks")
    if not isinstance(blocks, list):
        return {}
    return {
        block["label"]: block
        for block in blocks
        if isinstance(block, Mapping) and type(block.get("label")) is int and isinstance(block.get("text", ""), str)
    }


def _storable(value: Any) -> Any:  # noqa: ANN401
    """A copy of plain JSON values, which every checkpointer can store; anything else by its text."""
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, Mapping):
        return {str(key): _storable(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_storable(part) for part in value]
    return str(value)
