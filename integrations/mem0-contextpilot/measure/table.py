"""Measures the README's tables: ``python -m measure.table`` writes them into README.md, from this package's folder.

Ten questions about thirty memories of one person go to a FakeEngine, over HTTP. It has the prefix cache of vLLM and no
model; the tokens are as it reports them, in the answers' ``usage``. Each way of building the prompts starts with an
empty cache. Searches are by Mem0's default ``top_k`` of 20; its default threshold is meant for larger embeddings than
the one that is used here, so none is set.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contextpilot_rag.testing import FakeEngine

from mem0_contextpilot import ContextPilotMemory

from .offline import offline_memory
from .workload import MEMORIES, QUESTIONS, USER

if TYPE_CHECKING:
    from openai import OpenAI

README = Path(__file__).parents[1] / "README.md"
TABLES = ("ways", "numbers")
BEGIN, END = "<!-- {}: python -m measure.table -->\n", "<!-- end of {} -->\n"
SYSTEM = (
    "You are Alice's kitchen assistant. Answer in a few sentences, in a friendly tone. Use what you know about her and "
    "her family, and say so where you do not know enough."
)


@dataclass(frozen=True, slots=True)
class Turn:
    """What the engine reported for one request, in tokens; and its prompt, as text."""

    prompt: int
    cached: int
    text: str


@dataclass(frozen=True, slots=True)
class Setup:
    """Whom a pipeline asks.

    Args:
        client: of an engine with an empty cache.
        memory: a ``mem0.Memory`` that holds `MEMORIES`.
        top_k: how many of them are looked for.
    """

    client: OpenAI
    memory: Any
    top_k: int

    def ask(self, messages: Any, extra_body: Any = None) -> tuple[Turn, Any]:  # noqa: ANN401  plain messages
        """One request, and the engine's answer."""
        response = self.client.chat.completions.create(model="none", messages=messages, extra_body=extra_body)
        usage = response.usage
        if usage is None or usage.prompt_tokens_details is None:
            raise ValueError("the engine reported no cached tokens")
        text = "\0".join(f"{message['role']}\n{message['content']}" for message in messages)
        return Turn(usage.prompt_tokens, usage.prompt_tokens_details.cached_tokens or 0, text), response


Pipeline = Callable[[Setup], list[Turn]]


def with_memories(setup: Setup, question: str) -> dict[str, str]:
    """The system message that is often seen: the memories in it, by score."""
    reply = setup.memory.search(question, filters={"user_id": USER}, top_k=setup.top_k, threshold=0.0)
    memories = "\n".join(f"- {item['memory']}" for item in reply["results"])
    return {"role": "system", "content": f"{SYSTEM}\n\nWhat you know about the user:\n{memories}"}


def adopted(pipeline: Pipeline, setup: Setup) -> list[Turn]:
    """The same pipeline after the one line: its memory is wrapped, and nothing else is changed."""
    return pipeline(replace(setup, memory=ContextPilotMemory(setup.memory)))


def plain_requests(setup: Setup) -> list[Turn]:
    """Each question for itself; memories in the system message."""
    messages = ([with_memories(setup, question), {"role": "user", "content": question}] for question in QUESTIONS)
    return [setup.ask(sent)[0] for sent in messages]


def plain_conversation(setup: Setup) -> list[Turn]:
    """One conversation; memories in the system message, other ones in each turn."""
    history: list[dict[str, Any]] = []
    turns = []
    for question in QUESTIONS:
        history.append({"role": "user", "content": question})
        turn, response = setup.ask([with_memories(setup, question), *history])
        history.append({"role": "assistant", "content": response.choices[0].message.content})
        turns.append(turn)
    return turns


def our_requests(setup: Setup, **options: Any) -> list[Turn]:  # noqa: ANN401
    """Each question for itself, with ``memory.context(...)``."""
    memory = ContextPilotMemory(setup.memory, **options)
    turns = []
    for question in QUESTIONS:
        context = memory.context(question, user_id=USER, top_k=setup.top_k, threshold=0.0, system=SYSTEM)
        turn, response = setup.ask(context.messages(), context.extra_body)
        context.observe(response)
        turns.append(turn)
    return turns


