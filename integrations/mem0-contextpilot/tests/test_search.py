"""search: the memory's own results, all of them and as they are, in an order that the cache can reuse."""

from __future__ import annotations

import copy
import json
import pickle
import re

import pytest
from contextpilot_rag import ContextPilot
from contextpilot_rag.errors import InputError, SettingsError
from hypothesis import given
from hypothesis import strategies as st

from measure.offline import offline_memory
from measure.workload import MEMORIES
from mem0_contextpilot import AlignedResults, AsyncContextPilotMemory, ContextPilotMemory, order_hint

from .stage import LONG, AsyncNotes, Notes, item, names, reply

ALICE = {"user_id": "alice"}
ONE = "What can I cook in the slow cooker?"
OTHER = "Which dinner uses up spinach and bread?"


def everything(memory, question, **arguments):
    return memory.search(question, top_k=30, threshold=0.0, **arguments)


def test_the_real_memory_in_aligned_order(filled):
    memory = ContextPilotMemory(filled)
    first = everything(memory, ONE, user_id="alice")
    assert first == everything(filled, ONE, filters=ALICE)  # nothing is cached yet: as the memory has it
    assert type(first) is dict
    assert order_hint(first) == order_hint(first["results"]) == ""
    second, plain = everything(memory, OTHER, user_id="alice"), everything(filled, OTHER, filters=ALICE)
    assert names(second) != names(plain)
    assert names(second)[:5] == names(first)[:5]
    assert sorted(second["results"], key=lambda found: -found["score"]) == plain["results"]
    assert second.keys() == plain.keys()


def test_the_order_that_was_found_is_still_known(filled):
    memory = ContextPilotMemory(filled, order_hint=True)
    everything(memory, ONE, user_id="alice")
    found, plain = everything(memory, OTHER, user_id="alice"), names(everything(filled, OTHER, filters=ALICE))
    assert [plain[rank] for rank in found.ranks] == names(found)
    best = names(found).index(plain[0]) + 1
    assert order_hint(found) == found.order_hint
    assert found.order_hint.startswith(f"Order of relevance, best first: [{best}] > ")
    assert json.loads(json.dumps(found)) == found  # the results are plain dicts without anything of ours
    assert not any("contextpilot" in memory for memory in found["results"])
    for same in (copy.deepcopy(found), copy.copy(found), pickle.loads(pickle.dumps(found))):
        assert (same, same.ranks, order_hint(same)) == (found, found.ranks, order_hint(found))


def test_the_results_alone_know_it_too():
    """``search(...)["results"]`` is what most programs hold on to; and the hint goes into an f-string."""
    memory = ContextPilotMemory(Notes(reply(LONG[0], LONG[1]), reply(LONG[2], LONG[1], LONG[0])), order_hint=True)
    assert f"{order_hint(memory.search('a', **ALICE)['results'])}" == ""
    found = memory.search("b", **ALICE)
    results = found["results"]
    assert isinstance(results, list)
    assert results == list(results)
    hint = "Order of relevance, best first: [3] > [2] > [1]"
    assert order_hint(results) == order_hint(found) == results.order_hint == hint
    for same in (copy.deepcopy(results), copy.copy(results), results[:], pickle.loads(pickle.dumps(results))):
        assert (same, order_hint(same)) == (results, hint)
    assert order_hint(results[1:]) == "Order of relevance, best first: [2] > [1]"
    assert order_hint(results[0]) == order_hint(list(results)) == order_hint(None) == ""


def test_there_is_none_unless_it_is_asked_for():
    memory = ContextPilotMemory(Notes(reply(*LONG[:2]), reply(*LONG[::-1])))
    memory.search("a", **ALICE)
    found = memory.search("b", **ALICE)
    assert found.ranks == (4, 3, 0, 1, 2)
    assert order_hint(found) == order_hint(found["results"]) == ""


