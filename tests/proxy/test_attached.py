"""Attached: conversations that are named get their earlier blocks back, and nobody else does."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag.expand import expand
from tests.dedup.material import POOL
from tests.proxy.explicitly import BLOCKS, Proxied

SYSTEM = {"role": "system", "content": "Be brief."}
SLICES = "Slices count from zero, and end before the place that they name."
STEPS = "A step may be negative; then the slice runs backwards."


def asks(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def answer(text: str = "Yes.") -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def turn(messages: list[dict[str, Any]], *blocks: Any, name: str = "c", **options: Any) -> dict[str, Any]:
    return {
        "model": "m",
        "messages": messages,
        "contextpilot": {"blocks": list(blocks), "conversation": name, **options},
    }


FIRST = [SYSTEM, asks("q")]
SECOND = [*FIRST, answer(), asks("r")]


def test_a_history_gets_its_blocks_back():
    proxied = Proxied(BLOCKS)
    first = proxied.send(turn(FIRST, SLICES, STEPS))["messages"]
    second = proxied.send(turn(SECOND, STEPS))["messages"]
    assert second[:2] == first
    assert second[3]["content"] == "<documents>\n[2] (given above)\n</documents>\n\nr"
    third = proxied.send(turn([*SECOND, answer(), asks("s")]))["messages"]
    assert third[:4] == second
    assert third[5] == asks("s")


def test_without_a_name_nothing_comes_back():
    proxied = Proxied(BLOCKS)
    proxied.send({"messages": FIRST, "contextpilot": {"blocks": [SLICES]}})
    sent = proxied.send({"messages": SECOND, "contextpilot": {"blocks": [SLICES]}})["messages"]
    assert sent[:2] == FIRST
    assert SLICES in sent[3]["content"]
    assert len(proxied.attached) == 0


def test_another_tenant_model_name_or_history_gets_nothing():
    proxied = Proxied(BLOCKS)
    proxied.send(turn(FIRST, SLICES), tenant="a")
    assert SLICES in str(proxied.send(turn(SECOND), tenant="a"))
    assert SLICES not in str(proxied.send(turn(SECOND), tenant="b"))
    assert SLICES not in str(proxied.send(turn(SECOND, name="d"), tenant="a"))
    assert SLICES not in str(proxied.send({**turn(SECOND), "model": "n"}, tenant="a"))
    assert SLICES not in str(proxied.send(turn([{**SYSTEM, "content": "Be long."}, *SECOND[1:]]), tenant="a"))


def test_a_history_that_is_forgotten_goes_as_it_is_and_nothing_points_at_it():
    for forget in (lambda proxied: setattr(proxied.clock, "now", 1e6), lambda proxied: proxied.send(_other())):
        proxied = Proxied(BLOCKS, characters=2_500)
        proxied.send(turn(FIRST, SLICES))
        forget(proxied)
        sent = proxied.send(turn(SECOND, SLICES))["messages"]
        assert sent[:3] == SECOND[:3]
        assert sent[3]["content"] == f"<documents>\n[1] {SLICES}\n</documents>\n\nr"


def _other() -> dict[str, Any]:
    return turn([asks("other")], "x" * 2_000, name="other")


def test_a_text_is_held_once_and_goes_with_the_last_who_has_it():
    proxied = Proxied(BLOCKS)
    text = "x" * 100_000
    for name in "abcde":
        proxied.send(turn(FIRST, text, name=name))
    assert 100_000 < proxied.attached.characters < 110_000
    proxied.clock.now = 2_000.0
    proxied.send(turn(FIRST, "y", name="f"))
    assert len(proxied.attached) == 1
    assert proxied.attached.characters < 1_000


def test_the_blocks_that_were_given_last_are_the_ones_that_come_back():
    proxied = Proxied(BLOCKS)
    proxied.send(turn(FIRST, SLICES))
    again = proxied.send(turn(FIRST, STEPS))["messages"]
    assert proxied.send(turn(SECOND))["messages"][:2] == again
    assert len(proxied.attached) == 1


def test_a_message_that_has_a_field_of_its_own_is_not_given_others():
    proxied = Proxied(BLOCKS)
    proxied.send(turn(FIRST, SLICES))
    own = {**FIRST[1], "contextpilot": {"blocks": []}}
    assert proxied.send(turn([SYSTEM, own, answer(), asks("r")]))["messages"] == SECOND


def test_options_come_back_with_their_blocks():
    proxied = Proxied(BLOCKS)
    proxied.send(turn([SYSTEM, asks("p")], SLICES, STEPS, name="other"))
    first = proxied.send(turn(FIRST, "Sets.", SLICES, order_hint=False))["messages"]
    assert first[1]["content"].startswith(f"<documents>\n[1] {SLICES}")
    assert proxied.send(turn(SECOND))["messages"][:2] == first


def test_marks_of_what_is_to_be_cached_make_no_other_message():
    def marked(text: str) -> dict[str, Any]:
        return {"role": "user", "content": [{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}]}

    proxied = Proxied(BLOCKS)
    proxied.send({**turn([marked("q")], SLICES), "system": "Be brief."}, "messages")
    body = {**turn([asks("q"), answer(), marked("r")]), "system": [{"type": "text", "text": "Be brief."}]}
    assert SLICES in proxied.send(body, "messages")["messages"][0]["content"]


def test_blocks_behind_a_system_prompt_come_back():
    proxied = Proxied(BLOCKS)
    first = proxied.send(turn(FIRST, SLICES, position="system"))["messages"]
    assert proxied.send(turn(SECOND, STEPS))["messages"][:2] == first


_texts = st.lists(st.sampled_from(POOL), max_size=3, unique=True)
_turns = st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("cd"), _texts), min_size=1, max_size=8)


@given(_turns, st.sampled_from([600, 5_000, 10**6]))
def test_what_was_sent_stays_as_long_as_it_is_remembered_and_nothing_is_ever_lost(turns, characters):
    proxied = Proxied(characters=characters)
    own: dict[tuple[str, str], list[dict[str, Any]]] = {}
    sent_before: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for tenant, name, texts in turns:
        messages = own.setdefault((tenant, name), [SYSTEM])
        messages.append(asks(f"q{len(messages)}"))
        sent = proxied.send(turn(list(messages), *texts, name=name), tenant=tenant)["messages"]
        full = expand(sent)
        assert all(text in full[-1]["content"] for text in texts)
        before = sent_before.get((tenant, name), [])
        if characters == 10**6:
            assert sent[: len(before)] == before
        assert proxied.attached.characters <= characters
        sent_before[tenant, name] = sent
        messages.append(answer())
