"""Tenants against an endpoint: none is answered out of another's cache, however they are named."""

from __future__ import annotations

from operator import itemgetter
from uuid import UUID

import pytest
from contextpilot_rag.errors import SettingsError
from contextpilot_rag.testing import FakeEngine
from langchain.agents import create_agent
from langchain_classic.retrievers import ContextualCompressionRetriever
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import ConfigurableField, RunnablePassthrough
from langchain_stage import QUESTIONS, bm25, chat
from langgraph.checkpoint.memory import InMemorySaver

from langchain_contextpilot import (
    ContextPilotCompressor,
    ContextPilotMiddleware,
    ContextPilotRetriever,
    format_docs,
)

KEY = "contextpilot_namespace"
TENANTS = [1, 2, UUID(int=3), "acme"]


@pytest.fixture
def engine():
    with FakeEngine() as engine:
        yield engine


def salts(pilot, times):
    return [pilot.extra_body(str(tenant))["cache_salt"] for tenant in TENANTS for _ in range(times)]


@pytest.mark.parametrize("where", ["configurable", "metadata"])
@pytest.mark.parametrize("written", ["as a step", "in a function that hands its config on"])
async def test_in_a_chain(engine, ask, where, written):
    """Also with `ainvoke` on Python 3.10, where nothing but the config tells a step whose request it is."""
    ours = ContextPilotRetriever(base_retriever=bm25(), require_namespace=True)

    def search(asked, config):
        return ours.invoke(asked["question"], config)

    chain = (
        RunnablePassthrough.assign(docs=itemgetter("question") | ours if written == "as a step" else search)
        | RunnablePassthrough.assign(context=lambda asked: format_docs(asked["docs"]))
        | ChatPromptTemplate.from_template("{context}\n\n{question}")
        | chat(engine).configurable_fields(extra_body=ConfigurableField(id="extra_body"))
    )
    for tenant in TENANTS:
        config = {"configurable": {"extra_body": ours.pilot.extra_body(str(tenant))}}
        config = {**config, where: {**config.get(where, {}), KEY: tenant}}
        for question in QUESTIONS[:2]:
            await ask(chain, {"question": question}, config)
    assert ours.pilot.stats().namespaces == len(TENANTS)
    assert [request.cache_salt for request in engine.requests] == salts(ours.pilot, 2)
    assert all(request.cached_tokens == 0 for request in engine.requests[::2])
    assert all(request.cached_tokens > 0 for request in engine.requests[1::2])


@pytest.mark.parametrize("where", ["configurable", "metadata"])
async def test_in_an_agent(engine, ask, where):
    middleware = ContextPilotMiddleware(bm25())
    agent = create_agent(chat(engine), middleware=[middleware], checkpointer=InMemorySaver())
    for tenant in TENANTS:
        for number in range(2):
            config = {"configurable": {"thread_id": f"{tenant}-{number}"}}
            config = {**config, where: {**config.get(where, {}), KEY: tenant}}
            await ask(agent, {"messages": QUESTIONS[number]}, config)
    assert [request.cache_salt for request in engine.requests] == salts(middleware.pilot, 2)
    assert all(request.cached_tokens == 0 for request in engine.requests[::2])
    assert middleware.pilot.stats().namespaces == len(TENANTS)


@pytest.mark.parametrize("wrong", ["", True, 1.5, {"tenant": "acme"}])
async def test_nothing_is_sent_for_whom_nobody_knows(engine, ask, wrong):
    agent = create_agent(chat(engine), middleware=[ContextPilotMiddleware(bm25())], checkpointer=InMemorySaver())
    with pytest.raises(SettingsError, match=KEY):
        await ask(agent, {"messages": QUESTIONS[0]}, {"configurable": {"thread_id": "1", KEY: wrong}})
    assert len(engine.requests) == 0


async def test_a_compressor_called_directly_is_reached_by_metadata(ask):
    """LangChain hands a compressor no config: "configurable" may be lost, and `require_namespace` says so."""
    compressor = ContextPilotCompressor(require_namespace=True)
    retriever = ContextualCompressionRetriever(base_compressor=compressor, base_retriever=bm25())
    for tenant in TENANTS:
        await ask(retriever, QUESTIONS[0], {"metadata": {KEY: tenant}})
    assert compressor.pilot.stats().namespaces == len(TENANTS)
    with pytest.raises(SettingsError, match="a namespace is required"):
        await ask(retriever, QUESTIONS[0], {"configurable": {KEY: TENANTS[2]}})
