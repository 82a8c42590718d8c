"""OpenAILike with nothing but a base URL: the proxy as it is started, before an engine that shows what it gets."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from contextpilot_rag.testing import FakeEngine
from li_support import llm_of, user_text
from llama_index.core.llms import ChatMessage

TEXTS = {
    name: f"{name}: " + " ".join(f"Line {line} of what {name} says about slices." for line in range(30))
    for name in "ABCDEFGH"
}
FIRST, SECOND = "ABCDEF", "DGCBHA"


class Address:
    """Where an LLM finds the proxy."""

    def __init__(self, base_url):
        self.base_url = base_url


@pytest.fixture
def engine():
    with FakeEngine() as running:
        yield running


@pytest.fixture
def llm(engine, request):
    """An LLM that asks through a proxy, which is started with more arguments if a test has some."""
    command = [sys.executable, "-u", "-m", "contextpilot_rag", "proxy", "--upstream", engine.base_url, "--port", "0"]
    command += getattr(request, "param", [])
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ}) as running:
        try:
            said = running.stdout.readline()
            assert said.startswith("contextpilot-rag proxy: "), said
            yield llm_of(Address(said.split()[2]))
        finally:
            running.send_signal(signal.SIGTERM)
            assert running.wait(20) == 0


def prompt(names):
    items = "\n".join(f'<document source="{name}.txt">\n{TEXTS[name]}\n</document>' for name in names)
    question = f"<documents>\n{items}\n</documents>\n\nWhere do slices start?"
    return [
        ChatMessage(role="system", content="Answer from the documents."),
        ChatMessage(role="user", content=question),
    ]


def without(names):
    """What a direct request for these documents finds after the first ones."""
    engine = FakeEngine()
    for one in (FIRST, names):
        engine.chat({"messages": [{"role": each.role.value, "content": each.content} for each in prompt(one)]})
    return engine.requests[-1].cached_tokens


@pytest.mark.parametrize(
    ("llm", "hints"), [([], 0), (["--order-hint", "yes"], 1)], indirect=["llm"], ids=["default", "hint"]
)
def test_the_same_documents_in_another_order_are_cached(engine, llm, hints):
    first, second = (llm.chat(prompt(names)) for names in (FIRST, SECOND))
    assert first.raw.usage.prompt_tokens_details.cached_tokens == 0
    found = second.raw.usage.prompt_tokens_details.cached_tokens
    assert found == engine.requests[-1].cached_tokens > 1000 > without(SECOND)
    told = f"{engine.requests[-1].prompt_tokens} prompt tokens, {found} of them cached."
    assert second.message.content == f"FakeEngine: no model here. {told}"
    assert user_text(engine.requests[-1]).count("Order of relevance, best first") == hints
    assert engine.requests[-1].cache_salt is not None


def test_a_stream(engine, llm):
    llm.chat(prompt(FIRST))
    chunks = list(llm.stream_chat(prompt(SECOND)))
    assert len(chunks) > 10
    assert "".join(chunk.delta or "" for chunk in chunks) == chunks[-1].message.content
    assert "no model here" in chunks[-1].message.content
    assert engine.requests[-1].cached_tokens > 1000


async def test_async(engine, llm):
    await llm.achat(prompt(FIRST))
    stream = await llm.astream_chat(prompt(SECOND))
    assert "no model here" in "".join([chunk.delta or "" async for chunk in stream])
    assert engine.requests[-1].cached_tokens > 1000


def test_a_completion(engine, llm):
    llm.complete(prompt(FIRST)[1].content)
    assert "no model here" in llm.complete(prompt(SECOND)[1].content).text
    assert engine.requests[-1].cached_tokens > 1000
