"""A real service for these tests, where every API key is a tenant of its own; and an index seen through its twins."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import Any

from contextpilot_rag.remote.index import RemoteIndex
from contextpilot_rag.service.auth import Caller
from contextpilot_rag.service.life import assemble
from contextpilot_rag.service.settings import ServiceSettings
from tests.service.harness import SECONDS, Served, serving

_numbers = count()


class KeyIsTenant:
    """A gate that lets everybody in."""

    sharing: Mapping[str, frozenset[str]] = {}
    tenants: frozenset[str] | None = None

    def identify(self, authorization: str | None) -> Caller:
        return Caller(tenant=(authorization or "").removeprefix("Bearer "))

    def reload(self, *, force: bool = False) -> bool:
        return False


@contextmanager
def any_tenant(**given: Any) -> Iterator[Served]:
    settings = ServiceSettings(**{"port": 0, **given})
    life = assemble(settings)
    life.hub.gate = KeyIsTenant()
    with serving(settings, life) as served:
        yield served


def fresh_key() -> str:
    return f"key-{next(_numbers)}"


class Awaited:
    """An index whose methods are its async twins, run in an event loop in a thread: for suites that do not await."""

    def __init__(self, index: RemoteIndex) -> None:
        self.index = index
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

    def __getattr__(self, name: str) -> Any:
        if name == "tree":
            return self.index.tree
        twin = getattr(self.index, f"a{name}")
        return lambda *given: asyncio.run_coroutine_threadsafe(twin(*given), self._loop).result(SECONDS)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(SECONDS)
        self._loop.close()
