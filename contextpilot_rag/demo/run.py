"""The demo's measurement: the same questions through the same engine, once as retrieved and once aligned."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, quantiles

from ..engines.endpoint import Answer, Endpoint
from ..pilot import ContextPilot
from ..prompt.prompt import AlignedPrompt
from ..types import Context

FEWEST = 12
SYSTEM = "You answer questions. Use only the documents given with each, be brief, and say so if they do not help."


@dataclass(frozen=True, slots=True)
class Sent:
    """One request and what came back.

    Args:
        alignment: the prompt that was sent.
        answer: the engine's answer, its usage and times.
    """

    alignment: AlignedPrompt
    answer: Answer

    @property
    def prompt_tokens(self) -> int:
        """As the engine reported; 0 where it reported nothing."""
        return (self.answer.usage.prompt_tokens or 0) if self.answer.usage else 0

    @property
    def cached_tokens(self) -> int | None:
        """As the engine reported; None where it reported nothing."""
        return self.answer.usage.cached_tokens if self.answer.usage else None


@dataclass(frozen=True, slots=True)
class Arm:
    """One way of ordering, over all questions.

    Args:
        name: what the table calls it.
        sent: every request, in the order of sending.
    """

    name: str
    sent: tuple[Sent, ...]

    @property
    def prompt_tokens(self) -> int:
        """Tokens sent."""
        return sum(one.prompt_tokens for one in self.sent)

    @property
    def cached_tokens(self) -> int | None:
        """Tokens that the engine says it had cached; None if it never says."""
        counts = [one.cached_tokens for one in self.sent if one.cached_tokens is not None]
        return sum(counts) if counts else None

    @property
    def mean_ttft(self) -> float:
        """Seconds."""
        return fmean(one.answer.ttft for one in self.sent)

    def ttft(self, percentile: int) -> float:
        """A percentile (1 to 99) of the time to first token, in seconds."""
        times = [one.answer.ttft for one in self.sent]
        return times[0] if len(times) == 1 else quantiles(times, n=100, method="inclusive")[percentile - 1]


def run_arm(
    name: str,
    contexts: Sequence[Context],
    endpoint: Endpoint,
    pilot: ContextPilot,
    *,
    system: str = SYSTEM,
    max_tokens: int = 16,
    seconds: float | None = None,
    progress: Callable[[Sent], None] = lambda _: None,
) -> Arm:
    """Send the contexts' questions, one after another.

    Args:
        name: of the arm.
        contexts: what was retrieved, each with its question.
        endpoint: where to send.
        pilot: decides the order, and learns from each answer.
        system: the system prompt.
        max_tokens: how long an answer may get.
        seconds: begin no further question after this time, once `FEWEST` have been answered; None: ask them all.
        progress: called after each answer.

    Raises:
        EngineError: the engine does not answer, or answers with an error.
    """
    sent: list[Sent] = []
    started = time.monotonic()
    for context in contexts:
        if seconds is not None and len(sent) >= FEWEST and time.monotonic() - started > seconds:
            break
        alignment = pilot.align(context, context.question)
        answer = endpoint.chat(
            alignment.messages(system), max_tokens=max_tokens, temperature=0, extra_body=alignment.extra_body or None
        )
        pilot.observe(alignment, answer)
        sent.append(Sent(alignment, answer))
        progress(sent[-1])
    return Arm(name, tuple(sent))


def warm_up(endpoint: Endpoint) -> None:
    """Let the engine do whatever only its first request has to wait for."""
    endpoint.chat([{"role": "user", "content": "Say nothing."}], max_tokens=1, temperature=0)
