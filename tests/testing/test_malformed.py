"""FakeEngine and bodies that no client should send: 4xx, never 5xx."""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag.errors import (
    InputError,
)
from contextpilot_rag.testing import FakeEngine, chat, routes
from tests.testing.common import ENGLISH, chat_body, post


def nested(depth, inner=b"1"):
    part = b'{"type":"x","x":' + b"[" * depth + inner + b"]" * depth + b"}"
    return b'{"messages":[{"role":"user","content":[' + part + b"]}]}"


def one_message(**message):
    return json.dumps({"messages": [message]}).encode()


MALFORMED = {
    "empty": b"",
    "not JSON": b"messages=1",
    "not JSON after all": b'{"messages":[]} {}',
    "array": b"[1, 2]",
    "number": b"1",
    "null": b"null",
    "string": b'"messages"',
    "invalid UTF-8": b'{"messages":[{"role":"user","content":"\xff\xfe"}]}',
    "lone surrogate": b'{"messages":[{"role":"user","content":"\\ud800"}]}',
    "NUL": b"\x00" * 10,
    "not a number": b'{"messages":[{"role":"user","content":"a"}],"n":NaN}',
    "deep array": b"[" * 100_000,
    "deep object": b'{"messages":' * 100_000,
    "deep part": nested(100_000),
    "huge exponent": b'{"messages":[{"role":"user","content":"a"}],"max_tokens":1e999}',
    "huge number": b'{"messages":[{"role":"user","content":"a"}],"max_tokens":' + b"9" * 100_000 + b"}",
    "no messages": b'{"model":"m"}',
    "messages null": b'{"messages":null}',
    "messages empty": b'{"messages":[]}',
    "messages text": b'{"messages":"a"}',
    "message a number": b'{"messages":[1]}',
    "role missing": one_message(content="a"),
    "role empty": one_message(role="", content="a"),
    "role a number": one_message(role=1, content="a"),
    "content missing": one_message(role="user"),
    "content null": one_message(role="user", content=None),
    "content a number": one_message(role="user", content=1),
    "content an object": one_message(role="user", content={"type": "text", "text": "a"}),
    "part a text": one_message(role="user", content=["a"]),
    "part without type": one_message(role="user", content=[{"text": "a"}]),
    "text part without text": one_message(role="user", content=[{"type": "text"}]),
    "text part with a number": one_message(role="user", content=[{"type": "text", "text": 1}]),
    "tool_calls an object": one_message(role="assistant", tool_calls={}),
    "salt empty": chat_body(cache_salt=""),
    "salt a number": chat_body(cache_salt=1),
    "salt too long": chat_body(cache_salt="x" * 1025),
    "model a number": chat_body(model=1),
    "stream a text": chat_body(stream="yes"),
    "stream_options a text": chat_body(stream=True, stream_options="usage"),
    "stream_options without stream": chat_body(stream_options={"include_usage": True}),
    "max_tokens 0": chat_body(max_tokens=0),
    "max_tokens negative": chat_body(max_tokens=-(2**70)),
    "max_tokens true": chat_body(max_tokens=True),
    "max_tokens a fraction": chat_body(max_tokens=1.5),
    "two choices": chat_body(n=2),
    "tools a text": chat_body(tools="look_up"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_bodies(engine, name):
    before = len(engine.requests)
    status, answer = post(engine, MALFORMED[name])
    assert status == 400
    assert set(answer["error"]) == {"message", "type", "param", "code"}
    assert answer["error"]["message"].startswith(
        ("the request cannot be used", "messages[0].content", "stream_options")
    )
    with pytest.raises(InputError):
        engine.answer(MALFORMED[name])
    assert len(engine.requests) == before


def test_every_depth_is_answered_or_refused(engine):
    """Around the limit of the stack, where reading works and what comes after may not."""
    assert {post(engine, nested(depth))[0] for depth in range(800, 1040, 3)} <= {200, 400}


@pytest.mark.parametrize(
    "body",
    [None, 1, [1], "a", {"messages": str}, {"messages": [{"role": "user", "content": "\ud800"}]}, {1: {2: {3j}}}],
    ids=repr,
)
def test_malformed_bodies_in_process(body):
    with pytest.raises(InputError, match="the request cannot be used"):
        FakeEngine().chat(body)


@given(
    st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists, max_leaves=5), st.data()
)
def test_any_value_in_any_field_is_answered_or_refused(value, data):
    body = {
        "messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}],
        "stream_options": {},
        "stream": True,
    }
    place = data.draw(st.sampled_from(["body", "message", "part"]))
    message = body["messages"][0]
    target = {"body": body, "message": message, "part": message["content"][0]}[place]
    target[data.draw(st.sampled_from([*target, "cache_salt", "max_tokens", "tools", "tool_calls", "n", "model"]))] = (
        value
    )
    with contextlib.suppress(InputError):
        assert FakeEngine().chat(body)["object"] == "chat.completion"


@given(
    st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists, max_leaves=5), st.data()
)
def test_any_value_in_any_field_of_the_other_kinds(value, data):
    kind = data.draw(st.sampled_from(["completion", "response"]))
    body = {"stream": True, "stream_options": {}}
    if kind == "completion":
        body["prompt"] = [1, 2]
        names = ["prompt", "max_tokens", "cache_salt", "n"]
    else:
        body["input"] = [{"role": "user", "content": [{"type": "input_text", "text": "a"}]}]
        names = ["input", "instructions", "tools", "max_output_tokens", "previous_response_id"]
    target = body
    if kind == "response" and data.draw(st.booleans()):
        target = data.draw(st.sampled_from([body["input"][0], body["input"][0]["content"][0]]))
        names = [*target]
    target[data.draw(st.sampled_from(names))] = value
    with contextlib.suppress(InputError):
        assert list(FakeEngine().answer(body, kind).chunks())


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/responses", "/tokenize"])
@pytest.mark.parametrize("name", ["empty", "array", "deep array", "deep object", "invalid UTF-8", "lone surrogate"])
def test_malformed_bodies_elsewhere(engine, path, name):
    assert post(engine, MALFORMED[name], path)[0] == 400


