"""What the engine says to a prompt: its answer at temperature 0, and how probable it finds the right one.

The probability is taken by teacher forcing. vLLM gives it in two ways, which agree to the last digit: as
log-probabilities of a prompt that ends with the answer (``prompt_logprobs``), for which it computes the prompt anew; or
token by token, each the only one allowed (``allowed_token_ids``), which reuses what is cached. An engine that gives
neither is asked for its answer alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from ..engines.http import EngineHttp
from ..errors import EngineRefused
from ..sending import again_where_it_helps
from ..types import short
from .words import Outcome

Scoring = Literal["forced", "prompt", "none"]
MOST_SCORED = 24  # tokens of the right answer
_BUSY = frozenset({408, 409, 429})
_NOTHING: Mapping[str, Any] = {}
_LEAST, _ROUNDING = -9999.0, 1e-3
Kind = TypeVar("Kind")
_Messages = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Terms:
    """What an answer depends on beside its prompt.

    Args:
        model: the engine's name for it.
        max_tokens: of an answer.
        scoring: how the right answer's probability is taken.
        most_scored: tokens of the right answer, from its beginning, that are scored.
    """

    model: str
    max_tokens: int = 32
    scoring: Scoring = "forced"
    most_scored: int = MOST_SCORED

    def __str__(self) -> str:
        return f"{self.model}, {self.max_tokens} tokens, {self.scoring}, {self.most_scored} scored"


class Asker:
    """Asks one engine. Thread-safe.

    Args:
        http: the engine.
        terms: of all answers.
        retries: how often an engine that is busy, or not there, is asked again.
    """

    def __init__(self, http: EngineHttp, terms: Terms, retries: int = 0) -> None:
        self._http = http
        self.terms: Terms = terms
        self._retries = retries
        self._given_up = threading.Event()

    def give_up(self) -> None:
        """From now on nothing is asked again; who waits to do so need not."""
        self._given_up.set()

    def ask(self, key: str, messages: _Messages, gold: str | None, salt: str | None = None) -> Outcome:
        """One prompt.

        Args:
            key: names it.
            messages: of the prompt.
            gold: the right answer; None or empty: nothing is scored.
            salt: for the engine's cache; None: none.

        Raises:
            EngineError: the engine failed, or refused what it was asked.
        """
        import tenacity

        how = again_where_it_helps(self._retries)
        how["stop"] |= tenacity.stop_when_event_set(self._given_up)
        again = tenacity.Retrying(sleep=tenacity.sleep_using_event(self._given_up), **how)
        return again(self._asked, key, messages, gold, salt)

    def _asked(self, key: str, messages: _Messages, gold: str | None, salt: str | None) -> Outcome:
        more = {} if salt is None else {"cache_salt": salt}
        body = {"model": self.terms.model, "messages": messages, "max_tokens": self.terms.max_tokens, "temperature": 0}
        found = self._http.post("/v1/chat/completions", {**body, **more})
        try:
            text = _one(found["choices"][0]["message"]["content"] or "", str)
            usage = found["usage"]
            cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
            tokens, cached = _one(usage["prompt_tokens"], int), None if cached is None else _one(cached, int)
            scores = self._scores(messages, gold, tokens, more) if gold else []
        except (KeyError, IndexError, TypeError, AttributeError, ValueError, OverflowError) as error:
            raise EngineRefused(f"the engine's answer is none that this understands: {error!r}") from error
        return Outcome(key, text, tokens, cached, sum(scores) if scores else None, len(scores))

    def _scores(self, messages: _Messages, gold: str, tokens: int, more: Mapping[str, Any]) -> list[float]:
        ways: Mapping[str, Callable[[_Messages, str, int, Mapping[str, Any]], list[float]]] = {
            "forced": self._forced,
            "prompt": self._of_prompt,
        }
        way = ways.get(self.terms.scoring)
        return [] if way is None else way(messages, gold, tokens, more)[: self.terms.most_scored]

    def _of_prompt(self, messages: _Messages, gold: str, tokens: int, more: Mapping[str, Any]) -> list[float]:
        """From the engine's log-probabilities of a prompt that ends with the right answer."""
        body = {"model": self.terms.model, "messages": _answered(messages, gold), "max_tokens": 1, "temperature": 0}
        found = self._http.post("/v1/chat/completions", {**body, **_OPEN_ENDED, "prompt_logprobs": 0, **more})
        answered = found["prompt_logprobs"][tokens:]
        return [_logprob(next(iter(entry.values()), _NOTHING)["logprob"]) for entry in answered]

    def _forced(self, messages: _Messages, gold: str, tokens: int, more: Mapping[str, Any]) -> list[float]:
        """Token by token; what stands before is cached."""
        asked = {"model": self.terms.model, "messages": _answered(messages, gold), **_OPEN_ENDED}
        ids = self._http.post("/tokenize", asked)["tokens"]
        scores = []
        for end in range(tokens, min(len(ids), tokens + self.terms.most_scored)):
            body = {"model": self.terms.model, "prompt": ids[:end], "max_tokens": 1, "temperature": 0, "logprobs": 0}
            found = self._http.post("/v1/completions", {**body, "allowed_token_ids": [ids[end]], **more})
            scores.append(_logprob(found["choices"][0]["logprobs"]["token_logprobs"][0]))
        return scores


_OPEN_ENDED = {"add_generation_prompt": False, "continue_final_message": True}


def _answered(messages: _Messages, gold: str) -> list[Mapping[str, Any]]:
    return [*messages, {"role": "assistant", "content": gold}]


def _one(value: object, kind: type[Kind]) -> Kind:
    if not isinstance(value, kind):
        raise TypeError(f"{short(value)} is no {kind.__name__}")
    return value


def _logprob(value: Any) -> float:  # noqa: ANN401  what the engine says
    """A token's log-probability, which may be a little above 0 by rounding; of what cannot be, as vLLM writes it."""
    found = float(value)
    if not found <= _ROUNDING:
        raise ValueError(f"{found} is no logarithm of a probability")
    return min(0.0, max(_LEAST, found))


_TRIED = [{"role": "user", "content": "What is two and two?"}]


def _pass_on(error: EngineRefused) -> None:
    """An engine that has no time has not said what it can."""
    if error.status in _BUSY:
        raise error


def scoring_of(http: EngineHttp, model: str, retries: int = 0) -> Scoring:
    """The best way that an engine has to score a right answer, tried out on a short prompt.

    Raises:
        EngineError: it does not answer.
    """
    ways: Sequence[Scoring] = ("forced", "prompt")
    for scoring in ways:
        try:
            outcome = Asker(http, Terms(model, 1, scoring, 2), retries).ask("", _TRIED, "four")
        except EngineRefused as error:
            _pass_on(error)
            continue
        if outcome.logprob is not None:
            return scoring
    return "none"


def salted_by(http: EngineHttp, model: str, retries: int = 0) -> bool:
    """Whether an engine takes a ``cache_salt``, tried out on a short prompt.

    Raises:
        EngineError: it does not answer, or refuses the prompt without one, too.
    """
    asker = Asker(http, Terms(model, 1, "none"), retries)
    try:
        asker.ask("", _TRIED, None, "evaluate")
    except EngineRefused as error:
        _pass_on(error)
        asker.ask("", _TRIED, None)
        return False
    return True
