"""A running FakeEngine, and the openai client to speak to it with."""

from __future__ import annotations

import openai
import pytest

from contextpilot_rag.testing import FakeEngine


@pytest.fixture(scope="module")
def shared():
    """One started engine for the tests that only look at its answers."""
    with FakeEngine(block_size=32) as engine:
        yield engine


@pytest.fixture
def engine(shared):
    shared.reset()
    shared.fail_next(0)
    shared.report_cached = True
    return shared


@pytest.fixture
def client(engine):
    with openai.OpenAI(base_url=engine.base_url, api_key="none", max_retries=0) as client:
        yield client
