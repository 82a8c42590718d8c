"""Turns that fail, wait or contradict each other, and callers who change what they were given."""

from __future__ import annotations

import asyncio
import functools
import uuid
from typing import Any

import pytest
from contextpilot_rag import ContextPilot
from contextpilot_rag.errors import InputError

from mem0_contextpilot import AsyncContextPilotMemory, ContextPilotMemory

from .stage import LONG, AsyncNotes, Notes, reply


def raising() -> None:
    raise OSError("the store is away")


def test_filters_that_contradict_themselves_are_two_namespaces():
    """Mem0 goes by the last of two ids, so the order of the filters says whose memories they are."""
    memory = ContextPilotMemory(Notes(reply("one")))
    one = {"AND": [{"user_id": "bob"}], "user_id": "alice"}
    other = {"user_id": "alice", "AND": [{"user_id": "bob"}]}
    assert memory.namespace_for(one) != memory.namespace_for(other)
    first = memory.context("q", filters=one, conversation="main")
    first.answer("k")
    assert len(memory.context("q", filters=other, conversation="main").messages()) == 1


def test_an_answer_to_a_turn_that_failed_open_belongs_to_that_turn():
    memory = ContextPilotMemory(Notes(reply(LONG[0]), reply("short")), ContextPilot(max_text=100))
    failed = memory.context("A?", user_id="a", conversation="c")
    assert failed.alignment is None
    then = memory.context("B?", user_id="a", conversation="c")
    with pytest.raises(InputError, match="no longer waits"):
        failed.answer("to A")
    then.answer("to B")


def test_a_search_that_fails_leaves_the_conversation_alone():
    memory = ContextPilotMemory(Notes(reply("one"), reply("two"), raising, reply("three"), raising, reply("four")))
    first = memory.context("1", user_id="a", conversation="c")
    first.answer("1.")
    saved = memory.context("2", user_id="a", conversation="c", messages=first.conversation.messages).conversation
    saved.answer("2.")
    with pytest.raises(OSError, match="away"):
        memory.context("3", user_id="a", conversation="c", messages=saved.messages[:2])
    assert len(memory.context("3", user_id="a", conversation="c").messages()) == 5
    with pytest.raises(OSError, match="away"):
        memory.context("x", user_id="a", conversation="new", system="10:01")
    assert memory.context("x", user_id="a", conversation="new", system="10:02").messages()[0]["content"] == "10:02"


async def test_a_turn_goes_on_from_what_is_newest_when_its_memories_are_there():
    going = asyncio.Event()

    class Slow(AsyncNotes):
        async def search(self, query: str, **arguments: Any) -> Any:
            if query == "slow":
                await going.wait()
            return await super().search(query, **arguments)

    memory = AsyncContextPilotMemory(Slow(reply("one")))
    (await memory.context("1", user_id="a", conversation="c")).answer("1.")
    slow = asyncio.create_task(memory.context("slow", user_id="a", conversation="c"))
    await asyncio.sleep(0)
    (await memory.context("2", user_id="a", conversation="c")).answer("2.")
    going.set()
    context = await slow
    assert len(context.messages()) == 5
    context.answer("slow.")


def test_of_two_first_turns_one_is_answered():
    memory = ContextPilotMemory(Notes(reply("one")))
    one, other = (memory.context(name, user_id="a", conversation="c", system="S", messages=[]) for name in "12")
    with pytest.raises(InputError, match="no longer waits"):
        one.answer("yes")
    other.answer("yes")


def test_a_limit_that_the_memory_names_is_its_own():
    class Own:
        def search(self, query: str, *, filters: Any = None, limit: int = 10, **others: Any) -> Any:
            assert not others
            return reply(*LONG[:limit])

    assert len(ContextPilotMemory(Own()).search("q", user_id="a", limit=3)["results"]) == 3


def test_labels_stay_when_callers_change_what_they_were_given():
    memory = ContextPilotMemory(Notes(reply("Likes tea.", "Has milk.")))
    context = memory.context("q", user_id="a", conversation="c")
    for result in context.results:
        result["id"] = "short-" + result["id"]
    assert context.labels == {1: "short-Likes", 2: "short-Has"}


def test_ids_that_agree_are_one():
    own = uuid.UUID(int=5)
    memory = ContextPilotMemory(Notes(reply("one")))
    assert memory.namespace_for({"user_id": own}, user_id=own) == memory.namespace_for(user_id=str(own))
    assert memory.namespace_for({"user_id": "*"}, user_id="*") == memory.namespace_for(user_id="*")
    with pytest.raises(InputError, match="say it in one place"):
        memory.namespace_for({"user_id": own}, user_id="other")


def test_what_decorates_a_search_may_take_more():
    class Sub(Notes):
        @functools.wraps(Notes.search)
        def search(self, query: str, *, tenant: str = "", **others: Any) -> Any:
            return {**super().search(query, **others), "tenant": tenant}

    assert ContextPilotMemory(Sub(reply("one"))).search("q", user_id="a", tenant="x")["tenant"] == "x"
