"""What the FakeEngine is asked, whatever the address: a prompt in tokens, and what is wanted of the answer. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from ..errors import InputError
from .chat import Message, Prompt, prompt_chunks, read, text_chunks
from .messages import Turn, chat_messages, chat_tools
from .tools import Call, call_of

Count = Annotated[int, Meta(ge=1)]
Kind = Literal["chat", "completion", "response", "message"]

_COMPLETION_TOKENS = 16  # the interface's default


class StreamOptions(msgspec.Struct):
    """``stream_options`` of a chat request."""

    include_usage: bool | None = None


class Request(msgspec.Struct, kw_only=True):
    """What all requests for an answer have in common. Fields that the FakeEngine does not heed are ignored."""

    model: str | None = None
    cache_salt: Annotated[str, Meta(min_length=1, max_length=1024)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None


class ChatRequest(Request, kw_only=True):
    """A chat request."""

    messages: Annotated[list[Message], Meta(min_length=1)]
    tools: list[Any] | None = None
    tool_choice: Any = None
    add_generation_prompt: bool = True
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    n: Annotated[int, Meta(ge=1, le=1)] | None = None


class CompletionRequest(Request, kw_only=True):
    """A request to go on from a text, or from tokens."""

    prompt: str | list[Any]
    max_tokens: Count | None = _COMPLETION_TOKENS
    n: Annotated[int, Meta(ge=1, le=1)] | None = None


class ResponseRequest(Request, kw_only=True):
    """A request for a response."""

    input: str | Annotated[list[dict[str, Any]], Meta(min_length=1)]
    instructions: str | None = None
    tools: list[Any] | None = None
    tool_choice: Any = None
    max_output_tokens: Count | None = None
    previous_response_id: None = None  # nothing is kept


class MessageRequest(Request, kw_only=True):
    """A request of Anthropic's messages."""

    messages: Annotated[list[Turn], Meta(min_length=1)]
    max_tokens: Count
    system: str | list[dict[str, Any]] | None = None
    tools: list[Any] | None = None
    tool_choice: Any = None


@dataclass(frozen=True, slots=True)
class Question:
    """A request.

    Args:
        kind: of its address.
        request: what all have in common.
        tokens: of the prompt, some at a time.
        most: how long the answer may be, in tokens; None: it may be whole.
        messages: as they were received, or as they would be sent to the address for chats.
        prompt: of a completion, as it was received.
        call: the tool that has to be called; None: text is to be answered.
        body: all of it, as it was received.
    """

    kind: Kind
    request: Request
    tokens: Iterable[Sequence[int]]
    most: int | None
    messages: tuple[dict[str, Any], ...] = ()
    prompt: str | tuple[int, ...] | None = None
    call: Call | None = None
    body: Mapping[str, Any] = field(default_factory=dict, repr=False)


def question(kind: Kind, body: Mapping[str, Any] | bytes) -> Question:
    """A request's body, read.

    Raises:
        InputError: it cannot be used; the message says where.

    >>> asked = question("completion", {"prompt": [1, 2, 3]})
    >>> list(asked.tokens), asked.most
    ([[1, 2, 3]], 16)
    """
    asked = _READERS[kind](body)
    if asked.request.stream_options is not None and not asked.request.stream:
        raise InputError("stream_options: only a request with stream=true can have them")
    return asked


def _chat(body: Mapping[str, Any] | bytes) -> Question:
    request, raw = read(body, ChatRequest)
    most = request.max_completion_tokens or request.max_tokens
    prompt = Prompt(messages=request.messages, tools=request.tools, add_generation_prompt=request.add_generation_prompt)
    call = call_of("chat", request.tools, request.tool_choice)
    return Question("chat", request, prompt_chunks(prompt), most, tuple(raw["messages"]), call=call, body=raw)


def _completion(body: Mapping[str, Any] | bytes) -> Question:
    request, raw = read(body, CompletionRequest)
    prompt = request.prompt
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]  # a batch of one
    if not prompt:
        raise InputError("prompt: must not be empty")
    if isinstance(prompt, str):
        return Question("completion", request, text_chunks(prompt), request.max_tokens, prompt=prompt, body=raw)
    if not all(type(token) is int and 0 <= token < 2**64 for token in prompt):
        raise InputError("prompt: must be one text, or one list of token ids from 0 to 2**64 - 1")
    return Question("completion", request, [prompt], request.max_tokens, prompt=tuple(prompt), body=raw)


def _response(body: Mapping[str, Any] | bytes) -> Question:
    request, raw = read(body, ResponseRequest)
    messages = [*_messages(request)]
    prompt = Prompt(messages=messages, tools=request.tools)
    plain = tuple({"role": one.role, "content": one.content} for one in messages)
    call = call_of("response", request.tools, request.tool_choice)
    most = request.max_output_tokens
    return Question("response", request, prompt_chunks(prompt), most, plain, call=call, body=raw)


def _message(body: Mapping[str, Any] | bytes) -> Question:
    request, raw = read(body, MessageRequest)
    prompt = Prompt(messages=[*chat_messages(request.system, request.messages)], tools=chat_tools(request.tools))
    call = call_of("message", request.tools, request.tool_choice)
    most = request.max_tokens
    return Question("message", request, prompt_chunks(prompt), most, tuple(raw["messages"]), call=call, body=raw)


_READERS: dict[Kind, Callable[[Mapping[str, Any] | bytes], Question]] = {
    "chat": _chat,
    "completion": _completion,
    "response": _response,
    "message": _message,
}


def _messages(request: ResponseRequest) -> Iterator[Message]:
    """The same prompt as a chat's: instructions are its system message, parts of text are texts."""
    if request.instructions is not None:
        yield Message("system", request.instructions)
    if isinstance(request.input, str):
        yield Message("user", request.input)
        return
    for number, item in enumerate(request.input):
        where = f"input[{number}]"
        kind = item.get("type", "message")
        if kind == "function_call_output":
            yield Message("tool", _content(item.get("output"), f"{where}.output"))
            continue
        if kind == "function_call":
            function = {"name": item.get("name"), "arguments": item.get("arguments")}
            yield Message("assistant", None, [{"id": item.get("call_id"), "type": "function", "function": function}])
            continue
        if kind != "message":
            yield Message("assistant", [item])  # reasoning, a reference: no text
            continue
        role = item.get("role")
        if not (isinstance(role, str) and role):
            raise InputError(f"{where}.role: must be a text")
        yield Message(role, _content(item.get("content"), f"{where}.content"))


def _content(content: object, where: str) -> str | list[dict[str, Any]]:
    if isinstance(content, list):
        return [_part(part, f"{where}[{at}]") for at, part in enumerate(content)]
    if not isinstance(content, str):
        raise InputError(f"{where}: must be a text or a list of parts")
    return content


def _part(part: object, where: str) -> dict[str, Any]:
    if not isinstance(part, dict):
        raise InputError(f"{where}: must be an object")
    return {**part, "type": "text"} if part.get("type") in ("input_text", "output_text") else part
