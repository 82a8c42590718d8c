"""ContextPilotCallbackHandler: what the engine reports reaches the pilot, and nothing else happens."""

from __future__ import annotations

from uuid import uuid4

import pytest
from contextpilot_rag import ContextPilot
from contextpilot_rag.errors import SettingsError
from contextpilot_rag.testing import FakeEngine
from langchain_core.documents import Document
from langchain_core.language_models import FakeListLLM
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, Generation, LLMResult
from langchain_core.runnables import RunnableLambda
from langchain_stage import Broken, chat

from langchain_contextpilot import (
    ContextPilotCallbackHandler,
    ContextPilotCompressor,
    ContextPilotMiddleware,
    format_docs,
)

USAGE = {"input_tokens": 90, "output_tokens": 2, "total_tokens": 92, "input_token_details": {"cache_read": 40}}
RAW = {"prompt_tokens": 90, "prompt_tokens_details": {"cached_tokens": 40}}


@pytest.fixture
def engine():
    with FakeEngine() as engine:
        yield engine


@pytest.fixture
def compressor():
    return ContextPilotCompressor()


def prompt_of(compressor, question="Why?"):
    placed = compressor.compress_documents([Document("slices " * 40), Document("steps " * 40)], question)
    return f"{format_docs(placed)}\n\n{question}"


async def test_over_http(engine, compressor):
    handler = ContextPilotCallbackHandler(compressor)
    model, config = chat(engine), {"callbacks": [handler]}
    model.invoke(prompt_of(compressor), config)
    await model.ainvoke(prompt_of(compressor), config)
    list(chat(engine, stream_usage=True).stream(prompt_of(compressor), config))
    _ = [chunk async for chunk in chat(engine, stream_usage=True).astream(prompt_of(compressor), config)]
    model.invoke("Somebody else's prompt", config)
    stats = compressor.pilot.stats()
    assert stats.observed == 4
    assert stats.reported_cached_tokens == sum(request.cached_tokens for request in engine.requests[:4]) > 0
    assert stats.reported_prompt_tokens == sum(request.prompt_tokens for request in engine.requests[:4])


def test_not_reported_is_not_zero(engine, compressor):
    engine.report_cached = False
    chat(engine).invoke(prompt_of(compressor), {"callbacks": [ContextPilotCallbackHandler(compressor)]})
    stats = compressor.pilot.stats()
    assert (stats.observed, stats.cached_not_reported) == (1, 1)


def told(handler, prompt, result, run=None):
    run = run or uuid4()
    handler.on_chat_model_start({}, [[HumanMessage(prompt)]], run_id=run)
    handler.on_llm_end(result, run_id=run)


@pytest.mark.parametrize(
    "result",
    [
        LLMResult(generations=[[ChatGeneration(message=AIMessage("x", usage_metadata=USAGE))]]),
        LLMResult(generations=[[ChatGeneration(message=AIMessage("x", response_metadata={"token_usage": RAW}))]]),
        LLMResult(generations=[[Generation(text="x")]], llm_output={"token_usage": RAW}),
    ],
)
def test_wherever_the_report_stands(compressor, result):
    told(ContextPilotCallbackHandler(compressor), prompt_of(compressor), result)
    stats = compressor.pilot.stats()
    assert (stats.reported_prompt_tokens, stats.reported_cached_tokens) == (90, 40)


def test_the_pilot_that_a_prompt_belongs_to_learns():
    one, other = ContextPilotCompressor(), ContextPilotCompressor()
    handler = ContextPilotCallbackHandler(one, other.adapter)
    result = LLMResult(generations=[[ChatGeneration(message=AIMessage("x", usage_metadata=USAGE))]])
    told(handler, prompt_of(other, "Theirs?"), result)
    assert (one.pilot.stats().observed, other.pilot.stats().observed) == (0, 1)


