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


class Session:
    """An arm while it is measured: an engine's endpoint with a cache of its own, and the pilot that decides the orders.

    Args:
        name: of the arm.
        endpoint: where to send.
        pilot: decides the order, and learns from each answer.
        system: the system prompt.
        max_tokens: how long an answer may get.
    """

    def __init__(
        self, name: str, endpoint: Endpoint, pilot: ContextPilot, system: str = SYSTEM, max_tokens: int = 16
    ) -> None:
        self.name = name
        self._endpoint = endpoint
        self._pilot = pilot
        self._system = system
        self._max_tokens = max_tokens
        self._sent: list[Sent] = []

    def ask(self, context: Context) -> None:
        """Send a context's question.

        Raises:
            EngineError: the engine does not answer, or answers with an error.
        """
        alignment = self._pilot.align(context, context.question)
        answer = self._endpoint.chat(
            alignment.messages(self._system),
            max_tokens=self._max_tokens,
            temperature=0,
            extra_body=alignment.extra_body or None,
        )
        self._pilot.observe(alignment, answer)
        self._sent.append(Sent(alignment, answer))

    @property
    def arm(self) -> Arm:
        """What was measured so far."""
        return Arm(self.name, tuple(self._sent))


def run_in_turns(
    sessions: tuple[Session, Session], contexts: Sequence[Context], seconds: float, progress: Callable[[Session], None]
) -> None:
    """Ask each question in both sessions before the next one, so that a machine whose speed varies varies for both.

    Args:
        sessions: each with an engine of its own.
        contexts: what was retrieved, each with its question.
        seconds: begin no further question after this time, once `FEWEST` have been asked.
        progress: called after each answer.

    Raises:
        EngineError: an engine does not answer, or answers with an error.
    """
    started = time.monotonic()
    for number, context in enumerate(contexts):
        if number >= FEWEST and time.monotonic() - started > seconds:
            break
        for session in sessions if number % 2 == 0 else sessions[::-1]:
            session.ask(context)
            progress(session)


def warm_up(endpoint: Endpoint) -> None:
    """Let the engine do whatever only its first request has to wait for."""
    endpoint.chat([{"role": "user", "content": "Say nothing."}], max_tokens=1, temperature=0)
