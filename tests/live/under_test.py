"""An engine under test: what every test of this folder may ask of one, real or fake."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any
from urllib.request import Request, urlopen

from contextpilot_rag.engines.engine import Engine

BLOCK = 32
"""Tokens of a KV block: the smallest that vLLM has on a CPU."""
CAPACITY = 200
"""KV blocks that the cache holds: about four prompts of ten stubs of articles."""
LONGEST = 4096
"""Tokens of the longest prompt."""
SECONDS = 60.0
"""Longest that one answer may take."""

Message = dict[str, Any]


class EngineUnderTest(ABC):
    """An engine with a prefix cache of `CAPACITY` KV blocks, and its events.

    Attributes:
        name: which engine it is.
        url: http://127.0.0.1:PORT.
        events: where it publishes, in ZeroMQ's words.
        replay: where it replays.
        topic: of its events.
        model: what it serves.
    """

    name: str
    url: str
    events: str
    replay: str
    topic: str
    model: str

    @abstractmethod
    def start(self) -> None:
        """Serve, with an empty cache; from the second time on at the same addresses."""

    @abstractmethod
    def kill(self) -> None:
        """End at once, as a crash does: nothing is said to anybody."""

    @abstractmethod
    def close(self) -> None:
        """Give everything back."""

    def restart(self) -> None:
        """Die and come back at the same addresses."""
        self.kill()
        self.start()

    @property
    def base_url(self) -> str:
        """For the openai client."""
        return f"{self.url}/v1"

    def followed(self, name: str = "live", **more: Any) -> Engine:
        """As a pilot is told of it."""
        at = {"events": self.events, "replay": self.replay, "topic": self.topic, **more}
        return Engine(self.url, name=name, **at)

    def post(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """One request with JSON, and its answer."""
        data = b"" if body is None else json.dumps(body).encode()
        request = Request(f"{self.url}{path}", data, {"Content-Type": "application/json"})
        with urlopen(request, timeout=SECONDS) as answer:
            text = answer.read()
        return json.loads(text) if text.strip() else None

    def chat(self, content: str | Sequence[Message], salt: str | None = None, **more: Any) -> tuple[int, int]:
        """Ask, for one token.

        Returns:
            tokens of the prompt, and how many of them it reports as cached.
        """
        body = {"model": self.model, "messages": messages(content), "max_tokens": 1, "temperature": 0, **more}
        if salt is not None:
            body["cache_salt"] = salt
        usage = self.post("/v1/chat/completions", body)["usage"]
        return usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]

    def tokens(self, content: str | Sequence[Message]) -> list[int]:
        """The token ids of a chat prompt, as the engine itself makes them."""
        body = {"model": self.model, "messages": messages(content), "add_generation_prompt": True}
        return list(self.post("/tokenize", body)["tokens"])

    def reset(self) -> None:
        """Empty the cache."""
        self.post("/reset_prefix_cache")


def messages(content: str | Sequence[Message]) -> list[Message]:
    """A text as a user's message."""
    return [{"role": "user", "content": content}] if isinstance(content, str) else list(content)


def cacheable(prompt_tokens: int, same: int | None = None) -> int:
    """What is found of a prompt that is all cached, or so many tokens of it: whole KV blocks, never the last token."""
    return min(prompt_tokens - 1, prompt_tokens if same is None else same) // BLOCK * BLOCK