@pytest.mark.parametrize(
    ("options", "hint"),
    [({}, "Most relevant: [3]"), ({"order_hint": False}, "")],
    ids=["the pilot's", "the memory's own word counts"],
)
def test_a_pilot_can_ask_for_it(options, hint):
    notes = Notes(reply(*LONG[:2]), reply(*LONG[::-1]))
    memory = ContextPilotMemory(notes, ContextPilot(order_hint="best"), **options)
    memory.search("a", **ALICE)
    found = memory.search("b", **ALICE)
    assert found.ranks == (4, 3, 0, 1, 2)
    assert order_hint(found) == hint


@given(st.lists(st.integers(0, 4), max_size=6))
def test_it_is_never_wrong_whatever_becomes_of_the_list(changes):
    memory = ContextPilotMemory(Notes(reply(*LONG[:2]), reply(*LONG[::-1])), order_hint=True)
    memory.search("a", **ALICE)
    found = memory.search("b", **ALICE)["results"]
    rank_of = {text.split()[0]: rank for rank, text in enumerate(LONG[::-1])}
    for change in changes:
        (
            found.reverse,
            lambda: found.sort(key=lambda one: one["id"]),
            lambda: found.pop() if found else None,
            lambda: found.insert(0, found.pop()) if found else None,
            lambda: found.append(item("new", "new")),
        )[change]()
    ranks = [rank_of.get(one["id"]) for one in found]
    cited = [int(number) - 1 for number in re.findall(r"\d+", order_hint(found))]
    if None in ranks or ranks == sorted(ranks):
        assert cited == []
    else:
        assert [ranks[place] for place in cited] == sorted(ranks)


def test_the_memorys_own_order_on_request(filled):
    memory = ContextPilotMemory(filled)
    everything(memory, ONE, user_id="alice")
    assert everything(memory, OTHER, user_id="alice", keep_order=True) == everything(filled, OTHER, filters=ALICE)
    assert memory.pilot.stats().requests == 1  # what keeps its order does not count as sent


def test_the_same_objects_and_every_other_key():
    more = {"relations": [{"source": "alice"}], "count": 3}
    first, second = reply(*LONG[:3]), reply(LONG[2], LONG[1], LONG[0], **more)
    notes = Notes(first, second)
    before = copy.deepcopy(second)
    memory = ContextPilotMemory(notes)
    assert memory.search("a", **ALICE) is first
    found = memory.search("b", **ALICE)
    assert names(found) == ["slices", "steps", "copies"]
    assert {key: found[key] for key in more} == more
    assert {id(one) for one in found["results"]} == {id(one) for one in second["results"]}
    assert second == before


def test_copies_of_a_text_stay_at_the_end():
    """``add(..., infer=False)`` stores a text as often as it comes; search returns every one of them."""
    twice = {"results": [item("c2", LONG[2]), item("s1", LONG[0]), item("c1", LONG[2]), item("t1", LONG[1])]}
    memory = ContextPilotMemory(Notes(reply(LONG[0], LONG[1]), twice))
    memory.search("a", **ALICE)
    assert names(memory.search("b", **ALICE)) == ["s1", "t1", "c2", "c1"]


def test_a_text_that_is_stored_twice(either):
    for text in ("Alice drinks tea with milk.", "Alice drinks tea with milk.", "Jonas drinks coffee."):
        either.add(text, user_id="alice", infer=False)
    memory = ContextPilotMemory(either)
    found = memory.search("Who drinks tea?", user_id="alice", threshold=0.0)
    assert len(found["results"]) == 3
    context = memory.context("Who drinks tea?", user_id="alice", threshold=0.0)
    assert context.user_message.count("Alice drinks tea with milk.") == 1
    assert sorted(len(memories) for memories in context.memories.values()) == [1, 2]


def test_what_has_no_text_comes_last():
    odd = [item("none", None), item("empty", ""), {"id": "bare"}, "not a mapping"]
    mixed = {"results": [odd[0], item("2", LONG[1]), odd[1], item("1", LONG[0]), odd[2], odd[3]]}
    memory = ContextPilotMemory(Notes(reply(LONG[0]), mixed))
    memory.search("a", **ALICE)
    found = memory.search("b", **ALICE)["results"]
    assert [one["id"] for one in found[:2]] == ["1", "2"]
    assert found[2:] == odd
    assert memory.failures == 0


