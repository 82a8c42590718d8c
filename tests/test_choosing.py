"""Which settings a pilot's user means."""

from __future__ import annotations

import pytest

from contextpilot_rag import AsyncContextPilot, ContextPilot, Settings


@pytest.mark.parametrize("pilot", [ContextPilot, AsyncContextPilot])
@pytest.mark.parametrize("given", [{"enabled": True}, {"settings": Settings(order="throughput")}])
def test_nothing_that_the_code_names_overrules_the_switch_for_incidents(monkeypatch, pilot, given):
    assert pilot(**given).settings.enabled
    monkeypatch.setenv("CONTEXTPILOT_ENABLED", "no")
    assert not pilot(**given).settings.enabled
    assert pilot(**given).settings.budget.order == "retrieved"


def test_the_environment_cannot_switch_on_what_the_code_has_off(monkeypatch):
    monkeypatch.setenv("CONTEXTPILOT_ENABLED", "yes")
    assert not ContextPilot(enabled=False).settings.enabled
