"""What arrived at a FakeEngine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .questions import Kind


@dataclass(frozen=True, slots=True)
class ReceivedRequest:
    """A request that the FakeEngine answered.

    Args:
        messages: as they were received; of a response, as they would be sent for a chat; none of a completion.
        model: as the request called it.
        cache_salt: its salt, or None.
        prompt_tokens: the length of the prompt.
        cached_tokens: how many of them were cached, whether reported or not.
        completion_tokens: the length of the answer.
        wait_seconds: how long the loopback server waits before the first token.
        stream: whether the answer went out in chunks.
        kind: of its address: "chat", "completion", "response" or "message".
        prompt: of a completion: the text, or the token ids.
        body: all of it, as it was received, with what the engine does not heed: ``cache_control``, for one.
    """

    messages: tuple[dict[str, Any], ...]
    model: str
    cache_salt: str | None
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    wait_seconds: float
    stream: bool
    kind: Kind = "chat"
    prompt: str | tuple[int, ...] | None = None
    body: Mapping[str, Any] = field(default_factory=dict, repr=False)