texts = st.one_of(st.sampled_from(["", "a", "a ", "[1] a", "</documents>", "\x00", "\ud800", "{x}", *LONG]), st.text())


@given(st.lists(st.lists(texts, max_size=6), max_size=4), st.sampled_from(["balanced", "throughput"]))
def test_nothing_is_lost_or_added(replies, order):
    memory = ContextPilotMemory(Notes(None), order=order, min_gain=0)
    for given_texts in replies:
        items = [item(str(place), text) for place, text in enumerate(given_texts)]
        memory.memory.replies = [{"results": list(items)}]
        found = memory.search("?", **ALICE)
        assert sorted(map(id, found["results"])) == sorted(map(id, items))
        ranks = found.ranks if isinstance(found, AlignedResults) else range(len(items))
        assert [items[rank] for rank in ranks] == found["results"]
    assert memory.failures == 0


def test_ids_become_filters():
    notes = Notes(reply("tea"))
    memory = ContextPilotMemory(notes)
    filters = {"category": "food"}
    memory.search("q", user_id="alice", agent_id="cook", run_id="r1", filters=filters, threshold=0.3)
    assert notes.calls == [
        {
            "query": "q",
            "threshold": 0.3,
            "filters": {"category": "food", "user_id": "alice", "agent_id": "cook", "run_id": "r1"},
        }
    ]
    assert filters == {"category": "food"}


@pytest.mark.parametrize(
    "filters",
    [
        {"user_id": "bob"},
        {"AND": [{"category": "food"}, {"user_id": "bob"}]},
        {"user_id": "*"},
        {"user_id": {"in": ["alice", "bob"]}},
        ["user_id"],
    ],
)
def test_ids_that_do_not_agree_are_an_error(filters):
    notes = Notes(reply("tea"))
    for call in (ContextPilotMemory(notes).search, ContextPilotMemory(notes).context):
        with pytest.raises(InputError, match="filters"):
            call("q", user_id="alice", filters=filters)
    assert notes.calls == []


def test_ids_that_agree_are_not():
    notes = Notes(reply("tea"))
    ContextPilotMemory(notes).search("q", user_id=7, filters={"AND": [{"user_id": "7"}]})
    assert notes.calls[0]["filters"] == {"AND": [{"user_id": 7}, {"AND": [{"user_id": "7"}]}]}


def test_what_the_real_memory_makes_of_them(tmp_path):
    with offline_memory(tmp_path, MEMORIES, "qdrant") as own:  # the faiss store finds nothing with OR
        for user, place in (("alice", "home"), ("alice", "work"), ("alice", "sea"), ("bob", "home")):
            own.add(f"Tea at {place} for {user}.", user_id=user, metadata={"place": place}, infer=False)
        memory = ContextPilotMemory(own)
        either_place = {"OR": [{"place": "home"}, {"place": "work"}]}
        found = memory.search("tea", user_id="alice", filters=either_place, threshold=0.0)["results"]
        assert sorted(one["memory"] for one in found) == ["Tea at home for alice.", "Tea at work for alice."]
        assert memory.search("tea", user_id="carol", threshold=0.0)["results"] == []
        with pytest.raises(ValueError, match="must contain at least one of"):
            memory.search("tea")


def test_limit_is_top_k(filled):
    """Mem0 2 takes ``limit`` and does nothing, so that whoever comes from 1.x gets 20 results without a word."""
    memory = ContextPilotMemory(filled)
    for few in ({"limit": 3}, {"top_k": 3}, {"limit": 3, "top_k": 3}):
        assert len(memory.search(ONE, **ALICE, threshold=0.0, **few)["results"]) == 3
    assert len(memory.search(ONE, **ALICE, threshold=0.0, limit=None)["results"]) > 10
    with pytest.raises(InputError, match="limit=3 and top_k=4"):
        memory.search(ONE, **ALICE, limit=3, top_k=4)


