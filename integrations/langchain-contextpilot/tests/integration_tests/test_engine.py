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
    ContextPilotMiddleware,
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


def test_an_agents_history_is_cached(model):
    agent = create_agent(
        model, system_prompt=SYSTEM, middleware=[ContextPilotMiddleware(bm25(2))], checkpointer=InMemorySaver()
    )
    sent = []
    for question in QUESTIONS[:3]:
        state = agent.invoke({"messages": question}, {"configurable": {"thread_id": "1"}})
        usage = state["messages"][-1].usage_metadata
        sent.append((usage["input_tokens"], cached(state["messages"][-1])))
    for (before, _), (_, found) in pairwise(sent):
        assert found >= before - 8  # all of the prompt before, but for the last tokens, which the answer follows
