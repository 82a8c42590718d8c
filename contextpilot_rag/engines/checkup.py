"""Checkup: what of an engine can be followed, tried out one by one. It asks the engine for up to two short answers."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from ..errors import ContextPilotError, EngineError
from ..types import Usage
from .engine import Engine, EngineFacts, Level
from .events import EventListener
from .facts import ailment, read_facts
from .http import EngineHttp
from .kv import Event, Stored
from .tokenizing import EngineTokenizer, Messages
from .usage import usage_of

SECONDS = 10.0
_USUAL_BLOCK = 16  # tokens of a KV block, where it is not known
_MOST_WORDS = 4_000
_MOST_STORED = 1_000


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found.

    Args:
        check: which.
        ok: whether that is as it should be; None: it was not tried.
        said: what was found, in a few words.
    """

    check: str
    ok: bool | None
    said: str


@dataclass(frozen=True, slots=True)
class Checkup:
    """What can be followed of an engine.

    Args:
        findings: of all checks, in their order.
        level: how well a pilot would follow it; None: it does not answer.
    """

    findings: tuple[Finding, ...]
    level: Level | None


def check_up(engine: Engine, *, request: bool = True, seconds: float = SECONDS) -> Checkup:
    """Try out all that is needed to follow an engine.

    Args:
        engine: which.
        request: ask it twice for an answer of one token, to the same small prompt. Without, token ids, reports and what
            events tell cannot be compared.
        seconds: that each step may take.
    """
    ails = ailment(engine, seconds)
    if ails:
        return Checkup((Finding("health", False, ails),), None)
    facts = read_facts(engine, seconds)
    size = engine.block_size or facts.block_size
    findings = [Finding("health", True, "it answers"), _of_facts(engine, facts)]
    messages = _prompt(size or _USUAL_BLOCK)
    with _listening(engine, seconds) as heard:
        ids, tokenized = _token_ids(engine, messages, seconds)
        usages, failed = _asked(engine, facts, messages, seconds) if heard.ready(seconds) and request else ([], "")
        findings += [_of_tokens(ids, tokenized, usages), _of_reports(usages, failed, asked=request)]
        if engine.events:
            findings.append(heard.finding(ids, size or _USUAL_BLOCK, seconds, asked=bool(usages)))
        if engine.replay:
            findings.append(heard.replayed(seconds))
    good = {one.check for one in findings if one.ok}
    level: Level = "usage" if "reports" in good else "model"
    if engine.events and size is not None and {"tokens", "events"} <= good:
        level = "events"
    return Checkup(tuple(findings), level)


class _Heard:
    """What came of an engine's events."""

    def __init__(self, engine: Engine, patience: float) -> None:
        self._engine = engine
        self._stored: list[Stored] = []
        self._broken: list[str] = []
        self._in_step: set[int] = set()
        self._changed = threading.Condition()
        self.listener = EventListener(self, time.monotonic, patience)

    def events(self, engine: str, rank: int, events: Sequence[Event]) -> None:  # noqa: ARG002
        with self._changed:
            self._stored += [event for event in events if isinstance(event, Stored)]
            del self._stored[:-_MOST_STORED]
            self._changed.notify_all()

    def lost(self, engine: str, rank: int, why: str) -> None:
        """What comes next is true."""

    def flowing(self, engine: str, rank: int) -> None:  # noqa: ARG002
        with self._changed:
            self._in_step.add(rank)
            self._changed.notify_all()

    def broken(self, engine: str, rank: int, why: str) -> None:  # noqa: ARG002
        with self._changed:
            self._broken.append(why)
            self._changed.notify_all()

    def ready(self, seconds: float) -> bool:
        """Wait until all ranks are listened to, or cannot be; then it may be asked."""
        if self._engine.events:
            with self._changed:
                self._changed.wait_for(lambda: self._broken or len(self._in_step) == self._engine.ranks, seconds)
        return True

    def finding(self, ids: Sequence[int], size: int, seconds: float, *, asked: bool) -> Finding:
        """Whether the events tell of the prompt that was sent, if one was."""
        with self._changed:
            if len(self._in_step) < self._engine.ranks:
                return Finding("events", False, "; ".join(self._broken) or "none came, nor did a connection")
            if not asked:
                return Finding("events", True, "somebody publishes there; nothing was asked, so what is not known")
            came = self._changed.wait_for(lambda: self._tell_of(ids, size), seconds)
            if came:
                return Finding("events", True, "they tell of the prompt that was sent")
            if not self._stored:
                why = "; ".join(self._broken) or "nothing came after a request: is the engine started with them on?"
                return Finding("events", False, why)
            return Finding("events", False, "they tell of other token ids, or KV blocks of another size, than expected")

    def replayed(self, seconds: float) -> Finding:
        """Whether the past is told."""
        with self._changed:
            wrong = [why for why in self._broken if "replay" in why]
        if wrong or not self.listener.drained(seconds):
            return Finding("replay", False, "; ".join(wrong) or "it is not answered")
        counts = self.listener.counts(self._engine.name)
        if not counts.replays or not counts.in_step:
            return Finding("replay", False, "nobody was there to be asked")
        return Finding("replay", True, "all is told since the engine's start" if counts.complete else "it is answered")

    def _tell_of(self, ids: Sequence[int], size: int) -> bool:
        """Whether a KV block of the prompt was stored; its beginning may have been there before."""
        own = {tuple(ids[at : at + size]) for at in range(0, len(ids) - size + 1, size)}
        return any(event.block_size == size and event.tokens[:size] in own for event in self._stored)


