"""End to end with a real engine: llama.cpp with a small model, as the demo uses it."""

from __future__ import annotations

from itertools import pairwise

import pytest
from contextpilot_rag.demo.llama import LlamaEngine
from contextpilot_rag.errors import EngineUnavailable
from langchain.agents import create_agent
from langchain_core.messages import BaseMessage
from langchain_openai import ChatOpenAI
from langchain_stage import QUESTIONS, SYSTEM, bm25
from langgraph.checkpoint.memory import InMemorySaver

from langchain_contextpilot import (
    ContextPilotCallbackHandler,
    ContextPilotMiddleware,
    ContextPilotRetriever,
    format_docs,
)

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]


@pytest.fixture
def model():
    try:
        engine = LlamaEngine()
        engine.__enter__()
    except EngineUnavailable as error:
        pytest.skip(str(error))
    try:
        yield ChatOpenAI(base_url=engine.base_url, api_key="none", model="local", max_tokens=4, temperature=0)
    finally:
        engine.__exit__()


def cached(message: BaseMessage) -> int:
    return message.usage_metadata["input_token_details"].get("cache_read", 0)


def test_the_engine_reports_at_least_twice_as_much(model):
    """Five questions, as retrieved and through us; the engine's cache holds all of them."""
    ours = ContextPilotRetriever(base_retriever=bm25(3))
    handler = ContextPilotCallbackHandler(ours)
    figures = []
    for name, retriever in [("without", bm25(3)), ("with", ours)]:
        figures.append(0)
        for question in QUESTIONS[:5]:  # each arm's prompts begin with a word of its own: nothing is shared
            documents = format_docs(retriever.invoke(question))
            prompt = [("system", f"{name}: {SYSTEM}"), ("user", f"{documents}\n\n{question}")]
            answer = model.invoke(prompt, {"callbacks": [handler]})
            figures[-1] += cached(answer)
    assert figures[1] >= 2 * figures[0]
    assert ours.pilot.stats().observed == 5


def test_an_agents_history_is_cached(model):
    agent = create_agent(
        model, system_prompt=SYSTEM, middleware=[ContextPilotMiddleware(bm25(2))], checkpointer=InMemorySaver()
    )
    sent = []
    for question in QUESTIONS[:4]:
        state = agent.invoke({"messages": question}, {"configurable": {"thread_id": "1"}})
        usage = state["messages"][-1].usage_metadata
        sent.append((usage["input_tokens"], cached(state["messages"][-1])))
    for (before, _), (_, found) in pairwise(sent):
        assert found >= before - 8  # all of the prompt before, but for the last tokens, which the answer follows
