"""Replaying: what is sent of requests with blocks, turn by turn, in every format."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag import AsyncContextPilot
from contextpilot_rag.conversation import Dedup
from contextpilot_rag.dedup.units import normal
from contextpilot_rag.expand import expand
from contextpilot_rag.index.local import LocalIndex
from contextpilot_rag.prompt.escape import escape
from contextpilot_rag.proxy import replaying
from contextpilot_rag.proxy.memory import Decision
from contextpilot_rag.proxy.problems import Unusable
from contextpilot_rag.proxy.restoring import expand_body
from contextpilot_rag.proxy.words import Api
from tests.conversation.talks import block_texts, questions
from tests.dedup.material import SENTENCES, TABLE
from tests.proxy.explicitly import ALL, BLOCKS, Proxied, read, user

SYSTEM = {"role": "system", "content": "Be brief."}
SLICES = "Slices count from zero, and end before the place that they name."
STEPS = "A step may be negative; then the slice runs backwards."
SETS = "Sets have no order, and each of their members only once."


def answer(text: str = "Yes.") -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def test_blocks_stand_in_front_of_the_last_user_message():
    body = {"messages": [SYSTEM, {"role": "user", "content": "Why?"}], "contextpilot": {"blocks": [SLICES, STEPS]}}
    sent = Proxied().send(body)
    assert sent["messages"][0] == SYSTEM
    assert sent["messages"][1]["content"] == f"<documents>\n[1] {SLICES}\n\n[2] {STEPS}\n</documents>\n\nWhy?"


def test_a_shared_block_comes_first_and_the_order_of_relevance_is_told():
    proxied = Proxied()
    proxied.send({"messages": [SYSTEM, user("q", SLICES, STEPS)]})
    sent = proxied.send({"messages": [SYSTEM, user("r", SETS, {"id": "s", "text": SLICES})]})
    content = sent["messages"][1]["content"]
    assert content.startswith(f"<documents>\n[1] {SLICES}")
    assert content.endswith("</documents>\n\nOrder of relevance, best first: [2] > [1]\n\nr")
    assert proxied.last.report.changed
    assert proxied.last.report.labels == ("1=2", "2=1")
    assert proxied.last.labels[1] == "s"
    assert proxied.last.report.predicted_cached_tokens > 0
    assert proxied.last.order == (1, 0)


def test_the_order_of_relevance_is_told_to_nobody_who_did_not_ask_for_it():
    proxied = Proxied(pilot=AsyncContextPilot(min_gain=0))
    proxied.send({"messages": [SYSTEM, user("q", SLICES, STEPS)]})
    sent = proxied.send({"messages": [SYSTEM, user("r", SETS, SLICES)]})["messages"][1]["content"]
    assert sent == f"<documents>\n[1] {SLICES}\n\n[2] {SETS}\n</documents>\n\nr"
    told = proxied.send({"messages": [SYSTEM, user("s", SETS, SLICES, order_hint=True)]})["messages"][1]["content"]
    assert told.endswith("</documents>\n\nOrder of relevance, best first: [2] > [1]\n\ns")


def test_other_beginnings_share_nothing():
    proxied = Proxied()
    proxied.send({"messages": [SYSTEM, user("q", SLICES, STEPS)]})
    other = {"role": "system", "content": "Be long."}
    assert not proxied.send({"messages": [other, user("r", SETS, SLICES)]})["messages"][1]["content"].count("Order")
    assert proxied.last.report.predicted_cached_tokens == 0


def test_tenants_and_models_share_nothing():
    proxied = Proxied()
    proxied.send({"model": "m", "messages": [SYSTEM, user("q", SLICES, STEPS)]}, tenant="a")
    for tenant, model in (("b", "m"), ("a", "n")):
        proxied.send({"model": model, "messages": [SYSTEM, user("r", SETS, SLICES)]}, tenant=tenant)
        assert not proxied.last.report.changed


def test_a_block_that_stands_before_is_a_location_hint():
    proxied = Proxied(BLOCKS)
    turns = [user("q", SLICES), answer(), user("r", STEPS, SLICES)]
    sent = proxied.send({"messages": turns})["messages"]
    assert sent[2]["content"] == f"<documents>\n[2] {STEPS}\n\n[1] (given above)\n</documents>\n\nr"
    assert proxied.last.report.replaced == 1
    assert proxied.last.report.left_out == len(SLICES) - len("(given above)")
    assert proxied.last.report.labels == ("2=1", "1=2")


def test_blocks_of_two_user_messages_in_a_row_both_stand():
    sent = Proxied().send({"messages": [user("q", SLICES), user("r", STEPS), user("s", SETS)]})["messages"]
    assert [SLICES in sent[0]["content"], STEPS in sent[1]["content"], SETS in sent[2]["content"]] == [True] * 3
    assert "[3] Sets" in sent[2]["content"]


def test_what_a_tool_repeats_is_replaced_only_where_chunks_are():
    result = {"role": "tool", "tool_call_id": "a", "content": SENTENCES}
    call = {"role": "assistant", "content": None, "tool_calls": []}
    for dedup, shorter in ((ALL, True), (BLOCKS, False)):
        proxied = Proxied(dedup)
        sent = proxied.send({"messages": [user("q", SENTENCES), call, result]})["messages"]
        assert (len(sent[2]["content"]) < len(SENTENCES)) == shorter
        assert expand(sent)[2]["content"] == SENTENCES
        assert proxied.last.report.replaced == int(shorter)
        assert (proxied.last.report.left_out > 0) == shorter


def test_the_options_of_a_field_are_respected():
    def order(**options: Any) -> str:
        proxied = Proxied()
        proxied.send({"messages": [user("q", SLICES, STEPS)]})
        sent: str = proxied.send({"messages": [user("r", SETS, STEPS, SLICES, **options)]})["messages"][0]["content"]
        return sent

    assert order().startswith(f"<documents>\n[1] {SLICES}")
    assert "Order of relevance" in order()
    assert "Order of relevance" not in order(order_hint=False)
    assert order(order="retrieved").startswith(f"<documents>\n[1] {SETS}")
    assert order(protect_top=1).startswith(f"<documents>\n[1] {SETS}")
    assert order(min_gain=0.99).startswith(f"<documents>\n[1] {SETS}")
    assert order(max_displacement=0).startswith(f"<documents>\n[1] {SETS}")


def test_equal_texts_are_merged_and_one_id_with_two_texts_is_refused():
    sent = Proxied().send({"messages": [user("q", SLICES, STEPS, SLICES)]})["messages"][0]["content"]
    assert sent.count(SLICES) == 1
    with pytest.raises(Unusable) as caught:
        Proxied().send({"messages": [user("q", {"id": 1, "text": SLICES}, {"id": 1, "text": STEPS})]})
    assert caught.value.param == "messages[0].contextpilot.blocks"
    with pytest.raises(Unusable, match="max_text"):
        Proxied(Dedup(max_text=10)).send({"messages": [user("q", SLICES)]})


def test_no_blocks_are_nothing_but_a_field_that_goes():
    proxied = Proxied()
    sent = proxied.send({"messages": [SYSTEM, user("q")], "n": 1, "contextpilot": {"blocks": []}})
    assert sent == {"messages": [SYSTEM, {"role": "user", "content": "q"}], "n": 1}
    assert proxied.last.alignment is None


def test_blocks_stand_within_the_first_text_of_a_list_of_parts():
    image = {"type": "image_url", "image_url": {"url": "data:"}}
    parts = [image, {"type": "text", "text": "What is it?", "x": 1}, {"type": "text", "text": "And why?"}]
    message = {**user("", SLICES), "content": parts}
    content = Proxied().send({"messages": [message]})["messages"][0]["content"]
    assert content[1] == {"type": "text", "text": f"<documents>\n[1] {SLICES}\n</documents>\n\nWhat is it?", "x": 1}
    assert [content[0], content[2]] == [image, parts[2]]


def test_what_stands_in_a_list_of_parts_can_be_pointed_at_and_restored():
    parts = [{"type": "image_url", "image_url": {"url": "data:"}}, {"type": "text", "text": "What is it? [2]"}]
    messages = [{**user("", SLICES), "content": parts}, answer(), user("r", STEPS, SLICES)]
    sent = Proxied(BLOCKS).send({"messages": messages})["messages"]
    assert sent[2]["content"] == f"<documents>\n[3] {STEPS}\n\n[1] (given above)\n</documents>\n\nr"
    assert f"[1] {SLICES}" in expand(sent)[2]["content"]


def test_a_result_that_is_too_long_passes_and_the_rest_is_as_ever():
    messages = [user("q", SLICES), answer(), {"role": "tool", "content": SENTENCES}, user("r", SLICES)]
    sent = Proxied(Dedup(chunks=True, max_text=100)).send({"messages": messages})["messages"]
    assert sent[2]["content"] == SENTENCES
    assert "(given above)" in sent[3]["content"]


def test_a_large_request_is_worked_on_elsewhere_and_becomes_the_same(monkeypatch):
    messages = [SYSTEM, user("q", SLICES, STEPS), answer(), user("r", SETS, SLICES)]
    sent = Proxied().send({"messages": messages})
    monkeypatch.setattr("contextpilot_rag.proxy.apart._LARGE", 0)
    assert Proxied().send({"messages": messages}) == sent


@pytest.mark.parametrize("api", ["chat", "messages", "responses"])
def test_a_message_without_text_gets_one(api):
    name, kind = ("input", "input_text") if api == "responses" else ("messages", "text")
    image = {"type": "image"}
    documents = f"<documents>\n[1] {SLICES}\n</documents>"
    for content, wanted in ((None, documents), ("", documents), ([image], [{"type": kind, "text": documents}, image])):
        sent = Proxied().send({name: [{**user("", SLICES), "content": content}]}, api)
        assert sent[name][0]["content"] == wanted


def test_a_prompt_begins_with_its_blocks():
    for prompt in ("Once", ["Once"]):
        sent = Proxied().send({"prompt": prompt, "contextpilot": {"blocks": [SLICES]}}, "completions")["prompt"]
        assert (sent if isinstance(sent, str) else sent[0]) == f"<documents>\n[1] {SLICES}\n</documents>\n\nOnce"


def test_blocks_behind_the_system_prompt_are_aligned_and_labels_number_on():
    proxied = Proxied(BLOCKS)
    behind = {"blocks": [SLICES, STEPS], "position": "system"}
    proxied.send({"messages": [SYSTEM, {"role": "user", "content": "q"}], "contextpilot": behind})
    behind = {"blocks": [SETS, SLICES], "position": "system"}
    sent = proxied.send({"messages": [SYSTEM, user("r", SLICES, "More.")], "contextpilot": behind})["messages"]
    assert sent[0]["content"] == (
        f"Be brief.\n\n<documents>\n[1] {SLICES}\n\n[2] {SETS}\n</documents>\n\n"
        "Order of relevance, best first: [2] > [1]"
    )
    assert sent[1]["content"] == f"<documents>\n[3] {SLICES}\n\n[4] More.\n</documents>\n\nr"
    assert proxied.last.report.blocks == 4
    assert set(proxied.last.labels) == {1, 2, 3, 4}


@pytest.mark.parametrize(("api", "name"), [("responses", "instructions"), ("messages", "system")])
def test_a_system_prompt_that_stands_apart_is_added_or_goes_on(api, name):
    field = {"blocks": [SLICES], "position": "system"}
    documents = f"<documents>\n[1] {SLICES}\n</documents>"
    body = {("input" if api == "responses" else "messages"): [{"role": "user", "content": "q"}], "contextpilot": field}
    assert Proxied().send(body, api)[name] == documents
    assert Proxied().send({name: "Be brief.", **body}, api)[name] == f"Be brief.\n\n{documents}"
    assert Proxied().send({name: None, **body}, api)[name] == documents


def test_numbers_in_hints_count_a_system_prompt_that_was_added():
    body = {
        "input": [
            {"role": "user", "content": SENTENCES},
            {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "a", "output": SENTENCES},
        ],
        "contextpilot": {"blocks": [SLICES], "position": "system"},
    }
    assert "[same text as in message 2 at 0:" in Proxied().send(body, "responses")["input"][2]["output"]


def test_results_of_tools_in_messages_of_anthropic_are_replaced_by_their_places():
    def result(text: Any) -> dict[str, Any]:
        return {"type": "tool_result", "tool_use_id": "a", "content": text}

    body = {
        "system": "Be brief.",
        "messages": [
            user("q", SLICES),
            answer(),
            {"role": "user", "content": [result(TABLE), result([{"type": "text", "text": SENTENCES}])]},
            answer(),
            {"role": "user", "content": [result(SENTENCES), {"type": "text", "text": "mixed"}]},
            answer(),
            {"role": "user", "content": [result(SENTENCES)]},
        ],
    }
    sent = Proxied().send(body, "messages")["messages"]
    assert sent[2:5] == body["messages"][2:5]  # what stands together with a user's own text is sent in full
    assert sent[6]["content"][0]["content"].startswith("[same text as in message 4, part 2 at 0:")


def test_the_order_that_was_decided_is_kept_and_one_that_does_not_fit_is_not_used():
    proxied = Proxied()
    proxied.send({"messages": [user("q", SLICES, STEPS)]})
    turn = user("r", SETS, SLICES)
    first = proxied.send({"messages": [turn]})["messages"]
    proxied.pilot.blocking.forget()
    assert proxied.send({"messages": [turn, answer(), user("s", STEPS)]})["messages"][0] == first[0]
    for odd in ((0,), (0, 0), (1, 2), (2, 1, 0)):
        other = Proxied(proxied.dedup)
        other.memory.get = lambda _, odd=odd: Decision(odd)
        assert SETS in other.send({"messages": [turn]})["messages"][0]["content"].split("[2]")[0]


def test_history_whose_order_is_forgotten_goes_as_retrieved():
    proxied = Proxied()
    proxied.send({"messages": [user("q", SLICES, STEPS)]})
    sent = proxied.send({"messages": [user("r", SETS, SLICES), answer(), user("s", STEPS)]})["messages"]
    assert sent[0]["content"].startswith(f"<documents>\n[1] {SETS}")


def test_an_index_that_fails_costs_the_order_alone():
    class Broken(LocalIndex):
        def align(self, request):
            raise OSError("gone")

        def sent(self, alignment):
            raise OSError("gone")

    for on_error in ("open", "raise"):
        proxied = Proxied(pilot=AsyncContextPilot(Broken(), on_error=on_error))
        with pytest.raises(AssertionError):  # it counts failures
            proxied.send({"messages": [user("q", SLICES, STEPS)]})
        assert proxied.last.order == (0, 1)
        assert STEPS in str(proxied.last.changes)


def test_where_replaying_fails_all_blocks_go_out_in_full(monkeypatch):
    def fails(*_: Any) -> None:
        raise RuntimeError("never")

    monkeypatch.setattr(replaying.Talk, "turn", fails)
    proxied = Proxied(pilot=AsyncContextPilot())
    with pytest.raises(AssertionError):
        proxied.send({"messages": [user("q", SLICES), answer(), user("r", SLICES, STEPS)]})
    assert proxied.pilot.failures == 1
    values = [change.value for change in proxied.last.changes if hasattr(change, "value")]
    assert values == [
        f"<documents>\n[1] {SLICES}\n</documents>\n\nq",
        f"<documents>\n[1] {SLICES}\n\n[2] {STEPS}\n</documents>\n\nr",
    ]
    assert proxied.last.order is None


_tools = st.lists(block_texts, max_size=2)
_turns = st.lists(
    st.tuples(st.lists(block_texts, max_size=4), questions, _tools, st.booleans()), min_size=1, max_size=4
)


def _chat_call(result: str) -> list[dict[str, Any]]:
    return [{"role": "assistant", "content": None}, {"role": "tool", "tool_call_id": "a", "content": result}]


def _responses_call(result: str) -> list[dict[str, Any]]:
    return [
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": result},
    ]


def _messages_call(result: str) -> list[dict[str, Any]]:
    call = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
    texts = [{"type": "text", "text": "Found:"}, {"type": "text", "text": result}]
    given = [{"type": "tool_result", "tool_use_id": "a", "content": content} for content in (texts, result)]
    return [{"role": "assistant", "content": [call]}, {"role": "user", "content": given}]


FORMATS_OF: dict[Api, tuple[str, str, Any]] = {
    "chat": ("messages", "", _chat_call),
    "responses": ("input", "instructions", _responses_call),
    "messages": ("messages", "system", _messages_call),
}


def _requests(turns, api: Api):
    """The bodies of a conversation's requests, each with all that came before."""
    name, system, call = FORMATS_OF[api]
    messages: list[dict[str, Any]] = [] if system else [SYSTEM]
    for number, (texts, question, results, named) in enumerate(turns):
        blocks = [{"id": f"{number}-{place}", "text": text} if named else text for place, text in enumerate(texts)]
        messages.append(user(question, *blocks))
        for result in [None, *results]:
            messages += [] if result is None else call(result)
            yield {name: list(messages), **({system: "Be brief."} if system else {})}
        messages.append(answer(f"See [{number}]."))