@contextmanager
def _listening(engine: Engine, seconds: float) -> Iterator[_Heard]:
    heard = _Heard(engine, seconds / 2)
    try:
        try:
            heard.listener.add(engine)
        except ContextPilotError as error:  # pyzmq is missing
            heard.broken(engine.name, 0, str(error))
        yield heard
    finally:
        heard.listener.close()


def _prompt(size: int) -> Messages:
    """One that nobody has asked before, of several KV blocks."""
    words = min(_MOST_WORDS, 3 * size + 16)
    return [{"role": "user", "content": f"{secrets.token_hex(8)}: say yes." + " This is a test." * (words // 4)}]


def _of_facts(engine: Engine, facts: EngineFacts) -> Finding:
    size, capacity = engine.block_size or facts.block_size, engine.capacity_tokens or facts.capacity_tokens
    known = f"{facts.kind}, model {engine.model or facts.model or 'unknown'}"
    missing = [
        f"{name} (give {name}=...)"
        for name, value in (("block_size", size), ("capacity_tokens", capacity))
        if not value
    ]
    if missing:
        return Finding("facts", False, f"{known}; it does not say its {' and '.join(missing)}; is /metrics open?")
    return Finding("facts", True, f"{known}, a cache of {capacity} tokens in KV blocks of {size}")


def _token_ids(engine: Engine, messages: Messages, seconds: float) -> tuple[list[int], str]:
    tokenizer = EngineTokenizer(engine, seconds)
    try:
        return tokenizer.of_messages(messages), ""
    except EngineError as error:
        return [], str(error)
    finally:
        tokenizer.close()


def _asked(engine: Engine, facts: EngineFacts, messages: Messages, seconds: float) -> tuple[list[Usage], str]:
    """What it reports for the same prompt, twice; and why there is less."""
    http = EngineHttp(engine, seconds)
    body = {"model": engine.model or facts.model or "", "messages": messages, "max_tokens": 1}
    usages: list[Usage] = []
    try:
        while len(usages) < 2:
            usages.append(usage_of(http.post("/v1/chat/completions", body)) or Usage())
    except EngineError as error:
        return usages, str(error)
    finally:
        http.close()
    return usages, ""


def _of_tokens(ids: Sequence[int], failed: str, usages: Sequence[Usage]) -> Finding:
    if failed:
        return Finding("tokens", False, f"{failed}; a pilot can be given the tokenizer, ContextPilot(tokenizer=...)")
    counted = next((usage.prompt_tokens for usage in usages if usage.prompt_tokens is not None), None)
    if counted is None:
        return Finding("tokens", True, f"it says the token ids of a prompt, {len(ids)} of them; not compared")
    if counted != len(ids):
        return Finding("tokens", False, f"it says {len(ids)} token ids for a prompt that it counts as {counted} tokens")
    return Finding("tokens", True, f"the token ids of a prompt are as many as it counts: {counted}")


def _of_reports(usages: Sequence[Usage], failed: str, *, asked: bool) -> Finding:
    if not asked:
        return Finding("reports", None, "not tried, as no request was to be sent")
    if failed:
        return Finding("reports", False, failed)
    cached = usages[-1].cached_tokens
    if cached is None:
        return Finding(
            "reports", False, "no cached tokens (vLLM: --enable-prompt-tokens-details; SGLang: --enable-cache-report)"
        )
    if not cached:
        return Finding("reports", False, "0 cached tokens of a prompt that was just sent: is its prefix cache on?")
    return Finding("reports", True, f"{cached} cached tokens of a prompt that was just sent")
