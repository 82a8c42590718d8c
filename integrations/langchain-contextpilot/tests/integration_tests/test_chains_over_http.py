"""Chains against an endpoint; `test_readme.py` has what it says of its cache, with us and without."""

from __future__ import annotations

import pytest
from contextpilot_rag import ContextPilot
from contextpilot_rag.testing import FakeEngine
from langchain_classic.retrievers import ContextualCompressionRetriever
from langchain_pipelines import lcel, stuff
from langchain_stage import QUESTIONS, Broken, bm25, cached, chat, documents

from langchain_contextpilot import (
    ContextPilotCallbackHandler,
    ContextPilotCompressor,
    ContextPilotRetriever,
    format_docs,
)


@pytest.fixture
def engine():
    with FakeEngine() as engine:
        yield engine


def reported(make, engine):
    """Tokens that the endpoint reports as cached over the ten questions, asked of a chain."""
    engine.reset()
    before = len(engine.requests)
    chain = make(chat(engine))
    for question in QUESTIONS:
        chain.invoke({"input": question})
    return sum(request.cached_tokens for request in engine.requests[before:])


def test_at_least_twice_as_much_is_cached_with_a_compressor(engine):
    compressor = ContextPilotCompressor()
    retriever = ContextualCompressionRetriever(base_compressor=compressor, base_retriever=bm25())
    with_us = reported(lambda model: stuff(retriever, model), engine)
    assert with_us >= 2 * reported(lambda model: stuff(bm25(), model), engine)


async def test_asynchronously_the_same(engine):
    ours = ContextPilotRetriever(base_retriever=bm25())
    synchronous = reported(lambda model: lcel(ours, model), engine)
    engine.reset()
    before = len(engine.requests)
    chain = lcel(ContextPilotRetriever(base_retriever=bm25()), chat(engine))
    for question in QUESTIONS:
        await chain.ainvoke({"input": question})
    assert sum(request.cached_tokens for request in engine.requests[before:]) == synchronous
    assert engine.requests[0].messages == engine.requests[before].messages


def test_usage_from_streams_and_batches(engine):
    ours = ContextPilotRetriever(base_retriever=bm25())
    handler = ContextPilotCallbackHandler(ours)
    chain = lcel(ours, chat(engine, stream_usage=True))
    for question in QUESTIONS[:3]:
        assert "FakeEngine" in "".join(chain.stream({"input": question}, {"callbacks": [handler]}))
    chain.batch([{"input": question} for question in QUESTIONS[3:]], {"callbacks": [handler], "max_concurrency": 3})
    stats = ours.pilot.stats()
    assert stats.observed == stats.requests == len(QUESTIONS)
    assert stats.reported_cached_tokens == cached(engine)


def test_a_broken_index_changes_no_byte(engine):
    stuff(bm25(), chat(engine)).invoke({"input": QUESTIONS[0]})
    ours = ContextPilotRetriever(base_retriever=bm25(), pilot=ContextPilot(Broken()))
    stuff(ours, chat(engine)).invoke({"input": QUESTIONS[0]})
    assert engine.requests[0].messages == engine.requests[1].messages
    assert ours.failures == 1


def test_nothing_to_gain_changes_no_byte(engine):
    stuff(bm25(), chat(engine)).invoke({"input": QUESTIONS[0]})
    stuff(ContextPilotRetriever(base_retriever=bm25()), chat(engine)).invoke({"input": QUESTIONS[0]})
    assert engine.requests[0].messages == engine.requests[1].messages


def test_the_cache_salt_of_a_namespace(engine):
    ours = ContextPilotRetriever(base_retriever=bm25(), namespace="acme")
    model = chat(engine, extra_body=ours.pilot.extra_body("acme"))
    lcel(ours, model).invoke({"input": QUESTIONS[0]})
    assert engine.requests[0].cache_salt == ours.pilot.extra_body("acme")["cache_salt"]


def test_citations(engine):
    """A label in the prompt is the place of its document in the list."""
    ours = ContextPilotRetriever(base_retriever=bm25())
    for question in QUESTIONS:
        found = ours.invoke(question)
        chat(engine).invoke(format_docs(found))
        content = engine.requests[-1].messages[0]["content"]
        for label, document in enumerate(found, start=1):
            assert document.metadata["contextpilot"]["label"] == label
            assert f"[{label}] {document.page_content.splitlines()[0]}" in content
    assert {one.page_content for one in found} == {one.page_content for one in bm25().invoke(question)}
    assert len(documents()) > 1000
