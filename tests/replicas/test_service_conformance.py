"""A service that is one of several replicas does what every index does."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from contextpilot_rag import RemoteIndex
from contextpilot_rag.service.keyfile import TenantEntry, changing, new_key
from tests.index.conformance import IndexConformance
from tests.service.harness import serving

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
            assert (status.joined, status.rejected, status.reloads, status.dropped) == (True, {}, {}, 0)

    def make(self):
        self.made.append(RemoteIndex(self.services[0].address, api_key=next(self.keys), timeout=20))
        return self.made[-1]
