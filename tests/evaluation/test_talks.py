from __future__ import annotations

from dataclasses import replace

from contextpilot_rag.evaluation.arms import TALKS
from contextpilot_rag.evaluation.making import made
from contextpilot_rag.prompt.hints import LOCATION_HINT
from tests.evaluation.common import TEXTS, question

TURNS = [
    question("a1", [3, 1], [3], ["first"], conversation="a"),
    question("b1", [8, 9], [8], ["other"], conversation="b"),
    question("a2", [2, 3], [2], ["second"], conversation="a"),
    question("b2", [1, 9, 8], [1], ["last"], conversation="b"),
]


def prompts(arm, turns=TURNS, **changed):
    ((_, found),) = list(made(turns, [replace(TALKS[arm], **changed)], system="Be brief."))
    return {asked.id: prompted for asked, prompted in found}


def text(prompted):
    return "\n".join(str(message["content"]) for message in prompted.messages)


def test_everything_each_turn():
    found = prompts("as retrieved")
    assert [message["content"] for message in found["a2"].messages if message["role"] == "assistant"] == ["first"]
    assert text(found["a2"]).count(TEXTS[3]) == 2
    assert found["a2"].added == 0


def test_a_block_is_given_once_and_pointed_to_from_then_on():
    found = prompts("blocks replaced")
    assert text(found["a2"]).count(TEXTS[3]) == 1
    assert found["a2"].added == len(LOCATION_HINT)
    assert found["a2"].place == 0  # of those that are given in this turn


def test_gold_that_stands_in_an_earlier_turn_has_no_place():
    turns = [*TURNS[:1], question("a2", [2, 3], [3], conversation="a")]
    assert prompts("blocks replaced", turns)["a2"].place is None
    assert prompts("as retrieved", turns)["a2"].place == 1


def test_no_text_is_lost_in_any_arm():
    for arm in TALKS:
        for asked in TURNS:
            for block in asked.blocks:
                assert block.text in text(prompts(arm)[asked.id]), arm


def test_conversations_do_not_mix():
    assert "first" not in text(prompts("aligned")["b2"])


def test_the_hint_counts_as_added():
    turns = [question("a1", [8, 9], conversation="a"), question("b1", [1, 9, 8], conversation="b")]
    plain, aligned = (prompts(arm, turns)["b1"] for arm in ("as retrieved", "aligned"))
    told = prompts("aligned", turns, hint="order")["b1"]
    assert aligned.changed
    assert told.changed
    assert len(text(aligned)) - len(text(plain)) == aligned.added == 0
    assert len(text(told)) - len(text(plain)) == told.added > 0


def test_the_environment_changes_nothing(monkeypatch):
    before = {arm: prompts(arm) for arm in TALKS}
    monkeypatch.setenv("CONTEXTPILOT_ORDER", "fixed")
    monkeypatch.setenv("CONTEXTPILOT_ORDER_HINT", "yes")
    assert {arm: prompts(arm) for arm in TALKS} == before
