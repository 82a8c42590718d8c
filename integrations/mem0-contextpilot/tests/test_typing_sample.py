"""A user's own code, as a type checker sees it: mypy checks this file strictly, and pytest runs it."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

from contextpilot_rag import ContextPilot

import mem0_contextpilot
from mem0_contextpilot import (
    AlignedResults,
    AsyncContextPilotMemory,
    ContextPilotMemory,
    ContextPilotReranker,
    MemoryContext,
    __version__,
    order_hint,
)

FOUND = [{"id": "tea", "memory": "Likes tea.", "score": 0.9}, {"id": "nuts", "memory": "Eats no nuts.", "score": 0.8}]


class Notes:
    """Instead of a `mem0.Memory`, which needs an embedder."""

    def search(self, query: str, **_: Any) -> dict[str, Any]:
        return {"results": FOUND if query else []}


class AsyncNotes:
    async def search(self, query: str, **_: Any) -> dict[str, Any]:
        return {"results": FOUND if query else []}


def test_the_sample_uses_all_that_the_package_exports() -> None:
    source = Path(__file__).read_text(encoding="utf-8").partition(")\n\nFOUND")[2]
    assert [name for name in mem0_contextpilot.__all__ if not re.search(rf"\b{name}\b", source)] == []


def test_a_memory_and_its_contexts() -> None:
    memory = ContextPilotMemory(Notes(), ContextPilot(), order="balanced")
    results: AlignedResults = memory.search("drink", filters={"user_id": "alice"})
    hint: str = order_hint(results)
    context: MemoryContext = memory.context("drink", "What to drink?", user_id="alice", top_k=2)
    messages: list[dict[str, Any]] = [dict(message) for message in context.messages(system="Answer.")]
    assert ([found["id"] for found in results["results"]], hint, len(messages)) == (["tea", "nuts"], "", 2)


def test_the_same_to_await() -> None:
    async def go() -> MemoryContext:
        return await AsyncContextPilotMemory(AsyncNotes(), namespace="acme").context("drink", user_id="alice")

    assert "tea" in asyncio.run(go()).user_message


def test_a_reranker() -> None:
    ranked: list[dict[str, Any]] = ContextPilotReranker(min_gain=0).rerank("drink", FOUND, top_k=1)
    assert [found["id"] for found in ranked] == ["tea"]
    assert isinstance(__version__, str)
