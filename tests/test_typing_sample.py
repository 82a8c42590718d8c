"""A user's own code, as a type checker sees it: mypy checks this file strictly, and pytest runs it.

`make test-dist` checks it once more against the installed wheel, so nothing of ours but the package is imported here.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import contextpilot_rag
from contextpilot_rag import (
    AlignedPrompt,
    Alignment,
    AsyncContextPilot,
    Block,
    BlockRef,
    Context,
    ContextIndex,
    ContextPilot,
    Conversation,
    Engine,
    IndexStats,
    LocalIndex,
    Namespace,
    OrderBudget,
    Plan,
    RemoteIndex,
    Request,
    Rule,
    RunReport,
    RunResult,
    Settings,
    TurnPrompt,
    Usage,
    __version__,
    deduplicate,
    errors,
    expand,
)

if TYPE_CHECKING:
    from openai import OpenAI

BLOCKS = [
    Block("Slices count from zero. " * 9, id="slices", score=0.9),
    Block("A step may be negative. " * 9, id="steps"),
]


def ask(client: OpenAI, pilot: ContextPilot, question: str, blocks: list[Block]) -> str | None:
    alignment: AlignedPrompt = pilot.align(blocks, question)
    response = client.chat.completions.create(
        model="any",
        messages=alignment.messages(system="Answer from the documents."),
        extra_body=alignment.extra_body,
    )
    usage: Usage | None = pilot.observe(alignment, response)
    return None if usage is None else response.choices[0].message.content


def send_all(pilot: ContextPilot, plan: Plan[AlignedPrompt], file: Path) -> dict[Hashable, str | None]:
    report: RunReport = asyncio.run(pilot.run(plan, "http://127.0.0.1:8000", results=file, concurrency=4))
    results: Sequence[RunResult] = report.results
    ratio: float | None = report.hit_ratio
    return {} if ratio is None else {result.key: result.text for result in results}


def saved(stats: IndexStats) -> float:
    return stats.predicted_cached_tokens / max(1, stats.requests)


class CountingIndex:
    """A user's own index around another: it has the protocol's methods, and is one by that."""

    def __init__(self, inner: ContextIndex) -> None:
        self.inner = inner
        self.aligned = 0

    def align(self, request: Request) -> Alignment:
        self.aligned += 1
        return self.inner.align(request)

    def predict(self, request: Request) -> int:
        return self.inner.predict(request)

    def sent(self, alignment: Alignment) -> None:
        self.inner.sent(alignment)

    def tree(self, namespace: Namespace) -> Any:
        return self.inner.tree(namespace)

    def observe(self, alignment: Alignment, usage: Usage) -> None:
        self.inner.observe(alignment, usage)

    def forget(self, namespace: Namespace | None = None) -> None:
        self.inner.forget(namespace)

    def stats(self) -> IndexStats:
        return self.inner.stats()


def test_the_sample_uses_all_that_the_package_exports() -> None:
    source = Path(__file__).read_text(encoding="utf-8").partition(")\n\nif TYPE_CHECKING")[2]
    assert [name for name in contextpilot_rag.__all__ if not re.search(rf"\b{name}\b", source)] == []


def test_a_pilot_and_its_prompts() -> None:
    pilot = ContextPilot(namespace=Namespace(tenant="acme"), min_gain=0.2)
    prompt: AlignedPrompt = pilot.align([("a", "text")], "?", order="balanced", echo=1)
    labels: dict[int, Hashable] = dict(prompt.labels)
    rule: Rule = prompt.rule
    reason: str = prompt.reason
    messages: list[dict[str, Any]] = [dict(message) for message in prompt.messages(system="Answer.")]
    hint: str | None = prompt.order_hint
    blocks: Sequence[Block] = prompt.blocks
    assert (labels, rule is Rule.PREFIX, hint, len(blocks), len(messages)) == ({1: "a"}, False, None, 1, 2), reason
    assert saved(pilot.stats()) == 0
    assert ask.__name__ == "ask"
    assert send_all.__name__ == "send_all"


def test_settings_and_what_is_wrong_with_them() -> None:
    settings: Settings = Settings.from_env({"CONTEXTPILOT_MIN_GAIN": "0.2"}).with_(capacity_tokens=100_000)
    budget: OrderBudget = settings.budget
    assert ContextPilot(settings=settings).align(BLOCKS).request.budget == budget
    try:
        settings.with_(order="best")
    except errors.SettingsError as error:
        problem: errors.InputError = error
        assert "best" in str(problem)
    assert isinstance(__version__, str)


def test_indexes_and_engines() -> None:
    index = CountingIndex(LocalIndex())
    chosen: ContextIndex = index
    pilot = ContextPilot(chosen)
    pilot.align(BLOCKS)
    with RemoteIndex("http://127.0.0.1:9") as remote:
        another: ContextIndex = remote
        assert another is remote
    engine: Engine = Engine("http://127.0.0.1:8000", events="tcp://127.0.0.1:5557")
    capacity: int | None = engine.capacity_tokens
    request = Request(blocks=(BlockRef("a", 3),), namespace=Namespace(), key="q")
    tokens: int = request.tokens
    assert (capacity, tokens, index.aligned) == (None, 3, 1)


def test_conversations_and_lists_of_messages() -> None:
    talk: Conversation = ContextPilot().conversation("session", system="Answer.")
    turn: TurnPrompt = talk.align(BLOCKS, "?")
    talk.answer("Yes [1].", turn)
    dropped: int = talk.truncate(10_000)
    sent: list[dict[str, Any]] = deduplicate([{"role": "tool", "tool_call_id": "1", "content": BLOCKS[0].text}] * 2)
    assert expand(sent)[1]["content"] == BLOCKS[0].text
    assert dropped == 0


def test_plans() -> None:
    plan: Plan[AlignedPrompt] = ContextPilot().plan({"q1": Context(tuple(BLOCKS), "What?"), "q2": BLOCKS})
    prompts: Iterator[AlignedPrompt] = iter(plan)
    keys: set[Hashable] = {prompt.request.key for prompt in prompts}
    assert keys == {"q1", "q2"}, plan.explain()


def test_the_same_to_await() -> None:
    async def go() -> str:
        async with AsyncContextPilot(order="retrieved") as pilot:
            prompt: AlignedPrompt = await pilot.align(BLOCKS, "?")
            async with pilot.window(size=2, max_wait=0) as window:
                await window.align(BLOCKS, "?")
            return prompt.user_message

    assert asyncio.run(go()).endswith("?")
