"""Mem0's hosted clients, the real classes, against a stand-in for the service on this machine."""

from __future__ import annotations

import pytest

from mem0_contextpilot import AsyncContextPilotMemory, ContextPilotMemory

from .hosted import HostedStandIn
from .stage import LONG, item, names


@pytest.fixture
def service():
    memories = [
        item(f"{user}-{text.split()[0]}", text, user_id=user, categories=["food"]) for user in "ab" for text in LONG
    ]
    with HostedStandIn(memories) as service:
        yield service


@pytest.fixture
def hosted(service):
    from mem0 import MemoryClient

    client = MemoryClient(api_key="none", host=service.address)
    yield client
    client.client.close()


def test_search_in_aligned_order(service, hosted):
    memory = ContextPilotMemory(hosted)
    first = memory.search("q", user_id="a")
    assert first == hosted.search("q", filters={"user_id": "a"})
    service.rank = 3
    plain = hosted.search("q", filters={"user_id": "a"})
    found = memory.search("q", user_id="a")
    assert names(found) == names(first) != names(plain)
    assert sorted(names(found)) == sorted(names(plain))
    assert names(memory.search("q", user_id="b"))[0] == "b-sets"  # another user: in the service's order
    assert names(memory.search("q", user_id="a", keep_order=True)) == names(plain)


def test_what_is_asked_of_the_service(service, hosted):
    memory = ContextPilotMemory(hosted)
    memory.search("q", user_id="a", app_id="x", limit=3, rerank=True)
    assert service.received[-1] == {
        "query": "q",
        "filters": {"user_id": "a", "app_id": "x"},
        "top_k": 3,
        "rerank": True,
    }
    memory.search("q", filters={"user_id": "a"})
    assert service.received[-1] == {"query": "q", "filters": {"user_id": "a"}}  # top_k is the service's own
    either = {"OR": [{"categories": {"contains": "food"}}, {"categories": {"contains": "drink"}}]}
    memory.search("q", user_id="a", filters=either)
    assert service.received[-1]["filters"] == {"AND": [{"user_id": "a"}, either]}


def test_options(service, hosted):
    types = pytest.importorskip("mem0.client.types", reason="this Mem0 has no options")
    memory = ContextPilotMemory(hosted)
    options = types.SearchMemoryOptions(filters={"AND": [{"user_id": "a"}]}, top_k=2)
    assert len(memory.search("q", options)["results"]) == 2
    assert service.received[-1] == {"query": "q", "filters": {"AND": [{"user_id": "a"}]}, "top_k": 2}
    assert memory.context("q", "And?", options).namespace == memory.namespace_for(user_id="a")
    memory.search("q", options, agent_id="cook", top_k=3)
    asked = {"AND": [{"agent_id": "cook"}, {"AND": [{"user_id": "a"}]}]}
    assert service.received[-1] == {"query": "q", "filters": asked, "top_k": 3}
    assert memory.context("q", "And?", options).labels == {1: "a-slices", 2: "a-steps"}


def test_a_conversation(service, hosted, client):
    memory = ContextPilotMemory(hosted)
    for turn in range(3):
        service.rank = turn
        context = memory.context("q", f"Question {turn}?", user_id="a", conversation="c")
        response = client.chat.completions.create(
            model="none", messages=context.messages(), extra_body=context.extra_body
        )
        usage = context.answer(response)
    assert len(context.again) == len(context.labels) == 5
    assert usage.cached_tokens > 0.75 * usage.prompt_tokens


def test_the_services_errors_are_not_ours(service, hosted):
    service.status = 500
    memory = ContextPilotMemory(hosted)
    with pytest.raises(Exception) as plain:  # noqa: PT011  whatever the client makes of it
        hosted.search("q", filters={"user_id": "a"})
    with pytest.raises(type(plain.value)) as ours:
        memory.search("q", user_id="a")
    assert str(ours.value) == str(plain.value)
    assert memory.failures == 0


def test_everything_else_is_the_clients_own(service, hosted):
    memory = ContextPilotMemory(hosted)
    assert memory.host == service.address
    assert memory.add.__self__ is hosted
    with memory as same:  # the blocking client is no context manager, and has nothing that could be closed
        assert same is memory


async def test_the_async_client(service):
    from mem0 import AsyncMemoryClient

    async with AsyncContextPilotMemory(AsyncMemoryClient(api_key="none", host=service.address)) as memory:
        first = await memory.search("q", user_id="a")
        service.rank = 2
        assert names(await memory.search("q", user_id="a")) == names(first)
        assert service.received[-1] == {"query": "q", "filters": {"user_id": "a"}}
        context = await memory.context("q", user_id="a", conversation="c")
        assert list(context.labels.values()) == names(first)
