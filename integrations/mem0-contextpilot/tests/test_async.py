"""AsyncContextPilotMemory: the same with a real AsyncMemory, and truly awaited."""

from __future__ import annotations

import asyncio
import threading

import pytest
from contextpilot_rag import AsyncContextPilot
from contextpilot_rag.errors import InputError

from measure.offline import offline_async_memory
from measure.workload import MEMORIES
from mem0_contextpilot import AsyncContextPilotMemory, order_hint

from .stage import LONG, AsyncNotes, Notes, names, reply

ALICE = {"user_id": "alice"}


@pytest.fixture
async def own(tmp_path):
    async with offline_async_memory(tmp_path, MEMORIES) as memory:
        for text in MEMORIES[:12]:
            await memory.add(text, user_id="alice", infer=False)
        yield memory


async def test_search(own):
    memory = AsyncContextPilotMemory(own, min_gain=0.0, order_hint=True)
    first, second = "What is for dinner without meat?", "Is there rice in the cupboard?"
    assert await memory.search(first, **ALICE, threshold=0.0) == await own.search(first, filters=ALICE, threshold=0.0)
    plain = await own.search(second, filters=ALICE, threshold=0.0)
    kept = await memory.search(second, **ALICE, threshold=0.0, keep_order=True)
    assert kept == plain
    found = await memory.search(second, **ALICE, threshold=0.0)
    assert names(found) != names(plain)
    assert sorted(found["results"], key=lambda one: -one["score"]) == plain["results"]
    assert order_hint(found).startswith("Order of relevance")
    with pytest.raises(InputError, match="user_id"):
        await memory.search(second, **ALICE, filters={"user_id": "bob"})


async def test_a_conversation(own, engine):
    from openai import AsyncOpenAI

    memory = AsyncContextPilotMemory(own, AsyncContextPilot())
    async with AsyncOpenAI(base_url=engine.base_url, api_key="none") as client:
        before = []
        for question in ("What is for dinner without meat?", "Is there rice in the cupboard?", "And lentils?"):
            context = await memory.context(question, **ALICE, conversation="c", threshold=0.0)
            messages = context.messages()
            assert messages[: len(before)] == before
            response = await client.chat.completions.create(
                model="none", messages=messages, extra_body=context.extra_body
            )
            usage = context.answer(response)
            before = context.conversation.messages
    assert usage.cached_tokens > 0.7 * usage.prompt_tokens


async def test_everything_else_is_the_memorys_own(tmp_path):
    async with offline_async_memory(tmp_path, MEMORIES) as own, AsyncContextPilotMemory(own) as memory:
        assert isinstance(memory, AsyncContextPilotMemory)
        name = (await memory.add("Alice drinks tea.", **ALICE, infer=False))["results"][0]["id"]
        assert (await memory.get(name))["memory"] == "Alice drinks tea."
        assert len((await memory.get_all(filters=ALICE))["results"]) == 1


async def test_a_memory_that_is_not_async_does_not_block_the_loop():
    asked, free, let_go = threading.Event(), threading.Event(), []

    def waited():
        asked.set()
        let_go.append(free.wait(30))
        return reply("tea")

    searching = asyncio.create_task(AsyncContextPilotMemory(Notes(waited)).search("a", **ALICE))
    assert await asyncio.to_thread(asked.wait, 30)
    assert not searching.done()
    free.set()
    assert names(await searching) == ["tea"]
    assert let_go == [True], "the loop went on while the memory had not answered"
    hidden = AsyncNotes(reply("tea"))
    assert names(await AsyncContextPilotMemory(Notes(lambda: hidden.search("a"))).search("a", **ALICE)) == ["tea"]


async def test_many_at_once():
    """Requests of two users in one loop: nobody gets another's memories, and nothing is lost."""

    class Everybody:
        async def search(self, query, *, filters):
            await asyncio.sleep(0)
            turned = int(query) % len(LONG)
            return reply(*(f"{text} {filters['user_id']}" for text in [*LONG[turned:], *LONG[:turned]]))

    memory = AsyncContextPilotMemory(Everybody())

    async def one(number):
        user = f"user-{number % 2}"
        context = await memory.context(str(number), user_id=user)
        assert len(context.blocks) == len(LONG)
        assert all(block.text.endswith(user) for block in context.blocks)
        found = await memory.search(str(number), user_id=user)
        assert len(found["results"]) == len(LONG)

    await asyncio.gather(*(one(number) for number in range(60)))
    assert memory.failures == 0
