"""The service as a process: its event loop, its signals."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from .life import assemble
from .logs import configure
from .server import Lived, Server
from .settings import ServiceSettings

logger = logging.getLogger("contextpilot_rag")
_SWITCH_SECONDS = 0.001  # how long the event loop waits for a thread that computes


def serve(settings: ServiceSettings, tell: Callable[[str], None]) -> int:
    """Serve until SIGTERM or SIGINT; the exit status.

    Args:
        settings: in force.
        tell: is given one line when the service is ready, unless logs are JSON: then it stands there.

    Raises:
        ContextPilotError: the service cannot be started.
    """
    return serve_life(
        lambda: assemble(settings, alone=True), settings.log_format, lambda address: say_ready(address, settings, tell)
    )


def serve_life(make: Callable[[], Lived], log_format: str, ready: Callable[[str], None]) -> int:
    """Serve what has this process to itself until SIGTERM or SIGINT; the exit status.

    Args:
        make: makes what is served, once logs are in order.
        log_format: "text" or "json".
        ready: is given the address once requests are answered.

    Raises:
        ContextPilotError: it cannot be started.
    """
    configure(log_format, whole=True)
    sys.setswitchinterval(_SWITCH_SECONDS)
    life = make()
    try:
        server = Server(life)
    except BaseException:
        asyncio.run(life.stop())  # what was made holds threads
        raise
    with signals(server):
        run(server, lambda: ready(server.address))
    return 0


def say_ready(address: str, settings: ServiceSettings, tell: Callable[[str], None]) -> None:
    """For people on a line of its own; whoever reads JSON gets all of it in one place."""
    if settings.log_format == "json":
        logger.info("ready on %s", address, extra={"address": address})
    else:
        tell(f"contextpilot-rag: ready on {address}")


def run(server: Server, ready: Callable[[], None]) -> None:
    """Serve until the server is stopped. On uvloop, where there is one: it costs half as much.

    Args:
        server: what to serve.
        ready: called when requests are answered.

    Raises:
        ContextPilotError: a part of the service cannot be started.
    """
    loop = _new_loop()
    try:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(server.serve(ready))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ModuleNotFoundError:  # Windows has none
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


@contextmanager
def signals(server: Server) -> Iterator[None]:
    """SIGTERM and SIGINT: an orderly end; a second one: at once. SIGHUP: files are read again."""
    ending = False

    def end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        nonlocal ending
        if ending:
            os._exit(128 + number)
        ending = True
        server.stop()

    def reload(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        server.reload()

    handlers = {signal.SIGTERM: end, signal.SIGINT: end}
    if hasattr(signal, "SIGHUP"):
        handlers[signal.SIGHUP] = reload
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
