"""The loopback server's life: ports, ends, missing extras."""

from __future__ import annotations

import asyncio
import http.client
import logging
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest

from contextpilot_rag.errors import EngineUnavailable, MissingPackage
from contextpilot_rag.testing import FakeEngine, server
from tests.testing.common import MESSAGES, chat_body, post


def test_stop_frees_the_port_and_start_can_follow():
    engine = FakeEngine()
    port = int(engine.start().base_url.rsplit(":", 1)[1][:-3])
    assert engine.base_url == f"http://127.0.0.1:{port}/v1"
    assert engine.start() is engine
    assert f"http://127.0.0.1:{port}" in repr(engine)
    assert post(engine, chat_body())[0] == 200
    engine.stop()
    engine.stop()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)
    with pytest.raises(EngineUnavailable, match="not started"):
        _ = engine.base_url
    engine.start(port)
    try:
        assert engine.base_url.endswith(f":{port}/v1")
        assert post(engine, chat_body())[1]["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
    finally:
        engine.stop()
    assert not [thread for thread in threading.enumerate() if thread.name == "FakeEngine" and not thread.is_alive()]


def test_it_listens_on_the_loopback_interface_only(engine):
    listening = engine._server._socket.getsockname()
    assert listening[0] == "127.0.0.1"


@pytest.mark.parametrize("stream", [False, True])
def test_stop_cuts_requests_off(stream, caplog):
    """A test that fails in the middle must not hang, nor leave errors in the log."""
    entered = threading.Event()

    async def for_ever(_):
        entered.set()
        await asyncio.Event().wait()

    engine = FakeEngine(delay_seconds=1, sleep=for_ever).start()
    with (
        caplog.at_level(logging.WARNING),
        openai.OpenAI(base_url=engine.base_url, api_key="none", max_retries=0) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        answer = pool.submit(
            lambda: list(client.chat.completions.create(model="any", messages=MESSAGES, stream=stream))
        )
        assert entered.wait(20)
        engine.stop()
        with pytest.raises(Exception, match=r"(?i)connection|peer|disconnect") as raised:
            answer.result(20)
    assert not isinstance(raised.value, TimeoutError)
    assert not caplog.records


def test_a_taken_port(engine):
    port = int(engine.base_url.rsplit(":", 1)[1][:-3])
    with pytest.raises(EngineUnavailable, match=f"cannot have port {port} of 127.0.0.1"):
        FakeEngine().start(port)
    for impossible in (-1, 70_000, "http"):
        with pytest.raises(EngineUnavailable, match="cannot have port"):
            FakeEngine().start(impossible)


def test_a_server_that_does_not_start(monkeypatch):
    async def serve(self, sockets=None):
        del self, sockets

    monkeypatch.setattr("uvicorn.Server.serve", serve)
    engine = FakeEngine()
    with pytest.raises(EngineUnavailable, match="did not start"):
        engine.start()
    engine.stop()


def test_a_server_that_does_not_end(monkeypatch):
    """A ``sleep`` that blocks is the user's mistake; stop() must not wait for it for ever."""
    entered, released = threading.Event(), threading.Event()

    async def blocking(_):
        entered.set()
        released.wait(20)

    monkeypatch.setattr(server, "STOP_SECONDS", 0.01)
    engine = FakeEngine(delay_seconds=1, sleep=blocking).start()
    thread = engine._server._thread
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(post, engine, chat_body())
        assert entered.wait(20)
        with pytest.raises(EngineUnavailable, match="did not end"):
            engine.stop()
        released.set()
        assert answer.exception(20) is None or isinstance(answer.exception(), OSError | http.client.HTTPException)
    thread.join(20)
    assert not thread.is_alive()


def test_without_the_extra_the_error_says_what_to_install(monkeypatch):
    monkeypatch.delitem(sys.modules, "contextpilot_rag.testing.server")
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(MissingPackage, match=r"needs uvicorn: pip install 'contextpilot-rag\[testing\]'"):
        FakeEngine().start()


def test_importing_it_imports_none_of_the_extras():
    program = (
        "import sys, contextpilot_rag.testing\n"
        "sys.exit(bool({'openai', 'starlette', 'uvicorn', 'scipy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_its_socket_says_that_it_is_tcp():
    """Else asyncio leaves Nagle's algorithm on, and each answer waits some 40 ms."""
    with FakeEngine() as engine:
        assert engine._server._socket.proto == socket.IPPROTO_TCP
