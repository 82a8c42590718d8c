"""The fallback in a pilot: a control of requests as retrieved, ratings, and alignment that turns itself off."""

from __future__ import annotations

import pytest

from contextpilot_rag import AlignedPrompt, AsyncContextPilot, ContextPilot, Engine, LocalIndex, Settings
from contextpilot_rag.adapter import Adapter
from contextpilot_rag.engines.fleet import Fleet
from contextpilot_rag.errors import InputError, SettingsError
from contextpilot_rag.proxy_command import pilot_settings_from
from contextpilot_rag.quality.judge import Judge

COMMON = [(f"common-{number}", f"Everybody asks for part {number}. " * 20) for number in range(3)]


def blocks(number: int) -> list[tuple[str, str]]:
    """Blocks of a request that alignment puts into another order: what is new was ranked first."""
    return [(f"new-{number}", f"Only request {number} has this. " * 4), *COMMON]


def pilot_of(**options) -> ContextPilot:
    pilot = ContextPilot(**{"quality_drop": 0.0, "quality_control": 0.3, "order_hint": True, **options})
    pilot.align(COMMON, "first", order="retrieved")
    return pilot


def worse(pilot: ContextPilot, requests: int = 600, **options) -> list[AlignedPrompt]:
    """Requests that are rated badly where they were reordered, until alignment is off."""
    prompts = []
    for number in range(requests):
        prompt = pilot.align(blocks(number), f"question {number}", **options)
        prompts.append(prompt)
        pilot.rate(prompt, 0.1 if prompt.changed else 0.9)
        if pilot.quality(options.get("namespace")).off:
            break
    return prompts


def test_some_requests_are_sent_as_retrieved_and_say_that_they_are_the_control():
    pilot = pilot_of()
    prompts = [pilot.align(blocks(number), f"question {number}") for number in range(200)]
    control = [prompt for prompt in prompts if prompt.rule == "control"]
    assert 30 <= len(control) <= 90
    for prompt in prompts:
        if prompt.rule == "control":
            assert (prompt.changed, prompt.order_hint, prompt.trial) == (False, None, "control")
            assert "compared with" in prompt.reason
        else:
            assert (prompt.changed, prompt.rule, prompt.trial) == (True, "prefix", "aligned")
    stats = pilot.stats()
    assert stats.rules == {"off": 1, "control": len(control), "prefix": 200 - len(control)}
    assert (stats.requests, stats.changed) == (201, 200 - len(control))


def test_requests_that_share_nothing_are_counted_as_what_they_are():
    pilot = pilot_of()
    for number in range(100):
        pilot.align([f"Nobody else finds {number}.", f"Nor this: {number}."], f"question {number}")
    assert pilot.stats().rules == {"off": 1, "nothing_gained": 100}


def test_the_control_is_the_same_in_every_pilot():
    rules = [[pilot.align(blocks(n), f"question {n}").rule for n in range(40)] for pilot in (pilot_of(), pilot_of())]
    assert rules[0] == rules[1]


def test_a_request_that_alignment_leaves_alone_says_nothing():
    pilot = pilot_of(min_gain=1.0)
    prompts = [pilot.align(blocks(number), f"question {number}") for number in range(50)]
    assert {str(prompt.rule) for prompt in prompts} <= {"below_min_gain", "nothing_gained"}
    assert not any(pilot.rate(prompt, 0.5) for prompt in prompts)
    assert pilot.quality().control.count == pilot.quality().aligned.count == 0


def test_without_the_setting_nothing_is_tried_or_asked():
    pilot = pilot_of(quality_drop=None)
    prompts = worse(pilot, 50)
    assert all(prompt.changed and prompt.trial is None for prompt in prompts)
    assert not pilot.rate(prompts[0], 0.0)
    assert not pilot.quality().off


@pytest.mark.parametrize("order", ["balanced", "throughput", "fixed"])
def test_alignment_turns_itself_off_and_says_so_once(order, caplog):
    pilot = pilot_of(order=order)
    asked = len(worse(pilot))
    assert pilot.quality().off
    after = [pilot.align(blocks(number), f"question {number}") for number in range(asked, asked + 100)]
    rules = [str(prompt.rule) for prompt in after]
    assert rules.count("quality") > 20
    assert rules.count("control") > 10
    trial = [prompt for prompt in after if prompt.trial == "aligned"]
    assert 10 < len(trial) == sum(prompt.changed for prompt in after)
    kept = next(prompt for prompt in after if prompt.rule == "quality")
    assert (kept.changed, kept.order_hint, kept.trial) == (False, None, None)
    assert "rated worse" in kept.reason
    assert not pilot.rate(kept, 1.0)
    assert pilot.stats().rules["quality"] == rules.count("quality")
    said = [record.getMessage() for record in caplog.records if "turned off" in record.getMessage()]
    assert len(said) == 1
    assert "the default namespace: answers were rated 0.100" in said[0]


def test_it_comes_back_when_answers_are_as_good_again(caplog):
    pilot = pilot_of(quality_drop=0.2)
    asked = len(worse(pilot))
    for number in range(asked, asked + 3_000):
        prompt = pilot.align(blocks(number % 5_000), f"question {number}")
        pilot.rate(prompt, 0.8)
        if not pilot.quality().off:
            break
    assert (pilot.quality().off, pilot.quality().turned_off) == (False, 1)
    assert "turned on again" in caplog.text
    assert all(pilot.align(blocks(n), f"later {n}").rule != "quality" for n in range(20))


