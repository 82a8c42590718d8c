"""Usage: what the engine reports reaches the pilot, through the framework's instrumentation."""

from __future__ import annotations

import gc

import pytest
from contextpilot_rag import AsyncContextPilot, ContextPilot
from contextpilot_rag.errors import SettingsError
from li_support import LONG, Listed, llm_of, pick, streaming
from llama_index.core.chat_engine import ContextChatEngine
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.events.llm import LLMCompletionEndEvent
from llama_index.core.llms import CompletionResponse, MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine

from llama_index.postprocessor.contextpilot import (
    ContextPilotChatEngine,
    ContextPilotPostprocessor,
    ContextPilotSynthesizer,
    UsageHandler,
    observe_usage,
)


def stats(postprocessor):
    return postprocessor.adapter.pilot.stats()


def asking(postprocessor, llm, **options):
    return RetrieverQueryEngine(
        Listed(pick(0, 1, 2), pick(2, 1, 0, 3)),
        response_synthesizer=ContextPilotSynthesizer(llm=llm, **options),
        node_postprocessors=[postprocessor],
    )


@pytest.fixture
def postprocessor():
    before = list(get_dispatcher().event_handlers)
    postprocessor = ContextPilotPostprocessor(order_hint=True)  # prompts with a hint are recognised, too
    with observe_usage(postprocessor):
        yield postprocessor
    assert list(map(id, get_dispatcher().event_handlers)) == list(map(id, before))


async def test_every_way_of_asking(engine, llm, postprocessor):
    query, streamed = asking(postprocessor, llm), asking(postprocessor, streaming(engine), streaming=True)
    query.query("One?")
    await query.aquery("Two?")
    "".join(streamed.query("Three?").response_gen)
    response = await streamed.aquery("Four?")
    async for _ in response.async_response_gen():
        pass
    assert stats(postprocessor).reported_prompt_tokens == sum(request.prompt_tokens for request in engine.requests)
    assert stats(postprocessor).reported_cached_tokens == sum(request.cached_tokens for request in engine.requests) > 0
    assert len(engine.requests) == 4


def test_a_stock_chat_engine(engine, llm):
    postprocessor = ContextPilotPostprocessor(annotation="node", order_hint=True)
    with observe_usage(postprocessor) as handler:
        chat = ContextChatEngine.from_defaults(
            Listed(pick(0, 1), pick(1, 0)), llm=llm, node_postprocessors=[postprocessor]
        )
        chat.chat("One?")
        chat.chat("Two?")
        handler.remove()
        chat.chat("Three?")
    assert stats(postprocessor).reported_prompt_tokens == sum(r.prompt_tokens for r in engine.requests[:2])


def test_others_calls_and_silent_engines_are_passed_over(engine, llm, postprocessor):
    llm.complete("Hello?")
    asking(postprocessor, MockLLM()).query("One?")
    engine.report_cached = False
    asking(postprocessor, llm).query("Two?")
    assert stats(postprocessor).reported_cached_tokens == 0
    assert postprocessor.failures == 0


def test_a_handler_never_breaks_a_call(engine, llm, postprocessor, monkeypatch):
    def fails(*_):
        raise RuntimeError("broken")

    monkeypatch.setattr(postprocessor.adapter, "learn", fails)
    assert str(asking(postprocessor, llm).query("One?")).startswith("FakeEngine")


def test_two_postprocessors_each_learn_their_own(engine, postprocessor):
    other = ContextPilotPostprocessor()
    with observe_usage(other):
        asking(postprocessor, llm_of(engine)).query("One?")
        asking(other, llm_of(engine)).query("Two?")
    assert [stats(one).reported_prompt_tokens for one in (postprocessor, other)] == [
        request.prompt_tokens for request in engine.requests
    ]


def test_engines_that_complete_texts(postprocessor):
    postprocessor.postprocess_nodes(pick(0, 1), query_str="Why?")
    prompt = f"{LONG[0]}\n{LONG[1]}\nWhy?"
    raw = {"usage": {"prompt_tokens": 90, "prompt_tokens_details": {"cached_tokens": 16}}}
    event = LLMCompletionEndEvent(prompt=prompt, response=CompletionResponse(text="x", raw=raw))
    get_dispatcher(__name__).event(event)
    assert stats(postprocessor).reported_cached_tokens == 16


