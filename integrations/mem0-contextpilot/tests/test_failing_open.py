"""Failing open: if something of ours breaks, the memory's own result comes back, and the request can be sent."""

from __future__ import annotations

import pytest
from contextpilot_rag import ContextPilot
from contextpilot_rag.errors import IndexFailed, RetrievalError, SettingsError
from contextpilot_rag.index.local import LocalIndex

from mem0_contextpilot import AsyncContextPilotMemory, ContextPilotMemory, ContextPilotReranker

from .stage import LONG, AsyncNotes, Broken, Notes, names, reply

ALICE = {"user_id": "alice"}


class Awkward(LocalIndex):
    """An index whose answers make no sense."""

    def align(self, request):
        return "a fine order"


class BrokenTokenizer:
    def encode(self, _text):
        raise MemoryError("no room for the tokenizer")


def broken_pilots(**options):
    return [
        ContextPilot(Broken(), **options),
        ContextPilot(Awkward(None, 10, 10), **options),
        ContextPilot(tokenizer=BrokenTokenizer(), **options),
    ]


@pytest.mark.parametrize("pilot", broken_pilots())
def test_the_memorys_own_result_comes_back(pilot, caplog):
    own = reply(*LONG)
    memory = ContextPilotMemory(Notes(own), pilot)
    assert memory.search("a", **ALICE) is own
    assert memory.search("a", **ALICE) is own
    assert memory.failures >= 2
    assert sum("contextpilot" in record.name for record in caplog.records) == 1


@pytest.mark.parametrize("pilot", broken_pilots())
def test_a_context_can_be_sent_all_the_same(pilot):
    memory = ContextPilotMemory(Notes(reply(*LONG)), pilot)
    for conversation in (None, "c"):
        context = memory.context("a", **ALICE, conversation=conversation, system="Be brief.")
        assert list(context.labels.values()) == names(reply(*LONG))
        assert [message["role"] for message in context.messages()] == ["system", "user"]
        assert all(text.strip() in context.user_message for text in LONG)
        assert context.extra_body["cache_salt"]
        context.answer({"choices": [{"message": {"role": "assistant", "content": "1"}}], "usage": {"prompt_tokens": 9}})
    assert memory.failures >= 2


@pytest.mark.parametrize("pilot", broken_pilots(on_error="raise"))
def test_unless_it_was_asked_for(pilot):
    memory = ContextPilotMemory(Notes(reply(*LONG)), pilot)
    for call in (memory.search, memory.context):
        with pytest.raises(IndexFailed):
            call("a", **ALICE)


@pytest.mark.parametrize("strange", [None, "text", {}, {"results": None}, {"results": {"id": "m1"}}])
def test_a_reply_that_nobody_expected(strange):
    memory = ContextPilotMemory(Notes(strange))
    assert memory.search("a", **ALICE) is strange
    context = memory.context("a", **ALICE)
    assert (context.results, context.user_message) == ([], "a")
    assert memory.failures == 2
    with pytest.raises(RetrievalError, match="Mem0 search returns"):
        ContextPilotMemory(Notes(strange), ContextPilot(on_error="raise")).search("a", **ALICE)


@pytest.mark.parametrize("kind", [list, tuple])
def test_a_reply_that_is_the_list_alone(kind):
    """As Mem0 had it before 1.0, and as memories of one's own have it: the same as with ``results`` around it."""
    first, second = (kind(reply(*texts)["results"]) for texts in (LONG[:2], LONG[2::-1]))
    for conversation in (None, "c"):
        context = ContextPilotMemory(Notes(second)).context("a", **ALICE, conversation=conversation)
        assert context.results == list(second)
        assert all(text.strip() in context.user_message for text in LONG[:3])
        assert list(context.labels.values()) == ["copies", "steps", "slices"]
    memory = ContextPilotMemory(Notes(first, second))
    assert memory.search("a", **ALICE) is first
    found = memory.search("b", **ALICE)
    assert isinstance(found, kind)
    assert [one["id"] for one in found] == ["slices", "steps", "copies"]
    assert ContextPilotMemory(Notes(kind())).context("a", **ALICE).user_message == "a"
    assert memory.failures == 0


def test_a_memory_that_turns_out_to_be_async():
    """As one that is wrapped in something: it cannot be seen before it is called."""
    hidden = AsyncNotes(reply("tea"))
    memory = ContextPilotMemory(Notes(lambda: hidden.search("a")))
    for call in (memory.search, memory.context):
        with pytest.raises(SettingsError, match="AsyncContextPilotMemory"):
            call("a", **ALICE)