def test_every_depth_of_a_response_is_answered_or_refused(engine):
    def body(depth):
        return b'{"input":[{"type":"x","x":' + b"[" * depth + b"1" + b"]" * depth + b"}]}"

    assert {post(engine, body(depth), "/v1/responses")[0] for depth in range(800, 1040, 7)} <= {200, 400}


def test_unknown_fields_and_models_are_fine(engine):
    status, answer = post(engine, chat_body(model="anything", temperature=0.0, seed=7, unheard_of={"a": [1]}))
    assert (status, answer["model"]) == (200, "anything")


def test_a_prompt_beyond_capacity_is_answered_with_400():
    with FakeEngine(block_size=4, capacity_blocks=2) as engine:
        status, answer = post(engine, chat_body())
        assert (status, answer["error"]["type"]) == (400, "BadRequestError")
        assert "longer than the 8 tokens" in answer["error"]["message"]
        assert post(engine, json.dumps({"prompt": ENGLISH}).encode(), "/tokenize")[0] == 400


def test_a_body_that_is_too_large(engine, monkeypatch):
    monkeypatch.setattr(routes, "MAX_BODY_BYTES", 1_000_000)
    status, answer = post(engine, b" " * 1_000_001)
    assert (status, answer["error"]["code"]) == (413, 413)
    fits = chat_body()
    assert post(engine, fits + b" " * (1_000_000 - len(fits)))[0] == 200
    assert post(engine, itertools.repeat(b" " * 100_000, 11))[0] == 413  # chunked, so that no length is announced


def test_an_endless_body_is_not_read_to_its_end(engine, monkeypatch):
    monkeypatch.setattr(routes, "MAX_BODY_BYTES", 100_000)
    sent = 0

    def endless():
        nonlocal sent
        while True:
            sent += 1
            yield b" " * 100_000

    with pytest.raises(OSError, match=r"(?i)pipe|reset|abort"):
        post(engine, endless())
    assert sent < 1000
    assert post(engine, chat_body())[0] == 200


def test_a_client_that_leaves_in_the_middle(engine, caplog):
    with socket.create_connection(("127.0.0.1", int(engine.base_url.rsplit(":", 1)[1][:-3]))) as connection:
        connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\n{")
    assert post(engine, chat_body())[0] == 200
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_part_too_deep_to_be_written():
    deep = []
    for _ in range(100_000):
        deep = [deep]
    prompt = chat.Prompt(messages=[chat.Message("user", "a")], tools=deep)
    with pytest.raises(InputError, match="nested too deeply"):
        list(chat.prompt_chunks(prompt))


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/nowhere", 404), ("GET", "/v1/chat/completions", 405), ("POST", "/v1/models", 405)],
)
def test_wrong_addresses(engine, method, path, status):
    got, answer = post(engine, None, path, method)
    assert (got, answer["error"]["code"]) == (status, status)
