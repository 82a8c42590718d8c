"""Chains and agents at an engine whose cache events are followed: what it has is known, and what it evicts is, too."""

from __future__ import annotations

import time
from contextlib import ExitStack

import pytest
from contextpilot_rag import ContextPilot, Engine
from contextpilot_rag.testing import FakeEngine
from langchain.agents import create_agent
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from langchain_core.tools import tool
from langchain_pipelines import PROMPT, SYSTEM, lcel, stuff
from langchain_stage import chat

from langchain_contextpilot import (
    ContextPilotCallbackHandler,
    ContextPilotMiddleware,
    ContextPilotRetriever,
    engine_of,
    format_docs,
    order_hint,
)
from langchain_contextpilot._messages import all_plain

NAMES = "ABCDEFGH"
TEXTS = {name: f"{name} is what this text is about, at some length. " * 12 for name in NAMES}
SOON = 20.0  # seconds; a bound, not a wait


def found(question):
    """A question names the documents that are found for it."""
    return [Document(TEXTS[name], id=name) for name in question if name in TEXTS]


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
    with FakeEngine(events=True, block_size=16, capacity_blocks=120) as engine:
        yield engine


@pytest.fixture
def pilot(engine):
    followed = Engine(engine.base_url, name="fake", events=engine.events_url, replay=engine.replay_url)
    with ContextPilot(engines=[followed]) as pilot:
        until(lambda: status(pilot).level == "events" and status(pilot).block_size == 16)
        yield pilot


@pytest.fixture
def retriever(pilot):
    """One that tells a changed order: so prompts with a hint behind the documents are found in the cache, too."""
    return ContextPilotRetriever(base_retriever=RunnableLambda(found), pilot=pilot, order_hint=True)


@pytest.mark.parametrize("make", [lcel, stuff])
@pytest.mark.parametrize("way", ["invoke", "stream", "ainvoke", "astream"])
async def test_the_tree_is_what_the_engine_has(engine, pilot, retriever, make, way):
    handler = ContextPilotCallbackHandler(retriever)
    chain = make(retriever, chat(engine, stream_usage=True))
    for question in ("A and B?", "B and A?", "B, C and A?"):
        asked = {"input": question}, {"callbacks": [handler]}
        if way == "astream":
            assert [part async for part in chain.astream(*asked)]
        elif way == "ainvoke":
            await chain.ainvoke(*asked)
        else:
            assert list(chain.stream(*asked)) if way == "stream" else chain.invoke(*asked)
        assert pilot.engines.drained()
    assert counts(pilot) == (3, 0, 0, 0, 0)
    now = status(pilot)
    # What follows the last document and is the same for all fills no more than one KV block of 16 tokens.
    assert 0 < now.expected_cached_tokens <= now.reported_cached_tokens <= now.expected_cached_tokens + 2 * 16
    assert engine.requests[-1].cached_tokens > 0
    assert now.tree_blocks == 3

    for number in range(6):  # somebody else's, who needs the room
        engine.chat({"messages": [{"role": "user", "content": f"{number} is another thing. " * 60}]})
    until(lambda: pilot.engines.drained() and status(pilot).tree_blocks == 0)
    assert retriever.invoke("B and A?")[0].id == "B"  # as retrieved: nothing is left to be aligned to


def test_what_a_silent_engine_has_is_known_all_the_same(engine, pilot, retriever):
    engine.report_cached = False
    handler = ContextPilotCallbackHandler(retriever)
    chain = lcel(retriever, chat(engine, stream_usage=False))
    assert list(chain.stream({"input": "A and B?"}, {"callbacks": [handler]}))
    assert counts(pilot) == (1, 0, 0, 0, 0)
    assert [document.id for document in retriever.invoke("B and A?")] == ["A", "B"]


def test_a_namespace_whose_salt_is_sent(engine, pilot):
    retriever = ContextPilotRetriever(base_retriever=RunnableLambda(found), pilot=pilot, namespace="acme")
    handler = ContextPilotCallbackHandler(retriever)
    model = chat(engine, extra_body=pilot.extra_body("acme"))
    for question in ("A and B?", "B and A?"):
        lcel(retriever, model).invoke({"input": question}, {"callbacks": [handler]})
        assert counts(pilot)[1:] == (0, 0, 0, 0)
    now = status(pilot)
    assert now.expected_cached_tokens == now.reported_cached_tokens > 0


