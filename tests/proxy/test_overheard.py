"""Overheard: the figures of an answer that passes, in whatever pieces it comes."""

import gzip
import json
import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag.proxy.overheard import Overheard
from contextpilot_rag.types import Usage

JSON = [(b"Content-Type", b"application/json; charset=utf-8")]
SSE = [(b"content-type", b"text/event-stream")]
FIGURES = {"prompt_tokens": 10, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 8}}
SAID = Usage(10, 8, 2)


def event(value, name=None):
    head = b"" if name is None else b"event: " + name.encode() + b"\n"
    return head + b"data: " + json.dumps(value).encode() + b"\n\n"


CHAT = b"".join(
    [
        *(event({"choices": [{"delta": {"content": f"usage {n}"}}], "usage": None}) for n in range(50)),
        event({"choices": [], "usage": FIGURES}),
        b"data: [DONE]\n\n",
    ]
)
RESPONSES = event({"type": "response.completed", "response": {"usage": {"input_tokens": 10, "output_tokens": 2}}})
MESSAGES = b"".join(
    [
        event(
            {"type": "message_start", "message": {"usage": {"input_tokens": 2, "cache_read_input_tokens": 8}}},
            "message_start",
        ),
        event({"type": "content_block_delta", "delta": {"text": "usage"}}),
        event({"type": "message_delta", "usage": {"output_tokens": 2, "input_tokens": None}}, "message_delta"),
        event({"type": "message_stop"}),
    ]
)


def heard(headers, *parts):
    overheard = Overheard(headers)
    for part in parts:
        overheard.add(part)
    return overheard.usage()


def cut(whole, places):
    places = sorted({min(place, len(whole)) for place in places})
    return [whole[start:end] for start, end in zip([0, *places], [*places, len(whole)], strict=True)]


@given(st.lists(st.integers(0, 5_000), max_size=30))
def test_pieces_make_no_difference(places):
    assert heard(JSON, *cut(json.dumps({"usage": FIGURES}).encode(), places)) == SAID
    assert heard(SSE, *cut(CHAT, places)) == SAID
    assert heard(SSE, *cut(MESSAGES, places)) == SAID


def test_each_api_streams_its_figures():
    assert heard(SSE, CHAT) == SAID
    assert heard(SSE, RESPONSES) == Usage(10, None, 2)
    assert heard(SSE, MESSAGES) == SAID
    assert heard(SSE, MESSAGES.replace(b"\n", b"\r\n")) == SAID


def test_a_long_stream_is_kept_only_at_its_ends():
    long = [event({"choices": [{"delta": {"content": "x" * 1_000}}]}) for _ in range(500)]
    overheard = Overheard(SSE)
    for part in [*cut(MESSAGES, [100]), *long]:
        overheard.add(part)
    kept = len(overheard._first) + len(overheard._last)
    assert kept < 140_000
    overheard.add(event({"type": "message_delta", "usage": {"output_tokens": 3}}))
    assert overheard.usage() == Usage(10, 8, 3)


@pytest.mark.parametrize(
    "headers",
    [
        [*JSON, (b"content-encoding", b"gzip")],
        [*JSON, (b"content-encoding", b"br")],
        [*SSE, (b"content-encoding", b"gzip")],
        [(b"content-type", b"text/plain")],
        [],
    ],
)
def test_what_cannot_be_read_says_nothing(headers):
    assert heard(headers, json.dumps({"usage": FIGURES}).encode()) is None


def test_clouds_compress_their_answers_and_a_bomb_is_not_unpacked_whole():
    zipped = [*JSON, (b"content-encoding", b"gzip")]
    assert heard(zipped, gzip.compress(json.dumps({"usage": FIGURES}).encode())) == SAID
    assert (
        heard([*JSON, (b"content-encoding", b"deflate")], zlib.compress(b'{"usage": {"prompt_tokens": 3}}')) is not None
    )
    assert heard(zipped, gzip.compress(b" " * 2**25 + json.dumps({"usage": FIGURES}).encode())) is None


def test_a_long_answer_is_not_kept():
    body = json.dumps({"text": "x" * 2**20, "usage": FIGURES}).encode()
    assert heard(JSON, body[:1_000], body[1_000:]) is None


def test_what_was_not_reported_is_none_and_not_zero():
    assert heard(JSON, b'{"choices": []}') is None
    assert heard(SSE, b'data: {"choices": []}\n\ndata: [DONE]\n\n') is None


@given(st.sampled_from([JSON, SSE]), st.lists(st.binary(max_size=200), max_size=5))
def test_bytes_of_any_kind_never_raise(headers, parts):
    heard(headers, *parts)
    heard(headers, b"data: ", *parts, b'usage\n\ndata: {"usage": ' + b"[" * 10_000)


NAMES = st.sampled_from(["usage", "type", "message", "prompt_tokens", "x"])
VALUES = st.recursive(
    st.none() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)


@given(VALUES)
def test_json_of_any_kind_never_raises(value):
    heard(JSON, json.dumps(value).encode())
    begun, ended = {"type": "message_start", "message": value}, {"type": "message_delta", "usage": value}
    heard(SSE, event(value), event(begun), event(ended))


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("size", [1, 7, 10_000])
@pytest.mark.parametrize("stream", [CHAT, MESSAGES])
def test_lines_end_as_the_upstream_likes(stream, end, size):
    whole = stream.replace(b"\n", end)
    assert heard(SSE, *(whole[place : place + size] for place in range(0, len(whole), size))) == SAID


def test_an_event_on_several_lines_is_one():
    pretty = json.dumps({"choices": [], "usage": FIGURES}, indent=1).encode()
    stream = CHAT[:1_000] + b"\n\n" + b"".join(b"data: " + line + b"\n" for line in pretty.split(b"\n")) + b"\n"
    assert heard(SSE, stream, b": still here\n\n", b"data: [DONE]\n\n") == SAID


def test_events_that_nothing_stands_between_are_still_read():
    assert heard(SSE, CHAT.replace(b"\n\n", b"\n")) == SAID


def test_tiny_pieces_take_no_more_memory_than_what_is_in_them():
    overheard = Overheard(SSE)
    tracemalloc.start()
    for _ in range(300_000):
        overheard.add(bytes(2))
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken < 300_000
