"""Formats: what is read of a request is what stands in it, where it stands, and nothing else is."""

from __future__ import annotations

import json
from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag.dedup.messages import with_texts
from contextpilot_rag.proxy.formats.table import FORMATS, api_of
from tests.proxy.bodies import CASES, shown


def at(body, path):
    return reduce(lambda value, step: value[step], path, body)


@pytest.mark.parametrize(("api", "body", "expected"), CASES)
def test_what_is_read_of_a_body(api, body, expected):
    before = json.dumps(body)
    assert shown(api, body) == expected
    assert json.dumps(body) == before


@pytest.mark.parametrize(("api", "body", "expected"), CASES)
def test_each_path_leads_to_what_was_read(api, body, expected):
    held(api, body)


def held(api, body):
    """Read a body, and check whatever holds for all of them."""
    asked = FORMATS[api].read(body)
    if asked is None:
        return
    assert asked.api == api
    assert asked.body is body
    assert asked.messages
    seen = set()
    for number, message in enumerate(asked.messages, start=1):
        assert message.number == number
        assert at(body, message.path) is message.value
        places = [text.place for text in message.texts]
        assert len(set(places)) == len(places)
        for text in message.texts:
            assert at(body, text.path) is text.text
            assert isinstance(text.text, str)
            assert text.path[: len(message.path)] == message.path
            assert text.number == number
            assert text.path not in seen
            assert text.part is not None or len(message.texts) == 1
            seen.add(text.path)
        assert [text.part or 0 for text in message.texts] == sorted(text.part or 0 for text in message.texts)
        assert message.role == "user" or {text.role for text in message.texts} <= {message.role}


def test_the_model_is_named_if_it_is_a_text():
    assert FORMATS["completions"].read({"model": "m", "prompt": "p"}).model == "m"
    assert FORMATS["completions"].read({"model": 3, "prompt": "p"}).model == ""
    assert FORMATS["completions"].read({"prompt": "p"}).model == ""


words = st.sampled_from(
    "messages input prompt system instructions role content type text output user assistant tool function developer "
    "message function_call_output input_text output_text tool_result model".split()
)
json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), words, st.text(max_size=3)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.one_of(words, st.text(max_size=3)), inner, max_size=4)
    ),
    max_leaves=20,
)
parts = st.one_of(
    json_values,
    st.fixed_dictionaries({"type": words, "text": st.one_of(st.text(max_size=3), json_values)}),
    st.fixed_dictionaries({"type": st.just("tool_result"), "content": json_values}),
    st.fixed_dictionaries(
        {
            "type": st.just("tool_result"),
            "content": st.lists(st.fixed_dictionaries({"type": words, "text": st.text(max_size=3)}), max_size=3),
        }
    ),
)
contents = st.one_of(st.text(max_size=3), st.lists(parts, max_size=4), json_values)
members = st.one_of(
    json_values,
    st.fixed_dictionaries({"role": words, "content": contents}),
    st.fixed_dictionaries({"role": words, "content": contents, "type": st.one_of(st.none(), words)}),
    st.fixed_dictionaries({"type": st.just("function_call_output"), "output": contents}),
)


@given(st.sampled_from(sorted(FORMATS)), json_values)
def test_reading_never_raises_whatever_a_body_is(api, body):
    held(api, body)


@given(
    st.sampled_from(sorted(FORMATS)),
    st.fixed_dictionaries(
        {},
        optional={
            "messages": st.one_of(st.lists(members, max_size=4), json_values),
            "input": st.one_of(st.text(max_size=3), st.lists(members, max_size=4), json_values),
            "prompt": st.one_of(st.text(max_size=3), st.lists(st.text(max_size=3), max_size=2), json_values),
            "system": contents,
            "instructions": st.one_of(st.text(max_size=3), json_values),
            "model": st.one_of(st.text(max_size=3), json_values),
        },
    ),
)
def test_reading_never_raises_whatever_a_request_holds(api, body):
    held(api, body)


@given(st.lists(members.filter(lambda one: isinstance(one, dict)), min_size=1, max_size=3))
def test_texts_of_chat_messages_have_the_places_that_expand_knows_them_by(messages):
    for message in FORMATS["chat"].read({"messages": messages}).messages:
        places = {}

        def note(place, text, places=places):
            places[place] = text
            return text

        with_texts(message.value, message.number, note)
        if message.texts:
            assert {text.place: text.text for text in message.texts} == places


@pytest.mark.parametrize(
    ("method", "path", "api"),
    [
        ("POST", "/v1/chat/completions", "chat"),
        ("POST", b"/v1/chat/completions", "chat"),
        ("POST", "/v1/completions", "completions"),
        ("POST", "/v1/responses", "responses"),
        ("POST", "/v1/messages", "messages"),
        ("POST", "/openai/v1/chat/completions", "chat"),
        ("POST", "/chat/completions", "chat"),
        ("POST", "/openai/deployments/a/chat/completions", "chat"),
        ("POST", "/anthropic/v1/messages", "messages"),
        ("GET", "/v1/chat/completions", None),
        ("GET", "/v1/responses", None),
        ("DELETE", "/v1/responses", None),
        ("POST", "/v1/messages/count_tokens", None),
        ("POST", "/v1/messages/batches", None),
        ("POST", "/v1/responses/r/cancel", None),
        ("POST", "/v1/responses/", None),
        ("POST", "/v1/embeddings", None),
        ("POST", "/xv1/messages", None),
        ("POST", "/v1/chat/completions\xff", None),
        ("POST", b"/v1/chat/completions\xff", None),
        ("POST", b"\xff/v1/messages", "messages"),
        ("POST", "", None),
    ],
)
def test_what_is_sent_where_says_its_format(method, path, api):
    assert api_of(method, path) == api
