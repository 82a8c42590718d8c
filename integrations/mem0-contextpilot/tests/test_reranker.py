"""ContextPilotReranker: aligned order from within a memory; it sees no filters, so the results say whose they are."""

from __future__ import annotations

import copy

import pytest
from contextpilot_rag.errors import SettingsError
from hypothesis import given
from hypothesis import strategies as st

from measure.offline import offline_async_memory
from measure.workload import MEMORIES
from mem0_contextpilot import ContextPilotReranker, order_hint

from .stage import LONG, item, names

ALICE = {"user_id": "alice"}
ONE = "What is for dinner without meat on weekdays?"
OTHER = "Which vegetables are in the freezer, and when does Jonas eat dinner?"


def documents(*texts, **others):
    return [item(text.split()[0], text, **others) for text in texts]


def test_in_a_real_memory(either):
    for text in MEMORIES[:10]:
        either.add(text, user_id="alice", infer=False)
    either.reranker = ContextPilotReranker(order_hint=True)
    asked = {"filters": ALICE, "threshold": 0.0}
    first = either.search(ONE, **asked, rerank=True)
    plain = either.search(OTHER, **asked)
    found = either.search(OTHER, **asked, rerank=True)
    assert names(found)[:3] == names(first)[:3] != names(plain)[:3]
    assert order_hint(first) == ""
    place = names(found).index(plain["results"][0]["id"]) + 1
    assert order_hint(found["results"]).startswith(f"Order of relevance, best first: [{place}] > ")
    assert order_hint(found) == order_hint(found["results"])
    assert sorted(names(found)) == sorted(names(plain))


async def test_in_a_real_async_memory(tmp_path):
    async with offline_async_memory(tmp_path, MEMORIES) as memory:
        for text in MEMORIES[:10]:
            await memory.add(text, user_id="alice", infer=False)
        memory.reranker = ContextPilotReranker(order_hint=True)
        first, second = [
            await memory.search(question, filters=ALICE, threshold=0.0, rerank=True) for question in (ONE, OTHER)
        ]
    assert names(first)[:3] == names(second)[:3]
    assert order_hint(second["results"]).startswith("Order of relevance")


def test_the_same_dicts():
    reranker = ContextPilotReranker()
    first, second = documents(*LONG[:2], **ALICE), documents(*LONG[2::-1], **ALICE)
    before = copy.deepcopy(second)
    assert reranker.rerank("a", first) == first
    found = reranker.rerank("b", second, 3)
    assert [one["id"] for one in found] == ["slices", "steps", "copies"]
    assert sorted(map(id, found)) == sorted(map(id, second))
    assert second == before


@pytest.mark.parametrize(("options", "hint"), [({}, ""), ({"order_hint": "best"}, "Most relevant: [3]")])
def test_there_is_no_hint_unless_it_is_asked_for(options, hint):
    reranker = ContextPilotReranker(**options)
    reranker.rerank("a", documents(*LONG[:2], **ALICE))
    found = reranker.rerank("b", documents(*LONG[2::-1], **ALICE))
    assert [one["id"] for one in found] == ["slices", "steps", "copies"]
    assert order_hint({"results": found}) == found.order_hint == hint


def test_no_more_than_top_k():
    reranker = ContextPilotReranker()
    reranker.rerank("a", documents(*LONG[:2], **ALICE))
    found = reranker.rerank("b", documents(*LONG[1::-1], *LONG[2:], **ALICE), 2)
    assert [one["id"] for one in found] == ["slices", "steps"]  # the best two, in the order that was sent before


@pytest.mark.parametrize(
    ("first", "second", "aligned"),
    [
        ([{"user_id": "alice"}] * 2, [{"user_id": "alice"}] * 2, True),
        ([{"user_id": "alice"}] * 2, [{"user_id": "bob"}] * 2, False),
        ([{"user_id": "alice"}] * 2, [{"user_id": "alice"}, {"user_id": "bob"}], False),
        ([{"user_id": "alice"}] * 2, [{"user_id": "alice"}, {}], False),
        ([{"user_id": "alice"}] * 2, [{"user_id": "alice", "run_id": "1"}, {"user_id": "alice", "run_id": "2"}], True),
        ([{"user_id": "alice"}] * 2, [{"user_id": "alice", "run_id": "1"}] * 2, False),
        ([{"agent_id": "cook"}] * 2, [{"agent_id": "cook"}] * 2, True),
        (
            [{"agent_id": "cook"}] * 2,
            [{"agent_id": "cook", "user_id": "a"}, {"agent_id": "cook", "user_id": "b"}],
            False,
        ),
        ([{"agent_id": "cook"}] * 2, [{"agent_id": "cook", "run_id": "1"}, {"agent_id": "cook"}], False),
        ([{}] * 2, [{}] * 2, False),
    ],
)
def test_whose_memories_they_are(first, second, aligned):
    reranker = ContextPilotReranker()
    reranker.rerank("a", [item(str(place), LONG[place], **ids) for place, ids in enumerate(first)])
    given_items = [item(str(1 - place), LONG[1 - place], **ids) for place, ids in enumerate(second)]
    found = reranker.rerank("b", given_items)
    assert [one["id"] for one in found] == (["0", "1"] if aligned else ["1", "0"])
    assert reranker.failures == 0


def test_shared_on_purpose():
    reranker = ContextPilotReranker(namespace="team")
    reranker.rerank("a", documents(*LONG[:2], user_id="alice"))
    found = reranker.rerank("b", documents(*LONG[1::-1], user_id="bob"))
    assert [one["id"] for one in found] == ["slices", "steps"]


class BestFirst:
    """Another reranker: by length."""

    def rerank(self, query, documents, top_k=None):
        if query == "fails":
            raise TimeoutError("no answer")
        return sorted(documents, key=lambda one: len(one["memory"]))[:top_k]


def test_another_reranker_goes_first():
    reranker = ContextPilotReranker(reranker=BestFirst())
    assert [one["id"] for one in reranker.rerank("a", documents(*LONG, **ALICE), 2)] == ["sets", "steps"]
    with pytest.raises(TimeoutError):
        reranker.rerank("fails", documents(*LONG, **ALICE))
    with pytest.raises(SettingsError, match="rerank"):
        ContextPilotReranker(reranker=object())


@pytest.mark.parametrize("wrong", [{"order": "best"}, {"namespace": ""}])
def test_settings_are_checked_at_once(wrong):
    with pytest.raises(SettingsError):
        ContextPilotReranker(**wrong)


ids = st.dictionaries(st.sampled_from(["user_id", "agent_id", "run_id"]), st.sampled_from(["a", "b", None]), max_size=3)
one_item = st.tuples(st.sampled_from([*LONG, "", "a", None]), ids)


@given(st.lists(st.lists(one_item, max_size=5), max_size=4), st.sampled_from([None, "team"]))
def test_nothing_is_lost_or_added(lists, namespace):
    reranker = ContextPilotReranker(namespace=namespace, order="throughput", min_gain=0)
    for given_list in lists:
        given_items = [item(str(place), text, **own) for place, (text, own) in enumerate(given_list)]
        found = reranker.rerank("?", given_items, len(given_items))
        assert sorted(map(id, found)) == sorted(map(id, given_items))
    assert reranker.failures == 0
