"""Query and chat engines at an engine whose cache events are followed: what it has, and what it evicts."""

from __future__ import annotations

import time
from contextlib import ExitStack

import pytest
from contextpilot_rag import ContextPilot, Engine
from contextpilot_rag.testing import FakeEngine
from li_support import Listed, llm_of, streaming
from llama_index.core.chat_engine import ContextChatEngine
from llama_index.core.llms import ChatMessage, ImageBlock, TextBlock
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.response_synthesizers import CompactAndRefine
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from llama_index.postprocessor.contextpilot import (
    ContextPilotChatEngine,
    ContextPilotPostprocessor,
    ContextPilotSynthesizer,
    engine_of,
    observe_usage,
)
from llama_index.postprocessor.contextpilot.sent import as_sent

SOON = 20.0  # seconds; a bound, not a wait
TEXTS = [f"{name} are what this text is about, at some length. " * 12 for name in ("Slices", "Steps", "Sets", "Maps")]


def pick(*places):
    """Some of four nodes, always under the same ids."""
    return [NodeWithScore(node=TextNode(id_=f"n{place}", text=TEXTS[place]), score=1.0) for place in places]


def until(true):
    ends = time.monotonic() + SOON
    while not true():
        assert time.monotonic() < ends
        time.sleep(0.01)


def status(pilot):
    return next(iter(pilot.engines))


def counts(pilot):
    assert pilot.engines.drained()
    done = pilot.engines.counts("fake")
    return done.covered, done.unlike, done.unread, done.dropped, done.failed


@pytest.fixture
def engine():
    with FakeEngine(events=True, block_size=16, capacity_blocks=150) as engine:
        yield engine


@pytest.fixture
def pilot(engine):
    """One that tells a changed order: so prompts with a hint behind the nodes are found in the cache, too."""
    followed = Engine(engine.base_url, name="fake", events=engine.events_url, replay=engine.replay_url)
    with ContextPilot(engines=[followed], order_hint=True) as pilot:
        until(lambda: status(pilot).level == "events" and status(pilot).block_size == 16)
        yield pilot


def ours(llm, **options):
    return ContextPilotSynthesizer(llm=llm, **options), "none"


def stock(llm, **options):
    return CompactAndRefine(llm=llm, **options), "none"


def stock_with_labels(llm, **options):
    return CompactAndRefine(llm=llm, **options), "node"


@pytest.mark.parametrize("synthesizer", [ours, stock, stock_with_labels])
@pytest.mark.parametrize("way", ["query", "aquery", "streamed"])
async def test_the_tree_is_what_the_engine_has(engine, pilot, synthesizer, way):
    streamed = way == "streamed"
    synthesizes, annotation = synthesizer(streaming(engine), streaming=streamed)
    postprocessor = ContextPilotPostprocessor(pilot, annotation=annotation)
    query = RetrieverQueryEngine(
        Listed(pick(0, 1), pick(1, 0), pick(1, 2, 0)), synthesizes, node_postprocessors=[postprocessor]
    )
    with observe_usage(postprocessor):
        for question in ("One?", "Two?", "Three?"):
            response = await query.aquery(question) if way == "aquery" else query.query(question)
            assert "".join(response.response_gen) if streamed else str(response)
            assert pilot.engines.drained()
    assert counts(pilot) == (3, 0, 0, 0, 0)
    now = status(pilot)
    # What follows the last document and is the same for all fills no more than one KV block of 16 tokens.
    assert 0 < now.expected_cached_tokens <= now.reported_cached_tokens <= now.expected_cached_tokens + 2 * 16
    assert now.tree_blocks == 3

    for number in range(6):  # somebody else's, who needs the room
        engine.chat({"messages": [{"role": "user", "content": f"{number} is another thing. " * 80}]})
    until(lambda: pilot.engines.drained() and status(pilot).tree_blocks == 0)
    again = postprocessor.postprocess_nodes(pick(1, 0), query_str="Four?")
    assert [node.node.node_id for node in again if node.score is not None] == ["n1", "n0"]


