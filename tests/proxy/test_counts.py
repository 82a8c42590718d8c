"""What the proxy counts, and what it answers itself under /contextpilot/."""

from __future__ import annotations

import asyncio
import json

import pytest
from prometheus_client.parser import text_string_to_metric_families

from contextpilot_rag.proxy.counts import OTHER, Counts
from contextpilot_rag.proxy.exposition import text
from contextpilot_rag.proxy.own_routes import OwnRoutes, Standing
from contextpilot_rag.proxy.problems import NoKey
from contextpilot_rag.proxy.words import Report
from contextpilot_rag.types import Usage


def samples(counts, upstreams=()):
    families = text_string_to_metric_families(text(counts, upstreams).decode())
    return {
        (sample.name.removeprefix("contextpilot_proxy_"), *sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
    }


def test_what_was_done_is_counted():
    counts = Counts()
    counts.took("chat", 200, 0.0015, "rewritten")
    counts.took("chat", 429, 0.0015, "rewritten")
    counts.took("other", 200, 9.0, "passed")
    counts.done(Report(blocks=5, changed=True, replaced=2, left_out=300, predicted_cached_tokens=40))
    counts.done(Report(blocks=1))
    counts.observed(Usage(100, 60, 5))
    counts.observed(Usage(100, None, 5))
    counts.observed(None)
    counts.failed("rewrite")
    found = samples(counts, [Standing("a"), Standing("b", alive=False)])
    expected = {
        ("requests_total", "chat", "rewritten"): 2,
        ("requests_total", "other", "passed"): 1,
        ("responses_total", "chat", "2xx"): 1,
        ("responses_total", "chat", "4xx"): 1,
        ("request_seconds_count",): 2,
        ("request_seconds_bucket", "0.001"): 0,
        ("request_seconds_bucket", "0.002"): 2,
        ("blocks_total",): 6,
        ("orders_changed_total",): 1,
        ("replaced_total",): 2,
        ("left_out_characters_total",): 300,
        ("predicted_cached_tokens_total",): 40,
        ("reported_prompt_tokens_total",): 100,
        ("reported_cached_tokens_total",): 60,
        ("cached_not_reported_total",): 1,
        ("failures_total", "rewrite"): 1,
        ("upstream_alive", "a"): 1,
        ("upstream_alive", "b"): 0,
        ("streams",): 0,
    }
    assert {name: found.get(name) for name in expected} == expected


def test_there_are_only_so_many_names():
    counts = Counts()
    for number in range(1_000):
        counts.took("chat", 200, 0.0, f"outcome {number}")
        counts.failed(f"reason {number}")
    assert len(counts.requests) <= 101
    assert len(counts.failures) <= 101
    assert counts.failures[OTHER] == 900


class Operators:
    def __init__(self, answer):
        self.answer = answer

    def operator(self, headers):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


ONE = (Standing("a"),)


def asked(path, *, method="GET", standing=ONE, operator=True, closed=True, draining=False):
    """Status and body of an answer; "handed on" where it is not the proxy's own."""
    sent = []

    async def app(scope, receive, send):
        sent.append("handed on")

    async def send(message):
        sent.append(message)

    async def stands():
        return list(standing)

    routes = OwnRoutes(app, Counts(), stands, Operators(operator), closed=closed)
    routes.draining = draining
    asyncio.run(routes({"raw_path": path, "method": method, "headers": []}, None, send))
    if sent == ["handed on"]:
        return "handed on"
    start, body = sent
    assert dict(start["headers"])[b"content-length"] == b"%d" % len(body["body"])
    return start["status"], body["body"]


@pytest.mark.parametrize("path", [b"/", b"/v1/models", b"/contextpilot", b"/health", b"/v1/contextpilot/health", b"*"])
def test_every_other_path_is_handed_on(path):
    assert asked(path) == "handed on"


def test_it_lives_even_where_no_upstream_does():
    dead = [Standing("a", alive=False, why="refused")]
    assert asked(b"/contextpilot/health", standing=dead)[0] == 200
    assert asked(b"/contextpilot/ready", standing=dead)[0] == 503
    assert asked(b"/contextpilot/ready", standing=[*dead, Standing("b")])[0] == 200
    assert asked(b"/contextpilot/ready", draining=True)[0] == 503
    assert asked(b"/contextpilot/ready?x=1")[0] == 200


def test_upstreams_are_shown_as_they_stand():
    status, body = asked(b"/contextpilot/upstreams", standing=[Standing("a", level="events")])
    assert status == 200
    assert json.loads(body) == {"upstreams": [{"name": "a", "alive": True, "level": "events", "why": ""}]}


@pytest.mark.parametrize("path", [b"/contextpilot/metrics", b"/contextpilot/upstreams"])
def test_metrics_and_upstreams_are_for_operators(path):
    assert asked(path)[0] == 200
    assert asked(path, operator=False)[0] == 403
    assert asked(path, operator=False, closed=False)[0] == 200
    status, body = asked(path, operator=NoKey("give a key"), closed=False)
    assert status == 401
    assert json.loads(body)["error"] == {
        "message": "give a key", "type": "authentication_error", "param": None, "code": 401,
    }  # fmt: skip


def test_what_is_not_there_is_said():
    assert asked(b"/contextpilot/nothing")[0] == 404
    assert asked(b"/contextpilot/")[0] == 404
    assert asked(b"/contextpilot/health", method="POST")[0] == 405


def test_what_fails_says_nothing_of_itself(caplog):
    async def standing():
        raise ValueError("secret")

    sent = []

    async def send(message):
        sent.append(message)

    routes = OwnRoutes(None, Counts(), standing, Operators(True))
    asyncio.run(routes({"raw_path": b"/contextpilot/ready", "method": "GET", "headers": []}, None, send))
    assert sent[0]["status"] == 500
    assert b"secret" not in sent[1]["body"]
