from __future__ import annotations

import pytest

from contextpilot_rag.evaluation.arms import BASE, SINGLE, TALKS, USUAL, settings_of, written
from contextpilot_rag.evaluation.layouts import LAYOUTS
from contextpilot_rag.evaluation.talks import TALKS as TALK_LAYOUTS
from contextpilot_rag.settings import Settings


def test_every_arm_has_a_layout_and_a_name_of_its_own():
    assert all(arm.name == name and arm.layout in LAYOUTS for name, arm in SINGLE.items())
    assert all(arm.name == name and arm.layout in TALK_LAYOUTS for name, arm in TALKS.items())
    for table in (SINGLE, TALKS):
        assert next(iter(table)) == BASE
        assert len({(arm.layout, arm.hint, arm.echo) for arm in table.values()}) == len(table)


def test_the_usual_arms_are_arms():
    assert set(USUAL) <= {*SINGLE, *TALKS}


@pytest.mark.parametrize("arm", [*SINGLE.values(), *TALKS.values()], ids=lambda arm: arm.name)
def test_what_is_written_makes_the_same_settings(arm):
    settings = settings_of(arm)
    if settings is None:
        assert arm.layout not in TALK_LAYOUTS
        return
    line = written(settings)
    assert eval(line, {"ContextPilot": Settings}) == settings


def test_controls_have_no_settings():
    assert all(settings_of(SINGLE[name]) is None for name in ("shuffled", "reversed", "best last, hint: order"))