@pytest.mark.parametrize("waiting", [False, True])
async def test_an_agents_first_turns(engine, pilot, waiting):
    middleware = ContextPilotMiddleware(RunnableLambda(found), pilot=pilot)
    agent = create_agent(chat(engine), system_prompt=SYSTEM, middleware=[middleware])
    for question in ("A and B?", "B and A?"):
        asked = {"messages": question}
        await agent.ainvoke(asked) if waiting else agent.invoke(asked)
        assert pilot.engines.drained()
    assert counts(pilot) == (2, 0, 0, 0, 0)
    now = status(pilot)
    assert now.expected_cached_tokens == now.reported_cached_tokens > 0


def test_prompts_with_tools_in_them_are_followed_by_their_reports(engine, pilot, retriever):
    """What a template makes of tools is nobody's to guess."""

    @tool
    def look_up(word: str) -> str:
        """Looks something up."""
        return word

    handler = ContextPilotCallbackHandler(retriever)
    lcel(retriever, chat(engine).bind_tools([look_up])).invoke({"input": "A and B?"}, {"callbacks": [handler]})
    middleware = ContextPilotMiddleware(RunnableLambda(found), pilot=pilot)
    create_agent(chat(engine), tools=[look_up], middleware=[middleware]).invoke({"messages": "C and D?"})
    assert pilot.stats().observed == 2
    assert counts(pilot) == (0, 0, 0, 0, 0)


def test_calls_in_an_agents_history_are_not_guessed_either(engine, pilot):
    calls = AIMessage("", tool_calls=[{"name": "look_up", "args": {}, "id": "7"}])
    history = [HumanMessage("Look it up."), calls, ToolMessage("Found.", tool_call_id="7"), AIMessage("So it is.")]
    middleware = ContextPilotMiddleware(RunnableLambda(found), pilot=pilot)
    agent = create_agent(chat(engine), middleware=[middleware])
    agent.invoke({"messages": [*history, HumanMessage("A and B?")]})
    agent.invoke({"messages": [*history[::3], HumanMessage("A and B?")]})
    assert pilot.stats().observed == 2
    assert all_plain(history) is None
    assert all_plain(history[::3]) == [
        {"role": "user", "content": "Look it up."},
        {"role": "assistant", "content": "So it is."},
    ]


def test_each_request_goes_to_the_engine_that_was_chosen():
    with ExitStack() as stack:
        fakes = {name: stack.enter_context(FakeEngine(block_size=16)) for name in ("left", "right")}
        pilot = stack.enter_context(ContextPilot(engines=[Engine(one.base_url, name) for name, one in fakes.items()]))
        models = {name: chat(one) for name, one in fakes.items()}
        retriever = ContextPilotRetriever(base_retriever=RunnableLambda(found), pilot=pilot)
        chain = RunnablePassthrough.assign(docs=lambda asked, config: retriever.invoke(asked["input"], config)) | (
            lambda asked: (
                RunnablePassthrough.assign(
                    context=lambda asked: format_docs(asked["docs"]), order_hint=lambda asked: order_hint(asked["docs"])
                )
                | PROMPT
                | models[engine_of(asked["docs"])]
            )
        )
        handler = ContextPilotCallbackHandler(retriever)
        for question in ("A and B?", "C and D?", "B and A?", "D and C?"):
            chain.invoke({"input": question}, {"callbacks": [handler]})
        assert [len(one.requests) for one in fakes.values()] == [2, 2]
        assert all(one.requests[-1].cached_tokens > 200 for one in fakes.values())
        assert [(one.requests, one.observed) for one in pilot.engines] == [(2, 2), (2, 2)]


def test_an_engine_is_named_only_where_all_agree():
    def of(*names):
        return engine_of(
            [Document("x", metadata={} if name is None else {"contextpilot": {"engine": name}}) for name in names]
        )

    assert (of("left", "left", None), of("left", "right"), of(), of(None), of(7)) == ("left", None, None, None, None)
