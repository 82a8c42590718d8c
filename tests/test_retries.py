"""What is sent again when it fails, after which pause, and which answers are none."""

from __future__ import annotations

import contextlib
import http.server
import threading
import time
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime

import openai
import pytest

from contextpilot_rag import sending
from contextpilot_rag.engines.endpoint import AsyncEndpoint, Endpoint, retry_after
from contextpilot_rag.errors import EngineBrokeOff, EngineRefused
from contextpilot_rag.testing import FakeEngine
from tests.stage import Stage, small


@pytest.fixture(scope="module")
def engine():
    with FakeEngine() as running:
        yield running


@pytest.fixture(autouse=True)
def slept(monkeypatch):
    """How long was waited before attempts; nobody really waits."""
    waits = []

    async def sleep(seconds):
        waits.append(seconds)

    monkeypatch.setattr(sending, "_sleep", sleep)
    return waits


@pytest.mark.parametrize("status", [408, 409, 429, 500, 503, None])
async def test_what_may_pass_is_tried_again(engine, status, slept):
    pilot, plan = small(1)
    engine.fail_next(3, status)
    before = engine.failures
    report = await pilot.run(plan, engine.base_url, model="m", retries=3)
    assert [(result.attempts, result.error) for result in report] == [(4, None)]
    assert engine.failures == before + 3
    assert len(slept) == 3
    assert all(0 <= seconds <= sending.BACKOFF_MOST for seconds in slept)


@pytest.mark.parametrize("status", [400, 401, 404, 422])
async def test_what_does_not_pass_is_not(engine, status, slept):
    pilot, plan = small(2)
    engine.fail_next(1, status)
    report = await pilot.run(plan, engine.base_url, concurrency=1)
    assert [(result.attempts, result.text is None) for result in report] == [(1, True), (1, False)]
    assert f"answered {status}" in report.failed[0].error
    assert slept == []


async def test_retries_are_bounded_and_not_multiplied_by_the_clients_own(engine, slept):
    pilot, plan = small(1)
    engine.fail_next(100, 503)
    before = engine.failures
    async with openai.AsyncOpenAI(base_url=engine.base_url, api_key="none", max_retries=9) as client:
        report = await pilot.run(plan, client, retries=2)
        assert not client.is_closed()
        assert client.max_retries == 9
    assert report.results[0].attempts == 3
    assert engine.failures == before + 3
    assert len(slept) == 2


@pytest.mark.parametrize(("asked", "waited"), [(7.0, 7.0), (3600.0, 60.0)])
async def test_an_engine_that_asks_for_a_pause_gets_it(asked, waited, slept):
    pilot, plan = small(1)
    stage = Stage(plan, answers=True)
    stage.failing = [EngineRefused("busy", 429, asked)]
    assert (await pilot.run(plan, stage)).results[0].attempts == 2
    assert slept == [waited]


def test_pauses_are_seconds_or_dates(monkeypatch):
    soon = datetime.now(timezone.utc) + timedelta(hours=1)
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    for written in (format_datetime(soon, usegmt=True), format_datetime(soon.replace(tzinfo=None))):
        assert 3000 < retry_after({"retry-after": written}) <= 3600
    monkeypatch.undo()
    time.tzset()
    assert retry_after({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}) == 0
    assert retry_after({"retry-after": "-5"}) == 0
    assert [retry_after({"retry-after": told}) for told in ("2", "soon", "nan", "inf", "")] == [
        2,
        None,
        None,
        None,
        None,
    ]
    assert retry_after({}) is None


CHUNK = b'data: {"choices": [{"index": 0, "delta": {"content": "%s"}, "finish_reason": %s}]}\n\n'
GOOD = CHUNK % (b"Yes.", b"null") + CHUNK % (b"", b'"stop"') + b"data: [DONE]\n\n"


@contextlib.contextmanager
def raw_server(*answers):
    """Each request gets the next of these: a status, headers, the body, and whether the body ends too early."""
    left = list(answers)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["content-length"]))
            status, headers, body, cut = left.pop(0)
            self.send_response(status)
            for name, value in {"content-type": "text/event-stream", **headers}.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(body) + cut))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join(10)


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        ((200, {}, CHUNK % (b"Ye", b"null"), 10), "broke off"),
        ((200, {}, CHUNK % (b"Ye", b"null"), 0), "without a finish_reason"),
        ((200, {}, CHUNK % (b"Ye", b'"abort"') + b"data: [DONE]\n\n", 0), "'abort'"),
        ((200, {}, CHUNK % (b"Ye", b"null") + b'data: {"error": {"message": "lost"}}\n\n', 0), "broke off: lost"),
        ((200, {}, b'data: {"error": {"message": "busy", "code": 503}}\n\n', 0), "503"),
        ((503, {"retry-after": "9"}, b"", 0), "answered 503"),
    ],
)
async def test_answers_that_break_off_are_asked_for_again(broken, why, slept):
    """Half an answer is never taken for one."""
    pilot, plan = small(1)
    with raw_server(broken, broken, (200, {}, GOOD, 0)) as url:
        failed = (await pilot.run(plan, url, model="m", retries=0)).failed
        report = await pilot.run(plan, url, model="m", retries=1)
    assert why in failed[0].error
    assert (report.results[0].text, report.results[0].attempts) == ("Yes.", 2)
    assert report.results[0].usage is None
    assert slept == [9] if "retry-after" in broken[1] else 0 <= slept[0] <= 1


async def test_thoughts_are_no_answer_but_begin_with_the_first_token():
    """And a chunk may come without a finish_reason, or any other field but one."""
    pilot, plan = small(1)
    thought = b'data: {"choices": [{"delta": {"reasoning_content": "Hm."}}]}\n\n'
    with raw_server((200, {}, thought + GOOD, 0)) as url:
        report = await pilot.run(plan, url, model="m")
    assert (report.results[0].text, report.failed) == ("Yes.", ())
    seen = []
    with raw_server((200, {}, thought, 0)) as url:
        async with AsyncEndpoint(url, "m", max_retries=0) as endpoint:
            with pytest.raises(EngineBrokeOff):
                await endpoint.chat([{"role": "user", "content": "?"}], on_first_token=lambda: seen.append("token"))
    assert seen == ["token"]


async def test_a_status_told_in_the_stream_decides():
    pilot, plan = small(1)
    with raw_server((200, {}, b'data: {"error": {"message": "too long", "code": 400}}\n\n', 0)) as url:
        report = await pilot.run(plan, url, model="m")
    assert (report.results[0].attempts, report.results[0].error) == (
        1,
        f"the engine at {url}/v1 broke off with 400: too long",
    )


async def test_a_sync_endpoint_knows_half_an_answer_too():
    broken = (200, {}, CHUNK % (b"Ye", b"null"), 10)
    with (
        raw_server(broken) as url,
        Endpoint(url, "m", max_retries=0) as endpoint,
        pytest.raises(EngineBrokeOff, match="broke off"),
    ):
        endpoint.chat([{"role": "user", "content": "?"}])
