"""Heads: what is forwarded of headers, what is ours, and what the answer's headers say."""

from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag.proxy.heads import answer_headers, read_head, report_headers, with_length
from contextpilot_rag.proxy.problems import Unusable
from contextpilot_rag.proxy.words import Report

HOP = [
    (b"connection", b"keep-alive, X-Mine"),
    (b"keep-alive", b"timeout=5"),
    (b"proxy-connection", b"keep-alive"),
    (b"te", b"trailers"),
    (b"trailer", b"x-sum"),
    (b"upgrade", b"h2c"),
    (b"x-mine", b"of this connection"),
]


def test_what_is_of_one_connection_is_not_forwarded_and_all_else_is_in_order():
    kept = [
        (b"authorization", b"Bearer a"),
        (b"cookie", b"a=1"),
        (b"x-odd", b"\xe9 \t,;"),
        (b"cookie", b"b=2"),
        (b"proxy-authorization", b"x"),
    ]
    given = [kept[0], *HOP[:4], kept[1], (b"host", b"proxy"), kept[2], *HOP[4:], kept[3], (b"expect", b"100-continue")]
    head = read_head([*given, kept[4], (b"x-contextpilot-labels", b"keep")])
    assert head.headers == kept
    assert head.shows_key


@pytest.mark.parametrize("name", [b"content-length", b"content-type", b"content-encoding"])
def test_what_says_how_to_read_a_body_is_kept_whatever_connection_says(name):
    value = b"3"
    assert (name, value) in read_head([(b"connection", name), (name, value)]).headers
    assert (name, value) in answer_headers([(b"Connection", name), (name, value)], 200)


@pytest.mark.parametrize(
    "headers",
    [
        [(b"content-length", b"-1")],
        [(b"content-length", b"1e3")],
        [(b"content-length", b"9" * 30)],
        [(b"content-length", b"3"), (b"content-length", b"3")],
        [(b"transfer-encoding", b"gzip, chunked")],
        [(b"transfer-encoding", b"chunked"), (b"content-length", b"3")],
        [(b"x-contextpilot", b"perhaps")],
        [(b"x-contextpilot-lists", b"numbered, dotted")],
        [(b"x-contextpilot-labels", b"drop")],
        [(b"x-contextpilot-order", b"backwards")],
    ],
)
def test_what_makes_no_sense_is_refused(headers):
    with pytest.raises(Unusable):
        read_head(headers)


def test_wishes_are_read():
    wishes = read_head(
        [
            (b"x-contextpilot", b" OFF"),
            (b"x-contextpilot-lists", b"Numbered,headed"),
            (b"x-contextpilot-labels", b"renumber"),
            (b"x-contextpilot-order", b"balanced"),
            (b"x-contextpilot-of-a-later-version", b"?"),
        ]
    ).wishes
    assert wishes.off
    assert wishes.lists == {"numbered", "headed"}
    assert wishes.labels == "renumber"
    assert wishes.order == "balanced"
    nothing = read_head([(b"x-contextpilot", b"on"), (b"x-contextpilot-lists", b"none")]).wishes
    assert (nothing.off, nothing.lists, nothing.labels, nothing.order) == (False, frozenset(), None, None)


@pytest.mark.parametrize(
    ("kind", "readable"),
    [
        (b"application/json", True),
        (b"Application/JSON; charset=utf-8", True),
        (b"application/vnd.api+json", True),
        (b"", True),
        (b"text/plain", False),
        (b"multipart/form-data; boundary=x", False),
        (b"application/x-www-form-urlencoded", False),
    ],
)
def test_json_is_recognised_by_its_type(kind, readable):
    assert read_head([(b"content-type", kind)]).readable == readable
    assert not read_head([(b"content-type", kind), (b"content-type", b"text/plain")]).readable


@pytest.mark.parametrize(("coding", "compressed"), [(b"identity", False), (b"gzip", True), (b"br", True), (b"", False)])
def test_compressed_bodies_are_recognised(coding, compressed):
    assert read_head([(b"content-encoding", coding)]).compressed == compressed


def test_a_new_length_stands_where_the_old_one_did_or_at_the_end():
    assert with_length([(b"a", b"1"), (b"content-length", b"5"), (b"b", b"2")], 7) == [
        (b"a", b"1"),
        (b"content-length", b"7"),
        (b"b", b"2"),
    ]
    assert with_length([(b"a", b"1")], 0) == [(b"a", b"1"), (b"content-length", b"0")]


@pytest.mark.parametrize("status", [204, 304])
def test_answers_without_a_body_say_nothing_of_its_length(status):
    assert answer_headers([(b"Content-Length", b"7"), (b"ETag", b"x")], status) == [(b"ETag", b"x")]


@given(
    st.builds(
        Report,
        blocks=st.integers(0, 10**6),
        changed=st.booleans(),
        reason=st.text(),
        labels=st.lists(st.text(), max_size=8),
    ),
    st.text(),
)
def test_answer_headers_can_always_be_sent_and_labels_be_read(report, upstream):
    said = report_headers(report, upstream)
    for name, value in said:
        assert name.isascii()
        assert not any(byte in value for byte in b"\r\n\0")
        assert len(value) <= 4_000
    found = dict(said)
    assert found[b"x-contextpilot-order"] == (b"changed" if report.changed else b"kept")
    if b"x-contextpilot-labels" in found:
        labels = found[b"x-contextpilot-labels"].decode("ascii").split(", ")
        assert [unquote(label) for label in labels] == list(report.labels)


def test_more_labels_than_a_header_holds_are_not_said_in_part():
    names = [name for name, _ in report_headers(Report(labels=["label"] * 2_000))]
    assert b"x-contextpilot-labels" not in names


def test_what_was_not_looked_into_has_nothing_to_count():
    assert report_headers(Report(reason="off"), "gpu", looked=False) == [
        (b"x-contextpilot-reason", b"off"),
        (b"x-contextpilot-upstream", b"gpu"),
    ]
