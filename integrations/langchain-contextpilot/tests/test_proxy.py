"""ChatOpenAI with nothing but a base URL: the proxy as it is started, before an engine that shows what it gets."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from contextpilot_rag.testing import FakeEngine
from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

TEXTS = {
    name: f"{name}: " + " ".join(f"Line {line} of what {name} says about slices." for line in range(30))
    for name in "ABCDEFGH"
}
FIRST, SECOND = "ABCDEF", "DGCBHA"
FILE = "\n".join(f"def step_{line}(items): return items[{line}:]" for line in range(120))


@pytest.fixture
def engine():
    with FakeEngine() as running:
        yield running


@pytest.fixture
def address(engine):
    """Of a proxy before the engine."""
    command = [sys.executable, "-u", "-m", "contextpilot_rag", "proxy", "--upstream", engine.base_url, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ}) as running:
        try:
            said = running.stdout.readline()
            assert said.startswith("contextpilot-rag proxy: "), said
            yield said.split()[2]
        finally:
            running.send_signal(signal.SIGTERM)
            assert running.wait(20) == 0


@pytest.fixture
def model(address):
    return ChatOpenAI(base_url=address, api_key="none", model="any", max_retries=0, stream_usage=True)


def prompt(names):
    items = "\n".join(f'<document source="{name}.txt">\n{TEXTS[name]}\n</document>' for name in names)
    question = f"<documents>\n{items}\n</documents>\n\nWhere do slices start?"
    return [SystemMessage("Answer from the documents."), HumanMessage(question)]


def cached(message):
    return message.usage_metadata["input_token_details"]["cache_read"]


def without(names):
    """What a direct request for the second documents finds after the first ones."""
    engine = FakeEngine()
    for one in (FIRST, names):
        system, user = prompt(one)
        messages = [{"role": "system", "content": system.content}, {"role": "user", "content": user.content}]
        engine.chat({"messages": messages})
    return engine.requests[-1].cached_tokens


def test_the_same_documents_in_another_order_are_cached(engine, model):
    first, second = (model.invoke(prompt(names)) for names in (FIRST, SECOND))
    assert cached(first) == 0
    assert cached(second) == engine.requests[-1].cached_tokens > 1000 > without(SECOND)
    told = f"{engine.requests[-1].prompt_tokens} prompt tokens, {cached(second)} of them cached."
    assert second.content == f"FakeEngine: no model here. {told}"
    assert engine.requests[-1].cache_salt is not None


def test_a_stream(engine, model):
    model.invoke(prompt(FIRST))
    chunks = list(model.stream(prompt(SECOND)))
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    assert len(chunks) > 10
    assert "no model here" in whole.content
    assert cached(whole) == engine.requests[-1].cached_tokens > 1000


async def test_async(engine, model):
    await model.ainvoke(prompt(FIRST))
    texts = [chunk.content async for chunk in model.astream(prompt(SECOND))]
    assert "no model here" in "".join(texts)
    assert engine.requests[-1].cached_tokens > 1000


def test_what_a_tool_reads_twice_is_sent_once(engine, model):
    @tool
    def read_file(path: str) -> str:
        """Reads a file."""
        return FILE + path

    calling = model.bind_tools([read_file], tool_choice="any")
    messages = [HumanMessage("Read a.py twice.")]
    for _ in range(2):
        answer = calling.invoke(messages)
        (call,) = answer.tool_calls
        assert (call["name"], call["args"]) == ("read_file", {"path": ""})
        messages += [answer, ToolMessage(read_file.invoke(call["args"]), tool_call_id=call["id"])]
    model.bind_tools([read_file]).invoke(messages)
    sent = [message["content"] for message in engine.requests[-1].messages if message["role"] == "tool"]
    assert sent[0] == FILE
    assert len(sent[1]) < len(FILE) / 2