def our_conversation(setup: Setup) -> list[Turn]:
    """One conversation, with ``memory.context(..., conversation=...)``."""
    memory = ContextPilotMemory(setup.memory)
    turns = []
    for question in QUESTIONS:
        context = memory.context(
            question, user_id=USER, top_k=setup.top_k, threshold=0.0, system=SYSTEM, conversation="evening"
        )
        turn, response = setup.ask(context.messages(), context.extra_body)
        context.answer(response)
        turns.append(turn)
    return turns


with_hint = partial(our_requests, order_hint=True)
line_requests, line_conversation = partial(adopted, plain_requests), partial(adopted, plain_conversation)
WAYS: tuple[tuple[str, Pipeline], ...] = (
    ("requests: memories in the system message, by score", plain_requests),
    ("requests: the same after the one line", line_requests),
    ("requests: `memory.context(...)`", our_requests),
    ("requests: `memory.context(...)`, `order_hint=True`", with_hint),
    ("a conversation: memories in the system message, by score", plain_conversation),
    ("a conversation: the same after the one line", line_conversation),
    ('a conversation: `memory.context(..., conversation="evening")`', our_conversation),
)
COMPARED = (plain_requests, line_requests, our_requests, with_hint)
NUMBERS = (8, 12, 16, 20)


@contextmanager
def filled_memory(store: str = "faiss") -> Iterator[Any]:
    """A ``mem0.Memory`` that holds `MEMORIES`."""
    with tempfile.TemporaryDirectory(prefix="mem0-") as folder, offline_memory(Path(folder), MEMORIES, store) as memory:
        for text in MEMORIES:
            memory.add(text, user_id=USER, infer=False)
        yield memory


def measured(memory: Any, way: Pipeline, top_k: int = 20) -> list[Turn]:  # noqa: ANN401
    """What a fresh engine reported for each question."""
    from openai import OpenAI

    with FakeEngine(block_size=16) as engine, OpenAI(base_url=engine.base_url, api_key="none") as client:
        return way(Setup(client, memory, top_k))


def computed(turns: list[Turn]) -> int:
    """Tokens that the engine had to compute."""
    return sum(turn.prompt - turn.cached for turn in turns)


def tables(memory: Any) -> tuple[str, str]:  # noqa: ANN401
    """Both tables, as Markdown."""
    ways = ["| ten questions | prompt tokens | cached | share | computed |", "|---|---|---|---|---|"]
    for name, way in WAYS:
        turns = measured(memory, way)
        prompt, cached = sum(turn.prompt for turn in turns), sum(turn.cached for turn in turns)
        ways.append(f"| {name} | {prompt:,} | {cached:,} | {cached / prompt:.1%} | {computed(turns):,} |")
    numbers = ["| `top_k` | by score | the one line | `context(...)` | `order_hint=True` |", "|---|---|---|---|---|"]
    for top_k in NUMBERS:
        tokens = [computed(measured(memory, way, top_k)) for way in COMPARED]
        numbers.append(f"| {top_k} | " + " | ".join(f"{count:,}" for count in tokens) + " |")
    return "\n".join(ways) + "\n", "\n".join(numbers) + "\n"


def main() -> int:
    """Write the tables, or with ``--check`` say whether they are the ones that are there."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--check", action="store_true", help="write nothing; fail if the tables are other ones")
    options = arguments.parse_args()
    readme = written = README.read_text(encoding="utf-8")
    with filled_memory() as memory:
        for name, made in zip(TABLES, tables(memory), strict=True):
            head, rest = written.split(BEGIN.format(name))
            written = head + BEGIN.format(name) + made + END.format(name) + rest.split(END.format(name))[1]
            print(made)
    if options.check:
        return int(written != readme)
    README.write_text(written, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
