"""The half of the proxy that knows prompts: what is sent for what a client sends."""

from __future__ import annotations

import asyncio
import json
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contextpilot_rag import AsyncContextPilot, expand
from contextpilot_rag.index.local import LocalIndex
from contextpilot_rag.proxy.problems import Unusable
from contextpilot_rag.proxy.restoring import expand_body
from contextpilot_rag.proxy.rewriter import Rewriter
from contextpilot_rag.proxy.rewriting import Call
from contextpilot_rag.proxy.settings import ProxySettings
from contextpilot_rag.proxy.words import Wishes

SYSTEM = {"role": "system", "content": "Answer from the documents."}
TEXTS = {name: f"{name}: " + f"what {name} says, word for word, and at some length. " * 8 for name in "ABCDEFGH"}


def documents(names, question="What is it?", tag="document"):
    items = "\n".join(f'<{tag} source="{name}.txt">\n{TEXTS[name]}\n</{tag}>' for name in names)
    return {"role": "user", "content": f"<documents>\n{items}\n</documents>\n\n{question}"}


def body(*messages, **fields):
    return json.dumps({"model": "m", "messages": messages, **fields}, indent=1).encode()


class Sent:
    """A rewriter, asked from blocking code. With order hints, unless `options` say otherwise: the harder case."""

    def __init__(self, index=None, tenant="", options=None, **chosen):
        usual = {"dedup": "blocks+chunks", "min_gain": 0.0, "order_hint": True}
        self.pilot = AsyncContextPilot(index, **usual | (options or {}))
        self.rewriter = Rewriter(self.pilot, ProxySettings(upstreams="http://127.0.0.1:1", **chosen))
        self.tenant = tenant

    def outcome(self, raw, api="chat", tenant=None, wishes=Wishes(), cloud=""):  # noqa: B008
        call = Call(api, raw, self.tenant if tenant is None else tenant, wishes, cloud)

        async def ask():
            return await self.rewriter.rewrite(call)

        return asyncio.run(ask())

    def messages(self, *messages, **fields):
        return json.loads(self.outcome(body(*messages), **fields).body)["messages"]


def names_in(message):
    return re.findall(r'source="(.)\.txt"', message["content"])


def test_documents_in_a_wrapper_begin_with_what_was_sent_before():
    sent = Sent()
    sent.messages(SYSTEM, documents("ABC"))
    aligned = sent.messages(SYSTEM, documents("CBAD", "And this?"))[1]
    assert names_in(aligned) == list("ABCD")
    assert aligned["content"].endswith("And this?")
    assert "Order of relevance, best first: 3 > 2 > 1 > 4" in aligned["content"]


def test_the_report_says_what_was_done():
    sent = Sent()
    first = sent.outcome(body(SYSTEM, documents("ABC"))).report
    second = sent.outcome(body(SYSTEM, documents("CBAD"))).report
    assert (first.blocks, first.changed, first.predicted_cached_tokens) == (3, False, 0)
    assert (second.blocks, second.changed) == (4, True)
    assert second.predicted_cached_tokens > 100
    assert second.reason


def test_prompts_that_begin_alike_are_known_to():
    sent = Sent()
    outcomes = [sent.outcome(body(SYSTEM, documents(names))) for names in ("ABC", "BAD", "DC")]
    assert outcomes[0].beginning == outcomes[1].beginning != outcomes[2].beginning


def test_nothing_recognised_is_nothing_changed():
    sent = Sent()
    raw = body(SYSTEM, {"role": "user", "content": "[1] one\n[2] two\nb[1] = a[2]"})
    outcome = sent.outcome(raw)
    assert outcome.body == raw
    assert outcome.report.reason == "nothing was recognised"


@pytest.mark.parametrize("api", ["chat", "completions", "responses", "messages"])
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(raw=st.binary(max_size=200))
def test_any_bytes_pass(api, raw):
    assert Sent().outcome(raw, api).body == raw


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)
ROLES = st.sampled_from(["system", "developer", "user", "assistant"])
MESSAGES = st.lists(
    st.fixed_dictionaries({"role": ROLES, "content": st.text(max_size=60) | JSON}, optional={"name": JSON}), max_size=5
)


@pytest.mark.parametrize("api", ["chat", "completions", "responses", "messages"])
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(
    messages=MESSAGES, rest=st.dictionaries(st.text(max_size=8), JSON, max_size=3), indent=st.sampled_from([None, 2])
)
def test_any_json_passes_where_nothing_is_recognised(api, messages, rest, indent):
    field = {"chat": "messages", "messages": "messages", "responses": "input", "completions": "prompt"}[api]
    rest.pop("contextpilot", None)
    raw = json.dumps({**rest, field: messages}, indent=indent).encode()
    assert Sent().outcome(raw, api).body == raw


