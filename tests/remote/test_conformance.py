"""The index that is a service does what every index does, asked from threads and from an event loop."""

from __future__ import annotations

import pytest

from contextpilot_rag import RemoteIndex
from tests.index.conformance import IndexConformance
from tests.remote.service import Awaited, fresh_key


class TestRemoteIndex(IndexConformance):
    @pytest.fixture(autouse=True)
    def _made(self, service):
        self.made = []
        self.address = service.address
        yield
        for index in self.made:
            index.close()

    def make(self):
        self.made.append(RemoteIndex(self.address, api_key=fresh_key(), timeout=20))
        return self.made[-1]


class TestAwaitedIndex(TestRemoteIndex):
    steps = 51

    @pytest.fixture(autouse=True)
    def _awaited(self, _made):
        self.loops = []
        yield
        for loop in self.loops:
            loop.stop()

    def make(self):
        self.loops.append(Awaited(super().make()))
        return self.loops[-1]
