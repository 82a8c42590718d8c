"""The pipelines that are measured, as LangChain's own guides build them: with us and without."""

from __future__ import annotations

import platform
from functools import cache
from operator import itemgetter

from contextpilot_rag.testing import FakeEngine
from langchain.agents import create_agent
from langchain.agents.middleware import dynamic_prompt
from langchain_classic.chains import create_retrieval_chain
from langchain_classic.chains.combine_documents import create_stuff_documents_chain
from langchain_classic.retrievers import EnsembleRetriever
from langchain_community.vectorstores import FAISS
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnablePassthrough
from langchain_core.tools import create_retriever_tool
from langchain_stage import QUESTIONS, SYSTEM, ToolEngine, WordEmbedding, bm25, chat, served
from langgraph.checkpoint.memory import InMemorySaver

from langchain_contextpilot import ContextPilotMiddleware, ContextPilotRetriever, format_docs, order_hint

PROMPT = ChatPromptTemplate.from_messages([("system", SYSTEM), ("user", "{context}\n\n{order_hint}\n\n{input}")])
STUFF = ChatPromptTemplate.from_messages([("system", SYSTEM), ("user", "{context}\n\nQuestion: {input}")])


def joined(documents):
    return "\n\n".join(document.page_content for document in documents)


def lcel(retriever, model, context=format_docs, hint=order_hint):
    """The way that LangChain's own guides write it."""
    return (
        RunnablePassthrough.assign(documents=itemgetter("input") | retriever)
        | RunnablePassthrough.assign(
            context=lambda asked: context(asked["documents"]), order_hint=lambda asked: hint(asked["documents"])
        )
        | PROMPT
        | model
        | StrOutputParser()
    )


def stuff(retriever, model):
    return create_retrieval_chain(retriever, create_stuff_documents_chain(model, STUFF))


def ensemble():
    """BM25 over all, and FAISS over those that BM25 finds for the questions, under other ids."""
    found = {one.page_content: one for question in QUESTIONS for one in bm25(16).invoke(question)}
    store = FAISS.from_documents(list(found.values()), WordEmbedding())
    return EnsembleRetriever(retrievers=[bm25(8), store.as_retriever(search_kwargs={"k": 8})])


def agent(model, *, ours, **options):
    """An agent with documents in every turn. Without us they stand in the system message, as the guides have it."""

    @dynamic_prompt
    def with_documents(request):
        question = next(message for message in reversed(request.messages) if message.type == "human")
        return f"{SYSTEM}\n\n{joined(bm25().invoke(question.text))}"

    if not ours:
        return create_agent(model, middleware=[with_documents], checkpointer=InMemorySaver(), **options)
    middleware = ContextPilotMiddleware(bm25())
    return create_agent(model, system_prompt=SYSTEM, middleware=[middleware], checkpointer=InMemorySaver(), **options)


def ask_chain(make, ours):
    """Ten questions to a chain; what the endpoint was asked."""
    with FakeEngine() as engine:
        chain = make(ours)(chat(engine))
        for question in QUESTIONS:
            chain.invoke({"input": question})
        return engine.requests


def ask_agent(conversations, ours):
    """Ten questions to an agent, in one conversation or in ten."""
    with FakeEngine() as engine:
        asked = agent(chat(engine), ours=ours)
        for number, question in enumerate(QUESTIONS):
            asked.invoke({"messages": question}, {"configurable": {"thread_id": number % conversations}})
        return engine.requests


def ask_agent_with_tool(ours):
    """Ten turns of an agent that looks up something in each of them."""
    search = create_retriever_tool(bm25(), "search", "Looks something up in Python's documentation")
    script = [call for number in range(10) for call in ([("search", {"query": QUESTIONS[-1 - number]})], None)]
    engine = ToolEngine(script)
    with served(engine) as address:
        asked = agent(chat(address), ours=ours, tools=[search])
        for question in QUESTIONS:
            asked.invoke({"messages": question}, {"configurable": {"thread_id": "1"}})
    return engine.requests


def _lcel(ours):
    retriever = ContextPilotRetriever(base_retriever=bm25()) if ours else bm25()
    plain = {} if ours else {"context": joined, "hint": lambda _: ""}
    return lambda model: lcel(retriever, model, **plain)


def _stuff(ours):
    retriever = ContextPilotRetriever(base_retriever=ensemble()) if ours else ensemble()
    return lambda model: stuff(retriever, model)


MEASURED = {
    "LCEL chain, BM25": lambda ours: ask_chain(_lcel, ours),
    "`create_retrieval_chain`, BM25 + FAISS": lambda ours: ask_chain(_stuff, ours),
    "agent, ten conversations": lambda ours: ask_agent(10, ours),
    "agent, one conversation": lambda ours: ask_agent(1, ours),
    "agent, one conversation, with a tool": ask_agent_with_tool,
}


@cache
def measured():
    """For each pipeline: tokens cached and tokens computed, without us and with us, as the endpoint reports them."""
    return tuple(_measured())


def _measured():
    for name, ask in MEASURED.items():
        rows = [ask(ours) for ours in (False, True)]
        cached = [sum(request.cached_tokens for request in requests) for requests in rows]
        prompt = [sum(request.prompt_tokens for request in requests) for requests in rows]
        yield name, cached, [whole - found for whole, found in zip(prompt, cached, strict=True)]


def table():
    """The README's table."""
    lines = [
        f"Python {platform.python_version()}:\n",
        "| ten questions to | cached without | cached with | computed without | computed with |",
        "|---|---|---|---|---|",
    ]
    for name, cached, computed in measured():
        lines.append(f"| {name} | " + " | ".join(f"{number:,}" for number in [*cached, *computed]) + " |")
    return "\n".join(lines)
