"""Many threads, one retriever, one handler, one agent."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from contextpilot_rag.testing import FakeEngine
from langchain.agents import create_agent
from langchain_core.documents import Document
from langchain_core.runnables import RunnableLambda
from langchain_stage import chat
from langgraph.checkpoint.memory import InMemorySaver

from langchain_contextpilot import (
    ContextPilotCallbackHandler,
    ContextPilotMiddleware,
    ContextPilotRetriever,
    format_docs,
)

TEXTS = [f"Part {number} of the handbook. " * 8 for number in range(12)]


def search(question):
    """Six documents, others for each question."""
    start = int(question.split()[-1])
    return [Document(TEXTS[(start * step + step) % 12]) for step in range(6)]


def test_nobody_gets_anybody_elses_documents():
    with FakeEngine() as engine:
        retriever = ContextPilotRetriever(base_retriever=RunnableLambda(search))
        handler = ContextPilotCallbackHandler(retriever)
        middleware = ContextPilotMiddleware(RunnableLambda(search), pilot=retriever.pilot)
        agent = create_agent(chat(engine), middleware=[middleware], checkpointer=InMemorySaver())

        def ask(number):
            question = f"What is in part {number}"
            tenant = {"contextpilot_namespace": f"tenant-{number % 3}"}
            found = retriever.invoke(question, {"configurable": tenant})
            assert {one.page_content for one in found} == {one.page_content for one in search(question)}
            chat(engine).invoke(f"{format_docs(found)}\n\n{question}", {"callbacks": [handler]})
            config = {"configurable": {"thread_id": number % 8, **tenant}}
            state = agent.invoke({"messages": question}, config)
            return len(state["messages"])

        with ThreadPoolExecutor(8) as threads:
            lengths = list(threads.map(ask, range(48)))
    assert len(lengths) == 48
    assert retriever.failures == middleware.failures == 0
    stats = retriever.pilot.stats()
    assert stats.namespaces == 3
    assert stats.observed == 96