def _plain(value: Any) -> bool:
    """Whether JSON can carry it: no lone surrogates."""
    try:
        str(value).encode()
        repr(value).encode()
    except UnicodeEncodeError:
        return False
    return "\\ud" not in repr(value)


@given(
    _turns.filter(_plain),
    st.sampled_from([Dedup(False), BLOCKS, ALL, Dedup(chunks=True, normalise=False)]),
    st.sampled_from(list(FORMATS_OF)),
    st.booleans(),
)
def test_nothing_is_lost_and_what_was_sent_stays(turns, dedup, api, hinted):
    proxied = Proxied(
        dedup, AsyncContextPilot(min_gain=0, order="throughput", order_hint=hinted, normalise=dedup.normalise)
    )
    name = FORMATS_OF[api][0]
    opening, *_ = _requests([(turns[0][0][::-1], "Other?", [], False)], api)
    proxied.send(opening, api)  # so that there is an order to be had
    before: list[dict[str, Any]] = []
    for body in _requests(turns, api):
        sent = proxied.send(body, api)
        assert sent[name][: len(before)] == before
        before = sent[name]
        all_read = [read(one, api).messages for one in (body, sent, expand_body(api, sent))]
        for own, now, whole in zip(*all_read, strict=True):
            texts, full = ([text.text for text in one.texts] for one in (own, whole))
            if own.role == "tool":
                assert len(full) == len(texts)
                assert all(map(partial(_same, dedup), full, texts))
            elif own.role == "user" and own.value["contextpilot"]["blocks"]:
                assert now.texts[0].text.endswith(texts[0])
                _stands_in(full[0], own.value["contextpilot"]["blocks"])
            else:
                assert [text.text for text in now.texts] == texts


def _same(dedup: Dedup, one: str, other: str) -> bool:
    return normal(one) == normal(other) if dedup.normalise else one == other


def _stands_in(full: str, blocks: list[Any]) -> None:
    for text in [block if isinstance(block, str) else block["text"] for block in blocks]:
        assert text in full or normal(text) in normal(full) or normal(escape(text)) in normal(full)
