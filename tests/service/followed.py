"""A FakeEngine with cache events, a service that follows it, and clients that tell it where their prompts stand."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from openai import OpenAI

from contextpilot_rag import ContextPilot
from contextpilot_rag.engines.covering import Covering
from contextpilot_rag.service.engine_watch import EngineWatch
from contextpilot_rag.testing import FakeEngine
from tests.service.harness import Served
from tests.until import until

BLOCKS = {name: f"{name} is what this text is about, at some length. " * 12 for name in "ABCDEFGH"}
SOON = 20.0  # seconds; a bound, not a wait


def line(fake: FakeEngine, name: str = "fake", *, replay: bool = True) -> str:
    """What ``--engine`` takes."""
    return f"{fake.base_url} name={name} events={fake.events_url}" + (f" replay={fake.replay_url}" if replay else "")


def watch_of(service: Served) -> EngineWatch:
    assert service.hub.followed is not None
    return service.hub.followed


def in_step(service: Served) -> None:
    """Wait until all its engines are followed by their events, and their sizes are known."""

    def all_are() -> bool:
        engines = watch_of(service).figures().engines
        return all(one.level == "events" and one.block_size is not None for one in engines)

    until(all_are, "following by events")


def settled(service: Served, *pilots: ContextPilot) -> None:
    """Wait until all that was answered, and all that engines told, has reached the trees."""
    for pilot in pilots:
        assert pilot.engines.drained(SOON)
    assert watch_of(service).drained(SOON)
    service.ask("GET", "/healthz")  # a turn of the event loop: what it had begun is done


@contextmanager
def client(service: Served, *engines: FakeEngine, key: str = "") -> Iterator[ContextPilot]:
    """A pilot of a process that shares the service, and tells it of its prompts if it is given the engine."""
    given = [fake.base_url for fake in engines] or None
    with ContextPilot(service.address, engines=given, api_key=key, index_timeout=20.0) as pilot:
        for _ in engines:
            until(lambda: all(one.block_size for one in pilot.engines), "the size of KV blocks")
        yield pilot


def ask(pilot: ContextPilot, fake: FakeEngine, names: Sequence[str], question: str = "What is it?") -> tuple[Any, int]:
    """Align, send and report; the prompt, and how much of it was cached."""
    prompt = pilot.align([(name, BLOCKS[name]) for name in names], question)
    with OpenAI(base_url=fake.base_url, api_key="none", max_retries=0) as sender:
        answer = sender.chat.completions.create(
            model="fake-engine", messages=prompt.messages("Answer."), max_tokens=1, extra_body=prompt.extra_body
        )
    pilot.observe(prompt, answer)
    assert answer.usage is not None
    assert answer.usage.prompt_tokens_details is not None
    return prompt, answer.usage.prompt_tokens_details.cached_tokens or 0


def told(ticket: str, covering: Covering, cached_tokens: int | None = None) -> dict[str, Any]:
    """The body of ``POST /v1/cover``, as any client would write it."""
    return {
        "ticket": ticket,
        "keys": base64.b64encode(b"".join(covering.keys)).decode(),
        "contents": base64.b64encode(b"".join(covering.contents)).decode(),
        "ends": list(covering.ends),
        "tokens": covering.tokens,
        "block_size": covering.block_size,
        "cached_tokens": cached_tokens,
    }