def test_only_the_namespace_that_was_rated_is_turned_off_and_forgetting_brings_it_back():
    pilot = pilot_of()
    for space in ("acme", "globex"):
        pilot.align(COMMON, "first", namespace=space)
    worse(pilot, namespace="acme")
    assert (pilot.quality("acme").off, pilot.quality("globex").off) == (True, False)
    assert not any(pilot.align(blocks(n), "?", namespace="globex").rule == "quality" for n in range(20))
    assert not any(alignment.changed for alignment in pilot.plan([COMMON, blocks(1)], namespace="acme"))
    assert any(alignment.changed for alignment in pilot.plan([COMMON, blocks(1)], namespace="globex"))
    pilot.forget("globex")
    assert pilot.quality("acme").off
    pilot.forget("acme")
    assert not pilot.quality("acme").off


def test_the_index_knows_in_which_order_a_control_was_sent():
    index = LocalIndex()
    pilot = ContextPilot(index, quality_drop=0.0, quality_control=0.5)
    pilot.align(COMMON, "first", order="retrieved")
    prompts = (pilot.align(blocks(number), f"question {number}") for number in range(50))
    prompt = next(prompt for prompt in prompts if prompt.rule == "control")
    again = pilot.align([(block.id, block.text) for block in prompt.retrieved], "another", order="retrieved")
    assert again.cached_blocks == len(prompt.retrieved)


def test_a_prediction_that_fails_sends_the_control_as_retrieved_and_counts_nothing():
    class Unforeseeing(LocalIndex):
        def predict(self, request):
            raise OSError("no foresight")

    pilot = ContextPilot(Unforeseeing(), quality_drop=0.0, quality_control=0.5)
    pilot.align(COMMON, "first", order="retrieved")
    prompts = [pilot.align(blocks(number), f"question {number}") for number in range(30)]
    kept = [prompt for prompt in prompts if not prompt.changed]
    assert kept
    assert all((prompt.rule, prompt.trial) == ("nothing_gained", None) for prompt in kept)
    assert pilot.failures == len(kept)


async def test_the_async_pilot_has_the_same_words():
    pilot = AsyncContextPilot(quality_drop=0.0, quality_control=0.5)
    await pilot.align(COMMON, "first", order="retrieved")
    prompts = [await pilot.align(blocks(number), f"question {number}") for number in range(20)]
    assert all([await pilot.rate(prompt, 1.0) for prompt in prompts])
    quality = await pilot.quality()
    assert quality.aligned.count + quality.control.count == 20
    assert (await pilot.stats()).rules["control"] == quality.control.count
    await pilot.forget()
    assert (await pilot.quality()).control.count == 0


def test_conversations_and_adapters_are_tried_and_rated_too():
    pilot = pilot_of(quality_control=0.5)
    opened = [pilot.conversation().align(blocks(number), f"question {number}") for number in range(20)]
    assert {turn.trial for turn in opened} == {"aligned", "control"}
    assert all(pilot.rate(turn, 1.0) for turn in opened)
    adapter = Adapter(pilot)
    texts = [text for _, text in blocks(99)]
    prompt = adapter.arrange(texts, "question 99")
    assert adapter.rate(prompt, 0.5)
    assert not adapter.rate(prompt, 7)
    assert pilot.failures == 1


@pytest.mark.parametrize("score", [-0.1, 1.1, float("nan"), True, "1", None, 10**400])
def test_a_score_that_cannot_be_is_refused(score):
    pilot = pilot_of()
    with pytest.raises(InputError, match="a score is a number from 0 to 1"):
        pilot.rate(pilot.align(blocks(1), "?"), score)
    with pytest.raises(InputError, match="rate takes what align returned, not str"):
        pilot.rate("alignment", 1)


def test_settings_of_the_fallback_are_checked():
    assert (Settings().quality_drop, Settings().quality_control) == (None, 0.1)
    assert Settings.from_env({"CONTEXTPILOT_QUALITY_DROP": "0.05"}).quality_drop == 0.05
    for wrong in ({"quality_drop": 1.5}, {"quality_control": 0}, {"quality_control": 0.6}):
        with pytest.raises(SettingsError, match=min(wrong)):
            Settings(**wrong)
    with pytest.raises(SettingsError, match="quality_drop belongs to the pilot"):
        ContextPilot().align(["x"], quality_drop=0.1)


def test_with_several_engines_both_halves_are_requests_that_some_engine_has_in_another_order():
    engines = [Engine(f"http://127.0.0.1:{port}") for port in (9, 10)]
    with ContextPilot(Fleet(engines, lambda _: LocalIndex()), quality_drop=0.0, quality_control=0.5) as pilot:
        for number in range(4):
            pilot.align(COMMON, f"first {number}", order="retrieved")
        strangers = [pilot.align([(f"s-{n}", f"Nobody else asks for {n}.")], f"stranger {n}") for n in range(20)]
        assert all(prompt.trial is None for prompt in strangers)
        prompts = [pilot.align(blocks(number), f"question {number}") for number in range(40)]
        assert {prompt.trial for prompt in prompts} == {"aligned", "control"}
        assert all((prompt.rule == "control") == (prompt.trial == "control") for prompt in prompts)


def test_a_proxy_tries_nothing_since_nobody_rates_its_answers():
    assert pilot_settings_from({}, {"CONTEXTPILOT_QUALITY_DROP": "0.1"}).quality_drop is None


def test_a_judge_that_breaks_leaves_requests_aligned(monkeypatch):
    pilot = pilot_of()

    def broken(*_: object) -> None:
        raise ArithmeticError("no role")

    monkeypatch.setattr(Judge, "role", broken)
    prompt = pilot.align(blocks(1), "?")
    assert (prompt.changed, prompt.trial, pilot.failures) == (True, None, 1)
