"""Keywords: Mem0 swallows what it does not know, so a misspelt one would go unseen; here it is an error."""

from __future__ import annotations

import pytest
from contextpilot_rag.errors import InputError

from mem0_contextpilot import AsyncContextPilotMemory, ContextPilotMemory
from mem0_contextpilot.keywords import check_keywords

from .hosted import HostedStandIn
from .stage import Notes, item, names, reply

ALICE = {"user_id": "alice"}
MISSPELT = {
    "topk": "top_k",
    "top": "top_k",
    "filter": "filters",
    "user": "user_id",
    "userid": "user_id",
    "agent": "agent_id",
    "name_space": "namespace",
    "option": "options",
}


@pytest.mark.parametrize(("wrong", "meant"), [*MISSPELT.items(), ("keep", "keep_order"), ("keeporder", "keep_order")])
def test_misspelt_in_search(own, wrong, meant):
    for memory in (ContextPilotMemory(own), ContextPilotMemory(Notes(reply("tea")))):
        with pytest.raises(InputError, match=f"search takes no '{wrong}'; did you mean '{meant}'"):
            memory.search("q", **ALICE, **{wrong: 3})


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        *MISSPELT.items(),
        ("conversation_id", "conversation"),
        ("conversations", "conversation"),
        ("system_prompt", "system"),
        ("questions", "question"),
        ("message", "messages"),
    ],
)
def test_misspelt_in_context(own, wrong, meant):
    notes = Notes(reply("tea"))
    for memory in (ContextPilotMemory(own), ContextPilotMemory(notes)):
        with pytest.raises(InputError, match=f"context takes no '{wrong}'; did you mean '{meant}'"):
            memory.context("q", **ALICE, **{wrong: "s1"})
    assert notes.calls == []


def test_what_only_the_other_one_takes(own):
    for memory in (ContextPilotMemory(own), ContextPilotMemory(Notes(reply("tea")))):
        for name in ("conversation", "question", "system", "messages"):
            with pytest.raises(InputError, match=f"search takes no '{name}'; context does"):
                memory.search("q", **ALICE, **{name: "s1"})
        with pytest.raises(InputError, match="context takes no 'keep_order'; search does"):
            memory.context("q", **ALICE, keep_order=True)


def test_what_the_real_memory_takes(own):
    own.add("Alice drinks tea.", **ALICE, infer=False)
    memory = ContextPilotMemory(own)
    found = memory.search("tea", **ALICE, threshold=0.0, rerank=False, top_k=5)
    assert len(found["results"]) == 1
    with pytest.raises(InputError, match="did you mean 'threshold'"):
        memory.search("tea", **ALICE, treshold=0.0)
    with pytest.raises(InputError, match=r"search takes no 'session'; it takes .*filters, .*threshold"):
        memory.context("tea", **ALICE, session="s1")
    with pytest.raises(InputError, match="search takes no 'options'"):  # which Mem0 itself swallows
        memory.search("tea", {"user_id": "alice"})
    with pytest.raises(InputError, match="min_gain is a setting"):
        memory.context("tea", **ALICE, min_gain=0)


async def test_what_the_real_async_memory_takes():
    from mem0 import AsyncMemory

    unmade = AsyncMemory.__new__(AsyncMemory)  # nothing is asked of it
    memory = AsyncContextPilotMemory(unmade)
    for call in (memory.search, memory.context):
        with pytest.raises(InputError, match="did you mean 'top_k'"):
            await call("tea", **ALICE, topk=3)
        with pytest.raises(InputError, match="takes no 'session'"):
            await call("tea", **ALICE, session="s1")


def test_what_the_hosted_clients_take():
    from mem0 import AsyncMemoryClient, MemoryClient

    types = pytest.importorskip("mem0.client.types", reason="this Mem0 has no options")
    documented = set(types.SearchMemoryOptions.model_fields)
    for kind in (MemoryClient, AsyncMemoryClient):
        search = kind.__new__(kind).search
        check_keywords("search", search, {*documented, "options", "keyword_search", "latest_only"})
        for wrong, words in {"treshold": "did you mean 'threshold'", "page": "takes no 'page'; it takes"}.items():
            with pytest.raises(InputError, match=words):
                check_keywords("search", search, [wrong])


def test_the_hosted_service_gets_them():
    from mem0 import MemoryClient

    with HostedStandIn([item("m1", "tea", user_id="a")]) as service:
        client = MemoryClient(api_key="none", host=service.address)
        assert names(ContextPilotMemory(client).search("q", user_id="a", categories=["food"])) == ["m1"]
        assert service.received[-1] == {"query": "q", "filters": {"user_id": "a"}, "categories": ["food"]}
        options = pytest.importorskip("mem0.client.types", reason="this Mem0 has no options").SearchMemoryOptions
        newer = type("Newer", (options,), {"model_config": {"extra": "allow"}})(filters={"user_id": "a"}, brand_new=1)
        ContextPilotMemory(client).search("q", newer)
        assert service.received[-1] == {"query": "q", "filters": {"user_id": "a"}, "brand_new": 1}
        client.client.close()


def test_a_memory_of_ones_own():
    class Named:
        def search(self, query, *, filters, top_k=20, topk=None, **others):
            return reply(f"{topk} {others}")

    class Closed:
        def search(self, query, filters=None):
            return reply("tea")

    named = ContextPilotMemory(Named())
    assert names(named.search("q", **ALICE, topk=3)) == ["3"]  # what it names is right
    assert named.search("q", **ALICE, language="de")["results"][0]["memory"] == "None {'language': 'de'}"
    twice = ContextPilotMemory(named)
    assert twice.search("q", **ALICE, language="de")["results"][0]["memory"] == "None {'language': 'de'}"
    with pytest.raises(InputError, match="takes no 'top_k'; it takes filters, query"):
        ContextPilotMemory(Closed()).search("q", **ALICE, top_k=3)


def test_a_search_that_does_not_say_what_it_takes():
    class Silent:
        search = type("Search", (), {"__signature__": "none", "__call__": lambda *_, **__: reply("tea")})()

    class Odd:
        def search(self, query, options: "Nowhere" = None, **others):  # noqa: F821, UP037
            return reply("tea")

    for own in (Silent(), Odd()):
        memory = ContextPilotMemory(own)
        assert names(memory.search("q", **ALICE, language="de")) == ["tea"]
        with pytest.raises(InputError, match="did you mean 'top_k'"):
            memory.search("q", **ALICE, topk=3)
