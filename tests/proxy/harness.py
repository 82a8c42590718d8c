"""A proxy on a real socket, in a thread of this process; its upstreams are in `raw`."""

from __future__ import annotations

import asyncio
import http.client
import socket
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from contextpilot_rag.engines.engine import Engine
from contextpilot_rag.proxy.app import ProxyApp
from contextpilot_rag.proxy.connection import PatientConnection
from contextpilot_rag.proxy.rewriting import Call, Outcome, Rewriting
from contextpilot_rag.proxy.settings import ProxySettings
from contextpilot_rag.proxy.upstreams import Upstreams
from contextpilot_rag.proxy.words import Report
from contextpilot_rag.types import Usage

from .raw import CHUNKED, SECONDS, Raw, Received, chunk, ended, head_of, plain, told

__all__ = [
    "CHUNKED",
    "SECONDS",
    "Counting",
    "Passing",
    "Proxy",
    "Raw",
    "Received",
    "Reply",
    "chunk",
    "ended",
    "head_of",
    "plain",
    "proxying",
    "told",
]


class Passing:
    """The other half of a proxy, as one that recognises nothing; what it is told is kept."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.learnt: list[tuple[Usage | None, str | None]] = []
        self.given_up = 0

    async def rewrite(self, call: Call) -> Outcome:
        self.calls.append(call)
        return Outcome(call.raw, Report(reason="nothing was recognised"))

    def salt(self, tenant: str) -> str | None:
        return None

    async def answered(self, outcome: Outcome, usage: Usage | None, engine: str | None) -> None:
        self.learnt.append((usage, engine))

    def failed(self, outcome: Outcome) -> None:
        self.given_up += 1


class Counting:
    """Counts that are lists."""

    def __init__(self) -> None:
        self.streams = 0
        self.all: list[tuple[str, int, str]] = []
        self.failures: list[str] = []

    def took(self, api: str, status: int, seconds: float, outcome: str) -> None:
        assert seconds >= 0
        self.all.append((api, status, outcome))

    def done(self, report: Report) -> None: ...

    def observed(self, usage: Usage | None) -> None: ...

    def failed(self, reason: str) -> None:
        self.failures.append(reason)


@dataclass
class Reply:
    """An answer: status, headers as they came with names in lower case, body."""

    status: int
    pairs: list[tuple[str, str]]
    body: bytes

    @property
    def headers(self) -> dict[str, str]:
        return dict(self.pairs)


@dataclass
class Proxy:
    """A proxy that runs."""

    port: int
    app: ProxyApp
    rewriting: Any
    counts: Counting
    upstreams: Upstreams
    loop: asyncio.AbstractEventLoop

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(self, method: str, path: str, body: bytes | None = None, headers: Sequence[tuple[str, str]] = ()) -> Reply:
        """One request on a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        try:
            connection.putrequest(method, path, skip_accept_encoding=True)
            for pair in headers:
                connection.putheader(*pair)
            if body is not None:
                connection.putheader("content-length", str(len(body)))
            connection.endheaders(body)
            reply = connection.getresponse()
            return Reply(reply.status, [(name.lower(), value) for name, value in reply.getheaders()], reply.read())
        finally:
            connection.close()

    def settled(self) -> None:
        """All that was answered is learnt from."""
        asyncio.run_coroutine_threadsafe(self.app.drained(), self.loop).result(SECONDS)

    def connect(self) -> socket.socket:
        """A connection for bytes that no client sends."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=SECONDS)


@contextmanager
def proxying(
    *upstreams: str | Engine,
    rewriting: Rewriting | None = None,
    tenant_of: Any = None,
    pilot: Any = None,
    **given: Any,
) -> Iterator[Proxy]:
    """A proxy in a thread, until the block ends.

    Args:
        upstreams: addresses, or engines.
        rewriting: the half that knows prompts; None: `Passing`.
        tenant_of: who asks; None: nobody does.
        pilot: as for `Upstreams`.
        given: settings.
    """
    engines = [one if isinstance(one, Engine) else Engine(one) for one in upstreams]
    settings = ProxySettings(**{"upstreams": ", ".join(engine.url for engine in engines), "port": 0, **given})
    half: Any = Passing() if rewriting is None else rewriting

    def make() -> tuple[ProxyApp, Counting, Upstreams]:
        seconds: dict[str, Any] = {
            "connect_seconds": settings.connect_seconds,
            "answer_seconds": settings.answer_seconds,
        }
        them = Upstreams(engines, pilot, **seconds)
        counts = Counting()
        more = {} if tenant_of is None else {"tenant_of": tenant_of}
        return ProxyApp(settings, half, them, counts=counts, **more), counts, them

    ready, failed = threading.Event(), []
    made: list[tuple[Proxy, asyncio.Event]] = []

    async def serve() -> None:
        app, counts, them = make()
        ending = asyncio.Event()
        async with _listening(app, settings) as port:
            made.append((Proxy(port, app, half, counts, them, asyncio.get_running_loop()), ending))
            ready.set()
            await ending.wait()
            app.drain()
        await app.drained()
        them.close()
        await asyncio.sleep(0.01)

    def run() -> None:
        try:
            run_on_loop(serve())
        except BaseException as error:  # noqa: BLE001  raised below
            failed.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=run, name="proxy")
    thread.start()
    ready.wait(SECONDS)
    try:
        if failed:
            raise failed[0]
        yield made[0][0]
    finally:
        with suppress(RuntimeError, IndexError):
            made[0][0].loop.call_soon_threadsafe(made[0][1].set)
        thread.join(SECONDS)
    assert not thread.is_alive(), "the proxy did not end"
    if failed:
        raise failed[0]


def run_on_loop(work: Coroutine[Any, Any, None]) -> None:
    """Run on the event loop that the process has, too."""
    try:
        import uvloop
    except ModuleNotFoundError:  # Windows has none
        asyncio.run(work)
    else:
        uvloop.run(work)


@asynccontextmanager
async def _listening(app: ProxyApp, settings: ProxySettings) -> AsyncIterator[int]:
    """The port where an app is served, as the process does it; requests under way at the end are cut off."""
    config = uvicorn.Config(
        app, interface="asgi3", ws="none", lifespan="off", log_config=None, access_log=False, proxy_headers=False
    )
    config.load()
    state = ServerState()
    server = await asyncio.get_running_loop().create_server(
        lambda: PatientConnection(settings, config, state, lambda status, kind: None), "127.0.0.1", 0
    )
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for connection in list(state.connections):
            connection.transport.abort()
        for task in list(state.tasks):
            task.cancel()
        await asyncio.gather(*state.tasks, return_exceptions=True)
