"""What the FakeEngine reads and writes: request bodies, a chat template, a tokenizer, answers. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar
from zlib import crc32

import msgspec
from msgspec import Meta

from ..errors import InputError

# Pieces of about four characters of English, found from the left: a text's pieces are those of every text that begins
# with it, but perhaps the last one. Together they are the text.
_PIECE = re.compile(r" ?[A-Za-z]{1,6}|\d{1,3}|[^\W\d_]{1,2}|\s{1,8}|[^\w\s]{1,3}|.", re.DOTALL)
# Pieces of text are 32-bit checksums; these are beyond, so that no text can forge them.
_MESSAGE_START = 1 << 32
_MESSAGE_END = _MESSAGE_START + 1
_OTHER_PART = 1 << 33

Count = Annotated[int, Meta(ge=1)]
Body = TypeVar("Body")


class Message(msgspec.Struct):
    """One message of a chat request."""

    role: Annotated[str, Meta(min_length=1)]
    content: str | list[dict[str, Any]] | None = None
    tool_calls: list[Any] | None = None


class Prompt(msgspec.Struct, kw_only=True):
    """What makes up the prompt of a chat request."""

    messages: Annotated[list[Message], Meta(min_length=1)]
    tools: list[Any] | None = None
    add_generation_prompt: bool = True


class StreamOptions(msgspec.Struct):
    """``stream_options`` of a chat request."""

    include_usage: bool | None = None


class ChatRequest(Prompt, kw_only=True):
    """The fields of a chat request that the FakeEngine heeds; others are ignored."""

    model: str | None = None
    cache_salt: Annotated[str, Meta(min_length=1, max_length=1024)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    n: Annotated[int, Meta(ge=1, le=1)] | None = None


class TokenizeText(msgspec.Struct):
    """The body of ``/tokenize`` for a text."""

    prompt: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What the FakeEngine answers, to be had whole or in chunks.

    Args:
        id: of the completion.
        number: of the request, counted by the engine.
        created: seconds since the epoch.
        model: as the request called it.
        pieces: the text, token by token.
        finish_reason: "stop", or "length" if ``max_tokens`` cut the text.
        usage: as on the wire.
        wait_seconds: how long the loopback server waits before the first token.
        stream: whether the request asked for chunks.
        include_usage: whether the chunks end with one that has the usage.
    """

    id: str
    number: int
    created: int
    model: str
    pieces: tuple[str, ...]
    finish_reason: str
    usage: dict[str, Any]
    wait_seconds: float
    stream: bool
    include_usage: bool

    def completion(self) -> dict[str, Any]:
        """The whole answer, a ``chat.completion``."""
        message = {"role": "assistant", "content": "".join(self.pieces)}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self.finish_reason}
        return {**self._head("chat.completion"), "choices": [choice], "usage": self.usage}

    def chunks(self) -> Iterator[dict[str, Any]]:
        """The answer as ``chat.completion.chunk`` objects: the role, each token, the end, and perhaps the usage."""
        head = self._head("chat.completion.chunk")
        if self.include_usage:
            head["usage"] = None
        yield {**head, "choices": [_delta({"role": "assistant", "content": ""})]}
        for piece in self.pieces:
            yield {**head, "choices": [_delta({"content": piece})]}
        yield {**head, "choices": [_delta({}, self.finish_reason)]}
        if self.include_usage:
            yield {**head, "choices": [], "usage": self.usage}

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}


def read(body: Mapping[str, Any] | bytes, kind: type[Body]) -> tuple[Body, dict[str, Any]]:
    """A body checked, and as plain JSON values that are nobody else's.

    Raises:
        InputError: the body is no JSON, or not of this kind. The message says where.

    >>> read({"prompt": "Hello"}, TokenizeText)[0].prompt
    'Hello'
    """
    try:
        raw = msgspec.json.decode(body if isinstance(body, bytes) else msgspec.json.encode(dict(body)))
        return msgspec.convert(raw, kind), raw
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InputError(f"the request cannot be used: {error}") from None


def pieces(text: str) -> list[str]:
    """A text cut into what stands for tokens.

    >>> pieces("Retrieved text, 2024")
    ['Retrie', 'ved', ' text', ',', ' ', '202', '4']
    """
    return _PIECE.findall(text)


def text_tokens(text: str) -> Iterator[int]:
    """A text's tokens, the same in every process."""
    return (_token(piece.group()) for piece in _PIECE.finditer(text))


def prompt_tokens(prompt: Prompt) -> Iterator[int]:
    """A chat's tokens under a template in the manner of ChatML, one by one, so that a caller can stop at his limit.

    Raises:
        InputError: a message has no content and is not the assistant's, or a text part has no text.
    """
    if prompt.tools:
        yield from _message("tools", [_json(prompt.tools)])
    for number, message in enumerate(prompt.messages):
        if message.content is None and message.role != "assistant":
            raise InputError(f"messages[{number}].content: only an assistant's message can be without")
        yield from _message(message.role, _content(message, f"messages[{number}].content"))
    if prompt.add_generation_prompt:
        yield _MESSAGE_START
        yield from text_tokens("assistant\n")


def _message(role: str, content: Iterable[str | int]) -> Iterator[int]:
    yield _MESSAGE_START
    yield from text_tokens(f"{role}\n")
    for part in content:
        if isinstance(part, int):
            yield part
        else:
            yield from text_tokens(part)
    yield _MESSAGE_END
    yield from text_tokens("\n")


def _content(message: Message, where: str) -> Iterator[str | int]:
    """Texts, and a token for each part that is something else."""
    if isinstance(message.content, str):
        yield message.content
    elif message.content is not None:
        # Adjacent texts are one, joined as vLLM does it; a single text part is the same prompt as the plain text.
        texts: list[str] = []
        for number, part in enumerate(message.content):
            if part.get("type") == "text":
                if not isinstance(part.get("text"), str):
                    raise InputError(f"{where}[{number}].text: must be a text")
                texts.append(part["text"])
                continue
            if not isinstance(part.get("type"), str):
                raise InputError(f"{where}[{number}].type: must be a text")
            yield "\n".join(texts)
            texts.clear()
            yield _OTHER_PART + _token(_json(part))
        yield "\n".join(texts)
    if message.tool_calls:
        yield _json(message.tool_calls)


def _token(piece: str) -> int:
    return crc32(piece.encode("utf-8", "surrogatepass"))


def _json(value: object) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except RecursionError:  # reading takes a little less of the stack than writing
        raise InputError("the request cannot be used: a part of it is nested too deeply") from None


def _delta(delta: dict[str, str], finish_reason: str | None = None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