def test_history_that_is_sent_again_becomes_the_same_bytes():
    sent = Sent()
    sent.messages(SYSTEM, documents("ABC"))
    turns = [SYSTEM, documents("CABD", "One?")]
    first = sent.messages(*turns)
    assert names_in(first[1]) != list("CABD")
    sent.messages(SYSTEM, documents("DCBA", "Somebody else's?"))
    turns += [{"role": "assistant", "content": "So it is."}, documents("EC", "Two?")]
    second = sent.messages(*turns)
    assert second[:2] == first
    turns += [{"role": "assistant", "content": "Yes."}, {"role": "user", "content": "Three?"}]
    assert sent.messages(*turns)[:4] == second


@pytest.mark.parametrize("level", ["blocks", "blocks+chunks"])
def test_documents_that_stand_in_an_earlier_turn_are_pointed_at_and_can_be_restored(level):
    sent = Sent(options={"dedup": level})
    turns = [SYSTEM, documents("ABC", "One?"), {"role": "assistant", "content": "Yes."}, documents("BD", "Two?")]
    outcome = sent.outcome(body(*turns))
    last = json.loads(outcome.body)["messages"][3]["content"]
    assert TEXTS["B"] not in last
    assert TEXTS["D"] in last
    assert names_in({"content": last}) == ["B", "D"]
    assert outcome.report.replaced >= 1
    assert outcome.report.left_out > 200


def test_results_of_tools_that_repeat_are_pointed_at_and_can_be_restored():
    sent = Sent()
    call = {"role": "assistant", "content": None, "tool_calls": None}
    result = {"role": "tool", "tool_call_id": "1", "content": TEXTS["A"] + TEXTS["B"]}
    turns = [SYSTEM, {"role": "user", "content": "Read it."}, call, result, call, {**result, "tool_call_id": "2"}]
    got = sent.messages(*turns)
    assert got[3] == result
    assert len(got[5]["content"]) < len(result["content"]) / 4
    assert expand(got) == turns


def test_tenants_share_neither_order_nor_what_was_decided():
    sent = Sent()
    sent.messages(SYSTEM, documents("ABC"), tenant="one")
    other = sent.messages(SYSTEM, documents("CBAD"), tenant="two")
    assert names_in(other[1]) == list("CBAD")


def test_a_tenant_has_a_salt_and_the_nameless_one_has_none():
    sent = Sent()
    raw = body({"role": "user", "content": "Hello"}, stream=True)
    assert sent.outcome(raw).body == raw
    one, two = (json.loads(sent.outcome(raw, tenant=name).body) for name in ("one", "two"))
    assert len(one["cache_salt"]) == 43
    assert one["cache_salt"] != two["cache_salt"]
    assert {**one, "cache_salt": None} == {**json.loads(raw), "cache_salt": None}


def test_a_tenants_body_that_cannot_be_read_here_is_given_a_salt_all_the_same():
    """As JavaScript cuts a text within a character, which some engines take and others refuse."""
    for odd in (b"not json", b'{"n": NaN, "cache\\u005fsalt": "own"}', b'{"n": NaN} {}'):
        assert Sent().outcome(odd).body == odd
        with pytest.raises(Unusable, match="cache_salt"):
            Sent().outcome(odd, tenant="one")
    raw = b'{"messages": [{"role": "user", "content": "\\ud83d"}]}'
    assert Sent().outcome(raw).body == raw
    body = Sent().outcome(raw, tenant="one").body
    assert json.loads(body) == {**json.loads(raw), "cache_salt": Sent().rewriter.salt("one")}


def test_blocks_of_a_body_that_cannot_be_read_are_not_lost_in_silence():
    with pytest.raises(Unusable, match="blocks would be lost") as raised:
        Sent().outcome(b'{"n": NaN, "messages": [], "contextpilot": {"blocks": ["a"]}}')
    assert raised.value.param == "contextpilot"


class Broken(LocalIndex):
    def align(self, request):
        raise RuntimeError("broken")


def test_a_broken_index_lets_everything_through_as_retrieved():
    sent = Sent(Broken())
    for names in ("ABC", "CBA"):
        raw = body(SYSTEM, documents(names))
        assert sent.outcome(raw).body == raw
    assert sent.pilot.failures


def test_a_failure_of_ours_forwards_the_original(monkeypatch):
    sent = Sent()
    monkeypatch.setattr("contextpilot_rag.proxy.rewriter.written", lambda *_, **__: 1 / 0)
    raw = body(SYSTEM, documents("ABC"))
    outcome = sent.outcome(raw)
    assert outcome.body == raw
    assert "failed" in outcome.report.reason


def test_blocks_behind_a_question_are_aligned_only_where_that_beginning_comes_again():
    sent = Sent()
    asking = {"role": "user", "content": "Summarise:"}
    assert "begins like this" in sent.outcome(body(asking, documents("ABC"))).report.reason
    sent.messages(asking, documents("ABC", "x"))
    assert names_in(sent.messages(asking, documents("CAB", "y"))[1]) == list("ABC")


