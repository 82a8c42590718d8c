from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextpilot_rag import ContextPilot
from contextpilot_rag.evaluation.arms import SINGLE, settings_of
from contextpilot_rag.evaluation.making import made
from tests.evaluation.common import question, traffics

OFFERED = sorted(name for name, arm in SINGLE.items() if settings_of(arm) is not None)


def prompts(traffic, arm, **options):
    ((_, found),) = list(made(traffic, [SINGLE[arm]], **options))
    return list(found)


@settings(max_examples=40)
@given(traffics, st.sampled_from(OFFERED))
def test_an_arms_prompts_are_those_of_a_pilot_with_its_settings(traffic, arm):
    pilot = ContextPilot(settings=settings_of(SINGLE[arm]))
    for asked, prompted in prompts(traffic, arm, system="Be brief."):
        own = pilot.align(asked.blocks, asked.text)
        assert list(prompted.messages) == own.messages("Be brief.")
        assert prompted.changed == own.changed


@settings(max_examples=40)
@given(traffics, st.sampled_from(sorted(SINGLE)))
def test_arms_add_what_they_say_and_nothing_else(traffic, arm):
    retrieved = prompts(traffic, "as retrieved")
    for (asked, prompted), (_, base) in zip(prompts(traffic, arm), retrieved, strict=True):
        user, plain = (str(one.messages[-1]["content"]) for one in (prompted, base))
        assert len(user) - len(plain) == prompted.added
        assert all(block.text in user for block in asked.blocks)
        if not prompted.changed:
            assert prompted.messages == base.messages


@settings(max_examples=6)
@given(traffics)
def test_equal_prompts_have_equal_keys_and_others_have_others(traffic):
    of_key, of_prompt = {}, {}
    for arm in SINGLE:
        for asked, prompted in prompts(traffic, arm):
            key, shown = prompted.key(asked, "terms"), (str(prompted.messages), asked.answers[:1])
            assert of_key.setdefault(key, shown) == shown
            assert of_prompt.setdefault(shown, key) == key


def test_a_key_depends_on_terms_and_on_what_is_scored():
    ((asked, prompted),) = prompts([question("q", [1], answers=["a", "b"])], "as retrieved")
    key = prompted.key(asked, "terms")
    assert key != prompted.key(asked, "other terms")
    assert key != prompted.key(question("q", [1], answers=["b"]), "terms")
    assert key == prompted.key(question("q", [1], answers=["a"]), "terms")


def test_traffic_shapes_orders_and_is_not_asked():
    traffic = [question(1, [8, 9], asked=False), question(2, [1, 9, 8], gold=[8])]
    ((asked, prompted),) = prompts(traffic, "balanced")
    assert (asked.id, prompted.changed, prompted.place) == ("2", True, 0)
    ((_, alone),) = prompts(traffic[1:], "balanced")
    assert (alone.changed, alone.place) == (False, 1)


@pytest.mark.parametrize(("gold", "place"), [([], None), ([5], None), ([3], 0), ([1, 2], 0.5), ([2], 1)])
def test_the_place_of_the_first_gold_block(gold, place):
    ((_, prompted),) = prompts([question("q", [3, 1, 2], gold)], "as retrieved")
    assert prompted.place == place
