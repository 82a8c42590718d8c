"""What the FakeEngine answers to Anthropic's messages, whole or as events; and which answer is whose. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from .answers import Answer, CompletionAnswer, ResponseAnswer
from .questions import Kind


@dataclass(frozen=True, slots=True)
class MessageAnswer(Answer):
    """The answer to messages, a ``message``, or the events of its stream.

    Its usage is counted as Anthropic counts: what was cached is not among the ``input_tokens``. Nothing is said of what
    was written to the cache, as with vLLM, which writes all of it and has no price for that.
    """

    @property
    def id(self) -> str:
        """Of the answer, as on the wire."""
        return f"msg_fake_{self.number}"

    @property
    def usage(self) -> dict[str, Any]:
        """As on the wire; where it is not reported what was cached, nothing is said of it at all."""
        told = {"input_tokens": self.prompt_tokens, "output_tokens": len(self.pieces)}
        if self.cached_tokens is None:
            return told
        told["input_tokens"] -= self.cached_tokens
        return {**told, "cache_creation_input_tokens": 0, "cache_read_input_tokens": self.cached_tokens}

    def completion(self) -> dict[str, Any]:
        """The whole answer."""
        return self._message([self._block()], self._stop_reason(), self.usage)

    def chunks(self) -> Iterator[dict[str, Any]]:
        """The answer as events, from ``message_start`` to ``message_stop``."""
        begun = self._message([], None, {**self.usage, "output_tokens": 0})
        yield {"type": "message_start", "message": begun}
        empty: dict[str, Any] = {"text": ""} if self.call is None else {"input": {}}
        yield {"type": "content_block_start", "index": 0, "content_block": {**self._block(), **empty}}
        kind, field = ("text_delta", "text") if self.call is None else ("input_json_delta", "partial_json")
        for piece in self.pieces:
            yield {"type": "content_block_delta", "index": 0, "delta": {"type": kind, field: piece}}
        yield {"type": "content_block_stop", "index": 0}
        delta = {"stop_reason": self._stop_reason(), "stop_sequence": None}
        yield {"type": "message_delta", "delta": delta, "usage": self.usage}
        yield {"type": "message_stop"}

    def _block(self) -> dict[str, Any]:
        if self.call is None:
            return {"type": "text", "text": self.text}
        cut = self.finish_reason == "length"  # what is cut is no JSON any more
        told = {} if cut else msgspec.json.decode(self.call.arguments)
        return {"type": "tool_use", "id": f"toolu_fake_{self.number}", "name": self.call.name, "input": told}

    def _stop_reason(self) -> str:
        if self.finish_reason == "length":
            return "max_tokens"
        return "end_turn" if self.call is None else "tool_use"

    def _message(self, content: list[Any], stop_reason: str | None, usage: dict[str, Any]) -> dict[str, Any]:
        return {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": content,
            "stop_reason": stop_reason,
            "stop_sequence": None,
            "usage": usage,
        }


ANSWERS: dict[Kind, type[Answer]] = {
    "chat": Answer,
    "completion": CompletionAnswer,
    "response": ResponseAnswer,
    "message": MessageAnswer,
}
