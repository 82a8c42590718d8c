"""For all tests: no setting from the environment leaks in, and slow machines are no failures."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

# Machines that run tests are busy; how long an example takes says nothing. Timeouts end what hangs.
settings.register_profile("contextpilot", deadline=None)
settings.load_profile("contextpilot")


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch):
    for name in list(os.environ):
        if name.startswith("CONTEXTPILOT_") or name == "OPENAI_API_KEY":
            monkeypatch.delenv(name)
