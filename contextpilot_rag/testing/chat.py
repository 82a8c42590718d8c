"""What the FakeEngine reads: the bodies of chat requests, a chat template, a tokenizer. Pure."""

from __future__ import annotations

import itertools
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping
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
_NAMES = {_MESSAGE_START: "<|im_start|>", _MESSAGE_END: "<|im_end|>"}

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


class TokenizeText(msgspec.Struct):
    """The body of ``/tokenize`` for a text. There are no special tokens that could be added to one."""

    prompt: str
    add_special_tokens: bool = True
    return_token_strs: bool | None = None


class TokenizeChat(Prompt, kw_only=True):
    """The body of ``/tokenize`` for messages. The template has all special tokens in any case."""

    add_special_tokens: bool = False
    return_token_strs: bool | None = None


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


def text_pieces(text: str) -> Iterator[str]:
    """As `pieces`, one by one."""
    return (piece.group() for piece in _PIECE.finditer(text))


def text_tokens(text: str) -> Iterator[int]:
    """A text's tokens, the same in every process."""
    return map(token, text_pieces(text))


def token(piece: str | int) -> int:
    """The token of a piece, or of one of what is no text."""
    return piece if isinstance(piece, int) else crc32(piece.encode("utf-8", "surrogatepass"))


def shown(piece: str | int) -> str:
    r"""A piece as text.

    >>> [shown(piece) for piece in prompt_pieces(Prompt(messages=[], tools=None))]
    ['<|im_start|>', 'assist', 'ant', '\n']
    """
    return piece if isinstance(piece, str) else _NAMES.get(piece, "<|other|>")


def limited(tokens: Iterable[int], most: int) -> array[int]:
    """All tokens, or an error as soon as there are too many; a huge body must not be tokenized to its end.

    Raises:
        InputError: there are more than ``most``.
    """
    found = array("Q", itertools.islice(tokens, most + 1))
    if len(found) > most:
        raise InputError(f"the prompt is longer than the {most} tokens that fit in the cache")
    return found


def tokenized(body: Mapping[str, Any] | bytes, most: int) -> dict[str, Any]:
    """The answer of vLLM's ``/tokenize``.

    Args:
        body: of the request, with messages or a prompt.
        most: tokens that a prompt may have.

    Raises:
        InputError: the body cannot be used.
    """
    _, raw = read(body, dict[str, Any])
    found: Iterator[str | int]
    if "messages" in raw:
        chat, _ = read(raw, TokenizeChat)
        found, named = prompt_pieces(chat), chat.return_token_strs
    else:
        text, _ = read(raw, TokenizeText)
        found, named = text_pieces(text.prompt), text.return_token_strs
    kept = [*itertools.islice(found, most + 1)]
    tokens = limited(map(token, kept), most)
    names = [*map(shown, kept)] if named else None
    return {"count": len(tokens), "max_model_len": most, "tokens": tokens.tolist(), "token_strs": names}


def prompt_tokens(prompt: Prompt) -> Iterator[int]:
    """The tokens of `prompt_pieces`.

    Raises:
        InputError: as there.
    """
    return map(token, prompt_pieces(prompt))


def prompt_pieces(prompt: Prompt) -> Iterator[str | int]:
    """A chat under a template in the manner of ChatML, one by one, so that a caller can stop at his limit.

    Pieces of texts, and tokens of what is no text.

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
        yield from text_pieces("assistant\n")


def _message(role: str, content: Iterable[str | int]) -> Iterator[str | int]:
    yield _MESSAGE_START
    yield from text_pieces(f"{role}\n")
    for part in content:
        if isinstance(part, int):
            yield part
        else:
            yield from text_pieces(part)
    yield _MESSAGE_END
    yield from text_pieces("\n")


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
            yield _OTHER_PART + token(_json(part))
        yield "\n".join(texts)
    if message.tool_calls:
        yield _json(message.tool_calls)


def _json(value: object) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except RecursionError:  # reading takes a little less of the stack than writing
        raise InputError("the request cannot be used: a part of it is nested too deeply") from None
