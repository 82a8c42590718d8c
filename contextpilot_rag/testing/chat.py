"""What the FakeEngine reads: the bodies of chat requests, a chat template, a tokenizer. Pure."""

from __future__ import annotations

import itertools
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any, TypeVar
from zlib import crc32

import msgspec
from msgspec import Meta

from ..errors import InputError

# Pieces of about four characters of English, found from the left: a text's pieces are those of every text that begins
# with it, but perhaps the last one. Together they are the text.
_PIECE = re.compile(r" ?[A-Za-z]{1,6}|\d{1,3}|[^\W\d_]{1,2}|\s{1,8}|[^\w\s]{1,3}|.", re.DOTALL)
_LINE_END = re.compile(r"\n(?=\S)")  # no piece goes on behind one
_LONG = 2_048  # characters of a line whose tokens are not remembered
_CHUNK = 4_096  # tokens that are made in one go of such a line
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
    return map(re.Match.group, _PIECE.finditer(text))


def text_tokens(text: str) -> Iterator[int]:
    """A text's tokens, the same in every process."""
    return itertools.chain.from_iterable(text_chunks(text))


def text_chunks(text: str) -> Iterator[array[int]]:
    """As `text_tokens`, some at a time. They are others', too: not to be changed."""
    begin = 0
    for end in itertools.chain(map(re.Match.end, _LINE_END.finditer(text)), [len(text)]):
        line = text[begin:end]
        if len(line) <= _LONG:
            yield _line_tokens(line)
        else:
            tokens = map(token, text_pieces(line))
            while chunk := array("Q", itertools.islice(tokens, _CHUNK)):
                yield chunk
        begin = end


@lru_cache(1 << 13)
def _line_tokens(line: str) -> array[int]:
    return array("Q", list(map(token, pieces(line))))


@lru_cache(1 << 16)
def token(piece: str | int) -> int:
    """The token of a piece, or of one of what is no text."""
    return piece if isinstance(piece, int) else _checksum(piece)


def _checksum(text: str) -> int:
    return crc32(text.encode("utf-8", "surrogatepass"))


def shown(piece: str | int) -> str:
    r"""A piece as text.

    >>> [shown(piece) for piece in prompt_pieces(Prompt(messages=[], tools=None))]
    ['<|im_start|>', 'assist', 'ant', '\n']
    """
    return piece if isinstance(piece, str) else _NAMES.get(piece, "<|other|>")


def limited(chunks: Iterable[Sequence[int]], most: int) -> array[int]:
    """All tokens, or an error as soon as there are too many; a huge body must not be tokenized to its end.

    Args:
        chunks: the tokens, some at a time.
        most: that there may be.

    Raises:
        InputError: there are more than ``most``.
    """
    found = array("Q")
    for chunk in chunks:
        if len(found) + len(chunk) > most:
            raise InputError(f"the prompt is longer than the {most} tokens that fit in the cache")
        found.extend(chunk)
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
    tokens = limited([list(map(token, kept))], most)
    names = [*map(shown, kept)] if named else None
    return {"count": len(tokens), "max_model_len": most, "tokens": tokens.tolist(), "token_strs": names}


def prompt_chunks(prompt: Prompt) -> Iterator[Sequence[int]]:
    """The tokens of `prompt_pieces`, some at a time.

    Raises:
        InputError: as there.
    """
    for part in _parts(prompt):
        if isinstance(part, int):
            yield (part,)
        else:
            yield from text_chunks(part)


def prompt_pieces(prompt: Prompt) -> Iterator[str | int]:
    """A chat under a template in the manner of ChatML, one by one, so that a caller can stop at his limit.

    Pieces of texts, and tokens of what is no text.

    Raises:
        InputError: a message has no content and is not the assistant's, or a text part has no text.
    """
    for part in _parts(prompt):
        if isinstance(part, int):
            yield part
        else:
            yield from text_pieces(part)


def _parts(prompt: Prompt) -> Iterator[str | int]:
    """Texts, each cut by itself, and tokens of what is no text."""
    if prompt.tools:
        yield from _message("tools", [_json(prompt.tools)])
    for number, message in enumerate(prompt.messages):
        if message.content is None and message.role != "assistant":
            raise InputError(f"messages[{number}].content: only an assistant's message can be without")
        yield from _message(message.role, _content(message, f"messages[{number}].content"))
    if prompt.add_generation_prompt:
        yield _MESSAGE_START
        yield "assistant\n"


def _message(role: str, content: Iterable[str | int]) -> Iterator[str | int]:
    yield _MESSAGE_START
    yield f"{role}\n"
    yield from content
    yield _MESSAGE_END
    yield "\n"


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
            yield _OTHER_PART + _checksum(_json(part))
        yield "\n".join(texts)
    if message.tool_calls:
        yield _json(message.tool_calls)


def _json(value: object) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except RecursionError:  # reading takes a little less of the stack than writing
        raise InputError("the request cannot be used: a part of it is nested too deeply") from None
