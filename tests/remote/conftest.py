from __future__ import annotations

import pytest

from contextpilot_rag.remote.asks import Deadline
from contextpilot_rag.remote.breaker import Breaker
from tests.remote.service import any_tenant


@pytest.fixture(scope="module")
def service():
    with any_tenant() as served:
        yield served


@pytest.fixture
def stopped_clock(monkeypatch):
    """Breakers whose pauses never end, however slow the machine is."""
    monkeypatch.setattr("contextpilot_rag.remote.index.Breaker", lambda _: Breaker(lambda: 0.0, jitter=lambda: 1.0))


@pytest.fixture
def never_late(monkeypatch):
    """Calls that come to their turn in time, however slow the machine is: what they wait for is the service."""
    monkeypatch.setattr(Deadline, "waited", False)