def handlers():
    return [handler for handler in get_dispatcher().event_handlers if isinstance(handler, UsageHandler)]


def test_an_engine_a_chat_engine_several_of_them(engine, llm):
    first, second = ContextPilotPostprocessor(), ContextPilotPostprocessor(annotation="node")
    query = asking(first, llm)
    chat = ContextChatEngine.from_defaults(Listed(pick(0, 1)), llm=llm, node_postprocessors=[second])
    with observe_usage(query) as handler:
        assert handler is observe_usage(first) is observe_usage(first.adapter)
        query.query("One?")
    with observe_usage(first, chat) as handler:
        assert handler is observe_usage(query, second) is observe_usage(second, first, query)
        assert handler.adapters == [first.adapter, second.adapter]
        query.query("Two?")
        chat.chat("Three?")
    assert handlers() == []
    sent = [request.prompt_tokens for request in engine.requests]
    assert [stats(one).reported_prompt_tokens for one in (first, second)] == [sent[0] + sent[1], sent[2]]


@pytest.mark.parametrize("face", [lambda pilot: pilot, AsyncContextPilot.around])
def test_a_pilot_is_followed_for_all_its_postprocessors(engine, llm, face):
    pilot = ContextPilot()
    before = ContextPilotPostprocessor(pilot)
    with observe_usage(face(pilot)):
        after = ContextPilotPostprocessor(pilot, namespace="acme")
        asking(before, llm).query("One?")
        asking(after, llm).query("Two?")
        asking(ContextPilotPostprocessor(), llm).query("Three?")
    assert pilot.stats().reported_prompt_tokens == sum(request.prompt_tokens for request in engine.requests[:2])


def test_the_same_request_of_two_postprocessors_is_counted_once(engine, llm):
    pilot = ContextPilot()
    query = RetrieverQueryEngine(
        Listed(pick(0, 1)),
        response_synthesizer=ContextPilotSynthesizer(llm=llm),
        node_postprocessors=[ContextPilotPostprocessor(pilot), ContextPilotPostprocessor(pilot)],
    )
    with observe_usage(query), observe_usage(query):
        query.query("One?")
    assert pilot.stats().reported_prompt_tokens == engine.requests[0].prompt_tokens


@pytest.mark.parametrize(
    "wrong",
    [
        (),
        (None,),
        ("http://127.0.0.1",),
        (RetrieverQueryEngine(Listed(), response_synthesizer=ContextPilotSynthesizer(llm=MockLLM())),),
        (ContextPilotPostprocessor(), 7),
    ],
)
def test_what_cannot_be_observed_is_said(wrong):
    with pytest.raises(SettingsError, match="observe_usage takes"):
        observe_usage(*wrong)
    assert handlers() == []


def test_our_chat_engine_needs_none(llm):
    with pytest.raises(SettingsError, match="by itself"):
        observe_usage(ContextPilotChatEngine.from_defaults(Listed(pick(0)), llm=llm))


@pytest.mark.parametrize("several", [False, True])
def test_a_call_for_each_request_leaves_no_handlers(llm, several):
    pilot = ContextPilot()
    for number in range(5):
        postprocessors = [ContextPilotPostprocessor(pilot) for _ in range(1 + several)]
        observe_usage(*postprocessors)
        observe_usage(*postprocessors)
        asking(postprocessors[0], llm).query(f"Question {number}?")
    assert stats(postprocessors[0]).reported_prompt_tokens > 0
    gc.collect()
    assert len(handlers()) == 1
    del postprocessors
    gc.collect()
    assert handlers() == []
    observe_usage(pilot)
    del pilot
    gc.collect()
    assert handlers() == []


def test_of_several_the_last_one_to_go_takes_the_handler_along():
    kept, gone = ContextPilotPostprocessor(), ContextPilotPostprocessor()
    handler = observe_usage(kept, gone)
    del gone
    gc.collect()
    assert handler.adapters == [kept.adapter]
    assert observe_usage(kept) is handler
    assert handlers() == [handler]
    handler.remove()
    handler.remove()
    assert handlers() == []