def test_a_stock_chat_engine(engine, pilot):
    postprocessor = ContextPilotPostprocessor(pilot, annotation="node")
    with observe_usage(postprocessor):
        for nodes in (pick(0, 1), pick(1, 0)):
            chat = ContextChatEngine.from_defaults(
                Listed(nodes), llm=llm_of(engine), node_postprocessors=[postprocessor]
            )
            chat.chat("Why?")
            assert pilot.engines.drained()
    assert counts(pilot) == (2, 0, 0, 0, 0)
    now = status(pilot)
    assert now.expected_cached_tokens == now.reported_cached_tokens > 0


@pytest.mark.parametrize("way", ["chat", "achat", "stream_chat"])
async def test_first_turns_of_our_chat_engine(engine, pilot, way):
    for nodes in (pick(0, 1), pick(1, 0)):
        chat = ContextPilotChatEngine.from_defaults(
            Listed(nodes), llm=streaming(engine), pilot=pilot, system_prompt="Be brief."
        )
        if way == "achat":
            await chat.achat("Why?")
        elif way == "chat":
            chat.chat("Why?")
        else:
            response = chat.stream_chat("Why?")
            thread = response.write_response_to_history_thread
            assert "".join(response.response_gen)
            thread.join(SOON)
        assert pilot.engines.drained()
        chat.chat("And then?")  # shares its beginning with nobody, so it is not looked at
    assert counts(pilot) == (2, 0, 0, 0, 0)
    assert engine.requests[2].cached_tokens > 100
    now = status(pilot)
    assert now.expected_cached_tokens <= now.reported_cached_tokens


def test_a_silent_engine(engine, pilot):
    engine.report_cached = False
    postprocessor = ContextPilotPostprocessor(pilot)
    query = RetrieverQueryEngine(
        Listed(pick(0, 1)), ours(llm_of(engine), streaming=True)[0], node_postprocessors=[postprocessor]
    )
    with observe_usage(postprocessor):
        assert "".join(query.query("One?").response_gen)
    assert counts(pilot) == (1, 0, 0, 0, 0)
    assert status(pilot).tree_blocks == 2


def test_each_request_goes_to_the_engine_that_was_chosen():
    with ExitStack() as stack:
        fakes = {name: stack.enter_context(FakeEngine(block_size=16)) for name in ("left", "right")}
        pilot = stack.enter_context(ContextPilot(engines=[Engine(one.base_url, name) for name, one in fakes.items()]))
        postprocessor = ContextPilotPostprocessor(pilot)
        stack.enter_context(observe_usage(postprocessor))
        retriever = Listed(pick(0, 1), pick(2, 3), pick(1, 0), pick(3, 2))
        at = {
            name: RetrieverQueryEngine(retriever, ours(llm_of(one))[0], node_postprocessors=[postprocessor])
            for name, one in fakes.items()
        }
        for question in map(QueryBundle, ("One?", "Two?", "Three?", "Four?")):
            nodes = at["left"].retrieve(question)
            at[engine_of(nodes)].synthesize(question, nodes)
        assert [len(one.requests) for one in fakes.values()] == [2, 2]
        assert all(one.requests[-1].cached_tokens > 100 for one in fakes.values())
        assert [(one.requests, one.observed) for one in pilot.engines] == [(2, 2), (2, 2)]


def test_an_engine_is_named_only_where_all_agree():
    def of(*names):
        marks = [{} if name is None else {"contextpilot": {"engine": name}} for name in names]
        return engine_of([NodeWithScore(node=TextNode(text="x", metadata=mark)) for mark in marks])

    assert (of("left", "left", None), of("left", "right"), of(), of(None), of(7)) == ("left", None, None, None, None)


def test_messages_as_the_llm_sends_them(engine, llm):
    """Several parts of text, too: what the framework makes of them is what the engine got."""
    asked = [
        ChatMessage("Be brief.", role="system"),
        ChatMessage(role="user", blocks=[TextBlock(text="a"), TextBlock(text="b")]),
    ]
    llm.chat(asked)
    assert list(engine.requests[-1].messages) == as_sent(asked)
    assert as_sent([ChatMessage(role="user", blocks=[TextBlock(text="a"), ImageBlock(image=b"x")])]) is None
    assert as_sent([ChatMessage("a", role="assistant", additional_kwargs={"tool_calls": []})]) is None
