from __future__ import annotations

import pytest

from contextpilot_rag.engines.events import EventListener
from tests.engines.publisher import Remembering


@pytest.fixture
def sink():
    return Remembering()


@pytest.fixture
def listener(sink):
    with EventListener(sink, patience=1.0) as listening:
        yield listening
