"""No test reaches out, and none hears of the environment's settings."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

settings.register_profile("ours", max_examples=30, deadline=None)
settings.load_profile("ours")


@pytest.fixture(autouse=True)
def _nothing_from_outside(monkeypatch):
    for name in list(os.environ):
        if name.startswith(("CONTEXTPILOT_", "LANGCHAIN_", "LANGSMITH_", "OPENAI_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("LANGSMITH_TRACING", "false")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture(params=["sync", "async"])
def ask(request):
    """Asks a retriever, both ways."""

    async def asynchronously(retriever, *args, **kwargs):
        return await retriever.ainvoke(*args, **kwargs)

    async def synchronously(retriever, *args, **kwargs):
        return retriever.invoke(*args, **kwargs)

    return asynchronously if request.param == "async" else synchronously
