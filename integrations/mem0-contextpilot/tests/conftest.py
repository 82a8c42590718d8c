"""A real Memory that is empty, and one that holds what the README's table is measured with."""

from __future__ import annotations

import pytest
from contextpilot_rag.testing import FakeEngine

from measure.offline import offline_memory
from measure.table import filled_memory
from measure.workload import MEMORIES


@pytest.fixture(scope="session")
def filled():
    """Of user alice; not to be changed."""
    with filled_memory() as memory:
        yield memory


@pytest.fixture(params=["faiss", "qdrant"])
def either(request, tmp_path):
    """Empty, with each of the embedded vector stores."""
    with offline_memory(tmp_path, MEMORIES, request.param) as memory:
        yield memory


@pytest.fixture
def own(tmp_path):
    """Empty."""
    with offline_memory(tmp_path, MEMORIES) as memory:
        yield memory


@pytest.fixture
def engine():
    with FakeEngine(block_size=16) as engine:
        yield engine


@pytest.fixture
def client(engine):
    from openai import OpenAI

    with OpenAI(base_url=engine.base_url, api_key="none") as client:
        yield client
