"""The proxy in front of an engine: what is believed cached is, tenants are apart, and answers are the engine's own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest

from contextpilot_rag.settings import Settings
from tests.proxy.running import Lives, living

from .followed import until
from .under_test import BLOCK, EngineUnderTest

SYSTEM: Any = {"role": "system", "content": "Answer from the documents."}
_NUMBERS = itertools.count(1)


@pytest.fixture
def proxy(engine: EngineUnderTest) -> Iterator[Lives]:
    """It follows the engine by its events."""
    upstream = f"{engine.url} name=live events={engine.events} replay={engine.replay} topic={engine.topic}"
    with living(upstreams=upstream, chosen=Settings(min_gain=0)) as one:
        hear_of_the_reset(engine, one)
        yield one


def hear_of_the_reset(engine: EngineUnderTest, proxy: Lives) -> None:
    """An engine tells that its cache was emptied with the next thing that happens there: let that be over."""
    pool = proxy.life.parts.pilot.engines
    told = pool["live"].events
    until(lambda: pool["live"].level == "events", lambda: f"{pool['live']}")
    engine.chat(" ".join(texts("Z").values()))
    until(lambda: pool["live"].events > told and pool["live"].kv_blocks > 0, lambda: f"{pool['live']}")
    assert pool.drained(30)


def texts(some: str) -> dict[str, str]:
    """Documents that no other test has, from their first words on."""
    number = next(_NUMBERS)
    return {
        name: f"{number} {name}: " + " ".join(f"Line {line} of {number} {name} says {name}." for line in range(14))
        for name in some
    }


def documents(known: dict[str, str], names: str, question: str) -> dict[str, str]:
    items = "\n".join(f'<document id="{name}">\n{known[name]}\n</document>' for name in names)
    return {"role": "user", "content": f"<documents>\n{items}\n</documents>\n\n{question}"}


def client_of(proxy: Lives, key: str = "none") -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{proxy.address}/v1", api_key=key, max_retries=0, timeout=60)


def ask(client: openai.OpenAI, model: str, *messages: Any, **options: Any) -> tuple[int, int, Any]:
    """Tokens of the prompt, how many were cached, and the answer's headers."""
    raw = client.chat.completions.with_raw_response.create(
        model=model, messages=[SYSTEM, *messages], max_tokens=1, temperature=0, **options
    )
    usage = raw.parse().usage
    assert usage is not None
    assert usage.prompt_tokens_details is not None
    return usage.prompt_tokens, usage.prompt_tokens_details.cached_tokens or 0, raw.headers


def test_documents_in_another_order_are_found_in_the_cache(engine, proxy):
    client, known = client_of(proxy), texts("ABCDE")
    ask(client, engine.model, documents(known, "ABCD", "First?"))
    length, cached, headers = ask(client, engine.model, documents(known, "ECBA", "Second?"))
    assert headers["x-contextpilot-order"] == "changed"
    predicted = int(headers["x-contextpilot-predicted-cached-tokens"])
    assert predicted > 200
    assert cached >= 0.6 * predicted
    assert cached > 0.4 * length
    engine.reset()
    client = openai.OpenAI(base_url=engine.base_url, api_key="none")
    ask(client, engine.model, documents(known, "ABCD", "First?"))
    assert ask(client, engine.model, documents(known, "ECBA", "Second?"))[1] <= 2 * BLOCK


def test_a_conversation_is_found_in_the_cache_up_to_its_last_turn(engine, proxy):
    client, known = client_of(proxy), texts("ABCD")
    ask(client, engine.model, documents(known, "AB", "Before?"))
    turns = [documents(known, "BAC", "First?")]
    length = ask(client, engine.model, *turns)[0]
    turns += [{"role": "assistant", "content": "Yes."}, documents(known, "CD", "Second?")]
    longer, cached, headers = ask(client, engine.model, *turns)
    assert int(headers["x-contextpilot-replaced"]) == 1
    assert cached > length - 3 * BLOCK
    assert longer < length + 300


def test_tenants_find_their_own_only(engine, proxy):
    known = texts("ABC")
    asked = documents(known, "ABC", "First?")
    length, cold, _ = ask(client_of(proxy, "one"), engine.model, asked)
    assert cold == 0
    assert ask(client_of(proxy, "two"), engine.model, asked)[1] == 0
    assert ask(client_of(proxy, "one"), engine.model, asked)[1] > length - 2 * BLOCK


def test_what_is_streamed_is_what_the_engine_says(engine, proxy):
    question = {"role": "user", "content": "Count to three."}
    options = {"model": engine.model, "messages": [question], "max_tokens": 8, "temperature": 0, "stream": True}

    def said(client):
        return "".join(chunk.choices[0].delta.content or "" for chunk in client.chat.completions.create(**options))

    direct = said(openai.OpenAI(base_url=engine.base_url, api_key="none"))
    assert said(client_of(proxy)) == direct or engine.name == "fake"  # which tells how much of it was cached


def test_anthropics_messages_are_aligned_for_an_engine_that_has_them(engine, proxy):
    client, known = (
        anthropic.Anthropic(base_url=proxy.address, api_key="none", max_retries=0, timeout=60),
        texts("ABCD"),
    )

    def asked(names, question):
        return client.messages.with_raw_response.create(
            model=engine.model, max_tokens=1, system=SYSTEM["content"], messages=[documents(known, names, question)]
        )

    asked("ABC", "First?")
    raw = asked("DBA", "Second?")
    assert raw.headers["x-contextpilot-order"] == "changed"
    assert raw.parse().usage.input_tokens > 0


def test_the_engines_events_move_the_proxys_index(engine, proxy):
    client, known = client_of(proxy), texts("ABCDEF")
    for names in ("ABCD", "CBAE", "FABC", "EDCB"):
        ask(client, engine.model, documents(known, names, f"About {names}?"))
    given = {"contextpilot": {"blocks": [known[name] for name in "BAFE"]}}
    ask(client, engine.model, {"role": "user", "content": "About these?"}, extra_body=given)
    pool = proxy.life.parts.pilot.engines
    assert pool.drained(30)
    status = pool["live"]
    assert status.level == "events", status.why
    assert status.covered == 5
    engine.reset()
    hear_of_the_reset(engine, proxy)
    _, cached, headers = ask(client, engine.model, documents(known, "BACD", "After?"))
    assert (cached, headers["x-contextpilot-predicted-cached-tokens"]) == (0, "0")
