"""The FakeEngine as an engine under test: the same size, the same addresses, held to the same tests."""

from __future__ import annotations

from typing import Any

from contextpilot_rag.testing import EventOptions, FakeEngine
from tests.ports import free_port

from .under_test import BLOCK, CAPACITY, EngineUnderTest


class FakeUnderTest(EngineUnderTest):
    """A FakeEngine on ports of its own."""

    name = "fake"
    topic = "kv@live"
    model = "fake-engine"

    def __init__(self, capacity: int = CAPACITY, **options: Any) -> None:
        self._ports = {"port": free_port(), "events_port": free_port(), "replay_port": free_port()}
        self.url = f"http://127.0.0.1:{self._ports['port']}"
        self.events = f"tcp://127.0.0.1:{self._ports['events_port']}"
        self.replay = f"tcp://127.0.0.1:{self._ports['replay_port']}"
        self.fake = FakeEngine(
            block_size=BLOCK,
            capacity_blocks=capacity,
            model=self.model,
            **{"events": EventOptions(topic=self.topic), **options},
        )

    def start(self) -> None:
        """Serve."""
        self.fake.start(**self._ports)

    def kill(self) -> None:
        """As a crash does."""
        self.fake.crash()

    def close(self) -> None:
        """Close its sockets."""
        self.fake.stop()
