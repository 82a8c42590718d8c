"""A service that is one of several replicas does what every index does."""

from __future__ import annotations

import time
from contextlib import ExitStack
from itertools import cycle

import pytest

from contextpilot_rag import RemoteIndex
from contextpilot_rag.engines.status import added_up
from contextpilot_rag.service.keyfile import TenantEntry, changing, new_key
from tests.index.conformance import IndexConformance
from tests.service.harness import SECONDS, serving

from .log_server import LogServer

_TENANTS = 100


@pytest.fixture(scope="module")
def replicated(tmp_path_factory):
    """Two services that share a log, and keys of tenants that nobody has used yet."""
    folder = tmp_path_factory.mktemp("replicated")
    path, keys = folder / "keys.json", []
    with changing(path, create=True) as content:
        for number in range(_TENANTS):
            key, entry = new_key()
            keys.append(key)
            content.tenants[f"tenant {number}"] = TenantEntry([entry])
    with ExitStack() as stack:
        server = stack.enter_context(LogServer(folder))
        services = [
            stack.enter_context(serving(keys=path, salt_secret="s", replicate=server.url, tenant_namespaces=10_000))
            for _ in range(2)
        ]
        yield services, iter(keys)


class TestReplicatedService(IndexConformance):
    @pytest.fixture(autouse=True)
    def _made(self, replicated):
        self.made = []
        self.services, self.keys = replicated
        yield
        for index in self.made:
            index.close()
        for service in self.services:
            status = service.hub.replicas.status()
            assert (status.joined, status.rejected, status.dropped) == (True, {}, 0)

    def make(self):
        self.made.append(RemoteIndex(self.services[0].address, api_key=next(self.keys), timeout=20))
        return self.made[-1]


class InTurn:
    """An index whose every call goes to another replica than the one before, once that has caught up."""

    def __init__(self, indexes, services):
        self.indexes, self.services, self.turns = indexes, services, cycle(indexes)
        for index in indexes:
            index._own().tickets = indexes[0]._own().tickets  # what was noted of an alignment, the client knows

    def settled(self):
        """Wait until all that was told is in the log, and all have read it."""
        replicas = [service.hub.replicas for service in self.services]
        ends = time.monotonic() + SECONDS
        while any(replica.status().pending for replica in replicas):
            assert time.monotonic() < ends, "what was told did not come back"
            time.sleep(0.002)
        assert all(replica._replica.catch_up(SECONDS) for replica in replicas)

    def __getattr__(self, name):
        def call(*given, **more):
            self.settled()
            return getattr(next(self.turns), name)(*given, **more)

        return call

    def stats(self):
        self.settled()
        return added_up([index.stats() for index in self.indexes])


class TestReplicasInTurn(TestReplicatedService):
    def make(self):
        key = next(self.keys)
        indexes = [RemoteIndex(service.address, api_key=key, timeout=20) for service in self.services]
        self.made += indexes
        return InTurn(indexes, self.services)

    test_eight_threads_at_once = None  # type: ignore[assignment]  # what eight threads do is never settled
