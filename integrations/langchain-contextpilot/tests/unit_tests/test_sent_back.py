"""Messages that come back from elsewhere, ids that meet, objects that travel: nothing is taken for what it is not."""

from __future__ import annotations

import asyncio
import pickle
import threading

import pytest
from contextpilot_rag import ContextPilot, LocalIndex
from langchain_core.messages import HumanMessage
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda
from langchain_hooks import answer, found, request, returning, sent, turn
from langchain_openai import ChatOpenAI
from langgraph.runtime import Runtime

from langchain_contextpilot import ContextPilotCompressor, ContextPilotMiddleware, ContextPilotRetriever


def asking(asked):
    def retrieve(question):
        asked.append(question)
        return found("slices")

    return RunnableLambda(retrieve)


@pytest.mark.parametrize("content", ["And a set?", "What is a slice?", "so: What is a slice?"])
def test_a_message_with_an_old_note_and_another_content_is_a_new_question(content):
    """As from user interfaces that spread what they were given: ``{...message, content}``."""
    asked = []
    middleware = ContextPilotMiddleware(asking(asked))
    first = turn(middleware, [], "What is a slice?")
    edited = turn(middleware, [], first[0].model_copy(update={"content": content}))
    assert asked == ["What is a slice?", content]
    assert edited[0].content.startswith("<documents>\n[1] Slices")
    assert edited[0].content.endswith(f"\n\n{content}")
    assert edited[0].additional_kwargs["contextpilot"]["question"] == content


@pytest.mark.parametrize("failing", [False, True])
def test_a_message_that_came_back_as_it_was_is_none(failing):
    asked = []
    middleware = ContextPilotMiddleware(asking(asked), pilot=ContextPilot(max_text=10 if failing else 10**6))
    messages = turn(middleware, [], "What is a slice?")
    assert turn(middleware, [], messages[0]) == messages
    assert len(asked) == 1


def test_equal_ids_of_two_tenants_are_two_turns():
    middleware = ContextPilotMiddleware(returning(found("slices")))
    states = {}
    for tenant in ("acme", "globex"):
        update = middleware.before_agent(
            {"messages": [HumanMessage("?", id="1")]}, Runtime(), {"configurable": {"contextpilot_namespace": tenant}}
        )
        states[tenant] = update
    observed = []
    middleware.pilot.observe = lambda prompt, usage: observed.append((prompt.request.namespace.tenant, usage))
    model = ChatOpenAI(base_url="http://127.0.0.1:9/v1", api_key="none")
    for tenant, cached in (("acme", 11), ("globex", 22)):
        state = states[tenant]
        middleware.wrap_model_call(request(state["messages"], model, state), lambda _, cached=cached: answer(cached))
    assert [(tenant, usage.cached_tokens) for tenant, usage in observed] == [("acme", 11), ("globex", 22)]


def test_what_a_bound_model_sends_is_still_sent():
    model = ChatOpenAI(base_url="http://127.0.0.1:9/v1", api_key="none", extra_body={"a": 1, "b": 1})
    middleware = ContextPilotMiddleware(namespace="acme")
    seen = sent(middleware, [], model=model.bind(extra_body={"b": 2, "c": 2}), model_settings={"extra_body": {"c": 3}})
    salt = middleware.pilot.extra_body("acme")
    assert seen.model_settings["extra_body"] == {"a": 1, "b": 2, "c": 3, **salt}


class Slow:
    """An index elsewhere: it answers when the event loop has had its turn."""

    def __init__(self):
        self.index, self.free = LocalIndex(), threading.Event()

    def align(self, asked):
        assert self.free.wait(30)
        return self.index.align(asked)


async def test_an_index_elsewhere_does_not_keep_the_loop_waiting():
    index = Slow()
    middleware = ContextPilotMiddleware(returning(found("slices")), pilot=ContextPilot(index))
    task = asyncio.create_task(middleware.abefore_agent({"messages": [HumanMessage("?", id="1")]}, Runtime()))
    await asyncio.sleep(0.05)
    assert not task.done()
    index.free.set()
    update = await task
    assert update["messages"][0].content.startswith("<documents>")
    assert middleware.failures == 0


class Plain(BaseRetriever):
    def _get_relevant_documents(self, query, *, run_manager):
        return found("slices", "steps")


@pytest.mark.parametrize(
    "made",
    [
        lambda: ContextPilotRetriever(base_retriever=Plain(), k=1, order="throughput", namespace="acme"),
        lambda: ContextPilotCompressor(order="throughput", namespace="acme"),
    ],
)
def test_what_is_pickled_has_a_pilot_of_its_own(made):
    one = made()
    other = pickle.loads(pickle.dumps(one))
    assert (other.order, other.namespace, other.failures) == ("throughput", "acme", 0)
    assert other.pilot is not one.pilot
    if isinstance(other, ContextPilotRetriever):
        assert [document.id for document in other.invoke("?")] == ["id-slices"]
    else:
        assert len(other.compress_documents(found("slices", "steps"), "?")) == 2


@pytest.mark.parametrize("wrap", ["with_retry", "with_fallbacks", "both"])
def test_wrapped_bases_are_asked_for_as_many(wrap):
    class Named(BaseRetriever):
        def _get_relevant_documents(self, query, *, run_manager, k=1):
            return found("slices", "steps", "copies", "sets")[:k]

    base = {
        "with_retry": lambda: Named().with_retry(),
        "with_fallbacks": lambda: Named().with_fallbacks([Named()]),
        "both": lambda: Named().with_config(tags=["x"]).with_retry().with_fallbacks([Named()]),
    }[wrap]()
    retriever = ContextPilotRetriever(base_retriever=base, k=3)
    assert len(retriever.invoke("?")) == 3
    assert len(retriever.invoke("?", k=4)) == 4
