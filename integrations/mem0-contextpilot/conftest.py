"""For all tests: no setting from outside leaks in, nothing leaves this machine, and what the examples talk about."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

from measure import offline  # noqa: F401  before mem0: it says that nothing is to be reported to anybody

settings.register_profile("mem0-contextpilot", deadline=None, max_examples=30)
settings.load_profile("mem0-contextpilot")


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch):
    for name in list(os.environ):
        if name.startswith("CONTEXTPILOT_") or name in {"OPENAI_API_KEY", "MEM0_API_KEY"}:
            monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def readme_names(request, doctest_namespace):
    """What the README calls `own` and `client`: a real Memory with the memories of the table, and a FakeEngine."""
    if not request.node.name.endswith("README.md"):
        yield
        return
    from contextpilot_rag.testing import FakeEngine
    from openai import OpenAI

    from measure.table import filled_memory

    with filled_memory() as own, FakeEngine() as engine, OpenAI(base_url=engine.base_url, api_key="none") as client:
        doctest_namespace.update(own=own, client=client, model="none")
        yield
