"""The explicit form: what a client may say of its blocks, and what it is told where it cannot be."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag import Block
from contextpilot_rag.proxy.explicit import MAX_BLOCKS, SYSTEM, explicit_of, opening_key
from contextpilot_rag.proxy.formats.table import FORMATS
from contextpilot_rag.proxy.problems import Unusable
from contextpilot_rag.proxy.words import Removal
from tests.proxy.explicitly import read, said

SYSTEM_MESSAGE = {"role": "system", "content": "Be brief."}
USER = {"role": "user", "content": "Why?"}
ANSWER = {"role": "assistant", "content": "Because."}
RESULT = {"role": "tool", "tool_call_id": "a", "content": "42"}


def chat(*messages: dict[str, Any], **field: Any) -> dict[str, Any]:
    return {"model": "m", "messages": list(messages), "contextpilot": field}


def refused(body: dict[str, Any], api: str = "chat") -> Unusable:
    with pytest.raises(Unusable) as caught:
        explicit_of(read(body, api))  # type: ignore[arg-type]
    return caught.value


def test_a_request_that_says_nothing_has_no_field():
    assert explicit_of(read({"messages": [USER]})) is None


def test_blocks_are_texts_or_objects_and_belong_to_the_last_user_message():
    block = {"id": 7, "text": "b", "tokens": 3, "score": 1}
    found = said(chat(SYSTEM_MESSAGE, USER, ANSWER, USER, RESULT, blocks=["a", block], order="fixed", min_gain=0))
    assert list(found.given) == [4]
    assert found.given[4].blocks == (Block("a"), Block("b", 7, 3, 1.0))
    assert found.given[4].options == {"order": "fixed", "min_gain": 0}
    assert found.removals == (Removal(("contextpilot",)),)
    assert found.conversation is None


def test_a_message_has_its_own_blocks_and_the_field_is_removed_from_it():
    own = {**USER, "contextpilot": {"blocks": ["a"], "max_displacement": None}}
    found = said({"messages": [own, ANSWER, {**USER, "contextpilot": None}], "contextpilot": {"conversation": "c"}})
    assert found.given[1].blocks == (Block("a"),)
    assert found.given[1].options == {"max_displacement": None}
    assert found.given[3].blocks == ()
    assert set(found.removals) == {
        Removal(("messages", 0, "contextpilot")),
        Removal(("messages", 2, "contextpilot")),
        Removal(("contextpilot",)),
    }
    assert found.conversation == "c"


@pytest.mark.parametrize(
    ("position", "number"), [("user", 4), ("system", 1), (1, 1), (2, 2), (4, 4), (-1, 4), (-3, 2), (None, 4)]
)
def test_a_position_is_a_message(position, number):
    found = said(chat(SYSTEM_MESSAGE, USER, ANSWER, USER, blocks=["a"], position=position))
    assert list(found.given) == [number]


@pytest.mark.parametrize("position", [0, 5, -5, 3, 10**30, "first", True, 1.5, ["user"]])
def test_a_position_that_is_no_user_or_system_message_is_refused(position):
    problem = refused(chat(SYSTEM_MESSAGE, USER, ANSWER, USER, blocks=["a"], position=position))
    assert problem.param == "contextpilot.position"
    assert problem.status == 400


BEHIND = {"contextpilot": {"blocks": ["a"], "position": "system"}}


@pytest.mark.parametrize(("api", "body"), [("messages", {"messages": [USER]}), ("responses", {"input": "Why?"})])
def test_a_system_prompt_that_stands_apart_is_added(api, body):
    found = said({**body, **BEHIND}, api)
    assert list(found.given) == [SYSTEM]


def test_an_order_is_remembered_for_its_message_and_its_blocks():
    keys = [b"1", b"2", b"3", b"4"]
    both = chat(
        SYSTEM_MESSAGE, USER, ANSWER, {**USER, "contextpilot": {"blocks": ["c"]}}, blocks=["a", "b"], position=2
    )
    key = opening_key(said(both), keys)
    assert opening_key(said({**both, "contextpilot": {"blocks": ["a", "b"], "position": -3}}), keys) == key
    for other in ({"blocks": ["b", "a"], "position": 2}, {"blocks": ["a", "b"], "position": 1}, {"blocks": []}):
        assert opening_key(said({**both, "contextpilot": other}), keys) not in {key, None}
    assert opening_key(said(chat(USER)), keys) is None


@pytest.mark.parametrize(("api", "body"), [("chat", {"messages": [USER]}), ("completions", {"prompt": "Once"})])
def test_a_system_message_has_to_be_there(api, body):
    problem = refused({**body, **BEHIND}, api)
    assert problem.param == "contextpilot.position"
    assert "no system message" in str(problem)


def test_a_position_that_is_none_hears_which_there_are():
    problem = refused({"messages": [USER], "contextpilot": {"blocks": ["a"], "position": "top"}}, "chat")
    assert str(problem) == "contextpilot.position: 'top' is none of user, system, and numbers of messages"


@pytest.mark.parametrize(
    ("field", "param", "says"),
    [
        ({"blcks": []}, "contextpilot", "did you mean 'blocks'?"),
        ({"zzzz" * 50: 1}, "contextpilot", "there are blocks, order"),
        ({"blocks": "a"}, "contextpilot.blocks", "array"),
        ({"blocks": [1]}, "contextpilot.blocks[0]", "int"),
        ({"blocks": ["a", "b", {"text": 1}]}, "contextpilot.blocks[2].text", "str"),
        ({"blocks": [{"id": "a"}]}, "contextpilot.blocks[0]", "text"),
        ({"blocks": [{"text": "a", "id": 1.5}]}, "contextpilot.blocks[0].id", "float"),
        ({"blocks": [{"text": "a", "txt": "a"}]}, "contextpilot.blocks[0]", "did you mean 'text'?"),
        ({"blocks": [{"text": "a", "tokens": 0}]}, "contextpilot.blocks[0].tokens", ">= 1"),
        ({"blocks": ["a"] * (MAX_BLOCKS + 1)}, "contextpilot.blocks", "4096"),
        ({"order": "best"}, "contextpilot.order", "'best' is none of retrieved, balanced, throughput, fixed"),
        ({"min_gain": 2}, "contextpilot.min_gain", "1"),
        ({"protect_top": -1}, "contextpilot.protect_top", "0"),
        ({"order_hint": 1}, "contextpilot.order_hint", "bool"),
        ({"conversation": ""}, "contextpilot.conversation", "1"),
        ({"conversation": "x" * 257}, "contextpilot.conversation", "256"),
        (["a"], "contextpilot", "array"),
        ("a", "contextpilot", "str"),
    ],
)
def test_an_error_says_what_and_where(field, param, says):
    problem = refused({"messages": [USER], "contextpilot": field})
    assert problem.param == param
    assert says in str(problem)
    own = refused({"messages": [SYSTEM_MESSAGE, {**USER, "contextpilot": field}]}) if "conv" not in param else None
    assert own is None or own.param == f"messages[1].{param}"


@pytest.mark.parametrize("name", ["position", "conversation"])
def test_what_belongs_to_the_body_is_refused_in_a_message(name):
    problem = refused({"messages": [{**USER, "contextpilot": {name: "c"}}]})
    assert "belongs to the body" in str(problem)


@pytest.mark.parametrize("message", [ANSWER, RESULT, {"role": "critic", "content": "No."}])
def test_only_user_and_system_messages_have_blocks(message):
    problem = refused({"messages": [USER, {**message, "contextpilot": {"blocks": []}}, USER]})
    assert problem.param == "messages[1].contextpilot"


def test_a_message_is_not_given_blocks_twice():
    problem = refused({**chat({**USER, "contextpilot": {"blocks": ["a"]}}, blocks=["b"])})
    assert "others" in str(problem)


def test_a_message_whose_content_is_no_text_is_refused():
    assert refused({"messages": [{"role": "user", "content": 5, "contextpilot": {"blocks": ["a"]}}]})
    assert refused(chat({"role": "user", "content": 5}, blocks=["a"])).param == "contextpilot.position"


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
_fields = _json | st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("blocks", "position", "conversation", "order", "min_gain", "echo"), _json)
)
_roles = st.sampled_from(["user", "system", "assistant", "tool", "developer", "x"])
_messages = st.lists(
    st.fixed_dictionaries({"role": _roles, "content": _json}, optional={"contextpilot": _fields}), max_size=4
)


@given(_messages, _fields, st.sampled_from(["chat", "messages", "responses"]))
def test_whatever_is_said_is_read_or_refused(messages, field, api):
    body = {"input" if api == "responses" else "messages": messages, "contextpilot": field}
    asked = FORMATS[api].read(json.loads(json.dumps(body)))
    if asked is None:
        return
    problem = None
    try:
        found = explicit_of(asked)
    except Unusable as caught:
        problem = caught
    assert found is not None if problem is None else problem.param