def test_labels_that_count_places_stay_or_are_numbered_anew():
    def numbered(names):
        items = "\n".join(f'<document index="{place}">{TEXTS[name]}</document>' for place, name in enumerate(names, 1))
        return {"role": "user", "content": f"<documents>\n{items}\n</documents>\nWhich?"}

    sent = Sent()
    sent.messages(SYSTEM, numbered("ABC"))
    kept = sent.messages(SYSTEM, numbered("CAB"))[1]["content"]
    assert re.findall(r'index="(\d)">(.)', kept) == [("1", "C"), ("2", "A"), ("3", "B")]
    anew = Sent(labels="renumber")
    anew.messages(SYSTEM, numbered("ABC"))
    outcome = anew.outcome(body(SYSTEM, numbered("CAB")))
    changed = json.loads(outcome.body)["messages"][1]["content"]
    assert re.findall(r'index="(\d)">(.)', changed) == [("1", "A"), ("2", "B"), ("3", "C")]
    assert list(outcome.report.labels) == ["2", "3", "1"]


SOME = st.lists(st.sampled_from("ABCDEFGH"), min_size=2, max_size=5, unique=True)


@settings(deadline=None, max_examples=80, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.tuples(
            st.lists(st.sampled_from("ABCDEFGH"), min_size=2, max_size=5, unique=True), st.text("xyz \n", max_size=9)
        ),
        min_size=1,
        max_size=6,
    )
)
def test_the_set_of_blocks_never_changes_and_all_else_stays(requests):
    sent = Sent()
    for names, question in requests:
        message = documents(names, question)
        got = sent.messages(SYSTEM, message)[1]["content"]
        assert sorted(names_in({"content": got})) == sorted(names)
        assert all(TEXTS[name] in got for name in names)
        assert got.startswith("<documents>\n")
        assert got.endswith(question)
        assert sent.messages(SYSTEM, message)[1]["content"] == got


@pytest.mark.parametrize("cloud", ["", "anthropic"])
def test_marks_of_what_is_to_be_cached_come_and_go_while_the_order_stays(cloud):
    sent = Sent()

    def asked(*messages):
        raw = json.dumps({"model": "m", "system": "Be brief.", "messages": messages}).encode()
        return json.loads(sent.outcome(raw, "messages", cloud=cloud).body)["messages"][0]["content"]

    def marked(message):
        mark = {"cache_control": {"type": "ephemeral"}}
        return {**message, "content": [{"type": "text", "text": message["content"], **mark}]}

    def order(content):
        return re.findall(r'source="(.)\.txt"', "".join(part["text"] for part in content))

    asked(marked(documents("ABC")))
    assert order(asked(marked(documents("CBAD", "One?")))) == list("ABCD")
    plain = {"role": "user", "content": [{"type": "text", "text": documents("CBAD", "One?")["content"]}]}
    answer = {"role": "assistant", "content": "Yes."}
    assert order(asked(plain, answer, marked(documents("EC", "Two?")))) == list("ABCD")


def test_a_text_that_is_a_list_in_one_turn_is_pointed_at_as_when_it_is_none():
    sent = Sent()

    def asked(*messages):
        raw = json.dumps({"model": "m", "messages": messages}).encode()
        return json.loads(sent.outcome(raw, "messages").body)["messages"]

    def marked(message):
        part = {"type": "text", "text": message["content"], "cache_control": {"type": "ephemeral"}}
        return {**message, "content": [part]}

    twice = documents("AB")
    twice["content"] += "\n\n" + documents("CA")["content"]
    first = asked(marked(twice))[0]["content"][0]["text"]
    assert "[same text as in message 1 at" in first
    assert asked(twice, {"role": "assistant", "content": "Yes."}, marked(documents("B")))[0]["content"] == first


def test_a_text_that_was_cut_for_a_breakpoint_and_points_into_itself_is_restored():
    twice = documents("ABCDEFGH", "One?")
    twice["content"] += "\n\n" + documents("CA", "Two?")["content"]
    raw = json.dumps({"model": "m", "messages": [twice]}).encode()
    sent = json.loads(Sent().outcome(raw, "messages", cloud="anthropic").body)
    assert len(sent["messages"][0]["content"]) == 2
    assert "[same text as in message 1 at" in sent["messages"][0]["content"][1]["text"]
    restored = expand_body("messages", sent)["messages"][0]["content"]
    assert "".join(part["text"] for part in restored) == twice["content"]


def test_blocks_are_shared_whether_or_not_the_system_prompt_before_them_is_marked():
    sent = Sent()

    def names(system, some):
        raw = json.dumps({"model": "m", "system": system, "messages": [documents(some)]}).encode()
        return names_in(json.loads(sent.outcome(raw, "messages").body)["messages"][0])

    names([{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}], "ABC")
    assert names("Be brief.", "CBAD") == list("ABCD")
