"""For all tests: no setting from the environment leaks in, and slow machines are no failures."""

from __future__ import annotations

import logging
import os

import pytest
from hypothesis import settings

# Machines that run tests are busy; how long an example takes says nothing. Timeouts end what hangs.
settings.register_profile("contextpilot", deadline=None)
settings.load_profile("contextpilot")


def pytest_configure(config):
    config.addinivalue_line("markers", "no_cover: what it covers is not counted (pytest-cov's)")


def pytest_collection_modifyitems(items):
    """Drawn examples are run without counting what they cover: that takes as long again, and is never the same."""
    for item in items:
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker(pytest.mark.no_cover)


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch):
    for name in list(os.environ):
        if name.startswith("CONTEXTPILOT_") or name == "OPENAI_API_KEY":
            monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def logs_as_before():
    """A command that runs in this process takes the logs to itself, as it would in one of its own."""
    ours, root = logging.getLogger("contextpilot_rag"), logging.getLogger()
    handlers, level, propagate = ours.handlers[:], ours.level, ours.propagate
    yield
    added = [handler for handler in ours.handlers if handler not in handlers]
    root.handlers[:] = [handler for handler in root.handlers if handler not in added]
    ours.handlers[:] = handlers
    ours.setLevel(level)
    ours.propagate = propagate
