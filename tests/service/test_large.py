"""Large bodies are answered as small ones are, and others are not kept waiting for them."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from contextpilot_rag.remote import wire
from contextpilot_rag.service import large
from contextpilot_rag.service.blocks import distinct
from contextpilot_rag.service.settings import ServiceSettings

from .harness import serving

TEXTS = [{"id": f"t{number}", "text": f"Block {number}.\n" * 500} for number in range(60)]


@pytest.fixture(scope="module")
def service():
    with serving(max_blocks=100) as running:
        yield running


def test_condensed_blocks_are_the_same_blocks() -> None:
    given: list[dict[str, Any]] = [
        {"id": "a", "text": "one  \r\ntwo"},
        {"text": "one  \r\ntwo", "tokens": 7},
        {"id": "b", "hash": "00" * 16, "text": "x y z"},
        {"id": "c", "tokens": 3},
        {"text": ""},
    ]
    blocks = [wire.BlockIn(**fields) for fields in given]
    whole = distinct(blocks, ServiceSettings())
    asyncio.run(large.condensed(b" " * (large.LARGE + 1), blocks))
    assert distinct(blocks, ServiceSettings()) == whole
    assert all(block.text is None for block in blocks)


def test_small_ones_stay_as_they_are() -> None:
    blocks = [wire.BlockIn(text="x")]
    asyncio.run(large.condensed(b" " * large.LARGE, blocks))
    assert blocks == [wire.BlockIn(text="x")]


@pytest.mark.parametrize("path", ["/v1/align", "/v1/predict"])
def test_a_large_request_finds_what_a_small_one_left(service, path):
    service.ask("DELETE", "/v1/namespaces")
    for block in TEXTS[:2]:
        assert service.ask("POST", "/v1/align", {"blocks": [block]}).status == 200
    filled = {"blocks": [{**TEXTS[1], "tokens": 500}, *TEXTS[2:], TEXTS[2]]}
    answer = service.ask("POST", path, filled).json()
    assert answer["predicted_cached_tokens"] == 500


def test_large_requests_in_a_batch(service):
    answers = service.ask("POST", "/v1/align/batch", {"requests": [{"blocks": TEXTS}, {"blocks": TEXTS[:1]}]}).json()
    assert [len(answer["order"]) for answer in answers["alignments"]] == [60, 1]


def test_texts_of_large_bodies_are_worked_on_in_a_thread(service, monkeypatch):
    seen = []
    condense = large._condense
    monkeypatch.setattr(
        large, "_condense", lambda blocks: seen.append(threading.current_thread().name) or condense(blocks)
    )
    assert service.ask("POST", "/v1/align", {"blocks": TEXTS}).status == 200
    assert seen
    assert seen[0] != "service"


@pytest.mark.parametrize("path", ["/v1/align", "/v1/sent", "/v1/align/batch"])
@pytest.mark.parametrize("separator", [": ", " : "])
def test_far_too_many_blocks_are_refused_before_they_are_made(service, path, separator, monkeypatch):
    monkeypatch.setattr("contextpilot_rag.service.tenant.distinct", None)  # not reached
    block = '{"id": "a", "tokens": 1}' if separator == ": " else '{ "id" : "a", "tokens" : 1 }'
    body = '{"order": [0], "blocks": [' + ",".join([block] * 30_000) + "]}"
    body = body.replace('"order": [0], ', "") if path == "/v1/align" else body
    if path == "/v1/align/batch":
        body = '{"requests": [' + body.replace('"order": [0], ', "") + "]}"
    reply = service.ask("POST", path, body.encode())
    assert (reply.status, "blocks" in reply.json()["detail"]) == (413, True)


def test_texts_full_of_braces_are_no_blocks(service):
    text = '{"a": {"b": [{"c": "{"}]}}' * 200 + "{"
    blocks = [{"id": f"{number}{{", "text": f"{number} {text}"} for number in range(100)]
    assert len(service.ask("POST", "/v1/align", {"blocks": blocks}).json()["order"]) == 100


@pytest.mark.parametrize("body", [b"{" + b" " * 300_000, b'{"blocks":1' + b" " * 300_000 + b"}", b"[" * 300_000])
def test_large_nonsense_is_refused(service, body):
    assert service.ask("POST", "/v1/align", body).status in {400, 422}
