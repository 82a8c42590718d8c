"""Results of tools in requests that say themselves which blocks they have."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from contextpilot_rag import AsyncContextPilot
from contextpilot_rag.conversation import Dedup
from contextpilot_rag.expand import expand
from contextpilot_rag.proxy.restoring import expand_body
from contextpilot_rag.proxy.rewriter import Rewriter
from contextpilot_rag.proxy.rewriting import Call
from contextpilot_rag.proxy.settings import ProxySettings
from tests.proxy.explicitly import Proxied, user

CLAUSES = "".join(f"{n}. Each party may end clause {n} by a notice of {n} days.\n" for n in range(1, 12))
LOOKALIKE = '[same text as in message 1 at 0: 5 characters from "hello"]'


def result(text: str, number: int) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": str(number), "content": text}


@pytest.mark.parametrize("indent", [None, 2])
def test_json_stays_json_and_is_restored(indent):
    found = [{"id": "a", "text": CLAUSES}, {"id": "b", "text": "Other words, and few of them."}]
    texts = [json.dumps({"query": query, "results": found}, indent=indent) for query in ("ending", "notice")]
    messages = [user("Search.", "A block."), *map(result, texts, (1, 2))]
    body = {"messages": messages}
    sent = Proxied().send(body)
    results = [json.loads(message["content"])["results"] for message in sent["messages"][1:]]
    assert results[0] == found
    assert results[1][0]["text"].startswith("[same text as in message 2")
    assert [message["content"] for message in expand_body("chat", sent)["messages"][1:]] == texts


def test_a_result_that_repeats_one_that_was_sent_as_json_is_pointed_at_as_ever():
    texts = [json.dumps({"text": CLAUSES}), "Read: " + json.dumps({"text": CLAUSES})]
    sent = Proxied().send({"messages": [user("Search.", "A block."), *map(result, texts, (1, 2))]})
    assert [message["content"] for message in expand(sent["messages"])[1:]] == texts


def test_what_looks_like_a_hint_in_a_result_that_is_too_long_points_nowhere():
    texts = [f"{CLAUSES}{LOOKALIKE}", CLAUSES]
    sent = Proxied(Dedup(chunks=True, max_text=100)).send({"messages": [user("Read.", "x"), *map(result, texts, "12")]})
    assert [message["content"] for message in expand(sent["messages"])[1:]] == texts


@pytest.mark.parametrize("blocks", [[], ["A block."]])
def test_what_looks_like_a_hint_in_a_result_beside_a_question_points_nowhere(blocks):
    found = {"type": "tool_result", "tool_use_id": "1", "content": f"{CLAUSES}{LOOKALIKE}"}
    beside = {"role": "user", "content": [found, {"type": "text", "text": "So?"}], "contextpilot": {"blocks": blocks}}
    messages = [user("Search.", "Some block."), {"role": "assistant", "content": "x"}, beside]
    sent = Proxied().send({"messages": messages}, "messages")
    restored = expand_body("messages", sent)["messages"][2]["content"]
    assert restored[0] == found
    assert restored[-1]["text"].endswith("So?")


@pytest.mark.parametrize("form", ["json", "wrapper", "plain"])
def test_results_are_sent_as_they_were_before_a_later_turn_named_its_blocks(form):
    other = CLAUSES.replace("Each", "No")

    def found(*texts):
        if form == "json":
            return json.dumps([{"id": place, "text": text} for place, text in enumerate(texts)])
        if form == "wrapper":
            return "<docs>\n" + "\n".join(f"<doc>\n{text}</doc>" for text in texts) + "\n</docs>"
        return "".join(texts)

    call = {"role": "assistant", "content": "x"}
    messages = [{"role": "user", "content": "Search."}, call, result(found(CLAUSES, other), 1)]
    messages += [call, result(found(other, "Few words."), 2)]
    rewriter = Rewriter(AsyncContextPilot(dedup="blocks+chunks"), ProxySettings(upstreams="http://127.0.0.1:1"))

    def sent(*messages):
        raw = json.dumps({"model": "m", "messages": messages}).encode()
        return json.loads(asyncio.run(rewriter.rewrite(Call("chat", raw))).body)["messages"]

    before = sent(*messages)
    assert "[same text as in message 3" in before[4]["content"]
    assert sent(*messages, call, user("And now?", "A block."))[:5] == before


def test_nothing_is_left_out_where_the_history_stands_upstream_and_numbers_of_messages_mean_others():
    outputs = [{"type": "function_call_output", "call_id": name, "output": CLAUSES} for name in "ab"]
    body = {"model": "m", "input": [*outputs, user("So?", "A block.")], "previous_response_id": "r"}
    rewriter = Rewriter(AsyncContextPilot(dedup="blocks+chunks"), ProxySettings(upstreams="http://127.0.0.1:1"))
    outcome = asyncio.run(rewriter.rewrite(Call("responses", json.dumps(body).encode())))
    assert json.loads(outcome.body)["input"][:2] == outputs
    assert "A block." in json.loads(outcome.body)["input"][2]["content"]
