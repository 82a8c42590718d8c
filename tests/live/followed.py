"""A pilot that follows one engine under test, and what tests ask of the two."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, NamedTuple

import openai

from contextpilot_rag import ContextPilot
from contextpilot_rag.engines.chain import chain
from contextpilot_rag.engines.fleet import Fleet
from contextpilot_rag.engines.status import EngineStatus
from contextpilot_rag.prompt.prompt import AlignedPrompt
from tests.resident import resident_tokens

from .traffic import SYSTEM, Question
from .under_test import BLOCK, EngineUnderTest

PATIENCE = 30.0


class Outcome(NamedTuple):
    """A request, and how many tokens were expected to be cached, and were; of how many."""

    prompt: AlignedPrompt
    messages: list[Any]
    expected: int | None
    reported: int
    tokens: int


class Followed:
    """A pilot in front of an engine.

    Args:
        engine: it runs.
        at: what is other than the engine says: where its events are had, ...
        wait: begin when its events are followed.
        **options: of the pilot.
    """

    def __init__(
        self, engine: EngineUnderTest, at: dict[str, str] | None = None, *, wait: bool = True, **options: Any
    ) -> None:
        self._wait = wait
        self.engine = engine
        self.pilot = ContextPilot(engines=[engine.followed(**({} if at is None else at))], **options)
        self._client = openai.OpenAI(base_url=engine.base_url, api_key="none", max_retries=0, timeout=120)

    def __enter__(self) -> Followed:
        if self._wait:
            until(lambda: self.status.level == "events" and self.status.block_size == BLOCK, self._told)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()
        self.pilot.close()

    @property
    def status(self) -> EngineStatus:
        """How the engine stands."""
        return next(iter(self.pilot.engines))

    def ask(self, question: Question, *, settle: bool = True, **options: Any) -> Outcome:
        """One request, from its alignment to all that follows from its answer."""
        prompt = self.pilot.align(question.blocks, question.text, **options)
        assert prompt.engine == "live"
        messages: list[Any] = prompt.messages(SYSTEM)
        answer = self._client.chat.completions.create(
            model=self.engine.model, messages=messages, max_tokens=1, temperature=0, extra_body=prompt.extra_body
        )
        usage = self.pilot.observe(prompt, answer)
        assert usage is not None
        assert usage.prompt_tokens is not None
        assert usage.cached_tokens is not None
        if settle:
            self.settle()
        return Outcome(prompt, messages, prompt.expected_cached_tokens, usage.cached_tokens, usage.prompt_tokens)

    def settle(self) -> None:
        """What was answered and told is taken in. An engine tells a moment after it has answered."""
        time.sleep(0.01)
        assert self.pilot.engines.drained(PATIENCE)

    def resident(self, messages: list[Any], salt: str | None = None) -> int:
        """Tokens of a prompt that are in the cache, as the mirror says."""
        ids = self.engine.tokens(messages)
        found = resident_tokens(self.mirror, chain(ids, BLOCK, salt), BLOCK)
        return min(found, (len(ids) - 1) // BLOCK * BLOCK)  # the last token is never found

    @property
    def mirror(self) -> Any:
        """Of the engine."""
        fleet = self.pilot.engines.fleet
        assert isinstance(fleet, Fleet)
        (member,) = fleet._members.values()
        return member.lane._mirror

    def _told(self) -> str:
        return f"{self.status}"


def until(condition: Callable[[], bool], what: Callable[[], str], seconds: float = PATIENCE) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"it never came to be: {what()}"
        time.sleep(0.02)


def off_by(outcomes: Iterable[Outcome]) -> float:
    """How far what was expected is from what was reported: the sum of all differences, as a share of the reports."""
    outcomes = list(outcomes)
    reported = sum(one.reported for one in outcomes)
    return sum(abs((one.expected or 0) - one.reported) for one in outcomes) / max(1, reported)