def test_everything_else_is_the_memorys_own(own):
    with ContextPilotMemory(own) as memory:
        assert isinstance(memory, ContextPilotMemory)
        name = memory.add("Alice drinks tea.", user_id="alice", infer=False)["results"][0]["id"]
        memory.update(name, "Alice drinks coffee.")
        assert memory.get(name)["memory"] == "Alice drinks coffee."
        assert [one["id"] for one in memory.get_all(filters=ALICE)["results"]] == [name]
        assert len(memory.history(name)) == 2
        assert memory.config is own.config
        assert {"search", "context", "get_all", "delete_all"} <= set(dir(memory))
        memory.delete(name)
        assert memory.search("tea?", user_id="alice")["results"] == []
        memory.reranker = "set on the memory"
        assert own.reranker == "set on the memory"
        del memory.reranker
        assert not hasattr(own, "reranker")
        assert memory.memory is own
    with pytest.raises(AttributeError, match="nothing_like_it"):
        _ = memory.nothing_like_it
    with pytest.raises(AttributeError, match="pilot cannot be set"):
        memory.pilot = ContextPilot()
    assert "Memory object" in repr(memory)
    assert copy.copy(memory).memory is own


@pytest.mark.parametrize("wrong", [None, object(), AsyncNotes(reply("tea"))])
def test_what_cannot_be_searched_is_said_at_once(wrong):
    with pytest.raises(SettingsError, match=r"search|await"):
        ContextPilotMemory(wrong)


def test_settings_are_checked_at_once():
    notes = Notes(reply("tea"))
    for wrong in ({"order": "best"}, {"namespace": ""}, {"pilot": "http://"}):
        for kind in (ContextPilotMemory, AsyncContextPilotMemory):
            with pytest.raises(SettingsError):
                kind(notes, **wrong)


def test_usage_of_a_prompt_that_somebody_else_rendered(filled, client):
    memory = ContextPilotMemory(filled)
    for question in (ONE, OTHER):
        found = everything(memory, question, user_id="alice")
        lines = [f"[{place}] {one['memory']}" for place, one in enumerate(found["results"], start=1)]
        sent = "\n".join([*lines, order_hint(found) or "", question])
        body = memory.extra_body(user_id="alice")
        response = client.chat.completions.create(
            model="none", messages=[{"role": "user", "content": sent}], extra_body=body
        )
        usage = memory.learn(sent, response, namespace=memory.namespace_for(user_id="alice"))
        assert usage.prompt_tokens == response.usage.prompt_tokens
    assert usage.cached_tokens > 150
    assert memory.learn(sent, response) is None  # each search once
    everything(memory, OTHER, user_id="alice")
    assert (
        memory.learn([{"role": "user", "content": sent}], response) == usage
    )  # the messages are as good as their text
    assert memory.pilot.stats().reported_cached_tokens == 2 * usage.cached_tokens


@pytest.mark.parametrize("kind", [ContextPilotMemory, AsyncContextPilotMemory])
def test_what_nothing_can_be_learnt_from_is_an_error(kind):
    memory = kind(Notes(reply("tea")))
    report = {"usage": {"prompt_tokens": 9}}
    for wrong in (report, None, 7, b"tea", [7], [{"role": "user", "content": "tea"}, "tea"]):
        with pytest.raises(InputError, match=r"what was sent|must be a mapping"):
            memory.learn(wrong, "tea")
    for wrong in ("answer", [report]):
        with pytest.raises(InputError, match="the engine's response"):
            memory.learn("tea", wrong)
    assert memory.learn("tea", report) is None  # nothing was looked for


@pytest.mark.parametrize("kind", [ContextPilotMemory, AsyncContextPilotMemory])
@pytest.mark.parametrize("wrong", ["alice", 7, ["user_id"], ("alice",)])
def test_an_id_without_its_name_is_an_error(kind, wrong):
    """It would be nobody's namespace, and its salt one that no search has."""
    memory = kind(Notes(reply("tea")))
    for call in (memory.extra_body, memory.namespace_for):
        with pytest.raises(InputError, match=r"filters must be a mapping.*user_id='alice'"):
            call(wrong)
    assert memory.extra_body({"user_id": "alice"}) == memory.extra_body(user_id="alice") != memory.extra_body()
