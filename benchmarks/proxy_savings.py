"""What the proxy saves, as the FakeEngine counts it: agents that read files, and retrieved documents in wrappers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from proxy_runs import Process, proxy
from proxy_traffic import SYSTEM, TRACES, Body, Texts, conversations, documents
from report import table

from contextpilot_rag import ContextPilot, expand
from contextpilot_rag.dedup.units import normal
from contextpilot_rag.testing import FakeEngine

LEAST = 0.26
"""What is asked of an average conversation."""
CACHE = 4
"""Prompts that the engine's cache holds."""
KV_BLOCK = 16
NAMES = (
    "tatqa/trace_bm25_top15.jsonl.gz",
    "tatqa/trace_minilm_top15.jsonl.gz",
    "multihoprag_stubs/trace_bm25_top15.jsonl",
    "multihoprag_stubs/trace_minilm_top15.jsonl",
)


def agents(most: int | None = None) -> str:
    """Conversations of an agent that reads files, each with its whole history in every request, as clients send it.

    Args:
        most: conversations; None: all.
    """
    if not TRACES.exists():
        return f"(agents: the recorded traces are not at {TRACES})"
    alone = FakeEngine(max_requests=1)
    saved, sums, grown, requests, lost, moved = [], [0, 0], [0, 0], 0, 0, 0
    with FakeEngine(max_requests=1) as engine, proxy(engine.base_url) as server:
        for messages in list(conversations())[:most]:
            here = [0, 0]
            before: Sequence[Mapping[str, Any]] = ()
            for body in _requests(messages):
                requests += 1
                usages = alone.chat(body)["usage"], server.json("/v1/chat/completions", body)["usage"]
                for side, usage in enumerate(usages):
                    here[side] += usage["prompt_tokens"]
                    grown[side] += usage["prompt_tokens"] - (usage["prompt_tokens_details"]["cached_tokens"] or 0)
                sent = engine.requests[-1].messages
                lost += _texts(expand(list(sent))) != _texts(body["messages"])
                moved += sent[: len(before)] != tuple(before)
                before = sent
            sums = [one + other for one, other in zip(sums, here, strict=True)]
            saved.append(1 - here[1] / here[0])
    mean = fmean(saved)
    bar = [["prompt tokens saved, mean of the conversations", f">= {LEAST:.0%}", f"{mean:.1%}",
            "yes" if mean >= LEAST else "no"]]  # fmt: skip
    rows = [
        ["prompt tokens", *(f"{value:,}" for value in sums), f"{1 - sums[1] / sums[0]:.1%}"],
        ["of which not cached", *(f"{value:,}" for value in grown), f"{1 - grown[1] / grown[0]:.1%}"],
    ]
    told = (
        f"clawtasks: {len(saved)} conversations, {requests:,} requests, one for each of the agent's answers and calls. "
        "Each has the whole history as the client knows it, with the files' texts as results of tools. Requests of "
        f"which `expand` does not restore all: {lost}. Requests in which something sent before is other than it was: "
        f"{moved}."
    )
    return "\n\n".join(
        [
            "### Agents that read files",
            told,
            table(["", "asked", "found", "reached"], bar),
            table(["as the FakeEngine reports", "direct", "through the proxy", "less"], rows),
        ]
    )


def hits(most: int) -> str:
    """Retrieved documents in a wrapper, in the order of a recorded trace.

    Args:
        most: requests of each trace.
    """
    if not TRACES.exists():
        return f"(hits: the recorded traces are not at {TRACES})"
    rows = []
    for name in NAMES:
        texts = Texts(name)
        asked = texts.found[:most]
        lengths = [FakeEngine().tokenize(documents(texts, *one))["count"] for one in asked]
        blocks = max(int(CACHE * fmean(lengths)), max(lengths) + 2 * KV_BLOCK) // KV_BLOCK
        ratios = [
            _direct(texts, asked, blocks),
            _proxied(texts, asked, blocks),
            _proxied(texts, asked, blocks, "--labels", "renumber"),
            _pilot(texts, asked, blocks),
        ]
        short = name.split(".")[0].replace("/trace_", " ")
        rows.append([short, len(asked), *(f"{ratio:.3f}" for ratio in ratios)])
    headings = ["trace", "requests", "direct", "proxy", "proxy, numbered anew", "pilot in process"]
    told = (
        "Cached over all prompt tokens, as the FakeEngine reports them, one request after another, with a cache of "
        f'{CACHE} prompts. Each prompt has `<documents>` with a `<document id="...">` for each document; *numbered '
        'anew*: with `index="1"`, `index="2"`, ... instead, and `--labels renumber`. *pilot in process*: '
        "`ContextPilot` and its own rendering. All with the preset `balanced`."
    )
    return f"### Documents in wrappers\n\n{told}\n\n{table(headings, rows)}"


def _requests(messages: Sequence[Body]) -> Iterator[Body]:
    for number, message in enumerate(messages):
        if message["role"] == "assistant":
            yield {"model": "fake-engine", "messages": list(messages[:number]), "max_tokens": 16}


def _texts(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    return [normal(message["content"] or "") for message in messages]


def _direct(texts: Texts, asked: Sequence[tuple[str, list[str]]], blocks: int) -> float:
    engine = FakeEngine(block_size=KV_BLOCK, capacity_blocks=blocks)
    for question, names in asked:
        engine.chat(documents(texts, question, names))
    return _ratio(engine)


def _proxied(texts: Texts, asked: Sequence[tuple[str, list[str]]], blocks: int, *arguments: str) -> float:
    with (
        FakeEngine(block_size=KV_BLOCK, capacity_blocks=blocks) as engine,
        proxy(engine.base_url, *arguments) as server,
    ):
        for question, names in asked:
            _ask(server, documents(texts, question, names, numbered=bool(arguments)))
        return _ratio(engine)


def _pilot(texts: Texts, asked: Sequence[tuple[str, list[str]]], blocks: int) -> float:
    with FakeEngine(block_size=KV_BLOCK, capacity_blocks=blocks) as engine:
        pilot = ContextPilot(engines=[engine.base_url])
        for question, names in asked:
            prompt = pilot.align([(name, texts.of[name]) for name in names], question, system=SYSTEM)
            pilot.observe(prompt, engine.chat({"messages": prompt.messages(SYSTEM), "max_tokens": 16}))
        pilot.close()
        return _ratio(engine)


def _ask(server: Process, body: Body) -> None:
    status, content = server.ask("/v1/chat/completions", json.dumps(body, ensure_ascii=False).encode())
    if status != 200:
        raise RuntimeError(f"{status}: {content[:300]!r}")


def _ratio(engine: FakeEngine) -> float:
    return sum(one.cached_tokens for one in engine.requests) / sum(one.prompt_tokens for one in engine.requests)
