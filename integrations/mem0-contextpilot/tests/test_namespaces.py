"""Namespaces: nobody's order follows from somebody else's memories, and nobody's cache is shared unasked."""

from __future__ import annotations

import datetime

import pytest
from contextpilot_rag import ContextPilot, Namespace
from hypothesis import given
from hypothesis import strategies as st

from measure.workload import MEMORIES
from mem0_contextpilot import ContextPilotMemory

from .stage import LONG, Notes, names, reply


def tenant(filters=None, memory=None, **ids):
    return (memory or ContextPilotMemory(Notes(reply("tea")))).namespace_for(filters, **ids).tenant


@pytest.mark.parametrize(
    "filters",
    [
        {"user_id": "alice", "run_id": 7},
        {"run_id": "7", "user_id": "alice", "category": {"in": ["food"]}},
        {"AND": [{"user_id": "alice"}, {"run_id": "7"}]},
        {
            "user_id": "alice",
            "AND": [{"run_id": "7"}, {"AND": [{"user_id": "alice"}, {"created_at": {"gte": "2026"}}]}],
        },
    ],
)
def test_one_value_for_each_id_is_the_namespace(filters):
    assert tenant(filters) == '{"run_id":"7","user_id":"alice"}'


def test_ids_given_by_name_are_the_same():
    assert tenant(user_id="alice", run_id="7") == tenant({"user_id": "alice"}, run_id="7")
    assert tenant(user_id="alice") != tenant(user_id="alice", run_id="7") != tenant(run_id="7")
    assert tenant(user_id="alice") != tenant(agent_id="alice")


@pytest.mark.parametrize(
    "filters",
    [
        None,
        {},
        {"category": "food"},
        {"user_id": "*"},
        {"user_id": ""},
        {"user_id": None},
        {"user_id": True},
        {"user_id": {"in": ["alice"]}},
        {"user_id": "alice", "run_id": "*"},
        {"user_id": "alice", "OR": [{"run_id": "1"}, {"run_id": "2"}]},
        {"user_id": "alice", "NOT": [{"run_id": "1"}]},
        {"user_id": "alice", "$or": [{"run_id": "1"}]},
        {"user_id": "alice", "AND": [{"OR": [{"run_id": "1"}]}]},
        {"user_id": "alice", "AND": [{"user_id": "bob"}]},
        {"user_id": "alice", "AND": {"user_id": "bob"}},
        {"user_id": "alice", "AND": ["bob"]},
    ],
)
def test_anything_else_is_shared_with_the_same_filters_only(filters):
    assert tenant(filters).startswith('{"filters":')
    assert tenant(filters) not in {
        tenant(user_id="alice"),
        tenant(user_id="alice", run_id="1"),
        tenant({"user_id": "x"}),
    }


def test_filters_of_any_kind_have_a_namespace():
    today = {"OR": [{"created_at": datetime.date(2026, 11, 30)}, {3: {"a"}}, {"flag": True, "none": None}]}
    assert tenant(today) == tenant({"OR": list(today["OR"])})
    assert tenant(today) != tenant({"OR": [{"created_at": "2026-11-30"}, *today["OR"][1:]]})


values = st.sampled_from(["alice", "bob", "1", 1, "*", '"', "{}", "\ud800"])
filters_of = st.dictionaries(
    st.sampled_from(["user_id", "agent_id", "run_id", "tenant", "filters"]), values, max_size=3
)


@given(filters_of, filters_of)
def test_other_owners_other_namespaces(one, other):
    def owner(filters):
        return {key: str(value) for key, value in filters.items() if key.endswith("_id")}

    if owner(one) != owner(other):
        assert tenant(one) != tenant(other)


def test_the_pilots_own_namespace_stays_around_it():
    pilot = ContextPilot(namespace=Namespace("acme", "model-1", "memories"))
    found = ContextPilotMemory(Notes(reply("tea")), pilot).namespace_for(user_id="alice")
    assert found == Namespace('{"tenant":"acme","user_id":"alice"}', "model-1", "memories")
    assert found.tenant != tenant({"user_id": "alice", "tenant": "acme"})


def test_shared_on_purpose():
    notes = Notes(reply(LONG[0], LONG[1]), reply(LONG[1], LONG[0]))
    team = ContextPilotMemory(notes, namespace="team")
    assert team.namespace_for(user_id="alice") == Namespace("team")
    team.search("a", user_id="alice")
    assert names(team.search("b", user_id="bob")) == ["slices", "steps"]
    for_one = ContextPilotMemory(Notes(reply(LONG[1], LONG[0])), team.pilot)
    assert names(for_one.search("b", user_id="bob")) == ["steps", "slices"]
    assert names(for_one.search("b", user_id="bob", namespace="team")) == ["slices", "steps"]
    assert for_one.context("b", user_id="bob", namespace="team").namespace == Namespace("team")
    everybody = ContextPilotMemory(notes, namespace=Namespace())
    assert everybody.extra_body(user_id="alice") == everybody.context("b", user_id="bob").extra_body == {}


def test_users_do_not_meet(own, engine, client):
    """The same texts of two users: what one was sent neither orders the other's, nor is found in the engine's cache."""
    for user in ("alice", "bob"):
        for text in MEMORIES[:10]:
            own.add(text, user_id=user, infer=False)
    memory = ContextPilotMemory(own)
    salts = []
    for user, question in (
        ("alice", "dinner without meat"),
        ("bob", "peas in the freezer"),
        ("alice", "peas in the freezer"),
    ):
        context = memory.context(question, user_id=user, threshold=0.0, conversation="the same name")
        plain = own.search(question, filters={"user_id": user}, threshold=0.0)["results"]
        assert context.results == plain
        assert {one["user_id"] for one in context.results} == {user}
        if user == "bob":
            assert [one["id"] for one in plain] == list(context.labels.values())
            assert (context.again, context.order_hint) == (frozenset(), "")
        body = {**context.extra_body}
        response = client.chat.completions.create(model="none", messages=context.messages(), extra_body=body)
        context.answer(response)
        salts.append(body["cache_salt"])
    assert salts[0] == salts[2] != salts[1]
    assert [request.cache_salt for request in engine.requests] == salts
    assert [request.cached_tokens > 0 for request in engine.requests] == [False, False, True]
    assert memory.extra_body(user_id="alice")["cache_salt"] == salts[0]


def test_what_a_user_is_forgotten_by():
    memory = ContextPilotMemory(Notes(reply(LONG[0], LONG[1]), reply(LONG[1], LONG[0]), reply(LONG[1], LONG[0])))
    for user in ("alice", "bob"):
        memory.context("a", user_id=user, conversation="c").answer("1")
    memory.pilot.forget(memory.namespace_for(user_id="alice"), conversations=True)
    assert memory.context("b", user_id="alice", conversation="c").again == frozenset()
    assert memory.context("b", user_id="bob", conversation="c").again == {1, 2}


def test_a_secret_makes_salts_that_nobody_can_guess():
    notes = Notes(reply("tea"))
    plain, secret = ContextPilotMemory(notes), ContextPilotMemory(notes, ContextPilot(salt_secret="hush"))
    assert plain.extra_body(user_id="alice") == ContextPilotMemory(notes).extra_body(user_id="alice")
    assert plain.extra_body(user_id="alice") != secret.extra_body(user_id="alice")
