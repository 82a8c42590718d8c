"""A replica's index does what every index does: with a log in memory, with a real one, and with one that is away."""

from __future__ import annotations

from itertools import count

import pytest

from contextpilot_rag.replicas.process import ProcessReplica
from contextpilot_rag.replicas.redis_log import open_log
from contextpilot_rag.replicas.space import Names
from tests.index.conformance import IndexConformance

from .log_server import LogServer
from .memory_log import MemoryLog
from .pilots import index_on, replica_on


class Replicated(IndexConformance):
    @pytest.fixture(autouse=True)
    def _made(self):
        self.made = []
        yield
        for replica in self.made:
            replica.close(0.0)

    def replica(self) -> ProcessReplica:
        raise NotImplementedError

    def make(self):
        self.made.append(self.replica())
        return index_on(self.made[-1])


class TestInMemory(Replicated):
    def replica(self):
        return replica_on(MemoryLog())


class TestAway(Replicated):
    def replica(self):
        log = MemoryLog()
        log.away = True
        return replica_on(log)


class TestSlow(Replicated):
    steps = 51

    def replica(self):
        log = MemoryLog()
        log.slow = 0.03
        return replica_on(log)


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    with LogServer(tmp_path_factory.mktemp("conformance")) as server:
        yield server.url


class TestRealServer(Replicated):
    numbers = count(1)

    @pytest.fixture(autouse=True)
    def _address(self, address):
        self.address = address

    def replica(self):
        prefix = f"test{next(self.numbers)}"
        return ProcessReplica(lambda: open_log(f"{self.address}?prefix={prefix}"), Names("shared", prefix))
