"""The examples, as they are run: a chain of agents, and an agent that is configured as OpenClaw is."""

from __future__ import annotations

import importlib
import itertools
import json
import re
import runpy
import select
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from openai import OpenAI

from contextpilot_rag import expand
from contextpilot_rag.dedup.units import normal
from contextpilot_rag.testing import FakeEngine

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
CUSTOMERS = (
    ("alder", "1 March 2027", "EUR 48,000"),
    ("birch", "1 July 2027", "EUR 51,500"),
    ("cedar", "1 October 2027", "EUR 39,900"),
)
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "read",
            "description": "Read a file",
            "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
        },
    }
]


@contextmanager
def proxy(upstream, *arguments):
    command = [sys.executable, "-m", "contextpilot_rag", "proxy", "--upstream", upstream, "--port", "0", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert select.select([process.stdout], [], [], 30)[0], "the proxy does not start"
        yield re.search(r"http://127\.0\.0\.1:\d+/v1", process.stdout.readline().decode()).group()
    finally:
        process.terminate()
        process.wait(30)
        process.stdout.close()


def run(name, *arguments):
    done = subprocess.run(
        [sys.executable, EXAMPLES / name, *arguments], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_chain_of_agents_finds_more_in_the_cache_through_the_proxy():
    with FakeEngine() as engine, proxy(engine.base_url) as url:
        shown = run("chain_of_agents.py", "--base-url", engine.base_url, "--base-url", url)
    (_, alone), (_, through) = re.findall(r"^all .*?([\d,]+) +[\d,]+ +(\d+)% cached$", shown, re.MULTILINE)
    assert int(alone) < 12
    assert int(through) > int(alone) + 12


def test_each_agent_of_the_chain_is_given_all_its_chunks_through_the_proxy(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    example = importlib.import_module("chain_of_agents")
    with FakeEngine() as engine, proxy(engine.base_url) as url, OpenAI(base_url=url, api_key="none") as client:
        assert len([*example.chain(client, "any", example.SECTIONS)]) == len(example.ASPECTS) + 1
        *workers, _ = engine.requests
    for aspect, request in zip(example.ASPECTS, workers, strict=True):
        user = request.messages[-1]["content"]
        for title in example.fitting(example.SECTIONS, aspect)[: example.CHUNKS]:
            block = f'<document id="{title}">\n{example.SECTIONS[title]}\n</document>'
            assert user.count(block) == 1


class Agent:
    """Speaks as OpenClaw does to a provider of its configuration: streamed chats with tools, its own notice about the
    session as the last message of each request, which is not in the next one, and each file as a tool's result."""

    def __init__(self, client, model, files):
        self.client = client
        self.model = model
        self.files = files
        self.history = [{"role": "system", "content": "You are a personal assistant.\n## Tooling\n- read: Read files"}]
        self.prompt_tokens = 0
        self.asked = []

    def ask(self, text, *paths):
        self.history.append({"role": "user", "content": f"[Mon 2026-11-30 14:14 UTC] {text}"})
        self.complete()
        for number, path in enumerate(paths):
            function = {"name": "read", "arguments": json.dumps({"path": path})}
            call = {"id": f"call{len(self.history)}{number}", "type": "function", "function": function}
            self.history.append({"role": "assistant", "content": None, "tool_calls": [call]})
            self.history.append({"role": "tool", "content": self.files[path], "tool_call_id": call["id"]})
            self.complete()
        self.history.append({"role": "assistant", "content": "Noted."})

    def complete(self):
        notice = {"role": "user", "content": [{"type": "text", "text": "Conversation data: no active sessions."}]}
        self.asked.append([*self.history, notice])
        stream = self.client.chat.completions.create(
            model=self.model,
            messages=self.asked[-1],
            tools=TOOLS,
            tool_choice="auto",
            max_completion_tokens=8192,
            stream=True,
            stream_options={"include_usage": True},
        )
        *_, last = stream
        self.prompt_tokens += last.usage.prompt_tokens


def analysis(url, engine):
    """What an analysis of three agreements took, what was asked, and what the engine received."""
    provider = json.loads((EXAMPLES / "openclaw.json").read_text(encoding="utf-8"))["models"]["providers"][
        "contextpilot"
    ]
    made = runpy.run_path(str(EXAMPLES / "agreement.py"))["agreement"]
    files = {f"contracts/{name}.txt": made(f"{name.title()} Ltd", *of) for name, *of in CUSTOMERS}
    with OpenAI(base_url=url, api_key=provider["apiKey"]) as client:
        agent = Agent(client, provider["models"][0]["id"], files)
        for path in files:
            agent.ask(f"Read {path}. When does it begin?", path)
        agent.ask("Which of them costs the most? Read all again if you have to.", *files)
    return agent, [request.messages for request in engine.requests]


def test_an_agent_with_the_openclaw_configuration_sends_less_through_the_proxy_and_loses_nothing():
    with FakeEngine() as engine:
        alone, _ = analysis(engine.base_url, engine)
    with FakeEngine() as engine, proxy(engine.base_url) as url:
        through, received = analysis(url, engine)
    assert through.asked == alone.asked
    assert through.prompt_tokens < 0.5 * alone.prompt_tokens
    for asked, sent in zip(through.asked, received, strict=True):
        restored = expand(list(sent))
        for before, after in zip(asked, restored, strict=True):
            assert before.keys() == after.keys()
            assert plain(before) == plain(after)
    for sent, later in itertools.pairwise(received):
        assert later[: len(sent) - 1] == sent[:-1]


def plain(message):
    content = message["content"]
    return normal(content) if isinstance(content, str) else content


def test_the_openclaw_configuration_names_the_proxys_own_address_and_a_model_that_it_has():
    told = json.loads((EXAMPLES / "openclaw.json").read_text(encoding="utf-8"))
    name, _, model = told["agents"]["defaults"]["model"]["primary"].partition("/")
    provider = told["models"]["providers"][name]
    assert provider["baseUrl"] == "http://127.0.0.1:8766/v1"
    assert provider["api"] == "openai-completions"
    assert model in [one["id"] for one in provider["models"]]


@pytest.mark.parametrize("name", ["agreement.py", "chain_of_agents.py"])
def test_the_examples_import_nothing_of_this_library(name):
    assert "contextpilot_rag" not in (EXAMPLES / name).read_text(encoding="utf-8")
