"""Learning: what a pilot makes of an engine's answer, for its index, its token counts and the engine's follower."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .asking import Asker
from .dedup.messages import Messages, as_message, checked_messages
from .engines.usage import usage_of
from .errors import InputError
from .failing import Failures
from .prompt.prompt import AlignedPrompt
from .tokens import TokenCounter
from .types import Alignment, Usage, short

if TYPE_CHECKING:
    from .engines.pool import EnginePool


class Learner:
    """Learns from answers, and fails open.

    Args:
        asker: whose index is told.
        tokens: estimates that are corrected.
        failures: counts what goes wrong.
        pool: the engines that requests go to; None: they are not known.
    """

    def __init__(self, asker: Asker, tokens: TokenCounter, failures: Failures, pool: EnginePool | None) -> None:
        self._asker = asker
        self._tokens = tokens
        self._failures = failures
        self._pool = pool

    def observe(self, alignment: Alignment, response: object, messages: Messages | None) -> Usage | None:
        """As `ContextPilot.observe`."""
        usage = self._reported(alignment, response)
        if usage is None:
            self._asker.answered(alignment)
        else:
            self._asker.observe(alignment, usage)
        self._answered(alignment, messages, usage)
        return usage

    async def aobserve(self, alignment: Alignment, response: object, messages: Messages | None) -> Usage | None:
        """As `observe`, awaiting an index that is elsewhere."""
        usage = self._reported(alignment, response)
        if usage is None:
            self._asker.answered(alignment)
        else:
            await self._asker.aobserve(alignment, usage)
        self._answered(alignment, messages, usage)
        return usage

    def weight(self, text: str, name: bytes) -> int:
        """Tokens of a text with this identity."""
        try:
            return self._tokens.count(text, name)
        except Exception as error:  # noqa: BLE001  fails open: somebody else's tokenizer, and an estimate will do
            self._failures.fail(error)
            return self._tokens.estimate(text)

    def _reported(self, alignment: Alignment, response: object) -> Usage | None:
        """What an answer reports; token estimates are corrected by it."""
        if not isinstance(alignment, Alignment):
            raise InputError(f"observe takes what align returned, not {type(alignment).__name__}")
        usage = usage_of(response)
        if usage is not None and isinstance(alignment, AlignedPrompt) and usage.prompt_tokens:
            self._tokens.calibrate(alignment.sent.prompt_bytes, usage.prompt_tokens)
        return usage

    def _answered(self, alignment: Alignment, messages: Messages | None, usage: Usage | None) -> None:
        """Let the engine's follower know that a prompt is in its cache now."""
        prompt = alignment if isinstance(alignment, AlignedPrompt) else None
        known: Messages | None = None if prompt is None or self._pool is None else prompt.sent.messages
        if messages is not None:
            try:
                known = _as_sent(messages)
            except Exception as error:  # noqa: BLE001  fails open, always: an answer is there, it must reach the caller
                self._failures.note(error)
                known = None  # whatever was sent, it is not the prompt's own
        if self._pool is None:
            return
        try:
            self._pool.answered(alignment, known, None if prompt is None else prompt.salt, usage)
        except Exception as error:  # noqa: BLE001  fails open: an answer is there, it must reach the caller
            self._failures.fail(error)


def _as_sent(messages: Messages) -> list[Mapping[str, Any]]:
    """Messages as they were sent.

    Raises:
        InputError: they are none.
    """
    found = []
    for number, message in enumerate(checked_messages(messages), start=1):
        one = as_message(message)
        if one is None or not isinstance(one.get("content"), str | list | tuple | None):
            raise InputError(f"observe(messages=...): message {number} is no message, but {short(message)}")
        found.append(one)
    return found