@pytest.mark.parametrize("where", ["metadata", "configurable"])
def test_the_same_prompt_in_two_namespaces(engine, compressor, where):
    def placed(asked, config):
        found = compressor.compress_documents([Document("slices " * 40)], asked)
        return f"{format_docs(found)}\n\n{asked}"

    handler = ContextPilotCallbackHandler(compressor)
    configs = [{"callbacks": [handler], where: {"contextpilot_namespace": tenant}} for tenant in ("acme", "globex")]
    for config in configs:  # retrieved and not asked yet
        RunnableLambda(placed).invoke("Why?", config)
    chain = RunnableLambda(placed) | chat(engine)
    chain.invoke("Why?", configs[1])
    assert compressor.pilot.stats().observed == 1


def test_a_model_that_takes_texts(compressor):
    model = FakeListLLM(responses=["x"], callbacks=[ContextPilotCallbackHandler(compressor)])
    assert model.invoke(prompt_of(compressor)) == "x"
    stats = compressor.pilot.stats()
    assert (stats.observed, stats.cached_not_reported) == (1, 1)


async def test_a_stream_without_a_report_counts_as_not_reported(engine, compressor):
    config = {"callbacks": [ContextPilotCallbackHandler(compressor)]}
    model = chat(engine, stream_usage=False)
    list(model.stream(prompt_of(compressor), config))
    _ = [chunk async for chunk in model.astream(prompt_of(compressor), config)]
    stats = compressor.pilot.stats()
    assert (stats.observed, stats.cached_not_reported, stats.reported_prompt_tokens) == (2, 2, 0)


def test_a_setting_that_is_changed_loses_no_report(engine, compressor):
    """Another namespace, another order: the handler goes on to learn, of copies in other namespaces, too."""
    handler = ContextPilotCallbackHandler(compressor)
    compressor.order = "throughput"
    copies = [compressor, compressor.model_copy(update={"namespace": "globex"})]
    for number, one in enumerate(copies):
        chat(engine).invoke(prompt_of(one, f"{number}?"), {"callbacks": [handler]})
    assert compressor.pilot.stats().observed == 2


@pytest.mark.parametrize("on_error", ["open", "raise"])
def test_nothing_that_fails_reaches_the_chain(engine, on_error):
    compressor = ContextPilotCompressor(pilot=ContextPilot(on_error=on_error))
    prompt = prompt_of(compressor)
    compressor.pilot.index = Broken()
    chat(engine).invoke(prompt, {"callbacks": [ContextPilotCallbackHandler(compressor)]})
    assert compressor.failures == 1


def test_what_is_no_message_or_result_is_passed_over(compressor):
    handler = ContextPilotCallbackHandler(compressor)
    told(handler, prompt_of(compressor), LLMResult(generations=[]))
    told(handler, prompt_of(compressor), None)
    handler.on_chat_model_start({}, [[None]], run_id=uuid4())
    handler.on_llm_end(LLMResult(generations=[]), run_id=uuid4())
    assert compressor.failures == 1  # what answers nothing reports nothing


def test_what_is_remembered_is_bounded(compressor):
    handler = ContextPilotCallbackHandler(compressor, remember=3)
    runs = [uuid4() for _ in range(9)]
    for run in runs:
        handler.on_llm_start({}, ["prompt"], run_id=run)
    assert len(handler._sent) == 3
    handler.on_llm_error(ValueError(), run_id=runs[-1])
    assert len(handler._sent) == 2


def test_the_middleware_needs_none():
    with pytest.raises(SettingsError, match="the middleware learns by itself"):
        ContextPilotCallbackHandler(ContextPilotMiddleware())


@pytest.mark.parametrize("wrong", [(), (ContextPilot(),), ("retriever",)])
def test_what_it_reports_to_has_to_be_said(wrong):
    with pytest.raises(SettingsError, match="retrievers or compressors"):
        ContextPilotCallbackHandler(*wrong)
    with pytest.raises(SettingsError, match="remember"):
        ContextPilotCallbackHandler(ContextPilotCompressor(), remember=0)
