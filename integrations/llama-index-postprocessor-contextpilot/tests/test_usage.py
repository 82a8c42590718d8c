"""Usage: what the engine reports reaches the pilot, through the framework's instrumentation."""

from __future__ import annotations

import pytest
from li_support import LONG, Listed, llm_of, pick, streaming
from llama_index.core.chat_engine import ContextChatEngine
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.events.llm import LLMCompletionEndEvent
from llama_index.core.llms import CompletionResponse, MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine

from llama_index.postprocessor.contextpilot import ContextPilotPostprocessor, ContextPilotSynthesizer, observe_usage


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
    postprocessor = ContextPilotPostprocessor()
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
    postprocessor = ContextPilotPostprocessor(annotation="node")
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
