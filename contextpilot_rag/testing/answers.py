"""What the FakeEngine answers: chat completions, completions, responses, each whole or in chunks. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .tools import Call


@dataclass(frozen=True, slots=True)
class Answer:
    """What the FakeEngine answers, to be had whole or in chunks. This one is a chat completion.

    Args:
        number: of the request, counted by the engine.
        created: seconds since the epoch.
        model: as the request called it.
        pieces: the text, or the arguments of a call, token by token.
        finish_reason: "stop", or "length" if ``max_tokens`` cut the text.
        prompt_tokens: the length of the prompt.
        cached_tokens: how many of them were cached; None: it is not reported.
        wait_seconds: how long the loopback server waits before the first token.
        stream: whether the request asked for chunks.
        include_usage: whether the chunks end with one that has the usage.
        call: the tool that is called; None: text is answered.
    """

    number: int
    created: int
    model: str
    pieces: tuple[str, ...]
    finish_reason: str
    prompt_tokens: int
    cached_tokens: int | None
    wait_seconds: float
    stream: bool
    include_usage: bool
    call: Call | None = None

    @property
    def id(self) -> str:
        """Of the answer, as on the wire."""
        return f"chatcmpl-fake-{self.number}"

    @property
    def text(self) -> str:
        """All of it."""
        return "".join(self.pieces)

    @property
    def usage(self) -> dict[str, Any]:
        """As on the wire."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": len(self.pieces),
            "total_tokens": self.prompt_tokens + len(self.pieces),
            "prompt_tokens_details": None if self.cached_tokens is None else {"cached_tokens": self.cached_tokens},
        }

    def completion(self) -> dict[str, Any]:
        """The whole answer, a ``chat.completion``."""
        message: dict[str, Any] = {"role": "assistant", "content": self.text}
        if self.call is not None:
            message |= {"content": None, "tool_calls": [self._call(self.call, self.text)]}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self._ending()}
        return {**self._head("chat.completion"), "choices": [choice], "usage": self.usage}

    def chunks(self) -> Iterator[dict[str, Any]]:
        """The answer as ``chat.completion.chunk`` objects: the role, each token, the end, and perhaps the usage."""
        head = self._head("chat.completion.chunk")
        if self.include_usage:
            head["usage"] = None
        yield {**head, "choices": [_delta({"role": "assistant", "content": ""})]}
        if self.call is not None:
            begun = {"index": 0, **self._call(self.call, "")}
            yield {**head, "choices": [_delta({"tool_calls": [begun]})]}
        for piece in self.pieces:
            more = {"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}
            yield {**head, "choices": [_delta({"content": piece} if self.call is None else more)]}
        yield {**head, "choices": [_delta({}, self._ending())]}
        if self.include_usage:
            yield {**head, "choices": [], "usage": self.usage}

    def _ending(self) -> str:
        # Of a tool that the request named, "stop" is said, by vLLM as by OpenAI.
        called = self.call is not None and not self.call.named and self.finish_reason == "stop"
        return "tool_calls" if called else self.finish_reason

    def _call(self, call: Call, arguments: str) -> dict[str, Any]:
        function = {"name": call.name, "arguments": arguments}
        return {"id": f"call_fake_{self.number}", "type": "function", "function": function}

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}


@dataclass(frozen=True, slots=True)
class CompletionAnswer(Answer):
    """The answer to a prompt, a ``text_completion``."""

    @property
    def id(self) -> str:
        """Of the answer, as on the wire."""
        return f"cmpl-fake-{self.number}"

    def completion(self) -> dict[str, Any]:
        """The whole answer."""
        choices = [_choice(self.text, self.finish_reason)]
        return {**self._head("text_completion"), "choices": choices, "usage": self.usage}

    def chunks(self) -> Iterator[dict[str, Any]]:
        """The answer as objects of the same kind: each token, the end, and perhaps the usage."""
        head = self._head("text_completion")
        if self.include_usage:
            head["usage"] = None
        for piece in self.pieces:
            yield {**head, "choices": [_choice(piece)]}
        yield {**head, "choices": [_choice("", self.finish_reason)]}
        if self.include_usage:
            yield {**head, "choices": [], "usage": self.usage}


@dataclass(frozen=True, slots=True)
class ResponseAnswer(Answer):
    """The answer to a request for a response, or the events of its stream. The last of these has the usage."""

    @property
    def id(self) -> str:
        """Of the answer, as on the wire."""
        return f"resp_fake_{self.number}"

    @property
    def usage(self) -> dict[str, Any]:
        """As on the wire."""
        cached = None if self.cached_tokens is None else {"cached_tokens": self.cached_tokens, "cache_write_tokens": 0}
        return {
            "input_tokens": self.prompt_tokens,
            "input_tokens_details": cached,
            "output_tokens": len(self.pieces),
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": self.prompt_tokens + len(self.pieces),
        }

    def completion(self) -> dict[str, Any]:
        """The whole answer, a ``response``."""
        cut = self.finish_reason == "length"
        return {
            **self._begun(),
            "status": "incomplete" if cut else "completed",
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "output": [self._item("incomplete" if cut else "completed")],
            "usage": self.usage,
        }

    def chunks(self) -> Iterator[dict[str, Any]]:
        """The answer as events, from ``response.created`` to ``response.completed``."""
        for number, event in enumerate(self._events()):
            yield {**event, "sequence_number": number}

    def _events(self) -> Iterator[dict[str, Any]]:
        whole = self.completion()
        (item,) = whole["output"]
        place = {"output_index": 0}
        yield {"type": "response.created", "response": self._begun()}
        yield {"type": "response.in_progress", "response": self._begun()}
        empty: dict[str, Any] = {"content": []} if self.call is None else {"arguments": ""}
        yield {"type": "response.output_item.added", **place, "item": {**item, **empty, "status": "in_progress"}}
        yield from self._said({**place, "item_id": item["id"]})
        yield {"type": "response.output_item.done", **place, "item": item}
        yield {"type": "response.completed", "response": whole}

    def _said(self, place: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The events of what the item is made of."""
        if self.call is not None:
            kind = "response.function_call_arguments"
            for piece in self.pieces:
                yield {"type": f"{kind}.delta", **place, "delta": piece}
            yield {"type": f"{kind}.done", **place, "name": self.call.name, "arguments": self.text}
            return
        part = {**place, "content_index": 0}
        yield {"type": "response.content_part.added", **part, "part": _text("")}
        for piece in self.pieces:
            yield {"type": "response.output_text.delta", **part, "delta": piece, "logprobs": []}
        yield {"type": "response.output_text.done", **part, "text": self.text, "logprobs": []}
        yield {"type": "response.content_part.done", **part, "part": _text(self.text)}

    def _begun(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": "in_progress",
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "metadata": {},
            "model": self.model,
            "output": [],
            "parallel_tool_calls": True,
            "temperature": 1.0,
            "tool_choice": "auto",
            "tools": [],
            "top_p": 1.0,
            "usage": None,
        }

    def _item(self, status: str) -> dict[str, Any]:
        if self.call is not None:
            return {
                "id": f"fc_fake_{self.number}",
                "type": "function_call",
                "call_id": f"call_fake_{self.number}",
                "name": self.call.name,
                "arguments": self.text,
                "status": status,
            }
        return {
            "id": f"msg_fake_{self.number}",
            "type": "message",
            "role": "assistant",
            "status": status,
            "content": [_text(self.text)],
        }


def _delta(delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}


def _choice(text: str, finish_reason: str | None = None) -> dict[str, Any]:
    return {"index": 0, "text": text, "logprobs": None, "finish_reason": finish_reason}


def _text(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
