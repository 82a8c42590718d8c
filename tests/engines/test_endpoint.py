from __future__ import annotations

import contextlib
import http.server
import socket
import threading

import pytest

from contextpilot_rag import ContextPilot, Usage
from contextpilot_rag.engines.endpoint import AsyncEndpoint, Endpoint, api_url
from contextpilot_rag.errors import EngineError, EngineRefused, EngineUnreachable, SettingsError
from contextpilot_rag.testing import FakeEngine
from tests.ports import free_port

MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "word " * 100}]


@pytest.fixture
def engine():
    with FakeEngine() as running:
        yield running


@pytest.fixture
def endpoint(engine):
    with Endpoint(engine.base_url, max_retries=0) as opened:
        yield opened


def test_an_answer_has_text_usage_and_times(engine, endpoint):
    first, second = endpoint.chat(MESSAGES), endpoint.chat(MESSAGES)
    assert "no model" in first.text
    assert first.usage.cached_tokens == 0
    assert 0 < second.usage.cached_tokens < second.usage.prompt_tokens
    assert 0 < first.ttft <= first.seconds
    assert [request.stream for request in engine.requests] == [True, True]


def test_the_model_is_asked_for_once_unless_given(engine, endpoint):
    assert endpoint.model == engine.model
    with Endpoint(engine.base_url, "other") as named:
        named.chat(MESSAGES)
    assert engine.requests[-1].model == "other"


def test_options_go_into_the_request(engine, endpoint):
    alignment = ContextPilot(namespace="acme").align(["text"], "?")
    endpoint.chat(alignment.messages(), extra_body=alignment.extra_body, max_tokens=2)
    assert engine.requests[-1].cache_salt == alignment.extra_body["cache_salt"]
    assert engine.requests[-1].completion_tokens <= 2


def test_nothing_reported_is_not_zero(engine, endpoint):
    engine.report_cached = False
    usage = endpoint.chat(MESSAGES).usage
    assert usage == Usage(usage.prompt_tokens, None, usage.completion_tokens)


async def test_the_same_for_async_code(engine):
    async with AsyncEndpoint(engine.base_url) as endpoint:
        await endpoint.chat(MESSAGES)
        answer = await endpoint.chat(MESSAGES)
    assert answer.usage.cached_tokens > 0
    assert "no model" in answer.text


def test_an_error_status_is_refused_with_its_reason(engine, endpoint):
    engine.fail_next(status=503)
    with pytest.raises(EngineRefused, match="answered 503") as caught:
        endpoint.chat(MESSAGES)
    assert caught.value.status == 503
    assert isinstance(caught.value, EngineError)


def test_a_retry_gets_past_a_passing_failure(engine):
    engine.fail_next(status=500)
    with Endpoint(engine.base_url, max_retries=1) as endpoint:
        assert endpoint.chat(MESSAGES).usage is not None


def test_a_dropped_connection(engine, endpoint):
    assert endpoint.model  # asked before, so that the chat request is the one that is dropped
    engine.fail_next(status=None)
    with pytest.raises(EngineUnreachable, match="no engine answers at"):
        endpoint.chat(MESSAGES)


def test_nobody_listens():
    with (
        Endpoint(f"http://127.0.0.1:{free_port()}", "m", max_retries=0) as endpoint,
        pytest.raises(EngineUnreachable, match="is it running, and is the address right"),
    ):
        endpoint.chat(MESSAGES)


async def test_nobody_listens_async():
    async with AsyncEndpoint(f"http://127.0.0.1:{free_port()}", max_retries=0) as endpoint:
        with pytest.raises(EngineUnreachable):
            await endpoint.chat(MESSAGES)


def test_no_answer_in_time():
    with socket.socket() as silent:  # takes the connection and never says a word
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with (
            Endpoint(url, "m", timeout=0.2, max_retries=0) as endpoint,
            pytest.raises(EngineUnreachable, match="did not answer in time"),
        ):
            endpoint.chat(MESSAGES)


def test_a_lone_surrogate_cannot_be_sent_and_says_so(engine, endpoint):
    alignment = ContextPilot().align(["bad \ud800 byte"], "?")
    with pytest.raises(EngineError, match="lone surrogate at character"):
        endpoint.chat(alignment.messages())


@pytest.mark.parametrize(
    "answer",
    [
        b'{"choices": [{"message": {"content": "x"}}], "usage": {"prompt_tokens": 5}}',
        b"data: no json\n\n",
        b"data: null\n\n",
        b'data: {"choices": [{"delta": {"content": "\xff"}}]}\n\n',
        b'data: {"choices": [{"delta": {"content": [{"type": "text"}]}}]}\n\n',
        b'data: {"choices": 5}\n\n',
        b"data: [DONE]\n\n",
        b"<html>",
        b"",
    ],
)
def test_answers_that_are_no_openai_stream(answer):
    """Whatever comes, it is one of our errors, and never an empty answer taken for a real one."""
    with raw_server(answer) as url, Endpoint(url, "m", max_retries=0) as endpoint, pytest.raises(EngineError):
        endpoint.chat(MESSAGES)


@pytest.mark.parametrize("answer", [b"<html>", b"[]", b'{"data": [{}]}', b'{"data": []}', b"{}"])
def test_model_lists_that_are_none(answer):
    with raw_server(answer) as url, Endpoint(url, max_retries=0) as endpoint, pytest.raises(EngineError):
        assert endpoint.model


@contextlib.contextmanager
def raw_server(answer):
    """Answers everything with these bytes, as JSON or as an event stream, whichever they look like."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers.get("content-length") or 0))
            self.send_response(200)
            self.send_header("content-type", "text/event-stream" if answer.startswith(b"data:") else "application/json")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_GET = do_POST  # noqa: N815  http.server looks for it

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join(10)


@pytest.mark.parametrize(
    "arguments", [{"timeout": 0}, {"timeout": "x"}, {"max_retries": -1}, {"max_retries": 1.5}, {"api_key": "\u00fc"}]
)
def test_wrong_arguments(arguments):
    with pytest.raises(SettingsError):
        Endpoint("http://h", **arguments)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://h:1", "http://h:1/v1"),
        ("http://h:1/", "http://h:1/v1"),
        ("https://h/v1/", "https://h/v1"),
        ("http://h/api/openai", "http://h/api/openai"),
        ("http://[::1]:8000", "http://[::1]:8000/v1"),
    ],
)
def test_addresses(url, expected):
    assert api_url(url) == expected


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost:8000",
        "ftp://h",
        "http://",
        "http://h:x",
        "http://[::1",
        "http://h:99999",
        "http://.",
        "http://" + "a" * 64,
        "http://h\x00",
        None,
        5,
    ],
)
def test_what_is_no_address(url):
    with pytest.raises(SettingsError, match="an endpoint is an http"):
        api_url(url)
