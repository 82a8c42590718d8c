"""Learning: what a pilot makes of an engine's answer, for its index, its token counts and the engine's follower."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .asking import Asker
from .dedup.messages import Messages
from .engines.usage import usage_of
from .errors import InputError
from .failing import Failures
from .prompt.prompt import AlignedPrompt
from .tokens import TokenCounter
from .types import Alignment, Usage

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
        if usage is not None:
            self._asker.observe(alignment, usage)
        self._answered(alignment, messages, usage)
        return usage

    async def aobserve(self, alignment: Alignment, response: object, messages: Messages | None) -> Usage | None:
        """As `observe`, awaiting an index that is elsewhere."""
        usage = self._reported(alignment, response)
        if usage is not None:
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
        if self._pool is None:
            return
        prompt = alignment if isinstance(alignment, AlignedPrompt) else None
        if messages is None and prompt is not None:
            messages = prompt.sent.messages
        try:
            self._pool.answered(alignment, messages, None if prompt is None else prompt.salt, usage)
        except Exception as error:  # noqa: BLE001  fails open: an answer is there, it must reach the caller
            self._failures.fail(error)