class Unspeakable:
    def __repr__(self):
        raise RuntimeError("no words")


def test_filters_without_words_are_shared_with_nobody():
    own = reply(*LONG)
    memory = ContextPilotMemory(Notes(own))
    filters = {"user_id": "alice", "OR": [{"place": Unspeakable()}]}
    assert memory.search("a", filters=filters) is own
    assert memory.namespace_for(filters) != memory.namespace_for(filters)
    assert memory.context("a", filters=filters).extra_body != memory.context("a", filters=filters).extra_body
    assert memory.failures == 5


def test_errors_of_the_memory_are_not_ours(own, caplog):
    def fails():
        raise ConnectionError("the store is down")

    for memory in (ContextPilotMemory(Notes(fails)), ContextPilotMemory(Notes(fails), ContextPilot(Broken()))):
        for call in (memory.search, memory.context):
            with pytest.raises(ConnectionError, match="the store is down"):
                call("a", **ALICE)
        assert memory.failures == 0
    with pytest.raises(ValueError, match="Invalid top_k"):
        ContextPilotMemory(own).search("a", **ALICE, top_k=-1)


def test_a_turn_that_cannot_be_made_is_sent_in_full_and_remembered(monkeypatch):
    memory = ContextPilotMemory(Notes(reply("tea"), reply("tea", LONG[0]), reply("tea")))
    memory.context("a", **ALICE, conversation="c").answer("1")
    with monkeypatch.context() as patch:
        patch.setattr("contextpilot_rag.conversation.Conversation.align", lambda *_, **__: 1 / 0)
        context = memory.context("b", **ALICE, conversation="c")
    assert [message["role"] for message in context.messages()] == ["user", "assistant", "user"]
    assert context.messages()[-1]["content"] == context.user_message
    assert all(text in context.text for text in ("tea", LONG[0].strip()))
    assert [block.text for block in context.blocks] == ["tea", LONG[0]]
    assert (context.alignment, context.labels, context.again, context.order_hint) == (None, {}, frozenset(), "")
    answer = {"role": "assistant", "content": "2"}
    assert context.answer({"choices": [{"message": answer}], "usage": {"prompt_tokens": 9}}).prompt_tokens == 9
    assert memory.failures == 1
    after = memory.context("c", **ALICE, conversation="c").messages()[:-1]
    assert after == [*context.messages(), answer]


def test_a_turn_that_cannot_be_made_is_raised_where_it_is_asked_for(monkeypatch):
    memory = ContextPilotMemory(Notes(reply(*LONG)), ContextPilot(on_error="raise"))
    monkeypatch.setattr("contextpilot_rag.conversation.Conversation.align", lambda *_, **__: 1 / 0)
    with pytest.raises(IndexFailed):
        memory.context("a", **ALICE, conversation="c")


async def test_the_async_memory_fails_open_too():
    own = reply(*LONG)
    memory = AsyncContextPilotMemory(AsyncNotes(own), ContextPilot(Broken()))
    assert await memory.search("a", **ALICE) is own
    assert list((await memory.context("a", **ALICE)).labels.values()) == names(own)
    assert memory.failures == 2
    strange = AsyncContextPilotMemory(AsyncNotes(None))
    assert await strange.search("a", **ALICE) is None
    assert (await strange.context("a", **ALICE)).results == []
    strict = AsyncContextPilotMemory(AsyncNotes(own), ContextPilot(Broken(), on_error="raise"))
    with pytest.raises(IndexFailed):
        await strict.context("a", **ALICE)


def test_the_reranker_fails_open_too():
    found = reply(*LONG, user_id="alice")["results"]
    for pilot in broken_pilots():
        reranker = ContextPilotReranker(pilot, namespace="team")
        assert reranker.rerank("a", found, 20) == found
        assert reranker.failures >= 1
    with pytest.raises(IndexFailed):
        ContextPilotReranker(ContextPilot(Broken(), on_error="raise"), namespace="team").rerank("a", found)
    odd = ContextPilotReranker(namespace="team")
    assert odd.rerank("a", "not a list") == "not a list"
    assert odd.failures == 1


async def test_a_service_that_is_not_there_costs_the_order_and_nothing_else():
    own = reply(*LONG)
    nowhere = "http://127.0.0.1:9"
    memory, awaited = ContextPilotMemory(Notes(own), nowhere), AsyncContextPilotMemory(AsyncNotes(own), nowhere)
    assert names(memory.search("a", **ALICE)) == names(await awaited.search("a", **ALICE)) == names(own)
    assert memory.failures == awaited.failures == 1
